%% How a lost connection is replaced: every address of the peer is dialled, and only the peer's own
%% host says that the peer has ended.
-module(redial_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_node, [call/4, name/1]).

-export([all/0, suite/0, groups/0, init_per_testcase/2]).
-export([
    a_path_that_carries_needs_proof/1,
    life_outweighs_refusals/1,
    refusals_are_not_passed_on_as_an_end/1,
    a_death_needs_evidence/1,
    a_refusal_by_the_own_host_is_evidence/1
]).
-export([
    refusals_of_all_addresses_are_evidence/1,
    another_vm_that_proves_the_cookie_is_evidence/1,
    silence_after_an_orderly_end_is_evidence/1
]).
-export([
    wrong_bytes_tell_no_address/1,
    order_of_candidates/1,
    attempts_at_the_bounds_of_refusals/1,
    time_for_slow_candidates/1
]).
-export([
    a_relay_that_refuses_ends_no_link/1,
    a_relay_that_closes_ends_no_link/1,
    a_slow_relay_gets_more_time/1,
    a_stranger_that_answers_ends_no_link/1,
    a_node_is_dialed_at_its_new_address/1
]).
-export([peer_restarted_elsewhere/1]).
-export([an_announced_address_is_dialed/1]).

%% Longer than any wait of the cases: no end may come from there.
-define(SURVIVE_MS, 600000).
-define(REFUSED_MS, 3000).

suite() ->
    [{timetrap, {minutes, 4}}, {ct_hooks, [{inet_rdma_test_nodes, [only_rdma, paths]}]}].

all() ->
    [{group, Group} || {Group, _, _} <- groups()].

groups() ->
    Between = [
        a_relay_that_refuses_ends_no_link,
        a_relay_that_closes_ends_no_link,
        a_slow_relay_gets_more_time,
        a_stranger_that_answers_ends_no_link,
        a_node_is_dialed_at_its_new_address,
        peer_restarted_elsewhere
    ],
    [
        {verdict, [], [
            a_path_that_carries_needs_proof,
            life_outweighs_refusals,
            refusals_are_not_passed_on_as_an_end,
            a_death_needs_evidence,
            a_refusal_by_the_own_host_is_evidence,
            refusals_of_all_addresses_are_evidence,
            another_vm_that_proves_the_cookie_is_evidence,
            silence_after_an_orderly_end_is_evidence
        ]},
        {addresses, [], [
            wrong_bytes_tell_no_address,
            order_of_candidates,
            attempts_at_the_bounds_of_refusals,
            time_for_slow_candidates
        ]},
        {tcp, [], Between ++ [an_announced_address_is_dialed]},
        {tls, [], Between ++ [an_announced_address_is_dialed]}
    ].

init_per_testcase(an_announced_address_is_dialed, Config) ->
    inet_rdma_test_network:needed_in_names(Config);
init_per_testcase(_Case, Config) ->
    Config.

%% The verdict.

%% Only proved answers and witnesses end a link that a path carries, or may carry.
a_path_that_carries_needs_proof(_Config) ->
    _ = [
        ?assertEqual({alive, Facts}, {verdict(Facts), Facts})
     || #{uncarried_ms := none, candidates := [#{outcome := Outcome}]} = Facts <- all_facts(),
        #{host := Host} <- [Facts],
        Host =/= dead,
        element(1, outcome(Outcome)) =/= unknown_session
    ],
    Answers = [
        candidate(resolved, false, {unknown_session, Answer}, 0)
     || Answer <- [same, another]
    ],
    _ = [
        ?assert(is_dead((facts())#{uncarried_ms := none, candidates := [Answer]}))
     || Answer <- Answers
    ],
    ?assert(is_dead((facts())#{uncarried_ms := none, host := dead})),
    ?assertNot(is_dead((facts())#{uncarried_ms := none, neighbour := dead})).

%% What shows that the peer lives outweighs refusals and silence.
life_outweighs_refusals(_Config) ->
    Own = candidate(used, true, refused, 60000),
    Dead = (facts())#{candidates := [Own], is_in_order := true, is_direct := true},
    ?assert(is_dead(Dead)),
    _ = [
        ?assertEqual({alive, Life}, {verdict(maps:merge(Dead, Life)), Life})
     || Life <- [
            #{host => alive},
            #{neighbour => alive},
            #{proved_ms => 0},
            #{is_under_way => true},
            #{name_server => {known, 1, true}}
        ]
    ],
    %% The port that -erl_epmd_port gives is a constant, and an old proof shows nothing.
    _ = [
        ?assert(is_dead(maps:merge(Dead, Nothing)))
     || Nothing <- [#{proved_ms => 3000}, #{name_server => {known, 1, false}}]
    ],
    %% Another VM is registered at another port.
    ?assert(is_dead(Dead#{name_server := {known, 2, true}})),
    Witnesses = #{name_server => {known, 1, true}, is_under_way => true},
    _ = [
        ?assert(is_dead(maps:merge(Dead#{Witness := dead}, Witnesses)))
     || Witness <- [host, neighbour]
    ],
    %% Proofs of its life outweigh hearsay of its end.
    _ = [
        ?assertEqual(alive, verdict(maps:merge(Dead#{neighbour := dead}, Life)))
     || Life <- [#{host => alive}, #{proved_ms => 0}]
    ],
    ?assert(is_dead((facts())#{neighbour := presumed})),
    ?assertNot(is_dead((facts())#{neighbour := presumed, uncarried_ms := 999})),
    ok.

%% What refusals show is not passed on as the end of the peer's VM.
refusals_are_not_passed_on_as_an_end(_Config) ->
    Own = candidate(used, true, refused, 60000),
    Grades = [
        {proved, #{host => dead}},
        {proved, #{candidates => [candidate(resolved, false, {unknown_session, another}, 0)]}},
        {answered, #{candidates => [candidate(used, true, {unknown_session, same}, 0)]}},
        {presumed, #{neighbour => dead}},
        {proved, #{candidates => [Own], name_server => {unknown, true}}},
        {proved, #{candidates => [Own], is_in_order => true, is_direct => true}},
        {presumed, #{candidates => [Own]}},
        {presumed, #{candidates => [candidate(used, false, closed, 2000)]}},
        {proved, #{
            candidates => [candidate(used, true, none, 0)], is_in_order => true, is_direct => true
        }},
        {presumed, #{
            candidates => [candidate(used, true, unanswered, 0)],
            is_in_order => true,
            uncarried_ms => 6000
        }}
    ],
    _ = [
        begin
            {dead, Given, _Why} = verdict(maps:merge(facts(), Facts)),
            ?assertEqual({Grade, Facts}, {Given, Facts})
        end
     || {Grade, Facts} <- Grades
    ],
    ok.

%% Without a proof, a witness or a refusal, an end of the connection that is not in order ends no
%% link.
a_death_needs_evidence(_Config) ->
    _ = [
        ?assertEqual({false, Facts}, {is_dead(Facts), Facts})
     || #{
            candidates := [#{outcome := Outcome}],
            host := Host,
            neighbour := Neighbour,
            is_in_order := false,
            name_server := Server
        } = Facts <- all_facts(),
        Host =/= dead,
        Neighbour =/= dead,
        not lists:member(Outcome, [refused, closed]),
        element(1, outcome(Outcome)) =/= unknown_session,
        not (Outcome =:= unanswered andalso element(1, outcome(Server)) =:= unknown)
    ],
    ok.

a_refusal_by_the_own_host_is_evidence(_Config) ->
    Own = candidate(used, true, refused, 0),
    Long = candidate(used, true, refused, 1000),
    ?assert(is_dead((facts())#{candidates := [Own], name_server := {unknown, true}})),
    %% The kernel of a process that is ending has accepted a connection: the next attempt is
    %% refused, which is proof.
    Gone = (facts())#{name_server := {unknown, true}},
    ?assertNot(is_dead(Gone#{candidates := [candidate(used, true, closed, 0)]})),
    ?assertMatch(
        {dead, proved, _}, verdict(Gone#{candidates := [candidate(used, true, refused, 20)]})
    ),
    ?assertMatch(
        {dead, presumed, _}, verdict(Gone#{candidates := [candidate(used, true, closed, 20)]})
    ),
    ?assertMatch(
        {dead, presumed, _}, verdict(Gone#{candidates := [candidate(used, false, closed, 0)]})
    ),
    %% A name server that has never known the node says nothing.
    ?assertNot(is_dead((facts())#{candidates := [Own], name_server := {unknown, false}})),
    ?assertNot(is_dead((facts())#{candidates := [Own]})),
    %% A host that is at a bound closes connections.
    ?assertNot(is_dead((facts())#{candidates := [candidate(used, true, closed, 1999)]})),
    ?assert(is_dead((facts())#{candidates := [candidate(used, true, closed, 2000)]})),
    %% The kernel of the peer's host has ended the connection itself.
    ?assert(is_dead((facts())#{candidates := [Own], is_in_order := true, is_direct := true})),
    ?assertNot(is_dead((facts())#{candidates := [Own], is_in_order := true})),
    ?assertNot(is_dead((facts())#{candidates := [Own], is_direct := true})),
    ?assert(is_dead((facts())#{candidates := [Long]})),
    ?assert(is_dead((facts())#{candidates := [Long], name_server := {known, 1, false}})),
    %% Another port is registered, and has not refused.
    _ = [
        ?assertNot(
            is_dead((facts())#{
                candidates := [Long, candidate(resolved, false, Outcome, 0)],
                name_server := {known, 2, false}
            })
        )
     || Outcome <- [none, unanswered, slow, failed, stranger]
    ],
    %% Another address of the peer's name, with the same port.
    _ = [
        ?assert(
            is_dead((facts())#{
                candidates := [Long, (candidate(resolved, false, Outcome, 0))#{port := 1}]
            })
        )
     || Outcome <- [none, unanswered, slow, failed]
    ],
    %% An address that was announced, and leads to nothing here, does not matter.
    _ = [
        ?assert(is_dead((facts())#{candidates := [Long, candidate(announced, false, Outcome, 0)]}))
     || Outcome <- [none, unanswered, unreachable, slow, failed, refused]
    ],
    ok.

%% All addresses that led to the peer refuse, or close connections.
refusals_of_all_addresses_are_evidence(_Config) ->
    Used = candidate(used, false, refused, 2000),
    Translated = (facts())#{candidates := [Used]},
    ?assert(is_dead(Translated)),
    ?assertNot(is_dead(Translated#{candidates := [Used#{refused_ms := 1999}]})),
    ?assertNot(is_dead(Translated#{refused_ms := 5000})),
    ?assertNot(is_dead(Translated#{refused_ms := infinity})),
    ?assert(
        is_dead(Translated#{candidates := [Used#{refused_ms := 0}], name_server := {unknown, true}})
    ),
    ?assertNot(
        is_dead(Translated#{candidates := [Used#{refused_ms := 0}], name_server := {unknown, false}})
    ),
    _ = [
        ?assertNot(
            is_dead(Translated#{candidates := [Used, candidate(resolved, false, Outcome, 0)]})
        )
     || Outcome <- [none, unanswered, slow, failed, stranger]
    ],
    _ = [
        ?assert(is_dead(Translated#{candidates := [Used, candidate(Origin, false, Outcome, 0)]}))
     || {Origin, Outcome} <- [
            {resolved, unreachable},
            {announced, unanswered},
            {announced, none},
            {announced, slow}
        ]
    ],
    %% An acceptor only supposes that its peer listens where it comes from.
    Supposed = (candidate(used, false, unanswered, 0))#{is_reached := false},
    ?assert(
        is_dead(Translated#{candidates := [Supposed, candidate(resolved, false, refused, 2000)]})
    ),
    Refused = Supposed#{outcome := refused, refused_ms := 60000},
    ?assertNot(is_dead(Translated#{candidates := [Refused]})),
    %% The peer's name leads there.
    ?assert(is_dead(Translated#{candidates := [Refused#{has_epmd := true}]})),
    %% This host itself refuses.
    ?assertNot(is_dead(Translated#{candidates := [Used#{is_here := true}]})),
    ?assertNot(is_dead(Translated#{candidates := [candidate(announced, false, refused, 60000)]})).

%% Another VM has answered, and has proved the cookie.
another_vm_that_proves_the_cookie_is_evidence(_Config) ->
    Used = candidate(used, false, {unknown_session, another}, 0),
    ?assertNot(is_dead((facts())#{candidates := [Used]})),
    ?assert(is_dead((facts())#{candidates := [Used], name_server := {known, 1, true}})),
    ?assert(is_dead((facts())#{candidates := [Used#{is_own := true}]})),
    ?assert(is_dead((facts())#{candidates := [Used#{origin := resolved}]})),
    ?assert(is_dead((facts())#{candidates := [Used#{outcome := {unknown_session, same}}]})),
    ?assertNot(is_dead((facts())#{candidates := [Used#{outcome := stranger, is_own := true}]})).

silence_after_an_orderly_end_is_evidence(_Config) ->
    Used = candidate(used, true, unanswered, 0),
    Silent = (facts())#{candidates := [Used], uncarried_ms := 6000, is_in_order := true},
    ?assert(is_dead(Silent)),
    _ = [
        ?assertNot(is_dead(maps:merge(Silent, Other)))
     || Other <- [
            #{uncarried_ms => 5000},
            #{is_in_order => false},
            #{has_answered => true},
            #{candidates => [Used#{outcome := failed}]},
            #{candidates => []}
        ]
    ],
    ?assert(is_dead(Silent#{candidates := [Used, candidate(announced, false, refused, 6000)]})),
    %% The kernel of the peer's host has ended the connection itself: a second is enough.
    Direct = Silent#{
        uncarried_ms := 1000, is_direct := true, candidates := [Used#{outcome := none}]
    },
    ?assert(is_dead(Direct)),
    %% The kernel of a process that is ending has accepted a connection.
    ?assert(is_dead(Direct#{candidates := [Used#{outcome := closed}]})),
    _ = [
        ?assertNot(is_dead(maps:merge(Direct, Other)))
     || Other <- [
            #{uncarried_ms => 999},
            #{is_in_order => false},
            #{has_answered => true},
            #{candidates => []}
        ]
    ],
    %% The peer's kernel resets a connection that has unread bytes. EPMD of the peer's own address
    %% answers.
    AtEpmd = Used#{has_epmd := true},
    Reset = Silent#{is_in_order := false, name_server := {unknown, false}, candidates := [AtEpmd]},
    ?assert(is_dead(Reset)),
    _ = [
        ?assertNot(is_dead(maps:merge(Reset, Other)))
     || Other <- [
            #{uncarried_ms => 5000},
            #{has_answered => true},
            #{name_server => no_answer},
            #{name_server => {known, 1, true}},
            #{candidates => [Used]},
            #{candidates => [AtEpmd#{is_own := false}]},
            #{candidates => [Used, AtEpmd#{outcome := failed}]}
        ]
    ].

facts() ->
    #{
        uncarried_ms => 1500,
        is_in_order => false,
        is_direct => false,
        is_under_way => false,
        has_answered => false,
        refused_ms => 2000,
        proved_ms => none,
        host => unknown,
        neighbour => unknown,
        port => 1,
        name_server => no_answer,
        candidates => []
    }.

candidate(Origin, IsOwn, Outcome, RefusedMs) ->
    Port =
        case Origin of
            resolved -> 2;
            _ -> 1
        end,
    #{
        origin => Origin,
        port => Port,
        is_own => IsOwn,
        is_reached => Origin =:= used,
        is_here => false,
        has_epmd => false,
        outcome => Outcome,
        refused_ms => RefusedMs
    }.

is_dead(Facts) ->
    case verdict(Facts) of
        {dead, Grade, Why} when is_atom(Grade), is_binary(Why) -> true;
        Other when Other =:= alive; Other =:= undecided -> false
    end.

verdict(Facts) -> inet_rdma_death:verdict(Facts).

outcome(Outcome) when is_tuple(Outcome) -> Outcome;
outcome(Outcome) -> {Outcome, none}.

%% All facts about one address.
all_facts() ->
    Flags = [true, false],
    Outcomes = [
        none,
        refused,
        closed,
        unanswered,
        unreachable,
        slow,
        failed,
        proved,
        stranger
        | [{unknown_session, Answer} || Answer <- [same, another]]
    ],
    Servers = [
        {known, 1, true},
        {known, 1, false},
        {known, 3, true},
        {unknown, true},
        {unknown, false},
        no_answer
    ],
    Witnesses = [alive, dead, unknown],
    [
        (facts())#{
            is_in_order := IsInOrder,
            is_direct := IsDirect,
            uncarried_ms := Ms,
            is_under_way := IsUnderWay,
            host := Host,
            neighbour := Neighbour,
            name_server := Server,
            candidates := [(candidate(Origin, IsOwn, Outcome, RefusedMs))#{has_epmd := IsOwn}]
        }
     || IsInOrder <- Flags,
        IsDirect <- Flags,
        Ms <- [none, 0, 6000],
        IsUnderWay <- Flags,
        Host <- Witnesses,
        Neighbour <- Witnesses,
        Server <- Servers,
        Origin <- [used, resolved, announced],
        IsOwn <- Flags,
        Outcome <- Outcomes,
        RefusedMs <- [0, 60000]
    ].

%% Addresses.

%% A message gives what it has; one with any other bytes gives nothing.
wrong_bytes_tell_no_address(_Config) ->
    ok = inet_rdma_nif:load(),
    Ends = {{{10, 1, 2, 3}, 4000}, {{10, 1, 2, 4}, 40000}},
    Message = inet_rdma_peer_node:message(
        inet_rdma_peer_node:own({{0, 0, 0, 0}, 4000}, Ends, <<"name">>)
    ),
    {ok, PeerNode} = inet_rdma_peer_node:parse(Message),
    ?assertEqual({{10, 1, 2, 3}, 4000}, hd(inet_rdma_peer_node:addresses(PeerNode))),
    ?assertEqual(Message, inet_rdma_peer_node:message(PeerNode)),
    Nowhere = inet_rdma_peer_node:own(none, none, <<>>),
    ?assertEqual({ok, Nowhere}, inet_rdma_peer_node:parse(inet_rdma_peer_node:message(Nowhere))),
    Six = inet_rdma_peer_node:own({{8193, 3512, 0, 0, 0, 0, 0, 1}, 1}, none, <<>>),
    ?assertEqual([{{8193, 3512, 0, 0, 0, 0, 0, 1}, 1}], inet_rdma_peer_node:addresses(Six)),
    ?assertEqual({ok, Six}, inet_rdma_peer_node:parse(inet_rdma_peer_node:message(Six))),
    Loopback = {{{127, 0, 0, 1}, 1}, {{127, 0, 0, 1}, 2}},
    ?assertEqual(
        [],
        inet_rdma_peer_node:addresses(inet_rdma_peer_node:own({{127, 0, 0, 1}, 1}, Loopback, <<>>))
    ),
    _ = [
        ?assertEqual(error, inet_rdma_peer_node:parse(binary:part(Message, 0, Bytes)))
     || Bytes <- lists:seq(0, byte_size(Message) - 1)
    ],
    ?assertEqual(error, inet_rdma_peer_node:parse(<<Message/binary, 0>>)),
    %% Until the addresses: the bound address, no ends, no witness.
    <<Head:41/binary, _/binary>> =
        inet_rdma_peer_node:message(inet_rdma_peer_node:own({{0, 0, 0, 0}, 4000}, none, <<>>)),
    Before = <<Head/binary, 0, 0>>,
    {ok, _} = inet_rdma_peer_node:parse(<<Before/binary, 1, 4, 10, 1, 2, 3>>),
    _ = [
        ?assertEqual({error, Ip}, {
            inet_rdma_peer_node:parse(<<Before/binary, 1, 4, Ip/binary>>), Ip
        })
     || Ip <- [
            <<127, 0, 0, 1>>,
            <<0, 0, 0, 0>>,
            <<169, 254, 1, 1>>,
            <<224, 0, 0, 1>>,
            <<255, 255, 255, 255>>
        ]
    ],
    _ = [
        ?assertEqual(error, inet_rdma_peer_node:parse(<<Before/binary, 1, 6, Ip:128>>))
     || Ip <- [0, 1, 16#fe80 bsl 112]
    ].

order_of_candidates(_Config) ->
    ok = inet_rdma_nif:load(),
    Own = inet_rdma_peer_node:own({{10, 9, 8, 7}, 4000}, none, <<>>),
    {ok, PeerNode} = inet_rdma_peer_node:parse(inet_rdma_peer_node:message(Own)),
    [Used, Resolved, TheTold] = [
        {{10, 1, 1, 1}, 4000}, {{10, 2, 2, 2}, 4001}, {{10, 9, 8, 7}, 4000}
    ],
    New = inet_rdma_candidates:new(#{
        peer => Used,
        role => initiator,
        reached => [],
        peer_node => PeerNode,
        refused_ms => 2000
    }),
    Candidates = inet_rdma_candidates:resolved([Resolved, Used], New),
    ?assertEqual([Used, Resolved, TheTold], inet_rdma_candidates:addresses(Candidates)),
    ?assertEqual({due, Used}, inet_rdma_candidates:next(0, Candidates)),
    Started = inet_rdma_candidates:started(Used, Candidates),
    ?assertEqual({due, Resolved}, inet_rdma_candidates:next(0, Started)),
    {true, Ended} = inet_rdma_candidates:ended(Used, refused, {0, 1000}, Started),
    {false, _} = inet_rdma_candidates:ended(Used, refused, {0, 1000}, Ended),
    ?assertEqual({due, Resolved}, inet_rdma_candidates:next(0, Ended)),
    %% What has led to the peer last is the address in use.
    Later = inet_rdma_candidates:new(#{
        peer => Used,
        role => initiator,
        reached => [{dialled, TheTold}],
        peer_node => PeerNode,
        refused_ms => 2000
    }),
    ?assertEqual([TheTold, Used], inet_rdma_candidates:addresses(Later)),
    From = inet_rdma_candidates:new(#{
        peer => Used,
        role => acceptor,
        peer_node => PeerNode,
        refused_ms => 2000,
        reached => [{from, {10, 9, 8, 7}}]
    }),
    ?assertEqual([TheTold, Used], inet_rdma_candidates:addresses(From)).

%% However long the pauses are: refusals have lasted until the last one, not until now.
attempts_at_the_bounds_of_refusals(_Config) ->
    ok = inet_rdma_nif:load(),
    Address = {{10, 1, 1, 1}, 4000},
    New = inet_rdma_candidates:new(#{
        peer => Address,
        role => initiator,
        reached => [],
        peer_node => none,
        refused_ms => 2000
    }),
    Refuse = fun(AtMs, Candidates) ->
        element(2, inet_rdma_candidates:ended(Address, refused, {AtMs, 1000}, Candidates))
    end,
    Often = lists:foldl(Refuse, New, [0, 20, 60, 140, 300, 620]),
    ?assertEqual({at, 1000}, inet_rdma_candidates:next(1, Often)),
    Later = Refuse(1200, Often),
    ?assertEqual({at, 2000}, inet_rdma_candidates:next(1, Later)),
    ?assertMatch([#{refused_ms := 1200}], inet_rdma_candidates:facts(none, Later)).

%% After an answer that comes too late an attempt there has twice the time; one of these is under
%% way at a time.
time_for_slow_candidates(_Config) ->
    ok = inet_rdma_nif:load(),
    [First, Second, Third] = Addresses = [{{10, 1, 1, I}, 4000} || I <- [1, 2, 3]],
    Empty = inet_rdma_candidates:new(#{
        peer => none,
        role => initiator,
        reached => [],
        peer_node => none,
        refused_ms => 2000
    }),
    New = inet_rdma_candidates:resolved(Addresses, Empty),
    End = fun(Outcome) ->
        fun(Address, Candidates) ->
            element(2, inet_rdma_candidates:ended(Address, Outcome, {0, 1000}, Candidates))
        end
    end,
    Slow = lists:foldl(End(slow), New, [First, Second]),
    ?assertEqual([2, 2, 1], [inet_rdma_candidates:factor(Address, Slow) || Address <- Addresses]),
    ?assertEqual(
        4,
        inet_rdma_candidates:factor(First, lists:foldl(End(slow), Slow, lists:duplicate(9, First)))
    ),
    ?assertEqual(2, inet_rdma_candidates:factor(First, (End(failed))(First, Slow))),
    ?assertEqual(1, inet_rdma_candidates:factor(First, inet_rdma_candidates:hurry(Slow))),
    Running = inet_rdma_candidates:started(First, Slow),
    ?assertEqual({due, Third}, inet_rdma_candidates:next(1000, Running)),
    ?assertEqual(
        none, inet_rdma_candidates:next(1000, inet_rdma_candidates:started(Third, Running))
    ),
    Refused = (End(refused))(First, Running),
    ?assertEqual(1, inet_rdma_candidates:factor(First, Refused)),
    ?assertEqual(
        {due, Second}, inet_rdma_candidates:next(1000, inet_rdma_candidates:started(Third, Refused))
    ).

%% Between the nodes.

%% Nobody listens at the address in use for a while, as with a load balancer that restarts. The peer
%% lives, as its host shows.
a_relay_that_refuses_ends_no_link(Config) ->
    #{a := A, b := B, relay := Relay} = detour(Config),
    undisturbed(A, B, fun(Before) ->
        ok = inet_rdma_test_relay:refuse(Relay),
        ok = holds(A, B, Before),
        ok = inet_rdma_test_relay:pass(Relay)
    end).

%% The relay ends the connections in order, and goes on listening.
a_relay_that_closes_ends_no_link(Config) ->
    #{a := A, b := B, relay := Relay} = detour(Config),
    _ = [
        undisturbed(A, B, fun(_Before) -> ?assert(inet_rdma_test_relay:lose(Relay, close) > 0) end)
     || _ <- [1, 2, 3]
    ],
    ok.

%% At each attempt the peer's answer comes later than the first time limits allow, also without TLS.
a_slow_relay_gets_more_time(Config) ->
    #{a := A, b := B, relay := Relay} = detour(Config),
    undisturbed(A, B, fun(_Before) -> ok = inet_rdma_test_relay:slow(Relay, 4500) end).

%% The address in use leads to another node for a while. The peer is stopped, so that it cannot dial
%% itself.
a_stranger_that_answers_ends_no_link(Config) ->
    #{a := A, b := B, relay := Relay} = Detour = detour(Config),
    C = inet_rdma_test_node:start(
        "c", maps:remove(name, maps:get(options, Detour#{options := plain(Config)}))
    ),
    undisturbed(A, B, fun(Before) ->
        inet_rdma_test_node:suspend(B),
        ok = inet_rdma_test_relay:lead_to(Relay, {{127, 0, 0, 1}, port_of(C)}),
        ?assert(inet_rdma_test_relay:lose(Relay, reset) > 0),
        ok = holds(A, B, Before),
        ok = inet_rdma_test_relay:lead_to(Relay, {
            {127, 0, 0, 1}, inet_rdma_test_detour:port_of(Detour)
        }),
        inet_rdma_test_node:resume(B)
    end).

port_of(C) -> element(2, call(C, inet_rdma_test_remote, listens, [])).

%% The node's name leads to another address and port from now on; the ones in use refuse.
a_node_is_dialed_at_its_new_address(Config) ->
    #{a := A, b := B, relay := Relay} = Detour = detour(Config),
    Other = inet_rdma_test_relay:start([
        #{
            at => {{127, 0, 0, 3}, 0},
            to => {{127, 0, 0, 1}, inet_rdma_test_detour:port_of(Detour)},
            from => {127, 0, 0, 4}
        }
    ]),
    undisturbed(A, B, fun(_Before) ->
        ok = inet_rdma_test_detour:found_at(
            {{127, 0, 0, 3}, inet_rdma_test_relay:port(Other)}, Detour
        ),
        ok = inet_rdma_test_relay:refuse(Relay)
    end),
    ?assert(inet_rdma_test_relay:accepted(Other) > 0).

%% The peer's VM has ended, and another one has the name, at another port.
peer_restarted_elsewhere(Config) ->
    #{a := A, b := B, relay := Relay} = Detour = detour(Config),
    Watcher = inet_rdma_test_node:watch(A, B),
    ok = inet_rdma_test_relay:refuse(Relay),
    inet_rdma_test_node:kill(B),
    inet_rdma_test_node:await_exit(B, 20000),
    Again = inet_rdma_test_detour:again(Detour, fun(_B) -> ok end),
    ok = inet_rdma_test_detour:found_at(
        {{127, 0, 0, 1}, inet_rdma_test_detour:port_of(Again)}, Again
    ),
    inet_rdma_test_wait:until(nodedown, 20000, fun() ->
        call(A, inet_rdma_test_watch, seen, [Watcher]) =/= []
    end).

%% Between two hosts.

%% The peer's host has another address, and nothing passes to the one in use.
an_announced_address_is_dialed(Config) ->
    Network = proplists:get_value(network, Config),
    ok = inet_rdma_test_network:add_address(b, Network),
    [A, B] = hosts(Config),
    ok = inet_rdma_test_node:connect(A, B),
    ok = inet_rdma_test_link:await_lasting(A, B),
    ok = await_announced(A),
    undisturbed(A, B, fun(_Before) ->
        ok = inet_rdma_test_network:bar_address(b, Network),
        ok = inet_rdma_test_network:cut(Network)
    end).

hosts(Config) ->
    Network = proplists:get_value(network, Config),
    Options = options(Config, #{}),
    inet_rdma_test_node:start_all([
        {atom_to_list(Host), Options#{
            long => true,
            under => inet_rdma_test_network:under(Host, Network),
            name => lists:append([
                inet_rdma_test_node:unique(atom_to_list(Host)),
                "@",
                inet_rdma_test_network:address(Host, Network)
            ])
        }}
     || Host <- [a, b]
    ]).

%% Waits until the peer's message about its addresses is there.
await_announced(Node) ->
    inet_rdma_test_wait:until(announced, 20000, fun() ->
        call(Node, inet_rdma_test_remote, has_announced, [])
    end),
    ok.

detour(Config) ->
    Options = options(Config, #{}),
    #{a := A, b := B} =
        Detour =
        inet_rdma_test_detour:start(proplists:get_value(priv_dir, Config), Options, Options),
    ok = inet_rdma_test_node:connect(A, B),
    ok = inet_rdma_test_link:await_lasting(A, B),
    Detour.

plain(Config) -> options(Config, #{args => ["-kernel", "inet_dist_use_interface", "{127,0,0,1}"]}).

options(Config, More) ->
    Rdma = maps:get(rdma, More, []),
    Args = ["-connect_all", "false" | maps:get(args, More, [])],
    inet_rdma_test_paths:options(Config, #{rdma => [{survive_ms, ?SURVIVE_MS} | Rdma], args => Args}).

%% The link gets another connection, and no node hears of its end.
undisturbed(A, B, Disturb) ->
    Watchers = [{Node, inet_rdma_test_node:watch(Node, Peer)} || {Node, Peer} <- [{A, B}, {B, A}]],
    Before = resumes(A, B),
    _ = Disturb(Before),
    inet_rdma_test_wait:until(resumed, 30000, fun() -> resumes(A, B) > Before end),
    ok = inet_rdma_test_link:exercise(A, B),
    [
        ?assertEqual([], call(Node, inet_rdma_test_watch, seen, [Watcher]))
     || {Node, Watcher} <- Watchers
    ].

%% For some seconds the link has no connection, and does not end.
holds(A, B, Before) ->
    inet_rdma_test_wait:holds(suspended, ?REFUSED_MS, fun() -> resumes(A, B) =:= Before end).

%% undefined: there is no link.
resumes(A, B) ->
    case call(A, inet_rdma, info, [name(B)]) of
        #{resumes := Resumes} -> Resumes;
        undefined -> undefined
    end.

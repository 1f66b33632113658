%% How a lost connection is made anew: every address of the peer is dialled, and only the peer's own host says that the
%% peer has ended.
-module(redial_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_node, [call/4, name/1]).

-export([all/0, suite/0, groups/0, init_per_testcase/2]).
-export([carried_or_under_way/1, needs_the_peers_own_word/1, own_refusals/1, strangers/1, silence/1]).
-export([told_messages/1, order_of_candidates/1, time_for_slow_candidates/1]).
-export([relay_refuses/1, relay_closes/1, slow_relay/1, stranger_answers/1, another_address/1]).
-export([peer_restarted_elsewhere/1]).
-export([kill_with_name_server/1, kill_without_name_server/1, kill_with_constant_ports/1, told_address/1]).

%% Longer than any wait of the cases: no end may come from there.
-define(SURVIVE_MS, 600000).
-define(REFUSED_MS, 3000).

suite() ->
    [{timetrap, {minutes, 4}}, {ct_hooks, [{inet_rdma_test_nodes, [only_rdma, paths]}]}].

all() ->
    [{group, Group} || {Group, _, _} <- groups()].

groups() ->
    Between = [relay_refuses, relay_closes, slow_relay, stranger_answers, another_address, peer_restarted_elsewhere],
    [{verdict, [], [carried_or_under_way, needs_the_peers_own_word, own_refusals, strangers, silence]},
     {addresses, [], [told_messages, order_of_candidates, time_for_slow_candidates]},
     {tcp, [], Between ++ of_hosts()}, {tls, [], Between ++ [kill_with_constant_ports, told_address]}].

init_per_testcase(Case, Config) ->
    case lists:member(Case, of_hosts()) of
        true -> inet_rdma_test_network:needed_in_names(Config);
        false -> Config
    end.

of_hosts() -> [kill_with_name_server, kill_without_name_server, kill_with_constant_ports, told_address].

%% The verdict.

carried_or_under_way(_Config) ->
    _ = [?assertEqual({alive, Facts}, {verdict(Facts), Facts})
         || #{uncarried_ms := Ms, is_under_way := IsUnderWay} = Facts <- all_facts(),
            Ms =:= none orelse IsUnderWay],
    ok.

%% A refusal by something in between, a stranger, a failed attempt and an address that is not reachable are no death.
needs_the_peers_own_word(_Config) ->
    _ = [?assertEqual({false, Facts}, {is_dead(Facts), Facts})
         || #{candidates := [#{is_own := false, origin := Origin, outcome := Outcome}], name_server := Server,
              is_in_order := IsInOrder} = Facts <- all_facts(),
            not (Outcome =:= refused andalso Server =:= {unknown, true}),
            not (Outcome =:= unanswered andalso IsInOrder andalso Origin =/= told),
            not (element(1, outcome(Outcome)) =:= tls_refuses andalso Origin =:= used),
            not lists:member(Outcome, [{unknown_session, same}, {unknown_session, anew}])],
    ok.

own_refusals(_Config) ->
    Own = candidate(used, true, refused, 0),
    Long = candidate(used, true, refused, 1000),
    ?assert(is_dead((facts())#{candidates := [Own], name_server := {unknown, false}})),
    %% The name server's registration ends with the node.
    ?assertNot(is_dead((facts())#{candidates := [Long], name_server := {known, 1, true}})),
    ?assertNot(is_dead((facts())#{candidates := [Own]})),
    ?assert(is_dead((facts())#{candidates := [Long]})),
    ?assert(is_dead((facts())#{candidates := [Long], name_server := {known, 1, false}})),
    ?assertNot(is_dead((facts())#{candidates := [Long], is_in_order := false})),
    ?assert(is_dead((facts())#{candidates := [Long], is_in_order := false, is_same_host := true})),
    %% Another port is registered, and has not refused.
    _ = [?assertNot(is_dead((facts())#{candidates := [Long, candidate(resolved, false, Outcome, 0)],
                                       name_server := {known, 2, false}}))
         || Outcome <- [none, unanswered, slow, failed]],
    %% An address that was told, and leads to nothing here, does not matter.
    _ = [?assert(is_dead((facts())#{candidates := [Long, candidate(told, false, Outcome, 0)]}))
         || Outcome <- [none, unanswered, unreachable, slow, failed, refused]].

strangers(_Config) ->
    Used = candidate(used, false, {unknown_session, anew}, 0),
    ?assertNot(is_dead((facts())#{candidates := [Used]})),
    ?assert(is_dead((facts())#{candidates := [Used], name_server := {known, 1, true}})),
    ?assert(is_dead((facts())#{candidates := [Used#{is_own := true}]})),
    ?assert(is_dead((facts())#{candidates := [Used#{origin := resolved}]})),
    ?assert(is_dead((facts())#{candidates := [Used#{outcome := {unknown_session, same}}]})),
    _ = [?assertNot(is_dead((facts())#{candidates := [Used#{outcome := {unknown_session, Answer}}],
                                       name_server := {known, 1, true}}))
         || Answer <- [stranger, unsaid]],
    ?assertNot(is_dead((facts())#{candidates := [Used#{outcome := {unknown_session, stranger}, is_own := true}]})).

silence(_Config) ->
    Used = candidate(used, true, unanswered, 0),
    Silent = (facts())#{candidates := [Used], uncarried_ms := 6000},
    ?assert(is_dead(Silent)),
    _ = [?assertNot(is_dead(maps:merge(Silent, Other)))
         || Other <- [#{uncarried_ms => 5000}, #{is_in_order => false}, #{has_answered => true},
                      #{candidates => [Used#{outcome := failed}]}, #{candidates => []}]],
    ?assert(is_dead(Silent#{candidates := [Used, candidate(told, false, refused, 6000)]})),
    %% The peer's kernel resets a connection that has unread bytes. EPMD of the peer's own address answers.
    AtEpmd = Used#{has_epmd := true},
    Reset = Silent#{is_in_order := false, name_server := {unknown, false}, candidates := [AtEpmd]},
    ?assert(is_dead(Reset)),
    _ = [?assertNot(is_dead(maps:merge(Reset, Other)))
         || Other <- [#{uncarried_ms => 5000}, #{has_answered => true}, #{name_server => no_answer},
                      #{name_server => {known, 1, true}}, #{candidates => [Used]},
                      #{candidates => [AtEpmd#{is_own := false}]},
                      #{candidates => [Used, AtEpmd#{outcome := failed}]}]].

facts() ->
    #{is_in_order => true, uncarried_ms => 1500, is_under_way => false, is_same_host => false, has_answered => false,
      name_server => no_answer, candidates => []}.

candidate(Origin, IsOwn, Outcome, RefusedMs) ->
    Port = case Origin of resolved -> 2; _ -> 1 end,
    #{origin => Origin, port => Port, is_own => IsOwn, has_epmd => false, outcome => Outcome, refused_ms => RefusedMs}.

is_dead(Facts) ->
    case verdict(Facts) of
        {dead, Why} when is_binary(Why) -> true;
        Other when Other =:= alive; Other =:= undecided -> false
    end.

verdict(Facts) -> inet_rdma_death:verdict(Facts).

outcome({_, _} = Outcome) -> Outcome;
outcome(Outcome) -> {Outcome, none}.

%% All facts about one address.
all_facts() ->
    Flags = [true, false],
    Outcomes = [none, refused, unanswered, unreachable, slow, failed, {tls_refuses, <<"certificate_expired">>}
                | [{unknown_session, Answer} || Answer <- [same, anew, stranger, unsaid]]],
    Servers = [{known, 1, true}, {known, 1, false}, {known, 3, true}, {unknown, true}, {unknown, false}, no_answer],
    [#{is_in_order => IsInOrder, uncarried_ms => Ms, is_under_way => IsUnderWay, is_same_host => IsSameHost,
       has_answered => HasAnswered, name_server => Server,
       candidates => [(candidate(Origin, IsOwn, Outcome, RefusedMs))#{has_epmd := HasEpmd}]}
     || IsInOrder <- Flags, Ms <- [none, 0, 6000], IsUnderWay <- Flags, IsSameHost <- Flags, HasAnswered <- Flags,
        Server <- Servers, Origin <- [used, resolved, told], IsOwn <- Flags, HasEpmd <- Flags, Outcome <- Outcomes,
        RefusedMs <- [0, 1000]].

%% Addresses.

%% A message gives what was told; one with any other bytes gives nothing.
told_messages(_Config) ->
    ok = inet_rdma_nif:load(),
    Message = inet_rdma_told:message(inet_rdma_told:own({{0, 0, 0, 0}, 4000}, {10, 1, 2, 3})),
    {ok, Told} = inet_rdma_told:parse(Message),
    ?assertEqual({{10, 1, 2, 3}, 4000}, hd(inet_rdma_told:addresses(Told))),
    ?assert(inet_rdma_told:is_same_host(Told)),
    ?assertEqual(Message, inet_rdma_told:message(Told)),
    Nowhere = inet_rdma_told:own(none, none),
    ?assertEqual({ok, Nowhere}, inet_rdma_told:parse(inet_rdma_told:message(Nowhere))),
    Six = inet_rdma_told:own({{8193, 3512, 0, 0, 0, 0, 0, 1}, 1}, none),
    ?assertEqual([{{8193, 3512, 0, 0, 0, 0, 0, 1}, 1}], inet_rdma_told:addresses(Six)),
    ?assertEqual({ok, Six}, inet_rdma_told:parse(inet_rdma_told:message(Six))),
    ?assertEqual([], inet_rdma_told:addresses(inet_rdma_told:own({{127, 0, 0, 1}, 1}, {127, 0, 0, 1}))),
    _ = [?assertEqual(error, inet_rdma_told:parse(binary:part(Message, 0, Bytes)))
         || Bytes <- lists:seq(0, byte_size(Message) - 1)],
    ?assertEqual(error, inet_rdma_told:parse(<<Message/binary, 0>>)),
    <<Head:41/binary, _/binary>> = Message,
    _ = [?assertEqual({error, Ip}, {inet_rdma_told:parse(<<Head/binary, 1, 4, Ip/binary>>), Ip})
         || Ip <- [<<127, 0, 0, 1>>, <<0, 0, 0, 0>>, <<169, 254, 1, 1>>, <<224, 0, 0, 1>>, <<255, 255, 255, 255>>]],
    _ = [?assertEqual(error, inet_rdma_told:parse(<<Head/binary, 1, 6, Ip:128>>)) || Ip <- [0, 1, 16#fe80 bsl 112]].

order_of_candidates(_Config) ->
    ok = inet_rdma_nif:load(),
    {ok, Told} = inet_rdma_told:parse(inet_rdma_told:message(inet_rdma_told:own({{10, 9, 8, 7}, 4000}, none))),
    [Used, Resolved, TheTold] = [{{10, 1, 1, 1}, 4000}, {{10, 2, 2, 2}, 4001}, {{10, 9, 8, 7}, 4000}],
    New = inet_rdma_candidates:new(#{peer => Used, reached => [], told => Told}),
    Candidates = inet_rdma_candidates:resolved([Resolved, Used], New),
    ?assertEqual([Used, Resolved, TheTold], inet_rdma_candidates:addresses(Candidates)),
    ?assertEqual({due, Used}, inet_rdma_candidates:next(0, Candidates)),
    Started = inet_rdma_candidates:started(Used, Candidates),
    ?assertEqual({due, Resolved}, inet_rdma_candidates:next(0, Started)),
    {true, Ended} = inet_rdma_candidates:ended(Used, refused, {0, 1000}, Started),
    {false, _} = inet_rdma_candidates:ended(Used, refused, {0, 1000}, Ended),
    ?assertEqual({due, Resolved}, inet_rdma_candidates:next(0, Ended)),
    %% What has led to the peer last is the address in use.
    Later = inet_rdma_candidates:new(#{peer => Used, reached => [{dialled, TheTold}], told => Told}),
    ?assertEqual([TheTold, Used], inet_rdma_candidates:addresses(Later)),
    From = inet_rdma_candidates:new(#{peer => Used, reached => [{from, {10, 9, 8, 7}}], told => Told}),
    ?assertEqual([TheTold, Used], inet_rdma_candidates:addresses(From)).

%% Behind an answer that comes too late an attempt there has twice the time; one of these is under way at a time.
time_for_slow_candidates(_Config) ->
    ok = inet_rdma_nif:load(),
    [First, Second, Third] = Addresses = [{{10, 1, 1, I}, 4000} || I <- [1, 2, 3]],
    Empty = inet_rdma_candidates:new(#{peer => none, reached => [], told => none}),
    New = inet_rdma_candidates:resolved(Addresses, Empty),
    End = fun(Outcome) ->
        fun(Address, Candidates) ->
            element(2, inet_rdma_candidates:ended(Address, Outcome, {0, 1000}, Candidates))
        end
    end,
    Slow = lists:foldl(End(slow), New, [First, Second]),
    ?assertEqual([2, 2, 1], [inet_rdma_candidates:factor(Address, Slow) || Address <- Addresses]),
    ?assertEqual(4, inet_rdma_candidates:factor(First, lists:foldl(End(slow), Slow, lists:duplicate(9, First)))),
    ?assertEqual(2, inet_rdma_candidates:factor(First, (End(failed))(First, Slow))),
    ?assertEqual(1, inet_rdma_candidates:factor(First, inet_rdma_candidates:hurry(Slow))),
    Running = inet_rdma_candidates:started(First, Slow),
    ?assertEqual({due, Third}, inet_rdma_candidates:next(1000, Running)),
    ?assertEqual(none, inet_rdma_candidates:next(1000, inet_rdma_candidates:started(Third, Running))),
    Refused = (End(refused))(First, Running),
    ?assertEqual(1, inet_rdma_candidates:factor(First, Refused)),
    ?assertEqual({due, Second}, inet_rdma_candidates:next(1000, inet_rdma_candidates:started(Third, Refused))).

%% Between the nodes.

%% Nobody listens at the address in use for a while, as with a load balancer that starts anew.
relay_refuses(Config) ->
    #{a := A, b := B, relay := Relay} = detour(Config),
    undisturbed(A, B, fun(Before) ->
        ok = inet_rdma_test_relay:refuse(Relay),
        ok = holds(A, B, Before),
        ok = inet_rdma_test_relay:pass(Relay)
    end).

%% The relay ends the connections in order, and goes on listening.
relay_closes(Config) ->
    #{a := A, b := B, relay := Relay} = detour(Config),
    _ = [undisturbed(A, B, fun(_Before) -> ?assert(inet_rdma_test_relay:lose(Relay, close) > 0) end)
         || _ <- [1, 2, 3]],
    ok.

%% At each attempt the peer's answer comes later than the first time limits allow, also without TLS.
slow_relay(Config) ->
    #{a := A, b := B, relay := Relay} = detour(Config),
    undisturbed(A, B, fun(_Before) -> ok = inet_rdma_test_relay:slow(Relay, 4500) end).

%% The address in use leads to another node for a while. The peer is stopped, so that it cannot dial itself.
stranger_answers(Config) ->
    #{a := A, b := B, relay := Relay} = Detour = detour(Config),
    C = inet_rdma_test_node:start("c", maps:remove(name, maps:get(options, Detour#{options := plain(Config)}))),
    undisturbed(A, B, fun(Before) ->
        inet_rdma_test_node:suspend(B),
        ok = inet_rdma_test_relay:lead_to(Relay, {{127, 0, 0, 1}, port_of(C)}),
        ?assert(inet_rdma_test_relay:lose(Relay, reset) > 0),
        ok = holds(A, B, Before),
        ok = inet_rdma_test_relay:lead_to(Relay, {{127, 0, 0, 1}, inet_rdma_test_detour:port_of(Detour)}),
        inet_rdma_test_node:resume(B)
    end).

port_of(C) -> element(2, call(C, inet_rdma_test_remote, listens, [])).

%% The node's name leads to another address and port from now on; the ones in use refuse.
another_address(Config) ->
    #{a := A, b := B, relay := Relay} = Detour = detour(Config),
    Other = inet_rdma_test_relay:start([#{at => {{127, 0, 0, 3}, 0},
                                          to => {{127, 0, 0, 1}, inet_rdma_test_detour:port_of(Detour)},
                                          from => {127, 0, 0, 4}}]),
    undisturbed(A, B, fun(_Before) ->
        ok = inet_rdma_test_detour:found_at({{127, 0, 0, 3}, inet_rdma_test_relay:port(Other)}, Detour),
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
    ok = inet_rdma_test_detour:found_at({{127, 0, 0, 1}, inet_rdma_test_detour:port_of(Again)}, Again),
    inet_rdma_test_wait:until(nodedown, 20000, fun() -> call(A, inet_rdma_test_watch, seen, [Watcher]) =/= [] end).

%% Between two hosts.

kill_with_name_server(Config) ->
    killed(Config, #{}, fun(_B) -> ok end).

%% EPMD of the peer's host has ended before.
kill_without_name_server(Config) ->
    Network = proplists:get_value(network, Config),
    killed(Config, #{}, fun(_B) -> ok = inet_rdma_test_network:kill(b, "epmd", Network) end).

%% The EPMD module answers the same port for ever.
kill_with_constant_ports(Config) ->
    Directory = filename:join(proplists:get_value(priv_dir, Config), "constant"),
    ok = filelib:ensure_path(Directory),
    Args = ["-start_epmd", "false", "-epmd_module", "inet_rdma_test_epmd", "-inet_rdma_test_epmd", Directory],
    killed(Config, #{args => Args}, fun(_B) -> ok end).

%% Whichever node has connected.
killed(Config, More, Before) ->
    [
        begin
            [A, B] = hosts(Config, More),
            {X, Y} = case First of a -> {A, B}; b -> {B, A} end,
            ok = inet_rdma_test_node:connect(X, Y),
            ok = told(A),
            ok = Before(B),
            Watcher = inet_rdma_test_node:watch(A, B),
            StartMs = erlang:monotonic_time(millisecond),
            inet_rdma_test_node:kill(B),
            inet_rdma_test_wait:until(nodedown, 20000, fun() ->
                call(A, inet_rdma_test_watch, seen, [Watcher]) =/= []
            end),
            ct:pal("nodedown ~b ms after kill -9", [erlang:monotonic_time(millisecond) - StartMs]),
            inet_rdma_test_node:stop_all()
        end
     || First <- [a, b]
    ].

%% The peer's host has another address, and nothing passes to the one in use.
told_address(Config) ->
    Network = proplists:get_value(network, Config),
    ok = inet_rdma_test_network:add_address(b, Network),
    [A, B] = hosts(Config, #{}),
    ok = inet_rdma_test_node:connect(A, B),
    ok = told(A),
    undisturbed(A, B, fun(_Before) ->
        ok = inet_rdma_test_network:bar_address(b, Network),
        ok = inet_rdma_test_network:cut(Network)
    end).

hosts(Config, More) ->
    Network = proplists:get_value(network, Config),
    Options = options(Config, More),
    inet_rdma_test_node:start_all([
        {atom_to_list(Host), Options#{
            long => true, under => inet_rdma_test_network:under(Host, Network),
            name => lists:append([inet_rdma_test_node:unique(atom_to_list(Host)), "@",
                                  inet_rdma_test_network:address(Host, Network)])
        }}
     || Host <- [a, b]
    ]).

%% Waits until the peer's message about its addresses is there.
told(Node) ->
    inet_rdma_test_wait:until(told, 20000, fun() -> call(Node, inet_rdma_test_remote, is_told, []) end),
    ok.

detour(Config) ->
    Options = options(Config, #{}),
    #{a := A, b := B} = Detour =
        inet_rdma_test_detour:start(proplists:get_value(priv_dir, Config), Options, Options),
    ok = inet_rdma_test_node:connect(A, B),
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
    [?assertEqual([], call(Node, inet_rdma_test_watch, seen, [Watcher])) || {Node, Watcher} <- Watchers].

%% For some seconds the link has no connection, and does not end.
holds(A, B, Before) ->
    inet_rdma_test_wait:holds(suspended, ?REFUSED_MS, fun() -> resumes(A, B) =:= Before end).

%% undefined: there is no link.
resumes(A, B) ->
    case call(A, inet_rdma, info, [name(B)]) of
        #{resumes := Resumes} -> Resumes;
        undefined -> undefined
    end.

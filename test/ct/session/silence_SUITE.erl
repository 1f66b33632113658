%% Faults of a network that no kernel reports: packets of a connection vanish, addresses change, a
%% network is away, slow or lossy. A link outlives them, and its traffic is checked. Only the tick
%% time ends a link that stays silent.
%%
%% The hosts are network namespaces (inet_rdma_test_hosts). The tick time is long where a link must
%% be mended, so that nothing but the suspicion of its path mends it.
-module(silence_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_node, [call/4, name/1]).
-import(inet_rdma_test_hosts, [both/2]).
-import(inet_rdma_test_lasting, [
    nodes/3,
    pair/3,
    resumes/2,
    resumed/3,
    watch/2,
    no_nodedown/1,
    await_nodedown/1,
    undisturbed/1
]).

-export([all/0, suite/0, groups/0, init_per_testcase/2, end_per_testcase/2]).
-export([
    a_forgotten_connection_is_replaced/1,
    forgotten_one_way/1,
    forgotten_at_rest/1,
    links_follow_changed_addresses/1,
    a_link_outlives_a_network_that_is_away/1,
    away_one_way/1,
    reader_hears_of_an_outage/1,
    reader_asks_once/1,
    woken_behind_nat/1
]).
-export([a_black_hole_for_large_packets_is_found/1, black_hole_of_the_way/1]).
-export([
    slow_and_lossy/1,
    a_stopped_peer_is_not_suspected/1,
    away_for_too_long/1,
    without_suspicion_a_link_ends_by_its_ticks/1,
    a_forgotten_standby_is_replaced_unnoticed/1
]).
-export([
    a_suspected_path_is_shown/1,
    an_unanswered_attempt_ends_in_time/1,
    random_silences_lose_nothing/1
]).

-define(TICKTIME, 60).
%% Longer than a probe's answer takes.
-define(HELD_MS, 2000).
%% So that no tick of a peer comes in time.
-define(LONG_TICKTIME, 600).
%% For links that are to end.
-define(SHORT_TICKTIME, 8).
-define(AWAY_MS, 12000).
-define(STOPPED_MS, 8000).
%% Much less than a network is away: this time runs only while a link is known to have no path.
-define(SURVIVE_MS, 2000).
-define(SILENCE_MOST_MS, 3000).

suite() ->
    [
        {timetrap, {minutes, 8 + silences() div 60}},
        {ct_hooks, [{inet_rdma_test_nodes, [{hosts, [a, b]}]}]}
    ].

all() ->
    [{group, Group} || {Group, _, _} <- groups()].

groups() ->
    Vanishing = [
        a_forgotten_connection_is_replaced,
        forgotten_one_way,
        forgotten_at_rest,
        links_follow_changed_addresses
    ],
    Carried = [
        a_link_outlives_a_network_that_is_away,
        slow_and_lossy,
        a_stopped_peer_is_not_suspected,
        away_for_too_long
    ],
    [
        {tcp, [],
            Vanishing ++ Carried ++
                [
                    away_one_way,
                    reader_hears_of_an_outage,
                    reader_asks_once,
                    woken_behind_nat,
                    a_black_hole_for_large_packets_is_found,
                    black_hole_of_the_way,
                    without_suspicion_a_link_ends_by_its_ticks,
                    a_suspected_path_is_shown,
                    an_unanswered_attempt_ends_in_time,
                    random_silences_lose_nothing
                ]},
        {tls, [],
            Vanishing ++
                [
                    a_link_outlives_a_network_that_is_away,
                    a_black_hole_for_large_packets_is_found,
                    black_hole_of_the_way,
                    an_unanswered_attempt_ends_in_time
                ]},
        {inet6, [], Vanishing ++ [black_hole_of_the_way]},
        {shm, [], [a_forgotten_standby_is_replaced_unnoticed]}
    ].

%% How many silences links get in random_silences: what CI has time for; INET_RDMA_SILENCES=10000 by
%% hand.
silences() -> list_to_integer(os:getenv("INET_RDMA_SILENCES", "30")).

%% A network that is slow, away or away for too long means the same for every carrier.
init_per_testcase(Case, Config) when
    Case =:= slow_and_lossy;
    Case =:= a_stopped_peer_is_not_suspected;
    Case =:= away_for_too_long;
    Case =:= a_link_outlives_a_network_that_is_away
->
    hosts(2, Config);
init_per_testcase(Case, Config) ->
    case inet_rdma_test_node:only_rdma(Config) of
        {skip, _} = Skip -> Skip;
        _ when Case =:= random_silences_lose_nothing -> hosts(4, Config);
        _ when Case =:= a_forgotten_standby_is_replaced_unnoticed -> hosts(2, with_scratch(Config));
        _ -> hosts(2, Config)
    end.

hosts(Count, Config) ->
    inet_rdma_test_hosts:needed(Config, Count, proplists:get_value(family, Config, inet)).

pair(Config) -> pair(Config, []).

pair(Config, Rdma) -> pair(Config, Rdma, ?TICKTIME).

%% A short name, as it becomes part of the name of a Unix socket, below a directory that no other
%% user writes to.
with_scratch(Config) ->
    Scratch = filename:join("/run", inet_rdma_test_node:unique("inet_rdma")),
    ok = file:make_dir(Scratch),
    ok = file:change_mode(Scratch, 8#700),
    [{scratch, Scratch} | Config].

end_per_testcase(_Case, Config) ->
    inet_rdma_test_node:stop_all(),
    _ = [file:del_dir_r(Scratch) || {scratch, Scratch} <- Config],
    ok.

%% A firewall on the way has forgotten the connection, and drops what belongs to it. Others pass.
a_forgotten_connection_is_replaced(Config) ->
    {Hosts, [A, B]} = pair(Config),
    Traffic = inet_rdma_test_traffic:start(A, B),
    [mended(both(a, b), A, B, Hosts) || _ <- [1, 2]],
    undisturbed(Traffic).

%% One direction of it alone.
forgotten_one_way(Config) ->
    {Hosts, [A, B]} = pair(Config),
    Traffic = inet_rdma_test_traffic:start_small(A, B),
    [mended([Path], A, B, Hosts) || Path <- both(a, b)],
    undisturbed(Traffic).

%% Nothing goes over the link until a process calls the other node: the call is answered.
forgotten_at_rest(Config) ->
    {Hosts, [A, B]} = pair(Config),
    Watchers = watch(A, B),
    [
        begin
            ok = inet_rdma_test_hosts:forget(Paths, Hosts),
            ?assertEqual(name(Y), call(X, erpc, call, [name(Y), erlang, node, []])),
            ok = inet_rdma_test_link:exercise(A, B)
        end
     || Paths <- [both(a, b), [{a, b}], [{b, a}]], {X, Y} <- [{A, B}, {B, A}]
    ],
    no_nodedown(Watchers).

%% The name of a node resolves to its new address, and the packets to the old one are lost. In the
%% end both nodes have moved at once: neither address that the link has known is right.
links_follow_changed_addresses(Config) ->
    {Hosts, [A, B]} = pair(Config),
    Traffic = inet_rdma_test_traffic:start_small(A, B),
    [
        begin
            Before = resumes(A, B),
            ok = inet_rdma_test_hosts:move(Moving, Hosts),
            resumed(A, B, Before)
        end
     || Moving <- [[b], [a], [a, b]]
    ],
    undisturbed(Traffic).

%% Nothing passes, for longer than survive_ms: the path is suspected only, and the link goes on when
%% all passes again.
a_link_outlives_a_network_that_is_away(Config) ->
    {Hosts, [A, B]} = pair(Config, [{survive_ms, ?SURVIVE_MS}]),
    Traffic = inet_rdma_test_traffic:start(A, B),
    ok = inet_rdma_test_hosts:silence(both(a, b), Hosts),
    receive
    after ?AWAY_MS -> ok
    end,
    ok = inet_rdma_test_hosts:pass(Hosts),
    undisturbed(Traffic).

%% One way alone: what the other node sends again and again arrives, and answers nothing. No
%% suspicion is false, the path is suspected until the way is free again, and both nodes log the
%% outage: while it lasts, and its duration.
away_one_way(Config) ->
    {Hosts, [A, B]} = pair(Config),
    [away_one_way(Way, X, Y, Hosts) || {Way, X, Y} <- [{{a, b}, A, B}, {{b, a}, B, A}]].

away_one_way(Way, X, Y, Hosts) ->
    #{suspicions := Before, false_suspicions := False} = call(X, inet_rdma, info, [name(Y)]),
    Traffic = inet_rdma_test_traffic:start_small(X, Y),
    ok = inet_rdma_test_hosts:silence([Way], Hosts),
    await_path_state(suspected, X, Y),
    ok = inet_rdma_test_wait:holds(suspected, ?AWAY_MS, fun() ->
        #{path_state := State, false_suspicions := Now} = call(X, inet_rdma, info, [name(Y)]),
        {State, Now} =:= {suspected, False}
    end),
    [ok = inet_rdma_test_log:await(Node, ["waits: for "]) || Node <- [X, Y]],
    ok = inet_rdma_test_hosts:pass(Hosts),
    [await_path_state(carried, Node, Peer) || {Node, Peer} <- [{X, Y}, {Y, X}]],
    undisturbed(Traffic),
    ?assertMatch(
        #{suspicions := Suspicions} when Suspicions > Before, call(X, inet_rdma, info, [name(Y)])
    ),
    [
        ?assertMatch([_ | _], [
            Line
         || Line <- call(Node, inet_rdma_test_log, lines, []),
            re:run(Line, "goes on .* [0-9]{4,5} ms") =/= nomatch
        ])
     || Node <- [X, Y]
    ].

%% One node only sends, the other one only receives, and one way drops packets. Both log the outage
%% while it lasts, and its duration when it is over. No tick of net_kernel comes in time.
reader_hears_of_an_outage(Config) ->
    {Hosts, [A, B]} = pair(Config, [], ?LONG_TICKTIME),
    [reader_hears_of_an_outage(Way, A, B, Hosts) || Way <- both(a, b)].

reader_hears_of_an_outage(Way, A, B, Hosts) ->
    [ok = call(Node, inet_rdma_test_log, install, []) || Node <- [A, B]],
    Before = received(B),
    Sender = call(A, inet_rdma_test_remote, send_slowly, [name(B)]),
    inet_rdma_test_wait:until(packets, 20000, fun() -> received(B) > Before end),
    ok = inet_rdma_test_hosts:silence([Way], Hosts),
    [ok = inet_rdma_test_log:await(Node, ["waits: for "]) || Node <- [A, B]],
    ok = inet_rdma_test_hosts:pass(Hosts),
    [
        inet_rdma_test_wait:until({name(Node), duration}, 20000, fun() ->
            Lines = call(Node, inet_rdma_test_log, lines, []),
            length([Line || Line <- Lines, re:run(Line, "goes on .* [0-9]{4,5} ms") =/= nomatch]) =:=
                1 orelse Lines
        end)
     || Node <- [A, B]
    ],
    true = call(A, erlang, exit, [Sender, kill]).

%% A node asks once after the packets of the other one, by a tick that the other one's host alone
%% answers. Then the link is idle.
reader_asks_once(Config) ->
    {_Hosts, [A, B]} = pair(Config, [], ?LONG_TICKTIME),
    ok = inet_rdma_test_link:exercise(A, B),
    ok = quiet(A, B),
    Sent = [sent(Node) || Node <- [A, B]],
    a_message = call(A, erlang, send, [{nobody, name(B)}, a_message]),
    Expected = [Each + 1 || Each <- Sent],
    inet_rdma_test_wait:until(Expected, 20000, fun() ->
        Now = [sent(Node) || Node <- [A, B]],
        Now =:= Expected orelse Now
    end),
    ok = inet_rdma_test_wait:holds(idle, ?HELD_MS, fun() ->
        [sent(Node) || Node <- [A, B]] =:= Expected
    end),
    ?assertMatch(
        [#{suspicions := 0}, #{suspicions := 0}],
        [call(X, inet_rdma, info, [name(Y)]) || {X, Y} <- [{A, B}, {B, A}]]
    ).

%% Neither node has sent anything for a while.
quiet(A, B) ->
    Before = [sent(Node) || Node <- [A, B]],
    receive
    after ?HELD_MS -> ok
    end,
    case [sent(Node) || Node <- [A, B]] of
        Before -> ok;
        _ -> quiet(A, B)
    end.

%% A node that stood still, between which and its peer no other connection can be made: its link
%% sends nothing before the peer's host has answered a probe of the kernel's, and goes on then,
%% though the peer sends nothing by itself.
woken_behind_nat(Config) ->
    case inet_rdma_test_hosts:why_no_firewall() of
        none -> on_its_only_connection(pair(Config, [], ?LONG_TICKTIME));
        Why -> inet_rdma_test_link:skip(Why)
    end.

on_its_only_connection({Hosts, [A, B]}) ->
    ok = inet_rdma_test_link:exercise(A, B),
    _ = [ok = inet_rdma_test_hosts:make_no_connection(Host, Hosts) || Host <- [a, b]],
    [
        begin
            #{suspicions := Before} = call(X, inet_rdma, info, [name(Y)]),
            ok = inet_rdma_test_hosts:silence(both(a, b), Hosts),
            ok = call(X, inet_rdma_test_remote, wake, []),
            await_path_state(suspected, X, Y),
            a_message = call(X, erlang, send, [{nobody, name(Y)}, a_message]),
            ok = inet_rdma_test_wait:holds(waits, ?HELD_MS, fun() -> queued(X) > 0 end),
            ok = inet_rdma_test_hosts:pass(Hosts),
            inet_rdma_test_wait:until(released, 10000, fun() ->
                #{path_state := State, suspicions := Now} = call(X, inet_rdma, info, [name(Y)]),
                (Now > Before andalso State =:= carried) orelse {State, Now}
            end),
            ?assertEqual(
                {ok, [{keepalive, false}]}, call(X, net_kernel, getopts, [name(Y), [keepalive]])
            ),
            ok = inet_rdma_test_link:exercise(X, Y)
        end
     || {X, Y} <- [{A, B}, {B, A}]
    ],
    ?assertEqual([0, 0], resumes(A, B)),
    ok = inet_rdma_test_hosts:admit(Hosts).

queued(Node) ->
    {ok, _, _, Queued} = statistics_of(Node),
    Queued.

received(Node) ->
    {ok, Received, _, _} = statistics_of(Node),
    Received.

sent(Node) ->
    {ok, _, Sent, _} = statistics_of(Node),
    Sent.

statistics_of(Node) ->
    [{_, Port}] = call(Node, erlang, system_info, [dist_ctrl]),
    call(Node, inet_rdma_port, getstat, [Port]).

%% By inet_rdma:info/1, the series, the table and the doctor, from the first message that is not
%% acknowledged on.
a_suspected_path_is_shown(Config) ->
    {Hosts, [A, B]} = pair(Config),
    ?assertMatch(#{path_state := carried, suspicions := 0}, call(A, inet_rdma, info, [name(B)])),
    ?assertEqual(
        [carried], inet_rdma_test_series:path_states(inet_rdma_test_series:collected(A), B)
    ),
    ok = inet_rdma_test_hosts:silence(both(a, b), Hosts),
    _ = call(A, erlang, send, [{nobody, name(B)}, hello]),
    await_path_state(suspected, A, B),
    ?assertMatch(
        #{suspended := false, suspicions := 1, false_suspicions := 0},
        call(A, inet_rdma, info, [name(B)])
    ),
    ?assertEqual(
        [suspected], inet_rdma_test_series:path_states(inet_rdma_test_series:collected(A), B)
    ),
    ?assertMatch(
        [_, _, "suspected" | _], string:lexemes(lists:last(inet_rdma_test_series:table(A)), " ")
    ),
    #{findings := Findings} = call(A, inet_rdma_doctor, report, []),
    ?assertMatch([_], [
        Text
     || #{about := links, severity := note, text := Text} <- Findings,
        binary:match(Text, <<" is suspected: ">>) =/= nomatch
    ]),
    ok = inet_rdma_test_hosts:pass(Hosts),
    await_path_state(carried, A, B).

%% Ends by the time limit of the TCP connect, inside TLS, too, which is shorter than the kernel's:
%% so the next attempt keeps up one SYN in a second.
an_unanswered_attempt_ends_in_time(Config) ->
    {Hosts, [A, B]} = pair(Config),
    ok = inet_rdma_test_hosts:silence(both(a, b), Hosts),
    ?assertEqual({unanswered, timeout}, call(A, inet_rdma_test_asker, attempt, [name(B)])),
    ok = inet_rdma_test_hosts:pass(Hosts),
    ok = inet_rdma_test_link:exercise(A, B).

await_path_state(State, A, B) ->
    inet_rdma_test_wait:until(State, 20000, fun() ->
        #{path_state := Now} = call(A, inet_rdma, info, [name(B)]),
        Now =:= State orelse Now
    end).

%% Large packets of the connection vanish, small ones and acknowledgements pass.
a_black_hole_for_large_packets_is_found(Config) ->
    {Hosts, [A, B]} = pair(Config),
    Traffic = inet_rdma_test_traffic:start(A, B),
    Before = resumes(A, B),
    ok = inet_rdma_test_hosts:forget(both(a, b), 1300, Hosts),
    resumed(A, B, Before),
    undisturbed(Traffic).

%% Large packets of any connection vanish: the link gets one whose packets are small. One that is
%% lost for another reason is followed by one of the usual size. When large packets pass again, so
%% do the link's.
black_hole_of_the_way(Config) ->
    {Hosts, [A, B]} = pair(Config),
    [
        begin
            AtFirst = resumes(A, B),
            ok = call(A, inet_rdma_test_remote, end_part, [socket]),
            resumed(A, B, AtFirst),
            Before = resumes(A, B),
            ok = inet_rdma_test_hosts:narrow(Paths, 1300, Hosts),
            Traffic = inet_rdma_test_traffic:start(X, Y),
            resumed(A, B, Before),
            undisturbed(Traffic),
            ok = inet_rdma_test_hosts:pass(Hosts)
        end
     || {X, Y, Paths} <- [{A, B, both(a, b)}, {B, A, [{b, a}]}]
    ],
    Small = [segment_bytes(X, Y) || {X, Y} <- [{A, B}, {B, A}]],
    ?assert(lists:max(Small) =< 1024, Small),
    Traffic = inet_rdma_test_traffic:start(A, B),
    inet_rdma_test_wait:until(full_segments, 60000, fun() ->
        Bytes = [segment_bytes(X, Y) || {X, Y} <- [{A, B}, {B, A}]],
        lists:min(Bytes) > 1300 orelse Bytes
    end),
    undisturbed(Traffic).

segment_bytes(X, Y) ->
    {ok, Session} = call(X, inet_rdma_links, session_of, [atom_to_binary(name(Y))]),
    case call(X, inet_rdma_session, tcp_info, [Session]) of
        #{segment_bytes := Bytes} -> Bytes;
        unknown -> 0
    end.

%% A path that is bad is not lost: no resume is needed, and none is excluded.
slow_and_lossy(Config) ->
    {Hosts, [A, B]} = pair(Config),
    Paths = both(a, b),
    ok = inet_rdma_test_hosts:delay(Paths, 1, Hosts),
    Traffic = inet_rdma_test_traffic:start_small(A, B),
    [
        begin
            ok = Make(),
            receive
            after ?STOPPED_MS -> ok
            end
        end
     || Make <- [
            fun() -> inet_rdma_test_hosts:delay(Paths, 800, Hosts) end,
            fun() ->
                ok = inet_rdma_test_hosts:pass(Hosts),
                inet_rdma_test_hosts:lose(Paths, 10, Hosts)
            end
        ]
    ],
    ok = inet_rdma_test_hosts:pass(Hosts),
    undisturbed(Traffic).

%% The peer's kernel acknowledges what its stopped node does not read.
a_stopped_peer_is_not_suspected(Config) ->
    {_, [A, B]} = pair(Config),
    Traffic = inet_rdma_test_traffic:start(A, B),
    inet_rdma_test_node:suspend(B),
    receive
    after ?STOPPED_MS -> ok
    end,
    inet_rdma_test_node:resume(B),
    undisturbed(Traffic).

%% Both nodes hear that the link has ended, and can connect again.
away_for_too_long(Config) ->
    {Hosts, [A, B]} = pair(Config, [], ?SHORT_TICKTIME),
    Watchers = watch(A, B),
    ok = inet_rdma_test_hosts:silence(both(a, b), Hosts),
    await_nodedown(Watchers),
    ok = inet_rdma_test_hosts:pass(Hosts),
    ok = inet_rdma_test_node:connect(A, B),
    ok = inet_rdma_test_link:exercise(A, B).

%% Nothing suspects the path: the link freezes, and ends by the tick time.
without_suspicion_a_link_ends_by_its_ticks(Config) ->
    {Hosts, [A, B]} = pair(Config, [{suspect_after_ms, 0}], ?SHORT_TICKTIME),
    Watchers = watch(A, B),
    Before = resumes(A, B),
    ok = inet_rdma_test_hosts:forget(both(a, b), Hosts),
    await_nodedown(Watchers),
    %% After it nodes connect again.
    ok = inet_rdma_test_node:connect(A, B),
    ?assertEqual([0, 0], Before),
    ?assertEqual([0, 0], resumes(A, B)).

%% Shared memory carries the link, and its TCP connection, which stands by, has been forgotten: the
%% nodes make another one, and no process hears of it.
a_forgotten_standby_is_replaced_unnoticed(Config) ->
    Directory = proplists:get_value(scratch, Config),
    {Hosts, [A, B]} = pair(Config, [{shm_directory, list_to_binary(Directory)}], ?SHORT_TICKTIME),
    ?assertEqual(shm, inet_rdma_test_link:fabric(A, B)),
    [ok = call(Node, inet_rdma_test_log, install, []) || Node <- [A, B]],
    Traffic = inet_rdma_test_traffic:start_small(A, B),
    mended(both(a, b), A, B, Hosts),
    undisturbed(Traffic),
    ?assertEqual([[], []], [call(Node, inet_rdma_test_log, lines, []) || Node <- [A, B]]),
    ?assertEqual([shm, shm], [inet_rdma_test_link:fabric(X, Y) || {X, Y} <- [{A, B}, {B, A}]]).

%% Silences of all six links of four nodes, three at a time, one way or both, some of links that are
%% at rest. Nothing is lost, no link ends, and nothing is left behind.
random_silences_lose_nothing(Config) ->
    {Hosts, Nodes} = nodes(Config, [], ?TICKTIME),
    ok = inet_rdma_test_node:mesh(Nodes),
    [A, B, C, D] = Nodes,
    Busy = [{A, B}, {B, C}, {C, D}, {D, A}],
    Matchings = [[{a, b}, {c, d}], [{a, c}, {b, d}], [{a, d}, {b, c}]],
    %% The first traffic loads code and starts what serves all.
    under_traffic(Busy, fun() -> silence_at_random(Matchings, 3, Hosts) end),
    await_direct(Nodes),
    Before = [{Node, inet_rdma_test_usage:of_node(Node)} || Node <- Nodes],
    Watchers = [Watcher || {X, Y} <- [{A, C}, {B, D}], Watcher <- watch(X, Y)],
    under_traffic(Busy, fun() -> silence_at_random(Matchings, silences(), Hosts) end),
    [ok = inet_rdma_test_link:exercise(X, Y) || {X, Y} <- [{A, C}, {B, D}]],
    no_nodedown(Watchers),
    await_direct(Nodes),
    [ok = call(Node, inet_rdma_test_log, forget, []) || Node <- Nodes],
    [ok = inet_rdma_test_usage:await(Node, Usage) || {Node, Usage} <- Before].

%% A detour holds two connections at the node that relays it, and a process takes a link back from
%% it, or from small segments.
await_direct(Nodes) ->
    inet_rdma_test_wait:until(direct, 60000, fun() ->
        Detoured = [
            {name(X), name(Y)}
         || X <- Nodes,
            Y <- Nodes,
            X =/= Y,
            #{detoured := true} <- [call(X, inet_rdma, info, [name(Y)])]
        ],
        Returning = [
            name(X)
         || X <- Nodes, call(X, supervisor, which_children, [inet_rdma_returns]) =/= []
        ],
        {Detoured, Returning} =:= {[], []} orelse {Detoured, Returning}
    end).

under_traffic(Pairs, Do) ->
    Traffic = [inet_rdma_test_traffic:start_small(X, Y) || {X, Y} <- Pairs],
    ok = Do(),
    [undisturbed(Each) || Each <- Traffic],
    ok.

%% No two links of a matching have a node in common.
silence_at_random(Matchings, Count, Hosts) ->
    Each = Count div length(Matchings),
    Silencers = [
        spawn_monitor(fun() -> [silence_one(Links, Hosts) || _ <- lists:seq(1, Each)] end)
     || Links <- Matchings
    ],
    _ = [
        receive
            {'DOWN', Ref, process, Pid, Reason} -> ?assertEqual(normal, Reason)
        end
     || {Pid, Ref} <- Silencers
    ],
    ok.

silence_one(Links, Hosts) ->
    {X, Y} = lists:nth(rand:uniform(length(Links)), Links),
    Paths = lists:nth(rand:uniform(3), [both(X, Y), [{X, Y}], [{Y, X}]]),
    receive
    after rand:uniform(300) -> ok
    end,
    ok = inet_rdma_test_hosts:silence(Paths, Hosts),
    receive
    after rand:uniform(?SILENCE_MOST_MS) -> ok
    end,
    ok = inet_rdma_test_hosts:pass(Paths, Hosts).

%% Forgets the connections, and waits until both nodes go on over others.
mended(Paths, A, B, Hosts) ->
    Before = resumes(A, B),
    ok = inet_rdma_test_hosts:forget(Paths, Hosts),
    resumed(A, B, Before),
    [?assert(inet_rdma_test_hosts:vanished(Path, Hosts) > 0) || Path <- Paths].

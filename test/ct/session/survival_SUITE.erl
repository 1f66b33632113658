%% Links that outlive their connections: cut by the kernel, lost by a relay in every way, under
%% traffic whose every answer, message, link and monitor is checked.
-module(survival_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_node, [call/4, name/1]).

-export([all/0, suite/0, groups/0, init_per_testcase/2]).
-export([
    cuts_again_and_again_lose_nothing/1,
    peer_that_accepts_none/1,
    peer_that_accepts_none_is_stopped/1,
    peer_that_listens_elsewhere/1,
    losses_in_a_relay_lose_nothing/1,
    mnesia_under_cuts/1,
    a_queue_pair_carries_while_redials_are_blocked/1,
    a_queue_pair_carries_while_redials_are_refused/1,
    guard_hears_late/1,
    an_idle_link_redials_after_each_loss/1,
    socket_options_hold_for_later_connections/1,
    a_silent_proxy_is_given_up/1,
    decisions_on_an_old_standing_are_refused/1
]).

-define(CUT_LEAST_MS, 100).
-define(CUT_MOST_MS, 1500).
-define(TABLE, inet_rdma_test_table).
-define(WRITERS, 4).
-define(IDLE_LOSSES, 22).
-define(OPTIONS_LOSSES, 100).

suite() ->
    [
        {timetrap, {minutes, 3 + seconds() div 60 + losses() div 50}},
        {ct_hooks, [{inet_rdma_test_nodes, [paths]}]}
    ].

all() ->
    [{group, Group} || {Group, _, _} <- groups()].

groups() ->
    inet_rdma_test_paths:groups([
        cuts_again_and_again_lose_nothing,
        peer_that_accepts_none,
        peer_that_accepts_none_is_stopped,
        peer_that_listens_elsewhere,
        losses_in_a_relay_lose_nothing,
        mnesia_under_cuts,
        a_queue_pair_carries_while_redials_are_blocked,
        a_queue_pair_carries_while_redials_are_refused,
        guard_hears_late,
        an_idle_link_redials_after_each_loss,
        socket_options_hold_for_later_connections,
        a_silent_proxy_is_given_up,
        decisions_on_an_old_standing_are_refused
    ]).

%% How long connections are cut: what CI has time for; INET_RDMA_SURVIVAL_SECONDS=600 by hand.
seconds() -> list_to_integer(os:getenv("INET_RDMA_SURVIVAL_SECONDS", "10")).

%% How many connections are lost in the relay; INET_RDMA_SURVIVAL_LOSSES=10000 by hand.
losses() -> list_to_integer(os:getenv("INET_RDMA_SURVIVAL_LOSSES", "100")).

init_per_testcase(Case, Config) when
    Case =:= a_queue_pair_carries_while_redials_are_blocked;
    Case =:= a_queue_pair_carries_while_redials_are_refused;
    Case =:= an_idle_link_redials_after_each_loss
->
    case {inet_rdma_test_node:only_rdma(Config), proplists:get_value(path, Config)} of
        {{skip, _} = Skip, _} ->
            Skip;
        {_, Path} when Path =/= shm ->
            {skip, "a link that has no other way is suspended meanwhile: see death_SUITE"};
        _ ->
            Config
    end;
init_per_testcase(Case, Config) when
    Case =:= losses_in_a_relay_lose_nothing;
    Case =:= guard_hears_late;
    Case =:= socket_options_hold_for_later_connections;
    Case =:= decisions_on_an_old_standing_are_refused
->
    inet_rdma_test_node:only_rdma(Config);
init_per_testcase(mnesia_under_cuts, Config) ->
    case
        {inet_rdma_test_cutter:why_not(), code:lib_dir(mnesia), proplists:get_value(path, Config)}
    of
        {none, {error, bad_name}, _} -> inet_rdma_test_link:skip("there is no Mnesia");
        {none, _, tls} -> {skip, "Mnesia sees no difference to the group tcp"};
        {none, _, _} -> Config;
        {Why, _, _} -> inet_rdma_test_link:skip(Why)
    end;
init_per_testcase(a_silent_proxy_is_given_up, Config) ->
    case {inet_rdma_test_node:only_rdma(Config), proplists:get_value(path, Config)} of
        {{skip, _} = Skip, _} -> Skip;
        {_, shm} -> {skip, "shared memory carries the link"};
        _ -> Config
    end;
init_per_testcase(_Case, Config) ->
    inet_rdma_test_cutter:needed(Config).

%% Every TCP connection between the nodes, again and again.
cuts_again_and_again_lose_nothing(Config) ->
    Options = inet_rdma_test_paths:options(Config),
    [#{os_pid := PidA} = A, #{os_pid := PidB} = B] = inet_rdma_test_node:connected_pair(Options),
    Traffic = inet_rdma_test_traffic:start(A, B),
    Cutter = inet_rdma_test_cutter:start([{PidA, PidB}], ?CUT_LEAST_MS, ?CUT_MOST_MS),
    receive
    after seconds() * 1000 -> ok
    end,
    Cuts = inet_rdma_test_cutter:stop(Cutter),
    ok = inet_rdma_test_cutter:await(PidA, PidB),
    undisturbed(io_lib:format("~b cuts", [Cuts]), Traffic),
    ?assert(Cuts > 0).

%% A node that does not listen makes another connection by itself, and the other node waits for it.
peer_that_accepts_none(Config) -> resumed_by_the_initiator(Config, ["-dist_listen", "false"]).

%% Its process lives, so the other node waits for it, however long it takes.
peer_that_accepts_none_is_stopped(Config) ->
    [#{os_pid := PidA} = A, #{os_pid := PidB} = B] = inet_rdma_test_node:start_all([
        {Prefix, inet_rdma_test_node:alone(inet_rdma_test_paths:options(Config, #{args => Args}))}
     || {Prefix, Args} <- [{"a", []}, {"b", ["-dist_listen", "false"]}]
    ]),
    ok = inet_rdma_test_node:connect(B, A),
    inet_rdma_test_wait:until(witness, 10000, fun() ->
        inet_rdma_test_link:host_witness(A, B) =:= alive
    end),
    Traffic = inet_rdma_test_traffic:start(A, B),
    Before = [resumes(X, Y) || {X, Y} <- [{A, B}, {B, A}]],
    ok = inet_rdma_test_node:suspend(B),
    ?assert(inet_rdma_test_cutter:cut(PidA, PidB) > 0),
    %% Several times as long as the other node waits before it asks the host again. Nothing happens
    %% meanwhile.
    timer:sleep(4000),
    ok = inet_rdma_test_node:resume(B),
    resumed(A, B, Before),
    undisturbed("cut while one node is stopped", Traffic).

%% So does a node that listens on another address than that from which it has connected.
peer_that_listens_elsewhere(Config) ->
    resumed_by_the_initiator(Config, ["-kernel", "inet_dist_use_interface", "{127,0,0,9}"]).

resumed_by_the_initiator(Config, ArgsOfB) ->
    [#{os_pid := PidA} = A, #{os_pid := PidB} = B] = inet_rdma_test_node:start_all([
        {Prefix, inet_rdma_test_node:alone(inet_rdma_test_paths:options(Config, #{args => Args}))}
     || {Prefix, Args} <- [{"a", []}, {"b", ArgsOfB}]
    ]),
    ok = inet_rdma_test_node:connect(B, A),
    Traffic = inet_rdma_test_traffic:start(A, B),
    [
        begin
            Before = [resumes(X, Y) || {X, Y} <- [{A, B}, {B, A}]],
            ?assert(inet_rdma_test_cutter:cut(PidA, PidB) > 0),
            resumed(A, B, Before)
        end
     || _ <- lists:seq(1, 5)
    ],
    undisturbed("5 cuts", Traffic).

%% Connections that end in every way, some of them while they are being made. Nothing is left
%% behind.
losses_in_a_relay_lose_nothing(Config) ->
    #{a := A, b := B, relay := Relay} = detour(Config),
    ok = inet_rdma_test_node:connect(A, B),
    %% The first ones load code, start what serves all, and let the allocators take what large
    %% messages need.
    Warming = inet_rdma_test_traffic:start(A, B),
    [lose(Relay, A, B, Kind) || Kind <- [reset, half_to, half_back]],
    undisturbed("warmed up", Warming),
    Before = [{Node, inet_rdma_test_usage:of_node(Node)} || Node <- [A, B]],
    Traffic = inet_rdma_test_traffic:start(A, B),
    Kinds = [lose(Relay, A, B, kind(Config)) || _ <- lists:seq(1, losses())],
    Counted = [{Kind, length([K || K <- Kinds, K =:= Kind])} || Kind <- lists:usort(Kinds)],
    undisturbed(io_lib:format("lost: ~0p", [Counted]), Traffic),
    %% Two lines for each loss, which the test keeps.
    [ok = call(Node, inet_rdma_test_log, forget, []) || Node <- [A, B]],
    [ok = inet_rdma_test_usage:await(Node, Usage) || {Node, Usage} <- Before].

%% A silent connection has no bytes that could be truncated.
kind(Config) ->
    Kinds =
        [reset, close, half_to, half_back, stall, early_to, early_back, twice] ++
            [
                Kind
             || Kind <- [truncate_to, truncate_back], proplists:get_value(path, Config) =:= tcp
            ],
    lists:nth(rand:uniform(length(Kinds)), Kinds).

%% Until both nodes have resumed after the loss and called each other: where a queue pair carries
%% the link a loss that came sooner would end the connection that is being made, again and again,
%% after growing pauses.
lose(Relay, #{node := NameA} = A, #{node := NameB} = B, Kind) ->
    Before = [resumes(X, Y) || {X, Y} <- [{A, B}, {B, A}]],
    Count = inet_rdma_test_relay:accepted(Relay),
    _ = [inet_rdma_test_relay:shape(Relay, Shape) || Shape <- shape(Kind)],
    _ = inet_rdma_test_relay:lose(Relay, loss(Kind)),
    _ =
        case Kind =:= twice of
            true -> lose_next(Relay, Count);
            false -> ok
        end,
    resumed(A, B, Before),
    [
        ?assertEqual(Peer, call(Node, erpc, call, [Peer, erlang, node, []]))
     || {Node, Peer} <- [{A, NameB}, {B, NameA}]
    ],
    Kind.

%% The connection that is made next, as soon as it is there.
lose_next(Relay, Count) ->
    inet_rdma_test_wait:until(next_connection, 20000, fun() ->
        inet_rdma_test_relay:accepted(Relay) > Count
    end),
    inet_rdma_test_relay:lose(Relay, reset).

%% The next connection ends within the messages of its resume, or soon after them.
shape(early_to) -> [{end_at, to, rand:uniform(300) - 1}];
shape(early_back) -> [{end_at, back, rand:uniform(300) - 1}];
shape(_) -> [].

loss(half_to) -> {half, to};
loss(half_back) -> {half, back};
loss(stall) -> {stall, rand:uniform(100)};
loss(truncate_to) -> {truncate, to};
loss(truncate_back) -> {truncate, back};
loss(close) -> close;
loss(_) -> reset.

%% Three nodes that write, each of the three links cut each second: Mnesia sees no node go, and each
%% write that it has confirmed is on all nodes.
mnesia_under_cuts(Config) ->
    Nodes = inet_rdma_test_node:start_all(3, inet_rdma_test_paths:options(Config)),
    ok = inet_rdma_test_node:mesh(Nodes),
    [ok = call(Node, mnesia, start, []) || Node <- Nodes],
    [First | Others] = Nodes,
    Names = [Name || #{node := Name} <- Nodes],
    {ok, _} = call(First, mnesia, change_config, [extra_db_nodes, tl(Names)]),
    {atomic, ok} = call(First, mnesia, create_table, [?TABLE, [{ram_copies, Names}]]),
    [ok = call(Node, mnesia, wait_for_tables, [[?TABLE], 30000]) || Node <- Others],
    Ledgers = [
        {Node, call(Node, inet_rdma_test_ledger, start, [?TABLE, ?WRITERS])}
     || Node <- Nodes
    ],
    [PidA, PidB, PidC] = [OsPid || #{os_pid := OsPid} <- Nodes],
    Cutter = inet_rdma_test_cutter:start([{PidA, PidB}, {PidB, PidC}, {PidC, PidA}], 1000, 1000),
    receive
    after seconds() * 1000 -> ok
    end,
    Cuts = inet_rdma_test_cutter:stop(Cutter),
    Written = [
        call(Node, inet_rdma_test_ledger, stop, [Ledger, 60000])
     || {Node, Ledger} <- Ledgers
    ],
    [Confirmed, Failed, Events] =
        [
            lists:append([maps:get(Key, Each) || Each <- Written])
         || Key <- [confirmed, failed, events]
        ],
    Missing = [
        {Name, length(Confirmed -- call(Node, mnesia, dirty_all_keys, [?TABLE]))}
     || #{node := Name} = Node <- Nodes
    ],
    ct:pal(
        "~b cuts; ~b writes confirmed, ~b failed; missing: ~0p; events: ~0p",
        [Cuts, length(Confirmed), length(Failed), Missing, Events]
    ),
    ?assertEqual({[], [], [{Name, 0} || Name <- Names]}, {Failed, Events, Missing}),
    ?assert(Cuts > 0).

%% A proxy between the nodes takes bytes, acknowledges them, and passes nothing, while one node
%% sends to a process that says nothing: the link goes on over another connection.
a_silent_proxy_is_given_up(Config) ->
    #{a := A, b := B, relay := Relay} = detour(Config),
    ok = inet_rdma_test_node:connect(A, B),
    ok = inet_rdma_test_link:exercise(A, B),
    [
        begin
            inet_rdma_test_wait:until(translated, 10000, fun() ->
                is_translated(X, Y) andalso is_translated(Y, X)
            end),
            Before = resumes(X, Y),
            _ = inet_rdma_test_relay:lose(Relay, {stall, 600000}),
            hello = call(X, erlang, send, [{nobody, name(Y)}, hello]),
            inet_rdma_test_wait:until({resumed, name(X)}, 8000, fun() -> resumes(X, Y) > Before end),
            ok = inet_rdma_test_link:exercise(A, B)
        end
     || {X, Y} <- [{A, B}, {B, A}]
    ].

%% The peer has told that it sees other addresses of the connection.
is_translated(Node, Peer) ->
    {ok, #{name := Name}} = call(Node, inet_rdma_links, session_of, [atom_to_binary(name(Peer))]),
    #{peer_node := PeerNode} = call(Node, inet_rdma_links, peer, [Name]),
    call(Node, inet_rdma_peer_node, is_translated, [PeerNode]).

%% A link that another way carries does without its TCP connection for as long as none can be made,
%% and has one again afterwards.
a_queue_pair_carries_while_redials_are_blocked(Config) ->
    Options = inet_rdma_test_paths:options(Config, #{rdma => [{survive_ms, 1000}]}),
    #{a := A, b := B, relay := Relay} =
        inet_rdma_test_detour:start(proplists:get_value(priv_dir, Config), Options, Options),
    ok = inet_rdma_test_node:connect(A, B),
    Traffic = inet_rdma_test_traffic:start(A, B),
    ok = inet_rdma_test_relay:hold(Relay),
    receive
    after 3000 -> ok
    end,
    Count = inet_rdma_test_relay:accepted(Relay),
    ok = inet_rdma_test_relay:pass(Relay),
    inet_rdma_test_wait:until(connected_again, 30000, fun() ->
        inet_rdma_test_relay:accepted(Relay) > Count
    end),
    undisturbed("redials blocked for 3 s", Traffic).

%% A link that another way carries does without its TCP connection also where the peer refuses each:
%% it asks at growing intervals, the log has a line for the loss and one for the end of it.
a_queue_pair_carries_while_redials_are_refused(Config) ->
    Options = inet_rdma_test_paths:options(Config, #{rdma => [{survive_ms, 1000}]}),
    #{a := A, b := B, relay := Relay} =
        inet_rdma_test_detour:start(proplists:get_value(priv_dir, Config), Options, Options),
    ok = inet_rdma_test_node:connect(A, B),
    Port = inet_rdma_test_relay:port(Relay),
    Traffic = inet_rdma_test_traffic:start_small(A, B),
    StartMs = erlang:monotonic_time(millisecond),
    ok = inet_rdma_test_relay:refuse(Relay),
    %% First nobody listens, then the connections are closed.
    receive
    after 100 -> ok
    end,
    Refused = refuse_for(Port, 3000),
    ElapsedMs = erlang:monotonic_time(millisecond) - StartMs,
    ok = inet_rdma_test_relay:pass(Relay),
    ct:pal("~b connections refused in ~b ms", [Refused, ElapsedMs]),
    ?assert(Refused > 0),
    %% The first pause is of 20 ms, and each is twice as long as the one before.
    ?assert(20 bsl (Refused - 1) =< 20 + ElapsedMs),
    inet_rdma_test_wait:until(connected_again, 30000, fun() ->
        resumes(A, B) > 0 andalso resumes(B, A) > 0
    end),
    Lines = inet_rdma_test_traffic:logged(Traffic),
    undisturbed("redials refused for 3 s", Traffic),
    [?assertMatch([_, _], Logged) || {_, Logged} <- Lines].

%% Closes each connection to this port for DurationMs. Returns their number.
refuse_for(Port, DurationMs) ->
    {ok, Listener} = gen_tcp:listen(Port, [{ip, {127, 0, 0, 1}}, {reuseaddr, true}, {active, false}]),
    Refused = refuse_until(Listener, erlang:monotonic_time(millisecond) + DurationMs, 0),
    ok = gen_tcp:close(Listener),
    Refused.

refuse_until(Listener, DeadlineMs, Refused) ->
    case gen_tcp:accept(Listener, max(0, DeadlineMs - erlang:monotonic_time(millisecond))) of
        {ok, Socket} ->
            ok = gen_tcp:close(Socket),
            refuse_until(Listener, DeadlineMs, Refused + 1);
        {error, timeout} ->
            Refused
    end.

%% The guard has not yet heard of a connection when the next attempt of its own node gives that
%% connection up and fails. The peer's attempts have smaller numbers from then on: this node has to
%% make another one.
guard_hears_late(Config) ->
    #{a := A, b := B, relay := Relay} = detour(Config),
    ok = inet_rdma_test_node:connect(A, B),
    Traffic = inet_rdma_test_traffic:start_small(A, B),
    ok = inet_rdma_test_relay:hold(Relay),
    inet_rdma_test_wait:until(a_dials, 20000, fun() ->
        call(A, inet_rdma_test_remote, dialers, []) =/= []
    end),
    Holder = call(A, inet_rdma_test_remote, hold_guard, []),
    ok = inet_rdma_test_relay:pass(Relay),
    inet_rdma_test_wait:until(restored, 20000, fun() ->
        [call(Node, inet_rdma_test_remote, has_tcp, []) || Node <- [A, B]] =:= [true, true]
    end),
    Before = [resumes(X, Y) || {X, Y} <- [{A, B}, {B, A}]],
    ok = call(A, inet_rdma_test_remote, begin_attempt, []),
    _ = call(A, erlang, send, [Holder, {finish, normal}]),
    resumed(A, B, Before),
    undisturbed("an attempt that fails after one that succeeds", Traffic).

%% The guard knows less than the port, which has lost the TCP connection meanwhile: the port does
%% nothing, and the link lives. The guard knows all as soon as it has handled its notices.
decisions_on_an_old_standing_are_refused(Config) ->
    [A, B] = inet_rdma_test_node:connected_pair(inet_rdma_test_paths:options(Config)),
    Traffic = inet_rdma_test_traffic:start_small(A, B),
    Before = [resumes(X, Y) || {X, Y} <- [{A, B}, {B, A}]],
    #{number := Number} = call(A, inet_rdma_test_remote, standing, []),
    Holder = call(A, inet_rdma_test_remote, hold_guard, []),
    ok = call(A, inet_rdma_test_remote, end_part, [socket]),
    inet_rdma_test_wait:until(lost, 10000, fun() ->
        #{losses := Losses} = call(A, inet_rdma, info, [name(B)]),
        Losses > 0
    end),
    ?assertEqual(Number, maps:get(number, call(A, inet_rdma_test_remote, standing, []))),
    [
        ?assertEqual(
            {Command, {ok, <<>>}},
            {Command, call(A, inet_rdma_test_remote, decide, [Command, Number])}
        )
     || Command <- [end_link, move, return]
    ],
    _ = call(A, erlang, send, [Holder, {finish, normal}]),
    resumed(A, B, Before),
    inet_rdma_test_wait:until(heard, 10000, fun() ->
        case call(A, inet_rdma_test_remote, standing, []) of
            #{number := Later, state := carried, has_tcp := true, attempt := Attempt} ->
                Later > Number andalso Attempt > 0;
            Other ->
                Other
        end
    end),
    undisturbed("decisions on an old standing", Traffic).

%% A link over which nothing goes has its TCP connection replaced again and again, whichever side's
%% end shows first.
an_idle_link_redials_after_each_loss(Config) ->
    [A, B] = inet_rdma_test_node:connected_pair(inet_rdma_test_paths:options(Config)),
    [ok = call(Node, inet_rdma_test_log, install, []) || Node <- [A, B]],
    Watchers = [{Node, inet_rdma_test_node:watch(Node, Peer)} || {Node, Peer} <- [{A, B}, {B, A}]],
    Fabric = inet_rdma_test_link:fabric(A, B),
    [lose_by(Node, A, B) || _ <- lists:seq(1, ?IDLE_LOSSES div 2), Node <- [A, B]],
    [
        begin
            ?assertEqual([], call(Node, inet_rdma_test_watch, seen, [Watcher])),
            Lines = call(Node, inet_rdma_test_log, lines, []),
            ?assert(length(Lines) =< 2 * ?IDLE_LOSSES),
            %% The timers have been cancelled: by themselves they would end later.
            inet_rdma_test_wait:until({setup_timers, name(Node)}, 1000, fun() ->
                call(Node, inet_rdma_test_remote, setup_timers, []) =:= []
            end)
        end
     || {Node, Watcher} <- Watchers
    ],
    ?assertEqual([Fabric, Fabric], [inet_rdma_test_link:fabric(X, Y) || {X, Y} <- [{A, B}, {B, A}]]),
    ok = inet_rdma_test_link:exercise(A, B).

%% Shuts down this node's end of the TCP connection, and waits until both nodes have another one.
lose_by(Node, A, B) ->
    Before = [resumes(X, Y) || {X, Y} <- [{A, B}, {B, A}]],
    ok = call(Node, inet_rdma_test_remote, end_part, [socket]),
    resumed(A, B, Before).

resumed(A, B, Before) ->
    inet_rdma_test_wait:until(resumed, 20000, fun() ->
        Now = [resumes(X, Y) || {X, Y} <- [{A, B}, {B, A}]],
        lists:all(fun({Old, New}) -> New > Old end, lists:zip(Before, Now)) andalso
            [call(Node, inet_rdma_test_remote, has_tcp, []) || Node <- [A, B]] =:= [true, true]
    end).

resumes(Node, Peer) ->
    #{resumes := Resumes} = call(Node, inet_rdma, info, [name(Peer)]),
    Resumes.

%% Socket options that the nodes were started with, and those that net_kernel:setopts/2 has set,
%% hold for the connections that follow, whichever side makes them; to set and to ask leaves nothing
%% behind.
socket_options_hold_for_later_connections(Config) ->
    Options = inet_rdma_test_paths:options(Config, #{
        args => [
            "-kernel",
            "inet_dist_connect_options",
            "[{priority,5},{keepalive,true},{sndbuf,90000}]",
            "-kernel",
            "inet_dist_listen_options",
            "[{priority,4},{tos,8},{recbuf,50000},{backlog,200}]"
        ]
    }),
    #{a := A, b := B} =
        Detour = inet_rdma_test_detour:start(
            proplists:get_value(priv_dir, Config), Options, Options
        ),
    ok = inet_rdma_test_node:connect(A, B),
    Started = [
        {A, B, [priority, keepalive, sndbuf, nodelay]}, {B, A, [priority, tos, recbuf, nodelay]}
    ],
    same_options(Detour, Started, [#{priority => 5, keepalive => true}, #{priority => 4, tos => 8}]),
    Set = [
        {nodelay, false},
        {priority, 2},
        {tos, 16},
        {recbuf, 60000},
        {sndbuf, 70000},
        {keepalive, true},
        {linger, {true, 7}}
    ],
    [ok = call(X, net_kernel, setopts, [name(Y), Set]) || {X, Y} <- [{A, B}, {B, A}]],
    ok = call(B, net_kernel, setopts, [name(A), [{priority, 3}]]),
    Keys = [Key || {Key, _} <- Set],
    Wanted = maps:without([recbuf, sndbuf], maps:from_list(Set)),
    same_options(Detour, [{X, Y, Keys} || {X, Y} <- [{A, B}, {B, A}]], [
        Wanted, Wanted#{priority := 3}
    ]),
    Before = [{Node, inet_rdma_test_usage:of_node(Node)} || Node <- [A, B]],
    [
        begin
            lose_by(Node, A, B),
            {ok, [{nodelay, false}]} = call(A, net_kernel, getopts, [name(B), [nodelay]]),
            ok = call(A, net_kernel, setopts, [name(B), [{priority, N rem 6}]])
        end
     || N <- lists:seq(1, ?OPTIONS_LOSSES div 2), Node <- [A, B]
    ],
    [ok = inet_rdma_test_usage:await(Node, Usage) || {Node, Usage} <- Before].

%% The sockets have these options, and the same ones after a loss, whichever side connects. The
%% kernel doubles the sizes of buffers.
same_options(#{a := A, b := B, relay := Relay} = Detour, Asked, Wanted) ->
    Before = [options(X, Y, Keys) || {X, Y, Keys} <- Asked],
    [
        ?assertEqual(Part, maps:with(maps:keys(Part), All))
     || {Part, All} <- lists:zip(Wanted, Before)
    ],
    lose_by(A, A, B),
    ?assertEqual(
        {a_connects, Before}, {a_connects, [options(X, Y, Keys) || {X, Y, Keys} <- Asked]}
    ),
    {ok, Nowhere} = gen_tcp:listen(0, [{ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Nowhere),
    ok = gen_tcp:close(Nowhere),
    ok = inet_rdma_test_relay:lead_to(Relay, {{127, 0, 0, 1}, Port}),
    lose_by(A, A, B),
    ok = inet_rdma_test_relay:lead_to(Relay, {{127, 0, 0, 1}, inet_rdma_test_detour:port_of(Detour)}),
    ?assertEqual(
        {b_connects, Before}, {b_connects, [options(X, Y, Keys) || {X, Y, Keys} <- Asked]}
    ).

options(Node, Peer, Keys) ->
    {ok, Options} = call(Node, net_kernel, getopts, [name(Peer), Keys]),
    maps:from_list(Options).

undisturbed(What, Traffic) ->
    ct:pal("~ts", [What]),
    inet_rdma_test_lasting:undisturbed(Traffic).

detour(Config) ->
    Options = inet_rdma_test_paths:options(Config),
    inet_rdma_test_detour:start(proplists:get_value(priv_dir, Config), Options, Options).

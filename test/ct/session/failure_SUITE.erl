%% Nodes that die, stop and come back.
-module(failure_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_node, [call/4, name/1]).

-export([all/0, suite/0, init_per_testcase/2]).
-export([kill_is_seen_at_once/1, kill_with_a_full_send_queue/1, halt_with_a_full_send_queue/1]).
-export([
    stop_with_a_full_send_queue/1, back_under_the_same_name/1, killed_peers_leave_nothing_behind/1
]).
-export([halted_and_stopped_peers_leave_nothing_behind/1, stopped_for_less_than_the_tick_time/1]).
-export([
    stopped_for_longer_than_the_tick_time/1,
    connect_to_a_stopped_node/1,
    killed_while_others_connect/1
]).
-export([
    death_of_the_controller/1, death_of_the_guard/1, death_of_the_supervisor/1, end_of_the_socket/1
]).
-export([
    sent_before_the_end_arrives/1, taken_before_the_end_arrives/1, longer_tick_time_of_the_peer/1
]).

%% The bound for "at once"; the case prints what it measured.
-define(AT_ONCE_MS, 5000).

suite() ->
    [{timetrap, {minutes, 2}}, {ct_hooks, [inet_rdma_test_nodes]}].

all() ->
    [
        kill_is_seen_at_once,
        kill_with_a_full_send_queue,
        halt_with_a_full_send_queue,
        stop_with_a_full_send_queue,
        back_under_the_same_name,
        killed_peers_leave_nothing_behind,
        halted_and_stopped_peers_leave_nothing_behind,
        stopped_for_less_than_the_tick_time,
        stopped_for_longer_than_the_tick_time,
        connect_to_a_stopped_node,
        killed_while_others_connect,
        death_of_the_controller,
        death_of_the_guard,
        death_of_the_supervisor,
        end_of_the_socket,
        sent_before_the_end_arrives,
        taken_before_the_end_arrives,
        longer_tick_time_of_the_peer
    ].

init_per_testcase(Case, Config) when
    %% A halting node lets its ports write all they have, and a TCP port waits for the stopped peer
    %% to read it.
    Case =:= halt_with_a_full_send_queue;
    Case =:= stop_with_a_full_send_queue;
    %% Parts that a link over TCP does not have, or that end otherwise there.
    Case =:= death_of_the_guard;
    Case =:= death_of_the_supervisor;
    Case =:= end_of_the_socket;
    Case =:= taken_before_the_end_arrives
->
    inet_rdma_test_node:only_rdma(Config);
init_per_testcase(_Case, Config) ->
    Config.

kill_is_seen_at_once(_Config) ->
    [A, B, C, D] = Nodes = inet_rdma_test_node:start_all(4, #{}),
    ok = inet_rdma_test_node:mesh(Nodes),
    Watchers = [{Node, inet_rdma_test_node:watch(Node, D)} || Node <- [A, B, C]],
    StartMs = erlang:monotonic_time(millisecond),
    inet_rdma_test_node:kill(D),
    [await_nodedown(Node, Watcher, StartMs) || {Node, Watcher} <- Watchers],
    %% The others did not lose each other.
    ok = inet_rdma_test_node:mesh([A, B, C]).

kill_with_a_full_send_queue(_Config) ->
    [A, B] = inet_rdma_test_node:connected_pair(#{}),
    Senders = fill(A, B),
    Watcher = inet_rdma_test_node:watch(A, B),
    StartMs = erlang:monotonic_time(millisecond),
    inet_rdma_test_node:kill(B),
    await_nodedown(A, Watcher, StartMs),
    %% No process stays suspended on the dead connection.
    inet_rdma_test_wait:until(senders_run_again, 20000, fun() ->
        [S || S <- Senders, call(A, erlang, process_info, [S, status]) =:= {status, suspended}] =:=
            []
    end).

halt_with_a_full_send_queue(_Config) ->
    ends_with_a_full_send_queue(fun(A) -> ok = cast(A, erlang, halt, [0]) end).

stop_with_a_full_send_queue(_Config) ->
    ends_with_a_full_send_queue(fun(A) -> ok = cast(A, init, stop, []) end).

%% The node that ends waits for the stopped peer only as long as the flush of a link may take. When
%% the peer goes on it gets the nodedown.
ends_with_a_full_send_queue(End) ->
    [A, B] = inet_rdma_test_node:connected_pair(#{}),
    AtB = inet_rdma_test_node:watch(B, A),
    _ = fill(A, B),
    StartMs = erlang:monotonic_time(millisecond),
    End(A),
    inet_rdma_test_node:await_exit(A, 20000),
    ct:pal("ended after ~b ms", [erlang:monotonic_time(millisecond) - StartMs]),
    inet_rdma_test_node:resume(B),
    await_nodedown(B, AtB, StartMs, 20000).

%% What a node has sent before it disconnects or stops arrives: the peer reads to the end of the
%% link. Nothing more is sent than the link itself can hold, as the VM drops what it has not given
%% to the link yet, over TCP, too. So a halt, which leaves the VM no time to give anything, is no
%% case of this.
sent_before_the_end_arrives(_Config) ->
    A = inet_rdma_test_node:start("a"),
    [
        begin
            B = inet_rdma_test_node:start("b"),
            ok = inet_rdma_test_node:connect(A, B),
            Name = inet_rdma_test_stream:receiver_at(A, 1, Count),
            ok = call(B, inet_rdma_test_stream, send_and_then, [name(A), Name, Kind, Count, Then]),
            _ = call(A, inet_rdma_test_stream, await, [Name, 20000]),
            inet_rdma_test_node:await_nodes(A, []),
            inet_rdma_test_node:stop(B)
        end
     || {Kind, Count} <- [{small, 500}, {{bytes, 100000}, 4}],
        Then <- [{erlang, disconnect_node, [name(A)]}, {init, stop, []}]
    ].

%% The sockets hold all of it, and the peer has read nothing of it yet, when the link is closed in
%% order over TCP. The peer's acknowledgements come to a connection that has ended.
taken_before_the_end_arrives(_Config) ->
    Options = #{rdma => [{fabric, tcp}], args => []},
    [A, B] = inet_rdma_test_node:start_all([
        {Prefix, inet_rdma_test_node:alone(Options)}
     || Prefix <- ["a", "b"]
    ]),
    [
        begin
            ok = inet_rdma_test_node:connect(A, B),
            ok = call(A, net_kernel, setopts, [name(B), [{sndbuf, 1000000}]]),
            Count = 7,
            Name = inet_rdma_test_stream:receiver_at(B, 1, Count),
            inet_rdma_test_node:suspend(B),
            _ = call(A, inet_rdma_test_stream, senders, [name(B), Name, {bytes, 60000}, 1, Count]),
            inet_rdma_test_wait:until(all_is_taken, 20000, fun() ->
                [{_, Port}] = call(A, erlang, system_info, [dist_ctrl]),
                #{bytes_sent := Sent} = call(A, inet_rdma, info, [name(B)]),
                case call(A, erlang, port_info, [Port, queue_size]) of
                    {queue_size, 0} when Sent > 420000 -> true;
                    Other -> {Sent, Other}
                end
            end),
            true = call(A, erlang, disconnect_node, [name(B)]),
            inet_rdma_test_node:resume(B),
            _ = call(B, inet_rdma_test_stream, await, [Name, 20000]),
            inet_rdma_test_node:await_nodes(B, [])
        end
     || _ <- lists:seq(1, 5)
    ].

back_under_the_same_name(_Config) ->
    [A, B] = inet_rdma_test_node:connected_pair(#{}),
    [back_again(A, maps:get(name, B)) || _ <- lists:seq(1, 3)].

back_again(A, Name) ->
    [Old] = call(A, erlang, nodes, []),
    ok = call(A, inet_rdma_test_data, send_and_compare, [Old, [1000000]]),
    {_, OsPid, _} = call(A, erpc, call, [Old, inet_rdma_test_remote, whoami, []]),
    inet_rdma_test_node:kill(#{os_pid => OsPid}),
    inet_rdma_test_node:await_nodes(A, []),
    B = inet_rdma_test_node:start("b", #{name => Name}),
    ok = inet_rdma_test_node:connect(A, B),
    ok = call(A, inet_rdma_test_data, send_and_compare, [name(B), [1000000]]).

killed_peers_leave_nothing_behind(_Config) ->
    A = inet_rdma_test_node:start("a"),
    Kill = fun(B) -> inet_rdma_test_node:kill(B) end,
    %% The first connection may load code and start what serves all connections.
    end_peer(A, Kill),
    Before = footprint(A),
    [end_peer(A, Kill) || _ <- lists:seq(1, 3)],
    ok = await_footprint(A, Before).

halted_and_stopped_peers_leave_nothing_behind(_Config) ->
    A = inet_rdma_test_node:start("a"),
    Halt = fun(B) -> cast(B, erlang, halt, []) end,
    Stop = fun(B) -> cast(B, init, stop, []) end,
    end_peer(A, Halt),
    Before = footprint(A),
    [end_peer(A, End) || End <- [Halt, Stop, Halt, Stop]],
    ok = await_footprint(A, Before).

%% A peer connects, both nodes send, and the peer ends while its send queue is not empty. The peer's
%% listeners are gone, too.
end_peer(A, End) ->
    B = inet_rdma_test_node:start("b"),
    ok = inet_rdma_test_node:connect(A, B),
    Port = inet_rdma_test_node:port(B),
    Rendezvous = inet_rdma_test_os:rendezvous_of(maps:get(os_pid, B)),
    Name = inet_rdma_test_stream:receiver_at(A, 4, 100000),
    _ = call(B, inet_rdma_test_stream, senders, [name(A), Name, mixed, 4, 100000]),
    inet_rdma_test_wait:until(stream_runs, 20000, fun() ->
        case call(A, inet_rdma_test_stream, progress, [Name]) of
            {running, Next} when map_size(Next) > 0 -> true;
            Other -> Other
        end
    end),
    End(B),
    inet_rdma_test_node:await_exit(B, 20000),
    inet_rdma_test_node:await_nodes(A, []),
    inet_rdma_test_wait:until({nothing_left_of, name(B)}, ?AT_ONCE_MS, fun() ->
        Left = [
            Line
         || Line <- inet_rdma_test_os:rendezvous_sockets(), lists:member(Line, Rendezvous)
        ],
        (Left =:= [] andalso not inet_rdma_test_os:is_listening(Port)) orelse Left
    end),
    true = call(A, erlang, exit, [call(A, erlang, whereis, [Name]), kill]).

stopped_for_less_than_the_tick_time(_Config) ->
    [A, B] = inet_rdma_test_node:connected_pair(#{args => ["-kernel", "net_ticktime", "10"]}),
    Name = inet_rdma_test_stream:receiver_at(B, 4, 5000),
    Back = inet_rdma_test_stream:receiver_at(A, 4, 5000),
    %% Both directions are in full flow when one side stops.
    _ = call(A, inet_rdma_test_stream, senders, [name(B), Name, mixed, 4, 5000]),
    _ = call(B, inet_rdma_test_stream, senders, [name(A), Back, mixed, 4, 5000]),
    inet_rdma_test_node:suspend(B),
    ok = inet_rdma_test_wait:holds(still_connected, 4000, fun() ->
        call(A, erlang, nodes, []) =:= [name(B)]
    end),
    inet_rdma_test_node:resume(B),
    _ = call(B, inet_rdma_test_stream, await, [Name, 50000]),
    _ = call(A, inet_rdma_test_stream, await, [Back, 50000]),
    ?assertEqual([name(B)], call(A, erlang, nodes, [])).

stopped_for_longer_than_the_tick_time(_Config) ->
    [A, B] = inet_rdma_test_node:connected_pair(#{args => ["-kernel", "net_ticktime", "4"]}),
    Watcher = inet_rdma_test_node:watch(A, B),
    AtB = inet_rdma_test_node:watch(B, A),
    StartMs = erlang:monotonic_time(millisecond),
    inet_rdma_test_node:suspend(B),
    await_nodedown(A, Watcher, StartMs, 30000),
    inet_rdma_test_node:resume(B),
    %% The node that slept learns it as well, and both find each other again.
    await_nodedown(B, AtB, StartMs, 30000),
    ok = inet_rdma_test_node:connect(A, B),
    ok = inet_rdma_test_node:connect(B, A),
    ok = call(B, inet_rdma_test_data, echo_and_compare, [name(A), [0, 1000, 1000000]]).

connect_to_a_stopped_node(_Config) ->
    [A, B, C] = inet_rdma_test_node:start_all(3, #{args => ["-kernel", "net_setuptime", "2"]}),
    inet_rdma_test_node:suspend(B),
    ?assertEqual(pang, call(A, net_adm, ping, [name(B)])),
    ok = inet_rdma_test_node:connect(A, C),
    inet_rdma_test_node:resume(B),
    inet_rdma_test_wait:until(connects_after_all, 20000, fun() ->
        call(A, net_adm, ping, [name(B)]) =:= pong
    end).

%% A node dies again and again while two others connect to it; they stay sound.
killed_while_others_connect(_Config) ->
    [A, C] = inet_rdma_test_node:connected_pair(#{}),
    [
        begin
            B = inet_rdma_test_node:start("b"),
            [ok = cast(X, net_kernel, connect_node, [name(B)]) || X <- [A, C]],
            inet_rdma_test_node:kill(B),
            inet_rdma_test_node:await_nodes(A, [name(C)]),
            inet_rdma_test_node:await_nodes(C, [name(A)])
        end
     || _ <- lists:seq(1, 10)
    ],
    ok = call(A, inet_rdma_test_data, echo_and_compare, [name(C), [0, 1000, 1000000]]).

%% The controller is a port, killed from outside; both nodes see the end, and connect again.
death_of_the_controller(_Config) ->
    [A, B] = inet_rdma_test_node:connected_pair(#{}),
    [
        begin
            [{_, Controller}] = call(X, erlang, system_info, [dist_ctrl]),
            Watchers = [{A, inet_rdma_test_node:watch(A, B)}, {B, inet_rdma_test_node:watch(B, A)}],
            StartMs = erlang:monotonic_time(millisecond),
            true = call(X, erlang, exit, [Controller, kill]),
            [await_nodedown(Node, Watcher, StartMs) || {Node, Watcher} <- Watchers],
            ok = inet_rdma_test_node:connect(A, B)
        end
     || X <- [A, B, A, B]
    ],
    ok = call(A, inet_rdma_test_data, echo_and_compare, [name(B), [0, 1000, 1000000]]).

%% The other processes of a link over RDMA: when one of them dies the link ends on both nodes, and
%% they can connect again.
death_of_the_guard(_Config) -> survived_death(guard).

death_of_the_supervisor(_Config) -> survived_death(supervisor).

%% The TCP connection of a session is replaced, whichever side has lost it: no node goes down.
end_of_the_socket(_Config) ->
    [A, B] = inet_rdma_test_node:connected_pair(#{}),
    Before = [{Node, footprint(Node)} || Node <- [A, B]],
    Watchers = [{A, inet_rdma_test_node:watch(A, B)}, {B, inet_rdma_test_node:watch(B, A)}],
    [
        begin
            Resumes = [{Node, resumes(Node, Peer)} || {Node, Peer} <- [{A, B}, {B, A}]],
            ok = call(X, inet_rdma_test_remote, end_part, [socket]),
            [
                inet_rdma_test_wait:until({resumed, name(Node)}, ?AT_ONCE_MS, fun() ->
                    resumes(Node, Peer) > proplists:get_value(Node, Resumes)
                end)
             || {Node, Peer} <- [{A, B}, {B, A}]
            ],
            ok = call(A, inet_rdma_test_data, echo_and_compare, [name(B), [0, 1000, 1000000]])
        end
     || X <- [A, B, A, B]
    ],
    [
        ?assertEqual([], call(Node, inet_rdma_test_watch, seen, [Watcher]))
     || {Node, Watcher} <- Watchers
    ],
    [ok = await_footprint(Node, Footprint) || {Node, Footprint} <- Before].

resumes(Node, Peer) ->
    #{resumes := Resumes} = call(Node, inet_rdma, info, [name(Peer)]),
    Resumes.

%% Only A connects. If global of B connected instead, A would accept its first link over shared
%% memory, and have the thread and the descriptors of the listener for that from then on.
survived_death(Part) ->
    [A, B] = inet_rdma_test_node:connected_pair(inet_rdma_test_node:alone(#{args => []})),
    Before = [{Node, footprint(Node)} || Node <- [A, B]],
    [
        begin
            Watchers = [{A, inet_rdma_test_node:watch(A, B)}, {B, inet_rdma_test_node:watch(B, A)}],
            StartMs = erlang:monotonic_time(millisecond),
            ok = call(X, inet_rdma_test_remote, end_part, [Part]),
            [await_nodedown(Node, Watcher, StartMs) || {Node, Watcher} <- Watchers],
            ok = inet_rdma_test_node:connect(A, B)
        end
     || X <- [A, B, A, B]
    ],
    ok = call(A, inet_rdma_test_data, echo_and_compare, [name(B), [0, 1000, 1000000]]),
    [ok = await_footprint(Node, Footprint) || {Node, Footprint} <- Before].

%% Stops the peer and sends until the senders are suspended.
fill(A, B) ->
    {Busy, ok} = call(A, inet_rdma_test_watch, busy_ports, []),
    Name = inet_rdma_test_stream:receiver_at(B, 10, 10000),
    inet_rdma_test_node:suspend(B),
    Senders = call(A, inet_rdma_test_stream, senders, [name(B), Name, bulk, 10, 10000]),
    inet_rdma_test_wait:until(all_senders_suspended, 20000, fun() ->
        Seen = lists:usort(call(A, inet_rdma_test_watch, seen, [Busy])),
        Senders -- Seen =:= []
    end),
    Senders.

await_nodedown(Node, Watcher, StartMs) ->
    await_nodedown(Node, Watcher, StartMs, ?AT_ONCE_MS).

await_nodedown(Node, Watcher, StartMs, TimeoutMs) ->
    inet_rdma_test_wait:until({nodedown_at, name(Node)}, TimeoutMs, fun() ->
        call(Node, inet_rdma_test_watch, seen, [Watcher]) =/= []
    end),
    ct:pal("~p: nodedown after ~b ms", [name(Node), erlang:monotonic_time(millisecond) - StartMs]).

footprint(Node) ->
    inet_rdma_test_usage:footprint(Node).

await_footprint(#{os_pid := OsPid}, Before) ->
    inet_rdma_test_os:await_footprint(OsPid, Before).

cast(#{peer := Peer}, Module, Function, Args) -> peer:cast(Peer, Module, Function, Args).

%% The peer ticks more seldom than this node expects. What its port answers by itself is no sign of
%% life: acknowledgements, echoes, answers of suspect_after_ms. Its answers to log lines that go
%% over the link are, so the carrier logs too little to keep the link.
longer_tick_time_of_the_peer(_Config) ->
    [
        begin
            Options = fun(Seconds) ->
                Args = ["-kernel", "net_ticktime", integer_to_list(Seconds)],
                inet_rdma_test_node:alone(#{rdma => Rdma, args => Args})
            end,
            [A, B] = inet_rdma_test_node:start_all([{"a", Options(1)}, {"b", Options(60)}]),
            ok = call(A, inet_rdma_test_log, install, []),
            ok = call(A, inet_rdma_test_log, forward, [name(B)]),
            {Watcher, ok} = call(A, inet_rdma_test_watch, nodes_of, [name(B)]),
            ?assertEqual(true, call(A, net_kernel, connect_node, [name(B)])),
            inet_rdma_test_wait:until({nodedown, Rdma}, 30000, fun() ->
                lists:member(monitor_nodes, call(A, inet_rdma_test_watch, seen, [Watcher]))
            end),
            ?assertNot(call(A, inet_rdma_test_log, contains, ["for 0 s"]))
        end
     || Rdma <- [
            [{fabric, shm}],
            [{fabric, tcp}],
            [{fabric, tcp}, {compress, true}, {suspect_after_ms, 500}]
        ]
    ].

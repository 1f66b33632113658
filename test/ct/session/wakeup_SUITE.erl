%% A node that was paused sends nothing over its old connections: its links make others first, and
%% nothing is lost.
-module(wakeup_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_node, [call/4, name/1]).

-export([all/0, suite/0, groups/0]).
-export([
    the_kernels_clocks_show_a_pause/1,
    the_hardware_clock_shows_a_pause/1,
    a_stepped_clock_is_no_pause/1,
    a_hanging_file_system_is_no_pause/1
]).
-export([
    a_stopped_node_keeps_its_link/1,
    woken_again_and_again/1,
    nothing_is_sent_before/1,
    two_woken_nodes_keep_their_link/1
]).
-export([without_another_connection/1, without_a_hardware_clock_no_dirty_scheduler_wakes/1]).

%% Longer than a look at the clocks may be late.
-define(STOPPED_MS, 12000).
-define(ACKNOWLEDGED_MS, 500).

suite() ->
    [{timetrap, {minutes, 3}}, {ct_hooks, [{inet_rdma_test_nodes, [only_rdma, paths]}]}].

all() ->
    [
        the_kernels_clocks_show_a_pause,
        the_hardware_clock_shows_a_pause,
        a_stepped_clock_is_no_pause
        | [{group, Group} || {Group, _, _} <- groups()]
    ].

groups() ->
    Cases = [a_stopped_node_keeps_its_link, woken_again_and_again, two_woken_nodes_keep_their_link],
    [
        {tcp, [],
            Cases ++
                [
                    a_hanging_file_system_is_no_pause,
                    without_another_connection,
                    without_a_hardware_clock_no_dirty_scheduler_wakes
                ]},
        {shm, [], Cases},
        {tls, [], Cases ++ [a_hanging_file_system_is_no_pause, nothing_is_sent_before]}
    ].

%% Which of the kernel's clocks shows which pause.
the_kernels_clocks_show_a_pause(_Config) ->
    Before = #{monotonic => 1000, boottime => 9000},
    Passed = fun(Monotonic, Boottime) ->
        inet_rdma_wakeup:node_pause(Before, #{
            monotonic => 1000 + Monotonic, boottime => 9000 + Boottime
        })
    end,
    ?assertEqual(no, Passed(5003, 5003)),
    ?assertEqual(no, Passed(9500, 9500)),
    ?assertEqual({process_stopped, 7000}, Passed(12000, 12000)),
    ?assertEqual({machine_paused, 60000}, Passed(5000, 65000)),
    ?assertEqual(no, inet_rdma_wakeup:node_pause(unknown, Before)).

%% A hardware clock that has gone on shows a machine that a hypervisor stopped, moved or restored.
the_hardware_clock_shows_a_pause(_Config) ->
    Before = #{boottime => 9000, realtime => 500000, hardware => 500000},
    Passed = fun(Boottime, Realtime, Hardware) ->
        machine_passed(Before, Boottime, Realtime, Hardware)
    end,
    ?assertEqual(no, Passed(5003, 5003, 5000)),
    ?assertEqual(no, Passed(9500, 9500, 9000)),
    ?assertEqual({hardware_clock, 60000}, Passed(5000, 5000, 65000)),
    ?assertEqual({hardware_clock, 4000}, Passed(5000, 5000, 9000)),
    %% An agent of the hypervisor has set the wall clock meanwhile.
    ?assertEqual({hardware_clock, 60000}, Passed(5000, 65000, 65000)),
    %% The reading waited for a dirty scheduler.
    ?assertEqual(no, Passed(60000, 60000, 60000)).

%% NTP sets the wall clock of a machine that runs, and the kernel the hardware clock by it, at once
%% or later.
a_stepped_clock_is_no_pause(_Config) ->
    Before = #{boottime => 9000, realtime => 500000, hardware => 500000},
    Stepped = Before#{realtime := 503000},
    NoHardware = Before#{hardware := 0},
    ?assertEqual(no, machine_passed(Before, 5000, 8000, 5000)),
    ?assertEqual(no, machine_passed(Before, 5000, 3605000, 5000)),
    ?assertEqual(no, machine_passed(Before, 5000, 9000, 9000)),
    ?assertEqual(no, machine_passed(Before#{realtime := 3600000}, 5000, 5000, 3105000)),
    ?assertEqual(no, machine_passed(Stepped, 5000, 5000, 8000)),
    ?assertEqual(no, machine_passed(Before, 5000, -60000, -60000)),
    ?assertEqual(no, machine_passed(NoHardware, 5000, 8000, 0)),
    %% Where there is no hardware clock: not by NTP.
    ?assertEqual({clock_set, 60000}, machine_passed(NoHardware, 5000, 65000, 0)).

machine_passed(
    #{boottime := Boottime, realtime := Realtime, hardware := Hardware} = Before, B, R, H
) ->
    inet_rdma_wakeup:machine_pause(Before, #{
        boottime => Boottime + B,
        realtime => Realtime + R,
        hardware =>
            case Hardware of
                0 -> 0;
                _ -> Hardware + H
            end
    }).

%% Files of a file system that hangs keep all dirty I/O schedulers busy, and this node runs.
a_hanging_file_system_is_no_pause(Config) ->
    [A, B] = pair(Config),
    ok = call(B, inet_rdma_test_log, install, []),
    Traffic = inet_rdma_test_traffic:start(A, B),
    Before = standing(B, A),
    Fifo = filename:join(
        proplists:get_value(priv_dir, Config), atom_to_list(proplists:get_value(path, Config))
    ),
    "" = os:cmd("mkfifo " ++ Fifo),
    Schedulers = call(B, erlang, system_info, [dirty_io_schedulers]),
    ok = call(B, inet_rdma_test_remote, stall_files, [Fifo, Schedulers]),
    receive
    after ?STOPPED_MS -> ok
    end,
    "" = os:cmd("exec 3> " ++ Fifo),
    %% Two checks of the clocks after it.
    receive
    after ?STOPPED_MS -> ok
    end,
    undisturbed(Traffic),
    ?assertNot(call(B, inet_rdma_test_log, contains, ["this node was paused"])),
    ?assertEqual(Before, standing(B, A)).

%% Nobody reads the clock again that the first check did not find.
without_a_hardware_clock_no_dirty_scheduler_wakes(Config) ->
    case filelib:is_file("/sys/class/rtc/rtc0/since_epoch") of
        true ->
            {skip, "this machine has a hardware clock"};
        false ->
            [A, _B] = pair(Config),
            Reads = {inet_rdma_wakeup, read_machine, 0},
            ok = timer:sleep(?STOPPED_MS),
            1 = call(A, erlang, trace_pattern, [Reads, true, [call_count]]),
            ok = timer:sleep(?STOPPED_MS),
            ?assertEqual({call_count, 0}, call(A, erlang, trace_info, [Reads, call_count]))
    end.

a_stopped_node_keeps_its_link(Config) ->
    [A, B] = pair(Config),
    ok = call(B, inet_rdma_test_log, install, []),
    Traffic = inet_rdma_test_traffic:start(A, B),
    Before = standing(B, A),
    inet_rdma_test_node:suspend(B),
    receive
    after ?STOPPED_MS -> ok
    end,
    inet_rdma_test_node:resume(B),
    ok = inet_rdma_test_log:await(B, ["this node was paused"]),
    goes_on(B, A, Before, Config),
    undisturbed(Traffic),
    ?assert(
        lists:any(
            fun(#{event := Event}) -> Event =:= <<"woke">> end,
            call(B, inet_rdma_recorder, history, [name(B), 20])
        )
    ).

woken_again_and_again(Config) ->
    [A, B] = pair(Config),
    Traffic = inet_rdma_test_traffic:start(A, B),
    [
        begin
            Before = standing(Node, Peer),
            ok = call(Node, inet_rdma_test_remote, wake, []),
            goes_on(Node, Peer, Before, Config)
        end
     || _ <- [1, 2, 3], {Node, Peer} <- [{A, B}, {B, A}]
    ],
    undisturbed(Traffic).

%% As two machines of one host.
two_woken_nodes_keep_their_link(Config) ->
    [A, B] = pair(Config),
    Traffic = inet_rdma_test_traffic:start(A, B),
    Before = standing(A, B),
    [ok = call(Node, inet_rdma_test_remote, wake, []) || Node <- [A, B]],
    goes_on(A, B, Before, Config),
    undisturbed(Traffic).

%% The peer's kernel takes bytes and connections, and its node makes none. Over plain TCP the
%% kernel's answer is enough: silence_SUITE has that (woken_behind_nat).
nothing_is_sent_before(Config) ->
    [A, B] = pair(Config),
    Before = {_, Suspicions} = standing(B, A),
    %% Its kernel may acknowledge what was said before as late as this, and that would be an answer.
    receive
    after ?ACKNOWLEDGED_MS -> ok
    end,
    inet_rdma_test_node:suspend(A),
    ok = call(B, inet_rdma_test_remote, wake, []),
    inet_rdma_test_wait:until(suspected, 10000, fun() -> suspicions(B, A) > Suspicions end),
    true = call(B, erlang, send, [{nobody, name(A)}, a_message]) =:= a_message,
    ok = inet_rdma_test_wait:holds(waits, 1000, fun() -> queued(B) > 0 end),
    inet_rdma_test_node:resume(A),
    goes_on(B, A, Before, Config),
    ok = inet_rdma_test_link:exercise(A, B).

%% A link that need not reconnect goes on as it is.
without_another_connection(Config) ->
    [A, B] = pair([{survive_ms, 0}], Config),
    Traffic = inet_rdma_test_traffic:start(A, B),
    ok = call(B, inet_rdma_test_remote, wake, []),
    ok = inet_rdma_test_link:exercise(A, B),
    undisturbed(Traffic),
    ?assertEqual(0, resumes(B, A)).

pair(Config) -> pair([], Config).

pair(Rdma, Config) ->
    inet_rdma_test_node:connected_pair(inet_rdma_test_paths:options(Config, #{rdma => Rdma})).

undisturbed(Traffic) ->
    ?assertEqual(#{}, inet_rdma_test_traffic:disturbances(inet_rdma_test_traffic:stop(Traffic))).

standing(Node, Peer) -> {resumes(Node, Peer), suspicions(Node, Peer)}.

%% A sealed connection is never written again. Over another one the peer may be heard before the
%% next one is there.
goes_on(Node, Peer, {Resumes, Suspicions}, Config) ->
    inet_rdma_test_wait:until({goes_on, name(Node)}, 30000, fun() ->
        case proplists:get_value(path, Config) of
            tls -> resumes(Node, Peer) > Resumes;
            _ -> suspicions(Node, Peer) > Suspicions andalso queued(Node) =:= 0
        end
    end),
    ok = inet_rdma_test_link:exercise(Node, Peer).

queued(Node) ->
    [{_, Port}] = call(Node, erlang, system_info, [dist_ctrl]),
    {ok, _, _, Queued} = call(Node, inet_rdma_port, getstat, [Port]),
    Queued.

resumes(Node, Peer) -> count(resumes, Node, Peer).

suspicions(Node, Peer) -> count(suspicions, Node, Peer).

count(Key, Node, Peer) -> maps:get(Key, call(Node, inet_rdma, info, [name(Peer)])).

%% A VM that crashes is down at once, although its process lives on for as long as it writes its
%% crash dump: here for ever, into a pipe that is not read. The link may be in any state at that
%% moment.
-module(crash_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_node, [call/4, name/1]).

-export([
    all/0,
    suite/0,
    groups/0,
    init_per_group/2,
    end_per_group/2,
    init_per_testcase/2,
    end_per_testcase/2
]).
-export([
    halt_with_a_slogan/1,
    a_crash_by_a_signal_is_a_nodedown/1,
    out_of_memory/1,
    a_crash_under_traffic_is_a_nodedown/1,
    a_third_node_loses_both_crashed_nodes/1,
    while_it_moves/1
]).
-export([
    refuses_at_once/1,
    a_crash_while_suspended_is_a_nodedown/1,
    a_crash_after_a_resume_is_a_nodedown/1,
    without_its_tcp_connection/1
]).

%% Longer than any case: no end may come from there.
-define(SURVIVE_MS, 3600000).
-define(TICKTIME, 3600).
-define(AT_ONCE_MS, 5000).
-define(ROUNDS, 4).

suite() ->
    [{timetrap, {minutes, 4}}].

all() ->
    [{group, Group} || {Group, _, _} <- groups()].

%% sealed: a session that began inside TLS, over encrypted shared memory.
groups() ->
    Sessions = [
        halt_with_a_slogan,
        a_crash_by_a_signal_is_a_nodedown,
        out_of_memory,
        a_crash_under_traffic_is_a_nodedown,
        a_third_node_loses_both_crashed_nodes,
        refuses_at_once,
        a_crash_while_suspended_is_a_nodedown,
        a_crash_after_a_resume_is_a_nodedown
    ],
    Moving = [while_it_moves, without_its_tcp_connection],
    [
        {tcp, [], Sessions},
        {shm, [], Sessions ++ Moving},
        {tls, [], Sessions},
        {sealed, [], Sessions ++ Moving}
    ].

init_per_group(sealed, Config) ->
    case inet_rdma_test_node:only_rdma(Config) of
        {skip, _} = Skip -> Skip;
        _ -> over_shm(inet_rdma_test_paths:init(tls, Config))
    end;
init_per_group(Path, Config) ->
    inet_rdma_test_paths:init(Path, Config).

over_shm({skip, _} = Skip) ->
    Skip;
over_shm(Config) ->
    {value, {options, #{rdma := Rdma, args := Args}}, Others} = lists:keytake(options, 1, Config),
    Shm = [{fabric, shm}, {encrypt_shm, true} | lists:keydelete(fabric, 1, Rdma)],
    [{options, #{rdma => Shm, args => Args}} | Others].

end_per_group(_Group, _Config) ->
    ok.

init_per_testcase(Case, Config) when
    Case =:= a_crash_while_suspended_is_a_nodedown;
    Case =:= a_crash_after_a_resume_is_a_nodedown;
    Case =:= without_its_tcp_connection
->
    case inet_rdma_test_node:only_rdma(Config) of
        {skip, _} = Skip -> Skip;
        _ -> inet_rdma_test_cutter:needed(Config)
    end;
init_per_testcase(while_it_moves, Config) ->
    inet_rdma_test_node:only_rdma(Config);
init_per_testcase(_Case, Config) ->
    Config.

end_per_testcase(_Case, Config) ->
    inet_rdma_test_node:stop_all(),
    _ = [
        file:delete(Pipe)
     || Pipe <- filelib:wildcard(filename:join(proplists:get_value(priv_dir, Config), "dump_*"))
    ],
    ok.

%% Whichever of the two nodes has made the connection.
halt_with_a_slogan(Config) ->
    [
        begin
            [A, B] = start(Config),
            {First, Second} = order(Which, A, B),
            ok = inet_rdma_test_node:connect(First, Second),
            down(A, B, Which, fun() -> halt_node(B) end),
            inet_rdma_test_node:kill(B)
        end
     || Which <- [a_connects, b_connects]
    ].

order(a_connects, A, B) -> {A, B};
order(b_connects, A, B) -> {B, A}.

%% The thread of signals crashes, and no scheduler.
a_crash_by_a_signal_is_a_nodedown(Config) ->
    [A, B] = connected(Config),
    down(A, B, signal, fun() -> signal_crash(B) end).

%% No allocator gets that much: more than the address space of a process.
out_of_memory(Config) ->
    [A, B] = connected(Config),
    down(A, B, out_of_memory, fun() ->
        peer:cast(maps:get(peer, B), binary, copy, [<<0>>, 1 bsl 47])
    end).

%% Other schedulers are in the link's callbacks at that moment, and are stopped there while the dump
%% is written.
a_crash_under_traffic_is_a_nodedown(Config) ->
    [
        begin
            [A, B] = connected(Config),
            [
                call(X, inet_rdma_test_pump, start, [name(Y), Bytes, 4])
             || {X, Y} <- [{A, B}, {B, A}], Bytes <- [10, 200000]
            ],
            inet_rdma_test_wait:until(traffic, 20000, fun() ->
                {ok, Information} = call(A, net_kernel, node_info, [name(B)]),
                proplists:get_value(in, Information) > 1000 * Round
            end),
            down(A, B, {under_traffic, Round}, fun() -> crash(Round, B) end),
            inet_rdma_test_node:kill(B)
        end
     || Round <- lists:seq(1, ?ROUNDS)
    ].

crash(Round, B) when Round rem 2 =:= 0 -> signal_crash(B);
crash(_Round, B) -> halt_node(B).

%% A third node loses both.
a_third_node_loses_both_crashed_nodes(Config) ->
    [A, B] = start(Config),
    C = inet_rdma_test_node:start("c", options(Config, [])),
    [ok = inet_rdma_test_node:connect(C, Node) || Node <- [A, B]],
    Watchers = [{Node, inet_rdma_test_node:watch(C, Node)} || Node <- [A, B]],
    signal_crash(B),
    inet_rdma_test_node:kill(A),
    [nodedown(C, Watcher, Node) || {Node, Watcher} <- Watchers].

%% Nothing of the node accepts a connection now: what connects learns at once that the node has
%% ended.
refuses_at_once(Config) ->
    [A, B] = connected(Config),
    {ok, Name} = call(B, inet_rdma_nif, witness_name, []),
    Find = fun() -> call(A, inet_rdma_nif, find_witness, [Name]) end,
    Dial = fun(Port) ->
        case gen_tcp:connect({127, 0, 0, 1}, Port, [], ?AT_ONCE_MS) of
            {ok, Socket} -> gen_tcp:close(Socket);
            Error -> Error
        end
    end,
    [Short, _] = string:lexemes(atom_to_list(name(B)), "@"),
    {port, Port, _} = erl_epmd:port_please(Short, {127, 0, 0, 1}),
    ?assertEqual(ok, Dial(Port)),
    ?assertMatch({present, _}, Find()),
    down(A, B, refuses_at_once, fun() -> signal_crash(B) end),
    ?assertEqual(absent, Find()),
    ?assertEqual({error, econnrefused}, Dial(Port)).

%% The link is up over TCP, and its nodes make the queue pair or leave TCP.
while_it_moves(Config) ->
    [
        begin
            [A, B] = start(Config, [{move, earned}]),
            pong = call(A, net_adm, ping, [name(B)]),
            call(A, inet_rdma_test_pump, start, [name(B), 100000, 4]),
            inet_rdma_test_wait:until(begun, 20000, fun() ->
                #{bytes_sent := Sent} = call(A, inet_rdma, info, [name(B)]),
                Sent > 100000 * Round
            end),
            down(A, B, {while_it_moves, Round}, fun() -> signal_crash(B) end),
            inet_rdma_test_node:kill(B)
        end
     || Round <- lists:seq(1, ?ROUNDS)
    ].

%% The peer is stopped, so that it cannot answer for the next connection, and crashes as soon as it
%% runs again. Over shared memory the link is not suspended, but stands without its TCP connection.
a_crash_while_suspended_is_a_nodedown(Config) ->
    [A, B] = connected(Config),
    Watcher = inet_rdma_test_node:watch(A, B),
    inet_rdma_test_node:suspend(B),
    ?assert(inet_rdma_test_cutter:cut(maps:get(os_pid, A), maps:get(os_pid, B)) > 0),
    ok = inet_rdma_test_wait:holds(alive, 500, fun() ->
        call(A, inet_rdma_test_watch, seen, [Watcher]) =:= []
    end),
    down(A, B, while_suspended, fun() ->
        signal_crash(B),
        inet_rdma_test_node:resume(B)
    end).

a_crash_after_a_resume_is_a_nodedown(Config) ->
    [A, B] = connected(Config),
    #{resumes := Before} = call(A, inet_rdma, info, [name(B)]),
    ?assert(inet_rdma_test_cutter:cut(maps:get(os_pid, A), maps:get(os_pid, B)) > 0),
    inet_rdma_test_wait:until(resumed, 20000, fun() ->
        #{resumes := Now} = call(A, inet_rdma, info, [name(B)]),
        Now > Before
    end),
    down(A, B, just_resumed, fun() -> halt_node(B) end).

%% The queue pair is all that the link has.
without_its_tcp_connection(Config) ->
    [A, B] = connected(Config),
    {OsPidA, OsPidB} = {maps:get(os_pid, A), maps:get(os_pid, B)},
    Cutter = inet_rdma_test_cutter:start([{OsPidA, OsPidB}], 1, 2),
    ok = inet_rdma_test_cutter:await_cuts(Cutter, 3),
    down(A, B, without_its_tcp_connection, fun() -> halt_node(B) end),
    _ = inet_rdma_test_cutter:stop(Cutter).

%% Node A sees the end of its link to B, whose process still writes its dump.
down(A, B, How, Crash) ->
    Watcher = inet_rdma_test_node:watch(A, B),
    StartMs = erlang:monotonic_time(millisecond),
    _ = Crash(),
    nodedown(A, Watcher, B),
    ct:pal("~p: nodedown after ~b ms", [How, erlang:monotonic_time(millisecond) - StartMs]),
    ?assert(inet_rdma_test_os:is_alive(maps:get(os_pid, B))).

nodedown(A, Watcher, B) ->
    inet_rdma_test_wait:until({nodedown_of, name(B)}, ?AT_ONCE_MS, fun() ->
        case lists:sort(call(A, inet_rdma_test_watch, seen, [Watcher])) of
            [monitor_node, monitor_nodes | _] -> true;
            Other -> Other
        end
    end).

halt_node(#{peer := Peer}) -> peer:cast(Peer, erlang, halt, ["a slogan"]).

signal_crash(#{os_pid := OsPid}) -> os:cmd("kill -USR1 " ++ integer_to_list(OsPid)).

connected(Config) ->
    [A, B] = Pair = start(Config),
    ok = inet_rdma_test_node:connect(A, B),
    Pair.

start(Config) -> start(Config, []).

%% Node B writes its dump into a pipe.
start(Config, Rdma) ->
    Options = options(Config, Rdma),
    Dumps = inet_rdma_test_os:endless_dump(proplists:get_value(priv_dir, Config)),
    inet_rdma_test_node:start_all([{"a", Options}, {"b", Options#{under => Dumps}}]).

options(Config, Rdma) ->
    inet_rdma_test_node:alone(
        inet_rdma_test_paths:options(Config, #{
            rdma => [{survive_ms, ?SURVIVE_MS} | Rdma],
            args => ["-kernel", "net_ticktime", integer_to_list(?TICKTIME)]
        })
    ).

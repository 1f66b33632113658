%% A link outlives its connections, and nothing else: whatever ends a node or the link in order is a
%% nodedown at once, and a node that comes again under its name is another one.
-module(death_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_node, [call/4, name/1]).

-export([all/0, suite/0, groups/0, init_per_testcase/2]).
-export([
    a_killed_node_is_a_nodedown/1,
    an_orderly_end_is_a_nodedown/1,
    a_restarted_runtime_has_no_sessions/1,
    killed_by_heart/1,
    a_disconnect_is_a_nodedown_on_both_nodes/1,
    exit_of_the_supervisor/1,
    a_stopped_peer_ends_by_missing_ticks/1
]).
-export([
    kill_while_suspended/1,
    a_restarted_peer_gets_nothing_of_before/1,
    with_survive_ms_0_a_link_ends_with_its_connection/1,
    survives_not_for_long/1
]).
-export([
    kill_behind_a_firewall/1,
    kill_with_unread_bytes_behind_a_firewall/1,
    reset_behind_a_firewall/1,
    a_name_server_that_is_cut_off_knows_no_end/1
]).

%% Longer than any wait of the cases: no end may come from there.
-define(SURVIVE_MS, 600000).
-define(TICKTIME, 600).
%% The bound for "at once"; the cases print what they measured.
-define(AT_ONCE_MS, 5000).
-define(KILLS, 20).
-define(PEERS, 5).

suite() ->
    [{timetrap, {minutes, 4}}, {ct_hooks, [{inet_rdma_test_nodes, [paths]}]}].

all() ->
    [a_name_server_that_is_cut_off_knows_no_end | [{group, Group} || {Group, _, _} <- groups()]].

groups() ->
    inet_rdma_test_paths:groups([
        a_killed_node_is_a_nodedown,
        an_orderly_end_is_a_nodedown,
        a_restarted_runtime_has_no_sessions,
        killed_by_heart,
        a_disconnect_is_a_nodedown_on_both_nodes,
        exit_of_the_supervisor,
        a_stopped_peer_ends_by_missing_ticks,
        kill_while_suspended,
        a_restarted_peer_gets_nothing_of_before,
        with_survive_ms_0_a_link_ends_with_its_connection,
        survives_not_for_long,
        kill_behind_a_firewall,
        kill_with_unread_bytes_behind_a_firewall,
        reset_behind_a_firewall
    ]).

init_per_testcase(kill_while_suspended, Config) ->
    case inet_rdma_test_cutter:why_not() of
        none -> inet_rdma_test_node:only_sessions(Config);
        Why -> inet_rdma_test_link:skip(Why)
    end;
init_per_testcase(with_survive_ms_0_a_link_ends_with_its_connection, Config) ->
    inet_rdma_test_cutter:needed(Config);
init_per_testcase(survives_not_for_long, Config) ->
    case {proplists:get_value(path, Config), inet_rdma_test_node:only_rdma(Config)} of
        {_, {skip, _} = Skip} -> Skip;
        {tcp, _} -> Config;
        _ -> {skip, "this link does without its TCP connection"}
    end;
init_per_testcase(a_restarted_peer_gets_nothing_of_before, Config) ->
    inet_rdma_test_node:only_sessions(Config);
init_per_testcase(Case, Config) when
    Case =:= kill_behind_a_firewall;
    Case =:= kill_with_unread_bytes_behind_a_firewall;
    Case =:= reset_behind_a_firewall
->
    case {proplists:get_value(path, Config), inet_rdma_test_node:only_sessions(Config)} of
        {_, {skip, _} = Skip} -> Skip;
        {shm, _} -> {skip, "shared memory does not lead to another host"};
        _ -> inet_rdma_test_network:needed_in_names(Config)
    end;
init_per_testcase(_Case, Config) ->
    Config.

%% The kernel of a killed node ends its connections and refuses the next one.
a_killed_node_is_a_nodedown(Config) ->
    A = inet_rdma_test_node:start("a", options(Config)),
    {Watcher, ok} = call(A, inet_rdma_test_watch, downs, []),
    Took = lists:append([killed(A, Watcher, Config) || _ <- lists:seq(1, ?KILLS div ?PEERS)]),
    Sorted = lists:sort(Took),
    ct:pal(
        "nodedown after kill -9, of ~b: median ~b us; ~w",
        [length(Sorted), lists:nth(length(Sorted) div 2, Sorted), Sorted]
    ).

killed(A, Watcher, Config) ->
    Peers = inet_rdma_test_node:start_all(?PEERS, inet_rdma_test_node:alone(options(Config))),
    [ok = inet_rdma_test_node:connect(A, Peer) || Peer <- Peers],
    [
        begin
            KilledUs = os:system_time(microsecond),
            inet_rdma_test_node:kill(Peer),
            down_us(A, Watcher, name(Peer)) - KilledUs
        end
     || Peer <- Peers
    ].

down_us(Node, Watcher, Peer) ->
    inet_rdma_test_wait:until({nodedown, Peer}, ?AT_ONCE_MS, fun() ->
        case lists:keyfind(Peer, 1, call(Node, inet_rdma_test_watch, seen, [Watcher])) of
            {Peer, AtUs} -> {ok, AtUs};
            false -> still_up
        end
    end).

%% Whichever of the two nodes has made the connection. A reboot without heart is a stop.
an_orderly_end_is_a_nodedown(Config) ->
    [
        begin
            [A, B] = inet_rdma_test_node:start_all(2, options(Config)),
            {First, Second} = order(Which, A, B),
            ok = inet_rdma_test_node:connect(First, Second),
            nodedown(A, B, How, fun() -> End(B) end),
            inet_rdma_test_node:await_exit(B, 20000),
            ?assertEqual([], call(A, erlang, nodes, [connected])),
            inet_rdma_test_node:stop(A)
        end
     || {How, End} <- [
            {halt, at(erlang, halt)},
            {stop, at(init, stop)},
            {reboot, at(init, reboot)},
            {sigterm, fun(#{os_pid := OsPid}) ->
                os:cmd("kill -TERM " ++ integer_to_list(OsPid))
            end}
        ],
        Which <- [a_connects, b_connects]
    ].

at(Module, Function) -> fun(#{peer := Peer}) -> peer:cast(Peer, Module, Function, []) end.

%% The runtime system starts again in the same process: the listener and the native library of
%% before are there, the sessions are not.
a_restarted_runtime_has_no_sessions(Config) ->
    [
        begin
            [A, B] = inet_rdma_test_node:start_all(2, options(Config)),
            {First, Second} = order(Which, A, B),
            ok = inet_rdma_test_node:connect(First, Second),
            nodedown(A, B, restart, fun() -> (at(init, restart))(B) end),
            inet_rdma_test_wait:until(connected_again, 20000, fun() ->
                call(A, net_adm, ping, [name(B)]) =:= pong
            end),
            inet_rdma_test_node:kill(B),
            inet_rdma_test_node:stop(A)
        end
     || Which <- [a_connects, b_connects]
    ].

%% heart kills a VM that does not answer it.
killed_by_heart(Config) ->
    #{args := Args} = Options = options(Config),
    [A, B] = inet_rdma_test_node:start_all([
        {"a", Options},
        {"b", Options#{
            args => [
                "-heart", "-env", "HEART_BEAT_TIMEOUT", "11", "-env", "HEART_COMMAND", "true" | Args
            ]
        }}
    ]),
    ok = inet_rdma_test_node:connect(A, B),
    nodedown(A, B, killed_by_heart, fun() -> inet_rdma_test_node:suspend(B) end, 60000).

order(a_connects, A, B) -> {A, B};
order(b_connects, A, B) -> {B, A}.

%% Both nodes get a nodedown, and can connect again.
a_disconnect_is_a_nodedown_on_both_nodes(Config) ->
    ended_by(Config, disconnect, fun(Node, Peer) ->
        true = call(Node, erlang, disconnect_node, [Peer])
    end).

exit_of_the_supervisor(Config) ->
    ended_by(Config, exit_of_the_supervisor, fun(Node, Peer) ->
        {ok, Information} = call(Node, net_kernel, node_info, [Peer]),
        {owner, Supervisor} = lists:keyfind(owner, 1, Information),
        true = call(Node, erlang, exit, [Supervisor, kill])
    end).

ended_by(Config, How, End) ->
    [A, B] = inet_rdma_test_node:start_all(2, inet_rdma_test_node:alone(options(Config))),
    [
        begin
            {First, Second} = order(Which, A, B),
            ok = inet_rdma_test_node:connect(First, Second),
            Other = inet_rdma_test_node:watch(B, A),
            nodedown(A, B, How, fun() -> End(A, name(B)) end),
            nodedown_at(B, Other),
            ok = inet_rdma_test_node:connect(B, A),
            ok = call(A, inet_rdma_test_data, echo_and_compare, [name(B), [0, 1000, 1000000]]),
            ok = inet_rdma_test_link:disconnect(A, B)
        end
     || Which <- [a_connects, b_connects]
    ].

%% A stopped node keeps its connections: missing ticks end the link.
a_stopped_peer_ends_by_missing_ticks(Config) ->
    [A, B] = inet_rdma_test_node:connected_pair(options(Config, ?SURVIVE_MS, 4)),
    nodedown(A, B, stopped, fun() -> inet_rdma_test_node:suspend(B) end, 30000),
    inet_rdma_test_node:resume(B),
    inet_rdma_test_wait:until(connected_again, 20000, fun() ->
        call(A, net_adm, ping, [name(B)]) =:= pong
    end),
    ok = call(A, inet_rdma_test_data, echo_and_compare, [name(B), [0, 1000, 1000000]]).

%% The peer is stopped, so that it cannot answer for the next connection, and dies then.
kill_while_suspended(Config) ->
    [
        begin
            [A, B] = inet_rdma_test_node:start_all(2, options(Config)),
            {First, Second} = order(Which, A, B),
            ok = inet_rdma_test_node:connect(First, Second),
            Watcher = inet_rdma_test_node:watch(A, B),
            inet_rdma_test_node:suspend(B),
            ?assert(inet_rdma_test_cutter:cut(maps:get(os_pid, A), maps:get(os_pid, B)) > 0),
            ok = inet_rdma_test_wait:holds(suspended, 1000, fun() ->
                call(A, inet_rdma_test_watch, seen, [Watcher]) =:= []
            end),
            nodedown(A, B, {killed_while_suspended, Which}, fun() -> inet_rdma_test_node:kill(B) end),
            inet_rdma_test_node:stop(A)
        end
     || Which <- [a_connects, b_connects]
    ].

%% What was sent to the node that died does not reach the one that comes under its name, nor does
%% its link go on there.
a_restarted_peer_gets_nothing_of_before(Config) ->
    Options = options(Config),
    #{a := A, b := B, relay := Relay} =
        Detour =
        inet_rdma_test_detour:start(proplists:get_value(priv_dir, Config), Options, Options),
    {_, ok} = call(B, inet_rdma_test_watch, messages_to, [greetings]),
    ok = inet_rdma_test_node:connect(A, B),
    Watcher = inet_rdma_test_node:watch(A, B),
    ok = inet_rdma_test_relay:hold(Relay),
    inet_rdma_test_node:kill(B),
    inet_rdma_test_node:await_exit(B, 20000),
    [
        call(A, erlang, send, [{greetings, name(B)}, {before, N}, [noconnect]])
     || N <- lists:seq(1, 100)
    ],
    #{b := Back} = inet_rdma_test_detour:again(Detour, fun(Node) ->
        {Greeted, ok} = call(Node, inet_rdma_test_watch, messages_to, [greetings]),
        self() ! {greeted, Greeted}
    end),
    ok = inet_rdma_test_relay:pass(Relay),
    nodedown_at(A, Watcher),
    inet_rdma_test_wait:until(connected_again, 20000, fun() ->
        call(A, net_adm, ping, [name(B)]) =:= pong
    end),
    {_, OsPid, _} = call(A, erpc, call, [name(B), inet_rdma_test_remote, whoami, []]),
    ?assertEqual(maps:get(os_pid, Back), OsPid),
    ok = call(A, inet_rdma_test_data, echo_and_compare, [name(B), [0, 1000, 1000000]]),
    Greetings =
        receive
            {greeted, Pid} -> Pid
        end,
    ?assertEqual([], call(Back, inet_rdma_test_watch, seen, [Greetings])).

%% With survive_ms 0 a link ends with its connection, as one of inet_tcp.
with_survive_ms_0_a_link_ends_with_its_connection(Config) ->
    Options = inet_rdma_test_node:alone(options(Config, 0)),
    [#{os_pid := PidA} = A, #{os_pid := PidB} = B] = inet_rdma_test_node:start_all(2, Options),
    [
        begin
            ok = inet_rdma_test_node:connect(X, Y),
            AtB = inet_rdma_test_node:watch(B, A),
            nodedown(A, B, survives_nothing, fun() ->
                ?assert(inet_rdma_test_cutter:cut(PidA, PidB) > 0)
            end),
            nodedown_at(B, AtB)
        end
     || {X, Y} <- [{A, B}, {B, A}]
    ].

%% A suspended link ends when survive_ms is over, and both nodes log why.
survives_not_for_long(Config) ->
    SurviveMs = 3000,
    Options = options(Config, SurviveMs),
    #{a := A, b := B, relay := Relay} =
        inet_rdma_test_detour:start(proplists:get_value(priv_dir, Config), Options, Options),
    ok = inet_rdma_test_node:connect(A, B),
    [ok = call(Node, inet_rdma_test_log, install, []) || Node <- [A, B]],
    AtB = inet_rdma_test_node:watch(B, A),
    StartMs = erlang:monotonic_time(millisecond),
    nodedown(A, B, survives_not_for_long, fun() -> inet_rdma_test_relay:hold(Relay) end, 20000),
    ?assert(erlang:monotonic_time(millisecond) - StartMs >= SurviveMs),
    nodedown_at(B, AtB, 20000),
    %% The guard logs after the nodedown.
    [
        inet_rdma_test_wait:until({survive_ms_in_the_log, name(Node)}, 10000, fun() ->
            Lines = call(Node, inet_rdma_test_log, lines, []),
            lists:any(fun(Line) -> string:find(Line, "survive_ms") =/= nomatch end, Lines) orelse
                Lines
        end)
     || Node <- [A, B]
    ].

%% The peer's kernel ends the connection in order, and nothing answers at the peer's address:
%% survive_ms is not waited for.
kill_behind_a_firewall(Config) ->
    Pair = behind_a_firewall(Config),
    killed_behind_a_firewall(kill_behind_a_firewall, Pair).

killed_behind_a_firewall(Case, [A, B]) ->
    ok = call(A, inet_rdma_test_log, install, []),
    nodedown(A, B, Case, fun() -> inet_rdma_test_node:kill(B) end, 30000),
    inet_rdma_test_wait:until(why_in_the_log, 10000, fun() ->
        call(A, inet_rdma_test_log, contains, ["nothing answers at"])
    end).

%% The peer's kernel resets the connection then. The peer's name server no longer knows the node.
kill_with_unread_bytes_behind_a_firewall(Config) ->
    [A, B] = Pair = behind_a_firewall(Config),
    inet_rdma_test_node:suspend(B),
    unread = call(A, erlang, send, [{nobody, name(B)}, unread]),
    killed_behind_a_firewall(kill_with_unread_bytes_behind_a_firewall, Pair).

%% After a reset the peer may live. It is stopped, so that it cannot make the next connection
%% itself.
reset_behind_a_firewall(Config) ->
    Network = proplists:get_value(network, Config),
    [A, B] = behind_a_firewall(Config),
    Watcher = inet_rdma_test_node:watch(A, B),
    inet_rdma_test_node:suspend(B),
    ok = inet_rdma_test_network:cut(Network),
    %% More than the two attempts that nothing answers.
    ok = inet_rdma_test_wait:holds(suspended, 8000, fun() ->
        call(A, inet_rdma_test_watch, seen, [Watcher]) =:= []
    end),
    inet_rdma_test_node:resume(B),
    inet_rdma_test_wait:until(resumed, 20000, fun() ->
        #{resumes := Resumes} = call(A, inet_rdma, info, [name(B)]),
        Resumes > 0
    end),
    ok = inet_rdma_test_link:exercise(A, B).

%% Node B has connected to node A, on another host, and a firewall drops what connects to B.
behind_a_firewall(Config) ->
    Network = proplists:get_value(network, Config),
    [A, B] =
        Pair = inet_rdma_test_node:start_all([
            {atom_to_list(Host), (options(Config))#{
                long => true,
                under => inet_rdma_test_network:under(Host, Network),
                name => lists:append([
                    inet_rdma_test_node:unique(atom_to_list(Host)),
                    "@",
                    inet_rdma_test_network:address(Host, Network)
                ])
            }}
         || Host <- [a, b]
        ]),
    ok = inet_rdma_test_node:connect(B, A),
    [Name, _Host] = string:lexemes(atom_to_list(name(B)), "@"),
    {port, Port, _Version} = call(B, erl_epmd, port_please, [Name, {127, 0, 0, 1}]),
    ok = inet_rdma_test_network:bar(Port, Network),
    Pair.

%% Node A hears of the end of its link to B, by monitor_node and by monitor_nodes, at once.
nodedown(A, B, How, End) -> nodedown(A, B, How, End, ?AT_ONCE_MS).

nodedown(A, B, How, End, TimeoutMs) ->
    Watcher = inet_rdma_test_node:watch(A, B),
    StartMs = erlang:monotonic_time(millisecond),
    _ = End(),
    nodedown_at(A, Watcher, TimeoutMs),
    ct:pal("~p: nodedown after ~b ms", [How, erlang:monotonic_time(millisecond) - StartMs]).

nodedown_at(Node, Watcher) -> nodedown_at(Node, Watcher, ?AT_ONCE_MS).

nodedown_at(Node, Watcher, TimeoutMs) ->
    inet_rdma_test_wait:until({nodedown_at, name(Node)}, TimeoutMs, fun() ->
        case lists:sort(call(Node, inet_rdma_test_watch, seen, [Watcher])) of
            [monitor_node, monitor_nodes | _] -> true;
            Other -> Other
        end
    end).

options(Config) -> options(Config, ?SURVIVE_MS).

options(Config, SurviveMs) -> options(Config, SurviveMs, ?TICKTIME).

options(Config, SurviveMs, TickTime) ->
    inet_rdma_test_paths:options(Config, #{
        rdma => [{survive_ms, SurviveMs}],
        args => ["-kernel", "net_ticktime", integer_to_list(TickTime)]
    }).

%% The module of OTP takes a connection to EPMD that ends before the answer for an empty list.
a_name_server_that_is_cut_off_knows_no_end(_Config) ->
    Local = {127, 0, 0, 1},
    {ok, Listener} = gen_tcp:listen(0, [binary, {ip, Local}, {active, false}]),
    {ok, Port} = inet:port(Listener),
    Node = inet_rdma_test_node:start(
        "a",
        inet_rdma_test_node:alone(#{
            name => none, args => ["-epmd_port", integer_to_list(Port)], rdma => []
        })
    ),
    Asked = fun(Answers, IsCutOff) ->
        _ = spawn_link(fun() -> answer(Listener, Answers, IsCutOff) end),
        call(Node, inet_rdma_tcp, port_please, ["b", Local])
    end,
    %% The questions are of the port, then twice of all names.
    ?assertEqual(unknown, Asked([<<119, 1>>, <<Port:32>>, <<Port:32>>], false)),
    ?assertEqual(no_answer, Asked([<<>>, <<>>], true)),
    ok = inet_rdma_test_node:stop(Node).

%% Cut off: it takes no connection after the last one that it has closed.
answer(Listener, [Answer | Later], IsCutOff) ->
    {ok, Socket} = gen_tcp:accept(Listener),
    {ok, _Question} = gen_tcp:recv(Socket, 0),
    ok = gen_tcp:send(Socket, Answer),
    _ = [ok = gen_tcp:close(Listener) || IsCutOff, Later =:= []],
    ok = gen_tcp:close(Socket),
    answer(Listener, Later, IsCutOff);
answer(_Listener, [], _IsCutOff) ->
    ok.

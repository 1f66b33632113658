%% What applications do between nodes, in clusters of two to five nodes.
-module(cluster_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, groups/0, suite/0, init_per_group/2, end_per_group/2]).
-export([
    each_node_answers_a_ping/1,
    each_node_sees_all_others/1,
    rpc_answers_and_fails/1,
    erpc_answers_and_raises/1,
    spawn_runs_a_process_there/1,
    spawn_request_is_answered/1,
    links_break_with_the_reason/1,
    monitors_fire_with_the_reason/1
]).
-export([
    exit_reason_of_10_mb/1,
    global_names_are_known_to_all_nodes/1,
    process_groups_have_members_of_all_nodes/1,
    sys_of_a_remote_process/1
]).
-export([node_monitors_fire_once/1, global_name_moves_after_node_death/1]).

suite() ->
    [{timetrap, {minutes, 3}}].

all() ->
    [{group, Group} || Group <- [two_nodes, three_nodes, four_nodes, five_nodes]].

groups() ->
    Everywhere = [
        each_node_answers_a_ping,
        each_node_sees_all_others,
        rpc_answers_and_fails,
        erpc_answers_and_raises,
        spawn_runs_a_process_there,
        global_names_are_known_to_all_nodes,
        process_groups_have_members_of_all_nodes
    ],
    Pair = [
        spawn_request_is_answered,
        links_break_with_the_reason,
        monitors_fire_with_the_reason,
        exit_reason_of_10_mb,
        sys_of_a_remote_process
    ],
    %% What kills a node comes last in its group.
    Last = [node_monitors_fire_once],
    [
        {two_nodes, [], Everywhere ++ Pair ++ Last},
        {three_nodes, [], Everywhere ++ [global_name_moves_after_node_death]},
        {four_nodes, [], Everywhere ++ Pair},
        {five_nodes, [], Everywhere}
    ].

init_per_group(Group, Config) ->
    Sizes = #{two_nodes => 2, three_nodes => 3, four_nodes => 4, five_nodes => 5},
    Nodes = inet_rdma_test_node:start_all(maps:get(Group, Sizes), #{}),
    ok = inet_rdma_test_node:mesh(Nodes),
    [{nodes, Nodes} | Config].

end_per_group(_Group, _Config) ->
    inet_rdma_test_node:stop_all().

each_node_answers_a_ping(Config) ->
    each_pair(Config, fun(A, #{node := Name}) ->
        ?assertEqual(pong, inet_rdma_test_node:call(A, net_adm, ping, [Name]))
    end).

each_node_sees_all_others(Config) ->
    Nodes = cluster(Config),
    Names = [Name || #{node := Name} <- Nodes],
    [
        ?assertEqual(
            lists:sort(Names -- [Name]),
            lists:sort(inet_rdma_test_node:call(Node, erlang, nodes, []))
        )
     || #{node := Name} = Node <- Nodes
    ].

rpc_answers_and_fails(Config) ->
    each_pair(Config, fun(A, #{node := Name}) ->
        ?assertEqual(Name, inet_rdma_test_node:call(A, rpc, call, [Name, erlang, node, []])),
        ?assertMatch(
            {badrpc, {'EXIT', {undef, _}}},
            inet_rdma_test_node:call(A, rpc, call, [Name, no_module, no_function, []])
        )
    end),
    [First | _] = Nodes = cluster(Config),
    Names = [Name || #{node := Name} <- Nodes],
    ?assertEqual(
        {Names, []}, inet_rdma_test_node:call(First, rpc, multicall, [Names, erlang, node, []])
    ).

erpc_answers_and_raises(Config) ->
    each_pair(Config, fun(A, #{node := Name}) ->
        ?assertEqual(Name, inet_rdma_test_node:call(A, erpc, call, [Name, erlang, node, []])),
        ?assertError(
            {exception, bad, _},
            inet_rdma_test_node:call(A, erpc, call, [Name, erlang, error, [bad]])
        )
    end),
    [First | _] = Nodes = cluster(Config),
    Names = [Name || #{node := Name} <- Nodes],
    ?assertEqual(
        [{ok, Name} || Name <- Names],
        inet_rdma_test_node:call(First, erpc, multicall, [Names, erlang, node, []])
    ).

spawn_runs_a_process_there(Config) -> remote(Config, spawn_answers, []).

spawn_request_is_answered(Config) -> remote(Config, spawn_request_answers, []).

links_break_with_the_reason(Config) -> remote(Config, link_breaks, []).

monitors_fire_with_the_reason(Config) -> remote(Config, monitor_fires, []).

exit_reason_of_10_mb(Config) ->
    [A, #{node := B} | _] = cluster(Config),
    ok = inet_rdma_test_node:call(A, inet_rdma_test_remote, large_exit_by_monitor, [
        B, 10 * 1024 * 1024
    ]),
    ok = inet_rdma_test_node:call(A, inet_rdma_test_remote, large_exit_by_link, [
        B, 10 * 1024 * 1024
    ]).

sys_of_a_remote_process(Config) ->
    each_pair(Config, fun(A, #{node := Name}) ->
        ?assertMatch(
            {status, _, {module, gen_server}, _},
            inet_rdma_test_node:call(A, sys, get_status, [{kernel_refc, Name}])
        )
    end).

global_names_are_known_to_all_nodes(Config) ->
    Nodes = cluster(Config),
    [
        begin
            {Pid, yes} = inet_rdma_test_node:call(Node, inet_rdma_test_remote, register_global, [
                {global, I}
            ]),
            [
                ?assertEqual(
                    Pid, inet_rdma_test_node:call(Other, global, whereis_name, [{global, I}])
                )
             || Other <- Nodes
            ],
            %% The name is taken in the whole cluster.
            {_, no} = inet_rdma_test_node:call(hd(Nodes), inet_rdma_test_remote, register_global, [
                {global, I}
            ])
        end
     || {I, Node} <- lists:enumerate(Nodes)
    ].

process_groups_have_members_of_all_nodes(Config) ->
    Nodes = cluster(Config),
    Pids = [
        begin
            {Pid, ok} = inet_rdma_test_node:call(Node, inet_rdma_test_remote, join_group, [workers]),
            Pid
        end
     || Node <- Nodes
    ],
    [
        inet_rdma_test_wait:until({members_seen_by, Name}, 20000, fun() ->
            lists:sort(inet_rdma_test_node:call(Node, pg, get_members, [workers])) =:=
                lists:sort(Pids)
        end)
     || #{node := Name} = Node <- Nodes
    ].

node_monitors_fire_once(Config) ->
    [A, B | _] = cluster(Config),
    Watcher = inet_rdma_test_node:watch(A, B),
    inet_rdma_test_node:kill(B),
    inet_rdma_test_node:await_nodes(A, []),
    inet_rdma_test_wait:until(both_kinds_of_nodedown, 10000, fun() ->
        case inet_rdma_test_node:call(A, inet_rdma_test_watch, seen, [Watcher]) of
            [_, _] -> true;
            Other -> Other
        end
    end),
    %% A call there and back later there is still one of each.
    ?assertEqual(
        [monitor_node, monitor_nodes],
        lists:sort(inet_rdma_test_node:call(A, inet_rdma_test_watch, seen, [Watcher]))
    ).

global_name_moves_after_node_death(Config) ->
    [A, B, #{node := NameC} = C] = cluster(Config),
    {_, yes} = inet_rdma_test_node:call(C, inet_rdma_test_remote, register_global, [moving]),
    inet_rdma_test_node:kill(C),
    [
        inet_rdma_test_wait:until({name_gone_with, NameC}, 20000, fun() ->
            inet_rdma_test_node:call(Node, global, whereis_name, [moving]) =:= undefined
        end)
     || Node <- [A, B]
    ],
    {Pid, yes} = inet_rdma_test_node:call(B, inet_rdma_test_remote, register_global, [moving]),
    ?assertEqual(Pid, inet_rdma_test_node:call(A, global, whereis_name, [moving])),
    %% The node comes back under its name and learns which process has it now.
    C2 = inet_rdma_test_node:start("c", #{name => maps:get(name, C)}),
    ok = inet_rdma_test_node:mesh([A, B, C2]),
    inet_rdma_test_wait:until(name_known_to_the_returned_node, 20000, fun() ->
        inet_rdma_test_node:call(C2, global, whereis_name, [moving]) =:= Pid
    end).

remote(Config, Function, Args) ->
    each_pair(Config, fun(A, #{node := Name}) ->
        ok = inet_rdma_test_node:call(A, inet_rdma_test_remote, Function, [Name | Args])
    end).

each_pair(Config, Fun) ->
    Nodes = cluster(Config),
    [Fun(A, B) || A <- Nodes, B <- Nodes, A =/= B].

cluster(Config) ->
    proplists:get_value(nodes, Config).

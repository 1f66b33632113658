%% Mnesia on three nodes: tables are replicated, a killed node is survived, and it catches up when
%% it is back.
-module(mnesia_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_node, [call/4, name/1]).

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([replicates_and_survives_a_killed_node/1, large_table_is_loaded_by_a_new_node/1]).

-define(TABLE, inet_rdma_test_table).

suite() ->
    [{timetrap, {minutes, 2}}, {ct_hooks, [inet_rdma_test_nodes]}].

all() ->
    [replicates_and_survives_a_killed_node, large_table_is_loaded_by_a_new_node].

init_per_suite(Config) ->
    case code:lib_dir(mnesia) of
        {error, bad_name} -> {skip, "Mnesia is not installed"};
        _ -> Config
    end.

end_per_suite(_Config) ->
    ok.

replicates_and_survives_a_killed_node(Config) ->
    Names = [inet_rdma_test_node:unique(Prefix) || Prefix <- ["a", "b", "c"]],
    [A, B, C] = Nodes = start(Names, Config),
    ok = call(A, mnesia, create_schema, [[name(Node) || Node <- Nodes]]),
    [ok = call(Node, mnesia, start, []) || Node <- Nodes],
    create_table(A, [{disc_copies, [name(Node) || Node <- Nodes]}]),
    [write(Node, Key) || {Node, Key} <- [{A, 1}, {B, 2}, {C, 3}]],
    [?assertEqual([1, 2, 3], keys(Node)) || Node <- Nodes],
    inet_rdma_test_node:kill(C),
    inet_rdma_test_wait:until(others_go_on_without_it, 20000, fun() ->
        lists:sort(call(A, mnesia, system_info, [running_db_nodes])) =:=
            lists:sort([name(A), name(B)])
    end),
    [write(Node, Key) || {Node, Key} <- [{A, 4}, {B, 5}]],
    [?assertEqual([1, 2, 3, 4, 5], keys(Node)) || Node <- [A, B]],
    %% It comes back with its name and its directory, and catches up.
    [Returned] = start([lists:last(Names)], Config),
    ok = inet_rdma_test_node:mesh([A, B, Returned]),
    ok = call(Returned, mnesia, start, []),
    ok = call(Returned, mnesia, wait_for_tables, [[?TABLE], 30000]),
    ?assertEqual([1, 2, 3, 4, 5], keys(Returned)),
    write(Returned, 6),
    [?assertEqual([1, 2, 3, 4, 5, 6], keys(Node)) || Node <- [A, B, Returned]].

%% Loading copies the table over the connection in one go.
large_table_is_loaded_by_a_new_node(Config) ->
    [A, B] = Nodes = start([inet_rdma_test_node:unique(Prefix) || Prefix <- ["a", "b"]], Config),
    ok = inet_rdma_test_node:mesh(Nodes),
    [ok = call(Node, mnesia, start, []) || Node <- Nodes],
    create_table(A, [{ram_copies, [name(A)]}]),
    Keys = lists:seq(1, 20000),
    ok = call(A, inet_rdma_test_remote, fill_table, [?TABLE, Keys, 1000]),
    {ok, [_]} = call(B, mnesia, change_config, [extra_db_nodes, [name(A)]]),
    {atomic, ok} = call(A, mnesia, add_table_copy, [?TABLE, name(B), ram_copies]),
    ?assertEqual(length(Keys), call(B, mnesia, table_info, [?TABLE, size])),
    Hash = call(A, inet_rdma_test_remote, hash_of_table, [?TABLE]),
    ?assertEqual(Hash, call(B, inet_rdma_test_remote, hash_of_table, [?TABLE])).

start(Names, Config) ->
    Directory = fun(Name) -> filename:join(proplists:get_value(priv_dir, Config), Name) end,
    inet_rdma_test_node:start_all([
        {Name, #{name => Name, args => ["-mnesia", "dir", "\"" ++ Directory(Name) ++ "\""]}}
     || Name <- Names
    ]).

create_table(Node, Copies) ->
    {atomic, ok} = call(Node, mnesia, create_table, [?TABLE, Copies]),
    ok.

write(Node, Key) ->
    {atomic, ok} = call(Node, inet_rdma_test_remote, write_to_table, [?TABLE, Key]).

keys(Node) ->
    lists:sort(call(Node, mnesia, dirty_all_keys, [?TABLE])).

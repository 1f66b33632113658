%% A cluster that is moved from inet_tcp to inet_rdma and back while it works: Mnesia on three nodes
%% under writes, each node stopped and started again with the other carrier.
-module(migration_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_node, [call/4, name/1, unique/1]).

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([moved_node_by_node_and_back/1]).

-define(RAM, inet_rdma_test_ram).
-define(DISC, inet_rdma_test_disc).
%% Writes that must have been acknowledged between two steps.
-define(PROGRESS, 200).

suite() ->
    [{timetrap, {minutes, 5}}, {ct_hooks, [inet_rdma_test_nodes]}].

all() ->
    [moved_node_by_node_and_back].

init_per_suite(Config) ->
    case code:lib_dir(mnesia) of
        {error, bad_name} -> inet_rdma_test_link:skip("Mnesia is not installed");
        _ -> inet_rdma_test_node:only_rdma(Config)
    end.

end_per_suite(_Config) ->
    ok.

%% No write that a transaction has acknowledged is lost, and no node is refused at any time.
moved_node_by_node_and_back(Config) ->
    Names = [unique(Prefix) || Prefix <- ["a", "b", "c"]],
    Nodes = [start(Name, "inet_tcp", Config) || Name <- Names],
    Members = [name(Node) || Node <- Nodes],
    ok = inet_rdma_test_node:mesh(Nodes),
    ok = call(hd(Nodes), mnesia, create_schema, [Members]),
    [ok = call(Node, mnesia, start, []) || Node <- Nodes],
    [
        {atomic, ok} = call(hd(Nodes), mnesia, create_table, [Table, [{Copies, Members}]])
     || {Table, Copies} <- [{?RAM, ram_copies}, {?DISC, disc_copies}]
    ],
    Start = lists:map(fun traffic/1, lists:zip(lists:zip(Nodes, Members), lists:seq(1, 3))),
    progress(Start),
    Steps = [{Position, Carrier} || Carrier <- ["inet_rdma", "inet_tcp"], Position <- [1, 2, 3]],
    Final = lists:foldl(fun(Step, Cluster) -> move(Step, Cluster, Config) end, Start, Steps),
    Acknowledged = lists:append([acknowledged(Member) || Member <- Final]),
    ct:pal("~b acknowledged writes over ~b moves", [length(Acknowledged), length(Steps)]),
    [
        begin
            Keys = gb_sets:from_list(call(Node, mnesia, dirty_all_keys, [Table])),
            ?assertEqual([], [Key || Key <- Acknowledged, not gb_sets:is_element(Key, Keys)])
        end
     || #{node := Node} <- Final, Table <- [?RAM, ?DISC]
    ],
    %% All copies are the same.
    [
        ?assertMatch(
            [_],
            lists:usort([
                call(Node, inet_rdma_test_remote, hash_of_table, [Table])
             || #{node := Node} <- Final
            ])
        )
     || Table <- [?RAM, ?DISC]
    ].

%% A member of the cluster: its node, carrier, and writer, with the writes that were acknowledged
%% before its last start.
traffic({{Node, Name}, Number}) ->
    {Writer, ok} = call(Node, inet_rdma_test_writer, start, [[?RAM, ?DISC], {Number, 0}]),
    #{
        node => Node,
        name => Name,
        carrier => "inet_tcp",
        writer => Writer,
        number => Number,
        moves => 0,
        before => []
    }.

move({Position, Carrier}, Cluster, Config) ->
    {Before, [Member | After]} = lists:split(Position - 1, Cluster),
    #{node := #{name := Name} = Node, writer := Writer, number := Number, moves := Moves} = Member,
    Others = Before ++ After,
    %% As an operator does it: the node's own work ends, then the node.
    Written = call(Node, inet_rdma_test_writer, stop, [Writer]),
    stopped = call(Node, mnesia, stop, []),
    _ =
        try
            call(Node, init, stop, [])
        catch
            _:_ -> ended
        end,
    ok = inet_rdma_test_node:await_exit(Node, 20000),
    [
        inet_rdma_test_wait:until({nodedown, Name}, 10000, fun() ->
            not lists:member(name(Node), call(Other, erlang, nodes, []))
        end)
     || #{node := Other} <- Others
    ],
    progress(Others),
    Restarted = start(Name, Carrier, Config),
    ok = inet_rdma_test_node:mesh([Restarted | [Other || #{node := Other} <- Others]]),
    ok = call(Restarted, mnesia, start, []),
    ok = call(Restarted, mnesia, wait_for_tables, [[?RAM, ?DISC], 60000]),
    {NewWriter, ok} = call(Restarted, inet_rdma_test_writer, start, [
        [?RAM, ?DISC], {Number, Moves + 1}
    ]),
    Moved = Member#{
        node := Restarted,
        carrier := Carrier,
        writer := NewWriter,
        moves := Moves + 1,
        before := Written ++ maps:get(before, Member)
    },
    Now = Before ++ [Moved | After],
    progress(Now),
    [fabrics(X, Y) || X <- Now, Y <- Now, X =/= Y],
    Now.

%% Links of two nodes that have both moved are over shared memory, all others over TCP.
fabrics(#{carrier := "inet_tcp"}, _) ->
    ok;
fabrics(#{node := X}, #{node := Y, carrier := "inet_rdma"}) ->
    inet_rdma_test_link:await(X, Y, shm);
fabrics(#{node := X}, #{node := Y}) ->
    inet_rdma_test_link:await(X, Y, tcp).

%% Each writer gets its writes acknowledged.
progress(Cluster) ->
    [
        begin
            Now = call(Node, inet_rdma_test_writer, count, [Writer]),
            inet_rdma_test_wait:until({progress_of, name(Node)}, 20000, fun() ->
                call(Node, inet_rdma_test_writer, count, [Writer]) >= Now + ?PROGRESS
            end)
        end
     || #{node := Node, writer := Writer} <- Cluster
    ].

acknowledged(#{node := Node, writer := Writer, before := Before}) ->
    call(Node, inet_rdma_test_writer, stop, [Writer]) ++ Before.

start(Name, Carrier, Config) ->
    Directory = filename:join(proplists:get_value(priv_dir, Config), Name),
    inet_rdma_test_node:start(Name, #{
        name => Name, carrier => Carrier, args => ["-mnesia", "dir", "\"" ++ Directory ++ "\""]
    }).

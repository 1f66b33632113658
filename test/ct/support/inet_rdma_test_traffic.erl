%% The checked traffic of inet_rdma_certify_traffic between two nodes under test, and what they log
%% meanwhile. Runs in the node that runs the tests.
-module(inet_rdma_test_traffic).

-export([start/2, start_small/2, stop/1, logged/1, figures_text/1, disturbances/1]).
-export_type([t/0]).

-type node_under_test() :: inet_rdma_test_node:t().
-opaque t() :: {[node_under_test()], inet_rdma_certify_traffic:t()}.

-define(CALLERS, 10).
%% Many nodes share a machine: their traffic pauses. Without a pause with
%% INET_RDMA_TEST_TRAFFIC=full.
-define(PAUSE_MS, 5).
-define(SMALL, #{bytes => {1, 20480}, burst => 50, pause_ms => 1}).
-define(LARGE, #{bytes => {67108864, 67108864}, burst => 1, pause_ms => 3000}).
%% Longer than all that the traffic itself waits for.
-define(END_MS, 180000).

%% With messages of 64 MiB.
-spec start(node_under_test(), node_under_test()) -> t().
start(A, B) -> start(A, B, [?SMALL, ?LARGE]).

%% The same without the large ones.
-spec start_small(node_under_test(), node_under_test()) -> t().
start_small(A, B) -> start(A, B, [?SMALL]).

start(A, B, Kinds) ->
    [ok = inet_rdma_test_node:call(Node, inet_rdma_test_log, install, []) || Node <- [A, B]],
    PauseMs =
        case os:getenv("INET_RDMA_TEST_TRAFFIC") of
            "full" -> 0;
            _ -> ?PAUSE_MS
        end,
    Paced = [Kind#{pause_ms := OwnMs + PauseMs} || #{pause_ms := OwnMs} = Kind <- Kinds],
    {[A, B], inet_rdma_certify_traffic:start([side(A), side(B)], ?CALLERS, PauseMs, Paced)}.

side(#{node := Name} = Node) ->
    {
        fun(Module, Function, Args) ->
            inet_rdma_test_node:call(Node, Module, Function, Args, ?END_MS)
        end,
        Name
    }.

%% Ends the traffic when all that was sent has been confirmed.
-spec stop(t()) -> inet_rdma_certify_traffic:figures().
stop({_, Traffic}) -> inet_rdma_certify_traffic:stop(Traffic).

%% What the nodes have logged since the start: why, where a link was disturbed.
-spec logged(t()) -> [{node(), [string()]}].
logged({Nodes, _}) ->
    [
        {Name, inet_rdma_test_node:call(Node, inet_rdma_test_log, lines, [])}
     || #{node := Name} = Node <- Nodes
    ].

-spec figures_text(inet_rdma_certify_traffic:figures()) -> unicode:chardata().
figures_text(Figures) -> inet_rdma_certify_traffic:text(Figures).

-spec disturbances(inet_rdma_certify_traffic:figures()) -> inet_rdma_certify_traffic:figures().
disturbances(Figures) -> inet_rdma_certify_traffic:disturbances(Figures).

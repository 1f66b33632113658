%% What the cases about links that outlive faults between hosts have in common. Runs in the node
%% that runs the tests.
-module(inet_rdma_test_lasting).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_node, [call/4, name/1]).

-export([
    nodes/3, pair/3, resumes/2, resumed/3, watch/2, no_nodedown/1, await_nodedown/1, undisturbed/1
]).
-export_type([watchers/0]).

-type node_under_test() :: inet_rdma_test_node:t().
-opaque watchers() :: [{node_under_test(), pid()}].

%% A node on each of the configuration's hosts, with these options of inet_rdma and this
%% net_ticktime.
-spec nodes([tuple()], [{atom(), term()}], pos_integer()) ->
    {inet_rdma_test_hosts:t(), [node_under_test()]}.
nodes(Config, Rdma, TickTime) ->
    Hosts = proplists:get_value(hosts, Config),
    Options = inet_rdma_test_paths:options(Config, #{
        rdma => Rdma, args => ["-kernel", "net_ticktime", integer_to_list(TickTime)]
    }),
    {Hosts,
        inet_rdma_test_node:start_all([
            {atom_to_list(Host), inet_rdma_test_hosts:options(Host, Hosts, Options)}
         || Host <- inet_rdma_test_hosts:hosts(Hosts)
        ])}.

%% Two of them, connected.
-spec pair([tuple()], [{atom(), term()}], pos_integer()) ->
    {inet_rdma_test_hosts:t(), [node_under_test()]}.
pair(Config, Rdma, TickTime) ->
    {_, [A, B]} = Made = nodes(Config, Rdma, TickTime),
    ok = inet_rdma_test_node:connect(A, B),
    Made.

%% How often the link has been resumed, as either node counts.
-spec resumes(node_under_test(), node_under_test()) -> [non_neg_integer()].
resumes(A, B) ->
    [maps:get(resumes, call(X, inet_rdma, info, [name(Y)])) || {X, Y} <- [{A, B}, {B, A}]].

%% Waits until both nodes count more than before.
-spec resumed(node_under_test(), node_under_test(), Before :: [non_neg_integer()]) -> true.
resumed(A, B, Before) ->
    inet_rdma_test_wait:until(resumed, 20000, fun() ->
        Now = resumes(A, B),
        lists:all(fun({Old, New}) -> New > Old end, lists:zip(Before, Now)) orelse Now
    end).

%% From now on both nodes note the end of the link between them.
-spec watch(node_under_test(), node_under_test()) -> watchers().
watch(A, B) ->
    [{X, inet_rdma_test_node:watch(X, Y)} || {X, Y} <- [{A, B}, {B, A}]].

-spec no_nodedown(watchers()) -> ok.
no_nodedown(Watchers) ->
    [
        ?assertEqual({name(Node), []}, {name(Node), seen(Node, Watcher)})
     || {Node, Watcher} <- Watchers
    ],
    ok.

%% Waits until all have noted it.
-spec await_nodedown(watchers()) -> ok.
await_nodedown(Watchers) ->
    [
        inet_rdma_test_wait:until({nodedown_at, name(Node)}, 20000, fun() ->
            seen(Node, Watcher) =/= []
        end)
     || {Node, Watcher} <- Watchers
    ],
    ok.

seen(Node, Watcher) -> call(Node, inet_rdma_test_watch, seen, [Watcher]).

%% Ends the traffic when all messages have been confirmed: none was lost, no call failed, no node
%% went.
-spec undisturbed(inet_rdma_test_traffic:t()) -> ok.
undisturbed(Traffic) ->
    Figures = inet_rdma_test_traffic:stop(Traffic),
    ct:pal("~ts", [inet_rdma_test_traffic:figures_text(Figures)]),
    Disturbances = inet_rdma_test_traffic:disturbances(Figures),
    _ =
        case Disturbances =/= #{} of
            true -> ct:pal("~p", [inet_rdma_test_traffic:logged(Traffic)]);
            false -> ok
        end,
    ?assertEqual(#{}, Disturbances).

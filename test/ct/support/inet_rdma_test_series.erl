%% What the cases about monitoring see of a node: the series of inet_rdma_prometheus_collector, the
%% table of inet_rdma:i/0 and the events of telemetry. Runs in the node that runs the tests.
-module(inet_rdma_test_series).

-export([three_nodes/0, three/0, collected/1, all_of/2, metrics/3, value/3, path/2, path_states/2]).
-export([table/1, offered/0, fake/1, told/2, documented/2]).

-define(COLLECTOR, inet_rdma_prometheus_collector).

%% A node with a link that has moved, the peer of that, and the peer of a link that stayed on TCP.
three_nodes() ->
    [A, Moved, Tcp] = three(),
    [ok = inet_rdma_test_link:connect(A, Peer) || Peer <- [Moved, Tcp]],
    ok = inet_rdma_test_link:await(A, Moved, shm),
    {A, Moved, Tcp}.

%% The same without links. No node connects another one by itself.
three() ->
    Alone = inet_rdma_test_node:alone(#{args => []}),
    inet_rdma_test_node:start_all([
        {"a", Alone}, {"moved", Alone}, {"plain", Alone#{carrier => "inet_tcp"}}
    ]).

%% The families of series of a node.
collected(Node) ->
    case call(Node, code, is_loaded, [prometheus_model_helpers]) of
        false -> ok = call(Node, inet_rdma_test_metrics, use_stand_in, []);
        _ -> ok
    end,
    call(Node, inet_rdma_test_metrics, collect, [?COLLECTOR]).

all_of(Name, Families) ->
    {Name, _, Metrics} = lists:keyfind(Name, 1, Families),
    Metrics.

%% The series of a family that name the peer.
metrics(Name, Families, Peer) ->
    Text = atom_to_binary(name(Peer)),
    [Metric || {#{<<"peer">> := Is}, _} = Metric <- all_of(Name, Families), Is =:= Text].

value(Name, Families, Peer) ->
    [{_, Value}] = metrics(Name, Families, Peer),
    Value.

%% The values of the series that names the path, by path.
path(Families, Peer) ->
    maps:from_list([
        {Path, Value}
     || {#{<<"path">> := Path}, Value} <- metrics(<<"inet_rdma_link_path">>, Families, Peer)
    ]).

%% Those states of the link's path whose series is 1; of all states there is one.
path_states(Families, Peer) ->
    Values = [
        {binary_to_atom(State), Value}
     || {#{<<"state">> := State}, Value} <- metrics(<<"inet_rdma_link_path_state">>, Families, Peer)
    ],
    [carried, suspected, suspended] = lists:sort([State || {State, _} <- Values]),
    [State || {State, 1} <- Values].

%% The lines that inet_rdma:i/0 prints.
table(Node) ->
    string:lexemes(call(Node, inet_rdma_test_metrics, printed, [inet_rdma, i, []]), "\n").

%% What the pattern's group matches in a page of docs/.
documented(File, Pattern) ->
    Page = filename:join([filename:dirname(code:which(?MODULE)), "..", "..", "..", "docs", File]),
    {ok, Text} = file:read_file(Page),
    {match, Found} = re:run(Text, Pattern, [multiline, global, {capture, [1], binary}]),
    lists:append(Found).

%% The events of one kind that telemetry got: measurements and metadata, oldest first.
told(Node, Kind) ->
    [
        {Measurements, Metadata}
     || {[inet_rdma, link, Is], Measurements, Metadata} <-
            call(Node, inet_rdma_test_events, executed, []),
        Is =:= Kind
    ].

%% A peer of inet_rdma_test_peer that takes part in the settlement, and its name.
offered() -> #{offer => inet_rdma_test_peer:offer()}.

fake(Name) -> list_to_atom(inet_rdma_test_node:unique(Name) ++ "@localhost").

name(#{node := Node}) -> Node.

call(Node, Module, Function, Arguments) ->
    inet_rdma_test_node:call(Node, Module, Function, Arguments).

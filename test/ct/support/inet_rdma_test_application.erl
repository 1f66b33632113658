%% An application that connects to a node when it stops. Runs in the nodes under test.
-module(inet_rdma_test_application).
-behaviour(application).

-export([start_it/1, start/2, stop/1, init/1]).

%% Starts the application; inet_rdma is not loaded as one, so that a connect asks for it.
-spec start_it(node()) -> ok.
start_it(Node) ->
    _ = application:unload(inet_rdma),
    ok = application:load(
        {application, ?MODULE, [{mod, {?MODULE, Node}}, {vsn, "1"}, {modules, []}]}
    ),
    application:start(?MODULE).

start(_Type, Node) ->
    {ok, Supervisor} = supervisor:start_link(?MODULE, []),
    {ok, Supervisor, Node}.

init([]) -> {ok, {#{}, []}}.

stop(Node) ->
    true = net_kernel:connect_node(Node).

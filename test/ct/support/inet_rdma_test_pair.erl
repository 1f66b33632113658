%% Two nodes that are not distributed, and the two ends of a socket between them: each end is a
%% process in one of the nodes, which does what the case tells it.
%%
%% It is a hook of Common Test, too: in a suite that names it in suite/0 a group has the fabric of
%% its name, and each case has the nodes.
-module(inet_rdma_test_pair).

-export([groups/1, init/2, pre_init_per_group/4, pre_init_per_testcase/4]).
-export([nodes/1, ends/1, ends/2, join/4, listener/2, listen/3, connect/3, connect/4]).
-export([do/3, start/3, result/1, state/1, end_of/1, call/4]).
-export([transfer/3, start_transfer/3, await_transfer/1, split_transfer/3]).

%% auto is shared memory here: both nodes are of this host.
groups(Cases) -> [{Fabric, [], Cases} || Fabric <- [auto, tcp]].

init(_Id, _Options) -> {ok, none}.

pre_init_per_group(_Suite, Fabric, Config, State) -> {[{fabric, Fabric} | Config], State}.

pre_init_per_testcase(_Suite, _Case, Config, State) -> {?MODULE:nodes(Config), State}.

%% Adds the nodes a and b to a case's configuration, which may name the fabric of their streams.
nodes(Config) ->
    Options =
        case proplists:get_value(fabric, Config, auto) of
            auto -> #{name => none};
            Fabric -> #{name => none, rdma => [{fabric, Fabric}]}
        end,
    [A, B] = inet_rdma_test_node:start_all([{"a", Options}, {"b", Options}]),
    [{a, A}, {b, B} | Config].

%% A connected pair: the first end in node a, the second, which accepted, in node b.
ends(Config) -> ends(Config, []).

ends(Config, Options) ->
    {Port, Listening} = listener(Config, Options),
    join(Config, Port, Listening, Options).

join(Config, Port, {B, _} = Listening, Options) ->
    {ok, Connected} = connect(Config, Port, Options),
    {ok, Accepted} = do(Listening, accept_end, []),
    {{proplists:get_value(a, Config), Connected}, {B, Accepted}}.

listener(Config, Options) ->
    {ok, Port, Pid} = listen(Config, 0, Options),
    {Port, {proplists:get_value(b, Config), Pid}}.

listen(Config, Port, Options) ->
    call(proplists:get_value(b, Config), inet_rdma_test_end, listen, [Port, Options]).

connect(Config, Port, Options) -> connect(Config, "localhost", Port, Options).

connect(Config, Host, Port, Options) ->
    call(proplists:get_value(a, Config), inet_rdma_test_end, connect, [Host, Port, Options]).

%% Has the end call a function of inet_rdma_test_end. Returns its result.
do({Node, Pid}, Function, Args) ->
    case call(Node, inet_rdma_test_end, do, [Pid, Function, Args]) of
        {heir, Heir} -> {Node, Heir};
        Result -> Result
    end.

%% As do/3, without waiting for the result: result/1 gives it.
start(End, Function, Args) ->
    spawn_monitor(fun() -> exit({result, do(End, Function, Args)}) end).

result({Pid, Ref}) ->
    receive
        {'DOWN', Ref, process, Pid, Reason} ->
            {result, Result} = Reason,
            Result
    end.

state({Pid, _}) ->
    case is_process_alive(Pid) of
        true -> running;
        false -> ended
    end.

end_of(End) -> do(End, recv, [0, 20000]).

transfer(X, Y, Size) -> await_transfer(start_transfer(X, Y, Size)).

start_transfer(X, Y, Size) -> {start(X, send_made, [Size]), start(Y, collect_hash, [Size])}.

await_transfer({Sending, Reading}) ->
    {ok, Size, Hash} = result(Sending),
    case result(Reading) of
        {Size, Hash} -> ok;
        Other -> {different, {Size, Hash}, Other}
    end.

split_transfer(X, Y, Seed) ->
    Sending = start(X, send_split, [Seed]),
    Reading = start(Y, collect_split, [Seed]),
    {ok, Size, Hash} = result(Sending),
    case result(Reading) of
        {Size, Hash} -> ok;
        Other -> {different, {Size, Hash}, Other}
    end.

call(Node, Module, Function, Args) -> inet_rdma_test_node:call(Node, Module, Function, Args).

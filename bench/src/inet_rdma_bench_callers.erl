%% Processes that call another node in tight loops while the connection to it is cut, and count what
%% they see of that.
-module(inet_rdma_bench_callers).

-export([start/2, counts/1]).
-export_type([t/0]).

%% After a call that failed, so that the count of failed calls is of those that a cut has hit.
-define(RETRY_MS, 100).
%% Nodes that this node has lost; then of each caller three numbers, which it alone writes.
-define(NODEDOWNS, 1).
-define(SUCCEEDED, 1).
-define(FAILED, 2).
-define(LONGEST_US, 3).
-define(WIDTH, 3).

-opaque t() :: {Callers :: non_neg_integer(), atomics:atomics_ref()}.

%% Some callers of that node; none: this node's nodedowns alone are counted.
-spec start(node(), non_neg_integer()) -> t().
start(Peer, Callers) ->
    Counts = atomics:new(1 + ?WIDTH * Callers, []),
    Parent = self(),
    Watcher = spawn_link(fun() ->
        ok = net_kernel:monitor_nodes(true),
        Parent ! {self(), watches},
        watch(Counts)
    end),
    receive
        {Watcher, watches} -> ok
    end,
    _ = [spawn_link(fun() -> call(Peer, Counts, at(Caller)) end) || Caller <- callers(Callers)],
    {Callers, Counts}.

%% `succeeded` has a number for each caller. A call's time ends with its result, whatever that is.
-spec counts(t()) -> #{atom() => non_neg_integer() | [non_neg_integer()]}.
counts({Callers, Counts}) ->
    Of = fun(What) -> [atomics:get(Counts, at(Caller) + What) || Caller <- callers(Callers)] end,
    #{
        nodedowns => atomics:get(Counts, ?NODEDOWNS),
        succeeded => Of(?SUCCEEDED),
        failed => lists:sum(Of(?FAILED)),
        longest_us => lists:max([0 | Of(?LONGEST_US)])
    }.

callers(Callers) -> lists:seq(1, Callers).

at(Caller) -> ?NODEDOWNS + ?WIDTH * (Caller - 1).

watch(Counts) ->
    receive
        {nodedown, _} -> atomics:add(Counts, ?NODEDOWNS, 1);
        {nodeup, _} -> ok
    end,
    watch(Counts).

call(Peer, Counts, At) ->
    BeganUs = erlang:monotonic_time(microsecond),
    Result = rpc:call(Peer, erlang, node, []),
    Us = erlang:monotonic_time(microsecond) - BeganUs,
    atomics:put(Counts, At + ?LONGEST_US, max(Us, atomics:get(Counts, At + ?LONGEST_US))),
    case Result of
        Peer ->
            atomics:add(Counts, At + ?SUCCEEDED, 1);
        {badrpc, _} ->
            atomics:add(Counts, At + ?FAILED, 1),
            timer:sleep(?RETRY_MS)
    end,
    call(Peer, Counts, At).

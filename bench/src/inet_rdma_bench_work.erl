%% The workers: what the nodes of a benchmark say to each other.
%%
%% A workload runs through three phases, set by the boss of each node: warm (from the start), measure, stop.
%% Workers only count; the boss takes time and count together, twice, and run.py divides. At `stop` every
%% worker ends by itself: one that finds an answer missing or wrong crashes, and the measurement is void.
-module(inet_rdma_bench_work).

-export([setup/0, start/2, enter/1, counts/0, percentiles/1]).
-export([echo/1, pong/0, sink/2]).

-define(OPS, 1).
-define(DELIVERED, 2).
%% Round-trip times kept, 8 bytes each: a plain array, so that keeping them makes no garbage.
-define(SAMPLES, 2000000).
%% Messages a sender sends between two looks at the phase, and the bytes that end such a batch earlier.
-define(BATCH, 32).
-define(BATCH_BYTES, 65536).

-type workload() :: rpc | pingpong | latency | oneway | hol | idle.
-type samples() :: none | {counters:counters_ref(), counters:counters_ref()}.

-spec setup() -> ok.
setup() ->
    persistent_term:put({?MODULE, counts}, counters:new(2, [write_concurrency])),
    persistent_term:put({?MODULE, phase}, atomics:new(1, [])).

-spec enter(measure | stop) -> ok.
enter(measure) -> atomics:put(phase(), 1, 1);
enter(stop) -> atomics:put(phase(), 1, 2).

%% Operations completed here by those who asked, and one-way messages received here.
-spec counts() -> {non_neg_integer(), non_neg_integer()}.
counts() ->
    Counts = count(),
    {counters:get(Counts, ?OPS), counters:get(Counts, ?DELIVERED)}.

%% Arguments: `nodes`, the other nodes; `size` in bytes; and how many processes: `procs` (rpc, pingpong) or
%% `senders` (oneway, hol). Nodes with nothing to start get 0 of them.
-spec start(workload(), map()) -> {[pid()], samples()}.
start(rpc, #{nodes := Nodes, procs := Procs, size := Size}) ->
    Body = payload(Size),
    {[spawn_link(fun() -> rpc(Own, Own, Body, count(), phase()) end) || Own <- spread(Procs, Nodes)], none};
start(pingpong, #{nodes := Nodes, procs := Procs, size := Size}) ->
    {[pinger(Node, Size, none) || [Node | _] <- spread(Procs, Nodes)], none};
start(latency, #{nodes := [Node | _], procs := Procs, size := Size}) ->
    Samples = {counters:new(?SAMPLES, [atomics]), counters:new(1, [atomics])},
    {[pinger(Node, Size, Samples) || _ <- lists:seq(1, Procs)], Samples};
start(oneway, #{nodes := [Node | _], senders := Senders, size := Size}) ->
    {[sender(Node, Size) || _ <- lists:seq(1, Senders)], none};
start(hol, #{nodes := [Node | _], procs := Procs, bulk := Bulk, senders := Senders} = Arguments) ->
    {Pingers, Samples} = start(latency, Arguments#{nodes := [Node], procs := Procs}),
    {Bulks, none} = start(oneway, #{nodes => [Node], senders => Senders, size => Bulk}),
    {Pingers ++ Bulks, Samples};
start(idle, #{}) ->
    {[], none}.

%% rpc: each process calls the other nodes in turn, every process from another starting point.
rpc([], All, Body, Count, Phase) ->
    case atomics:get(Phase, 1) of
        2 -> ok;
        _ -> rpc(All, All, Body, Count, Phase)
    end;
rpc([Node | Rest], All, Body, Count, Phase) ->
    call(Node, Body),
    counters:add(Count, ?OPS, 1),
    rpc(Rest, All, Body, Count, Phase).

call(Node, <<>>) -> Node = rpc:call(Node, erlang, node, []);
call(Node, Body) -> Body = rpc:call(Node, ?MODULE, echo, [Body]).

-spec echo(Body) -> Body.
echo(Body) -> Body.

%% pingpong, latency: one message there, one back.
pinger(Node, Size, Samples) ->
    Body = payload(Size),
    spawn_link(fun() ->
        Ponger = spawn_link(Node, ?MODULE, pong, []),
        ping(Ponger, Body, Samples, count(), phase())
    end).

ping(Ponger, Body, Samples, Count, Phase) ->
    Started = erlang:monotonic_time(nanosecond),
    Ponger ! {self(), Body},
    receive
        {Ponger, Body} -> ok
    end,
    counters:add(Count, ?OPS, 1),
    case atomics:get(Phase, 1) of
        0 ->
            ping(Ponger, Body, Samples, Count, Phase);
        1 ->
            keep(Samples, Started),
            ping(Ponger, Body, Samples, Count, Phase);
        2 ->
            %% The ponger must not outlive the last pinger; a normal exit would not take it along.
            unlink(Ponger),
            exit(Ponger, kill)
    end.

-spec pong() -> no_return().
pong() ->
    receive
        {From, Body} -> From ! {self(), Body}
    end,
    pong().

keep(none, _Started) ->
    ok;
keep({Times, Used}, Started) ->
    Elapsed = erlang:monotonic_time(nanosecond) - Started,
    Index = counters:get(Used, 1) + 1,
    case Index =< ?SAMPLES of
        true ->
            counters:put(Times, Index, Elapsed),
            counters:put(Used, 1, Index);
        false ->
            ok
    end.

%% oneway, hol: messages in one direction. Nothing but the VM's own busy limit holds a sender back. Only what
%% the sink took out of its mailbox counts; at the end the sink must have seen exactly what was sent.
sender(Node, Size) ->
    Body = payload(Size),
    Batch = max(1, min(?BATCH, ?BATCH_BYTES div max(1, Size))),
    spawn_link(fun() ->
        Options = [link, {message_queue_data, off_heap}],
        Sink = spawn_opt(Node, ?MODULE, sink, [Size, self()], Options),
        send(Sink, Body, Batch, 0, phase())
    end).

send(Sink, Body, Batch, Sent, Phase) ->
    case atomics:get(Phase, 1) of
        2 ->
            Sink ! {done, self()},
            receive
                {Sink, Received} -> Sent = Received
            end;
        _ ->
            burst(Sink, Body, Batch),
            send(Sink, Body, Batch, Sent + Batch, Phase)
    end.

burst(_Sink, _Body, 0) ->
    ok;
burst(Sink, Body, Left) ->
    Sink ! Body,
    burst(Sink, Body, Left - 1).

-spec sink(non_neg_integer(), pid()) -> {pid(), non_neg_integer()}.
sink(Size, Sender) ->
    sink(Size, Sender, 0, count()).

sink(Size, Sender, Received, Count) ->
    receive
        Body when byte_size(Body) =:= Size ->
            counters:add(Count, ?DELIVERED, 1),
            sink(Size, Sender, Received + 1, Count);
        {done, Sender} ->
            Sender ! {self(), Received}
    end.

%% Nearest-rank percentiles of the kept times, in nanoseconds.
-spec percentiles(samples()) -> map().
percentiles(none) ->
    #{};
percentiles({Times, Used}) ->
    case counters:get(Used, 1) of
        0 ->
            #{samples => 0};
        Total ->
            Sorted = list_to_tuple(lists:sort([counters:get(Times, I) || I <- lists:seq(1, Total)])),
            At = fun(PerMille) -> element(max(1, (Total * PerMille + 999) div 1000), Sorted) end,
            #{samples => Total, min_ns => element(1, Sorted), max_ns => element(Total, Sorted),
              p50_ns => At(500), p90_ns => At(900), p99_ns => At(990), p999_ns => At(999)}
    end.

%% Every process gets the list of nodes turned by its own number.
spread(Procs, Nodes) ->
    Turn = fun(N) ->
        {Front, Back} = lists:split(N rem length(Nodes), Nodes),
        Back ++ Front
    end,
    [Turn(N) || N <- lists:seq(0, Procs - 1)].

payload(Size) -> binary:copy(<<"x">>, Size).

count() -> persistent_term:get({?MODULE, counts}).

phase() -> persistent_term:get({?MODULE, phase}).

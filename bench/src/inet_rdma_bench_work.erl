%% The workers: what the nodes of a benchmark say to each other.
%%
%% A workload runs through three phases, set by the boss of each node: warm (from the start),
%% measure, stop. Workers only count; the boss takes time and count together, twice, and run.py
%% divides. At `stop` every worker ends by itself: one that finds an answer missing or wrong
%% crashes, and the measurement is void.
-module(inet_rdma_bench_work).

-export([setup/0, start/2, enter/1, counts/0, percentiles/1]).
-export([echo/1, pong/0, sink/2, answer/4]).

-define(OPS, 1).
-define(DELIVERED, 2).
-define(SPINS, 3).
%% Bytes of different payloads: more than the compressor remembers.
-define(PAYLOAD_BYTES, 1048576).
%% Round-trip times kept, 8 bytes each: a plain array, so that keeping them makes no garbage.
-define(SAMPLES, 2000000).
%% Messages a sender sends between two looks at the phase, and the bytes that end such a batch
%% earlier.
-define(BATCH, 32).
-define(BATCH_BYTES, 65536).
%% Calls that a spinning process makes between two looks at the phase: less than a time slice of the
%% scheduler.
-define(SPIN_CALLS, 1000).

-type workload() :: rpc | pingpong | latency | oneway | hol | idle.
-type samples() :: none | {counters:counters_ref(), atomics:atomics_ref()}.

-spec setup() -> ok.
setup() ->
    persistent_term:put({?MODULE, counts}, counters:new(3, [write_concurrency])),
    persistent_term:put({?MODULE, phase}, atomics:new(1, [])).

-spec enter(measure | stop) -> ok.
enter(measure) -> atomics:put(phase(), 1, 1);
enter(stop) -> atomics:put(phase(), 1, 2).

%% `ops`: operations completed here by the processes that asked; `delivered`: one-way messages
%% received here; `calls`: function calls made here by spinning processes.
-spec counts() -> #{ops | delivered | calls => non_neg_integer()}.
counts() ->
    Counts = count(),
    #{
        ops => counters:get(Counts, ?OPS),
        delivered => counters:get(Counts, ?DELIVERED),
        calls => ?SPIN_CALLS * counters:get(Counts, ?SPINS)
    }.

%% Arguments: `nodes`, the other nodes; `size` in bytes; and how many processes: `procs` (rpc,
%% pingpong) or `senders` (oneway, hol). Nodes with nothing to start get 0 of them. `busy`: that
%% many processes spin beside them at normal priority; unless it is 0 (the default) the measured
%% processes, here and at the peers, run at priority high.
-spec start(workload(), map()) -> {[pid()], samples()}.
start(Workload, Arguments) ->
    Busy = maps:get(busy, Arguments, 0),
    Priority =
        case Busy of
            0 -> normal;
            _ -> high
        end,
    {Workers, Samples} = measured(Workload, Arguments, Priority),
    {
        Workers ++ [spawn_link(fun() -> spin(count(), phase()) end) || _ <- lists:seq(1, Busy)],
        Samples
    }.

measured(rpc, #{nodes := Nodes, procs := Procs, size := Size}, Priority) ->
    Body = payload(Size),
    Caller = fun(Own) ->
        worker(fun() -> rpc(Own, Own, Body, Priority, count(), phase()) end, Priority)
    end,
    {[Caller(Own) || Own <- spread(Procs, Nodes)], none};
measured(pingpong, #{nodes := Nodes, procs := Procs, size := Size}, Priority) ->
    {[pinger(Node, Size, none, Priority) || [Node | _] <- spread(Procs, Nodes)], none};
measured(latency, #{nodes := [Node | _], procs := Procs, size := Size}, Priority) ->
    Samples = {counters:new(?SAMPLES, [atomics]), atomics:new(1, [])},
    {[pinger(Node, Size, Samples, Priority) || _ <- lists:seq(1, Procs)], Samples};
measured(oneway, #{nodes := [Node | _], senders := Senders, size := Size}, Priority) ->
    {[sender(Node, Size, Priority) || _ <- lists:seq(1, Senders)], none};
measured(
    hol,
    #{nodes := [Node | _], procs := Procs, bulk := Bulk, senders := Senders} = Arguments,
    Priority
) ->
    {Pingers, Samples} = measured(latency, Arguments#{nodes := [Node], procs := Procs}, Priority),
    {Bulks, none} = measured(
        oneway, #{nodes => [Node], senders => Senders, size => Bulk}, Priority
    ),
    {Pingers ++ Bulks, Samples};
measured(idle, #{}, _Priority) ->
    {[], none}.

worker(Work, Priority) ->
    spawn_opt(Work, [link, {priority, Priority}]).

%% busy: cheap calls without end and without a pause, until the phase says stop.
spin(Count, Phase) ->
    spin_calls(?SPIN_CALLS),
    counters:add(Count, ?SPINS, 1),
    case atomics:get(Phase, 1) of
        2 -> ok;
        _ -> spin(Count, Phase)
    end.

spin_calls(0) -> ok;
spin_calls(Left) -> spin_calls(Left - 1).

%% rpc: each process calls the other nodes in turn, every process from another starting point.
rpc([], All, Body, Priority, Count, Phase) ->
    case atomics:get(Phase, 1) of
        2 -> ok;
        _ -> rpc(All, All, Body, Priority, Count, Phase)
    end;
rpc([Node | Rest], All, Body, Priority, Count, Phase) ->
    call(Node, Body, Priority),
    counters:add(Count, ?OPS, 1),
    rpc(Rest, All, Body, Priority, Count, Phase).

call(Node, <<>>, Priority) -> Node = call(Node, erlang, node, [], Priority);
call(Node, Body, Priority) -> Body = call(Node, ?MODULE, echo, [Body], Priority).

%% rpc:call/4 runs the function in a process that it spawns on the other node, at normal priority:
%% there the call would wait for all spinning processes, whatever the carrier. So the same exchange,
%% one spawn request there and the reason of the exit back, with a process of priority high.
call(Node, Module, Function, Arguments, normal) ->
    rpc:call(Node, Module, Function, Arguments);
call(Node, Module, Function, Arguments, high) ->
    Result = make_ref(),
    Options = [monitor, {reply, error_only}, {priority, high}],
    Request = spawn_request(Node, ?MODULE, answer, [Result, Module, Function, Arguments], Options),
    receive
        {'DOWN', Request, process, _Pid, {Result, Value}} -> Value;
        {'DOWN', Request, process, _Pid, Reason} -> {badrpc, Reason};
        {spawn_reply, Request, error, Reason} -> {badrpc, Reason}
    end.

-spec answer(reference(), module(), atom(), [term()]) -> no_return().
answer(Result, Module, Function, Arguments) ->
    exit({Result, apply(Module, Function, Arguments)}).

-spec echo(Body) -> Body.
echo(Body) -> Body.

%% pingpong, latency: one message there, one back.
pinger(Node, Size, Samples, Priority) ->
    Body = payload(Size),
    Work = fun() ->
        Ponger = spawn_opt(Node, ?MODULE, pong, [], [link, {priority, Priority}]),
        ping(Ponger, Body, Samples, count(), phase())
    end,
    worker(Work, Priority).

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
    %% Several pairs share the array.
    case atomics:add_get(Used, 1, 1) of
        Index when Index =< ?SAMPLES -> counters:put(Times, Index, Elapsed);
        _ -> ok
    end.

%% oneway, hol: messages in one direction. Nothing but the VM's own busy limit holds a sender back.
%% Only what the sink took out of its mailbox counts; at the end the sink must have seen exactly
%% what was sent.
sender(Node, Size, Priority) ->
    Bodies = payloads(Size, init:get_argument(bench_payload)),
    Batch = max(1, min(?BATCH, ?BATCH_BYTES div max(1, Size))),
    Work = fun() ->
        Options = [link, {message_queue_data, off_heap}, {priority, Priority}],
        Sink = spawn_opt(Node, ?MODULE, sink, [Size, self()], Options),
        case inet_rdma_bench_gen_rpc:is_used() of
            true -> inet_rdma_bench_gen_rpc:send(Node, Sink, element(1, Bodies), phase());
            false -> send(Sink, Bodies, Batch, 0, phase())
        end
    end,
    worker(Work, Priority).

send(Sink, Bodies, Batch, Sent, Phase) ->
    case atomics:get(Phase, 1) of
        2 ->
            Sink ! {done, self()},
            receive
                {Sink, Received} -> Sent = Received
            end;
        _ ->
            burst(Sink, Bodies, Sent rem tuple_size(Bodies), Batch),
            send(Sink, Bodies, Batch, Sent + Batch, Phase)
    end.

burst(_Sink, _Bodies, _At, 0) ->
    ok;
burst(Sink, Bodies, At, Left) when At < tuple_size(Bodies) ->
    Sink ! element(At + 1, Bodies),
    burst(Sink, Bodies, At + 1, Left - 1);
burst(Sink, Bodies, _Behind, Left) ->
    burst(Sink, Bodies, 0, Left).

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
    case min(?SAMPLES, atomics:get(Used, 1)) of
        0 ->
            #{samples => 0};
        Total ->
            Sorted = list_to_tuple(
                lists:sort([counters:get(Times, I) || I <- lists:seq(1, Total)])
            ),
            At = fun(PerMille) -> element(max(1, (Total * PerMille + 999) div 1000), Sorted) end,
            #{
                samples => Total,
                min_ns => element(1, Sorted),
                max_ns => element(Total, Sorted),
                p50_ns => At(500),
                p90_ns => At(900),
                p99_ns => At(990),
                p999_ns => At(999)
            }
    end.

%% Every process gets the list of nodes turned by its own number.
spread(Procs, Nodes) ->
    Turn = fun(N) ->
        {Front, Back} = lists:split(N rem length(Nodes), Nodes),
        Back ++ Front
    end,
    [Turn(N) || N <- lists:seq(0, Procs - 1)].

payload(Size) -> binary:copy(<<"x">>, Size).

%% What a sender sends in turn. With the flag `-bench_payload json' or `random', for links that
%% compress: different ones, more bytes than the compressor remembers.
payloads(
    Size,
    {ok, [[Kind]]}
) ->
    list_to_tuple([
        of_kind(Kind, Size)
     || _ <- lists:seq(1, max(4, ?PAYLOAD_BYTES div max(1, Size)))
    ]);
payloads(Size, error) ->
    {payload(Size)}.

of_kind("random", Size) -> rand:bytes(Size);
of_kind("json", Size) -> json(Size, []).

json(Left, Texts) when Left =< 0 ->
    All = iolist_to_binary(lists:reverse(Texts)),
    binary:part(All, 0, byte_size(All) + Left);
json(Left, Texts) ->
    Text = io_lib:format(
        "{\"id\":~b,\"user\":\"u~b\",\"state\":\"~s\",\"amount\":~.2f,\"at\":\"2026-11-~2..0bT~2..0b:~2..0bZ\"},",
        [
            rand:uniform(1 bsl 31),
            rand:uniform(50000),
            lists:nth(rand:uniform(3), ["open", "paid", "sent"]),
            rand:uniform() * 1000,
            rand:uniform(30),
            rand:uniform(23),
            rand:uniform(59)
        ]
    ),
    json(Left - iolist_size(Text), [Text | Texts]).

count() -> persistent_term:get({?MODULE, counts}).

phase() -> persistent_term:get({?MODULE, phase}).

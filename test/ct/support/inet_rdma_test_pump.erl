%% Sends large messages without a pause, and pings beside them. Runs in the nodes under test.
-module(inet_rdma_test_pump).

-export([start/3, stop/1, pings/2, pour/1]).

-define(TIMEOUT_MS, 60000).

%% Keeps a number of messages of a size under way to the other node.
-spec start(node(), pos_integer(), pos_integer()) -> pid().
start(Node, Bytes, UnderWay) ->
    spawn(fun() ->
        Sink = spawn_link(Node, inet_rdma_test_data, sink, [self()]),
        Payload = inet_rdma_test_data:make(Bytes),
        Wanted = {Bytes, erlang:md5(Payload)},
        [send(Sink, Payload) || _ <- lists:seq(1, UnderWay)],
        loop(Sink, Payload, Wanted, 0)
    end).

send(Sink, Payload) ->
    Sink ! {self(), make_ref(), Payload}.

loop(Sink, Payload, Wanted, Arrived) ->
    receive
        {stop, From, Ref} ->
            From ! {Ref, Arrived};
        {Answer, Result} when is_reference(Answer) ->
            Wanted = Result,
            send(Sink, Payload),
            loop(Sink, Payload, Wanted, Arrived + 1)
    end.

%% Stops; how many have arrived whole.
-spec stop(pid()) -> non_neg_integer().
stop(Pump) ->
    Ref = monitor(process, Pump),
    Pump ! {stop, self(), Ref},
    receive
        {Ref, Arrived} ->
            demonitor(Ref, [flush]),
            Arrived;
        {'DOWN', Ref, process, Pump, Reason} ->
            error({pump_broke, Reason})
    after ?TIMEOUT_MS -> error(pump_does_not_answer)
    end.

%% Pings the node again and again for DurationMs. Returns the milliseconds of each ping.
-spec pings(node(), non_neg_integer()) -> [non_neg_integer()].
pings(Node, DurationMs) ->
    pings(Node, erlang:monotonic_time(millisecond) + DurationMs, []).

pings(Node, DeadlineMs, Took) ->
    StartMs = erlang:monotonic_time(millisecond),
    pong = net_adm:ping(Node),
    case erlang:monotonic_time(millisecond) of
        NowMs when NowMs >= DeadlineMs -> [NowMs - StartMs | Took];
        NowMs -> pings(Node, DeadlineMs, [NowMs - StartMs | Took])
    end.

%% Sends 100 KB each millisecond to a name that no process has, until the link ends.
-spec pour(node()) -> pid().
pour(Node) ->
    spawn(fun() -> pour(Node, binary:copy(<<0>>, 100000)) end).

pour(Node, Payload) ->
    _ = erlang:send({nobody, Node}, Payload, [noconnect]),
    receive
    after 1 -> ok
    end,
    case lists:member(Node, nodes(connected)) of
        true -> pour(Node, Payload);
        false -> ok
    end.

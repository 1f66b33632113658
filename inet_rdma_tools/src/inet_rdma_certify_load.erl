%% Work between two nodes that is counted and timed. Runs in the nodes of a certificate.
%%
%% Internal: use inet_rdma_certify:run/1.
-module(inet_rdma_certify_load).

-export([rpc/3, round_trips/2, one_way/3, echo/3, held/0, cut/1, stop_for/1, end_hard/0, watch/1, seen/1, watched/1]).
-export([pong/0, sink/0, echoer/0]).

%% Messages that a sender sends between two looks at the clock.
-define(BATCH, 32).
-define(PATIENCE_MS, 30000).

%% Calls a second of this many processes.
-spec rpc(node(), pos_integer(), pos_integer()) -> float().
rpc(Peer, Processes, Ms) ->
    StartUs = now_us(),
    DeadlineUs = StartUs + 1000 * Ms,
    Self = self(),
    Callers = [spawn_monitor(fun() -> Self ! {self(), calls(Peer, DeadlineUs, 0)} end) || _ <- lists:seq(1, Processes)],
    Calls = [receive
                 {Pid, Count} -> demonitor(Ref, [flush]), Count;
                 {'DOWN', Ref, process, Pid, Reason} -> error({a_caller_ended, Reason})
             end || {Pid, Ref} <- Callers],
    per_second(lists:sum(Calls), StartUs).

calls(Peer, DeadlineUs, Count) ->
    case now_us() >= DeadlineUs of
        true -> Count;
        false ->
            Peer = rpc:call(Peer, erlang, node, []),
            calls(Peer, DeadlineUs, Count + 1)
    end.

%% Round trips of one pair of processes, in microseconds.
-spec round_trips(node(), pos_integer()) -> #{p50 := float(), p99 := float(), count := pos_integer()}.
round_trips(Peer, Ms) ->
    Pong = spawn(Peer, ?MODULE, pong, []),
    Ref = monitor(process, Pong),
    Times = round_trips(Pong, Ref, now_us() + 1000 * Ms, []),
    demonitor(Ref, [flush]),
    exit(Pong, kill),
    Sorted = list_to_tuple(lists:sort(Times)),
    At = fun(Percent) -> element(max(1, tuple_size(Sorted) * Percent div 100), Sorted) / 1000 end,
    #{p50 => At(50), p99 => At(99), count => tuple_size(Sorted)}.

round_trips(Pong, Ref, DeadlineUs, Times) ->
    StartNs = erlang:monotonic_time(nanosecond),
    Pong ! {self(), Ref},
    receive
        Ref -> ok;
        {'DOWN', Ref, process, _, Reason} -> error({the_other_side_ended, Reason})
    end,
    Next = [erlang:monotonic_time(nanosecond) - StartNs | Times],
    case now_us() >= DeadlineUs of
        true -> Next;
        false -> round_trips(Pong, Ref, DeadlineUs, Next)
    end.

-spec pong() -> no_return().
pong() ->
    receive {From, Ref} -> From ! Ref end,
    pong().

%% Messages of this many bytes that arrive in a second.
-spec one_way(node(), pos_integer(), pos_integer()) -> float().
one_way(Peer, Bytes, Ms) ->
    Sink = spawn_opt(Peer, ?MODULE, sink, [], [{message_queue_data, off_heap}]),
    Ref = monitor(process, Sink),
    StartUs = now_us(),
    Sent = send(Sink, binary:copy(<<"x">>, Bytes), max(1, min(?BATCH, 1048576 div Bytes)), StartUs + 1000 * Ms, 0),
    Sink ! {how_many, self(), Ref},
    receive
        {Ref, Sent} -> ok;
        {Ref, Other} -> error({lost_messages, {sent, Sent}, {received, Other}});
        {'DOWN', Ref, process, _, Reason} -> error({the_other_side_ended, Reason})
    end,
    Rate = per_second(Sent, StartUs),
    demonitor(Ref, [flush]),
    exit(Sink, kill),
    Rate.

send(Sink, Body, Batch, DeadlineUs, Sent) ->
    case now_us() >= DeadlineUs andalso Sent > 0 of
        true -> Sent;
        false ->
            _ = [Sink ! Body || _ <- lists:seq(1, Batch)],
            send(Sink, Body, Batch, DeadlineUs, Sent + Batch)
    end.

-spec sink() -> no_return().
sink() -> sink(0).

sink(Count) ->
    receive
        Body when is_binary(Body) -> sink(Count + 1);
        {how_many, From, Ref} -> From ! {Ref, Count}, sink(Count)
    end.

per_second(Count, StartUs) -> Count * 1.0e6 / max(1, now_us() - StartUs).

%% Sends a message of random bytes to the peer and back. Returns the microseconds of the round trip; lost: no answer
%% within TimeoutMs, which includes the time to make the message.
-spec echo(node(), non_neg_integer(), pos_integer()) -> {ok, non_neg_integer()} | lost | damaged | {ended, term()}.
echo(Peer, Bytes, TimeoutMs) ->
    Payload = rand:bytes(Bytes),
    Hash = erlang:md5(Payload),
    %% In a process of its own, which the timeout ends: a late answer does not reach the caller.
    Self = self(),
    {Pid, Monitor} = spawn_monitor(fun() -> Self ! {self(), echo_once(Peer, Payload, Hash)} end),
    receive
        {Pid, Told} -> demonitor(Monitor, [flush]), Told;
        {'DOWN', Monitor, process, Pid, Reason} -> {ended, Reason}
    after TimeoutMs ->
        demonitor(Monitor, [flush]),
        exit(Pid, kill),
        lost
    end.

echo_once(Peer, Payload, Hash) ->
    Echoer = spawn(Peer, ?MODULE, echoer, []),
    Ref = monitor(process, Echoer),
    StartUs = now_us(),
    Echoer ! {self(), Ref, Payload},
    receive
        {Ref, Back} ->
            case erlang:md5(Back) of
                Hash -> {ok, now_us() - StartUs};
                _ -> damaged
            end;
        {'DOWN', Ref, process, _, Reason} -> {ended, Reason}
    end.

-spec echoer() -> term().
echoer() ->
    receive {From, Ref, Payload} -> From ! {Ref, Payload} after ?PATIENCE_MS -> ok end.

%% The numbers that grow if something leaks.
-spec held() -> #{atom() => non_neg_integer()}.
held() ->
    _ = [erlang:garbage_collect(Pid) || Pid <- processes()],
    {ok, Fds} = file:list_dir("/proc/self/fd"),
    {ok, Threads} = file:list_dir("/proc/self/task"),
    #{descriptors => length(Fds), threads => length(Threads), ports => erlang:system_info(port_count),
      processes => erlang:system_info(process_count), memory => erlang:memory(total)}.

%% Ends the TCP connection of the link to the peer, as a firewall does. none: the link has no TCP connection now.
-spec cut(node()) -> ok | none.
cut(Peer) ->
    case [Port || {Node, Port} <- erlang:system_info(dist_ctrl), Node =:= Peer, is_port(Port)] of
        [Port] -> cut_port(Port);
        [] -> none
    end.

cut_port(Port) ->
    case inet_rdma_port:with_socket(Port, inet_tcp, fun(Socket) -> gen_tcp:shutdown(Socket, read_write) end) of
        ok -> ok;
        {error, _} -> none
    end.

%% The kernel stops this process and lets it go on: returns at once.
-spec stop_for(pos_integer()) -> ok.
stop_for(Seconds) ->
    Pid = os:getpid(),
    _ = os:cmd(lists:flatten(io_lib:format("(sleep 0.1; kill -STOP ~s; sleep ~b; kill -CONT ~s) >/dev/null 2>&1 &",
                                           [Pid, Seconds, Pid]))),
    ok.

%% Kills this node by SIGKILL, so that the node does not close its connections itself. The pause of a second lets the
%% answer to this call reach the caller, which would wait a minute for a lost answer.
-spec end_hard() -> ok.
end_hard() ->
    _ = os:cmd("(sleep 1; kill -KILL " ++ os:getpid() ++ ") >/dev/null 2>&1 &"),
    ok.

%% Keeps the ends of this node's links to the peer.
-spec watch(node()) -> pid().
watch(Peer) ->
    Caller = self(),
    Pid = spawn(fun() ->
        ok = net_kernel:monitor_nodes(true, [{node_type, all}, nodedown_reason]),
        Caller ! {self(), ready},
        watching(Peer, [])
    end),
    receive {Pid, ready} -> Pid end.

watching(Peer, Seen) ->
    receive
        {nodedown, Peer, Info} -> watching(Peer, [proplists:get_value(nodedown_reason, Info) | Seen]);
        {seen, From, Ref} -> From ! {Ref, lists:reverse(Seen)}, watching(Peer, Seen);
        {watched, From, Ref} -> From ! {Ref, lists:reverse(Seen)};
        _ -> watching(Peer, Seen)
    end.

%% The reasons, oldest first.
-spec seen(pid()) -> [term()].
seen(Watcher) -> ask(Watcher, seen).

%% The reasons, and ends the watch.
-spec watched(pid()) -> [term()].
watched(Watcher) -> ask(Watcher, watched).

ask(Watcher, What) ->
    Ref = make_ref(),
    Watcher ! {What, self(), Ref},
    receive {Ref, Seen} -> Seen end.

now_us() -> erlang:monotonic_time(microsecond).

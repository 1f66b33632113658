%% Work between two nodes that is counted and timed. Runs in the nodes of a certificate.
-module(inet_rdma_certify_load).

-export([
    rpc/3,
    round_trip/2,
    one_way/3,
    echo/3,
    resources/0,
    cut/1,
    stand_still/0,
    end_hard/0,
    await_nodedown/2
]).
-export([watch/1, stop/2]).
%% Spawned.
-export([pong/0, sink/0, echo_once/3, echoer/0]).

%% Messages that a sender sends before it reads the clock again.
-define(BATCH, 32).
-define(PATIENCE_MS, 30000).
-define(STILL_S, 2).

%% Calls a second of this many processes.
-spec rpc(node(), pos_integer(), pos_integer()) -> float().
rpc(Peer, Ms, Processes) ->
    StartUs = now_us(),
    DeadlineUs = StartUs + 1000 * Ms,
    Self = self(),
    Callers = [
        spawn_monitor(fun() -> Self ! {self(), calls(Peer, DeadlineUs, 0)} end)
     || _ <- lists:seq(1, Processes)
    ],
    Calls = [
        receive
            {Pid, Count} ->
                demonitor(Ref, [flush]),
                Count;
            {'DOWN', Ref, process, Pid, Reason} ->
                error({a_caller_ended, Reason})
        end
     || {Pid, Ref} <- Callers
    ],
    per_second(lists:sum(Calls), StartUs).

calls(Peer, DeadlineUs, Count) ->
    case now_us() >= DeadlineUs of
        true ->
            Count;
        false ->
            Peer = rpc:call(Peer, erlang, node, []),
            calls(Peer, DeadlineUs, Count + 1)
    end.

%% The median of the round trips of one pair of processes, in microseconds.
-spec round_trip(node(), pos_integer()) -> float().
round_trip(Peer, Ms) ->
    Pong = spawn(Peer, ?MODULE, pong, []),
    Ref = monitor(process, Pong),
    Times = round_trips(Pong, Ref, now_us() + 1000 * Ms, []),
    demonitor(Ref, [flush]),
    exit(Pong, kill),
    lists:nth(max(1, length(Times) div 2), lists:sort(Times)) / 1000.

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
    receive
        {From, Ref} -> From ! Ref
    end,
    pong().

%% Messages of this many bytes that arrive in a second.
-spec one_way(node(), pos_integer(), pos_integer()) -> float().
one_way(Peer, Ms, Bytes) ->
    Sink = spawn_opt(Peer, ?MODULE, sink, [], [{message_queue_data, off_heap}]),
    Ref = monitor(process, Sink),
    StartUs = now_us(),
    Sent = send(
        Sink,
        binary:copy(<<"x">>, Bytes),
        max(1, min(?BATCH, 1048576 div Bytes)),
        StartUs + 1000 * Ms,
        0
    ),
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
        true ->
            Sent;
        false ->
            _ = [Sink ! Body || _ <- lists:seq(1, Batch)],
            send(Sink, Body, Batch, DeadlineUs, Sent + Batch)
    end.

-spec sink() -> no_return().
sink() -> sink(0).

sink(Count) ->
    receive
        Body when is_binary(Body) -> sink(Count + 1);
        {how_many, From, Ref} ->
            From ! {Ref, Count},
            sink(Count)
    end.

per_second(Count, StartUs) -> Count * 1.0e6 / max(1, now_us() - StartUs).

%% Sends a message of random bytes to the peer and back. lost: no answer within TimeoutMs.
-spec echo(node(), non_neg_integer(), pos_integer()) -> ok | lost | damaged | {ended, term()}.
echo(Peer, Bytes, TimeoutMs) ->
    Payload = rand:bytes(Bytes),
    case
        inet_rdma_bounded:call(?MODULE, echo_once, [Peer, Payload, erlang:md5(Payload)], TimeoutMs)
    of
        {ok, Reply} -> Reply;
        {exit, Reason} -> {ended, Reason};
        timeout -> lost
    end.

-spec echo_once(node(), binary(), binary()) -> ok | damaged | {ended, term()}.
echo_once(Peer, Payload, Hash) ->
    Echoer = spawn(Peer, ?MODULE, echoer, []),
    Ref = monitor(process, Echoer),
    Echoer ! {self(), Ref, Payload},
    receive
        {Ref, Back} ->
            case erlang:md5(Back) of
                Hash -> ok;
                _ -> damaged
            end;
        {'DOWN', Ref, process, _, Reason} ->
            {ended, Reason}
    end.

-spec echoer() -> term().
echoer() ->
    receive
        {From, Ref, Payload} -> From ! {Ref, Payload}
    after ?PATIENCE_MS -> ok
    end.

%% The numbers that grow if something leaks.
-spec resources() -> #{atom() => non_neg_integer()}.
resources() ->
    _ = [erlang:garbage_collect(Pid) || Pid <- processes()],
    {ok, Fds} = file:list_dir("/proc/self/fd"),
    {ok, Threads} = file:list_dir("/proc/self/task"),
    #{
        descriptors => length(Fds),
        threads => length(Threads),
        ports => erlang:system_info(port_count),
        processes => erlang:system_info(process_count),
        memory => erlang:memory(total)
    }.

%% Ends the TCP connection of the link to the peer, as a firewall does. none: the link has no TCP
%% connection now.
-spec cut(node()) -> ok | none.
cut(Peer) ->
    case [Port || {Node, Port} <- erlang:system_info(dist_ctrl), Node =:= Peer, is_port(Port)] of
        [Port] -> cut_port(Port);
        [] -> none
    end.

cut_port(Port) ->
    case
        inet_rdma_port:with_socket(Port, inet_tcp, fun(Socket) ->
            gen_tcp:shutdown(Socket, read_write)
        end)
    of
        ok -> ok;
        {error, _} -> none
    end.

%% The kernel stops this process and lets it go on: returns at once.
-spec stand_still() -> ok.
stand_still() ->
    Pid = os:getpid(),
    _ = os:cmd(
        lists:flatten(
            io_lib:format(
                "(sleep 0.1; kill -STOP ~s; sleep ~b; kill -CONT ~s) >/dev/null 2>&1 &",
                [Pid, ?STILL_S, Pid]
            )
        )
    ),
    ok.

%% Kills this node by SIGKILL, so that the node does not close its connections itself. The pause of
%% a second lets the answer to this call reach the caller, which would wait a minute for a lost
%% answer.
-spec end_hard() -> ok.
end_hard() ->
    _ = os:cmd("(sleep 1; kill -KILL " ++ os:getpid() ++ ") >/dev/null 2>&1 &"),
    ok.

%% Waits until the link to the peer has ended.
-spec await_nodedown(node(), timeout()) -> ok.
await_nodedown(Peer, TimeoutMs) ->
    true = monitor_node(Peer, true),
    receive
        {nodedown, Peer} -> ok
    after TimeoutMs -> error({no_nodedown, Peer})
    end.

%% Keeps the reasons with which this node's links to the peer end. stop/2 returns them, oldest
%% first.
-spec watch(node()) -> pid().
watch(Peer) ->
    Caller = self(),
    Pid = spawn(fun() ->
        ok = net_kernel:monitor_nodes(true, [{node_type, all}, nodedown_reason]),
        Caller ! {self(), ready},
        watching(Peer, [])
    end),
    receive
        {Pid, ready} -> Pid
    end.

watching(Peer, Seen) ->
    receive
        {nodedown, Peer, Info} ->
            watching(Peer, [proplists:get_value(nodedown_reason, Info) | Seen]);
        {stop, From, Ref} ->
            From ! {Ref, lists:reverse(Seen)};
        _ ->
            watching(Peer, Seen)
    end.

%% Ends a process of watch/1, inet_rdma_certify_numbers or inet_rdma_certify_bonds. Returns what it
%% has seen.
-spec stop(pid(), timeout()) -> term().
stop(Pid, TimeoutMs) ->
    Ref = monitor(process, Pid),
    Pid ! {stop, self(), Ref},
    receive
        {Ref, Seen} ->
            demonitor(Ref, [flush]),
            Seen;
        {'DOWN', Ref, process, _, Reason} ->
            error({has_ended, Reason})
    after TimeoutMs ->
        error({does_not_end, process_info(Pid, [current_stacktrace, status, messages])})
    end.

now_us() -> erlang:monotonic_time(microsecond).

%% Processes that note what the runtime system tells them. Runs in the node under test.
-module(inet_rdma_test_watch).

-export([
    nodes_of/1,
    downs/0,
    ups_of/1,
    busy_ports/0,
    collisions/0,
    acceptors/0,
    greet/2,
    messages_to/1,
    seen/1,
    stop/1
]).

%% Notes each way in which the end of the connection to this node is told.
-spec nodes_of(node()) -> {pid(), ok}.
nodes_of(Node) ->
    noting(
        fun() ->
            true = monitor_node(Node, true),
            net_kernel:monitor_nodes(true, [{node_type, all}])
        end,
        fun
            ({nodedown, N}) when N =:= Node -> {note, monitor_node};
            ({nodedown, N, _}) when N =:= Node -> {note, monitor_nodes};
            (_) -> ignore
        end
    ).

%% Notes each node whose connection ends, with the time of the host's clock in microseconds.
-spec downs() -> {pid(), ok}.
downs() ->
    noting(
        fun() -> net_kernel:monitor_nodes(true, [{node_type, all}]) end,
        fun
            ({nodedown, N, _}) -> {note, {N, os:system_time(microsecond)}};
            (_) -> ignore
        end
    ).

%% Notes that the connection to this node comes up.
-spec ups_of(node()) -> {pid(), ok}.
ups_of(Node) ->
    noting(
        fun() -> net_kernel:monitor_nodes(true, [{node_type, all}]) end,
        fun
            ({nodeup, N, _}) when N =:= Node -> {note, up};
            (_) -> ignore
        end
    ).

%% Notes processes that are suspended for a busy connection. The VM also reports a process that is
%% not suspended: one whose reductions are used up between two fragments of a message
%% (erts_dsig_send in dist.c). OTP 29 does so often.
-spec busy_ports() -> {pid(), ok}.
busy_ports() ->
    noting(
        fun() ->
            _ = erlang:system_monitor(self(), [busy_dist_port]),
            ok
        end,
        fun
            ({monitor, Pid, busy_dist_port, _}) ->
                case process_info(Pid, status) of
                    {status, suspended} -> {note, Pid};
                    _ -> ignore
                end;
            (_) ->
                ignore
        end
    ).

%% Notes connects of a peer that found an attempt of this node under way: net_kernel tells the
%% process that serves the peer which of the two goes on.
-spec collisions() -> {pid(), ok}.
collisions() ->
    noting(
        fun() ->
            1 = erlang:trace(whereis(net_kernel), true, [send]),
            ok
        end,
        fun
            ({trace, _, send, {_, {accept_pending, nok_pending}}, _}) -> {note, nok_pending};
            ({trace, _, send, {_, {accept_pending, ok_pending}}, _}) -> {note, ok_pending};
            (_) -> ignore
        end
    ).

%% Notes the calls of the processes that serve connecting peers: those that write to a socket, open
%% ports and give them commands, load modules, and make a peer known to the VM.
-spec acceptors() -> {pid(), ok}.
acceptors() ->
    noting(
        fun() ->
            1 = erlang:trace(whereis(net_kernel), true, [call, procs, set_on_spawn]),
            [
                1 = erlang:trace_pattern(Function, true, [global])
             || Function <- [
                    {erlang, port_command, 3},
                    {erlang, open_port, 2},
                    {erlang, port_control, 3},
                    {erlang, setnode, 3},
                    {error_handler, undefined_function, 3}
                ]
            ],
            ok
        end,
        fun
            ({trace, Pid, call, {_, Function, _}}) -> {note, {Pid, Function}};
            ({trace, Pid, spawned, _, {_, Function, _}}) -> {note, {Pid, Function}};
            (_) -> ignore
        end
    ).

%% Sends a greeting, which is a reference, to this name on the node whenever the node comes up, and
%% notes the greeting.
-spec greet(node(), atom()) -> {pid(), ok}.
greet(Node, Name) ->
    noting(
        fun() -> net_kernel:monitor_nodes(true) end,
        fun
            ({nodeup, N}) when N =:= Node ->
                Greeting = make_ref(),
                {Name, Node} ! Greeting,
                {note, Greeting};
            (_) ->
                ignore
        end
    ).

%% Notes what comes to this name.
-spec messages_to(atom()) -> {pid(), ok}.
messages_to(Name) ->
    noting(
        fun() ->
            true = register(Name, self()),
            ok
        end,
        fun(Message) -> {note, Message} end
    ).

%% Ends the process and waits for the end.
-spec stop(pid()) -> true.
stop(Watcher) ->
    Ref = monitor(process, Watcher),
    exit(Watcher, kill),
    receive
        {'DOWN', Ref, process, Watcher, _} -> true
    end.

%% What has been noted so far, oldest first.
-spec seen(pid()) -> [term()].
seen(Watcher) -> lists:reverse(inet_rdma_test_ask:ask(Watcher, seen)).

noting(Start, Judge) ->
    inet_rdma_test_ask:start(fun() -> {Start(), fun() -> loop(Judge, []) end} end).

loop(Judge, Noted) ->
    receive
        {seen, From, Ref} ->
            %% The VM delivers the trace of a call some time after the call.
            All = noted_until({trace_delivered, all, erlang:trace_delivered(all)}, Judge, Noted),
            From ! {Ref, All},
            loop(Judge, All);
        Message ->
            loop(Judge, note(Message, Judge, Noted))
    end.

noted_until(End, Judge, Noted) ->
    receive
        End -> Noted;
        Message -> noted_until(End, Judge, note(Message, Judge, Noted))
    end.

note(Message, Judge, Noted) ->
    case Judge(Message) of
        {note, Note} -> [Note | Noted];
        ignore -> Noted
    end.

%% The processes of a connection that carry the traffic between the VM and the native side.
%%
%% The parties of a connection:
%% - The output handler (output_loop/1), the distribution controller: pulls packets from the VM, as many as there are,
%%   and hands them to the native side in one call. When the peer has no more room it stops pulling; then the VM's own
%%   limit (busy_dist_port) holds the senders. It owns the native connection: its death closes it.
%% - The input handler (input_loop/1): takes whole packets from the native side, as many as there are, and gives them to
%%   the VM. While there is traffic it looks by itself and lets others run in between; when there is none it asks for a
%%   message and waits.
%% - The connection supervisor of dist_util: handshake, then ticks. Ticks go straight to the native side, which has a
%%   place for them that no data can take.
%% - The polling threads, a few for all connections: they wake whoever waits.
%% - The peer.
%% Supervisor, output handler and input handler are linked: one falls, all fall.
-module(inet_rdma_controller).

-export([start/3, complete/4]).
-export([output_setup/3, input_setup/4]).

-include_lib("kernel/include/logger.hrl").

-record(out, {
    handle :: term(),
    conn :: inet_rdma_nif:conn(),
    id :: pos_integer(),
    call_bytes :: pos_integer()
}).

-record(in, {
    handle :: term(),
    conn :: inet_rdma_nif:conn(),
    id :: pos_integer(),
    node :: node(),
    call_bytes :: pos_integer(),
    spin_us :: non_neg_integer()
}).

%% Binaries that wait in the queue must not be copied along with the heap, and must go as soon as they are done with:
%% landing buffers come back only when the binary is collected. There is next to nothing else to collect.
-define(SPAWN_OPTIONS, [{message_queue_data, off_heap}, {fullsweep_after, 0}]).

%% A turn of the scheduler that was over so soon had nobody else to run.
-define(QUICK_US, 2).
%% So long the input handler looks between the turns of others.
-define(PATIENCE_US, 1000).

%% As many packets at a time are few.
-define(FEW_PACKETS, 2).

%% Starts the output handler, linked to the caller, as the owner of Conn. It waits for complete/4.
-spec start(inet_rdma_nif:conn(), pos_integer(), inet_rdma_options:config()) -> pid().
start(Conn, Id, Config) ->
    Pid = spawn_opt(?MODULE, output_setup, [Conn, Id, Config], [link, {priority, max} | ?SPAWN_OPTIONS]),
    ok = inet_rdma_nif:own(Conn, Pid),
    Pid.

%% The handshake is done: traffic begins.
-spec complete(pid(), pid(), node(), term()) -> ok.
complete(Pid, Supervisor, Node, Handle) ->
    Ref = monitor(process, Pid),
    Pid ! {complete, Ref, Supervisor, Node, Handle},
    receive
        {Ref, ok} -> demonitor(Ref, [flush]), ok;
        {'DOWN', Ref, process, Pid, Reason} -> exit({dist_controller_exit, Reason})
    end.

output_setup(Conn, Id, #{call_bytes := Bytes} = Config) ->
    receive
        {complete, Ref, Supervisor, Node, Handle} ->
            ok = inet_rdma_nif:label(Conn, atom_to_binary(Node)),
            In = #in{handle = Handle, conn = Conn, id = Id, node = Node, call_bytes = Bytes, spin_us = spin(Config)},
            Input = spawn_opt(?MODULE, input_setup, [self(), Supervisor, Handle, In], [link | ?SPAWN_OPTIONS]),
            ok = erlang:dist_ctrl_input_handler(Handle, Input),
            Input ! {self(), Handle},
            Supervisor ! {Ref, ok},
            process_flag(priority, normal),
            erlang:dist_ctrl_set_opt(Handle, get_size, true),
            erlang:dist_ctrl_get_data_notification(Handle),
            output_loop(#out{handle = Handle, conn = Conn, id = Id, call_bytes = Bytes})
    end.

spin(#{polling := adaptive, spin_us := Microseconds}) -> Microseconds;
spin(_) -> 0.

output_loop(#out{handle = Handle} = Out) ->
    receive
        dist_data ->
            try
                gather(),
                pull(Out),
                erlang:dist_ctrl_get_data_notification(Handle)
            catch
                %% The VM has given up the connection.
                error:notsup -> exit(connection_closed)
            end,
            output_loop(Out);
        _ ->
            output_loop(Out)
    end.

%% With several links what the senders have to say is spread among them: a turn of theirs makes one batch out of what would
%% be several. With a single link it would only delay the peer.
gather() ->
    _ = inet_rdma_nif:connections() > 1 andalso erlang:yield(),
    ok.

%% Hands over all that the VM has.
pull(#out{handle = Handle, call_bytes = Bytes} = Out) ->
    case collect(Handle, Bytes) of
        {[], _} -> ok;
        {Packets, Left} ->
            push(Out, Packets, 0),
            case Left > 0 of
                true -> ok;
                false -> pull(Out)
            end
    end.

%% Packets up to about so many bytes, in order, and how many bytes there was room for still.
collect(Handle, Left) when Left > 0 ->
    case erlang:dist_ctrl_get_data(Handle) of
        none ->
            {[], Left};
        {Size, _} = Packet ->
            {Packets, Rest} = collect(Handle, Left - Size),
            {[Packet | Packets], Rest}
    end;
collect(_Handle, Left) ->
    {[], Left}.

push(#out{conn = Conn, id = Id, call_bytes = Bytes} = Out, Packets, Offset) ->
    case inet_rdma_nif:send(Conn, Packets, Offset, Bytes) of
        ok ->
            ok;
        {more, Rest, Sent} ->
            push(Out, Rest, Sent);
        {blocked, Rest, Sent} ->
            _ = inet_rdma_nif:arm_writer(Conn) andalso receive {'$inet_rdma', Id, writable} -> ok end,
            push(Out, Rest, Sent);
        {error, _Reason} ->
            %% What arrived before the end has still to be read: the input handler ends the connection after that.
            await_end()
    end.

-spec await_end() -> no_return().
await_end() ->
    receive never -> ok end.

input_setup(Output, Supervisor, Handle, #in{conn = Conn} = In) ->
    link(Supervisor),
    %% The VM takes data from the registered input handler only.
    receive
        {Output, Handle} ->
            ok = inet_rdma_nif:self_polling(Conn),
            input_loop(In)
    end.

input_loop(In) ->
    case take(In) of
        0 -> sleep(In);
        Packets -> input_loop(In, Packets)
    end.

%% Many packets at a time: the peer is busy, and goes on while this process sleeps; the wake-up is shared by all that has
%% come until then. A few: somebody is likely to wait for them, and for the answer's answer.
input_loop(In, Packets) ->
    erlang:yield(),
    case take(In) of
        0 when Packets > ?FEW_PACKETS -> sleep(In);
        0 -> idle(In, erlang:monotonic_time(microsecond));
        More -> input_loop(In, More)
    end.

%% Gives the VM what has arrived; how many packets.
take(#in{handle = Handle, conn = Conn, call_bytes = Bytes} = In) ->
    case inet_rdma_nif:recv(Conn, Bytes, 16#FFFFFFFF, 0) of
        empty ->
            0;
        {error, Reason, Packets} ->
            _ = put_data(Handle, Packets, 0),
            closed(Reason, In);
        {_, Packets} ->
            put_data(Handle, Packets, 0)
    end.

%% The VM takes nothing more for a connection that it has given up: then this process is about to be told, too.
put_data(Handle, Packets, Count) ->
    try put_each(Handle, Packets, Count)
    catch error:notsup -> exit(connection_closed)
    end.

put_each(Handle, [Packet | Rest], Count) ->
    erlang:dist_ctrl_put_data(Handle, Packet),
    put_each(Handle, Rest, Count + 1);
put_each(_Handle, [], Count) ->
    Count.

%% Nothing came. While others run here, looks between their turns: they are likely to cause the next packet. When nobody
%% else has anything to do, looks for spin_us without a break. Then goes to sleep.
idle(#in{spin_us = 0} = In, _Since) ->
    sleep(In);
idle(#in{conn = Conn, spin_us = Spin} = In, Since) ->
    Before = erlang:monotonic_time(microsecond),
    erlang:yield(),
    After = erlang:monotonic_time(microsecond),
    case take(In) of
        0 when After - Before > ?QUICK_US, After - Since < ?PATIENCE_US ->
            idle(In, Since);
        0 ->
            case After - Before =< ?QUICK_US andalso inet_rdma_nif:spin(Conn, Spin) of
                true -> input_loop(In);
                false -> sleep(In)
            end;
        Packets ->
            input_loop(In, Packets)
    end.

sleep(#in{conn = Conn, id = Id} = In) ->
    _ = inet_rdma_nif:arm(Conn) andalso receive {'$inet_rdma', Id, readable} -> ok end,
    input_loop(In).

-spec closed(term(), #in{}) -> no_return().
closed(Reason, _In) when Reason =:= closed; Reason =:= peer_gone ->
    exit(connection_closed);
closed(Reason, #in{node = Node}) ->
    ?LOG_WARNING("inet_rdma: the connection to ~tp ended: ~tp", [Node, Reason]),
    exit(connection_closed).

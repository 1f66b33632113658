%% The process of a connection that carries the traffic between the VM and the native side.
%%
%% The parties of a connection:
%% - The controller (loop/1): hands what the VM has to send to the native side, as many packets as there are in one call,
%%   and gives the VM what has arrived, as many as there are. While there is traffic it looks for both by itself, turn by
%%   turn, and lets others run in between; when there is none it asks both sides for a message and waits. When the peer
%%   has no more room it takes nothing from the VM; then the VM's own limit (busy_dist_port) holds the senders. It owns
%%   the native connection: its death closes it.
%% - The connection supervisor of dist_util: handshake, then ticks. Ticks go straight to the native side, which has a
%%   place for them that no data can take.
%% - The polling threads, a few for all connections: they wake whoever waits.
%% - The peer.
%% Supervisor and controller are linked: one falls, both fall.
-module(inet_rdma_controller).

-export([start/3, complete/4]).
-export([setup/3]).

-include_lib("kernel/include/logger.hrl").

-record(link, {
    handle :: term(),
    conn :: inet_rdma_nif:conn(),
    id :: pos_integer(),
    node :: node(),
    call_bytes :: pos_integer(),
    %% The longest and the present time to look without a break before going to sleep.
    spin_us :: non_neg_integer(),
    patience_us :: non_neg_integer(),
    %% What the peer has no room for yet; closed: nothing can be sent any more.
    unsent = none :: none | closed | {nonempty_list(), Offset :: non_neg_integer()},
    %% The VM was asked to tell when it has something to send, and has not done so yet.
    asked = false :: boolean()
}).

%% Binaries that wait in the queue must not be copied along with the heap, and must go as soon as they are done with:
%% landing buffers come back only when the binary is collected. There is next to nothing else to collect.
-define(SPAWN_OPTIONS, [{message_queue_data, off_heap}, {fullsweep_after, 0}]).

%% Packets given to the VM in a turn at most, with a single link and with several.
-define(TURN_PACKETS, 16).
-define(ALL, 16#FFFFFFFF).

%% So long the native side looks for something before the VM is asked again.
-define(SLICE_US, 2).
%% The shortest patience.
-define(LEAST_US, 2).

%% Starts the controller, linked to the caller, as the owner of Conn. It waits for complete/4.
-spec start(inet_rdma_nif:conn(), pos_integer(), inet_rdma_options:config()) -> pid().
start(Conn, Id, Config) ->
    Pid = spawn_opt(?MODULE, setup, [Conn, Id, Config], [link, {priority, max} | ?SPAWN_OPTIONS]),
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

setup(Conn, Id, #{call_bytes := Bytes} = Config) ->
    receive
        {complete, Ref, Supervisor, Node, Handle} ->
            link(Supervisor),
            ok = inet_rdma_nif:label(Conn, atom_to_binary(Node)),
            ok = inet_rdma_nif:self_polling(Conn),
            erlang:dist_ctrl_set_opt(Handle, get_size, true),
            Supervisor ! {Ref, ok},
            process_flag(priority, normal),
            Spin = spin(Config),
            Link = #link{handle = Handle, conn = Conn, id = Id, node = Node, call_bytes = Bytes, spin_us = Spin,
                         patience_us = Spin},
            try loop(Link)
            catch
                %% The VM has given up the connection: this process is about to be told, too.
                error:notsup -> exit(connection_closed)
            end
    end.

spin(#{polling := adaptive, spin_us := Microseconds}) -> Microseconds;
spin(_) -> 0.

loop(Link) ->
    loop(Link, 0).

%% Takes turns while there is something to do. Packets: how many the turn before had.
loop(Link, Packets) ->
    Taken = take(Link, max_packets()),
    case pull(Link) of
        {0, Next} when Taken =:= 0 ->
            idle(Next, Packets);
        {Pulled, Next} ->
            erlang:yield(),
            loop(Next, Taken + Pulled)
    end.

%% The answers to what was taken first go out while the rest is taken, so that both nodes have work at the same time. With
%% several links that would cut what goes out over all of them into small pieces, and each could wake a peer.
max_packets() ->
    case inet_rdma_nif:links() of
        1 -> ?TURN_PACKETS;
        _ -> ?ALL
    end.

%% A full turn: the peer is busy, and goes on while this process sleeps; the wake-up is shared by all that has come until
%% then. A few packets: somebody is likely to wait for them, and for the answer's answer.
idle(#link{spin_us = Spin, patience_us = Patience} = Link, Packets) when
    0 < Packets, Packets < ?TURN_PACKETS, 0 < Spin
->
    spin(Link, erlang:monotonic_time(microsecond) + Patience);
idle(Link, _Packets) ->
    sleep(Link).

spin(#link{conn = Conn} = Link, Until) ->
    case inet_rdma_nif:spin(Conn, ?SLICE_US) orelse pull(Link) of
        true ->
            loop(found(Link));
        {0, Next} ->
            case erlang:monotonic_time(microsecond) < Until of
                true -> spin(Next, Until);
                false -> sleep(missed(Next))
            end;
        {Pulled, Next} ->
            erlang:yield(),
            loop(found(Next), Pulled)
    end.

%% How long it pays to look: twice as long after it has paid, half as long after it has not.
found(#link{spin_us = Spin, patience_us = Patience} = Link) ->
    Link#link{patience_us = min(2 * Patience, Spin)}.

missed(#link{patience_us = Patience} = Link) ->
    Link#link{patience_us = max(Patience div 2, ?LEAST_US)}.

%% Waits until there is something to send or to give to the VM.
sleep(Link) ->
    #link{conn = Conn, id = Id} = Asked = ask(Link),
    case has_room(Asked) orelse not inet_rdma_nif:arm(Conn) of
        true ->
            loop(Asked);
        false ->
            receive
                dist_data -> gather(), loop(Asked#link{asked = false});
                {'$inet_rdma', Id, _} -> loop(Asked);
                _ -> loop(Asked)
            end
    end.

%% With several links what the senders have to say is spread among them: a turn of theirs makes one batch out of what would
%% be several. With a single link it would only delay the peer.
gather() ->
    _ = inet_rdma_nif:links() > 1 andalso erlang:yield(),
    ok.

%% The VM says once that it has something to send.
ask(#link{unsent = none, asked = false, handle = Handle} = Link) ->
    erlang:dist_ctrl_get_data_notification(Handle),
    Link#link{asked = true};
ask(#link{asked = true} = Link) ->
    receive dist_data -> ask(Link#link{asked = false})
    after 0 -> Link
    end;
ask(Link) ->
    Link.

%% Whether the peer has made room for what waits for it; if not, it will be told.
has_room(#link{unsent = {_, _}, conn = Conn}) -> not inet_rdma_nif:arm_writer(Conn);
has_room(_) -> false.

%% Hands over what the VM has, about call_bytes at most; how many packets.
pull(#link{unsent = none, handle = Handle, call_bytes = Bytes} = Link) ->
    case collect(Handle, Bytes) of
        [] -> {0, Link};
        Packets -> {length(Packets), push(Link, Packets, 0)}
    end;
pull(#link{unsent = {Packets, Offset}} = Link) ->
    case push(Link, Packets, Offset) of
        #link{unsent = none} = Next -> {1, Next};
        Next -> {0, Next}
    end;
pull(#link{unsent = closed} = Link) ->
    {0, Link}.

%% Packets up to about so many bytes, in order.
collect(Handle, Left) when Left > 0 ->
    case erlang:dist_ctrl_get_data(Handle) of
        none -> [];
        {Size, _} = Packet -> [Packet | collect(Handle, Left - Size)]
    end;
collect(_Handle, _Left) ->
    [].

push(#link{conn = Conn, call_bytes = Bytes} = Link, Packets, Offset) ->
    case inet_rdma_nif:send(Conn, Packets, Offset, Bytes) of
        ok -> Link#link{unsent = none};
        {more, Rest, Sent} -> push(Link, Rest, Sent);
        {blocked, Rest, Sent} -> Link#link{unsent = {Rest, Sent}};
        %% What arrived before the end has still to be read: that ends the connection.
        {error, _Reason} -> Link#link{unsent = closed}
    end.

%% Gives the VM what has arrived, about call_bytes at most; how many packets.
take(#link{handle = Handle, conn = Conn, call_bytes = Bytes} = Link, Max) ->
    case inet_rdma_nif:recv(Conn, Bytes, Max, 0) of
        empty ->
            0;
        {error, Reason, Packets} ->
            _ = put_data(Handle, Packets, 0),
            closed(Reason, Link);
        {_, Packets} ->
            put_data(Handle, Packets, 0)
    end.

put_data(Handle, [Packet | Rest], Count) ->
    erlang:dist_ctrl_put_data(Handle, Packet),
    put_data(Handle, Rest, Count + 1);
put_data(_Handle, [], Count) ->
    Count.

-spec closed(term(), #link{}) -> no_return().
closed(Reason, _Link) when Reason =:= closed; Reason =:= peer_gone ->
    exit(connection_closed);
closed(Reason, #link{node = Node}) ->
    ?LOG_WARNING("inet_rdma: the connection to ~tp ended: ~ts", [Node, inet_rdma:format_error(Reason)]),
    exit(connection_closed).

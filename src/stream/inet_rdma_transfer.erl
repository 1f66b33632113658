%% Sends and receives for which the caller waits. The native side wakes the caller by {'$inet_rdma',
%% Id, What}.
-module(inet_rdma_transfer).

-export([send/3, recv/4, flush/2]).

-import(inet_rdma_clock, [deadline/1, left/1]).

%% Each call of the native side looks at all binaries of the send: more of them are joined first.
-define(BINARIES_MAX, 1024).

%% Waits while the peer has no room, for up to the option send_timeout.
-spec send(inet_rdma_nif:conn(), Id :: pos_integer(), erlang:iovec()) ->
    ok | {error, inet_rdma:reason()}.
send(Conn, Id, Binaries) when length(Binaries) > ?BINARIES_MAX ->
    send(Conn, Id, [iolist_to_binary(Binaries)], 0, unset);
send(Conn, Id, Binaries) ->
    send(Conn, Id, [Binaries], 0, unset).

%% Deadline: unset as long as the peer has had room.
send(Conn, Id, Packets, Offset, Deadline) ->
    case inet_rdma_nif:send(Conn, Packets, Offset) of
        ok -> ok;
        {more, Rest, Sent} -> send(Conn, Id, Rest, Sent, Deadline);
        {blocked, Rest, Sent} -> send_blocked(Conn, Id, Rest, Sent, Deadline);
        Error -> Error
    end.

send_blocked(Conn, Id, Rest, Sent, unset) ->
    case inet_rdma_socket:send_timeout(Conn) of
        {ok, Timeout, _Closes} -> send_blocked(Conn, Id, Rest, Sent, deadline(Timeout));
        closed -> {error, closed}
    end;
send_blocked(Conn, Id, [Binaries] = Rest, Sent, Deadline) ->
    case left(Deadline) of
        0 ->
            ok = inet_rdma_nif:leave(Conn, Binaries, Sent),
            close_late(Conn, inet_rdma_socket:send_timeout(Conn)),
            {error, timeout};
        LeftMs ->
            await_writable(Conn, Id, LeftMs),
            send(Conn, Id, Rest, Sent, Deadline)
    end.

close_late(Conn, {ok, _Timeout, true}) -> inet_rdma_nif:close(Conn);
close_late(_Conn, _) -> ok.

%% Another process may have died in the middle of its send, for which there is no message: looks
%% once in a second.
await_writable(Conn, Id, LeftMs) ->
    case inet_rdma_nif:arm_writer(Conn) of
        true ->
            receive
                {'$inet_rdma', Id, writable} -> ok
            after min(1000, LeftMs) -> disarm(Conn, Id, writable)
            end;
        %% The end of another process's send may have woken all writers meanwhile.
        false ->
            flush(Id, writable)
    end.

%% einval: in active mode.
-spec recv(inet_rdma_nif:conn(), Id :: pos_integer(), Length :: non_neg_integer(), timeout()) ->
    {ok, binary()} | {error, inet_rdma:reason()}.
recv(Conn, Id, Length, Timeout) ->
    case inet_rdma_nif:active_left(Conn) of
        passive -> recv_until(Conn, Id, Length, deadline(Timeout));
        _ -> {error, einval}
    end.

recv_until(Conn, Id, Length, Deadline) ->
    case inet_rdma_nif:recv(Conn, Length) of
        {_, [Packet]} -> {ok, Packet};
        {error, _, [Packet]} -> {ok, Packet};
        {error, Reason, []} -> {error, Reason};
        {more, []} -> recv_until(Conn, Id, Length, Deadline);
        _Nothing -> await_readable(Conn, Id, Length, Deadline)
    end.

await_readable(Conn, Id, Length, Deadline) ->
    case inet_rdma_nif:arm(Conn) of
        false ->
            %% If another process waits, or one has stopped to wait, all are woken.
            ok = flush(Id, readable),
            recv_until(Conn, Id, Length, Deadline);
        true ->
            receive
                {'$inet_rdma', Id, readable} -> recv_until(Conn, Id, Length, Deadline)
            after left(Deadline) ->
                ok = disarm(Conn, Id, readable),
                {error, timeout}
            end
    end.

%% The caller stops waiting: removes it from the list of waiters, and a wake-up from its message
%% queue.
disarm(Conn, Id, What) ->
    ok = inet_rdma_nif:disarm(Conn),
    flush(Id, What).

%% Takes a wake-up for which the caller no longer waits out of its message queue.
-spec flush(Id :: pos_integer(), acceptable | readable | writable) -> ok.
flush(Id, What) ->
    receive
        {'$inet_rdma', Id, What} -> ok
    after 0 -> ok
    end.

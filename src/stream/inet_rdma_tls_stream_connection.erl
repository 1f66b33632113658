%% The TLS connection of a stream, by the functions of `ssl` that OTP documents.
-module(inet_rdma_tls_stream_connection).

-export([check/1, start/0, listen/3, connect/4, reason/1]).

%% Size limit of a message of the settlement. As the peer may have no certificate, the limit is
%% enforced before a packet is read.
-define(PACKET_BYTES_MAX, 65536).

-define(SEND_TIMEOUT_MS, 5000).

%% Options that are refused: they are set here, belong to the stream, or make no sense for it.
-define(NOT_OF_TLS, [
    active,
    packet,
    packet_size,
    mode,
    binary,
    list,
    header,
    deliver,
    ip,
    ifaddr,
    inet,
    inet6,
    local,
    fd,
    backlog,
    handshake,
    protocol,
    cb_info,
    erl_dist,
    ktls
]).

-define(EXPECTED, "a list of options of ssl, each an atom or a tuple").

%% Bad: without the other options, which may have keys and passwords.
-spec check(term()) -> ok | {error, Bad :: term(), Expected :: string()}.
check(Options) ->
    try [Option || Option <- Options, lists:member(key(Option), ?NOT_OF_TLS)] of
        [] ->
            ok;
        [Bad | _] ->
            {error, Bad,
                "a list of options of TLS: this one is inet_rdma's, or an option of the stream"}
    catch
        error:_ when is_atom(Options) -> {error, Options, ?EXPECTED};
        error:_ -> {error, not_shown, ?EXPECTED}
    end.

key(Option) when is_atom(Option) -> Option;
key(Option) when is_tuple(Option) -> element(1, Option).

-spec start() -> ok | {error, inet_rdma:reason()}.
start() ->
    try ssl:start() of
        ok -> ok;
        {error, Reason} -> {error, {tls, Reason}}
    catch
        error:undef ->
            {error,
                {not_found,
                    <<"the application ssl, which the option tls needs, is not in the code path">>}}
    end.

%% The caller owns the socket.
-spec listen(inet:port_number(), inet_rdma_socket_options:options(), Backlog :: pos_integer()) ->
    {ok, ssl:sslsocket(), inet:port_number()} | {error, inet_rdma:reason()}.
listen(Port, #{tls := Tls} = SocketOptions, Backlog) ->
    Options =
        address(SocketOptions) ++
            [{active, false}, {backlog, Backlog}, {reuseaddr, true} | common()] ++ Tls,
    case ssl:listen(Port, Options) of
        {ok, Socket} ->
            {ok, {_, Bound}} = ssl:sockname(Socket),
            {ok, Socket, Bound};
        {error, Reason} ->
            {error, reason(Reason)}
    end.

%% The client's part, to the first packet of the server. With TLS 1.3 a server refuses the client's
%% certificate after the handshake has ended for the client: an active socket tells why, a passive
%% one may find it closed. The packet is in the caller's message queue.
-spec connect(
    inet:hostname() | inet:ip_address(),
    inet:port_number(),
    inet_rdma_socket_options:options(),
    DeadlineMs :: integer()
) -> {ok, ssl:sslsocket()} | {error, term()}.
connect(Host, Port, #{tls := Tls} = SocketOptions, DeadlineMs) ->
    Options = address(SocketOptions) ++ [{active, once} | common()] ++ Tls,
    case ssl:connect(Host, Port, Options, left(DeadlineMs)) of
        {ok, Socket} -> greeted(Socket, left(DeadlineMs));
        Error -> Error
    end.

greeted(Socket, TimeoutMs) ->
    receive
        {ssl, _, _} = Greeting ->
            self() ! Greeting,
            {ok, Socket};
        {ssl_error, _, Reason} ->
            {error, Reason};
        {ssl_closed, _} ->
            {error, closed}
    after TimeoutMs ->
        {error, timeout}
    end.

left(DeadlineMs) -> max(1, inet_rdma_clock:left(DeadlineMs)).

%% If the peer reads nothing, the connection ends, and the process that writes to it does not block.
common() ->
    [
        binary,
        {packet, 4},
        {packet_size, ?PACKET_BYTES_MAX},
        {nodelay, true},
        {send_timeout, ?SEND_TIMEOUT_MS},
        {send_timeout_close, true}
    ].

address(#{ip := any, family := inet6}) -> [inet6];
address(#{ip := any}) -> [];
address(#{ip := Ip}) when tuple_size(Ip) =:= 8 -> [inet6, {ip, Ip}];
address(#{ip := Ip}) -> [{ip, Ip}].

%% The reason for an error of ssl.
-spec reason(term()) -> inet_rdma:reason().
reason({tls_alert, _} = Alert) ->
    Alert;
reason(timeout) ->
    etimedout;
reason(closed) ->
    {tls, closed};
reason(Reason) when is_atom(Reason) ->
    case inet:format_error(Reason) of
        "unknown POSIX error" ++ _ -> {tls, Reason};
        _ -> Reason
    end;
reason(Reason) ->
    {tls, Reason}.

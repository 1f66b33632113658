%% The options and addresses of a stream socket. The native side keeps them in one term beside the
%% connection, so that the term of the socket, which each of its messages copies, stays small.
-module(inet_rdma_socket).

-export([settings/2, open/4, setopts/3, getopts/2, send_timeout/1, peername/1, sockname/1]).
-export_type([settings/0]).

%% The term that the native side keeps.
-record(details, {
    %% The listener's port, of either side.
    port :: inet:port_number(),
    role :: connected | accepted,
    config :: inet_rdma_options:config(),
    packet = raw :: inet_rdma_socket_options:packet(),
    packet_size :: non_neg_integer(),
    buffer :: pos_integer(),
    send_timeout :: timeout(),
    send_timeout_close :: boolean()
}).

%% The listener's port, and the options of the connection and of the socket.
-type settings() :: {
    inet:port_number(), inet_rdma_options:config(), inet_rdma_socket_options:options()
}.

%% The settings that follow from a list of options, which override those of this node. Loads the
%% native library.
-spec settings(inet:port_number(), [term()]) -> {ok, settings()} | {error, inet_rdma:reason()}.
settings(Port, Options) ->
    case inet_rdma_socket_options:split(Options) of
        {ok, SocketOptions, Others} ->
            case overridden(inet_rdma_nif:load(), Others) of
                {ok, Config} -> {ok, {Port, Config, SocketOptions}};
                Error -> Error
            end;
        Error ->
            Error
    end.

overridden(ok, Options) ->
    case inet_rdma_options:node() of
        {ok, Node} -> inet_rdma_options:merge(Options, Node);
        Error -> Error
    end;
overridden(Error, _Options) ->
    Error.

%% Gives a new connection its options. Framing first: in active mode bytes that have arrived are cut
%% at once. A new socket is passive: a count of 0 or less leaves it passive, and its owner gets a
%% message.
-spec open(inet_rdma_nif:conn(), inet_rdma:socket(), connected | accepted, settings()) ->
    ok | {error, inet_rdma:reason()}.
open(Conn, Socket, Role, {Port, Config, SocketOptions}) ->
    #{
        packet := Packet,
        packet_size := Size,
        buffer := Buffer,
        active := Active,
        send_timeout := Timeout,
        send_timeout_close := Close
    } = SocketOptions,
    Details = #details{
        port = Port,
        role = Role,
        config = Config,
        packet_size = Size,
        buffer = Buffer,
        send_timeout = Timeout,
        send_timeout_close = Close
    },
    ok = inet_rdma_nif:set_options(Conn, Details),
    case setopt(Conn, Socket, Details, {ok, {packet, Packet}}) of
        ok -> setopt(Conn, Socket, Details, {ok, {active, Active}});
        Error -> Error
    end.

-spec setopts(inet_rdma_nif:conn(), inet_rdma:socket(), [inet_rdma:option()]) ->
    ok | {error, inet_rdma:reason()}.
setopts(Conn, Socket, Options) ->
    case inet_rdma_nif:options(Conn) of
        closed -> {error, closed};
        _ when Options =:= [] -> ok;
        Details -> setopts(Conn, Socket, Details, Options)
    end.

setopts(Conn, Socket, Details, [Option | Rest]) ->
    case setopt(Conn, Socket, Details, inet_rdma_socket_options:check(Option)) of
        ok -> setopts(Conn, Socket, Rest);
        Error -> Error
    end.

setopt(Conn, Socket, _Details, {ok, {active, Active}}) ->
    inet_rdma_nif:active(Conn, Socket, Active);
setopt(Conn, _Socket, Details, {ok, {packet, Packet}}) ->
    reframe(Conn, Details#details{packet = Packet});
setopt(Conn, _Socket, Details, {ok, {packet_size, Bytes}}) ->
    reframe(Conn, Details#details{packet_size = Bytes});
setopt(Conn, _Socket, Details, {ok, {buffer, Bytes}}) ->
    reframe(Conn, Details#details{buffer = Bytes});
setopt(Conn, _Socket, Details, {ok, {send_timeout, Timeout}}) ->
    inet_rdma_nif:set_options(Conn, Details#details{send_timeout = Timeout});
setopt(Conn, _Socket, Details, {ok, {send_timeout_close, Close}}) ->
    inet_rdma_nif:set_options(Conn, Details#details{send_timeout_close = Close});
setopt(_Conn, _Socket, _Details, {ok, {Key, Value}}) when
    Key =:= ip; Key =:= family; Key =:= tls
->
    {error, {bad_option, Key, Value, "an option of listen/2 or connect/3,4"}};
setopt(_Conn, _Socket, _Details, {ok, without_effect}) ->
    ok;
setopt(_Conn, _Socket, _Details, Error) ->
    Error.

reframe(Conn, Details) ->
    #details{
        packet = Packet, packet_size = Size, buffer = Buffer, config = #{packet_max_bytes := Max}
    } = Details,
    case
        inet_rdma_nif:framing(
            Conn, inet_rdma_socket_options:framing(Packet, Buffer), largest(Size, Max)
        )
    of
        ok -> inet_rdma_nif:set_options(Conn, Details);
        Error -> Error
    end.

%% packet_size 0: packet_max_bytes alone.
largest(0, Max) -> Max;
largest(Size, Max) -> min(Size, Max).

-spec getopts(inet_rdma_nif:conn(), [atom()]) ->
    {ok, [{atom(), term()}]} | {error, inet_rdma:reason()}.
getopts(Conn, Keys) ->
    case inet_rdma_nif:options(Conn) of
        closed ->
            {error, closed};
        #details{
            config = Config,
            packet = Packet,
            packet_size = Size,
            buffer = Buffer,
            send_timeout = Timeout,
            send_timeout_close = Close
        } ->
            Own = #{
                active => inet_rdma_socket_options:active_option(inet_rdma_nif:active_left(Conn)),
                packet => Packet,
                packet_size => Size,
                buffer => Buffer,
                send_timeout => Timeout,
                send_timeout_close => Close
            },
            Others = maps:from_list([
                {Key, Value}
             || Key <- Keys,
                {ok, Value} <- [inet_rdma_socket_options:tcp_value(Key)]
            ]),
            inet_rdma_options:values(maps:merge(Others, maps:merge(Config, Own)), Keys)
    end.

%% The options send_timeout and send_timeout_close.
-spec send_timeout(inet_rdma_nif:conn()) -> {ok, timeout(), Closes :: boolean()} | closed.
send_timeout(Conn) ->
    case inet_rdma_nif:options(Conn) of
        #details{send_timeout = Timeout, send_timeout_close = Closes} -> {ok, Timeout, Closes};
        closed -> closed
    end.

-spec peername(inet_rdma_nif:conn()) -> {ok, inet_rdma:address()} | {error, closed}.
peername(Conn) -> name(Conn, 3, connected).

-spec sockname(inet_rdma_nif:conn()) -> {ok, inet_rdma:address()} | {error, closed}.
sockname(Conn) -> name(Conn, 2, accepted).

%% The end at this place of inet_rdma_nif:addresses/1, which is the listener's of a socket with this
%% role. Shared memory has no addresses: the listener's port takes their place.
name(Conn, Place, Role) ->
    case {inet_rdma_nif:addresses(Conn), inet_rdma_nif:options(Conn)} of
        {{_, none, none}, #details{port = Port, role = Role}} ->
            {ok, {shm, Port}};
        {{_, none, none}, #details{}} ->
            {ok, {shm, 0}};
        {{Fabric, Own, Peer} = Ends, _} when Own =/= none, Peer =/= none ->
            {Address, Port} = element(Place, Ends),
            {ok, Ip} = inet:parse_address(binary_to_list(Address)),
            {ok, {binary_to_existing_atom(Fabric), Ip, Port}};
        _ ->
            {error, closed}
    end.

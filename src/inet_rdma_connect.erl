%% The connecting side of streams, and the addresses of hosts.
-module(inet_rdma_connect).

-export([connect/5, is_local/1, own_address/1]).

%% Connects to a listener, by the native side or inside TLS first. The caller owns the stream. timeout: Timeout has
%% passed; etimedout: the time of the option connect_timeout_ms, which is shorter.
-spec connect(inet:hostname() | inet:ip_address(), inet:port_number(), inet_rdma_options:config(),
              inet_rdma_socket_options:options(), timeout()) ->
          {ok, inet_rdma_nif:conn(), Id :: pos_integer()} | {error, inet_rdma:reason()}.
connect(Host, Port, #{connect_timeout_ms := LimitMs} = Config, SocketOptions, Timeout) ->
    %% A number is less than any atom: infinity.
    BoundMs = min(LimitMs, max(1, Timeout)),
    Result = case SocketOptions of
                 #{tls := none} -> connect_native(Host, Port, Config, SocketOptions, BoundMs);
                 #{} -> connect_tls(Host, Port, Config, SocketOptions, BoundMs)
             end,
    case Result of
        {error, etimedout} when Timeout =< LimitMs -> {error, timeout};
        _ -> Result
    end.

%% TLS compares Host, as it is given, with the peer's certificate.
connect_tls(Host, Port, Config, #{ip := Own, family := Family} = SocketOptions, BoundMs) ->
    case resolve(Host, family(Family, Own)) of
        {ok, Ip} ->
            case inet_rdma_stream_tls:start() of
                ok -> inet_rdma_stream:connect(Host, Port, SocketOptions#{family := family_of(Ip)}, Config, BoundMs);
                Error -> Error
            end;
        Error ->
            Error
    end.

connect_native(Host, Port, Config, #{ip := Own, family := Family}, BoundMs) ->
    case {own_address(Own), resolve(Host, family(Family, Own))} of
        {{ok, From}, {ok, Ip}} -> connect_from(From, list_to_binary(inet:ntoa(Ip)), Port, Config, BoundMs);
        {{ok, _}, Error} -> Error;
        {Error, _} -> Error
    end.

connect_from(From, Address, Port, #{fabric := Fabric} = Config, BoundMs) ->
    case inet_rdma_nif:connect(Fabric, From, {Address, Port}, 0, BoundMs, Config) of
        {ok, Attempt, Id} ->
            %% The message comes once, with any outcome, and the attempt ends within BoundMs: no `after` here, so no
            %% message stays in the mailbox.
            receive {'$inet_rdma', Id, connected} -> ok end,
            case inet_rdma_nif:stream(Attempt, none) of
                {ok, Conn} -> {ok, Conn, Id};
                Error -> Error
            end;
        Error ->
            Error
    end.

%% Whether a host is this host.
-spec is_local(inet:hostname() | inet:ip_address()) -> {ok, boolean()} | {error, inet:posix()}.
is_local(Host) ->
    case resolve(Host, any) of
        {ok, Address} -> {ok, inet_rdma_nif:is_local(list_to_binary(inet:ntoa(Address)))};
        Error -> Error
    end.

%% An address of this host, as the native side takes it. <<>>: any.
-spec own_address(any | inet:ip_address()) -> {ok, binary()} | {error, eaddrnotavail}.
own_address(any) ->
    {ok, <<>>};
own_address(Ip) ->
    case is_local(Ip) of
        {ok, true} -> {ok, list_to_binary(inet:ntoa(Ip))};
        _ -> {error, eaddrnotavail}
    end.

resolve(Host, any) ->
    case inet:getaddr(Host, inet) of
        {ok, Address} -> {ok, Address};
        {error, _} -> inet:getaddr(Host, inet6)
    end;
resolve(Host, Family) ->
    inet:getaddr(Host, Family).

%% Without the option inet or inet6 the family is that of the option ip.
family(any, any) -> any;
family(any, Own) -> family_of(Own);
family(Family, _Own) -> Family.

family_of(Ip) when tuple_size(Ip) =:= 4 -> inet;
family_of(_Ip) -> inet6.

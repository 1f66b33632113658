%% The connecting side of streams, and the addresses of hosts.
-module(inet_rdma_connect).

-export([connect/3, is_local/1, own_address/1]).
%% Called by inet_rdma_bounded.
-export([addresses/2]).

%% Connects to a listener, by the native side or inside TLS first. The caller owns the stream.
%% timeout: Timeout has passed; etimedout: the time of the option connect_timeout_ms, which is
%% shorter.
-spec connect(inet:hostname() | inet:ip_address(), inet_rdma_socket:settings(), timeout()) ->
    {ok, inet_rdma_nif:conn(), Id :: pos_integer()} | {error, inet_rdma:reason()}.
connect(Host, {_Port, #{connect_timeout_ms := LimitMs}, SocketOptions} = Settings, Timeout) ->
    %% A number is less than any atom: infinity.
    BoundMs = min(LimitMs, max(1, Timeout)),
    Deadline = inet_rdma_clock:deadline(BoundMs),
    Result =
        case SocketOptions of
            #{tls := none} -> connect_native(Host, Settings, Deadline);
            #{} -> connect_tls(Host, Settings, Deadline)
        end,
    case Result of
        {error, etimedout} when Timeout =< LimitMs -> {error, timeout};
        _ -> Result
    end.

%% TLS compares Host, as it is given, with the peer's certificate.
connect_tls(Host, {Port, Config, #{ip := Own, family := Family} = SocketOptions}, Deadline) ->
    case resolve(Host, family(Family, Own), Deadline) of
        {ok, [Ip | _]} ->
            case inet_rdma_tls_stream_connection:start() of
                ok ->
                    LeftMs = max(1, inet_rdma_clock:left(Deadline)),
                    inet_rdma_tls_owner:connect(
                        Host,
                        Port,
                        SocketOptions#{family := family_of(Ip)},
                        Config,
                        LeftMs
                    );
                Error ->
                    Error
            end;
        Error ->
            Error
    end.

connect_native(Host, {Port, Config, #{ip := Own, family := Family}}, Deadline) ->
    case {own_address(Own), resolve(Host, family(Family, Own), Deadline)} of
        {{ok, From}, {ok, Ips}} -> connect_first(From, Ips, Port, Config, Deadline);
        {{ok, _}, Error} -> Error;
        {Error, _} -> Error
    end.

%% The first address at which the connection succeeds. Each has its share of the time that is left.
connect_first(From, [Ip | Others], Port, Config, Deadline) ->
    LeftMs = inet_rdma_clock:left(Deadline),
    case
        connect_from(
            From, inet_rdma_ip:text(Ip), Port, Config, max(1, LeftMs div (1 + length(Others)))
        )
    of
        {error, Reason} when Others =/= [], LeftMs > 0 ->
            case is_elsewhere(Reason) of
                true -> connect_first(From, Others, Port, Config, Deadline);
                false -> {error, Reason}
            end;
        Result ->
            Result
    end.

%% Whether another address of the peer may answer.
is_elsewhere({no_route, _}) ->
    true;
is_elsewhere(Reason) ->
    lists:member(Reason, [econnrefused, etimedout, ehostunreach, enetunreach, econnreset]).

connect_from(From, Address, Port, #{fabric := Fabric} = Config, BoundMs) ->
    case inet_rdma_nif:connect(Fabric, From, {Address, Port}, 0, BoundMs, Config) of
        {ok, Attempt, Id} ->
            %% The message comes once, with any outcome, and the attempt ends within BoundMs: no
            %% `after` here, so no message stays in the mailbox.
            receive
                {'$inet_rdma', Id, connected} -> ok
            end,
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
    case addresses(Host, any) of
        {ok, [Address | _]} -> {ok, inet_rdma_nif:is_local(inet_rdma_ip:text(Address))};
        Error -> Error
    end.

%% An address of this host, as the native side takes it. <<>>: any.
-spec own_address(any | inet:ip_address()) -> {ok, binary()} | {error, eaddrnotavail}.
own_address(any) ->
    {ok, <<>>};
own_address(Ip) ->
    case is_local(Ip) of
        {ok, true} -> {ok, inet_rdma_ip:text(Ip)};
        _ -> {error, eaddrnotavail}
    end.

%% The addresses of a host, within a time limit, as a name server might not answer.
resolve(Host, Family, _Deadline) when is_tuple(Host) ->
    addresses(Host, Family);
resolve(Host, Family, Deadline) ->
    case
        inet_rdma_bounded:call(?MODULE, addresses, [Host, Family], inet_rdma_clock:left(Deadline))
    of
        {ok, Result} -> Result;
        {exit, system_limit} -> {error, {system, starting_a_process, system_limit}};
        {exit, _Crash} -> {error, einval};
        timeout -> {error, etimedout}
    end.

-spec addresses(inet:hostname() | inet:ip_address(), any | inet | inet6) ->
    {ok, [inet:ip_address()]} | {error, inet:posix()}.
addresses(Host, any) ->
    case inet:getaddrs(Host, inet) of
        {ok, Addresses} -> {ok, Addresses};
        {error, _} -> inet:getaddrs(Host, inet6)
    end;
addresses(Host, Family) ->
    inet:getaddrs(Host, Family).

%% Without the option inet or inet6 the family is that of the option ip.
family(any, any) -> any;
family(any, Own) -> family_of(Own);
family(Family, _Own) -> Family.

family_of(Ip) when tuple_size(Ip) =:= 4 -> inet;
family_of(_Ip) -> inet6.

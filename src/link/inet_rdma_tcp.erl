%% OTP's distribution over TCP under this carrier, by the functions of inet_tcp_dist. inet_rdma_tls is its counterpart
%% over TLS.
-module(inet_rdma_tcp).

-export([listen/3, accept/2, select/2, address/1]).
-export([accepted/2, connect/4]).

-include_lib("kernel/include/dist_util.hrl").
-include_lib("kernel/include/logger.hrl").

listen(Driver, Name, Host) -> inet_tcp_dist:gen_listen(Driver, Name, Host).
accept(Driver, Listen) -> inet_tcp_dist:gen_accept(Driver, Listen).
select(Driver, Node) -> inet_tcp_dist:gen_select(Driver, Node).
address(Driver) -> inet_tcp_dist:gen_address(Driver).

%% The connection that inet_tcp_dist has accepted. It does not return if the peer's address is not allowed.
-spec accepted(inet_rdma_transport:driver(), inet:socket()) -> inet_rdma_transport:t().
accepted(Driver, Socket) ->
    check_ip(Driver, Socket),
    inet_rdma_transport:tcp(Driver, Socket).

%% The kernel parameter check_ip: only peers of a network of this host, as with inet_tcp.
check_ip(Driver, Socket) ->
    case application:get_env(kernel, check_ip) of
        {ok, true} ->
            case {inet:peername(Socket), inet:getif(Socket)} of
                {{ok, {Ip, _}}, {ok, Interfaces}} -> check_ip(Driver, Ip, Interfaces);
                %% The peer has reset the connection: no crash report, as with inet_tcp.
                _ -> ?shutdown(no_node)
            end;
        _ ->
            true
    end.

check_ip(Driver, Ip, Interfaces) ->
    lists:any(fun({Own, _, Mask}) -> Driver:mask(Mask, Ip) =:= Driver:mask(Mask, Own) end, Interfaces)
        orelse begin
                   ?LOG_ERROR("** Connection attempt from disallowed IP ~w **", [Ip]),
                   ?shutdown(no_node)
               end.

%% The caller owns the connection. Options: of the socket.
-spec connect(inet_rdma_transport:driver(), {inet:ip_address(), inet:port_number()}, [gen_tcp:option()], timeout()) ->
          {ok, inet_rdma_transport:t()} | {error, term()}.
connect(Driver, {Ip, TcpPort}, Options, TimeoutMs) ->
    case Driver:connect(Ip, TcpPort, Options ++ [{active, false}, {packet, 2}], TimeoutMs) of
        {ok, Socket} -> {ok, inet_rdma_transport:tcp(Driver, Socket)};
        Error -> Error
    end.

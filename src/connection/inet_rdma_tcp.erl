%% OTP's distribution over TCP under this carrier: the functions of inet_tcp_dist, and copies of
%% what it does not export (split/3, find/3, accepted/2), from OTP 25. inet_rdma_tls is the
%% counterpart over TLS, where nodes are found by this module, too.
%%
%% A name that is not legal and a node that is not found end the calling process, a connection
%% supervisor, as with inet_tcp.
-module(inet_rdma_tcp).

-export([listen/3, select/2, address/1]).
-export([accepted/2, connect/4]).
-export([find/3, split/3, name_and_host/1, is_node_name/1, places/3, port_please/2, asks_epmd/2]).

-include_lib("kernel/include/dist_util.hrl").
-include_lib("kernel/include/logger.hrl").

%% An address of a node's host, and the port of its listener where that is known without its name
%% server.
-type place() :: {inet:ip_address(), unknown | {inet:port_number(), Version :: term()}}.

%% Bytes of a node's name: 255 characters at most, in UTF-8.
-define(NODE_BYTES_MAX, 1020).

%% Addresses of one name.
-define(ADDRESSES_MAX, 4).

%% The version of the handshake of all nodes since OTP 23 ("Distribution Handshake" in the ERTS
%% documentation).
-define(VERSION, 6).

listen(Driver, Name, Host) -> inet_tcp_dist:gen_listen(Driver, Name, Host).

%% As inet_tcp_dist, which has OTP load the modules of Unicode for it: most of the time that an
%% initiator needs for its first link.
select(Driver, Node) ->
    case parts(atom_to_list(Node)) of
        {Name, Host} -> is_found(address_please(Driver, Name, Host));
        error -> false
    end.

is_found({ok, _Ip}) -> true;
is_found({ok, _Ip, _TcpPort, _Version}) -> true;
is_found(_) -> false.
address(Driver) -> inet_tcp_dist:gen_address(Driver).

%% The connection that inet_rdma_acceptor has accepted. It does not return if the peer's address is
%% not allowed.
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
    lists:any(
        fun({Own, _, Mask}) -> Driver:mask(Mask, Ip) =:= Driver:mask(Mask, Own) end, Interfaces
    ) orelse
        begin
            ?LOG_ERROR("** Connection attempt from disallowed IP ~w **", [Ip]),
            ?shutdown(no_node)
        end.

%% The caller owns the connection. Options: of the socket.
-spec connect(
    inet_rdma_transport:driver(),
    {inet:ip_address(), inet:port_number()},
    [inet_rdma_transport:option()],
    timeout()
) ->
    {ok, inet_rdma_transport:t()} | {error, term()}.
connect(Driver, Address, Options, TimeoutMs) ->
    Reading = [{active, false}, {packet, 2}, inet_rdma_transport:first_packet()],
    case inet_rdma_transport:open(Driver, Address, Options ++ Reading, TimeoutMs) of
        {ok, Socket} -> {ok, inet_rdma_transport:tcp(Driver, Socket)};
        Error -> Error
    end.

-spec find(inet_rdma_transport:driver(), node(), longnames | shortnames) ->
    {Host :: string(), {inet:ip_address(), inet:port_number()}, Version :: term()}.
find(Driver, Node, LongOrShortNames) ->
    {Name, Host} = split(Driver, Node, LongOrShortNames),
    case address_please(Driver, Name, Host) of
        {ok, Ip, TcpPort, Version} ->
            {Host, {Ip, TcpPort}, Version};
        {ok, Ip} ->
            case (net_kernel:epmd_module()):port_please(Name, Ip) of
                {port, TcpPort, Version} -> {Host, {Ip, TcpPort}, Version};
                _ -> ?shutdown(Node)
            end;
        _ ->
            ?shutdown(Node)
    end.

%% Long names have a dot in the host or are an address; short ones have none.
-spec split(inet_rdma_transport:driver(), node(), longnames | shortnames) ->
    {Name :: string(), Host :: string()}.
split(Driver, Node, LongOrShortNames) ->
    case parts(atom_to_list(Node)) of
        {Name, Host} ->
            case {LongOrShortNames, lists:member($., Host), Driver:parse_address(Host)} of
                {longnames, false, {error, _}} ->
                    ?LOG_ERROR(
                        "** System running to use fully qualified hostnames **~n** Hostname ~ts is "
                        "illegal **",
                        [Host]
                    ),
                    ?shutdown(Node);
                {shortnames, true, _} ->
                    ?LOG_ERROR(
                        "** System NOT running to use fully qualified hostnames **~n"
                        "** Hostname ~ts is illegal **",
                        [Host]
                    ),
                    ?shutdown(Node);
                _ ->
                    {Name, Host}
            end;
        error ->
            ?LOG_ERROR("** Nodename ~tp illegal **", [Node]),
            ?shutdown(Node)
    end.

%% The parts of the name of a node that has had a link.
-spec name_and_host(Node :: binary()) -> {Name :: string(), Host :: string()}.
name_and_host(Node) ->
    {_, _} = parts(binary_to_list(Node)).

parts(Node) ->
    case lists:splitwith(fun(Char) -> Char =/= $@ end, Node) of
        {[_ | _] = Name, [$@ | [_ | _] = Host]} ->
            case lists:member($@, Host) of
                false -> {Name, Host};
                true -> error
            end;
        _ ->
            error
    end.

%% Whether these bytes of a peer may be the name of a node.
-spec is_node_name(binary()) -> boolean().
is_node_name(Bytes) ->
    Bytes =/= <<>> andalso byte_size(Bytes) =< ?NODE_BYTES_MAX andalso
        unicode:characters_to_binary(Bytes) =:= Bytes.

%% As the EPMD module answers, or OTP's for one that has no such function.
address_please(Driver, Name, Host) ->
    Epmd = net_kernel:epmd_module(),
    Resolver =
        case erlang:function_exported(Epmd, address_please, 3) of
            true -> Epmd;
            false -> erl_epmd
        end,
    Resolver:address_please(Name, Host, Driver:family()).

%% All addresses that the EPMD module or the name of the host gives.
-spec places(inet_rdma_transport:driver(), Name :: string(), Host :: string()) -> [place()].
places(Driver, Name, Host) ->
    case address_please(Driver, Name, Host) of
        {ok, Ip, TcpPort, Version} ->
            [{Ip, {TcpPort, Version}}];
        {ok, Ip} ->
            [{Each, unknown} || Each <- [Ip | others(net_kernel:epmd_module(), Host, Ip, Driver)]];
        _ ->
            []
    end.

%% A name can have more than one address. An EPMD module of its own has chosen one.
others(erl_epmd, Host, First, Driver) ->
    case inet:getaddrs(Host, Driver:family()) of
        {ok, Ips} -> lists:sublist(lists:delete(First, Ips), ?ADDRESSES_MAX - 1);
        {error, _} -> []
    end;
others(_Epmd, _Host, _First, _Driver) ->
    [].

%% unknown: the name server at this address does not know the node. OTP's EPMD module says `noport`
%% also of one that does not answer; only its list of names shows that it has. A connection that ends
%% before the answer gives an empty list, as where a firewall begins to reset what passes between two
%% hosts: the node is unknown if the next list lacks it, too.
-spec port_please(Name :: string(), inet:ip_address()) ->
    {ok, {inet:port_number(), Version :: term()}} | unknown | no_answer.
port_please(Name, Ip) ->
    Epmd = net_kernel:epmd_module(),
    case Epmd:port_please(Name, Ip) of
        {port, TcpPort, Version} ->
            {ok, {TcpPort, Version}};
        _ ->
            case listed(Epmd, Name, Ip) of
                unknown -> listed(Epmd, Name, Ip);
                Answer -> Answer
            end
    end.

listed(Epmd, Name, Ip) ->
    case erlang:function_exported(Epmd, names, 1) andalso Epmd:names(Ip) of
        {ok, Names} when is_list(Names) ->
            case lists:keyfind(Name, 1, Names) of
                {Name, TcpPort} -> {ok, {TcpPort, ?VERSION}};
                false -> unknown
            end;
        _ ->
            no_answer
    end.

%% Whether the port of this node comes from EPMD itself: OTP's module gives the one of the VM's flag
%% -erl_epmd_port without asking.
-spec asks_epmd(Name :: string(), Host :: string()) -> boolean().
asks_epmd(Name, Host) ->
    net_kernel:epmd_module() =:= erl_epmd andalso
        erl_epmd:listen_port_please(Name, Host) =:= {ok, 0}.

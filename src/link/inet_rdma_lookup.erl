%% Where a node listens: its name is taken apart, and its EPMD is asked.
%%
%% A name that is not legal and a node that is not found end the calling process, a connection supervisor, as with
%% inet_tcp.
-module(inet_rdma_lookup).

-export([find/3, split/3, name_and_host/1, address_please/2, others/4, places/3, port_please/2]).

-include_lib("kernel/include/dist_util.hrl").
-include_lib("kernel/include/logger.hrl").

%% An address of a node's host, and the port of its listener where that is known without its name server.
-type place() :: {inet:ip_address(), unknown | {inet:port_number(), Version :: term()}}.

%% Addresses of one name.
-define(ADDRESSES_MAX, 4).

-spec find(inet_rdma_transport:driver(), node(), longnames | shortnames) ->
          {Host :: string(), {inet:ip_address(), inet:port_number()}, Version :: term()}.
find(Driver, Node, LongOrShortNames) ->
    {Name, Host} = split(Driver, Node, LongOrShortNames),
    {Ip, TcpPort, Version} = ask(Driver, Node, Name, Host),
    {Host, {Ip, TcpPort}, Version}.

%% Long names have a dot in the host or are an address; short ones have none. As in inet_tcp_dist of OTP 25.
-spec split(inet_rdma_transport:driver(), node(), longnames | shortnames) -> {Name :: string(), Host :: string()}.
split(Driver, Node, LongOrShortNames) ->
    case dist_util:split_node(Node) of
        {node, Name, Host} ->
            case {LongOrShortNames, lists:member($., Host), Driver:parse_address(Host)} of
                {longnames, false, {error, _}} ->
                    ?LOG_ERROR("** System running to use fully qualified hostnames **~n** Hostname ~ts is illegal **",
                               [Host]),
                    ?shutdown(Node);
                {shortnames, true, _} ->
                    ?LOG_ERROR("** System NOT running to use fully qualified hostnames **~n"
                               "** Hostname ~ts is illegal **", [Host]),
                    ?shutdown(Node);
                _ ->
                    {Name, Host}
            end;
        _ ->
            ?LOG_ERROR("** Nodename ~tp illegal **", [Node]),
            ?shutdown(Node)
    end.

%% The parts of the name of a node that has had a link.
-spec name_and_host(Node :: binary()) -> {Name :: string(), Host :: string()}.
name_and_host(Node) ->
    [Name, Host] = string:split(binary_to_list(Node), "@"),
    {Name, Host}.

ask(Driver, Node, Name, Host) ->
    Epmd = net_kernel:epmd_module(),
    case address_please(Epmd, [Name, Host, Driver:family()]) of
        {ok, Ip, TcpPort, Version} ->
            {Ip, TcpPort, Version};
        {ok, Ip} ->
            case Epmd:port_please(Name, Ip) of
                {port, TcpPort, Version} -> {Ip, TcpPort, Version};
                _ -> ?shutdown(Node)
            end;
        _ ->
            ?shutdown(Node)
    end.

%% As the EPMD module answers, or OTP's for one that has no such function. Arguments: name, host and family.
-spec address_please(Epmd :: module(), [term()]) -> {ok, inet:ip_address(), inet:port_number(), term()}
          | {ok, inet:ip_address()} | {error, term()}.
address_please(Epmd, Arguments) ->
    case erlang:function_exported(Epmd, address_please, 3) of
        true -> apply(Epmd, address_please, Arguments);
        false -> apply(erl_epmd, address_please, Arguments)
    end.

%% All addresses that the EPMD module or the name of the host gives.
-spec places(inet_rdma_transport:driver(), Name :: string(), Host :: string()) -> [place()].
places(Driver, Name, Host) ->
    Epmd = net_kernel:epmd_module(),
    case address_please(Epmd, [Name, Host, Driver:family()]) of
        {ok, Ip, TcpPort, Version} -> [{Ip, {TcpPort, Version}}];
        {ok, Ip} -> [{Each, unknown} || Each <- [Ip | others(Epmd, Host, Ip, Driver)]];
        _ -> []
    end.

%% A name can have more than one address. An EPMD module of its own has chosen one.
-spec others(Epmd :: module(), Host :: string(), First :: inet:ip_address(), inet_rdma_transport:driver()) ->
          [inet:ip_address()].
others(erl_epmd, Host, First, Driver) ->
    case inet:getaddrs(Host, Driver:family()) of
        {ok, Ips} -> lists:sublist(lists:delete(First, Ips), ?ADDRESSES_MAX - 1);
        {error, _} -> []
    end;
others(_Epmd, _Host, _First, _Driver) -> [].

%% unknown: the name server at this address does not know the node. OTP's EPMD module says `noport` also of one that
%% does not answer; only its list of names shows that it has.
-spec port_please(Name :: string(), inet:ip_address()) ->
          {ok, {inet:port_number(), Version :: term()}} | unknown | no_answer.
port_please(Name, Ip) ->
    Epmd = net_kernel:epmd_module(),
    case Epmd:port_please(Name, Ip) of
        {port, TcpPort, Version} -> {ok, {TcpPort, Version}};
        _ ->
            case erlang:function_exported(Epmd, names, 1) andalso Epmd:names(Ip) of
                {ok, Names} when is_list(Names) -> unknown;
                _ -> no_answer
            end
    end.

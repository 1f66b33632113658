%% The distribution carrier: `erl -proto_dist inet_rdma`.
%%
%% A node that runs it is an inet_tcp node to all others: it listens, accepts, registers and connects as inet_tcp_dist does, by
%% that module's functions. A link to a node that runs it, too, moves to shared memory or to an RDMA device once both have
%% proved the cookie. The parties of a link:
%%
%% * the connection supervisor: process of dist_util, spawned here (do_accept/7, do_setup/7). Handshake over TCP, settlement
%%   (inet_rdma_settlement), then ticks;
%% * the TCP socket on which the link began. A link that stays on TCP is carried by it, as with inet_tcp. Else it stays open
%%   and silent: its end is the link's end. With the option `security tls` it is TLS's (inet_rdma_bootstrap, inet_rdma_tls);
%% * the port: a linked-in driver in the NIF's library (native/port), linked to the supervisor, and the VM's distribution
%%   controller once the link has moved. It takes packets from the VM and gives packets to the VM;
%% * the guard (inet_rdma_link): a sleeping process that owns the socket, and says in the log why a link ended;
%% * the peer.
%%
%% Polling threads have no part in a link: the VM's own poll set watches its descriptors.
-module(inet_rdma_dist).

-export([listen/1, listen/2, accept/1, accept_connection/5, setup/5, close/1, select/1, address/0, is_node_name/1]).
-export([setopts/2, getopts/2, childspecs/0]).
%% For other address families: inet6_rdma_dist.
-export([gen_listen/3, gen_accept/2, gen_accept_connection/6, gen_setup/6, gen_select/2, gen_address/1]).
%% Spawned, or called through #hs_data{}: by name, so that the module can be loaded anew under living links.
-export([do_accept/7, do_setup/7]).
-export([send/2, recv/3, pre_nodeup/1, post_nodeup/1, getll/1, handshake_complete/3, address_of/2, tick/1, getstat/1]).

-include_lib("kernel/include/dist.hrl").
-include_lib("kernel/include/dist_util.hrl").
-include_lib("kernel/include/net_address.hrl").
-include_lib("kernel/include/logger.hrl").

%% State of the supervisor, in its process dictionary: the functions of #hs_data{} get no argument but the socket.
-record(supervised, {
    driver :: inet_rdma_bootstrap:driver(),
    connection :: inet_rdma_bootstrap:t(),
    role :: initiator | acceptor,
    %% The peer's name; of one that has none yet, its host.
    node = <<>> :: binary(),
    %% An initiator's: where the peer listens.
    address :: undefined | #net_address{},
    config :: inet_rdma_options:config(),
    %% This node's, and the peer's.
    own_offer = none :: inet_rdma_offer:offer(),
    offer = none :: inet_rdma_offer:offer(),
    %% none: the connection on which it began carries it.
    over = none :: none | inet_rdma_link:link(),
    %% Why it is over that.
    why = <<>> :: binary()
}).

-define(DRIVER, inet_tcp).

%% The option security, as of the start of the distribution: a link that is made later is no weaker.
-define(SECURITY, {?MODULE, security}).

listen(Name) ->
    {ok, Host} = inet:gethostname(),
    listen(Name, Host).

listen(Name, Host) -> gen_listen(?DRIVER, Name, Host).
accept(Listen) -> gen_accept(?DRIVER, Listen).
accept_connection(AcceptPid, Socket, MyNode, Allowed, SetupTime) ->
    gen_accept_connection(?DRIVER, AcceptPid, Socket, MyNode, Allowed, SetupTime).
setup(Node, Type, MyNode, LongOrShortNames, SetupTime) ->
    gen_setup(?DRIVER, Node, Type, MyNode, LongOrShortNames, SetupTime).
select(Node) -> gen_select(?DRIVER, Node).
address() -> gen_address(?DRIVER).
close(Listen) -> inet_tcp_dist:close(Listen).

-spec is_node_name(term()) -> boolean().
is_node_name(Node) -> inet_tcp_dist:is_node_name(Node).

%% Supervisors to be started before net_kernel.
childspecs() ->
    case inet_rdma_options:node() of
        {ok, #{security := tls}} -> inet_rdma_tls:childspecs();
        _ -> {ok, []}
    end.

gen_listen(Driver, Name, Host) ->
    case start() of
        ok -> listen_over(security(), Driver, Name, Host);
        Error -> Error
    end.

listen_over(none, Driver, Name, Host) -> inet_tcp_dist:gen_listen(Driver, Name, Host);
listen_over(tls, Driver, Name, Host) -> inet_rdma_tls:listen(Driver, Name, Host).

gen_accept(Driver, Listen) ->
    case security() of
        none -> inet_tcp_dist:gen_accept(Driver, Listen);
        tls -> inet_rdma_tls:accept(Driver, Listen)
    end.

gen_select(Driver, Node) ->
    case security() of
        none -> inet_tcp_dist:gen_select(Driver, Node);
        tls -> inet_rdma_tls:select(Driver, Node)
    end.

%% Of a node that does not listen: net_kernel calls nothing else when it starts.
gen_address(Driver) ->
    _ = start(),
    case security() of
        none -> inet_tcp_dist:gen_address(Driver);
        tls -> inet_rdma_tls:address(Driver)
    end.

%% In net_kernel's process. A wrong option is an error of the node's start; a library that cannot be loaded is not: all links
%% stay on TCP then, and say so.
start() ->
    inet_rdma_links:start(),
    case inet_rdma_options:node() of
        {ok, #{security := Security}} ->
            persistent_term:put(?SECURITY, Security),
            load(check_security(Security));
        {error, Reason} ->
            %% A node that does not listen goes on: with the stronger of both, as its options may be mended while it runs.
            persistent_term:put(?SECURITY, tls),
            ?LOG_ERROR("~ts", [inet_rdma_options:format_error(Reason)]),
            {error, Reason}
    end.

load(ok) ->
    case inet_rdma_nif:load() of
        ok -> ok;
        {error, Reason} -> ?LOG_ERROR("inet_rdma: all links stay on TCP: ~ts", [inet_rdma:format_error(Reason)])
    end;
load(Error) ->
    Error.

check_security(none) ->
    ok;
check_security(tls) ->
    case inet_rdma_tls:check() of
        ok -> ok;
        {error, Why} ->
            ?LOG_ERROR("inet_rdma: the option security is tls, and ~ts", [Why]),
            {error, {security, Why}}
    end.

security() -> persistent_term:get(?SECURITY, none).

gen_accept_connection(Driver, AcceptPid, Accepted, MyNode, Allowed, SetupTime) ->
    spawn_opt(?MODULE, do_accept, [Driver, self(), AcceptPid, Accepted, MyNode, Allowed, SetupTime],
              dist_util:net_ticker_spawn_options()).

do_accept(Driver, Kernel, AcceptPid, Accepted, MyNode, Allowed, SetupTime) ->
    Ref = monitor(process, AcceptPid),
    receive
        {AcceptPid, controller} ->
            demonitor(Ref, [flush]),
            Timer = dist_util:start_timer(SetupTime),
            {Connection, Permitted} = accepted(security(), Driver, Accepted, Allowed),
            keep(#supervised{driver = Driver, connection = Connection, role = acceptor, config = config(no_node)}),
            Data = hs_data(Connection),
            dist_util:handshake_other_started(
              Data#hs_data{kernel_pid = Kernel, this_node = MyNode, timer = Timer, allowed = Permitted});
        %% Over TLS each connection has an accepting process of its own, which may find it closed.
        {AcceptPid, exit} ->
            ?shutdown2(no_node, connection_setup_failed);
        {'DOWN', Ref, process, AcceptPid, _} ->
            ?shutdown2(no_node, connection_setup_failed)
    end.

accepted(none, Driver, Socket, Allowed) ->
    check_ip(Driver, Socket),
    {inet_rdma_bootstrap:tcp(Driver, Socket), Allowed};
accepted(tls, _Driver, Accepted, Allowed) ->
    Connection = inet_rdma_tls:accepted(Accepted),
    {Connection, inet_rdma_tls:allowed(Connection, Allowed)}.

%% The kernel parameter check_ip: only peers of a network of this host, as with inet_tcp.
check_ip(Driver, Socket) ->
    case application:get_env(kernel, check_ip) of
        {ok, true} ->
            {ok, {Ip, _}} = inet:peername(Socket),
            {ok, Interfaces} = inet:getif(Socket),
            lists:any(fun({Own, _, Mask}) -> Driver:mask(Mask, Ip) =:= Driver:mask(Mask, Own) end, Interfaces)
                orelse begin
                           ?LOG_ERROR("** Connection attempt from disallowed IP ~w **", [Ip]),
                           ?shutdown(no_node)
                       end;
        _ ->
            true
    end.

gen_setup(Driver, Node, Type, MyNode, LongOrShortNames, SetupTime) ->
    spawn_opt(?MODULE, do_setup, [Driver, self(), Node, Type, MyNode, LongOrShortNames, SetupTime],
              dist_util:net_ticker_spawn_options()).

do_setup(Driver, Kernel, Node, Type, MyNode, LongOrShortNames, SetupTime) ->
    Timer = dist_util:start_timer(SetupTime),
    {Name, Host} = split_node(Driver, Node, LongOrShortNames),
    {Ip, TcpPort, Version} = find_node(Driver, Node, Name, Host),
    dist_util:reset_timer(Timer),
    Connection = connect(security(), Driver, Node, Host, {Ip, TcpPort}),
    Protocol = inet_rdma_bootstrap:protocol(Connection),
    Address = #net_address{address = {Ip, TcpPort}, host = Host, protocol = Protocol, family = Driver:family()},
    keep(#supervised{driver = Driver, connection = Connection, role = initiator, node = atom_to_binary(Node),
                     address = Address, config = config(Node)}),
    Data = hs_data(Connection),
    dist_util:handshake_we_started(
      Data#hs_data{kernel_pid = Kernel, other_node = Node, this_node = MyNode, timer = Timer,
                   other_version = Version, request_type = Type}).

%% Long names have a dot in the host or are an address; short ones have none.
split_node(Driver, Node, LongOrShortNames) ->
    case string:split(atom_to_list(Node), "@", all) of
        [Name, [_ | _] = Host] ->
            case {LongOrShortNames, lists:member($., Host), Driver:parse_address(Host)} of
                {longnames, false, {error, _}} ->
                    ?LOG_ERROR("** System running to use fully qualified hostnames **~n** Hostname ~ts is illegal **",
                               [Host]),
                    ?shutdown(Node);
                {shortnames, true, _} ->
                    ?LOG_ERROR("** System NOT running to use fully qualified hostnames **~n** Hostname ~ts is illegal **",
                               [Host]),
                    ?shutdown(Node);
                _ ->
                    {Name, Host}
            end;
        _ ->
            ?LOG_ERROR("** Nodename ~tp illegal **", [Node]),
            ?shutdown(Node)
    end.

%% Where a node listens, as its EPMD says.
find_node(Driver, Node, Name, Host) ->
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

address_please(Epmd, Arguments) ->
    case erlang:function_exported(Epmd, address_please, 3) of
        true -> apply(Epmd, address_please, Arguments);
        false -> apply(erl_epmd, address_please, Arguments)
    end.

connect(none, Driver, Node, _Host, {Ip, TcpPort}) ->
    case Driver:connect(Ip, TcpPort, connect_options() ++ [{active, false}, {packet, 2}]) of
        {ok, Socket} -> inet_rdma_bootstrap:tcp(Driver, Socket);
        _ -> ?shutdown(Node)
    end;
connect(tls, Driver, Node, Host, To) ->
    case inet_rdma_tls:connect(Driver, To, Host, connect_options()) of
        {ok, Connection} -> Connection;
        Error -> ?shutdown2(Node, {ssl_connect_failed, To, Error})
    end.

connect_options() ->
    application:get_env(kernel, inet_dist_connect_options, []).

config(Node) ->
    case inet_rdma_options:node() of
        {ok, Config} ->
            Config;
        {error, Reason} ->
            ?LOG_ERROR("~ts", [inet_rdma_options:format_error(Reason)]),
            ?shutdown2(Node, Reason)
    end.

hs_data(Connection) ->
    #hs_data{
       socket = inet_rdma_bootstrap:handle(Connection),
       this_flags = 0,
       f_send = fun ?MODULE:send/2,
       f_recv = fun ?MODULE:recv/3,
       f_setopts_pre_nodeup = fun ?MODULE:pre_nodeup/1,
       f_setopts_post_nodeup = fun ?MODULE:post_nodeup/1,
       f_getll = fun ?MODULE:getll/1,
       f_handshake_complete = fun ?MODULE:handshake_complete/3,
       f_address = fun ?MODULE:address_of/2,
       mf_tick = fun ?MODULE:tick/1,
       mf_getstat = fun ?MODULE:getstat/1,
       mf_setopts = fun ?MODULE:setopts/2,
       mf_getopts = fun ?MODULE:getopts/2}.

keep(Supervised) -> put(?MODULE, Supervised).
kept() -> get(?MODULE).

%% A handshake message; behind this node's name goes the offer.
send(_Socket, Message) ->
    #supervised{connection = Connection, role = Role} = Supervised = kept(),
    inet_rdma_bootstrap:send(Connection, offering(iolist_to_binary(Message), Role, Supervised)).

%% The acceptor gives a name to a node that has none.
offering(<<"snamed:", Length:16, Name:Length/binary, _/binary>> = Message, _Role, Supervised) ->
    keep(Supervised#supervised{node = Name}),
    Message;
offering(<<$N, _/binary>> = Message, Role, #supervised{config = Config, node = Node} = Supervised) ->
    Offer = inet_rdma_offer:offer(Config, inet_rdma_settlement_outcome:broken_off(Node) =:= none),
    keep(Supervised#supervised{own_offer = Offer}),
    inet_rdma_offer:append(Role, Message, Offer);
offering(Message, _Role, _Supervised) ->
    Message.

%% dist_util wants lists.
recv(_Socket, Length, Timeout) ->
    #supervised{connection = Connection} = Supervised = kept(),
    case inet_rdma_bootstrap:recv(Connection, Length, Timeout) of
        {ok, Message} when is_binary(Message) -> received(binary_to_list(Message), Supervised);
        {ok, Message} -> received(Message, Supervised);
        Error -> Error
    end.

received([$N | _] = Message, #supervised{role = Role, node = Known} = Supervised) ->
    {Name, Offer} = inet_rdma_offer:parse(Role, list_to_binary(Message)),
    Node = case Role of
               initiator -> Known;
               acceptor -> Name
           end,
    keep(Supervised#supervised{node = Node, offer = Offer}),
    {ok, Message};
received(Message, _Supervised) ->
    {ok, Message}.

%% Both sides have proved the cookie, and the VM does not know the link yet: the place to settle how it is carried.
pre_nodeup(_Socket) ->
    #supervised{role = Role, connection = Connection, node = Node, config = Config, own_offer = Own, offer = Offer} =
        Supervised = kept(),
    Protocol = atom_to_binary(inet_rdma_bootstrap:protocol(Connection)),
    case inet_rdma_settlement:settle(Role, Connection, Node, Config, Own, Offer) of
        {move, Link, Why} ->
            keep(Supervised#supervised{over = Link, why = Why}),
            settled(info, up, Node, Connection, inet_rdma_link:fabric(Link), Why);
        {stay, Why, Tried} ->
            inet_rdma_links:count({stayed, Tried}),
            %% Between two nodes that run this carrier the operator may expect shared memory or a device.
            Level = case Offer of
                        none -> info;
                        _ -> notice
                    end,
            keep(Supervised#supervised{why = Why}),
            settled(Level, fallback, Node, Connection, Protocol, Why),
            inet_rdma_bootstrap:before_nodeup(Connection);
        {refuse, Why} ->
            inet_rdma_links:count(refused),
            ?LOG_WARNING("inet_rdma: no link to ~ts: the option required forbids ~ts, and ~ts",
                         [Node, string:uppercase(Protocol), Why], not_up(refused, Node, Why)),
            {error, required};
        {error, Why} ->
            inet_rdma_links:count(settlement_failed),
            ?LOG_WARNING("inet_rdma: no link to ~ts: ~ts", [Node, Why], not_up(failed, Node, Why)),
            {error, not_settled}
    end.

not_up(Kind, Node, Why) ->
    inet_rdma_link_event:metadata(inet_rdma_link_event:new(Kind, Node, undefined, Why)).

settled(Level, Kind, Node, Connection, Fabric, Why) ->
    inet_rdma_links:insert(Node, Connection, Fabric, Why),
    Event = inet_rdma_link_event:new(Kind, Node, Fabric, Why),
    ?LOG(Level, "inet_rdma: ~ts over ~ts; ~ts", [Node, Fabric, Why], inet_rdma_link_event:metadata(Event)),
    ok.

post_nodeup(_Socket) ->
    case kept() of
        #supervised{over = none, connection = Connection} = Supervised ->
            told(fallback, Supervised, inet_rdma_bootstrap:after_nodeup(Connection));
        #supervised{over = Link, connection = Connection, node = Node} = Supervised ->
            told(up, Supervised, inet_rdma_link:start(Link, Connection, Node))
    end.

told(Kind, #supervised{node = Node, why = Why} = Supervised, ok) ->
    inet_rdma_link_event:tell(inet_rdma_link_event:new(Kind, Node, fabric(Supervised), Why), #{count => 1});
told(_Kind, _Supervised, Error) ->
    Error.

fabric(#supervised{over = none, connection = Connection}) -> atom_to_binary(inet_rdma_bootstrap:protocol(Connection));
fabric(#supervised{over = Link}) -> inet_rdma_link:fabric(Link).

getll(_Socket) ->
    case kept() of
        #supervised{over = none, connection = Connection} -> inet_rdma_bootstrap:controller(Connection);
        #supervised{over = Link} -> {ok, inet_rdma_link:port(Link)}
    end.

handshake_complete(_Socket, Node, Handle) ->
    case kept() of
        #supervised{over = none, connection = Connection} ->
            inet_rdma_bootstrap:handshake_complete(Connection, Node, Handle);
        #supervised{} ->
            ok
    end.

address_of(_Socket, Node) ->
    case kept() of
        #supervised{role = initiator, address = Address} ->
            Address;
        #supervised{driver = Driver, connection = Connection} ->
            {ok, Address} = inet_rdma_bootstrap:peername(Connection),
            [_, Host] = string:split(atom_to_list(Node), "@"),
            #net_address{address = Address, host = Host, protocol = inet_rdma_bootstrap:protocol(Connection),
                         family = Driver:family()}
    end.

tick(_Socket) ->
    case kept() of
        #supervised{over = none, connection = Connection} -> inet_rdma_bootstrap:tick(Connection);
        #supervised{over = Link} -> inet_rdma_link:tick(Link)
    end.

getstat(_Socket) ->
    case kept() of
        #supervised{over = none, connection = Connection} -> inet_rdma_bootstrap:getstat(Connection);
        #supervised{over = Link} -> inet_rdma_link:getstat(Link)
    end.

%% Of the listening socket, or of the connection of a link: over RDMA it only shows whether the peer lives ({keepalive, true}).
setopts(Socket, Options) ->
    case kept() of
        #supervised{connection = Connection} -> inet_rdma_bootstrap:setopts(Connection, Options);
        undefined -> inet_tcp_dist:setopts(Socket, Options)
    end.

%% Options of this carrier have the values that the link was made with.
getopts(Socket, Keys) ->
    case kept() of
        #supervised{config = Config} when is_map_key(hd(Keys), Config) -> inet_rdma_options:values(Config, Keys);
        #supervised{connection = Connection} -> inet_rdma_bootstrap:getopts(Connection, Keys);
        undefined -> inet:getopts(Socket, Keys)
    end.

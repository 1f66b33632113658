%% The distribution carrier: `erl -proto_dist inet_rdma`.
%%
%% A node that runs it is an inet_tcp node to all others: it listens, accepts, registers and connects as inet_tcp_dist does, by
%% that module's functions. A link to a node that runs it, too, moves to shared memory or to an RDMA device once both have
%% proved the cookie. The parties of a link:
%%
%% * the connection supervisor: process of dist_util, spawned here (do_accept/7, do_setup/7). Handshake over TCP, settlement
%%   (inet_rdma_settlement), then ticks;
%% * the TCP socket on which the link began. A link that stays on TCP is carried by it, as with inet_tcp. Else it stays open
%%   and silent: its end is the link's end;
%% * the port: a linked-in driver in the NIF's library (native/port), linked to the supervisor, and the VM's distribution
%%   controller once the link has moved. It takes packets from the VM and gives packets to the VM;
%% * the guard (inet_rdma_link): a sleeping process that owns the socket, and says in the log why a link ended;
%% * the peer.
%%
%% Polling threads have no part in a link: the VM's own poll set watches its descriptors.
-module(inet_rdma_dist).

-export([listen/1, listen/2, accept/1, accept_connection/5, setup/5, close/1, select/1, address/0, is_node_name/1]).
-export([setopts/2, getopts/2]).
%% For other address families: inet6_rdma_dist.
-export([gen_listen/3, gen_accept/2, gen_accept_connection/6, gen_setup/6, gen_select/2, gen_address/1]).
%% Spawned, or called through #hs_data{}: by name, so that the module can be loaded anew under living links.
-export([do_accept/7, do_setup/7]).
-export([send/2, recv/3, pre_nodeup/1, post_nodeup/1, getll/1, address_of/2, tick/1, getstat/1]).

-include_lib("kernel/include/dist.hrl").
-include_lib("kernel/include/dist_util.hrl").
-include_lib("kernel/include/net_address.hrl").
-include_lib("kernel/include/logger.hrl").

%% State of the supervisor, in its process dictionary: the functions of #hs_data{} get no argument but the socket.
-record(supervised, {
    driver :: inet_tcp | inet6_tcp,
    role :: initiator | acceptor,
    %% The peer's name; of one that has none yet, its host.
    node = <<>> :: binary(),
    %% An initiator's: where the peer listens.
    address :: undefined | #net_address{},
    config :: inet_rdma_options:config(),
    %% This node's, and the peer's.
    own_offer = none :: inet_rdma_offer:offer(),
    offer = none :: inet_rdma_offer:offer(),
    over = tcp :: tcp | inet_rdma_link:link(),
    %% Why it is over that.
    why = <<>> :: binary()
}).

-define(DRIVER, inet_tcp).

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

gen_listen(Driver, Name, Host) ->
    case start() of
        ok -> inet_tcp_dist:gen_listen(Driver, Name, Host);
        Error -> Error
    end.

gen_accept(Driver, Listen) ->
    inet_tcp_dist:gen_accept(Driver, Listen).

gen_select(Driver, Node) ->
    inet_tcp_dist:gen_select(Driver, Node).

%% Of a node that does not listen: net_kernel calls nothing else when it starts.
gen_address(Driver) ->
    _ = start(),
    inet_tcp_dist:gen_address(Driver).

%% In net_kernel's process. A wrong option is an error of the node's start; a library that cannot be loaded is not: all links
%% stay on TCP then, and say so.
start() ->
    inet_rdma_links:start(),
    case inet_rdma_options:node() of
        {ok, _} ->
            case inet_rdma_nif:load() of
                ok -> ok;
                {error, Reason} -> ?LOG_ERROR("inet_rdma: all links stay on TCP: ~ts", [inet_rdma:format_error(Reason)]), ok
            end;
        {error, Reason} ->
            ?LOG_ERROR("~ts", [inet_rdma_options:format_error(Reason)]),
            {error, Reason}
    end.

gen_accept_connection(Driver, AcceptPid, Socket, MyNode, Allowed, SetupTime) ->
    spawn_opt(?MODULE, do_accept, [Driver, self(), AcceptPid, Socket, MyNode, Allowed, SetupTime],
              dist_util:net_ticker_spawn_options()).

do_accept(Driver, Kernel, AcceptPid, Socket, MyNode, Allowed, SetupTime) ->
    receive
        {AcceptPid, controller} ->
            Timer = dist_util:start_timer(SetupTime),
            check_ip(Driver, Socket),
            keep(#supervised{driver = Driver, role = acceptor, config = config(no_node)}),
            Data = hs_data(Socket),
            dist_util:handshake_other_started(
              Data#hs_data{kernel_pid = Kernel, this_node = MyNode, timer = Timer, allowed = Allowed})
    end.

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
    Socket = connect(Driver, Node, Ip, TcpPort),
    Address = #net_address{address = {Ip, TcpPort}, host = Host, protocol = tcp, family = Driver:family()},
    keep(#supervised{driver = Driver, role = initiator, node = atom_to_binary(Node), address = Address,
                     config = config(Node)}),
    Data = hs_data(Socket),
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

connect(Driver, Node, Ip, TcpPort) ->
    Options = case application:get_env(kernel, inet_dist_connect_options) of
                  {ok, Given} -> Given;
                  undefined -> []
              end,
    case Driver:connect(Ip, TcpPort, Options ++ [{active, false}, {packet, 2}]) of
        {ok, Socket} -> Socket;
        _ -> ?shutdown(Node)
    end.

config(Node) ->
    case inet_rdma_options:node() of
        {ok, Config} ->
            Config;
        {error, Reason} ->
            ?LOG_ERROR("~ts", [inet_rdma_options:format_error(Reason)]),
            ?shutdown2(Node, Reason)
    end.

hs_data(Socket) ->
    #hs_data{
       socket = Socket,
       this_flags = 0,
       f_send = fun ?MODULE:send/2,
       f_recv = fun ?MODULE:recv/3,
       f_setopts_pre_nodeup = fun ?MODULE:pre_nodeup/1,
       f_setopts_post_nodeup = fun ?MODULE:post_nodeup/1,
       f_getll = fun ?MODULE:getll/1,
       f_address = fun ?MODULE:address_of/2,
       mf_tick = fun ?MODULE:tick/1,
       mf_getstat = fun ?MODULE:getstat/1,
       mf_setopts = fun ?MODULE:setopts/2,
       mf_getopts = fun ?MODULE:getopts/2}.

keep(Supervised) -> put(?MODULE, Supervised).
kept() -> get(?MODULE).

%% A handshake message; behind this node's name goes the offer.
send(Socket, Message) ->
    #supervised{driver = Driver, role = Role} = Supervised = kept(),
    Driver:send(Socket, offering(iolist_to_binary(Message), Role, Supervised)).

%% The acceptor gives a name to a node that has none.
offering(<<"snamed:", Length:16, Name:Length/binary, _/binary>> = Message, _Role, Supervised) ->
    keep(Supervised#supervised{node = Name}),
    Message;
offering(<<$N, _/binary>> = Message, Role, #supervised{config = Config, node = Node} = Supervised) ->
    Offer = inet_rdma_offer:offer(Config, inet_rdma_settlement:broken_off(Node) =:= none),
    keep(Supervised#supervised{own_offer = Offer}),
    inet_rdma_offer:append(Role, Message, Offer);
offering(Message, _Role, _Supervised) ->
    Message.

recv(Socket, Length, Timeout) ->
    #supervised{driver = Driver, role = Role, node = Known} = Supervised = kept(),
    case Driver:recv(Socket, Length, Timeout) of
        {ok, [$N | _] = Message} ->
            {Name, Offer} = inet_rdma_offer:parse(Role, list_to_binary(Message)),
            Node = case Role of
                       initiator -> Known;
                       acceptor -> Name
                   end,
            keep(Supervised#supervised{node = Node, offer = Offer}),
            {ok, Message};
        Other ->
            Other
    end.

%% Both sides have proved the cookie, and the VM does not know the link yet: the place to settle how it is carried.
pre_nodeup(Socket) ->
    #supervised{role = Role, node = Node, config = Config, own_offer = Own, offer = Offer} = Supervised = kept(),
    case inet_rdma_settlement:settle(Role, Socket, Node, Config, Own, Offer) of
        {move, Link, Why} ->
            keep(Supervised#supervised{over = Link, why = Why}),
            settled(info, up, Node, Socket, Link, Why);
        {stay, Why, Tried} ->
            inet_rdma_links:count({stayed, Tried}),
            %% Between two nodes that run this carrier the operator may expect shared memory or a device.
            Level = case Offer of
                        none -> info;
                        _ -> notice
                    end,
            keep(Supervised#supervised{why = Why}),
            settled(Level, fallback, Node, Socket, tcp, Why),
            inet:setopts(Socket, [{active, false}, {packet, 4}, nodelay()]);
        {refuse, Why} ->
            inet_rdma_links:count(refused),
            ?LOG_WARNING("inet_rdma: no link to ~ts: the option required forbids TCP, and ~ts", [Node, Why],
                         not_up(refused, Node, Why)),
            {error, required};
        {error, Why} ->
            inet_rdma_links:count(settlement_failed),
            ?LOG_WARNING("inet_rdma: no link to ~ts: ~ts", [Node, Why], not_up(failed, Node, Why)),
            {error, not_settled}
    end.

not_up(Kind, Node, Why) ->
    inet_rdma_link_event:metadata(inet_rdma_link_event:new(Kind, Node, undefined, Why)).

settled(Level, Kind, Node, Socket, Over, Why) ->
    Fabric = inet_rdma_link:fabric(Over),
    inet_rdma_links:insert(Node, Socket, Fabric, Why),
    Event = inet_rdma_link_event:new(Kind, Node, Fabric, Why),
    ?LOG(Level, "inet_rdma: ~ts over ~ts; ~ts", [Node, Fabric, Why], inet_rdma_link_event:metadata(Event)),
    ok.

post_nodeup(Socket) ->
    case kept() of
        #supervised{over = tcp} = Supervised ->
            told(fallback, Supervised,
                 inet:setopts(Socket, [{active, true}, {deliver, port}, {packet, 4}, binary, nodelay()]));
        #supervised{over = Link, driver = Driver, node = Node} = Supervised ->
            told(up, Supervised, inet_rdma_link:start(Link, Driver, Socket, Node))
    end.

told(Kind, #supervised{node = Node, over = Over, why = Why}, ok) ->
    inet_rdma_link_event:tell(inet_rdma_link_event:new(Kind, Node, inet_rdma_link:fabric(Over), Why), #{count => 1});
told(_Kind, _Supervised, Error) ->
    Error.

nodelay() ->
    case application:get_env(kernel, dist_nodelay) of
        {ok, false} -> {nodelay, false};
        _ -> {nodelay, true}
    end.

getll(Socket) ->
    case kept() of
        #supervised{over = tcp} -> inet:getll(Socket);
        #supervised{over = Link} -> {ok, inet_rdma_link:port(Link)}
    end.

address_of(Socket, Node) ->
    case kept() of
        #supervised{role = initiator, address = Address} ->
            Address;
        #supervised{driver = Driver} ->
            {ok, Address} = inet:peername(Socket),
            [_, Host] = string:split(atom_to_list(Node), "@"),
            #net_address{address = Address, host = Host, protocol = tcp, family = Driver:family()}
    end.

tick(Socket) ->
    case kept() of
        #supervised{over = tcp, driver = Driver} ->
            case Driver:send(Socket, [], [force]) of
                {error, closed} = Error -> self() ! {tcp_closed, Socket}, Error;
                Result -> Result
            end;
        #supervised{over = Link} ->
            inet_rdma_link:tick(Link)
    end.

getstat(Socket) ->
    case kept() of
        #supervised{over = tcp} ->
            case inet:getstat(Socket, [recv_cnt, send_cnt, send_pend]) of
                {ok, Stat} ->
                    [Received, Sent, Pending] = [proplists:get_value(Key, Stat) || Key <- [recv_cnt, send_cnt, send_pend]],
                    {ok, Received, Sent, Pending};
                Error ->
                    Error
            end;
        #supervised{over = Link} ->
            inet_rdma_link:getstat(Link)
    end.

%% Of the listening socket, or of the socket of a link: over RDMA it only shows whether the peer lives ({keepalive, true}).
setopts(Socket, Options) ->
    inet_tcp_dist:setopts(Socket, Options).

%% Options of this carrier have the values that the link was made with.
getopts(Socket, Keys) ->
    case kept() of
        #supervised{config = Config} when is_map_key(hd(Keys), Config) -> inet_rdma_options:values(Config, Keys);
        _ -> inet:getopts(Socket, Keys)
    end.

%% The distribution carrier: `erl -proto_dist inet_rdma`.
%%
%% To all other nodes a node with this carrier is an inet_tcp node: it listens, accepts, registers
%% and connects by the functions of inet_tcp_dist. A link between two nodes with this carrier moves
%% to shared memory or to an RDMA device once both have proved the cookie. The parties of a link:
%%
%% * the connection supervisor: process of dist_util, spawned here (do_accept/7, do_setup/7).
%% Handshake over TCP,
%%   settlement (inet_rdma_nodeup, inet_rdma_settlement), then ticks;
%% * the TCP socket on which the link began. With a peer that runs another carrier it is the VM's
%% distribution
%%   controller, as with inet_tcp. With the option `security tls` TLS has it (inet_rdma_transport, inet_rdma_tls);
%% * the port: a linked-in driver in the NIF's library (native/link/port), linked to the supervisor,
%% and the VM's
%%   distribution controller. It takes packets from the VM and gives packets to the VM, over TCP or a queue pair;
%% * the guard (inet_rdma_session_guard): a sleeping process that logs events of the session, and
%% has a lost TCP
%%   lost connection replaced;
%% * the peer.
%%
%% Polling threads have no part in a link: the VM's own poll set watches its descriptors.
-module(inet_rdma_dist).

-export([
    listen/2, accept/1, accept_connection/5, setup/5, close/1, select/1, address/0, is_node_name/1
]).
-export([setopts/2, getopts/2, childspecs/0]).
%% Called by inet6_rdma_dist, for the other address family.
-export([
    gen_listen/3,
    gen_close/2,
    gen_accept/2,
    gen_accept_connection/6,
    gen_setup/6,
    gen_select/2,
    gen_address/1
]).
%% Spawned, or called through #hs_data{}: by name, so that the module can be loaded again under
%% living links.
-export([do_accept/7, do_setup/7]).
-export([
    send/2,
    recv/3,
    pre_nodeup/1,
    post_nodeup/1,
    getll/1,
    handshake_complete/3,
    address_of/2,
    tick/1,
    getstat/1
]).

-include_lib("kernel/include/dist.hrl").
-include_lib("kernel/include/dist_util.hrl").
-include_lib("kernel/include/net_address.hrl").

%% State of the supervisor, in its process dictionary: the functions of #hs_data{} get no argument
%% but the socket.
-record(supervised, {
    link :: inet_rdma_nodeup:link(),
    %% Where an initiator's connection has led.
    address :: undefined | #net_address{},
    %% none: it is not decided yet what carries the link.
    up = none :: inet_rdma_nodeup:up() | none,
    %% The peer has sent a packet.
    has_heard = false :: boolean()
}).

-define(DRIVER, inet_tcp).

%% In the supervisor's process dictionary, until both have proved the cookie: a session that sends
%% nothing yet, and an acceptor's last message.
-define(PREPARED, {?MODULE, prepared}).
-define(ANSWER, {?MODULE, answer}).

%% The acceptor's last message in the handshake: a tag and an MD5 ("Distribution Handshake" in the
%% ERTS documentation).
-define(ACK_BYTES, 17).

%% The address and the TCP port on which this node accepts connections by this driver.
-define(LISTENS(Driver), {?MODULE, listens, Driver}).

listen(Name, Host) -> gen_listen(?DRIVER, Name, Host).
accept(Listen) -> gen_accept(?DRIVER, Listen).
accept_connection(AcceptPid, Socket, MyNode, Allowed, SetupTime) ->
    gen_accept_connection(?DRIVER, AcceptPid, Socket, MyNode, Allowed, SetupTime).
setup(Node, Type, MyNode, LongOrShortNames, SetupTime) ->
    gen_setup(?DRIVER, Node, Type, MyNode, LongOrShortNames, SetupTime).
select(Node) -> gen_select(?DRIVER, Node).
address() -> gen_address(?DRIVER).
close(Listen) -> gen_close(?DRIVER, Listen).

gen_close(Driver, Listen) ->
    _ = persistent_term:erase(?LISTENS(Driver)),
    at_crash(keep_at_crash, Driver, Listen),
    inet_rdma_neighbours:stop(),
    inet_tcp_dist:close(Listen),
    %% Loaded if it has opened the listener.
    _ = erlang:module_loaded(inet_rdma_multipath) andalso inet_rdma_multipath:unlisten(Driver),
    ok.

-spec is_node_name(term()) -> boolean().
is_node_name(Node) -> inet_tcp_dist:is_node_name(Node).

%% Supervisors to be started before net_kernel.
childspecs() ->
    ok = inet_rdma_modules:load_start(),
    {ok, Ssl} =
        case inet_rdma_options:node() of
            {ok, #{security := tls}} -> inet_rdma_tls:childspecs();
            _ -> {ok, []}
        end,
    Specs = [inet_rdma_sup:childspec() | Ssl],
    ok = inet_rdma_dist_start:await_ends([element(1, Spec) || Spec <- Ssl] ++ [inet_rdma_sup]),
    {ok, Specs}.

gen_listen(Driver, Name, Host) ->
    case inet_rdma_dist_start:start() of
        ok -> listens(Driver, [atom_to_list(Name), $@, Host], listening(Driver, Name, Host));
        Error -> Error
    end.

listening(Driver, Name, Host) ->
    Listen = fun() -> (below()):listen(Driver, Name, Host) end,
    case inet_rdma_options:node() of
        {ok, #{mptcp := auto}} -> inet_rdma_multipath:listen(Driver, Listen);
        _ -> Listen()
    end.

listens(
    Driver,
    Node,
    {ok, {Socket, #net_address{address = {_Ip, _TcpPort} = Address}, _Creation}} = Listening
) ->
    persistent_term:put(?LISTENS(Driver), Address),
    at_crash(refuse_at_crash, Driver, Socket),
    _ = [
        begin
            ok = set_congestion(Socket, Config),
            inet_rdma_node_watch:start(Node, Config)
        end
     || {ok, Config} <- [inet_rdma_options:node()]
    ],
    Listening;
listens(_Driver, _Node, Other) ->
    Other.

%% Accepted sockets inherit it.
set_congestion(_Listen, #{congestion := default}) ->
    ok;
set_congestion(Listen, #{congestion := Name}) ->
    _ = inet:setopts(Listen, inet_rdma_congestion:socket_options(Name)),
    ok.

%% A VM that crashes may write its dump for minutes, and accepts nobody.
at_crash(Function, Driver, Socket) ->
    case
        inet_rdma_nif:is_loaded() andalso
            inet_rdma_transport:descriptor(inet_rdma_transport:tcp(Driver, Socket))
    of
        {ok, Descriptor} -> inet_rdma_nif:Function(Descriptor);
        _ -> ok
    end.

gen_accept(Driver, Listen) ->
    inet_rdma_acceptor:start(inet_rdma_dist_start:security(), Driver, Listen).

%% Without a place in the process table for what sets a link up, net_kernel would end in setup/5,
%% and the node with it.
gen_select(Driver, Node) ->
    ok = inet_rdma_modules:start_load(connect),
    inet_rdma_bounded:has_room() andalso (below()):select(Driver, Node).

%% net_kernel calls this for a node that does not listen, and no other callback at the start.
gen_address(Driver) ->
    _ = inet_rdma_dist_start:start(),
    (below()):address(Driver).

below() ->
    case inet_rdma_dist_start:security() of
        none -> inet_rdma_tcp;
        tls -> inet_rdma_tls
    end.

%% Returns AcceptPid if the process table is full: inet_rdma_acceptor offers the connection again.
gen_accept_connection(Driver, AcceptPid, Accepted, MyNode, Allowed, SetupTime) ->
    try
        true = inet_rdma_bounded:has_room(),
        spawn_opt(
            ?MODULE,
            do_accept,
            [Driver, self(), AcceptPid, Accepted, MyNode, Allowed, SetupTime],
            dist_util:net_ticker_spawn_options()
        )
    catch
        error:Full when Full =:= {badmatch, false}; Full =:= system_limit -> AcceptPid
    end.

do_accept(Driver, Kernel, AcceptPid, Accepted, MyNode, Allowed, SetupTime) ->
    Ref = monitor(process, AcceptPid),
    receive
        {AcceptPid, controller} ->
            demonitor(Ref, [flush]),
            ok = inet_rdma_modules:await_load(accept),
            Timer = dist_util:start_timer(SetupTime),
            {Connection, Permitted} = accepted(
                inet_rdma_dist_start:security(), Driver, Accepted, Allowed
            ),
            ok = inet_rdma_transport:await_first(Connection),
            keep(#supervised{link = link(Driver, acceptor, Connection)}),
            Data = hs_data(Connection),
            dist_util:handshake_other_started(
                Data#hs_data{
                    kernel_pid = Kernel, this_node = MyNode, timer = Timer, allowed = Permitted
                }
            );
        %% Over TLS each connection has an accepting process of its own, which may find it closed.
        {AcceptPid, exit} ->
            ?shutdown2(no_node, connection_setup_failed);
        {'DOWN', Ref, process, AcceptPid, _} ->
            ?shutdown2(no_node, connection_setup_failed)
    end.

accepted(none, Driver, Socket, Allowed) ->
    {inet_rdma_tcp:accepted(Driver, Socket), Allowed};
accepted(tls, _Driver, Accepted, Allowed) ->
    Connection = inet_rdma_tls:accepted(Accepted),
    {Connection, inet_rdma_tls:allowed(Connection, Allowed)}.

gen_setup(Driver, Node, Type, MyNode, LongOrShortNames, SetupTime) ->
    spawn_opt(
        ?MODULE,
        do_setup,
        [Driver, self(), Node, Type, MyNode, LongOrShortNames, SetupTime],
        dist_util:net_ticker_spawn_options()
    ).

do_setup(Driver, Kernel, Node, Type, MyNode, LongOrShortNames, SetupTime) ->
    ok = inet_rdma_modules:await_load(connect),
    ok = inet_rdma_modules:start_load(link),
    Timer = dist_util:start_timer(SetupTime),
    Config = inet_rdma_dist_start:config(Node),
    #{
        connection := Connection,
        host := Host,
        leads_to := LeadsTo,
        address := Listens,
        via := Via,
        version := Version
    } =
        inet_rdma_setup:connect(Driver, Node, LongOrShortNames, Config, {Timer, SetupTime}),
    ok = inet_rdma_modules:await_load(link),
    Link = link(Driver, initiator, Connection),
    keep(#supervised{
        address = net_address(LeadsTo, Host, Driver),
        link = Link#{node := atom_to_binary(Node), config := Config, address := Listens, via := Via}
    }),
    Data = hs_data(Connection),
    dist_util:handshake_we_started(
        Data#hs_data{
            kernel_pid = Kernel,
            other_node = Node,
            this_node = MyNode,
            timer = Timer,
            other_version = Version,
            request_type = Type
        }
    ).

link(Driver, Role, Connection) ->
    #{
        driver => Driver,
        role => Role,
        connection => Connection,
        node => <<>>,
        config => none,
        place => none,
        own_offer => none,
        offer => none,
        listens => persistent_term:get(?LISTENS(Driver), none),
        address => none,
        via => none
    }.

hs_data(Connection) ->
    #hs_data{
        socket = inet_rdma_transport:handle(Connection),
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
        mf_getopts = fun ?MODULE:getopts/2
    }.

keep(Supervised) -> put(?MODULE, Supervised).
kept() -> get(?MODULE).

%% Sends a handshake message. Appends the offer to the message that ends with this node's name.
%%
%% The acceptor's last message follows its check of the peer's cookie. With it the initiator's link
%% is up, and its node may ask for the link at the acceptor's node at once. So the acceptor decides
%% first, if that needs no message of the peer, and sends it when the VM knows the link; the port of
%% a session keeps the VM's packets until then.
send(_Socket, Message) ->
    #supervised{link = #{role := Role, connection := Connection} = Link} = Supervised = kept(),
    case outgoing(iolist_to_binary(Message), Supervised) of
        <<$a, _/binary>> = Answer when Role =:= acceptor ->
            Prepared = inet_rdma_nodeup:decide(Link),
            _ = put(?PREPARED, Prepared),
            _ = put(?ANSWER, {handshake, Answer}),
            case Prepared of
                {decided, {ok, #{controller := {connection, _}}, _}} -> answer(Supervised);
                {decided, _} -> ok;
                _ -> answer(Supervised)
            end;
        Outgoing ->
            inet_rdma_transport:send(Connection, Outgoing)
    end.

answer(#supervised{link = #{connection := Connection}}) ->
    case erase(?ANSWER) of
        undefined -> ok;
        {handshake, Answer} -> inet_rdma_transport:send(Connection, Answer);
        %% The connection has left the handshake, and TLS.
        {message, Message} -> inet_rdma_transport:send_message(Connection, Message)
    end.

%% The acceptor gives a name to a node that has none.
outgoing(
    <<"snamed:", Length:16, Name:Length/binary, _/binary>> = Message,
    #supervised{link = Link} = Supervised
) ->
    keep(Supervised#supervised{link = Link#{node := inet_rdma_offer:utf8(Name)}}),
    Message;
outgoing(<<$N, _/binary>> = Message, #supervised{link = #{role := Role} = Link} = Supervised) ->
    {Offer, Place} = inet_rdma_own_offer:new(Link),
    keep(Supervised#supervised{link = Link#{own_offer := Offer, place := Place}}),
    inet_rdma_offer:append(Role, Message, Offer);
outgoing(Message, _Supervised) ->
    Message.

%% dist_util expects lists.
recv(_Socket, Length, Timeout) ->
    #supervised{link = Link, has_heard = HasHeard} = Supervised = kept(),
    Heard = Supervised#supervised{has_heard = true},
    case receive_packet(HasHeard, Length, Timeout, Link) of
        {ok, Message} when is_binary(Message) -> received(binary_to_list(Message), Heard);
        {ok, Message} ->
            received(Message, Heard);
        {error, Reason} = Error when not HasHeard ->
            ok = inet_rdma_setup:not_answered(Reason, Link),
            Error;
        Error ->
            Error
    end.

%% A session may begin after the acceptor's last packet.
receive_packet(false, _Length, Timeout, #{connection := Connection}) ->
    inet_rdma_transport:recv_first(Connection, Timeout);
receive_packet(
    true,
    Length,
    Timeout,
    #{role := initiator, connection := Connection, own_offer := Own, offer := #{} = Peer} = Link
) ->
    case inet_rdma_offer:sessions(Own, Peer) of
        none ->
            inet_rdma_transport:recv(Connection, Length, Timeout);
        _ ->
            %% The peer checks the cookie meanwhile.
            _ = put(?PREPARED, inet_rdma_nodeup:prepare(Link)),
            inet_rdma_transport:recv_last(Connection, ?ACK_BYTES, Timeout)
    end;
receive_packet(true, Length, Timeout, #{connection := Connection}) ->
    inet_rdma_transport:recv(Connection, Length, Timeout).

%% The acceptor's first message. Only a handshake needs the options as they are now: a link that is
%% up resumes with its own.
received(
    Message, #supervised{link = #{config := none, connection := Connection} = Link} = Supervised
) ->
    First = list_to_binary(Message),
    case inet_rdma_resume:is_resume(First) orelse inet_rdma_detour:is_request(First) of
        true ->
            serve(Connection, First);
        false ->
            received(Message, Supervised#supervised{
                link = Link#{config := inet_rdma_dist_start:config(no_node)}
            })
    end;
received(
    [$N | _] = Message, #supervised{link = #{role := Role, node := Known} = Link} = Supervised
) ->
    {Name, Offer} = inet_rdma_offer:parse(Role, list_to_binary(Message)),
    Node =
        case Role of
            initiator -> Known;
            acceptor -> Name
        end,
    keep(Supervised#supervised{link = Link#{node := Node, offer := Offer}}),
    {ok, Message};
received(Message, Supervised) ->
    keep(Supervised),
    {ok, Message}.

%% No handshake follows: the connection now belongs to the port of a session or to a relay, or was
%% refused. The exit reason also ends the linked timer of the set-up time, as the end of a handshake
%% does.
-spec serve(inet_rdma_transport:t(), FirstMessage :: binary()) -> no_return().
serve(Connection, First) ->
    ok = inet_rdma_modules:load_all(),
    _ =
        case inet_rdma_resume:is_resume(First) of
            true ->
                inet_rdma_resume:accept(Connection, First) =:= ok orelse
                    inet_rdma_links:count(resume_refused);
            false ->
                inet_rdma_detour_relay:accept(Connection, First)
        end,
    exit(shutdown).

pre_nodeup(_Socket) ->
    #supervised{link = Link} = Supervised = kept(),
    case inet_rdma_nodeup:before_nodeup(erase(?PREPARED), Link) of
        {ok, Up, Connection} ->
            _ = [
                put(?ANSWER, {message, Last})
             || Last <- [inet_rdma_nodeup:last_message(Link)], Last =/= none
            ],
            keep(Supervised#supervised{up = Up, link = Link#{connection := Connection}}),
            ok;
        Error ->
            Error
    end.

post_nodeup(_Socket) ->
    #supervised{up = Up, link = Link} = kept(),
    inet_rdma_nodeup:after_nodeup(Up, Link).

controller() ->
    #supervised{up = #{controller := Controller}} = kept(),
    Controller.

getll(_Socket) -> inet_rdma_controller:handle(controller()).
handshake_complete(_Socket, Node, Handle) ->
    inet_rdma_controller:handshake_complete(controller(), Node, Handle).

%% dist_util calls this right after erlang:setnode/3.
address_of(_Socket, Node) ->
    ok =:= answer(kept()) orelse ?shutdown(Node),
    case kept() of
        #supervised{link = #{role := initiator}, address = Address} ->
            Address;
        #supervised{link = #{driver := Driver, connection := Connection}} ->
            case {inet_rdma_transport:ends(Connection), dist_util:split_node(Node)} of
                {{ok, {_Own, Address}}, {node, _Name, Host}} -> net_address(Address, Host, Driver);
                _ -> ?shutdown(no_node)
            end
    end.

%% A session has taken its connection out of TLS by now.
net_address(Address, Host, Driver) ->
    Protocol =
        case inet_rdma_dist_start:security() of
            none -> tcp;
            tls -> tls
        end,
    #net_address{address = Address, host = Host, protocol = Protocol, family = Driver:family()}.

%% dist_util calls it if this side has sent nothing since the tick before.
tick(_Socket) -> inet_rdma_controller:tick(controller()).

%% dist_util asks at each tick, to see whether the peer has sent anything.
getstat(_Socket) ->
    ok = inet_rdma_keeper:ticked(),
    inet_rdma_controller:getstat(controller()).

setopts(Socket, Options) ->
    case kept() of
        undefined -> inet_tcp_dist:setopts(Socket, Options);
        #supervised{} -> inet_rdma_controller:setopts(controller(), Options)
    end.

%% The values of this carrier's options are those with which the link was made.
getopts(Socket, Keys) ->
    case kept() of
        #supervised{link = #{config := Config}} when is_map_key(hd(Keys), Config) ->
            inet_rdma_options:values(Config, Keys);
        #supervised{} ->
            inet_rdma_controller:getopts(controller(), Keys);
        undefined ->
            inet:getopts(Socket, Keys)
    end.

%% The distribution carrier: `erl -proto_dist inet_rdma`.
%%
%% Callbacks as OTP's guide "How to Implement an Alternative Carrier for the Erlang Distribution" wants them. What the
%% process of a connection does is described in inet_rdma_controller.
-module(inet_rdma_dist).

-export([listen/1, listen/2, accept/1, accept_connection/5, setup/5, close/1, select/1, address/0, is_node_name/1]).
-export([setopts/2, getopts/2]).
-export([accept_loop/2, do_accept/6, do_setup/6]).

-include_lib("kernel/include/dist.hrl").
-include_lib("kernel/include/dist_util.hrl").
-include_lib("kernel/include/net_address.hrl").
-include_lib("kernel/include/logger.hrl").

%% Of the connection.
-define(PROTOCOL, inet_rdma).
-define(FAMILY, inet).
%% The largest handshake packet: below the smallest direct_bytes, so that nothing is landed for a peer that has not shown
%% the cookie.
-define(HANDSHAKE_PACKET_MAX, 4096).

%% A connection between its making and its controller's start.
-record(link, {
    conn :: inet_rdma_nif:conn(),
    id :: pos_integer(),
    config :: inet_rdma_options:config()
}).

%% What net_kernel keeps as the listening socket.
-record(listen, {
    listener :: inet_rdma_nif:listener(),
    id :: pos_integer(),
    port :: inet:port_number(),
    config :: inet_rdma_options:config()
}).

%% True for the nodes that this carrier may reach: those of this host over shm, those of others over verbs.
-spec select(node()) -> boolean().
select(Node) ->
    case host_of(Node) of
        {ok, Host} -> is_reachable(Host, inet_rdma:is_local(Host));
        error -> false
    end.

is_reachable(_Host, {ok, true}) ->
    true;
is_reachable(Host, {ok, false}) ->
    case verbs() of
        ok ->
            true;
        {error, Why} ->
            ?LOG_NOTICE("inet_rdma: ~ts is another host; the shm fabric reaches nodes of this host only, and ~ts",
                        [Host, Why]),
            false
    end;
is_reachable(Host, {error, Reason}) ->
    ?LOG_NOTICE("inet_rdma: the host name ~ts does not resolve: ~ts", [Host, inet:format_error(Reason)]),
    false.

%% Whether other hosts can be reached at all.
verbs() ->
    case inet_rdma_options:node() of
        {ok, #{fabric := shm}} -> {error, "the option fabric is shm"};
        _ -> inet_rdma_nif:check_verbs()
    end.

-spec is_node_name(term()) -> boolean().
is_node_name(Node) when is_atom(Node) -> host_of(Node) =/= error;
is_node_name(_) -> false.

host_of(Node) ->
    case string:split(atom_to_list(Node), "@", all) of
        [[_ | _], [_ | _] = Host] -> {ok, Host};
        _ -> error
    end.

%% Of a node that does not listen.
-spec address() -> #net_address{}.
address() ->
    ok = load_native(),
    {ok, Host} = inet:gethostname(),
    #net_address{host = Host, protocol = ?PROTOCOL, family = ?FAMILY}.

listen(Name) ->
    {ok, Host} = inet:gethostname(),
    listen(Name, Host).

listen(Name, Host) ->
    ok = load_native(),
    case options() of
        {ok, Config} ->
            listen(Name, Host, Config);
        {error, Reason} ->
            ?LOG_ERROR("~ts", [inet_rdma_options:format_error(Reason)]),
            {error, Reason}
    end.

%% The VM joins the fragments of a large message by a copy, whatever they lie in; in shared memory that copy is faster from
%% memory that the ring has just been copied to than from a landing buffer. docs/ARCHITECTURE.md has the measurement. What a
%% device writes into a landing buffer costs no copy at all.
options() ->
    case inet_rdma_options:node() of
        {ok, #{dist_direct := Direct} = Config} -> {ok, Config#{direct => direct(Direct)}};
        Error -> Error
    end.

direct(auto) -> verbs;
direct(true) -> always;
direct(false) -> never.

%% In an embedded release the boot script has loaded inet_rdma_nif, but its on_load is due only after distribution has
%% started. It needs nothing that is not there yet, so it runs now; kernel's own call finds nothing left to do. Elsewhere
%% there is nothing to do either.
load_native() ->
    init:run_on_load_handlers().

listen(Name, Host, Config) ->
    Epmd = net_kernel:epmd_module(),
    {First, Last} = case call_epmd(Epmd, listen_port_please, [Name, Host]) of
                        {ok, 0} -> port_range();
                        {ok, Fixed} -> {Fixed, Fixed}
                    end,
    case inet_rdma_nif:listen(listen_address(), First, Last, Config) of
        {ok, Listener, Id, Port, Over} ->
            ?LOG_INFO("inet_rdma: listens on port ~b over ~ts", [Port, Over]),
            Listen = #listen{listener = Listener, id = Id, port = Port, config = Config},
            register_node(Epmd, Name, Listen);
        {error, Reason} ->
            ?LOG_ERROR("inet_rdma: cannot listen: ~ts", [inet_rdma:format_error(Reason)]),
            {error, Reason}
    end.

register_node(Epmd, Name, #listen{port = Port} = Listen) ->
    case Epmd:register_node(Name, Port, inet_tcp) of
        {ok, Creation} ->
            Address = (address())#net_address{address = {listen_ip(), Port}},
            {ok, {Listen, Address, Creation}};
        Error ->
            close(Listen),
            Error
    end.

%% What inet_dist_use_interface says; shared memory has no interfaces.
listen_address() ->
    case application:get_env(kernel, inet_dist_use_interface) of
        {ok, Ip} -> list_to_binary(inet:ntoa(Ip));
        undefined -> <<>>
    end.

%% For those who ask for the node's address.
listen_ip() ->
    case application:get_env(kernel, inet_dist_use_interface) of
        {ok, Ip} -> Ip;
        undefined -> {0, 0, 0, 0}
    end.

port_range() ->
    case {application:get_env(kernel, inet_dist_listen_min), application:get_env(kernel, inet_dist_listen_max)} of
        {{ok, Min}, {ok, Max}} when is_integer(Min), is_integer(Max) -> {Min, Max};
        {{ok, Min}, _} when is_integer(Min) -> {Min, Min};
        _ -> {0, 0}
    end.

%% Only the port: the connections live on.
close(#listen{listener = Listener}) ->
    inet_rdma_nif:close_listener(Listener).

accept(#listen{} = Listen) ->
    spawn_opt(?MODULE, accept_loop, [self(), Listen], [link, {priority, max}]).

accept_loop(Kernel, #listen{listener = Listener} = Listen) ->
    ok = inet_rdma_nif:observe(Listener),
    accept_next(Kernel, Listen).

accept_next(Kernel, #listen{listener = Listener, id = Id, port = Port, config = Config} = Listen) ->
    case inet_rdma_nif:accept(Listener, Config) of
        {ok, Conn, ConnId} ->
            Kernel ! {accept, self(), #link{conn = Conn, id = ConnId, config = Config}, ?FAMILY, ?PROTOCOL},
            hand_over(Kernel, Conn);
        empty ->
            receive
                {'$inet_rdma', Id, acceptable} -> ok;
                {'$inet_rdma', Id, {refused, Reason}} ->
                    ?LOG_WARNING("inet_rdma: refused a peer on port ~b: ~ts", [Port, inet_rdma:format_error(Reason)])
            end;
        {error, closed} ->
            exit(closed);
        {error, Reason} ->
            ?LOG_WARNING("inet_rdma: a peer on port ~b could not be accepted: ~ts",
                         [Port, inet_rdma:format_error(Reason)])
    end,
    accept_next(Kernel, Listen).

hand_over(Kernel, Conn) ->
    receive
        {Kernel, controller, Pid} ->
            ok = inet_rdma_nif:own(Conn, Pid),
            Pid ! {self(), controller};
        {Kernel, unsupported_protocol} ->
            exit(unsupported_protocol)
    end.

accept_connection(AcceptPid, Link, MyNode, Allowed, SetupTime) ->
    spawn_opt(?MODULE, do_accept, [self(), AcceptPid, Link, MyNode, Allowed, SetupTime],
              dist_util:net_ticker_spawn_options()).

do_accept(Kernel, AcceptPid, Link, MyNode, Allowed, SetupTime) ->
    receive
        {AcceptPid, controller} ->
            Timer = dist_util:start_timer(SetupTime),
            Data = hs_data(Link, fun(Node) -> address_of(Node, undefined) end),
            dist_util:handshake_other_started(
              Data#hs_data{kernel_pid = Kernel, this_node = MyNode, timer = Timer, allowed = Allowed})
    end.

setup(Node, Type, MyNode, LongOrShortNames, SetupTime) ->
    spawn_opt(?MODULE, do_setup, [self(), Node, Type, MyNode, LongOrShortNames, SetupTime],
              dist_util:net_ticker_spawn_options()).

do_setup(Kernel, Node, Type, MyNode, LongOrShortNames, SetupTime) ->
    Timer = dist_util:start_timer(SetupTime),
    {Name, Host} = split_node(Node, LongOrShortNames),
    {Ip, Port, Version} = find_node(Node, Name, Host),
    dist_util:reset_timer(Timer),
    Link = connect(Node, Ip, Port),
    Data = hs_data(Link, fun(_) -> address_of(Node, {Ip, Port}) end),
    dist_util:handshake_we_started(
      Data#hs_data{kernel_pid = Kernel, other_node = Node, this_node = MyNode, timer = Timer,
                   other_version = Version, request_type = Type}).

split_node(Node, LongOrShortNames) ->
    case host_of(Node) of
        {ok, Host} ->
            check_name(Node, Host, LongOrShortNames),
            [Name, Host] = string:split(atom_to_list(Node), "@"),
            {Name, Host};
        error ->
            ?LOG_ERROR("** Nodename ~tp illegal **", [Node]),
            ?shutdown(Node)
    end.

%% Long names have a dot in the host or are an address; short ones have none.
check_name(Node, Host, LongOrShortNames) ->
    case {LongOrShortNames, lists:member($., Host), inet:parse_address(Host)} of
        {longnames, false, {error, _}} ->
            ?LOG_ERROR("** System running to use fully qualified hostnames **~n** Hostname ~ts is illegal **", [Host]),
            ?shutdown(Node);
        {shortnames, true, _} ->
            ?LOG_ERROR("** System NOT running to use fully qualified hostnames **~n** Hostname ~ts is illegal **",
                       [Host]),
            ?shutdown(Node);
        _ ->
            ok
    end.

%% Where a node listens, as its EPMD says.
find_node(Node, Name, Host) ->
    Epmd = net_kernel:epmd_module(),
    case address_please(Epmd, Name, Host) of
        {ok, Ip, Port, Version} ->
            {Ip, Port, Version};
        {ok, Ip} ->
            case Epmd:port_please(Name, Ip) of
                {port, Port, Version} -> {Ip, Port, Version};
                _ -> ?shutdown(Node)
            end;
        {error, _} ->
            ?shutdown(Node)
    end.

address_please(Epmd, Name, Host) ->
    case call_epmd(Epmd, address_please, [Name, Host, inet]) of
        {error, _} -> call_epmd(Epmd, address_please, [Name, Host, inet6]);
        Found -> Found
    end.

call_epmd(Epmd, Function, Arguments) ->
    case erlang:function_exported(Epmd, Function, length(Arguments)) of
        true -> apply(Epmd, Function, Arguments);
        false -> apply(erl_epmd, Function, Arguments)
    end.

connect(Node, Ip, Port) ->
    case options() of
        {ok, Config} ->
            case connect_to(Ip, Port, Config) of
                {ok, Conn, Id} ->
                    log_choice(Node, Conn),
                    #link{conn = Conn, id = Id, config = Config};
                {error, Reason} ->
                    log_refusal(Node, Reason),
                    ?shutdown2(Node, {inet_rdma, Reason})
            end;
        {error, Reason} ->
            ?LOG_ERROR("~ts", [inet_rdma_options:format_error(Reason)]),
            ?shutdown2(Node, Reason)
    end.

connect_to(Ip, Port, #{fabric := Fabric, connect_timeout_ms := Timeout} = Config) ->
    case inet_rdma_nif:connect(Fabric, list_to_binary(inet:ntoa(Ip)), Port, 0, Timeout, Config) of
        {ok, Attempt, Id} ->
            receive {'$inet_rdma', Id, connected} -> ok end,
            case inet_rdma_nif:stream(Attempt) of
                {ok, Conn} -> {ok, Conn, Id};
                Error -> Error
            end;
        Error ->
            Error
    end.

log_choice(Node, Conn) ->
    case inet_rdma_nif:statistics(Conn) of
        #{fabric := Fabric, why := Why} -> ?LOG_INFO("inet_rdma: ~tp over ~ts; ~ts", [Node, Fabric, Why]);
        closed -> ok
    end.

%% EPMD knows the node, or nobody would have come this far.
log_refusal(Node, econnrefused) ->
    ?LOG_NOTICE("inet_rdma: ~tp does not listen: it has just ended, uses another carrier, has another option fabric, or "
                "is in another network namespace", [Node]);
log_refusal(Node, Reason) ->
    ?LOG_WARNING("inet_rdma: no connection to ~tp: ~ts", [Node, inet_rdma:format_error(Reason)]).

address_of(Node, Address) ->
    case host_of(Node) of
        {ok, Host} -> #net_address{address = Address, host = Host, protocol = ?PROTOCOL, family = ?FAMILY};
        error -> ?shutdown(no_node)
    end.

%% Handshake packets pass from this process to the native side directly; the controller only waits until it is over.
hs_data(#link{conn = Conn, id = Id, config = Config}, AddressOf) ->
    ok = inet_rdma_nif:framing(Conn, length4, ?HANDSHAKE_PACKET_MAX),
    Controller = inet_rdma_controller:start(Conn, Id, Config),
    Max = maps:get(packet_max_bytes, Config),
    Supervisor = self(),
    #hs_data{
       socket = Controller,
       this_flags = 0,
       f_send = fun(_, Packet) -> send(Conn, Id, [erlang:iolist_to_iovec(Packet)], 0) end,
       f_recv = fun(_, 0, Timeout) -> recv(Conn, Id, Timeout) end,
       f_setopts_pre_nodeup = fun(_) -> inet_rdma_nif:framing(Conn, distribution, Max) end,
       f_setopts_post_nodeup = fun(_) -> ok end,
       f_getll = fun(_) -> {ok, Controller} end,
       f_address = fun(_, Node) -> AddressOf(Node) end,
       f_handshake_complete = fun(_, Node, Handle) ->
                                      inet_rdma_controller:complete(Controller, Supervisor, Node, Handle)
                              end,
       mf_tick = fun(_) -> tick(Conn, Controller) end,
       mf_getstat = fun(_) -> getstat(Conn) end,
       mf_setopts = fun(_, Options) -> setopts(Conn, Options) end,
       mf_getopts = fun(_, Keys) -> inet_rdma_options:values(Config, Keys) end}.

send(Conn, Id, Packets, Offset) ->
    case inet_rdma_nif:send(Conn, Packets, Offset, ?HANDSHAKE_PACKET_MAX) of
        ok -> ok;
        {more, Rest, Sent} -> send(Conn, Id, Rest, Sent);
        {blocked, Rest, Sent} ->
            _ = inet_rdma_nif:arm_writer(Conn) andalso receive {'$inet_rdma', Id, writable} -> ok end,
            send(Conn, Id, Rest, Sent);
        {error, Reason} -> {error, Reason}
    end.

%% One handshake packet, as a list. What came with it stays where it is, for the controller.
recv(Conn, Id, Timeout) ->
    case inet_rdma_nif:recv(Conn, ?HANDSHAKE_PACKET_MAX, 1, 0) of
        {error, Reason, []} -> {error, Reason};
        {error, _, [Packet]} -> {ok, binary_to_list(Packet)};
        {_, [Packet]} -> {ok, binary_to_list(Packet)};
        _Nothing -> recv_later(Conn, Id, Timeout)
    end.

recv_later(Conn, Id, Timeout) ->
    case inet_rdma_nif:arm(Conn) of
        true ->
            receive
                {'$inet_rdma', Id, readable} -> recv(Conn, Id, Timeout)
            after Timeout ->
                inet_rdma_nif:disarm(Conn),
                {error, timeout}
            end;
        false ->
            recv(Conn, Id, Timeout)
    end.

%% The supervisor wants to hear of a dead connection like this.
tick(Conn, Controller) ->
    case inet_rdma_nif:tick(Conn) of
        ok -> ok;
        {error, _} = Error -> self() ! {tcp_closed, Controller}, Error
    end.

%% Nothing is ever pending below: what is not sent stays with the VM, which knows about it.
getstat(Conn) ->
    case inet_rdma_nif:packets(Conn) of
        {Received, Sent} -> {ok, Received, Sent, 0};
        closed -> {error, closed}
    end.

%% Of the listener or of a connection: all options are set for good when it is made.
setopts(_, []) -> ok;
setopts(_, Options) -> {error, {badopts, Options}}.

getopts(#listen{config = Config}, Keys) -> inet_rdma_options:values(Config, Keys).

%% Distribution over the driver bare_ring: connections and their handshake are inet_tcp's, packets go through rings in
%% shared memory. A measure of the least that a carrier over shared memory costs; see bare_ring.c.
-module(bare_ring_dist).

-export([listen/2, accept/1, accept_connection/5, setup/5, close/1, select/1, address/0, is_node_name/1]).
-export([do_accept/5, do_setup/5]).

-include_lib("kernel/include/net_address.hrl").
-include_lib("kernel/include/dist.hrl").
-include_lib("kernel/include/dist_util.hrl").

%% Commands of the driver.
-define(OPEN, 1).
-define(START, 2).
-define(TICK, 3).
-define(PACKETS, 4).

-define(TIMEOUT_MS, 5000).

listen(Name, Host) -> inet_tcp_dist:gen_listen(inet_tcp, Name, Host).

accept(Listen) -> inet_tcp_dist:gen_accept(inet_tcp, Listen).

select(Node) -> inet_tcp_dist:gen_select(inet_tcp, Node).

address() -> inet_tcp_dist:gen_address(inet_tcp).

is_node_name(Node) -> inet_tcp_dist:is_node_name(Node).

close(Listen) -> inet_tcp:close(Listen).

accept_connection(_Acceptor, Socket, MyNode, Allowed, SetupTime) ->
    Arguments = [self(), Socket, MyNode, Allowed, SetupTime],
    spawn_opt(?MODULE, do_accept, Arguments, dist_util:net_ticker_spawn_options()).

setup(Node, Type, MyNode, _LongOrShort, SetupTime) ->
    Arguments = [self(), Node, Type, MyNode, SetupTime],
    spawn_opt(?MODULE, do_setup, Arguments, dist_util:net_ticker_spawn_options()).

do_accept(Kernel, Socket, MyNode, Allowed, SetupTime) ->
    receive
        {_Acceptor, controller} ->
            Timer = dist_util:start_timer(SetupTime),
            {ok, Address} = inet:peername(Socket),
            F = fun(_, Node) -> net_address(Address, Node) end,
            Data = hs_data(Socket, 1, F),
            dist_util:handshake_other_started(Data#hs_data{
                kernel_pid = Kernel, this_node = MyNode, timer = Timer, allowed = Allowed
            })
    end.

do_setup(Kernel, Node, Type, MyNode, SetupTime) ->
    Timer = dist_util:start_timer(SetupTime),
    [Name, Host] = string:split(atom_to_list(Node), "@"),
    Epmd = net_kernel:epmd_module(),
    {ok, Ip} = Epmd:address_please(Name, Host, inet),
    {port, TcpPort, Version} = Epmd:port_please(Name, Ip),
    {ok, Socket} = inet_tcp:connect(Ip, TcpPort, [{active, false}, {packet, 2}]),
    F = fun(_, _) -> net_address({Ip, TcpPort}, Node) end,
    Data = hs_data(Socket, 0, F),
    dist_util:handshake_we_started(Data#hs_data{
        kernel_pid = Kernel,
        other_node = Node,
        this_node = MyNode,
        timer = Timer,
        other_version = Version,
        request_type = Type
    }).

net_address(Address, Node) ->
    [_, Host] = string:split(atom_to_list(Node), "@"),
    #net_address{address = Address, host = Host, protocol = tcp, family = inet}.

hs_data(Socket, Side, Address) ->
    #hs_data{
        socket = Socket,
        this_flags = 0,
        f_send = fun inet_tcp:send/2,
        f_recv = fun inet_tcp:recv/3,
        f_setopts_pre_nodeup = fun(_) -> open_rings(Socket, Side) end,
        f_setopts_post_nodeup = fun(_) -> command(?START, []) end,
        f_getll = fun(_) -> {ok, get(?MODULE)} end,
        f_address = Address,
        mf_tick = fun(_) -> command(?TICK, []) end,
        mf_getstat = fun(_) -> counts() end
    }.

%% Side 0 names the file, which is gone when both sides have it.
open_rings(Socket, Side) ->
    {file, Beam} = code:is_loaded(?MODULE),
    case erl_ddll:load(filename:dirname(Beam), "bare_ring") of
        ok -> ok;
        {error, already_loaded} -> ok
    end,
    put(?MODULE, open_port({spawn_driver, "bare_ring"}, [binary])),
    {ok, Fd} = prim_inet:getfd(Socket),
    case Side of
        0 ->
            Unique = integer_to_list(erlang:unique_integer([positive])),
            Path = "/dev/shm/bare_ring_" ++ os:getpid() ++ "_" ++ Unique,
            command(?OPEN, [<<Fd:32/native, 0:32/native>>, Path]),
            ok = inet_tcp:send(Socket, Path),
            {ok, _} = inet_tcp:recv(Socket, 0, ?TIMEOUT_MS),
            ok = file:delete(Path);
        1 ->
            {ok, Path} = inet_tcp:recv(Socket, 0, ?TIMEOUT_MS),
            command(?OPEN, [<<Fd:32/native, 1:32/native>>, Path]),
            ok = inet_tcp:send(Socket, "opened")
    end,
    %% The driver reads what comes now.
    inet:setopts(Socket, [{packet, raw}, {nodelay, true}]).

command(Command, Argument) ->
    _ = port_control(get(?MODULE), Command, Argument),
    ok.

counts() ->
    <<Received:32/native, Sent:32/native>> = iolist_to_binary(port_control(get(?MODULE), ?PACKETS, [])),
    {ok, Received, Sent, 0}.

%% MPTCP (RFC 8684) under the TCP connections of links: the option `mptcp`.
%%
%% To programs a socket of MPTCP is one of TCP. The kernel spreads its bytes over subflows, by the
%% addresses that `ip mptcp` has given it, and speaks plain TCP with a peer that has no MPTCP. OTP
%% has no option for it:
%%
%% * a listener gets a descriptor that this module has opened (the option fd). inet leaves such a
%%   descriptor open, so it is closed here when the listener has been (unlisten/1);
%% * a socket that is about to be connected is inet's own, whose descriptor gets another socket
%%   before it is bound. inet closes it. prim_inet has the steps of inet_tcp:connect/4;
%% * a listener's accepted sockets have MPTCP if the peer's has.
-module(inet_rdma_multipath).

-export([listen/2, unlisten/1, connect/4, available/0, state/1]).
-export_type([option/0, state/0]).

-type option() :: auto | off.
%% Whether MPTCP is under a TCP connection. off: the option says so. kernel: this host's kernel
%% gives the node no socket of MPTCP. peer: the peer, or something on the way, has no MPTCP.
-type state() :: on | off | kernel | peer.

%% The descriptor of the node's listener.
-define(LENT(Driver), {?MODULE, lent, Driver}).
-define(LISTEN_OPTIONS, inet_dist_listen_options).

%% Calls a function that listens by the options of the kernel parameter. Without MPTCP the listener
%% is one of TCP.
-spec listen(inet_rdma_transport:driver(), fun(() -> {ok, term()} | {error, term()})) ->
    {ok, term()} | {error, term()}.
listen(Driver, Listen) ->
    %% net_kernel may have ended without closing its listener.
    ok = unlisten(Driver),
    Given = application:get_env(kernel, ?LISTEN_OPTIONS),
    case may_replace(options(Given)) andalso opened(Driver) of
        {ok, Descriptor} -> listen(Driver, Listen, Descriptor, Given);
        _ -> Listen()
    end.

listen(Driver, Listen, Descriptor, Given) ->
    Options = [{fd, Descriptor} | any_address(options(Given)) ++ options(Given)],
    ok = application:set_env(kernel, ?LISTEN_OPTIONS, Options),
    try Listen() of
        {ok, _} = Listening ->
            persistent_term:put(?LENT(Driver), Descriptor),
            Listening;
        Error ->
            ok = inet_rdma_nif:take_back(Descriptor),
            Error
    after
        case Given of
            {ok, Value} -> application:set_env(kernel, ?LISTEN_OPTIONS, Value);
            undefined -> application:unset_env(kernel, ?LISTEN_OPTIONS)
        end
    end.

%% With a descriptor and no address inet cannot listen at a port that is given.
any_address(Options) ->
    HasOne =
        [Key || Key <- [ip, ifaddr], lists:keymember(Key, 1, Options)] =/= [] orelse
            application:get_env(kernel, inet_dist_use_interface) =/= undefined,
    [{ip, any} || not HasOne].

options({ok, Options}) -> Options;
options(undefined) -> [].

%% The listener is closed.
-spec unlisten(inet_rdma_transport:driver()) -> ok.
unlisten(Driver) ->
    case persistent_term:get(?LENT(Driver), none) of
        none ->
            ok;
        Descriptor ->
            _ = persistent_term:erase(?LENT(Driver)),
            inet_rdma_nif:take_back(Descriptor)
    end.

%% As Driver:connect/4, by plain TCP where the kernel gives no socket of MPTCP.
-spec connect(
    inet_rdma_transport:driver(),
    {inet:ip_address(), inet:port_number()},
    [gen_tcp:option()],
    timeout()
) -> {ok, inet:socket()} | {error, term()}.
connect(Driver, {Ip, TcpPort}, Options, TimeoutMs) ->
    case may_replace(Options) andalso inet_rdma_nif:is_loaded() andalso open(Driver) of
        {ok, Socket} ->
            case set_up(Socket, {Ip, TcpPort}, Options, TimeoutMs) of
                ok ->
                    {ok, Socket};
                Error ->
                    Driver:close(Socket),
                    Error
            end;
        _ ->
            Driver:connect(Ip, TcpPort, Options, TimeoutMs)
    end.

%% Not with a descriptor of the user, nor in another network namespace.
may_replace(Options) ->
    not lists:any(fun(Key) -> lists:keymember(Key, 1, Options) end, [fd, netns]).

open(Driver) ->
    case prim_inet:open(tcp, Driver:family(), stream) of
        {ok, Socket} ->
            true = inet_db:register_socket(Socket, Driver),
            case replaced(Socket, Driver) of
                ok ->
                    {ok, Socket};
                Error ->
                    Driver:close(Socket),
                    Error
            end;
        Error ->
            Error
    end.

replaced(Socket, Driver) ->
    case prim_inet:getfd(Socket) of
        {ok, Descriptor} -> inet_rdma_nif:make_multipath(Descriptor, is_v6(Driver));
        Error -> Error
    end.

%% One by one: MPTCP lacks some options of TCP.
set_up(Socket, {Ip, TcpPort}, Options, TimeoutMs) ->
    _ = [inet:setopts(Socket, [Option]) || Option <- Options, is_of_socket(Option)],
    case bound(Socket, own_address(Options), proplists:get_value(port, Options, 0)) of
        {ok, _} -> prim_inet:connect(Socket, Ip, TcpPort, TimeoutMs);
        Error -> Error
    end.

is_of_socket({Key, _}) -> not lists:member(Key, [ip, ifaddr, port]);
is_of_socket(Option) -> not lists:member(Option, [inet, inet6]).

own_address(Options) -> proplists:get_value(ifaddr, Options, proplists:get_value(ip, Options, any)).

bound(_Socket, any, 0) -> {ok, 0};
bound(Socket, Ip, TcpPort) -> prim_inet:bind(Socket, Ip, TcpPort).

is_v6(Driver) -> Driver =:= inet6_tcp.

opened(Driver) -> inet_rdma_nif:is_loaded() andalso inet_rdma_nif:multipath_listener(is_v6(Driver)).

%% Whether the kernel gives this node sockets of MPTCP.
-spec available() -> ok | {error, inet:posix() | not_loaded}.
available() ->
    case opened(inet_tcp) of
        {ok, Descriptor} -> inet_rdma_nif:take_back(Descriptor);
        false -> {error, not_loaded};
        Error -> Error
    end.

%% The state of a connection with this number of subflows.
-spec state(Subflows :: non_neg_integer()) -> state().
state(Subflows) when Subflows > 0 ->
    on;
state(0) ->
    case inet_rdma_options:node() of
        {ok, #{mptcp := auto}} -> state_of(available());
        _ -> off
    end.

state_of(ok) -> peer;
state_of({error, _}) -> kernel.

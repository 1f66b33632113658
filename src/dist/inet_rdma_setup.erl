%% The connection on which a link begins, on the side that makes it; in the connection supervisor.
%%
%% As with inet_tcp there is one attempt, at the address that the EPMD module gives, within
%% net_setuptime. With the option `detour connect`, and a neighbour that could be asked
%% (inet_rdma_detour), the steps are these, all within one net_setuptime:
%%
%%     up to 1/3        every address of the host: the look-up there, and the connection
%%     up to 3/4        if no address answers, neighbours are asked for a detour
%%     the rest         the handshakes over the detour; without one, the addresses again: the peer may only be slow
%%
%% A connection to an address ends these bounds: its handshake has net_setuptime, as with inet_tcp.
%% A node that its name server does not know, and a peer that TLS refuses, get no detour.
%%
%% Whatever the supervisor waits for ends with it: net_kernel may kill it at any time.
-module(inet_rdma_setup).

-export([connect/5, not_answered/2]).
-export_type([begun/0]).

-include_lib("kernel/include/dist_util.hrl").
-include_lib("kernel/include/logger.hrl").

-import(inet_rdma_clock, [left/1, now_ms/0]).

%% How a link has begun. leads_to: the connection's other end: the peer's, or the neighbour's.
%% address: where the peer accepts connections; none: it is not known. via: the neighbour that
%% relays the connection; none: it is direct.
-type begun() :: #{
    connection := inet_rdma_transport:t(),
    host := string(),
    leads_to := inet_rdma_peer_node:address(),
    address := inet_rdma_peer_node:address() | none,
    via := binary() | none,
    version := term()
}.

%% The version of the handshake of all nodes with inet_rdma ("Distribution Handshake" in the ERTS
%% documentation).
-define(VERSION, 6).
%% The pause before another attempt to ask neighbours, while other links of this node do.
-define(BUSY_MS, 100).
%% A log line about what a peer answers is followed by none about the same peer for this time.
-define(LOG_MS, 60000).

%% How a connection is made: the driver, and the options of the socket.
-type way() :: {inet_rdma_transport:driver(), [inet_rdma_transport:option()]}.

%% The caller owns the connection. It exits if there is none.
-spec connect(
    inet_rdma_transport:driver(),
    node(),
    longnames | shortnames,
    inet_rdma_options:config(),
    {Timer :: pid(), SetupMs :: pos_integer()}
) -> begun().
connect(Driver, Node, LongOrShortNames, Config, {Timer, SetupMs}) ->
    #{congestion := Congestion, mptcp := Mptcp} = Config,
    Way = {Driver, inet_rdma_transport:connect_options(Congestion, Mptcp)},
    case may_detour(Config) andalso inet_rdma_detour:has_neighbours(atom_to_binary(Node)) of
        false ->
            {Host, Listens, Version} = inet_rdma_tcp:find(Driver, Node, LongOrShortNames),
            dist_util:reset_timer(Timer),
            Connection = connected(to(Way, Host, Listens, net_kernel:connecttime()), Node, Listens),
            begun_directly(Connection, Host, Listens, Version);
        true ->
            any_way(Way, Node, inet_rdma_tcp:split(Driver, Node, LongOrShortNames), Timer, SetupMs)
    end.

%% A link over a neighbour is a session on TCP.
may_detour(#{detour := connect, required := false}) ->
    ok = inet_rdma_modules:load_all(),
    inet_rdma_nif:is_loaded();
may_detour(_Config) ->
    false.

begun_directly(Connection, Host, Listens, Version) ->
    #{
        connection => Connection,
        host => Host,
        leads_to => Listens,
        address => Listens,
        via => none,
        version => Version
    }.

any_way(Way, Node, {_Name, Host} = Names, Timer, SetupMs) ->
    Now = now_ms(),
    Deadline = Now + SetupMs,
    case directly(Way, Names, Now + SetupMs div 3) of
        {unreachable, Listens} ->
            case ask(atom_to_binary(Node), Now + SetupMs * 3 div 4) of
                {ok, Tcp, Via} ->
                    (over_a_neighbour(Tcp, Node, Host, Deadline))#{address => Listens, via => Via};
                {error, _Why} ->
                    reached(directly(Way, Names, Deadline), Node, Host, Timer)
            end;
        Outcome ->
            reached(Outcome, Node, Host, Timer)
    end.

reached({ok, Connection, Listens, Version}, _Node, Host, Timer) ->
    dist_util:reset_timer(Timer),
    begun_directly(Connection, Host, Listens, Version);
reached({error, Reason, Listens}, Node, _Host, _Timer) ->
    not_connected({error, Reason}, Node, Listens);
reached(_UnreachableOrUnknown, Node, _Host, _Timer) ->
    ?shutdown(Node).

%% Tries the addresses in turn, each for its share of the time that is left.
-spec directly(way(), {Name :: string(), Host :: string()}, Until :: integer()) ->
    {ok, inet_rdma_transport:t(), inet_rdma_peer_node:address(), Version :: term()}
    | {unreachable, inet_rdma_peer_node:address() | none}
    | {error, term(), inet_rdma_peer_node:address()}
    | unknown.
directly({Driver, _Options} = Way, {Name, Host}, Until) ->
    case inet_rdma_bounded:tied_call(inet_rdma_tcp, places, [Driver, Name, Host], left(Until)) of
        {ok, Places} -> any(Places, Way, {Name, Host}, Until, {unreachable, none});
        _ -> {unreachable, none}
    end.

%% The word of a peer or its name server counts for more than an address that does not answer.
any([], _Way, _Names, _Until, Last) ->
    Last;
any([{Ip, Known} | Others], Way, {Name, Host} = Names, Until, Last) ->
    AtMost = now_ms() + left(Until) div (1 + length(Others)),
    case port(Known, Name, Ip, AtMost) of
        {ok, {TcpPort, Version}} ->
            Listens = {Ip, TcpPort},
            case to(Way, Host, Listens, max(1, left(AtMost))) of
                {ok, Connection} ->
                    {ok, Connection, Listens, Version};
                {error, Reason} ->
                    any(Others, Way, Names, Until, stronger(Last, failed(Reason, Listens)))
            end;
        unknown ->
            any(Others, Way, Names, Until, stronger(Last, unknown));
        no_answer ->
            any(Others, Way, Names, Until, Last)
    end.

stronger({unreachable, none}, Failure) -> Failure;
stronger({unreachable, _} = Before, {unreachable, _}) -> Before;
stronger({unreachable, _}, Failure) -> Failure;
stronger(Before, _Failure) -> Before.

port(unknown, Name, Ip, AtMost) ->
    case inet_rdma_bounded:tied_call(inet_rdma_tcp, port_please, [Name, Ip], left(AtMost)) of
        {ok, Answer} -> Answer;
        _ -> no_answer
    end;
port(Known, _Name, _Ip, _AtMost) ->
    {ok, Known}.

%% An alert of TLS comes from the peer, or from this side about it.
failed({Kind, _} = Reason, Listens) when Kind =:= tls_alert; Kind =:= options ->
    {error, Reason, Listens};
failed(_Reason, Listens) ->
    {unreachable, Listens}.

over_a_neighbour(Tcp, Node, Host, Deadline) ->
    case inet_rdma_transport:ends(Tcp) of
        {ok, {_Own, LeadsTo}} ->
            Secured = secure(inet_rdma_dist_start:security(), Tcp, Host, max(1, left(Deadline))),
            #{
                connection => connected(Secured, Node, LeadsTo),
                host => Host,
                leads_to => LeadsTo,
                version => ?VERSION
            };
        {error, _} ->
            ?shutdown(Node)
    end.

%% The number of links that ask at a time is bounded.
ask(Node, Until) ->
    case inet_rdma_detours:seek() of
        ok ->
            Asked = inet_rdma_detour:open(Node, left(Until)),
            ok = inet_rdma_detours:leave(),
            Asked;
        full ->
            case left(Until) > ?BUSY_MS of
                true -> receive
                    after ?BUSY_MS -> ask(Node, Until)
                    end;
                false -> {error, busy}
            end
    end.

%% TLS goes from end to end: the certificate is the peer's.
secure(none, Connection, _Host, _TimeoutMs) ->
    {_Driver, Socket} = inet_rdma_transport:socket(Connection),
    case inet:setopts(Socket, [{packet, 2}, {mode, list}]) of
        ok -> {ok, Connection};
        Error -> Error
    end;
secure(tls, Connection, Host, TimeoutMs) ->
    inet_rdma_tls:connect_over(Connection, Host, [], TimeoutMs).

to({Driver, Options}, Host, Listens, TimeoutMs) ->
    case inet_rdma_dist_start:security() of
        none -> inet_rdma_tcp:connect(Driver, Listens, Options, TimeoutMs);
        tls -> inet_rdma_tls:connect(Driver, Listens, Host, Options, TimeoutMs)
    end.

connected({ok, Connection}, _Node, _To) -> Connection;
connected(Error, Node, To) -> not_connected(Error, Node, To).

-spec not_connected({error, term()}, node(), term()) -> no_return().
not_connected(Error, Node, To) ->
    case inet_rdma_dist_start:security() of
        none ->
            ?shutdown(Node);
        tls ->
            ok = no_tls(Error, Node),
            ?shutdown2(Node, {ssl_connect_failed, To, Error})
    end.

%% ssl logs its alerts.
no_tls({error, Reason}, Node) when Reason =:= closed; Reason =:= timeout; Reason =:= econnreset ->
    log(
        atom_to_binary(Node),
        "inet_rdma: no link to ~ts: it does not answer in TLS (~s); if it has no TLS, give both "
        "nodes the option `security tls`, or neither",
        [Node, Reason]
    );
no_tls(_Error, _Node) ->
    ok.

%% The peer has sent no packet of the handshake before this error. Over TCP it may be a node inside
%% TLS.
-spec not_answered(Reason :: term(), inet_rdma_nodeup:link()) -> ok.
not_answered(emsgsize, #{role := acceptor, connection := Connection}) ->
    Ip =
        case inet_rdma_transport:ends(Connection) of
            {ok, {_Own, {From, _Port}}} -> inet_rdma_ip:text(From);
            {error, _} -> <<"an address that is not known">>
        end,
    log(
        Ip,
        "inet_rdma: a connection from ~ts is refused: it does not begin with a handshake over TCP; "
        "a node there has TLS, and this node has not: give both the option `security tls`, or "
        "neither",
        [Ip]
    );
not_answered(Reason, #{role := initiator, node := Node, connection := Connection}) when
    Reason =:= emsgsize; Reason =:= closed
->
    case inet_rdma_transport:protocol(Connection) of
        tcp ->
            log(
                Node,
                "inet_rdma: no link to ~ts: it does not answer with a handshake over TCP (~s); if "
                "it has TLS, give both nodes the option `security tls`, or neither",
                [Node, Reason]
            );
        tls ->
            ok
    end;
not_answered(_Reason, _Link) ->
    ok.

%% Another attempt at that node is not logged for a while.
log(Node, Format, Arguments) ->
    _ =
        inet_rdma_links:is_due({Node, 0, other_security}, ?LOG_MS) andalso
            ?LOG_WARNING(Format, Arguments),
    ok.

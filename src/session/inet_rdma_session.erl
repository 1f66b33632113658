%% The session of a link. It outlives the TCP connection on which the link began.
%%
%% The parties of a session, on each side:
%%
%% * the port (inet_rdma_port, native/link/port): keeps what the peer has not acknowledged, and
%% carries packets over TCP
%%   or a queue pair;
%% * the connection supervisor of dist_util, which is linked to the port: its end is the link's end;
%% * the guard (inet_rdma_session_guard), a process that hibernates. The port tells it that a path
%% is suspected or the
%%   TCP connection lost. The guard has another one made, ends the link if that fails, and writes the log;
%% * a dialer (inet_rdma_dialer) while a connection is made, and its attempts (inet_rdma_resume);
%% * a mover (inet_rdma_session_mover), while the guards settle in band on a queue pair
%% (inet_rdma_settlement). The
%%   initiator's guard begins a settlement when the option move says so, and repeats it at growing intervals.
%%
%% A peer whose own host refuses the connection, or that does not know the session, has ended, and
%% the link ends with it (inet_rdma_death). A link that no path carries ends after the time of the
%% option survive_ms. Like any link it ends when nothing was received for net_ticktime.
-module(inet_rdma_session).

-behaviour(inet_rdma_settlement_message).

-import(inet_rdma_transport, [tcp_option/2]).

-export([reserve/1, new/4, attach/2, resume/5, secure/4, take/2, first_options/2, connect_options/1]).
-export([port/1, name/1, role/1, protocol/1, driver/1, setopts/2, getopts/2, ends/1, tcp_info/1]).
-export([yield_ms/1, stop_process/1, probe_standby/1, probe_standby/2, stop_probes/1, probe/1]).

%% Callbacks of a settlement, for messages in band of the session.
-export([passive/1, active_once/1, send_message/2, recv_message/2]).
-export_type([t/0, link/0]).

%% Whether this side compresses what it sends over TCP, and whether the peer does.
-type compression() :: {Own :: boolean(), Peer :: boolean()}.

%% How the TCP connections of a session that began inside TLS are sealed.
-type sealing() ::
    none
    | #{
        cipher := inet_rdma_nif:cipher(),
        rekey_bytes := pos_integer(),
        rekey_seconds := non_neg_integer()
    }.

%% A link that is about to be up. peer: where the peer accepts connections; none: nowhere. via: the
%% neighbour over which this side has made the connection. tells: both sides tell their addresses
%% (inet_rdma_peer_node). listens: where this node accepts connections. why: the reason why this
%% path carries the link. queue: the queue pair that carries it; none: TCP does. has_settled: the
%% two nodes have settled already.
-type link() :: #{
    node := binary(),
    peer := inet_rdma_peer_node:address() | none,
    via := binary() | none,
    tells := boolean(),
    listens := inet_rdma_peer_node:address() | none,
    config := inet_rdma_options:config(),
    why := binary(),
    queue := inet_rdma_queue:t() | none,
    has_settled := boolean()
}.

%% A map, as tables and guards keep it while this module may be loaded again. name: names the
%% session on both sides; not secret.
-opaque t() :: #{
    port := port(),
    name := <<_:128>>,
    driver := inet_rdma_transport:driver(),
    role := initiator | acceptor,
    sealing := sealing(),
    compression := compression(),
    %% Not in a session that an earlier version of this module has made.
    mptcp => inet_rdma_multipath:option()
}.

%% Time that an acceptor leaves the initiator to connect: of two attempts at once the initiator's
%% takes precedence.
-define(YIELD_MS, 200).
%% Keepalive probes without an answer after which the kernel gives a silent connection up.
-define(KEEPALIVES, 4).
%% The same of a connection that is probed because this node stood still: the most that the kernel
%% takes, as only net_ticktime ends a suspected path. Time between them.
-define(PROBES_MAX, 127).
-define(PROBE_SECONDS, 5).

%% A port for a session, linked to the caller. There is a descriptor for its TCP connection: an
%% initiator's port holds it, an acceptor's takes it in new/4.
-spec reserve(initiator | acceptor) -> {ok, port()} | {error, inet_rdma:reason()}.
reserve(Role) ->
    case inet_rdma_port:open() of
        {ok, Port} ->
            case inet_rdma_port:reserve(Port) of
                ok ->
                    _ =
                        case Role =:= acceptor of
                            true -> inet_rdma_port:command(Port, release);
                            false -> ok
                        end,
                    {ok, Port};
                Error ->
                    inet_rdma_port:close(Port),
                    Error
            end;
        Error ->
            Error
    end.

%% A session, which nothing carries yet, with a port of reserve/1. Nonces: this node's and the
%% peer's. The peer of an acceptor has proved the cookie. window: how many bytes this side takes at
%% most without having acknowledged them, and has under way; and how many the windows of all links
%% may have together, beyond the first one of each. none: the sides tell no windows.
-spec new(
    port(),
    inet_rdma_transport:driver(),
    initiator | acceptor,
    #{
        node := binary(),
        nonces := {Own :: <<_:128>>, Peer :: <<_:128>>},
        packet_max_bytes := pos_integer(),
        window := {pos_integer(), Node :: non_neg_integer()} | none,
        sealing := sealing(),
        compression := compression(),
        mptcp := inet_rdma_multipath:option(),
        attribution := on | off
    }
) ->
    {ok, t()} | {error, inet_rdma:reason()}.
new(Port, Driver, Role, #{
    node := Node,
    nonces := {Own, Peer},
    packet_max_bytes := PacketMax,
    window := Window,
    sealing := Sealing,
    compression := Compression,
    mptcp := Mptcp,
    attribution := Attribution
}) ->
    Cookie = atom_to_binary(erlang:get_cookie(binary_to_atom(Node))),
    {IsInitiator, Nonces} =
        case Role of
            initiator -> {1, [Own, Peer]};
            acceptor -> {0, [Peer, Own]}
        end,
    {WindowMax, NodeWindowMax} =
        case Window of
            none -> {0, 0};
            {_, _} -> Window
        end,
    Argument = [
        <<IsInitiator:8, PacketMax:32/native, WindowMax:64/native, NodeWindowMax:64/native,
            (byte_size(Cookie)):16/native>>,
        Cookie,
        Nonces
    ],
    case {inet_rdma_port:reserve(Port), inet_rdma_port:command(Port, begin_session, Argument)} of
        {ok, {ok, <<Name:16/binary>>}} ->
            %% The VM's first packets come before the link is started.
            _ = [inet_rdma_port:command(Port, attribute) || Attribution =:= on],
            {ok, #{
                port => Port,
                name => Name,
                driver => Driver,
                role => Role,
                sealing => Sealing,
                compression => Compression,
                mptcp => Mptcp
            }};
        {Reserved, Adopted} ->
            [Error | _] = [Error || {error, _} = Error <- [Reserved, Adopted]],
            inet_rdma_port:close(Port),
            Error
    end.

%% The session begins over this connection: the port makes a descriptor of its own of it. A
%% connection inside TLS leaves TLS first. Returns the connection that the caller has to close.
-spec attach(t(), inet_rdma_transport:t()) ->
    {ok, inet_rdma_transport:tcp()}
    | {error, {not_given_back, Why :: binary()} | inet_rdma:reason()}.
attach(#{port := Port, driver := Driver} = Session, Connection) ->
    case take(Session, Connection) of
        {ok, Raw} ->
            {Driver, Socket} = inet_rdma_transport:socket(Raw),
            _ = inet:setopts(Socket, [inet_rdma_transport:nodelay()]),
            case inet_rdma_transport:descriptor(Raw) of
                {ok, Fd} ->
                    %% The nonces of the offers are in the session's secret.
                    #{compression := {Own, Peer}} = Session,
                    Argument = [
                        <<Fd:32/native, (flag(Own)):8, (flag(Peer)):8>>,
                        sealing(Session, <<"begin">>)
                    ],
                    case inet_rdma_port:command(Port, attach, Argument) of
                        {ok, _} -> {ok, Raw};
                        Error -> Error
                    end;
                {error, _} ->
                    {error, closed}
            end;
        Error ->
            Error
    end.

%% The attempt with this number has led to this connection. Received, Queue: as the peer has sent
%% them. Transcript: all earlier messages of both sides, with a nonce of each.
-spec resume(
    t(),
    Attempt :: pos_integer(),
    inet_rdma_transport:t(),
    {Received :: non_neg_integer(), Queue :: non_neg_integer()},
    Transcript :: binary()
) -> resumed | superseded | {failed, term()}.
resume(
    #{port := Port, name := Name, driver := Driver} = Session,
    Attempt,
    Connection,
    {Received, Queue},
    Transcript
) ->
    case take(Session, Connection) of
        {ok, Raw} ->
            {Driver, Socket} = inet_rdma_transport:socket(Raw),
            %% One by one, as some can be set only before a socket is connected.
            _ = [inet:setopts(Socket, [Option]) || Option <- inet_rdma_links:session_options(Name)],
            Resumed =
                case inet_rdma_transport:descriptor(Raw) of
                    {ok, Fd} ->
                        Argument = [
                            <<Attempt:64/native, Fd:32/native, Received:64/native,
                                Queue:64/native>>,
                            sealing(Session, Transcript)
                        ],
                        inet_rdma_port:command(Port, resume, Argument);
                    %% The peer has reset it.
                    {error, _} = Error ->
                        Error
                end,
            ok = inet_rdma_transport:close(Raw),
            case Resumed of
                {ok, <<1>>} -> resumed;
                {ok, <<>>} -> superseded;
                {error, Reason} -> {failed, Reason}
            end;
        {error, Reason} ->
            {failed, Reason}
    end.

%% Takes a connection to the session's peer, or to a node over which the peer is reached, inside
%% TLS, if the session began inside it. The handshake has this time.
-spec secure(t(), inet_rdma_transport:tcp(), Node :: binary(), TimeoutMs :: timeout()) ->
    {ok, inet_rdma_transport:t()} | {error, term()}.
secure(#{sealing := none}, Connection, _Node, _TimeoutMs) ->
    {ok, Connection};
secure(#{}, Connection, Node, TimeoutMs) ->
    {_, Host} = inet_rdma_tcp:name_and_host(Node),
    %% ssl logs each attempt that fails as a notice. The end of the loss is logged once, with the
    %% last one's reason.
    inet_rdma_tls:connect_over(Connection, Host, [{log_level, warning}], TimeoutMs).

%% The TCP connection of a connection to or from the session's peer.
-spec take(t(), inet_rdma_transport:t()) ->
    {ok, inet_rdma_transport:tcp()} | {error, {not_given_back, Why :: binary()}}.
take(#{driver := Driver}, Connection) ->
    inet_rdma_transport:take(Driver, Connection, fun inet_rdma_tls:give_back/1).

flag(true) -> 1;
flag(false) -> 0.

%% The part of a command that says how a TCP connection is sealed.
sealing(#{sealing := none}, _Transcript) ->
    <<>>;
sealing(
    #{sealing := #{cipher := Cipher, rekey_bytes := Bytes, rekey_seconds := Seconds}}, Transcript
) ->
    [<<(inet_rdma_offer:cipher_number(Cipher)):8, Bytes:64/native, Seconds:32/native>>, Transcript].

-spec port(t()) -> port().
port(#{port := Port}) -> Port.

-spec name(t()) -> <<_:128>>.
name(#{name := Name}) -> Name.

-spec role(t()) -> initiator | acceptor.
role(#{role := Role}) -> Role.

%% The protocol by which its connections begin.
-spec protocol(t()) -> tcp | tls.
protocol(#{sealing := none}) -> tcp;
protocol(#{}) -> tls.

-spec driver(t()) -> inet_rdma_transport:driver().
driver(#{driver := Driver}) -> Driver.

%% For how long an attempt of this side waits before its first message.
-spec yield_ms(t()) -> non_neg_integer().
yield_ms(#{role := initiator}) -> 0;
yield_ms(#{role := acceptor}) -> ?YIELD_MS.

%% Ends a dialer or a mover, and waits for its end: a process goes on for a while after exit/2.
%% After return it can give up no connection, and give the port no queue pair. By a new monitor, as
%% the message of the old one may have been handled.
-spec stop_process({pid(), reference()}) -> ok.
stop_process({Process, Ref}) ->
    demonitor(Ref, [flush]),
    End = monitor(process, Process),
    exit(Process, kill),
    receive
        {'DOWN', End, process, Process, _} -> ok
    end.

%% Socket options of the first TCP connection, which the later ones get, too, whichever side makes
%% them. Options of reading are left out, as the port reads.
-spec first_options(t(), inet_rdma_options:config()) -> [gen_tcp:option()].
first_options(#{role := Role}, #{congestion := Congestion}) ->
    Given =
        case Role of
            initiator -> inet_rdma_transport:connect_options(Congestion);
            acceptor -> inet_rdma_transport:listen_options(Congestion)
        end,
    Reading = [active, deliver, packet, mode, header],
    merge(
        [inet_rdma_transport:nodelay()],
        [Option || Option <- Given, is_tuple(Option), not lists:member(element(1, Option), Reading)]
    ).

%% Socket options of a connection that this side is about to make: the kernel parameter as it is
%% now, and the options congestion and mptcp with which the session began.
-spec connect_options(t()) -> [inet_rdma_transport:option()].
connect_options(#{name := Name} = Session) ->
    Set = inet_rdma_links:session_options(Name),
    inet_rdma_transport:connect_options(default, maps:get(mptcp, Session, off)) ++
        inet_rdma_congestion:among(Set).

%% The TCP connection stands by, as a queue pair carries the link. Packets of the distribution no
%% longer go over it, so the kernel probes it: firewalls keep it open, and a dead connection is
%% noticed within about net_ticktime. (tcp(7): keepalive, TCP_USER_TIMEOUT.) The kernel of a node
%% that is stopped (SIGSTOP) answers the probes.
-spec probe_standby(t()) -> ok.
probe_standby(Session) -> probe_standby(Session, inet_rdma_keeper:known_tick_time()).

%% With this net_ticktime, in seconds.
-spec probe_standby(t(), pos_integer()) -> ok.
probe_standby(Session, Seconds) ->
    Interval = max(1, Seconds div ?KEEPALIVES),
    set_if_there(
        [
            {keepalive, true},
            tcp_option(keepidle, Interval),
            tcp_option(keepintvl, Interval),
            tcp_option(keepcnt, ?KEEPALIVES),
            tcp_option(user_timeout, Seconds * 1000)
        ],
        Session
    ).

%% Ends the probes of probe_standby/1 and probe/1, and sets the user's options again. A peer that
%% reads nothing for long must not end the connection that carries the link.
-spec stop_probes(t()) -> ok.
stop_probes(#{name := Name} = Session) ->
    Set = inet_rdma_links:session_options(Name),
    set_if_there(merge(Set, [{keepalive, false}, tcp_option(user_timeout, 0)]), Session).

%% Sets nothing if there is no TCP connection: the next one begins with the user's options.
set_if_there(Options, Session) ->
    %% One by one, as some can be set only before a socket is connected.
    _ = with_socket(Session, fun(Socket) ->
        [inet:setopts(Socket, [Option]) || Option <- Options]
    end),
    ok.

%% Asks the peer's host for an answer over the TCP connection that carries the link: the kernel
%% sends a keepalive, which has no byte, within a second, and one every PROBE_SECONDS until
%% stop_probes/1. Without an answer it ends the connection after PROBES_MAX of them, about 10
%% minutes.
-spec probe(t()) -> ok.
probe(Session) ->
    set_if_there(
        [
            tcp_option(keepcnt, ?PROBES_MAX),
            tcp_option(keepintvl, ?PROBE_SECONDS),
            {keepalive, true},
            tcp_option(keepidle, 1)
        ],
        Session
    ).

%% They hold for the connections that follow, too.
-spec setopts(t(), [gen_tcp:option()]) -> ok | {error, term()}.
setopts(#{name := Name} = Session, Options) ->
    case inet_rdma_transport:bad_options(Options) of
        [] ->
            case with_socket(Session, fun(Socket) -> inet:setopts(Socket, Options) end) of
                ok -> remember(Name, Options);
                {error, closed} -> if_suspended(Name, Options);
                Error -> Error
            end;
        Bad ->
            {error, {badopts, Bad}}
    end.

remember(Name, Options) ->
    inet_rdma_links:set_session_options(
        Name, merge(Options, inet_rdma_links:session_options(Name))
    ).

%% While there is no TCP connection the options wait for the next one.
if_suspended(Name, Options) ->
    case inet_rdma_links:session(Name) of
        {ok, _Session} -> remember(Name, Options);
        _NoneOrUnknown -> {error, closed}
    end.

%% In the order in which they were set.
merge(Options, Before) ->
    Set = [option_key(Option) || Option <- Options],
    [Option || Option <- Before, not lists:member(option_key(Option), Set)] ++ Options.

option_key({raw, Protocol, Number, _Value}) -> {raw, Protocol, Number};
option_key(Option) when is_tuple(Option) -> element(1, Option);
option_key(Option) -> Option.

-spec getopts(t(), [atom()]) -> {ok, [term()]} | {error, term()}.
getopts(Session, Keys) -> with_socket(Session, fun(Socket) -> inet:getopts(Socket, Keys) end).

-spec tcp_info(t()) -> map() | unknown.
tcp_info(Session) ->
    case with_socket(Session, fun inet_rdma_transport:tcp_info/1) of
        #{} = Facts -> Facts;
        _ -> unknown
    end.

-spec ends(t()) -> {ok, inet_rdma_transport:ends()} | {error, term()}.
ends(#{driver := Driver} = Session) ->
    with_socket(Session, fun(Socket) ->
        inet_rdma_transport:ends(inet_rdma_transport:tcp(Driver, Socket))
    end).

with_socket(#{port := Port, driver := Driver}, Use) ->
    inet_rdma_port:with_socket(Port, Driver, Use).

%% A message of the peer's settlement comes as {session, Port, Bytes} to the process that settles,
%% which the guard ends when the TCP connection is lost.
-spec passive(t()) -> ok.
passive(_Session) -> ok.

-spec active_once(t()) -> ok.
active_once(_Session) -> ok.

-spec recv_message(t(), timeout()) -> {ok, binary()} | {error, timeout}.
recv_message(#{port := Port}, TimeoutMs) ->
    receive
        {session, Port, Message} -> {ok, Message}
    after TimeoutMs ->
        {error, timeout}
    end.

%% Sends a message to the peer's guard.
-spec send_message(t(), binary()) -> ok | {error, closed}.
send_message(#{port := Port}, Message) ->
    case inet_rdma_port:command(Port, control, Message) of
        {ok, _} -> ok;
        Error -> Error
    end.

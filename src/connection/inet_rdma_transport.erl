%% The connection on which a link or an encrypted stream begins: a TCP socket, or a TLS connection.
%%
%% The handshake of the distribution and the settlement go over it. A session takes over its TCP
%% socket. OTP carries a link without a session that stays on the connection: the VM's own port
%% driver over TCP, ssl's processes over TLS. Beside a stream's queue pair the connection takes
%% nothing.
-module(inet_rdma_transport).

-behaviour(inet_rdma_settlement_message).

-export([
    connect/4,
    tcp/2,
    tls/1, tls/2,
    protocol/1,
    handle/1,
    send/2,
    recv/3,
    ends/1,
    is_local/1,
    peer_certificate/1
]).
%% Callbacks of a settlement.
-export([passive/1, active_once/1, send_message/2, recv_message/2]).
%% Used for sessions.
-export([socket/1, descriptor/1, take/3]).
-export([first_packet/0, await_first/1, recv_first/2, recv_last/3]).
-export([open/4, connect_options/1, connect_options/2, listen_options/1, nodelay/0, tcp_option/2]).
-export([tcp_info/1, bad_options/1]).
%% For a link that stays.
-export([
    before_nodeup/1,
    after_nodeup/1,
    controller/1,
    handshake_complete/3,
    tick/1,
    getstat/1,
    counts/1,
    setopts/2,
    getopts/2
]).
%% For its owners.
-export([give/2, watch/1, close/1]).
-export_type([t/0, tcp/0, driver/0, ends/0, option/0]).

%% Size limit of a packet on a connection that should be silent, enforced before the packet is read.
-define(SILENT_BYTES_MAX, 1024).

%% Size limit of the first packet over TCP. Names of nodes have 1,020 bytes at most. A record of
%% TLS, taken for a packet, has 5,379 bytes or more (16#1503: an alert), which would not come.
-define(FIRST_BYTES_MAX, 5000).

-define(IPPROTO_TCP, 6).
-define(TCP_INFO, 11).
%% Up to tcpi_bytes_acked.
-define(TCP_INFO_BYTES, 128).
%% linux/mptcp.h. Up to mptcpi_snd_una.
-define(SOL_MPTCP, 284).
-define(MPTCP_INFO, 1).
-define(MPTCP_INFO_BYTES, 32).

-type driver() :: inet_tcp | inet6_tcp.
%% mptcp: a socket of MPTCP, where the kernel has it.
-type option() :: gen_tcp:option() | mptcp.
-type ends() :: {Own :: address(), Peer :: address()}.
-type address() :: {inet:ip_address(), inet:port_number()}.

-type tcp() :: {tcp, driver(), inet:socket()}.
-type t() :: tcp() | {tls, ssl:sslsocket(), Sender :: pid() | none}.

%% A connection over TCP that is passive, as passive/1 makes it. The caller owns it.
-spec connect(driver(), address(), [option()], timeout()) -> {ok, tcp()} | {error, term()}.
connect(Driver, {Ip, TcpPort}, Options, TimeoutMs) ->
    Reading = [{active, false}, {packet, raw}],
    case open(Driver, {Ip, TcpPort}, Options ++ Reading, TimeoutMs) of
        {ok, Socket} ->
            _ = passive(tcp(Driver, Socket)),
            {ok, tcp(Driver, Socket)};
        Error ->
            Error
    end.

%% A connected socket. The caller owns it.
-spec open(driver(), address(), [option()], timeout()) -> {ok, inet:socket()} | {error, term()}.
open(Driver, {Ip, TcpPort} = Address, Options, TimeoutMs) ->
    case lists:member(mptcp, Options) of
        true -> inet_rdma_multipath:connect(Driver, Address, Options -- [mptcp], TimeoutMs);
        false -> Driver:connect(Ip, TcpPort, Options, TimeoutMs)
    end.

-spec tcp(driver(), inet:socket()) -> tcp().
tcp(Driver, Socket) -> {tcp, Driver, Socket}.

%% Sender: the process of ssl that sends.
-spec tls(ssl:sslsocket(), pid()) -> t().
tls(Socket, Sender) -> {tls, Socket, Sender}.

%% A TLS connection of a stream, which does not use the sender process.
-spec tls(ssl:sslsocket()) -> t().
tls(Socket) -> {tls, Socket, none}.

-spec protocol(t()) -> tcp | tls.
protocol(Connection) -> element(1, Connection).

-spec socket(tcp()) -> {driver(), inet:socket()}.
socket({tcp, Driver, Socket}) -> {Driver, Socket}.

%% With the kernel parameter inet_backend as socket TLS connects by a socket of that module.
-spec descriptor(tcp()) -> {ok, non_neg_integer()} | {error, term()}.
descriptor({tcp, _Driver, {'$inet', gen_tcp_socket, {_Server, Socket}}}) ->
    socket:getopt(Socket, {otp, fd});
descriptor({tcp, _Driver, Socket}) ->
    prim_inet:getfd(Socket).

%% Gives the TCP connection. A connection inside TLS leaves TLS first, by the function, on both
%% sides at the same time.
-spec take(driver(), t(), GiveBack) -> {ok, tcp()} | {error, {not_given_back, Why :: binary()}} when
    GiveBack :: fun((ssl:sslsocket()) -> {ok, inet:socket()} | {error, Why :: binary()}).
take(_Driver, {tcp, _, _} = Connection, _GiveBack) ->
    {ok, Connection};
take(Driver, {tls, Socket, Sender}, GiveBack) ->
    unlink(Sender),
    case GiveBack(Socket) of
        {ok, Tcp} -> {ok, {tcp, Driver, Tcp}};
        {error, Why} -> {error, {not_given_back, Why}}
    end.

%% What dist_util and net_kernel call the socket: over TLS the sender, as inet_tls_dist does.
-spec handle(t()) -> inet:socket() | pid().
handle({tcp, _Driver, Socket}) -> Socket;
handle({tls, _Socket, Sender}) -> Sender.

-spec send(t(), iodata()) -> ok | {error, term()}.
send({tcp, Driver, Socket}, Bytes) -> Driver:send(Socket, Bytes);
send({tls, Socket, _Sender}, Bytes) -> ssl:send(Socket, Bytes).

%% The next packet: over TCP a list or a binary, as the socket is set; over TLS a binary.
-spec recv(t(), Length :: non_neg_integer(), timeout()) ->
    {ok, binary() | [byte()]} | {error, term()}.
recv({tcp, Driver, Socket}, Length, TimeoutMs) -> Driver:recv(Socket, Length, TimeoutMs);
recv({tls, Socket, _Sender}, Length, TimeoutMs) -> ssl:recv(Socket, Length, TimeoutMs).

-spec ends(t()) -> {ok, ends()} | {error, term()}.
ends({tcp, _Driver, Socket}) -> ends(inet:sockname(Socket), inet:peername(Socket));
ends({tls, Socket, _Sender}) -> ends(ssl:sockname(Socket), ssl:peername(Socket)).

ends({ok, Own}, {ok, Peer}) -> {ok, {Own, Peer}};
ends({ok, _Own}, Error) -> Error;
ends(Error, _Peer) -> Error.

%% Whether both ends have one address.
-spec is_local(t()) -> boolean().
is_local(Connection) ->
    case ends(Connection) of
        {ok, {{Ip, _}, {Ip, _}}} -> true;
        _ -> false
    end.

%% The options in the kernel parameters, and this congestion control.
-spec connect_options(inet_rdma_congestion:name()) -> [gen_tcp:option()].
connect_options(Congestion) -> with(Congestion, inet_dist_connect_options).

%% And a socket of MPTCP, if the option says so.
-spec connect_options(inet_rdma_congestion:name(), inet_rdma_multipath:option()) -> [option()].
connect_options(Congestion, auto) -> [mptcp | connect_options(Congestion)];
connect_options(Congestion, off) -> connect_options(Congestion).

-spec listen_options(inet_rdma_congestion:name()) -> [gen_tcp:option()].
listen_options(Congestion) -> with(Congestion, inet_dist_listen_options).

with(default, Parameter) ->
    application:get_env(kernel, Parameter, []);
with(Congestion, Parameter) ->
    application:get_env(kernel, Parameter, []) ++ inet_rdma_congestion:socket_options(Congestion).

%% The option of a socket by which a first packet that is too long is an error, emsgsize.
-spec first_packet() -> gen_tcp:option().
first_packet() -> {packet_size, ?FIRST_BYTES_MAX}.

%% An acceptor's connection gets that option.
-spec await_first(t()) -> ok.
await_first({tcp, _Driver, Socket}) ->
    %% One that has ended fails in recv_first/2.
    _ = inet:setopts(Socket, [first_packet()]),
    ok;
await_first({tls, _Socket, _Sender}) ->
    ok.

%% A packet before the peer's name is known. emsgsize: it is none of a handshake over TCP.
-spec recv_first(t(), timeout()) -> {ok, binary() | [byte()]} | {error, term()}.
recv_first({tcp, Driver, Socket}, TimeoutMs) ->
    case Driver:recv(Socket, 0, TimeoutMs) of
        {ok, Packet} ->
            _ = inet:setopts(Socket, [{packet_size, 0}]),
            {ok, Packet};
        Error ->
            Error
    end;
recv_first(Connection, TimeoutMs) ->
    recv(Connection, 0, TimeoutMs).

%% The last packet of the handshake, of this many bytes. The bytes after the packet may belong to a
%% session, and are not read. Length and packet are read in one step, as a second step costs each
%% connect 100 us.
-spec recv_last(t(), Bytes :: pos_integer(), timeout()) -> {ok, binary()} | {error, term()}.
recv_last({tcp, Driver, Socket}, Bytes, TimeoutMs) ->
    _ = inet:setopts(Socket, [{packet, raw}]),
    case Driver:recv(Socket, 2 + Bytes, TimeoutMs) of
        {ok, Packet} ->
            case iolist_to_binary(Packet) of
                <<Bytes:16, Message/binary>> -> {ok, Message};
                _ -> {error, closed}
            end;
        Error ->
            Error
    end;
recv_last(Connection, _Bytes, TimeoutMs) ->
    recv(Connection, 0, TimeoutMs).

%% The peer's certificate in DER.
-spec peer_certificate({tls, ssl:sslsocket(), Sender :: pid() | none}) ->
    {ok, binary()} | {error, term()}.
peer_certificate({tls, Socket, _Sender}) -> ssl:peercert(Socket).

%% Under the keys of inet_rdma:info/1; of a TCP socket also sizes of packets. TLS counts records,
%% whose sizes are not those of packets.
-spec counts(t()) -> {ok, #{atom() => number()}} | {error, term()}.
counts(Connection) ->
    Keys = keys(Connection),
    case statistics(Connection, [Key || {Key, _} <- Keys]) of
        {ok, Counts} ->
            {ok,
                maps:from_list([
                    {Name, Count}
                 || {{_, Names}, {_, Count}} <- lists:zip(Keys, Counts), Name <- Names
                ])};
        Error ->
            Error
    end.

%% Keys of inet:getstat/2, with their names in inet_rdma:info/1.
keys({tcp, _Driver, _Socket}) ->
    [
        {recv_oct, [bytes_received, packet_bytes_received]},
        {recv_max, [largest_packet_received]},
        {recv_dvi, [packet_deviation_received]},
        {send_max, [largest_packet_sent]}
        | common_keys()
    ];
keys({tls, _Socket, _Sender}) ->
    [{recv_oct, [bytes_received]} | common_keys()].

common_keys() ->
    [
        {recv_cnt, [packets_received]},
        {send_cnt, [packets_sent]},
        {send_oct, [bytes_sent]},
        {send_pend, [bytes_pending]}
    ].

%% inet answers in the order of the keys.
statistics({tcp, _Driver, Socket}, Keys) ->
    inet:getstat(Socket, Keys);
statistics({tls, Socket, _Sender}, Keys) ->
    try
        ssl:getstat(Socket, Keys)
    catch
        exit:_ -> {error, closed}
    end.

-spec passive(t()) -> ok | {error, term()}.
passive({tcp, _Driver, Socket}) ->
    inet:setopts(Socket, [{active, false}, binary, {packet, raw}, {nodelay, true}]);
passive({tls, Socket, _Sender}) ->
    ssl:setopts(Socket, [{active, false}, {mode, binary}]).

-spec active_once(t()) -> ok | {error, term()}.
active_once({tcp, _Driver, Socket}) -> inet:setopts(Socket, [{packet, 2}, {active, once}]);
active_once({tls, Socket, _Sender}) -> ssl:setopts(Socket, [{active, once}]).

%% Over TCP a message is read by its length. The bytes after it may belong to a session, and are not
%% read. A connection that has left TLS may be one of the module socket, which gen_tcp knows.
-spec recv_message(t(), timeout()) -> {ok, binary()} | {error, term()}.
recv_message({tcp, _Driver, Socket}, TimeoutMs) ->
    case gen_tcp:recv(Socket, 2, TimeoutMs) of
        {ok, Header} ->
            case iolist_to_binary(Header) of
                <<0:16>> -> {ok, <<>>};
                <<Length:16>> -> gen_tcp:recv(Socket, Length, TimeoutMs)
            end;
        Error ->
            Error
    end;
recv_message(Connection, TimeoutMs) ->
    recv(Connection, 0, TimeoutMs).

-spec send_message(t(), binary()) -> ok | {error, term()}.
send_message({tcp, _Driver, Socket}, Message) when byte_size(Message) < 1 bsl 16 ->
    gen_tcp:send(Socket, [<<(byte_size(Message)):16>>, Message]);
send_message({tcp, _Driver, _Socket}, _Message) ->
    {error, emsgsize};
send_message(Connection, Message) ->
    send(Connection, Message).

-spec before_nodeup(t()) -> ok | {error, term()}.
before_nodeup({tcp, _Driver, Socket}) ->
    inet:setopts(Socket, [{active, false}, {packet, 4}, nodelay()]);
before_nodeup({tls, _Socket, _Sender}) ->
    ok.

-spec after_nodeup(t()) -> ok | {error, term()}.
after_nodeup({tcp, _Driver, Socket}) ->
    inet:setopts(Socket, [{active, true}, {deliver, port}, {packet, 4}, binary, nodelay()]);
after_nodeup({tls, Socket, _Sender}) ->
    ssl:setopts(Socket, [nodelay()]).

%% As the kernel parameter dist_nodelay says.
-spec nodelay() -> {nodelay, boolean()}.
nodelay() ->
    case application:get_env(kernel, dist_nodelay) of
        {ok, false} -> {nodelay, false};
        _ -> {nodelay, true}
    end.

-spec controller(t()) -> {ok, port() | pid()} | {error, term()}.
controller({tcp, _Driver, Socket}) -> inet:getll(Socket);
controller({tls, _Socket, Sender}) -> {ok, Sender}.

-spec handshake_complete(t(), node(), erlang:dist_handle()) -> ok.
handshake_complete({tcp, _Driver, _Socket}, _Node, _Handle) ->
    ok;
handshake_complete({tls, _Socket, Sender}, Node, Handle) ->
    tls_sender:dist_handshake_complete(Sender, Node, Handle).

%% The caller is the supervisor. If the socket is closed, the supervisor gets the message of a
%% socket that has ended.
-spec tick(t()) -> ok | {error, term()}.
tick({tcp, Driver, Socket}) ->
    case Driver:send(Socket, [], [force]) of
        {error, closed} = Error ->
            self() ! {tcp_closed, Socket},
            Error;
        Result ->
            Result
    end;
tick({tls, _Socket, Sender}) ->
    Sender ! tick,
    ok.

%% Packets received, packets sent, and whether any wait.
-spec getstat(t()) ->
    {ok, non_neg_integer(), non_neg_integer(), non_neg_integer()} | {error, term()}.
getstat(Connection) ->
    case statistics(Connection, [recv_cnt, send_cnt, send_pend]) of
        {ok, [{_, Received}, {_, Sent}, {_, Pending}]} -> {ok, Received, Sent, Pending};
        Error -> Error
    end.

%% Refuses options that the carrier itself sets.
-spec setopts(t(), [term()]) -> ok | {error, term()}.
setopts({tcp, _Driver, Socket}, Options) ->
    inet_tcp_dist:setopts(Socket, Options);
setopts({tls, Socket, _Sender}, Options) ->
    case bad_options(Options) of
        [] -> ssl:setopts(Socket, Options);
        Bad -> {error, {badopts, Bad}}
    end.

%% An option of tcp(7), with Linux's number for it (netinet/tcp.h).
-spec tcp_option(
    maxseg | keepidle | keepintvl | keepcnt | syncnt | user_timeout, non_neg_integer()
) ->
    gen_tcp:option().
tcp_option(Name, Value) -> {raw, ?IPPROTO_TCP, tcp_number(Name), <<Value:32/native>>}.

tcp_number(maxseg) -> 2;
tcp_number(keepidle) -> 4;
tcp_number(keepintvl) -> 5;
tcp_number(keepcnt) -> 6;
tcp_number(syncnt) -> 7;
tcp_number(user_timeout) -> 18.

%% Facts of TCP_INFO (linux/tcp.h) about a TCP connection: segments that the peer's host has not
%% acknowledged, the bytes that it has, the bytes of a full segment, and of a packet that the way
%% takes as far as the kernel knows. unknown: the kernel does not say. With MPTCP these are facts of
%% the first subflow, whose way may be cut while another one goes on: the acknowledged bytes are the
%% connection's, and where it has none that are not acknowledged, neither has that subflow.
-spec tcp_info(gen_tcp:socket()) ->
    #{unacknowledged | acknowledged_bytes | segment_bytes | packet_bytes := non_neg_integer()}
    | unknown.
tcp_info(Socket) ->
    Keys = [
        {raw, ?IPPROTO_TCP, ?TCP_INFO, ?TCP_INFO_BYTES},
        {raw, ?SOL_MPTCP, ?MPTCP_INFO, ?MPTCP_INFO_BYTES}
    ],
    case inet:getopts(Socket, Keys) of
        {ok, [{raw, _, _, Tcp} | Multipath]} -> of_stream(Multipath, of_tcp(Tcp));
        _ -> unknown
    end.

of_tcp(
    <<_:16/binary, Segment:32/native, _:4/binary, Unacknowledged:32/native, _:32/binary,
        Packet:32/native, _:56/binary, Acknowledged:64/native, _/binary>>
) ->
    #{
        unacknowledged => Unacknowledged,
        acknowledged_bytes => Acknowledged,
        segment_bytes => Segment,
        packet_bytes => Packet
    };
of_tcp(_Shorter) ->
    unknown.

of_stream(
    [{raw, _, _, <<_:16/binary, Written:64/native, Acknowledged:64/native, _/binary>>}],
    #{unacknowledged := Segments} = Facts
) ->
    Facts#{
        acknowledged_bytes := Acknowledged,
        unacknowledged :=
            case Written of
                Acknowledged -> 0;
                _ -> Segments
            end
    };
of_stream(_PlainTcp, Facts) ->
    Facts.

-spec bad_options([term()]) -> [term()].
bad_options(Options) ->
    [Option || {Key, _} = Option <- Options, lists:member(Key, [active, deliver, packet])].

-spec getopts(t(), [atom()]) -> {ok, [term()]} | {error, term()}.
getopts({tcp, _Driver, Socket}, Keys) -> inet:getopts(Socket, Keys);
getopts({tls, Socket, _Sender}, Keys) -> ssl:getopts(Socket, Keys).

%% Gives the connection from the caller, its owner, to a process. Over TLS the caller is unlinked
%% from it.
-spec give(t(), pid()) -> ok | {error, term()}.
give({tcp, Driver, Socket}, Process) ->
    Driver:controlling_process(Socket, Process);
give({tls, Socket, Sender}, Process) ->
    case ssl:controlling_process(Socket, Process) of
        ok ->
            unlink(Sender),
            ok;
        Error ->
            Error
    end.

%% Watches the TLS connection of a stream, which should be silent: a packet, or the end, is a
%% message as in active_once/1.
-spec watch(t()) -> ok | {error, term()}.
watch({tls, Socket, none} = Connection) ->
    _ = ssl:setopts(Socket, [{packet_size, ?SILENT_BYTES_MAX}]),
    active_once(Connection).

%% Closes the connection. Over TLS the peer gets an alert that says so.
-spec close(t()) -> ok.
close({tcp, _Driver, Socket}) ->
    gen_tcp:close(Socket);
close({tls, Socket, _Sender}) ->
    _ = ssl:close(Socket),
    ok.

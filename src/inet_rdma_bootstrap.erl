%% The connection on which a link begins: TCP, or TLS over TCP; or an encrypted stream: TLS.
%%
%% The handshake of the distribution and the settlement go over it. A link that stays on it is carried by OTP: by the VM's own
%% port driver over TCP, by ssl's processes over TLS. Of a link that has moved it is the liveness: it is silent, but for new
%% keys over TLS, and its end is the link's end.
-module(inet_rdma_bootstrap).

-export([tcp/2, tls/1, tls/2, protocol/1, handle/1, send/2, recv/3, peername/1, peer_certificate/1, counts/1]).
%% In the settlement.
-export([passive/1, active_once/1]).
%% For a link that stays.
-export([before_nodeup/1, after_nodeup/1, controller/1, handshake_complete/3, tick/1, getstat/1, setopts/2, getopts/2]).
%% For what has moved.
-export([give/2, watch/1, close/1]).
-export_type([t/0, driver/0]).

%% A packet of a connection that should be silent is bounded before it is read.
-define(SILENT_BYTES_MAX, 1024).

-type driver() :: inet_tcp | inet6_tcp.

-opaque t() :: {tcp, driver(), inet:socket()} | {tls, ssl:sslsocket(), Sender :: pid() | none}.

-spec tcp(driver(), inet:socket()) -> t().
tcp(Driver, Socket) -> {tcp, Driver, Socket}.

%% Sender: ssl's process that sends.
-spec tls(ssl:sslsocket(), pid()) -> t().
tls(Socket, Sender) -> {tls, Socket, Sender}.

%% Of a stream: its sender has no part in it.
-spec tls(ssl:sslsocket()) -> t().
tls(Socket) -> {tls, Socket, none}.

-spec protocol(t()) -> tcp | tls.
protocol(Connection) -> element(1, Connection).

%% What dist_util and net_kernel call the socket: over TLS the sender, as inet_tls_dist does.
-spec handle(t()) -> inet:socket() | pid().
handle({tcp, _Driver, Socket}) -> Socket;
handle({tls, _Socket, Sender}) -> Sender.

-spec send(t(), iodata()) -> ok | {error, term()}.
send({tcp, Driver, Socket}, Bytes) -> Driver:send(Socket, Bytes);
send({tls, Socket, _Sender}, Bytes) -> ssl:send(Socket, Bytes).

%% The next packet: over TCP a list or a binary, as the socket is set; over TLS a binary.
-spec recv(t(), Length :: non_neg_integer(), timeout()) -> {ok, binary() | [byte()]} | {error, term()}.
recv({tcp, Driver, Socket}, Length, TimeoutMs) -> Driver:recv(Socket, Length, TimeoutMs);
recv({tls, Socket, _Sender}, Length, TimeoutMs) -> ssl:recv(Socket, Length, TimeoutMs).

-spec peername(t()) -> {ok, {inet:ip_address(), inet:port_number()}} | {error, term()}.
peername({tcp, _Driver, Socket}) -> inet:peername(Socket);
peername({tls, Socket, _Sender}) -> ssl:peername(Socket).

%% In DER.
-spec peer_certificate(t()) -> {ok, binary()} | {error, no_peercert | term()}.
peer_certificate({tls, Socket, _Sender}) -> ssl:peercert(Socket);
peer_certificate({tcp, _Driver, _Socket}) -> {error, no_peercert}.

%% Of the TCP socket: packets and bytes received, packets and bytes sent, bytes that wait.
-spec counts(t()) -> {ok, [non_neg_integer()]} | {error, term()}.
counts(Connection) ->
    case statistics(Connection, [recv_cnt, recv_oct, send_cnt, send_oct, send_pend]) of
        {ok, Counts} -> {ok, [Count || {_, Count} <- Counts]};
        Error -> Error
    end.

%% inet answers in the order of the keys.
statistics({tcp, _Driver, Socket}, Keys) ->
    inet:getstat(Socket, Keys);
statistics({tls, Socket, _Sender}, Keys) ->
    try ssl:getstat(Socket, Keys)
    catch exit:_ -> {error, closed}
    end.

%% Packets come by recv/3.
-spec passive(t()) -> ok | {error, term()}.
passive({tcp, _Driver, Socket}) -> inet:setopts(Socket, [{active, false}, binary, {nodelay, true}]);
passive({tls, Socket, _Sender}) -> ssl:setopts(Socket, [{active, false}, {mode, binary}]).

%% The next packet, or the end, comes as a message {tcp | ssl, _, Bytes}, {tcp_closed | ssl_closed, _} or
%% {tcp_error | ssl_error, _, Reason}.
-spec active_once(t()) -> ok | {error, term()}.
active_once({tcp, _Driver, Socket}) -> inet:setopts(Socket, [{active, once}]);
active_once({tls, Socket, _Sender}) -> ssl:setopts(Socket, [{active, once}]).

-spec before_nodeup(t()) -> ok | {error, term()}.
before_nodeup({tcp, _Driver, Socket}) -> inet:setopts(Socket, [{active, false}, {packet, 4}, nodelay()]);
before_nodeup({tls, _Socket, _Sender}) -> ok.

-spec after_nodeup(t()) -> ok | {error, term()}.
after_nodeup({tcp, _Driver, Socket}) ->
    inet:setopts(Socket, [{active, true}, {deliver, port}, {packet, 4}, binary, nodelay()]);
after_nodeup({tls, Socket, _Sender}) ->
    ssl:setopts(Socket, [nodelay()]).

nodelay() ->
    case application:get_env(kernel, dist_nodelay) of
        {ok, false} -> {nodelay, false};
        _ -> {nodelay, true}
    end.

%% The VM's distribution controller.
-spec controller(t()) -> {ok, port() | pid()} | {error, term()}.
controller({tcp, _Driver, Socket}) -> inet:getll(Socket);
controller({tls, _Socket, Sender}) -> {ok, Sender}.

%% The VM knows the link.
-spec handshake_complete(t(), node(), erlang:dist_handle()) -> ok.
handshake_complete({tcp, _Driver, _Socket}, _Node, _Handle) -> ok;
handshake_complete({tls, _Socket, Sender}, Node, Handle) -> tls_sender:dist_handshake_complete(Sender, Node, Handle).

%% The caller is the supervisor: it hears of a closed socket as of one that has ended by itself.
-spec tick(t()) -> ok | {error, term()}.
tick({tcp, Driver, Socket}) ->
    case Driver:send(Socket, [], [force]) of
        {error, closed} = Error -> self() ! {tcp_closed, Socket}, Error;
        Result -> Result
    end;
tick({tls, _Socket, Sender}) ->
    Sender ! tick,
    ok.

%% Packets received, packets sent, and whether any wait.
-spec getstat(t()) -> {ok, non_neg_integer(), non_neg_integer(), non_neg_integer()} | {error, term()}.
getstat(Connection) ->
    case statistics(Connection, [recv_cnt, send_cnt, send_pend]) of
        {ok, Counts} -> list_to_tuple([ok | [proplists:get_value(Key, Counts) || Key <- [recv_cnt, send_cnt, send_pend]]]);
        Error -> Error
    end.

%% Not the options that the carrier itself has set.
-spec setopts(t(), [term()]) -> ok | {error, term()}.
setopts({tcp, _Driver, Socket}, Options) ->
    inet_tcp_dist:setopts(Socket, Options);
setopts({tls, Socket, _Sender}, Options) ->
    case [Option || {Key, _} = Option <- Options, lists:member(Key, [active, deliver, packet])] of
        [] -> ssl:setopts(Socket, Options);
        Bad -> {error, {badopts, Bad}}
    end.

-spec getopts(t(), [atom()]) -> {ok, [term()]} | {error, term()}.
getopts({tcp, _Driver, Socket}, Keys) -> inet:getopts(Socket, Keys);
getopts({tls, Socket, _Sender}, Keys) -> ssl:getopts(Socket, Keys).

%% The caller owns the connection; then the process does. Over TLS its end is not the caller's end any more.
-spec give(t(), pid()) -> ok | {error, term()}.
give({tcp, Driver, Socket}, Process) ->
    Driver:controlling_process(Socket, Process);
give({tls, Socket, Sender}, Process) ->
    case ssl:controlling_process(Socket, Process) of
        ok -> unlink(Sender), ok;
        Error -> Error
    end.

%% The connection has nothing to say: anything that comes is a message as in active_once/1. Over TLS the end of ssl's sender
%% is a message 'DOWN', too.
-spec watch(t()) -> ok | {error, term()}.
watch({tcp, _Driver, Socket}) -> inet:setopts(Socket, [binary, {packet, raw}, {active, once}]);
watch({tls, Socket, Sender} = Connection) ->
    _ = [monitor(process, Sender) || is_pid(Sender)],
    _ = ssl:setopts(Socket, [{packet_size, ?SILENT_BYTES_MAX}]),
    active_once(Connection).

%% Over TLS the peer is told.
-spec close(t()) -> ok.
close({tcp, Driver, Socket}) ->
    Driver:close(Socket);
close({tls, Socket, _Sender}) ->
    _ = ssl:close(Socket),
    ok.

%% Streams that begin inside TLS: the option tls of inet_rdma:listen/2 and connect/3,4. The parties of such a stream:
%%
%% * the user: owns the socket, and knows nothing of TLS;
%% * the guard (inet_rdma_stream_guard): does the handshake of TLS and the settlement (inet_rdma_settlement), gives the
%%   stream to the user, and then sleeps. It owns the TLS connection as long as the stream lives, and exchanges new
%%   keys over it;
%% * the listener (inet_rdma_stream_listener), on the accepting side;
%% * the peer.
%%
%% The callbacks of inet_rdma_settlement_way make a stream of a queue pair.
-module(inet_rdma_stream).

-behaviour(inet_rdma_settlement_way).

-export([config/1, reserve/0, open/5, close/1]).
-export([conn/1, is_encrypted/1, settle/3, connect/5]).
-export([do_connect/6]).
-export_type([stream/0]).

-record(stream, {
    conn :: inet_rdma_nif:conn(),
    is_encrypted :: boolean()
}).

-opaque stream() :: #stream{}.

-spec config(inet_rdma_options:config()) -> inet_rdma_options:config().
config(Config) -> Config.

-spec reserve() -> {ok, none}.
reserve() -> {ok, none}.

%% The caller owns the stream.
-spec open(none, inet_rdma_nif:attempt(), none, inet_rdma_options:config(), inet_rdma_nif:protection()) ->
          {ok, stream(), Why :: binary()} | waiting | {error, inet_rdma:reason()}.
open(none, Attempt, none, _Config, Protection) ->
    case inet_rdma_nif:stream(Attempt, Protection) of
        {ok, Conn} -> {ok, #stream{conn = Conn, is_encrypted = Protection =/= none}, <<>>};
        Other -> Other
    end.

-spec close(stream() | none) -> ok.
close(none) -> ok;
close(#stream{conn = Conn}) -> inet_rdma_nif:close(Conn).

-spec conn(stream()) -> inet_rdma_nif:conn().
conn(#stream{conn = Conn}) -> Conn.

-spec is_encrypted(stream()) -> boolean().
is_encrypted(#stream{is_encrypted = IsEncrypted}) -> IsEncrypted.

%% Over a TLS connection that the caller owns.
-spec settle(initiator | acceptor, inet_rdma_transport:t(), inet_rdma_options:config()) ->
          {ok, stream()} | {error, inet_rdma:reason()}.
settle(Role, Connection, Config) ->
    case inet_rdma_settlement:settle_stream(Role, Connection, Config) of
        {move, Stream, _Why} -> {ok, Stream};
        {refuse, Why} -> {error, {no_way, Why}};
        {error, Why} -> {error, {not_settled, Why}}
    end.

%% The caller owns the stream. {error, etimedout}: the time BoundMs is over.
-spec connect(inet:hostname() | inet:ip_address(), inet:port_number(), inet_rdma_socket_options:options(),
              inet_rdma_options:config(), BoundMs :: pos_integer()) ->
          {ok, inet_rdma_nif:conn(), Id :: pos_integer()} | {error, inet_rdma:reason()}.
connect(Host, Port, SocketOptions, Config, BoundMs) ->
    Ref = make_ref(),
    {Guard, Monitor} = spawn_monitor(?MODULE, do_connect, [{self(), Ref}, Host, Port, SocketOptions, Config, BoundMs]),
    receive
        {Ref, Conn, Id} -> demonitor(Monitor, [flush]), {ok, Conn, Id};
        {'DOWN', Monitor, process, Guard, {shutdown, Reason}} -> {error, Reason};
        {'DOWN', Monitor, process, Guard, Reason} -> {error, {tls, Reason}}
    after BoundMs ->
        exit(Guard, kill),
        receive {'DOWN', Monitor, process, Guard, _} -> ok end,
        receive {Ref, Conn, _Id} -> inet_rdma_nif:close(Conn) after 0 -> ok end,
        {error, etimedout}
    end.

%% Becomes the guard.
-spec do_connect(User, inet:hostname() | inet:ip_address(), inet:port_number(), inet_rdma_socket_options:options(),
                 inet_rdma_options:config(), BoundMs :: pos_integer()) -> no_return() when User :: {pid(), reference()}.
do_connect({User, Ref}, Host, Port, SocketOptions, Config, BoundMs) ->
    DeadlineMs = erlang:monotonic_time(millisecond) + BoundMs,
    case inet_rdma_stream_tls:connect(Host, Port, SocketOptions, DeadlineMs) of
        {ok, Socket} ->
            Connection = inet_rdma_transport:tls(Socket),
            LeftMs = max(1, DeadlineMs - erlang:monotonic_time(millisecond)),
            case settle(initiator, Connection, Config#{connect_timeout_ms := LeftMs}) of
                {ok, Stream} -> inet_rdma_stream_guard:run(Stream, Connection, {User, Ref});
                {error, Reason} -> exit({shutdown, Reason})
            end;
        {error, Reason} ->
            exit({shutdown, inet_rdma_stream_tls:reason(Reason)})
    end.

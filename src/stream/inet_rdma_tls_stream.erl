%% Streams that begin inside TLS: the option tls of inet_rdma:listen/2 and connect/3,4. The parties
%% of such a stream:
%%
%% * the user: owns the socket, and knows nothing of TLS;
%% * the TLS owner (inet_rdma_tls_owner): does the handshake of TLS and the settlement, gives the
%% stream to the user,
%%   and then sleeps. It owns the TLS connection as long as the stream lives;
%% * the listener (inet_rdma_tls_stream_listener), on the accepting side.
-module(inet_rdma_tls_stream).

-behaviour(inet_rdma_settlement_queue).

-export([config/1, open/5, close/1]).
-export([settle/3]).

-spec config(inet_rdma_options:config()) -> inet_rdma_options:config().
config(Config) -> Config.

%% The caller owns the stream.
-spec open(
    none, inet_rdma_nif:attempt(), none, inet_rdma_options:config(), inet_rdma_nif:protection()
) ->
    {ok, inet_rdma_nif:conn(), Why :: binary()} | waiting | {error, inet_rdma:reason()}.
open(none, Attempt, none, _Config, Protection) ->
    case inet_rdma_nif:stream(Attempt, Protection) of
        {ok, Conn} -> {ok, Conn, <<>>};
        Other -> Other
    end.

-spec close(inet_rdma_nif:conn()) -> ok.
close(Conn) -> inet_rdma_nif:close(Conn).

%% Over a TLS connection that the caller owns.
-spec settle(initiator | acceptor, inet_rdma_transport:t(), inet_rdma_options:config()) ->
    {ok, inet_rdma_nif:conn()} | {error, inet_rdma:reason()}.
settle(Role, Connection, Config) ->
    case inet_rdma_settlement:settle_stream(Role, Connection, Config) of
        {move, Conn, _Why} -> {ok, Conn};
        {refuse, Why} -> {error, {no_path, Why}};
        {error, Why} -> {error, {not_settled, Why}}
    end.

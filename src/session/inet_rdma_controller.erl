%% What carries a link that is up, for the callbacks of the distribution: the connection on which it
%% began, or a session.
-module(inet_rdma_controller).

-export([handle/1, handshake_complete/3, tick/1, getstat/1, counts/1, setopts/2, getopts/2]).
-export_type([t/0]).

-type t() ::
    {connection, inet_rdma_transport:t()}
    | {session, inet_rdma_session:t()}.

%% The VM's distribution controller.
-spec handle(t()) -> {ok, port() | pid()} | {error, term()}.
handle({connection, Connection}) -> inet_rdma_transport:controller(Connection);
handle({session, Session}) -> {ok, inet_rdma_session:port(Session)}.

%% Tells OTP that the handshake is complete, so that the VM knows the link.
-spec handshake_complete(t(), node(), erlang:dist_handle()) -> ok.
handshake_complete({connection, Connection}, Node, Handle) ->
    inet_rdma_transport:handshake_complete(Connection, Node, Handle);
handshake_complete({session, _Session}, _Node, _Handle) ->
    ok.

%% The caller is the supervisor.
-spec tick(t()) -> ok | {error, term()}.
tick({connection, Connection}) -> inet_rdma_transport:tick(Connection);
tick({session, Session}) -> inet_rdma_port:tick(inet_rdma_session:port(Session)).

%% Packets received, packets sent, and whether any wait.
-spec getstat(t()) ->
    {ok, non_neg_integer(), non_neg_integer(), non_neg_integer()} | {error, term()}.
getstat({connection, Connection}) -> inet_rdma_transport:getstat(Connection);
getstat({session, Session}) -> inet_rdma_port:getstat(inet_rdma_session:port(Session)).

%% Under the keys of inet_rdma:info/1.
-spec counts(t()) -> {ok, #{atom() => number()}} | {error, term()}.
counts({connection, Connection}) -> inet_rdma_transport:counts(Connection);
counts({session, Session}) -> inet_rdma_port:counts(inet_rdma_session:port(Session)).

-spec setopts(t(), [term()]) -> ok | {error, term()}.
setopts({connection, Connection}, Options) -> inet_rdma_transport:setopts(Connection, Options);
setopts({session, Session}, Options) -> inet_rdma_session:setopts(Session, Options).

-spec getopts(t(), [atom()]) -> {ok, [term()]} | {error, term()}.
getopts({connection, Connection}, Keys) -> inet_rdma_transport:getopts(Connection, Keys);
getopts({session, Session}, Keys) -> inet_rdma_session:getopts(Session, Keys).

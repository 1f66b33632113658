%% How a session gets another TCP connection.
%%
%% Either side dials the peer's distribution listener, and goes through TLS where the session began inside it. The
%% messages, each behind its length in 16 bits, in a packet of TLS there:
%%
%%     dialer     <<"inet_rdma resume", Version:8, Name:16/binary, Attempt:64, NonceOfDialer:16/binary>>
%%     acceptor   <<$c, Nonce:16/binary, Proof:32/binary>>             knows the session; this is the newest attempt
%%                <<$u>>                                               does not know the session: the link has ended
%%                <<$s>>                                               a newer attempt is under way
%%     dialer     <<$p, Received:64, Path:64, Proof:32/binary>>        has given the old connection up
%%     acceptor   <<$r, Received:64, Path:64, Proof:32/binary>>        has, too; frames follow, outside TLS
%%
%% A proof is an HMAC-SHA256 of all earlier messages and of its own, under the session's secret, with a label for each
%% message: native/session has the secret. Received: the bytes that the side has received. Path: the queue pair that the
%% side still has (0: none). A node of OTP takes the first message for a handshake that it does not know, and closes the
%% connection.
%%
%% The secret never leaves the port. A stranger gets only as far as the second message, for which the acceptor computes
%% one proof; the acceptor gives the old connection up only for a peer that has proved the secret. If the session began
%% inside TLS, the keys of the next connection come from the secret and the two nonces, which only the two sides of that
%% TLS connection know.
-module(inet_rdma_resume).

-export([dial/4, is_resume/1, accept/2]).

-define(MAGIC, "inet_rdma resume").
-define(VERSION, 1).
%% Time limit of the connect, and of each message of the peer.
-define(TIMEOUT_MS, 3000).
%% Time that an acceptor, if another host refuses its connection, leaves the initiator to connect: a firewall or an
%% address translation may have refused it, and lets the initiator through.
-define(REFUSED_HOLD_MS, 1000).

%% Makes an attempt, in a process of its own. Its exit reason is: resumed; {dead, Why}: the peer has ended; superseded:
%% a newer attempt is under way; {failed, Why}. The acceptor waits before its first message, because the initiator's
%% attempt takes precedence.
-spec dial(inet_rdma_session:t(), Node :: binary(), {inet:ip_address(), inet:port_number()},
           HoldMs :: non_neg_integer()) ->
          no_return().
dial(Session, Node, {Ip, _} = Peer, HoldMs) ->
    case connect(inet_rdma_session:protocol(Session), inet_rdma_session:driver(Session), Node, Peer) of
        {ok, Connection} ->
            receive after HoldMs -> ok end,
            exit(introduce(Session, Connection));
        {error, econnrefused} ->
            HoldMs > 0 andalso not is_own(Ip) andalso receive after ?REFUSED_HOLD_MS -> ok end,
            exit({dead, <<"its TCP connection ended, and the peer refuses another: its node has ended">>});
        {error, Reason} ->
            exit(failed(Reason))
    end.

connect(tcp, Driver, _Node, {Ip, TcpPort}) ->
    Options = inet_rdma_transport:connect_options() ++ [{active, false}, {packet, raw}],
    case Driver:connect(Ip, TcpPort, Options, ?TIMEOUT_MS) of
        {ok, Socket} ->
            Connection = inet_rdma_transport:tcp(Driver, Socket),
            _ = inet:setopts(Socket, [inet_rdma_transport:nodelay()]),
            _ = inet_rdma_transport:passive(Connection),
            {ok, Connection};
        Error ->
            Error
    end;
connect(tls, Driver, Node, Peer) ->
    [_, Host] = string:split(binary_to_list(Node), "@"),
    inet_rdma_tls:connect(Driver, Peer, Host, inet_rdma_transport:connect_options()).

%% If one side's certificate is no longer accepted, the peer counts as ended.
failed(Reason) ->
    case inet_rdma_tls:refuses(Reason) of
        {true, Alert} -> {dead, <<"its TCP connection ended, and TLS refuses another: ", Alert/binary>>};
        false -> {failed, Reason}
    end.

%% True for an address of this host: then no firewall stands between the two nodes.
is_own({127, _, _, _}) ->
    true;
is_own(Ip) ->
    case inet:getifaddrs() of
        {ok, Interfaces} -> lists:any(fun({_Name, Options}) -> lists:member({addr, Ip}, Options) end, Interfaces);
        {error, _} -> true
    end.

introduce(Session, Connection) ->
    case inet_rdma_port:command(inet_rdma_session:port(Session), attempt) of
        {ok, <<Attempt:64/native>>} ->
            Name = inet_rdma_session:name(Session),
            Nonce = nonce(),
            Said = <<Name/binary, Attempt:64, Nonce/binary>>,
            Answer = ask(Connection, <<?MAGIC, ?VERSION, Said/binary>>),
            challenged(Answer, Attempt, Said, {Session, Connection});
        {error, closed} ->
            {failed, closed}
    end.

challenged({ok, <<$c, Nonce:16/binary, Proof:32/binary>>}, Attempt, Before, {Session, Connection} = Dialer) ->
    Port = inet_rdma_session:port(Session),
    Said = <<Before/binary, Nonce/binary>>,
    case is_proof(Port, Proof, ["challenge", Said]) andalso suspend(Port, Attempt) of
        {ok, Received, Path} ->
            Standing = <<Received:64, Path:64>>,
            Answer = ask(Connection, [$p, Standing, prove(Port, ["dialer", Said, Standing])]),
            answered(Answer, Attempt, Said, Standing, Dialer);
        superseded ->
            superseded;
        false ->
            {failed, wrong_proof}
    end;
challenged({ok, <<$u>>}, _Attempt, _Before, _Dialer) ->
    {dead, <<"its TCP connection ended, and the peer does not know the link any more">>};
challenged({ok, <<$s>>}, _Attempt, _Before, _Dialer) ->
    superseded;
challenged({ok, _}, _Attempt, _Before, _Dialer) ->
    {failed, unexpected_answer};
challenged({error, Reason}, _Attempt, _Before, _Dialer) ->
    failed(Reason).

answered({ok, <<$r, Standing:16/binary, Proof:32/binary>>}, Attempt, Said, Own, {Session, Connection}) ->
    case is_proof(inet_rdma_session:port(Session), Proof, ["acceptor", Said, Own, Standing]) of
        true -> resume(Session, Attempt, Connection, Standing, Said);
        false -> {failed, wrong_proof}
    end;
answered({ok, <<$s>>}, _Attempt, _Said, _Own, _Dialer) ->
    superseded;
answered({ok, _}, _Attempt, _Said, _Own, _Dialer) ->
    {failed, unexpected_answer};
answered({error, Reason}, _Attempt, _Said, _Own, _Dialer) ->
    {failed, Reason}.

%% Whether the first message on a connection to this node's listener begins an attempt.
-spec is_resume(binary()) -> boolean().
is_resume(<<?MAGIC, _/binary>>) -> true;
is_resume(_) -> false.

%% The acceptor's part, in the process of the connection, which ends afterwards.
-spec accept(inet_rdma_transport:t(), FirstMessage :: binary()) -> ok | refused.
accept(Connection, <<?MAGIC, ?VERSION, Name:16/binary, Attempt:64, _Nonce:16/binary>> = Message) ->
    ok = inet_rdma_transport:passive(Connection),
    case session(Name, inet_rdma_transport:protocol(Connection)) of
        {ok, Session} ->
            case inet_rdma_port:command(inet_rdma_session:port(Session), attempt, <<Attempt:64/native>>) of
                {ok, <<_, _/binary>>} ->
                    <<_:17/binary, Before/binary>> = Message,
                    challenge(Session, Attempt, Before, Connection);
                {ok, <<>>} ->
                    refuse(Connection, <<$s>>);
                {error, closed} ->
                    refuse(Connection, <<$u>>)
            end;
        none ->
            refuse(Connection, <<$u>>)
    end;
accept(_Connection, _Message) ->
    refused.

%% A session that began inside TLS is not resumed outside it.
session(Name, Protocol) ->
    case inet_rdma_links:session(Name) of
        {ok, Session} ->
            case inet_rdma_session:protocol(Session) of
                Protocol -> {ok, Session};
                _ -> none
            end;
        none ->
            none
    end.

refuse(Connection, Answer) ->
    _ = send(Connection, Answer),
    refused.

challenge(Session, Attempt, Before, Connection) ->
    Port = inet_rdma_session:port(Session),
    Nonce = nonce(),
    Said = <<Before/binary, Nonce/binary>>,
    _ = send(Connection, [$c, Nonce, prove(Port, ["challenge", Said])]),
    case recv(Connection) of
        {ok, <<$p, Standing:16/binary, Proof:32/binary>>} ->
            case is_proof(Port, Proof, ["dialer", Said, Standing]) andalso suspend(Port, Attempt) of
                {ok, Received, Path} ->
                    Own = <<Received:64, Path:64>>,
                    _ = send(Connection, [$r, Own, prove(Port, ["acceptor", Said, Standing, Own])]),
                    case resume(Session, Attempt, Connection, Standing, Said) of
                        resumed ->
                            ok;
                        _ ->
                            %% The guard has not heard that the TCP connection was given up.
                            _ = inet_rdma_port:command(Port, abandon, <<Attempt:64/native>>),
                            refused
                    end;
                superseded ->
                    refuse(Connection, <<$s>>);
                false ->
                    refused
            end;
        _ ->
            refused
    end.

nonce() -> inet_rdma_nif:nonce().

prove(Port, Bytes) ->
    case inet_rdma_port:command(Port, prove, Bytes) of
        {ok, Proof} -> Proof;
        {error, closed} -> <<>>
    end.

is_proof(Port, Proof, Bytes) -> inet_rdma_port:command(Port, verify, [Proof, Bytes]) =:= {ok, <<1>>}.

suspend(Port, Attempt) ->
    case inet_rdma_port:command(Port, suspend, <<Attempt:64/native>>) of
        {ok, <<Received:64/native, Path:64/native>>} -> {ok, Received, Path};
        _ -> superseded
    end.

resume(Session, Attempt, Connection, <<Received:64, Path:64>>, Said) ->
    inet_rdma_session:resume(Session, Attempt, Connection, {Received, Path}, Said).

%% Sends a message, and waits for the peer's answer.
ask(Connection, Message) ->
    case send(Connection, Message) of
        ok -> recv(Connection);
        Error -> Error
    end.

send(Connection, Message) -> inet_rdma_transport:send_message(Connection, iolist_to_binary(Message)).

recv(Connection) -> inet_rdma_transport:recv_message(Connection, ?TIMEOUT_MS).

%% How a session gets another TCP connection.
%%
%% Either side dials the peer's distribution listener. The messages, each behind its length in 16 bits:
%%
%%     dialer     <<"inet_rdma resume", Version:8, Name:16/binary, Attempt:64, NonceOfDialer:16/binary>>
%%     acceptor   <<$c, Nonce:16/binary, Proof:32/binary>>             it knows the session, and the attempt is the newest
%%                <<$u>>                                               it does not know the session: the link has ended
%%                <<$s>>                                               a newer attempt is under way
%%     dialer     <<$p, Received:64, Path:64, Proof:32/binary>>        it has given the old connection up
%%     acceptor   <<$r, Received:64, Path:64, Proof:32/binary>>        so has it; frames of the session follow
%%
%% Proofs are HMAC-SHA256 of all that was said before and of the message, under the session's secret, with a label for each
%% message: native/session has the secret. Received and Path: what the side has received, and the queue pair that it still has
%% (0: none). A node of OTP takes the first message for a handshake that it does not know, and closes the connection.
%%
%% The secret never leaves the port. A stranger gets no further than the second message, which costs the acceptor one proof; the
%% old connection is given up only for a peer that has proved the secret.
-module(inet_rdma_resume).

-export([dial/5, is_resume/1, accept/2]).

-define(MAGIC, "inet_rdma resume").
-define(VERSION, 1).
%% For one message of the peer, or the connect.
-define(TIMEOUT_MS, 3000).
%% An acceptor that is refused on another host leaves the initiator that long to come: what refuses may be a firewall or an address
%% translation on the way, which lets the initiator through.
-define(REFUSED_HOLD_MS, 1000).

%% An attempt of this side, in a process of its own that ends with: resumed; {dead, Why}: the peer has ended; superseded: a newer
%% attempt is under way; {failed, Why}. HoldMs: how long the connection waits for an attempt of the peer; 0: this side is the
%% session's initiator.
-spec dial(port(), Name :: binary(), inet_rdma_bootstrap:driver(), {inet:ip_address(), inet:port_number()},
           HoldMs :: non_neg_integer()) -> no_return().
dial(Port, Name, Driver, {Ip, TcpPort}, HoldMs) ->
    case Driver:connect(Ip, TcpPort, inet_rdma_bootstrap:connect_options() ++ [{active, false}, {packet, raw}], ?TIMEOUT_MS) of
        {ok, Socket} ->
            _ = inet:setopts(Socket, [binary, inet_rdma_bootstrap:nodelay()]),
            receive after HoldMs -> ok end,
            exit(introduce(Port, Name, Driver, Socket));
        {error, econnrefused} ->
            HoldMs > 0 andalso not is_own(Ip) andalso receive after ?REFUSED_HOLD_MS -> ok end,
            exit({dead, <<"its TCP connection ended, and the peer refuses another: its node has ended">>});
        {error, Reason} ->
            exit({failed, Reason})
    end.

%% Whether the address is of this host, where no device stands between two nodes.
is_own({127, _, _, _}) ->
    true;
is_own(Ip) ->
    case inet:getifaddrs() of
        {ok, Interfaces} -> lists:any(fun({_Name, Options}) -> lists:member({addr, Ip}, Options) end, Interfaces);
        {error, _} -> true
    end.

introduce(Port, Name, Driver, Socket) ->
    case inet_rdma_link:command(Port, attempt) of
        {ok, <<Attempt:64/native>>} ->
            Nonce = nonce(),
            Said = <<Name/binary, Attempt:64, Nonce/binary>>,
            Answer = ask(Driver, Socket, <<?MAGIC, ?VERSION, Said/binary>>),
            challenged(Answer, Attempt, Said, {Port, Driver, Socket});
        {error, closed} ->
            {failed, closed}
    end.

challenged({ok, <<$c, Nonce:16/binary, Proof:32/binary>>}, Attempt, Before, {Port, Driver, Socket} = Dialer) ->
    Said = <<Before/binary, Nonce/binary>>,
    case is_proof(Port, Proof, ["challenge", Said]) andalso suspend(Port, Attempt) of
        {ok, Received, Path} ->
            Standing = <<Received:64, Path:64>>,
            Answer = ask(Driver, Socket, [$p, Standing, prove(Port, ["dialer", Said, Standing])]),
            answered(Answer, Attempt, <<Said/binary, Standing/binary>>, Dialer);
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
    {failed, Reason}.

answered({ok, <<$r, Standing:16/binary, Proof:32/binary>>}, Attempt, Said, {Port, _Driver, Socket}) ->
    case is_proof(Port, Proof, ["acceptor", Said, Standing]) of
        true -> resume(Said, Port, Attempt, Socket, Standing);
        false -> {failed, wrong_proof}
    end;
answered({ok, <<$s>>}, _Attempt, _Said, _Dialer) ->
    superseded;
answered({ok, _}, _Attempt, _Said, _Dialer) ->
    {failed, unexpected_answer};
answered({error, Reason}, _Attempt, _Said, _Dialer) ->
    {failed, Reason}.

%% Whether the first message on a connection to this node's listener begins an attempt.
-spec is_resume(binary()) -> boolean().
is_resume(<<?MAGIC, _/binary>>) -> true;
is_resume(_) -> false.

%% The acceptor's part, in the process of the connection, which ends afterwards.
-spec accept(inet_rdma_bootstrap:t(), FirstMessage :: binary()) -> ok | refused.
accept(Connection, Message) ->
    case inet_rdma_bootstrap:protocol(Connection) of
        tcp -> accept_over_tcp(Connection, Message);
        %% No link that began inside TLS is a session.
        tls -> refused
    end.

accept_over_tcp(Connection, <<?MAGIC, ?VERSION, Name:16/binary, Attempt:64, _Nonce:16/binary>> = Message) ->
    {Driver, Socket} = inet_rdma_bootstrap:socket(Connection),
    ok = inet_rdma_bootstrap:passive(Connection),
    case inet_rdma_links:session(Name) of
        {ok, Port} ->
            case inet_rdma_link:command(Port, attempt, <<Attempt:64/native>>) of
                {ok, <<_, _/binary>>} ->
                    <<_:17/binary, Before/binary>> = Message,
                    challenge(Port, Attempt, Before, Driver, Socket);
                {ok, <<>>} ->
                    refuse(Driver, Socket, <<$s>>);
                {error, closed} ->
                    refuse(Driver, Socket, <<$u>>)
            end;
        none ->
            refuse(Driver, Socket, <<$u>>)
    end;
accept_over_tcp(_Connection, _Message) ->
    refused.

refuse(Driver, Socket, Answer) ->
    _ = send(Driver, Socket, Answer),
    refused.

challenge(Port, Attempt, Before, Driver, Socket) ->
    Nonce = nonce(),
    Said = <<Before/binary, Nonce/binary>>,
    _ = send(Driver, Socket, [$c, Nonce, prove(Port, ["challenge", Said])]),
    case recv(Driver, Socket) of
        {ok, <<$p, Standing:16/binary, Proof:32/binary>>} ->
            case is_proof(Port, Proof, ["dialer", Said, Standing]) andalso suspend(Port, Attempt) of
                {ok, Received, Path} ->
                    Own = <<Received:64, Path:64>>,
                    _ = send(Driver, Socket, [$r, Own, prove(Port, ["acceptor", Said, Standing, Own])]),
                    case resume(Said, Port, Attempt, Socket, Standing) of
                        resumed ->
                            ok;
                        _ ->
                            %% The guard has not heard that the TCP connection was given up.
                            _ = inet_rdma_link:command(Port, abandon, <<Attempt:64/native>>),
                            refused
                    end;
                superseded ->
                    refuse(Driver, Socket, <<$s>>);
                false ->
                    refused
            end;
        _ ->
            refused
    end.

nonce() -> inet_rdma_nif:nonce().

prove(Port, Bytes) ->
    case inet_rdma_link:command(Port, prove, Bytes) of
        {ok, Proof} -> Proof;
        {error, closed} -> <<>>
    end.

is_proof(Port, Proof, Bytes) -> inet_rdma_link:command(Port, verify, [Proof, Bytes]) =:= {ok, <<1>>}.

suspend(Port, Attempt) ->
    case inet_rdma_link:command(Port, suspend, <<Attempt:64/native>>) of
        {ok, <<Received:64/native, Path:64/native>>} -> {ok, Received, Path};
        _ -> superseded
    end.

resume(<<Name:16/binary, _/binary>>, Port, Attempt, Socket, <<Received:64, Path:64>>) ->
    %% One by one: some are of the socket before it was connected.
    _ = [inet:setopts(Socket, [Option]) || Option <- inet_rdma_links:session_options(Name)],
    case prim_inet:getfd(Socket) of
        {ok, Fd} ->
            Argument = <<Attempt:64/native, Fd:32/native, Received:64/native, Path:64/native>>,
            case inet_rdma_link:command(Port, resume, Argument) of
                {ok, <<1>>} -> resumed;
                {ok, <<>>} -> superseded;
                {error, closed} -> {failed, closed}
            end;
        %% The peer has reset it.
        {error, Reason} ->
            {failed, Reason}
    end.

%% Sends a message, and gives the peer's answer.
ask(Driver, Socket, Message) ->
    case send(Driver, Socket, Message) of
        ok -> recv(Driver, Socket);
        Error -> Error
    end.

%% The socket is raw: nothing behind a message is read.
send(Driver, Socket, Message) ->
    Driver:send(Socket, [<<(iolist_size(Message)):16>>, Message]).

recv(Driver, Socket) ->
    case Driver:recv(Socket, 2, ?TIMEOUT_MS) of
        {ok, <<Length:16>>} when Length > 0 -> Driver:recv(Socket, Length, ?TIMEOUT_MS);
        {ok, _} -> {error, unexpected_answer};
        Error -> Error
    end.

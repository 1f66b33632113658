%% How a session gets another TCP connection: the attempt, and the acceptor's part. docs/PROTOCOL.md has the messages
%% ("Resuming").
%%
%% Either side dials the peer's distribution listener, and goes through TLS where the session began inside it. A node of
%% OTP takes the first message for a handshake that it does not know, and closes the connection.
%%
%% The secret of the session (native/link/session) never leaves the port. A stranger gets only as far as the second
%% message, for which the acceptor computes one proof; the acceptor gives the old connection up only for a peer that has
%% proved the secret. If the session began inside TLS, the keys of the next connection come from the secret and the two
%% nonces, which only the two sides of that TLS connection know.
-module(inet_rdma_resume).

-export([attempt/1, is_resume/1, accept/2]).
-export_type([dialling/0, result/0]).

-import(inet_rdma_port, [prove/2, is_proof/3, suspend/2]).
-import(inet_rdma_transport, [tcp_option/2]).

-define(MAGIC, "inet_rdma resume").
-define(VERSION, 1).
%% First byte of the message by which an acceptor that does not know the session names itself.
-define(NAME, $i).
%% Time limit of the handshake of TLS, and of each message of the peer, at the first attempt at an address.
-define(TIMEOUT_MS, 3000).
%% Time limit of the first handshake of TLS at an address, without the round trips that it needs, of which some may be
%% made again.
-define(HANDSHAKE_MS, 1000).
-define(HANDSHAKE_ROUND_TRIPS, 6).
%% Time limit of the TCP connect, inside TLS, too. The kernel sends a SYN at once and a second one after a second: with
%% one attempt behind the other there is one each second, so that a link is back within a second of an outage's end.
-define(CONNECT_MS, 2000).
%% Time limit of finding a neighbour that opens a detour.
-define(DETOUR_MS, 3000).
%% Time limit of the name behind <<$u>>. Earlier versions send none, and close the connection.
-define(NAME_MS, 500).
%% How often the kernel repeats an unanswered SYN.
-define(SYN_REPEATS, 1).
%% Bytes of a segment, of both sides, that pass any way: the smallest of RFC 4821, section 7.2.
-define(SMALL_SEGMENT_BYTES, 1024).

%% An attempt. to: an address, or detour: over a neighbour. factor: of the time limits behind the TCP connect, for a
%% host that is slow. is_narrow: the connection has small segments; so has one that follows a handshake of TLS without
%% an answer.
-type dialling() :: #{session := inet_rdma_session:t(), node := binary(), told := inet_rdma_told:state(),
                      dialer := pid(), is_narrow := boolean(), to => inet_rdma_told:address() | detour,
                      factor => pos_integer()}.
%% superseded: a newer attempt is under way. Else what the attempt shows of the peer, and why it has failed.
-type result() :: resumed | superseded | {inet_rdma_death:outcome(), Why :: term()}.

%% Makes an attempt in a process of its own, whose exit reason is a result(). The acceptor waits before its first
%% message, because the initiator's attempt takes precedence. The dialer, to which the caller is linked, gets
%% {connected, Attempt}, then {give_up, Attempt, Number}: behind its answer {Dialer, Given} the session's old connection
%% is given up for this attempt. It does so itself, so that behind its end no attempt does.
-spec attempt(dialling()) -> no_return().
attempt(#{session := Session, dialer := Dialer} = Dialling) ->
    case connected(Dialling) of
        {ok, Connection} ->
            Dialer ! {connected, self()},
            receive after inet_rdma_session:hold_ms(Session) -> ok end,
            exit(introduce(Dialling#{connection => Connection}));
        Result ->
            exit(Result)
    end.

connected(#{session := Session, node := Node, to := To, is_narrow := IsNarrow, factor := Factor} = Dialling) ->
    Started = erlang:monotonic_time(millisecond),
    case connect(Dialling) of
        {ok, Tcp} ->
            TookMs = erlang:monotonic_time(millisecond) - Started,
            case inet_rdma_session:secure(Session, Tcp, Node, handshake_ms(Dialling, TookMs)) of
                %% The way may drop the peer's certificates, as large packets.
                {error, timeout} when To =/= detour, not IsNarrow ->
                    Facts = #{cause => timeout, why => "small segments follow"},
                    _ = [inet_rdma_recorder:record(redial, Node, Facts) || Factor =:= 1],
                    connected(Dialling#{is_narrow := true});
                {error, Reason} -> {failed(Reason), Reason};
                Connected -> Connected
            end;
        {error, Reason} ->
            {not_connected(Reason), Reason}
    end.

%% The time for the handshake of TLS on a connection that has taken this time.
handshake_ms(#{to := To, is_narrow := false, factor := Factor}, TookMs) when To =/= detour ->
    Factor * min(?TIMEOUT_MS, ?HANDSHAKE_MS + ?HANDSHAKE_ROUND_TRIPS * TookMs);
handshake_ms(#{factor := Factor}, _TookMs) ->
    Factor * ?TIMEOUT_MS.

%% ehostunreach: no host has the address.
not_connected(econnrefused) -> refused;
not_connected(Reason) when Reason =:= timeout; Reason =:= etimedout; Reason =:= ehostunreach -> unanswered;
not_connected(Reason) when Reason =:= enetunreach; Reason =:= eaddrnotavail; Reason =:= eafnosupport -> unreachable;
not_connected(_) -> failed.

failed(timeout) ->
    slow;
failed(Reason) ->
    case inet_rdma_tls:refuses(Reason) of
        {true, Alert} -> {tls_refuses, Alert};
        false -> failed
    end.

%% The TCP connection, over which TLS begins: its end is known before the handshake.
connect(#{session := Session, node := Node, to := detour}) ->
    case inet_rdma_detours:seek() of
        ok ->
            case inet_rdma_detour:connect(Session, Node, ?DETOUR_MS) of
                {ok, Connection, _Via} -> {ok, Connection};
                Error -> Error
            end;
        full ->
            {error, busy}
    end;
connect(#{session := Session, to := Address, is_narrow := IsNarrow}) ->
    Options = [tcp_option(syncnt, ?SYN_REPEATS) | inet_rdma_transport:connect_options()]
        ++ [tcp_option(maxseg, ?SMALL_SEGMENT_BYTES) || IsNarrow],
    inet_rdma_transport:connect(inet_rdma_session:driver(Session), Address, Options, ?CONNECT_MS).

introduce(#{session := Session} = Dialling) ->
    case inet_rdma_port:command(inet_rdma_session:port(Session), attempt) of
        {ok, <<Attempt:64/native>>} ->
            Name = inet_rdma_session:name(Session),
            Nonce = inet_rdma_nif:nonce(),
            Said = <<Name/binary, Attempt:64, Nonce/binary>>,
            challenged(ask(<<?MAGIC, ?VERSION, Said/binary>>, Dialling), Attempt, Said, Dialling);
        {error, closed} ->
            {failed, closed}
    end.

challenged({ok, <<$c, Nonce:16/binary, Proof:32/binary>>}, Attempt, Before, Dialling) ->
    #{session := Session, dialer := Dialer} = Dialling,
    Port = inet_rdma_session:port(Session),
    Said = <<Before/binary, Nonce/binary>>,
    case is_proof(Port, Proof, ["challenge", Said]) andalso give_up(Attempt, Dialer) of
        {ok, Received, Path} ->
            Standing = <<Received:64, Path:64>>,
            Answer = ask([$p, Standing, prove(Port, ["dialer", Said, Standing])], Dialling),
            answered(Answer, Attempt, Said, Standing, Dialling);
        superseded ->
            superseded;
        {error, Reason} ->
            {failed, Reason};
        false ->
            {failed, wrong_proof}
    end;
challenged({ok, <<$u>>}, _Attempt, _Before, #{connection := Connection, node := Node, told := Told}) ->
    Said = inet_rdma_transport:recv_message(Connection, ?NAME_MS),
    {{unknown_session, unknown_at(Said, Node, inet_rdma_told:instance(Told))}, unknown_session};
challenged(Answer, _Attempt, _Before, _Dialling) ->
    not_answered(Answer).

not_answered({ok, <<$s>>}) -> superseded;
not_answered({ok, _}) -> {failed, unexpected_answer};
not_answered({error, Reason}) -> {failed(Reason), Reason}.

unknown_at({ok, <<?NAME, Instance:64, Node/binary>>}, Node, Instance) ->
    same;
unknown_at({ok, <<?NAME, _Instance:64, Node/binary>>}, Node, _Told) ->
    anew;
unknown_at({ok, <<?NAME, _/binary>>}, _Node, _Told) ->
    stranger;
unknown_at(_, _Node, _Told) ->
    unsaid.

give_up(Attempt, Dialer) ->
    Dialer ! {give_up, self(), Attempt},
    receive {Dialer, Given} -> Given end.

answered({ok, <<$r, Standing:16/binary, Proof:32/binary>>}, Attempt, Said, Own, Dialling) ->
    #{session := Session, connection := Connection} = Dialling,
    case is_proof(inet_rdma_session:port(Session), Proof, ["acceptor", Said, Own, Standing]) of
        true -> resume(Session, Attempt, Connection, Standing, Said);
        false -> {failed, wrong_proof}
    end;
answered(Answer, _Attempt, _Said, _Own, _Dialling) ->
    not_answered(Answer).

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
                    with_descriptor(Session, fun() -> challenge(Session, Attempt, Before, Connection) end);
                {ok, <<>>} ->
                    refuse(Connection, <<$s>>);
                {error, closed} ->
                    does_not_know(Connection)
            end;
        none ->
            does_not_know(Connection);
        %% This says nothing of the link, which may live.
        unknown ->
            refused
    end;
accept(_Connection, _Message) ->
    refused.

%% The port has a descriptor for the connection before this side gives the old one up for it. Without one the connection
%% is closed, and the dialer tries again.
with_descriptor(Session, Accept) ->
    Port = inet_rdma_session:port(Session),
    case inet_rdma_port:reserve(Port) of
        ok ->
            Result = Accept(),
            _ = inet_rdma_port:command(Port, release),
            Result;
        {error, _} ->
            refused
    end.

%% A session that began inside TLS is not resumed outside it.
session(Name, Protocol) ->
    case inet_rdma_links:session(Name) of
        {ok, Session} ->
            case inet_rdma_session:protocol(Session) of
                Protocol -> {ok, Session};
                _ -> none
            end;
        NoneOrUnknown ->
            NoneOrUnknown
    end.

refuse(Connection, Answer) ->
    _ = send(Connection, Answer),
    refused.

%% The name shows whether the dialer has reached its peer, or another node at an address that leads elsewhere.
does_not_know(Connection) ->
    refused = refuse(Connection, <<$u>>),
    #{instance := Instance} = inet_rdma_nif:identity(),
    refuse(Connection, <<?NAME, Instance:64, (atom_to_binary(node()))/binary>>).

challenge(Session, Attempt, Before, Connection) ->
    Port = inet_rdma_session:port(Session),
    Ends = inet_rdma_transport:ends(Connection),
    Nonce = inet_rdma_nif:nonce(),
    Said = <<Before/binary, Nonce/binary>>,
    _ = send(Connection, [$c, Nonce, prove(Port, ["challenge", Said])]),
    case inet_rdma_transport:recv_message(Connection, ?TIMEOUT_MS) of
        {ok, <<$p, Standing:16/binary, Proof:32/binary>>} ->
            case is_proof(Port, Proof, ["dialer", Said, Standing]) andalso suspend(Port, Attempt) of
                {ok, Received, Path} ->
                    Own = <<Received:64, Path:64>>,
                    _ = send(Connection, [$r, Own, prove(Port, ["acceptor", Said, Standing, Own])]),
                    case resume(Session, Attempt, Connection, Standing, Said) of
                        resumed ->
                            remember(Session, Ends);
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

remember(Session, {ok, {_Own, {Ip, _}}}) -> inet_rdma_links:add_reached(inet_rdma_session:name(Session), {from, Ip});
remember(_Session, {error, _}) -> ok.

resume(Session, Attempt, Connection, <<Received:64, Path:64>>, Said) ->
    inet_rdma_session:resume(Session, Attempt, Connection, {Received, Path}, Said).

ask(Message, #{connection := Connection, factor := Factor}) ->
    case send(Connection, Message) of
        ok -> inet_rdma_transport:recv_message(Connection, Factor * ?TIMEOUT_MS);
        Error -> Error
    end.

send(Connection, Message) -> inet_rdma_transport:send_message(Connection, iolist_to_binary(Message)).

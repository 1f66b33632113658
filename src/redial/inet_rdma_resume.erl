%% How a session gets another TCP connection: the attempt, and the acceptor's part. docs/PROTOCOL.md
%% has the messages ("Resuming").
%%
%% Either side dials the peer's distribution listener, and goes through TLS where the session began
%% inside it. A node of OTP takes the first message for a handshake that it does not know, and
%% closes the connection.
%%
%% The secret of the session (native/link/session) never leaves the port. A stranger gets only as
%% far as the second message, for which the acceptor computes one proof; the acceptor gives the old
%% connection up only for a peer that has proved the secret. A node that does not know the session
%% names itself to a dialer that has proved the cookie, and proves the cookie, too: so its answer
%% counts as the peer's. If the session began inside TLS, the keys of the next connection come from
%% the secret and the two nonces, which only the two sides of that TLS connection know.
-module(inet_rdma_resume).

-export([attempt/1, is_resume/1, accept/2]).
-export_type([dialling/0, result/0]).

-import(inet_rdma_port, [prove/2, is_proof/3, give_up_tcp/2]).
-import(inet_rdma_transport, [tcp_option/2]).

-define(MAGIC, "inet_rdma resume").
-define(VERSION, 1).
%% First bytes of the messages about the name of an acceptor that does not know the session: a
%% question, and the name.
-define(QUESTION, $q).
-define(NAME, $i).
%% Time limit of the handshake of TLS, and of each message of the peer, at the first attempt at an
%% address.
-define(TIMEOUT_MS, 3000).
%% Time limit of the first handshake of TLS at an address, without the round trips that it needs, of
%% which some may be made again.
-define(HANDSHAKE_MS, 1000).
-define(HANDSHAKE_ROUND_TRIPS, 6).
%% Time limit of the TCP connect, inside TLS, too. The kernel sends a SYN at once and a second one
%% after a second: with one attempt after the other there is one each second, so that a link is back
%% within a second of an outage's end.
-define(CONNECT_MS, 2000).
%% Time limit of finding a neighbour that opens a detour.
-define(DETOUR_MS, 3000).
%% Time limit of each message about that name.
-define(NAME_MS, 1000).
%% Reasons for which a connection has ended that was there.
-define(CLOSED, [closed, econnreset, econnaborted, epipe, enotconn]).
%% How often the kernel repeats an unanswered SYN.
-define(SYN_REPEATS, 1).
%% Bytes of a segment, of both sides, that pass any way: the smallest of RFC 4821, section 7.2.
-define(SMALL_SEGMENT_BYTES, 1024).

%% An attempt. to: an address, or detour: over a neighbour. factor: of the time limits after the TCP
%% connect, for a host that is slow. is_narrow: the connection has small segments; so has one that
%% follows a handshake of TLS without an answer.
-type dialling() :: #{
    session := inet_rdma_session:t(),
    node := binary(),
    peer_node := inet_rdma_peer_node:state(),
    dialer := pid(),
    is_narrow := boolean(),
    to => inet_rdma_peer_node:address() | detour,
    factor => pos_integer()
}.
%% superseded: a newer attempt is under way. Else what the attempt shows of the peer, and why it has
%% failed.
-type result() :: resumed | superseded | {inet_rdma_death:outcome(), Why :: term()}.

%% Makes an attempt in a process of its own, whose exit reason is a result(). The acceptor waits
%% before its first message, because the initiator's attempt takes precedence. The dialer, to which
%% the caller is linked, gets {connected, Attempt}, then {give_up, Attempt, Number}: after its
%% answer {Dialer, Given} the session's old connection is given up for this attempt. It does so
%% itself, so that no attempt does after its end.
-spec attempt(dialling()) -> no_return().
attempt(#{session := Session, dialer := Dialer} = Dialling) ->
    case connected(Dialling) of
        {ok, Connection} ->
            Dialer ! {connected, self()},
            exit(
                case yield_for(inet_rdma_session:yield_ms(Session), Connection) of
                    ok -> introduce(Dialling#{connection => Connection});
                    Ended -> Ended
                end
            );
        Result ->
            exit(Result)
    end.

%% Waits, unless the other side ends the connection meanwhile, as a proxy does that does not reach
%% the peer. The peer sends nothing before the first message.
yield_for(0, _Connection) ->
    ok;
yield_for(YieldMs, Connection) ->
    case inet_rdma_transport:recv_message(Connection, YieldMs) of
        {error, timeout} -> ok;
        {error, Reason} -> {unproved(Reason), Reason};
        {ok, _} -> {closed, unexpected_answer}
    end.

connected(
    #{session := Session, node := Node, to := To, is_narrow := IsNarrow, factor := Factor} =
        Dialling
) ->
    Started = erlang:monotonic_time(millisecond),
    case connect(Dialling) of
        {ok, Tcp} ->
            TookMs = erlang:monotonic_time(millisecond) - Started,
            case inet_rdma_session:secure(Session, Tcp, Node, handshake_ms(Dialling, TookMs)) of
                %% The way may drop the peer's certificates, as large packets.
                {error, timeout} when To =/= detour, not IsNarrow ->
                    Facts = #{cause => timeout, why => "small segments follow"},
                    _ =
                        case Factor =:= 1 of
                            true -> inet_rdma_recorder:record(redial, Node, Facts);
                            false -> ok
                        end,
                    connected(Dialling#{is_narrow := true});
                {error, Reason} ->
                    {unproved(Reason), Reason};
                Connected ->
                    Connected
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
not_connected(econnrefused) ->
    refused;
not_connected(Reason) when Reason =:= timeout; Reason =:= etimedout; Reason =:= ehostunreach ->
    unanswered;
not_connected(Reason) when
    Reason =:= enetunreach; Reason =:= eaddrnotavail; Reason =:= eafnosupport
->
    unreachable;
not_connected(_) ->
    failed.

%% The outcome of an attempt that fails, for this reason, before the other side has proved anything.
%% A proxy may have closed the connection in the peer's place, and a stranger can send an alert of
%% TLS.
unproved(timeout) ->
    slow;
unproved(Reason) ->
    case lists:member(Reason, ?CLOSED) orelse inet_rdma_tls:is_refusal(Reason) of
        true -> closed;
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
    Options =
        [tcp_option(syncnt, ?SYN_REPEATS) | inet_rdma_session:connect_options(Session)] ++
            [tcp_option(maxseg, ?SMALL_SEGMENT_BYTES) || IsNarrow],
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
        {ok, Received, Queue} ->
            Point = <<Received:64, Queue:64>>,
            Answer = ask([$p, Point, prove(Port, ["dialer", Said, Point])], Dialling),
            answered(Answer, Attempt, Said, Point, Dialling);
        superseded ->
            superseded;
        {error, Reason} ->
            {proved, Reason};
        false ->
            {closed, wrong_proof}
    end;
challenged({ok, <<$u, Nonce:16/binary>>}, _Attempt, Before, Dialling) ->
    ask_name(<<Before/binary, Nonce/binary>>, Dialling);
challenged({ok, <<$s>>}, _Attempt, _Before, _Dialling) ->
    superseded;
challenged({ok, _}, _Attempt, _Before, _Dialling) ->
    {closed, unexpected_answer};
challenged({error, Reason}, _Attempt, _Before, _Dialling) ->
    {unproved(Reason), Reason}.

%% Asks a node that does not know the session for its name. The proofs are under the cookie, for
%% these nonces alone.
ask_name(Said, #{connection := Connection, node := Node, peer_node := PeerNode}) ->
    Cookie = cookie(Node),
    Own = atom_to_binary(node()),
    Proof = inet_rdma_nif:prove_cookie(Cookie, ["asks", Said, Own]),
    Answer =
        case send(Connection, [?QUESTION, Proof, Own]) of
            ok -> inet_rdma_transport:recv_message(Connection, ?NAME_MS);
            Error -> Error
        end,
    case Answer of
        {ok, <<?NAME, Given:32/binary, Instance:64, Name/binary>>} ->
            case
                inet_rdma_nif:is_cookie_proof(Cookie, ["named", Said, <<Instance:64>>, Name], Given)
            of
                true ->
                    {
                        named(Name, Instance, Node, inet_rdma_peer_node:instance(PeerNode)),
                        unknown_session
                    };
                false ->
                    {closed, wrong_proof}
            end;
        _ ->
            {closed, unknown_session}
    end.

named(Node, Instance, Node, Instance) -> {unknown_session, same};
%% It may be the same VM, which does not have the session yet.
named(Node, _Instance, Node, none) -> closed;
named(Node, _Instance, Node, _Told) -> {unknown_session, another};
named(_Name, _Instance, _Node, _Told) -> stranger.

%% The cookie that this node shares with that one.
cookie(Node) ->
    atom_to_binary(
        try
            erlang:get_cookie(binary_to_existing_atom(Node))
        catch
            error:badarg -> erlang:get_cookie()
        end
    ).

give_up(Attempt, Dialer) ->
    Dialer ! {give_up, self(), Attempt},
    receive
        {Dialer, Given} -> Given
    end.

%% The other side has proved the secret in its challenge.
answered({ok, <<$r, Point:16/binary, Proof:32/binary>>}, Attempt, Said, Own, Dialling) ->
    #{session := Session, connection := Connection} = Dialling,
    case is_proof(inet_rdma_session:port(Session), Proof, ["acceptor", Said, Own, Point]) of
        true ->
            case resume(Session, Attempt, Connection, Point, Said) of
                {failed, Reason} -> {proved, Reason};
                Result -> Result
            end;
        false ->
            {proved, wrong_proof}
    end;
answered({ok, <<$s>>}, _Attempt, _Said, _Own, _Dialling) ->
    superseded;
answered({ok, _}, _Attempt, _Said, _Own, _Dialling) ->
    {proved, unexpected_answer};
answered({error, Reason}, _Attempt, _Said, _Own, _Dialling) ->
    {proved, Reason}.

-spec is_resume(binary()) -> boolean().
is_resume(<<?MAGIC, _/binary>>) -> true;
is_resume(_) -> false.

%% The acceptor's part, in the process of the connection, which ends afterwards.
-spec accept(inet_rdma_transport:t(), FirstMessage :: binary()) -> ok | refused.
accept(Connection, <<?MAGIC, ?VERSION, Name:16/binary, Attempt:64, _Nonce:16/binary>> = Message) ->
    ok = inet_rdma_transport:passive(Connection),
    <<_:17/binary, Before/binary>> = Message,
    case session(Name, inet_rdma_transport:protocol(Connection)) of
        {ok, Session} ->
            case
                inet_rdma_port:command(inet_rdma_session:port(Session), attempt, <<
                    Attempt:64/native
                >>)
            of
                {ok, <<_, _/binary>>} ->
                    challenge(Session, Attempt, Before, Connection);
                {ok, <<>>} ->
                    refuse(Connection, <<$s>>);
                {error, closed} ->
                    does_not_know(Before, Connection)
            end;
        none ->
            does_not_know(Before, Connection);
        %% This says nothing of the link, which may live.
        unknown ->
            refused
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
        NoneOrUnknown ->
            NoneOrUnknown
    end.

refuse(Connection, Answer) ->
    _ = send(Connection, Answer),
    refused.

%% The name shows whether the dialer has reached its peer, or another node at an address that leads
%% elsewhere. A dialer that does not prove the cookie learns nothing.
does_not_know(Before, Connection) ->
    Nonce = inet_rdma_nif:nonce(),
    Said = <<Before/binary, Nonce/binary>>,
    refused = refuse(Connection, <<$u, Nonce/binary>>),
    case inet_rdma_transport:recv_message(Connection, ?NAME_MS) of
        {ok, <<?QUESTION, Proof:32/binary, Node/binary>>} ->
            Cookie = cookie(Node),
            case inet_rdma_nif:is_cookie_proof(Cookie, ["asks", Said, Node], Proof) of
                true -> refuse(Connection, name(Cookie, Said));
                false -> refused
            end;
        _ ->
            refused
    end.

name(Cookie, Said) ->
    #{instance := Instance} = inet_rdma_nif:identity(),
    Name = atom_to_binary(node()),
    [
        ?NAME,
        inet_rdma_nif:prove_cookie(Cookie, ["named", Said, <<Instance:64>>, Name]),
        <<Instance:64>>,
        Name
    ].

%% The challenge proves to the dialer that its peer lives, whatever follows.
challenge(Session, Attempt, Before, Connection) ->
    Port = inet_rdma_session:port(Session),
    Ends = inet_rdma_transport:ends(Connection),
    Nonce = inet_rdma_nif:nonce(),
    Said = <<Before/binary, Nonce/binary>>,
    _ = send(Connection, [$c, Nonce, prove(Port, ["challenge", Said])]),
    case inet_rdma_transport:recv_message(Connection, ?TIMEOUT_MS) of
        {ok, <<$p, Point:16/binary, Proof:32/binary>>} ->
            case is_proof(Port, Proof, ["dialer", Said, Point]) of
                true ->
                    with_descriptor(Port, fun() ->
                        proved(Session, Attempt, {Said, Point}, Ends, Connection)
                    end);
                false ->
                    refused
            end;
        _ ->
            refused
    end.

%% The port has a descriptor for the connection before this side gives the old one up for it.
%% Without one the connection is closed, and the dialer tries again.
with_descriptor(Port, Accept) ->
    case inet_rdma_port:reserve(Port) of
        ok ->
            Result = Accept(),
            _ = inet_rdma_port:command(Port, release),
            Result;
        {error, _} ->
            refused
    end.

proved(Session, Attempt, {Said, Point}, Ends, Connection) ->
    Port = inet_rdma_session:port(Session),
    case give_up_tcp(Port, Attempt) of
        {ok, Received, Queue} ->
            Own = <<Received:64, Queue:64>>,
            _ = send(Connection, [$r, Own, prove(Port, ["acceptor", Said, Point, Own])]),
            case resume(Session, Attempt, Connection, Point, Said) of
                resumed ->
                    remember(Session, Ends);
                _ ->
                    %% The guard has not heard that the TCP connection was given up.
                    _ = inet_rdma_port:command(Port, abandon, <<Attempt:64/native>>),
                    refused
            end;
        superseded ->
            refuse(Connection, <<$s>>)
    end.

remember(Session, {ok, {_Own, {Ip, _}}}) ->
    inet_rdma_links:add_reached(inet_rdma_session:name(Session), {from, Ip});
remember(_Session, {error, _}) ->
    ok.

resume(Session, Attempt, Connection, <<Received:64, Queue:64>>, Said) ->
    inet_rdma_session:resume(Session, Attempt, Connection, {Received, Queue}, Said).

ask(Message, #{connection := Connection, factor := Factor}) ->
    case send(Connection, Message) of
        ok -> inet_rdma_transport:recv_message(Connection, Factor * ?TIMEOUT_MS);
        Error -> Error
    end.

send(Connection, Message) ->
    inet_rdma_transport:send_message(Connection, iolist_to_binary(Message)).

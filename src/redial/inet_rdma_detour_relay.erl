%% A detour that this node relays for a neighbour (inet_rdma_detour): a process that passes bytes
%% between two TCP connections, from the asker and to the node that it asks for, until either side
%% closes.
%%
%% The asker proves the secret of its session with this node first. It gets a detour only to a node
%% with which this node has a link, hidden nodes among them, and to the address of that link.
%% inet_rdma_detours has the bounds.
%%
%% Bytes of one direction are read when those before have been written, so a direction holds one
%% read at most. An end in order is passed on after all bytes. Any other end, this node's own among
%% them, resets both connections: for a session an end in order could mean the peer's death.
%%
%% No code of this module waits once the detour is open: it may be loaded again.
-module(inet_rdma_detour_relay).

-behaviour(gen_server).

-export([accept/2, start_link/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).
-export_type([request/0]).

-include_lib("kernel/include/logger.hrl").

%% Time for the connection to arrive from the process that has accepted it, and for the asker's
%% proof.
-define(HANDED_MS, 1000).
-define(PROOF_MS, 3000).
-define(CONNECT_MS, 2000).
-define(READ_BYTES_MAX, 65536).
%% Ticks come four times in net_ticktime. A detour that nothing passes for this multiple of it
%% serves no living link.
-define(IDLE_TICK_TIMES, 4).
%% Pause after which the kernel probes a connection. A peer that has left a detour while its host
%% was cut off is found by the answer to a probe.
-define(PROBE_S, 10).
%% Pause after which a process that writes or closes is started again, where the process table was
%% full.
-define(RETRY_MS, 100).
%% A host that acknowledges nothing for this multiple of suspect_after_ms ends the detour: the
%% link's nodes suspect it before, and one of them might not know.
-define(SILENT_TIMES, 4).
%% A log line about refusals is followed by none for this time.
-define(LOG_MS, 60000).

%% A request that names a session of this node, and comes from this address. Said: what the asker's
%% proof is about.
-type request() :: {
    inet_rdma_session:t(),
    From :: binary(),
    To :: binary(),
    Said :: binary(),
    inet:ip_address() | unknown
}.

-record(relay, {
    session :: inet_rdma_session:t(),
    from :: binary(),
    to :: binary(),
    said :: binary(),
    %% The sockets to the asker and to the other node, once bytes pass.
    sockets = none :: none | {inet:socket(), inet:socket()},
    %% The processes that write, each with the socket whose bytes it writes; closing: one that
    %% closes the last socket.
    writers = #{} :: #{reference() => inet:socket() | closing},
    %% The socket whose peer has closed it in order.
    ended = none :: none | inet:socket(),
    bytes = 0 :: non_neg_integer(),
    %% Between two checks of what the hosts owe; infinity: none, or none is due while nothing is
    %% owed.
    check_ms = infinity :: timeout(),
    is_checking = false :: boolean(),
    %% The bytes that a host had acknowledged, of a host that owes something, and since when.
    owes = #{} :: #{inet:socket() => {non_neg_integer(), inet_rdma_clock:deadline()}},
    idle_ms = ?HANDED_MS :: pos_integer()
}).

%% Handles the first message of a connection to this node's listener. The caller owns the
%% connection, and ends.
-spec accept(inet_rdma_transport:t(), FirstMessage :: binary()) -> ok.
accept(Connection, Message) ->
    _ = inet_rdma_transport:passive(Connection),
    case start(inet_rdma_detour:parse(Message), Connection) of
        {ok, Relay} ->
            case inet_rdma_transport:give(Connection, Relay) of
                ok ->
                    Relay ! {given, Connection},
                    ok;
                {error, _} ->
                    exit(Relay, kill),
                    ok
            end;
        {refused, Why, Answer} ->
            refuse(Connection, Why, Answer)
    end.

start({ok, Name, To, Said}, Connection) ->
    case {inet_rdma_links:session(Name), inet_rdma_options:node()} of
        {{ok, Session}, {ok, #{detour := Detour}}} when Detour =/= false ->
            case inet_rdma_session:protocol(Session) =:= inet_rdma_transport:protocol(Connection) of
                true ->
                    start(
                        {Session, inet_rdma_detours:fact(Name, node), To, Said, address(Connection)}
                    );
                %% A session that began inside TLS asks inside TLS.
                false ->
                    {refused, unknown_session, <<$u>>}
            end;
        {{ok, _Session}, _} ->
            {refused, off, <<$n>>};
        {_NoneOrUnknown, _} ->
            {refused, unknown_session, <<$u>>}
    end;
start(error, _Connection) ->
    {refused, unknown_version, <<$n>>}.

start({_, none, _, _, _}) ->
    {refused, unknown_session, <<$u>>};
start(Request) ->
    case inet_rdma_sup:start_relay(Request) of
        {ok, Relay} -> {ok, Relay};
        none -> {refused, off, <<$n>>}
    end.

%% unknown: the asker has gone.
address(Connection) ->
    case inet_rdma_transport:ends(Connection) of
        {ok, {_Own, {Ip, _Port}}} -> Ip;
        {error, _} -> unknown
    end.

refuse(Connection, Why, Answer) ->
    _ =
        case Answer of
            none -> ok;
            _ -> inet_rdma_transport:send_message(Connection, Answer)
        end,
    note_refusal(Why).

note_refusal(Why) ->
    inet_rdma_links:count(detours_refused),
    _ =
        inet_rdma_links:is_due({<<>>, 0, refused_detour}, ?LOG_MS) andalso
            ?LOG_NOTICE(
                "inet_rdma: a detour that another node asked for is refused (~s); further refusals "
                "are only counted for a minute",
                [Why]
            ),
    ok.

-spec start_link(request()) -> {ok, pid()} | {error, term()}.
start_link(Request) -> gen_server:start_link(?MODULE, Request, []).

init({Session, From, To, Said, Address}) ->
    case inet_rdma_detours:enter(inet_rdma_session:name(Session), Address) =/= ok of
        true -> ok = note_refusal(displaced);
        false -> ok
    end,
    {ok, #relay{session = Session, from = From, to = To, said = Said}, ?HANDED_MS}.

handle_call(_Request, _From, Relay) -> {noreply, Relay, Relay#relay.idle_ms}.

handle_cast(_Message, Relay) -> {noreply, Relay, Relay#relay.idle_ms}.

handle_info({given, Connection}, #relay{sockets = none} = Relay) ->
    case prove(Connection, Relay) of
        {ok, Other} ->
            open(Connection, Other, Relay);
        {refused, Why, Answer} ->
            ok = refuse(Connection, Why, Answer),
            {stop, normal, Relay}
    end;
handle_info({tcp, From, Bytes} = Message, #relay{writers = Writers, bytes = Passed} = Relay) ->
    %% A process without code of this module, in which the write may wait. Nothing else is read from
    %% this socket before.
    case inet_rdma_bounded:start_monitored(gen_tcp, send, [other(From, Relay), Bytes]) of
        {ok, {_, Writer}} ->
            inet_rdma_links:add(detour_bytes, byte_size(Bytes)),
            continue(
                check_later(Relay#relay{
                    writers = Writers#{Writer => From}, bytes = Passed + byte_size(Bytes)
                })
            );
        {error, system_limit} ->
            again(Message, Relay)
    end;
handle_info(check, #relay{sockets = {One, Another}, check_ms = CheckMs, owes = Before} = Relay) ->
    Owes = maps:from_list([
        {Socket, owed_since(Acked, maps:get(Socket, Before, none))}
     || Socket <- [One, Another], {owes, Acked} <- [owed(Socket)]
    ]),
    Now = inet_rdma_clock:now_ms(),
    case [silent || {_, Since} <- maps:values(Owes), Now - Since >= ?SILENT_TIMES * CheckMs] of
        [] when Owes =:= #{} -> continue(Relay#relay{is_checking = false, owes = Owes});
        [] -> continue(check_later(Relay#relay{is_checking = false, owes = Owes}));
        _ -> {stop, normal, Relay}
    end;
handle_info({'DOWN', Writer, process, _, _}, #relay{writers = Writers} = Relay) when
    is_map_key(Writer, Writers)
->
    {Socket, Others} = maps:take(Writer, Writers),
    written(Socket, Relay#relay{writers = Others});
handle_info({tcp_closed, Socket}, #relay{ended = none, writers = Writers} = Relay) ->
    Ended = Relay#relay{ended = Socket},
    case lists:member(Socket, maps:values(Writers)) of
        true -> continue(Ended);
        false -> close(Ended)
    end;
%% Both have closed. Or one has closed, and the other one is reset: nobody waits for more.
handle_info({tcp_closed, _Socket}, Relay) ->
    {stop, normal, Relay};
handle_info({tcp_error, _Socket, _Reason}, Relay) ->
    {stop, normal, Relay};
handle_info(timeout, Relay) ->
    {stop, normal, Relay};
handle_info(close, Relay) ->
    close(Relay);
handle_info(_Message, Relay) ->
    continue(Relay).

%% Handles the message after a pause.
again(Message, Relay) ->
    _ = erlang:send_after(?RETRY_MS, self(), Message),
    continue(Relay).

check_later(#relay{is_checking = false, check_ms = CheckMs} = Relay) when is_integer(CheckMs) ->
    _ = erlang:send_after(CheckMs, self(), check),
    Relay#relay{is_checking = true};
check_later(Relay) ->
    Relay.

owed_since(Acked, {Acked, _Since} = Before) -> Before;
owed_since(Acked, _Earlier) -> {Acked, inet_rdma_clock:now_ms()}.

%% nothing: all segments are acknowledged, or the kernel does not say. A host whose process reads
%% nothing acknowledges.
owed(Socket) ->
    case inet_rdma_transport:tcp_info(Socket) of
        #{unacknowledged := Segments, acknowledged_bytes := Acked} when Segments > 0 ->
            {owes, Acked};
        _ ->
            nothing
    end.

continue(#relay{idle_ms = IdleMs} = Relay) -> {noreply, Relay, IdleMs}.

other(Socket, #relay{sockets = {Socket, Other}}) -> Other;
other(Socket, #relay{sockets = {Other, Socket}}) -> Other.

%% The asker proves the secret, and the other node is connected.
prove(Connection, #relay{session = Session, said = Said} = Relay) ->
    Nonce = inet_rdma_nif:nonce(),
    Before = <<Said/binary, Nonce/binary>>,
    Challenge = inet_rdma_detour:challenge(Session, Before),
    _ = inet_rdma_transport:send_message(Connection, <<$c, Nonce/binary, Challenge/binary>>),
    case inet_rdma_transport:recv_message(Connection, ?PROOF_MS) of
        {ok, <<$p, Proof:32/binary>>} ->
            case inet_rdma_detour:is_proof(Session, Proof, Before) of
                true -> connect(Relay);
                false -> {refused, wrong_proof, none}
            end;
        _ ->
            {refused, no_proof, none}
    end.

connect(#relay{session = Session, from = From, to = To}) ->
    case
        inet_rdma_detour:is_usable(Session) andalso From =/= To andalso
            inet_rdma_links:session_of(To)
    of
        {ok, ToSession} ->
            Asker = inet_rdma_session:name(Session),
            case
                inet_rdma_detour:is_usable(ToSession) andalso
                    inet_rdma_detours:open(Asker, From, To)
            of
                ok -> connected(inet_rdma_detour:dial(ToSession, ?CONNECT_MS));
                full -> {refused, too_many_detours, <<$b>>};
                false -> {refused, no_link, <<$n>>}
            end;
        _NoneOrFalse ->
            {refused, no_link, <<$n>>}
    end.

connected({ok, Other}) -> {ok, Other};
connected({error, _}) -> {refused, not_connected, <<$n>>}.

open(Connection, Other, #relay{session = Session, from = From, to = To} = Relay) ->
    IdleMs = ?IDLE_TICK_TIMES * 1000 * inet_rdma_keeper:known_tick_time(),
    %% Before the asker knows of the detour. The socket inside TLS belongs to ssl.
    _ = [
        inet:setopts(socket(Each), ends(IdleMs))
     || Each <- [Connection, Other], inet_rdma_transport:protocol(Each) =:= tcp
    ],
    _ = inet_rdma_transport:send_message(Connection, <<$d>>),
    case inet_rdma_session:take(Session, Connection) of
        {ok, Raw} ->
            [One, Another] = Sockets = [socket(Each) || Each <- [Raw, Other]],
            inet_rdma_links:count(detours_relayed),
            ok = inet_rdma_recorder:record(detour, To, #{why => From}),
            ?LOG_NOTICE("inet_rdma: this node relays the link between ~ts and ~ts", [From, To]),
            Opened = Relay#relay{sockets = {One, Another}, idle_ms = IdleMs, check_ms = check_ms()},
            case [ok || Socket <- Sockets, ok <- [read(Socket, ends(IdleMs) ++ passing())]] of
                [ok, ok] -> continue(Opened);
                _ -> {stop, normal, Opened}
            end;
        {error, _} ->
            {stop, normal, Relay}
    end.

check_ms() ->
    case inet_rdma_options:node() of
        {ok, #{suspect_after_ms := Ms}} when Ms > 0 -> Ms;
        _ -> infinity
    end.

socket(Connection) ->
    {_Driver, Socket} = inet_rdma_transport:socket(Connection),
    Socket.

%% Without a time to linger a close, that by the end of this node's process among them, resets. A
%% host that acknowledges nothing holds no port for longer than an idle detour.
ends(IdleMs) ->
    Named = [{keepidle, ?PROBE_S}, {keepintvl, ?PROBE_S}, {user_timeout, IdleMs}],
    [
        {linger, {true, 0}},
        {show_econnreset, true},
        {keepalive, true}
        | [inet_rdma_transport:tcp_option(Name, Value) || {Name, Value} <- Named]
    ].

passing() -> [binary, {packet, raw}, {nodelay, true}, {buffer, ?READ_BYTES_MAX}].

read(Socket, Options) -> inet:setopts(Socket, Options ++ [{active, once}]).

written(closing, Relay) ->
    {stop, normal, Relay};
written(Socket, #relay{ended = Socket} = Relay) ->
    close(Relay);
written(_Socket, #relay{ended = Ended} = Relay) when Ended =/= none ->
    continue(Relay);
written(Socket, Relay) ->
    case read(Socket, []) of
        ok -> continue(Relay);
        {error, _} -> {stop, normal, Relay}
    end.

%% Closes the other socket in order, in a process that may wait.
close(#relay{ended = Ended, writers = Writers} = Relay) ->
    Last = other(Ended, Relay),
    _ = inet:setopts(Last, [{linger, {false, 0}}]),
    case inet_rdma_bounded:start_monitored(gen_tcp, close, [Last]) of
        {ok, {_, Closer}} -> continue(Relay#relay{writers = Writers#{Closer => closing}});
        {error, system_limit} -> again(close, Relay)
    end.

%% The end of the owner closes the sockets.
terminate(_Reason, #relay{sockets = Sockets, from = From, to = To, bytes = Bytes}) ->
    ok = inet_rdma_detours:leave(),
    _ =
        Sockets =/= none andalso
            ?LOG_NOTICE(
                "inet_rdma: this node no longer relays the link between ~ts and ~ts, of which it "
                "passed ~b bytes",
                [From, To, Bytes]
            ),
    ok.

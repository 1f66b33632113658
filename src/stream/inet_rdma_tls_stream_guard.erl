%% The guard of a stream that began inside TLS: a sleeping process that owns the TLS connection.
%%
%% The guard exchanges new keys (inet_rdma_keys). When either side ends the stream, the guard closes the TLS connection
%% and ends; before a process has accepted the stream it stays. When the TLS connection ends first, the guard waits for
%% the end of the stream, which may still be on its way behind data, and then ends the stream itself. The guard's state
%% has no term that would keep an unused socket of the stream from being collected.
-module(inet_rdma_tls_stream_guard).

-behaviour(inet_rdma_guard).

-export([connect/5, offer/3]).
-export([handle/2]).
%% Spawned.
-export([do_connect/6]).

%% Time from the end of the TLS connection within which the stream's own end may come: a device repeats packets that a
%% network has lost for up to seconds.
-define(GRACE_MS, 5000).

-type guarded() :: #{id := pos_integer(), native := inet_rdma_nif:guard(), connection := inet_rdma_transport:t(),
                     keys := inet_rdma_keys:t(),
                     %% A stream that no process has accepted yet, and its listener.
                     offered := none | {inet_rdma_nif:conn(), Listener :: pid()},
                     has_ended := boolean()}.

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
    DeadlineMs = inet_rdma_clock:deadline(BoundMs),
    case inet_rdma_tls_stream_connection:connect(Host, Port, SocketOptions, DeadlineMs) of
        {ok, Socket} ->
            Connection = inet_rdma_transport:tls(Socket),
            LeftMs = max(1, inet_rdma_clock:left(DeadlineMs)),
            case inet_rdma_tls_stream:settle(initiator, Connection, Config#{connect_timeout_ms := LeftMs}) of
                {ok, Stream} -> run(Stream, Connection, {User, Ref});
                {error, Reason} -> exit({shutdown, Reason})
            end;
        {error, Reason} ->
            exit({shutdown, inet_rdma_tls_stream_connection:reason(Reason)})
    end.

%% Gives the stream to the process, which gets {Ref, Conn, Id}.
run({Conn, _IsEncrypted} = Stream, Connection, User) ->
    inet_rdma_guard:run(?MODULE, give(Conn, User, guarded(Stream, Connection, none))).

%% Sends the listener {ready, self()}. The listener's answer {give, Pid, Ref} orders the guard to give the stream to a
%% process.
-spec offer(inet_rdma_tls_stream:stream(), inet_rdma_transport:t(), Listener :: pid()) -> no_return().
offer({Conn, _IsEncrypted} = Stream, Connection, Listener) ->
    Guarded = guarded(Stream, Connection, {Conn, Listener}),
    Listener ! {ready, self()},
    %% The guard hibernates, which removes the keys of the settlement from its heap.
    inet_rdma_guard:run(?MODULE, Guarded).

guarded({Conn, IsEncrypted}, Connection, Offered) ->
    case inet_rdma_nif:guard(Conn) of
        {ok, Native, Id} ->
            Keys = inet_rdma_keys:new({stream, Native}, IsEncrypted),
            %% A connection that has ended already is told by a message, too.
            _ = inet_rdma_transport:watch(Connection),
            #{id => Id, native => Native, connection => Connection, keys => Keys, offered => Offered,
              has_ended => false};
        {error, closed} ->
            exit({shutdown, closed})
    end.

give(Conn, {Pid, Ref}, #{id := Id, offered := Offered} = Guarded) ->
    case {inet_rdma_nif:own(Conn, Pid), Offered} of
        {ok, _} ->
            Pid ! {Ref, Conn, Id},
            Guarded#{offered := none};
        {{error, badarg}, {_, Listener}} ->
            %% The process has ended. Nothing else tells the guard that the listener was closed meanwhile.
            _ = monitor(process, Listener),
            Listener ! {ready, self()},
            Guarded;
        {{error, _}, _} ->
            _ = inet_rdma_nif:close(Conn),
            Guarded
    end.

-spec handle(term(), guarded()) -> {ok, guarded()} | stop.
handle({'$inet_rdma', Id, ended}, #{id := Id, connection := Connection, offered := none}) ->
    inet_rdma_transport:close(Connection),
    stop;
%% The process that accepts the stream reads what the peer has sent before the end.
handle({'$inet_rdma', Id, ended}, #{id := Id, connection := Connection} = Guarded) ->
    inet_rdma_transport:close(Connection),
    {ok, Guarded#{has_ended := true}};
handle(grace_over, #{native := Native} = Guarded) ->
    end_stream(Native, tls_gone),
    {ok, Guarded};
handle({'DOWN', _, process, _Listener, _}, #{offered := {_Conn, _}}) ->
    stop;
handle({give, Pid, Ref}, #{offered := {Conn, _Listener}} = Guarded) ->
    case give(Conn, {Pid, Ref}, Guarded) of
        #{offered := none, has_ended := true} -> stop;
        Next -> {ok, Next}
    end;
handle(Message, #{connection := Connection, keys := Keys} = Guarded) ->
    {ok, handled(inet_rdma_keys:handle(Message, Keys, Connection), Guarded)}.

handled({ok, Keys}, Guarded) ->
    Guarded#{keys := Keys};
%% The native side sends a tick itself, so that the peer sees the change.
handled({changed, Keys}, Guarded) ->
    Guarded#{keys := Keys};
handled(gone, Guarded) ->
    _ = erlang:send_after(?GRACE_MS, self(), grace_over),
    Guarded;
handled(unknown, Guarded) ->
    Guarded;
handled({error, _Why}, #{native := Native} = Guarded) ->
    end_stream(Native, key_message),
    Guarded.

%% After inet_rdma_nif was loaded anew its old terms are no longer valid, and its sockets are lost.
end_stream(Native, Reason) ->
    try inet_rdma_nif:end_stream(Native, Reason)
    catch error:badarg -> exit(normal)
    end.

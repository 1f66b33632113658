%% The TLS owner of a stream that began inside TLS: a sleeping process that owns the TLS connection.
%%
%% Nothing is sent over the TLS connection after the settlement. When either side ends the stream,
%% the TLS owner closes the TLS connection and ends; before a process has accepted the stream it
%% stays. When the TLS connection ends first, the TLS owner waits for the end of the stream, which
%% may still be on its way after data, and then ends the stream itself. The TLS owner's state has
%% no term that would keep an unused socket of the stream from being collected.
-module(inet_rdma_tls_owner).

-behaviour(inet_rdma_sleeper).

-export([connect/5, offer/3]).
-export([handle/2]).
%% Spawned.
-export([do_connect/6]).

%% Time from the end of the TLS connection within which the stream's own end may come: a device
%% repeats packets that a network has lost for up to seconds.
-define(GRACE_MS, 5000).

-type state() :: #{
    id := pos_integer(),
    native := inet_rdma_nif:tls_owner(),
    connection := inet_rdma_transport:t(),
    %% A stream that no process has accepted yet, and its listener.
    offered := none | {inet_rdma_nif:conn(), Listener :: pid()},
    has_ended := boolean()
}.

%% The caller owns the stream. {error, etimedout}: the time BoundMs is over.
-spec connect(
    inet:hostname() | inet:ip_address(),
    inet:port_number(),
    inet_rdma_socket_options:options(),
    inet_rdma_options:config(),
    BoundMs :: pos_integer()
) ->
    {ok, inet_rdma_nif:conn(), Id :: pos_integer()} | {error, inet_rdma:reason()}.
connect(Host, Port, SocketOptions, Config, BoundMs) ->
    Ref = make_ref(),
    Arguments = [{self(), Ref}, Host, Port, SocketOptions, Config, BoundMs],
    case inet_rdma_bounded:start_monitored(?MODULE, do_connect, Arguments) of
        {ok, TlsOwner} -> connected(TlsOwner, Ref, BoundMs);
        {error, Reason} -> {error, {system, starting_a_process, Reason}}
    end.

connected({TlsOwner, Monitor}, Ref, BoundMs) ->
    receive
        {Ref, Conn, Id} ->
            demonitor(Monitor, [flush]),
            {ok, Conn, Id};
        {'DOWN', Monitor, process, TlsOwner, {shutdown, Reason}} ->
            {error, Reason};
        {'DOWN', Monitor, process, TlsOwner, Reason} ->
            {error, {tls, Reason}}
    after BoundMs ->
        exit(TlsOwner, kill),
        receive
            {'DOWN', Monitor, process, TlsOwner, _} -> ok
        end,
        receive
            {Ref, Conn, _Id} -> inet_rdma_nif:close(Conn)
        after 0 -> ok
        end,
        {error, etimedout}
    end.

%% Becomes the TLS owner.
-spec do_connect(
    User,
    inet:hostname() | inet:ip_address(),
    inet:port_number(),
    inet_rdma_socket_options:options(),
    inet_rdma_options:config(),
    BoundMs :: pos_integer()
) -> no_return() when User :: {pid(), reference()}.
do_connect({User, Ref}, Host, Port, SocketOptions, Config, BoundMs) ->
    DeadlineMs = inet_rdma_clock:deadline(BoundMs),
    case inet_rdma_tls_stream_connection:connect(Host, Port, SocketOptions, DeadlineMs) of
        {ok, Socket} ->
            Connection = inet_rdma_transport:tls(Socket),
            LeftMs = max(1, inet_rdma_clock:left(DeadlineMs)),
            case
                inet_rdma_tls_stream:settle(initiator, Connection, Config#{
                    connect_timeout_ms := LeftMs
                })
            of
                {ok, Conn} -> run(Conn, Connection, {User, Ref});
                {error, Reason} -> exit({shutdown, Reason})
            end;
        {error, Reason} ->
            exit({shutdown, inet_rdma_tls_stream_connection:reason(Reason)})
    end.

%% Gives the stream to the process, which gets {Ref, Conn, Id}.
run(Conn, Connection, User) ->
    inet_rdma_sleeper:run(?MODULE, give(Conn, User, state_of(Conn, Connection, none))).

%% Sends the listener {ready, self()}. The listener's answer {give, Pid, Ref} orders the TLS owner
%% to give the stream to a process.
-spec offer(inet_rdma_nif:conn(), inet_rdma_transport:t(), Listener :: pid()) -> no_return().
offer(Conn, Connection, Listener) ->
    State = state_of(Conn, Connection, {Conn, Listener}),
    Listener ! {ready, self()},
    %% The TLS owner hibernates, which removes the keys of the settlement from its heap.
    inet_rdma_sleeper:run(?MODULE, State).

state_of(Conn, Connection, Offered) ->
    case inet_rdma_nif:tls_owner(Conn) of
        {ok, Native, Id} ->
            %% A connection that has ended already sends a message, too.
            _ = inet_rdma_transport:watch(Connection),
            #{
                id => Id,
                native => Native,
                connection => Connection,
                offered => Offered,
                has_ended => false
            };
        {error, closed} ->
            exit({shutdown, closed})
    end.

give(Conn, {Pid, Ref}, #{id := Id, offered := Offered} = State) ->
    case {inet_rdma_nif:own(Conn, Pid), Offered} of
        {ok, _} ->
            Pid ! {Ref, Conn, Id},
            State#{offered := none};
        {{error, badarg}, {_, Listener}} ->
            %% The process has ended. Nothing else tells the TLS owner that the listener was closed
            %% meanwhile.
            _ = monitor(process, Listener),
            Listener ! {ready, self()},
            State;
        {{error, _}, _} ->
            _ = inet_rdma_nif:close(Conn),
            State
    end.

-spec handle(term(), state()) -> {ok, state()} | stop.
handle({'$inet_rdma', Id, ended}, #{id := Id, connection := Connection, offered := none}) ->
    inet_rdma_transport:close(Connection),
    stop;
%% The process that accepts the stream reads what the peer has sent before the end.
handle({'$inet_rdma', Id, ended}, #{id := Id, connection := Connection} = State) ->
    inet_rdma_transport:close(Connection),
    {ok, State#{has_ended := true}};
handle(grace_over, #{native := Native} = State) ->
    end_stream(Native, tls_gone),
    {ok, State};
handle({'DOWN', _, process, _Listener, _}, #{offered := {_Conn, _}}) ->
    stop;
handle({give, Pid, Ref}, #{offered := {Conn, _Listener}} = State) ->
    case give(Conn, {Pid, Ref}, State) of
        #{offered := none, has_ended := true} -> stop;
        Next -> {ok, Next}
    end;
handle({ssl_closed, _Socket}, State) ->
    tls_gone(State);
handle({ssl_error, _Socket, _Reason}, State) ->
    tls_gone(State);
handle({ssl, _Socket, _Bytes}, #{native := Native} = State) ->
    end_stream(Native, tls_bytes),
    {ok, State};
handle(_Message, State) ->
    {ok, State}.

tls_gone(State) ->
    _ = erlang:send_after(?GRACE_MS, self(), grace_over),
    {ok, State}.

%% After inet_rdma_nif was loaded again its old terms are no longer valid, and its sockets are lost.
end_stream(Native, Reason) ->
    try
        inet_rdma_nif:end_stream(Native, Reason)
    catch
        error:badarg -> exit(normal)
    end.

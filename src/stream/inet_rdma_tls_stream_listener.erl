%% A listener of streams that begin inside TLS: the TCP port, and the connections that no process
%% has accepted yet.
%%
%% Each connection has a process of its own from its arrival on, which does the handshake of TLS and
%% the settlement, and then is the owner of the TLS connection (inet_rdma_tls_owner). One further
%% process waits for the next connection. The option backlog bounds the connections that are in
%% their handshake, settle, or wait for inet_rdma:accept/1,2; further connections wait in the TCP
%% socket's backlog, which the same option bounds. Each connection has connect_timeout_ms for its
%% handshake and settlement. Connections that were not accepted end with the listener.
-module(inet_rdma_tls_stream_listener).

-behaviour(gen_server).

-include_lib("kernel/include/logger.hrl").

-export([start/3, accept/2, sockname/1, close/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2, format_status/1]).
-export([arrive/3]).

%% Pause before the next try if the system has no descriptor left.
-define(RETRY_MS, 100).

-record(listener, {
    %% hidden: in what format_status/1 shows.
    socket :: ssl:sslsocket() | hidden,
    port :: inet:port_number(),
    config :: inet_rdma_options:config(),
    owner :: reference(),
    %% The process that waits for the next connection. none: there is no room for one more.
    arriving = none :: pid() | none,
    %% A process for each connection that no process has accepted.
    present = #{} :: #{pid() => []},
    %% The TLS owners among them whose stream can be accepted, oldest first.
    ready = queue:new() :: queue:queue(pid()),
    %% The calls of accept/2 that wait.
    waiting = [] :: [{pid(), reference()}],
    log_limit :: inet_rdma_nif:log_limit()
}).

%% The caller owns the listener.
-spec start(inet:port_number(), inet_rdma_socket_options:options(), inet_rdma_options:config()) ->
    {ok, pid(), inet:port_number()} | {error, inet_rdma:reason()}.
start(Port, SocketOptions, Config) ->
    case inet_rdma_tls_stream_connection:start() of
        ok ->
            case gen_server:start(?MODULE, {self(), Port, SocketOptions, Config}, []) of
                {ok, Pid} -> {ok, Pid, gen_server:call(Pid, port, infinity)};
                {error, {shutdown, Reason}} -> {error, Reason}
            end;
        Error ->
            Error
    end.

%% The caller owns the stream.
-spec accept(pid(), DeadlineMs :: integer() | infinity) ->
    {ok, inet_rdma_nif:conn(), Id :: pos_integer()} | {error, closed | timeout}.
accept(Listener, DeadlineMs) ->
    Monitor = monitor(process, Listener),
    Result = accept(Listener, Monitor, DeadlineMs),
    demonitor(Monitor, [flush]),
    Result.

accept(Listener, Monitor, DeadlineMs) ->
    Ref = make_ref(),
    case call(Listener, {accept, Ref}) of
        {ok, TlsOwner} ->
            OwnerMonitor = monitor(process, TlsOwner),
            receive
                {Ref, Conn, Id} ->
                    demonitor(OwnerMonitor, [flush]),
                    {ok, Conn, Id};
                {'DOWN', OwnerMonitor, process, TlsOwner, _} ->
                    accept(Listener, Monitor, DeadlineMs)
            end;
        empty ->
            receive
                {Ref, acceptable} -> accept(Listener, Monitor, DeadlineMs);
                {'DOWN', Monitor, process, Listener, _} -> {error, closed}
            after inet_rdma_clock:left(DeadlineMs) ->
                _ = call(Listener, {stop_accepting, Ref}),
                receive
                    {Ref, acceptable} -> ok
                after 0 -> ok
                end,
                {error, timeout}
            end;
        closed ->
            {error, closed}
    end.

call(Listener, Request) ->
    try
        gen_server:call(Listener, Request, infinity)
    catch
        exit:_ -> closed
    end.

-spec sockname(pid()) -> {ok, {tls, inet:ip_address(), inet:port_number()}} | {error, closed}.
sockname(Listener) ->
    case call(Listener, sockname) of
        {ok, {Ip, Port}} -> {ok, {tls, Ip, Port}};
        _ -> {error, closed}
    end.

-spec close(pid()) -> ok.
close(Listener) ->
    try
        gen_server:stop(Listener)
    catch
        exit:_ -> ok
    end.

init({Owner, Port, SocketOptions, #{backlog := Backlog} = Config}) ->
    _ = process_flag(trap_exit, true),
    case inet_rdma_tls_stream_connection:listen(Port, SocketOptions, Backlog) of
        {ok, Socket, Bound} ->
            {ok,
                await_next(#listener{
                    socket = Socket,
                    port = Bound,
                    config = Config,
                    owner = monitor(process, Owner),
                    log_limit = inet_rdma_nif:log_limit()
                })};
        {error, Reason} ->
            {stop, {shutdown, Reason}}
    end.

handle_call(port, _From, #listener{port = Port} = State) ->
    {reply, Port, State};
handle_call(sockname, _From, #listener{socket = Socket} = State) ->
    {reply, ssl:sockname(Socket), State};
handle_call(
    {accept, Ref},
    {Pid, _Tag},
    #listener{ready = Ready, present = Present, waiting = Waiting} = State
) ->
    case queue:out(Ready) of
        {{value, TlsOwner}, Rest} ->
            release(TlsOwner),
            TlsOwner ! {give, Pid, Ref},
            Left = State#listener{ready = Rest, present = maps:remove(TlsOwner, Present)},
            {reply, {ok, TlsOwner}, await_next(Left)};
        {empty, _} ->
            %% Without the callers that were killed while they waited.
            Others = [
                Each
             || {Other, _} = Each <- Waiting, node(Other) =/= node() orelse is_process_alive(Other)
            ],
            {reply, empty, State#listener{waiting = [{Pid, Ref} | Others]}}
    end;
handle_call({stop_accepting, Ref}, _From, #listener{waiting = Waiting} = State) ->
    {reply, ok, State#listener{waiting = lists:keydelete(Ref, 2, Waiting)}};
%% Without this clause the stack trace of a function clause error would have the state, and the
%% socket's options.
handle_call(_Request, _From, State) ->
    {reply, {error, badarg}, State}.

%% The stream outlives the listener.
release(TlsOwner) ->
    unlink(TlsOwner),
    receive
        {'EXIT', TlsOwner, _} -> ok
    after 0 -> ok
    end.

handle_cast(_Request, State) ->
    {noreply, State}.

handle_info({arrived, Pid}, #listener{arriving = Pid, present = Present} = State) ->
    {noreply, await_next(State#listener{arriving = none, present = Present#{Pid => []}})};
handle_info({ready, TlsOwner}, State) ->
    #listener{ready = Ready, present = Present, waiting = Waiting} = State,
    %% A TLS owner whose accepting process has died offers its stream again. It was unlinked before.
    link(TlsOwner),
    _ = [Pid ! {Ref, acceptable} || {Pid, Ref} <- Waiting],
    {noreply, State#listener{
        ready = queue:in(TlsOwner, Ready),
        present = Present#{TlsOwner => []},
        waiting = []
    }};
handle_info({'EXIT', Pid, _Reason}, #listener{arriving = Pid} = State) ->
    {noreply, await_next_later(State#listener{arriving = none})};
handle_info({'EXIT', Pid, Reason}, #listener{present = Present, ready = Ready} = State) when
    is_map_key(Pid, Present)
->
    Left = State#listener{present = maps:remove(Pid, Present), ready = queue:delete(Pid, Ready)},
    ok = log(Reason, Left),
    {noreply, await_next(Left)};
handle_info(await_next, State) ->
    {noreply, await_next(State)};
handle_info({'DOWN', Owner, process, _, _}, #listener{owner = Owner} = State) ->
    {stop, normal, State};
handle_info(_Message, State) ->
    {noreply, State}.

terminate(_Reason, #listener{socket = Socket, arriving = Arriving, present = Present}) ->
    _ = ssl:close(Socket),
    _ = [exit(Pid, kill) || Pid <- [Arriving | maps:keys(Present)], is_pid(Pid)],
    ok.

%% For crash reports and sys:get_status/1. Hides ssl's listening socket, which has keys and
%% passwords in its options.
format_status(#{state := #listener{} = State} = Status) ->
    Status#{state := State#listener{socket = hidden}};
format_status(Status) ->
    Status.

await_next(
    #listener{arriving = none, present = Present, config = #{backlog := Backlog}} = State
) when
    map_size(Present) < Backlog
->
    #listener{socket = Socket, config = Config} = State,
    case inet_rdma_bounded:start_linked(?MODULE, arrive, [self(), Socket, Config]) of
        {ok, Pid} -> State#listener{arriving = Pid};
        {error, system_limit} -> await_next_later(State)
    end;
await_next(State) ->
    State.

await_next_later(State) ->
    _ = erlang:send_after(?RETRY_MS, self(), await_next),
    State.

log({shutdown, {refused, Why}}, #listener{log_limit = Limit, port = Port}) ->
    %% A limit of a module that was loaded again meanwhile is lost.
    Admitted =
        try
            inet_rdma_nif:log_admits(Limit)
        catch
            error:_ -> 0
        end,
    case Admitted of
        none ->
            ok;
        LeftOut ->
            Others = [
                io_lib:format(" (and ~b others that are not in the log)", [LeftOut])
             || LeftOut > 0
            ],
            ?LOG_WARNING(
                "inet_rdma: refused a peer on port ~b: ~ts~ts",
                [Port, inet_rdma_error:format(Why), Others],
                #{inet_rdma_reason => Why}
            )
    end;
log(_Reason, _State) ->
    ok.

%% Waits for a connection, and becomes the TLS owner of its stream.
-spec arrive(Listener :: pid(), ssl:sslsocket(), inet_rdma_options:config()) -> no_return().
arrive(Listener, ListenSocket, #{connect_timeout_ms := BoundMs} = Config) ->
    case ssl:transport_accept(ListenSocket) of
        {ok, Transport} ->
            Listener ! {arrived, self()},
            DeadlineMs = inet_rdma_clock:deadline(BoundMs),
            case ssl:handshake(Transport, BoundMs) of
                {ok, Socket} ->
                    Left = Config#{connect_timeout_ms := max(1, inet_rdma_clock:left(DeadlineMs))},
                    settle(Listener, inet_rdma_transport:tls(Socket), Left);
                {error, Reason} ->
                    exit({shutdown, not_inside_tls(Reason)})
            end;
        {error, Reason} ->
            exit({shutdown, Reason})
    end.

%% The type of ssl:handshake/2 leaves out options that cannot be used.
-dialyzer({no_match, not_inside_tls/1}).

%% ssl has logged its alerts. A peer that leaves or is silent is not logged. All other reasons are
%% options of this side that cannot be used.
not_inside_tls({tls_alert, _} = Alert) -> Alert;
not_inside_tls(Reason) when is_atom(Reason) -> Reason;
not_inside_tls(Reason) -> {refused, {tls, Reason}}.

settle(Listener, Connection, Config) ->
    case inet_rdma_tls_stream:settle(acceptor, Connection, Config) of
        {ok, Conn} -> inet_rdma_tls_owner:offer(Conn, Connection, Listener);
        {error, Reason} -> exit({shutdown, {refused, Reason}})
    end.

%% The guard of a stream that began inside TLS: a sleeping process that owns the TLS connection.
%%
%% It brings new keys (inet_rdma_keys). When either side ends the stream, the guard closes the TLS connection and ends.
%% When the TLS connection ends first it waits for the end of the stream, which may be on its way behind data, and then
%% ends the stream. It keeps no term that keeps the socket from being collected.
-module(inet_rdma_stream_guard).

-export([run/3, offer/3]).
-export([guarding/1]).

%% The end of a stream over its fabric may come that much later than that of the TLS connection: a device sends again,
%% for up to seconds, what a network has lost.
-define(GRACE_MS, 5000).

-type guarded() :: #{id := pos_integer(), native := inet_rdma_nif:guard(), connection := inet_rdma_bootstrap:t(),
                     keys := inet_rdma_keys:t(),
                     %% A stream that no process has accepted, and the listener that it came by.
                     offered := none | {inet_rdma_nif:conn(), Listener :: pid()}}.

%% Gives the stream to the process, which gets {Ref, Conn, Id}.
-spec run(inet_rdma_stream:stream(), inet_rdma_bootstrap:t(), {pid(), Ref :: reference()}) -> no_return().
run(Stream, Connection, User) ->
    give(inet_rdma_stream:conn(Stream), User, guarded(Stream, Connection, none)).

%% Tells the listener {ready, self()}; {give, Pid, Ref} then is the order to give the stream to a process.
-spec offer(inet_rdma_stream:stream(), inet_rdma_bootstrap:t(), Listener :: pid()) -> no_return().
offer(Stream, Connection, Listener) ->
    Guarded = guarded(Stream, Connection, {inet_rdma_stream:conn(Stream), Listener}),
    Listener ! {ready, self()},
    %% Until a process accepts the stream, the keys of the settlement are not to stay on the heap.
    sleep(Guarded).

guarded(Stream, Connection, Offered) ->
    case inet_rdma_nif:guard(inet_rdma_stream:conn(Stream)) of
        {ok, Native, Id} ->
            Keys = inet_rdma_keys:new({stream, Native}, inet_rdma_stream:is_encrypted(Stream)),
            %% If the connection has ended, a message says so.
            _ = inet_rdma_bootstrap:watch(Connection),
            #{id => Id, native => Native, connection => Connection, keys => Keys, offered => Offered};
        {error, closed} ->
            exit({shutdown, closed})
    end.

give(Conn, {Pid, Ref}, #{id := Id, offered := Offered} = Guarded) ->
    case {inet_rdma_nif:own(Conn, Pid), Offered} of
        {ok, _} ->
            Pid ! {Ref, Conn, Id},
            sleep(Guarded#{offered := none});
        {{error, badarg}, {_, Listener}} ->
            %% A listener that was closed meanwhile does not end it.
            _ = monitor(process, Listener),
            Listener ! {ready, self()},
            sleep(Guarded);
        {{error, _}, _} ->
            _ = inet_rdma_nif:close(Conn),
            sleep(Guarded)
    end.

%% Hibernates, which leaves only the state on the heap.
-spec sleep(guarded()) -> no_return().
sleep(Guarded) -> erlang:hibernate(?MODULE, guarding, [Guarded]).

-spec guarding(guarded()) -> no_return().
guarding(#{id := Id, native := Native, connection := Connection, keys := Keys, offered := Offered} = Guarded) ->
    receive
        {'$inet_rdma', Id, ended} ->
            inet_rdma_bootstrap:close(Connection),
            exit(normal);
        {'$inet_rdma', Id, key_due} ->
            guard_on(Guarded, inet_rdma_keys:handle_due(Keys, Connection));
        {ssl, _Socket, Bytes} ->
            guard_on(Guarded, inet_rdma_keys:handle_received(Keys, Connection, Bytes));
        {ssl_closed, _Socket} ->
            tls_gone(Guarded);
        {ssl_error, _Socket, _Reason} ->
            tls_gone(Guarded);
        tls_gone ->
            end_stream(Native, tls_gone),
            sleep(Guarded);
        {'DOWN', _, process, _Listener, _} when Offered =/= none ->
            exit(normal);
        {give, Pid, Ref} when Offered =/= none ->
            give(element(1, Offered), {Pid, Ref}, Guarded);
        _ ->
            sleep(Guarded)
    end.

%% changed: the native side sends a tick itself, so that the peer sees the change.
guard_on(#{connection := Connection} = Guarded, {Ok, Keys}) when Ok =:= ok; Ok =:= changed ->
    _ = inet_rdma_bootstrap:active_once(Connection),
    sleep(Guarded#{keys := Keys});
guard_on(#{native := Native} = Guarded, {error, _Why}) ->
    end_stream(Native, key_message),
    sleep(Guarded).

tls_gone(Guarded) ->
    _ = erlang:send_after(?GRACE_MS, self(), tls_gone),
    sleep(Guarded).

%% After inet_rdma_nif was loaded anew its terms are useless, and its sockets are lost.
end_stream(Native, Reason) ->
    try inet_rdma_nif:end_stream(Native, Reason)
    catch error:badarg -> exit(normal)
    end.

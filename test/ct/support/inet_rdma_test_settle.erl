%% The two sides of a settlement on a fabric. Runs in the nodes under test.
-module(inet_rdma_test_settle).

-export([addresses/0, expect/4, result/1, connect/5, forget/1, failure/2]).

-define(BOUND_MS, 60000).

%% The addresses of this machine, as text.
-spec addresses() -> [binary()].
addresses() ->
    {ok, Interfaces} = inet:getifaddrs(),
    [
        list_to_binary(inet:ntoa(Address))
     || {_, Properties} <- Interfaces, {addr, Address} <- Properties
    ].

%% Starts a process that waits for the peer with the token, and reads five bytes of it. Returns the
%% process, and name or port.
-spec expect(shm | verbs, binary(), inet_rdma_nif:token(), pos_integer()) ->
    {pid(), inet_rdma_nif:name() | inet:port_number()} | {error, term()}.
expect(Fabric, Address, Token, TimeoutMs) ->
    Caller = self(),
    {Pid, Monitor} = spawn_monitor(fun() ->
        case begin_to_expect(Fabric, Address, Token, TimeoutMs) of
            {ok, Attempt, Id, Port} ->
                waiting = inet_rdma_nif:stream(Attempt, none),
                ok = inet_rdma_nif:notify(Attempt),
                Caller ! {self(), Port},
                wait(Attempt, Id);
            {error, Reason} ->
                exit({not_expected, Reason})
        end
    end),
    receive
        {Pid, Port} ->
            demonitor(Monitor, [flush]),
            {Pid, Port};
        {'DOWN', Monitor, process, Pid, {not_expected, Reason}} ->
            {error, Reason}
    end.

begin_to_expect(shm, <<>>, Token, TimeoutMs) ->
    inet_rdma_nif:expect_shm(Token, TimeoutMs, config());
begin_to_expect(verbs, Address, Token, TimeoutMs) ->
    inet_rdma_nif:expect(verbs, Address, Token, TimeoutMs, config()).

%% The process holds the term of the attempt until it ends or gets the message to forget it.
wait(Attempt, Id) ->
    receive
        {'$inet_rdma', Id, connected} ->
            hear(Attempt, Id);
        {forget, From} ->
            true = is_reference(Attempt),
            From ! {forgot, self()},
            forgotten()
    end.

hear(Attempt, Id) ->
    case inet_rdma_nif:stream(Attempt, none) of
        {ok, Conn} ->
            {error, attempt_taken} = inet_rdma_nif:stream(Attempt, none),
            [#{fabric := Fabric, why := Why}] = [
                Info
             || #{id := Of} = Info <- inet_rdma:info(), Of =:= Id
            ],
            tell({ok, read(Conn, Id), Fabric, Why}),
            %% The connection must not be collected before: the peer may be about to finish.
            ok = inet_rdma_nif:close(Conn);
        Error ->
            tell(Error)
    end.

forgotten() ->
    true = erlang:garbage_collect(),
    receive
        {'$inet_rdma', _, _} = Message -> exit({not_forgotten, Message})
    after infinity -> ok
    end.

tell(Result) ->
    receive
        {result, From} -> From ! {self(), Result}
    end.

read(Conn, Id) ->
    case inet_rdma_nif:recv(Conn, 5) of
        {_, [Data]} ->
            Data;
        empty ->
            _ =
                inet_rdma_nif:arm(Conn) andalso
                    receive
                        {'$inet_rdma', Id, readable} -> ok
                    end,
            read(Conn, Id);
        {error, Reason, []} ->
            {error, Reason}
    end.

%% The result of the process of expect/4: {ok, Bytes, Fabric, Why} or an error.
-spec result(pid()) -> {ok, binary(), atom(), string()} | {error, term()}.
result(Pid) ->
    Pid ! {result, self()},
    receive
        {Pid, Result} -> Result
    after ?BOUND_MS -> error(no_result)
    end.

%% Has the process of expect/4 forget the attempt.
-spec forget(pid()) -> ok.
forget(Pid) ->
    Pid ! {forget, self()},
    receive
        {forgot, Pid} -> ok
    after ?BOUND_MS -> error(not_forgotten)
    end.

%% Connects and sends five bytes. Returns the result and the messages that are in the mailbox
%% afterwards.
-spec connect(
    auto | shm | verbs,
    binary(),
    inet_rdma_nif:name() | inet:port_number(),
    inet_rdma_nif:token(),
    pos_integer()
) ->
    {ok | {error, term()}, [term()]}.
connect(Fabric, Address, Port, Token, TimeoutMs) ->
    {ok, Attempt, Id} = begin_to_connect(Fabric, Address, Port, Token, TimeoutMs),
    receive
        {'$inet_rdma', Id, connected} -> ok
    end,
    Result =
        case inet_rdma_nif:stream(Attempt, none) of
            {ok, Conn} ->
                ok = inet_rdma_nif:send(Conn, [[<<"hello">>]], 0),
                %% It must not be collected before they have arrived.
                ok = inet_rdma_nif:finish(Conn);
            Error ->
                Error
        end,
    {messages, Messages} = process_info(self(), messages),
    {Result, Messages}.

begin_to_connect(shm, _Address, Name, Token, TimeoutMs) when is_binary(Name) ->
    inet_rdma_nif:connect_shm(Name, Token, TimeoutMs, config());
begin_to_connect(Fabric, Address, Port, Token, TimeoutMs) ->
    inet_rdma_nif:connect(Fabric, <<>>, {Address, Port}, Token, TimeoutMs, config()).

%% The exception that a call raises; none: it returns.
-spec failure(atom(), [term()]) -> term().
failure(Function, Args) ->
    try apply(inet_rdma_nif, Function, Args) of
        _ -> none
    catch
        error:Reason -> Reason
    end.

config() ->
    {ok, Config} = inet_rdma_options:node(),
    Config#{direct => always}.

%% One end of a socket: a process that owns it and does with it what the case asks for. Runs in the
%% nodes under test.
-module(inet_rdma_test_end).

-export([listen/2, connect/3, do/3, bystander/1]).

-define(MASTER_BYTES, 1048576).
-define(TIMEOUT_MS, 55000).
-define(PATIENCE_MS, 50000).

%% The port and the process that owns the listener.
-spec listen(inet:port_number(), [term()]) -> {ok, inet:port_number(), pid()} | {error, term()}.
listen(Port, Options) ->
    case own(fun() -> inet_rdma:listen(Port, patient(Options)) end) of
        {ok, Pid} ->
            {ok, Bound} = do(Pid, port, []),
            {ok, Bound, Pid};
        Error ->
            Error
    end.

%% The process that owns the socket.
-spec connect(inet:hostname() | inet:ip_address(), inet:port_number(), [term()]) ->
    {ok, pid()} | {error, term()}.
connect(Host, Port, Options) ->
    own(fun() -> inet_rdma:connect(Host, Port, patient(Options), ?TIMEOUT_MS) end).

%% A busy machine takes longer for a handshake than the option's default of 5 s.
patient(Options) ->
    case lists:keymember(connect_timeout_ms, 1, Options) of
        true -> Options;
        false -> Options ++ [{connect_timeout_ms, ?PATIENCE_MS}]
    end.

%% Lets the owner call a function with its socket as the first argument.
-spec do(pid(), atom(), [term()]) -> term().
do(Pid, Function, Args) ->
    Ref = monitor(process, Pid),
    Pid ! {do, self(), Ref, Function, Args},
    receive
        {Ref, Result} ->
            demonitor(Ref, [flush]),
            Result;
        {'DOWN', Ref, process, Pid, Reason} ->
            case {Function, Reason} of
                {stop, normal} -> ok;
                _ -> {owner_died, Reason}
            end
    after ?TIMEOUT_MS -> error({no_result, Function})
    end.

%% A process that uses the socket of another, which goes on owning it.
-spec bystander(pid()) -> pid().
bystander(Owner) ->
    Socket = do(Owner, socket, []),
    spawn(fun() -> loop(Socket) end).

own(Open) ->
    Caller = self(),
    Pid = spawn(fun() ->
        case Open() of
            {ok, Socket} ->
                Caller ! {self(), ok},
                loop(Socket);
            Error ->
                Caller ! {self(), Error}
        end
    end),
    receive
        {Pid, ok} -> {ok, Pid};
        {Pid, Error} -> Error
    after ?TIMEOUT_MS -> error(never_opened)
    end.

loop(Socket) ->
    receive
        {do, _From, _Ref, stop, []} ->
            ok;
        {do, From, Ref, Function, Args} ->
            From ! {Ref, act(Function, Args, Socket)},
            loop(Socket)
    end.

%% A listener's owner accepts, and gives the socket to a process of its own.
act(accept_end, [], Listener) ->
    {ok, Socket} = inet_rdma:accept(Listener, ?TIMEOUT_MS),
    {ok, inherit(Socket)};
act(hand_over, [], Socket) ->
    {heir, inherit(Socket)};
act(hand_over_as_stranger, [], Socket) ->
    Owner = self(),
    Pid = spawn(fun() -> Owner ! {self(), inet_rdma:controlling_process(Socket, self())} end),
    receive
        {Pid, Result} -> Result
    end;
act(collect, [Bytes], Socket) ->
    iolist_to_binary(read(Socket, Bytes, fun(_Left) -> 0 end));
act(collect_hash, [Bytes], Socket) ->
    hashed(read(Socket, Bytes, fun(_Left) -> 0 end));
act(collect_split, [Seed], Socket) ->
    {Sizes, _} = sizes(Seed),
    Total = lists:sum(Sizes),
    _ = rand:seed(exsss, Seed + 1),
    hashed(read(Socket, Total, fun(Left) -> min(Left, size_of_split()) end));
act(send_made, [Bytes], Socket) ->
    send_hashed(Socket, [inet_rdma_test_data:make(Bytes)]);
%% The owner stays free to read; `sent' then waits for the result.
act(start_sending, [Bytes], Socket) ->
    Owner = self(),
    _ = spawn(fun() -> Owner ! {sent, send_hashed(Socket, [inet_rdma_test_data:make(Bytes)])} end),
    ok;
act(sent, [], _Socket) ->
    receive
        {sent, Result} -> Result
    after ?TIMEOUT_MS -> never_sent
    end;
act(send_split, [Seed], Socket) ->
    {Sizes, Master} = sizes(Seed),
    send_hashed(Socket, [binary:part(Master, 0, Size) || Size <- Sizes]);
act(socket, [], Socket) ->
    Socket;
act(shrunk, [], _Socket) ->
    Pid = erase(shrinking),
    receive
        {Pid, Result} -> Result
    after ?TIMEOUT_MS -> never_sent
    end;
act(posts, [Function, Args], Socket) ->
    apply(inet_rdma_test_posts, Function, [Socket | Args]);
act(messages, [Count], Socket) ->
    [next_message(Socket) || _ <- lists:seq(1, Count)];
act(Function, Args, Socket) ->
    apply(inet_rdma, Function, [Socket | Args]).

inherit(Socket) ->
    Heir = spawn(fun() ->
        receive
            go -> loop(Socket)
        end
    end),
    ok = inet_rdma:controlling_process(Socket, Heir),
    Heir ! go,
    Heir.

next_message(Socket) ->
    receive
        {inet_rdma, Socket, Data} -> {data, Data};
        {inet_rdma_passive, Socket} -> passive;
        {inet_rdma_closed, Socket} -> closed;
        {inet_rdma_error, Socket, Reason} -> {error, Reason}
    after 20000 -> nothing
    end.

%% Reads Left bytes, each time as many as `Length' says (0: whatever is there).
read(_Socket, 0, _Length) ->
    [];
read(Socket, Left, Length) ->
    Asked = Length(Left),
    case inet_rdma:recv(Socket, Asked, ?TIMEOUT_MS) of
        {ok, Data} when Asked =:= 0, byte_size(Data) =< Left; byte_size(Data) =:= Asked ->
            [Data | read(Socket, Left - byte_size(Data), Length)];
        Other ->
            error({bad_read, {asked, Asked}, {left, Left}, summary(Other)})
    end.

summary({ok, Data}) -> {ok, byte_size(Data)};
summary(Error) -> Error.

send_hashed(Socket, Parts) ->
    Outcomes = lists:usort([inet_rdma:send(Socket, Part) || Part <- Parts]),
    {Size, Hash} = hashed(Parts),
    case Outcomes of
        [ok] -> {ok, Size, Hash};
        _ -> {failed, Outcomes}
    end.

hashed(Parts) ->
    {iolist_size(Parts), erlang:md5(Parts)}.

%% Both ends compute the same sizes from the seed.
sizes(Seed) ->
    _ = rand:seed(exsss, Seed),
    Sizes = [size_of_split() || _ <- lists:seq(1, 50)],
    {Sizes, rand:bytes(?MASTER_BYTES)}.

size_of_split() ->
    case rand:uniform(10) of
        1 -> 65536 + rand:uniform(100000);
        2 -> 16384 + rand:uniform(16) - 8;
        3 -> rand:uniform(16384);
        _ -> rand:uniform(300)
    end.

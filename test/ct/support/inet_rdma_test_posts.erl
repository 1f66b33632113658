%% Posts sends and receives on the socket of an end, and says how they ended. Runs in the nodes
%% under test.
-module(inet_rdma_test_posts).

-export([send/2, recv/2, done/2, there/1, cancel/2, keep/2, drop/1, take/2]).
-export([send_pipeline/2, recv_pipeline/2, send_while/2, start_send/2, dies_sending/2, stranger/3]).
-export([sendfile/2, grow/1, shrinks/2, storm/1]).

-define(TIMEOUT_MS, 50000).
-define(SPLIT_BYTES, 3000000).

%% Posts a send of each size; their hashes, in order, or the error that came first.
send(Socket, Sizes) ->
    [
        begin
            Data = inet_rdma_test_data:make(Size),
            {inet_rdma:post_send(Socket, Data), erlang:md5(Data)}
        end
     || Size <- Sizes
    ].

recv(Socket, Lengths) ->
    [inet_rdma:post_recv(Socket, Length) || Length <- Lengths].

cancel(Socket, Ref) ->
    inet_rdma:cancel(Socket, Ref).

%% The next Count that are done, in the order of the messages; data as size and hash.
done(_Socket, 0) -> [];
done(Socket, Count) -> [next(Socket, ?TIMEOUT_MS) | done(Socket, Count - 1)].

%% The finished posts with their messages in the mailbox.
there(Socket) ->
    case next(Socket, 0) of
        nothing -> [];
        Done -> [Done | there(Socket)]
    end.

next(Socket, Timeout) ->
    receive
        {inet_rdma_sent, Socket, Ref, Result} ->
            {sent, Ref, Result};
        {inet_rdma_received, Socket, Ref, {ok, Data}} ->
            {received, Ref, {ok, byte_size(Data), erlang:md5(Data)}};
        {inet_rdma_received, Socket, Ref, Error} ->
            {received, Ref, Error}
    after Timeout -> nothing
    end.

%% As done/2, but the data stays; drop/1 lets it go.
keep(Socket, Count) ->
    Data = [
        receive
            {inet_rdma_received, Socket, _, {ok, Data}} -> Data
        after ?TIMEOUT_MS -> <<>>
        end
     || _ <- lists:seq(1, Count)
    ],
    put(kept, Data),
    [{byte_size(D), erlang:md5(D)} || D <- Data].

drop(_Socket) ->
    _ = erase(kept),
    true = erlang:garbage_collect(),
    ok.

%% Just this many bytes, read by recv with a length: size and hash.
take(Socket, Bytes) ->
    {Bytes, erlang:md5_final(take(Socket, Bytes, erlang:md5_init()))}.

take(_Socket, 0, Context) ->
    Context;
take(Socket, Left, Context) ->
    Size = min(Left, 1048576),
    {ok, Data} = inet_rdma:recv(Socket, Size, ?TIMEOUT_MS),
    take(Socket, Left - Size, erlang:md5_update(Context, Data)).

%% Sends this many bytes in posts of random sizes, as many at a time as may be: size and hash.
send_pipeline(Socket, Seed) ->
    _ = rand:seed(exsss, Seed),
    Data = rand:bytes(?SPLIT_BYTES),
    ok = send_parts(Socket, Data, queue:new()),
    {?SPLIT_BYTES, erlang:md5(Data)}.

send_parts(Socket, <<>>, Posted) ->
    in_order(Socket, queue:to_list(Posted));
send_parts(Socket, Data, Posted) ->
    Size = min(part_size(rand:uniform(10)), byte_size(Data)),
    <<Part:Size/binary, Rest/binary>> = Data,
    case inet_rdma:post_send(Socket, Part) of
        {ok, Ref} ->
            send_parts(Socket, Rest, queue:in({Ref, Size}, Posted));
        {error, enobufs} ->
            {{value, First}, Others} = queue:out(Posted),
            ok = in_order(Socket, [First]),
            send_parts(Socket, Data, Others)
    end.

in_order(Socket, Posted) ->
    [{sent, Ref, {ok, Size}} = next(Socket, ?TIMEOUT_MS) || {Ref, Size} <- Posted],
    ok.

%% Receives them by posts of random sizes.
recv_pipeline(Socket, Seed) ->
    _ = rand:seed(exsss, Seed),
    Context = recv_parts(Socket, ?SPLIT_BYTES, queue:new(), erlang:md5_init()),
    {?SPLIT_BYTES, erlang:md5_final(Context)}.

recv_parts(Socket, Left, Posted, Context) ->
    Size = min(part_size(rand:uniform(10)), Left),
    case Left > 0 andalso inet_rdma:post_recv(Socket, Size) of
        {ok, Ref} ->
            recv_parts(Socket, Left - Size, queue:in({Ref, Size}, Posted), Context);
        _FullOrAll ->
            case queue:out(Posted) of
                {empty, _} ->
                    Context;
                {{value, {Ref, Length}}, Others} ->
                    receive
                        {inet_rdma_received, Socket, Ref, {ok, Data}} when
                            byte_size(Data) =:= Length
                        ->
                            recv_parts(Socket, Left, Others, erlang:md5_update(Context, Data))
                    after ?TIMEOUT_MS -> error({not_received, Length, there(Socket)})
                    end
            end
    end.

part_size(1) -> 65536 + rand:uniform(100000);
part_size(2) -> 69632;
part_size(3) -> rand:uniform(16384);
part_size(_) -> rand:uniform(2000).

%% Posts sends of this many bytes until none is taken: how many, what the last answer was, and the
%% hash of all.
send_while(Socket, Bytes) ->
    send_while(Socket, Bytes, 0, erlang:md5_init()).

send_while(Socket, Bytes, Count, Context) ->
    Data = inet_rdma_test_data:make(Bytes),
    case inet_rdma:post_send(Socket, Data) of
        {ok, _} -> send_while(Socket, Bytes, Count + 1, erlang:md5_update(Context, Data));
        Error -> {Count, Error, erlang:md5_final(Context)}
    end.

%% Another process sends this many bytes, and waits; returns when it is in the middle of them.
start_send(Socket, Bytes) ->
    Data = inet_rdma_test_data:make(Bytes),
    Owner = self(),
    Pid = spawn(fun() -> Owner ! {self(), inet_rdma:send(Socket, Data)} end),
    inet_rdma_test_wait:until(in_the_middle, 10000, fun() ->
        {ok, [{send_oct, Sent}]} = inet_rdma:getstat(Socket, [send_oct]),
        Sent > 0 andalso process_info(Pid, status) =:= {status, waiting}
    end),
    {Pid, erlang:md5(Data)}.

%% The same, and it dies there.
dies_sending(_Socket, Pid) ->
    Ref = monitor(process, Pid),
    exit(Pid, kill),
    receive
        {'DOWN', Ref, process, Pid, killed} -> ok
    end.

%% A process that does not own the socket does this, and answers from then on when it is asked.
stranger(Socket, Function, Args) ->
    Owner = self(),
    Pid = spawn(fun() -> Owner ! {self(), apply(?MODULE, Function, [Socket | Args])} end),
    receive
        {Pid, Result} -> Result
    after ?TIMEOUT_MS -> no_answer
    end.

sendfile(Socket, [Filename]) ->
    inet_rdma:sendfile(Filename, Socket);
sendfile(Socket, [File, Offset, Bytes, Options]) ->
    inet_rdma:sendfile(File, Socket, Offset, Bytes, Options).

%% Posts both ways until the socket is closed: how many were taken, of which each has come to its
%% end once.
storm(Socket) ->
    storm(Socket, 0, #{}).

storm(Socket, Count, Open) ->
    Posted = [inet_rdma:post_send(Socket, <<Count:512>>), inet_rdma:post_recv(Socket, 64)],
    Taken = lists:foldl(fun(Ref, Refs) -> Refs#{Ref => open} end, Open, [Ref || {ok, Ref} <- Posted]),
    More = Count + map_size(Taken) - map_size(Open),
    case [Reason || {error, Reason} <- Posted, Reason =/= enobufs] of
        [_ | _] ->
            #{} = lists:foldl(fun ended/2, Taken, done(Socket, map_size(Taken))),
            [] = there(Socket),
            More;
        [] ->
            storm(Socket, More, lists:foldl(fun ended/2, Taken, there(Socket)))
    end.

ended({_, Ref, _}, Open) ->
    {open, Left} = maps:take(Ref, Open),
    Left.

%% What all binaries of the node take.
grow(_Socket) ->
    erlang:memory(binary).

%% Starts to send a file, and cuts it short when the peer has no room left.
shrinks(Socket, [Filename, Bytes]) ->
    Owner = self(),
    Pid = spawn(fun() -> Owner ! {self(), inet_rdma:sendfile(Filename, Socket)} end),
    inet_rdma_test_wait:until(in_the_middle, 10000, fun() ->
        process_info(Pid, status) =:= {status, waiting} andalso
            element(2, inet_rdma:getstat(Socket, [send_pend])) =/= [{send_pend, 0}]
    end),
    {ok, File} = file:open(Filename, [read, write, raw]),
    {ok, Bytes} = file:position(File, Bytes),
    ok = file:truncate(File),
    ok = file:close(File),
    put(shrinking, Pid),
    ok.

%% Sends a file over a stream: reads the next chunks while the last ones are being sent.
-module(inet_rdma_sendfile).

-export([send/5]).

-define(CHUNK_BYTES, 262144).
%% Chunks that are posted at a time: one is being sent, one is next, and the reader may be late by
%% the others.
-define(CHUNKS, 4).

-record(state, {
    file :: file:io_device(),
    stream :: stream(),
    %% The next byte to read.
    at :: non_neg_integer(),
    left :: non_neg_integer() | infinity,
    chunk_bytes :: pos_integer(),
    sent = 0 :: non_neg_integer(),
    posted = queue:new() :: queue:queue(reference())
}).

%% A socket, and what is in it.
-type stream() :: {inet_rdma:socket(), inet_rdma_nif:conn(), Id :: pos_integer()}.

-spec send(
    file:name_all() | file:fd(),
    stream(),
    non_neg_integer(),
    non_neg_integer(),
    [{chunk_size, pos_integer()}]
) -> {ok, non_neg_integer()} | {error, inet_rdma:reason()}.
send(File, {_Socket, Conn, _Id} = Stream, Offset, Bytes, Options) when
    is_integer(Offset), Offset >= 0, is_integer(Bytes), Bytes >= 0
->
    case {chunk_bytes(Options), inet_rdma_socket:getopts(Conn, [packet])} of
        {_, {error, Reason}} ->
            {error, Reason};
        {Chunk, {ok, [{packet, raw}]}} when is_integer(Chunk) ->
            send_opened(File, Stream, Offset, Bytes, Chunk);
        _ ->
            {error, einval}
    end;
send(_File, _Stream, _Offset, _Bytes, _Options) ->
    {error, einval}.

chunk_bytes([]) -> ?CHUNK_BYTES;
chunk_bytes([{chunk_size, Bytes}]) when is_integer(Bytes), Bytes > 0 -> Bytes;
chunk_bytes(_) -> error.

send_opened(File, Stream, Offset, Bytes, Chunk) when is_tuple(File); is_pid(File) ->
    Left =
        case Bytes of
            0 -> infinity;
            _ -> Bytes
        end,
    run(#state{file = File, stream = Stream, at = Offset, left = Left, chunk_bytes = Chunk});
send_opened(Filename, Stream, Offset, Bytes, Chunk) ->
    case file:open(Filename, [read, raw, binary]) of
        {ok, File} ->
            try
                send_opened(File, Stream, Offset, Bytes, Chunk)
            after
                ok = file:close(File)
            end;
        Error ->
            Error
    end.

run(#state{left = 0} = State) ->
    finish(State, ok);
run(#state{file = File, at = At, left = Left, chunk_bytes = Chunk} = State) ->
    %% A number is less than any atom: infinity.
    case file:pread(File, At, min(Chunk, Left)) of
        {ok, Data} -> post(iolist_to_binary(Data), State);
        eof -> finish(State, ok);
        Error -> finish(State, Error)
    end.

post(Data, #state{stream = {Socket, Conn, Id}, at = At, left = Left, posted = Posted} = State) ->
    Next = State#state{at = At + byte_size(Data), left = less(Left, byte_size(Data))},
    Ref = make_ref(),
    HasRoom = queue:len(Posted) < ?CHUNKS,
    case
        {HasRoom andalso inet_rdma_nif:post_send(Conn, Socket, Ref, [Data]), queue:is_empty(Posted)}
    of
        {ok, _} ->
            run(Next#state{posted = queue:in(Ref, Posted)});
        %% Other processes have posted as many sends as are allowed: waits for them.
        {{error, enobufs}, true} ->
            sent(inet_rdma_transfer:send(Conn, Id, [Data]), byte_size(Data), Next);
        {{error, Reason}, _} when Reason =/= enobufs -> finish(State, {error, Reason});
        _ ->
            wait(Data, State)
    end.

sent(ok, Bytes, #state{sent = Sent} = State) -> run(State#state{sent = Sent + Bytes});
sent(Error, _Bytes, State) -> finish(State, Error).

less(infinity, _Bytes) -> infinity;
less(Left, Bytes) -> Left - Bytes.

wait(Data, State) ->
    case await_oldest(State) of
        {ok, Next} -> post(Data, Next);
        {Error, Next} -> finish(Next, Error)
    end.

%% Returns when all posted chunks are done, also after an error: no message stays in the mailbox.
finish(#state{posted = Posted, sent = Sent} = State, Result) ->
    case queue:is_empty(Posted) of
        true when Result =:= ok ->
            {ok, Sent};
        true ->
            Result;
        false ->
            case await_oldest(State) of
                {ok, Next} -> finish(Next, Result);
                {Error, Next} when Result =:= ok -> finish(Next, Error);
                {_Error, Next} -> finish(Next, Result)
            end
    end.

await_oldest(#state{stream = {Socket, _Conn, _Id}, posted = Posted, sent = Sent} = State) ->
    {{value, Ref}, Rest} = queue:out(Posted),
    receive
        {inet_rdma_sent, Socket, Ref, {ok, Bytes}} ->
            {ok, State#state{posted = Rest, sent = Sent + Bytes}};
        {inet_rdma_sent, Socket, Ref, Error} ->
            {Error, State#state{posted = Rest}}
    end.

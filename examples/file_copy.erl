%% Copies a file from another node: distribution for the words, a stream beside it for the bytes.
%%
%%     erlc -o _build/examples examples/file_copy.erl
%%     erl $(make -s erl-flags) -pa _build/examples -sname a
%%     erl $(make -s erl-flags) -pa _build/examples -sname b -noshell -run file_copy main a@HOST /there/file /here/file
%%
%% Node b asks node a for the port of a stream. Node a listens, and sends the file to the first
%% process that connects. Node b computes the hash while the bytes arrive, and compares it with the
%% hash of the file that node a reads once more. Both nodes need this module in their path.
-module(file_copy).

-export([main/1, copy/3, offer/1, hash/1]).

%% How many receives are posted, and how large: each lands in a buffer of its own, and is written
%% from there.
-define(RECEIVES, 8).
-define(RECEIVE_BYTES, 65536).
-define(TIMEOUT_MS, 30000).

%% The command line: NODE THERE HERE.
-spec main([string()]) -> no_return().
main([Node, There, Here]) ->
    Start = erlang:monotonic_time(microsecond),
    case copy(list_to_atom(Node), There, Here) of
        {ok, Bytes} ->
            Seconds = (erlang:monotonic_time(microsecond) - Start) / 1.0e6,
            io:format("copied ~b bytes, hash verified, ~.1f MB/s~n", [
                Bytes, Bytes / 1.0e6 / Seconds
            ]),
            halt(0);
        {error, Reason} ->
            io:format(standard_error, "not copied: ~ts~n", [inet_rdma:format_error(Reason)]),
            halt(1)
    end;
main(_) ->
    io:format(standard_error, "usage: -run file_copy main NODE THERE HERE~n", []),
    halt(2).

%% Here, in the calling process: file There of the node becomes file Here of this one.
-spec copy(node(), file:filename(), file:filename()) ->
    {ok, Bytes :: non_neg_integer()} | {error, term()}.
copy(Node, There, Here) ->
    try
        {Port, Bytes} = done(rpc:call(Node, ?MODULE, offer, [There], ?TIMEOUT_MS)),
        Socket = done(inet_rdma:connect(host(Node), Port, [], ?TIMEOUT_MS)),
        File = done(file:open(Here, [write, raw, binary])),
        Hash = receive_all(Socket, File, Bytes),
        ok = file:close(File),
        ok = inet_rdma:close(Socket),
        case done(rpc:call(Node, ?MODULE, hash, [There], ?TIMEOUT_MS)) of
            Hash -> {ok, Bytes};
            _ -> {error, different}
        end
    catch
        throw:Reason -> {error, Reason}
    end.

host(Node) ->
    [_, Host] = string:split(atom_to_list(Node), "@"),
    Host.

done({ok, Value}) -> Value;
done({error, Reason}) -> throw(Reason);
done({badrpc, Reason}) -> throw(Reason).

%% There: a port on which the file waits, and its size.
-spec offer(file:filename()) -> {ok, {inet:port_number(), non_neg_integer()}} | {error, term()}.
offer(Filename) ->
    Caller = self(),
    %% The port is open as long as its process lives.
    {Pid, Monitor} = spawn_monitor(fun() -> serve(Caller, Filename) end),
    receive
        {Pid, Answer} ->
            demonitor(Monitor, [flush]),
            Answer;
        {'DOWN', Monitor, process, Pid, Reason} ->
            {error, Reason}
    end.

serve(Caller, Filename) ->
    case {file:open(Filename, [read, raw, binary]), inet_rdma:listen(0, [])} of
        {{ok, File}, {ok, Listener}} ->
            {ok, Bytes} = file:position(File, eof),
            {ok, Port} = inet_rdma:port(Listener),
            Caller ! {self(), {ok, {Port, Bytes}}},
            case inet_rdma:accept(Listener, ?TIMEOUT_MS) of
                {ok, Socket} when Bytes > 0 ->
                    {ok, _} = inet_rdma:sendfile(File, Socket, 0, Bytes, []);
                _Nobody ->
                    ok
            end;
        {{error, Reason}, _} ->
            Caller ! {self(), {error, Reason}};
        {_, {error, Reason}} ->
            Caller ! {self(), {error, Reason}}
    end.

%% The hash of a file as it lies there.
-spec hash(file:filename()) -> {ok, binary()} | {error, term()}.
hash(Filename) ->
    case file:open(Filename, [read, raw, binary]) of
        {ok, File} ->
            Hash = hash_on(File, crypto:hash_init(sha256)),
            ok = file:close(File),
            {ok, Hash};
        Error ->
            Error
    end.

hash_on(File, Context) ->
    case file:read(File, ?RECEIVE_BYTES) of
        {ok, Data} -> hash_on(File, crypto:hash_update(Context, Data));
        eof -> crypto:hash_final(Context)
    end.

%% Keeps receives posted ahead of the sender, and writes what they bring in the order in which they
%% were posted.
receive_all(Socket, File, Bytes) ->
    receive_on(Socket, File, {Bytes, Bytes}, 0, crypto:hash_init(sha256)).

receive_on(_Socket, _File, {0, 0}, 0, Context) ->
    crypto:hash_final(Context);
receive_on(Socket, File, {Unposted, Unread}, Posted, Context) when
    Unposted > 0, Posted < ?RECEIVES
->
    Length = min(Unposted, ?RECEIVE_BYTES),
    _Ref = done(inet_rdma:post_recv(Socket, Length)),
    receive_on(Socket, File, {Unposted - Length, Unread}, Posted + 1, Context);
receive_on(Socket, File, {Unposted, Unread}, Posted, Context) ->
    receive
        {inet_rdma_received, Socket, _, Result} ->
            Data = done(Result),
            ok = file:write(File, Data),
            Left = {Unposted, Unread - byte_size(Data)},
            receive_on(Socket, File, Left, Posted - 1, crypto:hash_update(Context, Data))
    end.

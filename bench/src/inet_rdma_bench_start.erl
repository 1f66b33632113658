%% Nodes whose first seconds are measured. Each has one thing to do, and plain arguments for it; its
%% results go into a file.
-module(inet_rdma_bench_start).

-export([live/0, wait/0, ping/0, tool/0]).

-define(RETRY_MS, 5).

%% Halts the node after the milliseconds of its argument.
-spec live() -> pid().
live() ->
    [Ms] = init:get_plain_arguments(),
    spawn(fun() ->
        timer:sleep(list_to_integer(Ms)),
        halt()
    end).

%% Writes its name into a file once it runs.
-spec wait() -> ok.
wait() ->
    [File] = init:get_plain_arguments(),
    write(File, atom_to_binary(node())).

%% Waits until the node that writes a file runs, and then some milliseconds. Pings that node, its
%% first link, and writes how long this took, in microseconds, and whether inet_rdma is its carrier.
-spec ping() -> pid().
ping() ->
    [File, Ms, Result] = init:get_plain_arguments(),
    spawn(fun() ->
        until_written(File),
        Node = read(File),
        timer:sleep(list_to_integer(Ms)),
        Before = erlang:monotonic_time(microsecond),
        Answer = net_adm:ping(Node),
        Time = erlang:monotonic_time(microsecond) - Before,
        Ours = erlang:module_loaded(inet_rdma_dist),
        write(Result, io_lib:format("~s ~b ~s", [Answer, Time, Ours]))
    end).

%% Pings the node that has written a file, makes a call there, and ends at once.
-spec tool() -> pid().
tool() ->
    spawn(fun() ->
        try
            [File] = init:get_plain_arguments(),
            Node = read(File),
            pong = net_adm:ping(Node),
            Node = rpc:call(Node, erlang, node, []),
            halt(0)
        catch
            Class:Reason ->
                io:format("~tp~n", [{Class, Reason}]),
                halt(1, [{flush, true}])
        end
    end).

until_written(File) ->
    case file:read_file_info(File, [raw]) of
        {ok, _} ->
            ok;
        {error, enoent} ->
            timer:sleep(?RETRY_MS),
            until_written(File)
    end.

read(File) ->
    {ok, Name} = file:read_file(File),
    binary_to_atom(Name).

%% Whoever sees the file sees all of it.
write(File, Text) ->
    ok = file:write_file(File ++ ".new", Text),
    ok = file:rename(File ++ ".new", File).

%% A node of a mesh that comes up: started with all others at the same time, it connects to those
%% before it, waits until it sees all, and says so by a file.
-module(inet_rdma_bench_mesh).

-export([start/0]).

-define(RETRY_MS, 20).

%% Plain arguments: the names' common part, this node's number, how many nodes there are, the
%% directory of the files.
-spec start() -> pid().
start() -> spawn(fun come_up/0).

come_up() ->
    [Prefix, Number, Nodes, Directory] = init:get_plain_arguments(),
    [_, Host] = string:split(atom_to_list(node()), "@"),
    Name = fun(Of) -> list_to_atom(Prefix ++ integer_to_list(Of) ++ "@" ++ Host) end,
    Own = list_to_integer(Number),
    _ = [
        until(fun() -> net_kernel:connect_node(Name(Of)) =:= true end)
     || Of <- lists:seq(1, Own - 1)
    ],
    until(fun() -> length(nodes()) =:= list_to_integer(Nodes) - 1 end),
    %% The clock that the bench reads, too.
    Now = integer_to_binary(os:system_time(microsecond)),
    File = filename:join(Directory, Number),
    ok = file:write_file(File ++ ".new", Now),
    ok = file:rename(File ++ ".new", File).

until(Done) ->
    case Done() of
        true ->
            ok;
        false ->
            timer:sleep(?RETRY_MS),
            until(Done)
    end.

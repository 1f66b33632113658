%% A control group in which the kernel ends a node that takes too much memory. Runs in the node that
%% runs the tests. It needs root and the controller "memory" of cgroups, version 1 or 2.
-module(inet_rdma_test_oom).

-export([needed/1, bound/3, kills/1, remove/1]).
-export_type([t/0]).

-opaque t() :: #{directory := file:filename(), version := 1 | 2}.

%% Adds {oom, t()} to the configuration of a case.
-spec needed([tuple()]) -> [tuple()] | {skip, string()}.
needed(Config) ->
    case [Made || {Version, Parent} <- parents(), {ok, Made} <- [make(Version, Parent)]] of
        [Made | Others] ->
            _ = [remove(Other) || Other <- Others],
            [{oom, Made} | Config];
        [] ->
            inet_rdma_test_link:skip(
                "no control group for memory can be made here: it takes root and a cgroup file "
                "system with the controller \"memory\""
            )
    end.

parents() ->
    {ok, Mounts} = file:read_file("/proc/mounts"),
    Lines = [
        binary:split(Line, <<" ">>, [global])
     || Line <- binary:split(Mounts, <<"\n">>, [global])
    ],
    [
        {1, binary_to_list(At)}
     || [_, At, <<"cgroup">>, Options | _] <- Lines, has(<<"memory">>, Options)
    ] ++
        [{2, binary_to_list(At)} || [_, At, <<"cgroup2">> | _] <- Lines].

has(Option, Options) -> lists:member(Option, binary:split(Options, <<",">>, [global])).

make(Version, Parent) ->
    Directory = filename:join(Parent, inet_rdma_test_node:unique("inet_rdma_oom")),
    Made = #{directory => Directory, version => Version},
    case file:make_dir(Directory) of
        ok ->
            case filelib:is_regular(filename:join(Directory, limit_file(Version))) of
                true ->
                    {ok, Made};
                false ->
                    remove(Made),
                    error
            end;
        {error, _} ->
            error
    end.

limit_file(1) -> "memory.limit_in_bytes";
limit_file(2) -> "memory.max".

%% From now on the process gets this much more memory, and no swap.
-spec bound(OsPid :: pos_integer(), Bytes :: pos_integer(), t()) -> ok.
bound(OsPid, Bytes, #{version := Version} = Made) ->
    ok = write(limit_file(Version), Bytes, Made),
    _ =
        case Version of
            1 -> write("memory.swappiness", 0, Made);
            2 -> write("memory.swap.max", 0, Made)
        end,
    ok = write("cgroup.procs", OsPid, Made).

write(Name, Value, #{directory := Directory}) ->
    file:write_file(filename:join(Directory, Name), integer_to_list(Value)).

%% How many processes the kernel has ended there.
-spec kills(t()) -> non_neg_integer().
kills(#{directory := Directory, version := Version}) ->
    Name =
        case Version of
            1 -> "memory.oom_control";
            2 -> "memory.events"
        end,
    {ok, Text} = file:read_file(filename:join(Directory, Name)),
    {match, [Count]} = re:run(Text, "oom_kill (\\d+)", [{capture, all_but_first, binary}]),
    binary_to_integer(Count).

%% When its processes have ended.
-spec remove(t()) -> ok.
remove(#{directory := Directory}) ->
    _ = os:cmd("rmdir " ++ Directory),
    ok.

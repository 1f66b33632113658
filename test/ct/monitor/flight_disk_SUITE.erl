%% The flight recorder on disks that stand still, are full or share their blocks: neither the node
%% nor a link waits for the disk, and the file has all events when the disk takes them. And files of
%% nodes that have the same name.
-module(flight_disk_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_testcase/2, end_per_testcase/2]).
-export([
    a_frozen_disk_stops_no_call/1,
    killed_on_a_frozen_disk/1,
    halted_on_a_frozen_disk/1,
    stopped_on_a_frozen_disk/1
]).
-export([
    a_full_disk_stops_no_call/1,
    full_disk_with_shared_blocks/1,
    nodes_of_one_name_keep_links_and_files_apart/1
]).

-define(THREAD, "inet_rdma/fligh").
%% More than either ring has.
-define(EVENTS, 5000).

suite() ->
    [{timetrap, {minutes, 10}}, {ct_hooks, [{inet_rdma_test_nodes, [only_rdma]}]}].

all() ->
    [
        a_frozen_disk_stops_no_call,
        killed_on_a_frozen_disk,
        halted_on_a_frozen_disk,
        stopped_on_a_frozen_disk,
        a_full_disk_stops_no_call,
        full_disk_with_shared_blocks,
        nodes_of_one_name_keep_links_and_files_apart
    ].

init_per_testcase(nodes_of_one_name_keep_links_and_files_apart, Config) ->
    case inet_rdma_test_cutter:why_not() of
        none -> with_directory(nodes_of_one_name_keep_links_and_files_apart, Config);
        Why -> inet_rdma_test_link:skip(Why)
    end;
init_per_testcase(Case, Config) ->
    with_directory(Case, Config).

with_directory(Case, Config) ->
    Directory = filename:join(proplists:get_value(priv_dir, Config), atom_to_list(Case)),
    ok = filelib:ensure_path(Directory),
    mounted(disk(Case), Directory, [{directory, Directory} | Config]).

disk(nodes_of_one_name_keep_links_and_files_apart) -> none;
disk(full_disk_with_shared_blocks) -> {"512M", "mkfs.xfs -q -m reflink=1", "xfs"};
disk(_Case) -> {"16M", "mkfs.ext4 -q -F", "ext4"}.

%% On a file system of this kind in a file.
mounted(none, _Directory, Config) ->
    Config;
mounted({Size, Make, Type}, Directory, Config) ->
    Image = Directory ++ ".image",
    Commands = [
        "truncate -s ",
        Size,
        " ",
        Image,
        " && ",
        Make,
        " ",
        Image,
        " && mount -t ",
        Type,
        " -o loop ",
        Image,
        " ",
        Directory,
        " && echo mounted"
    ],
    case lists:flatten(string:replace(os:cmd(lists:flatten(Commands)), "\n", "", all)) of
        "mounted" -> Config;
        Said -> inet_rdma_test_link:skip("this user mounts no " ++ Type ++ " in a file: " ++ Said)
    end.

end_per_testcase(nodes_of_one_name_keep_links_and_files_apart, Config) ->
    inet_rdma_test_node:stop_all(),
    _ = [
        os:cmd("epmd -port " ++ binary_to_list(Port) ++ " -kill")
     || {ok, Port} <- [file:read_file(port_file(Config))]
    ],
    ok;
end_per_testcase(_Case, Config) ->
    thaw(Config),
    inet_rdma_test_node:stop_all(),
    _ = os:cmd("umount -l " ++ directory(Config)),
    ok.

%% Calls go on both ways, and events in memory, while the thread that writes the file waits for the
%% disk.
a_frozen_disk_stops_no_call(Config) ->
    {A, #{node := NameB} = B} = frozen_pair(Config),
    record(A, B, ?EVENTS),
    _ = [
        ?assertEqual(Name, call(Node, erpc, call, [Name, erlang, node, []]))
     || _ <- lists:seq(1, 500), {Node, #{node := Name}} <- [{A, B}, {B, A}]
    ],
    ?assertMatch([_ | _], call(A, inet_rdma, history, [NameB])),
    ?assertEqual([NameB], call(A, erlang, nodes, [])),
    ?assert(is_waiting(A)),
    thaw(Config),
    await_last(Config, A, ?EVENTS).

%% Its sockets close at once, and not when the disk answers: the peer sees the end, and the name is
%% free.
killed_on_a_frozen_disk(Config) ->
    ends_on_a_frozen_disk(Config, fun inet_rdma_test_node:kill/1).

%% The end of the VM waits for the disk for a moment at most.
halted_on_a_frozen_disk(Config) ->
    ends_on_a_frozen_disk(Config, fun(#{peer := Peer}) -> peer:cast(Peer, erlang, halt, []) end).

stopped_on_a_frozen_disk(Config) ->
    ends_on_a_frozen_disk(Config, fun(A) -> call(A, init, stop, []) end).

ends_on_a_frozen_disk(Config, End) ->
    {#{name := Name, os_pid := OsPid} = A, B} = frozen_pair(Config),
    record(A, B, 10),
    _ = End(A),
    ok = inet_rdma_test_node:await_nodes(B, []),
    Again = inet_rdma_test_node:start("a", (options(directory(Config), []))#{name => Name}),
    ok = inet_rdma_test_node:connect(Again, B),
    ?assert(is_waiting(A)),
    thaw(Config),
    %% The process that has ended locks its file until the disk answers.
    Numbered = file(Config, A, "+2"),
    inet_rdma_test_wait:until(file_of_the_second, 20000, fun() ->
        filelib:is_file(Numbered) orelse maps:get(os_pid, recording(file(Config, A, ""))) =/= OsPid
    end).

a_full_disk_stops_no_call(Config) ->
    {A, B} = pair(Config),
    fills_up(Config, A, B).

%% Each write to a shared block needs another one.
full_disk_with_shared_blocks(Config) ->
    {A, B} = pair(Config),
    record(A, B, ?EVENTS),
    await_last(Config, A, ?EVENTS),
    File = file(Config, A, ""),
    ?assertEqual("", os:cmd("cp --reflink=always " ++ File ++ " " ++ File ++ ".copy")),
    fills_up(Config, A, B).

%% Links work on a full disk, the log says once that the file is not written and once that it is,
%% and nothing is lost.
fills_up(Config, #{node := NameA} = A, #{node := NameB} = B) ->
    Ballast = filename:join(directory(Config), "ballast"),
    _ = os:cmd(
        "dd if=/dev/zero of=" ++ Ballast ++ " bs=64k; dd if=/dev/zero of=" ++ Ballast ++ "2 bs=512"
    ),
    ok = call(A, inet_rdma_test_log, install, []),
    ok = record(A, B, ?EVENTS),
    logged(A, B, "No space left"),
    ?assertEqual(NameA, call(B, erpc, call, [NameA, erlang, node, []])),
    ?assertEqual(50, length(call(A, inet_rdma, history, [NameB]))),
    ok = file:delete(Ballast),
    logged(A, B, "has written its file"),
    Said = [
        Line
     || Line <- call(A, inet_rdma_test_log, lines, []),
        string:find(Line, "flight recorder") =/= nomatch
    ],
    ?assertMatch([_, _], Said),
    await_last(Config, A, ?EVENTS).

%% The next event brings the news of the file.
logged(A, #{node := NameB}, Words) ->
    inet_rdma_test_wait:until({logged, Words}, 60000, fun() ->
        ok = call(A, inet_rdma_recorder, tick, [heard, atom_to_binary(NameB), self(), 0, 1]),
        call(A, inet_rdma_test_log, contains, [Words])
    end).

%% Two clusters of one host, each with an EPMD of its own: each link goes to its own cluster, also
%% after a cut, and each node of a name has a file of its own, also when one of them comes again and
%% again.
nodes_of_one_name_keep_links_and_files_apart(Config) ->
    Port = integer_to_list(inet_rdma_test_os:free_port()),
    ok = file:write_file(port_file(Config), Port),
    "" = os:cmd("ERL_EPMD_PORT=" ++ Port ++ " epmd -relaxed_command_check -daemon"),
    Names = [inet_rdma_test_node:unique(Name) || Name <- ["a", "b"]],
    Options = options(directory(Config), []),
    Second = Options#{under => ["env", "ERL_EPMD_PORT=" ++ Port]},
    [#{os_pid := PidA} = A, #{os_pid := PidB} = B] = start(Names, Options),
    ok = inet_rdma_test_node:connect(A, B),
    _ = await_file(Config, A, "", PidA),
    Runs = [
        begin
            [#{os_pid := Pid} = A2, #{os_pid := PidB2} = B2] = start(Names, Second),
            ok = inet_rdma_test_node:connect(A2, B2),
            [
                ?assert(inet_rdma_test_cutter:cut(One, Other) > 0)
             || {One, Other} <- [{PidA, PidB}, {Pid, PidB2}]
            ],
            ?assertEqual([pid(B), pid(B2)], [pid_behind(Node, B) || Node <- [A, A2]]),
            [
                ok = inet_rdma_test_cutter:await(One, Other)
             || {One, Other} <- [{PidA, PidB}, {Pid, PidB2}]
            ],
            ?assertEqual([pid(B), pid(B2)], [pid_behind(Node, B) || Node <- [A, A2]]),
            _ = await_file(Config, A2, "+2", Pid),
            _ = await_file(Config, B2, "+2", PidB2),
            [inet_rdma_test_node:stop(Node) || Node <- [A2, B2]],
            Pid
        end
     || _ <- [1, 2, 3]
    ],
    {ok, #{os_pid := Before}} = inet_rdma_flight:read(file(Config, A, "+2") ++ ".1"),
    ?assertEqual(lists:nth(2, Runs), Before),
    ok = record(A, B, 1),
    await_last(Config, A, 1),
    ?assertMatch(#{os_pid := PidA}, recording(file(Config, A, ""))),
    ?assertNot(filelib:is_file(file(Config, A, "") ++ ".1")).

start(Names, Options) ->
    inet_rdma_test_node:start_all([{Name, Options#{name => Name}} || Name <- Names]).

pid(#{os_pid := OsPid}) -> integer_to_list(OsPid).

pid_behind(Node, #{node := Peer}) -> call(Node, erpc, call, [Peer, os, getpid, []]).

await_file(Config, Node, Number, OsPid) ->
    File = file(Config, Node, Number),
    inet_rdma_test_wait:until({file, File}, 20000, fun() ->
        filelib:is_file(File) andalso maps:get(os_pid, recording(File)) =:= OsPid
    end).

port_file(Config) -> filename:join(proplists:get_value(priv_dir, Config), "epmd.port").

%% A's disk stands still, and its thread waits for it.
frozen_pair(Config) ->
    {A, B} = pair(Config),
    "" = os:cmd("fsfreeze -f " ++ directory(Config)),
    record(A, B, 1),
    inet_rdma_test_wait:until(thread_waits, 20000, fun() -> is_waiting(A) end),
    {A, B}.

%% Also after the case, when nothing is frozen now.
thaw(Config) ->
    _ = os:cmd("fsfreeze -u " ++ directory(Config)),
    ok.

%% Only A has the disk. Its file is there.
pair(Config) ->
    [A, B] = inet_rdma_test_node:start_all([
        {"a", options(directory(Config), [])}, {"b", options("/tmp", [{flight_recorder, false}])}
    ]),
    ok = inet_rdma_test_node:connect(A, B),
    await_file(Config, A, "", maps:get(os_pid, A)),
    {A, B}.

options(Directory, More) ->
    inet_rdma_test_node:alone(#{
        rdma => [{flight_directory, list_to_atom(Directory)} | More], args => []
    }).

record(A, #{node := NameB}, Count) ->
    call(A, inet_rdma_test_events, record, [NameB, Count]).

await_last(Config, A, Number) ->
    inet_rdma_test_wait:until({in_file, Number}, 60000, fun() ->
        #{events := Events} = recording(file(Config, A, "")),
        lists:member(Number, [Amount || #{event := <<"test">>, amount := Amount} <- Events])
    end).

%% True if the thread that writes the file waits for the disk, in a state that no signal ends.
is_waiting(#{os_pid := OsPid}) ->
    Tasks = filename:join(["/proc", integer_to_list(OsPid), "task"]),
    {ok, Ids} = file:list_dir(Tasks),
    Stats = [file:read_file(filename:join([Tasks, Id, "stat"])) || Id <- Ids],
    ["D"] =:=
        [
            string:slice(After, 0, 1)
         || {ok, Stat} <- Stats,
            [_, After] <- [string:split(binary_to_list(Stat), "(" ++ ?THREAD ++ ") ")]
        ].

directory(Config) -> proplists:get_value(directory, Config).

file(Config, #{node := Node}, Number) ->
    filename:join(directory(Config), "inet_rdma-" ++ atom_to_list(Node) ++ Number ++ ".flight").

recording(File) ->
    {ok, Recording} = inet_rdma_flight:read(File),
    Recording.

call(Node, Module, Function, Args) -> inet_rdma_test_node:call(Node, Module, Function, Args).

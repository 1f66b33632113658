%% A node under test: an OS process of its own, controlled over its standard input and output, so
%% that the control channel does not depend on the carrier under test. The node that runs the tests
%% is not distributed at all.
-module(inet_rdma_test_node).

-export([
    carrier/0,
    is_rdma/0,
    only_rdma/1,
    only_sessions/1,
    flags/0, flags/1,
    erl/0,
    ebin/0,
    tools/0,
    copy_code/1
]).
-export([alone/1, unique/1, name/1, port/1]).
-export([start/1, start/2, start_all/1, start_all/2, connected_pair/1, run/3, stop/1, stop_all/0]).
-export([call/4, call/5, call_all/4, kill/1, suspend/1, resume/1, await_exit/2]).
-export([connect/2, watch/2, mesh/1, await_nodes/2, await_moved/1]).
-export_type([t/0, options/0]).

-type t() :: #{
    peer := pid(), node := node(), os_pid := pos_integer(), name := string(), carrier := string()
}.

-type options() :: #{
    %% As after -sname or -name; none: not distributed; a unique one when it is missing.
    name => string() | none,
    %% Long names (-name).
    long => boolean(),
    cookie => string(),
    %% Another one than the carrier under test.
    carrier => string(),
    %% Options of the carrier, as after `-inet_rdma'; left out with another carrier.
    rdma => [{atom(), term()}],
    %% More arguments for erl.
    args => [string()],
    %% A program and its first arguments; then come erl and its arguments.
    under => [string()],
    %% Directories of the carrier and of the tests' modules, instead of the runner's.
    code => [file:filename()]
}.

-define(BOOT_TIMEOUT_MS, 60000).
-define(CALL_TIMEOUT_MS, 60000).
-define(EXIT_TIMEOUT_MS, 20000).
-define(REAPER, inet_rdma_test_reaper).

%% The carrier under test: what `-proto_dist' gets.
-spec carrier() -> string().
carrier() ->
    os:getenv("INET_RDMA_TEST_CARRIER", "inet_rdma").

-spec is_rdma() -> boolean().
is_rdma() ->
    carrier() =:= "inet_rdma".

%% For init_per_suite and init_per_testcase, where other carriers do not have what is tested.
-spec only_rdma(Config) -> Config | {skip, string()} when Config :: [tuple()].
only_rdma(Config) ->
    case is_rdma() of
        true -> Config;
        false -> {skip, "only inet_rdma has this; the carrier under test is " ++ carrier()}
    end.

%% The same, where OTP's carriers do not have what is tested, as their links have no session.
-spec only_sessions(Config) -> Config | {skip, string()} when Config :: [tuple()].
only_sessions(Config) ->
    case carrier() of
        "inet_" ++ Other when Other =/= "rdma" ->
            {skip, "a link of this carrier ends with its connection"};
        _ ->
            Config
    end.

%% The flags of erl that every node under test gets.
-spec flags() -> [string()].
flags() ->
    flags(carrier()).

%% With another carrier.
-spec flags(string()) -> [string()].
flags(Carrier) ->
    flags(Carrier, [ebin(), tools(), filename:dirname(code:which(?MODULE))]).

flags(Carrier, Directories) ->
    lists:append([["-pa", Directory] || Directory <- Directories]) ++ ["-proto_dist", Carrier].

-spec erl() -> file:filename().
erl() ->
    filename:join([code:root_dir(), "bin", "erl"]).

%% A node name that no other run on this host uses.
-spec unique(string()) -> string().
unique(Prefix) ->
    Number = integer_to_list(erlang:unique_integer([positive])),
    Prefix ++ "_" ++ Number ++ "_" ++ os:getpid().

%% The port at which the node accepts links, as EPMD knows it.
-spec port(t()) -> inet:port_number().
port(#{node := Node}) ->
    [Name, _Host] = string:lexemes(atom_to_list(Node), "@"),
    {port, Port, _Version} = erl_epmd:port_please(Name, {127, 0, 0, 1}),
    Port.

%% The carrier's modules: where the runner's -pa found them; without one, where `make build' puts
%% it.
-spec ebin() -> file:filename().
ebin() ->
    case code:where_is_file("inet_rdma_dist.beam") of
        non_existing ->
            Root = filename:join([filename:dirname(code:which(?MODULE)), "..", "..", ".."]),
            filename:absname(filename:join([Root, "_build", "dev", "lib", "inet_rdma", "ebin"]));
        Beam ->
            filename:absname(filename:dirname(Beam))
    end.

%% The modules of the tools.
-spec tools() -> file:filename().
tools() -> filename:absname(filename:dirname(code:where_is_file("inet_rdma_doctor.beam"))).

%% Copies the code for a node of another user, whom the system may keep from reading this checkout.
%% The result is for the option `code`.
-spec copy_code(file:filename()) -> [file:filename()].
copy_code(To) ->
    Parts = [
        {"ebin", filename:join(ebin(), "inet*")},
        {"priv", filename:join([ebin(), "..", "priv", "*.so"])},
        {"test", filename:join(filename:dirname(code:which(?MODULE)), "inet_rdma_test*.beam")},
        {"test", filename:join(tools(), "*.beam")}
    ],
    [
        begin
            Target = filename:join([To, Part, filename:basename(File)]),
            ok = filelib:ensure_dir(Target),
            {ok, _} = file:copy(File, Target)
        end
     || {Part, Pattern} <- Parts, File <- filelib:wildcard(Pattern)
    ],
    [] = os:cmd("chmod -R a+rX " ++ To),
    [filename:join(To, Part) || Part <- ["ebin", "test"]].

%% The options for a node that global does not connect to others.
-spec alone(options()) -> options().
alone(#{args := Args} = Options) ->
    Options#{args := ["-connect_all", "false" | Args]}.

%% The node's name, which other nodes know it by.
-spec name(t()) -> node().
name(#{node := Name}) -> Name.

-spec start(string()) -> t().
start(Prefix) ->
    start(Prefix, #{}).

-spec start(string(), options()) -> t().
start(Prefix, Options) ->
    [Node] = start_all([{Prefix, Options}]),
    Node.

-spec start_all(pos_integer(), options()) -> [t()].
start_all(Count, Options) ->
    start_all([{[$a + I], Options} || I <- lists:seq(0, Count - 1)]).

%% EPMD on a busy host may still know a node of this name that has just ended.
await_free(Name) ->
    inet_rdma_test_wait:until({free, Name}, 10000, fun() ->
        case erl_epmd:names({127, 0, 0, 1}) of
            {ok, Names} -> not lists:keymember(Name, 1, Names);
            {error, _} -> true
        end
    end),
    Name.

%% Starts two nodes and connects them.
-spec connected_pair(options()) -> [t()].
connected_pair(Options) ->
    [A, B] = Pair = start_all(2, Options),
    ok = connect(A, B),
    Pair.

%% Starts nodes side by side and returns when all have booted.
-spec start_all([{string(), options()}]) -> [t()].
start_all(Wanted) ->
    [await_boot(Booting) || Booting <- [launch(Prefix, Options) || {Prefix, Options} <- Wanted]].

launch(Prefix, Options) ->
    Name =
        case Options of
            %% The command may give the node another EPMD.
            #{name := Given, under := _} -> Given;
            #{name := Given} -> await_free(Given);
            #{} -> unique(Prefix)
        end,
    Args = args(Name, Options),
    {Program, First} = program(Options),
    Tag = make_ref(),
    {ok, Peer} = peer:start(#{
        connection => standard_io,
        exec => {Program, First},
        args => Args,
        wait_boot => {self(), Tag},
        peer_down => continue
    }),
    {links, Links} = process_info(Peer, links),
    %% The erl script becomes erlexec, then beam.smp, by exec: one process all the way.
    [OsPid] = [
        Id
     || Port <- Links, is_port(Port), {os_pid, Id} <- [erlang:port_info(Port, os_pid)]
    ],
    remember(Peer, OsPid),
    Carrier = maps:get(carrier, Options, carrier()),
    {Tag, #{peer => Peer, node => undefined, os_pid => OsPid, name => Name, carrier => Carrier}}.

program(Options) ->
    case maps:get(under, Options, []) of
        [] -> {erl(), []};
        [Program | First] -> {os:find_executable(Program), First ++ [erl()]}
    end.

args(Name, Options) ->
    name_flags(Name, maps:get(long, Options, false)) ++
        ["-setcookie", maps:get(cookie, Options, "inet_rdma_test")] ++
        carrier_flags(Options) ++ rdma_flags(maps:get(rdma, Options, [])) ++
        maps:get(args, Options, []) ++
        setup_flags(Options).

%% Nodes that make handshakes of TLS, many at once, may take longer than OTP's 7 s on a busy
%% machine. The first value of a flag that is given twice counts: the case's.
setup_flags(#{args := Args}) ->
    case lists:member("-ssl_dist_optfile", Args) of
        true -> ["-kernel", "net_setuptime", "30"];
        false -> []
    end;
setup_flags(_Options) ->
    [].

carrier_flags(#{code := Directories} = Options) ->
    flags(maps:get(carrier, Options, carrier()), Directories);
carrier_flags(Options) ->
    flags(maps:get(carrier, Options, carrier())).

name_flags(none, _Long) -> [];
name_flags(Name, true) -> ["-name", Name];
name_flags(Name, false) -> ["-sname", Name].

%% Without traffic, too, links move to what is tested.
rdma_flags(Options) ->
    case is_rdma() of
        true ->
            Moving =
                case lists:keymember(move, 1, Options) of
                    true -> Options;
                    false -> [{move, eager} | Options]
                end,
            lists:append([["-inet_rdma", format(Key), format(Value)] || {Key, Value} <- Moving]);
        false ->
            []
    end.

format(Term) when is_atom(Term) -> atom_to_list(Term);
format(Text) when is_binary(Text) -> binary_to_list(Text);
format(Term) -> lists:flatten(io_lib:format("~0p", [Term])).

await_boot({Tag, #{peer := Peer} = Node}) ->
    receive
        {Tag, {started, Name, Peer}} -> Node#{node := Name};
        {Tag, {boot_failed, Reason, Peer}} -> error({boot_failed, Reason, Node})
    after inet_rdma_test_wait:patience(?BOOT_TIMEOUT_MS) -> error({boot_timed_out, Node})
    end.

%% Runs a node that evaluates `Expression' and halts; its exit status and all that it wrote. For
%% nodes that are not expected to boot. 137: it did neither in time and was killed.
-spec run(string(), options(), string()) -> {non_neg_integer(), string()}.
run(Prefix, Options, Expression) ->
    Node = args(maps:get(name, Options, unique(Prefix)), Options),
    Args = Node ++ ["-noinput", "-eval", Expression ++ ", halt(0)."],
    {Program, First} = program(Options),
    Port = open_port({spawn_executable, Program}, [
        {args, First ++ Args},
        {env, [{"ERL_CRASH_DUMP", "/dev/null"}]},
        exit_status,
        stderr_to_stdout,
        hide
    ]),
    {os_pid, OsPid} = erlang:port_info(Port, os_pid),
    Timer = erlang:send_after(
        inet_rdma_test_wait:patience(?BOOT_TIMEOUT_MS), self(), {took_too_long, Port}
    ),
    Result = collect(Port, OsPid, []),
    _ = erlang:cancel_timer(Timer),
    Result.

collect(Port, OsPid, Output) ->
    receive
        {Port, {data, Data}} ->
            collect(Port, OsPid, [Output | Data]);
        {Port, {exit_status, Status}} ->
            {Status, lists:flatten(Output)};
        {took_too_long, Port} ->
            signal("KILL", OsPid),
            collect(Port, OsPid, Output)
    end.

%% Ends a node the hard way and waits for the end of its process.
-spec stop(t()) -> ok.
stop(#{peer := Peer} = Node) ->
    kill(Node),
    await_exit(Node, ?EXIT_TIMEOUT_MS),
    exit(Peer, kill),
    ok.

%% Ends every node that has been started and is still there, also those of a case that failed.
-spec stop_all() -> ok.
stop_all() ->
    Left = remembered(),
    [signal("KILL", OsPid) || {_Peer, OsPid} <- Left],
    [await_os_exit(OsPid, ?EXIT_TIMEOUT_MS) || {_Peer, OsPid} <- Left],
    [exit(Peer, kill) || {Peer, _OsPid} <- Left],
    ok.

-spec call(t(), module(), atom(), [term()]) -> term().
call(Node, Module, Function, Args) ->
    call(Node, Module, Function, Args, inet_rdma_test_wait:patience(?CALL_TIMEOUT_MS)).

-spec call(t(), module(), atom(), [term()], timeout()) -> term().
call(#{peer := Peer}, Module, Function, Args, TimeoutMs) ->
    peer:call(Peer, Module, Function, Args, TimeoutMs).

%% The same call in each of the nodes, at the same time; the answers in the order of the nodes.
-spec call_all([t()], module(), atom(), [term()]) -> [term()].
call_all(Nodes, Module, Function, Args) ->
    Parent = self(),
    Calls = [
        spawn_monitor(fun() ->
            Parent ! {self(), call(Node, Module, Function, Args)},
            ok
        end)
     || Node <- Nodes
    ],
    [
        receive
            {Pid, Answer} ->
                erlang:demonitor(Ref, [flush]),
                Answer;
            {'DOWN', Ref, process, Pid, Reason} ->
                error({call_failed, Module, Function, Reason})
        end
     || {Pid, Ref} <- Calls
    ].

-spec kill(t()) -> ok.
kill(#{os_pid := OsPid}) -> signal("KILL", OsPid).

-spec suspend(t()) -> ok.
suspend(#{os_pid := OsPid}) ->
    signal("STOP", OsPid),
    %% The signal is on its way until the kernel shows the process as stopped.
    inet_rdma_test_wait:until({stopped, OsPid}, 5000, fun() ->
        inet_rdma_test_os:state(OsPid) =:= "T"
    end),
    ok.

-spec resume(t()) -> ok.
resume(#{os_pid := OsPid}) -> signal("CONT", OsPid).

signal(Name, OsPid) ->
    _ = os:cmd("kill -" ++ Name ++ " " ++ integer_to_list(OsPid)),
    ok.

-spec await_exit(t(), timeout()) -> ok.
await_exit(#{os_pid := OsPid}, TimeoutMs) -> await_os_exit(OsPid, TimeoutMs).

await_os_exit(OsPid, TimeoutMs) ->
    inet_rdma_test_wait:until({end_of_process, OsPid}, TimeoutMs, fun() ->
        not inet_rdma_test_os:is_alive(OsPid)
    end),
    ok.

%% Connects the first node to the second and waits until both show it.
-spec connect(t(), t()) -> ok.
connect(#{node := NameA} = A, #{node := NameB} = B) ->
    pong = call(A, net_adm, ping, [NameB]),
    inet_rdma_test_wait:until({connected, NameA, NameB}, 10000, fun() ->
        lists:member(NameA, call(B, erlang, nodes, [connected])) andalso
            lists:member(NameB, call(A, erlang, nodes, [connected]))
    end),
    await_moved([A, B]).

%% Waits until the links between these nodes have left TCP, as far as the nodes' options let them:
%% so no case tests TCP unnoticed.
-spec await_moved([t()]) -> ok.
await_moved(Nodes) ->
    Moving = [Node || Node <- Nodes, moves(Node)],
    [await_moved(Node, Peer) || Node <- Moving, #{node := Peer} = Other <- Moving, Other =/= Node],
    ok.

await_moved(#{node := Name} = Node, Peer) ->
    inet_rdma_test_wait:until({moved, Name, Peer}, 10000, fun() ->
        case call(Node, inet_rdma, info, [Peer]) of
            #{fabric := Fabric} when Fabric =/= tcp -> true;
            Other -> Other
        end
    end).

%% Whether the node's links leave TCP without traffic.
moves(#{carrier := "inet_rdma"} = Node) ->
    {ok, #{fabric := Fabric, move := Move, required := Required}} = call(
        Node, inet_rdma_options, node, []
    ),
    Fabric =/= tcp andalso (Move =:= eager orelse Required);
moves(_Node) ->
    false.

%% Has the first node note the messages about the second one's end: inet_rdma_test_watch:seen/1
%% there.
-spec watch(t(), t()) -> pid().
watch(Node, #{node := Peer}) ->
    {Watcher, ok} = call(Node, inet_rdma_test_watch, nodes_of, [Peer]),
    Watcher.

%% Connects all nodes through the first; global builds the rest of the mesh. Global names are in
%% step after it.
-spec mesh([t()]) -> ok.
mesh([First | Others] = Nodes) ->
    [pong = call(First, net_adm, ping, [Name]) || #{node := Name} <- Others],
    [
        await_nodes(Node, [Name || #{node := Name} = Other <- Nodes, Other =/= Node])
     || Node <- Nodes
    ],
    _ = call_all(Nodes, global, sync, []),
    await_moved(Nodes).

%% Waits until the node's `nodes()' are these.
-spec await_nodes(t(), [node()]) -> ok.
await_nodes(#{node := Name} = Node, Expected) ->
    Sorted = lists:sort(Expected),
    inet_rdma_test_wait:until({nodes_of, Name, Sorted}, 20000, fun() ->
        case lists:sort(call(Node, erlang, nodes, [])) of
            Sorted -> true;
            Other -> Other
        end
    end),
    ok.

%% The reaper remembers the processes apart from the case that started them, which may be dead by
%% the time of the cleaning up.
remember(Peer, OsPid) ->
    _ = reaper(),
    ?REAPER ! {remember, Peer, OsPid},
    ok.

remembered() ->
    Reaper = reaper(),
    Ref = monitor(process, Reaper),
    Reaper ! {take, self(), Ref},
    receive
        {Ref, Taken} ->
            demonitor(Ref, [flush]),
            Taken;
        {'DOWN', Ref, process, Reaper, Reason} ->
            error({reaper_is_dead, Reason})
    end.

reaper() ->
    case whereis(?REAPER) of
        undefined ->
            Reaper = spawn(fun() -> reaper_loop([]) end),
            true = register(?REAPER, Reaper),
            Reaper;
        Reaper ->
            Reaper
    end.

reaper_loop(Known) ->
    receive
        {remember, Peer, OsPid} ->
            reaper_loop([{Peer, OsPid} | Known]);
        {take, Asker, Ref} ->
            Asker ! {Ref, Known},
            reaper_loop([])
    end.

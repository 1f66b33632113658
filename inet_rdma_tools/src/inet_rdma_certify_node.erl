%% A node of a certificate: an OS process of its own, here or on the peer host, controlled over its
%% standard input and output, so that the control does not depend on the link.
-module(inet_rdma_certify_node).

-export([
    start_all/1,
    launch/3,
    booted/3,
    call/4, call/5,
    kill/1,
    name/1,
    connect/4,
    ebin/1,
    quoted/1,
    join/2
]).
%% Called from the other host.
-export([home_here/1, start_here/1, call_here/3, kill_here/1]).
-export_type([t/0, host/0, wanted/0]).

%% program: of the process here, the node's own or ssh's.
-type t() :: #{control := control(), node := node(), program := pos_integer() | none}.
-type control() :: {peer, pid()} | {agent, inet_rdma_certify_agent:t(), handle()}.
%% The name by which the other host knows a node of its own.
-type handle() :: binary().

%% Where a node runs. ssh: the words of the command that runs a command there, and the directory
%% there with ebin, priv and the cookie. agent: a host whose certify has connected to this one.
-type host() ::
    local
    | {ssh, Command :: [string()], Directory :: string(), Erl :: string()}
    | {agent, inet_rdma_certify_agent:t()}.

%% home: the directory of inet_rdma_certify_os:make_home/1 on this host, which has the cookie of all
%% nodes.
-type wanted() :: #{
    host := host(),
    home := file:filename(),
    prefix := string(),
    address := string(),
    carrier := string(),
    rdma := [{atom(), term()}],
    _ => _
}.

%% A busy or emulated machine takes a minute; the check that starts the node has a bound of its own.
-define(BOOT_MS, 180000).
-define(CALL_MS, 60000).
-define(KILL_MS, 5000).
-define(NET_TICKTIME_S, 20).

%% Starts the nodes side by side; each ends with the check that starts it.
-spec start_all([wanted()]) -> [t()].
start_all([#{home := Home} | _] = Wanted) ->
    Nodes = [await_boot(Booting) || Booting <- [launch(Each) || Each <- Wanted]],
    %% `-setcookie' in ERL_FLAGS of one host gives its nodes another one.
    Cookie = binary_to_atom(inet_rdma_certify_os:cookie(Home)),
    [true = call(Node, erlang, set_cookie, [Cookie]) || Node <- Nodes],
    Nodes.

launch(#{host := {agent, Agent}} = Wanted) ->
    {agent, Agent, Wanted};
launch(#{host := Host, home := Home} = Wanted) ->
    There =
        case Host of
            local -> Home;
            {ssh, _, Directory, _} -> Directory
        end,
    {peer, Tag, Node} = launch(Host, There, args(Wanted)),
    ok = inet_rdma_certify_step:started(Node),
    {peer, Tag, Node, Wanted}.

%% The Erlang VM with these arguments, and this HOME on its host, or the user's own. It sends
%% {Tag, {started, Name, Peer}} or {Tag, {boot_failed, Reason, Peer}}.
-spec launch(local | {ssh, [string()], string(), string()}, file:filename() | default, [string()]) ->
    {peer, reference(), t()}.
launch(Host, Home, Arguments) ->
    {Program, First, Args, Environment} = command(Host, Home, Arguments),
    Tag = make_ref(),
    %% Not linked: a node that a check kills must not end the check.
    {ok, Peer} = peer:start(#{
        connection => standard_io,
        exec => {Program, First},
        args => Args,
        env => Environment,
        wait_boot => {self(), Tag},
        peer_down => continue
    }),
    {links, Links} = process_info(Peer, links),
    %% The script erl becomes the VM by exec.
    [OsPid] = [
        Id
     || Port <- Links, is_port(Port), {os_pid, Id} <- [erlang:port_info(Port, os_pid)]
    ],
    {peer, Tag, #{control => {peer, Peer}, node => nonode@nohost, program => OsPid}}.

%% The VM reads the cookie in HOME before it listens.
command(local, Home, Args) ->
    {erl(), [], ["-pa", ebin(inet_rdma), "-pa", ebin(?MODULE) | Args], [{"HOME", Home}]};
command({ssh, [Ssh | Words], Directory, Erl}, Home, Args) ->
    Environment =
        case Home of
            default -> [];
            _ -> ["env", "HOME=" ++ quoted(Home)]
        end,
    {Ssh, Words ++ ["exec" | Environment] ++ [Erl],
        ["-pa", quoted(filename:join(Directory, "ebin")) | lists:map(fun quoted/1, Args)], []}.

%% A word for the shell on the other host.
-spec quoted(string()) -> string().
quoted(Word) -> "'" ++ lists:append(string:replace(Word, "'", "'\\''", all)) ++ "'".

%% The arguments of erl, without the path of the code.
args(#{prefix := Prefix, address := Address, carrier := Carrier, rdma := Rdma} = Wanted) ->
    Name = maps:get(name, Wanted, unique(Prefix)),
    [
        "-name",
        Name ++ "@" ++ Address,
        "-proto_dist",
        Carrier,
        "-connect_all",
        "false",
        "-kernel",
        "net_ticktime",
        integer_to_list(?NET_TICKTIME_S),
        "-kernel",
        "prevent_overlapping_partitions",
        "false",
        "-kernel",
        "logger_level",
        "error",
        "-env",
        "ERL_CRASH_DUMP_SECONDS",
        "0"
    ] ++
        case Carrier of
            "inet_rdma" ->
                lists:append([
                    ["-inet_rdma", atom_to_list(Key), value(Value)]
                 || {Key, Value} <- Rdma
                ]);
            _ ->
                []
        end.

value(Value) -> lists:flatten(io_lib:format("~0p", [Value])).

%% A node name that no other run on these hosts uses.
unique(Prefix) ->
    "certify_" ++ Prefix ++ "_" ++ integer_to_list(erlang:unique_integer([positive])) ++ "_" ++
        os:getpid() ++ "_" ++
        integer_to_list(erlang:phash2({node(), os:system_time()}, 16#100000), 36).

await_boot({agent, Agent, Wanted}) ->
    {Name, Handle} = inet_rdma_certify_agent:call(
        Agent, {?MODULE, start_here, [args(Wanted)]}, ?BOOT_MS
    ),
    Node = #{control => {agent, Agent, Handle}, node => Name, program => none},
    ok = inet_rdma_certify_step:started(Node),
    Node;
await_boot({peer, Tag, Node, #{address := Address}}) ->
    booted(Tag, Node, Address).

%% Waits for the message of launch/3.
-spec booted(reference(), t(), string()) -> t().
booted(Tag, #{control := {peer, Peer}} = Node, Address) ->
    receive
        {Tag, {started, Name, Peer}} -> Node#{node := Name};
        {Tag, {boot_failed, Reason, Peer}} -> error({node_does_not_start, Address, Reason})
    after ?BOOT_MS -> error({node_does_not_start, Address, timeout})
    end.

-spec call(t(), module(), atom(), [term()]) -> term().
call(Node, Module, Function, Args) -> call(Node, Module, Function, Args, ?CALL_MS).

-spec call(t(), module(), atom(), [term()], timeout()) -> term().
call(#{control := {peer, Peer}}, Module, Function, Args, TimeoutMs) ->
    peer:call(Peer, Module, Function, Args, TimeoutMs);
call(#{control := {agent, Agent, Handle}}, Module, Function, Args, TimeoutMs) ->
    MFA = {Module, Function, Args},
    inet_rdma_certify_agent:call(Agent, {?MODULE, call_here, [Handle, MFA, TimeoutMs]}, TimeoutMs).

%% Ends the node, also a stopped one. A node on another host ends when its standard input does. Does
%% nothing if the node has ended.
-spec kill(t()) -> ok.
kill(#{control := {agent, Agent, Handle}}) ->
    try
        inet_rdma_certify_agent:call(Agent, {?MODULE, kill_here, [Handle]}, ?KILL_MS)
    catch
        _:_ -> ok
    end;
kill(#{control := {peer, Peer}, program := OsPid}) ->
    _ = os:cmd("kill -KILL " ++ integer_to_list(OsPid)),
    exit(Peer, kill),
    ok.

%% The command `certify --join': nodes that the other host starts run here, until that host closes
%% the connection. Returns the exit status of the program.
-spec join(string(), string()) -> 0 | 1 | 2.
join(Address, Token) ->
    ?MODULE = ets:new(?MODULE, [named_table, public]),
    Status = inet_rdma_certify_agent:join(Address, Token),
    _ = [
        case Row of
            {home, Home} -> inet_rdma_certify_os:remove(Home);
            {_, Node} -> kill(Node)
        end
     || Row <- ets:tab2list(?MODULE)
    ],
    true = ets:delete(?MODULE),
    _ =
        case Status =:= 0 of
            true -> io:format("done~n");
            false -> ok
        end,
    Status.

%% Before the first node starts here.
-spec home_here(Cookie :: binary()) -> ok.
home_here(Cookie) ->
    true = ets:insert(?MODULE, {home, inet_rdma_certify_os:make_home(Cookie)}),
    ok.

-spec start_here([string()]) -> {node(), handle()}.
start_here(Args) ->
    {peer, Tag, Launched} = launch(local, ets:lookup_element(?MODULE, home, 2), Args),
    Handle = integer_to_binary(erlang:unique_integer([positive])),
    true = ets:insert(?MODULE, {Handle, Launched}),
    #{node := Name} = booted(Tag, Launched, "here"),
    {Name, Handle}.

-spec call_here(handle(), {module(), atom(), [term()]}, timeout()) -> term().
call_here(Handle, {Module, Function, Args}, TimeoutMs) ->
    call(ets:lookup_element(?MODULE, Handle, 2), Module, Function, Args, TimeoutMs).

-spec kill_here(handle()) -> ok.
kill_here(Handle) ->
    [{Handle, Node}] = ets:take(?MODULE, Handle),
    kill(Node).

-spec name(t()) -> node().
name(#{node := Name}) -> Name.

%% Connects the first node to the second. Waits at most TimeoutMs until both nodes report that this
%% fabric carries the link.
-spec connect(t(), t(), tcp | shm | verbs, non_neg_integer()) -> ok | {error, unicode:chardata()}.
connect(A, #{node := NameB} = B, Fabric, TimeoutMs) ->
    case call(A, net_adm, ping, [NameB]) of
        pong -> moved([{A, B}, {B, A}], Fabric, inet_rdma_clock:deadline(TimeoutMs));
        pang -> {error, io_lib:format("~s cannot connect to ~s", [name(A), NameB])}
    end.

moved([], _Fabric, _DeadlineMs) ->
    ok;
moved([{A, #{node := NameB}} | Others] = Pairs, Fabric, DeadlineMs) ->
    case call(A, inet_rdma, info, [NameB]) of
        #{fabric := Fabric} ->
            moved(Others, Fabric, DeadlineMs);
        Other ->
            case inet_rdma_clock:left(DeadlineMs) of
                0 -> {error, stays(Other, Fabric)};
                _ -> receive
                    after 50 -> moved(Pairs, Fabric, DeadlineMs)
                    end
            end
    end.

stays(undefined, Fabric) ->
    io_lib:format("the link over ~s has ended", [Fabric]);
stays(#{fabric := Is} = Info, Fabric) ->
    io_lib:format("the link stays on ~s, and does not go over ~s: ~ts", [
        Is, Fabric, maps:get(why, Info, "no reason")
    ]).

%% The directory of a module: of one of the carrier, which has the native library beside it, or of
%% one of the tools.
-spec ebin(module()) -> string().
ebin(Module) -> filename:absname(filename:dirname(code:which(Module))).

%% The program erl. The directory of a release might not have it.
-spec erl() -> string().
erl() ->
    InRoot = filename:join([code:root_dir(), "bin", "erl"]),
    case {filelib:is_regular(InRoot), os:find_executable("erl")} of
        {true, _} ->
            InRoot;
        {false, false} ->
            error({no_program, "erl", "certify starts nodes of its own: have erl in PATH"});
        {false, Found} ->
            Found
    end.

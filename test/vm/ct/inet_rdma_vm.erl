%% What the suites of the virtual machines share: the devices, what the kernel's RDMA stack holds,
%% nodes on them.
-module(inet_rdma_vm).

-include_lib("stdlib/include/assert.hrl").

-export([device/1, nodes_on/3, name_at/3, start_pair/2, stop_pair/1, pair_lives/1, pair/1]).
-export([call/4, name/1, cast/4, contains/2]).
-export([
    resources/0,
    steady_resources/0,
    resources/1,
    await_resources/1, await_resources/2,
    info/2,
    resumes/2,
    watch/2
]).
-export([await_nodedown/3]).
-export([tls_arguments/1, load_tls/1]).
-export([cut_tcp/2, shut_tcp/2, shut_tcp_of_link/1]).
-export([
    stream_both_ways/4,
    await_stream/2,
    start_streams/1,
    is_done/2,
    stop_streams/1,
    stop_streams_at/2
]).
-export([explained/2]).
-export([there/0, on_both/1, watch_both/1, survives/3, survived/3]).
-export_type([resources/0]).

-define(OTHER, "guest2").

%% Counts of the kernel's objects by device: `#{"rxe_local" => #{"qp" => 1, ...}}'. A device has
%% some of its own.
-type resources() :: #{string() => #{string() => non_neg_integer()}}.

%% The words of the environment about the devices of this kind, see test/vm/driver.
-spec device(rxe | siw) -> [string()].
device(rxe) -> words("INET_RDMA_TEST_RXE");
device(siw) -> words("INET_RDMA_TEST_SIW").

words(Variable) ->
    case os:getenv(Variable) of
        false -> error({not_set, Variable, "test/vm/suites sets it"});
        Value -> string:lexemes(Value, " ")
    end.

%% Count nodes whose names have this address.
-spec nodes_on(string(), [string()], inet_rdma_test_node:options()) -> [inet_rdma_test_node:t()].
nodes_on(Address, Prefixes, Options) ->
    inet_rdma_test_node:start_all([
        {Prefix, name_at(Prefix, Address, Options)}
     || Prefix <- Prefixes
    ]).

%% Options of a node with this address in its name; over verbs, if they do not say otherwise. What
%% takes a moment elsewhere may take long in an emulated machine that shares its processor. Left to
%% itself, global would end links that no case has touched.
-spec name_at(string(), string(), inet_rdma_test_node:options()) -> inet_rdma_test_node:options().
name_at(Prefix, Address, Options) ->
    Rdma = maps:get(rdma, Options, [{fabric, verbs}]),
    Defaults = #{name => inet_rdma_test_node:unique(Prefix) ++ "@" ++ Address, long => true},
    maps:merge(Defaults, (under_profile(Options))#{
        rdma => [{connect_timeout_ms, 60000} | Rdma],
        args => lists:append([
            ["-kernel", "net_setuptime", "60"],
            ["-kernel", "prevent_overlapping_partitions", "false"],
            maps:get(args, Options, [])
        ])
    }).

%% The node's devices are those of a profile, if the driver says so: see test/vm/driver.
under_profile(Options) ->
    case os:getenv("INET_RDMA_TEST_PROFILE") of
        false ->
            Options;
        Variables ->
            Under = maps:get(under, Options, []),
            Options#{under => Under ++ ["env" | string:lexemes(Variables, " ")]}
    end.

%% For init_per_group: two nodes on a device of this kind, which the group's cases share, as nodes
%% take seconds to start here.
-spec start_pair(rxe | siw, [{atom(), term()}]) -> [{atom(), term()}].
start_pair(Kind, Config) ->
    [Device, Ipv4, Ipv6] = device(Kind),
    Before = resources(),
    Pair = nodes_on(Ipv4, ["a", "b"], #{}),
    [
        {kind, Kind},
        {device, Device},
        {ipv4, Ipv4},
        {ipv6, Ipv6},
        {before, Before},
        {pair, Pair}
        | Config
    ].

%% For end_per_group. All nodes were ended the hard way or by themselves: nothing of them is left.
-spec stop_pair([{atom(), term()}]) -> ok.
stop_pair(Config) ->
    inet_rdma_test_node:stop_all(),
    await_resources(proplists:get_value(before, Config)).

%% For end_per_testcase.
-spec pair_lives([{atom(), term()}]) -> ok.
pair_lives(Config) ->
    [] = [
        Pid
     || #{os_pid := Pid} <- proplists:get_value(pair, Config), not inet_rdma_test_os:is_alive(Pid)
    ],
    ok.

%% The pair of nodes that a group's cases share, connected. While a link is being settled, the
%% kernel's counts change.
-spec pair([{atom(), term()}]) -> [inet_rdma_test_node:t()].
pair(Config) ->
    [A, B] = proplists:get_value(pair, Config),
    ok = inet_rdma_test_node:connect(A, B),
    [ok = inet_rdma_test_link:await(X, Y, verbs) || {X, Y} <- [{A, B}, {B, A}]],
    [A, B].

call(Node, Module, Function, Args) ->
    inet_rdma_test_node:call(Node, Module, Function, Args).

cast(#{peer := Peer}, Module, Function, Args) ->
    peer:cast(Peer, Module, Function, Args).

name(#{node := Name}) -> Name.

-spec contains(string(), [string()]) -> ok.
contains(Text, Words) ->
    ?assertEqual([], [Word || Word <- Words, string:find(Text, Word) =:= nomatch]).

%% What a node knows of its connection to another.
-spec info(inet_rdma_test_node:t(), inet_rdma_test_node:t()) -> inet_rdma:info().
info(Node, Peer) ->
    call(Node, inet_rdma, info, [name(Peer)]).

-spec resources() -> resources().
resources() ->
    resources([]).

%% The resources of the guest that this command line leads to.
-spec resources([string()]) -> resources().
resources(Under) ->
    Output = os:cmd(lists:flatten(lists:join(" ", Under ++ ["rdma", "resource", "show"]))),
    Resources = maps:from_list([counts(Line) || Line <- string:lexemes(Output, "\n")]),
    true = map_size(Resources) > 0,
    Resources.

%% Those of a moment at which nothing is being made or taken apart: the same at three looks.
-spec steady_resources() -> resources().
steady_resources() -> steady_resources(resources(), 3).

steady_resources(Resources, 1) ->
    Resources;
steady_resources(Before, Looks) ->
    timer:sleep(1000),
    case resources() of
        Before -> steady_resources(Before, Looks - 1);
        Other -> steady_resources(Other, 3)
    end.

%% 0: rxe_local: pd 1 cq 1 qp 1 cm_id 4 mr 0 ctx 2 srq 0
counts(Line) ->
    [_Index, Device | Counts] = string:lexemes(Line, ": "),
    {Device, maps:from_list(pairs(Counts))}.

pairs([Key, Count | Rest]) -> [{Key, list_to_integer(Count)} | pairs(Rest)];
pairs([]) -> [].

%% Waits until the kernel holds no more than it did then.
-spec await_resources(resources()) -> ok.
await_resources(Before) ->
    await_resources([], Before).

-spec await_resources([string()], resources()) -> ok.
await_resources(Under, Before) ->
    StartMs = erlang:monotonic_time(millisecond),
    inet_rdma_test_wait:until({resources_are_freed, Before}, 10000, fun() ->
        case grown(Before, resources(Under)) of
            [] -> true;
            Grown -> Grown
        end
    end),
    TookMs = erlang:monotonic_time(millisecond) - StartMs,
    TookMs > 1000 andalso ct:pal("~ts all is freed after ~b ms", [lists:join(" ", Under), TookMs]),
    ok.

grown(Before, Now) ->
    [
        {Device, Key, {before, Count}, {now, NowCount}}
     || {Device, Counts} <- maps:to_list(Before),
        {Key, Count} <- maps:to_list(Counts),
        NowCount <- [map_get(Key, map_get(Device, Now))],
        NowCount > Count
    ].

-spec watch(inet_rdma_test_node:t(), inet_rdma_test_node:t()) ->
    {inet_rdma_test_node:t(), pid(), integer()}.
watch(Node, Peer) ->
    {Node, inet_rdma_test_node:watch(Node, Peer), erlang:monotonic_time(millisecond)}.

%% Waits for it; where all goes well it comes in the time that the tick time allows, BoundMs.
-spec await_nodedown({inet_rdma_test_node:t(), pid(), integer()}, integer(), non_neg_integer()) ->
    ok.
await_nodedown({Node, Watcher, _}, StartMs, BoundMs) ->
    inet_rdma_test_wait:until({nodedown_at, name(Node)}, BoundMs, fun() ->
        call(Node, inet_rdma_test_watch, seen, [Watcher]) =/= []
    end),
    ct:pal("~p: nodedown after ~b ms", [name(Node), erlang:monotonic_time(millisecond) - StartMs]).

%% Ends the TCP connection of a link that RDMA carries, in the first node: both reconnect, and the
%% link lives on.
-spec cut_tcp(inet_rdma_test_node:t(), inet_rdma_test_node:t()) -> ok.
cut_tcp(A, B) ->
    ok = inet_rdma_test_link:await(A, B, verbs),
    Watched = [watch(A, B), watch(B, A)],
    Resumes = [{X, Y, resumes(X, Y)} || {X, Y} <- [{A, B}, {B, A}]],
    shut_tcp(A, B),
    [
        inet_rdma_test_wait:until({resumed, name(X)}, 20000, fun() -> resumes(X, Y) > Before end)
     || {X, Y, Before} <- Resumes
    ],
    [[] = call(Node, inet_rdma_test_watch, seen, [Watcher]) || {Node, Watcher, _} <- Watched],
    ok = inet_rdma_test_link:await(A, B, verbs).

%% Ends it, in the first node.
-spec shut_tcp(inet_rdma_test_node:t(), inet_rdma_test_node:t()) -> ok.
shut_tcp(A, B) -> ok = call(A, ?MODULE, shut_tcp_of_link, [name(B)]).

%% How often the link has got another TCP connection.
-spec resumes(inet_rdma_test_node:t(), inet_rdma_test_node:t()) -> non_neg_integer().
resumes(Node, Peer) ->
    #{resumes := Resumes} = info(Node, Peer),
    Resumes.

%% Runs in a node.
-spec shut_tcp_of_link(node()) -> ok | {error, term()}.
shut_tcp_of_link(Peer) ->
    [Port] = [Port || {Node, Port} <- erlang:system_info(dist_ctrl), Node =:= Peer],
    inet_rdma_port:with_socket(Port, inet_tcp, fun(Socket) ->
        gen_tcp:shutdown(Socket, read_write)
    end).

%% Streams of numbered and hashed messages from several senders, both ways.
-spec stream_both_ways(
    [inet_rdma_test_node:t()], inet_rdma_test_stream:kind(), pos_integer(), pos_integer()
) -> ok.
stream_both_ways([A, B], Kind, Senders, Count) ->
    AtA = inet_rdma_test_stream:receiver_at(A, Senders, Count),
    AtB = inet_rdma_test_stream:receiver_at(B, Senders, Count),
    _ = call(A, inet_rdma_test_stream, senders, [name(B), AtB, Kind, Senders, Count]),
    _ = call(B, inet_rdma_test_stream, senders, [name(A), AtA, Kind, Senders, Count]),
    await_stream(A, AtA),
    await_stream(B, AtB).

-spec await_stream(inet_rdma_test_node:t(), atom()) -> ok.
await_stream(Node, Receiver) ->
    _ = inet_rdma_test_node:call(Node, inet_rdma_test_stream, await, [Receiver, 20000], infinity),
    ok.

-type streams() :: [{Receiver :: inet_rdma_test_node:t(), Name :: atom()}].

%% More than can be sent before what the case does next.
-spec start_streams([inet_rdma_test_node:t()]) -> streams().
start_streams([A, B]) ->
    [
        begin
            Name = inet_rdma_test_stream:receiver_at(Receiver, 2, 300),
            _ = call(Sender, inet_rdma_test_stream, senders, [name(Receiver), Name, mixed, 2, 300]),
            {Receiver, Name}
        end
     || {Sender, Receiver} <- [{A, B}, {B, A}]
    ].

-spec is_done(inet_rdma_test_node:t(), atom()) -> boolean().
is_done(Receiver, Name) ->
    case call(Receiver, inet_rdma_test_stream, progress, [Name]) of
        {done, _} -> true;
        {running, _} -> false;
        {failed, Why} -> error({stream_broken, name(Receiver), Why})
    end.

-spec stop_streams(streams()) -> [true].
stop_streams(Streams) ->
    [
        call(Receiver, erlang, exit, [Pid, kill])
     || {Receiver, Name} <- Streams,
        Pid <- [call(Receiver, erlang, whereis, [Name])],
        is_pid(Pid)
    ].

%% Those that end at this node; the other one is gone.
-spec stop_streams_at(inet_rdma_test_node:t(), streams()) -> [true].
stop_streams_at(#{node := Node}, Streams) ->
    stop_streams([Stream || {#{node := Receiver}, _} = Stream <- Streams, Receiver =:= Node]).

%% Makes certificates for hosts of these addresses. Returns their directory, and the arguments of a
%% node with TLS.
-spec tls_arguments([string()]) -> {file:filename(), [string()]}.
tls_arguments(Addresses) ->
    Directory = filename:join(
        os:getenv("INET_RDMA_VM_RESULTS"), inet_rdma_test_node:unique("certificates")
    ),
    ok = filelib:ensure_dir(filename:join(Directory, "x")),
    ok = inet_rdma_test_certificates:make(Directory, Addresses),
    {Directory, [
        "-pa",
        filename:join(code:lib_dir(ssl), "ebin"),
        "-ssl_dist_optfile",
        inet_rdma_test_certificates:option_file(Directory, good, [])
    ]}.

%% Loads the modules of TLS, as these take an emulated machine longer than a set-up may last.
-spec load_tls([inet_rdma_test_node:t()]) -> ok.
load_tls(Nodes) ->
    Modules = [
        list_to_atom(filename:basename(Beam, ".beam"))
     || Application <- [asn1, crypto, public_key, ssl],
        Beam <- filelib:wildcard(filename:join([code:lib_dir(Application), "ebin", "*.beam"]))
    ],
    _ = [call(Node, code, ensure_modules_loaded, [Modules]) || Node <- Nodes],
    ok.

%% Runs the steps of a case; where they fail, prints what these nodes have logged and recorded about
%% each other.
-spec explained([inet_rdma_test_node:t()], fun(() -> Result)) -> Result.
explained(Nodes, Steps) ->
    _ = [ok = call(Node, inet_rdma_test_log, install, []) || Node <- Nodes],
    try
        Steps()
    catch
        Class:Reason:Stack ->
            _ = [explain(Node, Peer) || Node <- Nodes, Peer <- Nodes, Peer =/= Node],
            erlang:raise(Class, Reason, Stack)
    end.

explain(Node, Peer) ->
    ct:pal("~p logged:~n~ts~nand recorded of its links to ~p:~n~ts", [
        name(Node),
        lists:join("\n", call(Node, inet_rdma_test_log, lines, [])),
        name(Peer),
        [io_lib:format("~0tp~n", [Event]) || Event <- call(Node, inet_rdma, history, [name(Peer)])]
    ]).

%% Runs a program on guest 2 with its words as they are. Its end is that of the session's standard
%% input.
-spec there() -> [string()].
there() ->
    ["bash", "-c", "exec ssh \"$0\" \"exec$(printf ' %q' \"$@\")\"", ?OTHER].

%% Runs a command of the shell on both guests.
-spec on_both(string()) -> ok.
on_both(Command) ->
    _ = os:cmd("ssh " ?OTHER " '" ++ Command ++ "' & " ++ Command ++ "; wait"),
    ok.

-spec watch_both([inet_rdma_test_node:t()]) -> [{inet_rdma_test_node:t(), pid(), integer()}].
watch_both([A, B]) ->
    [watch(A, B), watch(B, A)].

%% All that was sent has arrived in order, no node got a nodedown, and the device carries the link.
-spec survives(
    [inet_rdma_test_node:t()], [{inet_rdma_test_node:t(), pid(), integer()}], streams()
) -> ok.
survives([A, B], Watched, Streams) ->
    [await_stream(Receiver, Name) || {Receiver, Name} <- Streams],
    [
        ?assertEqual([], call(Node, inet_rdma_test_watch, seen, [Watcher]))
     || {Node, Watcher, _} <- Watched
    ],
    [ok = inet_rdma_test_link:await(X, Y, verbs) || {X, Y} <- [{A, B}, {B, A}]],
    ok = call(A, inet_rdma_test_data, echo_and_compare, [name(B), [0, 1000, 300000]]).

%% The same, and the nodes end.
-spec survived(
    [inet_rdma_test_node:t()], [{inet_rdma_test_node:t(), pid(), integer()}], streams()
) -> ok.
survived(Pair, Watched, Streams) ->
    ok = survives(Pair, Watched, Streams),
    [inet_rdma_test_node:stop(Node) || Node <- Pair],
    ok.

%% Nodes of two machines over devices that grant, refuse and leave out what those of a provider do
%% (INET_RDMA_TEST_PROFILE, see test/vm/driver): a link comes to the device, leaves it and comes
%% back, and nothing is lost.
-module(verbs_profile_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_vm, [contains/2, there/0, on_both/1, survives/3, watch_both/1, start_streams/1]).

-export([all/0, groups/0, suite/0, init_per_group/2, end_per_group/2, end_per_testcase/2]).
-export([move/1, pair/1, cut/1, removal/1, stays_on_tcp/1]).

-define(MB, 1048576).
%% The streams of a case take rxe tens of seconds where it sends again after its own time.
-define(TICKTIME_S, 60).

suite() ->
    [{timetrap, {minutes, 10}}].

all() ->
    [{group, rxe}, {group, siw}].

%% In this order: the cases share two nodes, which are not connected before the first.
groups() ->
    Cases = [move, pair, removal, cut],
    [
        {rxe, [sequence], Cases},
        {siw, [sequence], Cases},
        %% A device without queue pairs of the kind that links need.
        {no_rc, [], [stays_on_tcp]}
    ].

init_per_group(Group, Config) ->
    Kind =
        case Group of
            no_rc -> rxe;
            _ -> Group
        end,
    [Device, Own, Theirs, Interface] = inet_rdma_vm:device(Kind),
    Before = inet_rdma_vm:resources(),
    [
        {kind, Kind},
        {device, Device},
        {interface, Interface},
        {before, Before},
        {pair, start([Own, Theirs])}
        | Config
    ].

start([Own, Theirs]) ->
    Options = fun(Prefix, Address, Under) ->
        inet_rdma_test_node:alone(
            inet_rdma_vm:name_at(Prefix, Address, #{
                under => Under,
                args => ["-kernel", "net_ticktime", integer_to_list(?TICKTIME_S)],
                rdma => [{fabric, verbs}, {fallback_retry_ms, 1000}]
            })
        )
    end,
    inet_rdma_test_node:start_all([
        {"near", Options("near", Own, [])}, {"far", Options("far", Theirs, there())}
    ]).

end_per_group(_Group, Config) ->
    inet_rdma_test_node:stop_all(),
    inet_rdma_vm:await_resources(proplists:get_value(before, Config)).

%% The devices are whole again, whatever became of the case.
end_per_testcase(_Case, Config) ->
    on_both("tc qdisc del dev " ++ proplists:get_value(interface, Config) ++ " root 2>/dev/null"),
    _ = os:cmd(add_device(Config)),
    ok.

%% The link comes to its device, and messages go both ways.
move(Config) ->
    under_streams(Config, fun([A, B]) ->
        [ok = inet_rdma_test_link:await(X, Y, verbs) || {X, Y} <- [{A, B}, {B, A}]],
        Why = inet_rdma_test_link:why(A, B),
        ct:pal("~ts", [Why]),
        contains(Why, [device(Config)])
    end).

%% Messages of all sizes, round the limits of what devices send inline, and many.
pair(Config) ->
    [A, B] = inet_rdma_vm:pair(Config),
    Sizes = [1, 40, 64, 96, 101, 208, 220, 1024, 16384, 65536, 65537, 300000, 3 * ?MB],
    [
        ok = call(X, inet_rdma_test_data, send_and_compare, [name(Y), Sizes])
     || {X, Y} <- [{A, B}, {B, A}]
    ],
    ok = call(A, inet_rdma_test_remote, many_calls, [name(B), 50]).

%% Nothing passes between the devices: the link goes on over TCP, and comes back after the cut.
cut(Config) ->
    _ = inet_rdma_vm:pair(Config),
    Interface = proplists:get_value(interface, Config),
    under_streams(Config, fun([A, B]) ->
        on_both("tc qdisc add dev " ++ Interface ++ " root netem loss 100%"),
        [ok = inet_rdma_test_link:await(X, Y, tcp) || {X, Y} <- [{A, B}, {B, A}]],
        ok = call(A, inet_rdma_test_data, echo_and_compare, [name(B), [0, 1000, 300000]]),
        on_both("tc qdisc del dev " ++ Interface ++ " root")
    end).

%% The device goes under load, and comes back: a link settles on it again.
removal(Config) ->
    [A, B] = on_device(Config),
    under_streams(Config, fun(_Pair) ->
        [] = os:cmd("rdma link delete " ++ proplists:get_value(device, Config)),
        inet_rdma_test_wait:until(off_the_device, 60000, fun() ->
            Whys = [inet_rdma_test_link:why(X, Y) || {X, Y} <- [{A, B}, {B, A}]],
            ct:pal("~ts", [lists:join("\n", Whys)]),
            string:find(hd(Whys), device(Config)) =:= nomatch
        end),
        ok = call(A, inet_rdma_test_data, echo_and_compare, [name(B), [0, 1000, 300000]]),
        [] = os:cmd(add_device(Config))
    end),
    [A, B] = on_device(Config).

%% A new link: it settles on the device that has the address of the nodes' names.
on_device(Config) ->
    [A, B] = proplists:get_value(pair, Config),
    ok = inet_rdma_test_link:disconnect(A, B),
    [A, B] = inet_rdma_vm:pair(Config),
    [contains(inet_rdma_test_link:why(X, Y), [device(Config)]) || {X, Y} <- [{A, B}, {B, A}]],
    [A, B].

%% As `why' names it.
device(Config) -> "RDMA device " ++ proplists:get_value(device, Config).

%% Streams both ways, meanwhile these steps: all arrives, without a nodedown.
under_streams(Config, Steps) ->
    [A, B] = Pair = proplists:get_value(pair, Config),
    inet_rdma_vm:explained(Pair, fun() ->
        ok = inet_rdma_test_node:connect(A, B),
        Watched = watch_both(Pair),
        Streams = start_streams(Pair),
        Steps(Pair),
        survives(Pair, Watched, Streams)
    end).

%% The link works over TCP, and says why.
stays_on_tcp(Config) ->
    [A, B] = Pair = proplists:get_value(pair, Config),
    inet_rdma_vm:explained(Pair, fun() ->
        ok = inet_rdma_test_link:connect(A, B),
        ok = call(A, inet_rdma_test_data, echo_and_compare, [name(B), [0, 1000, 300000]]),
        inet_rdma_test_wait:until(reason, 20000, fun() ->
            Whys = [inet_rdma_test_link:why(X, Y) || {X, Y} <- [{A, B}, {B, A}]],
            ct:pal("~ts", [lists:join("\n", Whys)]),
            lists:any(fun(Why) -> string:find(Why, "creating a queue pair") =/= nomatch end, Whys) orelse
                Whys
        end),
        [ok = inet_rdma_test_link:await(X, Y, tcp) || {X, Y} <- [{A, B}, {B, A}]]
    end).

add_device(Config) ->
    [Device, Kind, Interface] = [
        proplists:get_value(Key, Config)
     || Key <- [device, kind, interface]
    ],
    lists:append([
        "rdma link show | grep -q '^link ",
        Device,
        "/' || rdma link add ",
        Device,
        " type ",
        atom_to_list(Kind),
        " netdev ",
        Interface
    ]).

call(Node, Module, Function, Args) -> inet_rdma_vm:call(Node, Module, Function, Args).

name(Node) -> inet_rdma_vm:name(Node).

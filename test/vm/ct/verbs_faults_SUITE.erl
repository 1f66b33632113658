%% Nodes of one machine, one of them over a device that is slow: a library that is loaded before all
%% others makes it so (native/core/verbs/examples/lying_device.rs). Nothing is lost, and no node goes
%% down.
-module(verbs_faults_SUITE).

-export([all/0, groups/0, suite/0, init_per_group/2, end_per_group/2, end_per_testcase/2]).
-export([late_completions_and_events/1]).

-define(MB, 1048576).

suite() ->
    [{timetrap, {minutes, 12}}].

all() ->
    [{group, rxe}, {group, siw}].

groups() ->
    Cases = [late_completions_and_events],
    [{rxe, [], Cases}, {siw, [], Cases}].

init_per_group(Kind, Config) ->
    [Device, Ipv4, _] = inet_rdma_vm:device(Kind),
    [{kind, Kind}, {device, Device}, {ipv4, Ipv4}, {before, inet_rdma_vm:resources()} | Config].

end_per_group(_Kind, Config) ->
    inet_rdma_vm:await_resources(proplists:get_value(before, Config)).

end_per_testcase(_Case, _Config) ->
    inet_rdma_test_node:stop_all(),
    ok.

%% Completions come late and one at a time, those of failed requests say no more than they must, the
%% reason of a failure comes after what it flushes; the connection manager is late and says twice
%% that a peer has disconnected.
late_completions_and_events(Config) ->
    Words = "late=5,failed=vague,poll=1,modify=50,cm=late:50,cm=twice",
    under_streams(Config, Words, fun([A, B]) ->
        [ok = inet_rdma_test_link:await(X, Y, verbs) || {X, Y} <- [{A, B}, {B, A}]],
        Sizes = [1, 64, 1024, 65537, 300000, 2 * ?MB],
        [
            ok = call(X, inet_rdma_test_data, send_and_compare, [name(Y), Sizes])
         || {X, Y} <- [{A, B}, {B, A}]
        ],
        inet_rdma_vm:cut_tcp(A, B)
    end).

%% Streams both ways between a node on the device as it is and one under these words, meanwhile
%% these steps: all arrives, without a nodedown, and the device carries the link in the end.
under_streams(Config, Words, Steps) ->
    Pair = [A, B] = start(proplists:get_value(ipv4, Config), Words),
    inet_rdma_vm:explained(Pair, fun() ->
        ok = inet_rdma_test_node:connect(A, B),
        Watched = inet_rdma_vm:watch_both(Pair),
        Streams = inet_rdma_vm:start_streams(Pair),
        Steps(Pair),
        ok = inet_rdma_vm:survives(Pair, Watched, Streams)
    end),
    Lines = [{name(Node), call(Node, inet_rdma_test_log, lines, [])} || Node <- Pair],
    ct:pal("~p", [Lines]).

start(Address, Words) ->
    Options = fun(Prefix, Under) ->
        inet_rdma_test_node:alone(
            inet_rdma_vm:name_at(Prefix, Address, #{
                under => Under,
                args => ["-kernel", "net_ticktime", "60"],
                rdma => [{fabric, verbs}, {fallback_retry_ms, 1000}]
            })
        )
    end,
    inet_rdma_test_node:start_all([
        {"well", Options("well", [])}, {"ill", Options("ill", as_device(Words))}
    ]).

as_device(Words) ->
    ["env", "LD_PRELOAD=" ++ os:getenv("INET_RDMA_TEST_LYING"), "DEVICE_PROFILE=" ++ Words].

call(Node, Module, Function, Args) -> inet_rdma_vm:call(Node, Module, Function, Args).

name(Node) -> inet_rdma_vm:name(Node).

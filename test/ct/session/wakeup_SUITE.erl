%% A node that stood still sends nothing over its old connections: its links make others first, and nothing is lost.
-module(wakeup_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_node, [call/4, name/1]).

-export([all/0, suite/0, groups/0]).
-export([signs/1, stopped_node/1, woken_again_and_again/1, nothing_is_sent_before/1, both_woken/1]).
-export([without_another_connection/1]).

%% Longer than a look at the clocks may be late.
-define(STOPPED_MS, 12000).
-define(ACKNOWLEDGED_MS, 500).

suite() ->
    [{timetrap, {minutes, 3}}, {ct_hooks, [{inet_rdma_test_nodes, [only_rdma, paths]}]}].

all() ->
    [signs | [{group, Group} || {Group, _, _} <- groups()]].

groups() ->
    Cases = [stopped_node, woken_again_and_again, both_woken],
    [{tcp, [], Cases ++ [nothing_is_sent_before, without_another_connection]}, {shm, [], Cases},
     {tls, [], Cases ++ [nothing_is_sent_before]}].

%% Which clock tells of which pause.
signs(_Config) ->
    Before = #{monotonic => 1000, boottime => 9000, realtime => 500000, hardware => 500000},
    Passed = fun(Monotonic, Boottime, Realtime, Hardware) ->
        Now = #{monotonic => 1000 + Monotonic, boottime => 9000 + Boottime, realtime => 500000 + Realtime,
                hardware => Hardware},
        inet_rdma_wakeup:stood_still(Before, Now)
    end,
    ?assertEqual(no, Passed(5003, 5003, 5003, 505000)),
    ?assertEqual(no, Passed(9500, 9500, 9500, 509000)),
    ?assertEqual({process_stopped, 7000}, Passed(12000, 12000, 12000, 512000)),
    ?assertEqual({machine_suspended, 60000}, Passed(5000, 65000, 65000, 565000)),
    ?assertEqual({clock_set, 60000}, Passed(5000, 5000, 65000, 565000)),
    ?assertEqual({hardware_clock, 60000}, Passed(5000, 5000, 5000, 565000)),
    %% A clock that is set back, and a hardware clock that cannot be read.
    ?assertEqual(no, Passed(5000, 5000, -60000, 445000)),
    ?assertEqual(no, Passed(5000, 5000, 5000, 0)).

stopped_node(Config) ->
    [A, B] = pair(Config),
    ok = call(B, inet_rdma_test_log, install, []),
    Traffic = inet_rdma_test_traffic:start(A, B),
    Before = standing(B, A),
    inet_rdma_test_node:suspend(B),
    receive after ?STOPPED_MS -> ok end,
    inet_rdma_test_node:resume(B),
    ok = inet_rdma_test_log:await(B, ["this node stood still"]),
    goes_on(B, A, Before, Config),
    undisturbed(Traffic),
    ?assert(lists:any(fun(#{event := Event}) -> Event =:= <<"woke">> end,
                      call(B, inet_rdma_recorder, history, [name(B), 20]))).

woken_again_and_again(Config) ->
    [A, B] = pair(Config),
    Traffic = inet_rdma_test_traffic:start(A, B),
    [
        begin
            Before = standing(Node, Peer),
            ok = call(Node, inet_rdma_test_remote, wake, []),
            goes_on(Node, Peer, Before, Config)
        end
     || _ <- [1, 2, 3], {Node, Peer} <- [{A, B}, {B, A}]
    ],
    undisturbed(Traffic).

%% As two machines of one host.
both_woken(Config) ->
    [A, B] = pair(Config),
    Traffic = inet_rdma_test_traffic:start(A, B),
    Before = standing(A, B),
    [ok = call(Node, inet_rdma_test_remote, wake, []) || Node <- [A, B]],
    goes_on(A, B, Before, Config),
    undisturbed(Traffic).

%% The peer's kernel takes bytes and connections, and its node makes none.
nothing_is_sent_before(Config) ->
    [A, B] = pair(Config),
    Before = {_, Suspicions} = standing(B, A),
    %% Its kernel may acknowledge what was said before as late as this, and that would be an answer.
    receive after ?ACKNOWLEDGED_MS -> ok end,
    inet_rdma_test_node:suspend(A),
    ok = call(B, inet_rdma_test_remote, wake, []),
    inet_rdma_test_wait:until(suspected, 10000, fun() -> suspicions(B, A) > Suspicions end),
    true = call(B, erlang, send, [{nobody, name(A)}, a_message]) =:= a_message,
    ok = inet_rdma_test_wait:holds(waits, 1000, fun() -> queued(B) > 0 end),
    inet_rdma_test_node:resume(A),
    goes_on(B, A, Before, Config),
    ok = inet_rdma_test_link:exercise(A, B).

%% A link that is not made anew goes on as it is.
without_another_connection(Config) ->
    [A, B] = pair([{survive_ms, 0}], Config),
    Traffic = inet_rdma_test_traffic:start(A, B),
    ok = call(B, inet_rdma_test_remote, wake, []),
    ok = inet_rdma_test_link:exercise(A, B),
    undisturbed(Traffic),
    ?assertEqual(0, resumes(B, A)).

pair(Config) -> pair([], Config).

pair(Rdma, Config) ->
    inet_rdma_test_node:connected_pair(inet_rdma_test_paths:options(Config, #{rdma => Rdma})).

undisturbed(Traffic) ->
    ?assertEqual(#{}, inet_rdma_test_traffic:disturbances(inet_rdma_test_traffic:stop(Traffic))).

standing(Node, Peer) -> {resumes(Node, Peer), suspicions(Node, Peer)}.

%% A sealed connection is never written again. Over another one the peer may be heard before the next one is there.
goes_on(Node, Peer, {Resumes, Suspicions}, Config) ->
    inet_rdma_test_wait:until({goes_on, name(Node)}, 30000, fun() ->
        case proplists:get_value(path, Config) of
            tls -> resumes(Node, Peer) > Resumes;
            _ -> suspicions(Node, Peer) > Suspicions andalso queued(Node) =:= 0
        end
    end),
    ok = inet_rdma_test_link:exercise(Node, Peer).

queued(Node) ->
    [{_, Port}] = call(Node, erlang, system_info, [dist_ctrl]),
    {ok, _, _, Queued} = call(Node, inet_rdma_port, getstat, [Port]),
    Queued.

resumes(Node, Peer) -> count(resumes, Node, Peer).

suspicions(Node, Peer) -> count(suspicions, Node, Peer).

count(Key, Node, Peer) -> maps:get(Key, call(Node, inet_rdma, info, [name(Peer)])).

%% The option suspect_after_ms: a path whose packets vanish is suspected, and the link goes on over
%% another one. A peer or a node that is slow or stopped is not suspected.
-module(dead_path_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_node, [call/4, name/1]).

-export([all/0, suite/0, groups/0, init_per_testcase/2]).
-export([
    a_vanished_connection_is_replaced/1,
    an_idle_link_notices_with_the_first_packet/1,
    a_link_waits_while_the_network_is_away/1,
    suspected_is_lost/1,
    one_way_alone/1,
    one_side_alone/1
]).
-export([without_the_option_tcp_decides/1]).
-export([
    a_stopped_peer_is_not_suspected/1,
    a_node_that_was_stopped_suspects_nobody/1,
    starved_nodes_suspect_nobody/1,
    stopped_for_good/1,
    beside_shared_memory/1
]).
-export([attempt_without_an_end/1]).

%% Long enough that nothing here ends a link by it.
-define(TICKTIME, 600).
-define(SUSPECT_AFTER_MS, 1000).
%% The smallest value of the option: the most likely to take a slow peer for a dead path.
-define(SMALLEST_MS, 500).
-define(STOPPED_MS, 4000).

suite() ->
    [
        {timetrap, {minutes, 4 + starved_seconds() div 60}},
        {ct_hooks, [{inet_rdma_test_nodes, [only_rdma, paths]}]}
    ].

all() ->
    [{group, Group} || {Group, _, _} <- groups()].

groups() ->
    Vanishing = [
        a_vanished_connection_is_replaced,
        an_idle_link_notices_with_the_first_packet,
        a_link_waits_while_the_network_is_away,
        suspected_is_lost,
        one_way_alone,
        one_side_alone,
        without_the_option_tcp_decides
    ],
    Slow = [
        a_stopped_peer_is_not_suspected,
        a_node_that_was_stopped_suspects_nobody,
        starved_nodes_suspect_nobody,
        stopped_for_good,
        attempt_without_an_end
    ],
    [
        {tcp, [], Vanishing ++ Slow},
        {shm, [], [beside_shared_memory]},
        {tls, [], [a_stopped_peer_is_not_suspected]}
    ].

%% How long the nodes are starved: what CI has time for; INET_RDMA_STARVED_SECONDS=3600 by hand.
starved_seconds() -> list_to_integer(os:getenv("INET_RDMA_STARVED_SECONDS", "20")).

init_per_testcase(Case, Config) when
    Case =:= a_stopped_peer_is_not_suspected;
    Case =:= a_node_that_was_stopped_suspects_nobody;
    Case =:= starved_nodes_suspect_nobody;
    Case =:= stopped_for_good;
    Case =:= beside_shared_memory;
    Case =:= attempt_without_an_end
->
    Config;
init_per_testcase(_Case, Config) ->
    inet_rdma_test_network:needed(Config).

%% A firewall has forgotten the connection: its packets vanish, and another one passes. Nothing is
%% lost.
a_vanished_connection_is_replaced(Config) ->
    Network = proplists:get_value(network, Config),
    [A, B] = Pair = hosts(Config, {?SUSPECT_AFTER_MS, ?SUSPECT_AFTER_MS}),
    Traffic = inet_rdma_test_traffic:start_small(A, B),
    [
        begin
            {StartMs, Before} = {now_ms(), [resumes(X, Y) || {X, Y} <- [{A, B}, {B, A}]]},
            ok = inet_rdma_test_network:silence(
                inet_rdma_test_network:connections(Network), Network
            ),
            resumed(A, B, Before),
            ct:pal("the link goes on ~b ms after its packets have vanished", [now_ms() - StartMs])
        end
     || _ <- [1, 2, 3]
    ],
    Logged = inet_rdma_test_traffic:logged(Traffic),
    %% If two nodes notice it at the same time, one may hear it from the other.
    ?assert(suspicions(A, B) + suspicions(B, A) > 0),
    inet_rdma_test_lasting:undisturbed(Traffic),
    %% Two lines for each change. Beside other work there may be more changes than cuts.
    Changes = lists:max([resumes(X, Y) || {X, Y} <- [{A, B}, {B, A}]]),
    [?assert(length(Lines) =< 2 * Changes) || {_, Lines} <- Logged],
    [inet_rdma_test_node:stop(Node) || Node <- Pair].

%% A link over which nothing goes notices it by the first packet at the latest.
an_idle_link_notices_with_the_first_packet(Config) ->
    Network = proplists:get_value(network, Config),
    [A, B] = hosts(Config, {?SUSPECT_AFTER_MS, 0}),
    Before = [resumes(X, Y) || {X, Y} <- [{A, B}, {B, A}]],
    ok = inet_rdma_test_network:silence(inet_rdma_test_network:connections(Network), Network),
    ok = inet_rdma_test_link:exercise(A, B),
    resumed(A, B, Before),
    ?assert(suspicions(A, B) > 0).

%% Nothing passes between the hosts, then all does: the link has waited.
a_link_waits_while_the_network_is_away(Config) ->
    Network = proplists:get_value(network, Config),
    [A, B] = hosts(Config, {?SUSPECT_AFTER_MS, ?SMALLEST_MS}),
    Traffic = inet_rdma_test_traffic:start(A, B),
    Before = [resumes(X, Y) || {X, Y} <- [{A, B}, {B, A}]],
    ok = inet_rdma_test_network:silence(Network),
    [
        inet_rdma_test_wait:until({suspected, name(X)}, 20000, fun() -> suspicions(X, Y) > 0 end)
     || {X, Y} <- [{A, B}, {B, A}]
    ],
    %% A suspected path is not lost.
    ?assertEqual(Before, [resumes(X, Y) || {X, Y} <- [{A, B}, {B, A}]]),
    no_losses(A, B),
    ok = inet_rdma_test_network:pass(Network),
    carried(A, B),
    inet_rdma_test_lasting:undisturbed(Traffic).

%% The kernel ends the connection of a path that is suspected: that is a loss, told once, before the
%% link goes on.
suspected_is_lost(Config) ->
    Network = proplists:get_value(network, Config),
    [A, B] = hosts(Config, {?SUSPECT_AFTER_MS, ?SMALLEST_MS}),
    ok = call(A, inet_rdma_test_events, install, []),
    Traffic = inet_rdma_test_traffic:start_small(A, B),
    Before = [resumes(X, Y) || {X, Y} <- [{A, B}, {B, A}]],
    ok = inet_rdma_test_network:silence(Network),
    inet_rdma_test_wait:until(suspected, 20000, fun() -> suspicions(A, B) > 0 end),
    ok = call(A, inet_rdma_test_remote, end_part, [socket]),
    inet_rdma_test_wait:until(lost, 20000, fun() ->
        not call(A, inet_rdma_test_remote, has_tcp, [])
    end),
    ok = inet_rdma_test_network:pass(Network),
    resumed(A, B, Before),
    carried(A, B),
    inet_rdma_test_lasting:undisturbed(Traffic),
    Told = [
        Event
     || {_, #{inet_rdma := #{event := Event}}} <- call(A, inet_rdma_test_events, logged, [])
    ],
    ?assertMatch([lost, restored | _], Told),
    ?assertEqual(length([lost || lost <- Told]), length([restored || restored <- Told])).

%% The node whose packets arrive, and whose peer's do not, suspects the connection. Neither node
%% ends the link.
one_way_alone(Config) ->
    Network = proplists:get_value(network, Config),
    [A, B] = hosts(Config, {?SMALLEST_MS, 0}),
    Traffic = inet_rdma_test_traffic:start(A, B),
    Before = [resumes(X, Y) || {X, Y} <- [{A, B}, {B, A}]],
    ok = inet_rdma_test_network:silence_from(b, Network),
    ok = write(A, B),
    inet_rdma_test_wait:until(suspected, 20000, fun() -> suspicions(A, B) > 0 end),
    %% Longer than the attempts that would end a link whose path is lost.
    ok = inet_rdma_test_wait:holds(
        unresumed,
        8000,
        fun() -> [resumes(X, Y) || {X, Y} <- [{A, B}, {B, A}]] =:= Before end
    ),
    ok = inet_rdma_test_network:pass(Network),
    carried(A, B),
    inet_rdma_test_lasting:undisturbed(Traffic).

%% The option of one node is enough; the other side, which has its own, or none, follows.
one_side_alone(Config) ->
    Network = proplists:get_value(network, Config),
    [A, B] = hosts(Config, {0, ?SMALLEST_MS}),
    Traffic = inet_rdma_test_traffic:start_small(A, B),
    Before = [resumes(X, Y) || {X, Y} <- [{A, B}, {B, A}]],
    ok = inet_rdma_test_network:silence(inet_rdma_test_network:connections(Network), Network),
    ok = write(B, A),
    resumed(A, B, Before),
    ?assertEqual([false, true], [suspicions(X, Y) > 0 || {X, Y} <- [{A, B}, {B, A}]]),
    inet_rdma_test_lasting:undisturbed(Traffic).

%% Without the option TCP decides, which takes minutes.
without_the_option_tcp_decides(Config) ->
    Network = proplists:get_value(network, Config),
    [A, B] = hosts(Config, {0, 0}),
    Traffic = inet_rdma_test_traffic:start_small(A, B),
    ok = inet_rdma_test_network:silence(inet_rdma_test_network:connections(Network), Network),
    inet_rdma_test_wait:holds(
        no_loss,
        ?STOPPED_MS,
        fun() -> [losses(X, Y) || {X, Y} <- [{A, B}, {B, A}]] =:= [0, 0] end
    ),
    ok = inet_rdma_test_network:pass(Network),
    inet_rdma_test_lasting:undisturbed(Traffic).

%% The kernel of a peer that is stopped answers, also when its buffers are full.
a_stopped_peer_is_not_suspected(Config) ->
    [A, B] = pair(Config, ?SMALLEST_MS),
    Traffic = inet_rdma_test_traffic:start(A, B),
    inet_rdma_test_node:suspend(B),
    receive
    after ?STOPPED_MS -> ok
    end,
    ?assertEqual(0, losses(A, B)),
    inet_rdma_test_node:resume(B),
    inet_rdma_test_lasting:undisturbed(Traffic),
    no_losses(A, B).

%% A node that was stopped itself, as its whole machine may be.
a_node_that_was_stopped_suspects_nobody(Config) ->
    [A, B] = pair(Config, ?SMALLEST_MS),
    [
        begin
            [inet_rdma_test_node:suspend(Node) || Node <- Nodes],
            receive
            after ?STOPPED_MS -> ok
            end,
            [inet_rdma_test_node:resume(Node) || Node <- Nodes],
            ok = inet_rdma_test_link:exercise(A, B),
            %% Looks that were due meanwhile have been made.
            inet_rdma_test_wait:holds(no_loss, 2 * ?SMALLEST_MS, fun() ->
                losses(A, B) + losses(B, A) =:= 0
            end)
        end
     || Nodes <- [[A], [B], [A, B]]
    ].

%% More busy processes than processors, inside both nodes and beside them.
starved_nodes_suspect_nobody(Config) ->
    [A, B] = pair(Config, ?SMALLEST_MS),
    Count = 4 * erlang:system_info(logical_processors_available),
    Busy = [call(Node, inet_rdma_test_remote, spin, [Count]) || Node <- [A, B]],
    Traffic = inet_rdma_test_traffic:start_small(A, B),
    Beside = [
        open_port({spawn_executable, "/bin/sh"}, [{args, ["-c", "while :; do :; done"]}])
     || _ <- lists:seq(1, Count)
    ],
    OsPids = [OsPid || Port <- Beside, {os_pid, OsPid} <- [erlang:port_info(Port, os_pid)]],
    receive
    after starved_seconds() * 1000 -> ok
    end,
    _ = os:cmd(lists:flatten(["kill -9", [[" ", integer_to_list(OsPid)] || OsPid <- OsPids]])),
    [
        true = call(Node, erlang, exit, [Spinner, kill])
     || {Node, Spinners} <- lists:zip([A, B], Busy), Spinner <- Spinners
    ],
    inet_rdma_test_lasting:undisturbed(Traffic),
    ct:pal("starved for ~b s", [starved_seconds()]),
    no_losses(A, B).

%% A peer that stays stopped ends with the tick time, as without the option.
stopped_for_good(Config) ->
    [A, B] = pair(Config, ?SMALLEST_MS, 8),
    ok = call(A, inet_rdma_test_log, install, []),
    Watcher = inet_rdma_test_node:watch(A, B),
    inet_rdma_test_node:suspend(B),
    ok = inet_rdma_test_wait:holds(unsuspected, ?STOPPED_MS, fun() -> suspicions(A, B) =:= 0 end),
    inet_rdma_test_wait:until({nodedown_at, name(A)}, 20000, fun() ->
        call(A, inet_rdma_test_watch, seen, [Watcher]) =/= []
    end),
    ct:pal("~p", [call(A, inet_rdma_test_log, lines, [])]).

%% The process of an attempt to resume is killed when it has given up the TCP connection: its node
%% makes another one.
attempt_without_an_end(Config) ->
    [A, B] = pair(Config, 0),
    ok = call(A, inet_rdma_test_log, install, []),
    Before = resumes(A, B),
    %% So B does not make it.
    inet_rdma_test_node:suspend(B),
    [{_, Port}] = call(A, erlang, system_info, [dist_ctrl]),
    {ok, <<_:16/binary>>} = call(A, inet_rdma_port, command, [Port, give_up_tcp, <<1000:64/native>>]),
    inet_rdma_test_wait:until(told, 30000, fun() ->
        call(A, inet_rdma_test_log, contains, ["lost its TCP connection"])
    end),
    inet_rdma_test_node:resume(B),
    inet_rdma_test_wait:until(resumed, 20000, fun() -> resumes(A, B) > Before end),
    ok = inet_rdma_test_link:exercise(A, B).

%% Shared memory is lost only with the peer's process: there is nothing to ask.
beside_shared_memory(Config) ->
    [A, B] = pair(Config, ?SMALLEST_MS),
    ?assertEqual(shm, inet_rdma_test_link:fabric(A, B)),
    inet_rdma_test_node:suspend(B),
    receive
    after ?STOPPED_MS -> ok
    end,
    inet_rdma_test_node:resume(B),
    ok = inet_rdma_test_link:exercise(A, B),
    no_losses(A, B).

no_losses(A, B) -> ?assertEqual([0, 0], [losses(X, Y) || {X, Y} <- [{A, B}, {B, A}]]).

%% The link goes on, over the path that was suspected or over another one.
carried(A, B) ->
    ok = inet_rdma_test_link:exercise(A, B),
    [?assertEqual(false, is_suspended(X, Y)) || {X, Y} <- [{A, B}, {B, A}]].

%% A node on either host, connected.
hosts(Config, {OfA, OfB}) ->
    Network = proplists:get_value(network, Config),
    [A, B] =
        Pair = inet_rdma_test_node:start_all([
            begin
                Options = options(Config, SuspectAfterMs, ?TICKTIME),
                Name =
                    inet_rdma_test_node:unique(atom_to_list(Host)) ++ "@" ++
                        inet_rdma_test_network:address(Host, Network),
                {atom_to_list(Host), Options#{
                    long => true, name => Name, under => inet_rdma_test_network:under(Host, Network)
                }}
            end
         || {Host, SuspectAfterMs} <- [{a, OfA}, {b, OfB}]
        ]),
    ok = inet_rdma_test_node:connect(A, B),
    Pair.

%% Two nodes of this host, connected.
pair(Config, SuspectAfterMs) -> pair(Config, SuspectAfterMs, ?TICKTIME).

pair(Config, SuspectAfterMs, TickTime) ->
    inet_rdma_test_node:connected_pair(options(Config, SuspectAfterMs, TickTime)).

options(Config, SuspectAfterMs, TickTime) ->
    inet_rdma_test_paths:options(Config, #{
        rdma => [{suspect_after_ms, SuspectAfterMs}, {survive_ms, 600000}],
        args => ["-kernel", "net_ticktime", integer_to_list(TickTime)]
    }).

resumed(A, B, Before) ->
    inet_rdma_test_wait:until(resumed, 20000, fun() ->
        Now = [resumes(X, Y) || {X, Y} <- [{A, B}, {B, A}]],
        lists:all(fun({Old, New}) -> New > Old end, lists:zip(Before, Now)) andalso
            not is_suspended(A, B) andalso not is_suspended(B, A)
    end).

is_suspended(Node, Peer) -> maps:get(suspended, info(Node, Peer)).

resumes(Node, Peer) -> maps:get(resumes, info(Node, Peer)).

losses(Node, Peer) -> maps:get(losses, info(Node, Peer)).

%% Writes from the side that watches the path: the processes of its traffic may all wait for the
%% other side, whose host owes no answer then.
write(Node, Peer) ->
    %% A link that is busy has written already.
    To = {no_such_name, inet_rdma_test_node:name(Peer)},
    _ = inet_rdma_test_node:call(Node, erlang, send, [To, written, [nosuspend]]),
    ok.

suspicions(Node, Peer) -> maps:get(suspicions, info(Node, Peer)).

info(Node, Peer) -> call(Node, inet_rdma, info, [name(Peer)]).

now_ms() -> erlang:monotonic_time(millisecond).

%% What looks like the death of a node, and is none: refusals and closes by what stands between
%% nodes that live, a name server that has forgotten the node, a listener that is away, a lack of
%% descriptors. No node hears of it, and nothing is lost.
-module(living_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_node, [call/4, name/1]).
-import(inet_rdma_test_lasting, [resumes/2, resumed/3, watch/2, no_nodedown/1, undisturbed/1]).

-export([all/0, suite/0, groups/0, init_per_testcase/2]).
-export([
    firewall_between_two_of_three/1,
    firewall_without_detours/1,
    firewall_between_hidden_hosts/1,
    a_proxy_that_restarts_ends_no_link/1,
    listener_is_away/1,
    an_epmd_that_forgets_ends_no_link/1,
    a_node_without_descriptors_keeps_its_link/1,
    cuts_by_either_host_end_no_link/1
]).

%% Longer than any wait of the cases: no end may come from there.
-define(SURVIVE_MS, 600000).
-define(TICKTIME_S, 600).
-define(FIREWALL_MS, 5000).
%% The option of a node whose proxy is away for a much shorter time, on a busy machine, too.
-define(REFUSED_MS, 20000).
-define(PROXY_MS, 1500).
%% Shorter than the time for which a refusal of an address of the peer's own is no death, 1 s.
-define(LISTENER_MS, 300).
-define(LOSSES, 5).
-define(CUTS, 20).

suite() ->
    [
        {timetrap, {minutes, 6}},
        {ct_hooks, [{inet_rdma_test_nodes, [only_rdma, {hosts, [a, b, c]}]}]}
    ].

all() ->
    [{group, Group} || {Group, _, _} <- groups()].

%% What hosts and neighbours show does not depend on the path.
groups() ->
    [
        {tcp, [], [firewall_between_two_of_three, firewall_without_detours | on_each_path()]},
        {tls, [], [firewall_between_two_of_three, firewall_between_hidden_hosts | on_each_path()]}
    ].

on_each_path() ->
    [
        a_proxy_that_restarts_ends_no_link,
        listener_is_away,
        an_epmd_that_forgets_ends_no_link,
        a_node_without_descriptors_keeps_its_link,
        cuts_by_either_host_end_no_link
    ].

init_per_testcase(Case, Config) ->
    Firewalls = [
        firewall_between_two_of_three,
        firewall_without_detours,
        firewall_between_hidden_hosts,
        listener_is_away
    ],
    case
        [
            Why
         || Why <-
                why_not(Case) ++
                    [inet_rdma_test_hosts:why_no_firewall() || lists:member(Case, Firewalls)],
            Why =/= none
        ]
    of
        [] -> inet_rdma_test_hosts:needed(Config, 3);
        [Why | _] -> inet_rdma_test_link:skip(Why)
    end.

why_not(a_node_without_descriptors_keeps_its_link) ->
    [inet_rdma_test_limit:why_not(), inet_rdma_test_cutter:why_not()];
why_not(Case) when
    Case =:= cuts_by_either_host_end_no_link;
    Case =:= an_epmd_that_forgets_ends_no_link;
    Case =:= listener_is_away
->
    [inet_rdma_test_cutter:why_not()];
why_not(_) ->
    [].

%% It resets and refuses all that goes between the two, in the name of either. The third node knows
%% better.
firewall_between_two_of_three(Config) -> firewall([], [], Config).

%% It says so, too, where it carries no link of others.
firewall_without_detours(Config) -> firewall([], [{detour, false}], Config).

%% Hosts that do not say which boot they are, are not one host.
firewall_between_hidden_hosts(Config) ->
    firewall(
        [
            "unshare",
            "-m",
            "sh",
            "-c",
            "mount -t proc -o subset=pid proc /proc && exec \"$@\"",
            "sh"
        ],
        [],
        Config
    ).

firewall(Under, Rdma, Config) ->
    Hosts = proplists:get_value(hosts, Config),
    [A, B, _] = Nodes = nodes([a, b, c], #{under => Under, rdma => Rdma}, Config),
    ok = inet_rdma_test_node:mesh(Nodes),
    Watchers = lists:append([watch(X, Y) || X <- Nodes, Y <- Nodes, name(X) < name(Y)]),
    Traffic = inet_rdma_test_traffic:start_small(A, B),
    Before = resumes(A, B),
    ok = inet_rdma_test_hosts:refuse(a, b, Hosts),
    receive
    after ?FIREWALL_MS -> ok
    end,
    ok = inet_rdma_test_hosts:admit(Hosts),
    resumed(A, B, Before),
    undisturbed(Traffic),
    no_nodedown(Watchers).

%% All connections go through it. It ends, and another one takes its place.
a_proxy_that_restarts_ends_no_link(Config) ->
    #{nodes := [A, B]} =
        Proxied = inet_rdma_test_proxied:start(
            proplists:get_value(priv_dir, Config),
            inet_rdma_test_node:alone(options(#{rdma => [{refused_ms, ?REFUSED_MS}]}, Config)),
            proplists:get_value(hosts, Config)
        ),
    ok = inet_rdma_test_node:connect(A, B),
    outlives(A, B, [
        fun() ->
            ok = inet_rdma_test_proxied:stop_listening(Proxied),
            receive
            after ?PROXY_MS -> ok
            end,
            ok = inet_rdma_test_proxied:listen(Proxied)
        end
    ]).

%% The host of the node refuses connections to its port for a moment, and the node is stopped, so
%% that it does not connect itself; with EPMD, and without.
listener_is_away(Config) ->
    Hosts = proplists:get_value(hosts, Config),
    [
        begin
            [A, B] = pair(#{args => Args}, Config),
            {_, Port} = call(B, inet_rdma_test_remote, listens, []),
            outlives(A, B, [
                fun() ->
                    inet_rdma_test_node:suspend(B),
                    ok = inet_rdma_test_hosts:refuse_port(b, Port, Hosts),
                    ok = inet_rdma_test_hosts:cut(a, b, Hosts),
                    receive
                    after ?LISTENER_MS -> ok
                    end,
                    ok = inet_rdma_test_hosts:admit(Hosts),
                    inet_rdma_test_node:resume(B)
                end
            ]),
            inet_rdma_test_node:stop_all()
        end
     || Args <- [[], ["-start_epmd", "false", "-erl_epmd_port", "15400"]]
    ].

%% The name server of the node's host is another one, which does not know the node.
an_epmd_that_forgets_ends_no_link(Config) ->
    Hosts = proplists:get_value(hosts, Config),
    [A, B] = pair(#{}, Config),
    ok = inet_rdma_test_hosts:end_program(b, "epmd", Hosts),
    ok = inet_rdma_test_hosts:run(b, "epmd -daemon", Hosts),
    outlives(A, B, losses(Hosts)).

%% The node can accept nothing.
a_node_without_descriptors_keeps_its_link(Config) ->
    Hosts = proplists:get_value(hosts, Config),
    [A, B] = pair(#{}, Config),
    %% The first loss opens files.
    outlives(A, B, [fun() -> ok = inet_rdma_test_hosts:cut(a, b, Hosts) end]),
    ok = inet_rdma_test_limit:leave_descriptors(B, 0),
    outlives(A, B, losses(Hosts)).

%% By the kernel of one host, then by that of the other one.
losses(Hosts) ->
    [
        fun() -> ok = inet_rdma_test_hosts:cut(X, Y, Hosts) end
     || {X, Y} <- [{a, b}, {b, a}], _ <- lists:seq(1, ?LOSSES)
    ].

%% Either host's kernel ends the connection.
cuts_by_either_host_end_no_link(Config) ->
    Hosts = proplists:get_value(hosts, Config),
    [A, B] = pair(#{}, Config),
    Traffic = inet_rdma_test_traffic:start_small(A, B),
    Watchers = watch(A, B),
    [
        begin
            Before = resumes(A, B),
            ok = inet_rdma_test_hosts:cut(X, Y, Hosts),
            resumed(A, B, Before)
        end
     || _ <- lists:seq(1, ?CUTS div 2), {X, Y} <- [{a, b}, {b, a}]
    ],
    undisturbed(Traffic),
    no_nodedown(Watchers).

%% At each disturbance the link gets another connection, and no node hears of its end.
outlives(A, B, Disturbances) ->
    Watchers = watch(A, B),
    _ = [
        begin
            Before = resumes(A, B),
            _ = Disturb(),
            resumed(A, B, Before)
        end
     || Disturb <- Disturbances
    ],
    ok = inet_rdma_test_link:exercise(A, B),
    no_nodedown(Watchers).

%% Node A has connected to node B.
pair(More, Config) ->
    [A, B] = nodes([a, b], inet_rdma_test_node:alone(maps:merge(#{args => []}, More)), Config),
    ok = inet_rdma_test_node:connect(A, B),
    [A, B].

nodes(Hosts, More, Config) ->
    Options = options(More, Config),
    inet_rdma_test_node:start_all([
        {
            atom_to_list(Host),
            inet_rdma_test_hosts:options(Host, proplists:get_value(hosts, Config), Options)
        }
     || Host <- Hosts
    ]).

options(More, Config) ->
    Args = ["-kernel", "net_ticktime", integer_to_list(?TICKTIME_S) | maps:get(args, More, [])],
    Rdma = [{survive_ms, ?SURVIVE_MS} | maps:get(rdma, More, [])],
    maps:merge(More, inet_rdma_test_paths:options(Config, #{rdma => Rdma, args => Args})).

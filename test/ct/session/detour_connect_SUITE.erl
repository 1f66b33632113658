%% The option `detour connect`: nodes that cannot reach each other connect over a third one. In the
%% groups tcp, tls and inet6 each node has a host of its own, in the group here the nodes find each
%% other by files.
-module(detour_connect_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("kernel/include/net_address.hrl").

-import(inet_rdma_test_node, [call/4, name/1]).
-import(inet_rdma_test_hosts, [both/2]).
-import(inet_rdma_test_link, [via/2, await_via/2, await_direct/2]).
-import(inet_rdma_test_lasting, [watch/2, no_nodedown/1, undisturbed/1]).

-export([all/0, suite/0, groups/0, init_per_testcase/2]).
-export([
    over_a_neighbour/1,
    without_the_option_a_connect_fails/1,
    without_a_neighbour_a_connect_fails/1,
    another_neighbour_takes_over/1,
    both_at_once/1,
    one_behind_the_other/1,
    ended_in_the_middle/1,
    neighbours_are_not_asked_for_an_unknown_node/1
]).
-export([
    a_refused_address_is_reached_over_a_neighbour/1,
    neighbour_is_off/1,
    neighbour_without_a_link/1,
    a_required_fabric_allows_no_detour/1,
    a_hidden_node_connects_over_a_neighbour/1
]).

-define(TICKTIME, "60").
%% More than the default of 7, for a busy machine.
-define(SETUP_SECONDS, "15").
-define(HERE, {127, 0, 0, 1}).
%% Nobody listens there (tcpmux).
-define(NOBODY, "1").

suite() ->
    [
        {timetrap, {minutes, 4}},
        {ct_hooks, [{inet_rdma_test_nodes, [only_rdma, {hosts, [a, b, c, d]}]}]}
    ].

all() ->
    [{group, Group} || {Group, _, _} <- groups()].

groups() ->
    [
        {tcp, [], [
            over_a_neighbour,
            without_the_option_a_connect_fails,
            without_a_neighbour_a_connect_fails,
            another_neighbour_takes_over,
            both_at_once,
            one_behind_the_other,
            ended_in_the_middle,
            neighbours_are_not_asked_for_an_unknown_node
        ]},
        {tls, [], [over_a_neighbour, another_neighbour_takes_over]},
        {inet6, [], [over_a_neighbour]},
        {here, [], [
            a_refused_address_is_reached_over_a_neighbour,
            neighbour_is_off,
            neighbour_without_a_link,
            a_required_fabric_allows_no_detour,
            a_hidden_node_connects_over_a_neighbour
        ]}
    ].

init_per_testcase(Case, Config) ->
    case proplists:is_defined(options, Config) of
        true ->
            inet_rdma_test_hosts:needed(
                Config, hosts(Case), proplists:get_value(family, Config, inet)
            );
        false ->
            Config
    end.

hosts(another_neighbour_takes_over) -> 4;
hosts(_) -> 3.

%% The link is one like any other, but for its way, which becomes the direct one when that is there.
over_a_neighbour(Config) ->
    {Hosts, [A, B, C]} = cut(Config),
    ?assertEqual(pong, call(A, net_adm, ping, [name(C)])),
    [?assertEqual(name(B), await_via(X, Y)) || {X, Y} <- [{A, C}, {C, A}]],
    Neighbour = inet_rdma_test_hosts:address(b, Hosts),
    ?assertMatch(
        {ok, #net_address{address = {Neighbour, _}}},
        call(A, net_kernel, node_info, [name(C), address])
    ),
    Watchers = watch(A, C),
    Traffic = inet_rdma_test_traffic:start(A, C),
    ok = inet_rdma_test_link:exercise(A, C),
    [?assertEqual(name(B), via(X, Y)) || {X, Y} <- [{A, C}, {C, A}]],
    undisturbed(Traffic),
    Behind = inet_rdma_test_traffic:start_small(A, C),
    ok = inet_rdma_test_hosts:pass(Hosts),
    [await_direct(X, Y) || {X, Y} <- [{A, C}, {C, A}]],
    undisturbed(Behind),
    none_carried(B),
    no_nodedown(Watchers).

without_the_option_a_connect_fails(Config) ->
    {_Hosts, [A, B, C]} = cut(Config, fun(_) -> [] end),
    ?assertEqual(pang, call(A, net_adm, ping, [name(C)])),
    ?assertEqual([name(B)], call(A, erlang, nodes, [])).

%% Without a neighbour, and with one that has no link to the node either.
without_a_neighbour_a_connect_fails(Config) ->
    {Hosts, [A, B, C]} = started(Config, fun connects/1),
    ok = inet_rdma_test_hosts:silence(both(a, c) ++ both(b, c), Hosts),
    ?assertEqual(pang, call(A, net_adm, ping, [name(C)])),
    ok = inet_rdma_test_node:connect(A, B),
    ?assertEqual(pang, call(A, net_adm, ping, [name(C)])),
    ?assertMatch(#{detours_asked := 1}, counts(A)),
    Before = inet_rdma_test_usage:of_node(A),
    ?assertEqual(pang, call(A, net_adm, ping, [name(C)])),
    ?assertEqual([], call(A, inet_rdma_test_setups, bounded, [])),
    ok = inet_rdma_test_usage:await(A, Before).

%% Another one carries the link.
another_neighbour_takes_over(Config) ->
    {_Hosts, [A, B, C, D]} = cut(Config),
    ok = inet_rdma_test_node:connect(A, D),
    ok = inet_rdma_test_node:connect(D, C),
    ?assertEqual(pong, call(A, net_adm, ping, [name(C)])),
    Via = await_via(A, C),
    Watchers = watch(A, C),
    Traffic = inet_rdma_test_traffic:start_small(A, C),
    {[Neighbour], [Other]} = lists:partition(fun(Node) -> name(Node) =:= Via end, [B, D]),
    ok = inet_rdma_test_node:stop(Neighbour),
    inet_rdma_test_wait:until(over_the_other, 20000, fun() -> via(A, C) =:= name(Other) end),
    undisturbed(Traffic),
    no_nodedown(Watchers).

%% Both nodes have the option, and one link comes of it.
both_at_once(Config) -> simultaneous(Config, 0).

%% The second one is still trying the direct way when the first one's connection comes to it, and
%% its own connection takes precedence, by the nodes' names.
one_behind_the_other(Config) -> simultaneous(Config, 1000000).

simultaneous(Config, LaterMicros) ->
    {_Hosts, [A, B, C]} = cut(Config, fun(_) -> [{detour, connect}] end),
    Now = os:system_time(microsecond) + 100000,
    Self = self(),
    Pids = [
        spawn_link(fun() ->
            Self ! {self(), call(X, inet_rdma_test_remote, connect_at, [name(Y), AtMicros])}
        end)
     || {X, Y, AtMicros} <- [{A, C, Now}, {C, A, Now + LaterMicros}]
    ],
    ?assertEqual([true, true], [
        receive
            {Pid, Answer} -> Answer
        end
     || Pid <- Pids
    ]),
    [?assertEqual(name(B), await_via(X, Y)) || {X, Y} <- [{A, C}, {C, A}]],
    ok = inet_rdma_test_link:exercise(A, C),
    inet_rdma_test_wait:until(one_carried, 20000, fun() ->
        case call(B, inet_rdma_detours, relayed, []) of
            [_] -> true;
            Carried -> Carried
        end
    end).

%% net_kernel may kill the process that makes the link, whatever that waits for: no other process is
%% left.
ended_in_the_middle(Config) ->
    {_Hosts, [A, B, C]} = cut(Config),
    [
        begin
            Before = call(A, inet_rdma_test_setups, supervisors, []),
            _ = call(A, inet_rdma_test_setups, ping, [name(C)]),
            Setup = inet_rdma_test_wait:until(set_up, 20000, fun() ->
                case call(A, inet_rdma_test_setups, supervisors, []) -- Before of
                    [Pid] -> {ok, Pid};
                    Other -> Other
                end
            end),
            inet_rdma_test_wait:until(asks, 20000, fun() ->
                Bounded = call(A, inet_rdma_test_setups, bounded, []),
                maps:get(detours_asked, counts(A), 0) =:= Asked andalso Bounded =/= [] orelse
                    Bounded
            end),
            true = call(A, erlang, exit, [Setup, kill]),
            inet_rdma_test_wait:until(none_left, 2000, fun() ->
                Bounded = call(A, inet_rdma_test_setups, bounded, []),
                Bounded =:= [] orelse Bounded
            end),
            %% For the second round: the neighbour does not answer.
            inet_rdma_test_node:suspend(B)
        end
     || Asked <- [0, 1]
    ],
    inet_rdma_test_node:resume(B),
    ?assertEqual(pong, call(A, net_adm, ping, [name(C)])).

%% The address at which the node is looked up refuses. The nodes share memory, which the link gets
%% with the direct way.
a_refused_address_is_reached_over_a_neighbour(Config) ->
    #{nodes := [A, B, C]} = Found = found(Config, #{a => [{detour, connect}]}),
    ?assertEqual(pong, call(A, net_adm, ping, [name(C)])),
    [?assertEqual(name(B), await_via(X, Y)) || {X, Y} <- [{A, C}, {C, A}]],
    ok = inet_rdma_test_link:exercise(A, C),
    [
        ?assertMatch(#{fabric := tcp, detoured := true}, call(X, inet_rdma, info, [name(Y)]))
     || {X, Y} <- [{A, C}, {C, A}]
    ],
    Watchers = watch(A, C),
    ok = finds(a, c, Found),
    [await_direct(X, Y) || {X, Y} <- [{A, C}, {C, A}]],
    ok = inet_rdma_test_link:await(A, C, shm),
    ok = inet_rdma_test_link:exercise(A, C),
    no_nodedown(Watchers).

%% The name server of its host says that there is none: nobody else is asked.
neighbours_are_not_asked_for_an_unknown_node(Config) ->
    {_Hosts, [A, _, _]} = cut(Config),
    ?assertEqual(
        pang,
        call(A, net_adm, ping, [list_to_atom("nobody@" ++ hd(inet_rdma_test_hosts:names([b])))])
    ),
    ?assertEqual(false, is_map_key(detours_asked, counts(A))).

neighbour_is_off(Config) ->
    #{nodes := [A, _, C]} = found(Config, #{a => [{detour, connect}], b => [{detour, false}]}),
    ?assertEqual(pang, call(A, net_adm, ping, [name(C)])),
    ?assertMatch(#{detours_asked := 1}, counts(A)).

neighbour_without_a_link(Config) ->
    #{nodes := [A, B, C]} = Found = found(Config, #{a => [{detour, connect}]}),
    true = call(B, erlang, disconnect_node, [name(C)]),
    inet_rdma_test_wait:until(disconnected, 10000, fun() ->
        call(B, inet_rdma, info, [name(C)]) =:= undefined
    end),
    ?assertEqual(pang, call(A, net_adm, ping, [name(C)])),
    ok = finds(a, c, Found),
    ?assertEqual(pong, call(A, net_adm, ping, [name(C)])),
    ?assertMatch(#{detoured := false}, call(A, inet_rdma, info, [name(C)])).

%% A link that may not stay on TCP goes over no neighbour, whichever node says so.
a_required_fabric_allows_no_detour(Config) ->
    [
        begin
            #{nodes := [A, _, C]} = found(
                Config,
                maps:merge_with(
                    fun(_, X, Y) -> X ++ Y end,
                    #{a => [{detour, connect}]},
                    #{Of => [{required, true}]}
                )
            ),
            ?assertEqual(pang, call(A, net_adm, ping, [name(C)])),
            ?assertEqual(Asked, maps:get(detours_asked, counts(A), 0))
        end
     || {Of, Asked} <- [{a, 0}, {c, 1}]
    ].

a_hidden_node_connects_over_a_neighbour(Config) ->
    #{nodes := [A, B, C]} = found(Config, #{a => [{detour, connect}]}, ["-hidden"]),
    ?assertEqual(pong, call(A, net_adm, ping, [name(C)])),
    ?assertEqual([B, C], [
        Node
     || Node <- [B, C], lists:member(name(Node), call(A, erlang, nodes, [hidden]))
    ]),
    ?assertEqual(name(B), await_via(A, C)).

%% A node on each host; the first one and the third one cannot reach each other, and both have a
%% link to the second.
cut(Config) -> cut(Config, fun connects/1).

cut(Config, Rdma) ->
    {Hosts, [A, B, C | _]} = Made = started(Config, Rdma),
    ok = inet_rdma_test_hosts:silence(both(a, c), Hosts),
    ok = inet_rdma_test_node:connect(A, B),
    ok = inet_rdma_test_node:connect(B, C),
    Made.

connects(a) -> [{detour, connect}];
connects(_) -> [].

started(Config, Rdma) ->
    Hosts = proplists:get_value(hosts, Config),
    Args = [
        "-connect_all",
        "false",
        "-kernel",
        "net_ticktime",
        ?TICKTIME,
        "-kernel",
        "net_setuptime",
        ?SETUP_SECONDS
    ],
    {Hosts,
        inet_rdma_test_node:start_all([
            {
                atom_to_list(Host),
                inet_rdma_test_hosts:options(
                    Host,
                    Hosts,
                    inet_rdma_test_paths:options(
                        Config, #{rdma => Rdma(Host), args => Args}
                    )
                )
            }
         || Host <- inet_rdma_test_hosts:hosts(Hosts)
        ])}.

%% Three nodes of this host. The first finds the second, which finds the third; the first is led to
%% a port of nobody in place of the third.
found(Config, Rdma) -> found(Config, Rdma, []).

found(Config, Rdma, Args) ->
    Names = maps:from_list([
        {Key, inet_rdma_test_node:unique(atom_to_list(Key))}
     || Key <- [a, b, c]
    ]),
    Found = #{
        directory => filename:join(proplists:get_value(priv_dir, Config), maps:get(a, Names)),
        names => Names
    },
    [ok = filelib:ensure_dir(file(Key, Key, Found)) || Key <- [a, b, c]],
    [A, B, C] =
        Nodes = inet_rdma_test_node:start_all([
            {atom_to_list(Key), #{
                name => maps:get(Key, Names),
                rdma => maps:get(Key, Rdma, []),
                args => Args ++
                    [
                        "-connect_all",
                        "false",
                        "-start_epmd",
                        "false",
                        "-epmd_module",
                        "inet_rdma_test_epmd",
                        "-inet_rdma_test_epmd",
                        filename:dirname(file(Key, Key, Found)),
                        "-kernel",
                        "inet_dist_use_interface",
                        lists:flatten(io_lib:format("~0p", [?HERE]))
                    ]
            }}
         || Key <- [a, b, c]
        ]),
    [ok = finds(X, Y, Found) || {X, Y} <- [{a, b}, {b, c}]],
    ok = file:write_file(file(a, c, Found), ?NOBODY),
    [ok = inet_rdma_test_link:connect(X, Y) || {X, Y} <- [{A, B}, {B, C}]],
    Found#{nodes => Nodes}.

file(Of, Key, #{directory := Directory, names := Names}) ->
    filename:join([Directory, atom_to_list(Of), maps:get(Key, Names)]).

finds(X, Y, Found) ->
    {ok, _} = file:copy(file(Y, Y, Found), file(X, Y, Found)),
    ok.

none_carried(Node) ->
    inet_rdma_test_wait:until(none_carried, 20000, fun() ->
        Carried = call(Node, inet_rdma_detours, relayed, []),
        Carried =:= [] orelse Carried
    end).

counts(Node) -> maps:from_list(call(Node, inet_rdma_links, counts, [])).

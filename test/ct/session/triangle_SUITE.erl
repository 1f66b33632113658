%% Networks that part only some of the hosts: the way between two of three or four nodes is cut, and
%% both reach the others. The link between the two goes over one of these, its traffic is checked,
%% and no node hears of it.
-module(triangle_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_node, [call/4, name/1]).
-import(inet_rdma_test_hosts, [both/2]).
-import(inet_rdma_test_link, [via/2, await_via/2, await_direct/2]).
-import(inet_rdma_test_lasting, [nodes/3, watch/2, no_nodedown/1, await_nodedown/1, undisturbed/1]).

-export([all/0, suite/0, groups/0, init_per_testcase/2]).
-export([
    a_cut_link_goes_over_the_third_node/1,
    cut_one_way/1,
    cut_at_rest/1,
    two_cut_links_go_over_neighbours/1,
    another_neighbour_carries_the_link/1,
    neighbour_falls_silent/1,
    without_detours_a_cut_ends_the_link/1,
    direct_again_in_spite_of_crashes/1,
    mnesia_goes_on/1,
    far_leg_falls_silent/1,
    neighbour_gives_up/1
]).

%% Long enough that no link ends by it.
-define(TICKTIME, 60).
%% For links that are to end.
-define(SHORT_TICKTIME, 8).
%% Ticks come after minutes.
-define(LONG_TICKTIME, 600).
-define(TABLE, inet_rdma_test_table).
-define(GLOBAL_NAME, inet_rdma_test_triangle).

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
            a_cut_link_goes_over_the_third_node,
            cut_one_way,
            cut_at_rest,
            two_cut_links_go_over_neighbours,
            another_neighbour_carries_the_link,
            neighbour_falls_silent,
            without_detours_a_cut_ends_the_link,
            direct_again_in_spite_of_crashes,
            mnesia_goes_on,
            far_leg_falls_silent,
            neighbour_gives_up
        ]},
        {tls, [], [
            a_cut_link_goes_over_the_third_node,
            another_neighbour_carries_the_link,
            far_leg_falls_silent
        ]},
        {inet6, [], [a_cut_link_goes_over_the_third_node]}
    ].

init_per_testcase(mnesia_goes_on, Config) ->
    case code:lib_dir(mnesia) of
        {error, bad_name} -> inet_rdma_test_link:skip("Mnesia is not installed");
        _ -> inet_rdma_test_hosts:needed(Config, 3, proplists:get_value(family, Config, inet))
    end;
init_per_testcase(Case, Config) ->
    Count =
        case
            lists:member(Case, [
                two_cut_links_go_over_neighbours,
                another_neighbour_carries_the_link,
                neighbour_falls_silent,
                far_leg_falls_silent
            ])
        of
            true -> 4;
            false -> 3
        end,
    inet_rdma_test_hosts:needed(Config, Count, proplists:get_value(family, Config, inet)).

%% The link goes over the third node while the cut lasts, and directly again afterwards.
a_cut_link_goes_over_the_third_node(Config) ->
    {Hosts, [A, B, C]} = Made = mesh(Config),
    Watchers = watch_all(Made),
    ok = name_at(A),
    Traffic = inet_rdma_test_traffic:start(A, B),
    ok = inet_rdma_test_hosts:silence(both(a, b), Hosts),
    [?assertEqual(name(C), await_via(X, Y)) || {X, Y} <- [{A, B}, {B, A}]],
    [shown(X, Y, C) || {X, Y} <- [{A, B}, {B, A}]],
    undisturbed(Traffic),
    named_at(A, [A, B, C]),
    Behind = inet_rdma_test_traffic:start_small(A, B),
    [ok = call(Node, inet_rdma_test_log, install, []) || Node <- [A, B]],
    ok = inet_rdma_test_hosts:pass(Hosts),
    [await_direct(X, Y) || {X, Y} <- [{A, B}, {B, A}]],
    ?assertMatch([_], reported(A, B, <<" went over another node ">>)),
    undisturbed(Behind),
    Logged = lists:append([call(Node, inet_rdma_test_log, lines, []) || Node <- [A, B]]),
    Has = fun(Text) -> lists:any(fun(Line) -> string:find(Line, Text) =/= nomatch end, Logged) end,
    ?assert(Has("goes directly again"), Logged),
    ?assertNot(Has("lost its TCP connection"), Logged),
    inet_rdma_test_wait:until(none_carried, 20000, fun() ->
        case call(C, inet_rdma_detours, relayed, []) of
            [] -> true;
            Carried -> Carried
        end
    end),
    named_at(A, [A, B, C]),
    no_nodedown(Watchers).

%% The table names the neighbour, and the doctor the way that is cut.
shown(X, Y, Via) ->
    [Line] = [
        Line
     || Line <- inet_rdma_test_series:table(X), lists:prefix(atom_to_list(name(Y)), Line)
    ],
    ?assert(lists:member(atom_to_list(name(Via)), string:lexemes(Line, " ")), Line),
    ?assertMatch(#{detours := Count} when Count > 0, call(X, inet_rdma, info, [name(Y)])),
    [Text] = reported(X, Y, <<" is carried over ">>),
    [{Address, Port}] = [
        Listens
     || {Of, Listens} <- maps:to_list(call(X, inet_rdma_doctor_links, listeners, [])),
        Of =:= name(Y)
    ],
    ?assertMatch(
        {_, _},
        binary:match(
            Text, iolist_to_binary([Address, ", port ", integer_to_list(Port), ", is cut"])
        )
    ).

%% What the doctor of a node says of its link to another one, with these words.
reported(X, Y, Words) ->
    #{findings := Findings} = call(X, inet_rdma_doctor, report, []),
    [
        Text
     || #{about := links, text := Text} <- Findings,
        binary:match(Text, Words) =/= nomatch,
        binary:match(Text, atom_to_binary(name(Y))) =/= nomatch
    ].

%% Either node may be the one whose packets vanish.
cut_one_way(Config) ->
    {Hosts, [A, B, _]} = Made = mesh(Config),
    Watchers = watch_all(Made),
    [
        begin
            Traffic = inet_rdma_test_traffic:start_small(A, B),
            ok = inet_rdma_test_hosts:silence([Path], Hosts),
            [await_via(X, Y) || {X, Y} <- [{A, B}, {B, A}]],
            undisturbed(Traffic),
            ok = inet_rdma_test_hosts:pass(Hosts),
            [await_direct(X, Y) || {X, Y} <- [{A, B}, {B, A}]]
        end
     || Path <- both(a, b)
    ],
    no_nodedown(Watchers).

%% Nothing goes over the link until a process calls the other node: the call is answered.
cut_at_rest(Config) ->
    {Hosts, [A, B, _]} = Made = mesh(Config),
    Watchers = watch_all(Made),
    ok = inet_rdma_test_hosts:silence(both(a, b), Hosts),
    [
        ?assertEqual(name(Y), call(X, erpc, call, [name(Y), erlang, node, []]))
     || {X, Y} <- [{A, B}, {B, A}]
    ],
    ok = inet_rdma_test_link:exercise(A, B),
    no_nodedown(Watchers).

%% Two of the six links of four nodes, with no node in common.
two_cut_links_go_over_neighbours(Config) ->
    {Hosts, [A, B, C, D]} = Made = mesh(Config),
    Watchers = watch_all(Made),
    Traffic = [inet_rdma_test_traffic:start_small(X, Y) || {X, Y} <- [{A, B}, {C, D}]],
    ok = inet_rdma_test_hosts:silence(both(a, b) ++ both(c, d), Hosts),
    [await_via(X, Y) || {X, Y} <- [{A, B}, {B, A}, {C, D}, {D, C}]],
    [undisturbed(Each) || Each <- Traffic],
    no_nodedown(Watchers).

%% The neighbour that carries the link ends: another one carries it.
another_neighbour_carries_the_link(Config) ->
    over_another(Config, fun(Neighbour, _Hosts) -> ok = inet_rdma_test_node:stop(Neighbour) end).

%% No packet of the neighbour's host arrives anywhere, and nobody is told.
neighbour_falls_silent(Config) ->
    over_another(Config, fun(Neighbour, Hosts) ->
        Host = host(Neighbour, Hosts),
        inet_rdma_test_hosts:silence(
            [
                Path
             || {X, Y} = Path <- inet_rdma_test_hosts:among(Hosts),
                X =:= Host orelse
                    Y =:= Host
            ],
            Hosts
        )
    end).

host(#{node := Name}, Hosts) ->
    [Host] = [Each || Each <- inet_rdma_test_hosts:hosts(Hosts), is_on(Name, Each)],
    Host.

is_on(Name, Host) ->
    lists:suffix("@" ++ hd(inet_rdma_test_hosts:names([Host])), atom_to_list(Name)).

over_another(Config, End) ->
    {Hosts, [A, B, C, D]} = mesh(Config),
    Watchers = watch(A, B),
    Traffic = inet_rdma_test_traffic:start_small(A, B),
    ok = inet_rdma_test_hosts:silence(both(a, b), Hosts),
    Via = await_via(A, B),
    {[Neighbour], [Other]} = lists:partition(fun(Node) -> name(Node) =:= Via end, [C, D]),
    ok = End(Neighbour, Hosts),
    inet_rdma_test_wait:until(over_the_other, 20000, fun() -> via(A, B) =:= name(Other) end),
    undisturbed(Traffic),
    no_nodedown(Watchers).

%% What watches links has given up, and what would take the link back dies.
direct_again_in_spite_of_crashes(Config) ->
    {Hosts, [A, B, _]} = Made = mesh(Config),
    Watchers = watch_all(Made),
    [ok = call(X, inet_rdma_test_asker, kill_named, [inet_rdma_watches]) || X <- [A, B]],
    ok = inet_rdma_test_hosts:silence(both(a, b), Hosts),
    [await_via(X, Y) || {X, Y} <- [{A, B}, {B, A}]],
    [ok = call(X, inet_rdma_test_asker, kill_return, [name(Y)]) || {X, Y} <- [{A, B}, {B, A}]],
    ok = inet_rdma_test_hosts:pass(Hosts),
    [await_direct(X, Y) || {X, Y} <- [{A, B}, {B, A}]],
    no_nodedown(Watchers).
%% Packets between the neighbour that relays the link and one of its nodes vanish, while the other
%% node alone writes, to a process that says nothing: the neighbour's kernel acknowledges, and the
%% link goes over another neighbour all the same, long before a tick.
far_leg_falls_silent(Config) ->
    {Hosts, [A, B, C, D]} = mesh(Config, [], ?LONG_TICKTIME),
    Watchers = watch(A, B),
    ok = inet_rdma_test_hosts:silence(both(a, b), Hosts),
    ok = inet_rdma_test_link:exercise(A, B),
    {Via, _} = {await_via(A, B), await_via(B, A)},
    {[Neighbour], [Other]} = lists:partition(fun(Node) -> name(Node) =:= Via end, [C, D]),
    ok = inet_rdma_test_hosts:silence(both(b, host(Neighbour, Hosts)), Hosts),
    Sent = call(A, erlang, send, [{nobody, name(B)}, hello]),
    inet_rdma_test_wait:until(over_the_other, 10000, fun() -> via(A, B) =:= name(Other) end),
    hello = Sent,
    ok = inet_rdma_test_link:exercise(A, B),
    no_nodedown(Watchers).

%% The neighbour itself ends a detour over which a host acknowledges nothing, where neither node of
%% the link can.
neighbour_gives_up(Config) ->
    {Hosts, [A, B, C]} = mesh(Config, [], ?LONG_TICKTIME),
    ok = inet_rdma_test_hosts:silence(both(a, b), Hosts),
    ok = inet_rdma_test_link:exercise(A, B),
    [await_via(X, Y) || {X, Y} <- [{A, B}, {B, A}]],
    ok = inet_rdma_test_hosts:silence(both(b, c), Hosts),
    hello = call(A, erlang, send, [{nobody, name(B)}, hello]),
    inet_rdma_test_node:suspend(A),
    inet_rdma_test_wait:until(given_up, 10000, fun() ->
        Carried = call(C, inet_rdma_detours, relayed, []),
        Carried =:= [] orelse Carried
    end),
    inet_rdma_test_node:resume(A),
    ok = inet_rdma_test_hosts:pass(Hosts),
    ok = inet_rdma_test_link:exercise(A, B).

%% The link has no other way, and ends by the tick time.
without_detours_a_cut_ends_the_link(Config) ->
    {Hosts, [A, B, _]} = mesh(Config, [{detour, false}], ?SHORT_TICKTIME),
    Watchers = watch(A, B),
    ok = inet_rdma_test_hosts:silence(both(a, b), Hosts),
    await_nodedown(Watchers).

%% Each node writes to a table with a copy at each of them, while the link between two is cut and
%% when it is back. No transaction fails, and Mnesia hears of nothing.
mnesia_goes_on(Config) ->
    {Hosts, [A, B, _] = Nodes} = Made = mesh(Config),
    Watchers = watch_all(Made),
    _ = [ok = call(Node, mnesia, start, []) || Node <- Nodes],
    {ok, _} = call(A, mnesia, change_config, [extra_db_nodes, [name(Node) || Node <- Nodes -- [A]]]),
    {atomic, ok} = call(A, mnesia, create_table, [
        ?TABLE, [{ram_copies, [name(Node) || Node <- Nodes]}]
    ]),
    Writers = [{Node, call(Node, inet_rdma_test_mnesia, start, [?TABLE])} || Node <- Nodes],
    ok = inet_rdma_test_hosts:silence(both(a, b), Hosts),
    [await_via(X, Y) || {X, Y} <- [{A, B}, {B, A}]],
    ok = inet_rdma_test_hosts:pass(Hosts),
    [await_direct(X, Y) || {X, Y} <- [{A, B}, {B, A}]],
    Figures = [call(Node, inet_rdma_test_mnesia, stop, [Writer]) || {Node, Writer} <- Writers],
    ct:pal("~0p", [Figures]),
    _ = [
        ?assertMatch(#{written := Written, failed := [], events := []} when Written > 0, Each)
     || Each <- Figures
    ],
    Sum = lists:sum([maps:get(written, Each) || Each <- Figures]),
    _ = [?assertEqual(Sum, call(Node, mnesia, table_info, [?TABLE, size])) || Node <- Nodes],
    no_nodedown(Watchers).

mesh(Config) -> mesh(Config, [], ?TICKTIME).

mesh(Config, Rdma, TickTime) ->
    {_, Nodes} = Made = nodes(Config, Rdma, TickTime),
    ok = inet_rdma_test_node:mesh(Nodes),
    Made.

%% The links between all of them.
watch_all({_, Nodes}) ->
    lists:append([watch(X, Y) || X <- Nodes, Y <- Nodes, name(X) < name(Y)]).

%% Registers a process of the node with global.
name_at(Node) ->
    Pid = call(Node, erlang, whereis, [kernel_sup]),
    yes = call(Node, global, register_name, [?GLOBAL_NAME, Pid]),
    ok.

named_at(#{node := Name}, Nodes) ->
    [
        ?assertEqual({name(Node), Name}, {
            name(Node), node(call(Node, global, whereis_name, [?GLOBAL_NAME]))
        })
     || Node <- Nodes
    ].

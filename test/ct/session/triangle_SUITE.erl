%% Networks that part only some of the hosts: the way between two of three or four nodes is cut, and both reach the
%% others. The link between the two goes over one of these, its traffic is checked, and no node hears of it.
-module(triangle_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_node, [call/4, name/1]).
-import(inet_rdma_test_hosts, [both/2]).
-import(inet_rdma_test_link, [via/2, await_via/2, await_direct/2]).
-import(inet_rdma_test_lasting, [nodes/3, watch/2, no_nodedown/1, await_nodedown/1, undisturbed/1]).

-export([all/0, suite/0, groups/0, init_per_testcase/2]).
-export([cut/1, cut_one_way/1, cut_at_rest/1, two_cuts/1, neighbour_dies/1, neighbour_falls_silent/1, turned_off/1,
         mnesia_goes_on/1]).

%% Long enough that no link ends by it.
-define(TICKTIME, 60).
%% For links that are to end.
-define(SHORT_TICKTIME, 8).
-define(TABLE, inet_rdma_test_table).
-define(GLOBAL_NAME, inet_rdma_test_triangle).

suite() ->
    [{timetrap, {minutes, 4}}, {ct_hooks, [{inet_rdma_test_nodes, [only_rdma, {hosts, [a, b, c, d]}]}]}].

all() ->
    [{group, Group} || {Group, _, _} <- groups()].

groups() ->
    [
        {tcp, [], [cut, cut_one_way, cut_at_rest, two_cuts, neighbour_dies, neighbour_falls_silent, turned_off,
                   mnesia_goes_on]},
        {tls, [], [cut, neighbour_dies]},
        {inet6, [], [cut]}
    ].

init_per_testcase(mnesia_goes_on, Config) ->
    case code:lib_dir(mnesia) of
        {error, bad_name} -> inet_rdma_test_link:skip("Mnesia is not installed");
        _ -> inet_rdma_test_hosts:needed(Config, 3, proplists:get_value(family, Config, inet))
    end;
init_per_testcase(Case, Config) ->
    Count = case lists:member(Case, [two_cuts, neighbour_dies, neighbour_falls_silent]) of
                true -> 4;
                false -> 3
            end,
    inet_rdma_test_hosts:needed(Config, Count, proplists:get_value(family, Config, inet)).

%% The link goes over the third node while the cut lasts, and directly again afterwards.
cut(Config) ->
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
        case call(C, inet_rdma_detours, carried, []) of
            [] -> true;
            Carried -> Carried
        end
    end),
    named_at(A, [A, B, C]),
    no_nodedown(Watchers).

%% The table names the neighbour, and the doctor the way that is cut.
shown(X, Y, Via) ->
    [Line] = [Line || Line <- inet_rdma_test_series:table(X), lists:prefix(atom_to_list(name(Y)), Line)],
    ?assert(lists:member(atom_to_list(name(Via)), string:lexemes(Line, " ")), Line),
    ?assertMatch(#{detours := Count} when Count > 0, call(X, inet_rdma, info, [name(Y)])),
    [Text] = reported(X, Y, <<" is carried over ">>),
    [{Address, Port}] = [Listens || {Of, Listens} <- maps:to_list(call(X, inet_rdma_doctor_links, listeners, [])),
                                    Of =:= name(Y)],
    ?assertMatch({_, _}, binary:match(Text, iolist_to_binary([Address, ", port ", integer_to_list(Port), ", is cut"]))).

%% What the doctor of a node says of its link to another one, with these words.
reported(X, Y, Words) ->
    #{findings := Findings} = call(X, inet_rdma_doctor, report, []),
    [Text || #{about := links, text := Text} <- Findings, binary:match(Text, Words) =/= nomatch,
             binary:match(Text, atom_to_binary(name(Y))) =/= nomatch].

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
    [?assertEqual(name(Y), call(X, erpc, call, [name(Y), erlang, node, []])) || {X, Y} <- [{A, B}, {B, A}]],
    ok = inet_rdma_test_link:exercise(A, B),
    no_nodedown(Watchers).

%% Two of the six links of four nodes, with no node in common.
two_cuts(Config) ->
    {Hosts, [A, B, C, D]} = Made = mesh(Config),
    Watchers = watch_all(Made),
    Traffic = [inet_rdma_test_traffic:start_small(X, Y) || {X, Y} <- [{A, B}, {C, D}]],
    ok = inet_rdma_test_hosts:silence(both(a, b) ++ both(c, d), Hosts),
    [await_via(X, Y) || {X, Y} <- [{A, B}, {B, A}, {C, D}, {D, C}]],
    [undisturbed(Each) || Each <- Traffic],
    no_nodedown(Watchers).

%% The neighbour that carries the link ends: another one carries it.
neighbour_dies(Config) ->
    over_another(Config, fun(Neighbour, _Hosts) -> ok = inet_rdma_test_node:stop(Neighbour) end).

%% No packet of the neighbour's host arrives anywhere, and nobody is told.
neighbour_falls_silent(Config) ->
    over_another(Config, fun(#{node := Name}, Hosts) ->
        [Host] = [Each || Each <- inet_rdma_test_hosts:hosts(Hosts), is_on(Name, Each)],
        inet_rdma_test_hosts:silence([Path || {X, Y} = Path <- inet_rdma_test_hosts:among(Hosts), X =:= Host orelse
                                             Y =:= Host], Hosts)
    end).

is_on(Name, Host) -> lists:suffix("@" ++ hd(inet_rdma_test_hosts:names([Host])), atom_to_list(Name)).

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

%% The link has no other way, and ends by the tick time.
turned_off(Config) ->
    {Hosts, [A, B, _]} = mesh(Config, [{detour, false}], ?SHORT_TICKTIME),
    Watchers = watch(A, B),
    ok = inet_rdma_test_hosts:silence(both(a, b), Hosts),
    await_nodedown(Watchers).

%% Each node writes to a table with a copy at each of them, while the link between two is cut and when it is back. No
%% transaction fails, and Mnesia hears of nothing.
mnesia_goes_on(Config) ->
    {Hosts, [A, B, _] = Nodes} = Made = mesh(Config),
    Watchers = watch_all(Made),
    _ = [ok = call(Node, mnesia, start, []) || Node <- Nodes],
    {ok, _} = call(A, mnesia, change_config, [extra_db_nodes, [name(Node) || Node <- Nodes -- [A]]]),
    {atomic, ok} = call(A, mnesia, create_table, [?TABLE, [{ram_copies, [name(Node) || Node <- Nodes]}]]),
    Writers = [{Node, call(Node, inet_rdma_test_mnesia, start, [?TABLE])} || Node <- Nodes],
    ok = inet_rdma_test_hosts:silence(both(a, b), Hosts),
    [await_via(X, Y) || {X, Y} <- [{A, B}, {B, A}]],
    ok = inet_rdma_test_hosts:pass(Hosts),
    [await_direct(X, Y) || {X, Y} <- [{A, B}, {B, A}]],
    Figures = [call(Node, inet_rdma_test_mnesia, stop, [Writer]) || {Node, Writer} <- Writers],
    ct:pal("~0p", [Figures]),
    _ = [?assertMatch(#{written := Written, failed := [], events := []} when Written > 0, Each) || Each <- Figures],
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
    [?assertEqual({name(Node), Name}, {name(Node), node(call(Node, global, whereis_name, [?GLOBAL_NAME]))})
     || Node <- Nodes].

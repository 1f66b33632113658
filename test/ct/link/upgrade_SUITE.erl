%% Clusters of two versions of inet_rdma, as a rolling upgrade makes them. INET_RDMA_OTHER_VERSION
%% names the ebin of a build of the other one; `make test-upgrade` makes it.
-module(upgrade_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, groups/0, init_per_suite/1, end_per_suite/1]).
-export([
    new_connects_to_old_and_outlives_cuts/1,
    old_connects_to_new_and_outlives_cuts/1,
    nodes_are_upgraded_and_downgraded_one_by_one/1
]).

-define(CUT_LEAST_MS, 100).
-define(CUT_MOST_MS, 1000).
-define(CUTS, 5).

suite() ->
    [{timetrap, {minutes, 5}}, {ct_hooks, [{inet_rdma_test_nodes, [paths]}]}].

all() ->
    [{group, Group} || {Group, _, _} <- groups()].

groups() ->
    inet_rdma_test_paths:groups([
        new_connects_to_old_and_outlives_cuts,
        old_connects_to_new_and_outlives_cuts,
        nodes_are_upgraded_and_downgraded_one_by_one
    ]).

init_per_suite(Config) ->
    case {inet_rdma_test_node:only_rdma(Config), os:getenv("INET_RDMA_OTHER_VERSION", "")} of
        {{skip, _} = Skip, _} ->
            Skip;
        {_, ""} ->
            {skip,
                "INET_RDMA_OTHER_VERSION does not name a build of another version: make "
                "test-upgrade"};
        {_, Ebin} ->
            inet_rdma_test_cutter:needed([{old, code_of(Ebin, Config)} | Config])
    end.

%% The tests' modules come last on the command line, so first on the path: among them those of the
%% traffic, as the other version may have other ones.
code_of(Ebin, Config) ->
    true = filelib:is_file(filename:join(Ebin, "inet_rdma_dist.beam")),
    Traffic = filename:join(proplists:get_value(priv_dir, Config), "traffic"),
    ok = filelib:ensure_path(Traffic),
    [
        {ok, _} = file:copy(Beam, filename:join(Traffic, filename:basename(Beam)))
     || Beam <- filelib:wildcard(
            filename:join(inet_rdma_test_node:tools(), "inet_rdma_certify_*.beam")
        )
    ],
    [Ebin, Traffic, filename:dirname(code:which(inet_rdma_test_node))].

end_per_suite(_Config) ->
    ok.

new_connects_to_old_and_outlives_cuts(Config) ->
    [New, Old] = start([new, old], Config),
    outlives_cuts(New, Old).

old_connects_to_new_and_outlives_cuts(Config) ->
    [New, Old] = start([new, old], Config),
    outlives_cuts(Old, New).

%% Nothing is lost between those that stay while another one is replaced.
nodes_are_upgraded_and_downgraded_one_by_one(Config) ->
    Old = start([old, old, old], Config),
    ok = inet_rdma_test_node:mesh(Old),
    Upgraded = replace_each(new, Old, Config),
    ?assertEqual([ebin(new, Config)], lists:usort([ebin_of(Node) || Node <- Upgraded])),
    Downgraded = replace_each(old, Upgraded, Config),
    ?assertEqual([ebin(old, Config)], lists:usort([ebin_of(Node) || Node <- Downgraded])).

replace_each(Version, Nodes, Config) ->
    lists:foldl(
        fun(_, [First, A, B]) ->
            Traffic = inet_rdma_test_traffic:start_small(A, B),
            Cut = inet_rdma_test_cutter:cut(os_pid(A), os_pid(B)),
            ok = inet_rdma_test_node:stop(First),
            Replaced = start(Version, #{name => maps:get(name, First)}, Config),
            [ok = inet_rdma_test_node:connect(Replaced, Node) || Node <- [A, B]],
            inet_rdma_test_lasting:undisturbed(Traffic),
            ?assert(Cut > 0),
            [outlives_cuts(Replaced, Node) || Node <- [A, B]],
            [A, B, Replaced]
        end,
        Nodes,
        Nodes
    ).

outlives_cuts(A, B) ->
    ok = inet_rdma_test_node:connect(A, B),
    Fabric = inet_rdma_test_link:fabric(A, B),
    Traffic = inet_rdma_test_traffic:start(A, B),
    Cutter = inet_rdma_test_cutter:start([{os_pid(A), os_pid(B)}], ?CUT_LEAST_MS, ?CUT_MOST_MS),
    ok = inet_rdma_test_cutter:await_cuts(Cutter, ?CUTS),
    _ = inet_rdma_test_cutter:stop(Cutter),
    ok = inet_rdma_test_cutter:await(os_pid(A), os_pid(B)),
    inet_rdma_test_lasting:undisturbed(Traffic),
    ?assertEqual([Fabric, Fabric], [inet_rdma_test_link:fabric(X, Y) || {X, Y} <- [{A, B}, {B, A}]]).

start(Versions, Config) ->
    [start(Version, #{}, Config) || Version <- Versions].

start(Version, More, Config) ->
    Options = maps:merge(inet_rdma_test_paths:options(Config), More),
    inet_rdma_test_node:start(
        atom_to_list(Version),
        case Version of
            new -> Options;
            old -> Options#{code => proplists:get_value(old, Config)}
        end
    ).

ebin(new, _Config) -> inet_rdma_test_node:ebin();
ebin(old, Config) -> hd(proplists:get_value(old, Config)).

%% Where the node has the carrier from.
ebin_of(Node) -> filename:dirname(inet_rdma_test_node:call(Node, code, which, [inet_rdma_dist])).

os_pid(#{os_pid := OsPid}) -> OsPid.

%% The paths that can carry the link between two nodes, as groups of cases that run on each of them.
-module(inet_rdma_test_paths).

-export([groups/1, groups_in_clear/1, init/2, for_hosts/2, options/1, options/2]).
-export_type([path/0]).

%% tcp: a path of inet_rdma over TCP. shm: shared memory, beside a TCP connection that is silent.
%% tls: over TCP after a beginning inside TLS, sealed.
-type path() :: tcp | shm | tls.

-spec groups([atom()]) -> [{path(), [], [atom()]}].
groups(Cases) -> groups_in_clear(Cases) ++ [{tls, [], Cases}].

%% Groups for cases that read or write what goes over the connections.
-spec groups_in_clear([atom()]) -> [{path(), [], [atom()]}].
groups_in_clear(Cases) -> [{Path, [], Cases} || Path <- [tcp, shm]].

%% For init_per_group.
-spec init(path(), Config) -> Config | {skip, string()} when Config :: [tuple()].
init(tls, Config) ->
    inside_tls(inet_rdma_test_tls:certificates(Config));
init(Fabric, Config) ->
    [{path, Fabric}, {options, #{rdma => [{fabric, Fabric}], args => []}} | Config].

inside_tls({skip, _} = Skip) -> Skip;
inside_tls(Made) -> [{path, tls}, {options, tls(Made)} | Made].

%% For init_per_testcase: the nodes have these hosts in their names.
-spec for_hosts([string()], Config) -> Config | {skip, string()} when Config :: [tuple()].
for_hosts(Hosts, Config) ->
    case proplists:get_value(path, Config) of
        tls -> inside_tls(inet_rdma_test_certificates:suite(Config, Hosts));
        _ -> Config
    end.

tls(Config) ->
    File = inet_rdma_test_certificates:option_file(
        proplists:get_value(certificates, Config), good, []
    ),
    #{
        rdma => [{fabric, tcp}, {security, tls}],
        args => ["-pa", filename:join(code:lib_dir(ssl), "ebin"), "-ssl_dist_optfile", File]
    }.

%% The options of a node of the group.
-spec options([tuple()]) -> inet_rdma_test_node:options().
options(Config) -> options(Config, #{}).

%% With more: of inet_rdma (`rdma') and of erl (`args').
-spec options([tuple()], inet_rdma_test_node:options()) -> inet_rdma_test_node:options().
options(Config, More) ->
    #{rdma := Rdma, args := Args} = proplists:get_value(options, Config),
    #{rdma => Rdma ++ maps:get(rdma, More, []), args => Args ++ maps:get(args, More, [])}.

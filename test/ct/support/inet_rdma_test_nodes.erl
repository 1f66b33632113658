%% A hook of Common Test for suites with nodes: the nodes of a case end with it, and so do the
%% network and the hosts of its configuration. A suite names the hook in suite/0, with any of these
%% options:
%%
%% only_rdma, only_sessions: the suite is skipped with other carriers, as inet_rdma_test_node says.
%% paths: groups that have the name of a path run on it. {hosts, Hosts}: the same for nodes on these
%% hosts.
-module(inet_rdma_test_nodes).

-export([init/2, pre_init_per_suite/3, pre_init_per_group/4, post_end_per_testcase/5]).

init(_Id, Options) -> {ok, Options}.

pre_init_per_suite(_Suite, Config, Options) ->
    Checked =
        case {proplists:get_bool(only_rdma, Options), proplists:get_bool(only_sessions, Options)} of
            {true, _} -> inet_rdma_test_node:only_rdma(Config);
            {false, true} -> inet_rdma_test_node:only_sessions(Config);
            {false, false} -> Config
        end,
    {Checked, Options}.

pre_init_per_group(_Suite, Group, Config, Options) ->
    IsPath = lists:member(Group, [tcp, shm, tls, inet6]),
    case {proplists:get_bool(paths, Options), proplists:get_value(hosts, Options)} of
        {true, undefined} when IsPath -> {inet_rdma_test_paths:init(Group, Config), Options};
        {false, [_ | _] = Hosts} when IsPath ->
            {inet_rdma_test_hosts:init_group(Group, Hosts, Config), Options};
        _ ->
            {Config, Options}
    end.

post_end_per_testcase(_Suite, _Case, Config, Result, Options) ->
    ok = inet_rdma_test_node:stop_all(),
    _ = [inet_rdma_test_network:stop(Network) || {network, Network} <- Config],
    _ = [inet_rdma_test_hosts:stop(Hosts) || {hosts, Hosts} <- Config],
    {Result, Options}.

%% The option mptcp, between hosts with two networks (inet_rdma_test_rails): a link's TCP connection
%% goes over both, one of them is cut, both are; several flows of one network; and peers and kernels
%% without MPTCP.
-module(rails_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_node, [call/4, name/1]).
-import(inet_rdma_test_lasting, [
    resumes/2,
    resumed/3,
    watch/2,
    no_nodedown/1,
    await_nodedown/1,
    undisturbed/1
]).

-export([
    all/0,
    suite/0,
    groups/0,
    init_per_group/2,
    end_per_group/2,
    init_per_testcase/2,
    end_per_testcase/2
]).
-export([
    connections_have_subflows_over_both/1,
    one_network_that_is_cut_disturbs_nothing/1,
    bulk_outlives_a_network_that_is_cut/1,
    link_outlives_both_networks_cut/1,
    killed_peer_is_a_nodedown/1,
    bulk_goes_over_several_flows_of_one_network/1
]).
-export([
    peer_without_it_has_plain_tcp/1,
    kernel_without_it_gives_plain_tcp/1,
    listener_ends_with_the_distribution/1,
    socket_options_are_in_force/1
]).

-define(TICKTIME, 60).
%% Much longer than an answer may take.
-define(CUT_MS, 4000).
%% Longer than the time between two attempts of the kernel to send over the network that was cut.
-define(HEALED_MS, 6000).

suite() ->
    [{timetrap, {minutes, 4}}, {ct_hooks, [{inet_rdma_test_nodes, [only_rdma]}]}].

all() ->
    [{group, Group} || {Group, _, _} <- groups()].

groups() ->
    Lasting = [
        connections_have_subflows_over_both,
        one_network_that_is_cut_disturbs_nothing,
        bulk_outlives_a_network_that_is_cut,
        link_outlives_both_networks_cut
    ],
    [
        {tcp, [],
            Lasting ++
                [
                    killed_peer_is_a_nodedown,
                    bulk_goes_over_several_flows_of_one_network,
                    peer_without_it_has_plain_tcp,
                    kernel_without_it_gives_plain_tcp,
                    listener_ends_with_the_distribution,
                    socket_options_are_in_force
                ]},
        {tls, [], Lasting},
        {inet6, [], Lasting ++ [listener_ends_with_the_distribution]}
    ].

init_per_group(Group, Config) -> inet_rdma_test_hosts:init_group(Group, [a, b], Config).

end_per_group(_Group, _Config) ->
    ok.

init_per_testcase(_Case, Config) ->
    inet_rdma_test_rails:needed(Config, proplists:get_value(family, Config, inet)).

end_per_testcase(_Case, Config) ->
    inet_rdma_test_node:stop_all(),
    inet_rdma_test_rails:stop(proplists:get_value(rails, Config)).

%% The first connection, and those that follow it, whichever side loses it.
connections_have_subflows_over_both(Config) ->
    {_Rails, [A, B]} = pair(Config),
    ok = await_subflows(A, B),
    [
        begin
            Before = resumes(A, B),
            ok = call(Loser, inet_rdma_test_remote, end_part, [socket]),
            resumed(A, B, Before),
            ok = await_subflows(A, B)
        end
     || Loser <- [A, B]
    ],
    ok = call(A, inet_rdma_test_data, echo_and_compare, [name(B), [0, 1, 1000, 70000, 5000000]]).

%% No connection is made, nor suspected: the kernel goes on over the other network. It may need more
%% than a second on a busy machine, and much more for bulk.
one_network_that_is_cut_disturbs_nothing(Config) ->
    {Rails, [A, B]} = pair(Config, [{suspect_after_ms, 3000}]),
    ok = await_subflows(A, B),
    Watchers = watch(A, B),
    Before = disturbances(A, B),
    [
        begin
            ok = cut_and_heal(Rail, Rails, A, B),
            timer:sleep(?HEALED_MS)
        end
     || Rail <- [1, 2]
    ],
    ?assertEqual(Before, disturbances(A, B)),
    no_nodedown(Watchers).

%% With bulk, for which the kernel may need many seconds.
bulk_outlives_a_network_that_is_cut(Config) ->
    {Rails, [A, B]} = pair(Config),
    ok = await_subflows(A, B),
    Watchers = watch(A, B),
    Traffic = inet_rdma_test_traffic:start(A, B),
    [ok = cut_and_heal(Rail, Rails, A, B) || Rail <- [1, 2]],
    undisturbed(Traffic),
    ct:pal("~p", [disturbances(A, B)]),
    no_nodedown(Watchers).

cut_and_heal(Rail, Rails, A, B) ->
    ok = inet_rdma_test_rails:cut(Rail, Rails),
    {Calls, LongestUs} = longest_call(A, B),
    ct:pal(
        "network ~b cut for ~b ms: ~b calls, the longest of ~b us",
        [Rail, ?CUT_MS, Calls, LongestUs]
    ),
    inet_rdma_test_rails:heal(Rail, Rails).

link_outlives_both_networks_cut(Config) ->
    {Rails, [A, B]} = pair(Config),
    ok = await_subflows(A, B),
    Watchers = watch(A, B),
    Traffic = inet_rdma_test_traffic:start(A, B),
    [ok = inet_rdma_test_rails:cut(Rail, Rails) || Rail <- [1, 2]],
    inet_rdma_test_wait:until(noticed, 20000, fun() ->
        #{path_state := State} = call(A, inet_rdma, info, [name(B)]),
        State =/= carried orelse State
    end),
    [ok = inet_rdma_test_rails:heal(Rail, Rails) || Rail <- [1, 2]],
    inet_rdma_test_wait:until(carried, 20000, fun() ->
        States = [
            maps:get(path_state, call(X, inet_rdma, info, [name(Y)]))
         || {X, Y} <- [{A, B}, {B, A}]
        ],
        States =:= [carried, carried] orelse States
    end),
    undisturbed(Traffic),
    no_nodedown(Watchers).

killed_peer_is_a_nodedown(Config) ->
    {_Rails, [A, B]} = pair(Config),
    ok = await_subflows(A, B),
    Watcher = inet_rdma_test_node:watch(A, B),
    inet_rdma_test_node:kill(B),
    inet_rdma_test_wait:until(nodedown, 20000, fun() ->
        call(A, inet_rdma_test_watch, seen, [Watcher]) =/= []
    end).

%% As where a cloud bounds the rate of each flow.
bulk_goes_over_several_flows_of_one_network(Config) ->
    case inet_rdma_test_rails:flows([4471, 4472], 100, proplists:get_value(rails, Config)) of
        {skip, Why} ->
            {skip, Why};
        ok ->
            {Rails, [A, B]} = pair(Config),
            ok = await_subflows(A, B, 3),
            Before = inet_rdma_test_rails:sent(Rails),
            Sizes = lists:duplicate(20, 2000000),
            ok = call(A, inet_rdma_test_data, send_and_compare, [name(B), Sizes]),
            Sent = lists:zipwith(fun erlang:'-'/2, inet_rdma_test_rails:sent(Rails), Before),
            ct:pal("bytes by flow: ~p", [Sent]),
            ?assertMatch([_, _ | _], [Bytes || Bytes <- Sent, Bytes > 1000000], Sent)
    end.

%% A node of inet_rdma without the option, and one of inet_tcp, whose link OTP's driver carries.
peer_without_it_has_plain_tcp(Config) ->
    Rails = proplists:get_value(rails, Config),
    [A, B, Tcp] = inet_rdma_test_node:start_all(
        [
            {"a", node_options(a, Rails, Config, [{mptcp, auto}])},
            {"b", node_options(b, Rails, Config, [])},
            {"t", (node_options(b, Rails, Config, []))#{carrier => "inet_tcp"}}
        ]
    ),
    [
        begin
            ok = inet_rdma_test_node:connect(From, To),
            ?assertMatch(#{mptcp := Mptcp, subflows := 0}, call(From, inet_rdma, info, [name(To)]))
        end
     || {From, To, Mptcp} <- [{A, B, peer}]
    ],
    ?assertMatch(#{mptcp := off, subflows := 0}, call(B, inet_rdma, info, [name(A)])),
    #{findings := Findings} = call(A, inet_rdma_doctor, report, []),
    ?assertMatch([_], [
        Text
     || #{text := Text} <- Findings,
        string:find(Text, "have no MPTCP") =/= nomatch
    ]),
    ok = call(A, inet_rdma_test_data, echo_and_compare, [name(B), [0, 1000, 500000]]),
    Usage = inet_rdma_test_usage:footprint(A),
    [
        begin
            pong = call(From, net_adm, ping, [name(To)]),
            Watcher = inet_rdma_test_node:watch(To, From),
            true = call(From, erlang, disconnect_node, [name(To)]),
            inet_rdma_test_wait:until({nodedown, name(To)}, 20000, fun() ->
                call(To, inet_rdma_test_watch, seen, [Watcher]) =/= []
            end)
        end
     || {From, To} <- [{A, Tcp}, {Tcp, A}, {A, Tcp}]
    ],
    ok = inet_rdma_test_os:await_footprint(maps:get(os_pid, A), Usage).

kernel_without_it_gives_plain_tcp(Config) ->
    Rails = proplists:get_value(rails, Config),
    _ = inet_rdma_test_rails:run(a, "sysctl -qw net.mptcp.enabled=0", Rails),
    [A, B] = inet_rdma_test_node:start_all(
        [
            {"a", node_options(a, Rails, Config, [{mptcp, auto}])},
            {"b", node_options(b, Rails, Config, [{mptcp, auto}])}
        ]
    ),
    ok = inet_rdma_test_node:connect(A, B),
    ?assertMatch(#{mptcp := kernel, subflows := 0}, call(A, inet_rdma, info, [name(B)])),
    ?assertMatch(#{mptcp := peer, subflows := 0}, call(B, inet_rdma, info, [name(A)])),
    #{findings := Findings} = call(A, inet_rdma_doctor, report, []),
    ?assertMatch(
        [#{severity := note, fix := <<"`sysctl net.mptcp.enabled=1", _/binary>>}],
        [Finding || #{about := mptcp} = Finding <- Findings]
    ),
    ok = call(A, inet_rdma_test_data, echo_and_compare, [name(B), [0, 1000, 500000]]).

%% inet leaves a descriptor open that it was given. The next start needs its port. The kernel
%% parameter is the user's again.
listener_ends_with_the_distribution(Config) ->
    Rails = proplists:get_value(rails, Config),
    Port = "4711",
    Options = node_options(a, Rails, Config, [{mptcp, auto}]),
    A = inet_rdma_test_node:start("a", Options#{
        name => none,
        args => maps:get(args, Options) ++
            [
                "-kernel",
                "inet_dist_listen_min",
                Port,
                "inet_dist_listen_max",
                Port,
                "inet_dist_listen_options",
                "[{priority,4}]"
            ]
    }),
    B = inet_rdma_test_node:start("b", node_options(b, Rails, Config, [{mptcp, auto}])),
    %% erl starts EPMD only for a node that is distributed from the beginning.
    _ = inet_rdma_test_rails:run(a, "epmd -daemon", Rails),
    Name = list_to_atom(inet_rdma_test_node:unique("a") ++ "@a.test"),
    Listeners = fun() -> inet_rdma_test_rails:run(a, "ss -MtlnH | grep :" ++ Port, Rails) end,
    %% EPMD listens some time after its program has returned, and keeps a name until it has seen the
    %% end of the node's connection.
    IsFree = fun() ->
        Names = inet_rdma_test_rails:run(a, "epmd -names", Rails),
        (string:find(Names, "up and running") =/= nomatch andalso
            string:find(Names, "name a_") =:= nomatch) orelse Names
    end,
    [
        begin
            inet_rdma_test_wait:until(name_is_free, 10000, IsFree),
            {ok, _} = call(A, net_kernel, start, [Name, #{name_domain => longnames}]),
            true = call(A, erlang, set_cookie, [call(B, erlang, get_cookie, [])]),
            ?assertNotEqual({Start, nomatch}, {Start, string:find(Listeners(), "mptcp")}),
            ?assertEqual(
                {ok, [{priority, 4}]},
                call(A, application, get_env, [kernel, inet_dist_listen_options])
            ),
            pong = call(B, net_adm, ping, [Name]),
            ?assertMatch(
                {ok, [{priority, 4}]}, call(A, net_kernel, getopts, [name(B), [priority]])
            ),
            ok = call(A, net_kernel, stop, []),
            inet_rdma_test_wait:until(closed, 10000, fun() ->
                Listeners() =:= "" orelse Listeners()
            end)
        end
     || Start <- [1, 2]
    ].

%% Those of the kernel parameter, also the own address, and the option congestion.
socket_options_are_in_force(Config) ->
    Rails = proplists:get_value(rails, Config),
    Options = node_options(a, Rails, Config, [{mptcp, auto}, {congestion, <<"reno">>}]),
    Given = "[{ip,{10,77,1,1}},{priority,5},{nodelay,true}]",
    A = inet_rdma_test_node:start("a", Options#{
        args => maps:get(args, Options) ++ ["-kernel", "inet_dist_connect_options", Given]
    }),
    B = inet_rdma_test_node:start("b", node_options(b, Rails, Config, [{mptcp, auto}])),
    ok = inet_rdma_test_node:connect(A, B),
    ok = await_subflows(A, B),
    InForce = fun() -> call(A, net_kernel, getopts, [name(B), [priority, {raw, 6, 13, 4}]]) end,
    Wanted = {ok, [{priority, 5}, {raw, 6, 13, <<"reno">>}]},
    ?assertEqual(Wanted, InForce()),
    Before = resumes(A, B),
    ok = call(B, inet_rdma_test_remote, end_part, [socket]),
    resumed(A, B, Before),
    ?assertEqual(Wanted, InForce()).

pair(Config) -> pair(Config, []).

pair(Config, Rdma) ->
    Rails = proplists:get_value(rails, Config),
    [A, B] = inet_rdma_test_node:start_all(
        [
            {atom_to_list(Host), node_options(Host, Rails, Config, [{mptcp, auto} | Rdma])}
         || Host <- [a, b]
        ]
    ),
    ok = inet_rdma_test_node:connect(A, B),
    {Rails, [A, B]}.

node_options(Host, Rails, Config, Rdma) ->
    Args = ["-kernel", "net_ticktime", integer_to_list(?TICKTIME)],
    Options = inet_rdma_test_paths:options(Config, #{rdma => Rdma, args => Args}),
    inet_rdma_test_rails:options(Host, Rails, Options).

%% Both nodes know of a subflow over each network.
await_subflows(A, B) -> await_subflows(A, B, 2).

await_subflows(A, B, Count) ->
    inet_rdma_test_wait:until(subflows, 20000, fun() ->
        Infos = [
            maps:with([mptcp, subflows], call(X, inet_rdma, info, [name(Y)]))
         || {X, Y} <- [{A, B}, {B, A}]
        ],
        case Infos of
            [#{mptcp := on, subflows := N}, #{mptcp := on, subflows := M}] when
                N >= Count, M >= Count
            ->
                true;
            _ ->
                Infos
        end
    end),
    ok.

disturbances(A, B) ->
    [
        maps:with([losses, resumes, suspicions, detours], call(X, inet_rdma, info, [name(Y)]))
     || {X, Y} <- [{A, B}, {B, A}]
    ].

longest_call(A, B) -> call(A, inet_rdma_test_remote, longest_call, [name(B), ?CUT_MS]).

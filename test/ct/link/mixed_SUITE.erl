%% Clusters of inet_rdma nodes and of others, which see nothing but an inet_tcp node: plain nodes of
%% this and of another OTP, hidden ones, ones without a name.
-module(mixed_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_node, [call/4, name/1, start_all/1, unique/1]).

-export([all/0, suite/0, init_per_testcase/2]).
-export([
    connects_in_both_directions/1,
    end_of_either_is_seen/1,
    mesh_of_both/1,
    hidden_nodes_link_with_plain_nodes/1,
    a_dynamic_name_is_kept_for_the_next_node/1
]).
-export([nodes_that_do_not_listen/1, links_with_plain_nodes_go_over_ipv6/1, own_epmd_module/1]).
-export([simultaneous_connects_return_a_link_each/1, moved_and_plain_links_together/1]).
-export([another_otp_with_inet_tcp/1, another_otp_with_inet_rdma/1]).

suite() ->
    [{timetrap, {minutes, 4}}, {ct_hooks, [{inet_rdma_test_nodes, [only_rdma]}]}].

all() ->
    [
        connects_in_both_directions,
        end_of_either_is_seen,
        mesh_of_both,
        hidden_nodes_link_with_plain_nodes,
        a_dynamic_name_is_kept_for_the_next_node,
        nodes_that_do_not_listen,
        links_with_plain_nodes_go_over_ipv6,
        own_epmd_module,
        simultaneous_connects_return_a_link_each,
        moved_and_plain_links_together,
        another_otp_with_inet_tcp,
        another_otp_with_inet_rdma
    ].

init_per_testcase(Case, Config) when
    Case =:= another_otp_with_inet_tcp; Case =:= another_otp_with_inet_rdma
->
    inet_rdma_test_otp:needed(Config);
init_per_testcase(_Case, Config) ->
    Config.

%% Whichever side connects: all of distribution works, and the inet_rdma node says why the link
%% stayed on TCP.
connects_in_both_directions(_Config) ->
    [Rdma, Plain] = pair(),
    [
        begin
            connect(First, Second),
            stayed_on_tcp(Rdma, Plain),
            ok = inet_rdma_test_link:exercise(Rdma, Plain),
            counts(Rdma, Plain),
            ok = inet_rdma_test_link:disconnect(First, Second),
            ?assertEqual(undefined, inet_rdma_test_link:fabric(Rdma, Plain))
        end
     || {First, Second} <- [{Rdma, Plain}, {Plain, Rdma}, {Rdma, Plain}]
    ].

%% The counts of a link on TCP are its socket's.
counts(Rdma, Plain) ->
    #{packets_sent := Sent, bytes_sent := Bytes} = call(Rdma, inet_rdma, info, [name(Plain)]),
    ok = call(Rdma, inet_rdma_test_data, send_and_compare, [name(Plain), [100000]]),
    #{packets_sent := MoreSent, bytes_sent := MoreBytes} = call(Rdma, inet_rdma, info, [name(Plain)]),
    ?assert(MoreSent > Sent),
    ?assert(MoreBytes >= Bytes + 100000),
    {ok, Information} = call(Rdma, net_kernel, node_info, [name(Plain)]),
    ?assertMatch({_, up}, lists:keyfind(state, 1, Information)),
    %% Options of the socket reach it, as with inet_tcp.
    ?assertEqual(ok, call(Rdma, net_kernel, setopts, [name(Plain), [{nodelay, false}]])),
    ?assertEqual(
        {ok, [{nodelay, false}]}, call(Rdma, net_kernel, getopts, [name(Plain), [nodelay]])
    ).

%% A process that is killed, and a node that halts: monitors, links and nodedown at the other.
end_of_either_is_seen(_Config) ->
    [
        begin
            [Rdma, Plain] = pair(),
            {Stays, Ends} = order(Which, Rdma, Plain),
            connect(Stays, Ends),
            Watcher = inet_rdma_test_node:watch(Stays, Ends),
            End(Ends),
            inet_rdma_test_wait:until({nodedown, Which}, 10000, fun() ->
                case lists:sort(call(Stays, inet_rdma_test_watch, seen, [Watcher])) of
                    [monitor_node, monitor_nodes] -> true;
                    Other -> Other
                end
            end),
            ?assertEqual([], call(Stays, erlang, nodes, [connected])),
            inet_rdma_test_node:stop_all()
        end
     || Which <- [rdma, plain], End <- [fun inet_rdma_test_node:kill/1, fun halt_node/1]
    ].

order(rdma, Rdma, Plain) -> {Plain, Rdma};
order(plain, Rdma, Plain) -> {Rdma, Plain}.

%% The call has no answer.
halt_node(Node) ->
    try
        call(Node, erlang, halt, [], 5000)
    catch
        _:_ -> ok
    end.

%% Two nodes of each kind: global builds the mesh, with one link over shared memory.
mesh_of_both(_Config) ->
    [A, B, C, D] = Nodes = start_all([{"a", #{}}, {"b", plain()}, {"c", #{}}, {"d", plain()}]),
    ok = inet_rdma_test_node:mesh(Nodes),
    ok = inet_rdma_test_link:await(A, C, shm),
    ok = inet_rdma_test_link:await(C, A, shm),
    [stayed_on_tcp(Rdma, Plain) || Rdma <- [A, C], Plain <- [B, D]],
    [
        begin
            Name = {registered_at, name(Node)},
            {Pid, yes} = call(Node, inet_rdma_test_remote, register_global, [Name]),
            [?assertEqual(Pid, call(Other, global, whereis_name, [Name])) || Other <- Nodes]
        end
     || Node <- Nodes
    ],
    [ok = inet_rdma_test_link:exercise(X, Y) || {X, Y} <- [{A, B}, {A, C}, {C, D}]],
    %% One node of each kind ends; the links of the others stay.
    [inet_rdma_test_node:stop(Node) || Node <- [C, D]],
    inet_rdma_test_node:await_nodes(A, [name(B)]),
    inet_rdma_test_node:await_nodes(B, [name(A)]),
    ?assertEqual(undefined, call(B, global, whereis_name, [{registered_at, name(C)}])),
    ok = inet_rdma_test_link:exercise(A, B).

hidden_nodes_link_with_plain_nodes(_Config) ->
    [
        begin
            [Node, Hidden] = start_all([
                {"n", Options}, {"hidden", HiddenOptions#{args => ["-hidden"]}}
            ]),
            [
                begin
                    connect(X, Y),
                    ?assertEqual(
                        {[], [name(Hidden)]},
                        {call(Node, erlang, nodes, []), call(Node, erlang, nodes, [hidden])}
                    ),
                    ok = inet_rdma_test_link:exercise(X, Y),
                    ok = inet_rdma_test_link:disconnect(X, Y)
                end
             || {X, Y} <- [{Node, Hidden}, {Hidden, Node}]
            ]
        end
     || {Options, HiddenOptions} <- [{#{}, plain()}, {plain(), #{}}, {#{}, #{}}]
    ].

%% A node without a name gets one from the first node that it connects to, and keeps it for the
%% next.
a_dynamic_name_is_kept_for_the_next_node(_Config) ->
    Host = "127.0.0.1",
    Forms = [
        {"undefined", false, fun(_) -> #{} end},
        {"undefined@localhost", false, fun(Prefix) -> #{name => unique(Prefix) ++ "@localhost"} end},
        {"undefined@" ++ Host, true, fun(Prefix) ->
            #{name => unique(Prefix) ++ "@" ++ Host, long => true}
        end}
    ],
    [
        begin
            [Rdma, Plain, Nameless] = start_all([
                {"a", Named("a")},
                {"b", maps:merge(plain(), Named("b"))},
                {"n", Carrier#{name => Name, long => Long}}
            ]),
            ?assertEqual(nonode@nohost, call(Nameless, erlang, node, [])),
            {First, Second} = order(Which, Plain, Rdma),
            ?assertEqual(true, call(Nameless, net_kernel, connect_node, [name(First)])),
            Given = Nameless#{node := call(Nameless, erlang, node, [])},
            ?assertNotEqual(nonode@nohost, name(Given)),
            connect(Given, Second),
            [connected_hidden(Node, Given) || Node <- [Rdma, Plain]],
            [ok = inet_rdma_test_link:exercise(Node, Given) || Node <- [Rdma, Plain]],
            case Carrier of
                #{carrier := _} ->
                    stayed_on_tcp(Rdma, Given);
                #{} ->
                    stayed_on_tcp(Given, Plain),
                    [
                        ok = inet_rdma_test_link:await(X, Y, shm)
                     || {X, Y} <- [{Rdma, Given}, {Given, Rdma}]
                    ]
            end,
            inet_rdma_test_node:stop_all()
        end
     || {Name, Long, Named} <- Forms, Carrier <- [plain(), #{}], Which <- [rdma, plain]
    ].

connected_hidden(Node, Nameless) ->
    inet_rdma_test_wait:until({hidden_nodes, name(Nameless)}, 10000, fun() ->
        lists:member(name(Nameless), call(Node, erlang, nodes, [hidden]))
    end).

nodes_that_do_not_listen(_Config) ->
    [
        begin
            [Node, Deaf] = start_all([
                {"n", Options}, {"deaf", DeafOptions#{args => ["-dist_listen", "false"]}}
            ]),
            ?assertEqual(pang, call(Node, net_adm, ping, [name(Deaf)])),
            connect(Deaf, Node),
            connected_hidden(Node, Deaf),
            ok = inet_rdma_test_link:exercise(Node, Deaf),
            ok = inet_rdma_test_link:exercise(Deaf, Node)
        end
     || {Options, DeafOptions} <- [{#{}, plain()}, {plain(), #{}}, {#{}, #{}}]
    ].

%% inet6_rdma with inet6_tcp, and two of inet6_rdma.
links_with_plain_nodes_go_over_ipv6(_Config) ->
    case gen_tcp:listen(0, [inet6, {ip, {0, 0, 0, 0, 0, 0, 0, 1}}]) of
        {ok, Socket} ->
            ok = gen_tcp:close(Socket),
            [A, B, C] = start_all([
                {Prefix, #{carrier => Carrier, name => unique(Prefix) ++ "@::1", long => true}}
             || {Prefix, Carrier} <- [{"a", "inet6_rdma"}, {"b", "inet6_rdma"}, {"c", "inet6_tcp"}]
            ]),
            [
                begin
                    connect(X, Y),
                    ok = inet_rdma_test_link:exercise(X, Y),
                    ok = inet_rdma_test_link:await(A, Y, Fabric),
                    ok = inet_rdma_test_link:disconnect(X, Y),
                    connect(Y, X),
                    ok = inet_rdma_test_link:exercise(X, Y),
                    ok = inet_rdma_test_link:await(A, Y, Fabric)
                end
             || {X, Y, Fabric} <- [{A, B, shm}, {A, C, tcp}]
            ],
            stayed_on_tcp(A, C);
        {error, Reason} ->
            inet_rdma_test_link:skip(lists:flatten(io_lib:format("no IPv6 loopback: ~p", [Reason])))
    end.

%% The names are in files; EPMD knows none of these nodes.
own_epmd_module(Config) ->
    Directory = filename:join(proplists:get_value(priv_dir, Config), "names"),
    ok = filelib:ensure_dir(filename:join(Directory, "name")),
    Args = [
        "-start_epmd",
        "false",
        "-epmd_module",
        "inet_rdma_test_epmd",
        "-inet_rdma_test_epmd",
        Directory
    ],
    [A, B, C] =
        Nodes = start_all([
            {"a", #{args => Args}}, {"b", #{args => Args}}, {"c", (plain())#{args => Args}}
        ]),
    {ok, Names} = erl_epmd:names({127, 0, 0, 1}),
    [?assertNot(lists:keymember(Name, 1, Names)) || #{name := Name} <- Nodes],
    ok = inet_rdma_test_node:mesh(Nodes),
    [ok = inet_rdma_test_link:await(A, Node, Fabric) || {Node, Fabric} <- [{B, shm}, {C, tcp}]],
    [ok = inet_rdma_test_link:exercise(X, Y) || {X, Y} <- [{A, B}, {A, C}, {B, C}]].

%% A node with inet_rdma and a plain node connect to each other at the same moment: both calls
%% return a link each time.
simultaneous_connects_return_a_link_each(_Config) ->
    Count = list_to_integer(os:getenv("INET_RDMA_TEST_CONNECTS", "1000")),
    [Rdma, Plain] = pair(),
    connect(Rdma, Plain),
    {Counter, ok} = call(Rdma, inet_rdma_test_watch, collisions, []),
    [ok = inet_rdma_test_link:collide(Rdma, Plain) || _ <- lists:seq(1, Count)],
    Collisions = length(call(Rdma, inet_rdma_test_watch, seen, [Counter])),
    ct:pal("~b of ~b rounds had two attempts under way at the inet_rdma node at once", [
        Collisions, Count
    ]),
    ?assert(Collisions > 0),
    stayed_on_tcp(Rdma, Plain),
    ok = inet_rdma_test_link:exercise(Rdma, Plain).

%% Links over TCP and over shared memory come and go in one node without harm to each other.
moved_and_plain_links_together(_Config) ->
    %% Else OTP's global ends a link when it hears late that another one has gone.
    Calm = #{args => ["-kernel", "prevent_overlapping_partitions", "false"]},
    [A, B, Plain] = start_all([{"a", Calm}, {"b", Calm}, {"p", maps:merge(Calm, plain())}]),
    connect(A, B),
    connect(A, Plain),
    [
        begin
            ok = inet_rdma_test_link:disconnect(A, Gone),
            ?assertEqual(name(Kept), call(A, rpc, call, [name(Kept), erlang, node, []])),
            connect(Gone, A),
            ok = inet_rdma_test_link:await(A, Gone, Fabric)
        end
     || _ <- lists:seq(1, 20), {Gone, Kept, Fabric} <- [{B, Plain, shm}, {Plain, B, tcp}]
    ],
    [ok = inet_rdma_test_link:exercise(A, Peer) || Peer <- [B, Plain]].

another_otp_with_inet_tcp(Config) -> with_another_otp(Config, plain(), tcp).

another_otp_with_inet_rdma(Config) -> with_another_otp(Config, #{}, shm).

with_another_otp(Config, Options, Fabric) ->
    [A, Plain] = pair(),
    Other = inet_rdma_test_node:start("other", Options#{
        under => proplists:get_value(other_otp, Config),
        code => [
            inet_rdma_test_otp:compiled(
                proplists:get_value(other_otp, Config),
                filename:join(proplists:get_value(priv_dir, Config), "other")
            )
        ]
    }),
    Release = fun(Node) -> call(Node, erlang, system_info, [otp_release]) end,
    ct:pal("OTP ~s and OTP ~s", [Release(A), Release(Other)]),
    [
        begin
            connect(X, Y),
            ok = inet_rdma_test_link:await(A, Other, Fabric),
            ok = inet_rdma_test_link:exercise(X, Y),
            ok = inet_rdma_test_link:disconnect(X, Y)
        end
     || {X, Y} <- [{A, Other}, {Other, A}]
    ],
    ok = inet_rdma_test_node:mesh([A, Plain, Other]),
    ok = inet_rdma_test_link:exercise(Plain, Other),
    [ok = inet_rdma_test_link:collide(A, Other) || _ <- lists:seq(1, 50)],
    ok = inet_rdma_test_link:await(A, Other, Fabric).

stayed_on_tcp(A, B) -> ok = inet_rdma_test_link:await(A, B, tcp, "the peer makes no offer").

pair() -> start_all([{"a", #{}}, {"p", plain()}]).

plain() -> #{carrier => "inet_tcp"}.

connect(A, B) -> ok = inet_rdma_test_link:connect(A, B).

call(Node, Module, Function, Args, TimeoutMs) ->
    inet_rdma_test_node:call(Node, Module, Function, Args, TimeoutMs).

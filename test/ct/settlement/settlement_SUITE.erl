%% What two nodes settle on: the options of both, and what keeps them from sharing a fabric. Each
%% link is up over TCP, or has ended, with the reason in words on both nodes, and never stays
%% pending.
-module(settlement_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_node, [call/4, name/1, start_all/1, unique/1]).
-import(inet_rdma_test_link, [gone/2]).

-export([all/0, suite/0]).
-export([
    options_of_both_sides/1,
    required_on_one_side/1,
    required_with_a_plain_peer/1,
    another_user_stays_on_tcp/1,
    another_network_namespace/1,
    memfd_is_refused/1,
    eventfd_is_refused/1,
    restarted_peer_is_tried_at_once/1,
    strangers_at_the_tcp_port/1
]).

suite() ->
    [{timetrap, {minutes, 3}}, {ct_hooks, [{inet_rdma_test_nodes, [only_rdma]}]}].

all() ->
    [
        options_of_both_sides,
        required_on_one_side,
        required_with_a_plain_peer,
        another_user_stays_on_tcp,
        another_network_namespace,
        memfd_is_refused,
        eventfd_is_refused,
        restarted_peer_is_tried_at_once,
        strangers_at_the_tcp_port
    ].

%% The fabric of the link, and the reason that each node tells, whichever connects.
options_of_both_sides(_Config) ->
    Cases = [
        {auto, auto, shm, ""},
        {shm, auto, shm, ""},
        {auto, shm, shm, ""},
        {shm, shm, shm, ""},
        {tcp, auto, tcp, "option fabric of .* is tcp"},
        {tcp, tcp, tcp, "option fabric of .* is tcp"},
        {tcp, shm, tcp, "option fabric of .* is "},
        {shm, verbs, tcp, "option fabric of .* is (shm|verbs)"},
        {verbs, auto, tcp, "verbs: "},
        {verbs, verbs, tcp, "verbs: "}
    ],
    [
        begin
            [A, B] = start_all([
                {"a", options([{fabric, OptionA}])}, {"b", options([{fabric, OptionB}])}
            ]),
            [
                begin
                    connect(X, Y),
                    [carried_by(Fabric, P, Q, Why) || {P, Q} <- [{A, B}, {B, A}]],
                    ok = inet_rdma_test_link:exercise(X, Y),
                    ok = inet_rdma_test_link:disconnect(X, Y)
                end
             || {X, Y} <- [{A, B}, {B, A}]
            ],
            inet_rdma_test_node:stop_all()
        end
     || {OptionA, OptionB, Fabric, Why} <- Cases
    ].

%% The link is refused by both, with the reason in both logs; one that can move is not.
required_on_one_side(_Config) ->
    [
        begin
            [A, B, C] = start_all([
                {"a", options([{required, RequiredA}])},
                {"b", options([{required, RequiredB}, {fabric, tcp}])},
                {"c", options([])}
            ]),
            [ok = call(Node, inet_rdma_test_log, install, []) || Node <- [A, B]],
            [
                begin
                    [ok = call(Node, inet_rdma_test_log, forget, []) || Node <- [A, B]],
                    ?assertEqual(false, call(X, net_kernel, connect_node, [name(Y)])),
                    [
                        inet_rdma_test_log:await(Node, [
                            "required", "option fabric", "tcp", name(Other)
                        ])
                     || {Node, Other} <- [{A, B}, {B, A}]
                    ],
                    [gone(P, name(Q)) || {P, Q} <- [{A, B}, {B, A}]]
                end
             || {X, Y} <- [{A, B}, {B, A}]
            ],
            connect(A, C),
            [carried_by(shm, P, Q, "") || {P, Q} <- [{A, C}, {C, A}]],
            inet_rdma_test_node:stop_all()
        end
     || {RequiredA, RequiredB} <- [{true, false}, {false, true}, {true, true}]
    ].

required_with_a_plain_peer(_Config) ->
    [A, Plain] = start_all([{"a", options([{required, true}])}, {"p", #{carrier => "inet_tcp"}}]),
    ok = call(A, inet_rdma_test_log, install, []),
    [
        begin
            ok = call(A, inet_rdma_test_log, forget, []),
            %% The plain node's own part of the handshake may be over before it is refused.
            Connected = call(X, net_kernel, connect_node, [name(Y)]),
            ?assert(X =:= Plain orelse not Connected),
            inet_rdma_test_log:await(A, ["required", "makes no offer", name(Plain)]),
            gone(A, name(Plain)),
            gone(Plain, name(A))
        end
     || {X, Y} <- [{A, Plain}, {Plain, A}]
    ].

another_user_stays_on_tcp(_Config) ->
    case {os:cmd("id -u"), os:find_executable("setpriv"), os:find_executable("env")} of
        {"0\n", Setpriv, Env} when is_list(Setpriv), is_list(Env) ->
            %% The other user may be kept from this checkout. It needs no home directory, as the
            %% cookie is given.
            Home = scratch_directory("home"),
            Nobody = [
                "setpriv",
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
                "env",
                "-C",
                Home,
                "HOME=" ++ Home
            ],
            %% No directory of this checkout is in its path: OTP 27 does not boot with one that
            %% cannot be read.
            Code = inet_rdma_test_node:copy_code(filename:join(Home, "inet_rdma")),
            [A, B] = start_all([{"a", #{}}, {"b", #{under => Nobody, code => Code}}]),
            falls_back(A, B, "another user"),
            file:del_dir_r(Home);
        _ ->
            inet_rdma_test_link:skip("to run a node as another user needs root, setpriv and env")
    end.

%% Below /tmp, as other users may not see where the tests write.
scratch_directory(Prefix) ->
    Directory = filename:join("/tmp", unique("inet_rdma_" ++ Prefix)),
    ok = filelib:ensure_dir(filename:join(Directory, "x")),
    [] = os:cmd("chmod 777 " ++ Directory),
    Directory.

%% The same host, user and kernel, but abstract sockets do not lead there. Two addresses, one cable.
another_network_namespace(Config) ->
    case inet_rdma_test_netns:make() of
        {ok, #{namespace := Namespace, addresses := {Here, There}} = Network} ->
            try
                Directory = filename:join(proplists:get_value(priv_dir, Config), "names"),
                ok = filelib:ensure_dir(filename:join(Directory, "name")),
                Options = fun(Prefix, Address) ->
                    #{
                        name => unique(Prefix) ++ "@" ++ Address,
                        long => true,
                        args => [
                            "-start_epmd",
                            "false",
                            "-epmd_module",
                            "inet_rdma_test_epmd",
                            "-inet_rdma_test_epmd",
                            Directory
                        ]
                    }
                end,
                Within = ["ip", "netns", "exec", Namespace],
                [A, B] = start_all([
                    {"a", Options("a", Here)}, {"b", (Options("b", There))#{under => Within}}
                ]),
                falls_back(A, B, "another network namespace")
            after
                inet_rdma_test_node:stop_all(),
                inet_rdma_test_netns:remove(Network)
            end;
        {error, Output} ->
            inet_rdma_test_link:skip("no network namespace can be made here: " ++ Output)
    end.

%% Shared memory cannot be made in one node, whichever connects.
memfd_is_refused(Config) ->
    case without_call("memfd_create", Config) of
        {skip, _} = Skip ->
            Skip;
        Under ->
            [A, B] = start_all([
                {"a", options([{fallback_retry_ms, 0}])},
                {"b", (options([{fallback_retry_ms, 0}]))#{under => Under}}
            ]),
            falls_back(A, B, "shm: creating the memory of a connection: .*may refuse memfd_create")
    end.

%% A filter is no lack of descriptors.
eventfd_is_refused(Config) ->
    case without_call("eventfd2", Config) of
        {skip, _} = Skip ->
            Skip;
        Under ->
            [A, B] = start_all([{"a", options([])}, {"b", (options([]))#{under => Under}}]),
            connect(A, B),
            carried_by(tcp, B, A, "opening a descriptor: .*may refuse eventfd2"),
            ok = inet_rdma_test_link:exercise(A, B)
    end.

%% What starts a node in which the system call is refused.
without_call(Call, Config) ->
    Script = filename:join(proplists:get_value(data_dir, Config), "without_call.py"),
    case os:find_executable("python3") of
        false ->
            inet_rdma_test_link:skip("the seccomp filter needs python3");
        Python ->
            case os:cmd(lists:join(" ", [Python, Script, Call, "/bin/echo yes"])) of
                "yes\n" -> [Python, Script, Call];
                _ -> inet_rdma_test_link:skip("this kernel has no seccomp filters")
            end
    end.

%% The link is up over TCP whichever connects, and both nodes say why.
falls_back(A, B, Why) ->
    [
        begin
            connect(X, Y),
            [carried_by(tcp, P, Q, Why) || {P, Q} <- [{A, B}, {B, A}]],
            ok = inet_rdma_test_link:exercise(X, Y),
            ok = inet_rdma_test_link:disconnect(X, Y)
        end
     || {X, Y} <- [{A, B}, {B, A}, {A, B}]
    ].

%% A node of the same name that has shared memory when it comes back.
restarted_peer_is_tried_at_once(Config) ->
    case without_call("memfd_create", Config) of
        {skip, _} = Skip ->
            Skip;
        Under ->
            Name = unique("b"),
            [A, B] = start_all([{"a", #{}}, {"b", #{name => Name, under => Under}}]),
            [
                begin
                    connect(X, Y),
                    carried_by(tcp, X, Y, "shm: " ++ Why),
                    ok = inet_rdma_test_link:disconnect(X, Y)
                end
             || {X, Y, Why} <- [
                    {A, B, ""}, {A, B, "it failed lately"}, {B, A, ""}, {B, A, "it failed lately"}
                ]
            ],
            inet_rdma_test_node:stop(B),
            Restarted = inet_rdma_test_node:start("b", #{name => Name}),
            connect(A, Restarted),
            [carried_by(shm, X, Y, "") || {X, Y} <- [{A, Restarted}, {Restarted, A}]]
    end.

%% Many connections that say nothing, and others that send no handshake: nodes get in, and move to
%% shared memory.
strangers_at_the_tcp_port(_Config) ->
    %% A link that global makes again would count.
    Nodes = [{"a", #{args => ["-kernel", "net_setuptime", "5"]}}, {"b", #{args => []}}],
    [A, B] = start_all([{Prefix, inet_rdma_test_node:alone(Options)} || {Prefix, Options} <- Nodes]),
    #{os_pid := OsPid} = A,
    [Short, _] = string:lexemes(atom_to_list(name(A)), "@"),
    {port, Port, _} = erl_epmd:port_please(Short, {127, 0, 0, 1}),
    %% The first link opens the listener over shm, which stays.
    connect(B, A),
    [carried_by(shm, X, Y, "") || {X, Y} <- [{A, B}, {B, A}]],
    ok = inet_rdma_test_link:disconnect(A, B),
    Before = inet_rdma_test_usage:footprint(A),
    Open = fun(Said) ->
        {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}]),
        _ = gen_tcp:send(Socket, Said),
        Socket
    end,
    Strangers = [
        Open(Said)
     || Said <- [<<>>, <<"GET / HTTP/1.1\r\n\r\n">>, <<0>>, <<0, 1, $N>>],
        _ <- lists:seq(1, 100)
    ],
    connect(B, A),
    [carried_by(shm, X, Y, "") || {X, Y} <- [{A, B}, {B, A}]],
    ok = inet_rdma_test_link:exercise(A, B),
    ok = inet_rdma_test_link:disconnect(A, B),
    [gen_tcp:close(Socket) || Socket <- Strangers],
    ok = inet_rdma_test_os:await_footprint(OsPid, Before).

options(Options) -> #{rdma => Options}.

connect(A, B) -> ok = inet_rdma_test_link:connect(A, B).

carried_by(Fabric, A, B, Why) -> ok = inet_rdma_test_link:await(A, B, Fabric, Why).

%% Nodes of one machine whose links or streams cannot use an RDMA device, or may not use all of it:
%% they stay on TCP or are refused, and both nodes say why and what to do.
-module(verbs_fallback_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_vm, [contains/2]).
-import(inet_rdma_test_link, [disconnect/2]).

-export([all/0, groups/0, suite/0, init_per_group/2, end_per_group/2, end_per_testcase/2]).
-export([
    refused_streams_say_what_to_do/1,
    no_device_files/1,
    forbidden_device_files/1,
    too_little_locked_memory/1,
    pinned_memory_is_bounded/1,
    required_without_a_device/1,
    a_wrong_cookie_is_refused_and_logged/1,
    a_device_without_a_link_is_removed/1,
    a_removed_device_leaves_the_link_on_tcp/1,
    device_removed_under_tls/1
]).

-define(MB, 1048576).

suite() ->
    [{timetrap, {minutes, 12}}].

all() ->
    [{group, rxe}, {group, siw}].

groups() ->
    Cases = [
        refused_streams_say_what_to_do,
        no_device_files,
        forbidden_device_files,
        too_little_locked_memory,
        pinned_memory_is_bounded,
        required_without_a_device,
        a_wrong_cookie_is_refused_and_logged,
        a_device_without_a_link_is_removed,
        a_removed_device_leaves_the_link_on_tcp,
        device_removed_under_tls
    ],
    [{rxe, [], Cases}, {siw, [], Cases}].

init_per_group(Kind, Config) -> inet_rdma_vm:start_pair(Kind, Config).

end_per_group(_Kind, Config) -> inet_rdma_vm:stop_pair(Config).

%% A device_removed that failed must not leave its device to device_removed_under_tls.
end_per_testcase(_Case, Config) ->
    _ = os:cmd("rdma link delete going_rdma; ip link delete going"),
    inet_rdma_vm:pair_lives(Config).

%% On a port where another listener is, over the other fabric where that matters.
refused_streams_say_what_to_do(Config) ->
    [A, B] = inet_rdma_vm:pair(Config),
    {ok, Port, Shm} = call(A, inet_rdma_test_end, listen, [0, [{fabric, shm}]]),
    Connect = fun(Host, Options) ->
        {error, Reason} = call(B, inet_rdma_test_end, connect, [Host, Port, Options]),
        Text = call(B, inet_rdma, format_error, [Reason]),
        ct:pal("~p, ~p: ~p~n~ts", [Host, Options, Reason, Text]),
        {Reason, Text}
    end,
    Ipv4 = proplists:get_value(ipv4, Config),
    {econnrefused, _} = Connect(Ipv4, [{fabric, verbs}]),
    {{no_route, _}, Loopback} = Connect("127.0.0.1", [{fabric, verbs}]),
    contains(Loopback, ["127.0.0.1", "no RDMA device has an address in its network", "rdma link"]),
    {{no_route, _}, NoRdma} = Connect("10.9.2." ++ lists:last(string:lexemes(Ipv4, ".")), [
        {fabric, verbs}
    ]),
    contains(NoRdma, ["no RDMA device has an address in its network", "rdma link"]),
    {{no_route, _}, NoRoute} = Connect("192.0.2.1", [{fabric, verbs}]),
    contains(NoRoute, ["no route"]),
    {{no_route, _}, LinkLocal} = Connect("fe80::1", [{fabric, verbs}]),
    contains(LinkLocal, ["link-local", "use another address"]),
    ok = do(A, Shm, stop, []).

no_device_files(Config) ->
    stays_on_tcp(
        Config,
        #{under => hidden_device_files()},
        ["/dev/infiniband/rdma_cm", "modprobe rdma_ucm", "--device=/dev/infiniband"]
    ).

hidden_device_files() ->
    ["unshare", "-m", "sh", "-c", "mount -t tmpfs none /dev/infiniband && exec \"$@\"", "sh"].

%% Root may use them all the same.
forbidden_device_files(Config) ->
    Files = " /dev/infiniband/rdma_cm /dev/infiniband/uverbs*",
    [] = os:cmd("chmod 600" ++ Files),
    try
        stays_on_tcp(Config, as_nobody(""), ["no permission to open /dev/infiniband/rdma_cm"]),
        Doctor = "io:put_chars(inet_rdma_doctor:format(inet_rdma_doctor:report()))",
        {0, Report} = run(Config, "n", (as_nobody(""))#{rdma => [{fabric, auto}]}, Doctor),
        contains(Report, ["this user may not read and write /dev/infiniband/rdma_cm"])
    after
        [] = os:cmd("chmod 666" ++ Files)
    end.

%% The options of a node that runs as a user without rights, behind this shell command.
as_nobody(First) ->
    Code = filename:join("/run", inet_rdma_test_node:unique("code")),
    Script =
        First ++
            "cd /; export HOME=/; exec setpriv --reuid 65534 --regid 65534 --clear-groups "
            "--inh-caps=-all \"$@\"",
    #{under => ["sh", "-c", Script, "sh"], code => inet_rdma_test_node:copy_code(Code)}.

%% Root may lock as much as it likes, whatever the limit is.
too_little_locked_memory(Config) ->
    Limited = as_nobody("ulimit -l 64; "),
    stays_on_tcp(Config, Limited, ["of 65536 bytes", "ulimit -l", "pinned_max_bytes"]),
    %% The node would pin more than the kernel allows.
    Bold = [{fabric, verbs}, {pinned_max_bytes, 1 bsl 30}],
    stays_on_tcp(Config, Limited#{rdma => Bold}, [
        "65536 bytes", "ulimit -l", "LimitMEMLOCK", "ring_bytes"
    ]),
    %% So little that the limit suffices.
    [A, B] = inet_rdma_vm:pair(Config),
    Small = [{fabric, verbs}, {ring_bytes, 4096}, {receive_slots, 16}],
    N = node_alone(Config, Limited#{rdma => Small}),
    ok = inet_rdma_test_node:connect(A, N),
    [ok = inet_rdma_test_link:await(X, Y, verbs) || {X, Y} <- [{A, N}, {N, A}]],
    inet_rdma_test_node:stop(N),
    inet_rdma_test_node:await_nodes(A, [name(B)]).

%% 64 KB hold no link, 8 MiB hold links and rings that stay small where there is no room.
pinned_memory_is_bounded(Config) ->
    [A, B] = inet_rdma_vm:pair(Config),
    Bounded = fun(Bytes) -> [{fabric, verbs}, {pinned_max_bytes, Bytes}] end,
    stays_on_tcp(Config, #{rdma => Bounded(65536)}, ["of 65536 bytes", "pinned_max_bytes"]),
    [
        begin
            N = node_alone(Config, #{rdma => Bounded(Bytes)}),
            ok = inet_rdma_test_node:connect(A, N),
            [ok = inet_rdma_test_link:await(P, Q, verbs) || {P, Q} <- [{A, N}, {N, A}]],
            ok = call(A, inet_rdma_test_data, send_and_compare, [name(N), [5 * ?MB, 5 * ?MB]]),
            #{ring_size_bytes := Ring, node_pinned_bytes := Pinned} = inet_rdma_vm:info(N, A),
            ct:pal("~b: ring ~b, pinned ~b", [Bytes, Ring, Pinned]),
            ?assertEqual(Expected, Ring),
            ?assert(Pinned =< Bytes),
            inet_rdma_test_node:stop(N),
            inet_rdma_test_node:await_nodes(A, [name(B)])
        end
     || {Bytes, Expected} <- [{1 bsl 18, 65536}, {8 bsl 20, 524288}, {1 bsl 60, 524288}]
    ].

%% The link of A and a node with these options is up over TCP whichever connects, and both nodes say
%% why in these words. What was made for the attempt is freed.
stays_on_tcp(Config, Options, Words) ->
    [A, B] = inet_rdma_vm:pair(Config),
    %% As the accepting side does. A process keeps the devices open that it has opened once.
    {ok, _} = call(A, inet_rdma_nif, verbs_addresses, [
        call(A, inet_rdma_test_settle, addresses, [])
    ]),
    Before = maps:map(
        fun(_Device, Counts) -> maps:remove("ctx", Counts) end, inet_rdma_vm:resources()
    ),
    N = node_alone(Config, Options),
    [
        begin
            ok = inet_rdma_test_link:connect(X, Y),
            [
                begin
                    ok = inet_rdma_test_link:await(P, Q, tcp),
                    Why = inet_rdma_test_link:why(P, Q),
                    ct:pal("~p: ~ts", [name(P), Why]),
                    contains(Why, Words)
                end
             || {P, Q} <- [{A, N}, {N, A}]
            ],
            ok = call(X, inet_rdma_test_data, echo_and_compare, [name(Y), [0, 1000, 200000]]),
            disconnect(X, Y)
        end
     || {X, Y} <- [{A, N}, {N, A}]
    ],
    inet_rdma_test_node:stop(N),
    inet_rdma_test_node:await_nodes(A, [name(B)]),
    inet_rdma_vm:await_resources(Before).

%% A node that global of B does not connect to A again when a case has disconnected the two.
node_alone(Config, Options) ->
    [N] = inet_rdma_vm:nodes_on(
        proplists:get_value(ipv4, Config),
        ["n"],
        inet_rdma_test_node:alone(Options#{args => []})
    ),
    N.

%% No link at all then, with the reason on both nodes.
required_without_a_device(Config) ->
    [A, B] = inet_rdma_vm:pair(Config),
    ok = call(A, inet_rdma_test_log, install, []),
    Required = [{fabric, verbs}, {required, true}],
    {0, Output} = run(
        Config, "choosy", #{under => hidden_device_files(), rdma => Required}, ping(pang, A)
    ),
    contains(Output, ["required", "/dev/infiniband/rdma_cm", atom_to_list(name(A))]),
    inet_rdma_test_wait:until(refusal_is_logged, 10000, fun() ->
        Lines = call(A, inet_rdma_test_log, lines, []),
        [] =/=
            [
                Line
             || Line <- Lines,
                Word <- ["required"],
                string:find(Line, "choosy") =/= nomatch,
                string:find(Line, Word) =/= nomatch,
                string:find(Line, "/dev/infiniband/rdma_cm") =/= nomatch
            ]
    end),
    ?assertEqual([name(B)], call(A, erlang, nodes, [])).

a_wrong_cookie_is_refused_and_logged(Config) ->
    [A, B] = inet_rdma_vm:pair(Config),
    ok = call(A, inet_rdma_test_log, install, []),
    {0, _} = run(Config, "stranger", #{cookie => "another"}, ping(pang, A)),
    inet_rdma_test_wait:until(refusal_is_logged, 10000, fun() ->
        call(A, inet_rdma_test_log, contains, ["stranger"])
    end),
    ?assertEqual([name(B)], call(A, erlang, nodes, [])).

%% Both nodes have opened it, as the accepting side of each settlement does; their link is on another
%% one. The kernel removes it while the nodes run, and they open it again when it is back.
a_device_without_a_link_is_removed(Config) ->
    [A, B] = Pair = inet_rdma_vm:pair(Config),
    Watched = inet_rdma_vm:watch_both(Pair),
    Fabric = inet_rdma_test_link:why(A, B),
    [
        begin
            add_going(Config),
            [
                ?assertEqual(
                    {ok, [<<"10.9.7.1">>]},
                    call(Node, inet_rdma_nif, verbs_addresses, [[<<"10.9.7.1">>]])
                )
             || Node <- Pair, _ <- [first, again]
            ],
            #{"going_rdma" := #{"ctx" := Opened}} = inet_rdma_vm:resources(),
            ?assert(Opened >= 2),
            [] = os:cmd("rdma link delete going_rdma"),
            [] = os:cmd("ip link delete going")
        end
     || _ <- [first, again]
    ],
    ok = call(A, inet_rdma_test_data, echo_and_compare, [name(B), [0, 1000, 200000]]),
    ?assertEqual(Fabric, inet_rdma_test_link:why(A, B)),
    [[] = call(Node, inet_rdma_test_watch, seen, [Watcher]) || {Node, Watcher, _} <- Watched].

add_going(Config) ->
    Kind = atom_to_list(proplists:get_value(kind, Config)),
    [] = os:cmd(
        "ip link add going type dummy && ip link set going arp on up && ip addr add 10.9.7.1/24 "
        "dev going && "
        "rdma link add going_rdma type " ++ Kind ++ " netdev going"
    ).

%% With streams both ways. The device is another one than that of the pair, which stays connected.
a_removed_device_leaves_the_link_on_tcp(Config) -> device_removed(Config, [], []).

%% The bytes in the device's queues are records, which say less than they are long.
device_removed_under_tls(Config) ->
    {Directory, Tls} = inet_rdma_vm:tls_arguments(["10.9.7.1"]),
    device_removed(Config, [{security, tls}, {survive_ms, 120000}], [
        "-kernel", "net_ticktime", "240" | Tls
    ]),
    ok = file:del_dir_r(Directory).

device_removed(Config, Rdma, Args) ->
    [A, B] = inet_rdma_vm:pair(Config),
    add_going(Config),
    Going =
        [C, D] = inet_rdma_vm:nodes_on(
            "10.9.7.1",
            ["c", "d"],
            inet_rdma_test_node:alone(#{
                rdma => [{fabric, verbs}, {fallback_retry_ms, 1000} | Rdma], args => Args
            })
        ),
    case Args =/= [] of
        true -> ok = inet_rdma_vm:load_tls(Going);
        false -> ok
    end,
    inet_rdma_vm:explained(Going, fun() -> link_outlives_the_device(C, D) end),
    [inet_rdma_test_node:stop(Node) || Node <- Going],
    ?assertEqual([name(B)], call(A, erlang, nodes, [])).

link_outlives_the_device(C, D) ->
    Going = [C, D],
    ok = inet_rdma_test_node:connect(C, D),
    #{fabric := verbs, why := Why} = inet_rdma_vm:info(C, D),
    contains(Why, ["going_rdma"]),
    Watched = [inet_rdma_vm:watch(C, D), inet_rdma_vm:watch(D, C)],
    [
        begin
            Name = inet_rdma_test_stream:receiver_at(Y, 2, 10000),
            call(X, inet_rdma_test_stream, senders, [name(Y), Name, mixed, 2, 10000])
        end
     || {X, Y} <- [{C, D}, {D, C}]
    ],
    {Removing, Ref} = spawn_monitor(fun() -> [] = os:cmd("rdma link delete going_rdma") end),
    %% The link goes on over TCP, and no node goes down.
    [ok = inet_rdma_test_link:await(X, Y, tcp) || {X, Y} <- [{C, D}, {D, C}]],
    [[] = call(Node, inet_rdma_test_watch, seen, [Watcher]) || {Node, Watcher, _} <- Watched],
    inet_rdma_test_wait:until(removal_is_logged, 10000, fun() ->
        lists:any(
            fun(Node) -> call(Node, inet_rdma_test_log, contains, ["device was removed"]) end, Going
        )
    end),
    #{fabric := Fabric, why := WhyNow} = inet_rdma_vm:info(C, D),
    ct:pal("~p: ~ts", [Fabric, WhyNow]),
    ?assertEqual(nomatch, string:find(WhyNow, "going_rdma")),
    ok = call(C, inet_rdma_test_data, echo_and_compare, [name(D), [0, 1000, 200000]]),
    %% And the link moves to another device of the host.
    [ok = inet_rdma_test_link:await(X, Y, verbs) || {X, Y} <- [{C, D}, {D, C}]],
    ?assertEqual(nomatch, string:find(inet_rdma_test_link:why(C, D), "going_rdma")),
    ok = call(C, inet_rdma_test_data, echo_and_compare, [name(D), [0, 1000, 200000]]),
    [[] = call(Node, inet_rdma_test_watch, seen, [Watcher]) || {Node, Watcher, _} <- Watched],
    %% No node keeps the device open.
    receive
        {'DOWN', Ref, process, Removing, Reason} -> ?assertEqual(normal, Reason)
    end.

ping(Answer, Node) ->
    lists:flatten(io_lib:format("~p = net_adm:ping(~p)", [Answer, name(Node)])).

run(Config, Prefix, Options, Expression) ->
    Address = proplists:get_value(ipv4, Config),
    %% What was logged is written before the node halts.
    Flushed = Expression ++ ", logger_std_h:filesync(default)",
    {Status, Output} = inet_rdma_test_node:run(
        Prefix, inet_rdma_vm:name_at(Prefix, Address, Options), Flushed
    ),
    ct:pal("exit status ~p~n~ts", [Status, Output]),
    {Status, Output}.

do(Node, End, Function, Args) ->
    call(Node, inet_rdma_test_end, do, [End, Function, Args]).

call(Node, Module, Function, Args) -> inet_rdma_vm:call(Node, Module, Function, Args).

name(Node) -> inet_rdma_vm:name(Node).

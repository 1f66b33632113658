%% A node is killed, in each way in which nodes are deployed: without EPMD, together with it, in a
%% container behind published ports, behind a proxy, behind a detour, on hosts that hide what they
%% are. Its peers get the nodedown, and no time limit of theirs has part in it. What each kill took
%% is printed.
-module(kill_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_node, [call/4, name/1]).
-import(inet_rdma_test_hosts, [both/2]).

-export([all/0, suite/0, groups/0, init_per_testcase/2, end_per_testcase/2]).
-export([
    a_kill_without_epmd_is_a_nodedown/1,
    hidden_boot_id/1,
    out_of_memory/1,
    unproved_answers_end_no_link/1
]).
-export([
    a_kill_with_its_epmd_is_a_nodedown/1,
    without_epmd_on_two_hosts/1,
    a_kill_behind_constant_ports_is_a_nodedown/1,
    together_with_epmd/1,
    a_kill_after_its_epmd_is_a_nodedown/1
]).
-export([
    with_its_host/1,
    a_kill_behind_published_ports_is_a_nodedown/1,
    published_ports_without_epmd/1,
    a_kill_behind_a_proxy_is_a_nodedown/1,
    a_kill_behind_a_detour_is_a_nodedown/1,
    replaced_in_silence/1,
    one_of_three/1,
    host_of_one_of_three/1
]).

%% Longer than any wait of the cases: no end may come from there.
-define(SURVIVE_MS, 600000).
-define(TICKTIME_S, 600).
%% The time limit of a wait for a nodedown.
-define(DOWN_MS, 10000).
-define(EPMD_PORT, 4369).
%% In network namespaces of the case's own.
-define(PORT, 15400).
-define(BOX, {10, 95, 0, 2}).
%% Memory that a node gets before the kernel ends it, and what it asks for.
-define(ROOM_BYTES, 64 * 1024 * 1024).
-define(TAKEN_BYTES, 1024 * 1024 * 1024).
-define(NAME, inet_rdma_test_kill).

suite() ->
    [{timetrap, {minutes, 10}}, {ct_hooks, [{inet_rdma_test_nodes, [paths]}]}].

all() ->
    [{group, Group} || {Group, _, _} <- groups()].

groups() ->
    OneHost = [a_kill_without_epmd_is_a_nodedown, hidden_boot_id, out_of_memory],
    Hosts = [
        a_kill_with_its_epmd_is_a_nodedown,
        without_epmd_on_two_hosts,
        a_kill_behind_constant_ports_is_a_nodedown,
        together_with_epmd,
        a_kill_after_its_epmd_is_a_nodedown,
        with_its_host,
        a_kill_behind_published_ports_is_a_nodedown,
        published_ports_without_epmd,
        a_kill_behind_a_proxy_is_a_nodedown,
        a_kill_behind_a_detour_is_a_nodedown,
        replaced_in_silence,
        one_of_three,
        host_of_one_of_three
    ],
    [{Path, [], OneHost ++ [unproved_answers_end_no_link] ++ Hosts} || Path <- [tcp, tls]] ++
        [{shm, [], OneHost -- [hidden_boot_id]}].

init_per_testcase(a_kill_without_epmd_is_a_nodedown, Config) ->
    inet_rdma_test_paths:for_hosts(loopback(), Config);
init_per_testcase(hidden_boot_id, Config) ->
    case os:cmd(lists:append(lists:join(" ", quoted(hidden(Config)) ++ ["true 2>&1"]))) of
        "" ->
            Config;
        Why ->
            inet_rdma_test_link:skip(
                "a mount namespace with another /proc cannot be made here: " ++ Why
            )
    end;
init_per_testcase(out_of_memory, Config) ->
    inet_rdma_test_oom:needed(Config);
init_per_testcase(unproved_answers_end_no_link, Config) ->
    inet_rdma_test_node:only_sessions(Config);
init_per_testcase(Case, Config) when
    Case =:= a_kill_behind_a_detour_is_a_nodedown;
    Case =:= replaced_in_silence
->
    case inet_rdma_test_node:only_rdma(Config) of
        {skip, _} = Skip -> Skip;
        _ -> on_hosts(Config)
    end;
init_per_testcase(Case, Config) when
    Case =:= with_its_host;
    Case =:= a_kill_behind_published_ports_is_a_nodedown;
    Case =:= published_ports_without_epmd;
    Case =:= host_of_one_of_three
->
    case inet_rdma_test_hosts:why_no_firewall() of
        none -> on_hosts(Config);
        Why -> inet_rdma_test_link:skip(Why)
    end;
init_per_testcase(_Case, Config) ->
    on_hosts(Config).

end_per_testcase(_Case, Config) ->
    _ = [
        begin
            inet_rdma_test_node:stop_all(),
            inet_rdma_test_oom:remove(Oom)
        end
     || {oom, Oom} <- Config
    ],
    ok.

on_hosts(Config) ->
    case inet_rdma_test_hosts:needed(Config, 3) of
        {skip, _} = Skip ->
            Skip;
        [{hosts, Hosts} | _] = Made ->
            Ips = [inet:ntoa(inet_rdma_test_hosts:address(Host, Hosts)) || Host <- [a, b, c]],
            inet_rdma_test_paths:for_hosts(inet_rdma_test_hosts:names([a, b, c]) ++ Ips, Made)
    end.

loopback() -> ["127.0.0.1", "127.0.0.2"].

%% On one host.

%% Each node listens at the same port, which no name server tells.
a_kill_without_epmd_is_a_nodedown(Config) ->
    Port = integer_to_list(inet_rdma_test_os:free_port()),
    kills(?FUNCTION_NAME, [idle, busy, crash, at_once], Config, fun(Under) ->
        inet_rdma_test_node:start_all([
            {Prefix,
                options(Config, #{
                    long => true,
                    name => inet_rdma_test_node:unique(Prefix) ++ "@" ++ Host,
                    under => OwnUnder,
                    args => without_epmd_at(Port) ++
                        ["-kernel", "inet_dist_use_interface", interface(Host)]
                })}
         || {Prefix, Host, OwnUnder} <- lists:zip3(["a", "b"], loopback(), [[], Under])
        ])
    end).

without_epmd_at(Port) -> ["-start_epmd", "false", "-erl_epmd_port", Port].

interface(Host) ->
    {ok, Ip} = inet:parse_address(Host),
    lists:flatten(io_lib:format("~0p", [Ip])).

%% Services that are hardened cannot read it, and some containers have one of their own.
hidden_boot_id(Config) ->
    _ = [
        kills({?FUNCTION_NAME, Who}, [idle, busy, at_once, at_once], Config, fun(_Under) ->
            inet_rdma_test_node:start_all([
                {atom_to_list(Node), options(Config, #{under => under(Node, Who, How, Config)})}
             || Node <- [a, b]
            ])
        end)
     || {Who, How} <- [{a, hidden}, {b, hidden}, {both, hidden}, {b, its_own}]
    ],
    ok.

under(Node, Who, How, Config) when Who =:= Node; Who =:= both ->
    case How of
        hidden -> hidden(Config);
        its_own -> its_own(Config)
    end;
under(_Node, _Who, _How, _Config) ->
    [].

hidden(_Config) -> unshared("mount -t proc -o subset=pid proc /proc").

its_own(Config) ->
    File = filename:join(proplists:get_value(priv_dir, Config), "boot_id"),
    ok = file:write_file(File, "5b6f6c1e-0f0c-4a3c-9a53-6d6c9ad6d4aa\n"),
    unshared("mount --bind " ++ File ++ " /proc/sys/kernel/random/boot_id").

unshared(Mount) -> ["unshare", "-m", "sh", "-c", Mount ++ " && exec \"$@\"", "sh"].

quoted(Words) -> ["'" ++ Word ++ "'" || Word <- Words].

%% The kernel ends it.
out_of_memory(Config) ->
    Oom = proplists:get_value(oom, Config),
    [A, #{os_pid := OsPid, peer := Peer} = B] = inet_rdma_test_node:start_all(
        2, options(Config, #{})
    ),
    ok = inet_rdma_test_node:connect(A, B),
    ok = inet_rdma_test_oom:bound(OsPid, ?ROOM_BYTES, Oom),
    all_seen([
        down(?FUNCTION_NAME, A, B, fun() -> peer:cast(Peer, binary, copy, [<<0>>, ?TAKEN_BYTES]) end)
    ]),
    ?assert(inet_rdma_test_oom:kills(Oom) > 0).

%% Something answers in the peer's place that the session is not known, or ends a handshake of TLS
%% with an alert in clear. Whatever instance it names: it has proved nothing, and the peer lives.
unproved_answers_end_no_link(Config) ->
    Options = options(Config, #{}),
    #{a := A, b := B, relay := Relay} =
        Detour =
        inet_rdma_test_detour:start(proplists:get_value(priv_dir, Config), Options, Options),
    ok = inet_rdma_test_node:connect(A, B),
    #{instance := Instance} = call(B, inet_rdma_nif, identity, []),
    Watcher = inet_rdma_test_node:watch(A, B),
    [
        begin
            {Liar, Port} = start_liar(Answer),
            %% So that it does not connect itself.
            inet_rdma_test_node:suspend(B),
            ok = inet_rdma_test_relay:lead_to(Relay, {{127, 0, 0, 1}, Port}),
            ?assert(inet_rdma_test_relay:lose(Relay, reset) > 0),
            receive
                {answered, Liar} -> ok
            end,
            ok = inet_rdma_test_relay:lead_to(Relay, {
                {127, 0, 0, 1}, inet_rdma_test_detour:port_of(Detour)
            }),
            inet_rdma_test_node:resume(B),
            exit(Liar, kill),
            ok = inet_rdma_test_link:exercise(A, B),
            ?assertEqual({Answer, []}, {Answer, call(A, inet_rdma_test_watch, seen, [Watcher])})
        end
     || Answer <- answers(proplists:get_value(path, Config), atom_to_binary(name(B)), Instance)
    ].

%% First a message, with its length, then the name that a node gives itself.
answers(tcp, Name, Instance) ->
    [
        <<1:16, $u>>
        | [
            <<1:16, $u, (9 + byte_size(Name)):16, $i, Number:64, Name/binary>>
         || Number <- [Instance, Instance + 1]
        ]
    ];
%% Fatal: handshake_failure, certificate_expired.
answers(tls, _Name, _Instance) ->
    [<<21, 3, 3, 2:16, 2, Alert>> || Alert <- [40, 45]].

%% A process that answers each connection with these bytes, and reports the first one.
start_liar(Answer) ->
    {ok, Listener} = gen_tcp:listen(0, [
        binary, {ip, {127, 0, 0, 1}}, {active, false}, {reuseaddr, true}
    ]),
    {ok, Port} = inet:port(Listener),
    Caller = self(),
    Liar = spawn_link(fun() ->
        receive
            go -> ok
        end,
        lie(Listener, Answer, Caller)
    end),
    unlink(Liar),
    ok = gen_tcp:controlling_process(Listener, Liar),
    Liar ! go,
    {Liar, Port}.

lie(Listener, Answer, Caller) ->
    {ok, Socket} = gen_tcp:accept(Listener),
    {ok, _} = gen_tcp:recv(Socket, 0),
    ok = gen_tcp:send(Socket, Answer),
    %% Until the other side has read it.
    _ = gen_tcp:recv(Socket, 0),
    Caller ! {answered, self()},
    lie(Listener, Answer, Caller).

%% Between hosts.

a_kill_with_its_epmd_is_a_nodedown(Config) ->
    between_hosts(?FUNCTION_NAME, [idle, busy, crash, at_once], [], Config).

without_epmd_on_two_hosts(Config) ->
    between_hosts(
        ?FUNCTION_NAME,
        [idle, busy, crash, at_once],
        without_epmd_at(integer_to_list(?PORT)),
        Config
    ).

%% An EPMD module answers the same ports for ever.
a_kill_behind_constant_ports_is_a_nodedown(Config) ->
    Hosts = proplists:get_value(hosts, Config),
    Directory = filename:join(proplists:get_value(priv_dir, Config), "constant"),
    ok = filelib:ensure_path(Directory),
    Args = [
        "-start_epmd",
        "false",
        "-epmd_module",
        "inet_rdma_test_epmd",
        "-inet_rdma_test_epmd",
        Directory
    ],
    kills(?FUNCTION_NAME, [idle, busy], Config, fun(_Under) ->
        inet_rdma_test_node:start_all([
            begin
                {Prefix, Options} = on_host(Host, Args, [], Config),
                Ip = inet:ntoa(inet_rdma_test_hosts:address(Host, Hosts)),
                {Prefix, Options#{name := inet_rdma_test_node:unique(Prefix) ++ "@" ++ Ip}}
            end
         || Host <- [a, b]
        ])
    end).

%% A container whose kernel ends all that is in it.
together_with_epmd(Config) ->
    between_hosts(?FUNCTION_NAME, [{idle, all}, {busy, all}], [], Config).

%% EPMD of its host has ended before.
a_kill_after_its_epmd_is_a_nodedown(Config) ->
    between_hosts(?FUNCTION_NAME, [{idle, after_epmd}, {busy, after_epmd}], [], Config).

%% A container that is removed: nothing answers at its address. One that leaves unread bytes resets
%% the connection first, as firewalls do: then only time ends the link.
with_its_host(Config) ->
    between_hosts(?FUNCTION_NAME, [{idle, host}], [], Config).

between_hosts(Row, Hows, Args, Config) ->
    kills(Row, Hows, Config, fun(Under) ->
        inet_rdma_test_node:start_all([
            on_host(a, Args, [], Config), on_host(b, Args, Under, Config)
        ])
    end).

on_host(Host, Args, Under, Config) ->
    Options = options(Config, #{args => Args, under => Under}),
    {
        atom_to_list(Host),
        inet_rdma_test_hosts:options(Host, proplists:get_value(hosts, Config), Options)
    }.

%% The node has the name of the host on which its container runs, and that host's address translates
%% to it.
a_kill_behind_published_ports_is_a_nodedown(Config) ->
    Args = [
        "-kernel",
        "inet_dist_listen_min",
        integer_to_list(?PORT),
        "-kernel",
        "inet_dist_listen_max",
        integer_to_list(?PORT)
    ],
    in_a_container(?FUNCTION_NAME, [idle, busy, {idle, box}, {busy, box}, at_once], Args, Config).

published_ports_without_epmd(Config) ->
    in_a_container(
        ?FUNCTION_NAME, [idle, busy, at_once], without_epmd_at(integer_to_list(?PORT)), Config
    ).

in_a_container(Row, Hows, Args, Config) ->
    Box = inet_rdma_test_hosts:box(
        b, [?EPMD_PORT, ?PORT], ?BOX, proplists:get_value(hosts, Config)
    ),
    kills(Row, Hows, Config, fun(_Under) ->
        {Prefix, Options} = on_host(b, Args, [], Config),
        inet_rdma_test_node:start_all([
            on_host(a, Args, [], Config), {Prefix, Options#{under := Box}}
        ])
    end).

%% Neither node reaches the other one, but each a proxy, which accepts each connection, and closes
%% it if nobody listens behind it.
a_kill_behind_a_proxy_is_a_nodedown(Config) ->
    kills(?FUNCTION_NAME, [idle, busy, at_once], Config, fun(_Under) ->
        #{nodes := Nodes} = inet_rdma_test_proxied:start(
            proplists:get_value(priv_dir, Config),
            options(Config, #{}),
            proplists:get_value(hosts, Config)
        ),
        Nodes
    end).

%% The link goes over a third node, which has a direct link to the killed one.
a_kill_behind_a_detour_is_a_nodedown(Config) ->
    Hosts = proplists:get_value(hosts, Config),
    all_seen([
        begin
            [A, B, C] = Nodes = three(Config),
            ok = inet_rdma_test_node:mesh(Nodes),
            _ = [ok = lasts(X, Y) || X <- Nodes, Y <- Nodes, X =/= Y],
            ok = inet_rdma_test_hosts:silence(both(a, b), Hosts),
            _ = [
                call(X, erlang, send, [{nobody, name(Y)}, unanswered])
             || {X, Y} <- [{A, B}, {B, A}]
            ],
            [
                ?assertEqual(name(C), inet_rdma_test_link:await_via(X, Y))
             || {X, Y} <- [{A, B}, {B, A}]
            ],
            Seen = killed({?FUNCTION_NAME, How}, [A, C], B, How, Config),
            inet_rdma_test_node:stop_all(),
            ok = inet_rdma_test_hosts:pass(Hosts),
            Seen
        end
     || How <- [idle, busy, {idle, all}, {busy, all}]
    ]).

%% No node ends a link because global of another one has lost it.
three(Config) ->
    Hosts = proplists:get_value(hosts, Config),
    Options = in_a_mesh(Config, #{args => ["-kernel", "prevent_overlapping_partitions", "false"]}),
    inet_rdma_test_node:start_all([
        {atom_to_list(Host), inet_rdma_test_hosts:options(Host, Hosts, Options)}
     || Host <- [a, b, c]
    ]).

%% No packet of the end arrives, and the next node of its name has another address.
replaced_in_silence(Config) ->
    Hosts = proplists:get_value(hosts, Config),
    all_seen([
        begin
            [A, B] = inet_rdma_test_node:start_all([
                on_host(a, [], [], Config), OfB = on_host(b, [], [], Config)
            ]),
            {X, Y} = order(Who, A, B),
            ok = inet_rdma_test_node:connect(X, Y),
            ok = lasts(A, B),
            Seen = down({?FUNCTION_NAME, Who}, A, B, fun() ->
                ok = inet_rdma_test_hosts:silence(both(a, b), Hosts),
                unanswered = call(A, erlang, send, [{nobody, name(B)}, unanswered]),
                ok = inet_rdma_test_hosts:end_processes(b, Hosts),
                inet_rdma_test_node:await_exit(B, 20000),
                ok = inet_rdma_test_hosts:move([b], Hosts),
                ok = inet_rdma_test_hosts:pass(Hosts),
                inet_rdma_test_node:start_all([OfB])
            end),
            _ =
                lists:member(never, element(2, Seen)) orelse
                    inet_rdma_test_wait:until(connected_again, 20000, fun() ->
                        call(A, net_adm, ping, [name(B)]) =:= pong
                    end),
            inet_rdma_test_node:stop_all(),
            Seen
        end
     || Who <- [a_connects, b_connects]
    ]).

%% Its peers agree, and do what they do without it.
one_of_three(Config) ->
    all_seen([
        begin
            [A, B, C] = Nodes = three(Config),
            ok = inet_rdma_test_node:mesh(Nodes),
            _ = [ok = lasts(X, Y) || X <- Nodes, Y <- Nodes, X =/= Y],
            Seen = killed({?FUNCTION_NAME, How}, [A, C], B, How, Config),
            StartMs = erlang:monotonic_time(millisecond),
            yes = call(A, global, register_name, [?NAME, call(A, erlang, whereis, [kernel_sup])]),
            ct:pal("global:register_name/2: ~b ms", [erlang:monotonic_time(millisecond) - StartMs]),
            inet_rdma_test_wait:until(registered, 20000, fun() ->
                call(C, global, whereis_name, [?NAME]) =/= undefined
            end),
            inet_rdma_test_node:stop_all(),
            Seen
        end
     || How <- [idle, busy, {idle, all}, {busy, all}]
    ]).

%% A container that is removed, and leaves unread bytes of one node: its kernel resets that
%% connection, and nothing answers afterwards. The connection of the other node has ended in order.
host_of_one_of_three(Config) ->
    Hosts = proplists:get_value(hosts, Config),
    [A, B, C] = Nodes = three(Config),
    ok = inet_rdma_test_node:mesh(Nodes),
    _ = [ok = lasts(X, Y) || X <- Nodes, Y <- Nodes, X =/= Y],
    Seen = killed(?FUNCTION_NAME, [A, C], B, {busy, host}, Config),
    inet_rdma_test_node:stop_all(),
    ok = inet_rdma_test_hosts:admit(Hosts),
    all_seen([Seen]).

%% What the cases have in common.

%% Starts two nodes for each kill, and connects them, either way. Start gets what B runs under. A
%% kill of the VM alone is idle, busy, crash, or at_once after nodeup, of the rest as well {idle |
%% busy, all | after_epmd | host | box}.
kills(Row, Hows, Config, Start) ->
    all_seen([
        begin
            [A, B] = Start(
                case How of
                    crash -> dump(Config);
                    _ -> []
                end
            ),
            {X, Y} = order(Who, A, B),
            ok = inet_rdma_test_node:connect(X, Y),
            _ = How =:= at_once orelse lasts(A, B),
            Seen = killed({Row, How, Who}, [A], B, How, Config),
            inet_rdma_test_node:stop_all(),
            _ = [ok = inet_rdma_test_hosts:admit(Hosts) || {hosts, Hosts} <- Config],
            Seen
        end
     || {How, Who} <- rounds(Hows, Config)
    ]).

%% Each way to kill is used once on each path: after node a has connected over TCP, after node b has
%% connected inside TLS, or the reverse for the next way. INET_RDMA_KILLS=all: after each of both
%% nodes has connected, on each path.
rounds(Hows, Config) ->
    Turns =
        case proplists:get_value(path, Config) of
            tls -> [b_connects, a_connects];
            _ -> [a_connects, b_connects]
        end,
    case os:getenv("INET_RDMA_KILLS") of
        "all" -> [{How, Who} || How <- Hows, Who <- Turns];
        _ -> [{How, lists:nth(1 + N rem 2, Turns)} || {N, How} <- lists:enumerate(0, Hows)]
    end.

dump(Config) -> inet_rdma_test_os:endless_dump(proplists:get_value(priv_dir, Config)).

order(a_connects, A, B) -> {A, B};
order(b_connects, A, B) -> {B, A}.

killed(Row, [A | _] = Peers, B, How, Config) ->
    _ = is_busy(How) andalso pour(A, B),
    downs(Row, Peers, B, fun() ->
        %% It leaves unread bytes then, and its kernel resets the connection.
        _ = is_busy(How) andalso inet_rdma_test_node:suspend(B),
        end_node(How, B, proplists:get_value(hosts, Config))
    end).

%% The times are those of links that are older than a moment.
lasts(A, B) ->
    case inet_rdma_test_node:is_rdma() of
        true -> inet_rdma_test_link:await_lasting(A, B);
        false -> ok
    end.

is_busy(busy) -> true;
is_busy({busy, _}) -> true;
is_busy(_) -> false.

pour(A, B) ->
    _ = call(A, inet_rdma_test_pump, pour, [name(B)]),
    inet_rdma_test_wait:until(traffic, 20000, fun() ->
        {ok, Information} = call(A, net_kernel, node_info, [name(B)]),
        proplists:get_value(out, Information) > 100
    end).

end_node(crash, #{os_pid := OsPid}, _Hosts) ->
    os:cmd("kill -USR1 " ++ integer_to_list(OsPid));
end_node({_, all}, _B, Hosts) ->
    inet_rdma_test_hosts:end_processes(b, Hosts);
end_node({_, after_epmd}, B, Hosts) ->
    ok = inet_rdma_test_hosts:end_program(b, "epmd", Hosts),
    inet_rdma_test_node:kill(B);
end_node({_, box}, _B, Hosts) ->
    inet_rdma_test_hosts:end_processes({box, b}, Hosts);
end_node({_, host}, _B, Hosts) ->
    ok = inet_rdma_test_hosts:take_nothing(b, Hosts),
    inet_rdma_test_hosts:end_processes(b, Hosts);
end_node(_, B, _Hosts) ->
    inet_rdma_test_node:kill(B).

down(Row, A, B, End) -> downs(Row, [A], B, End).

%% Waits until each of the peers has the nodedown, and prints after which time. never: it has not
%% come in time; the next kill of the case may say more.
downs(Row, Peers, B, End) ->
    Watchers = [{Peer, watch(Peer)} || Peer <- Peers],
    StartUs = os:system_time(microsecond),
    _ = End(),
    Took = [down_ms(Peer, Watcher, name(B), StartUs) || {Peer, Watcher} <- Watchers],
    Histories = [
        case Ms of
            never -> history(Peer, name(B));
            _ -> why(Peer, B)
        end
     || {Peer, Ms} <- lists:zip(Peers, Took)
    ],
    ct:pal("~0p: ms to the nodedown: ~w~n~ts", [Row, Took, Histories]),
    {Row, Took}.

watch(Peer) ->
    ok = call(Peer, inet_rdma_test_log, install, []),
    {Watcher, ok} = call(Peer, inet_rdma_test_watch, downs, []),
    Watcher.

down_ms(Peer, Watcher, Name, StartUs) ->
    try
        inet_rdma_test_wait:until({nodedown, Name}, ?DOWN_MS, fun() ->
            case lists:keyfind(Name, 1, call(Peer, inet_rdma_test_watch, seen, [Watcher])) of
                {Name, AtUs} -> {ok, (AtUs - StartUs) div 1000};
                false -> still_up
            end
        end)
    catch
        error:{never_came_true, _, _, _} -> never
    end.

all_seen(Rounds) ->
    ct:pal("~ts", [[io_lib:format("~0p: ~w ms~n", [Row, Took]) || {Row, Took} <- Rounds]]),
    ?assertEqual([], [Row || {Row, Took} <- Rounds, lists:member(never, Took)]).

%% What the peer has recorded and logged. The guard records the end after the nodedown; no time
%% limit is its cause.
why(Peer, B) ->
    case inet_rdma_test_node:is_rdma() of
        true ->
            Down = inet_rdma_test_wait:until(recorded, 10000, fun() ->
                case
                    [
                        Event
                     || #{event := <<"down">>} = Event <- call(Peer, inet_rdma, history, [name(B)])
                    ]
                of
                    [Event | _] -> {ok, Event};
                    [] -> none
                end
            end),
            #{cause := Cause, why := Why} = Down,
            ?assertNotEqual(<<"net_tick_timeout">>, Cause),
            ?assertEqual(nomatch, binary:match(Why, <<"survive_ms">>), Down),
            history(Peer, name(B));
        false ->
            ""
    end.

history(Peer, Name) ->
    Lines = call(Peer, inet_rdma_test_log, lines, []),
    Events =
        case inet_rdma_test_node:is_rdma() of
            true -> call(Peer, inet_rdma, history, [Name]);
            false -> []
        end,
    [
        [["  ", Line, $\n] || Line <- Lines],
        [io_lib:format("    ~0tp~n", [Event]) || Event <- Events]
    ].

options(Config, More) -> inet_rdma_test_node:alone(in_a_mesh(Config, More)).

in_a_mesh(Config, More) ->
    Args = ["-kernel", "net_ticktime", integer_to_list(?TICKTIME_S) | maps:get(args, More, [])],
    maps:merge(
        More,
        inet_rdma_test_paths:options(Config, #{rdma => [{survive_ms, ?SURVIVE_MS}], args => Args})
    ).

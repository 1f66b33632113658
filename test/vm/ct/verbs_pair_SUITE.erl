%% Nodes of two machines over an RDMA device: what they say to each other arrives, also over a bad
%% link; a link or a machine that is gone is noticed within the tick time, and leaves nothing
%% behind.
-module(verbs_pair_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_vm, [contains/2, start_streams/1, is_done/2, stop_streams/1, stop_streams_at/2]).
-import(inet_rdma_vm, [there/0, on_both/1, survived/3]).

-export([all/0, groups/0, suite/0, init_per_group/2, end_per_group/2, end_per_testcase/2]).
-export([
    calls_and_sizes_both_ways/1,
    order_both_ways/1,
    a_lossy_link_stays_connected/1,
    a_slow_link_stays_connected/1,
    very_slow_link/1
]).
-export([
    a_short_cut_ends_no_link/1,
    interface_down_and_up/1,
    cut_of_one_network/1,
    cut_while_senders_wait/1,
    a_long_cut_ends_the_link_by_its_ticks/1
]).
-export([tcp_connection_cut/1, killed_and_back/1]).
-export([
    a_queue_pair_carries_while_tcp_is_blocked/1,
    devices_cut_off/1,
    device_that_does_not_answer/1
]).
-export([devices_beside_the_nodes_network/1, tls_hides_what_is_said/1, guest_2_loses_power/1]).

-define(MB, 1048576).
-define(OTHER, "guest2").
%% Addresses of a network without RDMA devices.
-define(OWN_MANAGEMENT, "10.9.2.1").
-define(THEIR_MANAGEMENT, "10.9.2.2").
%% The interfaces of the devices of both kinds.
-define(INTERFACES, ["eth0", "eth1"]).
-define(CUT_MS, 30000).
-define(TICKTIME_S, 16).
%% The tick time of nodes whose link loses packets: rxe sends again after its own time, and the
%% streams of a case take it up to 52 s.
-define(PATIENT_TICKTIME_S, 60).
%% A node is down after the tick time and a quarter of it at most. A watcher learns it a moment
%% later, and that moment is long in an emulated machine.
-define(NODEDOWN_MS, ?TICKTIME_S * 1250 + 5000).

suite() ->
    [{timetrap, {minutes, 10}}].

all() ->
    [{group, rxe}, {group, siw}].

groups() ->
    Cases = [
        calls_and_sizes_both_ways,
        order_both_ways,
        a_lossy_link_stays_connected,
        a_slow_link_stays_connected,
        very_slow_link,
        a_short_cut_ends_no_link,
        cut_of_one_network,
        a_long_cut_ends_the_link_by_its_ticks,
        tcp_connection_cut,
        a_queue_pair_carries_while_tcp_is_blocked,
        devices_cut_off,
        device_that_does_not_answer,
        cut_while_senders_wait,
        killed_and_back,
        devices_beside_the_nodes_network,
        tls_hides_what_is_said
    ],
    %% Not with rxe: an interface that goes down under traffic may leave that kernel's device unable
    %% to connect, for rping as for nodes, until it is made again. There is no guest 2 after the
    %% last.
    [
        {rxe, [], Cases},
        {siw, [], Cases ++ [interface_down_and_up, guest_2_loses_power]}
    ].

init_per_group(Kind, Config) ->
    [Device, Own, Theirs, Interface] = inet_rdma_vm:device(Kind),
    Before = inet_rdma_vm:resources(),
    A = inet_rdma_test_node:start("a", options("a", Own, [])),
    B = inet_rdma_test_node:start("b", options("b", Theirs, there())),
    [
        {device, Device},
        {interface, Interface},
        {own_address, Own},
        {their_address, Theirs},
        {pair, [A, B]},
        {before, Before}
        | Config
    ].

options(Prefix, Address, Under) -> options(Prefix, Address, Under, ?TICKTIME_S).

options(Prefix, Address, Under, TickTimeS) ->
    Args = ["-kernel", "net_ticktime", integer_to_list(TickTimeS)],
    inet_rdma_vm:name_at(Prefix, Address, #{under => Under, args => Args}).

end_per_group(_Kind, Config) ->
    inet_rdma_test_node:stop_all(),
    inet_rdma_vm:await_resources(proplists:get_value(before, Config)).

%% A capture of the interface has a text that is said over a plain link, and nothing of it with
%% `security tls`: neither before nor after new keys.
tls_hides_what_is_said(Config) ->
    [PlainA, PlainB] = inet_rdma_vm:pair(Config),
    %% Cases before may have moved the link to another network.
    ok = inet_rdma_test_link:disconnect(PlainA, PlainB),
    [PlainA, PlainB] = inet_rdma_vm:pair(Config),
    ct:pal("~ts", [inet_rdma_test_link:why(PlainA, PlainB)]),
    Interface = proplists:get_value(interface, Config),
    Marker = rand:bytes(32),
    ?assertNotEqual(
        nomatch,
        binary:match(inet_rdma_vm_capture:captured(Interface, PlainA, PlainB, Marker), Marker)
    ),
    Addresses = [address(Node) || Node <- [PlainA, PlainB]],
    {Directory, Certificates} = inet_rdma_vm:tls_arguments(Addresses),
    %% A set-up that takes longer than this ends with the link's first ticks, which have come
    %% together.
    Tls = ["-kernel", "net_ticktime", "60" | Certificates],
    Start = fun(Prefix, Address, Under) ->
        Options = #{args := Args, rdma := Rdma} = options(Prefix, Address, Under),
        Secure = [{security, tls}, {rekey_bytes, 65536} | Rdma],
        inet_rdma_test_node:start(
            Prefix, (inet_rdma_test_node:alone(Options#{args := Args ++ Tls}))#{rdma := Secure}
        )
    end,
    [OwnAddress, TheirAddress] = Addresses,
    [A, B] = [Start("ta", OwnAddress, []), Start("tb", TheirAddress, there())],
    ok = inet_rdma_vm:load_tls([A, B]),
    ok = inet_rdma_test_node:connect(A, B),
    Captured = inet_rdma_vm_capture:captured(Interface, A, B, Marker),
    ?assert(byte_size(Captured) > 20 * 32 * 100),
    ?assertEqual(nomatch, binary:match(Captured, Marker)),
    #{fabric := verbs, cipher := Cipher, key_generation := Generation} = inet_rdma_vm:info(A, B),
    ct:pal("~ts, key of generation ~b", [Cipher, Generation]),
    ?assertNotEqual(none, Cipher),
    ?assert(Generation > 0),
    [inet_rdma_test_node:stop(Node) || Node <- [A, B]],
    ok = file:del_dir_r(Directory).

address(#{node := Name}) ->
    [_, Address] = string:lexemes(atom_to_list(Name), "@"),
    Address.

%% The link is whole again, whatever became of the case.
end_per_testcase(guest_2_loses_power, _Config) ->
    ok;
end_per_testcase(_Case, Config) ->
    Interface = proplists:get_value(interface, Config),
    on_both(
        "tc qdisc del dev " ++ Interface ++ " root 2>/dev/null; ip link set " ++ Interface ++ " up"
    ),
    ok.

calls_and_sizes_both_ways(Config) ->
    [A, B] = inet_rdma_vm:pair(Config),
    ?assertEqual(pong, call(B, net_adm, ping, [name(A)])),
    ?assertEqual(name(B), call(A, rpc, call, [name(B), erlang, node, []])),
    ?assertEqual(name(A), call(B, erpc, call, [name(A), erlang, node, []])),
    {Micros, _} = call(A, timer, tc, [inet_rdma_test_remote, many_calls, [name(B), 1]]),
    Sizes = [1, 64, 1024, 16384, 65536, 65537, 300000, ?MB + 1, 3 * ?MB],
    ok = call(A, inet_rdma_test_data, send_and_compare, [name(B), Sizes]),
    ok = call(B, inet_rdma_test_data, send_and_compare, [name(A), Sizes]),
    #{fabric := verbs, why := Why} = inet_rdma_vm:info(A, B),
    #{fabric := verbs} = inet_rdma_vm:info(B, A),
    ct:pal("a call takes ~b us~n~ts", [Micros, Why]),
    contains(Why, [proplists:get_value(device, Config), proplists:get_value(their_address, Config)]).

order_both_ways(Config) ->
    inet_rdma_vm:stream_both_ways(inet_rdma_vm:pair(Config), mixed, 3, 200).

a_lossy_link_stays_connected(Config) ->
    Start = fun(Prefix, Address, Under) ->
        inet_rdma_test_node:start(
            Prefix,
            inet_rdma_test_node:alone(options(Prefix, Address, Under, ?PATIENT_TICKTIME_S))
        )
    end,
    [Own, Theirs] = [proplists:get_value(Key, Config) || Key <- [own_address, their_address]],
    [A, B] = Pair = [Start("la", Own, []), Start("lb", Theirs, there())],
    ok = inet_rdma_test_node:connect(A, B),
    stays_connected(Config, Pair, "loss 1%"),
    [inet_rdma_test_node:stop(Node) || Node <- Pair].

a_slow_link_stays_connected(Config) ->
    stays_connected(Config, inet_rdma_vm:pair(Config), "delay 10ms").

%% 48 ms there and back.
very_slow_link(Config) -> stays_connected(Config, inet_rdma_vm:pair(Config), "delay 24ms").

stays_connected(Config, Pair, Netem) ->
    Watched = watch(Pair),
    on_both(
        "tc qdisc add dev " ++ proplists:get_value(interface, Config) ++ " root netem limit 10000 " ++
            Netem
    ),
    StartMs = erlang:monotonic_time(millisecond),
    inet_rdma_vm:stream_both_ways(Pair, mixed, 2, 150),
    [A, B] = Pair,
    ok = call(A, inet_rdma_test_data, echo_and_compare, [name(B), [0, 1000, 300000]]),
    ct:pal("~s: ~b ms~n~s", [
        Netem,
        erlang:monotonic_time(millisecond) - StartMs,
        os:cmd("tc -s qdisc show dev " ++ proplists:get_value(interface, Config) ++ " | grep Sent")
    ]),
    [
        ?assertEqual([], call(Node, inet_rdma_test_watch, seen, [Watcher]))
     || {Node, Watcher, _} <- Watched
    ].

%% Nothing comes through for two seconds.
a_short_cut_ends_no_link(Config) ->
    cut_for_less_than_the_tick_time(Config, fun(Interface) ->
        on_both("tc qdisc add dev " ++ Interface ++ " root netem loss 100%"),
        receive
        after 2000 -> ok
        end,
        on_both("tc qdisc del dev " ++ Interface ++ " root")
    end).

interface_down_and_up(Config) ->
    cut_for_less_than_the_tick_time(Config, fun(Interface) ->
        [] = os:cmd("ip link set " ++ Interface ++ " down"),
        receive
        after 1000 -> ok
        end,
        [] = os:cmd("ip link set " ++ Interface ++ " up")
    end).

%% Either the connection lives and all that was sent arrives in order, or both nodes see its end and
%% find each other again.
cut_for_less_than_the_tick_time(Config, Cut) ->
    [A, B] = Pair = inet_rdma_vm:pair(Config),
    Watched = watch(Pair),
    Streams = start_streams(Pair),
    StartMs = erlang:monotonic_time(millisecond),
    Cut(proplists:get_value(interface, Config)),
    Outcome = inet_rdma_test_wait:until(streams_arrive_or_the_connection_ends, 20000, fun() ->
        Ended = [
            Node
         || {Node, Watcher, _} <- Watched, call(Node, inet_rdma_test_watch, seen, [Watcher]) =/= []
        ],
        Waiting = [Receiver || {Receiver, Name} <- Streams, not is_done(Receiver, Name)],
        case {Ended, Waiting} of
            {[], []} -> {ok, survived};
            {[], _} -> still_under_way;
            {_, _} -> {ok, ended}
        end
    end),
    case Outcome of
        survived ->
            ct:pal("the connection survived the cut; all messages arrived in order");
        ended ->
            [inet_rdma_vm:await_nodedown(Watch, StartMs, 2 * ?NODEDOWN_MS) || Watch <- Watched],
            ct:pal("the connection did not survive the cut; both nodes saw its end")
    end,
    stop_streams(Streams),
    come_together(A, B).

%% The network in the nodes' names is cut: the link goes on over another one, and is on its device
%% again after the cut.
cut_of_one_network(Config) ->
    [Own, Theirs, Interface] = [
        proplists:get_value(Key, Config)
     || Key <- [own_address, their_address, interface]
    ],
    [A, B] = Pair = pair_at(Own, Theirs, [{fallback_retry_ms, 1000}]),
    carried(verbs, A, B, []),
    inet_rdma_vm:explained(Pair, fun() ->
        Watched = watch(Pair),
        Streams = start_streams(Pair),
        on_both("tc qdisc add dev " ++ Interface ++ " root netem loss 100%"),
        [ok = inet_rdma_test_link:await(X, Y, tcp) || {X, Y} <- [{A, B}, {B, A}]],
        ok = call(A, inet_rdma_test_data, echo_and_compare, [name(B), [0, 1000, 300000]]),
        on_both("tc qdisc del dev " ++ Interface ++ " root"),
        survived(Pair, Watched, Streams)
    end).

%% The peer's VM is stopped and its ring full: the device has answered all, and senders wait for the
%% VM. A cut then is noticed all the same.
cut_while_senders_wait(Config) ->
    [Own, Theirs, Interface] = [
        proplists:get_value(Key, Config)
     || Key <- [own_address, their_address, interface]
    ],
    [A, B] = Pair = pair_at(Own, Theirs, [{fallback_retry_ms, 1000}]),
    carried(verbs, A, B, []),
    Watched = watch(Pair),
    Name = inet_rdma_test_stream:receiver_at(B, 2, 1000),
    OsPid = os_pid(B),
    Signal = fun(Which) -> os:cmd("ssh " ?OTHER " kill -" ++ Which ++ " " ++ OsPid) end,
    [] = Signal("STOP"),
    try
        _ = call(A, inet_rdma_test_stream, senders, [name(B), Name, mixed, 2, 1000]),
        inet_rdma_test_wait:until(senders_wait, 20000, fun() -> sends_nothing(A, B) end),
        on_both("tc qdisc add dev " ++ Interface ++ " root netem loss 100%"),
        inet_rdma_test_wait:until(suspected, 20000, fun() ->
            #{path_state := State} = Info = inet_rdma_vm:info(A, B),
            State =:= suspected orelse Info
        end)
    after
        on_both("tc qdisc del dev " ++ Interface ++ " root"),
        [] = Signal("CONT")
    end,
    survived(Pair, Watched, [{B, Name}]).

%% For longer than it takes the device to answer.
sends_nothing(A, B) ->
    #{bytes_sent := Before} = inet_rdma_vm:info(A, B),
    timer:sleep(4000),
    #{bytes_sent := After} = inet_rdma_vm:info(A, B),
    Before =:= After orelse {Before, After}.

%% Nothing passes between the nodes over any network: the tick time ends the link.
a_long_cut_ends_the_link_by_its_ticks(Config) ->
    [A, B] = Pair = inet_rdma_vm:pair(Config),
    Watched = watch(Pair),
    Streams = start_streams(Pair),
    on_both(rules("add", Pair)),
    try
        on_all_interfaces("add", " netem loss 100%"),
        StartMs = erlang:monotonic_time(millisecond),
        [inet_rdma_vm:await_nodedown(Watch, StartMs, ?NODEDOWN_MS) || Watch <- Watched]
    after
        on_all_interfaces("del", ""),
        on_both(rules("del", Pair))
    end,
    stop_streams(Streams),
    come_together(A, B).

tcp_connection_cut(Config) ->
    [A, B] = Pair = inet_rdma_vm:pair(Config),
    Streams = start_streams(Pair),
    inet_rdma_vm:cut_tcp(A, B),
    stop_streams(Streams),
    come_together(A, B).

%% A firewall drops all TCP between the nodes, while the device's packets pass: the queue pair
%% carries the link, and TCP comes back with the firewall's change of mind.
a_queue_pair_carries_while_tcp_is_blocked(_Config) ->
    [A, B] = Pair = beside_the_devices(1000),
    carried(verbs, A, B, []),
    {Watched, Resumes} = {watch(Pair), [
        {X, Y, inet_rdma_vm:resumes(X, Y)}
     || {X, Y} <- [{A, B}, {B, A}]
    ]},
    Streams = start_streams(Pair),
    on_both(rules("add", Pair)),
    try
        inet_rdma_vm:shut_tcp(A, B),
        [
            inet_rdma_test_wait:until(no_tcp, 20000, fun() ->
                not call(X, inet_rdma_test_remote, has_tcp, [])
            end)
         || X <- Pair
        ],
        ok = call(A, inet_rdma_test_data, echo_and_compare, [name(B), [0, 1000, 300000]]),
        [?assertEqual(false, call(X, inet_rdma_test_remote, has_tcp, [])) || X <- Pair]
    after
        on_both(rules("del", Pair))
    end,
    [
        inet_rdma_test_wait:until({resumed, name(X)}, 60000, fun() ->
            inet_rdma_vm:resumes(X, Y) > Before
        end)
     || {X, Y, Before} <- Resumes
    ],
    survived(Pair, Watched, Streams).

%% Nothing passes between the devices for a while, while the TCP connection is well: the link goes
%% on over one of them, and is back on the device in the end.
devices_cut_off(_Config) ->
    [A, B] = Pair = beside_the_devices(1000),
    carried(verbs, A, B, []),
    Watched = watch(Pair),
    Streams = start_streams(Pair),
    on_all_interfaces("add", " netem loss 100%"),
    StartMs = erlang:monotonic_time(millisecond),
    try
        Noticed = noticed(A, B, StartMs),
        ct:pal(
            "nothing passes between the devices; what carries the link after ~b ms: ~p",
            [erlang:monotonic_time(millisecond) - StartMs, Noticed]
        )
    after
        on_all_interfaces("del", "")
    end,
    survived(Pair, Watched, Streams).

%% After the time of suspect_after_ms a link notices that nothing passes between the devices, before
%% the devices do, and goes on over TCP. It is back on the device when that answers again.
device_that_does_not_answer(_Config) ->
    [A, B] = Pair = beside_the_devices(1000, [{suspect_after_ms, 2000}]),
    carried(verbs, A, B, []),
    Watched = watch(Pair),
    Streams = start_streams(Pair),
    on_all_interfaces("add", " netem loss 100%"),
    StartMs = erlang:monotonic_time(millisecond),
    try
        [ok = inet_rdma_test_link:await(X, Y, tcp) || {X, Y} <- [{A, B}, {B, A}]],
        ct:pal("the link has left the device after ~b ms", [
            erlang:monotonic_time(millisecond) - StartMs
        ]),
        ok = call(A, inet_rdma_test_data, echo_and_compare, [name(B), [0, 1000, 300000]]),
        Suspicions = [
            maps:get(suspicions, call(X, inet_rdma, info, [name(Y)]))
         || {X, Y} <- [{A, B}, {B, A}]
        ],
        ct:pal("~p", [Suspicions]),
        ?assertNotEqual([0, 0], Suspicions)
    after
        on_all_interfaces("del", "")
    end,
    survived(Pair, Watched, Streams).

%% The path of the link once it has left the device, or after the time of the cut.
noticed(A, B, StartMs) ->
    Fabric = inet_rdma_test_link:fabric(A, B),
    case erlang:monotonic_time(millisecond) - StartMs < ?CUT_MS of
        true when Fabric =:= verbs ->
            timer:sleep(50),
            noticed(A, B, StartMs);
        _ ->
            Fabric
    end.

%% Drops all TCP between the nodes: each side connects to the other's port, and answers from its
%% own.
rules(Do, Pair) ->
    lists:append(
        lists:join("; ", [
            lists:append([
                "ip rule ",
                Do,
                " pref 10 ipproto tcp ",
                End,
                " ",
                integer_to_list(port_of(Node)),
                " blackhole"
            ])
         || Node <- Pair, End <- ["sport", "dport"]
        ])
    ).

on_all_interfaces(Do, Netem) ->
    on_both(
        lists:append(
            lists:join(
                "; ",
                ["tc qdisc " ++ Do ++ " dev " ++ I ++ " root" ++ Netem || I <- ?INTERFACES]
            )
        )
    ).

%% Where the node accepts connections.
port_of(#{node := Name} = Node) ->
    [Short, _] = string:lexemes(atom_to_list(Name), "@"),
    {port, Port, _} = call(Node, erl_epmd, port_please, [Short, {127, 0, 0, 1}]),
    Port.

%% The nodes' names, and so their TCP connection, are of a network without RDMA. Where their devices
%% reach each other, the link moves there; where they do not, it stays on TCP, and both nodes say
%% why.
devices_beside_the_nodes_network(_Config) ->
    [A, B] = beside_the_devices(0),
    Paths = [{A, B}, {B, A}],
    [
        begin
            carried(verbs, X, Y, ["both nodes settled on it"]),
            ok = call(X, inet_rdma_test_data, echo_and_compare, [name(Y), [0, 1000, 300000]]),
            ok = inet_rdma_test_link:disconnect(X, Y)
        end
     || {X, Y} <- Paths
    ],
    on_both(routes("add")),
    try
        [
            begin
                carried(tcp, X, Y, ["no way over verbs", "there is no route to it"]),
                ok = call(X, inet_rdma_test_data, echo_and_compare, [name(Y), [0, 1000, 300000]]),
                ok = inet_rdma_test_link:disconnect(X, Y)
            end
         || {X, Y} <- Paths
        ]
    after
        on_both(routes("del"))
    end,
    carried(verbs, A, B, ["both nodes settled on it"]),
    inet_rdma_vm:cut_tcp(A, B),
    [inet_rdma_test_node:stop(Node) || Node <- [A, B]].

%% Two nodes whose names, and so whose TCP connection, are of a network without RDMA.
beside_the_devices(RetryMs) -> beside_the_devices(RetryMs, []).

%% With more options of inet_rdma.
beside_the_devices(RetryMs, More) ->
    pair_at(?OWN_MANAGEMENT, ?THEIR_MANAGEMENT, [{fallback_retry_ms, RetryMs} | More]).

%% Two nodes with these addresses in their names, over verbs, and more options of inet_rdma.
pair_at(Own, Theirs, More) ->
    Options = fun(Prefix, Address, Under) ->
        Args = ["-kernel", "net_ticktime", integer_to_list(?PATIENT_TICKTIME_S)],
        inet_rdma_test_node:alone(
            inet_rdma_vm:name_at(Prefix, Address, #{
                under => Under,
                args => Args,
                rdma => [{fabric, verbs} | More]
            })
        )
    end,
    inet_rdma_test_node:start_all([
        {"near", Options("near", Own, [])}, {"far", Options("far", Theirs, there())}
    ]).

%% The first node connects; what both say of the link.
carried(Fabric, A, B, Words) ->
    ok = inet_rdma_test_link:connect(A, B),
    [
        begin
            ok = inet_rdma_test_link:await(X, Y, Fabric),
            Why = inet_rdma_test_link:why(X, Y),
            ct:pal("~p: ~p, ~ts", [name(X), Fabric, Why]),
            contains(Why, Words)
        end
     || {X, Y} <- [{A, B}, {B, A}]
    ].

%% Forbids the ways between the devices of the two machines. The names' network is another one.
routes(Do) ->
    Addresses =
        [
            Network ++ Host
         || Network <- ["10.9.0.", "10.9.1.", "10.9.8.", "10.9.9."], Host <- ["1", "2"]
        ] ++
            [
                Network ++ Host
             || Network <- ["fd09:0::", "fd09:1::", "fd09:8::", "fd09:9::"], Host <- ["1", "2"]
            ],
    lists:append(
        lists:join("; ", ["ip route " ++ Do ++ " unreachable " ++ Address || Address <- Addresses])
    ).

%% The other machine's kernel may report the end of a process there; the name is used again.
killed_and_back(Config) ->
    [A, _] = inet_rdma_vm:pair(Config),
    kill_and_await(Config),
    %% With the first one's end A has started all that it starts once.
    Footprint = inet_rdma_test_os:footprint(maps:get(os_pid, A)),
    kill_and_await(Config),
    inet_rdma_test_os:await_footprint(maps:get(os_pid, A), Footprint).

%% Only A connects to C: a node that is about to connect when C is killed waits for as long as
%% connecting may take.
kill_and_await(Config) ->
    [A, _] = proplists:get_value(pair, Config),
    Options = options("c", proplists:get_value(their_address, Config), there()),
    Before = inet_rdma_vm:resources(),
    BeforeThere = inet_rdma_vm:resources(["ssh", ?OTHER]),
    C = inet_rdma_test_node:start("c", inet_rdma_test_node:alone(Options)),
    ok = inet_rdma_test_node:connect(A, C),
    Streams = start_streams([A, C]),
    Watched = inet_rdma_vm:watch(A, C),
    StartMs = erlang:monotonic_time(millisecond),
    _ = os:cmd("ssh " ?OTHER " kill -KILL " ++ os_pid(C)),
    inet_rdma_vm:await_nodedown(Watched, StartMs, ?NODEDOWN_MS),
    stop_streams_at(A, Streams),
    inet_rdma_vm:await_resources(Before),
    inet_rdma_vm:await_resources(["ssh", ?OTHER], BeforeThere).

guest_2_loses_power(Config) ->
    [A, _] = Pair = inet_rdma_vm:pair(Config),
    Before = inet_rdma_vm:resources(),
    [Watched, _] = watch(Pair),
    Streams = start_streams(Pair),
    _ = os:cmd("timeout -s KILL 3 ssh " ?OTHER " 'echo o >/proc/sysrq-trigger'"),
    StartMs = erlang:monotonic_time(millisecond),
    inet_rdma_vm:await_nodedown(Watched, StartMs, ?NODEDOWN_MS),
    stop_streams_at(A, Streams),
    %% What belonged to the connection, of which every one has these.
    Device = proplists:get_value(device, Config),
    inet_rdma_test_wait:until({freed, Device}, 10000, fun() ->
        Left = maps:with(["qp", "mr", "cq"], maps:get(Device, inet_rdma_vm:resources())),
        Less = [
            Key
         || {Key, Count} <- maps:to_list(Left), Count >= map_get(Key, maps:get(Device, Before))
        ],
        Less =:= [] orelse Left
    end).

come_together(A, B) ->
    inet_rdma_test_wait:until(together_again, 20000, fun() ->
        call(A, net_adm, ping, [name(B)]) =:= pong
    end),
    ok = inet_rdma_test_node:connect(B, A),
    ok = call(A, inet_rdma_test_data, echo_and_compare, [name(B), [0, 1000, 300000]]).

%% On its machine.
os_pid(Node) -> call(Node, os, getpid, []).

watch(Pair) -> inet_rdma_vm:watch_both(Pair).

call(Node, Module, Function, Args) -> inet_rdma_vm:call(Node, Module, Function, Args).

name(Node) -> inet_rdma_vm:name(Node).

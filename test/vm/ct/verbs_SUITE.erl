%% Nodes of one machine over an RDMA device: what they say to each other arrives, their ends are
%% noticed and leave nothing in the kernel.
-module(verbs_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_vm, [contains/2]).
-import(inet_rdma_test_link, [disconnect/2, both/4]).

-export([all/0, groups/0, suite/0, init_per_group/2, end_per_group/2, end_per_testcase/2]).
-export([
    ping_and_calls/1,
    links_monitors_and_spawns/1,
    sizes_both_ways/1,
    order_under_mixed_sizes/1,
    bulk_goes_through_the_ring/1,
    simultaneous_connects_leave_one_link/1,
    hundred_connects_leave_nothing/1,
    streams_leave_nothing_behind/1,
    streams_inside_tls/1,
    a_peer_that_knows_the_token_settles/1,
    hidden_node_with_an_ipv6_name/1,
    each_link_has_a_fabric_of_its_own/1,
    killed_and_back_under_the_same_name/1,
    crashed_node_is_down_while_it_dumps/1,
    stopped_nodes_leave_nothing/1,
    tcp_connection_cut/1,
    rings_grow_and_shrink/1,
    streams_land_on_demand/1,
    landed_bytes_are_handed_over/1
]).

-define(MB, 1048576).
-define(TICKTIME_S, 60).
%% Longer than the suite: no end may come from there.
-define(CRASH_TICKTIME_S, 36000).
%% Ends a case that hangs.
-define(CRASH_BOUND_MS, 600000).

suite() ->
    [{timetrap, {minutes, 12}}].

all() ->
    [{group, rxe}, {group, siw}].

groups() ->
    Cases = [
        ping_and_calls,
        links_monitors_and_spawns,
        sizes_both_ways,
        order_under_mixed_sizes,
        bulk_goes_through_the_ring,
        simultaneous_connects_leave_one_link,
        hundred_connects_leave_nothing,
        streams_leave_nothing_behind,
        streams_inside_tls,
        a_peer_that_knows_the_token_settles,
        hidden_node_with_an_ipv6_name,
        each_link_has_a_fabric_of_its_own,
        killed_and_back_under_the_same_name,
        crashed_node_is_down_while_it_dumps,
        stopped_nodes_leave_nothing,
        tcp_connection_cut,
        rings_grow_and_shrink,
        streams_land_on_demand,
        landed_bytes_are_handed_over
    ],
    [{rxe, [], Cases}, {siw, [], Cases}].

init_per_group(Kind, Config) -> inet_rdma_vm:start_pair(Kind, Config).

end_per_group(_Kind, Config) -> inet_rdma_vm:stop_pair(Config).

end_per_testcase(_Case, Config) -> inet_rdma_vm:pair_lives(Config).

ping_and_calls(Config) ->
    [A, B] = inet_rdma_vm:pair(Config),
    ?assertEqual(pong, call(B, net_adm, ping, [name(A)])),
    ?assertEqual(name(B), call(A, rpc, call, [name(B), erlang, node, []])),
    ?assertEqual(name(A), call(B, erpc, call, [name(A), erlang, node, []])),
    ?assertError({exception, bad, _}, call(A, erpc, call, [name(B), erlang, error, [bad]])),
    ok = call(A, inet_rdma_test_remote, many_calls, [name(B), 50]),
    {Micros, _} = call(A, timer, tc, [inet_rdma_test_remote, many_calls, [name(B), 1]]),
    ct:pal("a call takes ~b us", [Micros]).

links_monitors_and_spawns(Config) ->
    [A, B] = inet_rdma_vm:pair(Config),
    [
        ok = call(X, inet_rdma_test_remote, Function, [name(Y)])
     || {X, Y} <- [{A, B}, {B, A}],
        Function <- [spawn_answers, spawn_request_answers, link_breaks, monitor_fires]
    ],
    ok = call(A, inet_rdma_test_remote, large_exit_by_monitor, [name(B), ?MB]),
    ok = call(B, inet_rdma_test_remote, large_exit_by_link, [name(A), ?MB]).

sizes_both_ways(Config) ->
    [A, B] = inet_rdma_vm:pair(Config),
    Sizes = [1, 64, 1023, 1024, 1025, 16384, 65535, 65536, 65537, 300000, ?MB + 1, 5 * ?MB],
    ok = call(A, inet_rdma_test_data, send_and_compare, [name(B), Sizes]),
    ok = call(B, inet_rdma_test_data, send_and_compare, [name(A), Sizes]).

order_under_mixed_sizes(Config) ->
    inet_rdma_vm:stream_both_ways(inet_rdma_vm:pair(Config), mixed, 3, 200).

%% A link has no landing buffers: it registers the ring and the staging memory alone.
bulk_goes_through_the_ring(Config) ->
    [A, B] = inet_rdma_vm:pair(Config),
    ok = call(A, inet_rdma_test_data, send_and_compare, [name(B), [?MB, ?MB, ?MB]]),
    Infos = [inet_rdma_vm:info(X, Y) || {X, Y} <- [{A, B}, {B, A}]],
    [
        begin
            ct:pal("~ts~n~p", [Why, Info]),
            contains(
                Why,
                [
                    "both nodes settled on it",
                    proplists:get_value(device, Config),
                    proplists:get_value(ipv4, Config)
                ]
            ),
            ?assertEqual({verbs, 0, 0}, {Fabric, DirectSent, LandingBuffers}),
            [
                ?assert(map_get(Key, Info) > 0)
             || Key <- [sends_posted, post_recv_calls, completions, events_armed]
            ]
        end
     || #{
            fabric := Fabric,
            why := Why,
            direct_bytes_sent := DirectSent,
            landing_count := LandingBuffers
        } = Info <- Infos
    ],
    ?assertEqual(2, length(Infos)).

simultaneous_connects_leave_one_link(Config) ->
    [A, B] = inet_rdma_vm:pair(Config),
    {Counter, ok} = call(A, inet_rdma_test_watch, collisions, []),
    [collide(A, B) || _ <- lists:seq(1, 15)],
    ct:pal("~b of 15 rounds had two attempts under way at once", [
        length(call(A, inet_rdma_test_watch, seen, [Counter]))
    ]),
    ok = call(A, inet_rdma_test_data, echo_and_compare, [name(B), [0, 1000, 200000]]).

collide(A, B) ->
    disconnect(A, B),
    AtMicros = os:system_time(microsecond) + 50000,
    ?assertEqual([true, true], both(A, B, connect_at, [AtMicros])).

hundred_connects_leave_nothing(Config) ->
    [A, B] = inet_rdma_vm:pair(Config),
    cycles(A, B, 5),
    apart(A, B),
    Resources = inet_rdma_vm:steady_resources(),
    Footprints = [
        {Node, inet_rdma_test_os:footprint(OsPid)}
     || #{os_pid := OsPid} = Node <- [A, B]
    ],
    cycles(A, B, 100),
    apart(A, B),
    inet_rdma_vm:await_resources(Resources),
    [
        inet_rdma_test_os:await_footprint(OsPid, Before)
     || {#{os_pid := OsPid}, Before} <- Footprints
    ],
    ct:pal("~p~n~p", [
        maps:get(proplists:get_value(device, Config), Resources), [F || {_, F} <- Footprints]
    ]).

%% What global has to say to a node that was up for a moment may connect the two once more.
apart(A, B) ->
    inet_rdma_test_wait:until({apart, name(A), name(B)}, 30000, fun() ->
        disconnect(A, B),
        receive
        after 2000 -> ok
        end,
        not lists:member(name(B), call(A, erlang, nodes, [connected]))
    end).

%% Each side closes in turn, and the other connects with a message.
cycles(A, B, Count) ->
    disconnect(A, B),
    [
        begin
            {X, Y} =
                case I rem 2 of
                    0 -> {A, B};
                    1 -> {B, A}
                end,
            Size =
                case I rem 10 of
                    0 -> 200000;
                    _ -> 100
                end,
            ok = call(X, inet_rdma_test_data, send_and_compare, [name(Y), [Size]]),
            disconnect(X, Y)
        end
     || I <- lists:seq(1, Count)
    ].

streams_leave_nothing_behind(Config) ->
    [A, B] = inet_rdma_vm:pair(Config),
    Before = inet_rdma_vm:resources(),
    Ends = [
        stream(A, B, proplists:get_value(Address, Config))
     || _ <- [first, again], Address <- [ipv4, ipv6]
    ],
    ?assertEqual([], [End || End <- Ends, End =/= closed]),
    inet_rdma_vm:await_resources(Before).

stream(A, B, Address) ->
    {ok, Ip} = inet:parse_address(Address),
    Options = [{fabric, verbs}],
    {ok, Port, Listener} = call(A, inet_rdma_test_end, listen, [0, Options]),
    Waiting = self(),
    Accepting = spawn_link(fun() -> Waiting ! {accepted, do(A, Listener, accept_end, [])} end),
    {ok, Client} = call(B, inet_rdma_test_end, connect, [Ip, Port, Options]),
    {ok, Server} =
        receive
            {accepted, Accepted} -> Accepted
        after 60000 -> error({never_accepted, Accepting})
        end,
    ?assertEqual({ok, {verbs, Ip, Port}}, do(B, Client, peername, [])),
    ?assertEqual({ok, {verbs, Ip, Port}}, do(A, Server, sockname, [])),
    {ok, Own} = do(B, Client, sockname, []),
    ?assertMatch({verbs, Ip, OwnPort} when OwnPort > 0, Own),
    ?assertEqual({ok, Own}, do(A, Server, peername, [])),
    [
        begin
            {ok, Bytes, Hash} = do(Sender, From, send_made, [Bytes]),
            ?assertEqual({Bytes, Hash}, do(Receiver, To, collect_hash, [Bytes]))
        end
     || Bytes <- [1, 1000, 100000],
        {Sender, From, Receiver, To} <- [{A, Server, B, Client}, {B, Client, A, Server}]
    ],
    ok = do(B, Client, start_sending, [2 * ?MB]),
    {_, Hash} = do(A, Server, collect_hash, [2 * ?MB]),
    {ok, _, Hash} = do(B, Client, sent, []),
    #{fabric := verbs, percent_direct_sent := Percent} = do(B, Client, info, []),
    ct:pal("~ts: ~p % direct", [Address, Percent]),
    ?assert(Percent > 0),
    ok = do(B, Client, close, []),
    {error, Closed} = do(A, Server, recv, [0]),
    [ok = do(Node, End, stop, []) || {Node, End} <- [{A, Server}, {B, Client}, {A, Listener}]],
    Closed.

%% Encrypted by records; zero_copy has no part in that. Both sides derive new keys meanwhile.
streams_inside_tls(Config) ->
    [A, B] = inet_rdma_vm:pair(Config),
    Directory = filename:join(
        proplists:get_value(priv_dir, Config), inet_rdma_test_node:unique("certificates")
    ),
    ok = filelib:ensure_dir(filename:join(Directory, "x")),
    ok = inet_rdma_test_certificates:make(Directory, ["localhost"]),
    Tls = [
        {certfile, filename:join(Directory, "good.pem")},
        {keyfile, filename:join(Directory, "good.key")},
        {cacertfile, filename:join(Directory, "ca.pem")},
        {verify, verify_peer}
    ],
    Listening = [{fail_if_no_peer_cert, true} | Tls],
    Connecting = [{server_name_indication, "localhost"} | Tls],
    %% As the accepting side does: librdmacm keeps each device open that it has looked at.
    {ok, _} = call(A, inet_rdma_nif, verbs_addresses, [
        call(A, inet_rdma_test_settle, addresses, [])
    ]),
    Before = inet_rdma_vm:resources(),
    [
        begin
            Options = [{fabric, verbs}, {zero_copy, ZeroCopy}, {rekey_bytes, 262144}],
            {ok, Ip} = inet:parse_address(proplists:get_value(Address, Config)),
            {ok, Port, Listener} = call(A, inet_rdma_test_end, listen, [
                0, [{ip, Ip}, {tls, Listening} | Options]
            ]),
            {ok, Client} = call(B, inet_rdma_test_end, connect, [
                Ip, Port, [{tls, Connecting} | Options]
            ]),
            {ok, Server} = do(A, Listener, accept_end, []),
            ?assertMatch({ok, {verbs, _, _}}, do(B, Client, peername, [])),
            [
                begin
                    ok = do(Sender, From, start_sending, [Bytes]),
                    {_, Hash} = do(Receiver, To, collect_hash, [Bytes]),
                    ?assertMatch({ok, Bytes, Hash}, do(Sender, From, sent, []))
                end
             || Bytes <- [1, 1000, 100000, 4 * ?MB],
                {Sender, From, Receiver, To} <- [{A, Server, B, Client}, {B, Client, A, Server}]
            ],
            Infos = [do(Node, End, info, []) || {Node, End} <- [{A, Server}, {B, Client}]],
            ct:pal("~p", [Infos]),
            [
                begin
                    ?assertMatch(
                        #{fabric := verbs, direct_bytes_sent := 0, direct_bytes_received := 0}, Info
                    ),
                    ?assertNotEqual(none, map_get(cipher, Info))
                end
             || Info <- Infos
            ],
            %% One more key for each direction, at least, comes after each of these transfers.
            inet_rdma_test_wait:until(new_keys, 60000, fun() ->
                [
                    begin
                        ok = do(Sender, From, start_sending, [300000]),
                        {_, Hash} = do(Receiver, To, collect_hash, [300000]),
                        {ok, 300000, Hash} = do(Sender, From, sent, [])
                    end
                 || {Sender, From, Receiver, To} <- [{A, Server, B, Client}, {B, Client, A, Server}]
                ],
                Keys = [do(Node, End, info, []) || {Node, End} <- [{A, Server}, {B, Client}]],
                Generations = [
                    {Own, Peers}
                 || #{key_generation := Own, peer_key_generation := Peers} <- Keys
                ],
                lists:all(fun({Own, Peers}) -> Own >= 5 andalso Peers >= 5 end, Generations) orelse
                    Generations
            end),
            ok = do(B, Client, send, [<<"the last">>]),
            ok = do(B, Client, close, []),
            ?assertEqual({ok, <<"the last">>}, do(A, Server, recv, [8])),
            ?assertEqual({error, closed}, do(A, Server, recv, [0])),
            [
                ok = do(Node, End, stop, [])
             || {Node, End} <- [{A, Server}, {B, Client}, {A, Listener}]
            ]
        end
     || {ZeroCopy, Address} <- [{auto, ipv4}, {always, ipv6}]
    ],
    inet_rdma_vm:await_resources(Before).

%% A listener for the peer that knows a token, on an address of a device or on all.
a_peer_that_knows_the_token_settles(Config) ->
    [A, B] = inet_rdma_vm:pair(Config),
    Here = call(A, inet_rdma_test_settle, addresses, []),
    {ok, OfDevices} = call(A, inet_rdma_nif, verbs_addresses, [Here]),
    ct:pal("~p of ~p", [OfDevices, Here]),
    %% Not before: librdmacm keeps each device open that it has looked at.
    Before = inet_rdma_vm:resources(),
    Ours = [list_to_binary(proplists:get_value(Family, Config)) || Family <- [ipv4, ipv6]],
    ?assertEqual([], Ours -- OfDevices),
    ?assertEqual([], OfDevices -- Here),
    %% Loopback, link-local, and an interface without an RDMA device.
    ?assertEqual([], [
        Address
     || Address <- OfDevices,
        Prefix <- ["127.", "::1", "fe80:", "10.9.2."],
        string:prefix(Address, Prefix) =/= nomatch
    ]),
    [settle(A, B, On, Address) || Address <- Ours, On <- [<<>>, Address]],
    {Nobody, _} = call(A, inet_rdma_test_settle, expect, [verbs, <<>>, 1, 100]),
    ?assertEqual({error, etimedout}, call(A, inet_rdma_test_settle, result, [Nobody])),
    inet_rdma_vm:await_resources(Before).

settle(A, B, On, Address) ->
    Token = rand:uniform(1 bsl 64 - 2) + 1,
    {Pid, Port} = call(A, inet_rdma_test_settle, expect, [verbs, On, Token, 60000]),
    Connect = fun(Of) ->
        call(B, inet_rdma_test_settle, connect, [verbs, Address, Port, Of, 60000])
    end,
    Resources = inet_rdma_vm:resources(),
    {{error, Reason}, []} = Connect(Token bxor 1),
    ct:pal("~p", [Reason]),
    %% The stranger's own is gone soon; the listener has made nothing for it.
    inet_rdma_vm:await_resources(Resources),
    ?assertEqual({ok, []}, Connect(Token)),
    {ok, <<"hello">>, verbs, Why} = call(A, inet_rdma_test_settle, result, [Pid]),
    contains(Why, ["both nodes settled on it", binary_to_list(Address)]),
    ?assertMatch({{error, _}, []}, Connect(Token)).

hidden_node_with_an_ipv6_name(Config) ->
    Ipv6 = proplists:get_value(ipv6, Config),
    Options = #{carrier => "inet6_rdma"},
    [Seen, Hidden] = inet_rdma_test_node:start_all([
        {"seen", inet_rdma_vm:name_at("seen", Ipv6, Options)},
        {"hidden", inet_rdma_vm:name_at("hidden", Ipv6, Options#{args => ["-hidden"]})}
    ]),
    ok = inet_rdma_test_node:connect(Seen, Hidden),
    ?assertEqual([name(Hidden)], call(Seen, erlang, nodes, [hidden])),
    ?assertEqual([], call(Seen, erlang, nodes, [])),
    ?assertEqual(name(Hidden), call(Seen, rpc, call, [name(Hidden), erlang, node, []])),
    ok = call(Hidden, inet_rdma_test_data, echo_and_compare, [name(Seen), [0, 1000, 200000]]),
    #{fabric := verbs, why := Why} = inet_rdma_vm:info(Seen, Hidden),
    ct:pal("~ts", [Why]),
    contains(Why, [Ipv6]),
    [inet_rdma_test_node:stop(Node) || Node <- [Seen, Hidden]].

%% C may use either fabric; A uses verbs only, D shm only.
each_link_has_a_fabric_of_its_own(Config) ->
    [A, B] = inet_rdma_vm:pair(Config),
    Ipv4 = proplists:get_value(ipv4, Config),
    [C, D] = inet_rdma_test_node:start_all([
        {"c", inet_rdma_vm:name_at("c", Ipv4, #{rdma => [{fabric, auto}]})},
        {"d", inet_rdma_vm:name_at("d", Ipv4, #{rdma => [{fabric, shm}]})}
    ]),
    ok = inet_rdma_test_node:connect(C, D),
    ok = inet_rdma_test_node:connect(A, C),
    ok = inet_rdma_test_link:connect(A, D),
    Links = [{A, C, verbs}, {C, A, verbs}, {C, D, shm}, {D, C, shm}, {A, D, tcp}, {D, A, tcp}],
    Whys = [
        begin
            ok = inet_rdma_test_link:await(X, Y, Fabric),
            inet_rdma_test_link:why(X, Y)
        end
     || {X, Y, Fabric} <- Links
    ],
    ct:pal("~ts", [lists:join("\n", Whys)]),
    [contains(Why, ["the option fabric of "]) || Why <- lists:nthtail(4, Whys)],
    [
        ok = call(C, inet_rdma_test_data, echo_and_compare, [name(Peer), [0, 1000, 200000]])
     || Peer <- [A, D]
    ],
    ok = call(A, inet_rdma_test_data, echo_and_compare, [name(D), [0, 1000, 200000]]),
    [inet_rdma_test_node:stop(Node) || Node <- [C, D]],
    inet_rdma_test_node:await_nodes(A, [name(B)]).

%% With streams both ways, so that the queues are full. Nobody but A connects to C: whoever is about
%% to when it is killed waits for as long as connecting may take.
killed_and_back_under_the_same_name(Config) ->
    [A, B] = inet_rdma_vm:pair(Config),
    Options = inet_rdma_test_node:alone(
        inet_rdma_vm:name_at("c", proplists:get_value(ipv4, Config), #{})
    ),
    Before = inet_rdma_vm:resources(),
    [
        begin
            C = inet_rdma_test_node:start("c", Options),
            ok = inet_rdma_test_node:connect(A, C),
            AtC = inet_rdma_test_stream:receiver_at(C, 2, 10000),
            AtA = inet_rdma_test_stream:receiver_at(A, 2, 10000),
            Senders = call(A, inet_rdma_test_stream, senders, [name(C), AtC, mixed, 2, 10000]),
            _ = call(C, inet_rdma_test_stream, senders, [name(A), AtA, mixed, 2, 10000]),
            ok = call(A, inet_rdma_test_data, send_and_compare, [name(C), [100000]]),
            Watched = inet_rdma_vm:watch(A, C),
            StartMs = erlang:monotonic_time(millisecond),
            inet_rdma_test_node:kill(C),
            inet_rdma_vm:await_nodedown(Watched, StartMs, ?TICKTIME_S * 1250),
            inet_rdma_test_node:await_nodes(A, [name(B)]),
            [
                true = call(A, erlang, exit, [Pid, kill])
             || Pid <- [call(A, erlang, whereis, [AtA]) | Senders]
            ],
            inet_rdma_vm:await_resources(Before)
        end
     || _ <- [first, again]
    ].

%% The crash dump goes into a pipe that is not read: the process lives on, and its queue pair with
%% it. Nothing but the crash may end the link.
crashed_node_is_down_while_it_dumps(Config) ->
    [_, _] = inet_rdma_vm:pair(Config),
    Before = inet_rdma_vm:resources(),
    Named = fun(Prefix, More) ->
        Args = ["-kernel", "net_ticktime", integer_to_list(?CRASH_TICKTIME_S)],
        Options = inet_rdma_vm:name_at(Prefix, proplists:get_value(ipv4, Config), More#{
            args => Args
        }),
        {Prefix, inet_rdma_test_node:alone(Options)}
    end,
    %% Not on the host's file system, which may refuse a pipe.
    Dumps = inet_rdma_test_os:endless_dump("/tmp"),
    [C, D] = inet_rdma_test_node:start_all([Named("c", #{}), Named("d", #{under => Dumps})]),
    ok = inet_rdma_test_node:connect(C, D),
    [ok = inet_rdma_test_link:await(X, Y, verbs) || {X, Y} <- [{C, D}, {D, C}]],
    Watcher = inet_rdma_test_node:watch(C, D),
    peer:cast(maps:get(peer, D), erlang, halt, ["a slogan"]),
    inet_rdma_test_wait:until(nodedown, ?CRASH_BOUND_MS, fun() ->
        length(call(C, inet_rdma_test_watch, seen, [Watcher])) >= 2
    end),
    ?assert(inet_rdma_test_os:is_alive(maps:get(os_pid, D))),
    [inet_rdma_test_node:kill(Node) || Node <- [D, C]],
    inet_rdma_vm:await_resources(Before).

%% A node whose distribution was started by hand can end it; then it stops in order.
stopped_nodes_leave_nothing(Config) ->
    [A, B] = inet_rdma_vm:pair(Config),
    Ipv4 = proplists:get_value(ipv4, Config),
    %% As an accepting side does, which it is where global of a node connects first: librdmacm keeps each
    %% device open that it has looked at.
    Look = fun(Node) ->
        {ok, _} = call(Node, inet_rdma_nif, verbs_addresses, [
            call(Node, inet_rdma_test_settle, addresses, [])
        ])
    end,
    [Look(Node) || Node <- [A, B]],
    Before = inet_rdma_vm:resources(),
    Late = inet_rdma_test_node:start("late", (inet_rdma_vm:name_at("late", Ipv4, #{}))#{
        name => none
    }),
    Look(Late),
    Name = list_to_atom(inet_rdma_test_node:unique("late") ++ "@" ++ Ipv4),
    Start = fun() ->
        {ok, _} = call(Late, net_kernel, start, [[Name, longnames]]),
        true = call(Late, erlang, set_cookie, [inet_rdma_test]),
        Named = Late#{node := call(Late, erlang, node, [])},
        ok = inet_rdma_test_node:connect(Named, A),
        ok = call(A, inet_rdma_test_data, send_and_compare, [name(Named), [?MB]])
    end,
    %% The process may keep the device open, with the id that says when it is removed, and librdmacm's
    %% protection domain of ids; what it had made there is gone.
    Open = maps:map(
        fun(_Device, #{"ctx" := Contexts, "cm_id" := Ids, "pd" := Domains} = Counts) ->
            Counts#{"ctx" := Contexts + 1, "cm_id" := Ids + 1, "pd" := Domains + 1}
        end,
        Before
    ),
    Stop = fun() ->
        ok = call(Late, net_kernel, stop, []),
        inet_rdma_test_node:await_nodes(A, [name(B)]),
        inet_rdma_vm:await_resources(Open)
    end,
    Start(),
    Stop(),
    Footprint = inet_rdma_test_os:footprint(maps:get(os_pid, Late)),
    Start(),
    Stop(),
    inet_rdma_test_os:await_footprint(maps:get(os_pid, Late), Footprint),
    ct:pal("~p", [Footprint]),
    Start(),
    ok = inet_rdma_vm:cast(Late, init, stop, []),
    inet_rdma_test_node:await_exit(Late, 20000),
    inet_rdma_test_node:await_nodes(A, [name(B)]),
    inet_rdma_vm:await_resources(Before).

%% The TCP connection of a link over verbs is replaced, and verbs carries the link.
tcp_connection_cut(Config) ->
    Pair = inet_rdma_vm:pair(Config),
    [
        begin
            ok = inet_rdma_test_node:connect(A, B),
            inet_rdma_vm:cut_tcp(A, B)
        end
     || [A, B] <- [Pair, lists:reverse(Pair)]
    ],
    [A, B] = inet_rdma_vm:pair(Config),
    ok = inet_rdma_test_link:await(A, B, verbs),
    ok = call(A, inet_rdma_test_data, echo_and_compare, [name(B), [0, 1000, 200000]]).

%% An idle link pins little; bulk brings a larger ring and more staging memory, which go when it
%% ends.
rings_grow_and_shrink(Config) ->
    [A, B] = inet_rdma_vm:pair(Config),
    await_idle([{A, B}, {B, A}]),
    ok = call(A, inet_rdma_test_data, send_and_compare, [name(B), [5 * ?MB || _ <- lists:seq(1, 4)]]),
    #{ring_size_bytes := Grown, pinned_bytes := Pinned} = inet_rdma_vm:info(B, A),
    ?assertEqual(524288, Grown),
    ?assert(Pinned >= 524288 + 163840),
    await_idle([{A, B}, {B, A}]),
    ok = call(B, inet_rdma_test_data, send_and_compare, [name(A), [1, 65536, 5 * ?MB]]).

await_idle(Links) ->
    inet_rdma_test_wait:until(rings_are_small, 60000, fun() ->
        Infos = [inet_rdma_vm:info(X, Y) || {X, Y} <- Links],
        ct:pal(
            "~p",
            [
                [
                    {Ring, Pinned, All}
                 || #{ring_size_bytes := Ring, pinned_bytes := Pinned, node_pinned_bytes := All} <-
                        Infos
                ]
            ]
        ),
        lists:all(
            fun
                (#{ring_size_bytes := Ring, pinned_bytes := Pinned}) ->
                    Ring =:= 65536 andalso
                        Pinned =< 262144;
                %% A busy machine may suspect the queue pair; the link comes back to one.
                (#{fabric := tcp}) ->
                    false
            end,
            Infos
        )
    end).

%% Landing buffers of a stream come with bulk and go after it.
streams_land_on_demand(Config) ->
    [A, B] = inet_rdma_vm:pair(Config),
    {ok, Ip} = inet:parse_address(proplists:get_value(ipv4, Config)),
    Options = [{fabric, verbs}],
    {Port, Listening} = inet_rdma_test_pair:listener([{b, B}], Options),
    {ok, Connected} = call(A, inet_rdma_test_end, connect, [Ip, Port, Options]),
    {ok, Accepted} = inet_rdma_test_pair:do(Listening, accept_end, []),
    {X, Y} = {{A, Connected}, {B, Accepted}},
    #{landing_state := unused, landing_count := 0, pinned_bytes := Pinned} = inet_rdma_test_pair:do(
        Y, info, []
    ),
    ?assert(Pinned =< 262144),
    inet_rdma_test_wait:until(bulk_lands, 60000, fun() ->
        ok = inet_rdma_test_pair:transfer(X, Y, 2 * ?MB),
        #{direct_transfers_received := Landed} = inet_rdma_test_pair:do(Y, info, []),
        Landed > 0
    end),
    ?assertMatch(#{landing_state := ready}, inet_rdma_test_pair:do(Y, info, [])),
    inet_rdma_test_wait:until(memory_is_given_back, 60000, fun() ->
        case inet_rdma_test_pair:do(Y, info, []) of
            #{landing_state := unused, pinned_bytes := Left} when Left =< 262144 -> true;
            Info -> Info
        end
    end),
    ok = inet_rdma_test_pair:transfer(X, Y, 2 * ?MB),
    [inet_rdma_test_pair:do(End, stop, []) || End <- [X, Y, Listening]],
    ok.

%% rxe has memory windows, siw has none: without them the peer could change what was handed over as
%% it lies. Those of rxe are used where the user says so: a peer could make its kernel panic.
landed_bytes_are_handed_over(Config) ->
    Windows =
        case proplists:get_value(kind, Config) of
            rxe -> windows;
            siw -> none
        end,
    [
        begin
            {Safeguard, Packets} = hand_over(Config, ZeroCopy),
            ct:pal("~p: ~p, ~b packets", [ZeroCopy, Safeguard, Packets]),
            ?assertEqual(
                {ZeroCopy, Expected, Expected =/= none}, {ZeroCopy, Safeguard, Packets > 0}
            )
        end
     || {ZeroCopy, Expected} <- [{auto, none}, {windows, Windows}, {always, trusted}, {never, none}]
    ].

hand_over(Config, ZeroCopy) ->
    [A, B] = inet_rdma_vm:pair(Config),
    {ok, Ip} = inet:parse_address(proplists:get_value(ipv4, Config)),
    Options = [{fabric, verbs}, {zero_copy, ZeroCopy}],
    {Port, Listening} = inet_rdma_test_pair:listener([{b, B}], Options),
    {ok, Connected} = call(A, inet_rdma_test_end, connect, [Ip, Port, Options]),
    {ok, Accepted} = inet_rdma_test_pair:do(Listening, accept_end, []),
    {X, Y} = {{A, Connected}, {B, Accepted}},
    inet_rdma_test_wait:until(bulk_lands, 60000, fun() ->
        ok = inet_rdma_test_pair:transfer(X, Y, 2 * ?MB),
        #{direct_transfers_received := Landed} = inet_rdma_test_pair:do(Y, info, []),
        Landed > 20
    end),
    #{safeguard := Safeguard, zero_copy_packets := Packets} = inet_rdma_test_pair:do(Y, info, []),
    [inet_rdma_test_pair:do(End, stop, []) || End <- [X, Y, Listening]],
    {Safeguard, Packets}.

do(Node, End, Function, Args) ->
    call(Node, inet_rdma_test_end, do, [End, Function, Args]).

call(Node, Module, Function, Args) -> inet_rdma_vm:call(Node, Module, Function, Args).

name(Node) -> inet_rdma_vm:name(Node).

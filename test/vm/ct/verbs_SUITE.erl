%% Nodes of one machine over an RDMA device: what they say to each other arrives, their ends are noticed and leave
%% nothing in the kernel. A link that cannot use the device stays on TCP, and both nodes say why and what to do.
-module(verbs_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, groups/0, suite/0, init_per_group/2, end_per_group/2, end_per_testcase/2]).
-export([ping_and_calls/1, links_monitors_and_spawns/1, sizes_both_ways/1, order_under_mixed_sizes/1]).
-export([bulk_goes_through_the_ring/1, simultaneous_connects/1, hundred_connects_leave_nothing/1]).
-export([streams/1, streams_inside_tls/1, settlement/1, refused_streams_say_what_to_do/1]).
-export([hidden_node_with_an_ipv6_name/1]).
-export([each_link_has_a_fabric_of_its_own/1, killed_and_back_under_the_same_name/1, stopped_nodes_leave_nothing/1]).
-export([tcp_connection_cut/1, no_device_files/1, forbidden_device_files/1, too_little_locked_memory/1]).
-export([rings_grow_and_shrink/1, streams_land_on_demand/1, landed_bytes_are_handed_over/1,
         pinned_memory_is_bounded/1]).
-export([required_without_a_device/1, wrong_cookie/1, device_removed/1]).

-define(MB, 1048576).
-define(TICKTIME_S, 60).

suite() ->
    [{timetrap, {minutes, 12}}].

all() ->
    [{group, rxe}, {group, siw}].

groups() ->
    Cases = [
        ping_and_calls, links_monitors_and_spawns, sizes_both_ways, order_under_mixed_sizes, bulk_goes_through_the_ring,
        simultaneous_connects, hundred_connects_leave_nothing, streams, streams_inside_tls, settlement,
        refused_streams_say_what_to_do,
        hidden_node_with_an_ipv6_name, each_link_has_a_fabric_of_its_own, killed_and_back_under_the_same_name,
        stopped_nodes_leave_nothing, tcp_connection_cut, no_device_files, forbidden_device_files,
        too_little_locked_memory, rings_grow_and_shrink, streams_land_on_demand,
        landed_bytes_are_handed_over, pinned_memory_is_bounded, required_without_a_device, wrong_cookie, device_removed
    ],
    [{rxe, [], Cases}, {siw, [], Cases}].

%% Nodes take seconds to start here, so the cases share a pair.
init_per_group(Kind, Config) ->
    [Device, Ipv4, Ipv6] = inet_rdma_vm:device(Kind),
    Before = inet_rdma_vm:resources(),
    Pair = inet_rdma_vm:nodes_on(Ipv4, ["a", "b"], #{}),
    [{kind, Kind}, {device, Device}, {ipv4, Ipv4}, {ipv6, Ipv6}, {before, Before}, {pair, Pair} | Config].

%% All nodes were ended the hard way or by themselves: nothing of them is left.
end_per_group(_Kind, Config) ->
    inet_rdma_test_node:stop_all(),
    inet_rdma_vm:await_resources(proplists:get_value(before, Config)).

%% What a case has started beside the pair.
end_per_testcase(_Case, Config) ->
    [] = [Pid || #{os_pid := Pid} <- proplists:get_value(pair, Config), not inet_rdma_test_os:is_alive(Pid)],
    ok.

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
            contains(Why,
                     ["both nodes settled on it", proplists:get_value(device, Config),
                      proplists:get_value(ipv4, Config)]),
            ?assertEqual({verbs, 0, 0}, {Fabric, DirectSent, LandingBuffers}),
            [?assert(map_get(Key, Info) > 0) || Key <- [sends_posted, receives_posted, completions, events_armed]]
        end
     || #{fabric := Fabric, why := Why, direct_bytes_sent := DirectSent,
          landing_buffers := LandingBuffers} = Info <- Infos
    ],
    ?assertEqual(2, length(Infos)).

simultaneous_connects(Config) ->
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
    Resources = inet_rdma_vm:steady_resources(),
    Footprints = [{Node, inet_rdma_test_os:footprint(OsPid)} || #{os_pid := OsPid} = Node <- [A, B]],
    cycles(A, B, 100),
    inet_rdma_vm:await_resources(Resources),
    [inet_rdma_test_os:await_footprint(OsPid, Before) || {#{os_pid := OsPid}, Before} <- Footprints],
    ct:pal("~p~n~p", [maps:get(proplists:get_value(device, Config), Resources), [F || {_, F} <- Footprints]]).

%% Each side closes in turn, and the other connects with a message.
cycles(A, B, Count) ->
    disconnect(A, B),
    [
        begin
            {X, Y} = case I rem 2 of 0 -> {A, B}; 1 -> {B, A} end,
            Size = case I rem 10 of 0 -> 200000; _ -> 100 end,
            ok = call(X, inet_rdma_test_data, send_and_compare, [name(Y), [Size]]),
            disconnect(X, Y)
        end
     || I <- lists:seq(1, Count)
    ].

streams(Config) ->
    [A, B] = inet_rdma_vm:pair(Config),
    Before = inet_rdma_vm:resources(),
    Ends = [stream(A, B, proplists:get_value(Address, Config)) || _ <- [first, again], Address <- [ipv4, ipv6]],
    ?assertEqual([], [End || End <- Ends, End =/= closed]),
    inet_rdma_vm:await_resources(Before).

stream(A, B, Address) ->
    {ok, Ip} = inet:parse_address(Address),
    Options = [{fabric, verbs}],
    {ok, Port, Listener} = call(A, inet_rdma_test_end, listen, [0, Options]),
    Waiting = self(),
    Accepting = spawn_link(fun() -> Waiting ! {accepted, do(A, Listener, accept_end, [])} end),
    {ok, Client} = call(B, inet_rdma_test_end, connect, [Ip, Port, Options]),
    {ok, Server} = receive {accepted, Accepted} -> Accepted after 60000 -> error({never_accepted, Accepting}) end,
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

%% Encrypted by records; zero_copy has no part in that. New keys go over the TLS connection meanwhile.
streams_inside_tls(Config) ->
    [A, B] = inet_rdma_vm:pair(Config),
    Directory = filename:join(proplists:get_value(priv_dir, Config), inet_rdma_test_node:unique("certificates")),
    ok = filelib:ensure_dir(filename:join(Directory, "x")),
    ok = inet_rdma_test_certificates:make(Directory, ["localhost"]),
    Tls = [{certfile, filename:join(Directory, "good.pem")}, {keyfile, filename:join(Directory, "good.key")},
           {cacertfile, filename:join(Directory, "ca.pem")}, {verify, verify_peer}],
    Listening = [{fail_if_no_peer_cert, true} | Tls],
    Connecting = [{server_name_indication, "localhost"} | Tls],
    %% As the accepting side does: librdmacm keeps each device open that it has looked at.
    {ok, _} = call(A, inet_rdma_nif, verbs_addresses, [call(A, inet_rdma_test_settle, addresses, [])]),
    Before = inet_rdma_vm:resources(),
    [
        begin
            Options = [{fabric, verbs}, {zero_copy, ZeroCopy}, {rekey_bytes, 262144}],
            {ok, Ip} = inet:parse_address(proplists:get_value(Address, Config)),
            {ok, Port, Listener} = call(A, inet_rdma_test_end, listen, [0, [{ip, Ip}, {tls, Listening} | Options]]),
            {ok, Client} = call(B, inet_rdma_test_end, connect, [Ip, Port, [{tls, Connecting} | Options]]),
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
                    ?assertMatch(#{fabric := verbs, direct_bytes_sent := 0, direct_bytes_received := 0}, Info),
                    ?assertNotEqual(none, map_get(cipher, Info))
                end
             || Info <- Infos
            ],
            %% One more key for each direction, at least, comes behind each of these transfers.
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
                Generations = [{Own, Peers} || #{key_generation := Own, peer_key_generation := Peers} <- Keys],
                lists:all(fun({Own, Peers}) -> Own >= 5 andalso Peers >= 5 end, Generations) orelse Generations
            end),
            ok = do(B, Client, send, [<<"the last">>]),
            ok = do(B, Client, close, []),
            ?assertEqual({ok, <<"the last">>}, do(A, Server, recv, [8])),
            ?assertEqual({error, closed}, do(A, Server, recv, [0])),
            [ok = do(Node, End, stop, []) || {Node, End} <- [{A, Server}, {B, Client}, {A, Listener}]]
        end
     || {ZeroCopy, Address} <- [{auto, ipv4}, {always, ipv6}]
    ],
    inet_rdma_vm:await_resources(Before).

%% A listener for the peer that knows a token, on an address of a device or on all.
settlement(Config) ->
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
    ?assertEqual([], [Address || Address <- OfDevices, Prefix <- ["127.", "::1", "fe80:", "10.9.2."],
                                 string:prefix(Address, Prefix) =/= nomatch]),
    [settle(A, B, On, Address) || Address <- Ours, On <- [<<>>, Address]],
    {Nobody, _} = call(A, inet_rdma_test_settle, expect, [verbs, <<>>, 1, 100]),
    ?assertEqual({error, etimedout}, call(A, inet_rdma_test_settle, result, [Nobody])),
    inet_rdma_vm:await_resources(Before).

settle(A, B, On, Address) ->
    Token = rand:uniform(1 bsl 64 - 2) + 1,
    {Pid, Port} = call(A, inet_rdma_test_settle, expect, [verbs, On, Token, 60000]),
    Connect = fun(Of) -> call(B, inet_rdma_test_settle, connect, [verbs, Address, Port, Of, 60000]) end,
    Resources = inet_rdma_vm:resources(),
    {{error, Reason}, []} = Connect(Token bxor 1),
    ct:pal("~p", [Reason]),
    %% The stranger's own is gone soon; the listener has made nothing for it.
    inet_rdma_vm:await_resources(Resources),
    ?assertEqual({ok, []}, Connect(Token)),
    {ok, <<"hello">>, verbs, Why} = call(A, inet_rdma_test_settle, result, [Pid]),
    contains(Why, ["both nodes settled on it", binary_to_list(Address)]),
    ?assertMatch({{error, _}, []}, Connect(Token)).

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
    {{no_route, _}, NoRdma} = Connect("10.9.2." ++ lists:last(string:lexemes(Ipv4, ".")), [{fabric, verbs}]),
    contains(NoRdma, ["no RDMA device has an address in its network", "rdma link"]),
    {{no_route, _}, NoRoute} = Connect("192.0.2.1", [{fabric, verbs}]),
    contains(NoRoute, ["no route"]),
    {{no_route, _}, LinkLocal} = Connect("fe80::1", [{fabric, verbs}]),
    contains(LinkLocal, ["link-local", "use another address"]),
    ok = do(A, Shm, stop, []).

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
    [ok = call(C, inet_rdma_test_data, echo_and_compare, [name(Peer), [0, 1000, 200000]]) || Peer <- [A, D]],
    ok = call(A, inet_rdma_test_data, echo_and_compare, [name(D), [0, 1000, 200000]]),
    [inet_rdma_test_node:stop(Node) || Node <- [C, D]],
    inet_rdma_test_node:await_nodes(A, [name(B)]).

%% With streams both ways, so that the queues are full. Nobody but A connects to C: whoever is about to when it is
%% killed waits for as long as connecting may take.
killed_and_back_under_the_same_name(Config) ->
    [A, B] = inet_rdma_vm:pair(Config),
    Options = inet_rdma_test_node:alone(inet_rdma_vm:name_at("c", proplists:get_value(ipv4, Config), #{})),
    Before = inet_rdma_vm:resources(),
    [
        begin
            C = inet_rdma_test_node:start("c", Options),
            ok = inet_rdma_test_node:connect(A, C),
            AtC = inet_rdma_vm:receiver(C, 2, 10000),
            AtA = inet_rdma_vm:receiver(A, 2, 10000),
            Senders = call(A, inet_rdma_test_stream, senders, [name(C), AtC, mixed, 2, 10000]),
            _ = call(C, inet_rdma_test_stream, senders, [name(A), AtA, mixed, 2, 10000]),
            ok = call(A, inet_rdma_test_data, send_and_compare, [name(C), [100000]]),
            Watched = inet_rdma_vm:watch(A, C),
            StartMs = erlang:monotonic_time(millisecond),
            inet_rdma_test_node:kill(C),
            inet_rdma_vm:await_nodedown(Watched, StartMs, ?TICKTIME_S * 1250),
            inet_rdma_test_node:await_nodes(A, [name(B)]),
            [true = call(A, erlang, exit, [Pid, kill]) || Pid <- [call(A, erlang, whereis, [AtA]) | Senders]],
            inet_rdma_vm:await_resources(Before)
        end
     || _ <- [first, again]
    ].

%% A node whose distribution was started by hand can end it; then it stops in order.
stopped_nodes_leave_nothing(Config) ->
    [A, B] = inet_rdma_vm:pair(Config),
    Ipv4 = proplists:get_value(ipv4, Config),
    Before = inet_rdma_vm:resources(),
    Late = inet_rdma_test_node:start("late", (inet_rdma_vm:name_at("late", Ipv4, #{}))#{name => none}),
    Name = list_to_atom(inet_rdma_test_node:unique("late") ++ "@" ++ Ipv4),
    Start = fun() ->
        {ok, _} = call(Late, net_kernel, start, [[Name, longnames]]),
        true = call(Late, erlang, set_cookie, [inet_rdma_test]),
        Named = Late#{node := call(Late, erlang, node, [])},
        ok = inet_rdma_test_node:connect(Named, A),
        ok = call(A, inet_rdma_test_data, send_and_compare, [name(Named), [?MB]])
    end,
    %% The process may keep the device open; what it had made there is gone.
    Open = maps:map(fun(_Device, #{"ctx" := Contexts} = Counts) -> Counts#{"ctx" := Contexts + 1} end, Before),
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

%% The TCP connection of a link over verbs is made anew, and verbs carries on.
tcp_connection_cut(Config) ->
    Pair = inet_rdma_vm:pair(Config),
    [begin ok = inet_rdma_test_node:connect(A, B), inet_rdma_vm:cut_tcp(A, B) end
     || [A, B] <- [Pair, lists:reverse(Pair)]],
    [A, B] = inet_rdma_vm:pair(Config),
    ok = inet_rdma_test_link:await(A, B, verbs),
    ok = call(A, inet_rdma_test_data, echo_and_compare, [name(B), [0, 1000, 200000]]).

%% Nodes whose links cannot use the device.

no_device_files(Config) ->
    stays_on_tcp(Config, #{under => hidden_device_files()},
                 ["/dev/infiniband/rdma_cm", "modprobe rdma_ucm", "--device=/dev/infiniband"]).

hidden_device_files() ->
    ["unshare", "-m", "sh", "-c", "mount -t tmpfs none /dev/infiniband && exec \"$@\"", "sh"].

%% Root may use them all the same.
forbidden_device_files(Config) ->
    Files = " /dev/infiniband/rdma_cm /dev/infiniband/uverbs*",
    [] = os:cmd("chmod 600" ++ Files),
    try
        stays_on_tcp(Config, as_nobody(""), ["no permission to open /dev/infiniband/rdma_cm"]),
        Doctor = "io:put_chars(inet_rdma_doctor:format(inet_rdma:doctor()))",
        {0, Report} = run(Config, "n", (as_nobody(""))#{rdma => [{fabric, auto}]}, Doctor),
        contains(Report, ["this user may not read and write /dev/infiniband/rdma_cm"])
    after
        [] = os:cmd("chmod 666" ++ Files)
    end.

%% The options of a node that runs as a user without rights, behind this shell command.
as_nobody(First) ->
    Code = filename:join("/run", inet_rdma_test_node:unique("code")),
    Script = First ++
        "cd /; export HOME=/; exec setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all \"$@\"",
    #{under => ["sh", "-c", Script, "sh"], code => inet_rdma_test_node:copy_code(Code)}.

%% Root may lock as much as it likes, whatever the limit is.
too_little_locked_memory(Config) ->
    Limited = as_nobody("ulimit -l 64; "),
    stays_on_tcp(Config, Limited, ["of 65536 bytes", "ulimit -l", "pinned_max_bytes"]),
    %% The node would pin more than the kernel allows.
    Bold = [{fabric, verbs}, {pinned_max_bytes, 1 bsl 30}],
    stays_on_tcp(Config, Limited#{rdma => Bold}, ["65536 bytes", "ulimit -l", "LimitMEMLOCK", "ring_bytes"]),
    %% So little that the limit suffices.
    [A, B] = inet_rdma_vm:pair(Config),
    Small = [{fabric, verbs}, {ring_bytes, 4096}, {receive_slots, 16}],
    [N] = inet_rdma_vm:nodes_on(proplists:get_value(ipv4, Config), ["n"], Limited#{rdma => Small}),
    ok = inet_rdma_test_node:connect(A, N),
    [ok = inet_rdma_test_link:await(X, Y, verbs) || {X, Y} <- [{A, N}, {N, A}]],
    inet_rdma_test_node:stop(N),
    inet_rdma_test_node:await_nodes(A, [name(B)]).

%% An idle link pins little; bulk brings a larger ring and more staging memory, which go when it ends.
rings_grow_and_shrink(Config) ->
    [A, B] = inet_rdma_vm:pair(Config),
    await_idle([{A, B}, {B, A}]),
    ok = call(A, inet_rdma_test_data, send_and_compare, [name(B), [5 * ?MB || _ <- lists:seq(1, 4)]]),
    #{ring_bytes := Grown, pinned_bytes := Pinned} = inet_rdma_vm:info(B, A),
    ?assertEqual(524288, Grown),
    ?assert(Pinned >= 524288 + 163840),
    await_idle([{A, B}, {B, A}]),
    ok = call(B, inet_rdma_test_data, send_and_compare, [name(A), [1, 65536, 5 * ?MB]]).

await_idle(Links) ->
    inet_rdma_test_wait:until(rings_are_small, 60000, fun() ->
        Infos = [inet_rdma_vm:info(X, Y) || {X, Y} <- Links],
        ct:pal("~p",
               [[{Ring, Pinned, All}
                 || #{ring_bytes := Ring, pinned_bytes := Pinned, node_pinned_bytes := All} <- Infos]]),
        lists:all(fun(#{ring_bytes := Ring, pinned_bytes := Pinned}) -> Ring =:= 65536
                  andalso Pinned =< 262144 end, Infos)
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
    #{landing_state := unused, landing_buffers := 0, pinned_bytes := Pinned} = inet_rdma_test_pair:do(Y, info, []),
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

%% rxe has memory windows, siw has none: without them the peer could change what was handed over as it lies. Those of
%% rxe are used where the user says so: a peer could make its kernel panic.
landed_bytes_are_handed_over(Config) ->
    Windows = case proplists:get_value(kind, Config) of rxe -> windows; siw -> none end,
    [
        begin
            {Safeguard, Packets} = hand_over(Config, ZeroCopy),
            ct:pal("~p: ~p, ~b packets", [ZeroCopy, Safeguard, Packets]),
            ?assertEqual({ZeroCopy, Expected, Expected =/= none}, {ZeroCopy, Safeguard, Packets > 0})
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
    #{zero_copy := Safeguard, zero_copy_packets := Packets} = inet_rdma_test_pair:do(Y, info, []),
    [inet_rdma_test_pair:do(End, stop, []) || End <- [X, Y, Listening]],
    {Safeguard, Packets}.

%% 64 KB hold no link, 8 MiB hold links and rings that stay small where there is no more.
pinned_memory_is_bounded(Config) ->
    [A, B] = inet_rdma_vm:pair(Config),
    Bounded = fun(Bytes) -> [{fabric, verbs}, {pinned_max_bytes, Bytes}] end,
    stays_on_tcp(Config, #{rdma => Bounded(65536)}, ["of 65536 bytes", "pinned_max_bytes"]),
    [
        begin
            [N] = inet_rdma_vm:nodes_on(proplists:get_value(ipv4, Config), ["n"], #{rdma => Bounded(Bytes)}),
            ok = inet_rdma_test_node:connect(A, N),
            [ok = inet_rdma_test_link:await(P, Q, verbs) || {P, Q} <- [{A, N}, {N, A}]],
            ok = call(A, inet_rdma_test_data, send_and_compare, [name(N), [5 * ?MB, 5 * ?MB]]),
            #{ring_bytes := Ring, node_pinned_bytes := Pinned} = inet_rdma_vm:info(N, A),
            ct:pal("~b: ring ~b, pinned ~b", [Bytes, Ring, Pinned]),
            ?assertEqual(Expected, Ring),
            ?assert(Pinned =< Bytes),
            inet_rdma_test_node:stop(N),
            inet_rdma_test_node:await_nodes(A, [name(B)])
        end
     || {Bytes, Expected} <- [{1 bsl 18, 65536}, {8 bsl 20, 524288}, {1 bsl 60, 524288}]
    ].

%% The link of A and a node with these options is up over TCP whichever connects, and both nodes say why in these words.
%% What was made for the attempt is freed.
stays_on_tcp(Config, Options, Words) ->
    [A, B] = inet_rdma_vm:pair(Config),
    Before = inet_rdma_vm:resources(),
    [N] = inet_rdma_vm:nodes_on(proplists:get_value(ipv4, Config), ["n"], Options),
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

%% No link at all then, with the reason on both nodes.
required_without_a_device(Config) ->
    [A, B] = inet_rdma_vm:pair(Config),
    ok = call(A, inet_rdma_test_log, install, []),
    Required = [{fabric, verbs}, {required, true}],
    {0, Output} = run(Config, "choosy", #{under => hidden_device_files(), rdma => Required}, ping(pang, A)),
    contains(Output, ["required", "/dev/infiniband/rdma_cm", atom_to_list(name(A))]),
    inet_rdma_test_wait:until(refusal_is_logged, 10000, fun() ->
        Lines = call(A, inet_rdma_test_log, lines, []),
        [] =/= [Line || Line <- Lines, Word <- ["required"], string:find(Line, "choosy") =/= nomatch,
                        string:find(Line, Word) =/= nomatch, string:find(Line, "/dev/infiniband/rdma_cm") =/= nomatch]
    end),
    ?assertEqual([name(B)], call(A, erlang, nodes, [])).

wrong_cookie(Config) ->
    [A, B] = inet_rdma_vm:pair(Config),
    ok = call(A, inet_rdma_test_log, install, []),
    {0, _} = run(Config, "stranger", #{cookie => "another"}, ping(pang, A)),
    inet_rdma_test_wait:until(refusal_is_logged, 10000, fun() ->
        call(A, inet_rdma_test_log, contains, ["stranger"])
    end),
    ?assertEqual([name(B)], call(A, erlang, nodes, [])).

%% With streams both ways. The device is another one than that of the pair, which stays connected. The kernel may hold
%% on to it until the last process that has it open ends.
device_removed(Config) ->
    [A, B] = inet_rdma_vm:pair(Config),
    Kind = atom_to_list(proplists:get_value(kind, Config)),
    [] = os:cmd(
        "ip link add going type dummy && ip link set going arp on up && ip addr add 10.9.7.1/24 dev going && "
        "rdma link add going_rdma type " ++ Kind ++ " netdev going"
    ),
    Going = [C, D] = inet_rdma_vm:nodes_on("10.9.7.1", ["c", "d"], #{
        rdma => [{fabric, verbs}, {fallback_retry_ms, 1000}], args => ["-connect_all", "false"]
    }),
    ok = inet_rdma_test_node:connect(C, D),
    #{fabric := verbs, why := Why} = inet_rdma_vm:info(C, D),
    contains(Why, ["going_rdma"]),
    [ok = call(Node, inet_rdma_test_log, install, []) || Node <- Going],
    Watched = [inet_rdma_vm:watch(C, D), inet_rdma_vm:watch(D, C)],
    [
        call(X, inet_rdma_test_stream, senders, [name(Y), inet_rdma_vm:receiver(Y, 2, 10000), mixed, 2, 10000])
     || {X, Y} <- [{C, D}, {D, C}]
    ],
    {Removing, Ref} = spawn_monitor(fun() -> [] = os:cmd("rdma link delete going_rdma") end),
    %% The link goes on over TCP, and no node goes down.
    [ok = inet_rdma_test_link:await(X, Y, tcp) || {X, Y} <- [{C, D}, {D, C}]],
    [[] = call(Node, inet_rdma_test_watch, seen, [Watcher]) || {Node, Watcher, _} <- Watched],
    inet_rdma_test_wait:until(removal_is_logged, 10000, fun() ->
        lists:any(fun(Node) -> call(Node, inet_rdma_test_log, contains, ["device was removed"]) end, Going)
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
    [inet_rdma_test_node:stop(Node) || Node <- Going],
    receive
        {'DOWN', Ref, process, Removing, Reason} -> ?assertEqual(normal, Reason)
    end,
    [] = os:cmd("ip link delete going"),
    ?assertEqual([name(B)], call(A, erlang, nodes, [])).

ping(Answer, Node) ->
    lists:flatten(io_lib:format("~p = net_adm:ping(~p)", [Answer, name(Node)])).

run(Config, Prefix, Options, Expression) ->
    Address = proplists:get_value(ipv4, Config),
    %% What was logged is written before the node halts.
    Flushed = Expression ++ ", logger_std_h:filesync(default)",
    {Status, Output} = inet_rdma_test_node:run(Prefix, inet_rdma_vm:name_at(Prefix, Address, Options), Flushed),
    ct:pal("exit status ~p~n~ts", [Status, Output]),
    {Status, Output}.

contains(Text, Words) ->
    ?assertEqual([], [Word || Word <- Words, string:find(Text, Word) =:= nomatch]).

disconnect(A, B) ->
    [ok, ok] = both(A, B, disconnect_and_wait, []).

both(A, B, Function, Args) ->
    Parent = self(),
    Calls = [
        spawn_monitor(fun() -> Parent ! {self(), call(X, inet_rdma_test_remote, Function, [name(Y) | Args])} end)
     || {X, Y} <- [{A, B}, {B, A}]
    ],
    [
        receive
            {Pid, Answer} -> demonitor(Ref, [flush]), Answer;
            {'DOWN', Ref, process, Pid, Reason} -> error(Reason)
        end
     || {Pid, Ref} <- Calls
    ].

do(Node, End, Function, Args) ->
    call(Node, inet_rdma_test_end, do, [End, Function, Args]).

call(Node, Module, Function, Args) -> inet_rdma_vm:call(Node, Module, Function, Args).

name(Node) -> inet_rdma_vm:name(Node).

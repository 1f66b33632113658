%% What a node says of its connections: node_info, options of the socket, the counts of
%% inet_rdma:info.
-module(info_SUITE).

-include_lib("kernel/include/net_address.hrl").
-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_node, [call/4, name/1]).

-export([all/0, suite/0, init_per_testcase/2]).
-export([
    node_info_is_sane/1,
    socket_options_of_a_connection/1,
    info_counts_what_went_both_ways/1,
    info_counts_of_a_stream/1
]).
-export([info_of_a_link_on_tcp/1, info_of_several_connections/1]).
-export([
    tools_ask_the_port_as_a_socket/1, tools_find_a_link_that_was_cut/1, counts_of_series_only_grow/1
]).

-define(MB, 1048576).

suite() ->
    [{timetrap, {minutes, 3}}, {ct_hooks, [inet_rdma_test_nodes]}].

all() ->
    [
        node_info_is_sane,
        socket_options_of_a_connection,
        info_counts_what_went_both_ways,
        info_counts_of_a_stream,
        info_of_a_link_on_tcp,
        info_of_several_connections,
        tools_ask_the_port_as_a_socket,
        tools_find_a_link_that_was_cut,
        counts_of_series_only_grow
    ].

init_per_testcase(Case, Config) ->
    OnlyRdma = [
        info_counts_what_went_both_ways,
        info_counts_of_a_stream,
        info_of_a_link_on_tcp,
        info_of_several_connections,
        tools_find_a_link_that_was_cut,
        counts_of_series_only_grow
    ],
    case lists:member(Case, OnlyRdma) of
        true -> inet_rdma_test_node:only_rdma(Config);
        false -> Config
    end.

node_info_is_sane(_Config) ->
    [A, B] = inet_rdma_test_node:connected_pair(#{}),
    Info = node_info(A, B),
    ?assertEqual(up, proplists:get_value(state, Info)),
    ?assertEqual(normal, proplists:get_value(type, Info)),
    ct:pal("address: ~p", [proplists:get_value(address, Info)]),
    [
        begin
            InBefore = proplists:get_value(in, node_info(Node, Peer)),
            OutBefore = proplists:get_value(out, node_info(Node, Peer)),
            %% A hundred messages each way are at least that many packets, and do not count as
            %% millions.
            ok = call(Node, inet_rdma_test_data, echo_and_compare, [
                name(Peer), lists:duplicate(100, 10)
            ]),
            inet_rdma_test_wait:until({packets_counted, name(Node)}, 5000, fun() ->
                Now = node_info(Node, Peer),
                In = proplists:get_value(in, Now) - InBefore,
                Out = proplists:get_value(out, Now) - OutBefore,
                (In >= 100 andalso In < 10000 andalso Out >= 100 andalso Out < 10000) orelse
                    {In, Out}
            end)
        end
     || {Node, Peer} <- [{A, B}, {B, A}]
    ],
    {ok, Infos} = call(A, net_kernel, nodes_info, []),
    ?assertEqual([name(B)], [Node || {Node, _} <- Infos]),
    ?assertMatch({error, _}, call(A, net_kernel, node_info, ['nobody@nowhere'])).

%% Options that a carrier does not have are an error or absent, and do not disturb the connection.
socket_options_of_a_connection(_Config) ->
    [A, B] = inet_rdma_test_node:connected_pair(#{}),
    Watcher = inet_rdma_test_node:watch(A, B),
    Asked = [
        call(A, net_kernel, getopts, [name(B), [nodelay]]),
        call(A, net_kernel, setopts, [name(B), [{nodelay, true}]]),
        call(A, net_kernel, setopts, [new, [{nodelay, true}]]),
        call(A, net_kernel, getopts, [name(B), [no_such_option]]),
        call(A, net_kernel, setopts, [name(B), [{no_such_option, 1}]])
    ],
    ct:pal("~p", [Asked]),
    [
        ?assert(Answer =:= ok orelse lists:member(element(1, Answer), [ok, error]))
     || Answer <- Asked
    ],
    ?assertMatch({error, _}, lists:last(Asked)),
    ?assertMatch({error, _}, call(A, net_kernel, getopts, ['nobody@nowhere', [nodelay]])),
    ok = call(A, inet_rdma_test_data, echo_and_compare, [name(B), [0, 1000, ?MB]]),
    ?assertEqual([], call(A, inet_rdma_test_watch, seen, [Watcher])).

info_counts_what_went_both_ways(_Config) ->
    [A, B] = inet_rdma_test_node:connected_pair(#{}),
    ok = call(A, inet_rdma_test_data, send_and_compare, [name(B), lists:duplicate(1000, 100)]),
    ok = call(A, inet_rdma_test_data, send_and_compare, [name(B), lists:duplicate(20, ?MB)]),
    Mine = settled_info(A, B),
    Theirs = settled_info(B, A),
    check_counts(Mine, Theirs),
    ?assertEqual({shm, shm}, {maps:get(fabric, Mine), maps:get(fabric, Theirs)}),
    %% A link uses the ring alone, and no landing buffers.
    #{direct_bytes_sent := 0, indirect_bytes_sent := Indirect, landing_count := 0} = Mine,
    ?assert(Indirect > 20 * ?MB).

%% Bulk of a stream lands as well.
info_counts_of_a_stream(_Config) ->
    [A, B] = inet_rdma_test_node:start_all(2, #{}),
    {X, Y} = inet_rdma_test_pair:ends([{a, A}, {b, B}], [{packet, 4}]),
    [
        begin
            Sending = inet_rdma_test_pair:start(X, send, [inet_rdma_test_data:make(Size)]),
            {ok, _} = inet_rdma_test_pair:do(Y, recv, [0, 20000]),
            ok = inet_rdma_test_pair:result(Sending)
        end
     || Size <- lists:duplicate(100, 100) ++ lists:duplicate(20, ?MB)
    ],
    Mine = settled_info(fun() -> inet_rdma_test_pair:do(X, info, []) end),
    Theirs = settled_info(fun() -> inet_rdma_test_pair:do(Y, info, []) end),
    check_counts(Mine, Theirs),
    #{
        direct_bytes_sent := Direct,
        indirect_bytes_sent := Indirect,
        landing_count := Buffers,
        landing_used := Used
    } = Mine,
    ?assert(Used =< Buffers),
    ?assert(Direct > 0),
    ?assert(Indirect > 0).

check_counts(Mine, Theirs) ->
    ct:pal("~p~n~p", [Mine, Theirs]),
    Keys = [
        id,
        node,
        fabric,
        why,
        state,
        peer,
        bytes_sent,
        bytes_received,
        packets_sent,
        packets_received,
        direct_transfers_sent,
        indirect_transfers_sent,
        direct_bytes_sent,
        indirect_bytes_sent,
        direct_transfers_received,
        indirect_transfers_received,
        direct_bytes_received,
        indirect_bytes_received,
        percent_direct_sent,
        percent_direct_received,
        phase_switches,
        credit_stalls,
        wakeups_sent,
        wakeups_received,
        polls,
        ring_size_bytes,
        ring_used,
        landing_count,
        landing_used,
        landing_state,
        landing_refusals,
        safeguard,
        zero_copy_packets
    ],
    ?assertEqual([], Keys -- maps:keys(Mine)),
    %% What one has sent the other has received.
    [
        ?assertEqual({Sent, map_get(Sent, Mine)}, {Sent, map_get(Received, Theirs)})
     || {Sent, Received} <- [
            {bytes_sent, bytes_received},
            {direct_transfers_sent, direct_transfers_received},
            {indirect_transfers_sent, indirect_transfers_received},
            {direct_bytes_sent, direct_bytes_received},
            {indirect_bytes_sent, indirect_bytes_received},
            {packets_sent, packets_received}
        ]
    ],
    #{bytes_sent := Sent, direct_bytes_sent := Direct, indirect_bytes_sent := Indirect} = Mine,
    ?assertEqual(Sent, Direct + Indirect),
    ?assert(Sent > 20 * ?MB),
    ?assert(abs(maps:get(percent_direct_sent, Mine) - 100 * Direct / Sent) =< 1.0),
    ?assertEqual(0, maps:get(ring_used, Theirs)).

%% A link that stays on TCP is listed, too, with the reason and its socket's counts.
info_of_a_link_on_tcp(_Config) ->
    [A, B, C] =
        inet_rdma_test_node:start_all([
            {"a", #{}}, {"b", #{rdma => [{fabric, tcp}]}}, {"c", #{carrier => "inet_tcp"}}
        ]),
    [ok = inet_rdma_test_node:connect(A, Peer) || Peer <- [B, C]],
    [ok = call(A, inet_rdma_test_data, echo_and_compare, [name(Peer), [?MB]]) || Peer <- [B, C]],
    [
        begin
            Info = call(Node, inet_rdma, info, [name(Peer)]),
            ct:pal("~p", [Info]),
            #{
                fabric := tcp,
                state := up,
                why := Why,
                node := Listed,
                bytes_sent := Sent,
                bytes_received := Received,
                packets_sent := PacketsSent,
                packets_received := PacketsReceived
            } = Info,
            ?assertEqual(name(Peer), Listed),
            ?assertNotEqual(nomatch, string:find(Why, Word)),
            ?assert(Sent > ?MB),
            ?assert(Received > ?MB),
            ?assert(PacketsSent > 10),
            ?assert(PacketsReceived > 10),
            %% A link with a node of inet_tcp has no session.
            PathState =
                case Peer of
                    C -> none;
                    _ -> carried
                end,
            ?assertEqual(PathState, maps:get(path_state, Info, none))
        end
     || {Node, Peer, Word} <- [
            {A, B, "the option fabric of the peer is tcp"},
            {B, A, "fabric"},
            {A, C, "makes no offer"}
        ]
    ],
    [inet_rdma_test_node:kill(Peer) || Peer <- [B, C]],
    inet_rdma_test_wait:until(info_forgets, 10000, fun() -> call(A, inet_rdma, info, []) =:= [] end).

info_of_several_connections(_Config) ->
    Nodes = inet_rdma_test_node:start_all(4, #{}),
    ok = inet_rdma_test_node:mesh(Nodes),
    [await_info(Node, Nodes) || Node <- Nodes],
    [A, B | Others] = Nodes,
    inet_rdma_test_node:kill(B),
    await_info(A, [A | Others]).

%% The link that lost of two simultaneous connects is not up, but may still be listed.
await_info(Node, Nodes) ->
    Expected = lists:sort([name(Peer) || Peer <- Nodes, Peer =/= Node]),
    inet_rdma_test_wait:until({info_of, name(Node)}, 10000, fun() ->
        case
            lists:sort([Name || #{node := Name, state := up} <- call(Node, inet_rdma, info, [])])
        of
            Expected -> true;
            Other -> Other
        end
    end).

node_info(Node, Peer) ->
    {ok, Info} = call(Node, net_kernel, node_info, [name(Peer)]),
    Info.

%% The counters, once two looks show the same.
settled_info(Node, Peer) ->
    settled_info(fun() ->
        [Info] = [I || #{node := N} = I <- call(Node, inet_rdma, info, []), N =:= name(Peer)],
        Info
    end).

settled_info(Info) ->
    Look = fun() -> maps:without([polls, up_ms], Info()) end,
    inet_rdma_test_wait:until(counters_settle, 10000, fun() ->
        First = Look(),
        ok = inet_rdma_test_wait:holds(pause, 100, fun() -> true end),
        case Look() of
            First -> {ok, First#{polls => 0}};
            Other -> Other
        end
    end).

%% observer, recon, RabbitMQ, prometheus.erl and inet:i/0 take the port of a link for a socket of
%% inet, which it is over inet_tcp: they find it by its name and its address, and ask it.
tools_ask_the_port_as_a_socket(_Config) ->
    Nodes = [A, B] = inet_rdma_test_node:connected_pair(#{}),
    Before = [call(Node, inet_rdma_test_remote, as_a_socket, []) || Node <- Nodes],
    ok = call(A, inet_rdma_test_data, echo_and_compare, [name(B), lists:duplicate(100, 1000)]),
    After = [call(Node, inet_rdma_test_remote, as_a_socket, []) || Node <- Nodes],
    [Of, At] = After,
    ct:pal("~p", [Of]),
    [
        begin
            ?assertMatch(
                #{
                    name := {name, "tcp_inet"},
                    status := {ok, [connected, open]},
                    type := {ok, {inet, stream}},
                    options := #{active := true, packet := 4, nodelay := true, sndbuf := _},
                    listed := ok
                },
                Now
            ),
            #{peername := {ok, Peer}, observed := Observed} = Now,
            ?assertMatch(#net_address{address = Peer}, maps:get(address, Now)),
            {Ip, TcpPort} = Peer,
            ?assertMatch(
                [Ip, TcpPort, [_ | _]],
                [
                    proplists:get_value(Key, Observed)
                 || Key <- [remote_address, remote_port, statistics]
                ]
            ),
            [
                ?assert(
                    map_get(Count, map_get(counts, Now)) - map_get(Count, map_get(counts, Was)) >=
                        Least
                )
             || {Count, Least} <- [
                    {recv_oct, 100000}, {send_oct, 100000}, {recv_cnt, 100}, {send_cnt, 100}
                ]
            ]
        end
     || {Was, Now} <- lists:zip(Before, After)
    ],
    ?assertEqual(maps:get(peername, Of), maps:get(sockname, At)),
    ?assertEqual(maps:get(peername, At), maps:get(sockname, Of)).

%% The addresses are those that the VM has noted for the node, whichever connections follow the
%% first one.
tools_find_a_link_that_was_cut(_Config) ->
    Nodes = [A, B] = inet_rdma_test_node:connected_pair(#{rdma => [{fabric, tcp}]}),
    Ends = fun() ->
        [
            maps:with(
                [peername, sockname, address], call(X, inet_rdma_test_remote, as_a_socket, [])
            )
         || X <- Nodes
        ]
    end,
    Before = Ends(),
    [
        begin
            #{resumes := Resumes} = call(A, inet_rdma, info, [name(B)]),
            ok = call(Loser, inet_rdma_test_remote, end_part, [socket]),
            inet_rdma_test_wait:until(resumed, 10000, fun() ->
                maps:get(resumes, call(A, inet_rdma, info, [name(B)])) > Resumes
            end),
            ?assertEqual(Before, Ends())
        end
     || Loser <- Nodes
    ].

%% Counts with a series are of the link, not of its present queue pair or TCP connection.
counts_of_series_only_grow(_Config) ->
    Options = #{
        rdma => [{compress, true}, {move, earned}, {move_back_ms, 1000}],
        args => ["-kernel", "net_ticktime", "4"]
    },
    [A, B] = inet_rdma_test_node:connected_pair(inet_rdma_test_node:alone(Options)),
    ok = call(A, inet_rdma_test_data, echo_and_compare, [name(B), lists:duplicate(100, 10000)]),
    ok = inet_rdma_test_link:await(A, B, shm),
    Keys = [Key || {_, counter, _, Keys} <- inet_rdma_counts:series(), {Key, _, _} <- Keys],
    Counts = fun() -> maps:with(Keys, call(A, inet_rdma, info, [name(B)])) end,
    OverShm = Counts(),
    ?assertMatch(#{wakeups_sent := _, wakeups_received := _, credit_stalls := _}, OverShm),
    ok = inet_rdma_test_link:await(A, B, tcp, "it was idle"),
    OverTcp = Counts(),
    ?assertMatch(#{plain_bytes_sent := _, compress_us := _}, OverTcp),
    grown(OverShm, OverTcp),
    ok = call(A, inet_rdma_test_remote, end_part, [socket]),
    inet_rdma_test_wait:until(resumed, 10000, fun() ->
        maps:get(resumes, Counts()) > maps:get(resumes, OverTcp)
    end),
    grown(OverTcp, Counts()).

grown(Before, Now) ->
    ?assertEqual([], [
        {Key, Count, Now}
     || {Key, Count} <- maps:to_list(Before), maps:get(Key, Now, -1) < Count
    ]).

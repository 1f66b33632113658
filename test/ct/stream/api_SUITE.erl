%% inet_rdma as a library: two nodes without distribution, a socket between them, in the manner of
%% gen_tcp.
-module(api_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_pair, [ends/1, ends/2, join/4, listener/2, listen/3, connect/3, connect/4]).
-import(inet_rdma_test_pair, [
    do/3, start/3, result/1, state/1, end_of/1, transfer/3, start_transfer/3
]).
-import(inet_rdma_test_pair, [await_transfer/1, split_transfer/3, call/4]).

-export([all/0, groups/0, suite/0]).
-export([
    sizes_with_exact_lengths/1,
    whatever_is_there/1,
    random_splits_give_the_same_bytes/1,
    packets_of_length_4/1
]).
-export([
    receive_times_out_and_loses_nothing/1,
    accept_times_out/1,
    active_true_gives_all_messages/1,
    active_once_gives_one_message/1,
    an_active_count_ends_passive/1
]).
-export([
    active_refuses_recv/1,
    the_close_is_a_message_after_the_data/1,
    controlling_process_changes_the_owner/1,
    death_of_the_owner/1
]).
-export([
    half_close_reads_to_the_end/1, close_reads_to_the_end/1, close_of_the_listener_keeps_sockets/1
]).
-export([death_of_the_listener_keeps_sockets/1, death_of_the_peer_process/1, names_of_both_ends/1]).
-export([
    options_can_be_read_and_set/1,
    counters_count_packets_and_bytes/1,
    info_of_a_socket/1,
    each_end_has_its_own_options/1,
    bad_options_are_named/1
]).
-export([
    an_impossible_length_leaves_the_stream_up/1,
    many_binaries_go_in_one_send/1,
    the_first_address_that_listens_is_taken/1,
    silent_name_server/1
]).
-export([
    a_connect_without_a_listener_is_refused/1,
    port_is_taken/1,
    peer_does_not_read/1,
    both_ways_at_once/1,
    use_after_close/1
]).
-export([
    addresses_of_this_host/1,
    many_sockets_transfer_at_once/1,
    within_one_node/1,
    active_once_past_the_close/1,
    active_while_sending/1
]).

-define(MB, 1048576).

suite() ->
    [
        {timetrap, {minutes, 2}},
        {ct_hooks, [{inet_rdma_test_nodes, [only_rdma]}, inet_rdma_test_pair]}
    ].

all() ->
    [{group, Fabric} || {Fabric, _, _} <- groups()].

groups() ->
    inet_rdma_test_pair:groups([
        sizes_with_exact_lengths,
        an_impossible_length_leaves_the_stream_up,
        many_binaries_go_in_one_send,
        whatever_is_there,
        random_splits_give_the_same_bytes,
        packets_of_length_4,
        receive_times_out_and_loses_nothing,
        accept_times_out,
        active_true_gives_all_messages,
        active_once_gives_one_message,
        an_active_count_ends_passive,
        active_once_past_the_close,
        active_while_sending,
        active_refuses_recv,
        the_close_is_a_message_after_the_data,
        controlling_process_changes_the_owner,
        death_of_the_owner,
        half_close_reads_to_the_end,
        close_reads_to_the_end,
        close_of_the_listener_keeps_sockets,
        death_of_the_listener_keeps_sockets,
        death_of_the_peer_process,
        names_of_both_ends,
        options_can_be_read_and_set,
        counters_count_packets_and_bytes,
        info_of_a_socket,
        each_end_has_its_own_options,
        bad_options_are_named,
        the_first_address_that_listens_is_taken,
        silent_name_server,
        a_connect_without_a_listener_is_refused,
        port_is_taken,
        peer_does_not_read,
        both_ways_at_once,
        use_after_close,
        many_sockets_transfer_at_once,
        within_one_node,
        addresses_of_this_host
    ]).

sizes_with_exact_lengths(Config) ->
    {X, Y} = ends(Config),
    [
        begin
            Data = inet_rdma_test_data:make(Size),
            %% More than the ring holds is sent only while the other end reads.
            Sending = start(X, send, [Data]),
            ?assertEqual({Size, {ok, Data}}, {Size, do(Y, recv, [Size, 20000])}),
            ok = result(Sending)
        end
     || Size <- [
            1,
            2,
            63,
            64,
            65,
            4095,
            4096,
            4097,
            16383,
            16384,
            65535,
            65536,
            65537,
            262143,
            262144,
            262145,
            ?MB
        ]
    ],
    %% Too large for the control channel: made and compared in the nodes.
    [?assertEqual(ok, transfer(X, Y, Size)) || Size <- [?MB + 1, 16 * ?MB, 64 * ?MB]].

%% The stream goes on.
an_impossible_length_leaves_the_stream_up(Config) ->
    {X, Y} = ends(Config),
    ok = do(X, send, [<<"ab">>]),
    ?assertEqual({ok, <<"a">>}, do(Y, recv, [1, 20000])),
    ?assertEqual({error, enomem}, do(Y, recv, [1 bsl 50, 20000])),
    ?assertEqual({error, enomem}, do(Y, post_recv, [1 bsl 50])),
    ?assertEqual({ok, <<"b">>}, do(Y, recv, [1, 20000])).

many_binaries_go_in_one_send(Config) ->
    {X, Y} = ends(Config),
    Binaries = [binary:copy(<<Number:32>>, 75) || Number <- lists:seq(1, 5000)],
    Data = iolist_to_binary(Binaries),
    Sending = start(X, send, [Binaries]),
    ?assertEqual({ok, Data}, do(Y, recv, [byte_size(Data), 20000])),
    ok = result(Sending).

whatever_is_there(Config) ->
    {X, Y} = ends(Config),
    Data = inet_rdma_test_data:make(3000),
    ok = do(X, send, [Data]),
    ?assertEqual(Data, do(Y, collect, [3000])),
    %% A part of what is there, then the rest.
    ok = do(X, send, [Data]),
    ?assertEqual({ok, binary:part(Data, 0, 1000)}, do(Y, recv, [1000, 20000])),
    ?assertEqual(binary:part(Data, 1000, 2000), do(Y, collect, [2000])).

%% The same bytes, written and read in parts of random sizes.
random_splits_give_the_same_bytes(Config) ->
    {X, Y} = ends(Config),
    [
        begin
            Seed = rand:uniform(1 bsl 32),
            ct:log("seed ~b", [Seed]),
            ?assertEqual({Seed, ok}, {Seed, split_transfer(X, Y, Seed)})
        end
     || _ <- lists:seq(1, 20)
    ].

packets_of_length_4(Config) ->
    {X, Y} = ends(Config, [{packet, 4}]),
    Packets = [
        inet_rdma_test_data:make(Size)
     || Size <- [0, 1, 2, 3, 4, 5, 1000, 16384, 70000, 300000]
    ],
    [
        begin
            Sending = start(X, send, [Packet]),
            ?assertEqual({ok, Packet}, do(Y, recv, [0, 20000])),
            ok = result(Sending)
        end
     || Packet <- Packets
    ],
    %% Several wait to be read.
    Small = [integer_to_binary(I) || I <- lists:seq(1, 100)],
    [ok = do(X, send, [Packet]) || Packet <- Small],
    [?assertEqual({ok, Packet}, do(Y, recv, [0, 20000])) || Packet <- Small],
    %% Iolists are one packet.
    ok = do(X, send, [["he", <<"l">>, [[$l], <<"o">>]]]),
    ?assertEqual({ok, <<"hello">>}, do(Y, recv, [0, 20000])).

receive_times_out_and_loses_nothing(Config) ->
    {X, Y} = ends(Config),
    ?assertEqual({error, timeout}, do(Y, recv, [0, 50])),
    ?assertEqual({error, timeout}, do(Y, recv, [0, 0])),
    ok = do(X, send, [<<"123456">>]),
    %% Six of ten have come.
    ?assertEqual({error, timeout}, do(Y, recv, [10, 200])),
    ok = do(X, send, [<<"7890">>]),
    ?assertEqual({ok, <<"1234567890">>}, do(Y, recv, [10, 20000])).

accept_times_out(Config) ->
    {_, End} = listener(Config, []),
    ?assertEqual({error, timeout}, do(End, accept, [0])),
    ?assertEqual({error, timeout}, do(End, accept, [100])).

active_true_gives_all_messages(Config) ->
    {X, Y} = ends(Config, [{packet, 4}]),
    ok = do(Y, setopts, [[{active, true}]]),
    [ok = do(X, send, [integer_to_binary(I)]) || I <- lists:seq(1, 100)],
    ?assertEqual([{data, integer_to_binary(I)} || I <- lists:seq(1, 100)], do(Y, messages, [100])).

active_once_gives_one_message(Config) ->
    {X, Y} = ends(Config, [{packet, 4}]),
    [ok = do(X, send, [integer_to_binary(I)]) || I <- lists:seq(1, 5)],
    [
        begin
            ok = do(Y, setopts, [[{active, once}]]),
            ?assertEqual([{data, integer_to_binary(I)}], do(Y, messages, [1])),
            ?assertEqual({ok, [{active, false}]}, do(Y, getopts, [[active]]))
        end
     || I <- lists:seq(1, 4)
    ],
    ?assertEqual({ok, <<"5">>}, do(Y, recv, [0, 20000])).

an_active_count_ends_passive(Config) ->
    {X, Y} = ends(Config, [{packet, 4}]),
    ok = do(Y, setopts, [[{active, 3}]]),
    [ok = do(X, send, [integer_to_binary(I)]) || I <- lists:seq(1, 5)],
    ?assertEqual(
        [{data, <<"1">>}, {data, <<"2">>}, {data, <<"3">>}, passive], do(Y, messages, [4])
    ),
    ?assertEqual({ok, <<"4">>}, do(Y, recv, [0, 20000])),
    %% Counts add up.
    ok = do(Y, setopts, [[{active, 1}]]),
    ?assertEqual([{data, <<"5">>}, passive], do(Y, messages, [2])),
    ok = do(Y, setopts, [[{active, 2}]]),
    ok = do(Y, setopts, [[{active, 2}]]),
    ?assertEqual({ok, [{active, 4}]}, do(Y, getopts, [[active]])),
    ok = do(Y, setopts, [[{active, -4}]]),
    ?assertEqual([passive], do(Y, messages, [1])).

active_refuses_recv(Config) ->
    {_, Y} = ends(Config),
    ok = do(Y, setopts, [[{active, true}]]),
    ?assertEqual({error, einval}, do(Y, recv, [0, 1000])).

the_close_is_a_message_after_the_data(Config) ->
    {X, Y} = ends(Config, [{packet, 4}]),
    ok = do(Y, setopts, [[{active, true}]]),
    ok = do(X, send, [<<"last words">>]),
    ok = do(X, close, []),
    ?assertEqual([{data, <<"last words">>}, closed], do(Y, messages, [2])).

%% What came before the peer's close is delivered after it, and then the end.
active_once_past_the_close(Config) ->
    {X, Y} = ends(Config, [{packet, 4}]),
    [ok = do(X, send, [integer_to_binary(I)]) || I <- lists:seq(1, 5)],
    ok = do(X, close, []),
    [
        begin
            ok = do(Y, setopts, [[{active, once}]]),
            ?assertEqual([Message], do(Y, messages, [1]))
        end
     || Message <- [{data, integer_to_binary(I)} || I <- lists:seq(1, 5)] ++ [closed]
    ].

%% A send looks at what has come, too: that must not keep it from the owner.
active_while_sending(_Config) ->
    {ok, Listener} = inet_rdma:listen(0, [{packet, 4}]),
    {ok, Port} = inet_rdma:port(Listener),
    Server = spawn_link(fun() ->
        {ok, Socket} = inet_rdma:accept(Listener, 20000),
        echo(Socket)
    end),
    {ok, Socket} = inet_rdma:connect("localhost", Port, [{packet, 4}, {active, true}]),
    _ = rand:seed(exsss, 1),
    ok = converse(Socket, 0, 0, 3000),
    ok = inet_rdma:close(Socket),
    ok = inet_rdma:close(Listener),
    unlink(Server).

echo(Socket) ->
    case inet_rdma:recv(Socket, 0, 20000) of
        {ok, <<Number:64, _/binary>>} ->
            ok = inet_rdma:send(Socket, <<Number:64>>),
            echo(Socket);
        {error, closed} ->
            ok
    end.

%% Eight packets are under way at a time.
converse(_Socket, Count, Count, Count) ->
    ok;
converse(Socket, Sent, Got, Count) when Sent < Count, Sent - Got < 8 ->
    Bytes = rand:uniform(
        case Sent rem 10 of
            0 -> 300000;
            _ -> 5000
        end
    ),
    ok = inet_rdma:send(Socket, <<Sent:64, 0:(8 * Bytes)>>),
    converse(Socket, Sent + 1, Got, Count);
converse(Socket, Sent, Got, Count) ->
    receive
        {inet_rdma, Socket, <<Got:64>>} -> converse(Socket, Sent, Got + 1, Count)
    after 20000 -> error({no_answer, Got, inet_rdma:info(Socket)})
    end.

%% After controlling_process/2 the death of the old owner leaves the socket open; the death of the
%% new owner closes it.
controlling_process_changes_the_owner(Config) ->
    {X, Y} = ends(Config),
    Heir = do(Y, hand_over, []),
    ok = do(Y, stop, []),
    ok = do(X, send, [<<"still here">>]),
    ?assertEqual({ok, <<"still here">>}, do(Heir, recv, [10, 20000])),
    ?assertEqual({error, not_owner}, do(Heir, hand_over_as_stranger, [])),
    ok = do(Heir, stop, []),
    ?assertEqual({error, closed}, end_of(X)).

death_of_the_owner(Config) ->
    {X, Y} = ends(Config),
    ok = do(Y, stop, []),
    ?assertEqual({error, closed}, end_of(X)).

half_close_reads_to_the_end(Config) ->
    {X, Y} = ends(Config),
    Data = inet_rdma_test_data:make(500000),
    Sending = start(X, send, [Data]),
    ?assertEqual(Data, do(Y, collect, [500000])),
    ok = result(Sending),
    ok = do(X, shutdown, [write]),
    ?assertEqual({error, closed}, do(Y, recv, [0, 20000])),
    %% The other direction goes on.
    ok = do(Y, send, [<<"answer">>]),
    ?assertEqual({ok, <<"answer">>}, do(X, recv, [6, 20000])),
    ?assertMatch({error, _}, do(X, send, [<<"more">>])),
    ok = do(Y, close, []),
    ?assertEqual({error, closed}, do(X, recv, [0, 20000])).

close_reads_to_the_end(Config) ->
    {X, Y} = ends(Config),
    Data = inet_rdma_test_data:make(100000),
    ok = do(X, send, [Data]),
    ok = do(X, close, []),
    ?assertEqual({ok, Data}, do(Y, recv, [100000, 20000])),
    ?assertEqual({error, closed}, do(Y, recv, [0, 20000])).

close_of_the_listener_keeps_sockets(Config) ->
    {Port, Listening} = listener(Config, []),
    {X, Y} = join(Config, Port, Listening, []),
    ok = do(Listening, close, []),
    ?assertEqual(ok, transfer(X, Y, 100000)),
    ?assertEqual({error, econnrefused}, connect(Config, Port, [])).

death_of_the_listener_keeps_sockets(Config) ->
    {Port, Listening} = listener(Config, []),
    {X, Y} = join(Config, Port, Listening, []),
    ok = do(Listening, stop, []),
    ?assertEqual(ok, transfer(X, Y, 100000)),
    inet_rdma_test_wait:until(port_is_free, 10000, fun() ->
        connect(Config, Port, []) =:= {error, econnrefused}
    end).

death_of_the_peer_process(Config) ->
    {X, _} = ends(Config),
    inet_rdma_test_node:kill(proplists:get_value(b, Config)),
    {error, Reason} = end_of(X),
    ?assert(lists:member(Reason, [closed, peer_gone])),
    ?assertMatch({error, _}, do(X, send, [<<"anybody?">>])).

names_of_both_ends(Config) ->
    {Port, Listening} = listener(Config, []),
    {X, Y} = join(Config, Port, Listening, []),
    names_of_both_ends(proplists:get_value(fabric, Config), Port, Listening, X, Y),
    ok = do(X, close, []),
    ?assertEqual({error, closed}, do(X, peername, [])).

names_of_both_ends(auto, Port, Listening, X, Y) ->
    ?assertEqual({ok, {shm, Port}}, do(X, peername, [])),
    ?assertEqual({ok, {shm, Port}}, do(Y, sockname, [])),
    ?assertEqual({ok, {shm, Port}}, do(Listening, sockname, []));
names_of_both_ends(tcp, Port, Listening, X, Y) ->
    {ok, {tcp, Loopback, Own} = Client} = do(X, sockname, []),
    ?assert(Own =/= Port),
    ?assertEqual({ok, Client}, do(Y, peername, [])),
    ?assertEqual({ok, {tcp, Loopback, Port}}, do(X, peername, [])),
    ?assertEqual({ok, {tcp, Loopback, Port}}, do(Y, sockname, [])),
    ?assertEqual({ok, {tcp, {0, 0, 0, 0}, Port}}, do(Listening, sockname, [])).

options_can_be_read_and_set(Config) ->
    {X, _} = ends(Config, [{packet, 4}, {ring_bytes, 8192}]),
    ?assertEqual(
        {ok, [{active, false}, {packet, 4}, {ring_bytes, 8192}]},
        do(X, getopts, [[active, packet, ring_bytes]])
    ),
    ok = do(X, setopts, [[{packet, raw}, {active, once}]]),
    ?assertEqual({ok, [{packet, raw}, {active, once}]}, do(X, getopts, [[packet, active]])),
    ?assertEqual({error, {unknown_option, no_such_option}}, do(X, getopts, [[no_such_option]])),
    ?assertMatch({error, {unknown_option, _}}, do(X, setopts, [[{no_such_option, 0}]])),
    ?assertMatch(
        {error, {bad_option, linger, {true, 0}, _}}, do(X, setopts, [[{linger, {true, 0}}]])
    ),
    ?assertMatch(
        {error, {bad_option, active, sometimes, _}}, do(X, setopts, [[{active, sometimes}]])
    ).

counters_count_packets_and_bytes(Config) ->
    {X, Y} = ends(Config, [{packet, 4}]),
    [ok = do(X, send, [<<"1234567890">>]) || _ <- lists:seq(1, 10)],
    [{ok, _} = do(Y, recv, [0, 20000]) || _ <- lists:seq(1, 10)],
    {ok, Sent} = do(X, getstat, []),
    {ok, Received} = do(Y, getstat, []),
    ?assertEqual({10, 140}, {
        proplists:get_value(send_cnt, Sent), proplists:get_value(send_oct, Sent)
    }),
    ?assertEqual({10, 140}, {
        proplists:get_value(recv_cnt, Received), proplists:get_value(recv_oct, Received)
    }).

info_of_a_socket(Config) ->
    {X, Y} = ends(Config),
    ?assertEqual(ok, transfer(X, Y, ?MB)),
    Fabric =
        case proplists:get_value(fabric, Config) of
            auto -> shm;
            Given -> Given
        end,
    #{bytes_sent := ?MB, state := up, fabric := Fabric, node := undefined, id := Id} = do(
        X, info, []
    ),
    #{bytes_received := ?MB, peer := Id} = do(Y, info, []),
    ?assertMatch([#{id := Id}], call(proplists:get_value(a, Config), inet_rdma, info, [])),
    ok = do(X, close, []),
    %% close/1 frees the connection at once, though the process X still holds the term of the
    %% socket.
    ?assertEqual(undefined, do(X, info, [])),
    ?assertEqual({error, einval}, do(X, getstat, [])),
    inet_rdma_test_wait:until(info_forgets, 10000, fun() ->
        call(proplists:get_value(a, Config), inet_rdma, info, []) =:= []
    end).

%% Each end of a connection has options of its own.
each_end_has_its_own_options(Config) ->
    {Port, Listening} = listener(Config, [
        {ring_bytes, 4096}, {landing_buffers, 0}, {polling, event}
    ]),
    {X, Y} = join(Config, Port, Listening, [{ring_bytes, ?MB}, {mode, indirect_only}]),
    ?assertEqual(ok, transfer(X, Y, 2 * ?MB)),
    ?assertEqual(ok, transfer(Y, X, 2 * ?MB)).

bad_options_are_named(Config) ->
    [
        begin
            ?assertEqual({Option, Expected}, {Option, reason(connect(Config, 1, [Option]))}),
            ?assertEqual({Option, Expected}, {Option, reason(listen(Config, 0, [Option]))})
        end
     || {Option, Expected} <- [
            {{no_such_option, 1}, unknown_option},
            {just_an_atom, unknown_option},
            {{ring_bytes, 0}, bad_option},
            {{mode, sometimes}, bad_option},
            {{active, sometimes}, bad_option},
            {{packet, 3}, bad_option}
        ]
    ].

reason({error, Reason}) -> element(1, Reason).

%% The first address of a name at which somebody listens.
the_first_address_that_listens_is_taken(Config) ->
    Addresses = [{127, 0, 0, 3}, {127, 0, 0, 1}],
    A = proplists:get_value(a, Config),
    ok = call(A, inet_db, set_lookup, [[file]]),
    [ok = call(A, inet_db, add_host, [Ip, ["twofold"]]) || Ip <- Addresses],
    [
        begin
            {ok, Port, _} = listen(Config, 0, [{fabric, tcp}, {ip, Ip}]),
            ?assertMatch({Ip, {ok, _}}, {Ip, connect(Config, "twofold", Port, [{fabric, tcp}])})
        end
     || Ip <- Addresses
    ].

silent_name_server(Config) ->
    {ok, Silent} = gen_udp:open(0, [{ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Silent),
    A = proplists:get_value(a, Config),
    ok = call(A, inet_db, set_lookup, [[dns]]),
    ok = call(A, inet_db, set_resolv_conf, [""]),
    ok = call(A, inet_db, res_option, [nameservers, [{{127, 0, 0, 1}, Port}]]),
    ?assertEqual({error, timeout}, call(A, inet_rdma, connect, ["a.test", 1, [], 300])).

a_connect_without_a_listener_is_refused(Config) ->
    {Port, Listening} = listener(Config, []),
    ok = do(Listening, close, []),
    ?assertEqual({error, econnrefused}, connect(Config, Port, [])),
    ?assertMatch({error, {no_route, _}}, connect(Config, {192, 0, 2, 1}, Port, [{fabric, shm}])),
    ?assertMatch({error, _}, connect(Config, "no-such-host.invalid", Port, [])).

port_is_taken(Config) ->
    {Port, _} = listener(Config, []),
    ?assertEqual({error, eaddrinuse}, listen(Config, Port, [])).

%% A sender waits when the peer does not read; its node's memory does not grow; all arrives when the
%% peer reads.
peer_does_not_read(Config) ->
    {X, Y} = ends(Config),
    Before = inet_rdma_test_os:rss_bytes(maps:get(os_pid, proplists:get_value(b, Config))),
    Sending = start(X, send_made, [64 * ?MB]),
    ok = inet_rdma_test_wait:holds(bounded, 1000, fun() ->
        inet_rdma_test_os:rss_bytes(maps:get(os_pid, proplists:get_value(b, Config))) - Before <
            16 * ?MB
    end),
    ?assertEqual(running, state(Sending)),
    {Size, Hash} = do(Y, collect_hash, [64 * ?MB]),
    ?assertEqual({ok, Size, Hash}, result(Sending)).

both_ways_at_once(Config) ->
    {X, Y} = ends(Config),
    [ok, ok] = [do(End, start_sending, [16 * ?MB]) || End <- [X, Y]],
    Readings = [start(End, collect_hash, [16 * ?MB]) || End <- [X, Y]],
    [ReadByX, ReadByY] = [result(Reading) || Reading <- Readings],
    [{ok, SizeX, HashX}, {ok, SizeY, HashY}] = [do(End, sent, []) || End <- [X, Y]],
    ?assertEqual({{SizeY, HashY}, {SizeX, HashX}}, {ReadByX, ReadByY}).

use_after_close(Config) ->
    {X, _} = ends(Config),
    ok = do(X, close, []),
    ok = do(X, close, []),
    ?assertEqual({error, closed}, do(X, send, [<<"x">>])),
    ?assertEqual({error, closed}, do(X, recv, [0, 1000])),
    ?assertEqual({error, closed}, do(X, setopts, [[{active, true}]])),
    ?assertEqual({error, closed}, do(X, getopts, [[active]])).

many_sockets_transfer_at_once(Config) ->
    {Port, Listening} = listener(Config, []),
    Pairs = [join(Config, Port, Listening, []) || _ <- lists:seq(1, 50)],
    Transfers = [start_transfer(X, Y, 100000) || {X, Y} <- Pairs],
    [?assertEqual(ok, await_transfer(Transfer)) || Transfer <- Transfers].

addresses_of_this_host(Config) ->
    {ok, Interfaces} = inet:getifaddrs(),
    Own = [Address || {_, Properties} <- Interfaces, {addr, Address} <- Properties],
    IsLocal = fun(Host) -> call(proplists:get_value(a, Config), inet_rdma, is_local, [Host]) end,
    [
        ?assertEqual({Host, {ok, true}}, {Host, IsLocal(Host)})
     || Host <- ["localhost", {127, 1, 2, 3} | Own]
    ],
    %% Of TEST-NET-1: no interface has it.
    ?assertEqual({ok, false}, IsLocal({192, 0, 2, 1})).

within_one_node(Config) ->
    A = proplists:get_value(a, Config),
    Loop = [{a, A}, {b, A} | Config],
    {Port, Listening} = listener(Loop, []),
    {X, Y} = join(Loop, Port, Listening, []),
    ?assertEqual(ok, transfer(X, Y, 3 * ?MB)),
    ?assertEqual(ok, transfer(Y, X, 3 * ?MB)).

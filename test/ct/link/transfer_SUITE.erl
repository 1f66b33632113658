%% Data of every size arrives whole, each pair's messages in order, with all buffers, modes and ways
%% of polling. Over links of the distribution (all packets go through the ring) and over streams
%% (bulk lands).
-module(transfer_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_node, [name/1]).

-export([
    all/0,
    groups/0,
    suite/0,
    init_per_group/2,
    end_per_group/2,
    init_per_testcase/2,
    end_per_testcase/2
]).
-export([sizes_around_boundaries/1, sizes_both_ways/1, binary_of_16_mb/1, binary_of_256_mb/1]).
-export([order_of_one_sender/1, order_of_many_senders_both_ways/1]).
-export([stream_of_256_mb/1, stream_across_kinds/1, streams_both_ways/1]).
-export([exit_reasons_while_streaming/1, iolists_and_shared_binaries/1]).
-export([
    different_buffers_carry_all/1,
    smallest_buffers_carry_all/1,
    largest_buffers_carry_all/1,
    direct_only_sends_nothing_through_the_ring/1,
    indirect_only_sends_all_through_the_ring/1
]).
-export([
    unequal_modes_carry_all/1,
    event_polling_carries_all/1,
    busy_polling_carries_all/1,
    several_polling_threads/1,
    bytes_per_call/1
]).

-define(MB, 1048576).

suite() ->
    [{timetrap, {minutes, 4}}].

all() ->
    [{group, default_options}, {group, streams}, {group, own_options}].

groups() ->
    Cases = [
        sizes_around_boundaries,
        sizes_both_ways,
        binary_of_16_mb,
        binary_of_256_mb,
        order_of_one_sender,
        order_of_many_senders_both_ways,
        exit_reasons_while_streaming,
        iolists_and_shared_binaries
    ],
    [
        {default_options, [], Cases},
        {streams, [], [stream_of_256_mb, stream_across_kinds, streams_both_ways]},
        {own_options, [], [
            different_buffers_carry_all,
            smallest_buffers_carry_all,
            largest_buffers_carry_all,
            direct_only_sends_nothing_through_the_ring,
            indirect_only_sends_all_through_the_ring,
            unequal_modes_carry_all,
            event_polling_carries_all,
            busy_polling_carries_all,
            several_polling_threads,
            bytes_per_call
        ]}
    ].

init_per_group(default_options, Config) ->
    [A, B] = inet_rdma_test_node:connected_pair(#{}),
    [{pair, {A, B}} | Config];
init_per_group(streams, Config) ->
    case inet_rdma_test_node:only_rdma(Config) of
        {skip, _} = Skip ->
            Skip;
        Config ->
            [A, B] = inet_rdma_test_node:start_all(2, #{}),
            [{pair, {A, B}} | Config]
    end;
init_per_group(own_options, Config) ->
    inet_rdma_test_node:only_rdma(Config).

end_per_group(_Group, _Config) ->
    inet_rdma_test_node:stop_all().

init_per_testcase(_Case, Config) ->
    Config.

%% The pair of the group of default options serves all its cases.
end_per_testcase(_Case, Config) ->
    case proplists:is_defined(pair, Config) of
        true -> ok;
        false -> inet_rdma_test_node:stop_all()
    end.

sizes_around_boundaries(Config) ->
    {A, B} = pair(Config),
    send_sizes(A, B, [
        0, 1, 63, 64, 65, 4095, 4096, 4097, 65535, 65536, 65537, ?MB - 1, ?MB, ?MB + 1
    ]).

sizes_both_ways(Config) ->
    {A, B} = pair(Config),
    Sizes = [
        0, 1, 63, 64, 65, 16383, 16384, 16385, 65535, 65536, 65537, 262143, 262144, 262145, 3 * ?MB
    ],
    ok = call(A, inet_rdma_test_data, echo_and_compare, [name(B), Sizes]),
    ok = call(B, inet_rdma_test_data, echo_and_compare, [name(A), Sizes]).

binary_of_16_mb(Config) ->
    {A, B} = pair(Config),
    send_sizes(A, B, [16 * ?MB]),
    send_sizes(B, A, [16 * ?MB]).

binary_of_256_mb(Config) ->
    {A, B} = pair(Config),
    send_sizes(A, B, [256 * ?MB]).

order_of_one_sender(Config) ->
    {A, B} = pair(Config),
    stream(A, B, small, 1, 50000),
    stream(A, B, mixed, 1, 5000).

order_of_many_senders_both_ways(Config) ->
    {A, B} = pair(Config),
    both_ways(A, B, mixed, 8, 1000).

stream_of_256_mb(Config) ->
    {X, Y} = sockets(pair(Config)),
    ?assertEqual(ok, inet_rdma_test_pair:transfer(X, Y, 256 * ?MB)).

%% Small writes and bulk take turns: both kinds of transfer, each byte in its place.
stream_across_kinds(Config) ->
    {X, Y} = sockets(pair(Config)),
    split_transfers(X, Y, 20),
    {Direct, Indirect} = transfers(X),
    ct:pal("~b direct and ~b indirect transfers", [Direct, Indirect]),
    ?assert(Direct > 0),
    ?assert(Indirect > 0).

%% Several streams at once, half of them the other way.
streams_both_ways(Config) ->
    Pairs = [sockets(pair(Config)) || _ <- lists:seq(1, 8)],
    Transfers = [
        case I rem 2 of
            0 -> inet_rdma_test_pair:start_transfer(X, Y, 8 * ?MB);
            1 -> inet_rdma_test_pair:start_transfer(Y, X, 8 * ?MB)
        end
     || {I, {X, Y}} <- lists:zip(lists:seq(1, 8), Pairs)
    ],
    [?assertEqual(ok, inet_rdma_test_pair:await_transfer(Transfer)) || Transfer <- Transfers].

exit_reasons_while_streaming(Config) ->
    {A, B} = pair(Config),
    Name = inet_rdma_test_stream:receiver_at(B, 4, 1000),
    _ = call(A, inet_rdma_test_stream, senders, [name(B), Name, mixed, 4, 1000]),
    ok = call(A, inet_rdma_test_remote, large_exit_by_monitor, [name(B), 10 * ?MB]),
    ok = call(A, inet_rdma_test_remote, large_exit_by_link, [name(B), 10 * ?MB]),
    _ = await(B, Name).

iolists_and_shared_binaries(Config) ->
    {A, B} = pair(Config),
    ok = call(A, inet_rdma_test_data, echo_terms, [name(B)]).

%% Ring and landing buffers of the two sides differ: each obeys the other's limits.
different_buffers_carry_all(_Config) ->
    Small = [{ring_bytes, 8192}, {landing_buffers, 2}, {landing_bytes, 65536}, {receive_slots, 16}],
    Large = [
        {ring_bytes, ?MB}, {landing_buffers, 64}, {landing_bytes, 262144}, {receive_slots, 1024}
    ],
    exercise(Small, Large).

smallest_buffers_carry_all(_Config) ->
    Smallest = [{Key, inet_rdma_test_options:smallest(Key)} || Key <- buffers()],
    exercise(Smallest, Smallest).

largest_buffers_carry_all(_Config) ->
    %% Not the largest values at all, which only memory bounds, but far above what anybody would
    %% choose.
    Large = [
        {ring_bytes, 32 * ?MB}, {landing_buffers, 128}, {landing_bytes, ?MB}, {receive_slots, 4096}
    ],
    exercise(Large, Large).

direct_only_sends_nothing_through_the_ring(_Config) ->
    {Direct, Indirect} = exercise([{mode, direct_only}], [{mode, direct_only}]),
    ?assertEqual(0, Indirect),
    ?assert(Direct > 0).

indirect_only_sends_all_through_the_ring(_Config) ->
    {Direct, Indirect} = exercise([{mode, indirect_only}], [{mode, indirect_only}]),
    ?assertEqual(0, Direct),
    ?assert(Indirect > 0).

unequal_modes_carry_all(_Config) ->
    exercise([{mode, indirect_only}], [{mode, dynamic}]).

event_polling_carries_all(_Config) ->
    exercise([{polling, event}], [{polling, event}]).

busy_polling_carries_all(_Config) ->
    exercise([{polling, busy}], [{polling, adaptive}]).

several_polling_threads(_Config) ->
    exercise([{polling_threads, 2}], [{polling_threads, 3}]).

bytes_per_call(_Config) ->
    exercise([{call_bytes, inet_rdma_test_options:smallest(call_bytes)}], [{call_bytes, ?MB}]).

buffers() ->
    [ring_bytes, landing_buffers, landing_bytes, receive_slots].

%% Connects two nodes with these options by a link and by a stream, and sends sizes and streams both
%% ways over each; what the stream's connecting end counts of its transfers.
exercise(OptionsA, OptionsB) ->
    [A, B] = inet_rdma_test_node:start_all([{"a", #{rdma => OptionsA}}, {"b", #{rdma => OptionsB}}]),
    ok = inet_rdma_test_node:connect(A, B),
    Sizes = [0, 1, 64, 4096, 65535, 65536, 65537, ?MB + 1],
    send_sizes(A, B, Sizes),
    send_sizes(B, A, Sizes),
    both_ways(A, B, mixed, 4, 300),
    {X, Y} = sockets({A, B}),
    [
        ?assertEqual({Size, ok}, {Size, inet_rdma_test_pair:transfer(From, To, Size)})
     || {From, To} <- [{X, Y}, {Y, X}], Size <- Sizes, Size > 0
    ],
    split_transfers(X, Y, 4),
    split_transfers(Y, X, 4),
    transfers(X).

%% The two ends of a stream, with the nodes' options.
sockets({A, B}) ->
    inet_rdma_test_pair:ends([{a, A}, {b, B}]).

split_transfers(X, Y, Count) ->
    [
        begin
            Seed = rand:uniform(1 bsl 32),
            ct:log("seed ~b", [Seed]),
            ?assertEqual({Seed, ok}, {Seed, inet_rdma_test_pair:split_transfer(X, Y, Seed)})
        end
     || _ <- lists:seq(1, Count)
    ].

send_sizes(A, B, Sizes) ->
    ok = call(A, inet_rdma_test_data, send_and_compare, [name(B), Sizes]).

stream(A, B, Kind, Senders, Count) ->
    Name = inet_rdma_test_stream:receiver_at(B, Senders, Count),
    _ = call(A, inet_rdma_test_stream, senders, [name(B), Name, Kind, Senders, Count]),
    await(B, Name).

both_ways(A, B, Kind, Senders, Count) ->
    AtA = inet_rdma_test_stream:receiver_at(A, Senders, Count),
    AtB = inet_rdma_test_stream:receiver_at(B, Senders, Count),
    _ = call(A, inet_rdma_test_stream, senders, [name(B), AtB, Kind, Senders, Count]),
    _ = call(B, inet_rdma_test_stream, senders, [name(A), AtA, Kind, Senders, Count]),
    _ = await(A, AtA),
    _ = await(B, AtB),
    ok.

await(Node, Name) ->
    call(Node, inet_rdma_test_stream, await, [Name, 90000]).

%% Direct and indirect transfers of the stream so far, as its sender counts them.
transfers(X) ->
    #{direct_transfers_sent := Direct, indirect_transfers_sent := Indirect} = inet_rdma_test_pair:do(
        X, info, []
    ),
    {Direct, Indirect}.

call(Node, Module, Function, Args) ->
    inet_rdma_test_node:call(Node, Module, Function, Args, 120000).

pair(Config) ->
    proplists:get_value(pair, Config).

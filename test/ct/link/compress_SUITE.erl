%% Links whose TCP connections carry compressed bytes: the option compress.
-module(compress_SUITE).

-include_lib("eunit/include/eunit.hrl").

-export([all/0, suite/0, init_per_testcase/2]).
-export([
    each_side_decides/1,
    within_one_host/1,
    links_inside_tls_compress/1,
    over_new_connections/1,
    a_node_without_memory_asks_for_no_compression/1
]).

suite() -> [{timetrap, {minutes, 5}}, {ct_hooks, [{inet_rdma_test_nodes, [only_sessions]}]}].

all() ->
    [
        each_side_decides,
        within_one_host,
        links_inside_tls_compress,
        over_new_connections,
        a_node_without_memory_asks_for_no_compression
    ].

init_per_testcase(over_new_connections, Config) ->
    inet_rdma_test_cutter:needed(Config);
init_per_testcase(_Case, Config) ->
    Config.

%% What a side sends is compressed if its own option says so, whatever the peer's says.
each_side_decides(Config) ->
    [
        begin
            [A, B] = start(Config, [OfA, OfB]),
            ok = inet_rdma_test_link:connect(A, B),
            ok = inet_rdma_test_link:exercise(A, B),
            ?assertEqual({OfA, OfB}, {compresses(A, B), compresses(B, A)}),
            inet_rdma_test_node:stop_all()
        end
     || OfA <- [true, false], OfB <- [true, false]
    ].

%% With auto, links within one host are not compressed.
within_one_host(Config) ->
    [A, B] = start(Config, [auto, auto]),
    ok = inet_rdma_test_link:connect(A, B),
    ok = inet_rdma_test_link:exercise(A, B),
    ?assertEqual({false, false}, {compresses(A, B), compresses(B, A)}).

links_inside_tls_compress(Config) ->
    case inet_rdma_test_paths:init(tls, Config) of
        {skip, _} = Skip ->
            Skip;
        Made ->
            [A, B] = start(Made, [true, true]),
            ok = inet_rdma_test_link:connect(A, B),
            ok = inet_rdma_test_link:exercise(A, B),
            #{cipher := Cipher} = info(A, B),
            ?assertNotEqual(none, Cipher),
            ?assertEqual({true, true}, {compresses(A, B), compresses(B, A)})
    end.

%% Compression starts again on each TCP connection of a link.
over_new_connections(Config) ->
    [#{os_pid := PidA} = A, #{os_pid := PidB} = B] = start(Config, [true, true]),
    ok = inet_rdma_test_node:connect(A, B),
    Traffic = inet_rdma_test_traffic:start(A, B),
    Cutter = inet_rdma_test_cutter:start([{PidA, PidB}], 300, 700),
    ok = inet_rdma_test_cutter:await_cuts(Cutter, 10),
    Cuts = inet_rdma_test_cutter:stop(Cutter),
    ok = inet_rdma_test_cutter:await(PidA, PidB),
    Figures = inet_rdma_test_traffic:stop(Traffic),
    ct:pal("~b cuts~n~ts", [Cuts, inet_rdma_test_traffic:figures_text(Figures)]),
    ?assert(Cuts > 0),
    ?assertEqual(#{}, inet_rdma_test_traffic:disturbances(Figures)),
    ?assertEqual({true, true}, {compresses(A, B), compresses(B, A)}).

%% A node that cannot decompress says so as one that does not know of compression, which older nodes
%% understand, too. native/link/path_tcp/tests/no_memory.rs takes the memory away.
a_node_without_memory_asks_for_no_compression(_Config) ->
    ?assert(inet_rdma_nif:can_decompress()),
    Message = <<$N, 0:64, 0:32, 4:16, "a@vm">>,
    Session = #{port => 1, nonce => <<7:128>>, cipher => aes_256_gcm, compresses => none},
    Offer = inet_rdma_offer:offer(#{required => false, move => earned}, true, Session),
    Offered = iolist_to_binary(inet_rdma_offer:append(initiator, Message, Offer)),
    {<<"a@vm">>, #{session := Parsed}} = inet_rdma_offer:parse(acceptor, Offered),
    ?assertEqual(Session#{cipher := none}, Parsed).

%% Two nodes whose links stay on TCP, with these values of the option.
start(Config, Values) ->
    Path =
        case proplists:is_defined(path, Config) of
            true -> Config;
            false -> inet_rdma_test_paths:init(tcp, Config)
        end,
    inet_rdma_test_node:start_all([
        {Prefix, inet_rdma_test_paths:options(Path, #{rdma => [{compress, Value}]})}
     || {Prefix, Value} <- lists:zip(["a", "b"], Values)
    ]).

%% Whether the first node has spent time on compression. Counts of bytes do not tell: random bytes
%% do not shrink.
compresses(A, B) -> maps:get(compress_us, info(A, B), 0) > 0.

info(A, #{node := Peer}) -> inet_rdma_test_node:call(A, inet_rdma, info, [Peer]).

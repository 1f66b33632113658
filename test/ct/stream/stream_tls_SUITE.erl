%% Streams that begin inside TLS (the option tls of listen and connect) between two nodes: data,
%% options, the fabric below them, new keys.
-module(stream_tls_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_pair, [
    join/4,
    connect/3, connect/4,
    do/3,
    start/3,
    result/1,
    transfer/3,
    split_transfer/3,
    call/4
]).
-import(inet_rdma_test_tls_pair, [
    tls/1,
    encrypted/1,
    tls_options/2,
    listener/2,
    listen/3,
    ends/2,
    await_logged/2,
    node_of/2
]).

-export([all/0, suite/0]).
-export([
    data_both_ways/1,
    either_side_can_ask_for_encryption/1,
    zero_copy_as_it_is/1,
    posted_receives_work_inside_tls/1,
    active_modes_work_inside_tls/1,
    names_and_options/1,
    streams_inside_tls_go_over_ipv6/1,
    half_close_and_change_of_owner/1,
    options_of_tls/1,
    fabric_tcp_keeps_the_stream_on_tcp/1,
    new_keys_under_load/1
]).

suite() ->
    [{timetrap, {minutes, 5}}, {ct_hooks, [inet_rdma_test_tls_pair]}].

all() ->
    [
        data_both_ways,
        either_side_can_ask_for_encryption,
        zero_copy_as_it_is,
        posted_receives_work_inside_tls,
        active_modes_work_inside_tls,
        names_and_options,
        streams_inside_tls_go_over_ipv6,
        half_close_and_change_of_owner,
        options_of_tls,
        fabric_tcp_keeps_the_stream_on_tcp,
        new_keys_under_load
    ].

%% Bytes of all sizes arrive, encrypted or in memory of the same user.
data_both_ways(Config) ->
    [
        begin
            {X, Y} = Ends = ends(Config, tls(Config) ++ [{encrypt_shm, Encrypt}]),
            Ciphers = [maps:get(cipher, do(End, info, [])) || End <- [X, Y]],
            ct:pal("~p", [Ciphers]),
            ?assertEqual(
                case Encrypt of
                    true -> 1;
                    false -> 0
                end,
                length(lists:usort(Ciphers -- [none, none]))
            ),
            [
                ?assertEqual({Size, ok}, {Size, transfer(From, To, Size)})
             || {From, To} <- [Ends, {Y, X}], Size <- [1, 63, 4096, 65537, 1 bsl 20, 20_000_001]
            ],
            [
                ?assertEqual({Seed, ok}, {Seed, split_transfer(From, To, Seed)})
             || {From, To} <- [Ends, {Y, X}],
                Seed <- [rand:uniform(1 bsl 32) || _ <- lists:seq(1, 3)]
            ],
            %% Plain shared memory is used as by any stream: bulk lands. Encrypted bulk does not.
            #{direct_bytes_sent := Direct} = do(X, info, []),
            ?assertEqual(not Encrypt, Direct > 0)
        end
     || Encrypt <- [false, true]
    ].

either_side_can_ask_for_encryption(Config) ->
    [
        begin
            {Port, Listening} = listener(Config, tls(Config) ++ [{encrypt_shm, Theirs}]),
            {X, Y} = join(Config, Port, Listening, tls(Config) ++ [{encrypt_shm, Ours}]),
            [?assertNotEqual(none, maps:get(cipher, do(End, info, []))) || End <- [X, Y]],
            ?assertEqual(ok, transfer(X, Y, 300000))
        end
     || {Ours, Theirs} <- [{true, false}, {false, true}]
    ].

%% Whatever zero_copy says, encrypted bytes are decrypted into memory of the VM's own.
zero_copy_as_it_is(Config) ->
    [
        begin
            {X, Y} = ends(Config, encrypted(Config) ++ [{zero_copy, ZeroCopy}]),
            [?assertEqual(ok, transfer(From, To, 5_000_000)) || {From, To} <- [{X, Y}, {Y, X}]],
            ?assertMatch(#{direct_bytes_received := 0, landing_used := 0}, do(Y, info, [])),
            ?assertEqual({ok, [{zero_copy, ZeroCopy}]}, do(X, getopts, [[zero_copy]]))
        end
     || ZeroCopy <- [auto, always, never]
    ].

posted_receives_work_inside_tls(Config) ->
    [
        begin
            {X, Y} = ends(Config, tls(Config) ++ [{encrypt_shm, Encrypt}]),
            [
                begin
                    There = start(From, posts, [send_pipeline, [Seed]]),
                    Back = start(To, posts, [recv_pipeline, [Seed + 1]]),
                    ?assertEqual(result(There), result(Back))
                end
             || {From, To} <- [{X, Y}, {Y, X}], Seed <- [1, 10, 100]
            ]
        end
     || Encrypt <- [false, true]
    ].

active_modes_work_inside_tls(Config) ->
    {X, Y} = ends(Config, encrypted(Config) ++ [{packet, 4}]),
    Packets = [inet_rdma_test_data:make(Size) || Size <- [0, 1, 1000, 16384, 70000]],
    SendAll = fun() -> [ok = do(X, send, [Packet]) || Packet <- Packets] end,
    Data = [{data, Packet} || Packet <- Packets],
    SendAll(),
    ?assertEqual([{ok, Packet} || Packet <- Packets], [do(Y, recv, [0, 20000]) || _ <- Packets]),
    ok = do(Y, setopts, [[{active, true}]]),
    SendAll(),
    ?assertEqual(Data, do(Y, messages, [5])),
    ok = do(Y, setopts, [[{active, false}]]),
    SendAll(),
    [
        begin
            ok = do(Y, setopts, [[{active, once}]]),
            ?assertEqual([Each], do(Y, messages, [1]))
        end
     || Each <- Data
    ],
    ok = do(Y, setopts, [[{active, 5}]]),
    SendAll(),
    ?assertEqual(Data ++ [passive], do(Y, messages, [6])),
    ok = do(Y, setopts, [[{active, once}]]),
    ok = do(X, close, []),
    ?assertEqual([closed], do(Y, messages, [1])).

names_and_options(Config) ->
    {Port, Listening} = listener(Config, encrypted(Config)),
    ?assertEqual({ok, {tls, {0, 0, 0, 0}, Port}}, do(Listening, sockname, [])),
    ?assertEqual({ok, Port}, do(Listening, port, [])),
    ?assert(inet_rdma_test_os:is_listening(Port)),
    ?assertEqual({error, eaddrinuse}, listen(Config, Port, encrypted(Config))),
    {X, Y} = join(Config, Port, Listening, encrypted(Config)),
    ?assertEqual([{ok, {shm, Port}}, {ok, {shm, 0}}], [
        do(X, Name, [])
     || Name <- [peername, sockname]
    ]),
    ?assertEqual([{ok, {shm, 0}}, {ok, {shm, Port}}], [
        do(Y, Name, [])
     || Name <- [peername, sockname]
    ]),
    ok = do(X, setopts, [[{packet, line}]]),
    ok = do(Y, send, [<<"a line\nanother\n">>]),
    ?assertEqual([{ok, <<"a line\n">>}, {ok, <<"another\n">>}], [
        do(X, recv, [0, 20000])
     || _ <- [1, 2]
    ]),
    ?assertMatch(
        {ok, [{packet, line}, {encrypt_shm, true}]}, do(X, getopts, [[packet, encrypt_shm]])
    ),
    ?assertMatch({error, {bad_option, tls, _, _}}, do(X, setopts, [[{tls, []}]])),
    ?assertMatch({ok, [{recv_oct, 15}]}, do(X, getstat, [[recv_oct]])).

streams_inside_tls_go_over_ipv6(Config) ->
    Own = {0, 0, 0, 0, 0, 0, 0, 1},
    case gen_tcp:listen(0, [inet6, {ip, Own}]) of
        {ok, Probe} ->
            ok = gen_tcp:close(Probe),
            {Port, Listening} = listener(Config, [{ip, Own} | encrypted(Config)]),
            ?assertEqual({ok, {tls, Own, Port}}, do(Listening, sockname, [])),
            Named =
                proplists:delete(tls, encrypted(Config)) ++
                    [{tls, [{server_name_indication, "localhost"} | tls_options(Config, good)]}],
            {ok, Connected} = connect(Config, Own, Port, Named),
            {ok, Accepted} = do(Listening, accept_end, []),
            ?assertEqual(
                ok,
                transfer({node_of(a, Config), Connected}, {node_of(b, Config), Accepted}, 100000)
            );
        {error, _} ->
            inet_rdma_test_link:skip("this machine has no IPv6")
    end.

half_close_and_change_of_owner(Config) ->
    {X, Y} = ends(Config, encrypted(Config)),
    Heir = do(X, hand_over, []),
    ok = do(X, stop, []),
    ok = do(Heir, send, [<<"request">>]),
    ok = do(Heir, shutdown, [write]),
    ?assertEqual({ok, <<"request">>}, do(Y, recv, [7, 20000])),
    ?assertEqual({error, closed}, do(Y, recv, [0, 20000])),
    ?assertEqual(ok, transfer(Y, Heir, 2_000_000)),
    ok = do(Y, close, []),
    ?assertEqual({error, closed}, do(Heir, recv, [0, 20000])).

%% Options that are not TLS's are refused by name, without printing the others.
options_of_tls(Config) ->
    Secret = {password, "very secret"},
    [
        begin
            ?assertMatch(
                {error, {bad_option, tls, Bad, _}},
                call(node_of(a, Config), inet_rdma, Function, Arguments)
            ),
            {error, Reason} = call(node_of(a, Config), inet_rdma, Function, Arguments),
            Text = inet_rdma:format_error(Reason),
            ?assertEqual(nomatch, string:find(Text, "secret"))
        end
     || Bad <- [
            {packet, 2},
            {active, true},
            list,
            {handshake, hello},
            {ktls, true},
            {ip, {127, 0, 0, 1}}
        ],
        Tls <- [[{tls, [Secret, Bad]}]],
        {Function, Arguments} <- [{listen, [0, Tls]}, {connect, ["localhost", 1, Tls]}]
    ],
    ?assertMatch(
        {error, {bad_option, tls, true, _}},
        call(node_of(a, Config), inet_rdma, listen, [0, [{tls, true}]])
    ),
    ?assertMatch(
        {error, {bad_option, tls, not_shown, _}},
        call(node_of(a, Config), inet_rdma, listen, [0, [{tls, [[Secret]]}]])
    ),
    ?assertMatch(
        {error, {tls, _}},
        call(node_of(a, Config), inet_rdma, listen, [0, [{tls, [{versions, [none]}]}]])
    ),
    %% The term of a listener has none of them: it may be printed.
    Options = [{tls, [Secret | tls_options(Config, good)]}],
    {ok, Listener} = call(node_of(a, Config), inet_rdma, listen, [0, Options]),
    ?assertEqual(nomatch, string:find(io_lib:format("~p", [Listener]), "secret")),
    %% What TLS finds wrong when a peer comes is in the log.
    ok = call(node_of(b, Config), inet_rdma_test_log, install, []),
    NoFile = lists:keyreplace(certfile, 1, tls_options(Config, good), {certfile, "/no/such/file"}),
    case listen(Config, 0, [{tls, NoFile}]) of
        {ok, Port, _} ->
            ?assertMatch({error, _}, connect(Config, Port, tls(Config))),
            await_logged(Config, "/no/such/file");
        {error, Reason} ->
            ?assertNotEqual(nomatch, string:find(inet_rdma:format_error(Reason), "/no/such/file"))
    end.

%% With the option fabric tcp of either side the stream goes over TCP, encrypted.
fabric_tcp_keeps_the_stream_on_tcp(Config) ->
    [
        begin
            {Port, Listening} = listener(
                Config, tls(Config) ++ [{rekey_bytes, 65536}, {fabric, Theirs}]
            ),
            {X, Y} = join(
                Config, Port, Listening, tls(Config) ++ [{rekey_bytes, 65536}, {fabric, Ours}]
            ),
            [?assertMatch(#{fabric := tcp}, do(End, info, [])) || End <- [X, Y]],
            [?assertNotEqual(none, maps:get(cipher, do(End, info, []))) || End <- [X, Y]],
            [?assertEqual(ok, transfer(From, To, 5_000_000)) || {From, To} <- [{X, Y}, {Y, X}]],
            ?assert(maps:get(key_generation, do(X, info, [])) > 0),
            ok = do(X, close, []),
            ?assertEqual({error, closed}, do(Y, recv, [0, 20000]))
        end
     || {Ours, Theirs} <- [{tcp, auto}, {auto, tcp}, {tcp, tcp}]
    ].

%% Ten keys and more in each direction while data flows; nothing is lost.
new_keys_under_load(Config) ->
    {X, Y} = ends(Config, encrypted(Config) ++ [{rekey_bytes, 65536}]),
    Transfers = [{start(From, start_sending, [20_000_000]), To} || {From, To} <- [{X, Y}, {Y, X}]],
    [?assertEqual(ok, result(Started)) || {Started, _} <- Transfers],
    Read = [start(To, collect_hash, [20_000_000]) || {_, To} <- Transfers],
    Hashes = [result(Reading) || Reading <- Read],
    Sent = [do(From, sent, []) || From <- [X, Y]],
    ?assertEqual([{ok, Size, Hash} || {Size, Hash} <- Hashes], Sent),
    Generations = fun(Bytes) ->
        [?assertEqual(ok, transfer(From, To, Bytes)) || {From, To} <- [{X, Y}, {Y, X}]],
        [
            {Own, Peers}
         || End <- [X, Y],
            #{key_generation := Own, peer_key_generation := Peers} <- [do(End, info, [])]
        ]
    end,
    inet_rdma_test_wait:until(ten_keys_each, 30000, fun() ->
        [{OwnX, _}, {OwnY, _}] = Now = Generations(200_000),
        OwnX >= 10 andalso OwnY >= 10 orelse Now
    end),
    %% A side learns that the other has a new key by the bytes that come under it.
    inet_rdma_test_wait:until(both_agree, 30000, fun() ->
        [{OwnX, OfY}, {OwnY, OfX}] = Now = Generations(10),
        {OwnX, OwnY} =:= {OfX, OfY} orelse Now
    end).

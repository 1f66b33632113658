%% Streams that begin inside TLS (the option tls of listen and connect): between two nodes, with every kind of
%% certificate, with somebody in the middle, and to the end of each party.
-module(stream_tls_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_pair, [join/4, connect/3, connect/4]).
-import(inet_rdma_test_pair, [do/3, start/3, result/1, transfer/3, split_transfer/3, call/4]).

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2]).
-export([data_both_ways/1, either_side_can_ask_for_encryption/1, zero_copy_as_it_is/1, posted_receives/1]).
-export([active_modes/1]).
-export([names_and_options/1, over_ipv6/1, half_close_and_change_of_owner/1, options_of_tls/1]).
-export([certificates/1, earlier_version_of_tls/1, plain_peers/1, peers_that_do_not_settle/1, servers_that_lie/1]).
-export([no_way_is_left/1, listener_tells_no_secret/1, keys_of_a_stream_that_waits_are_collected/1]).
-export([over_tcp/1]).
-export([silent_clients_hold_up_nobody/1, no_more_than_the_backlog/1, timeouts/1, listener_is_closed/1]).
-export([new_keys_under_load/1, messages_that_nobody_asked_for/1, somebody_in_the_middle/1]).
-export([data_comes_before_the_end/1, end_of_each_part/1, killed_peer/1, nothing_is_left_behind/1]).

%% The type of a record that means nothing with TLS 1.3 (RFC 8446, appendix D.4).
-define(CHANGE_CIPHER_SPEC, 20).

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [
        data_both_ways, either_side_can_ask_for_encryption, zero_copy_as_it_is, posted_receives, active_modes,
        names_and_options, over_ipv6, half_close_and_change_of_owner, options_of_tls, listener_tells_no_secret,
        keys_of_a_stream_that_waits_are_collected, certificates, earlier_version_of_tls, plain_peers,
        over_tcp, peers_that_do_not_settle, servers_that_lie, no_way_is_left,
        silent_clients_hold_up_nobody, no_more_than_the_backlog, timeouts, listener_is_closed, new_keys_under_load,
        messages_that_nobody_asked_for, somebody_in_the_middle, data_comes_before_the_end, end_of_each_part,
        killed_peer, nothing_is_left_behind
    ].

init_per_suite(Config) ->
    inet_rdma_test_certificates:suite(Config, ["localhost"]).

end_per_suite(_Config) ->
    ok.

init_per_testcase(_Case, Config) ->
    inet_rdma_test_pair:nodes(Config).

end_per_testcase(_Case, _Config) ->
    inet_rdma_test_node:stop_all().

%% Bytes of all sizes arrive, encrypted or in memory of the same user.
data_both_ways(Config) ->
    [
        begin
            {X, Y} = Ends = ends(Config, tls(Config) ++ [{encrypt_shm, Encrypt}]),
            Ciphers = [maps:get(cipher, do(End, info, [])) || End <- [X, Y]],
            ct:pal("~p", [Ciphers]),
            ?assertEqual(case Encrypt of true -> 1; false -> 0 end, length(lists:usort(Ciphers -- [none, none]))),
            [?assertEqual({Size, ok}, {Size, transfer(From, To, Size)})
             || {From, To} <- [Ends, {Y, X}], Size <- [1, 63, 4096, 65537, 1 bsl 20, 20_000_001]],
            [?assertEqual({Seed, ok}, {Seed, split_transfer(From, To, Seed)})
             || {From, To} <- [Ends, {Y, X}], Seed <- [rand:uniform(1 bsl 32) || _ <- lists:seq(1, 3)]],
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

posted_receives(Config) ->
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

active_modes(Config) ->
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
    [begin ok = do(Y, setopts, [[{active, once}]]), ?assertEqual([Each], do(Y, messages, [1])) end || Each <- Data],
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
    ?assertEqual([{ok, {shm, Port}}, {ok, {shm, 0}}], [do(X, Name, []) || Name <- [peername, sockname]]),
    ?assertEqual([{ok, {shm, 0}}, {ok, {shm, Port}}], [do(Y, Name, []) || Name <- [peername, sockname]]),
    ok = do(X, setopts, [[{packet, line}]]),
    ok = do(Y, send, [<<"a line\nanother\n">>]),
    ?assertEqual([{ok, <<"a line\n">>}, {ok, <<"another\n">>}], [do(X, recv, [0, 20000]) || _ <- [1, 2]]),
    ?assertMatch({ok, [{packet, line}, {encrypt_shm, true}]}, do(X, getopts, [[packet, encrypt_shm]])),
    ?assertMatch({error, {bad_option, tls, _, _}}, do(X, setopts, [[{tls, []}]])),
    ?assertMatch({ok, [{recv_oct, 15}]}, do(X, getstat, [[recv_oct]])).

over_ipv6(Config) ->
    Own = {0, 0, 0, 0, 0, 0, 0, 1},
    case gen_tcp:listen(0, [inet6, {ip, Own}]) of
        {ok, Probe} ->
            ok = gen_tcp:close(Probe),
            {Port, Listening} = listener(Config, [{ip, Own} | encrypted(Config)]),
            ?assertEqual({ok, {tls, Own, Port}}, do(Listening, sockname, [])),
            Named = proplists:delete(tls, encrypted(Config)) ++
                [{tls, [{server_name_indication, "localhost"} | tls_options(Config, good)]}],
            {ok, Connected} = connect(Config, Own, Port, Named),
            {ok, Accepted} = do(Listening, accept_end, []),
            ?assertEqual(ok, transfer({node_of(a, Config), Connected}, {node_of(b, Config), Accepted}, 100000));
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
            ?assertMatch({error, {bad_option, tls, Bad, _}}, call(node_of(a, Config), inet_rdma, Function, Arguments)),
            {error, Reason} = call(node_of(a, Config), inet_rdma, Function, Arguments),
            Text = inet_rdma:format_error(Reason),
            ?assertEqual(nomatch, string:find(Text, "secret"))
        end
     || Bad <- [{packet, 2}, {active, true}, list, {handshake, hello}, {ktls, true}, {ip, {127, 0, 0, 1}}],
        Tls <- [[{tls, [Secret, Bad]}]],
        {Function, Arguments} <- [{listen, [0, Tls]}, {connect, ["localhost", 1, Tls]}]
    ],
    ?assertMatch({error, {bad_option, tls, true, _}}, call(node_of(a, Config), inet_rdma, listen, [0, [{tls, true}]])),
    ?assertMatch({error, {tls, _}}, call(node_of(a, Config), inet_rdma, listen, [0, [{tls, [{versions, [none]}]}]])),
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

%% The listening socket of ssl has the options of TLS. Neither the status of the process nor its end shows them.
listener_tells_no_secret(Config) ->
    B = node_of(b, Config),
    ok = call(B, inet_rdma_test_log, install, []),
    {ok, _, _} = listen(Config, 0, [{tls, [{password, "very secret"} | tls_options(Config, good)]}]),
    [Listener] = call(B, inet_rdma_test_guards, listeners, []),
    Tells = fun(Term) -> string:find(io_lib:format("~p", [Term]), "secret") =/= nomatch end,
    ?assertNot(Tells(call(B, sys, get_status, [Listener]))),
    ?assertEqual({error, badarg}, call(B, gen_server, call, [Listener, no_such_request])),
    ok = call(B, gen_server, stop, [Listener, some_defect, infinity]),
    await_logged(Config, "some_defect"),
    ?assertEqual([], [Line || Line <- call(B, inet_rdma_test_log, lines, []), Tells(Line)]).


%% The guards of streams that no process has accepted hibernate: that collects the heap, on which the settlement had
%% keys.
keys_of_a_stream_that_waits_are_collected(Config) ->
    {Port, _Listening} = listener(Config, encrypted(Config)),
    {ok, _} = connect(Config, Port, encrypted(Config)),
    B = node_of(b, Config),
    inet_rdma_test_wait:until(guards_hibernate, 10000, fun() ->
        Doing = [call(B, erlang, process_info, [Guard, current_function]) || Guard <- guards(b, Config)],
        lists:member({current_function, {erlang, hibernate, 3}}, Doing) orelse Doing
    end).


%% Each kind of certificate on each side: the words are OTP's.
certificates(Config) ->
    ok = call(node_of(b, Config), inet_rdma_test_log, install, []),
    Good = listener(Config, encrypted(Config)),
    [
        begin
            {Port, _} = Good,
            refused(Kind, connect(Config, Port, with_certificate(Config, Kind)), asked(Kind, client)),
            {Theirs, _} = listener(Config, with_certificate(Config, Kind)),
            refused(Kind, connect(Config, Theirs, encrypted(Config)), asked(Kind, server))
        end
     || Kind <- inet_rdma_test_certificates:kinds() -- [good]
    ],
    %% The listener takes good ones on. It has that of the client with another host's certificate.
    {Port, Listening} = Good,
    {ok, _} = do(Listening, accept_end, []),
    {X, Y} = join(Config, Port, Listening, encrypted(Config)),
    ?assertEqual(ok, transfer(X, Y, 100000)).

refused(Kind, Result, any) ->
    ?assertMatch({Kind, {ok, _}}, {Kind, Result});
refused(Kind, Result, Words) ->
    {error, Reason} = Result,
    Text = string:lowercase(inet_rdma:format_error(Reason)),
    ct:pal("~p: ~ts", [Kind, Text]),
    %% A server without a certificate may just close the connection.
    ?assert(element(1, Reason) =:= tls_alert orelse {Kind, element(1, Reason)} =:= {none, tls}),
    ?assertNotEqual({Kind, nomatch}, {Kind, string:find(Text, Words)}).

%% The server does not ask which host a client's certificate names.
asked(none, client) -> "certificate required";
asked(none, server) -> "";
asked(expired, _) -> "certificate expired";
asked(wrong_host, client) -> any;
asked(wrong_host, server) -> "hostname_check_failed";
asked(unknown_ca, _) -> "unknown ca";
asked(revoked, _) -> "certificate revoked".

with_certificate(Config, Kind) -> [{tls, tls_options(Config, Kind)}, {encrypt_shm, true}].

%% With TLS 1.2 the client hears within its handshake what the server has against it.
earlier_version_of_tls(Config) ->
    Versions = fun(Options) -> [{tls, [{versions, ['tlsv1.2']} | Tls]} || {tls, Tls} <- Options] end,
    {Port, Listening} = listener(Config, Versions(tls(Config)) ++ [{encrypt_shm, true}]),
    refused(none, connect(Config, Port, Versions(with_certificate(Config, none))), "handshake failure"),
    refused(revoked, connect(Config, Port, Versions(with_certificate(Config, revoked))), "certificate revoked"),
    ?assertMatch({error, {tls_alert, {protocol_version, _}}},
                 connect(Config, Port, [{tls, [{versions, ['tlsv1.3']} | tls_options(Config, good)]}])),
    {X, Y} = join(Config, Port, Listening, Versions(tls(Config))),
    [?assertEqual(ok, transfer(From, To, 1_000_000)) || {From, To} <- [{X, Y}, {Y, X}]].

%% A peer without TLS gets no stream, in either direction, and is told so in words.
plain_peers(Config) ->
    {Port, _} = Listening = listener(Config, encrypted(Config)),
    ?assertEqual({error, econnrefused}, connect(Config, Port, [{fabric, shm}])),
    %% Over TCP it finds the listener, which does not speak its language.
    {error, Answered} = connect(Config, Port, []),
    ?assert(Answered =:= peer_gone orelse element(1, Answered) =:= bad_hello),
    {ok, Shm, _} = listen(Config, 0, [{fabric, shm}]),
    ?assertEqual({error, econnrefused}, connect(Config, Shm, encrypted(Config))),
    {ok, Plain, _} = listen(Config, 0, []),
    {error, {Words, _}} = connect(Config, Plain, encrypted(Config)),
    ?assert(lists:member(Words, [tls, tls_alert])),
    %% Bytes that are no TLS.
    {ok, Socket} = gen_tcp:connect("localhost", Port, [binary, {active, false}]),
    ok = gen_tcp:send(Socket, <<"GET / HTTP/1.0\r\n\r\n">>),
    _ = until_tcp_closed(Socket),
    %% A TCP server that is none of TLS.
    {ok, Other} = gen_tcp:listen(0, [binary, {active, false}]),
    {ok, OtherPort} = inet:port(Other),
    Connecting = connecting(Config, OtherPort, encrypted(Config)),
    {ok, Accepted} = gen_tcp:accept(Other, 20000),
    ok = gen_tcp:send(Accepted, <<"220 mail.example.org ESMTP\r\n">>),
    ok = gen_tcp:close(Accepted),
    {error, Reason} = ended(Connecting),
    ct:pal("~ts", [inet_rdma:format_error(Reason)]),
    ?assert(lists:member(element(1, Reason), [tls, tls_alert])),
    {X, Y} = join(Config, Port, element(2, Listening), encrypted(Config)),
    ?assertEqual(ok, transfer(X, Y, 100000)).

%% Where neither shared memory nor a device leads: over TCP, encrypted, whichever side says so.
over_tcp(Config) ->
    [
        begin
            {Port, Listening} = listener(Config, tls(Config) ++ [{rekey_bytes, 65536}, {fabric, Theirs}]),
            {X, Y} = join(Config, Port, Listening, tls(Config) ++ [{rekey_bytes, 65536}, {fabric, Ours}]),
            [?assertMatch(#{fabric := tcp}, do(End, info, [])) || End <- [X, Y]],
            [?assertNotEqual(none, maps:get(cipher, do(End, info, []))) || End <- [X, Y]],
            [?assertEqual(ok, transfer(From, To, 5_000_000)) || {From, To} <- [{X, Y}, {Y, X}]],
            ?assert(maps:get(key_generation, do(X, info, [])) > 0),
            ok = do(X, close, []),
            ?assertEqual({error, closed}, do(Y, recv, [0, 20000]))
        end
     || {Ours, Theirs} <- [{tcp, auto}, {auto, tcp}, {tcp, tcp}]
    ].

%% A peer with a good certificate that says something else than a settlement.
peers_that_do_not_settle(Config) ->
    ok = call(node_of(b, Config), inet_rdma_test_log, install, []),
    {Good, Listening} = listener(Config, encrypted(Config)),
    [
        begin
            ok = call(node_of(b, Config), inet_rdma_test_log, forget, []),
            %% Of its own: a listener logs at most 10 lines in a minute.
            {Port, _} = listener(Config, encrypted(Config)),
            {ok, Socket} = ssl_connect(Config, Port),
            ok = ssl:send(Socket, Said),
            _ = until_closed(Socket),
            await_logged(Config, "refused a peer on port"),
            await_logged(Config, Words)
        end
     || {Said, Words} <- [
            {<<"no term">>, "not one of the settlement"},
            {term_to_binary({go}), "not one that can come here"},
            {term_to_binary({hello, #{}}), "not one that can come here"},
            {term_to_binary({hello, facts(#{stream => 7})}), "another version"},
            {term_to_binary({hello, facts(#{filling => binary:copy(<<0>>, 1000)})}, [compressed]),
             "not one of the settlement"},
            {binary:copy(<<0>>, 70000), "closed the connection"}
        ]
    ],
    %% A server of TLS that is none of inet_rdma.
    {ok, Server} = ssl:listen(0, [{active, false}, {packet, 4} | tls_options(Config, good)]),
    {ok, {_, ServerPort}} = ssl:sockname(Server),
    Connecting = connecting(Config, ServerPort, encrypted(Config)),
    {ok, Transport} = ssl:transport_accept(Server, 20000),
    {ok, Accepted} = ssl:handshake(Transport, 20000),
    ok = ssl:send(Accepted, <<"no term">>),
    {error, {not_settled, Why}} = ended(Connecting),
    ct:pal("~ts", [Why]),
    {X, Y} = join(Config, Good, Listening, encrypted(Config)),
    ?assertEqual(ok, transfer(X, Y, 100000)),
    %% A listener logs at most 10 of them in a minute.
    ok = call(node_of(b, Config), inet_rdma_test_log, forget, []),
    [
        begin
            {ok, Socket} = ssl_connect(Config, Good),
            ok = ssl:send(Socket, <<"no term">>),
            _ = until_closed(Socket)
        end
     || _ <- lists:seq(1, 15)
    ],
    ?assert(length([Line || Line <- call(node_of(b, Config), inet_rdma_test_log, lines, []),
                            string:find(Line, "refused a peer") =/= nomatch]) =< 10).

%% A peer that does not say what the settlement needs, step by step: the other side has words for it, and no crash.
servers_that_lie(Config) ->
    [
        begin
            {ok, Server} = ssl:listen(0, [binary, {active, false}, {packet, 4} | tls_options(Config, good)]),
            {ok, {_, Port}} = ssl:sockname(Server),
            Connecting = connecting(Config, Port, encrypted(Config)),
            {ok, Transport} = ssl:transport_accept(Server, 20000),
            {ok, Accepted} = ssl:handshake(Transport, 20000),
            Hello = facts(maps:merge(#{stream => 1}, Facts)),
            ok = ssl:send(Accepted, term_to_binary({hello, Hello})),
            {ok, Theirs} = ssl:recv(Accepted, 0, 20000),
            {hello, #{stream := 1}} = binary_to_term(Theirs),
            converse(Accepted, Answer),
            {error, {not_settled, Why}} = ended(Connecting),
            ct:pal("~ts", [Why]),
            ?assertNotEqual({nomatch, Why}, {string:find(Why, Words), Why}),
            ssl:close(Accepted),
            ssl:close(Server)
        end
     || {Facts, Answer, Words} <- lies()
    ],
    only_guards(Config, [0, 0]).

%% The facts of the hello; what is said to a `try`; a part of the words.
lies() ->
    Addresses = [<<"127.0.0.1">>],
    [
        {#{}, fun(Key) -> {listens, 1, 1, Addresses, Key} end, "the key that this node has told"},
        {#{}, fun(_Key) -> {listens, 1, 1, Addresses} end, "not one that can come here"},
        {#{}, fun(_Key) -> {ready} end, "not one that can come here"},
        {#{stream => 2}, none, "another version"},
        {#{stream => <<"1">>}, none, "another version"}
    ].

converse(_Accepted, none) ->
    ok;
converse(Accepted, Answer) ->
    {ok, Bytes} = ssl:recv(Accepted, 0, 20000),
    {'try', shm, Key} = binary_to_term(Bytes),
    ok = ssl:send(Accepted, term_to_binary(Answer(Key))).

facts(More) ->
    {ok, Own} = inet_rdma_options:node(),
    maps:merge(maps:merge(maps:with([fabric, required, encrypt_shm], Own), inet_rdma_nif:identity()),
               More#{timeout_ms => 5000, cipher => aes_256_gcm}).

until_closed(Socket) ->
    case ssl:recv(Socket, 0, 20000) of
        {ok, _} -> until_closed(Socket);
        {error, Reason} when Reason =/= timeout -> Reason
    end.

%% Alerts, or nothing, and the end.
until_tcp_closed(Socket) ->
    case gen_tcp:recv(Socket, 0, 20000) of
        {ok, _} -> until_tcp_closed(Socket);
        {error, Reason} when Reason =/= timeout -> Reason
    end.

%% The options leave no fabric to both: refused in words, on both sides, and never inside TLS instead.
no_way_is_left(Config) ->
    case call(node_of(a, Config), inet_rdma_nif, check_verbs, []) of
        ok ->
            inet_rdma_test_link:skip("this machine has what the verbs fabric needs");
        {error, _} ->
            ok = call(node_of(b, Config), inet_rdma_test_log, install, []),
            [
                begin
                    ok = call(node_of(b, Config), inet_rdma_test_log, forget, []),
                    {Port, Listening} = listener(Config, encrypted(Config) ++ [{fabric, Theirs}]),
                    {error, {no_way, Why} = Reason} = connect(Config, Port, encrypted(Config) ++ [{fabric, Ours}]),
                    ct:pal("~ts", [inet_rdma:format_error(Reason)]),
                    [?assertNotEqual({nomatch, Word}, {string:find(Why, Word), Word}) || Word <- ["shm: ", "verbs: "]],
                    await_logged(Config, "no way to the peer"),
                    ?assertEqual({error, timeout}, do(Listening, accept, [0]))
                end
             || {Ours, Theirs} <- [{verbs, auto}, {shm, verbs}, {auto, verbs}]
            ]
    end.

silent_clients_hold_up_nobody(Config) ->
    {Port, Listening} = listener(Config, encrypted(Config)),
    Silent = [element(2, {ok, _} = gen_tcp:connect("localhost", Port, [])) || _ <- lists:seq(1, 50)],
    %% And some that are silent inside TLS.
    Inside = [element(2, {ok, _} = ssl_connect(Config, Port)) || _ <- lists:seq(1, 5)],
    {X, Y} = join(Config, Port, Listening, encrypted(Config)),
    ?assertEqual(ok, transfer(X, Y, 100000)),
    _ = [gen_tcp:close(Socket) || Socket <- Silent],
    _ = [ssl:close(Socket) || Socket <- Inside],
    only_guards(Config, [1, 2]).

%% Connections beyond the option backlog wait until others have ended; connect_timeout_ms ends those that are silent.
no_more_than_the_backlog(Config) ->
    {Port, Listening} = listener(Config, encrypted(Config) ++ [{backlog, 4}, {connect_timeout_ms, 2000}]),
    Silent = [element(2, {ok, _} = gen_tcp:connect("localhost", Port, [])) || _ <- lists:seq(1, 4)],
    inet_rdma_test_wait:until(all_at_work, 10000, fun() -> length(guards(b, Config)) =:= 4 end),
    {X, Y} = join(Config, Port, Listening, encrypted(Config) ++ [{connect_timeout_ms, 50000}]),
    ?assertEqual(ok, transfer(X, Y, 100000)),
    _ = [gen_tcp:close(Socket) || Socket <- Silent],
    %% The same for streams that no process has accepted: they are ready, and the next one waits for one of them.
    Ready = [element(2, {ok, _} = connect(Config, Port, encrypted(Config))) || _ <- lists:seq(1, 4)],
    Fifth = connecting(Config, Port, encrypted(Config) ++ [{connect_timeout_ms, 50000}]),
    {ok, Accepted} = do(Listening, accept_end, []),
    {ok, _} = ended(Fifth),
    B = node_of(b, Config),
    ?assertEqual(ok, transfer({node_of(a, Config), hd(Ready)}, {B, Accepted}, 100000)).

timeouts(Config) ->
    {ok, Silent} = gen_tcp:listen(0, []),
    {ok, Port} = inet:port(Silent),
    A = node_of(a, Config),
    Options = encrypted(Config),
    ?assertEqual({error, timeout}, call(A, inet_rdma, connect, ["localhost", Port, Options, 200])),
    Shorter = [{connect_timeout_ms, 200} | Options],
    ?assertEqual({error, etimedout}, call(A, inet_rdma, connect, ["localhost", Port, Shorter])),
    %% Inside TLS, too.
    {ok, Server} = ssl:listen(0, [{active, false} | tls_options(Config, good)]),
    {ok, {_, ServerPort}} = ssl:sockname(Server),
    Acceptor = spawn_monitor(fun() ->
        {ok, Transport} = ssl:transport_accept(Server, 20000),
        {ok, Accepted} = ssl:handshake(Transport, 20000),
        exit(until_closed(Accepted))
    end),
    ?assertEqual({error, timeout}, call(A, inet_rdma, connect, ["localhost", ServerPort, Options, 2000])),
    _ = ended(Acceptor),
    only_guards(Config, [0, 0]),
    {_, Listening} = listener(Config, encrypted(Config)),
    ?assertEqual({error, timeout}, do(Listening, accept, [0])),
    ?assertEqual({error, timeout}, do(Listening, accept, [100])).

%% By its owner, or with it: acceptors that wait hear of it, what was not accepted ends, what was goes on.
listener_is_closed(Config) ->
    B = node_of(b, Config),
    [
        begin
            {Port, Listening} = listener(Config, encrypted(Config)),
            {X, Y} = join(Config, Port, Listening, encrypted(Config)),
            {ok, Unaccepted} = connect(Config, Port, encrypted(Config)),
            {ok, InHandshake} = gen_tcp:connect("localhost", Port, [{active, false}]),
            {ok, InSettlement} = ssl_connect(Config, Port),
            Socket = do(Listening, socket, []),
            [First | Waiting] = [acceptor(B, Socket) || _ <- lists:seq(1, 3)],
            {accepted, {ok, _}} = acceptor_result(First, Waiting),
            close_listener(How, Listening),
            [?assertEqual({accepted, {error, closed}}, Result) || Result <- rest(First, Waiting)],
            _ = until_tcp_closed(InHandshake),
            _ = until_closed(InSettlement),
            ?assertMatch({error, _}, do({node_of(a, Config), Unaccepted}, recv, [0, 20000])),
            ?assertEqual({error, econnrefused}, connect(Config, Port, encrypted(Config))),
            inet_rdma_test_wait:until(port_is_free, 10000, fun() -> not inet_rdma_test_os:is_listening(Port) end),
            [?assertEqual(ok, transfer(From, To, 1_000_000)) || {From, To} <- [{X, Y}, {Y, X}]],
            case How of
                close -> ?assertEqual({error, closed}, do(Listening, accept, []));
                death -> ok
            end
        end
     || How <- [close, death]
    ].

%% Several acceptors wait; which of them gets the stream that is there does not matter.
acceptor(B, Listener) ->
    spawn_monitor(fun() -> exit(call(B, inet_rdma_test_guards, accept_and_drop, [Listener])) end).

acceptor_result({_, First}, Others) ->
    Refs = [First | [Ref || {_, Ref} <- Others]],
    receive {'DOWN', Ref, process, _, Result} when Result =/= normal ->
        true = lists:member(Ref, Refs),
        put(accepted, Ref),
        Result
    end.

rest(First, Others) ->
    Accepted = get(accepted),
    [ended(Acceptor) || {_, Ref} = Acceptor <- [First | Others], Ref =/= Accepted].

close_listener(close, Listening) -> ok = do(Listening, close, []);
close_listener(death, Listening) -> _ = do(Listening, stop, []).

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
        [{Own, Peers} || End <- [X, Y], #{key_generation := Own, peer_key_generation := Peers} <- [do(End, info, [])]]
    end,
    inet_rdma_test_wait:until(ten_keys_each, 30000, fun() ->
        [{OwnX, _}, {OwnY, _}] = Now = Generations(200_000),
        OwnX >= 10 andalso OwnY >= 10 orelse Now
    end),
    %% A side sees the key of the other by what comes under it.
    inet_rdma_test_wait:until(both_agree, 30000, fun() ->
        [{OwnX, OfY}, {OwnY, OfX}] = Now = Generations(10),
        {OwnX, OwnY} =:= {OfX, OfY} orelse Now
    end).

%% Over the TLS connection of a stream that is up: it ends with a reason, behind what has arrived.
messages_that_nobody_asked_for(Config) ->
    {Port, Listening} = listener(Config, encrypted(Config)),
    Key = binary:copy(<<7>>, 32),
    [
        begin
            {Conn, Tls} = settled(Config, Port),
            {ok, Accepted} = do(Listening, accept_end, []),
            End = {node_of(b, Config), Accepted},
            ok = inet_rdma_nif:send(Conn, [[<<"before">>]], 0),
            ok = ssl:send(Tls, Said),
            ?assertEqual({ok, <<"before">>}, do(End, recv, [6, 20000])),
            ?assertEqual({error, {peer_misbehaved, key_message}}, do(End, recv, [0, 20000])),
            _ = until_closed(Tls),
            ok = inet_rdma_nif:close(Conn)
        end
     || Said <- [term_to_binary({key, 7, Key}), term_to_binary({key, 0, Key}), term_to_binary({key, 1, <<"short">>}),
                 term_to_binary({key_installed, 1}), <<"no term">>]
    ],
    %% More than a guard reads.
    {Conn, Tls} = settled(Config, Port),
    {ok, Accepted} = do(Listening, accept_end, []),
    ok = ssl:send(Tls, binary:copy(<<0>>, 100000)),
    ?assertEqual({error, tls_gone}, do({node_of(b, Config), Accepted}, recv, [0, 30000])),
    ok = inet_rdma_nif:close(Conn).

%% This process as the peer: a stream, and its TLS connection.
settled(Config, Port) ->
    {ok, Socket} = ssl_connect(Config, Port),
    {ok, Own} = inet_rdma_options:node(),
    {ok, Stream} = inet_rdma_stream:settle(initiator, inet_rdma_bootstrap:tls(Socket), Own),
    {inet_rdma_stream:conn(Stream), Socket}.

%% Each record of a connection is changed, repeated, or the connection is cut instead: there is no stream, or it ends.
%% No byte that arrives is another than was sent.
somebody_in_the_middle(Config) ->
    {Port, Listening} = listener(Config, encrypted(Config)),
    Proxy = inet_rdma_test_proxy:start(Port),
    ok = inet_rdma_test_proxy:tamper(Proxy, fun(_, _, Record) -> [Record] end),
    {X, _Y} = join(Config, inet_rdma_test_proxy:port(Proxy), Listening, encrypted(Config)),
    Whole = inet_rdma_test_proxy:seen(Proxy),
    Records = lists:append([lists:enumerate([{Direction, Record} || {D, Record} <- Whole, D =:= Direction])
                            || Direction <- [to, back]]),
    ct:pal("~p", [[{Direction, Number, Type} || {Number, {Direction, <<Type, _/binary>>}} <- Records]]),
    %% A server of TLS 1.3 drops what it cannot decrypt before the client's handshake has ended, as that may be early
    %% data (RFC 8446, section 4.2.10). Behind it come the two messages of the settlement.
    HandshakeRecords = length([x || {to, _} <- Whole]) - 2,
    IsDropped = fun(What, Direction, Number) ->
        {What, Direction} =:= {repeated, to} andalso Number =< HandshakeRecords
    end,
    %% None of them has what the stream carries.
    ok = do(X, send, [binary:copy(<<"clear">>, 1000)]),
    ?assertEqual(length(Whole), length(inet_rdma_test_proxy:seen(Proxy))),
    ok = do(X, close, []),
    Acts = [{changed, fun(Record) -> [flipped(Record)] end}, {repeated, fun(Record) -> [Record, Record] end},
            {cut, fun(_) -> cut end}],
    Tampering = [
        {[What, Number, Direction], tampering(Config, Port, Direction, Number, Act)}
     || {Number, {Direction, <<Type, _/binary>>}} <- Records, Type =/= ?CHANGE_CIPHER_SPEC, {What, Act} <- Acts,
        not IsDropped(What, Direction, Number)
    ],
    [
        begin
            {Result, Then} = ended(Each),
            ct:log("~p ~p of ~p: ~p, ~p", Which ++ [Result, Then]),
            ?assertMatch({error, Reason} when Reason =/= timeout, Then)
        end
     || {Which, Each} <- Tampering
    ],
    %% Of a stream that is up.
    [
        begin
            ok = inet_rdma_test_proxy:tamper(Proxy, fun(_, _, Record) -> [Record] end),
            {V, W} = join_all(Config, Proxy, Listening),
            ok = inet_rdma_test_proxy:inject(Proxy, Direction, <<23, 3, 3, 0, 32, 0:256>>),
            Reasons = [do(End, recv, [0, 30000]) || End <- [V, W]],
            ct:pal("~p", [Reasons]),
            [?assert(lists:member(Reason, [{error, tls_gone}, {error, peer_gone}])) || Reason <- Reasons],
            ?assert(lists:member({error, tls_gone}, Reasons))
        end
     || Direction <- [to, back]
    ],
    inet_rdma_test_proxy:stop(Proxy).

%% A connection in which something happens to one record, and what becomes of it. A record that the handshake does not
%% need, or that comes late, leaves a stream, which ends.
tampering(Config, Port, Direction, Number, Act) ->
    spawn_monitor(fun() ->
        Proxy = inet_rdma_test_proxy:start(Port),
        ok = inet_rdma_test_proxy:tamper(Proxy, fun
            (D, N, Record) when D =:= Direction, N =:= Number -> Act(Record);
            (_, _, Record) -> [Record]
        end),
        Options = encrypted(Config) ++ [{connect_timeout_ms, 10000}],
        Result = connect(Config, inet_rdma_test_proxy:port(Proxy), Options),
        exit({Result, then(Config, Result)})
    end).

then(_Config, {error, _} = Error) -> Error;
then(Config, {ok, Pid}) -> do({node_of(a, Config), Pid}, recv, [0, 30000]).

%% Streams of tampered connections may wait to be accepted, or have ended there.
join_all(Config, Proxy, Listening) ->
    {ok, Connected} = connect(Config, inet_rdma_test_proxy:port(Proxy), encrypted(Config)),
    Marked = {node_of(a, Config), Connected},
    ok = do(Marked, send, [<<"here">>]),
    {Marked, accept_marked(Config, Listening)}.

accept_marked(Config, Listening) ->
    {ok, Accepted} = do(Listening, accept_end, []),
    End = {node_of(b, Config), Accepted},
    case do(End, recv, [4, 30000]) of
        {ok, <<"here">>} -> End;
        {error, _} -> accept_marked(Config, Listening)
    end.

%% The last byte, which is a part of the record's authentication, once there is one.
flipped(Record) ->
    Bytes = byte_size(Record) - 1,
    <<Before:Bytes/binary, Last>> = Record,
    <<Before/binary, (Last bxor 1)>>.

%% A close behind data: the peer reads all of it, however late, then the end in order.
data_comes_before_the_end(Config) ->
    [
        begin
            {Port, Listening} = listener(Config, tls(Config) ++ [{encrypt_shm, Encrypt}]),
            {X, Y} = join(Config, Port, Listening, tls(Config)),
            ok = do(Listening, close, []),
            Data = inet_rdma_test_data:make(200000),
            ok = do(X, send, [Data]),
            ok = do(X, close, []),
            only_guards(Config, [0, 0]),
            ?assertEqual({ok, Data}, do(Y, recv, [200000, 20000])),
            ?assertEqual({error, closed}, do(Y, recv, [0, 20000]))
        end
     || Encrypt <- [false, true]
    ].

%% Whoever ends, all parties end, on both sides.
end_of_each_part(Config) ->
    [A, B] = [node_of(Name, Config) || Name <- [a, b]],
    {Port, Listening} = listener(Config, encrypted(Config)),
    [
        begin
            {X, Y} = join(Config, Port, Listening, encrypted(Config)),
            only_guards(Config, [1, 2]),
            end_part(How, X),
            ?assertEqual({How, {error, Reason}}, {How, do(Y, recv, [0, 30000])}),
            only_guards(Config, [0, 1]),
            [
                inet_rdma_test_wait:until({ports, Count}, 10000, fun() ->
                    call(Node, inet_rdma_test_guards, tcp_ports, []) =:= Count
                end)
             || {Node, Count} <- [{A, 0}, {B, 1}]
            ]
        end
     || {How, Reason} <- [{close, closed}, {death, closed}, {guard, peer_gone}]
    ],
    %% The last term of a socket is collected.
    Owner = call(A, inet_rdma_test_guards, connect_and_forget, [Port, encrypted(Config)]),
    {ok, Accepted} = do(Listening, accept_end, []),
    only_guards(Config, [1, 2]),
    ok = call(A, inet_rdma_test_guards, forget, [Owner]),
    ?assertEqual({error, closed}, do({B, Accepted}, recv, [0, 30000])),
    only_guards(Config, [0, 1]).

end_part(close, X) -> ok = do(X, close, []);
end_part(death, X) -> ok = do(X, stop, []);
end_part(guard, {Node, _} = X) ->
    ok = call(Node, inet_rdma_test_guards, kill, []),
    ?assertEqual({error, tls_gone}, do(X, recv, [0, 30000])).

killed_peer(Config) ->
    {Port, Listening} = listener(Config, encrypted(Config)),
    Streams = [join(Config, Port, Listening, encrypted(Config)) || _ <- lists:seq(1, 3)],
    Sending = [start(X, send_made, [100_000_000]) || {X, _} <- Streams],
    inet_rdma_test_node:kill(node_of(b, Config)),
    [?assertMatch({failed, [{error, peer_gone}]}, result(Each)) || Each <- Sending],
    [?assertEqual({error, peer_gone}, do(X, recv, [0, 20000])) || {X, _} <- Streams],
    inet_rdma_test_wait:until(no_guard, 10000, fun() -> guards(a, Config) =:= [] end),
    inet_rdma_test_wait:until(no_port, 10000, fun() ->
        call(node_of(a, Config), inet_rdma_test_guards, tcp_ports, []) =:= 0
    end).

nothing_is_left_behind(Config) ->
    {Port, Listening} = listener(Config, encrypted(Config)),
    Cycle = fun(N) ->
        {X, Y} = join(Config, Port, Listening, encrypted(Config)),
        ok = do(X, send, [<<"hello">>]),
        ?assertEqual({ok, <<"hello">>}, do(Y, recv, [5, 20000])),
        {First, Last} = case N rem 2 of 0 -> {X, Y}; 1 -> {Y, X} end,
        ok = do(First, close, []),
        ?assertEqual({error, closed}, do(Last, recv, [0, 20000])),
        [ok = do(End, stop, []) || End <- [Last, First]]
    end,
    [Cycle(N) || N <- lists:seq(1, 10)],
    only_guards(Config, [0, 1]),
    Nodes = [node_of(Name, Config) || Name <- [a, b]],
    Before = [{Node, counts(Node), inet_rdma_test_os:footprint(OsPid)} || #{os_pid := OsPid} = Node <- Nodes],
    [Cycle(N) || N <- lists:seq(1, 200)],
    [
        begin
            ok = inet_rdma_test_os:await_footprint(OsPid, Footprint),
            inet_rdma_test_wait:until({counts, Counts}, 10000, fun() ->
                Now = counts(Node),
                lists:all(fun({Was, Is}) -> Is =< Was + 1 end, lists:zip(Counts, Now)) orelse Now
            end)
        end
     || {#{os_pid := OsPid} = Node, Counts, Footprint} <- Before
    ].

counts(Node) -> [call(Node, erlang, system_info, [Key]) || Key <- [process_count, port_count]].

%% Options of streams.

tls(Config) -> [{tls, tls_options(Config, good)}].

encrypted(Config) -> [{encrypt_shm, true} | tls(Config)].

%% As OTP's ssl has them, for the side that connects: both verify the peer and its revocation.
tls_options(Config, Kind) ->
    Directory = proplists:get_value(certificates, Config),
    Own = [{Key, filename:join(Directory, atom_to_list(Kind) ++ Ending)}
           || Kind =/= none, {Key, Ending} <- [{certfile, ".pem"}, {keyfile, ".key"}]],
    Own ++ [{cacertfile, filename:join(Directory, "ca.pem")}, {verify, verify_peer}, {crl_check, peer},
            {crl_cache, {ssl_crl_hash_dir, {internal, [{dir, Directory}]}}}].

%% The options of the side that connects, for a listener: those of TLS that only a server has come to them.
server([{tls, Tls} | Rest]) when is_list(Tls) -> [{tls, [{fail_if_no_peer_cert, true} | Tls]} | server(Rest)];
server([Option | Rest]) -> [Option | server(Rest)];
server([]) -> [].

listener(Config, Options) -> inet_rdma_test_pair:listener(Config, server(Options)).

listen(Config, Port, Options) -> inet_rdma_test_pair:listen(Config, Port, server(Options)).

ends(Config, Options) ->
    {Port, Listening} = listener(Config, Options),
    join(Config, Port, Listening, Options).

%% From the node that runs the tests.
ssl_connect(Config, Port) ->
    ok = ssl:start(),
    ssl:connect("localhost", Port, [binary, {active, false}, {packet, 4} | tls_options(Config, good)], 20000).

connecting(Config, Port, Options) -> spawn_monitor(fun() -> exit(connect(Config, Port, Options)) end).

ended({Pid, Ref}) ->
    receive {'DOWN', Ref, process, Pid, Reason} -> Reason end.

%% Guards of each node, with the process of a listener that waits for the next connection.
only_guards(Config, Counts) ->
    inet_rdma_test_wait:until({guards, Counts}, 10000, fun() ->
        Now = [length(guards(Name, Config)) || Name <- [a, b]],
        Now =:= Counts orelse Now
    end).

guards(Name, Config) -> call(node_of(Name, Config), inet_rdma_test_guards, all, []).

await_logged(Config, Words) ->
    B = node_of(b, Config),
    inet_rdma_test_wait:until({logged, Words}, 10000, fun() ->
        call(B, inet_rdma_test_log, contains, [Words]) orelse call(B, inet_rdma_test_log, lines, [])
    end).

node_of(Name, Config) -> proplists:get_value(Name, Config).

%% Streams that begin inside TLS, with peers that should get none: every kind of certificate, peers
%% without TLS or without a settlement, servers that lie, somebody in the middle.
-module(stream_tls_peers_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_pair, [join/4, connect/3, do/3, transfer/3, call/4]).
-import(inet_rdma_test_tls_pair, [
    tls/1,
    encrypted/1,
    tls_options/2,
    listener/2,
    listen/3,
    ssl_connect/2,
    until_closed/1,
    until_tcp_closed/1,
    connecting/3,
    ended/1,
    only_tls_owners/2,
    await_logged/2,
    node_of/2
]).

-export([all/0, suite/0]).
-export([
    wrong_certificates_are_refused_in_words/1,
    earlier_version_of_tls/1,
    a_peer_without_tls_gets_no_stream/1,
    peers_that_do_not_settle/1,
    servers_that_lie/1,
    no_way_is_left/1,
    messages_that_nobody_asked_for/1,
    somebody_in_the_middle/1
]).

%% The type of a record that means nothing with TLS 1.3 (RFC 8446, appendix D.4).
-define(CHANGE_CIPHER_SPEC, 20).

suite() ->
    [{timetrap, {minutes, 5}}, {ct_hooks, [inet_rdma_test_tls_pair]}].

all() ->
    [
        wrong_certificates_are_refused_in_words,
        earlier_version_of_tls,
        a_peer_without_tls_gets_no_stream,
        peers_that_do_not_settle,
        servers_that_lie,
        no_way_is_left,
        messages_that_nobody_asked_for,
        somebody_in_the_middle
    ].

%% Each kind of certificate on each side: the words are OTP's.
wrong_certificates_are_refused_in_words(Config) ->
    ok = call(node_of(b, Config), inet_rdma_test_log, install, []),
    Good = listener(Config, encrypted(Config)),
    [
        begin
            {Port, _} = Good,
            refused(
                Kind, connect(Config, Port, with_certificate(Config, Kind)), asked(Kind, client)
            ),
            {Theirs, _} = listener(Config, with_certificate(Config, Kind)),
            refused(Kind, connect(Config, Theirs, encrypted(Config)), asked(Kind, server))
        end
     || Kind <- inet_rdma_test_certificates:kinds() -- [good]
    ],
    %% The listener still accepts good clients. It has also accepted the client with another host's
    %% certificate.
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
    Versions = fun(Options) ->
        [{tls, [{versions, ['tlsv1.2']} | Tls]} || {tls, Tls} <- Options]
    end,
    {Port, Listening} = listener(Config, Versions(tls(Config)) ++ [{encrypt_shm, true}]),
    refused(
        none, connect(Config, Port, Versions(with_certificate(Config, none))), "handshake failure"
    ),
    refused(
        revoked,
        connect(Config, Port, Versions(with_certificate(Config, revoked))),
        "certificate revoked"
    ),
    ?assertMatch(
        {error, {tls_alert, {protocol_version, _}}},
        connect(Config, Port, [{tls, [{versions, ['tlsv1.3']} | tls_options(Config, good)]}])
    ),
    {X, Y} = join(Config, Port, Listening, Versions(tls(Config))),
    [?assertEqual(ok, transfer(From, To, 1_000_000)) || {From, To} <- [{X, Y}, {Y, X}]].

%% A peer without TLS gets no stream, in either direction, and is told so in words.
a_peer_without_tls_gets_no_stream(Config) ->
    {Port, _} = Listening = listener(Config, encrypted(Config)),
    ?assertEqual({error, econnrefused}, connect(Config, Port, [{fabric, shm}])),
    %% The client without TLS reaches the listener over TCP, whose answer is no hello.
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

%% A peer with a good certificate that says something else than a settlement.
peers_that_do_not_settle(Config) ->
    ok = call(node_of(b, Config), inet_rdma_test_log, install, []),
    {Good, Listening} = listener(Config, encrypted(Config)),
    [
        begin
            ok = call(node_of(b, Config), inet_rdma_test_log, forget, []),
            %% A listener of its own, as each logs at most 10 lines in a minute.
            {Port, _} = listener(Config, encrypted(Config)),
            {ok, Socket} = ssl_connect(Config, Port),
            ok = ssl:send(Socket, Said),
            _ = until_closed(Socket),
            await_logged(Config, "refused a peer on port"),
            await_logged(Config, Words)
        end
     || {Said, Words} <- [
            {<<"no term">>, "not one of the settlement"},
            {term_to_binary({go}), "not allowed here"},
            {term_to_binary({hello, #{}}), "not allowed here"},
            {term_to_binary({hello, facts(#{stream => 7})}), "another version"},
            {
                term_to_binary({hello, facts(#{filling => binary:copy(<<0>>, 1000)})}, [compressed]),
                "not one of the settlement"
            },
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
    ?assert(
        length([
            Line
         || Line <- call(node_of(b, Config), inet_rdma_test_log, lines, []),
            string:find(Line, "refused a peer") =/= nomatch
        ]) =< 10
    ).

%% A peer that does not say what the settlement needs, step by step: the other side has words for
%% it, and no crash.
servers_that_lie(Config) ->
    [
        begin
            {ok, Server} = ssl:listen(0, [
                binary, {active, false}, {packet, 4} | tls_options(Config, good)
            ]),
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
    only_tls_owners(Config, [0, 0]).

%% {Facts of the hello, answer to `try`, a part of the reason that the peer tells}.
lies() ->
    Addresses = [<<"127.0.0.1">>],
    [
        {#{}, fun(Key) -> {listens, 1, 1, Addresses, Key} end, "the key that this node has sent"},
        {#{}, fun(_Key) -> {listens, 1, 1, Addresses} end, "not allowed here"},
        {#{}, fun(_Key) -> {ready} end, "not allowed here"},
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
    maps:merge(
        maps:merge(maps:with([fabric, required, encrypt_shm], Own), inet_rdma_nif:identity()),
        More#{timeout_ms => 5000, cipher => aes_256_gcm}
    ).

%% The options leave no fabric to both: refused in words, on both sides, and never inside TLS
%% instead.
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
                    {error, {no_path, Why} = Reason} = connect(
                        Config, Port, encrypted(Config) ++ [{fabric, Ours}]
                    ),
                    ct:pal("~ts", [inet_rdma:format_error(Reason)]),
                    [
                        ?assertNotEqual({nomatch, Word}, {string:find(Why, Word), Word})
                     || Word <- ["shm: ", "verbs: "]
                    ],
                    await_logged(Config, "no path to the peer"),
                    ?assertEqual({error, timeout}, do(Listening, accept, [0]))
                end
             || {Ours, Theirs} <- [{verbs, auto}, {shm, verbs}, {auto, verbs}]
            ]
    end.

%% Over the TLS connection of a stream that is up: it ends with a reason, after what has arrived.
messages_that_nobody_asked_for(Config) ->
    {Port, Listening} = listener(Config, encrypted(Config)),
    [
        begin
            {Conn, Tls} = settled(Config, Port),
            {ok, Accepted} = do(Listening, accept_end, []),
            End = {node_of(b, Config), Accepted},
            ok = inet_rdma_nif:send(Conn, [[<<"before">>]], 0),
            ok = ssl:send(Tls, Said),
            ?assertEqual({ok, <<"before">>}, do(End, recv, [6, 20000])),
            ?assertEqual({error, {peer_misbehaved, tls_bytes}}, do(End, recv, [0, 20000])),
            _ = until_closed(Tls),
            ok = inet_rdma_nif:close(Conn)
        end
     || Said <- [term_to_binary({hello, #{}}), <<0>>]
    ],
    %% More than a TLS owner reads.
    {Conn, Tls} = settled(Config, Port),
    {ok, Accepted} = do(Listening, accept_end, []),
    ok = ssl:send(Tls, binary:copy(<<0>>, 100000)),
    ?assertEqual({error, tls_gone}, do({node_of(b, Config), Accepted}, recv, [0, 30000])),
    ok = inet_rdma_nif:close(Conn).

%% This process as the peer: a stream, and its TLS connection.
settled(Config, Port) ->
    {ok, Socket} = ssl_connect(Config, Port),
    {ok, Own} = inet_rdma_options:node(),
    {ok, Conn} = inet_rdma_tls_stream:settle(initiator, inet_rdma_transport:tls(Socket), Own),
    {Conn, Socket}.

%% Each record of a connection is changed, repeated, or the connection is cut instead: there is no
%% stream, or it ends. No byte that arrives is another than was sent.
somebody_in_the_middle(Config) ->
    {Port, Listening} = listener(Config, encrypted(Config)),
    Proxy = inet_rdma_test_proxy:start(Port),
    ok = inet_rdma_test_proxy:tamper(Proxy, fun(_, _, Record) -> [Record] end),
    {X, _Y} = join(Config, inet_rdma_test_proxy:port(Proxy), Listening, encrypted(Config)),
    Whole = inet_rdma_test_proxy:seen(Proxy),
    Records = lists:append([
        lists:enumerate([{Direction, Record} || {D, Record} <- Whole, D =:= Direction])
     || Direction <- [to, back]
    ]),
    ct:pal("~p", [
        [{Direction, Number, Type} || {Number, {Direction, <<Type, _/binary>>}} <- Records]
    ]),
    %% A server of TLS 1.3 drops what it cannot decrypt before the client's handshake has ended, as
    %% that may be early data (RFC 8446, section 4.2.10). After it come the two messages of the
    %% settlement.
    HandshakeRecords = length([x || {to, _} <- Whole]) - 2,
    IsDropped = fun(What, Direction, Number) ->
        {What, Direction} =:= {repeated, to} andalso Number =< HandshakeRecords
    end,
    %% None of them has what the stream carries.
    ok = do(X, send, [binary:copy(<<"clear">>, 1000)]),
    ?assertEqual(length(Whole), length(inet_rdma_test_proxy:seen(Proxy))),
    ok = do(X, close, []),
    Acts = [
        {changed, fun(Record) -> [inet_rdma_test_proxy:flipped(Record)] end},
        {repeated, fun(Record) -> [Record, Record] end},
        {cut, fun(_) -> cut end}
    ],
    Tampering = [
        {[What, Number, Direction], tampering(Config, Port, Direction, Number, Act)}
     || {Number, {Direction, <<Type, _/binary>>}} <- Records,
        Type =/= ?CHANGE_CIPHER_SPEC,
        {What, Act} <- Acts,
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
    %% Now a stream that is up.
    [
        begin
            ok = inet_rdma_test_proxy:tamper(Proxy, fun(_, _, Record) -> [Record] end),
            {V, W} = join_all(Config, Proxy, Listening),
            ok = inet_rdma_test_proxy:inject(Proxy, Direction, <<23, 3, 3, 0, 32, 0:256>>),
            Reasons = [do(End, recv, [0, 30000]) || End <- [V, W]],
            ct:pal("~p", [Reasons]),
            [
                ?assert(lists:member(Reason, [{error, tls_gone}, {error, peer_gone}]))
             || Reason <- Reasons
            ],
            ?assert(lists:member({error, tls_gone}, Reasons))
        end
     || Direction <- [to, back]
    ],
    inet_rdma_test_proxy:stop(Proxy).

%% A connection in which something happens to one record, and what becomes of it. A record that the
%% handshake does not need, or that comes late, leaves a stream, which ends.
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

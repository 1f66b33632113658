%% Links that begin inside TLS (`security tls`): beside plain inet_tls, with every kind of certificate, with somebody in
%% the middle.
-module(tls_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("../../src/inet_rdma_settling.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2]).
-export([moves_to_shared_memory/1, stays_on_tls_with_plain_inet_tls/1, socket_that_is_kept/1,
         certificates_as_inet_tls_has_them/1]).
-export([allowed_nodes_as_inet_tls_has_them/1, tcp_only_is_refused/1, no_weaker_way/1, security_holds_until_the_end/1]).
-export([security_asked_for_too_late/1, settled_keys_are_collected/1]).
-export([flags_instead_of_a_file/1, doctor_looks_at_certificates/1, later_version_of_tls/1, wrong_starts/1, over_ipv6/1,
         mesh_of_both/1, simultaneous_connects/1]).
-export([somebody_in_the_middle/1, somebody_in_the_middle_of_records/1, revoked_meanwhile/1,
         bytes_into_the_silent_connection/1, replayed_connection/1]).
-export([any_bytes_in_the_settlement/1]).
-export([encrypted_shared_memory/1, new_keys_under_load/1, new_keys_under_cuts/1, keys_that_nobody_asked_for/1]).
-export([end_of_each_part/1, nothing_is_left_behind/1, another_otp_with_inet_tls/1, another_otp_with_inet_rdma/1]).

-define(NO_OFFER, "the peer makes no offer").
-define(RDMA, "inet_rdma").
-define(PLAIN, "inet_tls").

suite() ->
    [{timetrap, {minutes, 5}}].

all() ->
    [
        moves_to_shared_memory, stays_on_tls_with_plain_inet_tls, socket_that_is_kept,
        certificates_as_inet_tls_has_them,
        allowed_nodes_as_inet_tls_has_them, tcp_only_is_refused, no_weaker_way, security_holds_until_the_end,
        security_asked_for_too_late, settled_keys_are_collected,
        flags_instead_of_a_file, doctor_looks_at_certificates, later_version_of_tls, wrong_starts, over_ipv6,
        mesh_of_both, simultaneous_connects,
        any_bytes_in_the_settlement, encrypted_shared_memory, new_keys_under_load, new_keys_under_cuts,
        keys_that_nobody_asked_for, somebody_in_the_middle,
        somebody_in_the_middle_of_records, revoked_meanwhile, bytes_into_the_silent_connection, replayed_connection,
        end_of_each_part,
        nothing_is_left_behind, another_otp_with_inet_tls, another_otp_with_inet_rdma
    ].

init_per_suite(Config) ->
    {ok, Host} = inet:gethostname(),
    inet_rdma_test_certificates:suite(Config, [Host]).

end_per_suite(_Config) ->
    ok.

init_per_testcase(Case, Config) when Case =:= another_otp_with_inet_tls; Case =:= another_otp_with_inet_rdma ->
    case os:getenv("INET_RDMA_OTHER_OTP", "") of
        "" -> {skip, "INET_RDMA_OTHER_OTP does not name a command that runs another OTP"};
        Command -> [{other_otp, string:lexemes(Command, " ")} | Config]
    end;
init_per_testcase(Case, Config) when Case =:= revoked_meanwhile; Case =:= new_keys_under_cuts ->
    case inet_rdma_test_cutter:why_not() of
        none -> Config;
        Why -> inet_rdma_test_link:skip(Why)
    end;
init_per_testcase(_Case, Config) ->
    Config.

end_per_testcase(_Case, _Config) ->
    inet_rdma_test_node:stop_all().

%% The whole of distribution over shared memory, whichever connects; the link is one of TLS to net_kernel.
moves_to_shared_memory(Config) ->
    [A, B] = start_all([{"a", node_of(Config, ?RDMA, good)}, {"b", node_of(Config, ?RDMA, good)}]),
    [
        begin
            connect(X, Y),
            [ok = inet_rdma_test_link:await(P, Q, shm) || {P, Q} <- [{A, B}, {B, A}]],
            ok = inet_rdma_test_link:exercise(X, Y),
            ?assertMatch({ok, [{address, Address}]} when element(4, Address) =:= tls, node_info(X, Y)),
            %% Options of the link, and of the socket below TLS.
            ?assertEqual({ok, [{security, tls}]}, call(X, net_kernel, getopts, [name(Y), [security]])),
            ?assertEqual(ok, call(X, net_kernel, setopts, [name(Y), [{nodelay, false}]])),
            ?assertEqual({ok, [{nodelay, false}]}, call(X, net_kernel, getopts, [name(Y), [nodelay]])),
            ok = inet_rdma_test_link:disconnect(X, Y)
        end
     || {X, Y} <- [{A, B}, {B, A}, {A, B}]
    ].

node_info(A, B) ->
    {ok, Information} = call(A, net_kernel, node_info, [name(B)]),
    {ok, [lists:keyfind(address, 1, Information)]}.

%% A plain inet_tls node sees an ordinary peer. The link is carried by OTP, its counts are those of the socket.
stays_on_tls_with_plain_inet_tls(Config) ->
    [A, Plain] = start_all([{"a", node_of(Config, ?RDMA, good)}, {"p", node_of(Config, ?PLAIN, good)}]),
    [
        begin
            connect(X, Y),
            stayed(A, Plain, ?NO_OFFER),
            ok = inet_rdma_test_link:exercise(X, Y),
            #{bytes_sent := Bytes} = call(A, inet_rdma, info, [name(Plain)]),
            ok = call(A, inet_rdma_test_data, send_and_compare, [name(Plain), [100000]]),
            #{bytes_sent := More} = call(A, inet_rdma, info, [name(Plain)]),
            ?assert(More >= Bytes + 100000),
            ok = inet_rdma_test_link:disconnect(X, Y)
        end
     || {X, Y} <- [{A, Plain}, {Plain, A}, {A, Plain}]
    ].

%% A node with which TLS has not given the socket back stays inside, for a while, and says why.
socket_that_is_kept(Config) ->
    [A, B] = start_all([{Name, node_of(Config, ?RDMA, good, [{fabric, tcp}])} || Name <- ["a", "b"]]),
    [
        begin
            ok = call(X, inet_rdma_links, failed, [{atom_to_binary(name(Y)), 0, leaving_tls}, <<"a reason">>, 60000]),
            connect(X, Y),
            stayed(X, Y, "TLS did not give its socket back lately: a reason"),
            ok = inet_rdma_test_link:exercise(X, Y),
            ok = inet_rdma_test_link:disconnect(X, Y),
            ok = call(X, inet_rdma_links, failed, [{atom_to_binary(name(Y)), 0, leaving_tls}, <<"a reason">>, -1]),
            connect(X, Y),
            ok = inet_rdma_test_link:await(X, Y, tcp),
            ok = inet_rdma_test_link:disconnect(X, Y)
        end
     || {X, Y} <- [{A, B}, {B, A}]
    ].

stayed(A, B, Why) ->
    ok = inet_rdma_test_link:await(A, B, tls),
    ?assertMatch({match, _}, re:run(inet_rdma_test_link:why(A, B), Why)).

%% With each kind of certificate on either side the link is up or not as between two nodes of inet_tls, and both nodes
%% log the same of TLS.
certificates_as_inet_tls_has_them(Config) ->
    Good = [{Carrier, start("good", alone(Config, Carrier, good))} || Carrier <- [?PLAIN, ?RDMA]],
    [with_certificate(Config, Kind, Good) || Kind <- inet_rdma_test_certificates:kinds()].

with_certificate(Config, Kind, Good) ->
    Tested = [{Carrier, start("tested", alone(Config, Carrier, Kind))} || Carrier <- [?PLAIN, ?RDMA]],
    [
        begin
            [ok = call(Node, inet_rdma_test_log, install, []) || {_, Node} <- Good ++ Tested],
            Seen = [
                {{CarrierX, CarrierY}, attempt(X, Y)}
             || {CarrierX, X} <- From, {CarrierY, Y} <- To
            ],
            {value, {_, {Connected, _} = Plain}, Others} = lists:keytake({?PLAIN, ?PLAIN}, 1, Seen),
            ct:log("~p: ~p", [Kind, Plain]),
            %% The server does not ask which host the client's certificate names, unless it has a verify function for
            %% that.
            ?assertEqual(Kind =:= good orelse (Kind =:= wrong_host andalso From =:= Tested), Connected),
            [?assertEqual({Kind, Plain}, {Kind, Same}) || {_, Same} <- Others]
        end
     || {From, To} <- [{Tested, Good}, {Good, Tested}]
    ],
    [inet_rdma_test_node:stop(Node) || {_, Node} <- Tested].

%% A link that the peer has begun would hide a refusal.
alone(Config, Carrier, Kind) ->
    inet_rdma_test_node:alone(node_of(Config, Carrier, Kind)).

%% Whether it connects, and what both nodes then have in their logs of TLS. A node that refuses has said why. A server
%% that cannot even begin, as it has no certificate, tells its log alone from OTP 27 on.
attempt(X, Y) ->
    [ok = call(Node, inet_rdma_test_log, forget, []) || Node <- [X, Y]],
    case call(X, net_kernel, connect_node, [name(Y)]) of
        true ->
            ok = inet_rdma_test_link:disconnect(X, Y),
            {true, []};
        false ->
            [gone(P, Q) || {P, Q} <- [{X, Y}, {Y, X}]],
            Said = inet_rdma_test_wait:until({both_logged, name(X), name(Y)}, 10000, fun() ->
                case [alerts(Node) || Node <- [X, Y]] of
                    [[_ | _], [_ | _]] = Both -> {ok, Both};
                    [_, ["error: Cannot accept" ++ _]] = Server -> {ok, Server};
                    Other -> Other
                end
            end),
            {false, Said}
    end.

%% Without the places in OTP's sources.
alerts(Node) ->
    lists:usort([
        re:replace(Line, "at [a-z0-9_]+\\.erl:[0-9]+ ", "", [{return, list}])
     || Line <- call(Node, inet_rdma_test_log, lines, []), Word <- ["ALERT", "Cannot accept TLS"],
        string:find(Line, Word) =/= nomatch
    ]).

%% net_kernel:allow/1: the name must be allowed, and its host be one that the certificate names.
allowed_nodes_as_inet_tls_has_them(Config) ->
    Nodes = [{Carrier, start("a", node_of(Config, Carrier, good)), start("b", node_of(Config, Carrier, good))}
             || Carrier <- [?PLAIN, ?RDMA]],
    Cases = [
        {fun(_) -> ['nobody@elsewhere.invalid'] end, false}, {fun(A) -> [name(A)] end, true}
    ],
    [
        [
            begin
                ok = call(B, inet_rdma_test_log, install, []),
                ok = call(B, net_kernel, allow, [Allowed(A)]),
                ?assertEqual({Carrier, Expected}, {Carrier, call(A, net_kernel, connect_node, [name(B)])}),
                _ = [inet_rdma_test_wait:until({logged, Carrier}, 10000, fun() ->
                         call(B, inet_rdma_test_log, contains, ["** Connection attempt from disallowed node(s)"])
                     end) || not Expected],
                _ = [ok = inet_rdma_test_link:disconnect(A, B) || Expected]
            end
         || {Allowed, Expected} <- Cases
        ]
     || {Carrier, A, B} <- Nodes
    ].

%% Neither connects to the other, nobody stays pending, and nothing harms the nodes.
tcp_only_is_refused(Config) ->
    [A, C] = start_all([{"a", node_of(Config, ?RDMA, good)}, {"c", node_of(Config, ?RDMA, good)}]),
    Others = start_all([{"t", #{carrier => "inet_tcp"}}, {"r", #{}}]),
    [
        begin
            [?assertEqual(false, call(X, net_kernel, connect_node, [name(Y)])) || {X, Y} <- [{A, Other}, {Other, A}]],
            [gone(X, Y) || {X, Y} <- [{A, Other}, {Other, A}]]
        end
     || Other <- Others
    ],
    connect(A, C),
    ok = inet_rdma_test_link:exercise(A, C).

%% A way that has no encryption is none: the link stays on TLS, or is refused where it must leave it.
no_weaker_way(Config) ->
    Fabric = fun(Name, Options) -> start(Name, node_of(Config, ?RDMA, good, Options)) end,
    [Tcp, Auto, Required] = [Fabric("t", [{fabric, tcp}]), Fabric("a", []), Fabric("r", [{required, true}])],
    ok = call(Required, inet_rdma_test_log, install, []),
    [
        begin
            connect(X, Y),
            [ok = inet_rdma_test_link:await(P, Q, tcp, "option fabric of .* is tcp") || {P, Q} <- [{X, Y}, {Y, X}]],
            ok = inet_rdma_test_link:exercise(X, Y),
            [sealed(P, Q) || {P, Q} <- [{X, Y}, {Y, X}]],
            ok = inet_rdma_test_link:disconnect(X, Y)
        end
     || {X, Y} <- [{Tcp, Auto}, {Auto, Tcp}]
    ],
    [
        begin
            ?assertEqual(false, call(X, net_kernel, connect_node, [name(Y)])),
            [gone(P, Q) || {P, Q} <- [{X, Y}, {Y, X}]]
        end
     || {X, Y} <- [{Required, Tcp}, {Tcp, Required}]
    ],
    true = call(Required, inet_rdma_test_log, contains, ["the option required forbids TLS"]),
    connect(Required, Auto),
    ok = inet_rdma_test_link:await(Required, Auto, shm).

%% The records are this carrier's; of ssl no process is left.
sealed(A, B) ->
    #{cipher := Cipher, key_records := Records} = call(A, inet_rdma, info, [name(B)]),
    ?assert(lists:member(Cipher, [aes_256_gcm, chacha20_poly1305])),
    ?assert(Records > 0),
    inet_rdma_test_wait:until({no_process_of_tls, name(A)}, 10000, fun() ->
        case call(A, inet_rdma_test_remote, processes_of_tls, []) of
            [] -> true;
            Left -> Left
        end
    end).

%% The application environment does not take TLS from links that are made later.
security_holds_until_the_end(Config) ->
    [A, B] = start_all([{"a", node_of(Config, ?RDMA, good)}, {"b", node_of(Config, ?PLAIN, good)}]),
    ok = call(A, application, set_env, [inet_rdma, security, none]),
    connect(A, B),
    stayed(A, B, ?NO_OFFER),
    ok = inet_rdma_test_link:disconnect(A, B),
    connect(B, A),
    stayed(A, B, ?NO_OFFER).

%% A node that was started without TLS makes no link in clear once its configuration asks for TLS.
security_asked_for_too_late(_Config) ->
    [A, B] = start_all([{"a", #{}}, {"b", #{}}]),
    [
        begin
            ok = call(A, inet_rdma_test_log, install, []),
            ok = call(A, application, set_env, [inet_rdma, security, tls]),
            ?assertEqual(false, call(X, net_kernel, connect_node, [name(Y)])),
            [gone(P, Q) || {P, Q} <- [{X, Y}, {Y, X}]],
            ?assert(call(A, inet_rdma_test_log, contains, ["distribution of this node was started with none"])),
            ok = call(A, application, unset_env, [inet_rdma, security]),
            connect(X, Y),
            ok = inet_rdma_test_link:disconnect(A, B)
        end
     || {X, Y} <- [{A, B}, {B, A}]
    ].

%% -ssl_dist_opt, as inet_tls has it.
flags_instead_of_a_file(Config) ->
    Directory = proplists:get_value(certificates, Config),
    File = fun(Name) -> filename:join(Directory, Name) end,
    Flags = lists:append([
        ["-ssl_dist_opt", Side ++ Key, Value]
     || Side <- ["server_", "client_"],
        {Key, Value} <- [{"certfile", File("good.pem")}, {"keyfile", File("good.key")}, {"cacertfile", File("ca.pem")},
                         {"verify", "verify_peer"}, {"depth", "2"}]
    ]) ++ ["-ssl_dist_opt", "server_fail_if_no_peer_cert", "true"],
    Options = fun(Carrier) ->
        #{carrier => Carrier, rdma => security(Carrier), args => ssl_path() ++ Flags}
    end,
    [A, B, C, Bad] = start_all([{"a", Options(?RDMA)}, {"b", Options(?RDMA)}, {"c", Options(?PLAIN)},
                                {"d", node_of(Config, ?RDMA, unknown_ca)}]),
    connect(A, B),
    ok = inet_rdma_test_link:await(A, B, shm),
    connect(A, C),
    stayed(A, C, ?NO_OFFER),
    [?assertEqual(false, call(X, net_kernel, connect_node, [name(Y)])) || {X, Y} <- [{A, Bad}, {Bad, A}]].

%% The doctor says of each certificate what a peer would have against it.
doctor_looks_at_certificates(Config) ->
    [
        begin
            {Status, Output} = inet_rdma_test_node:run("d",
                                                       #{name => none, rdma => [{security, tls}],
                                                         args => ssl_arguments(Config, Kind, [])},
                                                       "inet_rdma_doctor:main()"),
            ?assertEqual(0, Status),
            ?assertMatch({Kind, {match, _}}, {Kind, re:run(re:replace(Output, "\\s+", " ", [global]), Words)}),
            ?assertEqual(Kind =:= good,
                         re:run(Output, "problem +tls") =:= nomatch)
        end
     || {Kind, Words} <- [
            {good, "links begin inside TLS, with \\S*good.pem, valid until [0-9-]{10}"},
            {expired, "expired.pem has expired, on [0-9-]{10}"},
            {wrong_host, "wrong_host.pem does not name this host"},
            {none, "TLS server have no certfile: no peer can connect"}
        ]
    ].

later_version_of_tls(Config) ->
    Options = fun(Carrier) ->
        #{carrier => Carrier, rdma => security(Carrier), args => ssl_arguments(Config, good, [{versions, ['tlsv1.3']}])}
    end,
    [A, B, C] = start_all([{"a", Options(?RDMA)}, {"b", Options(?RDMA)}, {"c", Options(?PLAIN)}]),
    connect(A, B),
    ok = inet_rdma_test_link:await(A, B, shm),
    ok = inet_rdma_test_link:exercise(A, B),
    connect(C, A),
    stayed(A, C, ?NO_OFFER),
    ok = inet_rdma_test_link:exercise(A, C).

%% A node that cannot keep its links as it should does not start, and says why.
wrong_starts(Config) ->
    Ktls = ssl_arguments(Config, good, [{ktls, true}]),
    [
        begin
            {Status, Output} = inet_rdma_test_node:run("w", #{rdma => [{security, Value}], args => Args}, "ok"),
            ct:log("~ts", [Output]),
            ?assertNotEqual(0, Status),
            ?assertMatch({match, _}, re:run(Output, Words))
        end
     || {Value, Args, Words} <- [
            {tls, Ktls, "option ktls of the TLS client"},
            {tls, ssl_path() ++ ["-ssl_dist_opt", "client_nonsense", "1"], "nonsense"},
            {ssl, [], "bad_option,security,ssl"}
        ]
    ].

over_ipv6(Config) ->
    case gen_tcp:listen(0, [inet6, {ip, {0, 0, 0, 0, 0, 0, 0, 1}}]) of
        {ok, Socket} ->
            ok = gen_tcp:close(Socket),
            %% The certificates name no address.
            Args = ssl_arguments(Config, good, [{verify, verify_none}]),
            Options = fun(Prefix, Carrier) ->
                #{carrier => Carrier, name => unique(Prefix) ++ "@::1", long => true,
                  rdma => security(Carrier), args => Args}
            end,
            [A, B, C] = start_all([{Prefix, Options(Prefix, Carrier)}
                                   || {Prefix, Carrier} <- [{"a", "inet6_rdma"}, {"b", "inet6_rdma"},
                                                            {"c", "inet6_tls"}]]),
            [
                begin
                    connect(X, Y),
                    ok = inet_rdma_test_link:await(A, Y, Fabric),
                    ok = inet_rdma_test_link:exercise(X, Y)
                end
             || {X, Y, Fabric} <- [{A, B, shm}, {A, C, tls}]
            ];
        {error, Reason} ->
            inet_rdma_test_link:skip(lists:flatten(io_lib:format("no IPv6 loopback: ~p", [Reason])))
    end.

%% A cluster on its way from inet_tls to inet_rdma.
mesh_of_both(Config) ->
    [A, B, C, D] = Nodes = start_all([
        {[Letter], node_of(Config, Carrier, good)}
        || {Letter, Carrier} <- [{$a, ?RDMA}, {$b, ?RDMA}, {$c, ?PLAIN}, {$d, ?PLAIN}]
    ]),
    ok = inet_rdma_test_node:mesh(Nodes),
    [ok = inet_rdma_test_link:await(X, Y, Fabric)
     || {X, Y, Fabric} <- [{A, B, shm}, {B, A, shm}, {A, C, tls}, {B, D, tls}]],
    [ok = inet_rdma_test_link:exercise(X, Y) || {X, Y} <- [{A, B}, {A, C}, {B, D}, {C, D}]].

simultaneous_connects(Config) ->
    [
        begin
            [A, B] = start_all([{"a", node_of(Config, ?RDMA, good)}, {"b", node_of(Config, Carrier, good)}]),
            connect(A, B),
            [ok = inet_rdma_test_link:collide(A, B) || _ <- lists:seq(1, 50)],
            ok = inet_rdma_test_link:await(A, B, Fabric)
        end
     || {Carrier, Fabric} <- [{?RDMA, shm}, {?PLAIN, tls}]
    ].

%% Messages with bits flipped, bytes cut off or added, and parts replaced by other terms, over TCP and inside TLS: each
%% is taken, or refused in words, and none makes an atom. A message with a key is none over TCP, one without it none
%% inside TLS.
any_bytes_in_the_settlement(_Config) ->
    Seed = rand:seed_s(exsss),
    ct:log("~p", [rand:export_seed_s(Seed)]),
    _ = rand:seed(Seed),
    Connections = [inet_rdma_bootstrap:tcp(inet_tcp, none), inet_rdma_bootstrap:tls(none, self())],
    Settlings = [#settling{role = acceptor, connection = Connection, node = <<>>, config = #{}, own = #{}, deadline = 0}
                 || Connection <- Connections],
    Messages = messages(),
    Names = lists:usort([element(1, Message) || {_, Message} <- Messages]),
    Judge = fun(Settling, Bytes) ->
        try inet_rdma_settlement_message:parse(Settling, Bytes, Names) of
            Taken -> ?assert(is_tuple(Taken)), taken
        catch
            throw:{broken, Why} -> ?assert(is_binary(Why)), refused
        end
    end,
    [Tcp, Tls] = Settlings,
    [
        ?assertEqual({Message, [lists:member(Protocol, Where) || Protocol <- [tcp, tls]]},
                     {Message, [Judge(Settling, term_to_binary(Message)) =:= taken || Settling <- [Tcp, Tls]]})
     || {Where, Message} <- Messages
    ],
    Atoms = erlang:system_info(atom_count),
    Judged = [Judge(Settling, changed(Message, rand:uniform(5)))
              || _ <- lists:seq(1, 400), {_, Message} <- Messages, Settling <- Settlings],
    ?assertEqual(Atoms, erlang:system_info(atom_count)),
    ct:pal("~b taken, ~b refused", [length([x || taken <- Judged]), length([x || refused <- Judged])]).

%% Each message as it comes over these.
messages() ->
    Key = binary:copy(<<5>>, 32),
    Facts = #{fabric => auto, required => false, timeout_ms => 5000, boot => <<"b">>, netns => 1, user => 0,
              instance => 1},
    Tls = Facts#{cipher => aes_256_gcm, encrypt_shm => false},
    Listens = {listens, 50000, 1 bsl 60, [<<"10.0.0.1">>, <<"::1">>]},
    [
        {[tcp], {hello, Facts}}, {[tcp], {hello, Facts#{shm => {50000, 7}}}},
        {[tcp, tls], {hello, Tls}}, {[tcp, tls], {hello, Tls#{shm => {50000, 7}, shm_key => Key}}},
        {[tcp], {hello, Tls#{shm => {50000, 7}}}},
        {[tcp], {'try', verbs}}, {[tls], {'try', verbs, Key}}, {[], {'try', verbs, <<1>>}},
        {[tcp], Listens}, {[tls], erlang:append_element(Listens, Key)}, {[], erlang:append_element(Listens, none)},
        {[tcp, tls], {ready}}, {[tcp, tls], {go}}, {[tls], {go, Key}}, {[], {go, none}},
        {[tcp, tls], {failed, shm, <<"no">>}}, {[tcp, tls], {stay, <<"no">>}}, {[tcp, tls], {stayed}}
    ].

changed(Message, 1) ->
    Bytes = term_to_binary(Message),
    At = rand:uniform(bit_size(Bytes)) - 1,
    <<Before:At/bits, Bit:1, After/bits>> = Bytes,
    <<Before/bits, (1 - Bit):1, After/bits>>;
changed(Message, 2) ->
    Bytes = term_to_binary(Message),
    binary:part(Bytes, 0, rand:uniform(byte_size(Bytes)) - 1);
changed(Message, 3) ->
    <<(term_to_binary(Message))/binary, (rand:bytes(rand:uniform(8)))/binary>>;
changed(Message, 4) ->
    term_to_binary(setelement(rand:uniform(tuple_size(Message)), Message, any_term()));
changed(Message, 5) ->
    case Message of
        {hello, Facts} ->
            Key = lists:nth(rand:uniform(map_size(Facts)), maps:keys(Facts)),
            term_to_binary({hello, Facts#{Key := any_term()}});
        _ ->
            term_to_binary(erlang:append_element(Message, any_term()))
    end.

any_term() ->
    Terms = [0, -1, 1 bsl 70, 1.5, [], [a | b], lists:seq(1, 300), #{}, {}, <<>>, <<1:3>>, rand:bytes(32),
             rand:bytes(5000),
             shm, none, true, self(), fun() -> ok end, {65536, 1}, {1, 1 bsl 64}, [<<"not an address">>], make_ref()],
    lists:nth(rand:uniform(length(Terms)), Terms).

%% A supervisor that has made a key collects its heap once the link is settled, whichever side connects.
settled_keys_are_collected(Config) ->
    [A, B] = start_all([{X, node_of(Config, ?RDMA, good, [{encrypt_shm, true}])} || X <- ["a", "b"]]),
    Tracers = [{Node, call(Node, inet_rdma_test_keys, trace, [])} || Node <- [A, B]],
    [
        begin
            connect(X, Y),
            [ok = inet_rdma_test_link:await(P, Q, shm) || {P, Q} <- [{X, Y}, {Y, X}]],
            [
                inet_rdma_test_wait:until({collected, name(Node)}, 10000, fun() ->
                    case call(Node, inet_rdma_test_keys, holders, [Tracer]) of
                        [_ | _] = Holders -> lists:all(fun({_, Last}) -> Last =:= collected end, Holders)
                            orelse Holders;
                        [] -> none
                    end
                end)
             || {Node, Tracer} <- Tracers
            ],
            ok = inet_rdma_test_link:disconnect(X, Y)
        end
     || {X, Y} <- [{A, B}, {B, A}]
    ].

%% One node that wants it is enough. Two that do not have it plain.
encrypted_shared_memory(Config) ->
    Start = fun(Name, EncryptShm) -> start(Name, node_of(Config, ?RDMA, good, [{encrypt_shm, EncryptShm}])) end,
    [Wants, Also, Not, Neither] = [Start("w", true), Start("a", true), Start("n", false), Start("m", false)],
    [
        begin
            connect(X, Y),
            [ok = inet_rdma_test_link:await(P, Q, shm) || {P, Q} <- [{X, Y}, {Y, X}]],
            ok = inet_rdma_test_link:exercise(X, Y),
            Ciphers = [cipher(X, Y), cipher(Y, X)],
            ct:log("~p", [Ciphers]),
            ?assertEqual([Encrypted, Encrypted], [Cipher =/= none || Cipher <- Ciphers]),
            ?assertMatch([Cipher, Cipher], Ciphers),
            ok = inet_rdma_test_link:disconnect(X, Y)
        end
     || {X, Y, Encrypted} <- [{Wants, Not, true}, {Not, Wants, true}, {Wants, Also, true}, {Not, Neither, false}]
    ],
    inet_rdma_test_node:kill(Also),
    connect(Wants, Not),
    inet_rdma_test_node:kill(Wants),
    gone(Not, Wants).

cipher(A, B) -> maps:get(cipher, call(A, inet_rdma, info, [name(B)])).

%% Key after key, both ways, while messages of all sizes go both ways: nothing is lost, and each side follows the other.
new_keys_under_load(Config) ->
    Options = [{encrypt_shm, true}, {rekey_bytes, 65536}],
    [A, B] = start_all([{Name, node_of(Config, ?RDMA, good, Options)} || Name <- ["a", "b"]]),
    connect(A, B),
    {Pinger, Ref} = spawn_monitor(fun() -> exit(call(A, inet_rdma_test_remote, longest_call, [name(B), 3000])) end),
    Sizes = [0, 1, 100, 1000, 65536, 300000, 1 bsl 20, 1 bsl 22, 1 bsl 24],
    [ok = inet_rdma_test_link:exercise(X, Y) || {X, Y} <- [{A, B}, {B, A}]],
    [ok, ok] = [call(X, inet_rdma_test_data, echo_and_compare, [name(Y), Sizes]) || {X, Y} <- [{A, B}, {B, A}]],
    {Calls, LongestUs} = receive {'DOWN', Ref, process, Pinger, Seen} -> Seen end,
    Generations = fun(X, Y) ->
        #{key_generation := Own, peer_key_generation := Peers} = call(X, inet_rdma, info, [name(Y)]),
        {Own, Peers}
    end,
    ct:pal("generations ~p; ~b calls meanwhile, the longest of ~b us", [Generations(A, B), Calls, LongestUs]),
    inet_rdma_test_wait:until(both_agree, 10000, fun() ->
        %% A side sees the key of the other by the packets that come under it.
        [_ = call(X, erpc, call, [name(Y), erlang, node, []]) || {X, Y} <- [{A, B}, {B, A}]],
        {{OwnA, PeersA}, {OwnB, PeersB}} = Both = {Generations(A, B), Generations(B, A)},
        case OwnA >= 10 andalso OwnB >= 10 andalso {OwnA, OwnB} =:= {PeersB, PeersA} of
            true -> true;
            false -> Both
        end
    end),
    %% The same link all the time.
    ?assertMatch(#{id := 1}, call(A, inet_rdma, info, [name(B)])).

%% By bytes and by age, of TCP connections that are cut and of a queue pair whose messages about keys are lost with
%% them.
new_keys_under_cuts(Config) ->
    [
        begin
            Given = Options ++ [{rekey_bytes, 65536}, {rekey_seconds, 1}],
            [#{os_pid := PidA} = A, #{os_pid := PidB} = B] =
                start_all([{Name, node_of(Config, ?RDMA, good, Given)} || Name <- ["a", "b"]]),
            connect(A, B),
            ok = inet_rdma_test_link:await(A, B, Fabric),
            Traffic = inet_rdma_test_traffic:start(A, B),
            Cutter = inet_rdma_test_cutter:start([{PidA, PidB}], 200, 600),
            receive after 6000 -> ok end,
            Cuts = inet_rdma_test_cutter:stop(Cutter),
            ok = inet_rdma_test_cutter:await(PidA, PidB),
            %% The keys of a new connection begin anew.
            receive after 2000 -> ok end,
            Figures = inet_rdma_test_traffic:stop(Traffic),
            #{key_generation := Own, peer_key_generation := Peers} = call(A, inet_rdma, info, [name(B)]),
            ct:pal("~p: ~b cuts, generations ~p~n~ts",
                   [Fabric, Cuts, {Own, Peers}, inet_rdma_test_traffic:figures_text(Figures)]),
            ?assert(Cuts > 0 andalso Own > 0 andalso Peers > 0),
            ?assertEqual(#{}, inet_rdma_test_traffic:disturbances(Figures)),
            inet_rdma_test_node:stop_all()
        end
     || {Fabric, Options} <- [{tcp, [{fabric, tcp}]}, {shm, [{fabric, shm}, {encrypt_shm, true}]}]
    ].

%% What a peer that has gone mad may say over TLS: the link ends, with a reason, and the next one is up.
keys_that_nobody_asked_for(Config) ->
    Options = [{encrypt_shm, true}],
    [A, B] = start_all([{Name, node_of(Config, ?RDMA, good, Options)} || Name <- ["a", "b"]]),
    ok = call(B, inet_rdma_test_log, install, []),
    Key = binary:copy(<<7>>, 32),
    [
        begin
            connect(A, B),
            ok = call(B, inet_rdma_test_log, forget, []),
            [{_, _, Connection, <<"shm">>, _, _}] =
                call(A, ets, lookup, [inet_rdma_links, {link, atom_to_binary(name(B))}]),
            Supervisors = [supervisor(X, Y) || {X, Y} <- [{A, B}, {B, A}]],
            ok = call(A, inet_rdma_bootstrap, send, [Connection, Said]),
            [ended(Supervisor) || Supervisor <- Supervisors],
            inet_rdma_test_wait:until({logged, Words}, 10000,
                                      fun() -> call(B, inet_rdma_test_log, contains, [Words]) end)
        end
     || {Said, Words} <- [
            {term_to_binary({key, 7, Key}), "a key of generation 7 where 1 is next"},
            {term_to_binary({key, 0, Key}), "no message about keys that can come"},
            {term_to_binary({key, 1, <<"short">>}), "no message about keys that can come"},
            {term_to_binary({key_installed, 1}), "no message about keys that can come"},
            {term_to_binary(binary:copy(<<0>>, 100000), [compressed]), "no message about keys that can come"},
            {<<"garbage">>, "no message about keys that can come"}
        ]
    ],
    connect(A, B),
    ok = inet_rdma_test_link:exercise(A, B).

%% Each record of TLS, in each direction, changed, repeated or cut off: no link comes up, and the next one does.
somebody_in_the_middle(Config) ->
    {A, B, Proxy} = with_proxy(Config),
    Whole = whole_connection(A, B, Proxy),
    Counts = [{Direction, length([x || {D, Record} <- Whole, D =:= Direction, inet_rdma_test_proxy:is_of_tls(Record)])}
              || Direction <- [to, back]],
    ct:pal("records of a connection: ~p", [Counts]),
    Acts = [
        {changed, fun(Record) -> [flipped(Record)] end},
        {repeated, fun(Record) -> [Record, Record] end},
        {cut, fun(_) -> cut end}
    ],
    [
        begin
            ok = inet_rdma_test_proxy:tamper(Proxy, fun
                (D, N, Record) when D =:= Direction, N =:= Number -> Act(Record);
                (_, _, Record) -> [Record]
            end),
            _ = call(A, net_kernel, connect_node, [name(B)]),
            ct:log("~p ~p of ~p", [What, Number, Direction]),
            %% TLS of the receiver may throw away what comes behind the peer's last record: then the link is up.
            _ = [call(A, erlang, disconnect_node, [name(B)]) || What =:= repeated, Number =:= Count],
            [gone(X, Y) || {X, Y} <- [{A, B}, {B, A}]]
        end
     || {Direction, Count} <- Counts, Number <- lists:seq(1, Count), {What, Act} <- Acts
    ],
    _ = whole_connection(A, B, Proxy),
    ok.

%% The last byte, which is a part of the record's authentication, once there is one.
flipped(Record) ->
    Bytes = byte_size(Record) - 1,
    <<Before:Bytes/binary, Last>> = Record,
    <<Before/binary, (Last bxor 1)>>.

%% A link through the proxy from its beginning to its end by a disconnect; the records until it was up.
whole_connection(A, B, Proxy) ->
    ok = inet_rdma_test_proxy:tamper(Proxy, fun(_, _, Record) -> [Record] end),
    connect(A, B),
    [ok = inet_rdma_test_link:await(X, Y, shm) || {X, Y} <- [{A, B}, {B, A}]],
    Records = inet_rdma_test_proxy:seen(Proxy),
    ok = inet_rdma_test_link:exercise(A, B),
    %% Nothing of it has gone over TLS.
    ?assertEqual(of_tls(Records), of_tls(inet_rdma_test_proxy:seen(Proxy))),
    ok = inet_rdma_test_link:disconnect(A, B),
    Records.

of_tls(Records) -> [Record || {_, Record} <- Records, inet_rdma_test_proxy:is_of_tls(Record)].

%% What this carrier has sealed, changed or repeated: the link ends at the receiver's word, and nothing of it is
%% delivered. Cut off: the link outlives that.
somebody_in_the_middle_of_records(Config) ->
    {A, B, Proxy} = with_proxy(Config, [{fabric, tcp}]),
    Forward = fun(_, _, Record) -> [Record] end,
    [
        begin
            ok = inet_rdma_test_proxy:tamper(Proxy, Forward),
            %% The first attempt may have begun while the proxy did something else.
            inet_rdma_test_wait:until(connected, 20000, fun() -> call(A, net_adm, ping, [name(B)]) =:= pong end),
            connect(A, B),
            Supervisors = [supervisor(X, Y) || {X, Y} <- [{A, B}, {B, A}]],
            {Receiver, Sender} = case Direction of to -> {B, A}; back -> {A, B} end,
            ok = call(Receiver, inet_rdma_test_log, install, []),
            ok = inet_rdma_test_proxy:tamper(Proxy, fun
                (D, _, Record) when D =:= Direction -> Act(Record);
                (_, _, Record) -> [Record]
            end),
            _ = call(Sender, erlang, send, [{nobody, name(Receiver)}, binary:copy(<<0>>, 1000)]),
            [ended(Supervisor) || Supervisor <- Supervisors],
            inet_rdma_test_wait:until({logged, Direction}, 10000, fun() ->
                call(Receiver, inet_rdma_test_log, contains, ["is not the peer's: it was changed, or is out of order"])
            end),
            ok = inet_rdma_test_proxy:tamper(Proxy, Forward),
            ok = call(Receiver, inet_rdma_test_log, forget, [])
        end
     || Direction <- [to, back], Act <- [fun(Record) -> [flipped(Record)] end, fun(Record) -> [Record, Record] end]
    ],
    inet_rdma_test_wait:until(connected, 20000, fun() -> call(A, net_adm, ping, [name(B)]) =:= pong end),
    connect(A, B),
    ok = inet_rdma_test_link:exercise(A, B),
    Supervisors = [supervisor(X, Y) || {X, Y} <- [{A, B}, {B, A}]],
    [
        begin
            ok = inet_rdma_test_proxy:tamper(Proxy, fun
                (D, _, _) when D =:= Direction -> cut;
                (_, _, Record) -> [Record]
            end),
            _ = call(A, erlang, send, [{nobody, name(B)}, hello]),
            _ = call(B, erlang, send, [{nobody, name(A)}, hello]),
            inet_rdma_test_wait:until({lost, Direction}, 10000, fun() ->
                #{losses := Losses} = call(A, inet_rdma, info, [name(B)]),
                Losses > Before
            end),
            ok = inet_rdma_test_proxy:tamper(Proxy, Forward),
            ok = inet_rdma_test_link:exercise(A, B)
        end
     || Direction <- [to, back], #{losses := Before} <- [call(A, inet_rdma, info, [name(B)])]
    ],
    ?assertEqual(Supervisors, [supervisor(X, Y) || {X, Y} <- [{A, B}, {B, A}]]).

%% Each new connection of a session is a whole handshake of TLS: with a certificate that was revoked meanwhile there is
%% none.
revoked_meanwhile(Config) ->
    From = proplists:get_value(certificates, Config),
    Directory = filename:join(proplists:get_value(priv_dir, Config), "revoked_meanwhile"),
    ok = file:make_dir(Directory),
    {ok, Files} = file:list_dir(From),
    [{ok, _} = file:copy(filename:join(From, File), filename:join(Directory, File)) || File <- Files],
    Own = lists:keystore(certificates, 1, Config, {certificates, Directory}),
    [#{os_pid := PidA} = A, #{os_pid := PidB} = B] =
        start_all([{Name, node_of(Own, ?RDMA, good, [{fabric, tcp}])} || Name <- ["a", "b"]]),
    connect(A, B),
    ?assert(inet_rdma_test_cutter:cut(PidA, PidB) > 0),
    inet_rdma_test_wait:until(resumed, 20000, fun() ->
        #{resumes := Resumes} = call(A, inet_rdma, info, [name(B)]),
        Resumes > 0
    end),
    ok = inet_rdma_test_link:exercise(A, B),
    ok = inet_rdma_test_certificates:revoke(Directory, "good"),
    [ok = call(X, inet_rdma_test_log, install, []) || X <- [A, B]],
    Supervisors = [supervisor(X, Y) || {X, Y} <- [{A, B}, {B, A}]],
    ?assert(inet_rdma_test_cutter:cut(PidA, PidB) > 0),
    [ended(Supervisor) || Supervisor <- Supervisors],
    inet_rdma_test_wait:until(said, 10000, fun() ->
        lists:any(fun(X) -> call(X, inet_rdma_test_log, contains, ["TLS refuses another: certificate_revoked"]) end,
                  [A, B])
    end),
    [?assertEqual(false, call(X, net_kernel, connect_node, [name(Y)])) || {X, Y} <- [{A, B}, {B, A}]].

%% B is found at the proxy's port, by A alone.
with_proxy(Config) -> with_proxy(Config, []).

with_proxy(Config, More) ->
    Names = fun(Name) ->
        Directory = filename:join(proplists:get_value(priv_dir, Config), unique(Name)),
        ok = filelib:ensure_dir(filename:join(Directory, "x")),
        Directory
    end,
    [OfA, OfB] = [Names("names_a"), Names("names_b")],
    Options = fun(Directory) ->
        Own = node_of(Config, ?RDMA, good, More ++ [{fallback_retry_ms, 0}, {connect_timeout_ms, 2000}]),
        Own#{args := maps:get(args, Own) ++ ["-kernel", "net_setuptime", "3", "-start_epmd", "false",
                                             "-epmd_module", "inet_rdma_test_epmd", "-inet_rdma_test_epmd", Directory]}
    end,
    [A, B] = start_all([{"a", Options(OfA)}, {"b", Options(OfB)}]),
    [Short, _] = string:lexemes(atom_to_list(name(B)), "@"),
    {ok, Port} = file:read_file(filename:join(OfB, Short)),
    Proxy = inet_rdma_test_proxy:start(binary_to_integer(Port)),
    ok = file:write_file(filename:join(OfA, Short), integer_to_list(inet_rdma_test_proxy:port(Proxy))),
    {A, B, Proxy}.

%% A link that has moved ends when somebody writes into its connection, whichever way.
bytes_into_the_silent_connection(Config) ->
    {A, B, Proxy} = with_proxy(Config),
    [
        begin
            ok = inet_rdma_test_proxy:tamper(Proxy, fun(_, _, Record) -> [Record] end),
            connect(A, B),
            [ok = inet_rdma_test_link:await(X, Y, shm) || {X, Y} <- [{A, B}, {B, A}]],
            %% What the peer itself has said last inside TLS, or nothing of it.
            Said = [Seen || {D, _} = Seen <- inet_rdma_test_proxy:seen(Proxy), D =:= Direction],
            Bytes = case What of
                        garbage -> <<"garbage, garbage">>;
                        repeated -> lists:last(of_tls(Said))
                    end,
            Supervisors = [supervisor(X, Y) || {X, Y} <- [{A, B}, {B, A}]],
            ok = inet_rdma_test_proxy:inject(Proxy, Direction, Bytes),
            [ended(Supervisor) || Supervisor <- Supervisors]
        end
     || Direction <- [to, back], What <- [garbage, repeated]
    ],
    _ = whole_connection(A, B, Proxy),
    ok.

%% All that the connecting node has said, to the other one again: the settlement in it is for nobody.
replayed_connection(Config) ->
    {A, B, Proxy} = with_proxy(Config),
    Said = [Record || {to, Record} <- whole_connection(A, B, Proxy)],
    ok = call(B, inet_rdma_test_log, install, []),
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, inet_rdma_test_proxy:port(Proxy), [binary, {active, false}]),
    ok = gen_tcp:send(Socket, Said),
    ok = read_to_the_end(Socket),
    %% ssl of OTP 27 ends its process with a crash report instead.
    inet_rdma_test_wait:until(refused_in_the_log, 10000, fun() ->
        alerts(B) =/= [] orelse call(B, inet_rdma_test_log, contains, ["terminating"])
    end),
    gone(B, A),
    _ = whole_connection(A, B, Proxy),
    ok.

read_to_the_end(Socket) ->
    case gen_tcp:recv(Socket, 0, inet_rdma_test_wait:patience(20000)) of
        {ok, _} -> read_to_the_end(Socket);
        {error, Reason} when Reason =/= timeout -> ok
    end.

%% The guard, the supervisor, the whole node: the other node sees the end, and the next link is up.
end_of_each_part(Config) ->
    [A, B] = start_all([{"a", node_of(Config, ?RDMA, good)}, {"b", node_of(Config, ?RDMA, good)}]),
    [
        begin
            connect(A, B),
            [ok = inet_rdma_test_link:await(X, Y, shm) || {X, Y} <- [{A, B}, {B, A}]],
            Supervisors = [supervisor(X, Y) || {X, Y} <- [{A, B}, {B, A}]],
            ok = call(A, inet_rdma_test_remote, end_part, [Part]),
            [ended(Supervisor) || Supervisor <- Supervisors]
        end
     || Part <- [guard, supervisor]
    ],
    connect(A, B),
    inet_rdma_test_node:kill(B),
    gone(A, B).

%% Processes of TLS among them.
nothing_is_left_behind(Config) ->
    [A, B] = start_all([{"a", node_of(Config, ?RDMA, good)}, {"b", node_of(Config, ?RDMA, good)}]),
    #{os_pid := OsPid} = A,
    Cycle = fun(X, Y) -> connect(X, Y), ok = inet_rdma_test_link:disconnect(X, Y) end,
    %% In both directions: a node has the listener of its links from the first one on that it accepts.
    [begin Cycle(A, B), Cycle(B, A) end || _ <- lists:seq(1, 5)],
    Processes = call(A, erlang, system_info, [process_count]),
    Before = inet_rdma_test_os:footprint(OsPid),
    [Cycle(A, B) || _ <- lists:seq(1, 60)],
    ok = inet_rdma_test_os:await_footprint(OsPid, Before),
    inet_rdma_test_wait:until(processes, 10000, fun() ->
        call(A, erlang, system_info, [process_count]) - Processes =< 2
    end).

another_otp_with_inet_tls(Config) -> with_another_otp(Config, ?PLAIN, tls).

another_otp_with_inet_rdma(Config) -> with_another_otp(Config, ?RDMA, shm).

with_another_otp(Config, Carrier, Fabric) ->
    Under = proplists:get_value(other_otp, Config),
    Directory = filename:join(proplists:get_value(priv_dir, Config), "other"),
    Own = node_of(Config, Carrier, good),
    Args = ssl_path(Under) ++ lists:nthtail(length(ssl_path()), maps:get(args, Own)),
    Other = Own#{under => Under, code => [inet_rdma_test_otp:compiled(Under, Directory)], args := Args},
    [A, B] = start_all([{"a", node_of(Config, ?RDMA, good)}, {"other", Other}]),
    ct:pal("OTP ~s and OTP ~s", [call(Node, erlang, system_info, [otp_release]) || Node <- [A, B]]),
    [
        begin
            connect(X, Y),
            ok = inet_rdma_test_link:await(A, B, Fabric),
            ok = inet_rdma_test_link:exercise(X, Y),
            ok = inet_rdma_test_link:disconnect(X, Y)
        end
     || {X, Y} <- [{A, B}, {B, A}]
    ],
    [ok = inet_rdma_test_link:collide(A, B) || _ <- lists:seq(1, 20)],
    %% A certificate that is refused here is refused there.
    Bad = start("bad", node_of(Config, ?RDMA, unknown_ca)),
    [?assertEqual(false, call(X, net_kernel, connect_node, [name(Y)])) || {X, Y} <- [{Bad, B}, {B, Bad}]].

%% Nodes.

node_of(Config, Carrier, Kind) -> node_of(Config, Carrier, Kind, []).

node_of(Config, Carrier, Kind, Options) ->
    #{carrier => Carrier, rdma => security(Carrier) ++ Options, args => ssl_arguments(Config, Kind, [])}.

security("inet" ++ _) -> [{security, tls}].

ssl_arguments(Config, Kind, More) ->
    ssl_path() ++
        ["-ssl_dist_optfile",
         inet_rdma_test_certificates:option_file(proplists:get_value(certificates, Config), Kind, More)].

%% The kernel's start needs it, before there is a code server.
ssl_path() -> ["-pa", filename:join(code:lib_dir(ssl), "ebin")].

%% Of the OTP that a command leads to.
ssl_path(Command) ->
    Ask = ["-noinput", "-eval", "io:put_chars([\"in:\", code:lib_dir(ssl)]), halt()."],
    [_, Directory] = string:split(inet_rdma_test_otp:output(Command, "erl", Ask), "in:"),
    ["-pa", filename:join(Directory, "ebin")].

%% The process that ticks over a link. Another link may be up at once: global connects again.
supervisor(A, B) ->
    [{_, Supervisor, _, _, _, _}] = call(A, ets, lookup, [inet_rdma_links, {link, atom_to_binary(name(B))}]),
    {A, Supervisor}.

ended({Node, Supervisor}) ->
    inet_rdma_test_wait:until({ended, name(Node)}, 10000, fun() ->
        not call(Node, erlang, is_process_alive, [Supervisor])
    end).

%% Neither up nor pending.
gone(A, B) ->
    inet_rdma_test_wait:until({gone, name(A), name(B)}, 10000, fun() ->
        case inet_rdma_test_link:states(A, name(B)) of
            [] -> true;
            Other -> Other
        end
    end).

start(Prefix, Options) -> inet_rdma_test_node:start(Prefix, Options).

start_all(Wanted) -> inet_rdma_test_node:start_all(Wanted).

connect(A, B) -> ok = inet_rdma_test_link:connect(A, B).

call(Node, Module, Function, Args) -> inet_rdma_test_node:call(Node, Module, Function, Args).

name(#{node := Name}) -> Name.

unique(Prefix) -> inet_rdma_test_node:unique(Prefix).

%% Links that begin inside TLS (`security tls`): where they move to, beside plain inet_tls and TCP
%% peers, and their ends.
-module(tls_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_node, [start/2, start_all/1, start_all/2, call/4, name/1, unique/1]).
-import(inet_rdma_test_tls, [
    node_of/3, node_of/4,
    pair/1, pair/2,
    security/1,
    ssl_arguments/3,
    ssl_path/0,
    ssl_path/1,
    stayed/2, stayed/3
]).
-import(inet_rdma_test_link, [connect/2, supervisor/2, ended/1, gone/2]).

-export([all/0, suite/0, init_per_testcase/2]).
-export([
    moves_to_shared_memory/1,
    stays_on_tls_with_plain_inet_tls/1,
    socket_that_is_kept/1,
    socket_that_is_kept_and_required/1,
    tcp_only_is_refused/1,
    no_weaker_way/1,
    security_holds_until_the_end/1,
    security_asked_for_too_late/1,
    later_version_of_tls/1,
    a_node_that_cannot_keep_tls_does_not_start/1,
    links_inside_tls_go_over_ipv6/1,
    mesh_of_both/1,
    simultaneous_connects_leave_one_link/1,
    end_of_each_part/1,
    nothing_is_left_behind/1,
    sockets_of_the_module_socket_resume/1,
    socket_backend_never_waits/1,
    last_read_of_tls/1,
    acceptor_answers_when_its_link_is_up/1,
    crowds_that_say_nothing_of_tls/1,
    half_open_handshakes_keep_no_node_out/1,
    tls_on_one_side/1,
    start_while_the_last_distribution_ends/1,
    another_otp_with_inet_tls/1,
    another_otp_with_inet_rdma/1
]).

%% More than OTP's limit of TLS handshakes at a time, 128.
-define(CROWD, 150).
%% The largest value of `net_setuptime', in seconds.
-define(LONGEST_SETUP_SECONDS, "120").

suite() ->
    [{timetrap, {minutes, 5}}, {ct_hooks, [inet_rdma_test_tls]}].

all() ->
    [
        moves_to_shared_memory,
        stays_on_tls_with_plain_inet_tls,
        socket_that_is_kept,
        socket_that_is_kept_and_required,
        tcp_only_is_refused,
        no_weaker_way,
        security_holds_until_the_end,
        security_asked_for_too_late,
        later_version_of_tls,
        a_node_that_cannot_keep_tls_does_not_start,
        links_inside_tls_go_over_ipv6,
        mesh_of_both,
        simultaneous_connects_leave_one_link,
        end_of_each_part,
        nothing_is_left_behind,
        sockets_of_the_module_socket_resume,
        socket_backend_never_waits,
        last_read_of_tls,
        acceptor_answers_when_its_link_is_up,
        crowds_that_say_nothing_of_tls,
        half_open_handshakes_keep_no_node_out,
        tls_on_one_side,
        start_while_the_last_distribution_ends,
        another_otp_with_inet_tls,
        another_otp_with_inet_rdma
    ].

init_per_testcase(Case, Config) when
    Case =:= another_otp_with_inet_tls; Case =:= another_otp_with_inet_rdma
->
    inet_rdma_test_otp:needed(Config);
init_per_testcase(_Case, Config) ->
    Config.

%% The whole of distribution over shared memory, whichever connects; the link is one of TLS to
%% net_kernel.
moves_to_shared_memory(Config) ->
    [A, B] = pair(Config),
    [
        begin
            connect(X, Y),
            [ok = inet_rdma_test_link:await(P, Q, shm) || {P, Q} <- [{A, B}, {B, A}]],
            ok = inet_rdma_test_link:exercise(X, Y),
            %% Also at the node that accepts: the socket is out of TLS there.
            [?assertEqual(tls, protocol(P, Q)) || {P, Q} <- [{X, Y}, {Y, X}]],
            %% Options of the link, and of the socket below TLS.
            ?assertEqual(
                {ok, [{security, tls}]}, call(X, net_kernel, getopts, [name(Y), [security]])
            ),
            ?assertEqual(ok, call(X, net_kernel, setopts, [name(Y), [{nodelay, false}]])),
            ?assertEqual(
                {ok, [{nodelay, false}]}, call(X, net_kernel, getopts, [name(Y), [nodelay]])
            ),
            ok = inet_rdma_test_link:disconnect(X, Y)
        end
     || {X, Y} <- [{A, B}, {B, A}, {A, B}]
    ].

%% The connection has left TLS by then.
acceptor_answers_when_its_link_is_up(Config) ->
    [A, B] = pair(Config),
    inet_rdma_test_link:acceptor_answers_when_up(A, B).

%% A connection takes a place among the handshakes of TLS with its first bytes: one that is silent,
%% or stays where its handshake begins, keeps no node out. Those that the node keeps are still there
%% when the link is up.
crowds_that_say_nothing_of_tls(Config) ->
    [A, B] = pair(Config),
    Port = inet_rdma_test_node:port(B),
    Crowds = [
        inet_rdma_test_stranger:crowd({127, 0, 0, Last}, Port, ?CROWD, fun(_) -> Words end)
     || {Last, Words} <- [{1, <<>>}, {2, <<22>>}]
    ],
    connect(A, B),
    [Silent, Begun] = [inet_rdma_test_stranger:left(Crowd) || Crowd <- Crowds],
    ct:pal("~b and ~b of ~b are there when the link is up", [Silent, Begun, ?CROWD]),
    [?assert(Left > 0) || Left <- [Silent, Begun]],
    ok = inet_rdma_test_link:exercise(A, B).

%% Crowds from three addresses take each place among the handshakes of TLS, those of the connecting
%% node's address included. Without an end of one before its time the connect would fail.
half_open_handshakes_keep_no_node_out(Config) ->
    #{args := Args} = Node = node_of(Config, "inet_rdma", good),
    Patient = Node#{args := Args ++ ["-kernel", "net_setuptime", ?LONGEST_SETUP_SECONDS]},
    [A, B] = start_all([{"a", Patient}, {"b", Patient}]),
    ok = call(B, inet_rdma_test_log, install, []),
    Port = inet_rdma_test_node:port(B),
    Crowds = [
        inet_rdma_test_stranger:crowd({127, 0, 0, Last}, Port, ?CROWD, fun(_) -> <<22>> end)
     || Last <- [1, 2, 3]
    ],
    connect(A, B),
    Left = [inet_rdma_test_stranger:left(Crowd) || Crowd <- Crowds],
    ct:pal("~0p of ~b each are there when the link is up", [Left, ?CROWD]),
    ok = inet_rdma_test_log:await(B, ["too many TLS handshakes"]),
    ok = inet_rdma_test_link:exercise(A, B).

%% net_kernel:stop/0 waits for the supervisor of TLS for a second. The next start waits for its end.
start_while_the_last_distribution_ends(Config) ->
    A = start("a", (node_of(Config, "inet_rdma", good))#{name => none}),
    Start = fun() -> call(A, net_kernel, start, [[list_to_atom(unique("a")), shortnames]]) end,
    {ok, _} = Start(),
    [
        begin
            ok = call(A, inet_rdma_test_asker, suspend_for, [Name, 2500]),
            ok = call(A, net_kernel, stop, []),
            ?assertMatch({ok, _}, Start())
        end
     || Name <- [ssl_dist_sup, inet_rdma_sup]
    ].

%% Whichever connects, both say why there is no link, and soon.
tls_on_one_side(Config) ->
    [
        begin
            [Tls, Tcp] = start_all([
                {"s", node_of(Config, "inet_rdma", good)}, {"t", #{carrier => Carrier}}
            ]),
            [ok = call(Node, inet_rdma_test_log, install, []) || Node <- [Tls, Tcp]],
            [
                ?assertEqual(pang, call(X, net_adm, ping, [name(Y)]))
             || {X, Y} <- [{Tls, Tcp}, {Tcp, Tls}]
            ],
            [
                ok = inet_rdma_test_log:await(Tls, Words)
             || Words <- [
                    ["no link to", name(Tcp), "does not answer in TLS"],
                    ["a connection from", "is refused: it does not begin with TLS"]
                ]
            ],
            [
                ok = inet_rdma_test_log:await(Tcp, Words)
             || Carrier =:= "inet_rdma",
                Words <- [
                    ["no link to", name(Tls), "does not answer with a handshake over TCP"],
                    ["a connection from", "is refused: it does not begin with a handshake over TCP"]
                ]
            ]
        end
     || Carrier <- ["inet_rdma", "inet_tcp"]
    ].

%% The protocol that net_kernel of the first node shows for its link to the second: of a
%% #net_address{}.
protocol(A, B) ->
    {ok, Address} = call(A, net_kernel, node_info, [name(B), address]),
    element(4, Address).

%% A plain inet_tls node sees an ordinary peer. The link is carried by OTP, its counts are those of
%% the socket.
stays_on_tls_with_plain_inet_tls(Config) ->
    [A, Plain] = start_all([
        {"a", node_of(Config, "inet_rdma", good)}, {"p", node_of(Config, "inet_tls", good)}
    ]),
    [
        begin
            connect(X, Y),
            stayed(A, Plain),
            ok = inet_rdma_test_link:exercise(X, Y),
            #{bytes_sent := Bytes} = call(A, inet_rdma, info, [name(Plain)]),
            ok = call(A, inet_rdma_test_data, send_and_compare, [name(Plain), [100000]]),
            #{bytes_sent := More} = call(A, inet_rdma, info, [name(Plain)]),
            ?assert(More >= Bytes + 100000),
            ok = inet_rdma_test_link:disconnect(X, Y)
        end
     || {X, Y} <- [{A, Plain}, {Plain, A}, {A, Plain}]
    ].

%% TLS connects by a socket of the module socket then. The session's port takes that, too, and
%% outlives its loss.
sockets_of_the_module_socket_resume(Config) ->
    [Tcp, Auto, Plain] = [
        begin
            #{args := Args} = Options = node_of(Config, Carrier, good, Rdma),
            start(Name, Options#{args := Args ++ ["-kernel", "inet_backend", "socket"]})
        end
     || {Name, Carrier, Rdma} <- [
            {"t", "inet_rdma", [{fabric, tcp}]}, {"a", "inet_rdma", []}, {"p", "inet_tls", []}
        ]
    ],
    B = start("b", node_of(Config, "inet_rdma", good)),
    [
        begin
            connect(X, Y),
            case [X, Y] -- [Auto, B] of
                [] -> [ok = inet_rdma_test_link:await(P, Q, shm) || {P, Q} <- [{X, Y}, {Y, X}]];
                _ when Y =:= Plain -> stayed(X, Y);
                _ -> [ok = inet_rdma_test_link:await(P, Q, tcp) || {P, Q} <- [{X, Y}, {Y, X}]]
            end,
            ok = inet_rdma_test_link:exercise(X, Y),
            _ =
                case Y =/= Plain of
                    true -> resumes(X, Y);
                    false -> ok
                end,
            ok = inet_rdma_test_link:disconnect(X, Y)
        end
     || {X, Y} <- [{Auto, B}, {B, Auto}, {Tcp, Auto}, {Tcp, Plain}]
    ].

%% OTP sets such a socket to block before it closes it, and the session's descriptor of it with it.
%% A node with one scheduler goes on while its peer takes nothing.
socket_backend_never_waits(Config) ->
    #{args := Args} = Options = node_of(Config, "inet_rdma", good, [{fabric, tcp}]),
    %% Less than a port takes from the VM.
    Buffers = "[{sndbuf,65536},{recbuf,65536}]",
    More = [
        "-kernel",
        "inet_backend",
        "socket",
        "inet_dist_connect_options",
        Buffers,
        "inet_dist_listen_options",
        Buffers,
        "+S",
        "1:1"
    ],
    [A, B] = start_all(2, Options#{args := Args ++ More}),
    [
        begin
            connect(X, Y),
            {Busy, ok} = call(Sender, inet_rdma_test_watch, busy_ports, []),
            Name = inet_rdma_test_stream:receiver_at(Receiver, 2, 60),
            inet_rdma_test_node:suspend(Receiver),
            Senders = call(Sender, inet_rdma_test_stream, senders, [
                name(Receiver), Name, bulk, 2, 60
            ]),
            inet_rdma_test_wait:until(all_senders_suspended, 30000, fun() ->
                Senders -- call(Sender, inet_rdma_test_watch, seen, [Busy]) =:= []
            end),
            %% A node that waits in a write answers nothing.
            ok = inet_rdma_test_wait:holds(answers, 1000, fun() ->
                call(Sender, erlang, node, []) =:= name(Sender)
            end),
            inet_rdma_test_node:resume(Receiver),
            _ = call(Receiver, inet_rdma_test_stream, await, [Name, 60000]),
            ok = inet_rdma_test_link:disconnect(X, Y)
        end
     || {X, Y} <- [{A, B}, {B, A}], {Sender, Receiver} <- [{A, B}, {B, A}]
    ].

%% Either node loses the link's TCP connection, and the link has another one.
resumes(X, Y) ->
    Watcher = inet_rdma_test_node:watch(X, Y),
    [
        begin
            #{resumes := Before} = call(X, inet_rdma, info, [name(Y)]),
            ok = call(Loser, inet_rdma_test_remote, end_part, [socket]),
            inet_rdma_test_wait:until(resumed, 20000, fun() ->
                #{resumes := Now} = call(X, inet_rdma, info, [name(Y)]),
                Now > Before
            end),
            ?assertEqual(name(Y), call(X, erpc, call, [name(Y), erlang, node, []]))
        end
     || Loser <- [X, Y]
    ],
    ?assertEqual([], call(X, inet_rdma_test_watch, seen, [Watcher])).

%% TLS over the module socket reads the peer's first byte outside TLS, too, and still executes
%% another read when TLS has given the socket: it takes no byte of the session.
last_read_of_tls(Config) ->
    {ok, _} = application:ensure_all_started(ssl),
    {ok, [Options]} = file:consult(
        inet_rdma_test_certificates:option_file(proplists:get_value(certificates, Config), good, [])
    ),
    [Server, Client] = [proplists:get_value(Side, Options) || Side <- [server, client]],
    Passive = [binary, {active, false}],
    {ok, Listener} = ssl:listen(0, Passive ++ Server),
    {ok, {_Ip, Port}} = ssl:sockname(Listener),
    Peer = spawn_link(fun() ->
        {ok, Accepted} = ssl:transport_accept(Listener),
        {ok, Socket} = ssl:handshake(Accepted),
        %% The kernel sends the end of TLS with the byte after it.
        ok = ssl:setopts(Socket, [cork(1)]),
        {ok, Tcp} = ssl:close(Socket, {self(), 10000}),
        ok = gen_tcp:send(Tcp, <<"o">>),
        ok = inet:setopts(Tcp, [cork(0)]),
        ok = begin_session(Tcp)
    end),
    {ok, Connected} = gen_tcp:connect("localhost", Port, [{inet_backend, socket} | Passive]),
    {ok, Socket} = ssl:connect(Connected, [{verify, verify_none} | proplists:delete(verify, Client)]),
    {ok, {'$inet', gen_tcp_socket, {_, Descriptor}} = Tcp} = inet_rdma_tls:give_back(Socket),
    ?assertEqual({ok, <<"session">>}, socket:recv(Descriptor, 7, 10000)),
    unlink(Peer),
    ok = gen_tcp:close(Tcp).

%% The option TCP_CORK.
cork(Number) -> {raw, 6, 3, <<Number:32/native>>}.

%% A peer that is slow to answer: BEGIN and the session's first bytes are one segment, if the other
%% side has sent its BEGIN.
begin_session(Tcp) ->
    case gen_tcp:recv(Tcp, 1, 500) of
        {ok, <<"o">>} ->
            begin_session(Tcp);
        {ok, <<"b">>} ->
            gen_tcp:send(Tcp, <<"bsession">>);
        {error, timeout} ->
            ok = gen_tcp:send(Tcp, <<"b">>),
            {ok, <<"b">>} = gen_tcp:recv(Tcp, 1, 10000),
            gen_tcp:send(Tcp, <<"session">>)
    end.

%% After TLS has not given back the socket of a link, further links to that node stay inside TLS for
%% a while, whichever path both nodes allow. Both say why.
socket_that_is_kept(Config) ->
    [A, B] = pair(Config),
    [
        begin
            ok = gives_no_socket(X, Y, 60000),
            connect(X, Y),
            [
                stayed(P, Q, "TLS did not give its socket back lately: a reason")
             || {P, Q} <- [{X, Y}, {Y, X}]
            ],
            ok = inet_rdma_test_link:exercise(X, Y),
            ok = inet_rdma_test_link:disconnect(X, Y),
            connect(Y, X),
            [
                stayed(P, Q, "the peer offers no session, its log says why")
             || {P, Q} <- [{X, Y}, {Y, X}]
            ],
            ok = inet_rdma_test_link:exercise(X, Y),
            ok = inet_rdma_test_link:disconnect(X, Y),
            ok = gives_no_socket(X, Y, -1),
            connect(X, Y),
            ok = inet_rdma_test_link:await(X, Y, shm),
            ok = inet_rdma_test_link:disconnect(X, Y)
        end
     || {X, Y} <- [{A, B}, {B, A}]
    ].

%% Such a link is refused on both sides, with the reason in both logs, if one of them requires more.
socket_that_is_kept_and_required(Config) ->
    [
        begin
            [A, B] =
                Nodes = start_all([
                    {Name, node_of(Config, "inet_rdma", good, [{required, Required}])}
                 || {Name, Required} <- [{"a", RequiredA}, {"b", RequiredB}]
                ]),
            ok = gives_no_socket(A, B, 60000),
            [ok = call(Node, inet_rdma_test_log, install, []) || Node <- Nodes],
            [
                begin
                    [ok = call(Node, inet_rdma_test_log, forget, []) || Node <- Nodes],
                    ?assertEqual(false, call(X, net_kernel, connect_node, [name(Y)])),
                    [
                        inet_rdma_test_log:await(P, [
                            "the option required forbids TLS", Why, name(Q)
                        ])
                     || {P, Q} <- [{A, B}, {B, A}]
                    ],
                    [gone(P, Q) || {P, Q} <- [{A, B}, {B, A}]]
                end
             || {X, Y, Why} <- [
                    {A, B, "TLS did not give its socket back lately: a reason"},
                    {B, A, "the peer offers no session, its log says why"}
                ]
            ],
            ok = gives_no_socket(A, B, -1),
            connect(A, B),
            [ok = inet_rdma_test_link:await(P, Q, shm) || {P, Q} <- [{A, B}, {B, A}]],
            inet_rdma_test_node:stop_all()
        end
     || {RequiredA, RequiredB} <- [{true, false}, {false, true}, {true, true}]
    ].

%% The node remembers for this time that TLS has not given back the socket of a link to the other
%% one.
gives_no_socket(X, Y, Ms) ->
    call(X, inet_rdma_links, failed, [{atom_to_binary(name(Y)), 0, leaving_tls}, <<"a reason">>, Ms]).

%% Neither connects to the other, nobody stays pending, and nothing harms the nodes.
tcp_only_is_refused(Config) ->
    [A, C] = pair(Config),
    Others = start_all([{"t", #{carrier => "inet_tcp"}}, {"r", #{}}]),
    [
        begin
            [
                ?assertEqual(false, call(X, net_kernel, connect_node, [name(Y)]))
             || {X, Y} <- [{A, Other}, {Other, A}]
            ],
            [gone(X, Y) || {X, Y} <- [{A, Other}, {Other, A}]]
        end
     || Other <- Others
    ],
    connect(A, C),
    ok = inet_rdma_test_link:exercise(A, C).

%% A link never moves to a way without encryption: it stays on TLS, or is refused with the option
%% required.
no_weaker_way(Config) ->
    Fabric = fun(Name, Options) -> start(Name, node_of(Config, "inet_rdma", good, Options)) end,
    [Tcp, Auto, Required] = [
        Fabric("t", [{fabric, tcp}]), Fabric("a", []), Fabric("r", [{required, true}])
    ],
    ok = call(Required, inet_rdma_test_log, install, []),
    [
        begin
            connect(X, Y),
            [
                ok = inet_rdma_test_link:await(P, Q, tcp, "option fabric of .* is tcp")
             || {P, Q} <- [{X, Y}, {Y, X}]
            ],
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
    [A, B] = start_all([
        {"a", node_of(Config, "inet_rdma", good)}, {"b", node_of(Config, "inet_tls", good)}
    ]),
    ok = call(A, application, set_env, [inet_rdma, security, none]),
    connect(A, B),
    stayed(A, B),
    ok = inet_rdma_test_link:disconnect(A, B),
    connect(B, A),
    stayed(A, B).

%% A node that was started without TLS makes no link in clear once its configuration asks for TLS.
security_asked_for_too_late(_Config) ->
    [A, B] = start_all([{"a", #{}}, {"b", #{}}]),
    [
        begin
            ok = call(A, inet_rdma_test_log, install, []),
            ok = call(A, application, set_env, [inet_rdma, security, tls]),
            ?assertEqual(false, call(X, net_kernel, connect_node, [name(Y)])),
            [gone(P, Q) || {P, Q} <- [{X, Y}, {Y, X}]],
            ?assert(
                call(A, inet_rdma_test_log, contains, [
                    "distribution of this node was started with none"
                ])
            ),
            ok = call(A, application, unset_env, [inet_rdma, security]),
            connect(X, Y),
            ok = inet_rdma_test_link:disconnect(A, B)
        end
     || {X, Y} <- [{A, B}, {B, A}]
    ].

later_version_of_tls(Config) ->
    Options = fun(Carrier) ->
        #{
            carrier => Carrier,
            rdma => security(Carrier),
            args => ssl_arguments(Config, good, [{versions, ['tlsv1.3']}])
        }
    end,
    [A, B, C] = start_all([
        {"a", Options("inet_rdma")}, {"b", Options("inet_rdma")}, {"c", Options("inet_tls")}
    ]),
    connect(A, B),
    ok = inet_rdma_test_link:await(A, B, shm),
    ok = inet_rdma_test_link:exercise(A, B),
    connect(C, A),
    stayed(A, C),
    ok = inet_rdma_test_link:exercise(A, C).

%% A node that cannot keep its links as it should does not start, and says why.
a_node_that_cannot_keep_tls_does_not_start(Config) ->
    Ktls = ssl_arguments(Config, good, [{ktls, true}]),
    [
        begin
            {Status, Output} = inet_rdma_test_node:run(
                "w", #{rdma => [{security, Value}], args => Args}, "ok"
            ),
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

links_inside_tls_go_over_ipv6(Config) ->
    case gen_tcp:listen(0, [inet6, {ip, {0, 0, 0, 0, 0, 0, 0, 1}}]) of
        {ok, Socket} ->
            ok = gen_tcp:close(Socket),
            %% The certificates name no address.
            Args = ssl_arguments(Config, good, [{verify, verify_none}]),
            Options = fun(Prefix, Carrier) ->
                #{
                    carrier => Carrier,
                    name => unique(Prefix) ++ "@::1",
                    long => true,
                    rdma => security(Carrier),
                    args => Args
                }
            end,
            [A, B, C] = start_all([
                {Prefix, Options(Prefix, Carrier)}
             || {Prefix, Carrier} <- [
                    {"a", "inet6_rdma"},
                    {"b", "inet6_rdma"},
                    {"c", "inet6_tls"}
                ]
            ]),
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
    [A, B, C, D] =
        Nodes = start_all([
            {[Letter], node_of(Config, Carrier, good)}
         || {Letter, Carrier} <- [
                {$a, "inet_rdma"}, {$b, "inet_rdma"}, {$c, "inet_tls"}, {$d, "inet_tls"}
            ]
        ]),
    ok = inet_rdma_test_node:mesh(Nodes),
    [
        ok = inet_rdma_test_link:await(X, Y, Fabric)
     || {X, Y, Fabric} <- [{A, B, shm}, {B, A, shm}, {A, C, tls}, {B, D, tls}]
    ],
    [ok = inet_rdma_test_link:exercise(X, Y) || {X, Y} <- [{A, B}, {A, C}, {B, D}, {C, D}]].

simultaneous_connects_leave_one_link(Config) ->
    [
        begin
            [A, B] = start_all([
                {"a", node_of(Config, "inet_rdma", good)}, {"b", node_of(Config, Carrier, good)}
            ]),
            connect(A, B),
            [ok = inet_rdma_test_link:collide(A, B) || _ <- lists:seq(1, 50)],
            ok = inet_rdma_test_link:await(A, B, Fabric)
        end
     || {Carrier, Fabric} <- [{"inet_rdma", shm}, {"inet_tls", tls}]
    ].

%% The guard, the supervisor, the whole node: the other node sees the end, and the next link is up.
end_of_each_part(Config) ->
    [A, B] = pair(Config),
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

%% Connects and disconnects leave nothing behind, no process of TLS either.
nothing_is_left_behind(Config) ->
    Alone = inet_rdma_test_node:alone(node_of(Config, "inet_rdma", good)),
    [A, B] = start_all([{Name, Alone} || Name <- ["a", "b"]]),
    #{os_pid := OsPid} = A,
    Cycle = fun(X, Y) ->
        connect(X, Y),
        ok = inet_rdma_test_link:disconnect(X, Y)
    end,
    %% In both directions: a node has the listener of its links from the first one on that it
    %% accepts.
    [
        begin
            Cycle(A, B),
            Cycle(B, A)
        end
     || _ <- lists:seq(1, 5)
    ],
    Before = inet_rdma_test_usage:footprint(A),
    Processes = call(A, erlang, system_info, [process_count]),
    [Cycle(A, B) || _ <- lists:seq(1, 60)],
    ok = inet_rdma_test_os:await_footprint(OsPid, Before),
    inet_rdma_test_wait:until(processes, 10000, fun() ->
        call(A, erlang, system_info, [process_count]) - Processes =< 2
    end).

another_otp_with_inet_tls(Config) -> with_another_otp(Config, "inet_tls", tls).

another_otp_with_inet_rdma(Config) -> with_another_otp(Config, "inet_rdma", shm).

with_another_otp(Config, Carrier, Fabric) ->
    Under = proplists:get_value(other_otp, Config),
    Directory = filename:join(proplists:get_value(priv_dir, Config), "other"),
    Own = node_of(Config, Carrier, good),
    Args = ssl_path(Under) ++ lists:nthtail(length(ssl_path()), maps:get(args, Own)),
    Other = Own#{
        under => Under, code => [inet_rdma_test_otp:compiled(Under, Directory)], args := Args
    },
    [A, B] = start_all([{"a", node_of(Config, "inet_rdma", good)}, {"other", Other}]),
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
    Bad = start("bad", node_of(Config, "inet_rdma", unknown_ca)),
    [
        ?assertEqual(false, call(X, net_kernel, connect_node, [name(Y)]))
     || {X, Y} <- [{Bad, B}, {B, Bad}]
    ].

%% Certificates of links that begin inside TLS: of each kind, on either side, beside plain inet_tls;
%% revoked while a link is up; and what the doctor says of them.
-module(tls_certificates_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_node, [start/2, start_all/1, call/4, name/1]).
-import(inet_rdma_test_tls, [
    node_of/3, pair/2, security/1, ssl_arguments/3, ssl_path/0, stayed/2, alerts/1
]).
-import(inet_rdma_test_link, [connect/2, supervisor/2, ended/1, gone/2]).

-export([all/0, suite/0, init_per_testcase/2]).
-export([
    certificates_as_inet_tls_has_them/1,
    allowed_nodes_as_inet_tls_has_them/1,
    flags_instead_of_a_file/1,
    doctor_looks_at_certificates/1,
    a_revoked_certificate_resumes_nothing/1
]).

suite() ->
    [{timetrap, {minutes, 5}}, {ct_hooks, [inet_rdma_test_tls]}].

all() ->
    [
        certificates_as_inet_tls_has_them,
        allowed_nodes_as_inet_tls_has_them,
        flags_instead_of_a_file,
        doctor_looks_at_certificates,
        a_revoked_certificate_resumes_nothing
    ].

init_per_testcase(a_revoked_certificate_resumes_nothing, Config) ->
    inet_rdma_test_cutter:needed(Config);
init_per_testcase(_Case, Config) ->
    Config.

%% With each kind of certificate on either side the link is up or not as between two nodes of
%% inet_tls, and both nodes log the same of TLS.
certificates_as_inet_tls_has_them(Config) ->
    Good = [
        {Carrier, start("good", alone(Config, Carrier, good))}
     || Carrier <- ["inet_tls", "inet_rdma"]
    ],
    [with_certificate(Config, Kind, Good) || Kind <- inet_rdma_test_certificates:kinds()].

with_certificate(Config, Kind, Good) ->
    Tested = [
        {Carrier, start("tested", alone(Config, Carrier, Kind))}
     || Carrier <- ["inet_tls", "inet_rdma"]
    ],
    [
        begin
            [ok = call(Node, inet_rdma_test_log, install, []) || {_, Node} <- Good ++ Tested],
            Seen = [
                {{CarrierX, CarrierY}, attempt(X, Y)}
             || {CarrierX, X} <- From, {CarrierY, Y} <- To
            ],
            {value, {_, {Connected, _} = Plain}, Others} = lists:keytake(
                {"inet_tls", "inet_tls"}, 1, Seen
            ),
            ct:log("~p: ~p", [Kind, Plain]),
            %% The server does not ask which host the client's certificate names, unless it has a
            %% verify function for that.
            ?assertEqual(
                Kind =:= good orelse (Kind =:= wrong_host andalso From =:= Tested), Connected
            ),
            [?assertEqual({Kind, Pair, Plain}, {Kind, Pair, Same}) || {Pair, Same} <- Others]
        end
     || {From, To} <- [{Tested, Good}, {Good, Tested}]
    ],
    [inet_rdma_test_node:stop(Node) || {_, Node} <- Tested].

%% A link that the peer has begun would hide a refusal: only a call of connect_node/1 makes one, and
%% no message.
alone(Config, Carrier, Kind) ->
    #{args := Args} = Options = inet_rdma_test_node:alone(node_of(Config, Carrier, Kind)),
    Options#{args := ["-kernel", "dist_auto_connect", "never" | Args]}.

%% Whether it connects, and what both nodes then have in their logs of TLS. A node that refuses has
%% said why. A server that cannot even begin, as it has no certificate, tells its log alone from OTP
%% 27 on.
attempt(X, Y) ->
    %% A link that the peer ends before this node's side of it is complete lives here until OTP 25's
    %% ssl ends the process that controls it, 5 s later.
    [gone(P, Q) || {P, Q} <- [{X, Y}, {Y, X}]],
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

%% net_kernel:allow/1: the name must be allowed, and its host be one that the certificate names.
allowed_nodes_as_inet_tls_has_them(Config) ->
    Nodes = [
        {Carrier, start("a", node_of(Config, Carrier, good)),
            start("b", node_of(Config, Carrier, good))}
     || Carrier <- ["inet_tls", "inet_rdma"]
    ],
    Cases = [
        {fun(_) -> ['nobody@elsewhere.invalid'] end, false}, {fun(A) -> [name(A)] end, true}
    ],
    [
        [
            begin
                ok = call(B, inet_rdma_test_log, install, []),
                ok = call(B, net_kernel, allow, [Allowed(A)]),
                ?assertEqual(
                    {Carrier, Expected}, {Carrier, call(A, net_kernel, connect_node, [name(B)])}
                ),
                _ = [
                    inet_rdma_test_wait:until({logged, Carrier}, 10000, fun() ->
                        call(B, inet_rdma_test_log, contains, [
                            "** Connection attempt from disallowed node(s)"
                        ])
                    end)
                 || not Expected
                ],
                case Expected of
                    true -> ok = inet_rdma_test_link:disconnect(A, B);
                    false -> ok
                end
            end
         || {Allowed, Expected} <- Cases
        ]
     || {Carrier, A, B} <- Nodes
    ].

%% -ssl_dist_opt, as inet_tls has it.
flags_instead_of_a_file(Config) ->
    Directory = proplists:get_value(certificates, Config),
    File = fun(Name) -> filename:join(Directory, Name) end,
    Flags =
        lists:append([
            ["-ssl_dist_opt", Side ++ Key, Value]
         || Side <- ["server_", "client_"],
            {Key, Value} <- [
                {"certfile", File("good.pem")},
                {"keyfile", File("good.key")},
                {"cacertfile", File("ca.pem")},
                {"verify", "verify_peer"},
                {"depth", "2"}
            ]
        ]) ++ ["-ssl_dist_opt", "server_fail_if_no_peer_cert", "true"],
    Options = fun(Carrier) ->
        #{carrier => Carrier, rdma => security(Carrier), args => ssl_path() ++ Flags}
    end,
    [A, B, C, Bad] = start_all([
        {"a", Options("inet_rdma")},
        {"b", Options("inet_rdma")},
        {"c", Options("inet_tls")},
        {"d", node_of(Config, "inet_rdma", unknown_ca)}
    ]),
    connect(A, B),
    ok = inet_rdma_test_link:await(A, B, shm),
    connect(A, C),
    stayed(A, C),
    [
        ?assertEqual(false, call(X, net_kernel, connect_node, [name(Y)]))
     || {X, Y} <- [{A, Bad}, {Bad, A}]
    ].

%% The doctor says of each certificate what a peer would have against it.
doctor_looks_at_certificates(Config) ->
    [
        begin
            {Status, Output} = inet_rdma_test_node:run(
                "d",
                #{
                    name => none,
                    rdma => [{security, tls}],
                    args => ssl_arguments(Config, Kind, [])
                },
                "inet_rdma_doctor:main()"
            ),
            ?assertEqual(0, Status),
            ?assertMatch(
                {Kind, {match, _}}, {Kind, re:run(re:replace(Output, "\\s+", " ", [global]), Words)}
            ),
            ?assertEqual(
                Kind =:= good,
                re:run(Output, "problem +tls") =:= nomatch
            )
        end
     || {Kind, Words} <- [
            {good, "links begin inside TLS, with \\S*good.pem, valid until [0-9-]{10}"},
            {expired, "expired.pem has expired, on [0-9-]{10}"},
            {wrong_host, "wrong_host.pem does not name this host"},
            {none, "TLS server have no certfile: no peer can connect"}
        ]
    ].

%% Each new connection of a session is a whole handshake of TLS: with a certificate that was revoked
%% meanwhile there is none.
a_revoked_certificate_resumes_nothing(Config) ->
    From = proplists:get_value(certificates, Config),
    Directory = filename:join(proplists:get_value(priv_dir, Config), "revoked_meanwhile"),
    ok = file:make_dir(Directory),
    {ok, Files} = file:list_dir(From),
    [
        {ok, _} = file:copy(filename:join(From, File), filename:join(Directory, File))
     || File <- Files
    ],
    Own = lists:keystore(certificates, 1, Config, {certificates, Directory}),
    [#{os_pid := PidA} = A, #{os_pid := PidB} = B] = pair(Own, [{fabric, tcp}, {survive_ms, 5000}]),
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
        lists:any(
            fun(X) -> call(X, inet_rdma_test_log, contains, ["certificate_revoked"]) end,
            [A, B]
        )
    end),
    [
        ?assertEqual(false, call(X, net_kernel, connect_node, [name(Y)]))
     || {X, Y} <- [{A, B}, {B, A}]
    ].

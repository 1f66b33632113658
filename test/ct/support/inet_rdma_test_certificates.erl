%% Certificates for the nodes of a case, by openssl: an authority, its revocation list, and node
%% certificates that are good or bad in one respect. Runs in the node that runs the tests.
-module(inet_rdma_test_certificates).

-export([suite/2, make/2, option_file/3, kinds/0, revoke/2]).
-export_type([kind/0]).

%% none: the node has no certificate.
-type kind() :: good | none | expired | wrong_host | unknown_ca | revoked.

-spec kinds() -> [kind()].
kinds() -> [good, none, expired, wrong_host, unknown_ca, revoked].

%% Adds {certificates, Directory} to the configuration of a suite: certificates for these hosts.
-spec suite(Config, Hosts :: [string()]) -> Config | {skip, string()} when Config :: [tuple()].
suite(Config, Hosts) ->
    case
        {inet_rdma_test_node:only_rdma(Config), os:find_executable("openssl"), code:lib_dir(ssl)}
    of
        {{skip, _} = Skip, _, _} ->
            Skip;
        {_, Openssl, Ssl} when Openssl =:= false; not is_list(Ssl) ->
            inet_rdma_test_link:skip("to make certificates needs openssl, TLS the application ssl");
        _ ->
            %% One for each suite: ssl keeps what it has read of a file for two minutes.
            Name = "certificates_" ++ integer_to_list(erlang:unique_integer([positive])),
            Directory = filename:join(proplists:get_value(priv_dir, Config), Name),
            ok = filelib:ensure_dir(filename:join(Directory, "x")),
            ok = make(Directory, Hosts),
            [{certificates, Directory} | Config]
    end.

%% Makes all of them in a directory, which exists, for these hosts.
-spec make(file:filename(), Hosts :: [string()]) -> ok.
make(Directory, Hosts) ->
    ok = file:write_file(filename:join(Directory, "openssl.cnf"), configuration()),
    [authority(Directory, Name) || Name <- ["ca", "stranger"]],
    Now = erlang:system_time(second),
    {Early, Late} = {Now - 86400 * 10, Now + 86400 * 10},
    [
        node_certificate(Directory, Authority, Name, Named, From, To)
     || {Authority, Name, Named, From, To} <- [
            {"ca", "good", Hosts, Early, Late},
            {"ca", "expired", Hosts, Early, Now - 86400},
            {"ca", "wrong_host", ["elsewhere.invalid"], Early, Late},
            {"stranger", "unknown_ca", Hosts, Early, Late},
            {"ca", "revoked", Hosts, Early, Late}
        ]
    ],
    revoke(Directory, "revoked").

%% Revokes a certificate of the authority "ca".
-spec revoke(Directory :: file:filename(), Name :: string()) -> ok.
revoke(Directory, Name) ->
    openssl(Directory, ["ca", "-config", "openssl.cnf", "-name", "ca", "-revoke", Name ++ ".pem"]),
    openssl(Directory, ["ca", "-config", "openssl.cnf", "-name", "ca", "-gencrl", "-out", "crl.pem"]),
    %% ssl_crl_hash_dir looks for this name.
    Hash = string:trim(openssl(Directory, ["crl", "-in", "crl.pem", "-noout", "-hash"])),
    ok = file:rename(filename:join(Directory, "crl.pem"), filename:join(Directory, Hash ++ ".r0")).

configuration() ->
    [
        "[req]\ndistinguished_name = name\nx509_extensions = authority\n[name]\n"
        "[authority]\nbasicConstraints = critical, CA:true\nkeyUsage = keyCertSign, cRLSign\n"
        "subjectKeyIdentifier = hash\n",
        [
            [
                "[",
                Name,
                "]\ndatabase = ",
                Name,
                ".index\nserial = ",
                Name,
                ".serial\nnew_certs_dir = .\ndefault_md = sha256\n"
                "policy = policy\nunique_subject = no\ndefault_crl_days = 10\n"
                "certificate = ",
                Name,
                ".pem\nprivate_key = ",
                Name,
                ".key\n"
            ]
         || Name <- ["ca", "stranger"]
        ],
        "[policy]\ncommonName = supplied\n"
    ].

authority(Directory, Name) ->
    openssl(Directory, [
        "req",
        "-config",
        "openssl.cnf",
        "-x509",
        "-days",
        "20",
        "-subj",
        "/CN=" ++ Name,
        "-out",
        Name ++ ".pem"
        | key(Name)
    ]),
    ok = file:write_file(filename:join(Directory, Name ++ ".index"), ""),
    ok = file:write_file(filename:join(Directory, Name ++ ".serial"), "01\n").

key(Name) ->
    [
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-keyout",
        Name ++ ".key"
    ].

node_certificate(Directory, Authority, Name, Hosts, From, To) ->
    openssl(
        Directory,
        [
            "req",
            "-config",
            "openssl.cnf",
            "-new",
            "-subj",
            "/CN=" ++ Name,
            "-out",
            Name ++ ".csr"
            | key(Name)
        ]
    ),
    Names = lists:join(",", lists:flatmap(fun alternatives/1, Hosts)),
    ok = file:write_file(filename:join(Directory, Name ++ ".ext"), [
        "subjectAltName = ", Names, "\n"
    ]),
    openssl(Directory, [
        "ca",
        "-config",
        "openssl.cnf",
        "-name",
        Authority,
        "-batch",
        "-notext",
        "-in",
        Name ++ ".csr",
        "-out",
        Name ++ ".pem",
        "-extfile",
        Name ++ ".ext",
        "-startdate",
        date(From),
        "-enddate",
        date(To)
    ]).

%% An address is in the certificate as both kinds of name, as releases of ssl differ in which kind
%% they compare.
alternatives(Host) ->
    ["DNS:" ++ Host | ["IP:" ++ Host || {ok, _} <- [inet:parse_strict_address(Host)]]].

%% YYYYMMDDHHMMSSZ
date(Seconds) ->
    Text = calendar:system_time_to_rfc3339(Seconds, [{offset, "Z"}]),
    [Char || Char <- Text, Char >= $0, Char =< $9] ++ "Z".

%% Both sides verify the peer, its host and its revocation. Client: options of ssl for that side,
%% instead of these.
-spec option_file(file:filename(), kind(), Client :: [{atom(), term()}]) -> file:filename().
option_file(Directory, Kind, Client) ->
    Own = [
        {Key, filename:join(Directory, atom_to_list(Kind) ++ Ending)}
     || Kind =/= none, {Key, Ending} <- [{certfile, ".pem"}, {keyfile, ".key"}]
    ],
    Common =
        Own ++
            [
                {cacertfile, filename:join(Directory, "ca.pem")},
                {verify, verify_peer},
                {crl_check, peer},
                {crl_cache, {ssl_crl_hash_dir, {internal, [{dir, Directory}]}}}
            ],
    File = filename:join(Directory, lists:concat([Kind, "_", erlang:phash2(Client), ".conf"])),
    Sides = [
        {server, [{fail_if_no_peer_cert, true} | version(Client) ++ Common]},
        {client, lists:ukeysort(1, Client ++ Common)}
    ],
    ok = file:write_file(File, io_lib:format("~p.~n", [Sides])),
    File.

%% Both sides have the same.
version(Options) -> [Option || {versions, _} = Option <- Options].

openssl(Directory, Arguments) ->
    Port = open_port(
        {spawn_executable, os:find_executable("openssl")},
        [{args, Arguments}, {cd, Directory}, exit_status, stderr_to_stdout, hide]
    ),
    collect(Port, Arguments, []).

collect(Port, Arguments, Output) ->
    receive
        {Port, {data, Data}} -> collect(Port, Arguments, [Output | Data]);
        {Port, {exit_status, 0}} -> lists:flatten(Output);
        {Port, {exit_status, Status}} -> error({openssl, Status, Arguments, lists:flatten(Output)})
    end.

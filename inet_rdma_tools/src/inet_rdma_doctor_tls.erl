%% The doctor's part about TLS: whether OTP's TLS can be used, and the certificates of this node.
-module(inet_rdma_doctor_tls).

-export([facts/1, findings/1]).
-export_type([facts/0]).

-import(inet_rdma_text, [text/2]).

%% none: the option security is none. The options of both sides, and what is wrong with the files
%% that they name, in words.
-type facts() ::
    none
    | {error, Why :: binary()}
    | {ok, #{
        verifies := boolean(),
        troubles := [binary()],
        certificates := [{File :: binary(), Until :: binary()}]
    }}.

%% Position in #'OTPTBSCertificate'{}, after version, serial number, signature algorithm and issuer.
-define(VALIDITY, 6).

-type finding() :: {ok | note | problem, Text :: binary(), Fix :: binary() | undefined}.

-spec facts({ok, inet_rdma_options:config()} | {error, term()}) -> facts().
facts({ok, #{security := tls}}) ->
    case inet_rdma_tls:check() of
        ok -> look_at([{Side, inet_rdma_tls_options:all(Side)} || Side <- [server, client]]);
        {error, Why} -> {error, text("~ts", [Why])}
    end;
facts(_) ->
    none.

look_at([{server, Server}, {client, _}] = Sides) ->
    Files = lists:usort([
        {Key, File}
     || {_, Options} <- Sides,
        {Key, File} <- Options,
        lists:member(Key, [certfile, keyfile, cacertfile])
    ]),
    Missing = [
        text("the options of the TLS ~s have no certfile: ~ts", [Side, without_certificate(Side)])
     || {Side, Options} <- Sides,
        not lists:any(
            fun(Key) -> proplists:is_defined(Key, Options) end,
            [certfile, cert, certs_keys]
        )
    ],
    Certificates = [
        {File, certificate(Pem)}
     || {certfile, File} <- Files, {ok, Pem} <- [file:read_file(File)]
    ],
    Unread = [
        text("~ts cannot be read: ~ts", [File, inet:format_error(Reason)])
     || {_, File} <- Files, {error, Reason} <- [file:read_file(File)]
    ],
    {ok, #{
        verifies => proplists:get_value(verify, Server) =:= verify_peer andalso
            proplists:get_value(fail_if_no_peer_cert, Server, false),
        troubles => Missing ++ Unread ++
            lists:append([troubles(File, Read) || {File, Read} <- Certificates]),
        certificates => [
            {text("~ts", [File]), date(element(2, validity(Certificate)))}
         || {File, {ok, Certificate}} <- Certificates
        ]
    }}.

without_certificate(server) -> "no peer can connect to this node";
without_certificate(client) -> "peers that ask for a certificate refuse this node".

%% The first certificate of a file is the node's own.
certificate(Pem) ->
    case [Der || {'Certificate', Der, not_encrypted} <- public_key:pem_decode(Pem)] of
        [Der | _] -> {ok, public_key:pkix_decode_cert(Der, otp)};
        [] -> none
    end.

troubles(File, none) ->
    [text("~ts has no certificate", [File])];
troubles(File, {ok, Certificate}) ->
    Now = erlang:system_time(second),
    {From, To} = validity(Certificate),
    {ok, Host} = inet:gethostname(),
    Hosts = lists:usort([Host, net_adm:localhost()]),
    [text("~ts is valid from ~ts on", [File, date(From)]) || Now < From] ++
        [text("~ts has expired, on ~ts", [File, date(To)]) || Now > To] ++
        [
            text(
                "~ts does not name this host, ~ts: peers that connect to it refuse it",
                [File, lists:join(" or ", Hosts)]
            )
         || not public_key:pkix_verify_hostname(Certificate, [{dns_id, Name} || Name <- Hosts])
        ].

%% Records of public_key, whose header file is not everywhere: RFC 5280 fixes the order of these
%% fields.
validity(Certificate) ->
    {'OTPCertificate', Contents, _Algorithm, _Signature} = Certificate,
    {'Validity', From, To} = element(?VALIDITY, Contents),
    {seconds(From), seconds(To)}.

%% YYMMDDHHMMSSZ until 2049, YYYYMMDDHHMMSSZ later: RFC 5280.
seconds({utcTime, [Y1, Y2 | _] = Text}) ->
    Century =
        case list_to_integer([Y1, Y2]) >= 50 of
            true -> "19";
            false -> "20"
        end,
    seconds({generalTime, Century ++ Text});
seconds({generalTime, Text}) ->
    {ok, [Year, Month, Day, Hour, Minute, Second], _} = io_lib:fread("~4d~2d~2d~2d~2d~2dZ", Text),
    calendar:datetime_to_gregorian_seconds({{Year, Month, Day}, {Hour, Minute, Second}}) -
        62167219200.

date(Seconds) ->
    list_to_binary(string:slice(calendar:system_time_to_rfc3339(Seconds, [{offset, "Z"}]), 0, 10)).

-spec findings(facts()) -> [finding()].
findings(none) ->
    [];
findings({error, Why}) ->
    [
        {problem, <<"the option security is tls, and ", Why/binary>>,
            <<"a node does not start with it: see docs/DEPLOY.md, TLS">>}
    ];
findings({ok, #{verifies := Verifies, troubles := Troubles, certificates := Certificates}}) ->
    [
        {problem, Trouble, <<"no link comes up with it: see docs/DEPLOY.md, TLS">>}
     || Trouble <- Troubles
    ] ++
        [
            {note,
                <<"the TLS server lets in peers without a certificate: the cookie alone keeps strangers out">>,
                <<"{verify, verify_peer} and {fail_if_no_peer_cert, true} in the options of the server">>}
         || not Verifies
        ] ++
        [
            {ok, <<"links begin inside TLS, with ", File/binary, ", valid until ", Until/binary>>,
                undefined}
         || Troubles =:= [], {File, Until} <- Certificates
        ].

%% The options of TLS for the distribution: the flags -ssl_dist_optfile and -ssl_dist_opt, as OTP's
%% guide "Using TLS for Erlang Distribution" describes them.
%%
%% OTP 28 and later have functions for them. For earlier releases this module reads the flags.
-module(inet_rdma_tls_options).

-export([all/1, server/1]).

%% The functions exist in OTP 28 and later.
-dialyzer({no_missing_calls, [all/1, server/1]}).

-type side() :: client | server.

%% How the value of each flag is read.
-define(TYPES, [
    {string, ["certfile", "cacertfile", "keyfile", "dhfile", "password"]},
    {atom, [
        "verify",
        "crl_check",
        "reuse_sessions",
        "secure_renegotiate",
        "fail_if_no_peer_cert",
        "ktls"
    ]},
    {integer, ["depth", "hibernate_after"]},
    {ciphers, ["ciphers"]},
    {atoms, ["versions"]},
    {term, ["crl_cache"]},
    {function, ["verify_fun"]}
]).

%% Fails where a flag cannot be read.
-spec all(side()) -> [term()].
all(client) ->
    case has(get_ssl_client_options, 0) of
        true -> inet_tls_dist:get_ssl_client_options();
        false -> [{erl_dist, true} | read(client)]
    end;
all(server) ->
    read(server).

%% For a connection from this address. OTP's own verify function gets the address, and the hosts of
%% the nodes that may connect (net_kernel:allow/1).
-spec server(inet:ip_address()) -> [term()].
server(Ip) ->
    case has(get_ssl_server_options, 1) of
        true -> inet_tls_dist:get_ssl_server_options(Ip);
        false -> [{erl_dist, true} | verifying(Ip, read(server))]
    end.

has(Function, Arity) -> lists:member({Function, Arity}, inet_tls_dist:module_info(exports)).

verifying(Ip, Options) ->
    OtpVerifies = fun inet_tls_dist:verify_client/3,
    case lists:partition(fun(Option) -> is_verify_fun(OtpVerifies, Option) end, Options) of
        {[], _} ->
            Options;
        {_, Others} ->
            {ok, Allowed} = net_kernel:allowed(),
            Hosts = lists:usort([Host || Node <- Allowed, Host <- host(dist_util:split_node(Node))]),
            [{verify_fun, {OtpVerifies, {Hosts, Ip}}} | Others]
    end.

is_verify_fun(Function, {verify_fun, {Function, _}}) -> true;
is_verify_fun(_Function, _Option) -> false.

host({node, _Name, Host}) -> [Host];
host({host, Host}) -> [Host];
host(_) -> [].

%% From OTP 26 on file and flags are merged; in OTP 25 a file replaces the flags.
read(Side) ->
    case {flags(Side), file(Side), is_otp_25()} of
        {_, [_ | _] = Options, true} -> default_version(Options);
        {[], [], _} -> [];
        {Flags, Options, _} -> default_version(Flags ++ Options)
    end.

is_otp_25() -> not has(fam_setup, 6).

%% ssl_dist_sup has read the file when it started. If it is not running (inet_rdma_doctor), the file
%% is read here.
file(Side) ->
    try
        ets:lookup_element(ssl_dist_opts, Side, 2)
    catch
        error:badarg ->
            unread(Side, ets:whereis(ssl_dist_opts), init:get_argument(ssl_dist_optfile))
    end.

unread(Side, undefined, {ok, [[File]]}) ->
    proplists:get_value(Side, ssl_dist_sup:consult(File), []);
unread(_Side, _Table, _File) ->
    [].

%% The options that inet_tls_dist adds.
default_version(Options) ->
    case proplists:is_defined(versions, Options) of
        true -> Options;
        false -> [{versions, ['tlsv1.2']} | Options]
    end.

flags(Side) ->
    case init:get_argument(ssl_dist_opt) of
        {ok, Groups} -> pairs(atom_to_list(Side) ++ "_", lists:append(Groups));
        error -> []
    end.

pairs(Prefix, [Key, Value | Rest]) ->
    case lists:prefix(Prefix, Key) of
        true -> [option(lists:nthtail(length(Prefix), Key), Value) | pairs(Prefix, Rest)];
        false -> pairs(Prefix, Rest)
    end;
pairs(_Prefix, []) ->
    [];
pairs(_Prefix, [Key]) ->
    error({malformed_ssl_dist_opt, Key}).

option(Key, Value) ->
    case [Type || {Type, Keys} <- ?TYPES, lists:member(Key, Keys)] of
        [string] -> {list_to_atom(Key), Value};
        [ciphers] -> {ciphers, ciphers(Value, is_otp_25())};
        [atom] -> {list_to_atom(Key), list_to_atom(Value)};
        [integer] -> {list_to_atom(Key), list_to_integer(Value)};
        [atoms] -> {list_to_atom(Key), [list_to_atom(Value)]};
        [term] -> {list_to_atom(Key), term(Value)};
        [function] -> {verify_fun, function(term(Value))};
        [] -> error({malformed_ssl_dist_opt, Key})
    end.

%% OTP 25 takes names with colons between them, later releases one name.
ciphers(Value, true) -> Value;
ciphers(Value, false) -> [Value].

term(Text) ->
    {ok, Tokens, _} = erl_scan:string(Text ++ "."),
    {ok, Term} = erl_parse:parse_term(Tokens),
    Term.

function({Module, Function, State}) when is_atom(Module), is_atom(Function) ->
    {fun Module:Function/3, State};
function(Other) ->
    error({malformed_ssl_dist_opt, Other}).

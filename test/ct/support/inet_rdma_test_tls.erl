%% Nodes whose links begin inside TLS, with certificates of inet_rdma_test_certificates. Runs in the
%% node that runs the tests.
%%
%% It is a hook of Common Test, too: a suite that names it in suite/0 has certificates for this
%% host, and the nodes of each case end with it.
-module(inet_rdma_test_tls).

-include_lib("stdlib/include/assert.hrl").

-export([init/2, pre_init_per_suite/3, post_end_per_testcase/5]).
-export([
    certificates/1,
    pair/1, pair/2,
    node_of/3, node_of/4,
    security/1,
    ssl_arguments/3,
    ssl_path/0, ssl_path/1,
    stayed/2, stayed/3,
    alerts/1
]).

init(_Id, _Options) -> {ok, none}.

pre_init_per_suite(_Suite, Config, State) -> {certificates(Config), State}.

post_end_per_testcase(_Suite, _Case, _Config, Result, State) ->
    ok = inet_rdma_test_node:stop_all(),
    {Result, State}.

%% Adds certificates for this host to the configuration of a suite or a group.
certificates(Config) ->
    {ok, Host} = inet:gethostname(),
    inet_rdma_test_certificates:suite(Config, [Host]).

%% Two nodes with inet_rdma and good certificates.
pair(Config) -> pair(Config, []).

pair(Config, Options) ->
    inet_rdma_test_node:start_all([
        {Name, node_of(Config, "inet_rdma", good, Options)}
     || Name <- ["a", "b"]
    ]).

%% The options of inet_rdma_test_node for a node with this carrier and this kind of certificate.
node_of(Config, Carrier, Kind) -> node_of(Config, Carrier, Kind, []).

node_of(Config, Carrier, Kind, Options) ->
    #{
        carrier => Carrier,
        rdma => security(Carrier) ++ Options,
        args => ssl_arguments(Config, Kind, [])
    }.

security("inet" ++ _) -> [{security, tls}].

%% More: options of ssl for the side that connects.
ssl_arguments(Config, Kind, More) ->
    ssl_path() ++
        [
            "-ssl_dist_optfile",
            inet_rdma_test_certificates:option_file(
                proplists:get_value(certificates, Config), Kind, More
            )
        ].

%% The path of the application ssl: a node needs its modules before it has a code server.
ssl_path() -> ["-pa", filename:join(code:lib_dir(ssl), "ebin")].

%% As ssl_path/0, of the OTP that this command starts.
ssl_path(Command) ->
    Ask = ["-noinput", "-eval", "io:put_chars([\"in:\", code:lib_dir(ssl)]), halt()."],
    [_, Directory] = string:split(inet_rdma_test_otp:output(Command, "erl", Ask), "in:"),
    ["-pa", filename:join(Directory, "ebin")].

%% The link stays on TLS, as the second node has inet_tls.
stayed(A, B) -> stayed(A, B, "the peer makes no offer").

%% The link stays on TLS, and the first node says why.
stayed(A, B, Why) ->
    ok = inet_rdma_test_link:await(A, B, tls),
    ?assertMatch({match, _}, re:run(inet_rdma_test_link:why(A, B), Why)).

%% What the node has in its log of TLS, without the places in OTP's sources.
alerts(Node) ->
    lists:usort([
        re:replace(Line, "at [a-z0-9_]+\\.erl:[0-9]+ ", "", [{return, list}])
     || Line <- call(Node, inet_rdma_test_log, lines, []),
        Word <- ["ALERT", "Cannot accept TLS"],
        string:find(Line, Word) =/= nomatch
    ]).

call(Node, Module, Function, Args) -> inet_rdma_test_node:call(Node, Module, Function, Args).

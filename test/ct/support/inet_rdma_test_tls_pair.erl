%% Two nodes that are not distributed, and streams between them that begin inside TLS:
%% inet_rdma_test_pair with the certificates of inet_rdma_test_certificates. Runs in the node that
%% runs the tests.
%%
%% It is a hook of Common Test, too: a suite that names it in suite/0 has the certificates, and each
%% case the two nodes.
-module(inet_rdma_test_tls_pair).

-import(inet_rdma_test_pair, [join/4, connect/3, call/4]).

-export([init/2, pre_init_per_suite/3, pre_init_per_testcase/4, post_end_per_testcase/5]).
-export([
    tls/1,
    encrypted/1,
    tls_options/2,
    listener/2,
    listen/3,
    ends/2,
    ssl_connect/2,
    until_closed/1,
    until_tcp_closed/1,
    connecting/3,
    ended/1,
    only_tls_owners/2,
    tls_owners/2,
    await_logged/2,
    node_of/2
]).

init(_Id, _Options) -> {ok, none}.

pre_init_per_suite(_Suite, Config, State) ->
    {inet_rdma_test_certificates:suite(Config, ["localhost"]), State}.

pre_init_per_testcase(_Suite, _Case, Config, State) -> {inet_rdma_test_pair:nodes(Config), State}.

post_end_per_testcase(_Suite, _Case, _Config, Result, State) ->
    ok = inet_rdma_test_node:stop_all(),
    {Result, State}.

%% Options of streams.

tls(Config) -> [{tls, tls_options(Config, good)}].

encrypted(Config) -> [{encrypt_shm, true} | tls(Config)].

%% As OTP's ssl has them, for the side that connects: both verify the peer and its revocation.
tls_options(Config, Kind) ->
    Directory = proplists:get_value(certificates, Config),
    Own = [
        {Key, filename:join(Directory, atom_to_list(Kind) ++ Ending)}
     || Kind =/= none, {Key, Ending} <- [{certfile, ".pem"}, {keyfile, ".key"}]
    ],
    Own ++
        [
            {cacertfile, filename:join(Directory, "ca.pem")},
            {verify, verify_peer},
            {crl_check, peer},
            {crl_cache, {ssl_crl_hash_dir, {internal, [{dir, Directory}]}}}
        ].

%% Options for a listener from those for the side that connects: adds the options of TLS that only a
%% server has.
server([{tls, Tls} | Rest]) when is_list(Tls) ->
    [{tls, [{fail_if_no_peer_cert, true} | Tls]} | server(Rest)];
server([Option | Rest]) ->
    [Option | server(Rest)];
server([]) ->
    [].

listener(Config, Options) -> inet_rdma_test_pair:listener(Config, server(Options)).

listen(Config, Port, Options) -> inet_rdma_test_pair:listen(Config, Port, server(Options)).

ends(Config, Options) ->
    {Port, Listening} = listener(Config, Options),
    join(Config, Port, Listening, Options).

%% Connects by ssl, from the node that runs the tests.
ssl_connect(Config, Port) ->
    ok = ssl:start(),
    ssl:connect(
        "localhost", Port, [binary, {active, false}, {packet, 4} | tls_options(Config, good)], 20000
    ).

%% Reads until the peer ends the connection. Returns the reason.
until_closed(Socket) ->
    case ssl:recv(Socket, 0, 20000) of
        {ok, _} -> until_closed(Socket);
        {error, Reason} when Reason =/= timeout -> Reason
    end.

%% As until_closed/1, over TCP without TLS.
until_tcp_closed(Socket) ->
    case gen_tcp:recv(Socket, 0, 20000) of
        {ok, _} -> until_tcp_closed(Socket);
        {error, Reason} when Reason =/= timeout -> Reason
    end.

%% Connects in a process of its own: ended/1 waits for the result.
connecting(Config, Port, Options) ->
    spawn_monitor(fun() -> exit(connect(Config, Port, Options)) end).

ended({Pid, Ref}) ->
    receive
        {'DOWN', Ref, process, Pid, Reason} -> Reason
    end.

%% Waits until the two nodes have these numbers of TLS owners. The process of a listener that
%% accepts counts as one.
only_tls_owners(Config, Counts) ->
    inet_rdma_test_wait:until({tls_owners, Counts}, 10000, fun() ->
        Now = [length(tls_owners(Name, Config)) || Name <- [a, b]],
        Now =:= Counts orelse Now
    end).

tls_owners(Name, Config) -> call(node_of(Name, Config), inet_rdma_test_tls_owners, all, []).

%% The log of the node that listens has these words.
await_logged(Config, Words) ->
    inet_rdma_test_log:await(node_of(b, Config), [Words]).

node_of(Name, Config) -> proplists:get_value(Name, Config).

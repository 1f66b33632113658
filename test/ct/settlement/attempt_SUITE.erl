%% How two nodes make the queue pair that they have settled on: one waits for the peer with a token,
%% the other connects with it. Two nodes without distribution, over shm; test/vm has the same over
%% verbs.
-module(attempt_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_testcase/2]).
-export([
    both_sides_meet/1,
    strangers_are_refused/1,
    an_attempt_that_nobody_joins_ends_in_time/1,
    a_forgotten_attempt_refuses_the_peer/1,
    death_of_the_process/1
]).
-export([
    many_at_once/1,
    cycles_leave_nothing/1,
    bad_arguments_are_refused/1,
    identity_names_host_user_and_instance/1,
    addresses_of_devices/1
]).
-export([refused_peers_are_logged/1, a_node_is_found_by_its_name/1, a_name_is_gone_with_its_node/1]).

-define(BOUND_MS, 60000).

suite() ->
    [{timetrap, {minutes, 2}}, {ct_hooks, [{inet_rdma_test_nodes, [only_rdma]}]}].

all() ->
    [
        both_sides_meet,
        strangers_are_refused,
        an_attempt_that_nobody_joins_ends_in_time,
        a_forgotten_attempt_refuses_the_peer,
        death_of_the_process,
        many_at_once,
        cycles_leave_nothing,
        bad_arguments_are_refused,
        identity_names_host_user_and_instance,
        addresses_of_devices,
        refused_peers_are_logged,
        a_node_is_found_by_its_name,
        a_name_is_gone_with_its_node
    ].

init_per_testcase(_Case, Config) ->
    inet_rdma_test_pair:nodes(Config).

both_sides_meet(Config) ->
    Token = token(),
    {Pid, Port} = expect(Config, Token, ?BOUND_MS),
    ?assertEqual({ok, []}, connect(Config, Port, Token)),
    {ok, <<"hello">>, shm, Why} = result(Config, Pid),
    ?assertEqual("both nodes settled on it: shared memory of this host", Why),
    %% An attempt takes one peer: a second one with the same token is refused.
    ?assertMatch({{error, {peer_misbehaved, _}}, []}, connect(Config, Port, Token)).

strangers_are_refused(Config) ->
    Token = token(),
    {Pid, Port} = expect(Config, Token, ?BOUND_MS),
    [
        ?assertMatch({{error, {peer_misbehaved, _}}, []}, connect(Config, Port, Token bxor Bits))
     || Bits <- [1, 1 bsl 63]
    ],
    ?assertEqual({ok, []}, connect(Config, Port, Token)),
    ?assertMatch({ok, <<"hello">>, shm, _}, result(Config, Pid)),
    %% The listener of a stream refuses a peer with a token.
    {StreamPort, _} = inet_rdma_test_pair:listener(Config, []),
    ?assertMatch({{error, {peer_misbehaved, _}}, []}, connect(Config, StreamPort, Token)).

an_attempt_that_nobody_joins_ends_in_time(Config) ->
    {Alone, Port} = expect(Config, token(), 50),
    ?assertEqual({error, etimedout}, result(Config, Alone)),
    ?assertMatch({{error, {peer_misbehaved, _}}, []}, connect(Config, Port, token())),
    %% The attempt with the earlier deadline ends first, though it came later.
    {Late, Port} = expect(Config, token(), ?BOUND_MS),
    {Early, Port} = expect(Config, token(), 50),
    ?assertEqual({error, etimedout}, result(Config, Early)),
    true = call(b, Config, erlang, is_process_alive, [Late]).

a_forgotten_attempt_refuses_the_peer(Config) ->
    is_refused_after(Config, fun(Pid) ->
        ok = call(b, Config, inet_rdma_test_settle, forget, [Pid])
    end).

death_of_the_process(Config) ->
    is_refused_after(Config, fun(Pid) -> true = call(b, Config, erlang, exit, [Pid, kill]) end).

%% Tries again if the peer was let in: the VM may collect the term of the attempt later.
is_refused_after(Config, End) ->
    inet_rdma_test_wait:until(peer_is_refused, 20000, fun() ->
        Token = token(),
        {Pid, Port} = expect(Config, Token, 3600000),
        End(Pid),
        case connect(Config, Port, Token) of
            {{error, {peer_misbehaved, _}}, []} -> true;
            {ok, []} -> false
        end
    end).

many_at_once(Config) ->
    Expected = [
        {Token, expect(Config, Token, ?BOUND_MS)}
     || Token <- [token() || _ <- lists:seq(1, 100)]
    ],
    Self = self(),
    [
        spawn_link(fun() -> Self ! {connected, connect(Config, Port, Token)} end)
     || {Token, {_, Port}} <- Expected
    ],
    [
        receive
            {connected, Result} -> ?assertEqual({ok, []}, Result)
        end
     || _ <- Expected
    ],
    [?assertMatch({ok, <<"hello">>, shm, _}, result(Config, Pid)) || {_, {Pid, _}} <- Expected].

cycles_leave_nothing(Config) ->
    Cycle = fun() ->
        Token = token(),
        {Pid, Port} = expect(Config, Token, ?BOUND_MS),
        {{error, _}, []} = connect(Config, Port, Token bxor 1),
        {ok, []} = connect(Config, Port, Token),
        {ok, <<"hello">>, shm, _} = result(Config, Pid),
        {Unmet, _} = expect(Config, Token, ?BOUND_MS),
        true = call(b, Config, erlang, exit, [Unmet, kill])
    end,
    [Cycle() || _ <- lists:seq(1, 10)],
    Nodes = [proplists:get_value(Name, Config) || Name <- [a, b]],
    Before = [{OsPid, inet_rdma_test_usage:footprint(Node)} || #{os_pid := OsPid} = Node <- Nodes],
    [Cycle() || _ <- lists:seq(1, 200)],
    [inet_rdma_test_os:await_footprint(OsPid, Footprint) || {OsPid, Footprint} <- Before].

bad_arguments_are_refused(Config) ->
    {ok, Options} = call(b, Config, inet_rdma_options, node, []),
    Valid = Options#{direct => always},
    [
        ?assertEqual({Args, badarg}, {Args, failure(Config, Function, Args)})
     || {Function, Args} <- [
            {expect_shm, [0, 1000, Valid]},
            {expect_shm, [1 bsl 64, 1000, Valid]},
            {expect_shm, [1, infinity, Valid]},
            {connect_shm, [<<"inet_rdma-0">>, 1, 1000, Valid]},
            {connect_shm, [inet_rdma_test_peer:nobody(), 0, 1000, Valid]},
            {expect, [verbs, <<>>, 0, 1000, Valid]},
            {expect, [tcp, <<"nowhere">>, 1, 1000, Valid]},
            {notify, [make_ref()]},
            {drop_attempt, [make_ref()]},
            {connect, [shm, <<"localhost">>, 1, 0, 1000, Valid]},
            {connect, [shm, <<"127.0.0.1">>, 65536, 0, 1000, Valid]},
            {connect, [shm, <<"127.0.0.1">>, 1, -1, 1000, Valid]},
            {stream, [make_ref(), none]},
            {verbs_addresses, [[<<"here">>]]}
        ]
    ],
    ?assertEqual(
        invalid_variant, failure(Config, connect, [sctp, <<"127.0.0.1">>, 1, 0, 1000, Valid])
    ).

failure(Config, Function, Args) ->
    call(b, Config, inet_rdma_test_settle, failure, [Function, Args]).

identity_names_host_user_and_instance(Config) ->
    [A, B] = [call(Node, Config, inet_rdma_nif, identity, []) || Node <- [a, b]],
    ct:pal("~p", [A]),
    #{boot := Boot, netns := Netns, user := User, instance := Instance} = A,
    ?assertEqual(A, B#{instance := Instance}),
    ?assertNotEqual(Instance, maps:get(instance, B)),
    ?assertEqual(A, call(a, Config, inet_rdma_nif, identity, [])),
    {ok, Read} = file:read_file("/proc/sys/kernel/random/boot_id"),
    ?assertEqual(string:trim(Read), Boot),
    {ok, Link} = file:read_link("/proc/self/ns/net"),
    ?assertEqual(Link, lists:flatten(io_lib:format("net:[~b]", [Netns band 16#ffffffff]))),
    ?assertEqual(string:trim(os:cmd("id -u")), integer_to_list(User)).

a_node_is_found_by_its_name(Config) ->
    Named = fun(Node) ->
        {ok, Name} = call(Node, Config, inet_rdma_nif, witness_name, []),
        Name
    end,
    Find = fun(Node, Name) -> call(Node, Config, inet_rdma_nif, find_witness, [Name]) end,
    [A, B] = Names = [Named(Node) || Node <- [a, b]],
    ?assertNotEqual(A, B),
    ?assertEqual(Names, [Named(Node) || Node <- [a, b]]),
    %% Links are expected under that name.
    {_Pid, B} = expect(Config, token(), ?BOUND_MS),
    #{user := User} = call(a, Config, inet_rdma_nif, identity, []),
    OsPid = list_to_integer(call(b, Config, os, getpid, [])),
    ?assertEqual({present, #{pid => OsPid, uid => User}}, Find(a, B)),
    ?assertEqual(absent, Find(a, inet_rdma_test_peer:nobody())),
    %% Whatever a peer says leads to no other socket.
    [
        ?assertEqual({Name, {error, einval}}, {Name, Find(a, Name)})
     || Name <- [
            <<>>,
            <<0>>,
            <<"inet_rdma/4369">>,
            <<B/binary, "0">>,
            binary:part(B, 0, 41),
            string:uppercase(B),
            <<"../", B/binary>>,
            <<0, B/binary>>,
            <<255, 254>>,
            binary:copy(<<"a">>, 4096)
        ]
    ],
    %% More than may wait to be accepted at a time.
    Before = inet_rdma_test_os:footprint(OsPid),
    [?assertMatch({present, _}, Find(a, B)) || _ <- lists:seq(1, 2000)],
    inet_rdma_test_os:await_footprint(OsPid, Before).

%% Killed, so that its own code does nothing from now on.
a_name_is_gone_with_its_node(_Config) ->
    A = inet_rdma_test_node:start("a"),
    B = inet_rdma_test_node:start("b"),
    {ok, Name} = inet_rdma_test_node:call(B, inet_rdma_nif, witness_name, []),
    Find = fun() -> inet_rdma_test_node:call(A, inet_rdma_nif, find_witness, [Name]) end,
    ?assertMatch({present, _}, Find()),
    ok = inet_rdma_test_node:kill(B),
    inet_rdma_test_wait:until(absent, 10000, fun() -> Find() =:= absent end).

addresses_of_devices(Config) ->
    Addresses = call(b, Config, inet_rdma_test_settle, addresses, []),
    ?assert(lists:member(<<"127.0.0.1">>, Addresses)),
    OfDevices = call(b, Config, inet_rdma_nif, verbs_addresses, [Addresses]),
    case {OfDevices, call(b, Config, inet_rdma_nif, check_verbs, [])} of
        {{ok, Found}, _} ->
            ct:pal("~p of ~p", [Found, Addresses]),
            ?assertEqual([], Found -- Addresses),
            ?assertNot(lists:member(<<"127.0.0.1">>, Found));
        {{error, Reason}, {error, Reason}} ->
            ct:pal("~ts", [inet_rdma:format_error(Reason)])
    end.

%% A stream's listener logs that it refused a peer with the token of a settlement. It logs only some
%% of many refusals.
refused_peers_are_logged(Config) ->
    ok = call(b, Config, inet_rdma_test_log, install, []),
    {Port, _} = inet_rdma_test_pair:listener(Config, []),
    Line = lists:flatten(
        io_lib:format("warning: inet_rdma: refused a peer on port ~b: wrong_token", [Port])
    ),
    Lines = fun() -> call(b, Config, inet_rdma_test_log, lines, []) end,
    {{error, _}, []} = connect(Config, Port, token()),
    inet_rdma_test_wait:until(logged, ?BOUND_MS, fun() -> Lines() =:= [Line] end),
    [{{error, _}, []} = connect(Config, Port, token()) || _ <- lists:seq(1, 40)],
    %% The listener handles peers in order: when it has accepted this stream it has logged the 40
    %% refusals before.
    {ok, _} = inet_rdma_test_pair:connect(Config, Port, []),
    inet_rdma_test_wait:until(logged, ?BOUND_MS, fun() -> length(Lines()) >= 10 end),
    ?assert(length(Lines()) < 41).

token() ->
    rand:uniform(1 bsl 64 - 2) + 1.

expect(Config, Token, TimeoutMs) ->
    call(b, Config, inet_rdma_test_settle, expect, [shm, <<>>, Token, TimeoutMs]).

connect(Config, Port, Token) ->
    call(a, Config, inet_rdma_test_settle, connect, [shm, <<"127.0.0.1">>, Port, Token, ?BOUND_MS]).

result(Config, Pid) ->
    call(b, Config, inet_rdma_test_settle, result, [Pid]).

call(Node, Config, Module, Function, Args) ->
    inet_rdma_test_node:call(proplists:get_value(Node, Config), Module, Function, Args).

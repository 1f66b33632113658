%% Keys of links that begin inside TLS: which links are encrypted, and new keys under load and under
%% cuts.
-module(tls_keys_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_node, [start/2, call/4, name/1]).
-import(inet_rdma_test_tls, [node_of/4, pair/2]).
-import(inet_rdma_test_link, [connect/2, gone/2]).

-export([all/0, suite/0, init_per_testcase/2]).
-export([
    settled_keys_are_collected/1,
    encrypted_shared_memory/1,
    new_keys_under_load/1,
    new_keys_under_cuts/1
]).

suite() ->
    [{timetrap, {minutes, 5}}, {ct_hooks, [inet_rdma_test_tls]}].

all() ->
    [
        settled_keys_are_collected,
        encrypted_shared_memory,
        new_keys_under_load,
        new_keys_under_cuts
    ].

init_per_testcase(new_keys_under_cuts, Config) ->
    inet_rdma_test_cutter:needed(Config);
init_per_testcase(_Case, Config) ->
    Config.

%% A supervisor that has made a key collects its heap once the link is settled, whichever side
%% connects.
settled_keys_are_collected(Config) ->
    [A, B] = pair(Config, [{encrypt_shm, true}]),
    Tracers = [{Node, call(Node, inet_rdma_test_keys, trace, [])} || Node <- [A, B]],
    [
        begin
            connect(X, Y),
            [ok = inet_rdma_test_link:await(P, Q, shm) || {P, Q} <- [{X, Y}, {Y, X}]],
            [
                inet_rdma_test_wait:until({collected, name(Node)}, 10000, fun() ->
                    case call(Node, inet_rdma_test_keys, holders, [Tracer]) of
                        [_ | _] = Holders ->
                            lists:all(fun({_, Last}) -> Last =:= collected end, Holders) orelse
                                Holders;
                        [] ->
                            none
                    end
                end)
             || {Node, Tracer} <- Tracers
            ],
            ok = inet_rdma_test_link:disconnect(X, Y)
        end
     || {X, Y} <- [{A, B}, {B, A}]
    ].

%% Shared memory is encrypted if one node has the option encrypt_shm.
encrypted_shared_memory(Config) ->
    Start = fun(Name, EncryptShm) ->
        start(Name, node_of(Config, "inet_rdma", good, [{encrypt_shm, EncryptShm}]))
    end,
    [Wants, Also, Not, Neither] = [
        Start("w", true), Start("a", true), Start("n", false), Start("m", false)
    ],
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
     || {X, Y, Encrypted} <- [
            {Wants, Not, true}, {Not, Wants, true}, {Wants, Also, true}, {Not, Neither, false}
        ]
    ],
    inet_rdma_test_node:kill(Also),
    connect(Wants, Not),
    inet_rdma_test_node:kill(Wants),
    gone(Not, Wants).

cipher(A, B) -> maps:get(cipher, call(A, inet_rdma, info, [name(B)])).

%% Key after key, both ways, while messages of all sizes go both ways: nothing is lost, and each
%% side follows the other.
new_keys_under_load(Config) ->
    Options = [{encrypt_shm, true}, {rekey_bytes, 65536}],
    [A, B] = pair(Config, Options),
    connect(A, B),
    {Pinger, Ref} = spawn_monitor(fun() ->
        exit(call(A, inet_rdma_test_remote, longest_call, [name(B), 3000]))
    end),
    Sizes = [0, 1, 100, 1000, 65536, 300000, 1 bsl 20, 1 bsl 22, 1 bsl 24],
    [ok = inet_rdma_test_link:exercise(X, Y) || {X, Y} <- [{A, B}, {B, A}]],
    [ok, ok] = [
        call(X, inet_rdma_test_data, echo_and_compare, [name(Y), Sizes])
     || {X, Y} <- [{A, B}, {B, A}]
    ],
    {Calls, LongestUs} =
        receive
            {'DOWN', Ref, process, Pinger, Seen} -> Seen
        end,
    Generations = fun(X, Y) ->
        #{key_generation := Own, peer_key_generation := Peers} = call(X, inet_rdma, info, [name(Y)]),
        {Own, Peers}
    end,
    ct:pal("generations ~p; ~b calls meanwhile, the longest of ~b us", [
        Generations(A, B), Calls, LongestUs
    ]),
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

%% By bytes and by age, of TCP connections that are cut, and of a queue pair beside them.
new_keys_under_cuts(Config) ->
    [
        begin
            Given = Options ++ [{rekey_bytes, 65536}, {rekey_seconds, 1}],
            [#{os_pid := PidA} = A, #{os_pid := PidB} = B] = pair(Config, Given),
            connect(A, B),
            ok = inet_rdma_test_link:await(A, B, Fabric),
            Traffic = inet_rdma_test_traffic:start(A, B),
            Cutter = inet_rdma_test_cutter:start([{PidA, PidB}], 200, 600),
            ok = inet_rdma_test_cutter:await_cuts(Cutter, 10),
            Cuts = inet_rdma_test_cutter:stop(Cutter),
            ok = inet_rdma_test_cutter:await(PidA, PidB),
            %% The keys of a new connection begin again. A link without a connection has none.
            Generations = inet_rdma_test_wait:until(new_keys, 20000, fun() ->
                case call(A, inet_rdma, info, [name(B)]) of
                    #{key_generation := Own, peer_key_generation := Peers} when
                        Own > 0, Peers > 0
                    ->
                        {ok, {Own, Peers}};
                    Other ->
                        Other
                end
            end),
            Figures = inet_rdma_test_traffic:stop(Traffic),
            ct:pal(
                "~p: ~b cuts, generations ~p~n~ts",
                [Fabric, Cuts, Generations, inet_rdma_test_traffic:figures_text(Figures)]
            ),
            ?assert(Cuts > 0),
            ?assertEqual(#{}, inet_rdma_test_traffic:disturbances(Figures)),
            inet_rdma_test_node:stop_all()
        end
     || {Fabric, Options} <- [{tcp, [{fabric, tcp}]}, {shm, [{fabric, shm}, {encrypt_shm, true}]}]
    ].

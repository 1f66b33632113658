%% Messages that break the rules of the settlement, from peers of the right cookie: each ends the
%% link with a reason in the log.
-module(settlement_rules_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include("../../../src/settlement/inet_rdma_settling.hrl").

-import(inet_rdma_test_scripted, [offered/0, node_with_sink/1, with_peer/4, same_host/1, answer/2]).
-import(inet_rdma_test_link, [gone/2]).

-export([all/0, suite/0]).
-export([
    peers_that_break_the_rules/1,
    peers_that_break_the_rules_as_initiator/1,
    any_bytes_in_the_settlement/1
]).

-define(PEERS_AT_ONCE, 12).

suite() ->
    [{timetrap, {minutes, 5}}, {ct_hooks, [{inet_rdma_test_nodes, [only_rdma]}]}].

all() ->
    [
        peers_that_break_the_rules,
        peers_that_break_the_rules_as_initiator,
        any_bytes_in_the_settlement
    ].

%% Messages with bits flipped, bytes cut off or added, and parts replaced by other terms, over TCP
%% and inside TLS: each is taken, or refused in words, and none makes an atom. A message with a key
%% is none over TCP, one without it none inside TLS.
any_bytes_in_the_settlement(_Config) ->
    Seed = rand:seed_s(exsss),
    ct:log("~p", [rand:export_seed_s(Seed)]),
    _ = rand:seed(Seed),
    Connections = [inet_rdma_transport:tcp(inet_tcp, none), inet_rdma_transport:tls(none, self())],
    Settlings = [
        #settling{
            role = acceptor,
            channel = {inet_rdma_transport, Connection},
            node = <<>>,
            config = #{},
            own = #{},
            deadline = 0
        }
     || Connection <- Connections
    ],
    Messages = messages(),
    Names = lists:usort([element(1, Message) || {_, Message} <- Messages]),
    Judge = fun(Settling, Bytes) ->
        try inet_rdma_settlement_message:parse(Settling, Bytes, Names) of
            Taken ->
                ?assert(is_tuple(Taken)),
                taken
        catch
            throw:{broken, Why} ->
                ?assert(is_binary(Why)),
                refused
        end
    end,
    [Tcp, Tls] = Settlings,
    [
        ?assertEqual(
            {Message, [lists:member(Protocol, Where) || Protocol <- [tcp, tls]]},
            {Message, [
                Judge(Settling, term_to_binary(Message)) =:= taken
             || Settling <- [Tcp, Tls]
            ]}
        )
     || {Where, Message} <- Messages
    ],
    Atoms = erlang:system_info(atom_count),
    Judged = [
        Judge(Settling, changed(Message, rand:uniform(5)))
     || _ <- lists:seq(1, 400), {_, Message} <- Messages, Settling <- Settlings
    ],
    ?assertEqual(Atoms, erlang:system_info(atom_count)),
    ct:pal("~b taken, ~b refused", [
        length([x || taken <- Judged]), length([x || refused <- Judged])
    ]).

%% {Protocols, Message}: each message of the settlement, and where it is valid in this form.
messages() ->
    Key = binary:copy(<<5>>, 32),
    Facts = #{
        fabric => auto,
        required => false,
        timeout_ms => 5000,
        boot => <<"b">>,
        netns => 1,
        user => 0,
        instance => 1
    },
    Tls = Facts#{cipher => aes_256_gcm, encrypt_shm => false},
    Place = {inet_rdma_test_peer:nobody(), 7},
    Listens = {listens, 50000, 1 bsl 60, [<<"10.0.0.1">>, <<"::1">>]},
    [
        {[tcp], {hello, Facts}},
        {[tcp], {hello, Facts#{place => Place}}},
        {[tcp, tls], {hello, Tls}},
        {[tcp, tls], {hello, Tls#{place => Place, place_key => Key}}},
        {[tcp], {hello, Tls#{place => Place}}},
        {[tcp], {listens, inet_rdma_test_peer:nobody(), 7, []}},
        {[tcp], {'try', verbs}},
        {[tls], {'try', verbs, Key}},
        {[], {'try', verbs, <<1>>}},
        {[tcp], Listens},
        {[tls], erlang:append_element(Listens, Key)},
        {[], erlang:append_element(Listens, none)},
        {[tcp, tls], {ready}},
        {[tcp, tls], {go}},
        {[tls], {go, Key}},
        {[], {go, none}},
        {[tcp, tls], {failed, shm, <<"no">>}},
        {[tcp, tls], {stay, <<"no">>}},
        {[tcp, tls], {stayed}}
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
    Terms = [
        0,
        -1,
        1 bsl 70,
        1.5,
        [],
        [a | b],
        lists:seq(1, 300),
        #{},
        {},
        <<>>,
        <<1:3>>,
        rand:bytes(32),
        rand:bytes(5000),
        shm,
        none,
        true,
        self(),
        fun() -> ok end,
        {65536, 1},
        {1, 1 bsl 64},
        [<<"not an address">>],
        make_ref()
    ],
    lists:nth(rand:uniform(length(Terms)), Terms).

%% Each answer ends the link with a reason in the log, at once or within the bound of the
%% settlement.
peers_that_break_the_rules(_Config) ->
    A = node_with_sink([{fallback_retry_ms, 0}]),
    all_broken(acceptor, A, rules_broken() ++ rules_broken_by_an_acceptor(A)).

peers_that_break_the_rules_as_initiator(_Config) ->
    A = node_with_sink([{fallback_retry_ms, 0}]),
    all_broken(initiator, A, rules_broken() ++ rules_broken_by_an_initiator(A)).

%% {What, what the peer says, in its order}.
rules_broken() ->
    {hello, Facts} = Hello = inet_rdma_test_peer:hello(),
    Nobody = inet_rdma_test_peer:nobody(),
    Instead = [
        {garbage, {raw, <<"GET / HTTP/1.1\r\n\r\n">>}},
        {empty, {raw, <<>>}},
        {half_a_term, {raw, binary:part(term_to_binary(Hello), 0, 20)}},
        {unknown_atom, {raw, <<131, 104, 1, 119, 40, (binary:copy(<<"never_seen">>, 4))/binary>>}},
        {unknown_fun, {raw, term_to_binary(fun() -> Hello end)}},
        {huge_term, {say, binary:copy(<<"x">>, 65000)}},
        {huge_hello, {say, {hello, lists:seq(1, 10000)}}},
        {inflated, {raw, term_to_binary(binary:copy(<<0>>, 20000000), [compressed])}},
        %% A hello that is right but for the compression.
        {compressed_hello, {raw, compressed({hello, Facts#{filling => binary:copy(<<0>>, 1000)}})}},
        {number, {say, 7}},
        {no_tuple, {say, []}},
        {empty_tuple, {say, {}}},
        {other_message, {say, {ready}}},
        {go, {say, {go}}},
        {try_before_hello, {say, {'try', shm}}},
        {hello_of_nothing, {say, {hello, #{}}}},
        {hello_of_a_list, {say, {hello, maps:to_list(Facts)}}}
    ],
    Wrong = [
        {Key, {say, {hello, Facts#{Key => Value}}}}
     || {Key, Values} <- [
            {fabric, [1, <<"shm">>]},
            {required, [1, maybe_so]},
            {boot, [boot, 1, <<1:1>>]},
            {netns, [1.0, a]},
            {user, [root]},
            {instance, [<<"1">>]},
            {timeout_ms, [0, -1, infinity]},
            {place, [
                {Nobody, 0},
                {Nobody, -1},
                {Nobody, 1 bsl 64},
                {1, 1},
                {<<"inet_rdma-">>, 1},
                {<<Nobody/binary, "0">>, 1},
                {<<0, Nobody:41/binary>>, 1},
                {Nobody},
                1,
                []
            ]}
        ],
        Value <- Values
    ],
    Behind = [
        {two_hellos, [{say, Hello}, {say, Hello}]},
        {garbage_behind_hello, [{say, Hello}, {raw, <<"garbage">>}]},
        {go_before_anything, [{say, Hello}, {say, {go}}]},
        {ready_before_anything, [{say, Hello}, {say, {ready}}]}
    ],
    [{What, [Answer]} || {What, Answer} <- Instead ++ Wrong] ++ Behind.

%% The node initiates, and believes that shared memory leads to the peer.
rules_broken_by_an_acceptor(A) ->
    Hello = {say, same_host(A)},
    [
        {What, [Hello, Answer]}
     || {What, Answer} <- [
            {ready_instead_of_listens, {say, {ready}}},
            {try_from_the_acceptor, {say, {'try', shm}}},
            {no_port, {say, {listens, 0, 1, []}}},
            {large_port, {say, {listens, 65536, 1, []}}},
            {negative_token, {say, {listens, 1, -1, []}}},
            {large_token, {say, {listens, 1, 1 bsl 64, []}}},
            {addresses_are_none, {say, {listens, 1, 1, localhost}}},
            {no_address, {say, {listens, 1, 1, [<<"localhost">>]}}},
            {a_port_over_shm, {say, {listens, 1, 1, [<<"127.0.0.1">>]}}},
            {addresses_over_shm,
                {say, {listens, inet_rdma_test_peer:nobody(), 1, [<<"127.0.0.1">>]}}},
            {improper_list, {say, {listens, 1, 1, [<<"127.0.0.1">> | <<"127.0.0.1">>]}}},
            {no_text, {say, {failed, shm, <<255, 254>>}}},
            {garbage_instead_of_listens, {raw, <<"garbage">>}}
        ]
    ].

rules_broken_by_an_initiator(A) ->
    Hello = {say, same_host(A)},
    [
        {What, [Hello | Answers]}
     || {What, Answers} <- [
            {unknown_fabric, [{say, {'try', carrier_pigeon}}]},
            {tcp_is_no_fabric, [{say, {'try', tcp}}]},
            {go_without_ready, [{say, {'try', shm}}, {say, {go}}]},
            {go_without_connecting, [{say, {go}}]},
            {garbage_instead_of_connecting, [{say, {'try', shm}}, {raw, <<"garbage">>}]},
            {no_text, [{say, {stay, <<255, 254>>}}]},
            {huge_text, [{say, {stay, binary:copy(<<"why ">>, 16000)}}]},
            {second_try, [
                {say, {'try', shm}}, {say, {failed, shm, <<"no memory">>}}, {say, {'try', shm}}
            ]},
            {no_end_of_tries, lists:duplicate(2000, {say, {'try', shm}})}
        ]
    ].

compressed(Term) ->
    <<131, 80, _/binary>> = term_to_binary(Term, [compressed]).

%% Many peers at once: after each a node that initiates waits for a second.
all_broken(_Role, _A, []) ->
    ok;
all_broken(Role, A, List) ->
    {AtOnce, Rest} = lists:split(min(?PEERS_AT_ONCE, length(List)), List),
    Peers = [
        {What, spawn_monitor(fun() -> broken(Role, A, Answers) end)}
     || {What, Answers} <- AtOnce
    ],
    Ends = [
        {What,
            receive
                {'DOWN', Ref, process, Peer, Reason} -> Reason
            end}
     || {What, {Peer, Ref}} <- Peers
    ],
    ?assertEqual([], [End || {_, Reason} = End <- Ends, Reason =/= normal]),
    all_broken(Role, A, Rest).

broken(Role, A, Answers) ->
    with_peer(Role, A, offered(), fun(Link, Peer) ->
        {hello, _} = inet_rdma_test_peer:hear(Link),
        _ = [answer(Link, Answer) || Answer <- Answers],
        ok = inet_rdma_test_peer:await_end(Link),
        inet_rdma_test_log:await(A, ["inet_rdma", Peer, "settle"]),
        gone(A, Peer)
    end),
    ?assertEqual([], call(A, inet_rdma, info, [])).

call(Node, Module, Function, Args) -> inet_rdma_test_node:call(Node, Module, Function, Args).

%% Detours: connections over a neighbour, made by hand, to a server in place of the third node's
%% listener.
-module(detour_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_node, [call/4, name/1]).

-export([all/0, suite/0, groups/0, init_per_testcase/2]).
-export([
    all_bytes_arrive_in_order/1,
    an_orderly_end_follows_all_bytes/1,
    resume_over_it/1,
    wrong_requests_open_nothing/1,
    detours_of_one_asker_are_bounded/1,
    a_flood_of_requests_is_closed/1,
    strangers_keep_no_asker_out/1,
    no_detour_over_a_detour/1,
    death_of_the_neighbour/1,
    detours_live_through_new_code/1,
    the_option_switches_detours_off/1,
    tells_the_peer/1,
    a_hidden_node_is_reached_by_a_detour/1
]).

-define(SIZES, [1, 2, 100, 1460, 65535, 65536, 65537, 1048576]).
-define(OF_ASKER_MAX, 8).
-define(ASK_MS, 10000).
-define(CROWD, 200).
%% Requests without a proof, of all and from one address.
-define(ASKING_MAX, 32).
-define(ASKING_OF_ORIGIN_MAX, 8).
%% More lines than a crowd of strangers may leave in the log.
-define(LINES, 20).

suite() ->
    [{timetrap, {minutes, 4}}, {ct_hooks, [{inet_rdma_test_nodes, [only_rdma, paths]}]}].

all() ->
    [{group, Group} || {Group, _, _} <- groups()].

groups() ->
    Cases = [
        all_bytes_arrive_in_order,
        an_orderly_end_follows_all_bytes,
        resume_over_it,
        wrong_requests_open_nothing,
        detours_of_one_asker_are_bounded,
        no_detour_over_a_detour,
        death_of_the_neighbour,
        detours_live_through_new_code
    ],
    [
        {tcp, [],
            Cases ++
                [
                    a_flood_of_requests_is_closed,
                    strangers_keep_no_asker_out,
                    the_option_switches_detours_off,
                    tells_the_peer,
                    a_hidden_node_is_reached_by_a_detour
                ]},
        {tls, [], Cases}
    ].

%% Three nodes with links between all of them, and a server that the second one takes for the third
%% one's listener.
init_per_testcase(Case, Config) ->
    [OfA, OfB, OfC] = [
        inet_rdma_test_paths:options(Config, #{
            rdma => [{move, never}] ++ more(Case, Node),
            args => args(Case, Node)
        })
     || Node <- [a, b, c]
    ],
    [A, B, C] = inet_rdma_test_node:start_all([{"a", OfA}, {"b", OfB}, {"c", OfC}]),
    [pong = call(X, net_adm, ping, [name(Y)]) || {X, Y} <- [{A, B}, {A, C}, {B, C}]],
    [wait_for_link(X, Y) || X <- [A, B, C], Y <- [A, B, C], X =/= Y],
    {ok, Server} = gen_tcp:listen(0, [
        binary, {active, false}, {packet, raw}, {backlog, 128}, {show_econnreset, true}
    ]),
    {ok, Port} = inet:port(Server),
    case Case =/= resume_over_it of
        true -> ok = call(B, inet_rdma_test_asker, set_listens, [name(C), Port]);
        false -> ok
    end,
    [{a, A}, {b, B}, {c, C}, {server, Server} | Config].

more(the_option_switches_detours_off, b) -> [{detour, false}];
more(_, _) -> [].

args(a_hidden_node_is_reached_by_a_detour, c) -> ["-hidden"];
args(_, _) -> [].

wait_for_link(X, Y) ->
    inet_rdma_test_wait:until({link, name(X), name(Y)}, 10000, fun() ->
        call(X, inet_rdma_links, session_of, [atom_to_binary(name(Y))]) =/= none
    end).

%% All arrive, in order, both ways at the same time, and nothing is left behind.
all_bytes_arrive_in_order(Config) ->
    [A, B] = nodes_of([a, b], Config),
    over(Config, fun(_, _) -> ok end),
    Before = [{Node, inet_rdma_test_usage:of_node(Node)} || Node <- [A, B]],
    over(Config, fun(Asker, Socket) ->
        [
            begin
                [To, Back] = [rand:bytes(Size), rand:bytes(Size)],
                Self = self(),
                Reader = spawn_link(fun() -> Self ! {self(), gen_tcp:recv(Socket, Size, 30000)} end),
                Writer = spawn_link(fun() -> Self ! {self(), gen_tcp:send(Socket, Back)} end),
                ok = call(A, inet_rdma_test_asker, send, [Asker, To]),
                ?assertEqual({ok, Back}, call(A, inet_rdma_test_asker, recv, [Asker, Size, 30000])),
                receive
                    {Reader, Read} -> ?assertEqual({ok, To}, Read)
                end,
                receive
                    {Writer, Wrote} -> ?assertEqual(ok, Wrote)
                end
            end
         || Size <- ?SIZES
        ],
        ?assertEqual(
            [{atom_to_binary(name(A)), atom_to_binary(name(proplists:get_value(c, Config)))}],
            call(B, inet_rdma_detours, relayed, [])
        )
    end),
    #{detour_bytes := Bytes, detours_relayed := 2} = counts(B),
    ?assertEqual(2 * lists:sum(?SIZES), Bytes),
    ?assertMatch(#{detours_asked := 2, detours_opened := 2}, counts(A)),
    none_carried(B),
    [ok = inet_rdma_test_usage:await(Node, Usage) || {Node, Usage} <- Before].

counts(Node) -> maps:from_list(call(Node, inet_rdma_links, counts, [])).

none_carried(Node) ->
    inet_rdma_test_wait:until(none_carried, 20000, fun() ->
        case call(Node, inet_rdma_test_asker, relays, []) of
            [] -> true;
            Relays -> Relays
        end
    end).

%% With an asker at one end, and the server's socket at the other.
over(Config, Do) ->
    [A, B] = nodes_of([a, b], Config),
    {ok, Asker, Via} = open(Config),
    ?assertEqual(atom_to_binary(name(B)), Via),
    {ok, Socket} = gen_tcp:accept(proplists:get_value(server, Config), 20000),
    Done = Do(Asker, Socket),
    _ = catch call(A, inet_rdma_test_asker, close, [Asker, in_order]),
    gen_tcp:close(Socket),
    Done.

open(Config) ->
    [A, C] = nodes_of([a, c], Config),
    call(A, inet_rdma_test_asker, open, [name(C), ?ASK_MS]).

%% An orderly end arrives after all bytes; any other is a reset. Each end does both.
an_orderly_end_follows_all_bytes(Config) ->
    A = proplists:get_value(a, Config),
    Large = rand:bytes(300000),
    over(Config, fun(Asker, Socket) ->
        ok = call(A, inet_rdma_test_asker, send, [Asker, Large]),
        ok = call(A, inet_rdma_test_asker, close, [Asker, in_order]),
        ?assertEqual({ok, Large}, gen_tcp:recv(Socket, byte_size(Large), 20000)),
        ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0, 20000))
    end),
    over(Config, fun(Asker, Socket) ->
        ok = gen_tcp:send(Socket, Large),
        ok = gen_tcp:close(Socket),
        ?assertEqual(
            {ok, Large}, call(A, inet_rdma_test_asker, recv, [Asker, byte_size(Large), 20000])
        ),
        ?assertEqual(closed, call(A, inet_rdma_test_asker, end_of, [Asker, 20000]))
    end),
    over(Config, fun(Asker, Socket) ->
        ok = call(A, inet_rdma_test_asker, close, [Asker, reset]),
        ?assertEqual({error, econnreset}, gen_tcp:recv(Socket, 0, 20000))
    end),
    over(Config, fun(Asker, Socket) ->
        ok = inet:setopts(Socket, [{linger, {true, 0}}]),
        ok = gen_tcp:close(Socket),
        ?assertEqual(econnreset, call(A, inet_rdma_test_asker, end_of, [Asker, 20000]))
    end),
    none_carried(proplists:get_value(b, Config)).

%% Leads to the third node's own listener, which takes what comes for an attempt to resume.
resume_over_it(Config) ->
    [A, C] = nodes_of([a, c], Config),
    case proplists:get_value(path, Config) of
        tcp ->
            {ok, Asker, _Via} = open(Config),
            Unknown = call(A, inet_rdma_test_asker, unknown, []),
            ok = call(A, inet_rdma_test_asker, send, [Asker, [<<(byte_size(Unknown)):16>>, Unknown]]),
            ?assertMatch(
                {ok, <<17:16, $u, _Nonce:16/binary>>},
                call(A, inet_rdma_test_asker, recv, [Asker, 19, 20000])
            );
        tls ->
            ?assertMatch(
                {ok, <<$u, _Nonce:16/binary>>},
                call(A, inet_rdma_test_asker, resume_inside_tls, [name(C), ?ASK_MS])
            )
    end.

%% By what the request says: nothing is opened.
wrong_requests_open_nothing(Config) ->
    [A, B, C] = nodes_of([a, b, c], Config),
    To = atom_to_binary(name(C)),
    Asked = fun(Node, Changed) -> call(A, inet_rdma_test_asker, ask, [name(B), Node, Changed]) end,
    ?assertEqual(<<$u>>, Asked(To, name)),
    ?assertEqual(closed, Asked(To, proof)),
    ?assertEqual(<<$n>>, Asked(To, version)),
    ?assertEqual(<<$n>>, Asked(<<"nobody@nowhere">>, none)),
    ?assertEqual(<<$n>>, Asked(atom_to_binary(name(A)), none)),
    ?assertEqual(<<$n>>, Asked(atom_to_binary(name(B)), none)),
    #{detours_refused := 6} = counts(B),
    false = maps:is_key(detours_relayed, counts(B)),
    none_carried(B),
    ?assertEqual(<<$d>>, Asked(To, none)),
    linked(Config).

linked(Config) ->
    Nodes = nodes_of([a, b, c], Config),
    [
        ?assertEqual(name(Y), call(X, erpc, call, [name(Y), erlang, node, []]))
     || X <- Nodes, Y <- Nodes, X =/= Y
    ].

%% The detours of one asker are bounded. When one ends there is a place again, though not for a
%% neighbour that has just refused.
detours_of_one_asker_are_bounded(Config) ->
    [A, B, C] = nodes_of([a, b, c], Config),
    Open = [open(Config) || _ <- lists:seq(1, ?OF_ASKER_MAX)],
    ?assertEqual(?OF_ASKER_MAX, length([Asker || {ok, Asker, _} <- Open])),
    ?assertEqual({error, busy}, open(Config)),
    ?assertEqual({error, no_neighbour}, open(Config)),
    [{ok, One, _} | _] = Open,
    ok = call(A, inet_rdma_test_asker, close, [One, in_order]),
    inet_rdma_test_wait:until(a_place, 20000, fun() ->
        call(A, inet_rdma_test_asker, ask, [name(B), atom_to_binary(name(C)), none]) =:= <<$d>>
    end),
    linked(Config).

%% A flood of requests without a proof: each is closed, and the node goes on.
a_flood_of_requests_is_closed(Config) ->
    [A, B, C] = nodes_of([a, b, c], Config),
    ok = call(B, inet_rdma_test_log, install, []),
    Before = inet_rdma_test_usage:of_node(B),
    Name = inet_rdma_session:name(call(A, inet_rdma_test_asker, session, [name(B)])),
    Crowd = inet_rdma_test_stranger:crowd(inet_rdma_test_node:port(B), ?CROWD, fun(_) ->
        request(Name, name(C))
    end),
    inet_rdma_test_wait:until(all_closed, 30000, fun() ->
        case inet_rdma_test_stranger:left(Crowd) of
            0 -> true;
            Left -> {open, Left}
        end
    end),
    ok = inet_rdma_test_stranger:leave(Crowd),
    ?assertEqual(?CROWD, maps:get(detours_refused, counts(B))),
    ?assert(length(call(B, inet_rdma_test_log, lines, [])) < ?LINES),
    none_carried(B),
    ok = call(B, inet_rdma_test_log, forget, []),
    ok = inet_rdma_test_usage:await(B, Before),
    over(Config, fun(_, _) -> linked(Config) end).

request(Name, To) ->
    Request =
        <<"inet_rdma detour", 1, Name/binary, (rand:bytes(16))/binary,
            (atom_to_binary(To))/binary>>,
    [<<(byte_size(Request)):16>>, Request].

%% That know the session's name, and hold as many requests open as they may: from one address, from
%% the asker's own, and from more addresses than the bound of all has room for. The asker gets its
%% detour.
strangers_keep_no_asker_out(Config) ->
    [A, B, C] = nodes_of([a, b, c], Config),
    Name = inet_rdma_session:name(call(A, inet_rdma_test_asker, session, [name(B)])),
    {Own, _} = call(A, inet_rdma_detours, fact, [Name, listens]),
    Each = ?ASKING_MAX + ?ASKING_OF_ORIGIN_MAX,
    [
        begin
            Before = maps:get(detours_refused, counts(B), 0),
            Crowds = [
                inet_rdma_test_stranger:crowd(
                    From,
                    inet_rdma_test_node:port(B),
                    Each,
                    fun(_) -> request(Name, name(C)) end
                )
             || From <- Origins
            ],
            inet_rdma_test_wait:until({held, Origins}, 10000, fun() ->
                Refused = maps:get(detours_refused, counts(B), 0) - Before,
                Now = {Refused, length(call(B, inet_rdma_test_asker, relays, []))},
                Now =:= {Each * length(Origins) - Held, Held} orelse Now
            end),
            ?assertEqual(
                {Origins, <<$d>>},
                {Origins,
                    call(A, inet_rdma_test_asker, ask, [name(B), atom_to_binary(name(C)), none])}
            ),
            _ = [ok = inet_rdma_test_stranger:leave(Crowd) || Crowd <- Crowds],
            none_carried(B)
        end
     || {Origins, Held} <- [
            {[{127, 0, 0, 2}], ?ASKING_OF_ORIGIN_MAX},
            {[Own], ?ASKING_OF_ORIGIN_MAX},
            {[{127, 0, 0, Last} || Last <- lists:seq(2, 6)], ?ASKING_MAX}
        ]
    ],
    linked(Config).

%% Neither the asker nor the neighbour uses a link that is on a detour itself.
no_detour_over_a_detour(Config) ->
    [A, B, C] = nodes_of([a, b, c], Config),
    ok = tell(A, B),
    ?assertEqual({error, no_neighbour}, open(Config)),
    ?assertMatch(#{detoured := true}, call(A, inet_rdma, info, [name(B)])),
    ?assertEqual(none, restored(A, B)),
    ?assertMatch(#{detoured := false}, call(A, inet_rdma, info, [name(B)])),
    [
        begin
            ok = tell(B, Peer),
            ?assertEqual(
                <<$n>>, call(A, inet_rdma_test_asker, ask, [name(B), atom_to_binary(name(C)), none])
            ),
            ?assertEqual(none, restored(B, Peer))
        end
     || Peer <- [A, C]
    ],
    over(Config, fun(_, _) -> ok end).

%% The first node is told that its link to the second one is on a detour.
tell(X, Y) ->
    Told = inet_rdma_detour:message(<<"d@there">>),
    true = call(X, inet_rdma_detour, handle_message, [session(X, Y), Told]),
    ok.

restored(X, Y) -> call(X, inet_rdma_detour, handle_restored, [session(X, Y)]).

session(X, Y) -> call(X, inet_rdma_test_asker, session, [name(Y)]).

%% Not an end in order, which would speak of the peer.
death_of_the_neighbour(Config) ->
    [A, B, C] = nodes_of([a, b, c], Config),
    over(Config, fun(Asker, Socket) ->
        pass(A, Asker, Socket, <<"passes">>),
        ok = inet_rdma_test_node:kill(B),
        ?assertEqual({error, econnreset}, gen_tcp:recv(Socket, 0, 20000)),
        ?assertEqual(econnreset, call(A, inet_rdma_test_asker, end_of, [Asker, 20000]))
    end),
    ?assertEqual(name(C), call(A, erpc, call, [name(C), erlang, node, []])).

%% Loaded again twice under open detours, which go on and keep no upgrade waiting.
detours_live_through_new_code(Config) ->
    [A, B] = nodes_of([a, b], Config),
    over(Config, fun(Asker, Socket) ->
        pass(A, Asker, Socket, <<"passes">>),
        {module, _} = call(B, code, load_file, [inet_rdma_detour_relay]),
        %% The relay may still be in the call that has passed the bytes.
        inet_rdma_test_wait:until(purged, 20000, fun() ->
            call(B, code, soft_purge, [inet_rdma_detour_relay])
        end),
        ok = call(B, inet_rdma_test_remote, reload, [
            [inet_rdma_detour_relay, inet_rdma_detours, inet_rdma_sup]
        ]),
        pass(A, Asker, Socket, <<"still here">>)
    end),
    none_carried(B).

%% The asker's bytes arrive. The detour is open on both sides then: the neighbour's last step
%% follows its answer.
pass(Node, Asker, Socket, Bytes) ->
    ok = call(Node, inet_rdma_test_asker, send, [Asker, Bytes]),
    ?assertEqual({ok, Bytes}, gen_tcp:recv(Socket, byte_size(Bytes), 20000)).

%% By the option, on the neighbour and on the asker.
the_option_switches_detours_off(Config) ->
    [A, B, C] = nodes_of([a, b, c], Config),
    ?assertEqual({error, no_link}, open(Config)),
    ?assertEqual({error, off}, call(B, inet_rdma_test_asker, open, [name(C), ?ASK_MS])),
    ?assertEqual(
        <<$n>>, call(A, inet_rdma_test_asker, ask, [name(B), atom_to_binary(name(C)), none])
    ).

%% What no node's name is, is no word of a detour.
tells_the_peer(Config) ->
    [A, B] = nodes_of([a, b], Config),
    [
        ?assertEqual(
            {Message, IsTold},
            {Message, call(A, inet_rdma_detour, handle_message, [session(A, B), Message])}
        )
     || {Message, IsTold} <- [
            {<<>>, false},
            {<<"k">>, false},
            {<<"d">>, true},
            {<<"d", 255, 254>>, true},
            {<<"d", 0:(1021 * 8)>>, true}
        ]
    ],
    ?assertEqual(none, call(A, inet_rdma_detour, via, [session(A, B)])),
    ?assertEqual(
        [1000, 2000, 4000, 8000, 16000, 30000, 30000],
        [inet_rdma_detour_return:pause_ms(detour, Before) || Before <- lists:seq(0, 6)]
    ).

a_hidden_node_is_reached_by_a_detour(Config) ->
    over(Config, fun(_, _) -> ok end).

nodes_of(Keys, Config) -> [proplists:get_value(Key, Config) || Key <- Keys].

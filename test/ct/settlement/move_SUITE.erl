%% Links that are up over TCP and move later, by the option move: when, and what becomes of them if
%% the settlement in band fails, or if the TCP connection is lost in the middle of it. The traffic
%% is checked.
-module(move_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_node, [call/4, name/1]).

-export([all/0, suite/0]).
-export([
    initiator_says_when/1,
    bytes_earn_it/1,
    links_of_simultaneous_connects_move/1,
    move_never_stays_on_tcp/1,
    connects_under_traffic/1
]).
-export([ticks_earn_nothing/1, required_in_spite_of_a_failure/1]).
-export([
    peers_that_break_the_rules/1, peers_that_break_the_rules_as_initiator/1, peers_that_hang_up/1
]).
-export([
    failed_settlement_is_repeated/1, earned_without_a_connection/1, loss_in_the_middle_that_lasts/1
]).
-export([move_of_one_side/1, losses_behind_the_move/1, queue_pair_given_up/1, settlement_given_up/1]).
-export([losses_in_the_middle/1, stall_in_the_middle/1, stall_in_the_middle_that_lasts/1]).
-export([messages_of_a_later_version/1, notices_of_a_later_library/1]).
-export([idle_links_go_back/1, standby_is_watched/1, losses_on_the_way_back/1]).

-define(CONNECTS, 50).
-define(COLLISIONS, 20).
-define(BOUND_MS, 1000).

suite() ->
    [{timetrap, {minutes, 3 + losses() div 30}}, {ct_hooks, [{inet_rdma_test_nodes, [only_rdma]}]}].

all() ->
    [
        initiator_says_when,
        bytes_earn_it,
        ticks_earn_nothing,
        links_of_simultaneous_connects_move,
        move_never_stays_on_tcp,
        connects_under_traffic,
        required_in_spite_of_a_failure,
        peers_that_break_the_rules,
        peers_that_break_the_rules_as_initiator,
        peers_that_hang_up,
        failed_settlement_is_repeated,
        earned_without_a_connection,
        loss_in_the_middle_that_lasts,
        move_of_one_side,
        losses_behind_the_move,
        queue_pair_given_up,
        settlement_given_up,
        losses_in_the_middle,
        stall_in_the_middle,
        stall_in_the_middle_that_lasts,
        messages_of_a_later_version,
        notices_of_a_later_library,
        idle_links_go_back,
        standby_is_watched,
        losses_on_the_way_back
    ].

%% How many links lose their connection while they settle; INET_RDMA_MOVE_LOSSES=1000 by hand.
losses() -> list_to_integer(os:getenv("INET_RDMA_MOVE_LOSSES", "8")).

%% Eager: at once. Busy: not before there is traffic, which goes on undisturbed.
initiator_says_when(_Config) ->
    [Busy, Other, Eager] = start_all([
        {"a", [{move, earned}]}, {"b", [{move, earned}]}, {"c", [{move, eager}]}
    ]),
    [
        begin
            connect(X, Y),
            carried_by(tcp, X, Y, "the option move is earned"),
            ok = inet_rdma_test_wait:holds(not_moved, 300, fun() -> fabrics(X, Y) =:= [tcp, tcp] end),
            moves_under_traffic(X, Y),
            disconnect(X, Y)
        end
     || {X, Y} <- [{Busy, Other}, {Other, Busy}, {Busy, Eager}]
    ],
    connect(Eager, Busy),
    moved(Eager, Busy),
    undisturbed(Eager, Busy, fun() -> ok end).

%% An idle link stays on TCP, however many ticks go over it.
ticks_earn_nothing(_Config) ->
    Idle = #{
        rdma => [{move, earned}],
        args => ["-kernel", "net_ticktime", "10", "net_tickintensity", "250"]
    },
    [A, B] = inet_rdma_test_node:start_all(2, inet_rdma_test_node:alone(Idle)),
    connect(A, B),
    inet_rdma_test_wait:until(ticks, 30000, fun() ->
        #{packets_received := Received, packets_sent := Sent} = call(A, inet_rdma, info, [name(B)]),
        Received + Sent > 200 orelse {Received, Sent}
    end),
    ?assertEqual([tcp, tcp], fabrics(A, B)).

%% They are counted, and passed over: the link settles afterwards as ever.
messages_of_a_later_version(_Config) ->
    [A, B] = start_all([{"a", [{move, earned}]}, {"b", [{move, earned}]}]),
    connect(A, B),
    [
        begin
            Session = call(X, inet_rdma_test_asker, session, [name(Y)]),
            Later = [<<>>, <<0>>, <<"a">>, <<"z and more">>, <<255>>],
            [ok = call(X, inet_rdma_session, send_message, [Session, Message]) || Message <- Later],
            inet_rdma_test_wait:until(unknown_messages, 10000, fun() ->
                Counts = call(Y, inet_rdma_links, counts, []),
                proplists:get_value(unknown_messages, Counts) =:= length(Later) orelse Counts
            end)
        end
     || {X, Y} <- [{A, B}, {B, A}]
    ],
    [
        ?assertEqual(
            false, proplists:is_defined(settlement_failed, call(X, inet_rdma_links, counts, []))
        )
     || X <- [A, B]
    ],
    moves_under_traffic(A, B).

%% They are logged and counted, and nothing else happens.
notices_of_a_later_library(_Config) ->
    [A, B] = start_all([{"a", [{move, earned}]}, {"b", [{move, earned}]}]),
    connect(A, B),
    [
        begin
            ok = call(X, inet_rdma_test_log, install, []),
            Port = inet_rdma_session:port(call(X, inet_rdma_test_asker, session, [name(Y)])),
            [Guard] = call(X, inet_rdma_links, guards, []),
            {Before, #{standing := Standing}} = call(X, sys, get_state, [Guard]),
            [
                call(X, erlang, send, [Guard, {'$inet_rdma', Port, Notice, Standing}])
             || Notice <- [later, {later, <<"more">>}]
            ],
            inet_rdma_test_wait:until(unknown_notices, 10000, fun() ->
                Counts = call(X, inet_rdma_links, counts, []),
                proplists:get_value(unknown_notices, Counts) =:= 2 orelse Counts
            end),
            ok = inet_rdma_test_log:await(X, ["sent a notice that these modules do not know: later"]),
            {After, #{standing := StandingAfter}} = call(X, sys, get_state, [Guard]),
            ?assertEqual({Before, Standing}, {After, StandingAfter})
        end
     || {X, Y} <- [{A, B}, {B, A}]
    ],
    moves_under_traffic(A, B).

%% A few large packets are enough to move a link with the option earned.
bytes_earn_it(_Config) ->
    [A, B] = start_all([{"a", [{move, earned}]}, {"b", [{move, earned}]}]),
    [
        begin
            connect(A, B),
            ok = call(From, inet_rdma_test_data, echo_and_compare, [name(To), [300000]]),
            moved(A, B),
            disconnect(A, B)
        end
     || {From, To} <- [{A, B}, {B, A}]
    ].

links_of_simultaneous_connects_move(_Config) ->
    [A, B] = start_all([{"a", [{move, earned}]}, {"b", [{move, earned}]}]),
    {Counter, ok} = call(A, inet_rdma_test_watch, collisions, []),
    [
        begin
            ok = inet_rdma_test_link:collide(A, B),
            [
                ok = call(X, inet_rdma_test_data, echo_and_compare, [name(Y), [0, 300000]])
             || {X, Y} <- [{A, B}, {B, A}]
            ],
            moved(A, B)
        end
     || _ <- lists:seq(1, ?COLLISIONS)
    ],
    Collisions = length(call(A, inet_rdma_test_watch, seen, [Counter])),
    ct:pal("~b of ~b rounds had two attempts under way at once", [Collisions, ?COLLISIONS]),
    ?assert(Collisions > 0).

%% One node is enough: the link stays on TCP, whatever goes over it, and both nodes say for what
%% reason.
move_never_stays_on_tcp(_Config) ->
    [Never, Too, Busy, Eager] =
        start_all([
            {"a", [{move, never}]},
            {"b", [{move, never}]},
            {"c", [{move, earned}]},
            {"d", [{move, eager}]}
        ]),
    [
        begin
            connect(X, Y),
            ok = call(X, inet_rdma_test_data, echo_and_compare, [
                name(Y), lists:duplicate(100, 10) ++ [300000]
            ]),
            [carried_by(tcp, P, Q, Why) || {P, Q, Why} <- [{X, Y, WhyX}, {Y, X, WhyY}]],
            ok = inet_rdma_test_wait:holds(not_moved, 300, fun() -> fabrics(X, Y) =:= [tcp, tcp] end),
            disconnect(X, Y)
        end
     || {X, Y, WhyX, WhyY} <- [
            {Never, Too, "option move .*never", "option move .*never"},
            {Never, Busy, "option move .*never", "option move of the peer"},
            {Never, Eager, "option move .*never", "option move of the peer"},
            {Busy, Never, "option move of the peer is never", "option move of the peer is never"},
            {Eager, Never, "option move of the peer is never", "option move of the peer is never"}
        ]
    ].

connects_under_traffic(_Config) ->
    [A, B] = start_all([{"a", [{move, earned}]}, {"b", [{move, earned}]}]),
    [
        begin
            {X, Y} =
                case N rem 2 of
                    0 -> {A, B};
                    1 -> {B, A}
                end,
            connect(X, Y),
            moves_under_traffic(X, Y),
            disconnect(X, Y)
        end
     || N <- lists:seq(1, ?CONNECTS)
    ].

%% A link that may not stay on TCP settles, whichever node remembers a settlement that broke off, or
%% a way that failed.
required_in_spite_of_a_failure(_Config) ->
    [
        begin
            [A, B] = start_all([{"a", [{required, true}, {move, Move}]}, {"b", [{move, Move}]}]),
            [
                begin
                    [remember(Node, Peer, What, 60000) || {Node, Peer} <- Remembers],
                    ?assertEqual({pong, X, Y, Remembers}, {
                        call(X, net_adm, ping, [name(Y)]), X, Y, Remembers
                    }),
                    moved(X, Y),
                    disconnect(X, Y),
                    [remember(Node, Peer, What, 0) || {Node, Peer} <- Remembers]
                end
             || What <- [settlement, shm],
                {X, Y} <- [{A, B}, {B, A}],
                Remembers <- [[{A, B}], [{B, A}], [{A, B}, {B, A}]]
            ],
            inet_rdma_test_node:stop_all()
        end
     || Move <- [eager, earned]
    ].

%% A link that is idle for move_back_ms goes back to TCP and gives its queue pair back; traffic
%% moves it again. Nothing is lost, and packets that come while it goes back do not disturb it.
idle_links_go_back(_Config) ->
    Idle = #{
        rdma => [{move, earned}, {move_back_ms, 500}], args => ["-kernel", "net_ticktime", "4"]
    },
    [A, B] = inet_rdma_test_node:start_all([
        {Prefix, inet_rdma_test_node:alone(Idle)}
     || Prefix <- ["a", "b"]
    ]),
    connect(A, B),
    Connections = fun() -> [length(call(X, inet_rdma_nif, all_statistics, [])) || X <- [A, B]] end,
    [
        begin
            moves_under_traffic(A, B),
            [carried_by(tcp, X, Y, "it was idle") || {X, Y} <- [{A, B}, {B, A}]],
            inet_rdma_test_wait:until(no_queue_pair, 30000, fun() -> Connections() =:= [0, 0] end),
            [watched(X, Y, {false, 0}) || {X, Y} <- [{A, B}, {B, A}]]
        end
     || _ <- [1, 2, 3]
    ],
    %% Traffic with pauses, in which the link goes back now and then.
    undisturbed(A, B, fun() ->
        [
            begin
                ok = call(X, inet_rdma_test_data, echo_and_compare, [name(Y), [0, 300000, 20]]),
                timer:sleep(PauseMs)
            end
         || PauseMs <- [0, 700, 1500, 100, 2500], {X, Y} <- [{A, B}, {B, A}]
        ]
    end).

%% While a queue pair carries, the kernel looks after the TCP connection, within net_ticktime: also
%% after another one.
standby_is_watched(Config) ->
    Options = inet_rdma_test_node:alone(#{args => ["-kernel", "net_ticktime", "20"]}),
    #{a := A, b := B, relay := Relay} = inet_rdma_test_detour:start(
        proplists:get_value(priv_dir, Config),
        Options,
        Options
    ),
    connect(A, B),
    moved(A, B),
    [
        begin
            [watched(X, Y, {true, 20000}) || {X, Y} <- [{A, B}, {B, A}]],
            inet_rdma_test_relay:lose(Relay, reset),
            [await_resumes(X, Y, Losses) || {X, Y} <- [{A, B}, {B, A}]]
        end
     || Losses <- [1, 2, 3]
    ],
    [watched(X, Y, {true, 20000}) || {X, Y} <- [{A, B}, {B, A}]].

await_resumes(Node, Peer, Count) ->
    inet_rdma_test_wait:until({resumes, Count}, 20000, fun() ->
        case call(Node, inet_rdma, info, [name(Peer)]) of
            #{resumes := Resumes} when Resumes >= Count -> true;
            Other -> Other
        end
    end).

%% Whether the kernel asks a silent peer, and for how many milliseconds it waits for an answer.
watched(Node, Peer, {KeepAlive, TimeoutMs}) ->
    UserTimeout = {raw, 6, 18, 4},
    Wanted = {ok, [{keepalive, KeepAlive}, {raw, 6, 18, <<TimeoutMs:32/native>>}]},
    inet_rdma_test_wait:until(watched, 20000, fun() ->
        case call(Node, net_kernel, getopts, [name(Peer), [keepalive, UserTimeout]]) of
            Wanted -> true;
            Other -> Other
        end
    end).

%% The TCP connection is lost at any moment of the way back.
losses_on_the_way_back(Config) ->
    Idle = #{
        rdma => [{move, earned}, {move_back_ms, 100}], args => ["-kernel", "net_ticktime", "4"]
    },
    Options = inet_rdma_test_node:alone(Idle),
    #{a := A, b := B, relay := Relay} = inet_rdma_test_detour:start(
        proplists:get_value(priv_dir, Config),
        Options,
        Options
    ),
    connect(A, B),
    [
        begin
            Before = moves(A, B),
            %% By its counts: it may be back before it is looked at. On a busy machine it may go back
            %% and move in the middle of the traffic, be on shared memory now, and go back once more:
            %% then only more traffic moves it.
            inet_rdma_test_wait:until({moves, Before}, 10000, fun() ->
                ok = echo_over_tcp(A, B),
                Now = moves(A, B),
                lists:all(fun({Old, New}) -> New > Old end, lists:zip(Before, Now)) orelse Now
            end),
            ok = wait_until_on_tcp(A, B, 1 + N rem 3),
            inet_rdma_test_relay:lose(Relay, reset),
            ok = call(B, inet_rdma_test_data, echo_and_compare, [name(A), [0, 5000, 100000]])
        end
     || N <- lists:seq(1, losses())
    ].

echo_over_tcp(A, B) ->
    case fabrics(A, B) of
        [tcp, tcp] -> call(A, inet_rdma_test_data, echo_and_compare, [name(B), [300000]]);
        _ -> ok
    end.

moves(A, B) ->
    [maps:get(moves, call(X, inet_rdma, info, [name(Y)])) || {X, Y} <- [{A, B}, {B, A}]].

%% Waits until a node shows the link on TCP, and then 5 ms for each of the looks.
wait_until_on_tcp(A, B, Looks) ->
    inet_rdma_test_wait:until(one_is_back, 30000, fun() -> lists:member(tcp, fabrics(A, B)) end),
    timer:sleep(5 * Looks).

remember(Node, Peer, What, RetryMs) ->
    ok = call(Node, inet_rdma_links, failed, [
        {atom_to_binary(name(Peer)), 0, What}, <<"x">>, RetryMs
    ]).

%% The acceptor sends a wrong message, or none: the link goes on over TCP, the initiator tells why,
%% and nothing of the attempt is left.
peers_that_break_the_rules(_Config) ->
    Options = [{move, earned}, {connect_timeout_ms, ?BOUND_MS}, {fallback_retry_ms, 0}],
    [A, B] = start_all([{"a", Options}, {"b", [{move, never}]}]),
    Stayed = [{say, {stayed}}],
    rules_are_broken(A, B, A, [
        {"not one of the settlement", [
            [], [{say_raw, <<131, 255, (rand:bytes(100))/binary>>}], Stayed
        ]},
        {"not one of the settlement", [[], [{say_raw, binary:copy(<<131>>, 65536)}], Stayed]},
        {"not allowed here", [[], [{say, {ready}}], Stayed]},
        {"not allowed here", [[], [{say, {hello, #{}}}], Stayed]},
        {"not allowed here", [[], [{hello, #{}}], [{say, {ready}}], Stayed]},
        {"shm: no", [
            [],
            [{hello, #{place => {inet_rdma_test_peer:nobody(), 1}}}],
            [{say, {failed, shm, <<"no">>}}],
            Stayed
        ]},
        %% It does not acknowledge either.
        {"broke off: the peer did not answer in time", [[]]},
        {"broke off: the peer did not answer in time", [[], [{hello, #{timeout_ms => 300}}]]}
    ]).

%% The initiator sends a wrong message, or none.
peers_that_break_the_rules_as_initiator(_Config) ->
    [A, B] = start_all([
        {"a", [{connect_timeout_ms, ?BOUND_MS}, {fallback_retry_ms, 0}]}, {"b", [{move, never}]}
    ]),
    rules_are_broken(A, B, B, [
        {"not one of the settlement", [[{say_raw, <<131, 255, (rand:bytes(100))/binary>>}]]},
        {"not allowed here", [[{say, {'try', shm}}]]},
        {"not allowed here", [[{say, {hello, #{}}}]]},
        %% The second one begins another settlement.
        {"did not answer in time", [[{hello, #{}}], [{hello, #{}}]]},
        {"not allowed here", [[{hello, #{}}], [{say, {ready}}]]},
        {"the peer decides", [[{hello, #{}}], [{say, {go}}]]},
        {"did not answer in time", [[{hello, #{}}]]},
        {"the peer says: no", [[{hello, #{}}], [{say, {stay, <<"no">>}}]]}
    ]).

%% Node A hears each script from B on a link of its own. The first one warms up.
rules_are_broken(A, B, Initiator, [First | Others]) ->
    rule_is_broken(A, B, Initiator, First),
    Before = inet_rdma_test_usage:of_node(A),
    [rule_is_broken(A, B, Initiator, Script) || Script <- Others],
    ok = inet_rdma_test_usage:await(A, Before).

rule_is_broken(A, B, #{node := Initiator}, {Why, Script}) ->
    ct:log("~p", [Script]),
    case name(A) of
        Initiator -> connect(A, B);
        _ -> connect(B, A)
    end,
    Mover = call(B, inet_rdma_test_mover, start, [Script]),
    undisturbed(A, B, fun() -> carried_by(tcp, A, B, Why) end),
    ?assertMatch([{hello, _} | _], call(B, inet_rdma_test_mover, heard, [Mover])),
    disconnect(A, B).

%% In the middle of the settlement, in either role: the link's end is told, and the next link moves.
peers_that_hang_up(_Config) ->
    [A, B] = start_all([{"a", [{move, earned}]}, {"b", [{move, earned}]}]),
    [
        begin
            connect(X, Y),
            Watcher = inet_rdma_test_node:watch(A, B),
            _ = call(B, inet_rdma_test_mover, start, [Script]),
            %% The peer may have hung up already.
            _ = call(X, erlang, send, [{nobody, name(Y)}, rand:bytes(300000), [noconnect]]),
            inet_rdma_test_wait:until(nodedown, 10000, fun() ->
                lists:member(monitor_nodes, call(A, inet_rdma_test_watch, seen, [Watcher]))
            end),
            inet_rdma_test_wait:until(connected_again, 10000, fun() ->
                call(X, net_adm, ping, [name(Y)]) =:= pong
            end),
            moves_under_traffic(X, Y),
            disconnect(X, Y)
        end
     || {X, Y, Script} <- [
            {A, B, [[], [{disconnect, name(A)}]]},
            {A, B, [[], [{hello, #{}}], [{disconnect, name(A)}]]},
            {B, A, [[{hello, #{}}, {disconnect, name(A)}]]},
            {B, A, [[{hello, #{}}], [{disconnect, name(A)}]]}
        ]
    ].

%% A settlement that failed is repeated at growing intervals.
failed_settlement_is_repeated(_Config) ->
    [A, B] = start_all([
        {"a", [{move, earned}, {connect_timeout_ms, ?BOUND_MS}, {fallback_retry_ms, 100}]},
        {"b", []}
    ]),
    connect(A, B),
    Garbage = [{say_raw, <<"garbage">>}, {say, {stayed}}],
    Mover = call(B, inet_rdma_test_mover, start, [[[] | lists:duplicate(6, Garbage)]]),
    undisturbed(A, B, fun() ->
        inet_rdma_test_wait:until(repeated, 20000, fun() ->
            Hellos = [hello || {hello, _} <- call(B, inet_rdma_test_mover, heard, [Mover])],
            length(Hellos) >= 3 orelse Hellos
        end),
        ok = call(B, inet_rdma_test_mover, pass, [Mover]),
        moved(A, B)
    end).

%% So much is sent while the TCP connection is lost that the link has earned a queue pair: it moves
%% when the connection is back.
earned_without_a_connection(Config) ->
    #{a := A, b := B, relay := Relay} = detour(Config, [{move, earned}], [{move, earned}]),
    connect(A, B),
    ok = inet_rdma_test_relay:hold(Relay),
    inet_rdma_test_wait:until(lost, 10000, fun() ->
        call(A, inet_rdma_test_remote, has_tcp, []) =:= false
    end),
    earn(A, B),
    ok = inet_rdma_test_relay:pass(Relay),
    moves_under_traffic(A, B).

%% The TCP connection is lost in the middle of a settlement, for longer than until the next one is
%% due.
loss_in_the_middle_that_lasts(Config) ->
    #{a := A, b := B, relay := Relay} = detour(Config, [{move, earned}], [{move, earned}]),
    connect(A, B),
    Mover = call(B, inet_rdma_test_mover, start, [[[]]]),
    earn(A, B),
    inet_rdma_test_wait:until(settles, 10000, fun() ->
        call(B, inet_rdma_test_mover, heard, [Mover]) =/= []
    end),
    ok = inet_rdma_test_relay:hold(Relay),
    receive
    after 2000 -> ok
    end,
    ok = call(B, inet_rdma_test_mover, pass, [Mover]),
    ok = inet_rdma_test_relay:pass(Relay),
    moves_under_traffic(A, B).

%% The initiator has moved, and the connection is lost before the acceptor has: both go on over TCP,
%% and settle again.
move_of_one_side(_Config) ->
    [A, B] = start_all([{"a", [{move, earned}]}, {"b", [{move, earned}]}]),
    connect(A, B),
    Mover = call(B, inet_rdma_test_mover, start, [[[], [place], [cut]]]),
    undisturbed(A, B, fun() ->
        inet_rdma_test_wait:until(decided, 10000, fun() ->
            lists:member({go}, call(B, inet_rdma_test_mover, heard, [Mover]))
        end),
        ok = call(B, inet_rdma_test_mover, pass, [Mover]),
        moved(A, B)
    end).

%% The connection is lost right after the initiator's move, while the acceptor opens its queue pair
%% or moves.
losses_behind_the_move(_Config) ->
    [A, B] = start_all([{"a", [{move, earned}]}, {"b", [{move, earned}]}]),
    [
        begin
            connect(A, B),
            _ = call(B, inet_rdma_test_mover, cut_behind_the_move, []),
            moves_under_traffic(A, B),
            inet_rdma_test_wait:until(lost, 10000, fun() ->
                #{losses := Losses} = call(B, inet_rdma, info, [name(A)]),
                Losses > 0
            end),
            disconnect(A, B)
        end
     || _ <- lists:seq(1, 5 * losses())
    ].

%% The initiator gives up the queue pair of a settlement, before the acceptor has moved or after it:
%% both go on over TCP, and settle again, as shared memory has not failed.
queue_pair_given_up(_Config) ->
    [A, B] = start_all([{"a", [{move, earned}]}, {"b", [{move, earned}]}]),
    [
        begin
            connect(A, B),
            Mover = call(A, inet_rdma_test_mover, settle, [End]),
            carried_by(tcp, B, A, "the peer gave up the queue pair over shm"),
            ok = call(A, inet_rdma_test_mover, pass, [Mover]),
            moves_under_traffic(A, B),
            disconnect(A, B)
        end
     || End <- [drop, keep]
    ].

%% The initiator gives up a settlement that the acceptor is in, and begins another one.
settlement_given_up(_Config) ->
    [A, B] = start_all([{"a", [{move, earned}]}, {"b", [{move, earned}]}]),
    connect(A, B),
    Mover = call(A, inet_rdma_test_mover, start, [[[{hello, #{}}]]]),
    inet_rdma_test_wait:until(answered, 10000, fun() ->
        call(A, inet_rdma_test_mover, heard, [Mover]) =/= []
    end),
    ok = call(A, inet_rdma_test_mover, pass, [Mover]),
    moves_under_traffic(A, B).

%% The connection is lost after so many bytes as the handshake, the settlement and the move take:
%% nothing is lost, and both sides agree on what carries the link in the end.
losses_in_the_middle(Config) ->
    #{a := A, b := B} = Detour = detour(Config, [{move, eager}], [{move, earned}]),
    Lost = [lose_in_the_middle(Detour) || _ <- lists:seq(1, losses())],
    ct:pal("of ~b connections ~b were lost after nodeup", [losses(), length([lost || true <- Lost])]),
    inet_rdma_test_link:no_unlinked_ports([A, B]).

lose_in_the_middle(#{a := A, b := B, relay := Relay} = Detour) ->
    {Direction, Bytes} = {lists:nth(rand:uniform(2), [to, back]), 150 + rand:uniform(700)},
    ok = inet_rdma_test_relay:shape(Relay, {end_at, Direction, Bytes}),
    case call(A, net_adm, ping, [name(B)]) of
        pong ->
            ct:log("~p", [{Direction, Bytes}]),
            undisturbed(A, B, fun() -> moved(A, B) end),
            #{losses := Losses} = call(A, inet_rdma, info, [name(B)]),
            disconnect(A, B),
            Losses > 0;
        %% It was lost in the handshake.
        pang ->
            lose_in_the_middle(Detour)
    end.

%% The initiator's first message is on its way until both nodes suspect the path, and arrives before
%% the acceptor has the answer that ends its suspicion.
stall_in_the_middle(Config) ->
    #{a := A, b := B, relay := Relay} = detour(Config, [{move, earned}], [{move, earned}]),
    connect(A, B),
    ok = inet_rdma_test_relay:pause(Relay),
    earn(A, B),
    ok = call(B, erlang, send, [{nobody, name(A)}, <<>>, [noconnect]]),
    [
        inet_rdma_test_wait:until({suspected, name(X)}, 10000, fun() ->
            #{suspicions := Suspicions} = call(X, inet_rdma, info, [name(Y)]),
            Suspicions > 0
        end)
     || {X, Y} <- [{A, B}, {B, A}]
    ],
    ok = inet_rdma_test_relay:pass(Relay),
    moves_under_traffic(A, B).

%% It never arrives: both nodes continue over another connection, of which the initiator had
%% suspected the one before, and lost none.
stall_in_the_middle_that_lasts(Config) ->
    #{a := A, b := B, relay := Relay} = detour(Config, [{move, earned}], [{move, earned}]),
    connect(A, B),
    _ = inet_rdma_test_relay:lose(Relay, {stall, 600000}),
    earn(A, B),
    moves_under_traffic(A, B).

%% What the cases have in common.

%% More than the bytes for which a busy link moves.
earn(A, B) ->
    ok = call(A, erlang, send, [{nobody, name(B)}, rand:bytes(300000), [noconnect]]).

moves_under_traffic(A, B) -> undisturbed(A, B, fun() -> moved(A, B) end).

%% Checked traffic of both nodes goes on while this happens, and shortly after it.
undisturbed(A, B, Happens) ->
    Traffic = inet_rdma_test_traffic:start_small(A, B),
    _ = Happens(),
    receive
    after 50 -> ok
    end,
    Figures = inet_rdma_test_traffic:stop(Traffic),
    ct:log("~ts", [inet_rdma_test_traffic:figures_text(Figures)]),
    Disturbances = inet_rdma_test_traffic:disturbances(Figures),
    _ =
        case Disturbances =/= #{} of
            true -> ct:pal("~p", [inet_rdma_test_traffic:logged(Traffic)]);
            false -> ok
        end,
    ?assertEqual(#{}, Disturbances).

%% Both nodes show that shared memory carries the link.
moved(A, B) -> [ok = inet_rdma_test_link:await(X, Y, shm) || {X, Y} <- [{A, B}, {B, A}]].

carried_by(Fabric, A, B, Why) -> ok = inet_rdma_test_link:await(A, B, Fabric, Why).

fabrics(A, B) -> [inet_rdma_test_link:fabric(X, Y) || {X, Y} <- [{A, B}, {B, A}]].

connect(A, B) -> ok = inet_rdma_test_link:connect(A, B).

disconnect(A, B) -> ok = inet_rdma_test_link:disconnect(A, B).

start_all(Wanted) ->
    inet_rdma_test_node:start_all([{Prefix, options(Options)} || {Prefix, Options} <- Wanted]).

%% No link but those that the case wants.
options(Options) -> inet_rdma_test_node:alone(#{rdma => Options, args => []}).

detour(Config, OptionsA, OptionsB) ->
    inet_rdma_test_detour:start(
        proplists:get_value(priv_dir, Config), options(OptionsA), options(OptionsB)
    ).

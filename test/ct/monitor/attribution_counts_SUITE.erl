%% The counts of inet_rdma:top/1 against erlang:trace/3 of senders and receivers: each operation, a
%% hundred thousand messages, fragments, cuts and moves; what is estimated, within its bounds; names
%% that are more than the atom cache has.
-module(attribution_counts_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_node, [call/4, name/1]).

-export([all/0, groups/0, suite/0, init_per_group/2, end_per_group/2]).
-export([operations_are_those_of_traces/1, operations_are_those_of_traces_over_a_move/1]).
-export([heaviest_of_many_senders_are_found/1, cache_that_turns_over/1]).

-define(MESSAGES, 100000).
-define(TIMES, 300).
%% Of the largest number that two standard deviations, as docs/MONITORING.md has them, may be wrong by.
-define(SHARE_OF_SAMPLES, 0.09).

suite() ->
    [{timetrap, {minutes, 5}}, {ct_hooks, [{inet_rdma_test_nodes, [only_rdma]}]}].

all() ->
    [{group, tcp}, {group, shm}, {group, tls}].

groups() ->
    Cases = [
        operations_are_those_of_traces,
        heaviest_of_many_senders_are_found,
        cache_that_turns_over
    ],
    OverAMove = operations_are_those_of_traces_over_a_move,
    [
        {Path, [], Of ++ [OverAMove || Path =/= shm]}
     || {Path, [], Of} <- inet_rdma_test_paths:groups(Cases)
    ].

init_per_group(Path, Config) ->
    case inet_rdma_test_cutter:needed(Config) of
        {skip, _} = Skip -> Skip;
        _ -> inet_rdma_test_paths:init(Path, Config)
    end.

end_per_group(_Path, _Config) ->
    ok.

%% Its TCP connection is cut again and again.
operations_are_those_of_traces(Config) ->
    [#{os_pid := PidA} = A, #{os_pid := PidB} = B] = pair(inet_rdma_test_paths:options(Config, #{})),
    Before = begin_trace(A, B),
    Cutter = inet_rdma_test_cutter:start([{PidA, PidB}], 200, 400),
    Sinks = call(B, inet_rdma_test_traced, sinks, []),
    ok = run(A, B, Sinks, ?MESSAGES, ?TIMES),
    ok = inet_rdma_test_cutter:await_cuts(Cutter, 1),
    ct:pal("cuts: ~p", [inet_rdma_test_cutter:stop(Cutter)]),
    ok = inet_rdma_test_cutter:await(PidA, PidB),
    check_counts(A, B, Before).

%% The first part goes over TCP, and the rest over shared memory.
operations_are_those_of_traces_over_a_move(Config) ->
    #{rdma := Rdma} = Options = inet_rdma_test_paths:options(Config, #{}),
    Moves = [{fabric, shm}, {move, earned} | proplists:delete(fabric, Rdma)],
    [A, B] = inet_rdma_test_node:start_all([
        {[Prefix], inet_rdma_test_node:alone(Options#{rdma := Moves})}
     || Prefix <- "ab"
    ]),
    ok = inet_rdma_test_link:connect(A, B),
    Before = begin_trace(A, B),
    ?assertEqual(tcp, inet_rdma_test_link:fabric(A, B)),
    Sinks = call(B, inet_rdma_test_traced, sinks, []),
    ok = run(A, B, Sinks, ?MESSAGES div 2, ?TIMES div 2),
    ok = inet_rdma_test_link:await(A, B, shm),
    ok = run(A, B, Sinks, ?MESSAGES div 2, ?TIMES div 2),
    check_counts(A, B, Before).

pair(Options) ->
    [A, B] = inet_rdma_test_node:start_all([
        {[Prefix], inet_rdma_test_node:alone(Options)}
     || Prefix <- "ab"
    ]),
    ok = inet_rdma_test_node:connect(A, B),
    [A, B].

%% What both directions have counted by now.
begin_trace(A, B) ->
    ok = call(A, inet_rdma_test_traced, start, [name(B)]),
    ok = call(B, inet_rdma_test_traced, start, [name(A)]),
    {settled(A, B), settled(B, A)}.

run(A, B, Sinks, Messages, Times) ->
    inet_rdma_test_node:call(
        A,
        inet_rdma_test_traced,
        run,
        [name(B), Sinks, Messages, Times],
        inet_rdma_test_wait:patience(120000)
    ).

check_counts(A, B, {BeforeSent, BeforeReceived}) ->
    {Sent, Answered} = inet_rdma_test_wait:until(equal, 30000, fun() ->
        Sent = grown(BeforeSent, settled(A, B)),
        Answered = grown(BeforeReceived, settled(B, A)),
        [OfA, OfB] = [call(Node, inet_rdma_test_traced, counts, []) || Node <- [A, B]],
        %% A receiver's trace does not show these, nor the token with which a process begins or ends.
        OfSenders = [monitor_p, demonitor_p, group_leader],
        OfChildren = [send_sender, send_sender_tt, payload_exit, payload_exit_tt, unlink_id_ack],
        Pairs = [
            {of_way(sent, OfA), Sent},
            {of_way(received, OfA), Answered},
            {merged(of_way(received, OfB)), merged(maps:without(OfSenders, Sent))},
            {merged(of_way(sent, OfB)), merged(maps:with(OfChildren, Answered))}
        ],
        case [Pair || {Traced, Counted} = Pair <- Pairs, Traced =/= Counted] of
            [] -> {ok, {Sent, Answered}};
            Others -> Others
        end
    end),
    ct:pal("~p~n~p", [Sent, Answered]),
    ?assert(lists:sum(maps:values(Sent)) > ?MESSAGES).

of_way(Way, Counts) ->
    maps:from_list([{Operation, Count} || {{Each, Operation}, Count} <- maps:to_list(Counts), Each =:= Way]).

%% With a token or without.
merged(Counts) ->
    maps:fold(
        fun(Operation, Count, Sums) ->
            Name = re:replace(atom_to_list(Operation), "_tt$", "", [{return, list}]),
            maps:update_with(list_to_atom(Name), fun(Sum) -> Sum + Count end, Count, Sums)
        end,
        #{},
        Counts
    ).

grown(Before, Now) ->
    maps:filtermap(
        fun(Operation, {Messages, _Bytes}) ->
            {Earlier, _} = maps:get(Operation, Before, {0, 0}),
            case Messages - Earlier of
                0 -> false;
                Grown -> {true, Grown}
            end
        end,
        Now
    ).

operations(A, B, Direction) ->
    {ok, #{Direction := #{operations := Operations, off := none}}} =
        call(A, inet_rdma, top, [name(B)]),
    maps:remove(tick, Operations).

%% Nothing is under way: the receiver has counted what the sender has, but for ticks.
settled(A, B) ->
    inet_rdma_test_wait:until(settled, 30000, fun() ->
        Sent = operations(A, B, sent),
        case operations(B, A, received) of
            Sent -> {ok, Sent};
            Received -> {Sent, Received}
        end
    end).

%% Ten thousand processes; the one of rank R sends about 1 / R^1.2 of the messages.
heaviest_of_many_senders_are_found(Config) ->
    [A, B] = pair(inet_rdma_test_paths:options(Config, #{})),
    ok = call(B, inet_rdma_test_filler, park, []),
    Before = settled(A, B),
    {Senders, Counts} = inet_rdma_test_node:call(
        A,
        inet_rdma_test_filler,
        skewed,
        [name(B), 10000, ?MESSAGES],
        inet_rdma_test_wait:patience(60000)
    ),
    #{reg_send := {_, Bytes}} = After = settled(A, B),
    {ok, #{sent := #{all := #{total := Total, rows := Rows}}}} =
        call(A, inet_rdma, top, [name(B)]),
    ?assertEqual(lists:sum(Counts), map_get(reg_send, grown(Before, After))),
    %% All messages have the same size.
    Each = Bytes / lists:sum(Counts),
    Bound = Total / 64 + ?SHARE_OF_SAMPLES * Total,
    Ranked = maps:from_list(lists:zip(Senders, Counts)),
    _ = [
        begin
            #{from := From, at_least := AtLeast, at_most := AtMost} = Row,
            Exact = Each * map_get(pid(From), Ranked),
            ?assert(AtLeast =< Exact + Bound, {Row, Exact}),
            ?assert(AtMost >= Exact - Bound, {Row, Exact}),
            ?assert(AtMost - Exact =< Bound, {Row, Exact})
        end
     || #{operation := reg_send} = Row <- Rows
    ],
    %% Those of more than the bound are there, and the first two are far enough apart.
    Found = [pid(From) || #{from := From} <- Rows],
    Heavy = [Sender || {Sender, Count} <- lists:zip(Senders, Counts), Count * Each > Bound],
    ?assertMatch([_ | _], Heavy),
    ?assertEqual([], Heavy -- Found),
    ?assertEqual(hd(Senders), hd(Found)).

pid({Pid, _}) -> Pid;
pid(Pid) -> Pid.

%% More names of targets than the cache of atoms has entries, each used several times, and a filler.
cache_that_turns_over(Config) ->
    [A, B] = pair(inet_rdma_test_paths:options(Config, #{})),
    _ = [ok = call(Node, inet_rdma_test_filler, park, []) || Node <- [A, B]],
    Before = settled(A, B),
    Filler = call(A, inet_rdma_test_filler, named, [name(B), 6000, 3, 1000]),
    ok = call(A, inet_rdma_test_filler, stop, [Filler]),
    #{reg_send := Messages} = grown(Before, settled(A, B)),
    ?assertEqual(6000 * 3 * 2, Messages),
    [
        begin
            {ok, #{Direction := #{off := none, all := #{rows := [First | _]}}}} =
                call(Node, inet_rdma, top, [name(Peer)]),
            ?assertMatch(#{operation := reg_send, to := {name, sink}}, First),
            ?assertEqual(Filler, pid(map_get(from, First))),
            ?assert(map_get(percent, First) > 50, First)
        end
     || {Node, Peer, Direction} <- [{A, B, sent}, {B, A, received}]
    ].

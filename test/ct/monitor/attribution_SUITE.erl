%% Who fills a link, as inet_rdma:top/1 says: the known filler first, operations as the script has
%% sent them, nothing twice after a cut or a move, and what it says where it knows nothing.
-module(attribution_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_node, [call/4, name/1]).

-export([all/0, groups/0, suite/0, init_per_group/2, end_per_group/2, init_per_testcase/2]).
-export([
    filler_is_first_in_both_directions/1,
    operations_are_those_of_the_script/1,
    cut_counts_nothing_twice/1
]).
-export([full_link_is_an_event/1, loss_notes_who_filled_the_link/1]).
-export([end_notes_who_filled_the_link/1, silence_notes_who_filled_the_link/1]).
-export([queue_over_its_bound_is_noted/1, registered_names_are_series/1]).
-export([
    move_counts_nothing_twice/1,
    links_that_are_not_counted_say_why/1,
    reader_that_is_off_says_so/1
]).

-define(ROUNDS, 200).
%% Of each message of the filler.
-define(BYTES, 20000).

suite() ->
    [{timetrap, {minutes, 2}}, {ct_hooks, [{inet_rdma_test_nodes, [only_rdma]}]}].

all() ->
    [
        {group, tcp},
        {group, shm},
        {group, tls},
        move_counts_nothing_twice,
        registered_names_are_series,
        links_that_are_not_counted_say_why,
        reader_that_is_off_says_so
    ].

groups() ->
    inet_rdma_test_paths:groups([
        filler_is_first_in_both_directions,
        operations_are_those_of_the_script,
        cut_counts_nothing_twice,
        full_link_is_an_event,
        loss_notes_who_filled_the_link,
        end_notes_who_filled_the_link,
        silence_notes_who_filled_the_link,
        queue_over_its_bound_is_noted
    ]).

init_per_group(Path, Config) ->
    inet_rdma_test_paths:init(Path, Config).

end_per_group(_Path, _Config) ->
    ok.

init_per_testcase(Case, Config) when
    Case =:= cut_counts_nothing_twice; Case =:= loss_notes_who_filled_the_link
->
    inet_rdma_test_cutter:needed(Config);
init_per_testcase(_Case, Config) ->
    Config.

filler_is_first_in_both_directions(Config) ->
    [A, B] = Pair = counted_pair(Config),
    [ok = call(Node, inet_rdma_test_filler, park, []) || Node <- Pair],
    Fillers = [
        call(Node, inet_rdma_test_filler, load, [name(Peer), ?ROUNDS, ?BYTES])
     || {Node, Peer} <- [{A, B}, {B, A}]
    ],
    [
        begin
            #{sent := Sent} = counted(Node, Peer, Filler),
            ct:pal("~p", [Sent]),
            check_first({Filler, filler}, Sent, Filler),
            #{received := Received} = counted(Peer, Node, Filler),
            check_first(Filler, Received, Filler),
            check_printed(Node, Peer, Filler)
        end
     || {Node, Peer, Filler} <- [{A, B, hd(Fillers)}, {B, A, lists:last(Fillers)}]
    ].

%% Its row of inet_rdma:i/0, and the rows of top/1.
check_printed(Node, Peer, Filler) ->
    Name = name(Peer),
    Text = call(Node, inet_rdma_test_metrics, printed, [inet_rdma, i, [Name]]),
    ct:pal("~ts", [Text]),
    [_Header, Link, _, Filled | _] = string:lexemes(Text, "\n"),
    ?assertMatch({match, _}, re:run(Link, [atom_to_list(Name), " +(tcp|shm) +up "])),
    Pid = call(Node, erlang, pid_to_list, [Filler]),
    Row = [" +sent +[0-9]+% +[0-9]+ [KM]?B/s +reg_send +", Pid, " \\(filler\\) +sink$"],
    ?assertMatch({match, _}, re:run(Filled, [atom_to_list(Name) | Row])).

check_first(From, #{all := All, recent := Recent, off := none}, Filler) ->
    #{rows := [#{at_least := AtLeast, at_most := AtMost, percent := Percent} = First | _]} = All,
    ?assertMatch(#{operation := reg_send, from := From, to := {name, sink}}, First),
    #{rows := [#{from := FirstOfLate} | _], total := Late} = Recent,
    ?assertEqual(From, FirstOfLate),
    ?assert(Late > 0),
    %% With the envelopes; at_most by the sketch's bound.
    Bytes = ?ROUNDS * ?BYTES,
    ?assert(AtLeast >= Bytes andalso AtLeast < Bytes + ?ROUNDS * 200, {AtLeast, Filler}),
    ?assert(AtMost >= AtLeast andalso AtMost =< AtLeast + map_get(total, All) div 64 + 1),
    ?assert(Percent > 50 andalso Percent =< 100).

operations_are_those_of_the_script(Config) ->
    [A, B] = counted_pair(Config),
    run_script(A, B),
    run_script(B, A).

%% Each operation of the script at the sender and at the receiver, and nothing more of its kind.
run_script(A, B) ->
    Before = settled(A, B),
    Sent = call(A, inet_rdma_test_filler, script, [name(B), 50]),
    After = inet_rdma_test_wait:until(counted, 10000, fun() ->
        Now = operations(A, B, sent),
        case [Op || {Op, Count} <- maps:to_list(Sent), grown(Op, Before, Now) < Count] of
            [] -> {ok, settled(A, B)};
            Missing -> {Missing, Now}
        end
    end),
    ?assertEqual(Sent, maps:map(fun(Op, _) -> grown(Op, Before, After) end, Sent)).

%% A cut in the middle of a load, again and again.
cut_counts_nothing_twice(Config) ->
    [#{os_pid := PidA} = A, #{os_pid := PidB} = B] = Pair = counted_pair(Config),
    [ok = call(Node, inet_rdma_test_filler, park, []) || Node <- Pair],
    Filler = call(A, inet_rdma_test_filler, load, [name(B), ?ROUNDS, ?BYTES]),
    [
        begin
            ?assert(inet_rdma_test_cutter:cut(PidA, PidB) > 0),
            ok = inet_rdma_test_cutter:await(PidA, PidB)
        end
     || _ <- lists:seq(1, 3)
    ],
    once(A, B, Filler).

%% The log line and the event name the filler; the flight recorder has rows.
full_link_is_an_event(Config) ->
    [A, B] = counted_pair(Config),
    ok = call(A, inet_rdma_test_events, install, []),
    ok = call(A, inet_rdma_test_events, use_stand_in, [returns]),
    ok = call(B, inet_rdma_test_filler, park, []),
    Filler = call(A, inet_rdma_test_filler, flood, [name(B), 1000000]),
    {Figures, Metadata} = inet_rdma_test_wait:until(full, 60000, fun() ->
        Executed = call(A, inet_rdma_test_events, executed, []),
        case lists:keyfind([inet_rdma, link, full], 1, Executed) of
            {_, Figures, Metadata} -> {ok, {Figures, Metadata}};
            false -> Executed
        end
    end),
    ct:pal("~p~n~p", [Figures, Metadata]),
    #{bytes_per_second := Rate, count := 1} = Figures,
    Name = name(B),
    ?assertMatch(#{event := full, node := Name, top := [_ | _]}, Metadata),
    #{top := [First | _], why := Why} = Metadata,
    ?assertMatch(#{from := {Filler, filler}, to := {name, sink}, at_least := _}, First),
    ?assert(map_get(at_most, First) > Rate div 2),
    Words = ["are of ", call(A, erlang, pid_to_list, [Filler]), " (filler) to sink"],
    ?assertMatch({match, _}, re:run(Why, ["^[0-9]+ % of [0-9]+ [MK]B/s ", quoted(Words), "$"])),
    Notices = [
        Kind
     || {notice, #{inet_rdma := #{event := Kind}}} <- call(A, inet_rdma_test_events, logged, [])
    ],
    ?assertEqual([full], Notices),
    filler_is_noted(A, B, Words).

quoted(Words) ->
    re:replace(Words, "[()<>.]", "\\\\&", [global]).

filler_is_noted(A, B, Words) -> filler_is_noted(A, B, Words, 0).

%% By an event after the one with this sequence number.
filler_is_noted(A, B, Words, After) ->
    inet_rdma_test_wait:until(noted, 10000, fun() ->
        History = call(A, inet_rdma, history, [name(B)]),
        Fillers = [
            Why
         || #{event := <<"filler">>, why := Why, sequence := Sequence} <- History, Sequence > After
        ],
        case [Why || Why <- Fillers, string:find(Why, iolist_to_binary(Words)) =/= nomatch] of
            [_ | _] -> {ok, ok};
            [] -> History
        end
    end).

%% Either node ends the link on purpose, or its port is killed.
end_notes_who_filled_the_link(Config) ->
    [A, B] = counted_pair(Config),
    [ok = call(Node, inet_rdma_test_filler, park, []) || Node <- [A, B]],
    [
        begin
            ok = inet_rdma_test_node:connect(A, B),
            Filler = loaded(A, B),
            Before = last_event(A, B),
            End(A, B),
            ok = filler_is_noted(A, B, words(A, Filler), Before)
        end
     || End <- [fun disconnect/2, fun(X, Y) -> disconnect(Y, X) end, fun kill_port/2]
    ].

%% As after the first seconds of a node: what a link calls when it ends is loaded.
loaded(A, B) ->
    ok = call(A, inet_rdma_modules, load_all, []),
    Filler = call(A, inet_rdma_test_filler, load, [name(B), ?ROUNDS, ?BYTES]),
    ok = call(A, inet_rdma_test_filler, stop, [Filler]),
    Filler.

words(A, Filler) -> ["sent are of ", call(A, erlang, pid_to_list, [Filler]), " (filler) to sink"].

last_event(A, B) ->
    lists:max([0 | [Sequence || #{sequence := Sequence} <- call(A, inet_rdma, history, [name(B)])]]).

disconnect(A, B) -> ?assertEqual(true, call(A, erlang, disconnect_node, [name(B)])).

kill_port(A, _B) ->
    [{_, Port}] = call(A, erlang, system_info, [dist_ctrl]),
    true = call(A, erlang, exit, [Port, kill]).

%% The peer is stopped, and no path is suspected for that: net_ticktime ends the link.
silence_notes_who_filled_the_link(Config) ->
    More = #{rdma => [{suspect_after_ms, 0}], args => ["-kernel", "net_ticktime", "4"]},
    [A, B] = counted_pair(Config, More),
    ok = call(B, inet_rdma_test_filler, park, []),
    Filler = loaded(A, B),
    Before = last_event(A, B),
    ok = inet_rdma_test_node:suspend(B),
    inet_rdma_test_wait:until(ended, 30000, fun() -> call(A, erlang, nodes, []) =:= [] end),
    ok = filler_is_noted(A, B, words(A, Filler), Before),
    ok = inet_rdma_test_node:resume(B).

%% The peer is stopped: many senders wait before the link counts as stalled. The VM suspends each
%% of them after its message.
queue_over_its_bound_is_noted(Config) ->
    [A, B] = counted_pair(Config, #{rdma => [{suspect_after_ms, 0}], args => []}),
    ok = call(B, inet_rdma_test_filler, park, []),
    ok = call(A, inet_rdma_modules, load_all, []),
    ok = inet_rdma_test_node:suspend(B),
    Filler = call(A, inet_rdma_test_filler, flood, [name(B), ?BYTES]),
    _ = [
        call(A, erlang, spawn, [erlang, send, [{sink, name(B)}, binary:copy(<<1>>, ?BYTES)]])
     || _ <- lists:seq(1, 100)
    ],
    ok = filler_is_noted(A, B, words(A, Filler)),
    Events = [Event || #{event := Event} <- call(A, inet_rdma, history, [name(B)])],
    {Before, _} = lists:splitwith(fun(Event) -> Event =/= <<"filler">> end, Events),
    ?assertNot(lists:member(<<"stalled">>, Before), Events),
    ok = inet_rdma_test_node:resume(B).

%% Only with the option, and pids are in no series.
registered_names_are_series(_Config) ->
    [A, B] = inet_rdma_test_node:start_all([
        {"a", inet_rdma_test_node:alone(#{rdma => [{attribution_names, on}], args => []})},
        {"b", inet_rdma_test_node:alone(#{args => []})}
    ]),
    ok = inet_rdma_test_node:connect(A, B),
    [ok = call(Node, inet_rdma_test_filler, park, []) || Node <- [A, B]],
    [ok = call(Node, inet_rdma_test_metrics, use_stand_in, []) || Node <- [A, B]],
    _ = loaded(A, B),
    {gauge, Series} = names(A),
    Peer = atom_to_binary(name(B)),
    ct:pal("~p", [Series]),
    Labels = #{
        <<"peer">> => Peer,
        <<"direction">> => <<"sent">>,
        <<"from">> => <<"filler">>,
        <<"to">> => <<"sink">>
    },
    ?assertMatch([{Labels, Rate} | _] when Rate > 10000, Series),
    %% The many senders without a name are one series.
    Others = Labels#{<<"from">> => <<>>},
    ?assertMatch([{Others, _}], [One || {Each, _} = One <- Series, Each =:= Others]),
    ?assert(length(Series) =< 20),
    ?assertEqual({gauge, []}, names(B)).

names(Node) ->
    Families = call(Node, inet_rdma_test_metrics, collect, [inet_rdma_prometheus_collector]),
    {_, Type, Series} = lists:keyfind(<<"inet_rdma_link_name_bytes_per_second">>, 1, Families),
    {Type, Series}.

%% A cut in the middle of a load that is not enough to fill the link.
loss_notes_who_filled_the_link(Config) ->
    [#{os_pid := PidA} = A, #{os_pid := PidB} = B] = Pair = counted_pair(Config),
    [ok = call(Node, inet_rdma_test_filler, park, []) || Node <- Pair],
    Filler = call(A, inet_rdma_test_filler, load, [name(B), ?ROUNDS, ?BYTES]),
    ok = call(A, inet_rdma_test_filler, stop, [Filler]),
    ?assert(inet_rdma_test_cutter:cut(PidA, PidB) > 0),
    ok = inet_rdma_test_cutter:await(PidA, PidB),
    ok = filler_is_noted(A, B, words(A, Filler)).

%% The load begins on TCP and goes on over shared memory.
move_counts_nothing_twice(_Config) ->
    Options = #{rdma => [{fabric, shm}, {move, earned}], args => []},
    [A, B] = inet_rdma_test_node:start_all([
        {[Prefix], inet_rdma_test_node:alone(Options)}
     || Prefix <- "ab"
    ]),
    ok = inet_rdma_test_link:connect(A, B),
    [ok = call(Node, inet_rdma_test_filler, park, []) || Node <- [A, B]],
    ?assertEqual(tcp, inet_rdma_test_link:fabric(A, B)),
    Filler = call(A, inet_rdma_test_filler, load, [name(B), ?ROUNDS, ?BYTES]),
    ok = inet_rdma_test_link:await(A, B, shm),
    once(A, B, Filler).

%% Both nodes have counted the filler's messages once.
once(A, B, Filler) ->
    #{sent := #{all := #{rows := [Sent | _]}, operations := OfSent}} = counted(A, B, Filler),
    #{received := #{all := #{rows := [Received | _]}, operations := OfReceived}} =
        counted(B, A, Filler),
    ?assertMatch(#{from := {Filler, filler}, to := {name, sink}}, Sent),
    ?assertMatch(#{from := Filler, to := {name, sink}}, Received),
    ?assertEqual(map_get(at_most, Sent), map_get(at_most, Received)),
    ?assert(map_get(at_least, Sent) < ?ROUNDS * (?BYTES + 200)),
    ?assertEqual(map_get(reg_send, OfSent), map_get(reg_send, OfReceived)).

links_that_are_not_counted_say_why(_Config) ->
    [A, B, C] = inet_rdma_test_node:start_all([
        {"a", inet_rdma_test_node:alone(#{rdma => [{attribution, off}], args => []})},
        {"b", inet_rdma_test_node:alone(#{args => []})},
        {"c", inet_rdma_test_node:alone(#{carrier => "inet_tcp", args => []})}
    ]),
    ok = inet_rdma_test_node:connect(A, B),
    ok = inet_rdma_test_link:connect(B, C),
    ?assertEqual({error, attribution_off}, call(A, inet_rdma, top, [name(B)])),
    ?assertEqual({error, other_carrier}, call(B, inet_rdma, top, [name(C)])),
    ?assertEqual({error, no_link}, call(A, inet_rdma, top, [name(C)])),
    ?assertMatch({ok, #{sent := #{off := none}}}, call(B, inet_rdma, top, [name(A)])),
    ?assertEqual([{name(B), {error, attribution_off}}], call(A, inet_rdma, top, [])),
    Told = maps:from_list(call(B, inet_rdma, top, [])),
    ?assertEqual(lists:sort([name(A), name(C)]), lists:sort(maps:keys(Told))).

%% A reader that begins in the middle meets atoms that it has not seen.
reader_that_is_off_says_so(_Config) ->
    Options = #{rdma => [{attribution, off}], args => []},
    [A, B] = inet_rdma_test_node:start_all(2, inet_rdma_test_node:alone(Options)),
    ok = call(A, inet_rdma_test_events, install, []),
    ok = inet_rdma_test_node:connect(A, B),
    [ok = call(Node, inet_rdma_test_filler, park, []) || Node <- [A, B]],
    First = call(A, inet_rdma_test_filler, load, [name(B), 1, ?BYTES]),
    ok = call(A, inet_rdma_test_filler, stop, [First]),
    [{_, Port}] = call(A, erlang, system_info, [dist_ctrl]),
    {ok, <<>>} = call(A, inet_rdma_port, command, [Port, attribute]),
    Filler = call(A, inet_rdma_test_filler, load, [name(B), 10, ?BYTES]),
    ok = call(A, inet_rdma_test_filler, stop, [Filler]),
    #{sent := #{off := Off, operations := Operations}} = top(A, B),
    ?assertEqual(<<"a header refers to an empty entry of the atom cache">>, Off),
    ?assertMatch(#{other := {Messages, Bytes}} when Messages >= 10 andalso Bytes > 0, Operations),
    Kinds = [
        Kind
     || {notice, #{inet_rdma := #{event := Kind}}} <- call(A, inet_rdma_test_events, logged, [])
    ],
    ?assertEqual([unread], Kinds),
    %% The link goes on.
    ok = call(A, inet_rdma_test_data, echo_and_compare, [name(B), [1000, 300000]]).

counted_pair(Config) -> counted_pair(Config, #{}).

counted_pair(Config, More) ->
    Options = inet_rdma_test_paths:options(Config, More),
    [A, B] = inet_rdma_test_node:start_all([
        {[Prefix], inet_rdma_test_node:alone(Options)}
     || Prefix <- "ab"
    ]),
    ok = inet_rdma_test_node:connect(A, B),
    [A, B].

top(A, B) ->
    {ok, Top} = call(A, inet_rdma, top, [name(B)]),
    Top.

operations(A, B, Direction) ->
    #{Direction := #{operations := Operations, off := none}} = top(A, B),
    Operations.

messages(Operation, Operations) ->
    {Messages, _Bytes} = maps:get(Operation, Operations, {0, 0}),
    Messages.

grown(Operation, Before, Now) -> messages(Operation, Now) - messages(Operation, Before).

%% Nothing is under way: the receiver has counted what the sender has, but for ticks.
settled(A, B) ->
    inet_rdma_test_wait:until(settled, 10000, fun() ->
        Sent = maps:remove(tick, operations(A, B, sent)),
        case maps:remove(tick, operations(B, A, received)) of
            Sent -> {ok, Sent};
            Received -> {Sent, Received}
        end
    end).

%% What the node has counted, when the filler has sent all and both nodes agree.
counted(A, B, Filler) ->
    Sender = hd([Node || Node <- [A, B], name(Node) =:= node(Filler)]),
    ok = call(Sender, inet_rdma_test_filler, stop, [Filler]),
    _ = settled(A, B),
    _ = settled(B, A),
    top(A, B).

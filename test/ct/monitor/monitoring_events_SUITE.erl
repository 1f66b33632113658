%% What happens to links, as log events, events of telemetry and the doctor tell it: links that come
%% up, stay on TCP, end, stall, lose their connections, are suspended or go on.
-module(monitoring_events_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_series, [
    three/0,
    collected/1,
    value/3,
    path/2,
    table/1,
    offered/0,
    fake/1,
    told/2,
    documented/2
]).

-export([all/0, suite/0, init_per_testcase/2]).
-export([
    kinds_are_those_of_the_docs/1,
    log_events_name_the_link/1,
    telemetry_is_told_of_links/1,
    stalls_are_events/1,
    telemetry_that_hangs_keeps_no_link/1,
    losses_are_shown/1,
    suspension_is_shown/1,
    cuts_name_their_cause/1
]).

suite() ->
    [{timetrap, {minutes, 2}}, {ct_hooks, [{inet_rdma_test_nodes, [only_rdma]}]}].

all() ->
    [
        kinds_are_those_of_the_docs,
        log_events_name_the_link,
        telemetry_is_told_of_links,
        stalls_are_events,
        telemetry_that_hangs_keeps_no_link,
        losses_are_shown,
        suspension_is_shown,
        cuts_name_their_cause
    ].

init_per_testcase(cuts_name_their_cause, Config) ->
    inet_rdma_test_cutter:needed(Config);
init_per_testcase(_Case, Config) ->
    Config.

%% docs/MONITORING.md and docs/FLIGHT.md name each kind of event. A move has no log line, and a
%% refused link is no event of telemetry.
kinds_are_those_of_the_docs(_Config) ->
    Kinds = kinds(),
    [Logged] = documented("MONITORING.md", "^\\| `event` (\\|.*)$"),
    ?assertEqual(lists:sort(Kinds -- [<<"moved">>]), lists:sort(quoted(Logged))),
    ?assertEqual(
        lists:sort(Kinds -- [<<"refused">>]),
        lists:sort(documented("MONITORING.md", "^\\| `\\[inet_rdma, link, ([a-z_]+)\\]` \\|"))
    ),
    ?assertEqual(
        [],
        Kinds --
            lists:flatmap(fun quoted/1, documented("FLIGHT.md", "^\\| ((?:`[a-z_]+`(?:, )?)+) \\|"))
    ).

%% The kinds of the type in inet_rdma_link_event.
kinds() ->
    {ok, {_, [{abstract_code, {_, Forms}}]}} = beam_lib:chunks(code:which(inet_rdma_link_event), [
        abstract_code
    ]),
    [Kinds] = [Atoms || {attribute, _, type, {kind, {type, _, union, Atoms}, []}} <- Forms],
    [atom_to_binary(Kind) || {atom, _, Kind} <- Kinds].

quoted(Text) ->
    {match, Found} = re:run(Text, "`([a-z_]+)`", [global, {capture, [1], binary}]),
    lists:append(Found).

%% Connections that a relay resets or ends: counts, series, columns, log lines, events and a finding
%% of the doctor.
losses_are_shown(Config) ->
    Options = #{rdma => [{fabric, tcp}]},
    #{a := A, b := B, relay := Relay} =
        inet_rdma_test_detour:start(proplists:get_value(priv_dir, Config), Options, Options),
    Ends = [{A, B}, {B, A}],
    [
        begin
            ok = call(Node, inet_rdma_test_log, install, []),
            ok = call(Node, inet_rdma_test_events, install, []),
            ok = call(Node, inet_rdma_test_events, use_stand_in, [returns])
        end
     || Node <- [A, B]
    ],
    ok = inet_rdma_test_link:connect(A, B),
    %% The node that has made the connection dials at once. It hears of a loss by an attempt of the
    %% other node, and knows no cause, only if it takes no notice of its own socket for long.
    Resets = lose_until(econnreset, reset, 0, Relay, Ends),
    Times = lose_until(closed, close, lose_until(any, reset, Resets, Relay, Ends), Relay, Ends),
    Shown = [{Node, Peer, collected(Node)} || {Node, Peer} <- Ends],
    [
        begin
            ?assertEqual({Name, Value}, {Name, value(Name, Families, Peer)})
        end
     || {_, Peer, Families} <- Shown,
        {Name, Value} <- [
            {<<"inet_rdma_link_losses_total">>, Times},
            {<<"inet_rdma_link_resumes_total">>, Times},
            {<<"inet_rdma_link_moves_total">>, 0},
            {<<"inet_rdma_link_suspended">>, 0}
        ]
    ],
    [
        ?assertEqual(
            #{<<"tcp">> => 1, <<"shm">> => 0, <<"tls">> => 0, <<"verbs">> => 0},
            path(Families, Peer)
        )
     || {_, Peer, Families} <- Shown
    ],
    [
        ?assert(value(<<"inet_rdma_link_unacknowledged_bytes">>, Families, Peer) >= 0)
     || {_, Peer, Families} <- Shown
    ],
    [
        begin
            [Line] = [
                Line
             || Line <- table(Node), string:prefix(Line, atom_to_list(name(Peer))) =/= nomatch
            ],
            Number = integer_to_list(Times),
            ?assertMatch(
                ["up", _, _, _, _, "-", _, Number, Number, "0" | _],
                lists:nthtail(2, string:lexemes(Line, " "))
            )
        end
     || {Node, Peer, _} <- Shown
    ],
    [told_of_losses(Node, Peer, Times) || {Node, Peer} <- Ends],
    Said = call(A, inet_rdma_test_log, lines, []),
    [
        ?assertMatch(
            {_, [_ | _]}, {Text, [Line || Line <- Said, string:find(Line, Text) =/= nomatch]}
        )
     || Text <- [
            "lost its TCP connection (connection reset by peer, econnreset); reconnecting",
            "lost its TCP connection (the other side ended it); reconnecting",
            "goes on over another TCP connection, after "
        ]
    ],
    #{findings := Findings} = call(A, inet_rdma_doctor, report, []),
    [Text] = [Text || #{about := links, severity := note, text := Text} <- Findings],
    Expected = iolist_to_binary(["has lost its TCP connection ", integer_to_list(Times), " times"]),
    ?assertMatch({_, _}, binary:match(Text, Expected)),
    ?assertMatch({_, _}, binary:match(Text, atom_to_binary(name(B)))).

%% Loses the connection, and waits until both nodes have counted the loss and have another
%% connection. Repeats that until the first node has told this reason. Returns the number of losses
%% so far.
lose_until(Reason, Loss, Before, Relay, [{First, _} | _] = Ends) ->
    Times = Before + 1,
    ?assert(Times < 20),
    ?assert(inet_rdma_test_relay:lose(Relay, Loss) > 0),
    [
        inet_rdma_test_wait:until({resumed, Loss, Times}, 20000, fun() ->
            case call(Node, inet_rdma, info, [name(Peer)]) of
                #{losses := Times, resumes := Times, suspended := false} -> true;
                Other -> Other
            end
        end)
     || {Node, Peer} <- Ends
    ],
    inet_rdma_test_wait:until({told, Times}, 10000, fun() -> length(told(First, lost)) =:= Times end),
    Reasons = [Told || {_, #{reason := Told}} <- told(First, lost)],
    case Reason =:= any orelse lists:member(Reason, Reasons) of
        true -> Times;
        false -> lose_until(Reason, Loss, Times, Relay, Ends)
    end.

%% Each loss is followed by its restoration, in the log and by telemetry.
told_of_losses(Node, Peer, Times) ->
    Name = name(Peer),
    inet_rdma_test_wait:until(told, 10000, fun() ->
        {length(told(Node, lost)), length(told(Node, restored))} =:= {Times, Times}
    end),
    [
        ?assertMatch(
            {#{count := 1, system_time := _}, #{
                event := lost, node := Name, fabric := tcp, why := <<_, _/binary>>
            }},
            Lost
        )
     || Lost <- told(Node, lost)
    ],
    [
        begin
            ?assertMatch(
                {#{count := 1, duration := _}, #{event := restored, node := Name, reason := _}},
                Restored
            ),
            {#{duration := Duration}, #{reason := Reason}} = Restored,
            ?assertEqual({Reason, Reason =/= superseded}, {Reason, Duration > 0})
        end
     || Restored <- told(Node, restored)
    ],
    Logged = [
        {Kind, Reason}
     || {notice, #{inet_rdma := #{event := Kind}, inet_rdma_reason := Reason}} <-
            call(Node, inet_rdma_test_events, logged, [])
    ],
    Unseen = length([superseded || {restored, superseded} <- Logged]),
    ?assertEqual(
        {Times, Times - Unseen},
        {length([restored || {restored, _} <- Logged]), length([lost || {lost, _} <- Logged])}
    ).

%% While no connection can be made no path carries the link.
suspension_is_shown(Config) ->
    Options = #{rdma => [{fabric, tcp}, {survive_ms, 600000}]},
    #{a := A, b := B, relay := Relay} =
        inet_rdma_test_detour:start(proplists:get_value(priv_dir, Config), Options, Options),
    ok = inet_rdma_test_link:connect(A, B),
    ok = inet_rdma_test_relay:hold(Relay),
    Suspended = fun(Families) -> value(<<"inet_rdma_link_suspended">>, Families, B) end,
    inet_rdma_test_wait:until(suspended, 20000, fun() -> Suspended(collected(A)) =:= 1 end),
    ?assertMatch(
        #{
            state := up,
            fabric := tcp,
            suspended := true,
            path_state := suspended,
            losses := 1,
            resumes := 0
        },
        call(A, inet_rdma, info, [name(B)])
    ),
    %% Its senders wait, and what they have sent is kept.
    _ = call(A, erlang, send, [{nobody, name(B)}, binary:copy(<<0>>, 1000)]),
    Families = collected(A),
    ?assertEqual(
        #{<<"tcp">> => 0, <<"shm">> => 0, <<"tls">> => 0, <<"verbs">> => 0}, path(Families, B)
    ),
    ?assertEqual([suspended], inet_rdma_test_series:path_states(Families, B)),
    ?assert(value(<<"inet_rdma_link_unacknowledged_bytes">>, Families, B) >= 1000),
    ?assertMatch([_, _, "suspended" | _], string:lexemes(lists:last(table(A)), " ")),
    #{findings := Findings} = call(A, inet_rdma_doctor, report, []),
    ?assertMatch([_], [
        Text
     || #{about := links, text := Text} <- Findings,
        binary:match(Text, <<"no path carries it">>) =/= nomatch
    ]),
    ok = inet_rdma_test_relay:pass(Relay),
    inet_rdma_test_wait:until(restored, 20000, fun() -> Suspended(collected(A)) =:= 0 end),
    ?assertEqual([carried], inet_rdma_test_series:path_states(collected(A), B)),
    ok = call(A, inet_rdma_test_data, send_and_compare, [name(B), [1000]]).

%% Cut by the kernel, of a link that shared memory carries: nobody waits, and the cause is the
%% kernel's.
cuts_name_their_cause(_Config) ->
    [A, B] = inet_rdma_test_node:start_all(2, #{rdma => [{fabric, shm}]}),
    [#{os_pid := PidA}, #{os_pid := PidB}] = [A, B],
    ok = inet_rdma_test_link:connect(A, B),
    ok = inet_rdma_test_link:await(A, B, shm),
    ok = call(A, inet_rdma_test_events, install, []),
    ok = call(A, inet_rdma_test_log, install, []),
    ok = inet_rdma_test_cutter:await(PidA, PidB),
    ?assert(inet_rdma_test_cutter:cut(PidA, PidB) > 0),
    inet_rdma_test_wait:until(resumed, 20000, fun() ->
        case call(A, inet_rdma, info, [name(B)]) of
            #{fabric := shm, losses := Times, resumes := Times, suspended := false} when
                Times > 0
            ->
                true;
            Other ->
                Other
        end
    end),
    inet_rdma_test_wait:until(logged, 10000, fun() ->
        [] =/=
            [
                Kind
             || {notice, #{inet_rdma := #{event := restored = Kind}}} <-
                    call(A, inet_rdma_test_events, logged, [])
            ]
    end),
    Logged = [
        {Kind, Fabric, Reason}
     || {notice, #{inet_rdma := #{event := Kind, fabric := Fabric}, inet_rdma_reason := Reason}} <-
            call(A, inet_rdma_test_events, logged, [])
    ],
    ct:pal("~p~n~p", [Logged, call(A, inet_rdma_test_log, lines, [])]),
    [
        ?assert(lists:member(Reason, [econnreset, econnaborted, superseded]))
     || {_, _, Reason} <- Logged
    ],
    [?assertEqual({Kind, shm}, {Kind, Fabric}) || {Kind, Fabric, _} <- Logged],
    ?assertEqual(1, value(<<"inet_rdma_link_resumes_total">>, collected(A), B)).

%% Up, fallback to TCP, a settlement that fails, and the end of a link whose peer breaks the rules.
log_events_name_the_link(_Config) ->
    [A, Moved, Tcp] = three(),
    ok = call(A, inet_rdma_test_events, install, []),
    [ok = inet_rdma_test_link:connect(A, Peer) || Peer <- [Moved, Tcp]],
    [Why, TcpWhy] = [
        unicode:characters_to_binary(inet_rdma_test_link:why(A, Peer))
     || Peer <- [Moved, Tcp]
    ],
    ?assertEqual(
        [
            {info, #{inet_rdma => #{event => up, node => name(Moved), fabric => shm, why => Why}}},
            {info, #{
                inet_rdma => #{event => fallback, node => name(Tcp), fabric => tcp, why => TcpWhy}
            }}
        ],
        call(A, inet_rdma_test_events, logged, [])
    ),
    Fake = fake("gone"),
    Gone = inet_rdma_test_peer:connect(name(A), Fake, offered()),
    {hello, _} = inet_rdma_test_peer:hear(Gone),
    ok = inet_rdma_test_peer:hang_up(Gone),
    %% Bytes that are no frame of the session.
    ok = call(Moved, inet_rdma_test_remote, end_part, [frames]),
    inet_rdma_test_wait:until(logged, 10000, fun() ->
        Logged = call(A, inet_rdma_test_events, logged, []),
        [down, failed] =:=
            lists:sort([Kind || {warning, #{inet_rdma := #{event := Kind}}} <- Logged])
    end),
    Warnings = [
        Event
     || {warning, #{inet_rdma := Event}} <- call(A, inet_rdma_test_events, logged, [])
    ],
    ?assertMatch([#{fabric := undefined, node := Fake}], [
        Event
     || #{event := failed} = Event <- Warnings
    ]),
    Name = name(Moved),
    ?assertMatch([#{fabric := shm, node := Name}], [Event || #{event := down} = Event <- Warnings]).

telemetry_is_told_of_links(_Config) ->
    [A, Moved, Tcp] = three(),
    ok = call(A, inet_rdma_test_events, install, []),
    ok = call(A, inet_rdma_test_events, use_stand_in, [returns]),
    [ok = inet_rdma_test_link:connect(A, Peer) || Peer <- [Moved, Tcp]],
    ok = inet_rdma_test_link:disconnect(A, Moved),
    inet_rdma_test_wait:until(told, 10000, fun() ->
        length(call(A, inet_rdma_test_events, executed, [])) =:= 3
    end),
    Executed = call(A, inet_rdma_test_events, executed, []),
    {value, {_, Up, UpMetadata}} = lists:keysearch([inet_rdma, link, up], 1, Executed),
    {value, {_, Fallback, FallbackMetadata}} = lists:keysearch(
        [inet_rdma, link, fallback], 1, Executed
    ),
    {value, {_, Down, DownMetadata}} = lists:keysearch([inet_rdma, link, down], 1, Executed),
    [
        ?assertMatch(#{count := 1, system_time := _}, Measurements)
     || Measurements <- [Up, Fallback, Down]
    ],
    ?assert(maps:get(duration, Down) > 0),
    [MovedName, TcpName] = [name(Moved), name(Tcp)],
    ?assertMatch(
        #{event := up, node := MovedName, fabric := shm, why := <<_, _/binary>>}, UpMetadata
    ),
    ?assertMatch(
        #{
            event := fallback,
            node := TcpName,
            fabric := tcp,
            why := <<"the peer makes no offer", _/binary>>
        },
        FallbackMetadata
    ),
    ?assertMatch(
        #{event := down, node := MovedName, fabric := shm, why := <<_, _/binary>>, reason := _},
        DownMetadata
    ).

%% A peer that is stopped takes nothing; once it goes on, all that was sent arrives.
stalls_are_events(_Config) ->
    [A, Moved, _] = three(),
    ok = call(A, inet_rdma_test_events, install, []),
    ok = call(A, inet_rdma_test_events, use_stand_in, [returns]),
    ok = inet_rdma_test_link:connect(A, Moved),
    ok = inet_rdma_test_link:await(A, Moved, shm),
    inet_rdma_test_node:suspend(Moved),
    %% 16 MB: more than ring and queues hold.
    Sender = call(A, erlang, spawn, [
        erlang, send, [{nobody, name(Moved)}, binary:copy(<<0>>, 16000000)]
    ]),
    Kinds = fun() ->
        [Kind || {[inet_rdma, link, Kind], _, _} <- call(A, inet_rdma_test_events, executed, [])]
    end,
    inet_rdma_test_wait:until(stalled, 20000, fun() -> Kinds() =:= [up, stalled] end),
    inet_rdma_test_node:resume(Moved),
    inet_rdma_test_wait:until(stall_ended, 20000, fun() -> lists:member(stall_ended, Kinds()) end),
    inet_rdma_test_wait:until(sent, 20000, fun() ->
        not call(A, erlang, is_process_alive, [Sender])
    end),
    ok = call(A, inet_rdma_test_data, send_and_compare, [name(Moved), [1000]]),
    Executed = call(A, inet_rdma_test_events, executed, []),
    {value, {_, Stalled, StalledMetadata}} = lists:keysearch(
        [inet_rdma, link, stalled], 1, Executed
    ),
    {value, {_, Ended, EndedMetadata}} = lists:keysearch(
        [inet_rdma, link, stall_ended], 1, Executed
    ),
    Name = name(Moved),
    ?assertMatch(#{count := 1, system_time := _}, Stalled),
    ?assert(maps:get(duration, Ended) > 0),
    [
        ?assertMatch(#{node := Name, fabric := shm, why := <<_, _/binary>>}, Metadata)
     || Metadata <- [StalledMetadata, EndedMetadata]
    ],
    Notices = [
        Kind
     || {notice, #{inet_rdma := #{event := Kind}}} <- call(A, inet_rdma_test_events, logged, [])
    ],
    ?assertEqual([stalled, stall_ended], Notices).

%% Handlers run in the process that executes; none of a link's may be that process.
telemetry_that_hangs_keeps_no_link(_Config) ->
    [A, Moved, Tcp] = three(),
    ok = call(A, inet_rdma_test_events, install, []),
    ok = call(A, inet_rdma_test_events, use_stand_in, [hangs]),
    [ok = inet_rdma_test_link:connect(A, Peer) || Peer <- [Moved, Tcp]],
    [
        ok = call(A, inet_rdma_test_data, send_and_compare, [name(Peer), [1000]])
     || Peer <- [Moved, Tcp]
    ],
    %% The connection supervisors answer.
    [
        ?assertMatch({ok, [_ | _]}, call(A, net_kernel, node_info, [name(Peer)]))
     || Peer <- [Moved, Tcp]
    ],
    ok = inet_rdma_test_link:disconnect(A, Moved),
    inet_rdma_test_wait:until(told, 10000, fun() ->
        length(call(A, inet_rdma_test_events, executed, [])) =:= 3
    end).

name(#{node := Node}) -> Node.

call(Node, Module, Function, Arguments) ->
    inet_rdma_test_node:call(Node, Module, Function, Arguments).

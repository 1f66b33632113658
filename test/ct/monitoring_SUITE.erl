%% What monitoring sees of links: the series of inet_rdma_prometheus_collector, the table of inet_rdma:i/0, the metadata
%% of log events, and events of telemetry.
-module(monitoring_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2]).
-export([series_are_those_of_the_library/1, series_are_those_of_the_list/1, series_are_those_of_the_docs/1]).
-export([dashboard_has_known_series/1]).
-export([each_link_has_its_series/1, sizes_of_packets_on_each_path/1, counts_outlive_moves/1]).
-export([losses_are_shown/1, suspension_is_shown/1, cuts_name_their_cause/1]).
-export([link_without_facts_leaves_the_others/1, counts_outlive_links/1]).
-export([table_of_links/1, table_without_links/1]).
-export([log_events_name_the_link/1, telemetry_is_told_of_links/1,
         stalls_are_events/1, telemetry_that_hangs_keeps_no_link/1]).

-define(COLLECTOR, inet_rdma_prometheus_collector).
%% The collector of prometheus.erl whose series must go on.
-define(REPLACED, prometheus_vm_dist_collector).
%% Where packages put the library, as directories or as archives.
-define(LIBRARY, ["/usr/lib/rabbitmq/lib/*/plugins/{prometheus,quantile_estimator}-*/ebin",
                  "/usr/lib/rabbitmq/lib/*/plugins/{prometheus,quantile_estimator}-*.ez"]).

suite() ->
    [{timetrap, {minutes, 2}}].

all() ->
    [series_are_those_of_the_library, series_are_those_of_the_list, series_are_those_of_the_docs,
     dashboard_has_known_series,
     each_link_has_its_series, sizes_of_packets_on_each_path, counts_outlive_moves, losses_are_shown,
     suspension_is_shown, cuts_name_their_cause,
     link_without_facts_leaves_the_others, counts_outlive_links, table_of_links, table_without_links,
     log_events_name_the_link, telemetry_is_told_of_links, stalls_are_events, telemetry_that_hangs_keeps_no_link].

init_per_suite(Config) ->
    inet_rdma_test_node:only_rdma(Config).

end_per_suite(_Config) ->
    ok.

init_per_testcase(series_are_those_of_the_library, Config) ->
    case lists:append([[in_archive(Path) || Path <- filelib:wildcard(Pattern)] || Pattern <- ?LIBRARY]) of
        [] -> {skip, "prometheus.erl is not installed; the package rabbitmq-server has it"};
        Directories -> [{library, Directories} | Config]
    end;
init_per_testcase(cuts_name_their_cause, Config) ->
    case inet_rdma_test_cutter:why_not() of
        none -> Config;
        Why -> inet_rdma_test_link:skip(Why)
    end;
init_per_testcase(_Case, Config) ->
    Config.

in_archive(Path) ->
    case filename:extension(Path) of
        ".ez" -> filename:join([Path, filename:basename(Path, ".ez"), "ebin"]);
        _ -> Path
    end.

end_per_testcase(_Case, _Config) ->
    inet_rdma_test_node:stop_all().

%% Beside prometheus_vm_dist_collector itself: for a link that inet_tcp's driver carries all is the same. Of a link with
%% a session that collector finds no socket, and gives no counts; ours counts the link. The committed list is the
%% library's.
series_are_those_of_the_library(Config) ->
    {A, Moved, Tcp} = three_nodes(),
    ok = call(A, inet_rdma_test_metrics, use_library, [proplists:get_value(library, Config)]),
    Theirs = call(A, inet_rdma_test_metrics, collect, [?REPLACED]),
    Ours = call(A, inet_rdma_test_metrics, collect, [?COLLECTOR]),
    ?assertEqual(listed(Config), shapes(Theirs)),
    ?assertEqual(shapes(Theirs), [Shape || {<<"erlang_vm_dist_", _/binary>>, _, _} = Shape <- shapes(Ours)]),
    [?assertEqual({Name, peers(Name, Theirs, Tcp)}, {Name, peers(Name, Ours, Tcp)}) || {Name, _, _} <- Theirs],
    [?assertEqual({Name, peers(Name, Ours, Tcp)}, {Name, peers(Name, Ours, Moved)}) || {Name, _, _} <- Theirs],
    ok = call(A, inet_rdma_test_data, send_and_compare, [name(Moved), [300000]]),
    Sent = <<"erlang_vm_dist_send_bytes">>,
    Later = fun(Collector) -> metrics(Sent, call(A, inet_rdma_test_metrics, collect, [Collector]), Moved) end,
    ?assertEqual([], Later(?REPLACED)),
    [{_, SentLater}] = Later(?COLLECTOR),
    ?assert(SentLater >= value(Sent, Ours, Moved) + 300000),
    %% A largest size only grows: ours was asked for between their two.
    Largest = <<"erlang_vm_dist_recv_max_bytes">>,
    [First, Second, Third] = [value(Largest, Families, Tcp)
                              || Families <- [Theirs, Ours, call(A, inet_rdma_test_metrics, collect, [?REPLACED])]],
    ?assert(0 < First andalso First =< Second andalso Second =< Third),
    Text = call(A, inet_rdma_test_metrics, text, [?COLLECTOR]),
    Line = ["erlang_vm_dist_recv_bytes{peer=\"", atom_to_list(name(Moved)), "\"} [1-9]"],
    ?assertMatch({match, _}, re:run(Text, Line)),
    ?assertMatch({match, _}, re:run(Text, "inet_rdma_link_info{peer=\"[^\"]+\",fabric=\"shm\",why=\"[^\"]+\"} 1")).

%% Where the library is not installed, too.
series_are_those_of_the_list(Config) ->
    {A, _Moved, _Tcp} = three_nodes(),
    Families = collected(A),
    ?assertEqual(listed(Config), [Shape || {<<"erlang_vm_dist_", _/binary>>, _, _} = Shape <- shapes(Families)]),
    Carrier = [Name || {<<"inet_rdma_", _/binary>> = Name, _, _} <- Families],
    ?assertEqual(length(Families), length(listed(Config)) + length(Carrier)).

%% docs/MONITORING.md: rows of tables that begin with a series.
series_are_those_of_the_docs(Config) ->
    Listed = documented(Config, "MONITORING.md", "^\\| `((?:erlang_vm_dist|inet_rdma)_[a-z_]+)` \\|"),
    ?assertEqual(lists:sort(names()), lists:sort(Listed)).

%% docs/grafana-links.json: what its expressions select.
dashboard_has_known_series(Config) ->
    Selected = documented(Config, "grafana-links.json", "\\b([a-z_]+)(?=\\{instance|, instance\\))"),
    ?assertMatch([_, _ | _], Selected),
    ?assertEqual([], lists:usort(Selected) -- names()).

documented(Config, File, Pattern) ->
    {ok, Text} = file:read_file(filename:join([proplists:get_value(data_dir, Config), "..", "..", "..", "docs", File])),
    {match, Found} = re:run(Text, Pattern, [multiline, global, {capture, [1], binary}]),
    lists:append(Found).

%% Of all series.
names() ->
    [Name || {Name, _, _} <- collected(inet_rdma_test_node:start("alone"))].

each_link_has_its_series(_Config) ->
    {A, Moved, Tcp} = three_nodes(),
    Before = collected(A),
    [ok = call(A, inet_rdma_test_data, send_and_compare, [name(Peer), [300000]]) || Peer <- [Moved, Tcp]],
    After = collected(A),
    [?assert(value(Name, After, Peer) - value(Name, Before, Peer) >= Least)
     || Peer <- [Moved, Tcp],
        {Name, Least} <- [{<<"erlang_vm_dist_send_bytes">>, 300000}, {<<"erlang_vm_dist_send_cnt">>, 1},
                                                {<<"erlang_vm_dist_recv_cnt">>, 1}]],
    [?assert(value(Name, After, Peer) > 0)
     || Peer <- [Moved, Tcp], Name <- [<<"erlang_vm_dist_recv_max_bytes">>, <<"erlang_vm_dist_recv_avg_bytes">>,
                                       <<"erlang_vm_dist_port_memory_bytes">>, <<"erlang_vm_dist_proc_memory_bytes">>]],
    [?assertEqual(3, value(<<"erlang_vm_dist_node_state">>, After, Peer)) || Peer <- [Moved, Tcp]],
    [begin
         [{Labels, 1}] = metrics(<<"inet_rdma_link_info">>, After, Peer),
         ?assertEqual({Fabric, unicode:characters_to_binary(inet_rdma_test_link:why(A, Peer))},
                      {maps:get(<<"fabric">>, Labels), maps:get(<<"why">>, Labels)})
     end || {Peer, Fabric} <- [{Moved, <<"shm">>}, {Tcp, <<"tcp">>}]],
    %% TCP has neither, and none is made up.
    [begin
         ?assertMatch([_ | _], metrics(Name, After, Moved)),
         ?assertEqual([], metrics(Name, After, Tcp))
     end || Name <- [<<"inet_rdma_link_direct_ratio">>, <<"inet_rdma_link_credit_stalls_total">>,
                     <<"inet_rdma_link_wakeups_total">>, <<"inet_rdma_link_losses_total">>,
                     <<"inet_rdma_link_suspended">>]].

%% What one node has sent the other has received, whatever carries it; and all counts of inet:getstat/1 are there.
sizes_of_packets_on_each_path(_Config) ->
    [sizes_of_packets_on(Fabric) || Fabric <- [tcp, shm]].

sizes_of_packets_on(Fabric) ->
    [A, B] = Nodes = inet_rdma_test_node:start_all(2, #{rdma => [{fabric, Fabric}], args => ["-connect_all", "false"]}),
    ok = inet_rdma_test_link:connect(A, B),
    ok = inet_rdma_test_link:await(A, B, Fabric),
    %% The runtime system sends it in fragments of 64 KiB.
    ok = call(A, inet_rdma_test_data, send_and_compare, [name(B), [1 bsl 24]]),
    Largest = 65536,
    Keys = [bytes_sent, largest_packet_sent, bytes_received, packet_bytes_received, largest_packet_received],
    inet_rdma_test_wait:until({equal_counts, Fabric}, 20000, fun() ->
        [OfA, OfB] = [maps:with(Keys, call(X, inet_rdma, info, [name(Y)])) || {X, Y} <- [{A, B}, {B, A}]],
        Pairs = [{map_get(Sent, One), map_get(Received, Other)}
                 || {One, Other} <- [{OfA, OfB}, {OfB, OfA}],
                    {Sent, Received} <- [{bytes_sent, bytes_received}, {bytes_sent, packet_bytes_received},
                                         {largest_packet_sent, largest_packet_received}]],
        lists:all(fun({Sent, Received}) -> Sent =:= Received end, Pairs) orelse {OfA, OfB}
    end),
    #{largest_packet_sent := Sent, bytes_sent := Bytes} = call(A, inet_rdma, info, [name(B)]),
    #{packet_deviation_received := Deviation} = call(B, inet_rdma, info, [name(A)]),
    ?assert(Sent >= Largest andalso Sent < 2 * Largest),
    ?assert(Bytes > 1 bsl 24),
    %% Large fragments among small packets.
    ?assert(Deviation > 1000 andalso Deviation < Largest),
    [OfA, OfB] = [collected(Node) || Node <- Nodes],
    [?assertEqual({Fabric, Name, 1}, {Fabric, Name, length(metrics(Name, Families, Peer))})
     || {Families, Peer} <- [{OfA, B}, {OfB, A}], Name <- counted()],
    ?assertEqual(Sent, value(<<"erlang_vm_dist_send_max_bytes">>, OfA, B)),
    ?assertEqual(Sent, value(<<"erlang_vm_dist_recv_max_bytes">>, OfB, A)),
    ?assertEqual(trunc(Deviation), value(<<"erlang_vm_dist_recv_dvi_bytes">>, OfB, A)),
    [?assert(value(Average, Families, Peer) > 0 andalso value(Average, Families, Peer) =< Sent)
     || {Average, Families, Peer} <- [{<<"erlang_vm_dist_send_avg_bytes">>, OfA, B},
                                      {<<"erlang_vm_dist_recv_avg_bytes">>, OfB, A}]],
    [ok = inet_rdma_test_node:stop(Node) || Node <- Nodes].

counted() ->
    [<<"erlang_vm_dist_", Name/binary>>
     || Name <- [<<"recv_bytes">>, <<"recv_cnt">>, <<"recv_max_bytes">>, <<"recv_avg_bytes">>, <<"recv_dvi_bytes">>,
                 <<"send_bytes">>, <<"send_cnt">>, <<"send_max_bytes">>, <<"send_avg_bytes">>, <<"send_pend_bytes">>]].

%% A link that begins on TCP and moves to shared memory goes on counting, and tells of the move.
counts_outlive_moves(_Config) ->
    [A, B] = inet_rdma_test_node:start_all(2, #{rdma => [{fabric, shm}, {move, busy}]}),
    ok = call(A, inet_rdma_test_events, install, []),
    ok = call(A, inet_rdma_test_events, use_stand_in, [returns]),
    ok = inet_rdma_test_link:connect(A, B),
    ok = call(A, inet_rdma_test_data, send_and_compare, [name(B), [1 bsl 20]]),
    ok = inet_rdma_test_link:await(A, B, shm),
    Info = call(A, inet_rdma, info, [name(B)]),
    ct:pal("~p", [Info]),
    ?assertMatch(#{fabric := shm, moves := 1, losses := 0, resumes := 0, suspended := false, up_ms := _}, Info),
    ?assert(map_get(bytes_sent, Info) > 1 bsl 20),
    ?assert(map_get(largest_packet_sent, Info) >= 65536),
    Families = collected(A),
    ?assertEqual(1, value(<<"inet_rdma_link_moves_total">>, Families, B)),
    ?assert(value(<<"erlang_vm_dist_send_bytes">>, Families, B) > 1 bsl 20),
    ?assertEqual(#{<<"shm">> => 1, <<"tcp">> => 0, <<"tls">> => 0, <<"verbs">> => 0}, path(Families, B)),
    %% There once.
    ?assertMatch([_], call(A, inet_rdma, info, [])),
    Name = name(B),
    inet_rdma_test_wait:until(told, 10000, fun() -> [] =/= told(A, moved) end),
    ?assertMatch([{#{count := 1, system_time := _}, #{event := moved, node := Name, from := tcp, fabric := shm}}],
                 told(A, moved)).

%% Connections that a relay resets or ends: counts, series, columns, log lines, events and a finding of the doctor.
losses_are_shown(Config) ->
    Options = #{rdma => [{fabric, tcp}]},
    #{a := A, b := B, relay := Relay} =
        inet_rdma_test_detour:start(proplists:get_value(priv_dir, Config), Options, Options),
    Ends = [{A, B}, {B, A}],
    [begin
         ok = call(Node, inet_rdma_test_log, install, []),
         ok = call(Node, inet_rdma_test_events, install, []),
         ok = call(Node, inet_rdma_test_events, use_stand_in, [returns])
     end || Node <- [A, B]],
    ok = inet_rdma_test_link:connect(A, B),
    %% The node that has made the connection dials at once. It hears of a loss by an attempt of the other node, and
    %% knows no cause, only if it takes no notice of its own socket for long.
    Resets = lose_until(econnreset, reset, 0, Relay, Ends),
    Times = lose_until(closed, close, lose_until(any, reset, Resets, Relay, Ends), Relay, Ends),
    Shown = [{Node, Peer, collected(Node)} || {Node, Peer} <- Ends],
    [begin
         ?assertEqual({Name, Value}, {Name, value(Name, Families, Peer)})
     end || {_, Peer, Families} <- Shown,
            {Name, Value} <- [{<<"inet_rdma_link_losses_total">>, Times}, {<<"inet_rdma_link_resumes_total">>, Times},
                              {<<"inet_rdma_link_moves_total">>, 0}, {<<"inet_rdma_link_suspended">>, 0}]],
    [?assertEqual(#{<<"tcp">> => 1, <<"shm">> => 0, <<"tls">> => 0, <<"verbs">> => 0}, path(Families, Peer))
     || {_, Peer, Families} <- Shown],
    [?assert(value(<<"inet_rdma_link_unacknowledged_bytes">>, Families, Peer) >= 0) || {_, Peer, Families} <- Shown],
    [begin
         [Line] = [Line || Line <- table(Node), string:prefix(Line, atom_to_list(name(Peer))) =/= nomatch],
         Number = integer_to_list(Times),
         ?assertMatch(["up", _, _, _, _, "-", _, Number, Number, "0" | _], lists:nthtail(2, string:lexemes(Line, " ")))
     end || {Node, Peer, _} <- Shown],
    [told_of_losses(Node, Peer, Times) || {Node, Peer} <- Ends],
    Said = call(A, inet_rdma_test_log, lines, []),
    [?assertMatch({_, [_ | _]}, {Text, [Line || Line <- Said, string:find(Line, Text) =/= nomatch]})
     || Text <- ["lost its TCP connection (connection reset by peer, econnreset), and makes it anew",
                 "lost its TCP connection (the other side ended it), and makes it anew",
                 "goes on over another TCP connection, after "]],
    #{findings := Findings} = call(A, inet_rdma, doctor, []),
    [Text] = [Text || #{about := links, severity := note, text := Text} <- Findings],
    Expected = iolist_to_binary(["has lost its TCP connection ", integer_to_list(Times), " times"]),
    ?assertMatch({_, _}, binary:match(Text, Expected)),
    ?assertMatch({_, _}, binary:match(Text, atom_to_binary(name(B)))).

%% Until both nodes have counted the loss, and have another connection; again until the first node has told this
%% reason. How many there were then.
lose_until(Reason, Loss, Before, Relay, [{First, _} | _] = Ends) ->
    Times = Before + 1,
    ?assert(Times < 20),
    ?assert(inet_rdma_test_relay:lose(Relay, Loss) > 0),
    [inet_rdma_test_wait:until({resumed, Loss, Times}, 20000, fun() ->
         case call(Node, inet_rdma, info, [name(Peer)]) of
             #{losses := Times, resumes := Times, suspended := false} -> true;
             Other -> Other
         end
     end) || {Node, Peer} <- Ends],
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
    [?assertMatch({#{count := 1, system_time := _},
                   #{event := lost, node := Name, fabric := tcp, why := <<_, _/binary>>}}, Lost)
     || Lost <- told(Node, lost)],
    [begin
         ?assertMatch({#{count := 1, duration := _}, #{event := restored, node := Name, reason := _}}, Restored),
         {#{duration := Duration}, #{reason := Reason}} = Restored,
         ?assertEqual({Reason, Reason =/= superseded}, {Reason, Duration > 0})
     end || Restored <- told(Node, restored)],
    Logged = [{Kind, Reason} || {notice, #{inet_rdma := #{event := Kind}, inet_rdma_reason := Reason}}
                                    <- call(Node, inet_rdma_test_events, logged, [])],
    Unseen = length([superseded || {restored, superseded} <- Logged]),
    ?assertEqual({Times, Times - Unseen},
                 {length([restored || {restored, _} <- Logged]), length([lost || {lost, _} <- Logged])}).

%% While no connection can be made no path carries the link.
suspension_is_shown(Config) ->
    Options = #{rdma => [{fabric, tcp}, {survive_ms, 600000}]},
    #{a := A, b := B, relay := Relay} =
        inet_rdma_test_detour:start(proplists:get_value(priv_dir, Config), Options, Options),
    ok = inet_rdma_test_link:connect(A, B),
    ok = inet_rdma_test_relay:hold(Relay),
    Suspended = fun(Families) -> value(<<"inet_rdma_link_suspended">>, Families, B) end,
    inet_rdma_test_wait:until(suspended, 20000, fun() -> Suspended(collected(A)) =:= 1 end),
    ?assertMatch(#{state := up, fabric := tcp, suspended := true, losses := 1, resumes := 0},
                 call(A, inet_rdma, info, [name(B)])),
    %% Its senders wait, and what they have sent is kept.
    _ = call(A, erlang, send, [{nobody, name(B)}, binary:copy(<<0>>, 1000)]),
    Families = collected(A),
    ?assertEqual(#{<<"tcp">> => 0, <<"shm">> => 0, <<"tls">> => 0, <<"verbs">> => 0}, path(Families, B)),
    ?assert(value(<<"inet_rdma_link_unacknowledged_bytes">>, Families, B) >= 1000),
    ?assertMatch([_, _, "suspended" | _], string:lexemes(lists:last(table(A)), " ")),
    #{findings := Findings} = call(A, inet_rdma, doctor, []),
    ?assertMatch([_], [Text || #{about := links, text := Text} <- Findings,
                               binary:match(Text, <<"no path carries it">>) =/= nomatch]),
    ok = inet_rdma_test_relay:pass(Relay),
    inet_rdma_test_wait:until(restored, 20000, fun() -> Suspended(collected(A)) =:= 0 end),
    ok = call(A, inet_rdma_test_data, send_and_compare, [name(B), [1000]]).

%% Cut by the kernel, of a link that shared memory carries: nobody waits, and the cause is the kernel's.
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
            #{fabric := shm, losses := Times, resumes := Times, suspended := false} when Times > 0 -> true;
            Other -> Other
        end
    end),
    inet_rdma_test_wait:until(logged, 10000, fun() ->
        [] =/= [Kind || {notice, #{inet_rdma := #{event := restored = Kind}}}
                            <- call(A, inet_rdma_test_events, logged, [])]
    end),
    Logged = [{Kind, Fabric, Reason}
              || {notice, #{inet_rdma := #{event := Kind, fabric := Fabric}, inet_rdma_reason := Reason}}
                     <- call(A, inet_rdma_test_events, logged, [])],
    ct:pal("~p~n~p", [Logged, call(A, inet_rdma_test_log, lines, [])]),
    [?assert(lists:member(Reason, [econnreset, econnaborted, superseded])) || {_, _, Reason} <- Logged],
    [?assertEqual({Kind, shm}, {Kind, Fabric}) || {Kind, Fabric, _} <- Logged],
    ?assertEqual(1, value(<<"inet_rdma_link_resumes_total">>, collected(A), B)).

%% The values of the series that names the path, by path.
path(Families, Peer) ->
    maps:from_list([{Path, Value}
                    || {#{<<"path">> := Path}, Value} <- metrics(<<"inet_rdma_link_path">>, Families, Peer)]).

%% What telemetry was told of one kind of event: measurements and metadata, oldest first.
told(Node, Kind) ->
    [{Measurements, Metadata} || {[inet_rdma, link, Is], Measurements, Metadata}
                                     <- call(Node, inet_rdma_test_events, executed, []), Is =:= Kind].

%% A connection in the making has no port and no counts: to ask for them raises exceptions.
link_without_facts_leaves_the_others(_Config) ->
    {A, Moved, Tcp} = three_nodes(),
    Silent = inet_rdma_test_peer:open(),
    try
        Pending = maps:get(node, Silent),
        call(A, erlang, apply, [erlang, spawn, [net_kernel, connect_node, [Pending]]]),
        inet_rdma_test_wait:until(pending, 10000, fun() -> inet_rdma_test_link:states(A, Pending) =:= [pending] end),
        Families = collected(A),
        ?assertEqual(1, value(<<"erlang_vm_dist_node_state">>, Families, Silent)),
        [?assertEqual({Name, []}, {Name, metrics(Name, Families, Silent)})
         || Name <- [<<"erlang_vm_dist_recv_bytes">>, <<"erlang_vm_dist_port_memory_bytes">>,
                     <<"inet_rdma_link_info">>]],
        [?assertMatch({Name, [_ | _]}, {Name, metrics(Name, Families, Peer)})
         || {<<"erlang_vm_dist_", _/binary>> = Name, _, _} <- Families, Peer <- [Moved, Tcp]]
    after
        inet_rdma_test_peer:close(Silent)
    end.

%% A link with a plain node, one whose try over shared memory fails, a settlement whose peer leaves; then, of a node
%% that requires a fabric, a link to the plain node.
counts_outlive_links(_Config) ->
    {A, _Moved, Tcp} = three_nodes(),
    Gone = inet_rdma_test_peer:connect(name(A), fake("gone"), offered()),
    {hello, Facts} = inet_rdma_test_peer:hear(Gone),
    ok = inet_rdma_test_peer:hang_up(Gone),
    Tries = inet_rdma_test_peer:connect(name(A), fake("tries"), offered()),
    {hello, _} = inet_rdma_test_peer:hear(Tries),
    ok = inet_rdma_test_peer:say(Tries, {hello, Facts}),
    ok = inet_rdma_test_peer:say(Tries, {'try', shm}),
    {listens, _, _, _} = inet_rdma_test_peer:hear(Tries),
    ok = inet_rdma_test_peer:say(Tries, {stay, <<"no memory is left">>}),
    {stayed} = inet_rdma_test_peer:hear(Tries),
    ok = inet_rdma_test_peer:hang_up(Tries),
    ok = inet_rdma_test_link:disconnect(A, Tcp),
    inet_rdma_test_wait:until(counted, 10000, fun() ->
        Families = collected(A),
        lists:sort(all_of(<<"inet_rdma_links_stayed_on_tcp_total">>, Families))
            =:= [{#{<<"tried">> => <<"none">>}, 1}, {#{<<"tried">> => <<"shm">>}, 1}]
            andalso all_of(<<"inet_rdma_settlements_failed_total">>, Families) =:= [{#{}, 1}]
            andalso all_of(<<"inet_rdma_links_refused_total">>, Families) =:= [{#{}, 0}]
    end),
    Strict = inet_rdma_test_node:start("strict", #{rdma => [{required, true}]}),
    ok = call(Strict, inet_rdma_test_metrics, use_stand_in, []),
    pang = call(Strict, net_adm, ping, [name(Tcp)]),
    ?assertEqual([{#{}, 1}], all_of(<<"inet_rdma_links_refused_total">>, collected(Strict))).

%% Columns stand below their names, and the numbers are those of inet_rdma:info/0.
table_of_links(_Config) ->
    {A, Moved, Tcp} = three_nodes(),
    ok = call(A, inet_rdma_test_data, send_and_compare, [name(Moved), [300000]]),
    [Header | Lines] = table(A),
    ?assertEqual(2, length(Lines)),
    Columns = ["Node", "Fabric", "State", "Recv ", "Recv Packets", "Sent ", "Sent Packets", "Direct", "Queued",
               "Losses", "Resumes", "Moves", "Why"],
    Starts = [string:str(Header, Column) || Column <- Columns],
    ?assertEqual(Starts, lists:usort(Starts)),
    [begin
         [Line] = [Line || Line <- Lines, string:prefix(Line, atom_to_list(name(Peer))) =/= nomatch],
         [Name, Fabric, "up", Received, ReceivedPackets, Sent, SentPackets, Direct, Queued, Losses, Resumes, Moves
          | _] = Fields = string:lexemes(Line, " "),
         ?assertEqual(ExpectedChanges, [Losses, Resumes, Moves]),
         ?assertEqual(atom_to_list(name(Peer)), Name),
         ?assertEqual(ExpectedFabric, Fabric),
         ?assertEqual(ExpectedDirect, Direct),
         %% Ticks may come between the two: counts only grow.
         #{bytes_received := R, packets_received := Rp, bytes_sent := S, packets_sent := Sp, why := Why} =
             call(A, inet_rdma, info, [name(Peer)]),
         [?assert(0 < list_to_integer(Shown) andalso list_to_integer(Shown) =< Now)
          || {Shown, Now} <- [{Received, R}, {ReceivedPackets, Rp}, {Sent, S}, {SentPackets, Sp}]],
         ?assertEqual(Sent, hd(string:lexemes(lists:nthtail(lists:nth(6, Starts) - 1, Line), " "))),
         ?assert(list_to_integer(Queued) >= 0),
         ?assert(lists:suffix(Why, Line)),
         ?assert(length(Fields) > 12)
     end || {Peer, ExpectedFabric, ExpectedDirect, ExpectedChanges} <- [{Moved, "shm", "0%", ["0", "0", "1"]},
                                                                        {Tcp, "tcp", "-", ["-", "-", "-"]}]].

table_without_links(_Config) ->
    ?assertEqual([], table(inet_rdma_test_node:start("alone"))).

%% The lines that inet_rdma:i/0 prints.
table(Node) ->
    string:lexemes(call(Node, inet_rdma_test_metrics, printed, [inet_rdma, i, []]), "\n").

%% Up, fallback to TCP, a settlement that fails, and the end of a link whose peer breaks the rules.
log_events_name_the_link(_Config) ->
    [A, Moved, Tcp] = three(),
    ok = call(A, inet_rdma_test_events, install, []),
    [ok = inet_rdma_test_link:connect(A, Peer) || Peer <- [Moved, Tcp]],
    [Why, TcpWhy] = [unicode:characters_to_binary(inet_rdma_test_link:why(A, Peer)) || Peer <- [Moved, Tcp]],
    ?assertEqual([{info, #{inet_rdma => #{event => up, node => name(Moved), fabric => shm, why => Why}}},
                  {info, #{inet_rdma => #{event => fallback, node => name(Tcp), fabric => tcp, why => TcpWhy}}}],
                 call(A, inet_rdma_test_events, logged, [])),
    Fake = fake("gone"),
    Gone = inet_rdma_test_peer:connect(name(A), Fake, offered()),
    {hello, _} = inet_rdma_test_peer:hear(Gone),
    ok = inet_rdma_test_peer:hang_up(Gone),
    %% Bytes that are no frame of the session.
    ok = call(Moved, inet_rdma_test_remote, end_part, [frames]),
    inet_rdma_test_wait:until(logged, 10000, fun() ->
        Logged = call(A, inet_rdma_test_events, logged, []),
        [down, failed] =:= lists:sort([Kind || {warning, #{inet_rdma := #{event := Kind}}} <- Logged])
    end),
    Warnings = [Event || {warning, #{inet_rdma := Event}} <- call(A, inet_rdma_test_events, logged, [])],
    ?assertMatch([#{fabric := undefined, node := Fake}], [Event || #{event := failed} = Event <- Warnings]),
    Name = name(Moved),
    ?assertMatch([#{fabric := shm, node := Name}], [Event || #{event := down} = Event <- Warnings]).

telemetry_is_told_of_links(_Config) ->
    [A, Moved, Tcp] = three(),
    ok = call(A, inet_rdma_test_events, install, []),
    ok = call(A, inet_rdma_test_events, use_stand_in, [returns]),
    [ok = inet_rdma_test_link:connect(A, Peer) || Peer <- [Moved, Tcp]],
    ok = inet_rdma_test_link:disconnect(A, Moved),
    inet_rdma_test_wait:until(told, 10000, fun() -> length(call(A, inet_rdma_test_events, executed, [])) =:= 3 end),
    Executed = call(A, inet_rdma_test_events, executed, []),
    {value, {_, Up, UpMetadata}} = lists:keysearch([inet_rdma, link, up], 1, Executed),
    {value, {_, Fallback, FallbackMetadata}} = lists:keysearch([inet_rdma, link, fallback], 1, Executed),
    {value, {_, Down, DownMetadata}} = lists:keysearch([inet_rdma, link, down], 1, Executed),
    [?assertMatch(#{count := 1, system_time := _}, Measurements) || Measurements <- [Up, Fallback, Down]],
    ?assert(maps:get(duration, Down) > 0),
    [MovedName, TcpName] = [name(Moved), name(Tcp)],
    ?assertMatch(#{event := up, node := MovedName, fabric := shm, why := <<_, _/binary>>}, UpMetadata),
    ?assertMatch(#{event := fallback, node := TcpName, fabric := tcp, why := <<"the peer makes no offer", _/binary>>},
                 FallbackMetadata),
    ?assertMatch(#{event := down, node := MovedName, fabric := shm, why := <<_, _/binary>>, reason := _}, DownMetadata).

%% A peer that is stopped takes nothing; once it goes on, all that was sent arrives.
stalls_are_events(_Config) ->
    [A, Moved, _] = three(),
    ok = call(A, inet_rdma_test_events, install, []),
    ok = call(A, inet_rdma_test_events, use_stand_in, [returns]),
    ok = inet_rdma_test_link:connect(A, Moved),
    ok = inet_rdma_test_link:await(A, Moved, shm),
    inet_rdma_test_node:suspend(Moved),
    %% 16 MB: more than ring and queues hold.
    Sender = call(A, erlang, spawn, [erlang, send, [{nobody, name(Moved)}, binary:copy(<<0>>, 16000000)]]),
    Kinds = fun() -> [Kind || {[inet_rdma, link, Kind], _, _} <- call(A, inet_rdma_test_events, executed, [])] end,
    inet_rdma_test_wait:until(stalled, 20000, fun() -> Kinds() =:= [up, stalled] end),
    inet_rdma_test_node:resume(Moved),
    inet_rdma_test_wait:until(resumed, 20000, fun() -> lists:member(resumed, Kinds()) end),
    inet_rdma_test_wait:until(sent, 20000, fun() -> not call(A, erlang, is_process_alive, [Sender]) end),
    ok = call(A, inet_rdma_test_data, send_and_compare, [name(Moved), [1000]]),
    Executed = call(A, inet_rdma_test_events, executed, []),
    {value, {_, Stalled, StalledMetadata}} = lists:keysearch([inet_rdma, link, stalled], 1, Executed),
    {value, {_, Resumed, ResumedMetadata}} = lists:keysearch([inet_rdma, link, resumed], 1, Executed),
    Name = name(Moved),
    ?assertMatch(#{count := 1, system_time := _}, Stalled),
    ?assert(maps:get(duration, Resumed) > 0),
    [?assertMatch(#{node := Name, fabric := shm, why := <<_, _/binary>>}, Metadata)
     || Metadata <- [StalledMetadata, ResumedMetadata]],
    Notices = [Kind || {notice, #{inet_rdma := #{event := Kind}}} <- call(A, inet_rdma_test_events, logged, [])],
    ?assertEqual([stalled, resumed], Notices).

%% Handlers run in the process that executes; none of a link's may be that process.
telemetry_that_hangs_keeps_no_link(_Config) ->
    [A, Moved, Tcp] = three(),
    ok = call(A, inet_rdma_test_events, install, []),
    ok = call(A, inet_rdma_test_events, use_stand_in, [hangs]),
    [ok = inet_rdma_test_link:connect(A, Peer) || Peer <- [Moved, Tcp]],
    [ok = call(A, inet_rdma_test_data, send_and_compare, [name(Peer), [1000]]) || Peer <- [Moved, Tcp]],
    %% The connection supervisors answer.
    [?assertMatch({ok, [_ | _]}, call(A, net_kernel, node_info, [name(Peer)])) || Peer <- [Moved, Tcp]],
    ok = inet_rdma_test_link:disconnect(A, Moved),
    inet_rdma_test_wait:until(told, 10000, fun() -> length(call(A, inet_rdma_test_events, executed, [])) =:= 3 end).

%% A node with a link that has moved, the peer of that, and the peer of a link that stayed on TCP.
three_nodes() ->
    [A, Moved, Tcp] = three(),
    [ok = inet_rdma_test_link:connect(A, Peer) || Peer <- [Moved, Tcp]],
    ok = inet_rdma_test_link:await(A, Moved, shm),
    {A, Moved, Tcp}.

%% The same without links.
three() ->
    inet_rdma_test_node:start_all([{"a", #{}}, {"moved", #{}}, {"plain", #{carrier => "inet_tcp"}}]).

collected(Node) ->
    case call(Node, code, is_loaded, [prometheus_model_helpers]) of
        false -> ok = call(Node, inet_rdma_test_metrics, use_stand_in, []);
        _ -> ok
    end,
    call(Node, inet_rdma_test_metrics, collect, [?COLLECTOR]).

%% The series of prometheus_vm_dist_collector, by prometheus.erl 4.9.1.
listed(Config) ->
    {ok, Shapes} =
        file:consult(filename:join(proplists:get_value(data_dir, Config), "prometheus_vm_dist_collector.terms")),
    lists:sort([{atom_to_binary(Name), Type, [atom_to_binary(Label) || Label <- Labels]}
                || {Name, Type, Labels} <- Shapes]).

%% Name, type and names of labels.
shapes(Families) ->
    lists:sort([{Name, Type, lists:usort(lists:append([maps:keys(Labels) || {Labels, _} <- Metrics]))}
                || {Name, Type, Metrics} <- Families]).

all_of(Name, Families) ->
    {Name, _, Metrics} = lists:keyfind(Name, 1, Families),
    Metrics.

metrics(Name, Families, Peer) ->
    Text = atom_to_binary(name(Peer)),
    [Metric || {#{<<"peer">> := Is}, _} = Metric <- all_of(Name, Families), Is =:= Text].

%% The labels that tell apart several values of a peer.
peers(Name, Families, Peer) ->
    [maps:remove(<<"peer">>, Labels) || {Labels, _} <- metrics(Name, Families, Peer)].

value(Name, Families, Peer) ->
    [{_, Value}] = metrics(Name, Families, Peer),
    Value.

offered() -> #{offer => inet_rdma_test_peer:offer()}.

fake(Name) -> list_to_atom(inet_rdma_test_node:unique(Name) ++ "@localhost").

name(#{node := Node}) -> Node.

call(Node, Module, Function, Arguments) -> inet_rdma_test_node:call(Node, Module, Function, Arguments).

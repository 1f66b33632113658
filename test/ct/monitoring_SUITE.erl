%% What monitoring sees of links: the series of inet_rdma_prometheus_collector, the table of inet_rdma:i/0, the metadata
%% of log events, and events of telemetry.
-module(monitoring_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2]).
-export([series_are_those_of_the_library/1, series_are_those_of_the_list/1, series_are_those_of_the_docs/1]).
-export([dashboard_has_known_series/1]).
-export([each_link_has_its_series/1]).
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
    [series_are_those_of_the_library, series_are_those_of_the_list, series_are_those_of_the_docs, dashboard_has_known_series,
     each_link_has_its_series, link_without_facts_leaves_the_others, counts_outlive_links, table_of_links, table_without_links,
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
init_per_testcase(_Case, Config) ->
    Config.

in_archive(Path) ->
    case filename:extension(Path) of
        ".ez" -> filename:join([Path, filename:basename(Path, ".ez"), "ebin"]);
        _ -> Path
    end.

end_per_testcase(_Case, _Config) ->
    inet_rdma_test_node:stop_all().

%% Beside prometheus_vm_dist_collector itself: for a link over TCP all is the same. Of a link that has moved that collector counts
%% the TCP socket, which is silent; ours counts the link. The committed list is the library's.
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
    Later = fun(Collector) -> value(Sent, call(A, inet_rdma_test_metrics, collect, [Collector]), Moved) end,
    ?assertEqual(value(Sent, Theirs, Moved), Later(?REPLACED)),
    ?assert(Later(?COLLECTOR) >= value(Sent, Ours, Moved) + 300000),
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
     || Peer <- [Moved, Tcp], {Name, Least} <- [{<<"erlang_vm_dist_send_bytes">>, 300000}, {<<"erlang_vm_dist_send_cnt">>, 1},
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
                     <<"inet_rdma_link_wakeups_total">>]].

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
         || Name <- [<<"erlang_vm_dist_recv_bytes">>, <<"erlang_vm_dist_port_memory_bytes">>, <<"inet_rdma_link_info">>]],
        [?assertMatch({Name, [_ | _]}, {Name, metrics(Name, Families, Peer)})
         || {<<"erlang_vm_dist_", _/binary>> = Name, _, _} <- Families, Peer <- [Moved, Tcp]]
    after
        inet_rdma_test_peer:close(Silent)
    end.

%% A link with a plain node, one whose try over shared memory fails, a settlement whose peer leaves; then, of a node that
%% requires a fabric, a link to the plain node.
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
    Columns = ["Node", "Fabric", "State", "Recv ", "Recv Packets", "Sent ", "Sent Packets", "Direct", "Queued", "Why"],
    Starts = [string:str(Header, Column) || Column <- Columns],
    ?assertEqual(Starts, lists:usort(Starts)),
    [begin
         [Line] = [Line || Line <- Lines, string:prefix(Line, atom_to_list(name(Peer))) =/= nomatch],
         [Name, Fabric, "up", Received, ReceivedPackets, Sent, SentPackets, Direct, Queued | _] = Fields = string:lexemes(Line, " "),
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
         ?assert(length(Fields) > 9)
     end || {Peer, ExpectedFabric, ExpectedDirect} <- [{Moved, "shm", "0%"}, {Tcp, "tcp", "-"}]].

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
    %% The connection on which the link began.
    [{_, _, Connection, <<"shm">>, _}] = call(Moved, ets, lookup, [inet_rdma_links, {link, atom_to_binary(name(A))}]),
    ok = call(Moved, inet_rdma_bootstrap, send, [Connection, <<"not silent">>]),
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
    {ok, Shapes} = file:consult(filename:join(proplists:get_value(data_dir, Config), "prometheus_vm_dist_collector.terms")),
    lists:sort([{atom_to_binary(Name), Type, [atom_to_binary(Label) || Label <- Labels]} || {Name, Type, Labels} <- Shapes]).

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

%% The series of inet_rdma_prometheus_collector, and the table of inet_rdma:i/0.
-module(monitoring_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_series, [
    three_nodes/0,
    collected/1,
    all_of/2,
    metrics/3,
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
    series_are_those_of_the_library/1,
    series_are_those_of_the_list/1,
    series_are_those_of_the_docs/1,
    dashboard_has_known_series/1,
    each_link_has_its_series/1,
    sizes_of_packets_on_each_path/1,
    counts_outlive_moves/1,
    link_without_facts_leaves_the_others/1,
    counts_outlive_links/1,
    table_of_links/1,
    table_without_links/1
]).

-define(COLLECTOR, inet_rdma_prometheus_collector).
%% The collector of prometheus.erl whose series must go on.
-define(REPLACED, prometheus_vm_dist_collector).
%% Where packages put the library, as directories or as archives.
-define(LIBRARY, [
    "/usr/lib/rabbitmq/lib/*/plugins/{prometheus,quantile_estimator}-*/ebin",
    "/usr/lib/rabbitmq/lib/*/plugins/{prometheus,quantile_estimator}-*.ez"
]).

suite() ->
    [{timetrap, {minutes, 2}}, {ct_hooks, [{inet_rdma_test_nodes, [only_rdma]}]}].

all() ->
    [
        series_are_those_of_the_library,
        series_are_those_of_the_list,
        series_are_those_of_the_docs,
        dashboard_has_known_series,
        each_link_has_its_series,
        sizes_of_packets_on_each_path,
        counts_outlive_moves,
        link_without_facts_leaves_the_others,
        counts_outlive_links,
        table_of_links,
        table_without_links
    ].

init_per_testcase(series_are_those_of_the_library, Config) ->
    case
        lists:append([
            [in_archive(Path) || Path <- filelib:wildcard(Pattern)]
         || Pattern <- ?LIBRARY
        ])
    of
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

%% Beside prometheus_vm_dist_collector itself: for a link that inet_tcp's driver carries all is the
%% same, and that collector counts a link with a session, too. The committed list is the library's.
series_are_those_of_the_library(Config) ->
    {A, Moved, Tcp} = three_nodes(),
    ok = call(A, inet_rdma_test_metrics, use_library, [proplists:get_value(library, Config)]),
    Theirs = call(A, inet_rdma_test_metrics, collect, [?REPLACED]),
    Ours = call(A, inet_rdma_test_metrics, collect, [?COLLECTOR]),
    ?assertEqual(listed(Config), shapes(Theirs)),
    ?assertEqual(shapes(Theirs), [
        Shape
     || {<<"erlang_vm_dist_", _/binary>>, _, _} = Shape <- shapes(Ours)
    ]),
    [
        ?assertEqual({Name, peers(Name, Theirs, Tcp)}, {Name, peers(Name, Ours, Tcp)})
     || {Name, _, _} <- Theirs
    ],
    [
        ?assertEqual({Name, peers(Name, Ours, Tcp)}, {Name, peers(Name, Ours, Moved)})
     || {Name, _, _} <- Theirs
    ],
    ok = call(A, inet_rdma_test_data, send_and_compare, [name(Moved), [300000]]),
    Sent = <<"erlang_vm_dist_send_bytes">>,
    Later = fun(Collector) ->
        metrics(Sent, call(A, inet_rdma_test_metrics, collect, [Collector]), Moved)
    end,
    [
        begin
            [{_, SentLater}] = Later(Collector),
            ?assert(SentLater >= value(Sent, Ours, Moved) + 300000)
        end
     || Collector <- [?REPLACED, ?COLLECTOR]
    ],
    %% The largest size only grows: ours was read between two reads of the library's.
    Largest = <<"erlang_vm_dist_recv_max_bytes">>,
    [First, Second, Third] = [
        value(Largest, Families, Tcp)
     || Families <- [Theirs, Ours, call(A, inet_rdma_test_metrics, collect, [?REPLACED])]
    ],
    ?assert(0 < First andalso First =< Second andalso Second =< Third),
    Text = call(A, inet_rdma_test_metrics, text, [?COLLECTOR]),
    Line = ["erlang_vm_dist_recv_bytes{peer=\"", atom_to_list(name(Moved)), "\"} [1-9]"],
    ?assertMatch({match, _}, re:run(Text, Line)),
    ?assertMatch(
        {match, _},
        re:run(Text, "inet_rdma_link_info{peer=\"[^\"]+\",fabric=\"shm\",why=\"[^\"]+\"} 1")
    ).

%% Where the library is not installed, too.
series_are_those_of_the_list(Config) ->
    {A, _Moved, _Tcp} = three_nodes(),
    Families = collected(A),
    ?assertEqual(listed(Config), [
        Shape
     || {<<"erlang_vm_dist_", _/binary>>, _, _} = Shape <- shapes(Families)
    ]),
    Carrier = [Name || {<<"inet_rdma_", _/binary>> = Name, _, _} <- Families],
    ?assertEqual(length(Families), length(listed(Config)) + length(Carrier)).

%% docs/MONITORING.md: rows of tables that begin with a series; those of the carrier have its type.
series_are_those_of_the_docs(_Config) ->
    Listed = documented("MONITORING.md", "^\\| `((?:erlang_vm_dist|inet_rdma)_[a-z_]+)` \\|"),
    Series = collected(inet_rdma_test_node:start("alone")),
    ?assertEqual(lists:sort([Name || {Name, _, _} <- Series]), lists:sort(Listed)),
    Typed = documented("MONITORING.md", "^\\| `(inet_rdma_[a-z_]+` \\| [a-z]+) \\|"),
    ?assertEqual(
        lists:sort([
            <<Name/binary, "` | ", (atom_to_binary(Type))/binary>>
         || {<<"inet_rdma_", _/binary>> = Name, Type, _} <- Series
        ]),
        lists:sort(Typed)
    ).

%% docs/grafana-links.json: what its expressions select.
dashboard_has_known_series(_Config) ->
    Selected = documented("grafana-links.json", "\\b([a-z_]+)(?=\\{instance|, instance\\))"),
    ?assertMatch([_, _ | _], Selected),
    ?assertEqual([], lists:usort(Selected) -- names()).

%% The names of all series.
names() ->
    [Name || {Name, _, _} <- collected(inet_rdma_test_node:start("alone"))].

each_link_has_its_series(_Config) ->
    {A, Moved, Tcp} = three_nodes(),
    Before = collected(A),
    [
        ok = call(A, inet_rdma_test_data, send_and_compare, [name(Peer), [300000]])
     || Peer <- [Moved, Tcp]
    ],
    After = collected(A),
    [
        ?assert(value(Name, After, Peer) - value(Name, Before, Peer) >= Least)
     || Peer <- [Moved, Tcp],
        {Name, Least} <- [
            {<<"erlang_vm_dist_send_bytes">>, 300000},
            {<<"erlang_vm_dist_send_cnt">>, 1},
            {<<"erlang_vm_dist_recv_cnt">>, 1}
        ]
    ],
    [
        ?assert(value(Name, After, Peer) > 0)
     || Peer <- [Moved, Tcp],
        Name <- [
            <<"erlang_vm_dist_recv_max_bytes">>,
            <<"erlang_vm_dist_recv_avg_bytes">>,
            <<"erlang_vm_dist_port_memory_bytes">>,
            <<"erlang_vm_dist_proc_memory_bytes">>
        ]
    ],
    [?assertEqual(3, value(<<"erlang_vm_dist_node_state">>, After, Peer)) || Peer <- [Moved, Tcp]],
    [
        begin
            [{Labels, 1}] = metrics(<<"inet_rdma_link_info">>, After, Peer),
            ?assertEqual(
                {Fabric, unicode:characters_to_binary(inet_rdma_test_link:why(A, Peer))},
                {maps:get(<<"fabric">>, Labels), maps:get(<<"why">>, Labels)}
            )
        end
     || {Peer, Fabric} <- [{Moved, <<"shm">>}, {Tcp, <<"tcp">>}]
    ],
    %% TCP has neither, and none is made up.
    [
        begin
            ?assertMatch([_ | _], metrics(Name, After, Moved)),
            ?assertEqual([], metrics(Name, After, Tcp))
        end
     || Name <- [
            <<"inet_rdma_link_direct_ratio">>,
            <<"inet_rdma_link_credit_stalls_total">>,
            <<"inet_rdma_link_wakeups_total">>,
            <<"inet_rdma_link_losses_total">>,
            <<"inet_rdma_link_suspended">>,
            <<"inet_rdma_link_path_state">>
        ]
    ].

%% What one node has sent the other has received, whatever carries it; and all counts of
%% inet:getstat/1 are there.
sizes_of_packets_on_each_path(_Config) ->
    [sizes_of_packets_on(Fabric) || Fabric <- [tcp, shm]].

sizes_of_packets_on(Fabric) ->
    [A, B] =
        Nodes = inet_rdma_test_node:start_all(2, #{
            rdma => [{fabric, Fabric}], args => ["-connect_all", "false"]
        }),
    ok = inet_rdma_test_link:connect(A, B),
    ok = inet_rdma_test_link:await(A, B, Fabric),
    %% The runtime system sends it in fragments of 64 KiB.
    ok = call(A, inet_rdma_test_data, send_and_compare, [name(B), [1 bsl 24]]),
    Largest = 65536,
    Keys = [
        bytes_sent,
        largest_packet_sent,
        bytes_received,
        packet_bytes_received,
        largest_packet_received
    ],
    inet_rdma_test_wait:until({equal_counts, Fabric}, 20000, fun() ->
        [OfA, OfB] = [
            maps:with(Keys, call(X, inet_rdma, info, [name(Y)]))
         || {X, Y} <- [{A, B}, {B, A}]
        ],
        Pairs = [
            {map_get(Sent, One), map_get(Received, Other)}
         || {One, Other} <- [{OfA, OfB}, {OfB, OfA}],
            {Sent, Received} <- [
                {bytes_sent, bytes_received},
                {bytes_sent, packet_bytes_received},
                {largest_packet_sent, largest_packet_received}
            ]
        ],
        lists:all(fun({Sent, Received}) -> Sent =:= Received end, Pairs) orelse {OfA, OfB}
    end),
    #{largest_packet_sent := Sent, bytes_sent := Bytes} = call(A, inet_rdma, info, [name(B)]),
    #{packet_deviation_received := Deviation} = call(B, inet_rdma, info, [name(A)]),
    ?assert(Sent >= Largest andalso Sent < 2 * Largest),
    ?assert(Bytes > 1 bsl 24),
    %% Large fragments among small packets.
    ?assert(Deviation > 1000 andalso Deviation < Largest),
    [OfA, OfB] = [collected(Node) || Node <- Nodes],
    [
        ?assertEqual({Fabric, Name, 1}, {Fabric, Name, length(metrics(Name, Families, Peer))})
     || {Families, Peer} <- [{OfA, B}, {OfB, A}], Name <- counted()
    ],
    ?assertEqual(Sent, value(<<"erlang_vm_dist_send_max_bytes">>, OfA, B)),
    ?assertEqual(Sent, value(<<"erlang_vm_dist_recv_max_bytes">>, OfB, A)),
    ?assertEqual(trunc(Deviation), value(<<"erlang_vm_dist_recv_dvi_bytes">>, OfB, A)),
    [
        ?assert(value(Average, Families, Peer) > 0 andalso value(Average, Families, Peer) =< Sent)
     || {Average, Families, Peer} <- [
            {<<"erlang_vm_dist_send_avg_bytes">>, OfA, B},
            {<<"erlang_vm_dist_recv_avg_bytes">>, OfB, A}
        ]
    ],
    [ok = inet_rdma_test_node:stop(Node) || Node <- Nodes].

counted() ->
    [
        <<"erlang_vm_dist_", Name/binary>>
     || Name <- [
            <<"recv_bytes">>,
            <<"recv_cnt">>,
            <<"recv_max_bytes">>,
            <<"recv_avg_bytes">>,
            <<"recv_dvi_bytes">>,
            <<"send_bytes">>,
            <<"send_cnt">>,
            <<"send_max_bytes">>,
            <<"send_avg_bytes">>,
            <<"send_pend_bytes">>
        ]
    ].

%% A link that begins on TCP and moves to shared memory goes on counting, and reports the move.
counts_outlive_moves(_Config) ->
    [A, B] = inet_rdma_test_node:start_all(2, #{rdma => [{fabric, shm}, {move, earned}]}),
    ok = call(A, inet_rdma_test_events, install, []),
    ok = call(A, inet_rdma_test_events, use_stand_in, [returns]),
    ok = inet_rdma_test_link:connect(A, B),
    ok = call(A, inet_rdma_test_data, send_and_compare, [name(B), [1 bsl 20]]),
    ok = inet_rdma_test_link:await(A, B, shm),
    %% A move counts when the peer's packets come over the queue pair, too.
    Info = inet_rdma_test_wait:until(moved, 10000, fun() ->
        case call(A, inet_rdma, info, [name(B)]) of
            #{moves := 0} = Before -> Before;
            Counted -> {ok, Counted}
        end
    end),
    ct:pal("~p", [Info]),
    ?assertMatch(
        #{fabric := shm, moves := 1, losses := 0, resumes := 0, suspended := false, up_ms := _},
        Info
    ),
    ?assert(map_get(bytes_sent, Info) > 1 bsl 20),
    ?assert(map_get(largest_packet_sent, Info) >= 65536),
    Families = collected(A),
    ?assertEqual(1, value(<<"inet_rdma_link_moves_total">>, Families, B)),
    ?assert(value(<<"erlang_vm_dist_send_bytes">>, Families, B) > 1 bsl 20),
    ?assertEqual(
        #{<<"shm">> => 1, <<"tcp">> => 0, <<"tls">> => 0, <<"verbs">> => 0}, path(Families, B)
    ),
    %% info/0 has the link once.
    ?assertMatch([_], call(A, inet_rdma, info, [])),
    Name = name(B),
    inet_rdma_test_wait:until(told, 10000, fun() -> [] =/= told(A, moved) end),
    ?assertMatch(
        [
            {#{count := 1, system_time := _}, #{
                event := moved, node := Name, from := tcp, fabric := shm
            }}
        ],
        told(A, moved)
    ).

%% A connection in the making has no port and no counts: to ask for them raises exceptions.
link_without_facts_leaves_the_others(_Config) ->
    {A, Moved, Tcp} = three_nodes(),
    Silent = inet_rdma_test_peer:open(),
    try
        Pending = maps:get(node, Silent),
        call(A, erlang, apply, [erlang, spawn, [net_kernel, connect_node, [Pending]]]),
        inet_rdma_test_wait:until(pending, 10000, fun() ->
            inet_rdma_test_link:states(A, Pending) =:= [pending]
        end),
        Families = collected(A),
        ?assertEqual(1, value(<<"erlang_vm_dist_node_state">>, Families, Silent)),
        [
            ?assertEqual({Name, []}, {Name, metrics(Name, Families, Silent)})
         || Name <- [
                <<"erlang_vm_dist_recv_bytes">>,
                <<"erlang_vm_dist_port_memory_bytes">>,
                <<"inet_rdma_link_info">>
            ]
        ],
        [
            ?assertMatch({Name, [_ | _]}, {Name, metrics(Name, Families, Peer)})
         || {<<"erlang_vm_dist_", _/binary>> = Name, _, _} <- Families, Peer <- [Moved, Tcp]
        ]
    after
        inet_rdma_test_peer:close(Silent)
    end.

%% A link with a plain node, one whose try over shared memory fails, a settlement whose peer leaves;
%% then, of a node that requires a fabric, a link to the plain node.
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
        lists:sort(all_of(<<"inet_rdma_links_stayed_on_tcp_total">>, Families)) =:=
            [{#{<<"tried">> => <<"none">>}, 1}, {#{<<"tried">> => <<"shm">>}, 1}] andalso
            all_of(<<"inet_rdma_settlements_failed_total">>, Families) =:= [{#{}, 1}] andalso
            all_of(<<"inet_rdma_links_refused_total">>, Families) =:= [{#{}, 0}]
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
    Columns = [
        "Node",
        "Fabric",
        "State",
        "Recv ",
        "Recv Packets",
        "Sent ",
        "Sent Packets",
        "Direct",
        "Queued",
        "Losses",
        "Resumes",
        "Moves",
        "Via",
        "Why"
    ],
    Starts = [string:str(Header, Column) || Column <- Columns],
    ?assertEqual(Starts, lists:usort(Starts)),
    [
        begin
            [Line] = [
                Line
             || Line <- Lines, string:prefix(Line, atom_to_list(name(Peer))) =/= nomatch
            ],
            [
                Name,
                Fabric,
                "up",
                Received,
                ReceivedPackets,
                Sent,
                SentPackets,
                Direct,
                Queued,
                Losses,
                Resumes,
                Moves,
                "-"
                | _
            ] = Fields = string:lexemes(Line, " "),
            ?assertEqual(ExpectedChanges, [Losses, Resumes, Moves]),
            ?assertEqual(atom_to_list(name(Peer)), Name),
            ?assertEqual(ExpectedFabric, Fabric),
            ?assertEqual(ExpectedDirect, Direct),
            %% Ticks may come between the two: counts only grow.
            #{
                bytes_received := R,
                packets_received := Rp,
                bytes_sent := S,
                packets_sent := Sp,
                why := Why
            } =
                call(A, inet_rdma, info, [name(Peer)]),
            [
                ?assert(0 < list_to_integer(Shown) andalso list_to_integer(Shown) =< Now)
             || {Shown, Now} <- [{Received, R}, {ReceivedPackets, Rp}, {Sent, S}, {SentPackets, Sp}]
            ],
            ?assertEqual(
                Sent, hd(string:lexemes(lists:nthtail(lists:nth(6, Starts) - 1, Line), " "))
            ),
            ?assert(list_to_integer(Queued) >= 0),
            ?assert(lists:suffix(Why, Line)),
            ?assert(length(Fields) > 13)
        end
     || {Peer, ExpectedFabric, ExpectedDirect, ExpectedChanges} <- [
            {Moved, "shm", "0%", ["0", "0", "1"]},
            {Tcp, "tcp", "-", ["-", "-", "-"]}
        ]
    ].

table_without_links(_Config) ->
    ?assertEqual([], table(inet_rdma_test_node:start("alone"))).

%% The series of prometheus_vm_dist_collector, by prometheus.erl 4.9.1.
listed(Config) ->
    {ok, Shapes} =
        file:consult(
            filename:join(
                proplists:get_value(data_dir, Config), "prometheus_vm_dist_collector.terms"
            )
        ),
    lists:sort([
        {atom_to_binary(Name), Type, [atom_to_binary(Label) || Label <- Labels]}
     || {Name, Type, Labels} <- Shapes
    ]).

%% Name, type and names of labels.
shapes(Families) ->
    lists:sort([
        {Name, Type, lists:usort(lists:append([maps:keys(Labels) || {Labels, _} <- Metrics]))}
     || {Name, Type, Metrics} <- Families
    ]).

%% The labels that tell apart several values of a peer.
peers(Name, Families, Peer) ->
    [maps:remove(<<"peer">>, Labels) || {Labels, _} <- metrics(Name, Families, Peer)].

name(#{node := Node}) -> Node.

call(Node, Module, Function, Arguments) ->
    inet_rdma_test_node:call(Node, Module, Function, Arguments).

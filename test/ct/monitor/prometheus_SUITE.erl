%% A Prometheus (Debian's package prometheus) that scrapes two nodes with prometheus.erl: it knows
%% the series of docs/MONITORING.md by their names and types, and answers every query of the
%% dashboard docs/grafana-links.json.
-module(prometheus_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([
    series_have_names_and_types/1,
    dashboard_has_answers/1,
    alerts_are_valid/1,
    links_of_both_nodes/1
]).

%% Where Debian's rabbitmq-server has prometheus.erl, and jsx for the answers.
-define(LIBRARY, "/usr/lib/rabbitmq/lib/*/plugins/{prometheus,quantile_estimator,jsx}-*/ebin").
%% What Grafana puts in: all instances, and at least four scrapes.
-define(VARIABLES, [{"\\$instance", ".+"}, {"\\$__rate_interval", "1m"}]).
-define(SCRAPES, 3).

suite() ->
    [{timetrap, {minutes, 3}}].

all() ->
    [series_have_names_and_types, dashboard_has_answers, alerts_are_valid, links_of_both_nodes].

init_per_suite(Config) ->
    case {os:find_executable("prometheus"), filelib:wildcard(?LIBRARY)} of
        {false, _} -> {skip, "Prometheus is not installed (Debian's package prometheus)"};
        {_, []} -> {skip, "prometheus.erl is not installed; the package rabbitmq-server has it"};
        {Program, Library} -> with(Program, Library, inet_rdma_test_node:only_rdma(Config))
    end.

with(_Program, _Library, {skip, _} = Skip) ->
    Skip;
with(Program, Library, Config) ->
    ok = code:add_pathsz(Library),
    {ok, _} = application:ensure_all_started(inets),
    %% The nodes and Prometheus outlive this process, which ends before the first case.
    Self = self(),
    Keeper = spawn(fun() -> keep(Self, Program, Library, proplists:get_value(priv_dir, Config)) end),
    receive
        {Keeper, Started} -> [{keeper, Keeper} | Started] ++ Config
    after 120000 -> {fail, "Prometheus has not scraped all nodes"}
    end.

end_per_suite(Config) ->
    Keeper = proplists:get_value(keeper, Config),
    Monitor = monitor(process, Keeper),
    Keeper ! stop,
    receive
        {'DOWN', Monitor, process, Keeper, Reason} -> ?assertEqual(normal, Reason)
    end.

keep(Suite, Program, Library, Directory) ->
    %% No link between b and plain.
    Apart = #{args => ["-connect_all", "false"]},
    Wanted = [{"a", Apart}, {"b", Apart}, {"plain", Apart#{carrier => "inet_tcp"}}],
    [A, B, Plain] = Nodes = inet_rdma_test_node:start_all(Wanted),
    Ports = [exporter(Node, Library, Directory) || Node <- [A, B]],
    [ok = inet_rdma_test_link:connect(A, Peer) || Peer <- [B, Plain]],
    ok = inet_rdma_test_link:await(A, B, shm),
    Listen = inet_rdma_test_os:free_port(),
    Server = start(Program, Directory, Listen, Ports),
    inet_rdma_test_wait:until(scrapes, 30000, fun() ->
        _ = [
            call(A, inet_rdma_test_data, send_and_compare, [name(Peer), [100000]])
         || Peer <- [B, Plain]
        ],
        Query = "min(count_over_time(inet_rdma_link_info{fabric=\"shm\"}[1m]))",
        try value(query(Listen, Query)) of
            [Count] when Count >= ?SCRAPES -> true;
            Other -> Other
        catch
            error:Reason -> Reason
        end
    end),
    Suite !
        {self(), [{prometheus, Listen}, {ports, Ports}, {nodes, [name(Node) || Node <- Nodes]}]},
    receive
        stop -> ok
    end,
    {os_pid, Pid} = erlang:port_info(Server, os_pid),
    _ = os:cmd("kill " ++ integer_to_list(Pid)),
    inet_rdma_test_node:stop_all().

%% As docs/MONITORING.md says: our collector in the place of the library's.
exporter(Node, Library, Directory) ->
    ok = call(Node, inet_rdma_test_metrics, use_library, [Library]),
    ok = call(Node, prometheus_registry, deregister_collector, [prometheus_vm_dist_collector]),
    ok = call(Node, prometheus_registry, register_collector, [inet_rdma_prometheus_collector]),
    call(Node, inet_rdma_test_exporter, start, [Directory]).

start(Program, Directory, Listen, Ports) ->
    Targets = lists:join(", ", [io_lib:format("'127.0.0.1:~b'", [Port]) || Port <- Ports]),
    File = filename:join(Directory, "prometheus.yml"),
    ok = file:write_file(File, [
        "global: {scrape_interval: 1s}\n"
        "scrape_configs: [{job_name: nodes, static_configs: [{targets: [",
        Targets,
        "]}]}]\n"
    ]),
    Arguments = [
        "--config.file=" ++ File,
        "--storage.tsdb.path=" ++ filename:join(Directory, "tsdb"),
        "--web.listen-address=127.0.0.1:" ++ integer_to_list(Listen)
    ],
    open_port({spawn_executable, Program}, [{args, Arguments}, stderr_to_stdout, binary, hide]).

%% Rows of tables that begin with a series; those of the carrier have their type in the second
%% column, the others are gauges.
series_have_names_and_types(Config) ->
    Document = document("MONITORING.md", Config),
    Rows = matches(Document, "^\\| `((?:erlang_vm_dist|inet_rdma)_[a-z_]+)` \\| (gauge|counter)?"),
    ?assert(length(Rows) > 20),
    Metadata = get(Config, "metadata", []),
    [?assertEqual({Name, type(Type)}, {Name, known_type(Name, Metadata)}) || [Name | Type] <- Rows].

type([]) -> <<"gauge">>;
type([Type]) -> Type.

known_type(Name, Metadata) ->
    case Metadata of
        #{Name := [#{<<"type">> := Type}]} -> Type;
        #{} -> unknown
    end.

%% Each has at least one value: none of the panels is empty with these nodes.
dashboard_has_answers(Config) ->
    Dashboard = jsx:decode(document("grafana-links.json", Config), [return_maps]),
    Panels = [
        {Title, Target}
     || #{<<"title">> := Title, <<"targets">> := Targets} <- maps:get(<<"panels">>, Dashboard),
        Target <- Targets
    ],
    ?assertMatch([_, _ | _], Panels),
    [
        begin
            Query = lists:foldl(fun substitute/2, Expr, ?VARIABLES),
            Results = get(Config, "query", [{"query", Query}]),
            ct:log("~ts~n~ts~n~b results", [Title, Query, length(maps:get(<<"result">>, Results))]),
            ?assertMatch({Title, Query, #{<<"result">> := [_ | _]}}, {Title, Query, Results}),
            %% A legend names labels that the results have.
            Labels = lists:append(matches(maps:get(<<"legendFormat">>, Target), "{{([a-z]+)}}")),
            [
                ?assertEqual({Title, Labels -- maps:keys(Metric)}, {Title, []})
             || #{<<"metric">> := Metric} <- maps:get(<<"result">>, Results)
            ]
        end
     || {Title, #{<<"expr">> := Expr} = Target} <- Panels
    ],
    %% The variable of the dashboard: label_values(METRIC, LABEL).
    [Query] = [Query || #{<<"name">> := <<"instance">>, <<"query">> := Query} <- list(Dashboard)],
    [[Metric, Label]] = matches(Query, "^label_values\\(([a-z_]+), ([a-z]+)\\)$"),
    Instances = get(Config, ["label/", Label, "/values"], [{"match[]", Metric}]),
    ?assertEqual(
        lists:sort([iolist_to_binary(instance(Port)) || Port <- proplists:get_value(ports, Config)]),
        lists:sort(Instances)
    ).

substitute({From, To}, Text) -> re:replace(Text, From, To, [global, {return, binary}]).

list(#{<<"templating">> := #{<<"list">> := List}}) -> List.

%% Indented lines with a comparison: nothing stands alert here.
alerts_are_valid(Config) ->
    Pattern = "^    ([a-z_]+[({].*> [0-9e]+|[a-z_]+ > [0-9e]+)$",
    Alerts = lists:append(matches(document("MONITORING.md", Config), Pattern)),
    ?assertMatch([_, _ | _], Alerts),
    [
        ?assertMatch(
            {Alert, #{<<"result">> := []}}, {Alert, get(Config, "query", [{"query", Alert}])}
        )
     || Alert <- Alerts
    ].

%% Both nodes' links, as both ends see them, and counts that grow with the traffic.
links_of_both_nodes(Config) ->
    [A, B, Plain] = [atom_to_binary(Name) || Name <- proplists:get_value(nodes, Config)],
    [InstanceA, InstanceB] = [
        iolist_to_binary(instance(Port))
     || Port <- proplists:get_value(ports, Config)
    ],
    #{<<"result">> := Results} = get(Config, "query", [{"query", "inet_rdma_link_info"}]),
    ?assertEqual(
        lists:sort([
            {InstanceA, B, <<"shm">>}, {InstanceA, Plain, <<"tcp">>}, {InstanceB, A, <<"shm">>}
        ]),
        lists:sort([
            {Instance, Peer, Fabric}
         || #{
                <<"metric">> := #{
                    <<"instance">> := Instance,
                    <<"peer">> := Peer,
                    <<"fabric">> := Fabric
                }
            } <- Results
        ])
    ),
    [
        ?assertMatch(
            {Series, Peer, [Sum]} when Sum >= 100000 * ?SCRAPES,
            {Series, Peer,
                value(get(Config, "query", [{"query", [Series, "{peer=\"", Peer, "\"}"]}]))}
        )
     || {Series, Peer} <- [
            {"erlang_vm_dist_send_bytes", B},
            {"erlang_vm_dist_send_bytes", Plain},
            {"erlang_vm_dist_recv_bytes", A}
        ]
    ].

instance(Port) -> ["127.0.0.1:", integer_to_list(Port)].

value(#{<<"result">> := Results}) ->
    [binary_to_float(<<Text/binary, ".0">>) || #{<<"value">> := [_Time, Text]} <- Results].

query(Port, Query) -> request(Port, "query", [{"query", Query}]).

get(Config, Path, Parameters) -> request(proplists:get_value(prometheus, Config), Path, Parameters).

%% The data of an answer of Prometheus' HTTP API.
request(Port, Path, Parameters) ->
    Query = uri_string:compose_query([
        {Key, unicode:characters_to_list(Value)}
     || {Key, Value} <- Parameters
    ]),
    Url = lists:flatten([
        "http://", instance(Port), "/api/v1/", [binary_to_list(iolist_to_binary(Path))], "?", Query
    ]),
    {ok, {_Status, _Head, Body}} = httpc:request(get, {Url, []}, [{timeout, 10000}], [
        {body_format, binary}
    ]),
    case jsx:decode(Body, [return_maps]) of
        #{<<"status">> := <<"success">>, <<"data">> := Data} -> Data;
        Answer -> error({prometheus, Path, Parameters, Answer})
    end.

document(File, Config) ->
    %% The suite has no data directory: its path is taken apart.
    [_Data, _Folder, "ct", "test" | Root] = lists:reverse(
        filename:split(proplists:get_value(data_dir, Config))
    ),
    {ok, Text} = file:read_file(filename:join(lists:reverse(Root) ++ ["docs", File])),
    Text.

matches(Text, Pattern) ->
    case re:run(Text, Pattern, [multiline, global, {capture, all_but_first, binary}]) of
        {match, Found} -> Found;
        nomatch -> []
    end.

name(#{node := Node}) -> Node.

call(Node, Module, Function, Arguments) ->
    inet_rdma_test_node:call(Node, Module, Function, Arguments).

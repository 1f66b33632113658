%% Brokers of RabbitMQ. All cases take minutes: `make test-rabbitmq`. One of them runs wherever there
%% is a broker, as in CI: scripts/rabbitmq brings one.
-module(rabbitmq_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([init_per_testcase/2, end_per_testcase/2]).
-export([stops_after_the_doctor/1, quick_start_inside_tls/1]).
-export([filler_of_a_link_is_named/1]).
-export([cluster_links_have_data/1, quorum_queues_under_cuts/1, quorum_queues_in_a_triangle/1]).

%% What rabbitmqctl evaluates: the cuts and, with the option compress, the bytes of each link.
-define(LINKS,
    "[maps:with([node, losses, resumes, plain_bytes_sent, wire_bytes_sent, compress_us], Link)"
    " || Link <- inet_rdma:info()]."
).

-define(DETOURS,
    "catch [{maps:get(node, Link), maps:get(via, Link, none)} || Link <- inet_rdma:info()]."
).

suite() ->
    [{timetrap, {minutes, 10 + seconds() div 60}}].

all() ->
    [
        stops_after_the_doctor,
        quick_start_inside_tls,
        cluster_links_have_data,
        filler_of_a_link_is_named,
        quorum_queues_under_cuts,
        quorum_queues_in_a_triangle
    ].

seconds() -> list_to_integer(os:getenv("INET_RDMA_RABBITMQ_SECONDS", "0")).

init_per_suite(Config) ->
    case inet_rdma_test_broker:installed() of
        none ->
            {skip, "there is no RabbitMQ: see scripts/rabbitmq"};
        _ ->
            ok = inet_rdma_test_broker:add_client(),
            Config
    end.

end_per_suite(_Config) ->
    ok.

init_per_testcase(filler_of_a_link_is_named, Config) ->
    Config;
init_per_testcase(_Case, Config) ->
    case {seconds(), inet_rdma_test_cutter:why_not()} of
        {0, _} -> {skip, "it takes minutes: make test-rabbitmq"};
        {_, none} -> Config;
        {_, Why} -> {skip, Why}
    end.

end_per_testcase(_Case, _Config) ->
    ok.

%% rabbitmqctl stop_app and stop order all loaded applications.
stops_after_the_doctor(Config) ->
    R1 = inet_rdma_test_broker:start(proplists:get_value(priv_dir, Config), "r1", flags()),
    try
        Doctor = "ok = inet_rdma:load_tools(), maps:get(starts, inet_rdma_doctor:report()).",
        ?assertEqual("true", string:trim(inet_rdma_test_broker:ctl(R1, ["eval", Doctor]))),
        [_ = inet_rdma_test_broker:ctl(R1, [Words]) || Words <- ["stop_app", "start_app", "stop"]]
    after
        inet_rdma_test_broker:stop(R1)
    end.

%% The commands of docs/QUICKSTARTS.md, but for owners and directories.
quick_start_inside_tls(Config) ->
    Directory = filename:join(proplists:get_value(priv_dir, Config), "quick_start"),
    Made = [
        piece("DEPLOY.md", "openssl req -x509 -newkey"),
        piece("DEPLOY.md", "openssl req -x509 -CA"),
        piece("QUICKSTARTS.md", "install -d")
    ],
    Own = [
        {"/etc/rabbitmq", Directory},
        {"-o rabbitmq -g rabbitmq ", ""},
        {"chown rabbitmq: ", "test -f "},
        {"/opt/inet_rdma/ebin", inet_rdma_test_node:ebin()}
    ],
    Script = lists:foldl(
        fun({From, To}, Text) -> string:replace(Text, From, To, all) end,
        lists:join("\n", Made),
        Own
    ),
    File = filename:join(Directory, "make"),
    ok = filelib:ensure_dir(File),
    ok = file:write_file(File, Script),
    "" = lists:last(
        string:split(
            os:cmd("cd " ++ Directory ++ " && sh -e make >said 2>&1 || cat said"), "\n", all
        )
    ),
    [R1, R2] =
        Brokers = [
            inet_rdma_test_broker:start_configured(
                Directory,
                Prefix,
                filename:join(
                    Directory,
                    "rabbitmq-env.conf"
                )
            )
         || Prefix <- ["r1", "r2"]
        ],
    try
        ok = inet_rdma_test_broker:join(R2, R1),
        Table = inet_rdma_test_broker:ctl(R1, ["eval", "inet_rdma:i()."]),
        ct:pal("~ts", [Table]),
        ?assertMatch({match, _}, re:run(Table, [maps:get(name, R2), " +(shm|tcp) +up "])),
        %% That of rabbitmqctl, which goes through TLS.
        ?assertMatch({match, _}, re:run(Table, "rabbitmqcli-\\S+ +tls +up "))
    after
        [inet_rdma_test_broker:stop(Broker) || Broker <- Brokers]
    end.

%% The code on a page that begins with these words.
piece(Page, Words) ->
    Root = filename:join(filename:dirname(code:which(?MODULE)), "../../.."),
    {ok, Text} = file:read_file(filename:join([Root, "docs", Page])),
    [_, Rest] = string:split(Text, ["\n\n    ", Words]),
    [Code | _] = string:split(Rest, "\n\n"),
    [Words, string:replace(Code, "\n    ", "\n", all)].

%% What the management plugin shows as "Cluster links", and the exporter of RabbitMQ as the
%% distribution's traffic.
cluster_links_have_data(Config) ->
    Directory = proplists:get_value(priv_dir, Config),
    {ok, _} = application:ensure_all_started(inets),
    [Api, Metrics] = [inet_rdma_test_os:free_port() || _ <- [1, 2]],
    Plugins = [
        listens("rabbitmq_management", "listener", Api),
        listens("rabbitmq_prometheus", "tcp_config", Metrics)
    ],
    R1 = inet_rdma_test_broker:start(Directory, "r1", flags() ++ lists:append(Plugins)),
    R2 = inet_rdma_test_broker:start(Directory, "r2", flags()),
    try
        ok = inet_rdma_test_broker:join(R2, R1),
        ok = inet_rdma_test_broker:enable(R1, ["rabbitmq_management", "rabbitmq_prometheus"]),
        #{name := Name} = R1,
        Peer = maps:get(name, R2),
        Links =
            "http://127.0.0.1:" ++ integer_to_list(Api) ++ "/api/nodes/" ++ Name ++
                "?columns=cluster_links",
        Received = received(Links, Peer, 0),
        Later = received(Links, Peer, Received),
        ct:pal("~b, later ~b bytes received", [Received, Later]),
        Page = answer("http://127.0.0.1:" ++ integer_to_list(Metrics) ++ "/metrics"),
        Lines = [
            Line
         || "erlang_vm_dist_recv_bytes" ++ _ = Line <- string:lexemes(Page, "\n"),
            string:find(Line, Peer) =/= nomatch
        ],
        ?assertMatch([_], Lines)
    after
        [inet_rdma_test_broker:stop(Broker) || Broker <- [R1, R2]]
    end.

%% Waits until the page has more received bytes of the link to the peer than these.
received(Links, Peer, Before) ->
    Link = [
        "\"name\":\"",
        Peer,
        "\",\"peer_addr\":\"127[0-9.]+\",\"peer_port\":[0-9]+,\"sock_addr\":\"127[0-9.]+\","
        "\"sock_port\":[0-9]+,\"recv_bytes\":([0-9]+),\"send_bytes\":[1-9]"
    ],
    inet_rdma_test_wait:until({more_than, Before}, 20000, fun() ->
        Page = answer(Links),
        case re:run(Page, Link, [{capture, [1], list}]) of
            {match, [Bytes]} ->
                list_to_integer(Bytes) > Before andalso {ok, list_to_integer(Bytes)};
            nomatch ->
                Page
        end
    end).

answer(Url) ->
    Basic = {"authorization", "Basic " ++ base64:encode_to_string("guest:guest")},
    %% Without options of ssl httpc of OTP 27 asks the host for its certificates, of which a small
    %% host has none.
    {ok, {{_, 200, _}, _, Body}} = httpc:request(get, {Url, [Basic]}, [{ssl, []}], []),
    Body.

listens(Application, Key, Port) -> ["-" ++ Application, Key, lists:concat(["[{port,", Port, "}]"])].

%% A client of one broker publishes large messages to a queue of the other one, beside the management
%% plugin: the client's channel is named first.
filler_of_a_link_is_named(Config) ->
    Directory = proplists:get_value(priv_dir, Config),
    Api = listens("rabbitmq_management", "listener", inet_rdma_test_os:free_port()),
    R1 = inet_rdma_test_broker:start(Directory, "r1", flags() ++ Api),
    R2 = inet_rdma_test_broker:start(Directory, "r2", flags()),
    try
        ok = inet_rdma_test_broker:join(R2, R1),
        ok = inet_rdma_test_broker:enable(R1, ["rabbitmq_management"]),
        ok = inet_rdma_test_queue:publish_large(
            <<"large">>, inet_rdma_test_broker:amqp(R2), inet_rdma_test_broker:amqp(R1), 60, 1000000
        ),
        Peer = maps:get(name, R2),
        First = [
            "{ok, #{sent := #{recent := #{total := Total, rows := [First | _]}}}} = "
            "inet_rdma:top('",
            Peer,
            "'), "
        ],
        Shown = inet_rdma_test_broker:ctl(R1, ["eval", lists:concat(First ++ ["{Total, First}."])]),
        ct:pal("~ts~n~ts", [Shown, inet_rdma_test_broker:ctl(R1, ["list_queues", "name", "pid"])]),
        %% The filler and its target, as the broker knows them.
        Which = [
            "#{from := {From, Call}, to := To, percent := Percent} = First, ",
            "[Queue] = rabbit_amqqueue:list(), ",
            "{lists:member(From, rabbit_channel:list()), Call, To =:= amqqueue:get_pid(Queue), Percent}."
        ],
        Said = inet_rdma_test_broker:ctl(R1, ["eval", lists:concat(First ++ Which)]),
        {ok, Tokens, _} = erl_scan:string(string:trim(Said) ++ "."),
        ?assertMatch(
            {ok, {true, {rabbit_channel, init, 1}, true, Percent}} when Percent > 80,
            erl_parse:parse_term(Tokens)
        )
    after
        [inet_rdma_test_broker:stop(Broker) || Broker <- [R1, R2]]
    end.

quorum_queues_under_cuts(Config) ->
    Directory = proplists:get_value(priv_dir, Config),
    Brokers = [
        inet_rdma_test_broker:start(Directory, Prefix, flags())
     || Prefix <- ["r1", "r2", "r3"]
    ],
    try
        cut_under_traffic(Brokers)
    after
        [inet_rdma_test_broker:stop(Broker) || Broker <- Brokers]
    end.

flags() ->
    inet_rdma_test_node:flags() ++ string:lexemes(os:getenv("INET_RDMA_RABBITMQ_FLAGS", ""), " ").

cut_under_traffic([R1, R2, R3] = Brokers) ->
    [ok = inet_rdma_test_broker:join(Broker, R1) || Broker <- [R2, R3]],
    %% Each queue is led by the broker at which it is consumed.
    Queues = [
        inet_rdma_test_queue:start(
            Queue, inet_rdma_test_broker:amqp(At), inet_rdma_test_broker:amqp(From)
        )
     || {Queue, At, From} <- [{<<"q1">>, R1, R2}, {<<"q2">>, R2, R3}, {<<"q3">>, R3, R1}]
    ],
    [Pid1, Pid2, Pid3] = [OsPid || #{os_pid := OsPid} <- Brokers],
    Cutter = inet_rdma_test_cutter:start([{Pid1, Pid2}, {Pid2, Pid3}, {Pid3, Pid1}], 1000, 1000),
    receive
    after seconds() * 1000 -> ok
    end,
    Cuts = inet_rdma_test_cutter:stop(Cutter),
    Figures = [inet_rdma_test_queue:stop(Queue) || Queue <- Queues],
    Sum = lists:foldl(
        fun(Each, Before) -> maps:merge_with(fun add/3, Each, Before) end, #{}, Figures
    ),
    Events = [
        {Text, lists:sum([inet_rdma_test_broker:logged(Broker, Text) || Broker <- Brokers])}
     || Text <- [<<"inconsistent_database">>, <<"artial partition">>, <<" down: ">>]
    ],
    ct:pal("~b cuts in ~b s: ~0p; lines in the logs: ~0p", [Cuts, seconds(), Sum, Events]),
    [
        ct:pal("links of ~ts:~n~ts", [Name, inet_rdma_test_broker:ctl(Broker, ["eval", ?LINKS])])
     || #{name := Name} = Broker <- Brokers
    ],
    ?assertMatch(#{lost := 0, refused := 0}, Sum),
    ?assertEqual([], [Event || {_, Count} = Event <- Events, Count > 0]),
    ?assert(Cuts > 0).

%% Each broker on a host of its own. The way between two is cut, and the queues go on: no member of
%% a queue asks for an election, no broker hears of another's end.
quorum_queues_in_a_triangle(Config) ->
    case inet_rdma_test_hosts:start(Config, 3) of
        {error, Why} ->
            inet_rdma_test_link:skip("hosts for nodes cannot be made here: " ++ Why);
        {ok, Hosts} ->
            try
                in_a_triangle(proplists:get_value(priv_dir, Config), Hosts)
            after
                inet_rdma_test_node:stop_all(),
                inet_rdma_test_hosts:stop(Hosts)
            end
    end.

in_a_triangle(Directory, Hosts) ->
    [R1, R2, R3] =
        Brokers = [
            begin
                #{under := Under} = inet_rdma_test_hosts:options(Host, Hosts, #{}),
                Place = #{host => Name, under => Under},
                %% The guest comes from another host.
                Flags = flags() ++ ["-rabbit", "loopback_users", "[]"],
                inet_rdma_test_broker:start(Directory, "r", Flags, Place)
            end
         || {Host, Name} <- lists:zip([a, b, c], inet_rdma_test_hosts:names([a, b, c]))
        ],
    [ok = inet_rdma_test_broker:join(Broker, R1) || Broker <- [R2, R3]],
    %% The clients are on the host that loses no way.
    Client = inet_rdma_test_node:start("client", inet_rdma_test_hosts:options(c, Hosts, #{})),
    ok = inet_rdma_test_node:call(Client, inet_rdma_test_broker, add_client, []),
    Queues = [
        inet_rdma_test_node:call(
            Client,
            inet_rdma_test_queue,
            start,
            [Queue, inet_rdma_test_broker:amqp(At), inet_rdma_test_broker:amqp(From)]
        )
     || {Queue, At, From} <- [{<<"q1">>, R1, R2}, {<<"q2">>, R2, R1}, {<<"q3">>, R3, R1}]
    ],
    Before = events(Brokers),
    receive
    after 5000 -> ok
    end,
    ok = inet_rdma_test_hosts:silence(inet_rdma_test_hosts:both(a, b), Hosts),
    receive
    after seconds() * 1000 -> ok
    end,
    Detoured = inet_rdma_test_broker:ctl(R1, ["eval", ?DETOURS]),
    ok = inet_rdma_test_hosts:pass(Hosts),
    receive
    after 5000 -> ok
    end,
    Figures = [
        inet_rdma_test_node:call(Client, inet_rdma_test_queue, stop, [Queue])
     || Queue <- Queues
    ],
    After = events(Brokers),
    ct:pal(
        "~b s: ~0p~ndetours: ~ts~nlines in the logs before: ~0p~nafter: ~0p",
        [seconds(), Figures, Detoured, Before, After]
    ),
    ?assertEqual(Before, After),
    [?assertMatch(#{lost := 0, refused := 0}, Each) || Each <- Figures].

%% How many lines of the logs report elections and ends of nodes.
events(Brokers) ->
    [
        {Text, lists:sum([inet_rdma_test_broker:logged(Broker, Text) || Broker <- Brokers])}
     || Text <- [
            <<"leader in term">>,
            <<"pre_vote">>,
            <<"inconsistent_database">>,
            <<"artial partition">>,
            <<" down: ">>
        ]
    ].

add(longest_confirm_ms, One, Other) -> max(One, Other);
add(_, One, Other) -> One + Other.

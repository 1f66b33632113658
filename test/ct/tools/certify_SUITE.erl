%% The certificate: a good host passes, faults behind its back are found and named, and no check
%% passes by not running. The faults that need an RDMA device are in test/vm.
-module(certify_SUITE).

-include_lib("kernel/include/file.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([slow_way_is_named/1, way_that_drops_64_kib_is_named/1, little_locked_memory_is_named/1]).
-export([device_is_compared_with_its_profile/1]).
-export([
    step_that_is_cut_off_fails/1,
    step_that_crashes_fails/1,
    skips_are_no_pass/1,
    slow_figures_are_named/1
]).
-export([failing_contract_is_named/1, wrong_options_are_refused/1, report_opens_without_a_network/1]).
-export([peer_by_ssh/1, peer_that_joins/1, strangers_do_not_join/1]).
-export([cookie_is_not_on_a_command_line/1]).

suite() ->
    [{timetrap, {minutes, 10}}, {ct_hooks, [{inet_rdma_test_nodes, [only_rdma]}]}].

all() ->
    [
        step_that_is_cut_off_fails,
        step_that_crashes_fails,
        skips_are_no_pass,
        slow_figures_are_named,
        failing_contract_is_named,
        wrong_options_are_refused,
        device_is_compared_with_its_profile,
        little_locked_memory_is_named,
        way_that_drops_64_kib_is_named,
        slow_way_is_named,
        report_opens_without_a_network,
        peer_by_ssh,
        peer_that_joins,
        strangers_do_not_join,
        cookie_is_not_on_a_command_line
    ].

init_per_suite(Config) ->
    inet_rdma_test_json:needed(Config).

end_per_suite(_Config) ->
    ok.

%% The way delays all bytes by 5 ms. inet_tcp between the same addresses has no delay.
slow_way_is_named(Config) ->
    Path = inet_rdma_test_bad_way:start({delay, 5}),
    {1, Report} = certified(
        Config,
        ["--paths", "tcp", "--least-speed", "0.5"],
        inet_rdma_test_bad_way:flags(Path)
    ),
    ok = inet_rdma_test_bad_way:stop(Path),
    #{"why" := Why, "fix" := Fix} = failed(Report, "speed", "tcp"),
    contains(Why, ["slow: ", "round trip, median 0.0"]),
    contains(Fix, ["perftest", "errors of the port"]).

way_that_drops_64_kib_is_named(Config) ->
    Path = inet_rdma_test_bad_way:start({drop, 60000}),
    {1, Report} = certified(
        Config,
        ["--paths", "tcp"],
        inet_rdma_test_bad_way:flags(Path)
    ),
    ok = inet_rdma_test_bad_way:stop(Path),
    #{"why" := Why, "fix" := Fix} = failed(Report, "sizes", "tcp"),
    contains(Why, ["messages of 16 KiB pass, and one of 64 KiB does not come back"]),
    contains(Fix, ["MTU"]),
    ?assertEqual(
        ["skipped"],
        lists:usort([
            Status
         || #{"check" := Check, "status" := Status} <- map_get(
                "results",
                Report
            ),
            lists:member(Check, ["survival", "soak", "speed"])
        ])
    ).

%% What differs is named; a limit that is one of those of the provider's kinds of device does not.
device_is_compared_with_its_profile(_Config) ->
    Device = #{
        transport => infiniband,
        firmware => <<"1.2">>,
        limits => #{sges => 13, queue_entries => 4063, completion_entries => 7},
        without => []
    },
    Differences = fun(Provider, Of) ->
        unicode:characters_to_list(
            lists:join("; ", inet_rdma_certify_profile:differences(Provider, Of))
        )
    end,
    ?assertEqual("", Differences(irdma, Device)),
    ?assertEqual(
        "max_sge is 12, the profile says 3 or 13 or 14",
        Differences(irdma, Device#{limits := #{sges => 12, queue_entries => 895}})
    ),
    ?assertEqual("", Differences(mana, Device#{without := [inline]})),
    contains(Differences(mlx5, Device#{without := [windows]}), ["memory windows"]),
    Draft = unicode:characters_to_list(
        lists:join("; ", inet_rdma_certify_profile:draft(<<"pigeon">>, Device))
    ),
    contains(Draft, ["driver: pigeon, firmware 1.2", "max_sge: 13", "self-test: nothing"]).

%% A problem that the doctor finds fails the certificate, with the doctor's fix. test/vm has this
%% case with a device.
little_locked_memory_is_named(_Config) ->
    Fix = <<"`ulimit -l unlimited`">>,
    Finding = #{
        severity => problem,
        about => locked_memory,
        text => <<"the limit on locked memory is 64 KiB">>,
        fix => Fix
    },
    Report = (inet_rdma_doctor:report())#{findings := [Finding]},
    Result = inet_rdma_certify_step:run(
        {doctor, <<"host">>},
        fun() -> inet_rdma_certify_host:doctor(Report) end,
        10000
    ),
    ?assertMatch(
        #{
            status := fail,
            why := <<"locked_memory: the limit on locked memory is 64 KiB">>,
            fix := Fix
        },
        Result
    ).

step_that_is_cut_off_fails(_Config) ->
    Endless = fun() ->
        inet_rdma_certify_step:note("seen ~b", [1]),
        receive
            never -> pass
        end
    end,
    #{status := fail, why := Why, evidence := Evidence} = inet_rdma_certify_step:run(
        {soak, <<"shm">>}, Endless, 1000
    ),
    contains(unicode:characters_to_list(Why), ["cut off: not done after 1 s"]),
    ?assertEqual([<<"seen 1">>], Evidence).

%% The nodes of a check that crashes end with it.
step_that_crashes_fails(_Config) ->
    Test = self(),
    Home = inet_rdma_certify_os:make_home("of_a_node_that_ends"),
    Crash = fun() ->
        [Node] = inet_rdma_certify_node:start_all([wanted(Home)]),
        Test ! {os_pid, inet_rdma_certify_node:call(Node, os, getpid, [])},
        error(on_purpose)
    end,
    #{status := fail, why := Why} = inet_rdma_certify_step:run({soak, <<"shm">>}, Crash, 60000),
    contains(unicode:characters_to_list(Why), ["on_purpose"]),
    OsPid =
        receive
            {os_pid, Text} -> list_to_integer(Text)
        end,
    inet_rdma_test_wait:until({ended, OsPid}, 10000, fun() ->
        not inet_rdma_test_os:is_alive(OsPid)
    end),
    ok = inet_rdma_certify_os:remove(Home).

wanted(Home) ->
    #{
        host => local,
        home => Home,
        prefix => "x",
        address => "127.0.0.1",
        carrier => "inet_tcp",
        rdma => []
    }.

%% No process of this host shows it: a program that starts the node shows its arguments, too. Before
%% the node listens it knows its cookie.
cookie_is_not_on_a_command_line(_Config) ->
    Cookie = string:lowercase(binary:encode_hex(crypto:strong_rand_bytes(16))),
    Home = inet_rdma_certify_os:make_home(Cookie),
    [Directory, File] = [
        begin
            {ok, #file_info{mode = Mode}} = file:read_file_info(Path),
            Mode band 8#777
        end
     || Path <- [Home, filename:join(Home, ".erlang.cookie")]
    ],
    ?assertEqual({8#700, 8#400}, {Directory, File}),
    Look = fun() ->
        [Node] = inet_rdma_certify_node:start_all([wanted(Home)]),
        ?assertEqual(
            binary_to_atom(Cookie), inet_rdma_certify_node:call(Node, erlang, get_cookie, [])
        ),
        ?assertEqual(error, inet_rdma_certify_node:call(Node, init, get_argument, [setcookie])),
        ?assertEqual({ok, [[Home]]}, inet_rdma_certify_node:call(Node, init, get_argument, [home])),
        ?assertEqual([], showing(Cookie)),
        pass
    end,
    ?assertMatch(#{status := pass}, inet_rdma_certify_step:run({sizes, <<"tcp">>}, Look, 60000)),
    ok = inet_rdma_certify_os:remove(Home).

%% The command lines that show this text.
showing(Text) ->
    [
        Line
     || File <- filelib:wildcard("/proc/[0-9]*/cmdline"),
        {ok, Line} <- [file:read_file(File)],
        binary:match(Line, Text) =/= nomatch
    ].

skips_are_no_pass(_Config) ->
    Of = fun(Check, Outcome) -> inet_rdma_certify_step:skipped({Check, <<"shm">>}, Outcome) end,
    Core = [doctor, sizes, survival, soak, speed],
    ?assertMatch({pass, _}, inet_rdma_certify_report:verdict([Of(Check, pass) || Check <- Core])),
    ?assertMatch(
        {pass, _},
        inet_rdma_certify_report:verdict([
            Of(contract, {skipped, "none"})
            | [Of(Check, pass) || Check <- Core]
        ])
    ),
    {fail, Why} = inet_rdma_certify_report:verdict([Of(doctor, pass), Of(soak, {skipped, "none"})]),
    contains(unicode:characters_to_list(Why), [
        "nothing shows that this works: sizes, survival, soak, speed"
    ]),
    ?assertMatch(
        {fail, <<"speed of shm: slow">>},
        inet_rdma_certify_report:verdict([
            Of(speed, {fail, "slow", "none"})
            | [
                Of(Check, pass)
             || Check <- Core
            ]
        ])
    ).

%% Whether a greater figure is better or a smaller one.
slow_figures_are_named(_Config) ->
    Figure = fun(Better, Link) ->
        #{
            test => <<"t">>,
            unit => <<"u">>,
            greater_is_better => Better,
            link => Link,
            inet_tcp => [100.0, 100.0, 100.0]
        }
    end,
    ?assertEqual(
        pass,
        inet_rdma_certify_speed:judge(
            [
                Figure(true, [60.0, 10.0, 90.0]),
                Figure(false, [150.0, 90.0, 900.0])
            ],
            default,
            false
        )
    ),
    Slow = [
        Figure(true, [40.0, 10.0, 90.0]),
        Figure(false, [400.0, 90.0, 900.0])
    ],
    {fail, Why, _} = inet_rdma_certify_speed:judge(Slow, default, false),
    ?assertEqual(pass, inet_rdma_certify_speed:judge(Slow, 0.2, false)),
    ?assertEqual(pass, inet_rdma_certify_speed:judge(Slow, default, true)),
    ?assertMatch({fail, _, _}, inet_rdma_certify_speed:judge(Slow, 0.3, true)),
    contains(lists:flatten(Why), ["t 0.40 times as fast as inet_tcp; t 0.25 times"]).

%% A script stands in for the program of the contract suite.
failing_contract_is_named(Config) ->
    Path = #{
        id => <<"shm">>,
        fabric => shm,
        here => "127.0.0.1",
        there => "127.0.0.1",
        device => none,
        host => local
    },
    Run = fun(Text) ->
        File = script(Config, "contract", Text),
        inet_rdma_certify_step:run(
            {contract, <<"shm">>},
            fun() ->
                inet_rdma_certify_host:contract(Path, File, 20000)
            end,
            30000
        )
    end,
    ?assertMatch(#{status := pass}, Run("echo 'test result: ok. 30 passed; 0 failed'")),
    #{
        status := fail,
        evidence := Evidence
    } = Run("echo 'test shm::order ... FAILED'; echo 'test result: FAILED. 1 failed'; exit 101"),
    ?assert(lists:member(<<"test shm::order ... FAILED">>, Evidence)),
    ?assertMatch(
        #{status := fail, why := <<"the program has no test", _/binary>>},
        Run("echo 'test result: ok. 0 passed'")
    ).

wrong_options_are_refused(_Config) ->
    _ = [
        {error, _} = inet_rdma_certify:options(Args)
     || Args <- [
            ["--soon"],
            ["--minutes"],
            ["--minutes", "0"],
            ["--minutes", "a"],
            ["--listen", "65536"],
            ["--checks", "sizes,faster"],
            ["--checks", ""]
        ]
    ],
    ?assertMatch(
        {ok, #{minutes := 3, paths := ["shm", "mlx5_0"], checks := [sizes, profile]}},
        inet_rdma_certify:options([
            "--quick",
            "--paths",
            "shm,mlx5_0",
            "--checks",
            "profile,sizes"
        ])
    ),
    ?assertEqual(2, inet_rdma_certify:main(["--paths", "no_such_device", "--quiet"])).

%% The page loads nothing from elsewhere. The JSON has the results of the page.
report_opens_without_a_network(Config) ->
    {_, #{"results" := Results}} = Certified = certified(Config, ["--paths", "shm"], ""),
    ok = passes(Certified),
    {ok, Page} = file:read_file(
        filename:join([proplists:get_value(priv_dir, Config), "certificate", "report.html"])
    ),
    ?assertEqual(nomatch, re:run(Page, "https?://|src=|@import|url\\(")),
    [
        ?assertNotEqual(nomatch, binary:match(Page, Part))
     || Part <- [<<"<svg ">>, <<"PASS">>, <<"messages of 1 MiB">>]
    ],
    ?assertEqual(
        ["doctor", "sizes", "soak", "speed", "survival"],
        lists:sort(
            [
                Check
             || #{"check" := Check, "status" := Status} <- Results,
                Status =:= "pass" orelse Check =:= "speed"
            ] -- ["contract"]
        )
    ).

%% Beside other tests a way may be slow: that fails the check `speed`, and nothing else does.
passes({ExitStatus, #{"verdict" := Verdict, "results" := Results}}) ->
    Failed = lists:usort([Check || #{"check" := Check, "status" := "fail"} <- Results]),
    Failed =/= [] andalso ct:pal("failed: ~p", [Failed]),
    case Failed of
        [] -> ?assertEqual({0, "pass"}, {ExitStatus, Verdict});
        _ -> ?assertEqual({["speed"], 1, "fail"}, {Failed, ExitStatus, Verdict})
    end.

%% A script stands in for ssh. Like ssh it hands its arguments to a shell.
peer_by_ssh(Config) ->
    %% The first call has the archive for standard input.
    Modes = filename:join(proplists:get_value(priv_dir, Config), "modes"),
    Ssh = script(Config, "ssh", [
        "shift; export SSH_CONNECTION='127.0.0.1 1 127.0.0.1 22'\n"
        "archive=$(readlink /proc/self/fd/0)\n"
        "[ ! -f \"$archive\" ] || stat -c %a \"${archive%/*}\" >",
        Modes,
        "\nexec sh -c \"$*\""
    ]),
    {_, Report} = Certified = certified(Config, ["--peer", "other", "--ssh", Ssh], ""),
    ok = passes(Certified),
    #{"peer" := #{"otp" := _}, "results" := Results} = Report,
    ?assertEqual(["host", "peer", "tcp"], lists:usort([Path || #{"path" := Path} <- Results])),
    %% Nobody else can take the archive's name first, or change it.
    ?assertEqual({ok, <<"700\n">>}, file:read_file(Modes)),
    ?assertEqual([], [
        Found
     || Found <- filelib:wildcard("/tmp/inet_rdma_certify.*"), is_left(Found)
    ]).

%% True for an empty directory: one with files may be of a certificate that another user runs at the
%% same time.
is_left(Directory) ->
    {ok, Names} = file:list_dir(Directory),
    Names =:= [].

peer_that_joins(Config) ->
    Port = run(Config, ["--listen", "0"], ""),
    {Address, Token} = command(Port, <<>>),
    Joined = join(Config, Address, Token),
    {ExitStatus, _} = output(Port),
    {_, Said} = output(Joined),
    contains(binary_to_list(Said), ["joined", "done"]),
    #{"results" := Results} = Report = report(Config),
    ok = passes({ExitStatus, Report}),
    ?assertEqual(["host", "peer", "tcp"], lists:usort([Path || #{"path" := Path} <- Results])).

%% A peer with a wrong token is refused. A peer with the right token is accepted afterwards.
strangers_do_not_join(Config) ->
    Port = run(Config, ["--paths", "none", "--listen", "0"], ""),
    {Address, Token} = command(Port, <<>>),
    [_, Number] = string:lexemes(Address, ":"),
    {ok, Garbage} = gen_tcp:connect({127, 0, 0, 1}, list_to_integer(Number), [
        binary, {packet, 4}, {active, false}
    ]),
    {ok, <<_:128>>} = gen_tcp:recv(Garbage, 0, 10000),
    ok = gen_tcp:send(Garbage, term_to_binary({call, <<>>, {erlang, halt, []}})),
    ?assertEqual({error, closed}, gen_tcp:recv(Garbage, 0, 10000)),
    {2, Refusal} = output(run(Config, ["--join", Address, Token], "")),
    contains(binary_to_list(Refusal), ["other users can read a token on a command line"]),
    {1, Said} = output(join(Config, Address, lists:reverse(Token))),
    contains(binary_to_list(Said), ["does not know the token"]),
    Joined = join(Config, Address, Token),
    %% The way `none' does not exist. certify finds that out when the peer has joined.
    {2, _} = output(Port),
    {0, _} = output(Joined).

command(Port, Seen) ->
    receive
        {Port, {data, Bytes}} ->
            All = <<Seen/binary, Bytes/binary>>,
            case
                re:run(All, "--join [^:]+:(\\d+)\n\n.*token: ([0-9a-f]+)\n", [
                    {capture, all_but_first, list}
                ])
            of
                {match, [Number, Token]} -> {"127.0.0.1:" ++ Number, Token};
                nomatch -> command(Port, All)
            end
    after 60000 -> error({no_command, Seen})
    end.

%% The token goes to standard input.
join(Config, Address, Token) ->
    Port = run(Config, ["--join", Address], ""),
    true = port_command(Port, [Token, $\n]),
    Port.

%% Runs a certificate in a VM of its own. Returns the exit status and the report.
certified(Config, Args, ErlFlags) ->
    {Status, Said} = output(run(Config, Args, ErlFlags)),
    ct:pal("~ts", [Said]),
    {Status, report(Config)}.

run(Config, Args, ErlFlags) ->
    Out = filename:join(proplists:get_value(priv_dir, Config), "certificate"),
    %% Speed is not judged: the host runs other tests.
    Short = [
        "--quick",
        "--minutes",
        "8",
        "--path-seconds",
        "30",
        "--least-speed",
        "0",
        "--out",
        Out
    ],
    Words =
        case Args of
            ["--join" | _] -> Args;
            _ -> Short ++ Args
        end,
    open_port({spawn_executable, inet_rdma_test_node:erl()}, [
        {args, [
            "-noshell",
            "-pa",
            inet_rdma_test_node:ebin(),
            "-pa",
            inet_rdma_test_node:tools(),
            "-eval",
            "inet_rdma_certify:main()",
            "-extra"
            | Words
        ]},
        {env, [{"ERL_FLAGS", ErlFlags}]},
        exit_status,
        stderr_to_stdout,
        binary,
        hide
    ]).

output(Port) -> output(Port, <<>>).

output(Port, Seen) ->
    receive
        {Port, {data, Bytes}} -> output(Port, <<Seen/binary, Bytes/binary>>);
        {Port, {exit_status, Status}} -> {Status, Seen}
    end.

%% The report of the last run, with strings for keys and texts.
report(Config) ->
    File = filename:join([proplists:get_value(priv_dir, Config), "certificate", "report.json"]),
    {ok, Text} = file:read_file(File),
    texts(inet_rdma_test_json:decode(Text)).

texts(Text) when is_binary(Text) -> unicode:characters_to_list(Text);
texts(List) when is_list(List) -> lists:map(fun texts/1, List);
texts(Map) when is_map(Map) ->
    maps:from_list([{texts(Key), texts(Value)} || {Key, Value} <- maps:to_list(Map)]);
texts(Other) ->
    Other.

failed(#{"results" := Results, "verdict" := "fail"}, Check, Path) ->
    [Result] = [
        Result
     || #{"check" := Is, "path" := Of, "status" := "fail"} = Result <- Results,
        Is =:= Check,
        Of =:= Path
    ],
    Result.

script(Config, Name, Text) ->
    File = filename:join(proplists:get_value(priv_dir, Config), Name),
    ok = file:write_file(File, ["#!/bin/sh\n", Text, "\n"]),
    ok = file:change_mode(File, 8#755),
    File.

contains(Text, Parts) ->
    [
        ?assertNotEqual({nomatch, Part, Text}, {string:find(Text, Part), Part, Text})
     || Part <- Parts
    ],
    ok.

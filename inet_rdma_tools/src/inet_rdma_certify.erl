%% @doc A certificate for a host, or for two: what its links do under traffic, cuts and load, beside
%% inet_tcp, as one report with PASS or FAIL and the evidence.
%%
%% `mix inet_rdma.certify', `make certify', the script `certify' of a release archive, or
%%
%%     erl -noshell -pa EBIN -eval 'inet_rdma:load_tools(), inet_rdma_certify:main()' -extra --quick
%%
%% The Mix task says what is checked. The modules inet_rdma_certify_* are internal.
-module(inet_rdma_certify).

-export([run/1, main/0, main/1, options/1, usage/0]).
-export_type([options/0, report/0]).

%% minutes: the most that all checks may take. length: quick plans for 3 minutes, even if minutes is
%% more. paths: `shm', `tcp', `verbs' (all devices) or the name of a device; all: all paths of the
%% host. checks: of the checks of a path these alone. least_speed: the check `speed' fails for a
%% path with a lower ratio to inet_tcp. out: the directory of the report. peer: the other host, by
%% ssh. listen: this port waits for the other host's `--join'. contract: the program of the contract
%% suite.
-type options() :: #{
    minutes := number(),
    length := quick | full,
    path_seconds := pos_integer() | default,
    checks := all | [atom()],
    least_speed := number() | default,
    paths := all | [string()],
    out := file:filename(),
    peer := none | {ssh, string()} | {listen, inet:port_number()},
    ssh := [string()],
    erl := string(),
    contract := file:filename() | none,
    quiet := boolean()
}.

-type report() :: #{
    verdict := pass | fail,
    why := binary(),
    started := binary(),
    took_ms := non_neg_integer(),
    host := inet_rdma_certify_os:facts(),
    peer := map() | undefined,
    doctor := inet_rdma_doctor:report(),
    results := [inet_rdma_certify_step:result()]
}.

-define(MINUTES, 15).
-define(QUICK_MINUTES, 3).
%% Share of the given time that is planned; the rest is for starts of nodes and waiting.
-define(PLANNED, 0.8).
%% Upper bound of the time for one path, even if more is given.
-define(PATH_MS, 240000).
-define(MIB, 1048576).

%% @doc Runs all checks and writes report.html and report.json. Takes at most as long as `minutes'
%% says.
-spec run(options()) -> report().
run(Options) ->
    Started = list_to_binary(
        calendar:system_time_to_rfc3339(os:system_time(second), [{offset, "Z"}])
    ),
    %% A new cookie, so that a node of another certificate, or of this user, stays out.
    Home = inet_rdma_certify_os:make_home(binary:encode_hex(inet_rdma_certify_os:random(16))),
    try
        run(Options, Started, Home)
    after
        inet_rdma_certify_os:remove(Home)
    end.

run(#{minutes := Minutes} = Options, Started, Home) ->
    Doctor = inet_rdma_doctor:report(),
    Peer = inet_rdma_certify_peer:open(Options, Home),
    %% The time limit begins when the other host is there.
    StartMs = inet_rdma_clock:now_ms(),
    DeadlineMs = StartMs + round(Minutes * 60000),
    try
        {Found, LeftOut} = inet_rdma_certify_path:all(Doctor, Peer, Home),
        Paths = wanted(maps:get(paths, Options), Found),
        Results = results(Paths, LeftOut, Doctor, Peer, DeadlineMs, Options),
        {Verdict, Why} = inet_rdma_certify_report:verdict(Results),
        Report = #{
            verdict => Verdict,
            why => Why,
            started => Started,
            took_ms => inet_rdma_clock:now_ms() - StartMs,
            host => inet_rdma_certify_os:facts(),
            peer => inet_rdma_certify_peer:facts(Peer),
            doctor => Doctor,
            results => Results
        },
        ok = inet_rdma_certify_report:write(maps:get(out, Options), Report),
        Report
    after
        inet_rdma_certify_peer:close(Peer)
    end.

wanted(all, Found) ->
    Found;
wanted(Names, Found) ->
    case [Name || Name <- Names, not lists:any(fun(Path) -> is_named(Name, Path) end, Found)] of
        [] ->
            [Path || Path <- Found, lists:any(fun(Name) -> is_named(Name, Path) end, Names)];
        Unknown ->
            throw(
                {usage, [
                    "no such path here: ",
                    lists:join(", ", Unknown),
                    "; there are: ",
                    lists:join(", ", [Id || #{id := Id} <- Found])
                ]}
            )
    end.

is_named(Name, #{id := Id, fabric := Fabric}) ->
    Name =:= atom_to_list(Fabric) orelse lists:member(binary_to_list(Id), [Name, "verbs " ++ Name]).

results(Paths, LeftOut, Doctor, Peer, DeadlineMs, #{paths := Asked} = Options) ->
    Doctors = [{<<"host">>, Doctor} | [{<<"peer">>, Theirs} || #{doctor := Theirs} <- [Peer]]],
    OfDoctors = [
        step(
            {doctor, Host},
            fun() -> inet_rdma_certify_host:doctor(Report) end,
            30000,
            DeadlineMs,
            Options
        )
     || {Host, Report} <- Doctors
    ],
    Skipped = [
        inet_rdma_certify_step:skipped({sizes, Name}, {skipped, Why})
     || {Name, Why} <- LeftOut, Asked =:= all
    ],
    #{slowness := Slowness} = Plan = plan(length(Paths), Options),
    OfDoctors ++ Skipped ++
        lists:append([
            of_path(
                inet_rdma_certify_path:slowed(Path, Slowness),
                Plan,
                DeadlineMs,
                Options
            )
         || Path <- Paths
        ]).

plan(Paths, #{
    minutes := Minutes,
    length := Wanted,
    path_seconds := Seconds,
    least_speed := LeastSpeed
}) ->
    {Length, UsualMinutes, PlannedMinutes} =
        case Wanted of
            full when Minutes >= ?MINUTES -> {full, ?MINUTES, Minutes};
            _ -> {quick, ?QUICK_MINUTES, min(Minutes, ?QUICK_MINUTES)}
        end,
    PathMs =
        case Seconds of
            default -> min(?PATH_MS, round(PlannedMinutes * 60000 * ?PLANNED / max(1, Paths)));
            _ -> 1000 * Seconds
        end,
    %% More minutes than usual are for a slow machine: it has that much more time for each check.
    #{
        length => Length,
        slowness => max(1, Minutes / UsualMinutes),
        survival_ms => PathMs div 4,
        soak_ms => PathMs div 3,
        speed_ms => PathMs div 4,
        least_speed => LeastSpeed,
        rounds =>
            case Length of
                quick -> 3;
                full -> 7
            end
    }.

of_path(#{id := Id} = Path, Plan, DeadlineMs, Options) ->
    #{contract := Contract, checks := Checks} = Options,
    #{
        length := Length,
        slowness := Slowness,
        survival_ms := SurvivalMs,
        soak_ms := SoakMs,
        speed_ms := SpeedMs
    } = Plan,
    OfPath = Plan#{large_bytes => large_bytes(Path, Length), sizes => sizes(Path, Length)},
    Skip = fun(Check, Why) ->
        reported(inet_rdma_certify_step:skipped({Check, Id}, {skipped, Why}), Options)
    end,
    IsAskedFor = fun(Check) -> Checks =:= all orelse lists:member(Check, Checks) end,
    Step = fun(Check, Fun, Ms) ->
        case IsAskedFor(Check) of
            true -> step({Check, Id}, Fun, round(Slowness * (2 * Ms + 60000)), DeadlineMs, Options);
            false -> Skip(Check, "not asked for: --checks")
        end
    end,
    HasSizes = IsAskedFor(sizes),
    OfLink =
        case Step(sizes, fun() -> inet_rdma_certify_link:sizes(Path, OfPath) end, 30000) of
            #{status := Status} = Sizes when Status =:= pass; not HasSizes ->
                %% The short checks first: a slow path may use up the time of the others.
                [
                    Sizes,
                    Step(speed, fun() -> inet_rdma_certify_speed:speed(Path, OfPath) end, SpeedMs),
                    Step(
                        survival,
                        fun() -> inet_rdma_certify_link:survival(Path, OfPath) end,
                        SurvivalMs
                    ),
                    Step(soak, fun() -> inet_rdma_certify_link:soak(Path, OfPath) end, SoakMs)
                ];
            Sizes ->
                [
                    Sizes
                    | [
                        Skip(Check, "the check sizes has failed: no link to test")
                     || Check <- [speed, survival, soak]
                    ]
                ]
        end,
    OfLink ++
        [
            Step(profile, fun() -> inet_rdma_certify_profile:profile(Path) end, 20000)
         || maps:get(fabric, Path) =:= verbs
        ] ++
        [
            Step(reference, fun() -> inet_rdma_certify_host:reference(Path, Length) end, 20000),
            case Length of
                full ->
                    ContractMs = round(Slowness * 150000),
                    Step(
                        contract,
                        fun() -> inet_rdma_certify_host:contract(Path, Contract, ContractMs) end,
                        60000
                    );
                quick ->
                    Skip(contract, "only with 15 minutes or more")
            end
        ].

%% A software device uses the processor for each packet.
large_bytes(Path, Length) ->
    case {inet_rdma_certify_path:is_software(Path), Length} of
        {true, _} -> ?MIB;
        {false, quick} -> 16 * ?MIB;
        {false, full} -> 64 * ?MIB
    end.

sizes(Path, Length) ->
    [
        Size
     || Size <- [1, 1024, 4096, 16384, 65536, 262144, ?MIB, 16 * ?MIB, 64 * ?MIB],
        Size =< large_bytes(Path, Length)
    ].

step(Id, Fun, BoundMs, DeadlineMs, Options) ->
    LeftMs = inet_rdma_clock:left(DeadlineMs),
    Result =
        case LeftMs > 1000 of
            true ->
                inet_rdma_certify_step:run(Id, Fun, min(BoundMs, LeftMs));
            false ->
                inet_rdma_certify_step:skipped(
                    Id,
                    {fail, "not begun: the time for all checks is over", "give it more: --minutes"}
                )
        end,
    reported(Result, Options).

reported(Result, #{quiet := true}) ->
    Result;
reported(Result, #{quiet := false}) ->
    io:put_chars([inet_rdma_certify_report:line(Result), $\n]),
    Result.

%% @doc The options of a command line, or what is wrong with it.
-spec options([string()]) -> {ok, options()} | {join, Address :: string()} | {error, iodata()}.
options(Args) ->
    options(Args, #{
        minutes => ?MINUTES,
        length => full,
        path_seconds => default,
        least_speed => default,
        paths => all,
        checks => all,
        out => default_out(),
        peer => none,
        %% A ControlMaster outlives its ssh and would keep ssh's output open, whose end certify
        %% waits for.
        ssh => ["ssh", "-o", "BatchMode=yes", "-o", "ControlMaster=no"],
        erl => "erl",
        contract => contract(),
        quiet => false
    }).

options([], Options) ->
    {ok, Options};
options(["--join", Address], _Options) ->
    {join, Address};
options(["--join", _Address, _Token], _Options) ->
    {error,
        "--join takes an address alone: other users can read a token on a command line; certify "
        "asks for it"};
options(["--quick" | Args], Options) ->
    options(Args, Options#{minutes := ?QUICK_MINUTES, length := quick});
options(["--quiet" | Args], Options) ->
    options(Args, Options#{quiet := true});
options([Option, Text | Args], Options) when Option =:= "--minutes"; Option =:= "--path-seconds" ->
    Key =
        case Option of
            "--minutes" -> minutes;
            "--path-seconds" -> path_seconds
        end,
    case string:to_integer(Text) of
        {Number, ""} when Number > 0 -> options(Args, Options#{Key := Number});
        _ -> {error, [Option, " takes a whole number above 0, and not ", Text]}
    end;
options(["--least-speed", Text | Args], Options) ->
    case number(Text) of
        Least when is_number(Least), Least >= 0 -> options(Args, Options#{least_speed := Least});
        _ -> {error, ["--least-speed takes a number of 0 or more, as 0.5, and not ", Text]}
    end;
options(["--paths", Text | Args], Options) ->
    options(Args, Options#{paths := string:lexemes(Text, ",")});
options(["--checks", Text | Args], Options) ->
    Names = string:lexemes(Text, ","),
    case [Name || Name <- Names, not lists:keymember(Name, 1, checks())] of
        [] when Names =/= [] ->
            Checks = [Check || {Name, Check} <- checks(), lists:member(Name, Names)],
            options(Args, Options#{checks := Checks});
        _ ->
            Known = lists:join(", ", [Name || {Name, _} <- checks()]),
            {error, ["--checks takes names of ", Known, ", and not ", Text]}
    end;
options(["--out", Directory | Args], Options) ->
    options(Args, Options#{out := Directory});
options(["--contract", File | Args], Options) ->
    options(Args, Options#{contract := File});
options(["--peer", Host | Args], Options) ->
    options(Args, Options#{peer := {ssh, Host}});
options(["--ssh", Command | Args], Options) ->
    options(Args, Options#{ssh := string:lexemes(Command, " ")});
options(["--peer-erl", Path | Args], Options) ->
    options(Args, Options#{erl := Path});
options(["--listen", Text | Args], Options) ->
    case string:to_integer(Text) of
        {Port, ""} when Port >= 0, Port < 65536 -> options(Args, Options#{peer := {listen, Port}});
        _ -> {error, ["--listen takes a port, and not ", Text]}
    end;
options([Other | _], _Options) ->
    {error, ["unknown, or without its value: ", Other]}.

%% Those of a path.
checks() ->
    [
        {atom_to_list(Check), Check}
     || Check <- [sizes, speed, survival, soak, profile, reference, contract]
    ].

number(Text) ->
    case string:to_float(Text) of
        {Number, ""} ->
            Number;
        _ ->
            case string:to_integer(Text) of
                {Number, ""} -> Number;
                _ -> none
            end
    end.

default_out() ->
    {ok, Host} = inet:gethostname(),
    {{Y, M, D}, {H, Min, S}} = calendar:universal_time(),
    lists:flatten(
        io_lib:format("certificate-~ts-~b~2..0b~2..0bT~2..0b~2..0b~2..0bZ", [
            Host, Y, M, D, H, Min, S
        ])
    ).

%% In an archive the program lies beside the modules.
contract() ->
    Beside = filename:join([inet_rdma_certify_node:ebin(inet_rdma), "..", "contract"]),
    case filelib:is_regular(Beside) of
        true -> Beside;
        false -> none
    end.

%% @doc The words of the command line.
-spec usage() -> string().
usage() ->
    "usage: certify [--quick] [--minutes N] [--path-seconds N] [--paths NAME,...]\n"
    "               [--checks NAME,...] [--least-speed RATIO] [--out DIR] [--contract FILE]\n"
    "               [--peer HOST [--ssh COMMAND] [--peer-erl PATH] | --listen PORT]\n"
    "       certify --join ADDRESS:PORT\n"
    "\n"
    "  --quick           about 3 minutes; without it at most 15\n"
    "  --minutes N       at most so long; more than 15, or 3 with --quick, is for a slow machine\n"
    "  --path-seconds N  the time planned for each path; default: what --minutes allows, at most "
    "240\n"
    "  --paths NAME,...  shm, tcp, verbs (all devices) or names of devices; default: all that are "
    "here\n"
    "  --checks NAME,... of the checks of each path these alone (a report, and no PASS): sizes, speed, "
    "survival, soak,\n"
    "                    profile, reference, contract\n"
    "  --least-speed R   a path that is less than R times as fast as inet_tcp fails; default 0.5, "
    "for software\n"
    "                    devices 0.05; 0 measures alone, for a host that runs other work\n"
    "  --out DIR         where report.html and report.json go\n"
    "  --contract FILE   the program of the contract suite; an archive has it\n"
    "  --peer HOST       test links to this host, by ssh without a question; it needs erl\n"
    "  --ssh COMMAND     in place of `ssh -o BatchMode=yes -o ControlMaster=no`\n"
    "  --peer-erl PATH   erl on that host\n"
    "  --listen PORT     test links to a host without ssh: prints what to do there; 0: any port\n"
    "  --join            that command: lets the other host start nodes here until it is done; "
    "reads the token from\n"
    "                    standard input\n".

%% @doc Runs with the arguments of the command line, and ends the VM: status 0 for PASS, 1 for FAIL,
%% 2 for wrong arguments.
-spec main() -> no_return().
main() -> halt(main(init:get_plain_arguments())).

%% @doc Runs with these arguments, and gives the status without ending the VM.
-spec main([string()]) -> 0 | 1 | 2.
main(Args) ->
    case [Help || Help <- Args, Help =:= "--help" orelse Help =:= "-h"] of
        [] ->
            certify(Args);
        _ ->
            io:put_chars(usage()),
            0
    end.

certify(Args) ->
    try
        case options(Args) of
            {ok, Options} -> ran(run(Options), Options);
            {join, Address} -> inet_rdma_certify_node:join(Address, token());
            {error, Why} -> wrong(Why)
        end
    catch
        throw:{usage, Refusal} -> wrong(Refusal)
    end.

%% Not an argument, which every user of the host can read.
token() ->
    case io:get_line("token: ") of
        Line when is_list(Line); is_binary(Line) -> string:trim(unicode:characters_to_list(Line));
        _EofOrError -> throw({usage, "standard input has no token"})
    end.

wrong(Why) ->
    io:put_chars(standard_error, [usage(), "\ncertify: ", Why, $\n]),
    2.

ran(#{verdict := Verdict, why := Why}, #{out := Out}) ->
    io:put_chars([
        $\n,
        string:uppercase(atom_to_list(Verdict)),
        ": ",
        Why,
        "\nreport: ",
        filename:join(Out, "report.html"),
        $\n
    ]),
    case Verdict of
        pass -> 0;
        fail -> 1
    end.

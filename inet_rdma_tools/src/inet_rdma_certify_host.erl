%% The checks of a host: findings of the doctor, the contract of the fabrics, speed of the device
%% without inet_rdma.
-module(inet_rdma_certify_host).

-export([doctor/1, contract/3, reference/2]).

-import(inet_rdma_certify_step, [note/2]).

-define(PROGRAM_MS, 30000).
-define(PORT, "18515").

-type outcome() :: inet_rdma_certify_step:outcome().

%% Each problem that the doctor finds is a reason to fail, with its fix. Notes are evidence.
-spec doctor(inet_rdma_doctor:report()) -> outcome().
doctor(#{findings := Findings} = Report) ->
    _ = [
        note("~s, ~s: ~ts~ts", [Severity, About, Text, fix(Fix)])
     || Severity <- [problem, note, ok],
        #{severity := Is, about := About, text := Text, fix := Fix} <- Findings,
        Is =:= Severity
    ],
    case {Report, [Finding || #{severity := problem} = Finding <- Findings]} of
        {_, [#{about := About, text := Text, fix := Fix} | _]} ->
            {fail, io_lib:format("~s: ~ts", [About, Text]),
                case Fix of
                    undefined -> "docs/TROUBLESHOOTING.md explains the doctor's words";
                    _ -> Fix
                end};
        {#{leaves_tcp := false}, []} ->
            {fail, "no link of a node here can leave TCP", "see the notes"};
        {#{leaves_tcp := true}, []} ->
            pass
    end.

fix(undefined) -> "";
fix(Fix) -> ["; fix: ", Fix].

%% The program of the contract suite, of an archive or of a build here. The contract is the
%% behaviour of a fabric on which links depend.
-spec contract(inet_rdma_certify_path:t(), file:filename() | none, pos_integer()) -> outcome().
contract(_Way, none, _TimeoutMs) ->
    {skipped, "no contract program is here: an archive and `make certify` have one"};
contract(#{fabric := Fabric, here := Address}, Program, TimeoutMs) ->
    _ = os:putenv("INET_RDMA_TEST_VERBS", Address),
    note("~ts ~s:: --test-threads=1", [filename:basename(Program), Fabric]),
    case
        inet_rdma_certify_os:run(
            Program, [atom_to_list(Fabric) ++ "::", "--test-threads=1"], TimeoutMs
        )
    of
        {error, Reason} ->
            {skipped, io_lib:format("the contract program does not start: ~0tp", [Reason])};
        {Status, Output} ->
            Lines = binary:split(Output, <<"\n">>, [global, trim_all]),
            Results = [Line || <<"test result", _/binary>> = Line <- Lines],
            Failed = [
                Line
             || <<"test ", _/binary>> = Line <- Lines, binary:match(Line, <<"FAILED">>) =/= nomatch
            ],
            _ = [note("~ts", [Line]) || Line <- Failed ++ Results],
            contract_result(Status, Results, lists:sublist(Lines, max(1, length(Lines) - 5), 6))
    end.

contract_result(0, [Result | _], _Last) ->
    case re:run(Result, "ok\\. 0 passed") of
        nomatch ->
            pass;
        {match, _} ->
            {fail, "the program has no test of this fabric",
                "it was built without the fabric: build it again"}
    end;
contract_result(timeout, _, Last) ->
    _ = [note("~ts", [Line]) || Line <- Last],
    {fail, "the contract suite does not end in time",
        "the last lines of the evidence name the test that hangs"};
contract_result(Status, _, Last) ->
    _ = [note("~ts", [Line]) || Line <- Last],
    {fail, io_lib:format("the contract suite fails (status ~0tp)", [Status]),
        "report this with the evidence"}.

%% Latency and bandwidth of RDMA writes without inet_rdma, as perftest's programs measure them.
-spec reference(inet_rdma_certify_path:t(), quick | full) -> outcome().
reference(#{fabric := Fabric}, _Length) when Fabric =/= verbs ->
    {skipped, "only an RDMA device has one"};
reference(#{device := #{name := Device}, there := There, host := Host}, Length) ->
    case
        [
            Program
         || Program <- ["ib_write_lat", "ib_write_bw"], os:find_executable(Program) =:= false
        ]
    of
        [] ->
            Iterations =
                case Length of
                    quick -> "200";
                    full -> "1000"
                end,
            Failed = [
                Why
             || {Program, Bytes} <- [{"ib_write_lat", "64"}, {"ib_write_bw", "65536"}],
                {error, Why} <- [
                    perftest(Program, Device, There, Host, ["-s", Bytes, "-n", Iterations])
                ]
            ],
            case Failed of
                [] ->
                    pass;
                [Why | _] ->
                    {fail, Why,
                        "the device fails below inet_rdma: try `ib_write_lat -d DEVICE -R` on both "
                        "sides, and see dmesg"}
            end;
        Missing ->
            {skipped, [
                lists:join(" and ", Missing),
                " of perftest are not installed (Debian: apt-get install perftest)"
            ]}
    end.

perftest(Program, Device, There, Host, Words) ->
    %% -R: connected by rdma_cm, as links are; it takes the GID of the address.
    Args = ["-d", binary_to_list(Device), "-R", "-F", "-p", ?PORT | Words],
    {Server, Ref} = spawn_monitor(fun() -> serve(Program, Host, Args) end),
    Answer = client(os:find_executable(Program), Args ++ [There], 10),
    receive
        {'DOWN', Ref, process, _, _} -> ok
    after 2000 -> exit(Server, kill)
    end,
    case Answer of
        {0, Output} ->
            note("~s ~ts: ~ts", [Program, lists:join(" ", Words), figures_line(Output)]);
        {Status, Output} ->
            Said = string:slice(string:trim(Output), 0, 300),
            {error, io_lib:format("~s ends with ~0tp: ~ts", [Program, Status, Said])}
    end.

%% On the other host rdma_cm chooses perftest's device by its address.
serve(Program, local, Args) ->
    inet_rdma_certify_os:run(os:find_executable(Program), Args, ?PROGRAM_MS);
serve(Program, Host, ["-d", _Device | Args]) ->
    inet_rdma_certify_peer:run(Host, Program, Args, ?PROGRAM_MS).

%% Pause until the server listens.
client(Program, Args, Tries) ->
    receive
    after 500 -> ok
    end,
    case inet_rdma_certify_os:run(Program, Args, ?PROGRAM_MS) of
        {Status, _} when Status =/= 0, Status =/= timeout, Tries > 1 ->
            client(Program, Args, Tries - 1);
        Answer ->
            Answer
    end.

figures_line(Output) ->
    Lines = [string:trim(Line) || Line <- binary:split(Output, <<"\n">>, [global, trim_all])],
    Head = [Line || <<"#bytes", _/binary>> = Line <- Lines],
    case [Line || <<Digit, _/binary>> = Line <- Lines, Digit >= $0, Digit =< $9] of
        [] ->
            <<"no figures">>;
        Figures ->
            iolist_to_binary([lists:join("; ", lists:sublist(Head, 1) ++ [lists:last(Figures)])])
    end.

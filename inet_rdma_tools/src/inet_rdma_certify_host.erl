%% The checks of a host: findings of the doctor, the contract of the fabrics, speed of the device without inet_rdma.
%%
%% Internal: use inet_rdma_certify:run/1.
-module(inet_rdma_certify_host).

-export([doctor/1, contract/3, reference/2]).

-import(inet_rdma_certify_step, [note/2]).

-define(PROGRAM_MS, 30000).
-define(PORT, "18515").

-type outcome() :: inet_rdma_certify_step:outcome().

%% Each problem that the doctor finds is a reason to fail, with its fix. Notes are evidence.
-spec doctor(inet_rdma_doctor:report()) -> outcome().
doctor(#{findings := Findings} = Report) ->
    _ = [note("~s, ~s: ~ts~ts", [Severity, About, Text, fix(Fix)])
         || Severity <- [problem, note, ok], #{severity := Is, about := About, text := Text, fix := Fix} <- Findings,
             Is =:= Severity],
    case {Report, [Finding || #{severity := problem} = Finding <- Findings]} of
        {_, [#{about := About, text := Text, fix := undefined} | _]} ->
            {fail, io_lib:format("~s: ~ts", [About, Text]), "docs/TROUBLESHOOTING.md explains the doctor's words"};
        {_, [#{about := About, text := Text, fix := Fix} | _]} ->
            {fail, io_lib:format("~s: ~ts", [About, Text]), Fix};
        {#{leaves_tcp := false}, []} -> {fail, "no link of a node here can leave TCP", "see the notes"};
        {#{leaves_tcp := true}, []} -> pass
    end.

fix(undefined) -> "";
fix(Fix) -> ["; fix: ", Fix].

%% The program of the contract suite, of an archive or of a build here. The contract is the behaviour of a fabric on
%% which links depend.
-spec contract(inet_rdma_certify_path:t(), file:filename() | none, pos_integer()) -> outcome().
contract(_Way, none, _TimeoutMs) ->
    {skipped, "no contract program is here: an archive and `make certify` have one"};
contract(#{fabric := Fabric, here := Address}, Program, TimeoutMs) ->
    _ = os:putenv("INET_RDMA_TEST_VERBS", Address),
    note("~ts ~s:: --test-threads=1", [filename:basename(Program), Fabric]),
    case inet_rdma_certify_os:run(Program, [atom_to_list(Fabric) ++ "::", "--test-threads=1"], TimeoutMs) of
        {error, Reason} ->
            {skipped, io_lib:format("the contract program does not start: ~0tp", [Reason])};
        {Status, Output} ->
            Lines = binary:split(Output, <<"\n">>, [global, trim_all]),
            Results = [Line || <<"test result", _/binary>> = Line <- Lines],
            Failed = [Line || <<"test ", _/binary>> = Line <- Lines, binary:match(Line, <<"FAILED">>) =/= nomatch],
            _ = [note("~ts", [Line]) || Line <- Failed ++ Results],
            contract_result(Status, Results, lists:sublist(Lines, max(1, length(Lines) - 5), 6))
    end.

contract_result(0, [Result | _], _Last) ->
    case re:run(Result, "ok\\. 0 passed") of
        nomatch -> pass;
        {match, _} -> {fail, "the program has no test of this fabric",
                       "it was built without the fabric: build it again"}
    end;
contract_result(timeout, _, Last) ->
    _ = [note("~ts", [Line]) || Line <- Last],
    {fail, "the contract suite does not end in time", "the last lines of the evidence name the test that hangs"};
contract_result(Status, _, Last) ->
    _ = [note("~ts", [Line]) || Line <- Last],
    {fail, io_lib:format("the contract suite fails (status ~0tp)", [Status]), "report this with the evidence"}.

%% Latency and bandwidth of RDMA writes without inet_rdma, as perftest's programs measure them.
-spec reference(inet_rdma_certify_path:t(), quick | full) -> outcome().
reference(#{fabric := Fabric}, _Length) when Fabric =/= verbs ->
    {skipped, "only an RDMA device has one"};
reference(#{device := #{name := Device}, there := There, host := Host}, Length) ->
    case [Program || Program <- ["ib_write_lat", "ib_write_bw"], inet_rdma_certify_os:find(Program) =:= none] of
        [] ->
            Lat = perftest("ib_write_lat", Device, There, Host, ["-s", "64", "-n", iterations(Length)]),
            Bw = perftest("ib_write_bw", Device, There, Host, ["-s", "65536", "-n", iterations(Length)]),
            referred(Lat, Bw);
        Missing ->
            {skipped,
             [lists:join(" and ", Missing), " of perftest are not installed (Debian: apt-get install perftest)"]}
    end.

iterations(quick) -> "200";
iterations(full) -> "1000".

referred({ok, _}, {ok, _}) -> pass;
referred({error, Why}, _) -> unreferred(Why);
referred(_, {error, Why}) -> unreferred(Why).

unreferred(Why) ->
    {fail, Why, "the device fails below inet_rdma: try `ib_write_lat -d DEVICE -R` on both sides, and see dmesg"}.

perftest(Program, Device, There, Host, Words) ->
    %% -R: connected by rdma_cm, as links are; it takes the GID of the address.
    Args = ["-d", binary_to_list(Device), "-R", "-F", "-p", ?PORT | Words],
    Self = self(),
    {Server, Ref} = spawn_monitor(fun() -> Self ! {self(), serve(Program, Host, Args)} end),
    Answer = client(inet_rdma_certify_os:find(Program), Args ++ [There], 10),
    receive
        {Server, _} -> demonitor(Ref, [flush]);
        {'DOWN', Ref, process, _, _} -> ok
    after 2000 -> exit(Server, kill)
    end,
    case Answer of
        {0, Output} ->
            Line = figures_line(Output),
            note("~s ~ts: ~ts", [Program, lists:join(" ", Words), Line]),
            {ok, Line};
        {Status, Output} ->
            Said = string:slice(string:trim(Output), 0, 300),
            {error, io_lib:format("~s ends with ~0tp: ~ts", [Program, Status, Said])}
    end.

%% On the other host rdma_cm chooses perftest's device by its address.
serve(Program, local, Args) -> inet_rdma_certify_os:run(inet_rdma_certify_os:find(Program), Args, ?PROGRAM_MS);
serve(Program, Host, ["-d", _Device | Args]) -> inet_rdma_certify_peer:run(Host, Program, Args, ?PROGRAM_MS).

%% Pause until the server listens.
client(Program, Args, Tries) ->
    receive after 500 -> ok end,
    case inet_rdma_certify_os:run(Program, Args, ?PROGRAM_MS) of
        {Status, _} when Status =/= 0, Status =/= timeout, Tries > 1 -> client(Program, Args, Tries - 1);
        Answer -> Answer
    end.

figures_line(Output) ->
    Lines = [string:trim(Line) || Line <- binary:split(Output, <<"\n">>, [global, trim_all])],
    Head = [Line || <<"#bytes", _/binary>> = Line <- Lines],
    case [Line || <<Digit, _/binary>> = Line <- Lines, Digit >= $0, Digit =< $9] of
        [] -> <<"no figures">>;
        Figures -> iolist_to_binary([lists:join("; ", lists:sublist(Head, 1) ++ [lists:last(Figures)])])
    end.

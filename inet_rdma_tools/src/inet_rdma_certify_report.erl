%% The report of a certificate: its verdict, JSON, lines for the terminal; HTML is in
%% inet_rdma_certify_html.
-module(inet_rdma_certify_report).

-export([verdict/1, line/1, write/2]).

%% A PASS needs these checks: each must have passed over one path at least.
-define(CORE, [doctor, sizes, survival, soak, speed]).

%% A skipped check has not passed.
-spec verdict([inet_rdma_certify_step:result()]) -> {pass | fail, Why :: binary()}.
verdict(Results) ->
    Failed = [
        io_lib:format("~s of ~ts: ~ts", [Check, Path, Why])
     || #{check := Check, path := Path, status := fail, why := Why} <- Results
    ],
    Passed = [Check || #{check := Check, status := pass} <- Results],
    Missing = [atom_to_list(Check) || Check <- ?CORE -- Passed],
    {Verdict, Why} =
        case {Failed, Missing} of
            {[_ | _], _} ->
                {fail, lists:join("; ", Failed)};
            {[], [_ | _]} ->
                {fail, ["nothing shows that this works: ", lists:join(", ", Missing)]};
            {[], []} ->
                Skipped = length([skipped || #{status := skipped} <- Results]),
                {pass,
                    io_lib:format("~b checks passed, ~b skipped", [
                        length(Results) - Skipped, Skipped
                    ])}
        end,
    {Verdict, unicode:characters_to_binary(Why)}.

-spec line(inet_rdma_certify_step:result()) -> unicode:chardata().
line(#{check := Check, path := Path, status := Status, why := Why, fix := Fix, took_ms := TookMs}) ->
    io_lib:format(
        "~-8s ~-10s ~-16ts ~6.1f s~ts~ts",
        [
            string:uppercase(atom_to_list(Status)),
            Check,
            Path,
            TookMs / 1000,
            case Why of
                undefined -> "";
                _ -> ["  ", Why]
            end,
            case Fix of
                undefined -> "";
                _ -> ["\n         fix: ", Fix]
            end
        ]
    ).

-spec write(file:filename(), inet_rdma_certify:report()) -> ok.
write(Directory, Report) ->
    Files = [
        {"report.json", [json(Report), $\n]}, {"report.html", inet_rdma_certify_html:page(Report)}
    ],
    lists:foreach(
        fun({Name, Text}) ->
            File = filename:join(Directory, Name),
            Written =
                case filelib:ensure_dir(File) of
                    ok -> file:write_file(File, Text);
                    Error -> Error
                end,
            case Written of
                ok ->
                    ok;
                {error, Reason} ->
                    throw(
                        {usage,
                            io_lib:format("cannot write ~ts: ~ts", [File, file:format_error(Reason)])}
                    )
            end
        end,
        Files
    ).

%% As the doctor's JSON; figures have the median, least and greatest of the rounds beside their
%% values.
-spec json(inet_rdma_certify:report()) -> iodata().
json(#{results := Results} = Report) ->
    Full = [
        Result#{figures := [figure(Figure) || Figure <- Figures]}
     || #{figures := Figures} = Result <- Results
    ],
    inet_rdma_doctor_text:json(Report#{results := Full}).

figure(#{link := Link, inet_tcp := Tcp} = Figure) ->
    Figure#{
        link := spread(Link),
        inet_tcp := spread(Tcp),
        ratio => spread(inet_rdma_certify_speed:ratios(Figure))
    }.

spread(Values) ->
    #{
        median => inet_rdma_certify_speed:median(Values),
        least => lists:min(Values),
        greatest => lists:max(Values),
        rounds => Values
    }.

%% What a soak has done so far, for people.
-module(inet_rdma_soak_report).

-export([new/0, update/4, act/2, recovered/2, progress/1, summary/1]).
-export_type([t/0]).

%% `counts' are those of every process there has been, by its number.
-type t() :: #{
    start := integer(),
    next := integer(),
    counts := #{pos_integer() => #{atom() => integer()}},
    acts := #{inet_rdma_soak_judge:kind() => pos_integer()},
    nodeups := non_neg_integer(),
    rss := non_neg_integer(),
    slowest := non_neg_integer()
}.

-define(PROGRESS_MS, 30000).
-define(MB, 1048576).

-spec new() -> t().
new() ->
    Now = now_ms(),
    #{
        start => Now,
        next => Now + ?PROGRESS_MS,
        counts => #{},
        acts => #{},
        nodeups => 0,
        rss => 0,
        slowest => 0
    }.

-spec update(
    #{atom() => inet_rdma_test_node:t()},
    #{atom() => inet_rdma_soak_node:drained()},
    [inet_rdma_soak_node:event()],
    t()
) -> t().
update(Nodes, Told, Events, #{counts := Counts, nodeups := Nodeups, rss := Rss} = Report) ->
    Pids = maps:map(
        fun(_Letter, #{os_pid := OsPid}) -> OsPid end, maps:with(maps:keys(Told), Nodes)
    ),
    Report#{
        counts := maps:fold(
            fun(Letter, #{counts := New}, All) -> All#{map_get(Letter, Pids) => New} end,
            Counts,
            Told
        ),
        nodeups := Nodeups + length([Event || #{class := nodeup} = Event <- Events]),
        rss := lists:max([Rss | [rss(Pid) || Pid <- maps:values(Pids)]])
    }.

%% A node that has just ended has none; the next poll finds that.
rss(OsPid) ->
    try
        inet_rdma_test_os:rss_bytes(OsPid)
    catch
        error:_ -> 0
    end.

-spec act(inet_rdma_soak_judge:act(), t()) -> t().
act(#{kind := Kind}, #{acts := Acts} = Report) ->
    Report#{acts := Acts#{Kind => maps:get(Kind, Acts, 0) + 1}}.

%% How long the cluster took after an act.
-spec recovered(non_neg_integer(), t()) -> t().
recovered(Ms, #{slowest := Slowest} = Report) ->
    Report#{slowest := max(Ms, Slowest)}.

%% Prints a line when one is due.
-spec progress(t()) -> t().
progress(#{next := Next} = Report) ->
    case now_ms() >= Next of
        true ->
            ct:pal("~ts", [summary(Report)]),
            Report#{next := Next + ?PROGRESS_MS};
        false ->
            Report
    end.

-spec summary(t()) -> string().
summary(#{
    start := Start,
    counts := Counts,
    acts := Acts,
    nodeups := Nodeups,
    rss := Rss,
    slowest := Slowest
}) ->
    All = fun(Name) -> lists:sum([maps:get(Name, Of, 0) || Of <- maps:values(Counts)]) end,
    Of = fun(Kind) -> maps:get(Kind, Acts, 0) end,
    lists:flatten(
        io_lib:format(
            "soak, ~b s: ~b messages, ~b MB; ~b calls, ~b links, ~b monitors; ~b streams to their "
            "end, ~b packets, ~b MB;~n"
            "  ~b kills, ~b short stops, ~b long stops, ~b disconnects, ~b closes; ~b nodeups;~n"
            "  slowest recovery ~b ms, most memory of a node ~b MB",
            [
                (now_ms() - Start) div 1000,
                All(messages),
                All(bytes) div ?MB,
                All(calls),
                All(links),
                All(monitors),
                All(streams),
                All(packets),
                All(stream_bytes) div ?MB,
                Of(kill),
                Of(stop_short),
                Of(stop_long),
                Of(disconnect),
                Of(close),
                Nodeups,
                Slowest,
                Rss div ?MB
            ]
        )
    ).

now_ms() -> erlang:monotonic_time(millisecond).

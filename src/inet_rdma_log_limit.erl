%% A bound on log lines that a peer can cause: at most 10 in each minute, as for the native side's listeners.
-module(inet_rdma_log_limit).

-export([new/1, admit/2]).
-export_type([t/0]).

%% Enough to read the first callers of a misconfigured program one by one. A port scanner adds at most 14,400 lines a
%% day.
-define(LINES_MAX, 10).
-define(PERIOD_MS, 60000).

%% The period's begin, the lines written in it, and the lines left out since the last written one.
-record(limit, {since_ms :: integer(), lines = 0 :: non_neg_integer(), left_out = 0 :: non_neg_integer()}).

-opaque t() :: #limit{}.

%% With a period that begins now.
-spec new(NowMs :: integer()) -> t().
new(NowMs) -> #limit{since_ms = NowMs}.

%% Whether a line may be written now: yes, with the number of lines left out since the last one that was written.
-spec admit(NowMs :: integer(), t()) -> {{yes, LeftOut :: non_neg_integer()} | no, t()}.
admit(NowMs, #limit{since_ms = SinceMs} = Limit) when NowMs - SinceMs >= ?PERIOD_MS ->
    admitted(Limit#limit{since_ms = NowMs, lines = 0});
admit(_NowMs, #limit{lines = ?LINES_MAX, left_out = LeftOut} = Limit) ->
    {no, Limit#limit{left_out = LeftOut + 1}};
admit(_NowMs, Limit) ->
    admitted(Limit).

admitted(#limit{lines = Lines, left_out = LeftOut} = Limit) ->
    {{yes, LeftOut}, Limit#limit{lines = Lines + 1, left_out = 0}}.

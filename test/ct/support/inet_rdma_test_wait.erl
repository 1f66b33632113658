%% Bounded waits on conditions: the only way in which these tests let time pass.
-module(inet_rdma_test_wait).

-export([until/3, holds/3, patience/1]).

-define(INTERVAL_MS, 25).
%% A machine that does much else at the same time needs longer; where all goes well no case waits to
%% the end. An emulated machine needs longer still, and says so in this variable.
-define(SLOWNESS, "INET_RDMA_TEST_SLOWNESS").
-define(USUAL_SLOWNESS, 3).

%% A time limit that is longer on a slow machine. It is for waits that end much sooner in a case
%% that passes.
-spec patience(non_neg_integer()) -> non_neg_integer().
patience(TimeoutMs) ->
    TimeoutMs * slowness() div ?USUAL_SLOWNESS.

slowness() ->
    list_to_integer(os:getenv(?SLOWNESS, integer_to_list(?USUAL_SLOWNESS))).

%% Asks `Condition' until it answers `true' or `{ok, Value}'; returns `true' or `Value'. Fails, with
%% what it waited for and the last answer, when that has not come true after three times
%% `TimeoutMs'.
-spec until(What :: term(), TimeoutMs :: non_neg_integer(), Condition :: fun(() -> term())) ->
    term().
until(What, TimeoutMs, Condition) ->
    WaitMs = slowness() * TimeoutMs,
    until_deadline(What, WaitMs, now_ms() + WaitMs, Condition).

until_deadline(What, WaitMs, Deadline, Condition) ->
    case Condition() of
        true ->
            true;
        {ok, Value} ->
            Value;
        Other ->
            case now_ms() >= Deadline of
                true ->
                    %% Common Test shortens the reason where it prints it.
                    ct:pal("~0tp has not come true in ~b ms: ~0tp", [What, WaitMs, Other]),
                    error({never_came_true, What, {waited_ms, WaitMs}, {last, Other}});
                false ->
                    pause(),
                    until_deadline(What, WaitMs, Deadline, Condition)
            end
    end.

%% Asks `Condition' again and again for `DurationMs'; fails as soon as it does not answer `true'.
-spec holds(What :: term(), DurationMs :: non_neg_integer(), Condition :: fun(() -> term())) -> ok.
holds(What, DurationMs, Condition) ->
    holds_until(What, now_ms(), DurationMs, Condition).

holds_until(What, StartMs, DurationMs, Condition) ->
    case Condition() of
        true ->
            case now_ms() >= StartMs + DurationMs of
                true ->
                    ok;
                false ->
                    pause(),
                    holds_until(What, StartMs, DurationMs, Condition)
            end;
        Other ->
            error({did_not_hold, What, {after_ms, now_ms() - StartMs}, {answer, Other}})
    end.

pause() ->
    receive
    after ?INTERVAL_MS -> ok
    end.

now_ms() ->
    erlang:monotonic_time(millisecond).

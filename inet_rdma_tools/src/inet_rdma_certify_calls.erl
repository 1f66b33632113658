%% Processes that call another node, one call after the other, and check each answer. Runs in the
%% nodes of a certificate and of tests.
-module(inet_rdma_certify_calls).

-export([start/3, stop/2, answer/2]).
-export_type([figures/0]).

-type figures() :: #{
    calls := non_neg_integer(),
    failed_calls := non_neg_integer(),
    failures := [term()],
    longest_us := non_neg_integer()
}.

%% Longer than a link may be suspended.
-define(TIMEOUT_MS, 60000).
%% Pause of a caller after a failed call, so that it does not connect in a tight loop.
-define(PAUSE_MS, 20).
-define(PAYLOAD_MAX, 2000).
-define(FAILURES_KEPT, 3).

%% PauseMs: the pause of each caller after a call.
-spec start(node(), Callers :: pos_integer(), PauseMs :: non_neg_integer()) -> [pid()].
start(Peer, Count, PauseMs) ->
    [spawn(fun() -> loop(Peer, PauseMs, none()) end) || _ <- lists:seq(1, Count)].

%% Waits for the answers of the calls that are under way. A caller that does not end in time counts
%% as a failed call.
-spec stop([pid()], timeout()) -> [figures()].
stop(Callers, TimeoutMs) ->
    Refs = [{Pid, monitor(process, Pid)} || Pid <- Callers],
    _ = [Pid ! {stop, self(), Ref} || {Pid, Ref} <- Refs],
    Deadline = erlang:monotonic_time(millisecond) + TimeoutMs,
    [figures(Pid, Ref, Deadline) || {Pid, Ref} <- Refs].

figures(Pid, Ref, Deadline) ->
    receive
        {Ref, Figures} ->
            demonitor(Ref, [flush]),
            Figures;
        {'DOWN', Ref, process, _, Reason} ->
            failed({caller_died, Reason}, none())
    after max(0, Deadline - erlang:monotonic_time(millisecond)) ->
        Where = process_info(Pid, current_stacktrace),
        exit(Pid, kill),
        failed({never_answered, Where}, none())
    end.

none() -> #{calls => 0, failed_calls => 0, failures => [], longest_us => 0}.

failed(Why, #{calls := Calls, failed_calls := Failed, failures := Failures} = Figures) ->
    Figures#{
        calls := Calls + 1,
        failed_calls := Failed + 1,
        failures := lists:sublist([Why | Failures], ?FAILURES_KEPT)
    }.

loop(Peer, PauseMs, #{calls := Number, longest_us := Longest} = Figures) ->
    receive
        {stop, From, Ref} -> From ! {Ref, Figures}
    after PauseMs ->
        Payload = rand:bytes(rand:uniform(?PAYLOAD_MAX)),
        {TookUs, Answer} = timer:tc(rpc, call, [
            Peer, ?MODULE, answer, [Number, Payload], ?TIMEOUT_MS
        ]),
        loop(
            Peer,
            PauseMs,
            judge(Answer, {Number, Peer, Payload}, Figures#{longest_us := max(Longest, TookUs)})
        )
    end.

judge(Wanted, Wanted, #{calls := Calls} = Figures) ->
    Figures#{calls := Calls + 1};
judge({badrpc, Reason}, _Wanted, Figures) ->
    receive
    after ?PAUSE_MS -> failed(Reason, Figures)
    end;
judge({Number, Node, Payload}, {Wanted, _, _}, Figures) ->
    failed({wrong_answer, {number, Number}, {wanted, Wanted}, Node, byte_size(Payload)}, Figures).

%% Runs on the other node.
-spec answer(non_neg_integer(), binary()) -> {non_neg_integer(), node(), binary()}.
answer(Number, Payload) -> {Number, node(), Payload}.

%% A check with a time limit, in a process of its own. The notes of a check that is cut off are
%% kept.
-module(inet_rdma_certify_step).

-export([run/3, skipped/2, note/2, figures/1, started/1, fail/2]).
-export_type([check/0, outcome/0, result/0, figure/0]).

-type check() :: atom().

%% The result that a check returns. Fix: what the user can do.
-type outcome() :: pass | {fail, Why :: iodata(), Fix :: iodata()} | {skipped, Why :: iodata()}.

%% The figures of one path and one test: values of the rounds over the link, over inet_tcp, and
%% their ratio in each round. greater_is_better: false for a time.
-type figure() :: #{
    test := binary(),
    unit := binary(),
    greater_is_better := boolean(),
    link := [number()],
    inet_tcp := [number()]
}.

-type result() :: #{
    check := check(),
    path := binary(),
    status := pass | fail | skipped,
    why := binary() | undefined,
    fix := binary() | undefined,
    evidence := [binary()],
    figures := [figure()],
    took_ms := non_neg_integer()
}.

-define(RUNNER, inet_rdma_certify_runner).

%% Runs the check for at most this time. Ends nodes that the check has started and left.
-spec run({check(), Path :: binary()}, fun(() -> outcome()), BoundMs :: non_neg_integer()) ->
    result().
run(Id, Fun, BoundMs) ->
    StartMs = inet_rdma_clock:now_ms(),
    Runner = self(),
    {Pid, Ref} = spawn_monitor(fun() ->
        _ = put(?RUNNER, Runner),
        Runner ! {self(), done, outcome(Fun)}
    end),
    {Outcome, Reported} = collect(Pid, Ref, inet_rdma_clock:deadline(BoundMs), BoundMs, []),
    Of = fun(Key) ->
        lists:append([Values || {Is, Values} <- lists:reverse(Reported), Is =:= Key])
    end,
    lists:foreach(fun inet_rdma_certify_node:kill/1, Of(nodes)),
    result(Id, Outcome, Of(evidence), Of(figures), inet_rdma_clock:now_ms() - StartMs).

%% The outcome of a check that is left out.
-spec skipped({check(), Path :: binary()}, outcome()) -> result().
skipped(Id, Outcome) -> result(Id, Outcome, [], [], 0).

result({Check, Path}, Outcome, Evidence, Figures, TookMs) ->
    {Status, Why, Fix} =
        case Outcome of
            pass -> {pass, undefined, undefined};
            {skipped, Reason} -> {skipped, text(Reason), undefined};
            {fail, Reason, What} -> {fail, text(Reason), text(What)}
        end,
    #{
        check => Check,
        path => Path,
        status => Status,
        why => Why,
        fix => Fix,
        evidence => Evidence,
        figures => Figures,
        took_ms => TookMs
    }.

%% What the check tells, newest first, and its outcome.
collect(Pid, Ref, DeadlineMs, BoundMs, Reported) ->
    receive
        {Pid, tells, Key, Values} ->
            collect(Pid, Ref, DeadlineMs, BoundMs, [{Key, Values} | Reported]);
        {Pid, done, Outcome} ->
            demonitor(Ref, [flush]),
            {Outcome, Reported};
        {'DOWN', Ref, process, Pid, Reason} ->
            {ended(Reason), Reported}
    after inet_rdma_clock:left(DeadlineMs) ->
        exit(Pid, kill),
        receive
            {'DOWN', Ref, process, Pid, _} -> ok
        end,
        {
            {fail, io_lib:format("cut off: not done after ~b s", [BoundMs div 1000]),
                "the evidence has what was seen until then; something waits for what does not "
                "come, or the machine is too busy"},
            flush(Pid, Reported)
        }
    end.

outcome(Fun) ->
    try
        Fun()
    catch
        exit:{done, Outcome} ->
            Outcome;
        error:{node_does_not_start, Address, Reason} ->
            {fail, io_lib:format("a node at ~ts does not start (~0tp)", [Address, Reason]),
                "start one by hand: `erl -name a@ADDRESS -proto_dist inet_rdma`, with the path of "
                "the modules"};
        _:Reason:Stack ->
            ended({Reason, Stack})
    end.

ended(Reason) ->
    {fail, io_lib:format("the check ended: ~0tP", [Reason, 40]),
        "look at the evidence and at the nodes' own words above the report; if it comes again, "
        "report it"}.

flush(Pid, Reported) ->
    receive
        {Pid, tells, Key, Values} -> flush(Pid, [{Key, Values} | Reported])
    after 0 -> Reported
    end.

%% Called by a running check: adds one line of evidence.
-spec note(io:format(), [term()]) -> ok.
note(Format, Arguments) -> tell(evidence, [inet_rdma_text:text(Format, Arguments)]).

%% Called by a running check: adds figures.
-spec figures([figure()]) -> ok.
figures(Figures) -> tell(figures, Figures).

%% Called by a running check: this node ends with the check.
-spec started(inet_rdma_certify_node:t()) -> ok.
started(Node) -> tell(nodes, [Node]).

%% Called by a running check: ends it.
-spec fail(Why :: iodata(), Fix :: iodata()) -> no_return().
fail(Why, Fix) -> exit({done, {fail, Why, Fix}}).

tell(Key, Values) ->
    get(?RUNNER) ! {self(), tells, Key, Values},
    ok.

text(Chars) -> unicode:characters_to_binary(Chars).

%% A check with a time limit, in a process of its own. The notes of a check that is cut off are kept.
%%
%% Internal: use inet_rdma_certify:run/1.
-module(inet_rdma_certify_step).

-export([run/3, skipped/2, note/2, figures/1, started/1]).
-export_type([check/0, outcome/0, result/0, figure/0]).

-type check() :: atom().

%% The result that a check returns, or exits with in {done, outcome()}. fix: what the user can do.
-type outcome() :: pass | {fail, Why :: iodata(), Fix :: iodata()} | {skipped, Why :: iodata()}.

%% The figures of one path and one test: values of the rounds over the link, over inet_tcp, and their ratio in each
%% round. greater_is_better: false for a time.
-type figure() :: #{test := binary(), unit := binary(), greater_is_better := boolean(), link := [number()],
                    inet_tcp := [number()]}.

-type result() :: #{check := check(), path := binary(), status := pass | fail | skipped, why := binary() | undefined,
                    fix := binary() | undefined, evidence := [binary()], figures := [figure()],
                    took_ms := non_neg_integer()}.

-define(RUNNER, inet_rdma_certify_runner).

%% Runs the check for at most this time. Ends nodes that the check has started and left.
-spec run({check(), Path :: binary()}, fun(() -> outcome()), BoundMs :: non_neg_integer()) -> result().
run({Check, Path}, Fun, BoundMs) ->
    StartMs = now_ms(),
    Runner = self(),
    {Pid, Ref} = spawn_monitor(fun() ->
        _ = put(?RUNNER, Runner),
        Runner ! {self(), done, outcome(Fun)}
    end),
    Collected = collect(Pid, Ref, StartMs + BoundMs, BoundMs, #{evidence => [], figures => [], nodes => []}),
    #{evidence := Evidence, figures := Figures, nodes := Nodes, outcome := Outcome} = Collected,
    lists:foreach(fun inet_rdma_certify_node:kill/1, Nodes),
    {Status, Why, Fix} = told(Outcome),
    #{check => Check, path => Path, status => Status, why => Why, fix => Fix, evidence => lists:reverse(Evidence),
      figures => lists:reverse(Figures), took_ms => now_ms() - StartMs}.

%% The outcome of a check that is left out.
-spec skipped({check(), Path :: binary()}, outcome()) -> result().
skipped({Check, Path}, Outcome) ->
    {Status, Why, Fix} = told(Outcome),
    #{check => Check, path => Path, status => Status, why => Why, fix => Fix, evidence => [], figures => [],
      took_ms => 0}.

collect(Pid, Ref, DeadlineMs, BoundMs, Seen) ->
    receive
        {Pid, note, Text} ->
            collect(Pid, Ref, DeadlineMs, BoundMs, prepend(evidence, Text, Seen));
        {Pid, figures, Figures} ->
            collect(Pid, Ref, DeadlineMs, BoundMs, measured(Figures, Seen));
        {Pid, started, Node} ->
            collect(Pid, Ref, DeadlineMs, BoundMs, prepend(nodes, Node, Seen));
        {Pid, done, Outcome} ->
            demonitor(Ref, [flush]),
            Seen#{outcome => Outcome};
        {'DOWN', Ref, process, Pid, Reason} ->
            Seen#{outcome => ended(Reason)}
    after max(0, DeadlineMs - now_ms()) ->
        exit(Pid, kill),
        receive {'DOWN', Ref, process, Pid, _} -> ok end,
        (flush(Pid, Seen))#{outcome =>
            {fail, io_lib:format("cut off: not done after ~b s", [BoundMs div 1000]),
             "the evidence has what was seen until then; something waits for what does not come, or the machine is "
             "too busy"}}
    end.

outcome(Fun) ->
    try Fun()
    catch
        exit:{done, Outcome} -> Outcome;
        error:{node_does_not_start, Address, Reason} ->
            {fail, io_lib:format("a node at ~ts does not start (~0tp)", [Address, Reason]),
             "start one by hand: `erl -name a@ADDRESS -proto_dist inet_rdma`, with the path of the modules"};
        _:Reason:Stack -> ended({Reason, Stack})
    end.

ended(Reason) ->
    {fail, io_lib:format("the check ended: ~0tP", [Reason, 40]),
     "look at the evidence and at the nodes' own words above the report; if it comes again, report it"}.

flush(Pid, Seen) ->
    receive
        {Pid, note, Text} -> flush(Pid, prepend(evidence, Text, Seen));
        {Pid, figures, Figures} -> flush(Pid, measured(Figures, Seen));
        {Pid, started, Node} -> flush(Pid, prepend(nodes, Node, Seen))
    after 0 -> Seen
    end.

measured(Figures, Seen) -> lists:foldl(fun(Figure, S) -> prepend(figures, Figure, S) end, Seen, Figures).

prepend(Key, Value, Seen) -> maps:update_with(Key, fun(Values) -> [Value | Values] end, Seen).

told(pass) -> {pass, undefined, undefined};
told({skipped, Why}) -> {skipped, text(Why), undefined};
told({fail, Why, Fix}) -> {fail, text(Why), text(Fix)}.

%% Called by a running check: adds one line of evidence.
-spec note(io:format(), [term()]) -> ok.
note(Format, Arguments) -> tell(note, text(io_lib:format(Format, Arguments))).

%% Called by a running check: adds figures.
-spec figures([figure()]) -> ok.
figures(Figures) -> tell(figures, Figures).

%% Called by a running check: this node ends with the check.
-spec started(inet_rdma_certify_node:t()) -> ok.
started(Node) -> tell(started, Node).

tell(What, Value) ->
    get(?RUNNER) ! {self(), What, Value},
    ok.

text(Chars) -> unicode:characters_to_binary(Chars).

now_ms() -> erlang:monotonic_time(millisecond).

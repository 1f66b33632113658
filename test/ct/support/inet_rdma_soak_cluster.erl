%% The nodes of the soak as the runner sees them: started, asked, judged.
-module(inet_rdma_soak_cluster).

-export([start/1, restart/2, names/1, name/2, node_of/2, call/5, set_silent/3, tell_all/2]).
-export([poll/1, pass/2, settle/3, quiet/1, measure/2, begin_act/3, end_acts/1, violation/2]).
-export_type([t/0, letter/0]).

-type letter() :: a | b | c | d.
%% `silent' are the nodes that cannot answer: stopped, or dead by an act. `last' is what each node
%% told last.
-type t() :: #{
    nodes := #{letter() => inet_rdma_test_node:t()},
    silent := [letter()],
    last := #{letter() => inet_rdma_soak_node:drained()},
    acts := [inet_rdma_soak_judge:act()],
    dir := file:filename(),
    seed := integer(),
    ticktime := pos_integer(),
    report := inet_rdma_soak_report:t(),
    starts := non_neg_integer()
}.

-define(LETTERS, [a, b, c, d]).
-define(WORKERS_PER_PEER, 3).
-define(INTERVAL_MS, 300).
-define(QUIET_MS, 240000).

-spec start(map()) -> t().
start(Options) ->
    State = Options#{silent => [], last => #{}, acts => [], nodes => #{}, starts => 0},
    {Started, Launched} = lists:mapfoldl(
        fun(Letter, S) -> launch_options(Letter, S) end, State, ?LETTERS
    ),
    Nodes = maps:from_list(lists:zip(?LETTERS, inet_rdma_test_node:start_all(Started))),
    Booted = Launched#{nodes := Nodes},
    [ok = begin_soak(Letter, Booted) || Letter <- ?LETTERS],
    Booted.

%% Under the same name, after its end.
-spec restart(letter(), t()) -> t().
restart(Letter, #{nodes := Nodes} = State) ->
    #{Letter := #{name := Name}} = Nodes,
    {{Prefix, Options}, Launched} = launch_options(Letter, State),
    Node = inet_rdma_test_node:start(Prefix, Options#{name => Name}),
    Forgotten = maps:remove(Letter, maps:get(last, State)),
    Back = set_silent(Letter, false, Launched#{nodes := Nodes#{Letter := Node}, last := Forgotten}),
    ok = begin_soak(Letter, Back),
    ok = call(Letter, Back, inet_rdma_soak_node, run, []),
    Back.

launch_options(Letter, #{dir := Dir, ticktime := TickTime, starts := Starts} = State) ->
    Base = filename:join(Dir, lists:flatten(io_lib:format("~s_~3..0b", [Letter, Starts]))),
    Handler = #{config => #{file => Base ++ ".log"}},
    Args = [
        "-kernel",
        "net_ticktime",
        integer_to_list(TickTime),
        %% Else global ends links that no act has touched.
        "-kernel",
        "prevent_overlapping_partitions",
        "false",
        "-kernel",
        "logger",
        lists:flatten(io_lib:format("[{handler, default, logger_std_h, ~0p}]", [Handler])),
        "-env",
        "ERL_CRASH_DUMP",
        Base ++ ".dump"
    ],
    {{"soak_" ++ atom_to_list(Letter), #{args => Args}}, State#{starts := Starts + 1}}.

begin_soak(Letter, #{dir := Dir, seed := Seed} = State) ->
    Config = #{
        peers => names(State) -- [name(Letter, State)],
        violations => unicode:characters_to_binary(filename:join(Dir, "violations")),
        seed => Seed
    },
    call(Letter, State, inet_rdma_soak_node, start, [Config]).

-spec names(t()) -> [node()].
names(#{nodes := Nodes}) -> [Name || #{node := Name} <- maps:values(Nodes)].

-spec name(letter(), t()) -> node().
name(Letter, #{nodes := Nodes}) ->
    #{Letter := #{node := Name}} = Nodes,
    Name.

-spec node_of(letter(), t()) -> inet_rdma_test_node:t().
node_of(Letter, #{nodes := Nodes}) -> map_get(Letter, Nodes).

%% Whether the node cannot answer now.
-spec set_silent(letter(), boolean(), t()) -> t().
set_silent(Letter, true, #{silent := Silent} = State) ->
    State#{silent := [Letter | Silent]};
set_silent(Letter, false, #{silent := Silent} = State) ->
    State#{silent := lists:delete(Letter, Silent)}.

-spec call(letter(), t(), module(), atom(), [term()]) -> term().
call(Letter, #{nodes := Nodes}, Module, Function, Args) ->
    inet_rdma_test_node:call(map_get(Letter, Nodes), Module, Function, Args).

-spec tell_all(run | pause, t()) -> ok.
tell_all(What, State) ->
    [ok = call(Letter, State, inet_rdma_soak_node, What, []) || Letter <- ?LETTERS],
    ok.

%% Asks all that can answer, and judges.
-spec poll(t()) -> t().
poll(#{nodes := Nodes, silent := Silent, acts := Acts, last := Last, report := Report} = State) ->
    Asked = ?LETTERS -- Silent,
    ok = all_alive(Asked, State),
    Told = maps:from_list([{Letter, ask(Letter, State)} || Letter <- Asked]),
    ok = no_violations_told(State),
    %% Before the others' nodedowns are judged.
    ok = all_alive(Asked, State),
    Events = lists:append([maps:get(events, Drained) || Drained <- maps:values(Told)]),
    case inet_rdma_soak_judge:unexplained(Events, Acts) of
        [] ->
            ok;
        Unexplained ->
            violation({no_act_explains, Unexplained, {acts, lists:sublist(Acts, 5)}}, State)
    end,
    State#{
        last := maps:merge(Last, Told),
        acts := [note_events(Act, Events) || Act <- Acts],
        report := inet_rdma_soak_report:progress(
            inet_rdma_soak_report:update(Nodes, Told, Events, Report)
        )
    }.

ask(Letter, State) ->
    try
        call(Letter, State, inet_rdma_soak_node, drain, [])
    catch
        _:Reason ->
            ok = no_violations_told(State),
            ok = all_alive([Letter], State),
            violation({node_does_not_answer, name(Letter, State), Reason}, State)
    end.

all_alive(Letters, State) ->
    case [name(Letter, State) || Letter <- Letters, not is_alive(Letter, State)] of
        [] -> ok;
        Ended -> violation({nodes_ended_by_themselves, Ended}, State)
    end.

is_alive(Letter, #{nodes := Nodes}) ->
    #{Letter := #{os_pid := OsPid}} = Nodes,
    inet_rdma_test_os:is_alive(OsPid).

no_violations_told(#{dir := Dir} = State) ->
    case file:read_file(filename:join(Dir, "violations")) of
        {ok, Text} -> violation({told_by_a_node, binary_to_list(Text)}, State);
        {error, enoent} -> ok
    end.

%% An act that has not ended keeps what happened to it.
note_events(#{to := infinity, events := Known} = Act, Events) -> Act#{events := Known ++ Events};
note_events(Act, _Events) -> Act.

-spec begin_act(inet_rdma_soak_judge:kind(), [node()], t()) -> t().
begin_act(Kind, Names, #{acts := Acts, report := Report} = State) ->
    Act = #{
        kind => Kind,
        nodes => Names,
        from => os:system_time(millisecond),
        to => infinity,
        events => []
    },
    State#{acts := [Act | Acts], report := inet_rdma_soak_report:act(Act, Report)}.

%% All is in order again: from now on the open acts explain nothing that happens.
-spec end_acts(t()) -> t().
end_acts(#{acts := Acts} = State) ->
    Now = os:system_time(millisecond),
    Ended = [
        case To of
            infinity -> Act#{to := Now, events := []};
            _ -> Act
        end
     || #{to := To} = Act <- Acts
    ],
    State#{acts := lists:sublist(Ended, 20)}.

%% Lets so much time pass.
-spec pass(non_neg_integer(), t()) -> t().
pass(Ms, State) -> pass_until(now_ms() + Ms, State).

pass_until(Deadline, State) ->
    Polled = poll(State),
    case Deadline - now_ms() of
        Left when Left > 0 ->
            receive
            after min(Left, ?INTERVAL_MS) -> pass_until(Deadline, Polled)
            end;
        _ ->
            Polled
    end.

%% Waits until every node is connected to every other and all workers have moved, twice in turn, and
%% the condition holds.
-spec settle(pos_integer(), fun((t()) -> true | term()), t()) -> {Ms :: non_neg_integer(), t()}.
settle(TimeoutMs, Condition, State) ->
    Polled = poll(State),
    Start = now_ms(),
    Once = settled(Start + TimeoutMs, moved(Polled), Condition, Polled),
    Twice = settled(Start + TimeoutMs, moved(Once), Condition, Once),
    {now_ms() - Start, Twice}.

settled(Deadline, Before, Condition, State) ->
    Polled = pass(?INTERVAL_MS, State),
    Still = [
        Key
     || {Key, Number} <- maps:to_list(moved(Polled)), Number =< maps:get(Key, Before, 0)
    ],
    Expected = length(?LETTERS) * (length(?LETTERS) - 1) * ?WORKERS_PER_PEER,
    Lonely = [
        {name(Letter, State), Connected}
     || {Letter, #{nodes := Connected}} <- maps:to_list(maps:get(last, Polled)),
        lists:sort([
            name(Letter, State)
            | Connected
        ]) =/= lists:sort(names(State))
    ],
    case {Lonely, Still, map_size(moved(Polled)), Condition(Polled)} of
        {[], [], Expected, true} ->
            Polled;
        Missing ->
            now_ms() < Deadline orelse
                violation({not_in_order_in_time, Missing, {'of', Expected}}, Polled),
            settled(Deadline, Before, Condition, Polled)
    end.

moved(#{last := Last}) ->
    maps:from_list([
        {{Letter, Key}, Number}
     || {Letter, #{moved := Moved}} <- maps:to_list(Last),
        {Key, Number} <- maps:to_list(Moved)
    ]).

%% Pauses the traffic and waits until every worker has come to rest.
-spec quiet(t()) -> t().
quiet(State) ->
    ok = tell_all(pause, State),
    await_idle(now_ms() + ?QUIET_MS, State).

await_idle(Deadline, State) ->
    #{last := Last} = Polled = pass(?INTERVAL_MS, State),
    Workers = (length(?LETTERS) - 1) * ?WORKERS_PER_PEER,
    case [{Letter, Idle} || {Letter, #{idle := Idle}} <- maps:to_list(Last), Idle =/= Workers] of
        [] ->
            Polled;
        Busy ->
            now_ms() < Deadline orelse violation({workers_never_rest, Busy}, Polled),
            await_idle(Deadline, Polled)
    end.

%% What a node holds, by its own account and the kernel's.
-spec measure(letter(), t()) -> map().
measure(Letter, #{nodes := Nodes} = State) ->
    #{Letter := #{os_pid := OsPid}} = Nodes,
    Own = call(Letter, State, inet_rdma_soak_node, measure, []),
    maps:merge(Own#{rss => inet_rdma_test_os:rss_bytes(OsPid)}, inet_rdma_test_os:footprint(OsPid)).

%% Ends the soak. What the nodes were doing is kept beside their logs.
-spec violation(term(), t()) -> no_return().
violation(What, #{dir := Dir, seed := Seed, report := Report, silent := Silent} = State) ->
    Doing = [
        {name(Letter, State), diagnosis(Letter, State)}
     || Letter <- ?LETTERS -- Silent, is_alive(Letter, State)
    ],
    ok = file:write_file(filename:join(Dir, "diagnosis"), io_lib:format("~tp~n", [Doing])),
    ct:pal(
        "VIOLATION (INET_RDMA_SOAK_SEED=~b, logs of the nodes and a diagnosis in ~ts)~n~tp~n~ts", [
            Seed, Dir, What, inet_rdma_soak_report:summary(Report)
        ]
    ),
    ct:fail({violation, What}).

diagnosis(Letter, State) ->
    try
        call(Letter, State, inet_rdma_soak_node, diagnosis, [])
    catch
        Class:Reason -> {Class, Reason}
    end.

now_ms() -> erlang:monotonic_time(millisecond).

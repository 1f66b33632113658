%% The checks of one path: that links take it, that messages of all sizes pass, that links survive
%% cuts, and a small cluster under traffic for long.
-module(inet_rdma_certify_link).

-export([sizes/2, survival/2, soak/2, pair/1, connect/3]).

-import(inet_rdma_certify_step, [note/2, fail/2]).
-import(inet_rdma_certify_node, [call/4, call/5, name/1]).

-define(KIB, 1024).
-define(MIB, 1048576).
-define(SMALL, #{bytes => {1, 20 * ?KIB}, burst => 50, pause_ms => 1}).
-define(CALLERS, 10).
-define(END_MS, 100000).
%% Time limit of one message there and back. Less than the tick time: a lost message is found before
%% the ticks find it.
-define(ECHO_MS, 10000).
%% Time limit of making the message.
-define(MAKE_MS, 60000).
%% Pause between two cuts.
-define(CUT_LEAST_MS, 300).
-define(CUT_MOST_MS, 1000).
%% Time within which a node must notice that another one was killed.
-define(RECOVERY_MS, 30000).

-type path() :: inet_rdma_certify_path:t().
-type outcome() :: inet_rdma_certify_step:outcome().

%% Two nodes of the path, linked over it.
-spec pair(path()) -> [inet_rdma_certify_node:t()].
pair(#{id := Id} = Path) ->
    [A, B] =
        Nodes = inet_rdma_certify_node:start_all([
            inet_rdma_certify_path:node(Path, here, "a"),
            inet_rdma_certify_path:node(Path, there, "b")
        ]),
    ok = connect(Path, A, B),
    note("two nodes, ~s and ~s, have a link over ~ts", [name(A), name(B), Id]),
    Nodes.

%% Ends the check if the path does not carry the link.
-spec connect(path(), inet_rdma_certify_node:t(), inet_rdma_certify_node:t()) -> ok.
connect(#{fabric := Fabric, connect_ms := ConnectMs}, A, B) ->
    case inet_rdma_certify_node:connect(A, B, Fabric, 4 * ConnectMs) of
        ok ->
            ok;
        {error, Why} ->
            fail(
                Why, "docs/TROUBLESHOOTING.md explains the reasons; the doctor's findings are above"
            )
    end.

%% Messages of growing size there and back, asked for by either node. A link that loses large ones
%% is found by the first that does not come back.
-spec sizes(path(), #{sizes := [pos_integer()], _ => _}) -> outcome().
sizes(Path, #{sizes := Sizes}) ->
    [A, B] = pair(Path),
    note("sizes: ~ts", [lists:join(", ", [bytes(Size) || Size <- Sizes])]),
    sizes(Sizes, none, [{A, B}, {B, A}]).

sizes([], Passed, [{A, B} | _]) ->
    note("messages of up to ~ts go there and back unchanged", [bytes(Passed)]),
    #{fabric := Fabric} = call(A, inet_rdma, info, [name(B)]),
    note("the link is over ~s still", [Fabric]),
    pass;
sizes([Size | Larger], Passed, Pairs) ->
    Answers = [
        {A, B,
            call(A, inet_rdma_certify_load, echo, [name(B), Size, ?ECHO_MS], ?ECHO_MS + ?MAKE_MS)}
     || {A, B} <- Pairs
    ],
    case [Failed || {_, _, Answer} = Failed <- Answers, Answer =/= ok] of
        [] ->
            sizes(Larger, Size, Pairs);
        [{A, B, Answer} | _] ->
            note("~s to ~s: a message of ~ts: ~0tp; link: ~0tp", [
                name(A), name(B), bytes(Size), Answer, facts(A, B)
            ]),
            {fail,
                [
                    case Passed of
                        none -> "no message passes";
                        _ -> ["messages of ", bytes(Passed), " pass"]
                    end,
                    ", and one of ",
                    bytes(Size),
                    " ",
                    failed(Answer, ?ECHO_MS)
                ],
                large_fix(Passed)}
    end.

failed(lost, EchoMs) -> io_lib:format("does not come back within ~b s", [EchoMs div 1000]);
failed(damaged, _) -> "comes back damaged";
failed({ended, Reason}, _) -> io_lib:format("ends the link (~0tp)", [Reason]).

large_fix(none) ->
    "look at the network and at firewalls between the two addresses";
large_fix(_) ->
    "small packets pass and large ones are lost on the way: compare the MTU of both interfaces and "
    "of each switch port (`ping -M do -s 1472 ADDRESS`; for jumbo frames -s 8972), then look for a "
    "firewall that drops fragments or ICMP".

facts(A, B) ->
    case call(A, inet_rdma, info, [name(B)]) of
        undefined -> ended;
        Info -> maps:with([fabric, losses, resumes, suspended, why], Info)
    end.

%% Cuts the TCP connection of a link again and again, in one node or the other, under traffic that
%% is checked.
-spec survival(path(), #{survival_ms := pos_integer(), large_bytes := pos_integer(), _ => _}) ->
    outcome().
survival(#{fabric := Fabric} = Path, #{survival_ms := Ms} = Plan) ->
    [A, B] = pair(Path),
    Traffic = traffic(A, B, Plan),
    Cuts = cuts([{A, B}, {B, A}], inet_rdma_clock:deadline(Ms), 0),
    Figures = inet_rdma_certify_traffic:stop(Traffic),
    Facts = facts(A, B),
    note("~b cuts of the TCP connection in ~b s; ~ts", [
        Cuts, Ms div 1000, inet_rdma_certify_traffic:text(Figures)
    ]),
    note("the link afterwards: ~0tp", [Facts]),
    survived(Cuts, inet_rdma_certify_traffic:disturbances(Figures), Facts, Fabric).

survived(_Cuts, Disturbances, _Facts, _Fabric) when map_size(Disturbances) > 0 ->
    {fail, io_lib:format("cuts disturb the link: ~0tp", [Disturbances]),
        "a link must survive the loss of its TCP connection: report this with the evidence"};
survived(0, _, _, _) ->
    {fail, "no connection could be cut", "the machine may be too busy: run it again alone"};
survived(_, _, ended, _) ->
    {fail, "the link has ended", "report this with the evidence"};
survived(_, _, #{fabric := Fabric, resumes := Resumes}, Fabric) when Resumes > 0 ->
    pass;
survived(_, _, #{resumes := 0}, _) ->
    {fail, "the link has not resumed after any cut", "report this with the evidence"};
survived(_, _, #{fabric := Other}, Fabric) ->
    {fail, io_lib:format("the link is over ~s after the cuts, and began over ~s", [Other, Fabric]),
        "look at the log of the nodes: a path that comes back is taken again after a while"}.

cuts(Pairs, DeadlineMs, Cuts) ->
    case inet_rdma_clock:left(DeadlineMs) of
        0 ->
            Cuts;
        _ ->
            receive
            after ?CUT_LEAST_MS + rand:uniform(?CUT_MOST_MS - ?CUT_LEAST_MS) -> ok
            end,
            {A, B} = lists:nth(rand:uniform(length(Pairs)), Pairs),
            case call(A, inet_rdma_certify_load, cut, [name(B)]) of
                ok -> cuts(Pairs, DeadlineMs, Cuts + 1);
                none -> cuts(Pairs, DeadlineMs, Cuts)
            end
    end.

traffic(A, B, #{large_bytes := Large}) ->
    Kinds = [?SMALL, #{bytes => {Large, Large}, burst => 1, pause_ms => 1000}],
    inet_rdma_certify_traffic:start([side(A), side(B)], ?CALLERS, 0, Kinds).

side(Node) ->
    {fun(Module, Function, Args) -> call(Node, Module, Function, Args, ?END_MS) end, name(Node)}.

%% Three nodes under traffic. Connections are cut, the second node is stopped for a moment, the
%% third is disconnected, killed and started again. The traffic between the first two must not be
%% disturbed.
-spec soak(path(), #{soak_ms := pos_integer(), large_bytes := pos_integer(), _ => _}) -> outcome().
soak(Path, #{soak_ms := Ms} = Plan) ->
    DeadlineMs = inet_rdma_clock:deadline(Ms),
    [A, B] = pair(Path),
    State = joined(#{path => Path, plan => Plan, a => A, b => B, acts => [], longest_ms => 0}),
    Watcher = call(A, inet_rdma_certify_load, watch, [name(B)]),
    First = under_traffic(fun(S) -> lists:foldl(fun act/2, S, kinds()) end, State),
    Before = resources(First),
    #{acts := Acts, longest_ms := LongestMs} =
        Last = under_traffic(fun(S) -> acts(DeadlineMs, S) end, First),
    After = resources(Last),
    [] = call(A, inet_rdma_certify_load, stop, [Watcher, ?RECOVERY_MS], ?END_MS),
    note(
        "acts: ~ts; longest time until all was in order again: ~b ms",
        [
            lists:join(", ", [
                io_lib:format("~s ~b", [Kind, length([K || K <- Acts, K =:= Kind])])
             || Kind <- kinds()
            ]),
            LongestMs
        ]
    ),
    note("node a had after the first acts ~0tp, at the end ~0tp", [Before, After]),
    bounded(Before, After).

kinds() -> [cut, disconnect, kill, stop].

under_traffic(Fun, #{a := A, b := B, plan := Plan} = State) ->
    Traffic = traffic(A, B, Plan),
    Next = Fun(State),
    Figures = inet_rdma_certify_traffic:stop(Traffic),
    note("~ts", [inet_rdma_certify_traffic:text(Figures)]),
    case inet_rdma_certify_traffic:disturbances(Figures) of
        None when map_size(None) =:= 0 -> Next;
        Disturbances ->
            fail(
                io_lib:format("traffic between two nodes that live is disturbed: ~0tp", [
                    Disturbances
                ]),
                "report this with the evidence"
            )
    end.

acts(DeadlineMs, State) ->
    case inet_rdma_clock:left(DeadlineMs) of
        0 -> State;
        _ -> acts(DeadlineMs, act(lists:nth(rand:uniform(length(kinds())), kinds()), State))
    end.

act(Kind, #{acts := Acts, longest_ms := LongestMs} = State) ->
    note("act: ~s", [Kind]),
    StartMs = inet_rdma_clock:now_ms(),
    Next = joined(act_of(Kind, State)),
    Next#{acts := [Kind | Acts], longest_ms := max(LongestMs, inet_rdma_clock:now_ms() - StartMs)}.

act_of(cut, #{a := A, b := B} = State) ->
    _ = call(A, inet_rdma_certify_load, cut, [name(B)]),
    State;
act_of(disconnect, #{a := A, c := C} = State) ->
    true = call(A, erlang, disconnect_node, [name(C)]),
    State;
act_of(kill, #{a := A, c := C} = State) ->
    ok = call(C, inet_rdma_certify_load, end_hard, []),
    ok = call(A, inet_rdma_certify_load, await_nodedown, [name(C), ?RECOVERY_MS], ?END_MS),
    maps:remove(c, State);
act_of(stop, #{b := B} = State) ->
    ok = call(B, inet_rdma_certify_load, stand_still, []),
    %% The stopped node answers when it goes on.
    receive
    after 500 -> ok
    end,
    State.

%% The third node is there, has links to both others, and messages go over them.
joined(#{c := C, a := A, b := B, path := Path, plan := #{slowness := Slowness}} = State) ->
    %% After the traffic, which a slow machine takes long to carry.
    EchoMs = round(Slowness * ?ECHO_MS),
    lists:foreach(
        fun({X, Y}) ->
            ok = connect(Path, X, Y),
            case
                call(X, inet_rdma_certify_load, echo, [name(Y), 10000, EchoMs], EchoMs + ?MAKE_MS)
            of
                ok ->
                    ok;
                Answer ->
                    fail(
                        [
                            io_lib:format("a message of ~s to ~s ", [name(X), name(Y)]),
                            failed(Answer, EchoMs)
                        ],
                        "report this with the evidence"
                    )
            end
        end,
        [{A, C}, {B, C}, {A, B}]
    ),
    State;
joined(#{path := Path} = State) ->
    [C] = inet_rdma_certify_node:start_all([inet_rdma_certify_path:node(Path, there, "c")]),
    joined(State#{c => C}).

resources(#{a := A}) -> call(A, inet_rdma_certify_load, resources, []).

bounded(Before, After) ->
    case
        [
            {Key, Old, map_get(Key, After)}
         || {Key, Old} <- maps:to_list(Before),
            map_get(Key, After) > most(Key, Old)
        ]
    of
        [] ->
            pass;
        Grown ->
            {fail,
                io_lib:format("a node has more at the end than after the first acts: ~0tp", [Grown]),
                "report this with the evidence"}
    end.

most(memory, Old) -> Old + Old div 2 + 64 * ?MIB;
%% The VM itself starts and ends some processes and ports.
most(_, Old) -> Old + 5.

bytes(Bytes) when Bytes < ?KIB -> io_lib:format("~b B", [Bytes]);
bytes(Bytes) when Bytes < ?MIB -> io_lib:format("~b KiB", [Bytes div ?KIB]);
bytes(Bytes) -> io_lib:format("~b MiB", [Bytes div ?MIB]).

%% All kinds of checked traffic between two nodes, both ways, and the sum of what it shows. Runs
%% beside the nodes, in a certificate and in tests.
-module(inet_rdma_certify_traffic).

-export([start/4, stop/1, text/1, disturbances/1]).
-export_type([t/0, side/0, figures/0]).

%% Calls a function in a node; the node's name.
-type side() :: {fun((module(), atom(), [term()]) -> term()), node()}.
-opaque t() :: [{side(), Watcher :: pid(), Callers :: [pid()], Senders :: [pid()], Bonds :: pid()}].

%% Those of inet_rdma_certify_calls, _numbers and _bonds. large: messages of all kinds but the
%% first. failures and nodedowns: some of the reasons.
-type figures() :: #{atom() => non_neg_integer() | [term()]}.

%% Longer than each wait of the traffic itself.
-define(END_MS, 90000).
-define(REASONS, 3).

%% The counts that must be 0 on a link that did not end.
-define(DISTURBANCES, [
    failed_calls, failures, lost, doubled, reordered, damaged, breaks, broken, nodedowns
]).

%% From either node: this many callers, each with a pause after a call, a sender for each kind of
%% messages, links and monitors.
-spec start([side()], Callers :: pos_integer(), PauseMs :: non_neg_integer(), [
    inet_rdma_certify_numbers:kind()
]) ->
    t().
start([One, Other], Callers, PauseMs, Kinds) ->
    [
        start_from(Side, Peer, Callers, PauseMs, Kinds)
     || {Side, {_, Peer}} <- [{One, Other}, {Other, One}]
    ].

start_from({Call, _} = Side, Peer, Callers, PauseMs, Kinds) ->
    Watcher = Call(inet_rdma_certify_load, watch, [Peer]),
    {Side, Watcher, Call(inet_rdma_certify_calls, start, [Peer, Callers, PauseMs]),
        [Call(inet_rdma_certify_numbers, start, [Peer, Kind]) || Kind <- Kinds],
        Call(inet_rdma_certify_bonds, start, [Peer])}.

%% Ends the traffic when all sent messages have been confirmed.
-spec stop(t()) -> figures().
stop(Traffic) -> sum(lists:append([stop_from(Each) || Each <- Traffic])).

stop_from({{Call, _}, Watcher, Callers, Senders, Bonds}) ->
    Stop = fun(Pid) -> Call(inet_rdma_certify_load, stop, [Pid, ?END_MS]) end,
    Calls = Call(inet_rdma_certify_calls, stop, [Callers, ?END_MS]),
    [_First | Others] = Numbers = lists:map(Stop, Senders),
    OfBonds = Stop(Bonds),
    [
        #{nodedowns => Stop(Watcher)},
        #{large => lists:sum([Large || #{sent := Large} <- Others])},
        OfBonds
        | Numbers ++ Calls
    ].

sum(Figures) ->
    lists:foldl(fun(Each, Sum) -> maps:merge_with(fun sum/3, Sum, Each) end, #{}, Figures).

sum(longest_us, One, Other) -> max(One, Other);
sum(_, One, Other) when is_list(One) -> lists:sublist(One ++ Other, ?REASONS);
sum(_, One, Other) -> One + Other.

-spec text(figures()) -> unicode:chardata().
text(
    #{calls := Calls, sent := Sent, large := Large, ended_bonds := Ended, longest_us := LongestUs} =
        Figures
) ->
    Disturbed =
        case disturbances(Figures) of
            None when map_size(None) =:= 0 -> "none failed, lost, doubled, reordered or damaged";
            Disturbances -> io_lib:format("~0tp", [Disturbances])
        end,
    io_lib:format(
        "~b calls, ~b messages (~b large), ~b ended links and monitors; ~ts; longest call ~b ms",
        [Calls, Sent, Large, Ended, Disturbed, LongestUs div 1000]
    ).

%% Faults that a link that did not end must not show; empty: all went well.
-spec disturbances(figures()) -> figures().
disturbances(Figures) ->
    maps:filter(
        fun(_, Value) -> Value =/= 0 andalso Value =/= [] end, maps:with(?DISTURBANCES, Figures)
    ).

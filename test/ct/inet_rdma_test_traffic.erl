%% All kinds of checked traffic between two nodes, both ways, and the sum of what it shows. Runs in the node that runs
%% the tests.
-module(inet_rdma_test_traffic).

-export([start/2, start_small/2, stop/1, logged/1, figures_text/1, disturbances/1]).
-export_type([t/0, figures/0]).

-type node_under_test() :: inet_rdma_test_node:t().
-opaque t() :: [{node_under_test(), Watcher :: pid(), Callers :: [pid()], Senders :: [pid()], Bonds :: pid()}].

-type figures() :: #{atom() => non_neg_integer() | [term()]}.

-define(CALLERS, 10).
-define(SMALL, #{bytes => {1, 20480}, burst => 50, pause_ms => 1}).
-define(LARGE, #{bytes => {67108864, 67108864}, burst => 1, pause_ms => 3000}).
%% Longer than all that the traffic itself waits for.
-define(END_MS, 90000).

%% What must be none on a link that nothing has ended.
-define(DISTURBANCES, [failed_calls, failures, lost, doubled, reordered, damaged, breaks, broken, nodedowns]).

%% From either node: callers, a sender of many messages, one of 64 MiB messages, links and monitors.
-spec start(node_under_test(), node_under_test()) -> t().
start(A, B) -> start(A, B, [?SMALL, ?LARGE]).

%% The same without the large ones.
-spec start_small(node_under_test(), node_under_test()) -> t().
start_small(A, B) -> start(A, B, [?SMALL]).

start(A, B, Kinds) -> [start_from(X, Y, Kinds) || {X, Y} <- [{A, B}, {B, A}]].

start_from(Node, #{node := Peer} = Other, Kinds) ->
    ok = call(Node, inet_rdma_test_log, install, []),
    Watcher = inet_rdma_test_node:watch(Node, Other),
    Callers = call(Node, inet_rdma_test_calls, start, [Peer, ?CALLERS]),
    Senders = [call(Node, inet_rdma_test_numbers, start, [Peer, Kind]) || Kind <- Kinds],
    {Node, Watcher, Callers, Senders, call(Node, inet_rdma_test_bonds, start, [Peer])}.

%% Ends the traffic when all that was sent has been confirmed.
-spec stop(t()) -> figures().
stop(Traffic) ->
    Both = [stop_from(Each) || Each <- Traffic],
    lists:foldl(fun(Figures, Sum) -> maps:merge_with(fun sum/3, Figures, Sum) end, #{}, Both).

sum(longest_call_ms, One, Other) -> max(One, Other);
sum(failures, One, Other) -> One ++ Other;
sum(_, One, Other) -> One + Other.

stop_from({Node, Watcher, Callers, Senders, Bonds}) ->
    #{calls := Calls, failed := Failed, failures := Failures, longest_us := LongestUs} =
        call(Node, inet_rdma_test_calls, stop, [Callers, ?END_MS]),
    [Small | LargeFigures] = [call(Node, inet_rdma_test_numbers, stop, [Sender, ?END_MS]) || Sender <- Senders],
    #{ended := Ended, broken := Broken} = call(Node, inet_rdma_test_bonds, stop, [Bonds, ?END_MS]),
    Seen = call(Node, inet_rdma_test_watch, seen, [Watcher]),
    true = call(Node, inet_rdma_test_watch, stop, [Watcher]),
    Numbers = lists:foldl(fun(Figures, Sum) -> maps:merge_with(fun sum/3, Figures, Sum) end, Small, LargeFigures),
    Numbers#{
        calls => Calls, failed_calls => Failed, failures => Failures, longest_call_ms => LongestUs div 1000,
        large => lists:sum([Large || #{sent := Large} <- LargeFigures]), ended_bonds => Ended, broken => Broken,
        nodedowns => length([down || monitor_nodes <- Seen])
    }.

%% What the nodes have logged since the start: why, where a link was disturbed.
-spec logged(t()) -> [{node(), [string()]}].
logged(Traffic) ->
    [{Name, call(Node, inet_rdma_test_log, lines, [])} || {#{node := Name} = Node, _, _, _, _} <- Traffic].

%% For the terminal.
-spec figures_text(figures()) -> string().
figures_text(#{calls := Calls, sent := Sent, large := Large, ended_bonds := Ended} = Figures) ->
    #{longest_call_ms := LongestMs} = Figures,
    lists:flatten(io_lib:format(
        "~b calls, ~b messages (~b of 64 MiB), ~b ended links and monitors; longest call ~b ms~n~0p",
        [Calls, Sent, Large, Ended, LongestMs, maps:with(?DISTURBANCES, Figures)]
    )).

%% What a link that lives on does not show: empty where all went well.
-spec disturbances(figures()) -> figures().
disturbances(Figures) ->
    maps:filter(fun(_, Value) -> Value =/= 0 andalso Value =/= [] end, maps:with(?DISTURBANCES, Figures)).

call(Node, Module, Function, Args) -> inet_rdma_test_node:call(Node, Module, Function, Args, ?END_MS * 2).

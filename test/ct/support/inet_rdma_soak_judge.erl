%% Which acts of the chaos explain what the nodes tell. Whatever no act explains is a violation.
-module(inet_rdma_soak_judge).

-export([unexplained/2, explains/2]).
-export_type([act/0, kind/0]).

-type kind() :: kill | stop_short | stop_long | disconnect | close.

%% A disconnect concerns the link between its two nodes, the other kinds all that their one node
%% takes part in. `to' is the time at which all was in order again.
-type act() :: #{
    kind := kind(), nodes := [node()], from := integer(), to := integer() | infinity, _ => _
}.

%% What happened before an act ended may be told that much later.
-define(SLACK_MS, 2000).

-spec unexplained([inet_rdma_soak_node:event()], [act()]) -> [inet_rdma_soak_node:event()].
unexplained(Events, Acts) ->
    [
        Event
     || #{class := Class} = Event <- Events,
        Class =/= nodeup,
        Class =/= stream_done,
        not lists:any(fun(Act) -> explains(Act, Event) end, Acts)
    ].

-spec explains(act(), inet_rdma_soak_node:event()) -> boolean().
explains(
    #{kind := Kind, nodes := Nodes, from := From, to := To},
    #{at := At, node := Node, peer := Peer} = Event
) ->
    At >= From andalso (To =:= infinity orelse At =< To + ?SLACK_MS) andalso
        concerns(Kind, Nodes, Node, Peer) andalso may_cause(Kind, Event).

concerns(disconnect, Nodes, Node, Peer) -> lists:sort(Nodes) =:= lists:sort([Node, Peer]);
concerns(_, [Of], Node, Peer) -> Of =:= Node orelse Of =:= Peer.

may_cause(kill, #{class := Class}) -> lists:member(Class, [link, stream, connect]);
%% A stream has no ticks and outlives any stop.
may_cause(stop_long, #{class := Class}) -> lists:member(Class, [link, connect]);
may_cause(stop_short, #{class := connect, what := What}) -> What =:= etimedout;
may_cause(disconnect, #{class := Class}) -> Class =:= link;
may_cause(close, #{class := stream, what := {_Id, {_While, Reason}}}) -> Reason =:= closed;
may_cause(_, _) -> false.

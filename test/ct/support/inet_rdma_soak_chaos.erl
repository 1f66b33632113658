%% What is done to the cluster, and what must follow. An act begins when all is in order, and
%% returns when all is again.
-module(inet_rdma_soak_chaos).

-export([kinds/0, act/2]).

-type kind() :: kill | stop_short | stop_long | disconnect | close | storm.

%% From the end of an act until every worker of every node moves again.
-define(RECOVERY_MS, 240000).
-define(GONE_MS, 60000).

%% The others live from the beginning to the end.
-define(MORTAL, [c, d]).
-define(ALL, [a, b, c, d]).

-spec kinds() -> [kind()].
kinds() -> [kill, stop_short, stop_long, disconnect, close, storm].

-spec act(kind(), inet_rdma_soak_cluster:t()) -> inet_rdma_soak_cluster:t().
act(kill, State) ->
    Letter = any(?MORTAL),
    Dead = inet_rdma_soak_cluster:pass(rand:uniform(3000), kill(Letter, State)),
    in_order(inet_rdma_soak_cluster:restart(Letter, Dead));
act(stop_short, #{ticktime := TickTime} = State) ->
    %% Below three quarters of it no node may give the other up.
    Letter = any(?ALL),
    Stopped = inet_rdma_soak_cluster:pass(
        rand:uniform(TickTime * 500), stop(stop_short, Letter, State)
    ),
    in_order(resume(Letter, Stopped));
act(stop_long, State) ->
    Letter = any(?ALL),
    in_order(
        resume(Letter, inet_rdma_soak_cluster:pass(long(State), stop(stop_long, Letter, State)))
    );
act(disconnect, State) ->
    [One, Other | _] = shuffled(?ALL),
    in_order(disconnect(One, Other, State));
act(close, State) ->
    Letter = any(?ALL),
    Begun = begun(close, [Letter], State),
    case inet_rdma_soak_cluster:call(Letter, Begun, inet_rdma_soak_streams, close_one, []) of
        none ->
            in_order(Begun);
        {Peer, Id} ->
            in_order(Begun, told_by_both([inet_rdma_soak_cluster:name(Letter, State), Peer], Id))
    end;
act(storm, State) ->
    %% All at once; the stopped node comes back to a node that has died and come again meanwhile.
    Mortal = any(?MORTAL),
    [Stopped, One, Other] = shuffled(?ALL -- [Mortal]),
    Dead = kill(Mortal, disconnect(One, Other, stop(stop_long, Stopped, State))),
    Back = inet_rdma_soak_cluster:restart(
        Mortal, inet_rdma_soak_cluster:pass(rand:uniform(3000), Dead)
    ),
    in_order(resume(Stopped, inet_rdma_soak_cluster:pass(long(State), Back))).

kill(Letter, State) ->
    Node = inet_rdma_soak_cluster:node_of(Letter, State),
    Port = port_of(Node),
    Begun = inet_rdma_soak_cluster:set_silent(Letter, true, begun(kill, [Letter], State)),
    inet_rdma_test_node:kill(Node),
    inet_rdma_test_node:await_exit(Node, ?GONE_MS),
    inet_rdma_test_wait:until({nobody_listens, Port}, ?GONE_MS, fun() ->
        not inet_rdma_test_os:is_listening(Port)
    end),
    Begun.

stop(Kind, Letter, State) ->
    Begun = inet_rdma_soak_cluster:set_silent(Letter, true, begun(Kind, [Letter], State)),
    inet_rdma_test_node:suspend(inet_rdma_soak_cluster:node_of(Letter, State)),
    Begun.

resume(Letter, State) ->
    inet_rdma_test_node:resume(inet_rdma_soak_cluster:node_of(Letter, State)),
    inet_rdma_soak_cluster:set_silent(Letter, false, State).

disconnect(One, Other, State) ->
    Begun = begun(disconnect, [One, Other], State),
    Name = inet_rdma_soak_cluster:name(Other, State),
    true = inet_rdma_soak_cluster:call(One, State, erlang, disconnect_node, [Name]),
    Begun.

%% Surely longer than the tick time, whichever way the ticks fall.
long(#{ticktime := TickTime}) -> TickTime * 1500 + rand:uniform(TickTime * 1000).

begun(Kind, Letters, State) ->
    Names = [inet_rdma_soak_cluster:name(Letter, State) || Letter <- Letters],
    inet_rdma_soak_cluster:begin_act(Kind, Names, State).

in_order(State) ->
    in_order(State, fun(_) -> true end).

in_order(State, Condition) ->
    All = fun(Now) ->
        case nodedowns_missing(Now) of
            [] -> Condition(Now);
            Missing -> {no_nodedown, Missing}
        end
    end,
    {Ms, #{report := Report} = Settled} = inet_rdma_soak_cluster:settle(?RECOVERY_MS, All, State),
    inet_rdma_soak_cluster:end_acts(Settled#{report := inet_rdma_soak_report:recovered(Ms, Report)}).

%% Each node that has lived through an act must have noticed it.
nodedowns_missing(#{acts := Acts} = State) ->
    Open = [Act || #{to := infinity} = Act <- Acts],
    Killed = lists:append([Names || #{kind := kill, nodes := Names} <- Open]),
    Lost = lists:append([lost(Act, inet_rdma_soak_cluster:names(State)) || Act <- Open]),
    Events = lists:append([Events || #{events := Events} <- Open]),
    Seen = [{Node, Peer} || #{what := {nodedown, _}, node := Node, peer := Peer} <- Events],
    lists:usort([Pair || {Node, _} = Pair <- Lost, not lists:member(Node, Killed)]) -- Seen.

%% Pairs of the node that notices and the node that is lost.
lost(#{kind := Kind, nodes := [Lost]}, Names) when Kind =:= kill; Kind =:= stop_long ->
    Others = Names -- [Lost],
    [{Other, Lost} || Other <- Others] ++ [{Lost, Other} || Other <- Others];
lost(#{kind := disconnect, nodes := [One, Other]}, _Names) ->
    [{One, Other}, {Other, One}];
lost(_, _Names) ->
    [].

told_by_both(Names, Id) ->
    fun(#{acts := [#{events := Events} | _]}) ->
        Told = [
            Node
         || #{class := Class, what := What, node := Node} <- Events, is_end_of(Id, Class, What)
        ],
        Names -- Told =:= [] orelse {told_the_end_of, Id, Told}
    end.

is_end_of(Id, stream_done, Id) -> true;
is_end_of(Id, stream, {Id, _}) -> true;
is_end_of(_, _, _) -> false.

port_of(#{node := Node} = Started) ->
    [Name, _Host] = string:lexemes(atom_to_list(Node), "@"),
    %% EPMD may be slow to answer on a busy machine, which reads as noport.
    inet_rdma_test_wait:until({registered, Node}, ?GONE_MS, fun() ->
        is_tuple(erl_epmd:port_please(Name, {127, 0, 0, 1}))
    end),
    inet_rdma_test_node:port(Started).

any(List) -> lists:nth(rand:uniform(length(List)), List).

shuffled(List) -> [Item || {_, Item} <- lists:sort([{rand:uniform(), Item} || Item <- List])].

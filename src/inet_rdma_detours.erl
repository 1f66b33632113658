%% The tables of detours, which inet_rdma_sup owns: the detours that this node carries for others
%% (inet_rdma_detour_relay), with their bounds, and the facts of this node's sessions that detours need.
-module(inet_rdma_detours).

-export([new/0, enter/1, open/3, leave/0, carried/0, seek/0]).
-export([set_fact/3, fact/2, forget/1]).
-export_type([carried/0, fact/0]).

%% {Relay, Asker, asking} or {Relay, Asker, {open, From, To}}, or {Attempt, none, seeking}. Asker: the name of the
%% session between this node and the node that asks. A row ends with its process: one whose process was killed is
%% removed by the next look at the table.
-define(TABLE, inet_rdma_detours).
%% {{Name, Fact}, Value}. A row ends with its session.
-define(FACTS, inet_rdma_detour_facts).

%% Requests at a time whose asker has not proved the secret of its session, of all askers. A request takes a process for
%% 3 s at most.
-define(ASKING_MAX, 32).
%% Detours at a time, and detours of one asker. A detour takes two descriptors, and up to 128 KiB in each direction: a
%% read, and what the driver of inet has of it.
-define(OPEN_MAX, 64).
-define(OPEN_OF_ASKER_MAX, 8).

%% Attempts of this node's links at a time to find a neighbour: a node that is cut off from many asks no more of them.
-define(SEEKING_MAX, 8).

%% A detour from one node to another.
-type carried() :: {From :: binary(), To :: binary()}.

%% node: the peer's name. listens: where the peer accepts connections, or none. tried: the last detour that was opened
%% for the session, and its two addresses. via: the neighbour over which the session's TCP connection goes; none: it is
%% direct. return: the process that tries the direct way meanwhile. row: the number of detours in a row, and when the
%% last one began. detours: the number of all.
-type fact() :: node | listens | tried | via | return | row | detours.

%% Makes the tables; the caller owns them.
-spec new() -> ok.
new() ->
    _ = [ets:new(Table, [named_table, public]) || Table <- [?TABLE, ?FACTS]],
    ok.

%% The caller is a relay, and its asker has proved nothing yet. inet_rdma_sup starts one relay at a time, so no two of
%% them take the last place.
-spec enter(Asker :: binary()) -> ok | full.
enter(Asker) ->
    case length([Relay || {Relay, _, asking} <- living()]) < ?ASKING_MAX of
        true -> insert({self(), Asker, asking});
        false -> full
    end.

%% The caller's asker has proved the secret. Of two relays that take the last place both may be refused.
-spec open(Asker :: binary(), From :: binary(), To :: binary()) -> ok | full.
open(Asker, From, To) ->
    ok = insert({self(), Asker, {open, From, To}}),
    Open = [Of || {_, Of, {open, _, _}} <- living()],
    case length(Open) =< ?OPEN_MAX andalso length([Of || Of <- Open, Of =:= Asker]) =< ?OPEN_OF_ASKER_MAX of
        true -> ok;
        false -> leave(), full
    end.

%% The caller seeks a neighbour for a link of this node, until its end. Of two that take the last place both may be
%% refused.
-spec seek() -> ok | full.
seek() ->
    ok = insert({self(), none, seeking}),
    case length([Attempt || {Attempt, _, seeking} <- living()]) =< ?SEEKING_MAX of
        true -> ok;
        false -> leave(), full
    end.

insert(Row) ->
    true = ets:insert(?TABLE, Row),
    ok.

%% The caller ends.
-spec leave() -> ok.
leave() ->
    quietly(fun() -> ets:delete(?TABLE, self()) end).

%% Without the table, which ends with the distribution, there is none.
-spec carried() -> [carried()].
carried() -> [{From, To} || {_, _, {open, From, To}} <- living()].

living() ->
    Rows = try ets:tab2list(?TABLE)
           catch error:badarg -> []
           end,
    {Living, Dead} = lists:partition(fun({Relay, _, _}) -> is_process_alive(Relay) end, Rows),
    _ = [ok = quietly(fun() -> ets:delete(?TABLE, Relay) end) || {Relay, _, _} <- Dead],
    Living.

%% Of the session with this name, if there is one.
-spec set_fact(Name :: binary(), fact(), Value :: term()) -> ok.
set_fact(Name, Fact, Value) ->
    case inet_rdma_links:session(Name) of
        {ok, _Session} -> quietly(fun() -> ets:insert(?FACTS, {{Name, Fact}, Value}) end);
        _ -> ok
    end.

%% none: it is not known.
-spec fact(Name :: binary(), fact()) -> Value :: term() | none.
fact(Name, Fact) ->
    try ets:lookup(?FACTS, {Name, Fact}) of
        [{_, Value}] -> Value;
        [] -> none
    catch
        error:badarg -> none
    end.

%% The session has ended.
-spec forget(Name :: binary()) -> ok.
forget(Name) -> quietly(fun() -> ets:match_delete(?FACTS, {{Name, '_'}, '_'}) end).

%% Does nothing without the tables, which end with the distribution.
quietly(Do) ->
    try Do() of
        true -> ok
    catch
        error:badarg -> ok
    end.

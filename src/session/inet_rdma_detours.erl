%% The tables of detours, which inet_rdma_sup owns: the detours that this node relays for others
%% (inet_rdma_detour_relay), with their bounds, and the facts of this node's sessions that detours
%% need.
-module(inet_rdma_detours).

-export([new/0, enter/2, open/3, leave/0, relayed/0, seek/0]).
-export([set_fact/3, fact/2, forget/1]).
-export_type([relayed/0, fact/0]).

-import(inet_rdma_links, [quietly/1, rows/1]).

%% {Relay, Asker, {asking, Origin, Since}} or {Relay, Asker, {open, From, To}}, or {Attempt, none,
%% seeking}. Asker: the name of the session between this node and the node that asks. A row ends
%% with its process: one whose process was killed is removed by the next read of the table.
-define(TABLE, inet_rdma_detours).
%% {{Name, Fact}, Value}. A row ends with its session.
-define(FACTS, inet_rdma_detour_facts).

%% Requests at a time whose asker has not proved the secret of its session: of all askers, and of
%% those from one origin. A request takes a process for some seconds.
%%
%% A stranger may know the name of a session, which is no secret, and can hold requests open. So a
%% request beyond a bound is not refused: it displaces the oldest one, of its own origin if that is
%% at its bound, else of all. An asker proves its session within a round trip; a stranger keeps it
%% out only by as many requests as the bound in that time. The bound of an origin lets no stranger
%% displace a request from elsewhere, unless it has four origins.
-define(ASKING_MAX, 32).
-define(ASKING_OF_ORIGIN_MAX, 8).
%% Detours at a time, and detours of one asker. A detour takes two descriptors, and up to 128 KiB in
%% each direction: a read, and what the driver of inet has of it.
-define(OPEN_MAX, 64).
-define(OPEN_OF_ASKER_MAX, 8).

%% Attempts of this node's links at a time to find a neighbour: a node that is cut off from many
%% asks no more of them.
-define(SEEKING_MAX, 8).

-type relayed() :: {From :: binary(), To :: binary()}.

%% node: the peer's name. listens: where the peer accepts connections; none: nowhere, or not known.
%% tried: the last detour that was opened for the session, and its two addresses. via: the neighbour
%% over which the session's TCP connection goes; none: it is direct. return: the process that tries
%% the direct way, or full segments, meanwhile. row: the number of such connections in a row, and
%% when the last one began. detours: the number of all detours.
-type fact() :: node | listens | tried | via | return | {row, detour | small_segments} | detours.

%% Makes the tables; the caller owns them.
-spec new() -> ok.
new() ->
    _ = [ets:new(Table, [named_table, public]) || Table <- [?TABLE, ?FACTS]],
    ok.

%% The caller is a relay, and its asker, at this address, has proved nothing yet. inet_rdma_sup
%% starts one relay at a time, so no two of them count the same requests. displaced: another relay
%% has ended for it.
-spec enter(Asker :: binary(), inet:ip_address() | unknown) -> ok | displaced.
enter(Asker, Address) ->
    Origin =
        case Address of
            unknown -> unknown;
            _ -> inet_rdma_ip:origin(Address)
        end,
    Asking = lists:sort([{Since, Relay, From} || {Relay, _, {asking, From, Since}} <- living()]),
    Own = [Each || {_, _, From} = Each <- Asking, From =:= Origin],
    Oldest =
        case {length(Own) < ?ASKING_OF_ORIGIN_MAX, length(Asking) < ?ASKING_MAX} of
            {false, _} -> [hd(Own)];
            {true, false} -> [hd(Asking)];
            {true, true} -> []
        end,
    ok = insert({self(), Asker, {asking, Origin, erlang:monotonic_time()}}),
    case [Relay || {_, Relay, _} <- Oldest, displace(Relay)] of
        [] -> ok;
        [_Relay] -> displaced
    end.

%% False: its asker has proved its session meanwhile. The relay traps no exits, so that it ends
%% while it waits for the proof; its supervisor does not log this reason.
displace(Relay) -> removed(Relay, {asking, '_', '_'}) andalso exit(Relay, shutdown).

removed(Relay, State) ->
    1 =:= quietly(fun() -> ets:select_delete(?TABLE, [{{Relay, '_', State}, [], [true]}]) end).

%% The caller's asker has proved the secret. full: at a bound, or displaced. If two relays take the
%% last place at once, both may be refused.
-spec open(Asker :: binary(), From :: binary(), To :: binary()) -> ok | full.
open(Asker, From, To) ->
    case removed(self(), '_') of
        true -> opened(Asker, From, To);
        false -> full
    end.

opened(Asker, From, To) ->
    ok = insert({self(), Asker, {open, From, To}}),
    Open = [Of || {_, Of, {open, _, _}} <- living()],
    case
        length(Open) =< ?OPEN_MAX andalso
            length([Of || Of <- Open, Of =:= Asker]) =< ?OPEN_OF_ASKER_MAX
    of
        true ->
            ok;
        false ->
            leave(),
            full
    end.

%% The caller seeks a neighbour for a link of this node, until its end. If two processes take the
%% last place at once, both may be refused.
-spec seek() -> ok | full.
seek() ->
    ok = insert({self(), none, seeking}),
    case length([Attempt || {Attempt, _, seeking} <- living()]) =< ?SEEKING_MAX of
        true ->
            ok;
        false ->
            leave(),
            full
    end.

insert(Row) ->
    true = ets:insert(?TABLE, Row),
    ok.

%% The caller ends.
-spec leave() -> ok.
leave() ->
    quietly(fun() -> ets:delete(?TABLE, self()) end).

%% Without the table, which ends with the distribution, there is none.
-spec relayed() -> [relayed()].
relayed() -> [{From, To} || {_, _, {open, From, To}} <- living()].

living() ->
    Rows = rows(quietly(fun() -> ets:tab2list(?TABLE) end)),
    {Living, Dead} = lists:partition(fun({Relay, _, _}) -> is_process_alive(Relay) end, Rows),
    _ = [ok = quietly(fun() -> ets:delete(?TABLE, Relay) end) || {Relay, _, _} <- Dead],
    Living.

%% Sets a fact of the session with this name, if there is one. The session may end meanwhile: its
%% row goes before its facts (inet_rdma_keeper).
-spec set_fact(Name :: binary(), fact(), Value :: term()) -> ok.
set_fact(Name, Fact, Value) ->
    case inet_rdma_links:session(Name) of
        {ok, _Session} ->
            ok = quietly(fun() -> ets:insert(?FACTS, {{Name, Fact}, Value}) end),
            case inet_rdma_links:session(Name) of
                {ok, _} -> ok;
                _Ended -> forget(Name)
            end;
        _ ->
            ok
    end.

%% none: it is not known.
-spec fact(Name :: binary(), fact()) -> Value :: term() | none.
fact(Name, Fact) ->
    case quietly(fun() -> ets:lookup(?FACTS, {Name, Fact}) end) of
        [{_, Value}] -> Value;
        _ -> none
    end.

-spec forget(Name :: binary()) -> ok.
forget(Name) -> quietly(fun() -> ets:match_delete(?FACTS, {{Name, '_'}, '_'}) end).

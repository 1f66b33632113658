%% The tables of the distribution: links, how each is carried and why; sessions; failures that are
%% remembered; counts.
%%
%% inet_rdma_sup owns them: they live as long as the distribution does. inet_rdma_keeper removes the
%% rows of links and sessions that have ended.
-module(inet_rdma_links).

-export([new/0, insert/4, update/4, all/0, failed/3, failure/1, is_due/2, recent/2, count/1, counts/0]).
-export([add/2]).
-export([
    add_session/5,
    session/1,
    session_of/1,
    guard/1,
    guards/0,
    session_options/1,
    set_session_options/2
]).
-export([set_standing/2, standing/1]).
-export([
    add_peer/3, remove_peer/1, peer/1, set_peer_node/2, set_ends/2, set_known_by/2, add_reached/2
]).
-export([owners/0, remove/2]).
%% Used for other tables of the distribution.
-export([quietly/1, rows/1]).
-export_type([counted/0, key/0, reached/0, row/0]).

%% {Node, Supervisor, inet_rdma_controller:t(), Fabric, Why, SinceMs}, SinceMs of
%% erlang:monotonic_time/1.
-define(LINKS, ?MODULE).
%% {Name, Port, Guard, Session, Options}.
-define(SESSIONS, inet_rdma_sessions).
%% {Name of a session, inet_rdma_port:standing()}, as of the port's last notice to the guard.
-define(STANDINGS, inet_rdma_standings).
%% {Name of a session, Listens, PeerNode, [reached()], Ends, KnownBy}: the peer's addresses.
-define(PEERS, inet_rdma_peers).
%% {target(), UntilMs, Reason}.
-define(FAILURES, inet_rdma_failures).
%% {Fact, Until, Value}: see recent/2.
-define(RECENT, inet_rdma_recent).
-define(RECENT_MS, 1000).
%% {Counted, Number}.
-define(COUNTED, inet_rdma_counted).
%% {{Node, Instance}, UntilMs, Answer}: VMs whose end this node has seen (inet_rdma_witness).
-define(DEATHS, inet_rdma_deaths).

%% Maximum number of failures that are remembered. A further one takes the place of any other, which
%% is tried again at once.
-define(FAILURES_MAX, 4096).

-define(REACHED_MAX, 4).

-type ends() :: inet_rdma_transport:ends() | none.
%% How a session has got a connection: this node has dialled that address, or the peer has come from
%% this one.
-type reached() :: {dialled, {inet:ip_address(), inet:port_number()}} | {from, inet:ip_address()}.

%% Events that are counted for as long as the distribution lives. stayed: a link stayed on TCP after
%% these fabrics were tried. refused: the option required refused a link. settlement_failed: a
%% settlement broke off, or its peer left. resume_refused: an attempt to resume named a session that
%% is not known, had not its secret, or found no descriptor left. short_links: links of hidden nodes
%% without inet_rdma that ended soon. unknown_messages: in-band messages of peers' guards that this
%% version does not know. unknown_notices: notices of links' ports that it does not know.
%% detours_asked: neighbours that this node asked for a detour; detours_opened: those that opened
%% one. detours_relayed, detours_refused: detours that others asked this node for; detour_bytes:
%% bytes that it has passed.
-type counted() ::
    {stayed, Tried :: [inet_rdma_options:link_fabric()]}
    | refused
    | settlement_failed
    | resume_refused
    | short_links
    | unknown_messages
    | unknown_notices
    | detours_asked
    | detours_opened
    | detours_relayed
    | detours_refused
    | detour_bytes.

%% fabric: <<"tcp">>, <<"tls">>, <<"shm">> or <<"verbs">>. up_ms: for how long the link has been
%% there.
-type row() :: #{
    node := binary(),
    controller := inet_rdma_controller:t(),
    fabric := binary(),
    why := binary(),
    up_ms := non_neg_integer()
}.

%% What has failed, by node and VM: a fabric, or a detour over this neighbour to that node; or the
%% subject of is_due/2. A device has the place of the node in its log lines.
-type target() :: {
    NodeOrDevice :: binary(),
    Instance :: integer(),
    atom()
    | {detour, To :: binary()}
    | {acceptor, term()}
    | {self_test, [inet_rdma_error:tried()]}
}.

-type key() :: {link, Node :: binary()} | {session, Name :: binary()}.

%% Makes the tables; the caller owns them.
-spec new() -> ok.
new() ->
    Tables = [?LINKS, ?SESSIONS, ?STANDINGS, ?PEERS, ?FAILURES, ?RECENT, ?COUNTED, ?DEATHS],
    _ = [ets:new(Table, [named_table, public]) || Table <- Tables],
    ok.

%% The caller supervises the link.
-spec insert(binary(), inet_rdma_controller:t(), Fabric :: binary(), Why :: binary()) -> ok.
insert(Node, Controller, Fabric, Why) ->
    Row = {Node, self(), Controller, Fabric, Why, erlang:monotonic_time(millisecond)},
    ok = quietly(fun() -> ets:insert(?LINKS, Row) end),
    kept(self(), {link, Node}).

%% Another path carries the link of this supervisor.
-spec update(pid(), binary(), Fabric :: binary(), Why :: binary()) -> ok.
update(Supervisor, Node, Fabric, Why) ->
    quietly(fun() ->
        ets:lookup_element(?LINKS, Node, 2) =:= Supervisor andalso
            ets:update_element(?LINKS, Node, [{4, Fabric}, {5, Why}])
    end).

%% A session of this node, by its name, and the socket options of each of its TCP connections. It
%% ends with the port.
-spec add_session(Name :: binary(), port(), Guard :: pid(), inet_rdma_session:t(), [
    gen_tcp:option()
]) -> ok.
add_session(Name, Port, Guard, Session, Options) ->
    ok = quietly(fun() -> ets:insert(?SESSIONS, {Name, Port, Guard, Session, Options}) end),
    _ =
        is_due({<<>>, 0, wakeup}, ?RECENT_MS) andalso
            inet_rdma_sleeper:tell(inet_rdma_wakeup, watch),
    kept(Port, {session, Name}).

%% The keeper removes the row when this process or port ends.
kept(Owner, Key) -> inet_rdma_sleeper:tell(inet_rdma_keeper, {watch, Owner, Key}).

%% unknown: there is no table.
-spec session(Name :: binary()) -> {ok, inet_rdma_session:t()} | none | unknown.
session(Name) ->
    case quietly(fun() -> ets:lookup(?SESSIONS, Name) end) of
        [{_, _Port, _Guard, Session, _Options}] -> {ok, Session};
        [] -> none;
        ok -> unknown
    end.

%% The session of the living link to this node.
-spec session_of(Node :: binary()) -> {ok, inet_rdma_session:t()} | none.
session_of(Node) ->
    case quietly(fun() -> ets:lookup(?LINKS, Node) end) of
        [{_, Supervisor, {session, Session}, _Fabric, _Why, _Since}] ->
            case is_process_alive(Supervisor) of
                true -> {ok, Session};
                false -> none
            end;
        _ ->
            none
    end.

-spec session_options(Name :: binary()) -> [gen_tcp:option()].
session_options(Name) ->
    case quietly(fun() -> ets:lookup(?SESSIONS, Name) end) of
        [{_, _Port, _Guard, _Session, Options}] -> Options;
        _ -> []
    end.

-spec set_session_options(Name :: binary(), [gen_tcp:option()]) -> ok.
set_session_options(Name, Options) ->
    quietly(fun() -> ets:update_element(?SESSIONS, Name, {5, Options}) end).

%% What carries the session, as the guard has heard.
-spec set_standing(Name :: binary(), inet_rdma_port:standing()) -> ok.
set_standing(Name, Standing) -> quietly(fun() -> ets:insert(?STANDINGS, {Name, Standing}) end).

-spec standing(Name :: binary()) -> inet_rdma_port:standing().
standing(Name) ->
    case quietly(fun() -> ets:lookup(?STANDINGS, Name) end) of
        [{_, Standing}] -> Standing;
        _ -> inet_rdma_port:first_standing()
    end.

%% Listens: where this node accepts connections, none: nowhere. PeerNode: what the peer has said
%% about its node.
-spec add_peer(
    Name :: binary(), Listens :: inet_rdma_peer_node:address() | none, inet_rdma_peer_node:state()
) -> ok.
add_peer(Name, Listens, PeerNode) ->
    quietly(fun() -> ets:insert(?PEERS, {Name, Listens, PeerNode, [], none, none}) end).

%% The session has no guard, and no row of its own.
-spec remove_peer(Name :: binary()) -> ok.
remove_peer(Name) -> quietly(fun() -> ets:delete(?PEERS, Name) end).

%% reached: how the session has got its connections, the newest first. ends: the addresses of the
%% one in use, as this node sees them. known_by: the EPMD that has known the peer's node since
%% nodeup.
-spec peer(Name :: binary()) ->
    #{
        listens := inet_rdma_peer_node:address() | none,
        peer_node := inet_rdma_peer_node:state(),
        reached := [reached()],
        ends := ends(),
        known_by := inet:ip_address() | none
    }.
peer(Name) ->
    case quietly(fun() -> ets:lookup(?PEERS, Name) end) of
        [{_, Listens, PeerNode, Reached, Ends, KnownBy}] ->
            #{
                listens => Listens,
                peer_node => PeerNode,
                reached => Reached,
                ends => Ends,
                known_by => KnownBy
            };
        _ ->
            #{listens => none, peer_node => none, reached => [], ends => none, known_by => none}
    end.

-spec set_peer_node(Name :: binary(), inet_rdma_peer_node:t()) -> ok.
set_peer_node(Name, PeerNode) ->
    quietly(fun() -> ets:update_element(?PEERS, Name, {3, PeerNode}) end).

-spec set_ends(Name :: binary(), ends()) -> ok.
set_ends(Name, Ends) -> quietly(fun() -> ets:update_element(?PEERS, Name, {5, Ends}) end).

-spec set_known_by(Name :: binary(), inet:ip_address()) -> ok.
set_known_by(Name, Ip) -> quietly(fun() -> ets:update_element(?PEERS, Name, {6, Ip}) end).

-spec add_reached(Name :: binary(), reached()) -> ok.
add_reached(Name, Reached) ->
    #{reached := Before} = peer(Name),
    Newest = lists:sublist([Reached | lists:delete(Reached, Before)], ?REACHED_MAX),
    quietly(fun() -> ets:update_element(?PEERS, Name, {4, Newest}) end).

-spec guard(Name :: binary()) -> {ok, pid()} | none.
guard(Name) ->
    case quietly(fun() -> ets:lookup(?SESSIONS, Name) end) of
        [{_, _Port, Guard, _Session, _Options}] -> {ok, Guard};
        _ -> none
    end.

-spec guards() -> [pid()].
guards() ->
    [Guard || {_, _Port, Guard, _, _} <- rows(quietly(fun() -> ets:tab2list(?SESSIONS) end))].

%% The process or port with which each row of a link or a session ends.
-spec owners() -> [{pid() | port(), key()}].
owners() ->
    [{Supervisor, {link, Node}} || {Node, Supervisor, _, _, _, _} <- ets:tab2list(?LINKS)] ++
        [{Port, {session, Name}} || {Name, Port, _, _, _} <- ets:tab2list(?SESSIONS)].

%% The row's process or port has ended. Another link to that node may be up by now.
-spec remove(key(), pid() | port()) -> ok.
remove({link, Node}, Supervisor) ->
    quietly(fun() -> ets:match_delete(?LINKS, {Node, Supervisor, '_', '_', '_', '_'}) end);
remove({session, Name}, Port) ->
    ok = remove_peer(Name),
    ok = quietly(fun() -> ets:delete(?STANDINGS, Name) end),
    quietly(fun() -> ets:match_delete(?SESSIONS, {Name, Port, '_', '_', '_'}) end).

-spec all() -> [row()].
all() ->
    Now = erlang:monotonic_time(millisecond),
    [
        #{
            node => Node,
            controller => Controller,
            fabric => Fabric,
            why => Why,
            up_ms => Now - Since
        }
     || {Node, Supervisor, Controller, Fabric, Why, Since} <- rows(
            quietly(fun() -> ets:tab2list(?LINKS) end)
        ),
        is_process_alive(Supervisor)
    ].

-spec rows(ok | [tuple()]) -> [tuple()].
rows(ok) -> [];
rows(Rows) -> Rows.

%% A target (named by its node and the number of its VM, so that a restarted one is new) has failed.
-spec failed(target(), Reason :: binary(), RetryMs :: non_neg_integer()) -> ok.
failed(Target, Reason, RetryMs) ->
    quietly(fun() ->
        Now = erlang:monotonic_time(millisecond),
        _ = ets:select_delete(?FAILURES, [{{'_', '$1', '_'}, [{'<', '$1', Now}], [true]}]),
        _ = [
            ets:delete(?FAILURES, ets:first(?FAILURES))
         || ets:info(?FAILURES, size) >= ?FAILURES_MAX
        ],
        ets:insert(?FAILURES, {Target, Now + RetryMs, Reason})
    end).

%% Why the target has failed lately, and for how long it is not tried again.
-spec failure(target()) -> none | {Reason :: binary(), LeftMs :: pos_integer()}.
failure(Target) ->
    Now = erlang:monotonic_time(millisecond),
    case quietly(fun() -> ets:lookup(?FAILURES, Target) end) of
        [{_, Until, Reason}] when Until > Now -> {Reason, Until - Now};
        _ -> none
    end.

%% True once in this time for the same subject: for what many events would repeat, as a log line.
-spec is_due(Subject :: target(), PauseMs :: pos_integer()) -> boolean().
is_due(Subject, PauseMs) -> failure(Subject) =:= none andalso failed(Subject, <<>>, PauseMs) =:= ok.

%% What the system says, by this function, now or in the last second: many links that begin at once
%% ask it once.
-spec recent(Fact :: atom(), fun(() -> Value)) -> Value.
recent(Fact, Function) ->
    Now = erlang:monotonic_time(millisecond),
    case quietly(fun() -> ets:lookup(?RECENT, Fact) end) of
        [{_, Until, Value}] when Until > Now ->
            Value;
        _ ->
            Value = Function(),
            ok = quietly(fun() -> ets:insert(?RECENT, {Fact, Now + ?RECENT_MS, Value}) end),
            Value
    end.

-spec count(counted()) -> ok.
count(Counted) -> add(Counted, 1).

-spec add(counted(), pos_integer()) -> ok.
add(Counted, Number) ->
    quietly(fun() -> ets:update_counter(?COUNTED, Counted, Number, {Counted, 0}) > 0 end).

%% Counts that are 0 are not in the list.
-spec counts() -> [{counted(), pos_integer()}].
counts() ->
    rows(quietly(fun() -> ets:tab2list(?COUNTED) end)).

%% Does nothing without the tables, which end with the distribution.
-spec quietly(fun(() -> boolean() | Result)) -> ok | Result.
quietly(Do) ->
    try Do() of
        true -> ok;
        false -> ok;
        Result -> Result
    catch
        error:badarg -> ok
    end.

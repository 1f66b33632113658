%% The table of links: how each is carried and why, and which ways to which peers have failed.
%%
%% net_kernel owns it: it lives as long as the distribution does.
-module(inet_rdma_links).

-export([start/0, insert/4, update/4, all/0, failed/3, failure/1, count/1, counts/0]).
-export([add_session/3, remove_session/1, session/1, session_options/1, set_session_options/2]).
-export_type([counted/0, row/0]).

-define(TABLE, ?MODULE).

%% Maximum number of failed ways that are remembered; further ones are tried again at once.
-define(FAILURES_MAX, 4096).
%% Ended links are removed whenever the number of rows is a multiple of this.
-define(SWEEP, 256).
%% Selects the rows of links: their supervisor, connection, fabric, why, and the time when they came, in milliseconds as
%% of erlang:monotonic_time/1.
-define(LINKS, [{{{link, '_'}, '_', '_', '_', '_', '_'}, [], ['$_']}]).

%% Events that are counted for as long as the distribution lives. stayed: a link stayed on TCP after these fabrics were
%% tried. refused: the option required refused a link. settlement_failed: a settlement broke off, or its peer left.
%% resume_refused: an attempt to resume named a session that is not known, or had not its secret.
-type counted() :: {stayed, Tried :: [inet_rdma_options:link_fabric()]} | refused | settlement_failed
                 | resume_refused.

%% fabric: <<"tcp">>, <<"tls">>, <<"shm">> or <<"verbs">>. connection: the one on which the link began, or its session.
%% up_ms: for how long the link has been there.
-type row() :: #{node := binary(), connection := inet_rdma_transport:t(), fabric := binary(), why := binary(),
                 up_ms := non_neg_integer()}.

%% Makes the table, if there is none; the caller owns it.
-spec start() -> ok.
start() ->
    case ets:whereis(?TABLE) of
        undefined -> _ = ets:new(?TABLE, [named_table, public]), ok;
        _ -> ok
    end.

%% The caller supervises the link.
-spec insert(binary(), inet_rdma_transport:t(), Fabric :: binary(), Why :: binary()) -> ok.
insert(Node, Connection, Fabric, Why) ->
    quietly(fun() ->
                    ets:info(?TABLE, size) rem ?SWEEP =:= 0 andalso sweep(),
                    Since = erlang:monotonic_time(millisecond),
                    ets:insert(?TABLE, {{link, Node}, self(), Connection, Fabric, Why, Since})
            end).

%% Another path carries the link of this supervisor.
-spec update(pid(), binary(), Fabric :: binary(), Why :: binary()) -> ok.
update(Supervisor, Node, Fabric, Why) ->
    quietly(fun() ->
                    case ets:lookup(?TABLE, {link, Node}) of
                        [{_, Supervisor, _, _, _, _}] ->
                            ets:update_element(?TABLE, {link, Node}, [{4, Fabric}, {5, Why}]);
                        _ -> true
                    end
            end).

%% A session of this node, by its name, and the socket options of each of its TCP connections.
-spec add_session(Name :: binary(), inet_rdma_session:t(), [gen_tcp:option()]) -> ok.
add_session(Name, Session, Options) ->
    quietly(fun() -> ets:insert(?TABLE, {{session, Name}, Session, Options}) end).

-spec remove_session(Name :: binary()) -> ok.
remove_session(Name) ->
    quietly(fun() -> ets:delete(?TABLE, {session, Name}) end).

-spec session(Name :: binary()) -> {ok, inet_rdma_session:t()} | none.
session(Name) ->
    case quietly(fun() -> ets:lookup(?TABLE, {session, Name}) end) of
        [{_, Session, _Options}] -> {ok, Session};
        _ -> none
    end.

-spec session_options(Name :: binary()) -> [gen_tcp:option()].
session_options(Name) ->
    case quietly(fun() -> ets:lookup(?TABLE, {session, Name}) end) of
        [{_, _Session, Options}] -> Options;
        _ -> []
    end.

-spec set_session_options(Name :: binary(), [gen_tcp:option()]) -> ok.
set_session_options(Name, Options) ->
    quietly(fun() -> ets:update_element(?TABLE, {session, Name}, {3, Options}) end).

%% Removes rows of nodes that never come back, such as those of erl_call and remote shells.
sweep() ->
    Rows = ets:select(?TABLE, ?LINKS),
    _ = [ets:delete_object(?TABLE, Row) || Row <- Rows, not is_process_alive(element(2, Row))],
    ok.

%% The links whose supervisors live.
-spec all() -> [row()].
all() ->
    Rows = quietly(fun() -> ets:select(?TABLE, ?LINKS) end),
    lists:append([living(Row) || Row <- rows(Rows)]).

rows(ok) -> [];
rows(Rows) -> Rows.

living({{link, Node}, Supervisor, Connection, Fabric, Why, Since} = Row) ->
    case is_process_alive(Supervisor) of
        true ->
            [#{node => Node, connection => Connection, fabric => Fabric, why => Why,
               up_ms => erlang:monotonic_time(millisecond) - Since}];
        false ->
            ets:delete_object(?TABLE, Row),
            []
    end.

%% A way to a peer (named by its node and the number of its VM, so that a restarted one is new) has failed.
-spec failed({Node :: binary(), Instance :: integer(), Fabric :: atom()}, Reason :: binary(),
             RetryMs :: non_neg_integer()) -> ok.
failed(Way, Reason, RetryMs) ->
    quietly(fun() ->
                    Now = erlang:monotonic_time(millisecond),
                    _ = ets:select_delete(?TABLE, [{{{failed, '_'}, '$1', '_'}, [{'<', '$1', Now}], [true]}]),
                    ets:info(?TABLE, size) < ?FAILURES_MAX andalso
                        ets:insert(?TABLE, {{failed, Way}, Now + RetryMs, Reason})
            end).

%% Why the way has failed lately, and for how long it is not tried again.
-spec failure({Node :: binary(), Instance :: integer(), Fabric :: atom()}) ->
          none | {Reason :: binary(), LeftMs :: pos_integer()}.
failure(Way) ->
    Now = erlang:monotonic_time(millisecond),
    case quietly(fun() -> ets:lookup(?TABLE, {failed, Way}) end) of
        [{_, Until, Reason}] when Until > Now -> {Reason, Until - Now};
        _ -> none
    end.

-spec count(counted()) -> ok.
count(Counted) ->
    quietly(fun() -> ets:update_counter(?TABLE, {count, Counted}, 1, {{count, Counted}, 0}) > 0 end).

%% Counts that are 0 are not in the list.
-spec counts() -> [{counted(), pos_integer()}].
counts() ->
    rows(quietly(fun() -> ets:select(?TABLE, [{{{count, '$1'}, '$2'}, [], [{{'$1', '$2'}}]}]) end)).

%% Does nothing without the table, which ends with net_kernel.
quietly(Do) ->
    try Do() of
        true -> ok;
        false -> ok;
        Result -> Result
    catch
        error:badarg -> ok
    end.

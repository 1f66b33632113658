%% The supervisor of what the distribution needs beside its links. It owns the tables of
%% inet_rdma_links, so that no process which does work takes them with it when it dies.
%%
%% It runs under net_kernel's supervisor net_sup, which asks the carrier for it (childspecs/0) at
%% each start of the distribution, before net_kernel: on a node that does not listen, too. net_sup
%% restarts nothing: the death of any child but a temporary one ends the node. So this supervisor is
%% temporary. If its children die again and again it gives up, and the node goes on: links stay up,
%% but those that are lost cannot be resumed. Watches, without which they can, have a supervisor of
%% their own. Guards of sessions, and what runs beside detours, have supervisors, too, which restart
%% nothing and so never give up.
-module(inet_rdma_sup).

-behaviour(supervisor).

-export([
    childspec/0, start_link/1, start_watch/1, start_relay/1, start_return/2, start_guard/1, init/1
]).

%% Children are ended by this many restarts in this number of seconds.
-define(RESTARTS_MAX, 10).
-define(RESTARTS_SECONDS, 60).

%% The supervisors of watches, of the detours which this node relays for others, and of the
%% processes that take this node's links back from detours and from small segments.
-define(WATCHES, inet_rdma_watches).
-define(DETOURS, inet_rdma_detours).
-define(RETURNS, inet_rdma_returns).

-define(GUARDS, inet_rdma_guards).
%% How long the supervisor of a link waits for a guard: less than the time of net_setuptime, 7 s.
-define(START_MS, 5000).

-spec childspec() -> supervisor:child_spec().
childspec() -> supervisor(?MODULE).

supervisor(Name) ->
    #{
        id => Name,
        start => {?MODULE, start_link, [Name]},
        restart => temporary,
        shutdown => infinity,
        type => supervisor,
        modules => [?MODULE]
    }.

-spec start_link(Name :: atom()) -> {ok, pid()} | {error, term()}.
start_link(Name) -> supervisor:start_link({local, Name}, ?MODULE, Name).

%% For a process that net_kernel can only start when it knows the node's name. Without this
%% supervisor, which ends with the distribution, none starts.
-spec start_watch(supervisor:child_spec()) -> supervisor:startchild_ret().
start_watch(Spec) ->
    try
        supervisor:start_child(?WATCHES, Spec)
    catch
        exit:Reason -> {error, Reason}
    end.

%% Without this supervisor, which ends with the distribution, none starts.
-spec start_relay(inet_rdma_detour_relay:request()) -> {ok, pid()} | none.
start_relay(Request) -> start_temporary(?DETOURS, [Request]).

%% The same for the process that takes a session back from such a connection.
-spec start_return(inet_rdma_session:t(), inet_rdma_detour_return:from()) -> {ok, pid()} | none.
start_return(Session, From) -> start_temporary(?RETURNS, [Session, From]).

start_temporary(Supervisor, Arguments) ->
    try supervisor:start_child(Supervisor, Arguments) of
        {ok, Pid} when is_pid(Pid) -> {ok, Pid};
        {ok, undefined} -> none;
        {error, _} -> none
    catch
        exit:_ -> none
    end.

%% Not started: the session's port has ended, or the supervisor does not answer: the link does not
%% come up then, and a guard that starts late finds no port.
-spec start_guard(inet_rdma_session_guard:arguments()) ->
    supervisor:startchild_ret() | timeout | no_supervisor.
start_guard(Arguments) ->
    try gen_server:call(?GUARDS, {start_child, [Arguments]}, ?START_MS) of
        {error, {'EXIT', {system_limit = Reason, _}}} -> {error, Reason};
        Started -> Started
    catch
        exit:{timeout, _} -> timeout;
        exit:_ -> no_supervisor
    end.

-spec init(Name :: atom()) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init(?WATCHES) ->
    {ok, {flags(), []}};
init(?DETOURS) ->
    Relay = #{
        id => inet_rdma_detour_relay,
        start => {inet_rdma_detour_relay, start_link, []},
        restart => temporary,
        shutdown => brutal_kill
    },
    {ok, {(flags())#{strategy := simple_one_for_one}, [Relay]}};
init(?RETURNS) ->
    Return = #{
        id => inet_rdma_detour_return,
        start => {inet_rdma_detour_return, start_link, []},
        restart => temporary
    },
    {ok, {(flags())#{strategy := simple_one_for_one}, [Return]}};
init(?GUARDS) ->
    Guard = #{
        id => inet_rdma_session_guard,
        start => {inet_rdma_session_guard, start_link, []},
        restart => temporary
    },
    {ok, {(flags())#{strategy := simple_one_for_one}, [Guard]}};
init(?MODULE) ->
    ok = inet_rdma_links:new(),
    ok = inet_rdma_modules:new(),
    ok = inet_rdma_detours:new(),
    Keeper = #{id => inet_rdma_keeper, start => {inet_rdma_keeper, start_link, []}},
    Wakeup = #{id => inet_rdma_wakeup, start => {inet_rdma_wakeup, start_link, []}},
    Supervisors = [supervisor(Name) || Name <- [?WATCHES, ?DETOURS, ?RETURNS, ?GUARDS]],
    {ok, {flags(), [Keeper, Wakeup | Supervisors]}}.

flags() -> #{strategy => one_for_one, intensity => ?RESTARTS_MAX, period => ?RESTARTS_SECONDS}.

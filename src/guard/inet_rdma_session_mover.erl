%% The settlements in band of a link that TCP carries: when the next one is, and the process that
%% settles, the mover.
%%
%% The initiator's guard begins a settlement; the acceptor's guard starts its mover at the first
%% message of the peer's.
-module(inet_rdma_session_mover).

-export([
    new/3,
    start/1,
    stop/1,
    again/1,
    later/1,
    wait_for_tcp/1,
    handle_restored/1,
    handle_timeout/1,
    handle_down/3,
    handle_moved/1,
    is_running/1,
    has_failed/1,
    forward/2
]).
%% Spawned.
-export([settle/2]).
-export_type([t/0, outcome/0]).

%% retry_ms: the option fallback_retry_ms; 0: this side begins no other settlement after a failure.
%% next: what the next settlement waits for: the guard's timeout `settle', or another TCP connection
%% (restored). timer: what the guard does with that timeout. failed: settlements in a row without a
%% queue pair.
-type t() :: #{
    session := inet_rdma_session:t(),
    node := binary(),
    retry_ms := non_neg_integer(),
    process := none | {pid(), reference()},
    next := none | restored | timeout,
    timer := inet_rdma_session_guard:timer(),
    failed := non_neg_integer()
}.

%% crashed: the mover's exit reason.
-type outcome() :: {settled, inet_rdma_settlement:outcome()} | {crashed, term()}.

%% The longest pause between settlements. Each pause is twice as long as the one before; the first
%% is the option fallback_retry_ms.
-define(RETRY_MS_MAX, 3600000).
%% The pause after a settlement that ended with the TCP connection.
-define(AGAIN_MS, 1000).

-spec new(inet_rdma_session:t(), Node :: binary(), inet_rdma_options:config()) -> t().
new(Session, Node, Config) ->
    #{
        session => Session,
        node => Node,
        retry_ms => retry_ms(inet_rdma_session:role(Session), Config),
        process => none,
        next => none,
        timer => keep,
        failed => 0
    }.

retry_ms(initiator, #{move := Move, fallback_retry_ms := RetryMs}) when Move =/= never -> RetryMs;
retry_ms(_Role, _Config) -> 0.

-spec start(t()) -> t().
start(#{session := Session, node := Node, process := none} = Mover) ->
    case inet_rdma_bounded:start_monitored(?MODULE, settle, [Session, Node]) of
        {ok, Process} -> Mover#{process := Process};
        {error, system_limit} -> again(Mover)
    end.

%% Settles. The exit reason is the outcome. The process has the keys of the queue pair: its crash is
%% reported by the guard, without any term.
-spec settle(inet_rdma_session:t(), Node :: binary()) -> no_return().
settle(Session, Node) ->
    Outcome =
        try
            settlement(Session, Node)
        catch
            _Class:Reason:Stack -> {crashed, inet_rdma_crash:reason(Reason, Stack)}
        end,
    exit(Outcome).

settlement(Session, Node) ->
    case inet_rdma_options:node() of
        {ok, Config} ->
            {settled, inet_rdma_settlement:settle_in_band(Session, Node, Config)};
        {error, Reason} ->
            {settled, {error, unicode:characters_to_binary(inet_rdma_options:format_error(Reason))}}
    end.

%% Ends a settlement that cannot go on: its TCP connection is lost, or the initiator has begun
%% another one.
-spec stop(t()) -> t().
stop(#{process := none} = Mover) ->
    Mover;
stop(#{process := Process, session := Session} = Mover) ->
    ok = inet_rdma_session:stop_process(Process),
    _ = inet_rdma_port:command(inet_rdma_session:port(Session), drop_queue),
    again(Mover#{process := none}).

%% Settles again soon: it was the TCP connection that failed, or the process table is full.
-spec again(t()) -> t().
again(Mover) -> Mover#{next := timeout, timer := ?AGAIN_MS}.

%% Settles again after a pause, as the last settlement brought no queue pair that carries.
-spec later(t()) -> t().
later(#{next := none, retry_ms := RetryMs, failed := Failed} = Mover) when RetryMs > 0 ->
    AfterMs = min(?RETRY_MS_MAX, RetryMs bsl min(Failed, 12)),
    Mover#{next := timeout, timer := AfterMs, failed := Failed + 1};
later(Mover) ->
    Mover.

-spec wait_for_tcp(t()) -> t().
wait_for_tcp(Mover) -> Mover#{next := restored, timer := infinity}.

%% The link has a TCP connection again. due: a settlement was waiting for it.
-spec handle_restored(t()) -> {due | not_due, t()}.
handle_restored(#{next := restored} = Mover) -> {due, Mover#{next := none}};
handle_restored(Mover) -> {not_due, Mover}.

-spec handle_timeout(t()) -> {due | not_due, t()}.
handle_timeout(#{next := timeout} = Mover) -> {due, Mover#{next := none}};
handle_timeout(Mover) -> {not_due, Mover}.

%% A process has ended. unknown: it was not the mover.
-spec handle_down({pid(), reference()}, Exit :: term(), t()) -> {outcome(), t()} | unknown.
handle_down(Process, Exit, #{process := Process} = Mover) ->
    {outcome(Exit), Mover#{process := none}};
handle_down(_Other, _Exit, _Mover) ->
    unknown.

outcome({Kind, _} = Outcome) when Kind =:= settled; Kind =:= crashed -> Outcome;
outcome(Exit) -> {crashed, Exit}.

-spec handle_moved(t()) -> t().
handle_moved(Mover) -> Mover#{failed := 0}.

-spec is_running(t()) -> boolean().
is_running(#{process := Process}) -> Process =/= none.

-spec has_failed(t()) -> boolean().
has_failed(#{failed := Failed}) -> Failed > 0.

%% Without a mover the message is dropped: the peer's settlement ends after its time, and it begins
%% another one.
-spec forward(Message :: binary(), t()) -> ok.
forward(_Message, #{process := none}) ->
    ok;
forward(Message, #{process := {Process, _}, session := Session}) ->
    Process ! {session, inet_rdma_session:port(Session), Message},
    ok.

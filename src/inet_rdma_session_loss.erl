%% The loss of a session's TCP connection: the attempts to make another one, from the loss until one is there.
-module(inet_rdma_session_loss).

-export([new/3, handle_uncarried/1, handle_restored/1, handle_down/3, handle_timer/2, is_over/2, why_not_resumed/1,
         facts/1, stop/1]).
-export_type([t/0, peer/0, reason/0]).

-record(loss, {
    session :: inet_rdma_session:t(),
    node :: binary(),
    peer :: peer(),
    survive_ms :: pos_integer(),
    %% As of erlang:monotonic_time/0.
    since :: integer(),
    reason :: reason(),
    why :: binary(),
    %% The process that makes the connection (inet_rdma_resume).
    dialer = none :: none | {pid(), reference()},
    %% Attempts that have failed, and why the last one failed.
    tries = 0 :: non_neg_integer(),
    failure = none :: term(),
    %% The timer until the next attempt.
    retry = none :: none | reference(),
    %% While no path carries the link: the timer until the link is given up.
    bound = none :: none | reference()
}).

-opaque t() :: #loss{}.
%% Where the peer accepts connections; none: nowhere, and only the peer can make another connection.
-type peer() :: {inet:ip_address(), inet:port_number()} | none.
-type reason() :: inet_rdma_link_event:lost() | inet_rdma:reason() | unknown.

%% Pauses between attempts: the first, and the longest. Each is twice as long as the one before.
-define(RETRY_MS, 20).
-define(RETRY_MS_MAX, 1000).
%% The longest pause while a queue pair carries the link, so that no packet waits.
-define(STANDBY_RETRY_MS_MAX, 30000).
%% Time that a peer which accepts no connections has to make another one.
-define(UNREACHABLE_MS, 1000).

-spec new({inet_rdma_session:t(), Node :: binary(), peer(), SurviveMs :: pos_integer()},
          {reason(), Why :: binary()}, IsCarried :: boolean()) -> t().
new({Session, Node, Peer, SurviveMs}, {Reason, Why}, IsCarried) ->
    Loss = #loss{session = Session, node = Node, peer = Peer, survive_ms = SurviveMs,
                 since = erlang:monotonic_time(), reason = Reason, why = Why},
    case IsCarried of
        true -> dial(Loss);
        false -> dial(start_bound(Loss))
    end.

%% No path carries the link from now on: there is an attempt at once, and the time of the option survive_ms begins.
-spec handle_uncarried(t()) -> t().
handle_uncarried(#loss{retry = Retry} = Loss) ->
    ok = cancel(Retry),
    dial(start_bound(Loss#loss{retry = none, tries = 0})).

%% The port's message restored. given_up: the dialer had begun another attempt before this message was handled, and its
%% attempt has given that connection up. The port refuses the peer's attempts, whose numbers are smaller, and tells of
%% the loss only 10 s later: this side makes another attempt at once.
-spec handle_restored(t()) -> restored | {given_up, t()}.
handle_restored(#loss{session = Session} = Loss) ->
    ok = stop(Loss),
    case inet_rdma_port:statistics(inet_rdma_session:port(Session)) of
        {ok, #{has_tcp := false}} ->
            {given_up, dial(Loss#loss{dialer = none, retry = none, bound = none, tries = 0})};
        _ ->
            restored
    end.

%% A peer that accepts no connections cannot be asked whether it lives.
start_bound(#loss{bound = none, peer = none, survive_ms = SurviveMs} = Loss) ->
    Loss#loss{bound = erlang:start_timer(min(SurviveMs, ?UNREACHABLE_MS), self(), bound)};
start_bound(#loss{bound = none, survive_ms = SurviveMs} = Loss) ->
    Loss#loss{bound = erlang:start_timer(SurviveMs, self(), bound)};
start_bound(Loss) ->
    Loss.

dial(#loss{peer = Peer, dialer = none, session = Session, node = Node} = Loss) when Peer =/= none ->
    Loss#loss{dialer = inet_rdma_session:dial(Session, Node, Peer)};
dial(Loss) ->
    Loss.

%% A process has ended. unknown: it was not the dialer.
-spec handle_down({pid(), reference()}, Exit :: term(), t() | none) -> {ok, t()} | {give_up, Why :: binary()} | unknown.
handle_down(Dialer, Result, #loss{dialer = Dialer} = Loss) -> dialed(Result, Loss#loss{dialer = none});
handle_down(_Other, _Exit, _Loss) -> unknown.

dialed({dead, Why}, #loss{session = Session, node = Node} = Loss) ->
    ok = inet_rdma_recorder:record(redial, Node, #{cause => dead, why => Why}),
    case inet_rdma_port:statistics(inet_rdma_session:port(Session)) of
        {ok, #{carried_by_queue := false, has_tcp := false}} -> {give_up, Why};
        %% The peer has connected by itself, or the queue pair carries the link.
        _ -> {ok, retry(Loss)}
    end;
dialed({failed, Reason}, #loss{node = Node} = Loss) ->
    ok = inet_rdma_recorder:record(redial, Node, #{cause => Reason}),
    {ok, retry(Loss#loss{failure = Reason})};
%% After resumed the port's message `restored` ends the loss. The retry is for the case that the connection is lost
%% again before that.
dialed(_ResumedSupersededOrCrashed, Loss) ->
    {ok, retry(Loss)}.

retry(#loss{session = Session, tries = Tries} = Loss) ->
    MaxMs = case inet_rdma_port:is_carried_by_queue(inet_rdma_session:port(Session)) of
                true -> ?STANDBY_RETRY_MS_MAX;
                false -> ?RETRY_MS_MAX
            end,
    AfterMs = min(MaxMs, ?RETRY_MS bsl min(Tries, 16)),
    Loss#loss{tries = Tries + 1, retry = erlang:start_timer(AfterMs, self(), retry)}.

%% The message {timeout, Timer, retry}.
-spec handle_timer(reference(), t()) -> t().
handle_timer(Timer, #loss{retry = Timer} = Loss) -> dial(Loss#loss{retry = none});
handle_timer(_Old, Loss) -> Loss.

%% The message {timeout, Timer, bound}. True if the link's time is over.
-spec is_over(reference(), t()) -> boolean().
is_over(Timer, #loss{bound = Bound}) -> Timer =:= Bound.

-spec why_not_resumed(t()) -> Why :: binary().
why_not_resumed(#loss{peer = none, why = Why}) ->
    text("its TCP connection ended (~ts), and the peer, which accepts no connections, has not made another", [Why]);
why_not_resumed(#loss{why = Why, failure = none}) ->
    text("nothing carried it for the time of the option survive_ms (~ts)", [Why]);
why_not_resumed(#loss{why = Why, failure = Failure}) ->
    text("nothing carried it for the time of the option survive_ms (~ts); the last attempt to connect failed: ~tp",
         [Why, Failure]).

text(Format, Arguments) -> unicode:characters_to_binary(io_lib:format(Format, Arguments)).

%% The reason of the loss, and the time since then, in native units.
-spec facts(t()) -> {reason(), Why :: binary(), Duration :: integer()}.
facts(#loss{reason = Reason, why = Why, since = Since}) -> {Reason, Why, erlang:monotonic_time() - Since}.

%% There is another connection, or the link has ended.
-spec stop(t() | none) -> ok.
stop(none) ->
    ok;
stop(#loss{dialer = Dialer, retry = Retry, bound = Bound}) ->
    _ = [ok = inet_rdma_session:stop_process(Dialer) || Dialer =/= none],
    ok = cancel(Retry),
    cancel(Bound).

cancel(none) ->
    ok;
cancel(Timer) ->
    _ = erlang:cancel_timer(Timer),
    ok.

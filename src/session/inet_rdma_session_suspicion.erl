%% Suspected paths of a link with a session (inet_rdma_session_events): attempts are made beside them.
-module(inet_rdma_session_suspicion).

-export([suspected/1, suspected/2, woke/1]).

-type t() :: inet_rdma_session_data:t().

%% A connection that stalls within this time, though an attempt has just made it, may be on a way that drops packets of
%% full size and lets smaller ones pass.
-define(NARROW_MS, 5000).

%% The port's notice: a path does not answer. The path that carries the link goes on.
-spec suspected(t()) -> t().
suspected(#{standing := {carried, queue_pair, _}} = Guarded) -> suspected(standby, Guarded);
suspected(Guarded) -> suspected(path, Guarded).

-spec suspected(path | standby | woke, t()) -> t().
suspected(Suspicion, Guarded) ->
    IsNarrow = Suspicion =:= path andalso is_new(Guarded),
    Why = inet_rdma_session_log:suspected(Suspicion, IsNarrow, inet_rdma_session_data:facts(Guarded)),
    case Guarded of
        #{config := #{survive_ms := 0}} -> Guarded;
        _ -> Guarded#{loss := inet_rdma_session_loss:suspect(Guarded, {etimedout, Why}, Suspicion, IsNarrow)}
    end.

is_new(#{restored_at := never}) -> false;
is_new(#{restored_at := At}) -> erlang:monotonic_time(millisecond) - At < ?NARROW_MS.

%% Told by inet_rdma_wakeup: this node stood still. The port sends nothing over its paths from now on, until another
%% connection is there or the peer is heard over this one. A link that can make no other connection goes on as it is.
-spec woke(t()) -> t().
woke(#{config := #{survive_ms := 0}} = Guarded) ->
    Guarded;
woke(#{session := Session, peer := Peer, port := Port} = Guarded) ->
    case inet_rdma_dialer:has_addresses(Session, Peer) andalso inet_rdma_port:command(Port, suspect) of
        {ok, _} -> dial(Guarded);
        _ -> Guarded
    end.

%% Its notices come behind this event. An attempt that is under way already goes on, in haste if nothing carries the
%% link meanwhile.
dial(#{queue := Queue, loss := Loss} = Guarded) ->
    case {Queue =/= none andalso inet_rdma_queue:fabric(Queue), Loss} of
        {<<"shm">>, none} -> suspected(standby, Guarded);
        {<<"shm">>, _} -> Guarded;
        {_, none} -> suspected(woke, Guarded);
        _ -> Guarded#{loss := inet_rdma_session_loss:handle_woke(Loss)}
    end.

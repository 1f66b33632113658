%% The loss of a session's TCP connection: the attempts to make another one, from the loss until one
%% is there.
-module(inet_rdma_session_loss).

-export([
    new/4,
    suspect/4,
    upgraded/1,
    handle_lost/4,
    handle_uncarried/2,
    handle_woke/1,
    handle_neighbour/2,
    handle_down/3,
    handle_retry/1,
    handle_bound/1,
    take_timers/1,
    is_outage/1,
    why_not_resumed/1,
    suspicion/1,
    facts/1,
    stop/1
]).
-export_type([t/0, peer/0, reason/0, suspicion/0]).

-import(inet_rdma_text, [text/2]).

%% since: by erlang:monotonic_time/0. suspicion: the kind of path that is only suspected; none: a
%% path is lost. refused_ms: the option. dialer: the process that makes the connection
%% (inet_rdma_dialer). has_bound: the time of survive_ms is running, as no path carries the link.
%% is_narrow: attempts make connections of small segments. timers: what the guard does with its
%% timeouts `retry' and `bound'.
-opaque t() :: #{
    session := inet_rdma_session:t(),
    node := binary(),
    peer := peer(),
    survive_ms := pos_integer(),
    refused_ms := non_neg_integer(),
    since := integer(),
    reason := reason(),
    why := binary(),
    suspicion := suspicion(),
    dialer := none | {pid(), reference()},
    is_in_order := boolean(),
    is_uncarried := boolean(),
    has_bound := boolean(),
    is_narrow := boolean(),
    timers := #{timer() => timeout()}
}.
%% standby: the TCP connection that stands by while a queue pair carries the link. woke: the path
%% that carries the link, as this node was paused; nothing is sent over it.
-type suspicion() :: none | path | standby | woke.
%% retry: until the next dialer, if one has crashed. bound: until the link is given up. outage:
%% until a suspicion is logged as one that lasts.
-type timer() :: retry | bound | outage.
%% Where the peer accepts connections; none: nowhere, and only the peer can make another connection.
-type peer() :: inet_rdma_peer_node:address() | none.
-type reason() :: inet_rdma_link_event:lost() | inet_rdma:reason() | unknown.

%% The pause after a dialer that has crashed, or that finds no place in the process table.
-define(RETRY_MS, 1000).
%% The option refused_ms, of a guard that another version of its module has started.
-define(REFUSED_MS, 2000).
%% A suspicion that lasts for this time is more than the loss of a few packets.
-define(OUTAGE_MS, 3000).
%% Time that a peer which accepts no connections has to make another one; again and again while its
%% process lives.
-define(UNREACHABLE_MS, 1000).

%% TcpReason: of the connection; queue_pair: this side gave it up as it had lost the queue pair.
-spec new(
    inet_rdma_session_data:t(),
    TcpReason :: reason(),
    {reason(), Why :: binary()},
    IsCarried :: boolean()
) ->
    t().
new(Link, TcpReason, Reason, IsCarried) ->
    begin_with(Link, Reason, #{
        suspicion => none,
        is_in_order => is_in_order(TcpReason),
        is_uncarried => not IsCarried
    }).

%% The same for a path that is only suspected. IsNarrow: it may be a way that drops packets of full
%% size.
-spec suspect(
    inet_rdma_session_data:t(), {reason(), Why :: binary()}, suspicion(), IsNarrow :: boolean()
) -> t().
suspect(Link, Reason, Suspicion, IsNarrow) ->
    set(
        outage,
        ?OUTAGE_MS,
        begin_with(Link, Reason, #{
            suspicion => Suspicion,
            is_in_order => false,
            is_uncarried => false,
            is_narrow => IsNarrow
        })
    ).

begin_with(#{config := #{survive_ms := SurviveMs} = Config} = Link, {Reason, Why}, Facts) ->
    Loss = Facts#{
        survive_ms => SurviveMs,
        refused_ms => maps:get(refused_ms, Config, ?REFUSED_MS),
        since => erlang:monotonic_time(),
        reason => Reason,
        why => Why
    },
    dial(start_bound(upgraded(maps:merge(maps:with([session, node, peer], Link), Loss)))).

%% A loss that another version of this module has begun: fields that it lacks get their first
%% values.
-spec upgraded(map()) -> t().
upgraded(Loss) ->
    Defaults = #{
        dialer => none,
        has_bound => false,
        is_narrow => false,
        refused_ms => ?REFUSED_MS,
        timers => #{}
    },
    maps:merge(Defaults, Loss).

%% What was only suspected is lost, for this reason. The dialer goes on.
-spec handle_lost(TcpReason :: reason(), {reason(), Why :: binary()}, IsCarried :: boolean(), t()) ->
    t().
handle_lost(TcpReason, {Reason, Why}, IsCarried, Suspected) ->
    Loss = Suspected#{
        suspicion := none,
        since := erlang:monotonic_time(),
        reason := Reason,
        why := Why,
        is_in_order := is_in_order(TcpReason)
    },
    case IsCarried of
        true -> dial(Loss);
        false -> handle_uncarried(TcpReason, Loss)
    end.

%% No path carries the link from now on: there is an attempt at once, and the time of the option
%% survive_ms begins. TcpReason: of a connection that was made meanwhile; queue_pair: the queue pair
%% is lost, too.
-spec handle_uncarried(reason(), t()) -> t().
handle_uncarried(TcpReason, #{dialer := Dialer, is_in_order := IsInOrder} = Loss) ->
    _ = [ok = inet_rdma_dialer:uncarried(Pid, TcpReason) || {Pid, _} <- [Dialer]],
    IsStill = is_in_order(TcpReason) orelse TcpReason =:= queue_pair andalso IsInOrder,
    dial(start_bound(Loss#{is_uncarried := true, suspicion := none, is_in_order := IsStill})).

%% This node was paused, and sends nothing over the path that carried the link.
-spec handle_woke(t()) -> t().
handle_woke(#{dialer := {Pid, _}} = Loss) ->
    ok = inet_rdma_dialer:uncarried(Pid, woke),
    Loss;
handle_woke(Loss) ->
    dial(Loss).

%% A neighbour knows this of the peer's VM.
-spec handle_neighbour(inet_rdma_witness:said(), t()) -> ok.
handle_neighbour(Said, #{dialer := {Pid, _}}) -> inet_rdma_dialer:neighbour(Pid, Said);
handle_neighbour(_Said, _Loss) -> ok.

%% After an end in order the peer's host is well. A living side that gives a connection up resets
%% it.
is_in_order(TcpReason) -> TcpReason =:= closed.

%% A peer that accepts no connections cannot be asked whether it lives. It makes another one itself,
%% unless its host has ended the connection in order or says that its process has ended.
start_bound(#{has_bound := false, is_uncarried := true, survive_ms := SurviveMs} = Loss) ->
    Ms =
        case {is_reachable(Loss), has_ended(Loss)} of
            {true, _} -> SurviveMs;
            {false, true} -> 0;
            {false, false} -> min(SurviveMs, ?UNREACHABLE_MS)
        end,
    set(bound, Ms, Loss#{has_bound := true});
start_bound(Loss) ->
    Loss.

has_ended(#{is_in_order := IsInOrder} = Loss) ->
    IsInOrder andalso inet_rdma_peer_node:is_direct(peer_node(Loss)) orelse
        host_witness(Loss) =:= dead.

host_witness(Loss) -> inet_rdma_peer_node:host_witness(peer_node(Loss)).

peer_node(#{session := Session}) ->
    #{peer_node := PeerNode} = inet_rdma_links:peer(inet_rdma_session:name(Session)),
    PeerNode.

is_reachable(#{session := Session, peer := Peer}) -> inet_rdma_dialer:has_addresses(Session, Peer).

dial(#{dialer := none, session := Session, node := Node, peer := Peer} = Loss) ->
    #{
        is_in_order := IsInOrder,
        is_uncarried := IsUncarried,
        suspicion := Suspicion,
        is_narrow := IsNarrow,
        refused_ms := RefusedMs
    } = Loss,
    case is_reachable(Loss) of
        true ->
            Options = #{
                node => Node,
                peer => Peer,
                is_in_order => IsInOrder,
                is_narrow => IsNarrow,
                refused_ms => RefusedMs,
                is_uncarried => IsUncarried orelse Suspicion =:= woke
            },
            ok = inet_rdma_detour_return:stop(Session),
            case inet_rdma_dialer:start(Session, Options) of
                {ok, Dialer} -> Loss#{dialer := Dialer};
                {error, system_limit} -> set(retry, ?RETRY_MS, Loss)
            end;
        false ->
            Loss
    end;
dial(Loss) ->
    Loss.

%% A process has ended. unknown: it was not the dialer.
-spec handle_down({pid(), reference()}, Exit :: term(), t() | none) ->
    {ok, t()} | {dead, inet_rdma_death:grade(), Why :: binary()} | unknown.
handle_down(Dialer, Result, #{dialer := Dialer} = Loss) -> dialed(Result, Loss#{dialer := none});
handle_down(_Other, _Exit, _Loss) -> unknown.

dialed({dead, _Grade, _Why} = Verdict, _Loss) ->
    Verdict;
%% After resumed the port's message `restored` ends the loss. The retry is for the case that the
%% connection is lost again before that.
dialed(_ResumedOrCrashed, Loss) ->
    {ok, set(retry, ?RETRY_MS, Loss)}.

-spec handle_retry(t()) -> t().
handle_retry(Loss) -> dial(Loss).

set(Timer, Ms, #{timers := Timers} = Loss) -> Loss#{timers := Timers#{Timer => Ms}}.

%% The bound has passed. `ends': the link is given up.
-spec handle_bound(t()) -> ends | {goes_on, t()}.
handle_bound(#{survive_ms := SurviveMs, since := Since} = Loss) ->
    ElapsedMs = erlang:convert_time_unit(erlang:monotonic_time() - Since, native, millisecond),
    RestMs = SurviveMs - ElapsedMs,
    case RestMs > 0 andalso not is_reachable(Loss) andalso host_witness(Loss) =:= alive of
        true -> {goes_on, set(bound, min(RestMs, ?UNREACHABLE_MS), Loss)};
        false -> ends
    end.

%% What the guard does with its timeouts now; one that is not named goes on.
-spec take_timers(t()) -> {#{timer() => timeout()}, t()}.
take_timers(#{timers := Timers} = Loss) -> {Timers, Loss#{timers := #{}}}.

-spec suspicion(t()) -> suspicion().
suspicion(#{suspicion := Suspicion}) -> Suspicion.

%% Whether the suspicion has lasted so long that the log has it.
-spec is_outage(Duration :: integer()) -> boolean().
is_outage(Duration) -> erlang:convert_time_unit(Duration, native, millisecond) >= ?OUTAGE_MS.

-spec why_not_resumed(t()) -> Why :: binary().
why_not_resumed(#{why := Why, dialer := Dialer} = Loss) ->
    case
        {is_reachable(Loss), [
            Failure
         || {Pid, _} <- [Dialer],
            Failure <- [inet_rdma_dialer:last_failure(Pid)],
            Failure =/= none
        ]}
    of
        {false, _} ->
            text(
                "its TCP connection ended (~ts), and the peer, which accepts no connections, has "
                "not made another",
                [Why]
            );
        {true, []} ->
            text("nothing carried it for the time of the option survive_ms (~ts)", [Why]);
        {true, [Failure]} ->
            text(
                "nothing carried it for the time of the option survive_ms (~ts); the last attempt "
                "to connect failed: ~tp",
                [Why, Failure]
            )
    end.

%% The reason of the loss, and the time since then, in native units.
-spec facts(t()) -> {reason(), Why :: binary(), Duration :: integer()}.
facts(#{reason := Reason, why := Why, since := Since}) ->
    {Reason, Why, erlang:monotonic_time() - Since}.

%% There is another connection, or the link has ended.
-spec stop(t() | none) -> ok.
stop(none) ->
    ok;
stop(#{dialer := Dialer, session := Session}) ->
    case Dialer of
        none -> ok;
        _ -> ok = inet_rdma_dialer:stop(Session, Dialer)
    end,
    ok.

%% Suspected paths of a link with a session (inet_rdma_session_events): attempts are made beside
%% them.
-module(inet_rdma_session_suspicion).

-export([suspected/1, suspected/2, woke/1, trusted/1, let_answers_decide/1]).
-export([begin_return/1]).

-type t() :: inet_rdma_session_data:t().

%% A connection that stalls within this time, though an attempt has just made it, may be on a way
%% that drops packets of full size and lets smaller ones pass.
-define(NARROW_MS, 5000).
%% As inet_rdma_resume has them.
-define(SMALL_SEGMENT_BYTES, 1024).
%% Headers of IPv6 and TCP, with options.
-define(HEADERS_BYTES_MAX, 100).

%% The port's notice: a path does not answer. The path that carries the link goes on.
-spec suspected(t()) -> t().
suspected(#{standing := #{state := carried, path := queue_pair}} = Guarded) ->
    suspected(standby, Guarded);
suspected(Guarded) ->
    suspected(path, Guarded).

-spec suspected(path | standby | woke, t()) -> t().
suspected(Suspicion, Guarded) ->
    IsNarrow = Suspicion =:= path andalso is_new(Guarded),
    Why = inet_rdma_session_log:suspected(
        Suspicion, IsNarrow, inet_rdma_session_data:facts(Guarded)
    ),
    case Guarded of
        #{config := #{survive_ms := 0}} ->
            Guarded;
        _ ->
            Guarded#{
                loss := inet_rdma_session_loss:suspect(
                    Guarded, {etimedout, Why}, Suspicion, IsNarrow
                )
            }
    end.

is_new(#{restored_at := never}) -> false;
is_new(#{restored_at := At}) -> erlang:monotonic_time(millisecond) - At < ?NARROW_MS.

%% The session has another TCP connection, or the peer has sent a message about it. Where a
%% neighbour or a proxy ends it, the kernel of that host acknowledges what the peer may never get:
%% the peer's own answers decide whether the path is suspected. So they do where the two nodes see
%% other ends of the connection, as a translation looks like a proxy.
-spec let_answers_decide(inet_rdma_session:t()) -> ok.
let_answers_decide(Session) ->
    #{peer_node := PeerNode} = inet_rdma_links:peer(inet_rdma_session:name(Session)),
    Decide =
        case
            inet_rdma_detour:is_detoured(Session) orelse inet_rdma_peer_node:is_translated(PeerNode)
        of
            true -> 1;
            false -> 0
        end,
    _ = inet_rdma_port:command(inet_rdma_session:port(Session), questions, <<Decide>>),
    ok.

%% A TCP connection that an attempt has made carries the link. If it is a detour, or has small
%% segments, attempts at a better one begin. Tells whether it has.
-spec begin_return(inet_rdma_session:t()) -> HasSmallSegments :: boolean().
begin_return(Session) ->
    case {inet_rdma_detour:is_detoured(Session), has_small_segments(Session)} of
        {true, _} ->
            ok = inet_rdma_detour_return:start(Session, detour),
            false;
        {false, true} ->
            ok = inet_rdma_detour_return:start(Session, small_segments),
            true;
        {false, false} ->
            false
    end.

%% Though the way takes larger packets as far as the kernel knows.
has_small_segments(Session) ->
    case inet_rdma_session:tcp_info(Session) of
        #{segment_bytes := Segment, packet_bytes := Packet} ->
            Segment =< ?SMALL_SEGMENT_BYTES andalso Packet > Segment + ?HEADERS_BYTES_MAX;
        unknown ->
            false
    end.

%% inet_rdma_wakeup calls it: this node was paused. The port sends nothing over its paths from now
%% on, until another connection is there or the peer is heard over this one. A link that can make no
%% other connection goes on as it is. So does one whose other connections fail, as behind NAT, as
%% soon as the peer's host has answered a probe.
-spec woke(t()) -> t().
woke(#{config := #{survive_ms := 0}} = Guarded) ->
    Guarded;
woke(#{session := Session, peer := Peer, port := Port} = Guarded) ->
    case
        inet_rdma_dialer:has_addresses(Session, Peer) andalso
            inet_rdma_port:command(Port, hold_writes)
    of
        {ok, _} ->
            _ = [ok = inet_rdma_session:probe(Session) || is_released_by_answer(Guarded)],
            dial(Guarded);
        _ ->
            Guarded
    end.

%% The TCP connection carries the link, and bytes are in clear: the port releases no sealed
%% connection.
is_released_by_answer(#{queue := Queue, session := Session}) ->
    Queue =:= none andalso inet_rdma_session:protocol(Session) =:= tcp.

%% The port's notice: the path answers. The kernel stops probing.
-spec trusted(t()) -> ok.
trusted(#{session := Session} = Guarded) ->
    _ = [ok = inet_rdma_session:stop_probes(Session) || is_released_by_answer(Guarded)],
    ok.

%% Its notices come after this event. An attempt that is under way already goes on, in haste if
%% nothing carries the link meanwhile.
dial(#{queue := Queue, loss := Loss} = Guarded) ->
    case {Queue =/= none andalso inet_rdma_queue:fabric(Queue), Loss} of
        {<<"shm">>, none} -> suspected(standby, Guarded);
        {<<"shm">>, _} -> Guarded;
        {_, none} -> suspected(woke, Guarded);
        _ -> Guarded#{loss := inet_rdma_session_loss:handle_woke(Loss)}
    end.

%% What the guard of a link with a session (inet_rdma_session_guard, _data) does at each event. Its
%% parts: inet_rdma_session_loss while the TCP connection is lost or a path is suspected
%% (_suspicion), _mover for settlements, _idle for the way back to TCP, _log for their log lines.
%% native/link/link/src/notice.rs lists the port's notices.
-module(inet_rdma_session_events).

-export([
    start/3,
    handle_notice/2,
    timeout/2,
    down/3,
    again/2,
    return_due/1,
    queue_over_bound/1,
    lasts/1,
    learns/1,
    tick_time/2,
    witness/2,
    ended/1
]).

-type t() :: inet_rdma_session_data:t().

%% The largest message of a settlement that starts the acceptor's mover.
-define(FIRST_MESSAGE_BYTES_MAX, 4096).
%% Least time from nodeup until the link has lasted; half of it more at most. A tool that asks a node
%% something and ends has ended by then.
-define(LASTS_MS, 1000).
%% From then until an acceptor asks the peer's EPMD, likewise.
-define(LEARNS_MS, 500).
%% Until the node is asked for descriptors again, if it had too few for what a link that lasts
%% opens.
-define(NO_DESCRIPTORS_MS, 60000).

-spec start(inet_rdma_queue:t() | none, HasSettled :: boolean(), t()) -> t().
start(Queue, HasSettled, #{port := Port, session := Session, config := Config} = Guarded) ->
    _ = inet_rdma_port:command(Port, suspect_after, <<
        (maps:get(suspect_after_ms, Config)):32/native
    >>),
    ok = tell(Session),
    ok = note_known(Guarded),
    ok = await_lasting(Guarded),
    begin_on(Queue, HasSettled, Guarded).

%% An initiator has found the peer by its EPMD, at this address.
note_known(#{session := Session, peer := {Ip, _}} = Guarded) ->
    case inet_rdma_session:role(Session) =:= initiator andalso asks_epmd(Guarded) of
        true -> inet_rdma_links:set_known_by(inet_rdma_session:name(Session), Ip);
        false -> ok
    end;
note_known(_Guarded) ->
    ok.

%% An acceptor has not asked the peer's EPMD; and the peer does not know of this node's witness,
%% unless that was open.
await_lasting(Guarded) ->
    case must_learn(Guarded) orelse not inet_rdma_peer_node:has_witness() of
        true -> send_to_self_after(?LASTS_MS, lasts);
        false -> ok
    end.

%% Half of the time more at most. Many links may begin at once: their timers end at the same moments, so
%% that the node wakes once for all of them.
send_to_self_after(LeastMs, Message) ->
    StepMs = LeastMs div 2,
    At = erlang:monotonic_time(millisecond) + LeastMs,
    SinceStepMs = (At rem StepMs + StepMs) rem StepMs,
    _ = erlang:send_after(At + StepMs - SinceStepMs, self(), Message, [{abs, true}]),
    ok.

%% The link has lasted for a while: the modules that a loss needs will be loaded, and what shows the
%% end of this node is opened.
-spec lasts(t()) -> t().
lasts(#{loss := Loss} = Guarded) when Loss =/= none ->
    %% The attempts to connect may need the last descriptors.
    ok = send_to_self_after(?LASTS_MS, lasts),
    Guarded;
lasts(#{session := Session} = Guarded) ->
    ok = inet_rdma_modules:load_later(),
    case inet_rdma_candidates:had_descriptors() of
        true ->
            ok = inet_rdma_peer_node:tell_witness(Session),
            _ = must_learn(Guarded) andalso send_to_self_after(?LEARNS_MS, learns),
            Guarded;
        false ->
            ok = send_to_self_after(?NO_DESCRIPTORS_MS, lasts),
            Guarded
    end.

%% The peer has had time to tell of its witness: if that does not show its end, the name server is asked
%% which node it knows. If the VM has no process left, it stays unasked.
-spec learns(t()) -> t().
learns(#{loss := none, session := Session, node := Node} = Guarded) ->
    _ =
        sees_peer(Session) orelse
            inet_rdma_bounded:start(inet_rdma_candidates, learn, [Session, Node]),
    Guarded;
learns(Guarded) ->
    ok = send_to_self_after(?LEARNS_MS, learns),
    Guarded.

%% What this host shows of the peer's process says more than an EPMD, which is not asked then.
sees_peer(Session) ->
    #{peer_node := PeerNode} = inet_rdma_links:peer(inet_rdma_session:name(Session)),
    inet_rdma_peer_node:host_witness(PeerNode) =:= alive.

must_learn(#{session := Session} = Guarded) ->
    inet_rdma_session:role(Session) =:= acceptor andalso asks_epmd(Guarded).

asks_epmd(#{node := Node}) ->
    {Name, Host} = inet_rdma_tcp:name_and_host(Node),
    inet_rdma_tcp:asks_epmd(Name, Host).

%% The session has another TCP connection. The peer does not know of a detour for which this side
%% has asked.
tell(Session) ->
    Via = inet_rdma_detour:handle_restored(Session),
    ok = inet_rdma_session_suspicion:let_answers_decide(Session),
    inet_rdma_peer_node:tell(Session, [inet_rdma_detour:message(Via) || Via =/= none]).

begin_on(none, true, #{mover := Mover} = Guarded) ->
    Guarded#{mover := inet_rdma_session_mover:later(Mover)};
begin_on(none, false, #{config := #{move := eager}} = Guarded) ->
    settle(Guarded);
begin_on(Queue, _HasSettled, Guarded) ->
    probe_standby(on(Queue, Guarded)).

-spec down({pid(), reference()}, Exit :: term(), t()) -> t().
down({Pid, _} = Process, Exit, #{loss := Loss, mover := Mover, session := Session} = Guarded) ->
    case inet_rdma_session_loss:handle_down(Process, Exit, Loss) of
        {ok, Next} ->
            Guarded#{loss := Next};
        {dead, Grade, Why} ->
            give_up(Why, Grade, Guarded);
        unknown ->
            case inet_rdma_session_mover:handle_down(Process, Exit, Mover) of
                {Outcome, Next} ->
                    settled(Outcome, Guarded#{mover := Next});
                unknown ->
                    ok = inet_rdma_detour_return:handle_down(Pid, Exit, Session),
                    Guarded
            end
    end.

%% The process that tries the direct way beside a detour could not be started, or has died. After a
%% loss the next detour starts it.
-spec return_due(t()) -> t().
return_due(#{loss := none, session := Session} = Guarded) ->
    _ = inet_rdma_session_suspicion:begin_return(Session),
    Guarded;
return_due(Guarded) ->
    Guarded.

%% Of inet_rdma_link_fill: senders wait, as the VM's queue is over its bound.
-spec queue_over_bound(t()) -> t().
queue_over_bound(Guarded) ->
    filled(trouble, Guarded).

%% inet_rdma_keeper sends it: the time of net_ticktime has changed.
-spec tick_time(pos_integer(), t()) -> t().
tick_time(_Seconds, #{queue := none} = Guarded) ->
    Guarded;
tick_time(Seconds, #{session := Session} = Guarded) ->
    ok = inet_rdma_session:probe_standby(Session, Seconds),
    Guarded.

%% Another guard of this node asks about the peer for its own, or tells what that knows.
-spec witness(inet_rdma_witness:event(), t()) -> t().
witness({asked, Name}, #{session := Session, witness := Witness} = Guarded) ->
    Guarded#{witness := inet_rdma_witness:handle(Name, Session, Witness)};
witness({said, Said}, #{loss := Loss} = Guarded) ->
    case Loss of
        none -> ok;
        _ -> ok = inet_rdma_session_loss:handle_neighbour(Said, Loss)
    end,
    Guarded.

-spec timeout(atom(), t()) -> t().
timeout(retry, #{loss := Loss} = Guarded) when Loss =/= none ->
    Guarded#{loss := inet_rdma_session_loss:handle_retry(Loss)};
timeout(bound, #{loss := Loss} = Guarded) when Loss =/= none ->
    case inet_rdma_session_loss:handle_bound(Loss) of
        {goes_on, GoesOn} -> Guarded#{loss := GoesOn};
        ends -> give_up(inet_rdma_session_loss:why_not_resumed(Loss), none, Guarded)
    end;
timeout(outage, #{loss := Loss} = Guarded) when Loss =/= none ->
    {_Reason, _Why, Duration} = inet_rdma_session_loss:facts(Loss),
    ok = inet_rdma_session_log:lasts(
        inet_rdma_session_loss:suspicion(Loss),
        Duration,
        inet_rdma_session_data:facts(Guarded)
    ),
    Guarded;
timeout(settle, #{mover := Mover} = Guarded) ->
    settle_if_due(inet_rdma_session_mover:handle_timeout(Mover), Guarded);
timeout(idle, #{idle := Idle, loss := Loss, standing := #{number := Number}} = Guarded) ->
    Guarded#{idle := inet_rdma_session_idle:handle_timeout(Loss =:= none, Number, Idle)};
timeout(_Name, Guarded) ->
    Guarded.

%% A notice of the port, whose standing is in the data.
-spec handle_notice(inet_rdma_interface:notice(), t()) -> t().
handle_notice(stalled, Guarded) ->
    #{log := Log} = Filled = filled(trouble, Guarded),
    Filled#{log := inet_rdma_link_log:stalled(inet_rdma_session_data:carried(Guarded), Log)};
handle_notice(busy, #{log := Log} = Guarded) ->
    ok = inet_rdma_link_log:busy(self(), Log),
    Guarded;
handle_notice(full, Guarded) ->
    filled(full, Guarded);
handle_notice({unread, Why}, #{log := Log} = Guarded) ->
    ok = inet_rdma_link_log:unread(Why, inet_rdma_session_data:carried(Guarded), Log),
    Guarded;
handle_notice(stall_ended, #{log := Log} = Guarded) ->
    Guarded#{log := inet_rdma_link_log:stall_ended(inet_rdma_session_data:carried(Guarded), Log)};
handle_notice({lost, Reason}, Guarded) ->
    handle_lost(Reason, filled(trouble, Guarded));
handle_notice(suspected, #{loss := none} = Guarded) ->
    inet_rdma_session_suspicion:suspected(filled(trouble, Guarded));
%% Attempts are under way.
handle_notice(suspected, Guarded) ->
    Guarded;
handle_notice(trusted, #{loss := none} = Guarded) ->
    Guarded;
handle_notice(trusted, Guarded) ->
    trusted(Guarded#{refused := none});
handle_notice(restored, Guarded) ->
    restored(Guarded#{refused := none});
handle_notice(changed, Guarded) ->
    Guarded;
handle_notice(earned, #{config := #{move := earned}} = Guarded) ->
    settle(Guarded);
%% The link moves at once, or never.
handle_notice(earned, Guarded) ->
    Guarded;
handle_notice(moved, #{queue := none} = Guarded) ->
    moved_alone(Guarded);
handle_notice(moved, Guarded) ->
    Guarded;
handle_notice(returned, Guarded) ->
    returned(Guarded);
handle_notice(peer_closed, Guarded) ->
    (filled(trouble, Guarded))#{ending := peer_closed};
handle_notice({peer_misbehaved, How}, Guarded) ->
    (filled(trouble, Guarded))#{ending := {peer_misbehaved, How}};
handle_notice({rolled_back, How}, Guarded) ->
    (filled(trouble, Guarded))#{ending := {rolled_back, How}};
handle_notice({message, Message}, #{session := Session, witness := Witness} = Guarded) ->
    case inet_rdma_witness:hear(Session, Message, Witness) of
        {true, Next} -> Guarded#{witness := Next};
        false -> in_band(Message, Guarded)
    end.

%% Notes who fills the link, as long as its port lives.
filled(Occasion, #{port := Port, log := Log} = Guarded) ->
    Carried = inet_rdma_session_data:carried(Guarded),
    Guarded#{log := inet_rdma_link_log:filled(Occasion, Port, Carried, Log)}.

in_band(Message, #{session := Session} = Guarded) ->
    case
        inet_rdma_peer_node:hear(Session, Message) orelse
            inet_rdma_detour:handle_message(Session, Message)
    of
        true ->
            ok = inet_rdma_session_suspicion:let_answers_decide(Session),
            ok = inet_rdma_witness:lives(Session),
            Guarded#{peer := inet_rdma_detour:listens(Session)};
        false ->
            other_message(inet_rdma_settlement_message:is_of_settlement(Message), Message, Guarded)
    end.

%% The peer has moved to a queue pair. Without a settlement under way this side has given that queue
%% pair up, and both sides resume without it.
moved_alone(#{mover := Mover, port := Port} = Guarded) ->
    _ =
        case inet_rdma_session_mover:is_running(Mover) of
            true -> ok;
            false -> inet_rdma_port:command(Port, drop_queue)
        end,
    Guarded.

%% The path has answered.
trusted(#{loss := Loss, session := Session, mover := Mover, outage := Outage} = Guarded) ->
    ok = inet_rdma_session_loss:stop(Loss),
    {_Reason, _Why, Duration} = inet_rdma_session_loss:facts(Loss),
    ok = inet_rdma_session_log:trusted(
        inet_rdma_session_loss:suspicion(Loss),
        Duration,
        inet_rdma_session_data:facts(Guarded)
    ),
    ok = inet_rdma_session_suspicion:trusted(Guarded),
    %% The attempts beside the path have stopped those at the direct way.
    _ = inet_rdma_session_suspicion:begin_return(Session),
    Ended = inet_rdma_session_outage:ended(Duration, Session, Outage),
    settle_if_due(inet_rdma_session_mover:handle_restored(Mover), Guarded#{
        loss := none, outage := Ended
    }).

%% A path is lost: the first one, or one that was only suspected; or another one after a loss.
handle_lost(Reason, #{loss := Loss} = Guarded) ->
    case Loss =:= none orelse inet_rdma_session_loss:suspicion(Loss) =/= none of
        true -> lost(Reason, Guarded);
        false -> lost_again(Reason, Guarded)
    end.

lost(Reason, #{config := #{survive_ms := 0}} = Guarded) ->
    Why = inet_rdma_link_event:why_lost(Reason),
    give_up(unicode:characters_to_binary(["its TCP connection ended (", Why, ")"]), none, Guarded);
lost(TcpReason, #{mover := Mover} = Before) ->
    {Queue, Guarded} = queue_lost(Before#{mover := inet_rdma_session_mover:stop(Mover)}),
    case {Queue, TcpReason, is_carried(Guarded), Guarded} of
        %% The connection that stands by is being mended already.
        {kept, _, true, #{loss := Loss}} when Loss =/= none -> Guarded;
        %% Nobody has answered the kernel's probes of the connection that stands by.
        {kept, etimedout, true, _} -> inet_rdma_session_suspicion:suspected(standby, Guarded);
        {_, _, IsCarried, _} -> lost(TcpReason, Queue, IsCarried, Guarded)
    end.

lost(TcpReason, Queue, IsCarried, Guarded) ->
    Facts =
        case Queue of
            kept ->
                Why = inet_rdma_link_event:why_lost(TcpReason),
                ok = inet_rdma_session_log:lost(
                    TcpReason, Why, IsCarried, inet_rdma_session_data:facts(Guarded)
                ),
                {TcpReason, Why};
            {lost, Fabric, Reason, Why} ->
                ok = inet_rdma_session_log:queue_lost(
                    Fabric, Reason, Why, inet_rdma_session_data:facts(Guarded)
                ),
                {Reason, Why}
        end,
    Guarded#{
        loss :=
            case maps:get(loss, Guarded) of
                none -> inet_rdma_session_loss:new(Guarded, TcpReason, Facts, IsCarried);
                Before -> inet_rdma_session_loss:handle_lost(TcpReason, Facts, IsCarried, Before)
            end
    }.

%% The queue pair is lost, too, or the connection that replaced a lost one.
lost_again(TcpReason, Before) ->
    {Queue, #{loss := Loss} = Guarded} = queue_lost(Before),
    _ = [
        inet_rdma_session_log:queue_lost(Fabric, Reason, Why, inet_rdma_session_data:facts(Guarded))
     || {lost, Fabric, Reason, Why} <- [Queue]
    ],
    case is_carried(Guarded) of
        true -> Guarded;
        false -> Guarded#{loss := inet_rdma_session_loss:handle_uncarried(TcpReason, Loss)}
    end.

%% The port has lost a path. The loss of a queue pair takes the TCP connection with it: both sides
%% resume over another one, and settle again later.
queue_lost(#{queue := none} = Guarded) ->
    {kept, Guarded};
queue_lost(#{standing := #{path := queue_pair}} = Guarded) ->
    {kept, Guarded};
queue_lost(#{queue := Queue, idle := Idle} = Guarded) ->
    case inet_rdma_session_idle:is_returning(Idle) of
        true -> {kept, returned(Guarded)};
        false -> queue_lost(Queue, Guarded)
    end.

queue_lost(Queue, Guarded) ->
    Fabric = inet_rdma_queue:fabric(Queue),
    {Reason, Why, _IsUsual} = inet_rdma_queue:ended(Queue),
    {{lost, Fabric, Reason, Why}, on_tcp(Reason, Fabric, Why, Guarded)}.

%% TCP carries the link, as its queue pair ended for this reason.
on_tcp(Reason, Fabric, _Why, Guarded) when
    Reason =:= closed; Reason =:= peer_gone; Reason =:= unknown
->
    given_up_by_peer(Fabric, Guarded);
on_tcp(_Reason, Fabric, Why, #{node := Node, config := #{fallback_retry_ms := RetryMs}} = Guarded) ->
    inet_rdma_settlement_policy:lost(Node, binary_to_atom(Fabric), Why, RetryMs),
    settle_later(carried_by(none, <<Fabric/binary, " failed: ", Why/binary>>, Guarded)).

%% The peer ended the queue pair, in order or before its port had it, as it has lost its TCP
%% connection, for example; or both sides have left it. That says nothing against the fabric. A peer
%% that knows of a fault of the fabric says so in the next settlement.
given_up_by_peer(Fabric, Guarded) ->
    settle_again(
        carried_by(none, <<"the peer gave up the queue pair over ", Fabric/binary>>, Guarded)
    ).

%% Tells whether a queue pair carries the session.
is_carried(#{standing := #{path := Path}}) -> Path =:= queue_pair.

restored(#{loss := none, session := Session, has_small_segments := HadSmall} = Guarded) ->
    Via = inet_rdma_detour:via(Session),
    ok = tell(Session),
    #{has_small_segments := HasSmall} = Made = made(Guarded),
    Replacement =
        case replacement(Via, Made) of
            path when HadSmall, not HasSmall -> full_segments;
            Other -> Other
        end,
    ok = inet_rdma_session_log:replaced(Replacement, inet_rdma_session_data:facts(Made)),
    #{mover := Mover} = Restored = probe_standby(queue_given_up(Made)),
    settle_if_due(inet_rdma_session_mover:handle_restored(Mover), Restored);
restored(#{loss := Loss} = Guarded) ->
    ok = inet_rdma_session_loss:stop(Loss),
    restored_at_last(Guarded).

%% Why there is another TCP connection, of which this side has lost none. Via: over which neighbour
%% the one before went.
replacement(Via, #{session := Session, standing := #{path := Path}}) ->
    case inet_rdma_detour:via(Session) of
        none when Via =/= none -> direct;
        _ when Path =:= queue_pair -> standby;
        _ -> path
    end.

restored_at_last(#{loss := Loss, session := Session, outage := Outage} = Guarded) ->
    {Reason, Why, Duration} = inet_rdma_session_loss:facts(Loss),
    ok = inet_rdma_session_log:restored(
        inet_rdma_session_loss:suspicion(Loss),
        {Reason, Why, Duration},
        inet_rdma_session_data:facts(Guarded)
    ),
    ok = tell(Session),
    Ended = inet_rdma_session_outage:ended(Duration, Session, Outage),
    #{mover := Mover} = Restored = queue_given_up((made(Guarded))#{loss := none, outage := Ended}),
    settle_if_due(inet_rdma_session_mover:handle_restored(Mover), probe_standby(Restored)).

%% An attempt has made the TCP connection in use. Messages of a settlement may be lost with the one
%% before, also if that was not lost but suspected.
made(#{session := Session, mover := Mover} = Guarded) ->
    Guarded#{
        mover := inet_rdma_session_mover:stop(Mover),
        restored_at := erlang:monotonic_time(millisecond),
        has_small_segments := inet_rdma_session_suspicion:begin_return(Session)
    }.

%% If the TCP connection was lost in the middle of a settlement, the peer might not have the queue
%% pair to which this side moved. Both sides have resumed without it then.
queue_given_up(#{queue := none} = Guarded) ->
    Guarded;
queue_given_up(#{idle := Idle} = Guarded) ->
    case {is_carried(Guarded), inet_rdma_session_idle:is_returning(Idle)} of
        {true, _} ->
            Guarded;
        {false, true} ->
            returned(Guarded);
        {false, false} ->
            settle_again(
                carried_by(none, <<"its TCP connection was lost while it moved">>, Guarded)
            )
    end.

%% Ends the link. Grade: of the evidence that the peer has ended; none: the time is over. The port
%% refuses that if a path has come or gone since its last notice: the guard decides again when it
%% has the notice that is under way.
give_up(Why, Grade, #{port := Port, session := Session, standing := #{number := Number}} = Guarded) ->
    %% Before the port ends: the tables forget the peer then.
    Peer = inet_rdma_witness:peer(Session),
    case inet_rdma_port:command(Port, end_link, <<Number:64/native>>) of
        {ok, <<>>} ->
            Decision = {give_up, Why, Grade},
            self() ! {again, Decision},
            Guarded#{refused := Decision};
        _EndedNowOrBefore ->
            ok = tell_neighbours(Grade, Peer, Guarded),
            Guarded#{ending := {not_resumed, Why}}
    end.

tell_neighbours(none, _Peer, _Guarded) ->
    ok;
tell_neighbours(Grade, Peer, #{witness := Witness}) ->
    inet_rdma_witness:ended(Grade, Peer, Witness).

%% A decision that the port has refused, as its standing had changed. The notice of that has been
%% handled: if it says that a path carries the link, the link is not given up.
-spec again(
    {give_up, Why :: binary(), inet_rdma_death:grade() | none}
    | {move, inet_rdma_queue:t(), Why :: binary()},
    t()
) -> t().
again({give_up, Why, Grade} = Decision, #{refused := Decision} = Guarded) ->
    give_up(Why, Grade, Guarded#{refused := none});
again({give_up, _Why, _Grade}, Guarded) ->
    Guarded;
again({move, Queue, Why}, Guarded) ->
    settled({settled, {move, Queue, Why}}, Guarded).

%% A settlement in band is due. The initiator's guard begins it.
settle(#{loss := Loss, mover := Mover} = Guarded) when Loss =/= none ->
    Guarded#{mover := inet_rdma_session_mover:wait_for_tcp(Mover)};
settle(
    #{queue := none, mover := Mover, session := Session, config := #{move := Move}} = Guarded
) when
    Move =/= never
->
    IsRunning = inet_rdma_session_mover:is_running(Mover),
    case {inet_rdma_session:role(Session), IsRunning, inet_rdma_detour:is_detoured(Session)} of
        {initiator, false, false} -> start_mover(Guarded);
        {initiator, false, true} -> Guarded#{mover := inet_rdma_session_mover:wait_for_tcp(Mover)};
        _ -> Guarded
    end;
settle(Guarded) ->
    Guarded.

settle_if_due({due, Mover}, Guarded) -> settle(Guarded#{mover := Mover});
settle_if_due({not_due, Mover}, Guarded) -> Guarded#{mover := Mover}.

settle_again(#{mover := Mover} = Guarded) ->
    Guarded#{mover := inet_rdma_session_mover:again(Mover)}.

settle_later(#{mover := Mover} = Guarded) ->
    Guarded#{mover := inet_rdma_session_mover:later(Mover)}.

start_mover(#{mover := Mover} = Guarded) ->
    ok = inet_rdma_modules:load_all(),
    Guarded#{mover := inet_rdma_session_mover:start(Mover)}.

%% One that is none of the settlement comes from a later version, and is passed over.
other_message(true, Message, Guarded) ->
    settlement_message(Message, Guarded);
other_message(false, Message, #{loss := Loss, outage := Outage} = Guarded) ->
    ok = inet_rdma_modules:load_all(),
    Facts = inet_rdma_session_data:facts(Guarded),
    case inet_rdma_session_outage:hear(Message, Loss =/= none, Facts, Outage) of
        true -> ok;
        false -> inet_rdma_links:count(unknown_messages)
    end,
    Guarded.

%% A message of the peer's settlement. The first one starts the acceptor's mover. Another hello
%% starts it again: the initiator says hello once in each settlement, so it has given up the
%% settlement that runs here.
settlement_message(Message, #{mover := Mover} = Guarded) ->
    IsRunning = inet_rdma_session_mover:is_running(Mover),
    case
        may_begin(Message, Guarded) andalso
            (not IsRunning orelse inet_rdma_settlement_message:is_hello(Message))
    of
        true ->
            Stopped = Guarded#{mover := inet_rdma_session_mover:stop(Mover)},
            #{mover := Started} = Begun = start_mover(Stopped),
            ok = inet_rdma_session_mover:forward(Message, Started),
            Begun;
        false ->
            %% If no mover runs, a late message.
            case IsRunning of
                true -> ok = inet_rdma_session_mover:forward(Message, Mover);
                false -> ok
            end,
            Guarded
    end.

%% The TCP connection may be suspected still: it has brought the message, and the port's word that it
%% answers follows.
may_begin(Message, #{session := Session, queue := Queue}) ->
    Queue =:= none andalso byte_size(Message) =< ?FIRST_MESSAGE_BYTES_MAX andalso
        inet_rdma_session:role(Session) =:= acceptor andalso
        not inet_rdma_detour:is_detoured(Session).

settled({settled, {move, Queue, Why}}, #{standing := #{number := Number}} = Guarded) ->
    case inet_rdma_queue:move(Queue, Number) of
        changed ->
            self() ! {again, {move, Queue, Why}},
            Guarded;
        ok ->
            #{mover := Mover} = Moved = probe_standby(carried_by(Queue, Why, Guarded)),
            ok = inet_rdma_session_log:moved_up(
                inet_rdma_session_data:fabric(Guarded),
                inet_rdma_session_data:facts(Moved)
            ),
            Moved#{mover := inet_rdma_session_mover:handle_moved(Mover)};
        gone ->
            given_up_by_peer(inet_rdma_queue:fabric(Queue), Guarded)
    end;
settled({settled, {stay, Why, Tried}}, #{mover := Mover} = Guarded) ->
    Stayed = carried_by(none, Why, Guarded),
    %% Logs only the first of several settlements in a row: the operator may expect shared memory or
    %% a device.
    _ = [
        begin
            inet_rdma_links:count({stayed, Tried}),
            ok = inet_rdma_session_log:stayed(inet_rdma_session_data:facts(Stayed))
        end
     || not inet_rdma_session_mover:has_failed(Mover)
    ],
    settle_later(Stayed);
settled({settled, {_RefuseOrError, Why}}, #{port := Port} = Guarded) ->
    inet_rdma_links:count(settlement_failed),
    _ = inet_rdma_port:command(Port, drop_queue),
    ok = inet_rdma_session_log:failed(Why, inet_rdma_session_data:facts(Guarded)),
    settle_later(carried_by(none, Why, Guarded));
settled({crashed, Exit}, #{port := Port} = Guarded) ->
    _ = inet_rdma_port:command(Port, drop_queue),
    ok = inet_rdma_session_log:crashed(Exit, inet_rdma_session_data:facts(Guarded)),
    settle_later(Guarded).

%% Both sides have gone back to TCP.
returned(#{queue := none} = Guarded) ->
    Guarded;
returned(#{session := Session} = Guarded) ->
    Returned = carried_by(none, <<"it was idle">>, Guarded),
    ok = inet_rdma_session:stop_probes(Session),
    ok = inet_rdma_session_log:moved(
        inet_rdma_session_data:fabric(Guarded), inet_rdma_session_data:facts(Returned)
    ),
    Returned.

%% Has the TCP connection stand by while a queue pair carries the link.
probe_standby(#{queue := none} = Guarded) ->
    Guarded;
probe_standby(#{session := Session} = Guarded) ->
    ok = inet_rdma_session:probe_standby(Session),
    Guarded.

%% Another path carries the link, for this reason.
carried_by(Queue, Why, #{node := Node, supervisor := Supervisor} = Guarded) ->
    Carried = on(Queue, Guarded#{why := Why}),
    ok = inet_rdma_links:update(Supervisor, Node, inet_rdma_session_data:fabric(Carried), Why),
    Carried.

%% The queue pair carries the link; none: TCP does. Begins to check whether the link is idle.
on(Queue, #{queue := Last, idle := Idle} = Guarded) ->
    _ =
        case Last =/= none andalso Last =/= Queue of
            true -> inet_rdma_queue:release(Last);
            false -> ok
        end,
    Guarded#{
        queue := Queue,
        idle :=
            case Queue of
                none -> inet_rdma_session_idle:stop(Idle);
                _ -> inet_rdma_session_idle:start(Idle)
            end
    }.

%% The port has ended. Its reason, as this side knows it.
-spec ended(t()) -> inet_rdma_link_log:ending().
ended(#{loss := Loss, mover := Mover} = Guarded) ->
    _ = inet_rdma_session_mover:stop(Mover),
    ok = inet_rdma_session_loss:stop(Loss),
    inet_rdma_session_data:ending(Guarded).

%% What the guard of a link with a session (inet_rdma_session_guard, _data) does at each event. Its parts:
%% inet_rdma_session_loss while the TCP connection is lost or a path is suspected (_suspicion), _mover for settlements,
%% _idle for the way back to TCP, _keys for the keys of a queue pair, _log for their log lines.
%% native/link/port/src/commands.rs (WATCH) lists the port's notices.
-module(inet_rdma_session_events).

-export([start/3, told/2, timeout/2, down/3, tick_time/2, ended/1]).

-type t() :: inet_rdma_session_data:t().

%% The largest message of a settlement that starts the acceptor's mover.
-define(FIRST_MESSAGE_BYTES_MAX, 4096).

-spec start(inet_rdma_queue:t() | none, HasSettled :: boolean(), t()) -> t().
start(Queue, HasSettled, #{port := Port, session := Session, config := Config} = Guarded) ->
    _ = inet_rdma_port:command(Port, suspicion, <<(maps:get(dead_after_ms, Config)):32/native>>),
    ok = tell(Session),
    begin_on(Queue, HasSettled, Guarded).

%% The session has another TCP connection. The peer does not know of a detour for which this side has asked.
tell(Session) ->
    Via = inet_rdma_detour:handle_restored(Session),
    inet_rdma_told:tell(Session, [inet_rdma_detour:told(Via) || Via =/= none]).

begin_on(none, true, #{mover := Mover} = Guarded) -> Guarded#{mover := inet_rdma_session_mover:later(Mover)};
begin_on(none, false, #{config := #{move := eager}} = Guarded) -> settle(Guarded);
begin_on(Queue, _HasSettled, Guarded) -> standing_by(on(Queue, Guarded)).

-spec down({pid(), reference()}, Exit :: term(), t()) -> t().
down(Process, Exit, #{loss := Loss, mover := Mover} = Guarded) ->
    case inet_rdma_session_loss:handle_down(Process, Exit, Loss) of
        {ok, Next} ->
            Guarded#{loss := Next};
        {give_up, Why} ->
            give_up(Why, Guarded);
        unknown ->
            case inet_rdma_session_mover:handle_down(Process, Exit, Mover) of
                {Outcome, Next} -> settled(Outcome, Guarded#{mover := Next});
                unknown -> Guarded
            end
    end.

%% Told by inet_rdma_keeper: the time of net_ticktime has changed.
-spec tick_time(pos_integer(), t()) -> t().
tick_time(_Seconds, #{queue := none} = Guarded) -> Guarded;
tick_time(Seconds, #{session := Session} = Guarded) ->
    ok = inet_rdma_session:stand_by(Session, Seconds),
    Guarded.

-spec timeout(atom(), t()) -> t().
timeout(retry, #{loss := Loss} = Guarded) when Loss =/= none ->
    Guarded#{loss := inet_rdma_session_loss:handle_retry(Loss)};
timeout(bound, #{loss := Loss} = Guarded) when Loss =/= none ->
    give_up(inet_rdma_session_loss:why_not_resumed(Loss), Guarded);
timeout(settle, #{mover := Mover} = Guarded) ->
    settle_if_due(inet_rdma_session_mover:handle_timeout(Mover), Guarded);
timeout(rekey, #{keys := Keys, session := Session} = Guarded) ->
    Guarded#{keys := inet_rdma_session_keys:handle_timeout(Session, Keys)};
timeout(idle, #{idle := Idle, loss := Loss} = Guarded) ->
    Guarded#{idle := inet_rdma_session_idle:handle_timeout(Loss =:= none, Idle)};
timeout(_Name, Guarded) ->
    Guarded.

%% A notice of the port, whose standing is in the data.
-spec told(term(), t()) -> t().
told(stalled, #{log := Log} = Guarded) ->
    Guarded#{log := inet_rdma_link_log:stalled(inet_rdma_session_data:carried(Guarded), Log)};
told(stall_ended, #{log := Log} = Guarded) ->
    Guarded#{log := inet_rdma_link_log:stall_ended(inet_rdma_session_data:carried(Guarded), Log)};
told({lost, Reason}, Guarded) -> handle_lost(Reason, Guarded);
told(suspected, #{loss := none} = Guarded) -> inet_rdma_session_suspicion:suspected(Guarded);
told(trusted, #{loss := Loss} = Guarded) when Loss =/= none -> trusted(Guarded);
told(restored, Guarded) -> restored(Guarded);
told(earned, #{config := #{move := earned}} = Guarded) -> settle(Guarded);
told(moved, #{queue := none} = Guarded) -> moved_alone(Guarded);
told(key_due, #{keys := Keys, session := Session} = Guarded) ->
    Guarded#{keys := inet_rdma_session_keys:handle_due(Session, Keys)};
told(returned, Guarded) -> returned(Guarded);
told(peer_closed, Guarded) -> Guarded#{ending := peer_closed};
told(Fault, Guarded) when Fault =:= peer_misbehaved; Fault =:= rolled_back -> Guarded#{ending := {Fault, <<>>}};
told(How, #{ending := {Fault, <<>>}} = Guarded) when is_binary(How) -> Guarded#{ending := {Fault, How}};
told(Message, #{session := Session} = Guarded) when is_binary(Message) ->
    IsTold = inet_rdma_told:hear(Session, Message) orelse inet_rdma_detour:handle_told(Session, Message),
    case {inet_rdma_session_keys:is_of_keys(Message), IsTold} of
        {{true, Bytes}, _} -> key_message(Bytes, Guarded);
        {false, true} -> Guarded#{peer := inet_rdma_detour:listens(Session)};
        {false, false} -> settlement_message(Message, Guarded)
    end;
told(_, Guarded) -> Guarded.

%% The peer has moved to a queue pair. Without a settlement under way this side has given that queue pair up, and both
%% sides resume without it.
moved_alone(#{mover := Mover, port := Port} = Guarded) ->
    _ = [inet_rdma_port:command(Port, drop) || not inet_rdma_session_mover:is_running(Mover)],
    Guarded.

key_message(Bytes, #{queue := none, mover := Mover, keys := Keys} = Guarded) ->
    case inet_rdma_session_mover:is_running(Mover) of
        true -> Guarded#{keys := inet_rdma_session_keys:keep_early(Bytes, Keys)};
        %% A late message about keys of a queue pair that is gone.
        false -> Guarded
    end;
key_message(Bytes, #{keys := Keys, port := Port, node := Node, session := Session} = Guarded) ->
    case inet_rdma_session_keys:handle_received(Bytes, Session, Keys) of
        {ok, Next} ->
            Guarded#{keys := Next};
        {changed, Next} ->
            ok = inet_rdma_recorder:record(key, Node, #{path => inet_rdma_session_data:fabric(Guarded)}),
            %% A tick shows the peer that this side seals with another key.
            _ = inet_rdma_port:command(Port, tick),
            Guarded#{keys := Next};
        {error, Fault} ->
            exit(Port, connection_closed),
            Guarded#{ending := Fault}
    end.

%% The path has answered. given_up: an attempt has given the connection up for another one.
trusted(#{loss := Loss} = Guarded) ->
    case inet_rdma_session_loss:handle_restored(Loss) of
        restored ->
            {_Reason, _Why, Duration} = inet_rdma_session_loss:facts(Loss),
            ok = inet_rdma_session_log:trusted(inet_rdma_session_loss:suspicion(Loss), Duration,
                                               inet_rdma_session_data:facts(Guarded)),
            #{session := Session, mover := Mover} = Guarded,
            %% The attempts beside the path have stopped those at the direct way.
            _ = [ok = inet_rdma_detour_return:start(Session) || inet_rdma_detour:is_detoured(Session)],
            settle_if_due(inet_rdma_session_mover:handle_restored(Mover), Guarded#{loss := none});
        {given_up, Next} ->
            handle_lost(superseded, Guarded#{loss := Next})
    end.

%% A path is lost: the first one, or one that was only suspected; or another one behind a loss.
handle_lost(Reason, #{loss := Loss} = Guarded) ->
    case Loss =:= none orelse inet_rdma_session_loss:suspicion(Loss) =/= none of
        true -> lost(Reason, Guarded);
        false -> lost_again(Reason, Guarded)
    end.

lost(Reason, #{config := #{survive_ms := 0}} = Guarded) ->
    Why = inet_rdma_link_event:why_lost(Reason),
    give_up(unicode:characters_to_binary(["its TCP connection ended (", Why, ")"]), Guarded);
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
    Facts = case Queue of
                kept ->
                    Why = inet_rdma_link_event:why_lost(TcpReason),
                    ok = inet_rdma_session_log:lost(TcpReason, Why, IsCarried, inet_rdma_session_data:facts(Guarded)),
                    {TcpReason, Why};
                {lost, Fabric, Reason, Why} ->
                    ok = inet_rdma_session_log:queue_lost(Fabric, Reason, Why, inet_rdma_session_data:facts(Guarded)),
                    {Reason, Why}
            end,
    Guarded#{loss := case maps:get(loss, Guarded) of
                         none -> inet_rdma_session_loss:new(Guarded, TcpReason, Facts, IsCarried);
                         Before -> inet_rdma_session_loss:handle_lost(TcpReason, Facts, IsCarried, Before)
                     end}.

%% The queue pair is lost, too, or the connection that was made anew.
lost_again(TcpReason, Before) ->
    {Queue, #{loss := Loss} = Guarded} = queue_lost(Before),
    _ = [inet_rdma_session_log:queue_lost(Fabric, Reason, Why, inet_rdma_session_data:facts(Guarded))
         || {lost, Fabric, Reason, Why} <- [Queue]],
    case is_carried(Guarded) of
        true -> Guarded;
        false -> Guarded#{loss := inet_rdma_session_loss:handle_uncarried(TcpReason, Loss)}
    end.

%% The port has lost a path. The loss of a queue pair takes the TCP connection with it: both sides resume over another
%% one, and settle again later.
queue_lost(#{queue := none} = Guarded) -> {kept, Guarded};
queue_lost(#{standing := {_, queue_pair, _}} = Guarded) -> {kept, Guarded};
queue_lost(#{queue := Queue, port := Port, idle := Idle} = Guarded) ->
    %% The link may have moved to the queue pair behind the notice.
    case inet_rdma_port:statistics(Port) of
        {ok, #{carried_by_queue := false}} ->
            case inet_rdma_session_idle:is_returning(Idle) of
                true -> {kept, returned(Guarded)};
                false -> queue_lost(Queue, Guarded)
            end;
        _CarriedOrClosed ->
            {kept, Guarded}
    end.

queue_lost(Queue, Guarded) ->
    Fabric = inet_rdma_queue:fabric(Queue),
    {Reason, Why, _IsUsual} = inet_rdma_queue:ended(Queue),
    {{lost, Fabric, Reason, Why}, on_tcp(Reason, Fabric, Why, Guarded)}.

%% TCP carries the link, as its queue pair ended for this reason.
on_tcp(Reason, Fabric, _Why, Guarded) when Reason =:= closed; Reason =:= peer_gone; Reason =:= unknown ->
    given_up_by_peer(Fabric, Guarded);
on_tcp(_Reason, Fabric, Why, #{node := Node, config := #{fallback_retry_ms := RetryMs}} = Guarded) ->
    inet_rdma_settlement_policy:lost(Node, binary_to_atom(Fabric), Why, RetryMs),
    settle_later(carried_by(none, <<Fabric/binary, " failed: ", Why/binary>>, Guarded)).

%% The peer ended the queue pair, in order or before its port had it, as it has lost its TCP connection, for example; or
%% both sides have left it. That says nothing against the fabric. A peer that knows of a fault of the fabric says so in
%% the next settlement.
given_up_by_peer(Fabric, Guarded) ->
    settle_again(carried_by(none, <<"the peer gave up the queue pair over ", Fabric/binary>>, Guarded)).

%% Tells whether a queue pair carries the session. It may have moved there behind the notice.
is_carried(#{standing := {_, queue_pair, _}}) -> true;
is_carried(#{port := Port}) -> inet_rdma_port:is_carried_by_queue(Port).

restored(#{loss := none, mover := Mover} = Before) ->
    Guarded = Before#{mover := inet_rdma_session_mover:stop(Mover)},
    Via = inet_rdma_detour:via(maps:get(session, Guarded)),
    ok = tell(maps:get(session, Guarded)),
    ok = inet_rdma_session_log:replaced(replacement(Via, Guarded), inet_rdma_session_data:facts(Guarded)),
    #{mover := Stopped} = Restored = standing_by(queue_given_up(Guarded)),
    settle_if_due(inet_rdma_session_mover:handle_restored(Stopped), Restored);
restored(#{loss := Loss} = Guarded) ->
    case inet_rdma_session_loss:handle_restored(Loss) of
        restored -> restored_at_last(Guarded);
        {given_up, Next} -> handle_lost(superseded, queue_given_up(Guarded#{loss := Next}))
    end.

%% Why there is another TCP connection, of which this side has lost none. Via: over which neighbour the one before went.
replacement(Via, #{session := Session, standing := {_, Carrier, _}}) ->
    case inet_rdma_detour:via(Session) of
        none when Via =/= none -> direct;
        _ when Carrier =:= queue_pair -> standby;
        _ -> path
    end.

restored_at_last(#{loss := Loss, session := Session} = Guarded) ->
    {Reason, Why, Duration} = inet_rdma_session_loss:facts(Loss),
    ok = inet_rdma_session_log:restored(inet_rdma_session_loss:suspicion(Loss), {Reason, Why, Duration},
                                        inet_rdma_session_data:facts(Guarded)),
    ok = tell(Session),
    Now = erlang:monotonic_time(millisecond),
    #{keys := Keys, mover := Mover} = Restored = queue_given_up(Guarded#{loss := none, restored_at := Now}),
    ok = inet_rdma_session_keys:handle_restored(Session, Keys),
    settle_if_due(inet_rdma_session_mover:handle_restored(Mover), standing_by(Restored)).

%% If the TCP connection was lost in the middle of a settlement, the peer may not have the queue pair to which this side
%% moved. Both sides have resumed without it then.
queue_given_up(#{queue := none} = Guarded) -> Guarded;
queue_given_up(#{idle := Idle} = Guarded) ->
    case {is_carried(Guarded), inet_rdma_session_idle:is_returning(Idle)} of
        {true, _} ->
            Guarded;
        {false, true} ->
            returned(Guarded);
        {false, false} ->
            settle_again(carried_by(none, <<"its TCP connection was lost while it moved">>, Guarded))
    end.

give_up(Why, #{port := Port} = Guarded) ->
    exit(Port, connection_closed),
    Guarded#{ending := {not_resumed, Why}}.

%% A settlement in band is due. The initiator's guard begins it.
settle(#{loss := Loss, mover := Mover} = Guarded) when Loss =/= none ->
    Guarded#{mover := inet_rdma_session_mover:wait_for_tcp(Mover)};
settle(#{queue := none, mover := Mover, session := Session, config := #{move := Move}} = Guarded) when
    Move =/= never
->
    IsRunning = inet_rdma_session_mover:is_running(Mover),
    case {inet_rdma_session:role(Session), IsRunning, inet_rdma_detour:is_detoured(Session)} of
        {initiator, false, false} -> start_mover(Guarded);
        {initiator, false, true} -> Guarded#{mover := inet_rdma_session_mover:wait_for_tcp(Mover)};
        _ -> Guarded
    end;
settle(Guarded) -> Guarded.

settle_if_due({due, Mover}, Guarded) -> settle(Guarded#{mover := Mover});
settle_if_due({not_due, Mover}, Guarded) -> Guarded#{mover := Mover}.

settle_again(#{mover := Mover} = Guarded) -> Guarded#{mover := inet_rdma_session_mover:again(Mover)}.

settle_later(#{mover := Mover} = Guarded) -> Guarded#{mover := inet_rdma_session_mover:later(Mover)}.

start_mover(#{mover := Mover, keys := Keys} = Guarded) ->
    ok = inet_rdma_modules:load_all(),
    Guarded#{mover := inet_rdma_session_mover:start(Mover),
                    keys := inet_rdma_session_keys:handle_settling(Keys)}.

%% A message of the peer's settlement. The first one starts the acceptor's mover. Another hello starts it anew: the
%% initiator says hello once in each settlement, so it has given up the settlement that runs here.
settlement_message(Message, #{mover := Mover} = Guarded) ->
    IsRunning = inet_rdma_session_mover:is_running(Mover),
    case may_begin(Message, Guarded) andalso (not IsRunning orelse inet_rdma_settlement_message:is_hello(Message)) of
        true ->
            Stopped = Guarded#{mover := inet_rdma_session_mover:stop(Mover)},
            #{mover := Started} = Begun = start_mover(Stopped),
            ok = inet_rdma_session_mover:forward(Message, Started),
            Begun;
        false ->
            %% If no mover runs, a late message.
            _ = [ok = inet_rdma_session_mover:forward(Message, Mover) || IsRunning],
            Guarded
    end.

may_begin(Message, #{session := Session, queue := Queue, loss := Loss}) ->
    Queue =:= none andalso Loss =:= none andalso byte_size(Message) =< ?FIRST_MESSAGE_BYTES_MAX
        andalso inet_rdma_session:role(Session) =:= acceptor andalso not inet_rdma_detour:is_detoured(Session).

settled({settled, {move, Queue, Why}}, Guarded) ->
    case inet_rdma_queue:move(Queue) of
        ok ->
            #{mover := Mover} = Moved = standing_by(carried_by(Queue, Why, Guarded)),
            ok = inet_rdma_session_log:moved_up(inet_rdma_session_data:fabric(Guarded),
                                                inet_rdma_session_data:facts(Moved)),
            Moved#{mover := inet_rdma_session_mover:handle_moved(Mover)};
        gone ->
            given_up_by_peer(inet_rdma_queue:fabric(Queue), Guarded)
    end;
settled({settled, {stay, Why, Tried}}, #{mover := Mover} = Guarded) ->
    Stayed = carried_by(none, Why, Guarded),
    %% Logs only the first of several settlements in a row: the operator may expect shared memory or a device.
    _ = [begin
             inet_rdma_links:count({stayed, Tried}),
             ok = inet_rdma_session_log:stayed(inet_rdma_session_data:facts(Stayed))
         end || not inet_rdma_session_mover:has_failed(Mover)],
    settle_later(Stayed);
settled({settled, {_RefuseOrError, Why}}, #{port := Port} = Guarded) ->
    inet_rdma_links:count(settlement_failed),
    _ = inet_rdma_port:command(Port, drop),
    ok = inet_rdma_session_log:failed(Why, inet_rdma_session_data:facts(Guarded)),
    settle_later(carried_by(none, Why, Guarded));
settled({crashed, Exit}, #{port := Port} = Guarded) ->
    _ = inet_rdma_port:command(Port, drop),
    ok = inet_rdma_session_log:crashed(Exit, inet_rdma_session_data:facts(Guarded)),
    settle_later(Guarded).

%% Both sides have gone back to TCP.
returned(#{queue := none} = Guarded) -> Guarded;
returned(#{session := Session} = Guarded) ->
    Returned = carried_by(none, <<"it was idle">>, Guarded),
    ok = inet_rdma_session:carry(Session),
    ok = inet_rdma_session_log:moved(inet_rdma_session_data:fabric(Guarded), inet_rdma_session_data:facts(Returned)),
    Returned.

%% Has the TCP connection stand by while a queue pair carries the link.
standing_by(#{queue := none} = Guarded) -> Guarded;
standing_by(#{session := Session} = Guarded) ->
    ok = inet_rdma_session:stand_by(Session),
    Guarded.

%% Another path carries the link, for this reason.
carried_by(Queue, Why, #{node := Node, supervisor := Supervisor} = Guarded) ->
    Carried = on(Queue, Guarded#{why := Why}),
    ok = inet_rdma_links:update(Supervisor, Node, inet_rdma_session_data:fabric(Carried), Why),
    Carried.

%% The queue pair carries the link; none: TCP does. Puts the queue pair's keys in use, and begins to look whether the
%% link is idle.
on(Queue, #{queue := Last, keys := Before, idle := Idle} = Guarded) ->
    _ = [inet_rdma_queue:release(Last) || Last =/= none, Last =/= Queue],
    {Early, Keys} = inet_rdma_session_keys:handle_queue(Queue, Before),
    On = Guarded#{queue := Queue, keys := Keys,
                         idle := case Queue of
                                    none -> inet_rdma_session_idle:stop(Idle);
                                    _ -> inet_rdma_session_idle:start(Idle)
                                end},
    lists:foldl(fun key_message/2, On, Early).

%% The port has ended. Its reason, as this side knows it.
-spec ended(t()) -> inet_rdma_link_log:ending().
ended(#{loss := Loss, mover := Mover} = Guarded) ->
    _ = inet_rdma_session_mover:stop(Mover),
    ok = inet_rdma_session_loss:stop(Loss),
    inet_rdma_session_data:ending(Guarded).

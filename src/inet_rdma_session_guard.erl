%% The guard of a link with a session (inet_rdma_link_guard, inet_rdma_session): it has a lost TCP connection made anew,
%% settles in band, and moves the link between TCP and queue pairs.
%%
%% Its parts: inet_rdma_session_loss while the TCP connection is lost, inet_rdma_session_mover for settlements,
%% inet_rdma_session_idle for the way back to TCP, inet_rdma_session_keys for the keys of a queue pair,
%% inet_rdma_session_log for their log lines.
%%
%% The port sends it {'$inet_rdma', Port, What}:
%%
%%     {lost, Reason}    the TCP connection is lost; or a queue pair, and the TCP connection with it
%%     restored          there is another TCP connection, by an attempt of either side
%%     earned            the link's traffic has earned a queue pair (move: busy)
%%     moved             the peer's packets come over the queue pair
%%     key_due           the key of the queue pair nears its limit
%%     returned          packets of both sides go over the TCP connection again
%%     peer_closed       the peer ends the session in order
%%     peer_misbehaved   the peer broke the rules of the session; a binary that follows says how
%%     any other binary  a message of the peer's settlement in band, or about keys
-module(inet_rdma_session_guard).

-behaviour(inet_rdma_link_guard).

-export([run/3]).
-export([handle/2, carried/1, ended/1]).

-record(guarded, {
    session :: inet_rdma_session:t(),
    port :: port(),
    node :: binary(),
    supervisor :: pid(),
    peer :: inet_rdma_session_loss:peer(),
    %% Of these options alone: survive_ms, dead_after_ms, move, fallback_retry_ms.
    config :: inet_rdma_options:config(),
    %% The queue pair that carries the link, and the reason in words; none: TCP carries it.
    queue :: inet_rdma_queue:t() | none,
    why :: binary(),
    keys :: inet_rdma_session_keys:t(),
    mover :: inet_rdma_session_mover:t(),
    idle :: inet_rdma_session_idle:t(),
    %% While there is no TCP connection.
    loss = none :: none | inet_rdma_session_loss:t(),
    %% The reason for which the port is about to end, as it has said.
    ending = unknown :: unknown | peer_closed | inet_rdma_keys:fault() | {not_resumed, binary()}
}).

%% Looks in the time of the option dead_after_ms.
-define(LOOKS, 4).
%% The largest message of a settlement that starts the acceptor's mover.
-define(FIRST_MESSAGE_BYTES_MAX, 4096).

%% The caller becomes the guard.
-spec run(Supervisor :: pid(), inet_rdma_session:t(), inet_rdma_session:link()) -> no_return().
run(Supervisor, Session, Link) ->
    #{node := Node, peer := Peer, config := Config, why := Why, queue := Queue, has_settled := HasSettled} = Link,
    Port = inet_rdma_session:port(Session),
    Guarded = #guarded{session = Session, port = Port, node = Node, supervisor = Supervisor, peer = Peer,
                       config = maps:with([survive_ms, dead_after_ms, move, fallback_retry_ms], Config),
                       queue = none, why = Why,
                       keys = inet_rdma_session_keys:new(Config),
                       mover = inet_rdma_session_mover:new(Session, Node, Config),
                       idle = inet_rdma_session_idle:new(Session, Config)},
    ok = ask_later(Guarded),
    Begun = begin_on(Queue, HasSettled, Guarded),
    inet_rdma_link_guard:run(inet_rdma_link_guard:new(?MODULE, Port, Node, Begun)).

begin_on(none, true, #guarded{mover = Mover} = Guarded) ->
    Guarded#guarded{mover = inet_rdma_session_mover:later(Mover)};
begin_on(none, false, #guarded{config = #{move := eager}} = Guarded) ->
    settle(Guarded);
begin_on(Queue, _HasSettled, Guarded) ->
    standing_by(on(Queue, Guarded)).

-spec handle(term(), #guarded{}) -> #guarded{}.
handle({'$inet_rdma', Port, What}, #guarded{port = Port} = Guarded) ->
    told(What, Guarded);
handle({timeout, Timer, Name}, Guarded) ->
    timeout(Name, Timer, Guarded);
handle({'DOWN', Ref, process, Pid, Exit}, #guarded{loss = Loss, mover = Mover} = Guarded) ->
    case inet_rdma_session_loss:handle_down({Pid, Ref}, Exit, Loss) of
        {ok, Next} ->
            Guarded#guarded{loss = Next};
        {give_up, Why} ->
            give_up(Why, Guarded);
        unknown ->
            case inet_rdma_session_mover:handle_down({Pid, Ref}, Exit, Mover) of
                {Outcome, Next} -> settled(Outcome, Guarded#guarded{mover = Next});
                unknown -> Guarded
            end
    end;
handle(_Message, Guarded) ->
    Guarded.

timeout(retry, Timer, #guarded{loss = Loss} = Guarded) when Loss =/= none ->
    Guarded#guarded{loss = inet_rdma_session_loss:handle_timer(Timer, Loss)};
timeout(bound, Timer, #guarded{loss = Loss} = Guarded) when Loss =/= none ->
    case inet_rdma_session_loss:is_over(Timer, Loss) of
        true -> give_up(inet_rdma_session_loss:why_not_resumed(Loss), Guarded);
        false -> Guarded
    end;
timeout(settle, Timer, #guarded{mover = Mover} = Guarded) ->
    settle_if_due(inet_rdma_session_mover:handle_timer(Timer, Mover), Guarded);
timeout(rekey, Timer, #guarded{keys = Keys} = Guarded) ->
    Guarded#guarded{keys = inet_rdma_session_keys:handle_timer(Timer, connection(Guarded), Keys)};
timeout(ask, _Timer, Guarded) ->
    ask(Guarded);
timeout(idle, Timer, #guarded{idle = Idle, loss = Loss} = Guarded) ->
    Guarded#guarded{idle = inet_rdma_session_idle:handle_timer(Timer, Loss =:= none, Idle)};
timeout(_Name, _Old, Guarded) ->
    Guarded.

told({lost, Reason}, #guarded{loss = none} = Guarded) -> lost(Reason, Guarded);
told({lost, _Reason}, Guarded) -> lost_again(Guarded);
told(restored, Guarded) -> restored(Guarded);
told(earned, #guarded{config = #{move := busy}} = Guarded) -> settle(Guarded);
told(moved, #guarded{queue = none} = Guarded) -> moved_alone(Guarded);
told(key_due, #guarded{keys = Keys} = Guarded) ->
    Guarded#guarded{keys = inet_rdma_session_keys:handle_due(connection(Guarded), Keys)};
told(returned, Guarded) -> returned(Guarded);
told(peer_closed, Guarded) -> Guarded#guarded{ending = peer_closed};
told(peer_misbehaved, Guarded) ->
    Guarded#guarded{ending = {peer_misbehaved, <<"it resumes from a position that it cannot have">>}};
told(How, #guarded{ending = {peer_misbehaved, _}} = Guarded) when is_binary(How) ->
    Guarded#guarded{ending = {peer_misbehaved, How}};
told(Message, Guarded) when is_binary(Message) ->
    case inet_rdma_transport:is_of_keys(Message) of
        {true, Bytes} -> key_message(Bytes, Guarded);
        false -> settlement_message(Message, Guarded)
    end;
told(_, Guarded) -> Guarded.

%% The peer has moved to a queue pair. Without a settlement under way this side has given that queue pair up, and both
%% sides resume without it.
moved_alone(#guarded{mover = Mover, port = Port} = Guarded) ->
    _ = [inet_rdma_port:command(Port, drop) || not inet_rdma_session_mover:is_running(Mover)],
    Guarded.

key_message(Bytes, #guarded{queue = none, mover = Mover, keys = Keys} = Guarded) ->
    case inet_rdma_session_mover:is_running(Mover) of
        true -> Guarded#guarded{keys = inet_rdma_session_keys:keep_early(Bytes, Keys)};
        %% A late message about keys of a queue pair that is gone.
        false -> Guarded
    end;
key_message(Bytes, #guarded{keys = Keys, port = Port, node = Node} = Guarded) ->
    case inet_rdma_session_keys:handle_received(Bytes, connection(Guarded), Keys) of
        {ok, Next} ->
            Guarded#guarded{keys = Next};
        {changed, Next} ->
            ok = inet_rdma_recorder:record(key, Node, #{path => fabric(Guarded)}),
            %% A tick shows the peer that this side seals with another key.
            _ = inet_rdma_port:command(Port, tick),
            Guarded#guarded{keys = Next};
        {error, Fault} ->
            exit(Port, connection_closed),
            Guarded#guarded{ending = Fault}
    end.

connection(#guarded{session = Session, port = Port}) -> inet_rdma_transport:session(Session, Port).

%% Has the port look whether the peer's host answers. Looks are never closer than their interval, even if one of them is
%% late: the port counts them (native/port/src/answers.rs).
ask(#guarded{port = Port} = Guarded) ->
    _ = inet_rdma_port:command(Port, ask, <<(ask_interval_ms(Guarded)):32/native, ?LOOKS:32/native>>),
    ok = ask_later(Guarded),
    Guarded.

ask_later(#guarded{config = #{dead_after_ms := 0}}) ->
    ok;
ask_later(Guarded) ->
    _ = erlang:start_timer(ask_interval_ms(Guarded), self(), ask),
    ok.

ask_interval_ms(#guarded{config = #{dead_after_ms := DeadAfterMs}}) -> (DeadAfterMs + ?LOOKS - 1) div ?LOOKS.

%% The TCP connection is lost.
lost(Reason, #guarded{config = #{survive_ms := 0}} = Guarded) ->
    Why = inet_rdma_link_event:why_lost(Reason),
    give_up(unicode:characters_to_binary(["its TCP connection ended (", Why, ")"]), Guarded);
lost(TcpReason, #guarded{mover = Mover} = Before) ->
    {Queue, Guarded} = queue_lost(Before#guarded{mover = inet_rdma_session_mover:stop(Mover)}),
    IsCarried = is_carried(Guarded),
    Facts = case Queue of
                kept ->
                    Why = inet_rdma_link_event:why_lost(TcpReason),
                    ok = inet_rdma_session_log:lost(TcpReason, Why, IsCarried, facts(Guarded)),
                    {TcpReason, Why};
                {lost, Fabric, Reason, Why} ->
                    ok = inet_rdma_session_log:queue_lost(Fabric, Reason, Why, facts(Guarded)),
                    {Reason, Why}
            end,
    #guarded{session = Session, node = Node, peer = Peer, config = #{survive_ms := SurviveMs}} = Guarded,
    Guarded#guarded{loss = inet_rdma_session_loss:new({Session, Node, Peer, SurviveMs}, Facts, IsCarried)}.

%% The queue pair is lost, too, or the connection that was made anew.
lost_again(Before) ->
    {Queue, #guarded{loss = Loss} = Guarded} = queue_lost(Before),
    _ = [inet_rdma_session_log:queue_lost(Fabric, Reason, Why, facts(Guarded))
         || {lost, Fabric, Reason, Why} <- [Queue]],
    case is_carried(Guarded) of
        true -> Guarded;
        false -> Guarded#guarded{loss = inet_rdma_session_loss:handle_uncarried(Loss)}
    end.

%% The port has lost a path. The loss of a queue pair takes the TCP connection with it: both sides resume over another
%% one, and settle again later.
queue_lost(#guarded{queue = none} = Guarded) ->
    {kept, Guarded};
queue_lost(#guarded{queue = Queue, port = Port, idle = Idle} = Guarded) ->
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
on_tcp(_Reason, Fabric, Why, #guarded{node = Node, config = #{fallback_retry_ms := RetryMs}} = Guarded) ->
    inet_rdma_settlement_policy:lost(Node, binary_to_atom(Fabric), Why, RetryMs),
    settle_later(carried_by(none, <<Fabric/binary, " failed: ", Why/binary>>, Guarded)).

%% The peer ended the queue pair, in order or before its port had it, as it has lost its TCP connection, for example; or
%% both sides have left it. That says nothing against the fabric. A peer that knows of a fault of the fabric says so in
%% the next settlement.
given_up_by_peer(Fabric, Guarded) ->
    settle_again(carried_by(none, <<"the peer gave up the queue pair over ", Fabric/binary>>, Guarded)).

%% Tells whether a queue pair carries the session.
is_carried(#guarded{port = Port}) -> inet_rdma_port:is_carried_by_queue(Port).

restored(#guarded{loss = none, mover = Mover} = Before) ->
    Guarded = Before#guarded{mover = inet_rdma_session_mover:stop(Mover)},
    ok = inet_rdma_session_log:replaced(facts(Guarded)),
    standing_by(queue_given_up(Guarded));
restored(#guarded{loss = Loss} = Guarded) ->
    case inet_rdma_session_loss:handle_restored(Loss) of
        restored -> restored_at_last(Guarded);
        {given_up, Next} -> lost_again(queue_given_up(Guarded#guarded{loss = Next}))
    end.

restored_at_last(#guarded{loss = Loss} = Guarded) ->
    {Reason, Why, Duration} = inet_rdma_session_loss:facts(Loss),
    ok = inet_rdma_session_log:restored(Reason, Why, Duration, facts(Guarded)),
    #guarded{keys = Keys, mover = Mover} = Restored = queue_given_up(Guarded#guarded{loss = none}),
    ok = inet_rdma_session_keys:handle_restored(connection(Restored), Keys),
    settle_if_due(inet_rdma_session_mover:handle_restored(Mover), standing_by(Restored)).

%% If the TCP connection was lost in the middle of a settlement, the peer may not have the queue pair to which this side
%% moved. Both sides have resumed without it then.
queue_given_up(#guarded{queue = none} = Guarded) ->
    Guarded;
queue_given_up(#guarded{idle = Idle} = Guarded) ->
    case {is_carried(Guarded), inet_rdma_session_idle:is_returning(Idle)} of
        {true, _} ->
            Guarded;
        {false, true} ->
            returned(Guarded);
        {false, false} ->
            settle_again(carried_by(none, <<"its TCP connection was lost while it moved">>, Guarded))
    end.

give_up(Why, #guarded{port = Port} = Guarded) ->
    exit(Port, connection_closed),
    Guarded#guarded{ending = {not_resumed, Why}}.

%% A settlement in band is due. The initiator's guard begins it.
settle(#guarded{loss = Loss, mover = Mover} = Guarded) when Loss =/= none ->
    Guarded#guarded{mover = inet_rdma_session_mover:wait_for_tcp(Mover)};
settle(#guarded{queue = none, mover = Mover, session = Session, config = #{move := Move}} = Guarded) when
    Move =/= never
->
    case {inet_rdma_session:role(Session), inet_rdma_session_mover:is_running(Mover)} of
        {initiator, false} -> start_mover(Guarded);
        _ -> Guarded
    end;
settle(Guarded) ->
    Guarded.

settle_if_due({due, Mover}, Guarded) -> settle(Guarded#guarded{mover = Mover});
settle_if_due({not_due, Mover}, Guarded) -> Guarded#guarded{mover = Mover}.

settle_again(#guarded{mover = Mover} = Guarded) -> Guarded#guarded{mover = inet_rdma_session_mover:again(Mover)}.

settle_later(#guarded{mover = Mover} = Guarded) -> Guarded#guarded{mover = inet_rdma_session_mover:later(Mover)}.

start_mover(#guarded{mover = Mover, keys = Keys} = Guarded) ->
    Guarded#guarded{mover = inet_rdma_session_mover:start(Mover),
                    keys = inet_rdma_session_keys:handle_settling(Keys)}.

%% A message of the peer's settlement. The first one starts the acceptor's mover. Another hello starts it anew: the
%% initiator says hello once in each settlement, so it has given up the settlement that runs here.
settlement_message(Message, #guarded{mover = Mover} = Guarded) ->
    IsRunning = inet_rdma_session_mover:is_running(Mover),
    case may_begin(Message, Guarded) andalso (not IsRunning orelse inet_rdma_settlement_message:is_hello(Message)) of
        true ->
            Stopped = Guarded#guarded{mover = inet_rdma_session_mover:stop(Mover)},
            #guarded{mover = Started} = Begun = start_mover(Stopped),
            ok = inet_rdma_session_mover:forward(Message, Started),
            Begun;
        false ->
            %% If no mover runs, a late message.
            _ = [ok = inet_rdma_session_mover:forward(Message, Mover) || IsRunning],
            Guarded
    end.

may_begin(Message, #guarded{session = Session, queue = Queue, loss = Loss}) ->
    Queue =:= none andalso Loss =:= none andalso byte_size(Message) =< ?FIRST_MESSAGE_BYTES_MAX
        andalso inet_rdma_session:role(Session) =:= acceptor.

settled({settled, {move, Queue, Why}}, Guarded) ->
    case inet_rdma_session:move(Queue) of
        ok ->
            #guarded{mover = Mover} = Moved = standing_by(carried_by(Queue, Why, Guarded)),
            ok = inet_rdma_session_log:moved_up(fabric(Guarded), facts(Moved)),
            Moved#guarded{mover = inet_rdma_session_mover:handle_moved(Mover)};
        gone ->
            given_up_by_peer(inet_rdma_queue:fabric(Queue), Guarded)
    end;
settled({settled, {stay, Why, Tried}}, #guarded{mover = Mover} = Guarded) ->
    Stayed = carried_by(none, Why, Guarded),
    %% Logs only the first of several settlements in a row: the operator may expect shared memory or a device.
    _ = [begin
             inet_rdma_links:count({stayed, Tried}),
             ok = inet_rdma_session_log:stayed(facts(Stayed))
         end || not inet_rdma_session_mover:has_failed(Mover)],
    settle_later(Stayed);
settled({settled, {_RefuseOrError, Why}}, #guarded{port = Port} = Guarded) ->
    inet_rdma_links:count(settlement_failed),
    _ = inet_rdma_port:command(Port, drop),
    ok = inet_rdma_session_log:failed(Why, facts(Guarded)),
    settle_later(carried_by(none, Why, Guarded));
settled({crashed, Exit}, #guarded{port = Port} = Guarded) ->
    _ = inet_rdma_port:command(Port, drop),
    ok = inet_rdma_session_log:crashed(Exit, facts(Guarded)),
    settle_later(Guarded).

%% Both sides have gone back to TCP.
returned(#guarded{queue = none} = Guarded) ->
    Guarded;
returned(#guarded{session = Session} = Guarded) ->
    Returned = carried_by(none, <<"it was idle">>, Guarded),
    ok = inet_rdma_session:carry(Session),
    ok = inet_rdma_session_log:moved(fabric(Guarded), facts(Returned)),
    Returned.

%% Has the TCP connection stand by while a queue pair carries the link.
standing_by(#guarded{queue = none} = Guarded) ->
    Guarded;
standing_by(#guarded{session = Session} = Guarded) ->
    ok = inet_rdma_session:stand_by(Session),
    Guarded.

%% Another path carries the link, for this reason.
carried_by(Queue, Why, #guarded{node = Node, supervisor = Supervisor} = Guarded) ->
    Carried = on(Queue, Guarded#guarded{why = Why}),
    ok = inet_rdma_links:update(Supervisor, Node, fabric(Carried), Why),
    Carried.

%% The queue pair carries the link; none: TCP does. Puts the queue pair's keys in use, and begins to look whether the
%% link is idle.
on(Queue, #guarded{keys = Before, idle = Idle} = Guarded) ->
    {Early, Keys} = inet_rdma_session_keys:handle_queue(Queue, Before),
    On = Guarded#guarded{queue = Queue, keys = Keys,
                         idle = case Queue of
                                    none -> inet_rdma_session_idle:stop(Idle);
                                    _ -> inet_rdma_session_idle:start(Idle)
                                end},
    lists:foldl(fun key_message/2, On, Early).

fabric(#guarded{queue = none}) -> <<"tcp">>;
fabric(#guarded{queue = Queue}) -> inet_rdma_queue:fabric(Queue).

-spec carried(#guarded{}) -> {Fabric :: binary(), Why :: binary()}.
carried(#guarded{why = Why} = Guarded) -> {fabric(Guarded), Why}.

facts(#guarded{node = Node, why = Why} = Guarded) -> {Node, fabric(Guarded), Why}.

-spec ended(#guarded{}) -> inet_rdma_link_guard:ending().
ended(#guarded{session = Session, loss = Loss, mover = Mover} = Guarded) ->
    _ = inet_rdma_session_mover:stop(Mover),
    ok = inet_rdma_session_loss:stop(Loss),
    ok = inet_rdma_links:remove_session(inet_rdma_session:name(Session)),
    ending(Guarded).

ending(#guarded{ending = {not_resumed, Why}}) -> {not_resumed, Why, false};
ending(#guarded{ending = peer_closed}) -> {closed, <<"the peer closed the link">>, true};
ending(#guarded{ending = unknown, queue = none}) -> {unknown, <<"its port was closed">>, true};
ending(#guarded{ending = unknown, queue = Queue}) -> inet_rdma_queue:ended(Queue);
ending(#guarded{ending = Fault}) -> inet_rdma_link_guard:ended_by(Fault).

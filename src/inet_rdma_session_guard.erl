%% The guard of a link with a session (inet_rdma_guard, inet_rdma_session), and what it does about the link's paths.
%%
%% The port sends it {'$inet_rdma', Port, What}:
%%
%%     {lost, Why}       the TCP connection is lost; or a queue pair, which takes the TCP connection with it
%%     restored          another TCP connection is there, by an attempt of either side
%%     earned            the traffic is such that the link should move (option move: busy)
%%     moved             the peer's packets come over the queue pair
%%     returned          packets of both sides go over the TCP connection again
%%     peer_closed       the peer ends the session in order
%%     peer_misbehaved   the peer broke the rules of the session; a binary behind it says how
%%     a binary          else: a message of the peer's settlement in band
-module(inet_rdma_session_guard).

-behaviour(inet_rdma_guard).

-export([run/3]).
-export([handle/2, carried/1, ended/1]).
%% Spawned.
-export([mover/2]).

-record(guarded, {
    session :: inet_rdma_session:t(),
    port :: port(),
    node :: binary(),
    supervisor :: pid(),
    %% The address at which the peer accepts connections; none: it accepts none, so a loss ends the link.
    peer :: {inet:ip_address(), inet:port_number()} | none,
    %% Of these options alone: survive_ms, dead_after_ms, move, move_back_ms, fallback_retry_ms, rekey_seconds.
    config :: inet_rdma_options:config(),
    %% The queue pair that carries the link, and the reason in words; none: TCP carries it.
    queue :: inet_rdma_session:queue() | none,
    why :: binary(),
    %% The keys of an encrypted queue pair, and the timer until the next key.
    keys = none :: inet_rdma_keys:t(),
    rekey = none :: none | reference(),
    %% Messages about keys that came before the mover ended.
    early = [] :: [binary()],
    %% The process that settles in band.
    mover = none :: none | {pid(), reference()},
    %% The timer until the next settlement, and the number of failed ones. due: it waits for a TCP connection.
    settles = none :: none | due | reference(),
    settled_in_vain = 0 :: non_neg_integer(),
    lost = none :: none | lost(),
    %% While a queue pair carries: the timer until the next look whether the link is idle, and its bytes at the last
    %% one.
    idle = none :: none | {reference(), Bytes :: non_neg_integer()},
    %% The link goes back to TCP.
    returns = false :: boolean(),
    %% The reason for which the port is about to end, as it has said.
    ending = unknown :: unknown | peer_closed | {peer_misbehaved, binary()} | {not_resumed, binary()}
}).

%% While there is no TCP connection. since: as of erlang:monotonic_time/0. reason, why: of the loss. dialer: the process
%% that makes the connection anew. tries: those that have failed. failure: why the last one did. retry: the timer until
%% the next one. bound: the timer of survive_ms, while nothing carries.
-type lost() :: #{since := integer(), reason := reason(), why := binary(), dialer := {pid(), reference()} | none,
                  tries := non_neg_integer(), failure := term(), retry := reference() | none,
                  bound := reference() | none}.
-type reason() :: inet_rdma_link_event:lost() | inet_rdma:reason() | unknown.

%% Pauses between attempts: the first, and the longest. Each is twice as long as the one before.
-define(RETRY_MS, 20).
-define(RETRY_MS_MAX, 1000).
%% Time that a peer which accepts no connections has to make another one.
-define(UNREACHABLE_MS, 1000).
%% The longest pause while a queue pair carries the link, and nothing waits.
-define(STANDBY_RETRY_MS_MAX, 30000).
%% The longest pause between settlements, each of which is twice as long as the one before. The first is the option
%% fallback_retry_ms.
-define(SETTLE_MS_MAX, 3600000).
%% Looks in the time of the option dead_after_ms, as the port counts them.
-define(ASKS, 4).
%% The pause behind a settlement that ended with the TCP connection.
-define(SETTLE_AGAIN_MS, 1000).
%% Bytes between two looks up to which a link is idle: ticks and their acknowledgements.
-define(IDLE_BYTES_MAX, 4096).
%% A key and its answer: no further message can come before both sides know of the queue pair.
-define(EARLY_MAX, 2).
%% The largest message of a settlement that a guard keeps for a mover, and so the first one.
-define(FIRST_MESSAGE_BYTES_MAX, 4096).

%% The caller becomes the guard.
-spec run(Supervisor :: pid(), inet_rdma_session:t(), inet_rdma_session:link()) -> no_return().
run(Supervisor, Session, Link) ->
    #{node := Node, peer := Peer, config := Config, why := Why, queue := Queue, has_settled := HasSettled} = Link,
    Port = inet_rdma_session:port(Session),
    Guarded = #guarded{session = Session, port = Port, node = Node, supervisor = Supervisor, peer = Peer,
                       config = maps:with([survive_ms, dead_after_ms, move, move_back_ms, fallback_retry_ms,
                                           rekey_seconds], Config),
                       queue = Queue, why = Why},
    ok = ask_later(Guarded),
    inet_rdma_guard:run(inet_rdma_guard:new(?MODULE, Port, Node, first_settlement(HasSettled, Guarded))).

first_settlement(true, #guarded{queue = none} = Guarded) -> settle_later(Guarded);
first_settlement(false, #guarded{queue = none, config = #{move := eager}} = Guarded) -> settle(Guarded);
first_settlement(_HasSettled, Guarded) -> look_for_idleness(standing_by(with_keys(Guarded))).

-spec handle(term(), #guarded{}) -> #guarded{}.
handle({'$inet_rdma', Port, What}, #guarded{port = Port} = Guarded) ->
    told(What, Guarded);
handle({'DOWN', Ref, process, Dialer, Result}, #guarded{lost = #{dialer := {Dialer, Ref}} = Lost} = Guarded) ->
    dialed(Result, Guarded#guarded{lost = Lost#{dialer := none}});
handle({timeout, Timer, retry}, #guarded{lost = #{retry := Timer} = Lost} = Guarded) ->
    dial(Guarded#guarded{lost = Lost#{retry := none}});
handle({timeout, Timer, bound}, #guarded{lost = #{bound := Timer}} = Guarded) ->
    give_up(not_resumed_in_time(Guarded), Guarded);
handle({'DOWN', Ref, process, Mover, Result}, #guarded{mover = {Mover, Ref}} = Guarded) ->
    settled(Result, Guarded#guarded{mover = none});
handle({timeout, Timer, settle}, #guarded{settles = Timer} = Guarded) ->
    settle(Guarded#guarded{settles = none});
handle({timeout, Timer, rekey}, #guarded{rekey = Timer} = Guarded) ->
    rekey_later(key_due(Guarded));
handle({timeout, _Timer, ask}, Guarded) ->
    ask(Guarded);
handle({timeout, Timer, idle}, #guarded{idle = {Timer, Bytes}} = Guarded) ->
    if_idle(Bytes, Guarded#guarded{idle = none});
handle(_Message, Guarded) ->
    Guarded.

told({lost, Reason}, #guarded{lost = none} = Guarded) -> lost(Reason, Guarded);
told({lost, _Reason}, Guarded) -> lost_again(Guarded);
told(restored, Guarded) -> restored(Guarded);
told(earned, #guarded{config = #{move := busy}} = Guarded) -> settle(Guarded);
%% The peer has moved to a queue pair that this side has given up: both resume without it.
told(moved, #guarded{queue = none, mover = none, port = Port} = Guarded) ->
    _ = inet_rdma_link:command(Port, drop),
    Guarded;
told(key_due, Guarded) -> key_due(Guarded);
told(returned, Guarded) -> returned(Guarded);
told(peer_closed, Guarded) -> Guarded#guarded{ending = peer_closed};
told(peer_misbehaved, Guarded) ->
    Guarded#guarded{ending = {peer_misbehaved, <<"it resumes from a position that it cannot have">>}};
told(How, #guarded{ending = {peer_misbehaved, _}} = Guarded) when is_binary(How) ->
    Guarded#guarded{ending = {peer_misbehaved, How}};
told(Message, Guarded) when is_binary(Message) ->
    case inet_rdma_bootstrap:is_of_keys(Message) of
        {true, Bytes} -> of_keys(Bytes, Guarded);
        false -> settlement_message(Message, Guarded)
    end;
told(_, Guarded) -> Guarded.

%% An encrypted queue pair gets new keys by bytes, when the port asks, and by time.
with_keys(#guarded{queue = none} = Guarded) -> Guarded#guarded{keys = none, rekey = none};
with_keys(#guarded{queue = Queue, early = Early} = Guarded) ->
    Begun = rekey_later(Guarded#guarded{keys = inet_rdma_session:keys(Queue), early = []}),
    lists:foldl(fun of_keys/2, Begun, lists:reverse(Early)).

rekey_later(#guarded{keys = Keys, config = #{rekey_seconds := Seconds}} = Guarded) when Keys =/= none, Seconds > 0 ->
    Guarded#guarded{rekey = erlang:start_timer(Seconds * 1000, self(), rekey)};
rekey_later(Guarded) ->
    Guarded.

key_due(#guarded{keys = none} = Guarded) ->
    Guarded;
key_due(#guarded{keys = Keys} = Guarded) ->
    {ok, Told} = inet_rdma_keys:handle_due(Keys, connection(Guarded)),
    Guarded#guarded{keys = Told}.

of_keys(Bytes, #guarded{queue = none, mover = {_, _}, early = Early} = Guarded) when length(Early) < ?EARLY_MAX ->
    Guarded#guarded{early = [Bytes | Early]};
%% Drops a late message about keys of a queue pair that is gone.
of_keys(_Late, #guarded{queue = none} = Guarded) ->
    Guarded;
of_keys(Bytes, #guarded{keys = Keys, port = Port} = Guarded) ->
    case inet_rdma_keys:handle_received(Keys, connection(Guarded), Bytes) of
        {ok, Next} ->
            Guarded#guarded{keys = Next};
        {changed, Next} ->
            ok = inet_rdma_recorder:record(key, Guarded#guarded.node, #{path => fabric(Guarded)}),
            %% A tick shows the peer that this side seals with another key.
            _ = inet_rdma_link:command(Port, tick),
            Guarded#guarded{keys = Next};
        {error, Why} ->
            exit(Port, connection_closed),
            Guarded#guarded{ending = {peer_misbehaved, Why}}
    end.

connection(#guarded{session = Session, port = Port}) -> inet_rdma_bootstrap:session(Session, Port).

%% Has the port look whether the peer's host answers. Looks are never closer than their interval, however late one of
%% them comes: the port counts them (native/port/src/answers.rs).
ask(#guarded{port = Port} = Guarded) ->
    _ = inet_rdma_link:command(Port, ask, <<(ask_interval_ms(Guarded)):32/native>>),
    ok = ask_later(Guarded),
    Guarded.

ask_later(#guarded{config = #{dead_after_ms := 0}}) ->
    ok;
ask_later(Guarded) ->
    _ = erlang:start_timer(ask_interval_ms(Guarded), self(), ask),
    ok.

ask_interval_ms(#guarded{config = #{dead_after_ms := DeadAfterMs}}) -> (DeadAfterMs + ?ASKS - 1) div ?ASKS.

%% The TCP connection is lost.
lost(Reason, #guarded{config = #{survive_ms := 0}} = Guarded) ->
    give_up(text("its TCP connection ended (~ts)", [inet_rdma_link_event:why_lost(Reason)]), Guarded);
lost(TcpReason, Before) ->
    {Queue, Guarded} = queue_lost(stop_mover(Before)),
    {Reason, Why} = case Queue of
                        {lost, _Fabric, QueueReason, QueueWhy} -> {QueueReason, QueueWhy};
                        kept -> {TcpReason, inet_rdma_link_event:why_lost(TcpReason)}
                    end,
    Carried = is_carried(Guarded),
    Bound = case Carried of
                true -> none;
                false -> bound(Guarded)
            end,
    say_lost(Queue, Reason, Why, Carried, Guarded),
    Lost = #{since => erlang:monotonic_time(), reason => Reason, why => Why, dialer => none, tries => 0,
             failure => none, retry => none, bound => Bound},
    dial(Guarded#guarded{lost = Lost}).

%% The queue pair is lost, too, or the connection that was made anew: where nothing carries there is no time to wait.
lost_again(#guarded{lost = #{retry := Retry, bound := Bound} = Lost} = Before) ->
    {Queue, Guarded} = queue_lost(Before),
    _ = [say_lost(Queue, Reason, Why, false, Guarded) || {lost, _Fabric, Reason, Why} <- [Queue]],
    case is_carried(Guarded) of
        true ->
            Guarded;
        false ->
            _ = [erlang:cancel_timer(Retry) || is_reference(Retry)],
            Timer = case Bound of
                        none -> bound(Guarded);
                        _ -> Bound
                    end,
            dial(Guarded#guarded{lost = Lost#{retry := none, tries := 0, bound := Timer}})
    end.

%% The timer of a link that nothing carries. A peer that accepts no connections cannot be asked whether it lives.
bound(#guarded{peer = none, config = #{survive_ms := SurviveMs}}) ->
    erlang:start_timer(min(SurviveMs, ?UNREACHABLE_MS), self(), bound);
bound(#guarded{config = #{survive_ms := SurviveMs}}) ->
    erlang:start_timer(SurviveMs, self(), bound).

%% Writes one log line and one event for a loss.
say_lost(kept, Reason, Why, Carried, #guarded{node = Node} = Guarded) ->
    inet_rdma_guard:say(lost_event(Reason, Why, Guarded), notice,
                        "inet_rdma: the link to ~ts lost its TCP connection (~ts), and makes it anew~ts",
                        [Node, Why, case Carried of true -> "; its queue pair carries on"; false -> "" end],
                        #{count => 1});
say_lost({lost, Fabric, _, _}, Reason, Why, _Carried, #guarded{node = Node, why = WhyTcp} = Guarded) ->
    inet_rdma_guard:say(lost_event(Reason, Why, Guarded), notice,
                        "inet_rdma: the link to ~ts lost its queue pair over ~ts (~ts), and goes back to TCP",
                        [Node, Fabric, Why], #{count => 1}),
    inet_rdma_link_event:tell(inet_rdma_link_event:moved(Node, Fabric, fabric(Guarded), WhyTcp), #{count => 1}).

lost_event(Reason, Why, #guarded{node = Node} = Guarded) ->
    inet_rdma_link_event:new(lost, Node, fabric(Guarded), Why, Reason).

%% A queue pair that is lost has taken the TCP connection with it: over another one both sides resume, and settle
%% again later.
queue_lost(#guarded{queue = none} = Guarded) ->
    {kept, Guarded};
queue_lost(#guarded{queue = Queue, node = Node, config = #{fallback_retry_ms := RetryMs}, port = Port} = Guarded) ->
    case inet_rdma_link:statistics(Port) of
        {ok, #{carried_by_queue := true}} ->
            {kept, Guarded};
        {error, closed} ->
            {kept, Guarded};
        {ok, #{carried_by_queue := false}} when Guarded#guarded.returns ->
            {kept, returned(Guarded)};
        {ok, #{carried_by_queue := false}} ->
            Fabric = inet_rdma_session:fabric(Queue),
            Reason = inet_rdma_session:reason(Queue),
            Why = inet_rdma_link:why(Reason),
            inet_rdma_settlement_policy:lost(Node, binary_to_atom(Fabric), Why, RetryMs),
            OnTcp = settle_later(carried_by(none, <<Fabric/binary, " failed: ", Why/binary>>, Guarded)),
            {{lost, Fabric, Reason, Why}, OnTcp}
    end.

%% Whether a queue pair carries the session.
is_carried(#guarded{port = Port}) ->
    case inet_rdma_link:statistics(Port) of
        {ok, #{carried_by_queue := IsCarried}} -> IsCarried;
        {error, closed} -> false
    end.

dial(#guarded{peer = none} = Guarded) ->
    Guarded;
dial(#guarded{session = Session, node = Node, peer = Peer, lost = #{dialer := none} = Lost} = Guarded) ->
    Guarded#guarded{lost = Lost#{dialer := inet_rdma_session:dial(Session, Node, Peer)}};
dial(Guarded) ->
    Guarded.

%% How an attempt has ended.
dialed({dead, Why}, #guarded{port = Port, node = Node} = Guarded) ->
    ok = inet_rdma_recorder:record(redial, Node, #{cause => dead, why => Why}),
    case inet_rdma_link:statistics(Port) of
        {ok, #{carried_by_queue := false, has_tcp := false}} -> give_up(Why, Guarded);
        %% The peer has connected by itself, or the queue pair carries on.
        _ -> retry(Guarded)
    end;
dialed({failed, Reason}, #guarded{lost = Lost, node = Node} = Guarded) ->
    ok = inet_rdma_recorder:record(redial, Node, #{cause => Reason}),
    retry(Guarded#guarded{lost = Lost#{failure := Reason}});
%% Resumed: the port has told that before, and no dial is needed unless it has lost a path again.
dialed(_ResumedSupersededOrCrashed, Guarded) ->
    retry(Guarded).

retry(#guarded{lost = #{tries := Tries} = Lost} = Guarded) ->
    MaxMs = case is_carried(Guarded) of
                true -> ?STANDBY_RETRY_MS_MAX;
                false -> ?RETRY_MS_MAX
            end,
    AfterMs = min(MaxMs, ?RETRY_MS bsl min(Tries, 16)),
    Guarded#guarded{lost = Lost#{tries := Tries + 1, retry := erlang:start_timer(AfterMs, self(), retry)}}.

restored(#guarded{lost = none, node = Node} = Before) ->
    Guarded = stop_mover(Before),
    %% The peer has lost the one before; this side had not seen that yet. Events come in pairs all the same.
    Why = inet_rdma_link_event:why_lost(superseded),
    inet_rdma_link_event:tell(lost_event(superseded, Why, Guarded), #{count => 1}),
    inet_rdma_guard:say(inet_rdma_link_event:new(restored, Node, fabric(Guarded), Why, superseded), notice,
                        "inet_rdma: the link to ~ts goes on over another TCP connection; the peer has lost the one "
                        "before",
                        [Node], #{count => 1, duration => 0}),
    standing_by(queue_given_up(Guarded));
restored(#guarded{node = Node, lost = Lost} = Guarded) ->
    #{since := Since, reason := Reason, why := Why, retry := Retry, bound := Bound} = Lost,
    ok = stop_dialer(Lost),
    _ = [erlang:cancel_timer(Timer) || Timer <- [Retry, Bound], is_reference(Timer)],
    Duration = erlang:monotonic_time() - Since,
    inet_rdma_guard:say(inet_rdma_link_event:new(restored, Node, fabric(Guarded), Why, Reason), notice,
                        "inet_rdma: the link to ~ts goes on over another TCP connection, after ~b ms without one (~ts)",
                        [Node, erlang:convert_time_unit(Duration, native, millisecond), Why],
                        #{count => 1, duration => Duration}),
    settle_if_due(standing_by(tell_key_again(queue_given_up(Guarded#guarded{lost = none})))).

%% The message may be lost with the connection.
tell_key_again(#guarded{keys = Keys} = Guarded) ->
    ok = inet_rdma_keys:handle_restored(Keys, connection(Guarded)),
    Guarded.

stop_dialer(#{dialer := {Dialer, Ref}}) ->
    demonitor(Ref, [flush]),
    exit(Dialer, kill),
    ok;
stop_dialer(_) ->
    ok.

not_resumed_in_time(#guarded{peer = none, lost = #{why := Why}}) ->
    text("its TCP connection ended (~ts), and the peer, which accepts none, has not made another", [Why]);
not_resumed_in_time(#guarded{lost = #{why := Why, failure := none}}) ->
    text("nothing carried it for the time of the option survive_ms (~ts)", [Why]);
not_resumed_in_time(#guarded{lost = #{why := Why, failure := Failure}}) ->
    text("nothing carried it for the time of the option survive_ms (~ts); the last attempt to connect failed: ~tp",
         [Why, Failure]).

text(Format, Arguments) -> unicode:characters_to_binary(io_lib:format(Format, Arguments)).

%% The peer did not have the queue pair to which this side moved, as the TCP connection was lost in the middle of their
%% settlement: both have resumed without it.
queue_given_up(#guarded{queue = none} = Guarded) ->
    Guarded;
queue_given_up(Guarded) ->
    case is_carried(Guarded) of
        true -> Guarded;
        false -> settle_again(carried_by(none, <<"its TCP connection was lost while it moved">>, Guarded))
    end.

give_up(Why, #guarded{port = Port} = Guarded) ->
    exit(Port, connection_closed),
    Guarded#guarded{ending = {not_resumed, Why}}.

%% The initiator's guard begins a settlement in band.
settle(#guarded{queue = none, mover = none, lost = none, config = #{move := Move}} = Guarded) when Move =/= never ->
    case role(Guarded) of
        initiator -> start_mover(Guarded);
        acceptor -> Guarded
    end;
%% Without a TCP connection nothing can be settled.
settle(#guarded{lost = #{}} = Guarded) ->
    Guarded#guarded{settles = due};
settle(Guarded) ->
    Guarded.

settle_if_due(#guarded{settles = due} = Guarded) -> settle(Guarded#guarded{settles = none});
settle_if_due(Guarded) -> Guarded.

settle_later(#guarded{settles = none, config = #{fallback_retry_ms := RetryMs, move := Move}} = Guarded) when
    Move =/= never, RetryMs > 0
->
    case role(Guarded) of
        initiator ->
            Times = Guarded#guarded.settled_in_vain,
            AfterMs = min(?SETTLE_MS_MAX, RetryMs bsl min(Times, 12)),
            Guarded#guarded{settles = erlang:start_timer(AfterMs, self(), settle), settled_in_vain = Times + 1};
        acceptor ->
            Guarded
    end;
settle_later(Guarded) ->
    Guarded.

role(#guarded{session = Session}) -> inet_rdma_session:role(Session).

%% A message of the peer's settlement: for the mover. The first one starts the acceptor's.
settlement_message(Message, #guarded{mover = {Mover, _}, port = Port} = Guarded) ->
    Mover ! {session, Port, Message},
    Guarded;
settlement_message(Message, #guarded{queue = none, lost = none} = Guarded) when
    byte_size(Message) =< ?FIRST_MESSAGE_BYTES_MAX
->
    case role(Guarded) of
        acceptor -> settlement_message(Message, start_mover(Guarded));
        initiator -> Guarded
    end;
settlement_message(_Late, Guarded) ->
    Guarded.

start_mover(#guarded{session = Session, node = Node} = Guarded) ->
    Guarded#guarded{mover = spawn_monitor(?MODULE, mover, [Session, Node]), early = []}.

%% Settles, in a process of its own, whose exit reason is the outcome.
-spec mover(inet_rdma_session:t(), Node :: binary()) -> no_return().
mover(Session, Node) ->
    Port = inet_rdma_session:port(Session),
    Role = inet_rdma_session:role(Session),
    Connection = inet_rdma_bootstrap:session(Session, Port),
    case inet_rdma_options:node() of
        {ok, Config} ->
            exit({settled, inet_rdma_settlement:settle_in_band(Role, Connection, Node, Config, Port)});
        {error, Reason} ->
            exit({settled, {error, unicode:characters_to_binary(inet_rdma_options:format_error(Reason))}})
    end.

%% A settlement in band needs the TCP connection.
stop_mover(#guarded{mover = none} = Guarded) ->
    Guarded;
stop_mover(#guarded{mover = {Mover, Ref}, port = Port} = Guarded) ->
    demonitor(Ref, [flush]),
    exit(Mover, kill),
    _ = inet_rdma_link:command(Port, drop),
    settle_again(Guarded#guarded{mover = none}).

settle_again(Guarded) -> Guarded#guarded{settles = erlang:start_timer(?SETTLE_AGAIN_MS, self(), settle)}.

settled({settled, {move, Queue, Why}}, #guarded{node = Node} = Guarded) ->
    ok = inet_rdma_session:move(Queue),
    Moved = standing_by(carried_by(Queue, Why, Guarded)),
    event(up, info, Moved, "inet_rdma: ~ts over ~ts; ~ts", [Node, fabric(Moved), Why], #{count => 1}),
    inet_rdma_link_event:tell(inet_rdma_link_event:moved(Node, fabric(Guarded), fabric(Moved), Why), #{count => 1}),
    look_for_idleness(Moved#guarded{settled_in_vain = 0});
settled({settled, {stay, Why, Tried}}, #guarded{node = Node, settled_in_vain = Times} = Guarded) ->
    Stayed = carried_by(none, Why, Guarded),
    %% Logs at level notice once, as the operator may expect shared memory or a device.
    _ = [begin
             inet_rdma_links:count({stayed, Tried}),
             event(fallback, notice, Stayed, "inet_rdma: ~ts stays on TCP; ~ts", [Node, Why], #{count => 1})
         end || Times =:= 0],
    settle_later(Stayed);
settled({settled, {_RefuseOrError, Why}}, #guarded{node = Node, port = Port} = Guarded) ->
    inet_rdma_links:count(settlement_failed),
    _ = inet_rdma_link:command(Port, drop),
    event(failed, notice, Guarded, "inet_rdma: ~ts stays on TCP: ~ts", [Node, Why], #{count => 1}),
    settle_later(carried_by(none, Why, Guarded));
settled(Crash, #guarded{node = Node, port = Port} = Guarded) ->
    _ = inet_rdma_link:command(Port, drop),
    event(failed, warning, Guarded, "inet_rdma: ~ts stays on TCP: its settlement failed: ~tp", [Node, Crash],
          #{count => 1}),
    settle_later(Guarded).

%% A link that is idle for long goes back to TCP, and its queue pair's memory is free. The initiator's guard looks for
%% that, where the option move is busy: the link moves again when it has earned it once more.
look_for_idleness(#guarded{config = #{move := busy, move_back_ms := Ms}, idle = none, queue = Queue} = Guarded) when
    Ms > 0, Queue =/= none
->
    case role(Guarded) of
        initiator -> look_again(Ms, bytes(Guarded), Guarded);
        acceptor -> Guarded
    end;
look_for_idleness(Guarded) ->
    Guarded.

look_again(Ms, Bytes, Guarded) ->
    Guarded#guarded{idle = {erlang:start_timer(Ms, self(), idle), Bytes}}.

if_idle(_Before, #guarded{queue = none} = Guarded) ->
    Guarded;
if_idle(Before, #guarded{lost = none, port = Port, config = #{move_back_ms := Ms}} = Guarded) ->
    case bytes(Guarded) of
        Now when Now - Before > ?IDLE_BYTES_MAX ->
            look_again(Ms, Now, Guarded);
        Now ->
            case inet_rdma_link:command(Port, return) of
                {ok, <<1>>} -> Guarded#guarded{returns = true};
                %% The peer has not said yet that all has arrived: its next tick does.
                _ -> look_again(max(1, Ms div 4), Now, Guarded)
            end
    end;
if_idle(_Before, Guarded) ->
    look_for_idleness(Guarded).

%% Bytes of both directions.
bytes(#guarded{port = Port}) ->
    case inet_rdma_link:counts(Port) of
        {ok, #{bytes_received := Received, bytes_sent := Sent}} -> Received + Sent;
        {error, closed} -> 0
    end.

%% Both sides have gone back to TCP.
returned(#guarded{queue = none} = Guarded) ->
    Guarded;
returned(#guarded{node = Node} = Guarded) ->
    Why = <<"it was idle">>,
    Returned = carried_by(none, Why, Guarded#guarded{returns = false, idle = none}),
    ok = inet_rdma_session:carry(Guarded#guarded.session),
    inet_rdma_link_event:tell(inet_rdma_link_event:moved(Node, fabric(Guarded), fabric(Returned), Why), #{count => 1}),
    Returned.

%% Has the TCP connection stand by while a queue pair carries the link.
standing_by(#guarded{queue = none} = Guarded) ->
    Guarded;
standing_by(#guarded{session = Session} = Guarded) ->
    ok = inet_rdma_session:stand_by(Session),
    Guarded.

%% Notes that another path carries the link, for this reason.
carried_by(Queue, Why, #guarded{node = Node, supervisor = Supervisor} = Guarded) ->
    Carried = with_keys(Guarded#guarded{queue = Queue, why = Why}),
    ok = inet_rdma_links:update(Supervisor, Node, fabric(Carried), Why),
    Carried.

fabric(#guarded{queue = none}) -> <<"tcp">>;
fabric(#guarded{queue = Queue}) -> inet_rdma_session:fabric(Queue).

-spec carried(#guarded{}) -> {Fabric :: binary(), Why :: binary()}.
carried(#guarded{why = Why} = Guarded) -> {fabric(Guarded), Why}.

event(Kind, Level, #guarded{node = Node, why = Why} = Guarded, Format, Arguments, Measurements) ->
    inet_rdma_guard:event(Kind, Level, {Node, fabric(Guarded), Why}, Format, Arguments, Measurements).

-spec ended(#guarded{}) -> {inet_rdma:reason() | unknown, Why :: binary(), IsUsual :: boolean()}.
ended(#guarded{session = Session, lost = Lost} = Guarded) ->
    _ = stop_mover(Guarded),
    ok = stop_dialer(Lost),
    ok = inet_rdma_links:remove_session(inet_rdma_session:name(Session)),
    ending(Guarded).

ending(#guarded{ending = {not_resumed, Why}}) -> {not_resumed, Why, false};
ending(#guarded{ending = {peer_misbehaved, How}}) -> {peer_misbehaved, <<"the peer misbehaved: ", How/binary>>, false};
ending(#guarded{ending = peer_closed}) -> {closed, <<"the peer closed the link">>, true};
ending(#guarded{queue = none}) -> {unknown, <<"its port was closed">>, true};
ending(#guarded{queue = Queue}) ->
    Reason = inet_rdma_session:reason(Queue),
    {Reason, inet_rdma_link:why(Reason), inet_rdma_link:is_usual(Reason)}.

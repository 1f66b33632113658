%% The dialer of a link: makes attempts to get the link's session another TCP connection, at every
%% address of the peer, until it succeeds, the guard stops it, or the peer has ended. It collects
%% the evidence for that (inet_rdma_death).
%%
%% Attempts (inet_rdma_resume) run side by side, each in a process linked to the dialer. The next
%% one starts a moment after the last, or as soon as that has failed (RFC 8305). The first one to
%% which the peer has proved the session's secret wins: the others are stopped, then the dialer
%% gives the old connection up for it. Look-ups of the node's name run beside the attempts. If none
%% has a connection after a while, one goes over a neighbour (inet_rdma_detour), beside those that
%% follow.
-module(inet_rdma_dialer).

-export([has_addresses/2, start/2, stop/2, give_up/1, uncarried/2, neighbour/2, last_failure/1]).
%% Spawned, and called by name so that a dialer outlives a change of its code.
-export([init/2, loop/1]).
-export_type([options/0]).

-import(inet_rdma_clock, [now_ms/0]).

-record(attempt, {
    to :: inet_rdma_peer_node:address() | detour,
    connected_at = none :: integer() | none
}).

-record(dialer, {
    session :: inet_rdma_session:t(),
    port :: port(),
    node :: binary(),
    %% What all attempts have in common.
    dialling :: inet_rdma_resume:dialling(),
    is_in_order :: boolean(),
    refused_ms :: timeout(),
    %% What neighbours have said of the peer's VM, and when one of them has said that it lives.
    neighbour = unknown :: unknown | dead | presumed | {alive, integer()},
    %% When they are asked again.
    ask :: integer() | off,
    %% When the peer has last proved the secret, in an attempt that failed afterwards.
    proved = none :: integer() | none,
    %% Since when no path carries the link. All times: erlang:monotonic_time(millisecond).
    uncarried = none :: integer() | none,
    candidates :: inet_rdma_candidates:t(),
    attempts = #{} :: #{pid() => #attempt{}},
    %% The attempt that was started last, and when.
    newest = none :: pid() | none,
    newest_at = 0 :: integer(),
    %% The attempt for which the old connection was given up, and its number.
    winner = none :: none | {pid(), pos_integer()},
    has_answered = false :: boolean(),
    %% A look-up with the time at which it is killed, or the time of the next one.
    look_up :: {due, integer()} | {running, pid(), Until :: integer()},
    look_ups = 0 :: non_neg_integer(),
    name_server = no_answer :: inet_rdma_death:name_server(),
    asked = none :: inet:ip_address() | none,
    %% The EPMD that has known the node.
    known_by :: inet:ip_address() | none,
    failure = none :: term(),
    %% The time of the next attempt over a neighbour; running: one is under way; off: there is none.
    detour :: integer() | running | off,
    detours = 0 :: non_neg_integer()
}).

%% peer: where the link's first connection has led, or where its acceptor takes the peer to listen;
%% none: nowhere. is_in_order: the other side has ended the lost connection in order. is_uncarried:
%% no path carries the link. is_detoured: a detour carries it well, and the dialer takes it back to
%% the direct way. is_narrow: connections have small segments. refused_ms: the option; without it,
%% refusals of translated addresses end nothing.
-type options() :: #{
    node := binary(),
    peer := inet_rdma_peer_node:address() | none,
    is_in_order := boolean(),
    is_uncarried := boolean(),
    is_detoured => boolean(),
    is_narrow => boolean(),
    refused_ms => non_neg_integer()
}.

-define(STAGGER_MS, 150).
-define(ATTEMPTS_MAX, 4).
%% The longest pauses between attempts at one address, and between look-ups.
-define(PAUSE_MS_MAX, 1000).
%% The same while a queue pair carries the link, so that no packet waits.
-define(STANDBY_PAUSE_MS_MAX, 30000).
-define(LOOK_UP_PAUSE_MS, 20).
-define(LOOK_UP_MS, 5000).
-define(ANSWER_MS, 1000).
%% Time from the loss to the first question to neighbours: most deaths are known by then. After
%% that, and while a path is only suspected, the time between questions.
-define(ASK_MS, 50).
-define(ASK_AGAIN_MS, 500).
-define(ASK_SUSPECTED_MS, 2000).
%% Time for which a neighbour's word that the peer lives counts: that of three questions.
-define(ALIVE_MS, 1500).
%% Time after its connect for which an attempt counts as under way: that of a message at first.
-define(UNDER_WAY_MS, 3000).

%% Whether there is an address to dial. A peer that accepts no connections has none.
-spec has_addresses(inet_rdma_session:t(), Peer :: inet_rdma_peer_node:address() | none) ->
    boolean().
has_addresses(Session, none) ->
    #{peer_node := PeerNode} = inet_rdma_links:peer(inet_rdma_session:name(Session)),
    inet_rdma_peer_node:addresses(PeerNode) =/= [];
has_addresses(_Session, _Peer) ->
    true.

%% The dialer's exit reason is resumed (the port's notice `restored` follows or has come) or
%% {dead, inet_rdma_death:grade(), Why}.
-spec start(inet_rdma_session:t(), options()) -> {ok, {pid(), reference()}} | {error, system_limit}.
start(Session, Options) ->
    inet_rdma_bounded:start_monitored(?MODULE, init, [Session, Options]).

%% Ends it and waits for the end. Its attempts end with it; none of them gives a connection up after
%% this call. If one has done so the port tells the guard of the loss at once.
-spec stop(inet_rdma_session:t(), {pid(), reference()}) -> ok.
stop(Session, Dialer) ->
    ok = inet_rdma_session:stop_process(Dialer),
    Port = inet_rdma_session:port(Session),
    _ = inet_rdma_port:command(Port, release),
    _ = inet_rdma_port:command(Port, abandon),
    ok.

%% Ends one that the guard does not know, and waits for the end. The guard hears of a connection
%% that it has given up.
-spec give_up({pid(), reference()}) -> ok.
give_up({Pid, Ref}) ->
    Pid ! give_up,
    receive
        {'DOWN', Ref, process, Pid, _} -> ok
    end.

%% No path carries the link now: attempts are made at once. Reason: of the TCP connection;
%% queue_pair: that is lost, too.
-spec uncarried(pid(), Reason :: term()) -> ok.
uncarried(Pid, Reason) ->
    Pid ! {uncarried, Reason},
    ok.

%% A neighbour knows this of the peer's VM.
-spec neighbour(pid(), inet_rdma_witness:said()) -> ok.
neighbour(Pid, Said) ->
    Pid ! {neighbour, Said},
    ok.

%% Why the last attempt has failed; none: none has, or the dialer has ended.
-spec last_failure(pid()) -> term() | none.
last_failure(Pid) ->
    Ref = monitor(process, Pid),
    Pid ! {last_failure, self(), Ref},
    receive
        {Ref, Failure} ->
            demonitor(Ref, [flush]),
            Failure;
        {'DOWN', Ref, process, Pid, _} ->
            none
    after ?ANSWER_MS ->
        demonitor(Ref, [flush]),
        none
    end.

-spec init(inet_rdma_session:t(), options()) -> no_return().
init(
    Session,
    #{node := Node, peer := Peer, is_in_order := IsInOrder, is_uncarried := IsUncarried} = Options
) ->
    _ = process_flag(trap_exit, true),
    Port = inet_rdma_session:port(Session),
    _ = monitor(port, Port),
    ok = inet_rdma_recorder:of_port(Port),
    Now = now_ms(),
    #{peer_node := PeerNode, reached := Reached, known_by := KnownBy} =
        inet_rdma_links:peer(inet_rdma_session:name(Session)),
    RefusedMs = maps:get(refused_ms, Options, infinity),
    Candidates = inet_rdma_candidates:new(#{
        peer => Peer,
        role => inet_rdma_session:role(Session),
        peer_node => PeerNode,
        reached => Reached,
        refused_ms => RefusedMs
    }),
    Dialling = #{
        session => Session,
        node => Node,
        peer_node => PeerNode,
        dialer => self(),
        is_narrow => maps:get(is_narrow, Options, false)
    },
    IsReturn = maps:get(is_detoured, Options, false),
    next(#dialer{
        session = Session,
        port = Port,
        node = Node,
        dialling = Dialling,
        is_in_order = IsInOrder,
        refused_ms = RefusedMs,
        ask =
            case IsReturn orelse inet_rdma_peer_node:instance(PeerNode) =:= none of
                true -> off;
                false -> Now + ?ASK_MS
            end,
        uncarried =
            case IsUncarried of
                true -> Now;
                false -> none
            end,
        candidates = Candidates,
        look_up = {due, Now + ?STAGGER_MS},
        detour =
            case IsReturn of
                true -> off;
                false -> Now + detour_ms(Session)
            end,
        known_by = KnownBy
    }).

-spec loop(#dialer{}) -> no_return().
loop(Dialer) ->
    receive
        Message -> next(handle(Message, Dialer))
    after wait_ms(Dialer) -> next(Dialer)
    end.

-spec next(#dialer{}) -> no_return().
next(Dialer) ->
    Next = ask(now_ms(), look_up(now_ms(), detour(now_ms(), dial(now_ms(), Dialer)))),
    case verdict(Next) of
        {dead, _Grade, Why} = Verdict ->
            ok = record(dead, Why, Next),
            finish(Verdict, Next);
        _ ->
            ?MODULE:loop(Next)
    end.

-spec finish(term(), #dialer{}) -> no_return().
finish(Reason, Dialer) ->
    _ = inet_rdma_port:command(
        (stop_attempts(Dialer#dialer.attempts, Dialer))#dialer.port, release
    ),
    exit(Reason).

handle({connected, Pid}, #dialer{attempts = Attempts} = Dialer) when is_map_key(Pid, Attempts) ->
    #{Pid := Attempt} = Attempts,
    Dialer#dialer{attempts = Attempts#{Pid := Attempt#attempt{connected_at = now_ms()}}};
handle({give_up, Pid, Number}, #dialer{attempts = Attempts} = Dialer) when
    is_map_key(Pid, Attempts)
->
    Alone = stop_attempts(maps:remove(Pid, Attempts), Dialer),
    Given = give_up(Number, Alone),
    Pid ! {self(), Given},
    case Given of
        {ok, _Received, _Path} -> Alone#dialer{winner = {Pid, Number}};
        _ -> Alone
    end;
handle({'EXIT', Pid, Result}, #dialer{attempts = Attempts} = Dialer) when
    is_map_key(Pid, Attempts)
->
    {Attempt, Others} = maps:take(Pid, Attempts),
    Left = given_back(abandoned(Pid, Result, Dialer#dialer{attempts = Others})),
    attempted(Result, Attempt, Left);
handle({'EXIT', Pid, Exit}, #dialer{look_up = {running, Pid, _}} = Dialer) ->
    found(Exit, Dialer);
handle(
    {uncarried, Reason},
    #dialer{uncarried = none, candidates = Before, attempts = Attempts} = Dialer
) ->
    Now = now_ms(),
    %% One with much time would hold its address back.
    Slow = maps:filter(
        fun(_Pid, #attempt{to = To}) -> inet_rdma_candidates:factor(To, Before) > 1 end, Attempts
    ),
    #dialer{candidates = Candidates} =
        Left =
        case Dialer of
            #dialer{winner = none} -> stop_attempts(Slow, Dialer);
            _ -> Dialer
        end,
    in_order(Reason, Left#dialer{
        uncarried = Now,
        candidates = inet_rdma_candidates:hurry(Candidates),
        look_up = sooner(Now, Left),
        look_ups = 0,
        name_server = no_answer,
        has_answered = false,
        ask =
            case Left#dialer.ask of
                off -> off;
                At -> min(At, Now + ?ASK_MS)
            end
    });
%% An attempt that gave the old connection up has failed.
handle({uncarried, superseded}, Dialer) ->
    Dialer;
handle({uncarried, Reason}, Dialer) ->
    in_order(Reason, Dialer);
handle({neighbour, Said}, #dialer{neighbour = Before} = Dialer) when
    Said =:= dead; Said =:= presumed
->
    Dialer#dialer{
        neighbour =
            case {Before, Said} of
                %% Proof of its end outweighs an earlier word of its life, and nothing else does.
                {_, dead} -> dead;
                {unknown, presumed} -> presumed;
                _ -> Before
            end
    };
handle({neighbour, alive}, Dialer) ->
    Dialer#dialer{neighbour = {alive, now_ms()}};
handle({last_failure, From, Ref}, #dialer{failure = Failure} = Dialer) ->
    From ! {Ref, Failure},
    Dialer;
handle(give_up, #dialer{winner = Winner, attempts = Attempts} = Dialer) ->
    Stopped = stop_attempts(Attempts, Dialer),
    finish(
        normal,
        case Winner of
            {Pid, _Number} -> abandoned(Pid, given_up, Stopped);
            none -> Stopped
        end
    );
handle({'DOWN', _Ref, port, Port, _}, #dialer{port = Port} = Dialer) ->
    finish(normal, Dialer);
handle(_Message, Dialer) ->
    Dialer.

in_order(queue_pair, Dialer) -> Dialer;
in_order(Reason, Dialer) -> Dialer#dialer{is_in_order = Reason =:= closed}.

dial(Now, #dialer{winner = none, attempts = Attempts, candidates = Candidates} = Dialer) when
    map_size(Attempts) < ?ATTEMPTS_MAX
->
    case start_at(Dialer) =< Now andalso inet_rdma_candidates:next(Now, Candidates) of
        {due, Address} -> dial(Now, attempt(Address, Now, Dialer));
        _ -> Dialer
    end;
dial(_Now, Dialer) ->
    Dialer.

start_at(#dialer{newest = Newest, newest_at = At, attempts = Attempts}) when
    is_map_key(Newest, Attempts)
->
    At + ?STAGGER_MS;
start_at(_Dialer) ->
    now_ms().

attempt(Address, Now, #dialer{candidates = Candidates} = Dialer) ->
    case start_attempt(Address, Dialer) of
        {ok, Pid, Started} ->
            Next = inet_rdma_candidates:started(Address, Candidates),
            Started#dialer{newest = Pid, newest_at = Now, candidates = Next};
        %% The next attempt there is due after a pause.
        {error, system_limit = Why} ->
            attempted({failed, Why}, #attempt{to = Address}, Dialer)
    end.

start_attempt(To, #dialer{dialling = Dialling, attempts = Attempts} = Dialer) ->
    Factor = inet_rdma_candidates:factor(To, Dialer#dialer.candidates),
    case
        inet_rdma_bounded:start_linked(inet_rdma_resume, attempt, [
            Dialling#{to => To, factor => Factor}
        ])
    of
        {ok, Pid} -> {ok, Pid, Dialer#dialer{attempts = Attempts#{Pid => #attempt{to = To}}}};
        Error -> Error
    end.

%% Starts the attempt over a neighbour if it is due, unless an address has answered.
detour(Now, #dialer{winner = none, detour = At} = Dialer) when is_integer(At), At =< Now ->
    case is_under_way(Dialer) of
        true ->
            Dialer#dialer{detour = Now + detour_ms(Dialer#dialer.session)};
        false ->
            case start_attempt(detour, Dialer) of
                {ok, _Pid, Started} ->
                    Started#dialer{detour = running};
                {error, system_limit = Why} ->
                    attempted({failed, Why}, #attempt{to = detour}, Dialer)
            end
    end;
detour(_Now, Dialer) ->
    Dialer.

detour_ms(Session) -> inet_rdma_candidates:detour_ms(inet_rdma_session:role(Session)).

%% Something in between may take a connection and hold it.
is_under_way(#dialer{attempts = Attempts, candidates = Candidates}) ->
    Least = now_ms() - ?UNDER_WAY_MS,
    lists:any(
        fun(#attempt{to = To, connected_at = At}) ->
            is_integer(At) andalso At > Least andalso
                inet_rdma_candidates:may_lead(To, Candidates)
        end,
        maps:values(Attempts)
    ).

%% The port has a descriptor for the connection before either side gives the old one up for it. The
%% sockets of the other attempts are closed by then.
give_up(Number, #dialer{port = Port}) ->
    case inet_rdma_port:reserve(Port) of
        ok -> inet_rdma_port:give_up_tcp(Port, Number);
        Error -> Error
    end.

%% Stops these attempts, and waits for their ends.
stop_attempts(Stopped, #dialer{attempts = Attempts} = Dialer) ->
    _ = [exit(Pid, kill) || Pid <- maps:keys(Stopped)],
    _ = [
        receive
            {'EXIT', Pid, _} -> ok
        end
     || Pid <- maps:keys(Stopped)
    ],
    Stop = fun
        (_Pid, #attempt{to = detour}, Candidates) ->
            Candidates;
        (_Pid, #attempt{to = Address}, Candidates) ->
            {_, Next} = inet_rdma_candidates:ended(Address, interrupted, pace(Dialer), Candidates),
            Next
    end,
    Detour =
        case lists:keymember(detour, #attempt.to, maps:values(Stopped)) of
            true -> now_ms() + detour_ms(Dialer#dialer.session);
            false -> Dialer#dialer.detour
        end,
    Dialer#dialer{
        attempts = maps:without(maps:keys(Stopped), Attempts),
        detour = Detour,
        candidates = maps:fold(Stop, Dialer#dialer.candidates, Stopped)
    }.

%% The guard hears of a connection that was given up for an attempt which has failed.
abandoned(Pid, Result, #dialer{winner = {Pid, Number}, port = Port} = Dialer) ->
    _ =
        case Result =/= resumed of
            true -> inet_rdma_port:command(Port, abandon, <<Number:64/native>>);
            false -> ok
        end,
    Dialer#dialer{winner = none};
abandoned(_Pid, _Result, Dialer) ->
    Dialer.

%% Without an attempt the port needs no descriptor.
given_back(#dialer{attempts = Attempts, port = Port} = Dialer) ->
    _ =
        case map_size(Attempts) =:= 0 of
            true -> inet_rdma_port:command(Port, release);
            false -> ok
        end,
    Dialer.

attempted(resumed, #attempt{to = detour}, Dialer) ->
    finish(resumed, Dialer);
%% The attempt says nothing of the peer: not that it answers, as the neighbour does, nor that it has
%% ended.
attempted(Result, #attempt{to = detour}, #dialer{detours = Detours} = Dialer) ->
    {_Outcome, Why} = inet_rdma_death:outcome(Result),
    Dialer#dialer{
        detour = now_ms() + inet_rdma_candidates:detour_pause_ms(Why, Detours),
        detours = Detours + 1
    };
attempted(resumed, #attempt{to = Address}, #dialer{session = Session} = Dialer) ->
    ok = inet_rdma_links:add_reached(inet_rdma_session:name(Session), {dialled, Address}),
    finish(resumed, Dialer);
attempted(
    Result, #attempt{to = Address, connected_at = At}, #dialer{candidates = Candidates} = Dialer
) ->
    {Outcome, Why} = inet_rdma_death:outcome(Result),
    {IsNew, Next} = inet_rdma_candidates:ended(Address, Outcome, pace(Dialer), Candidates),
    _ =
        case IsNew of
            true -> record(Why, "", Dialer);
            false -> ok
        end,
    Dialer#dialer{
        candidates = Next,
        failure = Why,
        look_up = sooner_at_first(Dialer),
        proved =
            case Outcome of
                proved -> now_ms();
                _ -> Dialer#dialer.proved
            end,
        %% The kernel of a process that is ending may still accept a connection, and close it.
        has_answered =
            Dialer#dialer.has_answered orelse
                At =/= none andalso Outcome =/= stranger andalso Outcome =/= closed
    }.

pace(#dialer{session = Session, detour = Detour}) ->
    Standing = inet_rdma_links:standing(inet_rdma_session:name(Session)),
    {
        now_ms(),
        case Detour =:= off orelse inet_rdma_port:is_carried_by_queue(Standing) of
            true -> ?STANDBY_PAUSE_MS_MAX;
            false -> ?PAUSE_MS_MAX
        end
    }.

%% Looks the node up if that is due, and ends a look-up that takes too long: it says nothing.
look_up(
    Now, #dialer{look_up = {due, At}, winner = none, node = Node, session = Session} = Dialer
) when At =< Now ->
    case
        inet_rdma_candidates:has_descriptors() andalso
            inet_rdma_candidates:look_up(Node, inet_rdma_session:driver(Session))
    of
        {ok, Pid} -> Dialer#dialer{look_up = {running, Pid, Now + ?LOOK_UP_MS}};
        _NoRoom -> Dialer#dialer{look_up = {due, Now + ?PAUSE_MS_MAX}}
    end;
look_up(Now, #dialer{look_up = {running, Pid, Until}} = Dialer) when Until =< Now ->
    exit(Pid, kill),
    Dialer;
look_up(_Now, Dialer) ->
    Dialer.

%% Asks neighbours about the peer's VM if that is due.
ask(
    Now,
    #dialer{ask = At, dialling = #{peer_node := PeerNode}, node = Node, uncarried = Uncarried} =
        Dialer
) when
    is_integer(At), At =< Now
->
    ok = inet_rdma_witness:ask(Node, inet_rdma_peer_node:instance(PeerNode)),
    Dialer#dialer{
        ask =
            Now +
                case Uncarried of
                    none -> ?ASK_SUSPECTED_MS;
                    _ -> ?ASK_AGAIN_MS
                end
    };
ask(_Now, Dialer) ->
    Dialer.

sooner(Now, #dialer{look_up = {due, At}}) -> {due, min(At, Now)};
sooner(_Now, #dialer{look_up = Running}) -> Running.

sooner_at_first(#dialer{look_ups = 0} = Dialer) -> sooner(now_ms(), Dialer);
sooner_at_first(#dialer{look_up = LookUp}) -> LookUp.

found(Exit, #dialer{look_ups = LookUps, candidates = Candidates} = Dialer) ->
    {Now, PauseMsMax} = pace(Dialer),
    Next = Dialer#dialer{
        look_up = {due, Now + min(PauseMsMax, ?LOOK_UP_PAUSE_MS bsl min(LookUps, 16))},
        look_ups = LookUps + 1
    },
    case Exit of
        {found, #{addresses := Addresses, asked := Asked, answer := Answer}} ->
            KnownBy =
                case Answer of
                    {known, _, true} -> Asked;
                    _ -> Dialer#dialer.known_by
                end,
            Resolved =
                case Answer of
                    no_answer -> Candidates;
                    _ -> inet_rdma_candidates:resolved(Addresses, Candidates)
                end,
            Next#dialer{
                candidates = Resolved,
                asked = Asked,
                known_by = KnownBy,
                name_server =
                    case Answer of
                        unknown -> {unknown, inet_rdma_candidates:knows(KnownBy, Asked, Resolved)};
                        _ -> Answer
                    end
            };
        _KilledOrCrashed ->
            Next#dialer{name_server = no_answer}
    end.

%% If the peer has connected by itself meanwhile, the guard does not follow the verdict.
verdict(#dialer{session = Session, uncarried = Since, candidates = Candidates} = Dialer) ->
    %% the peer may have sent it since the dialer has begun.
    #{peer_node := PeerNode} = inet_rdma_links:peer(inet_rdma_session:name(Session)),
    Now = now_ms(),
    inet_rdma_death:verdict(#{
        uncarried_ms =>
            case Since of
                none -> none;
                _ -> Now - Since
            end,
        is_in_order => Dialer#dialer.is_in_order,
        is_direct => inet_rdma_peer_node:is_direct(PeerNode),
        is_under_way => is_under_way(Dialer),
        has_answered => Dialer#dialer.has_answered,
        refused_ms => Dialer#dialer.refused_ms,
        proved_ms =>
            case Dialer#dialer.proved of
                none -> none;
                ProvedAt -> Now - ProvedAt
            end,
        host => inet_rdma_peer_node:host_witness(PeerNode),
        neighbour => neighbour_said(Now, Dialer),
        port => inet_rdma_peer_node:port(PeerNode),
        name_server => Dialer#dialer.name_server,
        candidates => inet_rdma_candidates:facts(Dialer#dialer.asked, Candidates)
    }).

neighbour_said(Now, #dialer{neighbour = {alive, At}}) when Now - At < ?ALIVE_MS -> alive;
neighbour_said(_Now, #dialer{neighbour = {alive, _}}) -> unknown;
neighbour_said(_Now, #dialer{neighbour = Said}) -> Said.

%% When the verdict may become another one without an event.
verdict_at(_Now, #dialer{uncarried = none}) ->
    infinity;
verdict_at(Now, #dialer{uncarried = Since, neighbour = Neighbour}) ->
    Ends =
        [Since + BoundMs || BoundMs <- inet_rdma_death:silence_bounds_ms()] ++
            [At + ?ALIVE_MS || {alive, At} <- [Neighbour]],
    lists:min([infinity | [At || At <- Ends, At > Now]]).

wait_ms(
    #dialer{look_up = LookUp, candidates = Candidates, attempts = Attempts, winner = Winner} =
        Dialer
) ->
    Now = now_ms(),
    DetourAt =
        case Dialer#dialer.detour of
            At when is_integer(At), Winner =:= none -> At;
            _ -> infinity
        end,
    LookAt =
        case LookUp of
            {due, _} when Winner =/= none -> infinity;
            {due, LookUpAt} -> LookUpAt;
            {running, _, Until} -> Until
        end,
    DialAt =
        case
            Winner =:= none andalso map_size(Attempts) < ?ATTEMPTS_MAX andalso
                inet_rdma_candidates:next(Now, Candidates)
        of
            {due, _} -> start_at(Dialer);
            {at, Due} -> max(Due, start_at(Dialer));
            _ -> infinity
        end,
    AskAt =
        case Dialer#dialer.ask of
            off -> infinity;
            Ask -> Ask
        end,
    case lists:min([DetourAt, LookAt, DialAt, AskAt, verdict_at(Now, Dialer)]) of
        infinity -> infinity;
        Next -> max(0, Next - Now)
    end.

%% Attempts that fail alike are one event.
record(Cause, Why, #dialer{node = Node}) ->
    inet_rdma_recorder:record(redial, Node, #{cause => Cause, why => Why}).

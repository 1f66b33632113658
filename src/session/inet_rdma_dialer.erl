%% The dialer of a link: makes attempts to get the link's session another TCP connection, at every address of the peer,
%% until it succeeds, the guard stops it, or the peer has ended.
%%
%% Attempts (inet_rdma_resume) run side by side, each in a process linked to the dialer. The next one starts a moment
%% behind the last, or as soon as that has failed (RFC 8305). The first one to which the peer has proved the session's
%% secret wins: the others are stopped, then the dialer gives the old connection up for it. Look-ups of the node's name
%% run beside the attempts. If none has a connection after a while, one goes over a neighbour (inet_rdma_detour), beside
%% those that follow.
-module(inet_rdma_dialer).

-export([has_addresses/2, start/2, stop/2, give_up/1, uncarried/2, last_failure/1]).
%% Spawned, and called by name so that a dialer outlives a change of its code.
-export([init/2, loop/1]).
-export_type([options/0]).

-import(inet_rdma_clock, [now_ms/0]).

-record(attempt, {
    to :: inet_rdma_told:address() | detour,
    connected_at = none :: integer() | none
}).

-record(dialer, {
    session :: inet_rdma_session:t(),
    port :: port(),
    node :: binary(),
    %% What all attempts have in common.
    dialling :: inet_rdma_resume:dialling(),
    is_in_order :: boolean(),
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
    has_known :: boolean(),
    failure = none :: term(),
    %% The time of the next attempt over a neighbour; running: one is under way; off: there is none.
    detour :: integer() | running | off,
    detours = 0 :: non_neg_integer()
}).

%% peer: where the link's first connection has led, or where its acceptor takes the peer to listen; none: nowhere.
%% is_in_order: the other side has ended the lost connection in order. is_uncarried: no path carries the link.
%% is_detoured: a detour carries it well, and the dialer takes it back to the direct way. is_narrow: connections have
%% small segments.
-type options() :: #{node := binary(), peer := inet_rdma_told:address() | none, is_in_order := boolean(),
                     is_uncarried := boolean(), is_detoured => boolean(), is_narrow => boolean()}.

-define(STAGGER_MS, 150).
-define(ATTEMPTS_MAX, 4).
%% The longest pauses between attempts at one address, and between look-ups.
-define(PAUSE_MS_MAX, 1000).
%% The same while a queue pair carries the link, so that no packet waits.
-define(STANDBY_PAUSE_MS_MAX, 30000).
-define(LOOK_UP_PAUSE_MS, 20).
-define(LOOK_UP_MS, 5000).
-define(ANSWER_MS, 1000).
%% Time behind its connect for which an attempt counts as under way: that of a message at first.
-define(UNDER_WAY_MS, 3000).

%% Whether there is an address to dial. A peer that accepts no connections has none.
-spec has_addresses(inet_rdma_session:t(), Peer :: inet_rdma_told:address() | none) -> boolean().
has_addresses(Session, none) ->
    #{told := Told} = inet_rdma_links:peer(inet_rdma_session:name(Session)),
    inet_rdma_told:addresses(Told) =/= [];
has_addresses(_Session, _Peer) ->
    true.

%% The dialer's exit reason is resumed (the port's notice `restored` follows or has come) or {dead, Why}.
-spec start(inet_rdma_session:t(), options()) -> {pid(), reference()}.
start(Session, Options) ->
    spawn_monitor(?MODULE, init, [Session, Options]).

%% Ends it and waits for the end. Its attempts end with it; none of them gives a connection up behind this call.
-spec stop(inet_rdma_session:t(), {pid(), reference()}) -> ok.
stop(Session, Dialer) ->
    ok = inet_rdma_session:stop_process(Dialer),
    _ = inet_rdma_port:command(inet_rdma_session:port(Session), release),
    ok.

%% Ends one that the guard does not know, and waits for the end. The guard hears of a connection that it has given up.
-spec give_up({pid(), reference()}) -> ok.
give_up({Pid, Ref}) ->
    Pid ! give_up,
    receive {'DOWN', Ref, process, Pid, _} -> ok end.

%% No path carries the link any more: attempts are made at once. Reason: of the TCP connection; queue_pair: that is
%% lost, too.
-spec uncarried(pid(), Reason :: term()) -> ok.
uncarried(Pid, Reason) ->
    Pid ! {uncarried, Reason},
    ok.

%% Why the last attempt has failed; none: none has, or the dialer has ended.
-spec last_failure(pid()) -> term() | none.
last_failure(Pid) ->
    Ref = monitor(process, Pid),
    Pid ! {last_failure, self(), Ref},
    receive
        {Ref, Failure} -> demonitor(Ref, [flush]), Failure;
        {'DOWN', Ref, process, Pid, _} -> none
    after ?ANSWER_MS -> demonitor(Ref, [flush]), none
    end.

-spec init(inet_rdma_session:t(), options()) -> no_return().
init(Session, #{node := Node, peer := Peer, is_in_order := IsInOrder, is_uncarried := IsUncarried} = Options) ->
    _ = process_flag(trap_exit, true),
    Port = inet_rdma_session:port(Session),
    _ = monitor(port, Port),
    ok = inet_rdma_recorder:of_port(Port),
    Now = now_ms(),
    #{told := Told, reached := Reached} = inet_rdma_links:peer(inet_rdma_session:name(Session)),
    Candidates = inet_rdma_candidates:new(#{peer => Peer, told => Told, reached => Reached}),
    Dialling = #{session => Session, node => Node, told => Told, dialer => self(),
                 is_narrow => maps:get(is_narrow, Options, false)},
    next(#dialer{session = Session, port = Port, node = Node, dialling = Dialling, is_in_order = IsInOrder,
                 uncarried = case IsUncarried of true -> Now; false -> none end,
                 candidates = Candidates, look_up = {due, Now + ?STAGGER_MS},
                 detour = case Options of
                              #{is_detoured := true} -> off;
                              #{} -> Now + detour_ms(Session)
                          end,
                 %% The initiator has found the peer by its name server.
                 has_known = inet_rdma_session:role(Session) =:= initiator}).

-spec loop(#dialer{}) -> no_return().
loop(Dialer) ->
    receive Message -> next(handle(Message, Dialer))
    after wait_ms(Dialer) -> next(Dialer)
    end.

-spec next(#dialer{}) -> no_return().
next(Dialer) ->
    Next = look_up(now_ms(), detour(now_ms(), dial(now_ms(), Dialer))),
    case verdict(Next) of
        {dead, Why} ->
            ok = record(dead, Why, Next),
            finish({dead, Why}, Next);
        _ ->
            ?MODULE:loop(Next)
    end.

-spec finish(term(), #dialer{}) -> no_return().
finish(Reason, Dialer) ->
    _ = inet_rdma_port:command((stop_attempts(Dialer#dialer.attempts, Dialer))#dialer.port, release),
    exit(Reason).

handle({connected, Pid}, #dialer{attempts = Attempts} = Dialer) when is_map_key(Pid, Attempts) ->
    #{Pid := Attempt} = Attempts,
    Dialer#dialer{attempts = Attempts#{Pid := Attempt#attempt{connected_at = now_ms()}}};
handle({give_up, Pid, Number}, #dialer{attempts = Attempts} = Dialer) when is_map_key(Pid, Attempts) ->
    Alone = stop_attempts(maps:remove(Pid, Attempts), Dialer),
    Given = give_up(Number, Alone),
    Pid ! {self(), Given},
    case Given of
        {ok, _Received, _Path} -> Alone#dialer{winner = {Pid, Number}};
        _ -> Alone
    end;
handle({'EXIT', Pid, Result}, #dialer{attempts = Attempts} = Dialer) when is_map_key(Pid, Attempts) ->
    {Attempt, Others} = maps:take(Pid, Attempts),
    Left = given_back(abandoned(Pid, Result, Dialer#dialer{attempts = Others})),
    attempted(Result, Attempt, Left);
handle({'EXIT', Pid, Exit}, #dialer{look_up = {running, Pid, _}} = Dialer) ->
    found(Exit, Dialer);
handle({uncarried, Reason}, #dialer{uncarried = none, candidates = Before, attempts = Attempts} = Dialer) ->
    Now = now_ms(),
    %% One with much time would hold its address back.
    Slow = maps:filter(fun(_Pid, #attempt{to = To}) -> inet_rdma_candidates:factor(To, Before) > 1 end, Attempts),
    #dialer{candidates = Candidates} = Left = case Dialer of
                                                  #dialer{winner = none} -> stop_attempts(Slow, Dialer);
                                                  _ -> Dialer
                                              end,
    in_order(Reason, Left#dialer{uncarried = Now, candidates = inet_rdma_candidates:hurry(Candidates),
                                 look_up = sooner(Now, Left), look_ups = 0, name_server = no_answer});
%% An attempt that gave the old connection up has failed.
handle({uncarried, superseded}, Dialer) ->
    Dialer;
handle({uncarried, Reason}, Dialer) ->
    in_order(Reason, Dialer);
handle({last_failure, From, Ref}, #dialer{failure = Failure} = Dialer) ->
    From ! {Ref, Failure},
    Dialer;
handle(give_up, #dialer{winner = Winner, attempts = Attempts} = Dialer) ->
    Stopped = stop_attempts(Attempts, Dialer),
    finish(normal, case Winner of
                       {Pid, _Number} -> abandoned(Pid, given_up, Stopped);
                       none -> Stopped
                   end);
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

start_at(#dialer{newest = Newest, newest_at = At, attempts = Attempts}) when is_map_key(Newest, Attempts) ->
    At + ?STAGGER_MS;
start_at(_Dialer) ->
    now_ms().

attempt(Address, Now, #dialer{candidates = Candidates} = Dialer) ->
    {Pid, Started} = start_attempt(Address, Dialer),
    Started#dialer{newest = Pid, newest_at = Now, candidates = inet_rdma_candidates:started(Address, Candidates)}.

start_attempt(To, #dialer{session = Session, port = Port, dialling = Dialling, attempts = Attempts} = Dialer) ->
    %% OTP's TLS opens files in each handshake: a node that has no descriptor left has the spare for them.
    _ = [inet_rdma_port:command(Port, lend) || inet_rdma_session:protocol(Session) =:= tls],
    Factor = inet_rdma_candidates:factor(To, Dialer#dialer.candidates),
    Pid = spawn_link(inet_rdma_resume, attempt, [Dialling#{to => To, factor => Factor}]),
    {Pid, Dialer#dialer{attempts = Attempts#{Pid => #attempt{to = To}}}}.

%% Starts the attempt over a neighbour if it is due, unless an address has answered.
detour(Now, #dialer{winner = none, detour = At} = Dialer) when is_integer(At), At =< Now ->
    case is_under_way(Dialer) of
        true ->
            Dialer#dialer{detour = Now + detour_ms(Dialer#dialer.session)};
        false ->
            {_Pid, Started} = start_attempt(detour, Dialer),
            Started#dialer{detour = running}
    end;
detour(_Now, Dialer) -> Dialer.

detour_ms(Session) -> inet_rdma_candidates:detour_ms(inet_rdma_session:role(Session)).

%% Something in between may take a connection and hold it.
is_under_way(#dialer{attempts = Attempts}) ->
    Least = now_ms() - ?UNDER_WAY_MS,
    lists:any(fun(#attempt{connected_at = At}) -> is_integer(At) andalso At > Least end, maps:values(Attempts)).

%% The port has a descriptor for the connection before either side gives the old one up for it. The sockets of the other
%% attempts are closed by then.
give_up(Number, #dialer{port = Port}) ->
    case inet_rdma_port:reserve(Port) of
        ok -> inet_rdma_port:suspend(Port, Number);
        Error -> Error
    end.

%% Stops these attempts, and waits for their ends.
stop_attempts(Stopped, #dialer{attempts = Attempts} = Dialer) ->
    _ = [exit(Pid, kill) || Pid <- maps:keys(Stopped)],
    _ = [receive {'EXIT', Pid, _} -> ok end || Pid <- maps:keys(Stopped)],
    Stop = fun(_Pid, #attempt{to = detour}, Candidates) ->
                   Candidates;
              (_Pid, #attempt{to = Address}, Candidates) ->
                   {_, Next} = inet_rdma_candidates:ended(Address, interrupted, pace(Dialer), Candidates),
                   Next
           end,
    Detour = case lists:keymember(detour, #attempt.to, maps:values(Stopped)) of
                 true -> now_ms() + detour_ms(Dialer#dialer.session);
                 false -> Dialer#dialer.detour
             end,
    Dialer#dialer{attempts = maps:without(maps:keys(Stopped), Attempts), detour = Detour,
                  candidates = maps:fold(Stop, Dialer#dialer.candidates, Stopped)}.

%% The guard hears of a connection that was given up for an attempt which has failed.
abandoned(Pid, Result, #dialer{winner = {Pid, Number}, port = Port} = Dialer) ->
    _ = [inet_rdma_port:command(Port, abandon, <<Number:64/native>>) || Result =/= resumed],
    Dialer#dialer{winner = none};
abandoned(_Pid, _Result, Dialer) ->
    Dialer.

%% Without an attempt the port needs no descriptor.
given_back(#dialer{attempts = Attempts, port = Port} = Dialer) ->
    _ = [inet_rdma_port:command(Port, release) || map_size(Attempts) =:= 0],
    Dialer.

attempted(resumed, #attempt{to = detour}, Dialer) ->
    finish(resumed, Dialer);
%% The attempt says nothing of the peer: not that it answers, as the neighbour does, nor that it has ended.
attempted(Result, #attempt{to = detour}, #dialer{detours = Detours} = Dialer) ->
    {_Outcome, Why} = inet_rdma_death:outcome(Result),
    Dialer#dialer{detour = now_ms() + inet_rdma_candidates:detour_pause_ms(Why, Detours), detours = Detours + 1};
attempted(resumed, #attempt{to = Address}, #dialer{session = Session} = Dialer) ->
    ok = inet_rdma_links:add_reached(inet_rdma_session:name(Session), {dialled, Address}),
    finish(resumed, Dialer);
attempted(Result, #attempt{to = Address, connected_at = At}, #dialer{candidates = Candidates} = Dialer) ->
    {Outcome, Why} = inet_rdma_death:outcome(Result),
    {IsNew, Next} = inet_rdma_candidates:ended(Address, Outcome, pace(Dialer), Candidates),
    _ = [record(Why, "", Dialer) || IsNew],
    Dialer#dialer{candidates = Next, failure = Why, look_up = sooner_at_first(Dialer),
                  has_answered = Dialer#dialer.has_answered
                      orelse At =/= none andalso Outcome =/= {unknown_session, stranger}}.

pace(#dialer{port = Port, detour = Detour}) ->
    {now_ms(), case Detour =:= off orelse inet_rdma_port:is_carried_by_queue(Port) of
                   true -> ?STANDBY_PAUSE_MS_MAX;
                   false -> ?PAUSE_MS_MAX
               end}.

%% Looks the node up if that is due, and ends a look-up that takes too long: it says nothing.
look_up(Now, #dialer{look_up = {due, At}, winner = none, node = Node, session = Session} = Dialer) when At =< Now ->
    case inet_rdma_candidates:has_descriptors() of
        true ->
            Pid = inet_rdma_candidates:look_up(Node, inet_rdma_session:driver(Session)),
            Dialer#dialer{look_up = {running, Pid, Now + ?LOOK_UP_MS}};
        false ->
            Dialer#dialer{look_up = {due, Now + ?PAUSE_MS_MAX}}
    end;
look_up(Now, #dialer{look_up = {running, Pid, Until}} = Dialer) when Until =< Now -> exit(Pid, kill), Dialer;
look_up(_Now, Dialer) -> Dialer.

sooner(Now, #dialer{look_up = {due, At}}) -> {due, min(At, Now)};
sooner(_Now, #dialer{look_up = Running}) -> Running.

sooner_at_first(#dialer{look_ups = 0} = Dialer) -> sooner(now_ms(), Dialer);
sooner_at_first(#dialer{look_up = LookUp}) -> LookUp.

found(Exit, #dialer{look_ups = LookUps, candidates = Candidates} = Dialer) ->
    {Now, PauseMsMax} = pace(Dialer),
    Next = Dialer#dialer{look_up = {due, Now + min(PauseMsMax, ?LOOK_UP_PAUSE_MS bsl min(LookUps, 16))},
                         look_ups = LookUps + 1},
    case Exit of
        {found, #{addresses := Addresses, servers := Servers, asked := Asked, answer := Answer}} ->
            HasKnown = Dialer#dialer.has_known orelse is_tuple(Answer),
            Resolved = case Answer of
                           no_answer -> Candidates;
                           _ -> inet_rdma_candidates:resolved(Addresses, Candidates)
                       end,
            Next#dialer{candidates = Resolved, asked = Asked, has_known = HasKnown, name_server = case Answer of
                unknown -> {unknown, inet_rdma_candidates:knows(HasKnown, Servers, Resolved)};
                _ -> Answer
            end};
        _KilledOrCrashed ->
            Next#dialer{name_server = no_answer}
    end.

verdict(#dialer{uncarried = none}) ->
    alive;
verdict(#dialer{uncarried = Since, candidates = Candidates, name_server = NameServer, port = Port} = Dialer) ->
    Now = now_ms(),
    Facts = inet_rdma_candidates:facts(Now, NameServer, Dialer#dialer.asked, Candidates),
    Verdict = inet_rdma_death:verdict(Facts#{
        is_in_order => Dialer#dialer.is_in_order, uncarried_ms => Now - Since,
        has_answered => Dialer#dialer.has_answered, is_under_way => is_under_way(Dialer)
    }),
    case Verdict of
        %% The peer may have connected by itself.
        {dead, _} -> case inet_rdma_port:statistics(Port) of
                         {ok, #{carried_by_queue := false, has_tcp := false}} -> Verdict;
                         _ -> alive
                     end;
        _ -> Verdict
    end.

wait_ms(#dialer{look_up = LookUp, candidates = Candidates, attempts = Attempts, winner = Winner} = Dialer) ->
    Now = now_ms(),
    DetourAt = case Dialer#dialer.detour of
                   At when is_integer(At), Winner =:= none -> At;
                   _ -> infinity
               end,
    LookAt = case LookUp of
                 {due, _} when Winner =/= none -> infinity;
                 {due, LookUpAt} -> LookUpAt;
                 {running, _, Until} -> Until
             end,
    DialAt = case Winner =:= none andalso map_size(Attempts) < ?ATTEMPTS_MAX
                 andalso inet_rdma_candidates:next(Now, Candidates)
             of
                 {due, _} -> start_at(Dialer);
                 {at, Due} -> max(Due, start_at(Dialer));
                 _ -> infinity
             end,
    case min(DetourAt, min(LookAt, DialAt)) of
        infinity -> infinity;
        Next -> max(0, Next - Now)
    end.

%% Attempts that fail alike are one event.
record(Cause, Why, #dialer{node = Node}) ->
    inet_rdma_recorder:record(redial, Node, #{cause => Cause, why => Why}).

%% Forwards TCP connections byte by byte, and loses them in every way in which a network does. Runs
%% in the node that runs the tests, or in one on another host, where its functions are called then.
-module(inet_rdma_test_relay).

-export([start/1, start_in/2, port/1, accepted/1, openings/1, stop/1]).
-export([lose/2, shape/2, hold/1, pause/1, slow/2, delay/2, refuse/1, pass/1, lead_to/2]).
-export_type([t/0, route/0, loss/0, direction/0, shape/0]).

-opaque t() :: pid().

%% at: where the relay listens (port 0: any free port). to: where it forwards connections. from: the
%% address from which it connects there. refused: what it does to a connection that it cannot
%% forward; by default it resets it.
-type route() :: #{
    at := address(), to := address(), from := inet:ip4_address(), refused => reset | close
}.
-type address() :: {inet:ip4_address(), inet:port_number()}.

%% to: from the process that connects to the one that it connects to. back: the other way.
-type direction() :: to | back.

%% reset: both ends get a reset. close: both get an end of file. half: one end gets an end of file,
%% and the rest is left to both. stall: nothing passes from now on, then both get a reset. truncate:
%% a part of the next bytes passes, then both get a reset.
-type loss() ::
    reset
    | close
    | {half, direction()}
    | {stall, Ms :: non_neg_integer()}
    | {truncate, direction()}.

%% What the relay does to the first bytes of a connection. end_at: it forwards this number of bytes,
%% then resets both ends. flip: it inverts this bit, counted from 0.
-type shape() ::
    none
    | {end_at, direction(), Bytes :: non_neg_integer()}
    | {flip, direction(), Bit :: non_neg_integer()}.

%% The relay keeps this many first bytes of each direction of a connection, for openings/1.
-define(OPENING_BYTES, 4096).
-define(OPTIONS, [binary, {active, false}, {nodelay, true}, {reuseaddr, true}, {backlog, 1024}]).

%% Fails, and names the address, where another process listens.
-spec start([route(), ...]) -> t().
start(Routes) ->
    Parent = self(),
    {Relay, ok} = inet_rdma_test_ask:start(fun() ->
        Ref = monitor(process, Parent),
        State = #{
            routes => maps:from_list(lists:enumerate(Routes)),
            mode => pass,
            shape => none,
            pairs => #{},
            held => [],
            openings => #{},
            accepted => 0,
            listeners => [],
            parent => Ref
        },
        Listening = listen(State),
        {ok, fun() -> loop(Listening) end}
    end),
    Relay.

%% The same in this node, until that ends.
-spec start_in(inet_rdma_test_node:t(), [route(), ...]) -> t().
start_in(Node, Routes) ->
    {_Parent, Relay} = inet_rdma_test_node:call(Node, inet_rdma_test_remote, started, [
        relay,
        fun() ->
            start(Routes)
        end
    ]),
    Relay.

%% The port of the first route.
-spec port(t()) -> inet:port_number().
port(Relay) -> inet_rdma_test_ask:ask(Relay, port).

%% How many connections have come.
-spec accepted(t()) -> non_neg_integer().
accepted(Relay) -> inet_rdma_test_ask:ask(Relay, accepted).

%% The first bytes of each connection that has no shape, oldest first.
-spec openings(t()) -> [#{direction() => binary()}].
openings(Relay) -> inet_rdma_test_ask:ask(Relay, openings).

%% Loses all connections. Returns their number.
-spec lose(t(), loss()) -> non_neg_integer().
lose(Relay, Loss) -> inet_rdma_test_ask:ask(Relay, {lose, Loss}).

%% Sets the shape of the next connection of the first route; the one after that has none.
-spec shape(t(), shape()) -> ok.
shape(Relay, Shape) -> inet_rdma_test_ask:ask(Relay, {shape, Shape}).

%% Loses all connections; the next ones are accepted, and nothing passes.
-spec hold(t()) -> ok.
hold(Relay) -> inet_rdma_test_ask:ask(Relay, {mode, hold}).

%% Loses no connection; nothing passes, also over the next ones, until pass/1.
-spec pause(t()) -> ok.
pause(Relay) -> inet_rdma_test_ask:ask(Relay, {mode, pause}).

%% Loses all connections; the next ones are accepted, and their bytes pass from this time after that
%% on.
-spec slow(t(), Ms :: non_neg_integer()) -> ok.
slow(Relay, Ms) -> inet_rdma_test_ask:ask(Relay, {mode, {slow, Ms}}).

%% Loses all connections; each byte of the next ones takes this time, in each direction. The relay
%% keeps what is on its way, however much that is.
-spec delay(t(), Ms :: non_neg_integer()) -> ok.
delay(Relay, Ms) -> inet_rdma_test_ask:ask(Relay, {mode, {delay, Ms}}).

%% Loses all connections, and closes the listeners.
-spec refuse(t()) -> ok.
refuse(Relay) -> inet_rdma_test_ask:ask(Relay, {mode, refuse}).

%% Listens and forwards again, what was paused, too. What was held is reset.
-spec pass(t()) -> ok.
pass(Relay) -> inet_rdma_test_ask:ask(Relay, {mode, pass}).

%% The first route leads to this address from now on.
-spec lead_to(t(), address()) -> ok.
lead_to(Relay, Target) -> inet_rdma_test_ask:ask(Relay, {lead_to, Target}).

-spec stop(t()) -> ok.
stop(Relay) -> inet_rdma_test_ask:ask(Relay, stop).

loop(#{openings := Openings, parent := Parent} = State) ->
    receive
        {connection, Number, Near} ->
            loop(accept(Number, Near, State));
        {slow_connection, Number, Near} ->
            loop(forward(Number, Near, State));
        {opening, Id, Direction, Bytes} ->
            Before = maps:get(Id, Openings, #{to => <<>>, back => <<>>}),
            Seen = maps:get(Direction, Before),
            loop(State#{
                openings := Openings#{Id => Before#{Direction := <<Seen/binary, Bytes/binary>>}}
            });
        {ended, Id, How} ->
            loop(finish(Id, How, State));
        {stop, From, Ref} ->
            _ = refused(State),
            From ! {Ref, ok};
        {Request, From, Ref} when is_reference(Ref), is_pid(From) ->
            {Answer, Next} = answer(Request, State),
            From ! {Ref, Answer},
            loop(Next);
        {'DOWN', Parent, process, _, _} ->
            refused(State)
    end.

answer(port, #{routes := #{1 := #{at := {_Ip, Port}}}} = State) ->
    {Port, State};
answer(accepted, #{accepted := Accepted} = State) ->
    {Accepted, State};
answer(openings, #{openings := Openings} = State) ->
    {[Opening || {_, Opening} <- lists:sort(maps:to_list(Openings))], State};
answer({lose, Loss}, #{pairs := Pairs} = State) ->
    {map_size(Pairs), lose_all(Loss, State)};
answer({shape, Shape}, State) ->
    {ok, State#{shape := Shape}};
answer({lead_to, To}, #{routes := #{1 := Route} = Routes} = State) ->
    {ok, State#{routes := Routes#{1 := Route#{to := To}}}};
answer({mode, hold}, State) ->
    {ok, (lose_all(reset, State))#{mode := hold}};
answer({mode, pause}, State) ->
    ok = tell_pumps(stall, State),
    {ok, State#{mode := pause}};
answer({mode, {slow, _} = Mode}, State) ->
    {ok, (lose_all(reset, State))#{mode := Mode}};
answer({mode, {delay, _} = Mode}, State) ->
    {ok, (lose_all(reset, State))#{mode := Mode}};
answer({mode, refuse}, State) ->
    {ok, refused(State)};
answer({mode, pass}, #{mode := pause} = State) ->
    ok = tell_pumps(pass, State),
    answer({mode, pass}, State#{mode := pass});
answer({mode, pass}, #{held := Held} = State) ->
    [reset(Near) || Near <- Held],
    {ok, listening(State#{mode := pass, held := []})}.

tell_pumps(Message, #{pairs := Pairs}) ->
    _ = [Pump ! Message || {_Near, _Far, Pumps} <- maps:values(Pairs), Pump <- Pumps],
    ok.

listening(#{listeners := []} = State) -> listen(State);
listening(State) -> State.

%% A route keeps the port that it got.
listen(#{routes := Routes} = State) ->
    Listening = maps:map(
        fun(Number, #{at := {Ip, Port}} = Route) ->
            Listener = listener(Ip, Port),
            {ok, Own} = inet:port(Listener),
            Relay = self(),
            _ = spawn(fun() -> acceptor(Relay, Number, Listener) end),
            {Listener, Route#{at := {Ip, Own}}}
        end,
        Routes
    ),
    State#{
        listeners := [Listener || {Listener, _} <- maps:values(Listening)],
        routes := maps:map(fun(_, {_, Route}) -> Route end, Listening)
    }.

listener(Ip, Port) ->
    case gen_tcp:listen(Port, [{ip, Ip} | ?OPTIONS]) of
        {ok, Listener} -> Listener;
        {error, Reason} -> error({cannot_listen, Ip, Port, Reason})
    end.

acceptor(Relay, Number, Listener) ->
    case gen_tcp:accept(Listener) of
        {ok, Socket} ->
            case gen_tcp:controlling_process(Socket, Relay) of
                ok -> Relay ! {connection, Number, Socket};
                {error, _} -> gen_tcp:close(Socket)
            end,
            acceptor(Relay, Number, Listener);
        {error, closed} ->
            ok;
        {error, _} ->
            %% The peer has ended the connection before it was accepted.
            timer:sleep(1),
            acceptor(Relay, Number, Listener)
    end.

refused(#{listeners := Listeners, held := Held} = State) ->
    [gen_tcp:close(Listener) || Listener <- Listeners],
    [reset(Near) || Near <- Held],
    (lose_all(reset, State))#{mode := refuse, listeners := [], held := []}.

accept(_Number, Near, #{mode := refuse} = State) ->
    reset(Near),
    State;
accept(_Number, Near, #{mode := Mode, held := Held, accepted := Accepted} = State) when
    Mode =:= hold; Mode =:= pause
->
    State#{held := [Near | Held], accepted := Accepted + 1};
accept(Number, Near, #{mode := {slow, Ms}} = State) ->
    _ = erlang:send_after(Ms, self(), {slow_connection, Number, Near}),
    State;
accept(Number, Near, State) ->
    forward(Number, Near, State).

forward(
    Number, Near, #{routes := Routes, accepted := Accepted, pairs := Pairs, shape := Shape} = State
) ->
    #{Number := #{to := {Ip, Port}, from := From} = Route} = Routes,
    case gen_tcp:connect(Ip, Port, [binary, {ip, From}, {active, false}, {nodelay, true}]) of
        {ok, Far} ->
            Id = Accepted + 1,
            {Own, Left} =
                case Number of
                    1 -> {Shape, none};
                    _ -> {none, Shape}
                end,
            DelayMs =
                case State of
                    #{mode := {delay, Ms}} -> Ms;
                    _ -> 0
                end,
            Pumps = [
                pump(Id, to, Near, Far, Own, DelayMs), pump(Id, back, Far, Near, Own, DelayMs)
            ],
            State#{accepted := Id, pairs := Pairs#{Id => {Near, Far, Pumps}}, shape := Left};
        {error, _} ->
            _ =
                case maps:get(refused, Route, reset) of
                    reset -> reset(Near);
                    close -> gen_tcp:close(Near)
                end,
            State
    end.

lose_all(Loss, #{pairs := Pairs} = State) ->
    maps:fold(fun(Id, Pair, Next) -> lose_one(Loss, Id, Pair, Next) end, State, Pairs).

lose_one(reset, Id, _, State) ->
    finish(Id, reset, State);
lose_one(close, Id, _, State) ->
    finish(Id, close, State);
lose_one({half, to}, _, {_, Far, [To, _]}, State) ->
    half(To, Far, State);
lose_one({half, back}, _, {Near, _, [_, Back]}, State) ->
    half(Back, Near, State);
lose_one({stall, Ms}, Id, {_, _, Pumps}, State) ->
    [Pump ! stall || Pump <- Pumps],
    _ = erlang:send_after(Ms, self(), {ended, Id, reset}),
    State;
lose_one({truncate, Direction}, _, {_, _, [To, Back]}, State) ->
    (case Direction of
        to -> To;
        back -> Back
    end) ! truncate,
    State.

%% Stops the pump before the shutdown, so that the pump sends nothing after it.
half(Pump, Socket, State) ->
    Ref = monitor(process, Pump),
    Pump ! stall,
    Pump ! {stalled, self(), Ref},
    receive
        {Ref, ok} ->
            demonitor(Ref, [flush]),
            gen_tcp:shutdown(Socket, write);
        {'DOWN', Ref, process, _, _} ->
            ok
    end,
    State.

finish(Id, How, #{pairs := Pairs} = State) ->
    case maps:take(Id, Pairs) of
        {{Near, Far, Pumps}, Others} ->
            [exit(Pump, kill) || Pump <- Pumps],
            [
                case How of
                    reset -> reset(Socket);
                    close -> gen_tcp:close(Socket)
                end
             || Socket <- [Near, Far]
            ],
            State#{pairs := Others};
        error ->
            State
    end.

reset(Socket) ->
    _ = inet:setopts(Socket, [{linger, {true, 0}}]),
    gen_tcp:close(Socket).

%% The sockets stay the relay's: they do not end with a pump.
pump(Id, Direction, From, To, Shape, DelayMs) ->
    Relay = self(),
    Own =
        case Shape of
            {_, Direction, _} -> Shape;
            _ -> none
        end,
    spawn(fun() ->
        Writer =
            case DelayMs of
                0 -> none;
                _ -> spawn_link(fun() -> write_late(Relay, Id, To) end)
            end,
        pump_loop(#{
            relay => Relay,
            id => Id,
            direction => Direction,
            from => From,
            to => To,
            shape => Own,
            passed => 0,
            mode => pass,
            is_kept => Shape =:= none,
            delay_ms => DelayMs,
            writer => Writer
        })
    end).

%% Ends with its pump.
write_late(Relay, Id, To) ->
    receive
        {AtMs, Bytes} ->
            receive
            after max(0, AtMs - erlang:monotonic_time(millisecond)) -> ok
            end,
            case gen_tcp:send(To, Bytes) of
                ok -> write_late(Relay, Id, To);
                {error, _} -> Relay ! {ended, Id, reset}
            end
    end.

pump_loop(#{mode := stall} = State) ->
    receive
        {stalled, From, Ref} ->
            From ! {Ref, ok},
            pump_loop(State);
        pass ->
            pump_loop(State#{mode := pass})
    end;
pump_loop(#{relay := Relay, id := Id, from := From, mode := Mode} = State) ->
    receive
        stall -> pump_loop(State#{mode := stall});
        truncate -> pump_loop(State#{mode := truncate})
    after 0 ->
        %% A short time limit, so that the pump soon handles messages of the relay.
        case gen_tcp:recv(From, 0, 10) of
            {ok, Bytes} when Mode =:= truncate ->
                _ = send(binary:part(Bytes, 0, rand:uniform(byte_size(Bytes)) - 1), State),
                Relay ! {ended, Id, reset};
            {ok, Bytes} ->
                pass_on(Bytes, State);
            {error, timeout} ->
                pump_loop(State);
            {error, closed} ->
                Relay ! {ended, Id, close};
            {error, _} ->
                Relay ! {ended, Id, reset}
        end
    end.

pass_on(Bytes, #{relay := Relay, id := Id, passed := Passed, shape := {end_at, _, At}} = State) when
    Passed + byte_size(Bytes) > At
->
    _ = send(binary:part(Bytes, 0, At - Passed), State),
    Relay ! {ended, Id, reset};
pass_on(Bytes, #{relay := Relay, id := Id, passed := Passed, shape := Shape} = State) ->
    case send(shaped(Shape, Passed, Bytes), State) of
        ok -> pump_loop(State#{passed := Passed + byte_size(Bytes)});
        {error, _} -> Relay ! {ended, Id, reset}
    end.

shaped({flip, _, Bit}, Passed, Bytes) when
    Bit div 8 >= Passed, Bit div 8 < Passed + byte_size(Bytes)
->
    At = Bit - 8 * Passed,
    <<Before:At, Turned:1, After/bitstring>> = Bytes,
    <<Before:At, (1 - Turned):1, After/bitstring>>;
shaped(_, _, Bytes) ->
    Bytes.

send(
    Bytes,
    #{relay := Relay, id := Id, direction := Direction, passed := Passed, is_kept := IsKept} = State
) ->
    _ = [
        Relay !
            {opening, Id, Direction,
                binary:part(Bytes, 0, min(byte_size(Bytes), ?OPENING_BYTES - Passed))}
     || IsKept, Passed < ?OPENING_BYTES
    ],
    pass_bytes(Bytes, State).

pass_bytes(Bytes, #{writer := none, to := To}) ->
    gen_tcp:send(To, Bytes);
pass_bytes(Bytes, #{writer := Writer, delay_ms := DelayMs}) ->
    Writer ! {erlang:monotonic_time(millisecond) + DelayMs, Bytes},
    ok.

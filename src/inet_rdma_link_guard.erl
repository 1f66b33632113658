%% The guard of a link (inet_rdma_guard): logs when the link stalls, resumes and ends.
%%
%% There are two kinds of links, each a module with the callbacks, which handles all other messages:
%% inet_rdma_session_guard for a link with a session, inet_rdma_link for a link without one, which the end of its TLS
%% connection ends.
-module(inet_rdma_link_guard).

-behaviour(inet_rdma_guard).

-export([new/4, run/1, stop/2, ended_by/1]).
-export([handle/2]).
-export_type([t/0, ending/0]).

-record(guard, {
    kind :: module(),
    port :: port(),
    node :: binary(),
    state :: term(),
    %% Times of erlang:monotonic_time/0. stalled: when the peer stopped taking bytes; undefined: it takes them.
    since :: integer(),
    stalled = undefined :: integer() | undefined
}).

-opaque t() :: #guard{}.

%% A message that this module does not handle itself.
-callback handle(Message :: term(), State) -> State when State :: term().
%% The fabric that carries the link, and why, for events of the link; event: an event's own words are the reason.
-callback carried(State :: term()) -> {Fabric :: binary(), Why :: binary() | event}.
%% The port has ended. The reason, as a term and in words, and whether it is an ordinary reason, which is not logged.
-callback ended(State :: term()) -> ending().

-type ending() :: {inet_rdma:reason() | unknown, Why :: binary(), IsUsual :: boolean()}.

-spec new(Kind :: module(), port(), Node :: binary(), State :: term()) -> t().
new(Kind, Port, Node, State) ->
    #guard{kind = Kind, port = Port, node = Node, state = State, since = erlang:monotonic_time()}.

%% The caller is a process of its own, and monitors the port or is linked to it and traps exits.
-spec run(t()) -> no_return().
run(#guard{port = Port} = Guard) ->
    ok = inet_rdma_recorder:of_port(Port),
    inet_rdma_guard:run(?MODULE, Guard).

-spec handle(term(), t()) -> {ok, t()} | stop.
handle({'EXIT', Port, Exit}, #guard{port = Port} = Guard) ->
    ok = stop(Exit, Guard),
    stop;
handle({'DOWN', _Ref, port, Port, Exit}, #guard{port = Port} = Guard) ->
    ok = stop(Exit, Guard),
    stop;
handle({'$inet_rdma', Port, stalled}, #guard{port = Port} = Guard) ->
    {ok, stalled(Guard)};
handle({'$inet_rdma', Port, resumed}, #guard{port = Port} = Guard) ->
    {ok, resumed(Guard)};
handle(Message, #guard{kind = Kind, state = State} = Guard) ->
    {ok, Guard#guard{state = Kind:handle(Message, State)}}.

stalled(#guard{node = Node} = Guard) ->
    Words = <<"the peer takes nothing, and senders wait">>,
    say(stalled, about(Guard, Words), "inet_rdma: the link to ~ts stalls: ~ts", [Node, Words], #{count => 1}),
    Guard#guard{stalled = erlang:monotonic_time()}.

resumed(#guard{stalled = undefined} = Guard) ->
    Guard;
resumed(#guard{node = Node, stalled = Since} = Guard) ->
    Duration = erlang:monotonic_time() - Since,
    Words = <<"the peer takes bytes again">>,
    say(resumed, about(Guard, Words), "inet_rdma: the link to ~ts resumes after ~b ms: ~ts",
          [Node, erlang:convert_time_unit(Duration, native, millisecond), Words], #{count => 1, duration => Duration}),
    Guard#guard{stalled = undefined}.

say(Kind, {Node, Fabric, Why}, Format, Arguments, Measurements) ->
    Event = inet_rdma_link_event:new(Kind, Node, Fabric, Why),
    inet_rdma_link_event:say(Event, notice, Format, Arguments, Measurements).

about(#guard{kind = Kind, node = Node, state = State}, Words) ->
    case Kind:carried(State) of
        {Fabric, event} -> {Node, Fabric, Words};
        {Fabric, Why} -> {Node, Fabric, Why}
    end.

%% The port has ended with this exit reason: tells and logs the end of the link.
-spec stop(Exit :: term(), t()) -> ok.
stop(Exit, #guard{kind = Kind, node = Node, state = State, since = Since}) ->
    {Reason, Why, IsUsual} = ending(Exit, Kind:ended(State)),
    {Fabric, _} = Kind:carried(State),
    Event = inet_rdma_link_event:new(down, Node, Fabric, Why, Reason),
    Before = inet_rdma_recorder:before(Node),
    Measurements = #{count => 1, duration => erlang:monotonic_time() - Since},
    case IsUsual of
        true ->
            inet_rdma_link_event:tell(Event, Measurements);
        false ->
            inet_rdma_link_event:say(Event, warning, "inet_rdma: the link to ~ts ended: ~ts~ts", [Node, Why, Before],
                                     Measurements)
    end.

%% The end of a link for which the peer, or nobody, is to blame.
-spec ended_by(inet_rdma_keys:fault()) -> ending().
ended_by({peer_misbehaved, How}) -> {peer_misbehaved, <<"the peer misbehaved: ", How/binary>>, false};
ended_by({unknown, Why}) -> {unknown, Why, false}.

%% dist_util ends the supervisor with such a reason, and the supervisor's end ends the port.
ending(net_tick_timeout, _) ->
    {net_tick_timeout, <<"nothing has come from the peer for the time of net_ticktime">>, false};
ending(disconnect, {unknown, _, _}) ->
    {unknown, <<"this node has disconnected the peer">>, true};
ending(_Exit, Ending) ->
    Ending.

%% The log lines and events of a link that stalls, goes on and ends (inet_rdma_link_event). Part of
%% a guard's state.
-module(inet_rdma_link_log).

-export([new/1, stalled/2, stall_ended/2, unread/3, ended/4, ended_by/1]).
-export([filled/4, filled_at_end/4, busy/2]).
-export_type([t/0, carried/0, ending/0]).

%% Times of erlang:monotonic_time/0. stalled: when the peer stopped taking bytes; none: it takes
%% them.
-type t() :: #{
    node := binary(),
    since := integer(),
    stalled := integer() | none,
    filled := inet_rdma_link_fill:t()
}.

%% The fabric that carries the link, and why; event: an event's own words are the reason.
-type carried() :: {Fabric :: binary(), Why :: binary() | event}.

%% Why the port has ended, as a term and in words, and whether it is an ordinary reason, which is
%% not logged.
-type ending() :: {
    inet_rdma:reason() | rolled_back | unknown, Why :: binary(), IsUsual :: boolean()
}.

-spec new(Node :: binary()) -> t().
new(Node) ->
    #{node => Node, since => erlang:monotonic_time(), stalled => none, filled => never}.

-spec stalled(carried(), t()) -> t().
stalled(Carried, #{node := Node} = Log) ->
    Words = <<"the peer takes nothing, and senders wait">>,
    say(
        stalled,
        Carried,
        Words,
        "inet_rdma: the link to ~ts stalls: ~ts",
        [Node, Words],
        #{count => 1},
        Log
    ),
    Log#{stalled := erlang:monotonic_time()}.

-spec stall_ended(carried(), t()) -> t().
stall_ended(_Carried, #{stalled := none} = Log) ->
    Log;
stall_ended(Carried, #{node := Node, stalled := Since} = Log) ->
    Duration = erlang:monotonic_time() - Since,
    Words = <<"the peer takes bytes again">>,
    say(
        stall_ended,
        Carried,
        Words,
        "inet_rdma: the link to ~ts goes on after a stall of ~b ms: ~ts",
        [Node, erlang:convert_time_unit(Duration, native, millisecond), Words],
        #{count => 1, duration => Duration},
        Log
    ),
    Log#{stalled := none}.

%% Notes who fills the link.
-spec filled(inet_rdma_link_fill:occasion(), port(), carried(), t()) -> t().
filled(Occasion, Port, {Fabric, _}, #{node := Node, filled := Last} = Log) ->
    Log#{filled := inet_rdma_link_fill:note(Occasion, Port, {Node, Fabric}, Last)}.

%% Records the heaviest senders of a session's link whose port has ended. A link that was busy has had
%% all modules loaded; another one that ends before that costs no load.
-spec filled_at_end(Session :: <<_:128>>, port(), Fabric :: binary(), t()) -> ok.
filled_at_end(Session, Port, Fabric, #{node := Node, filled := Last}) ->
    case inet_rdma_modules:has(all) of
        true -> inet_rdma_link_fill:note_end(Session, Port, {Node, Fabric}, Last);
        false -> ok
    end.

%% The port is busy: the guard learns if the VM's queue is over its bound.
-spec busy(Guard :: pid(), t()) -> ok.
busy(Guard, #{node := Node, filled := Last}) ->
    inet_rdma_link_fill:watch_queue(Guard, Node, Last).

%% The port no longer reads the packets of a direction.
-spec unread(Why :: binary(), carried(), t()) -> ok.
unread(Why, {Fabric, _}, #{node := Node}) ->
    inet_rdma_link_event:say(
        inet_rdma_link_event:new(unread, Node, Fabric, Why),
        notice,
        "inet_rdma: senders and targets on the link to ~ts are no longer counted, as its packets "
        "are not understood (~ts); the link goes on",
        [Node, Why],
        #{count => 1}
    ).

say(Kind, {Fabric, Why}, Words, Format, Arguments, Measurements, #{node := Node}) ->
    About =
        case Why of
            event -> Words;
            _ -> Why
        end,
    inet_rdma_link_event:say(
        inet_rdma_link_event:new(Kind, Node, Fabric, About),
        notice,
        Format,
        Arguments,
        Measurements
    ).

%% The port has ended with this exit reason: tells and logs the end of the link.
-spec ended(Exit :: term(), ending(), Fabric :: binary(), t()) -> ok.
ended(Exit, Ending, Fabric, #{node := Node, since := Since}) ->
    {Reason, Why, IsUsual} = ending(Exit, Ending),
    Event = inet_rdma_link_event:new(down, Node, Fabric, Why, Reason),
    Measurements = #{count => 1, duration => erlang:monotonic_time() - Since},
    case IsUsual of
        true ->
            inet_rdma_link_event:tell(Event, Measurements);
        false ->
            inet_rdma_link_event:say(
                Event,
                warning,
                "inet_rdma: the link to ~ts ended: ~ts~ts",
                [Node, Why, inet_rdma_recorder:before(Node)],
                Measurements
            )
    end.

%% The end of a link for which the peer, or nobody, is to blame.
-spec ended_by({peer_misbehaved | rolled_back, How :: binary()}) -> ending().
ended_by({peer_misbehaved, How}) ->
    {peer_misbehaved, <<"the peer misbehaved: ", How/binary>>, false};
ended_by({rolled_back, How}) ->
    {rolled_back, <<"rolled back: ", How/binary>>, false}.

%% dist_util ends the supervisor with such a reason, and the supervisor's end ends the port.
ending(net_tick_timeout, _) ->
    {net_tick_timeout, <<"nothing has come from the peer for the time of net_ticktime">>, false};
ending(disconnect, {unknown, _, _}) ->
    {unknown, <<"this node has disconnected the peer">>, true};
ending(_Exit, Ending) ->
    Ending.

%% The data of the guard of a link with a session. A map: a guard lives on while modules with other
%% fields are loaded.
-module(inet_rdma_session_data).

-export([new/3, upgraded/1, take_timers/2, fabric/1, carried/1, facts/1, ending/1]).
-export_type([t/0]).

%% Version of t/0. Increase it when a field changes its meaning; new fields need no other version.
-define(VERSION, 2).

%% standing: as the port's last notice says. queue: the queue pair that carries the link; none: TCP
%% does. why: that, in words. loss: while there is no TCP connection, or a path is suspected.
%% outage: the last one. restored_at: when an attempt has made the TCP connection in use, by
%% erlang:monotonic_time(millisecond). refused: the decision to end the link that the port has
%% refused, none: there is none. ending: the reason for which the port is about to end, as it has
%% said.
-type t() :: #{
    version := pos_integer(),
    session := inet_rdma_session:t(),
    port := port(),
    node := binary(),
    supervisor := pid(),
    peer := inet_rdma_session_loss:peer(),
    config := inet_rdma_options:config(),
    standing := inet_rdma_port:standing(),
    queue := inet_rdma_queue:t() | none,
    why := binary(),
    mover := inet_rdma_session_mover:t(),
    idle := inet_rdma_session_idle:t(),
    loss := none | inet_rdma_session_loss:t(),
    outage := inet_rdma_session_outage:t(),
    restored_at := integer() | never,
    has_small_segments := boolean(),
    log := inet_rdma_link_log:t(),
    witness := inet_rdma_witness:t(),
    refused := term(),
    ending := unknown | peer_closed | {peer_misbehaved | rolled_back | not_resumed, binary()}
}.

-spec new(Supervisor :: pid(), inet_rdma_session:t(), inet_rdma_session:link()) -> t().
new(Supervisor, Session, Link) ->
    #{node := Node, peer := Peer, config := Config, why := Why} = Link,
    Facts = #{
        session => Session,
        node => Node,
        supervisor => Supervisor,
        peer => Peer,
        why => Why,
        config => inet_rdma_options:of_guard(Config)
    },
    maps:merge(defaults(Facts), Facts).

defaults(#{session := Session, node := Node, config := Config}) ->
    #{
        version => ?VERSION,
        port => inet_rdma_session:port(Session),
        standing => inet_rdma_port:first_standing(),
        queue => none,
        mover => inet_rdma_session_mover:new(Session, Node, Config),
        idle => inet_rdma_session_idle:new(Session, Config),
        loss => none,
        outage => never,
        restored_at => never,
        has_small_segments => false,
        log => inet_rdma_link_log:new(Node),
        witness => inet_rdma_witness:new(),
        refused => none,
        ending => unknown
    }.

%% The data of a guard that another version of these modules may have started: fields that it lacks,
%% and fields that its parts lack, get the values of a new link. At each event, as nothing tells a
%% guard that a module is loaded again.
-spec upgraded(map()) -> t().
upgraded(Given) ->
    Old = from_earlier(Given),
    New = defaults(Old),
    Parts = maps:map(
        fun(Part, Default) -> maps:merge(Default, maps:get(Part, Old, #{})) end,
        maps:with([standing, mover, idle, log, witness], New)
    ),
    Data = #{loss := Loss} = maps:merge(maps:merge(New, Old), Parts),
    Data#{
        version := ?VERSION,
        loss :=
            case Loss of
                none -> none;
                _ -> inet_rdma_session_loss:upgraded(Loss)
            end
    }.

%% In version 1 the standing was a tuple.
from_earlier(#{standing := {State, Path, HasTcp}} = Old) ->
    Old#{
        standing := (inet_rdma_port:first_standing())#{
            state := State, path := Path, has_tcp := HasTcp
        }
    };
from_earlier(Old) ->
    Old.

%% What the guard does with its timeouts now; one that is not named goes on. Before: the data before
%% the event.
-spec take_timers(Before :: t(), t()) -> {#{atom() => timeout()}, t()}.
take_timers(Before, #{mover := Mover, idle := Idle} = Guarded) ->
    Parts = [{settle, Mover}, {idle, Idle}],
    Set = maps:from_list([{Name, Timer} || {Name, #{timer := Timer}} <- Parts, Timer =/= keep]),
    {OfLoss, Loss} = loss_timers(Before, Guarded),
    {maps:merge(Set, OfLoss), Guarded#{
        mover := Mover#{timer := keep}, idle := Idle#{timer := keep}, loss := Loss
    }}.

loss_timers(#{loss := none}, #{loss := none}) ->
    {#{}, none};
loss_timers(_Before, #{loss := none}) ->
    {#{retry => infinity, bound => infinity, outage => infinity}, none};
loss_timers(_Before, #{loss := Loss}) ->
    inet_rdma_session_loss:take_timers(Loss).

-spec fabric(t()) -> Fabric :: binary().
fabric(#{queue := none}) -> <<"tcp">>;
fabric(#{queue := Queue}) -> inet_rdma_queue:fabric(Queue).

%% The fabric that carries the link, and why.
-spec carried(t()) -> {Fabric :: binary(), Why :: binary()}.
carried(#{why := Why} = Guarded) -> {fabric(Guarded), Why}.

-spec facts(t()) -> inet_rdma_session_log:link().
facts(#{node := Node, why := Why} = Guarded) -> {Node, fabric(Guarded), Why}.

%% The reason for which the port has ended, as far as this side knows it.
-spec ending(t()) -> inet_rdma_link_log:ending().
ending(#{ending := {not_resumed, Why}}) -> {not_resumed, Why, false};
ending(#{ending := peer_closed}) -> {closed, <<"the peer closed the link">>, true};
ending(#{ending := unknown, queue := none}) -> {unknown, <<"its port was closed">>, true};
ending(#{ending := unknown, queue := Queue}) -> inet_rdma_queue:ended(Queue);
ending(#{ending := Fault}) -> inet_rdma_link_log:ended_by(Fault).

%% Events of links: as metadata of log events, as events of the library telemetry, and in the flight
%% recorder, all with one map. docs/MONITORING.md lists the events.
-module(inet_rdma_link_event).

-export([new/4, new/5, why_lost/1, say/5, log/4, log_carried/2, tell/2, announce/2, record/2]).
-export_type([t/0, kind/0, lost/0]).

-include_lib("kernel/include/logger.hrl").

%% up: over RDMA. fallback: over TCP or TLS. lost: the TCP connection of a link's session, which
%% reconnects. restored: another one is there. moved: a link that is up is carried by another path.
%% full: senders wait for most of the time, though the peer takes bytes. stalled: senders wait, and
%% the peer takes nothing. unread: packets are not understood, so senders and targets are no longer
%% counted. stall_ended: it takes bytes again. down: a link with a session has ended.
%% refused: the option required forbids TCP, and the link did not come up. failed: the settlement
%% failed; a link that is up on TCP stays there.
-type kind() ::
    up
    | fallback
    | lost
    | restored
    | moved
    | full
    | unread
    | stalled
    | stall_ended
    | down
    | refused
    | failed.

%% why: in words. reason: of an end or a loss, as a term. from: the path before a move. top: who fills
%% a full link, the heaviest first.
-type t() :: #{
    event := kind(),
    node := node(),
    fabric := fabric() | undefined,
    why := binary(),
    reason => reason(),
    from => fabric(),
    top => [inet_rdma_top:row()]
}.
-type fabric() :: inet_rdma_options:fabric() | tls.
%% net_tick_timeout: nothing has come for net_ticktime. rolled_back: one of the two nodes was
%% restored from a snapshot.
-type reason() :: inet_rdma:reason() | lost() | net_tick_timeout | rolled_back | unknown.

%% Why a TCP connection is lost: the system's error; closed: the other side ended it; queue_pair:
%% the queue pair is lost, and both sides give the connection up; superseded: an attempt of either
%% side has made another one; system_limit: the VM cannot watch it; woke: this node was paused, and
%% it is sealed; damaged: bytes of it are not those that the peer has sent.
-type lost() :: inet:posix() | inet_rdma_interface:loss().

%% Fabric: undefined if there is no link.
-spec new(kind(), Node :: binary(), Fabric :: binary() | undefined, Why :: binary()) -> t().
new(Kind, Node, Fabric, Why) ->
    #{
        event => Kind,
        node => binary_to_atom(Node),
        why => Why,
        fabric =>
            case Fabric of
                undefined -> undefined;
                _ -> binary_to_atom(Fabric)
            end
    }.

-spec new(kind(), Node :: binary(), Fabric :: binary(), Why :: binary(), reason()) -> t().
new(Kind, Node, Fabric, Why, Reason) ->
    (new(Kind, Node, Fabric, Why))#{reason => Reason}.

-spec why_lost(lost()) -> binary().
why_lost(closed) ->
    <<"the other side ended it">>;
why_lost(queue_pair) ->
    <<"its queue pair is lost">>;
why_lost(superseded) ->
    <<"the peer has lost it">>;
why_lost(system_limit) ->
    <<"the runtime system cannot watch it">>;
why_lost(woke) ->
    <<"this node was paused">>;
why_lost(damaged) ->
    <<"bytes of it were changed on their way, or somebody else has sent them">>;
why_lost(Posix) ->
    unicode:characters_to_binary([inet:format_error(Posix), ", ", atom_to_binary(Posix)]).

%% The reason has a key of its own, inet_rdma_reason, as in log events of streams.
metadata(#{reason := Reason} = Event) ->
    #{inet_rdma => maps:remove(reason, Event), inet_rdma_reason => Reason};
metadata(Event) ->
    #{inet_rdma => Event}.

-spec say(
    t(), logger:level(), Format :: io:format(), [term()], Measurements :: #{atom() => integer()}
) -> ok.
say(Event, Level, Format, Arguments, Measurements) ->
    %% Before the log, as a handler of the log may wait.
    ok = tell(Event, Measurements),
    log(Event, Level, Format, Arguments).

-spec log(t(), logger:level(), Format :: io:format(), [term()]) -> ok.
log(Event, Level, Format, Arguments) ->
    ?LOG(Level, Format, Arguments, metadata(Event)),
    ok.

%% Logs which fabric carries the link, and why.
-spec log_carried(t(), logger:level()) -> ok.
log_carried(#{node := Node, fabric := Fabric, why := Why} = Event, Level) ->
    log(Event, Level, "inet_rdma: ~ts over ~ts; ~ts", [Node, Fabric, Why]).

%% Records the event, and announces it.
-spec tell(t(), Measurements :: #{atom() => integer()}) -> ok.
tell(Event, Measurements) ->
    ok = record(Event, Measurements),
    announce(Event, Measurements).

%% Executes [inet_rdma, link, Kind] if telemetry is loaded: without it no handler can be attached.
%% Telemetry calls its handlers in the process that executes an event, so that is a process of its
%% own: a guard whose handler waits for the peer would wait for its own link.
-spec announce(t(), Measurements :: #{atom() => integer()}) -> ok.
announce(#{event := Kind} = Event, Measurements) ->
    _ =
        erlang:function_exported(telemetry, execute, 3) andalso
            %% If the process table is full no handler hears of the event.
            inet_rdma_bounded:start(library(), execute, [
                [inet_rdma, link, Kind],
                Measurements#{system_time => erlang:system_time()},
                Event
            ]),
    ok.

%% For the flight recorder alone.
-spec record(t(), Measurements :: #{atom() => integer()}) -> ok.
record(#{event := Kind, node := Node, fabric := Fabric, why := Why} = Event, Measurements) ->
    inet_rdma_recorder:record(Kind, Node, #{
        path => Fabric,
        why => Why,
        cause => maps:get(reason, Event, undefined),
        duration => maps:get(duration, Measurements, 0),
        amount => maps:get(bytes, Measurements, 0)
    }).

%% The name is made at run time because Dialyzer and xref report calls of a module that is absent.
-spec library() -> module().
library() ->
    list_to_atom("telemetry").

%% The log lines and events of a link with a session (inet_rdma_link_event) about its paths: TCP
%% connections and queue pairs that are lost, restored, or moved to.
-module(inet_rdma_session_log).

-export([unknown_notice/2, lost/4, queue_lost/4, suspected/3, lasts/3, trusted/3]).
-export([peer_had_outage/2, restored/3, replaced/2]).
-export([moved/2, moved_up/2, stayed/1, failed/2, crashed/2]).
-export_type([link/0]).

-include_lib("kernel/include/logger.hrl").

%% The link as it is after the event: its fabric, and why that carries it.
-type link() :: {Node :: binary(), Fabric :: binary(), Why :: binary()}.

%% A notice of the port that a later library sends.
-spec unknown_notice(Notice :: term(), link()) -> ok.
unknown_notice(Notice, {Node, _, _}) ->
    ?LOG_NOTICE(
        "inet_rdma: the port of the link to ~ts sent a notice that these modules do not know: ~0tP",
        [Node, Notice, 20]
    ).

-spec lost(inet_rdma_session_loss:reason(), Why :: binary(), IsCarried :: boolean(), link()) -> ok.
lost(Reason, Why, IsCarried, {Node, _, _} = Link) ->
    Meanwhile =
        case IsCarried of
            true -> "; its queue pair carries the link";
            false -> ""
        end,
    inet_rdma_link_event:say(
        event(lost, Reason, Why, Link),
        notice,
        "inet_rdma: the link to ~ts lost its TCP connection (~ts); reconnecting~ts",
        [Node, Why, Meanwhile],
        #{count => 1}
    ).

%% A queue pair of this fabric is lost, and its TCP connection with it.
-spec queue_lost(Fabric :: binary(), inet_rdma_session_loss:reason(), Why :: binary(), link()) ->
    ok.
queue_lost(Fabric, Reason, Why, {Node, _, _} = Link) ->
    ok = inet_rdma_link_event:say(
        event(lost, Reason, Why, Link),
        notice,
        "inet_rdma: the link to ~ts lost its queue pair over ~ts (~ts), and goes back to TCP",
        [Node, Fabric, Why],
        #{count => 1}
    ),
    moved(Fabric, Link).

%% A path does not answer. For one that only stands by, there is an event in the flight recorder
%% alone. IsNarrow: the way may drop packets of full size. Returns why the path is suspected.
-spec suspected(path | standby | woke, IsNarrow :: boolean(), link()) -> Why :: binary().
suspected(standby, _, Link) ->
    record(suspected, <<"the TCP connection that stands by does not answer">>, 0, Link);
suspected(woke, _, Link) ->
    record(suspected, <<"this node was paused">>, 0, Link);
suspected(path, IsNarrow, {Node, Fabric, _} = Link) ->
    More =
        case IsNarrow of
            true -> <<", though the connection is new: the next one has small segments">>;
            false -> <<>>
        end,
    Why = record(
        suspected, <<"the peer's host does not answer over ", Fabric/binary, More/binary>>, 0, Link
    ),
    ?LOG_INFO("inet_rdma: the link to ~ts suspects its path, and tries others beside it: ~ts", [
        Node, Why
    ]),
    Why.

%% A path has been suspected for a while, and no other connection was made meanwhile.
-spec lasts(inet_rdma_session_loss:suspicion(), Duration :: integer(), link()) -> ok.
lasts(Suspicion, Duration, {Node, Fabric, _}) when Suspicion =:= path; Suspicion =:= woke ->
    ?LOG_NOTICE(
        "inet_rdma: the link to ~ts waits: for ~b ms the peer's host has not answered over ~ts, "
        "and no other connection could be made",
        [Node, ms(Duration), Fabric]
    );
lasts(_LostOrStandby, _Duration, _Link) ->
    ok.

-spec trusted(inet_rdma_session_loss:suspicion(), Duration :: integer(), link()) -> ok.
trusted(Suspicion, Duration, {Node, _, _} = Link) when Suspicion =/= standby ->
    Why = record(trusted, <<"the path that was suspected answers">>, Duration, Link),
    Level =
        case inet_rdma_session_loss:is_outage(Duration) of
            true -> notice;
            false -> info
        end,
    ?LOG(Level, "inet_rdma: the link to ~ts goes on as before after ~b ms: ~ts", [
        Node, ms(Duration), Why
    ]);
trusted(_, Duration, Link) ->
    _ = record(trusted, <<"all paths answer">>, Duration, Link),
    ok.

%% The peer has had no answer of this node for this time, and this side had noticed nothing.
-spec peer_had_outage(Ms :: non_neg_integer(), link()) -> ok.
peer_had_outage(Ms, {Node, _, _} = Link) ->
    Why = record(
        trusted,
        <<"the peer had no answer of this node's host">>,
        erlang:convert_time_unit(Ms, millisecond, native),
        Link
    ),
    ?LOG_NOTICE("inet_rdma: the link to ~ts goes on as before after ~b ms: ~ts", [Node, Ms, Why]).

record(Kind, Why, Duration, {Node, Fabric, _}) ->
    ok = inet_rdma_recorder:record(Kind, Node, #{path => Fabric, why => Why, duration => Duration}),
    Why.

%% Another TCP connection is there. Duration: since the loss or the suspicion, in native units.
%% There is an event `lost' before each event `restored', also after a suspicion.
-spec restored(
    inet_rdma_session_loss:suspicion(),
    {inet_rdma_session_loss:reason(), Why :: binary(), Duration :: integer()},
    link()
) -> ok.
restored(none, {_, Why, Duration} = How, {Node, _, _} = Link) ->
    restored_in_words(
        "inet_rdma: the link to ~ts goes on over another TCP connection, after ~b ms without one "
        "(~ts)",
        [Node, ms(Duration), Why],
        How,
        Link
    );
restored(Suspicion, {Reason, Why, Duration} = How, {Node, _, _} = Link) ->
    ok = inet_rdma_link_event:tell(event(lost, Reason, Why, Link), #{count => 1}),
    case Suspicion of
        _ when Suspicion =/= standby ->
            restored_in_words(
                "inet_rdma: the link to ~ts goes on over another TCP connection: the path before "
                "was suspected for ~b ms (~ts)",
                [Node, ms(Duration), Why],
                How,
                Link
            );
        standby ->
            inet_rdma_link_event:tell(event(restored, Reason, Why, Link), #{
                count => 1, duration => Duration
            })
    end.

restored_in_words(Format, Arguments, {Reason, Why, Duration}, Link) ->
    inet_rdma_link_event:say(
        event(restored, Reason, Why, Link),
        notice,
        Format,
        Arguments,
        #{count => 1, duration => Duration}
    ).

ms(Duration) -> erlang:convert_time_unit(Duration, native, millisecond).

%% The peer has made another TCP connection, and this side had not seen a loss. direct: the one
%% before went over a neighbour. full_segments: the one before had small ones. standby: a queue pair
%% carries the link, and nothing waited for the connection.
-spec replaced(direct | full_segments | path | standby, link()) -> ok.
replaced(How, {Node, _, _} = Link) ->
    Why = inet_rdma_link_event:why_lost(superseded),
    ok = inet_rdma_link_event:tell(event(lost, superseded, Why, Link), #{count => 1}),
    Restored = event(restored, superseded, Why, Link),
    Figures = #{count => 1, duration => 0},
    case How of
        standby ->
            inet_rdma_link_event:tell(Restored, Figures);
        full_segments ->
            inet_rdma_link_event:say(
                Restored,
                notice,
                "inet_rdma: the link to ~ts goes on with full segments",
                [Node],
                Figures
            );
        direct ->
            inet_rdma_link_event:say(
                Restored,
                notice,
                "inet_rdma: the link to ~ts goes directly again",
                [Node],
                Figures
            );
        path ->
            inet_rdma_link_event:say(
                Restored,
                notice,
                "inet_rdma: the link to ~ts goes on over another TCP connection; the peer has "
                "lost or suspected the one before",
                [Node],
                Figures
            )
    end.

%% The link was carried by the fabric From before.
-spec moved(From :: binary(), link()) -> ok.
moved(From, {Node, Fabric, Why}) ->
    Moved = inet_rdma_link_event:new(moved, Node, Fabric, Why),
    inet_rdma_link_event:tell(Moved#{from => binary_to_atom(From)}, #{count => 1}).

%% A settlement has moved the link to a queue pair.
-spec moved_up(From :: binary(), link()) -> ok.
moved_up(From, {Node, Fabric, Why} = Link) ->
    Event = inet_rdma_link_event:new(up, Node, Fabric, Why),
    ok = inet_rdma_link_event:tell(Event, #{count => 1}),
    ok = inet_rdma_link_event:log_carried(Event, info),
    moved(From, Link).

%% A settlement has left the link on TCP.
-spec stayed(link()) -> ok.
stayed({Node, _, Why} = Link) ->
    say(fallback, notice, Link, "inet_rdma: ~ts stays on TCP; ~ts", [Node, Why]).

-spec failed(How :: binary(), link()) -> ok.
failed(How, {Node, _, _} = Link) ->
    say(failed, notice, Link, "inet_rdma: ~ts stays on TCP: ~ts", [Node, How]).

-spec crashed(Exit :: term(), link()) -> ok.
crashed(Exit, {Node, _, _} = Link) ->
    say(failed, warning, Link, "inet_rdma: ~ts stays on TCP: its settlement failed: ~tp", [
        Node, Exit
    ]).

say(Kind, Level, {Node, Fabric, Why}, Format, Arguments) ->
    inet_rdma_link_event:say(
        inet_rdma_link_event:new(Kind, Node, Fabric, Why),
        Level,
        Format,
        Arguments,
        #{count => 1}
    ).

event(Kind, Reason, Why, {Node, Fabric, _}) ->
    inet_rdma_link_event:new(Kind, Node, Fabric, Why, Reason).

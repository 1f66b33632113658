%% Who fills a link when something happens to it: the heaviest rows of the last seconds
%% (inet_rdma_top) go into the flight recorder, and of a full link into a log line and an event.
%%
%% The guard asks its port, which answers at once; a port that has ended has left its counts behind.
%% Another process finds the names of processes, as these may answer late.
-module(inet_rdma_link_fill).

-export([note/4, note_end/4, watch_queue/3]).
%% Spawned.
-export([tell/4, tell_ended/3, look_at_queue/3]).
-export_type([t/0, occasion/0]).

%% When it was noted last, by erlang:monotonic_time(second).
-type t() :: integer() | never.

%% full: as the port says, once a minute at most. trouble: a loss, a suspicion, a stall, a queue over
%% its bound or the end of the link.
-type occasion() :: full | trouble.

%% Rows in the flight recorder each time.
-define(ROWS, 5).
%% Least time between two notes of trouble.
-define(PAUSE_S, 10).
%% Least rate of a link that is noted in trouble, in bytes per second: less does not fill it.
-define(RATE_MIN, 10000).
%% An ended port has left its counts some microseconds after its exit signal.
-define(LEFT_TRIES, 100).
-define(LEFT_PAUSE_MS, 10).
%% A port says once a second at most that it is busy. A process looks at the VM's queue of the link
%% for that second.
-define(QUEUE_LOOKS, 10).
-define(QUEUE_PAUSE_MS, 100).

-spec note(occasion(), port(), {Node :: binary(), Fabric :: binary()}, t()) -> t().
note(Occasion, Port, Link, Last) ->
    Now = erlang:monotonic_time(second),
    case Occasion =:= full orelse is_due(Now, Last) of
        true -> note_now(inet_rdma_port:attribution(Port), [Occasion, Port, Link], Now, Last);
        false -> Last
    end.

is_due(_Now, never) -> true;
is_due(Now, Last) -> Now - Last >= ?PAUSE_S.

note_now({ok, Attribution}, Arguments, Now, _Last) ->
    %% If the process table is full nothing is noted.
    _ = inet_rdma_bounded:start(?MODULE, tell, Arguments ++ [Attribution]),
    Now;
note_now(_NoneOrClosed, _Arguments, _Now, Last) ->
    Last.

%% Records the heaviest senders of a link whose port has ended.
-spec note_end(Session :: <<_:128>>, port(), {Node :: binary(), Fabric :: binary()}, t()) -> ok.
note_end(Session, Port, Link, Last) ->
    case is_due(erlang:monotonic_time(second), Last) of
        true ->
            _ = inet_rdma_bounded:start(?MODULE, tell_ended, [Session, Port, Link]),
            ok;
        %% What the port has left stays there until others need the room.
        false ->
            ok
    end.

-spec tell_ended(Session :: <<_:128>>, port(), {Node :: binary(), Fabric :: binary()}) -> ok.
tell_ended(Session, Port, Link) -> tell_left(Session, Port, Link, ?LEFT_TRIES).

tell_left(_Session, _Port, _Link, 0) ->
    ok;
tell_left(Session, Port, Link, Tries) ->
    case inet_rdma_nif:ended_attribution(Session) of
        none ->
            receive
            after ?LEFT_PAUSE_MS -> tell_left(Session, Port, Link, Tries - 1)
            end;
        %% The option attribution is off.
        <<>> ->
            ok;
        Term ->
            tell(trouble, Port, Link, binary_to_term(Term))
    end.

%% The port is busy, so the VM keeps packets in a queue of its own. Guard gets queue_over_bound if
%% that has as many bytes as suspend its senders (the flag +zdbbl of erl).
-spec watch_queue(Guard :: pid(), Node :: binary(), t()) -> ok.
watch_queue(Guard, Node, Last) ->
    _ = [
        inet_rdma_bounded:start(?MODULE, look_at_queue, [Guard, binary_to_atom(Node), ?QUEUE_LOOKS])
     || is_due(erlang:monotonic_time(second), Last)
    ],
    ok.

-spec look_at_queue(Guard :: pid(), node(), Looks :: non_neg_integer()) -> ok.
look_at_queue(_Guard, _Node, 0) ->
    ok;
look_at_queue(Guard, Node, Looks) ->
    case inet_rdma_port:queued(Node) of
        Bytes when is_integer(Bytes) ->
            look_at_queue(Guard, Node, Looks, Bytes >= erlang:system_info(dist_buf_busy_limit));
        _UnknownOrClosed ->
            ok
    end.

look_at_queue(Guard, _Node, _Looks, true) ->
    Guard ! queue_over_bound,
    ok;
look_at_queue(Guard, Node, Looks, false) ->
    receive
    after ?QUEUE_PAUSE_MS -> look_at_queue(Guard, Node, Looks - 1)
    end.

-spec tell(occasion(), port(), {Node :: binary(), Fabric :: binary()}, inet_rdma_port:attribution()) ->
    ok.
tell(Occasion, Port, {Node, Fabric}, Attribution) ->
    ok = inet_rdma_recorder:of_port(Port),
    Top = inet_rdma_top:of_attribution(Attribution),
    Rows = rows(Occasion, Top),
    ok = tell_full(Occasion, Node, Fabric, Top),
    lists:foreach(
        fun({Direction, Total, #{operation := Operation, at_least := Rate} = Row}) ->
            Why = [share(Row, Total), $\s, atom_to_list(Direction), " are of ", parties(Row)],
            inet_rdma_recorder:record(filler, Node, #{
                path => Fabric, cause => Operation, why => Why, amount => Rate
            })
        end,
        lists:sublist(Rows, ?ROWS)
    ).

%% A full link is filled by what it sends.
rows(full, Top) ->
    of_direction(sent, Top);
rows(trouble, Top) ->
    Rows = of_direction(sent, Top) ++ of_direction(received, Top),
    lists:sort(fun({_, _, #{at_least := A}}, {_, _, #{at_least := B}}) -> A >= B end, Rows).

of_direction(Direction, Top) ->
    #{Direction := #{recent := #{total := Total, rows := Rows}}} = Top,
    [{Direction, Total, Row} || Total >= ?RATE_MIN, #{percent := Percent} = Row <- Rows, Percent > 0].

tell_full(full, Node, Fabric, #{sent := #{recent := #{total := Total, rows := [First | _] = Rows}}}) ->
    Why = unicode:characters_to_binary([share(First, Total), " are of ", parties(First)]),
    Event = inet_rdma_link_event:new(full, Node, Fabric, Why),
    inet_rdma_link_event:say(
        Event#{top => lists:sublist(Rows, ?ROWS)},
        notice,
        "inet_rdma: the link to ~ts is full: ~ts",
        [Node, Why],
        #{count => 1, bytes_per_second => Total}
    );
tell_full(_Occasion, _Node, _Fabric, _Top) ->
    ok.

share(#{percent := Percent}, Total) -> io_lib:format("~b % of ~ts", [Percent, inet_rdma_top:rate(Total)]).

parties(#{from := From, to := none}) -> inet_rdma_top:text(From);
parties(#{from := From, to := To}) -> [inet_rdma_top:text(From), " to ", inet_rdma_top:text(To)].

%% Who fills a link when something happens to it: the heaviest rows of the last seconds
%% (inet_rdma_top) go into the flight recorder, and of a full link into a log line and an event.
%%
%% The guard asks its port, which answers at once. Another process finds the names of processes, as
%% these may answer late.
-module(inet_rdma_link_fill).

-export([note/4]).
%% Spawned.
-export([tell/4]).
-export_type([t/0, occasion/0]).

%% When it was noted last, by erlang:monotonic_time(second).
-type t() :: integer() | never.

%% full: as the port says, once a minute at most. trouble: a loss, a suspicion, a stall or the end of
%% the link.
-type occasion() :: full | trouble.

%% Rows in the flight recorder each time.
-define(ROWS, 5).
%% Least time between two notes of trouble.
-define(PAUSE_S, 10).
%% Least rate of a link that is noted in trouble, in bytes per second: less does not fill it.
-define(RATE_MIN, 10000).

-spec note(occasion(), port(), {Node :: binary(), Fabric :: binary()}, t()) -> t().
note(Occasion, Port, Link, Last) ->
    Now = erlang:monotonic_time(second),
    case Occasion =:= full orelse Last =:= never orelse Now - Last >= ?PAUSE_S of
        true -> note_now(inet_rdma_port:attribution(Port), [Occasion, Port, Link], Now, Last);
        false -> Last
    end.

note_now({ok, Attribution}, Arguments, Now, _Last) ->
    %% If the process table is full nothing is noted.
    _ = inet_rdma_bounded:start(?MODULE, tell, Arguments ++ [Attribution]),
    Now;
note_now(_NoneOrClosed, _Arguments, _Now, Last) ->
    Last.

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

%% The flight recorder of this node: it writes the events of the node's links to a file that
%% outlives the node.
%%
%% The native library keeps the events in memory, and a thread of its own writes them to the file,
%% from the first event of a link on. inet_rdma_flight reads such files. docs/FLIGHT.md lists the
%% events. A node that does not listen has no recorder: each remote shell and erl_call would leave a
%% file.
-module(inet_rdma_recorder).

-export([open/2, file/0, record/3, tick/5, of_port/1, history/2, before/1, event/1, text/1]).
-export_type([fields/0, event/0]).

%% path: what carries the link. cause: a reason as a term, and why: in words. duration: in native
%% units of time. amount: of bytes or packets. All have a default.
-type fields() :: #{
    path => atom() | binary(),
    cause => term(),
    why => unicode:chardata(),
    duration => integer(),
    amount => non_neg_integer()
}.

%% time: erlang:system_time(nanosecond) of that moment. monotonic: nanoseconds since that machine's
%% boot. link: the number of the link's port, 0: it had none. path: tcp, tls, shm, verbs or nothing.
%% cause: the reason as one word, why: in words. duration_ns and amount (of bytes or packets): see
%% docs/FLIGHT.md; 0 where they say nothing. An event or a cause may be one that only a later
%% version knows, so they are texts.
-type event() :: #{
    event := binary(),
    node := binary(),
    time := integer(),
    monotonic := non_neg_integer(),
    sequence := pos_integer(),
    link := non_neg_integer(),
    path := binary(),
    cause := binary(),
    why := binary(),
    duration_ns := non_neg_integer(),
    amount := non_neg_integer()
}.

%% The number of the port of the link for which the process works.
-define(LINK, {?MODULE, link}).

%% The events that the log line of an end repeats: the number of events, and their greatest age.
-define(BEFORE_EVENTS, 5).
%% Enough to find these among those of who fills the link.
-define(READ_EVENTS, 25).
-define(BEFORE_NS, 60000000000).

%% Starts recording, as the options say; a recorder that runs gets the node's name. Does not touch
%% the disk. disabled: the option flight_recorder is false.
-spec open(Node :: binary(), inet_rdma_options:config()) ->
    ok | {error, Why :: binary()} | disabled.
open(Node, #{flight_recorder := true, flight_bytes := Bytes, flight_directory := Directory}) ->
    case inet_rdma_nif:load() of
        ok -> inet_rdma_nif:flight_start(directories(Directory), Node, Bytes);
        %% The start of the distribution says that all links stay on TCP, and why.
        {error, _} -> disabled
    end;
open(_Node, #{flight_recorder := false}) ->
    disabled.

%% The file, in UTF-8 as far as the name of its directory is. none: the recorder is off, or there
%% was no link yet.
-spec file() -> {ok, Path :: binary()} | none.
file() ->
    case inet_rdma_nif:is_loaded() andalso inet_rdma_nif:flight_file() of
        Path when is_binary(Path) -> {ok, Path};
        _FalseOrNone -> none
    end.

%% default: the directory of this user's running programs, else the directory of temporary files.
directories(default) ->
    Variables = [os:getenv(Variable) || Variable <- ["XDG_RUNTIME_DIR", "TMPDIR"]],
    [unicode:characters_to_binary(Directory) || "/" ++ _ = Directory <- Variables ++ ["/tmp"]];
directories(Directory) ->
    [unicode:characters_to_binary(Directory)].

%% The calling process works for the link of this port: its events have the port's number.
-spec of_port(port()) -> ok.
of_port(Port) ->
    _ = put(?LINK, number(Port)),
    ok.

%% Of #Port<0.7> 7. A process has no number.
number(Port) when is_port(Port) ->
    [$> | Reversed] = lists:reverse(erlang:port_to_list(Port)),
    list_to_integer(lists:reverse(lists:takewhile(fun(Char) -> Char =/= $. end, Reversed)));
number(_Sender) ->
    0.

%% Node: the peer; of an event of this node itself, this node.
-spec record(Event :: atom(), Node :: node() | binary(), fields()) -> ok.
record(Event, Node, Fields) ->
    append(false, link(), Event, Node, Fields).

%% The result of a check of the link of this controller, with the packets received since the last
%% check. Such events are frequent, and have a part of the file of their own.
-spec tick(
    heard | missed,
    Node :: binary(),
    Controller :: port() | pid(),
    SilentMs :: non_neg_integer(),
    Packets :: non_neg_integer()
) -> ok.
tick(Event, Node, Controller, SilentMs, Packets) ->
    append(
        true,
        number(Controller),
        Event,
        Node,
        #{duration => erlang:convert_time_unit(SilentMs, millisecond, native), amount => Packets}
    ).

append(IsTick, Link, Event, Node, Fields) ->
    Cause = maps:get(cause, Fields, undefined),
    Why = unicode:characters_to_binary(maps:get(why, Fields, words(Cause))),
    Duration = erlang:convert_time_unit(max(0, maps:get(duration, Fields, 0)), native, nanosecond),
    Measured = {IsTick, Link, Duration, maps:get(amount, Fields, 0)},
    %% Without the library nothing is recorded.
    case inet_rdma_nif:is_loaded() of
        true ->
            Path = maps:get(path, Fields, <<>>),
            case
                inet_rdma_nif:flight_record(
                    name(Node), name(Event), name(Path), name(cause(Cause)), Why, Measured
                )
            of
                ok -> ok;
                OfTheFile -> inet_rdma_sleeper:tell(inet_rdma_node_watch, {file, OfTheFile})
            end;
        false ->
            ok
    end.

link() ->
    case get(?LINK) of
        undefined -> 0;
        Number -> Number
    end.

name(undefined) -> <<>>;
name(Name) when is_atom(Name) -> atom_to_binary(Name);
name(Name) when is_binary(Name) -> Name.

%% One word of a reason: of a tuple the first.
cause(Cause) when is_atom(Cause) -> Cause;
cause(Cause) when is_tuple(Cause), tuple_size(Cause) > 0 -> cause(element(1, Cause));
cause(_) -> undefined.

words(Cause) when is_atom(Cause) -> <<>>;
words(Cause) -> io_lib:format("~0tp", [Cause]).

%% The newest events of a node's links, oldest first; at most this many.
-spec history(node(), Most :: pos_integer()) -> [event()].
history(Node, Most) ->
    case inet_rdma_nif:is_loaded() of
        true ->
            lists:reverse(
                lists:append([
                    event(Slot)
                 || Slot <- inet_rdma_nif:flight_recent(atom_to_binary(Node), Most)
                ])
            );
        false ->
            []
    end.

%% The last events of a node's links, for a line of the log.
-spec before(Node :: binary()) -> unicode:chardata().
before(Node) ->
    %% The clock of the recorder. The VM's may be late: then the age of a new event would be
    %% negative.
    Now = os:system_time(nanosecond),
    case
        [
            said(Event, max(0, Now - Time))
         || #{time := Time, event := Kind} = Event <- history(binary_to_atom(Node), ?READ_EVENTS),
            Now - Time < ?BEFORE_NS,
            Kind =/= <<"filler">>
        ]
    of
        [] -> "";
        Said -> ["; before: ", lists:join(", ", last(?BEFORE_EVENTS, Said))]
    end.

last(Count, List) -> lists:nthtail(max(0, length(List) - Count), List).

said(#{event := Event, cause := <<>>}, AgeNs) ->
    io_lib:format("~ts ~.1f s ago", [Event, AgeNs / 1000000000]);
said(#{event := Event, cause := Cause}, AgeNs) ->
    io_lib:format("~ts (~ts) ~.1f s ago", [Event, Cause, AgeNs / 1000000000]).

%% The event in a slot of the recorder, if there is a whole one. native/link/flight/src/slot.rs has
%% the format.
-spec event(binary()) -> [event()].
event(
    <<Sequence:64/little, Crc:32/little, NodeBytes, EventBytes, PathBytes, CauseBytes,
        Monotonic:64/little, Time:64/little, Link:64/little, Duration:64/little, Amount:64/little,
        WhyBytes, Node:NodeBytes/binary, Event:EventBytes/binary, Path:PathBytes/binary,
        Cause:CauseBytes/binary, Why:WhyBytes/binary, _/binary>> = Slot
) when Sequence > 0 ->
    <<Stamp:8/binary, _:32, Rest/binary>> = Slot,
    case erlang:crc32([Stamp, Rest]) of
        Crc ->
            [
                #{
                    event => text(Event),
                    node => text(Node),
                    time => Time,
                    monotonic => Monotonic,
                    sequence => Sequence,
                    link => Link,
                    path => text(Path),
                    cause => text(Cause),
                    why => text(Why),
                    duration_ns => Duration,
                    amount => Amount
                }
            ];
        _ ->
            []
    end;
event(_) ->
    [].

%% A text of the recorder. Takes one that is not UTF-8 as Latin-1. Replaces control characters,
%% which could change the reader's terminal.
-spec text(binary()) -> binary().
text(Bytes) ->
    Chars =
        case unicode:characters_to_list(Bytes) of
            List when is_list(List) -> List;
            _ -> binary_to_list(Bytes)
        end,
    unicode:characters_to_binary([plain(Char) || Char <- Chars]).

plain(Char) when Char < $\s; Char >= 16#7f, Char < 16#a0 -> $.;
plain(Char) -> Char.

%% @doc Reads the files of flight recorders: the events of the links of a node, also of a dead node.
%%
%% This module reads a file without the native library and without the node, on any machine.
%% docs/FLIGHT.md describes the events, native/link/flight/src/file.rs and slot.rs the format.
%% Without Mix:
%%
%%     erl -noshell -pa EBIN -eval 'inet_rdma:load_tools(), inet_rdma_flight:main()' -extra FILE... [OPTION...]
%%
%% Options: --link NODE, --since T, --until T, --json
-module(inet_rdma_flight).

-export([read/1, select/2, format/1, to_json/1, main/0, run/1]).
-export_type([recording/0, event/0, selection/0]).

%% A file. torn: slots that were being written when the node ended, or that were damaged since; they
%% are left out.
-type recording() :: #{
    node := binary(),
    os_pid := non_neg_integer(),
    boot_id := binary(),
    started := integer(),
    torn := non_neg_integer(),
    events := [event()]
}.

-type event() :: inet_rdma_recorder:event().

%% The events to keep: only of these peers, not before and not after these times.
-type selection() :: #{link => [binary()], since => integer(), until => integer()}.

-define(VERSION, 1).
-define(HEADER_BYTES, 4096).
-define(SLOT_BYTES, 256).
%% More than the largest value of the option flight_bytes: such a file is no recording.
-define(FILE_BYTES_MAX, 1 bsl 27).

%% @doc The events of a file, oldest first.
-spec read(file:name_all()) -> {ok, recording()} | {error, Why :: binary()}.
read(File) ->
    case opened(file:open(File, [read, raw, binary])) of
        {ok, Recording} -> {ok, Recording};
        {error, Why} -> {error, inet_rdma_text:text("~ts: ~ts", [File, Why])}
    end.

opened({error, Reason}) ->
    {error, file:format_error(Reason)};
opened({ok, Open}) ->
    Read = file:read(Open, ?FILE_BYTES_MAX),
    ok = file:close(Open),
    case Read of
        {ok, Bytes} -> recording(Bytes);
        eof -> {error, "it is empty"};
        {error, Reason} -> {error, file:format_error(Reason)}
    end.

recording(<<"inetrdma", Version:32/little, _/binary>>) when Version =/= ?VERSION ->
    {error,
        io_lib:format("it has version ~b of the format, and this reader knows version ~b", [
            Version, ?VERSION
        ])};
recording(
    <<"inetrdma", ?VERSION:32/little, ?SLOT_BYTES:32/little, _Events:32, _Ticks:32,
        _Monotonic:64/little, Started:64/little, OsPid:32/little, Crc:32/little, BootId:36/binary,
        NameBytes:16/little, Name:NameBytes/binary, _/binary>> = Bytes
) when byte_size(Bytes) >= ?HEADER_BYTES ->
    <<First:44/binary, _:32, Rest:(?HEADER_BYTES - 48)/binary, Slots/binary>> = Bytes,
    case erlang:crc32([First, Rest]) of
        Crc ->
            {Events, Torn} = events(Slots, [], 0),
            {ok, #{
                node => inet_rdma_recorder:text(Name),
                os_pid => OsPid,
                boot_id => inet_rdma_recorder:text(BootId),
                started => Started,
                torn => Torn,
                events => lists:sort(fun is_before/2, Events)
            }};
        _ ->
            {error, "its header is damaged"}
    end;
recording(_) ->
    {error, "it is no file of a flight recorder"}.

%% True for recordings of one machine without a boot between them.
is_before(#{monotonic := A}, #{monotonic := B}) -> A =< B.

%% A file that was cut off ends within a slot.
events(<<Slot:?SLOT_BYTES/binary, Rest/binary>>, Events, Torn) ->
    case inet_rdma_recorder:event(Slot) of
        [Event] -> events(Rest, [Event | Events], Torn);
        [] when Slot =:= <<0:(?SLOT_BYTES * 8)>> -> events(Rest, Events, Torn);
        [] -> events(Rest, Events, Torn + 1)
    end;
events(_CutOff, Events, Torn) ->
    {lists:reverse(Events), Torn}.

%% @doc The selected events of a recording.
-spec select(recording(), selection()) -> recording().
select(#{events := Events} = Recording, Selection) ->
    Recording#{events := [Event || Event <- Events, is_selected(Event, Selection)]}.

is_selected(#{node := Node, time := Time}, Selection) ->
    Links = maps:get(link, Selection, [Node]),
    lists:member(Node, Links) andalso Time >= maps:get(since, Selection, Time) andalso
        Time =< maps:get(until, Selection, Time).

%% @doc Lines for people, in UTF-8; of several recordings on one time line, by the clocks of their
%% machines.
-spec format([recording()]) -> iodata().
format(Recordings) ->
    unicode:characters_to_binary([
        [title(Recording) || Recording <- Recordings],
        lines(time_line(Recordings), Recordings)
    ]).

title(#{
    node := Node,
    os_pid := OsPid,
    boot_id := BootId,
    started := Started,
    torn := Torn,
    events := Events
}) ->
    io_lib:format(
        "~ts: OS process ~b, started ~ts, boot ~ts, ~b events~ts~n",
        [
            Node,
            OsPid,
            time(Started),
            BootId,
            length(Events),
            case Torn of
                0 -> "";
                _ -> io_lib:format(", ~b torn ones left out", [Torn])
            end
        ]
    ).

%% Two recordings of one boot share the monotonic clock. Other recordings can only be ordered by
%% their wall clocks.
time_line(Recordings) ->
    All = [{Event, Node} || #{node := Node, events := Events} <- Recordings, Event <- Events],
    Clock =
        case lists:usort([BootId || #{boot_id := BootId} <- Recordings]) of
            [_] -> monotonic;
            _ -> time
        end,
    lists:sort(fun({#{Clock := A}, _}, {#{Clock := B}, _}) -> A =< B end, All).

lines([], _Recordings) ->
    [];
lines(Line, Recordings) ->
    Rows = [header() | [row(Event, Node) || {Event, Node} <- Line]],
    Shown =
        case Recordings of
            [_] -> [[Time | Rest] || [Time, _Observer | Rest] <- Rows];
            _ -> Rows
        end,
    [$\n | inet_rdma_text:table(Shown, "  ")].

header() -> ["Time", "Seen by", "Event", "Node", "Link", "Path", "Cause", "What"].

row(
    #{event := Event, node := Node, time := Time, link := Link, path := Path, cause := Cause} = All,
    Observer
) ->
    [time(Time), Observer, Event, Node, or_dash(Link), or_dash(Path), or_dash(Cause), what(All)].

or_dash(0) -> "-";
or_dash(<<>>) -> "-";
or_dash(Number) when is_integer(Number) -> integer_to_list(Number);
or_dash(Text) -> Text.

what(#{why := Why} = Event) ->
    lists:join("; ", [
        Part
     || Part <- [unicode:characters_to_list(Why), duration(Event), amount(Event)], Part =/= ""
    ]).

duration(#{duration_ns := 0}) -> "";
duration(#{duration_ns := Ns}) when Ns < 1000000000 -> io_lib:format("~.3f ms", [Ns / 1000000]);
duration(#{duration_ns := Ns}) -> io_lib:format("~.1f s", [Ns / 1000000000]).

amount(#{amount := 0}) -> "";
amount(#{event := <<"heard">>, amount := Packets}) -> io_lib:format("~b packets", [Packets]);
amount(#{event := <<"start">>, amount := OsPid}) -> io_lib:format("OS process ~b", [OsPid]);
amount(#{amount := Bytes}) -> io_lib:format("~b bytes", [Bytes]).

%% In UTC. The time of a damaged clock is given as a number.
time(Ns) ->
    try
        calendar:system_time_to_rfc3339(Ns div 1000, [{unit, microsecond}, {offset, "Z"}])
    catch
        error:_ -> integer_to_list(Ns)
    end.

%% @doc The recordings as one JSON object, in ASCII.
-spec to_json([recording()]) -> iodata().
to_json(Recordings) ->
    Line = [Event#{seen_by => Node} || {Event, Node} <- time_line(Recordings)],
    inet_rdma_doctor_text:json(#{
        recordings => [maps:remove(events, Recording) || Recording <- Recordings],
        events => Line
    }).

%% @doc Prints what the arguments after -extra ask for, and ends the VM: status 0, or 1 with a text
%% on standard error.
-spec main() -> no_return().
main() ->
    {Device, Text, Status} =
        case run(init:get_plain_arguments()) of
            {ok, Printed} -> {standard_io, Printed, 0};
            {error, Why} -> {standard_error, [Why, $\n], 1}
        end,
    ok = io:put_chars(Device, unicode:characters_to_list(iolist_to_binary(Text))),
    halt(Status).

%% @private
-spec run([string()]) -> {ok, iodata()} | {error, Why :: iodata()}.
run(Arguments) ->
    case arguments(Arguments, #{files => [], json => false, selection => #{}}) of
        {ok, #{files := []}} ->
            {error, usage()};
        {ok, #{files := Files, json := IsJson, selection := Selection}} ->
            print([read(File) || File <- lists:reverse(Files)], IsJson, Selection);
        Error ->
            Error
    end.

usage() ->
    "files of flight recorders, please: FILE... [--link NODE] [--since TIME] [--until TIME] "
    "[--json]".

print(Read, IsJson, Selection) ->
    case [Why || {error, Why} <- Read] of
        [] ->
            Recordings = [select(Recording, Selection) || {ok, Recording} <- Read],
            {ok,
                case IsJson of
                    true -> [to_json(Recordings), $\n];
                    false -> format(Recordings)
                end};
        Errors ->
            {error, lists:join($\n, Errors)}
    end.

arguments(["--json" | Rest], Asked) ->
    arguments(Rest, Asked#{json := true});
arguments(["--link", Node | Rest], #{selection := Selection} = Asked) ->
    Links = maps:get(link, Selection, []),
    arguments(Rest, Asked#{
        selection := Selection#{link => [unicode:characters_to_binary(Node) | Links]}
    });
arguments([Option, Text | Rest], #{selection := Selection} = Asked) when
    Option =:= "--since"; Option =:= "--until"
->
    try calendar:rfc3339_to_system_time(zoned(Text), [{unit, nanosecond}]) of
        Time ->
            arguments(Rest, Asked#{selection := Selection#{list_to_atom(tl(tl(Option))) => Time}})
    catch
        error:_ -> {error, ["a time as 2026-11-24T01:40:00Z, please, and not ", Text]}
    end;
arguments(["--" ++ _ = Option | _], _Asked) ->
    {error, ["unknown option, or one without its value: ", Option, $\n, usage()]};
arguments([File | Rest], #{files := Files} = Asked) ->
    arguments(Rest, Asked#{files := [File | Files]});
arguments([], Asked) ->
    {ok, Asked}.

%% Without an offset it is in UTC, as the lines are.
zoned(Text) ->
    case re:run(Text, "(Z|z|[+-]\\d\\d:\\d\\d)$", [{capture, none}]) of
        match -> Text;
        nomatch -> Text ++ "Z"
    end.

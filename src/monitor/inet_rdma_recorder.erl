%% The flight recorder of this node: it writes the events of the node's links to a file that outlives the node.
%%
%% The native library keeps the events in memory, and a thread of its own writes them to the file, from the first event
%% of a link on. inet_rdma_flight reads such files. docs/FLIGHT.md lists the events. A node that does not listen has no
%% recorder: each remote shell and erl_call would leave a file.
-module(inet_rdma_recorder).

-export([open/2, record/3, tick/5, of_port/1, history/2, before/1]).
-export_type([fields/0]).

%% path: what carries the link. cause: a reason as a term, and why: in words. duration: in native units of time.
%% amount: of bytes or packets. All have a default.
-type fields() :: #{path => atom() | binary(), cause => term(), why => unicode:chardata(), duration => integer(),
                    amount => non_neg_integer()}.

%% The number of the port of the link that the process looks after.
-define(LINK, {?MODULE, link}).

%% The events that the log line of an end repeats: the number of events, and their greatest age.
-define(BEFORE_EVENTS, 5).
-define(BEFORE_NS, 60000000000).

%% Starts recording, as the options say. Does not touch the disk. disabled: the option flight_recorder is false.
-spec open(Node :: binary(), inet_rdma_options:config()) -> ok | {error, Why :: binary()} | disabled.
open(Node, #{flight_recorder := true, flight_bytes := Bytes, flight_directory := Directory}) ->
    case inet_rdma_nif:load() of
        ok -> inet_rdma_nif:flight_start(directories(Directory), Node, Bytes);
        %% The start of the distribution says that all links stay on TCP, and why.
        {error, _} -> disabled
    end;
open(_Node, #{flight_recorder := false}) ->
    disabled.

%% default: the directory of this user's running programs, else the directory of temporary files.
directories(default) ->
    Variables = [os:getenv(Variable) || Variable <- ["XDG_RUNTIME_DIR", "TMPDIR"]],
    [unicode:characters_to_binary(Directory) || "/" ++ _ = Directory <- Variables ++ ["/tmp"]];
directories(Directory) ->
    [unicode:characters_to_binary(Directory)].

%% The calling process looks after the link of this port: its events have the port's number.
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

%% The result of a look at the link that this controller carries, with the packets received since the last look. Such
%% events are frequent, and have a part of the file of their own.
-spec tick(heard | missed, Node :: binary(), Controller :: port() | pid(), SilentMs :: non_neg_integer(),
           Packets :: non_neg_integer()) -> ok.
tick(Event, Node, Controller, SilentMs, Packets) ->
    append(true, number(Controller), Event, Node,
           #{duration => erlang:convert_time_unit(SilentMs, millisecond, native), amount => Packets}).

append(IsTick, Link, Event, Node, Fields) ->
    Cause = maps:get(cause, Fields, undefined),
    Why = unicode:characters_to_binary(maps:get(why, Fields, words(Cause))),
    Duration = erlang:convert_time_unit(max(0, maps:get(duration, Fields, 0)), native, nanosecond),
    Measured = {IsTick, Link, Duration, maps:get(amount, Fields, 0)},
    %% Without the library nothing is recorded.
    case inet_rdma_nif:is_loaded() of
        true ->
            Path = maps:get(path, Fields, <<>>),
            case inet_rdma_nif:flight_record(name(Node), name(Event), name(Path), name(cause(Cause)), Why, Measured) of
                ok -> ok;
                OfTheFile -> inet_rdma_guard:tell(inet_rdma_node_watch, {file, OfTheFile})
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
-spec history(node(), Most :: pos_integer()) -> [inet_rdma_flight:event()].
history(Node, Most) ->
    case inet_rdma_nif:is_loaded() of
        true -> lists:reverse(lists:append([inet_rdma_flight:event(Slot)
                                            || Slot <- inet_rdma_nif:flight_recent(atom_to_binary(Node), Most)]));
        false -> []
    end.

%% The last events of a node's links, for a line of the log.
-spec before(Node :: binary()) -> unicode:chardata().
before(Node) ->
    Now = erlang:system_time(nanosecond),
    case [said(Event, Now - Time) || #{time := Time} = Event <- history(binary_to_atom(Node), ?BEFORE_EVENTS),
                                     Now - Time < ?BEFORE_NS] of
        [] -> "";
        Said -> ["; before: ", lists:join(", ", Said)]
    end.

said(#{event := Event, cause := <<>>}, AgeNs) -> io_lib:format("~ts ~.1f s ago", [Event, AgeNs / 1000000000]);
said(#{event := Event, cause := Cause}, AgeNs) ->
    io_lib:format("~ts (~ts) ~.1f s ago", [Event, Cause, AgeNs / 1000000000]).

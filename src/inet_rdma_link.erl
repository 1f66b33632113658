%% The port of a link, and a link without a session, which a queue pair carries: one that began inside TLS.
%%
%% The guard of such a link (inet_rdma_link_guard) owns the connection on which the link began. When the connection
%% ends, the guard tells the port, which gives the VM the packets that the peer has sent before, and then ends. When the
%% port ends, the guard logs the reason and ends, and the connection with it. The guard exchanges new keys for an
%% encrypted link (inet_rdma_keys).
-module(inet_rdma_link).

-behaviour(inet_rdma_settlement_way).
-behaviour(inet_rdma_link_guard).

-compile({no_auto_import, [statistics/1]}).

-export([config/1, reserve/0, open/5, close/1, fabric/1, port/1, start/3, tick/1, getstat/1]).
%% Used for the port of a session.
-export([command/2, command/3, counts/1, statistics/1, is_carried_by_queue/1, sealing/1, compression/1,
         round_trips/1, reason/1, why/1, is_usual/1]).
%% Used by the guard.
-export([guard/3, handle/2, carried/1, ended/1]).
-export_type([link/0]).

-include_lib("kernel/include/logger.hrl").

-record(link, {
    port :: port(),
    native :: inet_rdma_nif:link(),
    fabric :: binary(),
    is_encrypted :: boolean()
}).

%% State of the guard.
-record(guarded, {
    port :: port(),
    connection :: inet_rdma_bootstrap:t(),
    node :: binary(),
    fabric :: binary(),
    native :: inet_rdma_nif:link(),
    keys :: inet_rdma_keys:t()
}).

-opaque link() :: #link{}.

%% Stands for a number that is unknown; native/port/src/numbers.rs has the same.
-define(UNKNOWN, <<16#ffffffffffffffff:64>>).

%% Commands of the port; native/port/src/commands.rs has the same numbers.
command_number(carry) -> 1;
command_number(start) -> 2;
command_number(tick) -> 3;
command_number(packets) -> 4;
command_number(peer_gone) -> 5;
command_number(watch) -> 6;
command_number(adopt) -> 7;
command_number(move) -> 8;
command_number(suspend) -> 9;
command_number(resume) -> 10;
command_number(prove) -> 11;
command_number(verify) -> 12;
command_number(attempt) -> 13;
command_number(control) -> 14;
command_number(socket) -> 16;
command_number(drop) -> 17;
command_number(release) -> 18;
command_number(counts) -> 19;
command_number(return) -> 20;
command_number(abandon) -> 21;
command_number(attach) -> 22;
command_number(sealing) -> 23;
command_number(compression) -> 24;
command_number(ask) -> 25;
command_number(round_trips) -> 26.

-type command() :: carry | start | tick | packets | peer_gone | watch | adopt | move | suspend | resume | prove | verify
                 | attempt | control | socket | drop | release | counts | return | abandon
                 | attach | sealing | compression | ask | round_trips.

%% The options for the queue pair of a link. It has no landing buffers: the VM copies the fragments of a large message
%% when it joins them, wherever they lie.
-spec config(inet_rdma_options:config()) -> inet_rdma_options:config().
config(Config) -> Config#{mode := dynamic, landing_buffers := 0}.

%% A port for open/5. Err: the VM has no port left, or the driver is gone.
-spec reserve() -> {ok, port()} | {error, inet_rdma:reason()}.
reserve() ->
    try {ok, open_port({spawn_driver, inet_rdma_nif:driver()}, [])}
    catch error:Reason -> {error, {system, opening_a_port, Reason}}
    end.

%% Gives a port that was reserved, and is linked to the caller, the queue pair of an attempt. The port reads nothing
%% from the queue pair before start/3. Err: the port is closed. waiting: the outcome is not there yet.
-spec open(port(), inet_rdma_nif:attempt(), Node :: binary(), inet_rdma_options:config(), inet_rdma_nif:protection()) ->
          {ok, link(), Why :: binary()} | waiting | {error, inet_rdma:reason()}.
open(Port, Attempt, Node, Config, Protection) ->
    case inet_rdma_nif:link(Attempt, Node, Config, Protection) of
        {ok, Native, Id, Fabric, Why} ->
            _ = command(Port, carry, <<Id:64/native, 0:64>>),
            {ok, #link{port = Port, native = Native, fabric = Fabric, is_encrypted = Protection =/= none}, Why};
        waiting ->
            waiting;
        Error ->
            close(Port),
            Error
    end.

%% Gives up a link that was opened, or a port that was reserved.
-spec close(link() | port()) -> ok.
close(#link{port = Port}) ->
    close(Port);
close(Port) ->
    unlink(Port),
    try port_close(Port)
    catch error:badarg -> true
    end,
    ok.

-spec fabric(link()) -> binary().
fabric(#link{fabric = Fabric}) -> Fabric.

-spec port(link()) -> port().
port(#link{port = Port}) -> Port.

%% The VM knows the link: packets may come. The caller owns the connection.
-spec start(link(), inet_rdma_bootstrap:t(), binary()) -> ok | {error, term()}.
start(#link{port = Port, native = Native, fabric = Fabric, is_encrypted = IsEncrypted}, Connection, Node) ->
    Guarded = #guarded{port = Port, connection = Connection, node = Node, fabric = Fabric, native = Native,
                       keys = inet_rdma_keys:new({link, Native}, IsEncrypted)},
    Guard = spawn(?MODULE, guard, [Port, Connection, inet_rdma_link_guard:new(?MODULE, Port, Node, Guarded)]),
    case inet_rdma_bootstrap:give(Connection, Guard) of
        ok ->
            Guard ! {self(), start},
            ok_or_closed(command(Port, start));
        Error ->
            exit(Guard, kill),
            Error
    end.

%% Sends a sign of life, ahead of all packets that wait. If the port has ended the supervisor gets its exit signal.
-spec tick(link() | port()) -> ok | {error, closed}.
tick(#link{port = Port}) -> tick(Port);
tick(Port) -> ok_or_closed(command(Port, tick)).

%% Packets received, packets sent, and bytes that wait.
-spec getstat(link() | port()) -> {ok, non_neg_integer(), non_neg_integer(), non_neg_integer()} | {error, closed}.
getstat(#link{port = Port}) ->
    getstat(Port);
getstat(Port) ->
    case command(Port, packets) of
        {ok, <<Received:64/native, Sent:64/native, Queued:64/native>>} -> {ok, Received, Sent, Queued};
        Error -> Error
    end.

%% What the port of a link has counted, over all paths that the link had: keys of inet_rdma:info/1 of origin port.
-spec counts(port()) -> {ok, #{atom() => number()}} | {error, closed}.
counts(Port) ->
    case numbers(Port, counts) of
        {ok, Numbers} -> {ok, maps:with(inet_rdma_counts:keys(port), Numbers)};
        Error -> Error
    end.

%% All that the port has counted, and what carries its session. bytes_*: over all paths, with the lengths of packets.
-spec statistics(port()) -> {ok, #{atom() => number() | boolean()}} | {error, closed}.
statistics(Port) ->
    case numbers(Port, counts) of
        {ok, #{has_tcp := HasTcp, carried_by_queue := ByQueue} = Numbers} ->
            {ok, Numbers#{has_tcp := HasTcp =:= 1, carried_by_queue := ByQueue =:= 1}};
        Error ->
            Error
    end.

%% Tells whether a queue pair carries the session of the port.
-spec is_carried_by_queue(port()) -> boolean().
is_carried_by_queue(Port) ->
    case statistics(Port) of
        {ok, #{carried_by_queue := IsCarried}} -> IsCarried;
        {error, closed} -> false
    end.

%% How its TCP connection is encrypted: the keys of inet_rdma:info/1.
-spec sealing(port()) -> #{atom() => atom() | number()}.
sealing(Port) ->
    case numbers(Port, sealing) of
        {ok, #{cipher := Cipher} = Numbers} -> Numbers#{cipher := inet_rdma_offer:cipher(Cipher)};
        {ok, #{}} -> #{cipher => none};
        {error, closed} -> #{}
    end.

%% What compression has done over its TCP connection: the keys of inet_rdma:info/1.
-spec compression(port()) -> #{atom() => number()}.
compression(Port) ->
    numbers_or_none(Port, compression).

%% Round trips over its TCP connection: the keys of inet_rdma:info/1. Nothing where none was measured.
-spec round_trips(port()) -> #{atom() => number()}.
round_trips(Port) ->
    numbers_or_none(Port, round_trips).

numbers_or_none(Port, Command) ->
    case numbers(Port, Command) of
        {ok, Numbers} -> Numbers;
        {error, closed} -> #{}
    end.

%% The numbers that a command answers, by their keys. The native library says which they are.
numbers(Port, Command) ->
    {Command, Keys} = lists:keyfind(Command, 1, inet_rdma_nif:link_numbers()),
    numbers(Port, Command, 0, Keys, []).

numbers(_Port, _Command, _First, [], Read) ->
    {ok, maps:from_list(Read)};
numbers(Port, Command, First, Keys, Read) ->
    case command(Port, Command, <<First>>) of
        {ok, <<>>} ->
            {ok, #{}};
        {ok, Bytes} ->
            Answered = byte_size(Bytes) div 8,
            {Now, Later} = lists:split(Answered, Keys),
            numbers(Port, Command, First + Answered, Later, number_list(Now, Bytes) ++ Read);
        Error ->
            Error
    end.

number_list([Key | Keys], <<Bits:8/binary, Rest/binary>>) ->
    [{Key, number(inet_rdma_counts:kind(Key), Bits)} || Bits =/= ?UNKNOWN] ++ number_list(Keys, Rest);
number_list([], <<>>) ->
    [].

number(float, <<Number:64/native-float>>) -> Number;
number(_Kind, <<Number:64/native>>) -> Number.

%% Gives the port a command; returns its answer. closed: the port is closed, or does not take the command now.
-spec command(port(), command()) -> {ok, binary()} | {error, closed}.
command(Port, Command) -> command(Port, Command, []).

-spec command(port(), command(), iodata()) -> {ok, binary()} | {error, closed}.
command(Port, Command, Argument) ->
    try {ok, iolist_to_binary(port_control(Port, command_number(Command), Argument))}
    catch error:badarg -> {error, closed}
    end.

ok_or_closed({ok, _}) -> ok;
ok_or_closed(Error) -> Error.

-spec guard(port(), inet_rdma_bootstrap:t(), inet_rdma_link_guard:t()) -> ok.
guard(Port, Connection, Guard) ->
    _ = monitor(port, Port),
    receive
        {Supervisor, start} when is_pid(Supervisor) ->
            _ = inet_rdma_bootstrap:watch(Connection),
            _ = command(Port, watch),
            inet_rdma_link_guard:run(Guard);
        {'DOWN', _, port, Port, Exit} ->
            inet_rdma_link_guard:stop(Exit, Guard)
    end.

-spec handle(term(), #guarded{}) -> #guarded{}.
handle({'DOWN', _, process, _Sender, _}, Guarded) ->
    handled(gone, Guarded);
handle(Message, #guarded{connection = Connection, keys = Keys} = Guarded) ->
    handled(inet_rdma_keys:handle(Message, Keys, Connection), Guarded).

handled({ok, Keys}, Guarded) ->
    Guarded#guarded{keys = Keys};
handled({changed, Keys}, #guarded{port = Port} = Guarded) ->
    %% A tick shows the peer that this side seals with another key.
    _ = command(Port, tick),
    Guarded#guarded{keys = Keys};
handled(gone, #guarded{port = Port} = Guarded) ->
    _ = command(Port, peer_gone),
    Guarded;
handled(unknown, Guarded) ->
    Guarded;
handled({error, Why}, #guarded{port = Port, node = Node, fabric = Fabric} = Guarded) ->
    Event = inet_rdma_link_event:new(down, Node, Fabric, Why),
    ok = inet_rdma_link_event:record(Event, #{}),
    ?LOG_WARNING("inet_rdma: the link to ~ts ends: ~ts", [Node, Why], inet_rdma_link_event:metadata(Event)),
    exit(Port, connection_closed),
    Guarded.

-spec carried(#guarded{}) -> {Fabric :: binary(), event}.
carried(#guarded{fabric = Fabric}) -> {Fabric, event}.

-spec ended(#guarded{}) -> {inet_rdma:reason() | unknown, Why :: binary(), IsUsual :: boolean()}.
ended(#guarded{native = Native}) ->
    Reason = reason(Native),
    {Reason, why(Reason), is_usual(Reason)}.

%% Tells whether a link usually ends for this reason, so that the log needs no line.
-spec is_usual(inet_rdma:reason() | unknown) -> boolean().
is_usual(Reason) -> lists:member(Reason, [closed, peer_gone, unknown]).

-spec why(inet_rdma:reason() | unknown) -> binary().
why(unknown) -> <<"its port was closed">>;
why(Reason) -> unicode:characters_to_binary(inet_rdma:format_error(Reason)).

%% The reason for which a queue pair's connection has ended; unknown after inet_rdma_nif was loaded anew, as the old
%% term is not valid then.
-spec reason(inet_rdma_nif:link()) -> inet_rdma:reason() | unknown.
reason(Native) ->
    try inet_rdma_nif:link_end(Native) of
        up -> unknown;
        Reason -> Reason
    catch
        error:badarg -> unknown
    end.

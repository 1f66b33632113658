%% Commands of a link's port; and links without a session, which began inside TLS, and which a queue pair carries.
%%
%% The guard of such a link (inet_rdma_link_guard) owns the connection on which the link began. When the connection
%% ends, the guard tells the port, which gives the VM the packets that the peer has sent before, and then ends. When the
%% port ends, the guard logs the reason and ends, and the connection with it. The guard exchanges new keys for an
%% encrypted link (inet_rdma_keys).
-module(inet_rdma_link).

-behaviour(inet_rdma_settlement_way).
-behaviour(inet_rdma_link_guard).

-compile({no_auto_import, [statistics/1]}).

-export([config/1, reserve/0, open/5, close/1, start/3, tick/1, getstat/1]).
%% Used for the port of a session.
-export([command/2, command/3, counts/1, statistics/1, is_carried_by_queue/1, sealing/1, compression/1,
         round_trips/1]).
%% Used by the guard.
-export([guard/3, handle/2, carried/1, ended/1]).

%% State of the guard.
-record(guarded, {
    port :: port(),
    connection :: inet_rdma_transport:t(),
    queue :: inet_rdma_queue:t(),
    keys :: inet_rdma_keys:t(),
    %% How the peer has broken the rules of keys.
    misbehaved = undefined :: binary() | undefined
}).

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

-spec config(inet_rdma_options:config()) -> inet_rdma_options:config().
config(Config) -> inet_rdma_queue:config(Config).

%% A port for open/5. Err: the VM has no port left, or the driver is gone.
-spec reserve() -> {ok, port()} | {error, inet_rdma:reason()}.
reserve() ->
    try {ok, open_port({spawn_driver, inet_rdma_nif:driver()}, [])}
    catch error:Reason -> {error, {system, opening_a_port, Reason}}
    end.

%% Gives a port that was reserved, and is linked to the caller, the queue pair of an attempt. The port reads nothing
%% from the queue pair before start/3. Err: the port is closed. waiting: the outcome is not there yet.
-spec open(port(), inet_rdma_nif:attempt(), Node :: binary(), inet_rdma_options:config(), inet_rdma_nif:protection()) ->
          {ok, inet_rdma_queue:t(), Why :: binary()} | waiting | {error, inet_rdma:reason()}.
open(Port, Attempt, Node, Config, Protection) ->
    case inet_rdma_queue:open(Port, 0, Attempt, Node, Config, Protection) of
        {error, Reason} ->
            close(Port),
            {error, Reason};
        Opened ->
            Opened
    end.

%% Gives up a link that was opened, or a port that was reserved.
-spec close(inet_rdma_queue:t() | port()) -> ok.
close(Port) when is_port(Port) ->
    unlink(Port),
    try port_close(Port)
    catch error:badarg -> true
    end,
    ok;
close(Link) ->
    close(inet_rdma_queue:port(Link)).

%% The VM knows the link: packets may come. The caller owns the connection.
-spec start(inet_rdma_queue:t(), inet_rdma_transport:t(), binary()) -> ok | {error, term()}.
start(Link, Connection, Node) ->
    Port = inet_rdma_queue:port(Link),
    Guarded = #guarded{port = Port, connection = Connection, queue = Link, keys = inet_rdma_queue:keys(Link)},
    Guard = spawn(?MODULE, guard, [Port, Connection, inet_rdma_link_guard:new(?MODULE, Port, Node, Guarded)]),
    case inet_rdma_transport:give(Connection, Guard) of
        ok ->
            Guard ! {self(), start},
            ok_or_closed(command(Port, start));
        Error ->
            exit(Guard, kill),
            Error
    end.

%% Sends a sign of life, ahead of all packets that wait. If the port has ended the supervisor gets its exit signal.
-spec tick(port()) -> ok | {error, closed}.
tick(Port) -> ok_or_closed(command(Port, tick)).

%% Packets received, packets sent, and bytes that wait.
-spec getstat(port()) -> {ok, non_neg_integer(), non_neg_integer(), non_neg_integer()} | {error, closed}.
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

-spec guard(port(), inet_rdma_transport:t(), inet_rdma_link_guard:t()) -> ok.
guard(Port, Connection, Guard) ->
    _ = monitor(port, Port),
    receive
        {Supervisor, start} when is_pid(Supervisor) ->
            _ = inet_rdma_transport:watch(Connection),
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
handled({error, Why}, #guarded{port = Port} = Guarded) ->
    exit(Port, connection_closed),
    Guarded#guarded{misbehaved = Why}.

-spec carried(#guarded{}) -> {Fabric :: binary(), event}.
carried(#guarded{queue = Queue}) -> {inet_rdma_queue:fabric(Queue), event}.

-spec ended(#guarded{}) -> {inet_rdma:reason() | unknown, Why :: binary(), IsUsual :: boolean()}.
ended(#guarded{misbehaved = undefined, queue = Queue}) -> inet_rdma_queue:ended(Queue);
ended(#guarded{misbehaved = Why}) -> {peer_misbehaved, Why, false}.

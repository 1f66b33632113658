%% The port of a link: its commands, and the numbers that it answers.
-module(inet_rdma_port).

-compile({no_auto_import, [statistics/1]}).

-export([open/0, reserve/1, close/1, is_link/1, start/1, tick/1, getstat/1, command/2, command/3]).
-export([prove/2, is_proof/3, suspend/2, with_socket/3]).
-export([counts/1, statistics/1, is_carried_by_queue/1, coding/1]).
%% Called by inet_rdma_bounded.
-export([use_socket/3]).

%% Stands for a number that is unknown; native/link/port/src/numbers.rs has the same.
-define(UNKNOWN, <<16#ffffffffffffffff:64>>).

%% Commands of the port; native/link/port/src/commands.rs has the same numbers.
command_number(carry) -> 1;
command_number(start) -> 2;
command_number(tick) -> 3;
command_number(packets) -> 4;
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
command_number(counts) -> 19;
command_number(return) -> 20;
command_number(abandon) -> 21;
command_number(attach) -> 22;
command_number(sealing) -> 23;
command_number(compression) -> 24;
command_number(suspicion) -> 25;
command_number(round_trips) -> 26;
command_number(open) -> 27;
command_number(reserve) -> 28;
command_number(release) -> 29;
command_number(lend) -> 30;
command_number(suspect) -> 31.

-type command() :: carry | start | tick | packets | watch | adopt | move | suspend | resume | prove | verify
                 | attempt | control | socket | drop | counts | return | abandon | attach | sealing | compression
                 | suspicion | round_trips | open | reserve | release | lend | suspect.

-type path_state() :: carried | suspected | suspended.

%% Opens a port, linked to the caller. error: the VM has no port left, or the driver is gone.
%%
%% Tools find the port of a link by the name that it has over inet_tcp, "tcp_inet", and ask it as a socket of inet: the
%% port answers (native/link/port/src/inet.rs). open_port/2 gives a port the name of its driver; only the driver can
%% open one with another name.
-spec open() -> {ok, port()} | {error, inet_rdma:reason()}.
open() ->
    try open_port({spawn_driver, inet_rdma_nif:driver()}, []) of
        Opener -> {ok, named(Opener, command(Opener, open))}
    catch error:Reason -> {error, {system, opening_a_port, Reason}}
    end.

named(Opener, {ok, <<1>>}) ->
    receive {'$inet_rdma', Opener, Port} -> ok end,
    ok = close(Opener),
    Port;
%% It was the VM's last port.
named(Opener, _None) ->
    Opener.

%% Tells whether a port is one of these: a socket of inet answers all commands with a refusal.
-spec is_link(port()) -> boolean().
is_link(Port) ->
    case command(Port, packets) of
        {ok, <<_Received:64, _Sent:64, _Queued:64>>} -> true;
        _ -> false
    end.

%% Keeps a descriptor for the TCP connection that the port will have: until it has that, or the command release.
-spec reserve(port()) -> ok | {error, closed | inet_rdma:reason()}.
reserve(Port) ->
    case command(Port, reserve) of
        {ok, <<1>>} -> ok;
        {ok, <<>>} -> {error, {system, opening_a_descriptor, emfile}};
        Error -> Error
    end.

%% Closes a port, and unlinks it from the caller.
-spec close(port()) -> ok.
close(Port) ->
    unlink(Port),
    try port_close(Port)
    catch error:badarg -> true
    end,
    ok.

%% The VM knows the link: packets may come.
-spec start(port()) -> ok | {error, closed}.
start(Port) -> ok_or_closed(command(Port, start)).

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
-spec statistics(port()) -> {ok, #{atom() => number() | boolean() | path_state()}} | {error, closed}.
statistics(Port) ->
    case numbers(Port, counts) of
        {ok, #{has_tcp := HasTcp, carried_by_queue := ByQueue} = Numbers} ->
            {ok, named_state(Numbers#{has_tcp := HasTcp =:= 1, carried_by_queue := ByQueue =:= 1})};
        Error ->
            Error
    end.

%% The VM may still have an earlier native library loaded, which does not answer it.
named_state(#{path_state := Number} = Numbers) ->
    Numbers#{path_state := lists:nth(Number + 1, inet_rdma_counts:path_states())};
named_state(Numbers) ->
    Numbers.

-spec is_carried_by_queue(port()) -> boolean().
is_carried_by_queue(Port) ->
    case statistics(Port) of
        {ok, #{carried_by_queue := IsCarried}} -> IsCarried;
        {error, closed} -> false
    end.

%% How its TCP connection is encrypted and compressed, and its round trips, if any was measured: keys of
%% inet_rdma:info/1.
-spec coding(port()) -> #{atom() => atom() | number()}.
coding(Port) ->
    Sealing = case numbers(Port, sealing) of
                  {ok, #{cipher := Cipher} = Numbers} -> [Numbers#{cipher := inet_rdma_offer:cipher(Cipher)}];
                  {ok, Numbers} -> [Numbers#{cipher => none}];
                  {error, closed} -> []
              end,
    Others = [Numbers || {ok, Numbers} <- [numbers(Port, Command) || Command <- [compression, round_trips]]],
    lists:foldl(fun maps:merge/2, #{}, Sealing ++ Others).

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

%% The session's proof of these bytes. Empty: the port is closed.
-spec prove(port(), iodata()) -> Proof :: binary().
prove(Port, Bytes) ->
    case command(Port, prove, Bytes) of
        {ok, Proof} -> Proof;
        {error, closed} -> <<>>
    end.

-spec is_proof(port(), Proof :: binary(), iodata()) -> boolean().
is_proof(Port, Proof, Bytes) -> command(Port, verify, [Proof, Bytes]) =:= {ok, <<1>>}.

%% Gives the TCP connection up for this attempt. The result is what this side has received, and its queue pair.
%% superseded: a newer attempt is under way, or the port is closed.
-spec suspend(port(), Attempt :: pos_integer()) ->
          {ok, Received :: non_neg_integer(), Path :: non_neg_integer()} | superseded.
suspend(Port, Attempt) ->
    case command(Port, suspend, <<Attempt:64/native>>) of
        {ok, <<Received:64/native, Path:64/native>>} -> {ok, Received, Path};
        _ -> superseded
    end.

%% The result of a function for a socket of inet, which has another descriptor of the TCP connection. A process of its
%% own calls the function: a caller that is killed leaves no descriptor behind, nor one that is closed while inet has
%% it. closed: there is no TCP connection. einval: the function has failed.
-spec with_socket(port(), inet_rdma_transport:driver(), Use :: fun((gen_tcp:socket()) -> Result)) ->
          Result | {error, closed | einval | inet:posix()}.
with_socket(Port, Driver, Use) ->
    case inet_rdma_bounded:call(?MODULE, use_socket, [Port, Driver, Use], infinity) of
        {ok, Result} -> Result;
        {exit, _Crash} -> {error, einval}
    end.

-spec use_socket(port(), inet_rdma_transport:driver(), fun((gen_tcp:socket()) -> Result)) ->
          Result | {error, closed | inet:posix()}.
use_socket(Port, Driver, Use) ->
    case command(Port, socket) of
        {ok, <<Fd:32/native>>} ->
            try use_descriptor(Driver, Fd, Use)
            after inet_rdma_nif:take_back(Fd)
            end;
        {error, closed} ->
            {error, closed}
    end.

%% Closing a socket that inet has made of a given descriptor leaves the descriptor open.
use_descriptor(Driver, Fd, Use) ->
    case Driver:fdopen(Fd, [{active, false}]) of
        {ok, Socket} ->
            try Use(Socket)
            after Driver:close(Socket)
            end;
        Error ->
            Error
    end.

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

%% The port of a link: its commands, and the numbers that it answers.
-module(inet_rdma_port).

-compile({no_auto_import, [statistics/1]}).

-export([open/0, reserve/1, close/1, is_link/1, start/1, tick/1, getstat/1, command/2, command/3]).
-export([prove/2, is_proof/3, give_up_tcp/2, with_socket/3]).
-export([counts/1, statistics/1, coding/1, attribution/1, queued/1]).
-export([first_standing/0, is_carried_by_queue/1, is_carried/1]).
%% Called by inet_rdma_bounded.
-export([use_socket/3]).
-export_type([standing/0, attribution/0, attributed/0, attributed_party/0]).

%% The number of all commands; native/link/port/src/commands.rs has the same.
-define(COMMAND, 16#72646d61).
%% Stands for a number that is unknown; native/link/port/src/numbers.rs has the same.
-define(UNKNOWN, <<16#ffffffffffffffff:64>>).

%% What carries a session, as the port tells its guard with each notice. A later library may say
%% more. number: counts the changes; a command that names another one is refused. state: whether the
%% path of this side's outgoing packets is there, and answers. path: that path. is_held: nothing may
%% be written over it. has_tcp: there is a TCP connection that may be written to. attempt: the
%% greatest number of an attempt to resume; 0: there was none.
-type standing() :: #{
    number := non_neg_integer(),
    state := carried | suspected | suspended,
    path := tcp | queue_pair | none,
    is_held := boolean(),
    has_tcp := boolean(),
    attempt := non_neg_integer(),
    atom() => term()
}.

%% Opens a port, linked to the caller. error: the VM has no port left, or the driver is gone.
%%
%% Tools find the port of a link by the name that it has over inet_tcp, "tcp_inet", and ask it as a
%% socket of inet: the port answers (native/link/port/src/inet.rs). open_port/2 gives a port the
%% name of its driver; only the driver can open one with another name.
-spec open() -> {ok, port()} | {error, inet_rdma:reason()}.
open() ->
    try open_port({spawn_driver, inet_rdma_nif:driver()}, []) of
        Opener -> {ok, named(Opener, command(Opener, open))}
    catch
        error:Reason -> {error, {system, opening_a_port, Reason}}
    end.

named(Opener, {ok, <<1>>}) ->
    receive
        {'$inet_rdma', Opener, Port} -> ok
    end,
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

%% Keeps a descriptor for the TCP connection that the port will have: until it has that, or the
%% command release.
-spec reserve(port()) -> ok | {error, closed | inet_rdma:reason()}.
reserve(Port) ->
    case command(Port, reserve) of
        {ok, <<1>>} -> ok;
        {ok, Errno} -> {error, {system, opening_a_descriptor, binary_to_atom(Errno)}};
        Error -> Error
    end.

%% Closes a port, and unlinks it from the caller.
-spec close(port()) -> ok.
close(Port) ->
    unlink(Port),
    try
        port_close(Port)
    catch
        error:badarg -> true
    end,
    ok.

%% The VM knows the link: packets may come.
-spec start(port()) -> ok | {error, closed}.
start(Port) -> ok_or_closed(command(Port, start)).

%% Sends a sign of life, ahead of all packets that wait. If the port has ended the supervisor gets
%% its exit signal.
-spec tick(port()) -> ok | {error, closed}.
tick(Port) -> ok_or_closed(command(Port, tick)).

%% Packets received, packets sent, and bytes that wait.
-spec getstat(port()) ->
    {ok, non_neg_integer(), non_neg_integer(), non_neg_integer()} | {error, closed}.
getstat(Port) ->
    case command(Port, packets) of
        {ok, <<Received:64/native, Sent:64/native, Queued:64/native>>} ->
            {ok, Received, Sent, Queued};
        Error ->
            Error
    end.

%% What the port of a link has counted, over all paths that the link had: keys of inet_rdma:info/1
%% of origin port.
-spec counts(port()) -> {ok, #{atom() => number()}} | {error, closed}.
counts(Port) ->
    case numbers(Port, counts) of
        {ok, Numbers} -> {ok, maps:with(inet_rdma_counts:keys(port), Numbers)};
        Error -> Error
    end.

%% All that the port has counted. bytes_*: over all paths, with the lengths of packets.
-spec statistics(port()) -> {ok, #{atom() => number()}} | {error, closed}.
statistics(Port) -> numbers(Port, counts).

%% Before the first notice.
-spec first_standing() -> standing().
first_standing() ->
    #{number => 0, state => carried, path => none, is_held => false, has_tcp => true, attempt => 0}.

%% Whether a queue pair takes what this side sends.
-spec is_carried_by_queue(standing()) -> boolean().
is_carried_by_queue(#{path := Path, is_held := IsHeld}) -> Path =:= queue_pair andalso not IsHeld.

%% Whether any path takes bytes.
-spec is_carried(standing()) -> boolean().
is_carried(#{has_tcp := HasTcp} = Standing) -> HasTcp orelse is_carried_by_queue(Standing).

%% How its TCP connection is encrypted and compressed, and its round trips, if any was measured:
%% keys of inet_rdma:info/1.
-spec coding(port()) -> #{atom() => atom() | number()}.
coding(Port) ->
    Sealing =
        case numbers(Port, sealing) of
            {ok, #{cipher := Cipher} = Numbers} ->
                [Numbers#{cipher := inet_rdma_offer:cipher(Cipher)}];
            {ok, Numbers} ->
                [Numbers#{cipher => none}];
            {error, closed} ->
                []
        end,
    Others = [
        Numbers
     || {ok, Numbers} <- [numbers(Port, Command) || Command <- [compression, round_trips]]
    ],
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
    [{Key, number(inet_rdma_counts:kind(Key), Bits)} || Bits =/= ?UNKNOWN] ++
        number_list(Keys, Rest);
number_list([], <<>>) ->
    [].

number(float, <<Number:64/native-float>>) -> Number;
number(_Kind, <<Number:64/native>>) -> Number.

%% Who sends over the link, and to whom, in both directions. Recent: bytes per second, of about the
%% last ten seconds. All: bytes since nodeup. Off: why the packets are not understood.
-type attribution() :: {Sent :: attributed(), Received :: attributed()}.
-type attributed() :: {
    Operations :: [{atom(), Messages :: non_neg_integer(), Bytes :: non_neg_integer()}],
    Recent :: heaviest(),
    All :: heaviest(),
    Off :: none | binary()
}.
-type heaviest() :: {
    Total :: float(),
    [
        {
            Operation :: atom(),
            Sender :: attributed_party(),
            Target :: attributed_party(),
            AtLeast :: float(),
            AtMost :: float()
        }
    ]
}.
-type attributed_party() :: pid() | {name | alias, atom()} | unknown | none.

%% none: the port does not count senders and targets.
-spec attribution(port()) -> {ok, attribution()} | none | {error, closed}.
attribution(Port) ->
    case command(Port, attribution) of
        {ok, <<1>>} ->
            receive
                {'$inet_rdma', Port, Term} when is_binary(Term) -> {ok, binary_to_term(Term)}
            end;
        {ok, <<>>} ->
            none;
        Error ->
            Error
    end.

%% The type of erlang:dist_get_stat/1 leaves out the atoms.
-dialyzer({no_match, queued/1}).

%% Bytes in the VM's own queue of the link to a node, ahead of its controller. unknown: some.
-spec queued(node()) -> non_neg_integer() | unknown | closed.
queued(Node) ->
    %% #connection{} of net_kernel: node, connection id, state.
    try erlang:dist_get_stat(ets:lookup_element(sys_dist, Node, 3)) of
        {ok, _Received, _Sent, false} -> 0;
        {ok, _Received, _Sent, true} -> unknown;
        {ok, _Received, _Sent, Bytes} -> Bytes
    catch
        error:_ -> closed
    end.

%% The session's proof of these bytes. Empty: the port is closed.
-spec prove(port(), iodata()) -> Proof :: binary().
prove(Port, Bytes) ->
    case command(Port, prove, Bytes) of
        {ok, Proof} -> Proof;
        {error, closed} -> <<>>
    end.

-spec is_proof(port(), Proof :: binary(), iodata()) -> boolean().
is_proof(Port, Proof, Bytes) -> command(Port, verify, [Proof, Bytes]) =:= {ok, <<1>>}.

%% Gives the TCP connection up for this attempt. The result is what this side has received, and its
%% queue pair. superseded: a newer attempt is under way, or the port is closed.
-spec give_up_tcp(port(), Attempt :: pos_integer()) ->
    {ok, Received :: non_neg_integer(), Queue :: non_neg_integer()} | superseded.
give_up_tcp(Port, Attempt) ->
    case command(Port, give_up_tcp, <<Attempt:64/native>>) of
        {ok, <<Received:64/native, Queue:64/native>>} -> {ok, Received, Queue};
        _ -> superseded
    end.

%% The result of a function for a socket of inet, which has another descriptor of the TCP
%% connection. A process of its own calls the function: a caller that is killed leaves no descriptor
%% open, nor one that is closed while inet has it. If the process table is full the caller itself
%% does. closed: there is no TCP connection. einval: the function has failed.
-spec with_socket(port(), inet_rdma_transport:driver(), Use :: fun((gen_tcp:socket()) -> Result)) ->
    Result | {error, closed | einval | inet:posix()}.
with_socket(Port, Driver, Use) ->
    case inet_rdma_bounded:call(?MODULE, use_socket, [Port, Driver, Use], infinity) of
        {ok, Result} ->
            Result;
        {exit, system_limit} ->
            try
                use_socket(Port, Driver, Use)
            catch
                _:_ -> {error, einval}
            end;
        {exit, _Crash} ->
            {error, einval}
    end.

-spec use_socket(port(), inet_rdma_transport:driver(), fun((gen_tcp:socket()) -> Result)) ->
    Result | {error, closed | inet:posix()}.
use_socket(Port, Driver, Use) ->
    case command(Port, socket) of
        {ok, <<Fd:32/native>>} ->
            try
                use_descriptor(Driver, Fd, Use)
            after
                inet_rdma_nif:take_back(Fd)
            end;
        {error, closed} ->
            {error, closed}
    end.

%% Closing a socket that inet has made of a given descriptor leaves the descriptor open.
use_descriptor(Driver, Fd, Use) ->
    case Driver:fdopen(Fd, [{active, false}]) of
        {ok, Socket} ->
            try
                Use(Socket)
            after
                Driver:close(Socket)
            end;
        Error ->
            Error
    end.

%% Gives the port a command; returns its answer. closed: the port is closed, or does not take the
%% command now.
-spec command(port(), inet_rdma_interface:command()) -> {ok, binary()} | {error, closed}.
command(Port, Command) -> command(Port, Command, []).

-spec command(port(), inet_rdma_interface:command(), iodata()) -> {ok, binary()} | {error, closed}.
command(Port, Command, Argument) ->
    Name = atom_to_binary(Command),
    try
        {ok, iolist_to_binary(port_control(Port, ?COMMAND, [byte_size(Name), Name, Argument]))}
    catch
        error:badarg -> {error, closed}
    end.

ok_or_closed({ok, _}) -> ok;
ok_or_closed(Error) -> Error.

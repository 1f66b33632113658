%% Streams of numbered messages between processes of two nodes: each receiver checks that its
%% senders' messages are all there, in order and whole. Runs in the nodes under test.
-module(inet_rdma_test_stream).

-export([receiver/3, sender/4, senders/5, has_async_dist/0, async_sender/4, progress/1, await/2]).
-export([send_and_then/5]).
%% For the test itself.
-export([receiver_at/3]).
-export_type([kind/0]).

%% Sizes of the messages of a stream. small: up to 100 bytes. medium: up to 4 KB. mixed: up to 200
%% KB, with new atoms. bulk: large enough to count as bulk. {bytes, Bytes}: all of this size.
-type kind() :: small | medium | mixed | bulk | {bytes, non_neg_integer()}.

-define(MASTER_BYTES, 1048576).

%% Starts a process, registered as `Name', that expects `Count' messages from each of the senders.
-spec receiver(atom(), pos_integer(), pos_integer()) -> pid().
receiver(Name, Senders, Count) ->
    {Pid, ok} = inet_rdma_test_ask:start(fun() ->
        true = register(Name, self()),
        {ok, fun() ->
            receive_loop(#{left => Senders, count => Count, next => #{}, bytes => 0, failed => none})
        end}
    end),
    Pid.

%% `{done, Bytes}', `{running, NextBySender}' or `{failed, Why}'.
-spec progress(atom()) -> {done, non_neg_integer()} | {running, map()} | {failed, term()}.
progress(Name) -> inet_rdma_test_ask:ask(whereis(Name), progress).

%% Waits until all messages have come. Returns the number of bytes. Fails at once on a wrong
%% message.
-spec await(atom(), non_neg_integer()) -> non_neg_integer().
await(Name, TimeoutMs) ->
    Outcome = inet_rdma_test_wait:until({all_received, Name}, TimeoutMs, fun() ->
        case progress(Name) of
            {running, _} = Running -> Running;
            Ended -> {ok, Ended}
        end
    end),
    case Outcome of
        {done, Bytes} -> Bytes;
        {failed, Why} -> error({stream_broken, Name, Why})
    end.

receive_loop(#{left := Left, next := Next, failed := Failed} = State) ->
    receive
        {progress, From, Ref} ->
            From ! {Ref, progress_of(Left, Next, Failed, State)},
            receive_loop(State);
        {stream, Sender, Number, Payload, Crc, Atom, Text} ->
            receive_loop(take(Sender, Number, Payload, Crc, Atom =:= binary_to_atom(Text), State))
    end.

progress_of(0, _Next, none, #{bytes := Bytes}) -> {done, Bytes};
progress_of(_Left, Next, none, _State) -> {running, Next};
progress_of(_Left, _Next, Failed, _State) -> {failed, Failed}.

take(_Sender, _Number, _Payload, _Crc, _AtomIsRight, #{failed := Failed} = State) when
    Failed =/= none
->
    State;
take(Sender, Number, Payload, Crc, AtomIsRight, #{next := Next, count := Count} = State) ->
    Due = maps:get(Sender, Next, 0),
    case {Number, erlang:crc32(Payload), AtomIsRight} of
        {Due, Crc, true} ->
            Left =
                maps:get(left, State) -
                    (if
                        Due + 1 =:= Count -> 1;
                        true -> 0
                    end),
            Bytes = maps:get(bytes, State) + byte_size(Payload),
            State#{next := Next#{Sender => Due + 1}, left := Left, bytes := Bytes};
        {Due, _, true} ->
            State#{failed := {damaged, Sender, Number, byte_size(Payload)}};
        {Due, _, false} ->
            State#{failed := {wrong_atom, Sender, Number}};
        _ ->
            State#{failed := {out_of_order, Sender, {due, Due}, {got, Number}}}
    end.

%% Starts the senders; each sends `Count' messages to the receiver.
-spec senders(node(), atom(), kind(), pos_integer(), pos_integer()) -> [pid()].
senders(Node, Name, Kind, Senders, Count) ->
    [sender(Node, Name, Kind, Count) || _ <- lists:seq(1, Senders)].

-spec sender(node(), atom(), kind(), pos_integer()) -> pid().
sender(Node, Name, Kind, Count) ->
    spawn(fun() ->
        Master = rand:bytes(?MASTER_BYTES),
        send_loop({Name, Node}, Kind, 0, Count, Master)
    end).

-spec has_async_dist() -> boolean().
has_async_dist() ->
    try process_flag(async_dist, true) of
        _ -> true
    catch
        error:badarg -> false
    end.

%% A sender whose messages wait in memory while the connection is busy.
-spec async_sender(node(), atom(), kind(), pos_integer()) -> pid().
async_sender(Node, Name, Kind, Count) ->
    spawn(fun() ->
        _ = process_flag(async_dist, true),
        send_loop({Name, Node}, Kind, 0, Count, rand:bytes(?MASTER_BYTES))
    end).

%% A sender that calls a function when it has sent all messages.
-spec send_and_then(node(), atom(), kind(), pos_integer(), {module(), atom(), [term()]}) -> ok.
send_and_then(Node, Name, Kind, Count, {Module, Function, Args}) ->
    _ = spawn(fun() ->
        send_loop({Name, Node}, Kind, 0, Count, rand:bytes(?MASTER_BYTES)),
        apply(Module, Function, Args)
    end),
    ok.

send_loop(_To, _Kind, Count, Count, _Master) ->
    ok;
send_loop(To, Kind, Number, Count, Master) ->
    Size = size_of(Kind, Number),
    Payload = binary:part(Master, rand:uniform(?MASTER_BYTES - Size + 1) - 1, Size),
    Text = text_of(Kind, Number),
    To ! {stream, self(), Number, Payload, erlang:crc32(Payload), binary_to_atom(Text), Text},
    send_loop(To, Kind, Number + 1, Count, Master).

size_of({bytes, Bytes}, _Number) ->
    Bytes;
size_of(small, _Number) ->
    rand:uniform(101) - 1;
size_of(medium, _Number) ->
    rand:uniform(4097) - 1;
size_of(bulk, _Number) ->
    60000 + rand:uniform(140000);
size_of(mixed, Number) ->
    %% Runs of small ones between single large ones, so that the kinds of transfer change often.
    case Number rem 16 of
        0 -> size_of(bulk, Number);
        5 -> size_of(medium, Number);
        9 -> 16384 + rand:uniform(3) - 2;
        _ -> size_of(small, Number)
    end.

%% New atoms go through the atom cache; 2,500 of them turn it over.
text_of(mixed, Number) -> <<"inet_rdma_test_atom_", (integer_to_binary(Number rem 2500))/binary>>;
text_of(_Kind, _Number) -> <<"inet_rdma_test_atom">>.

%% Starts a receiver at a node. Returns its name.
-spec receiver_at(inet_rdma_test_node:t(), pos_integer(), pos_integer()) -> atom().
receiver_at(Node, Senders, Count) ->
    Name = list_to_atom(inet_rdma_test_node:unique("receiver")),
    _ = inet_rdma_test_node:call(Node, ?MODULE, receiver, [Name, Senders, Count], 120000),
    Name.

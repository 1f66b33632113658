%% Floods processes of another node with small messages. Runs in the nodes under test.
-module(inet_rdma_test_flood).

-export([run/3, shared/3, shared/4]).
%% Spawned in the other node.
-export([sink/3]).

%% Sends this number of messages of 1 KB to each of the receivers, which run before processes that
%% compute. Returns the longest mailbox that one of them has had.
-spec run(node(), pos_integer(), pos_integer()) -> non_neg_integer().
run(Node, Receivers, Count) ->
    Sinks = [
        spawn_opt(Node, ?MODULE, sink, [self(), Count, 0], [
            link, {priority, high}, {message_queue_data, off_heap}
        ])
     || _ <- lists:seq(1, Receivers)
    ],
    Body = binary:copy(<<"k">>, 1024),
    [sender(Sink, Body, Count) || Sink <- Sinks],
    lists:max([
        receive
            {Sink, Most} -> Most
        end
     || Sink <- Sinks
    ]).

%% The same for one receiver, of no priority: it gets this number of messages of 10 bytes from each
%% of the senders.
-spec shared(node(), pos_integer(), pos_integer()) -> non_neg_integer().
shared(Node, Senders, Count) ->
    shared(Node, Senders, Count, 0).

%% The same for a receiver that uses this number of reductions for each message.
-spec shared(node(), pos_integer(), pos_integer(), non_neg_integer()) -> non_neg_integer().
shared(Node, Senders, Count, Work) ->
    Options = [link, {message_queue_data, off_heap}],
    Sink = spawn_opt(Node, ?MODULE, sink, [self(), Senders * Count, Work], Options),
    [sender(Sink, <<"0123456789">>, Count) || _ <- lists:seq(1, Senders)],
    receive
        {Sink, Most} -> Most
    end.

sender(Sink, Body, Count) -> spawn_link(fun() -> [Sink ! Body || _ <- lists:seq(1, Count)] end).

-spec sink(pid(), pos_integer(), non_neg_integer()) -> {pid(), non_neg_integer()}.
sink(Caller, Count, Work) -> sink(Caller, Count, Work, 0).

sink(Caller, 0, _Work, Most) ->
    Caller ! {self(), Most};
sink(Caller, Left, Work, Most) when Left rem 1000 =:= 0 ->
    {message_queue_len, Waiting} = process_info(self(), message_queue_len),
    take(Caller, Left, Work, max(Most, Waiting));
sink(Caller, Left, Work, Most) ->
    take(Caller, Left, Work, Most).

take(Caller, Left, Work, Most) ->
    receive
        <<_/binary>> ->
            work(Work),
            sink(Caller, Left - 1, Work, Most)
    end.

work(0) -> ok;
work(Left) -> work(Left - 1).

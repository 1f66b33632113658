%% Floods processes of another node with small messages. Runs in the nodes under test.
-module(inet_rdma_test_flood).

-export([run/3]).
%% Spawned in the other node.
-export([sink/2]).

%% Sends this number of messages of 1 KB to each of the receivers, which run before processes that compute. Returns the
%% longest mailbox that one of them has had.
-spec run(node(), pos_integer(), pos_integer()) -> non_neg_integer().
run(Node, Receivers, Count) ->
    Sinks = [
        spawn_opt(Node, ?MODULE, sink, [self(), Count], [link, {priority, high}, {message_queue_data, off_heap}])
     || _ <- lists:seq(1, Receivers)
    ],
    Body = binary:copy(<<"k">>, 1024),
    [spawn_link(fun() -> [Sink ! Body || _ <- lists:seq(1, Count)] end) || Sink <- Sinks],
    lists:max([receive {Sink, Most} -> Most end || Sink <- Sinks]).

-spec sink(pid(), pos_integer()) -> {pid(), non_neg_integer()}.
sink(Caller, Count) -> sink(Caller, Count, 0).

sink(Caller, 0, Most) ->
    Caller ! {self(), Most};
sink(Caller, Left, Most) when Left rem 1000 =:= 0 ->
    {message_queue_len, Waiting} = process_info(self(), message_queue_len),
    take(Caller, Left, max(Most, Waiting));
sink(Caller, Left, Most) ->
    take(Caller, Left, Most).

take(Caller, Left, Most) ->
    receive
        <<_/binary>> -> sink(Caller, Left - 1, Most)
    end.

%% Writes to Mnesia without a pause, and remembers what was acknowledged. Runs in the node under
%% test.
-module(inet_rdma_test_writer).

-export([start/2, count/1, stop/1]).

-define(TIMEOUT_MS, 60000).

%% Each transaction writes one key {Series, N} to all of these tables, N from 1.
-spec start([atom()], term()) -> {pid(), ok}.
start(Tables, Series) ->
    {spawn(fun() -> loop(Tables, Series, 1, []) end), ok}.

%% Acknowledged writes so far.
-spec count(pid()) -> non_neg_integer().
count(Writer) -> ask(Writer, count).

%% Ends the writer after its current write; the keys that were acknowledged.
-spec stop(pid()) -> [term()].
stop(Writer) -> ask(Writer, stop).

ask(Writer, What) ->
    Ref = monitor(process, Writer),
    Writer ! {What, self(), Ref},
    receive
        {Ref, Answer} ->
            demonitor(Ref, [flush]),
            Answer;
        {'DOWN', Ref, process, Writer, Reason} ->
            error({writer_is_dead, Reason})
    after ?TIMEOUT_MS -> error(writer_is_stuck)
    end.

loop(Tables, Series, Number, Written) ->
    receive
        {count, From, Ref} ->
            From ! {Ref, length(Written)},
            loop(Tables, Series, Number, Written);
        {stop, From, Ref} ->
            From ! {Ref, Written}
    after 0 ->
        loop(Tables, Series, Number + 1, write(Tables, {Series, Number}) ++ Written)
    end.

%% A transaction that meets the end of another node may abort: such a write is not acknowledged.
write(Tables, Key) ->
    Write = fun() ->
        [ok = mnesia:write({Table, Key, node()}) || Table <- Tables],
        ok
    end,
    case mnesia:transaction(Write) of
        {atomic, ok} -> [Key];
        {aborted, _} -> []
    end.

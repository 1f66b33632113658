%% A writer of Mnesia's transactions in a node, which notes too what Mnesia says of other nodes.
%% Runs in the nodes under test.
-module(inet_rdma_test_mnesia).

-export([start/1, stop/1]).
-export_type([figures/0]).

%% written: transactions, each with a key {node(), Number} of its own. events: mnesia_down,
%% inconsistent_database and the like.
-type figures() :: #{written := non_neg_integer(), failed := [term()], events := [term()]}.

-define(ANSWER_MS, 50000).

%% Mnesia runs.
-spec start(Table :: atom()) -> pid().
start(Table) ->
    spawn(fun() ->
        {ok, _} = mnesia:subscribe(system),
        write(Table, #{written => 0, failed => [], events => []})
    end).

%% After the transaction that is under way.
-spec stop(pid()) -> figures().
stop(Writer) ->
    Ref = monitor(process, Writer),
    Writer ! {stop, self(), Ref},
    receive
        {Ref, Figures} ->
            demonitor(Ref, [flush]),
            Figures;
        {'DOWN', Ref, process, Writer, Reason} ->
            error({writer_ended, Reason})
    after ?ANSWER_MS -> error(writer_does_not_answer)
    end.

write(Table, #{written := Written, failed := Failed, events := Events} = Figures) ->
    receive
        {stop, From, Ref} ->
            From ! {Ref, Figures};
        {mnesia_system_event, Event} ->
            write(Table, Figures#{events := [Event | Events]})
    after 0 ->
        case
            mnesia:sync_transaction(fun() -> mnesia:write({Table, {node(), Written}, Written}) end)
        of
            {atomic, ok} -> write(Table, Figures#{written := Written + 1});
            Error -> write(Table, Figures#{failed := [Error | Failed]})
        end
    end.

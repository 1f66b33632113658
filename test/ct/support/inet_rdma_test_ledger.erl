%% Processes that write to a table of Mnesia and remember what was confirmed, and what Mnesia said
%% meanwhile. Runs in the nodes under test.
-module(inet_rdma_test_ledger).

-export([start/2, stop/2]).
-export_type([figures/0]).

%% events: of Mnesia, but those of tables and of overload.
-type figures() :: #{confirmed := [term()], failed := [term()], events := [term()]}.

-spec start(Table :: atom(), Writers :: pos_integer()) -> pid().
start(Table, Count) ->
    {Ledger, ok} = inet_rdma_test_ask:start(fun() ->
        {ok, _} = mnesia:subscribe(system),
        Self = self(),
        Writers = [
            spawn_link(fun() -> write(Self, Table, 1, [], []) end)
         || _ <- lists:seq(1, Count)
        ],
        {ok, fun() -> collect(Writers) end}
    end),
    Ledger.

%% When the writes that are under way have ended.
-spec stop(pid(), timeout()) -> figures().
stop(Ledger, TimeoutMs) ->
    Ref = monitor(process, Ledger),
    Ledger ! {stop, self(), Ref},
    receive
        {Ref, Figures} ->
            demonitor(Ref, [flush]),
            Figures;
        {'DOWN', Ref, process, _, Reason} ->
            error({ledger_ended, Reason})
    after TimeoutMs -> error(writes_do_not_end)
    end.

collect(Writers) ->
    receive
        {stop, From, Ref} ->
            [Writer ! stop || Writer <- Writers],
            Written = [
                receive
                    {Writer, Confirmed, Failed} -> {Confirmed, Failed}
                end
             || Writer <- Writers
            ],
            {Confirmed, Failed} = lists:unzip(Written),
            From !
                {Ref, #{
                    confirmed => lists:append(Confirmed),
                    failed => lists:append(Failed),
                    events => events()
                }}
    end.

events() ->
    receive
        {mnesia_system_event, {mnesia_overload, _}} -> events();
        {mnesia_system_event, Event} -> [Event | events()]
    after 0 -> []
    end.

write(Ledger, Table, Number, Confirmed, Failed) ->
    receive
        stop -> Ledger ! {self(), Confirmed, Failed}
    after 0 ->
        Key = {node(), self(), Number},
        case inet_rdma_test_remote:write_to_table(Table, Key) of
            {atomic, ok} -> write(Ledger, Table, Number + 1, [Key | Confirmed], Failed);
            {aborted, Reason} -> write(Ledger, Table, Number + 1, Confirmed, [Reason | Failed])
        end
    end.

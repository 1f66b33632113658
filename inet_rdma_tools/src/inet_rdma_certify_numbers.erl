%% Numbered messages from a process to one on another node, which counts what is missing, doubled,
%% late or damaged. The receiver lives on when the connection ends. Runs in the nodes of a
%% certificate and of tests.
-module(inet_rdma_certify_numbers).

-export([start/2, receiver/0]).
-export_type([kind/0, figures/0]).

%% How the messages of a sender are made: bytes of each, how many follow without a pause, pause
%% after these.
-type kind() :: #{
    bytes := {pos_integer(), pos_integer()}, burst := pos_integer(), pause_ms := non_neg_integer()
}.

-type figures() :: #{
    sent := non_neg_integer(),
    lost := non_neg_integer(),
    doubled := non_neg_integer(),
    reordered := non_neg_integer(),
    damaged := non_neg_integer(),
    breaks := non_neg_integer()
}.

-define(MASTER_BYTES, 1048576).
%% Longer than a link may be suspended.
-define(TIMEOUT_MS, 60000).

%% inet_rdma_certify_load:stop/2 ends the sender when the receiver has confirmed the last message.
%% Messages that are missing then are lost.
-spec start(node(), kind()) -> pid().
start(Peer, Kind) ->
    Caller = self(),
    Sender = spawn(fun() ->
        To = spawn(Peer, ?MODULE, receiver, []),
        Caller ! {self(), ready},
        loop(#{to => To, kind => Kind, master => rand:bytes(?MASTER_BYTES), next => 0, breaks => 0})
    end),
    receive
        {Sender, ready} -> Sender
    end.

loop(#{kind := #{burst := Burst, pause_ms := PauseMs}} = State) ->
    Sent = burst(rand:uniform(Burst), State),
    {Counts, #{next := Next, breaks := Breaks} = Confirmed} = confirm(Sent),
    receive
        {stop, From, Ref} ->
            exit(maps:get(to, State), kill),
            From ! {Ref, final(Counts, Next, Breaks)}
    after PauseMs ->
        loop(Confirmed)
    end.

burst(0, State) ->
    State;
burst(Left, #{to := To, next := Next, kind := #{bytes := {Least, Most}}, master := Master} = State) ->
    Payload = payload(Least + rand:uniform(Most - Least + 1) - 1, Master),
    To ! {numbered, Next, erlang:crc32(Payload), Payload},
    burst(Left - 1, State#{next := Next + 1}).

payload(Bytes, Master) when Bytes =< ?MASTER_BYTES ->
    binary:part(Master, rand:uniform(?MASTER_BYTES - Bytes + 1) - 1, Bytes);
payload(Bytes, Master) ->
    binary:part(binary:copy(Master, Bytes div ?MASTER_BYTES + 1), 0, Bytes).

%% Asks the receiver for its counts, again after the end of the connection.
confirm(#{to := To, breaks := Breaks} = State) ->
    Ref = monitor(process, To),
    To ! {counts, self(), Ref},
    receive
        {Ref, Counts} ->
            demonitor(Ref, [flush]),
            {Counts, State};
        {'DOWN', Ref, process, _, noconnection} ->
            receive
            after 20 -> ok
            end,
            confirm(State#{breaks := Breaks + 1});
        {'DOWN', Ref, process, _, Reason} ->
            error({receiver_died, Reason})
    after ?TIMEOUT_MS -> error(no_confirmation)
    end.

final({Due, Missing, Doubled, Reordered, Damaged}, Next, Breaks) ->
    #{
        sent => Next,
        lost => Next - Due + Missing,
        doubled => Doubled,
        reordered => Reordered,
        damaged => Damaged,
        breaks => Breaks
    }.

%% Runs on the other node.
-spec receiver() -> no_return().
receiver() -> receive_loop(0, #{}, 0, 0, 0).

%% `Missing' are the numbers that were passed over.
receive_loop(Due, Missing, Doubled, Reordered, Damaged) ->
    receive
        {numbered, Number, Crc, Payload} ->
            Wrong =
                case erlang:crc32(Payload) of
                    Crc -> 0;
                    _ -> 1
                end,
            if
                Number >= Due ->
                    Passed = maps:from_keys(lists:seq(Due, Number - 1), []),
                    receive_loop(
                        Number + 1, maps:merge(Missing, Passed), Doubled, Reordered, Damaged + Wrong
                    );
                is_map_key(Number, Missing) ->
                    receive_loop(
                        Due, maps:remove(Number, Missing), Doubled, Reordered + 1, Damaged + Wrong
                    );
                true ->
                    receive_loop(Due, Missing, Doubled + 1, Reordered, Damaged + Wrong)
            end;
        {counts, From, Ref} ->
            From ! {Ref, {Due, map_size(Missing), Doubled, Reordered, Damaged}},
            %% Lets go of a large message before the next.
            erlang:garbage_collect(),
            receive_loop(Due, Missing, Doubled, Reordered, Damaged)
    end.

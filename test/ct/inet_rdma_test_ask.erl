%% Questions to the processes of tests, which are loops of messages. Runs wherever those are used.
-module(inet_rdma_test_ask).

-export([ask/2]).

%% Sends {Question, self(), Ref}; the answer comes as {Ref, Answer}. Fails when the process ends instead.
-spec ask(pid(), Question :: term()) -> Answer :: term().
ask(Pid, Question) ->
    Ref = monitor(process, Pid),
    Pid ! {Question, self(), Ref},
    receive
        {Ref, Answer} -> demonitor(Ref, [flush]), Answer;
        {'DOWN', Ref, process, Pid, Reason} -> error({ended, Pid, Reason})
    end.

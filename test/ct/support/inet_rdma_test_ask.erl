%% Starts processes of tests that are loops of messages, and asks them. Runs in the node of the
%% process.
-module(inet_rdma_test_ask).

-export([start/1, ask/2]).

%% Starts a process. Begin runs in it and gives a value for the caller and the process's loop. Fails
%% at once, with the reason, when Begin fails.
-spec start(Begin :: fun(() -> {Value, Loop :: fun(() -> term())})) -> {pid(), Value}.
start(Begin) ->
    Caller = self(),
    {Pid, Ref} = spawn_monitor(fun() ->
        {Value, Loop} = Begin(),
        Caller ! {self(), Value},
        Loop()
    end),
    receive
        {Pid, Value} ->
            demonitor(Ref, [flush]),
            {Pid, Value};
        {'DOWN', Ref, process, Pid, Reason} ->
            error({did_not_start, Reason})
    end.

%% Sends {Question, self(), Ref}; the answer comes as {Ref, Answer}. Fails when the process ends
%% instead.
-spec ask(pid(), Question :: term()) -> Answer :: term().
ask(Pid, Question) ->
    Ref = monitor(process, Pid),
    Pid ! {Question, self(), Ref},
    receive
        {Ref, Answer} ->
            demonitor(Ref, [flush]),
            Answer;
        {'DOWN', Ref, process, Pid, Reason} ->
            error({ended, Pid, Reason})
    end.

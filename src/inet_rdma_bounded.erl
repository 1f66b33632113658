%% Calls that may take long, within a time limit.
-module(inet_rdma_bounded).

-export([call/4, tied_call/4]).
%% Spawned.
-export([answer/3, end_with/2]).

%% Calls a function in a process of its own. {exit, Reason}: it has failed. timeout: it has not answered in time, and
%% its process is killed.
-spec call(module(), atom(), [term()], timeout()) -> {ok, term()} | {exit, term()} | timeout.
call(Module, Function, Args, TimeoutMs) ->
    await(spawn_monitor(?MODULE, answer, [Module, Function, Args]), TimeoutMs).

%% The same for a caller that may be killed meanwhile: the function's process is killed, too.
-spec tied_call(module(), atom(), [term()], timeout()) -> {ok, term()} | {exit, term()} | timeout.
tied_call(Module, Function, Args, TimeoutMs) ->
    {Pid, _} = Process = spawn_monitor(?MODULE, answer, [Module, Function, Args]),
    %% Not by a link: the function's process may end by a link of its own, and the caller may trap exits.
    _ = spawn(?MODULE, end_with, [self(), Pid]),
    await(Process, TimeoutMs).

await({Pid, Ref}, TimeoutMs) ->
    receive {'DOWN', Ref, process, Pid, Exit} -> result(Exit)
    after TimeoutMs ->
        exit(Pid, kill),
        %% It may have answered before the signal.
        receive
            {'DOWN', Ref, process, Pid, killed} -> timeout;
            {'DOWN', Ref, process, Pid, Exit} -> result(Exit)
        end
    end.

result({?MODULE, Answer}) -> {ok, Answer};
result(Reason) -> {exit, Reason}.

-spec answer(module(), atom(), [term()]) -> no_return().
answer(Module, Function, Args) -> exit({?MODULE, apply(Module, Function, Args)}).

%% Kills the process if the caller of its function ends first.
-spec end_with(Caller :: pid(), pid()) -> ok.
end_with(Caller, Pid) ->
    _ = [monitor(process, Each) || Each <- [Caller, Pid]],
    receive
        {'DOWN', _, process, Caller, _} -> exit(Pid, kill), ok;
        {'DOWN', _, process, Pid, _} -> ok
    end.

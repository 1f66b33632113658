%% Calls that may take long, within a time limit.
-module(inet_rdma_bounded).

-export([call/4]).
%% Spawned.
-export([answer/3]).

%% Calls a function in a process of its own. {exit, Reason}: it has failed. timeout: it has not answered in time, and
%% its process is killed.
-spec call(module(), atom(), [term()], timeout()) -> {ok, term()} | {exit, term()} | timeout.
call(Module, Function, Args, TimeoutMs) ->
    {Pid, Ref} = spawn_monitor(?MODULE, answer, [Module, Function, Args]),
    receive
        {'DOWN', Ref, process, Pid, {?MODULE, Answer}} -> {ok, Answer};
        {'DOWN', Ref, process, Pid, Reason} -> {exit, Reason}
    after TimeoutMs ->
        exit(Pid, kill),
        demonitor(Ref, [flush]),
        timeout
    end.

-spec answer(module(), atom(), [term()]) -> no_return().
answer(Module, Function, Args) -> exit({?MODULE, apply(Module, Function, Args)}).

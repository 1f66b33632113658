%% Processes beside the links: calls that may take long, within a time limit, and others. Where the
%% process table is full the caller gets an error, and tries again later: no link ends.
-module(inet_rdma_bounded).

-export([call/4, tied_call/4, start/3, start_monitored/3, start_linked/3, has_room/0]).
%% Spawned.
-export([answer/3, end_with/2]).

%% Places in the process table that a new connection needs for its processes, those of TLS among
%% them, and for what others start meanwhile.
-define(PLACES, 32).

%% Calls a function in a process of its own. {exit, Reason}: it has failed; the reason is
%% system_limit if the process table is full. timeout: it has not answered in time, and its process
%% is killed.
-spec call(module(), atom(), [term()], timeout()) -> {ok, term()} | {exit, term()} | timeout.
call(Module, Function, Args, TimeoutMs) ->
    case start_monitored(?MODULE, answer, [Module, Function, Args]) of
        {ok, Process} -> await(Process, TimeoutMs);
        {error, system_limit} -> {exit, system_limit}
    end.

%% The same for a caller that may be killed meanwhile: the function's process is killed, too.
-spec tied_call(module(), atom(), [term()], timeout()) -> {ok, term()} | {exit, term()} | timeout.
tied_call(Module, Function, Args, TimeoutMs) ->
    case start_monitored(?MODULE, answer, [Module, Function, Args]) of
        {ok, {Pid, _} = Process} ->
            %% Not by a link: the function's process may end by a link of its own, and the caller
            %% may trap exits.
            case start(?MODULE, end_with, [self(), Pid]) of
                {ok, _} ->
                    await(Process, TimeoutMs);
                {error, system_limit} ->
                    _ = await(Process, 0),
                    {exit, system_limit}
            end;
        {error, system_limit} ->
            {exit, system_limit}
    end.

%% Whether a connection that begins now finds its places in the process table.
-spec has_room() -> boolean().
has_room() -> erlang:system_info(process_count) + ?PLACES =< erlang:system_info(process_limit).

%% As spawn/3: the process ends by itself.
-spec start(module(), atom(), [term()]) -> {ok, pid()} | {error, system_limit}.
start(Module, Function, Args) ->
    try
        {ok, spawn(Module, Function, Args)}
    catch
        error:system_limit -> {error, system_limit}
    end.

%% As spawn_monitor/3.
-spec start_monitored(module(), atom(), [term()]) ->
    {ok, {pid(), reference()}} | {error, system_limit}.
start_monitored(Module, Function, Args) ->
    try
        {ok, spawn_monitor(Module, Function, Args)}
    catch
        error:system_limit -> {error, system_limit}
    end.

%% As spawn_link/3.
-spec start_linked(module(), atom(), [term()]) -> {ok, pid()} | {error, system_limit}.
start_linked(Module, Function, Args) ->
    try
        {ok, spawn_link(Module, Function, Args)}
    catch
        error:system_limit -> {error, system_limit}
    end.

await({Pid, Ref}, TimeoutMs) ->
    receive
        {'DOWN', Ref, process, Pid, Exit} -> result(Exit)
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
        {'DOWN', _, process, Caller, _} ->
            exit(Pid, kill),
            ok;
        {'DOWN', _, process, Pid, _} ->
            ok
    end.

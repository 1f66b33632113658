%% Which processes have made keys of a settlement, and whether they have collected their heaps
%% since. Runs in the node under test.
-module(inet_rdma_test_keys).

-export([trace/0, holders/1]).

%% Traces the processes that are spawned from now on.
-spec trace() -> pid().
trace() ->
    Caller = self(),
    Tracer = spawn(fun() ->
        _ = erlang:trace(new_processes, true, [call, garbage_collection]),
        {module, Module} = code:ensure_loaded(inet_rdma_settlement_queue),
        1 = erlang:trace_pattern({Module, key, 1}, true, [global]),
        Caller ! {self(), traces},
        collect(#{})
    end),
    receive
        {Tracer, traces} -> Tracer
    end.

collect(Last) ->
    receive
        {trace, Pid, call, _} ->
            collect(Last#{Pid => key});
        {trace, Pid, gc_major_end, _} when is_map_key(Pid, Last) ->
            collect(Last#{Pid => collected});
        {holders, Asker} ->
            Asker ! {self(), maps:to_list(Last)},
            collect(Last);
        _ ->
            collect(Last)
    end.

%% The processes that live and have made a key, with what came last.
-spec holders(pid()) -> [{pid(), key | collected}].
holders(Tracer) ->
    Tracer ! {holders, self()},
    receive
        {Tracer, Holders} -> [Holder || {Pid, _} = Holder <- Holders, is_process_alive(Pid)]
    end.

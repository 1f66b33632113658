%% The loop of sleepers. A sleeper is a process that hibernates after each message: it takes little
%% memory, and keeps no reference to the code of these modules, which may be loaded again meanwhile.
%% A kind of sleeper is a module with the callback: the processes beside net_kernel, and the guard
%% of a stream that began inside TLS.
-module(inet_rdma_sleeper).

-export([run/2, tell/2]).
%% Called by erlang:hibernate/3.
-export([loop/2]).

-callback handle(Message :: term(), State) -> {ok, State} | stop when State :: term().

%% The caller becomes the sleeper. It ends with the reason normal.
-spec run(Kind :: module(), State :: term()) -> no_return().
run(Kind, State) -> erlang:hibernate(?MODULE, loop, [Kind, State]).

%% Sends a message to the sleeper that is registered as its kind. Does nothing once the distribution
%% has ended.
-spec tell(Kind :: module(), Message :: term()) -> ok.
tell(Kind, Message) ->
    case whereis(Kind) of
        undefined ->
            ok;
        Pid ->
            Pid ! Message,
            ok
    end.

-spec loop(Kind :: module(), State :: term()) -> ok.
loop(Kind, State) ->
    receive
        Message ->
            try Kind:handle(Message, State) of
                {ok, Next} -> run(Kind, Next);
                stop -> ok
            catch
                Class:Reason:Stack -> inet_rdma_crash:raise(Class, Reason, Stack)
            end
    end.

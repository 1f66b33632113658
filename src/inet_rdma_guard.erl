%% The loop of guards. A guard is a process that sleeps beside a link, a stream or the distribution and handles its
%% events.
%%
%% A kind of guard is a module with the callback. The guard of a session is a gen_statem (inet_rdma_session_guard).
%%
%% A guard hibernates after each message: it takes little memory, and keeps no reference to the code of these modules,
%% which may be loaded anew meanwhile.
-module(inet_rdma_guard).

-export([run/2, tell/2]).
%% Called by erlang:hibernate/3.
-export([loop/2]).

-callback handle(Message :: term(), State) -> {ok, State} | stop when State :: term().

%% The caller becomes the guard. It ends with the reason normal.
-spec run(Kind :: module(), State :: term()) -> no_return().
run(Kind, State) -> erlang:hibernate(?MODULE, loop, [Kind, State]).

%% Sends the guard that is registered as its kind a message. Does nothing once the distribution has ended.
-spec tell(Kind :: module(), Message :: term()) -> ok.
tell(Kind, Message) ->
    case whereis(Kind) of
        undefined -> ok;
        Pid -> Pid ! Message, ok
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

%% Takes a link from a detour back to the direct way, or from a connection of small segments to one
%% of full segments, whose size no socket changes later: a process that makes attempts at the peer's
%% addresses, beside the connection in use, which carries the link until one succeeds
%% (inet_rdma_dialer).
%%
%% The first attempt is made after a second, of small segments after half a minute; after longer if
%% the link has been there shortly before. The acceptor leaves the initiator to it for a while: of
%% two attempts at once one is in vain.
%%
%% If the process cannot be started, or dies, the session's guard starts it again after a pause
%% (`return_due').
%%
%% No code of this module waits: it may be loaded again.
-module(inet_rdma_detour_return).

-behaviour(gen_server).

-export([start/2, stop/1, handle_down/3, start_link/2, pause_ms/2]).
-export_type([from/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).

%% What the link is taken from.
-type from() :: detour | small_segments.

%% Pauses before the first attempt: the shortest, and the longest. A detour counts as one more in a
%% row if it begins within the third time after the one before; a connection of small segments if it
%% follows an attempt at full ones so soon: each time that the way still drops those the link stalls
%% for suspect_after_ms.
pauses(detour) -> {1000, 30000, 120000};
pauses(small_segments) -> {30000, 1920000, 30000}.

-define(STOP_MS, 5000).
%% The pause after a start that has failed.
-define(RETRY_MS, 1000).
%% So many in a row that the pause is the longest.
-define(MANY, 6).

-record(return, {
    session :: inet_rdma_session:t(),
    from :: from(),
    %% The number of such connections in a row before this one.
    row :: non_neg_integer(),
    dialer = none :: none | {pid(), reference()},
    pause_ms :: pos_integer()
}).

%% Such a connection carries the session from now on. Does nothing if attempts are under way
%% already. The caller is the session's guard: it may get the message return_due, and then calls
%% this again if the session still has such a one.
-spec start(inet_rdma_session:t(), from()) -> ok.
start(Session, From) ->
    ok = inet_rdma_modules:load_all(),
    Name = inet_rdma_session:name(Session),
    Before = inet_rdma_detours:fact(Name, return),
    case is_pid(Before) andalso is_process_alive(Before) of
        true ->
            ok;
        false ->
            case inet_rdma_sup:start_return(Session, From) of
                {ok, Pid} ->
                    _ = monitor(process, Pid),
                    inet_rdma_detours:set_fact(Name, return, Pid);
                %% The process table is full, or the distribution ends.
                none ->
                    later()
            end
    end.

later() ->
    _ = erlang:send_after(?RETRY_MS, self(), return_due),
    ok.

%% A process that the guard monitors has ended.
-spec handle_down(pid(), Exit :: term(), inet_rdma_session:t()) -> ok.
handle_down(_Pid, normal, _Session) ->
    ok;
handle_down(Pid, _Exit, Session) ->
    case inet_rdma_detours:fact(inet_rdma_session:name(Session), return) of
        Pid -> later();
        _Other -> ok
    end.

%% After return none of its attempts can give a connection up.
-spec stop(inet_rdma_session:t()) -> ok.
stop(Session) ->
    case inet_rdma_detours:fact(inet_rdma_session:name(Session), return) of
        none ->
            ok;
        Pid ->
            try
                gen_server:stop(Pid, normal, ?STOP_MS)
            catch
                exit:_ -> ok
            end
    end.

-spec start_link(inet_rdma_session:t(), from()) -> {ok, pid()} | {error, term()}.
start_link(Session, From) -> gen_server:start_link(?MODULE, {Session, From}, []).

init({Session, From}) ->
    process_flag(trap_exit, true),
    _ = monitor(port, inet_rdma_session:port(Session)),
    PauseMs =
        case {inet_rdma_session:role(Session), From} of
            {acceptor, detour} ->
                pause_ms(detour, ?MANY);
            {Role, _} ->
                pause_ms(From, in_a_row(inet_rdma_session:name(Session), From) + later(Role))
        end,
    {ok,
        #return{
            session = Session,
            from = From,
            row = row(inet_rdma_session:name(Session), From),
            pause_ms = PauseMs
        },
        PauseMs}.

later(initiator) -> 0;
later(acceptor) -> 1.

%% The pause before the first attempt, by the number of such connections in a row before this one.
-spec pause_ms(from(), non_neg_integer()) -> pos_integer().
pause_ms(From, Before) ->
    {ShortestMs, LongestMs, _} = pauses(From),
    min(LongestMs, ShortestMs bsl min(Before, ?MANY)).

in_a_row(Name, From) ->
    Before = row(Name, From),
    case From =:= detour of
        true -> ok = count_in_row(Name, From, Before);
        false -> ok
    end,
    Before.

row(Name, From) ->
    Now = erlang:monotonic_time(millisecond),
    {_, _, RowMs} = pauses(From),
    case inet_rdma_detours:fact(Name, {row, From}) of
        {Count, At} when Now - At < RowMs -> Count;
        _ -> 0
    end.

count_in_row(Name, From, Before) ->
    inet_rdma_detours:set_fact(Name, {row, From}, {Before + 1, erlang:monotonic_time(millisecond)}).

handle_call(_Request, _From, Return) -> {noreply, Return}.

handle_cast(_Message, Return) -> {noreply, Return}.

handle_info(timeout, #return{session = Session, from = From, dialer = none, row = Before} = Return) ->
    Name = inet_rdma_session:name(Session),
    case From =:= small_segments of
        true -> ok = count_in_row(Name, From, Before);
        false -> ok
    end,
    Options = #{
        node => inet_rdma_detours:fact(Name, node),
        peer => inet_rdma_detours:fact(Name, listens),
        is_in_order => false,
        is_uncarried => false,
        is_detoured => true
    },
    case inet_rdma_dialer:start(Session, Options) of
        {ok, Dialer} -> {noreply, Return#return{dialer = Dialer}};
        {error, system_limit} -> {noreply, Return, ?RETRY_MS}
    end;
handle_info(
    {'DOWN', Ref, process, Pid, Exit},
    #return{from = From, dialer = {Pid, Ref}, pause_ms = PauseMs} = Return
) ->
    case Exit of
        resumed -> {stop, normal, Return#return{dialer = none}};
        _ -> {noreply, Return#return{dialer = none, pause_ms = pause_ms(From, ?MANY)}, PauseMs}
    end;
handle_info({'DOWN', _Ref, port, _Port, _Reason}, Return) ->
    {stop, normal, Return};
handle_info(_Message, #return{dialer = none, pause_ms = PauseMs} = Return) ->
    {noreply, Return, PauseMs};
handle_info(_Message, Return) ->
    {noreply, Return}.

terminate(_Reason, #return{dialer = none}) -> ok;
terminate(_Reason, #return{dialer = Dialer}) -> inet_rdma_dialer:give_up(Dialer).

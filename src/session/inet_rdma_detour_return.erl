%% Takes a link from a detour back to the direct way: a process that makes attempts at the peer's addresses, beside the
%% detour, which carries on until one succeeds (inet_rdma_dialer).
%%
%% The first attempt is made after a second, after longer if the link has been on a detour shortly before. The acceptor
%% leaves the initiator to it for a while: of two attempts at once one is in vain.
%%
%% No code of this module waits: it may be loaded anew.
-module(inet_rdma_detour_return).

-behaviour(gen_server).

-export([start/1, stop/1, start_link/1, pause_ms/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).

%% Pauses before the first attempt: the shortest, and the longest.
-define(PAUSE_MS, 1000).
-define(PAUSE_MS_MAX, 30000).
%% A detour counts as one more in a row if it begins within this time after the one before.
-define(ROW_MS, 120000).
-define(STOP_MS, 5000).

-record(return, {
    session :: inet_rdma_session:t(),
    dialer = none :: none | {pid(), reference()},
    pause_ms :: pos_integer()
}).

%% A detour carries the session from now on. Does nothing if attempts are under way already.
-spec start(inet_rdma_session:t()) -> ok.
start(Session) ->
    ok = inet_rdma_modules:load_all(),
    Name = inet_rdma_session:name(Session),
    Spec = #{id => {?MODULE, Name}, start => {?MODULE, start_link, [Session]}, restart => temporary,
             shutdown => ?STOP_MS},
    case inet_rdma_sup:start_watch(Spec) of
        {ok, Pid} -> inet_rdma_detours:set_fact(Name, return, Pid);
        %% Attempts are under way, or the distribution ends.
        _ -> ok
    end.

%% After return none of its attempts can give a connection up.
-spec stop(inet_rdma_session:t()) -> ok.
stop(Session) ->
    case inet_rdma_detours:fact(inet_rdma_session:name(Session), return) of
        none ->
            ok;
        Pid ->
            try gen_server:stop(Pid, normal, ?STOP_MS)
            catch exit:_ -> ok
            end
    end.

-spec start_link(inet_rdma_session:t()) -> {ok, pid()} | {error, term()}.
start_link(Session) -> gen_server:start_link(?MODULE, Session, []).

init(Session) ->
    process_flag(trap_exit, true),
    _ = monitor(port, inet_rdma_session:port(Session)),
    PauseMs = case inet_rdma_session:role(Session) of
                  initiator -> pause_ms(in_a_row(inet_rdma_session:name(Session)));
                  acceptor -> ?PAUSE_MS_MAX
              end,
    {ok, #return{session = Session, pause_ms = PauseMs}, PauseMs}.

%% The pause before the first attempt, by the number of detours in a row before this one.
-spec pause_ms(non_neg_integer()) -> pos_integer().
pause_ms(Before) -> min(?PAUSE_MS_MAX, ?PAUSE_MS bsl min(Before, 5)).

in_a_row(Name) ->
    Now = erlang:monotonic_time(millisecond),
    Before = case inet_rdma_detours:fact(Name, row) of
                 {Count, At} when Now - At < ?ROW_MS -> Count;
                 _ -> 0
             end,
    ok = inet_rdma_detours:set_fact(Name, row, {Before + 1, Now}),
    Before.

handle_call(_Request, _From, Return) -> {noreply, Return}.

handle_cast(_Message, Return) -> {noreply, Return}.

handle_info(timeout, #return{session = Session, dialer = none} = Return) ->
    Name = inet_rdma_session:name(Session),
    Options = #{node => inet_rdma_detours:fact(Name, node), peer => inet_rdma_detours:fact(Name, listens),
                is_in_order => false, is_uncarried => false, is_detoured => true},
    {noreply, Return#return{dialer = inet_rdma_dialer:start(Session, Options)}};
handle_info({'DOWN', Ref, process, Pid, Exit}, #return{dialer = {Pid, Ref}, pause_ms = PauseMs} = Return) ->
    case Exit of
        resumed -> {stop, normal, Return#return{dialer = none}};
        _ -> {noreply, Return#return{dialer = none, pause_ms = ?PAUSE_MS_MAX}, max(PauseMs, ?PAUSE_MS)}
    end;
handle_info({'DOWN', _Ref, port, _Port, _Reason}, Return) ->
    {stop, normal, Return};
handle_info(_Message, #return{dialer = none, pause_ms = PauseMs} = Return) ->
    {noreply, Return, PauseMs};
handle_info(_Message, Return) ->
    {noreply, Return}.

terminate(_Reason, #return{dialer = none}) -> ok;
terminate(_Reason, #return{dialer = Dialer}) -> inet_rdma_dialer:give_up(Dialer).

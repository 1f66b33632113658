%% The guard of a link with a session (inet_rdma_session): it has a lost TCP connection replaced,
%% settles in band, and moves the link between TCP and queue pairs (inet_rdma_session_events).
%%
%% The guard and the port are linked: each ends with the other. The port sends it {'$inet_rdma',
%% Port, Notice, Standing} (native/link/link/src/notice.rs). The state of the standing is the
%% guard's, too. A notice that these modules do not know, of a later library, is logged and counted;
%% only its standing counts.
%%
%% It hibernates after a pause. Between two events it refers to no code of this library, so modules
%% are loaded again and purged while it lives; it brings its data to the version of the modules at
%% each event.
-module(inet_rdma_session_guard).

-behaviour(gen_statem).

-export([start/2]).
%% Called by inet_rdma_sup.
-export([start_link/1]).
-export([callback_mode/0, init/1, handle_event/4, terminate/3, code_change/4, format_status/1]).
-export_type([timer/0, arguments/0]).

%% What a guard does with a timeout; keep: it goes on as it is; infinity: it ends.
-type timer() :: timeout() | keep.
-type state() :: carried | suspected | suspended.
-type arguments() :: {Supervisor :: pid(), inet_rdma_session:t(), inet_rdma_session:link(), [
    gen_tcp:option()
]}.

-define(HIBERNATE_AFTER_MS, 1000).

%% The VM knows the link: packets may come. The caller is the connection supervisor.
-spec start(inet_rdma_session:t(), inet_rdma_session:link()) -> ok | {error, closed}.
start(Session, #{listens := Listens, tells := Tells} = Link) ->
    PeerNode =
        case Tells of
            true -> awaited;
            false -> none
        end,
    ok = inet_rdma_links:add_peer(inet_rdma_session:name(Session), Listens, PeerNode),
    %% The guard is ready before the port takes packets, as the port sends it events.
    #{node := Node, peer := Peer, via := Via, queue := Queue, has_settled := HasSettled} = Link,
    case started({self(), Session, Link#{queue := none}, first_options(Session, Link)}) of
        {ok, Guard} when is_pid(Guard) ->
            ok = inet_rdma_detour:begin_with(Session, Node, Peer, Via),
            case link_up(Guard, Queue, HasSettled) of
                ok -> inet_rdma_port:start(inet_rdma_session:port(Session));
                Error -> Error
            end;
        _IgnoreOrError ->
            ok = inet_rdma_links:remove_peer(inet_rdma_session:name(Session)),
            {error, closed}
    end.

first_options(Session, #{config := Config}) -> inet_rdma_session:first_options(Session, Config).

%% On a node whose supervisor has ended, links come up all the same, with a guard of their own.
%% Without a place in the process table the link ends, and the peer's node or this one connects
%% again.
started(Arguments) ->
    case inet_rdma_sup:start_guard(Arguments) of
        no_supervisor ->
            try
                gen_statem:start(?MODULE, Arguments, [{hibernate_after, ?HIBERNATE_AFTER_MS}])
            catch
                error:system_limit -> {error, system_limit}
            end;
        Started ->
            Started
    end.

%% ignore: the port has ended.
-spec start_link(arguments()) -> {ok, pid()} | ignore | {error, term()}.
start_link(Arguments) ->
    gen_statem:start_link(?MODULE, Arguments, [{hibernate_after, ?HIBERNATE_AFTER_MS}]).

%% The link comes up. The port's events come to the guard after this call. closed: the port has
%% ended. The queue pair does not come by the guard's supervisor, which would keep its memory.
link_up(Guard, Queue, HasSettled) ->
    try
        gen_statem:call(Guard, {link_up, Queue, HasSettled}, infinity)
    catch
        exit:_ -> {error, closed}
    end.

-spec callback_mode() -> handle_event_function.
callback_mode() -> handle_event_function.

-spec init(arguments()) -> {ok, state(), inet_rdma_session_data:t()} | ignore.
init({Supervisor, Session, Link, Options}) ->
    _ = process_flag(trap_exit, true),
    Port = inet_rdma_session:port(Session),
    try link(Port) of
        true ->
            ok = inet_rdma_recorder:of_port(Port),
            ok = inet_rdma_links:add_session(
                inet_rdma_session:name(Session), Port, self(), Session, Options
            ),
            {ok, carried, inet_rdma_session_data:new(Supervisor, Session, Link)}
    catch
        error:_ -> ignore
    end.

%% The reports of a crash have no terms, as keys may be among them.
-spec handle_event(gen_statem:event_type(), term(), state(), map()) ->
    gen_statem:event_handler_result(state()).
handle_event(Type, Content, State, Old) ->
    try
        event(Type, Content, State, inet_rdma_session_data:upgraded(Old))
    catch
        Class:Reason:Stack -> inet_rdma_crash:raise(Class, Reason, Stack)
    end.

event({call, From}, {link_up, Queue, HasSettled}, State, #{port := Port} = Data) ->
    _ = inet_rdma_port:command(Port, watch),
    ok = gen_statem:reply(From, ok),
    next(State, Data, inet_rdma_session_events:start(Queue, HasSettled, Data));
event({timeout, Name}, _, State, Data) ->
    next(State, Data, inet_rdma_session_events:timeout(Name, Data));
event(
    info,
    {'$inet_rdma', Port, Notice, #{state := State} = Standing},
    _Before,
    #{port := Port} = Before
) ->
    Data = stands(Standing, Before),
    next(
        State, Data, notice(Notice, lists:member(name(Notice), inet_rdma_interface:notices()), Data)
    );
event(info, {'DOWN', Ref, process, Pid, Exit}, State, Data) ->
    next(State, Data, inet_rdma_session_events:down({Pid, Ref}, Exit, Data));
event(info, {again, Decision}, State, Data) ->
    next(State, Data, inet_rdma_session_events:again(Decision, Data));
event(info, return_due, State, Data) ->
    next(State, Data, inet_rdma_session_events:return_due(Data));
event(info, {tick_time, Seconds}, State, Data) ->
    next(State, Data, inet_rdma_session_events:tick_time(Seconds, Data));
event(info, {witness, Event}, State, Data) ->
    next(State, Data, inet_rdma_session_events:witness(Event, Data));
event(info, lasts, State, Data) ->
    next(State, Data, inet_rdma_session_events:lasts(Data));
event(info, learns, State, Data) ->
    next(State, Data, inet_rdma_session_events:learns(Data));
event(info, woke, State, Data) ->
    ok = inet_rdma_modules:load_all(),
    next(State, Data, inet_rdma_session_suspicion:woke(Data));
event(info, queue_over_bound, State, Data) ->
    next(State, Data, inet_rdma_session_events:queue_over_bound(Data));
event(info, {'EXIT', Port, Exit}, _State, #{port := Port, log := Log, session := Session} = Data) ->
    {Fabric, _} = inet_rdma_session_data:carried(Data),
    ok = inet_rdma_link_log:filled_at_end(inet_rdma_session:name(Session), Port, Fabric, Log),
    ok = inet_rdma_link_log:ended(Exit, inet_rdma_session_events:ended(Data), Fabric, Log),
    {stop, normal, Data};
event(_Type, _Content, _State, Data) ->
    {keep_state, Data}.

name({Name, _Detail}) -> Name;
name(Name) -> Name.

notice(Notice, false, Data) ->
    ok = inet_rdma_session_log:unknown_notice(Notice, inet_rdma_session_data:facts(Data)),
    inet_rdma_links:count(unknown_notices),
    Data;
notice({message, _} = Notice, true, Data) ->
    inet_rdma_session_events:handle_notice(Notice, Data);
notice(Notice, true, Data) when Notice =:= changed; Notice =:= earned ->
    inet_rdma_session_events:handle_notice(Notice, Data);
notice(Notice, true, Data) ->
    ok = inet_rdma_modules:load_all(),
    inet_rdma_session_events:handle_notice(Notice, Data).

stands(Standing, #{standing := Standing} = Data) ->
    Data;
stands(Standing, #{session := Session} = Data) ->
    ok = inet_rdma_links:set_standing(inet_rdma_session:name(Session), Standing),
    Data#{standing := Standing}.

next(State, Before, After) ->
    {Timers, Data} = inet_rdma_session_data:take_timers(Before, After),
    {next_state, State, Data, [{{timeout, Name}, Ms, due} || {Name, Ms} <- maps:to_list(Timers)]}.

%% Without its supervisor the guard ends, and the link stays up.
-spec terminate(term(), state(), map()) -> ok.
terminate(Reason, _State, #{port := Port}) when Reason =:= shutdown; Reason =:= killed ->
    true = unlink(Port),
    ok;
terminate(_Reason, _State, _Data) ->
    ok.

-spec code_change(term(), state(), map(), term()) -> {ok, state(), inet_rdma_session_data:t()}.
code_change(_Version, State, Data, _Extra) -> {ok, State, inet_rdma_session_data:upgraded(Data)}.

%% Shows no key, and nothing that leads to one.
-spec format_status(gen_statem:format_status()) -> gen_statem:format_status().
format_status(Status) ->
    maps:map(
        fun
            (data, Data) when is_map(Data) -> maps:with([version, node, port, standing, why], Data);
            (Key, _Events) when Key =:= queue; Key =:= postponed; Key =:= log -> [];
            (_Key, Value) -> Value
        end,
        Status
    ).

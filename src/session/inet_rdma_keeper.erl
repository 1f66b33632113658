%% Removes the rows of links and sessions (inet_rdma_links) that have ended: it monitors their
%% supervisors and ports. Has inet_rdma_node_watch look at the links when they tick: what a node does
%% at each tick is done at once, as a further wake-up of the schedulers costs more than all of it.
%% Asks net_kernel for net_ticktime at each fourth tick, as net_kernel announces no change, and tells
%% the guards of sessions. Has modules loaded when inet_rdma_modules says.
%%
%% A row is written before this process gets the message about it. One that is started again after
%% its death reads the tables, so it misses none.
-module(inet_rdma_keeper).

-behaviour(inet_rdma_sleeper).

-export([start_link/0, ticked/0, known_tick_time/0]).
%% Spawned.
-export([init/0]).
-export([handle/2]).

%% Links tick at the same time: the shortest time between two messages about it. With the default
%% of net_tickintensity ticks are 250 ms apart at least.
-define(PAUSE_MS, 100).
%% How long a caller of tick_time/1 waits for net_kernel.
-define(ANSWER_MS, 1000).
%% Where the tick time is not known: kernel's default, in seconds.
-define(TICK_TIME, 60).

%% The keeper asks net_kernel at the first of this number of ticks.
-define(ASK_TICKS, 4).

%% watched: the rows by their processes and ports. tick_time: the net_ticktime in force, in seconds;
%% unknown: net_kernel has not answered yet. ticks: modulo ASK_TICKS.
-record(keeper, {
    watched = #{} :: #{pid() | port() => inet_rdma_links:key()},
    tick_time = unknown :: pos_integer() | unknown,
    ticks = 0 :: non_neg_integer()
}).

-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() -> proc_lib:start_link(?MODULE, init, []).

%% A link has ticked.
-spec ticked() -> ok.
ticked() ->
    case inet_rdma_links:is_due({<<>>, 0, tick}, ?PAUSE_MS) of
        true -> inet_rdma_sleeper:tell(?MODULE, ticked);
        false -> ok
    end.

-spec init() -> no_return().
init() ->
    true = register(?MODULE, self()),
    Keeper = lists:foldl(
        fun({Owner, Key}, Before) -> add(Owner, Key, Before) end,
        #keeper{},
        inet_rdma_links:owners()
    ),
    ok = proc_lib:init_ack({ok, self()}),
    inet_rdma_sleeper:run(?MODULE, Keeper).

%% watch: inet_rdma_links has the row with this key, which ends with this process or port.
-spec handle(term(), #keeper{}) -> {ok, #keeper{}}.
handle({watch, Owner, Key}, Keeper) ->
    {ok, add(Owner, Key, Keeper)};
handle({'DOWN', _Ref, _Type, Owner, _Reason}, #keeper{watched = Watched} = Keeper) when
    is_map_key(Owner, Watched)
->
    {Key, Others} = maps:take(Owner, Watched),
    ok = inet_rdma_links:remove(Key, Owner),
    %% Last: a fact that is set meanwhile finds the session's row gone, or is removed here.
    _ = [ok = inet_rdma_detours:forget(Name) || {session, Name} <- [Key]],
    {ok, Keeper#keeper{watched = Others}};
handle(ticked, #keeper{ticks = Ticks} = Keeper) ->
    #keeper{tick_time = Seconds} = Next = ask_if_due(Keeper),
    ok = inet_rdma_sleeper:tell(inet_rdma_node_watch, {ticked, known(Seconds)}),
    {ok, Next#keeper{ticks = (Ticks + 1) rem ?ASK_TICKS}};
handle(prepare_modules, Keeper) ->
    ok = inet_rdma_modules:prepare(),
    {ok, Keeper};
handle(load_modules, Keeper) ->
    ok = inet_rdma_modules:start_load(all),
    {ok, Keeper};
handle(_Message, Keeper) ->
    {ok, Keeper}.

add(Owner, _Key, #keeper{watched = Watched} = Keeper) when is_map_key(Owner, Watched) ->
    Keeper;
add(Owner, Key, #keeper{watched = Watched} = Keeper) ->
    _ = monitor(
        case is_port(Owner) of
            true -> port;
            false -> process
        end,
        Owner
    ),
    Keeper#keeper{watched = Watched#{Owner => Key}}.

ask_if_due(#keeper{ticks = Ticks, tick_time = Before} = Keeper) when
    Ticks =:= 0; Before =:= unknown
->
    Seconds = tick_time(Before),
    _ = [
        Guard ! {tick_time, Seconds}
     || Seconds =/= Before, Seconds =/= unknown, Guard <- inet_rdma_links:guards()
    ],
    Keeper#keeper{tick_time = Seconds};
ask_if_due(Keeper) ->
    Keeper.

%% The net_ticktime in force, in seconds.
-spec known_tick_time() -> pos_integer().
known_tick_time() -> known(tick_time(unknown)).

known(unknown) -> ?TICK_TIME;
known(Seconds) -> Seconds.

%% Unknown: the answer if net_kernel is about to end, or does not answer in time, as it may wait for
%% a name server.
tick_time(Unknown) ->
    case inet_rdma_bounded:call(net_kernel, get_net_ticktime, [], ?ANSWER_MS) of
        {ok, {ongoing_change_to, Seconds}} -> Seconds;
        {ok, Seconds} when is_integer(Seconds) -> Seconds;
        _ -> Unknown
    end.

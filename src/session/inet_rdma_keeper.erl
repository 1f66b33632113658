%% Removes the rows of links and sessions (inet_rdma_links) that have ended: it monitors their
%% supervisors and ports. Asks net_kernel for net_ticktime at the ticks of links, and tells the
%% guards of sessions when it has changed, as net_kernel announces no change. Has modules loaded
%% when inet_rdma_modules says.
%%
%% A row is written before this process gets the message about it. One that is started again after
%% its death reads the tables, so it misses none.
-module(inet_rdma_keeper).

-behaviour(inet_rdma_sleeper).

-export([start_link/0, ticked/0, known_tick_time/0]).
%% Spawned.
-export([init/0]).
-export([handle/2]).

%% Links tick at the same time: the shortest time between two checks of net_ticktime.
-define(CHECK_MS, 1000).
%% How long a caller of tick_time/0 waits for net_kernel.
-define(ANSWER_MS, 1000).
%% Where the tick time is not known: kernel's default, in seconds.
-define(TICK_TIME, 60).

%% watched: the rows by their processes and ports. tick_time: in seconds; 0: not known yet.
%% checked_at: when that was asked for, in milliseconds of erlang:monotonic_time/1; none: never.
-record(keeper, {
    watched = #{} :: #{pid() | port() => inet_rdma_links:key()},
    tick_time = 0 :: non_neg_integer(),
    checked_at = none :: integer() | none
}).

-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() -> proc_lib:start_link(?MODULE, init, []).

%% A link has ticked: net_ticktime may be another one since the last time.
-spec ticked() -> ok.
ticked() -> inet_rdma_sleeper:tell(?MODULE, ticked).

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
handle(ticked, #keeper{checked_at = CheckedAt} = Keeper) ->
    Now = erlang:monotonic_time(millisecond),
    case is_integer(CheckedAt) andalso Now - CheckedAt < ?CHECK_MS of
        true -> {ok, Keeper};
        false -> {ok, check_tick_time(Keeper#keeper{checked_at = Now})}
    end;
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

%% Waits for net_kernel, for a while.
check_tick_time(#keeper{tick_time = Before} = Keeper) ->
    case tick_time() of
        0 ->
            Keeper;
        Before ->
            Keeper;
        Seconds ->
            _ = [Guard ! {tick_time, Seconds} || Guard <- inet_rdma_links:guards()],
            Keeper#keeper{tick_time = Seconds}
    end.

%% As tick_time/0, and kernel's default where that is not known.
-spec known_tick_time() -> pos_integer().
known_tick_time() ->
    case tick_time() of
        0 -> ?TICK_TIME;
        Seconds -> Seconds
    end.

%% The net_ticktime in force, in seconds. 0: not known, as net_kernel is about to end, or does not
%% answer in time: it may wait for a name server.
-spec tick_time() -> non_neg_integer().
tick_time() ->
    case inet_rdma_bounded:call(net_kernel, get_net_ticktime, [], ?ANSWER_MS) of
        {ok, {ongoing_change_to, Seconds}} -> Seconds;
        {ok, Seconds} when is_integer(Seconds) -> Seconds;
        _ -> 0
    end.

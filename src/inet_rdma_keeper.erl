%% Removes the rows of links and sessions (inet_rdma_links) that have ended: it monitors their supervisors and ports.
%% Tells the guards of sessions when net_ticktime changes, of which net_kernel tells nobody. Has all modules loaded once
%% the distribution has run for a while.
%%
%% A row is written before this process is told of it. One that is started again after its death reads the tables, so it
%% misses none.
-module(inet_rdma_keeper).

-behaviour(inet_rdma_guard).

-export([start_link/0, watch/2, ticked/0]).
%% Spawned.
-export([init/0]).
-export([handle/2]).

-include_lib("kernel/include/logger.hrl").

%% Links tick at the same time: the shortest time between two looks at net_ticktime.
-define(LOOK_MS, 1000).

%% From the start to the load of all modules: a program that asks another node something and ends does without. And
%% between two attempts.
-define(LOAD_MS, 3000).
-define(LOAD_AGAIN_MS, 10000).

%% watched: the rows by their processes and ports. tick_time: in seconds; 0: not known yet. looked: when that was
%% asked for, in milliseconds as of erlang:monotonic_time/1; none: never. loader: the process that loads all modules.
%% has_failed: the log has why that has failed.
-record(keeper, {watched = #{} :: #{pid() | port() => inet_rdma_links:key()},
                 tick_time = 0 :: non_neg_integer(),
                 looked = none :: integer() | none,
                 loader = none :: reference() | none,
                 has_failed = false :: boolean()}).

-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() -> proc_lib:start_link(?MODULE, init, []).

%% The row with this key ends with this process or port.
-spec watch(pid() | port(), inet_rdma_links:key()) -> ok.
watch(Owner, Key) -> inet_rdma_guard:tell(?MODULE, {watch, Owner, Key}).

%% A link has ticked: net_ticktime may be another one since the last time.
-spec ticked() -> ok.
ticked() -> inet_rdma_guard:tell(?MODULE, ticked).

-spec init() -> no_return().
init() ->
    true = register(?MODULE, self()),
    _ = erlang:send_after(?LOAD_MS, self(), load),
    Keeper = lists:foldl(fun({Owner, Key}, Before) -> add(Owner, Key, Before) end, #keeper{}, inet_rdma_links:owners()),
    ok = proc_lib:init_ack({ok, self()}),
    inet_rdma_guard:run(?MODULE, Keeper).

-spec handle(term(), #keeper{}) -> {ok, #keeper{}}.
handle({watch, Owner, Key}, Keeper) ->
    {ok, add(Owner, Key, Keeper)};
handle({'DOWN', _Ref, _Type, Owner, _Reason}, #keeper{watched = Watched} = Keeper) when is_map_key(Owner, Watched) ->
    {Key, Others} = maps:take(Owner, Watched),
    ok = inet_rdma_links:remove(Key, Owner),
    {ok, Keeper#keeper{watched = Others}};
handle(ticked, #keeper{looked = Looked} = Keeper) ->
    Now = erlang:monotonic_time(millisecond),
    case is_integer(Looked) andalso Now - Looked < ?LOOK_MS of
        true -> {ok, Keeper};
        false -> {ok, look(Keeper#keeper{looked = Now})}
    end;
handle(load, Keeper) ->
    case inet_rdma_modules:load_all() of
        complete -> {ok, Keeper};
        busy -> {ok, load_again(Keeper)};
        Loader -> {ok, Keeper#keeper{loader = Loader}}
    end;
handle({'DOWN', Loader, process, _Pid, normal}, #keeper{loader = Loader} = Keeper) ->
    {ok, Keeper#keeper{loader = none}};
handle({'DOWN', Loader, process, _Pid, Why}, #keeper{loader = Loader, has_failed = HasFailed} = Keeper) ->
    _ = HasFailed orelse
        ?LOG_ERROR("inet_rdma: a lost connection may not be made anew, as not all modules of inet_rdma can be loaded: "
                   "~ts; this node tries again", [why(Why)]),
    {ok, load_again(Keeper#keeper{loader = none, has_failed = true})};
handle(_Message, Keeper) ->
    {ok, Keeper}.

why({incomplete, Why}) -> Why;
why(Exit) -> io_lib:format("~0tp", [Exit]).

load_again(Keeper) ->
    _ = erlang:send_after(?LOAD_AGAIN_MS, self(), load),
    Keeper.

add(Owner, _Key, #keeper{watched = Watched} = Keeper) when is_map_key(Owner, Watched) ->
    Keeper;
add(Owner, Key, #keeper{watched = Watched} = Keeper) ->
    _ = case is_port(Owner) of
            true -> monitor(port, Owner);
            false -> monitor(process, Owner)
        end,
    Keeper#keeper{watched = Watched#{Owner => Key}}.

%% Waits for net_kernel, for a while.
look(#keeper{tick_time = Before} = Keeper) ->
    case inet_rdma_node_watch:tick_time() of
        0 ->
            Keeper;
        Before ->
            Keeper;
        Seconds ->
            _ = [Guard ! {tick_time, Seconds} || Guard <- inet_rdma_links:guards()],
            Keeper#keeper{tick_time = Seconds}
    end.

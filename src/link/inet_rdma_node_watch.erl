%% A process beside net_kernel that starts the flight recorder and logs when its file cannot be written, records nodes
%% that come and go, looks at each link once in a tick interval, and logs when a link is silent for long.
%%
%% The supervisors of the links cannot look: dist_util calls their getstat/1 for queries, too, and their tick/1 only if
%% this side has sent nothing.
%%
%% It lives as long as the distribution, under inet_rdma_sup. It may wait for net_kernel. Only the node's start waits
%% for this process, for a moment.
-module(inet_rdma_node_watch).

-behaviour(inet_rdma_guard).

-export([start/2]).
%% Called by inet_rdma_sup.
-export([start_link/3]).
%% Spawned.
-export([init/3]).
-export([handle/2]).

-include_lib("kernel/include/logger.hrl").

%% Longest time between two looks at net_ticktime, of which net_kernel tells nobody.
-define(LOOK_MS_MAX, 15000).

%% The node's start waits this long for the recorder. Links that come up before it runs are not in it.
-define(OPEN_MS, 1000).

%% A silence is told if it lasts for half of net_ticktime, and at least this long: with a shorter net_ticktime the link
%% ends as soon.
-define(SILENT_MS_MIN, 2000).

%% A silence of a peer is told at most once in this time, and so is that the peer is heard again. A slave node logs over
%% the link to its master, whose answers are signs of life: told each time, silences would keep a link that must end.
-define(TOLD_MS, 60000).

%% What a link has received, when this count was first seen, in milliseconds as of erlang:monotonic_time/1, and how many
%% looks have seen it since.
-record(link, {controller :: port() | pid(), received :: non_neg_integer(), since :: integer(),
               missed = 0 :: non_neg_integer()}).

%% looked: the time of the last look at the links, in milliseconds as of erlang:monotonic_time/1. links: by the names of
%% the peers. silent: peers whose silence is in the log. told: when a silence was last told.
-record(watch, {node :: binary(), looked :: integer(), links = #{} :: #{binary() => #link{}},
                silent = #{} :: #{binary() => true}, told = #{} :: #{binary() => integer()}}).

%% The caller is net_kernel, which listens under this node's name. One process serves all address families.
-spec start(Node :: iolist(), inet_rdma_options:config()) -> ok.
start(Node, Config) ->
    Options = maps:with([flight_recorder, flight_bytes, flight_directory], Config),
    %% An answer that comes later must not reach net_kernel.
    Alias = alias([reply]),
    Start = {?MODULE, start_link, [Alias, unicode:characters_to_binary(Node), Options]},
    case inet_rdma_sup:start_watch(#{id => ?MODULE, start => Start, restart => transient}) of
        {ok, _} -> receive {Alias, ready} -> ok after ?OPEN_MS -> ok end;
        {error, {already_started, _}} -> ok
    end,
    _ = unalias(Alias),
    receive {Alias, ready} -> ok after 0 -> ok end.

%% Does not wait for the file. A process that is started again after its death finds the recorder open.
-spec start_link(reference(), binary(), inet_rdma_options:config()) -> {ok, pid()}.
start_link(Alias, Node, Options) -> {ok, proc_lib:spawn_link(?MODULE, init, [Alias, Node, Options])}.

-spec init(reference(), binary(), inet_rdma_options:config()) -> no_return().
init(Alias, Node, Options) ->
    %% The supervisor's exit signal must not overtake the record of the stop.
    _ = process_flag(trap_exit, true),
    true = register(?MODULE, self()),
    _ = monitor(process, net_kernel),
    ok = net_kernel:monitor_nodes(true, [nodedown_reason, {node_type, all}]),
    ok = open(Node, Options),
    Alias ! {Alias, ready},
    Watch = #watch{node = Node, looked = erlang:monotonic_time(millisecond)},
    ok = look_later(interval_ms(), Watch),
    inet_rdma_guard:run(?MODULE, Watch).

open(Node, Options) ->
    case inet_rdma_recorder:open(Node, Options) of
        ok ->
            inet_rdma_recorder:record(start, Node, #{amount => list_to_integer(os:getpid())});
        disabled ->
            ok;
        {error, Why} ->
            ?LOG_WARNING("inet_rdma: no flight recorder, and the node goes on without: ~ts", [Why])
    end.

log({failed, Why}) ->
    ?LOG_WARNING("inet_rdma: the flight recorder cannot write its file; its events stay in memory, and it tries again: "
                 "~ts; the options flight_directory and flight_bytes say where the file is, and flight_recorder false "
                 "turns it off", [Why]);
log({written, Failures}) ->
    ?LOG_NOTICE("inet_rdma: the flight recorder has written its file, after ~b attempts that failed", [Failures]).

-spec handle(term(), #watch{}) -> {ok, #watch{}} | stop.
handle({'DOWN', _Ref, process, _NetKernel, Reason}, Watch) ->
    stopped(Reason, Watch);
handle({'EXIT', _Supervisor, Reason}, Watch) ->
    stopped(Reason, Watch);
handle({nodeup, Node, _Info}, Watch) when Node =/= node() ->
    inet_rdma_recorder:record(nodeup, Node, #{}),
    {ok, Watch};
handle({nodedown, Node, Info}, Watch) when Node =/= node() ->
    inet_rdma_recorder:record(nodedown, Node, #{cause => proplists:get_value(nodedown_reason, Info)}),
    {ok, forget(atom_to_binary(Node), Watch)};
handle(look, Watch) ->
    %% net_ticktime may be another one since the last look.
    ok = inet_rdma_keeper:ticked(),
    IntervalMs = interval_ms(),
    Looked = look_if_due(IntervalMs, Watch),
    ok = look_later(IntervalMs, Looked),
    {ok, Looked};
%% The flight recorder has news of its file.
handle({file, News}, Watch) ->
    log(News),
    {ok, Watch};
handle(_Message, Watch) ->
    {ok, Watch}.

stopped(Reason, #watch{node = Node}) ->
    inet_rdma_recorder:record(stop, Node, #{cause => Reason}),
    stop.

%% When the next tick interval of net_kernel is over, or earlier, as net_ticktime may become shorter.
look_later(IntervalMs, #watch{looked = Looked}) ->
    LeftMs = Looked + IntervalMs - erlang:monotonic_time(millisecond),
    _ = erlang:send_after(max(1, min(?LOOK_MS_MAX, LeftMs)), self(), look),
    ok.

%% With the bounds that net_kernel has for net_tickintensity.
interval_ms() ->
    Intensity = case application:get_env(kernel, net_tickintensity) of
                    {ok, Set} when is_integer(Set) -> max(4, min(1000, Set));
                    _ -> 4
                end,
    max(1, inet_rdma_keeper:known_tick_time() * 1000 div Intensity).

look_if_due(IntervalMs, #watch{looked = Looked} = Watch) ->
    Now = erlang:monotonic_time(millisecond),
    case Now - Looked >= IntervalMs of
        true -> look(Now, Watch#watch{looked = Now});
        false -> Watch
    end.

look(Now, Watch) ->
    ok = inet_rdma_modules:load_all(),
    lists:foldl(fun(Counted, Looking) -> look(Counted, Now, Looking) end, Watch, inet_rdma_info:received()).

look({Node, Controller, Received}, Now, #watch{links = Links} = Watch) ->
    New = #link{controller = Controller, received = Received, since = Now},
    case Links of
        #{Node := #link{controller = Controller, received = Received, since = Since, missed = Missed} = Silent} ->
            inet_rdma_recorder:tick(missed, Node, Controller, Now - Since, 0),
            warn(Node, Now - Since, Now, Watch#watch{links = Links#{Node := Silent#link{missed = Missed + 1}}});
        #{Node := #link{controller = Controller, received = Before, since = Since}} ->
            %% OTP's driver counts in 32 bits.
            inet_rdma_recorder:tick(heard, Node, Controller, Now - Since, max(0, Received - Before)),
            heard(Node, Now - Since, Watch#watch{links = Links#{Node := New}});
        #{} ->
            Watch#watch{links = Links#{Node => New}}
    end.

%% Once for each silence.
warn(Node, _Ms, _Now, #watch{silent = Silent} = Watch) when is_map_key(Node, Silent) ->
    Watch;
warn(Node, Ms, Now, #watch{links = Links, silent = Silent, told = Told} = Watch) ->
    #{Node := #link{missed = Missed}} = Links,
    Seconds = inet_rdma_keeper:known_tick_time(),
    %% One look alone may be late, as this node stood still.
    IsLong = Missed > 1 andalso Ms >= max(?SILENT_MS_MIN, Seconds * 500),
    case Told of
        #{Node := Last} when Now - Last < ?TOLD_MS ->
            Watch;
        #{} when IsLong ->
            ?LOG_WARNING("inet_rdma: nothing has come from ~ts for ~b s: its node or the network stands still; without "
                         "a sign of life its link ends when net_ticktime (~b s) is over", [Node, Ms div 1000, Seconds]),
            inet_rdma_recorder:record(silent, Node, #{duration => erlang:convert_time_unit(Ms, millisecond, native)}),
            Watch#watch{silent = Silent#{Node => true}, told = Told#{Node => Now}};
        #{} ->
            Watch
    end.

heard(Node, Ms, #watch{silent = Silent} = Watch) when is_map_key(Node, Silent) ->
    ?LOG_NOTICE("inet_rdma: ~ts is heard again after ~b s", [Node, Ms div 1000]),
    inet_rdma_recorder:record(heard, Node, #{duration => erlang:convert_time_unit(Ms, millisecond, native)}),
    Watch#watch{silent = maps:remove(Node, Silent)};
heard(_Node, _Ms, Watch) ->
    Watch.

forget(Node, #watch{links = Links, silent = Silent, told = Told} = Watch) ->
    Watch#watch{links = maps:remove(Node, Links), silent = maps:remove(Node, Silent), told = maps:remove(Node, Told)}.

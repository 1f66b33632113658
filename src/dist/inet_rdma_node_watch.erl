%% A process beside net_kernel that starts the flight recorder and logs when its file cannot be
%% written, records nodes that come and go, checks each link once in a tick interval, and logs when
%% a link is silent for long.
%%
%% Tools that connect for a moment, as each call of rabbitmqctl does, would fill recorder and log:
%% the link of a hidden node that has connected and offers nothing is recorded and logged when it
%% has lasted for a while, else only counted.
%%
%% The supervisors of the links cannot check: dist_util calls their getstat/1 for queries, too, and
%% their tick/1 only if this side has sent nothing.
%%
%% It lives as long as the distribution, under inet_rdma_sup. It may wait for net_kernel. Only the
%% node's start waits for this process, for a moment.
-module(inet_rdma_node_watch).

-behaviour(inet_rdma_sleeper).

-export([start/2]).
%% Called by inet_rdma_sup.
-export([start_link/3]).
%% Spawned.
-export([init/3]).
-export([handle/2]).

-include_lib("kernel/include/logger.hrl").

%% Longest time between two checks of net_ticktime, as net_kernel announces no change.
-define(CHECK_MS_MAX, 15000).

%% The node's start waits this long for the recorder. Links that come up before it runs are not in
%% it.
-define(OPEN_MS, 1000).

%% A silence is logged if it lasts for half of net_ticktime, and at least this long: with a shorter
%% net_ticktime the link ends as soon.
-define(SILENT_MS_MIN, 2000).

%% A silence of a peer is logged at most once in this time, and so is its end. A slave node logs
%% over the link to its master, whose answers are signs of life: logged each time, silences would
%% keep a link that must end.
-define(LOGGED_MS, 60000).

%% A link that ends within this time is only counted, if its node is hidden and offers nothing.
-define(LASTS_MS, 10000).

%% What a link has received, when this count was first seen, in milliseconds of
%% erlang:monotonic_time/1, and how many checks have seen it since.
-record(link, {
    controller :: port() | pid(),
    received :: non_neg_integer(),
    since :: integer(),
    missed = 0 :: non_neg_integer()
}).

%% checked_at: the time of the last check of the links, in milliseconds of erlang:monotonic_time/1.
%% links: by the names of the peers. silent: peers whose silence is in the log. logged: when a
%% silence was last logged. plain: peers that have connected without an offer, what carries their
%% links, and why. new: links that are not recorded yet, by their peers; since when they are up, by
%% erlang:monotonic_time/0, with a reference for each.
-record(watch, {
    node :: binary(),
    checked_at :: integer(),
    links = #{} :: #{binary() => #link{}},
    silent = #{} :: #{binary() => true},
    logged = #{} :: #{binary() => integer()},
    plain = #{} :: #{binary() => {Fabric :: binary(), Why :: binary()}},
    new = #{} :: #{binary() => {reference(), integer()}}
}).

%% The caller is net_kernel, which listens under this node's name. One process serves all address
%% families.
-spec start(Node :: iolist(), inet_rdma_options:config()) -> ok.
start(Node, Config) ->
    Options = maps:with([flight_recorder, flight_bytes, flight_directory], Config),
    %% An answer that comes later must not reach net_kernel.
    Alias = alias([reply]),
    Start = {?MODULE, start_link, [Alias, unicode:characters_to_binary(Node), Options]},
    case inet_rdma_sup:start_watch(#{id => ?MODULE, start => Start, restart => transient}) of
        {ok, _} ->
            receive
                {Alias, ready} -> ok
            after ?OPEN_MS -> ok
            end;
        {error, {already_started, _}} ->
            ok;
        {error, Why} ->
            ?LOG_WARNING("inet_rdma: no flight recorder, and the node goes on without: ~0tp", [Why])
    end,
    _ = unalias(Alias),
    receive
        {Alias, ready} -> ok
    after 0 -> ok
    end.

%% Does not wait for the file. A process that is started again after its death finds the recorder
%% open.
-spec start_link(reference(), binary(), inet_rdma_options:config()) -> {ok, pid()}.
start_link(Alias, Node, Options) ->
    {ok, proc_lib:spawn_link(?MODULE, init, [Alias, Node, Options])}.

-spec init(reference(), binary(), inet_rdma_options:config()) -> no_return().
init(Alias, Node, Options) ->
    %% The supervisor's exit signal must not overtake the record of the stop.
    _ = process_flag(trap_exit, true),
    true = register(?MODULE, self()),
    _ = monitor(process, net_kernel),
    ok = net_kernel:monitor_nodes(true, [nodedown_reason, {node_type, all}]),
    ok = open(Node, Options),
    Alias ! {Alias, ready},
    Watch = #watch{node = Node, checked_at = erlang:monotonic_time(millisecond)},
    ok = check_later(interval_ms(), Watch),
    inet_rdma_sleeper:run(?MODULE, Watch).

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
    ?LOG_WARNING(
        "inet_rdma: the flight recorder cannot write its file; its events stay in memory, and it "
        "tries again: ~ts; the options flight_directory and flight_bytes say where the file is, "
        "and flight_recorder false turns it off",
        [Why]
    );
log({written, Failures}) ->
    ?LOG_NOTICE(
        "inet_rdma: the flight recorder has written its file, after ~b attempts that failed", [
            Failures
        ]
    ).

-spec handle(term(), #watch{}) -> {ok, #watch{}} | stop.
handle({'DOWN', _Ref, process, _NetKernel, Reason}, Watch) ->
    stopped(Reason, Watch);
handle({'EXIT', _Supervisor, Reason}, Watch) ->
    stopped(Reason, Watch);
%% inet_rdma_nodeup calls it, before the VM knows the link.
handle({plain, Node, Fabric, Why}, #watch{plain = Plain} = Watch) ->
    {ok, Watch#watch{plain = Plain#{Node => {Fabric, Why}}}};
handle({nodeup, Node, Info}, #watch{plain = Plain, new = New} = Watch) when Node =/= node() ->
    Name = atom_to_binary(Node),
    case is_map_key(Name, Plain) andalso proplists:get_value(node_type, Info) =:= hidden of
        true ->
            Ref = make_ref(),
            _ = erlang:send_after(?LASTS_MS, self(), {lasts, Name, Ref}),
            {ok, Watch#watch{new = New#{Name => {Ref, erlang:monotonic_time()}}}};
        false ->
            ok = came_up(Name, 0, Watch),
            {ok, Watch}
    end;
handle({lasts, Name, Ref}, #watch{new = New} = Watch) ->
    case New of
        #{Name := {Ref, Since}} ->
            ok = came_up(Name, erlang:monotonic_time() - Since, Watch),
            {ok, Watch#watch{new = maps:remove(Name, New)}};
        #{} ->
            {ok, Watch}
    end;
handle({nodedown, Node, Info}, #watch{new = New} = Watch) when Node =/= node() ->
    Name = atom_to_binary(Node),
    case is_map_key(Name, New) of
        true ->
            inet_rdma_links:count(short_links);
        false ->
            inet_rdma_recorder:record(nodedown, Node, #{
                cause => proplists:get_value(nodedown_reason, Info)
            })
    end,
    {ok, forget(Name, Watch)};
handle(check, Watch) ->
    %% net_ticktime may be another one since the last check.
    ok = inet_rdma_keeper:ticked(),
    IntervalMs = interval_ms(),
    Checked = check_if_due(IntervalMs, Watch),
    ok = check_later(IntervalMs, Checked),
    {ok, Checked};
%% The flight recorder has news of its file.
handle({file, News}, Watch) ->
    log(News),
    {ok, Watch};
handle(_Message, Watch) ->
    {ok, Watch}.

%% Age: of the link, in native units.
came_up(Name, Age, #watch{plain = Plain}) ->
    _ = [
        begin
            Event = inet_rdma_link_event:new(fallback, Name, Fabric, Why),
            ok = inet_rdma_link_event:record(Event, #{duration => Age}),
            inet_rdma_link_event:log_carried(Event, info)
        end
     || #{Name := {Fabric, Why}} <- [Plain]
    ],
    inet_rdma_recorder:record(nodeup, Name, #{duration => Age}).

stopped(Reason, #watch{node = Node}) ->
    inet_rdma_recorder:record(stop, Node, #{cause => Reason}),
    stop.

%% When the next tick interval of net_kernel is over, or earlier, as net_ticktime may become
%% shorter.
check_later(IntervalMs, #watch{checked_at = CheckedAt}) ->
    LeftMs = CheckedAt + IntervalMs - erlang:monotonic_time(millisecond),
    _ = erlang:send_after(max(1, min(?CHECK_MS_MAX, LeftMs)), self(), check),
    ok.

%% With the bounds that net_kernel has for net_tickintensity.
interval_ms() ->
    Intensity =
        case application:get_env(kernel, net_tickintensity) of
            {ok, Set} when is_integer(Set) -> max(4, min(1000, Set));
            _ -> 4
        end,
    max(1, inet_rdma_keeper:known_tick_time() * 1000 div Intensity).

check_if_due(IntervalMs, #watch{checked_at = CheckedAt} = Watch) ->
    Now = erlang:monotonic_time(millisecond),
    case Now - CheckedAt >= IntervalMs of
        true -> check(Now, Watch#watch{checked_at = Now});
        false -> Watch
    end.

check(Now, #watch{plain = Plain} = Watch) ->
    ok = inet_rdma_modules:load_all(),
    %% A link may have failed before the VM knew it.
    Present = Watch#watch{
        plain = maps:with([Node || #{node := Node} <- inet_rdma_links:all()], Plain)
    },
    lists:foldl(
        fun(Counted, Before) -> check(Counted, Now, Before) end, Present, inet_rdma_info:received()
    ).

check({Node, Controller, Received}, Now, #watch{links = Links} = Watch) ->
    New = #link{controller = Controller, received = Received, since = Now},
    case Links of
        #{
            Node := #link{
                controller = Controller, received = Received, since = Since, missed = Missed
            } = Silent
        } ->
            inet_rdma_recorder:tick(missed, Node, Controller, Now - Since, 0),
            warn(Node, Now - Since, Now, Watch#watch{
                links = Links#{Node := Silent#link{missed = Missed + 1}}
            });
        #{Node := #link{controller = Controller, received = Before, since = Since}} ->
            %% OTP's driver counts in 32 bits.
            inet_rdma_recorder:tick(
                heard, Node, Controller, Now - Since, max(0, Received - Before)
            ),
            heard(Node, Now - Since, Watch#watch{links = Links#{Node := New}});
        #{} ->
            Watch#watch{links = Links#{Node => New}}
    end.

%% Once for each silence.
warn(Node, _Ms, _Now, #watch{silent = Silent} = Watch) when is_map_key(Node, Silent) ->
    Watch;
warn(Node, Ms, Now, #watch{links = Links, silent = Silent, logged = Logged} = Watch) ->
    #{Node := #link{missed = Missed}} = Links,
    Seconds = inet_rdma_keeper:known_tick_time(),
    %% One check alone may be late, as this node was paused.
    IsLong = Missed > 1 andalso Ms >= max(?SILENT_MS_MIN, Seconds * 500),
    case Logged of
        #{Node := Last} when Now - Last < ?LOGGED_MS ->
            Watch;
        #{} when IsLong ->
            ?LOG_WARNING(
                "inet_rdma: nothing has come from ~ts for ~b s: its node or the network stands "
                "still; without a sign of life its link ends when net_ticktime (~b s) is over",
                [Node, Ms div 1000, Seconds]
            ),
            inet_rdma_recorder:record(silent, Node, #{
                duration => erlang:convert_time_unit(Ms, millisecond, native)
            }),
            Watch#watch{silent = Silent#{Node => true}, logged = Logged#{Node => Now}};
        #{} ->
            Watch
    end.

heard(Node, Ms, #watch{silent = Silent} = Watch) when is_map_key(Node, Silent) ->
    ?LOG_NOTICE("inet_rdma: ~ts is heard again after ~b s", [Node, Ms div 1000]),
    inet_rdma_recorder:record(heard, Node, #{
        duration => erlang:convert_time_unit(Ms, millisecond, native)
    }),
    Watch#watch{silent = maps:remove(Node, Silent)};
heard(_Node, _Ms, Watch) ->
    Watch.

forget(
    Node, #watch{links = Links, silent = Silent, logged = Logged, plain = Plain, new = New} = Watch
) ->
    Watch#watch{
        links = maps:remove(Node, Links),
        silent = maps:remove(Node, Silent),
        logged = maps:remove(Node, Logged),
        plain = maps:remove(Node, Plain),
        new = maps:remove(Node, New)
    }.

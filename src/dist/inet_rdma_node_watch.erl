%% A process beside net_kernel that starts the flight recorder and logs when its file cannot be
%% written, records nodes that come and go, checks each link once in a tick interval, and logs when
%% a link is silent for long.
%%
%% Tools that connect for a moment, as each call of rabbitmqctl does, would fill recorder and log:
%% the link of a hidden node that has connected and offers nothing is recorded and logged when it
%% has lasted for a while, else only counted.
%%
%% It checks the links when they tick, as inet_rdma_keeper tells it: a timer of its own would wake
%% schedulers once more in each interval. It has one for a net_kernel that stands still.
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

%% The recorder gets one event for the packets of this number of tick intervals: the writer of its
%% file wakes for each event.
-define(HEARD_TICKS, 4).

%% What a link has received, when this count was first seen, in milliseconds of
%% erlang:monotonic_time/1, and how many checks have seen it since. recorded: that count and time as
%% of the last event heard.
-record(link, {
    controller :: port() | pid(),
    received :: non_neg_integer(),
    since :: integer(),
    missed = 0 :: non_neg_integer(),
    recorded :: {Received :: non_neg_integer(), Since :: integer()}
}).

%% tick_time: the net_ticktime in force, in seconds. checked_at: the time of the last check of the
%% links, in milliseconds of erlang:monotonic_time/1. timer: of the next check, if no link ticks
%% before; none: there was no link.
%% links: by the names of the peers. silent: peers whose silence is in the log. logged: when a
%% silence was last logged. plain: peers that have connected without an offer, what carries their
%% links, and why. new: links that are not recorded yet, by their peers; since when they are up, by
%% erlang:monotonic_time/0, with a reference for each.
-record(watch, {
    node :: binary(),
    tick_time :: pos_integer(),
    checked_at :: integer(),
    timer = none :: none | reference(),
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
    Watch = #watch{
        node = Node,
        tick_time = inet_rdma_keeper:known_tick_time(),
        checked_at = erlang:monotonic_time(millisecond)
    },
    inet_rdma_sleeper:run(?MODULE, check_later(Watch)).

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
            {ok, check_later(Watch#watch{new = New#{Name => {Ref, erlang:monotonic_time()}}})};
        false ->
            ok = came_up(Name, 0, Watch),
            {ok, check_later(Watch)}
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
handle({ticked, Seconds}, Watch) ->
    {ok, check_if_due(Watch#watch{tick_time = Seconds})};
%% No link has ticked. net_ticktime may be another one since.
handle(check, Watch) ->
    ok = inet_rdma_keeper:ticked(),
    {ok, check_if_due(Watch#watch{timer = none})};
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

%% When the ticks of the next interval are late.
check_later(#watch{timer = none} = Watch) ->
    Watch#watch{timer = erlang:send_after(interval_ms(Watch) * 5 div 4, self(), check)};
check_later(Watch) ->
    Watch.

%% net_kernel's tick interval, with its bounds of net_tickintensity.
interval_ms(#watch{tick_time = Seconds}) ->
    Intensity =
        case application:get_env(kernel, net_tickintensity) of
            {ok, Set} when is_integer(Set) -> max(4, min(1000, Set));
            _ -> 4
        end,
    max(1, Seconds * 1000 div Intensity).

%% Ticks may come a little early. Queries of net_kernel count as ticks, too.
check_if_due(#watch{checked_at = CheckedAt} = Watch) ->
    Now = erlang:monotonic_time(millisecond),
    case Now - CheckedAt >= interval_ms(Watch) * 15 div 16 of
        true -> check(Now, stop_timer(Watch#watch{checked_at = Now}));
        false -> check_later(Watch)
    end.

stop_timer(#watch{timer = none} = Watch) ->
    Watch;
stop_timer(#watch{timer = Timer} = Watch) ->
    _ = erlang:cancel_timer(Timer),
    Watch#watch{timer = none}.

check(Now, #watch{plain = Plain} = Watch) ->
    case erlang:system_info(dist_ctrl) of
        [] ->
            Watch;
        [_ | _] ->
            ok = inet_rdma_modules:load_all(),
            %% A link may have failed before the VM knew it.
            Present = maps:with([Node || #{node := Node} <- inet_rdma_links:all()], Plain),
            check_later(
                lists:foldl(
                    fun(Link, Before) -> check_link(Link, Now, Before) end,
                    Watch#watch{plain = Present},
                    inet_rdma_info:received()
                )
            )
    end.

check_link({Node, Controller, Received}, Now, #watch{links = Links} = Watch) ->
    case Links of
        #{Node := #link{controller = Controller, received = Received} = Silent} ->
            #link{since = Since, missed = Missed} = Silent,
            inet_rdma_recorder:tick(missed, Node, Controller, Now - Since, 0),
            warn(Node, Now - Since, Now, Watch#watch{
                links = Links#{Node := Silent#link{missed = Missed + 1}}
            });
        #{Node := #link{controller = Controller, since = Since} = Before} ->
            Link = record_heard(Node, Now, interval_ms(Watch), Before#link{
                received = Received, since = Now
            }),
            heard(Node, Now - Since, Watch#watch{links = Links#{Node := Link}});
        #{} ->
            Link = #link{
                controller = Controller,
                received = Received,
                since = Now,
                recorded = {Received, Now}
            },
            Watch#watch{links = Links#{Node => Link}}
    end.

record_heard(Node, Now, IntervalMs, #link{missed = Missed, recorded = {Before, Since}} = Link) ->
    case Missed > 0 orelse Now - Since >= (2 * ?HEARD_TICKS - 1) * IntervalMs div 2 of
        true ->
            #link{controller = Controller, received = Received} = Link,
            %% OTP's driver counts in 32 bits.
            Packets = max(0, Received - Before),
            inet_rdma_recorder:tick(heard, Node, Controller, Now - Since, Packets),
            Link#link{missed = 0, recorded = {Received, Now}};
        false ->
            Link
    end.

%% Once for each silence.
warn(Node, _Ms, _Now, #watch{silent = Silent} = Watch) when is_map_key(Node, Silent) ->
    Watch;
warn(Node, Ms, Now, #watch{tick_time = Seconds, links = Links, silent = Silent} = Watch) ->
    #{Node := #link{missed = Missed}} = Links,
    %% One check alone may be late, as this node was paused.
    IsLong = Missed > 1 andalso Ms >= max(?SILENT_MS_MIN, Seconds * 500),
    #watch{logged = Logged} = Watch,
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

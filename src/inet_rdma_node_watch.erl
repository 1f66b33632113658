%% A process beside net_kernel that opens the flight recorder, records nodes that come and go, and logs when a link is
%% silent for long.
%%
%% It lives as long as the distribution. It may wait for the disk and for net_kernel. Only the node's start waits for
%% this process, for a moment.
-module(inet_rdma_node_watch).

-export([start/2, look/2, tick_time/0]).
%% Spawned.
-export([init/4]).

-include_lib("kernel/include/logger.hrl").

%% The node's start waits this long for the file of the recorder. Links that come up before it is open are not in it.
-define(OPEN_MS, 1000).

%% How long a caller of tick_time/0 waits for net_kernel.
-define(ANSWER_MS, 1000).

%% Of a supervisor: packets that its link had received, and when that was first seen, in milliseconds as of
%% erlang:monotonic_time/1.
-define(HEARD, {?MODULE, heard}).

%% silent: peers whose silence is in the log.
-record(watch, {node :: binary(), silent = #{} :: #{binary() => true}}).

%% The caller is net_kernel, which listens under this node's name. One process serves all address families.
-spec start(Node :: iolist(), inet_rdma_options:config()) -> ok.
start(Node, Config) ->
    Options = maps:with([flight_recorder, flight_bytes, flight_directory], Config),
    %% An answer that comes later must not reach net_kernel.
    Alias = alias([reply]),
    {Pid, Ref} = spawn_monitor(?MODULE, init, [self(), Alias, unicode:characters_to_binary(Node), Options]),
    receive
        {Alias, ready} -> ok;
        {'DOWN', Ref, process, Pid, _OneIsThere} -> ok
    after ?OPEN_MS ->
        ok
    end,
    demonitor(Ref, [flush]),
    _ = unalias(Alias),
    receive {Alias, ready} -> ok after 0 -> ok end.

%% The calling process supervises a link, and has looked at its counts, as it does at each tick.
-spec look(Node :: binary(), {ok, Received, Sent :: Received, Queued :: Received} | {error, term()}) -> ok when
    Received :: non_neg_integer().
look(Node, {ok, Received, _Sent, _Queued}) ->
    Now = erlang:monotonic_time(millisecond),
    case get(?HEARD) of
        {Received, Since} ->
            inet_rdma_recorder:tick(missed, Node, Now - Since, 0),
            cast({silent, Node, Now - Since});
        {Before, Since} ->
            _ = put(?HEARD, {Received, Now}),
            inet_rdma_recorder:tick(heard, Node, Now - Since, Received - Before),
            cast({heard, Node, Now - Since});
        undefined ->
            _ = put(?HEARD, {Received, Now}),
            ok
    end;
look(_Node, {error, _}) ->
    ok.

cast(Message) ->
    case whereis(?MODULE) of
        undefined -> ok;
        Pid -> Pid ! Message, ok
    end.

-spec init(pid(), reference(), binary(), inet_rdma_options:config()) -> ok.
init(Kernel, Alias, Node, Options) ->
    Ref = monitor(process, Kernel),
    case register_once() of
        ok ->
            ok = net_kernel:monitor_nodes(true, [nodedown_reason, {node_type, all}]),
            ok = open(Node, Options),
            Alias ! {Alias, ready},
            loop(Ref, #watch{node = Node});
        taken ->
            ok
    end.

register_once() ->
    try register(?MODULE, self()) of
        true -> ok
    catch
        error:badarg -> taken
    end.

open(Node, Options) ->
    case inet_rdma_recorder:open(Node, Options) of
        {ok, _File} ->
            inet_rdma_recorder:record(start, Node, #{amount => list_to_integer(os:getpid())});
        disabled ->
            ok;
        {error, Why} ->
            ?LOG_WARNING("inet_rdma: no flight recorder, and the node goes on without: ~ts; the options "
                         "flight_directory and flight_bytes say where it is, and flight_recorder false turns it off",
                         [Why])
    end.

loop(Ref, Watch) ->
    receive
        {'DOWN', Ref, process, _, Reason} ->
            inet_rdma_recorder:record(stop, Watch#watch.node, #{cause => Reason});
        {nodeup, Node, _Info} when Node =/= node() ->
            inet_rdma_recorder:record(nodeup, Node, #{}),
            loop(Ref, Watch);
        {nodedown, Node, Info} when Node =/= node() ->
            inet_rdma_recorder:record(nodedown, Node, #{cause => proplists:get_value(nodedown_reason, Info)}),
            loop(Ref, forget(atom_to_binary(Node), Watch));
        {silent, Node, Ms} ->
            loop(Ref, tell(Node, Ms, Watch));
        {heard, Node, Ms} ->
            loop(Ref, heard(Node, Ms, Watch));
        _ ->
            loop(Ref, Watch)
    end.

%% Logs once for each silence.
tell(Node, _Ms, #watch{silent = Silent} = Watch) when is_map_key(Node, Silent) ->
    Watch;
tell(Node, Ms, #watch{silent = Silent} = Watch) ->
    case tick_time() of
        Seconds when Seconds > 0, Ms >= Seconds * 500 ->
            ?LOG_WARNING("inet_rdma: nothing has come from ~ts for ~b s: its node or the network stands still; without "
                         "a sign of life its link ends when net_ticktime (~b s) is over", [Node, Ms div 1000, Seconds]),
            inet_rdma_recorder:record(silent, Node, #{duration => erlang:convert_time_unit(Ms, millisecond, native)}),
            Watch#watch{silent = Silent#{Node => true}};
        _ ->
            Watch
    end.

heard(Node, Ms, #watch{silent = Silent} = Watch) when is_map_key(Node, Silent) ->
    ?LOG_NOTICE("inet_rdma: ~ts is heard again after ~b s", [Node, Ms div 1000]),
    inet_rdma_recorder:record(heard, Node, #{duration => erlang:convert_time_unit(Ms, millisecond, native)}),
    forget(Node, Watch);
heard(_Node, _Ms, Watch) ->
    Watch.

forget(Node, #watch{silent = Silent} = Watch) -> Watch#watch{silent = maps:remove(Node, Silent)}.

%% The net_ticktime in force, in seconds. 0: not known, as net_kernel is about to end, or does not answer in time: it
%% may wait for a name server.
-spec tick_time() -> non_neg_integer().
tick_time() ->
    case inet_rdma_bounded:call(net_kernel, get_net_ticktime, [], ?ANSWER_MS) of
        {ok, {ongoing_change_to, Seconds}} -> Seconds;
        {ok, Seconds} when is_integer(Seconds) -> Seconds;
        _ -> 0
    end.

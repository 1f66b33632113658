%% A link that has moved: its port, and its guard.
%%
%% The guard owns the connection on which the link began. When that ends it tells the port, which gives the VM the
%% packets that the peer has sent before, and then ends. When the port ends the guard logs the reason and ends, and with
%% it the connection. It hibernates in between: it takes little memory, and keeps no reference to the code of this module.
%% New keys for an encrypted link go by it (inet_rdma_keys). It also tells of stalls.
-module(inet_rdma_link).

-behaviour(inet_rdma_settlement_way).

-export([config/1, reserve/0, open/5, close/1, fabric/1, port/1, start/3, tick/1, getstat/1]).
-export([guard/3, guarding/3]).
-export_type([link/0]).

-include_lib("kernel/include/logger.hrl").

-record(link, {
    port :: port(),
    native :: inet_rdma_nif:link(),
    fabric :: binary(),
    is_encrypted :: boolean()
}).

%% What the guard keeps of a link. since: as of erlang:monotonic_time/0.
%% stalled: since when the peer takes nothing.
-type guarded() :: #{native := inet_rdma_nif:link(), node := binary(), fabric := binary(), since := integer(),
                     stalled := integer() | undefined, keys := inet_rdma_keys:t()}.

-opaque link() :: #link{}.

%% Commands of the port; native/port/src/entry.rs has the same numbers.
-define(CARRY, 1).
-define(START, 2).
-define(TICK, 3).
-define(PACKETS, 4).
-define(PEER_GONE, 5).
-define(WATCH, 6).

%% Of a queue pair for a link: it uses the ring alone, as the VM joins the fragments of a large message by a copy
%% wherever they lie.
-spec config(inet_rdma_options:config()) -> inet_rdma_options:config().
config(Config) -> Config#{mode := dynamic, landing_buffers := 0}.

%% A port for open/5. Err: the VM has no port left, or the driver is gone.
-spec reserve() -> {ok, port()} | {error, inet_rdma:reason()}.
reserve() ->
    try {ok, open_port({spawn_driver, inet_rdma_nif:driver()}, [])}
    catch error:Reason -> {error, {system, opening_a_port, Reason}}
    end.

%% Gives a port that was reserved, and is linked to the caller, the queue pair of an attempt. Nothing is taken from it
%% before start/3. Err: the port is closed. waiting: the outcome is not there yet.
-spec open(port(), inet_rdma_nif:attempt(), Node :: binary(), inet_rdma_options:config(), inet_rdma_nif:protection()) ->
          {ok, link(), Why :: binary()} | waiting | {error, inet_rdma:reason()}.
open(Port, Attempt, Node, Config, Protection) ->
    case inet_rdma_nif:link(Attempt, Node, Config, Protection) of
        {ok, Native, Id, Fabric, Why} ->
            _ = port_control(Port, ?CARRY, <<Id:64/native>>),
            {ok, #link{port = Port, native = Native, fabric = Fabric, is_encrypted = Protection =/= none}, Why};
        waiting ->
            waiting;
        Error ->
            close(Port),
            Error
    end.

%% The link that was opened, or the port that was reserved, is not used.
-spec close(link() | port()) -> ok.
close(#link{port = Port}) ->
    close(Port);
close(Port) ->
    unlink(Port),
    try port_close(Port)
    catch error:badarg -> true
    end,
    ok.

-spec fabric(link()) -> binary().
fabric(#link{fabric = Fabric}) -> Fabric.

-spec port(link()) -> port().
port(#link{port = Port}) -> Port.

%% The VM knows the link: packets may come. The caller owns the connection.
-spec start(link(), inet_rdma_bootstrap:t(), binary()) -> ok | {error, term()}.
start(#link{port = Port, native = Native, fabric = Fabric, is_encrypted = IsEncrypted}, Connection, Node) ->
    Guarded = #{native => Native, node => Node, fabric => Fabric, since => erlang:monotonic_time(),
                stalled => undefined, keys => inet_rdma_keys:new({link, Native}, IsEncrypted)},
    Guard = spawn(?MODULE, guard, [Port, Connection, Guarded]),
    case inet_rdma_bootstrap:give(Connection, Guard) of
        ok ->
            Guard ! {self(), start},
            control(Port, ?START);
        Error ->
            exit(Guard, kill),
            Error
    end.

%% A keepalive: ahead of all that waits, and never waiting. A port that has ended has told the supervisor.
-spec tick(link()) -> ok | {error, closed}.
tick(#link{port = Port}) -> control(Port, ?TICK).

-spec getstat(link()) -> {ok, non_neg_integer(), non_neg_integer(), non_neg_integer()} | {error, closed}.
getstat(#link{port = Port}) ->
    try list_to_binary(port_control(Port, ?PACKETS, [])) of
        <<Received:64/native, Sent:64/native, Queued:64/native>> -> {ok, Received, Sent, Queued}
    catch
        error:badarg -> {error, closed}
    end.

control(Port, Command) ->
    try port_control(Port, Command, []) of
        _ -> ok
    catch
        error:badarg -> {error, closed}
    end.

-spec guard(port(), inet_rdma_bootstrap:t(), guarded()) -> no_return().
guard(Port, Connection, Guarded) ->
    _ = monitor(port, Port),
    receive
        {Supervisor, start} when is_pid(Supervisor) ->
            _ = inet_rdma_bootstrap:watch(Connection),
            _ = control(Port, ?WATCH),
            erlang:hibernate(?MODULE, guarding, [Port, Connection, Guarded]);
        {'DOWN', _, port, Port, _} ->
            ended(Guarded)
    end.

guarding(Port, Connection, #{keys := Keys} = Guarded) ->
    receive
        {'DOWN', _, port, Port, _} ->
            ended(Guarded);
        {'$inet_rdma', Port, key_due} ->
            guard_on(Port, Connection, Guarded, inet_rdma_keys:handle_due(Keys, Connection));
        {'$inet_rdma', Port, stalled} ->
            erlang:hibernate(?MODULE, guarding, [Port, Connection, stalled(Guarded)]);
        {'$inet_rdma', Port, resumed} ->
            erlang:hibernate(?MODULE, guarding, [Port, Connection, resumed(Guarded)]);
        {Tag, _Socket, Bytes} when Tag =:= tcp; Tag =:= ssl ->
            guard_on(Port, Connection, Guarded, inet_rdma_keys:handle_received(Keys, Connection, Bytes));
        {Tag, _Socket} when Tag =:= tcp_closed; Tag =:= ssl_closed ->
            peer_gone(Port, Connection, Guarded);
        {Tag, _Socket, _Reason} when Tag =:= tcp_error; Tag =:= ssl_error ->
            peer_gone(Port, Connection, Guarded);
        {'DOWN', _, process, _Sender, _} ->
            peer_gone(Port, Connection, Guarded);
        _ ->
            erlang:hibernate(?MODULE, guarding, [Port, Connection, Guarded])
    end.

guard_on(Port, Connection, Guarded, {ok, Keys}) ->
    _ = inet_rdma_bootstrap:active_once(Connection),
    erlang:hibernate(?MODULE, guarding, [Port, Connection, Guarded#{keys := Keys}]);
guard_on(Port, Connection, Guarded, {changed, Keys}) ->
    _ = control(Port, ?TICK),
    guard_on(Port, Connection, Guarded, {ok, Keys});
guard_on(Port, Connection, #{node := Node, fabric := Fabric} = Guarded, {error, Why}) ->
    ?LOG_WARNING("inet_rdma: the link to ~ts ends: ~ts", [Node, Why],
                 inet_rdma_link_event:metadata(inet_rdma_link_event:new(down, Node, Fabric, Why))),
    exit(Port, connection_closed),
    erlang:hibernate(?MODULE, guarding, [Port, Connection, Guarded]).

peer_gone(Port, Connection, Guarded) ->
    _ = control(Port, ?PEER_GONE),
    erlang:hibernate(?MODULE, guarding, [Port, Connection, Guarded]).

stalled(#{node := Node, fabric := Fabric} = Guarded) ->
    Why = <<"the peer takes nothing, and senders wait">>,
    Event = inet_rdma_link_event:new(stalled, Node, Fabric, Why),
    ?LOG_NOTICE("inet_rdma: the link to ~ts stalls: ~ts", [Node, Why], inet_rdma_link_event:metadata(Event)),
    inet_rdma_link_event:tell(Event, #{count => 1}),
    Guarded#{stalled := erlang:monotonic_time()}.

resumed(#{stalled := undefined} = Guarded) ->
    Guarded;
resumed(#{node := Node, fabric := Fabric, stalled := Since} = Guarded) ->
    Duration = erlang:monotonic_time() - Since,
    Why = <<"the peer takes bytes again">>,
    Event = inet_rdma_link_event:new(resumed, Node, Fabric, Why),
    ?LOG_NOTICE("inet_rdma: the link to ~ts resumes after ~b ms: ~ts",
                [Node, erlang:convert_time_unit(Duration, native, millisecond), Why],
                inet_rdma_link_event:metadata(Event)),
    inet_rdma_link_event:tell(Event, #{count => 1, duration => Duration}),
    Guarded#{stalled := undefined}.

ended(#{native := Native, node := Node, fabric := Fabric, since := Since}) ->
    Reason = link_end(Native),
    Why = unicode:characters_to_binary(why(Reason)),
    Event = inet_rdma_link_event:new(down, Node, Fabric, Why, Reason),
    is_usual(Reason) orelse
        ?LOG_WARNING("inet_rdma: the link to ~ts ended: ~ts", [Node, Why], inet_rdma_link_event:metadata(Event)),
    inet_rdma_link_event:tell(Event, #{count => 1, duration => erlang:monotonic_time() - Since}).

is_usual(Reason) -> lists:member(Reason, [closed, peer_gone, unknown]).

why(unknown) -> "its port was closed";
why(Reason) -> inet_rdma:format_error(Reason).

%% The term is of no use any more once inet_rdma_nif was loaded anew.
link_end(Native) ->
    try inet_rdma_nif:link_end(Native) of
        up -> unknown;
        Reason -> Reason
    catch
        error:badarg -> unknown
    end.

%% Links without a session, which began inside TLS, and which a queue pair carries.
%%
%% The guard of such a link (inet_rdma_guard) owns the connection on which the link began. When the connection ends, the
%% guard tells the port, which gives the VM the packets that the peer has sent before, and then ends. When the port
%% ends, the guard logs the reason and ends, and the connection with it. The guard exchanges new keys for an encrypted
%% link (inet_rdma_keys).
-module(inet_rdma_link).

-behaviour(inet_rdma_settlement_path).
-behaviour(inet_rdma_guard).

-export([config/1, reserve/0, open/5, close/1, start/3]).
%% Used by the guard.
-export([guard/1, handle/2]).

%% What the guard knows: a map, as it lives on while modules with other fields are loaded. fault: why the link ends for
%% want of a new key.
-type guarded() :: #{port := port(), connection := inet_rdma_transport:t(), queue := inet_rdma_queue:t(),
                     keys := inet_rdma_keys:t(), log := inet_rdma_link_log:t(),
                     fault := none | inet_rdma_keys:fault()}.

-spec config(inet_rdma_options:config()) -> inet_rdma_options:config().
config(Config) -> inet_rdma_queue:config(Config).

%% A port for open/5.
-spec reserve() -> {ok, port()} | {error, inet_rdma:reason()}.
reserve() -> inet_rdma_port:open().

%% Gives a port that was reserved, and is linked to the caller, the queue pair of an attempt. The port reads nothing
%% from the queue pair before start/3. error: the port is closed. waiting: the outcome is not there yet.
-spec open(port(), inet_rdma_nif:attempt(), Node :: binary(), inet_rdma_options:config(), inet_rdma_nif:protection()) ->
          {ok, inet_rdma_queue:t(), Why :: binary()} | waiting | {error, inet_rdma:reason()}.
open(Port, Attempt, Node, Config, Protection) ->
    case inet_rdma_queue:open(Port, 0, Attempt, Node, Config, Protection) of
        {error, Reason} ->
            inet_rdma_port:close(Port),
            {error, Reason};
        Opened ->
            Opened
    end.

%% Gives up a link that was opened, or a port that was reserved.
-spec close(inet_rdma_queue:t() | port()) -> ok.
close(Port) when is_port(Port) -> inet_rdma_port:close(Port);
close(Link) -> inet_rdma_port:close(inet_rdma_queue:port(Link)).

%% The VM knows the link: packets may come. The caller owns the connection.
-spec start(inet_rdma_queue:t(), inet_rdma_transport:t(), binary()) -> ok | {error, term()}.
start(Link, Connection, Node) ->
    Port = inet_rdma_queue:port(Link),
    Guard = spawn(?MODULE, guard, [#{port => Port, connection => Connection, queue => Link,
                                     keys => inet_rdma_queue:keys(Link), log => inet_rdma_link_log:new(Node),
                                     fault => none}]),
    case inet_rdma_transport:give(Connection, Guard) of
        ok ->
            Guard ! {self(), start},
            inet_rdma_port:start(Port);
        Error ->
            exit(Guard, kill),
            Error
    end.

-spec guard(guarded()) -> ok.
guard(#{port := Port, connection := Connection} = Guarded) ->
    _ = monitor(port, Port),
    ok = inet_rdma_recorder:of_port(Port),
    receive
        {Supervisor, start} when is_pid(Supervisor) ->
            _ = inet_rdma_transport:watch(Connection),
            _ = inet_rdma_port:command(Port, watch),
            inet_rdma_guard:run(?MODULE, Guarded);
        {'DOWN', _, port, Port, Exit} ->
            ended(Exit, Guarded)
    end.

-spec handle(term(), guarded()) -> {ok, guarded()} | stop.
handle({'DOWN', _Ref, port, Port, Exit}, #{port := Port} = Guarded) ->
    ok = ended(Exit, Guarded),
    stop;
handle({'DOWN', _, process, _Sender, _}, Guarded) ->
    {ok, keys_handled(gone, Guarded)};
handle({'$inet_rdma', Port, stalled, _State}, #{port := Port, log := Log} = Guarded) ->
    {ok, Guarded#{log := inet_rdma_link_log:stalled({fabric(Guarded), event}, Log)}};
handle({'$inet_rdma', Port, stall_ended, _State}, #{port := Port, log := Log} = Guarded) ->
    {ok, Guarded#{log := inet_rdma_link_log:stall_ended({fabric(Guarded), event}, Log)}};
handle(Message, #{connection := Connection, keys := Keys} = Guarded) ->
    {ok, keys_handled(inet_rdma_keys:handle(Message, Keys, Connection), Guarded)}.

keys_handled({ok, Keys}, Guarded) ->
    Guarded#{keys := Keys};
keys_handled({changed, Keys}, #{port := Port} = Guarded) ->
    %% A tick shows the peer that this side seals with another key.
    _ = inet_rdma_port:command(Port, tick),
    Guarded#{keys := Keys};
keys_handled(gone, #{port := Port} = Guarded) ->
    _ = inet_rdma_port:command(Port, peer_gone),
    Guarded;
keys_handled(unknown, Guarded) ->
    Guarded;
keys_handled({error, Fault}, #{port := Port} = Guarded) ->
    exit(Port, connection_closed),
    Guarded#{fault := Fault}.

fabric(#{queue := Queue}) -> inet_rdma_queue:fabric(Queue).

%% The port has ended with this exit reason.
ended(Exit, #{queue := Queue, fault := Fault, log := Log} = Guarded) ->
    Ending = case Fault of
                 none -> inet_rdma_queue:ended(Queue);
                 _ -> inet_rdma_link_log:ended_by(Fault)
             end,
    inet_rdma_link_log:ended(Exit, Ending, fabric(Guarded), Log).

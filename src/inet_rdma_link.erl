%% Links without a session, which began inside TLS, and which a queue pair carries.
%%
%% The guard of such a link (inet_rdma_link_guard) owns the connection on which the link began. When the connection
%% ends, the guard tells the port, which gives the VM the packets that the peer has sent before, and then ends. When the
%% port ends, the guard logs the reason and ends, and the connection with it. The guard exchanges new keys for an
%% encrypted link (inet_rdma_keys).
-module(inet_rdma_link).

-behaviour(inet_rdma_settlement_way).
-behaviour(inet_rdma_link_guard).

-export([config/1, reserve/0, open/5, close/1, start/3]).
%% Used by the guard.
-export([guard/3, handle/2, carried/1, ended/1]).

%% State of the guard.
-record(guarded, {
    port :: port(),
    connection :: inet_rdma_transport:t(),
    queue :: inet_rdma_queue:t(),
    keys :: inet_rdma_keys:t(),
    %% Why the link ends for want of a new key.
    fault = none :: none | inet_rdma_keys:fault()
}).

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
    Guarded = #guarded{port = Port, connection = Connection, queue = Link, keys = inet_rdma_queue:keys(Link)},
    Guard = spawn(?MODULE, guard, [Port, Connection, inet_rdma_link_guard:new(?MODULE, Port, Node, Guarded)]),
    case inet_rdma_transport:give(Connection, Guard) of
        ok ->
            Guard ! {self(), start},
            inet_rdma_port:start(Port);
        Error ->
            exit(Guard, kill),
            Error
    end.

-spec guard(port(), inet_rdma_transport:t(), inet_rdma_link_guard:t()) -> ok.
guard(Port, Connection, Guard) ->
    _ = monitor(port, Port),
    receive
        {Supervisor, start} when is_pid(Supervisor) ->
            _ = inet_rdma_transport:watch(Connection),
            _ = inet_rdma_port:command(Port, watch),
            inet_rdma_link_guard:run(Guard);
        {'DOWN', _, port, Port, Exit} ->
            inet_rdma_link_guard:stop(Exit, Guard)
    end.

-spec handle(term(), #guarded{}) -> #guarded{}.
handle({'DOWN', _, process, _Sender, _}, Guarded) ->
    handled(gone, Guarded);
handle(Message, #guarded{connection = Connection, keys = Keys} = Guarded) ->
    handled(inet_rdma_keys:handle(Message, Keys, Connection), Guarded).

handled({ok, Keys}, Guarded) ->
    Guarded#guarded{keys = Keys};
handled({changed, Keys}, #guarded{port = Port} = Guarded) ->
    %% A tick shows the peer that this side seals with another key.
    _ = inet_rdma_port:command(Port, tick),
    Guarded#guarded{keys = Keys};
handled(gone, #guarded{port = Port} = Guarded) ->
    _ = inet_rdma_port:command(Port, peer_gone),
    Guarded;
handled(unknown, Guarded) ->
    Guarded;
handled({error, Fault}, #guarded{port = Port} = Guarded) ->
    exit(Port, connection_closed),
    Guarded#guarded{fault = Fault}.

-spec carried(#guarded{}) -> {Fabric :: binary(), event}.
carried(#guarded{queue = Queue}) -> {inet_rdma_queue:fabric(Queue), event}.

-spec ended(#guarded{}) -> inet_rdma_link_guard:ending().
ended(#guarded{fault = none, queue = Queue}) -> inet_rdma_queue:ended(Queue);
ended(#guarded{fault = Fault}) -> inet_rdma_link_guard:ended_by(Fault).

%% The keys of the queue pair that carries a session: the messages about them (inet_rdma_keys) go in band of the
%% session, and each key is replaced after the time of the option rekey_seconds, or when the port asks for that.
-module(inet_rdma_session_keys).

-export([new/1, handle_settling/1, handle_queue/2, handle_due/2, handle_timer/3, keep_early/2, handle_received/3,
         handle_restored/2]).
-export_type([t/0]).

-record(keys, {
    rekey_seconds :: non_neg_integer(),
    %% none: TCP carries the session, or the queue pair is not encrypted.
    keys = none :: inet_rdma_keys:t(),
    %% The timer until the next key.
    timer = none :: none | reference(),
    %% Messages of the peer that arrived while this side settles, last first.
    early = [] :: [binary()]
}).

-opaque t() :: #keys{}.

%% A key and its answer: no further message can arrive before both sides know of the queue pair.
-define(EARLY_MAX, 2).

-spec new(inet_rdma_options:config()) -> t().
new(#{rekey_seconds := Seconds}) -> #keys{rekey_seconds = Seconds}.

%% This side begins to settle.
-spec handle_settling(t()) -> t().
handle_settling(Keys) -> Keys#keys{early = []}.

%% This queue pair carries the session from now on; none: TCP does. The caller handles the early messages, in their
%% order.
-spec handle_queue(inet_rdma_queue:t() | none, t()) -> {Early :: [binary()], t()}.
handle_queue(none, Keys) ->
    {[], Keys#keys{keys = none, timer = none}};
handle_queue(Queue, #keys{early = Early} = Keys) ->
    {lists:reverse(Early), start_timer(Keys#keys{keys = inet_rdma_queue:keys(Queue), early = []})}.

start_timer(#keys{keys = Keys, rekey_seconds = Seconds} = State) when Keys =/= none, Seconds > 0 ->
    State#keys{timer = erlang:start_timer(Seconds * 1000, self(), rekey)};
start_timer(State) ->
    State.

%% The key in use nears its limit.
-spec handle_due(inet_rdma_transport:t(), t()) -> t().
handle_due(Connection, #keys{keys = Keys} = State) ->
    {ok, Told} = inet_rdma_keys:handle_due(Keys, Connection),
    State#keys{keys = Told}.

%% The message {timeout, Timer, rekey}.
-spec handle_timer(reference(), inet_rdma_transport:t(), t()) -> t().
handle_timer(Timer, Connection, #keys{timer = Timer} = State) -> start_timer(handle_due(Connection, State));
handle_timer(_Old, _Connection, State) -> State.

%% A message about keys that arrived while this side settles, and does not know the queue pair yet.
-spec keep_early(binary(), t()) -> t().
keep_early(Bytes, #keys{early = Early} = State) when length(Early) < ?EARLY_MAX -> State#keys{early = [Bytes | Early]};
keep_early(_Bytes, State) -> State.

%% A message of the peer's guard about the keys in use. changed: from here on this side seals with another key.
-spec handle_received(binary(), inet_rdma_transport:t(), t()) -> {ok | changed, t()} | {error, inet_rdma_keys:fault()}.
handle_received(Bytes, Connection, #keys{keys = Keys} = State) ->
    case inet_rdma_keys:handle_received(Keys, Connection, Bytes) of
        {error, Fault} -> {error, Fault};
        {Handled, Next} -> {Handled, State#keys{keys = Next}}
    end.

%% The session has another TCP connection: repeats a message that may be lost with the one before.
-spec handle_restored(inet_rdma_transport:t(), t()) -> ok.
handle_restored(Connection, #keys{keys = Keys}) -> inet_rdma_keys:handle_restored(Keys, Connection).

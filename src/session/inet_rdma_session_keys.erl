%% The keys of the queue pair that carries a session: the messages about them (inet_rdma_keys) go in band of the
%% session, and each key is replaced after the time of the option rekey_seconds, or when the port asks for that.
-module(inet_rdma_session_keys).

-export([is_of_keys/1, new/1, handle_settling/1, handle_queue/2, handle_due/2, handle_timeout/2,
         keep_early/2, handle_received/3, handle_restored/2]).
-export_type([t/0]).

%% keys: none: TCP carries the session, or the queue pair is not encrypted. early: messages of the peer that arrived
%% while this side settles, last first. timer: what the guard does with its timeout `rekey'.
-type t() :: #{rekey_seconds := non_neg_integer(), keys := inet_rdma_keys:t(), early := [binary()],
               timer := inet_rdma_session_guard:timer()}.

%% A key and its answer: no further message can arrive before both sides know of the queue pair.
-define(EARLY_MAX, 2).

%% First byte of a message about keys, to the peer's guard.
-define(KEYS, $k).

%% Tells whether an in-band message of the peer's guard is about keys, and gives the message. Messages of a settlement
%% begin with another byte (131).
-spec is_of_keys(binary()) -> {true, binary()} | false.
is_of_keys(<<?KEYS, Bytes/binary>>) -> {true, Bytes};
is_of_keys(_) -> false.

in_band(Session) -> fun(Bytes) -> inet_rdma_session:send_message(Session, <<?KEYS, Bytes/binary>>) end.

-spec new(inet_rdma_options:config()) -> t().
new(#{rekey_seconds := Seconds}) -> #{rekey_seconds => Seconds, keys => none, early => [], timer => keep}.

-spec handle_settling(t()) -> t().
handle_settling(Keys) -> Keys#{early := []}.

%% This queue pair carries the session from now on; none: TCP does. The caller handles the early messages, in their
%% order.
-spec handle_queue(inet_rdma_queue:t() | none, t()) -> {Early :: [binary()], t()}.
handle_queue(none, Keys) ->
    {[], Keys#{keys := none, timer := infinity}};
handle_queue(Queue, #{early := Early} = Keys) ->
    {lists:reverse(Early), start_timer(Keys#{keys := inet_rdma_queue:keys(Queue), early := []})}.

start_timer(#{keys := Keys, rekey_seconds := Seconds} = State) when Keys =/= none, Seconds > 0 ->
    State#{timer := Seconds * 1000};
start_timer(State) ->
    State.

%% The key in use nears its limit.
-spec handle_due(inet_rdma_session:t(), t()) -> t().
handle_due(Session, #{keys := Keys} = State) ->
    {ok, Told} = inet_rdma_keys:handle_due(Keys, in_band(Session)),
    State#{keys := Told}.

-spec handle_timeout(inet_rdma_session:t(), t()) -> t().
handle_timeout(Session, State) -> start_timer(handle_due(Session, State)).

%% A message about keys that arrived while this side settles, and does not know the queue pair yet.
-spec keep_early(binary(), t()) -> t().
keep_early(Bytes, #{early := Early} = State) when length(Early) < ?EARLY_MAX -> State#{early := [Bytes | Early]};
keep_early(_Bytes, State) -> State.

%% A message of the peer's guard about the keys in use. changed: from here on this side seals with another key.
-spec handle_received(binary(), inet_rdma_session:t(), t()) -> {ok | changed, t()} | {error, inet_rdma_keys:fault()}.
handle_received(Bytes, Session, #{keys := Keys} = State) ->
    case inet_rdma_keys:handle_received(Keys, in_band(Session), Bytes) of
        {error, Fault} -> {error, Fault};
        {Handled, Next} -> {Handled, State#{keys := Next}}
    end.

%% The session has another TCP connection: repeats a message that may be lost with the one before.
-spec handle_restored(inet_rdma_session:t(), t()) -> ok.
handle_restored(Session, #{keys := Keys}) -> inet_rdma_keys:handle_restored(Keys, in_band(Session)).

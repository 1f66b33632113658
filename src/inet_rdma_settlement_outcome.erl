%% How a settlement ends where nothing moves.
-module(inet_rdma_settlement_outcome).

-export([stay/2, stay/4, break_off/2, broken_off/1]).
-export_type([t/0]).

-include("inet_rdma_settling.hrl").

-type t() :: {move, inet_rdma_settlement_way:opened(), Why :: binary()}
           %% Tried: the fabrics that both nodes could go, and that failed.
           | {stay, Why :: binary(), Tried :: [shm | verbs]}
           | {refuse, Why :: binary()}
           | {error, Why :: binary()}.

-spec stay(#settling{}, Why :: binary()) -> t().
stay(#settling{config = Config, peer = Peer, tried = Tried}, Why) ->
    stay(Why, Config, Peer, Tried).

%% Peer: its offer, or its facts.
-spec stay(Why :: binary(), inet_rdma_options:config(), Peer :: map(), Tried :: [shm | verbs]) -> t().
stay(Why, #{required := Own}, Peer, Tried) ->
    case Own orelse maps:get(required, Peer, false) of
        true -> {refuse, Why};
        false -> {stay, Why, Tried}
    end.

%% The sides do not know any more which message comes next: the link ends, and the next one is not settled for a while.
-spec break_off(#settling{}, Why :: binary()) -> {error, Why :: binary()}.
break_off(#settling{node = Node, config = #{fallback_retry_ms := RetryMs}}, Why) ->
    Node =:= none orelse inet_rdma_links:failed(settlement(Node), Why, RetryMs),
    {error, inet_rdma_settlement_message:text("the settlement broke off: ~ts", [Why])}.

%% Why the last settlement with a node broke off, and how long no other is tried.
-spec broken_off(Node :: binary()) -> none | {Why :: binary(), LeftMs :: pos_integer()}.
broken_off(Node) -> inet_rdma_links:failure(settlement(Node)).

%% In the memory for ways that have failed. It holds for each VM of that name: the peer has not told its VM's number.
settlement(Node) -> {Node, 0, settlement}.

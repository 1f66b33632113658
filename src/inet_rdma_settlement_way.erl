%% The ways of a settlement: which fabrics can carry the link, and how a queue pair of one becomes a link.
-module(inet_rdma_settlement_way).

-export([obstacle/2, failed/3, tried/2, config/2, open/3, open/4, shm_address/0]).
-export([key/1, keys/3]).

-include("inet_rdma_settling.hrl").

-import(inet_rdma_settlement_message, [reason/1, text/2, broken/1]).

-type fabric() :: shm | verbs.

%% The reason not to try a fabric, or none.
-spec obstacle(fabric(), #settling{}) -> none | Why :: binary().
obstacle(Fabric, #settling{own = Own, peer = Peer} = Settling) ->
    case obstacle(Fabric, Own, Peer) of
        none -> recent_failure(inet_rdma_links:failure(way(Settling, Fabric)));
        Why -> Why
    end.

recent_failure(none) -> none;
recent_failure({Reason, LeftMs}) ->
    text("it failed lately and is tried again in ~b s: ~ts", [LeftMs div 1000 + 1, Reason]).

way(#settling{node = Node, peer = #{instance := Instance}}, Fabric) -> {Node, Instance, Fabric}.

obstacle(_Fabric, #{fabric := none}, _Peer) ->
    <<"the native library of this node could not be loaded, its log says why">>;
obstacle(_Fabric, _Own, #{fabric := none}) ->
    <<"the native library of the peer could not be loaded, its log says why">>;
obstacle(Fabric, #{fabric := Own}, _Peer) when Own =/= auto, Own =/= Fabric ->
    text("the option fabric of this node is ~ts", [Own]);
obstacle(Fabric, _Own, #{fabric := Theirs}) when Theirs =/= auto, Theirs =/= Fabric ->
    text("the option fabric of the peer is ~ts", [Theirs]);
obstacle(shm, #{boot := Boot, netns := Namespace, user := User}, #{boot := Boot, netns := Namespace, user := User}) when
    Boot =/= <<>>
->
    none;
obstacle(shm, #{boot := Boot, netns := Namespace}, #{boot := Boot, netns := Namespace}) when Boot =/= <<>> ->
    <<"the peer runs as another user">>;
obstacle(shm, #{boot := Boot}, #{boot := Boot}) when Boot =/= <<>> ->
    <<"the peer is on this host, but in another network namespace">>;
obstacle(shm, _Own, _Peer) ->
    <<"the peer is on another host">>;
obstacle(verbs, _Own, _Peer) ->
    case inet_rdma_nif:check_verbs() of
        ok -> none;
        {error, Reason} -> reason(Reason)
    end.

%% Remembered for the option fallback_retry_ms, unless the peer is restarted.
-spec failed(#settling{}, fabric(), Why :: binary()) -> ok.
failed(#settling{config = #{fallback_retry_ms := RetryMs}} = Settling, Fabric, Why) ->
    inet_rdma_links:failed(way(Settling, Fabric), Why, RetryMs).

-spec tried(#settling{}, fabric()) -> #settling{}.
tried(#settling{tried = Tried} = Settling, Fabric) ->
    Settling#settling{tried = ordsets:add_element(Fabric, Tried)}.

%% Of this host: shm needs no address.
-spec shm_address() -> binary().
shm_address() -> <<"127.0.0.1">>.

%% Of the queue pair.
-spec config(#settling{}, fabric()) -> inet_rdma_options:config().
config(#settling{config = Config}, Fabric) -> (link_config(Config))#{fabric := Fabric}.

%% A link uses the ring alone: the VM joins the fragments of a large message by a copy wherever they lie.
link_config(Config) -> Config#{mode := dynamic, landing_buffers := 0}.

%% A fresh key for what this side sends, to be told to the peer; over TCP there is none to tell it by.
-spec key(#settling{}) -> none | inet_rdma_nif:key().
key(#settling{connection = Connection}) ->
    case inet_rdma_bootstrap:protocol(Connection) of
        tcp -> none;
        tls -> crypto:strong_rand_bytes(32)
    end.

%% The keys of the way that is tried.
-spec keys(#settling{}, Send, Receive) -> #settling{} when Send :: none | inet_rdma_nif:key(), Receive :: Send.
keys(Settling, none, none) -> Settling#settling{keys = none};
keys(_Settling, _Send, none) -> broken(<<"the peer tells no key">>);
keys(Settling, Send, Receive) -> Settling#settling{keys = {Send, Receive}}.

%% As inet_rdma_link:open/4 and open/5.
-spec open(#settling{}, fabric(), inet_rdma_nif:attempt()) ->
          {ok, inet_rdma_link:link(), Why :: binary()} | {error, inet_rdma:reason()}.
open(#settling{node = Node, config = Config} = Settling, Fabric, Attempt) ->
    inet_rdma_link:open(Attempt, Node, link_config(Config), protection(Settling, Fabric)).

-spec open(#settling{}, fabric(), port(), inet_rdma_nif:attempt()) ->
          {ok, inet_rdma_link:link(), Why :: binary()} | waiting | {error, inet_rdma:reason()}.
open(#settling{node = Node, config = Config} = Settling, Fabric, LinkPort, Attempt) ->
    inet_rdma_link:open(LinkPort, Attempt, Node, link_config(Config), protection(Settling, Fabric)).

%% A link that began inside TLS leaves it for no weaker way. Memory that the kernel gives to processes of one user alone is
%% none, unless one of the nodes wants it encrypted, too.
protection(#settling{keys = none}, _Fabric) ->
    none;
protection(#settling{own = #{encrypt_shm := false}, peer = #{encrypt_shm := false}}, shm) ->
    none;
protection(#settling{keys = {Send, Receive}, config = #{rekey_bytes := Bytes}} = Settling, _Fabric) ->
    #{cipher => cipher(Settling), send_key => Send, receive_key => Receive, renew_bytes => Bytes}.

%% The acceptor's.
cipher(#settling{role = acceptor, own = #{cipher := Cipher}}) -> Cipher;
cipher(#settling{role = initiator, peer = #{cipher := Cipher}}) -> Cipher.

%% The ways of a settlement: which fabrics can carry a link or a stream, and how a queue pair of one becomes that.
%%
%% The callbacks are those of what is settled: inet_rdma_link, inet_rdma_stream.
-module(inet_rdma_settlement_way).

-export([obstacle/2, failed/3, tried/2, config/2, reserve/1, open/3, open/4, close/2, drop/2, tick/2, shm_address/0]).
-export([key/1, keys/3]).

-include("inet_rdma_settling.hrl").

-import(inet_rdma_settlement_message, [reason/1, text/2, broken/1]).

-export_type([place/0, opened/0]).

-type fabric() :: shm | verbs.
%% What is reserved before the queue pair is there: a link's port.
-type place() :: port() | none.
-type opened() :: inet_rdma_link:link() | inet_rdma_stream:stream().

%% Of the queue pair.
-callback config(inet_rdma_options:config()) -> inet_rdma_options:config().
-callback reserve() -> {ok, place()} | {error, inet_rdma:reason()}.
%% Err: the place is given back. waiting: the outcome of the attempt is not there yet.
-callback open(place(), inet_rdma_nif:attempt(), Node :: binary() | none, inet_rdma_options:config(),
               inet_rdma_nif:protection()) ->
    {ok, opened(), Why :: binary()} | waiting | {error, inet_rdma:reason()}.
%% Is not used.
-callback close(opened() | place()) -> ok.
%% A keepalive of the side that has connected.
-callback tick(opened()) -> ok | {error, closed}.

%% The reason not to try a fabric, or none.
-spec obstacle(fabric(), #settling{}) -> none | Why :: binary().
obstacle(Fabric, #settling{node = none, own = Own, peer = Peer}) ->
    obstacle(Fabric, Own, Peer);
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

%% Remembered for the option fallback_retry_ms, unless the peer is restarted. Not of a stream, which has nothing to stay
%% on.
-spec failed(#settling{}, fabric(), Why :: binary()) -> ok.
failed(#settling{node = none}, _Fabric, _Why) ->
    ok;
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
config(#settling{module = Module, config = Config}, Fabric) -> (Module:config(Config))#{fabric := Fabric}.

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
%% A record of one direction would be one of the other.
keys(_Settling, Key, Key) -> broken(<<"the peer tells the key that this node has told">>);
keys(Settling, Send, Receive) -> Settling#settling{keys = {Send, Receive}}.

-spec reserve(#settling{}) -> {ok, place()} | {error, inet_rdma:reason()}.
reserve(#settling{module = Module}) -> Module:reserve().

-spec open(#settling{}, fabric(), inet_rdma_nif:attempt()) ->
          {ok, opened(), Why :: binary()} | {error, inet_rdma:reason()}.
open(Settling, Fabric, Attempt) ->
    case reserve(Settling) of
        {ok, Place} ->
            case open(Settling, Fabric, Place, Attempt) of
                waiting -> close(Settling, Place), {error, timeout};
                Opened -> Opened
            end;
        Error ->
            ok = inet_rdma_nif:drop_attempt(Attempt),
            Error
    end.

%% In a place that was reserved.
-spec open(#settling{}, fabric(), place(), inet_rdma_nif:attempt()) ->
          {ok, opened(), Why :: binary()} | waiting | {error, inet_rdma:reason()}.
open(#settling{module = Module, node = Node, config = Config} = Settling, Fabric, Place, Attempt) ->
    Module:open(Place, Attempt, Node, Module:config(Config), protection(Settling, Fabric)).

-spec close(#settling{}, opened() | place()) -> ok.
close(#settling{module = Module}, Opened) -> Module:close(Opened).

%% The attempt, of which the caller is or may be told, is given up.
-spec drop(inet_rdma_nif:attempt(), Id :: pos_integer()) -> ok.
drop(Attempt, Id) ->
    ok = inet_rdma_nif:drop_attempt(Attempt),
    receive {'$inet_rdma', Id, connected} -> ok after 0 -> ok end.

-spec tick(#settling{}, opened()) -> ok | {error, closed}.
tick(#settling{module = Module}, Opened) -> Module:tick(Opened).

%% What began inside TLS leaves it for no weaker way. Memory that the kernel gives to processes of one user alone is
%% none, unless one of the nodes wants it encrypted, too.
protection(#settling{keys = none}, _Fabric) ->
    none;
protection(#settling{own = #{encrypt_shm := false}, peer = #{encrypt_shm := false}}, shm) ->
    none;
protection(#settling{keys = {Send, Receive}, config = #{rekey_bytes := Bytes}} = Settling, _Fabric) ->
    #{cipher => cipher(Settling), send_key => Send, receive_key => Receive, renew_bytes => Bytes}.

%% The acceptor's.
cipher(#settling{role = acceptor, own = #{cipher := Cipher}}) -> Cipher;
cipher(#settling{role = initiator, peer = #{cipher := none}}) -> broken(<<"the peer names no cipher">>);
cipher(#settling{role = initiator, peer = #{cipher := Cipher}}) -> Cipher.

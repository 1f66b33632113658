%% The keys of an encrypted queue pair, which the two nodes tell each other in a settlement: over
%% the TLS connection on which a link or stream began, or in band of a session.
%%
%% Each direction has a key of its own, fresh for each way that the sides try. The native library
%% derives all further keys from it, so no message brings one (native/core/records).
-module(inet_rdma_keys).

-export([first/1, pair/2, protection/3]).
-export_type([pair/0]).

%% none: the way is not encrypted.
-type pair() :: none | {Send :: inet_rdma_nif:key(), Receive :: inet_rdma_nif:key()}.

%% A key for the direction from this side; none over TCP, where the key could only be sent in clear.
-spec first(tcp | tls) -> none | inet_rdma_nif:key().
first(tcp) -> none;
first(tls) -> fresh().

%% On a machine that is restored from a snapshot OpenSSL's generator gives its bytes again. The
%% nonce is another one.
fresh() -> crypto:hash(sha256, [crypto:strong_rand_bytes(32), inet_rdma_nif:nonce()]).

%% The key that this side has sent, and the peer's.
-spec pair(Send, Receive) -> {ok, pair()} | {error, Why :: binary()} when
    Send :: none | inet_rdma_nif:key(), Receive :: Send.
pair(none, none) -> {ok, none};
pair(_Send, none) -> {error, <<"the peer tells no key">>};
%% Refuses one key for both directions: an attacker could replay a record of one direction in the
%% other.
pair(Key, Key) -> {error, <<"the peer sends the key that this node has sent">>};
pair(Send, Receive) -> {ok, {Send, Receive}}.

%% The keys in the form that the native library takes.
-spec protection(
    {Send :: inet_rdma_nif:key(), Receive :: inet_rdma_nif:key()},
    inet_rdma_nif:cipher(),
    inet_rdma_options:config()
) -> inet_rdma_nif:protection().
protection({Send, Receive}, Cipher, #{rekey_bytes := Bytes, rekey_seconds := Seconds}) ->
    #{
        cipher => Cipher,
        send_key => Send,
        receive_key => Receive,
        rekey_bytes => Bytes,
        rekey_seconds => Seconds
    }.

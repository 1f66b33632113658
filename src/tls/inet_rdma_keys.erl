%% The keys of an encrypted queue pair, which the two nodes tell each other over the TLS connection on which a stream
%% began, or in band of a session.
%%
%% Each direction has keys of its own, with generations. The sides tell each other the keys of generation 0 in the
%% settlement, fresh for each way that they try (first/1, pair/2). When a key nears its limit, the native side tells the
%% guard of the sending side, which makes the next key and sends {key, Generation, Key}. The peer's guard installs the
%% key and answers {key_installed, Generation}; only then does the sending side seal with it. Each record names its
%% generation, so packets flow meanwhile. In band of a session a message may be lost with the TCP connection: it is
%% repeated over the next one (handle_restored/2).
-module(inet_rdma_keys).

%% Used by the settlement.
-export([first/1, pair/2, protection/3]).
%% Used by a guard.
-export([new/2, handle/3, handle_due/2, handle_received/3, handle_restored/2]).
-export_type([t/0, pair/0, fault/0, send/0]).

%% A key and its generation take 54 bytes.
-define(MESSAGE_BYTES_MAX, 128).

%% sending: the generation under which this side seals. next: a key that this side has sent, and the peer has not
%% confirmed. received: the last generation of the peer's keys that this side has installed.
-type t() :: none
           | #{native := native(), sending := non_neg_integer(), received := non_neg_integer(),
               next := none | {Generation :: pos_integer(), inet_rdma_nif:key()}}.

%% The keys of generation 0; none: the way is not encrypted.
-type pair() :: none | {Send :: inet_rdma_nif:key(), Receive :: inet_rdma_nif:key()}.

%% Why an encrypted link or stream gets no new key, and ends. unknown: not by the peer's fault.
-type fault() :: {peer_misbehaved, How :: binary()} | {unknown, Why :: binary()}.

%% Sends a message to the peer's guard.
-type send() :: fun((binary()) -> ok | {error, term()}).

-type native() :: {link, inet_rdma_nif:link()} | {stream, inet_rdma_nif:guard()}.

%% A key for the direction from this side; none over TCP, where the key could only be sent in clear.
-spec first(tcp | tls) -> none | inet_rdma_nif:key().
first(tcp) -> none;
first(tls) -> fresh().

%% On a machine that is restored from a snapshot OpenSSL's generator gives its bytes again. The nonce is another one.
fresh() -> crypto:hash(sha256, [crypto:strong_rand_bytes(32), inet_rdma_nif:nonce()]).

%% The key that this side has told, and the peer's.
-spec pair(Send, Receive) -> {ok, pair()} | {error, Why :: binary()} when
    Send :: none | inet_rdma_nif:key(), Receive :: Send.
pair(none, none) -> {ok, none};
pair(_Send, none) -> {error, <<"the peer tells no key">>};
%% Refuses one key for both directions: an attacker could replay a record of one direction in the other.
pair(Key, Key) -> {error, <<"the peer tells the key that this node has told">>};
pair(Send, Receive) -> {ok, {Send, Receive}}.

%% The keys in the form that the native library takes.
-spec protection({Send :: inet_rdma_nif:key(), Receive :: inet_rdma_nif:key()}, inet_rdma_nif:cipher(),
                 RekeyBytes :: pos_integer()) -> inet_rdma_nif:protection().
protection({Send, Receive}, Cipher, RekeyBytes) ->
    #{cipher => Cipher, send_key => Send, receive_key => Receive, rekey_bytes => RekeyBytes}.

%% none: a link or stream that is not encrypted.
-spec new(native(), IsEncrypted :: boolean()) -> t().
new(_Native, false) -> none;
new(Native, true) -> #{native => Native, sending => 0, received => 0, next => none}.

%% A message to a stream's guard, which owns the TLS connection, about keys or about the connection. gone: the
%% connection has ended. unknown: another message.
-spec handle(Message :: term(), t(), inet_rdma_transport:t()) ->
          {ok | changed, t()} | {error, fault()} | gone | unknown.
handle({'$inet_rdma', _Id, key_due}, Keys, Connection) ->
    await_next(handle_due(Keys, over(Connection)), Connection);
handle({ssl, _Socket, Bytes}, Keys, Connection) ->
    await_next(handle_received(Keys, over(Connection), Bytes), Connection);
handle({ssl_closed, _Socket}, _Keys, _Connection) ->
    gone;
handle({ssl_error, _Socket, _Reason}, _Keys, _Connection) ->
    gone;
handle(_Message, _Keys, _Connection) ->
    unknown.

over(Connection) -> fun(Bytes) -> inet_rdma_transport:send(Connection, Bytes) end.

await_next({error, _} = Error, _Connection) ->
    Error;
await_next(Handled, Connection) ->
    _ = inet_rdma_transport:active_once(Connection),
    Handled.

%% The key in use nears its limit.
-spec handle_due(t(), send()) -> {ok, t()}.
handle_due(#{sending := Sending, next := none} = Keys, Send) ->
    Next = {Sending + 1, fresh()},
    tell(Send, {key, Sending + 1, element(2, Next)}, Keys#{next := Next});
handle_due(Keys, _Send) ->
    {ok, Keys}.

%% The session has another TCP connection.
-spec handle_restored(t(), send()) -> ok.
handle_restored(#{next := {Generation, Key}} = Keys, Send) ->
    {ok, _} = tell(Send, {key, Generation, Key}, Keys),
    ok;
handle_restored(_Keys, _Send) ->
    ok.

%% A message of the peer's guard. changed: from here on this side seals with the next key; a tick shows it to the peer.
-spec handle_received(t(), send(), binary()) -> {ok | changed, t()} | {error, fault()}.
handle_received(Keys, _Send, Bytes) when Keys =:= none; byte_size(Bytes) > ?MESSAGE_BYTES_MAX ->
    unexpected();
handle_received(Keys, Send, Bytes) ->
    try binary_to_term(Bytes, [safe]) of
        Message -> handle_message(Keys, Send, Message)
    catch
        error:badarg -> unexpected()
    end.

handle_message(#{received := Generation} = Keys, Send, {key, Generation, <<_:256>>}) when Generation > 0 ->
    %% The peer repeats this key because the answer was lost.
    tell(Send, {key_installed, Generation}, Keys);
handle_message(#{native := Native} = Keys, Send, {key, Generation, <<_:256>> = Key}) when
    is_integer(Generation), Generation > 0, Generation < 1 bsl 32
->
    case native(fun() -> receive_key(Native, Generation, Key) end) of
        ok -> tell(Send, {key_installed, Generation}, Keys#{received := Generation});
        Error -> Error
    end;
handle_message(#{native := Native, next := {Generation, Key}} = Keys, _Send, {key_installed, Generation}) ->
    case native(fun() -> send_key(Native, Generation, Key) end) of
        ok -> {changed, Keys#{sending := Generation, next := none}};
        Error -> Error
    end;
%% A key that was sent twice is confirmed twice.
handle_message(#{sending := Generation} = Keys, _Send, {key_installed, Generation}) when Generation > 0 ->
    {ok, Keys};
handle_message(_Keys, _Send, _Message) ->
    unexpected().

receive_key({link, Link}, Generation, Key) -> inet_rdma_nif:link_receive_key(Link, Generation, Key);
receive_key({stream, Guard}, Generation, Key) -> inet_rdma_nif:receive_key(Guard, Generation, Key).

send_key({link, Link}, Generation, Key) -> inet_rdma_nif:link_send_key(Link, Generation, Key);
send_key({stream, Guard}, Generation, Key) -> inet_rdma_nif:send_key(Guard, Generation, Key).

unexpected() -> {error, {peer_misbehaved, <<"it sent an unexpected message about keys">>}}.

%% A connection that has ended is no error here: the guard gets a message about its end.
tell(Send, Message, Keys) ->
    _ = Send(term_to_binary(Message)),
    {ok, Keys}.

native(Call) ->
    try Call() of
        ok -> ok;
        {error, Reason} -> {error, {peer_misbehaved, inet_rdma_text:reason(Reason)}}
    catch
        error:badarg -> {error, {unknown, <<"inet_rdma_nif was loaded anew, and there can be no new key">>}}
    end.

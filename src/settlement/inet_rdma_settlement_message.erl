%% The messages of the settlement: sent, awaited, and checked field by field.
%%
%% The functions throw `closed` when the connection has ended, and {broken, Why} when a message does
%% not come in time or is not allowed: docs/PROTOCOL.md lists all messages.
-module(inet_rdma_settlement_message).

-export([
    greet/2,
    is_of_settlement/1,
    is_hello/1,
    tell/2,
    hear/2,
    next/1,
    parse/3,
    with_key/2,
    without_key/3
]).
-export([passive/1, active_once/1]).
-export([left/1, cut/1, is_file_fact/1, broken/1]).

-include("inet_rdma_settling.hrl").

%% Texts and lists of the peer are refused above these sizes.
-define(TEXT_BYTES_MAX, 4096).
-define(LIST_MAX, 256).
%% Bytes of the external term format.
-define(VERSION_MAGIC, 131).
-define(COMPRESSED, 80).

-type settling() :: #settling{}.
-type channel() :: term().

%% The protocol by which the link or stream began.
-callback protocol(channel()) -> tcp | tls.
-callback ends(channel()) -> {ok, inet_rdma_transport:ends()} | {error, term()}.
%% The next message comes by recv_message/2.
-callback passive(channel()) -> ok | {error, term()}.
%% The next message, or the end, comes as a message {tcp | ssl | session, _, Bytes}, {tcp_closed |
%% ssl_closed, _} or {tcp_error | ssl_error, _, Reason}.
-callback active_once(channel()) -> ok | {error, term()}.
-callback send_message(channel(), binary()) -> ok | {error, term()}.
-callback recv_message(channel(), timeout()) -> {ok, binary()} | {error, term()}.

%% Both sides say hello, with these facts of this side. From here on the smaller connect_timeout_ms
%% of both is the bound.
-spec greet(settling(), Facts :: map()) -> settling().
greet(#settling{config = #{connect_timeout_ms := BoundMs}, deadline = Deadline} = Settling, Facts) ->
    ok = tell(Settling, {hello, Facts}),
    {hello, Peer} = hear(Settling, [hello]),
    ok = same_version(Facts, Peer),
    Settling#settling{
        peer = Peer, deadline = Deadline - BoundMs + min(BoundMs, maps:get(timeout_ms, Peer))
    }.

%% The versions of links are in the offers.
same_version(#{stream := Ours}, #{stream := Ours}) -> ok;
same_version(#{stream := _}, _Peer) -> broken(<<"the peer settles streams by another version">>);
same_version(_Facts, _Peer) -> ok.

%% Tells by its first byte whether an in-band message of the peer's guard belongs to a settlement.
-spec is_of_settlement(binary()) -> boolean().
is_of_settlement(<<?VERSION_MAGIC, _/binary>>) -> true;
is_of_settlement(_) -> false.

%% Tells whether a message is a hello, with whatever facts.
-spec is_hello(binary()) -> boolean().
is_hello(Bytes) ->
    try decode(Bytes) of
        {hello, _} -> true;
        _ -> false
    catch
        error:badarg -> false
    end.

-spec tell(settling(), tuple()) -> ok.
tell(#settling{channel = {Module, Channel}}, Message) ->
    case Module:send_message(Channel, term_to_binary(Message)) of
        ok -> ok;
        {error, _} -> throw(closed)
    end.

-spec hear(settling(), [Name :: atom()]) -> tuple().
hear(Settling, Expected) ->
    parse(Settling, next(Settling), Expected).

-spec next(settling()) -> binary().
next(#settling{channel = Channel} = Settling) ->
    receive
        %% The message came while the acceptor also waited for the queue pair.
        {Tag, _Socket, Bytes} when Tag =:= tcp; Tag =:= ssl; Tag =:= session -> Bytes
    after 0 ->
        case left(Settling) of
            0 -> broken(<<"the peer did not answer in time">>);
            LeftMs -> receive_packet(Channel, LeftMs)
        end
    end.

receive_packet({Module, Channel}, TimeoutMs) ->
    case Module:recv_message(Channel, TimeoutMs) of
        {ok, Bytes} -> Bytes;
        {error, timeout} -> broken(<<"the peer did not answer in time">>);
        {error, _} -> throw(closed)
    end.

-spec passive(settling()) -> ok.
passive(#settling{channel = {Module, Channel}}) -> ok_or_closed(Module:passive(Channel)).

-spec active_once(settling()) -> ok.
active_once(#settling{channel = {Module, Channel}}) -> ok_or_closed(Module:active_once(Channel)).

ok_or_closed(ok) -> ok;
ok_or_closed({error, _}) -> throw(closed).

-spec broken(binary()) -> no_return().
broken(Why) -> throw({broken, Why}).

%% Decodes without making an atom that this node does not know.
-spec parse(settling(), binary(), [Name :: atom()]) -> tuple().
parse(#settling{channel = {Module, Channel}}, Bytes, Expected) ->
    Message =
        try
            decode(Bytes)
        catch
            error:badarg -> broken(<<"the peer's answer is not one of the settlement">>)
        end,
    Protocol = Module:protocol(Channel),
    case is_message(Protocol, Message) andalso lists:member(element(1, Message), Expected) of
        true -> Message;
        false -> broken(<<"the peer's answer is not allowed here">>)
    end.

%% A compressed term may be a thousand times as large as its packet.
decode(<<?VERSION_MAGIC, ?COMPRESSED, _/binary>>) -> error(badarg);
decode(Bytes) -> binary_to_term(Bytes, [safe]).

%% Appends a key: some messages have one inside TLS.
-spec with_key(tuple(), none | inet_rdma_nif:key()) -> tuple().
with_key(Message, none) -> Message;
with_key(Message, Key) -> erlang:append_element(Message, Key).

%% Removes the key from a received message. Name and Size are those of the message without a key.
-spec without_key(tuple(), Name :: atom(), Size :: pos_integer()) ->
    {tuple(), none | inet_rdma_nif:key()}.
without_key(Message, Name, Size) when
    element(1, Message) =:= Name, tuple_size(Message) =:= Size + 1
->
    {erlang:delete_element(Size + 1, Message), element(Size + 1, Message)};
without_key(Message, _Name, _Size) ->
    {Message, none}.

is_message(tls, {hello, #{encrypt_shm := EncryptShm, cipher := Cipher} = Facts} = Message) ->
    is_boolean(EncryptShm) andalso lists:member(Cipher, [aes_256_gcm, chacha20_poly1305, none]) andalso
        is_map_key(place, Facts) =:= is_map_key(place_key, Facts) andalso
        is_key(maps:get(place_key, Facts, none)) andalso
        is_message(Message);
is_message(tls, {hello, _}) ->
    false;
is_message(tls, {'try', Fabric, Key}) ->
    is_message({'try', Fabric}) andalso is_binary(Key) andalso is_key(Key);
is_message(tls, {'try', _}) ->
    false;
is_message(tls, {listens, Port, Token, Addresses, Key}) ->
    is_message({listens, Port, Token, Addresses}) andalso is_binary(Key) andalso is_key(Key);
is_message(tls, {listens, _, _, _}) ->
    false;
is_message(tls, {go, Key}) ->
    is_binary(Key) andalso is_key(Key);
is_message(_Protocol, Message) ->
    is_message(Message).

is_key(none) -> true;
is_key(<<_:256>>) -> true;
is_key(_) -> false.

is_message(
    {hello,
        #{
            fabric := Fabric,
            required := Required,
            boot := Boot,
            netns := Namespace,
            user := User,
            instance := Instance,
            timeout_ms := TimeoutMs
        } = Facts}
) ->
    is_place(maps:get(place, Facts, none)) andalso is_queue_number(maps:get(path, Facts, 1)) andalso
        is_file_fact(maps:get(file, Facts, {0, none})) andalso
        is_integer(TimeoutMs) andalso TimeoutMs > 0 andalso
        is_atom(Fabric) andalso is_boolean(Required) andalso
        is_binary(Boot) andalso is_integer(Namespace) andalso is_integer(User) andalso
        is_integer(Instance);
is_message({'try', Fabric}) ->
    lists:member(Fabric, inet_rdma_options:fabrics(stream));
is_message({listens, Place, Token, Addresses}) ->
    (is_port_number(Place) orelse is_name(Place)) andalso is_token(Token) andalso
        is_short_list(Addresses) andalso
        lists:all(fun is_address/1, Addresses);
is_message({ready}) ->
    true;
is_message({go}) ->
    true;
is_message({stayed}) ->
    true;
is_message({stay, Why}) ->
    is_text(Why);
is_message({failed, Fabric, Why}) ->
    is_atom(Fabric) andalso is_text(Why);
is_message(_) ->
    false.

is_queue_number(Number) -> is_integer(Number) andalso Number > 0 andalso Number < 1 bsl 64.

is_place(none) -> true;
is_place({Name, Token}) -> is_name(Name) andalso is_token(Token) andalso Token > 0;
is_place(_) -> false.

is_port_number(Port) -> is_integer(Port) andalso Port > 0 andalso Port < 65536.

is_token(Token) -> is_integer(Token) andalso Token >= 0 andalso Token < 1 bsl 64.

%% The name of a listener over shm, and of its socket file.
is_name(<<"inet_rdma-", Digits:32/binary>>) -> lists:all(fun is_digit/1, binary_to_list(Digits));
is_name(_) -> false.

is_address(Address) ->
    is_binary(Address) andalso
        element(1, inet:parse_strict_address(binary_to_list(Address))) =:= ok.

%% Whether a fact has the shape of inet_rdma_neighbours:fact().
-spec is_file_fact(term()) -> boolean().
is_file_fact({UserNamespace, File}) -> is_integer(UserNamespace) andalso is_file(File);
is_file_fact(_) -> false.

is_file(none) -> true;
is_file({ok, Name}) -> is_name(Name);
is_file({error, Why}) -> is_text(Why);
is_file(_) -> false.

is_digit(Digit) -> (Digit >= $0 andalso Digit =< $9) orelse (Digit >= $a andalso Digit =< $f).

%% True for a proper list; length/1 fails for an improper one.
is_short_list(List) when length(List) =< ?LIST_MAX -> true;
is_short_list(_) -> false.

is_text(Text) ->
    is_binary(Text) andalso byte_size(Text) =< ?TEXT_BYTES_MAX andalso
        is_list(unicode:characters_to_list(Text)).

%% Shortens a reason, which may contain text of the peer, to the size that a message may have.
-spec cut(binary()) -> binary().
cut(Why) when byte_size(Why) =< ?TEXT_BYTES_MAX -> Why;
cut(Why) -> unicode:characters_to_binary(string:slice(Why, 0, ?TEXT_BYTES_MAX div 4)).

-spec left(settling()) -> non_neg_integer().
left(#settling{deadline = Deadline}) -> inet_rdma_clock:left(Deadline).

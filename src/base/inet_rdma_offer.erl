%% The offer: bytes that a node with this carrier appends to its name in the handshake.
%%
%% The handshake's two `N` messages (name from the initiator, challenge from the acceptor) end with
%% the sender's name, and OTP ignores what follows it. So a node without this carrier, of any OTP
%% version, sees nothing. The offer goes to every peer that connects, before the cookie is proved:
%% it says only that this node can settle, and by which version.
%%
%% docs/PROTOCOL.md has its format ("The offer"). SaysUp: this node sends and awaits the message
%% `up` of inet_rdma_settlement. Tells: it tells its addresses, and understands the peer's
%% (inet_rdma_peer_node). Window: it tells how many bytes it takes over each TCP connection, and
%% understands the peer's number. The nonces are useless without the cookie. Inside TLS a node that
%% seals its TCP connections offers a session: only TLS has carried its nonce then.
%%
%% Later versions may use the free bits, and add bytes after these.
-module(inet_rdma_offer).

-export([offer/3, append/3, parse/2, sessions/2, cipher_number/1, cipher/1, utf8/1]).
-export_type([offer/0, session/0]).

%% none: a peer that runs another carrier, inet_tcp above all. settles: false if the node does not
%% settle this time; the link stays on TCP then. session: the link can be a session. eager: it
%% settles before it is up, if the peer is eager, too. says_up: as SaysUp. tells: as Tells.
%% tells_window: as Window. lacks: of this node's offer; why it has no room for a session.
-type offer() ::
    none
    | #{
        version := non_neg_integer(),
        required := boolean(),
        settles := boolean(),
        eager := boolean(),
        says_up := boolean(),
        tells := boolean(),
        tells_window := boolean(),
        session := session(),
        lacks => inet_rdma:reason()
    }.
%% cipher, compresses: none in offers that do not name them.
-type session() ::
    none
    | #{
        port := inet:port_number(),
        nonce := <<_:128>>,
        cipher := inet_rdma_nif:cipher() | none,
        compresses := boolean() | none
    }.

-define(MAGIC, "inetrdma").
%% The version of the settlement. Both sides must have the same one; else the link stays on TCP.
-define(VERSION, 1).

-spec offer(inet_rdma_options:config(), Settles :: boolean(), session()) -> offer().
offer(#{required := Required, move := Move}, Settles, Session) ->
    #{
        version => ?VERSION,
        required => Required,
        settles => Settles,
        eager => Move =:= eager,
        says_up => true,
        tells => true,
        tells_window => true,
        session => Session
    }.

%% The message with the offer after it, if it is an `N` message that ends with the name; else the
%% message.
-spec append(initiator | acceptor, binary(), offer()) -> iodata().
append(
    Role,
    Message,
    #{
        version := Version,
        required := Required,
        settles := Settles,
        eager := Eager,
        says_up := SaysUp,
        tells := Tells,
        tells_window := TellsWindow,
        session := Session
    }
) ->
    case split(Role, Message) of
        {_Name, <<>>} ->
            [
                Message,
                <<?MAGIC, Version:16, 0:1, (flag(TellsWindow)):1, (flag(Tells)):1, (flag(SaysUp)):1,
                    (flag(Eager)):1, (flag(Session =/= none)):1, (flag(not Settles)):1,
                    (flag(Required)):1>>,
                session_bytes(Session)
            ];
        _ ->
            Message
    end.

session_bytes(none) ->
    <<>>;
session_bytes(#{port := Port, nonce := Nonce, compresses := none}) ->
    <<Port:16, Nonce:16/binary>>;
session_bytes(#{port := Port, nonce := Nonce, cipher := Cipher, compresses := Compresses}) ->
    <<Port:16, Nonce:16/binary, (cipher_number(Cipher)):8, 0:7, (flag(Compresses)):1>>.

session(1, <<Port:16, Nonce:16/binary, Cipher:8, _:7, Compresses:1, _/binary>>) ->
    #{port => Port, nonce => Nonce, cipher => cipher(Cipher), compresses => Compresses =:= 1};
session(1, <<Port:16, Nonce:16/binary, _/binary>>) ->
    #{port => Port, nonce => Nonce, cipher => none, compresses => none};
session(_, _) ->
    none.

%% The number of a cipher in an offer, and in commands of a session's port.
-spec cipher_number(inet_rdma_nif:cipher()) -> 1..2.
cipher_number(aes_256_gcm) -> 1;
cipher_number(chacha20_poly1305) -> 2.

-spec cipher(non_neg_integer()) -> inet_rdma_nif:cipher() | none.
cipher(1) -> aes_256_gcm;
cipher(2) -> chacha20_poly1305;
cipher(_) -> none.

%% The sender's name in UTF-8, and its offer, in an `N` message that the node of this role has
%% received.
-spec parse(initiator | acceptor, binary()) -> {Name :: binary(), offer()}.
parse(Role, Message) ->
    case split(other(Role), Message) of
        {Name,
            <<?MAGIC, Version:16, _:1, TellsWindow:1, Tells:1, SaysUp:1, Eager:1, Session:1,
                Stays:1, Required:1, Rest/binary>>} ->
            {utf8(Name), #{
                version => Version,
                required => Required =:= 1,
                settles => Stays =:= 0,
                eager => Eager =:= 1,
                says_up => SaysUp =:= 1,
                tells => Tells =:= 1,
                tells_window => TellsWindow =:= 1,
                session => session(Session, Rest)
            }};
        {Name, _} ->
            {utf8(Name), none};
        error ->
            {<<>>, none}
    end.

%% What both sides offer for a session; none: one of them offers none.
-spec sessions(Own :: offer(), Peer :: offer()) -> {Own :: session(), Peer :: session()} | none.
sessions(#{session := #{} = Own}, #{session := #{} = Peer}) -> {Own, Peer};
sessions(_Own, _Peer) -> none.

%% A name of the handshake, where names are Latin-1.
-spec utf8(Latin1 :: binary()) -> binary().
utf8(Name) -> unicode:characters_to_binary(Name, latin1).

%% "Distribution Handshake" in the ERTS documentation.
split(initiator, <<$N, _Flags:64, _Creation:32, Length:16, Name:Length/binary, Rest/binary>>) ->
    {Name, Rest};
split(
    acceptor,
    <<$N, _Flags:64, _Challenge:32, _Creation:32, Length:16, Name:Length/binary, Rest/binary>>
) ->
    {Name, Rest};
split(_Role, _Message) ->
    error.

other(initiator) -> acceptor;
other(acceptor) -> initiator.

flag(true) -> 1;
flag(false) -> 0.

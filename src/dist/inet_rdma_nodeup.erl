%% How a link comes up, in its connection supervisor. Before nodeup the supervisor decides whether
%% the connection or a session carries the link; after nodeup, when the VM knows the link, it starts
%% that.
%%
%% The nodes settle (inet_rdma_settlement) before the link is up if one of them has the option
%% required, or both have the option move as eager; otherwise the link's guard settles later. A
%% session that begins inside TLS takes the socket out of TLS, and seals all bytes itself. If TLS
%% does not give the socket back, the next link has no session: the nodes settle that it stays on
%% TLS, or is refused.
-module(inet_rdma_nodeup).

-export([prepare/1, decide/1, before_nodeup/2, last_message/1, after_nodeup/2, can_leave_tls/1]).
-export_type([link/0, up/0, prepared/0]).

%% A link whose peer has proved the cookie. place: the port for its session. own_offer: this node's,
%% offer: the peer's. address: an initiator's; where the peer listens, none: not known. listens:
%% where this node does. via: the neighbour over which an initiator has made the connection; none:
%% it is direct. node is empty, and config none, while an acceptor does not know them.
-type link() :: #{
    driver := inet_rdma_transport:driver(),
    role := initiator | acceptor,
    connection := inet_rdma_transport:t(),
    node := binary(),
    config := inet_rdma_options:config() | none,
    place := port() | none,
    own_offer := inet_rdma_offer:offer(),
    offer := inet_rdma_offer:offer(),
    address := inet_rdma_peer_node:address() | none,
    listens := inet_rdma_peer_node:address() | none,
    via := binary() | none
}.

%% What carries the link, and the reason in words. queue: of a link that has settled on a queue
%% pair; none: it has not.
-type up() :: #{
    controller := inet_rdma_controller:t(),
    queue := inet_rdma_queue:t() | none,
    kind := up | fallback,
    fabric := binary(),
    why := binary()
}.

%% What carries the link, or why there is no link, and the connection to use until nodeup.
-type decided() :: {ok, up(), inet_rdma_transport:t()} | {error, term()}.

%% The link's session, if both sides offer one. undefined: it is not made yet. decided: nothing is
%% left to do before nodeup but what the handshake's last message must come before.
-type prepared() ::
    undefined
    | none
    | {ok, inet_rdma_session:t()}
    | {error, inet_rdma:reason()}
    | {decided, decided()}.

%% Both offers are known. The port is linked to the caller, so it ends with a handshake that fails.
-spec prepare(link()) -> prepared().
prepare(Link) -> new(session_offers(Link), Link).

%% As before_nodeup/2 does, but only if that needs no message of the peer. The caller is an
%% acceptor, to which the peer has proved the cookie.
-spec decide(link()) -> prepared().
decide(#{connection := Connection, offer := Offer} = Link) ->
    Prepared = prepare(Link),
    case Prepared of
        none when Offer =/= none -> Prepared;
        {ok, _Session} ->
            decide(settles_first(Link), inet_rdma_transport:protocol(Connection), Prepared, Link);
        _ ->
            {decided, decided(Prepared, Link)}
    end.

decide(false, tcp, Prepared, Link) -> {decided, decided(Prepared, Link)};
decide(_SettlesFirst, _Protocol, Prepared, _Link) -> Prepared.

%% Decides what carries the link. Both sides have proved the cookie, and the VM does not know the
%% link yet. Returns the connection to use until nodeup.
-spec before_nodeup(prepared(), link()) -> decided().
before_nodeup(undefined, Link) ->
    before_nodeup(prepare(Link), Link);
before_nodeup({decided, {ok, #{controller := {connection, Connection}}, _} = Decided}, _Link) ->
    case inet_rdma_transport:before_nodeup(Connection) of
        ok -> Decided;
        Error -> Error
    end;
before_nodeup({decided, Decided}, _Link) ->
    Decided;
before_nodeup(Prepared, Link) ->
    before_nodeup({decided, decided(Prepared, Link)}, Link).

%% Any other link than a session on TCP would end with the neighbour, and could not go back to the
%% direct way.
-spec decided(none | {ok, inet_rdma_session:t()} | {error, inet_rdma:reason()}, link()) ->
    decided().
decided(none, #{via := Via, node := Node}) when Via =/= none ->
    ok = not_up(
        failed,
        Node,
        <<"it would go over ", Via/binary, ", and one of the nodes offers no session">>
    ),
    {error, no_session};
decided({ok, _Session}, #{via := Via, node := Node, offer := #{required := true}}) when
    Via =/= none
->
    inet_rdma_links:count(refused),
    ok = not_up(
        refused,
        Node,
        <<"the option required of the peer forbids TCP, and it would go over ", Via/binary>>
    ),
    {error, required};
decided({ok, Session}, Link) ->
    ok = inet_rdma_recorder:of_port(inet_rdma_session:port(Session)),
    when_acceptor_is_up(attach(begin_session(settles_first(Link), Session, Link), Link), Link);
decided(none, #{connection := Connection} = Link) ->
    case settle({connection, Connection}, lacks(Link), Link) of
        {ok, Up} -> {ok, Up, Connection};
        Error -> Error
    end;
decided({error, Reason}, Link) ->
    cannot_begin(Reason, Link).

session_offers(#{own_offer := Own, offer := Peer}) -> inet_rdma_offer:sessions(Own, Peer).

lacks(#{own_offer := #{lacks := Reason}}) ->
    <<"this node has no room for a session: ", (inet_rdma_text:reason(Reason))/binary>>;
lacks(#{own_offer := #{session := none}, node := Node}) ->
    case inet_rdma_links:failure(leaving_tls(Node)) of
        none -> <<"this node offers no session">>;
        {How, _LeftMs} -> <<"TLS did not give its socket back lately: ", How/binary>>
    end;
lacks(_Link) ->
    <<"the peer offers no session, its log says why">>.

%% The link's session, if both sides offer one: they expect its frames from each other. Else its
%% port is not needed.
new(none, #{place := none}) ->
    none;
new(none, #{place := Port}) ->
    ok = inet_rdma_port:close(Port),
    none;
new({Own, Peer}, #{
    driver := Driver,
    connection := Connection,
    role := Role,
    node := Node,
    config := Config,
    place := Port,
    own_offer := OwnOffer,
    offer := PeerOffer
}) ->
    #{packet_max_bytes := PacketMax, mptcp := Mptcp} = Config,
    #{nonce := OwnNonce} = Own,
    #{nonce := PeerNonce} = Peer,
    Sealing =
        case inet_rdma_transport:protocol(Connection) of
            tcp -> none;
            tls -> sealing(Role, Own, Peer, Config)
        end,
    inet_rdma_session:new(
        Port,
        Driver,
        Role,
        #{
            node => Node,
            nonces => {OwnNonce, PeerNonce},
            packet_max_bytes => PacketMax,
            window => window(OwnOffer, PeerOffer, Config),
            sealing => Sealing,
            compression => compression(Own, Peer),
            mptcp => Mptcp,
            attribution => maps:get(attribution, Config)
        }
    ).

%% An earlier version tells no window, and takes none.
window(
    #{tells_window := true},
    #{tells_window := true},
    #{window_max_bytes := Max, node_window_max_bytes := NodeMax}
) ->
    {Max, NodeMax};
window(_Own, _Peer, _Config) ->
    none.

%% Whether each side compresses. Neither does if an offer does not mention compression.
compression(#{compresses := none}, _Peer) -> {false, false};
compression(_Own, #{compresses := none}) -> {false, false};
compression(#{compresses := Own}, #{compresses := Peer}) -> {Own, Peer}.

%% The cipher is the one that the acceptor prefers, as in a settlement.
sealing(initiator, _Own, #{cipher := Cipher}, Config) -> sealing(Cipher, Config);
sealing(acceptor, #{cipher := Cipher}, _Peer, Config) -> sealing(Cipher, Config).

sealing(Cipher, #{rekey_bytes := Bytes, rekey_seconds := Seconds}) ->
    #{cipher => Cipher, rekey_bytes => Bytes, rekey_seconds => Seconds}.

begin_session(true, Session, Link) ->
    settle({session, Session}, inet_rdma_session:port(Session), Link);
begin_session(false, Session, Link) ->
    begin_on_tcp(Session, Link).

%% The message that an acceptor sends when the VM knows the link; none: the peer does not wait for
%% one.
-spec last_message(link()) -> binary() | none.
last_message(#{role := acceptor} = Link) ->
    case says_up(Link) of
        true -> inet_rdma_settlement:up();
        false -> none
    end;
last_message(_Link) ->
    none.

%% Without `up` the initiator's node might ask for the link before the acceptor's VM knows it.
when_acceptor_is_up({ok, _Up, Raw} = Decided, #{role := initiator} = Link) ->
    #{config := #{connect_timeout_ms := BoundMs}} = Link,
    case says_up(Link) andalso inet_rdma_settlement:await_up(Raw, BoundMs) of
        {error, Reason} -> cannot_begin(Reason, Link);
        _ -> Decided
    end;
when_acceptor_is_up(Decided, _Link) ->
    Decided.

%% Not where the acceptor decides before its last message of the handshake (inet_rdma_dist).
says_up(
    #{connection := Connection, own_offer := #{says_up := true}, offer := #{says_up := true}} = Link
) ->
    session_offers(Link) =/= none andalso
        (settles_first(Link) orelse inet_rdma_transport:protocol(Connection) =:= tls);
says_up(_Link) ->
    false.

attach(
    {ok, #{controller := {session, Session}} = Up},
    #{connection := Connection, node := Node, config := Config} = Link
) ->
    case inet_rdma_session:attach(Session, Connection) of
        {ok, Raw} ->
            {ok, Up, Raw};
        {error, {not_given_back, How}} ->
            #{fallback_retry_ms := RetryMs} = Config,
            inet_rdma_links:failed(leaving_tls(Node), How, RetryMs),
            ok = not_up(
                failed,
                Node,
                <<"TLS does not give its socket back: ", How/binary,
                    "; the next link stays inside TLS">>
            ),
            {error, not_given_back};
        {error, Reason} ->
            cannot_begin(Reason, Link)
    end;
attach(Error, _Link) ->
    Error.

cannot_begin(Reason, #{node := Node}) ->
    ok = inet_rdma_modules:load_all(),
    ok = not_up(
        failed, Node, <<"its session cannot begin: ", (inet_rdma_text:reason(Reason))/binary>>
    ),
    {error, Reason}.

%% Tells whether to ask TLS for the socket. False after a failure, for the time of the option
%% fallback_retry_ms.
-spec can_leave_tls(Node :: binary()) -> boolean().
can_leave_tls(Node) -> inet_rdma_links:failure(leaving_tls(Node)) =:= none.

leaving_tls(Node) -> {Node, 0, leaving_tls}.

%% A link that may not stay on TCP settles before it is up; so does one between two nodes whose
%% option move is eager.
settles_first(#{
    own_offer := #{required := Required, eager := Eager},
    offer := #{required := PeerRequires, eager := PeerIsEager}
}) ->
    Required orelse PeerRequires orelse (Eager andalso PeerIsEager).

%% The link is up as soon as inet_tcp's would be; its guard settles on a queue pair later.
begin_on_tcp(Session, #{role := Role, config := #{move := Move}, node := Node}) ->
    insert(Node, {session, Session}, none, {fallback, <<"tcp">>, not_moved(Role, Move)}).

%% The node that has made the connection begins the settlement.
not_moved(_Role, never) ->
    <<"it does not move: the option move of this node is never">>;
not_moved(initiator, Move) ->
    <<"it has not moved yet: the option move is ", (atom_to_binary(Move))/binary>>;
not_moved(acceptor, _Move) ->
    <<"it has not moved yet: the option move of the peer decides, as the peer connected">>.

settle(Controller, PortOrLacks, Link) ->
    ok = inet_rdma_modules:load_all(),
    #{
        role := Role,
        connection := Connection,
        node := Node,
        config := Config,
        own_offer := Own,
        offer := Offer
    } = Link,
    Protocol = atom_to_binary(inet_rdma_transport:protocol(Connection)),
    Settled = inet_rdma_settlement:settle(Role, Connection, Node, Config, Own, Offer, PortOrLacks),
    _ = [forget_keys() || Protocol =:= <<"tls">>],
    case Settled of
        {move, Queue, Why} ->
            ok = inet_rdma_queue:begin_on(Queue),
            settled(info, Node, Controller, Queue, {up, inet_rdma_queue:fabric(Queue), Why});
        {stay, Why, Tried} ->
            inet_rdma_links:count({stayed, Tried}),
            stays(Link, Controller, {fallback, stays_on(Controller, Protocol), Why});
        {refuse, Why} ->
            inet_rdma_links:count(refused),
            Forbidden = string:uppercase(Protocol),
            ok = not_up(
                refused,
                Node,
                <<"the option required forbids ", Forbidden/binary, ", and ", Why/binary>>
            ),
            {error, required};
        {error, Why} ->
            inet_rdma_links:count(settlement_failed),
            ok = not_up(failed, Node, Why),
            {error, not_settled}
    end.

%% Removes the keys of the settlement, to which no term refers now, from the heap. A supervisor
%% makes so little garbage that they would stay there for as long as the link lives.
forget_keys() -> garbage_collect().

stays_on({connection, _Connection}, Protocol) -> Protocol;
%% It leaves TLS.
stays_on({session, _Session}, _Protocol) -> <<"tcp">>.

%% inet_rdma_node_watch logs and records the link of a peer without an offer that has connected, if
%% it lasts.
stays(#{role := acceptor, offer := none, node := Node}, Controller, {_, Fabric, Why} = Outcome) ->
    ok = inet_rdma_sleeper:tell(inet_rdma_node_watch, {plain, Node, Fabric, Why}),
    insert(Node, Controller, none, Outcome);
stays(#{offer := none, node := Node}, Controller, Outcome) ->
    settled(info, Node, Controller, none, Outcome);
%% Between two nodes that run this carrier the operator may expect shared memory or a device.
stays(#{node := Node}, Controller, Outcome) ->
    settled(notice, Node, Controller, none, Outcome).

settled(Level, Node, Controller, Queue, {Kind, Fabric, Why} = Outcome) ->
    Inserted = insert(Node, Controller, Queue, Outcome),
    Event = inet_rdma_link_event:new(Kind, Node, Fabric, Why),
    ok = inet_rdma_link_event:log_carried(Event, Level),
    Inserted.

insert(Node, Controller, Queue, {Kind, Fabric, Why}) ->
    ok = inet_rdma_links:insert(Node, Controller, Fabric, Why),
    {ok, #{controller => Controller, queue => Queue, kind => Kind, fabric => Fabric, why => Why}}.

not_up(Kind, Node, Why) ->
    Event = inet_rdma_link_event:new(Kind, Node, undefined, Why),
    ok = inet_rdma_link_event:record(Event, #{}),
    inet_rdma_link_event:log(Event, warning, "inet_rdma: no link to ~ts: ~ts", [Node, Why]).

-spec after_nodeup(up(), link()) -> ok | {error, term()}.
after_nodeup(
    #{controller := Controller, kind := Kind, fabric := Fabric, why := Why} = Up,
    #{node := Node} = Link
) ->
    Event = inet_rdma_link_event:new(Kind, Node, Fabric, Why),
    case {start(Controller, Up, Link), Link} of
        {ok, #{role := acceptor, offer := none}} ->
            inet_rdma_link_event:announce(Event, #{count => 1});
        {ok, _} ->
            inet_rdma_link_event:tell(Event, #{count => 1});
        {Error, _} ->
            Error
    end.

start({connection, Connection}, _Up, _Link) ->
    inet_rdma_transport:after_nodeup(Connection);
start(
    {session, Session},
    #{queue := Queue, why := Why},
    #{connection := Raw, node := Node, config := Config} = Link
) ->
    #{listens := Listens, via := Via, offer := #{tells := Tells}} = Link,
    Started = inet_rdma_session_guard:start(Session, #{
        node => Node,
        peer => peer_listens(Link),
        via => Via,
        tells => Tells,
        listens => Listens,
        config => Config,
        why => Why,
        queue => Queue,
        has_settled => settles_first(Link)
    }),
    %% The port has its own descriptor of the connection, so the VM's socket is closed.
    ok = inet_rdma_transport:close(Raw),
    Started.

%% The address at which the peer accepts another connection.
peer_listens(#{role := initiator, address := Address}) ->
    Address;
peer_listens(#{offer := #{session := #{port := 0}}}) ->
    none;
peer_listens(#{connection := Connection, offer := #{session := #{port := TcpPort}}}) ->
    case inet_rdma_transport:ends(Connection) of
        {ok, {_Own, {Ip, _}}} -> {Ip, TcpPort};
        {error, _} -> none
    end.

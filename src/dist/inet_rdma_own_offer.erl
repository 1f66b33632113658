%% What this node offers a peer in the handshake (inet_rdma_offer), and the port that it keeps for
%% an offered session.
-module(inet_rdma_own_offer).

-export([new/1]).

%% Both sides expect a session once both have offered one, so what it needs is there before. An
%% acceptor holds nothing for a peer that offers none, and for others a port, no longer than the
%% handshake may take. Before the peer has proved the cookie it holds no descriptor beside the
%% connection's, as strangers can begin any number of handshakes: it has one when it offers, and
%% takes one again after the proof (inet_rdma_nodeup), where the spare of all ports serves, too.
%%
%% Returns the offer, and the port; none: a session needs none, or is not offered. Over a neighbour
%% no queue pair is settled.
-spec new(inet_rdma_nodeup:link()) -> {inet_rdma_offer:offer(), port() | none}.
new(#{via := Via} = Link) when Via =/= none ->
    {Offer, Port} = new(Link#{via := none}),
    {Offer#{settles := false, eager := false}, Port};
new(#{
    role := Role,
    connection := Connection,
    listens := Listens,
    node := Node,
    offer := Peer,
    config := #{compress := Compress} = Config
}) ->
    %% inet_rdma_nif may have been loaded again: then it has no library.
    HasLibrary = inet_rdma_nif:load() =:= ok,
    Compresses = offered_compression(HasLibrary, Compress, Connection),
    Place = place(HasLibrary, Role, Connection, Compresses, Node, Peer),
    Settles = inet_rdma_settlement_policy:settles(Node, Config, Place),
    case Place of
        {ok, Port} ->
            Session = #{
                port => listens_for(Listens, Connection),
                nonce => inet_rdma_nif:nonce(),
                cipher => inet_rdma_nif:cipher(),
                compresses => Compresses
            },
            {inet_rdma_offer:offer(Config, Settles, Session), Port};
        none ->
            {inet_rdma_offer:offer(Config, Settles, none), none};
        {error, Reason} ->
            {(inet_rdma_offer:offer(Config, Settles, none))#{lacks => Reason}, none}
    end.

%% none: no session is offered. Inside TLS that is so, too, if TLS has lately not given back the
%% socket of a link to that node, or without memory to decompress: an offer that says so names no
%% cipher.
place(false, _Role, _Connection, _Compresses, _Node, _Peer) ->
    none;
place(true, Role, Connection, Compresses, Node, Peer) ->
    IsInClear = inet_rdma_transport:protocol(Connection) =:= tcp,
    CanLeaveTls = Compresses =/= none andalso inet_rdma_nodeup:can_leave_tls(Node),
    case IsInClear orelse CanLeaveTls of
        true when Role =:= initiator; is_map_key(session, Peer), map_get(session, Peer) =/= none ->
            inet_rdma_session:reserve(Role);
        true ->
            {ok, none};
        false ->
            none
    end.

%% Whether this side compresses what it sends; auto: only between hosts. none: neither side does, as
%% there is no memory for what the peer would compress.
offered_compression(HasLibrary, Compress, Connection) ->
    case HasLibrary andalso has_decompression() of
        true when Compress =:= auto -> not inet_rdma_transport:is_local(Connection);
        true -> Compress;
        false -> none
    end.

has_decompression() ->
    inet_rdma_links:recent(decompression, fun inet_rdma_nif:can_decompress/0).

%% The TCP port at which this node accepts another connection of the peer, which dials the address
%% that it sees. 0: this node does not listen there, and makes each attempt to resume itself.
listens_for(none, _Connection) ->
    0;
listens_for({Ip, TcpPort}, Connection) ->
    case inet_rdma_ip:is_any(Ip) orelse inet_rdma_transport:ends(Connection) of
        true -> TcpPort;
        {ok, {{Ip, _}, _Peer}} -> TcpPort;
        _ -> 0
    end.

%% What the peer says about its node: which VM it is, on which host, and where it listens. Guards
%% tell it each other.
%%
%% The message goes in band after nodeup, and after each reconnect, to a peer whose offer has the
%% bit Tells (inet_rdma_offer):
%%
%%     <<$t, 2:8, Instance:64, Network:64, Boot:16/binary, Port:16, Bound/binary, Ends/binary, Length:8,
%%       Witness:Length/binary, Count:8, Addresses/binary>>
%%
%% Instance: the number of the VM. Two nodes with the same Boot and Network (namespace) share a
%% kernel's addresses; Boot is 0 where the kernel's boot id is hidden. Port: where the node accepts
%% connections, 0: nowhere. Bound: the address to which its listener is bound. Ends: the addresses
%% of the connection that carries the link as the sender sees them, <<1, Own/binary, OwnPort:16,
%% Peer/binary, PeerPort:16>>, or <<0>> if it does not know them. If the receiver sees the same two,
%% nothing translates them. Witness: the name of a Unix socket of the sender's VM, empty: it has
%% none yet. A VM opens that socket when one of its links has lasted for a while; its guard sends
%% the message again then. An address is <<4, Ip:4/binary>> or <<6, Ip:16/binary>>; the first of
%% Addresses is that of the connection which carries the link. Loopback and link-local addresses are
%% left out there: on another host they lead elsewhere.
-module(inet_rdma_peer_node).

-export([tell/2, tell_witness/1, has_witness/0, hear/2, own/3, message/1, parse/1]).
-export([addresses/1, port/1, instance/1]).
-export([is_same_host/1, accepts_here/2, is_direct/1, is_translated/1, host_witness/1]).
-export_type([t/0, state/0, address/0]).

-record(peer_node, {
    instance :: non_neg_integer(),
    network :: non_neg_integer(),
    boot :: <<_:128>>,
    port :: inet:port_number(),
    bound :: inet:ip_address(),
    ends :: {Own :: address(), Peer :: address()} | none,
    witness :: binary(),
    ips :: [inet:ip_address()],
    %% Found by the receiver: whether both sides see the same two addresses; the sender's VM runs in
    %% this network namespace.
    connection = unknown :: direct | translated | unknown,
    is_here = false :: boolean(),
    %% The process that had the name of the witness then.
    process = unknown :: process() | unknown
}).

-type process() :: #{pid := non_neg_integer(), uid := non_neg_integer()}.
-opaque t() :: #peer_node{}.
%% none: the peer tells nothing. awaited: its message has not come.
-type state() :: none | awaited | t().
-type address() :: {inet:ip_address(), inet:port_number()}.

%% First byte of the message. Messages of a settlement begin with 131.
-define(NODE, $t).
-define(VERSION, 2).
-define(ADDRESSES_MAX, 8).
%% A user that the kernel does not tell.
-define(NO_USER, 16#ffffffff).
%% Where the boot id is hidden.
-define(NO_BOOT, <<0:128>>).
%% Whether this VM's witness is open.
-define(HAS_WITNESS, {?MODULE, has_witness}).

%% The session has a TCP connection: tells the peer where this node listens, then these messages.
%% They may be lost with the connection: the next one brings others.
-spec tell(inet_rdma_session:t(), Further :: [binary()]) -> ok.
tell(Session, Further) ->
    case inet_rdma_links:peer(inet_rdma_session:name(Session)) of
        #{peer_node := none} ->
            ok;
        #{listens := Listens} ->
            Ends =
                case inet_rdma_session:ends(Session) of
                    {ok, Known} -> Known;
                    {error, _} -> none
                end,
            ok = begin_connection(inet_rdma_session:name(Session), Ends),
            Messages = [message(own(Listens, Ends, witness())) | Further],
            _ = [inet_rdma_session:send_message(Session, Message) || Message <- Messages],
            ok
    end.

%% Opens this VM's witness, unless it is open, and tells the peer its name, on the connection of the
%% last tell/2. The witness costs a thread and descriptors, which a node that connects for a moment
%% does without.
-spec tell_witness(inet_rdma_session:t()) -> ok.
tell_witness(Session) ->
    case {open_witness(), inet_rdma_links:peer(inet_rdma_session:name(Session))} of
        {<<_, _/binary>> = Witness, #{peer_node := PeerNode, listens := Listens, ends := Ends}} when
            PeerNode =/= none
        ->
            _ = inet_rdma_session:send_message(Session, message(own(Listens, Ends, Witness))),
            ok;
        _ ->
            ok
    end.

-spec has_witness() -> boolean().
has_witness() -> persistent_term:get(?HAS_WITNESS, false).

%% The name of this VM's witness, empty: it is not open.
witness() ->
    case has_witness() of
        true -> open_witness();
        false -> <<>>
    end.

open_witness() ->
    case inet_rdma_nif:witness_name() of
        {ok, Name} ->
            ok = persistent_term:put(?HAS_WITNESS, true),
            Name;
        {error, _} ->
            <<>>
    end.

%% What the peer has said about another connection does not hold for this one.
begin_connection(Name, Ends) ->
    ok = inet_rdma_links:set_ends(Name, Ends),
    case inet_rdma_links:peer(Name) of
        #{peer_node := #peer_node{} = PeerNode} ->
            inet_rdma_links:set_peer_node(Name, PeerNode#peer_node{connection = unknown});
        _ ->
            ok
    end.

%% Keeps what the peer tells. False: the in-band message is another one. One that is not well formed
%% is passed over.
-spec hear(inet_rdma_session:t(), binary()) -> boolean().
hear(Session, <<?NODE, _/binary>> = Message) ->
    Name = inet_rdma_session:name(Session),
    _ = [
        ok = inet_rdma_links:set_peer_node(Name, heard(PeerNode, Name))
     || {ok, PeerNode} <- [parse(Message)]
    ],
    true;
hear(_Session, _Message) ->
    false.

heard(#peer_node{ends = Ends} = PeerNode, Name) ->
    #{ends := Own} = inet_rdma_links:peer(Name),
    found(PeerNode#peer_node{connection = compared(Own, Ends)}).

%% Two machines that were made of one snapshot have one boot id; the name and the connection are the
%% peer's own.
found(#peer_node{witness = <<>>} = PeerNode) ->
    PeerNode#peer_node{is_here = shares_boot(PeerNode) orelse is_connected_here(PeerNode)};
found(#peer_node{witness = Witness} = PeerNode) ->
    case inet_rdma_nif:find_witness(Witness) of
        {present, Process} ->
            PeerNode#peer_node{is_here = true, process = Process};
        absent ->
            PeerNode#peer_node{is_here = is_connected_here(PeerNode)};
        {error, _} ->
            PeerNode#peer_node{is_here = shares_boot(PeerNode) orelse is_connected_here(PeerNode)}
    end.

%% Whether the connection, which nothing translates, is one of this host: Linux gives both ends the
%% same address then, unless the address is loopback.
is_connected_here(#peer_node{connection = direct, ends = {{Own, _}, {Peer, _}}}) ->
    Own =:= Peer orelse inet_rdma_ip:is_loopback(plain_ip(Own));
is_connected_here(_PeerNode) ->
    false.

compared({Own, Peer}, {ItsOwn, ItsPeer}) ->
    case plain(Own) =:= plain(ItsPeer) andalso plain(Peer) =:= plain(ItsOwn) of
        true -> direct;
        false -> translated
    end;
compared(_, _) ->
    unknown.

%% An IPv4 address in the form of IPv6 is that address.
plain({Ip, Port}) -> {plain_ip(Ip), Port}.

plain_ip({0, 0, 0, 0, 0, 16#ffff, High, Low}) ->
    {High bsr 8, High band 255, Low bsr 8, Low band 255};
plain_ip(Ip) ->
    Ip.

%% What this node tells. Listens: the address and the port at which it accepts connections; none:
%% nowhere. Ends: those of the connection that carries the link; none: they are not known. Witness:
%% the name of its Unix socket, or empty.
-spec own(
    Listens :: address() | none,
    Ends :: {Own :: address(), Peer :: address()} | none,
    Witness :: binary()
) ->
    t().
own(Listens, Ends, Witness) ->
    #{instance := Instance, netns := Network, boot := Boot} = inet_rdma_nif:identity(),
    {Ips, {Bound, Port}} =
        case Listens of
            none -> {[], {{0, 0, 0, 0}, 0}};
            {Ip, _} -> {[Each || Each <- listens_at(Ip, Ends), is_for_others(Each)], Listens}
        end,
    #peer_node{
        instance = Instance,
        network = Network,
        boot = boot(Boot),
        port = Port,
        bound = Bound,
        ends = Ends,
        witness = Witness,
        ips = lists:sublist(Ips, ?ADDRESSES_MAX)
    }.

boot(<<>>) -> ?NO_BOOT;
boot(Boot) -> erlang:md5(Boot).

%% The addresses at which a listener that is bound to this one accepts connections.
listens_at(Bound, Ends) ->
    case inet_rdma_ip:is_any(Bound) of
        false ->
            [Bound];
        true ->
            OfHost = inet_rdma_links:recent(addresses, fun inet_rdma_ip:of_host/0),
            first(Ends, [Ip || Ip <- OfHost, tuple_size(Ip) =:= tuple_size(Bound)])
    end.

first(none, Ips) -> Ips;
first({{Own, _}, _Peer}, Ips) -> [Own | lists:delete(Own, Ips)].

is_for_others({127, _, _, _}) -> false;
is_for_others({169, 254, _, _}) -> false;
is_for_others({0, 0, 0, 0, 0, 0, 0, 1}) -> false;
is_for_others({0, 0, 0, 0, 0, 16#ffff, High, _}) -> High bsr 8 =/= 127;
is_for_others({First, _, _, _, _, _, _, _}) -> First band 16#ffc0 =/= 16#fe80;
is_for_others(_) -> true.

-spec message(t()) -> binary().
message(#peer_node{
    instance = Instance,
    network = Network,
    boot = Boot,
    port = Port,
    bound = Bound,
    ends = Ends,
    witness = Witness,
    ips = Ips
}) ->
    Addresses = <<<<(address(Ip))/binary>> || Ip <- Ips>>,
    <<?NODE, ?VERSION, Instance:64, Network:64, Boot:16/binary, Port:16, (address(Bound))/binary,
        (ends(Ends))/binary, (byte_size(Witness)):8, Witness/binary, (length(Ips)):8,
        Addresses/binary>>.

ends(none) ->
    <<0>>;
ends({{Own, OwnPort}, {Peer, PeerPort}}) ->
    <<1, (address(Own))/binary, OwnPort:16, (address(Peer))/binary, PeerPort:16>>.

address({A, B, C, D}) -> <<4, A, B, C, D>>;
address(Ip) -> <<6, <<<<Part:16>> || Part <- tuple_to_list(Ip)>>/binary>>.

%% The peer's message. Its addresses are checked as its own were chosen.
-spec parse(binary()) -> {ok, t()} | error.
parse(<<?NODE, ?VERSION, Instance:64, Network:64, Boot:16/binary, Port:16, Rest/binary>>) ->
    try
        {Bound, AfterBound} = ip(Rest),
        {Ends, <<Length:8, Witness:Length/binary, Count:8, Bytes/binary>>} = parse_ends(AfterBound),
        Ips = ips(Bytes),
        true =
            length(Ips) =:= Count andalso Count =< ?ADDRESSES_MAX andalso
                (Port > 0 orelse Ips =:= []) andalso
                lists:all(fun is_dialable/1, Ips),
        {ok, #peer_node{
            instance = Instance,
            network = Network,
            boot = binary:copy(Boot),
            port = Port,
            bound = Bound,
            ends = Ends,
            witness = binary:copy(Witness),
            ips = Ips
        }}
    catch
        error:_ -> error
    end;
parse(_) ->
    error.

parse_ends(<<0, Rest/binary>>) ->
    {none, Rest};
parse_ends(<<1, Rest/binary>>) ->
    {Own, <<OwnPort:16, AfterOwn/binary>>} = ip(Rest),
    {Peer, <<PeerPort:16, AfterPeer/binary>>} = ip(AfterOwn),
    {{{Own, OwnPort}, {Peer, PeerPort}}, AfterPeer}.

ip(<<4, A, B, C, D, Rest/binary>>) -> {{A, B, C, D}, Rest};
ip(<<6, Ip:16/binary, Rest/binary>>) -> {list_to_tuple([Part || <<Part:16>> <= Ip]), Rest}.

ips(<<>>) ->
    [];
ips(Bytes) ->
    {Ip, Rest} = ip(Bytes),
    [Ip | ips(Rest)].

%% Neither any address, nor one of many receivers.
is_dialable({First, _, _, _} = Ip) ->
    is_for_others(Ip) andalso First > 0 andalso First < 224;
is_dialable({First, _, _, _, _, _, _, Last} = Ip) ->
    is_for_others(Ip) andalso First < 16#ff00 andalso (First > 0 orelse Last > 1).

-spec addresses(state()) -> [address()].
addresses(#peer_node{ips = Ips, port = Port}) -> [{Ip, Port} || Ip <- Ips];
addresses(_NoneOrAwaited) -> [].

-spec port(state()) -> inet:port_number() | unknown.
port(#peer_node{port = Port}) -> Port;
port(_NoneOrAwaited) -> unknown.

-spec instance(state()) -> non_neg_integer() | none.
instance(#peer_node{instance = Instance}) -> Instance;
instance(_NoneOrAwaited) -> none.

%% Whether the peer's addresses are those of this node, loopback above all: one kernel, one network
%% namespace.
-spec is_same_host(state()) -> boolean().
is_same_host(#peer_node{is_here = IsHere}) -> IsHere;
is_same_host(_NoneOrAwaited) -> false.

%% Two hosts that hide their boot ids are not one host.
shares_boot(#peer_node{boot = Boot, network = Network}) when Boot =:= ?NO_BOOT; Network =:= 0 ->
    false;
shares_boot(#peer_node{network = Network, boot = Boot}) ->
    #{netns := OwnNetwork, boot := OwnBoot} = inet_rdma_nif:identity(),
    Network =:= OwnNetwork andalso Boot =:= boot(OwnBoot).

%% Whether the peer accepts connections at this address of this host, which is the peer's, too.
-spec accepts_here(inet:ip_address(), state()) -> boolean().
accepts_here(Ip, #peer_node{bound = Bound} = PeerNode) ->
    is_same_host(PeerNode) andalso (inet_rdma_ip:is_any(Bound) orelse Bound =:= Ip);
accepts_here(_Ip, _NoneOrAwaited) ->
    false.

%% Whether nothing translates the connection on which the peer has sent this: both sides see the
%% same two addresses.
-spec is_direct(state()) -> boolean().
is_direct(#peer_node{connection = Connection}) -> Connection =:= direct;
is_direct(_NoneOrAwaited) -> false.

%% Whether something translates that connection, or ends it and makes another one: each side sees
%% other addresses.
-spec is_translated(state()) -> boolean().
is_translated(#peer_node{connection = Connection}) -> Connection =:= translated;
is_translated(_NoneOrAwaited) -> false.

%% Whether the VM of a peer of this host lives: the kernel removes the name of its Unix socket with
%% it. Any user may take the name after that, so the process must be the one that had it before.
%% Asks the kernel, and does not wait.
-spec host_witness(state()) -> inet_rdma_death:witness().
host_witness(#peer_node{process = #{} = Before, witness = Name}) ->
    case inet_rdma_nif:find_witness(Name) of
        {present, Now} -> same_process(Before, Now);
        absent -> dead;
        {error, _} -> unknown
    end;
host_witness(_) ->
    unknown.

%% Too many connections wait at the socket: any user can make them.
same_process(#{uid := Before}, #{uid := Now}) when Before =:= ?NO_USER; Now =:= ?NO_USER -> unknown;
same_process(Process, Process) -> alive;
same_process(_Before, _Now) -> dead.

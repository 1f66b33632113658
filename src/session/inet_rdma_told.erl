%% What the guards of a link tell each other about their nodes: which VM it is, on which host, and where it listens.
%%
%% The message goes in band behind nodeup, and behind each connection that is made anew, to a peer whose offer has the
%% bit Tells (inet_rdma_offer):
%%
%%     <<$t, 1:8, Instance:64, Network:64, Boot:16/binary, Port:16, Bound/binary, Count:8, Addresses/binary>>
%%
%% Instance: the number of the VM. Two nodes with the same Boot and Network (namespace) share a kernel's addresses.
%% Port: where the node accepts connections, 0: nowhere. Bound: the address to which its listener is bound. An address
%% is <<4, Ip:4/binary>> or <<6, Ip:16/binary>>; the first of Addresses is that of the connection which carries the
%% link. Loopback and link-local addresses are left out there: on another host they lead elsewhere.
-module(inet_rdma_told).

-export([tell/2, hear/2, own/2, message/1, parse/1, addresses/1, port/1, instance/1]).
-export([is_same_host/1, accepts_here/2]).
-export_type([t/0, state/0, address/0]).

-record(told, {
    instance :: non_neg_integer(),
    network :: non_neg_integer(),
    boot :: <<_:128>>,
    port :: inet:port_number(),
    bound :: inet:ip_address(),
    ips :: [inet:ip_address()]
}).

-opaque t() :: #told{}.
%% none: the peer tells nothing. awaited: its message has not come.
-type state() :: none | awaited | t().
-type address() :: {inet:ip_address(), inet:port_number()}.

%% First byte of the message. Messages about keys begin with $k, those of a settlement with 131.
-define(TOLD, $t).
-define(VERSION, 1).
-define(ADDRESSES_MAX, 8).

%% The session has a TCP connection: tells the peer where this node listens, then these messages. They may be lost with
%% the connection: the next one brings others.
-spec tell(inet_rdma_session:t(), Further :: [binary()]) -> ok.
tell(Session, Further) ->
    case inet_rdma_links:peer(inet_rdma_session:name(Session)) of
        #{told := none} ->
            ok;
        #{listens := Listens} ->
            Own = case inet_rdma_session:ends(Session) of
                      {ok, {{Ip, _}, _Peer}} -> Ip;
                      {error, _} -> none
                  end,
            Messages = [message(own(Listens, Own)) | Further],
            _ = [inet_rdma_session:send_message(Session, Message) || Message <- Messages],
            ok
    end.

%% Keeps what the peer tells. False: the in-band message is another one. One that is not well formed is passed over.
-spec hear(inet_rdma_session:t(), binary()) -> boolean().
hear(Session, <<?TOLD, _/binary>> = Message) ->
    _ = [ok = inet_rdma_links:set_told(inet_rdma_session:name(Session), Told) || {ok, Told} <- [parse(Message)]],
    true;
hear(_Session, _Message) ->
    false.

%% What this node tells. Listens: the address and the port at which it accepts connections; none: nowhere. Own: its
%% address on the connection that carries the link; none: not known.
-spec own(Listens :: address() | none, Own :: inet:ip_address() | none) -> t().
own(Listens, Own) ->
    #{instance := Instance, netns := Network, boot := Boot} = inet_rdma_nif:identity(),
    {Ips, {Bound, Port}} = case Listens of
                               none -> {[], {{0, 0, 0, 0}, 0}};
                               {Ip, _} -> {[Each || Each <- listens_at(Ip, Own), is_for_others(Each)], Listens}
                           end,
    #told{instance = Instance, network = Network, boot = erlang:md5(Boot), port = Port, bound = Bound,
          ips = lists:sublist(Ips, ?ADDRESSES_MAX)}.

%% The addresses at which a listener that is bound to this one accepts connections.
listens_at(Bound, Own) ->
    case inet_rdma_ip:is_any(Bound) of
        false -> [Bound];
        true -> first(Own, [Ip || Ip <- inet_rdma_ip:of_host(), tuple_size(Ip) =:= tuple_size(Bound)])
    end.

first(none, Ips) -> Ips;
first(Own, Ips) -> [Own | lists:delete(Own, Ips)].

is_for_others({127, _, _, _}) -> false;
is_for_others({169, 254, _, _}) -> false;
is_for_others({0, 0, 0, 0, 0, 0, 0, 1}) -> false;
is_for_others({0, 0, 0, 0, 0, 16#ffff, High, _}) -> High bsr 8 =/= 127;
is_for_others({First, _, _, _, _, _, _, _}) -> First band 16#ffc0 =/= 16#fe80;
is_for_others(_) -> true.

-spec message(t()) -> binary().
message(#told{instance = Instance, network = Network, boot = Boot, port = Port, bound = Bound, ips = Ips}) ->
    Addresses = << <<(address(Ip))/binary>> || Ip <- Ips >>,
    <<?TOLD, ?VERSION, Instance:64, Network:64, Boot:16/binary, Port:16, (address(Bound))/binary, (length(Ips)):8,
      Addresses/binary>>.

address({A, B, C, D}) -> <<4, A, B, C, D>>;
address(Ip) -> <<6, << <<Part:16>> || Part <- tuple_to_list(Ip) >>/binary>>.

%% The peer's message. Its addresses are checked as its own were chosen.
-spec parse(binary()) -> {ok, t()} | error.
parse(<<?TOLD, ?VERSION, Instance:64, Network:64, Boot:16/binary, Port:16, Rest/binary>>) ->
    try
        {Bound, <<Count:8, Bytes/binary>>} = ip(Rest),
        Ips = ips(Bytes),
        true = length(Ips) =:= Count andalso Count =< ?ADDRESSES_MAX andalso (Port > 0 orelse Ips =:= [])
            andalso lists:all(fun is_dialable/1, Ips),
        {ok, #told{instance = Instance, network = Network, boot = binary:copy(Boot), port = Port, bound = Bound,
                   ips = Ips}}
    catch
        error:_ -> error
    end;
parse(_) ->
    error.

ip(<<4, A, B, C, D, Rest/binary>>) -> {{A, B, C, D}, Rest};
ip(<<6, Ip:16/binary, Rest/binary>>) -> {list_to_tuple([Part || <<Part:16>> <= Ip]), Rest}.

ips(<<>>) ->
    [];
ips(Bytes) ->
    {Ip, Rest} = ip(Bytes),
    [Ip | ips(Rest)].

%% Neither any address, nor one of many receivers.
is_dialable({First, _, _, _} = Ip) -> is_for_others(Ip) andalso First > 0 andalso First < 224;
is_dialable({First, _, _, _, _, _, _, Last} = Ip) ->
    is_for_others(Ip) andalso First < 16#ff00 andalso (First > 0 orelse Last > 1).

-spec addresses(state()) -> [address()].
addresses(#told{ips = Ips, port = Port}) -> [{Ip, Port} || Ip <- Ips];
addresses(_NoneOrAwaited) -> [].

-spec port(t()) -> inet:port_number().
port(#told{port = Port}) -> Port.

-spec instance(state()) -> non_neg_integer() | none.
instance(#told{instance = Instance}) -> Instance;
instance(_NoneOrAwaited) -> none.

%% Whether the peer's addresses are those of this node, loopback above all: one kernel, one network namespace.
-spec is_same_host(state()) -> boolean().
is_same_host(#told{network = Network, boot = Boot}) ->
    #{netns := OwnNetwork, boot := OwnBoot} = inet_rdma_nif:identity(),
    Network =:= OwnNetwork andalso Boot =:= erlang:md5(OwnBoot);
is_same_host(_NoneOrAwaited) -> false.

%% Whether the peer accepts connections at this address of this host, which is the peer's, too.
-spec accepts_here(inet:ip_address(), state()) -> boolean().
accepts_here(Ip, #told{bound = Bound} = Told) ->
    is_same_host(Told) andalso (inet_rdma_ip:is_any(Bound) orelse Bound =:= Ip);
accepts_here(_Ip, _NoneOrAwaited) -> false.

%% The paths that links between two nodes can take on these hosts: shared memory, TCP, each RDMA
%% device.
-module(inet_rdma_certify_path).

-export([all/3, slowed/2, node/3, tcp_node/3, is_software/1]).
-export_type([t/0]).

%% home: HOME of the nodes of this host. here, there: addresses in the names of the nodes of either
%% side. connect_ms: the nodes' option connect_timeout_ms.
-type t() :: #{
    id := binary(),
    fabric := tcp | shm | verbs,
    here := string(),
    there := string(),
    device := inet_rdma_doctor_facts:device() | none,
    host := inet_rdma_certify_node:host(),
    home := file:filename(),
    connect_ms := pos_integer()
}.

-define(LOOPBACK, "127.0.0.1").

%% The paths within this host, or between it and another, by the doctor's report; and the devices
%% that are left out, each with the reason.
-spec all(inet_rdma_doctor:report(), inet_rdma_certify_peer:t() | none, file:filename()) ->
    {[t()], [{binary(), Why :: iodata()}]}.
all(#{devices := Devices}, Peer, Home) ->
    {Verbs, LeftOut} = lists:partition(fun erlang:is_map/1, [
        of_device(Device, Peer)
     || Device <- Devices
    ]),
    {[Path#{home => Home} || Path <- others(Peer) ++ Verbs], LeftOut}.

others(none) ->
    [
        path(atom_to_binary(Fabric), Fabric, ?LOOPBACK, ?LOOPBACK, none, local)
     || Fabric <- [shm, tcp]
    ];
others(#{host := Host, networks := {Here, There}}) ->
    [path(<<"tcp">>, tcp, Here, There, none, Host)].

of_device(#{name := Name} = Device, Peer) ->
    case {usable(Device), Peer} of
        {{error, Why}, _} ->
            {Name, Why};
        {[], none} ->
            {Name, "its interface has no IPv4 address: rdma_cm connects to IP addresses"};
        {[Address | _], none} ->
            path(<<"verbs ", Name/binary>>, verbs, Address, Address, Device, local);
        {Own, #{host := Host, addresses := Theirs}} ->
            Pairs = [
                {Address, Other}
             || Address <- Own,
                Other <- Theirs,
                Other =/= Address,
                same_network(Address, Other, netmask(Address))
            ],
            case Pairs of
                [{Here, There} | _] ->
                    path(<<"verbs ", Name/binary>>, verbs, Here, There, Device, Host);
                [] ->
                    {Name, "the peer has no address in the network of this device"}
            end
    end.

%% The IPv4 addresses of a device.
usable(#{usable := Usable, ports := Ports}) ->
    Active = [Port || #{state := <<"ACTIVE">>} = Port <- Ports],
    case {Usable, Active} of
        {ok, [_ | _]} ->
            [
                binary_to_list(Address)
             || #{addresses := Addresses} <- Active,
                Address <- Addresses,
                {ok, {_, _, _, _}} <- [inet:parse_address(binary_to_list(Address))]
            ];
        {ok, []} ->
            {error, "no port of it is active"};
        {{refused, Why}, _} ->
            {error, ["it cannot be opened: ", Why]};
        {no_provider, _} ->
            {error, "libibverbs does not list it"};
        {unknown, _} ->
            {error, "the native library cannot ask it"}
    end.

netmask(Address) ->
    {ok, Ip} = inet:parse_address(Address),
    {ok, Interfaces} = inet:getifaddrs(),
    case [Mask || {_, Properties} <- Interfaces, {Own, Mask} <- masks(Properties), Own =:= Ip] of
        [Mask | _] -> Mask;
        [] -> {255, 255, 255, 255}
    end.

masks([{addr, Ip}, {netmask, Mask} | Rest]) -> [{Ip, Mask} | masks(Rest)];
masks([_ | Rest]) -> masks(Rest);
masks([]) -> [].

same_network(One, Other, Mask) -> network(One, Mask) =:= network(Other, Mask).

network(Address, Mask) ->
    {ok, Ip} = inet:parse_ipv4_address(Address),
    lists:zipwith(fun erlang:'band'/2, tuple_to_list(Ip), tuple_to_list(Mask)).

path(Id, Fabric, Here, There, Device, Host) ->
    #{
        id => Id,
        fabric => Fabric,
        here => Here,
        there => There,
        device => Device,
        host => Host,
        connect_ms => 5000
    }.

%% The path on a machine that is Slowness times as slow as usual: its nodes get that much more time
%% to connect.
-spec slowed(t(), number()) -> t().
slowed(#{connect_ms := Ms} = Path, Slowness) -> Path#{connect_ms := round(Slowness * Ms)}.

%% A node whose links take this path, for inet_rdma_certify_node:start_all/1.
-spec node(t(), here | there, string()) -> inet_rdma_certify_node:wanted().
node(#{fabric := Fabric, connect_ms := ConnectMs} = Path, Side, Prefix) ->
    (tcp_node(Path, Side, Prefix))#{
        carrier := "inet_rdma",
        rdma := [{fabric, Fabric}, {move, eager}, {connect_timeout_ms, ConnectMs}]
    }.

%% A node on the same host with the VM's own carrier.
-spec tcp_node(t(), here | there, string()) -> inet_rdma_certify_node:wanted().
tcp_node(#{here := Here, home := Home}, here, Prefix) ->
    #{
        host => local,
        home => Home,
        prefix => Prefix,
        address => Here,
        carrier => "inet_tcp",
        rdma => []
    };
tcp_node(#{there := There, host := Host, home := Home}, there, Prefix) ->
    #{
        host => Host,
        home => Home,
        prefix => Prefix,
        address => There,
        carrier => "inet_tcp",
        rdma => []
    }.

%% Whether the kernel emulates the device: figures say nothing of hardware.
-spec is_software(t()) -> boolean().
is_software(#{device := #{software := Software}}) -> Software;
is_software(#{device := none}) -> false.

%% The paths that links between two nodes can take on these hosts: shared memory, TCP, each RDMA device.
%%
%% Internal: use inet_rdma_certify:run/1.
-module(inet_rdma_certify_path).

-export([of_host/1, of_hosts/3, slowed/2, node/3, tcp_node/3, is_software/1]).
-export_type([t/0]).

%% here, there: addresses in the names of the nodes of either side. connect_ms: the nodes' option connect_timeout_ms.
-type t() :: #{id := binary(), fabric := tcp | shm | verbs, here := string(), there := string(),
               device := inet_rdma_doctor_facts:device() | none, host := inet_rdma_certify_node:host(),
               connect_ms := pos_integer()}.

-define(LOOPBACK, "127.0.0.1").

%% The paths within this host, by the doctor's report, and the devices that are left out, each with the reason.
-spec of_host(inet_rdma_doctor:report()) -> {[t()], [{binary(), Why :: iodata()}]}.
of_host(#{devices := Devices}) ->
    Found = lists:append([on_host(Device) || Device <- Devices]),
    {Verbs, LeftOut} = lists:partition(fun erlang:is_map/1, Found),
    {[path(<<"shm">>, shm, ?LOOPBACK, ?LOOPBACK, none, local),
      path(<<"tcp">>, tcp, ?LOOPBACK, ?LOOPBACK, none, local) | Verbs], LeftOut}.

on_host(#{name := Name} = Device) ->
    case usable(Device) of
        {error, Why} -> [{Name, Why}];
        [] -> [{Name, "its interface has no IPv4 address: rdma_cm connects to IP addresses"}];
        [Address | _] -> [path(<<"verbs ", Name/binary>>, verbs, Address, Address, Device, local)]
    end.

%% The paths between this host and another. Addresses: of the networks that the two hosts share, without RDMA.
-spec of_hosts(inet_rdma_doctor:report(), inet_rdma_certify_peer:t(), {string(), string()}) ->
          {[t()], [{binary(), Why :: iodata()}]}.
of_hosts(#{devices := Devices}, #{host := Host, addresses := Theirs}, {Here, There}) ->
    Found = lists:append([across(Device, Theirs, Host) || Device <- Devices]),
    {Verbs, LeftOut} = lists:partition(fun erlang:is_map/1, Found),
    {[path(<<"tcp">>, tcp, Here, There, none, Host) | Verbs], LeftOut}.

across(#{name := Name} = Device, Theirs, Host) ->
    case usable(Device) of
        {error, Why} -> [{Name, Why}];
        Own ->
            Pairs = [{Address, Other} || Address <- Own, Other <- Theirs, Other =/= Address,
                                         same_network(Address, Other, netmask(Address))],
            case Pairs of
                [{Here, There} | _] -> [path(<<"verbs ", Name/binary>>, verbs, Here, There, Device, Host)];
                [] -> [{Name, "the peer has no address in the network of this device"}]
            end
    end.

%% The IPv4 addresses of a device.
usable(#{usable := Usable, ports := Ports}) ->
    Active = [Port || #{state := <<"ACTIVE">>} = Port <- Ports],
    case {Usable, Active} of
        {ok, [_ | _]} ->
            [binary_to_list(Address) || #{addresses := Addresses} <- Active, Address <- Addresses,
                                        {ok, {_, _, _, _}} <- [inet:parse_address(binary_to_list(Address))]];
        {ok, []} -> {error, "no port of it is active"};
        {{refused, Why}, _} -> {error, ["it cannot be opened: ", Why]};
        {no_provider, _} -> {error, "libibverbs does not list it"};
        {unknown, _} -> {error, "the native library cannot ask it"}
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

same_network(One, Other, {M1, M2, M3, M4}) ->
    [{A1, A2, A3, A4}, {B1, B2, B3, B4}] = [begin {ok, Ip} = inet:parse_ipv4_address(Each), Ip end
                                            || Each <- [One, Other]],
    lists:all(fun({A, B, M}) -> A band M =:= B band M end, [{A1, B1, M1}, {A2, B2, M2}, {A3, B3, M3}, {A4, B4, M4}]).

path(Id, Fabric, Here, There, Device, Host) ->
    #{id => Id, fabric => Fabric, here => Here, there => There, device => Device, host => Host, connect_ms => 5000}.

%% The path on a machine that is Slowness times as slow as usual: its nodes get that much more time to connect.
-spec slowed(t(), number()) -> t().
slowed(#{connect_ms := Ms} = Path, Slowness) -> Path#{connect_ms := round(Slowness * Ms)}.

%% A node whose links take this path, for inet_rdma_certify_node:start_all/1.
-spec node(t(), here | there, string()) -> inet_rdma_certify_node:wanted().
node(#{fabric := Fabric, connect_ms := ConnectMs} = Path, Side, Prefix) ->
    (tcp_node(Path, Side, Prefix))#{carrier := "inet_rdma",
                                   rdma := [{fabric, Fabric}, {move, eager}, {connect_timeout_ms, ConnectMs}]}.

%% A node on the same host with the VM's own carrier.
-spec tcp_node(t(), here | there, string()) -> inet_rdma_certify_node:wanted().
tcp_node(#{here := Here}, here, Prefix) ->
    #{host => local, prefix => Prefix, address => Here, carrier => "inet_tcp", rdma => []};
tcp_node(#{there := There, host := Host}, there, Prefix) ->
    #{host => Host, prefix => Prefix, address => There, carrier => "inet_tcp", rdma => []}.

%% Whether the kernel emulates the device: figures say nothing of hardware.
-spec is_software(t()) -> boolean().
is_software(#{device := #{software := Software}}) -> Software;
is_software(#{device := none}) -> false.

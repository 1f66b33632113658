%% Addresses of hosts.
-module(inet_rdma_ip).

-export([interfaces/0, of_host/0, is_any/1, is_loopback/1, origin/1, text/1]).
-export_type([origin/0]).

%% Where connections come from: an address; of IPv6 its first 64 bits, as one host may have all
%% addresses of such a network.
-type origin() :: inet:ip_address() | {0..65535, 0..65535, 0..65535, 0..65535}.

%% The addresses of each interface of this host, as far as the system says.
-spec interfaces() -> [{Name :: string(), [inet:ip_address()]}].
interfaces() ->
    case inet:getifaddrs() of
        {ok, Interfaces} ->
            [{Name, [Ip || {addr, Ip} <- Properties]} || {Name, Properties} <- Interfaces];
        {error, _} ->
            []
    end.

-spec of_host() -> [inet:ip_address()].
of_host() -> [Ip || {_Name, Ips} <- interfaces(), Ip <- Ips].

%% Whether a listener there accepts connections at all addresses of its host.
-spec is_any(inet:ip_address()) -> boolean().
is_any(Ip) -> lists:all(fun(Part) -> Part =:= 0 end, tuple_to_list(Ip)).

%% Whether no other host answers at an address.
-spec is_loopback(inet:ip_address()) -> boolean().
is_loopback({127, _, _, _}) -> true;
is_loopback(Ip) -> Ip =:= {0, 0, 0, 0, 0, 0, 0, 1}.

%% An IPv4 address in the form of IPv6 is one host's.
-spec origin(inet:ip_address()) -> origin().
origin({0, 0, 0, 0, 0, 16#ffff, _, _} = Ip) -> Ip;
origin({A, B, C, D, _, _, _, _}) -> {A, B, C, D};
origin(Ip) -> Ip.

-spec text(inet:ip_address()) -> binary().
text(Ip) -> list_to_binary(inet:ntoa(Ip)).

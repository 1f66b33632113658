%% Addresses of hosts.
-module(inet_rdma_ip).

-export([interfaces/0, of_host/0, is_any/1, is_loopback/1, text/1]).

%% The addresses of each interface of this host, as far as the system says.
-spec interfaces() -> [{Name :: string(), [inet:ip_address()]}].
interfaces() ->
    case inet:getifaddrs() of
        {ok, Interfaces} -> [{Name, [Ip || {addr, Ip} <- Properties]} || {Name, Properties} <- Interfaces];
        {error, _} -> []
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

-spec text(inet:ip_address()) -> binary().
text(Ip) -> list_to_binary(inet:ntoa(Ip)).

%% An EPMD module that leads the connections of inet_rdma, and no other carrier's, through
%% inet_rdma_test_bad_way: `-epmd_module inet_rdma_test_bad_epmd -inet_rdma_test_bad_epmd PORT'.
%% Runs in the node under test.
-module(inet_rdma_test_bad_epmd).

-export([start_link/0, register_node/2, register_node/3, listen_port_please/2, address_please/3]).
-export([port_please/2, port_please/3, names/1]).

start_link() -> erl_epmd:start_link().

register_node(Name, Port) -> erl_epmd:register_node(Name, Port).

register_node(Name, Port, Family) -> erl_epmd:register_node(Name, Port, Family).

listen_port_please(Name, Host) -> erl_epmd:listen_port_please(Name, Host).

address_please(Name, Host, Family) -> erl_epmd:address_please(Name, Host, Family).

names(Host) -> erl_epmd:names(Host).

port_please(Name, Address) -> port_please(Name, Address, infinity).

port_please(Name, Address, Timeout) ->
    case {erl_epmd:port_please(Name, Address, Timeout), init:get_argument(proto_dist)} of
        {{port, Port, Version}, {ok, [["inet_rdma"]]}} -> {port, led(Port), Version};
        {Answer, _} -> Answer
    end.

led(Port) ->
    {ok, [[Text]]} = init:get_argument(inet_rdma_test_bad_epmd),
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, list_to_integer(Text), [
        binary, {packet, 2}, {active, false}
    ]),
    ok = gen_tcp:send(Socket, integer_to_binary(Port)),
    {ok, Other} = gen_tcp:recv(Socket, 0, 5000),
    ok = gen_tcp:close(Socket),
    binary_to_integer(Other).

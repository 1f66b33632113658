%% An EPMD module of its own: names are files of a directory, `-inet_rdma_test_epmd DIR', with the
%% port and, after a space, an address in place of the host's. Runs in the node under test.
-module(inet_rdma_test_epmd).

-export([start_link/0, register_node/2, register_node/3, listen_port_please/2, address_please/3]).
-export([port_please/2, port_please/3, names/1]).

-define(VERSION, 6).

%% No process is needed.
start_link() -> ignore.

register_node(Name, Port) -> register_node(Name, Port, inet).

register_node(Name, Port, _Family) ->
    ok = prim_file:write_file(file(Name), integer_to_list(Port)),
    {ok, 1}.

listen_port_please(_Name, _Host) -> {ok, 0}.

%% A host that is no address is this one.
address_please(Name, Host, _Family) ->
    case {port_please(Name, Host), address(Name, Host)} of
        {{port, Port, Version}, {ok, Address}} -> {ok, Address, Port, Version};
        {{port, Port, Version}, {error, _}} -> {ok, {127, 0, 0, 1}, Port, Version};
        {noport, _} -> {error, nxdomain}
    end.

port_please(Name, Address) -> port_please(Name, Address, infinity).

port_please(Name, _Address, _Timeout) ->
    case read(Name) of
        [Port | _] -> {port, binary_to_integer(Port), ?VERSION};
        [] -> noport
    end.

address(Name, Host) ->
    case read(Name) of
        [_Port, Address] -> inet:parse_address(binary_to_list(Address));
        _ -> inet:parse_address(Host)
    end.

read(Name) ->
    case prim_file:read_file(file(Name)) of
        {ok, Words} -> binary:split(Words, <<" ">>);
        {error, _} -> []
    end.

names(_Host) -> {error, address}.

%% Before the kernel application is there: no file server.
file(Name) when is_atom(Name) -> file(atom_to_list(Name));
file(Name) ->
    {ok, [[Directory]]} = init:get_argument(inet_rdma_test_epmd),
    filename:join(Directory, Name).

%% A carrier with the name of inet_rdma and the links of inet_tcp: ports.
-module(inet_rdma_dist).

-export([listen/1, listen/2, accept/1, accept_connection/5, setup/5, close/1, select/1, address/0]).

listen(Name) -> inet_tcp_dist:listen(Name).
listen(Name, Host) -> inet_tcp_dist:listen(Name, Host).
accept(Listen) -> inet_tcp_dist:accept(Listen).
accept_connection(Acceptor, Socket, MyNode, Allowed, SetupTime) ->
    inet_tcp_dist:accept_connection(Acceptor, Socket, MyNode, Allowed, SetupTime).
setup(Node, Type, MyNode, LongOrShortNames, SetupTime) ->
    inet_tcp_dist:setup(Node, Type, MyNode, LongOrShortNames, SetupTime).
close(Socket) -> inet_tcp_dist:close(Socket).
select(Node) -> inet_tcp_dist:select(Node).
address() -> inet_tcp_dist:address().

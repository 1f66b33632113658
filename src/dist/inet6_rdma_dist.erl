%% The distribution carrier over IPv6: `erl -proto_dist inet6_rdma`. See inet_rdma_dist.
-module(inet6_rdma_dist).

-export([
    listen/2, accept/1, accept_connection/5, setup/5, close/1, select/1, address/0, is_node_name/1
]).
-export([setopts/2, getopts/2, childspecs/0]).

-define(DRIVER, inet6_tcp).

listen(Name, Host) -> inet_rdma_dist:gen_listen(?DRIVER, Name, Host).
accept(Listen) -> inet_rdma_dist:gen_accept(?DRIVER, Listen).
accept_connection(AcceptPid, Socket, MyNode, Allowed, SetupTime) ->
    inet_rdma_dist:gen_accept_connection(?DRIVER, AcceptPid, Socket, MyNode, Allowed, SetupTime).
setup(Node, Type, MyNode, LongOrShortNames, SetupTime) ->
    inet_rdma_dist:gen_setup(?DRIVER, Node, Type, MyNode, LongOrShortNames, SetupTime).
select(Node) -> inet_rdma_dist:gen_select(?DRIVER, Node).
address() -> inet_rdma_dist:gen_address(?DRIVER).
close(Listen) -> inet_rdma_dist:gen_close(?DRIVER, Listen).
is_node_name(Node) -> inet_rdma_dist:is_node_name(Node).
setopts(Socket, Options) -> inet_rdma_dist:setopts(Socket, Options).
getopts(Socket, Keys) -> inet_rdma_dist:getopts(Socket, Keys).

%% A node with both carriers has one set of supervisors: net_kernel's takes no name twice.
childspecs() ->
    case init:get_argument(proto_dist) of
        {ok, [Carriers | _]} ->
            case lists:member("inet_rdma", Carriers) of
                true -> {ok, []};
                false -> inet_rdma_dist:childspecs()
            end;
        _ ->
            inet_rdma_dist:childspecs()
    end.

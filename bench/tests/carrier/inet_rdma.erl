%% Lists the links of the node with the fabric that the flag `-inet_rdma_test FABRIC` names; `none`:
%% lists nothing.
-module(inet_rdma).

-export([info/0]).

info() ->
    {ok, [[Fabric]]} = init:get_argument(inet_rdma_test),
    [#{node => Node, fabric => list_to_binary(Fabric)} || Node <- nodes(), Fabric =/= "none"].

%% The processes that make a link. Runs in the node under test.
-module(inet_rdma_test_setups).

-export([supervisors/0, bounded/0, ping/1]).

%% The supervisors of links that this node makes or has made.
-spec supervisors() -> [pid()].
supervisors() -> begun_by(inet_rdma_dist, do_setup).

%% Calls within a time limit, and the processes that end them with their callers.
-spec bounded() -> [pid()].
bounded() -> begun_by(inet_rdma_bounded, answer) ++ begun_by(inet_rdma_bounded, end_with).

begun_by(Module, Function) ->
    [
        Pid
     || Pid <- processes(),
        {initial_call, {M, F, _}} <- [process_info(Pid, initial_call)],
        M =:= Module,
        F =:= Function
    ].

%% The process to which net_kernel has given the link, and that which waits for it.
-spec ping(node()) -> pid().
ping(Node) -> spawn(net_adm, ping, [Node]).

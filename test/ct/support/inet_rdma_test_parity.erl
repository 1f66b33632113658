%% The same steps over gen_tcp and over inet_rdma, each within this node: the calls whose module or
%% options differ, and the comparison of what the steps give. Groups give inet_rdma's streams one
%% fabric or another.
-module(inet_rdma_test_parity).

-include_lib("stdlib/include/assert.hrl").

-export([suite/0, all/0, groups/1, init_per_group/2, end_per_group/2]).
-export([
    same/1,
    elsewhere/1,
    pair/2,
    listen/2,
    accept/2,
    common/1,
    recv/3,
    setopts/3,
    getopts/3,
    getstat/3,
    messages/1
]).

-define(TIMEOUT_MS, 20000).
-define(LOOKS, 10).
%% auto is shared memory here: both ends are of this node.
-define(FABRICS, [auto, tcp]).

suite() ->
    [{timetrap, {minutes, 2}}].

all() ->
    [{group, Fabric} || Fabric <- ?FABRICS].

%% All cases over each fabric.
groups(Cases) ->
    [{Fabric, [], Cases} || Fabric <- ?FABRICS].

init_per_group(Fabric, Config) ->
    ok = application:set_env(inet_rdma, fabric, Fabric),
    inet_rdma_test_node:only_rdma(Config).

end_per_group(_Fabric, _Config) ->
    ok = application:unset_env(inet_rdma, fabric).

%% Runs the steps over both, each in a process of its own, and compares what they give.
same(Steps) ->
    [OverTcp, OverRdma] = [elsewhere(fun() -> Steps(Module) end) || Module <- [gen_tcp, inet_rdma]],
    ?assertEqual(OverTcp, OverRdma).

elsewhere(Fun) ->
    {Pid, Ref} = spawn_monitor(fun() -> exit({result, Fun()}) end),
    receive
        {'DOWN', Ref, process, Pid, {result, Result}} -> Result;
        {'DOWN', Ref, process, Pid, Reason} -> error(Reason)
    end.

%% Both ends belong to the caller, and live as long as it: inet_rdma closes a socket that no term
%% names. The second was accepted.
pair(Module, Options) ->
    {Listener, Port} = listen(Module, Options),
    Passive = [{active, false} | proplists:delete(ip, proplists:delete(active, Options))],
    {ok, X} = Module:connect("localhost", Port, common(Module) ++ Passive),
    {ok, Y} = accept(Module, Listener),
    _ = put(pair, {X, Y}),
    {X, Y}.

listen(Module, Options) ->
    {ok, Listener} = Module:listen(0, common(Module) ++ Options),
    {ok, Port} = port(Module, Listener),
    {Listener, Port}.

accept(Module, Listener) -> Module:accept(Listener, ?TIMEOUT_MS).

%% What is the default of one module and not of the other.
common(gen_tcp) -> [binary, {active, false}];
common(inet_rdma) -> [].

port(gen_tcp, Listener) -> inet:port(Listener);
port(inet_rdma, Listener) -> inet_rdma:port(Listener).

recv(Module, Socket, Length) -> Module:recv(Socket, Length, ?TIMEOUT_MS).

setopts(gen_tcp, Socket, Options) -> inet:setopts(Socket, Options);
setopts(inet_rdma, Socket, Options) -> inet_rdma:setopts(Socket, Options).

getopts(gen_tcp, Socket, Keys) -> inet:getopts(Socket, Keys);
getopts(inet_rdma, Socket, Keys) -> inet_rdma:getopts(Socket, Keys).

getstat(gen_tcp, Socket, Keys) -> inet:getstat(Socket, Keys);
getstat(inet_rdma, Socket, Keys) -> inet_rdma:getstat(Socket, Keys).

%% The socket's messages, until none has come for a tenth of a second; without what differs by name.
%% This process must have waited ten times in vain: on a busy machine a tenth of a second may pass
%% before the sender runs.
messages(Socket) -> messages(Socket, ?LOOKS).

messages(_Socket, 0) ->
    [];
messages(Socket, Looks) ->
    receive
        Message when element(2, Message) =:= Socket -> [plain(Message) | messages(Socket, ?LOOKS)]
    after inet_rdma_test_wait:patience(10) -> messages(Socket, Looks - 1)
    end.

plain({tcp, _, Data}) -> {data, Data};
plain({inet_rdma, _, Data}) -> {data, Data};
plain({Passive, _}) when Passive =:= tcp_passive; Passive =:= inet_rdma_passive -> passive;
plain({Closed, _}) when Closed =:= tcp_closed; Closed =:= inet_rdma_closed -> closed.

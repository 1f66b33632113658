%% Cases with a peer that is no node: inet_rdma_test_peer plays it, in either role, against a node
%% whose log and messages are kept. Runs in the node that runs the tests.
-module(inet_rdma_test_scripted).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_node, [call/4, name/1]).
-import(inet_rdma_test_link, [gone/2]).

-export([offered/0, node_with_sink/1, new_sink/1, sink/0, sink_name/0]).
-export([with_peer/4, with_fake/5, up_on_tcp/4, same_host/1, answer/2]).

-define(NAME, inet_rdma_test_sink).
-define(BOUND_MS, 2000).

offered() -> #{offer => inet_rdma_test_peer:offer()}.

%% A node with a short bound of the settlement, that keeps its log and what is sent to the name
%% sink_name/0.
node_with_sink(Options) ->
    Node = inet_rdma_test_node:start("a", #{
        rdma => [{connect_timeout_ms, ?BOUND_MS}, {move, eager} | Options]
    }),
    ok = call(Node, inet_rdma_test_log, install, []),
    new_sink(Node),
    Node.

new_sink(Node) ->
    _ = [true = call(Node, inet_rdma_test_watch, stop, [Old]) || Old <- [sink()], is_pid(Old)],
    {Sink, ok} = call(Node, inet_rdma_test_watch, messages_to, [?NAME]),
    _ = put(?NAME, Sink),
    ok.

sink() -> get(?NAME).

sink_name() -> ?NAME.

%% A peer of a name of its own, in either role. Test gets the link after the handshake and the
%% peer's name.
with_peer(Role, A, Options, Test) ->
    #{node := Peer} = Fake = inet_rdma_test_peer:open(),
    Result = with_fake(Role, A, Fake, Options, fun(Link) -> Test(Link, Peer) end),
    inet_rdma_test_peer:close(Fake),
    Result.

%% Role is the peer's. Where the node initiates, its connect_node must return.
with_fake(initiator, A, #{node := Peer}, Options, Test) ->
    Link = inet_rdma_test_peer:connect(name(A), Peer, Options),
    Result = Test(Link),
    inet_rdma_test_peer:hang_up(Link),
    gone(A, Peer),
    Result;
with_fake(acceptor, A, #{node := Peer} = Fake, Options, Test) ->
    {Caller, Ref} = spawn_monitor(fun() ->
        exit({returned, call(A, net_kernel, hidden_connect_node, [Peer])})
    end),
    Link = inet_rdma_test_peer:accept(Fake, Options),
    Result = Test(Link),
    receive
        {'DOWN', Ref, process, Caller, {returned, Connected}} -> ?assert(is_boolean(Connected));
        {'DOWN', Ref, process, Caller, Reason} -> error(Reason)
    after inet_rdma_test_wait:patience(30000) -> error(connect_node_does_not_return)
    end,
    inet_rdma_test_peer:hang_up(Link),
    gone(A, Peer),
    Result.

%% The node shows the link as up over TCP with this reason, and a message of the peer arrives.
up_on_tcp(A, Link, Peer, Why) ->
    ok = inet_rdma_test_peer:carry(Link),
    inet_rdma_test_wait:until({up, Peer}, 10000, fun() ->
        inet_rdma_test_link:states(A, Peer) =:= [up]
    end),
    ok = inet_rdma_test_link:await(A, #{node => Peer}, tcp, Why),
    Ref = make_ref(),
    ok = inet_rdma_test_peer:send(Link, ?NAME, Ref),
    inet_rdma_test_wait:until({message_of, Peer}, 10000, fun() ->
        lists:member(Ref, call(A, inet_rdma_test_watch, seen, [sink()]))
    end),
    ok.

%% The hello of a peer to which shared memory seems to lead.
same_host(A) ->
    inet_rdma_test_peer:hello(call(A, inet_rdma_nif, identity, [])).

answer(Link, {say, Term}) -> inet_rdma_test_peer:say(Link, Term);
answer(Link, {raw, Bytes}) -> inet_rdma_test_peer:say_raw(Link, Bytes).

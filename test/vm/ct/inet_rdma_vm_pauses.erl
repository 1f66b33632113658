%% The two nodes of test/vm/pauses: one counts in order to the other, across pauses and restored
%% snapshots. What they see goes to the console, a line each.
-module(inet_rdma_vm_pauses).

-export([listen/0, count/1]).

-define(PAUSE_MS, 100).
-define(ANSWER_MS, 120000).

%% Each number is the one before and one more, as long as the link is the same.
-spec listen() -> no_return().
listen() ->
    true = register(?MODULE, self()),
    ok = net_kernel:monitor_nodes(true, [nodedown_reason]),
    say("listens", []),
    listen(none).

listen(Last) ->
    receive
        {count, From, N} ->
            _ =
                case is_integer(Last) andalso N =/= Last + 1 of
                    true -> say("OUT OF ORDER: ~b after ~b", [N, Last]);
                    false -> ok
                end,
            say("got ~b", [N]),
            From ! {counted, N},
            listen(N);
        {nodedown, _Node, Info} ->
            say("nodedown ~0tp", [Info]),
            listen(none);
        {nodeup, _Node, _Info} ->
            listen(none)
    end.

-spec count(node()) -> no_return().
count(Peer) ->
    ok = net_kernel:monitor_nodes(true, [nodedown_reason]),
    ok = connect(Peer),
    count(Peer, 1).

%% A message to a node or a name that is not there yet is lost, and nothing reports it.
connect(Peer) ->
    case net_kernel:connect_node(Peer) andalso rpc:call(Peer, erlang, whereis, [?MODULE]) of
        Listener when is_pid(Listener) -> ok;
        _ -> receive
            after 1000 -> connect(Peer)
            end
    end.

count(Peer, N) ->
    {?MODULE, Peer} ! {count, self(), N},
    receive
        {counted, N} ->
            {Resumes, Fabric} = carried(Peer),
            say("counted ~b, resumes ~p over ~p", [N, Resumes, Fabric]),
            receive
            after ?PAUSE_MS -> ok
            end,
            count(Peer, N + 1);
        {nodedown, Peer, Info} ->
            say("nodedown ~0tp", [Info]),
            ok = connect(Peer),
            count(Peer, N)
    after ?ANSWER_MS ->
        say("NO ANSWER to ~b", [N]),
        count(Peer, N)
    end.

carried(Peer) ->
    case inet_rdma:info(Peer) of
        #{resumes := Resumes, fabric := Fabric} -> {Resumes, Fabric};
        #{fabric := Fabric} -> {none, Fabric};
        undefined -> {none, none}
    end.

say(Format, Arguments) -> io:format("~~ " ++ Format ++ "~n", Arguments).

%% What the cases about one link between two nodes have in common: how it is carried, and that all
%% of distribution works over it.
-module(inet_rdma_test_link).

-export([
    connect/2,
    fabric/2,
    why/2,
    await/3, await/4,
    disconnect/2,
    apart/2,
    exercise/2,
    collide/2,
    both/4,
    states/2,
    gone/2
]).
-export([host_witness/2, await_lasting/2, via/2, await_via/2, await_direct/2]).
-export([supervisor/2, ended/1, skip/1, no_unlinked_ports/1, acceptor_answers_when_up/2]).

-include_lib("stdlib/include/assert.hrl").

-type t() :: inet_rdma_test_node:t().

%% 50 ms each: longer than it takes until a link has lasted.
-define(KNOWN_TRIES, 40).

%% Connects the first node to the second and waits until both show it, whatever fabric carries it.
-spec connect(t(), t()) -> ok.
connect(#{node := NameA} = A, #{node := NameB} = B) ->
    pong = inet_rdma_test_node:call(A, net_adm, ping, [NameB]),
    inet_rdma_test_wait:until({connected, NameA, NameB}, 10000, fun() ->
        lists:member(NameA, inet_rdma_test_node:call(B, erlang, nodes, [connected])) andalso
            lists:member(NameB, inet_rdma_test_node:call(A, erlang, nodes, [connected]))
    end),
    ok.

%% The fabric that the first node, which runs inet_rdma, reports for its link to the second.
-spec fabric(t(), t()) -> tcp | shm | verbs | undefined.
fabric(A, B) ->
    case info(A, B) of
        undefined -> undefined;
        #{fabric := Fabric} -> Fabric
    end.

%% Why, in the words of the first node.
-spec why(t(), t()) -> string() | undefined.
why(A, B) ->
    case info(A, B) of
        undefined -> undefined;
        #{why := Why} -> Why
    end.

info(A, #{node := Peer}) -> inet_rdma_test_node:call(A, inet_rdma, info, [Peer]).

%% What the kernel says to the first node of the second one's process.
-spec host_witness(t(), t()) -> alive | dead | unknown.
host_witness(A, B) ->
    #{peer_node := Told} = peer(A, B),
    inet_rdma_test_node:call(A, inet_rdma_peer_node, host_witness, [Told]).

%% Waits until the link has lasted: each node has told the other one its witness, and the first one
%% has asked the second one's EPMD, if it can.
-spec await_lasting(t(), t()) -> ok.
await_lasting(A, B) ->
    inet_rdma_test_wait:until({lasting, A, B}, 10000, fun() ->
        has_told_witness(A, B) andalso has_told_witness(B, A)
    end),
    await_known_by(A, B, ?KNOWN_TRIES).

%% Gives up after a while: there may be no EPMD where the peer's name leads.
await_known_by(_A, _B, 0) ->
    ok;
await_known_by(A, #{node := Peer} = B, Tries) ->
    [Name, Host] = string:lexemes(atom_to_list(Peer), "@"),
    #{known_by := KnownBy} = peer(A, B),
    case
        KnownBy =:= none andalso inet_rdma_test_node:call(A, inet_rdma_tcp, asks_epmd, [Name, Host])
    of
        true ->
            receive
            after 50 -> ok
            end,
            await_known_by(A, B, Tries - 1);
        false ->
            ok
    end.

has_told_witness(A, B) ->
    #{peer_node := Told} = peer(A, B),
    is_tuple(Told) andalso
        binary:match(inet_rdma_peer_node:message(Told), <<"inet_rdma-">>) =/= nomatch.

peer(A, #{node := Peer}) ->
    {ok, Session} = inet_rdma_test_node:call(A, inet_rdma_links, session_of, [atom_to_binary(Peer)]),
    Name = inet_rdma_test_node:call(A, inet_rdma_session, name, [Session]),
    inet_rdma_test_node:call(A, inet_rdma_links, peer, [Name]).

%% Waits until the first node reports this fabric for its link to the second.
-spec await(t(), t(), tcp | shm | verbs) -> ok.
await(A, B, Fabric) ->
    inet_rdma_test_wait:until({fabric, Fabric}, 10000, fun() ->
        case info(A, B) of
            #{fabric := Fabric} -> true;
            Other -> Other
        end
    end),
    ok.

%% The same with a reason that matches this regular expression: the settlement in band ends after
%% nodeup.
-spec await(t(), t(), tcp | shm | verbs, Why :: string()) -> ok.
await(A, B, Fabric, Wanted) ->
    inet_rdma_test_wait:until({fabric, Fabric, Wanted}, 10000, fun() ->
        case info(A, B) of
            #{fabric := Fabric, why := Why} = Info ->
                re:run(Why, Wanted, [unicode, {capture, none}]) =:= match orelse
                    Info;
            Other ->
                Other
        end
    end),
    ok.

%% The neighbour over which the first node's link to the second goes. none: it goes directly.
%% unknown: the node does not say.
-spec via(t(), t()) -> node() | undefined | none | unknown.
via(A, B) ->
    case info(A, B) of
        #{detoured := true, via := Via} -> Via;
        #{detoured := false} -> none;
        #{} -> unknown
    end.

-spec await_via(t(), t()) -> node() | undefined.
await_via(A, #{node := NameB} = B) ->
    inet_rdma_test_wait:until({via, maps:get(node, A), NameB}, 20000, fun() ->
        case via(A, B) of
            Other when Other =:= none; Other =:= unknown -> Other;
            Via -> {ok, Via}
        end
    end).

-spec await_direct(t(), t()) -> true.
await_direct(A, #{node := NameB} = B) ->
    inet_rdma_test_wait:until({direct, maps:get(node, A), NameB}, 60000, fun() ->
        via(A, B) =:= none orelse via(A, B)
    end).

%% Ends the link and waits until both nodes have seen the end.
-spec disconnect(t(), t()) -> ok.
disconnect(A, B) ->
    [ok, ok] = both(A, B, disconnect_and_wait, []),
    ok.

%% Ends the link and waits until no attempt to connect is left, either. net_kernel answers false to
%% whoever waits for an attempt that fails. Such an attempt may be one that has lost a simultaneous
%% connect: its connection may come after the link is up, and outlive it at the other node.
-spec apart(t(), t()) -> ok.
apart(#{node := NameA} = A, #{node := NameB} = B) ->
    inet_rdma_test_wait:until({apart, NameA, NameB}, 10000, fun() ->
        [ok, ok] = both(A, B, disconnect_and_wait, []),
        Left = [
            {states(X, Peer), inet_rdma_test_node:call(X, inet_rdma_test_remote, setup_timers, [])}
         || {X, Peer} <- [{A, NameB}, {B, NameA}]
        ],
        Left =:= [{[], []}, {[], []}] orelse Left
    end),
    ok.

%% Messages of 0 B to 16 MB there and back, spawn, links, monitors and large exit reasons, asked for
%% by either node.
-spec exercise(t(), t()) -> ok.
exercise(A, B) ->
    [exercise_from(X, Y) || {X, Y} <- [{A, B}, {B, A}]],
    ok.

exercise_from(A, #{node := Peer}) ->
    Peer = inet_rdma_test_node:call(A, rpc, call, [Peer, erlang, node, []]),
    Peer = inet_rdma_test_node:call(A, erpc, call, [Peer, erlang, node, []]),
    ok = inet_rdma_test_node:call(
        A,
        inet_rdma_test_data,
        echo_and_compare,
        [Peer, [0, 1, 1000, 70000, 1 bsl 20, 1 bsl 24]]
    ),
    ok = inet_rdma_test_node:call(A, inet_rdma_test_data, echo_terms, [Peer]),
    [
        ok = inet_rdma_test_node:call(A, inet_rdma_test_remote, Function, [Peer])
     || Function <- [spawn_answers, spawn_request_answers, link_breaks, monitor_fires]
    ],
    ok = inet_rdma_test_node:call(A, inet_rdma_test_remote, large_exit_by_monitor, [Peer, 1000000]).

%% Both nodes connect at the same moment of the host's clock; both calls must end with a link.
-spec collide(t(), t()) -> ok.
collide(A, B) ->
    ok = apart(A, B),
    AtMicros = os:system_time(microsecond) + 2000,
    [true, true] = both(A, B, connect_at, [AtMicros]),
    ok.

%% Both nodes call a function of inet_rdma_test_remote with the other's name at the same time; the
%% results.
-spec both(t(), t(), Function :: atom(), Args :: [term()]) -> [term()].
both(A, B, Function, Args) ->
    Parent = self(),
    Asked = [
        spawn_monitor(fun() ->
            Parent !
                {
                    self(),
                    inet_rdma_test_node:call(X, inet_rdma_test_remote, Function, [Name | Args])
                }
        end)
     || {X, #{node := Name}} <- [{A, B}, {B, A}]
    ],
    [
        receive
            {Pid, Answer} ->
                demonitor(Ref, [flush]),
                Answer;
            {'DOWN', Ref, process, Pid, Reason} ->
                error(Reason)
        end
     || {Pid, Ref} <- Asked
    ].

%% What net_kernel of the node keeps of a peer: up, pending, up_pending. No entry: [].
-spec states(t(), node()) -> [atom()].
states(Node, Peer) ->
    %% #connection{} of net_kernel: node, connection id, state.
    [
        element(4, Connection)
     || Connection <- inet_rdma_test_node:call(Node, ets, lookup, [sys_dist, Peer])
    ].

%% Waits until the node has no link to the peer, neither up nor pending.
-spec gone(t(), t() | node()) -> ok.
gone(A, #{node := Peer}) ->
    gone(A, Peer);
gone(#{node := Name} = A, Peer) ->
    inet_rdma_test_wait:until({gone, Name, Peer}, 10000, fun() ->
        Connected = inet_rdma_test_node:call(A, erlang, nodes, [connected]),
        case {lists:member(Peer, Connected), states(A, Peer)} of
            {false, []} -> true;
            Other -> Other
        end
    end),
    ok.

%% The process that ticks over the link. Another link may be up at once: global connects again.
-spec supervisor(t(), t()) -> {t(), pid()}.
supervisor(A, #{node := Peer}) ->
    Key = atom_to_binary(Peer),
    [{_, Supervisor, _, _, _, _}] = inet_rdma_test_node:call(A, ets, lookup, [inet_rdma_links, Key]),
    {A, Supervisor}.

%% Waits until that process has ended.
-spec ended({t(), pid()}) -> ok.
ended({#{node := Name} = Node, Supervisor}) ->
    inet_rdma_test_wait:until({ended, Name}, 10000, fun() ->
        not inet_rdma_test_node:call(Node, erlang, is_process_alive, [Supervisor])
    end),
    ok.

%% The result of a case that this machine cannot run. CI has all that the cases need.
-spec skip(string()) -> {skip, string()}.
skip(Reason) ->
    case os:getenv("CI") of
        "true" -> ct:fail("CI skips nothing: ~ts", [Reason]);
        _ -> {skip, Reason}
    end.

%% Waits until the ports of all links that have ended are gone.
-spec no_unlinked_ports([t()]) -> [term()].
no_unlinked_ports(Nodes) ->
    [
        inet_rdma_test_wait:until({unlinked_ports, inet_rdma_test_node:name(Node)}, 10000, fun() ->
            case
                inet_rdma_test_node:is_rdma() andalso
                    inet_rdma_test_node:call(Node, inet_rdma_test_remote, unlinked_ports, [])
            of
                None when None =:= []; None =:= false -> true;
                Ports -> Ports
            end
        end)
     || Node <- Nodes
    ].

%% Connects A to B twice: each time B's VM knows the link before the last message that B's acceptor
%% sends.
-spec acceptor_answers_when_up(t(), t()) -> ok.
acceptor_answers_when_up(A, B) ->
    {Watcher, ok} = inet_rdma_test_node:call(B, inet_rdma_test_watch, acceptors, []),
    First = accepted(A, B, Watcher, []),
    _ = accepted(A, B, Watcher, First),
    ok.

%% OTP's rpc asks a node that has come up for its features, on a busy machine after the disconnect:
%% then B connects.
accepted(A, #{node := NameB} = B, Watcher, Before) ->
    inet_rdma_test_wait:until({accepted, NameB}, 10000, fun() ->
        ?assertEqual(true, inet_rdma_test_node:call(A, net_kernel, connect_node, [NameB])),
        Calls = inet_rdma_test_node:call(B, inet_rdma_test_watch, seen, [Watcher]),
        Acceptors = [Pid || {Pid, setnode} <- Calls, lists:member({Pid, do_accept}, Calls)],
        [
            begin
                Own = [Call || {Caller, Call} <- Calls, Caller =:= Pid],
                {_, [setnode | Behind]} = lists:splitwith(fun(Call) -> Call =/= setnode end, Own),
                ?assert(lists:member(port_command, Behind))
            end
         || Pid <- Acceptors -- Before
        ],
        [ok, ok] = both(A, B, disconnect_and_wait, []),
        case Acceptors -- Before of
            [] -> Calls;
            [_] -> {ok, Acceptors}
        end
    end).

%% How nodes come together: names, hidden nodes, cookies, ports, the automatic connect, both at
%% once.
-module(connect_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_node, [call/4, name/1, start_all/1, unique/1]).

-export([all/0, suite/0, init_per_testcase/2]).
-export([
    a_hidden_node_is_seen_by_its_peer_alone/1,
    node_that_does_not_listen/1,
    a_dynamic_name_stays_for_the_next_link/1,
    nodes_with_long_names_mesh/1,
    short_name_with_host/1
]).
-export([
    long_and_short_names_do_not_mix/1,
    a_wrong_cookie_is_refused_and_logged/1,
    cookie_per_node/1,
    node_that_is_not_there/1
]).
-export([listens_in_the_given_range/1, full_range_is_an_error/1, listens_on_the_given_interface/1]).
-export([auto_connect_never/1, auto_connect_once/1, simultaneous_connects_leave_one_link/1]).
-export([
    message_right_behind_the_handshake/1,
    message_from_the_accepting_side/1,
    many_callers_one_connection/1
]).
-export([distribution_started_by_hand/1, distribution_stopped_and_started/1]).
-export([
    reversed_range_is_an_error/1,
    listens_on_the_given_interface_in_any_form/1,
    check_ip_refuses_strangers/1
]).
-export([peers_that_reset/1, address_of_a_peer_that_is_gone/1, name_given_to_a_peer_is_latin1/1]).
-export([
    own_epmd_module/1,
    application_that_connects_when_it_stops/1,
    nodes_connect_over_ipv6/1,
    acceptor_answers_when_its_link_is_up/1
]).
-export([accepting_side_sends_all_the_time/1]).

suite() ->
    [{timetrap, {minutes, 3}}, {ct_hooks, [inet_rdma_test_nodes]}].

all() ->
    [
        a_hidden_node_is_seen_by_its_peer_alone,
        node_that_does_not_listen,
        a_dynamic_name_stays_for_the_next_link,
        nodes_with_long_names_mesh,
        short_name_with_host,
        long_and_short_names_do_not_mix,
        a_wrong_cookie_is_refused_and_logged,
        cookie_per_node,
        node_that_is_not_there,
        listens_in_the_given_range,
        full_range_is_an_error,
        listens_on_the_given_interface,
        auto_connect_never,
        auto_connect_once,
        simultaneous_connects_leave_one_link,
        message_right_behind_the_handshake,
        message_from_the_accepting_side,
        many_callers_one_connection,
        distribution_started_by_hand,
        distribution_stopped_and_started,
        reversed_range_is_an_error,
        listens_on_the_given_interface_in_any_form,
        check_ip_refuses_strangers,
        peers_that_reset,
        address_of_a_peer_that_is_gone,
        name_given_to_a_peer_is_latin1,
        own_epmd_module,
        application_that_connects_when_it_stops,
        nodes_connect_over_ipv6,
        acceptor_answers_when_its_link_is_up,
        accepting_side_sends_all_the_time
    ].

%% With inet_tcp the acceptor answers first.
init_per_testcase(acceptor_answers_when_its_link_is_up, Config) ->
    inet_rdma_test_node:only_rdma(Config);
init_per_testcase(_Case, Config) ->
    Config.

a_hidden_node_is_seen_by_its_peer_alone(_Config) ->
    [A, B, Hidden] = start_all([{"a", #{}}, {"b", #{}}, {"hidden", #{args => ["-hidden"]}}]),
    connect(A, B),
    connect(Hidden, A),
    ?assertEqual([name(B)], call(A, erlang, nodes, [])),
    ?assertEqual([name(Hidden)], call(A, erlang, nodes, [hidden])),
    ?assertEqual([], call(B, erlang, nodes, [hidden])),
    ?assertEqual(name(Hidden), call(A, rpc, call, [name(Hidden), erlang, node, []])),
    %% global does not mesh it.
    _ = call(A, global, sync, []),
    ?assertEqual([], call(B, erlang, nodes, [hidden])).

node_that_does_not_listen(_Config) ->
    Options = #{args => ["-dist_listen", "false"]},
    [A, Deaf] = start_all([{"a", #{}}, {"deaf", Options}]),
    ?assertEqual(pang, call(A, net_adm, ping, [name(Deaf)])),
    ?assertEqual(pong, call(Deaf, net_adm, ping, [name(A)])),
    await_hidden(A, [name(Deaf)]),
    %% Once connected, both may talk.
    ?assertEqual(name(Deaf), call(A, rpc, call, [name(Deaf), erlang, node, []])),
    ok = inet_rdma_test_node:await_moved([A, Deaf]),
    ok = call(A, inet_rdma_test_data, echo_and_compare, [name(Deaf), [0, 1000, 1000000]]).

a_dynamic_name_stays_for_the_next_link(_Config) ->
    [A, B, Nameless] = start_all([{"a", #{}}, {"b", #{}}, {"n", #{name => "undefined"}}]),
    ?assertEqual(nonode@nohost, call(Nameless, erlang, node, [])),
    ?assertEqual(true, call(Nameless, net_kernel, connect_node, [name(A)])),
    Given = call(Nameless, erlang, node, []),
    ?assertNotEqual(nonode@nohost, Given),
    await_hidden(A, [Given]),
    ?assertEqual(Given, call(A, rpc, call, [Given, erlang, node, []])),
    %% The name stays for the next peer as long as one connection lives.
    ?assertEqual(pong, call(Nameless, net_adm, ping, [name(B)])),
    await_hidden(B, [Given]),
    ?assertEqual(Given, call(B, erpc, call, [Given, erlang, node, []])),
    inet_rdma_test_node:await_moved([B, Nameless#{node := Given}]).

nodes_with_long_names_mesh(_Config) ->
    Options = fun(Prefix) -> #{name => unique(Prefix) ++ "@127.0.0.1", long => true} end,
    [A, B, C] = Nodes = start_all([{"a", Options("a")}, {"b", Options("b")}, {"c", Options("c")}]),
    ?assertMatch([_, "127.0.0.1"], string:lexemes(atom_to_list(name(A)), "@")),
    ok = inet_rdma_test_node:mesh(Nodes),
    ?assertEqual(name(B), call(C, rpc, call, [name(B), erlang, node, []])).

short_name_with_host(_Config) ->
    [A, B] = start_all([
        {"a", #{name => unique("a") ++ "@localhost"}}, {"b", #{name => unique("b") ++ "@localhost"}}
    ]),
    connect(A, B),
    connect(B, A).

long_and_short_names_do_not_mix(_Config) ->
    [Short, Long] = start_all([
        {"s", #{}}, {"l", #{name => unique("l") ++ "@127.0.0.1", long => true}}
    ]),
    ?assertEqual(pang, call(Short, net_adm, ping, [name(Long)])),
    ?assertEqual(pang, call(Long, net_adm, ping, [name(Short)])).

a_wrong_cookie_is_refused_and_logged(_Config) ->
    [A, B, Stranger] = start_all([{"a", #{}}, {"b", #{}}, {"s", #{cookie => "another"}}]),
    connect(A, B),
    ok = call(A, inet_rdma_test_log, install, []),
    ?assertEqual(pang, call(Stranger, net_adm, ping, [name(A)])),
    ?assertEqual(pang, call(A, net_adm, ping, [name(Stranger)])),
    inet_rdma_test_wait:until(refusal_is_logged, 10000, fun() ->
        call(A, inet_rdma_test_log, contains, [atom_to_list(name(Stranger))])
    end),
    ?assertEqual([name(B)], call(A, erlang, nodes, [connected])),
    ?assertEqual([], call(Stranger, erlang, nodes, [connected])),
    ?assertEqual(name(B), call(A, rpc, call, [name(B), erlang, node, []])).

cookie_per_node(_Config) ->
    [A, B] = start_all([{"a", #{}}, {"b", #{cookie => "another"}}]),
    true = call(A, erlang, set_cookie, [name(B), another]),
    connect(A, B).

node_that_is_not_there(_Config) ->
    [A, B] = start_all([{"a", #{}}, {"b", #{}}]),
    [_, Host] = string:lexemes(atom_to_list(name(A)), "@"),
    Missing = list_to_atom(unique("missing") ++ "@" ++ Host),
    ?assertEqual(pang, call(A, net_adm, ping, [Missing])),
    ?assertEqual({badrpc, nodedown}, call(A, rpc, call, [Missing, erlang, node, []])),
    %% epmd may still name the port of a node that has just died.
    inet_rdma_test_node:kill(B),
    ?assertEqual(pang, call(A, net_adm, ping, [name(B)])),
    ?assertEqual([], call(A, erlang, nodes, [connected])).

listens_in_the_given_range(_Config) ->
    {First, Last} = Range = free_ports(3),
    Nodes = start_all([{Prefix, #{args => range(Range)}} || Prefix <- ["a", "b", "c"]]),
    ok = inet_rdma_test_node:mesh(Nodes),
    Ports = [inet_rdma_test_node:port(Node) || Node <- Nodes],
    ?assertEqual(lists:seq(First, Last), lists:sort(Ports)).

%% The third node finds both ports taken; it says so and does not start, or starts without
%% distribution.
full_range_is_an_error(_Config) ->
    Range = free_ports(2),
    [A, B] = start_all([{Prefix, #{args => range(Range)}} || Prefix <- ["a", "b"]]),
    {Status, Output} = inet_rdma_test_node:run("c", #{args => range(Range)}, "true"),
    ct:pal("exit status ~p~n~ts", [Status, Output]),
    ?assertNotEqual(0, Status),
    connect(A, B).

listens_on_the_given_interface(_Config) ->
    Options = #{args => ["-kernel", "inet_dist_use_interface", "{127,0,0,1}"]},
    [A, B] = start_all([
        {"a", Options#{name => unique("a") ++ "@localhost"}},
        {"b", Options#{name => unique("b") ++ "@localhost"}}
    ]),
    connect(A, B),
    connect(B, A).

auto_connect_never(_Config) ->
    Options = #{args => ["-kernel", "dist_auto_connect", "never"]},
    [A, B] = start_all([{"a", Options}, {"b", Options}]),
    ?assertEqual(pang, call(A, net_adm, ping, [name(B)])),
    ?assertEqual({badrpc, nodedown}, call(A, rpc, call, [name(B), erlang, node, []])),
    ?assertEqual(true, call(A, net_kernel, connect_node, [name(B)])),
    ?assertEqual(name(B), call(A, rpc, call, [name(B), erlang, node, []])).

auto_connect_once(_Config) ->
    Options = #{args => ["-kernel", "dist_auto_connect", "once"]},
    [A, B] = start_all([{"a", Options}, {"b", Options}]),
    connect(A, B),
    [ok, ok] = [
        call(X, inet_rdma_test_remote, disconnect_and_wait, [name(Y)])
     || {X, Y} <- [{A, B}, {B, A}]
    ],
    ?assertEqual(pang, call(A, net_adm, ping, [name(B)])),
    ?assertEqual(true, call(A, net_kernel, connect_node, [name(B)])),
    connect(B, A).

%% Both connect at the same moment of the host's clock, 1,000 times. Every attempt of either side
%% must end with one live connection.
simultaneous_connects_leave_one_link(_Config) ->
    [A, B] = start_all([{"a", #{}}, {"b", #{}}]),
    connect(A, B),
    {Counter, ok} = call(A, inet_rdma_test_watch, collisions, []),
    [collide(A, B) || _ <- lists:seq(1, 1000)],
    Collisions = length(call(A, inet_rdma_test_watch, seen, [Counter])),
    ct:pal("~b of 1,000 rounds had two attempts under way at once", [Collisions]),
    ?assert(Collisions > 0),
    ?assertEqual(pong, call(A, net_adm, ping, [name(B)])).

collide(A, B) ->
    ok = inet_rdma_test_link:collide(A, B),
    inet_rdma_test_node:await_moved([A, B]).

%% The connect is caused by the message, which thus comes right after the last handshake packet.
message_right_behind_the_handshake(_Config) ->
    [A, B] = start_all([{"a", #{}}, {"b", #{}}]),
    [
        begin
            ok = call(A, inet_rdma_test_data, echo_and_compare, [name(B), [Size]]),
            [ok, ok] = inet_rdma_test_link:both(A, B, disconnect_and_wait, [])
        end
     || Size <- lists:flatten(lists:duplicate(25, [0, 100, 10000, 300000]))
    ].

%% The accepting side sends at once when it sees the other come up. Either node's global may connect
%% before this case does: the greeting of each link that comes up must arrive, unless the link ends.
message_from_the_accepting_side(_Config) ->
    [A, B] = start_all([{"a", #{}}, {"b", #{}}]),
    {Receiver, ok} = call(A, inet_rdma_test_watch, messages_to, [greetings]),
    {Greeter, ok} = call(B, inet_rdma_test_watch, greet, [name(A), greetings]),
    lists:foldl(
        fun(Count, Before) ->
            Greeting = inet_rdma_test_wait:until({greeted, Count}, 10000, fun() ->
                _ = call(A, net_kernel, connect_node, [name(B)]),
                Newest = lists:last([none | call(B, inet_rdma_test_watch, seen, [Greeter])]),
                Received = call(A, inet_rdma_test_watch, seen, [Receiver]),
                case Newest =/= Before andalso lists:member(Newest, Received) of
                    true -> {ok, Newest};
                    false -> {not_received, Newest}
                end
            end),
            [ok, ok] = inet_rdma_test_link:both(A, B, disconnect_and_wait, []),
            Greeting
        end,
        none,
        lists:seq(1, 100)
    ).

%% The acceptor sends its last message of the handshake, or of the settlement before the link is up,
%% when its VM knows the link: the initiator's node may ask for the link at the acceptor's node at
%% once. The first link of a node, and the next one.
acceptor_answers_when_its_link_is_up(_Config) ->
    [
        begin
            [A, B] = inet_rdma_test_node:start_all(
                2, inet_rdma_test_node:alone(#{rdma => [Option], args => []})
            ),
            ok = inet_rdma_test_link:acceptor_answers_when_up(A, B),
            [ok = inet_rdma_test_node:stop(Node) || Node <- [A, B]]
        end
     || Option <- [{move, earned}, {move, eager}, {required, true}]
    ].

%% The acceptor's VM has packets for the peer before the last message of the handshake is on its
%% way.
accepting_side_sends_all_the_time(_Config) ->
    Options = #{rdma => [{move, earned}], args => ["-kernel", "dist_auto_connect", "never"]},
    [A, B] = inet_rdma_test_node:start_all(2, inet_rdma_test_node:alone(Options)),
    [
        call(B, erlang, spawn, [inet_rdma_test_remote, flood, [{nobody, name(A)}]])
     || _ <- lists:seq(1, 4)
    ],
    [
        begin
            ?assertEqual(true, call(A, net_kernel, connect_node, [name(B)])),
            ?assertEqual(name(B), call(A, rpc, call, [name(B), erlang, node, []])),
            [ok, ok] = inet_rdma_test_link:both(A, B, disconnect_and_wait, [])
        end
     || _ <- lists:seq(1, 50)
    ].

%% Many processes of both nodes want the connection at once; there is one, and all get their answer.
many_callers_one_connection(_Config) ->
    [A, B] = start_all([{"a", #{}}, {"b", #{}}]),
    [
        begin
            [ok, ok] = inet_rdma_test_link:both(A, B, many_calls, [100]),
            [ok, ok] = inet_rdma_test_link:both(A, B, disconnect_and_wait, [])
        end
     || _ <- lists:seq(1, 20)
    ].

distribution_started_by_hand(_Config) ->
    [A, Late] = start_all([{"a", #{}}, {"late", #{name => none}}]),
    ?assertEqual(nonode@nohost, call(Late, erlang, node, [])),
    {ok, _} = call(Late, net_kernel, start, [[list_to_atom(unique("late")), shortnames]]),
    true = call(Late, erlang, set_cookie, [inet_rdma_test]),
    Named = Late#{node := call(Late, erlang, node, [])},
    connect(Named, A),
    connect(A, Named).

distribution_stopped_and_started(_Config) ->
    [A, Late] = start_all([{"a", #{}}, {"late", #{name => none}}]),
    Name = list_to_atom(unique("late")),
    [
        begin
            {ok, _} = call(Late, net_kernel, start, [[Name, shortnames]]),
            true = call(Late, erlang, set_cookie, [inet_rdma_test]),
            Named = Late#{node := call(Late, erlang, node, [])},
            connect(A, Named),
            ok = call(Late, net_kernel, stop, []),
            inet_rdma_test_node:await_nodes(A, []),
            await_unregistered(atom_to_list(Name))
        end
     || _ <- lists:seq(1, 5)
    ].

%% A node that stops closes its socket to EPMD, which gives up the name when it comes to read from
%% it.
await_unregistered(Name) ->
    inet_rdma_test_wait:until({unregistered, Name}, 10000, fun() ->
        erl_epmd:port_please(Name, {127, 0, 0, 1}) =:= noport
    end).

%% As with inet_tcp: no port lies between them.
reversed_range_is_an_error(_Config) ->
    {First, Last} = free_ports(2),
    {Status, Output} = inet_rdma_test_node:run("a", #{args => range({Last, First})}, "true"),
    ct:pal("exit status ~p~n~ts", [Status, Output]),
    ?assertNotEqual(0, Status),
    ?assertNotEqual(137, Status).

%% All that inet_tcp takes: an address, and the atoms that gen_tcp knows.
listens_on_the_given_interface_in_any_form(_Config) ->
    [
        begin
            Options = #{args => ["-kernel", "inet_dist_use_interface", Interface]},
            A = inet_rdma_test_node:start("a", Options#{name => unique("a") ++ "@localhost"}),
            B = inet_rdma_test_node:start("b", #{name => unique("b") ++ "@localhost"}),
            connect(B, A),
            ?assertEqual(
                ["0100007F"], inet_rdma_test_os:listening_addresses(inet_rdma_test_node:port(A))
            )
        end
     || Interface <- ["{127,0,0,1}", "loopback"]
    ].

%% The peer is in a network namespace, at an address that is in no network of this host's
%% interfaces. A node that does not check lets it in.
check_ip_refuses_strangers(_Config) ->
    case inet_rdma_test_netns:make(32) of
        {ok, #{namespace := Namespace, addresses := {Here, _There}} = Network} ->
            try
                Name = fun(Prefix, Host) -> unique(Prefix) ++ "@" ++ Host end,
                [Checking, Trusting] = start_all([
                    {"c", #{
                        long => true,
                        name => Name("c", Here),
                        args => ["-kernel", "check_ip", "true"]
                    }},
                    {"t", #{long => true, name => Name("t", Here)}}
                ]),
                Under = ["ip", "netns", "exec", Namespace],
                %% It does not listen, so it needs no EPMD in there.
                Stranger = inet_rdma_test_node:start("s", #{
                    long => true,
                    name => Name("s", Here),
                    under => Under,
                    args => ["-dist_listen", "false", "-start_epmd", "false"]
                }),
                ok = call(Checking, inet_rdma_test_log, install, []),
                ?assertEqual(pang, call(Stranger, net_adm, ping, [name(Checking)])),
                ?assert(call(Checking, inet_rdma_test_log, contains, ["disallowed IP"])),
                ?assertEqual(pong, call(Stranger, net_adm, ping, [name(Trusting)])),
                %% Its own host is in its network.
                connect(Trusting, Checking)
            after
                inet_rdma_test_node:stop_all(),
                inet_rdma_test_netns:remove(Network)
            end;
        {error, Output} ->
            {skip, "a network namespace cannot be made here: " ++ Output}
    end.

%% Connections that are reset before the node has looked at them. Its log says nothing, as with
%% inet_tcp.
peers_that_reset(_Config) ->
    Node = inet_rdma_test_node:start("a", #{args => ["-kernel", "check_ip", "true"]}),
    ok = call(Node, inet_rdma_test_log, install, []),
    [Name, Host] = string:lexemes(atom_to_list(name(Node)), "@"),
    {port, Port, _} = erl_epmd:port_please(Name, Host),
    inet_rdma_test_node:suspend(Node),
    [
        begin
            {ok, Socket} = gen_tcp:connect(Host, Port, [{linger, {true, 0}}]),
            ok = gen_tcp:close(Socket)
        end
     || _ <- lists:seq(1, 10)
    ],
    inet_rdma_test_node:resume(Node),
    %% Behind them in the listener's queue.
    Other = inet_rdma_test_node:start("b"),
    connect(Other, Node),
    inet_rdma_test_wait:until(supervisors_are_gone, 10000, fun() ->
        length(call(Node, inet_rdma_test_remote, supervisors, [])) =:= 1
    end),
    ?assertEqual([], call(Node, inet_rdma_test_log, lines, [])).

%% The supervisor ends without a crash report.
address_of_a_peer_that_is_gone(_Config) ->
    {ok, Socket} = gen_tcp:listen(0, []),
    ok = gen_tcp:close(Socket),
    Connection = inet_rdma_transport:tcp(inet_tcp, Socket),
    ?assertEqual(
        shutdown, supervised(Connection, fun() -> inet_rdma_dist:address_of(Socket, 'a@b') end)
    ).

%% The acceptor's name for a node without one is kept as all names are: in UTF-8.
name_given_to_a_peer_is_latin1(_Config) ->
    {ok, Listening} = gen_tcp:listen(0, [{ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Listening),
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, []),
    Name = <<"x@h", 16#f6, "st">>,
    Status = <<"snamed:", (byte_size(Name)):16, Name/binary, 7:32>>,
    Kept = supervised(inet_rdma_transport:tcp(inet_tcp, Socket), fun() ->
        ok = inet_rdma_dist:send(Socket, Status),
        exit(maps:get(node, element(2, get(inet_rdma_dist))))
    end),
    ?assertEqual(<<"x@hö"/utf8, "st">>, Kept).

%% How a supervisor of an accepted connection ends that does this. Its state is that of
%% inet_rdma_dist.
supervised(Connection, Do) ->
    {Pid, Monitor} = spawn_monitor(fun() ->
        Link = #{driver => inet_tcp, role => acceptor, connection => Connection, node => <<>>},
        put(inet_rdma_dist, {supervised, Link, undefined, none, false}),
        Do()
    end),
    receive
        {'DOWN', Monitor, process, Pid, Reason} -> Reason
    end.

%% Names are found as the EPMD module says, which need not be by DNS.
own_epmd_module(_Config) ->
    Options = #{args => ["-epmd_module", "inet_rdma_test_epmd_here"], long => true},
    [A, B] = start_all([
        {X, Options#{name => unique(X) ++ "@host.nowhere.invalid"}}
     || X <- ["a", "b"]
    ]),
    connect(A, B),
    [ok, ok] = inet_rdma_test_link:both(A, B, disconnect_and_wait, []),
    connect(B, A),
    ?assert(call(A, inet_rdma_test_epmd_here, asked, []) > 0).

%% The application controller does not answer while an application stops: a link must not wait for
%% it.
application_that_connects_when_it_stops(_Config) ->
    [A, B] = start_all([{"a", #{}}, {"b", #{}}]),
    ok = call(A, inet_rdma_test_application, start_it, [name(B)]),
    ?assertEqual([], call(A, erlang, nodes, [])),
    {Watcher, ok} = call(B, inet_rdma_test_watch, ups_of, [name(A)]),
    ok = peer:cast(maps:get(peer, A), init, stop, []),
    inet_rdma_test_node:await_exit(A, 20000),
    ?assertEqual([up], call(B, inet_rdma_test_watch, seen, [Watcher])).

nodes_connect_over_ipv6(_Config) ->
    case gen_tcp:listen(0, [inet6, {ip, {0, 0, 0, 0, 0, 0, 0, 1}}]) of
        {ok, Socket} ->
            ok = gen_tcp:close(Socket),
            Carrier =
                case inet_rdma_test_node:carrier() of
                    "inet_tcp" -> "inet6_tcp";
                    "inet_rdma" -> "inet6_rdma"
                end,
            Options = #{carrier => Carrier, long => true},
            [A, B] = start_all([{X, Options#{name => unique(X) ++ "@::1"}} || X <- ["a", "b"]]),
            connect(A, B),
            ok = call(A, inet_rdma_test_data, echo_and_compare, [name(B), [0, 1000, 1000000]]);
        {error, Reason} ->
            {skip, lists:flatten(io_lib:format("this machine has no IPv6: ~p", [Reason]))}
    end.

await_hidden(Node, Expected) ->
    inet_rdma_test_wait:until({hidden_nodes, Expected}, 10000, fun() ->
        call(Node, erlang, nodes, [hidden]) =:= Expected
    end).

range({First, Last}) ->
    [
        "-kernel",
        "inet_dist_listen_min",
        integer_to_list(First),
        "-kernel",
        "inet_dist_listen_max",
        integer_to_list(Last)
    ].

%% Count ports in a row that are free at the moment, below the range the kernel hands out.
free_ports(Count) ->
    First = 20000 + rand:uniform(10000),
    Last = First + Count - 1,
    Taken = [P || P <- lists:seq(First, Last), tcp_port_taken(P)],
    case Taken of
        [] -> {First, Last};
        _ -> free_ports(Count)
    end.

tcp_port_taken(Port) ->
    case gen_tcp:listen(Port, []) of
        {ok, Socket} ->
            gen_tcp:close(Socket),
            false;
        {error, _} ->
            true
    end.

connect(A, B) -> ok = inet_rdma_test_node:connect(A, B).

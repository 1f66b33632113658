%% Nodes that lack what a link is made of: their package is removed while they run, or they have no descriptor or no
%% port left. Links that are up outlive the loss of their connection, and new ones come up where inet_tcp's would.
-module(shortage_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_node, [call/4, name/1]).

-export([all/0, suite/0, groups/0, init_per_testcase/2]).
-export([package_that_is_removed/1, no_descriptor_left/1, one_descriptor_left/1, one_port_left/1]).

suite() ->
    [{timetrap, {minutes, 3}}, {ct_hooks, [{inet_rdma_test_nodes, [only_rdma, paths]}]}].

all() ->
    [{group, Group} || {Group, _, _} <- groups()].

groups() ->
    inet_rdma_test_paths:groups([package_that_is_removed, no_descriptor_left, one_descriptor_left, one_port_left]).

init_per_testcase(package_that_is_removed, Config) ->
    inet_rdma_test_cutter:needed(Config);
init_per_testcase(Case, Config) ->
    case {proplists:get_value(path, Config), inet_rdma_test_limit:why_not()} of
        {tls, _} when Case =:= one_descriptor_left ->
            {skip, "OTP's TLS opens a file in the handshake, also with inet_tls"};
        {_, none} -> inet_rdma_test_cutter:needed(Config);
        {_, Why} -> inet_rdma_test_link:skip(Why)
    end.

%% The files are gone before the node's first loss, whichever side has connected.
package_that_is_removed(Config) ->
    [
        begin
            [Ebin, _] = Code = inet_rdma_test_node:copy_code(directory(Config)),
            [A, B] = inet_rdma_test_node:start_all([
                {"a", alone(Config, #{code => Code})}, {"b", alone(Config, #{})}
            ]),
            ok = connect(Role, A, B),
            Watched = watched(A, B),
            ok = file:del_dir_r(filename:dirname(Ebin)),
            _ = [resumed_after_a_cut(A, B) || _ <- [1, 2, 3]],
            ok = undisturbed(Watched),
            inet_rdma_test_node:stop_all()
        end
     || Role <- [acceptor, initiator]
    ].

%% On the side without a descriptor the new connection gets that of the lost one, at each loss again. Each loss is one
%% line, and what it ends with another.
no_descriptor_left(Config) ->
    [
        begin
            [A, B] = inet_rdma_test_node:start_all([{Name, alone(Config, #{})} || Name <- ["a", "b"]]),
            ok = connect(Role, A, B),
            Watched = watched(A, B),
            ok = inet_rdma_test_limit:leave_descriptors(A, 0),
            _ = [resumed_after_a_cut(A, B) || _ <- [1, 2, 3]],
            ok = undisturbed(Watched),
            ?assert(length(call(A, inet_rdma_test_log, lines, [])) =< 12),
            inet_rdma_test_node:stop_all()
        end
     || Role <- [acceptor, initiator]
    ].

%% As over inet_tcp, which needs no more than the connection itself.
one_descriptor_left(Config) ->
    up_without_room(Config, fun(Node) -> inet_rdma_test_limit:leave_descriptors(Node, 1) end, fun ok/2).

%% The link stays on the socket that it has begun with, and both nodes say why.
one_port_left(Config) ->
    up_without_room(Config, fun(Node) -> inet_rdma_test_limit:leave_ports(Node, 1) end, fun(A, B) ->
        {Own, OfPeer} = {inet_rdma_test_link:why(A, B), inet_rdma_test_link:why(B, A)},
        ct:pal("~ts~n~ts", [Own, OfPeer]),
        ?assertMatch({match, _}, re:run(Own, "no room for a session: opening a port")),
        ?assertMatch({match, _}, re:run(OfPeer, "it has no port or descriptor left")),
        ok
    end).

ok(_A, _B) -> ok.

%% Either node calls the other, with an argument of many packets.
answers(A, B) ->
    Bytes = binary:copy(<<1>>, 3000000),
    _ = [?assertEqual(byte_size(Bytes), call(X, erpc, call, [name(Y), erlang, byte_size, [Bytes]]))
         || {X, Y} <- [{A, B}, {B, A}]],
    ok.

%% The first node has no more room, and gets a link, which stays, whichever side connects.
up_without_room(Config, Limit, Check) ->
    [
        begin
            [A, B] = inet_rdma_test_node:start_all([
                {Name, alone(Config, #{args => ["+Q", "1024"]})} || Name <- ["a", "b"]
            ]),
            %% The first link of a node loads more.
            ok = connect(Role, A, B),
            ok = answers(A, B),
            _ = watched(A, B),
            ok = inet_rdma_test_link:disconnect(A, B),
            _ = inet_rdma_test_link:no_unlinked_ports([A, B]),
            ok = Limit(A),
            {X, Y} = case Role of initiator -> {A, B}; acceptor -> {B, A} end,
            ok = inet_rdma_test_link:connect(X, Y),
            Watched = watched(A, B),
            ok = Check(A, B),
            ok = answers(A, B),
            ok = undisturbed(Watched),
            inet_rdma_test_node:stop_all()
        end
     || Role <- [acceptor, initiator]
    ].

directory(Config) ->
    Number = integer_to_list(erlang:unique_integer([positive])),
    filename:join([proplists:get_value(priv_dir, Config), "package", Number]).

alone(Config, More) ->
    Options = inet_rdma_test_paths:options(Config, More),
    inet_rdma_test_node:alone(maps:merge(maps:without([args, rdma], More), Options)).

%% Role: of the first node.
connect(initiator, A, B) -> inet_rdma_test_node:connect(A, B);
connect(acceptor, A, B) -> inet_rdma_test_node:connect(B, A).

%% Both nodes note what they log, and what they hear of each other's end.
watched(A, B) ->
    [ok = call(Node, inet_rdma_test_log, install, []) || Node <- [A, B]],
    [{Node, inet_rdma_test_node:watch(Node, Peer)} || {Node, Peer} <- [{A, B}, {B, A}]].

%% No nodedown, and no line of an error.
undisturbed(Watched) ->
    _ = [
        begin
            ?assertEqual([], call(Node, inet_rdma_test_watch, seen, [Watcher])),
            ?assertEqual([], [Line || "error" ++ _ = Line <- call(Node, inet_rdma_test_log, lines, []),
                              not is_lack_of_files(Line)])
        end
     || {Node, Watcher} <- Watched
    ],
    ok.

%% Attempts of both nodes may meet: the one spare descriptor serves the files of one handshake. OTP logs the other one,
%% and it is made again.
is_lack_of_files(Line) ->
    re:run(Line, "^error: Cannot accept TLS distribution connection: .*: too many open files") =/= nomatch.

%% Either node cuts it off. Both have another TCP connection afterwards, and answer calls.
resumed_after_a_cut(#{os_pid := PidA} = A, #{os_pid := PidB} = B) ->
    Before = [resumes(X, Y) || {X, Y} <- [{A, B}, {B, A}]],
    ?assert(inet_rdma_test_cutter:cut(PidA, PidB) > 0),
    inet_rdma_test_wait:until({resumed, Before}, 20000, fun() ->
        Now = [resumes(X, Y) || {X, Y} <- [{A, B}, {B, A}]],
        lists:all(fun({Old, New}) -> New > Old end, lists:zip(Before, Now)) orelse Now
    end),
    [?assertEqual(name(Y), call(X, erpc, call, [name(Y), erlang, node, []])) || {X, Y} <- [{A, B}, {B, A}]].

resumes(Node, Peer) ->
    case call(Node, inet_rdma, info, [name(Peer)]) of
        #{resumes := Resumes} -> Resumes;
        undefined -> 0
    end.

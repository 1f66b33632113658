%% Nodes that lack what a link is made of: their package is removed while they run, or they have no
%% descriptor, no port or no place for a process left. Links that are up outlive the loss of their
%% connection, and new ones come up where inet_tcp's would.
-module(shortage_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_node, [call/4, name/1]).

%% How long a node has no process left: some attempts to make a lost connection again fail.
-define(HELD_MS, 4000).
%% Half-open handshakes of strangers.
-define(STRANGERS, 30).
-define(STORM, 210).
%% The spare of all ports, which a node opens with its next port.
-define(SPARE, 1).

-export([all/0, suite/0, groups/0, init_per_testcase/2]).
-export([
    package_that_is_removed/1,
    no_descriptor_left/1,
    one_descriptor_left/1,
    too_few_for_the_resolver/1
]).
-export([one_port_left/1, no_process_left/1, no_process_left_where_a_link_begins/1]).
-export([half_open_handshakes_hold_connections_alone/1, half_open_handshakes_beside_inet_tcp/1]).

suite() ->
    [{timetrap, {minutes, 3}}, {ct_hooks, [{inet_rdma_test_nodes, [only_rdma, paths]}]}].

all() ->
    [{group, Group} || {Group, _, _} <- groups()].

groups() ->
    inet_rdma_test_paths:groups([
        package_that_is_removed,
        no_descriptor_left,
        one_descriptor_left,
        too_few_for_the_resolver,
        one_port_left,
        no_process_left,
        no_process_left_where_a_link_begins,
        half_open_handshakes_hold_connections_alone,
        half_open_handshakes_beside_inet_tcp
    ]).

init_per_testcase(Case, Config) when Case =:= package_that_is_removed; Case =:= no_process_left ->
    inet_rdma_test_cutter:needed(Config);
init_per_testcase(no_process_left_where_a_link_begins, Config) ->
    Config;
init_per_testcase(Case, Config) ->
    case {proplists:get_value(path, Config), inet_rdma_test_limit:why_not()} of
        {tls, _} when
            Case =:= half_open_handshakes_hold_connections_alone;
            Case =:= half_open_handshakes_beside_inet_tcp
        ->
            {skip, "the strangers of this case have no TLS"};
        {tls, _} when Case =:= one_descriptor_left ->
            {skip, "OTP's TLS opens a file in the handshake, also with inet_tls"};
        {_, none} ->
            inet_rdma_test_cutter:needed(Config);
        {_, Why} ->
            inet_rdma_test_link:skip(Why)
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

%% On the side without a descriptor the new connection gets that of the lost one, at each loss
%% again. Each loss is one line, and what it ends with another.
no_descriptor_left(Config) ->
    [
        begin
            [A, B] = inet_rdma_test_node:start_all([
                {Name, alone(Config, #{})}
             || Name <- ["a", "b"]
            ]),
            ok = connect(Role, A, B),
            Watched = watched(A, B),
            ok = inet_rdma_test_limit:leave_descriptors(A, 0),
            _ = [resumed_after_a_cut(A, B) || _ <- [1, 2, 3]],
            ok = undisturbed(Watched),
            Lines = [
                Line
             || Line <- call(A, inet_rdma_test_log, lines, []), not is_lack_of_files(Line)
            ],
            ?assert(length(Lines) =< 12, Lines),
            inet_rdma_test_node:stop_all()
        end
     || Role <- [acceptor, initiator]
    ].

%% As over inet_tcp, which needs no more than the connection itself.
one_descriptor_left(Config) ->
    up_without_room(
        Config, fun(Node) -> inet_rdma_test_limit:leave_descriptors(Node, 1) end, fun ok/2
    ).

%% A node that others connect to asks EPMD for theirs some time after that, and has not resolved a
%% name before. OTP's resolver ends a VM that has four descriptors or fewer for the start of its
%% program.
too_few_for_the_resolver(Config) ->
    [A, B] = inet_rdma_test_node:start_all([{Name, alone(Config, #{})} || Name <- ["a", "b"]]),
    ok = connect(acceptor, A, B),
    ok = inet_rdma_test_limit:leave_descriptors(A, 0),
    %% Unless the node has been slow, and EPMD is asked already.
    ct:log("resolver: ~p", [call(A, erlang, whereis, [inet_gethost_native])]),
    Node = atom_to_binary(name(B)),
    {ok, Session} = call(A, inet_rdma_links, session_of, [Node]),
    _ = [
        begin
            ok = inet_rdma_test_limit:leave_descriptors(A, Count),
            ok = call(A, inet_rdma_candidates, learn, [Session, Node])
        end
     || Count <- lists:seq(0, 6)
    ],
    ok = answers(A, B).

%% The link stays on the socket that it has begun with, and both nodes say why.
one_port_left(Config) ->
    up_without_room(Config, fun(Node) -> inet_rdma_test_limit:leave_ports(Node, 1) end, fun(A, B) ->
        {Own, OfPeer} = {inet_rdma_test_link:why(A, B), inet_rdma_test_link:why(B, A)},
        ct:pal("~ts~n~ts", [Own, OfPeer]),
        ?assertMatch({match, _}, re:run(Own, "no room for a session: opening a port")),
        ?assertMatch({match, _}, re:run(OfPeer, "it has no port or descriptor left")),
        ok
    end).

%% The link is resumed when processes have ended.
no_process_left(Config) ->
    [
        begin
            [#{os_pid := PidA} = A, #{os_pid := PidB} = B] = few_processes(Config),
            ok = connect(Role, A, B),
            ok = answers(A, B),
            Watched = watched(A, B),
            Before = resumes(B, A),
            ok = call(A, inet_rdma_test_limit, hold_processes, [?HELD_MS, name(B)]),
            ?assert(inet_rdma_test_cutter:cut(PidA, PidB) > 0),
            inet_rdma_test_wait:until(resumed, 20000, fun() ->
                Now = resumes(B, A),
                Now > Before orelse Now
            end),
            ok = answers(A, B),
            ok = undisturbed(Watched),
            inet_rdma_test_node:stop_all()
        end
     || Role <- [acceptor, initiator]
    ].

%% A connection waits until processes have ended; this node begins none. Neither ends the node.
no_process_left_where_a_link_begins(Config) ->
    [A, B] = few_processes(Config),
    ok = call(A, inet_rdma_test_limit, hold_processes, [?HELD_MS, name(B)]),
    inet_rdma_test_wait:until(connected, 20000, fun() ->
        call(B, net_adm, ping, [name(A)]) =:= pong
    end),
    ok = answers(A, B).

%% Strangers that begin a handshake, with an offer, and prove no cookie. The node holds a descriptor
%% for each, as over inet_tcp, and a link with a node comes up beside them on the last one.
half_open_handshakes_hold_connections_alone(Config) ->
    [#{os_pid := PidA} = A, B] = inet_rdma_test_node:start_all([
        {Name, alone(Config, #{})}
     || Name <- ["a", "b"]
    ]),
    ok = warm_up(acceptor, A, B),
    #{fds := Before} = inet_rdma_test_os:footprint(PidA),
    Strangers = half_open(?STRANGERS, A),
    #{fds := Now} = inet_rdma_test_os:footprint(PidA),
    ?assert(Now - Before =< ?STRANGERS + ?SPARE),
    ok = inet_rdma_test_limit:leave_descriptors(A, 1),
    ok = inet_rdma_test_link:connect(B, A),
    Watched = watched(A, B),
    ok = answers(A, B),
    ok = undisturbed(Watched),
    lists:foreach(fun gen_tcp:close/1, Strangers).

%% As many as come at 30 a second until OTP ends them after 7 s: of 300 descriptors a node has as
%% many left as one of inet_tcp.
half_open_handshakes_beside_inet_tcp(Config) ->
    Common = #{
        under => ["sh", "-c", "ulimit -n 300; exec \"$@\"", "sh"],
        args => ["-kernel", "net_setuptime", "120"]
    },
    Nodes = inet_rdma_test_node:start_all([
        {"a", alone(Config, Common)},
        {"t", inet_rdma_test_node:alone(Common#{carrier => "inet_tcp"})}
    ]),
    [Own, OfTcp] = [
        begin
            #{fds := Before} = inet_rdma_test_os:footprint(OsPid),
            Strangers = half_open(?STORM, Node),
            #{fds := Now} = inet_rdma_test_os:footprint(OsPid),
            lists:foreach(fun gen_tcp:close/1, Strangers),
            Now - Before
        end
     || #{os_pid := OsPid} = Node <- Nodes
    ],
    ct:pal("descriptors for ~b strangers: ~b, of inet_tcp ~b", [?STORM, Own, OfTcp]),
    ?assert(Own =< OfTcp + ?SPARE, {Own, OfTcp}).

half_open(Count, Node) ->
    [
        inet_rdma_test_peer:half_open(
            name(Node),
            <<"stranger", (integer_to_binary(N))/binary, "@nowhere">>,
            #{offer => inet_rdma_test_peer:offer()}
        )
     || N <- lists:seq(1, Count)
    ].

few_processes(Config) ->
    inet_rdma_test_node:start_all([
        {Name, alone(Config, #{args => ["+P", "1024"]})}
     || Name <- ["a", "b"]
    ]).

ok(_A, _B) -> ok.

%% Either node calls the other, with an argument of many packets.
answers(A, B) ->
    Bytes = binary:copy(<<1>>, 3000000),
    _ = [
        ?assertEqual(byte_size(Bytes), call(X, erpc, call, [name(Y), erlang, byte_size, [Bytes]]))
     || {X, Y} <- [{A, B}, {B, A}]
    ],
    ok.

%% The first node has no room left, and gets a link, which stays, whichever side connects.
up_without_room(Config, Limit, Check) ->
    [
        begin
            [A, B] = inet_rdma_test_node:start_all([
                {Name, alone(Config, #{args => ["+Q", "1024"]})}
             || Name <- ["a", "b"]
            ]),
            ok = warm_up(Role, A, B),
            ok = Limit(A),
            {X, Y} =
                case Role of
                    initiator -> {A, B};
                    acceptor -> {B, A}
                end,
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

%% The first link of a node loads more: modules, and what the suite watches with. Role: of the first
%% node.
warm_up(Role, A, B) ->
    ok = connect(Role, A, B),
    ok = answers(A, B),
    _ = watched(A, B),
    ok = inet_rdma_test_link:disconnect(A, B),
    _ = inet_rdma_test_link:no_unlinked_ports([A, B]),
    ok.

%% Both nodes note what they log, and what they hear of each other's end.
watched(A, B) ->
    [ok = call(Node, inet_rdma_test_log, install, []) || Node <- [A, B]],
    [{Node, inet_rdma_test_node:watch(Node, Peer)} || {Node, Peer} <- [{A, B}, {B, A}]].

%% No nodedown, and no line of an error.
undisturbed(Watched) ->
    _ = [
        begin
            ?assertEqual([], call(Node, inet_rdma_test_watch, seen, [Watcher])),
            ?assertEqual([], [
                Line
             || "error" ++ _ = Line <- call(Node, inet_rdma_test_log, lines, []),
                not is_lack_of_files(Line),
                not is_lack_of_processes(Line)
            ])
        end
     || {Node, Watcher} <- Watched
    ],
    ok.

%% Attempts of both nodes may meet: the one spare descriptor serves the files of one handshake. OTP
%% logs the other one, and it is made again.
is_lack_of_files(Line) ->
    Texts = [
        "^error: Cannot accept TLS distribution connection: .*: too many open files",
        "^notice: TLS server: .*emfile"
    ],
    lists:any(fun(Text) -> re:run(Line, Text) =/= nomatch end, Texts).

%% The VM's own line, one for each process that it cannot start.
is_lack_of_processes(Line) -> re:run(Line, "^error: Too many processes") =/= nomatch.

%% Either node cuts it off. Both have another TCP connection afterwards, and answer calls.
resumed_after_a_cut(#{os_pid := PidA} = A, #{os_pid := PidB} = B) ->
    Before = [resumes(X, Y) || {X, Y} <- [{A, B}, {B, A}]],
    ?assert(inet_rdma_test_cutter:cut(PidA, PidB) > 0),
    inet_rdma_test_wait:until({resumed, Before}, 20000, fun() ->
        Now = [resumes(X, Y) || {X, Y} <- [{A, B}, {B, A}]],
        lists:all(fun({Old, New}) -> New > Old end, lists:zip(Before, Now)) orelse Now
    end),
    [
        ?assertEqual(name(Y), call(X, erpc, call, [name(Y), erlang, node, []]))
     || {X, Y} <- [{A, B}, {B, A}]
    ].

resumes(Node, Peer) ->
    case call(Node, inet_rdma, info, [name(Peer)]) of
        #{resumes := Resumes} -> Resumes;
        undefined -> 0
    end.

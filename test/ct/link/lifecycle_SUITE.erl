%% A connection from its start to its end: nothing is left behind.
-module(lifecycle_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_node, [call/4, name/1]).

-export([all/0, suite/0, init_per_testcase/2]).
-export([thousand_connects_leak_nothing/1, listener_of_links_comes_later/1]).
-export([links_that_fail_leave_no_row/1, many_links_leave_room_for_failures/1]).
-export([
    facts_end_with_their_session/1,
    tables_outlive_what_works_on_them/1,
    every_start_has_the_tables/1
]).
-export([death_of_the_acceptor_keeps_live_links/1]).
-export([end_while_options_are_read/1, end_of_a_suspended_link/1, stop_after_storms/1]).

-define(MB, 1048576).
-define(FACT_ROUNDS, 100).

suite() ->
    [{timetrap, {minutes, 3 + connects() div 500}}, {ct_hooks, [inet_rdma_test_nodes]}].

all() ->
    [
        thousand_connects_leak_nothing,
        listener_of_links_comes_later,
        links_that_fail_leave_no_row,
        many_links_leave_room_for_failures,
        facts_end_with_their_session,
        tables_outlive_what_works_on_them,
        every_start_has_the_tables,
        death_of_the_acceptor_keeps_live_links,
        end_while_options_are_read,
        end_of_a_suspended_link,
        stop_after_storms
    ].

init_per_testcase(Case, Config) when
    Case =:= thousand_connects_leak_nothing;
    Case =:= death_of_the_acceptor_keeps_live_links;
    Case =:= stop_after_storms
->
    Config;
init_per_testcase(_Case, Config) ->
    inet_rdma_test_node:only_rdma(Config).

thousand_connects_leak_nothing(_Config) ->
    %% `global' answers a nodeup with a message, which connects again if it comes after the end.
    [A, B] = inet_rdma_test_node:connected_pair(inet_rdma_test_node:alone(#{args => []})),
    %% The first ones load code and let allocators and tables grow to their working size.
    cycles(A, B, 100),
    _ = [ok = inet_rdma_test_usage:start_resolver(Node) || Node <- [A, B]],
    Before = [{Node, usage(Node), footprint(Node), rss(Node)} || Node <- [A, B]],
    cycles(A, B, connects()),
    [
        begin
            ok = inet_rdma_test_os:await_footprint(maps:get(os_pid, Node), Footprint),
            await_usage(Node, Usage),
            ct:pal("~p: ~p, resident memory grew by ~b KB", [
                name(Node), Footprint, (rss(Node) - Rss) div 1024
            ]),
            %% One leaked connection would be more than 2 MB of it.
            ?assert(rss(Node) - Rss < 64 * ?MB)
        end
     || {Node, Usage, Footprint, Rss} <- Before
    ].

%% A tool that asks another node something and ends does without its thread and descriptors. When a
%% link has lasted, each node knows that the process of the other one lives.
listener_of_links_comes_later(_Config) ->
    [A, B] = without_listener(10),
    inet_rdma_test_wait:until(witnesses, 20000, fun() ->
        Known = [inet_rdma_test_link:host_witness(X, Y) || {X, Y} <- [{A, B}, {B, A}]],
        Known =:= [alive, alive] orelse Known
    end),
    ?assert(inet_rdma_test_os:has_listener_of_links(maps:get(os_pid, A))).

%% Tries again if this node was too slow to look in time.
without_listener(Tries) when Tries > 0 ->
    [#{os_pid := OsPid} = A, B] =
        Nodes = inet_rdma_test_node:start_all(2, inet_rdma_test_node:alone(#{args => []})),
    StartMs = erlang:monotonic_time(millisecond),
    true = call(A, net_kernel, connect_node, [name(B)]),
    receive
    after 300 -> ok
    end,
    Has = inet_rdma_test_os:has_listener_of_links(OsPid),
    case erlang:monotonic_time(millisecond) - StartMs < 1000 of
        true ->
            ?assertNot(Has),
            Nodes;
        false ->
            inet_rdma_test_node:stop_all(),
            without_listener(Tries - 1)
    end.

%% Also those that are set while the session ends.
facts_end_with_their_session(_Config) ->
    [A, B] = inet_rdma_test_node:start_all(2, inet_rdma_test_node:alone(#{args => []})),
    [
        begin
            ok = inet_rdma_test_node:connect(A, B),
            ok = call(A, inet_rdma_test_asker, write_facts, [name(B)]),
            ok = inet_rdma_test_link:disconnect(A, B)
        end
     || _ <- lists:seq(1, ?FACT_ROUNDS)
    ],
    [
        inet_rdma_test_wait:until({empty, Table}, 10000, fun() ->
            Left = call(A, ets, tab2list, [Table]),
            Left =:= [] orelse length(Left)
        end)
     || Table <- [inet_rdma_detour_facts, inet_rdma_peers, inet_rdma_sessions]
    ].

connects() -> list_to_integer(os:getenv("INET_RDMA_LIFECYCLE_CONNECTS", "1000")).

%% Each side closes in turn; the other's connect comes with a message, small or large.
cycles(A, B, Count) ->
    [
        begin
            {X, Y} =
                case I rem 2 of
                    0 -> {A, B};
                    1 -> {B, A}
                end,
            Size =
                case I rem 10 of
                    0 -> 200000;
                    _ -> 100
                end,
            ok = call(X, inet_rdma_test_data, send_and_compare, [name(Y), [Size]]),
            ok = call(X, inet_rdma_test_remote, disconnect_and_wait, [name(Y)]),
            ok = call(Y, inet_rdma_test_remote, disconnect_and_wait, [name(X)])
        end
     || I <- lists:seq(1, Count)
    ].

usage(Node) ->
    [_ = call(Node, erlang, garbage_collect, [Pid]) || Pid <- call(Node, erlang, processes, [])],
    #{
        processes => call(Node, erlang, system_info, [process_count]),
        ports => call(Node, erlang, system_info, [port_count]),
        tables => length(call(Node, ets, all, [])),
        rows => length(rows(Node)),
        memory => call(Node, erlang, memory, [total])
    }.

await_usage(Node, Before) ->
    %% The runtime system keeps an entry for each connection it ever had until it sweeps them: allow
    %% 3 KB each.
    Allowed = Before#{memory := maps:get(memory, Before) + 3 * ?MB},
    inet_rdma_test_wait:until({usage_of, name(Node), Before}, 20000, fun() ->
        Now = usage(Node),
        case [Key || Key <- maps:keys(Allowed), map_get(Key, Now) > map_get(Key, Allowed)] of
            [] -> true;
            Grown -> maps:with(Grown, Now)
        end
    end).

%% The rows of links and sessions.
rows(Node) -> lists:append([call(Node, ets, tab2list, [Table]) || Table <- tables(Node)]).

tables(Node) ->
    [
        Table
     || Table <- call(Node, ets, all, []),
        lists:member(Table, [inet_rdma_links, inet_rdma_sessions])
    ].

%% Both nodes connect at once and disconnect at once, so that links end in every state of their
%% start.
links_that_fail_leave_no_row(_Config) ->
    Nodes = [A, B] = inet_rdma_test_node:start_all(2, #{}),
    [
        begin
            AtMicros = os:system_time(microsecond) + 5000,
            [
                call(Node, erlang, spawn, [
                    inet_rdma_test_remote, connect_at, [name(Peer), AtMicros]
                ])
             || {Node, Peer} <- [{A, B}, {B, A}]
            ],
            ok = inet_rdma_test_wait:holds(pause, 5 + rand:uniform(15), fun() -> true end),
            [
                _ = call(Node, erlang, disconnect_node, [name(Peer)])
             || {Node, Peer} <- [{A, B}, {B, A}]
            ]
        end
     || _ <- lists:seq(1, 300)
    ],
    inet_rdma_test_wait:until(no_rows, 20000, fun() ->
        [_ = call(Node, erlang, disconnect_node, [name(Peer)]) || {Node, Peer} <- [{A, B}, {B, A}]],
        case [Row || Node <- Nodes, Row <- rows(Node)] of
            [] -> true;
            Rows -> Rows
        end
    end).

%% What a node remembers of failures does not depend on the number of its links, and the last
%% failure has a place beside any number of others.
many_links_leave_room_for_failures(_Config) ->
    A = inet_rdma_test_node:start("a"),
    {Reason, LeftMs} = call(A, inet_rdma_test_remote, fail_among, [{links, 5000}]),
    ?assertEqual({<<"it fails">>, true}, {Reason, LeftMs > 0}),
    ?assertMatch(
        {<<"it fails">>, _}, call(A, inet_rdma_test_remote, fail_among, [{failures, 5000}])
    ),
    ?assert(call(A, ets, info, [inet_rdma_failures, size]) < 5000).

%% The processes beside net_kernel come again after their death, and know the links that are up. The
%% supervisor owns the tables, so it takes no row with it.
tables_outlive_what_works_on_them(_Config) ->
    [A, B] = inet_rdma_test_node:connected_pair(#{}),
    Watcher = inet_rdma_test_node:watch(A, B),
    Rows = lists:sort(rows(A)),
    ?assertMatch([_, _], Rows),
    [
        begin
            Pid = call(A, erlang, whereis, [Name]),
            true = call(A, erlang, exit, [Pid, kill]),
            inet_rdma_test_wait:until({again, Name}, 10000, fun() ->
                New = call(A, erlang, whereis, [Name]),
                is_pid(New) andalso New =/= Pid
            end)
        end
     || Name <- [inet_rdma_keeper, inet_rdma_node_watch]
    ],
    ?assertEqual(Rows, lists:sort(rows(A))),
    ?assertEqual([], call(A, inet_rdma_test_watch, seen, [Watcher])),
    [true = call(X, erlang, disconnect_node, [name(Y)]) || {X, Y} <- [{A, B}]],
    inet_rdma_test_wait:until(no_rows, 10000, fun() -> rows(A) =:= [] end),
    inet_rdma_test_wait:until(recorded, 10000, fun() ->
        lists:any(
            fun(#{event := Event}) -> Event =:= <<"nodedown">> end,
            call(A, inet_rdma_recorder, history, [name(B), 20])
        )
    end).

%% However the distribution is started: with a listener and without, by hand, stopped and started
%% again.
every_start_has_the_tables(_Config) ->
    [Listens, Deaf, Late] = inet_rdma_test_node:start_all([
        {"a", #{}}, {"deaf", #{args => ["-dist_listen", "false"]}}, {"late", #{name => none}}
    ]),
    [?assertMatch({_, [_, _]}, {name(Node), tables(Node)}) || Node <- [Listens, Deaf]],
    [
        begin
            ?assertEqual([], tables(Late)),
            {ok, _} = call(Late, net_kernel, start, [[inet_rdma_late, shortnames]]),
            ?assertMatch([_, _], tables(Late)),
            ok = call(Late, net_kernel, stop, [])
        end
     || _ <- [1, 2]
    ].

%% net_kernel starts a new acceptor; connected nodes do not notice, other nodes can connect.
death_of_the_acceptor_keeps_live_links(_Config) ->
    [A, B] = inet_rdma_test_node:connected_pair(#{}),
    Watcher = inet_rdma_test_node:watch(A, B),
    Acceptor = call(A, inet_rdma_test_remote, acceptor, []),
    true = call(A, erlang, exit, [Acceptor, kill]),
    inet_rdma_test_wait:until(new_acceptor, 10000, fun() ->
        New = call(A, inet_rdma_test_remote, acceptor, []),
        New =/= Acceptor andalso call(A, erlang, is_process_alive, [New])
    end),
    ok = call(A, inet_rdma_test_data, echo_and_compare, [name(B), [0, 1000, ?MB]]),
    C = inet_rdma_test_node:start("c"),
    ok = inet_rdma_test_node:connect(C, A),
    ?assertEqual([], call(A, inet_rdma_test_watch, seen, [Watcher])).

%% inet has a descriptor of the link's socket while an option is read. When the link has ended
%% meanwhile, inet takes no socket of the next link out of the poll set.
end_while_options_are_read(_Config) ->
    [A, B] = inet_rdma_test_node:start_all(2, #{rdma => [{fabric, tcp}]}),
    [
        begin
            ok = inet_rdma_test_link:connect(A, B),
            [Opener | _] =
                Holders = [
                    call(Holding, inet_rdma_test_remote, hold_socket, [])
                 || _ <- lists:seq(1, 3)
                ],
            [ok, ok] = inet_rdma_test_link:both(A, B, disconnect_and_wait, []),
            %% The next link takes the lowest free numbers. The file has one that the first link has
            %% had for itself.
            ok = call(Holding, inet_rdma_test_ask, ask, [Opener, open]),
            ok = inet_rdma_test_link:connect(A, B),
            [ok = call(Holding, inet_rdma_test_ask, ask, [Holder, close]) || Holder <- Holders],
            ok = inet_rdma_test_link:exercise(A, B),
            [ok, ok] = inet_rdma_test_link:both(A, B, disconnect_and_wait, [])
        end
     || Holding <- [A, B, A, B]
    ].

%% A link ends while it has no connection and bytes wait for one, by disconnect_node or with the
%% node: nothing of it stays.
end_of_a_suspended_link(Config) ->
    Options = inet_rdma_test_node:alone(#{rdma => [{fabric, tcp}, {survive_ms, 600000}], args => []}),
    #{a := A, b := B, relay := Relay} =
        inet_rdma_test_detour:start(proplists:get_value(priv_dir, Config), Options, Options),
    Suspend = fun() ->
        ok = inet_rdma_test_node:connect(A, B),
        ok = inet_rdma_test_relay:hold(Relay),
        [
            begin
                inet_rdma_test_wait:until(lost, 10000, fun() ->
                    not call(X, inet_rdma_test_remote, has_tcp, [])
                end),
                ok = call(X, erlang, send, [{nobody, name(Y)}, rand:bytes(100000), [noconnect]])
            end
         || {X, Y} <- [{A, B}, {B, A}]
        ]
    end,
    Suspend(),
    [true = call(X, erlang, disconnect_node, [name(Y)]) || {X, Y} <- [{A, B}, {B, A}]],
    inet_rdma_test_link:no_unlinked_ports([A, B]),
    ok = inet_rdma_test_relay:pass(Relay),
    Suspend(),
    [stops(Node) || Node <- [A, B]].

%% Four nodes under traffic whose links are ended and made in every way, one of them stopped,
%% another one killed: each node ends when it is told to, also while a peer does not run, and no
%% port of an ended link stays on those that live on.
stop_after_storms(_Config) ->
    Options = inet_rdma_test_node:alone(#{args => ["-kernel", "net_ticktime", "60"]}),
    [A, B, C, D] = Nodes = inet_rdma_test_node:start_all(4, Options),
    Pairs = [{X, Y} || X <- Nodes, Y <- Nodes, name(X) < name(Y)],
    [ok = inet_rdma_test_link:connect(X, Y) || {X, Y} <- Pairs],
    [
        begin
            _ = call(X, inet_rdma_certify_calls, start, [name(Y), 3, 0]),
            _ = call(X, inet_rdma_certify_numbers, start, [
                name(Y), #{bytes => {1, 50000}, burst => 50, pause_ms => 1}
            ])
        end
     || X <- Nodes, Y <- Nodes, X =/= Y
    ],
    [
        begin
            {X, Y} = lists:nth(rand:uniform(length(Pairs)), Pairs),
            _ = call(X, erlang, disconnect_node, [name(Y)])
        end
     || _ <- lists:seq(1, 25)
    ],
    [collide_all(Nodes, Pairs) || _ <- lists:seq(1, 10)],
    inet_rdma_test_node:suspend(C),
    _ = [call(X, erlang, disconnect_node, [name(B)]) || X <- [A, D]],
    ok = inet_rdma_test_wait:holds(pause, 500, fun() -> true end),
    inet_rdma_test_node:resume(C),
    inet_rdma_test_node:kill(D),
    inet_rdma_test_link:no_unlinked_ports([A, B, C]),
    stops(A),
    inet_rdma_test_link:no_unlinked_ports([B, C]),
    inet_rdma_test_node:suspend(C),
    stops(B),
    inet_rdma_test_node:resume(C),
    inet_rdma_test_link:no_unlinked_ports([C]),
    stops(C).

%% All links end, and both nodes of each connect at once.
collide_all(Nodes, Pairs) ->
    [_ = call(X, erlang, disconnect_node, [name(Y)]) || {X, Y} <- Pairs],
    AtMicros = os:system_time(microsecond) + 20000,
    Callers = [
        spawn_monitor(fun() -> call(X, inet_rdma_test_remote, connect_at, [name(Y), AtMicros]) end)
     || X <- Nodes, Y <- Nodes, X =/= Y
    ],
    [
        receive
            {'DOWN', Ref, process, Caller, Reason} -> ?assertEqual(normal, Reason)
        end
     || {Caller, Ref} <- Callers
    ].

stops(Node) ->
    StartMs = erlang:monotonic_time(millisecond),
    ok = peer:cast(maps:get(peer, Node), init, stop, []),
    ok = inet_rdma_test_node:await_exit(Node, 20000),
    ct:pal("~p has ended after ~b ms", [name(Node), erlang:monotonic_time(millisecond) - StartMs]).

footprint(Node) -> inet_rdma_test_usage:footprint(Node).

rss(#{os_pid := OsPid}) -> inet_rdma_test_os:rss_bytes(OsPid).

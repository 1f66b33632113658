%% A connection from its start to its end: nothing is left behind, and what the node says of it is true.
-module(lifecycle_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_node, [call/4, name/1]).

-export([all/0, suite/0, init_per_testcase/2, end_per_testcase/2]).
-export([thousand_connects_leak_nothing/1, death_of_the_acceptor_keeps_live_links/1]).
-export([node_info_is_sane/1, socket_options_of_a_connection/1, info_counts/1, info_of_several_connections/1]).
-export([info_counts_of_a_stream/1, info_of_a_link_on_tcp/1]).
-export([purge_of_the_modules_is_harmless/1, reload_of_the_modules_is_harmless/1]).
-export([delete_of_the_native_module_costs_links_only/1, library_stays_in_memory/1]).
-export([reloaded_modules_resume_a_link/1, end_of_a_suspended_link/1, stop_after_storms/1]).
-export([refused_driver_is_no_library/1, library_of_another_path_leaves_links_on_tcp/1]).

-define(MB, 1048576).
%% The modules that a link may call.
-define(MODULES, [
    inet_rdma_dist, inet_rdma_dist_start, inet6_rdma_dist, inet_rdma_link, inet_rdma_link_event, inet_rdma_keys,
    inet_rdma_links,
    inet_rdma_offer, inet_rdma_session, inet_rdma_resume, inet_rdma_info,
    inet_rdma_settlement, inet_rdma_settlement_acceptor, inet_rdma_settlement_message, inet_rdma_settlement_policy,
    inet_rdma_settlement_way, inet_rdma_guard, inet_rdma_link_guard, inet_rdma_session_guard, inet_rdma_session_idle,
    inet_rdma_session_keys, inet_rdma_session_log, inet_rdma_session_loss, inet_rdma_session_mover,
    inet_rdma_nodeup, inet_rdma_queue, inet_rdma_tcp, inet_rdma_lookup, inet_rdma_transport, inet_rdma_tls,
    inet_rdma_tls_options,
    inet_rdma_options, inet_rdma_nif, inet_rdma
]).

suite() ->
    [{timetrap, {minutes, 3}}].

all() ->
    [
        thousand_connects_leak_nothing, death_of_the_acceptor_keeps_live_links, node_info_is_sane,
        socket_options_of_a_connection, info_counts, info_counts_of_a_stream, info_of_a_link_on_tcp,
        info_of_several_connections, purge_of_the_modules_is_harmless, reload_of_the_modules_is_harmless,
        delete_of_the_native_module_costs_links_only, library_stays_in_memory, refused_driver_is_no_library,
        library_of_another_path_leaves_links_on_tcp, reloaded_modules_resume_a_link, end_of_a_suspended_link,
        stop_after_storms
    ].

init_per_testcase(Case, Config) ->
    OnlyRdma = [
        info_counts, info_counts_of_a_stream, info_of_a_link_on_tcp, info_of_several_connections,
        purge_of_the_modules_is_harmless,
        reload_of_the_modules_is_harmless, delete_of_the_native_module_costs_links_only, refused_driver_is_no_library,
        library_of_another_path_leaves_links_on_tcp, reloaded_modules_resume_a_link, end_of_a_suspended_link
    ],
    case lists:member(Case, OnlyRdma) of
        true -> inet_rdma_test_node:only_rdma(Config);
        false -> Config
    end.

end_per_testcase(_Case, _Config) ->
    inet_rdma_test_node:stop_all().

thousand_connects_leak_nothing(_Config) ->
    [A, B] = pair(#{}),
    %% The first ones load code and let allocators and tables grow to their working size.
    cycles(A, B, 100),
    Before = [{Node, usage(Node), footprint(Node), rss(Node)} || Node <- [A, B]],
    cycles(A, B, 1000),
    [
        begin
            ok = inet_rdma_test_os:await_footprint(maps:get(os_pid, Node), Footprint),
            await_usage(Node, Usage),
            ct:pal("~p: ~p, resident memory grew by ~b KB", [name(Node), Footprint, (rss(Node) - Rss) div 1024]),
            %% One leaked connection would be more than 2 MB of it.
            ?assert(rss(Node) - Rss < 64 * ?MB)
        end
     || {Node, Usage, Footprint, Rss} <- Before
    ].

%% Each side closes in turn; the other's connect comes with a message, small or large.
cycles(A, B, Count) ->
    [
        begin
            {X, Y} = case I rem 2 of 0 -> {A, B}; 1 -> {B, A} end,
            Size = case I rem 10 of 0 -> 200000; _ -> 100 end,
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
        memory => call(Node, erlang, memory, [total])
    }.

await_usage(Node, Before) ->
    %% The runtime system keeps an entry for each connection it ever had until it sweeps them: allow 3 KB each.
    Allowed = Before#{memory := maps:get(memory, Before) + 3 * ?MB},
    inet_rdma_test_wait:until({usage_of, name(Node), Before}, 20000, fun() ->
        Now = usage(Node),
        case [Key || Key <- maps:keys(Allowed), map_get(Key, Now) > map_get(Key, Allowed)] of
            [] -> true;
            Grown -> maps:with(Grown, Now)
        end
    end).

%% net_kernel starts a new acceptor; connected nodes do not notice, other nodes can connect.
death_of_the_acceptor_keeps_live_links(_Config) ->
    [A, B] = pair(#{}),
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

node_info_is_sane(_Config) ->
    [A, B] = pair(#{}),
    Info = node_info(A, B),
    ?assertEqual(up, proplists:get_value(state, Info)),
    ?assertEqual(normal, proplists:get_value(type, Info)),
    ct:pal("address: ~p", [proplists:get_value(address, Info)]),
    [begin
        InBefore = proplists:get_value(in, node_info(Node, Peer)),
        OutBefore = proplists:get_value(out, node_info(Node, Peer)),
        %% A hundred messages each way are at least that many packets, and do not count as millions.
        ok = call(Node, inet_rdma_test_data, echo_and_compare, [name(Peer), lists:duplicate(100, 10)]),
        inet_rdma_test_wait:until({packets_counted, name(Node)}, 5000, fun() ->
            Now = node_info(Node, Peer),
            In = proplists:get_value(in, Now) - InBefore,
            Out = proplists:get_value(out, Now) - OutBefore,
            (In >= 100 andalso In < 10000 andalso Out >= 100 andalso Out < 10000) orelse {In, Out}
        end)
     end || {Node, Peer} <- [{A, B}, {B, A}]],
    {ok, Infos} = call(A, net_kernel, nodes_info, []),
    ?assertEqual([name(B)], [Node || {Node, _} <- Infos]),
    ?assertMatch({error, _}, call(A, net_kernel, node_info, ['nobody@nowhere'])).

%% Options that a carrier does not have are an error or absent, and do not disturb the connection.
socket_options_of_a_connection(_Config) ->
    [A, B] = pair(#{}),
    Watcher = inet_rdma_test_node:watch(A, B),
    Asked = [
        call(A, net_kernel, getopts, [name(B), [nodelay]]),
        call(A, net_kernel, setopts, [name(B), [{nodelay, true}]]),
        call(A, net_kernel, setopts, [new, [{nodelay, true}]]),
        call(A, net_kernel, getopts, [name(B), [no_such_option]]),
        call(A, net_kernel, setopts, [name(B), [{no_such_option, 1}]])
    ],
    ct:pal("~p", [Asked]),
    [?assert(Answer =:= ok orelse lists:member(element(1, Answer), [ok, error])) || Answer <- Asked],
    ?assertMatch({error, _}, lists:last(Asked)),
    ?assertMatch({error, _}, call(A, net_kernel, getopts, ['nobody@nowhere', [nodelay]])),
    ok = call(A, inet_rdma_test_data, echo_and_compare, [name(B), [0, 1000, ?MB]]),
    ?assertEqual([], call(A, inet_rdma_test_watch, seen, [Watcher])).

info_counts(_Config) ->
    [A, B] = pair(#{}),
    ok = call(A, inet_rdma_test_data, send_and_compare, [name(B), lists:duplicate(1000, 100)]),
    ok = call(A, inet_rdma_test_data, send_and_compare, [name(B), lists:duplicate(20, ?MB)]),
    Mine = settled_info(A, B),
    Theirs = settled_info(B, A),
    check_counts(Mine, Theirs),
    ?assertEqual({shm, shm}, {maps:get(fabric, Mine), maps:get(fabric, Theirs)}),
    %% A link uses the ring alone, and no landing buffers.
    #{direct_bytes_sent := 0, indirect_bytes_sent := Indirect, landing_count := 0} = Mine,
    ?assert(Indirect > 20 * ?MB).

%% Bulk of a stream lands as well.
info_counts_of_a_stream(_Config) ->
    [A, B] = inet_rdma_test_node:start_all(2, #{}),
    {X, Y} = inet_rdma_test_pair:ends([{a, A}, {b, B}], [{packet, 4}]),
    [
        begin
            Sending = inet_rdma_test_pair:start(X, send, [inet_rdma_test_data:make(Size)]),
            {ok, _} = inet_rdma_test_pair:do(Y, recv, [0, 20000]),
            ok = inet_rdma_test_pair:result(Sending)
        end
     || Size <- lists:duplicate(100, 100) ++ lists:duplicate(20, ?MB)
    ],
    Mine = settled_info(fun() -> inet_rdma_test_pair:do(X, info, []) end),
    Theirs = settled_info(fun() -> inet_rdma_test_pair:do(Y, info, []) end),
    check_counts(Mine, Theirs),
    #{direct_bytes_sent := Direct, indirect_bytes_sent := Indirect, landing_count := Buffers,
      landing_used := Used} = Mine,
    ?assert(Used =< Buffers),
    ?assert(Direct > 0),
    ?assert(Indirect > 0).

check_counts(Mine, Theirs) ->
    ct:pal("~p~n~p", [Mine, Theirs]),
    Keys = [
        id, node, fabric, why, state, peer, bytes_sent, bytes_received, packets_sent, packets_received,
        direct_transfers_sent, indirect_transfers_sent, direct_bytes_sent, indirect_bytes_sent,
        direct_transfers_received, indirect_transfers_received, direct_bytes_received, indirect_bytes_received,
        percent_direct_sent, percent_direct_received, phase_switches, credit_stalls, wakeups_sent,
        wakeups_received, polls, ring_size_bytes, ring_used, landing_count, landing_used, landing_state,
        landing_refusals,
        safeguard, zero_copy_packets
    ],
    ?assertEqual([], Keys -- maps:keys(Mine)),
    %% What one has sent the other has received.
    [
        ?assertEqual({Sent, map_get(Sent, Mine)}, {Sent, map_get(Received, Theirs)})
     || {Sent, Received} <- [
            {bytes_sent, bytes_received}, {direct_transfers_sent, direct_transfers_received},
            {indirect_transfers_sent, indirect_transfers_received}, {direct_bytes_sent, direct_bytes_received},
            {indirect_bytes_sent, indirect_bytes_received}, {packets_sent, packets_received}
        ]
    ],
    #{bytes_sent := Sent, direct_bytes_sent := Direct, indirect_bytes_sent := Indirect} = Mine,
    ?assertEqual(Sent, Direct + Indirect),
    ?assert(Sent > 20 * ?MB),
    ?assert(abs(maps:get(percent_direct_sent, Mine) - 100 * Direct / Sent) =< 1.0),
    ?assertEqual(0, maps:get(ring_used, Theirs)).

%% A link that stays on TCP is listed, too, with the reason and its socket's counts.
info_of_a_link_on_tcp(_Config) ->
    [A, B, C] =
        inet_rdma_test_node:start_all([{"a", #{}}, {"b", #{rdma => [{fabric, tcp}]}}, {"c", #{carrier => "inet_tcp"}}]),
    [ok = inet_rdma_test_node:connect(A, Peer) || Peer <- [B, C]],
    [ok = call(A, inet_rdma_test_data, echo_and_compare, [name(Peer), [?MB]]) || Peer <- [B, C]],
    [
        begin
            Info = call(Node, inet_rdma, info, [name(Peer)]),
            ct:pal("~p", [Info]),
            #{fabric := tcp, state := up, why := Why, node := Listed, bytes_sent := Sent, bytes_received := Received,
              packets_sent := PacketsSent, packets_received := PacketsReceived} = Info,
            ?assertEqual(name(Peer), Listed),
            ?assertNotEqual(nomatch, string:find(Why, Word)),
            ?assert(Sent > ?MB),
            ?assert(Received > ?MB),
            ?assert(PacketsSent > 10),
            ?assert(PacketsReceived > 10)
        end
     || {Node, Peer, Word} <- [{A, B, "the option fabric of the peer is tcp"}, {B, A, "fabric"},
                               {A, C, "makes no offer"}]
    ],
    [inet_rdma_test_node:kill(Peer) || Peer <- [B, C]],
    inet_rdma_test_wait:until(info_forgets, 10000, fun() -> call(A, inet_rdma, info, []) =:= [] end).

info_of_several_connections(_Config) ->
    Nodes = inet_rdma_test_node:start_all(4, #{}),
    ok = inet_rdma_test_node:mesh(Nodes),
    [await_info(Node, Nodes) || Node <- Nodes],
    [A, B | Others] = Nodes,
    inet_rdma_test_node:kill(B),
    await_info(A, [A | Others]).

%% The link that lost of two simultaneous connects is not up, but may still be listed.
await_info(Node, Nodes) ->
    Expected = lists:sort([name(Peer) || Peer <- Nodes, Peer =/= Node]),
    inet_rdma_test_wait:until({info_of, name(Node)}, 10000, fun() ->
        case lists:sort([Name || #{node := Name, state := up} <- call(Node, inet_rdma, info, [])]) of
            Expected -> true;
            Other -> Other
        end
    end).

purge_of_the_modules_is_harmless(_Config) ->
    survives(fun(A) ->
        [call(A, code, Function, [Module]) || Module <- ?MODULES, Function <- [purge, soft_purge, purge]]
    end).

%% Links do not survive the deletion of the module. The node does, and makes new ones.
delete_of_the_native_module_costs_links_only(_Config) ->
    [A, B] = pair(#{}),
    Answers = [call(A, code, Function, [inet_rdma_nif]) || Function <- [delete, purge]],
    ct:pal("~p", [Answers]),
    inet_rdma_test_wait:until(connected_again, 10000, fun() ->
        call(A, net_adm, ping, [name(B)]) =:= pong andalso call(B, net_adm, ping, [name(A)]) =:= pong
    end),
    ok = call(B, inet_rdma_test_data, echo_and_compare, [name(A), [0, 1000, ?MB]]).

%% The native functions are loaded, the driver is refused, so no link can be carried: each load returns that error.
refused_driver_is_no_library(Config) ->
    [Ebin, _] = copy_of_the_code(Config, "other"),
    Node = inet_rdma_test_node:start("a", #{name => none}),
    ok = call(Node, inet_rdma_test_remote, hold_driver, [filename:join(filename:dirname(Ebin), "priv")]),
    [?assertMatch({N, {error, {driver, _}}}, {N, call(Node, inet_rdma_nif, load, [])}) || N <- [1, 2]],
    ?assertMatch({error, {driver, _}}, call(Node, inet_rdma, listen, [0, []])).

%% A release upgrade: the native module comes with a library of another path, and the driver in use stays the old
%% library's.
library_of_another_path_leaves_links_on_tcp(Config) ->
    [First, Second] = [copy_of_the_code(Config, Version) || Version <- ["1", "2"]],
    [A, B] = [inet_rdma_test_node:start("a", #{code => First}), inet_rdma_test_node:start("b", #{})],
    ok = inet_rdma_test_node:connect(A, B),
    ok = file:delete(filename:join([filename:dirname(hd(First)), "priv", "inet_rdma_nif.so"])),
    true = call(A, code, add_patha, [hd(Second)]),
    [call(A, code, Function, [inet_rdma_nif]) || Function <- [purge, load_file]],
    [?assertMatch({N, {error, {driver, _}}}, {N, call(A, inet_rdma_nif, load, [])}) || N <- [1, 2]],
    C = inet_rdma_test_node:start("c"),
    [
        begin
            ok = inet_rdma_test_link:connect(X, Y),
            ok = inet_rdma_test_link:await(C, A, tcp),
            ok = call(X, inet_rdma_test_data, echo_and_compare, [name(Y), [0, 1000, ?MB]]),
            ok = inet_rdma_test_link:disconnect(A, C)
        end
     || {X, Y} <- [{A, C}, {C, A}]
    ],
    %% The link that is up goes on.
    ok = call(B, inet_rdma_test_data, echo_and_compare, [name(A), [0, 1000, ?MB]]).

copy_of_the_code(Config, Name) ->
    inet_rdma_test_node:copy_code(filename:join([proplists:get_value(priv_dir, Config), "code", Name])).

%% Twice: the second purge ends whatever still runs in the first code.
reload_of_the_modules_is_harmless(_Config) ->
    survives(fun(A) ->
        [call(A, code, Function, [Module]) || _ <- [1, 2], Module <- ?MODULES, Function <- [purge, load_file]] ++
            [call(A, code, purge, [Module]) || Module <- ?MODULES]
    end).

%% A link whose TCP connection is lost after its modules were loaded anew, or just before that, goes on.
reloaded_modules_resume_a_link(_Config) ->
    [
        begin
            [A, B] = pair(#{rdma => [{fabric, Fabric}]}),
            Watchers = [{A, inet_rdma_test_node:watch(A, B)}, {B, inet_rdma_test_node:watch(B, A)}],
            Traffic = inet_rdma_test_traffic:start_small(A, B),
            [
                begin
                    Before = [resumes(X, Y) || {X, Y} <- [{A, B}, {B, A}]],
                    [Step() || Step <- Steps],
                    inet_rdma_test_wait:until({resumed, Fabric}, 20000, fun() ->
                        Now = [resumes(X, Y) || {X, Y} <- [{A, B}, {B, A}]],
                        lists:all(fun({Old, New}) -> New > Old end, lists:zip(Before, Now))
                    end)
                end
             || Node <- [A, B],
                Reload <- [fun() -> ok = call(Node, inet_rdma_test_remote, reload, [?MODULES]) end],
                Lose <- [fun() -> ok = call(Node, inet_rdma_test_remote, end_part, [socket]) end],
                Steps <- [[Reload, Lose], [Lose, Reload]]
            ],
            Figures = inet_rdma_test_traffic:stop(Traffic),
            ?assertEqual(#{}, inet_rdma_test_traffic:disturbances(Figures)),
            [?assertEqual([], call(Node, inet_rdma_test_watch, seen, [Watcher])) || {Node, Watcher} <- Watchers],
            inet_rdma_test_node:stop_all()
        end
     || Fabric <- [shm, tcp]
    ].

resumes(Node, Peer) ->
    #{resumes := Resumes} = call(Node, inet_rdma, info, [name(Peer)]),
    Resumes.

%% A link ends while it has no connection and bytes wait for one, by disconnect_node or with the node: nothing of it
%% stays.
end_of_a_suspended_link(Config) ->
    Options = inet_rdma_test_node:alone(#{rdma => [{fabric, tcp}, {survive_ms, 600000}], args => []}),
    #{a := A, b := B, relay := Relay} =
        inet_rdma_test_detour:start(proplists:get_value(priv_dir, Config), Options, Options),
    Suspend = fun() ->
        ok = inet_rdma_test_node:connect(A, B),
        ok = inet_rdma_test_relay:hold(Relay),
        [
            begin
                inet_rdma_test_wait:until(lost, 10000, fun() -> not call(X, inet_rdma_test_remote, has_tcp, []) end),
                ok = call(X, erlang, send, [{nobody, name(Y)}, rand:bytes(100000), [noconnect]])
            end
         || {X, Y} <- [{A, B}, {B, A}]
        ]
    end,
    Suspend(),
    [true = call(X, erlang, disconnect_node, [name(Y)]) || {X, Y} <- [{A, B}, {B, A}]],
    no_unlinked_ports([A, B]),
    ok = inet_rdma_test_relay:pass(Relay),
    Suspend(),
    [stops(Node) || Node <- [A, B]].

%% Four nodes under traffic whose links are ended and made in every way, one of them stopped, another one killed: each
%% node ends when it is told to, also while a peer does not run, and no port of an ended link stays on those that live
%% on.
stop_after_storms(_Config) ->
    Options = inet_rdma_test_node:alone(#{args => ["-kernel", "net_ticktime", "60"]}),
    [A, B, C, D] = Nodes = inet_rdma_test_node:start_all(4, Options),
    Pairs = [{X, Y} || X <- Nodes, Y <- Nodes, name(X) < name(Y)],
    [ok = inet_rdma_test_link:connect(X, Y) || {X, Y} <- Pairs],
    [
        begin
            _ = call(X, inet_rdma_certify_calls, start, [name(Y), 3]),
            _ = call(X, inet_rdma_certify_numbers, start, [name(Y), #{bytes => {1, 50000}, burst => 50, pause_ms => 1}])
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
    no_unlinked_ports([A, B, C]),
    stops(A),
    no_unlinked_ports([B, C]),
    inet_rdma_test_node:suspend(C),
    stops(B),
    inet_rdma_test_node:resume(C),
    no_unlinked_ports([C]),
    stops(C).

%% All links end, and both nodes of each connect at once.
collide_all(Nodes, Pairs) ->
    [_ = call(X, erlang, disconnect_node, [name(Y)]) || {X, Y} <- Pairs],
    AtMicros = os:system_time(microsecond) + 20000,
    Callers = [spawn_monitor(fun() -> call(X, inet_rdma_test_remote, connect_at, [name(Y), AtMicros]) end)
               || X <- Nodes, Y <- Nodes, X =/= Y],
    [receive {'DOWN', Ref, process, Caller, Reason} -> ?assertEqual(normal, Reason) end || {Caller, Ref} <- Callers].

no_unlinked_ports(Nodes) ->
    [
        inet_rdma_test_wait:until({unlinked_ports, name(Node)}, 10000, fun() ->
            case inet_rdma_test_node:is_rdma() andalso call(Node, inet_rdma_test_remote, unlinked_ports, []) of
                None when None =:= []; None =:= false -> true;
                Ports -> Ports
            end
        end)
     || Node <- Nodes
    ].

stops(Node) ->
    StartMs = erlang:monotonic_time(millisecond),
    ok = peer:cast(maps:get(peer, Node), init, stop, []),
    ok = inet_rdma_test_node:await_exit(Node, 20000),
    ct:pal("~p has ended after ~b ms", [name(Node), erlang:monotonic_time(millisecond) - StartMs]).

%% The connection lives through it, and new ones can be made after it.
survives(Tamper) ->
    [A, B] = pair(#{}),
    Watchers = [{A, inet_rdma_test_node:watch(A, B)}, {B, inet_rdma_test_node:watch(B, A)}],
    Pump = call(A, inet_rdma_test_pump, start, [name(B), 100000, 4]),
    Answers = Tamper(A),
    ct:pal("~p", [Answers]),
    ok = call(B, inet_rdma_test_data, echo_and_compare, [name(A), [0, 1000, ?MB]]),
    Arrived = call(A, inet_rdma_test_pump, stop, [Pump]),
    ?assert(Arrived > 0),
    [?assertEqual([], call(Node, inet_rdma_test_watch, seen, [Watcher])) || {Node, Watcher} <- Watchers],
    C = inet_rdma_test_node:start("c"),
    ok = inet_rdma_test_node:connect(C, A),
    ok = inet_rdma_test_node:connect(A, C).

node_info(Node, Peer) ->
    {ok, Info} = call(Node, net_kernel, node_info, [name(Peer)]),
    Info.

%% The counters, once two looks show the same.
settled_info(Node, Peer) ->
    settled_info(fun() ->
        [Info] = [I || #{node := N} = I <- call(Node, inet_rdma, info, []), N =:= name(Peer)],
        Info
    end).

settled_info(Info) ->
    Look = fun() -> maps:without([polls, up_ms], Info()) end,
    inet_rdma_test_wait:until(counters_settle, 10000, fun() ->
        First = Look(),
        ok = inet_rdma_test_wait:holds(pause, 100, fun() -> true end),
        case Look() of
            First -> {ok, First#{polls => 0}};
            Other -> Other
        end
    end).

footprint(#{os_pid := OsPid}) -> inet_rdma_test_os:footprint(OsPid).

rss(#{os_pid := OsPid}) -> inet_rdma_test_os:rss_bytes(OsPid).

pair(Options) ->
    [A, B] = inet_rdma_test_node:start_all(2, Options),
    ok = inet_rdma_test_node:connect(A, B),
    [A, B].

%% Its threads run on whatever the VM unloads, so the linker has marked it: never unmap.
library_stays_in_memory(_Config) ->
    case os:find_executable("readelf") of
        false ->
            {skip, "readelf (package binutils) is not installed"};
        _ ->
            Header = os:cmd("readelf -d " ++ filename:join(code:priv_dir(inet_rdma), "inet_rdma_nif.so")),
            ?assertNotEqual(nomatch, string:find(Header, "NODELETE"))
    end.

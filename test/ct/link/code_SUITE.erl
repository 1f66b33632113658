%% Modules are loaded again, purged and deleted, and the native library is changed, while links are
%% up.
-module(code_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_node, [call/4, call/5, name/1]).

-export([all/0, suite/0, init_per_testcase/2]).
-export([all_modules_are_loaded_once_a_link_lasts/1, links_need_no_file_soon_after_the_start/1]).
-export([modules_of_otp_are_loaded_meanwhile/1, start_loads_what_it_calls_at_once/1]).
-export([links_at_rest_load_no_other_module/1]).
-export([half_a_package_is_named/1]).
-export([purge_of_the_modules_is_harmless/1, reload_of_the_modules_is_harmless/1]).
-export([
    guards_of_another_version_resume_a_link/1,
    watches_live_through_a_reload/1,
    crash_of_a_guard_shows_no_key/1
]).
-export([reloaded_modules_resume_a_link/1, calls_while_the_module_is_loaded_anew/1]).
-export([delete_of_the_native_module_costs_links_only/1]).
-export([refused_driver_is_no_library/1, library_of_another_path_leaves_links_on_tcp/1]).
-export([library_of_another_version_leaves_links_on_tcp/1, library_that_is_cut_off_is_named/1]).
-export([library_stays_in_memory/1]).

-define(MB, 1048576).

%% All modules are loaded twice, which a busy machine does for minutes.
-define(RELOAD_MS, 300000).

suite() ->
    [{timetrap, {minutes, 10}}, {ct_hooks, [inet_rdma_test_nodes]}].

all() ->
    [
        start_loads_what_it_calls_at_once,
        links_at_rest_load_no_other_module,
        all_modules_are_loaded_once_a_link_lasts,
        links_need_no_file_soon_after_the_start,
        modules_of_otp_are_loaded_meanwhile,
        half_a_package_is_named,
        purge_of_the_modules_is_harmless,
        reload_of_the_modules_is_harmless,
        reloaded_modules_resume_a_link,
        guards_of_another_version_resume_a_link,
        watches_live_through_a_reload,
        crash_of_a_guard_shows_no_key,
        calls_while_the_module_is_loaded_anew,
        delete_of_the_native_module_costs_links_only,
        refused_driver_is_no_library,
        library_of_another_path_leaves_links_on_tcp,
        library_of_another_version_leaves_links_on_tcp,
        library_that_is_cut_off_is_named,
        library_stays_in_memory
    ].

init_per_testcase(_Case, Config) ->
    inet_rdma_test_node:only_rdma(Config).

%% inet_rdma_modules:own/0 is written by hand: a start loads no other module by a call.
start_loads_what_it_calls_at_once(_Config) ->
    Print =
        "io:format(\"loaded ~0p.~n\", "
        "[[M || {M, _} <- code:all_loaded(), \"inet_rdma\" ++ _ <- [atom_to_list(M)]]])",
    [AtOnce, ByStart] = [
        begin
            {0, Output} = inet_rdma_test_node:run("a", Options, Before ++ Print),
            {match, [Loaded]} = re:run(Output, "loaded (.*)", [{capture, all_but_first, list}]),
            {ok, Tokens, _} = erl_scan:string(Loaded),
            {ok, Modules} = erl_parse:parse_term(Tokens),
            lists:sort(Modules)
        end
     || {Options, Before} <- [{#{name => none}, "inet_rdma_modules:load_start(), "}, {#{}, ""}]
    ],
    ?assertEqual(AtOnce, ByStart).

%% Nor does a link that comes up and is at rest: what it calls is loaded at once, too.
links_at_rest_load_no_other_module(_Config) ->
    [A, B] = inet_rdma_test_node:start_all(2, #{rdma => [{move, earned}]}),
    ok = inet_rdma_test_node:connect(A, B),
    Modules = fun(Node) -> [M || M <- modules(), call(Node, erlang, module_loaded, [M])] end,
    First = [Modules(Node) || Node <- [A, B]],
    inet_rdma_test_wait:until(lasts, 20000, fun() ->
        lists:all(fun(Node) -> call(Node, ets, member, [inet_rdma_modules, is_due]) end, [A, B])
    end),
    ?assertEqual(First, [Modules(Node) || Node <- [A, B]]),
    ?assertNot(lists:member(inet_rdma_dialer, lists:append(First))).

%% So a link, its loss and its recovery load none, whose file may be gone by then or of another
%% version. The modules of Elixir, which no link calls, are loaded when they are called.
all_modules_are_loaded_once_a_link_lasts(_Config) ->
    [A, B] = inet_rdma_test_node:start_all(2, #{}),
    ?assertNot(call(A, erlang, module_loaded, [inet_rdma_dialer])),
    ok = inet_rdma_test_node:connect(A, B),
    Wanted = [Module || Module <- modules(), not is_of_elixir(Module)],
    inet_rdma_test_wait:until(loaded, 40000, fun() ->
        case [Module || Module <- modules(), call(A, erlang, module_loaded, [Module])] of
            Wanted -> true;
            Loaded -> Wanted -- Loaded
        end
    end).

%% Nor does a link that comes up, moves or is lost before. The package is removed two seconds after
%% the start.
links_need_no_file_soon_after_the_start(Config) ->
    _ = [
        begin
            Options = inet_rdma_test_node:alone(#{rdma => Rdma, args => []}),
            [Ebin, _] = Code = copy_of_the_code(Config, "gone" ++ integer_to_list(N)),
            A = inet_rdma_test_node:start("a", Options#{code => Code}),
            B = inet_rdma_test_node:start("b", Options),
            true = await_held(A),
            ok = file:del_dir_r(Ebin),
            {X, Y} =
                case Connects of
                    a -> {A, B};
                    b -> {B, A}
                end,
            ok = inet_rdma_test_link:connect(X, Y),
            inet_rdma_test_wait:until({fabric, Fabric}, 10000, fun() ->
                ok = call(B, inet_rdma_test_data, echo_and_compare, [name(A), [0, 1000, ?MB]]),
                inet_rdma_test_link:fabric(B, A) =:= Fabric
            end),
            Watcher = inet_rdma_test_node:watch(B, A),
            _ = [
                begin
                    Before = resumes(B, A),
                    ok = call(Node, inet_rdma_test_remote, end_part, [socket]),
                    inet_rdma_test_wait:until({resumed, name(Node)}, 20000, fun() ->
                        resumes(B, A) > Before
                    end),
                    ok = call(B, inet_rdma_test_data, echo_and_compare, [name(A), [0, 1000, ?MB]])
                end
             || Node <- [A, B, A]
            ],
            ?assertEqual([], call(B, inet_rdma_test_watch, seen, [Watcher])),
            ok = call(A, inet_rdma_test_log, install, []),
            true = call(A, erlang, disconnect_node, [name(B)]),
            inet_rdma_test_wait:until(no_guard, 10000, fun() ->
                Guards = call(A, supervisor, which_children, [inet_rdma_guards]),
                Guards =:= [] orelse {Guards, call(A, erlang, nodes, [])}
            end),
            ?assertNot(call(A, inet_rdma_test_log, contains, ["undef"])),
            inet_rdma_test_node:stop_all()
        end
     || {N, {Rdma, Fabric}} <- lists:enumerate([
            {[{fabric, tcp}, {move, never}], tcp},
            {[{fabric, shm}, {move, eager}], shm},
            {[{fabric, shm}, {move, earned}], shm},
            {[{fabric, shm}, {required, true}], shm}
        ]),
        Connects <- [a, b]
    ],
    ok.

%% The code server logs an error when a module of OTP that is loaded is loaded once more from
%% memory.
modules_of_otp_are_loaded_meanwhile(_Config) ->
    A = inet_rdma_test_node:start("a", #{}),
    ok = call(A, inet_rdma_test_log, install, []),
    true = await_held(A),
    [_ | _] = Modules = call(A, inet_rdma_test_remote, load_beside, []),
    ?assert(
        lists:all(fun(Module) -> call(A, erlang, module_loaded, [Module]) end, [
            inet_rdma_dialer | Modules
        ])
    ),
    ?assertNot(call(A, inet_rdma_test_log, contains, ["load module"])).

await_held(Node) ->
    inet_rdma_test_wait:until({held, Node}, 20000, fun() ->
        call(Node, ets, member, [inet_rdma_modules, all])
    end).

is_of_elixir(Module) -> lists:prefix("Elixir.", atom_to_list(Module)).

%% A file that is about to be written, for example: a node does not start without what the start
%% calls, and names what it will lack later.
half_a_package_is_named(Config) ->
    [Ebin, _] = Code = copy_of_the_code(Config, "part"),
    ok = file:write_file(filename:join(Ebin, "inet_rdma_resume.beam"), <<>>),
    {0, Output} = inet_rdma_test_node:run("a", #{code => Code}, "inet_rdma_modules:load_all()"),
    ?assertMatch({match, _}, re:run(Output, "module inet_rdma_resume cannot be loaded: badfile")),
    ok = file:write_file(filename:join(Ebin, "inet_rdma_acceptor.beam"), <<>>),
    {Status, Refused} = inet_rdma_test_node:run("a", #{code => Code}, "true"),
    ?assertNotEqual(0, Status),
    ?assertMatch({match, _}, re:run(Refused, "module inet_rdma_acceptor: badfile")).

purge_of_the_modules_is_harmless(_Config) ->
    survives(fun(A) ->
        [
            call(A, code, Function, [Module])
         || Module <- modules(), Function <- [purge, soft_purge, purge]
        ]
    end).

%% Twice: the second purge ends whatever still runs in the first code.
reload_of_the_modules_is_harmless(_Config) ->
    survives(fun(A) ->
        [
            call(A, code, Function, [Module])
         || _ <- [1, 2], Module <- modules(), Function <- [purge, load_file]
        ] ++
            [call(A, code, purge, [Module]) || Module <- modules()]
    end).

%% The connection lives through it, and new ones can be made after it.
survives(Tamper) ->
    [A, B] = inet_rdma_test_node:connected_pair(#{}),
    Watchers = [{A, inet_rdma_test_node:watch(A, B)}, {B, inet_rdma_test_node:watch(B, A)}],
    Pump = call(A, inet_rdma_test_pump, start, [name(B), 100000, 4]),
    Answers = Tamper(A),
    ct:pal("~p", [Answers]),
    ok = call(B, inet_rdma_test_data, echo_and_compare, [name(A), [0, 1000, ?MB]]),
    Arrived = call(A, inet_rdma_test_pump, stop, [Pump]),
    ?assert(Arrived > 0),
    [
        ?assertEqual([], call(Node, inet_rdma_test_watch, seen, [Watcher]))
     || {Node, Watcher} <- Watchers
    ],
    C = inet_rdma_test_node:start("c"),
    ok = inet_rdma_test_node:connect(C, A),
    ok = inet_rdma_test_node:connect(A, C).

%% A link whose TCP connection is lost after its modules were loaded again, or just before that,
%% goes on.
reloaded_modules_resume_a_link(_Config) ->
    [
        begin
            [A, B] = inet_rdma_test_node:connected_pair(#{rdma => [{fabric, Fabric}]}),
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
                Reload <- [
                    fun() ->
                        ok = call(Node, inet_rdma_test_remote, reload, [modules()], ?RELOAD_MS)
                    end
                ],
                Lose <- [fun() -> ok = call(Node, inet_rdma_test_remote, end_part, [socket]) end],
                Steps <- [[Reload, Lose], [Lose, Reload]]
            ],
            Figures = inet_rdma_test_traffic:stop(Traffic),
            ?assertEqual(#{}, inet_rdma_test_traffic:disturbances(Figures)),
            [
                ?assertEqual([], call(Node, inet_rdma_test_watch, seen, [Watcher]))
             || {Node, Watcher} <- Watchers
            ],
            inet_rdma_test_node:stop_all()
        end
     || Fabric <- [shm, tcp]
    ].

%% An upgrade brings modules whose data has other fields to guards that live.
guards_of_another_version_resume_a_link(_Config) ->
    [A, B] = inet_rdma_test_node:connected_pair(#{}),
    Watchers = [{A, inet_rdma_test_node:watch(A, B)}, {B, inet_rdma_test_node:watch(B, A)}],
    Traffic = inet_rdma_test_traffic:start_small(A, B),
    [
        ok = call(Node, inet_rdma_test_remote, reload_otherwise, [modules()], ?RELOAD_MS)
     || Node <- [A, B]
    ],
    Before = [resumes(X, Y) || {X, Y} <- [{A, B}, {B, A}]],
    ok = call(A, inet_rdma_test_remote, end_part, [socket]),
    inet_rdma_test_wait:until(resumed, 20000, fun() ->
        Now = [resumes(X, Y) || {X, Y} <- [{A, B}, {B, A}]],
        lists:all(fun({Old, New}) -> New > Old end, lists:zip(Before, Now))
    end),
    ?assertEqual(#{}, inet_rdma_test_traffic:disturbances(inet_rdma_test_traffic:stop(Traffic))),
    [
        ?assertEqual([], call(Node, inet_rdma_test_watch, seen, [Watcher]))
     || {Node, Watcher} <- Watchers
    ].

%% A release handler purges softly, and gives the upgrade up if a process runs a module before.
watches_live_through_a_reload(_Config) ->
    A = inet_rdma_test_node:start("a"),
    [
        ?assertEqual(
            {Module, {true, true}},
            {Module, call(A, inet_rdma_test_remote, reload_and_purge_softly, [Module])}
        )
     || Module <- [inet_rdma_node_watch, inet_rdma_keeper]
    ].

%% The reports of the crash have neither the guard's data nor what it was told.
crash_of_a_guard_shows_no_key(_Config) ->
    [A, _B] = inet_rdma_test_node:connected_pair(#{}),
    ok = call(A, inet_rdma_test_log, install, []),
    ok = call(A, inet_rdma_test_remote, crash_guard, [<<"bytes of a key">>]),
    ok = inet_rdma_test_log:await(A, ["inet_rdma_session_guard", "crash"]),
    ?assertNot(call(A, inet_rdma_test_log, contains, ["bytes of a key"])),
    %% Not on the terminal, where errors are failures.
    ct:log("~ts", [lists:join("\n", call(A, inet_rdma_test_log, lines, []))]).

resumes(Node, Peer) ->
    #{resumes := Resumes} = call(Node, inet_rdma, info, [name(Peer)]),
    Resumes.

%% A process calls native functions all the time while their module is loaded again and again.
calls_while_the_module_is_loaded_anew(_Config) ->
    A = inet_rdma_test_node:start("a"),
    {Calls, Loads} = call(A, inet_rdma_test_remote, call_and_load, [2000, 10]),
    ct:pal("~b calls, ~b loads", [Calls, Loads]),
    ?assert(Calls >= 10),
    ?assert(Loads >= 10).

%% Links do not survive the deletion of the module. The node does, and makes new ones.
delete_of_the_native_module_costs_links_only(_Config) ->
    [A, B] = inet_rdma_test_node:connected_pair(#{}),
    Answers = [call(A, code, Function, [inet_rdma_nif]) || Function <- [delete, purge]],
    ct:pal("~p", [Answers]),
    inet_rdma_test_wait:until(connected_again, 10000, fun() ->
        call(A, net_adm, ping, [name(B)]) =:= pong andalso
            call(B, net_adm, ping, [name(A)]) =:= pong
    end),
    ok = call(B, inet_rdma_test_data, echo_and_compare, [name(A), [0, 1000, ?MB]]).

%% The native functions are loaded, the driver is refused, so no link can be carried: each load
%% returns that error.
refused_driver_is_no_library(Config) ->
    [Ebin, _] = copy_of_the_code(Config, "other"),
    Node = inet_rdma_test_node:start("a", #{name => none}),
    ok = call(Node, inet_rdma_test_remote, hold_driver, [
        filename:join(filename:dirname(Ebin), "priv")
    ]),
    [
        ?assertMatch({N, {error, {driver, _}}}, {N, call(Node, inet_rdma_nif, load, [])})
     || N <- [1, 2]
    ],
    ?assertMatch({error, {driver, _}}, call(Node, inet_rdma, listen, [0, []])).

%% A release upgrade: the native module comes with a library of another path, and the driver in use
%% stays the old library's.
library_of_another_path_leaves_links_on_tcp(Config) ->
    [First, Second] = [copy_of_the_code(Config, Version) || Version <- ["1", "2"]],
    [A, B] = [
        inet_rdma_test_node:start("a", #{code => First}), inet_rdma_test_node:start("b", #{})
    ],
    ok = inet_rdma_test_node:connect(A, B),
    ok = file:delete(filename:join([filename:dirname(hd(First)), "priv", "inet_rdma_nif.so"])),
    true = call(A, code, add_patha, [hd(Second)]),
    [call(A, code, Function, [inet_rdma_nif]) || Function <- [purge, load_file]],
    [?assertMatch({N, {error, {driver, _}}}, {N, call(A, inet_rdma_nif, load, [])}) || N <- [1, 2]],
    C = inet_rdma_test_node:start("c"),
    ok = links_stay_on_tcp(A, C),
    %% The link that is up goes on.
    ok = call(B, inet_rdma_test_data, echo_and_compare, [name(A), [0, 1000, ?MB]]).

%% A library of another commit has another function, command, notice, number or option. The node
%% goes on as without a library, and says so once, with what to do.
library_of_another_version_leaves_links_on_tcp(Config) ->
    B = inet_rdma_test_node:start("b"),
    [
        begin
            [Ebin, _] = Code = copy_of_the_code(Config, binary_to_list(Other)),
            change_library(Ebin, fun(Whole) -> binary:replace(Whole, Own, Other, [global]) end),
            {0, Output} = inet_rdma_test_node:run("w", #{code => Code}, "ok"),
            ct:log("~ts", [Output]),
            %% The VM prints an event of its boot twice.
            ["inet_rdma: all links stay on TCP: " ++ Why] =
                lists:usort([Line || "inet_rdma" ++ _ = Line <- string:lexemes(Output, "\r\n")]),
            ?assertNotEqual(nomatch, string:find(Why, "are of two versions: build both")),
            A = inet_rdma_test_node:start("a", #{code => Code}),
            ?assertMatch({error, {other_version, _}}, call(A, inet_rdma_nif, load, [])),
            ok = call(A, inet_rdma_test_log, install, []),
            ok = links_stay_on_tcp(A, B),
            %% OTP's global warns of messages that come late.
            ?assertEqual([], [
                Line
             || Line <- call(A, inet_rdma_test_log, lines, []),
                Level <- ["error", "warning"],
                lists:prefix(Level, Line),
                string:find(Line, "global_name_server") =:= nomatch
            ]),
            %% The next one would meet it.
            ok = inet_rdma_test_node:stop(A)
        end
     || {Own, Other} <- [
            {<<"flight_recent">>, <<"flight_recenu">>},
            {<<"questions">>, <<"questiont">>},
            {<<"stall_ended">>, <<"stall_endee">>},
            {<<"largest_packet_sent">>, <<"largest_packet_senu">>},
            {<<"pinned_max_bytes">>, <<"pinned_max_byteu">>}
        ]
    ].

%% Either node connects: the link stays on TCP, and carries bytes.
links_stay_on_tcp(Node, Peer) ->
    [
        begin
            ok = inet_rdma_test_link:connect(X, Y),
            ok = inet_rdma_test_link:await(Peer, Node, tcp),
            ok = call(X, inet_rdma_test_data, echo_and_compare, [name(Y), [0, 1000, ?MB]]),
            ok = inet_rdma_test_link:disconnect(Node, Peer)
        end
     || {X, Y} <- [{Node, Peer}, {Peer, Node}]
    ],
    ok.

%% The VM would end by SIGBUS where it reads what is missing.
library_that_is_cut_off_is_named(Config) ->
    [
        begin
            [Ebin, _] = Code = copy_of_the_code(Config, "cut_" ++ integer_to_list(Percent)),
            change_library(Ebin, fun(Whole) ->
                binary:part(Whole, 0, (byte_size(Whole) - 1) * Percent div 100)
            end),
            {0, Output} = inet_rdma_test_node:run("w", #{code => Code}, "ok"),
            ct:log("~ts", [Output]),
            ?assertNotEqual(nomatch, string:find(Output, "all links stay on TCP")),
            ?assertNotEqual(nomatch, string:find(Output, "inet_rdma_nif.so is cut off after"))
        end
     || Percent <- [0, 1, 30, 60, 90, 100]
    ].

change_library(Ebin, Change) ->
    File = filename:join([filename:dirname(Ebin), "priv", "inet_rdma_nif.so"]),
    {ok, Whole} = file:read_file(File),
    Changed = Change(Whole),
    ?assertNotEqual(Whole, Changed),
    ok = file:write_file(File, Changed).

copy_of_the_code(Config, Name) ->
    inet_rdma_test_node:copy_code(
        filename:join([proplists:get_value(priv_dir, Config), "code", Name])
    ).

%% Its threads run on whatever the VM unloads, so the linker has marked it: never unmap.
library_stays_in_memory(_Config) ->
    case os:find_executable("readelf") of
        false ->
            {skip, "readelf (package binutils) is not installed"};
        _ ->
            Header = os:cmd(
                "readelf -d " ++ filename:join(code:priv_dir(inet_rdma), "inet_rdma_nif.so")
            ),
            ?assertNotEqual(nomatch, string:find(Header, "NODELETE"))
    end.

%% The modules of the application, as an upgrade of a release loads them.
modules() ->
    _ = application:load(inet_rdma),
    {ok, Modules} = application:get_key(inet_rdma, modules),
    Modules.

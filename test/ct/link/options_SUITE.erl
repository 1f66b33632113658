%% Every option: good values work from end to end, a bad one is an error at the start that names key
%% and value.
-module(options_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_node, [call/4, name/1]).

-export([all/0, groups/0, suite/0, init_per_group/2, end_per_group/2]).
-export([good_values_work/1, bad_values_are_named/1]).
-export([
    unknown_key_is_named/1,
    former_key_names_the_present_one/1,
    key_without_a_value/1,
    several_flags_add_up/1
]).
-export([environment_of_the_application/1, command_line_wins/1, bad_environment_is_named/1]).
-export([values_that_do_not_fit_are_named/1]).
-export([
    congestion_control_of_each_connection/1,
    refused_congestion_control_says_what_the_kernel_has/1
]).
-export([wrong_later_leaves_links_up/1, tick_time_of_connections_that_stand_by/1]).
-export([
    terms_on_the_command_line/1,
    wrong_when_the_distribution_started/1,
    tick_time_of_the_distribution/1
]).
-export([
    flags_of_other_carriers_are_left_alone/1,
    flags_that_make_prints_work/1,
    carrier_given_twice_is_named/1
]).
-export([fabric_that_is_not_there/1]).
-export([
    required_fabric_that_is_not_there/1,
    application_that_cannot_be_loaded/1,
    application_that_is_not_loaded_in_time/1
]).

suite() ->
    [{timetrap, {minutes, 2}}, {ct_hooks, [{inet_rdma_test_nodes, [only_rdma]}]}].

all() ->
    Singles = [
        unknown_key_is_named,
        former_key_names_the_present_one,
        key_without_a_value,
        several_flags_add_up,
        environment_of_the_application,
        command_line_wins,
        values_that_do_not_fit_are_named,
        bad_environment_is_named,
        congestion_control_of_each_connection,
        refused_congestion_control_says_what_the_kernel_has,
        flags_of_other_carriers_are_left_alone,
        flags_that_make_prints_work,
        carrier_given_twice_is_named,
        fabric_that_is_not_there,
        required_fabric_that_is_not_there,
        application_that_cannot_be_loaded,
        application_that_is_not_loaded_in_time,
        terms_on_the_command_line,
        wrong_when_the_distribution_started,
        tick_time_of_the_distribution,
        wrong_later_leaves_links_up,
        tick_time_of_connections_that_stand_by
    ],
    Singles ++ [{group, Key} || Key <- inet_rdma_test_options:keys()].

%% A group for each option, named like it.
groups() ->
    [{Key, [], [good_values_work, bad_values_are_named]} || Key <- inet_rdma_test_options:keys()].

init_per_group(Key, Config) ->
    [{key, Key} | Config].

end_per_group(_Key, _Config) ->
    ok.

good_values_work(Config) ->
    Key = proplists:get_value(key, Config),
    Values = inet_rdma_test_options:good(Key),
    Nodes = inet_rdma_test_node:start_all([{"n", #{rdma => [{Key, Value}]}} || Value <- Values]),
    ok = inet_rdma_test_node:mesh(Nodes),
    [
        ok = call(A, inet_rdma_test_data, echo_and_compare, [name(B), [0, 1, 1000, 70000, 500000]])
     || A <- Nodes, B <- Nodes, A =/= B
    ],
    %% The node has what was asked for.
    [
        ?assertMatch({ok, #{Key := Value}}, call(Node, inet_rdma_options, node, []))
     || {Node, Value} <- lists:zip(Nodes, Values)
    ].

bad_values_are_named(Config) ->
    Key = proplists:get_value(key, Config),
    [
        refused_with(["-inet_rdma", atom_to_list(Key), Value], [atom_to_list(Key), Value])
     || Value <- inet_rdma_test_options:bad(Key)
    ].

unknown_key_is_named(_Config) ->
    refused_with(["-inet_rdma", "ring_byte", "8192"], ["ring_byte", "unknown"]).

former_key_names_the_present_one(Config) ->
    Named = ["dead_after_ms", "called suspect_after_ms"],
    refused_with(["-inet_rdma", "dead_after_ms", "2000"], Named),
    refused_with(["-config", sys_config(Config, [{dead_after_ms, 2000}])], Named).

key_without_a_value(_Config) ->
    refused_with(["-inet_rdma", "ring_bytes"], ["ring_bytes"]).

several_flags_add_up(_Config) ->
    Args = ["-inet_rdma", "ring_bytes", "8192", "polling", "event", "-inet_rdma", "backlog", "9"],
    [A, B] = inet_rdma_test_node:start_all([{"a", #{args => Args}}, {"b", #{}}]),
    ok = inet_rdma_test_node:connect(A, B),
    ?assertMatch(
        {ok, #{ring_bytes := 8192, polling := event, backlog := 9}},
        call(A, inet_rdma_options, node, [])
    ).

environment_of_the_application(Config) ->
    Args = ["-config", sys_config(Config, [{ring_bytes, 8192}, {polling, busy}])],
    [A, B] = inet_rdma_test_node:start_all([{"a", #{args => Args}}, {"b", #{}}]),
    ok = inet_rdma_test_node:connect(A, B),
    ?assertMatch(
        {ok, #{ring_bytes := 8192, polling := busy}}, call(A, inet_rdma_options, node, [])
    ).

command_line_wins(Config) ->
    Args = [
        "-config",
        sys_config(Config, [{ring_bytes, 8192}, {backlog, 7}]),
        "-inet_rdma",
        "ring_bytes",
        "16384"
    ],
    Node = inet_rdma_test_node:start("a", #{args => Args}),
    ?assertMatch(
        {ok, #{ring_bytes := 16384, backlog := 7}}, call(Node, inet_rdma_options, node, [])
    ).

%% The values that are left at the end must fit together, not each one on the way.
values_that_do_not_fit_are_named(Config) ->
    refused_with(["-inet_rdma", "mode", "direct_only", "landing_buffers", "0"], [
        "landing_buffers", "direct_only"
    ]),
    Environment = sys_config(Config, [{mode, direct_only}, {landing_buffers, 0}]),
    Node = inet_rdma_test_node:start("a", #{
        args => ["-config", Environment, "-inet_rdma", "landing_buffers", "16"]
    }),
    ?assertMatch(
        {ok, #{mode := direct_only, landing_buffers := 16}}, call(Node, inet_rdma_options, node, [])
    ).

bad_environment_is_named(Config) ->
    refused_with(["-config", sys_config(Config, [{ring_bytes, small}])], ["ring_bytes", "small"]),
    refused_with(["-config", sys_config(Config, [{no_such_thing, 1}])], ["no_such_thing"]).

%% Also of the connections that follow a loss, whichever side makes them, and of a link to a node of
%% inet_tcp. A node without the option has the kernel's default.
congestion_control_of_each_connection(_Config) ->
    Default = kernel_has("tcp_congestion_control"),
    case kernel_has("tcp_allowed_congestion_control") -- Default of
        [] -> {skip, "the kernel gives processes its default congestion control alone"};
        [Other | _] -> congestion_control_of_each_connection(Other, hd(Default))
    end.

congestion_control_of_each_connection(Other, Default) ->
    [A, B, Tcp] = inet_rdma_test_node:start_all(
        [
            {"a", #{rdma => [{congestion, list_to_binary(Other)}, {fabric, tcp}]}},
            {"b", #{rdma => [{fabric, tcp}]}},
            {"t", #{carrier => "inet_tcp"}}
        ]
    ),
    pong = call(A, net_adm, ping, [name(B)]),
    ?assertEqual({Other, Default}, {congestion_in_force(A, B), congestion_in_force(B, A)}),
    [
        begin
            #{resumes := Before} = call(A, inet_rdma, info, [name(B)]),
            ok = call(Loser, inet_rdma_test_remote, end_part, [socket]),
            inet_rdma_test_wait:until({resumed, name(Loser)}, 10000, fun() ->
                #{resumes := Now} = call(A, inet_rdma, info, [name(B)]),
                Now > Before andalso congestion_in_force(A, B) =:= Other andalso
                    congestion_in_force(B, A) =:= Default
            end)
        end
     || Loser <- [A, B]
    ],
    C = inet_rdma_test_node:start("c"),
    [pong = call(From, net_adm, ping, [name(To)]) || {From, To} <- [{C, A}, {A, Tcp}]],
    ?assertEqual({Other, Other}, {congestion_in_force(A, C), congestion_in_force(A, Tcp)}),
    true = call(A, erlang, disconnect_node, [name(Tcp)]),
    pong = call(Tcp, net_adm, ping, [name(A)]),
    ?assertEqual(Other, congestion_in_force(A, Tcp)).

congestion_in_force(Node, Peer) ->
    case call(Node, net_kernel, getopts, [name(Peer), [{raw, 6, 13, 16}]]) of
        {ok, [{raw, 6, 13, Bytes}]} -> binary_to_list(hd(binary:split(Bytes, <<0>>)));
        %% Between two connections there is none.
        {error, _} -> none
    end.

%% The error names what the kernel has.
refused_congestion_control_says_what_the_kernel_has(Config) ->
    Allowed = kernel_has("tcp_allowed_congestion_control"),
    NeedsRight = kernel_has("tcp_available_congestion_control") -- Allowed,
    Named =
        ["congestion", "none_such" | Allowed] ++
            [Word || Word <- ["CAP_NET_ADMIN"], NeedsRight =/= []],
    refused_with(["-inet_rdma", "congestion", "none_such"], Named),
    refused_with(["-config", sys_config(Config, [{congestion, none_such}])], Named).

kernel_has(File) ->
    {ok, Text} = file:read_file("/proc/sys/net/ipv4/" ++ File),
    string:lexemes(binary_to_list(Text), " \n").

%% A node of another carrier does not mind the flags.
flags_of_other_carriers_are_left_alone(_Config) ->
    {Status, Output} = inet_rdma_test_node:run(
        "n", #{carrier => "inet_tcp", args => ["-inet_rdma", "no_such_key", "1"]}, "true"
    ),
    ?assertEqual({0, ""}, {Status, Output}).

%% `make -s erl-flags' prints what a node needs: no more than these here.
flags_that_make_prints_work(_Config) ->
    {Status, Output} = inet_rdma_test_node:run("n", #{}, "io:put_chars(atom_to_list(node()))"),
    ?assertEqual(0, Status),
    ?assertMatch([_, _], string:lexemes(Output, "@")).

%% OTP takes none of two values, and says nothing.
carrier_given_twice_is_named(_Config) ->
    lists:foreach(
        fun(Args) ->
            Node = inet_rdma_test_node:start("n", #{args => Args, rdma => [{required, true}]}),
            ok = call(Node, inet_rdma_test_log, install, []),
            ok = call(Node, application, start, [inet_rdma]),
            ?assert(
                has_logged(Node, [
                    "-proto_dist is given 2 times (inet_rdma, ", "those of inet_tcp", "ERL_FLAGS"
                ])
            ),
            #{leaves_tcp := false, this_host := tcp, findings := Findings} = call(
                Node, inet_rdma_doctor, report, []
            ),
            ?assertMatch(
                [#{severity := problem, fix := <<"give it once", _/binary>>}],
                [Finding || #{about := carrier} = Finding <- Findings]
            ),
            %% Once, though a scrape of metrics asks each few seconds.
            ok = call(Node, inet_rdma_test_log, forget, []),
            [] = call(Node, inet_rdma, info, []),
            ?assertEqual([], call(Node, inet_rdma_test_log, lines, [])),
            {0, Table} = inet_rdma_test_node:run("n", #{args => Args}, "inet_rdma:i()"),
            ?assertMatch(
                {_, _}, binary:match(iolist_to_binary(Table), <<"-proto_dist is given 2 times">>)
            )
        end,
        [["-proto_dist", "inet_rdma"], ["-proto_dist", "inet_tcp"]]
    ),
    Alone = inet_rdma_test_node:start("n"),
    ?assertEqual(none, call(Alone, inet_rdma_proto_dist, ignored, [])).

%% OTP loads the application, and reads the values as terms, where there is a configuration file, as
%% in a release.
terms_on_the_command_line(Config) ->
    Directory = filename:absname(proplists:get_value(priv_dir, Config)),
    Flags = fun(Path) -> ["-inet_rdma", "flight_directory", Path, "shm_directory", Path] end,
    Quoted =
        Flags("\"" ++ Directory ++ "\"") ++ ["shm_allowed_uids", "[1,1000]", "polling", "event"],
    Node = inet_rdma_test_node:start("n", #{args => ["-config", sys_config(Config, []) | Quoted]}),
    Binary = list_to_binary(Directory),
    ?assertMatch(
        {ok, #{
            flight_directory := Directory, shm_directory := Binary, shm_allowed_uids := [1, 1000]
        }},
        call(Node, inet_rdma_options, node, [])
    ),
    ?assertEqual([], call(Node, inet_rdma_options, not_terms, [])),
    refused_with(["-config", sys_config(Config, []) | Flags(Directory)], [
        "bad_environment_value", Directory
    ]),
    %% Without one any path is taken, and the doctor warns.
    Bare = inet_rdma_test_node:start("b", #{args => Flags(Directory)}),
    #{findings := Findings} = call(Bare, inet_rdma_doctor, report, []),
    Notes = [Text || #{about := options, severity := note, text := Text} <- Findings],
    ?assertMatch([_, _], [
        Text
     || Text <- Notes, string:find(Text, "is not an Erlang term") =/= nomatch
    ]).

%% What the option security was at that time is not known, so no link is made until it is started
%% again.
wrong_when_the_distribution_started(_Config) ->
    B = inet_rdma_test_node:start("b"),
    A = inet_rdma_test_node:start("n", #{name => none}),
    Start = fun() ->
        Name = list_to_atom(inet_rdma_test_node:unique("a")),
        {ok, _} = call(A, net_kernel, start, [
            Name, #{name_domain => shortnames, dist_listen => false}
        ]),
        true = call(A, erlang, set_cookie, [call(B, erlang, get_cookie, [])])
    end,
    ok = call(A, inet_rdma_test_log, install, []),
    ok = call(A, application, set_env, [inet_rdma, ring_bytes, 1]),
    Start(),
    ?assertEqual(false, call(A, net_kernel, connect_node, [name(B)])),
    ok = call(A, application, unset_env, [inet_rdma, ring_bytes]),
    ?assertEqual(false, call(A, net_kernel, connect_node, [name(B)])),
    ?assert(has_logged(A, ["ring_bytes", "start it again"])),
    ok = call(A, net_kernel, stop, []),
    Start(),
    ?assertEqual(true, call(A, net_kernel, connect_node, [name(B)])).

%% A connection that stands by is probed by the net_ticktime in force, which need not be that of the
%% command line.
tick_time_of_the_distribution(_Config) ->
    B = inet_rdma_test_node:start("b"),
    A = inet_rdma_test_node:start("n", #{name => none, rdma => [{fabric, shm}]}),
    Name = list_to_atom(inet_rdma_test_node:unique("a")),
    {ok, _} = call(A, net_kernel, start, [Name, #{name_domain => shortnames, net_ticktime => 8}]),
    true = call(A, erlang, set_cookie, [call(B, erlang, get_cookie, [])]),
    ?assertEqual(true, call(A, net_kernel, connect_node, [name(B)])),
    ok = inet_rdma_test_link:await(A, B, shm),
    UserTimeout = {raw, 6, 18, 4},
    Wanted = {ok, [{raw, 6, 18, <<8000:32/native>>}]},
    inet_rdma_test_wait:until(probed, 20000, fun() ->
        case call(A, net_kernel, getopts, [name(B), [UserTimeout]]) of
            Wanted -> true;
            Other -> Other
        end
    end).

%% Options that are wrong now, or ask for TLS, keep new links from coming up. A link that is up
%% resumes with its own.
wrong_later_leaves_links_up(_Config) ->
    Nodes = [A, B] = inet_rdma_test_node:connected_pair(#{rdma => [{fabric, tcp}]}),
    Watcher = inet_rdma_test_node:watch(A, B),
    [
        begin
            [ok = call(Node, application, set_env, [inet_rdma, Key, Value]) || Node <- Nodes],
            [
                begin
                    #{resumes := Before} = call(A, inet_rdma, info, [name(B)]),
                    ok = call(Loser, inet_rdma_test_remote, end_part, [socket]),
                    inet_rdma_test_wait:until({resumed, Key}, 10000, fun() ->
                        #{resumes := Now} = call(A, inet_rdma, info, [name(B)]),
                        Now > Before
                    end)
                end
             || Loser <- Nodes
            ],
            C = inet_rdma_test_node:start("c"),
            ?assertEqual({Key, pang}, {Key, call(C, net_adm, ping, [name(A)])}),
            [ok = call(Node, application, unset_env, [inet_rdma, Key]) || Node <- Nodes]
        end
     || {Key, Value} <- [{ring_bytes, nonsense}, {security, tls}]
    ],
    ?assertEqual([], call(A, inet_rdma_test_watch, seen, [Watcher])).

%% While shared memory carries a link the kernel probes its TCP connection in the time of
%% net_ticktime, also when that changes.
tick_time_of_connections_that_stand_by(_Config) ->
    Nodes =
        [A, B] = inet_rdma_test_node:connected_pair(#{args => ["-kernel", "net_ticktime", "8"]}),
    ok = inet_rdma_test_link:await(A, B, shm),
    Watcher = inet_rdma_test_node:watch(A, B),
    [
        begin
            [_ = call(Node, net_kernel, set_net_ticktime, [Seconds, 0]) || Node <- Nodes],
            [
                inet_rdma_test_wait:until({user_timeout, name(Node), Seconds}, 20000, fun() ->
                    case call(Node, net_kernel, getopts, [name(Peer), [{raw, 6, 18, 4}]]) of
                        {ok, [{raw, 6, 18, <<Ms:32/native>>}]} when Ms =:= Seconds * 1000 -> true;
                        Other -> {not_yet, Other}
                    end
                end)
             || {Node, Peer} <- [{A, B}, {B, A}]
            ]
        end
     || Seconds <- [8, 4, 12]
    ],
    ?assertEqual([], call(A, inet_rdma_test_watch, seen, [Watcher])).

%% Without a device, a node with the option fabric verbs keeps its links on TCP, and both nodes know
%% what the machine lacks.
fabric_that_is_not_there(_Config) ->
    without_verbs([], fun(A, B) ->
        ?assertEqual(pong, call(A, net_adm, ping, [name(B)])),
        [
            ok = inet_rdma_test_link:await(Node, Peer, tcp, Word)
         || {Node, Peer} <- [{A, B}, {B, A}], Word <- ["verbs: ", "shm: the option fabric"]
        ],
        ok = call(A, inet_rdma_test_data, echo_and_compare, [name(B), [0, 1000, 500000]])
    end).

%% If it may not keep them on TCP it refuses them, whichever side connects, and both nodes say why.
required_fabric_that_is_not_there(_Config) ->
    without_verbs([{required, true}], fun(A, B) ->
        [
            begin
                _ = call_all([A, B], inet_rdma_test_log, install, []),
                inet_rdma_test_wait:until({refused, name(Node), name(Peer)}, 10000, fun() ->
                    %% Until net_kernel has seen the end of the peer's last attempt it answers for
                    %% that one.
                    ?assertEqual(false, call(Node, net_kernel, connect_node, [name(Peer)])),
                    lists:all(
                        fun(Each) -> has_logged(Each, ["required forbids TCP", "verbs: "]) end, [
                            A, B
                        ]
                    )
                end)
            end
         || {Node, Peer} <- [{A, B}, {B, A}]
        ],
        [?assertEqual([], call(Node, erlang, nodes, [connected])) || Node <- [A, B]]
    end).

%% A configuration file that cannot be read for want of inet_rdma.app may ask for TLS: the node does
%% not start in clear.
application_that_cannot_be_loaded(Config) ->
    [Ebin, Tests] = inet_rdma_test_node:copy_code(
        filename:join(proplists:get_value(priv_dir, Config), "without_app")
    ),
    ok = file:delete(filename:join(Ebin, "inet_rdma.app")),
    Code = #{code => [Ebin, Tests]},
    refused_with(Code, ["-config", sys_config(Config, [{security, tls}])], [
        "not_loaded", "inet_rdma.app"
    ]),
    %% Without a configuration file the node starts: the application has no options to load.
    ?assertEqual({0, ""}, inet_rdma_test_node:run("n", Code, "true")).

%% The application controller does not answer while it stops an application.
application_that_is_not_loaded_in_time(Config) ->
    Node = inet_rdma_test_node:start("n", #{
        name => none, args => ["-config", sys_config(Config, [{security, tls}])]
    }),
    ?assertEqual(
        {error, {not_loaded, timeout}},
        call(Node, inet_rdma_test_remote, options_without_controller, [])
    ),
    ?assertMatch({ok, #{security := tls}}, call(Node, inet_rdma_options, node, [])).

%% The first node's links may use verbs only, the second's what they can.
without_verbs(Options, Test) ->
    A = inet_rdma_test_node:start("a", #{rdma => [{fabric, verbs} | Options]}),
    case call(A, inet_rdma_nif, check_verbs, []) of
        ok -> {skip, "this machine has what the verbs fabric needs"};
        {error, _} -> Test(A, inet_rdma_test_node:start("b"))
    end.

has_logged(Node, Words) ->
    lists:all(fun(Word) -> call(Node, inet_rdma_test_log, contains, [Word]) end, Words).

%% The node does not start, and what it writes has all these words.
refused_with(Args, Words) -> refused_with(#{}, Args, Words).

refused_with(Options, Args, Words) ->
    {Status, Output} = inet_rdma_test_node:run("n", Options#{args => Args}, "true"),
    ct:pal("exit status ~p~n~ts", [Status, Output]),
    ?assertNotEqual(0, Status),
    ?assertNotEqual(137, Status),
    [?assertNotEqual({nomatch, Word}, {string:find(Output, Word), Word}) || Word <- Words].

sys_config(Config, Environment) ->
    File = filename:join(
        proplists:get_value(priv_dir, Config), inet_rdma_test_node:unique("sys") ++ ".config"
    ),
    ok = file:write_file(File, io_lib:format("~p.~n", [[{inet_rdma, Environment}]])),
    File.

call_all(Nodes, Module, Function, Args) ->
    inet_rdma_test_node:call_all(Nodes, Module, Function, Args).

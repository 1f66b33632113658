%% Programs that connect to an inet_rdma node as to one of inet_tcp: erl_call, nodes in C, remote
%% shells.
-module(programs_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_node, [call/4, name/1, unique/1]).

-export([all/0, suite/0]).
-export([
    erl_call_reaches_a_node/1,
    c_node_connects/1,
    c_node_accepts/1,
    remote_shells_reach_nodes_of_both_carriers/1
]).

-define(COOKIE, "inet_rdma_test").

suite() ->
    [{timetrap, {minutes, 4}}, {ct_hooks, [{inet_rdma_test_nodes, [only_rdma]}]}].

all() ->
    [
        erl_call_reaches_a_node,
        c_node_connects,
        c_node_accepts,
        remote_shells_reach_nodes_of_both_carriers
    ].

erl_call_reaches_a_node(_Config) ->
    case find_erl_call() of
        none ->
            inet_rdma_test_link:skip(
                "erl_call is not installed (Debian: erlang-dev or erlang-base)"
            );
        Program ->
            Node = inet_rdma_test_node:start("a"),
            Node2 = atom_to_list(name(Node)),
            Call = fun(Arguments, Input) ->
                Answer = erl_call(Program, Arguments, Input),
                %% The next call has the same name: a node refuses it while the link of the last one
                %% is up.
                inet_rdma_test_wait:until(no_caller_is_left, 10000, fun() ->
                    {call(Node, erlang, nodes, [connected]), call(Node, inet_rdma, info, [])} =:=
                        {[], []}
                end),
                Answer
            end,
            [
                ?assertEqual({0, Node2}, Call(Where ++ ["-a", "erlang node"], ""))
             || Where <- [
                    ["-sname", Node2], ["-address", "127.0.0.1:" ++ integer_to_list(port_of(Node))]
                ]
            ],
            ?assertEqual(
                {0, "{ok, [5050]}"},
                Call(["-sname", Node2, "-e"], "[lists:sum(lists:seq(1,100))].\n")
            ),
            Large = integer_to_list(200000),
            ?assertMatch(
                {0, _}, Call(["-sname", Node2, "-a", "lists duplicate [" ++ Large ++ ",a]"], "")
            )
    end.

erl_call(Program, Arguments, Input) ->
    {Status, Output} = program(Program, ["-c", ?COOKIE | Arguments], Input),
    {Status, string:trim(Output)}.

find_erl_call() ->
    Candidates = [
        filename:join([Directory | Rest])
     || {Directory, Rest} <- [
            {code:root_dir(), ["bin", "erl_call"]},
            {code:root_dir(), ["erts-" ++ erlang:system_info(version), "bin", "erl_call"]},
            {code:lib_dir(erl_interface), ["bin", "erl_call"]}
        ],
        is_list(Directory)
    ],
    case {lists:filter(fun filelib:is_regular/1, Candidates), os:find_executable("erl_call")} of
        {[Program | _], _} -> Program;
        {[], false} -> none;
        {[], Program} -> Program
    end.

c_node_connects(Config) ->
    with_c_node(Config, fun(Program) ->
        Node = inet_rdma_test_node:start("a"),
        {_Server, true} = call(Node, inet_rdma_test_remote, started, [
            cnode, fun inet_rdma_test_remote:serve_c_node/0
        ]),
        Run = fun() ->
            program(Program, ["connect", unique("c"), ?COOKIE, atom_to_list(name(Node))], "")
        end,
        [?assertEqual({0, "world\n"}, Run()) || _ <- lists:seq(1, 20)],
        inet_rdma_test_wait:until(no_c_node_is_left, 10000, fun() ->
            {call(Node, erlang, nodes, [connected]), call(Node, inet_rdma, info, [])} =:= {[], []}
        end)
    end).

c_node_accepts(Config) ->
    with_c_node(Config, fun(Program) ->
        Node = inet_rdma_test_node:start("a"),
        Name = unique("c"),
        Port = open_port({spawn_executable, Program}, [
            {args, ["accept", Name, ?COOKIE]}, {line, 200}, exit_status
        ]),
        "listens" = line(Port),
        [_, Host] = string:lexemes(atom_to_list(name(Node)), "@"),
        Peer = #{node => list_to_atom(Name ++ "@" ++ Host)},
        ?assertEqual(true, call(Node, net_kernel, hidden_connect_node, [name(Peer)])),
        ?assertEqual("accepted " ++ atom_to_list(name(Node)), line(Port)),
        ok = inet_rdma_test_link:await(Node, Peer, tcp, "the peer makes no offer"),
        [
            ?assertEqual(Term, call(Node, inet_rdma_test_remote, ask, [{any, name(Peer)}, Term]))
         || Term <- [world, {1, 2.0, "three"}, binary:copy(<<"x">>, 1000000), lists:seq(1, 1000)]
        ],
        true = call(Node, erlang, disconnect_node, [name(Peer)]),
        ?assertEqual("ended", line(Port)),
        ?assertEqual({exit_status, 0}, line(Port))
    end).

line(Port) ->
    receive
        {Port, {data, {eol, Line}}} -> Line;
        {Port, {exit_status, _} = Status} -> Status
    after inet_rdma_test_wait:patience(20000) -> error(c_node_is_silent)
    end.

with_c_node(Config, Test) ->
    case {os:find_executable("cc"), ei_directories()} of
        {false, _} ->
            inet_rdma_test_link:skip("there is no C compiler");
        {_, []} ->
            inet_rdma_test_link:skip("libei is not installed (Debian: erlang-dev)");
        {Cc, [Directory | _]} ->
            Source = filename:join(proplists:get_value(data_dir, Config), "cnode.c"),
            Program = filename:join(proplists:get_value(priv_dir, Config), "cnode"),
            ?assertEqual(
                {0, ""},
                program(
                    Cc,
                    [
                        "-Wall",
                        "-Werror",
                        "-D_REENTRANT",
                        "-I",
                        filename:join(Directory, "include"),
                        "-o",
                        Program,
                        Source,
                        "-L",
                        filename:join(Directory, "lib"),
                        "-lei",
                        "-lpthread"
                    ],
                    ""
                )
            ),
            Test(Program)
    end.

%% Where libei is: of the application, else where the installation keeps headers and libraries for
%% programs in C.
ei_directories() ->
    Candidates = [code:lib_dir(erl_interface), filename:join(code:root_dir(), "usr")],
    [
        Directory
     || Directory <- Candidates,
        is_list(Directory),
        filelib:is_regular(filename:join([Directory, "include", "ei.h"])),
        filelib:is_regular(filename:join([Directory, "lib", "libei.a"]))
    ].

%% A shell of a plain node in an inet_rdma node, and of an inet_rdma node in both.
remote_shells_reach_nodes_of_both_carriers(_Config) ->
    [
        begin
            Node = inet_rdma_test_node:start("a", Options),
            {0, Output} = shell(Carrier, Node),
            ct:log("~ts", [Output]),
            ?assertMatch({match, _}, re:run(Output, "here=" ++ atom_to_list(name(Node)))),
            %% The node goes on when the shell has ended.
            inet_rdma_test_wait:until(shell_is_gone, 10000, fun() ->
                call(Node, erlang, nodes, [connected]) =:= []
            end)
        end
     || {Carrier, Options} <- [
            {"inet_tcp", #{}}, {"inet_rdma", #{carrier => "inet_tcp"}}, {"inet_rdma", #{}}
        ]
    ].

%% Runs a shell on a terminal, by script(1), as shells of later OTP versions need one. Leaves it as
%% a user does.
shell(Carrier, #{node := Node}) ->
    Arguments = [
        "-sname", unique("shell"), "-hidden", "-setcookie", ?COOKIE, "-remsh", atom_to_list(Node)
    ],
    Command =
        lists:append(
            lists:join(
                " ", [inet_rdma_test_node:erl() | inet_rdma_test_node:flags(Carrier)] ++ Arguments
            )
        ),
    Port = open_port({spawn_executable, os:find_executable("script")}, [
        {args, ["-qec", Command, "/dev/null"]},
        {env, [{"TERM", "vt100"}]},
        exit_status,
        stderr_to_stdout,
        hide
    ]),
    Dialogue = [
        {"\\(" ++ atom_to_list(Node) ++ "\\)1> ", "io:format(\"here=~s~n\", [node()]).\r"},
        {"here=[^~][^\n]*\n(.|\n)*2> ", "\^g"},
        {" --> ", "q\r"}
    ],
    talk(Port, Dialogue, []).

%% Writes each answer when what comes before it has been read; then waits for the end.
talk(Port, Dialogue, Read) ->
    case Dialogue of
        [{Prompt, Answer} | Rest] ->
            case re:run(Read, Prompt) of
                {match, _} ->
                    port_command(Port, Answer),
                    talk(Port, Rest, Read);
                nomatch ->
                    more(Port, Dialogue, Read)
            end;
        [] ->
            more(Port, [], Read)
    end.

more(Port, Dialogue, Read) ->
    receive
        {Port, {data, Data}} -> talk(Port, Dialogue, Read ++ Data);
        {Port, {exit_status, Status}} -> {Status, Read}
    after inet_rdma_test_wait:patience(60000) -> error({shell_is_silent, Read, Dialogue})
    end.

%% Runs a program with this input; its status and all that it wrote.
program(Program, Arguments, Input) ->
    Sh = "printf %s \"$0\" | \"$@\" 2>&1",
    Port = open_port({spawn_executable, "/bin/sh"}, [
        {args, ["-c", Sh, Input, Program | Arguments]},
        exit_status,
        stderr_to_stdout,
        hide,
        use_stdio
    ]),
    collect(Port, []).

collect(Port, Output) ->
    receive
        {Port, {data, Data}} -> collect(Port, [Output | Data]);
        {Port, {exit_status, Status}} -> {Status, lists:flatten(Output)}
    after inet_rdma_test_wait:patience(60000) -> error({no_end, lists:flatten(Output)})
    end.

port_of(#{name := Name}) ->
    {port, Port, _Version} = erl_epmd:port_please(Name, {127, 0, 0, 1}),
    Port.

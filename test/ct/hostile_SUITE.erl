%% Peers of this host that break the rules of the shm fabric: whatever they do ends their own connection, with a logged
%% reason, and nothing else. The peer is a program of its own, hostile_SUITE_data/hostile.py.
-module(hostile_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2]).
-export([another_user_is_refused/1, bad_greetings/1, other_version_is_named/1, silent_peers/1, hangs_up_at_once/1]).
-export([bad_entries_at_a_node/1, bad_entries_at_a_socket/1, memory_cannot_be_resized/1]).
-export([garbage_instead_of_a_handshake/1, listener_that_never_answers/1]).

suite() ->
    [{timetrap, {minutes, 2}}].

all() ->
    [
        another_user_is_refused, bad_greetings, other_version_is_named, silent_peers, hangs_up_at_once,
        bad_entries_at_a_node, bad_entries_at_a_socket, memory_cannot_be_resized, garbage_instead_of_a_handshake,
        listener_that_never_answers
    ].

init_per_suite(Config) ->
    case {inet_rdma_test_node:only_rdma(), python()} of
        {{skip, _} = Skip, _} ->
            Skip;
        {ok, false} ->
            {skip, "the hostile peer needs python3"};
        {ok, Python} ->
            [{python, Python} | Config]
    end.

%% The system's before one of a user's own: another user must be able to run it, too.
python() ->
    case filelib:is_regular("/usr/bin/python3") of
        true -> "/usr/bin/python3";
        false -> os:find_executable("python3")
    end.

end_per_suite(_Config) ->
    ok.

%% Each case has two nodes with a live connection, whose first one is attacked.
init_per_testcase(_Case, Config) ->
    [A, B] = inet_rdma_test_node:start_all(2, #{args => ["-kernel", "net_setuptime", "5"]}),
    ok = inet_rdma_test_node:connect(A, B),
    ok = call(A, inet_rdma_test_log, install, []),
    {Watcher, ok} = call(A, inet_rdma_test_watch, nodes_of, [name(B)]),
    [{a, A}, {b, B}, {watcher, Watcher} | Config].

end_per_testcase(_Case, _Config) ->
    inet_rdma_test_node:stop_all().

another_user_is_refused(Config) ->
    Nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", "--"],
    case {os:cmd("id -u"), os:find_executable("setpriv")} of
        {"0\n", Setpriv} when is_list(Setpriv) ->
            Output = run(Setpriv, Nobody ++ [python(Config) | arguments(Config, [port(Config), "whoever"])]),
            ?assertNotEqual("open\n", Output),
            await_logged(Config, ["wrong_user", "65534"]),
            unharmed(Config);
        _ ->
            {skip, "to run the peer as another user needs root and setpriv"}
    end.

bad_greetings(Config) ->
    [Greetings, _] = names(Config),
    [
        begin
            ok = forget_log(Config),
            ?assertMatch({"ended" ++ _, Greeting}, {attack(Config, Greeting), Greeting}),
            await_logged(Config, ["refused"])
        end
     || Greeting <- Greetings
    ],
    unharmed(Config).

other_version_is_named(Config) ->
    ?assertMatch("ended" ++ _, attack(Config, "other_version")),
    await_logged(Config, ["version", "999", "2"]),
    unharmed(Config).

%% More silent connections than the backlog has places; each loses its place after a while.
silent_peers(Config) ->
    Port = start(python(Config), arguments(Config, [port(Config), "silence", "300"])),
    Held = receive {Port, {data, Text}} -> Text after 20000 -> error(no_scanner) end,
    ct:pal("the scanner is ~s", [Held]),
    unharmed_links(Config),
    %% A node that wants in gets in while the scanner holds what it has.
    C = inet_rdma_test_node:start("c"),
    inet_rdma_test_wait:until(others_get_in, 30000, fun() ->
        call(C, net_adm, ping, [name(proplists:get_value(a, Config))]) =:= pong
    end),
    port_close(Port),
    unharmed(Config).

hangs_up_at_once(Config) ->
    [
        begin
            Port = start(python(Config), arguments(Config, [port(Config), "silence", "20"])),
            receive {Port, {data, "holding" ++ _}} -> ok after 20000 -> error(no_scanner) end,
            port_close(Port)
        end
     || _ <- lists:seq(1, 10)
    ],
    unharmed(Config).

bad_entries_at_a_node(Config) ->
    [_, Attacks] = names(Config),
    [?assertMatch({"ended" ++ _, Attack}, {attack(Config, Attack), Attack}) || Attack <- Attacks],
    unharmed(Config).

%% The same against a socket of the API, whose owner is told why it ended.
bad_entries_at_a_socket(Config) ->
    A = proplists:get_value(a, Config),
    [_, Attacks] = names(Config),
    Port = call(A, inet_rdma_test_socket, serve_reasons, [[{packet, 4}]]),
    [
        begin
            ?assertMatch({"ended" ++ _, Attack}, {attack(Config, Port, Attack), Attack}),
            Reason = inet_rdma_test_wait:until({reason_of, Attack}, 10000, fun() ->
                case call(A, inet_rdma_test_socket, last_reason, []) of
                    none -> none;
                    Reason -> {ok, Reason}
                end
            end),
            ct:pal("~s: ~p", [Attack, Reason]),
            %% Neither an orderly end nor the reader's patience.
            ?assertNot(lists:member(Reason, [closed, timeout]))
        end
     || Attack <- Attacks
    ],
    unharmed(Config).

memory_cannot_be_resized(Config) ->
    ?assertEqual("denied\n", attack(Config, "shrink_the_other_side")),
    ?assertEqual("denied\n", attack(Config, "grow_the_other_side")),
    unharmed(Config).

%% The fabric's rules are kept, what is said is not the distribution protocol.
garbage_instead_of_a_handshake(Config) ->
    A = proplists:get_value(a, Config),
    C = inet_rdma_test_node:start("c", #{name => none}),
    [
        ?assertMatch({closed, _}, call(C, inet_rdma_test_socket, say_and_wait, [list_to_integer(port(Config)), Words]))
     || Words <- [<<>>, <<"n">>, <<"hello, who is there?">>, binary:copy(<<255>>, 4000), binary:copy(<<0>>, 60000)]
    ],
    ?assertEqual([], call(A, erlang, nodes, [hidden])),
    unharmed(Config).

%% Twice as many connects as the VM has threads for file work: neither that nor other connects wait for them.
listener_that_never_answers(Config) ->
    A = proplists:get_value(a, Config),
    Threads = call(A, erlang, system_info, [dirty_io_schedulers]),
    Mute = start(python(Config), arguments(Config, ["0", "mute", integer_to_list(Threads)])),
    Port = list_to_integer(word_after("port:", Mute)),
    %% Some of them are under way, and nothing ends before the case does.
    Connecting = call(A, inet_rdma_test_socket, start_connects, [Port, 2 * Threads, 300000]),
    _ = word_after("holding", Mute),
    {ok, File} = call(A, inet_rdma_test_socket, within, [20000, {file, read_file, [code:which(?MODULE)]}]),
    ?assert(is_binary(File)),
    ?assertEqual(ok, call(A, inet_rdma_test_socket, within, [20000, {inet_rdma_test_socket, meet, []}])),
    %% One that waits no longer is told so, and nothing else.
    ?assertEqual({{error, etimedout}, []}, call(A, inet_rdma_test_socket, connect_and_look, [Port, 100])),
    ?assertEqual([], [Result || Result <- call(A, inet_rdma_test_socket, results, [Connecting]), Result =/= waiting]),
    port_close(Mute),
    %% The listener's end is theirs.
    inet_rdma_test_wait:until(connects_end, 20000, fun() ->
        Results = call(A, inet_rdma_test_socket, results, [Connecting]),
        lists:usort(Results) =:= [{error, peer_gone}] orelse Results
    end),
    unharmed(Config).

%% The program's next line: this word and another, which is the result. A line may come in pieces.
word_after(Word, Program) ->
    word_after(Word, Program, "").

word_after(Word, Program, Begun) ->
    receive
        {Program, {data, Text}} ->
            Line = Begun ++ Text,
            case {lists:suffix("\n", Line), string:lexemes(Line, " \n")} of
                {false, _} -> word_after(Word, Program, Line);
                {true, [Word, Result]} -> Result;
                {true, _} -> error({says_something_else, Line})
            end
    after 20000 ->
        error({says_nothing, Word, Begun})
    end.

%% The link that lived before the attack lives, carries data, and new ones can be made.
unharmed(Config) ->
    unharmed_links(Config),
    C = inet_rdma_test_node:start("new"),
    ok = inet_rdma_test_node:connect(C, proplists:get_value(a, Config)).

unharmed_links(Config) ->
    {A, B} = {proplists:get_value(a, Config), proplists:get_value(b, Config)},
    ok = call(A, inet_rdma_test_data, echo_and_compare, [name(B), [0, 1000, 1000000]]),
    ?assertEqual([], call(A, inet_rdma_test_watch, seen, [proplists:get_value(watcher, Config)])).

await_logged(Config, Words) ->
    A = proplists:get_value(a, Config),
    inet_rdma_test_wait:until({logged, Words}, 10000, fun() ->
        Lines = call(A, inet_rdma_test_log, lines, []),
        lists:any(fun(Line) -> lists:all(fun(Word) -> string:find(Line, Word) =/= nomatch end, Words) end, Lines)
            orelse Lines
    end).

forget_log(Config) ->
    call(proplists:get_value(a, Config), inet_rdma_test_log, forget, []).

names(Config) ->
    [string:lexemes(Line, " ") || Line <- string:lexemes(run(python(Config), arguments(Config, ["names"])), "\n")].

attack(Config, Attack) ->
    attack(Config, list_to_integer(port(Config)), Attack).

attack(Config, Port, Attack) ->
    run(python(Config), arguments(Config, [integer_to_list(Port), Attack])).

%% The source as an argument, so that another user needs no right to read the file.
arguments(Config, Words) ->
    {ok, Source} = file:read_file(filename:join(proplists:get_value(data_dir, Config), "hostile.py")),
    ["-c", binary_to_list(Source) | Words].

python(Config) ->
    proplists:get_value(python, Config).

%% Where the attacked node listens.
port(Config) ->
    [Name, _Host] = string:lexemes(atom_to_list(name(proplists:get_value(a, Config))), "@"),
    {port, Port, _Version} = erl_epmd:port_please(Name, {127, 0, 0, 1}),
    integer_to_list(Port).

start(Program, Args) ->
    open_port({spawn_executable, Program}, [{args, Args}, {cd, "/"}, exit_status, stderr_to_stdout, hide]).

%% What the program wrote; it ends by its own deadline.
run(Program, Args) ->
    collect(start(Program, Args), []).

collect(Port, Output) ->
    receive
        {Port, {data, Data}} -> collect(Port, [Output | Data]);
        {Port, {exit_status, 0}} -> lists:flatten(Output);
        {Port, {exit_status, Status}} -> error({hostile_peer_failed, Status, lists:flatten(Output)})
    end.

call(Node, Module, Function, Args) -> inet_rdma_test_node:call(Node, Module, Function, Args).

name(#{node := Name}) -> Name.

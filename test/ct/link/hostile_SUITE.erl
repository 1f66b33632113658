%% Peers of this host that break the rules of the shm fabric: whatever they do ends their own
%% connection, with a reason, and nothing else. What they attack is a listener of inet_rdma in a
%% node that has a link; links have no listener that stands open. The peer is a program of its own,
%% hostile_SUITE_data/hostile.py. At the TCP port of a node it says what is no handshake.
-module(hostile_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_node, [call/4, name/1]).

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2]).
-export([another_user_is_refused/1, another_user_has_the_port/1]).
-export([
    bad_greetings_end_with_a_reason/1,
    other_version_is_named/1,
    silent_peers_lose_their_places/1,
    hangs_up_at_once/1
]).
-export([bad_entries_at_a_socket/1, memory_cannot_be_resized/1, words_instead_of_wake_ups/1]).
-export([garbage_instead_of_a_handshake/1, listener_that_never_answers/1]).

suite() ->
    [{timetrap, {minutes, 2}}, {ct_hooks, [inet_rdma_test_nodes]}].

all() ->
    [
        another_user_is_refused,
        another_user_has_the_port,
        bad_greetings_end_with_a_reason,
        other_version_is_named,
        silent_peers_lose_their_places,
        hangs_up_at_once,
        bad_entries_at_a_socket,
        memory_cannot_be_resized,
        words_instead_of_wake_ups,
        garbage_instead_of_a_handshake,
        listener_that_never_answers
    ].

init_per_suite(Config) ->
    case python() of
        false -> {skip, "the hostile peer needs python3"};
        Python -> inet_rdma_test_node:only_rdma([{python, Python} | Config])
    end.

%% The system's before one of a user's own: another user must be able to run it, too.
python() ->
    case filelib:is_regular("/usr/bin/python3") of
        true -> "/usr/bin/python3";
        false -> os:find_executable("python3")
    end.

end_per_suite(_Config) ->
    ok.

%% Each case has two nodes with a live link. The first one is attacked.
init_per_testcase(_Case, Config) ->
    [A, B] = inet_rdma_test_node:connected_pair(#{args => ["-kernel", "net_setuptime", "5"]}),
    Watcher = inet_rdma_test_node:watch(A, B),
    Port = call(A, inet_rdma_test_socket, serve_reasons, [[{packet, 4}, {connect_timeout_ms, 2000}]]),
    [{a, A}, {b, B}, {watcher, Watcher}, {port, Port} | Config].

another_user_is_refused(Config) ->
    case as_nobody() of
        {ok, Setpriv, Nobody} ->
            Output = run(
                Setpriv, Nobody ++ [python(Config) | arguments(Config, [port(Config), "whoever"])]
            ),
            %% Before it has greeted, or with its greeting unread; it is told nothing.
            ?assert(lists:member(Output, ["refused: EPIPE\n", "ended: reset\n"]), Output),
            ?assertEqual(none, last_reason(Config)),
            unharmed(Config);
        skip ->
            {skip, "to run the peer as another user needs root and setpriv"}
    end.

%% The listener opens over TCP, and the log names the user that has taken the port over shm, and
%% the number of its process.
another_user_has_the_port(Config) ->
    Port = inet_rdma_test_os:free_port(),
    Take = io_lib:format(
        "import socket, sys; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); "
        "s.bind('\\0inet_rdma/~b'); s.listen(1); print('taken', flush=True); sys.stdin.read()",
        [Port]
    ),
    A = proplists:get_value(a, Config),
    ok = call(A, inet_rdma_test_log, install, []),
    case as_nobody() of
        {ok, Setpriv, Nobody} ->
            Holder = start(Setpriv, Nobody ++ [python(Config), "-c", lists:flatten(Take)]),
            receive
                {Holder, {data, "taken" ++ _}} -> ok
            end,
            {ok, _Listener} = call(A, inet_rdma, listen, [Port, []]),
            {os_pid, Pid} = erlang:port_info(Holder, os_pid),
            ok = inet_rdma_test_log:await(A, [
                "port " ++ integer_to_list(Port) ++ " over shm is taken",
                "(pid " ++ integer_to_list(Pid) ++ ")",
                "user 65534",
                "listen on another port"
            ]),
            true = port_close(Holder),
            unharmed(Config);
        skip ->
            {skip, "to run another user's process needs root and setpriv"}
    end.

as_nobody() ->
    case {os:cmd("id -u"), os:find_executable("setpriv")} of
        {"0\n", Setpriv} when is_list(Setpriv) ->
            {ok, Setpriv, ["--reuid=65534", "--regid=65534", "--clear-groups", "--"]};
        _ ->
            skip
    end.

bad_greetings_end_with_a_reason(Config) ->
    [Greetings, _] = names(Config),
    [
        begin
            Verdict = attack(Config, Greeting),
            ?assertMatch({"ended" ++ _, Greeting}, {Verdict, Greeting}),
            ?assertNotEqual({nomatch, Greeting}, {string:find(Verdict, ", told: refused"), Greeting})
        end
     || Greeting <- Greetings -- ["other_version"]
    ],
    %% No process gets a socket of such a peer.
    ?assertEqual(none, last_reason(Config)),
    unharmed(Config).

%% The peer hears which version is spoken here.
other_version_is_named(Config) ->
    Verdict = attack(Config, "other_version"),
    ?assertNotEqual(nomatch, string:find(Verdict, ", told: version 7")),
    ?assertEqual(none, last_reason(Config)),
    unharmed(Config).

%% More silent connections than the backlog has places; each loses its place after a while.
silent_peers_lose_their_places(Config) ->
    Port = start(python(Config), arguments(Config, [port(Config), "silence", "300"])),
    Held =
        receive
            {Port, {data, Text}} -> Text
        after 20000 -> error(no_scanner)
        end,
    ct:pal("the scanner is ~s", [Held]),
    %% A link does not need that listener, and a stream gets in while the scanner holds what it has.
    unharmed(Config),
    inet_rdma_test_wait:until(others_get_in, 30000, fun() -> is_served(Config) end),
    port_close(Port),
    unharmed(Config).

hangs_up_at_once(Config) ->
    [
        begin
            Port = start(python(Config), arguments(Config, [port(Config), "silence", "20"])),
            receive
                {Port, {data, "holding" ++ _}} -> ok
            after 20000 -> error(no_scanner)
            end,
            port_close(Port)
        end
     || _ <- lists:seq(1, 10)
    ],
    unharmed(Config).

%% The owner of the socket is told why it ended.
bad_entries_at_a_socket(Config) ->
    [_, Attacks] = names(Config),
    [
        begin
            ?assertMatch({"ended" ++ _, Attack}, {attack(Config, Attack), Attack}),
            Reason = inet_rdma_test_wait:until({reason_of, Attack}, 10000, fun() ->
                case last_reason(Config) of
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

%% Wake-ups without a cause, and words where nobody reads.
words_instead_of_wake_ups(Config) ->
    ?assertEqual("", attack(Config, "words_instead_of_wake_ups")),
    unharmed(Config).

%% At the TCP port of the node: what is no handshake ends that connection, at the latest with the
%% set-up time.
garbage_instead_of_a_handshake(Config) ->
    A = proplists:get_value(a, Config),
    [Name, _Host] = string:lexemes(atom_to_list(name(A)), "@"),
    {port, Port, _Version} = erl_epmd:port_please(Name, {127, 0, 0, 1}),
    Sockets = [
        begin
            {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}]),
            ok = gen_tcp:send(Socket, Words),
            Socket
        end
     || Words <- [
            <<>>,
            <<0:16>>,
            <<1:16, "n">>,
            <<20:16, "hello, who is there?">>,
            <<4000:16, (binary:copy(<<255>>, 4000))/binary>>,
            <<60000:16, (binary:copy(<<0>>, 60000))/binary>>,
            %% A name that is longer than its message, and one that is followed by half an offer, or
            %% by a wild one.
            send_name(1000, <<"x@y">>, <<>>),
            send_name(3, <<"x@y">>, <<"inetrdma", 0>>),
            send_name(3, <<"x@y">>, <<"inetrdma", 1:16, 255, (binary:copy(<<7>>, 50000))/binary>>),
            %% Half a message.
            <<100:16, "N">>
        ]
    ],
    [?assertMatch({error, _}, read_to_the_end(Socket)) || Socket <- Sockets],
    ?assertEqual([], call(A, erlang, nodes, [hidden])),
    unharmed(Config).

%% Twice as many connects as the VM has threads for file work: neither that nor other connects wait
%% for them.
listener_that_never_answers(Config) ->
    A = proplists:get_value(a, Config),
    Threads = call(A, erlang, system_info, [dirty_io_schedulers]),
    Mute = start(python(Config), arguments(Config, ["0", "mute", integer_to_list(Threads)])),
    Port = list_to_integer(word_after("port:", Mute)),
    %% Some of them are under way, and nothing ends before the case does.
    Connecting = call(A, inet_rdma_test_socket, start_connects, [Port, 2 * Threads, 300000]),
    _ = word_after("holding", Mute),
    {ok, File} = call(A, inet_rdma_test_socket, within, [
        20000, {file, read_file, [code:which(?MODULE)]}
    ]),
    ?assert(is_binary(File)),
    ?assertEqual(
        ok, call(A, inet_rdma_test_socket, within, [20000, {inet_rdma_test_socket, meet, []}])
    ),
    %% One that waits no longer is told so, and nothing else.
    ?assertEqual(
        {{error, timeout}, []}, call(A, inet_rdma_test_socket, connect_and_look, [Port, 100])
    ),
    ?assertEqual([], [
        Result
     || Result <- call(A, inet_rdma_test_socket, results, [Connecting]), Result =/= waiting
    ]),
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

send_name(Length, Name, Rest) ->
    Message = <<$N, 16#d07df7fbd:64, 1:32, Length:16, Name/binary, Rest/binary>>,
    <<(byte_size(Message)):16, Message/binary>>.

%% What the node answers (a status, a challenge) does not matter.
read_to_the_end(Socket) ->
    case gen_tcp:recv(Socket, 0, 60000) of
        {ok, _} -> read_to_the_end(Socket);
        {error, timeout} -> still_open;
        Error -> Error
    end.

%% The link that lived before the attack lives, carries data, and new ones can be made.
unharmed(Config) ->
    {A, B} = {proplists:get_value(a, Config), proplists:get_value(b, Config)},
    ok = call(A, inet_rdma_test_data, echo_and_compare, [name(B), [0, 1000, 1000000]]),
    ?assertEqual([], call(A, inet_rdma_test_watch, seen, [proplists:get_value(watcher, Config)])),
    ok = inet_rdma_test_node:connect(inet_rdma_test_node:start("new"), A).

%% Why the last connection to the attacked listener ended, if anybody got one.
last_reason(Config) ->
    call(proplists:get_value(a, Config), inet_rdma_test_socket, last_reason, []).

%% A stream from the second node to the attacked listener.
is_served(Config) ->
    Address = ["localhost", proplists:get_value(port, Config), [{packet, 4}], 20000],
    {closed, closed} =:=
        call(
            proplists:get_value(b, Config),
            inet_rdma_test_socket,
            say_and_close,
            [Address, <<"hello">>]
        ).

names(Config) ->
    [
        string:lexemes(Line, " ")
     || Line <- string:lexemes(run(python(Config), arguments(Config, ["names"])), "\n")
    ].

attack(Config, Attack) ->
    run(python(Config), arguments(Config, [port(Config), Attack])).

%% The source as an argument, so that another user needs no right to read the file.
arguments(Config, Words) ->
    {ok, Source} = file:read_file(
        filename:join(proplists:get_value(data_dir, Config), "hostile.py")
    ),
    ["-c", binary_to_list(Source) | Words].

python(Config) ->
    proplists:get_value(python, Config).

%% The port of the attacked listener.
port(Config) ->
    integer_to_list(proplists:get_value(port, Config)).

start(Program, Args) ->
    open_port({spawn_executable, Program}, [
        {args, Args}, {cd, "/"}, exit_status, stderr_to_stdout, hide
    ]).

%% What the program wrote; it ends by its own deadline.
run(Program, Args) ->
    collect(start(Program, Args), []).

collect(Port, Output) ->
    receive
        {Port, {data, Data}} -> collect(Port, [Output | Data]);
        {Port, {exit_status, 0}} -> lists:flatten(Output);
        {Port, {exit_status, Status}} -> error({hostile_peer_failed, Status, lists:flatten(Output)})
    end.

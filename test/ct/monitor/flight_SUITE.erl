%% The flight recorder on real nodes: whatever ends a link, its cause and what preceded it are in
%% the file.
-module(flight_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_testcase/2]).
-export([
    kill_of_the_peer/1,
    kill_of_the_own_node/1,
    a_silent_peer_is_warned_of_before_the_end/1,
    cut_that_lasts/1,
    many_losses_are_all_in_the_file/1
]).
-export([
    orderly_ends_are_recorded_without_a_warning/1,
    links_of_other_carriers/1,
    two_files_on_one_time_line/1,
    run_before_is_kept/1
]).
-export([
    node_without_links/1,
    a_file_limit_does_not_end_the_node/1,
    places_that_do_not_fit/1,
    recorder_that_is_off/1
]).
-export([node_that_does_not_listen/1]).
-export([
    host_of_the_name/1,
    the_reader_takes_any_bytes/1,
    selections_show_their_events_alone/1,
    history_is_bounded/1,
    round_trips_are_measured/1
]).
-export([file_follows_the_name_of_the_node/1, short_links_of_hidden_nodes_are_counted/1]).
-export([suspension_is_counted/1, queries_are_no_ticks/1, silences_are_told_once_a_minute/1]).

-define(LOSSES, 200).

suite() ->
    [{timetrap, {minutes, 15}}, {ct_hooks, [{inet_rdma_test_nodes, [only_rdma]}]}].

all() ->
    [
        kill_of_the_peer,
        kill_of_the_own_node,
        a_silent_peer_is_warned_of_before_the_end,
        cut_that_lasts,
        many_losses_are_all_in_the_file,
        orderly_ends_are_recorded_without_a_warning,
        links_of_other_carriers,
        two_files_on_one_time_line,
        run_before_is_kept,
        node_without_links,
        a_file_limit_does_not_end_the_node,
        places_that_do_not_fit,
        recorder_that_is_off,
        node_that_does_not_listen,
        host_of_the_name,
        the_reader_takes_any_bytes,
        selections_show_their_events_alone,
        history_is_bounded,
        round_trips_are_measured,
        suspension_is_counted,
        queries_are_no_ticks,
        silences_are_told_once_a_minute,
        file_follows_the_name_of_the_node,
        short_links_of_hidden_nodes_are_counted
    ].

init_per_testcase(Case, Config) when
    Case =:= cut_that_lasts;
    Case =:= many_losses_are_all_in_the_file;
    Case =:= suspension_is_counted
->
    case inet_rdma_test_cutter:why_not() of
        none -> with_directory(Case, Config);
        Why -> inet_rdma_test_link:skip(Why)
    end;
init_per_testcase(Case, Config) ->
    with_directory(Case, Config).

with_directory(Case, Config) ->
    Directory = filename:join(proplists:get_value(priv_dir, Config), atom_to_list(Case)),
    ok = filelib:ensure_dir(filename:join(Directory, "file")),
    [{directory, Directory} | Config].

%% The peer's VM ends without a word.
kill_of_the_peer(Config) ->
    {A, B} = pair(Config, []),
    ok = inet_rdma_test_node:kill(B),
    ok = inet_rdma_test_node:await_nodes(A, []),
    Events = await_event(A, B, <<"nodedown">>),
    ?assertMatch(#{cause := <<"connection_closed">>}, last(<<"nodedown">>, Events)),
    %% Over shared memory the kernel reports the end of the process.
    ?assertMatch(
        #{event := <<"down">>, cause := <<"peer_gone">>},
        last(<<"down">>, await_event(A, B, <<"down">>))
    ),
    ?assertMatch([_], named(<<"nodeup">>, Events)).

%% A node may start its distribution under a name for a while: RabbitMQ does. Its doctor names the
%% file.
file_follows_the_name_of_the_node(Config) ->
    [A, #{node := NameB} = B] = inet_rdma_test_node:start_all([
        {"a", (options(Config, [], []))#{name => none}},
        {"b", inet_rdma_test_node:alone(options(Config, [], []))}
    ]),
    [First, Last] = [
        begin
            Name = list_to_atom(inet_rdma_test_node:unique(Prefix)),
            {ok, _} = call(A, net_kernel, start, [[Name, shortnames]]),
            true = call(A, erlang, set_cookie, [inet_rdma_test]),
            pong = call(A, net_adm, ping, [NameB]),
            NewName = call(A, erlang, node, []),
            File = flight_file(A, NewName),
            case Prefix =:= "prelaunch" of
                true -> ok = call(A, net_kernel, stop, []);
                false -> ok
            end,
            {File, NewName}
        end
     || Prefix <- ["prelaunch", "final"]
    ],
    followed(First, Last, A, B).

followed({First, _}, {Last, NewName}, A, B) ->
    ?assertNot(filelib:is_file(First)),
    %% The node writes nodeup after the ping's answer.
    inet_rdma_test_wait:until({nodeups_of, B}, 10000, fun() ->
        {ok, #{events := Events}} = inet_rdma_flight:read(Last),
        length(named(<<"nodeup">>, of_peer(B, Events))) >= 2 orelse Events
    end),
    {ok, #{node := Recorded, events := Events}} = inet_rdma_flight:read(Last),
    ?assertEqual(atom_to_binary(NewName), Recorded),
    ?assertMatch([_ | _], named(<<"stop">>, Events)),
    #{findings := Findings} = call(A, inet_rdma_doctor, report, []),
    [Text] = [Text || #{about := flight_recorder, text := Text} <- Findings],
    ?assertMatch({_, _}, binary:match(Text, Last)).

%% Waits until the node's file has this name.
flight_file(A, Name) ->
    inet_rdma_test_wait:until({file_of, Name}, 10000, fun() ->
        case call(A, inet_rdma, flight_file, []) of
            {ok, Path} ->
                filename:basename(Path) =:=
                    iolist_to_binary(["inet_rdma-", atom_to_list(Name), ".flight"]) orelse Path;
            none ->
                none
        end
    end),
    {ok, File} = call(A, inet_rdma, flight_file, []),
    File.

%% As each call of rabbitmqctl makes one. A link that lasts, and that of a node that is not hidden,
%% is recorded and logged.
short_links_of_hidden_nodes_are_counted(Config) ->
    {A, B} = pair(Config, []),
    _ = await_event(A, B, <<"nodeup">>),
    ok = call(A, inet_rdma_test_log, install, []),
    ok = call(A, logger, set_primary_config, [level, info]),
    Tool = inet_rdma_test_node:alone(#{carrier => "inet_tcp", args => ["-hidden"]}),
    Ping = lists:flatten(io_lib:format("pong = net_adm:ping(~0p)", [name(A)])),
    [?assertEqual({0, ""}, inet_rdma_test_node:run("tool", Tool, Ping)) || _ <- lists:seq(1, 3)],
    inet_rdma_test_wait:until(short_links, 10000, fun() ->
        Counts = call(A, inet_rdma_links, counts, []),
        proplists:get_value(short_links, Counts) =:= 3 orelse Counts
    end),
    ?assertEqual([], [Event || #{node := <<"tool", _/binary>>} = Event <- events(A)]),
    ?assertEqual([], call(A, inet_rdma_test_log, lines, [])),
    Plain = inet_rdma_test_node:alone(#{carrier => "inet_tcp", args => []}),
    [Lasting, Visible] = inet_rdma_test_node:start_all([{"lasting", Tool}, {"visible", Plain}]),
    [
        begin
            pong = call(Node, net_adm, ping, [name(A)]),
            [await_event(A, Node, Kind) || Kind <- [<<"fallback">>, <<"nodeup">>]],
            ok = inet_rdma_test_log:await(A, [name(Node), "over tcp", "makes no offer"]),
            ok = inet_rdma_test_node:stop(Node),
            await_event(A, Node, <<"nodedown">>)
        end
     || Node <- [Lasting, Visible]
    ].

name(#{node := Name}) -> Name.

%% The host of a node's name need not be that of the system.
host_of_the_name(Config) ->
    Names = [inet_rdma_test_node:unique(Name) ++ "@127.0.0.2" || Name <- ["a", "b"]],
    Options = inet_rdma_test_node:alone(options(Config, [], [])),
    [A, B] = inet_rdma_test_node:start_all([
        {Name, Options#{name => Name, long => true}}
     || Name <- Names
    ]),
    ok = inet_rdma_test_node:connect(A, B),
    _ = await_event(A, B, <<"nodeup">>),
    #{node := Recorded} = recording(A),
    ?assertEqual(hd(Names), binary_to_list(Recorded)).

%% The file of a killed node has its events up to some milliseconds before the kill, and no event of
%% a stop.
kill_of_the_own_node(Config) ->
    {A, B} = pair(Config, []),
    _ = await_event(A, B, <<"up">>),
    ok = inet_rdma_test_node:kill(A),
    #{events := Events, torn := 0} = recording(A),
    ?assertMatch([#{event := <<"start">>} | _], Events),
    ?assertMatch(#{}, last(<<"up">>, of_peer(B, Events))),
    ?assertEqual([], named(<<"stop">>, Events)).

%% The peer is stopped for longer than net_ticktime. The log warns before the link ends.
a_silent_peer_is_warned_of_before_the_end(Config) ->
    {A, B} = pair(Config, ["-kernel", "net_ticktime", "8"]),
    ok = call(A, inet_rdma_test_log, install, []),
    ok = inet_rdma_test_node:suspend(B),
    %% Two processes write these events.
    _ = await_event(A, B, <<"nodedown">>),
    Events = await_event(A, B, <<"down">>),
    ok = inet_rdma_test_node:resume(B),
    ?assertMatch(
        #{cause := <<"net_tick_timeout">>, duration_ns := Age} when Age > 0,
        last(<<"down">>, Events)
    ),
    ?assertMatch(#{cause := <<"net_tick_timeout">>}, last(<<"nodedown">>, Events)),
    ?assertMatch(#{duration_ns := Ns} when Ns >= 4000000000, last(<<"silent">>, Events)),
    ?assertMatch([_, _ | _], named(<<"missed">>, of_peer(B, events(A)))),
    Log = lists:flatten(io_lib:format("~tp", [call(A, inet_rdma_test_log, lines, [])])),
    ?assertMatch({match, _}, re:run(Log, "nothing has come from .* for [0-9]+ s")),
    ?assertMatch(
        {match, _},
        re:run(
            Log,
            "ended: nothing has come from the peer for the time of net_ticktime; before: .*silent"
        )
    ).

%% A peer that can no longer be reached: its listener is gone, and the connection is cut again and
%% again.
cut_that_lasts(Config) ->
    [#{os_pid := PidA} = A, #{os_pid := PidB} = B] = inet_rdma_test_node:start_all(
        2, inet_rdma_test_node:alone(options(Config, [{fabric, tcp}, {survive_ms, 1500}], []))
    ),
    ok = inet_rdma_test_node:connect(A, B),
    ok = inet_rdma_test_node:suspend(B),
    ?assert(inet_rdma_test_cutter:cut(PidA, PidB) > 0),
    Events = await_event(A, B, <<"down">>),
    ok = inet_rdma_test_node:resume(B),
    ?assertMatch(#{cause := <<"not_resumed">>}, last(<<"down">>, Events)),
    ?assertMatch(#{path := <<"tcp">>}, last(<<"lost">>, Events)),
    ?assertNotEqual(<<>>, maps:get(cause, last(<<"lost">>, Events))).

%% The file has each loss, and the end of the link after them.
many_losses_are_all_in_the_file(Config) ->
    Options = options(Config, [{fabric, tcp}, {flight_bytes, 1 bsl 22}], []),
    [A, #{node := NameB} = B] = inet_rdma_test_node:connected_pair(
        inet_rdma_test_node:alone(Options)
    ),
    _ = [lose(A, B, Number) || Number <- lists:seq(1, ?LOSSES)],
    #{losses := Losses} = call(A, inet_rdma, info, [NameB]),
    ok = call(A, inet_rdma_test_log, install, []),
    ok = inet_rdma_test_node:kill(B),
    Events = await_event(A, B, <<"down">>),
    %% The line has the ages of the last events, and none is negative.
    ok = inet_rdma_test_log:await(A, ["ended: ", "; before: ", " s ago"]),
    Log = lists:append(call(A, inet_rdma_test_log, lines, [])),
    ?assertEqual(nomatch, re:run(Log, "-[0-9.]+ s ago", [unicode])),
    Lost = named(<<"lost">>, Events),
    ct:pal(
        "~b losses, ~b events; causes: ~0tp",
        [Losses, length(Events), lists:usort([Cause || #{cause := Cause} <- Lost])]
    ),
    ?assert(length(Lost) >= ?LOSSES),
    [?assertNotEqual(<<>>, Cause) || #{cause := Cause} <- Lost],
    Last = lists:nthtail(length(Events) - 100, Events),
    ?assertMatch([_, _ | _], named(<<"restored">>, Last)),
    ?assertMatch([_ | _], named(<<"down">>, Last)),
    ?assertMatch(
        #{cause := <<"connection_closed">>}, last(<<"nodedown">>, await_event(A, B, <<"nodedown">>))
    ).

%% Until both nodes have another connection.
lose(#{os_pid := PidA, node := NameA} = A, #{os_pid := PidB, node := NameB} = B, Number) ->
    ok = inet_rdma_test_cutter:await(PidA, PidB),
    ?assert(inet_rdma_test_cutter:cut(PidA, PidB) > 0),
    inet_rdma_test_wait:until({resumed, Number}, 20000, fun() ->
        [
            true
         || {Node, Peer} <- [{A, NameB}, {B, NameA}],
            has_resumed(call(Node, inet_rdma, info, [Peer]), Number)
        ] =:= [true, true]
    end).

has_resumed(#{resumes := Resumes}, Number) -> Resumes >= Number;
has_resumed(_, _Number) -> false.

%% disconnect_node and the end of the peer in order are no warnings, and in the file all the same.
orderly_ends_are_recorded_without_a_warning(Config) ->
    {#{node := NameA} = A, #{node := NameB} = B} = pair(Config, []),
    true = call(A, erlang, disconnect_node, [NameB]),
    _ = await_event(A, B, <<"down">>),
    ?assertMatch(
        #{cause := <<"disconnect">>}, last(<<"nodedown">>, await_event(A, B, <<"nodedown">>))
    ),
    _ = await_event(B, A, <<"down">>),
    ?assertNotEqual(NameA, NameB),
    ok = call(B, init, stop, []),
    inet_rdma_test_wait:until(stop, 10000, fun() -> named(<<"stop">>, events(B)) =/= [] end).

%% A peer without inet_rdma: what the VM says of it.
links_of_other_carriers(Config) ->
    [A, B] = inet_rdma_test_node:start_all([
        {"a", inet_rdma_test_node:alone(options(Config, [], []))},
        {"b", inet_rdma_test_node:alone(#{carrier => "inet_tcp", args => []})}
    ]),
    ok = inet_rdma_test_node:connect(A, B),
    ok = inet_rdma_test_node:kill(B),
    Events = await_event(A, B, <<"nodedown">>),
    ?assertMatch(#{path := <<"tcp">>}, last(<<"fallback">>, Events)),
    ?assertMatch(#{cause := <<"connection_closed">>}, last(<<"nodedown">>, Events)).

%% What one node did, and what the other one saw of it.
two_files_on_one_time_line(Config) ->
    {#{node := NameA} = A, #{node := NameB} = B} = pair(Config, []),
    true = call(A, erlang, disconnect_node, [NameB]),
    _ = await_event(A, B, <<"down">>),
    _ = await_event(B, A, <<"down">>),
    {ok, Text} = inet_rdma_flight:run([file_of(A), file_of(B)]),
    Lines = string:lexemes(unicode:characters_to_list(iolist_to_binary(Text)), "\n"),
    Downs = [Line || Line <- Lines, string:find(Line, " down ") =/= nomatch],
    ?assertMatch([_, _], Downs),
    [
        ?assertNotEqual(nomatch, string:find(lists:append(Downs), atom_to_list(Name)))
     || Name <- [NameA, NameB]
    ],
    Times = [hd(string:lexemes(Line, " ")) || "2" ++ _ = Line <- Lines],
    ?assertEqual(lists:sort(Times), Times),
    {ok, Json} = inet_rdma_flight:run(["--json", file_of(A), file_of(B)]),
    ?assertMatch({match, _}, re:run(Json, ["\"seen_by\":\"", atom_to_list(NameB), "\""])).

run_before_is_kept(Config) ->
    {#{name := Name, os_pid := OsPid} = A, B} = pair(Config, []),
    ok = inet_rdma_test_node:kill(A),
    ok = inet_rdma_test_node:await_exit(A, 20000),
    ok = inet_rdma_test_node:await_nodes(B, []),
    Again = inet_rdma_test_node:start("a", (inet_rdma_test_node:alone(options(Config, [], [])))#{
        name => Name
    }),
    %% Without a link the file is that of the run before.
    #{os_pid := OsPid, events := Before} = recording(A),
    ok = inet_rdma_test_node:connect(Again, B),
    inet_rdma_test_wait:until(new_file, 20000, fun() ->
        maps:get(os_pid, recording(Again)) =/= OsPid
    end),
    {ok, #{os_pid := OsPid, events := Kept}} = inet_rdma_flight:read(file_of(A) ++ ".1"),
    ?assertEqual(Before, Kept).

%% Tools that start a node and end it leave nothing.
node_without_links(Config) ->
    {Status, _} = inet_rdma_test_node:run(
        "n", options(Config, [], []), "pong = net_adm:ping(node())"
    ),
    ?assertEqual(0, Status),
    ?assertEqual({ok, []}, file:list_dir(proplists:get_value(directory, Config))).

%% The kernel ends a process that writes beyond the limit by a signal, unless that is blocked.
a_file_limit_does_not_end_the_node(Config) ->
    Script = filename:join(proplists:get_value(priv_dir, Config), "limited"),
    ok = file:write_file(Script, "#!/bin/sh\nulimit -f 60000\nexec \"$@\"\n"),
    ok = file:change_mode(Script, 8#755),
    goes_on_without(Config, [{flight_bytes, 1 bsl 26}], #{under => [Script]}, "File too large").

places_that_do_not_fit(Config) ->
    Directory = proplists:get_value(directory, Config),
    goes_on_without(
        Config,
        [{flight_directory, list_to_atom(Directory ++ "/missing")}],
        "No such file or directory"
    ),
    Name = inet_rdma_test_node:unique("squatted"),
    {ok, Host} = inet:gethostname(),
    Squat = fun(Number) ->
        Path = filename:join(Directory, "inet_rdma-" ++ Name ++ "@" ++ Host ++ Number ++ ".flight"),
        ok = file:make_symlink("/etc/passwd", Path)
    end,
    [
        Squat(Number)
     || Number <- ["" | ["+" ++ integer_to_list(Number) || Number <- lists:seq(2, 64)]]
    ],
    goes_on_without(Config, [], #{name => Name}, "is not a file of this user"),
    {ok, Untouched} = file:read_file("/etc/passwd"),
    ?assertNotMatch(<<"inetrdma", _/binary>>, Untouched),
    ok = file:change_mode(Directory, 8#777),
    goes_on_without(Config, [], "sticky bit").

goes_on_without(Config, Rdma, Word) -> goes_on_without(Config, Rdma, #{}, Word).

%% The node has its links and their history without a file, and logs one line about that.
goes_on_without(Config, Rdma, More, Word) ->
    Options = maps:merge(options(Config, Rdma, []), More),
    [A, #{node := NameB} = B] = inet_rdma_test_node:start_all([
        {"a", inet_rdma_test_node:alone(Options)},
        {"b", inet_rdma_test_node:alone(options(Config, [{flight_recorder, false}], []))}
    ]),
    ok = call(A, inet_rdma_test_log, install, []),
    ok = inet_rdma_test_node:connect(A, B),
    %% The next event brings the news of the file.
    inet_rdma_test_wait:until({logged, Word}, 20000, fun() ->
        ok = call(A, inet_rdma_recorder, tick, [heard, atom_to_binary(NameB), self(), 0, 1]),
        call(A, inet_rdma_test_log, contains, [Word])
    end),
    Said = [
        Line
     || Line <- call(A, inet_rdma_test_log, lines, []),
        string:find(Line, "flight recorder") =/= nomatch
    ],
    ?assertMatch([_], Said),
    ?assertMatch([_ | _], call(A, inet_rdma, history, [NameB])).

recorder_that_is_off(Config) ->
    {A, #{node := NameB}} = pair(Config, [], [{flight_recorder, false}]),
    ?assertEqual([], call(A, inet_rdma, history, [NameB])),
    ?assertEqual({ok, []}, file:list_dir(proplists:get_value(directory, Config))).

%% Names of the moment leave no files.
node_that_does_not_listen(Config) ->
    {Status, _} = inet_rdma_test_node:run(
        "n", options(Config, [], ["-dist_listen", "false"]), "true"
    ),
    ?assertEqual(0, Status),
    ?assertEqual({ok, []}, file:list_dir(proplists:get_value(directory, Config))).

%% The reader takes any bytes.
the_reader_takes_any_bytes(Config) ->
    {A, B} = pair(Config, []),
    ok = inet_rdma_test_node:kill(B),
    _ = await_event(A, B, <<"nodedown">>),
    {ok, Good} = file:read_file(file_of(A)),
    File = filename:join(proplists:get_value(directory, Config), "hostile"),
    Hostile = fun(Bytes) ->
        ok = file:write_file(File, Bytes),
        case inet_rdma_flight:run([File]) of
            {ok, Text} -> iolist_size(Text) > 0;
            {error, Why} -> iolist_size(Why) > 0
        end
    end,
    [
        ?assert(Hostile(binary:part(Good, 0, Length)))
     || Length <- [0, 1, 8, 60, 4095, 4096, 4097, 4352, 5000]
    ],
    [?assert(Hostile(damaged(Good))) || _ <- lists:seq(1, 200)],
    [?assert(Hostile(rand:bytes(rand:uniform(10000)))) || _ <- lists:seq(1, 100)],
    [?assert(Hostile(resealed(Good))) || _ <- lists:seq(1, 200)],
    ?assertMatch({error, _}, inet_rdma_flight:run([filename:join(filename:dirname(File), "none")])),
    ?assertMatch({error, _}, inet_rdma_flight:run([filename:dirname(File)])).

%% Some bytes among the first events.
damaged(Good) ->
    lists:foldl(
        fun(_, Bytes) ->
            At = rand:uniform(min(6000, byte_size(Good))) - 1,
            <<Before:At/binary, _, After/binary>> = Bytes,
            <<Before/binary, (rand:uniform(256) - 1), After/binary>>
        end,
        Good,
        lists:seq(1, rand:uniform(20))
    ).

%% A slot of any bytes, whose checksum is right.
resealed(Good) ->
    <<Header:4096/binary, _:256/binary, Rest/binary>> = Good,
    <<Stamp:8/binary, _:4/binary, Body/binary>> = rand:bytes(256),
    <<Header/binary, Stamp/binary, (erlang:crc32([Stamp, Body])):32/little, Body/binary,
        Rest/binary>>.

selections_show_their_events_alone(Config) ->
    {A, #{node := NameB} = B} = pair(Config, []),
    ok = inet_rdma_test_node:kill(B),
    _ = await_event(A, B, <<"nodedown">>),
    _ = await_event(A, B, <<"down">>),
    Count = fun(Arguments) ->
        {ok, Text} = inet_rdma_flight:run([file_of(A) | Arguments]),
        {match, [Number]} = re:run(Text, "(\\d+) events", [{capture, [1], list}]),
        list_to_integer(Number)
    end,
    All = Count([]),
    OfB = Count(["--link", atom_to_list(NameB)]),
    ?assert(0 < OfB andalso OfB < All),
    ?assertEqual(0, Count(["--link", "nobody@nowhere"])),
    ?assertEqual(0, Count(["--since", "2100-01-01T00:00:00Z"])),
    ?assertEqual(0, Count(["--until", "2000-01-01T00:00:00+02:00"])),
    ?assertEqual(All, Count(["--since", "2000-01-01T00:00:00", "--until", "2100-01-01T00:00:00"])),
    [
        ?assertMatch({error, _}, inet_rdma_flight:run(Bad))
     || Bad <- [[], ["--json"], ["--since"], ["--since", "yesterday", "f"], ["--what", "f"]]
    ].

history_is_bounded(Config) ->
    {#{node := NameA} = A, #{node := NameB} = B} = pair(Config, []),
    [
        ok = call(A, inet_rdma_recorder, record, [test, NameB, #{amount => Number}])
     || Number <- lists:seq(1, 100)
    ],
    ok = call(A, inet_rdma_recorder, record, [test, NameA, #{}]),
    ok = inet_rdma_test_node:kill(B),
    _ = await_event(A, B, <<"nodedown">>),
    History = call(A, inet_rdma, history, [NameB]),
    ?assertEqual(50, length(History)),
    ?assertMatch(#{event := <<"test">>, amount := Amount} when Amount > 50, hd(History)),
    Sequences = [Sequence || #{sequence := Sequence} <- History],
    ?assertEqual(lists:sort(Sequences), Sequences).

%% Over TCP, once in a second; over shared memory nothing is asked.
round_trips_are_measured(Config) ->
    Options = options(Config, [{fabric, tcp}], []),
    Nodes = inet_rdma_test_node:connected_pair(inet_rdma_test_node:alone(Options)),
    [
        begin
            inet_rdma_test_wait:until({round_trips, Node}, 20000, fun() ->
                Peer = call(Node, erpc, call, [Peer, erlang, node, []]),
                case call(Node, inet_rdma, info, [Peer]) of
                    #{
                        round_trips := Count,
                        round_trip_p50_us := P50,
                        round_trip_p99_us := P99,
                        round_trip_max_us := Max,
                        round_trip_up_p50_us := _,
                        round_trip_up_p99_us := _,
                        round_trip_up_max_us := All
                    } when Count >= 3 ->
                        P50 =< P99 andalso P99 =< Max andalso Max =< All;
                    Other ->
                        Other
                end
            end)
        end
     || #{node := _} = Node <- Nodes, #{node := Peer} <- Nodes -- [Node]
    ].

%% All the time without a path, of several losses.
suspension_is_counted(Config) ->
    Options = options(Config, [{fabric, tcp}], []),
    [A, #{node := NameB} = B] = inet_rdma_test_node:connected_pair(
        inet_rdma_test_node:alone(Options)
    ),
    ?assertMatch(#{suspended := false, suspended_ms := 0}, call(A, inet_rdma, info, [NameB])),
    #{os_pid := PidA} = A,
    #{os_pid := PidB} = B,
    ok = inet_rdma_test_node:suspend(B),
    ?assert(inet_rdma_test_cutter:cut(PidA, PidB) > 0),
    inet_rdma_test_wait:until(suspended, 10000, fun() ->
        case call(A, inet_rdma, info, [NameB]) of
            #{suspended := true, suspended_ms := Ms} when Ms >= 300 -> true;
            Other -> Other
        end
    end),
    ok = inet_rdma_test_node:resume(B),
    inet_rdma_test_wait:until(resumed, 20000, fun() ->
        case call(A, inet_rdma, info, [NameB]) of
            #{suspended := false, suspended_ms := Ms} when Ms >= 300 -> true;
            Other -> Other
        end
    end).

%% Between two ticks of net_kernel, which are far apart here.
queries_are_no_ticks(Config) ->
    {A, #{node := NameB} = B} = pair(Config, ["-kernel", "net_ticktime", "3600"]),
    [
        begin
            {ok, Infos} = call(A, net_kernel, nodes_info, []),
            ?assert(lists:keymember(NameB, 1, Infos)),
            {ok, _} = call(A, net_kernel, node_info, [NameB]),
            ?assertMatch(#{node := NameB}, call(A, inet_rdma, info, [NameB])),
            _ = call(A, inet_rdma_doctor, report, [])
        end
     || _ <- lists:seq(1, 20)
    ],
    Names = [Name || #{event := Name} <- of_peer(B, events(A))],
    ?assertEqual([], [Name || Name <- Names, Name =:= <<"missed">> orelse Name =:= <<"heard">>]).

%% A peer that stands still time and again.
silences_are_told_once_a_minute(Config) ->
    {A, B} = pair(Config, ["-kernel", "net_ticktime", "8"]),
    ok = call(A, inet_rdma_test_log, install, []),
    StartS = erlang:monotonic_time(second),
    ok = inet_rdma_test_node:suspend(B),
    _ = await_event(A, B, <<"silent">>),
    ok = inet_rdma_test_node:resume(B),
    ok = inet_rdma_test_log:await(A, ["is heard again"]),
    ok = inet_rdma_test_node:suspend(B),
    Silence = inet_rdma_test_wait:until(second_silence, 60000, fun() ->
        Events = of_peer(B, events(A)),
        Silent = lists:takewhile(
            fun(#{event := Name}) -> Name =/= <<"heard">> end, lists:reverse(Events)
        ),
        length(Silent) >= 3 andalso {ok, Silent}
    end),
    ok = inet_rdma_test_node:resume(B),
    ?assertMatch(
        [#{event := <<"missed">>, duration_ns := Ns} | _] when Ns >= 4000000000,
        named(<<"missed">>, Silence)
    ),
    Told = [
        Line
     || Line <- call(A, inet_rdma_test_log, lines, []),
        string:find(Line, "nothing has come") =/= nomatch
    ],
    Minutes = (erlang:monotonic_time(second) - StartS) div 60,
    Downs = length(named(<<"nodedown">>, of_peer(B, events(A)))),
    ?assert(length(Told) =< 1 + Minutes + Downs).

options(Config, Rdma, Args) ->
    _ = put(directory, proplists:get_value(directory, Config)),
    Directory = {flight_directory, list_to_atom(proplists:get_value(directory, Config))},
    #{rdma => [Directory || not lists:keymember(flight_directory, 1, Rdma)] ++ Rdma, args => Args}.

pair(Config, Args) -> pair(Config, Args, []).

pair(Config, Args, Rdma) ->
    [A, B] = inet_rdma_test_node:connected_pair(
        inet_rdma_test_node:alone(options(Config, Rdma, Args))
    ),
    _ = [await_event(X, Y, <<"nodeup">>) || {X, Y} <- [{A, B}, {B, A}], Rdma =:= []],
    {A, B}.

file_of(#{node := Node}) ->
    filename:join(directory(), "inet_rdma-" ++ atom_to_list(Node) ++ ".flight").

directory() -> get(directory).

recording(Node) ->
    {ok, Recording} = inet_rdma_flight:read(file_of(Node)),
    Recording.

events(Node) ->
    #{events := Events} = recording(Node),
    Events.

of_peer(#{node := Peer}, Events) ->
    [Event || #{node := Node} = Event <- Events, Node =:= atom_to_binary(Peer)].

named(Name, Events) -> [Event || #{event := Is} = Event <- Events, Is =:= Name].

last(Name, Events) -> lists:last(named(Name, Events)).

%% All events of the link, once this one is among them. The node might not have made the file yet.
await_event(Node, Peer, Name) ->
    inet_rdma_test_wait:until({event, Name}, 60000, fun() ->
        filelib:is_file(file_of(Node)) andalso named(Name, of_peer(Peer, events(Node))) =/= []
    end),
    of_peer(Peer, events(Node)).

call(Node, Module, Function, Args) -> inet_rdma_test_node:call(Node, Module, Function, Args).

%% Strangers at the distribution port of a node whose links could be resumed there: whatever they
%% say, they get no link, hold nothing, and disturb none. What they say is made of the bytes by
%% which the nodes themselves have resumed.
-module(stranger_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_node, [call/4, name/1]).

-export([all/0, suite/0, groups/0, init_per_testcase/2]).
-export([
    replayed_bytes_resume_no_session/1,
    altered_on_the_way/1,
    garbage_resumes_no_session/1,
    crowd_of_resumes/1,
    crowd_that_is_silent/1
]).

-define(FLIPS, 40).
-define(CROWD, 400).
%% Bits of a resume: after the length, the word that begins it and its version stands the session's
%% name.
-define(NAME_FROM, (8 * (2 + 16 + 1))).
-define(NAME_TO, (?NAME_FROM + 128)).
%% A stranger that the node neither answers nor closes after so long counts as ignored.
-define(SILENCE_MS, 300).
%% More lines than a crowd of strangers may leave in the log.
-define(LINES, 20).

suite() ->
    [{timetrap, {minutes, 4}}, {ct_hooks, [{inet_rdma_test_nodes, [only_sessions, paths]}]}].

all() ->
    [{group, Group} || {Group, _, _} <- groups()].

groups() ->
    inet_rdma_test_paths:groups_in_clear([
        replayed_bytes_resume_no_session,
        altered_on_the_way,
        garbage_resumes_no_session,
        crowd_of_resumes,
        crowd_that_is_silent
    ]).

%% Two nodes whose link has been resumed, over a relay that has heard it.
init_per_testcase(_Case, Config) ->
    Options = inet_rdma_test_paths:options(Config),
    #{a := A, b := B, relay := Relay} =
        Detour =
        inet_rdma_test_detour:start(proplists:get_value(priv_dir, Config), Options, Options),
    ok = inet_rdma_test_node:connect(A, B),
    Watchers = [{Node, inet_rdma_test_node:watch(Node, Peer)} || {Node, Peer} <- [{A, B}, {B, A}]],
    [resumed(Relay) || _ <- [1, 2, 3]],
    [_First | Resumes] = [
        Opening
     || Opening <- inet_rdma_test_relay:openings(Relay), both(Opening)
    ],
    ct:log("~p", [Resumes]),
    ok = call(B, inet_rdma_test_log, install, []),
    [
        {a, A},
        {b, B},
        {relay, Relay},
        {watchers, Watchers},
        {resumes, Resumes},
        {port, inet_rdma_test_detour:port_of(Detour)}
        | Config
    ].

%% Loses the connection, and waits until the next one has nothing more to say.
resumed(Relay) ->
    Count = length(inet_rdma_test_relay:openings(Relay)),
    _ = inet_rdma_test_relay:lose(Relay, reset),
    inet_rdma_test_wait:until(next_connection, 20000, fun() ->
        Openings = inet_rdma_test_relay:openings(Relay),
        length(Openings) > Count andalso both(lists:last(Openings))
    end),
    quiet(inet_rdma_test_relay:openings(Relay), Relay).

both(#{to := To, back := Back}) -> To =/= <<>> andalso Back =/= <<>>.

quiet(Before, Relay) ->
    receive
    after ?SILENCE_MS -> ok
    end,
    case inet_rdma_test_relay:openings(Relay) of
        Before -> ok;
        Later -> quiet(Later, Relay)
    end.

%% What a node has said to resume, whole and in part.
replayed_bytes_resume_no_session(Config) ->
    Port = proplists:get_value(port, Config),
    Said = [
        {Resume, Bytes}
     || #{to := To} = Resume <- resumes(Config),
        Bytes <- lists:usort([byte_size(To) | [rand:uniform(byte_size(To)) || _ <- lists:seq(1, 8)]])
    ],
    same_connection(Config, fun() ->
        [
            begin
                {_, Answer} = inet_rdma_test_stranger:say(
                    Port, binary:part(To, 0, Bytes), ?SILENCE_MS
                ),
                ?assertNotEqual({Bytes, Back}, {Bytes, Answer})
            end
         || {#{to := To, back := Back}, Bytes} <- Said
        ]
    end),
    unharmed(Config).

%% The link keeps the connection that it has.
same_connection(Config, Do) ->
    Relay = proplists:get_value(relay, Config),
    Count = inet_rdma_test_relay:accepted(Relay),
    _ = Do(),
    called(Config, same_connection),
    ?assertEqual(Count, inet_rdma_test_relay:accepted(Relay)).

%% Each bit of it counts: a node that cannot prove that it knows the secret resumes nothing, and the
%% link goes on with the next connection. Not so the session's name: a node that does not know it
%% says so, which ends the link. Frames of the session that follow have no proof: whoever alters
%% these ends a link as it could one of inet_tcp.
altered_on_the_way(Config) ->
    Relay = proplists:get_value(relay, Config),
    #{to := To, back := Back} = lists:last(resumes(Config)),
    Bits =
        [
            {to, Bit}
         || Bit <- lists:seq(0, proved_bits(To) - 1), Bit < ?NAME_FROM orelse Bit >= ?NAME_TO
        ] ++
            [{back, Bit} || Bit <- lists:seq(0, proved_bits(Back) - 1)],
    [
        begin
            {Direction, Bit} = lists:nth(rand:uniform(length(Bits)), Bits),
            Count = whole_resumes(Relay),
            ok = inet_rdma_test_relay:shape(Relay, {flip, Direction, Bit}),
            _ = inet_rdma_test_relay:lose(Relay, reset),
            %% By another connection than the altered one, of either side.
            inet_rdma_test_wait:until({resumed_after_flip, Direction, Bit}, 20000, fun() ->
                whole_resumes(Relay) > Count
            end),
            called(Config, {flip, Direction, Bit})
        end
     || _ <- lists:seq(1, ?FLIPS)
    ],
    unharmed(Config).

whole_resumes(Relay) ->
    length([
        whole
     || Opening <- inet_rdma_test_relay:openings(Relay),
        lists:all(fun is_whole/1, maps:values(Opening))
    ]).

is_whole(<<First:16, _:First/binary, Second:16, _:Second/binary, _/binary>>) -> true;
is_whole(_) -> false.

%% Each side says two messages, each after its length.
proved_bits(<<First:16, _:First/binary, Second:16, _:Second/binary, _/binary>>) ->
    8 * (2 + First + 2 + Second).

%% Random bytes, beginnings of a resume with something else after them, lengths that are none.
garbage_resumes_no_session(Config) ->
    Port = proplists:get_value(port, Config),
    #{to := To} = lists:last(resumes(Config)),
    Random = [rand:bytes(rand:uniform(200)) || _ <- lists:seq(1, 20)],
    Begun = [
        <<(binary:part(To, 0, rand:uniform(byte_size(To)) - 1))/binary, (rand:bytes(100))/binary>>
     || _ <- lists:seq(1, 30)
    ],
    Lengths = [<<Length:16, (rand:bytes(50))/binary>> || Length <- [0, 1, 2, 255, 65535]],
    Said = Random ++ Begun ++ Lengths ++ [<<>>, rand:bytes(1000000)],
    same_connection(Config, fun() ->
        [inet_rdma_test_stranger:say(Port, Bytes, 50) || Bytes <- Said]
    end),
    unharmed(Config).

%% Resumes of sessions that are none, many at the same time: each is closed, while the link itself
%% is resumed.
crowd_of_resumes(Config) ->
    Words = fun(_) -> altered(maps:get(to, lists:last(resumes(Config)))) end,
    crowd(Config, Words),
    Lines = call(proplists:get_value(b, Config), inet_rdma_test_log, lines, []),
    ct:pal("~b lines in the log: ~p", [length(Lines), lists:sublist(Lines, 3)]),
    ?assert(length(Lines) < ?LINES),
    unharmed(Config).

%% Another random part in the middle: neither the first bytes, by which a resume is known, nor the
%% length differ.
altered(To) ->
    Kept = byte_size(To) div 3,
    <<Start:Kept/binary, _:Kept/binary, Rest/binary>> = To,
    <<Start/binary, (rand:bytes(Kept))/binary, Rest/binary>>.

%% Nothing is said: the set-up time of the node ends them.
crowd_that_is_silent(Config) ->
    crowd(Config, fun(_) -> <<>> end),
    unharmed(Config).

crowd(Config, Words) ->
    [B, Port, Relay] = [proplists:get_value(Key, Config) || Key <- [b, port, relay]],
    Before = inet_rdma_test_usage:of_node(B),
    Crowd = inet_rdma_test_stranger:crowd(Port, ?CROWD, Words),
    Meanwhile = inet_rdma_test_usage:of_node(B),
    resumed(Relay),
    inet_rdma_test_wait:until(all_closed, 30000, fun() ->
        case inet_rdma_test_stranger:left(Crowd) of
            0 -> true;
            Left -> {open, Left}
        end
    end),
    ct:pal("before: ~0p~nwith the crowd: ~0p", [Before, Meanwhile]),
    ok = inet_rdma_test_stranger:leave(Crowd),
    ok = inet_rdma_test_usage:await(B, Before),
    called(Config, crowd).

%% The link that was there all the time still is, and carries all of distribution.
unharmed(Config) ->
    called(Config, unharmed),
    ok = inet_rdma_test_link:exercise(
        proplists:get_value(a, Config), proplists:get_value(b, Config)
    ),
    Watchers = proplists:get_value(watchers, Config),
    Seen = [call(Node, inet_rdma_test_watch, seen, [Watcher]) || {Node, Watcher} <- Watchers],
    _ =
        case Seen =/= [[], []] of
            true ->
                ct:pal("~p", [call(proplists:get_value(b, Config), inet_rdma_test_log, lines, [])]);
            false ->
                ok
        end,
    ?assertEqual([[], []], Seen).

called(Config, What) ->
    [A, B] = [proplists:get_value(Key, Config) || Key <- [a, b]],
    [
        ?assertEqual({What, name(Y)}, {What, call(X, erpc, call, [name(Y), erlang, node, []])})
     || {X, Y} <- [{A, B}, {B, A}]
    ].

resumes(Config) -> proplists:get_value(resumes, Config).

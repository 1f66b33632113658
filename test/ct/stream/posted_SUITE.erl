%% Posted sends and receives: in order, each done once, whatever else happens to the connection. And
%% files.
-module(posted_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_pair, [ends/1, ends/2, do/3, start/3, result/1, state/1]).

-export([all/0, groups/0, suite/0]).
-export([
    sizes_in_order/1,
    posts_of_random_sizes_arrive_in_order/1,
    both_ways_at_once/1,
    against_blocking_calls/1,
    packets_of_length_4/1
]).
-export([
    a_receive_of_no_length_takes_what_comes/1,
    posted_receives_land_whatever_their_size/1,
    longer_than_a_landing_buffer/1
]).
-export([bound_on_sends/1, bound_on_receives/1, memory_for_a_slow_reader/1]).
-export([
    cancel_a_send/1,
    cancel_a_receive/1,
    send_goes_behind_what_is_posted/1,
    posted_goes_behind_a_send/1
]).
-export([death_in_the_middle_of_a_send/1, writers_by_turns/1, other_ways_of_reading_are_refused/1]).
-export([
    kill_of_the_peer/1,
    a_close_here_ends_posted_operations/1,
    close_while_others_post/1,
    close_of_the_peer/1,
    a_half_close_ends_posted_sends/1,
    death_of_the_owner/1
]).
-export([
    sendfile_whole_and_parts/1,
    sendfile_sends_a_sparse_file/1,
    sendfile_that_shrinks/1,
    sendfile_returns_errors_of_files/1
]).

-define(MB, 1048576).

suite() ->
    [
        {timetrap, {minutes, 2}},
        {ct_hooks, [{inet_rdma_test_nodes, [only_rdma]}, inet_rdma_test_pair]}
    ].

all() ->
    [{group, Fabric} || {Fabric, _, _} <- groups()].

groups() ->
    inet_rdma_test_pair:groups([
        sizes_in_order,
        posts_of_random_sizes_arrive_in_order,
        both_ways_at_once,
        against_blocking_calls,
        packets_of_length_4,
        a_receive_of_no_length_takes_what_comes,
        posted_receives_land_whatever_their_size,
        longer_than_a_landing_buffer,
        bound_on_sends,
        bound_on_receives,
        memory_for_a_slow_reader,
        cancel_a_send,
        cancel_a_receive,
        send_goes_behind_what_is_posted,
        posted_goes_behind_a_send,
        death_in_the_middle_of_a_send,
        writers_by_turns,
        other_ways_of_reading_are_refused,
        kill_of_the_peer,
        a_close_here_ends_posted_operations,
        close_while_others_post,
        close_of_the_peer,
        a_half_close_ends_posted_sends,
        death_of_the_owner,
        sendfile_whole_and_parts,
        sendfile_sends_a_sparse_file,
        sendfile_that_shrinks,
        sendfile_returns_errors_of_files
    ]).

sizes_in_order(Config) ->
    {X, Y} = ends(Config),
    Sizes = [
        1, 2, 3, 4, 63, 64, 65, 4096, 16383, 16384, 65536, 69631, 69632, 69633, 262144, ?MB, 3 * ?MB
    ],
    Received = refs(posts(Y, recv, [Sizes])),
    Sent = posts(X, send, [Sizes]),
    ?assertEqual(
        [{sent, Ref, {ok, Size}} || {{{ok, Ref}, _}, Size} <- lists:zip(Sent, Sizes)],
        posts(X, done, [length(Sizes)])
    ),
    Expected = [
        {received, Ref, {ok, Size, Hash}}
     || {Ref, {{_, Hash}, Size}} <- lists:zip(Received, lists:zip(Sent, Sizes))
    ],
    ?assertEqual(Expected, posts(Y, done, [length(Sizes)])),
    %% A send of no bytes has its message, too.
    [{{ok, Empty}, _}] = posts(X, send, [[0]]),
    ?assertEqual([{sent, Empty, {ok, 0}}], posts(X, done, [1])),
    ?assertEqual({[], []}, {posts(X, there, []), posts(Y, there, [])}).

posts_of_random_sizes_arrive_in_order(Config) ->
    {X, Y} = ends(Config, [{sends_max, 7}, {receives_max, 9}]),
    {V, W} = ends(Config, [{ring_bytes, 8192}, {landing_buffers, 3}, {call_bytes, 4096}]),
    [
        begin
            Seed = rand:uniform(1 bsl 32),
            ct:log("seed ~b", [Seed]),
            There = start(P, posts, [send_pipeline, [Seed]]),
            Back = start(Q, posts, [recv_pipeline, [Seed + 1]]),
            ?assertEqual({Seed, result(There)}, {Seed, result(Back)})
        end
     || {P, Q} <- [{X, Y}, {Y, X}, {V, W}, {W, V}]
    ].

%% Posted sends and receives in both directions at the same time, also with few buffers and in each
%% mode.
both_ways_at_once(Config) ->
    Few = [
        {ring_bytes, 8192},
        {receive_slots, 16},
        {landing_buffers, 3},
        {call_bytes, 4096},
        {sends_max, 3}
    ],
    [
        begin
            {X, Y} = ends(Config, Options),
            {V, W} = {bystander(X), bystander(Y)},
            There = {
                start(V, posts, [send_pipeline, [Seed]]),
                start(Y, posts, [recv_pipeline, [Seed + 1]])
            },
            Back = {
                start(W, posts, [send_pipeline, [Seed + 2]]),
                start(X, posts, [recv_pipeline, [Seed + 3]])
            },
            [
                ?assertEqual({Seed, result(Sent)}, {Seed, result(Received)})
             || {Sent, Received} <- [There, Back]
            ]
        end
     || Options <- [[], Few, [{polling, event}], [{mode, indirect_only}], [{mode, direct_only}]],
        Seed <- [1, 10, 100]
    ].

against_blocking_calls(Config) ->
    {X, Y} = ends(Config),
    Posting = start(X, posts, [send_pipeline, [1]]),
    {Size, Hash} = do(Y, collect_hash, [3000000]),
    ?assertEqual({Size, Hash}, result(Posting)),
    Reading = start(Y, posts, [recv_pipeline, [2]]),
    {ok, Size, Other} = do(X, send_made, [3000000]),
    ?assertEqual({Size, Other}, result(Reading)).

packets_of_length_4(Config) ->
    {X, Y} = ends(Config, [{packet, 4}]),
    Sizes = [0, 1, 1000, 70000, 300000],
    [?assertMatch({ok, _}, Posted) || Posted <- posts(Y, recv, [[0 || _ <- Sizes]])],
    Sent = posts(X, send, [Sizes]),
    ?assertEqual(
        [{ok, Size, Hash} || {Size, {_, Hash}} <- lists:zip(Sizes, Sent)],
        [Result || {received, _, Result} <- posts(Y, done, [length(Sizes)])]
    ),
    ?assertEqual([{ok, Size} || Size <- Sizes], [
        Result
     || {sent, _, Result} <- posts(X, done, [length(Sizes)])
    ]),
    ?assertEqual([{error, einval}], posts(Y, recv, [[10]])).

a_receive_of_no_length_takes_what_comes(Config) ->
    {X, Y} = ends(Config),
    [{ok, First}, {ok, Second}] = posts(Y, recv, [[0, 0]]),
    [{_, Hash}] = posts(X, send, [[1000]]),
    ?assertEqual([{received, First, {ok, 1000, Hash}}], posts(Y, done, [1])),
    [{_, Last}] = posts(X, send, [[10]]),
    ?assertEqual([{received, Second, {ok, 10, Last}}], posts(Y, done, [1])).

%% The peer writes each into the buffer that was made for it, and the data is that buffer. Where the
%% peer is not trusted, smaller data than direct_bytes is copied out of it.
posted_receives_land_whatever_their_size(Config) ->
    {X, Y} = ends(Config),
    Sizes = [10, 100, 4000, 16000, 65536, 69632],
    [{ok, _} = Posted || Posted <- posts(Y, recv, [Sizes])],
    advertised(X, length(Sizes)),
    Sent = posts(X, send, [Sizes]),
    ?assertEqual(
        [{Size, Hash} || {Size, {_, Hash}} <- lists:zip(Sizes, Sent)],
        posts(Y, keep, [length(Sizes)])
    ),
    #{
        percent_direct_received := Percent,
        direct_transfers_received := Transfers,
        landing_used := Used
    } = do(Y, info, []),
    Held =
        case do(Y, info, []) of
            #{safeguard := trusted} -> Sizes;
            #{safeguard := windows} -> [Size || Size <- Sizes, Size >= 16384]
        end,
    ?assertEqual({100.0, length(Sizes), length(Held)}, {Percent, Transfers, Used}),
    ok = posts(Y, drop, []),
    inet_rdma_test_wait:until(buffers_are_free, 10000, fun() ->
        case do(Y, info, []) of
            #{landing_used := 0} -> true;
            #{landing_used := Other} -> Other
        end
    end).

longer_than_a_landing_buffer(Config) ->
    {X, Y} = ends(Config),
    [{ok, Ref}] = posts(Y, recv, [[?MB]]),
    advertised(X, 16),
    [{_, Hash}] = posts(X, send, [[?MB]]),
    ?assertEqual([{received, Ref, {ok, ?MB, Hash}}], posts(Y, done, [1])),
    ?assertMatch(#{percent_direct_received := 100.0, landing_used := 0}, do(Y, info, [])).

bound_on_sends(Config) ->
    {X, Y} = ends(Config, [{sends_max, 3}]),
    {Count, {error, enobufs}, Hash} = posts(X, send_while, [?MB]),
    ?assert(Count >= 3),
    ?assertMatch({ok, [{send_pend, Pending}]} when Pending > 0, do(X, getstat, [[send_pend]])),
    ?assertEqual({Count * ?MB, Hash}, do(Y, collect_hash, [Count * ?MB])),
    ?assertEqual(Count, length([ok || {sent, _, {ok, ?MB}} <- posts(X, done, [Count])])),
    %% There is room again.
    ?assertMatch([{{ok, _}, _}], posts(X, send, [[1]])).

bound_on_receives(Config) ->
    {X, Y} = ends(Config, [{receives_max, 3}]),
    ?assertMatch([{ok, _}, {ok, _}, {ok, _}, {error, enobufs}], posts(Y, recv, [[10, 20, 30, 40]])),
    Sent = posts(X, send, [[10, 20, 30]]),
    ?assertEqual(
        [{ok, Size, Hash} || {Size, {_, Hash}} <- lists:zip([10, 20, 30], Sent)],
        [Result || {received, _, Result} <- posts(Y, done, [3])]
    ),
    ?assertMatch([{ok, _}], posts(Y, recv, [[40]])).

%% A process that posts as much as is taken keeps no more than that in memory.
memory_for_a_slow_reader(Config) ->
    {X, Y} = ends(Config, [{sends_max, 8}]),
    Before = posts(X, grow, []),
    {Count, {error, enobufs}, Hash} = posts(X, send_while, [?MB]),
    [
        ?assertEqual({0, {error, enobufs}}, {C, E})
     || _ <- lists:seq(1, 50), {C, E, _} <- [posts(X, send_while, [?MB])]
    ],
    inet_rdma_test_wait:until(memory_is_bounded, 10000, fun() ->
        case posts(X, grow, []) - Before of
            Grown when Grown =< 12 * ?MB -> true;
            Grown -> Grown
        end
    end),
    ?assertEqual({Count * ?MB, Hash}, do(Y, collect_hash, [Count * ?MB])).

cancel_a_send(Config) ->
    {X, Y} = ends(Config, [{ring_bytes, 65536}]),
    [{{ok, First}, Hash}, {{ok, Second}, _}, {{ok, Third}, Last}] = posts(X, send, [
        [?MB, 1000, 2000]
    ]),
    %% Some bytes of the first send have been sent.
    ?assertEqual({error, too_late}, posts(X, cancel, [First])),
    ?assertEqual(ok, posts(X, cancel, [Second])),
    ?assertEqual({error, too_late}, posts(X, cancel, [Second])),
    ?assertEqual({?MB, Hash}, posts(Y, take, [?MB])),
    ?assertEqual({2000, Last}, posts(Y, take, [2000])),
    ?assertEqual([{sent, First, {ok, ?MB}}, {sent, Third, {ok, 2000}}], posts(X, done, [2])),
    ?assertEqual({error, too_late}, posts(X, cancel, [Third])),
    ?assertEqual([], posts(X, there, [])).

cancel_a_receive(Config) ->
    {X, Y} = ends(Config),
    [{ok, First}, {ok, Second}] = posts(Y, recv, [[100, 100]]),
    ?assertEqual(ok, posts(Y, cancel, [First])),
    [{{ok, _}, Hash}] = posts(X, send, [[100]]),
    ?assertEqual([{received, Second, {ok, 100, Hash}}], posts(Y, done, [1])),
    ?assertEqual({error, too_late}, posts(Y, cancel, [Second])),
    %% A cancelled receive that has some bytes leaves them to the next read.
    Data = inet_rdma_test_data:make(300),
    [{ok, Third}] = posts(Y, recv, [[300]]),
    ok = do(X, send, [binary:part(Data, 0, 200)]),
    arrived(Y, 300),
    ?assertEqual(ok, posts(Y, cancel, [Third])),
    [{ok, Fourth}] = posts(Y, recv, [[150]]),
    ?assertEqual(
        [{received, Fourth, {ok, 150, erlang:md5(binary:part(Data, 0, 150))}}], posts(Y, done, [1])
    ),
    ok = do(X, send, [binary:part(Data, 200, 100)]),
    ?assertEqual({ok, binary:part(Data, 150, 150)}, do(Y, recv, [150, 20000])),
    ?assertEqual([], posts(Y, there, [])).

send_goes_behind_what_is_posted(Config) ->
    {X, Y} = ends(Config),
    {Count, {error, enobufs}, Hash} = posts(X, send_while, [?MB]),
    Sending = start(X, send, [<<"behind">>]),
    ?assertEqual({Count * ?MB, Hash}, posts(Y, take, [Count * ?MB])),
    ?assertEqual({ok, <<"behind">>}, do(Y, recv, [6, 20000])),
    ok = result(Sending).

posted_goes_behind_a_send(Config) ->
    {X, Y} = ends(Config),
    {_, Hash} = posts(X, start_send, [8 * ?MB]),
    [{{ok, Ref}, Behind}] = posts(X, send, [[1000]]),
    ?assertEqual({8 * ?MB, Hash}, posts(Y, take, [8 * ?MB])),
    ?assertEqual({1000, Behind}, posts(Y, take, [1000])),
    ?assertEqual([{sent, Ref, {ok, 1000}}], posts(X, done, [1])).

%% A process dies in the middle of its send: the posted sends after it end with half_sent.
death_in_the_middle_of_a_send(Config) ->
    {X, _Y} = ends(Config),
    {Pid, _} = posts(X, start_send, [8 * ?MB]),
    [{{ok, Ref}, _}] = posts(X, send, [[1000]]),
    ok = posts(X, dies_sending, [Pid]),
    ?assertMatch([{sent, Ref, {error, half_sent}}], posts(X, done, [1])).

%% Posted sends wait for the sends of two processes in turn. The socket monitors the last one alone,
%% however often.
writers_by_turns(Config) ->
    {X, Y} = ends(Config),
    Writers = [bystander(X), bystander(X)],
    [
        begin
            #{bytes_sent := Before} = do(X, info, []),
            Sending = start(Writer, send_made, [8 * ?MB]),
            inet_rdma_test_wait:until(in_the_middle, 10000, fun() ->
                maps:get(bytes_sent, do(X, info, [])) > Before
            end),
            [{{ok, Ref}, Behind}] = posts(X, send, [[1000]]),
            {Size, Hash} = posts(Y, take, [8 * ?MB]),
            ?assertEqual({ok, Size, Hash}, result(Sending)),
            ?assertEqual({1000, Behind}, posts(Y, take, [1000])),
            ?assertEqual([{sent, Ref, {ok, 1000}}], posts(X, done, [1]))
        end
     || _ <- lists:seq(1, 3), Writer <- Writers
    ],
    [
        begin
            {monitored_by, By} = inet_rdma_test_pair:call(Node, erlang, process_info, [
                Pid, monitored_by
            ]),
            ?assertEqual([], By -- lists:usort(By))
        end
     || {Node, Pid} <- Writers
    ].

other_ways_of_reading_are_refused(Config) ->
    {X, Y} = ends(Config),
    [{ok, Ref}] = posts(Y, recv, [[4]]),
    ?assertEqual({error, einval}, do(Y, recv, [0, 0])),
    ?assertEqual({error, einval}, do(Y, setopts, [[{active, once}]])),
    ?assertEqual({error, einval}, do(Y, setopts, [[{packet, 4}]])),
    ?assertEqual(ok, do(Y, setopts, [[{active, false}]])),
    ok = do(X, send, [<<"data">>]),
    ?assertEqual([{received, Ref, {ok, 4, erlang:md5(<<"data">>)}}], posts(Y, done, [1])),
    %% All are done: anything goes, and in active mode nothing is posted.
    ok = do(Y, setopts, [[{active, true}]]),
    ?assertEqual([{error, einval}], posts(Y, recv, [[4]])),
    ok = do(X, send, [<<"more">>]),
    ?assertEqual([{data, <<"more">>}], do(Y, messages, [1])),
    ok = do(Y, setopts, [[{active, false}]]),
    ?assertMatch([{ok, _}], posts(Y, recv, [[4]])).

kill_of_the_peer(Config) ->
    {X, _Y} = ends(Config),
    Receives = refs(posts(X, recv, [lists:seq(1, 60)])),
    {Count, {error, enobufs}, _} = posts(X, send_while, [?MB]),
    inet_rdma_test_node:kill(proplists:get_value(b, Config)),
    Done = posts(X, done, [Count + 60]),
    ?assertEqual([{received, Ref, {error, peer_gone}} || Ref <- Receives], [
        D
     || {received, _, _} = D <- Done
    ]),
    ends_in_order(Count, peer_gone, Done),
    ?assertEqual([], posts(X, there, [])),
    ?assertMatch([{{error, peer_gone}, _}], posts(X, send, [[1]])),
    %% Whatever comes after that ends in the same way.
    [{ok, Late}] = posts(X, recv, [[1]]),
    ?assertEqual([{received, Late, {error, peer_gone}}], posts(X, done, [1])).

a_close_here_ends_posted_operations(Config) ->
    {X, _Y} = ends(Config),
    Receives = refs(posts(X, recv, [[1, 2, 3]])),
    {Count, {error, enobufs}, _} = posts(X, send_while, [?MB]),
    ok = do(X, close, []),
    Done = posts(X, done, [Count + 3]),
    ?assertEqual([{received, Ref, {error, closed}} || Ref <- Receives], [
        D
     || {received, _, _} = D <- Done
    ]),
    ends_in_order(Count, closed, Done),
    ?assertEqual([], posts(X, there, [])),
    ?assertMatch({error, closed}, posts(X, cancel, [hd(Receives)])).

%% Posts that were accepted just before the close get their message.
close_while_others_post(Config) ->
    [
        begin
            {X, Y} = ends(Config),
            Storms = [start(bystander(End), posts, [storm, []]) || End <- [X, X, Y]],
            sent(X, 50),
            ok = do(X, close, []),
            [?assert(result(Storm) >= 0) || Storm <- Storms]
        end
     || _ <- lists:seq(1, 15)
    ].

close_of_the_peer(Config) ->
    {X, Y} = ends(Config),
    [{ok, First}, {ok, Second}, {ok, Third}] = posts(Y, recv, [[10, 100, 0]]),
    Data = inet_rdma_test_data:make(60),
    ok = do(X, send, [Data]),
    ok = do(X, close, []),
    ?assertEqual(
        [
            {received, First, {ok, 10, erlang:md5(binary:part(Data, 0, 10))}},
            {received, Second, {error, closed}},
            {received, Third, {error, closed}}
        ],
        posts(Y, done, [3])
    ),
    %% What was not enough for the second is not lost, and can be had in either way.
    [{ok, Fourth}] = posts(Y, recv, [[20]]),
    ?assertEqual(
        [{received, Fourth, {ok, 20, erlang:md5(binary:part(Data, 10, 20))}}], posts(Y, done, [1])
    ),
    ?assertEqual({ok, binary:part(Data, 30, 30)}, do(Y, recv, [0, 0])),
    ?assertEqual({error, closed}, do(Y, recv, [0, 0])).

a_half_close_ends_posted_sends(Config) ->
    {X, Y} = ends(Config),
    {Count, {error, enobufs}, _} = posts(X, send_while, [?MB]),
    ok = do(X, shutdown, [write]),
    ends_in_order(Count, closed, posts(X, done, [Count])),
    ?assertMatch(
        [{{error, closed}, _}],
        [Done || {_, Hash} = Post <- posts(X, send, [[1]]), Done <- [last(X, Post, Hash)]]
    ),
    %% The other direction goes on.
    [{ok, Ref}] = posts(X, recv, [[4]]),
    ok = do(Y, send, [<<"data">>]),
    ?assertEqual([{received, Ref, {ok, 4, erlang:md5(<<"data">>)}}], posts(X, done, [1])),
    ok = do(X, shutdown, [read]),
    ?assertMatch([{received, _, {error, closed}}], [
        hd(posts(X, done, [1]))
     || {ok, _} <- posts(X, recv, [[1]])
    ]).

%% The owner's death ends what others have posted, and what another poster has posted goes on.
death_of_the_owner(Config) ->
    {X, Y} = ends(Config),
    [{{ok, _}, Hash}] = posts(X, stranger, [send, [[100000]]]),
    ?assertEqual({100000, Hash}, do(Y, collect_hash, [100000])),
    [{ok, _}] = posts(Y, recv, [[10]]),
    Other = bystander(X),
    [{ok, Ref}] = posts(Other, recv, [[10]]),
    ok = do(X, stop, []),
    ?assertEqual([{received, Ref, {error, closed}}], posts(Other, done, [1])),
    ?assertMatch([{received, _, {error, closed}}], posts(Y, done, [1])).

sendfile_whole_and_parts(Config) ->
    {X, Y} = ends(Config),
    Data = inet_rdma_test_data:make(5 * ?MB + 123),
    Name = file(Config, Data),
    file_arrives(X, Y, [Name], Data),
    file_arrives(X, Y, [Name, 0, 0, []], Data),
    file_arrives(X, Y, [Name, 1000, 0, []], binary:part(Data, 1000, byte_size(Data) - 1000)),
    file_arrives(X, Y, [Name, 1000, 500000, [{chunk_size, 7000}]], binary:part(Data, 1000, 500000)),
    file_arrives(
        X, Y, [Name, byte_size(Data) - 10, 100, []], binary:part(Data, byte_size(Data), -10)
    ),
    ?assertEqual({ok, 0}, posts(X, sendfile, [[Name, byte_size(Data), 0, []]])),
    ?assertEqual({ok, 0}, posts(X, sendfile, [[file(Config, <<>>)]])),
    %% A send after the file.
    ok = do(X, send, [<<"end">>]),
    ?assertEqual({ok, <<"end">>}, do(Y, recv, [3, 20000])),
    ?assertEqual([], posts(X, there, [])).

sendfile_sends_a_sparse_file(Config) ->
    {X, Y} = ends(Config),
    Name = file(Config, <<>>),
    {ok, File} = file:open(Name, [write, raw]),
    {ok, _} = file:position(File, 200 * ?MB - 3),
    ok = file:write(File, <<"end">>),
    ok = file:close(File),
    Sending = start(X, posts, [sendfile, [[Name]]]),
    {Size, _} = do(Y, collect_hash, [200 * ?MB]),
    ?assertEqual({ok, Size}, result(Sending)).

sendfile_that_shrinks(Config) ->
    {X, Y} = ends(Config),
    Name = file(Config, inet_rdma_test_data:make(64 * ?MB)),
    ok = posts(X, shrinks, [[Name, 32 * ?MB]]),
    %% What was there when it was read.
    {Size, _} = do(Y, collect_hash, [32 * ?MB]),
    ?assertEqual({ok, Size}, do(X, shrunk, [])).

sendfile_returns_errors_of_files(Config) ->
    {X, Y} = ends(Config),
    Name = file(Config, inet_rdma_test_data:make(8 * ?MB)),
    ?assertEqual({error, enoent}, posts(X, sendfile, [["no such file"]])),
    ?assertEqual({error, eisdir}, posts(X, sendfile, [[proplists:get_value(priv_dir, Config)]])),
    ?assertEqual({error, einval}, posts(X, sendfile, [[Name, 0, 0, [{chunk_size, 0}]]])),
    ?assertEqual({error, einval}, posts(X, sendfile, [[Name, 0, 0, [sendfile]]])),
    ok = do(X, setopts, [[{packet, 4}]]),
    ?assertEqual({error, einval}, posts(X, sendfile, [[Name]])),
    ok = do(X, setopts, [[{packet, raw}]]),
    Sending = start(X, posts, [sendfile, [[Name]]]),
    {ok, _} = do(Y, recv, [1000, 20000]),
    ok = do(Y, stop, []),
    ?assertEqual({error, closed}, result(Sending)),
    ?assertEqual([], posts(X, there, [])),
    ok = do(X, close, []),
    ?assertEqual({error, closed}, posts(X, sendfile, [[Name]])).

%% The first sends may have gone before the end; those after them end with the reason.
ends_in_order(Count, Reason, Done) ->
    Results = [Result || {sent, _, Result} <- Done],
    ?assertEqual(Count, length(Results)),
    Failed = lists:dropwhile(fun(Result) -> Result =:= {ok, ?MB} end, Results),
    ?assert(length(Failed) > 0),
    ?assertEqual([{error, Reason} || _ <- Failed], Failed).

%% A post that was refused, or taken and ended with an error.
last(_X, {{error, _}, _} = Post, _Hash) ->
    Post;
last(X, {{ok, Ref}, _}, Hash) ->
    [{sent, Ref, Error}] = posts(X, done, [1]),
    {Error, Hash}.

file_arrives(X, Y, Args, Data) ->
    Sending = start(X, posts, [sendfile, [Args]]),
    ?assertEqual({byte_size(Data), erlang:md5(Data)}, do(Y, collect_hash, [byte_size(Data)])),
    ?assertEqual({ok, byte_size(Data)}, result(Sending)).

file(Config, Data) ->
    Name = filename:join(proplists:get_value(priv_dir, Config), inet_rdma_test_node:unique("file")),
    ok = file:write_file(Name, Data),
    Name.

%% Another process in the same node, with the same socket.
bystander({Node, Owner}) ->
    {Node, inet_rdma_test_pair:call(Node, inet_rdma_test_end, bystander, [Owner])}.

%% Waits until the sender knows of Count buffers.
advertised(X, Count) ->
    inet_rdma_test_wait:until({advertised, Count}, 10000, fun() ->
        case do(X, info, []) of
            #{adverts_received := Received} when Received >= Count -> true;
            #{adverts_received := Received} -> Received
        end
    end).

sent(X, Transfers) ->
    inet_rdma_test_wait:until({sent, Transfers}, 10000, fun() ->
        case do(X, info, []) of
            #{direct_transfers_sent := Direct, indirect_transfers_sent := Indirect} ->
                Direct + Indirect >= Transfers
        end
    end).

arrived(Y, Bytes) ->
    inet_rdma_test_wait:until({arrived, Bytes}, 10000, fun() ->
        case do(Y, info, []) of
            #{bytes_received := Received} when Received >= Bytes -> true;
            #{bytes_received := Received} -> Received
        end
    end).

refs(Posted) -> [Ref || {ok, Ref} <- Posted].

posts(End, Function, Args) -> do(End, posts, [Function, Args]).

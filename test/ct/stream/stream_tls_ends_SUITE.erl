%% Listeners of streams that begin inside TLS: clients that say nothing, the backlog, deadlines,
%% what they tell; and the end of each party.
-module(stream_tls_ends_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_pair, [join/4, connect/3, do/3, start/3, result/1, transfer/3, call/4]).
-import(inet_rdma_test_tls_pair, [
    tls/1,
    encrypted/1,
    tls_options/2,
    listener/2,
    listen/3,
    ssl_connect/2,
    until_closed/1,
    until_tcp_closed/1,
    connecting/3,
    ended/1,
    only_tls_owners/2,
    tls_owners/2,
    await_logged/2,
    node_of/2
]).

-export([all/0, suite/0]).
-export([
    listener_tells_no_secret/1,
    keys_of_a_stream_that_waits_are_collected/1,
    silent_clients_hold_up_nobody/1,
    no_more_than_the_backlog/1,
    connect_ends_at_its_time_limits/1,
    listener_is_closed/1,
    data_comes_before_the_end/1,
    ended_before_it_is_accepted/1,
    end_of_each_part/1,
    a_killed_peer_ends_its_streams/1,
    nothing_is_left_behind/1
]).

suite() ->
    [{timetrap, {minutes, 5}}, {ct_hooks, [inet_rdma_test_tls_pair]}].

all() ->
    [
        listener_tells_no_secret,
        keys_of_a_stream_that_waits_are_collected,
        silent_clients_hold_up_nobody,
        no_more_than_the_backlog,
        connect_ends_at_its_time_limits,
        listener_is_closed,
        data_comes_before_the_end,
        ended_before_it_is_accepted,
        end_of_each_part,
        a_killed_peer_ends_its_streams,
        nothing_is_left_behind
    ].

%% The listening socket of ssl has the options of TLS. Neither the status of the process nor its end
%% shows them.
listener_tells_no_secret(Config) ->
    B = node_of(b, Config),
    ok = call(B, inet_rdma_test_log, install, []),
    {ok, _, _} = listen(Config, 0, [{tls, [{password, "very secret"} | tls_options(Config, good)]}]),
    [Listener] = call(B, inet_rdma_test_tls_owners, listeners, []),
    Tells = fun(Term) -> string:find(io_lib:format("~p", [Term]), "secret") =/= nomatch end,
    ?assertNot(Tells(call(B, sys, get_status, [Listener]))),
    ?assertEqual({error, badarg}, call(B, gen_server, call, [Listener, no_such_request])),
    ok = call(B, gen_server, stop, [Listener, some_defect, infinity]),
    await_logged(Config, "some_defect"),
    ?assertEqual([], [Line || Line <- call(B, inet_rdma_test_log, lines, []), Tells(Line)]).

%% The TLS owners of streams that no process has accepted hibernate: that collects the heap, on
%% which the settlement had keys.
keys_of_a_stream_that_waits_are_collected(Config) ->
    {Port, _Listening} = listener(Config, encrypted(Config)),
    {ok, _} = connect(Config, Port, encrypted(Config)),
    B = node_of(b, Config),
    inet_rdma_test_wait:until(tls_owners_hibernate, 10000, fun() ->
        Doing = [
            call(B, erlang, process_info, [Owner, current_function])
         || Owner <- tls_owners(b, Config)
        ],
        lists:member({current_function, {erlang, hibernate, 3}}, Doing) orelse Doing
    end).

silent_clients_hold_up_nobody(Config) ->
    {Port, Listening} = listener(Config, encrypted(Config)),
    Silent = [
        element(2, {ok, _} = gen_tcp:connect("localhost", Port, []))
     || _ <- lists:seq(1, 50)
    ],
    %% And some that are silent inside TLS.
    Inside = [element(2, {ok, _} = ssl_connect(Config, Port)) || _ <- lists:seq(1, 5)],
    {X, Y} = join(Config, Port, Listening, encrypted(Config)),
    ?assertEqual(ok, transfer(X, Y, 100000)),
    _ = [gen_tcp:close(Socket) || Socket <- Silent],
    _ = [ssl:close(Socket) || Socket <- Inside],
    only_tls_owners(Config, [1, 2]).

%% Connections beyond the option backlog wait until others have ended; connect_timeout_ms ends those
%% that are silent.
no_more_than_the_backlog(Config) ->
    {Port, Listening} = listener(
        Config, encrypted(Config) ++ [{backlog, 4}, {connect_timeout_ms, 2000}]
    ),
    Silent = [element(2, {ok, _} = gen_tcp:connect("localhost", Port, [])) || _ <- lists:seq(1, 4)],
    inet_rdma_test_wait:until(all_at_work, 10000, fun() -> length(tls_owners(b, Config)) =:= 4 end),
    {X, Y} = join(Config, Port, Listening, encrypted(Config) ++ [{connect_timeout_ms, 50000}]),
    ?assertEqual(ok, transfer(X, Y, 100000)),
    _ = [gen_tcp:close(Socket) || Socket <- Silent],
    %% The same for streams that no process has accepted: they are ready, and the next one waits for
    %% one of them.
    Ready = [
        element(2, {ok, _} = connect(Config, Port, encrypted(Config)))
     || _ <- lists:seq(1, 4)
    ],
    Fifth = connecting(Config, Port, encrypted(Config) ++ [{connect_timeout_ms, 50000}]),
    {ok, Accepted} = do(Listening, accept_end, []),
    {ok, _} = ended(Fifth),
    B = node_of(b, Config),
    ?assertEqual(ok, transfer({node_of(a, Config), hd(Ready)}, {B, Accepted}, 100000)).

connect_ends_at_its_time_limits(Config) ->
    {ok, Silent} = gen_tcp:listen(0, []),
    {ok, Port} = inet:port(Silent),
    A = node_of(a, Config),
    Options = encrypted(Config),
    ?assertEqual({error, timeout}, call(A, inet_rdma, connect, ["localhost", Port, Options, 200])),
    Shorter = [{connect_timeout_ms, 200} | Options],
    ?assertEqual({error, etimedout}, call(A, inet_rdma, connect, ["localhost", Port, Shorter])),
    %% Inside TLS, too.
    {ok, Server} = ssl:listen(0, [{active, false} | tls_options(Config, good)]),
    {ok, {_, ServerPort}} = ssl:sockname(Server),
    Acceptor = spawn_monitor(fun() ->
        {ok, Transport} = ssl:transport_accept(Server, 20000),
        {ok, Accepted} = ssl:handshake(Transport, 20000),
        exit(until_closed(Accepted))
    end),
    ?assertEqual(
        {error, timeout}, call(A, inet_rdma, connect, ["localhost", ServerPort, Options, 2000])
    ),
    _ = ended(Acceptor),
    only_tls_owners(Config, [0, 0]),
    {_, Listening} = listener(Config, encrypted(Config)),
    ?assertEqual({error, timeout}, do(Listening, accept, [0])),
    ?assertEqual({error, timeout}, do(Listening, accept, [100])).

%% The owner closes the listener, or dies: accepts that wait return an error, streams that no
%% process has accepted end, accepted ones go on.
listener_is_closed(Config) ->
    B = node_of(b, Config),
    [
        begin
            {Port, Listening} = listener(Config, encrypted(Config)),
            {X, Y} = join(Config, Port, Listening, encrypted(Config)),
            {ok, Unaccepted} = connect(Config, Port, encrypted(Config)),
            {ok, InHandshake} = gen_tcp:connect("localhost", Port, [{active, false}]),
            {ok, InSettlement} = ssl_connect(Config, Port),
            Socket = do(Listening, socket, []),
            [First | Waiting] = [acceptor(B, Socket) || _ <- lists:seq(1, 3)],
            {accepted, {ok, _}} = acceptor_result(First, Waiting),
            close_listener(How, Listening),
            [?assertEqual({accepted, {error, closed}}, Result) || Result <- rest(First, Waiting)],
            _ = until_tcp_closed(InHandshake),
            _ = until_closed(InSettlement),
            ?assertMatch({error, _}, do({node_of(a, Config), Unaccepted}, recv, [0, 20000])),
            ?assertEqual({error, econnrefused}, connect(Config, Port, encrypted(Config))),
            inet_rdma_test_wait:until(port_is_free, 10000, fun() ->
                not inet_rdma_test_os:is_listening(Port)
            end),
            [?assertEqual(ok, transfer(From, To, 1_000_000)) || {From, To} <- [{X, Y}, {Y, X}]],
            case How of
                close -> ?assertEqual({error, closed}, do(Listening, accept, []));
                death -> ok
            end
        end
     || How <- [close, death]
    ].

%% Several acceptors wait; which of them gets the stream that is there does not matter.
acceptor(B, Listener) ->
    spawn_monitor(fun() -> exit(call(B, inet_rdma_test_tls_owners, accept_and_drop, [Listener])) end).

acceptor_result({_, First}, Others) ->
    Refs = [First | [Ref || {_, Ref} <- Others]],
    receive
        {'DOWN', Ref, process, _, Result} when Result =/= normal ->
            true = lists:member(Ref, Refs),
            put(accepted, Ref),
            Result
    end.

rest(First, Others) ->
    Accepted = get(accepted),
    [ended(Acceptor) || {_, Ref} = Acceptor <- [First | Others], Ref =/= Accepted].

close_listener(close, Listening) -> ok = do(Listening, close, []);
close_listener(death, Listening) -> _ = do(Listening, stop, []).

%% The process that accepts the stream later gets what the peer has sent before its end.
ended_before_it_is_accepted(Config) ->
    {Port, {B, _} = Listening} = listener(Config, encrypted(Config)),
    {ok, X} = connect(Config, Port, encrypted(Config)),
    [ok, ok] = [
        do({node_of(a, Config), X}, Function, Args)
     || {Function, Args} <- [{send, [<<"x">>]}, {close, []}]
    ],
    %% Until the TLS owner knows the end, and has closed the TLS connection.
    inet_rdma_test_wait:until(tls_is_closed, 10000, fun() ->
        call(B, inet_rdma_test_remote, processes_of_tls, []) =:= []
    end),
    receive
    after 500 -> ok
    end,
    {ok, Accepted} = do(Listening, accept_end, []),
    ?assertEqual({ok, <<"x">>}, do({B, Accepted}, recv, [0, 20000])),
    ?assertEqual({error, closed}, do({B, Accepted}, recv, [0, 20000])).

%% A close after data: the peer reads all of it, however late, then the end in order.
data_comes_before_the_end(Config) ->
    [
        begin
            {Port, Listening} = listener(Config, tls(Config) ++ [{encrypt_shm, Encrypt}]),
            {X, Y} = join(Config, Port, Listening, tls(Config)),
            ok = do(Listening, close, []),
            Data = inet_rdma_test_data:make(200000),
            ok = do(X, send, [Data]),
            ok = do(X, close, []),
            only_tls_owners(Config, [0, 0]),
            ?assertEqual({ok, Data}, do(Y, recv, [200000, 20000])),
            ?assertEqual({error, closed}, do(Y, recv, [0, 20000]))
        end
     || Encrypt <- [false, true]
    ].

%% When one party of a stream ends, all parties on both sides end.
end_of_each_part(Config) ->
    [A, B] = [node_of(Name, Config) || Name <- [a, b]],
    {Port, Listening} = listener(Config, encrypted(Config)),
    [
        begin
            {X, Y} = join(Config, Port, Listening, encrypted(Config)),
            only_tls_owners(Config, [1, 2]),
            end_part(How, X),
            ?assertEqual({How, {error, Reason}}, {How, do(Y, recv, [0, 30000])}),
            only_tls_owners(Config, [0, 1]),
            [
                inet_rdma_test_wait:until({ports, Count}, 10000, fun() ->
                    call(Node, inet_rdma_test_tls_owners, tcp_ports, []) =:= Count
                end)
             || {Node, Count} <- [{A, 0}, {B, 1}]
            ]
        end
     || {How, Reason} <- [{close, closed}, {death, closed}, {tls_owner, peer_gone}]
    ],
    %% The last term of a socket is collected.
    Owner = call(A, inet_rdma_test_tls_owners, connect_and_forget, [Port, encrypted(Config)]),
    {ok, Accepted} = do(Listening, accept_end, []),
    only_tls_owners(Config, [1, 2]),
    ok = call(A, inet_rdma_test_tls_owners, forget, [Owner]),
    ?assertEqual({error, closed}, do({B, Accepted}, recv, [0, 30000])),
    only_tls_owners(Config, [0, 1]).

end_part(close, X) ->
    ok = do(X, close, []);
end_part(death, X) ->
    ok = do(X, stop, []);
end_part(tls_owner, {Node, _} = X) ->
    ok = call(Node, inet_rdma_test_tls_owners, kill, []),
    ?assertEqual({error, tls_gone}, do(X, recv, [0, 30000])).

a_killed_peer_ends_its_streams(Config) ->
    {Port, Listening} = listener(Config, encrypted(Config)),
    Streams = [join(Config, Port, Listening, encrypted(Config)) || _ <- lists:seq(1, 3)],
    Sending = [start(X, send_made, [100_000_000]) || {X, _} <- Streams],
    inet_rdma_test_node:kill(node_of(b, Config)),
    [?assertMatch({failed, [{error, peer_gone}]}, result(Each)) || Each <- Sending],
    [?assertEqual({error, peer_gone}, do(X, recv, [0, 20000])) || {X, _} <- Streams],
    inet_rdma_test_wait:until(no_tls_owner, 10000, fun() -> tls_owners(a, Config) =:= [] end),
    inet_rdma_test_wait:until(no_port, 10000, fun() ->
        call(node_of(a, Config), inet_rdma_test_tls_owners, tcp_ports, []) =:= 0
    end).

nothing_is_left_behind(Config) ->
    {Port, Listening} = listener(Config, encrypted(Config)),
    Cycle = fun(N) ->
        {X, Y} = join(Config, Port, Listening, encrypted(Config)),
        ok = do(X, send, [<<"hello">>]),
        ?assertEqual({ok, <<"hello">>}, do(Y, recv, [5, 20000])),
        {First, Last} =
            case N rem 2 of
                0 -> {X, Y};
                1 -> {Y, X}
            end,
        ok = do(First, close, []),
        ?assertEqual({error, closed}, do(Last, recv, [0, 20000])),
        [ok = do(End, stop, []) || End <- [Last, First]]
    end,
    [Cycle(N) || N <- lists:seq(1, 10)],
    only_tls_owners(Config, [0, 1]),
    Nodes = [node_of(Name, Config) || Name <- [a, b]],
    Before = [
        {Node, counts(Node), inet_rdma_test_os:footprint(OsPid)}
     || #{os_pid := OsPid} = Node <- Nodes
    ],
    [Cycle(N) || N <- lists:seq(1, 200)],
    [
        begin
            ok = inet_rdma_test_os:await_footprint(OsPid, Footprint),
            inet_rdma_test_wait:until({counts, Counts}, 10000, fun() ->
                Now = counts(Node),
                lists:all(fun({Was, Is}) -> Is =< Was + 1 end, lists:zip(Counts, Now)) orelse Now
            end)
        end
     || {#{os_pid := OsPid} = Node, Counts, Footprint} <- Before
    ].

counts(Node) -> [call(Node, erlang, system_info, [Key]) || Key <- [process_count, port_count]].

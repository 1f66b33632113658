%% The settlement with peers that are no nodes and follow its rules, leave it or say nothing more:
%% each link is up over TCP or has ended, with the reason in words, and never stays pending.
-module(settlement_peers_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_node, [call/4, name/1, unique/1]).
-import(inet_rdma_test_scripted, [
    offered/0,
    node_with_sink/1,
    new_sink/1,
    sink/0,
    with_peer/4,
    with_fake/5,
    up_on_tcp/4,
    same_host/1,
    answer/2
]).
-import(inet_rdma_test_link, [gone/2]).

-export([all/0, suite/0]).
-export([
    another_version_leaves_the_link_on_tcp/1,
    another_stream_version/1,
    stays_when_told_to/1,
    peer_without_a_session/1,
    packets_right_behind_the_decision/1,
    peers_that_hang_up/1,
    a_silent_peer_ends_the_link_in_time/1,
    after_a_broken_settlement/1,
    late_answers_do_not_reach_the_link/1,
    failed_way_is_not_tried_again/1,
    strangers_at_the_one_off_listener/1,
    texts_outside_ascii/1,
    names_that_never_come_back/1
]).

suite() ->
    [{timetrap, {minutes, 3}}, {ct_hooks, [{inet_rdma_test_nodes, [only_rdma]}]}].

all() ->
    [
        another_version_leaves_the_link_on_tcp,
        another_stream_version,
        stays_when_told_to,
        peer_without_a_session,
        packets_right_behind_the_decision,
        peers_that_hang_up,
        a_silent_peer_ends_the_link_in_time,
        after_a_broken_settlement,
        late_answers_do_not_reach_the_link,
        failed_way_is_not_tried_again,
        strangers_at_the_one_off_listener,
        texts_outside_ascii,
        names_that_never_come_back
    ].

%% A later version of the settlement: nothing of it is said, the link is up over TCP.
another_version_leaves_the_link_on_tcp(_Config) ->
    A = node_with_sink([]),
    [
        with_peer(Role, A, #{offer => inet_rdma_test_peer:offer(Version)}, fun(Link, Peer) ->
            up_on_tcp(A, Link, Peer, "settlement has version " ++ integer_to_list(Version))
        end)
     || Role <- [initiator, acceptor], Version <- [0, 2, 65535]
    ].

%% An older version of the stream protocol at the queue pair: each side names both versions, and the
%% link is up over TCP.
another_stream_version(_Config) ->
    A = node_with_sink([{fallback_retry_ms, 0}]),
    Greeting = <<"inetrdma", 2:16/little, 0:46/unit:8>>,
    with_peer(acceptor, A, offered(), fun(Link, Peer) ->
        {hello, _} = inet_rdma_test_peer:hear(Link),
        ok = inet_rdma_test_peer:say(Link, same_host(A)),
        {'try', shm} = inet_rdma_test_peer:hear(Link),
        {Listener, Name} = rendezvous(),
        ok = inet_rdma_test_peer:say(Link, {listens, Name, 1, []}),
        {ok, Caller} = socket:accept(Listener, inet_rdma_test_wait:patience(10000)),
        ok = socket:send(Caller, Greeting),
        {failed, shm, Why} = inet_rdma_test_peer:hear(Link),
        ?assertMatch(
            {_, {match, _}},
            {Why, re:run(Why, "speaks protocol version 2, this node speaks [0-9]+")}
        ),
        ok = inet_rdma_test_peer:say(Link, {failed, shm, Why}),
        {stay, _} = inet_rdma_test_peer:hear(Link),
        ok = inet_rdma_test_peer:say(Link, {stayed}),
        up_on_tcp(A, Link, Peer, "speaks protocol version 2"),
        [socket:close(Socket) || Socket <- [Caller, Listener]]
    end),
    with_peer(initiator, A, offered(), fun(Link, Peer) ->
        {hello, Facts} = inet_rdma_test_peer:hear(Link),
        ok = inet_rdma_test_peer:say(Link, {hello, Facts#{path => 1}}),
        ok = inet_rdma_test_peer:say(Link, {'try', shm}),
        {listens, Name, _Token, []} = inet_rdma_test_peer:hear(Link),
        [{Socket, Greeting}] = stranger(Name, Greeting),
        {ok, <<"inetrdma", Ours:16/little, _/binary>>} = socket:recv(
            Socket, 0, inet_rdma_test_wait:patience(10000)
        ),
        ?assertNotEqual(2, Ours),
        ok = inet_rdma_test_peer:say(Link, {stay, <<"another version">>}),
        {stayed} = inet_rdma_test_peer:hear(Link),
        up_on_tcp(A, Link, Peer, "another version"),
        socket:close(Socket)
    end).

%% A socket where a caller over shared memory looks for a listener, and its name.
rendezvous() ->
    {ok, Socket} = socket:open(local, seqpacket, default),
    Name = iolist_to_binary(io_lib:format("inet_rdma-~32.16.0b", [rand:uniform(1 bsl 127)])),
    ok = socket:bind(Socket, #{family => local, path => <<0, Name/binary>>}),
    ok = socket:listen(Socket),
    {Socket, Name}.

%% A peer that follows the rules, and has no way in common.
stays_when_told_to(_Config) ->
    A = node_with_sink([]),
    with_peer(initiator, A, offered(), fun(Link, Peer) ->
        {hello, #{fabric := auto}} = inet_rdma_test_peer:hear(Link),
        ok = inet_rdma_test_peer:say(Link, inet_rdma_test_peer:hello()),
        ok = inet_rdma_test_peer:say(Link, {stay, <<"the moon is full">>}),
        {stayed} = inet_rdma_test_peer:hear(Link),
        up_on_tcp(A, Link, Peer, "the moon is full")
    end),
    with_peer(acceptor, A, offered(), fun(Link, Peer) ->
        {hello, #{}} = inet_rdma_test_peer:hear(Link),
        ok = inet_rdma_test_peer:say(Link, inet_rdma_test_peer:hello()),
        {stay, Why} = inet_rdma_test_peer:hear(Link),
        ?assertMatch({match, _}, re:run(Why, "another host")),
        ok = inet_rdma_test_peer:say(Link, {stayed}),
        up_on_tcp(A, Link, Peer, "another host")
    end).

%% A peer without a session tries what it will, as one of an earlier version does: the link stays on
%% TCP.
peer_without_a_session(_Config) ->
    A = node_with_sink([]),
    Offer = #{offer => <<"inetrdma", 1:16, 0>>},
    Why = "the peer offers no session",
    with_peer(initiator, A, Offer, fun(Link, Peer) ->
        {hello, Facts} = inet_rdma_test_peer:hear(Link),
        ?assertNot(is_map_key(place, Facts)),
        ok = inet_rdma_test_peer:say(Link, {hello, Facts}),
        [
            begin
                ok = inet_rdma_test_peer:say(Link, {'try', Fabric}),
                ?assertMatch(
                    {failed, Fabric, <<"the peer offers no session", _/binary>>},
                    inet_rdma_test_peer:hear(Link)
                )
            end
         || Fabric <- [shm, verbs]
        ],
        ok = inet_rdma_test_peer:say(Link, {stay, <<"no way">>}),
        {stayed} = inet_rdma_test_peer:hear(Link),
        up_on_tcp(A, Link, Peer, "no way")
    end),
    with_peer(acceptor, A, Offer, fun(Link, Peer) ->
        {hello, _} = inet_rdma_test_peer:hear(Link),
        {hello, Facts} = same_host(A),
        ok = inet_rdma_test_peer:say(
            Link, {hello, Facts#{place => {inet_rdma_test_peer:nobody(), 1}}}
        ),
        {stay, _} = inet_rdma_test_peer:hear(Link),
        ok = inet_rdma_test_peer:say(Link, {stayed}),
        up_on_tcp(A, Link, Peer, Why)
    end).

%% Packets of the distribution in the same segment as the last message of the settlement: none is
%% lost or read as another.
packets_right_behind_the_decision(_Config) ->
    A = node_with_sink([]),
    Numbers = lists:seq(1, 100),
    Packets = fun(Link) ->
        [
            {packet,
                inet_rdma_test_peer:packet(Link, inet_rdma_test_scripted:sink_name(), {number, N})}
         || N <- Numbers
        ]
    end,
    Check = fun(Link, Peer, Why) ->
        up_on_tcp(A, Link, Peer, Why),
        inet_rdma_test_wait:until(packets_behind_the_decision, 10000, fun() ->
            [N || {number, N} <- call(A, inet_rdma_test_watch, seen, [sink()])] =:= Numbers
        end),
        new_sink(A)
    end,
    with_peer(acceptor, A, offered(), fun(Link, Peer) ->
        {hello, #{}} = inet_rdma_test_peer:hear(Link),
        ok = inet_rdma_test_peer:say(Link, inet_rdma_test_peer:hello()),
        {stay, _} = inet_rdma_test_peer:hear(Link),
        ok = inet_rdma_test_peer:glue(Link, [{message, {stayed}} | Packets(Link)]),
        Check(Link, Peer, "another host")
    end),
    %% An initiator that does not wait for the acceptor's `stayed`.
    with_peer(initiator, A, offered(), fun(Link, Peer) ->
        {hello, #{}} = inet_rdma_test_peer:hear(Link),
        Stay = {message, {stay, <<"no way">>}},
        ok = inet_rdma_test_peer:glue(Link, [
            {message, inet_rdma_test_peer:hello()}, Stay | Packets(Link)
        ]),
        {stayed} = inet_rdma_test_peer:hear(Link),
        Check(Link, Peer, "no way")
    end),
    %% The same while the acceptor waits for the queue pair, and when the initiator has said that
    %% there is none. An acceptor that waits may have read bytes of a session after the message: the
    %% initiator waits for `stayed`.
    with_peer(initiator, A, offered(), fun(Link, Peer) ->
        {hello, Facts} = inet_rdma_test_peer:hear(Link),
        ok = inet_rdma_test_peer:say(Link, {hello, Facts#{path => 1}}),
        ok = inet_rdma_test_peer:say(Link, {'try', shm}),
        {listens, _, _, _} = inet_rdma_test_peer:hear(Link),
        ok = inet_rdma_test_peer:say(Link, {stay, <<"no way">>}),
        {stayed} = inet_rdma_test_peer:hear(Link),
        ok = inet_rdma_test_peer:glue(Link, Packets(Link)),
        Check(Link, Peer, "no way")
    end),
    with_peer(initiator, A, offered(), fun(Link, Peer) ->
        {hello, Facts} = inet_rdma_test_peer:hear(Link),
        Failed = {failed, shm, <<"no memory">>},
        Messages = [{hello, Facts#{path => 1}}, Failed, {stay, <<"no way">>}],
        ok = inet_rdma_test_peer:glue(
            Link, [{message, Message} || Message <- Messages] ++ Packets(Link)
        ),
        Failed = inet_rdma_test_peer:hear(Link),
        {stayed} = inet_rdma_test_peer:hear(Link),
        Check(Link, Peer, "no way")
    end),
    with_peer(initiator, A, offered(), fun(Link, Peer) ->
        {hello, Facts} = inet_rdma_test_peer:hear(Link),
        ok = inet_rdma_test_peer:say(Link, {hello, Facts#{path => 1}}),
        ok = inet_rdma_test_peer:say(Link, {'try', shm}),
        {listens, _, _, _} = inet_rdma_test_peer:hear(Link),
        Failed = {failed, shm, <<"no memory">>},
        ok = inet_rdma_test_peer:glue(Link, [{message, Failed}, {message, {stay, <<"no way">>}}]),
        Failed = inet_rdma_test_peer:hear(Link),
        {stayed} = inet_rdma_test_peer:hear(Link),
        ok = inet_rdma_test_peer:glue(Link, Packets(Link)),
        Check(Link, Peer, "no way")
    end).

%% At each point of the settlement the peer ends.
peers_that_hang_up(_Config) ->
    A = node_with_sink([]),
    Same = same_host(A),
    Hello = {say, Same},
    [
        begin
            ok = call(A, inet_rdma_test_log, forget, []),
            with_peer(Role, A, offered(), fun(Link, Peer) ->
                {hello, _} = inet_rdma_test_peer:hear(Link),
                [ok = answer(Link, Answer) || Answer <- Answers],
                ok = inet_rdma_test_peer:hang_up(Link),
                inet_rdma_test_log:await(A, ["inet_rdma", Peer, "closed"]),
                gone(A, Peer)
            end)
        end
     || {Role, Answers} <- [
            {initiator, []},
            {acceptor, []},
            {initiator, [Hello]},
            {acceptor, [Hello]},
            {initiator, [Hello, {say, {'try', shm}}]},
            {acceptor, [Hello, {say, {listens, inet_rdma_test_peer:nobody(), 1, []}}]}
        ]
    ],
    %% The next link is not kept on TCP for that.
    B = inet_rdma_test_node:start("b"),
    connect(A, B),
    carried_by(shm, A, B, "").

%% Nothing more comes, at each point of the settlement: the link ends within the bound, and no
%% process waits for longer.
a_silent_peer_ends_the_link_in_time(_Config) ->
    A = node_with_sink([{fallback_retry_ms, 0}]),
    Hello = {say, same_host(A)},
    [
        begin
            ct:log("~p: ~p", [Role, Answers]),
            ok = call(A, inet_rdma_test_log, forget, []),
            with_peer(Role, A, offered(), fun(Link, Peer) ->
                {hello, _} = inet_rdma_test_peer:hear(Link),
                [ok = answer(Link, Answer) || Answer <- Answers],
                ok = inet_rdma_test_peer:await_end(Link),
                inet_rdma_test_log:await(A, ["inet_rdma", Peer, "in time"]),
                gone(A, Peer)
            end)
        end
     || {Role, Answers} <- [
            {initiator, []},
            {acceptor, []},
            {initiator, [Hello]},
            {acceptor, [Hello]},
            {initiator, [Hello, {say, {'try', shm}}]}
        ]
    ].

%% A settlement that broke off is not repeated: the next link says so in its offer, and is up over
%% TCP. Later it is tried again.
after_a_broken_settlement(_Config) ->
    RetryMs = 4000,
    A = node_with_sink([{fallback_retry_ms, RetryMs}]),
    [
        begin
            Fake = inet_rdma_test_peer:open(),
            #{node := Peer} = Fake,
            with_fake(Role, A, Fake, offered(), fun(Link) ->
                ?assertMatch(<<"inetrdma", 1:16, _:6, 0:2, _/binary>>, maps:get(residue, Link)),
                ok = inet_rdma_test_peer:say_raw(Link, <<"garbage">>),
                ok = inet_rdma_test_peer:await_end(Link),
                gone(A, Peer)
            end),
            [
                with_fake(Next, A, Fake, offered(), fun(Link) ->
                    ?assertMatch(<<"inetrdma", 1:16, _:6, 2:2, _/binary>>, maps:get(residue, Link)),
                    up_on_tcp(A, Link, Peer, "broke off lately")
                end)
             || Next <- [initiator, acceptor, Role]
            ],
            inet_rdma_test_wait:until(settles_again, RetryMs, fun() ->
                with_fake(Role, A, Fake, offered(), fun(
                    #{residue := <<"inetrdma", 1:16, Flags, _/binary>>} = Link
                ) ->
                    Settles = Flags band 3 =:= 0,
                    case Settles of
                        true -> ok;
                        false -> ok = inet_rdma_test_peer:carry(Link)
                    end,
                    ok = inet_rdma_test_peer:hang_up(Link),
                    gone(A, Peer),
                    Settles
                end)
            end),
            inet_rdma_test_peer:close(Fake)
        end
     || Role <- [initiator, acceptor]
    ],
    %% A peer that says so itself.
    with_peer(acceptor, A, #{offer => <<"inetrdma", 1:16, 2>>}, fun(Link, Peer) ->
        up_on_tcp(A, Link, Peer, "a settlement of it with this node broke off")
    end).

%% The acceptor answers after the initiator has given up: the link is on TCP, and does not take the
%% answers for packets.
late_answers_do_not_reach_the_link(_Config) ->
    A = node_with_sink([]),
    with_peer(acceptor, A, offered(), fun(Link, Peer) ->
        {hello, _} = inet_rdma_test_peer:hear(Link),
        {stay, _} = inet_rdma_test_peer:hear(Link),
        Late = [inet_rdma_test_peer:hello(), {failed, shm, <<"too late">>}, {ready}, {stayed}],
        [ok = inet_rdma_test_peer:say(Link, Message) || Message <- Late],
        up_on_tcp(A, Link, Peer, "did not answer in time")
    end).

%% The listener of the peer is not there, whether its hello names the place or its answer to `try`
%% does.
failed_way_is_not_tried_again(_Config) ->
    RetryMs = 4000,
    A = node_with_sink([{fallback_retry_ms, RetryMs}]),
    Hello = same_host(A),
    Fake = #{node := Peer} = inet_rdma_test_peer:open(),
    Connect = fun(Said) ->
        with_fake(acceptor, A, Fake, offered(), fun(Link) ->
            {hello, _} = inet_rdma_test_peer:hear(Link),
            ok = inet_rdma_test_peer:say(Link, Said),
            Tried = inet_rdma_test_peer:hear(Link),
            Stay =
                case Tried of
                    {'try', shm} ->
                        ok = inet_rdma_test_peer:say(
                            Link, {listens, inet_rdma_test_peer:nobody(), 1, []}
                        ),
                        {failed, shm, Refused} = inet_rdma_test_peer:hear(Link),
                        ok = inet_rdma_test_peer:say(Link, {failed, shm, Refused}),
                        inet_rdma_test_peer:hear(Link);
                    {failed, shm, Refused} ->
                        ok = inet_rdma_test_peer:say(Link, {failed, shm, Refused}),
                        inet_rdma_test_peer:hear(Link);
                    _ ->
                        Tried
                end,
            {stay, Why} = Stay,
            ct:log("~ts", [Why]),
            ok = inet_rdma_test_peer:say(Link, {stayed}),
            up_on_tcp(A, Link, Peer, "shm: "),
            {element(1, Tried), Why}
        end)
    end,
    ?assertMatch({'try', _}, Connect(Hello)),
    {stay, Why} = Connect(Hello),
    ?assertMatch({match, _}, re:run(Why, "failed lately and is tried again in [0-9]+ s")),
    %% Another VM of that name.
    {hello, Facts} = Hello,
    ?assertMatch({'try', _}, Connect({hello, Facts#{instance := 99}})),
    ?assertMatch({stay, _}, Connect({hello, Facts#{instance := 99}})),
    ?assertMatch(
        {failed, _},
        Connect({hello, Facts#{instance := 100, place => {inet_rdma_test_peer:nobody(), 1}}})
    ),
    ?assertMatch(
        {stay, _},
        Connect({hello, Facts#{instance := 100, place => {inet_rdma_test_peer:nobody(), 1}}})
    ),
    inet_rdma_test_wait:until(tried_again, RetryMs, fun() ->
        element(1, Connect(Hello)) =:= 'try'
    end),
    inet_rdma_test_peer:close(Fake).

%% Processes of the same user that find the socket, but do not know the token.
strangers_at_the_one_off_listener(_Config) ->
    A = node_with_sink([]),
    #{os_pid := OsPid} = A,
    with_peer(initiator, A, offered(), fun(Link, Peer) ->
        {hello, Facts} = inet_rdma_test_peer:hear(Link),
        ok = inet_rdma_test_peer:say(Link, {hello, Facts#{path => 1}}),
        ok = inet_rdma_test_peer:say(Link, {'try', shm}),
        {listens, Name, _Token, []} = inet_rdma_test_peer:hear(Link),
        #{memfd_maps := Maps} = inet_rdma_test_os:footprint(OsPid),
        Strangers = lists:append([
            stranger(Name, Said)
         || Said <- [<<>>, rand:bytes(100)], _ <- lists:seq(1, 25)
        ]),
        ?assertNotEqual([], Strangers),
        [
            ?assertMatch({error, _}, read_to_the_end(Socket))
         || {Socket, <<_, _/binary>>} <- Strangers
        ],
        ?assertMatch(#{memfd_maps := Maps}, inet_rdma_test_os:footprint(OsPid)),
        ok = inet_rdma_test_peer:say(Link, {stay, <<"no way">>}),
        {stayed} = inet_rdma_test_peer:hear(Link),
        up_on_tcp(A, Link, Peer, "no way"),
        [socket:close(Socket) || {Socket, _} <- Strangers]
    end).

%% A connection to a rendezvous socket that says this, if there is room for it.
stranger(Name, Said) ->
    {ok, Socket} = socket:open(local, seqpacket, default),
    case socket:connect(Socket, #{family => local, path => <<0, Name/binary>>}) of
        ok ->
            _ = [socket:send(Socket, Said) || Said =/= <<>>],
            [{Socket, Said}];
        {error, _} ->
            ok = socket:close(Socket),
            []
    end.

read_to_the_end(Socket) ->
    case socket:recv(Socket, 0, inet_rdma_test_wait:patience(10000)) of
        {ok, <<>>} -> {error, closed};
        {ok, _} -> read_to_the_end(Socket);
        {error, Reason} when Reason =/= timeout -> {error, Reason}
    end.

%% A reason in words of any language.
texts_outside_ascii(_Config) ->
    A = node_with_sink([]),
    Text = [16#e9, $\s, 16#20ac, $~, $p],
    with_peer(initiator, A, offered(), fun(Link, Peer) ->
        {hello, _} = inet_rdma_test_peer:hear(Link),
        ok = inet_rdma_test_peer:say(Link, inet_rdma_test_peer:hello()),
        ok = inet_rdma_test_peer:say(Link, {stay, unicode:characters_to_binary(Text)}),
        {stayed} = inet_rdma_test_peer:hear(Link),
        up_on_tcp(A, Link, Peer, ""),
        ?assertEqual("the peer says: " ++ Text, maps:get(why, call(A, inet_rdma, info, [Peer])))
    end).

%% Each link is under another name, as those of erl_call and remote shells are. The node does not
%% remember them for ever.
names_that_never_come_back(_Config) ->
    A = node_with_sink([]),
    {ok, Host} = inet:gethostname(),
    [
        begin
            Peer = list_to_atom(unique("never") ++ "@" ++ Host),
            Link = inet_rdma_test_peer:connect(name(A), Peer, #{}),
            inet_rdma_test_wait:until({up, Peer}, 10000, fun() ->
                inet_rdma_test_link:states(A, Peer) =:= [up]
            end),
            inet_rdma_test_peer:hang_up(Link),
            gone(A, Peer)
        end
     || _ <- lists:seq(1, 400)
    ],
    inet_rdma_test_wait:until(no_row, 10000, fun() ->
        call(A, ets, tab2list, [inet_rdma_links]) =:= []
    end).

connect(A, B) -> ok = inet_rdma_test_link:connect(A, B).

carried_by(Fabric, A, B, Why) -> ok = inet_rdma_test_link:await(A, B, Fabric, Why).

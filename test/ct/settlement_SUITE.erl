%% Links that cannot leave TCP, or must not: each is up over TCP, or has ended, with the reason in words on both nodes, and
%% never stays pending. The peers are nodes that share no fabric, and peers of the right cookie that break the rules.
-module(settlement_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, end_per_testcase/2]).
-export([options_of_both_sides/1, required_on_one_side/1, required_with_a_plain_peer/1, another_user/1]).
-export([another_network_namespace/1, memfd_is_refused/1, another_version/1, stays_when_told_to/1]).
-export([another_stream_version/1]).
-export([packets_right_behind_the_decision/1, peers_that_break_the_rules/1, peers_that_break_the_rules_as_initiator/1]).
-export([peers_that_hang_up/1, silent_peers/1, after_a_broken_settlement/1, late_answers_do_not_reach_the_link/1]).
-export([failed_way_is_not_tried_again/1, restarted_peer_is_tried_at_once/1, strangers_at_the_one_off_listener/1]).
-export([strangers_at_the_tcp_port/1, texts_outside_ascii/1, names_that_never_come_back/1]).

-define(NAME, inet_rdma_test_sink).
-define(BOUND_MS, 2000).

suite() ->
    [{timetrap, {minutes, 3}}].

all() ->
    [
        options_of_both_sides, required_on_one_side, required_with_a_plain_peer, another_user, another_network_namespace,
        memfd_is_refused, another_version, another_stream_version, stays_when_told_to, packets_right_behind_the_decision, peers_that_break_the_rules,
        peers_that_break_the_rules_as_initiator, peers_that_hang_up, silent_peers, after_a_broken_settlement,
        late_answers_do_not_reach_the_link, failed_way_is_not_tried_again, restarted_peer_is_tried_at_once,
        strangers_at_the_one_off_listener, strangers_at_the_tcp_port, texts_outside_ascii,
        names_that_never_come_back
    ].

init_per_suite(Config) ->
    inet_rdma_test_node:only_rdma(Config).

end_per_suite(_Config) ->
    ok.

end_per_testcase(_Case, _Config) ->
    inet_rdma_test_node:stop_all().

%% Nodes.

%% What the fabric is, and what both nodes say of it, whichever connects.
options_of_both_sides(_Config) ->
    Cases = [
        {auto, auto, shm, ""}, {shm, auto, shm, ""}, {auto, shm, shm, ""}, {shm, shm, shm, ""},
        {tcp, auto, tcp, "option fabric of .* is tcp"}, {tcp, tcp, tcp, "option fabric of .* is tcp"},
        {tcp, shm, tcp, "option fabric of .* is "}, {shm, verbs, tcp, "option fabric of .* is (shm|verbs)"},
        {verbs, auto, tcp, "verbs: "}, {verbs, verbs, tcp, "verbs: "}
    ],
    [
        begin
            [A, B] = start_all([{"a", options([{fabric, OptionA}])}, {"b", options([{fabric, OptionB}])}]),
            [
                begin
                    connect(X, Y),
                    [carried_by(Fabric, P, Q, Why) || {P, Q} <- [{A, B}, {B, A}]],
                    ok = inet_rdma_test_link:exercise(X, Y),
                    ok = inet_rdma_test_link:disconnect(X, Y)
                end
             || {X, Y} <- [{A, B}, {B, A}]
            ],
            inet_rdma_test_node:stop_all()
        end
     || {OptionA, OptionB, Fabric, Why} <- Cases
    ].

%% The link is refused by both, with the reason in both logs; one that can move is not.
required_on_one_side(_Config) ->
    [
        begin
            [A, B, C] = start_all([
                {"a", options([{required, RequiredA}])},
                {"b", options([{required, RequiredB}, {fabric, tcp}])},
                {"c", options([])}
            ]),
            [ok = call(Node, inet_rdma_test_log, install, []) || Node <- [A, B]],
            [
                begin
                    [ok = call(Node, inet_rdma_test_log, forget, []) || Node <- [A, B]],
                    ?assertEqual(false, call(X, net_kernel, connect_node, [name(Y)])),
                    [logged(Node, ["required", "option fabric", "tcp", name(Other)]) || {Node, Other} <- [{A, B}, {B, A}]],
                    [gone(P, name(Q)) || {P, Q} <- [{A, B}, {B, A}]]
                end
             || {X, Y} <- [{A, B}, {B, A}]
            ],
            connect(A, C),
            [carried_by(shm, P, Q, "") || {P, Q} <- [{A, C}, {C, A}]],
            inet_rdma_test_node:stop_all()
        end
     || {RequiredA, RequiredB} <- [{true, false}, {false, true}, {true, true}]
    ].

required_with_a_plain_peer(_Config) ->
    [A, Plain] = start_all([{"a", options([{required, true}])}, {"p", #{carrier => "inet_tcp"}}]),
    ok = call(A, inet_rdma_test_log, install, []),
    [
        begin
            ok = call(A, inet_rdma_test_log, forget, []),
            %% The plain node's own part of the handshake may be over before it is refused.
            Connected = call(X, net_kernel, connect_node, [name(Y)]),
            ?assert(X =:= Plain orelse not Connected),
            logged(A, ["required", "makes no offer", name(Plain)]),
            gone(A, name(Plain)),
            gone(Plain, name(A))
        end
     || {X, Y} <- [{A, Plain}, {Plain, A}]
    ].

another_user(_Config) ->
    case {os:cmd("id -u"), os:find_executable("setpriv"), os:find_executable("env")} of
        {"0\n", Setpriv, Env} when is_list(Setpriv), is_list(Env) ->
            %% The other user may be kept from this checkout; a home directory of its own is not needed, as the cookie is given.
            Home = scratch_directory("home"),
            Nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "env", "-C", Home, "HOME=" ++ Home],
            %% No directory of this checkout is in its path: OTP 27 does not boot with one that cannot be read.
            Code = inet_rdma_test_node:copy_code(filename:join(Home, "inet_rdma")),
            [A, B] = start_all([{"a", #{}}, {"b", #{under => Nobody, code => Code}}]),
            falls_back(A, B, "another user"),
            file:del_dir_r(Home);
        _ ->
            inet_rdma_test_link:skip("to run a node as another user needs root, setpriv and env")
    end.

%% Below /tmp, as other users may not see where the tests write.
scratch_directory(Prefix) ->
    Directory = filename:join("/tmp", unique("inet_rdma_" ++ Prefix)),
    ok = filelib:ensure_dir(filename:join(Directory, "x")),
    [] = os:cmd("chmod 777 " ++ Directory),
    Directory.

%% The same host, user and kernel, but abstract sockets do not lead there. Two addresses, one cable.
another_network_namespace(Config) ->
    case inet_rdma_test_netns:make() of
        {ok, #{namespace := Namespace, addresses := {Here, There}} = Network} ->
            try
                Directory = filename:join(proplists:get_value(priv_dir, Config), "names"),
                ok = filelib:ensure_dir(filename:join(Directory, "name")),
                Options = fun(Prefix, Address) ->
                    #{
                        name => unique(Prefix) ++ "@" ++ Address, long => true,
                        args => ["-start_epmd", "false", "-epmd_module", "inet_rdma_test_epmd", "-inet_rdma_test_epmd", Directory]
                    }
                end,
                Within = ["ip", "netns", "exec", Namespace],
                [A, B] = start_all([{"a", Options("a", Here)}, {"b", (Options("b", There))#{under => Within}}]),
                falls_back(A, B, "another network namespace")
            after
                inet_rdma_test_node:stop_all(),
                inet_rdma_test_netns:remove(Network)
            end;
        {error, Output} ->
            inet_rdma_test_link:skip("no network namespace can be made here: " ++ Output)
    end.

%% Shared memory cannot be made in one node, whichever connects.
memfd_is_refused(Config) ->
    Script = filename:join(proplists:get_value(data_dir, Config), "without_memfd.py"),
    case os:find_executable("python3") of
        false ->
            inet_rdma_test_link:skip("the seccomp filter needs python3");
        Python ->
            case os:cmd(Python ++ " " ++ Script ++ " /bin/echo yes") of
                "yes\n" ->
                    [A, B] = start_all([{"a", options([{fallback_retry_ms, 0}])},
                                        {"b", (options([{fallback_retry_ms, 0}]))#{under => [Python, Script]}}]),
                    falls_back(A, B, "shm: creating the memory of a connection: ");
                _ ->
                    inet_rdma_test_link:skip("this kernel has no seccomp filters")
            end
    end.

%% The link is up over TCP whichever connects, and both nodes say why.
falls_back(A, B, Why) ->
    [
        begin
            connect(X, Y),
            [carried_by(tcp, P, Q, Why) || {P, Q} <- [{A, B}, {B, A}]],
            ok = inet_rdma_test_link:exercise(X, Y),
            ok = inet_rdma_test_link:disconnect(X, Y)
        end
     || {X, Y} <- [{A, B}, {B, A}, {A, B}]
    ].

carried_by(Fabric, A, B, Why) ->
    ok = inet_rdma_test_link:await(A, B, Fabric, Why),
    Said = inet_rdma_test_link:why(A, B),
    ct:log("~p says of its link to ~p: ~ts", [name(A), name(B), Said]),
    ?assertMatch({_, {match, _}}, {Said, re:run(Said, Why, [unicode])}).

%% Peers that are no nodes.

%% A later version of the settlement: nothing of it is said, the link is up over TCP.
another_version(_Config) ->
    A = node_with_sink([]),
    [
        with_peer(Role, A, #{offer => inet_rdma_test_peer:offer(Version)}, fun(Link, Peer) ->
            up_on_tcp(A, Link, Peer, "settlement has version " ++ integer_to_list(Version))
        end)
     || Role <- [initiator, acceptor], Version <- [0, 2, 65535]
    ].

%% An older version of the stream protocol at the queue pair: each side names both versions, and the link is up over TCP.
another_stream_version(_Config) ->
    A = node_with_sink([{fallback_retry_ms, 0}]),
    Greeting = <<"inetrdma", 2:16/little, 0:46/unit:8>>,
    with_peer(acceptor, A, offered(), fun(Link, Peer) ->
        {hello, _} = inet_rdma_test_peer:hear(Link),
        ok = inet_rdma_test_peer:say(Link, same_host(A)),
        {'try', shm} = inet_rdma_test_peer:hear(Link),
        {Listener, Port} = rendezvous(),
        ok = inet_rdma_test_peer:say(Link, {listens, Port, 1, [<<"127.0.0.1">>]}),
        {ok, Caller} = socket:accept(Listener, inet_rdma_test_wait:patience(10000)),
        ok = socket:send(Caller, Greeting),
        {failed, shm, Why} = inet_rdma_test_peer:hear(Link),
        ?assertMatch({_, {match, _}}, {Why, re:run(Why, "speaks protocol version 2, this node speaks [0-9]+")}),
        ok = inet_rdma_test_peer:say(Link, {failed, shm, Why}),
        {stay, _} = inet_rdma_test_peer:hear(Link),
        ok = inet_rdma_test_peer:say(Link, {stayed}),
        up_on_tcp(A, Link, Peer, "speaks protocol version 2"),
        [socket:close(Socket) || Socket <- [Caller, Listener]]
    end),
    with_peer(initiator, A, offered(), fun(Link, Peer) ->
        {hello, Facts} = inet_rdma_test_peer:hear(Link),
        ok = inet_rdma_test_peer:say(Link, {hello, Facts}),
        ok = inet_rdma_test_peer:say(Link, {'try', shm}),
        {listens, Port, _Token, _} = inet_rdma_test_peer:hear(Link),
        [{Socket, Greeting}] = stranger(Port, Greeting),
        {ok, <<"inetrdma", Ours:16/little, _/binary>>} = socket:recv(Socket, 0, inet_rdma_test_wait:patience(10000)),
        ?assertNotEqual(2, Ours),
        ok = inet_rdma_test_peer:say(Link, {stay, <<"another version">>}),
        {stayed} = inet_rdma_test_peer:hear(Link),
        up_on_tcp(A, Link, Peer, "another version"),
        socket:close(Socket)
    end).

%% A socket where a caller over shared memory looks for a listener, and its port.
rendezvous() ->
    {ok, Socket} = socket:open(local, seqpacket, default),
    %% Not of the range that listeners of the library take when they may have any.
    Port = 40000 + rand:uniform(9000),
    ok = socket:bind(Socket, #{family => local, path => <<0, "inet_rdma/", (integer_to_binary(Port))/binary>>}),
    ok = socket:listen(Socket),
    {Socket, Port}.

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

%% Packets of the distribution in the same segment as the last message of the settlement: none is lost or read as another.
packets_right_behind_the_decision(_Config) ->
    A = node_with_sink([]),
    Numbers = lists:seq(1, 100),
    Packets = fun(Link) -> [{packet, inet_rdma_test_peer:packet(Link, ?NAME, {number, N})} || N <- Numbers] end,
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
    %% An initiator that does not wait to hear that the acceptor has heard.
    with_peer(initiator, A, offered(), fun(Link, Peer) ->
        {hello, #{}} = inet_rdma_test_peer:hear(Link),
        Stay = {message, {stay, <<"no way">>}},
        ok = inet_rdma_test_peer:glue(Link, [{message, inet_rdma_test_peer:hello()}, Stay | Packets(Link)]),
        {stayed} = inet_rdma_test_peer:hear(Link),
        Check(Link, Peer, "no way")
    end),
    %% The same while the acceptor waits for the queue pair, and when the initiator has said that there is none.
    with_peer(initiator, A, offered(), fun(Link, Peer) ->
        {hello, Facts} = inet_rdma_test_peer:hear(Link),
        ok = inet_rdma_test_peer:say(Link, {hello, Facts}),
        ok = inet_rdma_test_peer:say(Link, {'try', shm}),
        {listens, _, _, _} = inet_rdma_test_peer:hear(Link),
        ok = inet_rdma_test_peer:glue(Link, [{message, {stay, <<"no way">>}} | Packets(Link)]),
        {stayed} = inet_rdma_test_peer:hear(Link),
        Check(Link, Peer, "no way")
    end),
    with_peer(initiator, A, offered(), fun(Link, Peer) ->
        {hello, Facts} = inet_rdma_test_peer:hear(Link),
        Failed = {failed, shm, <<"no memory">>},
        ok = inet_rdma_test_peer:glue(Link, [{message, {hello, Facts}}, {message, Failed}, {message, {stay, <<"no way">>}} |
                                             Packets(Link)]),
        Failed = inet_rdma_test_peer:hear(Link),
        {stayed} = inet_rdma_test_peer:hear(Link),
        Check(Link, Peer, "no way")
    end),
    with_peer(initiator, A, offered(), fun(Link, Peer) ->
        {hello, Facts} = inet_rdma_test_peer:hear(Link),
        ok = inet_rdma_test_peer:say(Link, {hello, Facts}),
        ok = inet_rdma_test_peer:say(Link, {'try', shm}),
        {listens, _, _, _} = inet_rdma_test_peer:hear(Link),
        Failed = {failed, shm, <<"no memory">>},
        ok = inet_rdma_test_peer:glue(Link, [{message, Failed}, {message, {stay, <<"no way">>}} | Packets(Link)]),
        Failed = inet_rdma_test_peer:hear(Link),
        {stayed} = inet_rdma_test_peer:hear(Link),
        Check(Link, Peer, "no way")
    end).

%% Each answer ends the link with a reason in the log, at once or within the bound of the settlement.
peers_that_break_the_rules(_Config) ->
    A = node_with_sink([{fallback_retry_ms, 0}]),
    [broken(acceptor, A, Answers) || Answers <- rules_broken() ++ rules_broken_by_an_acceptor(A)].

peers_that_break_the_rules_as_initiator(_Config) ->
    A = node_with_sink([{fallback_retry_ms, 0}]),
    [broken(initiator, A, Answers) || Answers <- rules_broken() ++ rules_broken_by_an_initiator(A)].

%% {What, what the peer says, in its order}.
rules_broken() ->
    {hello, Facts} = Hello = inet_rdma_test_peer:hello(),
    Instead = [
        {garbage, {raw, <<"GET / HTTP/1.1\r\n\r\n">>}},
        {empty, {raw, <<>>}},
        {half_a_term, {raw, binary:part(term_to_binary(Hello), 0, 20)}},
        {unknown_atom, {raw, <<131, 104, 1, 119, 40, (binary:copy(<<"never_seen">>, 4))/binary>>}},
        {unknown_fun, {raw, term_to_binary(fun() -> Hello end)}},
        {huge_term, {say, binary:copy(<<"x">>, 65000)}},
        {huge_hello, {say, {hello, lists:seq(1, 10000)}}},
        {inflated, {raw, term_to_binary(binary:copy(<<0>>, 20000000), [compressed])}},
        %% In which nothing else is wrong.
        {compressed_hello, {raw, compressed({hello, Facts#{filling => binary:copy(<<0>>, 1000)}})}},
        {number, {say, 7}},
        {no_tuple, {say, []}},
        {empty_tuple, {say, {}}},
        {other_message, {say, {ready}}},
        {go, {say, {go}}},
        {try_before_hello, {say, {'try', shm}}},
        {hello_of_nothing, {say, {hello, #{}}}},
        {hello_of_a_list, {say, {hello, maps:to_list(Facts)}}}
    ],
    Wrong = [
        {Key, {say, {hello, Facts#{Key => Value}}}}
     || {Key, Values} <- [
            {fabric, [1, <<"shm">>]}, {required, [1, maybe_so]}, {boot, [boot, 1, <<1:1>>]}, {netns, [1.0, a]},
            {user, [root]}, {instance, [<<"1">>]}, {timeout_ms, [0, -1, infinity]},
            {shm, [{0, 1}, {65536, 1}, {1, -1}, {1, 1 bsl 64}, {1}, 1, []]}
        ],
        Value <- Values
    ],
    Behind = [
        {two_hellos, [{say, Hello}, {say, Hello}]},
        {garbage_behind_hello, [{say, Hello}, {raw, <<"garbage">>}]},
        {go_before_anything, [{say, Hello}, {say, {go}}]},
        {ready_before_anything, [{say, Hello}, {say, {ready}}]}
    ],
    [{What, [Answer]} || {What, Answer} <- Instead ++ Wrong] ++ Behind.

%% The node initiates, and believes that shared memory leads to the peer.
rules_broken_by_an_acceptor(A) ->
    Hello = {say, same_host(A)},
    [
        {What, [Hello, Answer]}
     || {What, Answer} <- [
            {ready_instead_of_listens, {say, {ready}}},
            {try_from_the_acceptor, {say, {'try', shm}}},
            {no_port, {say, {listens, 0, 1, []}}},
            {large_port, {say, {listens, 65536, 1, []}}},
            {negative_token, {say, {listens, 1, -1, []}}},
            {large_token, {say, {listens, 1, 1 bsl 64, []}}},
            {addresses_are_none, {say, {listens, 1, 1, localhost}}},
            {no_address, {say, {listens, 1, 1, [<<"localhost">>]}}},
            {improper_list, {say, {listens, 1, 1, [<<"127.0.0.1">> | <<"127.0.0.1">>]}}},
            {no_text, {say, {failed, shm, <<255, 254>>}}},
            {garbage_instead_of_listens, {raw, <<"garbage">>}}
        ]
    ].

rules_broken_by_an_initiator(A) ->
    Hello = {say, same_host(A)},
    [
        {What, [Hello | Answers]}
     || {What, Answers} <- [
            {unknown_fabric, [{say, {'try', carrier_pigeon}}]},
            {tcp_is_no_fabric, [{say, {'try', tcp}}]},
            {go_without_ready, [{say, {'try', shm}}, {say, {go}}]},
            {go_without_connecting, [{say, {go}}]},
            {garbage_instead_of_connecting, [{say, {'try', shm}}, {raw, <<"garbage">>}]},
            {no_text, [{say, {stay, <<255, 254>>}}]},
            {huge_text, [{say, {stay, binary:copy(<<"why ">>, 16000)}}]},
            {second_try, [{say, {'try', shm}}, {say, {failed, shm, <<"no memory">>}}, {say, {'try', shm}}]},
            {no_end_of_tries, lists:duplicate(2000, {say, {'try', shm}})}
        ]
    ].

compressed(Term) ->
    <<131, 80, _/binary>> = term_to_binary(Term, [compressed]).

same_host(A) ->
    inet_rdma_test_peer:hello(call(A, inet_rdma_nif, identity, [])).

broken(Role, A, {What, Answers}) ->
    ct:log("~p: ~p", [Role, What]),
    ok = call(A, inet_rdma_test_log, forget, []),
    with_peer(Role, A, offered(), fun(Link, Peer) ->
        {hello, _} = inet_rdma_test_peer:hear(Link),
        _ = [answer(Link, Answer) || Answer <- Answers],
        ok = inet_rdma_test_peer:await_end(Link),
        logged(A, ["inet_rdma", Peer, "settle"]),
        gone(A, Peer)
    end),
    ?assertEqual([], call(A, inet_rdma, info, [])).

answer(Link, {say, Term}) -> inet_rdma_test_peer:say(Link, Term);
answer(Link, {raw, Bytes}) -> inet_rdma_test_peer:say_raw(Link, Bytes).

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
                logged(A, ["inet_rdma", Peer, "closed"]),
                gone(A, Peer)
            end)
        end
     || {Role, Answers} <- [
            {initiator, []}, {acceptor, []}, {initiator, [Hello]}, {acceptor, [Hello]}, {initiator, [Hello, {say, {'try', shm}}]},
            {acceptor, [Hello, {say, {listens, 1, 1, [<<"127.0.0.1">>]}}]}
        ]
    ],
    %% It is no reason to keep the next link on TCP.
    B = inet_rdma_test_node:start("b"),
    connect(A, B),
    carried_by(shm, A, B, "").

%% Nothing more comes, at each point of the settlement: the link ends within the bound, and no process waits for longer.
silent_peers(_Config) ->
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
                logged(A, ["inet_rdma", Peer, "in time"]),
                gone(A, Peer)
            end)
        end
     || {Role, Answers} <- [
            {initiator, []}, {acceptor, []}, {initiator, [Hello]}, {acceptor, [Hello]}, {initiator, [Hello, {say, {'try', shm}}]}
        ]
    ].

%% A settlement that broke off is not repeated: the next link says so in its offer, and is up over TCP. Later it is tried
%% again.
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
                with_fake(Role, A, Fake, offered(), fun(#{residue := <<"inetrdma", 1:16, Flags, _/binary>>} = Link) ->
                    ok = inet_rdma_test_peer:hang_up(Link),
                    gone(A, Peer),
                    Flags band 3 =:= 0
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

%% The initiator has given up, and the acceptor's answers come after that: the link is on TCP, and they are no part of it.
late_answers_do_not_reach_the_link(_Config) ->
    A = node_with_sink([]),
    with_peer(acceptor, A, offered(), fun(Link, Peer) ->
        {hello, _} = inet_rdma_test_peer:hear(Link),
        {stay, _} = inet_rdma_test_peer:hear(Link),
        Late = [inet_rdma_test_peer:hello(), {failed, shm, <<"too late">>}, {ready}, {stayed}],
        [ok = inet_rdma_test_peer:say(Link, Message) || Message <- Late],
        up_on_tcp(A, Link, Peer, "did not answer in time")
    end).

%% The listener of the peer is not there, whether its hello names the place or its answer to `try` does.
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
                        ok = inet_rdma_test_peer:say(Link, {listens, 1, 1, [<<"127.0.0.1">>]}),
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
    ?assertMatch({failed, _}, Connect({hello, Facts#{instance := 100, shm => {1, 1}}})),
    ?assertMatch({stay, _}, Connect({hello, Facts#{instance := 100, shm => {1, 1}}})),
    inet_rdma_test_wait:until(tried_again, RetryMs, fun() -> element(1, Connect(Hello)) =:= 'try' end),
    inet_rdma_test_peer:close(Fake).

%% A node of the same name that has shared memory when it comes back.
restarted_peer_is_tried_at_once(Config) ->
    Script = filename:join(proplists:get_value(data_dir, Config), "without_memfd.py"),
    case os:find_executable("python3") of
        false ->
            inet_rdma_test_link:skip("the seccomp filter needs python3");
        Python ->
            Name = unique("b"),
            [A, B] = start_all([{"a", #{}}, {"b", #{name => Name, under => [Python, Script]}}]),
            [
                begin
                    connect(X, Y),
                    carried_by(tcp, X, Y, "shm: " ++ Why),
                    ok = inet_rdma_test_link:disconnect(X, Y)
                end
             || {X, Y, Why} <- [{A, B, ""}, {A, B, "it failed lately"}, {B, A, ""}, {B, A, "it failed lately"}]
            ],
            inet_rdma_test_node:stop(B),
            Restarted = inet_rdma_test_node:start("b", #{name => Name}),
            connect(A, Restarted),
            [carried_by(shm, X, Y, "") || {X, Y} <- [{A, Restarted}, {Restarted, A}]]
    end.

%% Processes of the same user that find the socket, but do not know the token.
strangers_at_the_one_off_listener(_Config) ->
    A = node_with_sink([]),
    #{os_pid := OsPid} = A,
    with_peer(initiator, A, offered(), fun(Link, Peer) ->
        {hello, Facts} = inet_rdma_test_peer:hear(Link),
        ok = inet_rdma_test_peer:say(Link, {hello, Facts}),
        ok = inet_rdma_test_peer:say(Link, {'try', shm}),
        {listens, Port, _Token, _} = inet_rdma_test_peer:hear(Link),
        #{memfd_maps := Maps} = inet_rdma_test_os:footprint(OsPid),
        Strangers = lists:append([stranger(Port, Said) || Said <- [<<>>, rand:bytes(100)], _ <- lists:seq(1, 25)]),
        ?assertNotEqual([], Strangers),
        [?assertMatch({error, _}, read_to_the_end(Socket)) || {Socket, <<_, _/binary>>} <- Strangers],
        ?assertMatch(#{memfd_maps := Maps}, inet_rdma_test_os:footprint(OsPid)),
        ok = inet_rdma_test_peer:say(Link, {stay, <<"no way">>}),
        {stayed} = inet_rdma_test_peer:hear(Link),
        up_on_tcp(A, Link, Peer, "no way"),
        [socket:close(Socket) || {Socket, _} <- Strangers]
    end).

%% A connection to a rendezvous socket that says this, if there is room for it.
stranger(Port, Said) ->
    {ok, Socket} = socket:open(local, seqpacket, default),
    case socket:connect(Socket, #{family => local, path => <<0, "inet_rdma/", (integer_to_binary(Port))/binary>>}) of
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

%% Many connections that say nothing, and others that send no handshake: nodes get in, and move to shared memory.
strangers_at_the_tcp_port(_Config) ->
    %% A link that global makes again would count.
    Nodes = [{"a", #{args => ["-kernel", "net_setuptime", "5"]}}, {"b", #{args => []}}],
    [A, B] = start_all([{Prefix, inet_rdma_test_node:alone(Options)} || {Prefix, Options} <- Nodes]),
    #{os_pid := OsPid} = A,
    [Short, _] = string:lexemes(atom_to_list(name(A)), "@"),
    {port, Port, _} = erl_epmd:port_please(Short, {127, 0, 0, 1}),
    %% The first link opens the listener over shm, which stays.
    connect(B, A),
    [carried_by(shm, X, Y, "") || {X, Y} <- [{A, B}, {B, A}]],
    ok = inet_rdma_test_link:disconnect(A, B),
    Before = inet_rdma_test_os:footprint(OsPid),
    Open = fun(Said) ->
        {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}]),
        _ = gen_tcp:send(Socket, Said),
        Socket
    end,
    Strangers = [Open(Said) || Said <- [<<>>, <<"GET / HTTP/1.1\r\n\r\n">>, <<0>>, <<0, 1, $N>>], _ <- lists:seq(1, 100)],
    connect(B, A),
    [carried_by(shm, X, Y, "") || {X, Y} <- [{A, B}, {B, A}]],
    ok = inet_rdma_test_link:exercise(A, B),
    ok = inet_rdma_test_link:disconnect(A, B),
    [gen_tcp:close(Socket) || Socket <- Strangers],
    ok = inet_rdma_test_os:await_footprint(OsPid, Before).

%% A reason in words of any language.
texts_outside_ascii(_Config) ->
    A = node_with_sink([]),
    Text = [16#e9, $ , 16#20ac, $~, $p],
    with_peer(initiator, A, offered(), fun(Link, Peer) ->
        {hello, _} = inet_rdma_test_peer:hear(Link),
        ok = inet_rdma_test_peer:say(Link, inet_rdma_test_peer:hello()),
        ok = inet_rdma_test_peer:say(Link, {stay, unicode:characters_to_binary(Text)}),
        {stayed} = inet_rdma_test_peer:hear(Link),
        up_on_tcp(A, Link, Peer, ""),
        ?assertEqual("the peer says: " ++ Text, maps:get(why, call(A, inet_rdma, info, [Peer])))
    end).

%% Each link is under another name, as those of erl_call and remote shells are. The node does not remember them for ever.
names_that_never_come_back(_Config) ->
    A = node_with_sink([]),
    {ok, Host} = inet:gethostname(),
    [
        begin
            Peer = list_to_atom(unique("never") ++ "@" ++ Host),
            Link = inet_rdma_test_peer:connect(name(A), Peer, #{}),
            inet_rdma_test_wait:until({up, Peer}, 10000, fun() -> inet_rdma_test_link:states(A, Peer) =:= [up] end),
            inet_rdma_test_peer:hang_up(Link),
            gone(A, Peer)
        end
     || _ <- lists:seq(1, 400)
    ],
    ?assert(call(A, ets, info, [inet_rdma_links, size]) =< 256).

%% What the cases have in common.

offered() -> #{offer => inet_rdma_test_peer:offer()}.

%% A node with a short bound of the settlement, that keeps its log and what is sent to the name ?NAME.
node_with_sink(Options) ->
    Node = inet_rdma_test_node:start("a", options([{connect_timeout_ms, ?BOUND_MS} | Options])),
    ok = call(Node, inet_rdma_test_log, install, []),
    new_sink(Node),
    Node.

new_sink(Node) ->
    _ = [true = call(Node, inet_rdma_test_watch, stop, [Old]) || Old <- [sink()], is_pid(Old)],
    {Sink, ok} = call(Node, inet_rdma_test_watch, messages_to, [?NAME]),
    _ = put(?NAME, Sink),
    ok.

sink() -> get(?NAME).

%% A peer of a name of its own, in either role. Test gets the link behind the handshake and the peer's name.
with_peer(Role, A, Options, Test) ->
    #{node := Peer} = Fake = inet_rdma_test_peer:open(),
    Result = with_fake(Role, A, Fake, Options, fun(Link) -> Test(Link, Peer) end),
    inet_rdma_test_peer:close(Fake),
    Result.

%% Role is the peer's. Where the node initiates, its connect_node must return.
with_fake(initiator, A, #{node := Peer}, Options, Test) ->
    Link = inet_rdma_test_peer:connect(name(A), Peer, Options),
    Result = Test(Link),
    inet_rdma_test_peer:hang_up(Link),
    gone(A, Peer),
    Result;
with_fake(acceptor, A, #{node := Peer} = Fake, Options, Test) ->
    {Caller, Ref} = spawn_monitor(fun() -> exit({returned, call(A, net_kernel, hidden_connect_node, [Peer])}) end),
    Link = inet_rdma_test_peer:accept(Fake, Options),
    Result = Test(Link),
    receive
        {'DOWN', Ref, process, Caller, {returned, Connected}} -> ?assert(is_boolean(Connected));
        {'DOWN', Ref, process, Caller, Reason} -> error(Reason)
    after inet_rdma_test_wait:patience(30000) -> error(connect_node_does_not_return)
    end,
    inet_rdma_test_peer:hang_up(Link),
    gone(A, Peer),
    Result.

%% The node shows the link as up over TCP with this reason, and a message of the peer arrives.
up_on_tcp(A, Link, Peer, Why) ->
    ok = inet_rdma_test_peer:carry(Link),
    inet_rdma_test_wait:until({up, Peer}, 10000, fun() -> inet_rdma_test_link:states(A, Peer) =:= [up] end),
    carried_by(tcp, A, #{node => Peer}, Why),
    Ref = make_ref(),
    ok = inet_rdma_test_peer:send(Link, ?NAME, Ref),
    inet_rdma_test_wait:until({message_of, Peer}, 10000, fun() ->
        lists:member(Ref, call(A, inet_rdma_test_watch, seen, [sink()]))
    end),
    ok.

%% Neither up nor pending.
gone(A, Peer) ->
    inet_rdma_test_wait:until({gone, Peer}, 10000, fun() ->
        {call(A, erlang, nodes, [connected]) -- [Peer] =:= call(A, erlang, nodes, [connected]),
         inet_rdma_test_link:states(A, Peer)} =:= {true, []}
    end).

%% One line of the log has all of these.
logged(Node, Wanted) ->
    Texts = [string:lowercase(text(Each)) || Each <- Wanted],
    inet_rdma_test_wait:until({logged, Texts}, 10000, fun() ->
        Lines = call(Node, inet_rdma_test_log, lines, []),
        case lists:any(fun(Line) -> lists:all(fun(Text) -> string:find(string:lowercase(Line), Text) =/= nomatch end, Texts) end, Lines) of
            true -> true;
            false -> Lines
        end
    end).

text(Atom) when is_atom(Atom) -> atom_to_list(Atom);
text(Text) -> Text.

options(Options) -> #{rdma => Options}.

start_all(Wanted) -> inet_rdma_test_node:start_all(Wanted).

connect(A, B) -> ok = inet_rdma_test_link:connect(A, B).

call(Node, Module, Function, Args) -> inet_rdma_test_node:call(Node, Module, Function, Args).

name(#{node := Name}) -> Name.

unique(Prefix) -> inet_rdma_test_node:unique(Prefix).

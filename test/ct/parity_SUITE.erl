%% The same calls on a socket of gen_tcp and on one of inet_rdma: results and messages are the same. Each case runs its
%% steps over both, within this node.
-module(parity_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([all/0, groups/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_group/2, end_per_group/2]).
-export([counts_of_active_mode/1, counts_tell_the_owner/1, controlling_process_forwards/1]).
-export([controlling_process_to_a_dead_process/1, controlling_process_to_the_owner/1, accept_leaves_no_message/1]).
-export([accept_that_succeeds_leaves_no_message/1, options_of_gen_tcp/1, lists_are_refused/1, statistics/1]).
-export([listen_on_an_address/1, connect_from_an_address/1, bad_addresses/1, lengths_of_packets/1]).
-export([lines/1, lines_as_messages/1, lines_then_raw/1, lines_that_are_too_long/1, lines_of_any_size/1]).
-export([lengths_are_of_raw_sockets/1]).
-export([values_that_hold/1, sends_behind_the_peers_end/1, options_that_are_refused/1]).
-export([keys_of_statistics/1, deviation_of_packets/1]).
-export([send_times_out/1, send_timeout_closes/1, socket_term_is_small/1]).

-define(TIMEOUT_MS, 20000).
%% inet:options() of OTP 25, without those of datagrams.
-define(OPTIONS_OF_INET, [tos, tclass, priority, reuseaddr, keepalive, dontroute, linger, sndbuf, recbuf, nodelay, ipv6_v6only,
                          buffer, header, active, packet, deliver, mode, exit_on_close, high_watermark, low_watermark,
                          high_msgq_watermark, low_msgq_watermark, send_timeout, send_timeout_close, show_econnreset]).
%% More than the peer takes in before it reads.
-define(LARGE_BYTES, 8388608).

suite() ->
    [{timetrap, {minutes, 2}}].

all() ->
    [{group, Fabric} || {Fabric, _, _} <- groups()].

%% auto is shared memory here: both ends are of this node.
groups() ->
    [{Fabric, [], cases()} || Fabric <- [auto, tcp]].

cases() ->
    [
        counts_of_active_mode, counts_tell_the_owner, controlling_process_forwards,
        controlling_process_to_a_dead_process, controlling_process_to_the_owner, accept_leaves_no_message,
        accept_that_succeeds_leaves_no_message, options_of_gen_tcp, values_that_hold, sends_behind_the_peers_end,
        options_that_are_refused, lists_are_refused, statistics, keys_of_statistics, deviation_of_packets, send_times_out,
        send_timeout_closes, listen_on_an_address, connect_from_an_address, bad_addresses, lengths_of_packets,
        lines, lines_as_messages, lines_then_raw, lines_that_are_too_long, lines_of_any_size, lengths_are_of_raw_sockets,
        socket_term_is_small
    ].

init_per_suite(Config) ->
    inet_rdma_test_node:only_rdma(Config).

end_per_suite(_Config) ->
    ok.

init_per_group(Fabric, Config) ->
    ok = application:set_env(inet_rdma, fabric, Fabric),
    Config.

end_per_group(_Fabric, _Config) ->
    ok = application:unset_env(inet_rdma, fabric).

counts_of_active_mode(_Config) ->
    Steps = [0, -3, 3, 0, -1, -2, true, 0, true, -2, once, 2, -5, 32767, 1, false, 5, true, 3, -4],
    same(fun(Module) ->
        {_, Y} = pair(Module, [{packet, 4}]),
        [{Step, setopts(Module, Y, [{active, Step}]), getopts(Module, Y, [active]), messages(Y)} || Step <- Steps]
    end).

%% Another process takes from the count: the owner is told of the end, and the other process is not.
counts_tell_the_owner(_Config) ->
    same(fun(Module) ->
        {_, Y} = pair(Module, [{packet, 4}]),
        ok = setopts(Module, Y, [{active, 3}]),
        Other = elsewhere(fun() -> {setopts(Module, Y, [{active, -3}]), messages(Y)} end),
        {Other, messages(Y)}
    end).

%% What the old owner has got and not read yet comes to the new one first.
controlling_process_forwards(_Config) ->
    same(fun(Module) ->
        {X, Y} = pair(Module, [{packet, 4}, {active, 5}]),
        [ok = Module:send(X, <<N>>) || N <- [1, 2, 3]],
        until_messages(3),
        Heir = heir(Y, 6),
        ok = Module:controlling_process(Y, Heir),
        [ok = Module:send(X, <<N>>) || N <- [4, 5]],
        {messages(Y), inherited(Heir)}
    end).

controlling_process_to_a_dead_process(_Config) ->
    Dead = elsewhere(fun self/0),
    same(fun(Module) ->
        {X, Y} = pair(Module, [{packet, 4}]),
        Given = Module:controlling_process(Y, Dead),
        ok = Module:send(X, <<"still mine">>),
        {Given, Module:recv(Y, 0, ?TIMEOUT_MS)}
    end).

controlling_process_to_the_owner(_Config) ->
    same(fun(Module) ->
        {_, Y} = pair(Module, []),
        Self = self(),
        {Module:controlling_process(Y, Self), elsewhere(fun() -> Module:controlling_process(Y, Self) end),
         elsewhere(fun() -> Module:controlling_process(Y, self()) end)}
    end).

%% The connection that comes after the time is there for the next accept, and no message is.
accept_leaves_no_message(_Config) ->
    same(fun(Module) ->
        {Listener, Port} = listen(Module, []),
        TimedOut = Module:accept(Listener, 50),
        {ok, _} = Module:connect("localhost", Port, []),
        Left = all_messages(),
        {ok, _} = Module:accept(Listener, ?TIMEOUT_MS),
        {TimedOut, Left, all_messages()}
    end).

accept_that_succeeds_leaves_no_message(_Config) ->
    same(fun(Module) ->
        {Listener, Port} = listen(Module, []),
        _ = [spawn_link(fun() -> {ok, _} = Module:connect("localhost", Port, []) end) || _ <- lists:seq(1, 50)],
        _ = [{ok, _} = Module:accept(Listener, ?TIMEOUT_MS) || _ <- lists:seq(1, 50)],
        all_messages()
    end).

options_of_gen_tcp(_Config) ->
    same(fun(Module) ->
        {X, Y} = pair(Module, [binary, {nodelay, true}, {packet, 4}]),
        ok = setopts(Module, Y, [{nodelay, true}, binary]),
        ok = Module:send(X, <<"data">>),
        {Module:recv(Y, 0, ?TIMEOUT_MS), getopts(Module, Y, [nodelay, packet])}
    end).

%% What is accepted is what gen_tcp gives for the same value, or would do.
values_that_hold(_Config) ->
    same(fun(Module) ->
        Options = [{delay_send, false}, {deliver, term}, {header, 0}, {exit_on_close, false}, {show_econnreset, true},
                   {linger, {false, 0}}, {keepalive, false}, {reuseaddr, true}, {nodelay, true}],
        {_, Y} = pair(Module, Options ++ [{mode, binary}, inet]),
        [{Option, setopts(Module, Y, [Option]), getopts(Module, Y, [element(1, Option)])} || Option <- Options]
    end),
    {X, _} = pair(inet_rdma, []),
    ?assertEqual({ok, [{mode, dynamic}]}, inet_rdma:getopts(X, [mode])),
    ?assertEqual(ok, inet_rdma:setopts(X, [{linger, {false, 7}}])),
    ?assertMatch({error, {bad_option, family, inet6, _}}, inet_rdma:setopts(X, [inet6])).

%% The meaning of {exit_on_close, false}.
sends_behind_the_peers_end(_Config) ->
    same(fun(Module) ->
        [
            begin
                {X, Y} = pair(Module, [{exit_on_close, false}, {packet, 4}]),
                ok = setopts(Module, Y, [{active, Active}]),
                ok = Module:shutdown(X, write),
                End = case Active of false -> Module:recv(Y, 0, ?TIMEOUT_MS); true -> messages(Y) end,
                {End, Module:send(Y, <<"goodbye">>), Module:recv(X, 0, ?TIMEOUT_MS)}
            end
         || Active <- [false, true]
        ]
    end).

%% Each option of inet, and each of the table for users: accepted with what holds, else refused with a reason.
options_that_are_refused(Config) ->
    {X, _} = pair(inet_rdma, []),
    Listed = [Key || {Key, _, _} <- inet_rdma_socket_options:tcp_options()],
    Effective = [active, packet, buffer, mode, send_timeout, send_timeout_close],
    ?assertEqual([], ?OPTIONS_OF_INET -- (Listed ++ Effective)),
    ?assertEqual(lists:sort(Listed), lists:sort(documented(Config))),
    [
        begin
            ?assertMatch({_, {error, {bad_option, Key, no_value, _}}}, {Key, Refused}),
            {error, Reason} = Refused,
            ?assertMatch({match, _}, re:run(inet_rdma:format_error(Reason), "it must be [a-z0-9{].{3,}"))
        end
     || {Key, _, _} <- inet_rdma_socket_options:tcp_options(),
        Refused <- [inet_rdma:listen(0, [{Key, no_value}]), inet_rdma:connect("localhost", 1, [{Key, no_value}]),
                    inet_rdma:setopts(X, [{Key, no_value}])]
    ],
    [?assertEqual({Key, ok}, {Key, inet_rdma:setopts(X, [{Key, Value}])})
     || {Key, Holds, _} <- inet_rdma_socket_options:tcp_options(), Value <- Holds],
    [?assertEqual({ok, [{Key, Value}]}, inet_rdma:getopts(X, [Key])) || {Key, [Value | _], _} <- inet_rdma_socket_options:tcp_options()],
    [?assertMatch({error, {bad_option, Key, _, _}}, inet_rdma:listen(0, [Option]))
     || {Key, Option} <- [{local, local}, {raw, {raw, 6, 1, <<1:32>>}}, {mode, list}, {linger, {linger, {true, 5}}},
                          {keepalive, {keepalive, true}}, {exit_on_close, {exit_on_close, true}}, {packet, {packet, http}}]].

%% The options of the table with three columns in docs/OPTIONS.md.
documented(Config) ->
    Suites = filename:dirname(string:trim(?config(data_dir, Config), trailing, "/")),
    {ok, Text} = file:read_file(filename:join([Suites, "..", "..", "docs", "OPTIONS.md"])),
    [_, Behind] = binary:split(Text, <<"| option | accepted |">>),
    [Table | _] = binary:split(Behind, <<"\n\n">>),
    [binary_to_atom(Key) || Row <- binary:split(Table, <<"\n">>, [global]), Cell <- first_cell(Row),
                            [Key] <- captured(Cell)].

first_cell(<<"| `", _/binary>> = Row) -> [lists:nth(2, binary:split(Row, <<"|">>, [global]))];
first_cell(_) -> [].

captured(Cell) ->
    {match, Keys} = re:run(Cell, "`([a-z0-9_]+)`", [global, {capture, all_but_first, binary}]),
    Keys.

lists_are_refused(_Config) ->
    ?assertMatch({error, {bad_option, mode, list, _}}, inet_rdma:listen(0, [list])),
    [begin
         {X, _} = pair(inet_rdma, [{packet, Packet}]),
         ?assertEqual({error, emsgsize}, inet_rdma:send(X, binary:copy(<<0>>, Size))),
         ?assertEqual({error, emsgsize}, inet_rdma:post_send(X, binary:copy(<<0>>, Size))),
         ?assertEqual(ok, inet_rdma:send(X, <<"small">>))
     end || {Packet, Size} <- [{1, 256}, {2, 65536}]],
    ?assertMatch({error, {bad_option, nodelay, yes, _}}, inet_rdma:listen(0, [{nodelay, yes}])).

%% recv_dvi of inet adds up differences from the average so far with their signs, and differs.
statistics(_Config) ->
    Keys = [recv_oct, recv_cnt, recv_max, recv_avg, send_oct, send_cnt, send_max, send_avg, send_pend],
    same(fun(Module) ->
        [
            begin
                {X, Y} = pair(Module, [{packet, Packet}]),
                Before = getstat(Module, Y, Keys),
                Counted = [
                    begin
                        ok = Module:send(X, binary:copy(<<10>>, Bytes)),
                        Read = [Module:recv(Y, Length, ?TIMEOUT_MS) || Length <- Lengths],
                        {Read, getstat(Module, X, Keys), getstat(Module, Y, Keys)}
                    end
                 || {Bytes, Lengths} <- Sends
                ],
                {Before, Counted}
            end
         || {Packet, Sends} <- [{4, [{96, [0]}, {296, [0]}, {0, [0]}, {60000, [0]}, {7, [0]}]},
                                {2, [{98, [0]}, {1000, [0]}]},
                                {line, [{1, [0]}, {3, [0, 0, 0]}]},
                                {raw, [{500, [500]}, {300, [100, 200]}, {10, [10]}]}]
        ]
    end).

%% What has come and was not read does not count; keys in any order; keys that are none.
keys_of_statistics(_Config) ->
    same(fun(Module) ->
        {X, Y} = pair(Module, [{packet, raw}]),
        ok = Module:send(X, binary:copy(<<0>>, 500)),
        {ok, _} = Module:recv(Y, 100, ?TIMEOUT_MS),
        {ok, All} = case Module of gen_tcp -> inet:getstat(Y); inet_rdma -> inet_rdma:getstat(Y) end,
        Read = [getstat(Module, Y, Keys) || Keys <- [[recv_oct, recv_cnt], [send_max, recv_max, recv_max], [], [recv_oct, foo]]],
        ok = Module:close(Y),
        {[Key || {Key, _} <- All], Read, getstat(Module, Y, [recv_oct])}
    end).

deviation_of_packets(_Config) ->
    {X, Y} = pair(inet_rdma, [{packet, 4}]),
    [begin
         ok = inet_rdma:send(X, binary:copy(<<0>>, Bytes)),
         {ok, _} = inet_rdma:recv(Y, 0, ?TIMEOUT_MS)
     end || Bytes <- [96, 296, 96, 296]],
    ?assertEqual({ok, [{recv_avg, 200}, {recv_dvi, 100}]}, inet_rdma:getstat(Y, [recv_avg, recv_dvi])).

%% The peer does not read: a send times out at last. When the peer reads again it gets whole packets, in order: the
%% packet that timed out had begun, and the rest of it is sent all the same.
send_times_out(_Config) ->
    same(fun(Module) ->
        {X, Y} = pair(Module, [{packet, 4}]),
        ok = setopts(Module, X, [{send_timeout, 200}]),
        {TimedOut, Packets} = send_until_error(Module, X, 1),
        ok = setopts(Module, X, [{send_timeout, infinity}]),
        {Sender, Ref} = spawn_monitor(fun() -> ok = Module:send(X, <<0:32, "next">>) end),
        Numbers = [begin
                       {ok, <<Number:32, _/binary>>} = Module:recv(Y, 0, ?TIMEOUT_MS),
                       Number
                   end || _ <- lists:seq(0, Packets)],
        ?assertEqual(lists:seq(1, Packets) ++ [0], Numbers),
        receive {'DOWN', Ref, process, Sender, Reason} -> ?assertEqual(normal, Reason) end,
        {TimedOut, getopts(Module, X, [send_timeout, send_timeout_close])}
    end).

send_timeout_closes(_Config) ->
    same(fun(Module) ->
        {X, _} = pair(Module, [{packet, 4}, {send_timeout, 200}, {send_timeout_close, true}]),
        {TimedOut, _} = send_until_error(Module, X, 1),
        %% enotconn over TCP, closed over RDMA.
        {TimedOut, element(1, Module:send(X, <<"more">>))}
    end).

%% 192.0.2.1 is reserved for documentation: no host has it.
listen_on_an_address(_Config) ->
    same(fun(Module) ->
        Pairs = [pair(Module, [{ip, Ip}]) || Ip <- [{127, 0, 0, 1}, loopback, any, {0, 0, 0, 0}]],
        [ok = Module:send(X, <<"hello">>) || {X, _} <- Pairs],
        {[Module:recv(Y, 5, ?TIMEOUT_MS) || {_, Y} <- Pairs], Module:listen(0, [{ip, {192, 0, 2, 1}}])}
    end).

connect_from_an_address(_Config) ->
    same(fun(Module) ->
        {Listener, Port} = listen(Module, []),
        Connect = fun(Option) -> Module:connect({127, 0, 0, 1}, Port, common(Module) ++ [Option]) end,
        Own = [inet, {ip, {127, 0, 0, 1}}, {ifaddr, {127, 0, 0, 1}}, {ip, loopback}, {ip, any}, {ip, {127, 0, 0, 2}}],
        Read = [
            begin
                {ok, X} = Connect(Option),
                {ok, Y} = Module:accept(Listener, ?TIMEOUT_MS),
                ok = Module:send(X, <<"hello">>),
                {Option, Module:recv(Y, 5, ?TIMEOUT_MS)}
            end
         || Option <- Own
        ],
        {Read, [Connect({Key, {192, 0, 2, 1}}) || Key <- [ip, ifaddr]], [Connect(Option) || Option <- [inet6, {ip, {0, 0, 0, 0, 0, 0, 0, 1}}]]}
    end).

bad_addresses(_Config) ->
    ?assertMatch({error, {bad_option, ip, nowhere, _}}, inet_rdma:listen(0, [{ip, nowhere}])),
    ?assertMatch({error, {bad_option, ip, nowhere, _}}, inet_rdma:connect("localhost", 1, [{ip, nowhere}])),
    {X, _} = pair(inet_rdma, []),
    ?assertMatch({error, {bad_option, ip, _, _}}, inet_rdma:setopts(X, [{ip, {127, 0, 0, 1}}])).

%% Both ends, and from one length to another.
lengths_of_packets(_Config) ->
    same(fun(Module) ->
        {X, Y} = pair(Module, []),
        [begin
             [ok = setopts(Module, End, [{packet, Packet}]) || End <- [X, Y]],
             [ok = Module:send(X, binary:copy(<<Size>>, Size)) || Size <- Sizes],
             {getopts(Module, Y, [packet]), [Module:recv(Y, 0, ?TIMEOUT_MS) || _ <- Sizes]}
         end || {Packet, Sizes} <- [{1, [0, 1, 3, 255]}, {2, [0, 255, 256, 65535]}, {4, [0, 65536]}, {1, [7]}]]
    end).

%% What is written, piece by piece, and what is read of it before the next piece; at last the end of the stream. A line
%% that has no newline then is lost.
lines(_Config) ->
    same(fun(Module) ->
        [
            begin
                {X, Y} = pair(Module, [{packet, line} | Options]),
                Read = [begin ok = Module:send(X, Piece), {Piece, received(Module, Y)} end || Piece <- Pieces],
                ok = Module:shutdown(X, write),
                {Options, Read, Module:recv(Y, 0, ?TIMEOUT_MS), getopts(Module, Y, [packet])}
            end
         || {Options, Pieces} <- [
                {[], ["one\ntwo\r\n\nhal", "f\nre", "st"]},
                {[], [[Byte] || Byte <- "a\nbc\n\n"] ++ [""]},
                {[{buffer, 10}], ["012345678\n", "0123456789\n", "0123456789012345678901234\nabc\n", "01234567", "89", "\n"]},
                {[{buffer, 100}, {packet_size, 10}], ["012345678\n\n", "01234567", "8\n"]},
                %% The smaller one: a piece is never too long.
                {[{buffer, 4}, {packet_size, 10}], ["0123456789012345678901234\nabc\n"]}
            ]
        ]
    end).

lines_as_messages(_Config) ->
    same(fun(Module) ->
        [
            begin
                {X, Y} = pair(Module, [{packet, line}]),
                ok = Module:send(X, "one\ntwo\n\nfour\nfi"),
                ok = setopts(Module, Y, [{active, Active}]),
                First = messages(Y),
                ok = Module:send(X, "ve\nsix"),
                ok = Module:close(X),
                {Active, First, messages(Y)}
            end
         || Active <- [once, true, 2, 5]
        ]
    end).

%% Lines of a header, then a body of a known length: what is there of a line when the mode changes is the body's.
lines_then_raw(_Config) ->
    same(fun(Module) ->
        Bodies = [{<<"body">>, [4]}, {<<"body">>, [1, 3]}, {<<"body and more">>, [6, 0]}, {<<"a\nb\nc">>, [0]}],
        [
            begin
                {X, Y} = pair(Module, [{packet, line}]),
                ok = Module:send(X, ["header\n\n", Body]),
                Header = [Module:recv(Y, 0, ?TIMEOUT_MS) || _ <- [1, 2]],
                Looked = case Look of true -> Module:recv(Y, 0, 100); false -> not_looked end,
                Set = setopts(Module, Y, [{packet, raw}]),
                Read = [Module:recv(Y, Length, ?TIMEOUT_MS) || Length <- Lengths],
                ok = setopts(Module, Y, [{packet, line}]),
                ok = Module:send(X, "line\n"),
                {Header, Looked, Set, Read, Module:recv(Y, 0, ?TIMEOUT_MS)}
            end
         || {Body, Lengths} <- Bodies, Look <- [false, true]
        ]
    end),
    %% As messages, too.
    same(fun(Module) ->
        {X, Y} = pair(Module, [{packet, line}]),
        ok = Module:send(X, "header\nbody"),
        {ok, _} = Module:recv(Y, 0, ?TIMEOUT_MS),
        {error, timeout} = Module:recv(Y, 0, 100),
        ok = setopts(Module, Y, [{packet, raw}]),
        ok = setopts(Module, Y, [{active, once}]),
        messages(Y)
    end).

%% gen_tcp closes with emsgsize.
lines_that_are_too_long(_Config) ->
    [
        begin
            {X, Y} = pair(inet_rdma, [{packet, line} | Options]),
            ok = inet_rdma:send(X, [<<"good\n">>, binary:copy(<<"x">>, Bytes)]),
            ?assertEqual({ok, <<"good\n">>}, inet_rdma:recv(Y, 0, ?TIMEOUT_MS)),
            {error, {peer_misbehaved, {packet_too_large, Got, Max}}} = inet_rdma:recv(Y, 0, ?TIMEOUT_MS),
            ?assert(Got > Max)
        end
     || {Options, Bytes, Max} <- [{[{packet_size, 10}], 11, 10},
                                  {[{packet_size, 1000000}, {buffer, 1000000}, {packet_max_bytes, 65536}], 70000, 65536}]
    ],
    {X, _} = pair(inet_rdma, []),
    [?assertMatch({error, {bad_option, Key, Value, _}}, inet_rdma:setopts(X, [{Key, Value}]))
     || {Key, Value} <- [{packet_size, -1}, {buffer, 0}, {buffer, infinity}, {packet, http}]],
    ?assertMatch({ok, [{packet, raw}, {packet_size, 0}, {buffer, 65536}]},
                 inet_rdma:getopts(X, [packet, packet_size, buffer])).

%% Through the ring and landing buffers, from a writer that does not wait for the reader.
lines_of_any_size(_Config) ->
    Line = fun(Bytes) -> [binary:copy(<<"x">>, Bytes), $\n] end,
    Lines = [iolist_to_binary(Line((N * N * 7919) rem Max)) || Max <- [100, 5000, 60000], N <- lists:seq(1, 200)],
    same(fun(Module) ->
        {X, Y} = pair(Module, [{packet, line}, {buffer, 65536}]),
        _ = spawn_link(fun() -> [ok = Module:send(X, Some) || Some <- Lines] end),
        Read = [begin {ok, Read} = Module:recv(Y, 0, ?TIMEOUT_MS), Read end || _ <- Lines],
        Read =:= Lines
    end).

lengths_are_of_raw_sockets(_Config) ->
    same(fun(Module) ->
        [
            begin
                {X, Y} = pair(Module, [{packet, Packet}]),
                ok = Module:send(X, "line\n"),
                {Packet, Module:recv(Y, 2, ?TIMEOUT_MS), Module:recv(Y, 0, ?TIMEOUT_MS)}
            end
         || Packet <- [1, 2, 4, line]
        ]
    end).

%% All that can be read now.
received(Module, Socket) ->
    case Module:recv(Socket, 0, 100) of
        {ok, Data} -> [Data | received(Module, Socket)];
        Error -> [Error]
    end.

%% The first error, and how many sends it took.
send_until_error(Module, Socket, Number) ->
    case Module:send(Socket, <<Number:32, 0:(8 * ?LARGE_BYTES)>>) of
        ok -> send_until_error(Module, Socket, Number + 1);
        Error -> {Error, Number}
    end.

%% Each message of active mode copies the socket.
socket_term_is_small(_Config) ->
    {X, _} = pair(inet_rdma, []),
    ?assert(erts_debug:flat_size(X) =< 12).

%% Runs the steps over both, each in a process of its own, and compares what they give.
same(Steps) ->
    [OverTcp, OverRdma] = [elsewhere(fun() -> Steps(Module) end) || Module <- [gen_tcp, inet_rdma]],
    ?assertEqual(OverTcp, OverRdma).

elsewhere(Fun) ->
    {Pid, Ref} = spawn_monitor(fun() -> exit({result, Fun()}) end),
    receive {'DOWN', Ref, process, Pid, {result, Result}} -> Result;
            {'DOWN', Ref, process, Pid, Reason} -> error(Reason)
    end.

%% Both ends belong to the caller, and live as long as it: inet_rdma closes a socket that no term names any more. The
%% second was accepted.
pair(Module, Options) ->
    {Listener, Port} = listen(Module, Options),
    Passive = [{active, false} | proplists:delete(ip, proplists:delete(active, Options))],
    {ok, X} = Module:connect("localhost", Port, common(Module) ++ Passive),
    {ok, Y} = Module:accept(Listener, ?TIMEOUT_MS),
    _ = put(pair, {X, Y}),
    {X, Y}.

listen(Module, Options) ->
    {ok, Listener} = Module:listen(0, common(Module) ++ Options),
    {ok, Port} = port(Module, Listener),
    {Listener, Port}.

%% What is the default of one module and not of the other.
common(gen_tcp) -> [binary, {active, false}];
common(inet_rdma) -> [].

port(gen_tcp, Listener) -> inet:port(Listener);
port(inet_rdma, Listener) -> inet_rdma:port(Listener).

setopts(gen_tcp, Socket, Options) -> inet:setopts(Socket, Options);
setopts(inet_rdma, Socket, Options) -> inet_rdma:setopts(Socket, Options).

getopts(gen_tcp, Socket, Keys) -> inet:getopts(Socket, Keys);
getopts(inet_rdma, Socket, Keys) -> inet_rdma:getopts(Socket, Keys).

getstat(gen_tcp, Socket, Keys) -> inet:getstat(Socket, Keys);
getstat(inet_rdma, Socket, Keys) -> inet_rdma:getstat(Socket, Keys).

%% The socket's messages within a tenth of a second, without what differs by name.
messages(Socket) ->
    receive
        Message when element(2, Message) =:= Socket -> [plain(Message) | messages(Socket)]
    after 100 -> []
    end.

plain({tcp, _, Data}) -> {data, Data};
plain({inet_rdma, _, Data}) -> {data, Data};
plain({Passive, _}) when Passive =:= tcp_passive; Passive =:= inet_rdma_passive -> passive;
plain({Closed, _}) when Closed =:= tcp_closed; Closed =:= inet_rdma_closed -> closed.

all_messages() ->
    receive after 100 -> ok end,
    {messages, Messages} = process_info(self(), messages),
    Messages.

until_messages(Count) ->
    inet_rdma_test_wait:until(messages, ?TIMEOUT_MS, fun() ->
        {message_queue_len, Length} = process_info(self(), message_queue_len),
        Length >= Count
    end).

%% A process that waits for Count messages, and tells the caller which of the socket's they are.
heir(Socket, Count) ->
    Caller = self(),
    spawn_link(fun() ->
        until_messages(Count),
        Caller ! {self(), messages(Socket)}
    end).

inherited(Heir) ->
    receive {Heir, Messages} -> Messages end.

%% Packets with lengths and lines on a socket of gen_tcp and on one of inet_rdma: what is read is
%% the same.
-module(parity_packets_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_parity, [same/1, pair/2, recv/3, setopts/3, getopts/3, messages/1]).

-export([all/0, groups/0, suite/0, init_per_group/2, end_per_group/2]).
-export([
    lengths_of_packets/1,
    lines_are_cut_as_by_gen_tcp/1,
    lines_as_messages/1,
    lines_then_raw/1,
    lines_that_are_too_long/1,
    lines_of_any_size/1,
    lengths_are_of_raw_sockets/1
]).

suite() -> inet_rdma_test_parity:suite().

all() -> inet_rdma_test_parity:all().

groups() ->
    inet_rdma_test_parity:groups([
        lengths_of_packets,
        lines_are_cut_as_by_gen_tcp,
        lines_as_messages,
        lines_then_raw,
        lines_that_are_too_long,
        lines_of_any_size,
        lengths_are_of_raw_sockets
    ]).

init_per_group(Fabric, Config) -> inet_rdma_test_parity:init_per_group(Fabric, Config).

end_per_group(Fabric, Config) -> inet_rdma_test_parity:end_per_group(Fabric, Config).

%% Packets with each length of the header, also after a change of the length on both ends.
lengths_of_packets(_Config) ->
    same(fun(Module) ->
        {X, Y} = pair(Module, []),
        [
            begin
                [ok = setopts(Module, End, [{packet, Packet}]) || End <- [X, Y]],
                [ok = Module:send(X, binary:copy(<<Size>>, Size)) || Size <- Sizes],
                {getopts(Module, Y, [packet]), [recv(Module, Y, 0) || _ <- Sizes]}
            end
         || {Packet, Sizes} <- [
                {1, [0, 1, 3, 255]}, {2, [0, 255, 256, 65535]}, {4, [0, 65536]}, {1, [7]}
            ]
        ]
    end).

%% What is written, piece by piece, and what is read of it before the next piece; at last the end of
%% the stream. A line that has no newline then is lost.
lines_are_cut_as_by_gen_tcp(_Config) ->
    same(fun(Module) ->
        [
            begin
                {X, Y} = pair(Module, [{packet, line} | Options]),
                Read = [
                    begin
                        ok = Module:send(X, Piece),
                        {Piece, received(Module, Y)}
                    end
                 || Piece <- Pieces
                ],
                ok = Module:shutdown(X, write),
                {Options, Read, recv(Module, Y, 0), getopts(Module, Y, [packet])}
            end
         || {Options, Pieces} <- [
                {[], ["one\ntwo\r\n\nhal", "f\nre", "st"]},
                {[], [[Byte] || Byte <- "a\nbc\n\n"] ++ [""]},
                {[{buffer, 10}], [
                    "012345678\n",
                    "0123456789\n",
                    "0123456789012345678901234\nabc\n",
                    "01234567",
                    "89",
                    "\n"
                ]},
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

%% Lines of a header, then a body of a known length: what is there of a line when the mode changes
%% is the body's.
lines_then_raw(_Config) ->
    same(fun(Module) ->
        Bodies = [
            {<<"body">>, [4]},
            {<<"body">>, [1, 3]},
            {<<"body and more">>, [6, 0]},
            {<<"a\nb\nc">>, [0]}
        ],
        [
            begin
                {X, Y} = pair(Module, [{packet, line}]),
                ok = Module:send(X, ["header\n\n", Body]),
                Header = [recv(Module, Y, 0) || _ <- [1, 2]],
                Looked =
                    case Look of
                        true -> Module:recv(Y, 0, 100);
                        false -> not_looked
                    end,
                Set = setopts(Module, Y, [{packet, raw}]),
                Read = [recv(Module, Y, Length) || Length <- Lengths],
                ok = setopts(Module, Y, [{packet, line}]),
                ok = Module:send(X, "line\n"),
                {Header, Looked, Set, Read, recv(Module, Y, 0)}
            end
         || {Body, Lengths} <- Bodies, Look <- [false, true]
        ]
    end),
    %% As messages, too.
    same(fun(Module) ->
        {X, Y} = pair(Module, [{packet, line}]),
        ok = Module:send(X, "header\nbody"),
        {ok, _} = recv(Module, Y, 0),
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
            ?assertEqual({ok, <<"good\n">>}, recv(inet_rdma, Y, 0)),
            {error, {peer_misbehaved, {packet_too_large, Got, Max}}} = recv(inet_rdma, Y, 0),
            ?assert(Got > Max)
        end
     || {Options, Bytes, Max} <- [
            {[{packet_size, 10}], 11, 10},
            {[{packet_size, 1000000}, {buffer, 1000000}, {packet_max_bytes, 65536}], 70000, 65536}
        ]
    ],
    {X, _} = pair(inet_rdma, []),
    [
        ?assertMatch({error, {bad_option, Key, Value, _}}, inet_rdma:setopts(X, [{Key, Value}]))
     || {Key, Value} <- [{packet_size, -1}, {buffer, 0}, {buffer, infinity}, {packet, http}]
    ],
    ?assertMatch(
        {ok, [{packet, raw}, {packet_size, 0}, {buffer, 65536}]},
        inet_rdma:getopts(X, [packet, packet_size, buffer])
    ).

%% Through the ring and landing buffers, from a writer that does not wait for the reader.
lines_of_any_size(_Config) ->
    Line = fun(Bytes) -> [binary:copy(<<"x">>, Bytes), $\n] end,
    Lines = [
        iolist_to_binary(Line((N * N * 7919) rem Max))
     || Max <- [100, 5000, 60000], N <- lists:seq(1, 200)
    ],
    same(fun(Module) ->
        {X, Y} = pair(Module, [{packet, line}, {buffer, 65536}]),
        _ = spawn_link(fun() -> [ok = Module:send(X, Some) || Some <- Lines] end),
        Read = [
            begin
                {ok, Read} = recv(Module, Y, 0),
                Read
            end
         || _ <- Lines
        ],
        Read =:= Lines
    end).

lengths_are_of_raw_sockets(_Config) ->
    same(fun(Module) ->
        [
            begin
                {X, Y} = pair(Module, [{packet, Packet}]),
                ok = Module:send(X, "line\n"),
                {Packet, recv(Module, Y, 2), recv(Module, Y, 0)}
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

%% Options, addresses of sockets and statistics of gen_tcp's sockets and inet_rdma's: results are
%% the same, and what inet_rdma cannot do is refused by name.
-module(parity_options_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_parity, [
    same/1, pair/2, listen/2, accept/2, common/1, recv/3, setopts/3, getopts/3, getstat/3
]).

-export([all/0, groups/0, suite/0, init_per_group/2, end_per_group/2]).
-export([
    options_of_gen_tcp/1,
    values_that_hold/1,
    options_that_are_refused/1,
    lists_are_refused/1,
    statistics_equal_those_of_inet/1,
    keys_of_statistics/1,
    deviation_of_packets/1,
    listen_on_an_address/1,
    connect_from_an_address/1,
    bad_addresses_are_named/1
]).

%% inet:options() of OTP 25, without those of datagrams.
-define(OPTIONS_OF_INET, [
    tos,
    tclass,
    priority,
    reuseaddr,
    keepalive,
    dontroute,
    linger,
    sndbuf,
    recbuf,
    nodelay,
    ipv6_v6only,
    buffer,
    header,
    active,
    packet,
    deliver,
    mode,
    exit_on_close,
    high_watermark,
    low_watermark,
    high_msgq_watermark,
    low_msgq_watermark,
    send_timeout,
    send_timeout_close,
    show_econnreset
]).

suite() -> inet_rdma_test_parity:suite().

all() -> inet_rdma_test_parity:all().

groups() ->
    inet_rdma_test_parity:groups([
        options_of_gen_tcp,
        values_that_hold,
        options_that_are_refused,
        lists_are_refused,
        statistics_equal_those_of_inet,
        keys_of_statistics,
        deviation_of_packets,
        listen_on_an_address,
        connect_from_an_address,
        bad_addresses_are_named
    ]).

init_per_group(Fabric, Config) -> inet_rdma_test_parity:init_per_group(Fabric, Config).

end_per_group(Fabric, Config) -> inet_rdma_test_parity:end_per_group(Fabric, Config).

options_of_gen_tcp(_Config) ->
    same(fun(Module) ->
        {X, Y} = pair(Module, [binary, {nodelay, true}, {packet, 4}]),
        ok = setopts(Module, Y, [{nodelay, true}, binary]),
        ok = Module:send(X, <<"data">>),
        {recv(Module, Y, 0), getopts(Module, Y, [nodelay, packet])}
    end).

%% What is accepted is what gen_tcp gives for the same value, or would do.
values_that_hold(_Config) ->
    same(fun(Module) ->
        Options = [
            {delay_send, false},
            {deliver, term},
            {header, 0},
            {exit_on_close, false},
            {show_econnreset, true},
            {linger, {false, 0}},
            {keepalive, false},
            {reuseaddr, true},
            {nodelay, true}
        ],
        {_, Y} = pair(Module, Options ++ [{mode, binary}, inet]),
        [
            {Option, setopts(Module, Y, [Option]), getopts(Module, Y, [element(1, Option)])}
         || Option <- Options
        ]
    end),
    {X, _} = pair(inet_rdma, []),
    ?assertEqual({ok, [{mode, dynamic}]}, inet_rdma:getopts(X, [mode])),
    ?assertEqual(ok, inet_rdma:setopts(X, [{linger, {false, 7}}])),
    ?assertMatch({error, {bad_option, family, inet6, _}}, inet_rdma:setopts(X, [inet6])).

%% Each option of inet, and each of the table for users: accepted with what holds, else refused with
%% a reason.
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
            ?assertMatch(
                {match, _}, re:run(inet_rdma:format_error(Reason), "it must be [a-z0-9{].{3,}")
            )
        end
     || {Key, _, _} <- inet_rdma_socket_options:tcp_options(),
        Refused <- [
            inet_rdma:listen(0, [{Key, no_value}]),
            inet_rdma:connect("localhost", 1, [{Key, no_value}]),
            inet_rdma:setopts(X, [{Key, no_value}])
        ]
    ],
    [
        ?assertEqual({Key, ok}, {Key, inet_rdma:setopts(X, [{Key, Value}])})
     || {Key, Holds, _} <- inet_rdma_socket_options:tcp_options(), Value <- Holds
    ],
    [
        ?assertEqual({ok, [{Key, Value}]}, inet_rdma:getopts(X, [Key]))
     || {Key, [Value | _], _} <- inet_rdma_socket_options:tcp_options()
    ],
    [
        ?assertMatch({error, {bad_option, Key, _, _}}, inet_rdma:listen(0, [Option]))
     || {Key, Option} <- [
            {local, local},
            {raw, {raw, 6, 1, <<1:32>>}},
            {mode, list},
            {linger, {linger, {true, 5}}},
            {keepalive, {keepalive, true}},
            {exit_on_close, {exit_on_close, true}},
            {packet, {packet, http}}
        ]
    ].

%% The options of the table with three columns in docs/OPTIONS.md.
documented(Config) ->
    Suites = filename:dirname(string:trim(?config(data_dir, Config), trailing, "/")),
    {ok, Text} = file:read_file(filename:join([Suites, "..", "..", "..", "docs", "OPTIONS.md"])),
    [_, Behind] = binary:split(Text, <<"| option | accepted |">>),
    [Table | _] = binary:split(Behind, <<"\n\n">>),
    [
        binary_to_atom(Key)
     || Row <- binary:split(Table, <<"\n">>, [global]),
        Cell <- first_cell(Row),
        [Key] <- captured(Cell)
    ].

first_cell(<<"| `", _/binary>> = Row) -> [lists:nth(2, binary:split(Row, <<"|">>, [global]))];
first_cell(_) -> [].

captured(Cell) ->
    {match, Keys} = re:run(Cell, "`([a-z0-9_]+)`", [global, {capture, all_but_first, binary}]),
    Keys.

lists_are_refused(_Config) ->
    ?assertMatch({error, {bad_option, mode, list, _}}, inet_rdma:listen(0, [list])),
    [
        begin
            {X, _} = pair(inet_rdma, [{packet, Packet}]),
            ?assertEqual({error, emsgsize}, inet_rdma:send(X, binary:copy(<<0>>, Size))),
            ?assertEqual({error, emsgsize}, inet_rdma:post_send(X, binary:copy(<<0>>, Size))),
            ?assertEqual(ok, inet_rdma:send(X, <<"small">>))
        end
     || {Packet, Size} <- [{1, 256}, {2, 65536}]
    ],
    ?assertMatch({error, {bad_option, nodelay, yes, _}}, inet_rdma:listen(0, [{nodelay, yes}])).

%% recv_dvi of inet adds up differences from the average so far with their signs, and differs.
statistics_equal_those_of_inet(_Config) ->
    Keys = [
        recv_oct, recv_cnt, recv_max, recv_avg, send_oct, send_cnt, send_max, send_avg, send_pend
    ],
    same(fun(Module) ->
        [
            begin
                {X, Y} = pair(Module, [{packet, Packet}]),
                Before = getstat(Module, Y, Keys),
                Counted = [
                    begin
                        ok = Module:send(X, binary:copy(<<10>>, Bytes)),
                        Read = [recv(Module, Y, Length) || Length <- Lengths],
                        {Read, getstat(Module, X, Keys), getstat(Module, Y, Keys)}
                    end
                 || {Bytes, Lengths} <- Sends
                ],
                {Before, Counted}
            end
         || {Packet, Sends} <- [
                {4, [{96, [0]}, {296, [0]}, {0, [0]}, {60000, [0]}, {7, [0]}]},
                {2, [{98, [0]}, {1000, [0]}]},
                {line, [{1, [0]}, {3, [0, 0, 0]}]},
                {raw, [{500, [500]}, {300, [100, 200]}, {10, [10]}]}
            ]
        ]
    end).

%% What has come and was not read does not count; keys in any order; keys that are none.
keys_of_statistics(_Config) ->
    same(fun(Module) ->
        {X, Y} = pair(Module, [{packet, raw}]),
        ok = Module:send(X, binary:copy(<<0>>, 500)),
        {ok, _} = recv(Module, Y, 100),
        {ok, All} =
            case Module of
                gen_tcp -> inet:getstat(Y);
                inet_rdma -> inet_rdma:getstat(Y)
            end,
        Asked = [[recv_oct, recv_cnt], [send_max, recv_max, recv_max], [], [recv_oct, foo]],
        Read = [getstat(Module, Y, Keys) || Keys <- Asked],
        ok = Module:close(Y),
        {[Key || {Key, _} <- All], Read, getstat(Module, Y, [recv_oct])}
    end).

deviation_of_packets(_Config) ->
    {X, Y} = pair(inet_rdma, [{packet, 4}]),
    [
        begin
            ok = inet_rdma:send(X, binary:copy(<<0>>, Bytes)),
            {ok, _} = recv(inet_rdma, Y, 0)
        end
     || Bytes <- [96, 296, 96, 296]
    ],
    ?assertEqual(
        {ok, [{recv_avg, 200}, {recv_dvi, 100}]}, inet_rdma:getstat(Y, [recv_avg, recv_dvi])
    ).

%% 192.0.2.1 is reserved for documentation: no host has it.
listen_on_an_address(_Config) ->
    same(fun(Module) ->
        Pairs = [pair(Module, [{ip, Ip}]) || Ip <- [{127, 0, 0, 1}, loopback, any, {0, 0, 0, 0}]],
        [ok = Module:send(X, <<"hello">>) || {X, _} <- Pairs],
        {[recv(Module, Y, 5) || {_, Y} <- Pairs], Module:listen(0, [{ip, {192, 0, 2, 1}}])}
    end).

connect_from_an_address(_Config) ->
    same(fun(Module) ->
        {Listener, Port} = listen(Module, []),
        Connect = fun(Option) ->
            Module:connect({127, 0, 0, 1}, Port, common(Module) ++ [Option])
        end,
        Own = [
            inet,
            {ip, {127, 0, 0, 1}},
            {ifaddr, {127, 0, 0, 1}},
            {ip, loopback},
            {ip, any},
            {ip, {127, 0, 0, 2}}
        ],
        Read = [
            begin
                {ok, X} = Connect(Option),
                {ok, Y} = accept(Module, Listener),
                ok = Module:send(X, <<"hello">>),
                {Option, recv(Module, Y, 5)}
            end
         || Option <- Own
        ],
        {Read, [Connect({Key, {192, 0, 2, 1}}) || Key <- [ip, ifaddr]], [
            Connect(Option)
         || Option <- [inet6, {ip, {0, 0, 0, 0, 0, 0, 0, 1}}]
        ]}
    end).

bad_addresses_are_named(_Config) ->
    ?assertMatch({error, {bad_option, ip, nowhere, _}}, inet_rdma:listen(0, [{ip, nowhere}])),
    ?assertMatch(
        {error, {bad_option, ip, nowhere, _}}, inet_rdma:connect("localhost", 1, [{ip, nowhere}])
    ),
    {X, _} = pair(inet_rdma, []),
    ?assertMatch({error, {bad_option, ip, _, _}}, inet_rdma:setopts(X, [{ip, {127, 0, 0, 1}}])).

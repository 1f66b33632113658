%% The native functions of encrypted connections: protection, keys, and the messages about them.
-module(records_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([cipher_is_one_that_can_be_used/1, protection_is_checked/1, packets_arrive_encrypted/1]).
-export([keys_change_under_load/1, keys_change_with_time/1, wrong_key_ends_the_connection/1]).
-export([guard_hears_of_the_end/1, guard_ends_the_stream/1, link_carries_packets_encrypted/1]).

-define(PACKET_MAX, 2_000_000).

suite() ->
    [{timetrap, {minutes, 2}}].

all() ->
    [
        cipher_is_one_that_can_be_used,
        protection_is_checked,
        packets_arrive_encrypted,
        keys_change_under_load,
        keys_change_with_time,
        wrong_key_ends_the_connection,
        guard_hears_of_the_end,
        guard_ends_the_stream,
        link_carries_packets_encrypted
    ].

init_per_suite(Config) ->
    ok = inet_rdma_nif:load(),
    Config.

end_per_suite(_Config) ->
    ok.

cipher_is_one_that_can_be_used(_Config) ->
    ?assert(lists:member(inet_rdma_nif:cipher(), [aes_256_gcm, chacha20_poly1305])).

%% A term that is no protection takes no queue pair: the attempt can still be used.
protection_is_checked(_Config) ->
    {Left, Right} = attempts(),
    {Good, Other} = protections(aes_256_gcm, #{}),
    [
        ?assertError(badarg, inet_rdma_nif:stream(Left, Wrong))
     || Wrong <- [
            undefined,
            #{},
            maps:remove(send_key, Good),
            Good#{cipher := aes_128_gcm},
            Good#{send_key := <<0:128>>},
            Good#{send_key := maps:get(receive_key, Good)},
            Good#{rekey_bytes => -1},
            Good#{rekey_seconds => -1}
        ]
    ],
    {ok, _} = inet_rdma_nif:stream(Left, Good),
    {ok, _} = inet_rdma_nif:stream(Right, Other).

packets_arrive_encrypted(_Config) ->
    [
        begin
            {Left, Right} = streams(Cipher, #{}),
            Data = rand:bytes(300_000),
            Reader = spawn_reader(Right, byte_size(Data)),
            send(Left, Data),
            ?assertEqual(Data, result(Reader)),
            #{cipher := Cipher, key_generation := 0, key_records := Records, key_bytes := Bytes} =
                inet_rdma_nif:statistics(Left),
            ?assert(Records > 4),
            ?assert(Bytes > byte_size(Data))
        end
     || Cipher <- [aes_256_gcm, chacha20_poly1305]
    ].

keys_change_under_load(_Config) ->
    {Left, Right} = streams(inet_rdma_nif:cipher(), #{rekey_bytes => 1_000_000}),
    Data = rand:bytes(20_000_000),
    Reader = spawn_reader(Right, byte_size(Data)),
    send(Left, Data),
    ?assertEqual(Data, result(Reader)),
    #{key_generation := Generation} = inet_rdma_nif:statistics(Left),
    ?assert(Generation >= 10),
    ?assertMatch(#{peer_key_generation := Generation}, inet_rdma_nif:statistics(Right)).

keys_change_with_time(_Config) ->
    {Left, Right} = streams(inet_rdma_nif:cipher(), #{rekey_seconds => 1}),
    inet_rdma_test_wait:until(another_key, 20000, fun() ->
        send(Left, <<"tick">>),
        ?assertEqual(<<"tick">>, iolist_to_binary(read(Right, 4))),
        case {inet_rdma_nif:statistics(Left), inet_rdma_nif:statistics(Right)} of
            {#{key_generation := Own}, #{peer_key_generation := Own}} when Own > 1 -> true;
            {#{key_generation := Own}, #{peer_key_generation := Peers}} -> {Own, Peers}
        end
    end).

wrong_key_ends_the_connection(_Config) ->
    {Left, Right} = attempts(),
    {Mine, Theirs} = protections(aes_256_gcm, #{}),
    {ok, Writer} = inet_rdma_nif:stream(Left, Mine),
    {ok, Reader} = inet_rdma_nif:stream(Right, Theirs#{receive_key := crypto_key()}),
    ok = inet_rdma_nif:send(Writer, [[<<"who is there">>]], 0),
    {error, Reason, []} = recv(Reader),
    ?assertEqual({peer_misbehaved, {record_forged, 0}}, Reason),
    ?assertEqual(
        "record 0 is not the peer's: it was changed, repeated, left out or moved",
        inet_rdma:format_error(Reason)
    ).

%% The guard gets one message at the end of a stream, for each kind of end, and at once if it asks
%% after the end. The guard does not keep the stream open.
guard_hears_of_the_end(_Config) ->
    [
        begin
            {Owner, Left, Right} = owned_streams(),
            {ok, Guard, Id} = inet_rdma_nif:tls_owner(Left),
            {ok, _, Other} = inet_rdma_nif:tls_owner(Right),
            receive
                {'$inet_rdma', _, ended} -> ct:fail({too_early, How})
            after 0 -> ok
            end,
            end_it(How, Owner, Left),
            [
                receive
                    {'$inet_rdma', Of, ended} -> ok
                end
             || Of <- [Id, Other]
            ],
            ok = inet_rdma_nif:end_stream(Guard, tls_gone),
            receive
                {'$inet_rdma', _, ended} -> ct:fail({told_twice, How})
            after 0 -> ok
            end
        end
     || How <- [close, death]
    ],
    {_, Left, Right} = owned_streams(),
    ok = inet_rdma_nif:close(Left),
    {error, closed, []} = recv(Right),
    {ok, Late, LateId} = inet_rdma_nif:tls_owner(Right),
    receive
        {'$inet_rdma', LateId, ended} -> ok
    end,
    %% The last term of the stream is collected, the guard still has its own.
    Self = self(),
    Holder = spawn_link(fun() ->
        {Mine, Theirs} = streams(aes_256_gcm, #{}),
        {ok, MyGuard, MyId} = inet_rdma_nif:tls_owner(Mine),
        Self ! {guarded, MyId, inet_rdma_nif:own(Mine, Self), inet_rdma_nif:own(Theirs, Self)},
        held([MyGuard], MyId, Self)
    end),
    receive
        {guarded, HeldId, ok, ok} ->
            Holder ! collect,
            receive
                {collected, HeldId} -> ok
            end
    end,
    true = is_reference(Late).

held(Guards, Id, To) ->
    receive
        collect -> ok
    end,
    true = erlang:garbage_collect(),
    receive
        {'$inet_rdma', Id, ended} -> To ! {collected, Id}
    end,
    true = is_list(Guards).

owned_streams() ->
    {Left, Right} = streams(aes_256_gcm, #{}),
    Owner = spawn(fun() ->
        receive
            stop -> ok
        end
    end),
    ok = inet_rdma_nif:own(Left, Owner),
    {Owner, Left, Right}.

end_it(close, _Owner, Conn) -> ok = inet_rdma_nif:close(Conn);
end_it(death, Owner, _Conn) -> Owner ! stop.

%% A guard ends a stream with its reason, after what has arrived; so does its own death.
guard_ends_the_stream(_Config) ->
    [
        begin
            {Left, Right} = streams(aes_256_gcm, #{}),
            ok = inet_rdma_nif:send(Right, [[<<"before">>]], 0),
            End(Left),
            ?assertEqual({<<"before">>, Reason}, {next(Left), ended(Left)}),
            ?assertEqual(peer_gone, ended(Right))
        end
     || {End, Reason} <- [
            {fun(Conn) -> end_by(Conn, tls_gone) end, tls_gone},
            {fun(Conn) -> end_by(Conn, tls_bytes) end, {peer_misbehaved, tls_bytes}},
            {fun guard_dies/1, tls_gone}
        ]
    ],
    %% The peer has ended it in order before.
    {Left, Right} = streams(aes_256_gcm, #{}),
    ok = inet_rdma_nif:send(Right, [[<<"before">>]], 0),
    ok = inet_rdma_nif:finish(Right),
    end_by(Left, tls_gone),
    ?assertEqual({<<"before">>, closed}, {next(Left), ended(Left)}).

end_by(Conn, Reason) ->
    {ok, Guard, _} = inet_rdma_nif:tls_owner(Conn),
    ok = inet_rdma_nif:end_stream(Guard, Reason).

guard_dies(Conn) ->
    {Pid, Monitor} = spawn_monitor(fun() -> {ok, _, _} = inet_rdma_nif:tls_owner(Conn) end),
    receive
        {'DOWN', Monitor, process, Pid, normal} -> ok
    end.

%% The end may come with the last packet.
next(Conn) ->
    case recv(Conn) of
        {_, [Packet]} -> Packet;
        {error, _, [Packet]} -> Packet
    end.

ended(Conn) ->
    {error, Reason, []} = recv(Conn),
    Reason.

%% A port that is no distribution's gives what arrives to its owner.
link_carries_packets_encrypted(_Config) ->
    {{LeftPort, Left}, {RightPort, Right}} = links(#{rekey_bytes => 100_000}),
    Data = rand:bytes(1_000_000),
    true = port_command(LeftPort, Data),
    ?assertEqual(
        Data,
        receive
            {RightPort, {data, Arrived}} -> iolist_to_binary(Arrived)
        end
    ),
    ok = inet_rdma_port:tick(LeftPort),
    true = port_command(LeftPort, <<"behind">>),
    ?assertEqual(
        <<"behind">>,
        receive
            {RightPort, {data, Behind}} -> iolist_to_binary(Behind)
        end
    ),
    ?assertEqual(up, inet_rdma_nif:link_end(Left)),
    true = port_close(LeftPort),
    receive
        {'EXIT', RightPort, connection_closed} -> ok
    end,
    ?assertEqual(closed, inet_rdma_nif:link_end(Right)).

%% Two ends of one queue pair over shared memory, both of this node.
attempts() ->
    Config = maps:from_list([{Key, Default} || {Key, _, _, Default} <- inet_rdma_options:list()]),
    Token = inet_rdma_nif:token(),
    {ok, Right, Expecting, Name} = inet_rdma_nif:expect_shm(Token, 5000, Config),
    {ok, Left, Connecting} = inet_rdma_nif:connect_shm(Name, Token, 5000, Config),
    ok = inet_rdma_nif:notify(Right),
    [
        receive
            {'$inet_rdma', Id, connected} -> ok
        end
     || Id <- [Connecting, Expecting]
    ],
    {Left, Right}.

crypto_key() -> rand:bytes(32).

protections(Cipher, More) ->
    [There, Back] = [crypto_key(), crypto_key()],
    {More#{cipher => Cipher, send_key => There, receive_key => Back}, More#{
        cipher => Cipher, send_key => Back, receive_key => There
    }}.

streams(Cipher, More) -> streams(protections(Cipher, More)).

streams({Mine, Theirs}) ->
    {Left, Right} = attempts(),
    {ok, Writer} = inet_rdma_nif:stream(Left, Mine),
    {ok, Reader} = inet_rdma_nif:stream(Right, Theirs),
    {Writer, Reader}.

links(More) ->
    process_flag(trap_exit, true),
    {Left, Right} = attempts(),
    {Mine, Theirs} = protections(inet_rdma_nif:cipher(), More),
    Nonces = rand:bytes(32),
    {link(1, Nonces, Left, Mine), link(0, Nonces, Right, Theirs)}.

%% A port with a session, which the queue pair carries from its begin on.
link(IsInitiator, Nonces, Attempt, Protection) ->
    Config = maps:from_list([{Key, Default} || {Key, _, _, Default} <- inet_rdma_options:list()]),
    Port = open_port({spawn_driver, inet_rdma_nif:driver()}, [binary]),
    {ok, Link, Id, <<"shm">>, _} = inet_rdma_nif:link(Attempt, <<"no node">>, Config, Protection),
    Argument = <<IsInitiator:8, ?PACKET_MAX:32/native, 0:64, 0:64, 0:16, Nonces/binary>>,
    {ok, Name} = inet_rdma_port:command(Port, begin_session, Argument),
    ?assertEqual(16, byte_size(Name)),
    {ok, <<>>} = inet_rdma_port:command(Port, attach_queue, <<Id:64/native, 1:64/native>>),
    {ok, <<>>} = inet_rdma_port:command(Port, begin_on_queue),
    ok = inet_rdma_port:start(Port),
    {Port, Link}.

send(Conn, Data) -> send(Conn, [[Data]], 0).

send(Conn, Packets, Offset) ->
    case inet_rdma_nif:send(Conn, Packets, Offset) of
        ok ->
            ok;
        {more, Rest, Sent} ->
            send(Conn, Rest, Sent);
        {blocked, Rest, Sent} ->
            _ =
                inet_rdma_nif:arm_writer(Conn) andalso
                    receive
                        {'$inet_rdma', _, writable} -> ok
                    end,
            send(Conn, Rest, Sent)
    end.

recv(Conn) ->
    case inet_rdma_nif:recv(Conn, 0) of
        empty ->
            _ =
                inet_rdma_nif:arm(Conn) andalso
                    receive
                        {'$inet_rdma', _, readable} -> ok
                    end,
            recv(Conn);
        Result ->
            Result
    end.

spawn_reader(Conn, Bytes) ->
    Caller = self(),
    spawn_link(fun() -> Caller ! {self(), iolist_to_binary(read(Conn, Bytes))} end).

read(_Conn, 0) ->
    [];
read(Conn, Bytes) ->
    {_, Packets} = recv(Conn),
    [Packets | read(Conn, Bytes - iolist_size(Packets))].

result(Reader) ->
    receive
        {Reader, Data} -> Data
    end.

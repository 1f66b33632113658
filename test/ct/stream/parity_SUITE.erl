%% The same calls on a socket of gen_tcp and on one of inet_rdma: results and messages are the same.
%% Each case runs its steps over both, within this node.
-module(parity_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_parity, [
    same/1,
    elsewhere/1,
    pair/2,
    listen/2,
    accept/2,
    recv/3,
    setopts/3,
    getopts/3,
    messages/1
]).

-export([all/0, groups/0, suite/0, init_per_group/2, end_per_group/2]).
-export([
    counts_of_active_mode/1,
    counts_tell_the_owner/1,
    controlling_process_forwards/1,
    controlling_process_to_a_dead_process/1,
    controlling_process_to_the_owner/1,
    accept_leaves_no_message/1,
    accept_that_succeeds_leaves_no_message/1,
    sends_behind_the_peers_end/1,
    send_times_out/1,
    send_timeout_closes/1,
    socket_term_is_small/1
]).

%% More bytes than the buffers of both sides hold while the peer does not read.
-define(LARGE_BYTES, 8388608).

suite() -> inet_rdma_test_parity:suite().

all() -> inet_rdma_test_parity:all().

groups() ->
    inet_rdma_test_parity:groups([
        counts_of_active_mode,
        counts_tell_the_owner,
        controlling_process_forwards,
        controlling_process_to_a_dead_process,
        controlling_process_to_the_owner,
        accept_leaves_no_message,
        accept_that_succeeds_leaves_no_message,
        sends_behind_the_peers_end,
        send_times_out,
        send_timeout_closes,
        socket_term_is_small
    ]).

init_per_group(Fabric, Config) -> inet_rdma_test_parity:init_per_group(Fabric, Config).

end_per_group(Fabric, Config) -> inet_rdma_test_parity:end_per_group(Fabric, Config).

counts_of_active_mode(_Config) ->
    Steps = [0, -3, 3, 0, -1, -2, true, 0, true, -2, once, 2, -5, 32767, 1, false, 5, true, 3, -4],
    same(fun(Module) ->
        {_, Y} = pair(Module, [{packet, 4}]),
        [
            {Step, setopts(Module, Y, [{active, Step}]), getopts(Module, Y, [active]), messages(Y)}
         || Step <- Steps
        ]
    end).

%% Another process takes from the count: the owner gets the message of the end, and the other
%% process is not.
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
        {Given, recv(Module, Y, 0)}
    end).

controlling_process_to_the_owner(_Config) ->
    same(fun(Module) ->
        {_, Y} = pair(Module, []),
        Self = self(),
        {
            Module:controlling_process(Y, Self),
            elsewhere(fun() -> Module:controlling_process(Y, Self) end),
            elsewhere(fun() -> Module:controlling_process(Y, self()) end)
        }
    end).

%% The connection that comes after the time is there for the next accept, and no message is.
accept_leaves_no_message(_Config) ->
    same(fun(Module) ->
        {Listener, Port} = listen(Module, []),
        TimedOut = Module:accept(Listener, 50),
        {ok, _} = Module:connect("localhost", Port, []),
        Left = all_messages(),
        {ok, _} = accept(Module, Listener),
        {TimedOut, Left, all_messages()}
    end).

accept_that_succeeds_leaves_no_message(_Config) ->
    same(fun(Module) ->
        {Listener, Port} = listen(Module, []),
        _ = [
            spawn_link(fun() -> {ok, _} = Module:connect("localhost", Port, []) end)
         || _ <- lists:seq(1, 50)
        ],
        _ = [{ok, _} = accept(Module, Listener) || _ <- lists:seq(1, 50)],
        all_messages()
    end).

%% A socket with {exit_on_close, false} can send after the peer has shut down its side.
sends_behind_the_peers_end(_Config) ->
    same(fun(Module) ->
        [
            begin
                {X, Y} = pair(Module, [{exit_on_close, false}, {packet, 4}]),
                ok = setopts(Module, Y, [{active, Active}]),
                ok = Module:shutdown(X, write),
                End =
                    case Active of
                        false -> recv(Module, Y, 0);
                        true -> messages(Y)
                    end,
                {End, Module:send(Y, <<"goodbye">>), recv(Module, X, 0)}
            end
         || Active <- [false, true]
        ]
    end).

%% The peer does not read: a send times out at last. When the peer reads again it gets whole
%% packets, in order: the packet that timed out had begun, and the rest of it is sent all the same.
send_times_out(_Config) ->
    same(fun(Module) ->
        {X, Y} = pair(Module, [{packet, 4}]),
        ok = setopts(Module, X, [{send_timeout, 200}]),
        {TimedOut, Packets} = send_until_error(Module, X, 1),
        ok = setopts(Module, X, [{send_timeout, infinity}]),
        {Sender, Ref} = spawn_monitor(fun() -> ok = Module:send(X, <<0:32, "next">>) end),
        Numbers = [
            begin
                {ok, <<Number:32, _/binary>>} = recv(Module, Y, 0),
                Number
            end
         || _ <- lists:seq(0, Packets)
        ],
        ?assertEqual(lists:seq(1, Packets) ++ [0], Numbers),
        receive
            {'DOWN', Ref, process, Sender, Reason} -> ?assertEqual(normal, Reason)
        end,
        {TimedOut, getopts(Module, X, [send_timeout, send_timeout_close])}
    end).

send_timeout_closes(_Config) ->
    same(fun(Module) ->
        {X, _} = pair(Module, [{packet, 4}, {send_timeout, 200}, {send_timeout_close, true}]),
        {TimedOut, _} = send_until_error(Module, X, 1),
        %% enotconn over TCP, closed over RDMA.
        {TimedOut, element(1, Module:send(X, <<"more">>))}
    end).

%% Sends until there is an error. Returns the error and the number of sends.
send_until_error(Module, Socket, Number) ->
    case Module:send(Socket, <<Number:32, 0:(8 * ?LARGE_BYTES)>>) of
        ok -> send_until_error(Module, Socket, Number + 1);
        Error -> {Error, Number}
    end.

%% Each message of active mode copies the socket.
socket_term_is_small(_Config) ->
    {X, _} = pair(inet_rdma, []),
    ?assert(erts_debug:flat_size(X) =< 12).

all_messages() ->
    receive
    after 100 -> ok
    end,
    {messages, Messages} = process_info(self(), messages),
    Messages.

until_messages(Count) ->
    inet_rdma_test_wait:until(messages, 20000, fun() ->
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
    receive
        {Heir, Messages} -> Messages
    end.

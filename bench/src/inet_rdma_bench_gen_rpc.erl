%% Bulk by gen_rpc, which has TCP connections of its own beside distribution: with the flag
%% `-bench_bulk gen_rpc' the senders of inet_rdma_bench_work send in this way. Each of them has a
%% connection, and its messages arrive in order.
-module(inet_rdma_bench_gen_rpc).

-export([setup/0, is_used/0, send/4]).

%% Casts that wait in the mailbox of a connection's process, at most. gen_rpc holds no sender back.
-define(WAITING, 4).

-spec setup() -> ok.
setup() ->
    case is_used() of
        true ->
            {ok, _} = application:ensure_all_started(gen_rpc),
            ok;
        false ->
            ok
    end.

-spec is_used() -> boolean().
is_used() ->
    init:get_argument(bench_bulk) =:= {ok, [["gen_rpc"]]}.

%% Sends Body to Sink, again and again, until the phase says stop. Sink must have seen exactly what
%% was sent.
-spec send(node(), pid(), binary(), atomics:atomics_ref()) -> ok.
send(Node, Sink, Body, Phase) ->
    send({Node, self()}, Sink, Body, Phase, 0).

send(To, Sink, Body, Phase, Sent) ->
    case {atomics:get(Phase, 1), waiting(gen_rpc_client:where_is(To)) >= ?WAITING} of
        {2, _} ->
            cast(To, Sink, {done, self()}),
            receive
                {Sink, Received} -> Sent = Received
            end,
            ok;
        {_, true} ->
            receive
            after 1 -> ok
            end,
            send(To, Sink, Body, Phase, Sent);
        {_, false} ->
            cast(To, Sink, Body),
            send(To, Sink, Body, Phase, Sent + 1)
    end.

cast(To, Sink, Message) ->
    true = gen_rpc:ordered_cast(To, erlang, send, [Sink, Message]).

%% The first cast makes the connection.
waiting(undefined) ->
    0;
waiting(Connection) ->
    case process_info(Connection, message_queue_len) of
        {message_queue_len, Length} -> Length;
        undefined -> 0
    end.

%% Somebody in the middle of a TLS connection: forwards its records one by one, both ways, and does
%% to them what a case wants. Once both sides are outside TLS what comes at a time takes the place
%% of a record. Runs in the node that runs the tests.
-module(inet_rdma_test_proxy).

-export([start/1, port/1, tamper/2, inject/3, seen/1, is_of_tls/1, flipped/1, stop/1]).
-export_type([t/0, direction/0, act/0]).

%% ChangeCipherSpec, alert, handshake, application data.
-define(IS_TLS(Type), (Type >= 20 andalso Type =< 23)).

-opaque t() :: pid().

%% to: from the process that connects to the one that it connects to. back: the other way.
-type direction() :: to | back.

%% What becomes of a record, by its number in its direction, from 1: sent so, or the connections are
%% closed.
-type act() :: [binary()] | cut.

-spec start(inet:port_number()) -> t().
start(Target) ->
    Parent = self(),
    {ok, Listener} = gen_tcp:listen(0, [
        binary, {ip, {127, 0, 0, 1}}, {active, false}, {nodelay, true}, {backlog, 64}
    ]),
    Proxy = spawn(fun() ->
        receive
            go ->
                loop(#{
                    listener => Listener,
                    target => Target,
                    tamper => fun forward/3,
                    pairs => [],
                    records => []
                })
        end
    end),
    ok = gen_tcp:controlling_process(Listener, Proxy),
    _ = spawn(fun() -> end_with(Parent, Proxy) end),
    Proxy ! go,
    _ = spawn(fun() -> accept(Proxy, Listener) end),
    Proxy.

end_with(Parent, Proxy) ->
    Ref = monitor(process, Parent),
    receive
        {'DOWN', Ref, process, Parent, _} -> exit(Proxy, kill)
    end.

forward(_Direction, _Number, Record) -> [Record].

-spec port(t()) -> inet:port_number().
port(Proxy) -> inet_rdma_test_ask:ask(Proxy, port).

%% For connections made from now on; it starts to count.
-spec tamper(t(), fun((direction(), pos_integer(), binary()) -> act())) -> ok.
tamper(Proxy, Fun) -> inet_rdma_test_ask:ask(Proxy, {tamper, Fun}).

%% Into the newest connection, after what was forwarded.
-spec inject(t(), direction(), binary()) -> ok.
inject(Proxy, Direction, Bytes) -> inet_rdma_test_ask:ask(Proxy, {inject, Direction, Bytes}).

%% The records of all connections since tamper/2, in the order in which they came.
-spec seen(t()) -> [{direction(), binary()}].
seen(Proxy) -> inet_rdma_test_ask:ask(Proxy, seen).

%% The record with another last byte, which is a part of its authentication, once there is one.
-spec flipped(binary()) -> binary().
flipped(Record) ->
    Bytes = byte_size(Record) - 1,
    <<Before:Bytes/binary, Last>> = Record,
    <<Before/binary, (Last bxor 1)>>.

-spec stop(t()) -> ok.
stop(Proxy) ->
    exit(Proxy, kill),
    ok.

accept(Proxy, Listener) ->
    case gen_tcp:accept(Listener) of
        {ok, Socket} ->
            ok = gen_tcp:controlling_process(Socket, Proxy),
            Proxy ! {accepted, Socket},
            accept(Proxy, Listener);
        {error, _} ->
            ok
    end.

loop(
    #{listener := Listener, target := Target, tamper := Tamper, pairs := Pairs, records := Records} =
        State
) ->
    receive
        {accepted, Near} ->
            case
                gen_tcp:connect({127, 0, 0, 1}, Target, [binary, {active, true}, {nodelay, true}])
            of
                {ok, Far} ->
                    _ = inet:setopts(Near, [{active, true}]),
                    loop(State#{pairs := [{{Near, 0, <<>>}, {Far, 0, <<>>}} | Pairs]});
                {error, _} ->
                    gen_tcp:close(Near),
                    loop(State)
            end;
        {tcp, Socket, Bytes} ->
            {Pair, Others} = take(Socket, Pairs),
            {Left, Seen} = pass(Socket, Bytes, Pair, Tamper),
            loop(State#{pairs := Left ++ Others, records := lists:reverse(Seen) ++ Records});
        {tcp_closed, Socket} ->
            {Pair, Others} = take(Socket, Pairs),
            close(Pair),
            loop(State#{pairs := Others});
        {tcp_error, _Socket, _} ->
            loop(State);
        {port, From, Ref} ->
            {ok, Port} = inet:port(Listener),
            From ! {Ref, Port},
            loop(State);
        {{tamper, Fun}, From, Ref} ->
            From ! {Ref, ok},
            loop(State#{tamper := Fun, records := []});
        {{inject, Direction, Bytes}, From, Ref} ->
            [{{Near, _, _}, {Far, _, _}} | _] = Pairs,
            From !
                {Ref,
                    gen_tcp:send(
                        case Direction of
                            to -> Far;
                            back -> Near
                        end,
                        Bytes
                    )},
            loop(State);
        {seen, From, Ref} ->
            From ! {Ref, lists:reverse(Records)},
            loop(State)
    end.

take(Socket, Pairs) ->
    lists:partition(
        fun({{Near, _, _}, {Far, _, _}}) -> Socket =:= Near orelse Socket =:= Far end, Pairs
    ).

close(Pairs) ->
    [gen_tcp:close(Socket) || {{Near, _, _}, {Far, _, _}} <- Pairs, Socket <- [Near, Far]].

pass(_Socket, _Bytes, [], _Tamper) ->
    {[], []};
pass(Socket, Bytes, [{{Socket, Number, Before}, Far}], Tamper) ->
    {Records, Rest} = records(Before, Bytes),
    Seen = [{to, Record} || Record <- Records],
    case send_all(to, element(1, Far), Number, Records, Tamper) of
        {ok, Sent} ->
            {[{{Socket, Sent, Rest}, Far}], Seen};
        cut ->
            close([{{Socket, 0, <<>>}, Far}]),
            {[], Seen}
    end;
pass(Socket, Bytes, [{Near, {Socket, Number, Before}}], Tamper) ->
    {Records, Rest} = records(Before, Bytes),
    Seen = [{back, Record} || Record <- Records],
    case send_all(back, element(1, Near), Number, Records, Tamper) of
        {ok, Sent} ->
            {[{Near, {Socket, Sent, Rest}}], Seen};
        cut ->
            close([{Near, {Socket, 0, <<>>}}]),
            {[], Seen}
    end.

send_all(_Direction, _To, Number, [], _Tamper) ->
    {ok, Number};
send_all(Direction, To, Number, [Record | Records], Tamper) ->
    case Tamper(Direction, Number + 1, Record) of
        cut ->
            cut;
        Sent ->
            _ = gen_tcp:send(To, Sent),
            send_all(Direction, To, Number + 1, Records, Tamper)
    end.

%% After the end of TLS any byte may come first.
records(outside, Bytes) -> {[Bytes], outside};
records(Before, Bytes) -> whole(<<Before/binary, Bytes/binary>>, []).

%% Whole records of TLS: type, version, length.
whole(<<Type, 3, _, Length:16, _:Length/binary, _/binary>> = Bytes, Records) when ?IS_TLS(Type) ->
    <<Record:(5 + Length)/binary, Rest/binary>> = Bytes,
    whole(Rest, [Record | Records]);
whole(<<Type, _/binary>> = Rest, Records) when ?IS_TLS(Type) ->
    {lists:reverse(Records), Rest};
whole(<<>>, Records) ->
    {lists:reverse(Records), <<>>};
whole(Outside, Records) ->
    {lists:reverse([Outside | Records]), outside}.

-spec is_of_tls(binary()) -> boolean().
is_of_tls(<<Type, 3, _/binary>>) -> ?IS_TLS(Type);
is_of_tls(_) -> false.

%% Confirmed publishing of numbered messages to a quorum queue of RabbitMQ at one broker, and
%% consuming at another. Runs in the node that runs the tests.
%%
%% The methods of AMQP are tuples here: the records are in a header of RabbitMQ, which not every
%% machine has.
-module(inet_rdma_test_queue).

-export([start/3, stop/1, publish_large/5]).
-export_type([figures/0]).

-type figures() :: #{
    published := non_neg_integer(),
    confirmed := non_neg_integer(),
    refused := non_neg_integer(),
    lost := non_neg_integer(),
    repeated := non_neg_integer(),
    longest_confirm_ms := non_neg_integer()
}.

-define(UNCONFIRMED_MAX, 100).
-define(PERSISTENT, 2).
-define(ITEMS, 8).
%% From the end of publishing until all that was confirmed has been consumed.
-define(DRAIN_MS, 60000).

%% A broker: where it accepts AMQP.
-type broker() :: {Host :: string(), inet:port_number()}.

-spec start(Queue :: binary(), Publish :: broker(), Consume :: broker()) -> pid().
start(Queue, Publish, Consume) ->
    Caller = self(),
    Pid = spawn(fun() ->
        Consumer = consumer(Queue, Consume),
        Channel = channel(Publish),
        {'confirm.select_ok'} = amqp_channel:call(Channel, {'confirm.select', false}),
        ok = amqp_channel:register_confirm_handler(Channel, self()),
        Caller ! {self(), ready},
        publish(#{
            channel => Channel,
            queue => Queue,
            consumer => Consumer,
            next => 1,
            open => #{},
            confirmed => [],
            refused => 0,
            longest => 0
        })
    end),
    Ref = monitor(process, Pid),
    receive
        {Pid, ready} ->
            demonitor(Ref, [flush]),
            Pid;
        {'DOWN', Ref, process, _, Reason} ->
            error({no_queue, Reason})
    end.

-spec stop(pid()) -> figures().
stop(Pid) ->
    Ref = monitor(process, Pid),
    Pid ! {stop, self(), Ref},
    receive
        {Ref, Figures} ->
            demonitor(Ref, [flush]),
            Figures;
        {'DOWN', Ref, process, _, Reason} ->
            error({publisher_ended, Reason})
    end.

%% Publishes messages of this size at a broker to a classic queue of another one. Returns when all
%% are confirmed.
-spec publish_large(
    Queue :: binary(), At :: broker(), From :: broker(), Messages :: pos_integer(), pos_integer()
) -> ok.
publish_large(Queue, At, From, Messages, Bytes) ->
    {'queue.declare_ok', Queue, 0, 0} =
        amqp_channel:call(
            channel(At), {'queue.declare', 0, Queue, false, true, false, false, false, []}
        ),
    Channel = channel(From),
    {'confirm.select_ok'} = amqp_channel:call(Channel, {'confirm.select', false}),
    Properties = list_to_tuple(['P_basic' | lists:duplicate(14, undefined)]),
    Message = {amqp_msg, Properties, binary:copy(<<1>>, Bytes)},
    _ = [
        ok = amqp_channel:cast(Channel, {'basic.publish', 0, <<>>, Queue, false, false}, Message)
     || _ <- lists:seq(1, Messages)
    ],
    true = amqp_channel:wait_for_confirms(Channel, 60),
    ok.

channel({Host, Port}) ->
    {ok, Parameters} = amqp_uri:parse("amqp://" ++ Host ++ ":" ++ integer_to_list(Port)),
    {ok, Connection} = amqp_connection:start(Parameters),
    {ok, Channel} = amqp_connection:open_channel(Connection),
    Channel.

%% The queue is made there, so that it has its leader there.
consumer(Queue, Broker) ->
    Caller = self(),
    Pid = spawn_link(fun() ->
        Channel = channel(Broker),
        Arguments = [{<<"x-queue-type">>, longstr, <<"quorum">>}],
        {'queue.declare_ok', Queue, 0, 0} =
            amqp_channel:call(
                Channel, {'queue.declare', 0, Queue, false, true, false, false, false, Arguments}
            ),
        Consume = {'basic.consume', 0, Queue, <<"all">>, false, false, false, false, []},
        _ = amqp_channel:subscribe(Channel, Consume, self()),
        Caller ! {self(), ready},
        consume(Channel, #{}, 0)
    end),
    receive
        {Pid, ready} -> Pid
    end.

consume(Channel, Seen, Repeated) ->
    receive
        {{'basic.deliver', _, Tag, _, _, _}, {amqp_msg, _, <<Number:64, _/binary>>}} ->
            ok = amqp_channel:cast(Channel, {'basic.ack', Tag, false}),
            consume(
                Channel,
                Seen#{Number => []},
                Repeated +
                    (case Seen of
                        #{Number := _} -> 1;
                        _ -> 0
                    end)
            );
        {seen, From, Ref} ->
            From ! {Ref, Seen, Repeated},
            consume(Channel, Seen, Repeated);
        {'basic.consume_ok', _} ->
            consume(Channel, Seen, Repeated)
    end.

publish(#{open := Open} = State) when map_size(Open) >= ?UNCONFIRMED_MAX ->
    heed(infinity, fun publish/1, State);
publish(#{channel := Channel, queue := Queue, next := Next, open := Open} = State) ->
    %% P_basic: delivery mode is the fourth of 14.
    None = undefined,
    Properties = list_to_tuple([
        'P_basic', None, None, None, ?PERSISTENT | lists:duplicate(10, None)
    ]),
    Message = {amqp_msg, Properties, <<Next:64, (order(Next))/binary>>},
    ok = amqp_channel:cast(Channel, {'basic.publish', 0, <<>>, Queue, false, false}, Message),
    Now = erlang:monotonic_time(millisecond),
    heed(0, fun publish/1, State#{next := Next + 1, open := Open#{Next => Now}}).

heed(TimeoutMs, Then, #{open := Open, refused := Refused} = State) ->
    receive
        {'basic.ack', Tag, Multiple} ->
            Then(confirm(numbers(Tag, Multiple, Open), State));
        {'basic.nack', Tag, Multiple, _} ->
            Numbers = numbers(Tag, Multiple, Open),
            Then(State#{open := maps:without(Numbers, Open), refused := Refused + length(Numbers)});
        {stop, From, Ref} ->
            finish(From, Ref, State)
    after TimeoutMs -> Then(State)
    end.

numbers(Tag, false, _Open) -> [Tag];
numbers(Tag, true, Open) -> [Number || Number <- maps:keys(Open), Number =< Tag].

confirm(Numbers, #{open := Open, confirmed := Confirmed, longest := Longest} = State) ->
    Now = erlang:monotonic_time(millisecond),
    LongestNow = lists:max([Longest | [Now - maps:get(Number, Open) || Number <- Numbers]]),
    State#{
        open := maps:without(Numbers, Open),
        confirmed := Numbers ++ Confirmed,
        longest := LongestNow
    }.

finish(From, Ref, State) ->
    #{next := Next, confirmed := Confirmed, refused := Refused, longest := Longest} = settled(
        State
    ),
    #{consumer := Consumer} = State,
    Deadline = erlang:monotonic_time(millisecond) + ?DRAIN_MS,
    {Lost, Repeated} = drained(Consumer, Confirmed, Deadline),
    From !
        {Ref, #{
            published => Next - 1,
            confirmed => length(Confirmed),
            refused => Refused,
            lost => Lost,
            repeated => Repeated,
            longest_confirm_ms => Longest
        }}.

%% What is open is neither confirmed nor refused yet.
settled(#{open := Open} = State) when map_size(Open) =:= 0 -> State;
settled(#{open := Open, refused := Refused} = State) ->
    receive
        {'basic.ack', Tag, Multiple} ->
            settled(confirm(numbers(Tag, Multiple, Open), State));
        {'basic.nack', Tag, Multiple, _} ->
            Numbers = numbers(Tag, Multiple, Open),
            settled(State#{
                open := maps:without(Numbers, Open), refused := Refused + length(Numbers)
            })
    after ?DRAIN_MS -> State
    end.

drained(Consumer, Confirmed, Deadline) ->
    Ref = make_ref(),
    Consumer ! {seen, self(), Ref},
    {Seen, Repeated} =
        receive
            {Ref, S, R} -> {S, R}
        end,
    case length([Number || Number <- Confirmed, not is_map_key(Number, Seen)]) of
        0 ->
            {0, Repeated};
        Missing ->
            case erlang:monotonic_time(millisecond) >= Deadline of
                true -> {Missing, Repeated};
                false -> receive
                    after 200 -> drained(Consumer, Confirmed, Deadline)
                    end
            end
    end.

%% About 1,000 bytes of JSON, different in each message.
order(Number) ->
    Items = [
        io_lib:format(
            "{\"sku\":\"A~6..0b-~2..0b\",\"quantity\":~b,\"price\":~b.~2..0b,\"currency\":\"EUR\","
            "\"shipped\":~ts,\"warehouse\":\"w~b\"}",
            [
                rand:uniform(999999),
                rand:uniform(99),
                rand:uniform(9),
                rand:uniform(500),
                rand:uniform(99),
                element(rand:uniform(2), {"true", "false"}),
                rand:uniform(20)
            ]
        )
     || _ <- lists:seq(1, ?ITEMS)
    ],
    iolist_to_binary(
        io_lib:format("{\"order\":~b,\"customer\":\"c~8..0b\",\"at\":~b,\"items\":[~ts]}", [
            Number, rand:uniform(99999999), erlang:system_time(), lists:join(",", Items)
        ])
    ).

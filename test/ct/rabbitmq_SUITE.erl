%% Three brokers of RabbitMQ with quorum queues, under confirmed publishes, while every connection between them is cut
%% each second. It takes minutes and a package that few machines have: by hand, `make test-rabbitmq`.
-module(rabbitmq_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([quorum_queues_under_cuts/1]).

%% What rabbitmqctl evaluates: the cuts and, with the option compress, the bytes of each link.
-define(LINKS, "[maps:with([node, losses, resumes, plain_bytes_sent, wire_bytes_sent, compress_us], Link)"
               " || Link <- inet_rdma:info()].").

suite() ->
    [{timetrap, {minutes, 10 + seconds() div 60}}].

all() ->
    [quorum_queues_under_cuts].

seconds() -> list_to_integer(os:getenv("INET_RDMA_RABBITMQ_SECONDS", "0")).

init_per_suite(Config) ->
    case {seconds(), inet_rdma_test_broker:installed(), inet_rdma_test_cutter:why_not()} of
        {0, _, _} -> {skip, "it takes minutes: make test-rabbitmq"};
        {_, none, _} -> {skip, "RabbitMQ is not installed (Debian: rabbitmq-server)"};
        {_, _, none} -> ok = inet_rdma_test_broker:add_client(), Config;
        {_, _, Why} -> {skip, Why}
    end.

end_per_suite(_Config) ->
    ok.

quorum_queues_under_cuts(Config) ->
    Directory = proplists:get_value(priv_dir, Config),
    Brokers = [inet_rdma_test_broker:start(Directory, Prefix, flags()) || Prefix <- ["r1", "r2", "r3"]],
    try
        cut_under_traffic(Brokers)
    after
        [inet_rdma_test_broker:stop(Broker) || Broker <- Brokers]
    end.

flags() -> inet_rdma_test_node:flags() ++ string:lexemes(os:getenv("INET_RDMA_RABBITMQ_FLAGS", ""), " ").

cut_under_traffic([R1, R2, R3] = Brokers) ->
    [ok = inet_rdma_test_broker:join(Broker, R1) || Broker <- [R2, R3]],
    %% Each queue is led by the broker at which it is consumed.
    Queues = [
        inet_rdma_test_queue:start(Queue, maps:get(amqp_port, At), maps:get(amqp_port, From))
     || {Queue, At, From} <- [{<<"q1">>, R1, R2}, {<<"q2">>, R2, R3}, {<<"q3">>, R3, R1}]
    ],
    [Pid1, Pid2, Pid3] = [OsPid || #{os_pid := OsPid} <- Brokers],
    Cutter = inet_rdma_test_cutter:start([{Pid1, Pid2}, {Pid2, Pid3}, {Pid3, Pid1}], 1000, 1000),
    receive after seconds() * 1000 -> ok end,
    Cuts = inet_rdma_test_cutter:stop(Cutter),
    Figures = [inet_rdma_test_queue:stop(Queue) || Queue <- Queues],
    Sum = lists:foldl(fun(Each, Before) -> maps:merge_with(fun add/3, Each, Before) end, #{}, Figures),
    Events = [{Text, lists:sum([inet_rdma_test_broker:logged(Broker, Text) || Broker <- Brokers])}
              || Text <- [<<"inconsistent_database">>, <<"artial partition">>, <<" down: ">>]],
    ct:pal("~b cuts in ~b s: ~0p; lines in the logs: ~0p", [Cuts, seconds(), Sum, Events]),
    [ct:pal("links of ~ts:~n~ts", [Name, inet_rdma_test_broker:ctl(Broker, ["eval", ?LINKS])])
     || #{name := Name} = Broker <- Brokers],
    ?assertMatch(#{lost := 0, refused := 0}, Sum),
    ?assertEqual([], [Event || {_, Count} = Event <- Events, Count > 0]),
    ?assert(Cuts > 0).

add(longest_confirm_ms, One, Other) -> max(One, Other);
add(_, One, Other) -> One + Other.

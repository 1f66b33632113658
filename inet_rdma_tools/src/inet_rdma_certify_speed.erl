%% Speed of a path beside inet_tcp between the same addresses, measured in turn in each round.
-module(inet_rdma_certify_speed).

-export([speed/2, median/1, ratios/1, judge/3]).

-import(inet_rdma_certify_step, [note/2]).
-import(inet_rdma_certify_node, [call/4, call/5, name/1]).

-define(CALL_MS, 120000).

%% Least ratio to inet_tcp with which a path passes. One that is much slower than the TCP that it
%% replaces has a fault. Not 1: a host's load and its interrupts' places make the ratios of good
%% devices vary. A software device makes each packet by the processor, and is slower than TCP by its
%% nature: its bound finds a device that hardly works.
-define(LEAST, 0.5).
-define(LEAST_SOFTWARE, 0.05).

%% What inet_rdma_certify_load measures, and by how much it is multiplied.
-spec tests() ->
    [
        {Name :: binary(), Unit :: binary(), GreaterIsBetter :: boolean(), {
            atom(), [term()], number()
        }}
    ].
tests() ->
    [
        {<<"rpc, 100 processes">>, <<"calls/s">>, true, {rpc, [100], 1}},
        {<<"round trip, median">>, <<"µs"/utf8>>, false, {round_trip, [], 1}},
        {<<"messages of 1 KiB">>, <<"messages/s">>, true, {one_way, [1024], 1}},
        {<<"messages of 1 MiB">>, <<"MB/s">>, true, {one_way, [1048576], 1.048576}}
    ].

-spec speed(inet_rdma_certify_path:t(), #{
    speed_ms := pos_integer(), rounds := pos_integer(), least_speed := number() | default, _ => _
}) ->
    inet_rdma_certify_step:outcome().
speed(#{fabric := Fabric} = Path, #{speed_ms := Ms, rounds := Rounds, least_speed := Least}) ->
    [A, B, TcpA, TcpB] = inet_rdma_certify_node:start_all([
        inet_rdma_certify_path:node(Path, here, "a"),
        inet_rdma_certify_path:node(Path, there, "b"),
        inet_rdma_certify_path:tcp_node(Path, here, "ta"),
        inet_rdma_certify_path:tcp_node(Path, there, "tb")
    ]),
    pong = call(TcpA, net_adm, ping, [name(TcpB)]),
    ok = inet_rdma_certify_link:connect(Path, A, B),
    EachMs = max(200, Ms div (2 * (Rounds + 1) * length(tests()))),
    Pairs = [{link, A, B}, {inet_tcp, TcpA, TcpB}],
    %% The first round warms up.
    _ = round(Pairs, EachMs, 0),
    Samples = lists:append([round(Pairs, EachMs, Number) || Number <- lists:seq(1, Rounds)]),
    note("~b rounds, ~b ms for each figure", [Rounds, EachMs]),
    #{fabric := Fabric} = call(A, inet_rdma, info, [name(B)]),
    Figures = [figure(Test, Samples) || Test <- tests()],
    ok = inet_rdma_certify_step:figures(Figures),
    IsSoftware = inet_rdma_certify_path:is_software(Path),
    IsSoftware andalso note("a software device: its figures say nothing of hardware", []),
    judge(Figures, Least, IsSoftware).

%% Measures both carriers one right after the other; they take turns in being the first.
round(Pairs, Ms, Number) ->
    Ordered =
        case Number rem 2 of
            0 -> Pairs;
            1 -> lists:reverse(Pairs)
        end,
    [
        {Name, Carrier,
            Factor * call(A, inet_rdma_certify_load, Function, [name(B), Ms | Args], Ms + ?CALL_MS)}
     || {Name, _, _, {Function, Args, Factor}} <- tests(), {Carrier, A, B} <- Ordered
    ].

figure({Name, Unit, GreaterIsBetter, _}, Samples) ->
    Of = fun(Carrier) -> [Value || {Is, By, Value} <- Samples, Is =:= Name, By =:= Carrier] end,
    #{
        test => Name,
        unit => Unit,
        greater_is_better => GreaterIsBetter,
        link => Of(link),
        inet_tcp => Of(inet_tcp)
    }.

%% Names the slow tests. Least: the least ratio to inet_tcp with which a path passes.
-spec judge(
    [inet_rdma_certify_step:figure()], Least :: number() | default, IsSoftware :: boolean()
) ->
    inet_rdma_certify_step:outcome().
judge(Figures, Asked, IsSoftware) ->
    Least =
        case {Asked, IsSoftware} of
            {default, false} -> ?LEAST;
            {default, true} -> ?LEAST_SOFTWARE;
            {_, _} -> Asked
        end,
    case
        [
            {Test, Ratio}
         || #{test := Test} = Figure <- Figures, Ratio <- [median(ratios(Figure))], Ratio < Least
        ]
    of
        [] ->
            pass;
        Slow ->
            Words = [
                io_lib:format("~ts ~.2f times as fast as inet_tcp", [Test, Ratio])
             || {Test, Ratio} <- Slow
            ],
            {fail,
                [
                    "slow: ",
                    lists:join("; ", Words),
                    io_lib:format(" (the least that passes is ~.2f)", [Least])
                ],
                "compare with the reference of the device (perftest): if that is slow, too, look "
                "at the rate and the errors of the port (doctor), the PCIe slot, the cable and "
                "flow control; if the host runs other work, certify it at a quiet time, or with "
                "--least-speed; else report this with the evidence"}
    end.

%% How many times as fast the link is, in each round.
-spec ratios(inet_rdma_certify_step:figure()) -> [float()].
ratios(#{greater_is_better := true, link := Link, inet_tcp := Tcp}) ->
    lists:zipwith(fun(L, T) -> L / T end, Link, Tcp);
ratios(#{greater_is_better := false, link := Link, inet_tcp := Tcp}) ->
    lists:zipwith(fun(L, T) -> T / L end, Link, Tcp).

-spec median([number(), ...]) -> float().
median(Values) ->
    Sorted = lists:sort(Values),
    Count = length(Sorted),
    (lists:nth((Count + 1) div 2, Sorted) + lists:nth(Count div 2 + 1, Sorted)) / 2.

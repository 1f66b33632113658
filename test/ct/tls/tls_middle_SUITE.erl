%% Somebody in the middle of a link that begins inside TLS: records that are changed, repeated, cut
%% off, injected or replayed.
-module(tls_middle_SUITE).

-include_lib("stdlib/include/assert.hrl").

-import(inet_rdma_test_node, [start_all/1, call/4, name/1, unique/1]).
-import(inet_rdma_test_tls, [node_of/4, alerts/1]).
-import(inet_rdma_test_link, [connect/2, supervisor/2, ended/1, gone/2]).

-export([all/0, suite/0]).
-export([
    somebody_in_the_middle/1,
    a_changed_record_costs_the_connection_alone/1,
    changed_records_without_end/1,
    a_cut_connection_costs_no_link/1
]).
-export([bytes_into_the_silent_connection/1, a_replayed_connection_is_refused/1]).

suite() ->
    [{timetrap, {minutes, 5}}, {ct_hooks, [inet_rdma_test_tls]}].

all() ->
    [
        somebody_in_the_middle,
        a_changed_record_costs_the_connection_alone,
        changed_records_without_end,
        a_cut_connection_costs_no_link,
        bytes_into_the_silent_connection,
        a_replayed_connection_is_refused
    ].

%% Each record of TLS, in each direction, changed, repeated or cut off: no link comes up, and the
%% next one does.
somebody_in_the_middle(Config) ->
    {A, B, Proxy} = with_proxy(Config),
    Whole = whole_connection(A, B, Proxy),
    Counts = [
        {Direction,
            length([
                x
             || {D, Record} <- Whole, D =:= Direction, inet_rdma_test_proxy:is_of_tls(Record)
            ])}
     || Direction <- [to, back]
    ],
    ct:pal("records of a connection: ~p", [Counts]),
    ?assert(lists:all(fun({_, Count}) -> Count > 0 end, Counts)),
    Acts = [
        {changed, fun(Record) -> [inet_rdma_test_proxy:flipped(Record)] end},
        {repeated, fun(Record) -> [Record, Record] end},
        {cut, fun(_) -> cut end}
    ],
    [
        begin
            ok = inet_rdma_test_proxy:tamper(Proxy, fun
                (D, N, Record) when D =:= Direction, N =:= Number -> Act(Record);
                (_, _, Record) -> [Record]
            end),
            _ = call(A, net_kernel, connect_node, [name(B)]),
            ct:log("~p ~p of ~p", [What, Number, Direction]),
            %% TLS of the receiver may throw away what comes after the peer's last record: then the
            %% link is up.
            _ =
                case What =:= repeated andalso Number =:= Count of
                    true -> part(A, B);
                    false -> ok
                end,
            [gone(X, Y) || {X, Y} <- [{A, B}, {B, A}]]
        end
     || {Direction, Count} <- Counts, Number <- lists:seq(1, Count), {What, Act} <- Acts
    ],
    _ = whole_connection(A, B, Proxy),
    ok.

%% Ends the link until no link follows: processes of OTP that answer a nodeup with a message connect
%% again.
part(A, B) ->
    inet_rdma_test_wait:until(parted, 10000, fun() ->
        _ = call(A, erlang, disconnect_node, [name(B)]),
        timer:sleep(300),
        [] =:=
            [
                Name
             || {X, #{node := Name}} <- [{A, B}, {B, A}], inet_rdma_test_link:states(X, Name) =/= []
            ]
    end).

%% A link through the proxy from its beginning to its end by a disconnect; the records until it was
%% up.
whole_connection(A, B, Proxy) ->
    ok = inet_rdma_test_proxy:tamper(Proxy, fun(_, _, Record) -> [Record] end),
    connect(A, B),
    [ok = inet_rdma_test_link:await(X, Y, shm) || {X, Y} <- [{A, B}, {B, A}]],
    Records = inet_rdma_test_proxy:seen(Proxy),
    ok = inet_rdma_test_link:exercise(A, B),
    %% The traffic did not go over TLS.
    ?assertEqual(of_tls(Records), of_tls(inet_rdma_test_proxy:seen(Proxy))),
    ok = inet_rdma_test_link:disconnect(A, B),
    Records.

of_tls(Records) -> [Record || {_, Record} <- Records, inet_rdma_test_proxy:is_of_tls(Record)].

%% A record of this carrier that is changed or repeated, or bytes between records, cost the
%% connection: the receiver logs that and delivers nothing of it, and the link goes on over another
%% one.
a_changed_record_costs_the_connection_alone(Config) ->
    {A, B, Proxy} = with_proxy(Config, [{fabric, tcp}]),
    [
        begin
            Supervisors = connected(A, B, Proxy),
            {Receiver, Sender} =
                case Direction of
                    to -> {B, A};
                    back -> {A, B}
                end,
            ok = call(Receiver, inet_rdma_test_log, install, []),
            Once = atomics:new(1, []),
            ok = inet_rdma_test_proxy:tamper(Proxy, fun(D, _, Record) ->
                case D =:= Direction andalso atomics:exchange(Once, 1, 1) =:= 0 of
                    true -> Act(Record);
                    false -> [Record]
                end
            end),
            _ = call(Sender, erlang, send, [{nobody, name(Receiver)}, binary:copy(<<0>>, 1000)]),
            ok = inet_rdma_test_log:await(Receiver, [
                "lost its TCP connection", "bytes of it were changed"
            ]),
            goes_on(A, B, Supervisors),
            ?assertMatch(#{damages := 1}, call(Receiver, inet_rdma, info, [name(Sender)])),
            ok = inet_rdma_test_link:disconnect(A, B)
        end
     || Direction <- [to, back],
        Act <- [
            fun(Record) -> [inet_rdma_test_proxy:flipped(Record)] end,
            fun(Record) -> [Record, Record] end,
            fun(Record) -> [<<0:320>>, Record] end
        ]
    ].

%% A connects a new link over the proxy each time. After a loss B might connect, and not over the
%% proxy.
connected(A, B, Proxy) ->
    ok = inet_rdma_test_proxy:tamper(Proxy, fun(_, _, Record) -> [Record] end),
    %% The first attempt may have begun while the proxy did something else.
    inet_rdma_test_wait:until(connected, 20000, fun() ->
        call(A, net_adm, ping, [name(B)]) =:= pong
    end),
    connect(A, B),
    ok = inet_rdma_test_link:exercise(A, B),
    [supervisor(X, Y) || {X, Y} <- [{A, B}, {B, A}]].

goes_on(A, B, Supervisors) ->
    ok = inet_rdma_test_link:exercise(A, B),
    ?assertEqual(Supervisors, [supervisor(X, Y) || {X, Y} <- [{A, B}, {B, A}]]).

%% A middle that changes a record of each connection ends the link at last, with the reason. A makes
%% all connections.
changed_records_without_end(Config) ->
    {A, B, Proxy} = with_proxy(Config, [{fabric, tcp}], ["-dist_listen", "false"]),
    Supervisors = connected(A, B, Proxy),
    ok = call(B, inet_rdma_test_log, install, []),
    %% What passes between TLS and the records are single bytes.
    ok = inet_rdma_test_proxy:tamper(Proxy, fun(Direction, _, Record) ->
        IsOurs =
            Direction =:= to andalso byte_size(Record) > 32 andalso
                not inet_rdma_test_proxy:is_of_tls(Record),
        [
            case IsOurs of
                true -> inet_rdma_test_proxy:flipped(Record);
                false -> Record
            end
        ]
    end),
    _ = call(A, erlang, send, [{nobody, name(B)}, hello]),
    [ended(Supervisor) || Supervisor <- Supervisors],
    ok = inet_rdma_test_log:await(B, ["is not the peer's: it was changed, or is out of order"]).

%% The link survives a connection that is cut.
a_cut_connection_costs_no_link(Config) ->
    {A, B, Proxy} = with_proxy(Config, [{fabric, tcp}]),
    [
        begin
            Supervisors = connected(A, B, Proxy),
            #{losses := Before} = call(A, inet_rdma, info, [name(B)]),
            ok = inet_rdma_test_proxy:tamper(Proxy, fun
                (D, _, _) when D =:= Direction -> cut;
                (_, _, Record) -> [Record]
            end),
            _ = call(A, erlang, send, [{nobody, name(B)}, hello]),
            _ = call(B, erlang, send, [{nobody, name(A)}, hello]),
            inet_rdma_test_wait:until({lost, Direction}, 10000, fun() ->
                #{losses := Losses} = call(A, inet_rdma, info, [name(B)]),
                Losses > Before
            end),
            ok = inet_rdma_test_proxy:tamper(Proxy, fun(_, _, Record) -> [Record] end),
            goes_on(A, B, Supervisors),
            ok = inet_rdma_test_link:disconnect(A, B)
        end
     || Direction <- [to, back]
    ].

%% B is found at the proxy's port, by A alone.
with_proxy(Config) -> with_proxy(Config, []).

with_proxy(Config, More) -> with_proxy(Config, More, []).

with_proxy(Config, More, ArgumentsOfA) ->
    Names = fun(Name) ->
        Directory = filename:join(proplists:get_value(priv_dir, Config), unique(Name)),
        ok = filelib:ensure_dir(filename:join(Directory, "x")),
        Directory
    end,
    [OfA, OfB] = [Names("names_a"), Names("names_b")],
    Options = fun(Directory, Arguments) ->
        Own = node_of(
            Config, "inet_rdma", good, More ++ [{fallback_retry_ms, 0}, {connect_timeout_ms, 2000}]
        ),
        %% A message of global after a disconnect would make A connect again, at a moment that no
        %% case chooses.
        inet_rdma_test_node:alone(Own#{
            args := maps:get(args, Own) ++
                [
                    "-kernel",
                    "net_setuptime",
                    "3",
                    "-start_epmd",
                    "false",
                    "-epmd_module",
                    "inet_rdma_test_epmd",
                    "-inet_rdma_test_epmd",
                    Directory
                    | Arguments
                ]
        })
    end,
    [A, B] = start_all([{"a", Options(OfA, ArgumentsOfA)}, {"b", Options(OfB, [])}]),
    [Short, _] = string:lexemes(atom_to_list(name(B)), "@"),
    {ok, Port} = file:read_file(filename:join(OfB, Short)),
    Proxy = inet_rdma_test_proxy:start(binary_to_integer(Port)),
    ok = file:write_file(
        filename:join(OfA, Short), integer_to_list(inet_rdma_test_proxy:port(Proxy))
    ),
    {A, B, Proxy}.

%% A link that has moved loses the connection that stands by when somebody writes into it, whichever
%% way, and goes on.
bytes_into_the_silent_connection(Config) ->
    {A, B, Proxy} = with_proxy(Config),
    [
        begin
            ok = inet_rdma_test_proxy:tamper(Proxy, fun(_, _, Record) -> [Record] end),
            connect(A, B),
            [ok = inet_rdma_test_link:await(X, Y, shm) || {X, Y} <- [{A, B}, {B, A}]],
            %% What the peer itself has said last inside TLS, or nothing of it.
            Said = [Seen || {D, _} = Seen <- inet_rdma_test_proxy:seen(Proxy), D =:= Direction],
            Bytes =
                case What of
                    garbage -> <<"garbage, garbage">>;
                    repeated -> lists:last(of_tls(Said))
                end,
            Supervisors = [supervisor(X, Y) || {X, Y} <- [{A, B}, {B, A}]],
            Receiver =
                case Direction of
                    to -> B;
                    back -> A
                end,
            ok = inet_rdma_test_proxy:inject(Proxy, Direction, Bytes),
            inet_rdma_test_wait:until({damaged, Direction, What}, 10000, fun() ->
                [#{damages := Damages}] = call(Receiver, inet_rdma, info, []),
                Damages > 0
            end),
            goes_on(A, B, Supervisors),
            ok = inet_rdma_test_link:disconnect(A, B)
        end
     || Direction <- [to, back], What <- [garbage, repeated]
    ],
    _ = whole_connection(A, B, Proxy),
    ok.

%% Somebody sends all bytes of the connecting node to the other node once more: that node refuses
%% them.
a_replayed_connection_is_refused(Config) ->
    {A, B, Proxy} = with_proxy(Config),
    Said = [Record || {to, Record} <- whole_connection(A, B, Proxy)],
    ok = call(B, inet_rdma_test_log, install, []),
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, inet_rdma_test_proxy:port(Proxy), [
        binary, {active, false}
    ]),
    ok = gen_tcp:send(Socket, Said),
    ok = read_to_the_end(Socket),
    %% ssl of OTP 27 ends its process with a crash report instead.
    inet_rdma_test_wait:until(refused_in_the_log, 10000, fun() ->
        alerts(B) =/= [] orelse call(B, inet_rdma_test_log, contains, ["terminating"])
    end),
    gone(B, A),
    _ = whole_connection(A, B, Proxy),
    ok.

read_to_the_end(Socket) ->
    case gen_tcp:recv(Socket, 0, inet_rdma_test_wait:patience(20000)) of
        {ok, _} -> read_to_the_end(Socket);
        {error, Reason} when Reason =/= timeout -> ok
    end.

%% A network that is slow or loses large packets, on this host: connections to ports that it has led
%% elsewhere. Nodes ask for them by inet_rdma_test_bad_epmd. Runs in the node that runs the tests.
-module(inet_rdma_test_bad_way).

-export([start/1, flags/1, stop/1]).
-export_type([t/0, fault/0]).

-opaque t() :: {pid(), inet:port_number()}.

%% delay: all bytes wait this long. drop: when more than this number of bytes come at once, neither
%% they nor any later bytes pass, as over a way that loses large packets: TCP sends the same packet
%% again and again.
-type fault() :: {delay, Ms :: pos_integer()} | {drop, Bytes :: pos_integer()}.

%% What comes within this belongs together.
-define(TOGETHER_MS, 3).
-define(OPTIONS, [binary, {active, false}, {nodelay, true}, {reuseaddr, true}, {buffer, 1048576}]).

-spec start(fault()) -> t().
start(Fault) ->
    inet_rdma_test_ask:start(fun() ->
        {ok, Listener} = gen_tcp:listen(0, [{packet, 2}, {ip, {127, 0, 0, 1}} | ?OPTIONS]),
        {ok, Port} = inet:port(Listener),
        {Port, fun() -> asked(Listener, Fault) end}
    end).

%% For ERL_FLAGS of the nodes.
-spec flags(t()) -> string().
flags({_, Port}) ->
    lists:flatten(
        io_lib:format(
            "-pa ~ts -epmd_module inet_rdma_test_bad_epmd -inet_rdma_test_bad_epmd ~b",
            [filename:dirname(code:which(?MODULE)), Port]
        )
    ).

%% The sockets end with their processes, which are linked.
-spec stop(t()) -> ok.
stop({Pid, _}) ->
    exit(Pid, kill),
    ok.

asked(Listener, Fault) ->
    {ok, Socket} = gen_tcp:accept(Listener),
    {ok, Port} = gen_tcp:recv(Socket, 0, 5000),
    Self = self(),
    Leading = spawn_link(fun() ->
        {ok, Door} = gen_tcp:listen(0, [{ip, {127, 0, 0, 1}} | ?OPTIONS]),
        {ok, Number} = inet:port(Door),
        Self ! {self(), Number},
        lead(Door, binary_to_integer(Port), Fault)
    end),
    receive
        {Leading, Number} -> gen_tcp:send(Socket, integer_to_binary(Number))
    end,
    gen_tcp:close(Socket),
    asked(Listener, Fault).

lead(Door, Port, Fault) ->
    {ok, Near} = gen_tcp:accept(Door),
    case gen_tcp:connect({127, 0, 0, 1}, Port, ?OPTIONS) of
        {ok, Far} ->
            _ = [
                spawn_link(fun() -> pass(From, To, Fault) end)
             || {From, To} <- [{Near, Far}, {Far, Near}]
            ];
        {error, _} ->
            gen_tcp:close(Near)
    end,
    lead(Door, Port, Fault).

pass(From, To, Fault) ->
    case gen_tcp:recv(From, 0) of
        {ok, Bytes} -> passed(fault(Fault, From, Bytes), From, To, Fault);
        {error, _} -> [gen_tcp:close(Socket) || Socket <- [From, To]]
    end.

passed(lost, From, To, _Fault) ->
    swallow(From, To);
passed(Bytes, From, To, Fault) ->
    case gen_tcp:send(To, Bytes) of
        ok -> pass(From, To, Fault);
        {error, _} -> [gen_tcp:close(Socket) || Socket <- [From, To]]
    end.

fault({delay, Ms}, _From, Bytes) ->
    receive
    after Ms -> Bytes
    end;
fault({drop, Most}, From, Bytes) when byte_size(Bytes) =< Most ->
    case gen_tcp:recv(From, 0, ?TOGETHER_MS) of
        {ok, More} -> fault({drop, Most}, From, <<Bytes/binary, More/binary>>);
        {error, _} -> Bytes
    end;
fault({drop, _Most}, _From, _Bytes) ->
    lost.

swallow(From, To) ->
    case gen_tcp:recv(From, 0) of
        {ok, _} -> swallow(From, To);
        {error, _} -> [gen_tcp:close(Socket) || Socket <- [From, To]]
    end.

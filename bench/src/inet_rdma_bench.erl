%% The boss: one process per benchmark node that takes orders from bench/run.py.
%%
%% Parties: run.py (starts the nodes, listens on a loopback socket), the boss of each node (connects
%% to that socket, one line per order and answer), the workers (inet_rdma_bench_work; they alone use
%% distribution). The control socket is plain gen_tcp to run.py: it does not need the carrier that
%% is measured, and it is silent between the two samples of a measurement. When it closes the node
%% halts, so nothing is left behind whatever happened to run.py.
%%
%% An order is an Erlang term, `{Id, Order}.`; its answer is one line of JSON with the same id.
-module(inet_rdma_bench).

-export([start/0, init/0, fabrics/1, priorities/0]).

-define(STOP_TIMEOUT_MS, 60000).
%% More than a link needs to earn a queue pair.
-define(EARNING_CALLS, 300).

%% Called by `erl -s inet_rdma_bench`. The environment has INET_RDMA_BENCH=port:token.
-spec start() -> pid().
start() ->
    spawn(?MODULE, init, []).

-spec init() -> no_return().
init() ->
    process_flag(trap_exit, true),
    %% So that a sample is taken when it is asked for, and not behind a hundred busy workers.
    process_flag(priority, high),
    inet_rdma_bench_work:setup(),
    inet_rdma_bench_gen_rpc:setup(),
    [Port, Token] = string:split(os:getenv("INET_RDMA_BENCH"), ":"),
    Options = [binary, {packet, line}, {buffer, 65536}, {active, true}, {nodelay, true}],
    case gen_tcp:connect({127, 0, 0, 1}, list_to_integer(Port), Options, 10000) of
        {ok, Socket} ->
            answer(Socket, maps:merge(facts(), #{token => list_to_binary(Token)})),
            loop(Socket, #{workers => [], samples => none, failed => [], callers => none});
        {error, Reason} ->
            io:format("no control connection to run.py: ~tp~n", [Reason]),
            halt(1, [{flush, true}])
    end.

loop(Socket, State) ->
    receive
        {tcp, Socket, Line} ->
            {Id, Order} = parse(Line),
            {Result, Next} =
                try
                    handle(Order, State)
                catch
                    Class:Reason:Stack ->
                        {#{error => text({Class, Reason, Stack})}, State}
                end,
            answer(Socket, Result#{id => Id}),
            loop(Socket, Next);
        {tcp_closed, Socket} ->
            halt(0, [{flush, false}]);
        {tcp_error, Socket, _} ->
            halt(1, [{flush, false}]);
        {'EXIT', Pid, Reason} ->
            loop(Socket, ended(Pid, Reason, State))
    end.

%% Mesh is built by the boss of each node, not left to global, so that it is complete when the clock
%% starts.
handle({connect, Nodes}, State) ->
    Refused = [Node || Node <- Nodes, net_kernel:connect_node(Node) =/= true],
    {#{refused => Refused}, State};
%% So many packets that each link moves to the fabric that carries it best.
handle(earn, State) ->
    Calls = [
        rpc:call(Node, erlang, node, [])
     || Node <- nodes(), _ <- lists:seq(1, ?EARNING_CALLS)
    ],
    {#{calls => length(Calls)}, State};
handle(links, State) ->
    {#{links => links()}, State};
handle({start, Workload, Arguments}, #{workers := []} = State) ->
    {Workers, Samples} = inet_rdma_bench_work:start(Workload, Arguments),
    {#{workers => length(Workers)}, State#{workers := Workers, samples := Samples}};
handle(measure, State) ->
    inet_rdma_bench_work:enter(measure),
    sample(State);
handle(sample, State) ->
    sample(State);
handle(stop, State) ->
    inet_rdma_bench_work:enter(stop),
    Deadline = erlang:monotonic_time(millisecond) + ?STOP_TIMEOUT_MS,
    #{samples := Samples} = Last = drain(Deadline, State),
    Result = inet_rdma_bench_work:percentiles(Samples),
    {Result#{failed => failures(Last)}, Last};
handle({callers, Peer, Number}, #{callers := none} = State) ->
    {#{}, State#{callers := inet_rdma_bench_callers:start(Peer, Number)}};
handle(counts, #{callers := Callers} = State) ->
    {inet_rdma_bench_callers:counts(Callers), State};
handle(info, State) ->
    Shown = fun(_Key, Value) -> text(Value) end,
    {#{connections => [maps:map(Shown, Connection) || Connection <- inet_rdma:info()]}, State};
handle(table, State) ->
    {#{table => unicode:characters_to_binary(inet_rdma_info:table(inet_rdma:info()))}, State};
handle({call, Module, Function, Arguments}, State) ->
    {#{value => text(apply(Module, Function, Arguments))}, State}.

%% What proves over which carrier each link runs: the kind of its distribution controller, a port or
%% a process; the driver of the port (`none`: a process); the fabric that inet_rdma lists the link
%% with (`none`: it does not list it).
links() ->
    Fabrics =
        case erlang:module_loaded(inet_rdma_dist) of
            true -> fabrics(inet_rdma:info());
            %% The node runs another carrier. A call would load inet_rdma where it is installed.
            false -> #{}
        end,
    maps:from_list([
        {Node, (controller(Controller))#{fabric => maps:get(name(Node), Fabrics, <<"none">>)}}
     || {Node, Controller} <- erlang:system_info(dist_ctrl)
    ]).

controller(Port) when is_port(Port) ->
    %% A link may end meanwhile.
    case erlang:port_info(Port, name) of
        {name, Name} -> #{controller => port, driver => driver(Port, list_to_binary(Name))};
        undefined -> #{controller => port, driver => <<"none">>}
    end;
controller(_Process) ->
    #{controller => process, driver => <<"none">>}.

%% The ports of inet_rdma have the name of OTP's.
driver(Port, Name) ->
    case
        erlang:function_exported(inet_rdma_port, is_link, 1) andalso inet_rdma_port:is_link(Port)
    of
        true -> <<"inet_rdma">>;
        false -> Name
    end.

%% Connections, as inet_rdma:info/0 shows them: the fabric of each node, of its newest connection
%% that is up. Builds differ in whether names are atoms or binaries, and in whether a connection has
%% a state.
-spec fabrics([map()]) -> #{binary() => binary()}.
fabrics(Connections) ->
    maps:from_list([
        {name(Node), name(Fabric)}
     || #{node := Node, fabric := Fabric} = Connection <- Connections,
        name(maps:get(state, Connection, up)) =:= <<"up">>
    ]).

%% How many processes that run code of the benchmark have which priority: for the tests.
-spec priorities() -> #{atom() => pos_integer()}.
priorities() ->
    Ours = fun(Pid) ->
        case process_info(Pid, [current_stacktrace, priority]) of
            [{current_stacktrace, Stack}, {priority, Priority}] ->
                [Priority || lists:any(fun({Module, _, _, _}) -> is_ours(Module) end, Stack)];
            undefined ->
                []
        end
    end,
    lists:foldl(
        fun(P, Counts) -> maps:update_with(P, fun(N) -> N + 1 end, 1, Counts) end,
        #{},
        lists:flatmap(Ours, processes())
    ).

is_ours(Module) -> Module =:= ?MODULE orelse Module =:= inet_rdma_bench_work.

name(Atom) when is_atom(Atom) -> atom_to_binary(Atom);
name(Text) -> unicode:characters_to_binary(Text).

sample(State) ->
    Counts = inet_rdma_bench_work:counts(),
    Now = erlang:monotonic_time(nanosecond),
    {Counts#{time_ns => Now, failed => failures(State)}, State}.

drain(_Deadline, #{workers := []} = State) ->
    State;
drain(Deadline, #{workers := Workers, failed := Failed} = State) ->
    Left = max(0, Deadline - erlang:monotonic_time(millisecond)),
    receive
        {'EXIT', Pid, Reason} -> drain(Deadline, ended(Pid, Reason, State))
    after Left ->
        State#{failed := [{still_running, length(Workers)} | Failed]}
    end.

ended(Pid, Reason, #{workers := Workers, failed := Failed} = State) ->
    Ours = lists:member(Pid, Workers),
    Bad = Ours andalso Reason =/= normal,
    State#{
        workers := lists:delete(Pid, Workers),
        failed := [{worker, Reason} || Bad] ++ Failed
    }.

failures(#{failed := Failed}) ->
    [text(Reason) || Reason <- lists:sublist(Failed, 3)].

facts() ->
    #{
        node => node(),
        pid => list_to_binary(os:getpid()),
        otp => list_to_binary(erlang:system_info(otp_release)),
        erts => list_to_binary(erlang:system_info(version)),
        emulator => erlang:system_info(emu_flavor),
        schedulers => erlang:system_info(schedulers_online)
    }.

parse(Line) ->
    {ok, Tokens, _} = erl_scan:string(binary_to_list(Line)),
    {ok, Term} = erl_parse:parse_term(Tokens),
    Term.

text(Term) ->
    unicode:characters_to_binary(io_lib:format("~tp", [Term])).

answer(Socket, Map) ->
    ok = gen_tcp:send(Socket, [json(Map), $\n]).

%% OTP has a JSON module from 27 on only; the answers are maps of names to numbers, texts and lists.
json(Map) when is_map(Map) ->
    Pairs = [[json(Key), $:, json(Value)] || {Key, Value} <- maps:to_list(Map)],
    [${, lists:join($,, Pairs), $}];
json(List) when is_list(List) ->
    [$[, lists:join($,, [json(Item) || Item <- List]), $]];
json(Number) when is_integer(Number) ->
    integer_to_binary(Number);
json(Atom) when is_atom(Atom) ->
    json(atom_to_binary(Atom));
json(Text) when is_binary(Text) ->
    [$", [escape(Char) || Char <- unicode:characters_to_list(Text)], $"].

escape($") -> <<"\\\"">>;
escape($\\) -> <<"\\\\">>;
escape(Char) when Char < 32; Char > 126, Char < 16#10000 -> io_lib:format("\\u~4.16.0b", [Char]);
escape(Char) when Char > 126 -> $?;
escape(Char) -> Char.

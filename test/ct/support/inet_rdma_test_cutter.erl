%% Cuts the TCP connections between processes of this host from outside, as an administrator or a
%% firewall does, by `ss -K`. It needs root and a kernel with INET_DIAG_DESTROY. Runs in the node
%% that runs the tests.
-module(inet_rdma_test_cutter).

-export([why_not/0, needed/1, cut/2, await/2, start/3, await_cuts/2, stop/1]).
-export_type([t/0]).

-opaque t() :: pid().
%% Both addresses as `ss' writes them, the first process's own first.
-type connection() :: {Local :: binary(), Remote :: binary()}.

%% Why this machine cannot cut connections; none: it can.
-spec why_not() -> none | string().
why_not() ->
    case os:find_executable("ss") of
        false -> "the program ss is missing (Debian: iproute2)";
        _ -> try_own()
    end.

%% The configuration of a case that needs it.
-spec needed(Config) -> Config | {skip, string()} when Config :: [tuple()].
needed(Config) ->
    case why_not() of
        none -> Config;
        Why -> inet_rdma_test_link:skip(Why)
    end.

%% On a connection of its own.
try_own() ->
    {ok, Listener} = gen_tcp:listen(0, [{ip, {127, 0, 0, 1}}, {active, false}]),
    {ok, Port} = inet:port(Listener),
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [{active, false}]),
    {ok, Own} = inet:port(Socket),
    Said = kill({address(Own), address(Port)}),
    Ended = gen_tcp:recv(Socket, 0, 200),
    [gen_tcp:close(Each) || Each <- [Socket, Listener]],
    case Ended of
        {error, timeout} ->
            "`ss -K` cuts nothing; it takes root and a kernel with INET_DIAG_DESTROY: " ++ Said;
        {error, _} ->
            none
    end.

address(Port) -> iolist_to_binary(["127.0.0.1:", integer_to_list(Port)]).

%% Waits until the two processes have a connection, or one again.
-spec await(OsPid :: pos_integer(), OsPid :: pos_integer()) -> ok.
await(A, B) ->
    inet_rdma_test_wait:until({connection_between, A, B}, 20000, fun() ->
        connections(A, B) =/= []
    end),
    ok.

%% The established connections between two processes.
-spec connections(OsPid :: pos_integer(), OsPid :: pos_integer()) -> [connection()].
connections(A, B) ->
    Lines = binary:split(list_to_binary(os:cmd("ss -tnpH")), <<"\n">>, [global, trim_all]),
    Ends = [End || Line <- Lines, {ok, End} <- [parse(Line)]],
    OfB = [{Local, Remote} || {Local, Remote, Pids} <- Ends, lists:member(B, Pids)],
    [
        {Local, Remote}
     || {Local, Remote, Pids} <- Ends, lists:member(A, Pids), lists:member({Remote, Local}, OfB)
    ].

%% State, two queues, two addresses, users:(("beam.smp",pid=7,fd=20)).
parse(Line) ->
    case binary:split(Line, <<" ">>, [global, trim_all]) of
        [<<"ESTAB">>, _, _, Local, Remote, Users | _] ->
            {match, Pids} = re:run(Users, "pid=(\\d+)", [global, {capture, all_but_first, binary}]),
            {ok, {Local, Remote, [binary_to_integer(Pid) || [Pid] <- Pids]}};
        _ ->
            none
    end.

%% Cuts all connections between two processes, at one end or at both. Returns their number.
-spec cut(OsPid :: pos_integer(), OsPid :: pos_integer()) -> non_neg_integer().
cut(A, B) ->
    length([cut_one(rand:uniform(3), Connection) || Connection <- connections(A, B)]).

cut_one(1, Connection) ->
    kill(Connection);
cut_one(2, {Local, Remote}) ->
    kill({Remote, Local});
cut_one(3, {Local, Remote}) ->
    kill({Local, Remote}),
    kill({Remote, Local}).

kill({Local, Remote}) ->
    os:cmd(lists:flatten(io_lib:format("ss -K -tnH src ~s dst ~s", [Local, Remote]))).

%% Cuts again and again between the pairs of processes, each time after a pause.
-spec start(
    [{OsPid :: pos_integer(), OsPid :: pos_integer()}],
    LeastMs :: pos_integer(),
    MostMs :: pos_integer()
) ->
    t().
start(Pairs, LeastMs, MostMs) ->
    Parent = self(),
    spawn(fun() ->
        Ref = monitor(process, Parent),
        loop(Pairs, {LeastMs, MostMs}, Ref, pause(LeastMs, MostMs), 0)
    end).

%% Waits until the cutter has cut this many connections.
-spec await_cuts(t(), pos_integer()) -> ok.
await_cuts(Cutter, Count) ->
    inet_rdma_test_wait:until({cuts, Count}, 30000, fun() ->
        Cuts = inet_rdma_test_ask:ask(Cutter, cuts),
        Cuts >= Count orelse Cuts
    end),
    ok.

%% How often it has cut.
-spec stop(t()) -> non_neg_integer().
stop(Cutter) -> inet_rdma_test_ask:ask(Cutter, stop).

%% When the next pause is over, and cuts so far.
loop(Pairs, {LeastMs, MostMs} = Pause, Parent, AtMs, Cuts) ->
    receive
        {stop, From, Ref} ->
            From ! {Ref, Cuts};
        {cuts, From, Ref} ->
            From ! {Ref, Cuts},
            loop(Pairs, Pause, Parent, AtMs, Cuts);
        {'DOWN', Parent, process, _, _} ->
            ok
    after max(0, AtMs - erlang:monotonic_time(millisecond)) ->
        Cut = [cut(A, B) || {A, B} <- Pairs],
        loop(Pairs, Pause, Parent, pause(LeastMs, MostMs), Cuts + lists:sum(Cut))
    end.

pause(LeastMs, MostMs) ->
    erlang:monotonic_time(millisecond) + LeastMs + rand:uniform(MostMs - LeastMs + 1) - 1.

%% A node that calls another one and sends to it while faults are made between their hosts, and says
%% what they did. It reads orders from its standard input, a line each, and answers each with a
%% line: see orders/1.
-module(inet_rdma_bench_faults).

-export([start/0, watch/0, sink/0]).

-define(CALLERS, 10).
-define(CALL_PAUSE_MS, 2).
-define(SEND_PAUSE_MS, 5).
-define(RETRY_MS, 100).
-define(LARGEST_BYTES, 20000).
%% All is well again when each caller's calls have succeeded at the beginning and at the end of this
%% time.
-define(QUIET_MS, 3000).
%% Longer than all carriers take to end a link, and to make another one.
-define(SETTLE_MS, 240000).
-define(DELIVER_MS, 10000).

%% Plain arguments: the names of the other nodes, first the name of the node that gets the calls.
-spec start() -> pid().
start() -> spawn(fun main/0).

main() ->
    [Peer | _] = Peers = [list_to_atom(Name) || Name <- init:get_plain_arguments()],
    _ = [until(fun() -> net_adm:ping(Each) =:= pong end) || Each <- Peers],
    _ = [
        until(fun() -> length(erpc:call(Each, erlang, nodes, [])) =:= length(Peers) end)
     || Each <- Peers
    ],
    Watchers = [{Node, spawn(Node, ?MODULE, watch, [])} || Node <- [node() | Peers]],
    Sink = spawn(Peer, ?MODULE, sink, []),
    Callers = [
        spawn(fun() ->
            call(#{peer => Peer, calls => 0, failed => 0, stall_ms => 0, last => now_ms()})
        end)
     || _ <- lists:seq(1, ?CALLERS)
    ],
    Payload = rand:bytes(?LARGEST_BYTES),
    Sender = spawn(fun() -> send(Sink, 0, Payload) end),
    say("ready"),
    orders(#{peer => Peer, watchers => Watchers, sink => Sink, callers => Callers, sender => Sender}).

%% rest: callers and sender pause. go: they go on. via: the node over which the link goes, or none.
%% settle NODE: waits until all is well again, ends the traffic, and answers with what the fault
%% did, as JSON; NODE was ended on purpose.
orders(#{callers := Callers, sender := Sender, peer := Peer} = State) ->
    case string:lexemes(io:get_line(""), " \n") of
        [Order] when Order =:= "rest"; Order =:= "go" ->
            _ = [Pid ! list_to_atom(Order) || Pid <- [Sender | Callers]],
            say("ok");
        ["via"] ->
            say(atom_to_list(maps:get(via, info(Peer), none)));
        ["downs", Ended] ->
            say(downs(State, list_to_atom(Ended)));
        ["settle" | Ended] ->
            say(report(State, [list_to_atom(Name) || Name <- Ended]))
    end,
    orders(State).

report(#{callers := Callers, watchers := Watchers, peer := Peer} = State, Ended) ->
    Settled = all_call(Callers) andalso pause(?QUIET_MS) andalso all_call(Callers),
    Counts = [ask(Caller, stop) || Caller <- Callers],
    Lost = lost(State),
    Downs = [
        Down
     || {Node, Watcher} <- Watchers,
        not lists:member(Node, Ended),
        {Down, _} <- ask(Watcher, downs),
        not lists:member(Down, Ended)
    ],
    Sum = fun(Key) -> lists:sum([maps:get(Key, Count) || Count <- Counts]) end,
    %% -1: this carrier knows no resumes.
    io_lib:format(
        "{\"settled\":~p,\"nodedowns\":~b,\"stall_ms\":~b,\"failed\":~b,\"calls\":~b,\"lost\":~b,\"resumes\":~b}",
        [
            Settled,
            length(Downs),
            lists:max([Stall || #{stall_ms := Stall} <- Counts]),
            Sum(failed),
            Sum(calls),
            Lost,
            maps:get(resumes, info(Peer), -1)
        ]
    ).

downs(#{watchers := Watchers}, Ended) ->
    Deadline = now_ms() + ?SETTLE_MS,
    Times = fun() ->
        [
            AtUs
         || {Node, Watcher} <- Watchers,
            Node =/= Ended,
            {Down, AtUs} <- ask(Watcher, downs),
            Down =:= Ended
        ]
    end,
    _ = until(fun() -> length(Times()) >= length(Watchers) - 1 orelse now_ms() > Deadline end),
    io_lib:format("~w", [Times()]).

%% Whether each caller has made a call that succeeded.
all_call(Callers) ->
    Refs = [
        begin
            Ref = make_ref(),
            Caller ! {settle, self(), Ref},
            Ref
        end
     || Caller <- Callers
    ],
    Deadline = now_ms() + ?SETTLE_MS,
    lists:all(
        fun(Ref) ->
            receive
                {Ref, ok} -> true
            after max(0, Deadline - now_ms()) -> false
            end
        end,
        Refs
    ).

pause(Ms) -> receive
    after Ms -> true
    end.

lost(#{sender := Sender, sink := Sink}) ->
    Sent = ask(Sender, stop),
    Deadline = now_ms() + ?DELIVER_MS,
    _ = until(fun() -> ask(Sink, count) >= Sent orelse now_ms() > Deadline end),
    Sent - ask(Sink, count).

info(Peer) ->
    try inet_rdma:info(Peer) of
        #{} = Info -> Info;
        _ -> #{}
    catch
        error:_ -> #{}
    end.

%% The longest time between two calls that succeeded is the stall.
call(State) -> call(State, none).

call(#{last := Last} = State, Settling) ->
    receive
        rest ->
            receive
                go -> call(State#{last := now_ms()}, Settling)
            end;
        {settle, From, Ref} ->
            call(State, {From, Ref});
        {stop, From, Ref} ->
            From ! {Ref, longest(now_ms() - Last, State)}
    after 0 ->
        called(State, Settling)
    end.

called(#{peer := Peer, calls := Calls, failed := Failed, last := Last} = State, Settling) ->
    try erpc:call(Peer, erlang, abs, [-7], infinity) of
        7 ->
            Now = now_ms(),
            _ =
                case Settling of
                    {From, Ref} -> From ! {Ref, ok};
                    none -> none
                end,
            true = pause(?CALL_PAUSE_MS),
            call(longest(Now - Last, State#{calls := Calls + 1, last := Now}), none)
    catch
        _:_ ->
            true = pause(?RETRY_MS),
            call(State#{failed := Failed + 1}, Settling)
    end.

longest(Ms, #{stall_ms := Longest} = State) -> State#{stall_ms := max(Ms, Longest)}.

%% Numbered messages of 1 byte to 20 KB.
send(Sink, Number, Payload) ->
    receive
        rest ->
            receive
                go -> send(Sink, Number, Payload)
            end;
        {stop, From, Ref} ->
            From ! {Ref, Number}
    after ?SEND_PAUSE_MS ->
        Sink ! {Number, binary:part(Payload, 0, 1 + Number * 7919 rem ?LARGEST_BYTES)},
        send(Sink, Number + 1, Payload)
    end.

%% Counts the messages that come in order.
-spec sink() -> no_return().
sink() -> sink(0, 0).

sink(Next, Count) ->
    receive
        {Number, _} when is_integer(Number), Number >= Next -> sink(Number + 1, Count + 1);
        {Number, _} when is_integer(Number) -> sink(Next, Count);
        {count, From, Ref} ->
            From ! {Ref, Count},
            sink(Next, Count)
    end.

%% Notes the nodes that this node has lost, and when.
-spec watch() -> no_return().
watch() ->
    ok = net_kernel:monitor_nodes(true),
    watch([]).

watch(Downs) ->
    receive
        {nodedown, Node} ->
            watch([{Node, os:system_time(microsecond)} | Downs]);
        {nodeup, _} ->
            watch(Downs);
        {downs, From, Ref} ->
            From ! {Ref, Downs},
            watch(Downs)
    end.

ask(Pid, Question) -> ask(Pid, Question, make_ref()).

%% Asks again, as the link may end meanwhile.
ask(Pid, Question, Ref) ->
    Pid ! {Question, self(), Ref},
    receive
        {Ref, Answer} -> Answer
    after ?DELIVER_MS -> ask(Pid, Question, Ref)
    end.

until(Done) ->
    case Done() of
        true ->
            true;
        false ->
            pause(?RETRY_MS),
            until(Done)
    end.

%% The log goes to the standard output, too: a mark tells answers from it.
say(Line) -> io:format("=answer ~ts~n", [Line]).

now_ms() -> erlang:monotonic_time(millisecond).

%% Each operation of the distribution in a script, and what erlang:trace/3 says of it in the sender's and
%% in the receiver's node. Runs in the nodes under test.
-module(inet_rdma_test_traced).

-export([start/1, counts/0, sinks/0, run/4]).
%% Run in processes of the nodes.
-export([child/2]).
-export_type([counts/0]).

%% What the processes of this node have sent to the peer, and got from it.
-type counts() :: #{{sent | received, Operation :: atom()} => pos_integer()}.

%% In several fragments.
-define(LARGE_BYTES, 200000).
%% One of so many messages is large.
-define(LARGE_EVERY, 400).

%% Traces all processes of this node that begin from now on.
-spec start(Peer :: node()) -> ok.
start(Peer) ->
    Tracer = spawn(fun() -> trace(Peer, #{}, #{}, #{}) end),
    true = register(?MODULE, Tracer),
    {module, seq_trace} = code:ensure_loaded(seq_trace),
    _ = [
        1 = erlang:trace_pattern(Function, true, [global])
     || Function <- [
            {erlang, send, 2},
            {erlang, monitor, 2},
            {erlang, demonitor, 2},
            {erlang, exit, 2},
            {erlang, group_leader, 2},
            {erts_internal, dist_spawn_request, 4},
            {seq_trace, set_token, 2}
        ]
    ],
    _ = erlang:trace(new, true, ['receive', procs, call, {tracer, Tracer}]),
    ok.

%% All events until now are in them.
-spec counts() -> counts().
counts() ->
    Ref = erlang:trace_delivered(all),
    receive
        {trace_delivered, all, Ref} -> ok
    end,
    ?MODULE ! {counts, self()},
    receive
        {?MODULE, Counts} -> Counts
    end.

%% Links: {Process, Remote} of each. Tokens: the processes that send with a token of seq_trace.
trace(Peer, Counts, Links, Tokens) ->
    receive
        {counts, From} ->
            From ! {?MODULE, Counts},
            trace(Peer, Counts, Links, Tokens);
        {trace, Pid, call, {seq_trace, set_token, _}} ->
            trace(Peer, Counts, Links, Tokens#{Pid => true});
        {trace, Pid, exit, _Reason} ->
            Left = [Remote || {Own, Remote} <- maps:keys(Links), Own =:= Pid],
            Exit = with_token(payload_exit, Pid, Tokens),
            Counted = lists:foldl(fun(_, Sum) -> count({sent, Exit}, Sum) end, Counts, Left),
            trace(Peer, Counted, without([{Pid, Remote} || Remote <- Left], Links), Tokens);
        {trace, _, 'receive', {'EXIT', Remote, {Kind, _}} = Message} when
            node(Remote) =:= Peer, Kind =/= payload_exit2
        ->
            %% The exit signal of a link, which has come before as getting_unlinked.
            Counted = uncount({received, unlink_id}, uncount({sent, unlink_id_ack}, Counts)),
            trace(Peer, count(received(Message, Peer), Counted), Links, Tokens);
        {trace, Pid, Kind, Remote} when Kind =:= link; Kind =:= getting_linked ->
            case is_of(Peer, Remote) of
                true ->
                    Way =
                        case Kind of
                            link -> sent;
                            getting_linked -> received
                        end,
                    trace(Peer, count({Way, link}, Counts), Links#{{Pid, Remote} => true}, Tokens);
                false ->
                    trace(Peer, Counts, Links, Tokens)
            end;
        {trace, Pid, Kind, Remote} when Kind =:= unlink; Kind =:= getting_unlinked ->
            case {is_map_key({Pid, Remote}, Links), Kind} of
                {true, unlink} ->
                    Counted = count({received, unlink_id_ack}, count({sent, unlink_id}, Counts)),
                    trace(Peer, Counted, without([{Pid, Remote}], Links), Tokens);
                {true, getting_unlinked} ->
                    Counted = count({sent, unlink_id_ack}, count({received, unlink_id}, Counts)),
                    trace(Peer, Counted, without([{Pid, Remote}], Links), Tokens);
                {false, _} ->
                    trace(Peer, Counts, Links, Tokens)
            end;
        Event when element(1, Event) =:= trace ->
            trace(Peer, count(counted(Event, Peer, Tokens), Counts), Links, Tokens)
    end.

without(Keys, Map) -> maps:without(Keys, Map).

uncount(Key, Counts) ->
    case map_get(Key, Counts) of
        1 -> maps:remove(Key, Counts);
        Count -> Counts#{Key := Count - 1}
    end.

count(none, Counts) -> Counts;
count(Key, Counts) -> maps:update_with(Key, fun(Count) -> Count + 1 end, 1, Counts).

counted({trace, _Pid, 'receive', Message}, Peer, _Tokens) ->
    received(Message, Peer);
counted({trace, Pid, spawned, Parent, _}, Peer, Tokens) ->
    case is_of(Peer, Parent) of
        true -> {received, with_token(spawn_request, Pid, Tokens)};
        false -> none
    end;
counted({trace, Pid, call, {Module, Function, Arguments}}, Peer, Tokens) ->
    called({Module, Function, Arguments}, Pid, Peer, Tokens);
counted(_Event, _Peer, _Tokens) ->
    none.

%% The trace flag send misses sends that the VM goes on with later, as the link was busy.
called({erlang, send, [To, _Message]}, Pid, Peer, Tokens) ->
    case To of
        {_Name, Peer} -> {sent, with_token(reg_send, Pid, Tokens)};
        _ when is_pid(To), node(To) =:= Peer -> {sent, with_token(send_sender, Pid, Tokens)};
        _ when is_reference(To), node(To) =:= Peer -> {sent, with_token(alias_send, Pid, Tokens)};
        _ -> none
    end;
called({erlang, monitor, [process, Remote]}, _Pid, Peer, _Tokens) -> sent(monitor_p, Remote, Peer);
%% Of the script alone.
called({erlang, demonitor, [_, [flush, info]]}, _Pid, _Peer, _Tokens) ->
    {sent, demonitor_p};
%% exit/2 takes no token along.
called({erlang, exit, [Remote, _]}, _Pid, Peer, _Tokens) ->
    sent(payload_exit2, Remote, Peer);
called({erlang, group_leader, [_, Remote]}, _Pid, Peer, _Tokens) ->
    sent(group_leader, Remote, Peer);
called({erts_internal, dist_spawn_request, [Peer | _]}, Pid, Peer, Tokens) ->
    {sent, with_token(spawn_request, Pid, Tokens)};
called(_Call, _Pid, _Peer, _Tokens) ->
    none.

sent(Operation, Remote, Peer) ->
    case is_of(Peer, Remote) of
        true -> {sent, Operation};
        false -> none
    end.

%% Messages and reasons of the script name the operation that brings them.
received({'EXIT', From, {Operation, _}}, Peer) when node(From) =:= Peer -> {received, Operation};
received({'DOWN', _, process, From, _}, Peer) when node(From) =:= Peer ->
    {received, payload_monitor_p_exit};
received({{script, Operation}, _Ref, ok, _Pid}, _Peer) ->
    {received, Operation};
received({script, Operation, _}, _Peer) ->
    {received, Operation};
received(_Message, _Peer) ->
    none.

is_of(Node, Pid) -> is_pid(Pid) andalso node(Pid) =:= Node.

with_token(Operation, Pid, Tokens) ->
    case is_map_key(Pid, Tokens) of
        true -> binary_to_atom(<<(atom_to_binary(Operation))/binary, "_tt">>);
        false -> Operation
    end.

%% A registered process, and another one with an alias, that take any message.
-spec sinks() -> {pid(), reference()}.
sinks() ->
    true = register(sink, spawn(fun drop/0)),
    Parent = self(),
    Pid = spawn(fun() ->
        Parent ! {self(), alias()},
        drop()
    end),
    receive
        {Pid, Alias} -> {Pid, Alias}
    end.

drop() ->
    receive
        _ -> drop()
    end.

%% Sends this many messages to the sinks of the peer, and does each other operation this often with
%% processes there.
-spec run(Peer :: node(), {pid(), reference()}, Messages :: pos_integer(), Times :: pos_integer()) -> ok.
run(Peer, {Pid, Alias}, Messages, Times) ->
    Senders = [
        spawn_monitor(Sender)
     || Sender <- [
            fun() -> send_all(Pid, send_sender, Messages div 2) end,
            fun() -> send_all({sink, Peer}, reg_send, Messages div 4) end,
            fun() -> send_all(Alias, alias_send, Messages div 4 - 3 * Times) end,
            fun() ->
                set_token(),
                send_all(Pid, send_sender_tt, Times),
                send_all({sink, Peer}, reg_send_tt, Times),
                send_all(Alias, alias_send_tt, Times)
            end,
            fun() -> operate(Peer, fun() -> ok end, fun(Operation) -> Operation end, Times) end,
            fun() -> operate(Peer, fun set_token/0, fun named_tt/1, Times) end
        ]
    ],
    _ = [
        receive
            {'DOWN', Ref, process, Sender, normal} -> ok
        end
     || {Sender, Ref} <- Senders
    ],
    ok.

%% A process that gets a message without a token loses its own.
set_token() -> seq_trace:set_token(label, 1).

named_tt(Operation) -> binary_to_atom(<<(atom_to_binary(Operation))/binary, "_tt">>).

send_all(To, Operation, Count) ->
    Large = binary:copy(<<1>>, ?LARGE_BYTES),
    _ = [
        case Number rem ?LARGE_EVERY of
            0 -> erlang:send(To, {script, Operation, Large});
            _ -> erlang:send(To, {script, Operation, Number})
        end
     || Number <- lists:seq(1, Count)
    ],
    ok.

operate(Peer, Token, Name, Times) ->
    _ = process_flag(trap_exit, true),
    _ = [operate_once(Peer, Token, Name, Number) || Number <- lists:seq(1, Times)],
    ok.

operate_once(Peer, Token, Name, Number) ->
    Pid = child_of(Peer, Token, Name),
    true = link(Pid),
    true = group_leader(whereis(init), Pid),
    Ref = monitor(process, Pid),
    true = exit(Pid, {payload_exit2, Number}),
    receive
        {'DOWN', Ref, process, Pid, _} -> ok
    end,
    receive
        {'EXIT', Pid, _} -> ok
    end,
    Linked = child_of(Peer, Token, Name),
    true = link(Linked),
    true = unlink(Linked),
    Other = monitor(process, Linked),
    true = demonitor(Other, [flush, info]),
    {Own, Ended} = spawn_monitor(fun() ->
        true = link(Linked),
        _ = Token(),
        exit({Name(payload_exit), Number})
    end),
    receive
        {'DOWN', Ended, process, Own, {_, Number}} -> ok
    end.

child_of(Peer, Token, Name) ->
    _ = Token(),
    Arguments = [self(), Name(send_sender)],
    Ref = spawn_request(Peer, ?MODULE, child, Arguments, [{reply_tag, {script, Name(spawn_reply)}}]),
    receive
        {{script, _}, Ref, ok, Pid} ->
            receive
                {script, _, Pid} -> Pid
            end
    end.

%% Says that it is there, with the name of the operation that brings this, and ends by the first exit
%% signal: that of exit/2, which takes its token away, or that of a link.
-spec child(Parent :: pid(), Operation :: atom()) -> no_return().
child(Parent, Operation) ->
    _ = process_flag(trap_exit, true),
    _ = erlang:send(Parent, {script, Operation, self()}),
    receive
        {'EXIT', _, {payload_exit2, Number}} -> exit({payload_exit, Number});
        {'EXIT', _, {_, _}} -> exit(normal)
    end.

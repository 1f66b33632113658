%% Detours that a node asks for, and what goes over them. Runs in the node under test.
-module(inet_rdma_test_asker).

-export([session/1, write_facts/1, suspend_for/2, kill_named/1, kill_return/1]).
-export([
    set_listens/2,
    open/2,
    send/2,
    recv/3,
    close/2,
    end_of/2,
    ask/3,
    resume_inside_tls/2,
    unknown/0,
    relays/0,
    attempt/1
]).

-define(WAIT_MS, 20000).

-spec session(node()) -> inet_rdma_session:t().
session(Node) ->
    {ok, Session} = inet_rdma_links:session_of(atom_to_binary(Node)),
    Session.

%% Processes that set a fact of the session with the node again and again, and end with the session.
-spec write_facts(node()) -> ok.
write_facts(Node) ->
    Name = inet_rdma_session:name(session(Node)),
    _ = [spawn(fun() -> write_facts(Name, 0) end) || _ <- [1, 2]],
    ok.

write_facts(Name, Number) ->
    ok = inet_rdma_detours:set_fact(Name, detours, Number),
    case inet_rdma_links:session(Name) of
        {ok, _} -> write_facts(Name, Number + 1);
        _ -> ok
    end.

%% A process of this name does not run for this time.
-spec suspend_for(atom(), pos_integer()) -> ok.
suspend_for(Name, Ms) ->
    Caller = self(),
    Suspender = spawn(fun() ->
        Pid = whereis(Name),
        true = erlang:suspend_process(Pid),
        Caller ! {self(), suspended},
        receive
        after Ms -> true = erlang:resume_process(Pid)
        end
    end),
    receive
        {Suspender, suspended} -> ok
    end.

-spec kill_named(atom()) -> ok.
kill_named(Name) -> kill(whereis(Name)).

%% Kills the process that takes the link to the node back from its detour, once there is one.
-spec kill_return(node()) -> ok.
kill_return(Node) ->
    case inet_rdma_detours:fact(inet_rdma_session:name(session(Node)), return) of
        none -> receive
            after 10 -> kill_return(Node)
            end;
        Pid -> kill(Pid)
    end.

kill(Pid) ->
    Ref = monitor(process, Pid),
    true = exit(Pid, kill),
    receive
        {'DOWN', Ref, process, Pid, _} -> ok
    end.

%% The node takes this for the port at which the other one accepts connections.
-spec set_listens(node(), inet:port_number()) -> ok.
set_listens(Node, Port) ->
    Name = inet_rdma_session:name(session(Node)),
    {Ip, _} = inet_rdma_detours:fact(Name, listens),
    inet_rdma_detours:set_fact(Name, listens, {Ip, Port}).

%% A process that has a detour to the node, which is asked for within this time.
-spec open(node(), timeout()) -> {ok, pid(), Via :: binary()} | {error, term()}.
open(Node, TimeoutMs) ->
    {Pid, Answer} = inet_rdma_test_ask:start(fun() ->
        case inet_rdma_detour:connect(session(Node), atom_to_binary(Node), TimeoutMs) of
            {ok, Connection, Via} ->
                {_, Socket} = inet_rdma_transport:socket(Connection),
                ok = inet:setopts(Socket, [
                    binary, {active, false}, {packet, raw}, {show_econnreset, true}
                ]),
                {{ok, Via}, fun() -> loop(Socket) end};
            Error ->
                {Error, fun() -> ok end}
        end
    end),
    case Answer of
        {ok, Via} -> {ok, Pid, Via};
        Error -> Error
    end.

loop(Socket) ->
    receive
        {{send, Bytes}, From, Ref} ->
            From ! {Ref, gen_tcp:send(Socket, Bytes)},
            loop(Socket);
        {{recv, Count, TimeoutMs}, From, Ref} ->
            From ! {Ref, gen_tcp:recv(Socket, Count, TimeoutMs)},
            loop(Socket);
        {{close, How}, From, Ref} ->
            _ =
                case How =:= reset of
                    true -> inet:setopts(Socket, [{linger, {true, 0}}]);
                    false -> ok
                end,
            From ! {Ref, gen_tcp:close(Socket)}
    end.

-spec send(pid(), iodata()) -> ok | {error, term()}.
send(Pid, Bytes) -> inet_rdma_test_ask:ask(Pid, {send, Bytes}).

-spec recv(pid(), non_neg_integer(), timeout()) -> {ok, binary()} | {error, term()}.
recv(Pid, Count, TimeoutMs) -> inet_rdma_test_ask:ask(Pid, {recv, Count, TimeoutMs}).

-spec close(pid(), in_order | reset) -> ok.
close(Pid, How) -> inet_rdma_test_ask:ask(Pid, {close, How}).

%% How the connection ends: closed in order, or by an error.
-spec end_of(pid(), timeout()) -> term().
end_of(Pid, TimeoutMs) ->
    {error, How} = recv(Pid, 0, TimeoutMs),
    How.

%% The neighbour's answer to a request that is made by hand. Changed: what is wrong with it.
-spec ask(node(), To :: binary(), none | name | proof | version) -> Answer :: binary() | closed.
ask(Neighbour, To, Changed) ->
    %% A connection inside TLS is linked to its processes.
    {Pid, Ref} = spawn_monitor(fun() -> exit({answer, asked(Neighbour, To, Changed)}) end),
    receive
        {'DOWN', Ref, process, Pid, {answer, Answer}} -> Answer
    end.

asked(Neighbour, To, Changed) ->
    process_flag(trap_exit, true),
    Session = session(Neighbour),
    {ok, Connection} = dial(inet_rdma_session:protocol(Session), Neighbour, Session),
    Name =
        case Changed of
            name -> inet_rdma_nif:nonce();
            _ -> inet_rdma_session:name(Session)
        end,
    Version =
        case Changed of
            version -> 99;
            _ -> 1
        end,
    Said = <<Name/binary, (inet_rdma_nif:nonce())/binary, To/binary>>,
    ok = inet_rdma_transport:send_message(Connection, <<"inet_rdma detour", Version, Said/binary>>),
    case inet_rdma_transport:recv_message(Connection, ?WAIT_MS) of
        {ok, <<$c, Nonce:16/binary, _Proof:32/binary>>} ->
            Label =
                case Changed of
                    proof -> "dialer";
                    _ -> "detour asker"
                end,
            {ok, Proof} = inet_rdma_port:command(inet_rdma_session:port(Session), prove, [
                Label, Said, Nonce
            ]),
            ok = inet_rdma_transport:send_message(Connection, <<$p, Proof/binary>>),
            answer(Connection);
        {ok, Answer} ->
            Answer;
        {error, closed} ->
            closed
    end.

dial(tcp, _Node, Session) ->
    inet_rdma_detour:dial(Session, ?WAIT_MS);
dial(tls, Node, Session) ->
    Listens = inet_rdma_detours:fact(inet_rdma_session:name(Session), listens),
    inet_rdma_tls:connect(inet_rdma_session:driver(Session), Listens, host(Node), [], ?WAIT_MS).

host(Node) ->
    [_, Host] = string:split(atom_to_list(Node), "@"),
    Host.

%% The answer of the node's own listener, over a detour and inside TLS, to a request to resume a
%% session that is none.
-spec resume_inside_tls(node(), timeout()) -> {ok, binary()} | {error, term()}.
resume_inside_tls(Node, TimeoutMs) ->
    {ok, Tcp, _Via} = inet_rdma_detour:connect(session(Node), atom_to_binary(Node), TimeoutMs),
    {ok, Connection} = inet_rdma_tls:connect_over(Tcp, host(Node), [], TimeoutMs),
    ok = inet_rdma_transport:send_message(Connection, unknown()),
    inet_rdma_transport:recv_message(Connection, ?WAIT_MS).

%% A request to resume a session that is none.
-spec unknown() -> binary().
unknown() ->
    <<"inet_rdma resume", 1, (inet_rdma_nif:nonce())/binary, 1:64, (inet_rdma_nif:nonce())/binary>>.

answer(Connection) ->
    case inet_rdma_transport:recv_message(Connection, ?WAIT_MS) of
        {ok, Answer} -> Answer;
        {error, _} -> closed
    end.

%% The processes of requests, and of detours that this node relays.
-spec relays() -> [pid()].
relays() ->
    [Pid || {_, Pid, _, _} <- supervisor:which_children(inet_rdma_detours)].

%% How an attempt to resume the link to the node ends, at the address where that accepts
%% connections. The attempt gives no connection up.
-spec attempt(node()) -> inet_rdma_resume:result().
attempt(Node) ->
    Session = session(Node),
    Address = inet_rdma_detours:fact(inet_rdma_session:name(Session), listens),
    Dialer = self(),
    {Pid, Ref} = spawn_monitor(fun() ->
        inet_rdma_resume:attempt(#{
            session => Session,
            node => atom_to_binary(Node),
            peer_node => none,
            dialer => Dialer,
            is_narrow => false,
            to => Address,
            factor => 1
        })
    end),
    receive
        {'DOWN', Ref, process, Pid, Result} -> Result
    end.

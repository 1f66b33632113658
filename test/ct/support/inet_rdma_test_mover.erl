%% Takes the guard's place in the settlement in band of this node's only link, and says there
%% whatever a case wants. All else that the port tells goes on to the guard. Runs in the node under
%% test.
-module(inet_rdma_test_mover).

-export([start/1, settle/1, cut_behind_the_move/0, heard/1, pass/1]).
-export_type([script/0, action/0]).

%% What it does at once, then after each message of the peer in turn. After the last it is silent.
-type script() :: [[action()], ...].
%% hello: the first message, with the facts of this node and these. place: the same with a place
%% where the peer can connect over shared memory; this side does not take the queue pair. cut: ends
%% the TCP connection. disconnect: ends the link to this node.
-type action() ::
    {say, term()} | {say_raw, binary()} | {hello, map()} | place | cut | {disconnect, node()}.

-spec start(script()) -> pid().
start([AtOnce | Script]) ->
    begin_with(fun(Port) ->
        act(AtOnce, Port),
        Script
    end).

%% Settles as the initiator, and does not tell the guard. drop: closes the queue pair as soon as
%% both sides have it; keep: the guard does when the peer has moved.
-spec settle(drop | keep) -> pid().
settle(End) ->
    begin_with(fun(_Port) ->
        [[Session]] = ets:match(inet_rdma_sessions, {'_', '_', '_', '$1', '_'}),
        [Peer] = nodes(connected),
        {Settler, _} = spawn_monitor(inet_rdma_session_mover, settle, [
            Session, atom_to_binary(Peer)
        ]),
        {settles, Settler, End}
    end).

%% The guard settles. Cuts the TCP connection as soon as the peer has moved.
-spec cut_behind_the_move() -> pid().
cut_behind_the_move() ->
    begin_with(fun(_Port) -> cut end).

%% Begin does what is done at once, and returns where the peer's messages go: the rest of a script,
%% {settles, Settler, End}, or pass or cut (to the guard).
begin_with(Begin) ->
    {Mover, ok} = inet_rdma_test_ask:start(fun() ->
        [{_, Port}] = erlang:system_info(dist_ctrl),
        {links, Links} = erlang:port_info(Port, links),
        [Guard] = [
            Pid
         || Pid <- Links,
            is_pid(Pid),
            proc_lib:translate_initial_call(Pid) =:= {inet_rdma_session_guard, init, 1}
        ],
        _ = monitor(port, Port),
        {ok, _} = inet_rdma_port:command(Port, watch),
        {ok, fun() -> loop(#{port => Port, guard => Guard, script => Begin(Port), heard => []}) end}
    end),
    Mover.

%% The messages of the peer's settlement, oldest first.
-spec heard(pid()) -> [term()].
heard(Mover) -> inet_rdma_test_ask:ask(Mover, heard).

%% From now on the guard settles.
-spec pass(pid()) -> ok.
pass(Mover) -> inet_rdma_test_ask:ask(Mover, pass).

loop(#{port := Port, guard := Guard, script := Script, heard := Heard} = State) ->
    receive
        {'$inet_rdma', Port, {message, <<131, _/binary>> = Message}, _Standing} when
            is_tuple(Script)
        ->
            {settles, Settler, _} = Script,
            Settler ! {session, Port, Message},
            loop(State);
        {'$inet_rdma', Port, {message, <<131, _/binary>> = Message}, _Standing} when
            is_list(Script)
        ->
            loop(State#{script := answer(Script, Port), heard := [binary_to_term(Message) | Heard]});
        %% After another TCP connection the peer tells its addresses, which is no term.
        {'$inet_rdma', Port, Notice, _Standing} = Told ->
            Guard ! Told,
            _ =
                case {Notice, Script} =:= {moved, cut} of
                    true -> act_one(cut, Port);
                    false -> ok
                end,
            loop(State);
        {heard, From, Ref} ->
            From ! {Ref, lists:reverse(Heard)},
            loop(State);
        {pass, From, Ref} ->
            From ! {Ref, ok},
            loop(State#{script := pass});
        {'DOWN', _, process, Settler, {settled, {move, _Queue, _Why}}} ->
            {settles, Settler, End} = Script,
            _ =
                case End =:= drop of
                    true -> {ok, _} = inet_rdma_port:command(Port, drop_queue);
                    false -> ok
                end,
            loop(State);
        {'DOWN', _, port, Port, _} ->
            ok
    end.

answer([], _Port) ->
    [];
answer([Actions | Script], Port) ->
    act(Actions, Port),
    Script.

act(Actions, Port) -> [act_one(Action, Port) || Action <- Actions].

act_one({say, Message}, Port) ->
    act_one({say_raw, term_to_binary(Message)}, Port);
act_one({say_raw, Bytes}, Port) ->
    {ok, _} = inet_rdma_port:command(Port, control, Bytes);
act_one({hello, More}, Port) ->
    Facts = #{
        fabric => auto, required => false, timeout_ms => 60000, path => inet_rdma_nif:token()
    },
    act_one({say, {hello, maps:merge(maps:merge(inet_rdma_nif:identity(), Facts), More)}}, Port);
act_one(place, Port) ->
    {ok, Config} = inet_rdma_options:node(),
    Token = inet_rdma_nif:token(),
    OfLink = inet_rdma_queue:config(Config),
    {ok, Attempt, _Id, Name} = inet_rdma_nif:expect_shm(Token, 60000, OfLink#{fabric := shm}),
    %% It ends when the term is garbage.
    _ = put(Token, Attempt),
    act_one({hello, #{place => {Name, Token}}}, Port);
act_one(cut, _Port) ->
    inet_rdma_test_remote:end_part(socket);
act_one({disconnect, Node}, _Port) ->
    erlang:disconnect_node(Node).

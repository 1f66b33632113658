%% Numbered messages from this node to a process on another, in bursts; the receiver checks number
%% and hash of each and confirms each burst. Only the end of the connection may take messages away.
%% Runs in the nodes under test.
-module(inet_rdma_soak_messages).

-export([work/2, receiver/2]).

-define(BURST, 64).
-define(BURST_BYTES, 4194304).
-define(BURSTS, 200).
%% Longer than any stop of a node.
-define(TIMEOUT_MS, 240000).
%% From a message of the next connection to the signal that the last one has ended.
-define(GAP_MS, 60000).

-spec work(node(), file:filename_all()) -> no_return().
work(Peer, File) ->
    ok = inet_rdma_soak_node:wait_turn(),
    %% Linked, too, so that nothing stays behind there when the connection ends.
    _ = process_flag(trap_exit, true),
    {Pid, Monitor} = spawn_opt(Peer, ?MODULE, receiver, [self(), File], [link, monitor]),
    Session = #{
        peer => Peer,
        to => Pid,
        monitor => Monitor,
        next => 0,
        hashes => 0,
        left => rand:uniform(?BURSTS)
    },
    Outcome = bursts(Session),
    receive
        {'EXIT', Pid, _} -> ok
    after ?TIMEOUT_MS -> error({no_exit_signal, Peer})
    end,
    case Outcome of
        ok ->
            ok;
        lost ->
            ok = inet_rdma_soak_node:tell(Peer, link, messages_lost),
            receive
            after 50 -> ok
            end
    end,
    work(Peer, File).

bursts(#{peer := Peer, to := Pid, monitor := Monitor, left := Left} = Session) ->
    case Left =:= 0 orelse inet_rdma_soak_node:is_paused() of
        true ->
            Pid ! {finish, self()},
            Wanted = {done, maps:get(next, Session), maps:get(hashes, Session)},
            receive
                {'DOWN', Monitor, process, Pid, Wanted} ->
                    ok;
                {'DOWN', Monitor, process, Pid, noconnection} ->
                    lost;
                {'DOWN', Monitor, process, Pid, Reason} ->
                    error({session_ended, Reason, {wanted, Wanted}})
            after ?TIMEOUT_MS -> error({never_finished, Peer})
            end;
        false ->
            Sent = burst(rand:uniform(?BURST), ?BURST_BYTES, Session#{left := Left - 1}),
            case confirmed(Sent) of
                ok ->
                    pause_between(),
                    bursts(Sent);
                lost ->
                    lost
            end
    end.

%% Mostly none, so that bursts follow closely; else long enough for all pollers to go to sleep.
pause_between() ->
    case rand:uniform(4) of
        1 -> receive
            after rand:uniform(60) -> ok
            end;
        _ -> ok
    end.

burst(0, _Bytes, Session) ->
    Session;
burst(_Left, Bytes, Session) when Bytes =< 0 ->
    Session;
burst(Left, Bytes, #{to := Pid, next := Next, hashes := Hashes} = Session) ->
    Term = inet_rdma_soak_payload:term(),
    Hash = inet_rdma_soak_payload:hash(Term),
    Pid ! {message, self(), Next, Hash, Term},
    Size = erlang:external_size(Term),
    _ = inet_rdma_soak_node:add(bytes, Size),
    burst(Left - 1, Bytes - Size, Session#{
        next := Next + 1, hashes := erlang:phash2({Hashes, Hash})
    }).

confirmed(#{peer := Peer, to := Pid, monitor := Monitor, next := Next}) ->
    Ref = make_ref(),
    Pid ! {confirm, self(), Ref},
    receive
        {Ref, Next, Received} ->
            _ = inet_rdma_soak_node:add(messages, Received),
            _ = inet_rdma_soak_node:moved(messages, Peer),
            ok;
        {'DOWN', Monitor, process, Pid, noconnection} ->
            lost;
        {'DOWN', Monitor, process, Pid, Reason} ->
            error({receiver_ended, Peer, Reason})
    after ?TIMEOUT_MS -> error({no_confirmation, Peer, {sent, Next}})
    end.

%% Runs on the other node.
-spec receiver(pid(), file:filename_all()) -> no_return().
receiver(Sender, File) ->
    %% What fails here is to be logged here.
    true = group_leader(whereis(init), self()),
    _ = process_flag(trap_exit, true),
    inet_rdma_soak_node:guarded({File, fun() -> receive_loop(Sender, 0, 0, 0) end}).

receive_loop(Sender, Due, Hashes, SinceLast) ->
    receive
        {message, Sender, Due, Hash, Term} ->
            case inet_rdma_soak_payload:hash(Term) of
                Hash ->
                    receive_loop(Sender, Due + 1, erlang:phash2({Hashes, Hash}), SinceLast + 1);
                _ ->
                    error(
                        {damaged, {from, node(Sender)}, {number, Due},
                            {size, erlang:external_size(Term)}}
                    )
            end;
        {message, Sender, Number, _, _} ->
            gap(Sender, Due, Number);
        {confirm, Sender, Ref} ->
            Sender ! {Ref, Due, SinceLast},
            receive_loop(Sender, Due, Hashes, 0);
        {finish, Sender} ->
            exit({done, Due, Hashes});
        {'EXIT', Sender, noconnection} ->
            exit(normal);
        {'EXIT', Sender, Reason} ->
            error({sender_ended, Sender, Reason})
    end.

%% Numbers may be missing if the connection ended and the message came over the next one.
gap(Sender, Due, Number) when Number > Due ->
    receive
        {'EXIT', Sender, noconnection} -> exit(normal)
    after ?GAP_MS -> error({lost, {from, node(Sender)}, {due, Due}, {got, Number}})
    end;
gap(Sender, Due, Number) ->
    error({out_of_order, {from, node(Sender)}, {due, Due}, {got, Number}}).

%% Calls, links and monitors to processes of another node, one after the other, without a pause.
%% Runs in the nodes under test.
-module(inet_rdma_soak_calls).

-export([work/2, echo/1, park/0]).

%% Longer than any stop of a node.
-define(TIMEOUT_MS, 240000).

-spec work(node(), file:filename_all()) -> no_return().
work(Peer, File) ->
    _ = process_flag(trap_exit, true),
    loop(Peer, File, none).

%% `Anchor' is a process there that stays linked for as long as the connection lives.
loop(Peer, File, Anchor) ->
    ok = inet_rdma_soak_node:wait_turn(),
    Held = hold(Peer, Anchor),
    {What, Outcome} = one(rand:uniform(6), Peer),
    case Outcome of
        ok ->
            _ = inet_rdma_soak_node:add(What, 1),
            _ = inet_rdma_soak_node:moved(calls, Peer);
        lost ->
            ok = inet_rdma_soak_node:tell(Peer, link, {lost_by, What}),
            receive
            after 50 -> ok
            end
    end,
    case rand:uniform(100) of
        1 -> receive
            after rand:uniform(200) -> ok
            end;
        _ -> ok
    end,
    loop(Peer, File, Held).

hold(Peer, none) ->
    spawn_link(Peer, ?MODULE, park, []);
hold(Peer, Anchor) ->
    receive
        {'EXIT', Anchor, noconnection} ->
            ok = inet_rdma_soak_node:tell(Peer, link, link_broke),
            none;
        {'EXIT', Anchor, Reason} ->
            error({anchor_ended, Peer, Reason})
    after 0 -> Anchor
    end.

one(1, Peer) ->
    Binary = inet_rdma_soak_payload:binary(argument),
    Wanted = erlang:md5(Binary),
    {calls,
        case rpc:call(Peer, erlang, md5, [Binary], ?TIMEOUT_MS) of
            Wanted -> ok;
            {badrpc, nodedown} -> lost;
            Other -> error({wrong_answer, rpc, Peer, Other, {wanted, Wanted}})
        end};
one(2, Peer) ->
    Term = inet_rdma_soak_payload:term(),
    {calls,
        try erpc:call(Peer, ?MODULE, echo, [Term], ?TIMEOUT_MS) of
            Term -> ok;
            _ -> error({wrong_answer, erpc, Peer, {size, erlang:external_size(Term)}})
        catch
            error:{erpc, noconnection} -> lost
        end};
one(3, Peer) ->
    {calls,
        case rpc:call(Peer, erlang, node, [], ?TIMEOUT_MS) of
            Peer -> ok;
            {badrpc, nodedown} -> lost;
            Other -> error({wrong_answer, rpc, Peer, Other})
        end};
one(4, Peer) ->
    Pid = spawn_link(Peer, ?MODULE, park, []),
    Reason = {reason, inet_rdma_soak_payload:binary(argument), self()},
    Pid ! {finish, Reason},
    {links, ended(Pid, Reason)};
one(5, Peer) ->
    %% Ended from here.
    Pid = spawn_link(Peer, ?MODULE, park, []),
    exit(Pid, kill),
    {links, ended(Pid, killed)};
one(6, Peer) ->
    {Pid, Monitor} = spawn_opt(Peer, ?MODULE, park, [], [link, monitor]),
    Reason = {reason, make_ref()},
    Pid ! {finish, Reason},
    Down =
        receive
            {'DOWN', Monitor, process, Pid, Reason} -> ok;
            {'DOWN', Monitor, process, Pid, noconnection} -> lost;
            {'DOWN', Monitor, process, Pid, Other} -> error({wrong_reason, monitor, Peer, Other})
        after ?TIMEOUT_MS -> error({no_down_message, Peer})
        end,
    %% The connection may end between the two signals.
    case {Down, ended(Pid, Reason)} of
        {ok, ok} -> {monitors, ok};
        _ -> {monitors, lost}
    end.

ended(Pid, Reason) ->
    receive
        {'EXIT', Pid, Reason} -> ok;
        {'EXIT', Pid, noconnection} -> lost;
        {'EXIT', Pid, Other} -> error({wrong_reason, link, node(Pid), erlang:external_size(Other)})
    after ?TIMEOUT_MS -> error({no_exit_signal, node(Pid)})
    end.

-spec echo(term()) -> term().
echo(Term) -> Term.

-spec park() -> no_return().
park() ->
    receive
        {finish, Reason} -> exit(Reason)
    end.

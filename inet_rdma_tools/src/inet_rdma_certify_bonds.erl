%% Links and monitors between a process and others on another node: some last, the others end with a reason that must
%% arrive. Runs in the nodes under test.
-module(inet_rdma_certify_bonds).

-export([start/1, stop/2, park/0]).
-export_type([figures/0]).

%% Ends that arrived with their reason; bonds that the end of a connection broke.
-type figures() :: #{ended := non_neg_integer(), broken := non_neg_integer()}.

%% Longer than a link may be suspended.
-define(TIMEOUT_MS, 60000).
-define(PAUSE_MS, 5).

-spec start(node()) -> pid().
start(Peer) ->
    spawn(fun() ->
        _ = process_flag(trap_exit, true),
        loop(Peer, hold(Peer), #{ended => 0, broken => 0})
    end).

-spec stop(pid(), timeout()) -> figures().
stop(Pid, TimeoutMs) ->
    Ref = monitor(process, Pid),
    Pid ! {stop, self(), Ref},
    receive
        {Ref, Figures} -> demonitor(Ref, [flush]), Figures;
        {'DOWN', Ref, process, _, Reason} -> error({bonds_ended, Reason})
    after TimeoutMs -> error({bonds_do_not_end, process_info(Pid, [current_stacktrace, messages])})
    end.

hold(Peer) -> spawn_opt(Peer, ?MODULE, park, [], [link, monitor]).

loop(Peer, {Anchor, Monitor} = Held, #{ended := Ended, broken := Broken} = Figures) ->
    receive
        {stop, From, Ref} ->
            exit(Anchor, kill),
            From ! {Ref, Figures};
        {'EXIT', Anchor, noconnection} ->
            loop(Peer, Held, Figures#{broken := Broken + 1});
        {'DOWN', Monitor, process, Anchor, noconnection} ->
            loop(Peer, hold(Peer), Figures#{broken := Broken + 1})
    after ?PAUSE_MS ->
        Reason = {reason, make_ref(), rand:bytes(rand:uniform(1000))},
        {Pid, Ref} = hold(Peer),
        Pid ! {finish, Reason},
        case both(Pid, Ref, Reason) of
            ok -> loop(Peer, Held, Figures#{ended := Ended + 1});
            broken -> loop(Peer, Held, Figures#{broken := Broken + 1})
        end
    end.

both(Pid, Ref, Reason) ->
    Exit = receive {'EXIT', Pid, Why} -> Why after ?TIMEOUT_MS -> error(no_exit_signal) end,
    Down = receive {'DOWN', Ref, process, Pid, Because} -> Because after ?TIMEOUT_MS -> error(no_down) end,
    case {Exit, Down} of
        {Reason, Reason} -> ok;
        _ ->
            [] = [Other || Other <- [Exit, Down], Other =/= Reason, Other =/= noconnection, Other =/= noproc],
            broken
    end.

%% Runs on the other node.
-spec park() -> no_return().
park() ->
    receive {finish, Reason} -> exit(Reason) end.

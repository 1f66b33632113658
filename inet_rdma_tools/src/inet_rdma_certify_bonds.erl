%% Links and monitors between a process and others on another node: some last, the others end with a
%% reason that must arrive. Runs in the nodes under test.
-module(inet_rdma_certify_bonds).

-export([start/1, park/0]).
-export_type([figures/0]).

%% Ends that arrived with their reason; bonds that the end of a connection broke.
-type figures() :: #{ended_bonds := non_neg_integer(), broken := non_neg_integer()}.

%% Longer than a link may be suspended.
-define(TIMEOUT_MS, 60000).
-define(PAUSE_MS, 5).

%% inet_rdma_certify_load:stop/2 ends the process.
-spec start(node()) -> pid().
start(Peer) ->
    spawn(fun() ->
        _ = process_flag(trap_exit, true),
        loop(Peer, bond(Peer), #{ended_bonds => 0, broken => 0})
    end).

bond(Peer) -> spawn_opt(Peer, ?MODULE, park, [], [link, monitor]).

loop(Peer, {Anchor, Monitor} = Held, #{ended_bonds := Ended, broken := Broken} = Figures) ->
    receive
        {stop, From, Ref} ->
            exit(Anchor, kill),
            From ! {Ref, Figures};
        {'EXIT', Anchor, noconnection} ->
            loop(Peer, Held, Figures#{broken := Broken + 1});
        {'DOWN', Monitor, process, Anchor, noconnection} ->
            loop(Peer, bond(Peer), Figures#{broken := Broken + 1})
    after ?PAUSE_MS ->
        Reason = {reason, make_ref(), rand:bytes(rand:uniform(1000))},
        {Pid, Ref} = bond(Peer),
        Pid ! {finish, Reason},
        case both(Pid, Ref, Reason) of
            ok -> loop(Peer, Held, Figures#{ended_bonds := Ended + 1});
            broken -> loop(Peer, Held, Figures#{broken := Broken + 1})
        end
    end.

both(Pid, Ref, Reason) ->
    Exit =
        receive
            {'EXIT', Pid, Why} -> Why
        after ?TIMEOUT_MS -> error(no_exit_signal)
        end,
    Down =
        receive
            {'DOWN', Ref, process, Pid, Because} -> Because
        after ?TIMEOUT_MS -> error(no_down)
        end,
    case {Exit, Down} of
        {Reason, Reason} ->
            ok;
        _ ->
            [] = [
                Other
             || Other <- [Exit, Down], Other =/= Reason, Other =/= noconnection, Other =/= noproc
            ],
            broken
    end.

%% Runs on the other node.
-spec park() -> no_return().
park() ->
    receive
        {finish, Reason} -> exit(Reason)
    end.

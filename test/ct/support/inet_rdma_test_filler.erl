%% Processes that fill a link: one with much, many others with little, or each operation as often as
%% the case wants. Runs in the nodes under test.
-module(inet_rdma_test_filler).

-export([park/0, load/3, flood/2, named/4, skewed/3, stop/1, script/2]).

%% More senders than a link's sketch has entries.
-define(OTHERS, 100).
-define(OTHER_BYTES, 100).
-define(TIMEOUT_MS, 30000).

%% A process `sink' that takes any message.
-spec park() -> ok.
park() ->
    true = register(sink, spawn(fun drop/0)),
    ok.

drop() ->
    receive
        _ -> drop()
    end.

%% A process `filler' and many other senders, each to the process `sink' of the peer. It lives on
%% when all have sent.
-spec load(node(), pos_integer(), pos_integer()) -> pid().
load(Peer, Rounds, Bytes) ->
    _ = [unregister(filler) || is_pid(whereis(filler))],
    Filler = spawn(fun() ->
        Others = [
            spawn_monitor(fun() -> send_all(Peer, Rounds div 4, ?OTHER_BYTES) end)
         || _ <- lists:seq(1, ?OTHERS)
        ],
        send_all(Peer, Rounds, Bytes),
        [
            receive
                {'DOWN', Ref, process, Other, normal} -> ok
            end
         || {Other, Ref} <- Others
        ],
        finished()
    end),
    true = register(filler, Filler),
    Filler.

%% A process `filler' that sends messages of this size without a pause, for as long as its node
%% lives.
-spec flood(node(), pos_integer()) -> pid().
flood(Peer, Bytes) ->
    Filler = spawn(fun() -> flood_on(Peer, binary:copy(<<1>>, Bytes)) end),
    true = register(filler, Filler),
    Filler.

flood_on(Peer, Message) ->
    _ = {sink, Peer} ! Message,
    flood_on(Peer, Message).

send_all(Peer, Rounds, Bytes) ->
    _ = [
        begin
            {sink, Peer} ! binary:copy(<<1>>, Bytes),
            timer:sleep(rand:uniform(10))
        end
     || _ <- lists:seq(1, Rounds)
    ],
    ok.

%% A process that sends, in turn, a message of this size to `sink' and a small one to one of many
%% names of which the peer has none, each name this often. It lives on.
-spec named(node(), Names :: pos_integer(), Rounds :: pos_integer(), Bytes :: pos_integer()) -> pid().
named(Peer, Names, Rounds, Bytes) ->
    spawn(fun() ->
        _ = [
            begin
                {sink, Peer} ! binary:copy(<<1>>, Bytes),
                {list_to_atom("no_name_" ++ integer_to_list(Name)), Peer} ! small
            end
         || _ <- lists:seq(1, Rounds), Name <- lists:seq(1, Names)
        ],
        finished()
    end).

%% Processes send about this number of messages of one size to `sink': the share of the one of rank R
%% is in proportion to R^-1.2. Returns the processes and their messages when all have sent; they live on.
-spec skewed(node(), Senders :: pos_integer(), Messages :: pos_integer()) ->
    {[pid()], [non_neg_integer()]}.
skewed(Peer, Senders, Messages) ->
    Weights = [math:pow(Rank, -1.2) || Rank <- lists:seq(1, Senders)],
    Sum = lists:sum(Weights),
    Counts = [round(Messages * Weight / Sum) || Weight <- Weights],
    Parent = self(),
    Pids = [
        spawn(fun() ->
            _ = [{sink, Peer} ! binary:copy(<<1>>, 100) || _ <- lists:seq(1, Count)],
            Parent ! {self(), sent},
            finished()
        end)
     || Count <- Counts
    ],
    _ = [
        receive
            {Pid, sent} -> ok
        end
     || Pid <- Pids
    ],
    {Pids, Counts}.

finished() ->
    receive
        {finished, From} ->
            From ! {finished, self()},
            finished()
    end.

%% Waits until all senders are done.
-spec stop(pid()) -> ok.
stop(Filler) ->
    Filler ! {finished, self()},
    receive
        {finished, Filler} -> ok
    after ?TIMEOUT_MS -> error({not_finished, process_info(Filler, current_stacktrace)})
    end.

%% What programs do with processes of another node, this often each. Returns how often each
%% operation goes to the peer for it.
-spec script(node(), pos_integer()) -> #{atom() => pos_integer()}.
script(Peer, Times) ->
    Spawn = fun() -> [spawn(Peer, fun drop/0) || _ <- lists:seq(1, Times)] end,
    [Killed, Ended] = [Spawn(), Spawn()],
    [Pid ! small || Pid <- Killed],
    %% In several fragments.
    Large = binary:copy(<<1>>, 300000),
    [Pid ! Large || Pid <- Ended],
    [{sink, Peer} ! named || _ <- Killed],
    [link(Pid) || Pid <- Killed],
    [unlink(Pid) || Pid <- Killed],
    Refs = [monitor(process, Pid) || Pid <- Killed],
    [demonitor(Ref, [flush]) || Ref <- Refs],
    [group_leader(self(), Pid) || Pid <- Killed],
    [exit(Pid, kill) || Pid <- Killed],
    Linked = [
        spawn_monitor(fun() ->
            link(Pid),
            exit(ended)
        end)
     || Pid <- Ended
    ],
    [
        receive
            {'DOWN', Ref, process, Pid, ended} -> ok
        end
     || {Pid, Ref} <- Linked
    ],
    #{
        spawn_request => 2 * Times,
        send_sender => 2 * Times,
        reg_send => Times,
        link => 2 * Times,
        unlink_id => Times,
        monitor_p => Times,
        demonitor_p => Times,
        group_leader => Times,
        payload_exit => Times,
        payload_exit2 => Times
    }.

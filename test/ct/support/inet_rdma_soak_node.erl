%% What the soak keeps inside a node: counts, what happened to links and streams, and the turn of
%% the workers. Runs in the nodes under test.
-module(inet_rdma_soak_node).

-export([start/1, run/0, pause/0, drain/0, measure/0, diagnosis/0]).
-export([wait_turn/0, is_paused/0, add/2, moved/2, tell/3, violation/2, guarded/1]).
-export_type([config/0, event/0, drained/0]).

-type config() :: #{peers := [node()], violations := file:filename_all(), seed := integer()}.

%% `link': what ends with the connection to a node; `connect': a stream that was refused; `stream':
%% one that broke; `stream_done': one that came to its regular end.
-type event() :: #{
    at := integer(),
    node := node(),
    peer := node(),
    class :=
        nodeup
        | link
        | connect
        | stream
        | stream_done,
    what := term()
}.
-type drained() :: #{
    counts := #{atom() => integer()},
    moved := #{term() => integer()},
    idle := integer(),
    nodes := [node()],
    events := [event()]
}.

-define(TIMEOUT_MS, 60000).

%% Starts everything, paused.
-spec start(config()) -> ok.
start(#{violations := File} = Config) ->
    Caller = self(),
    Pid = spawn(fun() ->
        true = register(?MODULE, self()),
        ?MODULE = ets:new(?MODULE, [named_table, public, {write_concurrency, true}]),
        ets:insert(?MODULE, {paused, true}),
        ok = net_kernel:monitor_nodes(true, [{node_type, all}, nodedown_reason]),
        ok = inet_rdma_soak_log:install(File),
        ok = inet_rdma_soak_streams:listen(File),
        start_workers(Config),
        Caller ! {self(), ready},
        loop([])
    end),
    receive
        {Pid, ready} -> ok
    after ?TIMEOUT_MS -> error(soak_did_not_start)
    end.

start_workers(#{peers := Peers, violations := File, seed := Seed}) ->
    [
        spawn(fun() ->
            _ = rand:seed(
                exsss, {Seed, erlang:phash2({node(), Module, Peer}), erlang:unique_integer()}
            ),
            guarded({File, fun() -> Module:work(Peer, File) end})
        end)
     || Peer <- Peers,
        Module <- [inet_rdma_soak_messages, inet_rdma_soak_calls, inet_rdma_soak_streams]
    ].

%% A failure within is a violation.
-spec guarded({file:filename_all(), fun(() -> T)}) -> T.
guarded({File, Fun}) ->
    try
        Fun()
    catch
        error:Reason:Stack ->
            violation(File, {worker_failed, Reason, Stack}),
            exit(failed)
    end.

loop(Events) ->
    receive
        {nodeup, Peer, _} ->
            loop([event(Peer, nodeup, nodeup) | Events]);
        {nodedown, Peer, Info} ->
            loop([
                event(Peer, link, {nodedown, proplists:get_value(nodedown_reason, Info)}) | Events
            ]);
        {tell, Event} ->
            loop([Event | Events]);
        {drain, From, Ref} ->
            From ! {Ref, lists:reverse(Events)},
            loop([])
    end.

-spec run() -> ok.
run() -> set_paused(false).

-spec pause() -> ok.
pause() -> set_paused(true).

set_paused(Paused) ->
    true = ets:insert(?MODULE, {paused, Paused}),
    ok.

-spec is_paused() -> boolean().
is_paused() ->
    ets:lookup_element(?MODULE, paused, 2).

%% Between two pieces of work: returns at once unless there is a pause.
-spec wait_turn() -> ok.
wait_turn() ->
    case is_paused() of
        false ->
            true = ets:delete(?MODULE, {idle, self()}),
            ok;
        true ->
            true = ets:insert(?MODULE, {{idle, self()}, true}),
            receive
            after 20 -> wait_turn()
            end
    end.

-spec add(atom(), integer()) -> integer().
add(Count, Number) ->
    ets:update_counter(?MODULE, {count, Count}, Number, {{count, Count}, 0}).

%% Work of this kind with the peer has come to a result.
-spec moved(atom(), node()) -> integer().
moved(Kind, Peer) ->
    ets:update_counter(?MODULE, {moved, Kind, Peer}, 1, {{moved, Kind, Peer}, 0}).

-spec tell(node(), atom(), term()) -> ok.
tell(Peer, Class, What) ->
    ?MODULE ! {tell, event(Peer, Class, What)},
    ok.

event(Peer, Class, What) ->
    #{
        at => os:system_time(millisecond),
        node => node(),
        peer => Peer,
        class => Class,
        what => What
    }.

%% Into a file, as the node may be killed before anybody asks it.
-spec violation(file:filename_all(), term()) -> ok.
violation(File, What) ->
    ok = file:write_file(File, io_lib:format("~0tp.~n", [{node(), What}]), [append]).

%% What has happened since the last call, and the counts so far.
-spec drain() -> drained().
drain() ->
    Ref = make_ref(),
    ?MODULE ! {drain, self(), Ref},
    Events =
        receive
            {Ref, Told} -> Told
        after ?TIMEOUT_MS -> error(no_keeper)
        end,
    Rows = ets:tab2list(?MODULE),
    #{
        counts => maps:from_list([{Name, Number} || {{count, Name}, Number} <- Rows]),
        moved => maps:from_list([{{Kind, Peer}, Number} || {{moved, Kind, Peer}, Number} <- Rows]),
        idle => length([Pid || {{idle, Pid}, true} <- Rows]),
        nodes => nodes(connected),
        events => Events
    }.

%% What a leak would make grow, garbage aside.
-spec measure() -> #{atom() => non_neg_integer()}.
measure() ->
    [erlang:garbage_collect(Pid) || Pid <- processes()],
    #{
        memory => erlang:memory(total),
        processes => erlang:system_info(process_count),
        ports => erlang:system_info(port_count),
        tables => erlang:system_info(ets_count),
        atoms => erlang:system_info(atom_count),
        connections => length(inet_rdma:info())
    }.

%% Stack traces of all processes, and the connections: to find the cause of a violation.
-spec diagnosis() -> term().
diagnosis() ->
    Infos = [
        {Pid, process_info(Pid, [current_stacktrace, message_queue_len])}
     || Pid <- processes()
    ],
    {
        [
            {Pid, [{M, F, A} || {M, F, A, _} <- Stack], Queue}
         || {Pid, [{current_stacktrace, Stack}, {message_queue_len, Queue}]} <- Infos,
            lists:any(fun({M, _, _, _}) -> lists:prefix("inet_rdma", atom_to_list(M)) end, Stack)
        ],
        inet_rdma:info()
    }.

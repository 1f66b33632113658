%% What the cluster cases do inside the nodes: each function runs in a node and talks to others by
%% name.
-module(inet_rdma_test_remote).

-export([
    spawn_answers/1,
    spawn_request_answers/1,
    link_breaks/1,
    monitor_fires/1,
    large_exit_by_monitor/2
]).
-export([large_exit_by_link/2, answer/2, park/0, started/2, register_global/1, join_group/1]).
-export([write_to_table/2, fill_table/3, hash_of_table/1]).
-export([serve_c_node/0, ask/2]).
-export([
    connect_at/2,
    disconnect_and_wait/1,
    await_down/2,
    many_calls/2,
    longest_call/2,
    whoami/0,
    acceptor/0,
    end_part/1
]).
-export([options_without_controller/0, hold_driver/1, supervisors/0]).
-export([dialers/0, hold_guard/0, begin_attempt/0, listens/0, has_announced/0]).
-export([
    setup_timers/0,
    unlinked_ports/0,
    has_tcp/0,
    standing/0,
    decide/2,
    processes_of_tls/0,
    spin/1,
    flood/1
]).
-export([load_beside/0, reload/1, reload_otherwise/1, reload_and_purge_softly/1, crash_guard/1]).
-export([send_slowly/1, wake/0, stall_files/2]).
-export([hold_socket/0, call_and_load/2, fail_among/1, as_a_socket/0]).

-define(TIMEOUT_MS, 60000).

%% Another process loads those of OTP while the modules of links are loaded. Returns those of OTP.
-spec load_beside() -> [module()].
load_beside() ->
    Modules = [
        Module
     || {_Part, Held} <- ets:tab2list(inet_rdma_modules),
        {Module, _, _} <- Held,
        not lists:prefix("inet", atom_to_list(Module))
    ],
    {Pid, Ref} = spawn_monitor(fun() ->
        [{module, _} = code:ensure_loaded(Module) || Module <- Modules]
    end),
    ok = inet_rdma_modules:load_all(),
    receive
        {'DOWN', Ref, process, Pid, Reason} ->
            normal = Reason,
            Modules
    end.

%% The guards of all links hear that this node was paused.
-spec wake() -> ok.
wake() ->
    _ = [Guard ! woke || Guard <- inet_rdma_links:guards()],
    ok.

%% Sends a message each 20 ms to a name that no process of that node has.
-spec send_slowly(node()) -> pid().
send_slowly(Node) -> spawn(fun() -> send_slowly_for_ever(Node) end).

send_slowly_for_ever(Node) ->
    {nobody, Node} ! a_message,
    receive
    after 20 -> ok
    end,
    send_slowly_for_ever(Node).

%% So many processes open this FIFO, for which no writer is there yet: each holds a dirty I/O
%% scheduler until one comes.
-spec stall_files(file:filename(), pos_integer()) -> ok.
stall_files(Fifo, Count) ->
    _ = [spawn(fun() -> file:open(Fifo, [read, raw]) end) || _ <- lists:seq(1, Count)],
    ok.

-spec spawn_answers(node()) -> ok.
spawn_answers(Node) ->
    Ref = make_ref(),
    Pid = spawn(Node, ?MODULE, answer, [self(), Ref]),
    Node = node(Pid),
    receive
        {Ref, Node} -> ok
    after ?TIMEOUT_MS -> error({no_answer_from, Node})
    end.

answer(To, Ref) ->
    To ! {Ref, node()}.

-spec spawn_request_answers(node()) -> ok.
spawn_request_answers(Node) ->
    process_flag(trap_exit, true),
    Ref = make_ref(),
    Request = erlang:spawn_request(Node, ?MODULE, answer, [self(), Ref], [monitor]),
    Pid =
        receive
            {spawn_reply, Request, ok, P} -> P
        after ?TIMEOUT_MS -> error(no_spawn_reply)
        end,
    receive
        {Ref, Node} -> ok
    after ?TIMEOUT_MS -> error({no_answer_from, Node})
    end,
    receive
        {'DOWN', Request, process, Pid, normal} -> ok
    after ?TIMEOUT_MS -> error(no_down)
    end,
    %% A node logs a crash at the node of the process's group leader. Sent late, after an end of the
    %% link, that log would connect the nodes again: it stays on the node.
    Own = group_leader(),
    group_leader(erpc:call(Node, erlang, whereis, [user]), self()),
    Undefined = erlang:spawn_request(Node, ?MODULE, no_such_function, [], [
        link, monitor, {reply, no}
    ]),
    group_leader(Own, self()),
    receive
        {'DOWN', Undefined, process, _, {undef, _}} -> ok
    after ?TIMEOUT_MS -> error(no_down)
    end.

-spec link_breaks(node()) -> ok.
link_breaks(Node) ->
    process_flag(trap_exit, true),
    Pid = spawn_link(Node, ?MODULE, park, []),
    Pid ! {finish, some_reason},
    receive
        {'EXIT', Pid, some_reason} -> ok
    after ?TIMEOUT_MS -> error(no_exit_signal)
    end,
    Other = spawn_link(Node, ?MODULE, park, []),
    unlink(Other),
    Monitor = monitor(process, Other),
    exit(Other, killed_from_afar),
    receive
        {'DOWN', Monitor, process, Other, killed_from_afar} -> ok
    after ?TIMEOUT_MS -> error(no_down)
    end,
    receive
        {'EXIT', Other, _} -> error(unlinked_but_exit_signal)
    after 0 -> ok
    end.

-spec monitor_fires(node()) -> ok.
monitor_fires(Node) ->
    {Pid, Monitor} = spawn_monitor(Node, ?MODULE, park, []),
    Pid ! {finish, {done, Node}},
    receive
        {'DOWN', Monitor, process, Pid, {done, Node}} -> ok
    after ?TIMEOUT_MS -> error(no_down)
    end,
    Late = monitor(process, Pid),
    receive
        {'DOWN', Late, process, Pid, noproc} -> ok
    after ?TIMEOUT_MS -> error(no_noproc)
    end,
    ByName = monitor(process, {no_such_name, Node}),
    receive
        {'DOWN', ByName, process, {no_such_name, Node}, noproc} -> ok
    after ?TIMEOUT_MS -> error(no_noproc)
    end.

park() ->
    receive
        {finish, Reason} -> exit(Reason)
    end.

-spec large_exit_by_monitor(node(), pos_integer()) -> ok.
large_exit_by_monitor(Node, Bytes) ->
    {Pid, Monitor} = spawn_monitor(Node, inet_rdma_test_data, exit_with, [Bytes]),
    receive
        {'DOWN', Monitor, process, Pid, Reason} -> check_large(Reason, Bytes)
    after ?TIMEOUT_MS -> error(no_down)
    end.

-spec large_exit_by_link(node(), pos_integer()) -> ok.
large_exit_by_link(Node, Bytes) ->
    process_flag(trap_exit, true),
    Pid = spawn_link(Node, inet_rdma_test_data, exit_with, [Bytes]),
    receive
        {'EXIT', Pid, Reason} -> check_large(Reason, Bytes)
    after ?TIMEOUT_MS -> error(no_exit_signal)
    end.

check_large({large, Hash, Binary}, Bytes) when byte_size(Binary) =:= Bytes ->
    Hash = erlang:md5(Binary),
    ok.

%% Starts a process that has this node's part of something and stays.
register_global(Name) ->
    started(Name, fun() -> global:register_name(Name, self()) end).

join_group(Group) ->
    case whereis(pg) of
        undefined -> {ok, _} = pg:start(pg);
        _ -> ok
    end,
    started(Group, fun() -> pg:join(Group, self()) end).

%% Runs the function in a new process that stays; {Pid, what the function returned}.
started(What, Fun) ->
    Caller = self(),
    Pid = spawn(fun() ->
        Caller ! {self(), Fun()},
        receive
            stop -> ok
        end
    end),
    receive
        {Pid, Result} -> {Pid, Result}
    after ?TIMEOUT_MS -> error({never_started, What})
    end.

%% Connects at a moment of the host's clock: two nodes told the same moment connect at once.
-spec connect_at(node(), integer()) -> boolean().
connect_at(Node, AtMicros) ->
    case os:system_time(microsecond) >= AtMicros of
        true -> net_kernel:connect_node(Node);
        false -> connect_at(Node, AtMicros)
    end.

-spec disconnect_and_wait(node()) -> ok.
disconnect_and_wait(Node) ->
    _ = erlang:disconnect_node(Node),
    await_down(Node, 10000).

-spec await_down(node(), non_neg_integer()) -> ok.
await_down(Node, TimeoutMs) ->
    ok = net_kernel:monitor_nodes(true, [{node_type, all}]),
    Down =
        case lists:member(Node, nodes(connected)) of
            false ->
                ok;
            true ->
                receive
                    {nodedown, Node, _} -> ok
                after TimeoutMs -> error({still_connected, Node})
                end
        end,
    ok = net_kernel:monitor_nodes(false, [{node_type, all}]),
    Down.

%% Count processes at once call the other node; all must get the answer.
-spec many_calls(node(), pos_integer()) -> ok.
many_calls(Node, Count) ->
    Callers = [
        spawn_monitor(fun() -> Node = rpc:call(Node, erlang, node, []) end)
     || _ <- lists:seq(1, Count)
    ],
    [
        receive
            {'DOWN', Ref, process, Pid, Reason} -> normal = Reason
        after ?TIMEOUT_MS -> error(no_answer)
        end
     || {Pid, Ref} <- Callers
    ],
    ok.

-spec whoami() -> {node(), OsPid :: pos_integer(), pid()}.
whoami() ->
    {node(), list_to_integer(os:getpid()), self()}.

%% Calls the other node, one call after the other, for that long: how many calls, and microseconds
%% of the longest.
-spec longest_call(node(), DurationMs :: pos_integer()) ->
    {Calls :: pos_integer(), LongestUs :: non_neg_integer()}.
longest_call(Node, DurationMs) ->
    longest_call(Node, erlang:monotonic_time(millisecond) + DurationMs, 0, 0).

longest_call(Node, UntilMs, Calls, LongestUs) ->
    {TookUs, Node} = timer:tc(erpc, call, [Node, erlang, node, []]),
    Longest = max(TookUs, LongestUs),
    case erlang:monotonic_time(millisecond) < UntilMs of
        true -> longest_call(Node, UntilMs, Calls + 1, Longest);
        false -> {Calls + 1, Longest}
    end.

%% The process that accepts for net_kernel. Its state is a record of its own; of `#listen{}' in it
%% the acceptor is the third field.
-spec acceptor() -> pid().
acceptor() ->
    [Acceptor] = [
        element(3, Listen)
     || Field <- tuple_to_list(sys:get_state(net_kernel)),
        is_list(Field),
        Listen <- Field,
        element(1, Listen) =:= listen
    ],
    Acceptor.

%% Serves the node in C that connects: the process `cnode_server' answers {Pid, <<"hello">>} with
%% `world'.
serve_c_node() ->
    Server = spawn(fun answer_world/0),
    register(cnode_server, Server).

answer_world() ->
    receive
        {From, <<"hello">>} -> From ! world
    end,
    answer_world().

%% What comes back for {self(), Term}.
ask(To, Term) ->
    To ! {self(), Term},
    receive
        Answer -> Answer
    after ?TIMEOUT_MS -> error({no_answer_from, To})
    end.

%% Ends a part of this node's only link, which is over RDMA: the process that guards its TCP socket,
%% its connection supervisor, the socket, or the process of TLS that the guard watches.
-spec end_part(guard | supervisor | socket | frames | denied) -> ok | {error, inet:posix()}.
end_part(guard) ->
    true = exit(guard(), kill),
    ok;
end_part(supervisor) ->
    [{_, Port}] = erlang:system_info(dist_ctrl),
    {connected, Supervisor} = erlang:port_info(Port, connected),
    true = exit(Supervisor, kill),
    ok;
%% The TCP connection of a link's session.
end_part(socket) ->
    with_socket(fun(Socket) -> gen_tcp:shutdown(Socket, read_write) end);
%% The peer reads what is no frame.
end_part(frames) ->
    with_socket(fun(Socket) -> gen_tcp:send(Socket, <<"this is no frame">>) end);
%% The kernel takes no bytes from this node from now on, and tells neither side of an end:
%% TCP_REPAIR (netinet/tcp.h).
end_part(denied) ->
    with_socket(fun(Socket) -> inet:setopts(Socket, [{raw, 6, 19, <<1:32/native>>}]) end).

%% The processes of ssl that serve one connection of this node.
-spec processes_of_tls() -> [pid()].
processes_of_tls() ->
    [
        Pid
     || Pid <- processes(),
        {Module, _, _} <- [proc_lib:translate_initial_call(Pid)],
        Module =:= tls_sender orelse Module =:= tls_connection orelse Module =:= tls_connection_1_3 orelse
            Module =:= tls_client_connection_1_3 orelse Module =:= tls_server_connection_1_3
    ].

%% Calls Use with another descriptor of the TCP connection of the only link.
with_socket(Use) ->
    [{_, Port}] = erlang:system_info(dist_ctrl),
    Driver =
        case init:get_argument(proto_dist) of
            {ok, [["inet6" ++ _] | _]} -> inet6_tcp;
            _ -> inet_tcp
        end,
    inet_rdma_port:with_socket(Port, Driver, Use).

%% An attempt that has lost against one of the peer has a guard, too, until it ends.
guard() ->
    inet_rdma_test_wait:until(one_guard, ?TIMEOUT_MS, fun() ->
        case guards() of
            [Guard] -> {ok, Guard};
            Guards -> Guards
        end
    end).

guards() ->
    [
        Pid
     || Pid <- processes(),
        proc_lib:translate_initial_call(Pid) =:= {inet_rdma_session_guard, init, 1}
    ].

%% A transaction that is over when it is done on all nodes that have a copy.
write_to_table(Table, Key) ->
    mnesia:sync_transaction(fun() -> mnesia:write({Table, Key, node()}) end).

fill_table(Table, Keys, Bytes) ->
    [ok = mnesia:dirty_write({Table, Key, rand:bytes(Bytes)}) || Key <- Keys],
    ok.

%% The hash of this node's own copy.
hash_of_table(Table) ->
    erlang:md5(term_to_binary(lists:sort(ets:tab2list(Table)))).

%% The options of this node while its application controller answers nothing.
-spec options_without_controller() -> {ok, map()} | {error, term()}.
options_without_controller() ->
    Controller = whereis(application_controller),
    true = erlang:suspend_process(Controller),
    try
        inet_rdma_options:node()
    after
        erlang:resume_process(Controller)
    end.

%% A process that lives on has loaded the driver of this directory: no other library's driver is
%% loaded meanwhile.
-spec hold_driver(file:filename()) -> ok.
hold_driver(Directory) ->
    {_, ok} = inet_rdma_test_ask:start(fun() ->
        {erl_ddll:load_driver(Directory, inet_rdma_nif:driver()), fun park/0}
    end),
    ok.

%% The processes that reconnect.
-spec dialers() -> [pid()].
dialers() ->
    Call = {initial_call, {inet_rdma_dialer, init, 2}},
    [Pid || Pid <- processes(), process_info(Pid, initial_call) =:= Call].

%% The address and the port at which this node accepts links.
-spec listens() -> {inet:ip_address(), inet:port_number()}.
listens() -> persistent_term:get({inet_rdma_dist, listens, inet_tcp}).

%% Whether the peer of this node's only link has announced its addresses.
-spec has_announced() -> boolean().
has_announced() ->
    [Row] = ets:tab2list(inet_rdma_peers),
    Told = element(3, Row),
    is_tuple(Told).

%% The guard of this node's only link does nothing until the process that this returns gets {finish,
%% normal}.
-spec hold_guard() -> pid().
hold_guard() ->
    {Holder, true} = inet_rdma_test_ask:start(fun() ->
        {erlang:suspend_process(guard()), fun park/0}
    end),
    Holder.

%% What a dialer of this node's only link does until it has given the TCP connection up.
-spec begin_attempt() -> ok.
begin_attempt() ->
    [{_, Port}] = erlang:system_info(dist_ctrl),
    {ok, Attempt} = inet_rdma_port:command(Port, attempt),
    {ok, _} = inet_rdma_port:command(Port, give_up_tcp, Attempt),
    ok.

%% The processes of dist_util, of links that are up or on their way.
-spec supervisors() -> [pid()].
supervisors() ->
    [
        Pid
     || Pid <- processes(),
        {initial_call, {_, Do, 7}} <- [process_info(Pid, initial_call)],
        Do =:= do_accept orelse Do =:= do_setup
    ].

%% The processes that bound the set-up of links.
-spec setup_timers() -> [pid()].
setup_timers() ->
    [
        Pid
     || Pid <- processes(),
        process_info(Pid, initial_call) =:= {initial_call, {dist_util, setup_timer, 2}}
    ].

%% Ports of links that no process is linked to: the VM has closed them, and they are not gone yet.
-spec unlinked_ports() -> [port()].
unlinked_ports() ->
    [
        Port
     || Port <- erlang:ports(),
        inet_rdma_port:is_link(Port),
        erlang:port_info(Port, links) =:= {links, []}
    ].

%% The failure that the node remembers of a way to one peer, beside this number of links, or of
%% failures of other ways.
-spec fail_among({links | failures, pos_integer()}) -> none | {binary(), pos_integer()}.
fail_among({What, Count}) ->
    Names = [integer_to_binary(I) || I <- lists:seq(1, Count)],
    [
        case What of
            links -> ok = inet_rdma_links:insert(Name, none, <<"tcp">>, <<>>);
            failures -> ok = inet_rdma_links:failed({Name, 0, shm}, <<"another">>, 60000)
        end
     || Name <- Names
    ],
    ok = inet_rdma_links:failed({<<"one more">>, 0, shm}, <<"it fails">>, 60000),
    inet_rdma_links:failure({<<"one more">>, 0, shm}).

%% Loads each of these modules again, twice: the second purge ends whatever still runs in the first
%% code.
-spec reload([module()]) -> ok.
reload(Modules) ->
    [
        begin
            _ = code:purge(Module),
            {module, Module} = code:load_file(Module)
        end
     || _ <- [1, 2], Module <- Modules
    ],
    _ = [code:purge(Module) || Module <- Modules],
    ok.

%% As reload/1. The guards have data without what the modules that are loaded have come to need:
%% fields at all levels.
-spec reload_otherwise([module()]) -> ok.
reload_otherwise(Modules) ->
    Guards = inet_rdma_links:guards(),
    _ = [
        sys:replace_state(Guard, fun({State, Data}) -> {State, older(Data)} end)
     || Guard <- Guards
    ],
    reload(Modules).

older(#{mover := Mover, idle := Idle} = Data) ->
    (maps:without([ending, standing, log], Data))#{
        mover := maps:remove(failed, Mover),
        idle := maps:remove(timer, Idle)
    }.

%% The guard of this node's only link crashes with this term in its data, in the arguments of a call
%% that fails, and in a message that waits. Returns when it has ended.
-spec crash_guard(Secret :: term()) -> ok.
crash_guard(Secret) ->
    [Guard] = inet_rdma_links:guards(),
    Ref = monitor(process, Guard),
    ok = sys:suspend(Guard),
    _ = sys:replace_state(Guard, fun({State, Data}) -> {State, Data#{mover := [Secret]}} end),
    _ = [
        Guard ! Message
     || Message <- [{'DOWN', make_ref(), process, self(), Secret}, {waits, Secret}]
    ],
    ok = sys:resume(Guard),
    receive
        {'DOWN', Ref, process, Guard, _} -> ok
    after ?TIMEOUT_MS -> error(no_crash)
    end.

%% Loads a module again. Returns whether no process runs the one before, and the process that is
%% registered under the module's name is the same.
-spec reload_and_purge_softly(module()) -> {IsUnused :: boolean(), IsSame :: boolean()}.
reload_and_purge_softly(Module) ->
    Process = whereis(Module),
    _ = code:purge(Module),
    {module, Module} = code:load_file(Module),
    IsUnused = code:soft_purge(Module),
    ok = reload([Module]),
    {IsUnused, is_pid(Process) andalso whereis(Module) =:= Process}.

%% One process calls a native function for `Ms' milliseconds, and until this many calls and loads
%% have succeeded, while four others load its module again. Returns the number of calls, and of
%% loads of one loader. A load fails while a process runs the module before.
-spec call_and_load(pos_integer(), pos_integer()) ->
    {Calls :: pos_integer(), Loads :: pos_integer()}.
call_and_load(Ms, Least) ->
    End = erlang:monotonic_time(millisecond) + Ms,
    {Caller, Ref} = spawn_monitor(fun() ->
        exit({called, count_until(End, Least, fun() -> inet_rdma_nif:link_numbers() =/= [] end)})
    end),
    Load = fun() ->
        code:soft_purge(inet_rdma_nif) andalso
            {module, inet_rdma_nif} =:= code:load_file(inet_rdma_nif)
    end,
    Loaders = [spawn_link(fun() -> count_until(infinity, Least, Load) end) || _ <- [1, 2, 3]],
    Loads = count_until(End, Least, Load),
    receive
        {'DOWN', Ref, process, Caller, {called, Calls}} ->
            _ = [true = unlink(Loader) andalso exit(Loader, kill) || Loader <- Loaders],
            {Calls, Loads};
        {'DOWN', Ref, process, Caller, Reason} ->
            error(Reason)
    end.

count_until(End, Least, Does) -> count_until(End, Least, Does, 0).

count_until(End, Least, Does, Count) ->
    case Count < Least orelse erlang:monotonic_time(millisecond) < End of
        true ->
            count_until(
                End,
                Least,
                Does,
                Count +
                    case Does() of
                        true -> 1;
                        false -> 0
                    end
            );
        false ->
            Count
    end.

%% Whether the session of this node's only link has a TCP connection.
-spec has_tcp() -> boolean().
has_tcp() ->
    with_socket(fun(_Socket) -> true end) =:= true.

%% What the guard of this node's only link knows of what carries it; and what the port answers to
%% commands that name the number of that.
-spec standing() -> inet_rdma_port:standing().
standing() ->
    [#{node := Node}] = inet_rdma_links:all(),
    {ok, Session} = inet_rdma_links:session_of(Node),
    inet_rdma_links:standing(inet_rdma_session:name(Session)).

-spec decide(inet_rdma_interface:command(), Number :: non_neg_integer()) ->
    {ok, binary()} | {error, closed}.
decide(Command, Number) ->
    [{_, Port}] = erlang:system_info(dist_ctrl),
    inet_rdma_port:command(Port, Command, <<Number:64/native>>).

%% What OTP's functions for sockets say of the port of the only link.
-spec as_a_socket() -> #{atom() => term()}.
as_a_socket() ->
    [{Node, Port}] = erlang:system_info(dist_ctrl),
    {ok, Counts} = inet:getstat(Port),
    {ok, [Partly]} = inet:getstat(Port, [recv_oct]),
    {ok, Options} = inet:getopts(Port, [active, packet, nodelay, keepalive, sndbuf]),
    {ok, Address} = net_kernel:node_info(Node, address),
    [Listed] = [
        Info
     || Info <- observer_backend:get_port_list(), proplists:get_value(port_id, Info) =:= Port
    ],
    #{
        name => erlang:port_info(Port, name),
        peername => inet:peername(Port),
        sockname => inet:sockname(Port),
        counts => maps:from_list(Counts),
        partly => Partly,
        options => maps:from_list(Options),
        address => Address,
        status => prim_inet:getstatus(Port),
        type => prim_inet:gettype(Port),
        observed => proplists:get_value(inet, Listed),
        listed => inet:i()
    }.

%% Sends messages all the time, while there is a connection.
-spec flood({atom(), node()}) -> no_return().
flood(To) ->
    _ = erlang:send(To, flood, [noconnect]),
    erlang:yield(),
    flood(To).

%% Processes that never wait.
-spec spin(pos_integer()) -> [pid()].
spin(Count) -> [spawn(fun Spin() -> Spin() end) || _ <- lists:seq(1, Count)].

%% A process that has inet's socket of this node's only link, as net_kernel:getopts/2 has it for a
%% moment, until it is asked close. Asked open, it opens a file.
-spec hold_socket() -> pid().
hold_socket() ->
    [{_, Port}] = erlang:system_info(dist_ctrl),
    {Holder, ok} = inet_rdma_test_ask:start(fun() -> {ok, fun() -> hold(Port) end} end),
    ok = inet_rdma_test_ask:ask(Holder, hold),
    Holder.

hold(Port) ->
    receive
        {hold, From, Ref} -> ok
    end,
    {Closer, Closed} = inet_rdma_port:use_socket(Port, inet_tcp, fun(Socket) ->
        {ok, _} = inet:peername(Socket),
        From ! {Ref, ok},
        hold_until_close([])
    end),
    Closer ! {Closed, ok}.

hold_until_close(Files) ->
    receive
        {open, From, Ref} ->
            {ok, File} = file:open("/dev/null", [read, raw]),
            From ! {Ref, ok},
            hold_until_close([File | Files]);
        {close, From, Ref} ->
            [ok = file:close(File) || File <- Files],
            {From, Ref}
    end.

%% Two hidden nodes, a and b, with a proxy between them that records all packets after the handshake. The nodes send
%% each operation that the VM has; their script notes operation, sender and target of each signal that it causes.
%%
%% The file, of one line each:
%%     # text
%%     > BYTES HEX                    a packet of a to b: its size, and its start, with all of the control message
%%     < BYTES HEX                    of b to a
%%     >= OPERATION SENDER TARGET     a signal of a, in no order
%%     <= OPERATION SENDER TARGET     of b
%% A party: -, n:NAME, p:NODE:ID:SERIAL:CREATION, a:NODE:CREATION (an alias).
-module(envelope_recorder).

-export([record/1, node_a/0, node_b/0]).
%% Called by the nodes.
-export([wait/0, give_alias/1]).
%% As an EPMD module.
-export([start_link/0, register_node/2, register_node/3, names/1, address_please/3, port_please/2, port_please/3]).

-define(HOST, "127.0.0.1").
-define(FRAGMENTED_BYTES, 200000).
-define(RECORDED_BYTES, 4096).

-define(FLAG_SEND_SENDER, 16#80000).
-define(FLAG_EXIT_PAYLOAD, 16#400000).
-define(FLAG_UNLINK_ID, 16#2000000).
-define(FLAG_ALTACT_SIG, 16#2000000000).

%%% The proxy.

record([File | Flags]) ->
    Cleared = lists:foldl(fun(Flag, All) -> list_to_integer(Flag) bor All end, 0, Flags),
    Options = [binary, {packet, 2}, {active, false}, {ip, {127, 0, 0, 1}}, {nodelay, true}],
    {ok, Listener} = gen_tcp:listen(0, Options),
    {ok, Spare} = gen_tcp:listen(0, Options),
    {ok, Port} = inet:port(Listener),
    {ok, PortOfB} = inet:port(Spare),
    ok = gen_tcp:close(Spare),
    Variables = [
        {"RECORDER_PROXY", integer_to_list(Port)},
        {"RECORDER_CLEARED", integer_to_list(Cleared)},
        {"RECORDER_COOKIE", "recorder"}
    ],
    B = start_node("b", PortOfB, Variables),
    "ready" = line_of(B),
    A = start_node("a", 0, Variables),
    {ok, OfA} = gen_tcp:accept(Listener, 10000),
    {ok, OfB} = gen_tcp:connect({127, 0, 0, 1}, PortOfB, Options),
    Negotiated = handshake(OfA, OfB, Cleared),
    Self = self(),
    [ok = inet:setopts(Socket, [{packet, 4}]) || Socket <- [OfA, OfB]],
    spawn_link(fun() -> pump(OfA, OfB, Self, ">") end),
    spawn_link(fun() -> pump(OfB, OfA, Self, "<") end),
    Notes = [notes(A), notes(B)],
    Head = io_lib:format(
        "# OTP ~s, flags of the handshake cleared: 16#~.16B, left: 16#~.16B~n",
        [erlang:system_info(otp_release), Cleared, Negotiated]
    ),
    ok = file:write_file(File, [Head, packets(), Notes]),
    halt(0).

start_node(Name, Port, Variables) ->
    Arguments = [
        "-name", Name ++ "@" ++ ?HOST, "-hidden", "-noinput", "-connect_all", "false", "+pc", "unicode",
        "-pa", filename:dirname(code:which(?MODULE)),
        "-start_epmd", "false", "-epmd_module", atom_to_list(?MODULE),
        "-kernel", "inet_dist_listen_min", integer_to_list(Port), "inet_dist_listen_max", integer_to_list(Port),
        "dist_auto_connect", "never",
        "-run", atom_to_list(?MODULE), "node_" ++ Name
    ],
    Options = [{args, Arguments}, {env, Variables}, {line, 10000}, binary, exit_status],
    open_port({spawn_executable, os:find_executable("erl")}, Options).

line_of(Node) ->
    receive
        {Node, {data, {eol, Line}}} -> unicode:characters_to_list(Line)
    after 30000 -> error(no_line)
    end.

notes(Node) ->
    receive
        {Node, {data, {eol, <<"note ", Note/binary>>}}} -> [Note, $\n | notes(Node)];
        {Node, {data, {eol, <<"done">>}}} -> [];
        {Node, {data, {eol, Line}}} -> error({Node, Line});
        {Node, {exit_status, Status}} -> error({Node, Status})
    after 60000 -> error({Node, no_notes})
    end.

%% The name of a, the status, the challenge of b, the answer, the acknowledgement. The flags that both have are left.
handshake(OfA, OfB, Cleared) ->
    FlagsOfA = pass(OfA, OfB, Cleared),
    status = pass(OfB, OfA, Cleared),
    FlagsOfB = pass(OfB, OfA, Cleared),
    reply = pass(OfA, OfB, Cleared),
    ack = pass(OfB, OfA, Cleared),
    FlagsOfA band FlagsOfB.

pass(From, To, Cleared) ->
    {ok, Message} = gen_tcp:recv(From, 0, 10000),
    case Message of
        <<$N, Flags:64, Rest/binary>> ->
            Left = Flags band bnot Cleared,
            ok = gen_tcp:send(To, <<$N, Left:64, Rest/binary>>),
            Left;
        <<Kind, _/binary>> ->
            ok = gen_tcp:send(To, Message),
            case Kind of
                $s -> status;
                $r -> reply;
                $a -> ack
            end
    end.

pump(From, To, Recorder, Arrow) ->
    case gen_tcp:recv(From, 0) of
        {ok, Packet} ->
            Recorder ! {packet, Arrow, Packet},
            ok = gen_tcp:send(To, Packet),
            pump(From, To, Recorder, Arrow);
        {error, closed} ->
            ok
    end.

packets() ->
    receive
        {packet, Arrow, Packet} ->
            [io_lib:format("~s ~b ~s~n", [Arrow, byte_size(Packet), binary:encode_hex(start_of(Packet))]) | packets()]
    after 0 -> []
    end.

start_of(<<131, 70, Ids:16/binary, _/binary>>) -> <<131, 70, Ids/binary>>;
start_of(Packet) ->
    %% The payloads of large messages are runs of one letter.
    Runs = [binary:copy(Letter, 64) || Letter <- [<<"x">>, <<"y">>]],
    case binary:match(Packet, Runs) of
        {At, _} -> binary:part(Packet, 0, At);
        nomatch -> binary:part(Packet, 0, min(byte_size(Packet), ?RECORDED_BYTES))
    end.

%%% The EPMD module: it knows b alone, at the proxy's port.

start_link() -> ignore.

register_node(_Name, _Port) -> {ok, 1}.

register_node(_Name, _Port, _Family) -> {ok, 1}.

names(_Host) -> {error, address}.

address_please("b", _Host, _Family) -> {ok, {127, 0, 0, 1}, list_to_integer(os:getenv("RECORDER_PROXY")), 6};
address_please(_Name, _Host, _Family) -> {error, nxdomain}.

port_please(_Name, _Host) -> noport.

port_please(_Name, _Host, _Timeout) -> noport.

%%% The script.

node_b() ->
    begin_node(),
    register(agent, self()),
    register('grün', spawn_link(fun ?MODULE:wait/0)),
    register('名前', spawn_link(fun ?MODULE:wait/0)),
    register(longest(), spawn_link(fun ?MODULE:wait/0)),
    io:format("ready~n"),
    agent().

begin_node() ->
    %% If the recorder ends before.
    {ok, _} = timer:apply_after(40000, erlang, halt, [1]),
    ok = io:setopts([{encoding, unicode}]),
    erlang:set_cookie(list_to_atom(os:getenv("RECORDER_COOKIE"))),
    ets:new(notes, [named_table, public, duplicate_bag]),
    process_flag(trap_exit, true).

agent() ->
    receive
        {do, Do, Token} ->
            _ = Token =:= none andalso seq_trace:set_token([]),
            ok = do(Do),
            seq_trace:set_token([]),
            agent();
        finish ->
            seq_trace:set_token([]),
            finish();
        _ ->
            seq_trace:set_token([]),
            agent()
    end.

%% What b does; a waits for each message.
do({hello, From}) ->
    send("<", From, {hello, self()});
do({send, To, Message}) ->
    send("<", To, Message);
do({send_alias, Alias, Message}) ->
    signal("<", alias_operation(), self(), Alias, fun() -> Alias ! Message end);
do({alias, From, Options}) ->
    send("<", From, {alias, alias(Options)});
do({former_alias, From}) ->
    Alias = alias([priority]),
    unalias(Alias),
    send("<", From, {alias, Alias});
do({concurrently, To, Bytes}) ->
    [spawn_link(fun() -> send("<", To, binary:copy(<<$x>>, Bytes)) end) || _ <- lists:seq(1, 4)],
    ok.

node_a() ->
    begin_node(),
    true = net_kernel:connect_node(b()),
    signal(">", reg_send, self(), agent, fun() -> {agent, b()} ! {do, {hello, self()}, none} end),
    Agent = receive {hello, Pid} -> Pid end,
    put(agent, Agent),
    plain(Agent),
    lives(),
    aliases(Agent),
    tokens(Agent),
    _ = has_altact() andalso priorities(Agent),
    fragments(Agent),
    atoms(Agent),
    %% After the caches have turned over.
    plain(Agent),
    send(">", Agent, finish),
    finish().

finish() ->
    [io:format("note ~ts~n", [Line]) || {Line} <- ets:tab2list(notes)],
    io:format("done~n"),
    timer:sleep(1000),
    halt(0, [{flush, true}]).

b() -> list_to_atom("b@" ++ ?HOST).

%% Has the agent do something.
ask(Agent, Do) -> send(">", Agent, {do, Do, none}).

send(Arrow, To, Message) ->
    Operation = case has(?FLAG_SEND_SENDER) of true -> send_sender; false -> send end,
    signal(Arrow, Operation, case Operation of send -> none; _ -> self() end, To, fun() -> To ! Message end).

%% Notes a signal, and sends it. With a token its operation has another number.
signal(Arrow, Operation, Sender, Target, Send) ->
    note(Arrow, with_token(Operation), Sender, Target),
    Send(),
    ok.

%% ALTACT_SIG_SEND has a flag for it.
with_token(altact_sig_send) ->
    altact_sig_send;
with_token(Operation) ->
    case seq_trace:get_token() of
        [] -> Operation;
        _ -> list_to_atom(atom_to_list(Operation) ++ "_tt")
    end.

%% Whether the nodes have agreed on a flag: of this release, and not cleared.
has(Flag) -> list_to_integer(os:getenv("RECORDER_CLEARED")) band Flag =:= 0.

%% OTP 28 and later.
has_altact() ->
    list_to_integer(erlang:system_info(otp_release)) >= 28 andalso has(?FLAG_ALTACT_SIG).

alias_operation() ->
    case has_altact() of
        true -> altact_sig_send;
        false -> alias_send
    end.

exit_operation(Operation) ->
    case has(?FLAG_EXIT_PAYLOAD) of
        true -> list_to_atom("payload_" ++ atom_to_list(Operation));
        false -> Operation
    end.

%% The VM sends no token with it.
exit2(Pid, Reason) ->
    note(">", exit_operation(exit2), self(), Pid),
    exit(Pid, Reason).

plain(Agent) ->
    S = self(),
    send(">", Agent, {an, [important, <<"message">>]}),
    signal(">", reg_send, S, agent, fun() -> {agent, b()} ! message end),
    signal(">", reg_send, S, 'grün', fun() -> {'grün', b()} ! message end),
    signal(">", reg_send, S, '名前', fun() -> {'名前', b()} ! message end),
    signal(">", reg_send, S, longest(), fun() -> {longest(), b()} ! message end),
    link_and_unlink(Agent),
    ByPid = monitor(process, Agent),
    note(">", monitor_p, S, Agent),
    note(">", demonitor_p, S, Agent),
    demonitor(ByPid),
    ByName = monitor(process, {agent, b()}),
    note(">", monitor_p, S, agent),
    note(">", demonitor_p, S, agent),
    demonitor(ByName),
    None = monitor(process, {nobody, b()}),
    note(">", monitor_p, S, nobody),
    note("<", exit_operation(monitor_p_exit), nobody, S),
    receive {'DOWN', None, process, _, noproc} -> ok end,
    ask(Agent, {send, S, answer}),
    receive answer -> ok end.

link_and_unlink(Pid) ->
    S = self(),
    signal(">", link, S, Pid, fun() -> link(Pid) end),
    case has(?FLAG_UNLINK_ID) of
        true ->
            note(">", unlink_id, S, Pid),
            note("<", unlink_id_ack, Pid, S);
        false ->
            note(">", unlink, S, Pid)
    end,
    unlink(Pid).

lives() ->
    S = self(),
    %% One that ends.
    Ends = spawn_on_b(wait, []),
    Down = monitor(process, Ends),
    note(">", monitor_p, S, Ends),
    note("<", exit_operation(monitor_p_exit), Ends, S),
    send(">", Ends, stop),
    receive {'DOWN', Down, process, Ends, normal} -> ok end,
    %% One that is linked and killed.
    Killed = spawn_on_b(wait, []),
    signal(">", link, S, Killed, fun() -> link(Killed) end),
    signal(">", group_leader, S, Killed, fun() -> group_leader(S, Killed) end),
    exit2(Killed, kill),
    note("<", exit_operation(exit), Killed, S),
    receive {'EXIT', Killed, killed} -> ok end,
    %% One whose link's other end ends.
    Linked = spawn_on_b(wait, []),
    Local = spawn(fun() ->
        signal(">", link, self(), Linked, fun() -> link(Linked) end),
        signal(">", exit_operation(exit), self(), Linked, fun() -> ok end),
        exit(the_reason)
    end),
    note("<", exit_operation(monitor_p_exit), Linked, S),
    Last = monitor(process, Linked),
    note(">", monitor_p, S, Linked),
    receive {'DOWN', Last, process, Linked, _} -> ok end,
    false = is_process_alive(Local),
    %% One that is refused.
    Refused = erlang:spawn_request(b(), ?MODULE, wait, [], [no_such_option]),
    note(">", with_token(spawn_request), S, none),
    note("<", with_token(spawn_reply), none, S),
    receive {spawn_reply, Refused, error, badopt} -> ok end.

spawn_on_b(Function, Arguments) ->
    Request = erlang:spawn_request(b(), ?MODULE, Function, Arguments, []),
    note(">", with_token(spawn_request), self(), none),
    receive
        {spawn_reply, Request, ok, Pid} ->
            note("<", with_token(spawn_reply), Pid, self()),
            Pid
    end.

aliases(Agent) ->
    Alias = alias(),
    ask(Agent, {send_alias, Alias, by_alias}),
    receive by_alias -> ok end,
    OfAgent = alias_of(Agent, []),
    signal(">", alias_operation(), self(), OfAgent, fun() -> OfAgent ! message end).

alias_of(Agent, Options) -> alias_by(Agent, {alias, self(), Options}).

alias_by(Agent, Do) ->
    ask(Agent, Do),
    receive
        {alias, Alias} -> Alias
    end.

%% Signals with a token of seq_trace. The agent drops its own.
tokens(Agent) ->
    S = self(),
    Token = fun() ->
        seq_trace:set_token(label, 17),
        ok
    end,
    Alias = alias_of(Agent, []),
    Token(),
    send(">", Agent, message),
    signal(">", reg_send, S, agent, fun() -> {agent, b()} ! message end),
    signal(">", alias_operation(), S, Alias, fun() -> Alias ! message end),
    Killed = spawn_on_b(wait, []),
    Token(),
    exit2(Killed, kill),
    Linked = spawn_on_b(wait, []),
    seq_trace:set_token([]),
    Local = spawn(fun() ->
        signal(">", link, self(), Linked, fun() -> link(Linked) end),
        Token(),
        signal(">", exit_operation(exit), self(), Linked, fun() -> ok end),
        exit(the_reason)
    end),
    Down = monitor(process, Local),
    receive {'DOWN', Down, process, Local, _} -> ok end,
    ask(Agent, {send, S, answer}),
    receive answer -> ok end,
    seq_trace:set_token([]).

%% ALTACT_SIG_SEND with each of its flags: to an alias, a name and a pid; a message and an exit signal; with and without
%% priority; with a token.
priorities(Agent) ->
    S = self(),
    %% A fragmented message with priority ends VMs of OTP 28 and 29 where its alias is in use
    %% (github.com/erlang/otp/issues/11416).
    Large = binary:copy(<<$y>>, ?FRAGMENTED_BYTES),
    Former = alias_by(Agent, {former_alias, S}),
    Send = fun(Party, To, Message) ->
        signal(">", altact_sig_send, S, Party, fun() -> erlang:send(To, Message, [priority]) end)
    end,
    Exit = fun(To, Reason, Options) ->
        signal(">", altact_sig_exit, S, To, fun() -> erlang:exit(To, Reason, Options) end)
    end,
    Alias = alias_of(Agent, [priority]),
    Names = [{agent, {agent, b()}}, {'名前', {'名前', b()}}],
    Targets = [{Alias, Alias}, {Agent, Agent} | Names],
    [Send(Party, To, message) || {Party, To} <- Targets],
    [Send(Party, To, Large) || {Party, To} <- [{Former, Former}, {Agent, Agent} | Names]],
    [
        begin
            Process = spawn_on_b(give_alias, [S]),
            Own = receive {alias, Given} -> Given end,
            Exit(case By of alias -> Own; pid -> Process end, the_reason, Options)
        end
     || {By, Options} <- [{alias, []}, {alias, [priority]}, {pid, [priority]}]
    ],
    [Exit(Former, Large, Options) || Options <- [[], [priority]]],
    seq_trace:set_token(label, 17),
    [Send(Party, To, message) || {Party, To} <- Targets],
    seq_trace:set_token([]),
    ask(Agent, {send, S, answer}),
    receive answer -> ok end.

fragments(Agent) ->
    S = self(),
    Large = binary:copy(<<$y>>, ?FRAGMENTED_BYTES),
    send(">", Agent, Large),
    signal(">", reg_send, S, agent, fun() -> {agent, b()} ! Large end),
    Killed = spawn_on_b(wait, []),
    %% Without a payload of its own it is in the control message, which no VM cuts.
    exit2(Killed, case has(?FLAG_EXIT_PAYLOAD) of true -> Large; false -> small end),
    Senders = [spawn_monitor(fun() -> send(">", Agent, Large) end) || _ <- lists:seq(1, 4)],
    [receive {'DOWN', Monitor, process, Sender, _} -> ok end || {Sender, Monitor} <- Senders],
    ask(Agent, {concurrently, S, ?FRAGMENTED_BYTES}),
    [receive <<$x, _/binary>> -> ok end || _ <- lists:seq(1, 4)],
    ok.

%% More atoms than the cache has entries, and large ones, first in payloads.
atoms(Agent) ->
    [send(">", Agent, [list_to_atom("atom_" ++ integer_to_list(From + Index)) || Index <- lists:seq(1, 200)])
     || From <- lists:seq(0, 2400, 200)],
    send(">", Agent, [list_to_atom(lists:duplicate(255, Character)) || Character <- "ab"]),
    send(">", Agent, longest()),
    send(">", Agent, {'ÿ', 'ελληνικά', '名前'}),
    ask(Agent, {send, self(), [longest(), 'ελληνικά']}),
    receive [_, _] -> ok end.

%% The largest atom: 1,020 bytes.
longest() -> list_to_atom(lists:duplicate(255, 16#1D6C0)).

wait() -> receive stop -> ok end.

%% Gives an alias for prioritized signals, and ends by one.
give_alias(From) ->
    send("<", From, {alias, alias([priority])}),
    wait().

%%% Notes.

note(Arrow, Operation, Sender, Target) ->
    Line = io_lib:format("~s= ~s ~ts ~ts", [Arrow, Operation, party(Sender), party(Target)]),
    ets:insert(notes, {unicode:characters_to_binary(Line)}),
    ok.

party(none) -> "-";
party(Name) when is_atom(Name) -> ["n:", atom_to_list(Name)];
party(Pid) when is_pid(Pid) ->
    <<131, 88, Rest/binary>> = term_to_binary(Pid),
    {Node, <<Id:32, Serial:32, Creation:32>>} = atom_of(Rest),
    io_lib:format("p:~ts:~b:~b:~b", [Node, Id, Serial, Creation]);
party(Alias) when is_reference(Alias) ->
    <<131, 90, _:16, Rest/binary>> = term_to_binary(Alias),
    {Node, <<Creation:32, _/binary>>} = atom_of(Rest),
    io_lib:format("a:~ts:~b", [Node, Creation]).

atom_of(<<119, Bytes, Name:Bytes/binary, Rest/binary>>) -> {Name, Rest};
atom_of(<<100, Bytes:16, Name:Bytes/binary, Rest/binary>>) -> {Name, Rest};
atom_of(<<115, Bytes, Name:Bytes/binary, Rest/binary>>) -> {Name, Rest};
atom_of(<<118, Bytes:16, Name:Bytes/binary, Rest/binary>>) -> {Name, Rest}.

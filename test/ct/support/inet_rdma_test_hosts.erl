%% Hosts of their own for nodes, as network namespaces of this host, and a switch between them
%% (test/switch/switch.c) that loses, delays or forgets what passes from one host to another. No
%% host hears of it: its device stays up. Each host has its own EPMD, name server (/etc/hosts) and
%% address, and the names of all are "a.test", "b.test" and so on. Runs in the node that runs the
%% tests. It needs root, ip, cc and TUN devices.
-module(inet_rdma_test_hosts).

-export([
    start/2, start/3,
    init_group/3,
    needed/2, needed/3,
    stop/1,
    hosts/1,
    names/1,
    options/3,
    both/2,
    among/1
]).
-export([
    silence/2, forget/2, forget/3, narrow/3, lose/3, delay/3, rate/3, pass/1, pass/2, vanished/2
]).
-export([address/2, move/2, under/2, run/3, end_processes/2, end_program/3, box/4]).
-export([
    why_no_firewall/0, refuse/3, refuse_port/3, take_nothing/2, make_no_connection/2, admit/1, cut/3
]).
-export_type([t/0, host/0, way/0, family/0]).

-type host() :: a | b | c | d.
%% The packets from the first host to the second.
-type way() :: {host(), host()}.
-type family() :: inet | inet6.
-opaque t() :: #{hosts := [host()], prefix := string(), family := family(), server := pid()}.

-define(ALL, [a, b, c, d]).
-define(ANSWER_MS, 20000).
-define(STOP_MS, 30000).

%% Two to four hosts over IPv4.
-spec start([tuple()], 2..4) -> {ok, t()} | {error, Why :: string()}.
start(Config, Count) -> start(Config, Count, inet).

%% For init_per_group: the way of the links between nodes on these hosts. inet6: over TCP, with
%% addresses of IPv6.
-spec init_group(inet_rdma_test_paths:path() | inet6, [host()], Config) ->
    Config | {skip, string()}
when
    Config :: [tuple()].
init_group(inet6, _Hosts, Config) ->
    [{family, inet6} | inet_rdma_test_paths:init(tcp, Config)];
init_group(tls, Hosts, Config) ->
    case inet_rdma_test_paths:init(tls, Config) of
        {skip, _} = Skip -> Skip;
        Made -> inet_rdma_test_paths:for_hosts(names(Hosts), Made)
    end;
init_group(Path, _Hosts, Config) ->
    inet_rdma_test_paths:init(Path, Config).

%% Config is the case's: the switch is compiled into its directory.
-spec start([tuple()], 2..4, family()) -> {ok, t()} | {error, Why :: string()}.
start(Config, Count, Family) ->
    Hosts = lists:sublist(?ALL, Count),
    Prefix = inet_rdma_test_node:unique("inet_rdma_hosts") ++ "_",
    Made = #{hosts => Hosts, prefix => Prefix, family => Family},
    try
        Program = compile(proplists:get_value(priv_dir, Config)),
        commands(["ip netns add " ++ Prefix ++ atom_to_list(Host) || Host <- Hosts]),
        Numbers = maps:from_list([{Host, number(Host)} || Host <- Hosts]),
        [ok = filelib:ensure_dir(hosts_file(Host, Made)) || Host <- Hosts],
        ok = write_hosts(Made, Numbers),
        {Server, ok} = inet_rdma_test_ask:start(fun() -> serve(Program, Made, Numbers) end),
        commands([
            lists:append(["ip -n ", Prefix, atom_to_list(Host), " ", Command])
         || Host <- Hosts,
            Command <- [
                "link set lo up", "link set eth0 up", "addr add " ++ with_mask(Host, Numbers, Made)
            ]
        ]),
        {ok, Made#{server => Server}}
    catch
        throw:Why ->
            remove(Made),
            {error, Why}
    end.

%% Adds {hosts, t()} to the configuration of a case.
-spec needed([tuple()], 2..4) -> [tuple()] | {skip, string()}.
needed(Config, Count) -> needed(Config, Count, inet).

-spec needed([tuple()], 2..4, family()) -> [tuple()] | {skip, string()}.
needed(Config, Count, Family) ->
    case start(Config, Count, Family) of
        {ok, Hosts} -> [{hosts, Hosts} | Config];
        {error, Why} -> inet_rdma_test_link:skip("hosts for nodes cannot be made here: " ++ Why)
    end.

%% Ends also what runs there: EPMD stays when its nodes have ended.
-spec stop(t()) -> ok.
stop(#{server := Server} = Made) ->
    Ref = monitor(process, Server),
    Server ! stop,
    receive
        {'DOWN', Ref, process, Server, _} -> ok
    after ?STOP_MS ->
        %% No time limit of a case bounds this wait.
        exit(Server, kill),
        receive
            {'DOWN', Ref, process, Server, _} -> ok
        end
    end,
    remove(Made).

%% Containers, too.
remove(#{prefix := Prefix}) ->
    _ = os:cmd(
        "for n in $(ip netns list | cut -d ' ' -f 1 | grep '^" ++ Prefix ++
            "'); do ip netns pids $n | xargs -r kill -9; ip netns del $n; rm -rf /etc/netns/$n; "
            "done 2>/dev/null"
    ),
    ok.

-spec hosts(t()) -> [host()].
hosts(#{hosts := Hosts}) -> Hosts.

%% What the nodes' names have behind the @: for certificates.
-spec names([host()]) -> [string()].
names(Hosts) -> [name(Host) || Host <- Hosts].

name(Host) -> atom_to_list(Host) ++ ".test".

%% The options of a node on this host, with more options.
-spec options(host(), t(), inet_rdma_test_node:options()) -> inet_rdma_test_node:options().
options(Host, #{family := Family} = Made, More) ->
    Name = inet_rdma_test_node:unique(atom_to_list(Host)) ++ "@" ++ name(Host),
    Carrier = carrier(Family, maps:get(carrier, More, inet_rdma_test_node:carrier())),
    More#{
        long => true,
        name => Name,
        carrier => Carrier,
        under => under(Host, Made) ++ maps:get(under, More, [])
    }.

%% What runs a program on the host.
-spec under(host(), t()) -> [string()].
under(Host, #{prefix := Prefix}) -> ["ip", "netns", "exec", Prefix ++ atom_to_list(Host)].

%% Runs a command of the shell there, which says nothing.
-spec run(host(), Command :: string(), t()) -> ok.
run(Host, Command, Made) ->
    "" = os:cmd(lists:append(lists:join(" ", under(Host, Made) ++ ["sh -c '", Command, "' 2>&1"]))),
    ok.

%% Ends all that runs on the host or in its container, with SIGKILL: nodes, and EPMD.
-spec end_processes(host() | {box, host()}, t()) -> ok.
end_processes({box, Host}, Made) -> end_in(box_of(Host, Made));
end_processes(Host, #{prefix := Prefix}) -> end_in(Prefix ++ atom_to_list(Host)).

end_in(Namespace) ->
    "" = os:cmd("ip netns pids " ++ Namespace ++ " | xargs -r kill -9 2>/dev/null"),
    ok.

%% Ends the programs of this name on the host, with SIGKILL.
-spec end_program(host(), Program :: string(), t()) -> ok.
end_program(Host, Program, #{prefix := Prefix}) ->
    _ = os:cmd(
        "for p in $(ip netns pids " ++ Prefix ++ atom_to_list(Host) ++
            "); do [ \"$(cat /proc/$p/comm)\" = " ++
            Program ++ " ] && kill -9 $p; done"
    ),
    ok.

box_of(Host, #{prefix := Prefix}) -> Prefix ++ atom_to_list(Host) ++ "_box".

%% Why this machine has neither firewalls nor containers; none: it has.
-spec why_no_firewall() -> none | string().
why_no_firewall() ->
    case os:find_executable("nft") of
        false -> "the program nft is missing (Debian: nftables)";
        _ -> none
    end.

%% A firewall between two hosts resets and refuses each TCP connection, in the name of the other
%% host.
-spec refuse(host(), host(), t()) -> ok.
refuse(One, Other, #{server := Server} = Made) ->
    Numbers = inet_rdma_test_ask:ask(Server, numbers),
    _ = [
        firewall(
            On,
            ["ip saddr ", text(From, Numbers, Made), " tcp flags & rst == 0 reject with tcp reset"],
            Made
        )
     || {On, From} <- both(One, Other)
    ],
    ok.

%% The host refuses connections to this port, also those that there are.
-spec refuse_port(host(), inet:port_number(), t()) -> ok.
refuse_port(Host, Port, Made) ->
    firewall(Host, ["tcp dport ", integer_to_list(Port), " reject with tcp reset"], Made).

%% No packet reaches the host. Its own do reach others.
-spec take_nothing(host(), t()) -> ok.
take_nothing(Host, Made) -> firewall(Host, ["iifname eth0 drop"], Made).

%% No connection to the host or from there is made. Those that there are pass.
-spec make_no_connection(host(), t()) -> ok.
make_no_connection(Host, Made) ->
    firewall(Host, ["iifname eth0 tcp flags & syn == syn drop"], Made).

firewall(On, Rule, Made) ->
    Rules = lists:append(
        ["table ip firewall { chain in { type filter hook input priority 0; " | Rule] ++ ["; }; }"]
    ),
    run(On, "nft \"" ++ Rules ++ "\"", Made).

%% No host refuses anything.
-spec admit(t()) -> ok.
admit(#{hosts := Hosts} = Made) ->
    _ = [
        run(
            Host,
            "nft list table ip firewall >/dev/null 2>&1 && nft delete table ip firewall; true",
            Made
        )
     || Host <- Hosts
    ],
    ok.

%% The kernel of the first host resets its TCP connections to the second one.
-spec cut(host(), host(), t()) -> ok.
cut(One, Other, Made) ->
    run(One, "ss -K -tnH dst " ++ inet:ntoa(address(Other, Made)) ++ " >/dev/null", Made).

%% A container on the host, which publishes these ports; its nodes have the host's name. Returns
%% what runs a program in it, and the address that the host's name has there. It needs the program
%% nft.
-spec box(host(), [inet:port_number()], inet:ip4_address(), t()) -> [string()].
box(Host, Ports, Ip, #{prefix := Prefix} = Made) ->
    Name = Prefix ++ atom_to_list(Host),
    Box = box_of(Host, Made),
    {A, B, C, _} = Ip,
    [Inside, Outside] = [inet:ntoa(Each) || Each <- [Ip, {A, B, C, 254}]],
    Listed = lists:join(",", [integer_to_list(Port) || Port <- Ports]),
    Rules = lists:append([
        "table ip box { chain pre { type nat hook prerouting priority -100; iifname eth0 tcp dport "
        "{",
        Listed,
        "} dnat to ",
        Inside,
        "; }; chain post { type nat hook postrouting priority 100; oifname eth0 masquerade; }; }"
    ]),
    HostsFile = filename:join(["/etc/netns", Box, "hosts"]),
    ok = filelib:ensure_dir(HostsFile),
    {ok, Lines} = file:read_file(hosts_file(Host, Made)),
    ok = file:write_file(HostsFile, [Inside, " ", name(Host), "\n", Lines]),
    commands([
        "ip netns add " ++ Box,
        lists:append(["ip -n ", Name, " link add box0 type veth peer name eth0 netns ", Box]),
        lists:append(["ip -n ", Name, " addr add ", Outside, "/24 dev box0"]),
        lists:append(["ip -n ", Box, " addr add ", Inside, "/24 dev eth0"]),
        lists:append(["ip -n ", Name, " link set box0 up"]),
        lists:append(["ip -n ", Box, " link set eth0 up"]),
        lists:append(["ip -n ", Box, " link set lo up"]),
        lists:append(["ip -n ", Box, " route add default via ", Outside]),
        lists:append(["ip netns exec ", Name, " sysctl -qw net.ipv4.ip_forward=1"]),
        lists:append(["ip netns exec ", Name, " nft '", Rules, "'"])
    ]),
    ["ip", "netns", "exec", Box].

carrier(inet6, "inet_" ++ Of) -> "inet6_" ++ Of;
carrier(_, Carrier) -> Carrier.

%% Both ways between two hosts.
-spec both(host(), host()) -> [way()].
both(One, Other) -> [{One, Other}, {Other, One}].

%% All ways between the hosts.
-spec among(t()) -> [way()].
among(#{hosts := Hosts}) -> [{From, To} || From <- Hosts, To <- Hosts, From =/= To].

%% No packet arrives.
-spec silence([way()], t()) -> ok.
silence(Paths, Made) -> lose(Paths, 100, Made).

%% From now on no packet of the present TCP connections arrives; others do.
-spec forget([way()], t()) -> ok.
forget(Paths, Made) -> forget(Paths, 0, Made).

%% The same only for packets of more than this many bytes, headers and all.
-spec forget([way()], Bytes :: non_neg_integer(), t()) -> ok.
forget(Paths, Bytes, Made) -> order(Paths, "forget", Bytes, Made).

%% No packet of more bytes arrives, and no host hears why.
-spec narrow([way()], Bytes :: pos_integer(), t()) -> ok.
narrow(Paths, Bytes, Made) -> order(Paths, "largest", Bytes, Made).

-spec lose([way()], Percent :: 0..100, t()) -> ok.
lose(Paths, Percent, Made) -> order(Paths, "loss", Percent * 10000, Made).

-spec delay([way()], Ms :: non_neg_integer(), t()) -> ok.
delay(Paths, Ms, Made) -> order(Paths, "delay", Ms * 1000, Made).

-spec rate([way()], KilobitPerSecond :: pos_integer(), t()) -> ok.
rate(Paths, Rate, Made) -> order(Paths, "rate", Rate, Made).

%% All arrives again.
-spec pass(t()) -> ok.
pass(Made) -> pass(among(Made), Made).

-spec pass([way()], t()) -> ok.
pass(Paths, Made) -> order(Paths, "pass", 0, Made).

%% How many packets have not arrived.
-spec vanished(way(), t()) -> non_neg_integer().
vanished(Path, #{server := Server} = Made) ->
    [Vanished] = inet_rdma_test_ask:ask(Server, {order, lines([Path], "count", 0, Made)}),
    Vanished.

-spec address(host(), t()) -> inet:ip_address().
address(Host, #{server := Server} = Made) ->
    {ok, Address} = inet:parse_address(text(Host, inet_rdma_test_ask:ask(Server, numbers), Made)),
    Address.

%% The hosts have other addresses, all at once, their names resolve to these on every host, and what
%% comes for the old ones is lost.
-spec move([host()], t()) -> ok.
move(Moving, #{server := Server} = Made) -> inet_rdma_test_ask:ask(Server, {move, Moving, Made}).

order(Paths, What, Value, #{server := Server} = Made) ->
    _ = inet_rdma_test_ask:ask(Server, {order, lines(Paths, What, Value, Made)}),
    ok.

lines(Paths, What, Value, #{hosts := Hosts}) ->
    [
        io_lib:format("~b ~b ~s ~b~n", [index(From, Hosts), index(To, Hosts), What, Value])
     || {From, To} <- Paths
    ].

index(Host, Hosts) -> length(lists:takewhile(fun(Other) -> Other =/= Host end, Hosts)).

%% The switch ends with the process that owns its port.
serve(Program, #{hosts := Hosts, prefix := Prefix}, Numbers) ->
    Args = lists:append([[Prefix ++ atom_to_list(Host), "eth0"] || Host <- Hosts]),
    Port = open_port({spawn_executable, Program}, [
        {args, Args}, {line, 256}, exit_status, stderr_to_stdout
    ]),
    case line(Port) of
        "ready" -> {ok, fun() -> loop(Port, Numbers) end};
        Said -> exit(Said)
    end.

loop(Port, Numbers) ->
    receive
        stop ->
            true = port_close(Port);
        {{order, Lines}, From, Ref} ->
            true = port_command(Port, Lines),
            From !
                {Ref, [list_to_integer(Vanished) || _ <- Lines, "ok " ++ Vanished <- [line(Port)]]},
            loop(Port, Numbers);
        {numbers, From, Ref} ->
            From ! {Ref, Numbers},
            loop(Port, Numbers);
        {{move, Moving, Made}, From, Ref} ->
            New = maps:map(fun(Host, Number) -> Number + 16 * is_in(Host, Moving) end, Numbers),
            ok = write_hosts(Made, New),
            commands([
                command(Verb, Host, Of, Made)
             || Host <- Moving, {Verb, Of} <- [{"del", Numbers}, {"add", New}]
            ]),
            From ! {Ref, ok},
            loop(Port, New);
        {Port, {exit_status, Status}} ->
            exit({switch_ended, Status})
    end.

is_in(Host, Hosts) ->
    case lists:member(Host, Hosts) of
        true -> 1;
        false -> 0
    end.

command(Verb, Host, Numbers, #{prefix := Prefix} = Made) ->
    lists:append([
        "ip -n ", Prefix, atom_to_list(Host), " addr ", Verb, " ", with_mask(Host, Numbers, Made)
    ]).

line(Port) ->
    receive
        {Port, {data, {eol, Line}}} -> Line;
        {Port, {exit_status, Status}} -> exit({switch_ended, Status})
    after ?ANSWER_MS -> exit(switch_does_not_answer)
    end.

number(Host) -> 1 + index(Host, ?ALL).

%% Only within the namespaces: other tests of this host may use the same.
text(Host, Numbers, #{family := inet}) -> "10.96.0." ++ integer_to_list(map_get(Host, Numbers));
text(Host, Numbers, #{family := inet6}) -> "fd96::" ++ integer_to_list(map_get(Host, Numbers), 16).

with_mask(Host, Numbers, #{family := inet} = Made) -> text(Host, Numbers, Made) ++ "/24 dev eth0";
with_mask(Host, Numbers, #{family := inet6} = Made) -> text(Host, Numbers, Made) ++ "/64 dev eth0".

%% `ip netns exec` shows the file as /etc/hosts. It is written in place, for what has it open.
write_hosts(#{hosts := Hosts} = Made, Numbers) ->
    Lines = [
        "127.0.0.1 localhost\n::1 localhost\n"
        | [[text(Host, Numbers, Made), " ", name(Host), "\n"] || Host <- Hosts]
    ],
    [ok = file:write_file(hosts_file(Host, Made), Lines) || Host <- Hosts],
    ok.

hosts_file(Host, #{prefix := Prefix}) ->
    filename:join(["/etc/netns", Prefix ++ atom_to_list(Host), "hosts"]).

compile(Directory) ->
    Source = filename:join([filename:dirname(code:which(?MODULE)), "..", "..", "switch", "switch.c"]),
    Program = filename:join(Directory, "switch"),
    case filelib:is_regular(Program) of
        true ->
            Program;
        false ->
            commands([lists:append(["cc -O2 -o '", Program, "' '", Source, "'"])]),
            Program
    end.

commands(Commands) ->
    case os:cmd("{ " ++ lists:append(lists:join(" && ", Commands)) ++ " && echo; } 2>&1") of
        "\n" -> ok;
        Output -> throw(Output)
    end.

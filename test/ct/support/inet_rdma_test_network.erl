%% Two hosts with a router between them, as network namespaces of this host. The router stops
%% passing packets when it is told to, all of them or those of some TCP connections, and neither
%% host hears of it. Runs in the node that runs the tests. It needs root, and the program ip.
-module(inet_rdma_test_network).

-export([needed/1, needed_in_names/1, stop/1, under/2, address/2, connections/1]).
-export([silence/1, silence/2, silence_from/2, bar/2, pass/1, cut/1]).
-export([add_address/2, bar_address/2]).
-export_type([t/0, host/0, connection/0]).

-type host() :: a | b.
-opaque t() :: #{a := string(), b := string(), router := string(), number := string()}.
%% Seen from host a: the own port and the peer's.
-type connection() :: {string(), string()}.

start() ->
    %% Numbers of networks and names of interfaces are this host's.
    Number = integer_to_list(rand:uniform(250)),
    Prefix = "inet_rdma_" ++ os:getpid() ++ "_" ++ Number,
    Network = #{
        a => Prefix ++ "_a", b => Prefix ++ "_b", router => Prefix ++ "_r", number => Number
    },
    #{router := Router} = Network,
    Commands = [
        "ip netns add " ++ Router,
        within(Router, "sysctl -qw net.ipv4.ip_forward=1")
        | lists:append([host(Host, Network) || Host <- [a, b]])
    ],
    case os:cmd(lists:flatten(lists:join(" && ", Commands)) ++ " && echo made") of
        "made\n" ->
            {ok, Network};
        Output ->
            stop(Network),
            {error, Output}
    end.

%% For init_per_testcase: a network of the case's own, as `network'.
-spec needed(Config) -> Config | {skip, string()} when Config :: [tuple()].
needed(Config) ->
    case start() of
        {ok, Network} -> [{network, Network} | Config];
        {error, Why} -> inet_rdma_test_link:skip("network namespaces cannot be made here: " ++ Why)
    end.

%% The same for nodes that have the addresses of their hosts in their names.
-spec needed_in_names(Config) -> Config | {skip, string()} when Config :: [tuple()].
needed_in_names(Config) ->
    case needed(Config) of
        {skip, _} = Skip ->
            Skip;
        [{network, Network} | _] = Made ->
            inet_rdma_test_paths:for_hosts([address(Host, Network) || Host <- [a, b]], Made)
    end.

host(Host, #{router := Router} = Network) ->
    Namespace = maps:get(Host, Network),
    Interface = "to_" ++ atom_to_list(Host),
    [
        "ip netns add " ++ Namespace,
        "ip -n " ++ Namespace ++ " link add eth0 type veth peer name " ++ Interface ++ " netns " ++
            Router,
        "ip -n " ++ Namespace ++ " addr add " ++ address(Host, Network) ++ "/24 dev eth0",
        "ip -n " ++ Router ++ " addr add " ++ gateway(Host, Network) ++ "/24 dev " ++ Interface,
        "ip -n " ++ Namespace ++ " link set lo up",
        "ip -n " ++ Namespace ++ " link set eth0 up",
        "ip -n " ++ Router ++ " link set " ++ Interface ++ " up",
        "ip -n " ++ Namespace ++ " route add default via " ++ gateway(Host, Network)
    ].

%% Ends also what runs in the namespaces: EPMD stays when its nodes have ended.
-spec stop(t()) -> ok.
stop(#{router := Router} = Network) ->
    Commands = [
        ["ip netns pids ", Namespace, " | xargs -r kill -9; ip netns del ", Namespace, "; "]
     || Namespace <- [maps:get(a, Network), maps:get(b, Network), Router]
    ],
    _ = os:cmd(lists:flatten(["{ ", Commands, "} 2>/dev/null"])),
    ok.

%% For the option `under' of a node.
-spec under(host(), t()) -> [string()].
under(Host, Network) -> ["ip", "netns", "exec", maps:get(Host, Network)].

-spec address(host(), t()) -> string().
address(a, #{number := Number}) -> "10.97." ++ Number ++ ".2";
address(b, #{number := Number}) -> "10.96." ++ Number ++ ".2".

gateway(a, #{number := Number}) -> "10.97." ++ Number ++ ".1";
gateway(b, #{number := Number}) -> "10.96." ++ Number ++ ".1".

%% The TCP connections between the hosts that are established.
-spec connections(t()) -> [connection()].
connections(#{a := Namespace} = Network) ->
    Lines = string:lexemes(
        os:cmd(within(Namespace, "ss -tnH state established dst " ++ address(b, Network))), "\n"
    ),
    [
        begin
            [_, _, Own, Peer | _] = string:lexemes(Line, " "),
            {port(Own), port(Peer)}
        end
     || Line <- Lines
    ].

port(Address) -> lists:last(string:lexemes(Address, ":")).

%% No packet passes.
-spec silence(t()) -> ok.
silence(Network) -> rules("add", ["iif to_a", "iif to_b"], Network).

%% No packet of this host passes.
-spec silence_from(host(), t()) -> ok.
silence_from(Host, Network) -> rules("add", ["iif to_" ++ atom_to_list(Host)], Network).

%% No packet of these connections passes.
-spec silence([connection()], t()) -> ok.
silence(Connections, Network) ->
    Rules = [
        ["ipproto tcp sport ", From, " dport ", To]
     || {Own, Peer} <- Connections, {From, To} <- [{Own, Peer}, {Peer, Own}]
    ],
    rules("add", Rules, Network).

%% No packet from host a to this port of host b passes: the firewall of b drops what connects.
-spec bar(Port :: inet:port_number(), t()) -> ok.
bar(Port, Network) ->
    rules("add", [["iif to_a ipproto tcp dport ", integer_to_list(Port)]], Network).

%% Gives the host another address beside the one of address/2.
-spec add_address(host(), t()) -> ok.
add_address(Host, Network) ->
    "" = os:cmd(
        "ip -n " ++ maps:get(Host, Network) ++ " addr add " ++ other_address(Host, Network) ++
            "/24 dev eth0"
    ),
    ok.

other_address(Host, Network) ->
    lists:append(string:replace(address(Host, Network), ".2", ".3", trailing)).

%% No packet to the host's first address passes.
-spec bar_address(host(), t()) -> ok.
bar_address(Host, Network) -> rules("add", ["to " ++ address(Host, Network)], Network).

%% All pass again.
-spec pass(t()) -> ok.
pass(#{router := Router}) ->
    "" = os:cmd("while ip -n " ++ Router ++ " rule del pref 10 2>/dev/null; do :; done"),
    ok.

%% Resets the TCP connections between the hosts.
-spec cut(t()) -> ok.
cut(#{a := Namespace} = Network) ->
    _ = os:cmd(within(Namespace, "ss -K -tnH dst " ++ address(b, Network))),
    ok.

rules(Do, Rules, #{router := Router}) ->
    "" = os:cmd(
        lists:flatten([
            ["ip -n ", Router, " rule ", Do, " pref 10 ", Rule, " blackhole; "]
         || Rule <- Rules
        ])
    ),
    ok.

within(Namespace, Command) -> "ip netns exec " ++ Namespace ++ " " ++ Command.

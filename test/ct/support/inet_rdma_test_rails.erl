%% Two hosts for nodes with two networks between them, as network namespaces of this host: each host
%% has the devices r1 and r2. The kernels make a subflow of MPTCP over each. Runs in the node that
%% runs the tests. It needs root and ip.
-module(inet_rdma_test_rails).

-export([needed/2, stop/1, options/3, run/3, cut/2, heal/2, flows/3, sent/1, address/3]).
-export_type([t/0, host/0, rail/0]).

-type host() :: a | b.
-type rail() :: 1 | 2.
-opaque t() :: #{prefix := string(), family := inet | inet6}.

-define(HOSTS, [a, b]).
-define(RAILS, [1, 2]).
%% No device has it.
-define(NOBODY, "02:00:00:00:00:99").

%% Adds {rails, t()} to the configuration of a case.
-spec needed([tuple()], inet | inet6) -> [tuple()] | {skip, string()}.
needed(Config, Family) ->
    Made = #{prefix => inet_rdma_test_node:unique("inet_rdma_rails") ++ "_", family => Family},
    try
        ok = file_needed("/proc/sys/net/mptcp/enabled"),
        ok = make(Made),
        [{rails, Made} | Config]
    catch
        throw:Why ->
            ok = stop(Made),
            inet_rdma_test_link:skip("hosts with two networks cannot be made here: " ++ Why)
    end.

file_needed(File) ->
    case filelib:is_regular(File) of
        true -> ok;
        false -> throw("the kernel has no MPTCP (" ++ File ++ ")")
    end.

make(Made) ->
    Hosts = [
        "127.0.0.1 localhost\n::1 localhost\n"
        | [[address(Host, 1, Made), " ", name(Host), "\n"] || Host <- ?HOSTS]
    ],
    [
        begin
            ok = filelib:ensure_dir(hosts_file(Host, Made)),
            ok = file:write_file(hosts_file(Host, Made), Hosts),
            ip("netns add ~s", [namespace(Host, Made)]),
            ip("-n ~s link set lo up", [namespace(Host, Made)])
        end
     || Host <- ?HOSTS
    ],
    [
        ip(
            "-n ~s link add r~b type veth peer name r~b netns ~s",
            [namespace(a, Made), Rail, Rail, namespace(b, Made)]
        )
     || Rail <- ?RAILS
    ],
    [
        begin
            ip(
                "-n ~s addr add ~s dev r~b",
                [namespace(Host, Made), with_mask(Host, Rail, Made), Rail]
            ),
            ip("-n ~s link set r~b up", [namespace(Host, Made), Rail])
        end
     || Host <- ?HOSTS, Rail <- ?RAILS
    ],
    %% Each host may connect by its second address, and tells it to the other.
    [
        begin
            ip("-n ~s mptcp limits set subflow 2 add_addr_accepted 2", [namespace(Host, Made)]),
            ip(
                "-n ~s mptcp endpoint add ~s dev r2 subflow signal",
                [namespace(Host, Made), address(Host, 2, Made)]
            )
        end
     || Host <- ?HOSTS
    ],
    ok.

with_mask(Host, Rail, #{family := inet} = Made) -> address(Host, Rail, Made) ++ "/24";
with_mask(Host, Rail, Made) -> address(Host, Rail, Made) ++ "/64 nodad".

-spec address(host(), rail(), t()) -> string().
address(Host, Rail, #{family := inet}) -> text("10.77.~b.~b", [Rail, number(Host)]);
address(Host, Rail, _Made) -> text("fd77:~b::~b", [Rail, number(Host)]).

number(a) -> 1;
number(b) -> 2.

name(Host) -> atom_to_list(Host) ++ ".test".

namespace(Host, #{prefix := Prefix}) -> Prefix ++ atom_to_list(Host).

hosts_file(Host, Made) -> filename:join(["/etc/netns", namespace(Host, Made), "hosts"]).

%% Ends all that runs there.
-spec stop(t()) -> ok.
stop(Made) ->
    [
        _ = os:cmd(
            text(
                "ip netns pids ~s 2>/dev/null | xargs -r kill -9; "
                "ip netns del ~s 2>/dev/null; rm -rf /etc/netns/~s",
                [Name, Name, Name]
            )
        )
     || Host <- ?HOSTS, Name <- [namespace(Host, Made)]
    ],
    ok.

%% The options of a node on this host, with more options.
-spec options(host(), t(), inet_rdma_test_node:options()) -> inet_rdma_test_node:options().
options(Host, #{family := Family} = Made, More) ->
    Name = inet_rdma_test_node:unique(atom_to_list(Host)) ++ "@" ++ name(Host),
    Carrier =
        case {Family, maps:get(carrier, More, inet_rdma_test_node:carrier())} of
            {inet6, "inet_" ++ Of} -> "inet6_" ++ Of;
            {_, Given} -> Given
        end,
    maps:merge(
        #{name => Name},
        More#{
            long => true,
            carrier => Carrier,
            under => ["ip", "netns", "exec", namespace(Host, Made)]
        }
    ).

%% Runs a command of the shell there.
-spec run(host(), Command :: string(), t()) -> string().
run(Host, Command, Made) ->
    os:cmd(text("ip netns exec ~s sh -c '~s' 2>&1", [namespace(Host, Made), Command])).

%% No packet of the rail arrives, and no host hears of it.
-spec cut(rail(), t()) -> ok.
cut(Rail, Made) ->
    [
        ip(
            "-n ~s neigh replace ~s lladdr ~s dev r~b nud permanent",
            [namespace(On, Made), address(Of, Rail, Made), ?NOBODY, Rail]
        )
     || {On, Of} <- both()
    ],
    ok.

-spec heal(rail(), t()) -> ok.
heal(Rail, Made) ->
    [
        ip("-n ~s neigh del ~s dev r~b", [namespace(On, Made), address(Of, Rail, Made), Rail])
     || {On, Of} <- both()
    ],
    ok.

both() -> [{a, b}, {b, a}].

%% From now on the kernels make flows between the addresses of the first network only, one more for
%% each port, and that network gives each flow this rate. IPv4 only. It needs tc, and sch_htb and
%% cls_u32 of the kernel.
-spec flows([inet:port_number()], pos_integer(), t()) -> ok | {skip, string()}.
flows(Ports, RateMbit, #{family := inet} = Made) ->
    try
        _ = [ok = flows_of(Host, lists:enumerate(2, Ports), RateMbit, Made) || Host <- ?HOSTS],
        ok
    catch
        throw:Why -> inet_rdma_test_link:skip("flows cannot have a rate here: " ++ Why)
    end.

flows_of(Host, Ports, RateMbit, Made) ->
    Namespace = namespace(Host, Made),
    tc("-n ~s qdisc add dev r1 root handle 1: htb default 1", [Namespace]),
    [
        tc(
            "-n ~s class add dev r1 parent 1: classid 1:~b htb rate ~bmbit quantum 60000",
            [Namespace, Class, RateMbit]
        )
     || Class <- [1 | [Class || {Class, _} <- Ports]]
    ],
    [
        tc(
            "-n ~s filter add dev r1 parent 1: protocol ip u32 match ip ~s ~b 0xffff flowid 1:~b",
            [Namespace, End, Port, Class]
        )
     || {Class, Port} <- Ports, End <- ["sport", "dport"]
    ],
    ip("-n ~s mptcp endpoint flush", [Namespace]),
    [
        ip(
            "-n ~s mptcp endpoint add ~s dev r1 port ~b signal",
            [Namespace, address(Host, 1, Made), Port]
        )
     || {_, Port} <- Ports
    ],
    ok.

%% The bytes that host a has sent by each flow, after flows/3: in the order of the ports, after the
%% first flow.
-spec sent(t()) -> [non_neg_integer()].
sent(Made) ->
    Said = run(a, "tc -s class show dev r1", Made),
    {match, Found} = re:run(
        Said,
        "class htb 1:(\\d+) .*\\n *Sent (\\d+) bytes",
        [global, {capture, all_but_first, list}]
    ),
    Sent = [{list_to_integer(Class), list_to_integer(Bytes)} || [Class, Bytes] <- Found],
    [Bytes || {_, Bytes} <- lists:sort(Sent)].

ip(Format, Arguments) -> does("ip " ++ Format, Arguments).

tc(Format, Arguments) -> does("tc " ++ Format, Arguments).

does(Format, Arguments) ->
    Command = text(Format, Arguments),
    case os:cmd(Command ++ " 2>&1 || echo failed") of
        "" -> ok;
        Said -> throw(text("~s: ~s", [Command, string:trim(Said)]))
    end.

text(Format, Arguments) -> lists:flatten(io_lib:format(Format, Arguments)).

%% The doctor's part about the links of the running node: those that lose their connections, whose
%% paths do not answer, that go over another node, or that stayed on TCP or TLS.
-module(inet_rdma_doctor_links).

-export([facts/0, listeners/0, findings/3]).
-export_type([listeners/0]).

-import(inet_rdma_text, [text/2]).

%% No TCP connection between two living nodes ends by itself. A link is reported with at least
%% LOSSES_OFTEN losses, and one in each LOSS_EACH_MS on the average: a single restart of a firewall
%% is no finding for the life of the link. So are suspicions that the same path has ended by an
%% answer.
-define(LOSSES_OFTEN, 3).
-define(LOSS_EACH_MS, 3600000).
%% A link that goes directly again is reported with one detour in a day on the average: the direct
%% way was cut, and the next cut may leave no neighbour.
-define(DETOUR_EACH_MS, 86400000).
%% A finding names at most this many nodes, so that it stays readable in a large cluster.
-define(NODES_NAMED, 8).

%% Where the nodes at the other end of links accept connections, in words.
-type listeners() :: #{node() => {Address :: binary(), inet:port_number()}}.
-type finding() :: {note, Text :: binary(), Fix :: binary()}.

-spec facts() -> [inet_rdma:info()].
facts() ->
    [Info || #{node := Node, state := up} = Info <- inet_rdma_info:all(), Node =/= undefined].

-spec listeners() -> listeners().
listeners() ->
    maps:from_list([
        {binary_to_atom(Node), {inet_rdma_ip:text(Ip), Port}}
     || #{node := Node, controller := {session, Session}} <- inet_rdma_links:all(),
        {Ip, Port} <- [inet_rdma_detours:fact(inet_rdma_session:name(Session), listens)]
    ]).

-spec findings(inet_rdma_options:config(), [inet_rdma:info()], listeners()) -> [finding()].
findings(Config, Links, Listeners) ->
    [
        Finding
     || Link <- Links,
        Finding <-
            lost_often(Link) ++ path(Link) ++ suspected_often(Config, Link) ++
                detour(Link, Listeners)
    ] ++
        plain_tcp(Links) ++ stayed(Config, Links).

%% Links whose TCP connections have no MPTCP though the option asks for it. Where this host's kernel
%% has none inet_rdma_doctor_findings says so.
plain_tcp(Links) ->
    case [Node || #{node := Node, mptcp := peer, suspended := false} <- Links] of
        [] ->
            [];
        Nodes ->
            [
                note(
                    "the TCP connections of the links to ~ts have no MPTCP: the peer, or something "
                    "on the way, has none",
                    [named(Nodes)],
                    "give the nodes the option `mptcp auto`, too, on hosts with "
                    "net.mptcp.enabled=1; a proxy or a firewall may take the options of MPTCP out "
                    "of packets"
                )
            ]
    end.

lost_often(#{node := Node, losses := Losses, resumes := Resumes, up_ms := UpMs}) when
    Losses >= ?LOSSES_OFTEN, Losses * ?LOSS_EACH_MS >= UpMs
->
    [
        note(
            "the link to ~ts has lost its TCP connection ~b times in ~ts, and resumed ~b times",
            [Node, Losses, duration(UpMs), Resumes],
            "the log of either node says why: look for `lost its`; usual causes are firewalls and "
            "load balancers that end connections, see docs/TROUBLESHOOTING.md"
        )
    ];
lost_often(_Link) ->
    [].

path(#{node := Node, suspended := true}) ->
    [
        note(
            "the link to ~ts has lost its connection, and no path carries it",
            [Node],
            "the nodes try to connect again, for the time of the option survive_ms: look at the "
            "network between them"
        )
    ];
path(#{node := Node, path_state := suspected}) ->
    [
        note(
            "the link to ~ts is suspected: the peer's host has not answered over its path for the "
            "time of the option suspect_after_ms, and no other path answers",
            [Node],
            "packets vanish between the hosts, or the peer's host is down: look at the network "
            "between them. The link goes on when a path answers, and ends by net_ticktime"
        )
    ];
path(_Link) ->
    [].

suspected_often(#{suspect_after_ms := SuspectAfterMs}, #{
    node := Node, false_suspicions := Count, up_ms := UpMs
}) when
    Count >= ?LOSSES_OFTEN, Count * ?LOSS_EACH_MS >= UpMs
->
    [
        note(
            "the link to ~ts was suspected ~b times in ~ts though its path was well: the same path "
            "answered late",
            [Node, Count, duration(UpMs)],
            [
                "raise the option suspect_after_ms, here ",
                integer_to_list(SuspectAfterMs),
                ": a network that delays or loses many packets answers later than that; each such "
                "suspicion costs a connection"
            ]
        )
    ];
suspected_often(_Config, _Link) ->
    [].

detour(#{node := Node, detoured := true, via := Via}, Listeners) ->
    [
        note(
            "the link to ~ts is carried over ~ts: the direct way to ~ts is cut",
            [
                Node,
                case Via of
                    undefined -> "another node";
                    _ -> Via
                end,
                listener(Node, Listeners)
            ],
            direct_fix(Node, Listeners)
        )
    ];
detour(#{node := Node, detours := Detours, up_ms := UpMs}, Listeners) when
    Detours > 0, Detours * ?DETOUR_EACH_MS >= UpMs
->
    [
        note(
            "the link to ~ts went over another node ~b times in ~ts, and goes directly now: the "
            "direct way to ~ts was cut",
            [Node, Detours, duration(UpMs), listener(Node, Listeners)],
            direct_fix(Node, Listeners)
        )
    ];
detour(_Link, _Listeners) ->
    [].

listener(Node, Listeners) ->
    case Listeners of
        #{Node := {Address, Port}} -> io_lib:format("~ts, port ~b,", [Address, Port]);
        #{} -> "that node"
    end.

direct_fix(Node, Listeners) ->
    Try =
        case Listeners of
            #{Node := {Address, Port}} ->
                io_lib:format(": `ip route get ~ts` and `nc -vz ~ts ~b` on this host", [
                    Address, Address, Port
                ]);
            #{} ->
                ""
        end,
    [
        "on the hosts of both nodes look at the firewall, at the route to the other host, and that "
        "the listener's port is open",
        Try
    ].

%% One finding for each reason. None with the option fabric tcp, which asks for it.
stayed(#{fabric := tcp}, _Links) ->
    [];
stayed(_Config, Links) ->
    Stayed = [
        {{Fabric, Why}, Node}
     || #{node := Node, fabric := Fabric, why := Why} <- Links,
        Fabric =:= tcp orelse Fabric =:= tls
    ],
    [
        note(
            "over ~ts: the links to ~ts; ~ts",
            [Fabric, named(Nodes), Why],
            "docs/TROUBLESHOOTING.md, A link stays on TCP, explains the reason"
        )
     || {Fabric, Why} = Reason <- lists:usort([Reason || {Reason, _} <- Stayed]),
        Nodes <- [lists:sort([Node || {Is, Node} <- Stayed, Is =:= Reason])]
    ].

named(Nodes) ->
    {Named, Others} = lists:split(min(?NODES_NAMED, length(Nodes)), Nodes),
    [
        lists:join(", ", [atom_to_binary(Node) || Node <- Named]),
        case Others of
            [] -> "";
            _ -> io_lib:format(" and ~b others", [length(Others)])
        end
    ].

duration(Ms) when Ms < 120000 -> io_lib:format("~b s", [Ms div 1000]);
duration(Ms) when Ms < 7200000 -> io_lib:format("~b min", [Ms div 60000]);
duration(Ms) -> io_lib:format("~b h", [Ms div 3600000]).

note(Format, Arguments, Fix) -> {note, text(Format, Arguments), unicode:characters_to_binary(Fix)}.

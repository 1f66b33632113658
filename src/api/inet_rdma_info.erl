%% Facts and counts of connections: links, streams, and links that stayed on TCP or TLS.
%%
%% Internal: use inet_rdma:info/0,1, inet_rdma:i/0 and inet_rdma:getstat/1,2.
-module(inet_rdma_info).

-export([
    all/0,
    of_node/1,
    of_connection/1,
    received/0,
    keys/0,
    counts/2,
    table/1,
    state/1,
    via/1,
    direct/1
]).

%% Every connection of this node, oldest first, then the links that TCP or TLS carries. A link is in
%% the list once: as its queue pair, if that carries the link.
-spec all() -> [inet_rdma:info()].
all() ->
    ok = inet_rdma_proto_dist:log_if_ignored(),
    Native =
        case inet_rdma_nif:load() of
            ok -> [complete(Statistics) || Statistics <- inet_rdma_nif:all_statistics()];
            {error, _} -> []
        end,
    Links = [
        Row#{session => session_facts(Controller)}
     || #{controller := Controller} = Row <- inet_rdma_links:all()
    ],
    Controllers = erlang:system_info(dist_ctrl),
    Carrying = lists:append([carrying(Info, Links, Controllers) || Info <- Native]),
    Shown = [Node || #{node := Node, state := up} <- Carrying],
    Carrying ++
        lists:append([
            by_connection(Link)
         || #{node := Node} = Link <- Links,
            not lists:member(binary_to_atom(Node), Shown)
        ]).

%% State of a session's paths, as the port's last notice says. carried_by_queue: a queue pair
%% carries what this node sends. suspended: no path does. none: the connection is no session's;
%% closed: the session has ended.
session_facts({session, Session}) ->
    case inet_rdma_port:statistics(inet_rdma_session:port(Session)) of
        {ok, Counts} ->
            Facts = maps:with(inet_rdma_counts:keys(session), Counts),
            #{subflows := Subflows} = Facts,
            Known = maps:merge(Facts, inet_rdma_detour:facts(Session)),
            Standing =
                #{state := State} = inet_rdma_links:standing(inet_rdma_session:name(Session)),
            {ok, Known#{
                mptcp => inet_rdma_multipath:state(Subflows),
                path_state => State,
                suspended => not inet_rdma_port:is_carried(Standing),
                carried_by_queue => inet_rdma_port:is_carried_by_queue(Standing)
            }};
        {error, closed} ->
            closed
    end;
session_facts(_Controller) ->
    none.

-spec of_node(node()) -> inet_rdma:info() | undefined.
of_node(Node) ->
    case [Info || #{node := Name, state := up} = Info <- all(), Name =:= Node] of
        [Info | _] -> Info;
        [] -> undefined
    end.

-spec of_connection(inet_rdma_nif:conn()) -> inet_rdma:info() | undefined.
of_connection(Conn) ->
    case inet_rdma_nif:statistics(Conn) of
        closed -> undefined;
        Statistics -> complete(Statistics)
    end.

%% The links of the VM, each with the packets that it has received, ticks among them.
-spec received() ->
    [{Node :: binary(), Controller :: port() | pid(), Packets :: non_neg_integer()}].
received() ->
    Controllers = maps:from_list([
        {Node, Controller}
     || #{node := Node, controller := Controller} <- inet_rdma_links:all()
    ]),
    Links = [{atom_to_binary(Node), Handle} || {Node, Handle} <- erlang:system_info(dist_ctrl)],
    [
        {Node, Handle, Packets}
     || {Node, Handle} <- Links,
        {ok, Packets, _Sent, _Queued} <- [getstat(Node, Handle, Controllers)]
    ].

getstat(Node, Handle, Controllers) ->
    case {is_port_of_link(Handle), Controllers} of
        {true, _} -> inet_rdma_port:getstat(Handle);
        {false, #{Node := Controller}} -> inet_rdma_controller:getstat(Controller);
        {false, _} -> {error, closed}
    end.

%% False: OTP's driver or ssl carries the link.
is_port_of_link(Controller) -> is_port(Controller) andalso inet_rdma_port:is_link(Controller).

%% The keys of counts/2, in the order of inet:getstat/1.
-spec keys() -> [atom()].
keys() ->
    [
        recv_oct,
        recv_cnt,
        recv_max,
        recv_avg,
        recv_dvi,
        send_oct,
        send_cnt,
        send_max,
        send_avg,
        send_pend
    ].

%% The counts under the names of inet:getstat/2, in the order of Keys. einval: the connection is
%% closed, or a key is unknown.
-spec counts(inet_rdma_nif:conn(), [atom()]) ->
    {ok, [{atom(), non_neg_integer()}]} | {error, einval}.
counts(Conn, Keys) ->
    Unknown = [Key || Key <- Keys, not lists:member(Key, keys())],
    case {inet_rdma_nif:statistics(Conn), inet_rdma_nif:posted(Conn), Unknown} of
        {#{} = Statistics, {_Sends, Pending, _Receives}, []} ->
            {ok, [{Key, statistic(Key, Statistics, Pending)} || Key <- Keys]};
        _ ->
            {error, einval}
    end.

statistic(recv_oct, #{packet_bytes_received := Bytes}, _Pending) ->
    Bytes;
statistic(recv_cnt, #{packets_received := Packets}, _Pending) ->
    Packets;
statistic(recv_max, #{largest_packet_received := Bytes}, _Pending) ->
    Bytes;
statistic(recv_avg, #{packet_bytes_received := Bytes, packets_received := Packets}, _Pending) ->
    average(Bytes, Packets);
statistic(recv_dvi, #{packet_deviation_received := Bytes}, _Pending) ->
    trunc(Bytes);
statistic(send_oct, #{bytes_sent := Bytes}, _Pending) ->
    Bytes;
statistic(send_cnt, #{packets_sent := Packets}, _Pending) ->
    Packets;
statistic(send_max, #{largest_packet_sent := Bytes}, _Pending) ->
    Bytes;
statistic(send_avg, #{bytes_sent := Bytes, packets_sent := Packets}, _Pending) ->
    average(Bytes, Packets);
statistic(send_pend, _Statistics, Pending) ->
    Pending.

average(_Bytes, 0) -> 0;
average(Bytes, Packets) -> Bytes div Packets.

%% The queue pair of a link, with the counts of the link. Leaves out a queue pair that does not
%% carry its session.
carrying(#{node := Node, state := up} = Info, Links, Controllers) when Node =/= undefined ->
    case [Link || #{node := Name} = Link <- Links, binary_to_atom(Name) =:= Node] of
        [#{session := {ok, #{carried_by_queue := false}}}] -> [];
        [Link] -> [maps:merge(counted(Info, Controllers), of_link(Link))];
        [] -> [counted(Info, Controllers)]
    end;
carrying(Info, _Links, _Controllers) ->
    [Info].

%% The port of a link counts over all its paths. The VM's controller of a node is the port of its
%% newest link.
counted(#{node := Node} = Info, Controllers) ->
    case [Port || {Name, Port} <- Controllers, Name =:= Node, is_port_of_link(Port)] of
        [Port] -> counted_by(Info, inet_rdma_port:counts(Port));
        [] -> Info
    end.

counted_by(Info, {ok, Counts}) -> maps:merge(Info, Counts);
counted_by(Info, {error, closed}) -> Info.

%% The facts of a link's row, and those of its session if it has one.
of_link(#{up_ms := UpMs, session := {ok, Session}}) ->
    maps:merge(#{up_ms => UpMs}, maps:remove(carried_by_queue, Session));
of_link(#{up_ms := UpMs}) ->
    #{up_ms => UpMs}.

%% The link's entry if the TCP connection of its session carries it, if no path carries it, or if it
%% stayed on the connection on which it began.
by_connection(#{session := {ok, #{carried_by_queue := false}}} = Link) ->
    known(Link#{fabric := <<"tcp">>});
by_connection(#{session := {ok, _}} = Link) ->
    known(Link);
by_connection(#{session := none, fabric := Fabric} = Link) when
    Fabric =:= <<"tcp">>; Fabric =:= <<"tls">>
->
    known(Link);
by_connection(_MovedOrEnded) ->
    [].

known(#{node := Node, controller := Controller, fabric := Fabric, why := Why} = Link) ->
    case inet_rdma_controller:counts(Controller) of
        {ok, Counts} ->
            Info = #{
                node => binary_to_atom(Node),
                fabric => binary_to_atom(Fabric),
                state => up,
                why => unicode:characters_to_list(Why)
            },
            Facts = maps:merge(Counts, coding_facts(Controller)),
            [maps:merge(maps:merge(Info, Facts), of_link(Link))];
        {error, _} ->
            []
    end.

coding_facts({session, Session}) -> inet_rdma_port:coding(inet_rdma_session:port(Session));
coding_facts(_Controller) -> #{}.

complete(
    #{node := Node, fabric := Fabric, why := Why, state := State, landing_state := Landing} =
        Statistics
) ->
    #{
        direct_bytes_sent := DirectSent,
        bytes_sent := Sent,
        direct_bytes_received := DirectReceived,
        bytes_received := Received
    } = Statistics,
    Statistics#{
        node :=
            case Node of
                <<>> -> undefined;
                _ -> binary_to_atom(Node)
            end,
        fabric := binary_to_atom(Fabric),
        why := unicode:characters_to_list(Why),
        state := binary_to_atom(State),
        landing_state := binary_to_atom(Landing),
        percent_direct_sent => percent(DirectSent, Sent),
        percent_direct_received => percent(DirectReceived, Received)
    }.

percent(_Part, 0) -> 0.0;
percent(Part, Whole) -> 100 * Part / Whole.

%% The connections as a table for the shell, in the manner of inet:i/0. Empty if there is no
%% connection.
-spec table([inet_rdma:info()]) -> iodata().
table([]) -> [];
table(Infos) -> inet_rdma_text:table([header() | [row(Info) || Info <- Infos]], " ").

header() ->
    [
        "Node",
        "Fabric",
        "State",
        "Recv",
        "Recv Packets",
        "Sent",
        "Sent Packets",
        "Direct",
        "Queued",
        "Losses",
        "Resumes",
        "Moves",
        "Via",
        "Why"
    ].

row(#{node := Node, fabric := Fabric, why := Why} = Info) ->
    [
        name(Node),
        atom_to_list(Fabric),
        state(Info),
        number(bytes_received, Info),
        number(packets_received, Info),
        number(bytes_sent, Info),
        number(packets_sent, Info),
        direct(Info),
        number(bytes_pending, Info),
        number(losses, Info),
        number(resumes, Info),
        number(moves, Info),
        via(Info),
        Why
    ].

%% The state of a link, or of its path if that is not well.
-spec state(inet_rdma:info()) -> string().
state(#{suspended := true}) -> "suspended";
state(#{path_state := suspected}) -> "suspected";
state(#{state := State}) -> atom_to_list(State).

%% The node over which the link goes, or "?": a peer's word, of a node that this one has never heard
%% of.
-spec via(inet_rdma:info()) -> string().
via(#{detoured := true, via := undefined}) -> "?";
via(#{detoured := true, via := Via}) -> atom_to_list(Via);
via(#{}) -> "-".

%% A stream has no node.
name(undefined) -> "-";
name(Node) -> atom_to_list(Node).

number(Key, Info) ->
    case Info of
        #{Key := Number} -> integer_to_list(Number);
        #{} -> "-"
    end.

%% Share of direct transfers in the bytes of both directions. TCP has no direct transfers.
-spec direct(inet_rdma:info()) -> io_lib:chars().
direct(#{
    direct_bytes_sent := DirectSent,
    direct_bytes_received := DirectReceived,
    bytes_sent := Sent,
    bytes_received := Received
}) ->
    io_lib:format("~b%", [(DirectSent + DirectReceived) * 100 div max(1, Sent + Received)]);
direct(#{}) ->
    "-".

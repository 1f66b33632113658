%% Facts and counts of connections: links, streams, and links that stayed on TCP or TLS.
%%
%% Internal: use inet_rdma:info/0,1 and inet_rdma:getstat/1,2.
-module(inet_rdma_info).

-export([all/0, of_node/1, of_connection/1, keys/0, counts/2, link_counts/1]).

%% Every connection of this node, oldest first, and behind them the links that stayed on TCP or TLS.
-spec all() -> [inet_rdma:info()].
all() ->
    Native = case inet_rdma_nif:load() of
                 ok -> inet_rdma_nif:all_statistics();
                 {error, _} -> []
             end,
    Controllers = erlang:system_info(dist_ctrl),
    [queued(complete(Statistics), Controllers) || Statistics <- Native] ++ lists:append([stayed(Link) || Link <- inet_rdma_links:stayed()]).

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

%% The keys of counts/2, in the order of inet:getstat/1.
-spec keys() -> [atom()].
keys() ->
    [recv_oct, recv_cnt, recv_max, recv_avg, recv_dvi, send_oct, send_cnt, send_max, send_avg, send_pend].

%% The counts under the names of inet:getstat/2, in the order of Keys. einval: the connection is closed, or a key is unknown.
-spec counts(inet_rdma_nif:conn(), [atom()]) -> {ok, [{atom(), non_neg_integer()}]} | {error, einval}.
counts(Conn, Keys) ->
    Unknown = [Key || Key <- Keys, not lists:member(Key, keys())],
    case {inet_rdma_nif:statistics(Conn), inet_rdma_nif:posted(Conn), Unknown} of
        {#{} = Statistics, {_Sends, Pending, _Receives}, []} ->
            {ok, [{Key, statistic(Key, Statistics, Pending)} || Key <- Keys]};
        _ ->
            {error, einval}
    end.

%% The same of a link that has moved, from what all/0 says of it.
-spec link_counts(inet_rdma:info()) -> [{atom(), non_neg_integer()}].
link_counts(#{bytes_pending := Pending} = Statistics) ->
    [{Key, statistic(Key, Statistics, Pending)} || Key <- keys()].

statistic(recv_oct, #{packet_bytes_received := Bytes}, _Pending) -> Bytes;
statistic(recv_cnt, #{packets_received := Packets}, _Pending) -> Packets;
statistic(recv_max, #{largest_packet_received := Bytes}, _Pending) -> Bytes;
statistic(recv_avg, #{packet_bytes_received := Bytes, packets_received := Packets}, _Pending) -> average(Bytes, Packets);
statistic(recv_dvi, #{packet_deviation_received := Bytes}, _Pending) -> trunc(Bytes);
statistic(send_oct, #{bytes_sent := Bytes}, _Pending) -> Bytes;
statistic(send_cnt, #{packets_sent := Packets}, _Pending) -> Packets;
statistic(send_max, #{largest_packet_sent := Bytes}, _Pending) -> Bytes;
statistic(send_avg, #{bytes_sent := Bytes, packets_sent := Packets}, _Pending) -> average(Bytes, Packets);
statistic(send_pend, _Statistics, Pending) -> Pending.

average(_Bytes, 0) -> 0;
average(Bytes, Packets) -> Bytes div Packets.

%% A link that has moved: what waits in the queue of its port. The VM's controller of a node is the port of its newest link.
queued(#{node := Node, state := up} = Info, Controllers) when Node =/= undefined ->
    case [Port || {Name, Port} <- Controllers, Name =:= Node, is_port(Port)] of
        [Port] -> queued(Info, erlang:port_info(Port, name), erlang:port_info(Port, queue_size));
        [] -> Info
    end;
queued(Info, _Controllers) ->
    Info.

queued(Info, {name, Driver}, {queue_size, Bytes}) when Driver =/= "tcp_inet" -> Info#{bytes_pending => Bytes};
queued(Info, _Name, _Queued) -> Info.

%% A link that stayed on TCP or TLS: its socket's counts.
stayed({Node, Connection, Fabric, Why}) ->
    case inet_rdma_bootstrap:counts(Connection) of
        {ok, [ReceivedCount, Received, SentCount, Sent, Pending]} ->
            [#{node => binary_to_atom(Node), fabric => binary_to_atom(Fabric), why => unicode:characters_to_list(Why), state => up,
               packets_received => ReceivedCount, bytes_received => Received,
               packets_sent => SentCount, bytes_sent => Sent, bytes_pending => Pending}];
        {error, _} ->
            []
    end.

complete(#{node := Node, fabric := Fabric, why := Why, state := State, landing_state := Landing} = Statistics) ->
    #{direct_bytes_sent := DirectSent, bytes_sent := Sent,
      direct_bytes_received := DirectReceived, bytes_received := Received} = Statistics,
    Statistics#{node := case Node of <<>> -> undefined; _ -> binary_to_atom(Node) end,
                fabric := binary_to_atom(Fabric),
                why := unicode:characters_to_list(Why),
                state := binary_to_atom(State),
                landing_state := binary_to_atom(Landing),
                percent_direct_sent => percent(DirectSent, Sent),
                percent_direct_received => percent(DirectReceived, Received)}.

percent(_Part, 0) -> 0.0;
percent(Part, Whole) -> 100 * Part / Whole.

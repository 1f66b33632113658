%% The keys of inet_rdma:info/1, each once: inet_rdma_port, inet_rdma_info, the series of
%% inet_rdma_prometheus_collector and the struct InetRdma.Info with its type and docs derive from
%% this list.
-module(inet_rdma_counts).

-export([list/0, keys/1, kind/1, path_states/0, series/0]).
-export_type([row/0, kind/0, unit/0, origin/0, series/0]).

%% counter: an integer that only grows. gauge: an integer. float: a gauge that is no integer.
-type kind() :: counter | gauge | float | boolean | text | node | {one_of, [atom()]}.
-type unit() :: none | bytes | ms | us | percent.
%% Where the value comes from:
%%   every         every connection has it
%%   pair          a queue pair: inet_rdma_nif:statistics/1
%%   port          the port of a link: its command counts; where OTP's driver carries the link, inet:getstat/1
%%   session       the same command, of a link between two nodes with inet_rdma
%%   sealing, compression, round_trips
%%                 the port's command of that name, over TCP
%%   computed      inet_rdma_info or inet_rdma_transport, from other facts
-type origin() :: every | pair | port | session | sealing | compression | round_trips | computed.
%% A series of Prometheus, inet_rdma_NAME, and its labels besides peer. Keys with one series differ
%% in a label. Series have base units: seconds, bytes, ratios.
-type series() :: none | {Name :: atom(), Labels :: [{atom(), term()}]}.
-type row() :: {Key :: atom(), kind(), unit(), [origin()], series(), Meaning :: string()}.

-spec list() -> [row()].
list() ->
    %% What the connection is.
    [
        {id, gauge, none, [pair], none, "the connection's number on this node"},
        {peer, gauge, none, [pair], none, "the connection's number at the other end"},
        {node, node, none, [every, pair], none, "the node at the other end; of a stream none"},
        {fabric, {one_of, inet_rdma_options:fabrics(stream) ++ [tls]}, none, [every, pair], none,
            "what carries the connection; tcp or tls of a link that stayed there"},
        {why, text, none, [every, pair], none, "why the connection is over its fabric, in words"},
        {state, {one_of, [up, closed]}, none, [every, pair], none, "whether the connection is up"},
        {up_ms, gauge, ms, [computed], none, "of a link: time since it is up"},
        %% Bytes and packets; those of a link over all the paths that it had.
        {bytes_sent, counter, bytes, [every, pair, port], none, "user bytes sent"},
        {bytes_received, counter, bytes, [every, pair, port], none, "user bytes received"},
        {packets_sent, counter, none, [every, pair, port], none, "packets sent, ticks among them"},
        {packets_received, counter, none, [every, pair, port], none,
            "packets received, ticks among them"},
        {largest_packet_sent, gauge, bytes, [pair, port], none,
            "size of the largest packet sent, with its header"},
        {largest_packet_received, gauge, bytes, [pair, port], none,
            "size of the largest packet that was read, with its header"},
        {packet_bytes_received, counter, bytes, [pair, port], none,
            "bytes of the packets that were read, with headers"},
        {packet_deviation_received, float, bytes, [pair, port], none,
            "standard deviation of the sizes of packets that were read; where OTP's driver carries "
            "the link, what inet:getstat/1 has"},
        {bytes_pending, gauge, bytes, [port], none,
            "of a link: bytes that wait in its port, or over TCP in its socket"},
        %% The session of a link.
        {losses, counter, none, [session], {link_losses_total, []},
            "TCP connections that the link has lost"},
        {damages, counter, none, [session], {link_damages_total, []},
            "those of them that brought bytes which are not the peer's"},
        {resumes, counter, none, [session], {link_resumes_total, []},
            "TCP connections that replaced a lost one"},
        {moves, counter, none, [session], {link_moves_total, []},
            "moves of the link to a queue pair"},
        {suspicions, counter, none, [session], {link_suspicions_total, []},
            "times that a path of the link was suspected"},
        {false_suspicions, counter, none, [session], {link_false_suspicions_total, []},
            "suspicions that an answer over the same path has ended"},
        {path_state, {one_of, path_states()}, none, [computed], none,
            "carried; suspected: the peer's host owes an answer over the path in use; suspended: "
            "there is no path"},
        {mptcp, {one_of, [on, off, kernel, peer]}, none, [computed], none,
            "whether the link's TCP connection has MPTCP. off: the option says so; kernel: this "
            "host's kernel gives the node none; peer: the peer, or something on the way, has none"},
        {subflows, gauge, none, [session], none,
            "subflows of the link's TCP connection by MPTCP; 0: it is plain TCP, or there is none"},
        {bytes_unacknowledged, gauge, bytes, [session], {link_unacknowledged_bytes, []},
            "bytes kept until the peer acknowledges them"},
        {window_bytes, gauge, bytes, [session], {link_window_bytes, []},
            "bytes that TCP may have under way before the peer acknowledges them"},
        {window_limits, counter, none, [session], {link_window_limits_total, []},
            "times that the path could take a larger window than the bounds of the link and of the "
            "nodes allow"},
        {suspended, boolean, none, [computed], {link_suspended, []},
            "whether no path carries the link: its connection is lost, and not restored yet"},
        {detoured, boolean, none, [computed], {link_detoured, []},
            "whether the link's TCP connection goes over another node"},
        {via, node, none, [computed], none, "that node"},
        {detours, counter, none, [computed], none,
            "times that the link began to go over another node"},
        {suspended_ms, counter, ms, [port], {link_suspended_seconds_total, []},
            "time for which no path carried the link"},
        %% Round trips over TCP between two nodes with inet_rdma, one in a second at most.
        {round_trip_p50_us, gauge, us, [round_trips],
            {link_round_trip_seconds, [{quantile, <<"0.5">>}]},
            "median of the round trips over TCP in the last minute"},
        {round_trip_p99_us, gauge, us, [round_trips],
            {link_round_trip_seconds, [{quantile, <<"0.99">>}]},
            "99th percentile of the round trips over TCP in the last minute"},
        {round_trip_max_us, gauge, us, [round_trips],
            {link_round_trip_seconds, [{quantile, <<"1">>}]},
            "longest round trip over TCP in the last minute"},
        {round_trips, counter, none, [round_trips], none,
            "round trips that were measured since the link is up"},
        {round_trip_up_p50_us, gauge, us, [round_trips], none,
            "median of the round trips since the link is up"},
        {round_trip_up_p99_us, gauge, us, [round_trips], none,
            "99th percentile of the round trips since the link is up"},
        {round_trip_up_max_us, gauge, us, [round_trips], none,
            "longest round trip since the link is up"},
        %% Compression of a link, over all TCP connections that it had.
        {plain_bytes_sent, counter, bytes, [compression],
            {link_plain_bytes_total, [{direction, send}]}, "sent bytes before compression"},
        {plain_bytes_received, counter, bytes, [compression],
            {link_plain_bytes_total, [{direction, recv}]}, "received bytes after decompression"},
        {wire_bytes_sent, counter, bytes, [compression],
            {link_wire_bytes_total, [{direction, send}]}, "sent bytes after compression"},
        {wire_bytes_received, counter, bytes, [compression],
            {link_wire_bytes_total, [{direction, recv}]}, "received bytes before decompression"},
        {compress_us, counter, us, [compression],
            {link_compression_seconds_total, [{direction, send}]}, "time of compression"},
        {decompress_us, counter, us, [compression],
            {link_compression_seconds_total, [{direction, recv}]}, "time of decompression"},
        %% Encryption by records.
        {cipher, {one_of, [none, aes_256_gcm, chacha20_poly1305]}, none, [pair, sealing], none,
            "how the connection is encrypted; none: not by inet_rdma"},
        {key_generation, gauge, none, [pair, sealing], none, "number of this side's present key"},
        {key_records, gauge, none, [pair, sealing], none,
            "records sealed under this side's present key"},
        {key_bytes, gauge, bytes, [pair, sealing], none,
            "bytes sealed under this side's present key"},
        {peer_key_generation, gauge, none, [pair, sealing], none,
            "number of the oldest key that records are taken under"},
        %% Transfers of a queue pair: of a link, of the one that carries it now. Counts with a
        %% series are over all the queue pairs that a link had, as those of a series only grow.
        {direct_transfers_sent, counter, none, [pair], none,
            "transfers into landing buffers of the peer"},
        {direct_transfers_received, counter, none, [pair], none,
            "transfers into landing buffers of this side"},
        {direct_bytes_sent, counter, bytes, [pair], none,
            "bytes sent into landing buffers of the peer"},
        {direct_bytes_received, counter, bytes, [pair], none,
            "bytes received in landing buffers of this side"},
        {indirect_transfers_sent, counter, none, [pair], none, "transfers through the peer's ring"},
        {indirect_transfers_received, counter, none, [pair], none,
            "transfers through this side's ring"},
        {indirect_bytes_sent, counter, bytes, [pair], none, "bytes sent through the peer's ring"},
        {indirect_bytes_received, counter, bytes, [pair], none,
            "bytes received through this side's ring"},
        {percent_direct_sent, float, percent, [computed], {link_direct_ratio, [{direction, send}]},
            "share of the sent bytes that were written straight into landing buffers"},
        {percent_direct_received, float, percent, [computed],
            {link_direct_ratio, [{direction, recv}]},
            "share of the received bytes that were written straight into landing buffers"},
        {phase_switches, counter, none, [pair], none, "changes between direct and indirect"},
        {credit_stalls, counter, none, [pair, port], {link_credit_stalls_total, []},
            "transfers that waited for a free receive slot of the peer"},
        {adverts_sent, counter, none, [pair], none,
            "landing buffers that were advertised to the peer"},
        {adverts_received, counter, none, [pair], none,
            "landing buffers that the peer has advertised"},
        {adverts_stale, counter, none, [pair], none,
            "advertisements that came too late to be used"},
        {controls_sent, counter, none, [pair], none, "control messages sent"},
        {controls_received, counter, none, [pair], none, "control messages received"},
        {wakeups_sent, counter, none, [pair, port], {link_wakeups_total, [{direction, send}]},
            "wake-ups of the peer that cost a system call; over verbs 0, as its own device wakes "
            "it"},
        {wakeups_received, counter, none, [pair, port], {link_wakeups_total, [{direction, recv}]},
            "wake-ups of this node that cost a system call"},
        {polls, counter, none, [pair], none, "polls of the receive queue"},
        %% Work of the device; over shm 0.
        {sends_posted, counter, none, [pair], none, "work requests that were posted to be sent"},
        {post_recv_calls, counter, none, [pair], none, "calls that posted receives"},
        {completions, counter, none, [pair], none, "completions taken"},
        {events_armed, counter, none, [pair], none, "events of completion queues asked for"},
        %% Memory of a queue pair.
        {ring_size_bytes, gauge, bytes, [pair], none, "size of the ring"},
        {ring_used, gauge, bytes, [pair], none, "bytes in the ring"},
        {landing_count, gauge, none, [pair], none,
            "landing buffers that there are now; links have none"},
        {landing_used, gauge, none, [pair], none,
            "landing buffers that are advertised or hold data"},
        {landing_state, {one_of, [unused, claimed, ready, refused]}, none, [pair], none,
            "whether landing buffers have memory; claimed: it is on its way; refused: the system "
            "gives none for now"},
        {landing_refusals, counter, none, [pair], none,
            "how often the system refused memory for landing buffers"},
        {safeguard, {one_of, [windows, trusted, none]}, none, [pair], none,
            "why packets may be handed over without a copy. windows: the peer can no longer write "
            "there; trusted: a peer of the same user, or the option zero_copy is always; none: "
            "packets are copied"},
        {zero_copy_packets, counter, none, [pair], none, "packets handed over without a copy"},
        {pinned_bytes, gauge, bytes, [pair], {link_pinned_bytes, []},
            "memory pinned for the RDMA device"},
        {node_pinned_bytes, gauge, bytes, [pair], none,
            "memory pinned by all connections of this node, which the option pinned_max_bytes "
            "bounds"}
    ].

%% In the order of the port's numbers (native/link/port/src/link/counts.rs). The names are those of
%% its notices.
-spec path_states() -> [carried | suspected | suspended].
path_states() -> [carried, suspected, suspended].

-spec keys(origin()) -> [atom()].
keys(Origin) -> [Key || {Key, _, _, Origins, _, _} <- list(), lists:member(Origin, Origins)].

%% undefined: the key is no number of a port's link.
-spec kind(atom()) -> kind() | undefined.
kind(Key) ->
    case lists:keyfind(Key, 1, list()) of
        {_, Kind, _, _, _, _} -> Kind;
        false -> undefined
    end.

%% Each series once, in the order of list/0: its type, its help, and the keys with their labels and
%% the units to divide by.
-spec series() ->
    [
        {Name :: atom(), counter | gauge, Help :: string(), [
            {Key :: atom(), Labels :: [{atom(), term()}], Divisor :: pos_integer()}
        ]}
    ].
series() ->
    Rows = [Row || {_, _, _, _, {_, _}, _} = Row <- list()],
    Names = lists:uniq([Name || {_, _, _, _, {Name, _}, _} <- Rows]),
    [series(Name, [Row || {_, _, _, _, {Of, _}, _} = Row <- Rows, Of =:= Name]) || Name <- Names].

series(Name, [{_, Kind, _, _, _, _} | _] = Rows) ->
    Type =
        case Kind of
            counter -> counter;
            _ -> gauge
        end,
    Help = lists:join("; ", [help(Labels, Meaning) || {_, _, _, _, {_, Labels}, Meaning} <- Rows]),
    {Name, Type, lists:append(Help), [
        {Key, Labels, divisor(Unit)}
     || {Key, _, Unit, _, {_, Labels}, _} <- Rows
    ]}.

help([], Meaning) -> Meaning;
help([{_, Value}], Meaning) -> lists:flatten(io_lib:format("~s: ~s", [Value, Meaning])).

divisor(ms) -> 1000;
divisor(us) -> 1000000;
divisor(percent) -> 100;
divisor(_) -> 1.

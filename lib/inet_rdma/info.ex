defmodule InetRdma.Info do
  @moduledoc """
  What one connection is and did, from `:inet_rdma.info/0,1`.

  * `id` - the connection's number on this node; `peer` - its number at the other end; `node` - the node there, `nil`
    for a plain socket; `fabric` - what carries it, `:shm`, `:verbs` or, of a socket, `:tcp`; `:tcp` or `:tls` for a
    link that stayed there; `why` - why that fabric, and the way, as a string; `state` - `:up` or `:closed`
  * `bytes_sent`, `bytes_received`, `packets_sent`, `packets_received` - user bytes and packets
  * `largest_packet_sent`, `largest_packet_received`, `packet_bytes_received`, `packet_deviation_received` - sizes of
    packets with their headers, in bytes; those received of packets that were read; the deviation is the standard one,
    and that of `inet:getstat/1` for a link that inet_tcp's port driver carries. `nil` for one on TLS
  * `direct_transfers_*`, `direct_bytes_*` - went straight into an advertised buffer;
    `indirect_transfers_*`, `indirect_bytes_*` - went through the ring
  * `percent_direct_sent`, `percent_direct_received` - share of the bytes that went direct
  * `phase_switches` - changes between direct and indirect; `credit_stalls` - how often the sender had to wait for room
  * `adverts_sent`, `adverts_received`, `adverts_stale` - buffers advertised, and those that came too late to be used;
    `controls_sent`, `controls_received` - all control messages
  * `wakeups_sent`, `wakeups_received`, `polls` - how the two sides noticed each other; over verbs a peer is woken by
    its own device, so `wakeups_sent` stays 0
  * `sends_posted`, `receives_posted`, `completions`, `events_armed` - what was asked of an RDMA device: sends, calls
    that posted receives, completions taken, events asked for; 0 over shm
  * `cipher` - `:none`, or how the stream is encrypted; `key_generation`, `key_records`, `key_bytes` - this side's
    present key and what was sealed under it; `peer_key_generation` - the oldest key that records are taken under
  * `ring_bytes`, `ring_used` - size and fill of the ring, in bytes; `landing_buffers`, `landing_used` - how many
    landing buffers there are now, and how many are advertised or hold data; `landing_state` - `:unused`, `:claimed`
    (memory for them is on its way), `:ready` or `:refused` (the system gives none for now: bulk goes through the ring);
    `landing_refusals` - how often it was refused. Links have no landing buffers
  * `zero_copy` - why what has landed may be handed over without a copy: `:windows` (the peer cannot write there any
    more), `:trusted` (a peer of the same user, or `zero_copy` is `always`), or `:none`: it is copied out;
    `zero_copy_packets` - packets handed over so
  * `pinned_bytes` - memory that is pinned for an RDMA device; `node_pinned_bytes` - that of all connections of this
    node, which the option `pinned_max_bytes` bounds
  * `bytes_pending` - of a link: what waits in its port, or over TCP in its socket; `nil` for a plain socket
  * `up_ms` - of a link: for how many milliseconds it has been there
  * `losses`, `resumes`, `moves` - of a link whose session outlives its connections: TCP connections that were lost,
    those that were made anew, and changes to a queue pair; `bytes_unacknowledged` - what its log keeps; `suspended` -
    whether no path carries it: its connection is lost, and not restored yet
  * `plain_bytes_sent`, `wire_bytes_sent`, `compress_us` - of a link that compresses, over its present TCP connection:
    bytes before and after compression, and the time that it took; `plain_bytes_received`, `wire_bytes_received`,
    `decompress_us` - the same of what the peer compresses

  * `suspended_ms` - of a link: for how long no path carried it, all in all
  * `round_trips`, `round_trip_p50_us`, `round_trip_p99_us`, `round_trip_max_us` - of a link over TCP between two nodes
    with inet_rdma: how many were measured since it is up, and microseconds of those in the last minute;
    `round_trip_up_p50_us`, `round_trip_up_p99_us`, `round_trip_up_max_us` - the same since it is up. At most one in a
    second

  Of a link bytes, packets and their sizes are counted over all the paths that it had. A link over TCP has `node`,
  `fabric`, `why`, `state`, these counts, `bytes_pending`, `up_ms` and, if it has a session, the fields of that; the
  other fields are `nil`.
  """

  @counters [
    :bytes_sent,
    :bytes_received,
    :packets_sent,
    :packets_received,
    :largest_packet_sent,
    :largest_packet_received,
    :packet_bytes_received,
    :packet_deviation_received,
    :direct_transfers_sent,
    :direct_transfers_received,
    :indirect_transfers_sent,
    :indirect_transfers_received,
    :direct_bytes_sent,
    :direct_bytes_received,
    :indirect_bytes_sent,
    :indirect_bytes_received,
    :phase_switches,
    :credit_stalls,
    :adverts_sent,
    :adverts_received,
    :adverts_stale,
    :controls_sent,
    :controls_received,
    :wakeups_sent,
    :wakeups_received,
    :polls,
    :sends_posted,
    :receives_posted,
    :completions,
    :events_armed,
    :cipher,
    :key_generation,
    :key_records,
    :key_bytes,
    :peer_key_generation,
    :ring_bytes,
    :ring_used,
    :landing_buffers,
    :landing_used,
    :landing_refusals,
    :zero_copy_packets,
    :pinned_bytes,
    :node_pinned_bytes,
    :bytes_pending,
    :up_ms,
    :losses,
    :resumes,
    :moves,
    :bytes_unacknowledged,
    :plain_bytes_sent,
    :wire_bytes_sent,
    :compress_us,
    :plain_bytes_received,
    :wire_bytes_received,
    :decompress_us,
    :suspended_ms,
    :round_trips,
    :round_trip_p50_us,
    :round_trip_p99_us,
    :round_trip_max_us,
    :round_trip_up_p50_us,
    :round_trip_up_p99_us,
    :round_trip_up_max_us
  ]

  defstruct [
    :id,
    :node,
    :fabric,
    :why,
    :state,
    :peer,
    :landing_state,
    :zero_copy,
    :suspended,
    :percent_direct_sent,
    :percent_direct_received | @counters
  ]

  @type t :: %__MODULE__{
          id: pos_integer() | nil,
          node: node() | nil,
          fabric: :shm | :verbs | :tcp | :tls,
          why: String.t(),
          state: :up | :closed,
          peer: non_neg_integer() | nil,
          bytes_sent: non_neg_integer(),
          bytes_received: non_neg_integer(),
          packets_sent: non_neg_integer(),
          packets_received: non_neg_integer(),
          largest_packet_sent: non_neg_integer() | nil,
          largest_packet_received: non_neg_integer() | nil,
          packet_bytes_received: non_neg_integer() | nil,
          packet_deviation_received: number() | nil,
          direct_transfers_sent: non_neg_integer() | nil,
          direct_transfers_received: non_neg_integer() | nil,
          indirect_transfers_sent: non_neg_integer() | nil,
          indirect_transfers_received: non_neg_integer() | nil,
          direct_bytes_sent: non_neg_integer() | nil,
          direct_bytes_received: non_neg_integer() | nil,
          indirect_bytes_sent: non_neg_integer() | nil,
          indirect_bytes_received: non_neg_integer() | nil,
          percent_direct_sent: number() | nil,
          percent_direct_received: number() | nil,
          phase_switches: non_neg_integer() | nil,
          credit_stalls: non_neg_integer() | nil,
          adverts_sent: non_neg_integer() | nil,
          adverts_received: non_neg_integer() | nil,
          adverts_stale: non_neg_integer() | nil,
          controls_sent: non_neg_integer() | nil,
          controls_received: non_neg_integer() | nil,
          wakeups_sent: non_neg_integer() | nil,
          wakeups_received: non_neg_integer() | nil,
          polls: non_neg_integer() | nil,
          sends_posted: non_neg_integer() | nil,
          receives_posted: non_neg_integer() | nil,
          completions: non_neg_integer() | nil,
          events_armed: non_neg_integer() | nil,
          cipher: :none | :aes_256_gcm | :chacha20_poly1305 | nil,
          key_generation: non_neg_integer() | nil,
          key_records: non_neg_integer() | nil,
          key_bytes: non_neg_integer() | nil,
          peer_key_generation: non_neg_integer() | nil,
          ring_bytes: non_neg_integer() | nil,
          ring_used: non_neg_integer() | nil,
          landing_buffers: non_neg_integer() | nil,
          landing_used: non_neg_integer() | nil,
          landing_state: :unused | :claimed | :ready | :refused | nil,
          landing_refusals: non_neg_integer() | nil,
          zero_copy: :windows | :trusted | :none | nil,
          zero_copy_packets: non_neg_integer() | nil,
          pinned_bytes: non_neg_integer() | nil,
          node_pinned_bytes: non_neg_integer() | nil,
          bytes_pending: non_neg_integer() | nil,
          up_ms: non_neg_integer() | nil,
          losses: non_neg_integer() | nil,
          resumes: non_neg_integer() | nil,
          moves: non_neg_integer() | nil,
          bytes_unacknowledged: non_neg_integer() | nil,
          plain_bytes_sent: non_neg_integer() | nil,
          wire_bytes_sent: non_neg_integer() | nil,
          compress_us: non_neg_integer() | nil,
          plain_bytes_received: non_neg_integer() | nil,
          wire_bytes_received: non_neg_integer() | nil,
          decompress_us: non_neg_integer() | nil,
          suspended_ms: non_neg_integer() | nil,
          round_trips: pos_integer() | nil,
          round_trip_p50_us: non_neg_integer() | nil,
          round_trip_p99_us: non_neg_integer() | nil,
          round_trip_max_us: non_neg_integer() | nil,
          round_trip_up_p50_us: non_neg_integer() | nil,
          round_trip_up_p99_us: non_neg_integer() | nil,
          round_trip_up_max_us: non_neg_integer() | nil,
          suspended: boolean() | nil
        }

  @doc """
  Makes the struct from the Erlang map. Erlang says `undefined` where Elixir says `nil`, and texts are strings here.
  """
  @spec new(map()) :: t()
  def new(info) when is_map(info) do
    struct(__MODULE__, Map.new(info, fn {key, value} -> {key, elixir(value)} end))
  end

  defp elixir(:undefined), do: nil
  defp elixir(text) when is_list(text), do: List.to_string(text)
  defp elixir(value), do: value
end

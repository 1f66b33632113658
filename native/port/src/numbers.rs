//! Numbers that a link's port answers with, by their keys in `inet_rdma:info/1`. The carrier's module
//! `inet_rdma_counts` has the kind and the meaning of each; `errors_SUITE` compares both lists.

/// Numbers in one answer: the VM's buffer has 64 bytes.
pub(crate) const ANSWER_NUMBERS: usize = 8;
/// Stands for a number that is unknown: the carrier leaves its key out.
pub(crate) const UNKNOWN: u64 = u64::MAX;

/// How the TCP connection is sealed.
pub(crate) const SEALING: [&str; 5] = [
    "cipher",
    "key_generation",
    "key_records",
    "key_bytes",
    "peer_key_generation",
];
/// The counts of compression over the TCP connection.
pub(crate) const COMPRESSION: [&str; 6] = [
    "plain_bytes_sent",
    "wire_bytes_sent",
    "compress_us",
    "plain_bytes_received",
    "wire_bytes_received",
    "decompress_us",
];
/// Round trips over TCP, in the last minute and since the link is up.
pub(crate) const ROUND_TRIPS: [&str; 7] = [
    "round_trip_p50_us",
    "round_trip_p99_us",
    "round_trip_max_us",
    "round_trips",
    "round_trip_up_p50_us",
    "round_trip_up_p99_us",
    "round_trip_up_max_us",
];
const _: () = assert!(
    SEALING.len() <= ANSWER_NUMBERS && COMPRESSION.len() <= ANSWER_NUMBERS && ROUND_TRIPS.len() <= ANSWER_NUMBERS
);

%% The options of inet_rdma as the tests know them, apart from the carrier's own list: values that work, extremes, and
%% values that must be refused.
-module(inet_rdma_test_options).

-export([keys/0, smallest/1, good/1, bad/1]).

-spec keys() -> [atom()].
keys() ->
    [
        fabric, required, security, encrypt_shm, rekey_bytes, rekey_seconds, compress, move, move_back_ms, survive_ms,
        dead_after_ms, fallback_retry_ms, shm_directory, shm_allowed_uids, mode, ring_bytes, receive_slots,
        landing_buffers, landing_bytes, pinned_max_bytes, direct_bytes, zero_copy, packet_max_bytes, polling, spin_us,
        polling_threads, call_bytes, sends_max, receives_max, connect_timeout_ms, backlog, ack_timeout_ms,
        type_of_service, flight_recorder, flight_bytes, flight_directory
    ].

%% The smallest value that is accepted.
-spec smallest(atom()) -> integer().
smallest(rekey_bytes) -> 65536;
smallest(rekey_seconds) -> 0;
smallest(move_back_ms) -> 0;
smallest(survive_ms) -> 0;
smallest(dead_after_ms) -> 0;
smallest(fallback_retry_ms) -> 0;
smallest(ring_bytes) -> 4096;
smallest(receive_slots) -> 16;
smallest(landing_buffers) -> 0;
smallest(landing_bytes) -> 4096;
smallest(pinned_max_bytes) -> 0;
smallest(direct_bytes) -> 8192;
smallest(packet_max_bytes) -> 65536;
smallest(spin_us) -> 0;
smallest(polling_threads) -> 1;
smallest(call_bytes) -> 4096;
smallest(sends_max) -> 1;
smallest(receives_max) -> 1;
smallest(connect_timeout_ms) -> 1;
smallest(backlog) -> 1;
smallest(ack_timeout_ms) -> 0;
smallest(type_of_service) -> 0;
smallest(flight_bytes) -> 65536.

%% Values that a pair of nodes works with: one node has the first, the other the last.
-spec good(atom()) -> [term(), ...].
%% verbs: only on a machine with a device, see options_SUITE.
good(fabric) -> [auto, shm, tcp];
good(required) -> [true, false];
%% tls needs certificates, which tls_SUITE has.
good(security) -> [none];
good(encrypt_shm) -> [true, false];
good(rekey_bytes) -> [65536, 1 bsl 37];
good(rekey_seconds) -> [0, 1, 31536000];
good(compress) -> [true, false, auto];
good(move) -> [eager, busy, never];
good(move_back_ms) -> [0, 100, 86400000];
good(survive_ms) -> [0, 15000, 3600000];
good(dead_after_ms) -> [0, 500, 3600000];
good(fallback_retry_ms) -> [0, 60000, 86400000];
%% neighbours_SUITE has pairs that need it.
good(shm_directory) -> [none, <<"/tmp">>];
good(shm_allowed_uids) -> [[], [0], [1, 1000]];
%% direct_only works with a peer of the same mode only, which transfer_SUITE tries.
good(mode) -> [dynamic, indirect_only];
good(ring_bytes) -> [4096, 10000, 1 bsl 24];
good(receive_slots) -> [16, 100, 32768];
good(landing_buffers) -> [0, 1, 256];
good(landing_bytes) -> [4096, 70000, 1 bsl 20];
good(pinned_max_bytes) -> [0, 1 bsl 23, 1 bsl 60];
good(direct_bytes) -> [8192, 16384, 1 bsl 30];
good(packet_max_bytes) -> [1 bsl 20, 2147483647];
good(zero_copy) -> [auto, windows, always, never];
good(polling) -> [adaptive, event, busy];
good(spin_us) -> [0, 50, 500];
good(polling_threads) -> [1, 4];
good(call_bytes) -> [4096, 1 bsl 20];
good(sends_max) -> [1, 4096];
good(receives_max) -> [1, 4096];
good(connect_timeout_ms) -> [1000, 60000];
good(backlog) -> [1, 4096];
good(ack_timeout_ms) -> [0, 60000];
good(type_of_service) -> [0, 255];
good(flight_recorder) -> [true, false];
good(flight_bytes) -> [65536, 1 bsl 22];
good(flight_directory) -> [default].

%% Values that are refused, as text of the command line.
-spec bad(atom()) -> [string(), ...].
bad(fabric) -> ["sctp", "7"];
bad(required) -> ["perhaps", "1"];
bad(security) -> ["ssl", "true"];
bad(encrypt_shm) -> ["always"];
bad(move) -> ["sometimes"];
bad(compress) -> ["sometimes", "zstd"];
bad(mode) -> ["sometimes"];
bad(zero_copy) -> ["sometimes"];
bad(polling) -> ["never"];
bad(dead_after_ms) -> ["1", "499", "3600001", "many"];
bad(flight_recorder) -> ["sometimes"];
bad(flight_directory) -> ["relative/path", "7"];
bad(shm_directory) -> ["relative", "/a/../b", "/a/."];
bad(shm_allowed_uids) -> ["root", "4294967295", "1,x"];
%% erl would take a negative number for a flag of its own.
bad(Key) -> [integer_to_list(smallest(Key) - 1) || smallest(Key) > 0] ++ ["many", "99999999999999999999"].

//! The native functions of inet_rdma for the BEAM: decode, call the native library, encode. No protocol, no policy.
//!
//! No function here blocks or runs longer than its byte cap allows. A function that opens a listener or asks for
//! devices makes a few system calls and runs on a dirty I/O scheduler; waiting for a peer takes a thread of its own
//! (`attempt`). A panic becomes an exception of the caller (rustler's boundary), or ends its connection (polling
//! threads).

mod attempt;
mod clocks;
mod config;
mod connection;
mod cookie;
#[cfg(feature = "verbs")]
mod doctor;
#[cfg(not(feature = "verbs"))]
#[path = "doctor_left_out.rs"]
mod doctor;
mod flight;
mod identity;
mod interface;
mod kept_term;
mod link;
mod listener;
mod messages;
mod multipath;
mod names;
mod packets;
mod posting;
mod protection;
mod receipt;
mod refusals;
mod registry;
mod statistics;
mod terms;
mod timeslice;
mod tls_owner;
mod transfer;
mod user;
mod witness;

/// All atoms that Erlang and this library exchange.
mod atoms {
    #![allow(missing_docs, reason = "an atom's name is all there is to say")]
    rustler::atoms! {
        ok, error, more, empty, blocked, closed, up, infinity, once, passive, raw, length1, length2, length4, line,
        event = "$inet_rdma", readable, writable, acceptable, connected, waiting,
        inet_rdma_sent, inet_rdma_received, too_late,
        inet_rdma, inet_rdma_closed, inet_rdma_error, inet_rdma_passive,
        none, trusted, windows, verbs, log, warning, einval, badarg, emsgsize, enobufs, no_memory,
        cipher, send_key, receive_key, rekey_bytes, rekey_seconds, aes_256_gcm, chacha20_poly1305, ended, tls_gone,
        tls_bytes, failed, written, present, absent,
    }
}

rustler::init!("inet_rdma_nif", load = interface::fits);

//! Counts for `inet_rdma:info/1` and `inet_rdma:getstat/1`.

use inet_rdma_engine::VerbsFabric;
use inet_rdma_engine::connection::LandingState;
use inet_rdma_fabric::Safeguard;
use inet_rdma_records::Usage;
use rustler::{Encoder, Env, ResourceArc, Term};

use crate::atoms;
use crate::connection::ConnectionResource;
use crate::protection::cipher_atom;
use crate::registry::{self, Registered};
use crate::terms;

/// The keys of origin `pair` in the carrier's `inet_rdma_counts`, which says what each means.
fn counts<'a>(env: Env<'a>, registered: &Registered) -> Term<'a> {
    let connection = &registered.connection;
    let all = connection.statistics();
    let stream = all.stream;
    let qp = connection.queue_pair();
    let posted = qp.counts();
    let sealed = connection.sealed_by();
    let usage = sealed.map_or_else(Usage::default, |sealed| sealed.usage);
    let safeguard = match all.safeguard {
        Safeguard::Trust => atoms::trusted(),
        Safeguard::Windows => atoms::windows(),
        Safeguard::None => atoms::none(),
    };
    let state = if connection.closed().is_none() { "up" } else { "closed" };
    let rows: &[(&str, &dyn Encoder)] = &[
        ("id", &registered.id),
        ("node", &registered.node),
        ("state", &state),
        ("fabric", &qp.fabric().name()),
        ("why", &registered.why),
        ("peer", &u64::from(qp.remote_hello().connection_id)),
        ("bytes_sent", &(stream.direct_bytes_sent + stream.indirect_bytes_sent)),
        (
            "bytes_received",
            &(stream.direct_bytes_received + stream.indirect_bytes_received),
        ),
        ("packets_sent", &all.packets_sent),
        ("packets_received", &all.packets_received),
        ("largest_packet_sent", &all.largest_packet_sent),
        ("largest_packet_received", &all.largest_packet_received),
        ("packet_bytes_received", &all.packet_bytes_received),
        ("packet_deviation_received", &all.packet_deviation_received),
        ("direct_transfers_sent", &stream.direct_transfers_sent),
        ("indirect_transfers_sent", &stream.indirect_transfers_sent),
        ("direct_bytes_sent", &stream.direct_bytes_sent),
        ("indirect_bytes_sent", &stream.indirect_bytes_sent),
        ("direct_transfers_received", &stream.direct_transfers_received),
        ("indirect_transfers_received", &stream.indirect_transfers_received),
        ("direct_bytes_received", &stream.direct_bytes_received),
        ("indirect_bytes_received", &stream.indirect_bytes_received),
        (
            "phase_switches",
            &(stream.phase_switches_sent + stream.phase_switches_received),
        ),
        ("credit_stalls", &stream.credit_stalls),
        ("adverts_sent", &stream.adverts_sent),
        ("adverts_received", &stream.adverts_received),
        ("adverts_stale", &stream.adverts_stale),
        ("controls_sent", &stream.controls_sent),
        ("controls_received", &stream.controls_received),
        ("wakeups_sent", &all.wakeups_sent),
        ("wakeups_received", &all.wakeups_received),
        ("polls", &all.polls),
        ("sends_posted", &posted.sends_posted),
        ("post_recv_calls", &posted.post_recv_calls),
        ("completions", &posted.completions),
        ("events_armed", &posted.events_armed),
        ("safeguard", &safeguard),
        ("zero_copy_packets", &all.zero_copy_packets),
        (
            "cipher",
            &sealed.map_or(atoms::none(), |sealed| cipher_atom(sealed.cipher)),
        ),
        ("key_generation", &usage.generation),
        ("key_records", &usage.records),
        ("key_bytes", &usage.bytes),
        (
            "peer_key_generation",
            &sealed.map_or(0, |sealed| sealed.receive_generation),
        ),
        ("ring_size_bytes", &all.ring_size_bytes),
        ("ring_used", &all.ring_used),
        ("landing_count", &all.landing_count),
        ("landing_used", &all.landing_used),
        ("landing_state", &landing_state(all.landing_state)),
        ("landing_refusals", &all.landing_refusals),
        ("pinned_bytes", &qp.pinned_bytes()),
        ("node_pinned_bytes", &VerbsFabric.pinned_bytes()),
    ];
    terms::map(env, rows)
}

fn landing_state(state: LandingState) -> &'static str {
    match state {
        LandingState::Unused => "unused",
        LandingState::Claimed => "claimed",
        LandingState::Ready => "ready",
        LandingState::Refused => "refused",
    }
}

/// `statistics(Conn) -> Map | closed`
#[rustler::nif]
fn statistics<'a>(env: Env<'a>, conn: ResourceArc<ConnectionResource>) -> Term<'a> {
    match conn.open() {
        Some(open) => counts(env, &open.registered),
        None => atoms::closed().encode(env),
    }
}

/// `all_statistics() -> [Map]`, oldest connection first.
#[rustler::nif]
fn all_statistics(env: Env<'_>) -> Vec<Term<'_>> {
    let all = registry::all();
    all.iter().map(|registered| counts(env, registered)).collect()
}

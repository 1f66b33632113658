//! Errors as Erlang terms; no other module encodes them. `inet_rdma_error` has the texts.

use inet_rdma_engine::attempt::AttemptError;
use inet_rdma_engine::connection::{Closed, ContentsViolation};
use inet_rdma_fabric::{DirectoryFault, Errno, FabricError, Lack, Misbehaviour, Rejection, Tried};
use inet_rdma_port::errno_name;
use inet_rdma_records::Violation as RecordViolation;
use inet_rdma_socket::stream_socket::Refused;
use inet_rdma_stream::{LimitsError, PROTOCOL_VERSION, RemoteAddress, Violation, WireError};
use rustler::types::atom::Atom;
use rustler::types::tuple::make_tuple;
use rustler::{Encoder, Env, Term};

use crate::atoms;

/// Makes a function that encodes an enum's variants as an atom, or as a tuple of an atom and the variant's fields; and
/// the list of these shapes, from which a test makes each term. A variant that is missing here does not compile.
macro_rules! shapes {
    (
        $(#[$doc:meta])*
        $visibility:vis fn $encode:ident($env:ident, $type:ty), $shapes:ident {
            $($pattern:pat => $name:ident $(($($field:expr),+))?,)+
        }
        $(via { $($inner:pat => $call:expr,)+ })?
    ) => {
        $(#[$doc])*
        $visibility fn $encode<'a>($env: Env<'a>, error: &$type) -> Term<'a> {
            match error {
                $($pattern => shape($env, stringify!($name), &[$($($field.encode($env)),+)?]),)+
                $($($inner => $call,)+)?
            }
        }

        const $shapes: &[(&str, usize)] = &[
            $((stringify!($name), <[&str]>::len(&[$($(stringify!($field)),+)?])),)+
        ];
    };
}

fn shape<'a>(env: Env<'a>, name: &str, fields: &[Term<'a>]) -> Term<'a> {
    let name = atom(env, name);
    match fields {
        [] => name,
        fields => make_tuple(env, &[&[name], fields].concat()),
    }
}

pub fn atom<'a>(env: Env<'a>, name: &str) -> Term<'a> {
    let made = Atom::from_bytes(env, name.as_bytes());
    made.expect("names of errors are ASCII, and shorter than 256 bytes")
        .to_term(env)
}

/// A map of these values by their keys, each of which is there once.
pub fn map<'a>(env: Env<'a>, rows: &[(&str, &dyn Encoder)]) -> Term<'a> {
    let rows: Vec<_> = rows
        .iter()
        .map(|(key, value)| (atom(env, key), value.encode(env)))
        .collect();
    Term::map_from_pairs(env, &rows).expect("each key once")
}

/// The operation that failed, as an atom: the words of its name, joined by underscores.
fn doing<'a>(env: Env<'a>, words: &'static str) -> Term<'a> {
    atom(env, &words.replace(' ', "_"))
}

fn posix(env: Env<'_>, errno: Errno) -> Term<'_> {
    atom(env, errno_name(errno.0))
}

fn place(target: &RemoteAddress) -> (u64, u64) {
    (target.key, target.address)
}

shapes! {
    /// Why a connection ended, as a reason.
    pub fn closed(env, Closed), CLOSED {
        Closed::Here | Closed::ByPeer => closed,
        Closed::PeerGone => peer_gone,
        Closed::PeerMisbehaved(how) => peer_misbehaved(misbehaviour(env, how)),
        Closed::RecordsViolated(how) => peer_misbehaved(record_violation(env, how)),
        Closed::ContentsViolated(how) => peer_misbehaved(contents_violation(env, how)),
        Closed::TlsGone => tls_gone,
        Closed::HalfSent => half_sent,
        Closed::NoMemory(bytes) => no_memory(bytes),
    }
    via { Closed::Fabric(error) => fabric_error(env, error), }
}

shapes! {
    /// An error below the stream, as a reason.
    pub fn fabric_error(env, FabricError), FABRIC_ERRORS {
        FabricError::PeerGone => peer_gone,
        FabricError::PeerMisbehaved(how) => peer_misbehaved(misbehaviour(env, how)),
        FabricError::WrongUser { theirs, ours } => wrong_user(theirs, ours),
        FabricError::UserNotAllowed { theirs, ours } => user_not_allowed(theirs, ours),
        FabricError::UserUnmapped => user_unmapped,
        FabricError::UserRefused => user_refused,
        FabricError::Directory { path, fault } => shm_directory(path, directory_fault(env, fault)),
        FabricError::Hello(WireError::Version { theirs }) => version_mismatch(theirs, PROTOCOL_VERSION),
        FabricError::Hello(error) => bad_hello(wire_error(env, error)),
        FabricError::WrongToken => wrong_token,
        FabricError::Refused(_) => econnrefused,
        FabricError::PortsTaken { .. } => eaddrinuse,
        FabricError::PortHeld { port, user, .. } => port_held(port, user_or_none(env, *user)),
        FabricError::TimedOut => etimedout,
        FabricError::QueueFull => enobufs,
        FabricError::BacklogFull => enobufs,
        FabricError::Limits(error) => limits(limits_error(env, error)),
        FabricError::Unavailable(what) => unavailable(lack(env, what)),
        FabricError::NoRoute(why) => no_route(why),
        FabricError::LockedMemory { bytes, limit } => locked_memory(bytes, limit_bytes(env, *limit)),
        FabricError::PinnedLimit { bytes, pinned, max } => pinned_limit(bytes, pinned, max),
        FabricError::SharedMemory { bytes } => shared_memory(bytes),
        FabricError::DeviceLimit { device, receives, completions } => device_limit(device, receives, completions),
        FabricError::SelfTest { device, tried, is_avoidable } =>
            self_test(device_or_peer(env, device.as_deref()), tried_names(env, tried), is_avoidable),
        FabricError::OptionUnknown { option } => option_unknown(atom(env, option)),
        FabricError::Rejected(how) => rejected(rejection(env, how)),
        FabricError::DeviceRemoved => device_removed,
        FabricError::DeviceEvent { device, event } => device_event(device, event),
        FabricError::Completion { status, vendor, .. } => verbs(doing(env, "completion"), (atom(env, status), vendor)),
        FabricError::Panicked(thread) => panicked(thread),
        FabricError::Verbs { doing: words, error } => verbs(doing(env, words), posix(env, *error)),
        FabricError::System { doing: words, error } => system(doing(env, words), posix(env, *error)),
    }
}

shapes! {
    /// Why an attempt gives no queue pair, as a reason.
    pub fn attempt_error(env, AttemptError), ATTEMPT_ERRORS {
        AttemptError::OnlyStrangers { refused, last } => only_strangers(refused, fabric_error(env, last)),
        AttemptError::Taken => attempt_taken,
    }
    via { AttemptError::Fabric(error) => fabric_error(env, error), }
}

shapes! {
    fn misbehaviour(env, Misbehaviour), MISBEHAVIOURS {
        Misbehaviour::TargetOutside { target } => target_outside(place(target)),
        Misbehaviour::GreetingRefused => greeting_refused,
        Misbehaviour::GreetingIncomplete => greeting_incomplete,
        Misbehaviour::RingElsewhere(ring) => ring_elsewhere(place(ring)),
        Misbehaviour::MemoryBytes { bytes, least } => memory_bytes(bytes, least),
        Misbehaviour::MemoryUnsealed => memory_unsealed,
        Misbehaviour::MemoryPages => memory_pages,
        Misbehaviour::MemoryTooLarge => memory_too_large,
        Misbehaviour::MemoryUnwritable => memory_unwritable,
        Misbehaviour::QueueHead { said } => queue_head(said),
        Misbehaviour::EntryStamp { said } => entry_stamp(said),
        Misbehaviour::EntryInline { bytes, address } => entry_inline(bytes, address),
        Misbehaviour::EntryKind { said } => entry_kind(said),
        Misbehaviour::FrameKind { said } => frame_kind(said),
        Misbehaviour::WriteOutside { target, bytes } => write_outside(place(target), bytes),
        Misbehaviour::MessageBytes(bytes) => message_bytes(bytes),
        Misbehaviour::SelfTest => self_test_broken,
        Misbehaviour::AnswerEvent { event, status } => answer_event(event, status),
    }
    via {
        Misbehaviour::Stream(broken) => violation(env, broken),
        Misbehaviour::Limits(error) => limits_error(env, error),
    }
}

shapes! {
    fn contents_violation(env, ContentsViolation), CONTENTS_VIOLATIONS {
        ContentsViolation::PacketTooLarge { bytes, max } => packet_too_large(bytes, max),
        ContentsViolation::TlsBytes => tls_bytes,
    }
}

shapes! {
    fn record_violation(env, RecordViolation), RECORD_VIOLATIONS {
        RecordViolation::RecordRing(bytes) => record_ring(bytes),
        RecordViolation::RecordBytes { bytes, max } => record_bytes(bytes, max),
        RecordViolation::RecordCut { bytes, arrived } => record_cut(bytes, arrived),
        RecordViolation::KeyGeneration { said, present } => key_generation(said, present),
        RecordViolation::RecordForged { sequence } => record_forged(sequence),
        RecordViolation::ControlForged { sequence } => control_forged(sequence),
    }
}

shapes! {
    fn violation(env, Violation), VIOLATIONS {
        Violation::SlotsOverrun { slots } => slots_overrun(slots),
        Violation::CreditExcess { credits, known, slots } => credit_excess(credits, known, slots),
        Violation::NoticeBytes(bytes) => notice_bytes(bytes),
        Violation::RingOverflow { bytes, free } => ring_overflow(bytes, free),
        Violation::RingWrap { bytes, contiguous } => ring_wrap(bytes, contiguous),
        Violation::DirectUnadvertised => direct_unadvertised,
        Violation::DirectTooLong { bytes, room } => direct_too_long(bytes, room),
        Violation::DataAfterFinish { bytes, end } => data_after_finish(bytes, end.0),
        Violation::FinishShort { end, arrived } => finish_short(end.0, arrived.0),
        Violation::FinishTwice => finish_twice,
        Violation::AckUnsent { freed, written } => ack_unsent(freed.0, written.0),
        Violation::AckBack { freed, before } => ack_back(freed.0, before.0),
        Violation::AdvertExcess { max } => advert_excess(max),
        Violation::AdvertIndirect { phase } => advert_indirect(phase.0),
        Violation::AdvertPhase { phase, before } => advert_phase(phase.0, before.0),
        Violation::AdvertSeq { seq, least, most } => advert_seq(seq.0, least.0, most.0),
        Violation::AdvertAddress => advert_address,
        Violation::AskedTwice => asked_twice,
        Violation::MarkUnasked => mark_unasked,
        Violation::RingAddress => ring_address,
        Violation::TooManyBytes => too_many_bytes,
    }
    via { Violation::Wire(error) => wire_error(env, error), }
}

shapes! {
    fn wire_error(env, WireError), WIRE_ERRORS {
        WireError::Length { got, want } => message_length(got, want),
        WireError::Magic => not_a_hello,
        WireError::Version { theirs } => version(theirs, PROTOCOL_VERSION),
        WireError::Kind(kind) => control_kind(kind),
        WireError::Field(name) => field(name),
    }
}

shapes! {
    fn limits_error(env, LimitsError), LIMITS_ERRORS {
        LimitsError::RingBytes(bytes) => ring_bytes(bytes),
        LimitsError::ReceiveSlots(slots) => receive_slots(slots),
        LimitsError::Adverts => no_adverts,
    }
}

shapes! {
    /// The reason why verbs cannot be used here.
    fn lack(env, Lack), LACKS {
        Lack::LeftOut => left_out,
        Lack::Libraries => no_libraries,
        Lack::ConnectionManager => no_connection_manager,
        Lack::Permission => no_permission,
        Lack::Device => no_device,
        Lack::Descriptors(errno) => no_descriptors(posix(env, *errno)),
        Lack::System(errno) => connection_manager(posix(env, *errno)),
    }
}

shapes! {
    /// Why a shared directory, or a peer's socket file there, is not used.
    fn directory_fault(env, DirectoryFault), DIRECTORY_FAULTS {
        DirectoryFault::Missing => missing,
        DirectoryFault::NoDirectory => no_directory,
        DirectoryFault::SymbolicLink => symbolic_link,
        DirectoryFault::Owner(user) => owner(user),
        DirectoryFault::OwnerUnmapped => owner_unmapped,
        DirectoryFault::WorldWritable => world_writable,
        DirectoryFault::Forbidden => forbidden,
        DirectoryFault::ReadOnly => read_only,
        DirectoryFault::TooLong => too_long,
        DirectoryFault::NoProc => no_proc,
        DirectoryFault::NotShared => not_shared,
        DirectoryFault::NoSocket => no_socket,
        DirectoryFault::SocketOwner(user) => socket_owner(user),
        DirectoryFault::SocketOwnerUnmapped => socket_owner_unmapped,
        DirectoryFault::Unconnectable => unconnectable,
        DirectoryFault::Deserted => deserted,
        DirectoryFault::System(errno) => system(posix(env, *errno)),
    }
}

shapes! {
    fn rejection(env, Rejection), REJECTIONS {
        Rejection::Busy => busy,
        Rejection::Hello => hello,
        Rejection::Reason(number) => reason(number),
    }
}

/// `{error, closed}`: the answer of each call on a closed connection.
pub fn closed_error(env: Env<'_>) -> Term<'_> {
    (atoms::error(), atoms::closed()).encode(env)
}

/// `ok | {error, Reason}`
pub fn done<'a, E>(env: Env<'a>, result: Result<(), E>, reason: impl FnOnce(Env<'a>, &E) -> Term<'a>) -> Term<'a> {
    match result {
        Ok(()) => atoms::ok().encode(env),
        Err(error) => (atoms::error(), reason(env, &error)).encode(env),
    }
}

/// `ok | {error, Reason}`: the answer to a posted operation, or to a change of a stream; None: it is closed.
pub fn accepted(env: Env<'_>, result: Option<Result<(), Refused>>) -> Term<'_> {
    match result {
        Some(result) => done(env, result, refused),
        None => closed_error(env),
    }
}

fn refused<'a>(env: Env<'a>, why: &Refused) -> Term<'a> {
    match why {
        Refused::Closed(why) => closed(env, why),
        Refused::Full => atoms::enobufs().encode(env),
        Refused::TooLarge => atoms::emsgsize().encode(env),
        Refused::Unfit => atoms::einval().encode(env),
    }
}

fn limit_bytes(env: Env<'_>, limit: Option<u64>) -> Term<'_> {
    match limit {
        Some(bytes) => bytes.encode(env),
        None => atom(env, "unlimited"),
    }
}

fn device_or_peer<'a>(env: Env<'a>, device: Option<&str>) -> Term<'a> {
    match device {
        Some(device) => device.encode(env),
        None => atom(env, "peer"),
    }
}

/// The names of what the self-test tries.
pub fn tried_names<'a>(env: Env<'a>, tried: &[Tried]) -> Vec<Term<'a>> {
    tried.iter().map(|tried| atom(env, tried.name())).collect()
}

fn user_or_none(env: Env<'_>, user: Option<u32>) -> Term<'_> {
    match user {
        Some(user) => user.encode(env),
        None => atoms::none().encode(env),
    }
}

/// `reason_shapes() -> [{Group, [{Name, Fields}]}]`: each reason that this library can give, by the name of its tuple
/// and the number of its fields. A test makes sure that `inet_rdma_error` has a text for each.
#[rustler::nif]
fn reason_shapes(env: Env<'_>) -> Vec<(Term<'_>, Vec<(Term<'_>, usize)>)> {
    let groups = [
        ("reason", CLOSED),
        ("reason", FABRIC_ERRORS),
        ("reason", ATTEMPT_ERRORS),
        ("misbehaviour", MISBEHAVIOURS),
        ("misbehaviour", CONTENTS_VIOLATIONS),
        ("misbehaviour", RECORD_VIOLATIONS),
        ("misbehaviour", VIOLATIONS),
        ("misbehaviour", WIRE_ERRORS),
        ("misbehaviour", LIMITS_ERRORS),
        ("bad_hello", WIRE_ERRORS),
        ("limits", LIMITS_ERRORS),
        ("unavailable", LACKS),
        ("rejected", REJECTIONS),
        ("shm_directory", DIRECTORY_FAULTS),
    ];
    let named = |shapes: &[(&str, usize)]| shapes.iter().map(|(name, fields)| (atom(env, name), *fields)).collect();
    groups
        .iter()
        .map(|(group, shapes)| (atom(env, group), named(shapes)))
        .collect()
}

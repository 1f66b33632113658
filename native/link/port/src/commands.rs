//! The commands of `port_control/3`.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use bytes::buf::UninitSlice;
use inet_rdma_path_tcp::Codec;
use inet_rdma_path_tcp::descriptors::{self, Lent, Reserved};
use inet_rdma_session::proof::{PROOF_BYTES, Secret};
use inet_rdma_session::{Position, Role, Standing};

use crate::fields::Fields;
use crate::handover;
use crate::inet;
use crate::link::{COMPRESSION, COUNTS, Fate, Link, SEALING};
use crate::numbers::keys;
use crate::port::Port;
use crate::round_trips::ROUND_TRIPS;

/// Commands of `port_control/3`, as in the carrier's inet_rdma_port. Fields have the byte order of this machine.
mod command {
    /// `<<Id:64, Path:64>>`: takes connection Id, which both sides know as Path. It can carry the session of [`ADOPT`].
    pub const CARRY: u32 = 1;
    /// The port may give packets to the VM from now on.
    pub const START: u32 = 2;
    /// Sends a keepalive.
    pub const TICK: u32 = 3;
    /// Answers `<<Received:64, Sent:64, Queued:64>>`.
    pub const PACKETS: u32 = 4;
    /// The calling process gets `{'$inet_rdma', Port, What, {State, Carrier, HasTcp}}`. State: `carried`; `suspected`:
    /// the path of this side's outgoing packets is; `suspended`: there is none. Carrier: that path, `tcp`, `queue_pair`
    /// or `none`. HasTcp: there is a TCP connection.
    ///
    /// What: `key_due`: the sending key of a sealed link nears its limit, once for each key, at once if it does.
    /// `stalled`: the port is busy, and the peer takes nothing. `stall_ended`: it takes bytes again. `suspected`: the
    /// path that carries, or the TCP connection that stands by (State `carried`), is suspected ([`SUSPICION`]); of two
    /// suspected paths that is told again when one answers. `trusted`: no path is suspected any more, as all have
    /// answered. A suspected path that is lost or given up is told as that alone. `{lost, Why}`: the TCP connection
    /// of a session is gone. Why is the system's error, `closed`, `queue_pair` (that is lost), `superseded` (by a newer
    /// attempt to resume), `woke` (see [`SUSPECT`]) or `system_limit`. `restored`: another TCP connection carries the
    /// session. `earned`: the traffic of a session has earned a queue pair. `moved`: the peer's packets come over the
    /// queue pair. `returned`: packets of both sides go over the TCP connection again. `peer_closed`,
    /// `peer_misbehaved`, `rolled_back`: the reason why the port is about to end. A binary: a message of [`CONTROL`]'s
    /// caller at the peer; after `peer_misbehaved` and `rolled_back` a text that says how.
    pub const WATCH: u32 = 6;
    /// `<<Initiator:8, PacketMax:32, CookieBytes:16, Cookie/binary, NonceOfInitiator:16/binary, Nonce:16/binary>>`: a
    /// session begins. Answers its name, 16 bytes.
    pub const ADOPT: u32 = 7;
    /// Packets that are sent from here on go over the queue pair of [`CARRY`]. Before [`START`] both sides begin on it.
    pub const MOVE: u32 = 8;
    /// `<<Attempt:64>>`: gives up the TCP connection. Answers `<<Received:64, Path:64>>`; nothing: a newer attempt has
    /// come.
    pub const SUSPEND: u32 = 9;
    /// `<<Attempt:64, Socket:32, Received:64, Path:64, Sealing/binary>>`: resumes the session from the peer's standing,
    /// over the connection of this descriptor. The port makes that of [`RESERVE`] a descriptor of its own, else another
    /// one. Sealing: as of [`ATTACH`].
    /// Answers `<<1>>`; nothing: a newer attempt has come.
    pub const RESUME: u32 = 10;
    /// Answers the proof of the argument's bytes.
    pub const PROVE: u32 = 11;
    /// `<<Proof:32/binary, Bytes/binary>>`: answers `<<1>>` if it is their proof, else nothing.
    pub const VERIFY: u32 = 12;
    /// Without an argument: answers the number of this side's next attempt, `<<Attempt:64>>`. `<<Attempt:64>>`: answers
    /// these bytes if the peer's attempt may still succeed, else nothing.
    pub const ATTEMPT: u32 = 13;
    /// Sends a message to the peer's guard. It may be lost with the TCP connection.
    pub const CONTROL: u32 = 14;
    /// Gives up the queue pair of [`CARRY`], unless it carries already.
    pub const DROP: u32 = 17;
    /// Answers `<<Socket:32>>`: another descriptor of the TCP connection, until
    /// [`take_back`](crate::handover::take_back).
    pub const SOCKET: u32 = 16;
    /// `<<First:8>>`: answers up to eight numbers of `COUNTS`, from the one with this index on.
    pub const COUNTS: u32 = 19;
    /// Returns from the queue pair to the TCP connection; for the side that began the session. Answers `<<1>>`;
    /// nothing: not possible now, as the peer has not acknowledged all bytes.
    pub const RETURN: u32 = 20;
    /// `<<Attempt:64>>`: the attempt of [`SUSPEND`] with this number has failed. The guard is told of the loss,
    /// unless a newer attempt has come.
    pub const ABANDON: u32 = 21;
    /// `<<Socket:32, SendsCompressed:8, ReceivesCompressed:8, Sealing/binary>>`: begins the session of [`ADOPT`] over
    /// the connection of this descriptor. The port makes a descriptor of its own, as of [`RESUME`]. Sealing: nothing;
    /// or `<<Cipher:8, RekeyBytes:64, RekeySeconds:32, Transcript/binary>>`. The keys are derived from Transcript, the
    /// bytes that both sides have sent. Cipher: 1 AES-256-GCM, 2 ChaCha20-Poly1305. RekeySeconds 0: a key may have any
    /// age.
    pub const ATTACH: u32 = 22;
    /// Answers the numbers of `SEALING`; nothing if the TCP connection is not sealed.
    pub const SEALING: u32 = 23;
    /// Answers the numbers of `COMPRESSION`; nothing if neither side compresses.
    pub const COMPRESSION: u32 = 24;
    /// `<<AfterMs:32>>`: a path whose peer's host owes an answer for this time is suspected; 0: none is.
    pub const SUSPICION: u32 = 25;
    /// Answers the numbers of `ROUND_TRIPS`; nothing if no round trip was measured.
    pub const ROUND_TRIPS: u32 = 26;
    /// Of a port without a link: opens another port, linked to the caller, that has the name of inet's. The caller gets
    /// `{'$inet_rdma', Port, Opened}`, and the answer `<<1>>`. Answers nothing if the VM has no port left.
    pub const OPEN: u32 = 27;
    /// Keeps a descriptor for [`ATTACH`] or [`RESUME`]. Answers `<<1>>`; nothing: the process has none left.
    pub const RESERVE: u32 = 28;
    /// Gives up the descriptor of [`RESERVE`], and takes back the place of [`LEND`].
    pub const RELEASE: u32 = 29;
    /// Leaves the spare descriptor's place free for the files of a TLS handshake, until [`RESERVE`] or [`RELEASE`].
    pub const LEND: u32 = 30;
    /// The node noticed that it did not run for a while: all paths are suspected, and nothing is written over them,
    /// until they answer or the session is resumed. A sealed TCP connection that answers is lost, for the reason
    /// `woke`. A queue pair over shared memory goes on.
    pub const SUSPECT: u32 = 31;
}

pub(crate) use command::OPEN;

/// The commands that answer numbers, as inet_rdma_port names them, each with the keys in the order of its answer.
pub fn number_keys() -> [(&'static str, Vec<&'static str>); 4] {
    [
        ("counts", keys(COUNTS)),
        ("sealing", keys(SEALING)),
        ("compression", keys(COMPRESSION)),
        ("round_trips", keys(ROUND_TRIPS)),
    ]
}

#[derive(Default)]
pub(crate) struct Contents {
    /// None: the port has no connection yet.
    pub link: Option<Link>,
    /// The descriptor of the TCP connection to come.
    pub reserved: Option<Reserved>,
    /// The place of the spare descriptor, until that connection is there.
    pub lent: Option<Lent>,
}

/// Executes a command. Returns the number of bytes of its answer; None is the caller's badarg.
pub(crate) fn execute(
    port: Port,
    Contents { link, reserved, lent }: &mut Contents,
    command: u32,
    argument: &[u8],
    answer: &mut UninitSlice,
) -> (Option<usize>, Fate) {
    if let Some(request) = inet::request_of(command) {
        let bytes = put(answer, &inet::answer(link.as_ref(), request, argument));
        return (bytes, Fate::Lives);
    }
    descriptors::refill();
    let mut fields = Fields(argument);
    let answered = match (command, link) {
        (command::RESERVE, _) => {
            *lent = None;
            reserve(reserved, answer)
        }
        (command::LEND, _) => {
            *lent = Some(descriptors::lend());
            Some(0)
        }
        (command::RELEASE, _) => {
            (*reserved, *lent) = (None, None);
            Some(0)
        }
        (command::CARRY, Some(link)) => carry(port, link, &mut fields),
        (command::ADOPT, link @ None) => adopt(link, &mut fields, answer),
        (command::ATTACH, Some(link)) => attach(link, reserved, &mut fields),
        (command::RESUME, Some(link)) => {
            return resume(port, link, reserved, &mut fields, answer).unwrap_or((None, Fate::Lives));
        }
        (command, Some(link)) => command_of(port, link, command, argument, answer),
        _ => None,
    };
    (answered, Fate::Lives)
}

/// Puts bytes into the VM's memory for the answer; returns their number.
fn put(answer: &mut UninitSlice, bytes: &[u8]) -> Option<usize> {
    if bytes.len() > answer.len() {
        return None;
    }
    answer[..bytes.len()].copy_from_slice(bytes);
    Some(bytes.len())
}

/// `<<1>>`; nothing: false.
pub(crate) fn answer_whether(is_done: bool, answer: &mut UninitSlice) -> Option<usize> {
    match is_done {
        true => put(answer, &[1]),
        false => Some(0),
    }
}

fn put_numbers(answer: &mut UninitSlice, numbers: &[u64]) -> Option<usize> {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
    put(answer, &bytes)
}

fn carry(port: Port, link: &mut Link, fields: &mut Fields<'_>) -> Option<usize> {
    let (id, path) = (fields.u64()?, fields.u64()?);
    let carried = handover::take(id)?;
    (path > 0 && link.add_queue(port, carried, path)).then_some(0)
}

fn adopt(link: &mut Option<Link>, fields: &mut Fields<'_>, answer: &mut UninitSlice) -> Option<usize> {
    let [is_initiator] = fields.array()?;
    let role = match is_initiator {
        0 => Role::Acceptor,
        _ => Role::Initiator,
    };
    let packet_max_bytes = fields.u32()? as usize;
    let cookie_bytes = fields.array().map(u16::from_ne_bytes)?;
    let cookie = fields.bytes(cookie_bytes.into())?;
    let secret = Secret::new(cookie, fields.bytes(16)?, fields.bytes(16)?);
    let name = secret.name();
    *link = Some(Link::new(role, packet_max_bytes, secret));
    put(answer, &name)
}

fn reserve(reserved: &mut Option<Reserved>, answer: &mut UninitSlice) -> Option<usize> {
    if reserved.is_none() {
        *reserved = Reserved::new().ok();
    }
    answer_whether(reserved.is_some(), answer)
}

/// A descriptor of the port's own.
fn own(socket: BorrowedFd<'_>, reserved: &mut Option<Reserved>) -> io::Result<OwnedFd> {
    match reserved.take() {
        Some(reserved) => reserved.copy_of(socket),
        None => descriptors::copy_of(socket),
    }
}

fn attach(link: &mut Link, reserved: &mut Option<Reserved>, fields: &mut Fields<'_>) -> Option<usize> {
    let (socket, [sends, receives]) = (fields.socket()?, fields.array()?);
    let codec = Codec::new(sends != 0, receives != 0)?;
    let protection = link.protection(fields)?;
    link.attach(own(socket, reserved).ok()?, codec, protection.as_ref());
    Some(0)
}

/// None: fields are missing.
fn resume(
    port: Port,
    link: &mut Link,
    reserved: &mut Option<Reserved>,
    fields: &mut Fields<'_>,
    answer: &mut UninitSlice,
) -> Option<(Option<usize>, Fate)> {
    let (attempt, socket) = (fields.u64()?, fields.socket()?);
    let theirs = Standing {
        received: Position(fields.u64()?),
        path: Some(fields.u64()?).filter(|&path| path != 0),
    };
    let protection = link.protection(fields)?;
    let resumed = link.resume(port, attempt, own(socket, reserved), theirs, protection.as_ref());
    let answered = answer_whether(resumed.is_some(), answer);
    Some((answered, resumed.unwrap_or(Fate::Lives)))
}

fn command_of(port: Port, link: &mut Link, command: u32, argument: &[u8], answer: &mut UninitSlice) -> Option<usize> {
    let mut fields = Fields(argument);
    match command {
        command::START => return link.start(port).then_some(0),
        // If the connection is over, the port ends next.
        command::TICK => link.tick(port),
        command::PACKETS => {
            let (received, sent) = link.packets();
            return put_numbers(answer, &[received, sent, link.unsent_bytes()]);
        }
        command::WATCH => link.watch(port),
        command::SEALING => return put_numbers(answer, &link.sealing()),
        command::COMPRESSION => return put_numbers(answer, &link.compression()),
        command::MOVE => return link.move_to_queue(port).then_some(0),
        command::SUSPEND => {
            if let Some(standing) = link.suspend(port, fields.u64()?) {
                return put_numbers(answer, &[standing.received.0, standing.path.unwrap_or(0)]);
            }
        }
        command::ABANDON => link.abandon(port, fields.u64()?),
        command::PROVE => return put(answer, &link.secret().prove(argument)),
        command::VERIFY => {
            let proof = fields.bytes(PROOF_BYTES)?;
            return answer_whether(link.secret().is_proof(fields.0, proof), answer);
        }
        command::ATTEMPT if argument.is_empty() => return put_numbers(answer, &[link.next_attempt()]),
        command::ATTEMPT => {
            if link.accepts(fields.u64()?) {
                return put(answer, argument);
            }
        }
        command::CONTROL => return link.control(port, argument).then_some(0),
        command::DROP => link.drop_unused_queue(port),
        command::RETURN => return answer_whether(link.return_to_tcp(port), answer),
        command::SUSPICION => {
            let after_ms = fields.u32()?;
            link.set_patience(port, (after_ms > 0).then(|| Duration::from_millis(after_ms.into())));
        }
        command::SUSPECT => link.suspect(port),
        command::COUNTS => {
            let [first] = fields.array()?;
            return put_numbers(answer, &link.counts(first.into()));
        }
        command::ROUND_TRIPS => return put_numbers(answer, &link.round_trips()),
        command::SOCKET => return put(answer, &link.lend_tcp()?.to_ne_bytes()),
        _ => return None,
    }
    Some(0)
}

//! The commands of `port_control/3`.

use std::os::fd::{BorrowedFd, RawFd};
use std::time::Duration;

use inet_rdma_session::proof::{PROOF_BYTES, Secret};
use inet_rdma_session::{Position, Role, Standing};

use crate::answers::Looks;
use crate::link::{COMPRESSION, COUNTS, Coding, Fate, Link, SEALING, Sealing, cipher};
use crate::links;
use crate::numbers::keys;
use crate::port::Port;
use crate::round_trips::ROUND_TRIPS;

/// Commands of `port_control/3`; the carrier's inet_rdma_port has the same numbers. Fields have the byte order of this
/// machine.
mod command {
    /// `<<Id:64, Path:64>>`: takes the connection with the number Id. Path 0: the connection is the link. Else it can
    /// carry the session of [`ADOPT`], and both sides know it by the number Path.
    pub const CARRY: u32 = 1;
    /// The port may give packets to the VM from now on.
    pub const START: u32 = 2;
    /// Sends a keepalive.
    pub const TICK: u32 = 3;
    /// Answers `<<Received:64, Sent:64, Queued:64>>`.
    pub const PACKETS: u32 = 4;
    /// The TLS connection on which the link began has ended.
    pub const PEER_GONE: u32 = 5;
    /// The calling process gets `{'$inet_rdma', Port, What}`. `key_due`: the sending key of a sealed link nears its
    /// limit, once for each key, at once if it does already. `stalled`: the port is busy, and the peer takes nothing.
    /// `resumed`: it takes bytes again. `{lost, Why}`: the TCP connection of a session is gone. Why is the system's
    /// error, `closed`, `queue_pair` (that is lost), `superseded` (by a newer attempt to resume), `unanswered` (see
    /// [`ASK`]) or `system_limit`. `restored`: another TCP connection carries the session. `earned`: the traffic of a
    /// session has earned a queue pair. `moved`: the peer's packets come over the queue pair. `returned`: packets of
    /// both sides go over the TCP connection again. `peer_closed`, `peer_misbehaved`: the reason why the port is about
    /// to end. A binary: a message of [`CONTROL`]'s caller at the peer; after `peer_misbehaved` a text that names the
    /// fault.
    pub const WATCH: u32 = 6;
    /// `<<Initiator:8, PacketMax:32, CookieBytes:16, Cookie/binary, NonceOfInitiator:16/binary, Nonce:16/binary>>`: a
    /// session begins. Answers its name, 16 bytes.
    pub const ADOPT: u32 = 7;
    /// Packets that are sent from here on go over the queue pair of [`CARRY`]. Before [`START`] both sides begin on it.
    pub const MOVE: u32 = 8;
    /// `<<Attempt:64>>`: gives up the TCP connection. Answers `<<Received:64, Path:64>>`; nothing: a newer attempt has
    /// come.
    pub const SUSPEND: u32 = 9;
    /// `<<Attempt:64, Socket:32, Received:64, Path:64, Coding/binary>>`: resumes the session from the peer's standing,
    /// over the connection of this descriptor. The port makes a descriptor of its own. Coding: as of [`ATTACH`].
    /// Answers `<<1>>`; nothing: a newer attempt has come.
    pub const RESUME: u32 = 10;
    /// Answers the proof of the argument's bytes.
    pub const PROVE: u32 = 11;
    /// `<<Proof:32/binary, Bytes/binary>>`: answers `<<1>>` if it is their proof, else nothing.
    pub const VERIFY: u32 = 12;
    /// Without an argument: answers the number of this side's next attempt, `<<Attempt:64>>`. `<<Attempt:64>>`: answers
    /// these bytes if the peer's attempt may still succeed, else nothing.
    pub const ATTEMPT: u32 = 13;
    /// Sends a message to the peer's watcher. It may be lost with the TCP connection.
    pub const CONTROL: u32 = 14;
    /// Gives up the queue pair of [`CARRY`], unless it carries already.
    pub const DROP: u32 = 17;
    /// Answers `<<Socket:32>>`: another descriptor of the TCP connection, until
    /// [`take_back`](crate::links::take_back).
    pub const SOCKET: u32 = 16;
    /// `<<First:8>>`: answers up to eight numbers of `COUNTS`, from the one with this index on.
    pub const COUNTS: u32 = 19;
    /// Returns from the queue pair to the TCP connection; for the side that began the session. Answers `<<1>>`;
    /// nothing: not possible now, as the peer has not acknowledged all bytes.
    pub const RETURN: u32 = 20;
    /// `<<Attempt:64>>`: the attempt of [`SUSPEND`] with this number has failed. The watcher is told of the loss,
    /// unless a newer attempt has come.
    pub const ABANDON: u32 = 21;
    /// `<<Socket:32, Coding/binary>>`: begins the session of [`ADOPT`] over the connection of this descriptor. The port
    /// makes a descriptor of its own. Coding: `<<SendsCompressed:8, ReceivesCompressed:8, Sealing/binary>>`. Sealing:
    /// nothing; or `<<Cipher:8, RenewBytes:64, RenewSeconds:32, Transcript/binary>>`. The keys are derived from
    /// Transcript, the bytes that both sides have sent. Cipher: 1 AES-256-GCM, 2 ChaCha20-Poly1305. RenewSeconds 0: a
    /// key may have any age.
    pub const ATTACH: u32 = 22;
    /// Answers the numbers of `SEALING`; nothing if the TCP connection is not sealed.
    pub const SEALING: u32 = 23;
    /// Answers the numbers of `COMPRESSION`; nothing if neither side compresses.
    pub const COMPRESSION: u32 = 24;
    /// `<<IntervalMs:32, Looks:32>>`: asks the peer's host for an answer over the paths that carry packets. A path
    /// without an answer for this number of calls is lost: `{lost, unanswered}` for TCP, `{lost, queue_pair}` for a
    /// queue pair. The caller calls again after this interval.
    pub const ASK: u32 = 25;
    /// Answers the numbers of `ROUND_TRIPS`; nothing if no round trip was measured.
    pub const ROUND_TRIPS: u32 = 26;
}

/// The commands that answer numbers, by their names in the carrier's inet_rdma_port, each with the keys in the order of
/// its answer.
pub fn number_keys() -> [(&'static str, Vec<&'static str>); 4] {
    [
        ("counts", keys(COUNTS)),
        ("sealing", keys(SEALING)),
        ("compression", keys(COMPRESSION)),
        ("round_trips", keys(ROUND_TRIPS)),
    ]
}

pub(crate) fn execute(
    port: Port,
    link: &mut Option<Link>,
    command: u32,
    argument: &[u8],
    answer: &mut [u8],
) -> (isize, Fate) {
    let mut fields = Fields(argument);
    let answered = match (command, link) {
        (command::CARRY, link) => carry(port, link, &mut fields),
        (command::ADOPT, link @ None) => adopt(link, &mut fields, answer),
        (command::RESUME, Some(link)) => return resume(port, link, &mut fields, answer),
        (command::ASK, Some(link)) => return ask(port, link, &mut fields),
        (command, Some(link)) => command_of(port, link, command, argument, answer),
        _ => None,
    };
    // -1 is the caller's badarg.
    (answered.map_or(-1, |bytes| bytes as isize), Fate::Lives)
}

/// Reads the fields of a command's argument, in order. None: bytes are missing.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (field, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(field)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_ne_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_ne_bytes)
    }

    /// The coding of a TCP connection: the rest of the argument.
    fn coding(&mut self) -> Option<Coding<'a>> {
        let [sends, receives] = self.array()?;
        Some(Coding {
            sends_compressed: sends != 0,
            receives_compressed: receives != 0,
            sealing: self.sealing()?,
        })
    }

    /// Reads the sealing of the connection. Some(None): it is not sealed.
    fn sealing(&mut self) -> Option<Option<Sealing<'a>>> {
        if self.0.is_empty() {
            return Some(None);
        }
        let [number] = self.array()?;
        let cipher = cipher(number)?;
        let renew_bytes = self.u64()?;
        let renew_seconds = u64::from(self.u32()?);
        Some(Some(Sealing {
            cipher,
            renew_bytes,
            renew_after: (renew_seconds > 0).then(|| Duration::from_secs(renew_seconds)),
            transcript: self.bytes(self.0.len())?,
        }))
    }

    /// A descriptor that the caller keeps open during the call.
    fn socket(&mut self) -> Option<BorrowedFd<'a>> {
        let fd = RawFd::try_from(self.u32()?).ok().filter(|&fd| fd >= 0)?;
        // SAFETY: the carrier names the descriptor of a socket that it owns, and waits for the answer before it closes
        // it.
        Some(unsafe { BorrowedFd::borrow_raw(fd) })
    }
}

/// Puts bytes into the VM's memory for the answer; returns their number.
fn put(answer: &mut [u8], bytes: &[u8]) -> Option<usize> {
    answer.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(bytes.len())
}

fn put_numbers(answer: &mut [u8], numbers: &[u64]) -> Option<usize> {
    let mut places = answer.chunks_exact_mut(size_of::<u64>());
    for number in numbers {
        places.next()?.copy_from_slice(&number.to_ne_bytes());
    }
    Some(size_of_val(numbers))
}

fn carry(port: Port, link: &mut Option<Link>, fields: &mut Fields<'_>) -> Option<usize> {
    let (id, path) = (fields.u64()?, fields.u64()?);
    let carried = links::take(id)?;
    match (link, path) {
        (link @ None, 0) => {
            *link = Some(Link::over_queue(carried));
            Some(0)
        }
        (Some(link), path @ 1..) => link.add_queue(port, carried, path).then_some(0),
        _ => None,
    }
}

fn adopt(link: &mut Option<Link>, fields: &mut Fields<'_>, answer: &mut [u8]) -> Option<usize> {
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
    *link = Some(Link::of_session(role, packet_max_bytes, secret));
    put(answer, &name)
}

fn resume(port: Port, link: &mut Link, fields: &mut Fields<'_>, answer: &mut [u8]) -> (isize, Fate) {
    let parsed = (|| {
        let (attempt, socket) = (fields.u64()?, fields.socket()?);
        let theirs = standing(fields.u64()?, fields.u64()?);
        Some((attempt, socket, theirs, fields.coding()?))
    })();
    let Some((attempt, socket, theirs, coding)) = parsed else {
        return (-1, Fate::Lives);
    };
    match link.resume(port, attempt, socket, theirs, &coding) {
        None => (0, Fate::Lives),
        Some(fate) => (put(answer, &[1]).map_or(-1, |bytes| bytes as isize), fate),
    }
}

fn ask(port: Port, link: &mut Link, fields: &mut Fields<'_>) -> (isize, Fate) {
    let (Some(interval_ms), Some(count)) = (fields.u32(), fields.u32()) else {
        return (-1, Fate::Lives);
    };
    let interval = Duration::from_millis(interval_ms.into());
    (0, link.ask(port, Looks { interval, count }))
}

fn standing(received: u64, path: u64) -> Standing {
    Standing {
        received: Position(received),
        path: (path != 0).then_some(path),
    }
}

fn command_of(port: Port, link: &mut Link, command: u32, argument: &[u8], answer: &mut [u8]) -> Option<usize> {
    let mut fields = Fields(argument);
    match command {
        command::START => link.start(port).then_some(0),
        // If the connection is over, the port ends next.
        command::TICK => {
            link.tick(port);
            Some(0)
        }
        command::PACKETS => {
            let (received, sent) = link.packets();
            put_numbers(answer, &[received, sent, link.unsent_bytes()])
        }
        command::PEER_GONE => {
            link.handle_peer_gone(port);
            Some(0)
        }
        command::WATCH => {
            link.watch(port);
            Some(0)
        }
        command::ATTACH => {
            let socket = fields.socket()?;
            link.attach(socket, &fields.coding()?).ok()?;
            Some(0)
        }
        command::SEALING => put_numbers(answer, &link.sealing()),
        command::COMPRESSION => put_numbers(answer, &link.compression()),
        command::MOVE => link.move_to_queue(port).then_some(0),
        command::SUSPEND => match link.suspend(port, fields.u64()?) {
            Some(standing) => put_numbers(answer, &[standing.received.0, standing.path.unwrap_or(0)]),
            None => Some(0),
        },
        command::ABANDON => {
            link.abandon(port, fields.u64()?);
            Some(0)
        }
        command::PROVE => put(answer, &link.secret()?.prove(argument)),
        command::VERIFY => {
            let proof = fields.bytes(PROOF_BYTES)?;
            match link.secret()?.is_proof(fields.0, proof) {
                true => put(answer, &[1]),
                false => Some(0),
            }
        }
        command::ATTEMPT if argument.is_empty() => put_numbers(answer, &[link.next_attempt()]),
        command::ATTEMPT => match link.accepts(fields.u64()?) {
            true => put(answer, argument),
            false => Some(0),
        },
        command::CONTROL => link.control(port, argument).then_some(0),
        command::DROP => {
            link.drop_unused_queue(port);
            Some(0)
        }
        command::RETURN => match link.return_to_tcp(port) {
            true => put(answer, &[1]),
            false => Some(0),
        },
        command::COUNTS => {
            let [first] = fields.array()?;
            put_numbers(answer, &link.counts(first.into()))
        }
        command::ROUND_TRIPS => put_numbers(answer, &link.round_trips()),
        command::SOCKET => {
            let socket = link.lend_tcp()?;
            put(answer, &socket.to_ne_bytes())
        }
        _ => None,
    }
}

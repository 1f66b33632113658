//! The commands of `port_control/3`.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use bytes::buf::UninitSlice;
use inet_rdma_link::named;
use inet_rdma_path_tcp::Codec;
use inet_rdma_path_tcp::descriptors::{self, Reserved};
use inet_rdma_session::proof::{PROOF_BYTES, Secret};
use inet_rdma_session::{Position, Role, Standing};

use crate::fields::Fields;
use crate::handover;
use crate::inet;
use crate::link::{COMPRESSION, COUNTS, Fate, Link, SEALING};
use crate::numbers::keys;
use crate::port::{Port, errno_name};
use crate::round_trips::ROUND_TRIPS;

/// The number of all commands in `port_control/3`, far from the numbers of inet's requests; `inet_rdma_port` has the
/// same.
const COMMAND: u32 = 0x7264_6d61;

/// Defines [`Command`] with all its variants.
macro_rules! commands {
    ($(#[$text:meta])* { $($(#[$of:meta])* $variant:ident = $name:literal,)* }) => {
        named! {
            $(#[$text])*
            pub enum Command {
                $($(#[$of])* $variant = $name,)*
            }
        }

        impl Command {
            const ALL: &'static [Command] = &[$(Command::$variant),*];
        }
    };
}

commands! {
/// A command of `port_control/3`: `<<Bytes:8, Name:Bytes/binary, Argument/binary>>`. Fields have the byte order of this
/// machine. A command whose argument or answer changes gets another name: a library and modules that differ in it do
/// not load each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
{
    /// `<<Id:64, Path:64>>`: takes connection Id, which both sides know as Path. It is a path for the session of
    /// [`Self::Adopt`].
    AttachQueue = c"attach_queue",
    /// The port may give packets to the VM from now on.
    Start = c"start",
    /// Sends a keepalive.
    Tick = c"tick",
    /// Answers `<<Received:64, Sent:64, Queued:64>>`.
    Packets = c"packets",
    /// The calling process is the guard from now on: it gets each [`Notice`](inet_rdma_link::Notice), and at once those
    /// of a key that is due and of a TCP connection that is lost.
    Watch = c"watch",
    /// `<<Initiator:8, PacketMax:32, Window:64, NodeWindow:64, CookieBytes:16, Cookie/binary,
    /// NonceOfInitiator:16/binary, Nonce:16/binary>>`: a session begins. Window: the bytes that this side takes and has
    /// under way at most; 0: the sides tell no windows. NodeWindow: the bytes that the windows of all links beyond the
    /// first ones have together at most. Answers the session's name, 16 bytes.
    BeginSession = c"begin_session",
    /// Before [`Self::Start`]: both sides begin on the queue pair of [`Self::AttachQueue`].
    BeginOnQueue = c"begin_on_queue",
    /// `<<Number:64>>`: packets that are sent from here on go over the queue pair of [`Self::AttachQueue`]. Answers
    /// `<<1>>`; nothing if the standing has another number.
    Move = c"move",
    /// `<<Attempt:64>>`: gives up the TCP connection. Answers `<<Received:64, Path:64>>`; nothing: a newer attempt has
    /// come.
    GiveUpTcp = c"give_up_tcp",
    /// `<<Attempt:64, Socket:32, Received:64, Path:64, Sealing/binary>>`: resumes the session from the peer's standing,
    /// over the connection of this descriptor. The port makes that of [`Self::Reserve`] a descriptor of its own, else
    /// another one. Sealing: as of [`Self::Attach`]. Answers `<<1>>`; nothing: a newer attempt has come.
    Resume = c"resume",
    /// Answers the proof of the argument's bytes.
    Prove = c"prove",
    /// `<<Proof:32/binary, Bytes/binary>>`: answers `<<1>>` if it is their proof, else nothing.
    Verify = c"verify",
    /// Without an argument: answers the number of this side's next attempt, `<<Attempt:64>>`. `<<Attempt:64>>`: answers
    /// these bytes if the peer's attempt may still succeed, else nothing.
    Attempt = c"attempt",
    /// Sends a message to the peer's guard. It may be lost with the TCP connection.
    Control = c"control",
    /// Gives up the queue pair of [`Self::AttachQueue`], unless it carries packets already.
    DropQueue = c"drop_queue",
    /// Answers `<<Socket:32>>`: another descriptor of the TCP connection, until
    /// [`take_back`](crate::handover::take_back).
    Socket = c"socket",
    /// `<<First:8>>`: answers up to eight numbers of `COUNTS`, from the one with this index on.
    Counts = c"counts",
    /// `<<Number:64>>`: returns from the queue pair to the TCP connection; for the side that began the session. Answers
    /// `<<1>>`; nothing: not possible now, as the peer has not acknowledged all bytes or the standing has another
    /// number.
    Return = c"return",
    /// `<<Number:64>>`: ends the link, as it cannot go on. Answers nothing if the standing has another number: the
    /// guard has the notice of it to come.
    EndLink = c"end_link",
    /// `<<Attempt:64>>`: the attempt of [`Self::GiveUpTcp`] with this number has failed. The guard is told of the loss,
    /// unless a newer attempt has come. Without an argument: this side makes no attempt any longer.
    Abandon = c"abandon",
    /// `<<Socket:32, SendsCompressed:8, ReceivesCompressed:8, Sealing/binary>>`: begins the session of [`Self::Adopt`]
    /// over the connection of this descriptor. The port makes a descriptor of its own, as of [`Self::Resume`]. Sealing:
    /// nothing; or `<<Cipher:8, RekeyBytes:64, RekeySeconds:32, Transcript/binary>>`. The keys are derived from
    /// Transcript, the bytes that both sides have sent. Cipher: 1 AES-256-GCM, 2 ChaCha20-Poly1305. RekeySeconds 0: a
    /// key may have any age.
    Attach = c"attach",
    /// Answers the numbers of `SEALING`; nothing if the TCP connection is not sealed.
    Sealing = c"sealing",
    /// Answers the numbers of `COMPRESSION`; nothing if neither side compresses.
    Compression = c"compression",
    /// `<<AfterMs:32>>`: a path whose peer's host owes an answer for this time is suspected; 0: none is.
    SuspectAfter = c"suspect_after",
    /// Answers the numbers of `ROUND_TRIPS`; nothing if no round trip was measured.
    RoundTrips = c"round_trips",
    /// Of a port without a link: opens another port, linked to the caller, that has the name of inet's. The caller gets
    /// `{'$inet_rdma', Port, Opened}`, and the answer `<<1>>`. Answers nothing if the VM has no port left.
    Open = c"open",
    /// Keeps a descriptor for [`Self::Attach`] or [`Self::Resume`]. Answers `<<1>>`, or the name of the error,
    /// `<<"emfile">>`.
    Reserve = c"reserve",
    /// Gives up the descriptor of [`Self::Reserve`].
    Release = c"release",
    /// The node noticed that it did not run for a while: all paths are suspected, and nothing is written over them,
    /// until they answer or the session is resumed. A sealed TCP connection that answers is lost, for the reason
    /// `woke`. A queue pair over shared memory goes on.
    HoldWrites = c"hold_writes",
    /// `<<Decide:8>>`: whether a party between the nodes ends the TCP connection. Then its kernel acknowledges what the
    /// peer may never get, and a question that the peer's port does not answer counts as a debt of the path, at each
    /// tick, too. Until there is another TCP connection.
    Questions = c"questions",
    /// Counts who sends, and to whom. Before the VM knows the port, which gives it packets before [`Self::Start`].
    Attribute = c"attribute",
    /// Sends the caller `{'$inet_rdma', Port, Binary}`, a [term](crate::attribution::Attribution::term), and answers
    /// `<<1>>`; nothing if senders and targets are not counted.
    Attribution = c"attribution",
}
}

/// The command and its argument. None: the library has no such command.
pub(crate) fn parse(number: u32, bytes: &[u8]) -> Option<(Command, &[u8])> {
    let (&name_bytes, rest) = bytes.split_first()?;
    let (name, argument) = rest.split_at_checked(name_bytes.into())?;
    let command = Command::ALL.iter().find(|command| command.name().to_bytes() == name);
    command
        .filter(|_| number == COMMAND)
        .map(|&command| (command, argument))
}

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
}

/// Answers a request of inet. Returns the number of bytes of the answer; None is the caller's badarg.
pub(crate) fn answer_inet(
    link: Option<&Link>,
    number: u32,
    argument: &[u8],
    answer: &mut UninitSlice,
) -> Option<usize> {
    let request = inet::request_of(number)?;
    put(answer, &inet::answer(link, request, argument))
}

/// Executes a command. Returns the number of bytes of its answer; None is the caller's badarg.
pub(crate) fn execute(
    port: Port,
    Contents { link, reserved }: &mut Contents,
    command: Command,
    argument: &[u8],
    answer: &mut UninitSlice,
) -> (Option<usize>, Fate) {
    descriptors::refill();
    let mut fields = Fields(argument);
    let answered = match (command, link) {
        (Command::Reserve, _) => reserve(reserved, answer),
        (Command::Release, _) => {
            *reserved = None;
            Some(0)
        }
        (Command::AttachQueue, Some(link)) => attach_queue(port, link, &mut fields),
        (Command::BeginSession, link @ None) => begin_session(link, &mut fields, answer),
        (Command::Attach, Some(link)) => attach(link, reserved, &mut fields),
        (Command::Resume, Some(link)) => {
            return resume(port, link, reserved, &mut fields, answer).unwrap_or((None, Fate::Lives));
        }
        (Command::EndLink, Some(link)) => {
            let Some(number) = fields.u64() else {
                return (None, Fate::Lives);
            };
            let ends = link.is_current(number);
            let fate = if ends { Fate::Ends } else { Fate::Lives };
            return (answer_whether(ends, answer), fate);
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
    if is_done { put(answer, &[1]) } else { Some(0) }
}

fn put_numbers(answer: &mut UninitSlice, numbers: &[u64]) -> Option<usize> {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
    put(answer, &bytes)
}

fn attach_queue(port: Port, link: &mut Link, fields: &mut Fields<'_>) -> Option<usize> {
    let (id, path) = (fields.u64()?, fields.u64()?);
    let carried = handover::take(id)?;
    (path > 0 && link.add_queue(port, carried, path)).then_some(0)
}

fn begin_session(link: &mut Option<Link>, fields: &mut Fields<'_>, answer: &mut UninitSlice) -> Option<usize> {
    let [is_initiator] = fields.array()?;
    let role = match is_initiator {
        0 => Role::Acceptor,
        _ => Role::Initiator,
    };
    let packet_max_bytes = fields.u32()? as usize;
    let (window_bytes, node_window_bytes) = (fields.u64()?, fields.u64()?);
    let cookie_bytes = fields.array().map(u16::from_ne_bytes)?;
    let cookie = fields.bytes(cookie_bytes.into())?;
    let secret = Secret::new(cookie, fields.bytes(16)?, fields.bytes(16)?);
    let name = secret.name();
    let link = link.insert(Link::new(role, packet_max_bytes, secret));
    if window_bytes > 0 {
        link.tell_window(window_bytes as usize, node_window_bytes);
    }
    put(answer, &name)
}

fn reserve(reserved: &mut Option<Reserved>, answer: &mut UninitSlice) -> Option<usize> {
    if reserved.is_none() {
        match Reserved::new() {
            Ok(descriptor) => *reserved = Some(descriptor),
            Err(error) => return put(answer, errno_name(error.raw_os_error().unwrap_or(libc::EIO)).as_bytes()),
        }
    }
    answer_whether(true, answer)
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

fn command_of(
    port: Port,
    link: &mut Link,
    command: Command,
    argument: &[u8],
    answer: &mut UninitSlice,
) -> Option<usize> {
    let mut fields = Fields(argument);
    match command {
        Command::Start => return link.start(port).then_some(0),
        // If the connection is over, the port ends next.
        Command::Tick => link.tick(port),
        Command::Packets => {
            let (received, sent) = link.packets();
            return put_numbers(answer, &[received, sent, link.unsent_bytes()]);
        }
        Command::Watch => link.watch(port),
        Command::Sealing => return put_numbers(answer, &link.sealing()),
        Command::Compression => return put_numbers(answer, &link.compression()),
        Command::BeginOnQueue => link.begin_on_queue(),
        Command::Move if link.is_current(fields.u64()?) => {
            return link.move_to_queue(port).then(|| answer_whether(true, answer)).flatten();
        }
        Command::Move => {}
        Command::GiveUpTcp => {
            if let Some(standing) = link.suspend(port, fields.u64()?) {
                return put_numbers(answer, &[standing.received.0, standing.path.unwrap_or(0)]);
            }
        }
        Command::Abandon if argument.is_empty() => link.abandon_own(port),
        Command::Abandon => link.abandon(port, fields.u64()?),
        Command::Prove => return put(answer, &link.secret().prove(argument)),
        Command::Verify => {
            let proof = fields.bytes(PROOF_BYTES)?;
            return answer_whether(link.secret().is_proof(fields.0, proof), answer);
        }
        Command::Attempt if argument.is_empty() => return put_numbers(answer, &[link.next_attempt()]),
        Command::Attempt => {
            if link.accepts(fields.u64()?) {
                return put(answer, argument);
            }
        }
        Command::Control => return link.control(port, argument).then_some(0),
        Command::DropQueue => link.drop_unused_queue(port),
        Command::Return => {
            let returns = link.is_current(fields.u64()?) && link.return_to_tcp(port);
            return answer_whether(returns, answer);
        }
        Command::SuspectAfter => {
            let after_ms = fields.u32()?;
            link.set_patience(port, (after_ms > 0).then(|| Duration::from_millis(after_ms.into())));
        }
        Command::HoldWrites => link.hold_writes(port),
        Command::Questions => {
            let [decide] = fields.array()?;
            link.let_questions_decide(decide != 0);
        }
        Command::Attribute => link.attribute(),
        Command::Attribution => {
            let term = link.attribution();
            if let Some(term) = &term {
                port.tell_binary(term);
            }
            return answer_whether(term.is_some(), answer);
        }
        Command::Counts => {
            let [first] = fields.array()?;
            return put_numbers(answer, &link.counts(first.into()));
        }
        Command::RoundTrips => return put_numbers(answer, &link.round_trips()),
        Command::Socket => return put(answer, &link.lend_tcp()?.to_ne_bytes()),
        Command::AttachQueue
        | Command::BeginSession
        | Command::Attach
        | Command::Resume
        | Command::EndLink
        | Command::Open
        | Command::Reserve
        | Command::Release => return None,
    }
    Some(0)
}

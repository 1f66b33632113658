//! How two processes meet: a Unix socket, in the abstract namespace or a file (`directory`), one greeting each way.
//!
//! The connecting side greets first. A greeting is one message: the hello of the stream protocol, and two descriptors:
//! of the sender's memory, and of the socket by which it is woken (`wakeup`). A listener refuses a peer by an answer of
//! one byte, which gives the reason. A peer of another version gets the listener's bare hello instead, so that both
//! sides can name both versions. After the greetings both sides close the socket on which they met.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use inet_rdma_fabric::closing::Stray;
use inet_rdma_fabric::{FabricError, Misbehaviour};
use inet_rdma_stream::{HELLO_BYTES, Hello};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use crate::mapping::SealedFile;
use crate::wakeup::Waker;

/// The refusing answer of a listener: all places are taken.
pub(crate) const REFUSED_BUSY: u8 = 1;
/// The refusing answer of a listener: the greeting is not valid.
pub(crate) const REFUSED_GREETING: u8 = 2;
/// The refusing answer of a listener in a directory: processes of the peer's user may not connect.
pub(crate) const REFUSED_USER: u8 = 3;

const DESCRIPTORS: usize = 2;

pub(crate) struct Greeting {
    pub(crate) hello: Hello,
    pub(crate) memory: SealedFile,
    pub(crate) waker: Waker,
}

/// The name that a port has in the abstract namespace.
pub(crate) fn address(port: u16) -> Result<SocketAddrUnix, FabricError> {
    SocketAddrUnix::new_abstract_name(format!("inet_rdma/{port}").as_bytes())
        .map_err(|errno| FabricError::system("naming a socket", errno))
}

/// Makes a socket that keeps message boundaries.
pub(crate) fn socket(flags: SocketFlags) -> Result<OwnedFd, FabricError> {
    let flags = flags | SocketFlags::CLOEXEC;
    rustix::net::socket_with(rustix::net::AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .map_err(|errno| FabricError::system("creating a socket", errno))
}

/// Sends this side's greeting. Never blocks: it is the first message into an empty socket. `descriptors`: of the
/// memory, and of the end by which the peer wakes this side.
pub(crate) fn send_greeting(
    socket: BorrowedFd<'_>,
    hello: &Hello,
    descriptors: [BorrowedFd<'_>; DESCRIPTORS],
) -> Result<(), FabricError> {
    let bytes = hello.emit();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    match rustix::net::sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, flags) {
        Ok(_) => Ok(()),
        Err(Errno::PIPE | Errno::CONNRESET) => Err(FabricError::PeerGone),
        Err(errno) => Err(FabricError::system("greeting the peer", errno)),
    }
}

/// Tells a peer why it is refused: a reason, or this side's hello. Ignores failures: a peer that is gone needs no
/// answer.
pub(crate) fn refuse(socket: BorrowedFd<'_>, answer: &[u8]) {
    let _ = rustix::net::send(socket, answer, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

/// Takes the peer's greeting. None: nothing has come yet. `port` names the listener in a refusal.
pub(crate) fn receive_greeting(socket: BorrowedFd<'_>, port: u16) -> Result<Option<Greeting>, FabricError> {
    // One byte more than a hello, so that a longer message is seen to be longer.
    let mut bytes = [0; HELLO_BYTES + 1];
    let mut descriptors = Vec::with_capacity(DESCRIPTORS);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags);
    // Every descriptor that came is owned from here on, wanted or not. Those beyond the space were never installed.
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(came) = message {
            descriptors.extend(came.map(Stray::from));
        }
    }
    let received = match received {
        Ok(received) => received,
        // The kernel reports a reset once, if the peer closed with unread messages. Messages that the peer sent before
        // come next, then the end.
        Err(Errno::AGAIN | Errno::INTR | Errno::CONNRESET) => return Ok(None),
        Err(errno) => return Err(FabricError::system("receiving the greeting of the peer", errno)),
    };
    match (received.bytes, bytes[0]) {
        (0, _) => return Err(FabricError::PeerGone),
        (1, REFUSED_BUSY) => return Err(FabricError::Refused(port)),
        (1, REFUSED_GREETING) => return Err(FabricError::PeerMisbehaved(Misbehaviour::GreetingRefused)),
        (1, REFUSED_USER) => return Err(FabricError::UserRefused),
        _ => {}
    }
    let hello = Hello::parse(bytes.get(..received.bytes).unwrap_or(&bytes))?;
    let is_cut = received.flags.contains(ReturnFlags::CTRUNC);
    if is_cut && descriptors.len() < DESCRIPTORS {
        let doing = "receiving the descriptors of the peer";
        // The kernel does not say why it has left one out: this process has no place for it, or may not have it.
        let why = rustix::io::fcntl_dupfd_cloexec(socket, 0)
            .err()
            .unwrap_or(Errno::ACCESS);
        return Err(FabricError::system(doing, why));
    }
    match <[Stray; DESCRIPTORS]>::try_from(descriptors) {
        Ok([memory, waking]) if !is_cut => Ok(Some(Greeting {
            hello,
            memory: SealedFile::verify(memory)?,
            waker: Waker::of(waking)?,
        })),
        _ => Err(FabricError::PeerMisbehaved(Misbehaviour::GreetingIncomplete)),
    }
}

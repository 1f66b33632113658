//! How two processes meet: a Unix socket, in the abstract namespace or a file (`directory`), one greeting each way.
//!
//! The connecting side greets first. A greeting is one message: the hello of the stream protocol, and one file
//! descriptor, of the sender's memory. A listener refuses a peer by an answer of one byte, which gives the reason. A
//! peer of another version gets the listener's bare hello instead, so that both sides can name both versions. After
//! the greetings the socket stays open: each message on it is a wake-up, and its end-of-file ends the connection.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use inet_rdma_fabric::{FabricError, Misbehaviour};
use inet_rdma_stream::{HELLO_BYTES, Hello};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use crate::mapping::SealedFile;

/// The refusing answer of a listener: all places are taken.
pub(crate) const REFUSED_BUSY: u8 = 1;
/// The refusing answer of a listener: the greeting is not valid.
pub(crate) const REFUSED_GREETING: u8 = 2;

/// The refusing answer of a listener in a directory: processes of the peer's user may not connect.
pub(crate) const REFUSED_USER: u8 = 3;

/// A peer's greeting: its hello and its memory file.
#[derive(Debug)]
pub(crate) struct Greeting {
    pub(crate) hello: Hello,
    pub(crate) memory: SealedFile,
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

/// Sends this side's greeting. Never blocks: it is the first message into an empty socket.
pub(crate) fn send_greeting(socket: BorrowedFd<'_>, hello: &Hello, memory: BorrowedFd<'_>) -> Result<(), FabricError> {
    let bytes = hello.emit();
    let descriptors = [memory];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    match rustix::net::sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, flags) {
        Ok(_) => Ok(()),
        Err(Errno::PIPE | Errno::CONNRESET) => Err(FabricError::PeerGone),
        Err(errno) => Err(FabricError::system("greeting the peer", errno)),
    }
}

/// Tells a peer why it is refused. Ignores failures: a peer that is gone needs no answer.
pub(crate) fn refuse(socket: BorrowedFd<'_>, why: u8) {
    let _ = rustix::net::send(socket, &[why], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

/// Sends this side's hello to a peer of another version.
pub(crate) fn refuse_version(socket: BorrowedFd<'_>, hello: &Hello) {
    let bytes = hello.emit();
    let _ = rustix::net::send(socket, &bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

/// Takes the peer's greeting. None: nothing has come yet. `port` names the listener in a refusal.
pub(crate) fn receive_greeting(socket: BorrowedFd<'_>, port: u16) -> Result<Option<Greeting>, FabricError> {
    // One byte more than a hello, so that a longer message is seen to be longer.
    let mut bytes = [0; HELLO_BYTES + 1];
    let mut descriptors = Vec::with_capacity(1);
    let received = {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags);
        // Every descriptor that came is owned from here on, wanted or not. Those beyond the space were never installed.
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(came) = message {
                descriptors.extend(came);
            }
        }
        received
    };
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
        (1, REFUSED_GREETING) => {
            return Err(FabricError::PeerMisbehaved(Misbehaviour::GreetingRefused));
        }
        (1, REFUSED_USER) => return Err(FabricError::UserRefused),
        _ => {}
    }
    let hello = Hello::parse(bytes.get(..received.bytes).unwrap_or(&bytes))?;
    let complete = !received.flags.contains(ReturnFlags::CTRUNC);
    match <[OwnedFd; 1]>::try_from(descriptors) {
        Ok([memory]) if complete => Ok(Some(Greeting {
            hello,
            memory: SealedFile::verify(memory)?,
        })),
        _ => Err(FabricError::PeerMisbehaved(Misbehaviour::GreetingIncomplete)),
    }
}

/// Wakes the peer. Never blocks, even if the peer takes no messages: MSG_DONTWAIT is a flag of this call. O_NONBLOCK of
/// an event fd is a flag of the open file description, which both processes share, and either may clear it at any time.
pub(crate) fn wake(socket: BorrowedFd<'_>) -> Result<(), FabricError> {
    loop {
        return match rustix::net::send(socket, &[0], SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            // AGAIN: the peer has not taken earlier wake-ups, so its end is readable.
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            // `check_alive` reports the peer's end.
            Err(Errno::PIPE | Errno::CONNRESET) => Ok(()),
            Err(Errno::INTR) => continue,
            Err(errno) => Err(FabricError::system("waking the peer", errno)),
        };
    }
}

/// Takes one wake-up, if one is there; further ones keep the socket readable. False: the peer's end has come, or an
/// empty message, which no honest peer sends.
pub(crate) fn take_wakeup(socket: BorrowedFd<'_>) -> bool {
    // The rest of a longer message is cut off, and descriptors that it brings are never installed.
    let taken = rustix::net::recv(socket, &mut [0u8; 1], RecvFlags::DONTWAIT);
    !matches!(taken, Ok((_, 0)) | Err(Errno::CONNRESET))
}

/// Fails once the peer has closed its end, also while wake-ups wait in the socket.
pub(crate) fn check_alive(socket: BorrowedFd<'_>) -> Result<(), FabricError> {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    match rustix::event::poll(&mut [PollFd::from_borrowed_fd(socket, PollFlags::RDHUP)], Some(&now)) {
        Ok(0) | Err(Errno::INTR) => Ok(()),
        Ok(_) => Err(FabricError::PeerGone),
        Err(errno) => Err(FabricError::system("looking after the peer", errno)),
    }
}

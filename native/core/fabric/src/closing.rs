//! Closes files that a process which was not checked may have sent, on threads of their own.
//!
//! The last close of a file may wait: a TCP socket with unsent bytes and `SO_LINGER`, a file of a file system in user
//! space. A Unix socket also holds the files of messages that nobody has read. So a thread that others wait for closes
//! none of these.

use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use parking_lot::Mutex;
use rustix::net::{AddressFamily, RecvAncillaryBuffer, RecvFlags, RecvMsg, ReturnFlags, Shutdown, SocketType, sockopt};

use crate::threads;

/// Files that are being closed at a time, each on a thread, which costs 28 KiB while it waits. Further files stay open
/// and wait, and listeners accept nobody meanwhile ([`has_room`]).
pub const CLOSES_MAX: usize = 64;

static CLOSING: Mutex<Closing> = Mutex::new(Closing {
    waiting: VecDeque::new(),
    threads: 0,
});

struct Closing {
    waiting: VecDeque<OwnedFd>,
    threads: usize,
}

impl Closing {
    /// Starts a thread for a file that waits. If none can be started the file waits for the next call.
    fn start(&mut self) {
        if !self.waiting.is_empty() && self.threads < CLOSES_MAX && threads::start("inet_rdma/close", work).is_ok() {
            self.threads += 1;
        }
    }
}

/// Closes files until none waits.
fn work() {
    loop {
        let mut closing = CLOSING.lock();
        let Some(file) = closing.waiting.pop_front() else {
            closing.threads -= 1;
            return;
        };
        drop(closing);
        drop(file);
    }
}

/// Closes a file on another thread. Never waits.
pub fn close(file: OwnedFd) {
    let mut closing = CLOSING.lock();
    closing.waiting.push_back(file);
    closing.start();
}

/// False: [`CLOSES_MAX`] files are being closed, and others wait. A listener then leaves peers in the kernel's backlog.
pub fn has_room() -> bool {
    let mut closing = CLOSING.lock();
    closing.start();
    closing.threads < CLOSES_MAX
}

/// A file that a peer has sent, or a `SOCK_SEQPACKET` Unix socket over which it can send files. Its drop never waits:
/// another thread closes what might.
#[derive(Debug)]
pub struct Stray(Option<OwnedFd>);

impl Stray {
    /// The file, of which the caller knows that its close does not wait.
    #[must_use]
    pub fn checked(mut self) -> OwnedFd {
        self.0.take().expect(TAKEN_ONCE)
    }
}

const TAKEN_ONCE: &str = "only `checked` and the drop take the file, and both end the value";

impl From<OwnedFd> for Stray {
    fn from(file: OwnedFd) -> Stray {
        Stray(Some(file))
    }
}

impl AsFd for Stray {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_ref().expect(TAKEN_ONCE).as_fd()
    }
}

impl Drop for Stray {
    fn drop(&mut self) {
        match self.0.take() {
            Some(socket) if holds_no_message(socket.as_fd()) => drop(socket),
            Some(file) => close(file),
            None => {}
        }
    }
}

/// True for a connected `SOCK_SEQPACKET` Unix socket without unread messages, whose close does not wait. No message
/// comes afterwards.
fn holds_no_message(socket: BorrowedFd<'_>) -> bool {
    let kind = sockopt::socket_domain(socket).and_then(|domain| Ok((domain, sockopt::socket_type(socket)?)));
    if kind != Ok((AddressFamily::UNIX, SocketType::SEQPACKET))
        || rustix::net::shutdown(socket, Shutdown::Read).is_err()
    {
        return false;
    }
    // A message may be empty. With the sender's credentials, for which there is no room, each one is cut.
    let asked = sockopt::set_socket_passcred(socket, true);
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let mut byte = [0];
    let mut bytes = [IoSliceMut::new(&mut byte)];
    let peeked = rustix::net::recvmsg(socket, &mut bytes, &mut RecvAncillaryBuffer::default(), flags);
    let is_empty = |peeked: RecvMsg| peeked.bytes == 0 && !peeked.flags.contains(ReturnFlags::CTRUNC);
    asked.is_ok() && peeked.is_ok_and(is_empty)
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::mem::MaybeUninit;

    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, socketpair};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("two sockets")
    }

    fn send(socket: &OwnedFd, bytes: &[u8], file: Option<BorrowedFd<'_>>) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let files: Vec<_> = file.into_iter().collect();
        if !files.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&files));
        }
        rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL).expect("sent");
    }

    #[test]
    fn a_socket_without_messages_is_closed_here() {
        let (ours, theirs) = pair();
        assert!(holds_no_message(ours.as_fd()));
        let refused = rustix::net::send(&theirs, b"late", SendFlags::NOSIGNAL);
        assert!(refused.is_err(), "no further message comes");
        let (ours, theirs) = pair();
        drop(theirs);
        assert!(holds_no_message(ours.as_fd()), "after the end");
    }

    #[test]
    fn each_message_is_found_however_short_and_behind_whatever_others() {
        let file = std::fs::File::open("/proc/self/exe").expect("a file");
        for messages in [vec![1], vec![0], vec![0, 0, 5], vec![5, 0]] {
            for last in [None, Some(file.as_fd())] {
                let (ours, theirs) = pair();
                messages.iter().for_each(|bytes| send(&theirs, &vec![0; *bytes], None));
                send(&theirs, &[], last);
                drop(theirs);
                assert!(!holds_no_message(ours.as_fd()), "{messages:?}");
            }
        }
    }

    #[test]
    fn other_files_are_closed_elsewhere() {
        let (listening, _other) = (
            rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None),
            (),
        );
        let tcp = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None);
        for file in [listening.expect("a socket"), tcp.expect("a socket")] {
            assert!(!holds_no_message(file.as_fd()));
        }
    }
}

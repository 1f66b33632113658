//! Lingering close of TCP connections, on one thread of the process.
//!
//! The caller waits for nothing. The thread sends the bytes that the socket has not taken yet, then the end of the
//! stream, then waits for the peer's end. Without that wait bytes of the peer could reach a closed socket: the kernel
//! answers them with a reset, and drops the bytes that it has not sent.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::catch_unwind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown};

use crate::event::Event;
use crate::waiting::poll_until;
use crate::{FabricError, threads};

/// How long a connection may take to end. A peer that reads ends within a round trip of the last byte. The
/// bound is for peers that have stopped, and for slow networks: 256 KiB take 20 s at 100 kbit/s.
const LINGER: Duration = Duration::from_secs(30);

/// An empty backlog keeps at most this much memory, in bytes.
const KEPT_BYTES: usize = 4096;

/// Bytes of a peer that are thrown away at a time.
const UNREAD_BYTES: usize = 16 * 1024;

/// The orders of the running thread, which ends when no connection lingers.
static THREAD: Mutex<Option<Orders>> = Mutex::new(None);

struct Orders {
    new: Vec<Lingering>,
    event: Arc<Event>,
}

struct Lingering {
    socket: Arc<OwnedFd>,
    backlog: VecDeque<u8>,
    deadline: Instant,
}

/// Ends a connection. `backlog` is what the socket has not taken. `at_end`: the peer has closed it, and unsent bytes
/// are dropped.
pub fn close(socket: &Arc<OwnedFd>, backlog: VecDeque<u8>, at_end: bool) {
    if backlog.is_empty() {
        end_writing(socket);
    }
    if at_end {
        // The peer no longer reads.
        end_writing(socket);
        return;
    }
    let lingering = Lingering {
        socket: Arc::clone(socket),
        backlog,
        deadline: Instant::now() + LINGER,
    };
    let mut thread = THREAD.lock();
    if thread.is_none() {
        *thread = start().ok();
    }
    match &mut *thread {
        Some(orders) => {
            orders.new.push(lingering);
            orders.event.set();
        }
        // The process has no descriptor or no thread left: the kernel sends the bytes that it has.
        None => end_writing(socket),
    }
}

fn end_writing(socket: &OwnedFd) {
    // Fails only when the peer was faster.
    let _gone = rustix::net::shutdown(socket, Shutdown::Write);
}

fn start() -> Result<Orders, FabricError> {
    let event = Arc::new(Event::new()?);
    let served = Arc::clone(&event);
    threads::start("inet_rdma/linger", move || {
        // Err: a panic, or the kernel has no memory. The next `close` starts another thread.
        if !matches!(catch_unwind(|| serve(&served)), Ok(Ok(()))) {
            *THREAD.lock() = None;
        }
    })?;
    Ok(Orders { new: Vec::new(), event })
}

/// Serves connections until none lingers.
fn serve(event: &Event) -> Result<(), Errno> {
    let mut all: Vec<Lingering> = Vec::new();
    loop {
        event.clear();
        {
            let mut thread = THREAD.lock();
            all.extend(thread.iter_mut().flat_map(|orders| orders.new.drain(..)));
            if all.is_empty() {
                *thread = None;
                return Ok(());
            }
        }
        let ready = wait(event, &all)?;
        let now = Instant::now();
        let mut ready = ready.into_iter();
        all.retain_mut(|lingering| {
            let is_ready = ready.next().unwrap_or(false);
            (!is_ready || lingering.go_on()) && now < lingering.deadline
        });
    }
}

/// Waits for events. Returns for each connection whether it can continue.
fn wait(event: &Event, all: &[Lingering]) -> Result<Vec<bool>, Errno> {
    let of_lingering = |lingering: &Lingering| {
        if lingering.backlog.is_empty() {
            PollFlags::IN
        } else {
            PollFlags::IN | PollFlags::OUT
        }
    };
    let mut fds: Vec<_> = all
        .iter()
        .map(|lingering| PollFd::from_borrowed_fd(lingering.socket.as_fd(), of_lingering(lingering)))
        .collect();
    fds.push(PollFd::from_borrowed_fd(event.as_fd(), PollFlags::IN));
    let first = all.iter().map(|lingering| lingering.deadline).min();
    poll_until(&mut fds, first)?;
    Ok(fds.iter().map(|fd| !fd.revents().is_empty()).collect())
}

impl Lingering {
    /// Returns false if the connection has ended.
    fn go_on(&mut self) -> bool {
        if !self.backlog.is_empty() {
            if flush(self.socket.as_fd(), &mut self.backlog).is_err() {
                return false;
            }
            if self.backlog.is_empty() {
                end_writing(&self.socket);
            }
        }
        match rustix::net::recv(&self.socket, &mut [0; UNREAD_BYTES], RecvFlags::DONTWAIT) {
            Ok((0, _)) => false,
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => true,
            Err(_) => false,
        }
    }
}

/// Sends from the front of `backlog`, as far as the socket takes it.
pub fn flush(socket: BorrowedFd<'_>, backlog: &mut VecDeque<u8>) -> Result<(), Errno> {
    while !backlog.is_empty() {
        let (front, back) = backlog.as_slices();
        let sent = send(socket, &[IoSlice::new(front), IoSlice::new(back)], false)?;
        if sent == 0 {
            return Ok(());
        }
        backlog.drain(..sent);
    }
    if backlog.capacity() > KEPT_BYTES {
        *backlog = VecDeque::new();
    }
    Ok(())
}

/// How many bytes the socket took; 0: it is full. `more`: others follow at once.
pub fn send(socket: BorrowedFd<'_>, slices: &[IoSlice<'_>], more: bool) -> Result<usize, Errno> {
    let mut flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    flags.set(SendFlags::MORE, more);
    loop {
        return match rustix::net::sendmsg(socket, slices, &mut SendAncillaryBuffer::default(), flags) {
            // No memory for a socket's buffer: as full as one.
            Err(Errno::AGAIN | Errno::NOBUFS) => Ok(0),
            Err(Errno::INTR) => continue,
            sent => sent,
        };
    }
}

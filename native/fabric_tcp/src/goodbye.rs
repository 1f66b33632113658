//! The end of connections, on one thread of the process.
//!
//! Who ends a connection waits for nothing. What its socket has not taken yet is sent here, then the end of the stream is
//! told, then the peer's end is awaited. Without that wait bytes of the peer could reach a closed socket: the kernel answers
//! these with a reset, and with it drops what it has still to send.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use inet_rdma_fabric::{FabricError, event::Event, threads};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown};

use crate::sending::flush;

/// How long a connection may take to end. A peer that takes what is sent ends within a round trip of the last byte. The bound
/// is for peers that have stopped, and for slow networks: 256 KiB take 20 s at 100 kbit/s.
const GOODBYE: Duration = Duration::from_secs(30);

/// Bytes of a peer that are thrown away at a time.
const UNREAD_BYTES: usize = 16 * 1024;

/// Stays for as long as the process once it was started.
static THREAD: Mutex<Option<Arc<Orders>>> = Mutex::new(None);

struct Orders {
    new: Mutex<Vec<Leaving>>,
    event: Event,
}

/// A connection that ends.
struct Leaving {
    socket: Arc<OwnedFd>,
    backlog: VecDeque<u8>,
    deadline: Instant,
}

/// Ends a connection. `backlog` is what the socket has not taken. `at_end`: the peer has ended it before.
pub(crate) fn take_leave(socket: &Arc<OwnedFd>, backlog: VecDeque<u8>, at_end: bool) {
    if backlog.is_empty() {
        end_writing(socket);
    }
    if at_end {
        // The peer reads no more.
        end_writing(socket);
        return;
    }
    let leaving = Leaving {
        socket: Arc::clone(socket),
        backlog,
        deadline: Instant::now() + GOODBYE,
    };
    match orders() {
        Ok(orders) => {
            orders.new.lock().push(leaving);
            orders.event.set();
        }
        // The process has no descriptor or no thread left: the kernel sends what it has.
        Err(_) => end_writing(socket),
    }
}

fn end_writing(socket: &OwnedFd) {
    // Fails only when the peer was faster.
    let _gone = rustix::net::shutdown(socket, Shutdown::Write);
}

fn orders() -> Result<Arc<Orders>, FabricError> {
    let mut thread = THREAD.lock();
    if let Some(orders) = &*thread {
        return Ok(Arc::clone(orders));
    }
    let orders = Arc::new(Orders {
        new: Mutex::default(),
        event: Event::new()?,
    });
    let served = Arc::clone(&orders);
    threads::start("inet_rdma/goodbye", move || {
        let _ended = Ended;
        serve(&served);
    })?;
    *thread = Some(Arc::clone(&orders));
    Ok(orders)
}

/// The thread has ended, which only a panic or a kernel without memory brings about: the next end starts another one.
struct Ended;

impl Drop for Ended {
    fn drop(&mut self) {
        *THREAD.lock() = None;
    }
}

fn serve(orders: &Orders) {
    let mut all: Vec<Leaving> = Vec::new();
    loop {
        orders.event.clear();
        all.append(&mut orders.new.lock());
        let Ok(ready) = wait(&orders.event, &all) else { return };
        let now = Instant::now();
        let mut ready = ready.into_iter();
        all.retain_mut(|leaving| {
            let is_ready = ready.next().unwrap_or(false);
            (!is_ready || leaving.go_on()) && now < leaving.deadline
        });
    }
}

/// Which of them can go on.
fn wait(event: &Event, all: &[Leaving]) -> Result<Vec<bool>, Errno> {
    let of_leaving = |leaving: &Leaving| match leaving.backlog.is_empty() {
        true => PollFlags::IN,
        false => PollFlags::IN | PollFlags::OUT,
    };
    let mut fds: Vec<_> = all
        .iter()
        .map(|leaving| PollFd::from_borrowed_fd(leaving.socket.as_fd(), of_leaving(leaving)))
        .collect();
    fds.push(PollFd::from_borrowed_fd(event.as_fd(), PollFlags::IN));
    let first = all.iter().map(|leaving| leaving.deadline).min();
    let left = first.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    let left = left.and_then(|left| Timespec::try_from(left).ok());
    match poll(&mut fds, left.as_ref()) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(errno) => return Err(errno),
    }
    Ok(fds.iter().map(|fd| !fd.revents().is_empty()).collect())
}

impl Leaving {
    /// False: it is over.
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

//! Descriptors of a process that may have used up its limit (`RLIMIT_NOFILE`).
//!
//! A path has a descriptor of its own beside that of the VM's socket, which the VM closes a moment later. For that
//! moment a process that has no descriptor left has the spare: one for all its paths, opened while there was room.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{DupFlags, dup3, fcntl_dupfd_cloexec};

static SPARE: Mutex<Option<OwnedFd>> = Mutex::new(None);

/// Whether the spare is there, without the lock: a late answer costs one more look.
static HAS_SPARE: AtomicBool = AtomicBool::new(false);

/// The number of [`Lent`].
static LENT: AtomicUsize = AtomicUsize::new(0);

/// The spare's place, free for the files of another party, such as TLS in a handshake. There is no spare until the
/// drop.
#[derive(Debug)]
pub struct Lent(());

/// Closes the spare.
#[must_use]
pub fn lend() -> Lent {
    LENT.fetch_add(1, Ordering::Relaxed);
    drop(take());
    Lent(())
}

impl Drop for Lent {
    fn drop(&mut self) {
        LENT.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Opens the spare descriptor, if there is none, its place is not lent, and the limit allows one.
pub fn refill() {
    if !HAS_SPARE.load(Ordering::Relaxed) && LENT.load(Ordering::Relaxed) == 0 {
        put(placeholder().ok());
    }
}

/// Makes the descriptor the spare, unless there is one or its place is lent.
fn put(descriptor: Option<OwnedFd>) {
    let mut spare = SPARE.lock();
    if spare.is_none() && LENT.load(Ordering::Relaxed) == 0 {
        *spare = descriptor;
    }
    HAS_SPARE.store(spare.is_some(), Ordering::Relaxed);
}

fn take() -> Option<OwnedFd> {
    let mut spare = SPARE.lock();
    HAS_SPARE.store(false, Ordering::Relaxed);
    spare.take()
}

/// An open file that every kernel has.
fn placeholder() -> rustix::io::Result<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC)
}

/// A descriptor for a connection that will come.
#[derive(Debug)]
pub struct Reserved(Option<OwnedFd>);

impl Reserved {
    /// A new descriptor, else the spare. An error: the spare is in use, too.
    pub fn new() -> io::Result<Reserved> {
        match placeholder() {
            Ok(descriptor) => Ok(Reserved(Some(descriptor))),
            Err(error) => take().map(|spare| Reserved(Some(spare))).ok_or(error.into()),
        }
    }

    /// Makes it another descriptor of this socket.
    pub fn copy_of(mut self, socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        let mut descriptor = self.0.take().ok_or(io::ErrorKind::NotFound)?;
        dup3(socket, &mut descriptor, DupFlags::CLOEXEC)?;
        Ok(descriptor)
    }
}

/// One that was not used is the spare, if there is no other.
impl Drop for Reserved {
    fn drop(&mut self) {
        if let Some(descriptor) = self.0.take() {
            put(Some(descriptor));
        }
    }
}

/// Another descriptor of this socket: a new one, else the spare.
pub fn copy_of(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    fcntl_dupfd_cloexec(socket, 0).or_else(|error| match take() {
        Some(spare) => Reserved(Some(spare)).copy_of(socket),
        None => Err(error.into()),
    })
}

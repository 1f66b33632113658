//! One end of a connection in shared memory.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use inet_rdma_fabric::{
    Capabilities, Completion, Exposer, FabricError, FabricName, Memory, Misbehaviour, Parameters, QueuePair, Safeguard,
    Transport, WriteRoom,
};
use inet_rdma_stream::{CONTROL_BYTES, Hello, Notice, RemoteAddress};
use parking_lot::Mutex;

use crate::exposer::ShmExposer;
use crate::layout::{Layout, RING, RING_KEY};
use crate::mapping::SealedFile;
use crate::memory::{ExposedMemory, PeerMemory};
use crate::queue::{Consumer, INLINE_BYTES, Producer, PushError};
use crate::rendezvous::{self, Greeting};
use crate::wakeup::{Waker, Watch};

/// This side's part, made before the peer's greeting is received or answered.
pub(crate) struct OwnSide {
    file: SealedFile,
    memory: Arc<ExposedMemory>,
    hello: Hello,
    watch: Watch,
    /// The end by which the peer wakes this side. None: the greeting is sent. An open copy would
    /// suppress the peer's hang-up.
    waking: Option<OwnedFd>,
}

impl OwnSide {
    pub(crate) fn create(parameters: &Parameters) -> Result<OwnSide, FabricError> {
        let layout = Layout::of(parameters)?;
        let file = SealedFile::create(layout.total_bytes)?;
        let memory = Arc::new(ExposedMemory::map(&file, layout)?);
        let (watch, waking) = Watch::create()?;
        Ok(OwnSide {
            file,
            memory,
            hello: parameters.hello(RING),
            watch,
            waking: Some(waking),
        })
    }

    pub(crate) fn greet(&mut self, socket: BorrowedFd<'_>) -> Result<(), FabricError> {
        let waking = self.waking.take().ok_or(FabricError::PeerGone)?;
        rendezvous::send_greeting(socket, &self.hello, [self.file.as_fd(), waking.as_fd()])
    }

    /// Makes the queue pair, after both greetings. Closes the memory files: the mappings keep the memory.
    /// `through`: the directory in which they met; None: in the network namespace. `is_near`: see
    /// [`Process::is_near`](crate::peer::Process::is_near).
    pub(crate) fn join(self, peer: PeerSide, through: Option<Arc<Path>>, is_near: bool) -> ShmQueuePair {
        let exposed: Arc<dyn Memory> = Arc::clone(&self.memory) as Arc<dyn Memory>;
        let producer = Producer::new(peer.memory.slots());
        ShmQueuePair {
            watch: self.watch,
            exposer: Arc::new(ShmExposer::new(&self.memory)),
            own_memory: self.memory,
            exposed,
            peer,
            consumer: Consumer::new(),
            producer: Mutex::new(producer),
            wakeups_sent: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
            safeguard: if is_near && through.is_none() {
                Safeguard::Trust
            } else {
                Safeguard::None
            },
            through,
        }
    }
}

/// The peer's part: its memory, checked and mapped, and the end by which it is woken.
pub(crate) struct PeerSide {
    hello: Hello,
    memory: PeerMemory,
    waker: Waker,
}

impl PeerSide {
    pub(crate) fn map(greeting: Greeting) -> Result<PeerSide, FabricError> {
        let layout = Layout::of_peer(&greeting.hello, greeting.memory.bytes())?;
        let memory = PeerMemory::map(&greeting.memory, layout)?;
        Ok(PeerSide {
            hello: greeting.hello,
            memory,
            waker: greeting.waker,
        })
    }
}

/// A size that stays in the second-level cache of a core, and suffices for a writer and a reader that sleep by turns
/// (measured: bench/results/tuning/landing-window).
const LANDING_WINDOW_BYTES: usize = 1 << 20;

/// Maximum size of transfers that are copied with the producer locked. To take the lock, the processor waits for all
/// earlier stores, which wait for the peer's processor. Stores after the lock wait at the same time as those of the
/// entry.
const LOCKED_BYTES_MAX: usize = 2048;

/// A queue pair in shared memory. Holds three file descriptors: two of [`Watch`], and that of [`Waker`].
pub(crate) struct ShmQueuePair {
    watch: Watch,
    own_memory: Arc<ExposedMemory>,
    exposed: Arc<dyn Memory>,
    exposer: Arc<ShmExposer>,
    peer: PeerSide,
    /// The connection's lock is held during a poll, and while arming.
    consumer: Consumer,
    /// Held around a push, never around the copying of bulk data.
    producer: Mutex<Producer>,
    wakeups_sent: AtomicU64,
    is_closed: AtomicBool,
    /// Trust: a peer of the same user, network namespace and process-id namespace could change memory of this process
    /// in other ways, too. None: the peer may be in a container, or of a user, that is isolated from this one.
    safeguard: Safeguard,
    /// The directory in which both processes met; None: in the network namespace.
    through: Option<Arc<Path>>,
}

impl ShmQueuePair {
    fn push(&self, item: &Completion) -> Result<(), Box<FabricError>> {
        let pushed = self.producer.lock().push(self.peer.memory.queue(), item);
        self.announce(pushed.map_err(refused)?)
    }

    /// Tells the peer of a pushed entry if it sleeps.
    #[inline]
    fn announce(&self, sleeps: bool) -> Result<(), Box<FabricError>> {
        if sleeps { self.wake() } else { Ok(()) }
    }

    #[inline(never)]
    fn wake(&self) -> Result<(), Box<FabricError>> {
        self.wakeups_sent.fetch_add(1, Ordering::Relaxed);
        Ok(self.peer.waker.wake()?)
    }

    /// Fails after this side's own end: a post would write into memory that the peer no longer reads.
    fn check_open(&self) -> Result<(), FabricError> {
        if self.is_closed.load(Ordering::Relaxed) {
            Err(FabricError::PeerGone)
        } else {
            Ok(())
        }
    }
}

impl QueuePair for ShmQueuePair {
    fn memory(&self) -> &Arc<dyn Memory> {
        &self.exposed
    }

    fn exposer(&self) -> Arc<dyn Exposer> {
        Arc::clone(&self.exposer) as Arc<dyn Exposer>
    }

    fn remote_hello(&self) -> &Hello {
        &self.peer.hello
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            transport: Transport::SharedMemory,
            immediate: true,
            inline_max: INLINE_BYTES,
            post_is_costly: false,
            pins: false,
            safeguard: self.safeguard,
            windows: false,
            landing_window_bytes: LANDING_WINDOW_BYTES,
            ack_timeout: None,
        }
    }

    fn post_write(
        &self,
        _room: WriteRoom,
        source: &[&[u8]],
        target: RemoteAddress,
        notice: Notice,
    ) -> Result<(), Box<FabricError>> {
        self.check_open()?;
        let peer = &self.peer.memory;
        let transfer = peer.locate(source, target)?;
        if transfer.bytes() > LOCKED_BYTES_MAX {
            transfer.copy();
            return self.push(&Completion::Notice(notice));
        }
        let is_whole = notice.bytes as usize == transfer.bytes();
        let mut producer = self.producer.lock();
        let pushed = if transfer.bytes() <= INLINE_BYTES && is_whole && target.key == RING_KEY {
            producer.push_inline(peer.queue(), notice, target.address, source)
        } else {
            transfer.copy_and_expect_next();
            producer.push(peer.queue(), &Completion::Notice(notice))
        };
        let sleeps = pushed.map_err(refused)?;
        drop(producer);
        self.announce(sleeps)
    }

    fn post_control(&self, message: &[u8; CONTROL_BYTES]) -> Result<(), FabricError> {
        self.check_open()?;
        self.push(&Completion::Control(*message)).map_err(|error| *error)
    }

    fn write_room(&self) -> Option<WriteRoom> {
        Some(WriteRoom::UNLIMITED)
    }

    fn peer_is_behind(&self, entries: u32) -> bool {
        self.producer.lock().is_ahead(self.peer.memory.queue(), entries.into())
    }

    fn poll(&self, out: &mut [Completion]) -> Result<usize, FabricError> {
        let queue = self.own_memory.queue();
        let mut taken = 0;
        for out in out {
            let place = |address, bytes: &[u8]| self.own_memory.place(address, bytes);
            match self.consumer.pop(queue, out, place) {
                Ok(true) => taken += 1,
                Ok(false) => break,
                // Completions before the fault are still valid; the fault is there at the next poll.
                Err(_) if taken > 0 => break,
                Err(fault) => return Err(FabricError::PeerMisbehaved(fault)),
            }
        }
        if taken > 0 {
            self.consumer.release(queue);
        }
        Ok(taken)
    }

    fn arm(&self) -> Result<bool, FabricError> {
        let armed = self.consumer.arm(self.own_memory.queue());
        armed.map_err(FabricError::PeerMisbehaved)
    }

    fn is_quiet(&self) -> bool {
        self.consumer.is_quiet(self.own_memory.queue())
    }

    fn disarm(&self) {
        Consumer::disarm(self.own_memory.queue());
    }

    fn event_fd(&self) -> BorrowedFd<'_> {
        self.watch.event_fd()
    }

    fn drain_event(&self) -> bool {
        self.watch.take()
    }

    fn liveness_fd(&self) -> BorrowedFd<'_> {
        self.watch.event_fd()
    }

    fn check_alive(&self) -> Result<(), FabricError> {
        self.check_open()?;
        self.watch.check_alive()
    }

    fn disconnect(&self) {
        if !self.is_closed.swap(true, Ordering::Relaxed) {
            self.peer.waker.disconnect();
            self.watch.disconnect();
        }
    }

    fn wakeups_sent(&self) -> u64 {
        self.wakeups_sent.load(Ordering::Relaxed)
    }

    fn fabric(&self) -> FabricName {
        FabricName::Shm
    }

    fn route(&self) -> String {
        match &self.through {
            None => "shared memory of this host".to_owned(),
            Some(directory) => format!("shared memory of this host, through {}", directory.display()),
        }
    }
}

impl Drop for ShmQueuePair {
    fn drop(&mut self) {
        // To close the sockets is not enough: a process forked at this moment may hold copies of them for a while.
        self.disconnect();
    }
}

#[cold]
fn refused(error: PushError) -> Box<FabricError> {
    Box::new(match error {
        PushError::Full => FabricError::QueueFull,
        PushError::Head { said } => FabricError::PeerMisbehaved(Misbehaviour::QueueHead { said }),
    })
}

//! One connection: a queue pair, the stream over it, and who waits for what.
//!
//! Two locks, each short, never one held while waiting for another party, always taken in this order: `reader` (assembly
//! of packets), `core` (the stream's bookkeeping). Writers take turns, too: see `writing`. More than a few bytes are copied
//! with `core` free, so that neither direction waits for the other's copies.

mod advert_policy;
mod closed;
mod core;
mod landings;
mod polling;
mod posting;
mod reading;
mod statistics;
mod writing;

use std::sync::Arc;

use inet_rdma_stream::{Mode, Stream};
use parking_lot::{Condvar, Mutex};

use self::advert_policy::{AdvertPolicy, Bounds};
pub use self::closed::Closed;
use self::core::{Core, Reader, Writer};
pub use self::reading::ReadEnd;
pub use self::statistics::Statistics;
use self::statistics::Tally;
pub use self::writing::Written;
use crate::assembly::{Assembly, Buffer, Framing};
use crate::fabric::{FabricError, QueuePair};
use crate::landing::LandingPool;

/// Whether what has landed is handed over as it lies. The peer can write there on, and the VM's `binary_to_term` reads its
/// argument twice: bytes that change in between make it write past what it has allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZeroCopy {
    /// From a trusted peer ([`crate::fabric::Capabilities::zero_copy_safe`]).
    Auto,
    /// From any peer.
    Always,
    /// Never: all is copied out first.
    Never,
}

impl ZeroCopy {
    fn holds(self, is_safe: bool) -> bool {
        match self {
            ZeroCopy::Auto => is_safe,
            ZeroCopy::Always => true,
            ZeroCopy::Never => false,
        }
    }
}

/// How a connection behaves; the same for its whole life.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Which kinds of transfers to use.
    pub mode: Mode,
    /// Size of a landing buffer in bytes.
    pub landing_bytes: u32,
    /// A packet of at least so many bytes is bulk: it gets a landing buffer of its own.
    pub direct_bytes: usize,
    /// The largest packet that is accepted.
    pub packet_max_bytes: usize,
    /// Whether what has landed is handed over as it lies.
    pub zero_copy: ZeroCopy,
    /// Never ask for events: somebody polls all the time.
    pub busy: bool,
}

/// Who must be told that something can go on. The caller of the method that returned it tells them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[must_use]
pub struct Wakes {
    /// There is something to read, or the end.
    pub reader: bool,
    /// There is room to write, or the end.
    pub writer: bool,
}

impl Wakes {
    /// Nobody.
    pub fn is_empty(self) -> bool {
        !self.reader && !self.writer
    }

    /// These, too.
    pub fn merge(&mut self, other: Wakes) {
        self.reader |= other.reader;
        self.writer |= other.writer;
    }
}

/// One end of a stream. `B` is what packets are copied into.
pub struct Connection<B> {
    qp: Box<dyn QueuePair>,
    landing: Arc<LandingPool>,
    settings: Settings,
    ring_bytes: u32,
    /// What has landed is handed over as it lies.
    hands_over: bool,
    reader: Mutex<Assembly<B>>,
    core: Mutex<Core>,
    /// Tells that `core.writing` is false again.
    written: Condvar,
    tally: Tally,
}

impl<B: Buffer> Connection<B> {
    /// A stream over `qp`. `limits` are those that were told to the peer.
    pub fn new(
        qp: Box<dyn QueuePair>,
        limits: inet_rdma_stream::Limits,
        settings: Settings,
        framing: Framing,
    ) -> Result<Self, FabricError> {
        let hello = qp.remote_hello();
        let remote = inet_rdma_stream::Limits {
            ring_bytes: hello.ring_bytes,
            receive_slots: hello.receive_slots,
            adverts: hello.adverts,
        };
        let stream =
            Stream::new(settings.mode, limits, remote).map_err(|error| FabricError::PeerMisbehaved(error.into()))?;
        let landing = LandingPool::new(Arc::clone(qp.memory()), settings.landing_bytes as usize);
        let policy = AdvertPolicy::new(Bounds {
            mode: settings.mode,
            bulk_bytes: settings.direct_bytes,
            adverts_max: usize::from(remote.adverts.min(landing.count())),
            landing_bytes: landing.buffer_bytes() * usize::from(landing.count()),
            ring_bytes: limits.ring_bytes as usize,
            window_bytes: qp.capabilities().landing_window_bytes,
        });
        let core = Core::new(stream, policy, &landing, &settings);
        Ok(Self {
            hands_over: settings.zero_copy.holds(qp.capabilities().zero_copy_safe),
            landing,
            settings,
            ring_bytes: limits.ring_bytes,
            reader: Mutex::new(Assembly::new(framing, settings.packet_max_bytes)),
            core: Mutex::new(core),
            written: Condvar::new(),
            tally: Tally::default(),
            qp,
        })
    }

    /// The queue pair below.
    pub fn queue_pair(&self) -> &dyn QueuePair {
        &*self.qp
    }

    /// Changes how what is yet to come is cut, and the largest packet accepted. False, and nothing changed: between raw
    /// and packets it cannot change in the middle of a packet, or behind a raw read that has taken a part of what it
    /// wants.
    #[must_use]
    pub fn reframe(&self, framing: Framing, packet_max_bytes: usize) -> bool {
        self.reader.lock().reframe(framing, packet_max_bytes)
    }

    /// How the stream is cut.
    pub fn framing(&self) -> Framing {
        self.reader.lock().framing()
    }

    /// Asks for a keepalive to the peer. Never waits.
    pub fn tick(&self) -> Result<Wakes, Closed> {
        let mut core = self.core.lock();
        if let Some(closed) = core.closed() {
            return Err(closed.clone());
        }
        core.stream.tick();
        self.tally.packets_sent.add(&core, 1);
        let mut wakes = self.progress(&mut core);
        self.flush_controls(&mut core, &mut wakes);
        Ok(wakes)
    }

    /// The reader finds the end from now on, whatever else comes.
    pub fn stop_reading(&self) -> Wakes {
        let mut core = self.core.lock();
        let reader = core.wake_reader();
        core.reader = Reader::Stopped;
        Wakes { reader, writer: false }
    }

    /// Ends the outgoing stream; the peer reads to its end.
    pub fn finish(&self) -> Result<Wakes, Closed> {
        // Behind the last transfer.
        let mut turn = self.turn_to_write();
        let core = &mut *turn.core;
        if let Some(closed) = core.closed() {
            return Err(closed.clone());
        }
        core.stream.finish();
        // The credit that the last message needs may have come.
        let mut wakes = self.progress(core);
        // A writer that waits for room finds out that there will be none.
        wakes.writer |= core.wake_writer();
        core.writer = Writer::Finished;
        self.flush_controls(core, &mut wakes);
        Ok(wakes)
    }

    /// Ends the connection. The peer reads what was written, then the end.
    pub fn close(&self) -> Wakes {
        let mut wakes = self.finish().unwrap_or_default();
        wakes.merge(self.close_with(Closed::Here));
        wakes
    }

    /// Ends the connection for a reason that waiters shall see.
    pub fn close_with(&self, reason: Closed) -> Wakes {
        let mut core = self.core.lock();
        let mut wakes = Wakes::default();
        self.fail_locked(&mut core, reason, &mut wakes);
        wakes
    }

    /// Why the connection ended; None: it is up.
    pub fn closed(&self) -> Option<Closed> {
        self.core.lock().closed().cloned()
    }

    /// Whether the peer has ended its stream and all of it was read.
    pub fn is_end(&self) -> bool {
        self.core.lock().stream.is_end()
    }
}

#[cfg(test)]
mod tests {
    use super::ZeroCopy;

    #[test]
    fn only_a_trusted_peers_bytes_are_handed_over_as_they_lie_unless_told() {
        assert!(ZeroCopy::Auto.holds(true));
        assert!(!ZeroCopy::Auto.holds(false));
        assert!(ZeroCopy::Always.holds(false));
        assert!(!ZeroCopy::Never.holds(true));
    }
}

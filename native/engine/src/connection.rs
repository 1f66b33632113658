//! One connection: a queue pair, the stream over it, and what its user waits for.
//!
//! # Order of calls
//!
//! | caller | calls | until |
//! |---|---|---|
//! | the maker | [`Connection::new`]; then [`crate::endpoint::Engine::attach`], or watches the two descriptors itself | |
//! | a reader | [`Connection::read`] | it answers [`ReadEnd::Empty`] |
//! | | [`Connection::arm`], and if that is true waits | [`Notifier::readable`] |
//! | a writer | [`Connection::write`] | [`Written::blocked`] |
//! | | [`Connection::arm_writer`], and if that is true waits | [`Notifier::writable`] |
//! | one of several writers | [`Connection::send_lock`], its `write`, and `release` behind the last byte; [`Connection::arm_sender`] | |
//! | a user that posts | [`Connection::post_send`], [`Connection::post_receive`], [`Connection::cancel`] | [`Notifier::sent`], [`Notifier::received`] |
//! | a user of active mode | [`Connection::set_active`] | [`Notifier::passive`], [`Notifier::ended`] |
//! | a polling thread, when the event fd is readable | [`Connection::drain_event`], [`Connection::attend`] | |
//! | | [`Connection::poll`] while `attend` said so | it answers None, or the thread calls [`Connection::sleep`] |
//! | a polling thread, when the liveness fd is readable | [`Connection::handle_liveness`] | it answers false |
//! | either side | [`Connection::tick`] at any time; [`Connection::finish`] behind its last write; [`Connection::close`] at last | |
//!
//! A call that finds something for another party tells the [`Notifier`] before it returns. A reader that has not armed
//! is not told: it reads until `Empty`. An `arm` that answers false has looked again and found something.
//!
//! # Locks
//!
//! `receiving` and `sending`, one for each direction, are held for one call. `receiving` keeps packets and their
//! completions in the order of the stream, `sending` keeps writers and posted sends in the order of their calls.
//! `core`, the bookkeeping of the stream, is held for less than a call and always taken last. No thread holds both
//! directions. More than 2 KiB are copied with `core` free, so that neither direction waits for the other's copies; but what
//! lies in a landing buffer that the peer has filled in part is copied with `core` held.

mod active;
mod advert_policy;
mod calls;
mod closed;
mod core;
mod landing_memory;
mod landings;
mod memory;
mod notifier;
mod notifying;
mod posted_receives;
mod posted_sends;
mod posting;
mod progress;
mod reading;
mod receiving;
mod records;
mod ring_memory;
mod send_lock;
mod sending;
mod statistics;
mod writing;

use std::sync::{Arc, OnceLock, Weak};

use inet_rdma_assembly::{Assembly, Framing};
use inet_rdma_fabric::{FabricError, Parameters, QueuePair, Safeguard};
use inet_rdma_records::Protection;
use inet_rdma_stream::{Limits, Mode, Stream};
use parking_lot::Mutex;

pub use self::active::{ActiveOption, Left};
use self::advert_policy::AdvertPolicy;
pub use self::closed::Closed;
use self::core::Core;
use self::landing_memory::LandingMemory;
pub use self::landing_memory::LandingState;
pub use self::notifier::{Notifier, Parcel};
pub use self::posting::{Posted, Refused};
pub use self::reading::ReadEnd;
use self::receiving::Receiving;
pub use self::records::Sealed;
use self::records::{Controls, Records};
use self::ring_memory::RingMemory;
pub use self::send_lock::SendLock;
pub use self::sending::Holder;
use self::sending::Sending;
pub use self::statistics::Statistics;
use self::statistics::Tally;
pub use self::writing::Written;
use crate::poller::Kicker;

/// Whether what has landed is handed over as it lies. The peer can write there on, and the VM's `binary_to_term` reads its
/// argument twice: bytes that change in between make it write past what it has allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZeroCopy {
    /// Where it is safe: from a trusted peer, or behind closed windows ([`inet_rdma_fabric::Capabilities::safeguard`]).
    Auto,
    /// Behind closed windows wherever the device has them, else never.
    Windows,
    /// From any peer.
    Always,
    /// Never: all is copied out first.
    Never,
}

impl ZeroCopy {
    fn safeguard(self, offered: Safeguard, has_windows: bool) -> Safeguard {
        match self {
            ZeroCopy::Auto => offered,
            ZeroCopy::Windows if has_windows => Safeguard::Windows,
            ZeroCopy::Windows => Safeguard::None,
            ZeroCopy::Always => Safeguard::Trust,
            ZeroCopy::Never => Safeguard::None,
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
    /// Minimum size of a packet that is bulk and gets a landing buffer of its own, in bytes.
    pub direct_bytes: usize,
    /// The largest packet that is accepted.
    pub packet_max_bytes: usize,
    /// Whether what has landed is handed over as it lies.
    pub zero_copy: ZeroCopy,
    /// Never ask for events: a thread polls all the time.
    pub busy: bool,
    /// How much may be posted.
    pub bounds: Bounds,
}

/// How much may be posted, and moved at a time.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bounds {
    /// Bytes of what is posted that one call moves, about.
    pub call_bytes: usize,
    /// Sends that may be posted.
    pub sends: usize,
    /// Receives that may be posted.
    pub receives: usize,
}

/// One end of a stream, of the user `N`.
pub struct Connection<N: Notifier> {
    qp: Box<dyn QueuePair>,
    settings: Settings,
    /// The largest ring that this side has, which its staging memory does not exceed either.
    ring_bytes: u32,
    /// For the thread that gets and gives back memory.
    this: Weak<Self>,
    /// Why what has landed may be handed over as it lies.
    safeguard: Safeguard,
    receiving: Mutex<Receiving<N>>,
    sending: Mutex<Sending<N>>,
    core: Mutex<Core<N::Token>>,
    /// None: the stream is plain.
    records: Option<Box<Records<N::Buffer>>>,
    tally: Tally,
    kicker: OnceLock<Kicker>,
    notifier: N,
}

impl<N: Notifier> Connection<N> {
    /// A stream over `qp`. `parameters` are those of this side.
    pub fn new(
        qp: Box<dyn QueuePair>,
        parameters: &Parameters,
        settings: Settings,
        framing: Framing,
        notifier: N,
    ) -> Result<Arc<Self>, FabricError> {
        Self::make(qp, parameters, settings, framing, None, notifier)
    }

    /// As [`Self::new`], of a sealed stream: nothing leaves in clear, and nothing is taken that is not the peer's. The peer
    /// must have the same keys, the other way round. All goes through the ring: [`Settings::mode`] and landing buffers
    /// have no part in it.
    pub fn sealed(
        qp: Box<dyn QueuePair>,
        parameters: &Parameters,
        settings: Settings,
        framing: Framing,
        protection: &Protection,
        notifier: N,
    ) -> Result<Arc<Self>, FabricError> {
        let ring_bytes = [qp.remote_hello().ring_bytes, parameters.limits.ring_bytes];
        let (records, controls) =
            Records::new(protection, ring_bytes).map_err(|violation| FabricError::PeerMisbehaved(violation.into()))?;
        let settings = Settings {
            mode: Mode::IndirectOnly,
            ..settings
        };
        Self::make(qp, parameters, settings, framing, Some((records, controls)), notifier)
    }

    fn make(
        qp: Box<dyn QueuePair>,
        parameters: &Parameters,
        settings: Settings,
        framing: Framing,
        seals: Option<(Records<N::Buffer>, Controls)>,
        notifier: N,
    ) -> Result<Arc<Self>, FabricError> {
        let hello = qp.remote_hello();
        let limits = Limits {
            ring_bytes: u32::try_from(qp.memory().bytes()).unwrap_or(u32::MAX),
            ..parameters.limits
        };
        let remote = hello.limits();
        let stream = Stream::new(settings.mode, limits, remote, hello.ring)
            .map_err(|error| FabricError::PeerMisbehaved(error.into()))?;
        let landing = LandingMemory::new(
            Self::memory_source(qp.capabilities().pins),
            settings.landing_bytes as usize,
            parameters.landing_bytes as usize,
        );
        let policy = AdvertPolicy::new(advert_policy::Bounds {
            mode: settings.mode,
            bulk_bytes: settings.direct_bytes,
            adverts_max: usize::from(remote.adverts.min(landing.count_max())),
            landing_bytes: landing.buffer_bytes() * usize::from(landing.count_max()),
            ring_bytes: parameters.limits.ring_bytes as usize,
            window_bytes: qp.capabilities().landing_window_bytes,
        });
        let (records, controls) = seals.unzip();
        let ring = RingMemory::new(Arc::clone(qp.memory()), parameters.limits.ring_bytes);
        let capabilities = qp.capabilities();
        let safeguard = match records {
            // What landed is decrypted out of its buffer, which is never handed over.
            Some(_) => Safeguard::None,
            None => settings
                .zero_copy
                .safeguard(capabilities.safeguard, capabilities.windows),
        };
        let closed_bytes = match safeguard {
            Safeguard::Windows => settings.direct_bytes,
            Safeguard::Trust | Safeguard::None => usize::MAX,
        };
        let mut core = Core::new(stream, policy, (ring, landing), closed_bytes, settings.busy);
        core.controls = controls.map(Box::new);
        let connection = Arc::new_cyclic(|this| Self {
            safeguard,
            this: Weak::clone(this),
            settings,
            ring_bytes: parameters.limits.ring_bytes,
            receiving: Mutex::new(Receiving {
                assembly: Assembly::new(framing, settings.packet_max_bytes),
                active: None,
            }),
            sending: Mutex::default(),
            core: Mutex::new(core),
            records: records.map(Box::new),
            tally: Tally::default(),
            kicker: OnceLock::new(),
            notifier,
            qp,
        });
        connection.begin_landing();
        Ok(connection)
    }

    /// The queue pair below.
    pub fn queue_pair(&self) -> &dyn QueuePair {
        &*self.qp
    }

    /// How much may be posted, and moved at a time.
    pub fn bounds(&self) -> Bounds {
        self.settings.bounds
    }

    /// The user.
    pub fn notifier(&self) -> &N {
        &self.notifier
    }
}

#[cfg(test)]
mod tests {
    use super::{Safeguard, ZeroCopy};

    #[test]
    fn the_fabric_says_whether_bytes_are_handed_over_as_they_lie_unless_the_user_does() {
        for offered in [Safeguard::Trust, Safeguard::Windows, Safeguard::None] {
            for has_windows in [true, false] {
                assert_eq!(ZeroCopy::Auto.safeguard(offered, has_windows), offered);
                assert_eq!(ZeroCopy::Always.safeguard(offered, has_windows), Safeguard::Trust);
                assert_eq!(ZeroCopy::Never.safeguard(offered, has_windows), Safeguard::None);
            }
            assert_eq!(ZeroCopy::Windows.safeguard(offered, true), Safeguard::Windows);
            assert_eq!(ZeroCopy::Windows.safeguard(offered, false), Safeguard::None);
        }
    }
}

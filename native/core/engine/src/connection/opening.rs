//! The making of a connection.

use std::sync::{Arc, OnceLock, Weak};

use inet_rdma_assembly::{Buffer, Framing};
use inet_rdma_fabric::{Parameters, QueuePair, Safeguard};
use inet_rdma_records::Protection;
use inet_rdma_stream::{Limits, Mode, Stream};
use parking_lot::Mutex;

use super::closed::Closed;
use super::landing::{AdvertBounds, AdvertPolicy, LandingBuffers, LandingMemory, Source};
use super::notifier::Notifier;
use super::read::ReadHalf;
use super::settings::Settings;
use super::state::{Connection, Core, PolledBy, Records, RingMemory, Tally};
use super::write::WriteHalf;

impl Connection {
    /// Makes a stream over `qp`, and its two directions. `parameters`: of this side.
    ///
    /// With `protection` the stream is sealed: every byte is encrypted, and only records that the peer has sealed are
    /// accepted. The peer's `send_key` must be this side's `receive_key`, and the other way round. All bytes go through
    /// the ring: [`Settings::mode`] and landing buffers are not used.
    pub fn new<B: Buffer>(
        qp: Box<dyn QueuePair>,
        parameters: &Parameters,
        settings: Settings,
        framing: Framing,
        protection: Option<&Protection>,
        notifier: Arc<dyn Notifier>,
    ) -> Result<(Arc<Self>, ReadHalf<B>, WriteHalf), Closed> {
        let connection = Self::make(qp, parameters, settings, protection, notifier)?;
        connection.begin_landing();
        let reader = ReadHalf::new(Arc::clone(&connection), framing);
        let writer = WriteHalf::new(Arc::clone(&connection));
        Ok((connection, reader, writer))
    }

    fn make(
        qp: Box<dyn QueuePair>,
        parameters: &Parameters,
        mut settings: Settings,
        protection: Option<&Protection>,
        notifier: Arc<dyn Notifier>,
    ) -> Result<Arc<Self>, Closed> {
        let (records, record_state) = match protection {
            None => (None, None),
            Some(protection) => {
                settings.mode = Mode::IndirectOnly;
                let ring_bytes = [qp.remote_hello().ring_bytes, parameters.limits.ring_bytes];
                let (records, state) = Records::new(protection, ring_bytes)?;
                (Some(Box::new(records)), Some(Box::new(state)))
            }
        };
        let hello = qp.remote_hello();
        let limits = Limits {
            ring_bytes: u32::try_from(qp.memory().bytes()).unwrap_or(u32::MAX),
            ..parameters.limits
        };
        let remote = hello.limits();
        let stream = Stream::new(settings.mode, limits, remote, hello.ring)
            .map_err(|error| Closed::PeerMisbehaved(error.into()))?;
        let source = if qp.capabilities().pins {
            Source::Pinned
        } else {
            Source::Mapped
        };
        let landing = LandingMemory::new(
            source,
            settings.landing_buffer_bytes as usize,
            parameters.landing_area_bytes as usize,
        );
        let policy = AdvertPolicy::new(AdvertBounds {
            mode: settings.mode,
            direct_bytes: settings.direct_bytes,
            adverts_max: usize::from(remote.adverts.min(landing.count_max)),
            landing_area_bytes: landing.buffer_bytes * usize::from(landing.count_max),
            ring_bytes: parameters.limits.ring_bytes as usize,
            window_bytes: qp.capabilities().landing_window_bytes,
        });
        let ring = RingMemory::new(Arc::clone(qp.memory()), parameters.limits.ring_bytes);
        let capabilities = qp.capabilities();
        let safeguard = match records {
            // A sealed stream has no landing buffers to hand over.
            Some(_) => Safeguard::None,
            None => settings
                .zero_copy
                .safeguard(capabilities.safeguard, capabilities.windows),
        };
        let closed_bytes = match safeguard {
            Safeguard::Windows => settings.direct_bytes,
            Safeguard::Trust | Safeguard::None => usize::MAX,
        };
        let landing = LandingBuffers::new(landing, policy, closed_bytes);
        let polled_by = if settings.busy {
            PolledBy::Thread
        } else {
            PolledBy::Nobody
        };
        let core = Core::new(stream, ring, landing, record_state, polled_by);
        Ok(Arc::new_cyclic(|this: &Weak<Self>| Self {
            safeguard,
            memory_user: this.clone(),
            settings,
            ring_bytes_max: parameters.limits.ring_bytes,
            core: Mutex::new(core),
            records,
            tally: Tally::default(),
            polling_thread: OnceLock::new(),
            notifier,
            qp,
        }))
    }
}

//! A connection over verbs: its resources, and the calls that concern several of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use inet_rdma_fabric::{Capabilities, FabricError, Memory, Parameters, SELF_TEST_RECEIVES, Safeguard};
use inet_rdma_stream::{CONTROL_BYTES, Hello};
use inet_rdma_verbs::Transport;
use inet_rdma_verbs::cm::CmId;
use inet_rdma_verbs::cq::{CompletionChannel, CompletionQueue, Failure};
use inet_rdma_verbs::memory::{Access, MemoryRegion};
use inet_rdma_verbs::pd::ProtectionDomain;
use inet_rdma_verbs::qp::{Capacity, QueuePair};
use parking_lot::Mutex;

use crate::budget::Need;
use crate::connection_end::{ConnectionEnd, End};
use crate::devices::{self, Traits};
use crate::gather::INLINE_BYTES;
use crate::memory::{Account, ExposedMemory, PinnedRegion, Regions};
use crate::network;
use crate::receiving::{Fault, Inlet, ReceiveQueue};
use crate::refusal::failed_call;
use crate::registration::Registration;
use crate::sending::{Outlet, Question, SendQueue};
use crate::windows::WindowAreas;

/// 0.64 ms between two tries to send when the peer has no receive posted. The default, 0, means 655 ms.
const MIN_RNR_TIMER: u8 = 12;

/// A connection's resources. The fields are in the order in which they must be dropped: users before what they use.
pub(crate) struct Connection {
    pub(crate) registration: Registration,
    pub(crate) areas: Arc<WindowAreas>,
    qp: Arc<QueuePair>,
    send_queue: Arc<CompletionQueue>,
    receive_queue: Arc<CompletionQueue>,
    pub(crate) channel: Arc<CompletionChannel>,
    /// Slots of [`CONTROL_BYTES`] each: first those of receives, then one for each entry of the send queue.
    slots: PinnedRegion,
    ring: PinnedRegion,
    /// The memory that was exposed beside the ring.
    pub(crate) regions: Arc<Regions>,
    pub(crate) memory: Arc<dyn Memory>,
    pub(crate) hello: Hello,
    entries: u32,
    receives: u32,
    transport: Transport,
    traits: Traits,
    safeguard: Safeguard,
    sending: Mutex<SendQueue>,
    /// True if `sending` has requests that wait for a completion.
    has_waiting: AtomicBool,
    receiving: Mutex<ReceiveQueue>,
    is_closed: AtomicBool,
    pub(crate) account: Arc<Account>,
    id: Arc<CmId>,
}

impl Connection {
    /// Makes the resources of an id that has a device. The teardown thread runs: see [`crate::teardown::start`].
    pub(crate) fn make(id: CmId, parameters: &Parameters) -> Result<Connection, FabricError> {
        let id = Arc::new(id);
        let device = id.device().ok_or(FabricError::PeerGone)?;
        let transport = device.transport();
        let limits = device.limits().map_err(failed_call)?;
        let slots = u32::from(parameters.limits.receive_slots);
        // The messages of the self-test need receives of their own: they use none of the peer's credits.
        let receives = slots + SELF_TEST_RECEIVES;
        if receives > limits.queue_entries || receives >= limits.completion_entries {
            return Err(FabricError::DeviceLimit {
                device: device.name(),
                receives: limits.queue_entries,
                completions: limits.completion_entries,
            });
        }
        // The send queue holds twice the receive slots: unsignaled requests stay until the next signaled completion.
        // Over iWARP each transfer takes two requests.
        let wanted = slots * if transport == Transport::Iwarp { 4 } else { 2 };
        let entries = wanted.min(limits.queue_entries).min(limits.completion_entries - 1);

        let pd = Arc::new(ProtectionDomain::allocate(&id).map_err(failed_call)?);
        let traits = devices::traits(device, &limits, &pd);
        let channel = Arc::new(CompletionChannel::create(&id).map_err(failed_call)?);
        let queue = |entries| {
            CompletionQueue::create(&channel, entries)
                .map(Arc::new)
                .map_err(failed_call)
        };
        let (send_queue, receive_queue) = (queue(entries + 1)?, queue(receives + 1)?);
        let account = Account::new(Arc::clone(&pd), parameters.pinned_max_bytes);
        let first_bytes = parameters.first_ring_bytes() as usize;
        let (ring, memory) = ExposedMemory::register(&account, first_bytes, Need::First)?;
        let staging = account.register(first_bytes, Access::Read, Need::First)?;
        let slots_bytes = (receives + entries) as usize * CONTROL_BYTES;
        let slots = account.register(slots_bytes, Access::Receive, Need::First)?;
        let capacity = Capacity {
            sends: entries,
            receives,
            sges: if traits.gathers { 2 } else { 1 },
            inline_bytes: if traits.sends_inline { INLINE_BYTES as u32 } else { 0 },
        };
        let qp = Arc::new(QueuePair::create(&id, &pd, &send_queue, &receive_queue, capacity).map_err(failed_call)?);
        let hello = Hello {
            ring_bytes: parameters.first_ring_bytes(),
            ..parameters.hello(memory.remote_address(0))
        };
        let connection = Connection {
            registration: Registration::new(&id, &qp, [&send_queue, &receive_queue])?,
            areas: Arc::default(),
            qp,
            send_queue,
            receive_queue,
            channel,
            slots,
            ring,
            regions: Arc::default(),
            memory: Arc::new(memory),
            hello,
            entries,
            receives,
            transport,
            traits,
            // A peer that invalidates a window of soft-RoCE makes the kernel of this host panic: docs/SECURITY.md.
            safeguard: if traits.has_windows && !limits.is_soft_roce {
                Safeguard::Windows
            } else {
                Safeguard::None
            },
            sending: Mutex::new(SendQueue::new(entries, staging, traits.gathers)),
            has_waiting: AtomicBool::new(false),
            receiving: Mutex::new(ReceiveQueue::default()),
            is_closed: AtomicBool::new(false),
            account: Arc::new(account),
            id,
        };
        ReceiveQueue::begin(&connection.inlet())?;
        Ok(connection)
    }

    pub(crate) fn id(&self) -> &CmId {
        &self.id
    }

    /// The capabilities of a connection that is up. Asks the device.
    pub(crate) fn capabilities(&self) -> Capabilities {
        let (transport, ack_timeout) = match self.transport {
            Transport::InfiniBand => (inet_rdma_fabric::Transport::InfiniBand, network::ack_timeout(&self.qp)),
            // TCP has its own timers.
            Transport::Iwarp => (inet_rdma_fabric::Transport::Iwarp, None),
        };
        Capabilities {
            transport,
            immediate: self.has_immediates(),
            inline_max: self.qp.inline_bytes(),
            post_is_costly: true,
            pins: true,
            safeguard: self.safeguard,
            windows: self.traits.has_windows,
            // The best value was not measured over a device: use all landing buffers.
            landing_window_bytes: usize::MAX,
            ack_timeout,
        }
    }

    /// The connection is up; the peer has `peer_slots` receive slots. Err: its end could not be seen.
    pub(crate) fn established(&self, peer_slots: u16) -> Result<(), FabricError> {
        self.registration.connected()?;
        self.sending.lock().begin(peer_slots);
        if self.transport == Transport::InfiniBand && self.traits.takes_rnr_timer {
            // Without it the connection works, too: the timer is for peers that break the rule of credits. Drivers
            // that refuse it, and those that wait with it for the next state, change nothing.
            let _ = self.qp.set_min_rnr_timer(MIN_RNR_TIMER);
        }
        Ok(())
    }

    /// The ring, as the peer writes it.
    pub(crate) fn ring(&self) -> &MemoryRegion {
        &self.ring
    }

    pub(crate) fn traits(&self) -> Traits {
        self.traits
    }

    pub(crate) fn inline_bytes(&self) -> usize {
        self.qp.inline_bytes()
    }

    pub(crate) fn has_immediates(&self) -> bool {
        self.transport == Transport::InfiniBand
    }

    /// How the peer's device is asked for an answer. None: not at all, as the device has failed reads.
    pub(crate) fn question(&self) -> Option<Question> {
        match self.transport {
            Transport::InfiniBand => Some(Question::Write),
            Transport::Iwarp => self.traits.reads.then_some(Question::Read),
        }
    }

    /// Whether the connection takes no further requests. Asks the device.
    pub(crate) fn has_come_to_its_end(&self) -> bool {
        self.qp.is_in_error() || self.registration.why().is_some()
    }

    /// Asks for an event at the next completion of these queues. Completions from before it raise none: look again.
    pub(crate) fn arm_queues(&self, of_sends: bool, of_receives: bool) -> Result<(), FabricError> {
        if of_sends {
            self.arm_send_queue()?;
        }
        if of_receives {
            self.receive_queue.request_event().map_err(failed_call)?;
        }
        Ok(())
    }

    pub(crate) fn with_sending<T>(&self, act: impl FnOnce(&mut SendQueue, &Outlet<'_>) -> T) -> T {
        let outlet = Outlet {
            qp: &self.qp,
            queue: &self.send_queue,
            slots: &self.slots,
            slots_offset: self.receives as usize * CONTROL_BYTES,
            entries: self.entries,
            transport: self.transport,
        };
        let mut sending = self.sending.lock();
        let done = act(&mut sending, &outlet);
        self.has_waiting.store(sending.has_waiting(), Ordering::Relaxed);
        done
    }

    pub(crate) fn with_receiving<T>(&self, act: impl FnOnce(&mut ReceiveQueue, &Inlet<'_>) -> T) -> T {
        act(&mut self.receiving.lock(), &self.inlet())
    }

    fn inlet(&self) -> Inlet<'_> {
        Inlet {
            qp: &self.qp,
            queue: &self.receive_queue,
            slots: &self.slots,
            receives: self.receives,
        }
    }

    pub(crate) fn end(&self) -> &ConnectionEnd {
        self.registration.end()
    }

    pub(crate) fn drain_events(&self) {
        if self.channel.drain().is_err() {
            // This fails only if the device was removed.
            self.registration.set_end(End::DeviceFailed(FabricError::DeviceRemoved));
        }
    }

    pub(crate) fn arm_send_queue(&self) -> Result<(), FabricError> {
        self.send_queue.request_event().map_err(failed_call)
    }

    /// Whether controls wait for a place in the send queue, or windows to be closed.
    pub(crate) fn has_waiting(&self) -> bool {
        self.has_waiting.load(Ordering::Relaxed)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// False: it was closed before.
    pub(crate) fn close(&self) -> bool {
        !self.is_closed.swap(true, Ordering::Relaxed)
    }

    /// Err with the reason once the connection has come to its end.
    pub(crate) fn check_alive(&self) -> Result<(), FabricError> {
        if self.is_closed() {
            return Err(FabricError::PeerGone);
        }
        self.end().get().map_or(Ok(()), |end| Err(error_of(end)))
    }

    pub(crate) fn explain(&self, fault: Fault) -> FabricError {
        match fault {
            Fault::Misbehaved(how) => FabricError::PeerMisbehaved(how),
            Fault::Unreadable(error) => error,
            Fault::Ended(failure) => self.explain_end(failure),
        }
    }

    /// The error for the end of the queue pair. `received`: how a receive failed, if one did.
    pub(crate) fn explain_end(&self, received: Option<Failure>) -> FabricError {
        if self.is_closed() {
            return FabricError::PeerGone;
        }
        let sent = self.with_sending(|sending, outlet| {
            sending.reap(outlet);
            sending.failure()
        });
        let end = match sent.or(received) {
            Some(failure) if !failure.is_flush() => End::Failed(FabricError::Completion {
                status: failure.status(),
                vendor: failure.vendor(),
                peer_is_silent: failure.is_unreachable(),
            }),
            // The receive was flushed: an event tells the reason, if one has come.
            _ => self.registration.why().cloned().unwrap_or(End::Peer),
        };
        let error = error_of(&end);
        self.registration.set_end(end);
        error
    }
}

fn error_of(end: &End) -> FabricError {
    match end {
        End::Peer => FabricError::PeerGone,
        End::Failed(error) | End::DeviceFailed(error) => error.clone(),
    }
}

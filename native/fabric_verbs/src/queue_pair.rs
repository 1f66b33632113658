//! One end of a connection over verbs.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use inet_rdma_fabric::{
    Answer, Capabilities, Completion, Counts, Exposer, FabricError, FabricName, Memory, Misbehaviour, QueuePair,
    Transport,
};
use inet_rdma_stream::{CONTROL_BYTES, Hello, Notice, RemoteAddress};
use inet_rdma_verbs::qp::Source;
use parking_lot::Mutex;

use crate::parts::Parts;
use crate::sending::Sending;
use crate::{reaper, sending};

/// See the module's description. Its parts go when all that was posted is sent.
pub(crate) struct VerbsQueuePair {
    parts: Arc<Parts>,
    peer: Hello,
    capabilities: Capabilities,
    /// One transfer is copied at a time; controls pass meanwhile.
    copying: Mutex<()>,
    /// Behind `parts`, which is dropped before.
    _burial: Burial,
}

/// Gives the parts of a queue pair that is dropped to the reaper, as the only reference left: another one, dropped here a
/// moment later, could be the last, and take the parts apart on this thread.
struct Burial(Option<Arc<Parts>>);

impl Drop for Burial {
    fn drop(&mut self) {
        if let Some(parts) = self.0.take() {
            reaper::bury(parts);
        }
    }
}

impl VerbsQueuePair {
    /// Of a connection that is up: see [`Parts::established`].
    pub(crate) fn new(parts: Parts, peer: Hello) -> VerbsQueuePair {
        let parts = Arc::new(parts);
        VerbsQueuePair {
            capabilities: parts.capabilities(),
            _burial: Burial(Some(Arc::clone(&parts))),
            parts,
            peer,
            copying: Mutex::new(()),
        }
    }

    fn check_open(&self) -> Result<(), FabricError> {
        if self.parts.is_closed() {
            Err(FabricError::PeerGone)
        } else {
            Ok(())
        }
    }
}

impl QueuePair for VerbsQueuePair {
    fn memory(&self) -> &Arc<dyn Memory> {
        &self.parts.memory
    }

    fn exposer(&self) -> Arc<dyn Exposer> {
        Parts::exposer(&self.parts, self.peer.ring)
    }

    fn remote_hello(&self) -> &Hello {
        &self.peer
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn post_write(&self, source: &[&[u8]], target: RemoteAddress, notice: Notice) -> Result<(), FabricError> {
        self.check_open()?;
        // The peer's device knows what of its memory may be written. Only a longer key cannot be said to it.
        let total: usize = source.iter().map(|piece| piece.len()).sum();
        if u32::try_from(target.key).is_err() {
            return Err(FabricError::PeerMisbehaved(Misbehaviour::TargetOutside { target }));
        }
        let parts = &*self.parts;
        let _one_at_a_time = self.copying.lock();
        if total == 0 {
            return parts.with_sending(|sending, outlet| {
                sending.check_room(outlet, 0)?;
                sending.post_write(outlet, Source::Region(&[]), target, notice)
            });
        }
        if let Some((pieces, count)) = sending::inline(source, total, parts.inline_limits()) {
            return parts.with_sending(|sending, outlet| {
                sending.check_room(outlet, 0)?;
                sending.post_write(outlet, Source::Inline(&pieces[..count]), target, notice)
            });
        }
        let staged = parts.with_sending(|sending, outlet| sending.stage(outlet, total))?;
        let (sges, count) = sending::copy(&staged.region, staged.ranges, source);
        parts.with_sending(|sending, outlet| sending.post_write(outlet, Source::Region(&sges[..count]), target, notice))
    }

    fn post_control(&self, message: &[u8; CONTROL_BYTES]) -> Result<(), FabricError> {
        self.check_open()?;
        self.parts
            .with_sending(|sending, outlet| sending.post_control(outlet, message))
    }

    fn prepare_staging(&self, bytes: usize) -> Result<(), FabricError> {
        let staging = self.parts.register_staging(bytes)?;
        let _before = self.parts.with_sending(|sending, _| sending.prepare_staging(staging));
        Ok(())
    }

    fn replace_staging(&self) {
        let target = self.peer.ring;
        self.parts
            .with_sending(|sending, outlet| sending.replace_staging(outlet, target));
    }

    fn release_staging(&self) -> bool {
        let (_released, is_all) = self.parts.with_sending(Sending::release_staging);
        is_all
    }

    fn write_room(&self) -> usize {
        self.parts.with_sending(|sending, outlet| sending.room(outlet))
    }

    fn poll(&self, out: &mut [Completion]) -> Result<usize, FabricError> {
        let parts = &*self.parts;
        if parts.has_waiting() {
            parts.with_sending(|sending, outlet| {
                sending.reap(outlet);
                sending.send_waiting(outlet);
            });
        }
        // Asked before the queue, as what the peer sent before its end is in the queue by then. The end does not show there
        // where all receives were used up when it came, and could not be flushed.
        let has_ended = parts.life.fate().end().is_some();
        let taken = parts
            .with_receiving(|receiving, inlet| receiving.poll(inlet, out))
            .map_err(|fault| parts.explain(fault))?;
        if has_ended && taken == 0 && !out.is_empty() {
            return Err(parts.explain_end(None));
        }
        Ok(taken)
    }

    fn arm(&self) -> Result<bool, FabricError> {
        let parts = &*self.parts;
        if !parts.with_receiving(|receiving, inlet| receiving.arm(inlet)) {
            return Ok(false);
        }
        let is_armed = parts.with_sending(|sending, outlet| {
            if !sending.wants_event() {
                return Ok(true);
            }
            sending.counts.events_armed += 1;
            parts.arm_send_queue()?;
            // Completions from before the request raise no event: look again.
            let some = sending.reap(outlet);
            sending.send_waiting(outlet);
            Ok::<bool, FabricError>(!some)
        })?;
        // The queue was empty and all receives were posted. An end that is told later flushes them, which makes an event.
        Ok(is_armed && !parts.life.fate().has_ended_since_armed())
    }

    fn disarm(&self) {
        // The device cannot be asked to forget it.
    }

    fn event_fd(&self) -> BorrowedFd<'_> {
        self.parts.channel.as_fd()
    }

    fn drain_event(&self) -> bool {
        self.parts.drain_events();
        if self.parts.is_closed() {
            // The event may be that of a completion that the reaper waits for.
            reaper::look(&self.parts);
        }
        self.check_alive().is_ok()
    }

    fn liveness_fd(&self) -> BorrowedFd<'_> {
        self.parts.channel.as_fd()
    }

    fn check_alive(&self) -> Result<(), FabricError> {
        self.parts.check_alive()
    }

    fn ask(&self) -> Answer {
        // Over iWARP a write is complete when this side's device has taken it, whatever becomes of it.
        if self.capabilities.transport != Transport::InfiniBand || self.parts.is_closed() {
            return Answer::NotAsked;
        }
        self.parts
            .with_sending(|sending, outlet| sending.ask(outlet, self.peer.ring))
    }

    fn disconnect(&self) {
        if self.parts.close() {
            reaper::disconnect(&self.parts, self.peer.ring);
        }
    }

    fn pinned_bytes(&self) -> u64 {
        self.parts.pinned_bytes()
    }

    fn wakeups_sent(&self) -> u64 {
        // The peer's device wakes it.
        0
    }

    fn fabric(&self) -> FabricName {
        FabricName::Verbs
    }

    fn route(&self) -> String {
        let id = self.parts.id();
        let device = id.device().map_or_else(String::new, |device| device.name());
        match self.addresses() {
            Some((here, there)) => format!("RDMA device {device}, {} to {}", here.ip(), there.ip()),
            None => format!("RDMA device {device}"),
        }
    }

    fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        let id = self.parts.id();
        id.local_address().zip(id.peer_address())
    }

    fn counts(&self) -> Counts {
        let sent = self.parts.with_sending(|sending, _| sending.counts);
        let received = self.parts.with_receiving(|receiving, _| receiving.counts);
        Counts {
            sends_posted: sent.sends_posted,
            receives_posted: received.receives_posted,
            completions: sent.completions + received.completions,
            events_armed: sent.events_armed + received.events_armed,
        }
    }
}

impl Drop for VerbsQueuePair {
    fn drop(&mut self) {
        self.disconnect();
    }
}

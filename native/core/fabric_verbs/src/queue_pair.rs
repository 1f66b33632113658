//! One end of a connection over verbs.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use inet_rdma_fabric::{
    Answer, Capabilities, Completion, Counts, Exposer, FabricError, FabricName, Memory, Misbehaviour, QueuePair, Tried,
    WriteRoom,
};
use inet_rdma_stream::{CONTROL_BYTES, Hello, Notice, RemoteAddress};
use inet_rdma_verbs::memory::Access;
use inet_rdma_verbs::qp::Source;
use parking_lot::Mutex;

use crate::budget::Need;
use crate::connection::Connection;
use crate::devices;
use crate::exposer::VerbsExposer;
use crate::gather::{self, Inline};
use crate::sending::SendQueue;
use crate::teardown;

/// See the module's description. Its resources are destroyed when all that was posted is sent.
pub(crate) struct VerbsQueuePair {
    connection: Arc<Connection>,
    peer: Hello,
    capabilities: Capabilities,
    /// One transfer is copied at a time; controls pass meanwhile.
    copying: Mutex<()>,
    /// Dropped after `connection`.
    _destruction: Destruction,
}

/// Gives the connection of a queue pair that is dropped to the teardown thread, as the only reference left. A second
/// reference that is dropped here a moment later could be the last, and would destroy the connection on this thread.
struct Destruction(Option<Arc<Connection>>);

impl Drop for Destruction {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            teardown::destroy(connection);
        }
    }
}

impl VerbsQueuePair {
    /// The queue pair of a connection that is up: see [`Connection::established`].
    pub(crate) fn new(connection: Connection, peer: Hello) -> VerbsQueuePair {
        let connection = Arc::new(connection);
        VerbsQueuePair {
            capabilities: connection.capabilities(),
            _destruction: Destruction(Some(Arc::clone(&connection))),
            connection,
            peer,
            copying: Mutex::new(()),
        }
    }

    fn check_open(&self) -> Result<(), FabricError> {
        if self.connection.is_closed() {
            Err(FabricError::PeerGone)
        } else {
            Ok(())
        }
    }
}

impl QueuePair for VerbsQueuePair {
    fn memory(&self) -> &Arc<dyn Memory> {
        &self.connection.memory
    }

    fn exposer(&self) -> Arc<dyn Exposer> {
        Arc::new(VerbsExposer::new(&self.connection, self.peer.ring))
    }

    fn remote_hello(&self) -> &Hello {
        &self.peer
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn post_write(
        &self,
        _room: WriteRoom,
        source: &[&[u8]],
        target: RemoteAddress,
        notice: Notice,
    ) -> Result<(), Box<FabricError>> {
        self.check_open()?;
        // The peer's device checks the target. Only a key that is longer than a device's cannot be sent to it.
        let total: usize = source.iter().map(|piece| piece.len()).sum();
        if u32::try_from(target.key).is_err() {
            return Err(FabricError::PeerMisbehaved(Misbehaviour::TargetOutside { target }).into());
        }
        let connection = &*self.connection;
        let _one_at_a_time = self.copying.lock();
        let post_unstaged = |source: Source<'_>| {
            connection.with_sending(|sending, outlet| {
                sending.check_room(outlet, 0)?;
                sending.post_write(outlet, source, target, notice)
            })
        };
        if total == 0 {
            return Ok(post_unstaged(Source::Region(&[]))?);
        }
        if let Some(inline) = Inline::gather(source, total, self.capabilities.inline_max) {
            return Ok(post_unstaged(Source::Inline(inline.bytes()))?);
        }
        let staged = connection.with_sending(|sending, outlet| sending.stage(outlet, total))?;
        let (sges, count) = gather::copy(&staged.region, staged.ranges, source);
        Ok(connection.with_sending(|sending, outlet| {
            sending.post_write(outlet, Source::Region(&sges[..count]), target, notice)
        })?)
    }

    fn post_control(&self, message: &[u8; CONTROL_BYTES]) -> Result<(), FabricError> {
        self.check_open()?;
        self.connection
            .with_sending(|sending, outlet| sending.post_control(outlet, message))
    }

    fn prepare_staging(&self, bytes: usize) -> Result<(), FabricError> {
        let staging = self.connection.account.register(bytes, Access::Read, Need::More)?;
        let _before = self
            .connection
            .with_sending(|sending, _| sending.prepare_staging(staging));
        Ok(())
    }

    fn replace_staging(&self) {
        let target = self.peer.ring;
        self.connection
            .with_sending(|sending, outlet| sending.replace_staging(outlet, target));
    }

    fn release_staging(&self) -> bool {
        let (_released, is_all) = self.connection.with_sending(SendQueue::release_staging);
        is_all
    }

    fn write_room(&self) -> Option<WriteRoom> {
        WriteRoom::new(self.connection.with_sending(|sending, outlet| sending.room(outlet)))
    }

    fn poll(&self, out: &mut [Completion]) -> Result<usize, FabricError> {
        let connection = &*self.connection;
        if connection.has_waiting() {
            connection.with_sending(|sending, outlet| {
                sending.catch_up(outlet);
            });
        }
        // Look for the end before the queue: completions of transfers before the end are in the queue by then. The
        // queue does not show the end if all receives were used up when it came, as none could be flushed.
        let has_ended = connection.end().get().is_some();
        let taken = connection
            .with_receiving(|receiving, inlet| receiving.poll(inlet, out))
            .map_err(|fault| connection.explain(fault))?;
        if has_ended && taken == 0 && !out.is_empty() {
            return Err(connection.explain_end(None));
        }
        Ok(taken)
    }

    fn arm(&self) -> Result<bool, FabricError> {
        let connection = &*self.connection;
        if !connection.with_receiving(|receiving, inlet| receiving.arm(inlet)) {
            return Ok(false);
        }
        let is_armed = connection.with_sending(|sending, outlet| {
            if !sending.wants_event() {
                return Ok(true);
            }
            sending.counts.events_armed += 1;
            connection.arm_send_queue()?;
            // Completions from before the request raise no event: look again.
            Ok::<bool, FabricError>(!sending.catch_up(outlet))
        })?;
        // The queue was empty and all receives were posted. A later end flushes them, which makes an event.
        Ok(is_armed && !connection.end().is_set_since_armed())
    }

    fn disarm(&self) {
        // A device has no call to take the request back.
    }

    fn event_fd(&self) -> BorrowedFd<'_> {
        self.connection.channel.as_fd()
    }

    fn drain_event(&self) -> bool {
        self.connection.drain_events();
        if self.connection.is_closed() {
            // The teardown thread may wait for the completion of this event.
            teardown::look(&self.connection);
        }
        self.check_alive().is_ok()
    }

    fn liveness_fd(&self) -> BorrowedFd<'_> {
        self.connection.channel.as_fd()
    }

    fn check_alive(&self) -> Result<(), FabricError> {
        self.connection.check_alive()
    }

    fn ask(&self) -> Answer {
        match self.connection.question() {
            Some(question) if !self.connection.is_closed() => self
                .connection
                .with_sending(|sending, outlet| sending.ask(outlet, question, self.peer.ring)),
            _ => Answer::NotAsked,
        }
    }

    fn disconnect(&self) {
        if self.connection.close() {
            teardown::disconnect(&self.connection, self.peer.ring);
        }
    }

    fn pinned_bytes(&self) -> u64 {
        self.connection.account.pinned_bytes()
    }

    fn wakeups_sent(&self) -> u64 {
        // The peer's device wakes the peer.
        0
    }

    fn fabric(&self) -> FabricName {
        FabricName::Verbs
    }

    fn route(&self) -> String {
        let id = self.connection.id();
        let mut device = id.device().map_or_else(String::new, |device| device.name());
        let without: Vec<String> = devices::without(&device).iter().map(Tried::to_string).collect();
        if !without.is_empty() {
            device = format!("{device} (without {})", without.join(", "));
        }
        match self.addresses() {
            Some((here, there)) => format!("RDMA device {device}, {} to {}", here.ip(), there.ip()),
            None => format!("RDMA device {device}"),
        }
    }

    fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        let id = self.connection.id();
        id.local_address().zip(id.peer_address())
    }

    fn counts(&self) -> Counts {
        let sent = self.connection.with_sending(|sending, _| sending.counts);
        let received = self.connection.with_receiving(|receiving, _| receiving.counts);
        Counts {
            sends_posted: sent.sends_posted,
            post_recv_calls: received.post_recv_calls,
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

//! Landing buffers for the peer: advertised when the policy says so, their memory claimed when none is free.

use inet_rdma_fabric::{Exposed, FabricError, Safeguard};
use inet_rdma_stream::{Mode, Receive, ReceiveId};

use crate::connection::closed::Closed;
use crate::connection::landing::Advice;
use crate::connection::state::{Connection, Core, End, saturating_u32};

impl Connection {
    /// Advertises as many landing buffers as the policy allows.
    #[inline]
    pub(crate) fn advertise(&self, core: &mut Core) {
        if core.landing.policy.may_advertise() {
            self.follow_advice(core);
        }
    }

    #[inline(never)]
    fn follow_advice(&self, core: &mut Core) {
        // A peer that has finished no longer writes, so it needs no buffer.
        let is_over = !matches!(core.end, End::Open);
        match core.landing.advice(&core.stream, is_over) {
            Advice::Keep => return,
            Advice::Whole(count) => {
                let bytes = core.landing.memory.buffer_bytes;
                let _none_is_free = (0..count).all(|_| self.advertise_one(core, bytes, false));
            }
            Advice::Expected(count) => self.advertise_expected(core, count),
        }
        if core.landing.landings.next().is_none() {
            core.stream.pass();
        }
    }

    #[inline(never)]
    fn advertise_expected(&self, core: &mut Core, count: usize) {
        let pieces = core.landing.expected_pieces(count);
        let _none_is_free = pieces.into_iter().all(|bytes| self.advertise_one(core, bytes, true));
    }

    /// Returns false if no buffer is free.
    #[inline]
    fn advertise_one(&self, core: &mut Core, bytes: usize, fill: bool) -> bool {
        let mut buffer = core.landing.memory.take();
        if buffer.is_none() && self.claim_landing(core) {
            buffer = core.landing.memory.take();
        }
        let Some(buffer) = buffer else { return false };
        let target = match buffer.open() {
            Ok(target) => target,
            // The bytes go through the ring, which costs a copy.
            Err(_) if self.settings.mode == Mode::Dynamic => return false,
            Err(error) => {
                self.fail(core, error.into());
                return false;
            }
        };
        if core.landing.memory.wants_sweep() {
            let _later = self.request_fetch(core);
        }
        core.stream.post_receive(Receive {
            id: ReceiveId(buffer.index().into()),
            target,
            bytes: saturating_u32(bytes),
            fill,
        });
        core.landing.landings.advertise(buffer, bytes, fill);
        true
    }

    /// Claims memory as no landing buffer is free. Returns true if there is a free one now.
    #[cold]
    #[inline(never)]
    pub(crate) fn claim_landing(&self, core: &mut Core) -> bool {
        let landings = core.stream.counters().direct_transfers_received;
        if !core.landing.memory.claim(landings) {
            return false;
        }
        let is_here = !self.qp.capabilities().pins;
        if is_here {
            self.settle_claim(core, |bytes| self.expose_landing(bytes));
        }
        if let Err(error) = self.request_fetch(core) {
            self.check_vital(core, error);
        }
        is_here
    }

    pub(crate) fn expose_landing(&self, bytes: usize) -> Result<Box<dyn Exposed>, FabricError> {
        let exposer = self.qp.exposer();
        match self.safeguard {
            Safeguard::Windows => exposer.expose_windows(bytes, self.settings.landing_buffer_bytes as usize),
            Safeguard::Trust | Safeguard::None => exposer.expose(bytes),
        }
    }

    pub(crate) fn settle_claim(
        &self,
        core: &mut Core,
        expose: impl FnOnce(usize) -> Result<Box<dyn Exposed>, FabricError>,
    ) {
        let Some(bytes) = core.landing.memory.claimed_bytes() else {
            return;
        };
        match expose(bytes) {
            Ok(exposed) => core.landing.memory.add(exposed),
            Err(error) => {
                core.landing.memory.refuse();
                self.check_vital(core, error);
            }
        }
    }

    /// Handles a refusal of landing memory. In mode `direct_only` it ends the connection, as no bytes can arrive
    /// without landing buffers.
    fn check_vital(&self, core: &mut Core, error: FabricError) {
        if self.settings.mode == Mode::DirectOnly && core.landing.memory.count() == 0 {
            self.fail(core, Closed::Fabric(error));
        }
    }
}

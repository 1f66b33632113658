//! Landing memory of a connection comes and goes: on the thread of [`crate::keeper`], but for a fabric that has it already.

use std::sync::Arc;

use super::Connection;
use super::closed::Closed;
use super::core::Core;
use super::landing_memory::{Due, GivenBack, Source, is_vital};
use super::notifier::Notifier;
use super::notifying::Caller;
use crate::fabric::FabricError;
use crate::keeper::{self, Tenant};
use inet_rdma_stream::Mode;

impl<N: Notifier> Connection<N> {
    pub(super) fn memory_source(pins: bool) -> Source {
        if pins { Source::Pinned } else { Source::Mapped }
    }

    /// No landing buffer is free. True: there is one now.
    #[cold]
    #[inline(never)]
    pub(super) fn claim_landing(&self, core: &mut Core<N::Token>) -> bool {
        let landings = core.stream.counters().direct_transfers_received;
        if !core.landing.claim(landings) {
            return false;
        }
        let is_here = !self.qp.capabilities().pins;
        if is_here {
            self.settle_claim(core, |bytes| self.qp.exposer().expose(bytes));
        }
        if let Err(error) = keeper::claim(self.this.clone()) {
            self.refuse_landing(core, error);
        }
        is_here
    }

    /// The thread that sweeps is to look after the landing buffers again.
    #[cold]
    #[inline(never)]
    pub(super) fn have_swept(&self) {
        // Without the thread the buffers stay as they are.
        let _unswept = keeper::claim(self.this.clone());
    }

    fn settle_claim(
        &self,
        core: &mut Core<N::Token>,
        expose: impl FnOnce(usize) -> Result<Box<dyn crate::fabric::Exposed>, FabricError>,
    ) {
        let Some(bytes) = core.landing.claimed_bytes() else {
            return;
        };
        match expose(bytes) {
            Ok(exposed) => core.landing.add(exposed),
            Err(error) => self.refuse_landing(core, error),
        }
    }

    fn refuse_landing(&self, core: &mut Core<N::Token>, error: FabricError) {
        if core.landing.claimed_bytes().is_none() {
            return;
        }
        core.landing.refuse();
        if is_vital(self.settings.mode, &core.landing) {
            // Nothing goes through the ring in this mode, and nothing else can bring bytes.
            self.fail(core, Closed::Fabric(error));
        }
    }

    /// Nothing has landed for a while. Asks the peer to give up what it may still write into, and takes back what it cannot.
    fn give_back(&self, core: &mut Core<N::Token>) -> Option<GivenBack> {
        core.withdraw();
        if core.stream.receives_posted() > 0 {
            // False: it was asked before. The mark is its answer.
            let _asked_now = core.stream.recall();
            self.flush_controls(core);
            return None;
        }
        // Small packets follow as a rule; the next bulk packet opens the window again.
        core.policy.expect_no_bulk();
        Some(core.landing.give_back())
    }
}

impl<N: Notifier> Tenant for Connection<N> {
    fn fetch(&self) {
        let Some(bytes) = self.core.lock().landing.claimed_bytes() else {
            return;
        };
        let exposed = self.qp.exposer().expose(bytes);
        // A read that is under way advertises at its end.
        let receiving = self.receiving.try_lock();
        let mut core = self.core.lock();
        self.settle_claim(&mut core, |_| exposed);
        if receiving.is_some() && core.is_up() {
            self.advertise(&mut core);
            self.flush_controls(&mut core);
        }
        let woken = core.take_woken();
        drop(core);
        drop(receiving);
        self.heed(woken, Caller::User);
    }

    fn sweep(&self) -> bool {
        let mut core = self.core.lock();
        // A connection that has ended keeps what it has until it goes. Direct transfers only: nothing comes without memory.
        if !core.is_up() || self.settings.mode == Mode::DirectOnly {
            return false;
        }
        let landings = core.stream.counters().direct_transfers_received;
        let (is_kept, given_back) = match core.landing.sweep(landings) {
            Due::Later => (true, None),
            Due::Never => (false, None),
            Due::GiveBack => {
                let given_back = self.give_back(&mut core);
                (given_back.is_none(), given_back)
            }
        };
        let woken = core.take_woken();
        drop(core);
        if let Some(given_back) = given_back {
            given_back.release();
        }
        self.heed(woken, Caller::User);
        is_kept
    }
}

impl<N: Notifier> Connection<N> {
    /// With direct transfers only nothing comes before the first advertisement.
    pub(super) fn begin_landing(self: &Arc<Self>) {
        if self.settings.mode == Mode::DirectOnly {
            let mut core = self.core.lock();
            if self.claim_landing(&mut core) {
                self.advertise(&mut core);
                self.flush_controls(&mut core);
            }
        }
    }
}

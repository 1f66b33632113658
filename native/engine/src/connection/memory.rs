//! Landing memory, rings and staging memory of a connection come and go: on the thread of [`crate::keeper`], but for a fabric that has it already.

use std::sync::Arc;
use std::time::{Duration, Instant};

use inet_rdma_fabric::{Exposed, FabricError, Safeguard};
use inet_rdma_stream::Mode;

use super::Connection;
use super::closed::Closed;
use super::core::{Core, Staging};
use super::landing_memory::{Due, GivenBack, Source, is_vital};
use super::notifier::Notifier;
use super::notifying::Caller;
use crate::keeper::{self, Tenant};

/// Between two attempts to start the keeper's thread for one connection: as long as refused memory is not asked for again.
const UNKEPT: Duration = Duration::from_secs(10);

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
            self.settle_claim(core, |bytes| self.expose_landing(bytes));
        }
        if let Err(error) = self.have_kept(core) {
            self.check_vital(core, error);
        }
        is_here
    }

    /// The keeper's thread is to get what is claimed, and to sweep from then on. Err: it cannot be started. All stays as it is
    /// then, claims included, until [`Self::have_kept_again`].
    #[cold]
    #[inline(never)]
    pub(super) fn have_kept(&self, core: &mut Core<N::Token>) -> Result<(), FabricError> {
        let kept = keeper::claim(self.this.clone());
        core.unkept_since = kept.is_err().then(Instant::now);
        kept
    }

    /// A look, though the keeper's thread could not be started at `since`.
    #[cold]
    #[inline(never)]
    pub(super) fn have_kept_again(&self, core: &mut Core<N::Token>, since: Instant) {
        if since.elapsed() >= UNKEPT {
            let _later = self.have_kept(core);
        }
    }

    #[inline(never)]
    pub(super) fn note_ring_arrival(&self, core: &mut Core<N::Token>) {
        let (room, bytes) = (core.stream.ring_room_of_peer(), core.stream.ring_bytes());
        if core.ring.note_arrival(room, bytes) {
            let _later = self.have_kept(core);
        }
    }

    /// Asks the peer to go on in another ring, if one is wanted. Another question may have to be answered first.
    fn replace_ring(&self, core: &mut Core<N::Token>) {
        let Some(ring) = core.ring.wanted() else { return };
        if core.stream.replace_ring(ring) {
            core.ring.asked();
            self.flush_controls(core);
        }
    }

    /// A ring was replaced, or read to its end: what nothing is to be read from any more goes.
    #[cold]
    #[inline(never)]
    pub(super) fn release_ring(&self, core: &mut Core<N::Token>) {
        if let Some(unused) = core.ring.take_unused(core.stream.reads_old_ring()) {
            core.unused.push(unused);
            let _later = self.have_kept(core);
        }
    }

    /// The peer has another ring: staging memory that is much smaller would cut transfers, a larger one is of no use.
    #[cold]
    #[inline(never)]
    pub(super) fn claim_staging(&self, core: &mut Core<N::Token>) {
        if !self.qp.capabilities().pins {
            return;
        }
        let bytes = core.stream.peer_ring_bytes().min(self.ring_bytes) as usize;
        core.staging = Staging::Claimed(bytes);
        let _later = self.have_kept(core);
    }

    /// Gets staging memory that was claimed. Without it the old one goes on serving, and the claim stands: the next sweep asks
    /// again.
    fn fetch_staging(&self) {
        let Staging::Claimed(bytes) = self.core.lock().staging else {
            return;
        };
        if self.qp.prepare_staging(bytes).is_err() {
            return;
        }
        // No write is between its offer of room and its post.
        let sending = self.sending.lock();
        let mut core = self.core.lock();
        if core.is_up() {
            self.qp.replace_staging();
        }
        if core.staging == Staging::Claimed(bytes) {
            core.staging = Staging::Replaced;
        }
        // A writer that waits for room is woken by what is under way: nobody else may wake a link's port.
        drop(core);
        drop(sending);
    }

    fn fetch_ring(&self) {
        let (unused, claimed) = {
            let mut core = self.core.lock();
            (std::mem::take(&mut core.unused), core.ring.claimed_bytes())
        };
        unused.into_iter().for_each(|exposed| exposed.revoke());
        let Some(bytes) = claimed else { return };
        let exposed = self.qp.exposer().expose(bytes);
        let mut core = self.core.lock();
        match exposed {
            Ok(exposed) => core.ring.add(exposed),
            Err(_) => core.ring.refuse(),
        }
        if core.is_up() {
            self.replace_ring(&mut core);
        }
        let woken = core.take_woken();
        drop(core);
        self.heed(woken, Caller::User);
    }

    fn expose_landing(&self, bytes: usize) -> Result<Box<dyn Exposed>, FabricError> {
        let exposer = self.qp.exposer();
        match self.safeguard {
            Safeguard::Windows => exposer.expose_windows(bytes, self.settings.landing_bytes as usize),
            Safeguard::Trust | Safeguard::None => exposer.expose(bytes),
        }
    }

    fn fetch_landing(&self) {
        let Some(bytes) = self.core.lock().landing.claimed_bytes() else {
            return;
        };
        let exposed = self.expose_landing(bytes);
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

    /// Looks after ring and staging memory. False: there is nothing to look after.
    fn sweep_ring(&self, core: &mut Core<N::Token>) -> bool {
        let is_kept = core.ring.sweep();
        if core.ring.is_elastic() && core.stream.ring_room_of_peer() == 0 {
            // Refused before, and no arrival will ask again.
            self.note_ring_arrival(core);
        }
        self.replace_ring(core);
        is_kept || core.staging != Staging::Fits
    }

    fn settle_claim(
        &self,
        core: &mut Core<N::Token>,
        expose: impl FnOnce(usize) -> Result<Box<dyn Exposed>, FabricError>,
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
        self.check_vital(core, error);
    }

    /// There is no memory to land in, for now. With direct transfers only that is the end: nothing goes through the ring, and
    /// nothing else can bring bytes.
    fn check_vital(&self, core: &mut Core<N::Token>, error: FabricError) {
        if is_vital(self.settings.mode, &core.landing) {
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
        if !core.landing.is_unused() {
            return None;
        }
        // Small packets follow as a rule; the next bulk packet opens the window again.
        core.policy.expect_no_bulk();
        Some(core.landing.give_back())
    }
}

impl<N: Notifier> Tenant for Connection<N> {
    fn fetch(&self) {
        self.fetch_ring();
        self.fetch_staging();
        self.fetch_landing();
    }

    fn sweep(&self) -> bool {
        let mut core = self.core.lock();
        // A connection that has ended keeps what it has until it goes.
        if !core.is_up() {
            return false;
        }
        let keeps_ring = self.sweep_ring(&mut core);
        let releases = core.staging == Staging::Replaced;
        let landings = core.stream.counters().direct_transfers_received;
        let (is_kept, given_back) = match core.landing.sweep(landings) {
            Due::GiveBack if self.settings.mode == Mode::DirectOnly => (false, None),
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
        if releases && self.qp.release_staging() {
            let mut core = self.core.lock();
            if core.staging == Staging::Replaced {
                core.staging = Staging::Fits;
            }
        }
        self.fetch_staging();
        self.heed(woken, Caller::User);
        is_kept || keeps_ring
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

//! Gets and gives back landing memory, rings and staging memory, on the thread of [`crate::memory_thread`]. Memory of a
//! fabric that pins nothing is only given back there.

use inet_rdma_stream::Mode;

use crate::connection::landing::{Due, GivenBack};
use crate::connection::notifier::Caller;
use crate::connection::state::{Connection, Core};
use crate::memory_thread::MemoryUser;

impl Connection {
    /// Claims landing memory at the start in mode `direct_only`, where nothing can arrive before the first
    /// advertisement.
    pub(crate) fn begin_landing(&self) {
        if self.settings.mode == Mode::DirectOnly {
            let mut core = self.core.lock();
            if self.claim_landing(&mut core) {
                self.advertise(&mut core);
                self.flush_controls(&mut core);
            }
        }
    }

    /// Asks the peer to go on in another ring, if one is wanted. If the peer still owes the answer to an earlier
    /// question, does nothing.
    fn replace_ring(&self, core: &mut Core) {
        let Some(ring) = core.ring.wanted() else { return };
        if core.stream.replace_ring(ring) {
            core.ring.asked();
            self.flush_controls(core);
        }
    }

    /// Gets staging memory that was claimed. If it is refused, the old memory stays in use and the claim stands: the
    /// next sweep asks again. Later claims wait for [`Self::release_staging`].
    fn fetch_staging(&self) {
        let Some(claimed) = self.core.lock().staging.claimed_bytes() else {
            return;
        };
        if self.qp.prepare_staging(claimed).is_err() {
            return;
        }
        let mut core = self.core.lock();
        if core.writer.posts_unlocked {
            // A transfer under way relies on the room that it was offered: the writer replaces the memory after its
            // post.
            core.staging.prepare(claimed);
            return;
        }
        self.replace_staging(&mut core, claimed);
    }

    /// Gives back staging memory that was replaced, once nothing is sent from it. Memory claimed meanwhile can be
    /// fetched then.
    fn release_staging(&self) {
        if self.core.lock().staging.is_replaced() && self.qp.release_staging() {
            self.core.lock().staging.released();
        }
    }

    fn fetch_ring(&self) {
        let (unused, claimed) = {
            let mut core = self.core.lock();
            (core.ring.unused.take(), core.ring.claimed_bytes())
        };
        if let Some(exposed) = unused {
            exposed.revoke();
        }
        let Some(bytes) = claimed else { return };
        let exposed = self.qp.exposer().expose(bytes);
        self.step(Caller::User, |core| {
            match exposed {
                Ok(exposed) => core.ring.add(exposed),
                Err(_) => core.ring.refuse(),
            }
            if core.is_up() {
                self.replace_ring(core);
            }
        });
    }

    fn fetch_landing(&self) {
        let Some(bytes) = self.core.lock().landing.memory.claimed_bytes() else {
            return;
        };
        let exposed = self.expose_landing(bytes);
        self.step(Caller::User, |core| {
            self.settle_claim(core, |_| exposed);
            // A read that is under way advertises at its end.
            if !core.reader.copies_unlocked && core.is_up() {
                self.advertise(core);
                self.flush_controls(core);
            }
        });
    }

    /// Sweeps ring and staging memory. False: nothing is left to do until the next claim.
    fn sweep_ring(&self, core: &mut Core) -> bool {
        let is_kept = core.ring.sweep();
        if core.ring.is_elastic && core.stream.ring_room_of_peer() == 0 {
            // Claim refused memory again here, as no arrival may come to do it.
            self.note_ring_arrival(core);
        }
        self.replace_ring(core);
        is_kept || !core.staging.fits()
    }

    /// Called when nothing has landed for a while. Asks the peer to give up the buffers that it may still write, and
    /// takes back the others.
    fn give_back(&self, core: &mut Core) -> Option<GivenBack> {
        core.withdraw();
        if core.stream.outstanding_receives() > 0 {
            // False: it was asked before. The mark is its answer.
            let _asked_now = core.stream.recall();
            self.flush_controls(core);
            return None;
        }
        if !core.landing.memory.is_unused() {
            return None;
        }
        // Small packets usually follow; the next bulk packet opens the window again.
        core.landing.policy.expect_no_bulk();
        Some(core.landing.memory.give_back())
    }
}

impl MemoryUser for Connection {
    fn fetch(&self) {
        self.fetch_ring();
        self.fetch_staging();
        self.fetch_landing();
    }

    fn sweep(&self) -> bool {
        let mut core = self.core.lock();
        // A connection that has ended keeps its memory until it is dropped.
        if !core.is_up() {
            return false;
        }
        let keeps_ring = self.sweep_ring(&mut core);
        let landings = core.stream.counters().direct_transfers_received;
        let (is_kept, given_back) = match core.landing.memory.sweep(landings) {
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
        self.release_staging();
        self.fetch_staging();
        self.tell(woken, Caller::User);
        is_kept || keeps_ring
    }
}

//! How the window of a link grows, shrinks, and rests.

use std::time::{Duration, Instant};

use inet_rdma_session::Memory;

use crate::echo;
use crate::link::Link;
use crate::tcp::Reach;
use crate::work::Work;

impl<H: AsRef<[u8]>, L: Memory> Link<H, L> {
    /// Both sides tell windows: this side takes `bytes` bytes without having acknowledged them, and its own window
    /// grows up to these. Called before [`Self::handle_connected`].
    pub fn tell_window(&mut self, bytes: usize) {
        self.session.tell_window(bytes);
        self.window.set_max(bytes);
    }

    /// The bytes that the TCP connection may have under way now.
    pub fn window_bytes(&self) -> usize {
        self.session.window_bytes()
    }

    /// The number of times that the window should have grown, and did not: it was as large as this side's or the peer's
    /// bound allows, or the caller has granted less.
    pub fn window_limits(&self) -> u64 {
        self.window.limits()
    }

    /// The caller has granted this window in place of the one that [`Work::ResizeWindow`] says.
    pub fn handle_window(&mut self, wanted: usize, granted: usize) {
        self.window.set(wanted, granted);
        self.session.set_window(granted);
        self.request_transmission_unless_gathering();
    }

    /// There is another TCP connection.
    pub(crate) fn begin_window(&mut self, reach: Reach) {
        let smaller = self.window.begin(reach);
        self.shrink_window(smaller);
    }

    /// The question of how long a trip takes goes with bytes that the window may be too small for.
    pub(crate) fn ask_for_window(&mut self, now: Instant) {
        if self.window.grows() {
            self.ask_round_trip(now, echo::WITH_PACKETS);
        }
    }

    /// The peer's port has answered in this time.
    pub(crate) fn handle_trip(&mut self, trip: Duration) {
        if self.window.grows() {
            let used = self.session.take_window_peak();
            let smaller = self.window.handle_answer(trip, used);
            self.shrink_window(smaller);
        }
    }

    /// Nothing was sent for long.
    pub(crate) fn rest_window(&mut self) {
        if self.session.logged_bytes() == 0 {
            self.shrink_window(self.window.rested());
        }
    }

    /// The caller has granted nothing of a window that has never grown.
    fn shrink_window(&mut self, smaller: Option<usize>) {
        if let Some(bytes) = smaller {
            if self.window.is_granted() {
                self.order(Work::ResizeWindow(bytes));
            }
            self.window.set(bytes, bytes);
            self.session.set_window(bytes);
        }
    }

    /// Bytes have come over TCP, with acknowledgements.
    pub(crate) fn follow_path(&mut self, now: Instant) {
        if self.window.grows() {
            let is_full = self.session.take_window_full();
            let (acknowledged, peer_max) = (self.session.acknowledged(), self.session.peer_window_bytes());
            let larger = self.window.handle_acknowledged(now, acknowledged, is_full, peer_max);
            if let Some(bytes) = larger {
                self.order(Work::ResizeWindow(bytes));
            }
        }
    }
}

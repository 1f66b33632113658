//! Reads by the polling thread itself: for posted receives, and for active mode.

use inet_rdma_assembly::{ReadLimit, Received};

use super::active_mode::After;
use super::notifier::StreamNotifier;
use super::shared::StreamSocket;
use inet_rdma_engine::connection::{Closed, For, ReadEnd, Taken, Woken};

/// The limit of a read for one message of active mode.
const ONE_MESSAGE: ReadLimit = ReadLimit {
    bytes: 64 * 1024,
    packets: 1,
    exact: 0,
};

/// Maximum number of reads in one turn; then other connections have theirs.
const READS: usize = 64;

/// The state of a turn.
#[derive(PartialEq, Eq)]
enum Turn {
    /// There may be more at once.
    GoesOn,
    /// There is nothing more until the connection wakes the reader.
    Over,
    /// No receive is posted now: other readers may read.
    Drained,
}

impl<N: StreamNotifier> StreamSocket<N> {
    /// Reads for the posted receives, about [`super::Bounds::call_bytes`] at most. `woken.reader`: no receive is left.
    pub(super) fn receive_posted(&self) -> Woken {
        let mut woken = Woken::default();
        let mut left = self.bounds.call_bytes.max(1);
        for _ in 0..READS {
            match self.receive_one(&mut left, &mut woken) {
                Turn::GoesOn if left > 0 => {}
                Turn::GoesOn => break,
                Turn::Over => return woken,
                Turn::Drained => {
                    woken.reader = true;
                    return woken;
                }
            }
        }
        // More may have arrived, but other connections wait for their turn.
        self.connection.call_back(Woken::READER);
        woken
    }

    fn receive_one(&self, left: &mut usize, woken: &mut Woken) -> Turn {
        let mut read_half = self.read_half.lock();
        let Some(exact) = self.connection.first_expected_read() else {
            return Turn::Drained;
        };
        let limit = ReadLimit {
            bytes: *left,
            packets: 1,
            exact,
        };
        let mut out = Vec::new();
        let mut taken = Taken::default();
        let end = read_half.read_without_notify(limit, For::Expected, &mut out, &mut taken);
        woken.writer |= taken.woken.writer;
        *left = left.saturating_sub(taken.copied(&out));
        if taken.is_satisfied {
            let satisfied = self.demand.lock().posted.pop_front();
            if let (Some(token), Some(received)) = (satisfied, out.pop()) {
                self.notifier.received(token, Ok(received));
            }
        }
        match end {
            ReadEnd::More => Turn::GoesOn,
            ReadEnd::Empty => {
                let (armed, found) = self.connection.arm_reader_without_notify();
                woken.writer |= found.writer;
                if self.demand.lock().posted.is_empty() {
                    Turn::Drained
                } else if armed {
                    Turn::Over
                } else {
                    Turn::GoesOn
                }
            }
            ReadEnd::Closed(closed) => {
                self.end_receives(&closed);
                Turn::Drained
            }
        }
    }

    /// Ends all posted receives, as nothing will arrive. The caller holds the lock of the reading direction.
    pub(super) fn end_receives(&self, closed: &Closed) {
        self.connection.cancel_expected_reads();
        loop {
            let next = self.demand.lock().posted.pop_front();
            let Some(token) = next else { return };
            self.notifier.received(token, Err(closed.clone()));
        }
    }

    /// Reads for active mode while it is on.
    pub(super) fn deliver(&self) -> Woken {
        let mut woken = Woken::default();
        let mut reads = READS;
        while self.deliver_one(&mut woken) == Turn::GoesOn {
            reads = reads.saturating_sub(1);
            // After the end the turn continues: only the bytes in ring and landing buffers are left.
            if reads == 0 && self.connection.closed().is_none() {
                // More has arrived, but other connections wait for their turn.
                self.connection.call_back(Woken::READER);
                break;
            }
        }
        woken
    }

    fn deliver_one(&self, woken: &mut Woken) -> Turn {
        let mut read_half = self.read_half.lock();
        if !self.demand.lock().active.is_on() {
            return Turn::Over;
        }
        let mut out = Vec::new();
        let mut taken = Taken::default();
        let end = read_half.read_without_notify(ONE_MESSAGE, For::Caller, &mut out, &mut taken);
        woken.writer |= taken.woken.writer;
        for received in out {
            match self.hand_over(received) {
                After::Active => {}
                After::UsedUp(token) => {
                    self.notifier.passive(&token);
                    return Turn::Over;
                }
                After::Passive => return Turn::Over,
            }
        }
        match end {
            ReadEnd::More => Turn::GoesOn,
            ReadEnd::Empty => {
                let (armed, found) = self.connection.arm_reader_without_notify();
                woken.writer |= found.writer;
                if armed { Turn::Over } else { Turn::GoesOn }
            }
            ReadEnd::Closed(closed) => {
                let turned_off = self.demand.lock().active.turn_off();
                if let Some(token) = turned_off {
                    self.notifier.ended(&token, &closed);
                }
                Turn::Over
            }
        }
    }

    /// Hands over one message of active mode. The caller holds the lock of the reading direction, so the mode has not
    /// changed since the message was read.
    fn hand_over(&self, received: Received<N::Buffer>) -> After<N::Token> {
        let mut demand = self.demand.lock();
        if let Some(token) = demand.active.token() {
            self.notifier.message(token, received);
        }
        demand.active.count_message()
    }
}

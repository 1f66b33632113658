//! Calls of a connection's user beside reads and writes. Each call is one step, after which the user is notified.

use std::time::{Duration, Instant};

use inet_rdma_fabric::Answer;

use super::closed::Closed;
use super::notifier::{Caller, Woken};
use super::state::{Connection, PolledBy};

/// Looks between two offers of the processor to other threads.
const LOOKS_PER_OFFER: u32 = 8;

/// Lock-free looks, where the fabric allows them, before such an offer: they take about as long as [`LOOKS_PER_OFFER`]
/// locked ones.
const QUIET_LOOKS: u32 = 256;

/// The reader.
impl Connection {
    /// Arms the reader, which then waits for [`super::Notifier::wake`]. Returns false if there may be something to read
    /// already.
    pub fn arm_reader(&self) -> bool {
        self.step(Caller::User, |core| self.arm_reader_locked(core))
    }

    /// As [`Self::arm_reader`], for a caller that notifies the user itself.
    pub fn arm_reader_without_notify(&self) -> (bool, Woken) {
        self.step_without_notify(|core| self.arm_reader_locked(core))
    }

    /// Makes the reader self-polling. It promises to read again and again from a wake to the next [`Self::arm_reader`],
    /// so that the peer need not send events.
    pub fn set_self_polling(&self) {
        // With busy polling the thread looks in any case.
        if !self.settings.busy {
            self.core.lock().polled_by = PolledBy::Reader;
        }
    }

    /// True only if the receive queue is empty. Takes no lock; may return false spuriously. The end of the connection
    /// does not show.
    pub fn is_quiet(&self) -> bool {
        self.qp.is_quiet()
    }

    /// Polls until there is something to read, for `duration` at most. False: there is nothing. For a self-polling
    /// reader. Yields the processor between polls: with few cores the peer may need this core.
    pub fn spin(&self, duration: Duration) -> bool {
        let start = Instant::now();
        let mut woken = Woken::default();
        let found = 'spin: loop {
            for _ in 0..LOOKS_PER_OFFER {
                let mut core = self.core.lock();
                self.progress(&mut core);
                woken.merge(core.take_woken());
                if core.is_readable() {
                    break 'spin true;
                }
                drop(core);
                if (0..QUIET_LOOKS).all(|_| self.qp.is_quiet()) {
                    break;
                }
                // Something came, or this fabric cannot tell.
                std::hint::spin_loop();
            }
            if start.elapsed() >= duration {
                break false;
            }
            std::thread::yield_now();
        };
        self.tell(woken, Caller::User);
        found
    }

    /// Makes each read from now on find the end, even if more bytes arrive.
    pub fn stop_reading(&self) {
        self.step(Caller::User, |core| {
            core.reader.is_stopped = true;
            core.wake_reader();
        });
    }

    /// Adds an expected read of exactly `bytes` bytes, or with 0 of any size, after the others. Its bytes can land in
    /// buffers of exactly that size.
    pub fn expect_read(&self, bytes: usize) {
        self.core.lock().landing.expected.push(bytes);
    }

    /// The size of the first expected read. None: no read is expected.
    pub fn first_expected_read(&self) -> Option<usize> {
        self.core.lock().landing.expected.first()
    }

    /// Takes back the expected read with this index.
    pub fn cancel_expected_read(&self, index: usize) {
        self.core.lock().landing.expected.remove(index);
    }

    /// Takes back all expected reads.
    pub fn cancel_expected_reads(&self) {
        self.core.lock().landing.expected.clear();
    }

    /// True if the peer has ended its stream and all bytes were read.
    pub fn is_end(&self) -> bool {
        let core = self.core.lock();
        core.stream.is_end() && !core.holds_record() && !core.awaits_landed()
    }
}

/// The writer.
impl Connection {
    /// Arms the writer, which then waits for [`super::Notifier::wake`]. Returns false if there is room already.
    pub fn arm_writer(&self) -> bool {
        self.step(Caller::User, |core| self.arm_writer_locked(core))
    }

    /// As [`Self::arm_writer`], for a caller that notifies the user itself.
    pub fn arm_writer_without_notify(&self) -> (bool, Woken) {
        self.step_without_notify(|core| self.arm_writer_locked(core))
    }

    /// Asks for a keepalive to the peer. Never waits.
    pub fn tick(&self) -> Result<(), Closed> {
        self.step(Caller::User, |core| {
            if let Some(closed) = core.closed() {
                return Err(closed.clone());
            }
            core.stream.tick();
            self.tally.packets_sent.add(core, 1);
            self.progress(core);
            self.flush_controls(core);
            Ok(())
        })
    }
}

/// The end.
impl Connection {
    /// As [`inet_rdma_fabric::QueuePair::ask`].
    pub fn ask(&self) -> Answer {
        self.qp.ask()
    }

    /// Ends the connection, unless it has ended already: reads and writes end with `reason`.
    pub fn close_with(&self, reason: Closed) {
        self.step(Caller::User, |core| self.fail(core, reason));
    }

    /// As [`Self::close_with`], for a caller that notifies the user itself.
    pub fn close_without_notify(&self, reason: Closed) -> Woken {
        self.step_without_notify(|core| self.fail(core, reason)).1
    }

    /// As [`Self::close_with`], after the bytes that the peer has sent, which can still be read. A stream that the peer
    /// has ended in order ends with [`Closed::ByPeer`].
    pub fn close_behind_arrivals(&self, reason: Closed) {
        self.step(Caller::User, |core| self.fail_behind_arrivals(core, reason));
    }
}

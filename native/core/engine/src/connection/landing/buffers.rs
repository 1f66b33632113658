//! The landing buffers of one connection, with the rules for them.

use inet_rdma_stream::{ReceiveId, Stream};

use super::advert_policy::{AdvertPolicy, Advice, Situation};
use super::expected_reads::ExpectedReads;
use super::landings::{Landings, NextLanded};
use super::memory::LandingMemory;

/// The landing buffers of one connection: their memory, those that the peer may write or has written, and the reasons
/// to advertise more.
pub(crate) struct LandingBuffers {
    /// The memory of all landing buffers.
    pub(crate) memory: LandingMemory,
    /// The landing buffers that the peer has or had.
    pub(crate) landings: Landings,
    /// The reads whose sizes are known.
    pub(crate) expected: ExpectedReads,
    /// When to advertise landing buffers, and how many.
    pub(crate) policy: AdvertPolicy,
}

impl LandingBuffers {
    /// `closed_bytes`: see [`Landings::new`].
    pub(crate) fn new(memory: LandingMemory, policy: AdvertPolicy, closed_bytes: usize) -> Self {
        Self {
            landings: Landings::new(memory.count_max(), memory.buffer_bytes(), closed_bytes),
            memory,
            expected: ExpectedReads::default(),
            policy,
        }
    }

    /// What to advertise now. `is_over`: the peer has finished, or the connection is closed.
    #[inline]
    pub(crate) fn advice(&self, stream: &Stream, is_over: bool) -> Advice {
        self.policy.advice(Situation {
            is_over,
            ring_holds_bytes: stream.ring_bytes_readable() > 0,
            is_expected: self.expected.in_use,
            advertised: stream.outstanding_receives(),
            landed: self.landings.landed(),
            last_bytes: self.landings.last_bytes(),
        })
    }

    /// The sizes of at most `count` buffers to advertise for the expected reads.
    pub(crate) fn expected_pieces(&self, count: usize) -> Vec<usize> {
        let Some(covered) = self.landings.covered() else {
            return Vec::new();
        };
        let piece = self.memory.buffer_bytes().max(1);
        self.expected.pieces(covered, piece).take(count).collect()
    }

    /// Withdraws all advertised buffers that the peer can no longer fill.
    #[inline]
    pub(crate) fn withdraw(&mut self, stream: &mut Stream) {
        while let Some(ReceiveId(index)) = stream.withdraw() {
            self.landings.withdraw(index as usize);
        }
    }

    /// True if something has landed that the reader can take. `is_up`: the connection has not ended, so that more may
    /// land.
    #[inline]
    pub(crate) fn has_landed(&self, is_up: bool) -> bool {
        match self.landings.next() {
            None => false,
            Some(NextLanded::Whole) => true,
            // An expected read waits for the rest of a buffer that has arrived in part. Once no more can come, it takes
            // the part.
            Some(NextLanded::Part(bytes)) => !(is_up && self.expected.wants_more_than(bytes)),
            // No completion arrives after the end, so a window that is closing never becomes closed: copy its bytes.
            Some(NextLanded::Closing) => !is_up,
        }
    }
}

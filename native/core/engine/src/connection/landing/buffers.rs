//! The landing buffers of one connection, with the rules for them.

use inet_rdma_stream::Stream;

use super::advert_policy::{AdvertPolicy, Advice, Situation};
use super::expected_reads::ExpectedReads;
use super::landings::Landings;
use super::memory::LandingMemory;

/// The landing buffers of one connection: their memory, those that the peer may write or has written, and the reasons
/// to advertise more.
pub(crate) struct LandingBuffers {
    pub(crate) memory: LandingMemory,
    pub(crate) landings: Landings,
    pub(crate) expected: ExpectedReads,
    pub(crate) policy: AdvertPolicy,
}

impl LandingBuffers {
    /// `closed_bytes`: see [`Landings::new`].
    pub(crate) fn new(memory: LandingMemory, policy: AdvertPolicy, closed_bytes: usize) -> Self {
        Self {
            landings: Landings::new(memory.count_max, memory.buffer_bytes, closed_bytes),
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
            last_bytes: self.landings.last_bytes,
        })
    }

    /// The sizes of at most `count` buffers to advertise for the expected reads.
    pub(crate) fn expected_pieces(&self, count: usize) -> Vec<usize> {
        let Some(covered) = self.landings.covered() else {
            return Vec::new();
        };
        let piece = self.memory.buffer_bytes.max(1);
        self.expected.pieces(covered, piece).take(count).collect()
    }
}

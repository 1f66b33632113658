//! When this side advertises landing buffers, and how many.
//!
//! An advertised buffer saves a copy: the peer writes into it, and the user gets it as it is. But it costs a control
//! message and a phase of its own in the stream, and it is of no use if the bytes go through the ring. So buffers are
//! advertised when bulk is expected: after a bulk packet has arrived ([`AdvertPolicy::note_packets`]), or for reads
//! that are expected. The connection asks [`AdvertPolicy::advice`] after each read and follows it.

use inet_rdma_stream::Mode;

/// Number of arrivals without a bulk packet after which no bulk is expected. Bulk with some small packets between (a
/// file with its acknowledgements, two users of one stream) still lands; each wrong guess costs one window of
/// advertisements.
const BULK_MEMORY: u32 = 32;

/// A window below this one leaves the peer waiting: one buffer is written while another one is read.
const WINDOW_MIN: usize = 2;

/// Buffers that are advertised together while there is more to read. A writer that waits for buffers is woken by each
/// advertisement, and four transfers for each wake-up keep its system calls below the cost of its copies.
const TOGETHER: usize = 4;

/// Settings that are fixed for a connection's life.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AdvertBounds {
    pub(crate) mode: Mode,
    /// Minimum size of a bulk packet, in bytes.
    pub(crate) direct_bytes: usize,
    /// The number of advertisements that the peer holds, or of landing buffers, if that is smaller.
    pub(crate) adverts_max: usize,
    pub(crate) landing_area_bytes: usize,
    pub(crate) ring_bytes: usize,
    /// Bytes to advertise at a time ([`inet_rdma_fabric::Capabilities::landing_window_bytes`]).
    pub(crate) window_bytes: usize,
}

/// The state of the connection that the advice depends on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Situation {
    /// The peer has finished, or the connection is closed.
    pub(crate) is_over: bool,
    /// The ring holds bytes. The stream forbids to advertise then, as the peer must not overtake them.
    pub(crate) ring_holds_bytes: bool,
    /// The reader has expected reads, and they come first.
    pub(crate) is_expected: bool,
    /// Buffers that are advertised and not filled.
    pub(crate) advertised: usize,
    /// Buffers that the peer has filled and the user has not read.
    pub(crate) landed: usize,
    /// Bytes of the last transfer that landed; before the first one, the size of a buffer.
    pub(crate) last_bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Advice {
    /// Advertise nothing and send no pass.
    Keep,
    /// Advertise this many whole buffers; 0: only tell the peer not to wait for any (a pass).
    Whole(usize),
    /// Advertise at most this many buffers, each of the size that an expected read takes.
    Expected(usize),
}

/// The rules, and whether bulk is expected.
#[derive(Debug)]
pub(crate) struct AdvertPolicy {
    bounds: AdvertBounds,
    expects_bulk: bool,
    since_bulk: u32,
}

impl AdvertPolicy {
    pub(crate) fn new(bounds: AdvertBounds) -> AdvertPolicy {
        AdvertPolicy {
            bounds,
            expects_bulk: false,
            since_bulk: 0,
        }
    }

    /// Notes that packets have arrived, the largest of this size.
    #[inline]
    pub(crate) fn note_packets(&mut self, largest: usize) {
        if largest >= self.bounds.direct_bytes {
            self.expects_bulk = true;
            self.since_bulk = 0;
        } else {
            self.since_bulk += 1;
            self.expects_bulk &= self.since_bulk < BULK_MEMORY;
        }
    }

    /// Expects no bulk from now on: none has come for a while.
    pub(crate) fn expect_no_bulk(&mut self) {
        self.expects_bulk = false;
    }

    /// False: nothing is ever advertised, as for links, which have no landing buffers. No peer awaits a pass then.
    #[inline]
    pub(crate) fn may_advertise(&self) -> bool {
        self.bounds.adverts_max > 0
    }

    #[inline]
    pub(crate) fn advice(&self, now: Situation) -> Advice {
        if now.is_over || now.ring_holds_bytes {
            return Advice::Keep;
        }
        match self.bounds.mode {
            Mode::IndirectOnly => Advice::Whole(0),
            Mode::Dynamic if now.is_expected => {
                Advice::Expected(self.bounds.adverts_max.saturating_sub(now.advertised))
            }
            Mode::Dynamic if !(self.expects_bulk && self.lands_bulk()) => Advice::Whole(0),
            // In mode `direct_only` the peer sends nothing before it has an advertisement.
            Mode::Dynamic | Mode::DirectOnly => Advice::Whole(self.room(now)),
        }
    }

    /// False if all landing buffers together are much smaller than the ring: a peer that waits for them is slower than
    /// one that sends bulk through the ring, near and far (measured: `make bench-stream ARGS="--only half"`).
    fn lands_bulk(&self) -> bool {
        self.bounds.landing_area_bytes >= self.bounds.ring_bytes / 2
    }

    /// Number of further whole buffers to advertise.
    fn room(&self, now: Situation) -> usize {
        // Assume that the next transfers fill as much as the last one.
        let window = (self.bounds.window_bytes / now.last_bytes.max(1)).max(WINDOW_MIN);
        let window = window.min(self.bounds.adverts_max);
        let room = window.saturating_sub(now.advertised + now.landed);
        if now.landed == 0 || room >= TOGETHER.min(window / 2) {
            room
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{AdvertBounds, AdvertPolicy, Advice, BULK_MEMORY, Mode, Situation};

    const BOUNDS: AdvertBounds = AdvertBounds {
        mode: Mode::Dynamic,
        direct_bytes: 16 * 1024,
        adverts_max: 16,
        landing_area_bytes: 16 * MIB,
        ring_bytes: 512 * 1024,
        window_bytes: 8 * MIB,
    };
    const MIB: usize = 1 << 20;

    const QUIET: Situation = Situation {
        is_over: false,
        ring_holds_bytes: false,
        is_expected: false,
        advertised: 0,
        landed: 0,
        last_bytes: MIB,
    };

    /// The value with this change.
    fn with<T>(mut value: T, change: impl FnOnce(&mut T)) -> T {
        change(&mut value);
        value
    }

    /// A policy after packets of these sizes, each of which arrived alone.
    fn after(bounds: AdvertBounds, sizes: impl IntoIterator<Item = usize>) -> AdvertPolicy {
        let mut policy = AdvertPolicy::new(bounds);
        sizes.into_iter().for_each(|size| policy.note_packets(size));
        policy
    }

    #[test]
    fn small_packets_advertise_nothing() {
        assert_eq!(after(BOUNDS, []).advice(QUIET), Advice::Whole(0));
        let small = std::iter::repeat_n(BOUNDS.direct_bytes - 1, 1000);
        assert_eq!(after(BOUNDS, small).advice(QUIET), Advice::Whole(0));
    }

    #[test]
    fn one_bulk_packet_opens_the_window() {
        assert_eq!(after(BOUNDS, [BOUNDS.direct_bytes]).advice(QUIET), Advice::Whole(8));
    }

    #[test]
    fn bulk_is_expected_until_32_arrivals_bring_none() {
        let mut policy = after(BOUNDS, [MIB]);
        // Bulk again: the count begins with 0.
        for _ in 0..2 {
            (1..BULK_MEMORY).for_each(|_| policy.note_packets(100));
            assert_eq!(policy.advice(QUIET), Advice::Whole(8));
            policy.note_packets(100);
            assert_eq!(policy.advice(QUIET), Advice::Whole(0));
            policy.note_packets(MIB);
        }
    }

    #[test]
    fn the_window_follows_the_size_of_transfers_and_the_advertisements_that_the_peer_holds() {
        let policy = after(BOUNDS, [MIB]);
        let filled = |last_bytes| policy.advice(Situation { last_bytes, ..QUIET });
        assert_eq!(filled(MIB / 2), Advice::Whole(16));
        assert_eq!(filled(1), Advice::Whole(16), "the peer keeps 16 at most");
        assert_eq!(filled(0), Advice::Whole(16));
        assert_eq!(
            filled(usize::MAX),
            Advice::Whole(2),
            "one is written while another one is read"
        );
        for adverts_max in [1, 0] {
            let few = with(BOUNDS, |bounds| bounds.adverts_max = adverts_max);
            assert_eq!(after(few, [MIB]).advice(QUIET), Advice::Whole(adverts_max));
        }
    }

    #[test]
    fn buffers_come_together_while_there_is_more_to_read() {
        let policy = after(BOUNDS, [MIB]);
        let advice = |advertised, landed| {
            policy.advice(Situation {
                advertised,
                landed,
                ..QUIET
            })
        };
        assert_eq!(advice(7, 0), Advice::Whole(1));
        assert_eq!(advice(4, 1), Advice::Whole(0), "three are not worth a wake-up");
        assert_eq!(advice(3, 1), Advice::Whole(4));
        assert_eq!(advice(8, 8), Advice::Whole(0));
        assert_eq!(advice(20, 20), Advice::Whole(0), "the window has shrunk since");
    }

    #[test]
    fn expected_reads_get_all_advertisements_that_the_peer_holds_whatever_has_come() {
        let expected = with(QUIET, |now| (now.is_expected, now.advertised) = (true, 5));
        assert_eq!(after(BOUNDS, []).advice(expected), Advice::Expected(11));
        assert_eq!(after(BOUNDS, [MIB]).advice(expected), Advice::Expected(11));
    }

    #[test]
    fn nothing_is_advertised_behind_the_end_or_behind_bytes_in_the_ring() {
        let policy = after(BOUNDS, [MIB]);
        let over = Situation { is_over: true, ..QUIET };
        let behind = with(QUIET, |now| (now.ring_holds_bytes, now.is_expected) = (true, true));
        assert_eq!(policy.advice(over), Advice::Keep);
        assert_eq!(policy.advice(behind), Advice::Keep);
    }

    #[test]
    fn the_mode_decides_first() {
        let indirect = with(BOUNDS, |bounds| bounds.mode = Mode::IndirectOnly);
        assert_eq!(after(indirect, [MIB]).advice(QUIET), Advice::Whole(0));
        let direct = with(BOUNDS, |bounds| bounds.mode = Mode::DirectOnly);
        assert_eq!(
            after(direct, []).advice(QUIET),
            Advice::Whole(8),
            "nothing comes before"
        );
    }

    #[test]
    fn few_landing_buffers_beside_a_large_ring_are_not_advertised_for_bulk() {
        let half = with(BOUNDS, |bounds| bounds.landing_area_bytes = bounds.ring_bytes / 2);
        assert_eq!(after(half, [MIB]).advice(QUIET), Advice::Whole(8));
        let less = with(half, |bounds| bounds.landing_area_bytes -= 1);
        assert_eq!(after(less, [MIB]).advice(QUIET), Advice::Whole(0));
    }
}

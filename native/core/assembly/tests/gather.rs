//! A gather: ranges of its packets, and where a direct transfer ends.

use inet_rdma_assembly::Gather;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_range_of_a_gather_gives_the_bytes_of_that_range(
        packets in prop::collection::vec(prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..4), 0..10),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 20),
    ) {
        let (gather, all) = gather(&packets);
        prop_assert_eq!(gather.total(), all.len());
        prop_assert_eq!(gather.slices().concat(), all.clone());
        for (at, len) in cuts {
            let at = at.index(all.len() + 1);
            let len = len.index(all.len() - at + 1);
            let range = gather.range(at, len);
            prop_assert!(range.iter().all(|slice| !slice.is_empty()));
            prop_assert_eq!(range.concat(), &all[at..at + len]);
        }
    }

    /// Cuts a gather by `direct_prefix` as a sender does, and looks at every transfer.
    #[test]
    fn a_direct_transfer_is_one_bulk_packet_or_whole_small_ones(
        packets in prop::collection::vec(prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 1..4), 0..20),
        room in 1..80usize,
        bulk in 1..60usize,
        start in any::<prop::sample::Index>(),
    ) {
        let (gather, all) = gather(&packets);
        let mut at = start.index(all.len() + 1);
        while at < all.len() {
            let bytes = gather.direct_prefix(at, room, bulk);
            prop_assert!(bytes > 0 && bytes <= room, "{bytes} of {room} at {at}");
            let end = at + bytes;
            let inside: Vec<usize> = gather.ends().iter().copied().filter(|e| *e > at && *e <= end).collect();
            let head = gather.ends().iter().copied().find(|e| *e > at).expect("all packets end") - at;
            if inside.is_empty() {
                prop_assert!(head > room, "cut at {at}+{bytes} although its {head} bytes fit");
            } else {
                prop_assert_eq!(inside.last(), Some(&end), "ends inside of a packet");
                let first = (head >= bulk).then_some(1);
                prop_assert!(first.is_none_or(|one| inside.len() == one || inside[0] == end), "a bulk packet shares");
                let mut begin = at;
                for stop in inside {
                    prop_assert!(stop - begin < bulk || (begin == at && stop == end), "a bulk packet shares");
                    begin = stop;
                }
            }
            at = end;
        }
    }
}

fn gather(packets: &[Vec<Vec<u8>>]) -> (Gather<'_>, Vec<u8>) {
    let mut gather = Gather::with_capacity(0, packets.len());
    for packet in packets {
        for slice in packet {
            gather.push(slice);
        }
        gather.end_packet();
    }
    (gather, packets.concat().concat())
}

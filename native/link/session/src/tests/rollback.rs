//! Sides that are restored from a snapshot: clones of an earlier state, whose peer has gone on.

use super::Tested;
use super::packets::Packets;
use super::resume::{append, carry, input, pair, resume, suspend, transmitted};
use crate::{Event, Older, Turn, Violation};

/// One attempt of the dialer. What each side says of it: an error where the positions contradict each other.
fn attempt(dialer: &mut Tested, other: &mut Tested) -> [Result<bool, Option<Violation>>; 2] {
    let (attempt, ours, theirs) = suspend(dialer, other);
    [dialer.resume(attempt, theirs), other.resume(attempt, ours)]
}

fn refused(older: Older) -> Result<bool, Option<Violation>> {
    Err(Some(Violation::RolledBack(older)))
}

/// The side that refuses tells the other one over the connection of the attempt, and none of its packets.
fn tells(from: &mut Tested, to: &mut Tested) {
    append(from, b"kept back");
    from.refuse();
    let mut packets = Packets::default();
    let told = to.handle_input(&transmitted(from), &mut Turn::unbounded(), &mut packets);
    assert_eq!(told, Err(Violation::RolledBack(Older::Either)));
    assert!(packets.0.is_empty());
    assert!(transmitted(from).is_empty());
}

#[test]
fn a_restored_side_whose_peer_has_received_later_bytes_is_refused() {
    let [mut restored, mut peer] = pair();
    let mut before = restored.clone();
    append(&mut restored, b"after the snapshot");
    assert_eq!(carry(&mut restored, &mut peer).len(), 1);

    append(&mut before, b"another one of this length, or not");
    assert_eq!(attempt(&mut before, &mut peer), [refused(Older::Own), Ok(false)]);
    tells(&mut before, &mut peer);
}

#[test]
fn a_restored_side_that_has_acknowledged_later_bytes_is_refused() {
    let [mut restored, mut peer] = pair();
    let mut before = restored.clone();
    append(&mut peer, b"after the snapshot");
    carry(&mut peer, &mut restored);
    restored.acknowledge();
    carry(&mut restored, &mut peer);

    assert_eq!(attempt(&mut peer, &mut before), [refused(Older::Peer), Ok(false)]);
    tells(&mut peer, &mut before);
}

#[test]
fn a_restored_side_whose_peer_has_not_gone_on_resumes() {
    let [mut restored, mut peer] = pair();
    append(&mut restored, b"before");
    assert_eq!(carry(&mut restored, &mut peer), [b"before"]);
    let mut before = restored.clone();
    append(&mut restored, b"lost with the connection");

    append(&mut before, b"after");
    resume(&mut before, &mut peer);
    assert_eq!(carry(&mut before, &mut peer), [b"after"]);
}

#[test]
fn of_two_clones_one_resumes() {
    let [mut first, mut peer] = pair();
    let mut second = first.clone();
    let number = second.next_attempt();
    resume(&mut first, &mut peer);
    // Both begin with the same number, and the peer takes it once.
    assert!(!peer.accepts(number) && peer.suspend(number).is_none());

    // The second one has given its connection up as the first one's attempt came in between: its next number is newer.
    second.suspend(number).expect("newer");
    append(&mut first, b"progress");
    carry(&mut first, &mut peer);
    assert_eq!(attempt(&mut second, &mut peer)[0], refused(Older::Own));
}

/// Packets of both sides with their numbers, so that one that is doubled, lost or another one is seen.
fn exchange(sides: &mut [Tested; 2], sent: &mut [u8; 2], arrived: &mut [Vec<u8>; 2], choice: u64) {
    let (from, to) = ((choice & 1) as usize, (choice & 1 ^ 1) as usize);
    if choice & 2 != 0 {
        append(&mut sides[from], &[sent[from]]);
        sent[from] += 1;
    }
    if choice & 4 != 0 {
        sides[from].acknowledge();
    }
    if choice & 8 != 0 {
        let bytes = transmitted(&mut sides[from]);
        arrived[to].extend(input(&mut sides[to], &bytes).into_iter().flatten());
    }
}

#[test]
fn whatever_the_snapshot_holds_each_packet_arrives_once_and_in_order_or_the_sides_part() {
    let mut seed = 1_u64;
    let mut random = || {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        seed >> 33
    };
    let mut counts = [0, 0];
    for _ in 0..20_000 {
        let (mut sides, mut sent, mut arrived) = (pair(), [0, 0], [Vec::new(), Vec::new()]);
        for _ in 0..random() % 6 {
            exchange(&mut sides, &mut sent, &mut arrived, random());
        }
        let snapshot = (sides[0].clone(), sent[0], arrived[0].clone());
        for _ in 0..random() % 6 {
            exchange(&mut sides, &mut sent, &mut arrived, random());
        }
        (sides[0], sent[0], arrived[0]) = snapshot;
        let [initiator, acceptor] = &mut sides;
        let verdicts = match random() & 1 {
            0 => attempt(initiator, acceptor),
            _ => attempt(acceptor, initiator),
        };
        let has_parted = verdicts.iter().any(Result::is_err);
        counts[usize::from(has_parted)] += 1;
        if has_parted {
            continue;
        }
        // All that waits arrives, with one more packet of each side.
        for choice in [10, 11, 8, 9] {
            exchange(&mut sides, &mut sent, &mut arrived, choice);
        }
        for side in [0, 1] {
            let all: Vec<u8> = (0..sent[side]).collect();
            assert_eq!(arrived[side ^ 1], all);
            assert!(!matches!(sides[side].poll_event(), Some(Event::Ended)));
        }
    }
    assert!(counts.iter().all(|&count| count > 1000), "{counts:?}");
}

//! What samples say of loads that are too large to look at each packet.

mod support;
#[path = "support/zipf.rs"]
mod zipf;

use std::collections::HashMap;
use std::time::Duration;

use inet_rdma_envelope::{Direction, Entry, Operation, Party, Reader, SAMPLES, Sketch};
use support::*;

fn send(sender: u32, target: &str, bytes: usize, writer: &mut Writer) -> Vec<u8> {
    let control = Term::Tuple(vec![Term::Int(6), pid("a@host", sender), atom(""), atom(target)]);
    writer.packet(Form::Normal, &control, &["payload".into()], &vec![0; bytes])
}

/// A packet whose atoms the direction has in its cache.
fn known(sender: u32, bytes: usize, direction: &mut Direction) -> Vec<u8> {
    let mut writer = Writer::default();
    let first = send(sender, "sink", 10, &mut writer);
    assert_eq!(direction.packet([&first[..]], first.len(), clock), None);
    send(sender, "sink", bytes, &mut writer)
}

fn sender(entry: &Entry) -> u32 {
    match entry.key.sender {
        Party::Process { id, .. } => id,
        other => panic!("{other:?}"),
    }
}

/// Each entry's interval has its key's bytes, within the bounds; `wrong`: the number of intervals that need not.
fn check(sketch: &Sketch, exact: &HashMap<u32, f64>, total: f64, wrong: usize) {
    let entries = Vec::from_iter(sketch.entries());
    let is_within = |entry: &Entry| {
        let bytes = exact[&sender(entry)];
        entry.at_least <= bytes + 1.0 && bytes <= entry.at_most + 1.0
    };
    let outside = Vec::from_iter(entries.iter().filter(|entry| !is_within(entry)));
    assert!(outside.len() <= wrong, "{outside:?}");
    for entry in &entries {
        let above = entry.at_most - exact[&sender(entry)];
        assert!(above < total * (1.0 / 64.0 + 0.04), "{above} of {total}");
    }
}

/// Runs 30 s of this number of packets a second of 10,000 senders, by Zipf's law.
fn run(per_second: u32, exponent: f64) -> (Direction, HashMap<u32, f64>, f64) {
    let mut random = fastrand::Rng::with_seed(11);
    let zipf = zipf::Zipf::new(10_000, exponent);
    let (mut writer, mut direction) = (Writer::default(), Direction::new());
    let (mut exact, mut total, mut count) = (HashMap::new(), 0.0, 0);
    for second in 0..30 {
        for at in 0..per_second {
            let now = Duration::from_secs(second) + Duration::from_secs(1) * at / per_second;
            let sender = zipf.rank(&mut random);
            let packet = send(sender, "sink", random.usize(40..1500), &mut writer);
            *exact.entry(sender).or_insert(0.0) += packet.len() as f64;
            total += packet.len() as f64;
            count += 1;
            assert_eq!(direction.packet([&packet[..]], packet.len(), || now), None);
        }
    }
    let counted = direction.counts().of(Operation::RegSend);
    assert_eq!((counted.messages, counted.bytes as f64), (count, total));
    (direction, exact, total)
}

#[test]
fn the_heaviest_of_ten_thousand_senders_are_found() {
    let (direction, exact, total) = run(20_000, 1.2);
    check(direction.all(), &exact, total, 6);
    let top = Vec::from_iter(direction.all().top(3).iter().map(sender));
    assert_eq!(top, [0, 1, 2]);
    let top = Vec::from_iter(direction.recent().top(3).iter().map(sender));
    assert_eq!(top, [0, 1, 2]);
    assert!((direction.all().total() / total - 1.0).abs() < 0.02);
    assert!((direction.recent().total() / direction.recent_total() - 1.0).abs() < 0.04);
}

#[test]
fn a_load_below_the_bound_is_counted_exactly() {
    let (direction, exact, total) = run(SAMPLES as u32 - 1, 1.2);
    assert_eq!(direction.all().total(), total);
    check(direction.all(), &exact, total, 0);
}

/// The share of a sender is right although its messages come at fixed places of the stream.
#[test]
fn a_periodic_load_is_not_aliased() {
    for period in [2, 8, 64, 1000] {
        let mut direction = Direction::new();
        let packets = [0, 1].map(|sender| known(sender, 90, &mut direction));
        for index in 0..1_000_000_u64 {
            let now = Duration::from_micros(index * 20);
            let packet = &packets[usize::from(index % period != 0)];
            assert_eq!(direction.packet([&packet[..]], packet.len(), || now), None);
        }
        let total = direction.all().total();
        let first = direction
            .all()
            .entries()
            .find(|entry| sender(entry) == 0)
            .expect("an entry");
        let (share, middle) = (1.0 / period as f64, (first.at_least + first.at_most) / 2.0 / total);
        // 20 s of half the samples at least: three deviations.
        let deviation = (share / (20.0 * SAMPLES as f64 / 2.0)).sqrt();
        assert!(
            (middle - share).abs() < 3.0 * deviation,
            "{period}: {middle} {deviation}"
        );
    }
}

#[test]
fn no_more_packets_are_taken_than_the_bound() {
    let mut direction = Direction::new();
    let packet = known(1, 50, &mut direction);
    let mut asked = Vec::new();
    for second in 0..10 {
        let mut taken = 0;
        for at in 0..200_000_u32 {
            direction.packet([&packet[..]], packet.len(), || {
                taken += 1;
                Duration::from_secs(second) + Duration::from_micros(5 * u64::from(at))
            });
        }
        asked.push(taken);
    }
    // The clock is also asked for each 64th message.
    assert!(asked[0] < 200_000 / 64 + 10 * SAMPLES, "{asked:?}");
    assert!(
        asked[1..].iter().all(|asked| *asked < 200_000 / 64 + SAMPLES + 100),
        "{asked:?}"
    );
}

/// A load that has ended is not what is seen of the next, small one.
#[test]
fn a_small_load_after_a_large_one_is_seen() {
    let mut direction = Direction::new();
    let large = known(1, 1000, &mut direction);
    let small = known(2, 10, &mut direction);
    for index in 0..500_000 {
        direction.packet([&large[..]], large.len(), || Duration::from_micros(index * 10));
    }
    for index in 0..600 {
        direction.packet([&small[..]], small.len(), || {
            Duration::from_secs(6) + Duration::from_millis(index * 100)
        });
    }
    direction.handle_time(Duration::from_secs(66));
    let first = direction.recent().top(2).into_iter().find(|entry| sender(entry) == 2);
    let first = first.expect("an entry");
    assert!(first.at_least > 0.8 * 10.0 * 10.0 * small.len() as f64, "{first:?}");
}

#[test]
fn a_reader_that_is_off_counts_all_packets_as_other() {
    let mut direction = Direction::new();
    let packet = known(1, 50, &mut direction);
    let time = |index: u64| Duration::from_micros(index * 10);
    for index in 0..300_000 {
        direction.packet([&packet[..]], packet.len(), || time(index));
    }
    assert!(direction.packet([&[1_u8][..]], 1, || time(300_000)).is_some());
    direction.handle_time(time(600_000));
    let before = direction.counts().of(Operation::RegSend);
    for index in 600_000..900_000 {
        assert_eq!(direction.packet([&packet[..]], packet.len(), || time(index)), None);
        direction.handle_time(time(index));
    }
    assert_eq!(direction.counts().of(Operation::RegSend), before);
    assert_eq!(direction.counts().of(Operation::Other).messages, 300_001);
}

#[test]
fn a_look_at_the_first_bytes_gives_the_same_operation() {
    let mut random = fastrand::Rng::with_seed(3);
    let (mut writer, mut all, mut some) = (Writer::default(), Reader::new(), Reader::new());
    let mut looks = 0;
    for index in 0..50_000_u32 {
        let control = Term::Tuple(vec![
            Term::Int(6),
            pid(&format!("node{}@host", index % 3), index),
            atom(""),
            atom(&format!("target_{}", random.u32(0..60))),
        ]);
        let more = Vec::from_iter((0..random.u32(0..20)).map(|_| format!("atom_{}", random.u32(0..60))));
        let packet = writer.packet(Form::Normal, &control, &more, b"payload");
        let expected = all.packet([&packet[..]], packet.len()).expect("a packet");
        let (first, second) = packet.split_at(random.usize(0..packet.len()));
        match Reader::operation([first, second].into_iter().filter(|piece| !piece.is_empty())) {
            Some(operation) if random.bool() => {
                looks += 1;
                assert_eq!(operation, expected.key.operation);
            }
            _ => {
                let read = some.packet([first, second], packet.len()).expect("a packet");
                assert_eq!(described(&some, &read), described(&all, &expected));
            }
        }
    }
    assert!(looks > 5_000, "{looks}");
}

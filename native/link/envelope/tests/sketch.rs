//! The sketch against exact counts.

#[path = "support/zipf.rs"]
mod zipf;

use std::collections::HashMap;
use std::time::Duration;

use inet_rdma_envelope::{Direction, Key, Name, Operation, Party, RECENT, Sample, Sketch};

fn key(sender: u32) -> Key {
    let process = |id| Party::Process {
        node: Name::UNKNOWN,
        id,
        serial: 0,
        creation: 1,
    };
    Key {
        operation: Operation::SendSender,
        sender: process(sender),
        target: process(1),
    }
}

/// Fills a sketch and exact counts; `halved_after`: all bytes decay to a half after each of so many packets.
fn filled(exponent: f64, halved_after: usize) -> (Sketch, HashMap<u32, f64>, f64) {
    let mut random = fastrand::Rng::with_seed(7);
    let zipf = zipf::Zipf::new(10_000, exponent);
    let (mut sketch, mut exact, mut total) = (Sketch::new(), HashMap::new(), 0.0);
    for packet in 1..=300_000 {
        let (sender, bytes) = (zipf.rank(&mut random), random.usize(40..1500));
        sketch.add(&key(sender), Sample::exact(bytes));
        *exact.entry(sender).or_insert(0.0) += bytes as f64;
        total += bytes as f64;
        if packet % halved_after == 0 {
            sketch.decay(0.5);
            exact.values_mut().for_each(|bytes| *bytes *= 0.5);
            total *= 0.5;
        }
    }
    (sketch, exact, total)
}

#[test]
fn a_skewed_load_is_within_the_bound() {
    for (exponent, halved_after) in [(1.0, usize::MAX), (1.2, usize::MAX), (1.0, 20_000), (0.5, usize::MAX)] {
        let (sketch, exact, total) = filled(exponent, halved_after);
        assert!((sketch.total() - total).abs() < 1.0);
        let bound = total / 64.0;
        let id = |key: Key| match key.sender {
            Party::Process { id, .. } => id,
            other => panic!("{other:?}"),
        };
        let entries = HashMap::<u32, _>::from_iter(sketch.entries().map(|entry| (id(entry.key), entry)));
        for (sender, bytes) in &exact {
            match entries.get(sender) {
                Some(entry) => {
                    let rounding = 1e-6 * total;
                    assert!(entry.at_least <= bytes + rounding && *bytes <= entry.at_most + rounding);
                    assert!(entry.at_most - bytes <= bound + rounding);
                }
                None => assert!(*bytes <= bound),
            }
        }
        if exponent > 1.0 {
            // Beyond what is promised: the top ten, in their order.
            let top = Vec::from_iter(sketch.top(10).iter().map(|entry| id(entry.key)));
            assert_eq!(top, Vec::from_iter(0..10));
        }
    }
}

#[test]
fn a_key_of_a_few_is_counted_exactly() {
    let mut sketch = Sketch::<64>::new();
    for round in 0..1000 {
        for sender in 0..64 {
            sketch.add(&key(sender), Sample::exact(round + sender as usize));
        }
    }
    for entry in sketch.entries() {
        assert_eq!(entry.at_least, entry.at_most);
    }
    assert_eq!(sketch.top(64).len(), 64);
    assert_eq!(sketch.top(1)[0].key, key(63));
    sketch.decay(0.0);
    assert_eq!((sketch.total(), sketch.entries().count()), (0.0, 0));
}

#[test]
fn the_recent_bytes_of_a_constant_rate_are_that_of_ten_seconds() {
    let mut direction = Direction::new();
    let packet = [131, 68, 0, 104, 1, 97, 5];
    let per_second = 1000.0 * packet.len() as f64;
    for second in 0..100 {
        for _ in 0..1000 {
            direction.packet([&packet[..]], packet.len(), || Duration::from_secs(second));
        }
    }
    direction.handle_time(Duration::from_secs(100));
    for bytes in [direction.recent_total(), direction.recent().total()] {
        let rate = bytes / RECENT.as_secs_f64();
        assert!((rate / per_second - 1.0).abs() < 0.06, "{rate}");
    }
    assert_eq!(direction.all().total(), per_second * 100.0);
    direction.handle_time(Duration::from_secs(1100));
    assert_eq!(direction.recent().entries().count(), 0);
    assert!(direction.recent_total() < 1.0);
}

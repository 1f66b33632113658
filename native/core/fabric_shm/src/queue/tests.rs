use super::held::{Held, notice, pop};
use super::*;

#[test]
fn a_producer_is_ahead_until_the_consumer_has_taken_its_entries() {
    let held = Held::new(8);
    let (mut producer, consumer) = (Producer::new(8), Consumer::new());
    for bytes in 1..=3 {
        assert!(!producer.is_ahead(held.queue(), 3));
        producer.push(held.queue(), &notice(bytes)).expect("room");
    }
    assert!(producer.is_ahead(held.queue(), 3));
    pop(&consumer, held.queue(), |_, _| true).expect("an honest entry");
    assert!(producer.is_ahead(held.queue(), 3), "the consumer has not published it");
    consumer.release(held.queue());
    assert!(!producer.is_ahead(held.queue(), 3));
    assert!(producer.is_ahead(held.queue(), 2));
    held.header.head.0.store(9, Ordering::Relaxed);
    assert!(
        producer.is_ahead(held.queue(), 2),
        "a head beyond the tail counts for nothing"
    );
}

/// The place for bytes of entries in tests without such bytes.
fn nowhere(_address: u64, _bytes: &[u8]) -> bool {
    panic!("nothing was carried");
}

#[test]
fn bytes_come_out_as_they_went_in() {
    let held = Held::new(2);
    let (mut producer, consumer) = (Producer::new(2), Consumer::new());
    let bytes: Vec<u8> = (1..=INLINE_BYTES as u8).collect();
    for count in 1..=INLINE_BYTES {
        let (front, back) = bytes[..count].split_at(count / 2);
        let notice = Notice {
            direct: false,
            bytes: count as u32,
        };
        let address = u64::MAX - count as u64;
        let pushed = producer.push_inline(held.queue(), notice, address, &[front, back]);
        assert_eq!(pushed, Ok(false));
        let refused = pop(&consumer, held.queue(), |_, _| false);
        assert_eq!(
            refused,
            Err(Misbehaviour::EntryInline {
                bytes: count as u32,
                address
            })
        );
        let popped = pop(&consumer, held.queue(), |at, carried| {
            at == address && carried == &bytes[..count]
        });
        assert_eq!(popped, Ok(Some(Completion::Notice(notice))));
        consumer.release(held.queue());
    }
}

#[test]
fn items_come_out_as_they_went_in_over_many_turns() {
    let held = Held::new(4);
    let (mut producer, consumer) = (Producer::new(3), Consumer::new());
    for turn in 0..50u32 {
        let items = [
            notice(turn + 1),
            Completion::Control([turn as u8; CONTROL_BYTES]),
            notice(1_000_000 - turn),
        ];
        for item in &items {
            assert_eq!(producer.push(held.queue(), item), Ok(false));
        }
        assert_eq!(producer.push(held.queue(), &items[0]), Err(PushError::Full));
        for item in items {
            assert_eq!(pop(&consumer, held.queue(), nowhere), Ok(Some(item)));
        }
        assert_eq!(pop(&consumer, held.queue(), nowhere), Ok(None));
        consumer.release(held.queue());
    }
}

#[test]
fn slots_are_free_only_when_released() {
    let held = Held::new(1);
    let (mut producer, consumer) = (Producer::new(1), Consumer::new());
    assert_eq!(producer.push(held.queue(), &notice(1)), Ok(false));
    assert_eq!(pop(&consumer, held.queue(), nowhere), Ok(Some(notice(1))));
    assert_eq!(producer.push(held.queue(), &notice(2)), Err(PushError::Full));
    consumer.release(held.queue());
    assert_eq!(producer.push(held.queue(), &notice(2)), Ok(false));
}

#[test]
fn an_armed_consumer_is_rung_for_once() {
    let held = Held::new(4);
    let (mut producer, consumer) = (Producer::new(4), Consumer::new());
    assert_eq!(consumer.arm(held.queue()), Ok(true));
    assert_eq!(producer.push(held.queue(), &notice(1)), Ok(true));
    assert_eq!(producer.push(held.queue(), &notice(2)), Ok(false));
    assert_eq!(consumer.arm(held.queue()), Ok(false), "there is something to poll");
    assert_eq!(producer.push(held.queue(), &notice(3)), Ok(false), "nothing was armed");
    assert_eq!(pop(&consumer, held.queue(), nowhere), Ok(Some(notice(1))));
}

#[test]
fn a_head_that_cannot_be_is_named() {
    let held = Held::new(2);
    let mut producer = Producer::new(2);
    for _ in 0..2 {
        assert_eq!(producer.push(held.queue(), &notice(1)), Ok(false));
    }
    for said in [3, u64::MAX, 1 << 63] {
        held.header.head.0.store(said, Ordering::Relaxed);
        assert_eq!(producer.push(held.queue(), &notice(1)), Err(PushError::Head { said }));
    }
    held.header.head.0.store(2, Ordering::Relaxed);
    for _ in 0..2 {
        assert_eq!(producer.push(held.queue(), &notice(1)), Ok(false));
    }
    held.header.head.0.store(1, Ordering::Relaxed);
    assert_eq!(
        producer.push(held.queue(), &notice(1)),
        Err(PushError::Head { said: 1 }),
        "it went back"
    );
}

#[test]
fn a_stamp_that_cannot_be_is_named() {
    let held = Held::new(2);
    let (mut producer, consumer) = (Producer::new(2), Consumer::new());
    for said in [2, 3, u64::MAX] {
        held.entries[0].stamp.store(said, Ordering::Relaxed);
        assert_eq!(
            pop(&consumer, held.queue(), nowhere),
            Err(Misbehaviour::EntryStamp { said })
        );
        assert_eq!(consumer.arm(held.queue()), Err(Misbehaviour::EntryStamp { said }));
    }
    held.entries[0].stamp.store(0, Ordering::Relaxed);
    for _ in 0..2 {
        assert_eq!(producer.push(held.queue(), &notice(1)), Ok(false));
        assert_eq!(pop(&consumer, held.queue(), nowhere), Ok(Some(notice(1))));
    }
    held.entries[0].stamp.store(0, Ordering::Relaxed);
    assert_eq!(
        pop(&consumer, held.queue(), nowhere),
        Err(Misbehaviour::EntryStamp { said: 0 }),
        "the turn before left 1"
    );
}

#[test]
fn a_kind_that_cannot_be_is_named() {
    for said in [0, 4 << 32, u64::MAX, 1 << 32 | 1 << 31, 3 << 32 | 1 << 31] {
        let held = Held::new(2);
        held.entries[0].kind.store(said, Ordering::Relaxed);
        held.entries[0].stamp.store(1, Ordering::Relaxed);
        assert_eq!(
            pop(&Consumer::new(), held.queue(), nowhere),
            Err(Misbehaviour::EntryKind { said })
        );
    }
}

//! The queue under every interleaving and every outcome that the memory model allows (within loom's bounds).
//!
//! `make test-loom`

use loom::sync::{Arc, Mutex};
use loom::thread;

use super::held::{Held, notice, pop};
use super::*;

/// An event to sleep on, like an eventfd: a number that grows, and a wait until it exceeds a number seen before.
#[derive(Default)]
struct Signal {
    count: Mutex<u32>,
    changed: loom::sync::Condvar,
}

impl Signal {
    fn notify(&self) {
        *self.count.lock().unwrap() += 1;
        self.changed.notify_all();
    }

    fn seen(&self) -> u32 {
        *self.count.lock().unwrap()
    }

    fn sleep_past(&self, seen: u32) {
        let mut count = self.count.lock().unwrap();
        while *count == seen {
            count = self.changed.wait(count).unwrap();
        }
    }
}

/// One direction of a connection.
struct Line {
    held: Held,
    producer: Mutex<Producer>,
    /// The event on which the consumer sleeps.
    signal: Signal,
    /// Stands for the credits of the stream protocol, by which a sender learns of free slots. None: it never waits.
    room: Option<Signal>,
}

impl Line {
    fn new(slots: u16, room: Option<Signal>) -> Arc<Line> {
        let held = Held::new(usize::from(slots));
        Arc::new(Line {
            held,
            producer: Mutex::new(Producer::new(slots)),
            signal: Signal::default(),
            room,
        })
    }

    fn push(&self, item: &Completion) {
        loop {
            let seen = self.room.as_ref().map(Signal::seen);
            let pushed = self.producer.lock().unwrap().push(self.held.queue(), item);
            match (pushed, &self.room) {
                (Ok(false), _) => return,
                (Ok(true), _) => return self.signal.notify(),
                (Err(PushError::Full), Some(room)) => room.sleep_past(seen.unwrap()),
                (Err(other), _) => panic!("{other:?}"),
            }
        }
    }

    /// Takes `count` items, and sleeps while there is none. A lost wake-up is a deadlock, which loom reports.
    fn take(&self, count: usize) -> Vec<Completion> {
        let consumer = Consumer::new();
        let mut items = Vec::new();
        let queue = self.held.queue();
        let mut seen = 0;
        while items.len() < count {
            match pop(&consumer, queue, |_, _| false).unwrap() {
                Some(item) => {
                    consumer.release(queue);
                    if let Some(room) = &self.room {
                        room.notify();
                    }
                    items.push(item);
                }
                None => {
                    if consumer.arm(queue).unwrap() {
                        self.signal.sleep_past(seen);
                        seen = self.signal.seen();
                    }
                }
            }
        }
        assert_eq!(pop(&consumer, queue, |_, _| false), Ok(None), "an entry too many");
        items
    }
}

fn control(byte: u8) -> Completion {
    Completion::Control([byte; CONTROL_BYTES])
}

fn model(preemptions: usize, check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(check);
}

#[test]
fn loom_no_wakeup_and_no_notice_is_lost() {
    model(3, || {
        let line = Line::new(4, None);
        let producing = Arc::clone(&line);
        let thread = thread::spawn(move || (1..=3).for_each(|number| producing.push(&notice(number))));
        assert_eq!(line.take(3), [1, 2, 3].map(notice));
        thread.join().unwrap();
    });
}

/// A reader that reads before it was woken disarms, and arms again when it has read.
#[test]
fn loom_no_wakeup_is_lost_behind_a_disarm() {
    model(3, || {
        let line = Line::new(4, None);
        let producing = Arc::clone(&line);
        let thread = thread::spawn(move || (1..=2).for_each(|number| producing.push(&notice(number))));
        let consumer = Consumer::new();
        if consumer.arm(line.held.queue()).unwrap() {
            Consumer::disarm(line.held.queue());
        }
        assert_eq!(line.take(2), [1, 2].map(notice));
        thread.join().unwrap();
    });
}

#[test]
fn loom_entries_are_whole_when_the_queue_wraps() {
    model(2, || {
        let line = Line::new(1, Some(Signal::default()));
        let producing = Arc::clone(&line);
        let thread = thread::spawn(move || (1..=3).for_each(|byte| producing.push(&control(byte))));
        assert_eq!(line.take(3), [1, 2, 3].map(control));
        thread.join().unwrap();
    });
}

#[test]
fn loom_two_producing_threads_lose_and_double_nothing() {
    model(2, || {
        let line = Line::new(4, None);
        let threads = [1, 10].map(|first| {
            let producing = Arc::clone(&line);
            thread::spawn(move || {
                producing.push(&notice(first));
                producing.push(&notice(first + 1));
            })
        });
        let items = line.take(4);
        for pair in [[1, 2], [10, 11]].map(|pair| pair.map(notice)) {
            let seen: Vec<_> = items.iter().filter(|item| pair.contains(item)).copied().collect();
            assert_eq!(seen, pair, "in {items:?}");
        }
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

/// Only the queue's own words order the reuse of an entry: there is no signal of room, and the producer tries until it
/// succeeds.
#[test]
fn loom_an_entry_is_reused_only_after_it_was_read() {
    model(3, || {
        let line = Line::new(1, None);
        let producing = Arc::clone(&line);
        let thread = thread::spawn(move || {
            let mut producer = Producer::new(1);
            for bytes in 1..=2 {
                while producer.push(producing.held.queue(), &notice(bytes)) == Err(PushError::Full) {
                    thread::yield_now();
                }
            }
        });
        let consumer = Consumer::new();
        for bytes in 1..=2 {
            let item = loop {
                match pop(&consumer, line.held.queue(), |_, _| false).unwrap() {
                    Some(item) => break item,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(item, notice(bytes));
            consumer.release(line.held.queue());
        }
        thread.join().unwrap();
    });
}

/// The bytes of a transfer, written before the push without any atomics of their own.
#[test]
fn loom_a_transfers_bytes_are_visible_with_its_notice() {
    model(3, || {
        let shared = Arc::new((Line::new(1, None), loom::cell::UnsafeCell::new(0u64)));
        let producing = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            // SAFETY: the consumer does not read before the notice; loom reports it if that is wrong.
            producing.1.with_mut(|bytes| unsafe { *bytes = 42 });
            producing.0.push(&notice(8));
        });
        assert_eq!(shared.0.take(1), [notice(8)]);
        // SAFETY: the notice has come, so the producer no longer writes; loom reports it if that is wrong.
        assert_eq!(shared.1.with(|bytes| unsafe { *bytes }), 42);
        thread.join().unwrap();
    });
}

//! A ring of slots of `WORDS` words: many writers, and readers beside them.
//!
//! The first word of a slot is its stamp: 0 while the slot is empty or being written, else the sequence number of its
//! event, from 1 on. The low half of the second word is a checksum of all the rest. A slot can be torn: a writer that
//! is suspended until others have gone round the ring mixes its words with theirs. Readers find that by the checksum
//! and leave the slot out, as do readers of a file with a slot that a killed process has half written.

use std::ops::Range;

use crate::primitive::{AtomicU64, Ordering, fence};

/// A ring over borrowed words.
pub struct Ring<'a, const WORDS: usize> {
    words: &'a [AtomicU64],
    next: &'a AtomicU64,
}

impl<'a, const WORDS: usize> Ring<'a, WORDS> {
    /// `next`: the sequence number of the next event, at least 1. Words after the last whole slot are not used.
    pub fn new(words: &'a [AtomicU64], next: &'a AtomicU64) -> Self {
        const { assert!(WORDS >= 3, "a stamp, a checksum, and something that they are of") };
        Ring { words, next }
    }

    fn slots(&self) -> usize {
        self.words.len() / WORDS
    }

    /// The number of the slot of the event with this number. None: the ring has no slot.
    pub fn place(&self, sequence: u64) -> Option<usize> {
        Some(sequence.checked_rem(self.slots() as u64)? as usize)
    }

    fn slot(&self, sequence: u64) -> Option<&'a [AtomicU64]> {
        let first = self.place(sequence)? * WORDS;
        self.words.get(first..first + WORDS)
    }

    /// The numbers of the events that may still be in the ring.
    pub fn kept(&self) -> Range<u64> {
        let end = self.next.load(Ordering::Relaxed);
        end.saturating_sub(self.slots() as u64).max(1)..end
    }

    /// Writes an event in place of the oldest one. Word 0 becomes the stamp, the low half of word 1 the checksum. Does
    /// nothing if the ring has no slot.
    pub fn append(&self, event: &[u64; WORDS]) {
        // Relaxed: the number orders no other access.
        let sequence = self.next.fetch_add(1, Ordering::Relaxed);
        let Some(slot) = self.slot(sequence) else { return };
        let mut event = *event;
        event[0] = sequence;
        event[1] = event[1] >> 32 << 32 | u64::from(checksum(&event));
        // A reader that sees one of the new words below also sees stamp 0, or a later stamp.
        slot[0].store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        for (word, value) in slot.iter().zip(event).skip(1) {
            word.store(value, Ordering::Relaxed);
        }
        // Release: a reader that sees the stamp sees the words.
        slot[0].store(sequence, Ordering::Release);
    }

    /// The event with this number. None: it is not written yet, overwritten, or torn.
    pub fn read(&self, sequence: u64) -> Option<[u64; WORDS]> {
        let slot = self.slot(sequence)?;
        // Acquire: the words read below are those of this stamp, or later ones.
        if sequence == 0 || slot[0].load(Ordering::Acquire) != sequence {
            return None;
        }
        let mut event = [sequence; WORDS];
        for (value, word) in event.iter_mut().zip(slot).skip(1) {
            *value = word.load(Ordering::Relaxed);
        }
        // If a word read above is a later one, the load of the stamp below sees another stamp.
        fence(Ordering::Acquire);
        let is_whole = slot[0].load(Ordering::Relaxed) == sequence && event[1] as u32 == checksum(&event);
        is_whole.then_some(event)
    }

    /// All whole events of the ring, newest first.
    pub fn newest_first(&self) -> impl Iterator<Item = [u64; WORDS]> + use<'a, '_, WORDS> {
        self.kept().rev().filter_map(|sequence| self.read(sequence))
    }
}

/// CRC-32 of an event's bytes, except for the bytes of the checksum.
fn checksum<const WORDS: usize>(event: &[u64; WORDS]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&event[0].to_le_bytes());
    hasher.update(&((event[1] >> 32) as u32).to_le_bytes());
    for word in &event[2..] {
        hasher.update(&word.to_le_bytes());
    }
    hasher.finalize()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn words(count: usize) -> Vec<AtomicU64> {
        (0..count).map(|_| AtomicU64::new(0)).collect()
    }

    fn payloads(ring: &Ring<'_, 4>) -> Vec<u64> {
        ring.newest_first().map(|event| event[3]).collect()
    }

    #[test]
    fn the_newest_events_stay() {
        let (memory, next) = (words(3 * 4), AtomicU64::new(1));
        let ring = Ring::<4>::new(&memory, &next);
        assert!(payloads(&ring).is_empty());
        for payload in 1..=5 {
            ring.append(&[0, 7 << 32, 0, payload]);
        }
        assert_eq!(payloads(&ring), [5, 4, 3]);
        assert_eq!(ring.read(5).map(|event| (event[0], event[1] >> 32)), Some((5, 7)));
        assert_eq!((ring.read(2), ring.read(0), ring.read(6)), (None, None, None));
    }

    #[test]
    fn torn_events_are_left_out() {
        let (memory, next) = (words(3 * 4), AtomicU64::new(1));
        let ring = Ring::<4>::new(&memory, &next);
        for payload in 1..=3 {
            ring.append(&[0, 0, 0, payload]);
        }
        memory[4 + 3].store(9, Ordering::Relaxed);
        assert_eq!(payloads(&ring), [3, 2], "its checksum is wrong");
        memory[0].store(0, Ordering::Relaxed);
        assert_eq!(payloads(&ring), [2], "it has no stamp");
    }

    #[test]
    fn a_ring_without_a_whole_slot_takes_nothing() {
        let (memory, next) = (words(3), AtomicU64::new(1));
        let ring = Ring::<4>::new(&memory, &next);
        ring.append(&[0, 0, 0, 1]);
        assert!(payloads(&ring).is_empty());
    }

    #[test]
    fn writers_and_a_reader_of_a_small_ring_see_whole_events_alone() {
        let (memory, next) = (words(2 * 4), AtomicU64::new(1));
        std::thread::scope(|scope| {
            for writer in 0..3_u64 {
                let (memory, next) = (&memory, &next);
                scope.spawn(move || {
                    let ring = Ring::<4>::new(memory, next);
                    for event in 0..20_000 {
                        ring.append(&[0, 0, writer << 32 | event, !(writer << 32 | event)]);
                    }
                });
            }
            let ring = Ring::<4>::new(&memory, &next);
            while next.load(Ordering::Relaxed) <= 60_000 {
                for event in ring.newest_first() {
                    assert_eq!(event[2], !event[3]);
                }
            }
        });
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// Two writers in one slot, and a reader beside them. Every order with three preemptions; all of them take hours.
    #[test]
    fn loom_a_reader_sees_whole_events_alone() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let memory: Arc<Vec<AtomicU64>> = Arc::new((0..3).map(|_| AtomicU64::new(0)).collect());
            let next = Arc::new(AtomicU64::new(1));
            let writers: Vec<_> = (1..=2_u64)
                .map(|payload| {
                    let (memory, next) = (Arc::clone(&memory), Arc::clone(&next));
                    thread::spawn(move || Ring::<3>::new(&memory, &next).append(&[0, payload << 32, payload]))
                })
                .collect();
            let ring = Ring::<3>::new(&memory, &next);
            for sequence in 1..=2 {
                if let Some(event) = ring.read(sequence) {
                    assert_eq!(event[1] >> 32, event[2]);
                }
            }
            for writer in writers {
                writer.join().expect("it does not panic");
            }
        });
    }

    /// The thread that writes the file sleeps until an appender wakes it: no event stays unseen.
    #[test]
    fn loom_a_sleeping_reader_sees_what_it_is_woken_for() {
        loom::model(|| {
            let memory: Arc<Vec<AtomicU64>> = Arc::new((0..6).map(|_| AtomicU64::new(0)).collect());
            let next = Arc::new(AtomicU64::new(1));
            let reader = {
                let (memory, next) = (Arc::clone(&memory), Arc::clone(&next));
                thread::spawn(move || {
                    let ring = Ring::<3>::new(&memory, &next);
                    while ring.newest_first().count() < 2 {
                        thread::park();
                    }
                })
            };
            let wake = reader.thread().clone();
            let writer = {
                let (memory, next, wake) = (Arc::clone(&memory), Arc::clone(&next), wake.clone());
                thread::spawn(move || {
                    Ring::<3>::new(&memory, &next).append(&[0, 0, 1]);
                    wake.unpark();
                })
            };
            Ring::<3>::new(&memory, &next).append(&[0, 0, 2]);
            wake.unpark();
            writer.join().expect("it does not panic");
            reader.join().expect("it does not panic");
        });
    }

    /// One writer in a slot of its own: its event is there when it is done.
    #[test]
    fn loom_an_event_is_there_once_it_is_written() {
        loom::model(|| {
            let memory: Arc<Vec<AtomicU64>> = Arc::new((0..6).map(|_| AtomicU64::new(0)).collect());
            let next = Arc::new(AtomicU64::new(1));
            let writer = {
                let (memory, next) = (Arc::clone(&memory), Arc::clone(&next));
                thread::spawn(move || Ring::<3>::new(&memory, &next).append(&[0, 0, 1]))
            };
            let ring = Ring::<3>::new(&memory, &next);
            ring.append(&[0, 0, 2]);
            writer.join().expect("it does not panic");
            assert_eq!(ring.newest_first().count(), 2);
        });
    }
}

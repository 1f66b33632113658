//! The receive queue in shared memory: one producing process, one consuming process that owns the memory.
//!
//! Every entry carries a stamp, so the consumer that polls reads nothing but the next entry's own cache line, and the
//! producer shares no tail. Position `p` counts entries from 0 and never wraps (64 bit); it lives in entry `p mod
//! entries` and is complete when that entry's stamp is `p + 1`. Fresh memory is all zeros: stamp 0 is "never written".
//!
//! The peer may write every word here. All words are atomics, so a torn or racing write gives a wrong value and never
//! undefined behaviour; each value is checked before it is used.

use inet_rdma_fabric::{Completion, Misbehaviour};
use inet_rdma_stream::{CONTROL_BYTES, Notice};

use crate::prefetch::prefetch_for_write;
use crate::primitive::{AtomicU32, AtomicU64, Ordering, Witness};

#[cfg(test)]
mod held;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

/// A word alone on its cache line, and alone on the pair of lines that x86-64 prefetches together.
#[repr(C, align(128))]
pub(crate) struct Apart<T>(pub(crate) T);

/// The words that both sides share, beside the entries.
#[repr(C)]
pub(crate) struct QueueHeader {
    /// How many entries the consumer has taken. The consumer stores it with Release after it has copied the entries
    /// out; the producer loads it with Acquire before it writes an entry again. So the copies happen before the
    /// overwriting. The producer loads it only when the queue is full by the value that it remembers.
    head: Apart<AtomicU64>,
    /// 1: the consumer is about to sleep and wants to be woken. The consumer swaps 1 in, then looks at the stamp; the
    /// producer stores the stamp, then swaps 0 in. All writes of this word are AcqRel swaps, so each swap acquires the
    /// stores before all earlier swaps. If the consumer's swap comes later, it has acquired the stamp and finds the
    /// entry. If the producer's swap comes later, it reads the 1, unless an earlier swap took it: the party that swaps
    /// the 1 out must wake the consumer; to disarm is a swap, too. A swap costs less than the fence that a store and a
    /// load would need here, and does not take the cache line from the consumer more often, as the consumer does not
    /// touch it while it polls.
    armed: Apart<AtomicU32>,
}

/// One cache line: one notice, with the bytes of its transfer if they are few, or one control message.
#[repr(C, align(64))]
pub(crate) struct Entry {
    /// Position + 1 of the entry, stored with Release after `kind` and `words`, loaded with Acquire before them. The
    /// same Release publishes the bytes of the transfer that a notice announces: they were written before it by the
    /// same thread.
    stamp: AtomicU64,
    /// High half: [`KIND_NOTICE`], [`KIND_INLINE`] or [`KIND_CONTROL`]. Low half: the notice.
    kind: AtomicU64,
    /// The control message, or the address of a transfer and its bytes; little-endian. Relaxed: ordered by `stamp` and
    /// `head`.
    words: [AtomicU64; WORDS],
    whole: Witness,
}

const WORDS: usize = 6;
const KIND_NOTICE: u64 = 1;
const KIND_CONTROL: u64 = 2;
/// A notice with the bytes of its transfer, which the consumer copies to their place. This saves one cache line that
/// would move between processors.
const KIND_INLINE: u64 = 3;

/// Maximum number of a transfer's bytes in an entry.
pub(crate) const INLINE_BYTES: usize = 8 * (WORDS - 1);

#[cfg(not(loom))]
const _: () = {
    assert!(CONTROL_BYTES % 8 == 0 && CONTROL_BYTES <= 8 * WORDS);
    assert!(size_of::<Entry>() == 64 && align_of::<Entry>() == 64);
    assert!(size_of::<QueueHeader>() == 256 && align_of::<QueueHeader>() == 128);
};

/// The shared part of one queue. `entries.len()` is a power of two.
#[derive(Clone, Copy)]
pub(crate) struct Queue<'a> {
    pub(crate) header: &'a QueueHeader,
    pub(crate) entries: &'a [Entry],
}

impl<'a> Queue<'a> {
    fn entry(self, position: u64) -> &'a Entry {
        // The length is a power of two, so the mask is below it.
        &self.entries[position as usize & (self.entries.len() - 1)]
    }
}

/// The reason why an entry could not be pushed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PushError {
    /// As many entries are under way as the peer has slots.
    Full,
    /// The peer's head is not between its earlier value and the number of pushed entries.
    Head {
        /// The value that the peer wrote.
        said: u64,
    },
}

/// The producing end. One per queue; threads that share it take turns by a mutex of this process.
#[derive(Debug)]
pub(crate) struct Producer {
    tail: u64,
    /// The consumer's head when last read; never more than `tail`.
    head: u64,
    /// Maximum number of entries under way; at most the number of entries.
    slots: u64,
}

impl Producer {
    pub(crate) fn new(slots: u16) -> Producer {
        Producer {
            tail: 0,
            head: 0,
            slots: u64::from(slots),
        }
    }

    /// Puts an item at the end. Ok(true): the consumer sleeps, wake it.
    pub(crate) fn push(&mut self, queue: Queue<'_>, item: &Completion) -> Result<bool, PushError> {
        let entry = self.next_entry(queue)?;
        match item {
            Completion::Notice(notice) => {
                let word = u64::from(notice.emit());
                entry.kind.store(KIND_NOTICE << 32 | word, Ordering::Relaxed);
            }
            Completion::Control(bytes) => {
                entry.kind.store(KIND_CONTROL << 32, Ordering::Relaxed);
                store(&entry.words, bytes);
            }
        }
        Ok(self.publish(queue, entry))
    }

    /// As [`Self::push`], for a notice and the bytes of its transfer, at most [`INLINE_BYTES`], for the place
    /// `address`.
    pub(crate) fn push_inline(
        &mut self,
        queue: Queue<'_>,
        notice: Notice,
        address: u64,
        source: &[&[u8]],
    ) -> Result<bool, PushError> {
        let entry = self.next_entry(queue)?;
        let mut bytes = [0; INLINE_BYTES];
        let mut at = 0;
        for piece in source {
            bytes[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
        let word = u64::from(notice.emit());
        entry.kind.store(KIND_INLINE << 32 | word, Ordering::Relaxed);
        entry.words[0].store(address, Ordering::Relaxed);
        store(&entry.words[1..], &bytes);
        Ok(self.publish(queue, entry))
    }

    fn next_entry<'a>(&mut self, queue: Queue<'a>) -> Result<&'a Entry, PushError> {
        if self.tail - self.head >= self.slots {
            self.look_at_head(queue)?;
        }
        let entry = queue.entry(self.tail);
        entry.whole.writing();
        Ok(entry)
    }

    /// Publishes an entry. True: the consumer sleeps.
    fn publish(&mut self, queue: Queue<'_>, entry: &Entry) -> bool {
        self.tail += 1;
        entry.stamp.store(self.tail, Ordering::Release);
        prefetch_for_write::<_, 0>(queue.entry(self.tail));
        // Pairs with the swap in `Consumer::arm`; see `QueueHeader::armed`.
        queue.header.armed.0.swap(0, Ordering::AcqRel) == 1
    }

    /// True if the consumer has not taken this number of entries. A wrong head of the peer's counts for nothing here:
    /// the next push finds it.
    pub(crate) fn is_ahead(&mut self, queue: Queue<'_>, entries: u64) -> bool {
        if self.tail - self.head < entries {
            return false;
        }
        let _full_or_wrong = self.look_at_head(queue);
        self.tail - self.head >= entries
    }

    fn look_at_head(&mut self, queue: Queue<'_>) -> Result<(), PushError> {
        let said = queue.header.head.0.load(Ordering::Acquire);
        if said < self.head || said > self.tail {
            return Err(PushError::Head { said });
        }
        self.head = said;
        if self.tail - self.head >= self.slots {
            Err(PushError::Full)
        } else {
            Ok(())
        }
    }
}

/// The consuming end. One per queue; threads that share it take turns, and only [`Consumer::is_quiet`] may be called
/// out of turn.
#[derive(Debug)]
pub(crate) struct Consumer {
    /// Position of the next entry to take. Relaxed: the lock by which the threads take turns orders it.
    next: AtomicU64,
}

impl Consumer {
    pub(crate) fn new() -> Consumer {
        Consumer {
            next: AtomicU64::new(0),
        }
    }

    /// Takes the oldest item into `out`. False: there is none. Err: no honest producer writes such an entry. Call
    /// [`Self::release`] after a batch, so that the producer may use the entries again. `place` gets the bytes of an
    /// entry, with their address, and returns false if they must not go there.
    #[inline]
    pub(crate) fn pop(
        &self,
        queue: Queue<'_>,
        out: &mut Completion,
        place: impl FnOnce(u64, &[u8]) -> bool,
    ) -> Result<bool, Misbehaviour> {
        let next = self.next.load(Ordering::Relaxed);
        let Some(entry) = ready_entry(queue, next)? else {
            return Ok(false);
        };
        entry.whole.reading();
        let kind = entry.kind.load(Ordering::Relaxed);
        match kind >> 32 {
            KIND_NOTICE => *out = Completion::Notice(notice_of(kind)?),
            KIND_INLINE => {
                let notice = notice_of(kind)?;
                let address = entry.words[0].load(Ordering::Relaxed);
                let mut bytes = [0; INLINE_BYTES];
                load(&entry.words[1..], &mut bytes);
                let carried = bytes.get(..notice.bytes as usize);
                if !carried.is_some_and(|carried| place(address, carried)) {
                    let bytes = notice.bytes;
                    return Err(Misbehaviour::EntryInline { bytes, address });
                }
                *out = Completion::Notice(notice);
            }
            KIND_CONTROL => {
                let mut bytes = [0; CONTROL_BYTES];
                load(&entry.words, &mut bytes);
                *out = Completion::Control(bytes);
            }
            _ => return Err(Misbehaviour::EntryKind { said: kind }),
        }
        self.next.store(next + 1, Ordering::Relaxed);
        Ok(true)
    }

    /// Gives the entries taken so far back to the producer.
    pub(crate) fn release(&self, queue: Queue<'_>) {
        let next = self.next.load(Ordering::Relaxed);
        queue.header.head.0.store(next, Ordering::Release);
    }

    /// Asks the producer for a wake-up at the next push. False: there is an entry already, and nothing is armed; a
    /// wake-up may still come, if the producer was about to send it.
    pub(crate) fn arm(&self, queue: Queue<'_>) -> Result<bool, Misbehaviour> {
        // Pairs with the swap in `Producer::publish`; see `QueueHeader::armed`.
        queue.header.armed.0.swap(1, Ordering::AcqRel);
        let ready = ready_entry(queue, self.next.load(Ordering::Relaxed)).map(|entry| entry.is_some());
        if ready != Ok(false) {
            Self::disarm(queue);
        }
        ready.map(|ready| !ready)
    }

    /// Takes the request for a wake-up back. One may still come, if the producer was about to send it.
    pub(crate) fn disarm(queue: Queue<'_>) {
        queue.header.armed.0.swap(0, Ordering::AcqRel);
    }

    /// True only if the queue is empty. May return false spuriously while another thread takes an entry.
    pub(crate) fn is_quiet(&self, queue: Queue<'_>) -> bool {
        matches!(ready_entry(queue, self.next.load(Ordering::Relaxed)), Ok(None))
    }
}

/// Stores `bytes`, a multiple of 8, in the first of `words`.
fn store(words: &[AtomicU64], bytes: &[u8]) {
    for (word, bytes) in words.iter().zip(bytes.chunks_exact(8)) {
        let mut eight = [0; 8];
        eight.copy_from_slice(bytes);
        word.store(u64::from_le_bytes(eight), Ordering::Relaxed);
    }
}

/// The reverse of [`store`].
fn load(words: &[AtomicU64], bytes: &mut [u8]) {
    for (word, bytes) in words.iter().zip(bytes.chunks_exact_mut(8)) {
        bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
    }
}

fn notice_of(kind: u64) -> Result<Notice, Misbehaviour> {
    Notice::parse(kind as u32).map_err(|_| Misbehaviour::EntryKind { said: kind })
}

/// The entry at position `next`, if it is complete.
fn ready_entry(queue: Queue<'_>, next: u64) -> Result<Option<&Entry>, Misbehaviour> {
    let entry = queue.entry(next);
    let said = entry.stamp.load(Ordering::Acquire);
    if said == next + 1 {
        return Ok(Some(entry));
    }
    // The stamp of the entry's previous turn; 0 in the first turn: an untouched entry.
    let before = (next + 1).saturating_sub(queue.entries.len() as u64);
    if said == before {
        Ok(None)
    } else {
        Err(Misbehaviour::EntryStamp { said })
    }
}

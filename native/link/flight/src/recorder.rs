//! The events in memory.

use std::sync::Arc;

use parking_lot::RwLock;
use zerocopy::FromZeros;

use crate::file::Slots;
use crate::primitive::{AtomicBool, AtomicU64, Ordering};
use crate::ring::Ring;
use crate::slot::{self, Event, SLOT_BYTES, SLOT_WORDS};

/// The last events of a node.
pub struct Recorder {
    /// The ring of events, then the ring of ticks. Pages of it that no event has reached are not there yet.
    words: Box<[AtomicU64]>,
    pub(crate) slots: Slots,
    /// The sequence numbers of the next event and of the next tick.
    next: [AtomicU64; 2],
    has_link: AtomicBool,
    node: RwLock<Arc<str>>,
}

impl Recorder {
    /// For this node, with a file of `bytes` bytes at most. Without memory for the events it keeps none.
    pub fn new(node: &str, bytes: u64) -> Recorder {
        let slots = Slots::of(bytes);
        let words = <[AtomicU64]>::new_box_zeroed_with_elems(slots.all() * SLOT_WORDS);
        Recorder {
            words: words.unwrap_or_default(),
            slots,
            next: [AtomicU64::new(1), AtomicU64::new(1)],
            has_link: AtomicBool::new(false),
            node: RwLock::new(node.into()),
        }
    }

    /// The name of the node.
    pub fn node(&self) -> Arc<str> {
        Arc::clone(&self.node.read())
    }

    /// The node has another name from now on; so has its file, after the next write.
    pub fn rename(&self, node: &str) {
        *self.node.write() = node.into();
    }

    /// Appends an event in place of the oldest one of its ring. True: the file has to be written.
    pub fn append(&self, event: &Event<'_>) -> bool {
        let words = event.encode();
        self.rings()[usize::from(event.is_tick)].append(&words);
        // Relaxed: the writer that is woken after this sees it, and one that runs comes again. The lock is taken for
        // the few events before that of the first link.
        if !self.has_link() && event.node != &**self.node.read() {
            self.has_link.store(true, Ordering::Relaxed);
        }
        self.has_link()
    }

    /// True once there was an event of a link. Events of this node alone make no file.
    pub fn has_link(&self) -> bool {
        self.has_link.load(Ordering::Relaxed)
    }

    /// The newest `most` events of a node, newest first, as the bytes of their slots. Reads each slot once.
    pub fn recent(&self, node: &str, most: usize) -> Vec<[u8; SLOT_BYTES]> {
        let [events, _ticks] = self.rings();
        let of_node = events.newest_first().filter(|words| slot::is_of(words, node));
        of_node.take(most).map(|words| slot::bytes(&words)).collect()
    }

    /// The rings of events and of ticks.
    pub(crate) fn rings(&self) -> [Ring<'_, SLOT_WORDS>; 2] {
        let end = self.words.len().min(self.slots.events * SLOT_WORDS);
        let (events, ticks) = self.words.split_at(end);
        [Ring::new(events, &self.next[0]), Ring::new(ticks, &self.next[1])]
    }
}

//! Fragmented messages under way.

use crate::key::Key;

/// Number of fragmented messages that a [`Reader`](crate::Reader) follows at a time.
pub const SEQUENCES: usize = 36;
/// A sequence that has had no fragment while this number of fragments of others came gives its place to a new one: its
/// sender has ended in the middle. They are 256 MiB, as a VM cuts fragments of 64 KiB.
const STALE_FRAGMENTS: u32 = 4096;

#[derive(Clone, Copy)]
struct Sequence {
    id: u64,
    key: Key,
    /// [`Sequences::fragments`] at its last fragment.
    last: u32,
}

/// The first `count` of `all` are under way.
pub struct Sequences {
    all: [Sequence; SEQUENCES],
    count: usize,
    /// Number of fragments so far; wraps.
    fragments: u32,
}

impl Sequences {
    pub fn new() -> Self {
        let none = Sequence {
            id: 0,
            key: Key::OTHER,
            last: 0,
        };
        Sequences {
            all: [none; SEQUENCES],
            count: 0,
            fragments: 0,
        }
    }

    /// The first fragment of a message that has more.
    pub fn begin(&mut self, id: u64, key: Key) {
        let fragments = self.next_fragment();
        let under_way = &self.all[..self.count];
        let is_stale = |sequence: &Sequence| fragments.wrapping_sub(sequence.last) > STALE_FRAGMENTS;
        let place = under_way
            .iter()
            .position(|sequence| sequence.id == id)
            .or((self.count < SEQUENCES).then_some(self.count))
            .or_else(|| under_way.iter().position(is_stale));
        if let Some(place) = place {
            self.all[place] = Sequence {
                id,
                key,
                last: fragments,
            };
            self.count = self.count.max(place + 1);
        }
    }

    /// A further fragment. The key of its message; [`Key::OTHER`] if that is not known.
    pub fn go_on(&mut self, id: u64, is_last: bool) -> Key {
        let fragments = self.next_fragment();
        let Some(place) = self.all[..self.count].iter().position(|sequence| sequence.id == id) else {
            return Key::OTHER;
        };
        let sequence = &mut self.all[place];
        sequence.last = fragments;
        let key = sequence.key;
        if is_last {
            self.count -= 1;
            self.all.swap(place, self.count);
        }
        key
    }

    fn next_fragment(&mut self) -> u32 {
        self.fragments = self.fragments.wrapping_add(1);
        self.fragments
    }
}

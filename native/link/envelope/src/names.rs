//! The texts of atoms, in a fixed room.

/// Number of names that a [`Reader`](crate::Reader) knows at a time.
pub const NAMES: usize = 254;
/// Bytes of all names together, with two more for each.
pub const NAMES_BYTES: usize = 2432;
/// Names above this size are [`Name::UNKNOWN`].
pub const NAME_BYTES_MAX: usize = 255;

/// Before each text: its slot and its size.
const RECORD_BYTES: usize = 2;

/// A slot's number: 1 to [`NAMES`].
pub type Slot = u8;
/// No name.
pub const EMPTY: Slot = 0;
/// A name that is not kept, or no longer.
pub const LOST: Slot = u8::MAX;

/// A name that a [`Reader`](crate::Reader) gives; its [`text`](crate::Reader::text) is known as long as the reader
/// keeps it. The generation tells names of the same slot apart; it repeats after 65,536 names of that slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Name {
    slot: Slot,
    generation: [u8; 2],
}

impl Name {
    /// The name has been forgotten, or is too large.
    pub const UNKNOWN: Name = Name {
        slot: LOST,
        generation: [0; 2],
    };

    pub(crate) fn word(self) -> u32 {
        let [high, low] = self.generation;
        u32::from_be_bytes([0, self.slot, high, low])
    }
}

/// The slots that a collection has freed.
pub type Freed = [bool; 256];

/// The names, each with the number of its recent uses in control messages.
pub struct Names {
    /// 0: the slot is free.
    hashes: [u16; NAMES],
    /// Where the slot's record begins.
    offsets: [u16; NAMES],
    generations: [u16; NAMES],
    uses: [u8; NAMES],
    count: usize,
    filled: usize,
    /// Records without gaps, as far as `filled`.
    records: [u8; NAMES_BYTES],
}

impl Names {
    pub fn new() -> Self {
        Names {
            hashes: [0; NAMES],
            offsets: [0; NAMES],
            generations: [0; NAMES],
            uses: [0; NAMES],
            count: 0,
            filled: 0,
            records: [0; NAMES_BYTES],
        }
    }

    /// The slot of the text, which is entered if it is new; [`LOST`] if it is too large. None: there is no room before
    /// a [collection](Self::collect).
    pub fn enter(&mut self, text: &[u8]) -> Option<Slot> {
        let Ok(bytes) = u8::try_from(text.len()) else {
            return Some(LOST);
        };
        let hash = hash(text);
        if let Some(found) = self.find(hash, text) {
            return Some(found);
        }
        let end = self.filled + RECORD_BYTES + text.len();
        let room = self.records.get_mut(self.filled..end)?;
        let index = self.hashes.iter().position(|&hash| hash == 0)?;
        let slot = slot_of(index);
        room[..RECORD_BYTES].copy_from_slice(&[slot, bytes]);
        room[RECORD_BYTES..].copy_from_slice(text);
        self.hashes[index] = hash;
        self.offsets[index] = self.filled as u16;
        self.generations[index] = self.generations[index].wrapping_add(1);
        self.uses[index] = 0;
        self.filled = end;
        self.count += 1;
        Some(slot)
    }

    fn find(&self, hash: u16, text: &[u8]) -> Option<Slot> {
        let mut from = 0;
        while let Some(ahead) = self.hashes[from..].iter().position(|&other| other == hash) {
            let index = from + ahead;
            if self.record(index) == text {
                return Some(slot_of(index));
            }
            from = index + 1;
        }
        None
    }

    fn record(&self, index: usize) -> &[u8] {
        let begin = usize::from(self.offsets[index]);
        let bytes = usize::from(self.records[begin + 1]);
        &self.records[begin + RECORD_BYTES..][..bytes]
    }

    /// A control message uses the slot's name.
    pub fn use_slot(&mut self, slot: Slot) -> Name {
        let Some(index) = index_of(slot) else {
            return Name::UNKNOWN;
        };
        // 2: it outlives the next collection.
        self.uses[index] = self.uses[index].saturating_add(2);
        Name {
            slot,
            generation: self.generations[index].to_be_bytes(),
        }
    }

    /// The name's text; None if it has been forgotten.
    pub fn text(&self, name: Name) -> Option<&[u8]> {
        let index = index_of(name.slot)?;
        let is_kept = self.hashes[index] != 0 && self.generations[index].to_be_bytes() == name.generation;
        is_kept.then(|| self.record(index))
    }

    /// Keeps the name over the next collection.
    pub fn keep(&mut self, slot: Slot) {
        if let Some(index) = index_of(slot) {
            self.uses[index] = self.uses[index].max(2);
        }
    }

    /// Forgets names, the least used ones, until at least a quarter of the room is free.
    pub fn collect(&mut self) -> Freed {
        let mut freed = [false; 256];
        // A count of uses is 0 after eight passes, so that the loop ends.
        while self.filled > NAMES_BYTES / 4 * 3 || self.count > NAMES / 4 * 3 {
            self.collect_unused(&mut freed);
        }
        freed
    }

    /// Halves the counts of uses, forgets the names that have none, and closes the gaps.
    fn collect_unused(&mut self, freed: &mut Freed) {
        let (mut from, mut to) = (0, 0);
        while from < self.filled {
            let slot = self.records[from];
            let bytes = RECORD_BYTES + usize::from(self.records[from + 1]);
            if let Some(index) = index_of(slot) {
                self.uses[index] /= 2;
                if self.uses[index] > 0 {
                    self.records.copy_within(from..from + bytes, to);
                    self.offsets[index] = to as u16;
                    to += bytes;
                } else {
                    self.hashes[index] = 0;
                    self.count -= 1;
                    freed[usize::from(slot)] = true;
                }
            }
            from += bytes;
        }
        self.filled = to;
    }
}

fn slot_of(index: usize) -> Slot {
    // At most NAMES.
    (index + 1) as Slot
}

fn index_of(slot: Slot) -> Option<usize> {
    (slot != LOST).then(|| usize::from(slot).checked_sub(1)).flatten()
}

/// Not 0.
fn hash(text: &[u8]) -> u16 {
    // FNV-1a in 32 bits, folded.
    let hash = text.iter().fold(0x811C_9DC5_u32, |hash, &byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    ((hash >> 16) as u16 ^ hash as u16).max(1)
}

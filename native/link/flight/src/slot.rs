//! An event, and its bytes in a slot of [`SLOT_BYTES`]. Numbers are little-endian.
//!
//! | bytes | field |
//! |---|---|
//! | 0..8 | stamp: sequence number in its ring, from 1 on; 0: no event |
//! | 8..12 | CRC-32 (IEEE) of bytes 0..8 and 12..256 |
//! | 12..16 | bytes of the texts node, kind, path, cause, one byte each |
//! | 16..24 | CLOCK_MONOTONIC, in nanoseconds |
//! | 24..32 | CLOCK_REALTIME, in nanoseconds since 1970 |
//! | 32..40 | number of the link: of its port in the VM; 0: it has none |
//! | 40..48 | a duration in nanoseconds |
//! | 48..56 | a number of bytes or packets |
//! | 56 | bytes of the text words |
//! | 57..256 | the texts node, kind, path, cause, words, in UTF-8, one after the other |
//!
//! What the number and the duration mean depends on the kind: `docs/FLIGHT.md` lists them.

use rustix::time::{ClockId, clock_gettime};

/// Size of a slot.
pub const SLOT_BYTES: usize = 256;
/// Size of a slot in words.
pub const SLOT_WORDS: usize = SLOT_BYTES / 8;

const TEXTS: usize = 57;
/// Maximum bytes of a node's name in a slot; a longer one is cut.
const NODE_BYTES_MAX: usize = 96;
/// Maximum bytes of a kind, a path and a cause, each.
const ATOM_BYTES_MAX: usize = 24;

/// An event.
#[derive(Debug, Clone, Copy, Default)]
pub struct Event<'a> {
    /// The peer's node; this node for an event without a peer.
    pub node: &'a str,
    /// The kind of event.
    pub kind: &'a str,
    /// The path that carries the link, or the last one that did.
    pub path: &'a str,
    /// The reason, as one word.
    pub cause: &'a str,
    /// The reason, as a text.
    pub words: &'a str,
    /// Number of the link's port in the VM; 0: it has none.
    pub link: u64,
    /// Nanoseconds.
    pub duration_ns: u64,
    /// Bytes or packets.
    pub amount: u64,
    /// True: the event goes to the ring of ticks.
    pub is_tick: bool,
}

impl Event<'_> {
    /// The words of a slot, with the present time. Cuts texts that are too long, the text `words` first.
    pub(crate) fn encode(&self) -> [u64; SLOT_WORDS] {
        let mut bytes = [0; SLOT_BYTES];
        bytes[16..24].copy_from_slice(&now(ClockId::Monotonic).to_le_bytes());
        bytes[24..32].copy_from_slice(&now(ClockId::Realtime).to_le_bytes());
        bytes[32..40].copy_from_slice(&self.link.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.duration_ns.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.amount.to_le_bytes());
        let texts = [
            (self.node, NODE_BYTES_MAX, 12),
            (self.kind, ATOM_BYTES_MAX, 13),
            (self.path, ATOM_BYTES_MAX, 14),
            (self.cause, ATOM_BYTES_MAX, 15),
            (self.words, SLOT_BYTES, 56),
        ];
        let mut at = TEXTS;
        for (text, most, length) in texts {
            let text = cut(text, most.min(SLOT_BYTES - at)).as_bytes();
            bytes[at..at + text.len()].copy_from_slice(text);
            bytes[length] = text.len() as u8;
            at += text.len();
        }
        let mut words = [0; SLOT_WORDS];
        for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = chunk.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        }
        words
    }
}

/// The bytes of a slot's words.
pub(crate) fn bytes(words: &[u64; SLOT_WORDS]) -> [u8; SLOT_BYTES] {
    let mut bytes = [0; SLOT_BYTES];
    for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// True if the event in these words is of this node; a slot may have a cut name.
pub(crate) fn is_of(words: &[u64; SLOT_WORDS], node: &str) -> bool {
    let node = cut(node, NODE_BYTES_MAX).as_bytes();
    let bytes = bytes(words);
    usize::from(bytes[12]) == node.len() && bytes.get(TEXTS..TEXTS + node.len()) == Some(node)
}

/// The begin of a text: whole characters, at most `bytes` bytes.
fn cut(text: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(text.len()))
        .rev()
        .find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

/// The time in nanoseconds. The vDSO answers, without a system call.
pub(crate) fn now(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    (time.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(time.tv_nsec as u64)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts(words: &[u64; SLOT_WORDS]) -> Vec<String> {
        let bytes = bytes(words);
        let mut at = TEXTS;
        [12, 13, 14, 15, 56]
            .iter()
            .map(|&length| {
                let text = &bytes[at..at + usize::from(bytes[length])];
                at += text.len();
                String::from_utf8(text.to_vec()).expect("whole characters")
            })
            .collect()
    }

    #[test]
    fn numbers_lie_where_the_table_says() {
        let event = Event {
            node: "b@host",
            kind: "lost",
            link: 1,
            duration_ns: 2,
            amount: 3,
            ..Event::default()
        };
        let words = event.encode();
        assert_eq!(words[4..7], [1, 2, 3]);
        assert!(words[2] > 0 && words[3] > words[2], "the clocks");
        assert!(is_of(&words, "b@host"));
        assert!(!is_of(&words, "b@hos") && !is_of(&words, "b@host2") && !is_of(&words, ""));
    }

    #[test]
    fn long_names_are_still_found() {
        let long = "ü".repeat(200);
        let words = Event {
            node: &long,
            words: &long,
            ..Event::default()
        }
        .encode();
        assert!(is_of(&words, &long));
    }

    proptest! {
        #[test]
        fn texts_are_kept_up_to_their_bounds(
            node in ".{0,120}", kind in ".{0,40}", path in ".{0,40}", cause in ".{0,40}", words in ".{0,300}",
        ) {
            let (node, kind, path, cause, words) = (&*node, &*kind, &*path, &*cause, &*words);
            let event = Event { node, kind, path, cause, words, ..Event::default() };
            let encoded = texts(&event.encode());
            for (text, kept) in [node, kind, path, cause, words].iter().zip(&encoded) {
                prop_assert!(text.starts_with(kept.as_str()));
            }
            let kept: usize = encoded.iter().map(String::len).sum();
            let whole: usize = [node, kind, path, cause, words].iter().map(|text| text.len()).sum();
            prop_assert!(kept <= SLOT_BYTES - TEXTS);
            if whole <= ATOM_BYTES_MAX {
                prop_assert_eq!(kept, whole);
            }
        }
    }
}

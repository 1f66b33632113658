//! A queue in ordinary memory, for the tests: loom's atomics cannot live in shared memory.

use super::*;

pub(super) struct Held {
    pub(super) header: QueueHeader,
    pub(super) entries: Vec<Entry>,
}

impl Held {
    pub(super) fn new(entries: usize) -> Held {
        let entry = || Entry {
            stamp: AtomicU64::new(0),
            kind: AtomicU64::new(0),
            words: std::array::from_fn(|_| AtomicU64::new(0)),
            whole: Witness::default(),
        };
        Held {
            header: QueueHeader {
                head: Apart(AtomicU64::new(0)),
                armed: Apart(AtomicU32::new(0)),
            },
            entries: (0..entries).map(|_| entry()).collect(),
        }
    }

    pub(super) fn queue(&self) -> Queue<'_> {
        Queue {
            header: &self.header,
            entries: &self.entries,
        }
    }
}

pub(super) fn notice(bytes: u32) -> Completion {
    Completion::Notice(Notice {
        direct: bytes % 2 == 0,
        bytes,
    })
}

/// [`Consumer::pop`], with the item itself.
pub(super) fn pop(
    consumer: &Consumer,
    queue: Queue<'_>,
    place: impl FnOnce(u64, &[u8]) -> bool,
) -> Result<Option<Completion>, Misbehaviour> {
    let mut item = Completion::Notice(Notice::MARK);
    let popped = consumer.pop(queue, &mut item, place)?;
    Ok(popped.then_some(item))
}

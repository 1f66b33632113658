//! Who fills a link: operation, sender and target of its packets, in both directions.

use std::time::Duration;

use inet_rdma_envelope::{Direction, Entry, Name, Off, Party, RECENT, Reader, Sketch};
use rustix::time::{ClockId, clock_gettime};

use crate::port::Packet;

/// Number of the heaviest keys that [`Attribution::term`] has of each sketch.
const TOP: usize = 20;

/// What is counted of the packets of one link, from its first packet on.
pub struct Attribution {
    sent: Direction,
    received: Direction,
}

/// The time of a clock that costs 5 ns and ticks every few milliseconds.
fn now() -> Duration {
    let time = clock_gettime(ClockId::MonotonicCoarse);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

impl Attribution {
    pub fn begin() -> Box<Attribution> {
        Box::new(Attribution {
            sent: Direction::new(),
            received: Direction::new(),
        })
    }

    /// Some: see [`Direction::packet`].
    #[inline]
    pub fn count_sent(&mut self, packet: &Packet<'_>) -> Option<Off> {
        self.sent.packet(packet.pieces(), packet.bytes(), now)
    }

    #[inline]
    pub fn count_received(&mut self, packet: &[u8]) -> Option<Off> {
        self.received.packet([packet], packet.len(), now)
    }

    /// In the external format, `{Sent, Received}`, each `{Operations, Recent, All, Off}`. Operations:
    /// `[{Operation, Messages, Bytes}]`. Recent, in bytes per second, and All, in bytes: `{Total, [{Operation, Sender,
    /// Target, AtLeast, AtMost}]}`. Sender and Target: a pid, `{name, Name}`, `{alias, Node}`, `unknown` if the reader
    /// has forgotten the name or the node, or `none`. Off: `none`, or why all packets are of the operation `other`.
    pub fn term(&mut self) -> Vec<u8> {
        let mut term = Term(vec![131]);
        term.tuple(2);
        for direction in [&mut self.sent, &mut self.received] {
            direction.handle_time(now());
            term.tuple(4);
            term.list(direction.counts().iter(), |term, (operation, count)| {
                term.tuple(3);
                term.atom(operation.name().as_bytes());
                term.unsigned(count.messages);
                term.unsigned(count.bytes);
            });
            let (reader, total) = (direction.reader(), direction.counts().total().bytes as f64);
            term.sketch(
                reader,
                direction.recent(),
                direction.recent_total(),
                RECENT.as_secs_f64(),
            );
            term.sketch(reader, direction.all(), total, 1.0);
            match direction.reader().off() {
                None => term.atom(b"none"),
                Some(off) => term.binary(&off.to_string()),
            }
        }
        term.0
    }
}

/// A term in the external format.
struct Term(Vec<u8>);

impl Term {
    fn tuple(&mut self, arity: u8) {
        self.0.extend([104, arity]);
    }

    fn list<T>(&mut self, elements: impl Iterator<Item = T>, mut write: impl FnMut(&mut Term, T)) {
        for element in elements {
            // A cell.
            self.0.extend([108, 0, 0, 0, 1]);
            write(self, element);
        }
        self.0.push(106);
    }

    fn atom(&mut self, name: &[u8]) {
        // Names have 255 bytes at most.
        self.0.extend([119, name.len() as u8]);
        self.0.extend(name);
    }

    fn binary(&mut self, text: &str) {
        self.0.push(109);
        self.0.extend((text.len() as u32).to_be_bytes());
        self.0.extend(text.as_bytes());
    }

    fn unsigned(&mut self, number: u64) {
        self.0.extend([110, 8, 0]);
        self.0.extend(number.to_le_bytes());
    }

    fn float(&mut self, number: f64) {
        self.0.push(70);
        self.0.extend(number.to_be_bytes());
    }

    fn sketch(&mut self, reader: &Reader, sketch: &Sketch, total: f64, divisor: f64) {
        self.tuple(2);
        self.float(total / divisor);
        self.list(sketch.top(TOP).into_iter(), |term, Entry { key, at_least, at_most }| {
            term.tuple(5);
            term.atom(key.operation.name().as_bytes());
            term.party(reader, key.sender);
            term.party(reader, key.target);
            term.float(at_least / divisor);
            term.float(at_most / divisor);
        });
    }

    fn party(&mut self, reader: &Reader, party: Party) {
        // The VM refuses a term with an atom that is none.
        let text = |name: Name| reader.text(name).filter(|text| std::str::from_utf8(text).is_ok());
        match party {
            Party::None => self.atom(b"none"),
            Party::Name(name) => self.named(b"name", text(name)),
            Party::Alias { node, .. } => self.named(b"alias", text(node)),
            Party::Process {
                node,
                id,
                serial,
                creation,
            } => match text(node) {
                Some(node) => {
                    self.0.push(88);
                    self.atom(node);
                    [id, serial, creation]
                        .iter()
                        .for_each(|word| self.0.extend(word.to_be_bytes()));
                }
                None => self.atom(b"unknown"),
            },
        }
    }

    fn named(&mut self, kind: &[u8], name: Option<&[u8]>) {
        match name {
            Some(name) => {
                self.tuple(2);
                self.atom(kind);
                self.atom(name);
            }
            None => self.atom(b"unknown"),
        }
    }
}

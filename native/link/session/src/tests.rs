//! Tests that look at two sessions and what lies between them.

mod exploration;
mod explore;
mod hostile;
mod log;
mod packets;
mod property;
mod queue_pair;
mod resume;
mod rollback;
mod side;
mod tcp;
mod turn;
mod window;
mod world;

use crate::frame::{Header, Kind};
use crate::{Position, Session, Sink, Standing};

type Tested = Session<Vec<u8>, Vec<u8>>;

/// A frame whose header says `bytes`.
fn frame(kind: Kind, bytes: usize, received: u64, body: &[u8]) -> Vec<u8> {
    let received = Position(received);
    [&Header { kind, bytes, received }.encode(), body].concat()
}

/// The standing of a side without a queue pair.
fn standing(received: u64) -> Standing {
    Standing {
        received: Position(received),
        path: None,
    }
}

/// The bytes to be written next.
fn transmission(session: &Tested) -> Vec<u8> {
    let mut bytes = Vec::new();
    session.transmission(|slice| {
        bytes.extend_from_slice(slice);
        true
    });
    bytes
}

/// The queue pair takes up to `limit` bytes: these.
fn queued(session: &mut Tested, limit: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    session.queue_slices(limit, |slice| {
        bytes.extend_from_slice(slice);
        true
    });
    session.handle_queued(bytes.len());
    bytes
}

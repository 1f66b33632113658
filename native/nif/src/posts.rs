//! What is posted on a connection, both ways, and how it goes on: in the calls of whoever posts, and from the polling
//! thread's wakes. No process is in between.

use std::sync::OnceLock;

use inet_rdma_engine::connection::{Closed, Connection, Wakes};
use inet_rdma_engine::endpoint::Kicker;

use crate::packets::Block;
use crate::pen::Pen;
use crate::posted_receives::PostedReceives;
use crate::voice::Voice;

/// Rounds in which a send lets a receive go on, and the other way round, within one call.
const ROUNDS: usize = 2;

/// How much may be posted, and moved at a time.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// The option `call_bytes`.
    pub call_bytes: usize,
    /// The option `sends_max`.
    pub sends: usize,
    /// The option `receives_max`.
    pub receives: usize,
}

/// All that is posted on one connection.
pub struct Posts {
    /// Who is in the middle of a send, and the sends that are posted.
    pub pen: Pen,
    /// The receives that are posted.
    pub receives: PostedReceives,
    /// The options.
    pub bounds: Bounds,
    kicker: OnceLock<Kicker>,
}

impl Posts {
    /// Nothing is posted yet.
    pub fn new(bounds: Bounds) -> Self {
        Self {
            pen: Pen::default(),
            receives: PostedReceives::default(),
            bounds,
            kicker: OnceLock::new(),
        }
    }

    /// How a polling thread is called back to the connection.
    pub fn set_kicker(&self, kicker: Kicker) {
        // Each connection is attached once.
        let _ = self.kicker.set(kicker);
    }

    /// Makes the polling thread look, soon.
    pub fn kick(&self) {
        if let Some(kicker) = self.kicker.get() {
            kicker.kick();
        }
    }

    /// Goes on with what is posted in the directions of `todo`; who else can go on by that.
    pub fn go_on(&self, connection: &Connection<Block>, voice: Voice<'_>, mut todo: Wakes) -> Wakes {
        let mut told = Wakes::default();
        for _ in 0..ROUNDS {
            let mut next = Wakes::default();
            if todo.writer {
                let wakes = self.write(connection, voice);
                told.merge(wakes);
                // Reading comes next in this round, if at all.
                next.reader = wakes.reader && !todo.reader;
            }
            if todo.reader {
                let (wakes, again) = self.receives.read(connection, self.bounds.call_bytes, voice);
                told.merge(wakes);
                next.writer = wakes.writer;
                if again {
                    // There is more, but others wait for their turn.
                    connection.wake_reader();
                    self.kick();
                }
            }
            todo = next;
            if todo.is_empty() {
                return told;
            }
        }
        if todo.reader {
            connection.wake_reader();
        }
        if todo.writer {
            connection.wake_writer();
        }
        self.kick();
        told
    }

    /// Goes on with the sends alone.
    pub fn write(&self, connection: &Connection<Block>, voice: Voice<'_>) -> Wakes {
        let (wakes, again) = self.pen.write_posted(connection, self.bounds.call_bytes, voice);
        if again {
            connection.wake_writer();
            self.kick();
        }
        wakes
    }

    /// The connection is over: so is all that is posted, in order.
    pub fn end(&self, connection: &Connection<Block>, voice: Voice<'_>, closed: &Closed) -> Wakes {
        let wakes = self.pen.end(voice, closed);
        self.receives.end(connection, voice, closed);
        wakes
    }
}

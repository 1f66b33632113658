//! Receives that are posted: what satisfies the first of them goes to its poster at once.

use std::collections::VecDeque;

use inet_rdma_engine::assembly::Received;
use inet_rdma_engine::connection::{Closed, Connection, ReadEnd, Wakes};
use parking_lot::{Mutex, MutexGuard};
use rustler::{Encoder, Term};

use crate::atoms;
use crate::packets::{Block, encode_packet};
use crate::receipt::Receipt;
use crate::voice::Voice;

/// Reads of one turn: then other connections get theirs.
const READS: usize = 64;

/// All of one connection, in order: as many, and in the same order, as the connection knows of.
#[derive(Default)]
pub struct PostedReceives(Mutex<VecDeque<Receipt>>);

/// They do not change as long as this lives.
pub struct Locked<'a>(MutexGuard<'a, VecDeque<Receipt>>);

impl PostedReceives {
    /// Holds them still.
    pub fn lock(&self) -> Locked<'_> {
        Locked(self.0.lock())
    }

    /// Reads for the first of them, about `call_bytes` at most; whom to tell, and whether it has to be called again
    /// soon. When nothing has come the connection is asked for a wake.
    pub fn read(&self, connection: &Connection<Block>, call_bytes: usize, voice: Voice<'_>) -> (Wakes, bool) {
        let mut queue = self.0.lock();
        let mut wakes = Wakes::default();
        let mut left = call_bytes;
        let mut reads = READS;
        let again = loop {
            if queue.is_empty() {
                // Whoever waits in a recv may look for itself again.
                wakes.reader = true;
                break false;
            }
            if reads == 0 || left == 0 {
                break true;
            }
            reads -= 1;
            let mut received = Vec::new();
            let (end, more) = connection.read_posted(left, &mut received);
            wakes.merge(Wakes { reader: false, ..more });
            left = match end {
                ReadEnd::More if received.is_empty() => 0,
                _ => left.saturating_sub(received.iter().map(copied).sum()),
            };
            for received in received {
                if let Some(receipt) = queue.pop_front() {
                    hand_over(&receipt, voice, received);
                }
            }
            match end {
                ReadEnd::More => {}
                ReadEnd::Empty => {
                    let (armed, more) = connection.arm();
                    wakes.merge(Wakes { reader: false, ..more });
                    if armed && !queue.is_empty() {
                        break false;
                    }
                }
                ReadEnd::Closed(closed) => end_all(&mut queue, connection, voice, &closed),
            }
        };
        (wakes, again)
    }

    /// No more will come for them.
    pub fn end(&self, connection: &Connection<Block>, voice: Voice<'_>, closed: &Closed) {
        end_all(&mut self.0.lock(), connection, voice, closed);
    }
}

impl Locked<'_> {
    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// None.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Behind the others: of exactly `bytes`, or with 0 of whatever comes.
    pub fn post(&mut self, connection: &Connection<Block>, receipt: Receipt, bytes: usize) {
        self.0.push_back(receipt);
        connection.post_receive(bytes);
    }

    /// Takes one back. False: it is not there.
    pub fn cancel(&mut self, connection: &Connection<Block>, reference: Term<'_>) -> bool {
        let Some(index) = self.0.iter().position(|receipt| receipt.is(reference)) else {
            return false;
        };
        self.0.remove(index);
        connection.cancel_receive(index);
        true
    }
}

/// Bytes that this processor has copied for it.
fn copied(received: &Received<Block>) -> usize {
    match received {
        Received::Whole(block) => block.len(),
        Received::Batch { packets, .. } => packets.iter().map(ExactSizeIterator::len).sum(),
        Received::Landed(..) => 0,
    }
}

fn hand_over(receipt: &Receipt, voice: Voice<'_>, received: Received<Block>) {
    receipt.tell(voice, atoms::inet_rdma_received(), |env| {
        match encode_packet(env, received) {
            Some(data) => (atoms::ok(), data).encode(env),
            None => (atoms::error(), atoms::no_memory()).encode(env),
        }
    });
}

fn end_all(queue: &mut VecDeque<Receipt>, connection: &Connection<Block>, voice: Voice<'_>, closed: &Closed) {
    for receipt in queue.drain(..) {
        connection.cancel_receive(0);
        receipt.tell_end(voice, atoms::inet_rdma_received(), closed);
    }
}

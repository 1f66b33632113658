//! Two sides post sends and receives and write in turns, over a fabric that delays completions: in any order of their
//! steps all operations complete, in order, with the right bytes.

#[path = "support/pair.rs"]
mod pair;

use std::collections::VecDeque;
use std::sync::Arc;

use inet_rdma_assembly::{Framing, Gather, Received};
use inet_rdma_fabric_fault::{Delay, FaultFabric, FaultPlan};
use inet_rdma_fabric_shm::ShmFabric;
use inet_rdma_socket::stream_socket::Bounds;
use pair::signal::{Event, Ticket};
use pair::{Conn, Side};
use proptest::prelude::{ProptestConfig, Strategy, prop_oneof, proptest};

/// The bytes of a side's stream from `at` on.
fn stream(at: usize, bytes: usize) -> Vec<u8> {
    (at..at + bytes)
        .map(|at| (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()[6])
        .collect()
}

/// A send of one of two writers that has not ended.
struct Open {
    writer: u32,
    bytes: Vec<u8>,
    at: usize,
}

struct Party {
    socket: Arc<Conn>,
    next: u64,
    /// Bytes that posted sends and writers have taken from the stream.
    sent: usize,
    open: Option<Open>,
    /// Numbers and sizes, oldest first.
    sends: VecDeque<(u64, usize)>,
    receives: VecDeque<(u64, usize)>,
    received: usize,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    PostSend(usize),
    PostReceive(usize),
    /// A writer begins a send, or goes on with it.
    Write(u32, usize),
    /// The writer gives up, and the polling thread sends the rest.
    Leave,
    Look,
    Tick,
}

impl Party {
    fn new(socket: Arc<Conn>) -> Self {
        Self {
            socket,
            next: 0,
            sent: 0,
            open: None,
            sends: VecDeque::new(),
            receives: VecDeque::new(),
            received: 0,
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn act(&mut self, step: Step) {
        match step {
            // The bytes of an unfinished write come first in the stream, and are counted already.
            Step::PostSend(bytes) => {
                let number = self.number();
                let ticket = Ticket::send(number, stream(self.sent, bytes));
                self.socket.post_send(ticket).expect("room for it");
                self.sends.push_back((number, bytes));
                self.sent += bytes;
            }
            Step::PostReceive(bytes) => {
                let number = self.number();
                self.socket
                    .post_receive(Ticket::of(number), bytes)
                    .expect("room for it");
                self.receives.push_back((number, bytes));
            }
            Step::Write(writer, bytes) => self.write(writer, bytes),
            Step::Leave => {
                if let Some(open) = self.open.take() {
                    let number = self.number();
                    self.sends.push_front((number, open.bytes.len()));
                    let rest = Ticket::send(number, open.bytes);
                    self.socket.leave(open.writer, Some((rest, open.at))).expect("it fits");
                }
            }
            Step::Look => self.look(),
            Step::Tick => self.socket.connection().tick().expect("it is up"),
        }
        self.check();
    }

    fn write(&mut self, writer: u32, bytes: usize) {
        let writer = self.open.as_ref().map_or(writer, |open| open.writer);
        let Ok(mut lock) = self.socket.send_lock(writer) else {
            assert!(self.open.is_none() && !self.sends.is_empty(), "nobody else writes");
            return;
        };
        let mut open = self.open.take().unwrap_or_else(|| {
            let bytes = stream(self.sent, bytes);
            self.sent += bytes.len();
            Open { writer, bytes, at: 0 }
        });
        let at = {
            let mut gather = Gather::with_capacity(1, 1);
            gather.push(&open.bytes);
            gather.end_packet();
            lock.write(&gather, open.at, 5000).expect("it is up").at
        };
        open.at = at;
        if open.at == open.bytes.len() {
            lock.release();
        } else {
            drop(lock);
            self.open = Some(open);
        }
    }

    fn look(&self) {
        self.socket.connection().drain_event();
        assert!(!self.socket.connection().attend(false));
    }

    /// What was told is due.
    fn check(&mut self) {
        while let Some(event) = self.socket.notifier().event() {
            match event {
                Event::Sent(number, result) => {
                    let (due, bytes) = self.sends.pop_front().expect("a send is posted");
                    assert_eq!((number, result), (due, Ok(bytes)));
                }
                Event::Received(number, result) => {
                    let (due, wanted) = self.receives.pop_front().expect("a receive is posted");
                    assert_eq!(number, due);
                    let bytes = match result.expect("it is up") {
                        Received::Whole(bytes) => bytes,
                        Received::Landed(buffer, range) => {
                            let mut bytes = vec![0; range.len()];
                            buffer.copy_out(range.start, &mut bytes);
                            bytes
                        }
                        Received::Batch { .. } => panic!("a raw stream has no batches"),
                    };
                    assert!(wanted == bytes.len() || wanted == 0 && !bytes.is_empty());
                    assert!(bytes == stream(self.received, bytes.len()), "after {}", self.received);
                    self.received += bytes.len();
                }
                _ => panic!("only sends and receives are posted"),
            }
        }
    }

    /// Cancels a receive that wants more bytes than will come.
    fn give_way(&mut self, peer_sent: usize) {
        if let Some(&(number, wanted)) = self.receives.front() {
            if wanted > peer_sent - self.received {
                assert!(self.socket.cancel(|ticket| ticket.number == number));
                self.receives.pop_front();
            }
        }
        self.check();
    }

    fn is_over(&self, peer: &Party) -> bool {
        self.open.is_none() && self.sends.is_empty() && peer.received == self.sent
    }
}

fn step() -> impl Strategy<Value = Step> {
    let size = || prop_oneof![1..50usize, 1..3000usize, 4000..4200usize, 1..20_000usize];
    prop_oneof![
        3 => size().prop_map(Step::PostSend),
        3 => prop_oneof![1 => 0..1usize, 3 => size()].prop_map(Step::PostReceive),
        4 => (1..3u32, size()).prop_map(|(writer, bytes)| Step::Write(writer, bytes)),
        1 => (0..1u32).prop_map(|_| Step::Leave),
        5 => (0..1u32).prop_map(|_| Step::Look),
        1 => (0..1u32).prop_map(|_| Step::Tick),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn all_completes_in_order(
        steps in proptest::collection::vec((0..2usize, step()), 1..150),
        seed in 0..u64::MAX,
        delayed in 0..600u16,
    ) {
        let plan = FaultPlan {
            seed,
            delayed_notices: delayed,
            delayed_controls: delayed,
            delay: Delay::Polls(1..=4),
            ..FaultPlan::default()
        };
        let side = Side {
            framing: Framing::Raw,
            ring_bytes: 8192,
            receive_slots: 32,
            landing_buffers: 4,
            landing_bytes: 4096,
            direct_bytes: 2048,
            ..Side::default()
        };
        let bounds = Bounds { call_bytes: 6000, sends: 150, receives: 10_000 };
        let (left, right) = pair::connect_bounded(&FaultFabric::new(ShmFabric, plan), &side, bounds);
        let mut parties = [Party::new(left), Party::new(right)];
        parties.iter().for_each(Party::look);
        for (index, step) in steps {
            parties[index].act(step);
        }
        // A writer in the middle of a send ends it; then the other side receives all that was sent.
        for _ in 0..10_000 {
            let over = parties[0].is_over(&parties[1]) && parties[1].is_over(&parties[0]);
            if over {
                break;
            }
            for party in &mut parties {
                if party.open.is_some() {
                    party.act(Step::Write(1, 0));
                }
                if party.receives.is_empty() {
                    party.act(Step::PostReceive(0));
                }
                party.act(Step::Look);
            }
            let sent = [parties[1].sent, parties[0].sent];
            for (party, sent) in parties.iter_mut().zip(sent) {
                party.give_way(sent);
            }
        }
        for (party, peer) in [(&parties[0], &parties[1]), (&parties[1], &parties[0])] {
            assert!(
                party.open.is_none() && party.sends.is_empty(),
                "{:?} is stuck, {} bytes posted; the peer has {} of {}, waits for {:?}; {:#?} {:#?}",
                party.sends,
                party.socket.posted().send_bytes,
                peer.received,
                party.sent,
                peer.receives,
                party.socket.connection().statistics(),
                peer.socket.connection().statistics(),
            );
            assert_eq!(party.received, peer.sent);
            assert_eq!(party.socket.connection().closed(), None);
        }
    }
}

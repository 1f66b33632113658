//! One link whose caller is the test, beside the session of a peer.

use std::time::{Duration, Instant};

use inet_rdma_paths::{Debt, Look, Path};
use inet_rdma_session::{Role, Session, Turn};

use super::side::{Large, Receiver, packet, start};
use crate::{Connection, Fault, Link, Loss, Notice, QueueWritten, Reach, TcpWritten, Work};

/// `suspect_after_ms`.
pub const PATIENCE: Duration = Duration::from_secs(1);
/// The name of the first queue pair.
pub const QUEUE: u64 = 7;
pub const PLAIN: Connection = Connection {
    reach: Reach::Far,
    is_sealed: false,
};
/// The peer's host has answered all.
pub const ANSWERED: Look = Look {
    heard: Duration::ZERO,
    answered: Duration::ZERO,
    debt: Debt::Nothing,
};

/// A link, the initiator's unless a test says otherwise, and the session of its peer.
pub struct Lone {
    pub link: Link<Vec<u8>, Large>,
    pub peer: Session<Vec<u8>, Large>,
    pub now: Instant,
    /// What a write to the TCP connection leads to: but for `All` it takes nothing.
    pub tcp: TcpWritten,
    /// The bytes for which the TCP connection has room.
    pub tcp_room: usize,
    /// The bytes for which the queue pair has room.
    pub queue_room: usize,
    /// The bytes that the queue pair has taken.
    pub queue_bytes: usize,
    /// What the look at a path finds. None: the link gets no answer.
    pub look: Option<Look>,
    /// Packets of the peer that the link has received, and those of the link that the peer has.
    pub received: usize,
    pub delivered: usize,
    /// Sizes of the packets of both.
    pub sizes: Vec<usize>,
    pub sent: usize,
}

impl Lone {
    /// A link that the settlement has: it has a TCP connection and a guard, and is not started.
    pub fn settling(connection: Connection) -> Lone {
        Lone::of_role(Role::Initiator, connection)
    }

    fn of_role(role: Role, connection: Connection) -> Lone {
        let mut link = Link::new(role, 1 << 20);
        link.set_patience(Some(PATIENCE));
        link.handle_connected(start(), connection);
        link.watch();
        let peer = match role {
            Role::Initiator => Role::Acceptor,
            Role::Acceptor => Role::Initiator,
        };
        Lone {
            link,
            peer: Session::new(peer, 1 << 20),
            now: start(),
            tcp: TcpWritten::All,
            tcp_room: usize::MAX,
            queue_room: usize::MAX,
            queue_bytes: 0,
            look: Some(ANSWERED),
            received: 0,
            delivered: 0,
            sizes: vec![100],
            sent: 0,
        }
    }

    /// A link that is up over TCP. The first notice and the first write are over.
    pub fn new() -> Lone {
        let mut lone = Lone::settling(PLAIN);
        lone.start();
        lone
    }

    /// No path owes an answer afterwards.
    pub fn start(&mut self) {
        self.link.start();
        let _first = self.work();
        self.link.look_before_tick();
        let _looked = (self.work(), self.notices());
    }

    /// A link that is up, both of whose directions go over a queue pair.
    pub fn on_queue(can_be_lost: bool) -> Lone {
        Lone::on_queue_of_role(Role::Initiator, can_be_lost)
    }

    pub fn on_queue_of_role(role: Role, can_be_lost: bool) -> Lone {
        let mut lone = Lone::of_role(role, PLAIN);
        lone.link.add_queue(QUEUE, can_be_lost);
        lone.link.begin_on_queue();
        lone.peer.add_path(QUEUE, can_be_lost);
        lone.peer.begin_on_queue();
        lone.start();
        lone
    }

    /// A link whose outgoing packets alone go over a queue pair.
    pub fn moved(can_be_lost: bool) -> Lone {
        let mut lone = Lone::new();
        lone.link.add_queue(QUEUE, can_be_lost);
        lone.peer.add_path(QUEUE, can_be_lost);
        assert!(lone.link.move_to_queue());
        let _moved = (lone.work(), lone.notices());
        lone
    }

    pub fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    /// Does what the link says. Returns it.
    pub fn work(&mut self) -> Vec<Work> {
        let mut done = Vec::new();
        while let Some(work) = self.link.poll_work(self.now) {
            assert!(done.len() < 100, "work without end");
            match work {
                Work::Transmit(Path::Tcp) => self.write(),
                Work::Transmit(Path::QueuePair) => self.write_to_queue(),
                Work::Look(path) => {
                    if let Some(look) = self.look {
                        self.link.handle_look(path, self.now, look);
                    }
                }
                _ => {}
            }
            done.push(work);
        }
        done
    }

    fn write(&mut self) {
        let before = self.link.session().tcp_bytes();
        let mut written = self.tcp;
        while written == TcpWritten::All && self.link.session_mut().poll_transmit() {
            let mut bytes = Vec::new();
            self.link.session().transmission(|slice| {
                bytes.extend_from_slice(slice);
                true
            });
            if bytes.len() > self.tcp_room {
                bytes.truncate(self.tcp_room);
                written = TcpWritten::Blocked;
            }
            self.tcp_room -= bytes.len();
            self.link.session_mut().handle_transmitted(bytes.len());
            let mut receiver = Receiver {
                from: 0,
                sizes: &self.sizes,
                arrived: &mut self.delivered,
                is_wrong: false,
            };
            let taken = self.peer.handle_input(&bytes, &mut Turn::unbounded(), &mut receiver);
            assert_eq!((taken, receiver.is_wrong), (Ok(bytes.len()), false));
        }
        self.link.handle_tcp_written(self.now, before, 0, written);
    }

    fn write_to_queue(&mut self) {
        let before = self.link.session().unsent_bytes();
        let mut bytes = 0;
        self.link.session().queue_slices(self.queue_room, |slice| {
            bytes += slice.len();
            true
        });
        self.link.session_mut().handle_queued(bytes);
        self.queue_bytes += bytes;
        self.queue_room = self.queue_room.saturating_sub(bytes);
        let written = match self.link.session().unsent_bytes() {
            0 => QueueWritten::All,
            _ => QueueWritten::Blocked,
        };
        self.link.handle_queue_written(self.now, before, written);
    }

    /// The notices to the guard.
    pub fn notices(&mut self) -> Vec<Notice> {
        std::iter::from_fn(|| self.link.poll_notice())
            .map(|(notice, _)| notice)
            .collect()
    }

    /// The VM's next packet goes out over TCP, in the port's steps.
    pub fn send(&mut self) {
        let packet = packet(0, self.sent, &self.sizes);
        self.sent += 1;
        if self.link.append_for_tcp(packet.len(), |log| log.copy(&packet)) {
            self.link.handle_appended_for_tcp(self.now, packet.len());
        }
    }

    /// The VM's next packet goes out over the queue pair, through the log.
    pub fn send_by_queue(&mut self) {
        let packet = packet(0, self.sent, &self.sizes);
        self.sent += 1;
        self.link.append(packet.len(), |log| log.copy(&packet));
        self.link.handle_appended_for_queue(false);
    }

    /// The peer's users have sent this number of packets more.
    pub fn peer_sends(&mut self, packets: usize) {
        for number in 0..packets {
            let packet = packet(1, self.received + number, &self.sizes);
            self.peer.append(packet.len(), |log| log.copy(&packet));
        }
    }

    /// The frames of the peer.
    pub fn frames(&mut self) -> Vec<u8> {
        let mut frames = Vec::new();
        while self.peer.poll_transmit() {
            let mut bytes = Vec::new();
            self.peer.transmission(|slice| {
                bytes.extend_from_slice(slice);
                true
            });
            self.peer.handle_transmitted(bytes.len());
            frames.extend(bytes);
        }
        frames
    }

    /// Gives the session the bytes.
    pub fn input(&mut self, bytes: &[u8]) {
        let mut receiver = Receiver {
            from: 1,
            sizes: &self.sizes,
            arrived: &mut self.received,
            is_wrong: false,
        };
        let session = self.link.session_mut();
        let taken = session.handle_input(bytes, &mut Turn::unbounded(), &mut receiver);
        assert_eq!((taken, receiver.is_wrong), (Ok(bytes.len()), false));
    }

    /// All that the peer has for the TCP connection arrives.
    pub fn read(&mut self) {
        let frames = self.frames();
        self.input(&frames);
        self.link.handle_received(self.now, true, Ok(()));
    }

    /// The TCP connection ends, for this reason.
    pub fn lose(&mut self, loss: Loss) {
        self.link.handle_received(self.now, true, Err(Fault::Lost(loss)));
    }
}

//! Two connections driven by hand, one small step after the other, in an order that a seed picks.
//!
//! All parties keep to the rules: a party that waits does nothing until it is woken, and the polling thread looks only
//! when an event fd is readable. So a lost wake shows, whatever the order: no party has anything left to do.

use inet_rdma_assembly::{Framing, Gather, ReadLimit, Received};
use inet_rdma_engine::connection::{Closed, ReadEnd};
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::contents;
use crate::message::Messages;
use crate::pair::Conn;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Reads or writes on.
    Going,
    /// There was nothing, or no room: goes on or arms.
    Stuck,
    /// Armed.
    Waiting,
    Done,
}

#[derive(Debug, Clone, Copy)]
enum Action {
    Write,
    ArmWriter,
    Finish,
    Read,
    Arm,
    Event,
    Poll,
    Sleep,
    Tick,
    Release,
}

/// One side's user and polling thread.
pub struct Party<'a> {
    pub socket: &'a Conn,
    outgoing: Gather<'a>,
    at: usize,
    writer: State,
    reader: State,
    /// The polling thread polls, until it sleeps.
    polls: bool,
    spin: bool,
    expected: &'a [Vec<u8>],
    /// Raw: all packets are one, and this much of it came. Else: the number of packets that came.
    got: usize,
    held: Vec<Received<Vec<u8>>>,
    hold: usize,
    pub end: Option<Closed>,
    ticks: u32,
}

impl<'a> Party<'a> {
    pub fn new(socket: &'a Conn, outgoing: &'a Messages, expected: &'a [Vec<u8>], habits: Habits) -> Self {
        if habits.self_polling {
            socket.connection().set_self_polling();
        }
        let mut party = Self {
            socket,
            outgoing: outgoing.gather(socket.framing() != Framing::Raw),
            at: 0,
            writer: State::Going,
            reader: State::Going,
            polls: false,
            spin: habits.spin,
            expected,
            got: 0,
            held: Vec::new(),
            hold: habits.hold,
            end: None,
            ticks: habits.ticks,
        };
        // What attaching it to a polling thread does.
        party.attend();
        party
    }

    fn actions(&self) -> Vec<Action> {
        let mut actions = Vec::with_capacity(8);
        match self.writer {
            State::Going if self.at == self.outgoing.total() => actions.push(Action::Finish),
            State::Going => actions.push(Action::Write),
            State::Stuck => actions.extend([Action::Write, Action::ArmWriter]),
            State::Waiting | State::Done => {}
        }
        match self.reader {
            State::Going => actions.push(Action::Read),
            State::Stuck => actions.extend([Action::Read, Action::Arm]),
            State::Waiting | State::Done => {}
        }
        if self.polls {
            actions.extend([Action::Poll, Action::Sleep]);
        }
        if readable(self.socket) {
            actions.push(Action::Event);
        }
        if !self.held.is_empty() {
            actions.push(Action::Release);
        }
        if self.ticks > 0 && self.writer != State::Done {
            actions.push(Action::Tick);
        }
        actions
    }

    fn act(&mut self, action: Action, random: &mut fastrand::Rng) {
        match action {
            Action::Write => self.write(random),
            Action::ArmWriter => {
                self.writer = State::Waiting;
                if !self.socket.arm_writer() {
                    self.writer = State::Going;
                }
            }
            Action::Finish => {
                self.writer = State::Done;
                self.socket.finish().expect("it is up");
            }
            Action::Read => self.read(random),
            Action::Arm => {
                self.reader = State::Waiting;
                if !self.socket.arm_reader() {
                    self.reader = State::Going;
                }
            }
            Action::Event => {
                self.socket.connection().drain_event();
                self.attend();
            }
            Action::Poll => self.polls = self.socket.connection().poll().is_some(),
            Action::Sleep => {
                self.polls = false;
                self.socket.connection().sleep();
            }
            Action::Tick => {
                self.ticks -= 1;
                self.socket.connection().tick().expect("it is up");
            }
            Action::Release => {
                self.held.swap_remove(random.usize(..self.held.len()));
            }
        }
        self.heed();
    }

    fn attend(&mut self) {
        self.polls |= self.socket.connection().attend(self.spin);
    }

    fn heed(&mut self) {
        let wakes = self.socket.notifier().take();
        for (woken, state) in [(wakes.reader, &mut self.reader), (wakes.writer, &mut self.writer)] {
            if woken && *state == State::Waiting {
                *state = State::Going;
            }
        }
    }

    fn write(&mut self, random: &mut fastrand::Rng) {
        let max = some_bytes(random);
        let written = self.socket.write(&self.outgoing, self.at, max).expect("it is up");
        assert!(written.at >= self.at && written.at <= self.outgoing.total());
        assert!(written.blocked || written.at > self.at);
        self.at = written.at;
        self.writer = if written.blocked { State::Stuck } else { State::Going };
    }

    fn read(&mut self, random: &mut fastrand::Rng) {
        let limit = ReadLimit {
            bytes: some_bytes(random),
            packets: if random.bool() { usize::MAX } else { random.usize(1..5) },
            exact: 0,
        };
        let mut out = Vec::new();
        let end = self.socket.read(limit, &mut out);
        self.check(&out, limit);
        out.retain(|received| matches!(received, Received::Landed(..)));
        self.held.extend(out);
        self.held.truncate(self.hold);
        self.reader = match end {
            ReadEnd::More => State::Going,
            ReadEnd::Empty => State::Stuck,
            ReadEnd::Closed(closed) => {
                self.end = Some(closed);
                State::Done
            }
        };
    }

    fn check(&mut self, received: &[Received<Vec<u8>>], limit: ReadLimit) {
        let packets = contents::packets(received);
        assert!(packets.len() <= limit.packets);
        if self.socket.framing() != Framing::Raw {
            let due = &self.expected[self.got..];
            assert!(due.starts_with(&packets), "wrong packets after {}", self.got);
            self.got += packets.len();
            return;
        }
        let bytes = packets.concat();
        assert!(bytes.len() <= limit.bytes);
        assert!(
            self.expected[0][self.got..].starts_with(&bytes),
            "wrong bytes after {}",
            self.got
        );
        self.got += bytes.len();
    }

    fn is_complete(&self) -> bool {
        let due = if self.socket.framing() == Framing::Raw {
            self.expected[0].len()
        } else {
            self.expected.len()
        };
        self.got == due && self.end == Some(Closed::ByPeer) && self.writer == State::Done
    }
}

/// How a party behaves.
#[derive(Debug, Clone, Copy, Default)]
pub struct Habits {
    /// Its polling thread polls on after an event.
    pub spin: bool,
    /// Its reader looks by itself while it does not wait.
    pub self_polling: bool,
    /// Landing buffers that its user holds on to for a while.
    pub hold: usize,
    /// Keepalives that it sends some time.
    pub ticks: u32,
}

/// Lets both act until everything has arrived and both have found the other's end.
pub fn run(parties: &mut [Party<'_>; 2], random: &mut fastrand::Rng) {
    let mut progress = 0;
    let mut turns_without_progress = 0u32;
    // A livelock ends here. A conversation's length is no measure: a ring of a few bytes takes a turn for each byte.
    while turns_without_progress < 1_000_000 {
        turns_without_progress += 1;
        let first = random.usize(0..2);
        // One side may have a long turn: that fills queues to their ends.
        let turns = if random.u8(..) < 16 { 200 } else { 1 };
        let mut acted = false;
        for index in [first, 1 - first] {
            for _ in 0..turns {
                let actions = parties[index].actions();
                let Some(action) = random.choice(actions) else { break };
                parties[index].act(action, random);
                acted = true;
            }
            if acted {
                break;
            }
        }
        if parties.iter().all(Party::is_complete) {
            return;
        }
        let so_far = parties.iter().map(|party| party.at + party.got).sum::<usize>();
        if so_far > progress {
            progress = so_far;
            turns_without_progress = 0;
        }
        assert!(acted, "nobody has anything to do:\n{}", report(parties));
    }
    panic!("no progress:\n{}", report(parties));
}

fn report(parties: &[Party<'_>; 2]) -> String {
    let line = |party: &Party<'_>| {
        format!(
            "wrote {} of {} ({:?}), got {} ({:?}), ended {:?}\n{:?}\n",
            party.at,
            party.outgoing.total(),
            party.writer,
            party.got,
            party.reader,
            party.end,
            party.socket.connection().statistics(),
        )
    };
    parties.iter().map(line).collect()
}

fn some_bytes(random: &mut fastrand::Rng) -> usize {
    match random.u8(0..8) {
        0 => random.usize(1..10),
        1..=3 => random.usize(1..5_000),
        4..=6 => random.usize(1..300_000),
        _ => usize::MAX,
    }
}

fn readable(socket: &Conn) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(socket.queue_pair().event_fd(), PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut fds, Some(&now)).expect("poll") > 0
}

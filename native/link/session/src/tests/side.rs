//! One side: its session, and its caller as far as a session needs one.

use super::Tested;
use super::tcp::Place;
use super::world::{Broken, Setup};
use crate::{LENGTH_BYTES, Role, Session, Sink};

/// An attempt of this side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dial {
    /// Both sides prove the secret.
    Proving(u64),
    /// This side has sent its standing.
    Asked(u64),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Side {
    pub session: Tested,
    /// The connection that it reads and writes.
    pub connection: Option<u64>,
    pub dial: Option<Dial>,
    /// The greatest attempt for which it was suspended.
    pub attempt: u64,
    /// Packets that it has appended.
    pub appended: usize,
    /// Packets of the peer that have arrived.
    pub arrived: usize,
    pub reads: Place,
    pub writes: Place,
    pub has_ended: bool,
    /// The peer's end has come.
    pub is_over: bool,
    pub controls: u8,
    pub ticks: u8,
    pub dials: u8,
}

impl Side {
    pub fn new(side: usize, setup: &Setup) -> Side {
        let role = [Role::Initiator, Role::Acceptor][side];
        let mut session = Session::new(role, 1 << 24);
        session.set_window(setup.window);
        if let Some(told) = setup.told {
            session.tell_window(told[side]);
        }
        Side {
            session,
            connection: Some(0),
            dial: None,
            attempt: 0,
            appended: 0,
            arrived: 0,
            reads: Place::default(),
            writes: Place::default(),
            has_ended: false,
            is_over: false,
            controls: 0,
            ticks: 0,
            dials: 0,
        }
    }

    /// The packet that it appends next, if the session goes on.
    pub fn next_packet(&self, setup: &Setup, side: usize) -> Option<Vec<u8>> {
        setup.packet(side, self.appended).filter(|_| !self.has_ended)
    }

    /// The connection is gone.
    pub fn leave_tcp(&mut self) {
        self.connection = None;
        self.reads = Place::default();
        self.writes = Place::default();
    }

    pub fn asked(&self) -> Option<u64> {
        match self.dial {
            Some(Dial::Asked(attempt)) => Some(attempt),
            _ => None,
        }
    }
}

/// Takes packets, and compares each with what the peer has sent.
pub struct Comparer<'a> {
    pub setup: &'a Setup,
    pub from: usize,
    pub arrived: &'a mut usize,
    pub broken: Option<Broken>,
}

impl Comparer<'_> {
    fn compare(&mut self, packet: &[u8]) {
        if self.setup.packet(self.from, *self.arrived).as_deref() == Some(packet) {
            *self.arrived += 1;
        } else {
            self.broken = Some(Broken::Order);
        }
    }

    /// A packet with its length.
    pub fn compare_framed(&mut self, framed: &[u8]) {
        self.compare(&framed[LENGTH_BYTES..]);
    }
}

impl Sink for Comparer<'_> {
    type Large = Vec<u8>;

    fn allocate(&mut self, bytes: usize) -> Option<Vec<u8>> {
        if self.setup.packets[self.from].get(*self.arrived) != Some(&bytes) {
            self.broken = Some(Broken::Order);
        }
        Some(vec![0; bytes])
    }

    fn small(&mut self, packet: &[u8]) {
        self.compare(packet);
    }

    fn large(&mut self, packet: Vec<u8>) {
        self.compare(&packet);
    }
}

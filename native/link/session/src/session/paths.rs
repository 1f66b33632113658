//! Paths: made, changed, lost and resumed.

use super::{Path, Pending, QueuePairId, Role, Route, Session, Source, Standing, Unit, WINDOW_BYTES_FIRST};
use crate::frame::{CONTRADICTION, Kind};
use crate::inbound::Memory;
use crate::position::Position;
use crate::{Older, Violation};

impl<H: AsRef<[u8]>, L: Memory> Session<H, L> {
    /// This side has a queue pair, which both sides know by this name; no bytes go over it yet. `can_be_lost`: it may
    /// be lost while the peer lives. An attempt to resume in which this side has told its standing already gives it up.
    pub fn add_path(&mut self, id: QueuePairId, can_be_lost: bool) {
        self.path = Some(Path {
            id,
            can_be_lost,
            has_carried: false,
            peer_has_left: false,
        });
    }

    /// The queue pair that this side has.
    pub fn path(&self) -> Option<QueuePairId> {
        self.path.map(|path| path.id)
    }

    /// Both sides begin on the queue pair of [`Self::add_path`], before the first byte.
    pub fn begin_on_queue(&mut self) {
        if let Some(path) = &mut self.path {
            path.has_carried = true;
            self.route = Route::Queue {
                path: path.id,
                mark: Position::default(),
            };
            self.source = Source::Queue(path.id);
        }
    }

    /// Bytes that are appended from here on go over the queue pair of [`Self::add_path`]. False: it carries or has
    /// carried, or there is none.
    pub fn move_to_queue(&mut self) -> bool {
        let (Route::Tcp, Some(path)) = (self.route, self.path.as_mut().filter(|path| !path.has_carried)) else {
            return false;
        };
        path.has_carried = true;
        let mark = self.log.end();
        self.route = Route::Queue { path: path.id, mark };
        self.queue = self.log.seek(mark).unwrap_or_default();
        self.pending.move_to_queue = true;
        true
    }

    /// Bytes that are appended from here on go over the TCP connection again. The initiator begins: it returns while
    /// both sides send over the queue pair, the acceptor when the initiator has returned. False: it is not this side's
    /// turn, or the peer has not acknowledged all bytes yet; its next frame over TCP does that.
    pub fn return_to_tcp(&mut self) -> bool {
        let Route::Queue { mark, .. } = self.route else {
            return false;
        };
        let is_turn = match self.role {
            Role::Initiator => self.source != Source::Tcp,
            Role::Acceptor => self.peer_has_left_queue(),
        };
        let has_arrived = self.heard >= self.log.end() && self.tcp.position() >= mark;
        if !is_turn || !has_arrived || self.standing.is_some() || self.pending.move_to_queue {
            return false;
        }
        self.release(self.log.end());
        self.route = Route::Tcp;
        self.tcp = self.log.seek(self.log.end()).unwrap_or_default();
        self.pending.begin_on_tcp = true;
        true
    }

    /// Whether both sides have gone back to the TCP connection from the queue pair that this side has.
    pub fn has_left_queue(&self) -> bool {
        self.route == Route::Tcp && self.peer_has_left_queue()
    }

    /// Whether the peer has sent over the queue pair that this side has, and has gone back to the TCP connection.
    pub fn peer_has_left_queue(&self) -> bool {
        self.path.is_some_and(|path| path.peer_has_left)
    }

    /// Makes the next frame for the TCP connection acknowledge the bytes that have arrived.
    pub fn acknowledge(&mut self) {
        self.pending.acknowledgement = true;
    }

    /// Whether outgoing packets go over the queue pair.
    pub fn is_sent_by_queue(&self) -> bool {
        matches!(self.route, Route::Queue { .. })
    }

    /// The queue pair is lost, and is no longer used: [`Self::suspend`] tells the peer. If an attempt is under way, its
    /// standing may have named the queue pair: another attempt has to follow.
    pub fn lose_path(&mut self) {
        self.path = None;
    }

    /// The TCP connection is lost, and the frames under way with it.
    pub fn lose_tcp(&mut self) {
        self.unit = Unit::default();
        self.inbound.reset_frame();
        self.peer_end = None;
        // The next connection begins with the first window until the peer tells its own.
        self.peer_window = WINDOW_BYTES_FIRST;
        self.pending = Pending {
            end: self.ends,
            move_to_queue: self.pending.move_to_queue,
            ..Pending::default()
        };
    }

    /// The greatest number of an attempt to resume; 0: there was none.
    pub fn attempt(&self) -> u64 {
        self.attempt
    }

    /// The number of the next attempt of this side.
    pub fn next_attempt(&self) -> u64 {
        ((self.attempt >> 1) + 1) << 1 | self.parity()
    }

    /// The lowest bit of the numbers of this side's attempts.
    fn parity(&self) -> u64 {
        match self.role {
            Role::Initiator => 1,
            Role::Acceptor => 0,
        }
    }

    /// Whether an attempt of the peer with this number may still succeed. An attempt of this side may not: a wrong
    /// address has led it to this side's own listener.
    pub fn accepts(&self, attempt: u64) -> bool {
        self.is_newer(attempt) && !self.is_own(attempt)
    }

    /// Whether an attempt with this number is one of this side.
    pub fn is_own(&self, attempt: u64) -> bool {
        attempt > 0 && attempt & 1 == self.parity()
    }

    /// Whether an attempt with this number may still succeed.
    pub fn is_newer(&self, attempt: u64) -> bool {
        attempt > self.attempt
    }

    /// An attempt to resume begins, for which the peer has proved the session's secret. Gives up the TCP connection if
    /// there is one. Returns the standing that the peer must be told. None: the attempt is out of date.
    pub fn suspend(&mut self, attempt: u64) -> Option<Standing> {
        let path = self.path().filter(|&path| self.is_free_for(path));
        self.suspend_with(attempt, path)
    }

    /// As [`Self::suspend`], and gives up the queue pair, too: both sides resume without it.
    pub fn suspend_without_path(&mut self, attempt: u64) -> Option<Standing> {
        self.suspend_with(attempt, None)
    }

    fn suspend_with(&mut self, attempt: u64, path: Option<QueuePairId>) -> Option<Standing> {
        if !self.is_newer(attempt) {
            return None;
        }
        self.attempt = attempt;
        self.lose_tcp();
        let standing = Standing {
            received: self.received(),
            path,
        };
        self.standing = Some(standing);
        self.standing
    }

    /// Whether neither direction needs a queue pair that was there before this one.
    fn is_free_for(&self, path: QueuePairId) -> bool {
        let sends = match self.route {
            Route::Tcp => true,
            Route::Queue { path: carries, .. } => carries == path,
        };
        let receives = match self.source {
            Source::Tcp => true,
            Source::Queue(carries) => carries == path,
        };
        sends && receives
    }

    /// Whether the attempt under way gives up this queue pair: it was added when this side had told its standing.
    pub fn is_given_up(&self, path: QueuePairId) -> bool {
        self.standing.is_some_and(|ours| ours.path != Some(path))
    }

    /// [`Self::resume`] has found that the positions contradict each other: the next bytes for the TCP connection tell
    /// the peer, and nothing else.
    pub fn refuse(&mut self) {
        self.pending = Pending::default();
        self.unit = Unit::default();
        self.route = Route::Tcp;
        self.tcp = self.log.seek(self.log.end()).unwrap_or_default();
        self.frame(Kind::End, &CONTRADICTION.0.to_be_bytes());
    }

    /// The attempt has led to another TCP connection, on which the peer has told this standing. True: the queue pair
    /// carries on. False: there is none, or it is given up. Err(None): the attempt is out of date or has led to a
    /// resume before; Err(Some): the session is over.
    pub fn resume(&mut self, attempt: u64, theirs: Standing) -> Result<bool, Option<Violation>> {
        let Some(ours) = self.standing.filter(|_| attempt == self.attempt) else {
            return Err(None);
        };
        // The peer may have read on over a queue pair; the log keeps no bytes of one that lives as long as the peer.
        let acknowledged = match self.route {
            Route::Tcp => self.log.start(),
            Route::Queue { mark, .. } => self.log.start().min(mark),
        };
        if theirs.received > self.sent {
            return Err(Some(Violation::RolledBack(Older::Own)));
        }
        if theirs.received < acknowledged {
            return Err(Some(Violation::RolledBack(Older::Peer)));
        }
        self.standing = None;
        self.heard = self.heard.max(theirs.received);
        // The next connection begins with a frame, whatever the caller wrote before.
        self.unit = Unit::default();
        self.inbound.reset_frame();
        self.release(theirs.received);
        // Decide by the standings that both sides have told, not by the present state: so the peer decides the same.
        let keeps_path = ours.path.is_some() && ours.path == theirs.path;
        if !keeps_path {
            self.path = None;
            self.route = Route::Tcp;
            self.source = Source::Tcp;
            self.packet_ends.clear();
            self.pending.move_to_queue = false;
        }
        let from = match self.route {
            Route::Tcp => theirs.received,
            Route::Queue { mark, .. } => {
                self.pending.move_to_queue = true;
                theirs.received.min(mark)
            }
        };
        self.tcp = self
            .log
            .seek(from.max(self.log.start()))
            .ok_or(Some(Violation::Position))?;
        self.pending.begin_on_tcp = self.route == Route::Tcp;
        self.pending.window = self.told_window.is_some();
        // The peer's frame with the acknowledgement may be lost.
        self.pending.acknowledgement = self.received() != self.told;
        // The peer's window begins at the standing of this side, or behind it.
        self.told = self.received();
        Ok(keeps_path)
    }
}

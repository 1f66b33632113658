//! The frames that go over the TCP connection.

use super::{Pending, QueuePairId, Route, Session, TCP};
use crate::frame::{CONTROL_BYTES_MAX, DATA_BYTES_MAX, Header, Kind, MOVE_BYTES};
use crate::inbound::Memory;
use crate::position::Position;

impl<H: AsRef<[u8]>, L: Memory> Session<H, L> {
    /// Asks for a sign of life, ahead of the bytes that wait.
    pub fn tick(&mut self) {
        if !self.pending.tick {
            self.counts.packets_sent += 1;
            self.counts.ticks += 1;
            self.pending.tick = true;
        }
    }

    /// Asks the peer to answer with this number, ahead of the bytes that wait. Lost with the connection.
    pub fn echo(&mut self, number: u64) {
        self.pending.echo = Some(number);
    }

    /// A message for the peer's guard, ahead of the bytes that wait. False: it is too large.
    pub fn control(&mut self, message: Vec<u8>) -> bool {
        let fits = message.len() <= CONTROL_BYTES_MAX;
        if fits {
            self.pending.controls.push_back(message);
        }
        fits
    }

    /// No bytes follow those that have been appended: the peer's session ends, too, when they have arrived.
    pub fn end(&mut self) {
        self.ends = true;
        self.pending.end = true;
    }

    /// Bytes of the stream that are for the TCP connection and wait for it.
    pub fn tcp_bytes(&self) -> usize {
        match self.route {
            Route::Tcp => self.log.end() - self.tcp.position(),
            // After a resume TCP stands at the log's start, which is beyond a mark that the peer has passed.
            Route::Queue { mark, .. } => mark.saturating_since(self.tcp.position()),
        }
    }

    /// Whether there are bytes of the stream that the TCP connection may take now.
    pub fn has_tcp_bytes_due(&self) -> bool {
        self.tcp_bytes().min(self.window_left()) > 0
    }

    /// Whether there are bytes that the TCP connection may take now.
    pub fn is_transmission_due(&self) -> bool {
        self.has_tcp_bytes_due() || self.unit.head_sent < self.unit.head.len() || self.pending != Pending::default()
    }

    /// Prepares the bytes to be written next. False: there are none.
    pub fn poll_transmit(&mut self) -> bool {
        if self.unit.head_sent < self.unit.head.len() || self.unit.data_left > 0 {
            return true;
        }
        self.unit.head.clear();
        self.unit.head_sent = 0;
        if std::mem::take(&mut self.pending.window) {
            self.frame(Kind::Window, &(self.taken_bytes_max() as u64).to_be_bytes());
        }
        if std::mem::take(&mut self.pending.tick) {
            self.frame(Kind::Tick, &[]);
        }
        // One answer for all questions since the last answer.
        if let Some(number) = self.pending.echoed.take() {
            self.frame(Kind::Echoed, &number.to_be_bytes());
        }
        if let Some(number) = self.pending.echo.take() {
            self.frame(Kind::Echo, &number.to_be_bytes());
        }
        while let Some(message) = self.pending.controls.pop_front() {
            self.frame(Kind::Control, &message);
        }
        if std::mem::take(&mut self.pending.begin_on_tcp) {
            self.move_frame(TCP, self.tcp.position());
        }
        let wanted = self.tcp_bytes();
        let bytes = wanted.min(self.window_left()).min(DATA_BYTES_MAX);
        if bytes > 0 {
            self.header(Kind::Data, bytes);
            self.unit.data_left = bytes;
        } else {
            self.use_of_window.is_full |= wanted > 0;
            let moves = self.pending.move_to_queue && wanted == 0;
            if let (true, Route::Queue { path, mark }, Some(_)) = (moves, self.route, self.path) {
                self.move_frame(path, mark);
                self.pending.move_to_queue = false;
            }
            if self.pending.end && self.unsent_bytes() == 0 {
                self.frame(Kind::End, &self.log.end().0.to_be_bytes());
                self.pending.end = false;
            }
            if self.pending.acknowledgement {
                self.frame(Kind::Data, &[]);
            }
        }
        !self.unit.head.is_empty()
    }

    fn move_frame(&mut self, path: QueuePairId, mark: Position) {
        let mut place = [0; MOVE_BYTES];
        place[..8].copy_from_slice(&path.to_be_bytes());
        place[8..].copy_from_slice(&mark.0.to_be_bytes());
        self.frame(Kind::Move, &place);
    }

    pub(super) fn frame(&mut self, kind: Kind, message: &[u8]) {
        self.header(kind, message.len());
        self.unit.head.extend_from_slice(message);
    }

    fn header(&mut self, kind: Kind, bytes: usize) {
        let received = self.received();
        self.told = received;
        self.pending.acknowledgement = false;
        let header = Header { kind, bytes, received };
        self.unit.head.extend_from_slice(&header.encode());
    }

    /// Gives the slices to write, after [`Self::poll_transmit`], to `take` until it returns false.
    pub fn transmission<'a>(&'a self, mut take: impl FnMut(&'a [u8]) -> bool) {
        let head = &self.unit.head[self.unit.head_sent..];
        if head.is_empty() || take(head) {
            self.log.slices(&self.tcp, self.unit.data_left, take);
        }
    }

    /// The connection has taken this many bytes of them.
    pub fn handle_transmitted(&mut self, bytes: usize) {
        let head = bytes.min(self.unit.head.len() - self.unit.head_sent);
        self.unit.head_sent += head;
        let data = (bytes - head).min(self.unit.data_left);
        self.unit.data_left -= data;
        self.log.advance(&mut self.tcp, data);
        self.sent = self.sent.max(self.tcp.position());
        self.note_under_way();
        if self.heard > self.log.start() {
            // Bytes that are sent again: the peer has acknowledged them, and does not do so once more.
            self.release(self.heard.min(self.sent_again()));
        }
    }
}

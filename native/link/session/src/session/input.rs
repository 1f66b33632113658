//! Bytes that come over the TCP connection, and packets that come over the queue pair.

use bytes::buf::UninitSlice;

use super::{ACKNOWLEDGED_BYTES, Event, QueuePairId, Route, Session, Source, TCP};
use crate::frame::{CONTRADICTION, Header, Kind};
use crate::inbound::{Memory, Said, Sink};
use crate::position::Position;
use crate::turn::Turn;
use crate::{Older, Violation};

impl<H: AsRef<[u8]>, L: Memory> Session<H, L> {
    /// The memory of the packet that the connection's next bytes belong to, if it pays to read into it.
    pub fn direct(&mut self) -> Option<&mut UninitSlice> {
        self.inbound.direct()
    }

    /// The connection has written `bytes` bytes into [`Self::direct`]. After an error the session is over.
    pub fn handle_direct<S: Sink<Large = L>>(
        &mut self,
        bytes: usize,
        turn: &mut Turn,
        sink: &mut S,
    ) -> Result<(), Violation> {
        self.inbound.handle_direct(bytes, turn, sink);
        self.note_received()
    }

    /// Takes bytes that the TCP connection has brought, as far as the turn allows. Packets go to `sink`. Returns the
    /// number of bytes taken: the others come first in the next turn. After an error the session is over.
    pub fn handle_input<S: Sink<Large = L>>(
        &mut self,
        bytes: &[u8],
        turn: &mut Turn,
        sink: &mut S,
    ) -> Result<usize, Violation> {
        let mut rest = bytes;
        while !rest.is_empty() && !turn.is_over() {
            if self.has_ended {
                // Nothing follows the end.
                return Ok(bytes.len());
            }
            let (taken, said) = self.inbound.handle(rest, turn, sink)?;
            rest = &rest[taken..];
            if said.as_ref().is_some_and(Said::is_whole_frame) {
                turn.count_packet();
            }
            match said {
                None => {}
                Some(Said::Header(header)) => self.handle_header(header)?,
                Some(Said::Message(Kind::Move, message)) => self.handle_move(&message)?,
                Some(Said::Message(Kind::End, message)) => self.handle_end(&message)?,
                Some(Said::Message(Kind::Echo, message)) => self.pending.echoed = Some(parse_number(&message)?),
                Some(Said::Message(Kind::Echoed, message)) => {
                    self.events.push_back(Event::Echoed(parse_number(&message)?));
                }
                Some(Said::Message(Kind::Window, message)) => self.handle_window(parse_number(&message)?)?,
                Some(Said::Message(_, message)) => self.events.push_back(Event::Control(message)),
            }
        }
        self.note_received()?;
        Ok(bytes.len() - rest.len())
    }

    /// The peer's window begins at what it knows of [`Self::received`], at most `told`.
    fn note_received(&mut self) -> Result<(), Violation> {
        let bytes = self.received() - self.told;
        if bytes >= ACKNOWLEDGED_BYTES {
            self.pending.acknowledgement = true;
        }
        if bytes > self.taken_bytes_max() && self.source == Source::Tcp {
            Err(Violation::Window(bytes))
        } else {
            Ok(())
        }
    }

    fn handle_header(&mut self, header: Header) -> Result<(), Violation> {
        if header.received > self.sent {
            return Err(Violation::Position);
        }
        self.heard = self.heard.max(header.received);
        self.release(header.received.min(self.sent_again()));
        self.release_taken();
        match header.kind {
            Kind::Data if header.bytes > 0 && self.source != Source::Tcp => Err(Violation::Path),
            Kind::Tick => {
                self.counts.packets_received += 1;
                self.counts.ticks += 1;
                Ok(())
            }
            // Nothing follows such a header.
            Kind::Control if header.bytes == 0 => {
                self.events.push_back(Event::Control(Vec::new()));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Releases the log before this position, but no bytes that are being sent again. After a resume the peer
    /// acknowledges bytes that it receives a second time, while the frame that brings them still needs them.
    pub(super) fn sent_again(&self) -> Position {
        match self.route {
            Route::Queue { mark, .. } if self.tcp.position() >= mark => self.log.end(),
            _ => self.tcp.position(),
        }
    }

    fn handle_move(&mut self, message: &[u8]) -> Result<(), Violation> {
        let (path, mark) = parse_move(message).ok_or(Violation::Frame)?;
        let is_between_packets = self.inbound.is_between_packets();
        match self.source {
            // After a resume. Bytes that a queue pair has brought since this side told its standing come again.
            Source::Tcp if path == TCP && (mark == self.received() || mark < self.received() && is_between_packets) => {
                self.inbound.skip(self.received() - mark);
                Ok(())
            }
            // The side that returns knows that all bytes that it sent before have arrived.
            Source::Queue(left) if path == TCP && mark == self.received() => {
                self.source = Source::Tcp;
                if let Some(path) = self.path.as_mut().filter(|path| path.id == left) {
                    path.peer_has_left = true;
                }
                self.events.push_back(Event::Returned);
                Ok(())
            }
            // After a resume the frame comes a second time.
            Source::Queue(known) if known == path && mark <= self.received() => Ok(()),
            Source::Tcp if path != TCP && mark == self.received() && is_between_packets => {
                self.source = Source::Queue(path);
                self.release_taken();
                // The peer keeps the bytes that went over TCP until it knows that they have arrived.
                self.pending.acknowledgement = true;
                self.events.push_back(Event::Moved);
                Ok(())
            }
            _ => Err(Violation::Move),
        }
    }

    /// The end may arrive before bytes that the peer gave to a queue pair earlier.
    fn handle_end(&mut self, message: &[u8]) -> Result<(), Violation> {
        let end = Position(parse_number(message)?);
        if end == CONTRADICTION {
            return Err(Violation::RolledBack(Older::Either));
        }
        if end < self.received() {
            return Err(Violation::Position);
        }
        self.peer_end = Some(end);
        self.note_end();
        Ok(())
    }

    fn note_end(&mut self) {
        if self.peer_end.is_some_and(|end| end <= self.received()) && !self.has_ended {
            self.has_ended = true;
            self.events.push_back(Event::Ended);
        }
    }

    /// Whether the peer's bytes come over the queue pair with this name.
    pub fn reads_queue(&self, path: QueuePairId) -> bool {
        self.source == Source::Queue(path)
    }

    /// Whether the peer has moved to a queue pair that this side lacks: nothing comes until the session is resumed.
    pub fn awaits_queue(&self) -> bool {
        matches!(self.source, Source::Queue(carries) if self.path() != Some(carries))
    }

    /// The queue pair has brought packets: their bytes with their lengths.
    pub fn handle_queue_packets(&mut self, bytes: usize) {
        self.received_by_queue += bytes as u64;
        self.note_end();
    }

    /// Takes the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}

fn parse_number(message: &[u8]) -> Result<u64, Violation> {
    Ok(u64::from_be_bytes(message.try_into().map_err(|_| Violation::Frame)?))
}

fn parse_move(message: &[u8]) -> Option<(QueuePairId, Position)> {
    let (path, mark) = message.split_at_checked(8)?;
    Some((
        u64::from_be_bytes(path.try_into().ok()?),
        Position(u64::from_be_bytes(mark.try_into().ok()?)),
    ))
}

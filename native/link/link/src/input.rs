//! What has come over the paths.

use std::fmt::Display;
use std::time::Instant;

use inet_rdma_paths::Path;
use inet_rdma_session::{Event, Memory, Violation};

use crate::life::Life;
use crate::link::Link;
use crate::notice::{Loss, Notice};
use crate::tcp::{Output, Tcp};
use crate::work::Work;

/// Why nothing further can be received over a TCP connection.
#[derive(Clone, Copy)]
pub enum Fault<'a> {
    /// The connection ends; the session may go on over another one.
    Lost(Loss),
    /// Bytes were changed on their way, or somebody else has sent them, as this says: the connection ends.
    Damaged(&'a dyn Display),
    /// The peer broke the session's rules: the link ends.
    Violation(Violation),
    /// The peer broke rules of the path, as this says: the link ends.
    Misbehaved(&'a dyn Display),
}

impl<H: AsRef<[u8]>, L: Memory> Link<H, L> {
    /// The caller has given the session the bytes that have come over the TCP connection, up to the bounds of a turn.
    /// `is_all`: none are left for the next turn. Once nothing more can be sent the connection is lost behind the bytes
    /// that have arrived: the kernel may know of no end.
    pub fn handle_received(&mut self, now: Instant, is_all: bool, received: Result<(), Fault<'_>>) {
        let output = self.tcp.present().map(|present| present.output);
        let received = match (received, output) {
            (Err(Fault::Lost(read)), Some(Output::Failed(write))) => Err(Fault::Lost(write.with_read(read))),
            (Ok(()), Some(Output::Failed(write))) if is_all => Err(Fault::Lost(write)),
            (received, _) => received,
        };
        self.handle_events(now);
        if self.is_over() {
            return;
        }
        match received {
            Ok(()) => self.handle_well_received(now),
            Err(Fault::Lost(loss)) => self.lose_tcp(now, loss),
            Err(Fault::Damaged(_)) if self.damages.add(now) => self.lose_tcp(now, Loss::Damaged),
            Err(fault) => self.end_by(fault),
        }
        self.debug_check();
    }

    fn handle_well_received(&mut self, now: Instant) {
        if std::mem::take(&mut self.has_retired) {
            self.order(Work::CloseRetired);
        }
        self.look_if_suspected(Path::Tcp);
        self.follow_path(now);
        // Acknowledgements that came make room in the log, and one may be due.
        self.request_transmission_unless_gathering();
        self.tell_if_earned();
    }

    /// The link ends by what the peer has done.
    pub(crate) fn end_by(&mut self, fault: Fault<'_>) {
        self.tell_fault(fault);
        self.life = Life::Over;
    }

    pub(crate) fn tell_fault(&mut self, fault: Fault<'_>) {
        match fault {
            // A loss ends no link.
            Fault::Lost(_) => {}
            Fault::Violation(violation) => self.tell(violation.into()),
            Fault::Damaged(how) | Fault::Misbehaved(how) => self.tell(Notice::PeerMisbehaved(how.to_string())),
        }
    }

    /// The queue pair has brought this number of packets, whose bytes the caller has counted in the session.
    /// `has_room`: the queue pair has told of room since the last call.
    pub fn handle_queue_packets(&mut self, now: Instant, packets: usize, has_room: bool) {
        // The end that the peer has said lies behind packets of the queue pair.
        self.handle_events(now);
        if self.is_over() {
            return;
        }
        if packets > 0 {
            self.look_if_suspected(Path::QueuePair);
        }
        let is_blocked = self.queue.is_some_and(|queue| queue.is_blocked());
        if self.queue.is_some() && (has_room || is_blocked || self.gathering.waits) {
            self.request_transmission();
        }
        self.debug_check();
    }

    /// Whether the caller polls the queue pair again even if nothing has arrived.
    pub fn must_poll_queue(&self) -> bool {
        self.is_ending() || self.session.unsent_bytes() > 0
    }

    pub(crate) fn handle_events(&mut self, now: Instant) {
        while let Some(event) = self.session.poll_event() {
            match event {
                Event::Control(message) => self.tell(Notice::Message(message)),
                Event::Moved => {
                    self.changes.moves += 1;
                    self.tell(Notice::Moved);
                }
                // Otherwise this side follows: see `Self::follow`.
                Event::Returned if self.session.has_left_queue() => self.leave_queue(now),
                Event::Returned => {}
                Event::Echoed(number) => {
                    let trip = self.echo.handle_answer(number, now);
                    self.round_trip = trip.or(self.round_trip);
                    if let Some(trip) = trip {
                        self.handle_trip(trip);
                    }
                }
                // All its packets have come.
                Event::Ended => {
                    self.tell(Notice::PeerClosed);
                    self.life = Life::Over;
                    return;
                }
            }
        }
    }

    /// There is a TCP connection: the one on which the session begins.
    pub fn handle_connected(&mut self, now: Instant, connection: crate::Connection) {
        debug_assert!(
            matches!(self.tcp, Tcp::Absent { loss: None }),
            "the session begins once"
        );
        self.add_tcp(now, connection);
    }
}

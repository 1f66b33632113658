//! The self-test of a new queue pair, before its user gets it: each kind of work request that the connection will use,
//! checked by content. What a device says of itself is not trusted.
//!
//! The side that connects begins. Each flight ends with a report, and the answer is a flight of the other side:
//!
//! 1. connecting side: all pieces, and the key of a window if the device has windows
//! 2. accepting side: the same, a write into that window, and what failed of the first flight
//! 3. connecting side: a write into the window of the accepting side, and what failed of the second flight
//! 4. accepting side: whether its window got the write; only if it has named a window
//!
//! So it takes one round trip, and two with windows. A window is bound, invalidated and bound with the next key before
//! it is named, and is invalidated when it was written. That an invalidated window takes no write is not tried: the
//! write would end the connection. A device that only says that it invalidates refuses the second bind.
//!
//! A device that fails, fails the connection. What a connection can do without is switched off for the device first
//! ([`devices::switch_off`]), so that the next connection works.

use std::collections::VecDeque;
use std::sync::Arc;

use inet_rdma_fabric::{FabricError, Misbehaviour, SELF_TEST_RECEIVES, Tried, WindowState};
use inet_rdma_stream::{CONTROL_BYTES, Hello, RemoteAddress};
use inet_rdma_verbs::memory::Pages;

use crate::connection::Connection;
use crate::connection_end::End;
use crate::devices;
use crate::gather::INLINE_BYTES;
use crate::sending::Question;
use crate::trial_report::{Arrival, Faults, Piece, Report, faults, tried};
use crate::windows::WindowArea;

/// Which side of a connection this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Connecting,
    Accepting,
}

/// The flight that this side waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    First,
    Second,
    Third,
    Fourth,
    Over,
}

/// A request that is to be posted, or several.
#[derive(Debug)]
enum Step {
    /// Opens the window; invalidates it first if it is open.
    Open,
    Close,
    Piece(Piece, RemoteAddress, Vec<u8>),
    Question(RemoteAddress),
    Report(Report),
}

/// Whose device a request tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    Own,
    Peers,
}

struct Window {
    area: Arc<WindowArea>,
    pages: Arc<Pages>,
}

pub(crate) struct Trial {
    peer: Hello,
    turn: Turn,
    to_send: VecDeque<Step>,
    /// The requests that were posted: number of the last one, and what they try.
    posted: Vec<(u64, Tried, Whose)>,
    arrived: Vec<Arrival>,
    window: Option<Window>,
    /// True: a report of this side names the window.
    is_window_named: bool,
    own: Faults,
    peers: Faults,
}

/// Bytes of a window.
const WINDOW_BYTES: usize = 4_096;

impl Trial {
    /// The self-test of a connection that is up.
    pub(crate) fn begin(connection: &Connection, peer: Hello, role: Role) -> Trial {
        let mut trial = Trial {
            peer,
            turn: match role {
                Role::Connecting => Turn::Second,
                Role::Accepting => Turn::First,
            },
            to_send: VecDeque::new(),
            posted: Vec::new(),
            arrived: Vec::new(),
            window: None,
            is_window_named: false,
            own: Faults::NONE,
            peers: Faults::NONE,
        };
        if role == Role::Connecting {
            trial.send_all(connection, None);
        }
        trial
    }

    /// Goes on as far as possible. False: it waits for an event of the completion channel. Err: the connection cannot
    /// be used. After Ok(true) or Err it is over.
    pub(crate) fn step(&mut self, connection: &Connection) -> Result<bool, FabricError> {
        connection.drain_events();
        let mut is_armed = false;
        loop {
            self.send(connection)?;
            // Look for the end before the queue: what came before the end is in the queue by then.
            let has_ended = connection.end().get().is_some();
            if let Some(report) = self.take_flight(connection)? {
                self.handle(connection, &report)?;
                is_armed = false;
            } else if self.is_over(connection) {
                return self.finish(connection).map(|()| true);
            } else if has_ended {
                let error = connection.explain_end(None);
                return Err(self.explain(connection, error));
            } else if is_armed {
                return Ok(false);
            } else {
                // An event that nobody awaits here would wake the user.
                let awaits_sends = !self.to_send.is_empty() || self.turn == Turn::Over;
                // The receives show the end of the connection where the device has dropped the read.
                let awaits_receives = self.turn != Turn::Over || is_read_under_way(connection);
                connection.arm_queues(awaits_sends, awaits_receives)?;
                is_armed = true;
            }
        }
    }

    /// Adds a flight with all pieces, and one for the peer's window.
    fn send_all(&mut self, connection: &Connection, peer_window: Option<RemoteAddress>) {
        let traits = connection.traits();
        let peer_ring_bytes = self.peer.ring_bytes as usize;
        let part = CONTROL_BYTES.min(peer_ring_bytes / 8);
        let inline_max = connection.inline_bytes();
        let report = Report {
            is_full: true,
            gathers: traits.gathers,
            sends_inline: inline_max >= CONTROL_BYTES,
            wrote_window: peer_window.is_some(),
            has_immediates: connection.has_immediates(),
            part: part as u8,
            inline_bytes: inline_max.min(INLINE_BYTES).min(peer_ring_bytes - 3 * part) as u8,
            yours: self.peers,
            mine: self.own,
            window: None,
        };
        if traits.has_windows && self.has_no_fault() {
            // Without it the area of landing buffers has no windows, either.
            self.window = make_window(connection).ok();
        }
        if self.window.is_some() {
            self.to_send.extend([Step::Open, Step::Open]);
            self.is_window_named = true;
        }
        self.add_pieces(&report, peer_window);
        self.to_send.push_back(Step::Report(report));
    }

    fn add_pieces(&mut self, report: &Report, peer_window: Option<RemoteAddress>) {
        for piece in report.pieces() {
            let step = match (report.place(piece), piece, peer_window) {
                (Some((offset, bytes)), ..) => Step::Piece(piece, self.in_ring(offset), piece.bytes(bytes)),
                (None, Piece::Window, Some(window)) => Step::Piece(piece, window, piece.bytes(CONTROL_BYTES)),
                (None, ..) => Step::Piece(piece, self.peer.ring, piece.bytes(CONTROL_BYTES)),
            };
            self.to_send.push_back(step);
            if piece == Piece::Write {
                self.to_send.push_back(Step::Question(self.peer.ring));
            }
        }
    }

    fn in_ring(&self, offset: usize) -> RemoteAddress {
        RemoteAddress {
            address: self.peer.ring.address.wrapping_add(offset as u64),
            ..self.peer.ring
        }
    }

    fn has_no_fault(&self) -> bool {
        self.own.is_empty() && self.peers.is_empty()
    }

    /// Posts what there is to send, as far as the send queue takes it.
    fn send(&mut self, connection: &Connection) -> Result<(), FabricError> {
        while let Some(step) = self.to_send.pop_front() {
            if !connection.with_sending(|sending, outlet| sending.takes_piece(outlet)) {
                self.to_send.push_front(step);
                return Ok(());
            }
            self.post(connection, step)?;
        }
        Ok(())
    }

    fn post(&mut self, connection: &Connection, step: Step) -> Result<(), FabricError> {
        let cell = self.window.as_ref().and_then(|window| window.area.cells().first());
        // A write shows, too, that all before it is complete.
        let question = connection.question().unwrap_or(Question::Write);
        let (tries, whose) = match &step {
            Step::Open | Step::Close => (Tried::Windows, Whose::Own),
            Step::Piece(Piece::Window, ..) => (Tried::Windows, Whose::Peers),
            Step::Piece(piece, ..) => (tried(*piece), Whose::Own),
            Step::Question(_) => (question.tries(), Whose::Own),
            Step::Report(_) => (Tried::Sends, Whose::Own),
        };
        // The notice is a request of its own where it is no immediate.
        let sends_word = match &step {
            Step::Piece(piece, ..) => !matches!(piece, Piece::InlineSend | Piece::Silent),
            Step::Open | Step::Close | Step::Question(_) | Step::Report(_) => false,
        } && !connection.has_immediates();
        let mut named = None;
        let posted = connection.with_sending(|sending, outlet| match (step, cell) {
            (Step::Open, Some(cell)) => sending.open_window(outlet, cell).map(|window| named = Some(window)),
            (Step::Close, Some(cell)) => {
                sending.close_window(outlet, cell);
                match cell.state() {
                    // The request was refused.
                    WindowState::Open => Err(FabricError::QueueFull),
                    WindowState::Closing | WindowState::Closed => Ok(()),
                }
            }
            (Step::Open | Step::Close, None) => Ok(()),
            (Step::Piece(piece, target, bytes), _) => sending.post_piece(outlet, piece, &bytes, target),
            (Step::Question(target), _) => sending.post_question(outlet, question, target),
            (Step::Report(report), _) => sending.post_report(outlet, &report.emit()),
        });
        let last = connection.with_sending(|sending, _| sending.last_posted());
        if let Some(window) = named {
            self.name_window(window);
        }
        if sends_word {
            let of_word = if connection.inline_bytes() >= 4 {
                Tried::Inline
            } else {
                Tried::Sends
            };
            self.posted
                .extend([(last.saturating_sub(1), tries, whose), (last, of_word, Whose::Own)]);
        } else {
            self.posted.push((last, tries, whose));
        }
        posted.map_err(|error| self.explain_post(connection, error, tries))
    }

    /// The report that is to be sent names the window.
    fn name_window(&mut self, window: RemoteAddress) {
        for step in &mut self.to_send {
            if let Step::Report(report) = step {
                report.window = Some(window);
            }
        }
    }

    /// Takes messages up to a report. None: it has not come.
    fn take_flight(&mut self, connection: &Connection) -> Result<Option<Report>, FabricError> {
        while self.turn != Turn::Over {
            let taken = connection.with_receiving(|receiving, inlet| receiving.take_arrival(inlet));
            let arrival = match taken {
                Ok(Some(arrival)) => arrival,
                Ok(None) => return Ok(None),
                Err(fault) => {
                    let error = connection.explain(fault);
                    return Err(self.explain(connection, error));
                }
            };
            if let Arrival::Message(message) = arrival {
                if let Some(report) = Report::parse(&message) {
                    return Ok(Some(report));
                }
            }
            self.arrived.push(arrival);
            if self.arrived.len() > SELF_TEST_RECEIVES as usize {
                return Err(FabricError::PeerMisbehaved(Misbehaviour::SelfTest));
            }
        }
        Ok(None)
    }

    fn handle(&mut self, connection: &Connection, report: &Report) -> Result<(), FabricError> {
        let ring = connection.ring();
        let is_inside = |piece: &Piece| {
            report
                .place(*piece)
                .is_none_or(|(offset, bytes)| offset + bytes <= ring.pages().bytes())
        };
        if !report.pieces().iter().all(is_inside) {
            return Err(FabricError::PeerMisbehaved(Misbehaviour::SelfTest));
        }
        let arrived = std::mem::take(&mut self.arrived);
        self.peers
            .add_all(faults(report, &arrived, |offset, to| ring.read(offset, to)));
        self.peers.add_all(report.mine);
        self.own.add_all(report.yours);
        // The user finds the ring as it was made; the peer's user does not write yet.
        for (offset, bytes) in report.pieces().into_iter().filter_map(|piece| report.place(piece)) {
            ring.write(offset, &vec![0; bytes]);
        }
        match self.turn {
            Turn::First => {
                let peer_window = report.window.filter(|_| self.has_no_fault());
                self.send_all(connection, peer_window);
                self.turn = Turn::Third;
            }
            Turn::Second => {
                self.check_window(report);
                let peer_window = report.window.filter(|_| self.has_no_fault());
                self.turn = if peer_window.is_some() {
                    Turn::Fourth
                } else {
                    Turn::Over
                };
                self.answer(connection, peer_window);
            }
            Turn::Third => {
                self.check_window(report);
                self.turn = Turn::Over;
                if report.wrote_window {
                    self.answer(connection, None);
                }
            }
            Turn::Fourth | Turn::Over => self.turn = Turn::Over,
        }
        Ok(())
    }

    /// Adds a flight without the pieces that were tried.
    fn answer(&mut self, connection: &Connection, peer_window: Option<RemoteAddress>) {
        if self.window.is_some() {
            self.to_send.push_back(Step::Close);
        }
        let report = Report {
            wrote_window: peer_window.is_some(),
            has_immediates: connection.has_immediates(),
            yours: self.peers,
            mine: self.own,
            ..Report::default()
        };
        self.add_pieces(&report, peer_window);
        self.to_send.push_back(Step::Report(report));
    }

    /// Whether the window has the bytes that the peer wrote into it.
    fn check_window(&mut self, report: &Report) {
        let Some(window) = self.window.as_ref().filter(|_| report.wrote_window) else {
            return;
        };
        let mut found = [0; CONTROL_BYTES];
        window.pages.read(0, &mut found);
        if found[..] != Piece::Window.bytes(CONTROL_BYTES) {
            self.own.add(Tried::Windows);
        }
    }

    /// All is said, the window is closed, and the read is complete.
    fn is_over(&self, connection: &Connection) -> bool {
        // Takes the completion that shows the window closed.
        connection.with_sending(|sending, outlet| sending.catch_up(outlet));
        let is_closed = |window: &Window| {
            let mut cells = window.area.cells().iter();
            cells.all(|cell| cell.state() == WindowState::Closed)
        };
        self.turn == Turn::Over
            && self.to_send.is_empty()
            && (!self.has_no_fault() || (self.window.as_ref().is_none_or(is_closed) && !is_read_under_way(connection)))
    }

    fn finish(&mut self, connection: &Connection) -> Result<(), FabricError> {
        if let Some(error) = self.verdict(connection) {
            return Err(error);
        }
        if let Some(window) = self.window.take() {
            connection.areas.remove(&window.area);
        }
        let question = connection.question();
        if let Some(device) = connection.id().device().filter(|_| question != Some(Question::Write)) {
            devices::passed(&device.name(), question.is_some());
        }
        connection.with_sending(|sending, _| sending.counts = inet_rdma_fabric::Counts::default());
        connection.drain_events();
        Ok(())
    }

    /// The error for the faults, if there are some. Switches off what this side's device fails.
    fn verdict(&self, connection: &Connection) -> Option<FabricError> {
        if self.has_no_fault() {
            return None;
        }
        let is_own = !self.own.is_empty();
        let tried = if is_own { self.own } else { self.peers }.list();
        let name = connection
            .id()
            .device()
            .map_or_else(String::new, |device| device.name());
        if is_own {
            let avoidable = tried.iter().filter(|tried| tried.is_avoidable());
            avoidable.for_each(|tried| devices::switch_off(&name, *tried));
        }
        Some(FabricError::SelfTest {
            device: is_own.then_some(name),
            is_avoidable: tried.iter().all(|tried| tried.is_avoidable()),
            tried,
        })
    }

    /// The connection came to its end. If a request of the self-test was refused, that is the reason.
    fn explain(&mut self, connection: &Connection, error: FabricError) -> FabricError {
        let refused = connection.with_sending(|sending, _| sending.refused());
        // The end of a whole device is no fault of a request.
        let is_fault_of_device = match (&error, connection.end().get()) {
            (_, Some(End::DeviceFailed(_))) => return error,
            (FabricError::Completion { peer_is_silent, .. }, _) => !peer_is_silent,
            (FabricError::DeviceEvent { .. }, _) => true,
            _ => false,
        };
        let of_number = |number| self.posted.iter().find(|(last, ..)| *last >= number);
        match refused.and_then(of_number) {
            Some((_, tried, Whose::Own)) => self.own.add(*tried),
            Some((_, tried, Whose::Peers)) => self.peers.add(*tried),
            // The peer's write into the window was refused here.
            None if refused.is_none() && self.is_window_named && is_fault_of_device => self.own.add(Tried::Windows),
            None if refused.is_none() && (is_fault_of_device || error == FabricError::PeerGone) => {
                if self.awaits_read_alone(connection) || (is_read_under_way(connection) && doubt_reads(connection)) {
                    self.own.add(Tried::Reads);
                }
            }
            None => return error,
        }
        self.verdict(connection).unwrap_or(error)
    }

    /// The time is over.
    pub(crate) fn explain_timeout(&mut self, connection: &Connection) -> FabricError {
        if self.awaits_read_alone(connection) {
            self.own.add(Tried::Reads);
        }
        self.verdict(connection).unwrap_or(FabricError::TimedOut)
    }

    /// Whether nothing but the completion of the read is missing. What the peer sent after it got the read has come, so
    /// the answer should have.
    fn awaits_read_alone(&self, connection: &Connection) -> bool {
        self.turn == Turn::Over && self.to_send.is_empty() && is_read_under_way(connection)
    }

    /// A request could not be posted.
    fn explain_post(&mut self, connection: &Connection, error: FabricError, tried: Tried) -> FabricError {
        // Some providers refuse requests of a connection that has come to its end.
        if connection.has_come_to_its_end() {
            let ended = connection.explain_end(None);
            return self.explain(connection, ended);
        }
        // So fails any call for a device that is gone, or has failed as a whole. Its event may come later.
        if matches!(&error, FabricError::Verbs { error, .. } if matches!(error.0, libc::EIO | libc::ENODEV)) {
            return error;
        }
        self.own.add(tried);
        self.verdict(connection).unwrap_or(error)
    }
}

/// Whether the read of the self-test was posted and is not complete.
fn is_read_under_way(connection: &Connection) -> bool {
    connection.question() == Some(Question::Read) && !connection.with_sending(|sending, _| sending.is_answered())
}

/// The connection ended while the read was under way: the peer has gone, or its device has answered the read by a
/// Terminate, which looks the same here. True: the device has failed reads.
fn doubt_reads(connection: &Connection) -> bool {
    let device = connection.id().device();
    device.is_some_and(|device| devices::doubt_reads(&device.name()))
}

fn make_window(connection: &Connection) -> Result<Window, FabricError> {
    let (area, pages) = WindowArea::make(&connection.account, WINDOW_BYTES, WINDOW_BYTES)?;
    let area = Arc::new(area);
    connection.areas.add(&area);
    Ok(Window { area, pages })
}

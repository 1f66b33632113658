//! Suspects paths whose peer's host owes an answer for too long.

use std::time::{Duration, Instant};

use inet_rdma_paths::{Look, Notice as Suspicion, Path};
use inet_rdma_session::Memory;

use crate::life::Life;
use crate::link::Link;
use crate::notice::{Loss, Notice};
use crate::questions::{Questions, ROUND_TRIPS};

const PATHS: [Path; 2] = [Path::Tcp, Path::QueuePair];

impl<H: AsRef<[u8]>, L: Memory> Link<H, L> {
    /// Suspects a path that owes an answer for this time. None: no path.
    pub fn set_patience(&mut self, time: Option<Duration>) {
        self.paths.set_patience(time);
    }

    /// The node did not run for a while: suspects all paths, and writes nothing over them.
    ///
    /// The machine may have been restored from a snapshot, and the peer may have received bytes after it was taken.
    /// Then the peer's kernel drops what this side writes at the same places of the stream and takes what follows, and
    /// sealed records would have keys and nonces that have served before. So an answer, which the peer's kernel gives
    /// to no such connection, releases the path; a sealed one is replaced in spite of an answer, as a record may have
    /// been lost on its way to the peer. A queue pair stays held until an attempt to resume gives it up.
    pub fn hold_writes(&mut self, now: Instant) {
        if self.is_watching() {
            self.paths.hold_writes(now);
            self.tell_suspicion();
        }
    }

    /// Before the start the paths belong to the settlement; a link that is about to end has its own deadline.
    pub(crate) fn is_watching(&self) -> bool {
        self.life == Life::Up
    }

    /// Looks at the paths whose time has come.
    pub(crate) fn look_if_due(&mut self, now: Instant) {
        if self.paths.at().is_some() && self.is_watching() {
            for path in PATHS {
                self.looks[path as usize] |= self.paths.is_due(path, now);
            }
        }
    }

    /// Packets have come over TCP, before [`Self::handle_received`].
    pub fn handle_packets(&mut self, now: Instant) {
        if let Some(patience) = self.paths.patience() {
            self.silence.handle_packets(patience, || now);
        }
    }

    /// Sends a tick if the peer has fallen silent, and looks whether its host answers.
    pub(crate) fn ask_if_silent(&mut self, now: Instant) {
        if self.silence.at().is_none() || !self.is_watching() {
            return;
        }
        let window = self.paths.patience().unwrap_or_default();
        let is_silent = self.silence.begins(window, now);
        if is_silent && !self.session.is_sent_by_queue() && self.paths.wants_data_written(Path::Tcp) {
            self.session.tick();
            self.ask_with_write(now);
            self.request_awaited_transmission();
        }
    }

    /// Looks at a path, if it is suspected: bytes have come over it.
    pub(crate) fn look_if_suspected(&mut self, path: Path) {
        self.looks[path as usize] |= self.paths.is_suspected(path);
    }

    /// The next path at which the caller must look.
    pub(crate) fn next_look(&mut self, now: Instant) -> Option<Path> {
        for path in PATHS {
            if !std::mem::take(&mut self.looks[path as usize]) {
                continue;
            }
            match self.own_look(path, now) {
                None => return Some(path),
                Some(look) => self.handle_look(path, now, look),
            }
        }
        None
    }

    /// A look that needs nothing of the caller: there is no such path, or the peer's answers to questions decide. Over
    /// a path that is held nothing is asked.
    fn own_look(&mut self, path: Path, now: Instant) -> Option<Look> {
        let is_held = self.paths.is_held(path);
        match path {
            Path::Tcp => {
                let Some(present) = self.tcp.present_mut() else {
                    return Some(Look::UNKNOWN);
                };
                let questions = present.questions.as_mut().filter(|_| !is_held)?;
                let waited = self.echo.waited(now);
                let due = self.echo.last_trip() * ROUND_TRIPS;
                let look = questions.handle(now, waited, due, self.session.acknowledged());
                if waited.is_none() {
                    self.ask_now(now);
                }
                self.request_transmission_unless_gathering();
                Some(look)
            }
            Path::QueuePair => (is_held || self.queue.is_none()).then_some(Look::UNKNOWN),
        }
    }

    /// What the peer's host owes over the path at this time, before which the caller has taken the time.
    pub fn handle_look(&mut self, path: Path, now: Instant, look: Look) {
        let was_held = self.paths.is_held(path);
        self.paths.handle_look(path, now, look);
        // Senders wait for room in the peer's ring. The peer's word of it may be lost, this side's device owes nothing,
        // and neither a packet nor a tick follows.
        if path == Path::QueuePair && self.session.is_sent_by_queue() && self.session.unsent_bytes() > 0 {
            self.handle_data_written(path, now);
        }
        if was_held && !self.paths.is_held(path) {
            self.handle_released(now);
        }
        self.tell_suspicion();
    }

    /// The TCP connection, which was held, has answered.
    fn handle_released(&mut self, now: Instant) {
        if self.tcp.present().is_some_and(|present| present.is_sealed) {
            // Told as a loss alone.
            let _notice = self.paths.poll_notice();
            self.lose_tcp(now, Loss::Woke);
        } else {
            self.request_transmission();
        }
    }

    pub(crate) fn tell_suspicion(&mut self) {
        match self.paths.poll_notice() {
            None => {}
            Some(Suspicion::Suspected) => self.tell(Notice::Suspected),
            Some(Suspicion::Trusted) => self.tell(Notice::Trusted),
        }
    }

    /// Whether the peer's answers to questions decide, as a party between the nodes ends the TCP connection, until
    /// there is another connection.
    pub fn let_questions_decide(&mut self, decide: bool) {
        if let Some(present) = self.present_tcp() {
            if present.questions.is_some() != decide {
                present.questions = decide.then(Questions::default);
            }
        }
    }

    /// Asks the peer beside the next write over TCP, unless looks go on that ask. Those have to go on until one of them
    /// has found an answer to a question that was asked behind the write.
    pub(crate) fn ask_with_write(&mut self, now: Instant) {
        let Some(questions) = self.present_tcp().and_then(|present| present.questions.as_mut()) else {
            return;
        };
        questions.begin();
        if self.paths.wants_data_written(Path::Tcp) {
            self.ask_now(now);
        }
    }

    fn ask_now(&mut self, now: Instant) {
        if let Some(number) = self.echo.ask_now(now) {
            self.session.echo(number);
        }
    }
}

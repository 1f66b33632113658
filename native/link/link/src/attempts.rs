//! Attempts to resume the session over another TCP connection.

use std::time::{Duration, Instant};

use inet_rdma_paths::Path;
use inet_rdma_session::{Memory, Standing};

use crate::backlog::Backlog;
use crate::input::Fault;
use crate::life::Life;
use crate::link::Link;
use crate::notice::{Loss, Notice};
use crate::tcp::{Connection, Present, Tcp};
use crate::work::Work;

/// The time in which an attempt that has given up the TCP connection ends: longer than the carrier's steps and
/// `net_setuptime` (7 s). Its process may have been killed.
const ATTEMPT: Duration = Duration::from_secs(10);

/// What an attempt to resume leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resume {
    /// A newer attempt has come before, or this one has led to a resume: nothing changes.
    Outdated,
    /// The session goes on over the connection: the caller calls [`Link::handle_resumed`] with it, or
    /// [`Link::handle_not_resumed`] if it cannot have it.
    Connects,
    /// The attempt keeps a queue pair that this side has lost or suspects meanwhile: the caller resets the connection.
    /// Both sides continue by another attempt, of which the guard is told.
    Reset,
    /// The positions contradict each other, and the link is over. The caller writes the session's bytes to the
    /// connection, which tell the peer. A peer that does not get them learns of the end by its next attempt.
    Refused,
}

impl<H: AsRef<[u8]>, L: Memory> Link<H, L> {
    /// The number of this side's next attempt to resume.
    pub fn next_attempt(&self) -> u64 {
        self.session.next_attempt()
    }

    /// Whether an attempt of the peer with this number may still succeed.
    pub fn accepts(&self, attempt: u64) -> bool {
        self.session.accepts(attempt)
    }

    /// Whether [`Self::suspend`] may be called for an attempt with this number: no newer one has come before.
    pub fn is_newer(&self, attempt: u64) -> bool {
        self.session.is_newer(attempt)
    }

    /// Begins an attempt to resume: gives up the TCP connection. Returns this side's standing for the peer. None: a
    /// newer attempt has come before. `received`: the last read of that connection, if there is one. The caller gives
    /// the session first what has arrived: the peer need not send it again. It keeps the connection until
    /// [`Work::DropSuperseded`].
    pub fn suspend(&mut self, now: Instant, attempt: u64, received: Result<(), Fault<'_>>) -> Option<Standing> {
        if !self.is_newer(attempt) {
            return None;
        }
        let had_tcp = self.tcp.is_present();
        let loss = if had_tcp {
            Some(Loss::Superseded)
        } else {
            self.tcp.loss()
        };
        self.tcp = Tcp::Resuming {
            until: now + ATTEMPT,
            loss,
        };
        if had_tcp {
            self.paths.remove(Path::Tcp);
            self.forget_tcp(now);
            self.handle_last_read(now, received);
        }
        // A queue pair that is suspected is given up like the TCP connection.
        let standing = if self.paths.is_suspected(Path::QueuePair) {
            self.session.suspend_without_path(attempt)
        } else {
            self.session.suspend(attempt)
        };
        self.debug_check();
        standing
    }

    /// The connection is given up in any case. If the session ends with this read, the link ends behind the attempt.
    fn handle_last_read(&mut self, now: Instant, received: Result<(), Fault<'_>>) {
        match received {
            Err(fault @ (Fault::Violation(_) | Fault::Misbehaved(_))) => {
                self.tell_fault(fault);
                self.end_at(now);
                return;
            }
            Err(Fault::Damaged(_)) => {
                let _is_borne = self.damages.add(now);
            }
            Ok(()) | Err(Fault::Lost(_)) => {}
        }
        let life = self.life;
        self.handle_events(now);
        if self.is_over() {
            self.life = life.end_at(now);
        }
    }

    /// The attempt for which the TCP connection was given up has failed. The guard is told of the loss, unless a newer
    /// attempt has come.
    pub fn abandon(&mut self, attempt: u64) {
        let is_newest = self.session.is_newer(attempt.saturating_add(1));
        if is_newest {
            self.fail_attempt();
        }
    }

    /// This side makes no attempt any longer: one that has given up the TCP connection has failed.
    pub fn abandon_own(&mut self) {
        if self.tcp.attempt_until().is_some() && self.session.is_own(self.session.attempt()) {
            self.fail_attempt();
        }
    }

    /// The attempt under way has failed: the guard makes the next one.
    pub(crate) fn fail_attempt(&mut self) {
        self.end_attempt();
        self.tell_lost_again();
    }

    fn end_attempt(&mut self) {
        if let Tcp::Resuming { loss, .. } = self.tcp {
            self.tcp = Tcp::Absent { loss };
            self.order(Work::DropSuperseded);
        }
    }

    /// The attempt has led to another TCP connection, on which the peer has sent its standing.
    pub fn resume(&mut self, now: Instant, attempt: u64, theirs: Standing) -> Resume {
        let is_queue_used =
            self.session.is_sent_by_queue() || self.queue.is_some_and(|queue| self.session.reads_queue(queue.id));
        let keeps_queue = match self.session.resume(attempt, theirs) {
            Ok(keeps_queue) => keeps_queue,
            Err(None) => return Resume::Outdated,
            Err(Some(violation)) => {
                self.session.refuse();
                self.tell(violation.into());
                self.life = Life::Over;
                return Resume::Refused;
            }
        };
        self.end_attempt();
        if !keeps_queue {
            self.give_up_queue(now, is_queue_used);
        } else if self.paths.is_suspected(Path::QueuePair) {
            // The peer has it, and has resumed with it.
            self.session.lose_path();
            self.give_up_queue(now, is_queue_used);
        }
        if keeps_queue && self.queue.is_none() {
            // The queue pair was lost or suspected, or this node stood still, while the attempt was under way. Kept, it
            // would carry the link with nobody at work on another path: the guard ends its loss with `restored`.
            self.tell_lost(Loss::QueuePair);
            return Resume::Reset;
        }
        Resume::Connects
    }

    /// Both sides continue without the queue pair. The peer takes its close for the end of the link until it has
    /// resumed, too, if the queue pair has carried packets.
    fn give_up_queue(&mut self, now: Instant, is_used: bool) {
        if self.queue.is_none() {
            return;
        }
        if is_used {
            self.has_retired = true;
            self.order(Work::RetireQueue);
        } else {
            self.order(Work::CloseQueue);
        }
        self.remove_queue(now);
    }

    /// The TCP connection of [`Resume::Connects`] carries the session, or stands by.
    pub fn handle_resumed(&mut self, now: Instant, connection: Connection) {
        self.add_tcp(now, connection);
        self.changes.resumes += 1;
        self.tell(Notice::Restored);
        self.request_transmission();
        self.debug_check();
    }

    /// This side cannot have the TCP connection of [`Resume::Connects`], for this reason.
    pub fn handle_not_resumed(&mut self, loss: Loss) {
        self.tell_lost(loss);
    }

    pub(crate) fn add_tcp(&mut self, now: Instant, connection: Connection) {
        self.begin_window(connection.reach);
        self.backlog = Backlog::default();
        self.tcp = Tcp::Present(Present::new(connection));
        self.paths.add(Path::Tcp);
        self.note_carried(now);
    }
}

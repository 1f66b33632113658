//! When a port looks for packets without having been woken.
//!
//! A wake-up costs the peer a system call and this node a turn of a poll thread, some 10 to 50 microseconds. Where the peer
//! answers within that time it pays to look: the port asks for its next turn at once, and the VM lets other processes, the
//! receivers first of all, run in between. Where it does not answer, or where a turn takes long as the scheduler has other
//! work, the port arms the connection and sleeps.

use std::time::{Duration, Instant};

/// The longest time to look without an arrival.
const PATIENCE_MAX: Duration = Duration::from_micros(100);
/// The shortest.
const PATIENCE_MIN: Duration = Duration::from_micros(2);
/// A look with this many packets or more says that the peer is busy: it goes on while this side sleeps, and the next wake-up is
/// shared by all that comes until then.
const FULL: usize = 16;
/// Two looks this far apart say that the scheduler has other work: looking would cost it turns, and gain nothing.
const PROMPT: Duration = Duration::from_micros(50);

/// What to do after a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Look again in the next turn.
    Look,
    /// Arm the connection: an event tells.
    Arm,
}

/// The memory of the looks so far.
pub struct Looking {
    patience: Duration,
    /// The last look, and until when to go on, while looking.
    until: Option<(Instant, Instant)>,
}

impl Looking {
    /// Before the first look.
    pub fn new() -> Looking {
        Looking {
            patience: PATIENCE_MAX,
            until: None,
        }
    }

    /// A look has found so many packets.
    pub fn next(&mut self, packets: usize) -> Next {
        let now = Instant::now();
        if packets > 0 {
            if self.until.take().is_some() {
                self.patience = (2 * self.patience).min(PATIENCE_MAX);
            }
            if packets >= FULL {
                return Next::Arm;
            }
            self.until = Some((now, now + self.patience));
            return Next::Look;
        }
        let Some((last, until)) = self.until else {
            return Next::Arm;
        };
        if now < until && now - last < PROMPT {
            self.until = Some((now, until));
            std::thread::yield_now();
            return Next::Look;
        }
        self.patience = (self.patience / 2).max(PATIENCE_MIN);
        self.until = None;
        Next::Arm
    }
}

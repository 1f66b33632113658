//! When a port looks for packets without having been woken.
//!
//! A wake-up costs the peer a system call and this node a turn of a poll thread, some 5 to 50 microseconds. A port can spare
//! it: it asks for its next turn at once and looks again, and the VM runs the receivers in between. A lone request and its
//! answer get through twice as fast then. Where many processes talk at the same time it is the other way round: the scheduler
//! spends its turns on looks that find one packet each, and an armed port finds twenty per wake-up.
//!
//! No rule on what has arrived tells the two apart well, so the port measures: it looks for a moment, sleeps between wake-ups
//! for a moment, and goes on in the way that more packets came through. With the same result again and again it measures
//! less and less often. A port with little traffic always sleeps.

use std::time::{Duration, Instant};

/// What to do after a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Look again in the next turn.
    Look,
    /// The same, and let other threads have the processor first.
    YieldAndLook,
    /// Arm the connection: an event tells.
    Arm,
}

/// How the port finds packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// It looks for [`PATIENCE`] after each arrival.
    Looks,
    /// It arms at once.
    Sleeps,
}

/// How long to look without an arrival: a little longer than an answer takes that is woken for on a busy machine.
const PATIENCE: Duration = Duration::from_micros(100);
/// Two looks this far apart say that this thread or its scheduler has other work: the looks would only take turns from it.
const PROMPT: Duration = Duration::from_micros(50);
/// Looks between two offers of the processor to other threads: on few cores the peer may need just this one.
const LOOKS_PER_YIELD: u32 = 32;

/// How long each way is tried.
const TRIAL: Duration = Duration::from_millis(1);
/// How long the better way is used after the first trials; twice as long each time that they confirm it.
const RUN_MIN: Duration = Duration::from_millis(10);
/// The longest time between two trials.
const RUN_MAX: Duration = Duration::from_millis(640);
/// Fewer packets in a millisecond than these are little traffic.
const PACKETS_PER_MS: u64 = 16;
/// Looking costs this node processor time, so it must bring this many times the packets, in percent.
const GAIN_PERCENT: u64 = 120;

/// What the port is doing to find out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Sleeps, whatever comes.
    NeverLooks,
    /// Tries looking.
    TriesLooks,
    /// Tries sleeping; looking has brought packets at this rate, per second.
    TriesSleeps { looks_rate: u64 },
    /// Uses the better way until then.
    Runs { way: Way, until: Instant },
}

/// The measurement, and the looks under way.
pub struct Looking {
    stage: Stage,
    /// Since when the stage lasts, and the packets that have come in it.
    since: Instant,
    packets: u64,
    /// The way of the last run, and how long it lasted.
    better: (Way, Duration),
    /// The looks since the last arrival; None: armed.
    looks: Option<Looks>,
}

/// Looks without an arrival.
struct Looks {
    last: Instant,
    until: Instant,
    count: u32,
}

impl Looking {
    /// Sleeps until there is traffic to measure; `never_looks`: always.
    pub fn new(now: Instant, never_looks: bool) -> Looking {
        Looking {
            stage: match never_looks {
                true => Stage::NeverLooks,
                false => Stage::Runs {
                    way: Way::Sleeps,
                    until: now,
                },
            },
            since: now,
            packets: 0,
            better: (Way::Sleeps, RUN_MIN),
            looks: None,
        }
    }

    /// A look has found this many packets, and no more are there.
    pub fn next(&mut self, now: Instant, packets: usize) -> Next {
        self.packets += packets as u64;
        if packets > 0 {
            self.measure(now);
            self.looks = (self.way() == Way::Looks).then_some(Looks {
                last: now,
                until: now + PATIENCE,
                count: 0,
            });
            return match self.looks {
                Some(_) => Next::Look,
                None => Next::Arm,
            };
        }
        match &mut self.looks {
            Some(looks) if now < looks.until && now - looks.last < PROMPT => {
                looks.last = now;
                looks.count += 1;
                match looks.count.is_multiple_of(LOOKS_PER_YIELD) {
                    true => Next::YieldAndLook,
                    false => Next::Look,
                }
            }
            _ => {
                self.looks = None;
                Next::Arm
            }
        }
    }

    fn way(&self) -> Way {
        match self.stage {
            Stage::TriesLooks => Way::Looks,
            Stage::TriesSleeps { .. } | Stage::NeverLooks => Way::Sleeps,
            Stage::Runs { way, .. } => way,
        }
    }

    /// Goes on to the next stage when this one has lasted long enough.
    fn measure(&mut self, now: Instant) {
        let lasted = now - self.since;
        let rate = self.packets * 1_000_000 / (lasted.as_micros() as u64).max(1);
        let is_little = rate < PACKETS_PER_MS * 1000;
        let next = match self.stage {
            Stage::NeverLooks => return,
            Stage::Runs { until, .. } if now < until => return,
            Stage::TriesLooks | Stage::TriesSleeps { .. } if lasted < TRIAL => return,
            _ if is_little => Stage::Runs {
                way: Way::Sleeps,
                until: now + RUN_MIN,
            },
            Stage::Runs { .. } => Stage::TriesLooks,
            Stage::TriesLooks => Stage::TriesSleeps { looks_rate: rate },
            Stage::TriesSleeps { looks_rate } if looks_rate * 100 > rate * GAIN_PERCENT => self.run(now, Way::Looks),
            Stage::TriesSleeps { .. } => self.run(now, Way::Sleeps),
        };
        self.stage = next;
        self.since = now;
        self.packets = 0;
    }

    fn run(&mut self, now: Instant, way: Way) -> Stage {
        let (before, lasted) = self.better;
        let run = match before == way {
            true => (2 * lasted).min(RUN_MAX),
            false => RUN_MIN,
        };
        self.better = (way, run);
        Stage::Runs { way, until: now + run }
    }
}

#[cfg(test)]
mod tests;

//! Decides when a port polls for packets by itself, without a wake-up.
//!
//! A wake-up costs the peer a system call and this node a turn of a poll thread: 5 microseconds where processors are
//! awake, 50 where a virtual machine has to bring one back. A port can spare it: it asks for its next turn at once and
//! polls again, and the VM runs the receivers in between. That makes a lone request and its answer 2 to 12 times as
//! fast. Where many processes talk at the same time polling is slower: the scheduler spends its turns on polls that
//! find one packet each, and an armed port finds twenty per wake-up.
//!
//! So a port whose wake-ups bring many packets sleeps. Between that case and a lone request, arrivals do not tell which
//! mode is better: the port tries both in turn, and continues with the one that brought more packets. While trials give
//! equal results, they become rarer. A port with little traffic always sleeps. A port whose scheduler has other
//! work ends its trial at once and sleeps: its polls come late, and its peer sends no wake-up meanwhile.

use std::time::{Duration, Instant};

/// The next step after a poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PollStep {
    /// Poll again in the next turn.
    Poll,
    /// Poll again in the next turn, after offering the processor to other threads.
    YieldAndPoll,
    /// Arm the connection, and wait for an event.
    Arm,
}

/// How the port finds packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Mode {
    /// It polls for [`PATIENCE`] after each arrival.
    #[default]
    Polls,
    /// It arms at once.
    Sleeps,
}

/// How long to poll without an arrival: a little longer than a peer that must be woken takes on a busy machine.
const PATIENCE: Duration = Duration::from_micros(100);
/// If two polls are this far apart, the thread or its scheduler has other work, from which polls would take turns.
const PROMPT: Duration = Duration::from_micros(50);
/// Polls between two offers of the processor to other threads: with few cores the peer may need this core.
const POLLS_PER_YIELD: u32 = 32;

/// How long a trial stays with one mode before it changes to the other.
const TURN: Duration = Duration::from_millis(1);
/// How often a trial uses each mode: the rate of a busy link changes by a third from one millisecond to the next.
const TURNS: u32 = 4;
/// How long the better mode is used after the first trial; twice as long each time that the next one confirms it.
const RUN_MIN: Duration = Duration::from_millis(10);
/// The longest time between two trials.
const RUN_MAX: Duration = Duration::from_millis(640);
/// Traffic below this many packets per millisecond is little. A lone request and its answer, with a wake-up each, take
/// up to 200 microseconds on virtual machines: their idle processors wake slowly.
const PACKETS_PER_MS: u64 = 2;
/// Polling costs this node processor time, so it must bring this many times the packets, in percent.
const GAIN_PERCENT: u64 = 150;
/// Minimum number of packets per wake-up at which a port sleeps without a trial: a wake-up that many share costs next
/// to nothing, and polls take turns from the receivers.
const MANY_PER_WAKE: u64 = 8;

/// The arrivals while one mode was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Tally {
    packets: u64,
    /// Polls that found packets.
    finds: u64,
    /// Polls that came [`PROMPT`] or more after the one before.
    late: u64,
    time: Duration,
}

impl Tally {
    /// In packets per second.
    fn rate(self) -> u64 {
        self.packets * 1_000_000 / (self.time.as_micros() as u64).max(1)
    }

    fn is_little(self) -> bool {
        self.rate() < PACKETS_PER_MS * 1000
    }

    /// True if many packets shared each wake-up while the port slept.
    fn is_batched(self) -> bool {
        self.packets >= self.finds * MANY_PER_WAKE
    }

    /// True if the scheduler had other work after most arrivals.
    fn is_late(self) -> bool {
        self.late * 2 > self.finds
    }

    fn add(&mut self, other: Tally) {
        self.packets += other.packets;
        self.finds += other.finds;
        self.late += other.late;
        self.time += other.time;
    }
}

/// A trial: polls and sleeps by turns, and counts what comes in each way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Trial {
    mode: Mode,
    /// Turns of both ways that are done.
    turns: u32,
    polls: Tally,
    sleeps: Tally,
}

impl Trial {
    /// Ends a turn with its tally, and changes to the other mode. Returns the better mode after the last turn.
    fn end_turn(&mut self, tally: Tally) -> Option<Mode> {
        match self.mode {
            Mode::Polls => {
                self.polls.add(tally);
                self.mode = Mode::Sleeps;
                None
            }
            Mode::Sleeps => {
                self.sleeps.add(tally);
                self.mode = Mode::Polls;
                self.turns += 1;
                (self.turns == TURNS).then(|| self.better())
            }
        }
    }

    fn better(&self) -> Mode {
        if !self.sleeps.is_batched() && self.polls.rate() * 100 > self.sleeps.rate() * GAIN_PERCENT {
            Mode::Polls
        } else {
            Mode::Sleeps
        }
    }
}

/// The stage of the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Sleeps, whatever comes.
    NeverPolls,
    /// Uses both modes by turns.
    Tries(Trial),
    /// Uses the better mode until the given time.
    Runs { mode: Mode, until: Instant },
}

/// The measurement, and the polls under way.
pub struct PollPolicy {
    stage: Stage,
    /// Start of the stage.
    since: Instant,
    /// Arrivals in the stage; their time is set when the stage is measured.
    tally: Tally,
    /// The mode of the last run, and how long it lasted.
    better: (Mode, Duration),
    /// The polls since the last arrival; None: armed.
    polls: Option<Polls>,
}

/// Polls without an arrival.
struct Polls {
    last: Instant,
    until: Instant,
    count: u32,
}

impl PollPolicy {
    /// Sleeps until there is traffic to measure; `never_polls`: always.
    pub fn new(now: Instant, never_polls: bool) -> PollPolicy {
        PollPolicy {
            stage: if never_polls {
                Stage::NeverPolls
            } else {
                Stage::Runs {
                    mode: Mode::Sleeps,
                    until: now,
                }
            },
            since: now,
            tally: Tally::default(),
            better: (Mode::Sleeps, RUN_MIN),
            polls: None,
        }
    }

    /// Notes a poll that has found this many packets and left none; returns the next step.
    pub fn next(&mut self, now: Instant, packets: usize) -> PollStep {
        let is_late = self.polls.as_ref().is_some_and(|polls| now - polls.last >= PROMPT);
        self.tally.late += u64::from(is_late);
        if packets > 0 {
            self.tally.packets += packets as u64;
            self.tally.finds += 1;
            self.measure(now);
            self.polls = (self.mode() == Mode::Polls).then_some(Polls {
                last: now,
                until: now + PATIENCE,
                count: 0,
            });
            return match self.polls {
                Some(_) => PollStep::Poll,
                None => PollStep::Arm,
            };
        }
        match &mut self.polls {
            Some(polls) if now < polls.until && !is_late => {
                polls.last = now;
                polls.count += 1;
                if polls.count % POLLS_PER_YIELD == 0 {
                    PollStep::YieldAndPoll
                } else {
                    PollStep::Poll
                }
            }
            _ => {
                self.polls = None;
                PollStep::Arm
            }
        }
    }

    /// True if the port is likely to arm after the next arrival, as far as is known before it.
    pub fn sleeps(&self) -> bool {
        self.mode() == Mode::Sleeps
    }

    fn mode(&self) -> Mode {
        match self.stage {
            Stage::NeverPolls => Mode::Sleeps,
            Stage::Tries(Trial { mode, .. }) | Stage::Runs { mode, .. } => mode,
        }
    }

    /// Goes on to the next stage when this one has lasted long enough.
    fn measure(&mut self, now: Instant) {
        self.tally.time = now - self.since;
        let tally = self.tally;
        let shared = matches!(self.stage, Stage::Runs { mode: Mode::Sleeps, .. }) && tally.is_batched();
        self.stage = match self.stage {
            Stage::NeverPolls => return,
            Stage::Runs { until, .. } if now < until => return,
            Stage::Tries(_) if tally.time < TURN => return,
            _ if tally.is_little() || shared => Stage::Runs {
                mode: Mode::Sleeps,
                until: now + RUN_MIN,
            },
            _ if tally.is_late() => self.run(now, Mode::Sleeps),
            Stage::Runs { .. } => Stage::Tries(Trial::default()),
            Stage::Tries(mut trial) => match trial.end_turn(tally) {
                None => Stage::Tries(trial),
                Some(better) => self.run(now, better),
            },
        };
        self.since = now;
        self.tally = Tally::default();
    }

    fn run(&mut self, now: Instant, mode: Mode) -> Stage {
        let (before, lasted) = self.better;
        let run = if before == mode {
            (2 * lasted).min(RUN_MAX)
        } else {
            RUN_MIN
        };
        self.better = (mode, run);
        Stage::Runs { mode, until: now + run }
    }
}

#[cfg(test)]
mod tests;

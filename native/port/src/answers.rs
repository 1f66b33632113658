//! Whether a path answers: the count of looks that found no answer.
//!
//! The carrier looks at equal intervals, and each look asks the peer's host once more. The peer's kernel or its device
//! answers, so a peer whose VM is busy or stopped answers, too. Looks are counted, not time: a node that was starved or
//! stopped looks late, finds the answers that have arrived meanwhile, and counts one look for all of that time.

use std::time::Duration;

/// Looks in a row without an answer until a path is given up. The carrier looks as many times in the time of the option
/// `dead_after_ms`.
const LOOKS: u32 = 4;

/// A device that has lost a packet sends it again only after its acknowledgement timeout. A path is not given up before
/// it could do so this many times.
const RETRIES: u32 = 2;

/// The count of one path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Answers {
    missing: u32,
}

impl Answers {
    /// Notes the result of a look. Returns true if the path must be given up. `looks`: from [`looks_for`].
    #[must_use]
    pub fn look(&mut self, has_answered: bool, looks: u32) -> bool {
        self.missing = match has_answered {
            true => 0,
            false => self.missing.saturating_add(1),
        };
        self.missing >= looks
    }
}

/// How many looks in a row a path may leave without an answer, one each `interval`.
pub fn looks_for(interval: Duration, ack_timeout: Option<Duration>) -> u32 {
    let retries = ack_timeout.unwrap_or_default() * RETRIES;
    let more = retries.as_micros().div_ceil(interval.as_micros().max(1));
    LOOKS.saturating_add(u32::try_from(more).unwrap_or(u32::MAX))
}

/// Facts that the kernel gives about a TCP connection.
#[derive(Debug, Clone, Copy)]
pub struct Acknowledged {
    /// True while bytes are under way that the peer's kernel has not acknowledged.
    pub is_under_way: bool,
    /// Questions to a peer without room (window probes) since its last acknowledgement. Between processes of one host
    /// the answer may come before the kernel counts the question: then an answered one is counted until the next.
    pub probes: u32,
    /// The time since the last acknowledgement, also a repeated one.
    pub age: Duration,
}

impl Acknowledged {
    /// Whether the peer's kernel owes no answer, or has answered since the last look. `answered_probes`: the count of
    /// probes at the last look that found an acknowledgement; those were answered.
    pub fn is_answer(self, since_look: Duration, answered_probes: &mut u32) -> bool {
        let has_answered = self.age <= since_look;
        if has_answered || self.probes < *answered_probes {
            *answered_probes = self.probes;
        }
        has_answered || !self.is_under_way && self.probes <= *answered_probes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(250);

    fn owed(age_ms: u64) -> Acknowledged {
        Acknowledged {
            is_under_way: true,
            probes: 0,
            age: Duration::from_millis(age_ms),
        }
    }

    #[test]
    fn a_path_that_leaves_four_looks_in_a_row_without_an_answer_is_given_up() {
        let mut answers = Answers::default();
        let looks = looks_for(INTERVAL, None);
        assert_eq!(
            [false; 4].map(|answer| answers.look(answer, looks)),
            [false, false, false, true]
        );
    }

    #[test]
    fn each_answer_begins_the_count_anew() {
        let mut answers = Answers::default();
        for _ in 0..5 {
            assert!(
                [false, false, false, true]
                    .iter()
                    .all(|&answer| !answers.look(answer, 4))
            );
        }
        assert_eq!(answers, Answers::default());
    }

    #[test]
    fn a_look_that_comes_late_counts_once() {
        let mut answers = Answers::default();
        let late = Duration::from_secs(3600);
        // The VM was stopped for an hour. The last acknowledgement is older: the question before the stop was lost.
        assert!(!answers.look(owed(3_700_000).is_answer(late, &mut 0), 4));
        // It came while the VM was stopped.
        assert!(!answers.look(owed(3_599_000).is_answer(late, &mut 0), 4));
        assert_eq!(answers, Answers::default());
    }

    #[test]
    fn an_acknowledgement_since_the_last_look_is_an_answer_whatever_is_under_way() {
        assert!(owed(249).is_answer(INTERVAL, &mut 0));
        assert!(!owed(251).is_answer(INTERVAL, &mut 0));
        // The link is idle: the last acknowledgement is old, and nothing is owed.
        let idle = Acknowledged {
            is_under_way: false,
            ..owed(60_000)
        };
        assert!(idle.is_answer(INTERVAL, &mut 0));
    }

    #[test]
    fn a_probe_that_was_answered_before_it_was_counted_is_not_owed() {
        let asked = |probes, age_ms| Acknowledged {
            is_under_way: false,
            probes,
            ..owed(age_ms)
        };
        let mut answered = 0;
        // The peer answers the first probe, which the kernel counts afterwards. The next one comes a second later.
        assert!(asked(1, 100).is_answer(INTERVAL, &mut answered));
        assert!(asked(1, 350).is_answer(INTERVAL, &mut answered));
        assert!(asked(1, 600).is_answer(INTERVAL, &mut answered));
        // That one is not answered.
        assert!(!asked(2, 1_100).is_answer(INTERVAL, &mut answered));
        // The one after it is, and the kernel counts anew.
        assert!(asked(0, 50).is_answer(INTERVAL, &mut answered));
        assert!(!asked(1, 300).is_answer(INTERVAL, &mut answered));
    }

    #[test]
    fn a_device_gets_the_time_to_send_again() {
        assert_eq!(looks_for(INTERVAL, Some(Duration::ZERO)), 4);
        // 67 ms, 1.07 s and 2.1 s are timeouts of connection managers.
        assert_eq!(looks_for(INTERVAL, Some(Duration::from_millis(67))), 5);
        assert_eq!(looks_for(INTERVAL, Some(Duration::from_millis(1_070))), 13);
        assert_eq!(looks_for(Duration::ZERO, Some(Duration::MAX / 2)), u32::MAX);
    }
}

//! Whether a path answers: the count of looks that found no answer.
//!
//! The carrier looks at equal intervals, and each look asks the peer's host once more. The peer's kernel or its device
//! answers, so a peer whose VM is busy or stopped answers, too. Looks are counted, not time: a node that was starved or
//! stopped looks late, finds the answers that have arrived meanwhile, and counts one look for all of that time.

use std::time::Duration;

/// A device that has lost a packet sends it again only after its acknowledgement timeout. A path is not given up before
/// it could do so this many times.
const RETRIES: u32 = 2;

/// How the carrier looks.
#[derive(Debug, Clone, Copy)]
pub struct Looks {
    /// The time between two looks.
    pub interval: Duration,
    /// Looks in a row without an answer until a path is given up.
    pub count: u32,
}

impl Looks {
    /// The count, with the looks that a device needs to send again.
    pub fn until_given_up(self, ack_timeout: Option<Duration>) -> u32 {
        let retries = ack_timeout.unwrap_or_default() * RETRIES;
        let more = retries.as_micros().div_ceil(self.interval.as_micros().max(1));
        self.count.saturating_add(u32::try_from(more).unwrap_or(u32::MAX))
    }
}

/// The count of one path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Answers {
    missing: u32,
}

impl Answers {
    /// Notes the result of a look. Returns true if the path must be given up. `looks`: as [`Looks::until_given_up`]
    /// gives it.
    #[must_use]
    pub fn look(&mut self, has_answered: bool, looks: u32) -> bool {
        self.missing = match has_answered {
            true => 0,
            false => self.missing.saturating_add(1),
        };
        self.missing >= looks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOKS: Looks = Looks {
        interval: Duration::from_millis(250),
        count: 4,
    };

    #[test]
    fn a_path_that_leaves_four_looks_in_a_row_without_an_answer_is_given_up() {
        let mut answers = Answers::default();
        let looks = LOOKS.until_given_up(None);
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
    fn a_device_gets_the_time_to_send_again() {
        assert_eq!(LOOKS.until_given_up(Some(Duration::ZERO)), 4);
        // 67 ms, 1.07 s and 2.1 s are timeouts of connection managers.
        assert_eq!(LOOKS.until_given_up(Some(Duration::from_millis(67))), 5);
        assert_eq!(LOOKS.until_given_up(Some(Duration::from_millis(1_070))), 13);
        let at_once = Looks {
            interval: Duration::ZERO,
            count: 4,
        };
        assert_eq!(at_once.until_given_up(Some(Duration::MAX / 2)), u32::MAX);
    }
}

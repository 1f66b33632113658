//! Round trips over a link's TCP connection: a question, and the answer that the peer's port gives at once.

use std::time::{Duration, Instant};

/// The shortest time between two questions that measure, with packets.
pub(crate) const WITH_PACKETS: Duration = Duration::from_secs(1);
/// The same, with ticks. The answer wakes both nodes once more. With ticks each 15 s, the usual interval, or 30 s the
/// last minute has a round trip.
pub(crate) const WITH_TICKS: Duration = Duration::from_secs(29);

/// The questions of one link.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Echo {
    /// The question under way.
    asked: Option<(u64, Instant)>,
    /// The last question.
    last: Option<(u64, Instant)>,
    /// The time that the last answer took.
    trip: Duration,
}

impl Echo {
    /// The number to ask with, if this time has passed since the last question, and none is under way.
    #[must_use]
    pub(crate) fn ask(&mut self, now: Instant, interval: Duration) -> Option<u64> {
        let is_early = self
            .last
            .is_some_and(|(_, last)| now.saturating_duration_since(last) < interval);
        if is_early { None } else { self.ask_now(now) }
    }

    /// The number to ask with, if no question is under way.
    #[must_use]
    pub(crate) fn ask_now(&mut self, now: Instant) -> Option<u64> {
        if self.asked.is_some() {
            return None;
        }
        let number = self.last.map_or(0, |(number, _)| number.wrapping_add(1));
        self.last = Some((number, now));
        self.asked = self.last;
        Some(number)
    }

    /// The peer has answered. Returns the time that this took. None: the question was lost with its connection, or
    /// never asked.
    pub(crate) fn handle_answer(&mut self, number: u64, now: Instant) -> Option<Duration> {
        let (_, asked) = self.asked.take_if(|(asked, _)| *asked == number)?;
        self.trip = now.saturating_duration_since(asked);
        Some(self.trip)
    }

    /// The time since the question under way. None: there is none.
    pub(crate) fn waited(&self, now: Instant) -> Option<Duration> {
        self.asked.map(|(_, asked)| now.saturating_duration_since(asked))
    }

    /// The time that the last answer took.
    pub(crate) fn last_trip(&self) -> Duration {
        self.trip
    }

    /// The question under way is lost with the connection.
    pub(crate) fn forget_question(&mut self) {
        self.asked = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_question_is_under_way_and_one_asked_in_a_second() {
        let (mut echo, now) = (Echo::default(), Instant::now());
        let trip = Duration::from_micros(70);
        let number = echo.ask(now, WITH_PACKETS).expect("the first");
        assert_eq!(echo.ask(now + WITH_PACKETS, WITH_PACKETS), None, "under way");
        assert_eq!(echo.handle_answer(number.wrapping_add(1), now), None, "another number");
        assert_eq!(echo.waited(now + trip), Some(trip));
        assert_eq!(echo.handle_answer(number, now + trip), Some(trip));
        assert_eq!(echo.last_trip(), trip);
        assert_eq!(echo.ask(now + WITH_PACKETS / 2, WITH_PACKETS), None, "early");
        let second = echo.ask(now + WITH_PACKETS, WITH_PACKETS).expect("it is time");
        assert_eq!(second, number + 1);
        echo.forget_question();
        assert_eq!(
            echo.handle_answer(second, now + WITH_PACKETS),
            None,
            "lost with its connection"
        );
    }
}

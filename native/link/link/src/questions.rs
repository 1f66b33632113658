//! Questions to the peer's port ([`inet_rdma_session::Session::echo`]) as the look at a TCP connection that a party
//! between the nodes ends: a neighbour on a detour, or a proxy. Its kernel acknowledges what the peer may never get.

use std::time::{Duration, Instant};

use inet_rdma_paths::{Debt, Look};
use inet_rdma_session::Position;

/// An answer may take this many round trips: the round-trip time may grow at once.
pub const ROUND_TRIPS: u32 = 4;

/// What is known of the peer's answers over one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Questions {
    /// The look before has found an answer to the last question.
    has_answered: bool,
    /// The position up to which the peer has acknowledged, at the last look.
    acknowledged: Position,
    /// The time of the last look at which that had grown.
    acknowledged_at: Option<Instant>,
}

impl Questions {
    /// There is a write. A question goes with it or follows, at the next look at the latest; an answer to an earlier
    /// one says nothing of it.
    pub(crate) fn begin(&mut self) {
        self.has_answered = false;
    }

    /// `waited`: the time since the question under way; None: the last one was answered, and the caller asks another
    /// one. That answers the writes between both, so of two looks in a row that find an answer the first one needs the
    /// other. `due`: the time that an answer may take.
    pub(crate) fn handle(
        &mut self,
        now: Instant,
        waited: Option<Duration>,
        due: Duration,
        acknowledged: Position,
    ) -> Look {
        if acknowledged > self.acknowledged {
            self.acknowledged = acknowledged;
            self.acknowledged_at = Some(now);
        }
        let Some(waited) = waited else {
            self.has_answered = !self.has_answered;
            return Look {
                heard: Duration::ZERO,
                answered: Duration::ZERO,
                debt: if self.has_answered { Debt::Later } else { Debt::Nothing },
            };
        };
        self.has_answered = false;
        let since_acknowledged = self.acknowledged_at.map(|at| now.saturating_duration_since(at));
        let answered = since_acknowledged.map_or(waited, |since| since.min(waited));
        Look {
            heard: answered,
            answered,
            debt: Debt::Owed { owed: waited, due },
        }
    }
}

#[cfg(test)]
mod tests {
    use inet_rdma_paths::{Notice, Path, Paths};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const DUE: Duration = Duration::from_millis(1);

    struct World {
        paths: Paths,
        questions: Questions,
        start: Instant,
        acknowledged: Position,
    }

    impl World {
        /// There was a write.
        fn new() -> World {
            let (mut paths, mut questions, start) = (Paths::default(), Questions::default(), Instant::now());
            paths.set_patience(Some(SECOND));
            paths.add(Path::Tcp);
            paths.handle_data_written(Path::Tcp, start);
            questions.begin();
            World {
                paths,
                questions,
                start,
                acknowledged: Position(0),
            }
        }

        /// The next look. `asked`: the time of the question under way.
        fn look(&mut self, asked: Option<Instant>) {
            let now = self.paths.at().expect("a look is due");
            let waited = asked.map(|at| now - at);
            let look = self.questions.handle(now, waited, DUE, self.acknowledged);
            self.paths.handle_look(Path::Tcp, now, look);
        }
    }

    #[test]
    fn a_question_without_an_answer_is_suspected_and_the_answer_ends_that() {
        let mut world = World::new();
        world.look(Some(world.start));
        assert_eq!(world.paths.poll_notice(), Some(Notice::Suspected));
        world.look(Some(world.start));
        assert_eq!(world.paths.poll_notice(), None);
        world.look(None);
        assert_eq!(world.paths.poll_notice(), Some(Notice::Trusted));
    }

    #[test]
    fn a_peer_that_answers_is_looked_at_twice() {
        let mut world = World::new();
        world.look(None);
        world.look(None);
        assert_eq!((world.paths.poll_notice(), world.paths.at()), (None, None));
    }

    #[test]
    fn a_write_between_two_looks_is_looked_at_as_one_at_rest() {
        let mut world = World::new();
        world.look(None);
        let asked = world.paths.at().expect("a look is due") - SECOND;
        world.questions.begin();
        world.look(None);
        assert!(world.paths.at().is_some(), "the answer may be older than the write");
        world.look(Some(asked + SECOND));
        assert_eq!(world.paths.poll_notice(), Some(Notice::Suspected));
    }

    #[test]
    fn a_question_that_waits_behind_bulk_is_answered_by_its_acknowledgement() {
        let mut world = World::new();
        for bytes in 1..20 {
            world.acknowledged = Position(bytes);
            world.look(Some(world.start));
            assert_eq!(world.paths.poll_notice(), None);
        }
        world.look(Some(world.start));
        assert_eq!(world.paths.poll_notice(), Some(Notice::Suspected), "nothing more comes");
    }
}

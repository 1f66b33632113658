//! The questions to the device of a queue pair's peer ([`inet_rdma_fabric::QueuePair::ask`]).

use std::time::{Duration, Instant};

use inet_rdma_fabric::Answer;
use inet_rdma_paths::{Debt, Look};

/// Times that a device can send a lost packet again, each after its acknowledgement timeout, before a suspicion.
const RETRIES: u32 = 2;

/// What the peer's device has been asked, and what it has answered.
#[derive(Debug, Clone, Copy, Default)]
pub struct DeviceQuestions {
    /// Time of the last question. None: there was none.
    at: Option<Instant>,
    /// The answer before it has come to a look.
    has_answered: bool,
}

impl DeviceQuestions {
    /// Call after posting a write and a question. An unanswered earlier question stays the current one.
    pub fn begin(&mut self, now: Instant, answer: Answer) {
        match answer {
            Answer::NotAsked => {}
            Answer::Awaited => {
                self.at.get_or_insert(now);
            }
            Answer::Arrived => self.at = Some(now),
        }
        self.has_answered = false;
    }

    /// Takes the answer to the last question, after which there is a new one. The writes before the last question are
    /// answered with it, those between both only with the new one: so of two looks in a row that find an answer the
    /// first one needs the other. `due`: the time that an answer may take if no packet is lost.
    pub fn handle(&mut self, now: Instant, answer: Answer, due: Duration, ack_timeout: Option<Duration>) -> Look {
        let waited = self.at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        match answer {
            Answer::NotAsked => Look::UNKNOWN,
            Answer::Awaited => {
                self.at.get_or_insert(now);
                self.has_answered = false;
                Look {
                    heard: waited,
                    answered: waited,
                    debt: Debt::Owed {
                        owed: waited,
                        due: due + ack_timeout.unwrap_or_default() * RETRIES,
                    },
                }
            }
            Answer::Arrived => {
                self.at = Some(now);
                self.has_answered = !self.has_answered;
                Look {
                    heard: Duration::ZERO,
                    answered: Duration::ZERO,
                    debt: if self.has_answered { Debt::Later } else { Debt::Nothing },
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use inet_rdma_paths::{Notice, Path, Paths};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A queue pair over which there was a write at this time.
    fn written(now: Instant) -> (Paths, DeviceQuestions) {
        let (mut paths, mut questions) = (Paths::default(), DeviceQuestions::default());
        paths.set_patience(Some(SECOND));
        paths.add(Path::QueuePair);
        paths.handle_data_written(Path::QueuePair, now);
        questions.begin(now, Answer::Arrived);
        (paths, questions)
    }

    fn look(paths: &mut Paths, questions: &mut DeviceQuestions, answer: Answer, ack_timeout: Duration) -> Instant {
        let now = paths.at().expect("a look is due");
        let look = questions.handle(now, answer, SECOND, Some(ack_timeout));
        paths.handle_look(Path::QueuePair, now, look);
        now
    }

    #[test]
    fn a_device_that_answers_is_looked_at_twice() {
        let (mut paths, mut questions) = written(Instant::now());
        look(&mut paths, &mut questions, Answer::Arrived, Duration::ZERO);
        look(&mut paths, &mut questions, Answer::Arrived, Duration::ZERO);
        assert_eq!((paths.poll_notice(), paths.at()), (None, None));
    }

    #[test]
    fn a_device_that_owes_nothing_is_looked_at_again_while_bytes_wait() {
        let start = Instant::now();
        let (mut paths, mut questions) = written(start);
        for answer in [Answer::Arrived, Answer::Arrived, Answer::Awaited] {
            let now = look(&mut paths, &mut questions, answer, Duration::ZERO);
            paths.handle_data_written(Path::QueuePair, now);
        }
        assert_eq!(paths.poll_notice(), Some(Notice::Suspected));
    }

    #[test]
    fn a_device_that_does_not_answer_is_suspected_after_the_time() {
        let start = Instant::now();
        let (mut paths, mut questions) = written(start);
        let now = look(&mut paths, &mut questions, Answer::Awaited, Duration::ZERO);
        assert_eq!((paths.poll_notice(), now - start), (Some(Notice::Suspected), SECOND));
        look(&mut paths, &mut questions, Answer::Arrived, Duration::ZERO);
        assert_eq!(paths.poll_notice(), Some(Notice::Trusted));
    }

    #[test]
    fn a_device_gets_the_time_to_send_again() {
        let start = Instant::now();
        // 67 ms, 1.07 s and 2.1 s are timeouts of connection managers.
        for ack_timeout in [67, 1_070, 2_100].map(Duration::from_millis) {
            let (mut paths, mut questions) = written(start);
            let mut now = start;
            while paths.poll_notice().is_none() {
                now = look(&mut paths, &mut questions, Answer::Awaited, ack_timeout);
            }
            assert!(now - start >= SECOND + ack_timeout * 2 - Duration::from_millis(10));
        }
    }

    #[test]
    fn a_transport_without_answers_is_not_suspected() {
        let (mut paths, mut questions) = written(Instant::now());
        look(&mut paths, &mut questions, Answer::NotAsked, Duration::ZERO);
        assert_eq!((paths.poll_notice(), paths.at()), (None, None));
    }
}

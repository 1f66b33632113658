//! Whether the peer's kernel answers over a TCP connection.

use std::time::{Duration, Instant};

use crate::answers::Answers;

/// Facts that the kernel gives about a TCP connection.
#[derive(Debug, Clone, Copy)]
pub struct Acknowledged {
    /// True while bytes are under way that the peer's kernel has not acknowledged.
    pub is_under_way: bool,
    /// Questions to a peer without room (window probes) since its last acknowledgement.
    pub probes: u32,
    /// The time since the last acknowledgement, also a repeated one.
    pub age: Duration,
}

/// A kernel answers a window probe only this long after its last answer (ip-sysctl.rst, `tcp_invalid_ratelimit`, the
/// default of Linux). The second probe comes 424 ms after the first where the round trip is short.
const ANSWERS_APART: Duration = Duration::from_millis(500);

/// What one TCP connection has asked of the peer's kernel, and what that kernel has answered.
#[derive(Debug, Default)]
pub struct TcpAnswers {
    /// Time of the last look. None: the next look is the first one.
    looked_at: Option<Instant>,
    answers: Answers,
    /// The probes, by the kernel's count, that need no answer: the peer has answered since, or they were sent within
    /// [`ANSWERS_APART`] of its last answer.
    excused_probes: u32,
}

impl TcpAnswers {
    /// Looks whether the peer's kernel has acknowledged anything since the last look. Returns true if the connection
    /// must be given up: `looks` looks in a row have found no answer. The caller sends something after each look.
    /// `acknowledged` asks the own kernel; None: it does not say, and the socket's own error shows with the next read.
    #[must_use]
    pub fn look(&mut self, now: Instant, looks: u32, acknowledged: impl FnOnce() -> Option<Acknowledged>) -> bool {
        let Some(before) = self.looked_at.replace(now) else {
            return false;
        };
        let has_answered =
            acknowledged().is_none_or(|acknowledged| self.is_answer(acknowledged, now.duration_since(before)));
        self.answers.look(has_answered, looks)
    }

    /// Forgets all looks: the next one is the first. The kernel's count of probes goes on with the connection.
    pub fn forget(&mut self) {
        self.looked_at = None;
        self.answers = Answers::default();
    }

    /// True if the peer's kernel owes no answer, or has answered since the last look.
    fn is_answer(&mut self, acknowledged: Acknowledged, since_look: Duration) -> bool {
        let Acknowledged {
            is_under_way,
            probes,
            age,
        } = acknowledged;
        // A probe that the kernel counts for the first time was sent after the last look.
        let is_soon = age.saturating_sub(since_look) < ANSWERS_APART;
        if is_soon || probes < self.excused_probes {
            self.excused_probes = probes;
        }
        age <= since_look || !is_under_way && probes <= self.excused_probes
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;
    use crate::tcp_info::acknowledged;

    const INTERVAL: Duration = Duration::from_millis(250);

    fn owed(age_ms: u64) -> Acknowledged {
        Acknowledged {
            is_under_way: true,
            probes: 0,
            age: Duration::from_millis(age_ms),
        }
    }

    fn probed(probes: u32, age_ms: u64) -> Acknowledged {
        Acknowledged {
            is_under_way: false,
            probes,
            ..owed(age_ms)
        }
    }

    #[test]
    fn a_connection_that_leaves_four_looks_without_an_answer_is_given_up_and_the_first_look_does_not_count() {
        let start = Instant::now();
        let mut tcp = TcpAnswers::default();
        let look = |tcp: &mut TcpAnswers, count| tcp.look(start + INTERVAL * count, 4, || Some(owed(60_000)));
        assert_eq!([0, 1, 2, 3].map(|count| look(&mut tcp, count)), [false; 4]);
        tcp.forget();
        assert_eq!([4, 5, 6, 7].map(|count| look(&mut tcp, count)), [false; 4]);
        assert!(look(&mut tcp, 8));
    }

    #[test]
    fn a_kernel_that_does_not_say_counts_as_an_answer() {
        let start = Instant::now();
        let mut tcp = TcpAnswers::default();
        assert!((0..10).all(|count| !tcp.look(start + INTERVAL * count, 1, || None)));
    }

    #[test]
    fn a_look_that_comes_late_counts_once() {
        let start = Instant::now();
        let late = start + Duration::from_secs(3600);
        let mut tcp = TcpAnswers::default();
        assert!(!tcp.look(start, 2, || None));
        // The VM was stopped for an hour. The last acknowledgement is older: the question before the stop was lost.
        assert!(!tcp.look(late, 2, || Some(owed(3_700_000))));
        let mut tcp = TcpAnswers::default();
        assert!(!tcp.look(start, 1, || None));
        // It came while the VM was stopped.
        assert!(!tcp.look(late, 1, || Some(owed(3_599_000))));
    }

    #[test]
    fn an_acknowledgement_since_the_last_look_is_an_answer_whatever_is_under_way() {
        let mut tcp = TcpAnswers::default();
        assert!(tcp.is_answer(owed(249), INTERVAL));
        assert!(!tcp.is_answer(owed(251), INTERVAL));
        // The link is idle: the last acknowledgement is old, and nothing is owed.
        assert!(tcp.is_answer(probed(0, 60_000), INTERVAL));
    }

    #[test]
    fn a_probe_soon_after_an_answer_is_not_owed() {
        let mut tcp = TcpAnswers::default();
        // The peer answers a probe; the next one comes 424 ms later, and the one behind it after 848 ms.
        assert!(tcp.is_answer(probed(0, 100), INTERVAL));
        assert!(tcp.is_answer(probed(0, 350), INTERVAL));
        assert!(tcp.is_answer(probed(1, 600), INTERVAL));
        assert!(tcp.is_answer(probed(1, 850), INTERVAL));
        assert!(tcp.is_answer(probed(1, 1_100), INTERVAL));
        assert!(!tcp.is_answer(probed(2, 1_350), INTERVAL));
        assert!(!tcp.is_answer(probed(2, 1_600), INTERVAL));
        // The peer answers the next one, and the kernel counts anew.
        assert!(tcp.is_answer(probed(0, 50), INTERVAL));
        assert!(!tcp.is_answer(probed(1, 800), INTERVAL));
    }

    #[test]
    fn a_peer_that_reads_nothing_is_not_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut socket = TcpStream::connect(listener.local_addr().expect("bound")).expect("a connection");
        let _never_read = listener.accept().expect("the connection");
        socket.set_nonblocking(true).expect("nonblocking");
        let mut tcp = TcpAnswers::default();
        // Longer than the first four probes take.
        for _ in 0..32 {
            while socket.write(&[0; 4096]).is_ok() {}
            assert!(!tcp.look(Instant::now(), 4, || acknowledged(socket.as_fd())));
            std::thread::sleep(INTERVAL / 2);
        }
    }
}

//! Facts that the kernel gives about a TCP connection (tcp(7), `TCP_INFO`).

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use inet_rdma_link::{ROUND_TRIPS, Reach};
use inet_rdma_paths::{Debt, Look};

use crate::multipath;
use crate::multipath::has_ended;
use crate::socket_options::get;

/// Window or keepalive probes in a row of which one must be answered: a kernel answers a window probe only 500 ms after
/// its last answer to one (ip-sysctl.rst, `tcp_invalid_ratelimit`), and the second one may come earlier.
const PROBES: u8 = 2;
/// A round trip between kernels within a host takes 10 to 100 us, and within a rack not much more.
const NEAR: Duration = Duration::from_micros(200);
/// Retransmissions in a row without an answer: 0.6 s or more.
const STUCK: u8 = 2;

/// What is known of the answers over one connection.
#[derive(Debug, Clone, Copy, Default)]
pub struct Answers {
    /// The acknowledged bytes and the delivered segments at the last look. Selective acknowledgements count, too. Of a
    /// connection with MPTCP, the acknowledged part of its stream.
    acknowledged: (u64, u32),
    /// The last time at which these may have changed. None: there was no look.
    at: Option<Instant>,
    /// With MPTCP, the end of the stream at an earlier look, and the time when all before it was acknowledged.
    written: u64,
    all_at: Option<Instant>,
    /// Whether it is a socket of MPTCP. None: there was no look.
    is_multipath: Option<bool>,
}

/// How far a connection between these ends leads, by the shortest round trip that the kernel has seen so far.
pub fn reach(socket: BorrowedFd<'_>, ends: Option<(SocketAddr, SocketAddr)>) -> Reach {
    if ends.is_some_and(|(own, peer)| own.ip() == peer.ip()) {
        return Reach::Loopback;
    }
    // A kernel before Linux 4.6 leaves it 0.
    match info(socket).map(|info| info.tcpi_min_rtt) {
        Some(trip_us @ 1..) if Duration::from_micros(trip_us.into()) < NEAR => Reach::Near,
        _ => Reach::Far,
    }
}

/// What the peer's kernel owes over this connection at this time. The call does not wait.
pub fn look(socket: BorrowedFd<'_>, now: Instant, answers: &mut Answers) -> Look {
    let is_multipath = *answers
        .is_multipath
        .get_or_insert_with(|| multipath::is_multipath(socket));
    if let Some(facts) = is_multipath.then(|| multipath::facts(socket)).flatten() {
        return look_at_subflows(&facts, now, answers);
    }
    let Some(info) = info(socket) else {
        return Look::UNKNOWN;
    };
    let heard = Duration::from_millis(info.tcpi_last_ack_recv.into());
    let answered = answers.note((info.tcpi_bytes_acked, info.tcpi_delivered), heard, now);
    let debt = debt(&info);
    Look { heard, answered, debt }
}

/// Over several subflows the bytes that one of them loses go over another one, so an answer is one to the connection's
/// bytes. The peer's host owes it for the least time for which an open subflow waits. The kernel may send what a cut
/// subflow has lost piece by piece, each after a pause (Linux 6.18: bulk stood still for 8 s): beside such a subflow an
/// answer is one to all bytes that were written before.
fn look_at_subflows(facts: &multipath::Facts, now: Instant, answers: &mut Answers) -> Look {
    let open = facts.subflows().iter().filter(|subflow| !has_ended(subflow));
    let heard = open.clone().map(|subflow| subflow.tcpi_last_ack_recv).min();
    let heard = heard.map_or(Duration::MAX, |ms| Duration::from_millis(ms.into()));
    let moved = answers.note((facts.acknowledged, 0), heard, now);
    let all = answers.note_all(facts, heard, now);
    let is_stuck = open
        .clone()
        .any(|subflow| subflow.tcpi_unacked > 0 && subflow.tcpi_retransmits >= STUCK);
    let answered = if is_stuck { all } else { moved };
    let least = open.map(debt).reduce(|one, other| match (one, other) {
        (Debt::Owed { owed, due }, Debt::Owed { owed: less, due: more }) => Debt::Owed {
            owed: owed.min(less),
            due: due.max(more),
        },
        (Debt::Owed { due, .. }, _) | (_, Debt::Owed { due, .. }) => Debt::Owed {
            owed: Duration::ZERO,
            due,
        },
        (Debt::Later, _) | (_, Debt::Later) => Debt::Later,
        _ => Debt::Nothing,
    });
    let debt = match least {
        _ if !facts.is_unacknowledged => Debt::Nothing,
        // All ways are cut. The kernel keeps such a connection for a minute, and no event reports that.
        None => Debt::Owed {
            owed: Duration::MAX,
            due: Duration::ZERO,
        },
        // The bytes wait in the connection for room at the peer.
        Some(Debt::Nothing) => Debt::Later,
        Some(debt) => debt,
    };
    Look { heard, answered, debt }
}

impl Answers {
    /// Returns the time since the peer's kernel had acknowledged all that had been written some time before.
    fn note_all(&mut self, facts: &multipath::Facts, heard: Duration, now: Instant) -> Duration {
        // Numbers of bytes wrap.
        let is_all = (facts.acknowledged.wrapping_sub(self.written) as i64) >= 0;
        if is_all || self.all_at.is_none() {
            self.written = facts.written;
            self.all_at = now.checked_sub(heard);
        }
        self.all_at.map_or(heard, |at| now.saturating_duration_since(at))
    }

    /// Takes what the peer's kernel has acknowledged, and the time since it has last acknowledged something, which need
    /// not be that. Returns the time since that has changed.
    fn note(&mut self, acknowledged: (u64, u32), heard: Duration, now: Instant) -> Duration {
        if self.acknowledged != acknowledged {
            self.acknowledged = acknowledged;
            self.at = now.checked_sub(heard);
        }
        self.at.map_or(heard, |at| now.saturating_duration_since(at))
    }
}

/// What the peer's kernel owes over one flow.
fn debt(info: &libc::tcp_info) -> Debt {
    let owed = |owed_us| Debt::Owed {
        owed: Duration::from_micros(u64::from(owed_us)),
        // By the kernel's average.
        due: Duration::from_micros(info.tcpi_rtt.into()) * ROUND_TRIPS,
    };
    if has_ended(info) {
        Debt::Ended
    } else if info.tcpi_unacked > 0 {
        // The kernel doubles the time until the next retransmission with each one. The sum of the times before is the
        // present one without the first.
        let first_us = info.tcpi_rto.checked_shr(info.tcpi_backoff.into()).unwrap_or(0);
        owed(if info.tcpi_retransmits > 0 {
            info.tcpi_rto - first_us
        } else {
            0
        })
    } else if info.tcpi_probes >= PROBES {
        owed(0)
    } else if info.tcpi_notsent_bytes > 0 || info.tcpi_probes > 0 {
        Debt::Later
    } else {
        Debt::Nothing
    }
}

/// None: the kernel does not say. The socket's own error shows with the next read.
fn info(socket: BorrowedFd<'_>) -> Option<libc::tcp_info> {
    // SAFETY: the type has integers only, for which all bytes are values.
    unsafe { get(socket, libc::IPPROTO_TCP, libc::TCP_INFO, std::mem::zeroed()) }
}

#[cfg(test)]
mod tests {
    use inet_rdma_paths::{Path, Paths};
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;

    /// The smallest value of the option `suspect_after_ms`.
    const PATIENCE: Duration = Duration::from_millis(500);

    fn connection() -> (TcpListener, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let socket = TcpStream::connect(listener.local_addr().expect("bound")).expect("a connection");
        (listener, socket)
    }

    /// A connection of plain TCP, and one with MPTCP if the kernel has it.
    fn connections() -> Vec<(TcpListener, TcpStream)> {
        let mut both = vec![connection()];
        match multipath::tests::listener() {
            Some(listener) => {
                let socket = multipath::tests::connect(&listener);
                both.push((listener, socket));
            }
            None => println!("skipped with MPTCP: the kernel has none"),
        }
        both
    }

    fn look(socket: BorrowedFd<'_>) -> Look {
        super::look(socket, Instant::now(), &mut Answers::default())
    }

    #[test]
    fn the_peers_kernel_acknowledges_what_its_process_does_not_read() {
        for (_listener, mut socket) in connections() {
            socket.write_all(b"never read, never accepted").expect("room");
            while look(socket.as_fd()).debt != Debt::Nothing {
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn what_the_peer_sends_by_itself_is_heard_and_answers_nothing() {
        for (listener, socket) in connections() {
            sends_by_itself(&listener, socket);
        }
    }

    fn sends_by_itself(listener: &TcpListener, mut socket: TcpStream) {
        let (mut peer, _) = listener.accept().expect("the connection");
        let mut answers = Answers::default();
        socket.write_all(b"acknowledged").expect("room");
        while look(socket.as_fd()).debt != Debt::Nothing {
            std::thread::yield_now();
        }
        let first = super::look(socket.as_fd(), Instant::now(), &mut answers);
        assert_eq!(first.answered, first.heard);
        std::thread::sleep(PATIENCE);
        peer.write_all(b"by itself").expect("room");
        socket.read_exact(&mut [0; 9]).expect("it comes");
        let second = super::look(socket.as_fd(), Instant::now(), &mut answers);
        assert!(
            second.answered >= PATIENCE && second.heard < second.answered,
            "{second:?}"
        );
    }

    #[test]
    fn another_descriptor_says_nothing() {
        let file = std::fs::File::open("/dev/null").expect("it is there");
        assert_eq!(look(file.as_fd()), Look::UNKNOWN);
    }

    #[test]
    fn a_connection_that_the_peer_has_reset_is_at_its_end() {
        let (listener, mut socket) = connection();
        let (peer, _) = listener.accept().expect("the connection");
        socket.write_all(b"unread").expect("room");
        while look(socket.as_fd()).debt != Debt::Nothing {
            std::thread::yield_now();
        }
        // With bytes unread this is a reset.
        drop(peer);
        while look(socket.as_fd()).debt != Debt::Ended {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_peer_that_reads_nothing_is_not_suspected() {
        for (listener, socket) in connections() {
            reads_nothing(&listener, socket);
        }
    }

    fn reads_nothing(listener: &TcpListener, mut socket: TcpStream) {
        let _never_read = listener.accept().expect("the connection");
        socket.set_nonblocking(true).expect("nonblocking");
        let mut paths = Paths::default();
        paths.set_patience(Some(PATIENCE));
        paths.add(Path::Tcp);
        let mut answers = Answers::default();
        let end = Instant::now() + PATIENCE * 8;
        // Longer than the first four probes take.
        while Instant::now() < end {
            while socket.write(&[0; 4096]).is_ok() {}
            paths.handle_data_written(Path::Tcp, Instant::now());
            std::thread::sleep(PATIENCE / 4);
            let now = Instant::now();
            if paths.is_due(Path::Tcp, now) {
                paths.handle_look(Path::Tcp, now, super::look(socket.as_fd(), now, &mut answers));
            }
            assert_eq!(paths.poll_notice(), None);
        }
        assert!(paths.at().is_some(), "bytes wait in the kernel");
    }
}

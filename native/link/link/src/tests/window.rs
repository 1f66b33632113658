//! Windows on paths of different lengths and widths, on virtual time.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use inet_rdma_session::{Role, Sink, Turn, WINDOW_BYTES_FIRST};

use super::side::Large;
use crate::{Connection, Reach, TcpWritten, Work};

type Link = crate::Link<Vec<u8>, Large>;

const MIB: usize = 1 << 20;
const MS: Duration = Duration::from_millis(1);
/// Bytes of a packet with its length.
const PACKET: usize = 64 * 1024;
/// Bytes that the kernel takes before it has sent them.
const UNSENT: usize = 256 * 1024;

/// A path, the same in both directions.
#[derive(Clone, Copy)]
struct Route {
    round_trip_ms: u64,
    bytes_per_ms: usize,
}

/// One direction of a connection.
#[derive(Default)]
struct Direction {
    unsent: VecDeque<u8>,
    under_way: VecDeque<(Instant, Vec<u8>)>,
}

/// Counts packets, which have their number in their first bytes.
#[derive(Default)]
struct Counter {
    packets: u64,
}

impl Sink for Counter {
    type Large = Large;

    fn allocate(&mut self, bytes: usize) -> Option<Large> {
        Some(Large(vec![0; bytes]))
    }

    fn small(&mut self, _packet: &[u8]) {
        self.packets += 1;
    }

    fn large(&mut self, packet: Large) {
        assert_eq!(packet.0[..8], self.packets.to_be_bytes());
        self.packets += 1;
    }
}

/// Two links; the first one sends as much as its port takes.
struct Simulation {
    now: Instant,
    route: Route,
    links: [Link; 2],
    directions: [Direction; 2],
    arrived: Counter,
    sent: u64,
    sends: bool,
    is_busy: bool,
    /// What the node allows beyond the first window.
    beyond_max: usize,
}

impl Simulation {
    fn new(route: Route, told: Option<[usize; 2]>) -> Simulation {
        let now = super::side::start();
        let mut links = [Role::Initiator, Role::Acceptor].map(|role| Link::new(role, 1 << 20));
        for (side, link) in links.iter_mut().enumerate() {
            if let Some(told) = told {
                link.tell_window(told[side]);
            }
            link.handle_connected(
                now,
                Connection {
                    reach: Reach::Far,
                    is_sealed: false,
                },
            );
            link.start();
        }
        Simulation {
            now,
            route,
            links,
            directions: Default::default(),
            arrived: Counter::default(),
            sent: 0,
            sends: true,
            is_busy: false,
            beyond_max: usize::MAX,
        }
    }

    fn work(&mut self, side: usize) {
        while let Some(work) = self.links[side].poll_work(self.now) {
            let link = &mut self.links[side];
            match work {
                Work::ResizeWindow(wanted) => {
                    link.handle_window(wanted, wanted.min(WINDOW_BYTES_FIRST.saturating_add(self.beyond_max)))
                }
                Work::SetBusy(is_busy) if side == 0 => self.is_busy = is_busy,
                Work::Transmit(_) => {
                    let before = link.session().tcp_bytes();
                    let unsent = &mut self.directions[side].unsent;
                    let mut written = TcpWritten::All;
                    while link.session_mut().poll_transmit() {
                        if unsent.len() >= UNSENT {
                            written = TcpWritten::Blocked;
                            break;
                        }
                        let mut bytes = 0;
                        link.session().transmission(|slice| {
                            unsent.extend(slice);
                            bytes += slice.len();
                            true
                        });
                        link.session_mut().handle_transmitted(bytes);
                    }
                    link.handle_tcp_written(self.now, before, 0, written);
                }
                _ => {}
            }
        }
    }

    /// The next millisecond.
    fn step(&mut self) {
        self.now += MS;
        for side in 0..2 {
            let direction = &mut self.directions[side];
            let bytes = direction.unsent.len().min(self.route.bytes_per_ms);
            if bytes > 0 {
                let arrives = self.now + MS * u32::try_from(self.route.round_trip_ms / 2).expect("short");
                direction
                    .under_way
                    .push_back((arrives, direction.unsent.drain(..bytes).collect()));
            }
            if direction.unsent.len() < UNSENT / 2 && self.links[side].waits_for_tcp_room() {
                self.links[side].handle_writable();
            }
            self.work(side);
        }
        while self.sends && !self.is_busy {
            let mut packet = vec![0; PACKET - 4];
            packet[..8].copy_from_slice(&self.sent.to_be_bytes());
            self.sent += 1;
            if self.links[0].append_for_tcp(packet.len(), |log| log.hold(packet)) {
                self.links[0].handle_appended_for_tcp(self.now, PACKET - 4);
            }
            self.work(0);
        }
        for from in 0..2 {
            let link = &mut self.links[1 - from];
            let under_way = &mut self.directions[from].under_way;
            while under_way.front().is_some_and(|(at, _)| *at <= self.now) {
                let (_, bytes) = under_way.pop_front().expect("it is there");
                let mut rest = &bytes[..];
                while !rest.is_empty() {
                    let mut turn = Turn::unbounded();
                    let taken = link.session_mut().handle_input(rest, &mut turn, &mut self.arrived);
                    rest = &rest[taken.expect("no violation")..];
                }
                link.handle_received(self.now, true, Ok(()));
            }
            self.work(1 - from);
        }
    }

    fn run(&mut self, ms: u64) {
        (0..ms).for_each(|_| self.step());
    }

    /// Bytes that arrive in the next milliseconds.
    fn throughput(&mut self, ms: u64) -> usize {
        let before = self.arrived.packets;
        self.run(ms);
        usize::try_from(self.arrived.packets - before).expect("few") * PACKET
    }

    fn product(&self) -> usize {
        self.route.bytes_per_ms * usize::try_from(self.route.round_trip_ms).expect("short")
    }

    fn window(&self) -> usize {
        self.links[0].window_bytes()
    }
}

/// 1 Gbit/s.
const FAR: Route = Route {
    round_trip_ms: 100,
    bytes_per_ms: 125_000,
};
const TOLD: Option<[usize; 2]> = Some([64 * MIB; 2]);

#[test]
fn a_window_grows_until_it_fills_the_path_and_no_further() {
    for round_trip_ms in [4, 6, 100, 200] {
        let mut path = Simulation::new(Route { round_trip_ms, ..FAR }, TOLD);
        path.run(20 * round_trip_ms);
        let (arrived, product) = (path.throughput(1000), path.product());
        assert!(
            arrived > 121_000_000,
            "{arrived} bytes in a second at {round_trip_ms} ms"
        );
        let most = WINDOW_BYTES_FIRST.max(7 * product / 2);
        assert!(path.window() <= most, "{} at {product}", path.window());
        assert!(path.links[0].session().logged_bytes() <= path.window() + MIB);
    }
}

/// Bytes wait in front of a narrow path, and its trips become long.
#[test]
fn a_slow_path_keeps_the_first_window() {
    for round_trip_ms in [2, 20, 100] {
        let mut path = Simulation::new(
            Route {
                round_trip_ms,
                bytes_per_ms: 1250,
            },
            TOLD,
        );
        path.run(20_000);
        assert_eq!(path.window(), WINDOW_BYTES_FIRST);
        assert_eq!(path.links[0].window_limits(), 0);
    }
}

#[test]
fn a_link_at_rest_gives_its_window_back() {
    let mut path = Simulation::new(FAR, TOLD);
    path.run(2000);
    assert!(path.window() > 2 * WINDOW_BYTES_FIRST);
    path.sends = false;
    path.run(1000);
    path.links[1].tick(path.now);
    path.run(200);
    assert_eq!(path.links[0].session().logged_bytes(), 0);
    path.links[0].look_before_tick();
    path.work(0);
    assert_eq!(path.window(), WINDOW_BYTES_FIRST);
}

#[test]
fn a_window_that_is_not_used_shrinks() {
    let mut path = Simulation::new(
        Route {
            round_trip_ms: 200,
            ..FAR
        },
        TOLD,
    );
    path.run(4000);
    let before = path.window();
    assert!(before > 30 * MIB);
    path.route.bytes_per_ms = 5_000;
    path.run(30_000);
    assert!(path.window() <= before / 2, "{} of {before}", path.window());
}

#[test]
fn the_smaller_bound_of_both_sides_holds_and_is_counted() {
    for (told, window) in [
        ([8 * MIB, 64 * MIB], 8 * MIB),
        ([64 * MIB, 6 * MIB], 6 * MIB),
        ([WINDOW_BYTES_FIRST; 2], WINDOW_BYTES_FIRST),
    ] {
        let mut path = Simulation::new(FAR, Some(told));
        path.run(3000);
        assert_eq!(path.window(), window);
        assert_eq!(path.links[0].window_limits() > 0, window > WINDOW_BYTES_FIRST);
        let waits = (0..FAR.round_trip_ms).any(|_| {
            path.run(1);
            path.is_busy
        });
        assert!(waits, "the senders wait");
    }
}

#[test]
fn a_peer_that_tells_none_gets_the_first_window() {
    let mut path = Simulation::new(FAR, None);
    path.run(2000);
    assert_eq!((path.window(), path.links[0].window_limits()), (WINDOW_BYTES_FIRST, 0));
}

#[test]
fn the_bound_of_the_node_holds_and_is_counted() {
    let mut path = Simulation::new(FAR, TOLD);
    path.beyond_max = MIB;
    path.run(2000);
    assert_eq!(path.window(), WINDOW_BYTES_FIRST + MIB);
    assert!(path.links[0].window_limits() > 0);
    path.beyond_max = usize::MAX;
    path.run(2000);
    assert!(path.window() > 2 * WINDOW_BYTES_FIRST);
}

/// The window of a link over this route that a connection of this reach resumes.
fn window_after_resume(route: Route, reach: Reach) -> usize {
    let mut path = Simulation::new(FAR, TOLD);
    path.run(2000);
    path.route = route;
    let attempt = path.links[0].next_attempt();
    let now = path.now;
    let ours = path.links[0].suspend(now, attempt, Ok(())).expect("newer");
    let theirs = path.links[1].suspend(now, attempt, Ok(())).expect("newer");
    path.directions = Default::default();
    for (link, told) in path.links.iter_mut().zip([theirs, ours]) {
        assert_eq!(link.resume(now, attempt, told), crate::Resume::Connects);
        let connection = Connection {
            reach,
            is_sealed: false,
        };
        link.handle_resumed(now, connection);
    }
    path.run(2000);
    path.window()
}

#[test]
fn a_connection_over_loopback_has_a_window_of_its_own() {
    assert_eq!(window_after_resume(FAR, Reach::Loopback), 640 * 1024);
}

/// The kernel of a proxy is near, the peer behind it is not.
#[test]
fn a_near_proxy_does_not_bound_the_window_of_a_far_peer() {
    assert!(window_after_resume(FAR, Reach::Near) > 2 * WINDOW_BYTES_FIRST);
}

//! What connections cost that all do a little: `cargo run --release --example light_connections [connections [seconds
//! [address]]]`.
//!
//! Each connection (default 1,000, with the sizes of a link and a poller of its own for either end; over shm, or over
//! verbs with the address of an RDMA device of this host) makes a round trip of 64 bytes every 100 ms, at moments that
//! are evenly spread, for some seconds (default 3). One thread asks on all connections, another answers on all; both
//! sleep until a polling thread tells them which connection has something to read. Prints a line of JSON: the round
//! trip from the moment at which it was due (median, 99th percentile, most) and the CPU time of the process per round
//! trip, in microseconds.

#[path = "../../../core/engine/tests/support/message.rs"]
mod message;
#[path = "../tests/support/pair.rs"]
mod pair;
#[path = "../tests/support/process.rs"]
mod process;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use inet_rdma_assembly::{ReadLimit, Received};
use inet_rdma_engine::connection::{Caller, Notifier, ReadEnd, Woken};
use inet_rdma_fabric::QueuePair;
use inet_rdma_socket::endpoint::{Attachment, Pollers};
use inet_rdma_socket::poller::Polling;
use message::Messages;
use pair::{BOUND, Halves, Side};

const PERIOD: Duration = Duration::from_millis(100);

/// Tells the thread that serves all connections which of them can be read.
struct Readable {
    index: usize,
    thread: Sender<usize>,
}

impl Notifier for Readable {
    fn wake(&self, woken: Woken, _caller: Caller) {
        if woken.reader {
            // Fails at the end only, when the thread has gone.
            let _ = self.thread.send(self.index);
        }
    }
}

/// One end of a connection.
struct End {
    halves: Halves,
    _attachment: Attachment,
}

impl End {
    fn new(pollers: &Arc<Pollers>, side: &Side, qp: Box<dyn QueuePair>, index: usize, thread: &Sender<usize>) -> Self {
        let thread = thread.clone();
        let halves = side.halves(qp, Arc::new(Readable { index, thread }));
        let attachment = pollers.attach(Arc::clone(&halves.connection)).expect("an attachment");
        let mut end = Self {
            halves,
            _attachment: attachment,
        };
        end.read();
        end
    }

    /// Reads what there is and asks for an event when more arrives; the number of packets.
    fn read(&mut self) -> usize {
        let mut packets = Vec::new();
        loop {
            match self.halves.reader.read(ReadLimit::bytes(4_096), &mut packets) {
                ReadEnd::More => {}
                ReadEnd::Empty if self.halves.connection.arm_reader() => {
                    // Packets that arrive together share a buffer.
                    return packets.iter().map(Received::packets).sum();
                }
                ReadEnd::Empty => {}
                ReadEnd::Closed(closed) => panic!("the connection ended: {closed}"),
            }
        }
    }

    fn send(&mut self, messages: &Messages) {
        let gather = messages.gather(true);
        let written = self.halves.writer.write(&gather, 0, usize::MAX).expect("it is up");
        assert_eq!(written.at, gather.total(), "a packet has room in an empty ring");
    }
}

fn main() {
    let arguments = pair::Arguments::new([1_000, 3]);
    let [connections, seconds] = arguments.numbers;
    assert!(connections > 0 && seconds > 0, "at least one connection and one second");
    // Three of either end, and the pollers' own.
    process::allow_descriptors(6 * connections as u64 + 200);
    let spin = Duration::from_micros(50);
    let pollers = [(); 2].map(|()| Arc::new(Pollers::start(1, Polling::Adaptive { spin }).expect("a thread")));
    let ((to_asker, asker), (to_answerer, answerer)) = (channel(), channel());
    let side = Side::of_link();
    let fabric = arguments.fabric();
    let mut listener = pair::listen(&*fabric, &side);
    let (mut askers, mut answerers): (Vec<_>, Vec<_>) = (0..connections)
        .map(|index| {
            let (left, right) = pair::join_at(&*fabric, &mut *listener, &side, arguments.address);
            (
                End::new(&pollers[0], &side, left, index, &to_asker),
                End::new(&pollers[1], &side, right, index, &to_answerer),
            )
        })
        .unzip();
    // One period to warm up.
    let trips = seconds * connections * 10;
    let (mut times, cpu) = std::thread::scope(|scope| {
        let answers = trips + connections;
        let answerers = &mut answerers;
        scope.spawn(move || answer(answerers, &answerer, answers));
        ask(&mut askers, &asker, connections);
        let before = process::cpu_time();
        let times = ask(&mut askers, &asker, trips);
        (times, process::cpu_time() - before)
    });
    times.sort();
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    println!(
        r#"{{"connections":{connections},"seconds":{seconds},"round_trips":{trips},"p50_us":{:.1},"p99_us":{:.1},"max_us":{:.1},"cpu_us":{:.2}}}"#,
        us(times[trips / 2]),
        us(times[trips * 99 / 100]),
        us(times[trips - 1]),
        us(cpu) / trips as f64,
    );
}

/// Answers each packet, until `trips` have come.
fn answer(ends: &mut [End], readable: &Receiver<usize>, trips: usize) {
    let packet = Messages::new(1, &[64]);
    let mut answered = 0;
    while answered < trips {
        let end = &mut ends[readable.recv_timeout(BOUND).expect("a packet in time")];
        for _ in 0..end.read() {
            end.send(&packet);
            answered += 1;
        }
    }
}

/// Makes `trips` round trips, on the connections in turn; the time of each from the moment at which it was due.
fn ask(ends: &mut [End], readable: &Receiver<usize>, trips: usize) -> Vec<Duration> {
    let packet = Messages::new(1, &[64]);
    let gap = PERIOD.div_f64(ends.len() as f64);
    let start = Instant::now();
    let mut due = vec![VecDeque::new(); ends.len()];
    let (mut asked, mut times) = (0, Vec::with_capacity(trips));
    while times.len() < trips {
        let next = start + gap.mul_f64(asked as f64);
        let now = Instant::now();
        if asked < trips && next <= now {
            due[asked % ends.len()].push_back(next);
            let index = asked % ends.len();
            ends[index].send(&packet);
            asked += 1;
            continue;
        }
        let patience = if asked < trips { next - now } else { BOUND };
        if let Ok(index) = readable.recv_timeout(patience) {
            for _ in 0..ends[index].read() {
                times.push(due[index].pop_front().expect("an answer to a question").elapsed());
            }
        } else {
            assert!(asked < trips, "an answer in time");
        }
    }
    times
}

//! New keys of a sealed connection: under load, in both directions, by bytes and by age.

#[path = "support/attached.rs"]
mod attached;
#[path = "../../../core/assembly/tests/support/contents.rs"]
mod contents;
#[path = "../../../core/engine/tests/support/message.rs"]
mod message;
#[path = "support/pair.rs"]
mod pair;
#[path = "../../../core/engine/tests/support/sealed.rs"]
mod sealed;

use std::sync::Arc;
use std::time::Duration;

use attached::Attached;
use inet_rdma_assembly::ReadLimit;
use inet_rdma_engine::connection::{Closed, ReadEnd, Sealed};
use inet_rdma_fabric_shm::ShmFabric;
use inet_rdma_records::{Cipher, Renewal};
use inet_rdma_socket::endpoint::Pollers;
use inet_rdma_socket::poller::Polling;
use message::Messages;
use pair::{Conn, Keys, Side};
use sealed::{read, sides, write};

fn connect_with(renewal: Renewal) -> (Arc<Conn>, Arc<Conn>) {
    let [left, right] = sides(Cipher::of_this_processor()).map(|side| Side {
        keys: side.keys.map(|keys| Keys { renewal, ..keys }),
        ..side
    });
    pair::connect(&ShmFabric, &left, &right)
}

fn sealed_by(of: &Conn) -> Sealed {
    of.connection().sealed_by().expect("it is")
}

/// Ten times in a run at least, by both sides, while both send: nothing is lost.
#[test]
fn keys_change_under_load() {
    const BYTES: usize = 16 << 20;
    let pollers = Arc::new(Pollers::start(1, Polling::Event).expect("a thread"));
    let renewal = Renewal {
        bytes: 1 << 20,
        age: Some(Duration::from_millis(1)),
    };
    let (left, right) = connect_with(renewal);
    let sizes: Vec<usize> = (0..)
        .scan(0, |sum, number: usize| {
            let size = [10, 300, 70_000, 5_000][number % 4] + number % 97;
            *sum += size;
            (*sum < BYTES).then_some(size)
        })
        .collect();
    let said = [Messages::new(1, &sizes), Messages::new(2, &sizes)];
    let ends = [Attached::new(&pollers, left), Attached::new(&pollers, right)];
    std::thread::scope(|scope| {
        for (end, messages) in ends.iter().zip(&said) {
            scope.spawn(move || {
                end.write(&messages.gather(true), 50_000).expect("it is up");
                end.finish().expect("it is up");
            });
        }
        for (end, messages) in ends.iter().zip(said.iter().rev()) {
            scope.spawn(move || {
                let mut got = 0;
                let closed = loop {
                    match end.read(ReadLimit::bytes(131_072)) {
                        Err(closed) => break closed,
                        Ok(received) => {
                            for packet in contents::packets(&received) {
                                assert_eq!(packet, messages.bodies()[got]);
                                got += 1;
                            }
                        }
                    }
                };
                assert_eq!((got, closed), (messages.bodies().len(), Closed::ByPeer));
            });
        }
    });
    for end in &ends {
        let sealed = end.socket.connection().sealed_by().expect("it is");
        assert!(sealed.usage.generation >= 10, "{sealed:?}");
    }
}

#[test]
fn records_that_lie_unread_keep_their_keys() {
    let (writer, reader) = connect_with(Renewal { bytes: 1, age: None });
    let bodies: Vec<Vec<u8>> = (0..50).map(|body| vec![body; 10]).collect();
    for body in &bodies {
        write(&writer, &[body]);
    }
    assert_eq!(sealed_by(&writer).usage.generation, 49);
    assert_eq!(sealed_by(&reader).receive_generation, 0);
    assert_eq!(read(&reader), (bodies, ReadEnd::Empty));
    assert_eq!(sealed_by(&reader).receive_generation, 49);
}

/// Ticks have keys of their own, which grow old, too.
#[test]
fn keys_change_in_a_direction_that_carries_no_records() {
    let age = Some(Duration::ZERO);
    let (writer, reader) = connect_with(Renewal { bytes: u64::MAX, age });
    for _ in 0..300 {
        writer.connection().tick().expect("it is up");
        assert_eq!(read(&reader), (Vec::new(), ReadEnd::Empty));
    }
    assert_eq!(sealed_by(&reader).receive_generation, 0);
    for generation in 0..3 {
        write(&writer, &[b"x"]);
        assert_eq!(read(&reader), (vec![b"x".to_vec()], ReadEnd::Empty));
        assert_eq!(sealed_by(&reader).receive_generation, generation);
    }
}

#[test]
fn a_plain_connection_has_no_keys() {
    let (plain, _peer) = pair::connect(&ShmFabric, &Side::default(), &Side::default());
    assert_eq!(plain.connection().sealed_by(), None);
}

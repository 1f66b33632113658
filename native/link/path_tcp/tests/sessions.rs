//! Two sessions over real TCP connections that are cut again and again.

mod support;

use std::net::TcpStream;

use inet_rdma_path_tcp::{ReceiveError, TURN_PACKETS, TcpPath};
use inet_rdma_session::Role;
use support::{End, Packets, streams};

fn connection() -> (TcpPath, TcpPath) {
    let (left, right) = streams();
    let adopt = |stream: &TcpStream| {
        stream.set_nonblocking(true).expect("nonblocking");
        TcpPath::adopt(stream.try_clone().expect("descriptor").into())
    };
    (adopt(&left), adopt(&right))
}

fn resume(left: &mut End, right: &mut End) -> (TcpPath, TcpPath) {
    let attempt = left.next_attempt();
    let of_left = left.suspend(attempt).expect("newest");
    let of_right = right.suspend(attempt).expect("newest");
    assert_eq!(right.resume(attempt, of_left), Ok(false));
    assert_eq!(left.resume(attempt, of_right), Ok(false));
    connection()
}

fn append(session: &mut End, packet: Vec<u8>) {
    session.append(packet.len(), |log| {
        if packet.len() < 2048 {
            log.copy(&packet);
        } else {
            log.hold(packet);
        }
    });
}

/// True: the connection is lost.
fn step(path: &mut TcpPath, session: &mut End, packets: &mut Packets) -> bool {
    let is_sent = path.transmit(session).is_ok();
    match path.receive(TURN_PACKETS, session, packets) {
        Ok(_all_or_more) => !is_sent,
        Err(ReceiveError::Lost(_)) => true,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn every_packet_arrives_once_and_in_order_however_often_the_connection_is_cut() {
    let mut random = fastrand::Rng::with_seed(1);
    let (mut left, mut right) = (End::new(Role::Initiator, 1 << 24), End::new(Role::Acceptor, 1 << 24));
    let (mut at_left, mut at_right) = (Packets::default(), Packets::default());
    let (mut to_left, mut to_right) = (Vec::new(), Vec::new());
    let (mut left_path, mut right_path) = connection();
    let mut cuts = 0;
    for round in 0..3000 {
        for (session, sent) in [(&mut left, &mut to_right), (&mut right, &mut to_left)] {
            if session.unsent_bytes() < 1 << 20 {
                let bytes = match random.u32(..20) {
                    0 => random.usize(..300_000),
                    1..5 => random.usize(..20_000),
                    _ => random.usize(..200),
                };
                let packet: Vec<u8> = (0..bytes).map(|at| (at * 31 + round) as u8).collect();
                sent.push(packet.clone());
                append(session, packet);
            }
        }
        let is_cut = random.u32(..20) == 0;
        if is_cut {
            left_path.shutdown();
            cuts += 1;
        }
        let lost = [
            step(&mut left_path, &mut left, &mut at_left),
            step(&mut right_path, &mut right, &mut at_right),
        ];
        if lost.contains(&true) || is_cut {
            (left_path, right_path) = resume(&mut left, &mut right);
        }
    }
    while left.unsent_bytes() + right.unsent_bytes() > 0
        || at_right.0.len() < to_right.len()
        || at_left.0.len() < to_left.len()
    {
        assert!(!step(&mut left_path, &mut left, &mut at_left));
        assert!(!step(&mut right_path, &mut right, &mut at_right));
    }
    assert!(cuts > 100, "{cuts}");
    assert!(at_left.0 == to_left, "the packets differ");
    assert!(at_right.0 == to_right, "the packets differ");
    // A tick in each direction acknowledges the rest.
    left.tick();
    right.tick();
    while left.logged_bytes() + right.logged_bytes() > 0 {
        assert!(!step(&mut left_path, &mut left, &mut at_left));
        assert!(!step(&mut right_path, &mut right, &mut at_right));
    }
    left.shrink();
    assert_eq!(left.allocated_bytes(), 0);
}

//! Arming, events and wake-ups, and two threads at it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use inet_rdma_fabric::{Completion, Fabric, FabricError, QueuePair};
use inet_rdma_stream::CONTROL_BYTES;

use super::support::*;

pub fn a_peer_that_polls_costs_no_wakeup(fabric: &dyn Fabric) {
    let (client, server) = pair(fabric);
    for number in 0..times(fabric, 5_000) {
        client.post_control(&numbered(number)).expect("room");
        assert_eq!(poll_one(&*server), Completion::Control(numbered(number)));
    }
    assert_eq!(client.wakeups_sent(), 0);
    assert!(!readable_within(server.event_fd(), Duration::ZERO));
}

pub fn arming_fails_when_there_is_something_to_poll(fabric: &dyn Fabric) {
    let (client, server) = pair(fabric);
    client.post_control(&numbered(1)).expect("room");
    eventually("arming finds the message", || !server.arm().expect("an honest peer"));
    // Nothing is armed now.
    server.drain_event();
    let before = client.wakeups_sent();
    client.post_control(&numbered(2)).expect("room");
    assert_eq!(client.wakeups_sent(), before);
    assert_eq!(poll_one(&*server), Completion::Control(numbered(1)));
    assert_eq!(poll_one(&*server), Completion::Control(numbered(2)));
}

pub fn an_armed_queue_is_woken_once(fabric: &dyn Fabric) {
    let (client, server) = pair(fabric);
    for round in 1..=100 {
        assert!(server.arm().expect("an honest peer"));
        assert!(!readable_within(server.event_fd(), Duration::ZERO));
        for number in 0..3 {
            client.post_control(&numbered(number)).expect("room");
        }
        assert!(readable_within(server.event_fd(), BOUND));
        assert!(
            client.wakeups_sent() <= round,
            "more than one system call for three messages"
        );
        server.drain_event();
        assert!(!readable_within(server.event_fd(), Duration::ZERO));
        for number in 0..3 {
            assert_eq!(poll_one(&*server), Completion::Control(numbered(number)));
        }
    }
}

pub fn messages_after_a_disarm_are_polled_and_armed_for(fabric: &dyn Fabric) {
    let (client, server) = pair(fabric);
    for number in 0..100 {
        assert!(server.arm().expect("an honest peer"));
        server.disarm();
        client.post_control(&numbered(number)).expect("room");
        assert_eq!(poll_one(&*server), Completion::Control(numbered(number)));
        // An event may have come before the disarm.
        server.drain_event();
        assert!(server.arm().expect("an honest peer"));
        client.post_control(&numbered(number)).expect("room");
        assert!(readable_within(server.event_fd(), BOUND));
        server.drain_event();
        assert_eq!(poll_one(&*server), Completion::Control(numbered(number)));
    }
}

/// Polls, and sleeps while there is nothing. Panics if an armed sleeper is not woken.
fn receive(queue_pair: &dyn QueuePair, out: &mut [Completion]) -> usize {
    loop {
        match queue_pair.poll(out).expect("an honest peer") {
            0 => sleep(queue_pair),
            some => return some,
        }
    }
}

fn sleep(queue_pair: &dyn QueuePair) {
    if queue_pair.arm().expect("an honest peer") {
        assert!(readable_within(queue_pair.event_fd(), BOUND), "a wake-up was lost");
        queue_pair.drain_event();
    }
}

/// The number of messages under way: at most one for each slot of the peer, as with the stream's credits.
struct Window {
    slots: u64,
    sent: AtomicU64,
    got: AtomicU64,
}

impl Window {
    fn of(queue_pair: &dyn QueuePair) -> Window {
        Window {
            slots: queue_pair.remote_hello().receive_slots.into(),
            sent: AtomicU64::new(0),
            got: AtomicU64::new(0),
        }
    }

    /// Posts when the peer has a free slot. Flushes what could not be sent at once.
    fn send(&self, queue_pair: &dyn QueuePair, post: impl Fn() -> Result<(), FabricError>) {
        eventually("the peer takes something", || {
            let _ = queue_pair.poll(&mut []);
            // In this order: messages that are taken now were sent before.
            let got = self.got.load(Ordering::Acquire);
            let sent = self.sent.load(Ordering::Acquire);
            sent - got < self.slots
                && (self
                    .sent
                    .compare_exchange(sent, sent + 1, Ordering::AcqRel, Ordering::Relaxed))
                .is_ok()
        });
        post().expect("a free slot");
    }

    /// The number that the peer has taken.
    fn take(&self, some: usize) {
        self.got.fetch_add(some as u64, Ordering::AcqRel);
    }

    /// Flushes what could not be sent at once, until all messages have arrived.
    fn settle(&self, queue_pair: &dyn QueuePair) {
        eventually("all has arrived", || {
            let _ = queue_pair.poll(&mut []);
            self.got.load(Ordering::Acquire) == self.sent.load(Ordering::Acquire)
        });
    }
}

pub fn no_wakeup_is_lost_in_a_flood(fabric: &dyn Fabric) {
    let messages = times(fabric, 200_000);
    let (client, server) = pair(fabric);
    let window = Window::of(&*client);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..messages {
                window.send(&*client, || client.post_control(&numbered(number)));
                // From time to time the consumer gets the time to fall asleep, each time at another point.
                if number % 61 == 0 {
                    (0..number % 2_003).for_each(|_| std::hint::spin_loop());
                }
            }
            window.settle(&*client);
        });
        let mut out = [Completion::Notice(NOTICE); 7];
        let mut got = 0;
        while got < messages {
            let some = receive(&*server, &mut out);
            window.take(some);
            for completion in &out[..some] {
                assert_eq!(*completion, Completion::Control(numbered(got)));
                got += 1;
            }
        }
    });
    assert_eq!(
        server.poll(&mut [Completion::Notice(NOTICE)]).expect("an honest peer"),
        0
    );
}

pub fn no_wakeup_is_lost_in_a_ping_pong(fabric: &dyn Fabric) {
    let rounds = times(fabric, 20_000);
    let (client, server) = pair(fabric);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut out = [Completion::Notice(NOTICE)];
            for _ in 0..rounds {
                receive(&*server, &mut out);
                let Completion::Control(bytes) = out[0] else {
                    panic!("{:?}", out[0])
                };
                server.post_control(&bytes).expect("room");
            }
        });
        let mut out = [Completion::Notice(NOTICE)];
        for number in 0..rounds {
            client.post_control(&numbered(number)).expect("room");
            receive(&*client, &mut out);
            assert_eq!(out[0], Completion::Control(numbered(number)));
        }
    });
}

pub fn bytes_are_there_before_their_notice(fabric: &dyn Fabric) {
    const BLOCK: usize = 640;
    let writes = times(fabric, 50_000);
    let (client, server) = pair(fabric);
    // At most as many blocks under way as the ring has, so that none is overwritten before it is read.
    let blocks = u64::from(client.remote_hello().receive_slots);
    let offset = |number: u64| (number % blocks) as usize * BLOCK;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut free = blocks;
            for number in 0..writes {
                while free == 0 {
                    free += poll_some(&*client, &mut [Completion::Notice(NOTICE); 8]) as u64;
                }
                free -= 1;
                let block = [number as u8 ^ 0x5a; BLOCK];
                let (head, tail) = block.split_at(123);
                let target = server.memory().remote_address(offset(number));
                write(&*client, &[head, tail], target, notice(1 + number as usize));
            }
        });
        for number in 0..writes {
            assert_eq!(poll_one(&*server), Completion::Notice(notice(1 + number as usize)));
            assert_eq!(
                read(server.memory(), offset(number), BLOCK),
                [number as u8 ^ 0x5a; BLOCK]
            );
            server.post_control(&[0; CONTROL_BYTES]).expect("the client takes them");
        }
    });
}

pub fn threads_of_one_side_may_post_together(fabric: &dyn Fabric) {
    const THREADS: u64 = 3;
    let messages = times(fabric, 10_000);
    let (client, server) = pair(fabric);
    let client = &*client;
    let window = &Window::of(client);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                for number in 0..messages {
                    window.send(client, || client.post_control(&numbered(thread << 32 | number)));
                }
                window.settle(client);
            });
        }
        let mut next = [0; THREADS as usize];
        for _ in 0..THREADS * messages {
            let mut out = [Completion::Notice(NOTICE)];
            window.take(receive(&*server, &mut out));
            let Completion::Control(bytes) = out[0] else {
                panic!("{:?}", out[0])
            };
            let number = number_of(&bytes);
            let thread = (number >> 32) as usize;
            assert_eq!(
                (bytes, number as u32),
                (numbered(number), next[thread]),
                "thread {thread} is out of order"
            );
            next[thread] += 1;
        }
    });
}

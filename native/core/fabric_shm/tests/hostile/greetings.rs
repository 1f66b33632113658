//! Peers that greet wrongly.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use inet_rdma_fabric::{Fabric, FabricError, ListenOptions, Misbehaviour};
use inet_rdma_fabric_shm::ShmFabric;
use inet_rdma_stream::{HELLO_BYTES, Hello, PROTOCOL_VERSION, WireError};
use rustix::fs::{MemfdFlags, SealFlags};

use crate::raw::*;
use crate::support::{self, accept, join, parameters};

/// Sends `bytes` with `descriptors` to a listener. Returns the listener's error and its answer. Other peers must be
/// able to connect before, meanwhile and after.
fn greet(bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> (FabricError, Vec<u8>) {
    let mut listener = support::listen(&ShmFabric, parameters());
    let caller = call(listener.port());
    drop(join(&ShmFabric, &mut *listener));
    say(&caller, bytes, descriptors);
    let error = match accept(&mut *listener) {
        Ok(_) => panic!("a wrong greeting was accepted"),
        Err(error) => error,
    };
    let (answer, came) = hear(&caller);
    assert!(came.is_empty(), "a refused peer was given this side's memory");
    if !answer.is_empty() {
        assert!(hear(&caller).0.is_empty(), "a refused peer's socket stays open");
    }
    drop(join(&ShmFabric, &mut *listener));
    (error, answer)
}

fn greet_with(memory: &impl AsFd) -> Misbehaviour {
    match greet(&hello().emit(), &[memory.as_fd(), pair().1.as_fd()]).0 {
        FabricError::PeerMisbehaved(how) => how,
        other => panic!("{other}"),
    }
}

fn good_memory() -> std::os::fd::OwnedFd {
    memory(FILE_BYTES, SEALS)
}

#[test]
fn a_right_greeting_is_accepted() {
    let mut listener = support::listen(&ShmFabric, parameters());
    let caller = call(listener.port());
    let (_watched, waking) = pair();
    say(&caller, &hello().emit(), &[good_memory().as_fd(), waking.as_fd()]);
    let end = accept(&mut *listener).expect("the other tests of this file change one thing each");
    assert_eq!(end.remote_hello(), &hello());
    let (answer, came) = hear(&caller);
    assert_eq!(Hello::parse(&answer).expect("a hello").ring_bytes, 40_000);
    assert_eq!(came.len(), 2);
}

#[test]
fn garbage_is_refused() {
    let (error, _) = greet(&[0xa5; HELLO_BYTES], &[good_memory().as_fd(), pair().1.as_fd()]);
    assert!(matches!(error, FabricError::Hello(WireError::Magic)), "{error}");
    let (error, _) = greet(b"GET / HTTP/1.1\r\n\r\n", &[]);
    assert!(matches!(error, FabricError::Hello(_)), "{error}");
    let (error, _) = greet(&[1], &[]);
    assert!(
        matches!(error, FabricError::Hello(_) | FabricError::Refused(_)),
        "{error}"
    );
}

#[test]
fn a_hello_of_another_length_is_refused() {
    let hello = hello().emit();
    let longer = [&hello[..], &[0; 90]].concat();
    for bytes in [&hello[..HELLO_BYTES - 1], &hello[..12], &longer] {
        let (error, _) = greet(bytes, &[good_memory().as_fd(), pair().1.as_fd()]);
        assert!(matches!(error, FabricError::Hello(WireError::Length { .. })), "{error}");
    }
}

#[test]
fn another_version_is_told_ours() {
    let mut bytes = hello().emit();
    bytes[8..10].copy_from_slice(&999u16.to_le_bytes());
    let (error, answer) = greet(&bytes, &[good_memory().as_fd(), pair().1.as_fd()]);
    assert!(
        matches!(error, FabricError::Hello(WireError::Version { theirs: 999 })),
        "{error}"
    );
    assert_eq!(answer[8..10], PROTOCOL_VERSION.to_le_bytes());
}

#[test]
fn impossible_limits_are_refused() {
    let wrong = [
        Hello {
            ring_bytes: 0,
            ..hello()
        },
        Hello {
            ring_bytes: u32::MAX,
            ..hello()
        },
        Hello {
            receive_slots: 0,
            ..hello()
        },
        Hello {
            receive_slots: u16::MAX,
            ..hello()
        },
        Hello { adverts: 0, ..hello() },
        Hello {
            ring: inet_rdma_stream::RemoteAddress { key: 2, address: 0 },
            ..hello()
        },
        Hello {
            ring: inet_rdma_stream::RemoteAddress { key: 1, address: 4_096 },
            ..hello()
        },
    ];
    for hello in wrong {
        let (error, _) = greet(&hello.emit(), &[good_memory().as_fd(), pair().1.as_fd()]);
        assert!(matches!(error, FabricError::PeerMisbehaved(_)), "{hello:?}: {error}");
    }
}

#[test]
fn a_wrong_number_of_descriptors_is_refused() {
    let (memory, (_watched, waking)) = (good_memory(), pair());
    let (memory, waking) = (memory.as_fd(), waking.as_fd());
    for descriptors in [
        &[][..],
        &[memory],
        &[memory, waking, waking],
        &[memory, waking, memory, waking, memory],
    ] {
        let (error, _) = greet(&hello().emit(), descriptors);
        assert_eq!(error, FabricError::PeerMisbehaved(Misbehaviour::GreetingIncomplete));
    }
}

/// A shutdown of another file fails, or does not wake.
#[test]
fn wake_ups_by_another_file_than_a_stream_socket_are_refused() {
    let memory = good_memory();
    let event = rustix::event::eventfd(1, rustix::event::EventfdFlags::CLOEXEC).expect("an event");
    let tcp = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None);
    for other in [
        memory.as_fd(),
        event.as_fd(),
        socket().as_fd(),
        tcp.expect("a socket").as_fd(),
    ] {
        let (error, _) = greet(&hello().emit(), &[memory.as_fd(), other]);
        assert_eq!(error, FabricError::PeerMisbehaved(Misbehaviour::GreetingIncomplete));
    }
}

#[test]
fn surplus_descriptors_are_closed() {
    for (count, bytes) in [
        (1, &hello().emit()[..]),
        (5, &hello().emit()[..]),
        (2, b"garbage".as_slice()),
    ] {
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        greet(bytes, &vec![writer.as_fd(); count]);
        drop(writer);
        // The pipe ends only when no process has a copy of the writing end.
        assert!(
            support::readable_within(reader.as_fd(), support::BOUND),
            "{count} descriptors: a copy is still open"
        );
    }
}

#[test]
fn memory_that_can_shrink_is_refused() {
    for seals in [
        SealFlags::empty(),
        SealFlags::SHRINK,
        SealFlags::GROW,
        SealFlags::SHRINK | SealFlags::GROW,
    ] {
        let misbehaviour = greet_with(&memory(FILE_BYTES, seals));
        assert_eq!(misbehaviour, Misbehaviour::MemoryUnsealed, "{seals:?}");
    }
    let file = tempfile();
    assert_eq!(greet_with(&file), Misbehaviour::MemoryUnsealed);
    let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).expect("an event");
    assert_eq!(greet_with(&event), Misbehaviour::MemoryUnsealed);
}

/// A file of the file system, which has no seals.
fn tempfile() -> std::fs::File {
    std::fs::File::open(std::env::current_exe().expect("this program")).expect("a readable file")
}

#[test]
fn memory_of_a_wrong_size_is_refused() {
    for bytes in [0, 1, 11 * 4_096 - 1, 11 * 4_096 + 1, FILE_BYTES - 1, 1 << 40] {
        let misbehaviour = greet_with(&memory(bytes, SEALS));
        assert!(
            matches!(misbehaviour, Misbehaviour::MemoryBytes { bytes: said, .. } if said == bytes),
            "{bytes}"
        );
    }
}

#[test]
fn memory_that_cannot_be_written_is_refused() {
    let sealed = memory(FILE_BYTES, SEALS | SealFlags::WRITE);
    assert_eq!(greet_with(&sealed), Misbehaviour::MemoryUnwritable);
}

#[test]
fn memory_on_huge_pages_is_refused() {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
    let huge = rustix::fs::memfd_create("huge", flags).and_then(|fd| {
        rustix::fs::ftruncate(&fd, 2 << 20)?;
        rustix::fs::fcntl_add_seals(&fd, SEALS)?;
        Ok(fd)
    });
    match huge {
        Ok(huge) => assert_eq!(greet_with(&huge), Misbehaviour::MemoryPages),
        Err(errno) => println!("skipped: this kernel makes no memory file on huge pages: {errno}"),
    }
}

#[test]
fn a_silent_peer_delays_no_other_and_is_dropped_in_time() {
    let options = ListenOptions {
        hello_timeout: Duration::from_millis(300),
        ..support::options(parameters())
    };
    let mut listener = ShmFabric.listen(&options).expect("a free port");
    let silent: Vec<_> = (0..4).map(|_| call(listener.port())).collect();
    drop(join(&ShmFabric, &mut *listener));
    let deadline = listener.next_deadline().expect("somebody is awaited");
    assert!(deadline <= Instant::now() + options.hello_timeout);
    for _ in &silent {
        let dropped = accept(&mut *listener).map(|_| ());
        assert!(matches!(dropped, Err(FabricError::TimedOut)), "{dropped:?}");
    }
    assert!(Instant::now() >= deadline, "before its time");
    assert!(listener.next_deadline().is_none());
    for peer in &silent {
        while !hear(peer).0.is_empty() {}
    }
}

#[test]
fn a_peer_that_hangs_up_before_it_greets_is_forgotten() {
    let mut listener = support::listen(&ShmFabric, parameters());
    drop(call(listener.port()));
    let gone = accept(&mut *listener).map(|_| ());
    assert!(matches!(gone, Err(FabricError::PeerGone)), "{gone:?}");
    assert!(listener.next_deadline().is_none());
}

#[test]
fn more_waiting_peers_than_the_backlog_are_refused() {
    let options = ListenOptions {
        backlog: 2,
        ..support::options(parameters())
    };
    let mut listener = ShmFabric.listen(&options).expect("a free port");
    let port = listener.port();
    let mut silent: Vec<_> = (0..2).map(|_| call(port)).collect();
    assert!(listener.poll_accept().is_none());
    std::thread::scope(|scope| {
        let refused = scope.spawn(move || {
            ShmFabric
                .connect(support::at(&ShmFabric, port), &parameters(), support::BOUND)
                .map(|_| ())
        });
        while !refused.is_finished() {
            assert!(listener.poll_accept().is_none());
        }
        let refused = refused.join().expect("no panic");
        assert!(
            matches!(refused, Err(FabricError::Refused(at)) if at == port),
            "{refused:?}"
        );
    });
    silent.pop();
    assert!(matches!(accept(&mut *listener).map(|_| ()), Err(FabricError::PeerGone)));
    drop(join(&ShmFabric, &mut *listener));
}

#[test]
fn an_idle_listener_is_not_readable() {
    let mut listener = support::listen(&ShmFabric, parameters());
    let silent = call(listener.port());
    assert!(support::readable_within(listener.event_fd(), support::BOUND));
    assert!(listener.poll_accept().is_none());
    assert!(
        !support::readable_within(listener.event_fd(), Duration::ZERO),
        "whoever waits on it would spin"
    );
    drop(silent);
}

#[test]
fn another_user_is_refused_on_both_sides() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can become another user");
        return;
    }
    let nobody = rustix::fs::Uid::from_raw(65_534);
    let mut listener = support::listen(&ShmFabric, parameters());
    let port = listener.port();
    std::thread::scope(|scope| {
        let other = scope.spawn(move || {
            // This thread alone changes its user, and keeps it until it ends.
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).expect("root may");
            ShmFabric
                .connect(support::at(&ShmFabric, port), &parameters(), support::BOUND)
                .map(|_| ())
        });
        let here = accept(&mut *listener).map(|_| ());
        assert!(
            matches!(
                here,
                Err(FabricError::WrongUser {
                    theirs: 65_534,
                    ours: 0
                })
            ),
            "{here:?}"
        );
        let there = other.join().expect("no panic");
        assert!(
            matches!(
                there,
                Err(FabricError::WrongUser {
                    theirs: 0,
                    ours: 65_534
                })
            ),
            "{there:?}"
        );
    });
    drop(join(&ShmFabric, &mut *listener));
}

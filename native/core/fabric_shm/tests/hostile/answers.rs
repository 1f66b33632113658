//! Listeners that answer wrongly.

use std::os::fd::{AsFd, BorrowedFd};

use inet_rdma_fabric::{Fabric, FabricError, Misbehaviour};
use inet_rdma_fabric_shm::ShmFabric;
use inet_rdma_stream::{HELLO_BYTES, WireError};
use rustix::fs::SealFlags;
use rustix::io::Errno;

use crate::raw::*;
use crate::support::{BOUND, at, parameters};

/// Connects to a listener that gives this answer; None: it hangs up. Returns the error of the connecting side.
fn answered(answer: Option<(&[u8], &[BorrowedFd<'_>])>) -> FabricError {
    let listening = socket();
    let mut port = 10_000 + (std::process::id() % 9_000) as u16;
    while let Err(errno) = rustix::net::bind(&listening, &address(port)) {
        assert_eq!(errno, Errno::ADDRINUSE);
        port += 1;
    }
    rustix::net::listen(&listening, 1).expect("a listener");
    std::thread::scope(|scope| {
        let connecting = scope.spawn(move || {
            ShmFabric
                .connect(at(&ShmFabric, port), &parameters(), BOUND)
                .map(|_| ())
        });
        let peer = rustix::net::accept(&listening).expect("a peer");
        let (greeting, came) = hear(&peer);
        assert_eq!((greeting.len(), came.len()), (HELLO_BYTES, 2));
        if let Some((bytes, descriptors)) = answer {
            say(&peer, bytes, descriptors);
        }
        drop(peer);
        connecting
            .join()
            .expect("no panic")
            .expect_err("a wrong answer was taken for right")
    })
}

#[test]
fn hanging_up_is_named() {
    assert!(matches!(answered(None), FabricError::PeerGone));
}

#[test]
fn garbage_is_named() {
    assert!(matches!(
        answered(Some((&[7; HELLO_BYTES], &[]))),
        FabricError::Hello(WireError::Magic)
    ));
    assert!(matches!(answered(Some((&[77], &[]))), FabricError::Hello(_)));
}

#[test]
fn another_version_is_named() {
    let mut bytes = hello().emit();
    bytes[8..10].copy_from_slice(&2_000u16.to_le_bytes());
    let error = answered(Some((&bytes, &[])));
    assert!(
        matches!(error, FabricError::Hello(WireError::Version { theirs: 2_000 })),
        "{error}"
    );
}

#[test]
fn a_bare_hello_is_named() {
    assert!(matches!(
        answered(Some((&hello().emit(), &[]))),
        FabricError::PeerMisbehaved(_)
    ));
}

#[test]
fn unsealed_memory_is_named() {
    let memory = memory(FILE_BYTES, SealFlags::empty());
    let error = answered(Some((&hello().emit(), &[memory.as_fd(), pair().1.as_fd()])));
    assert_eq!(error, FabricError::PeerMisbehaved(Misbehaviour::MemoryUnsealed));
}

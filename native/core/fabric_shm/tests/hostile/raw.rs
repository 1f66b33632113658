//! A peer that writes the words of the wire itself: it can send what no honest peer sends.
//!
//! The numbers of the layout stand here a second time on purpose: these tests fail if the layout changes without a new
//! version of the protocol.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use inet_rdma_stream::{Hello, RemoteAddress};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use crate::support::readable_within;

pub const SLOTS: u16 = 24;
pub const RING_BYTES: u32 = 40_000;
/// Queue header 256, 32 entries of 64: one page. The ring: ten pages. A landing area of three pages.
pub const FILE_BYTES: u64 = (1 + 10 + 3) * 4_096;
/// Offset of the consumer's head in the queue header.
pub const HEAD: usize = 0;
/// Offset of the word that says that the consumer wants to be woken.
pub const ARMED: usize = 128;
/// Offset of the first entry.
pub const ENTRIES: usize = 256;

pub const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

pub fn hello() -> Hello {
    Hello {
        ring: RemoteAddress { key: 1, address: 0 },
        ring_bytes: RING_BYTES,
        receive_slots: SLOTS,
        adverts: 3,
        connection_id: 1,
        token: 0,
    }
}

pub fn memory(bytes: u64, seals: SealFlags) -> OwnedFd {
    let fd = rustix::fs::memfd_create("hostile", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a memfd");
    rustix::fs::ftruncate(&fd, bytes).expect("its size");
    rustix::fs::fcntl_add_seals(&fd, seals).expect("its seals");
    fd
}

pub fn address(port: u16) -> SocketAddrUnix {
    SocketAddrUnix::new_abstract_name(format!("inet_rdma/{port}").as_bytes()).expect("a name")
}

pub fn socket() -> OwnedFd {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("a socket")
}

pub fn call(port: u16) -> OwnedFd {
    let socket = socket();
    rustix::net::connect(&socket, &address(port)).expect("a listener");
    socket
}

/// Sends one message with descriptors.
pub fn say(socket: &OwnedFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
    try_to_say(socket, bytes, descriptors).expect("somebody listens");
}

/// As [`say`], where nobody may listen.
pub fn try_to_say(socket: &OwnedFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)));
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL).map(|_| ())
}

/// The next message and its descriptors; empty: the end.
pub fn hear(socket: &OwnedFd) -> (Vec<u8>, Vec<OwnedFd>) {
    assert!(readable_within(socket.as_fd(), crate::support::BOUND), "no answer");
    let mut bytes = [0; 200];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::net::recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut bytes)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )
    .expect("a message or the end");
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(came) = message {
            descriptors.extend(came);
        }
    }
    (bytes[..received.bytes].to_vec(), descriptors)
}

/// A pair of sockets: the end that a side watches, and the end by which the other side wakes it.
pub fn pair() -> (OwnedFd, OwnedFd) {
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("sockets")
}

/// Wakes the side that watches the other end.
pub fn wake(waking: &OwnedFd) {
    rustix::net::shutdown(waking, rustix::net::Shutdown::Write).expect("a socket");
}

/// A mapping of one side's memory in the hostile side. The end of the test's process unmaps it.
#[derive(Clone, Copy)]
pub struct Words(*mut u8, usize);

impl Words {
    pub fn of(memory: &OwnedFd) -> Words {
        let bytes = rustix::fs::fstat(memory).expect("its size").st_size as usize;
        // SAFETY: the kernel picks a free range.
        let base = unsafe {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            rustix::mm::mmap(std::ptr::null_mut(), bytes, access, MapFlags::SHARED, memory, 0).expect("a mapping")
        };
        Words(base.cast(), bytes)
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset % 8 == 0 && offset + 8 <= self.1);
        // SAFETY: aligned and inside the mapping by the assertion; the mapping is never taken away.
        unsafe { AtomicU64::from_ptr(self.0.add(offset).cast()) }
    }

    pub fn set(&self, offset: usize, value: u64) {
        self.word(offset).store(value, Ordering::SeqCst);
    }

    /// Writes an entry: kind in the high half of the second word, notice in its low half.
    pub fn entry(&self, index: usize, stamp: u64, kind: u64) {
        self.set(ENTRIES + 64 * index + 8, kind);
        self.set(ENTRIES + 64 * index, stamp);
    }

    /// Writes an entry that carries `bytes` bytes, all 0xAB, for `address`.
    pub fn inline(&self, index: usize, bytes: u64, address: u64) {
        self.set(ENTRIES + 64 * index + 16, address);
        for word in 3..8 {
            self.set(ENTRIES + 64 * index + 8 * word, 0xABAB_ABAB_ABAB_ABAB);
        }
        self.entry(index, index as u64 + 1, 3 << 32 | bytes);
    }
}

impl Words {
    /// The mapping as numbers, for another thread: [`Self::again`] makes a value of them.
    pub fn addresses(&self) -> (usize, usize) {
        (self.0.expose_provenance(), self.1)
    }

    /// The mapping that [`Self::addresses`] has returned.
    pub fn again((base, bytes): (usize, usize)) -> Words {
        Words(std::ptr::with_exposed_provenance_mut(base), bytes)
    }
}

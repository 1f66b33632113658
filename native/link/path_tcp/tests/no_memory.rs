//! Compression without memory. zstd takes its memory from the C library, and the limit below leaves it none; the
//! test's own comes from a static area.

mod support;

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};

use inet_rdma_path_tcp::{Codec, TURN_PACKETS, TcpPath, can_decompress};
use inet_rdma_session::Role;
use support::{End, Packets, streams};

const AREA_BYTES: usize = 256 << 20;

/// Gives each byte out once.
struct Area {
    bytes: UnsafeCell<[u8; AREA_BYTES]>,
    used: AtomicUsize,
}

// SAFETY: the bytes are only given out, each to one owner.
unsafe impl Sync for Area {}

// SAFETY: `fetch_add` gives each caller bytes of its own, with room to align them.
unsafe impl GlobalAlloc for Area {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let bytes = layout.size() + layout.align();
        let from = self.used.fetch_add(bytes, Ordering::Relaxed);
        if from + bytes > AREA_BYTES {
            return std::ptr::null_mut();
        }
        let first: *mut u8 = self.bytes.get().cast();
        // SAFETY: the range from `from` on lies in the area, as has just been checked.
        let free = unsafe { first.add(from) };
        free.map_addr(|address| address.next_multiple_of(layout.align()))
    }

    unsafe fn dealloc(&self, _memory: *mut u8, _layout: Layout) {}
}

#[global_allocator]
static AREA: Area = Area {
    bytes: UnsafeCell::new([0; AREA_BYTES]),
    used: AtomicUsize::new(0),
};

/// Takes the right to more memory from this process. Linux ignores a limit of 0 (`may_expand_vm`).
fn forbid_memory() {
    let none = libc::rlimit {
        rlim_cur: 1,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: the structure is valid, and the kernel only reads it.
    let done = unsafe { libc::setrlimit(libc::RLIMIT_DATA, &raw const none) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

fn path(stream: &TcpStream, codec: Codec) -> TcpPath {
    stream.set_nonblocking(true).expect("nonblocking");
    let mut path = TcpPath::adopt(stream.try_clone().expect("a descriptor").into());
    path.compress(codec);
    path
}

/// Sends text over a connection of its own. Returns the contexts, and the bytes before and after compression.
fn carry(sends: Codec, receives: Codec) -> ([Codec; 2], u64, u64) {
    let (left, right) = streams();
    let mut sender = path(&left, sends);
    let mut receiver = path(&right, receives);
    let mut sessions = [End::new(Role::Initiator, 1 << 20), End::new(Role::Acceptor, 1 << 20)];
    let mut arrived = Packets::default();
    let text = b"the same words again and again, ".repeat(1_000);
    for round in 1..10 {
        sessions[0].append(text.len(), |log| log.copy(&text));
        while arrived.0.len() < round {
            let _blocked = sender.transmit(&mut sessions[0]).expect("a connection");
            let received = receiver.receive(TURN_PACKETS, &mut sessions[1], &mut arrived);
            assert!(received.is_ok(), "{received:?}");
        }
    }
    assert!(arrived.0.iter().all(|packet| *packet == text));
    let done = sender.compression().expect("compressed")[0];
    (
        [sender.take_codec(), receiver.take_codec()],
        done.plain_bytes,
        done.wire_bytes,
    )
}

/// One test, as the limit is the process's.
#[test]
fn a_sender_without_memory_sends_plain_blocks_and_a_resume_needs_none() {
    let codecs = || [Codec::new(true, false), Codec::new(false, true)].map(|codec| codec.expect("memory"));
    let [sends, receives] = codecs();
    let [_, receives_plain] = codecs();
    let (made, plain, wire) = carry(sends, receives);
    assert!(wire * 10 < plain, "{wire} bytes of {plain}");
    forbid_memory();
    // No context for a peer that compresses: it must be told before.
    assert!(!can_decompress());
    assert!(Codec::new(false, true).is_none());
    // The next connection of a session takes the contexts of the last one.
    let [sends, receives] = made;
    let (_, plain, wire) = carry(sends, receives);
    assert!(wire * 10 < plain, "{wire} bytes of {plain}");
    let sends = Codec::new(true, false).expect("it sends plain blocks");
    let (_, plain, wire) = carry(sends, receives_plain);
    assert!(wire > plain, "{wire} bytes of {plain}");
}

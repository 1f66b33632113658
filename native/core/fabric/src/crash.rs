//! Sockets that end when the VM of this process crashes.
//!
//! A VM that crashes writes its dump first, for minutes on a slow disk, and the kernel closes its sockets only then. So
//! the driver's callback `emergency_close` calls [`shut_down_all`], which shows all peers the end. Other threads of the
//! VM may run on for a moment, or be stopped in the middle of anything, with any lock held: the table of sockets is
//! read without locks and without memory, and what it knows does not depend on the state of a link.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bits for the descriptors with consecutive numbers; a set bit: shut down at a crash.
type Block = [AtomicU64; BLOCK_WORDS];
/// A block is made with its first socket, and has 8 KiB.
const BLOCK_WORDS: usize = 1024;
const WORD_BITS: usize = u64::BITS as usize;
const BLOCK_BITS: usize = BLOCK_WORDS * WORD_BITS;
/// Enough for 4,194,304 descriptors. The kernel gives the lowest free number, and no number from `fs.nr_open` on, which
/// is 1,048,576 unless root changes it.
const BLOCKS: usize = 64;

static TABLE: [OnceLock<Box<Block>>; BLOCKS] = [const { OnceLock::new() }; BLOCKS];

static HAS_CRASHED: AtomicBool = AtomicBool::new(false);

/// Has a socket shut down when the VM crashes. Drop it before the socket is closed.
#[derive(Debug)]
pub struct EndsAtCrash(RawFd);

impl EndsAtCrash {
    /// Enters the socket. After a crash it is shut down at once.
    pub fn enter(socket: BorrowedFd<'_>) -> EndsAtCrash {
        EndsAtCrash::enter_number(socket.as_raw_fd())
    }

    /// As [`Self::enter`], for a socket that another part of the VM owns.
    pub fn enter_number(fd: RawFd) -> EndsAtCrash {
        if let Some((index, word, bit)) = place(fd) {
            let block = TABLE[index].get_or_init(|| Box::new([const { AtomicU64::new(0) }; BLOCK_WORDS]));
            // Before the load, as the store of `HAS_CRASHED` is before the loads of the words: one of the two threads
            // finds the other one's.
            block[word].fetch_or(bit, Ordering::SeqCst);
            if HAS_CRASHED.load(Ordering::SeqCst) {
                shut_down(fd);
            }
        }
        EndsAtCrash(fd)
    }
}

impl Drop for EndsAtCrash {
    fn drop(&mut self) {
        if let Some((index, word, bit)) = place(self.0) {
            if let Some(block) = TABLE[index].get() {
                block[word].fetch_and(!bit, Ordering::SeqCst);
            }
        }
    }
}

/// Shuts down all sockets that are entered, and those that are entered from now on. Makes system calls that do not
/// block, and nothing else. Only for a process that is about to end.
pub fn shut_down_all() {
    // The VM calls once for each port.
    if HAS_CRASHED.swap(true, Ordering::SeqCst) {
        return;
    }
    for (index, block) in TABLE.iter().enumerate() {
        for (word, bits) in block.get().into_iter().flat_map(|block| block.iter().enumerate()) {
            let mut left = bits.load(Ordering::SeqCst);
            while left != 0 {
                let fd = index * BLOCK_BITS + word * WORD_BITS + left.trailing_zeros() as usize;
                shut_down(fd as RawFd);
                left &= left - 1;
            }
        }
    }
}

/// Block, word and bit of a descriptor. None: its number is too large.
fn place(fd: RawFd) -> Option<(usize, usize, u64)> {
    let number = usize::try_from(fd).ok()?;
    let index = number / BLOCK_BITS;
    let within = number % BLOCK_BITS;
    (index < BLOCKS).then_some((index, within / WORD_BITS, 1 << (within % WORD_BITS)))
}

fn shut_down(fd: RawFd) {
    // SAFETY: the call takes any number, and touches no memory. If another thread closes the socket at this moment, the
    // number may name another file: one that is no socket stays as it is, and a socket loses nothing, as the process
    // ends.
    let _ended_before = unsafe { libc::shutdown(fd, libc::SHUT_RDWR) };
}

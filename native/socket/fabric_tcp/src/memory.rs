//! Private memory of this process that bytes of the peer are received into. All unsafe code of this crate is here.

use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

use inet_rdma_fabric::FabricError;
use memmap2::{MmapMut, MmapOptions, MmapRaw, UncheckedAdvice};
use rustix::io::Errno;

/// Private pages of zeros. A page takes memory when it is touched.
///
/// # Invariants
///
/// No Rust reference to the bytes is ever made: the user copies them out through raw pointers on other threads, and a
/// peer that breaks the protocol can have this process receive bytes where they are read.
pub(crate) struct Pages(MmapRaw);

impl Pages {
    pub(crate) fn new(bytes: usize) -> Result<Pages, FabricError> {
        let mapped = MmapOptions::new().len(bytes).map_anon();
        let pages = mapped.map(<MmapRaw as From<MmapMut>>::from);
        pages
            .map(Pages)
            .map_err(|error| FabricError::system("making the memory of a connection", error))
    }

    /// First byte. Valid while this value lives.
    pub(crate) fn base(&self) -> *mut u8 {
        self.0.as_mut_ptr()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.len()
    }

    fn check(&self, range: &Range<usize>) {
        assert!(
            range.start <= range.end && range.end <= self.bytes(),
            "{range:?} is not inside a memory of {} bytes",
            self.bytes()
        );
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Panics
    ///
    /// Where they would not end inside of the memory.
    pub(crate) fn place(&self, offset: usize, bytes: &[u8]) {
        self.check(&(offset..offset.saturating_add(bytes.len())));
        // SAFETY: the check says that the destination lies inside the mapping, which lives as long as `self`. The
        // source is memory of its own. By the type's invariant no reference to the destination exists.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base().add(offset), bytes.len()) };
    }

    /// Receives from a socket, without a wait: first into `range`, then into `ahead`. Returns the number of bytes; 0:
    /// the end.
    ///
    /// # Panics
    ///
    /// Where the range does not end inside of the memory.
    pub(crate) fn receive(
        &self,
        range: Range<usize>,
        ahead: &mut [u8],
        socket: BorrowedFd<'_>,
    ) -> Result<usize, Errno> {
        self.check(&range);
        let mut parts = [
            libc::iovec {
                // SAFETY: the check says that the start lies inside the mapping, or at its end.
                iov_base: unsafe { self.base().add(range.start) }.cast(),
                iov_len: range.len(),
            },
            libc::iovec {
                iov_base: ahead.as_mut_ptr().cast(),
                iov_len: ahead.len(),
            },
        ];
        // SAFETY: zeros are a valid header, one without name, parts and control data.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = parts.len() as _;
        // SAFETY: the kernel writes into the two parts alone: the first lies inside the mapping by the check, which
        // lives as long as `self`; the second is exclusively borrowed. Not rustix's `recvmsg`, which takes a reference
        // to each part: by the type's invariant there is none to the first.
        let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
        usize::try_from(received).map_err(|_| {
            let error = std::io::Error::last_os_error();
            Errno::from_io_error(&error).unwrap_or(Errno::IO)
        })
    }

    /// Gives the pages that lie in `range` as a whole back to the system. Does nothing outside of the memory.
    pub(crate) fn discard(&self, range: Range<usize>) {
        let page = rustix::param::page_size();
        let start = range.start.next_multiple_of(page);
        let end = range.end.min(self.bytes()) / page * page;
        if start >= end {
            return;
        }
        let bytes = end - start;
        // SAFETY: the range lies inside the mapping, and its bytes become zeros, as a peer can make them: they are read
        // through raw pointers only. The mapping is private and anonymous, so each page can be had again.
        let _stays = unsafe { self.0.unchecked_advise_range(UncheckedAdvice::DontNeed, start, bytes) };
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    use super::*;

    fn all(pages: &Pages) -> Vec<u8> {
        let mut out = vec![0; pages.bytes()];
        // SAFETY: the mapping has `pages.bytes()` bytes, as `out` has, which is fresh.
        unsafe { std::ptr::copy_nonoverlapping(pages.base(), out.as_mut_ptr(), out.len()) };
        out
    }

    #[test]
    fn bytes_fill_the_range_first() {
        let pages = Pages::new(10).expect("memory");
        let (mut there, here) = UnixStream::pair().expect("sockets");
        there.write_all(b"abcdefg").expect("room");
        let mut ahead = [0; 5];
        assert_eq!(pages.receive(3..7, &mut ahead, here.as_fd()), Ok(7));
        assert_eq!((&all(&pages)[..], &ahead), (&b"\0\0\0abcd\0\0\0"[..], b"efg\0\0"));
        drop(there);
        assert_eq!(pages.receive(10..10, &mut ahead, here.as_fd()), Ok(0));
    }

    #[test]
    fn an_empty_socket_is_not_waited_for() {
        let pages = Pages::new(10).expect("memory");
        let (_there, here) = UnixStream::pair().expect("sockets");
        // Ends the wait of a call that should have none.
        here.set_read_timeout(Some(Duration::from_secs(30))).expect("a bound");
        let started = Instant::now();
        assert_eq!(pages.receive(0..10, &mut [], here.as_fd()), Err(Errno::AGAIN));
        assert!(started.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn nothing_is_written_outside() {
        let pages = Pages::new(10).expect("memory");
        let (_there, here) = UnixStream::pair().expect("sockets");
        for range in [0..11, 11..11, 3..usize::MAX] {
            let received = std::panic::catch_unwind(|| pages.receive(range.clone(), &mut [], here.as_fd()));
            assert!(received.is_err(), "{range:?}");
        }
        for offset in [8, 11, usize::MAX] {
            assert!(
                std::panic::catch_unwind(|| pages.place(offset, b"abc")).is_err(),
                "{offset}"
            );
        }
        assert_eq!(all(&pages), [0; 10]);
    }

    #[test]
    fn whole_pages_are_given_back() {
        let page = rustix::param::page_size();
        let pages = Pages::new(3 * page).expect("memory");
        pages.place(0, &vec![7; 3 * page]);
        pages.discard(1..3 * page - 1);
        pages.discard(5 * page..9 * page);
        let left = all(&pages);
        assert!(left[..page].iter().chain(&left[2 * page..]).all(|byte| *byte == 7));
        assert!(left[page..2 * page].iter().all(|byte| *byte == 0));
    }
}

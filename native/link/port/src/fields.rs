//! The fields of a command's argument.

use std::os::fd::{BorrowedFd, RawFd};

/// Reads the fields of a command's argument, in order. None: bytes are missing.
pub(crate) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    pub fn bytes(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (field, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(field)
    }

    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_ne_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_ne_bytes)
    }

    /// A descriptor that the caller keeps open during the call.
    pub fn socket(&mut self) -> Option<BorrowedFd<'a>> {
        let fd = RawFd::try_from(self.u32()?).ok().filter(|&fd| fd >= 0)?;
        // SAFETY: the carrier names the descriptor of a socket that it owns, and waits for the answer before it closes
        // it.
        Some(unsafe { BorrowedFd::borrow_raw(fd) })
    }
}

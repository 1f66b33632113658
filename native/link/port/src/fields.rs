//! The fields of a command's argument.

use std::os::fd::{BorrowedFd, RawFd};
use std::time::Duration;

use crate::link::{Sealing, cipher};

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

    /// The sealing of a TCP connection: the rest of the argument. Some(None): it is not sealed.
    pub fn sealing(&mut self) -> Option<Option<Sealing<'a>>> {
        if self.0.is_empty() {
            return Some(None);
        }
        let [number] = self.array()?;
        let cipher = cipher(number)?;
        let rekey_bytes = self.u64()?;
        let rekey_seconds = u64::from(self.u32()?);
        Some(Some(Sealing {
            cipher,
            rekey_bytes,
            rekey_after: (rekey_seconds > 0).then(|| Duration::from_secs(rekey_seconds)),
            transcript: self.bytes(self.0.len())?,
        }))
    }

    /// A descriptor that the caller keeps open during the call.
    pub fn socket(&mut self) -> Option<BorrowedFd<'a>> {
        let fd = RawFd::try_from(self.u32()?).ok().filter(|&fd| fd >= 0)?;
        // SAFETY: the carrier names the descriptor of a socket that it owns, and waits for the answer before it closes
        // it.
        Some(unsafe { BorrowedFd::borrow_raw(fd) })
    }
}

//! Errors of the libraries.

use std::io;

/// A call of libibverbs or librdmacm that failed.
#[derive(Debug, thiserror::Error)]
#[error("{doing}: {error}")]
pub struct VerbsError {
    /// The operation that failed, in words.
    pub doing: &'static str,
    /// The system's error; [`io::ErrorKind::Unsupported`]: the libraries are not installed, or too old.
    pub error: io::Error,
}

impl VerbsError {
    /// The error of a call that sets `errno`.
    pub(crate) fn last(doing: &'static str) -> VerbsError {
        VerbsError {
            doing,
            error: io::Error::last_os_error(),
        }
    }

    /// The error of a call that returns the error's number.
    pub(crate) fn of(doing: &'static str, errno: i32) -> VerbsError {
        VerbsError {
            doing,
            error: io::Error::from_raw_os_error(errno),
        }
    }

    /// The error's number, 0 when it has none.
    pub fn errno(&self) -> i32 {
        self.error.raw_os_error().unwrap_or(0)
    }
}

impl From<VerbsError> for io::Error {
    fn from(failed: VerbsError) -> io::Error {
        failed.error
    }
}

/// The result of a call of librdmacm: 0 is success, -1 an error in `errno`.
pub(crate) fn check(doing: &'static str, result: i32) -> Result<(), VerbsError> {
    match result {
        0 => Ok(()),
        _ => Err(VerbsError::last(doing)),
    }
}

/// The result of a call of libibverbs: 0 is success, a positive number the error. Some providers return the negative
/// number, or -1 and set `errno`.
pub(crate) fn check_errno(doing: &'static str, result: i32) -> Result<(), VerbsError> {
    match result {
        0 => Ok(()),
        -1 => Err(VerbsError::last(doing)),
        errno => Err(VerbsError::of(doing, errno.saturating_abs())),
    }
}

/// The result of a read that must not wait: Ok if there is nothing to read for now.
pub(crate) fn nothing_yet(failed: VerbsError) -> Result<(), VerbsError> {
    match failed.errno() {
        libc::EAGAIN | libc::EINTR => Ok(()),
        _ => Err(failed),
    }
}

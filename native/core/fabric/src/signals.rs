//! Keeps signals away from the threads of this library.

/// Blocks all signals for this thread, and those it starts, until the guard is dropped.
pub fn block_all() -> BlockedSignals {
    // SAFETY: a zeroed sigset_t is valid storage; sigfillset and pthread_sigmask write to the two sets only, and cannot
    // fail with these arguments.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        BlockedSignals { before }
    }
}

/// The mask to go back to.
pub struct BlockedSignals {
    before: libc::sigset_t,
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: `before` is the mask that this thread had.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut()) };
    }
}

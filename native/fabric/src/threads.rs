//! Threads that may wait for the kernel or for a peer, in place of a scheduler or a polling thread.

use crate::FabricError;

/// Stack of such a thread, in bytes. The deepest call is librdmacm's, which loads a device's library and keeps path
/// names of 4 KiB on the stack. The libraries of rxe and siw do with it: test/vm has the cases.
const STACK_BYTES: usize = 256 * 1024;

/// Starts a detached thread with all signals blocked: they are the business of the process's own threads.
pub fn start(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), FabricError> {
    let _blocked = crate::signals::block_all();
    let thread = std::thread::Builder::new()
        .name(name.to_owned())
        .stack_size(STACK_BYTES);
    match thread.spawn(run) {
        Ok(_detached) => Ok(()),
        Err(error) => Err(FabricError::system("starting a native thread", error)),
    }
}

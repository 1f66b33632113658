//! Threads that may wait for the kernel or for a peer, in place of a scheduler or a polling thread.

use std::thread::Thread;

use crate::FabricError;

/// Stack of such a thread, in bytes. The deepest call is librdmacm's, which loads a device's library and keeps path
/// names of 4 KiB on the stack. The libraries of rxe and siw do with it: test/vm has the cases.
const STACK_BYTES: usize = 256 * 1024;

/// Starts a detached thread with all signals blocked: they are the business of the process's own threads.
pub fn start(name: &str, run: impl FnOnce() + Send + 'static) -> Result<Thread, FabricError> {
    let _blocked = crate::signals::block_all();
    let thread = std::thread::Builder::new()
        .name(name.to_owned())
        .stack_size(STACK_BYTES);
    let started = thread.spawn(run).map(|detached| detached.thread().clone());
    started.map_err(|error| FabricError::system("starting a native thread", error))
}

/// As [`start`], for a thread that may wait for a disk, which no signal ends. It has a table of descriptors of its own:
/// the kernel closes the sockets of a process with the last thread that shares their table, so that otherwise the peers
/// of a killed node would not see its end before the disk answers. Before Linux 5.9 the thread shares the table.
///
/// # Safety
///
/// `run` uses no descriptor but those that it opens itself, and the standard streams. The same numbers may be other
/// files in other threads.
pub unsafe fn start_apart(name: &str, run: impl FnOnce() + Send + 'static) -> Result<Thread, FabricError> {
    start(name, || {
        const FIRST: libc::c_uint = libc::STDERR_FILENO as libc::c_uint + 1;
        // SAFETY: the call closes the descriptors in the new table of this thread alone, and this thread uses none of
        // them, as the caller promises.
        let _shared = unsafe {
            libc::syscall(
                libc::SYS_close_range,
                FIRST,
                libc::c_uint::MAX,
                libc::CLOSE_RANGE_UNSHARE,
            )
        };
        run();
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_thread_apart_keeps_no_descriptor_open() {
        let (mut reader, writer) = UnixStream::pair().expect("two sockets");
        let (starts, started) = mpsc::channel();
        let (end, ends) = mpsc::channel::<()>();
        let run = move || {
            starts.send(()).expect("the test waits");
            let _dropped = ends.recv();
        };
        // SAFETY: the thread uses channels alone.
        unsafe { start_apart("apart", run) }.expect("a thread");
        started.recv().expect("it has started");
        drop(writer);
        let read = reader.read(&mut [0]).expect("the socket of this thread");
        assert_eq!(read, 0, "nothing holds the other end");
        drop(end);
    }
}

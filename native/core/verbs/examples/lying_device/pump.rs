//! A descriptor of the kernel that the process reads through a pipe in its place: a thread passes on what comes, adds
//! to it or holds it back. The pipe has the number that the descriptor had.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// The kernel's descriptor, with another number, and the end of the pipe that the process reads.
pub(crate) struct Pump {
    pub(crate) kernel: File,
    pub(crate) to_process: File,
}

fn checked(result: RawFd) -> RawFd {
    assert!(result >= 0, "{}", std::io::Error::last_os_error());
    result
}

fn owned(fd: RawFd) -> OwnedFd {
    // SAFETY: a descriptor that was made a moment ago, and that has no other owner.
    unsafe { OwnedFd::from_raw_fd(checked(fd)) }
}

impl Pump {
    /// Puts a pipe in the place of this open descriptor.
    pub(crate) fn replace(number: RawFd) -> Pump {
        let mut pipe = [-1; 2];
        // SAFETY: the caller's descriptor is open; the two ends of a pipe are made here.
        unsafe {
            let kernel = owned(libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 0));
            let flags = checked(libc::fcntl(number, libc::F_GETFL));
            checked(libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC));
            let (read, write) = (owned(pipe[0]), owned(pipe[1]));
            checked(libc::fcntl(read.as_raw_fd(), libc::F_SETFL, flags & libc::O_NONBLOCK));
            checked(libc::dup3(read.as_raw_fd(), number, libc::O_CLOEXEC));
            checked(libc::fcntl(kernel.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK));
            Pump {
                kernel: kernel.into(),
                to_process: write.into(),
            }
        }
    }

    /// Waits until the kernel has something to read, or this time has passed. False: the process has closed its end.
    pub(crate) fn wait(&self, bound: Duration) -> bool {
        let of = |file: &File, events| libc::pollfd {
            fd: file.as_raw_fd(),
            events,
            revents: 0,
        };
        let mut fds = [of(&self.kernel, libc::POLLIN), of(&self.to_process, 0)];
        let bound_ms = bound.as_millis() as i32 + 1;
        // SAFETY: an array of two.
        unsafe { libc::poll(fds.as_mut_ptr(), 2, bound_ms) };
        if fds[0].revents & (libc::POLLERR | libc::POLLHUP) != 0 {
            // The device was removed: without a look in between it would be said for ever.
            std::thread::sleep(Duration::from_millis(10));
        }
        fds[1].revents & libc::POLLERR == 0
    }

    pub(crate) fn write(&self, bytes: &[u8]) {
        // The process may have closed its end, which `wait` finds.
        let _ = (&self.to_process).write_all(bytes);
    }
}

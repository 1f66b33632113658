//! Facts that the kernel gives about a TCP connection (tcp(7), `TCP_INFO`).

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use crate::tcp_answers::Acknowledged;

/// None: the kernel does not say. The socket's own error shows with the next read.
pub fn acknowledged(socket: BorrowedFd<'_>) -> Option<Acknowledged> {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut bytes = libc::socklen_t::try_from(size_of::<libc::tcp_info>()).ok()?;
    // SAFETY: the descriptor is open as long as `socket` lives; the kernel writes at most `bytes` bytes, which `info`
    // has.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &mut bytes,
        )
    };
    if status != 0 {
        return None;
    }
    // SAFETY: the type has integers only, for which zeros are values, and the kernel has written over some of them.
    let info = unsafe { info.assume_init() };
    Some(Acknowledged {
        is_under_way: info.tcpi_unacked > 0,
        probes: info.tcpi_probes.into(),
        age: Duration::from_millis(info.tcpi_last_ack_recv.into()),
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn the_peers_kernel_acknowledges_what_its_process_does_not_read() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut socket = TcpStream::connect(listener.local_addr().expect("bound")).expect("a connection");
        socket.write_all(b"never read, never accepted").expect("room");
        while acknowledged(socket.as_fd()).expect("a connection").is_under_way {
            std::thread::yield_now();
        }
    }

    #[test]
    fn another_descriptor_says_nothing() {
        let file = std::fs::File::open("/dev/null").expect("it is there");
        assert!(acknowledged(file.as_fd()).is_none());
    }
}

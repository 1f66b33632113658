//! Calls on a socket, none of which waits, whatever the flags of its descriptor: it is a duplicate of the VM's socket,
//! which the VM sets as it likes. With `inet_backend socket` OTP sets a socket to block before it closes it.

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd};

use bytes::buf::UninitSlice;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};
use smallvec::SmallVec;

use crate::outcome::{Lost, Transmitted};

const SEND: SendFlags = SendFlags::NOSIGNAL.union(SendFlags::DONTWAIT);

/// Slices of one `sendmsg`. Linux takes 1,024; more than a few dozen make a message no cheaper.
pub(crate) const SLICES: usize = 64;

/// The bytes that the socket has taken, and the reason why it has not taken all.
pub(crate) type Sent = (usize, Transmitted);

/// Sends the bytes, by several calls if one does not take all.
pub(crate) fn send_all(socket: &OwnedFd, bytes: &[u8]) -> Result<Sent, Lost> {
    let mut sent = 0;
    while sent < bytes.len() {
        match send(socket, &[IoSlice::new(&bytes[sent..])])? {
            (more, Transmitted::All) => sent += more,
            (_, stopped) => return Ok((sent, stopped)),
        }
    }
    Ok((sent, Transmitted::All))
}

/// Sends the slices by one call, which may take a part of them. A single slice needs no message header. An error ends
/// the connection, also one that the kernel does not take for its end, as the denial of a security module: the peer
/// learns of it by the close alone.
pub(crate) fn send(socket: &OwnedFd, slices: &[IoSlice<'_>]) -> Result<Sent, Lost> {
    loop {
        let sent = match slices {
            [one] => rustix::net::send(socket, one, SEND),
            _ => rustix::net::sendmsg(socket, slices, &mut SendAncillaryBuffer::default(), SEND),
        };
        return match sent {
            Ok(bytes) => Ok((bytes, Transmitted::All)),
            Err(Errno::AGAIN) => Ok((0, Transmitted::Blocked)),
            Err(Errno::NOBUFS | Errno::NOMEM) => Ok((0, Transmitted::NoMemory)),
            Err(Errno::INTR) => continue,
            Err(error) => Err(Lost::Error(error)),
        };
    }
}

/// Receives into one buffer. None: no bytes are there.
pub(crate) fn recv(socket: &OwnedFd, memory: &mut [u8]) -> Result<Option<usize>, Lost> {
    received(|| Ok(rustix::net::recv(socket, &mut *memory, RecvFlags::DONTWAIT)?.0))
}

/// Receives into the first slice, then into the second.
pub(crate) fn recv_both(socket: &OwnedFd, first: &mut UninitSlice, second: &mut [u8]) -> Result<Option<usize>, Lost> {
    let mut slices = [first, UninitSlice::new(second)].map(|slice| libc::iovec {
        iov_base: slice.as_mut_ptr().cast(),
        iov_len: slice.len(),
    });
    // SAFETY: zeros are a valid header, one without name, slices and control data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = slices.as_mut_ptr();
    message.msg_iovlen = slices.len() as _;
    received(|| {
        // SAFETY: the header refers to both slices, which are borrowed mutably for the whole call, and the kernel only
        // writes to them.
        let bytes = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
        usize::try_from(bytes).map_err(|_| Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))
    })
}

fn received(mut call: impl FnMut() -> rustix::io::Result<usize>) -> Result<Option<usize>, Lost> {
    loop {
        match call() {
            Ok(0) => return Err(Lost::Eof),
            Ok(bytes) => return Ok(Some(bytes)),
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::INTR) => {}
            Err(error) => return Err(Lost::Error(error)),
        }
    }
}

/// Sends the slices by one call. A part taken: the socket is full.
pub(crate) fn send_slices(socket: &OwnedFd, slices: &[&[u8]], bytes: usize) -> Result<Sent, Lost> {
    let slices: SmallVec<[IoSlice<'_>; SLICES]> = slices.iter().map(|slice| IoSlice::new(slice)).collect();
    Ok(match send(socket, &slices)? {
        (sent, Transmitted::All) if sent < bytes => (sent, Transmitted::Blocked),
        sent => sent,
    })
}

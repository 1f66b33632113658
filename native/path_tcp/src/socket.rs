//! Calls on a socket that does not block.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags};
use smallvec::SmallVec;

use crate::outcome::Lost;

/// Slices of one `sendmsg`. Linux takes 1,024; more than a few dozen make a message no cheaper.
pub(crate) const SLICES: usize = 64;

/// Sends the slices. Returns how many bytes the socket has taken; fewer than all: it is full.
pub(crate) fn send_all(socket: &OwnedFd, bytes: &[u8]) -> Result<usize, Lost> {
    let mut sent = 0;
    while sent < bytes.len() {
        match rustix::net::send(socket, &bytes[sent..], SendFlags::NOSIGNAL) {
            Ok(more) => sent += more,
            Err(Errno::AGAIN) => break,
            Err(Errno::INTR) => {}
            Err(error) => return Err(Lost::Error(error)),
        }
    }
    Ok(sent)
}

/// A single slice needs no message header.
pub(crate) fn send(socket: &OwnedFd, slices: &[IoSlice<'_>]) -> rustix::io::Result<usize> {
    match slices {
        [one] => rustix::net::send(socket, one, SendFlags::NOSIGNAL),
        _ => rustix::net::sendmsg(socket, slices, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL),
    }
}

/// Receives into one buffer. None: no bytes are there.
pub(crate) fn recv(socket: &OwnedFd, memory: &mut [u8]) -> Result<Option<usize>, Lost> {
    received(|| Ok(rustix::net::recv(socket, &mut *memory, RecvFlags::empty())?.0))
}

/// Receives into the first slice, then into the second.
pub(crate) fn recv_both(socket: &OwnedFd, first: &mut [u8], second: &mut [u8]) -> Result<Option<usize>, Lost> {
    let mut slices = [IoSliceMut::new(first), IoSliceMut::new(second)];
    received(|| {
        let mut control = RecvAncillaryBuffer::default();
        Ok(rustix::net::recvmsg(socket, &mut slices, &mut control, RecvFlags::empty())?.bytes)
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

/// How many bytes of the slices the socket has taken by one call.
pub(crate) fn send_all_of(socket: &OwnedFd, slices: &[&[u8]]) -> Result<usize, Lost> {
    let slices: SmallVec<[IoSlice<'_>; SLICES]> = slices.iter().map(|slice| IoSlice::new(slice)).collect();
    loop {
        match send(socket, &slices) {
            Ok(sent) => return Ok(sent),
            Err(Errno::AGAIN) => return Ok(0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(Lost::Error(error)),
        }
    }
}

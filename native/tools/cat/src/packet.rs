//! Packets that have arrived, in the memory in which they lie.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use inet_rdma_assembly::{Gather, LandingBuffer, Received};

use crate::failure::Failure;
use crate::frame::{HEAD_BYTES, Head};

/// Bytes that are copied out at a time for a checksum or a text: they stay in the processor's first cache.
const LOOK_BYTES: usize = 16 * 1024;

enum Body {
    Copied(Vec<u8>, Range<usize>),
    Landed(LandingBuffer, Range<usize>),
}

/// One packet: its head, and the data after it.
pub struct Packet {
    pub head: Head,
    body: Body,
}

impl Packet {
    /// Cuts what one read has returned into packets, in order.
    pub fn parse(received: Received<Vec<u8>>) -> Result<Vec<Packet>, Failure> {
        match received {
            Received::Whole(bytes) => {
                let all = 0..bytes.len();
                Ok(vec![Self::copied(bytes, all)?])
            }
            Received::Batch { bytes, packets } => {
                let one = |range: Range<usize>| Self::copied(bytes[range.clone()].to_vec(), 0..range.len());
                packets.into_iter().map(one).collect()
            }
            Received::Landed(buffer, range) => {
                let mut head = [0; HEAD_BYTES];
                let data = behind_head(&range)?;
                buffer.copy_out(range.start, &mut head);
                Ok(vec![Packet {
                    head: Head::parse(&head)?,
                    body: Body::Landed(buffer, data),
                }])
            }
        }
    }

    fn copied(bytes: Vec<u8>, range: Range<usize>) -> Result<Packet, Failure> {
        let data = behind_head(&range)?;
        let mut head = [0; HEAD_BYTES];
        head.copy_from_slice(&bytes[range.start..data.start]);
        Ok(Packet {
            head: Head::parse(&head)?,
            body: Body::Copied(bytes, data),
        })
    }

    pub fn len(&self) -> usize {
        match &self.body {
            Body::Copied(_, range) | Body::Landed(_, range) => range.len(),
        }
    }

    /// Calls `see` with copies of all data, piece by piece.
    pub fn look(&self, mut see: impl FnMut(&[u8])) {
        match &self.body {
            Body::Copied(bytes, range) => see(&bytes[range.clone()]),
            Body::Landed(buffer, range) => {
                let mut piece = [0; LOOK_BYTES];
                for at in range.clone().step_by(LOOK_BYTES) {
                    let piece = &mut piece[..LOOK_BYTES.min(range.end - at)];
                    buffer.copy_out(at, piece);
                    see(piece);
                }
            }
        }
    }

    /// Writes the data from byte `at` on to `fd` with one call, as write(2). Returns the number of written bytes.
    pub fn write_to(&self, at: usize, fd: BorrowedFd<'_>) -> io::Result<usize> {
        match &self.body {
            Body::Copied(bytes, range) => Ok(rustix::io::write(fd, &bytes[range.start + at..range.end])?),
            Body::Landed(buffer, range) => buffer.write_to(range.start + at..range.end, fd),
        }
    }

    /// Adds the data to a gather, without a copy.
    pub fn add_to<'a>(&'a self, gather: &mut Gather<'a>) {
        match &self.body {
            Body::Copied(bytes, range) => gather.push(&bytes[range.clone()]),
            Body::Landed(buffer, range) => gather.push_landed(buffer, range.clone()),
        }
    }

    /// The data as text, for messages.
    pub fn text(&self) -> String {
        let mut bytes = Vec::new();
        self.look(|piece| bytes.extend_from_slice(piece));
        let printable = |c: char| if c.is_control() { ' ' } else { c };
        String::from_utf8_lossy(&bytes).chars().map(printable).collect()
    }
}

fn behind_head(range: &Range<usize>) -> Result<Range<usize>, Failure> {
    if range.len() < HEAD_BYTES {
        return Err(Failure::Peer("is no rdma-cat".into()));
    }
    Ok(range.start + HEAD_BYTES..range.end)
}

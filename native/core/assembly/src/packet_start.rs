//! The part of the next packet that reads have taken in already.

use bytes::buf::UninitSlice;

use crate::framing::HEADER_MAX_BYTES;
use crate::{AssemblyError, Buffer};

/// The part of the next packet that reads have taken in.
pub(crate) enum PacketStart<B> {
    /// No packet has begun: the next byte begins one.
    Nothing,
    /// A part of the length before a packet.
    Header(PartialHeader),
    /// A part of a line, without a newline.
    Line(Vec<u8>),
    /// A part of a packet, or bytes of raw reads.
    Packet(Partial<B>),
}

#[derive(Default)]
pub(crate) struct PartialHeader {
    pub bytes: [u8; HEADER_MAX_BYTES],
    pub filled: usize,
}

pub(crate) struct Partial<B> {
    pub buffer: B,
    /// Bytes at the start that smaller raw reads have handed over. Such a packet takes no further bytes.
    pub taken: usize,
    pub filled: usize,
    pub bytes: usize,
}

impl<B: Buffer> Partial<B> {
    pub fn new(bytes: usize) -> Result<Self, AssemblyError> {
        let buffer = B::allocate(bytes).ok_or(AssemblyError::NoMemory(bytes))?;
        Ok(Self {
            buffer,
            taken: 0,
            filled: 0,
            bytes,
        })
    }

    /// A complete packet of these bytes.
    pub fn of(bytes: &[u8]) -> Result<Self, AssemblyError> {
        let mut partial = Self::new(bytes.len())?;
        partial.missing().copy_from_slice(bytes);
        partial.filled = bytes.len();
        Ok(partial)
    }

    /// Bytes that are taken in and not handed over.
    pub fn kept(&self) -> usize {
        self.filled - self.taken
    }

    /// The place for the next bytes.
    pub fn missing(&mut self) -> &mut UninitSlice {
        &mut self.buffer.memory()[self.filled..self.bytes]
    }
}

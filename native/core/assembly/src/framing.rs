//! How a stream is cut into packets, and the length before a packet.

/// Size of the longest header.
pub(crate) const HEADER_MAX_BYTES: usize = 4;

/// How the stream is cut into packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// No framing: bytes that arrive together are handed over together.
    Raw,
    /// Each packet has a length of one byte before it.
    Length1,
    /// Each packet has a length of two bytes, big-endian, before it.
    Length2,
    /// Each packet has a length of four bytes, big-endian, before it.
    Length4,
    /// Each packet is a line, with the newline that ends it. Sent bytes are not changed.
    Line {
        /// A longer line is handed over in pieces of this size.
        bytes_max: usize,
    },
}

impl Framing {
    /// Size of the length before each packet.
    #[inline]
    pub fn header_bytes(self) -> usize {
        match self {
            Framing::Raw | Framing::Line { .. } => 0,
            Framing::Length1 => 1,
            Framing::Length2 => 2,
            Framing::Length4 => 4,
        }
    }

    /// The header of a packet of `packet_bytes` bytes; None: the framing's length field cannot hold that number.
    #[inline]
    pub fn header(self, packet_bytes: usize) -> Option<Header> {
        if self.header_bytes() == 0 {
            return Some(Header::default());
        }
        let length = u32::try_from(packet_bytes).ok()?.to_be_bytes();
        let start = length.len() - self.header_bytes();
        let fits = length[..start].iter().all(|&byte| byte == 0);
        fits.then_some(Header { length, start })
    }
}

/// The length before a packet, as it goes on the wire; empty if there is none.
#[derive(Debug, Clone, Copy)]
pub struct Header {
    length: [u8; HEADER_MAX_BYTES],
    start: usize,
}

impl Default for Header {
    /// None: empty.
    #[inline]
    fn default() -> Self {
        Header {
            length: [0; HEADER_MAX_BYTES],
            start: HEADER_MAX_BYTES,
        }
    }
}

impl Header {
    /// Its bytes.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        &self.length[self.start..]
    }
}

/// The length that a header announces.
#[inline]
pub(crate) fn announced<const BYTES: usize>(header: [u8; BYTES]) -> usize {
    let mut length = [0; HEADER_MAX_BYTES];
    length[HEADER_MAX_BYTES - BYTES..].copy_from_slice(&header);
    u32::from_be_bytes(length) as usize
}

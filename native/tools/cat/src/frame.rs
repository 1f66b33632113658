//! Messages of the two sides: packets of the stream, each with a head of fixed size.
//!
//! Sender: `Hello`, any number of `Data`, `End`. Receiver: `Hello`, and `Done` when all has been written. Either may
//! say `Failed` in between, as its last message. Numbers are little-endian; bytes without a meaning are zero.

use std::ops::Range;

use crate::failure::Failure;

/// A head and the four bytes of length before it fill one cache line, so that the data after them is aligned.
pub const HEAD_BYTES: usize = 60;

/// Size of the field with a packet's length, which the connection reads and writes.
pub const LENGTH_BYTES: usize = 4;

/// Maximum size of the text in `Failed`.
pub const REASON_BYTES_MAX: usize = 1024;

/// The version of these messages: another number for each change that an older program would misunderstand.
const VERSION: u16 = 1;
const MAGIC: [u8; 8] = *b"rdma-cat";

const KIND: usize = 0;
const FLAG: usize = 1;
const VERSION_AT: Range<usize> = 2..4;
const MAGIC_AT: Range<usize> = 4..12;
const FIRST: Range<usize> = 12..20;
const SECOND: Range<usize> = 20..28;

const HAS_SECOND: u8 = 1;
const VERIFY: u8 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Head {
    /// The first packet of either side.
    Hello {
        /// Bytes of data that this side takes in one packet.
        data_bytes: u64,
        /// Size of the whole transfer, for the progress bar; None: the sender does not know it.
        total: Option<u64>,
        /// `End` will have a checksum: the receiver computes its own while it receives.
        verify: bool,
    },
    /// Bytes of the transfer follow.
    Data,
    /// The end of the input.
    End {
        /// Bytes of the transfer.
        length: u64,
        /// CRC-32 of all bytes of the transfer; None: the receiver verifies the length alone.
        digest: Option<u32>,
    },
    /// All has been received, verified and written.
    Done {
        /// Bytes of the transfer.
        length: u64,
    },
    /// This side gives up; the reason follows as text.
    Failed,
}

impl Head {
    pub fn emit(&self) -> [u8; HEAD_BYTES] {
        let (kind, flag, first, second) = match *self {
            Head::Hello { data_bytes, total, .. } => (1, total.is_some(), data_bytes, total.unwrap_or(0)),
            Head::Data => (2, false, 0, 0),
            Head::End { length, digest } => (3, digest.is_some(), length, digest.unwrap_or(0).into()),
            Head::Done { length } => (4, false, length, 0),
            Head::Failed => (5, false, 0, 0),
        };
        let mut bytes = [0; HEAD_BYTES];
        bytes[KIND] = kind;
        bytes[FLAG] = if flag { HAS_SECOND } else { 0 };
        bytes[FIRST].copy_from_slice(&first.to_le_bytes());
        bytes[SECOND].copy_from_slice(&second.to_le_bytes());
        if let Head::Hello { verify, .. } = self {
            bytes[FLAG] |= if *verify { VERIFY } else { 0 };
            bytes[VERSION_AT].copy_from_slice(&VERSION.to_le_bytes());
            bytes[MAGIC_AT].copy_from_slice(&MAGIC);
        }
        bytes
    }

    pub fn parse(bytes: &[u8; HEAD_BYTES]) -> Result<Head, Failure> {
        let number = |at: Range<usize>| bytes[at].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let (first, second, flag) = (number(FIRST), number(SECOND), bytes[FLAG] & HAS_SECOND != 0);
        let head = match bytes[KIND] {
            1 if bytes[MAGIC_AT] == MAGIC => {
                let version = number(VERSION_AT);
                if version != u64::from(VERSION) {
                    let what = format!("speaks version {version} of rdma-cat's protocol, this side version {VERSION}");
                    return Err(Failure::Peer(what));
                }
                Head::Hello {
                    data_bytes: first,
                    total: flag.then_some(second),
                    verify: bytes[FLAG] & VERIFY != 0,
                }
            }
            2 => Head::Data,
            3 => Head::End {
                length: first,
                digest: flag.then_some(u32::try_from(second).unwrap_or(0)),
            },
            4 => Head::Done { length: first },
            5 => Head::Failed,
            _ => return Err(Failure::Peer("is no rdma-cat".into())),
        };
        // A head has exactly one form: bytes without a meaning must be zero.
        if head.emit() == *bytes {
            Ok(head)
        } else {
            Err(Failure::Peer("is no rdma-cat".into()))
        }
    }
}

/// The field with the length of a packet that has `data` bytes after the head.
pub fn length_of(data: usize) -> [u8; LENGTH_BYTES] {
    // Buffers are far below 4 GiB.
    u32::try_from(HEAD_BYTES + data).unwrap_or(u32::MAX).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::{HEAD_BYTES, Head, MAGIC_AT, VERSION_AT};

    const ALL: [Head; 8] = [
        Head::Hello {
            data_bytes: 262_144,
            total: Some(0),
            verify: true,
        },
        Head::Hello {
            data_bytes: u64::MAX,
            total: None,
            verify: false,
        },
        Head::Data,
        Head::End {
            length: u64::MAX,
            digest: Some(u32::MAX),
        },
        Head::End {
            length: 0,
            digest: None,
        },
        Head::Done { length: 0 },
        Head::Done { length: 5 << 30 },
        Head::Failed,
    ];

    #[test]
    fn every_head_is_parsed_as_what_it_was() {
        for head in ALL {
            assert_eq!(Head::parse(&head.emit()).expect("a head"), head);
        }
    }

    #[test]
    fn a_head_with_any_bit_changed_is_another_head_or_none() {
        for head in ALL {
            for bit in 0..HEAD_BYTES * 8 {
                let mut bytes = head.emit();
                bytes[bit / 8] ^= 1 << (bit % 8);
                if let Ok(other) = Head::parse(&bytes) {
                    assert_ne!(other, head, "bit {bit}");
                }
            }
        }
    }

    #[test]
    fn another_version_is_told_from_garbage() {
        let hello = ALL[0].emit();
        let told = |at: usize| {
            let mut bytes = hello;
            bytes[at] ^= 0x40;
            Head::parse(&bytes).expect_err("not a hello").to_string()
        };
        assert!(
            told(VERSION_AT.start).contains("speaks version 65"),
            "{}",
            told(VERSION_AT.start)
        );
        assert!(told(MAGIC_AT.start).contains("is no rdma-cat"));
    }
}

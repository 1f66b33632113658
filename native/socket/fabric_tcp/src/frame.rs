//! The frames of a connection, after the hellos: control messages, and transfers with the place of their bytes.
//!
//! A control message is a head of 4 bytes and the message. A transfer is a head of 28 bytes, then its bytes. All
//! numbers are little-endian, and bytes without a meaning are zero: each frame has one form only.

use std::ops::Range;

use inet_rdma_fabric::Misbehaviour;
use inet_rdma_stream::{CONTROL_BYTES, Notice, RemoteAddress};

/// Kind in the first byte, zeros after it.
const KIND: Range<usize> = 0..4;
const CONTROL: Range<usize> = 4..4 + CONTROL_BYTES;
const NOTICE: Range<usize> = 4..8;
const BYTES: Range<usize> = 8..12;
const ADDRESS: Range<usize> = 12..20;
const KEY: Range<usize> = 20..28;

const KIND_CONTROL: u32 = 1;
const KIND_TRANSFER: u32 = 2;

pub(crate) const CONTROL_FRAME_BYTES: usize = CONTROL.end;

pub(crate) const TRANSFER_HEAD_BYTES: usize = KEY.end;

/// A transfer without its bytes, which follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TransferHead {
    pub(crate) notice: Notice,
    /// Bytes that follow. The notice names a number of bytes, too, which the stream checks.
    pub(crate) bytes: u32,
    pub(crate) target: RemoteAddress,
}

impl TransferHead {
    pub(crate) fn emit(&self) -> [u8; TRANSFER_HEAD_BYTES] {
        let mut head = [0; TRANSFER_HEAD_BYTES];
        head[KIND].copy_from_slice(&KIND_TRANSFER.to_le_bytes());
        head[NOTICE].copy_from_slice(&self.notice.emit().to_le_bytes());
        head[BYTES].copy_from_slice(&self.bytes.to_le_bytes());
        head[ADDRESS].copy_from_slice(&self.target.address.to_le_bytes());
        head[KEY].copy_from_slice(&self.target.key.to_le_bytes());
        head
    }
}

pub(crate) fn emit_control(message: &[u8; CONTROL_BYTES]) -> [u8; CONTROL_FRAME_BYTES] {
    let mut frame = [0; CONTROL_FRAME_BYTES];
    frame[KIND].copy_from_slice(&KIND_CONTROL.to_le_bytes());
    frame[CONTROL].copy_from_slice(message);
    frame
}

/// The beginning of what a peer has sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// A whole control message.
    Control([u8; CONTROL_BYTES]),
    /// The head of a transfer, whose bytes follow.
    Transfer(TransferHead),
}

impl Frame {
    pub(crate) fn head_bytes(&self) -> usize {
        match self {
            Frame::Control(_) => CONTROL_FRAME_BYTES,
            Frame::Transfer(_) => TRANSFER_HEAD_BYTES,
        }
    }

    /// Reads the frame that `bytes` begin with. None: more bytes are needed.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Option<Frame>, Misbehaviour> {
        let Some(kind) = field(bytes, KIND).map(u32::from_le_bytes) else {
            return Ok(None);
        };
        match kind {
            KIND_CONTROL => Ok(field(bytes, CONTROL).map(Frame::Control)),
            KIND_TRANSFER => parse_transfer(bytes),
            said => Err(Misbehaviour::FrameKind { said }),
        }
    }
}

fn parse_transfer(bytes: &[u8]) -> Result<Option<Frame>, Misbehaviour> {
    let (Some(notice), Some(length), Some(address), Some(key)) = (
        field(bytes, NOTICE),
        field(bytes, BYTES),
        field(bytes, ADDRESS),
        field(bytes, KEY),
    ) else {
        return Ok(None);
    };
    Ok(Some(Frame::Transfer(TransferHead {
        notice: Notice::parse(u32::from_le_bytes(notice))?,
        bytes: u32::from_le_bytes(length),
        target: RemoteAddress {
            key: u64::from_le_bytes(key),
            address: u64::from_le_bytes(address),
        },
    })))
}

/// A field as an array; None: `bytes` end before it does.
fn field<const N: usize>(bytes: &[u8], field: Range<usize>) -> Option<[u8; N]> {
    bytes.get(field)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRANSFER: TransferHead = TransferHead {
        notice: Notice {
            direct: true,
            bytes: 70_000,
        },
        bytes: 70_001,
        target: RemoteAddress {
            key: 0x0102_0304_0506_0708,
            address: 0x1112_1314_1516_1718,
        },
    };

    #[test]
    fn emitted_frames_are_parsed() {
        let message = std::array::from_fn(|index| index as u8);
        let parsed = Frame::parse(&emit_control(&message));
        assert_eq!(parsed, Ok(Some(Frame::Control(message))));
        assert_eq!(Frame::parse(&TRANSFER.emit()), Ok(Some(Frame::Transfer(TRANSFER))));
    }

    #[test]
    fn the_bytes_of_a_transfer_are_where_the_protocol_says() {
        let head = TRANSFER.emit();
        assert_eq!(head[..4], [2, 0, 0, 0]);
        assert_eq!(head[4..8], (70_000u32 | 1 << 31).to_le_bytes());
        assert_eq!(head[8..12], 70_001u32.to_le_bytes());
        let numbers = [0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 8, 7, 6, 5, 4, 3, 2, 1];
        assert_eq!(head[12..], numbers);
    }

    #[test]
    fn a_part_of_a_frame_waits_for_the_rest() {
        for frame in [&emit_control(&[9; CONTROL_BYTES])[..], &TRANSFER.emit()[..]] {
            for end in 0..frame.len() {
                assert_eq!(Frame::parse(&frame[..end]), Ok(None), "{end}");
            }
        }
    }

    #[test]
    fn no_other_bytes_are_a_frame() {
        for said in [0, 3, 0x0100_0001, u32::MAX] {
            let parsed = Frame::parse(&said.to_le_bytes());
            assert_eq!(parsed, Err(Misbehaviour::FrameKind { said }));
        }
        let mut direct_of_nothing = TRANSFER.emit();
        direct_of_nothing[NOTICE].copy_from_slice(&(1u32 << 31).to_le_bytes());
        assert!(Frame::parse(&direct_of_nothing).is_err());
    }
}

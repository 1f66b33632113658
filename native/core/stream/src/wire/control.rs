//! The control messages, all of one size.

use super::{
    Field, RemoteAddress, TRANSFER_BYTES_MAX, WireError, check_length, check_zero, read_u16, read_u32, read_u64,
};
use crate::seq::{Phase, Seq};

/// Size of a control message on the wire.
pub const CONTROL_BYTES: usize = 40;

/// Named field ranges.
mod field {
    use crate::wire::Field;

    pub const KIND: usize = 0;
    pub const FLAGS: usize = 1;
    pub const CREDITS: Field = 2..4;
    /// Everything that depends on the kind.
    pub const BODY: Field = 4..40;
    pub const BYTES: Field = 4..8;
    pub const ADDRESS: Field = 8..16;
    /// The byte that an advertisement is for, the bytes freed, or the end of the stream.
    pub const SEQ: Field = 16..24;
    pub const BEFORE_SEQ: Field = 4..16;
    pub const AFTER_SEQ: Field = 24..40;
    pub const PHASE: Field = 24..32;
    pub const RING_KEY: Field = 16..24;
    pub const RING_UNUSED: Field = 24..40;
    pub const KEY: Field = 32..40;
}

/// First byte of a control message.
mod kind {
    pub const CREDIT: u8 = 1;
    pub const ADVERT: u8 = 2;
    pub const ACK: u8 = 3;
    pub const TICK: u8 = 4;
    pub const FINISH: u8 = 5;
    pub const RECALL: u8 = 6;
    pub const RING: u8 = 7;
}

/// The only flag: the advertised buffer must be filled completely.
const FILL: u8 = 1;

/// An advertisement: a buffer that the peer may fill from stream byte `seq` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Advert {
    /// The address of the buffer.
    pub target: RemoteAddress,
    /// Its size, 1 to [`TRANSFER_BYTES_MAX`].
    pub bytes: u32,
    /// The buffer must be filled completely before it counts as received.
    pub fill: bool,
    /// The stream byte at which the peer may use it.
    pub seq: Seq,
    /// The phase in which the peer may use it; always direct.
    pub phase: Phase,
}

/// A control message: a body, and returned receive slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Control {
    /// Receive slots that the sender of this message has made free again.
    pub credits: u16,
    /// The rest of the message.
    pub body: ControlBody,
}

/// The content of a control message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ControlBody {
    /// No content except for the credits.
    Credit,
    /// A buffer for direct transfers.
    Advert(Advert),
    /// An acknowledgement of all bytes that were copied out of the ring.
    Ack {
        /// Ring bytes freed since the start.
        freed: Seq,
    },
    /// A keepalive.
    Tick,
    /// The stream ends at this byte: nothing follows it.
    Finish {
        /// Length of the whole stream.
        end: Seq,
    },
    /// Asks the receiver to give up all advertisements, and to answer with a mark ([`super::Notice::MARK`]).
    Recall,
    /// As `Recall`, and asks the receiver to write into another ring after the mark.
    Ring(NewRing),
}

/// The place of a ring that replaces the present one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NewRing {
    /// Address of its first byte.
    pub target: RemoteAddress,
    /// Its size, 1 to [`TRANSFER_BYTES_MAX`].
    pub bytes: u32,
}

impl Control {
    /// Reads a control message of exactly [`CONTROL_BYTES`].
    pub fn parse(message: &[u8]) -> Result<Control, WireError> {
        check_length(message, CONTROL_BYTES)?;
        if message[field::KIND] != kind::ADVERT && message[field::FLAGS] != 0 {
            return Err(WireError::Field("control flags"));
        }
        let body = match message[field::KIND] {
            kind::CREDIT => parse_empty(message, ControlBody::Credit)?,
            kind::ADVERT => ControlBody::Advert(parse_advert(message)?),
            kind::ACK => ControlBody::Ack {
                freed: parse_seq(message)?,
            },
            kind::TICK => parse_empty(message, ControlBody::Tick)?,
            kind::FINISH => ControlBody::Finish {
                end: parse_seq(message)?,
            },
            kind::RECALL => parse_empty(message, ControlBody::Recall)?,
            kind::RING => ControlBody::Ring(parse_ring(message)?),
            unknown => return Err(WireError::Kind(unknown)),
        };
        Ok(Control {
            credits: read_u16(message, field::CREDITS),
            body,
        })
    }

    /// The message as bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; CONTROL_BYTES] {
        let mut message = [0; CONTROL_BYTES];
        message[field::CREDITS].copy_from_slice(&self.credits.to_le_bytes());
        message[field::KIND] = match &self.body {
            ControlBody::Credit => kind::CREDIT,
            ControlBody::Advert(advert) => {
                emit_advert(advert, &mut message);
                kind::ADVERT
            }
            ControlBody::Ack { freed } => {
                message[field::SEQ].copy_from_slice(&freed.0.to_le_bytes());
                kind::ACK
            }
            ControlBody::Tick => kind::TICK,
            ControlBody::Finish { end } => {
                message[field::SEQ].copy_from_slice(&end.0.to_le_bytes());
                kind::FINISH
            }
            ControlBody::Recall => kind::RECALL,
            ControlBody::Ring(ring) => {
                emit_place(ring.target, ring.bytes, field::RING_KEY, &mut message);
                kind::RING
            }
        };
        message
    }
}

fn parse_empty(message: &[u8], body: ControlBody) -> Result<ControlBody, WireError> {
    check_zero(message, field::BODY, "control body")?;
    Ok(body)
}

fn parse_seq(message: &[u8]) -> Result<Seq, WireError> {
    check_zero(message, field::BEFORE_SEQ, "control body")?;
    check_zero(message, field::AFTER_SEQ, "control body")?;
    Ok(Seq(read_u64(message, field::SEQ)))
}

fn parse_ring(message: &[u8]) -> Result<NewRing, WireError> {
    check_zero(message, field::RING_UNUSED, "control body")?;
    let (target, bytes) = parse_place(message, field::RING_KEY, "ring bytes")?;
    Ok(NewRing { target, bytes })
}

/// Where memory is, and its size, which the error names.
fn parse_place(message: &[u8], key: Field, size: &'static str) -> Result<(RemoteAddress, u32), WireError> {
    let bytes = read_u32(message, field::BYTES);
    if bytes == 0 || bytes > TRANSFER_BYTES_MAX {
        return Err(WireError::Field(size));
    }
    let target = RemoteAddress {
        key: read_u64(message, key),
        address: read_u64(message, field::ADDRESS),
    };
    Ok((target, bytes))
}

fn emit_place(target: RemoteAddress, bytes: u32, key: Field, message: &mut [u8; CONTROL_BYTES]) {
    message[key].copy_from_slice(&target.key.to_le_bytes());
    message[field::ADDRESS].copy_from_slice(&target.address.to_le_bytes());
    message[field::BYTES].copy_from_slice(&bytes.to_le_bytes());
}

fn parse_advert(message: &[u8]) -> Result<Advert, WireError> {
    if message[field::FLAGS] & !FILL != 0 {
        return Err(WireError::Field("control flags"));
    }
    let (target, bytes) = parse_place(message, field::KEY, "advert bytes")?;
    Ok(Advert {
        target,
        bytes,
        fill: message[field::FLAGS] & FILL != 0,
        seq: Seq(read_u64(message, field::SEQ)),
        phase: Phase(read_u64(message, field::PHASE)),
    })
}

fn emit_advert(advert: &Advert, message: &mut [u8; CONTROL_BYTES]) {
    message[field::FLAGS] = if advert.fill { FILL } else { 0 };
    emit_place(advert.target, advert.bytes, field::KEY, message);
    message[field::SEQ].copy_from_slice(&advert.seq.0.to_le_bytes());
    message[field::PHASE].copy_from_slice(&advert.phase.0.to_le_bytes());
}

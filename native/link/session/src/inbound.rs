//! The receiving side of TCP: frames, and the packets in them.

use bytes::buf::UninitSlice;

use crate::Violation;
use crate::frame::{HEADER_BYTES, Header, Kind};
use crate::turn::Turn;

/// Packets above this size get memory of their own, into which the kernel writes.
pub const LARGE_BYTES: usize = 16 * 1024;
/// Bytes of the length that goes before each packet.
pub const LENGTH_BYTES: usize = 4;
/// Minimum size of a part of a large packet that is read into the packet's own memory; a smaller part is read together
/// with the bytes that follow it.
const DIRECT_BYTES_MIN: usize = 16 * 1024;

/// Memory of a large packet.
pub trait Memory {
    /// All of it. It may be uninitialized: the slice is for writing alone.
    fn memory(&mut self) -> &mut UninitSlice;
}

impl Memory for Vec<u8> {
    fn memory(&mut self) -> &mut UninitSlice {
        UninitSlice::new(self)
    }
}

/// Takes packets, in order.
pub trait Sink {
    /// Memory of a large packet.
    type Large: Memory;
    /// Allocates exactly this size; None: there is not enough memory.
    fn allocate(&mut self, bytes: usize) -> Option<Self::Large>;
    /// A packet of up to [`LARGE_BYTES`].
    fn small(&mut self, packet: &[u8]);
    /// A larger one.
    fn large(&mut self, packet: Self::Large);
}

/// The packet that has arrived in part. It outlives the connection on which it began.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Packet<L> {
    /// A part of the length, or of a small packet, is here.
    Small(Vec<u8>),
    /// `filled` bytes of a large packet are here.
    Large { memory: L, filled: usize, bytes: usize },
}

/// The part of the present frame that is still missing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Frame {
    /// Its header, of which this many bytes are here.
    Header([u8; HEADER_BYTES], usize),
    /// This many bytes of the stream.
    Data(usize),
    /// The rest of a message of this kind and size.
    Message(Kind, Vec<u8>, usize),
}

/// The contents of a frame beside bytes of the stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// A header, whose acknowledgement is valid before the rest of the frame has come.
    Header(Header),
    /// A whole message.
    Message(Kind, Vec<u8>),
}

impl Said {
    /// True if it completes a frame that carries no bytes of the stream, and is no acknowledgement alone.
    pub fn is_whole_frame(&self) -> bool {
        match self {
            Said::Header(header) => header.kind != Kind::Data && header.bytes == 0,
            Said::Message(..) => true,
        }
    }
}

/// Cuts the incoming bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Inbound<L> {
    frame: Frame,
    packet: Packet<L>,
    packet_max_bytes: usize,
    /// Bytes of the stream that have been received and come a second time.
    again: usize,
    /// The number of complete packets.
    pub packets: u64,
    /// Bytes of the stream.
    pub bytes: u64,
}

impl<L: Memory> Inbound<L> {
    pub fn new(packet_max_bytes: usize) -> Self {
        Inbound {
            frame: Frame::Header([0; HEADER_BYTES], 0),
            packet: Packet::Small(Vec::new()),
            packet_max_bytes,
            again: 0,
            packets: 0,
            bytes: 0,
        }
    }

    /// The connection is gone, and the frame under way with it; the packet under way stays.
    pub fn reset_frame(&mut self) {
        self.frame = Frame::Header([0; HEADER_BYTES], 0);
        self.again = 0;
    }

    /// The connection brings this many bytes of the stream again. No packet is under way if there are any.
    pub fn skip(&mut self, bytes: usize) {
        self.again = bytes;
    }

    /// Whether no packet is under way.
    pub fn is_between_packets(&self) -> bool {
        matches!(&self.packet, Packet::Small(begun) if begun.is_empty())
    }

    /// Frees memory that is not in use.
    pub fn shrink(&mut self) {
        if self.is_between_packets() {
            self.packet = Packet::Small(Vec::new());
        }
    }

    /// The memory that the next bytes of the connection belong to, if it pays to read them there.
    pub fn direct(&mut self) -> Option<&mut UninitSlice> {
        match (&self.frame, &mut self.packet) {
            (&Frame::Data(left), Packet::Large { memory, filled, bytes }) => {
                let end = (*filled + left).min(*bytes);
                (end - *filled >= DIRECT_BYTES_MIN).then(|| &mut memory.memory()[*filled..end])
            }
            _ => None,
        }
    }

    /// The connection has written `bytes` bytes into [`Self::direct`].
    pub fn handle_direct<S: Sink<Large = L>>(&mut self, bytes: usize, turn: &mut Turn, sink: &mut S) {
        turn.bytes = turn.bytes.saturating_sub(bytes);
        if let Frame::Data(left) = self.frame {
            self.bytes += bytes as u64;
            self.frame = match left.saturating_sub(bytes) {
                0 => Frame::Header([0; HEADER_BYTES], 0),
                rest => Frame::Data(rest),
            };
            if let Packet::Large { filled, .. } = &mut self.packet {
                *filled += bytes;
            }
            self.give_large(turn, sink);
        }
    }

    /// Takes bytes of the connection up to the end of the next item or of the turn. Returns their number and the item.
    pub fn handle<S: Sink<Large = L>>(
        &mut self,
        bytes: &[u8],
        turn: &mut Turn,
        sink: &mut S,
    ) -> Result<(usize, Option<Said>), Violation> {
        let bytes = &bytes[..bytes.len().min(turn.bytes)];
        let (left, said) = self.handle_some(bytes, turn, sink)?;
        let taken = bytes.len() - left;
        turn.bytes -= taken;
        Ok((taken, said))
    }

    /// As [`Self::handle`], for bytes that the turn allows. Returns the number of bytes that are left.
    fn handle_some<S: Sink<Large = L>>(
        &mut self,
        bytes: &[u8],
        turn: &mut Turn,
        sink: &mut S,
    ) -> Result<(usize, Option<Said>), Violation> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match &mut self.frame {
                Frame::Header(header, filled) => {
                    let taken = rest.len().min(HEADER_BYTES - *filled);
                    header[*filled..*filled + taken].copy_from_slice(&rest[..taken]);
                    *filled += taken;
                    rest = &rest[taken..];
                    if *filled == HEADER_BYTES {
                        let header = Header::decode(header).ok_or(Violation::Frame)?;
                        self.frame = match (header.kind, header.bytes) {
                            (Kind::Data, bytes @ 1..) => Frame::Data(bytes),
                            (
                                kind @ (Kind::Control
                                | Kind::Move
                                | Kind::End
                                | Kind::Echo
                                | Kind::Echoed
                                | Kind::Window),
                                bytes @ 1..,
                            ) => Frame::Message(kind, Vec::new(), bytes),
                            _ => Frame::Header([0; HEADER_BYTES], 0),
                        };
                        return Ok((rest.len(), Some(Said::Header(header))));
                    }
                }
                &mut Frame::Data(left) => {
                    let data = &rest[..rest.len().min(left)];
                    let (again, data) = data.split_at(data.len().min(self.again));
                    self.again -= again.len();
                    let not_taken = self.handle_data(data, turn, sink)?.len();
                    let new = data.len() - not_taken;
                    self.bytes += new as u64;
                    let taken = again.len() + new;
                    self.frame = match left - taken {
                        0 => Frame::Header([0; HEADER_BYTES], 0),
                        left => Frame::Data(left),
                    };
                    rest = &rest[taken..];
                    if turn.packets == 0 {
                        break;
                    }
                }
                Frame::Message(kind, message, size) => {
                    let taken = rest.len().min(*size - message.len());
                    message.extend_from_slice(&rest[..taken]);
                    rest = &rest[taken..];
                    if message.len() == *size {
                        let said = Said::Message(*kind, std::mem::take(message));
                        self.frame = Frame::Header([0; HEADER_BYTES], 0);
                        return Ok((rest.len(), Some(said)));
                    }
                }
            }
        }
        Ok((rest.len(), None))
    }

    /// Bytes of the stream. Returns the bytes after the last packet of the turn.
    fn handle_data<'a, S: Sink<Large = L>>(
        &mut self,
        mut data: &'a [u8],
        turn: &mut Turn,
        sink: &mut S,
    ) -> Result<&'a [u8], Violation> {
        while !data.is_empty() && turn.packets > 0 {
            match &mut self.packet {
                Packet::Large { memory, filled, bytes } => {
                    let taken = data.len().min(*bytes - *filled);
                    memory.memory()[*filled..*filled + taken].copy_from_slice(&data[..taken]);
                    *filled += taken;
                    data = &data[taken..];
                    self.give_large(turn, sink);
                }
                Packet::Small(begun) if begun.is_empty() => {
                    let Some((length, behind)) = data.split_first_chunk::<LENGTH_BYTES>() else {
                        begun.extend_from_slice(data);
                        return Ok(&[]);
                    };
                    let bytes = self.checked(*length)?;
                    if bytes > LARGE_BYTES {
                        self.begin_large(bytes, sink)?;
                        data = behind;
                    } else if let Some((packet, behind)) = behind.split_at_checked(bytes) {
                        self.packets += 1;
                        turn.count_packet();
                        sink.small(packet);
                        data = behind;
                    } else if let Packet::Small(begun) = &mut self.packet {
                        begun.extend_from_slice(data);
                        return Ok(&[]);
                    }
                }
                Packet::Small(begun) => {
                    let wanted = match begun.first_chunk::<LENGTH_BYTES>() {
                        None => LENGTH_BYTES,
                        Some(length) => LENGTH_BYTES + u32::from_be_bytes(*length) as usize,
                    };
                    let taken = data.len().min(wanted - begun.len());
                    begun.extend_from_slice(&data[..taken]);
                    data = &data[taken..];
                    if begun.len() < wanted {
                        return Ok(&[]);
                    }
                    self.handle_begun(turn, sink)?;
                }
            }
        }
        Ok(data)
    }

    /// The length of a small packet, or all of it, is here.
    fn handle_begun<S: Sink<Large = L>>(&mut self, turn: &mut Turn, sink: &mut S) -> Result<(), Violation> {
        let Packet::Small(begun) = &mut self.packet else {
            return Ok(());
        };
        let Some((length, packet)) = begun.split_first_chunk::<LENGTH_BYTES>() else {
            return Ok(());
        };
        let bytes = u32::from_be_bytes(*length) as usize;
        if packet.len() == bytes {
            self.packets += 1;
            turn.count_packet();
            sink.small(packet);
            begun.clear();
            return Ok(());
        }
        let length = *length;
        if self.checked(length)? > LARGE_BYTES {
            self.begin_large(bytes, sink)?;
        }
        Ok(())
    }

    fn checked(&self, length: [u8; LENGTH_BYTES]) -> Result<usize, Violation> {
        let bytes = u32::from_be_bytes(length) as usize;
        if bytes <= self.packet_max_bytes {
            Ok(bytes)
        } else {
            Err(Violation::PacketTooLarge {
                bytes,
                max: self.packet_max_bytes,
            })
        }
    }

    fn begin_large<S: Sink<Large = L>>(&mut self, bytes: usize, sink: &mut S) -> Result<(), Violation> {
        let memory = sink.allocate(bytes).ok_or(Violation::NoMemory(bytes))?;
        self.packet = Packet::Large {
            memory,
            filled: 0,
            bytes,
        };
        Ok(())
    }

    fn give_large<S: Sink<Large = L>>(&mut self, turn: &mut Turn, sink: &mut S) {
        match std::mem::replace(&mut self.packet, Packet::Small(Vec::new())) {
            Packet::Large { memory, filled, bytes } if filled == bytes => {
                self.packets += 1;
                turn.count_packet();
                sink.large(memory);
            }
            unfinished => self.packet = unfinished,
        }
    }
}

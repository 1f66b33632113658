//! A path whose bytes are not those of the session: compressed, sealed, or both, in that order.

use std::os::fd::OwnedFd;

use bytes::buf::UninitSlice;
use inet_rdma_records::PLAIN_BYTES_MAX;
use inet_rdma_session::{Memory, Session, Sink, Turn};
use smallvec::SmallVec;

use crate::codec::Codec;
use crate::compress::{BLOCK_BYTES_MAX, BLOCK_HEADER_BYTES, Compression, Compressor, PLAIN_BLOCK_BYTES_MAX};
use crate::decompress::Decompressor;
use crate::outcome::{Lost, ReceiveError, Transmitted};
use crate::seal::Seal;
use crate::socket::{SLICES, send_all, send_slices};

/// A slice of at least this size ends the bytes that are encoded at a time: the cipher reads the last slice where it
/// is, and copies the slices before it.
const LARGE_BYTES: usize = 4096;

const _: () = assert!(BLOCK_BYTES_MAX + BLOCK_BYTES_MAX / 128 + 64 + BLOCK_HEADER_BYTES <= PLAIN_BYTES_MAX);

/// Both directions of a path whose bytes are encoded.
#[derive(Default)]
pub(crate) struct Encoding {
    pub seal: Option<Seal>,
    pub codec: Codec,
    /// Encoded bytes that the socket has not taken. They are not encoded a second time.
    held: Vec<u8>,
    /// Bytes that are left of a plain block whose header has been sent in clear. They are the session's next bytes, and
    /// go from where they lie.
    plain_left: usize,
}

impl Encoding {
    pub fn held(&self) -> &[u8] {
        &self.held
    }

    /// The counts of compression of sent and of received bytes. None: neither side compresses.
    pub fn compression(&self) -> Option<[Compression; 2]> {
        let sent = self.codec.compressor.as_ref().map(|compressor| compressor.done);
        let received = self.codec.decompressor.as_ref().map(|decompressor| decompressor.done);
        (sent.is_some() || received.is_some()).then(|| [sent.unwrap_or_default(), received.unwrap_or_default()])
    }

    pub fn transmit<H: AsRef<[u8]>, L: Memory>(
        &mut self,
        socket: &OwnedFd,
        session: &mut Session<H, L>,
    ) -> Result<Transmitted, Lost> {
        if !self.held.is_empty() {
            let (sent, stopped) = send_all(socket, &self.held)?;
            self.held.drain(..sent);
            if stopped != Transmitted::All {
                return Ok(stopped);
            }
            self.held = Vec::new();
        }
        if let Some(seal) = &mut self.seal {
            seal.rekey_if_old();
        }
        while session.poll_transmit() {
            let stopped = if self.sends_plain() {
                self.send_plain(socket, session)?
            } else {
                self.code(socket, session)?
            };
            if stopped != Transmitted::All {
                return Ok(stopped);
            }
        }
        Ok(Transmitted::All)
    }

    /// True if the session's next bytes go unchanged, after the header of a plain block.
    fn sends_plain(&self) -> bool {
        let skips = self.codec.compressor.as_ref().is_some_and(Compressor::skips);
        self.plain_left > 0 || (self.seal.is_none() && skips)
    }

    /// Sends the rest of a plain block, or a new block, without a copy: bytes that the socket does not take stay in the
    /// session.
    fn send_plain<H: AsRef<[u8]>, L: Memory>(
        &mut self,
        socket: &OwnedFd,
        session: &mut Session<H, L>,
    ) -> Result<Transmitted, Lost> {
        let bytes_max = match self.plain_left {
            0 => PLAIN_BLOCK_BYTES_MAX,
            left => left,
        };
        let header;
        let mut slices: SmallVec<[&[u8]; SLICES]> = SmallVec::new();
        let mut bytes = 0;
        session.transmission(|slice| {
            let part = &slice[..slice.len().min(bytes_max - bytes)];
            slices.push(part);
            bytes += part.len();
            bytes < bytes_max && slices.len() < SLICES - 1
        });
        let mut head: &[u8] = &[];
        if let (0, Some(compressor)) = (self.plain_left, &mut self.codec.compressor) {
            header = compressor.skip(bytes);
            head = &header;
            slices.insert(0, head);
            self.plain_left = bytes;
        }
        let (sent, stopped) = send_slices(socket, &slices, head.len() + bytes)?;
        drop(slices);
        self.held.extend_from_slice(head.get(sent..).unwrap_or_default());
        let taken = sent.saturating_sub(head.len());
        self.plain_left -= taken;
        session.handle_transmitted(taken);
        Ok(stopped)
    }

    /// Codes and sends the bytes that the session transmits next.
    fn code<H: AsRef<[u8]>, L: Memory>(
        &mut self,
        socket: &OwnedFd,
        session: &mut Session<H, L>,
    ) -> Result<Transmitted, Lost> {
        let bytes_max = match self.codec.compressor {
            Some(_) => BLOCK_BYTES_MAX,
            None => PLAIN_BYTES_MAX,
        };
        let header;
        let mut slices: SmallVec<[&[u8]; SLICES]> = SmallVec::new();
        let mut bytes = 0;
        session.transmission(|slice| {
            let part = &slice[..slice.len().min(bytes_max - bytes)];
            slices.push(part);
            bytes += part.len();
            bytes < bytes_max && part.len() < LARGE_BYTES && slices.len() < SLICES - 1
        });
        let compressor = self.codec.compressor.as_mut();
        let is_compressed =
            compressor.is_some_and(|compressor| !compressor.skips() && compressor.compress(&slices, bytes));
        let (seal, held) = (&mut self.seal, &mut self.held);
        let stopped = match &mut self.codec.compressor {
            None => send_coded(socket, seal, &slices, bytes, held)?,
            Some(compressor) if is_compressed => {
                let block = compressor.block();
                send_coded(socket, seal, &[block], block.len(), held)?
            }
            Some(compressor) => {
                header = compressor.skip(bytes);
                slices.insert(0, &header);
                send_coded(socket, seal, &slices, BLOCK_HEADER_BYTES + bytes, held)?
            }
        };
        drop(slices);
        session.handle_transmitted(bytes);
        Ok(stopped)
    }

    /// The memory for the next bytes: the rest of a record that has arrived in part; in clear the memory of a large
    /// packet, as far as the plain block goes. None: the caller's buffer.
    pub fn direct<'a, H: AsRef<[u8]>, L: Memory>(
        &'a mut self,
        session: &'a mut Session<H, L>,
    ) -> Option<&'a mut UninitSlice> {
        match (&mut self.seal, &self.codec.decompressor) {
            (Some(seal), _) => seal.rest().map(UninitSlice::new),
            (None, Some(decompressor)) => match decompressor.plain_bytes_left() {
                0 => None,
                left => session.direct().map(|memory| {
                    let bytes = memory.len().min(left);
                    &mut memory[..bytes]
                }),
            },
            (None, None) => session.direct(),
        }
    }

    /// True if bytes that are decoded wait for the next turn.
    pub fn holds_input(&self) -> bool {
        self.seal.as_ref().is_some_and(Seal::holds_input)
            || self.codec.decompressor.as_ref().is_some_and(Decompressor::holds_input)
    }

    /// The first `direct` bytes of [`Self::direct`] have come, and these after them. Returns how many of those the
    /// turn has taken.
    pub fn handle_input<H: AsRef<[u8]>, S: Sink>(
        &mut self,
        direct: usize,
        bytes: &mut [u8],
        session: &mut Session<H, S::Large>,
        turn: &mut Turn,
        sink: &mut S,
    ) -> Result<usize, ReceiveError> {
        if self.seal.is_none() && direct > 0 {
            if let Some(decompressor) = &mut self.codec.decompressor {
                decompressor.handle_plain(direct);
            }
            session.handle_direct(direct, turn, sink)?;
        }
        let decompressor = &mut self.codec.decompressor;
        let is_sealed = self.seal.is_some();
        let mut take = |plain: &[u8]| match decompressor {
            None => Ok(session.handle_input(plain, turn, sink)?),
            Some(decompressor) => {
                let taken = decompressor.handle_input(plain, |plain| {
                    Ok::<_, ReceiveError>(session.handle_input(plain, turn, sink)?)
                });
                match taken {
                    // The record has shown that these are the peer's bytes.
                    Err(ReceiveError::Block(violation)) if is_sealed => Err(ReceiveError::PeerBlock(violation)),
                    taken => taken,
                }
            }
        };
        match &mut self.seal {
            None => take(bytes),
            Some(seal) => {
                // Output of an earlier block may wait, whether a record does or not.
                take(&[])?;
                if direct > 0 {
                    seal.handle_rest(direct, &mut take)?;
                }
                seal.handle_input(bytes, &mut take)
            }
        }
    }
}

/// Sends these slices, in a record if the path is sealed. What the socket does not take goes to `held`.
fn send_coded(
    socket: &OwnedFd,
    seal: &mut Option<Seal>,
    slices: &[&[u8]],
    bytes: usize,
    held: &mut Vec<u8>,
) -> Result<Transmitted, Lost> {
    match seal {
        Some(seal) => seal.seal(slices, bytes, |record| {
            let (sent, stopped) = send_all(socket, record)?;
            held.extend_from_slice(&record[sent..]);
            Ok(stopped)
        }),
        None => {
            let (mut sent, stopped) = send_slices(socket, slices, bytes)?;
            for slice in slices {
                let taken = sent.min(slice.len());
                sent -= taken;
                held.extend_from_slice(&slice[taken..]);
            }
            Ok(stopped)
        }
    }
}

//! The records of a path, for links that began inside TLS.

use std::cell::RefCell;
use std::ops::Range;
use std::time::Instant;

use inet_rdma_records::{
    Cipher, HEADER_BYTES, Header, OVERHEAD_BYTES, Opener, Protection, RECORD_BYTES_MAX, Sealer, TAG_BYTES, Usage,
    Violation,
};

use crate::outcome::ReceiveError;

thread_local! {
    /// A record that is being made.
    static RECORD: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    /// Memory of a record that has been opened, for the next record of which a part arrives.
    static SPARE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The state of the seals of a path.
#[derive(Debug, Clone, Copy)]
pub struct SealState {
    /// The cipher of the records.
    pub cipher: Cipher,
    /// The use of this side's present key.
    pub usage: Usage,
    /// Generation of the peer's key.
    pub peer_generation: u32,
}

/// Both directions of a sealed path.
pub(crate) struct Seal {
    sealer: Sealer,
    opener: Opener,
    partial: Partial,
}

/// A record that has arrived in part: the first `len` bytes of `memory`, which has room for the largest one. Or the
/// bytes of an opened record that wait for the next turn: those in `opened`; no other record has begun then.
#[derive(Default)]
struct Partial {
    memory: Vec<u8>,
    len: usize,
    opened: Range<usize>,
}

impl Partial {
    fn add(&mut self, bytes: &[u8]) {
        self.get_memory();
        self.memory[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    fn get_memory(&mut self) {
        if self.memory.is_empty() {
            self.memory = SPARE.take();
            self.memory.resize(RECORD_BYTES_MAX, 0);
        }
    }

    /// Keeps bytes of an opened record.
    fn keep(&mut self, opened: &[u8]) {
        self.get_memory();
        self.memory[..opened.len()].copy_from_slice(opened);
        self.opened = 0..opened.len();
    }

    /// Gives the bytes of an opened record to `take`. True: none are left.
    fn give(&mut self, take: &mut impl FnMut(&[u8]) -> Result<usize, ReceiveError>) -> Result<bool, ReceiveError> {
        if !self.opened.is_empty() {
            self.opened.start += take(&self.memory[self.opened.clone()])?;
            if self.opened.is_empty() {
                self.clear();
            }
        }
        Ok(self.opened.is_empty())
    }

    /// None: the header is not complete.
    fn header(&self) -> Result<Option<Header>, Violation> {
        header(&self.memory[..self.len])
    }

    /// Keeps the memory for another path.
    fn clear(&mut self) {
        self.len = 0;
        SPARE.set(std::mem::take(&mut self.memory));
    }
}

fn header(bytes: &[u8]) -> Result<Option<Header>, Violation> {
    bytes
        .first_chunk::<HEADER_BYTES>()
        .map(|&header| Header::parse_first(header))
        .transpose()
}

impl Seal {
    pub fn new(protection: &Protection) -> Seal {
        let Protection {
            cipher,
            send_key,
            receive_key,
            renewal,
        } = protection;
        Seal {
            sealer: Sealer::new(*cipher, send_key, *renewal, Instant::now()),
            opener: Opener::new(*cipher, receive_key),
            partial: Partial::default(),
        }
    }

    pub fn sealing(&self) -> SealState {
        SealState {
            cipher: self.sealer.cipher(),
            usage: self.sealer.usage(),
            peer_generation: self.opener.generation(),
        }
    }

    /// Takes the next key if the present one is too old.
    pub fn rekey_if_old(&mut self) {
        self.sealer.rekey_if_old(Instant::now);
    }

    /// Gives a record of these slices, `bytes` bytes in all, to `send`.
    pub fn seal<R>(&mut self, slices: &[&[u8]], bytes: usize, send: impl FnOnce(&[u8]) -> R) -> R {
        RECORD.with_borrow_mut(|record| {
            record.resize(RECORD_BYTES_MAX, 0);
            let record = &mut record[..bytes + OVERHEAD_BYTES];
            self.sealer.seal(slices, record);
            send(record)
        })
    }

    /// The memory for the rest of a record of which a part is here; None: the next bytes begin a record.
    pub fn rest(&mut self) -> Option<&mut [u8]> {
        let header = self.partial.header().ok().flatten()?;
        self.partial.memory.get_mut(self.partial.len..header.record_bytes())
    }

    /// True if bytes of an opened record wait for the next turn.
    pub fn holds_input(&self) -> bool {
        !self.partial.opened.is_empty()
    }

    /// The first `bytes` bytes of [`Self::rest`] have come. Opened bytes go to `take`, as in [`Self::handle_input`].
    pub fn handle_rest(
        &mut self,
        bytes: usize,
        take: &mut impl FnMut(&[u8]) -> Result<usize, ReceiveError>,
    ) -> Result<(), ReceiveError> {
        self.partial.len += bytes;
        self.open_partial(take)?;
        Ok(())
    }

    /// Opens the records in these bytes, and keeps the beginning of a record that is not complete. Opened bytes go to
    /// `take`, which returns how many it has taken; fewer than all: the turn is over, and the others are kept. Returns
    /// how many of these bytes were used.
    pub fn handle_input(
        &mut self,
        bytes: &mut [u8],
        take: &mut impl FnMut(&[u8]) -> Result<usize, ReceiveError>,
    ) -> Result<usize, ReceiveError> {
        let mut used = 0;
        if !self.partial.give(take)? {
            return Ok(used);
        }
        while self.partial.len > 0 && used < bytes.len() {
            let wanted = self.partial.header()?.map_or(HEADER_BYTES, Header::record_bytes) - self.partial.len;
            let part = &bytes[used..][..wanted.min(bytes.len() - used)];
            used += part.len();
            self.partial.add(part);
            if !self.open_partial(take)? {
                return Ok(used);
            }
        }
        loop {
            let left = &mut bytes[used..];
            let Some(header) = header(left)?.filter(|header| header.record_bytes() <= left.len()) else {
                break;
            };
            used += header.record_bytes();
            let opened = open(&mut self.opener, header, &mut left[..header.record_bytes()])?;
            let taken = take(opened)?;
            if taken < opened.len() {
                self.partial.keep(&opened[taken..]);
                return Ok(used);
            }
        }
        if used < bytes.len() {
            self.partial.add(&bytes[used..]);
        }
        Ok(bytes.len())
    }

    /// False: the turn is over, and bytes of the record are kept.
    fn open_partial(
        &mut self,
        take: &mut impl FnMut(&[u8]) -> Result<usize, ReceiveError>,
    ) -> Result<bool, ReceiveError> {
        let whole = |header: &Header| header.record_bytes() == self.partial.len;
        let Some(header) = self.partial.header()?.filter(whole) else {
            return Ok(true);
        };
        open(&mut self.opener, header, &mut self.partial.memory[..self.partial.len])?;
        self.partial.len = 0;
        self.partial.opened = HEADER_BYTES..HEADER_BYTES + header.plain_bytes;
        self.partial.give(take)
    }
}

/// The bytes in a whole record.
fn open<'a>(opener: &mut Opener, header: Header, record: &'a mut [u8]) -> Result<&'a [u8], Violation> {
    let (sealed, tag) = record[HEADER_BYTES..].split_at_mut(header.plain_bytes);
    let tag: &[u8; TAG_BYTES] = (&*tag).try_into().expect("a record ends with its tag");
    opener.open(header, tag, sealed)?;
    Ok(sealed)
}

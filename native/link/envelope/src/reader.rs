//! Reads the packets of one direction of a link.

use crate::cache::AtomCache;
use crate::control;
use crate::input::Input;
use crate::key::Key;
use crate::names::Name;
use crate::off::Off;
use crate::operation::Operation;
use crate::sequences::Sequences;

/// The first byte of a packet with a distribution header.
const VERSION: u8 = 131;
const HEADER: u8 = 68;
const FIRST_FRAGMENT: u8 = 69;
const FURTHER_FRAGMENT: u8 = 70;
/// The first byte of a packet without a header. The control message follows after [`VERSION`].
const PASS_THROUGH: u8 = 112;

/// What a packet is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope {
    /// Operation, sender and target of its message.
    pub key: Key,
    /// The packet's size, without the length before it.
    pub bytes: usize,
    /// False: a further fragment of a message.
    pub begins_message: bool,
}

/// Reads the envelopes of one direction of a link, from nodeup on.
pub struct Reader {
    cache: AtomCache,
    sequences: Sequences,
    off: Option<Off>,
}

impl Default for Reader {
    fn default() -> Self {
        Self::new()
    }
}

impl Reader {
    /// A reader of a link that is about to come up.
    pub fn new() -> Self {
        Reader {
            cache: AtomCache::new(),
            sequences: Sequences::new(),
            off: None,
        }
    }

    /// The next packet, of `bytes` bytes, as its pieces; empty ones may be among them. They must reach to the end of
    /// the control message at least; the payload is not read.
    ///
    /// Err: the reader has switched itself off with this packet. It answers with [`Key::OTHER`] from then on.
    #[inline]
    pub fn packet<'a>(&mut self, pieces: impl IntoIterator<Item = &'a [u8]>, bytes: usize) -> Result<Envelope, Off> {
        let read = match (self.off, bytes) {
            (_, 0) => Ok((Key::TICK, true)),
            (Some(_), _) => Ok((Key::OTHER, true)),
            (None, _) => self.read(&mut Input::new(pieces.into_iter())),
        };
        match read {
            Ok((key, begins_message)) => Ok(Envelope {
                key,
                bytes,
                begins_message,
            }),
            Err(off) => {
                self.off = Some(off);
                Err(off)
            }
        }
    }

    /// The operation of a packet that begins a message, by the first of its pieces that are not empty. None:
    /// [`Self::packet`] has to read it. Otherwise it may, and need not, while the reader is not [off](Self::off).
    #[inline]
    pub fn operation<'a>(mut pieces: impl Iterator<Item = &'a [u8]>) -> Option<Operation> {
        let header = match pieces.next()? {
            [VERSION, HEADER, header @ ..] => header,
            _ => return None,
        };
        match header.get(AtomCache::unchanging_header(header)?..)? {
            // A VM gives header and control message as two pieces.
            [] => control::peek(pieces.next()?),
            control => control::peek(control),
        }
    }

    fn read<'a, I: Iterator<Item = &'a [u8]>>(&mut self, input: &mut Input<'a, I>) -> Result<(Key, bool), Off> {
        match input.byte()? {
            VERSION => self.read_headed(input),
            PASS_THROUGH => {
                self.cache.begin_without_header();
                let key = match input.byte()? {
                    VERSION => control::read(input, &mut self.cache)?,
                    _ => Key::OTHER,
                };
                Ok((key, true))
            }
            _ => Err(Off::UnknownHeader),
        }
    }

    fn read_headed<'a, I: Iterator<Item = &'a [u8]>>(&mut self, input: &mut Input<'a, I>) -> Result<(Key, bool), Off> {
        match input.byte()? {
            HEADER => {
                self.cache.read_header(input)?;
                control::read(input, &mut self.cache).map(|key| (key, true))
            }
            FIRST_FRAGMENT => {
                let (id, number) = (input.u64()?, input.u64()?);
                self.cache.read_header(input)?;
                let key = control::read(input, &mut self.cache)?;
                // Fragments are numbered down to 1.
                if number > 1 {
                    self.sequences.begin(id, key);
                }
                Ok((key, true))
            }
            FURTHER_FRAGMENT => {
                let (id, number) = (input.u64()?, input.u64()?);
                Ok((self.sequences.go_on(id, number <= 1), false))
            }
            _ => Err(Off::UnknownHeader),
        }
    }

    /// Why the reader has switched itself off.
    pub fn off(&self) -> Option<Off> {
        self.off
    }

    /// The name's text, in UTF-8 as the peer sends it. None: the reader has forgotten it.
    pub fn text(&self, name: Name) -> Option<&[u8]> {
        self.cache.text(name)
    }
}

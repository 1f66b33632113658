//! The terms of control messages, in the external format.

use crate::cache::AtomCache;
use crate::input::Input;
use crate::latin1;
use crate::names::{NAME_BYTES_MAX, Name};
use crate::off::Off;
use crate::party::Party;

/// Maximum number of terms, with the elements of compound ones, that a reader skips to reach a sender or a target.
pub const SKIPPED_TERMS: usize = 64;

/// The tags of the guide "External Term Format".
mod tag {
    pub const NEW_FLOAT: u8 = 70;
    pub const BIT_BINARY: u8 = 77;
    pub const ATOM_CACHE_REF: u8 = 82;
    pub const NEW_PID: u8 = 88;
    pub const NEW_PORT: u8 = 89;
    pub const NEWER_REFERENCE: u8 = 90;
    pub const SMALL_INTEGER: u8 = 97;
    pub const INTEGER: u8 = 98;
    pub const FLOAT: u8 = 99;
    pub const ATOM: u8 = 100;
    pub const PORT: u8 = 102;
    pub const PID: u8 = 103;
    pub const SMALL_TUPLE: u8 = 104;
    pub const LARGE_TUPLE: u8 = 105;
    pub const NIL: u8 = 106;
    pub const STRING: u8 = 107;
    pub const LIST: u8 = 108;
    pub const BINARY: u8 = 109;
    pub const SMALL_BIG: u8 = 110;
    pub const LARGE_BIG: u8 = 111;
    pub const EXPORT: u8 = 113;
    pub const NEW_REFERENCE: u8 = 114;
    pub const SMALL_ATOM: u8 = 115;
    pub const MAP: u8 = 116;
    pub const ATOM_UTF8: u8 = 118;
    pub const SMALL_ATOM_UTF8: u8 = 119;
    pub const V4_PORT: u8 = 120;
}

/// Why a control message is not understood.
pub enum Fault {
    /// The packet contradicts the formats.
    Off(Off),
    /// A term that the reader does not know.
    Unknown,
}

impl From<Off> for Fault {
    fn from(off: Off) -> Self {
        Fault::Off(off)
    }
}

/// The terms of one control message.
pub struct Terms<'t, 'a, I> {
    input: &'t mut Input<'a, I>,
    cache: &'t mut AtomCache,
    skippable: usize,
}

impl<'t, 'a, I: Iterator<Item = &'a [u8]>> Terms<'t, 'a, I> {
    pub fn new(input: &'t mut Input<'a, I>, cache: &'t mut AtomCache) -> Self {
        Terms {
            input,
            cache,
            skippable: SKIPPED_TERMS,
        }
    }

    /// The arity of the tuple.
    pub fn tuple(&mut self) -> Result<u8, Off> {
        match self.input.byte()? {
            tag::SMALL_TUPLE => self.input.byte(),
            _ => Err(Off::NoOperation),
        }
    }

    /// A number. None: a term of another type, or one above 2^31.
    pub fn number(&mut self) -> Result<Option<u32>, Off> {
        match self.input.byte()? {
            tag::SMALL_INTEGER => self.input.byte().map(|number| Some(number.into())),
            tag::INTEGER => self.input.u32().map(Some),
            _ => Ok(None),
        }
    }

    /// A process, a name, or an alias.
    pub fn party(&mut self) -> Result<Party, Fault> {
        match self.input.byte()? {
            tag::NEW_PID => {
                let node = self.atom()?;
                Ok(Party::Process {
                    node,
                    id: self.input.u32()?,
                    serial: self.input.u32()?,
                    creation: self.input.u32()?,
                })
            }
            tag::PID => {
                let node = self.atom()?;
                Ok(Party::Process {
                    node,
                    id: self.input.u32()?,
                    serial: self.input.u32()?,
                    creation: self.input.byte()?.into(),
                })
            }
            tag::NEWER_REFERENCE => {
                let _words = self.input.u16()?;
                let node = self.atom()?;
                let creation = self.input.u32()?;
                Ok(Party::Alias { node, creation })
            }
            tag::NEW_REFERENCE => {
                let _words = self.input.u16()?;
                let node = self.atom()?;
                let creation = self.input.byte()?.into();
                Ok(Party::Alias { node, creation })
            }
            tag => self.atom_of(tag).map(Party::Name),
        }
    }

    fn atom(&mut self) -> Result<Name, Fault> {
        let tag = self.input.byte()?;
        self.atom_of(tag)
    }

    fn atom_of(&mut self, tag: u8) -> Result<Name, Fault> {
        match tag {
            tag::ATOM_CACHE_REF => {
                let index = self.input.byte()?;
                Ok(self.cache.referenced(index)?)
            }
            tag::SMALL_ATOM_UTF8 | tag::SMALL_ATOM => {
                let bytes = self.input.byte()?;
                self.spelled(bytes.into(), tag == tag::SMALL_ATOM)
            }
            tag::ATOM_UTF8 | tag::ATOM => {
                let bytes = self.input.u16()?;
                self.spelled(bytes.into(), tag == tag::ATOM)
            }
            _ => Err(Fault::Unknown),
        }
    }

    #[inline(never)]
    fn spelled(&mut self, bytes: usize, is_latin1: bool) -> Result<Name, Fault> {
        let mut room = [0; NAME_BYTES_MAX];
        let text = self.input.text(bytes, &mut room)?;
        let mut utf8 = [0; NAME_BYTES_MAX];
        let text = match text {
            Some(text) if is_latin1 => latin1::to_utf8(text, &mut utf8),
            text => text,
        };
        Ok(text.map_or(Name::UNKNOWN, |text| self.cache.spelled(text)))
    }

    /// Skips one term.
    pub fn skip(&mut self) -> Result<(), Fault> {
        let mut terms = 1_u64;
        while terms > 0 {
            self.skippable = self.skippable.checked_sub(1).ok_or(Fault::Unknown)?;
            // Its elements take its place.
            terms = terms - 1 + self.skip_head()?;
        }
        Ok(())
    }

    /// Skips a term as far as its elements. Returns their number.
    fn skip_head(&mut self) -> Result<u64, Fault> {
        let tag = self.input.byte()?;
        let bytes = match tag {
            tag::NIL => 0,
            tag::SMALL_INTEGER | tag::ATOM_CACHE_REF => 1,
            tag::INTEGER => 4,
            tag::NEW_FLOAT => 8,
            tag::FLOAT => 31,
            tag::SMALL_ATOM | tag::SMALL_ATOM_UTF8 => self.input.byte()?.into(),
            tag::ATOM | tag::ATOM_UTF8 | tag::STRING => self.input.u16()?.into(),
            tag::BINARY => self.input.u32()? as usize,
            // With the number of bits of the last byte, and the sign.
            tag::BIT_BINARY | tag::LARGE_BIG => self.input.u32()? as usize + 1,
            tag::SMALL_BIG => usize::from(self.input.byte()?) + 1,
            tag::NEW_PID => self.skip_node(12)?,
            tag::PID => self.skip_node(9)?,
            tag::PORT => self.skip_node(5)?,
            tag::NEW_PORT => self.skip_node(8)?,
            tag::V4_PORT => self.skip_node(12)?,
            tag::NEWER_REFERENCE => {
                let words = self.input.u16()?;
                self.skip_node(4 + 4 * usize::from(words))?
            }
            tag::NEW_REFERENCE => {
                let words = self.input.u16()?;
                self.skip_node(1 + 4 * usize::from(words))?
            }
            tag::SMALL_TUPLE => return Ok(self.input.byte()?.into()),
            tag::LARGE_TUPLE => return Ok(self.input.u32()?.into()),
            // With the tail.
            tag::LIST => return Ok(u64::from(self.input.u32()?) + 1),
            tag::MAP => return Ok(u64::from(self.input.u32()?) * 2),
            tag::EXPORT => return Ok(3),
            _ => return Err(Fault::Unknown),
        };
        self.input.skip(bytes)?;
        Ok(0)
    }

    /// Skips the node's name. Returns the number of the bytes after it.
    fn skip_node(&mut self, bytes: usize) -> Result<usize, Fault> {
        self.atom()?;
        Ok(bytes)
    }
}

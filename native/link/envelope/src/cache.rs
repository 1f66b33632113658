//! The reader's copy of the peer's atom cache.

use crate::input::Input;
use crate::names::{EMPTY, LOST, NAME_BYTES_MAX, Name, Names, Slot};
use crate::off::Off;

/// 8 segments of 256 entries.
const ENTRIES: usize = 2048;
/// Flag of a reference in a header: the header brings the entry's text.
const NEW_ENTRY: u8 = 8;
/// The segment of a reference in a header.
const SEGMENT: u8 = 7;
/// Flag in the half byte after those of the references: sizes of texts have two bytes.
const LONG_ATOMS: u8 = 1;

/// The atoms of the cache's entries, and those of the present packet's header.
pub struct AtomCache {
    names: Names,
    /// [`EMPTY`]: no header has filled the entry. [`LOST`]: its text is not kept.
    entries: [Slot; ENTRIES],
    /// The present packet's atoms, by their index in its header.
    references: [Slot; 256],
    count: u8,
}

impl AtomCache {
    pub fn new() -> Self {
        AtomCache {
            names: Names::new(),
            entries: [EMPTY; ENTRIES],
            references: [EMPTY; 256],
            count: 0,
        }
    }

    /// The packet has no header.
    pub fn begin_without_header(&mut self) {
        self.count = 0;
    }

    /// The size of the part of a header that begins with the number of references, if it changes no entry. None:
    /// [`Self::read_header`] has to look.
    #[inline]
    pub fn unchanging_header(header: &[u8]) -> Option<usize> {
        let (&count, rest) = header.split_first()?;
        if count == 0 {
            return Some(1);
        }
        let flags_bytes = usize::from(count) / 2 + 1;
        // Of the half byte after the last reference the bit is 0.
        const NEW_ENTRIES: u32 = u32::from_ne_bytes([NEW_ENTRY << 4 | NEW_ENTRY; 4]);
        let is_new = match rest.first_chunk() {
            Some(flags) if flags_bytes <= 4 => u32::from_le_bytes(*flags) << (32 - 8 * flags_bytes) & NEW_ENTRIES != 0,
            _ => rest
                .get(..flags_bytes)?
                .iter()
                .any(|flags| flags & NEW_ENTRIES as u8 != 0),
        };
        (!is_new).then_some(1 + flags_bytes + usize::from(count))
    }

    /// Reads the part of a header that begins with the number of references.
    pub fn read_header<'a, I: Iterator<Item = &'a [u8]>>(&mut self, input: &mut Input<'a, I>) -> Result<(), Off> {
        self.count = 0;
        let count = input.byte()?;
        if count == 0 {
            return Ok(());
        }
        let mut flags = [0; 128];
        input.fill(&mut flags[..usize::from(count) / 2 + 1])?;
        let half_byte = |index: u8| flags[usize::from(index) / 2] >> (index % 2 * 4) & 0xF;
        let has_long_atoms = half_byte(count) & LONG_ATOMS != 0;
        for index in 0..count {
            let flags = half_byte(index);
            let entry = usize::from(flags & SEGMENT) * 256 + usize::from(input.byte()?);
            if flags & NEW_ENTRY != 0 {
                self.entries[entry] = self.read_text(input, has_long_atoms)?;
            }
            let slot = self.entries[entry];
            if slot == EMPTY {
                return Err(Off::EmptyEntry);
            }
            self.references[usize::from(index)] = slot;
            self.count = index + 1;
        }
        Ok(())
    }

    #[inline(never)]
    fn read_text<'a, I: Iterator<Item = &'a [u8]>>(
        &mut self,
        input: &mut Input<'a, I>,
        has_long_atoms: bool,
    ) -> Result<Slot, Off> {
        let bytes = if has_long_atoms {
            input.u16()?
        } else {
            input.byte()?.into()
        };
        let mut room = [0; NAME_BYTES_MAX];
        let text = input.text(bytes.into(), &mut room)?;
        Ok(text.map_or(LOST, |text| self.enter(text)))
    }

    fn enter(&mut self, text: &[u8]) -> Slot {
        if let Some(slot) = self.names.enter(text) {
            return slot;
        }
        let present = &mut self.references[..usize::from(self.count)];
        present.iter().for_each(|&slot| self.names.keep(slot));
        let freed = self.names.collect();
        for slot in present.iter_mut().chain(&mut self.entries) {
            if freed[usize::from(*slot)] {
                *slot = LOST;
            }
        }
        self.names.enter(text).unwrap_or(LOST)
    }

    /// The atom to which a control message refers by its index in the header.
    pub fn referenced(&mut self, index: u8) -> Result<Name, Off> {
        if index >= self.count {
            return Err(Off::MissingAtom);
        }
        Ok(self.names.use_slot(self.references[usize::from(index)]))
    }

    /// The atom that a control message spells out, in UTF-8.
    pub fn spelled(&mut self, text: &[u8]) -> Name {
        let slot = self.enter(text);
        self.names.use_slot(slot)
    }

    pub fn text(&self, name: Name) -> Option<&[u8]> {
        self.names.text(name)
    }
}

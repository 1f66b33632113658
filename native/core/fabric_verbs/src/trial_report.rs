//! The messages of the self-test of a queue pair, and the bytes that it sends: [`crate::trial`] has the course.

use inet_rdma_fabric::Tried;
use inet_rdma_stream::{CONTROL_BYTES, RemoteAddress};

/// What failed of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Faults(u8);

const ALL: [Tried; 7] = [
    Tried::Inline,
    Tried::Gather,
    Tried::Windows,
    Tried::Immediates,
    Tried::Writes,
    Tried::Sends,
    Tried::Reads,
];

impl Faults {
    pub(crate) const NONE: Faults = Faults(0);

    pub(crate) fn add(&mut self, tried: Tried) {
        self.0 |= Self::bit(tried);
    }

    pub(crate) fn add_all(&mut self, other: Faults) {
        self.0 |= other.0;
    }

    pub(crate) fn has(self, tried: Tried) -> bool {
        self.0 & Self::bit(tried) != 0
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn list(self) -> Vec<Tried> {
        ALL.into_iter().filter(|tried| self.has(*tried)).collect()
    }

    fn bit(tried: Tried) -> u8 {
        match tried {
            Tried::Inline => 1,
            Tried::Gather => 2,
            Tried::Windows => 4,
            Tried::Immediates => 8,
            Tried::Writes => 16,
            Tried::Sends => 32,
            Tried::Reads => 64,
        }
    }
}

/// A request of the self-test that the peer notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Piece {
    /// A write of inline bytes, as many as the queue pair takes.
    InlineWrite,
    /// An inline send of the size of a control message.
    InlineSend,
    /// A write with bytes of two places.
    Gather,
    /// A write with bytes of one place.
    Write,
    /// A write without a notice: the report that follows it is the notice.
    Silent,
    /// A write into the peer's window.
    Window,
}

impl Piece {
    /// The word that tells the peer of the write.
    pub(crate) fn word(self) -> u32 {
        0x7e57_0000 | u32::from(self.number())
    }

    fn number(self) -> u8 {
        match self {
            Piece::InlineWrite => 1,
            Piece::InlineSend => 2,
            Piece::Gather => 3,
            Piece::Write => 4,
            Piece::Silent => 5,
            Piece::Window => 6,
        }
    }

    /// Its bytes: never 0, which the peer's memory has before.
    pub(crate) fn bytes(self, count: usize) -> Vec<u8> {
        let first = usize::from(self.number()) * 29;
        (first..first + count).map(|byte| (byte % 251) as u8 + 1).collect()
    }
}

/// The last message of each flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Report {
    /// True: the flight has all pieces, and not the window's alone.
    pub(crate) is_full: bool,
    /// True: the flight has a piece of two places.
    pub(crate) gathers: bool,
    /// True: the sender wrote into the window that the last report of the other side has named.
    pub(crate) wrote_window: bool,
    /// True: notices are immediates. False: they are sends.
    pub(crate) has_immediates: bool,
    /// True: the flight has an inline send.
    pub(crate) sends_inline: bool,
    /// Bytes of each write.
    pub(crate) part: u8,
    /// Bytes of the inline write; 0: there is none.
    pub(crate) inline_bytes: u8,
    /// What failed of the device of the side that gets the report.
    pub(crate) yours: Faults,
    /// What failed of the device of the side that sends the report.
    pub(crate) mine: Faults,
    /// The window that the other side is to write into.
    pub(crate) window: Option<RemoteAddress>,
}

const MAGIC: [u8; 8] = *b"irdmatry";

const FULL: u8 = 1;
const GATHERS: u8 = 2;
const WROTE_WINDOW: u8 = 4;
const IMMEDIATES: u8 = 8;
const HAS_WINDOW: u8 = 16;
const SENDS_INLINE: u8 = 32;

impl Report {
    pub(crate) fn emit(&self) -> [u8; CONTROL_BYTES] {
        let mut message = [0; CONTROL_BYTES];
        let flag = |is: bool, flag| if is { flag } else { 0 };
        message[..8].copy_from_slice(&MAGIC);
        message[8] = flag(self.is_full, FULL)
            | flag(self.gathers, GATHERS)
            | flag(self.wrote_window, WROTE_WINDOW)
            | flag(self.has_immediates, IMMEDIATES)
            | flag(self.window.is_some(), HAS_WINDOW)
            | flag(self.sends_inline, SENDS_INLINE);
        message[9..13].copy_from_slice(&[self.part, self.inline_bytes, self.yours.0, self.mine.0]);
        if let Some(window) = self.window {
            message[16..24].copy_from_slice(&window.address.to_le_bytes());
            message[24..32].copy_from_slice(&window.key.to_le_bytes());
        }
        message
    }

    /// None: another message.
    pub(crate) fn parse(message: &[u8; CONTROL_BYTES]) -> Option<Report> {
        let has = |flag| message[8] & flag != 0;
        let number = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&message[at..at + 8]);
            u64::from_le_bytes(bytes)
        };
        (message[..8] == MAGIC).then(|| Report {
            is_full: has(FULL),
            gathers: has(GATHERS),
            wrote_window: has(WROTE_WINDOW),
            has_immediates: has(IMMEDIATES),
            sends_inline: has(SENDS_INLINE),
            part: message[9],
            inline_bytes: message[10],
            yours: Faults(message[11]),
            mine: Faults(message[12]),
            window: has(HAS_WINDOW).then(|| RemoteAddress {
                key: number(24),
                address: number(16),
            }),
        })
    }

    /// The flight's pieces, in the order in which they are sent. [`Piece::Silent`] comes last, before the report.
    pub(crate) fn pieces(&self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        if self.is_full {
            if self.inline_bytes > 0 {
                pieces.push(Piece::InlineWrite);
            }
            if self.sends_inline {
                pieces.push(Piece::InlineSend);
            }
            if self.gathers {
                pieces.push(Piece::Gather);
            }
            pieces.push(Piece::Write);
        }
        if self.wrote_window {
            pieces.push(Piece::Window);
        }
        if self.is_full {
            pieces.push(Piece::Silent);
        }
        pieces
    }

    /// The place of a piece in the ring of the side that gets it, and its bytes. None: it goes elsewhere.
    pub(crate) fn place(&self, piece: Piece) -> Option<(usize, usize)> {
        let part = usize::from(self.part);
        match piece {
            Piece::Write => Some((0, part)),
            Piece::Gather => Some((part, part)),
            Piece::Silent => Some((2 * part, part)),
            Piece::InlineWrite => Some((3 * part, self.inline_bytes.into())),
            Piece::InlineSend | Piece::Window => None,
        }
    }
}

/// A message of the peer, as it arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The notice of a write.
    Word(u32),
    Message([u8; CONTROL_BYTES]),
    /// A message of a size that no message has.
    Other(usize),
}

/// What failed of the device of the peer that sent `report` after these messages. `read`: the bytes at a place of this
/// side's ring.
pub(crate) fn faults(report: &Report, arrived: &[Arrival], read: impl Fn(usize, &mut [u8])) -> Faults {
    let mut faults = Faults::NONE;
    let pieces = report.pieces();
    for piece in &pieces {
        if let Some((offset, bytes)) = report.place(*piece) {
            let mut found = vec![0; bytes];
            read(offset, &mut found);
            if found != piece.bytes(bytes) {
                faults.add(tried(*piece));
            }
        }
    }
    let noticed: Vec<Piece> = pieces.into_iter().filter(|piece| *piece != Piece::Silent).collect();
    // Notices are sent inline where they are no immediates.
    let of_words = match (report.has_immediates, report.inline_bytes > 0) {
        (true, _) => Tried::Immediates,
        (false, true) => Tried::Inline,
        (false, false) => Tried::Sends,
    };
    if arrived.len() != noticed.len() {
        faults.add(match of_words {
            Tried::Immediates => Tried::Immediates,
            _ => Tried::Sends,
        });
        return faults;
    }
    for (piece, arrival) in noticed.into_iter().zip(arrived) {
        match (piece, arrival) {
            (Piece::InlineSend, Arrival::Message(message)) if message[..] == piece.bytes(CONTROL_BYTES) => {}
            (Piece::InlineSend, _) => faults.add(Tried::Inline),
            (_, Arrival::Word(word)) if *word == piece.word() => {}
            _ => faults.add(of_words),
        }
    }
    faults
}

/// What a piece tries of the device that sends it.
pub(crate) fn tried(piece: Piece) -> Tried {
    match piece {
        Piece::InlineWrite | Piece::InlineSend => Tried::Inline,
        Piece::Gather => Tried::Gather,
        Piece::Write | Piece::Silent => Tried::Writes,
        Piece::Window => Tried::Windows,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RING: usize = 1_024;

    fn report(has_immediates: bool) -> Report {
        Report {
            is_full: true,
            gathers: true,
            has_immediates,
            sends_inline: true,
            part: 40,
            inline_bytes: 220,
            ..Report::default()
        }
    }

    /// The messages and the ring after a flight of a device without a fault.
    fn sent(report: &Report) -> (Vec<Arrival>, Vec<u8>) {
        let mut ring = vec![0; RING];
        let mut arrived = Vec::new();
        for piece in report.pieces() {
            if let Some((offset, bytes)) = report.place(piece) {
                ring[offset..offset + bytes].copy_from_slice(&piece.bytes(bytes));
            }
            match piece {
                Piece::Silent => {}
                Piece::InlineSend => {
                    let mut message = [0; CONTROL_BYTES];
                    message.copy_from_slice(&piece.bytes(CONTROL_BYTES));
                    arrived.push(Arrival::Message(message));
                }
                _ => arrived.push(Arrival::Word(piece.word())),
            }
        }
        (arrived, ring)
    }

    fn found(report: &Report, arrived: &[Arrival], ring: &[u8]) -> Vec<Tried> {
        let read = |offset: usize, to: &mut [u8]| to.copy_from_slice(&ring[offset..offset + to.len()]);
        faults(report, arrived, read).list()
    }

    #[test]
    fn a_report_is_read_as_it_was_sent() {
        let mut report = report(true);
        report.yours.add(Tried::Windows);
        report.mine.add(Tried::Sends);
        for window in [
            None,
            Some(RemoteAddress {
                key: 7,
                address: 0xffff_8000_0000_1000,
            }),
        ] {
            report.window = window;
            assert_eq!(Report::parse(&report.emit()), Some(report));
        }
        assert_eq!(Report::parse(&[0; CONTROL_BYTES]), None);
        let mut message = [0; CONTROL_BYTES];
        message.copy_from_slice(&Piece::InlineSend.bytes(CONTROL_BYTES));
        assert_eq!(Report::parse(&message), None, "a piece");
    }

    #[test]
    fn a_device_that_keeps_its_word_has_no_fault() {
        for report in [report(true), report(false)] {
            let (arrived, ring) = sent(&report);
            assert_eq!(found(&report, &arrived, &ring), []);
        }
        assert_eq!(found(&Report::default(), &[], &[0; RING]), [], "a report alone");
    }

    #[test]
    fn each_fault_is_named() {
        let report = report(true);
        let spoilt = |piece| {
            let (arrived, mut ring) = sent(&report);
            let (offset, bytes) = report.place(piece).expect("a piece of the ring");
            ring[offset + bytes - 1] = 0;
            found(&report, &arrived, &ring)
        };
        assert_eq!(spoilt(Piece::InlineWrite), [Tried::Inline]);
        assert_eq!(spoilt(Piece::Gather), [Tried::Gather]);
        assert_eq!(spoilt(Piece::Write), [Tried::Writes]);
        assert_eq!(spoilt(Piece::Silent), [Tried::Writes]);
        let (mut arrived, ring) = sent(&report);
        arrived[1] = Arrival::Message([0; CONTROL_BYTES]);
        assert_eq!(found(&report, &arrived, &ring), [Tried::Inline]);
        let (mut arrived, ring) = sent(&report);
        arrived[3] = Arrival::Word(0);
        assert_eq!(found(&report, &arrived, &ring), [Tried::Immediates]);
        arrived.truncate(1);
        assert_eq!(found(&report, &arrived, &ring), [Tried::Immediates], "some are missing");
    }

    #[test]
    fn notices_that_are_inline_sends_are_a_fault_of_these() {
        let mut report = report(false);
        let (mut arrived, ring) = sent(&report);
        arrived[2] = Arrival::Word(0);
        assert_eq!(found(&report, &arrived, &ring), [Tried::Inline]);
        (report.inline_bytes, report.sends_inline) = (0, false);
        let (mut arrived, ring) = sent(&report);
        arrived[1] = Arrival::Other(4);
        assert_eq!(found(&report, &arrived, &ring), [Tried::Sends]);
    }
}

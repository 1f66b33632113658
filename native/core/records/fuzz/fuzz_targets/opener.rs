//! An honest sender, and a stranger between it and the receiver who changes, repeats, leaves out, exchanges and invents
//! records and control messages while keys change.
//!
//! Run: `cargo fuzz run opener` (nightly), or on stable with `RUSTC_BOOTSTRAP=1`. Nothing may panic, and what is opened
//! is what the sender said, in its order, up to the first violation.
#![no_main]

use std::collections::VecDeque;

use arbitrary::Arbitrary;
use inet_rdma_records::{
    CONTROL_BYTES, Cipher, ControlOpener, ControlSealer, HEADER_BYTES, Header, KEY_BYTES, Key, Opener, RECORD_BYTES_MIN,
    RING_BYTES_MIN, Sealer, TAG_BYTES, Violation, filling,
};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Session {
    chacha: bool,
    ring_bytes: u16,
    events: Vec<Event>,
}

#[derive(Debug, Arbitrary)]
enum Event {
    /// The sender's.
    Seal(Vec<Vec<u8>>),
    Control([u8; 5]),
    Rekey,
    Install,
    /// The stranger's.
    ChangeBit { at: u16 },
    Repeat,
    LeaveOut,
    Exchange,
    Cut { by: u8 },
    Invent(Vec<u8>),
    InventControl([u8; CONTROL_BYTES]),
    /// The receiver's.
    Open,
    OpenControl,
}

/// How far one end is in the ring.
struct Place {
    ring_bytes: usize,
    to_end: usize,
}

impl Place {
    fn new(ring_bytes: u32) -> Self {
        let bytes = ring_bytes as usize;
        Self { ring_bytes: bytes, to_end: bytes }
    }

    fn pass(&mut self, bytes: usize) {
        self.to_end -= bytes;
        if self.to_end == 0 {
            self.to_end = self.ring_bytes;
        }
    }
}

struct Ends {
    sealer: Sealer,
    control_sealer: ControlSealer,
    opener: Opener,
    control_opener: ControlOpener,
    sent_generation: u32,
    installed_generation: u32,
    sent: Place,
    opened: Place,
    /// Fillings are transfers, too: their sizes.
    under_way: VecDeque<Vec<u8>>,
    controls: VecDeque<[u8; CONTROL_BYTES]>,
    /// What the sender has said, from the next to be opened on.
    said: VecDeque<Vec<u8>>,
    said_controls: VecDeque<[u8; CONTROL_BYTES]>,
}

fn key(generation: u32) -> Key {
    Key::new(&[generation as u8; KEY_BYTES]).expect("32 bytes")
}

fuzz_target!(|session: Session| {
    let cipher = Cipher::ALL[usize::from(session.chacha)];
    let ring_bytes = u32::from(session.ring_bytes).max(RING_BYTES_MIN);
    let (sealer, control_sealer) = Sealer::new(cipher, &key(0), ring_bytes, 1_000).expect("a ring");
    let (opener, control_opener) = Opener::new(cipher, &key(0), ring_bytes).expect("a ring");
    let mut ends = Ends {
        sealer,
        control_sealer,
        opener,
        control_opener,
        sent_generation: 0,
        installed_generation: 0,
        sent: Place::new(ring_bytes),
        opened: Place::new(ring_bytes),
        under_way: VecDeque::new(),
        controls: VecDeque::new(),
        said: VecDeque::new(),
        said_controls: VecDeque::new(),
    };
    for event in session.events {
        if ends.act(event).is_err() {
            return;
        }
    }
});

impl Ends {
    fn act(&mut self, event: Event) -> Result<(), Violation> {
        match event {
            Event::Seal(slices) => self.seal(&slices),
            Event::Control(fields) => {
                let mut message = [0; CONTROL_BYTES];
                // Byte 1 and the last 16 are left to the sealer.
                message[0] = fields[0];
                message[2..4].copy_from_slice(&fields[1..3]);
                message[16..18].copy_from_slice(&fields[3..]);
                self.said_controls.push_back(message);
                self.control_sealer.seal(&mut message).expect("few messages");
                self.controls.push_back(message);
            }
            Event::Rekey => {
                let next = self.sent_generation + 1;
                if next <= self.installed_generation {
                    let renewed = self.sealer.rekey(next, &key(next), &mut self.control_sealer);
                    renewed.expect("the next one");
                    self.sent_generation = next;
                }
            }
            Event::Install => {
                let next = self.installed_generation + 1;
                if self.opener.install(next, &key(next), &mut self.control_opener).is_ok() {
                    self.installed_generation = next;
                }
            }
            Event::ChangeBit { at } => {
                if let Some(record) = self.under_way.front_mut() {
                    let at = usize::from(at) % (record.len() * 8);
                    record[at / 8] ^= 1 << (at % 8);
                }
            }
            Event::Repeat => {
                if let Some(record) = self.under_way.front().cloned() {
                    self.under_way.push_front(record);
                }
            }
            Event::LeaveOut => drop(self.under_way.pop_front()),
            Event::Exchange => {
                if self.under_way.len() > 1 {
                    self.under_way.swap(0, 1);
                }
            }
            Event::Cut { by } => {
                if let Some(record) = self.under_way.front_mut() {
                    let left = record.len().saturating_sub(usize::from(by)).max(1);
                    record.truncate(left);
                }
            }
            Event::Invent(bytes) if bytes.is_empty() => {}
            Event::Invent(bytes) => self.under_way.push_front(bytes),
            Event::InventControl(message) => self.controls.push_front(message),
            Event::Open => self.open()?,
            Event::OpenControl => {
                if let Some(mut message) = self.controls.pop_front() {
                    self.control_opener.open(&mut message)?;
                    assert_eq!(Some(message), self.said_controls.pop_front());
                }
            }
        }
        Ok(())
    }

    fn seal(&mut self, slices: &[Vec<u8>]) {
        let mut plain = slices.concat();
        if plain.is_empty() {
            return;
        }
        if let Some(bytes) = filling(self.sent.to_end) {
            self.sealer.fill(bytes);
            self.sent.pass(bytes);
            self.under_way.push_back(vec![0; bytes]);
        }
        // A record ends before the ring does.
        plain.truncate(self.sent.to_end - HEADER_BYTES - TAG_BYTES);
        let (head, tail) = plain.split_at(slices[0].len().min(plain.len()));
        let record = self.sealer.seal(plain.len(), &[head, tail]).to_vec();
        self.sent.pass(record.len());
        self.under_way.push_back(record);
        self.said.push_back(plain);
    }

    /// As a connection does it.
    fn open(&mut self) -> Result<(), Violation> {
        let Some(transfer) = self.under_way.pop_front() else {
            return Ok(());
        };
        let arrived = transfer.len();
        if let Some(bytes) = filling(self.opened.to_end) {
            if arrived != bytes {
                return Err(Violation::RecordCut { bytes, arrived });
            }
            self.opener.fill(bytes);
            self.opened.pass(bytes);
            return Ok(());
        }
        if arrived < RECORD_BYTES_MIN {
            return Err(Violation::RecordCut { bytes: RECORD_BYTES_MIN, arrived });
        }
        let header = Header::parse(transfer[..HEADER_BYTES].try_into().expect("8 bytes"), arrived)?;
        let behind = HEADER_BYTES + header.plain_bytes;
        let mut plain = transfer[HEADER_BYTES..behind].to_vec();
        let tag = transfer[behind..behind + TAG_BYTES].try_into().expect("16 bytes");
        self.opener.open(header, &tag, &mut plain)?;
        self.opened.pass(header.record_bytes());
        assert_eq!(Some(plain), self.said.pop_front());
        Ok(())
    }
}

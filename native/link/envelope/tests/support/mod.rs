//! A sender of packets, as the VM writes them, and parties with their names.
#![allow(dead_code, reason = "each test uses a part")]

use std::collections::HashMap;
use std::time::Duration;

use inet_rdma_envelope::{Envelope, Name, Operation, Party, Reader};

/// A clock that stands still.
pub fn clock() -> Duration {
    Duration::ZERO
}

/// A term of a control message.
#[derive(Debug, Clone, PartialEq)]
pub enum Term {
    Int(u32),
    /// In two bytes' tag, as numbers of messages UNLINK_ID.
    Big(u64),
    Atom(String),
    /// In Latin-1, spelled out.
    Latin1(String),
    Pid {
        node: String,
        id: u32,
        serial: u32,
        creation: u32,
    },
    /// PID_EXT, of a creation of one byte.
    OldPid {
        node: String,
        id: u32,
        serial: u32,
        creation: u8,
    },
    Reference {
        node: String,
        creation: u32,
        words: Vec<u32>,
    },
    Nil,
    Tuple(Vec<Term>),
    List(Vec<Term>),
    Binary(Vec<u8>),
    /// Bytes as they are.
    Raw(Vec<u8>),
}

pub fn atom(name: &str) -> Term {
    Term::Atom(name.into())
}

pub fn pid(node: &str, id: u32) -> Term {
    Term::Pid {
        node: node.into(),
        id,
        serial: 7,
        creation: 1_700_000_000,
    }
}

pub fn reference(node: &str) -> Term {
    Term::Reference {
        node: node.into(),
        creation: 1_700_000_001,
        words: vec![1, 2, 3],
    }
}

/// A party with its names.
#[derive(Debug, Clone, PartialEq)]
pub enum Who {
    None,
    Name(Option<String>),
    Process {
        node: Option<String>,
        id: u32,
        serial: u32,
        creation: u32,
    },
    Alias {
        node: Option<String>,
        creation: u32,
    },
}

pub fn who(reader: &Reader, party: Party) -> Who {
    let text = |name: Name| {
        reader
            .text(name)
            .map(|text| String::from_utf8(text.to_vec()).expect("UTF-8"))
    };
    match party {
        Party::None => Who::None,
        Party::Name(name) => Who::Name(text(name)),
        Party::Process {
            node,
            id,
            serial,
            creation,
        } => Who::Process {
            node: text(node),
            id,
            serial,
            creation,
        },
        Party::Alias { node, creation } => Who::Alias {
            node: text(node),
            creation,
        },
    }
}

/// The party that the term names.
pub fn who_is(term: &Term) -> Who {
    match term {
        Term::Atom(name) | Term::Latin1(name) => Who::Name(Some(name.clone())),
        Term::Pid {
            node,
            id,
            serial,
            creation,
        } => Who::Process {
            node: Some(node.clone()),
            id: *id,
            serial: *serial,
            creation: *creation,
        },
        Term::OldPid {
            node,
            id,
            serial,
            creation,
        } => Who::Process {
            node: Some(node.clone()),
            id: *id,
            serial: *serial,
            creation: u32::from(*creation),
        },
        Term::Reference { node, creation, .. } => Who::Alias {
            node: Some(node.clone()),
            creation: *creation,
        },
        other => panic!("no party: {other:?}"),
    }
}

/// Operation, sender and target.
pub fn read(reader: &mut Reader, packet: &[u8]) -> (Operation, Who, Who) {
    let envelope = reader.packet([packet], packet.len()).expect("no contradiction");
    assert_eq!(envelope.bytes, packet.len());
    described(reader, &envelope)
}

pub fn described(reader: &Reader, envelope: &Envelope) -> (Operation, Who, Who) {
    let key = envelope.key;
    (key.operation, who(reader, key.sender), who(reader, key.target))
}

/// The header's form.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Form {
    Normal,
    PassThrough,
    /// The first fragment of this number of them, of this sequence.
    Fragments {
        id: u64,
        count: u64,
    },
}

/// A sender with its atom cache.
pub struct Writer {
    /// The entry of an atom.
    pub place: fn(&str) -> u16,
    cache: HashMap<u16, String>,
    /// Sizes of texts in two bytes, even if one is enough.
    pub always_long: bool,
}

/// Spreads over the 2,048 entries.
pub fn spread(name: &str) -> u16 {
    let hash = name
        .bytes()
        .fold(5381_u32, |hash, byte| hash.wrapping_mul(33) ^ u32::from(byte));
    (hash % 2048) as u16
}

impl Default for Writer {
    fn default() -> Self {
        Writer {
            place: spread,
            cache: HashMap::new(),
            always_long: false,
        }
    }
}

/// The atoms of one packet's header: entry and text.
type Header = Vec<(u16, String)>;

impl Writer {
    /// A packet. `more`: atoms of the payload alone, which come first in the header.
    pub fn packet(&mut self, form: Form, control: &Term, more: &[String], payload: &[u8]) -> Vec<u8> {
        let mut header = Header::new();
        if form != Form::PassThrough {
            for name in more {
                self.refer(&mut header, name);
            }
        }
        let mut body = Vec::new();
        self.write(control, &mut body, form != Form::PassThrough, &mut header);
        body.extend(payload);
        let mut packet = match form {
            Form::PassThrough => vec![112, 131],
            Form::Normal => vec![131, 68],
            Form::Fragments { id, count } => fragment_start(69, id, count),
        };
        if form != Form::PassThrough {
            self.write_header(&header, &mut packet);
        }
        packet.extend(body);
        packet
    }

    /// A packet without further atoms or payload.
    pub fn normal(&mut self, control: &Term) -> Vec<u8> {
        self.packet(Form::Normal, control, &[], b"")
    }

    fn refer(&self, header: &mut Header, name: &str) -> Option<u8> {
        let place = (self.place)(name);
        if let Some(index) = header.iter().position(|(other, _)| *other == place) {
            return (header[index].1 == name).then_some(index as u8);
        }
        if header.len() == 255 {
            return None;
        }
        header.push((place, name.into()));
        Some(header.len() as u8 - 1)
    }

    fn write_header(&mut self, header: &Header, packet: &mut Vec<u8>) {
        packet.push(header.len() as u8);
        if header.is_empty() {
            return;
        }
        let is_new = |writer: &Writer, (place, name): &(u16, String)| writer.cache.get(place) != Some(name);
        let is_long = self.always_long || header.iter().any(|(_, name)| name.len() > 255);
        let mut flags = vec![0_u8; header.len() / 2 + 1];
        for (index, entry) in header.iter().enumerate() {
            let half = (entry.0 / 256) as u8 | u8::from(is_new(self, entry)) << 3;
            flags[index / 2] |= half << (index % 2 * 4);
        }
        flags[header.len() / 2] |= u8::from(is_long) << (header.len() % 2 * 4);
        packet.extend(flags);
        for entry in header {
            packet.push((entry.0 % 256) as u8);
            if is_new(self, entry) {
                match is_long {
                    true => packet.extend((entry.1.len() as u16).to_be_bytes()),
                    false => packet.push(entry.1.len() as u8),
                }
                packet.extend(entry.1.as_bytes());
            }
        }
        for (place, name) in header {
            self.cache.insert(*place, name.clone());
        }
    }

    fn write_atom(&self, name: &str, body: &mut Vec<u8>, is_headed: bool, header: &mut Header) {
        match is_headed.then(|| self.refer(header, name)).flatten() {
            Some(index) => body.extend([82, index]),
            None => spell(name.as_bytes(), 119, 118, body),
        }
    }

    fn write(&self, term: &Term, body: &mut Vec<u8>, is_headed: bool, header: &mut Header) {
        match term {
            Term::Int(number @ 0..256) => body.extend([97, *number as u8]),
            Term::Int(number) => {
                body.push(98);
                body.extend(number.to_be_bytes());
            }
            Term::Big(number) => {
                body.extend([110, 8, 0]);
                body.extend(number.to_le_bytes());
            }
            Term::Atom(name) => self.write_atom(name, body, is_headed, header),
            Term::Latin1(name) => {
                let bytes = Vec::from_iter(name.chars().map(|char| u8::try_from(char).expect("Latin-1")));
                spell(&bytes, 115, 100, body);
            }
            Term::Pid {
                node,
                id,
                serial,
                creation,
            } => {
                body.push(88);
                self.write_atom(node, body, is_headed, header);
                [id, serial, creation]
                    .iter()
                    .for_each(|word| body.extend(word.to_be_bytes()));
            }
            Term::OldPid {
                node,
                id,
                serial,
                creation,
            } => {
                body.push(103);
                self.write_atom(node, body, is_headed, header);
                [id, serial].iter().for_each(|word| body.extend(word.to_be_bytes()));
                body.push(*creation);
            }
            Term::Reference { node, creation, words } => {
                body.push(90);
                body.extend((words.len() as u16).to_be_bytes());
                self.write_atom(node, body, is_headed, header);
                body.extend(creation.to_be_bytes());
                words.iter().for_each(|word| body.extend(word.to_be_bytes()));
            }
            Term::Nil => body.push(106),
            Term::Tuple(terms) => {
                body.extend([104, terms.len() as u8]);
                terms.iter().for_each(|term| self.write(term, body, is_headed, header));
            }
            Term::List(terms) => {
                body.push(108);
                body.extend((terms.len() as u32).to_be_bytes());
                terms.iter().for_each(|term| self.write(term, body, is_headed, header));
                body.push(106);
            }
            Term::Binary(bytes) => {
                body.push(109);
                body.extend((bytes.len() as u32).to_be_bytes());
                body.extend(bytes);
            }
            Term::Raw(bytes) => body.extend(bytes),
        }
    }
}

fn spell(text: &[u8], short: u8, long: u8, body: &mut Vec<u8>) {
    match u8::try_from(text.len()) {
        Ok(bytes) => body.extend([short, bytes]),
        Err(_) => {
            body.push(long);
            body.extend((text.len() as u16).to_be_bytes());
        }
    }
    body.extend(text);
}

fn fragment_start(tag: u8, id: u64, number: u64) -> Vec<u8> {
    [&[131, tag][..], &id.to_be_bytes(), &number.to_be_bytes()].concat()
}

/// A further fragment.
pub fn fragment(id: u64, number: u64, payload: &[u8]) -> Vec<u8> {
    [&fragment_start(70, id, number)[..], payload].concat()
}

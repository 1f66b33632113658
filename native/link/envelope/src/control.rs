//! Control messages: where they have sender and target.

use crate::cache::AtomCache;
use crate::input::Input;
use crate::key::Key;
use crate::names::Name;
use crate::off::Off;
use crate::operation::Operation;
use crate::party::Party;
use crate::term::{Fault, Terms};

/// Flag of ALTACT_SIG_SEND: the signal is an exit signal, and no message.
const ALTACT_EXIT: u32 = 1 << 4;

/// An element of a control message's tuple.
#[derive(Clone, Copy)]
enum Element {
    Skipped,
    Sender,
    /// The sender if it is a process: otherwise an atom that says why there is none.
    SenderIfProcess,
    Target,
}

/// The operation of this number, and the elements after the number, as far as the last one that is read.
const fn operation(number: u32) -> Option<(Operation, &'static [Element])> {
    use Element::{Sender, SenderIfProcess, Skipped, Target};
    use Operation::*;
    Some(match number {
        1 => (Link, &[Sender, Target]),
        2 => (Send, &[Skipped, Target]),
        3 => (Exit, &[Sender, Target]),
        4 => (Unlink, &[Sender, Target]),
        5 => (NodeLink, &[]),
        6 => (RegSend, &[Sender, Skipped, Target]),
        7 => (GroupLeader, &[Sender, Target]),
        8 => (Exit2, &[Sender, Target]),
        12 => (SendTt, &[Skipped, Target]),
        13 => (ExitTt, &[Sender, Target]),
        16 => (RegSendTt, &[Sender, Skipped, Target]),
        18 => (Exit2Tt, &[Sender, Target]),
        19 => (MonitorP, &[Sender, Target]),
        20 => (DemonitorP, &[Sender, Target]),
        21 => (MonitorPExit, &[Sender, Target]),
        22 => (SendSender, &[Sender, Target]),
        23 => (SendSenderTt, &[Sender, Target]),
        24 => (PayloadExit, &[Sender, Target]),
        25 => (PayloadExitTt, &[Sender, Target]),
        26 => (PayloadExit2, &[Sender, Target]),
        27 => (PayloadExit2Tt, &[Sender, Target]),
        28 => (PayloadMonitorPExit, &[Sender, Target]),
        29 => (SpawnRequest, &[Skipped, Sender]),
        30 => (SpawnRequestTt, &[Skipped, Sender]),
        31 => (SpawnReply, &[Skipped, Target, Skipped, SenderIfProcess]),
        32 => (SpawnReplyTt, &[Skipped, Target, Skipped, SenderIfProcess]),
        33 => (AliasSend, &[Sender, Target]),
        34 => (AliasSendTt, &[Sender, Target]),
        35 => (UnlinkId, &[Skipped, Sender, Target]),
        36 => (UnlinkIdAck, &[Skipped, Sender, Target]),
        // After the flags, which `read` takes.
        37 => (AltactSigSend, &[Sender, Target]),
        _ => return None,
    })
}

/// What a control message begins with: a small tuple, whose first element is a small number.
const TUPLE: u8 = 104;
const NUMBER: u8 = 97;
/// One more than the largest number of an operation.
const NUMBERS: usize = 38;
/// The operation of each number; None where it does not follow from the number alone.
const OPERATIONS: [Option<Operation>; NUMBERS] = {
    let mut operations = [None; NUMBERS];
    let mut number = 0;
    while number < NUMBERS {
        operations[number] = match operation(number as u32) {
            Some((Operation::AltactSigSend, _)) | None => None,
            Some((operation, _)) => Some(operation),
        };
        number += 1;
    }
    operations
};

/// The operation of a control message that begins as VMs write it. None: [`read`] has to look.
#[inline]
pub fn peek(message: &[u8]) -> Option<Operation> {
    match *message {
        [TUPLE, _arity, NUMBER, number, ..] => *OPERATIONS.get(usize::from(number))?,
        _ => None,
    }
}

/// Reads a control message as far as its sender and its target.
pub fn read<'a, I: Iterator<Item = &'a [u8]>>(input: &mut Input<'a, I>, cache: &mut AtomCache) -> Result<Key, Off> {
    let mut terms = Terms::new(input, cache);
    let arity = terms.tuple()?;
    let number = terms.number()?.ok_or(Off::NoOperation)?;
    match read_elements(&mut terms, arity.saturating_sub(1), number) {
        Ok(key) => Ok(key),
        Err(Fault::Unknown) => Ok(Key::OTHER),
        Err(Fault::Off(off)) => Err(off),
    }
}

fn read_elements<'a, I: Iterator<Item = &'a [u8]>>(
    terms: &mut Terms<'_, 'a, I>,
    mut arity: u8,
    number: u32,
) -> Result<Key, Fault> {
    let (mut operation, elements) = operation(number).ok_or(Fault::Unknown)?;
    if operation == Operation::AltactSigSend {
        let flags = terms.number()?.ok_or(Fault::Unknown)?;
        arity = arity.saturating_sub(1);
        if flags & ALTACT_EXIT != 0 {
            operation = Operation::AltactSigExit;
        }
    }
    let mut key = Key {
        operation,
        sender: Party::None,
        target: Party::None,
    };
    let mut is_known = elements.len() <= arity.into();
    for element in elements {
        let party = match element {
            _ if !is_known => Err(Fault::Unknown),
            Element::Skipped => terms.skip().map(|()| Party::None),
            _ => terms.party(),
        };
        let party = match party {
            Err(Fault::Unknown) => {
                is_known = false;
                Party::Name(Name::UNKNOWN)
            }
            party => party?,
        };
        match element {
            Element::Skipped => {}
            Element::SenderIfProcess if !matches!(party, Party::Process { .. }) => {}
            Element::Sender | Element::SenderIfProcess => key.sender = party,
            Element::Target => key.target = party,
        }
    }
    Ok(key)
}

//! Control messages: where they have sender and target.

use crate::cache::AtomCache;
use crate::input::Input;
use crate::key::Key;
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
fn operation(number: u32) -> Option<(Operation, &'static [Element])> {
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
    if elements.len() > arity.into() {
        return Err(Fault::Unknown);
    }
    let mut key = Key {
        operation,
        sender: Party::None,
        target: Party::None,
    };
    for element in elements {
        match element {
            Element::Skipped => terms.skip()?,
            Element::Sender => key.sender = terms.party()?,
            Element::SenderIfProcess => {
                let party = terms.party()?;
                if matches!(party, Party::Process { .. }) {
                    key.sender = party;
                }
            }
            Element::Target => key.target = terms.party()?,
        }
    }
    Ok(key)
}

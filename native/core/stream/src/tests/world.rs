//! Two streams, the messages under way between them, and real (small) memory, by which each broken promise shows.
//!
//! Each direction has two first-in-first-out channels, one for notices and one for control messages, delayed against
//! each other at will: more freedom than any fabric takes. A write changes the memory when it is posted, which is the
//! worst moment for bytes that are still there; its bytes are readable when the notice arrives.

use std::collections::VecDeque;

use super::side::Side;
use crate::{Control, ControlBody, Limits, Mode, Notice, Offer, Seq, Violation};

/// The setup of a world.
#[derive(Debug, Clone)]
pub struct Setup {
    pub mode: Mode,
    /// Per side: the limits that it sets for the other.
    pub limits: [Limits; 2],
    /// Per side: bytes that it sends in all.
    pub bytes: [u64; 2],
    /// Per side: size of each of its buffers.
    pub buffers: [Vec<u32>; 2],
    /// Stream byte to start at.
    pub start: Seq,
    /// The sender waits for advertisements that it may expect, except with bytes that it wants to send through the
    /// ring.
    pub patient: bool,
    /// The receiver passes before it has read everything: its caller writes, is blocked, and reads nothing meanwhile.
    pub passes_early: bool,
    /// Per side: the number of times that it may recall its advertisements.
    pub recalls: [u8; 2],
    /// Per side: sizes of the rings that may replace its first one, in this order.
    pub rings: [Vec<u32>; 2],
    /// Break the sender: leave out the phase jump.
    pub without_phase_jump: bool,
    /// Break the receiver: leave out its answer to a sender whose advertisements came too late.
    pub without_late_answer: bool,
    /// Break the credits: transfers and controls may take the last one.
    pub without_reserve: bool,
}

impl Setup {
    /// A world of these dimensions, without recalls, other rings and defects.
    pub fn new(mode: Mode, limits: [Limits; 2], bytes: [u64; 2], buffers: [Vec<u32>; 2], start: Seq) -> Setup {
        Setup {
            mode,
            limits,
            bytes,
            buffers,
            start,
            patient: false,
            passes_early: false,
            recalls: [0, 0],
            rings: [vec![], vec![]],
            without_phase_jump: false,
            without_late_answer: false,
            without_reserve: false,
        }
    }
}

/// An action of one of the parties.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The caller sends.
    Send { side: usize, indirect: u32, direct: u32 },
    /// The oldest notice sent by this side arrives.
    DeliverNotice { from: usize },
    /// The oldest control message sent by this side arrives.
    DeliverControl { from: usize },
    /// The caller posts the next control message.
    PollControl { side: usize },
    /// The caller posts the first buffer that is its own.
    Post { side: usize, fill: bool },
    /// The caller copies from the ring.
    Copy { side: usize, bytes: u32 },
    /// The caller takes a buffer back.
    Withdraw { side: usize },
    /// The caller offers no buffer for now: it has read everything, or reads nothing.
    Pass { side: usize },
    /// The caller ends its direction; only after all its bytes.
    Finish { side: usize },
    /// The caller closes the connection, even with bytes left to send: it ends its direction, posts the due messages of
    /// the stream, and is gone.
    Close { side: usize },
    /// The caller wants a keepalive.
    Tick { side: usize },
    /// The caller recalls all its advertisements.
    Recall { side: usize },
    /// The caller asks the peer to write into the next ring.
    ReplaceRing { side: usize },
    /// The caller posts the mark that it owes.
    PollMark { side: usize },
}

/// A promise that was not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Broken {
    /// A byte was read twice, not at all or in the wrong place.
    Order,
    /// A direct transfer arrived before ring bytes of an earlier place were read.
    Overtaken,
    /// A write into memory that the peer must not touch, or must no longer touch.
    NotTheirs,
    /// More written into the ring than it holds, or over its end.
    RingOverflow,
    /// More messages under way than slots.
    ReceiveQueueDry,
    /// A stream reports a violation, though both streams are honest.
    Accusation(Violation),
    /// Credit messages follow each other without end.
    CreditsForEver,
    /// The stream names a receive that is not posted, or not due.
    WrongReceive,
    /// The mark came, and the peer may still write into a buffer.
    NotGivenUp,
    /// A side closed without telling its end.
    FinishLost,
}

impl std::hash::Hash for Violation {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self).hash(state);
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct World {
    pub sides: [Side; 2],
    /// Per sending side.
    pub notices: [VecDeque<Notice>; 2],
    pub controls: [VecDeque<Control>; 2],
}

impl World {
    pub fn new(setup: &Setup) -> World {
        World {
            sides: [0, 1].map(|side| Side::new(setup, side)),
            notices: Default::default(),
            controls: Default::default(),
        }
    }

    /// Performs the action. Ok(false): it is not possible now. Nothing of importance has changed then: the caller may
    /// drop the world if it is a copy, or continue with it.
    pub fn step(&mut self, setup: &Setup, action: Action) -> Result<bool, Broken> {
        match action {
            Action::Send { side, indirect, direct } => self.send(setup, side, Offer { indirect, direct }),
            Action::DeliverNotice { from } => self.deliver_notice(from),
            Action::DeliverControl { from } => self.deliver_control(from),
            Action::PollControl { side } => self.poll_control(setup, side),
            Action::Post { side, fill } => Ok(self.sides[side].post(fill)),
            Action::Copy { side, bytes } => self.sides[side].copy(bytes),
            Action::Withdraw { side } => self.sides[side].withdraw(),
            Action::Pass { side } => {
                let stream = &mut self.sides[side].stream;
                let before = stream.has_control();
                if setup.passes_early || stream.ring_bytes_readable() == 0 {
                    stream.pass();
                }
                Ok(stream.has_control() && !before)
            }
            Action::Finish { side } => {
                let side_state = &mut self.sides[side];
                let now = !side_state.finished && side_state.sent == setup.bytes[side];
                if now {
                    side_state.stream.finish();
                    side_state.finished = true;
                }
                Ok(now)
            }
            Action::Close { side } => self.close(setup, side),
            Action::Recall { side } => Ok(self.sides[side].recall()),
            Action::ReplaceRing { side } => {
                let next = setup.rings[side].get(self.sides[side].replaced);
                Ok(next.is_some_and(|bytes| self.sides[side].replace_ring(*bytes)))
            }
            Action::PollMark { side } => self.poll_mark(setup, side),
            Action::Tick { side } => {
                self.sides[side].stream.tick();
                self.sides[side].ticks += 1;
                Ok(true)
            }
        }
    }

    fn send(&mut self, setup: &Setup, side: usize, offer: Offer) -> Result<bool, Broken> {
        let [sender, receiver] = pair(&mut self.sides, side);
        let left = u32::try_from(setup.bytes[side] - sender.sent).unwrap_or(u32::MAX);
        let waits = setup.patient && offer.direct > 0 && sender.stream.awaits_advert();
        let offer = Offer {
            indirect: if waits { 0 } else { offer.indirect.min(left) },
            direct: offer.direct.min(left),
        };
        if left == 0 {
            return Ok(false);
        }
        let (direct_room, indirect_room) = (sender.stream.direct_room(), sender.stream.indirect_room());
        let Some(transfer) = sender.stream.poll_transfer(offer) else {
            return Ok(false);
        };
        let bytes = transfer.notice.bytes;
        if transfer.notice.direct {
            assert!(bytes <= offer.direct && Some(bytes) <= direct_room);
            receiver.written_direct(transfer.target, sender.sent, bytes)?;
        } else {
            assert!(bytes <= offer.indirect && bytes <= indirect_room);
            receiver.written_indirect(transfer.target, sender.sent, bytes)?;
        }
        sender.sent += u64::from(bytes);
        sender.credits_in_a_row = 0;
        self.notices[side].push_back(transfer.notice);
        self.check_slots(setup, side)
    }

    fn poll_mark(&mut self, setup: &Setup, side: usize) -> Result<bool, Broken> {
        let sender = &mut self.sides[side];
        let Some(mark) = sender.stream.poll_mark() else {
            return Ok(false);
        };
        assert_eq!(mark.notice, Notice::MARK);
        sender.credits_in_a_row = 0;
        self.notices[side].push_back(mark.notice);
        self.check_slots(setup, side)
    }

    fn close(&mut self, setup: &Setup, side: usize) -> Result<bool, Broken> {
        self.sides[side].stream.finish();
        self.sides[side].finished = true;
        while self.poll_control(setup, side)? {}
        if !self.sides[side].stream.is_finished_sent() {
            return Err(Broken::FinishLost);
        }
        self.sides[side].closed = true;
        Ok(true)
    }

    fn poll_control(&mut self, setup: &Setup, side: usize) -> Result<bool, Broken> {
        let sender = &mut self.sides[side];
        let promised = sender.stream.has_control();
        let Some(control) = sender.stream.poll_control() else {
            return Ok(false);
        };
        assert!(promised, "a control message that has_control did not know of");
        match control.body {
            ControlBody::Credit => sender.credits_in_a_row += 1,
            _ => sender.credits_in_a_row = 0,
        }
        let owed_at_most = setup.limits[0].receive_slots + setup.limits[1].receive_slots;
        if sender.credits_in_a_row > owed_at_most {
            return Err(Broken::CreditsForEver);
        }
        self.controls[side].push_back(control);
        self.check_slots(setup, side)
    }

    fn check_slots(&self, setup: &Setup, from: usize) -> Result<bool, Broken> {
        let under_way = self.notices[from].len() + self.controls[from].len();
        if under_way > usize::from(setup.limits[1 - from].receive_slots) {
            return Err(Broken::ReceiveQueueDry);
        }
        Ok(true)
    }

    fn deliver_notice(&mut self, from: usize) -> Result<bool, Broken> {
        let Some(notice) = self.notices[from].pop_front() else {
            return Ok(false);
        };
        let to = &mut self.sides[1 - from];
        if !to.closed {
            to.notice(notice)?;
        }
        Ok(true)
    }

    fn deliver_control(&mut self, from: usize) -> Result<bool, Broken> {
        let Some(control) = self.controls[from].pop_front() else {
            return Ok(false);
        };
        let to = &mut self.sides[1 - from];
        if !to.closed {
            to.stream.handle_control(&control.emit()).map_err(Broken::Accusation)?;
        }
        Ok(true)
    }

    /// Nothing is under way, neither side has a message to post or ring bytes to read.
    pub fn is_quiet(&self) -> bool {
        self.notices.iter().all(VecDeque::is_empty)
            && self.controls.iter().all(VecDeque::is_empty)
            && self.sides.iter().filter(|side| !side.closed).all(|side| {
                let mut stream = side.stream.clone();
                stream.pass();
                stream.ring_bytes_readable() == 0 && stream.poll_control().is_none() && stream.poll_mark().is_none()
            })
    }

    /// True for a quiet world in which a side waits for a message that never comes.
    pub fn is_stuck(&self, setup: &Setup) -> bool {
        self.is_quiet() && (0..2).any(|side| self.waits_for_ever(setup, side))
    }

    fn waits_for_ever(&self, setup: &Setup, side: usize) -> bool {
        let (sender, receiver) = (&self.sides[side], &self.sides[1 - side]);
        if receiver.closed {
            // The fabric tells the remaining side.
            return false;
        }
        if !sender.closed && (sender.stream.has_control() || sender.stream.owes_mark()) {
            return true;
        }
        if sender.closed || sender.sent == setup.bytes[side] {
            return receiver.read != sender.sent || (sender.finished && !receiver.stream.is_end());
        }
        // With direct transfers only, a caller that posts nothing does not read.
        let reads = setup.mode != Mode::DirectOnly || !receiver.posted.is_empty();
        let waits = setup.patient && sender.stream.awaits_advert();
        let offer = Offer {
            indirect: u32::from(!waits),
            direct: 1,
        };
        reads && sender.stream.clone().poll_transfer(offer).is_none()
    }

    /// True for a quiet world in which a buffer is advertised for the present phase, and the sender cannot use it.
    pub fn wastes_a_buffer(&self) -> bool {
        let wasted = |side: usize| {
            let (sender, receiver) = (&self.sides[side], &self.sides[1 - side]);
            let is_fresh = !receiver.posted.is_empty() && receiver.stream.clone().withdraw().is_none();
            is_fresh && !receiver.closed && !sender.finished && sender.stream.clone().direct_room().is_none()
        };
        self.is_quiet() && (0..2).any(wasted)
    }

    /// True if each byte was sent and read.
    pub fn is_all_read(&self, setup: &Setup) -> bool {
        (0..2).all(|side| self.sides[side].sent == setup.bytes[side] && self.sides[1 - side].read == setup.bytes[side])
    }

    /// Removes counters from the state, which only people read, so that the model is finite.
    pub fn forget_counters(&mut self) {
        for side in &mut self.sides {
            *side.stream.parts().2 = crate::Counters::default();
        }
    }
}

fn pair(sides: &mut [Side; 2], first: usize) -> [&mut Side; 2] {
    let [a, b] = sides;
    if first == 0 { [a, b] } else { [b, a] }
}

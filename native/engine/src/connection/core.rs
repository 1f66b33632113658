//! The state of a connection behind the lock `core`: the stream, landing buffers, expected reads, reader and writer.

use std::time::Instant;

use inet_rdma_fabric::Exposed;
use inet_rdma_stream::{ReceiveId, Stream};

use super::closed::Closed;
use super::notifier::Woken;
use super::records::Controls;
use super::ring_memory::RingMemory;
use crate::landing::{AdvertPolicy, ExpectedReads, LandingMemory, Landings, NextLanded};

/// The state of the reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reader {
    /// Its last read has ended, and it has not asked to be woken.
    Away,
    /// Its last read found the end.
    AtEnd,
    /// It reads, or has been woken and is about to.
    Reads,
    /// It is woken when there is something to read, or the end.
    Waits,
    /// It is woken at the next look, whatever there is.
    Called,
}

/// The state of the writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Writer {
    /// It writes, or has not asked to be woken.
    Writes,
    /// This side's stream has ended: nothing more is written.
    Finished,
    /// It is woken when the peer has made room, or at the end.
    WaitsForPeer,
    /// It is woken when the fabric has room, too.
    WaitsForFabric,
    /// It is woken at the next look, whether there is room or not.
    Called,
}

/// Whether the connection is open, ends, or has ended.
#[derive(Debug)]
pub(super) enum End {
    /// Both sides may go on.
    Open,
    /// The peer has said where its stream ends.
    PeerFinished,
    /// The connection is over.
    Closed(Closed),
}

/// Whether the staging memory fits the peer's ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Staging {
    /// It does.
    Fits,
    /// Memory of this many bytes is to take its place.
    Claimed(usize),
    /// It has been replaced, and the device may still send from what was before. The bytes that were claimed since are
    /// registered behind the sweep that has released that memory: the peer decides how often its ring changes, and
    /// pins no more here than the present memory and one that was replaced.
    Replaced(Option<usize>),
}

pub(super) struct Core {
    pub(super) stream: Stream,
    /// The rings.
    pub(super) ring: RingMemory,
    /// The next step about staging memory.
    pub(super) staging: Staging,
    /// Staging memory of this many bytes takes over behind the transfer that is being posted.
    pub(super) prepared_staging: Option<usize>,
    /// Rings to revoke: the peer no longer writes into them, and all bytes have been read.
    pub(super) unused: Vec<Box<dyn Exposed>>,
    /// All landing buffers.
    pub(super) landing: LandingMemory,
    /// Time of the last failed start of the thread `inet_rdma/memory`; None otherwise.
    pub(super) unkept_since: Option<Instant>,
    /// True while a chosen transfer is not posted yet, with `core` unlocked: no other transfer may be posted before it.
    pub(super) posts_transfer: bool,
    /// True while a read copies with `core` unlocked: it advertises landing buffers at its end.
    pub(super) read_copies: bool,
    /// The landing buffers that the peer has or had.
    pub(super) landings: Landings,
    /// The reads whose sizes are known.
    pub(super) expected: ExpectedReads,
    /// When to advertise landing buffers, and how many.
    pub(super) policy: AdvertPolicy,
    /// Parties to wake, collected since the lock was taken.
    pub(super) woken: Woken,
    pub(super) reader: Reader,
    pub(super) writer: Writer,
    pub(super) end: End,
    /// The user wants to read no more: each read finds the end.
    pub(super) reading_stopped: bool,
    /// True if the writer's last bytes are bulk: it waits for an advertisement if one can come.
    pub(super) wants_advert: bool,
    /// The reader looks by itself between a wake and the next [`super::Connection::arm_reader`].
    pub(super) self_polling: bool,
    /// A polling thread looks.
    pub(super) thread_polls: bool,
    /// The controls' half of records; None: the stream is plain.
    pub(super) controls: Option<Box<Controls>>,
    /// True while reads have not taken all of an opened record.
    pub(super) holds_opened: bool,
    /// The least that the next transfer takes: with less room the writer waits.
    pub(super) transfer_min: u32,
    /// Completions taken so far.
    pub(super) arrivals: u64,
}

/// Copies of up to this many bytes run with `core` locked: to unlock and lock it again would take longer.
pub(super) const COPIED_AT_ONCE_BYTES: usize = 2048;

impl Core {
    pub(super) fn new(
        stream: Stream,
        policy: AdvertPolicy,
        memory: (RingMemory, LandingMemory),
        closed_bytes: usize,
        busy: bool,
    ) -> Self {
        let (ring, landing) = memory;
        Self {
            stream,
            ring,
            staging: Staging::Fits,
            prepared_staging: None,
            unused: Vec::new(),
            landings: Landings::new(landing.count_max(), landing.buffer_bytes(), closed_bytes),
            landing,
            unkept_since: None,
            posts_transfer: false,
            read_copies: false,
            expected: ExpectedReads::default(),
            policy,
            woken: Woken::default(),
            reader: Reader::Away,
            writer: Writer::Writes,
            end: End::Open,
            reading_stopped: false,
            wants_advert: false,
            self_polling: false,
            thread_polls: busy,
            controls: None,
            holds_opened: false,
            transfer_min: 1,
            arrivals: 0,
        }
    }
}

impl Core {
    /// Why the connection is over; None: it is not.
    #[inline]
    pub(super) fn closed(&self) -> Option<&Closed> {
        match &self.end {
            End::Closed(closed) => Some(closed),
            End::Open | End::PeerFinished => None,
        }
    }

    #[inline]
    pub(super) fn is_up(&self) -> bool {
        self.closed().is_none()
    }

    /// The reader looks at the receive queue again and again, without an event.
    #[inline]
    pub(super) fn reader_polls(&self) -> bool {
        self.self_polling && matches!(self.reader, Reader::Away | Reader::Reads)
    }

    /// An arrival is found without an event.
    #[inline]
    pub(super) fn is_polled(&self) -> bool {
        self.thread_polls || self.reader_polls()
    }

    /// The next read comes only when the user calls it: the reader neither reads nor waits to be woken.
    #[inline]
    pub(super) fn reader_is_away(&self) -> bool {
        matches!(self.reader, Reader::Away | Reader::AtEnd)
    }

    #[inline]
    pub(super) fn reader_waits(&self) -> bool {
        matches!(self.reader, Reader::Waits | Reader::Called)
    }

    /// Notes that the reader can go on, and has it woken if it waits.
    #[inline]
    pub(super) fn wake_reader(&mut self) {
        if self.reader_waits() {
            self.reader = Reader::Reads;
            self.woken.reader = true;
        }
    }

    #[inline]
    pub(super) fn writer_waits(&self) -> bool {
        matches!(self.writer, Writer::WaitsForPeer | Writer::WaitsForFabric)
    }

    /// Notes that the writer can go on, and has it woken if it waits.
    #[inline]
    pub(super) fn wake_writer(&mut self) {
        if self.writer_waits() || self.writer == Writer::Called {
            self.writer = Writer::Writes;
            self.woken.writer = true;
        }
    }

    /// Takes what has been collected since the last call.
    #[inline]
    pub(super) fn take_woken(&mut self) -> Woken {
        std::mem::take(&mut self.woken)
    }

    /// Has the next look wake these parties, even if it finds nothing for them.
    pub(super) fn call(&mut self, who: Woken) {
        if who.reader {
            self.reader = Reader::Called;
        }
        if who.writer && self.writer != Writer::Finished {
            self.writer = Writer::Called;
        }
    }

    /// True if an expected read should wait for the rest of a landing buffer that has arrived in part. Once no more can
    /// come, it takes the part.
    fn waits_for_rest(&self, arrived: usize) -> bool {
        self.is_up() && self.expected.wants_more_than(arrived)
    }

    /// Takes back all that was advertised and can never be filled any more.
    pub(super) fn withdraw(&mut self) {
        while let Some(ReceiveId(index)) = self.stream.withdraw() {
            self.landings.withdraw(index as usize);
        }
    }

    /// True while the stream's next bytes lie in a landing buffer that may not be taken yet. Do not read the ring: its
    /// bytes come later.
    #[inline]
    pub(super) fn awaits_landed(&self) -> bool {
        self.landings.next().is_some() && !self.has_landed()
    }

    /// True if something has landed that the reader can take.
    #[inline]
    pub(super) fn has_landed(&self) -> bool {
        match self.landings.next() {
            None => false,
            Some(NextLanded::Whole) => true,
            Some(NextLanded::Part(bytes)) => !self.waits_for_rest(bytes),
            // No completion arrives after the end, so a window that is closing never becomes closed: copy its bytes.
            Some(NextLanded::Closing) => !self.is_up(),
        }
    }
}

pub(super) fn saturating_u32(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

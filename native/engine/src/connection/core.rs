//! The state of a connection behind the lock `core`: the stream, landing buffers, posted receives, reader and writer.

use std::time::Instant;

use inet_rdma_fabric::Exposed;
use inet_rdma_stream::{ReceiveId, Stream};

use super::active::Left;
use super::advert_policy::AdvertPolicy;
use super::closed::Closed;
use super::landing_memory::LandingMemory;
use super::landings::{Landings, Next};
use super::posted_receives::PostedReceives;
use super::records::Controls;
use super::ring_memory::RingMemory;

/// Whether reader and writer can go on. Collected with `core` locked; see [`super::notifying`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Woken {
    /// There is something to read, or the end.
    pub(super) reader: bool,
    /// There is room to write, or the end.
    pub(super) writer: bool,
}

impl Woken {
    pub(super) const READER: Self = Self {
        reader: true,
        writer: false,
    };
    pub(super) const WRITER: Self = Self {
        reader: false,
        writer: true,
    };

    #[inline]
    pub(super) fn is_empty(self) -> bool {
        !self.reader && !self.writer
    }

    #[inline]
    pub(super) fn merge(&mut self, other: Self) {
        self.reader |= other.reader;
        self.writer |= other.writer;
    }
}

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

/// How far the connection is from its end.
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
    /// It is to be replaced by so many bytes.
    Claimed(usize),
    /// It has been replaced, and the device may still send from what was before.
    Replaced,
}

pub(super) struct Core<T> {
    pub(super) stream: Stream,
    /// The rings.
    pub(super) ring: RingMemory,
    /// Bytes that are staged at a time, and the bytes that shall be.
    pub(super) staging: Staging,
    /// Rings that the peer writes no more and nothing is to be read from: to be revoked.
    pub(super) unused: Vec<Box<dyn Exposed>>,
    /// All landing buffers.
    pub(super) landing: LandingMemory,
    /// When the thread that looks after all of this could not be started, if it is not looking after it since.
    pub(super) unkept_since: Option<Instant>,
    /// A transfer is decided on and not posted, with `core` free: another one must not be posted before it.
    pub(super) posts_transfer: bool,
    /// The landing buffers that the peer has or had.
    pub(super) landings: Landings,
    /// The receives that are posted.
    pub(super) posted: PostedReceives<T>,
    /// Messages that active mode has left; None: passive mode.
    pub(super) active: Option<Left>,
    /// When to advertise landing buffers, and how many.
    pub(super) policy: AdvertPolicy,
    /// Collected since the lock was taken.
    pub(super) woken: Woken,
    pub(super) reader: Reader,
    pub(super) writer: Writer,
    pub(super) end: End,
    /// The user wants to read no more: each read finds the end.
    pub(super) reading_stopped: bool,
    /// What the writer wrote last is bulk: it waits for an advertisement if one is to come.
    pub(super) wants_advert: bool,
    /// The reader looks by itself between a wake and the next [`super::Connection::arm`].
    pub(super) self_polling: bool,
    /// A polling thread looks.
    pub(super) thread_polls: bool,
    /// The controls' half of records; None: the stream is plain.
    pub(super) controls: Option<Box<Controls>>,
    /// A record is opened, and reads have not taken all of it.
    pub(super) holds_opened: bool,
    /// The least that the next transfer takes: with less room the writer waits.
    pub(super) transfer_min: u32,
    /// Completions taken so far.
    pub(super) arrivals: u64,
}

/// Copies of up to this many bytes run with `core` locked: to unlock and lock it again would take longer.
pub(super) const COPIED_AT_ONCE_BYTES: usize = 2048;

impl<T> Core<T> {
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
            unused: Vec::new(),
            landings: Landings::new(landing.count_max(), landing.buffer_bytes(), closed_bytes),
            landing,
            unkept_since: None,
            posts_transfer: false,
            posted: PostedReceives::default(),
            active: None,
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

impl<T> Core<T> {
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

    /// The reader may go on; it is told if it waits.
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

    /// The writer may go on; it is told if it waits.
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

    /// Has the next look wake these, even if it finds nothing for them.
    pub(super) fn call(&mut self, who: Woken) {
        if who.reader {
            self.reader = Reader::Called;
        }
        if who.writer && self.writer != Writer::Finished {
            self.writer = Writer::Called;
        }
    }

    /// A posted receive will have the whole of a landing buffer of which a part has arrived: it waits for the rest. Once
    /// no more can come, the part is all there is.
    fn waits_for_rest(&self, arrived: usize) -> bool {
        self.is_up() && self.posted.wants_more_than(arrived)
    }

    /// Takes back all that was advertised and can never be filled any more.
    pub(super) fn withdraw(&mut self) {
        while let Some(ReceiveId(index)) = self.stream.withdraw() {
            self.landings.withdraw(index as usize);
        }
    }

    /// What is to be read next has landed, and is not to be taken yet: nothing behind it is read before it.
    #[inline]
    pub(super) fn awaits_landed(&self) -> bool {
        self.landings.next().is_some() && !self.has_landed()
    }

    /// Something has landed that the reader takes.
    #[inline]
    pub(super) fn has_landed(&self) -> bool {
        match self.landings.next() {
            None => false,
            Some(Next::Whole) => true,
            Some(Next::Part(bytes)) => !self.waits_for_rest(bytes),
            // Nothing more is found out behind the end: what is not closed by then is copied out.
            Some(Next::Closing) => !self.is_up(),
        }
    }
}

pub(super) fn saturating_u32(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

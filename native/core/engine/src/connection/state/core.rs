//! The state of a connection behind the lock `core`. Each part keeps its own rules; the rules that join two parts are
//! here.

use std::time::Instant;

use inet_rdma_fabric::Completion;
use inet_rdma_stream::{Notice, ReceiveId, Stream};

use super::reader::Reader;
use super::records::RecordState;
use super::ring_memory::RingMemory;
use super::staging::Staging;
use super::writer::Writer;
use crate::connection::closed::Closed;
use crate::connection::landing::{LandingBuffers, NextLanded};
use crate::connection::notifier::Woken;

/// The end of a connection, as far as it has come.
#[derive(Debug)]
pub(crate) enum End {
    /// Both sides may send.
    Open,
    /// The peer has told the end of its stream.
    PeerFinished,
    Closed(Closed),
}

/// The party that looks at the receive queue again and again: while it does, arrivals need no event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PolledBy {
    /// None: arrivals make events.
    Nobody,
    /// A polling thread.
    Thread,
    /// The reader, while [`Reader::may_poll`].
    Reader,
}

pub(crate) struct Core {
    pub(crate) stream: Stream,
    pub(crate) end: End,
    pub(crate) reader: Reader,
    pub(crate) writer: Writer,
    pub(crate) polled_by: PolledBy,
    /// Parties to wake, collected since the lock was taken.
    pub(crate) woken: Woken,
    pub(crate) ring: RingMemory,
    pub(crate) staging: Staging,
    pub(crate) landing: LandingBuffers,
    /// Time of the last failed start of the thread `inet_rdma/memory`; None otherwise.
    pub(crate) claim_failed_at: Option<Instant>,
    /// None: the stream is plain.
    pub(crate) records: Option<Box<RecordState>>,
    pub(crate) arrivals: u64,
    /// The completions of one poll. The array is kept, as to initialise one in each poll costs more than to handle a
    /// completion.
    pub(crate) batch: [Completion; POLL_BATCH],
}

pub(crate) const POLL_BATCH: usize = 8;

/// Copies of up to this many bytes run with `core` locked: to unlock and lock it again would take longer.
pub(crate) const COPIED_AT_ONCE_BYTES: usize = 2048;

impl Core {
    pub(crate) fn new(
        stream: Stream,
        ring: RingMemory,
        landing: LandingBuffers,
        records: Option<Box<RecordState>>,
        polled_by: PolledBy,
    ) -> Self {
        Self {
            stream,
            end: End::Open,
            reader: Reader::default(),
            writer: Writer::default(),
            polled_by,
            woken: Woken::default(),
            ring,
            staging: Staging::default(),
            landing,
            claim_failed_at: None,
            records,
            arrivals: 0,
            batch: [Completion::Notice(Notice::MARK); POLL_BATCH],
        }
    }

    /// The reason of the connection's end. None: it has not ended.
    #[inline]
    pub(crate) fn closed(&self) -> Option<&Closed> {
        match &self.end {
            End::Closed(closed) => Some(closed),
            End::Open | End::PeerFinished => None,
        }
    }

    #[inline]
    pub(crate) fn is_up(&self) -> bool {
        self.closed().is_none()
    }

    /// True while an arrival is found without an event.
    #[inline]
    pub(crate) fn is_polled(&self) -> bool {
        match self.polled_by {
            PolledBy::Nobody => false,
            PolledBy::Thread => true,
            PolledBy::Reader => self.reader.may_poll(),
        }
    }

    /// Notes that the reader can go on, and has it woken if it waits.
    #[inline]
    pub(crate) fn wake_reader(&mut self) {
        self.woken.reader |= self.reader.wake();
    }

    /// Notes that the writer can go on, and has it woken if it waits.
    #[inline]
    pub(crate) fn wake_writer(&mut self) {
        self.woken.writer |= self.writer.wake();
    }

    /// Takes the parties to wake that were collected since the last call.
    #[inline]
    pub(crate) fn take_woken(&mut self) -> Woken {
        std::mem::take(&mut self.woken)
    }

    /// Has the next look wake these parties, even if it finds nothing for them.
    pub(crate) fn call(&mut self, parties: Woken) {
        if parties.reader {
            self.reader.call();
        }
        if parties.writer {
            self.writer.call();
        }
    }

    /// True if a read would find something: bytes, or the end.
    pub(crate) fn is_readable(&self) -> bool {
        self.reader.is_stopped
            || self.reader.is_called()
            || self.has_landed()
            || !self.awaits_landed()
                && (self.stream.ring_bytes_readable() > 0 || self.stream.is_end() || self.holds_record())
            || !self.is_up()
    }

    /// True while reads have not taken all of an opened record.
    #[inline]
    pub(crate) fn holds_record(&self) -> bool {
        self.records.as_ref().is_some_and(|records| records.holds_record)
    }

    /// True if something has landed that the reader can take.
    #[inline]
    pub(crate) fn has_landed(&self) -> bool {
        match self.landing.landings.next() {
            None => false,
            Some(NextLanded::Whole) => true,
            // An expected read waits for the rest of a buffer that has arrived in part. Once no byte can follow, it
            // takes the part.
            Some(NextLanded::Part(bytes)) => !(self.is_up() && self.landing.expected.wants_more_than(bytes)),
            // No completion arrives after the end, so a window that is closing never becomes closed: copy its bytes.
            Some(NextLanded::Closing) => !self.is_up(),
        }
    }

    /// True while the stream's next bytes lie in a landing buffer that may not be taken yet. Do not read the ring: its
    /// bytes come later.
    #[inline]
    pub(crate) fn awaits_landed(&self) -> bool {
        self.landing.landings.next().is_some() && !self.has_landed()
    }

    /// Withdraws all advertised buffers that the peer can no longer fill.
    #[inline]
    pub(crate) fn withdraw(&mut self) {
        while let Some(ReceiveId(index)) = self.stream.withdraw() {
            self.landing.landings.withdraw(index as usize);
        }
    }
}

pub(crate) fn saturating_u32(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

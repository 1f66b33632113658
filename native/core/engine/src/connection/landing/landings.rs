//! The landing buffers of a connection that the user does not hold: those that the peer may write, and those with
//! unread bytes.

use std::collections::VecDeque;
use std::ops::Range;

use inet_rdma_assembly::LandingBuffer;
use inet_rdma_fabric::WindowState;

/// A buffer that is advertised, or will be with the next credit.
struct Advertised {
    buffer: LandingBuffer,
    bytes: usize,
    filled: usize,
    /// True: the buffer takes exactly `bytes`, in any number of transfers. False: it takes one transfer.
    fill: bool,
}

/// Bytes that have landed, next to be read.
pub(crate) enum Landed {
    /// Bytes in a buffer that the peer no longer writes.
    Whole(LandingBuffer, Range<usize>),
    /// Bytes in the buffer with this index, to which the peer may still add.
    Part(usize, Range<usize>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextLanded {
    Whole,
    /// The number of bytes that have landed in a buffer, to which the peer may still add.
    Part(usize),
    /// A buffer whose window is being closed: it can be handed over when the window is closed.
    Closing,
}

/// The landing buffers of one connection.
///
/// # Invariants
/// Only the last of `landed` may be a part. `covered` is the sum of the bytes in `landed` and of the bytes that
/// advertised buffers with `fill` still take.
pub(crate) struct Landings {
    advertised: Vec<Option<Advertised>>,
    /// These bytes come before those in the ring.
    landed: VecDeque<Landed>,
    /// Bytes of the stream, from the next unread one on, for which there is a landing buffer.
    covered: usize,
    /// Advertised buffers that take one transfer of any size: the stream position after them is not known.
    open_ended: usize,
    /// Bytes of the last transfer; before the first one, the size of a buffer.
    pub(crate) last_bytes: usize,
    /// As of [`Self::new`].
    closed_bytes: usize,
}

impl Landings {
    /// `closed_bytes`: minimum number of landed bytes for which a buffer's window is closed, to hand the buffer over.
    pub(crate) fn new(buffers: u16, buffer_bytes: usize, closed_bytes: usize) -> Self {
        Self {
            advertised: (0..buffers).map(|_| None).collect(),
            landed: VecDeque::with_capacity(buffers.into()),
            covered: 0,
            open_ended: 0,
            last_bytes: buffer_bytes,
            closed_bytes,
        }
    }

    /// Bytes of the stream for which there are buffers. None: that depends on the sizes of the peer's transfers.
    #[inline]
    pub(crate) fn covered(&self) -> Option<usize> {
        (self.open_ended == 0).then_some(self.covered)
    }

    /// Notes that this buffer is advertised for `bytes`.
    #[inline]
    pub(crate) fn advertise(&mut self, buffer: LandingBuffer, bytes: usize, fill: bool) {
        if fill {
            self.covered += bytes;
        } else {
            self.open_ended += 1;
        }
        let index = usize::from(buffer.index());
        self.advertised[index] = Some(Advertised {
            buffer,
            bytes,
            filled: 0,
            fill,
        });
    }

    /// Notes that the peer wrote `bytes` at `offset`; `done`: it will not write into the buffer again.
    #[inline]
    pub(crate) fn arrive(&mut self, index: usize, offset: usize, bytes: usize, done: bool) {
        let slot = &mut self.advertised[index];
        let Some(advertised) = slot else { return };
        advertised.filled = offset + bytes;
        self.last_bytes = bytes;
        if !advertised.fill {
            self.open_ended -= 1;
            self.covered += bytes;
        }
        if done && offset == 0 {
            // The usual way: one transfer for one buffer.
            if let Some(whole) = slot.take() {
                self.land(whole.buffer, 0..bytes);
            }
            return;
        }
        match self.landed.back_mut() {
            Some(Landed::Part(_, range)) => range.end = offset + bytes,
            _ => self.landed.push_back(Landed::Part(index, offset..offset + bytes)),
        }
        if done {
            self.finish(index);
        }
    }

    /// Withdraws a buffer that the peer can no longer write. Bytes that have arrived in it stay to be read.
    pub(crate) fn withdraw(&mut self, index: usize) {
        if let Some(advertised) = &self.advertised[index] {
            if advertised.fill {
                self.covered -= advertised.bytes - advertised.filled;
            } else {
                self.open_ended -= 1;
            }
        }
        self.finish(index);
    }

    fn finish(&mut self, index: usize) {
        let Some(advertised) = self.advertised[index].take() else {
            return;
        };
        // The list does not have the part that was read already.
        if let Some(Landed::Part(of, range)) = self.landed.back() {
            if *of == index {
                let range = range.clone();
                self.landed.pop_back();
                self.land(advertised.buffer, range);
            }
        }
    }

    #[inline]
    fn land(&mut self, buffer: LandingBuffer, range: Range<usize>) {
        if range.len() >= self.closed_bytes {
            buffer.close();
        }
        self.landed.push_back(Landed::Whole(buffer, range));
    }

    /// Number of buffers with unread bytes.
    #[inline]
    pub(crate) fn landed(&self) -> usize {
        self.landed.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.landed.is_empty()
    }

    #[inline]
    pub(crate) fn next(&self) -> Option<NextLanded> {
        self.landed.front().map(|landed| match landed {
            Landed::Whole(buffer, _) if buffer.window_state() == WindowState::Closing => NextLanded::Closing,
            Landed::Whole(..) => NextLanded::Whole,
            Landed::Part(_, range) => NextLanded::Part(range.len()),
        })
    }

    /// Takes the next bytes; call [`Self::took`] with the number of bytes used.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Landed> {
        self.landed.pop_front()
    }

    /// `bytes` of the result of [`Self::take`] were used; `rest` is left.
    #[inline]
    pub(crate) fn took(&mut self, bytes: usize, rest: Option<Landed>) {
        self.covered -= bytes;
        if let Some(rest) = rest {
            self.landed.push_front(rest);
        }
    }

    /// The address of the bytes `range` of an advertised buffer.
    pub(crate) fn part(&self, index: usize, range: &Range<usize>) -> Option<*const u8> {
        let advertised = self.advertised[index].as_ref()?;
        Some(advertised.buffer.range(range.clone()))
    }
}

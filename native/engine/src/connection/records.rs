//! Records between the user's bytes and the ring: a sealed stream.
//!
//! Each transfer is one record, so it is in the ring as a whole once its notice has come. A record is made in private
//! memory and then posted: where the peer can write, it could change bytes between cipher and tag. It is copied out of
//! the ring into the memory of the packets that it becomes, and checked and decrypted there, so nothing of it can change
//! behind the check.
//!
//! The locks here are held only with the lock of their direction, so no thread ever waits for them.

use std::ops::Range;

use inet_rdma_assembly::{Arrived, Assembly, Buffer, Gather, ReadLimit, Rest};
use inet_rdma_records::{
    Cipher, ControlOpener, ControlSealer, HEADER_BYTES, Header, Key, KeyRefused, OVERHEAD_BYTES, Opener,
    PLAIN_BYTES_MAX, Protection, RECORD_BYTES_MIN, Sealer, TAG_BYTES, Usage, UsedUp, Violation, filling,
};
use inet_rdma_stream::{CONTROL_BYTES, Offer, Transfer};
use parking_lot::Mutex;

use super::Connection;
use super::closed::Closed;
use super::core::{Writer, saturating_u32};
use super::notifier::Notifier;
use super::reading::{Guard, Packets};
use super::writing::Written;

/// Both directions of a sealed stream.
pub(super) struct Records<B> {
    cipher: Cipher,
    /// With the lock `sending` held.
    sealer: Mutex<Sealer>,
    /// With the lock `receiving` held.
    opened: Mutex<Opened<B>>,
}

/// The receiving half.
struct Opened<B> {
    opener: Opener,
    /// Bytes of a record, from an offset on, that reads have not taken.
    rest: Rest<B>,
}

/// What authenticates control messages; behind the lock `core`, as they are.
pub(super) struct Controls {
    sealer: ControlSealer,
    opener: ControlOpener,
}

/// How a stream is sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sealed {
    /// Of both directions.
    pub cipher: Cipher,
    /// What this side has sealed under its present key.
    pub usage: Usage,
    /// Generation of the oldest key that a record of the peer is taken under.
    pub receive_generation: u32,
}

impl<B> Records<B> {
    /// `ring_bytes`: the peer's, then this side's.
    pub(super) fn new(protection: &Protection, ring_bytes: [u32; 2]) -> Result<(Self, Controls), Violation> {
        let Protection {
            cipher,
            send_key,
            receive_key,
            renew_bytes,
        } = protection;
        let (sealer, control_sealer) = Sealer::new(*cipher, send_key, ring_bytes[0], *renew_bytes)?;
        let (opener, control_opener) = Opener::new(*cipher, receive_key, ring_bytes[1])?;
        let records = Records {
            cipher: *cipher,
            sealer: Mutex::new(sealer),
            opened: Mutex::new(Opened { opener, rest: None }),
        };
        let controls = Controls {
            sealer: control_sealer,
            opener: control_opener,
        };
        Ok((records, controls))
    }
}

impl Controls {
    pub(super) fn open(&mut self, message: &[u8; CONTROL_BYTES]) -> Result<[u8; CONTROL_BYTES], Violation> {
        let mut opened = *message;
        self.opener.open(&mut opened)?;
        Ok(opened)
    }

    pub(super) fn seal<N: Notifier>(&mut self, message: &mut [u8; CONTROL_BYTES], notifier: &N) -> Result<(), UsedUp> {
        self.sealer.seal(message)?;
        if self.sealer.take_due() {
            notifier.key_due();
        }
        Ok(())
    }
}

/// What fills the ring up to its end where no record fits.
const FILLING: [u8; RECORD_BYTES_MIN] = [0; RECORD_BYTES_MIN];

/// Writing.
impl<N: Notifier> Connection<N> {
    /// As `write_locked`: the bytes `range` of the gather, as far as there is room.
    #[inline(never)]
    pub(super) fn write_records(
        &self,
        records: &Records<N::Buffer>,
        core: &mut Guard<'_, N>,
        gather: &Gather<'_>,
        range: Range<usize>,
    ) -> Result<Written, Closed> {
        let mut sealer = records.sealer.lock();
        let mut at = range.start;
        let mut blocked = false;
        while at < range.end && !blocked {
            match self.write_record(&mut sealer, core, gather, at..range.end)? {
                Some(bytes) => at += bytes,
                None => blocked = true,
            }
        }
        if sealer.take_due() {
            self.notifier.key_due();
        }
        Ok(Written { at, blocked })
    }

    /// Writes one transfer; how many of the gather's bytes are in it. None: wait.
    fn write_record(
        &self,
        sealer: &mut Sealer,
        core: &mut Guard<'_, N>,
        gather: &Gather<'_>,
        range: Range<usize>,
    ) -> Result<Option<usize>, Closed> {
        for looked in [false, true] {
            if let Some(closed) = core.closed() {
                return Err(closed.clone());
            }
            if core.writer == Writer::Finished {
                return Err(Closed::Here);
            }
            let room = self.qp.write_room().min(core.stream.indirect_room() as usize);
            let to_end = core.stream.peer_ring_to_end() as usize;
            let least = to_end.min(RECORD_BYTES_MIN);
            core.transfer_min = saturating_u32(least);
            if room >= least {
                return self.post_record(sealer, core, gather, range, room);
            }
            if !looked {
                // Some room may have been made already.
                self.progress(core);
            }
        }
        Ok(None)
    }

    fn post_record(
        &self,
        sealer: &mut Sealer,
        core: &mut Guard<'_, N>,
        gather: &Gather<'_>,
        range: Range<usize>,
        room: usize,
    ) -> Result<Option<usize>, Closed> {
        sealer.check().map_err(|used_up| self.fail(core, used_up.into()))?;
        let filling = filling(core.stream.peer_ring_to_end() as usize);
        let wanted = filling.unwrap_or_else(|| {
            let plain_max = PLAIN_BYTES_MAX.min(room - OVERHEAD_BYTES);
            whole_packets(gather, &range, plain_max) + OVERHEAD_BYTES
        });
        let offer = Offer {
            indirect: saturating_u32(wanted),
            direct: 0,
        };
        let Some(Transfer { target, notice }) = core.stream.poll_transfer(offer) else {
            return Ok(None);
        };
        debug_assert_eq!(notice.bytes as usize, wanted);
        let plain = match filling {
            Some(bytes) => {
                sealer.fill(bytes);
                0
            }
            None => wanted - OVERHEAD_BYTES,
        };
        let sent = gather.packets_before(range.start)..gather.packets_before(range.start + plain);
        self.tally.packets_sent.add(core, sent.len());
        self.tally.largest_sent.raise(core, gather.largest_of(sent));
        let post = || {
            let bytes = match filling {
                Some(bytes) => &FILLING[..bytes],
                None if plain == gather.total() => sealer.seal(plain, gather.slices()),
                None => sealer.seal(plain, &gather.range(range.start, plain)),
            };
            self.qp.post_write(&[bytes], target, notice)
        };
        self.post_transfer(core, wanted, post)?;
        Ok(Some(plain))
    }
}

/// How much of `range` goes into one record of `max` bytes: as many whole packets as fit, so that the receiver need not join
/// them, else what fits of the first.
fn whole_packets(gather: &Gather<'_>, range: &Range<usize>, max: usize) -> usize {
    if range.len() <= max {
        return range.len();
    }
    match gather.packets_before(range.start + max) {
        0 => max,
        behind => match gather.ends()[behind - 1].saturating_sub(range.start) {
            0 => max,
            whole => whole,
        },
    }
}

/// Reading.
impl<N: Notifier> Connection<N> {
    /// As `read_ring`: takes the next record, or what is left of the last one.
    #[inline(never)]
    pub(super) fn read_record<'a>(
        &'a self,
        records: &Records<N::Buffer>,
        mut core: Guard<'a, N>,
        assembly: &mut Assembly<N::Buffer>,
        limit: ReadLimit,
        out: &mut Packets<N>,
    ) -> (Guard<'a, N>, Result<Option<usize>, Closed>) {
        let mut opened = records.opened.lock();
        if let Some((buffer, at)) = opened.rest.take() {
            let had = buffer.bytes() - at;
            let (mut core, pushed) = self.copying(core, had, || assembly.push_rest((buffer, at), limit, out));
            let taken = pushed.map(|rest| {
                opened.rest = rest;
                Some(had - left_bytes(&opened.rest))
            });
            core.holds_opened = opened.rest.is_some();
            return (core, taken.map_err(Closed::from));
        }
        if let Some(bytes) = filling(core.stream.ring_to_end() as usize) {
            let [arrived, _] = core.stream.ring_readable();
            let arrived = arrived.bytes as usize;
            if arrived == 0 {
                return (core, Ok(None));
            }
            if arrived < bytes {
                return (core, Err(Violation::RecordCut { bytes, arrived }.into()));
            }
            self.free_ring(&mut core, bytes);
            opened.opener.fill(bytes);
        }
        let [first, _] = core.stream.ring_readable();
        let contiguous = first.bytes as usize;
        let Some(arrived) = self.ring_arrived(&core, contiguous) else {
            return (core, Ok(None));
        };
        let header = match header(&arrived) {
            Ok(header) => header,
            Err(violation) => return (core, Err(violation.into())),
        };
        let Opened { opener, rest } = &mut *opened;
        let open = || {
            assembly.push_record(header.plain_bytes, limit, out, |memory| {
                arrived.copy_out(HEADER_BYTES, memory);
                let tag = arrived.read::<TAG_BYTES>(HEADER_BYTES + header.plain_bytes);
                opener.open(header, &tag, memory).map_err(Closed::from)
            })
        };
        let (mut core, pushed) = self.copying(core, header.plain_bytes, open);
        let taken = pushed.map(|left| {
            self.free_ring(&mut core, header.record_bytes());
            *rest = left;
            core.holds_opened = rest.is_some();
            Some(header.plain_bytes - left_bytes(rest))
        });
        (core, taken)
    }
}

/// The header of the record that `arrived` begins with.
fn header(arrived: &Arrived) -> Result<Header, Violation> {
    if arrived.len() < RECORD_BYTES_MIN {
        return Err(Violation::RecordCut {
            bytes: RECORD_BYTES_MIN,
            arrived: arrived.len(),
        });
    }
    Header::parse(arrived.read(0), arrived.len())
}

fn left_bytes<B: Buffer>(rest: &Rest<B>) -> usize {
    rest.as_ref().map_or(0, |(buffer, from)| buffer.bytes() - from)
}

/// Keys.
impl<N: Notifier> Connection<N> {
    /// How the stream is sealed; None: it is plain.
    pub fn sealed_by(&self) -> Option<Sealed> {
        let records = self.records.as_ref()?;
        let sending = self.sending.lock();
        let usage = records.sealer.lock().usage();
        drop(sending);
        let receiving = self.receiving.lock();
        let receive_generation = records.opened.lock().opener.generation();
        drop(receiving);
        Some(Sealed {
            cipher: records.cipher,
            usage,
            receive_generation,
        })
    }

    /// Takes the peer's key of the next generation: from here on the peer may use it. Records under the key before it are
    /// taken until the first one under the new key.
    pub fn install_receive_key(&self, generation: u32, key: &Key) -> Result<(), KeyRefused> {
        let records = self.records.as_ref().ok_or(KeyRefused::Plain)?;
        let _receiving = self.receiving.lock();
        let mut core = self.core.lock();
        let is_read = core.stream.ring_bytes_readable() == 0;
        let controls = core.controls.as_mut().ok_or(KeyRefused::Plain)?;
        let opener = &mut records.opened.lock().opener;
        if is_read {
            // Transfers and control messages arrive in the order in which they were posted.
            opener.drop_passed(&controls.opener);
        }
        opener.install(generation, key, &mut controls.opener)
    }

    /// Seals all that follows under this side's key of the next generation, which the peer must have installed. Call
    /// [`Self::tick`] behind it, so that the peer sees the change even if nothing else is sent.
    pub fn renew_send_key(&self, generation: u32, key: &Key) -> Result<(), KeyRefused> {
        let records = self.records.as_ref().ok_or(KeyRefused::Plain)?;
        let _sending = self.sending.lock();
        let mut core = self.core.lock();
        let controls = core.controls.as_mut().ok_or(KeyRefused::Plain)?;
        records.sealer.lock().renew(generation, key, &mut controls.sealer)
    }
}

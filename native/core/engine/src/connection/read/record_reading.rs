//! A read of a sealed connection: records.

use inet_rdma_assembly::{Arrived, Buffer, ReadLimit, Received, Rest};
use inet_rdma_records::{HEADER_BYTES, Header, Opener, RECORD_BYTES_MIN, TAG_BYTES, Violation, filling};

use super::ring_reading::{Guard, Incoming, ReadRing};
use crate::connection::closed::{Closed, Ended};
use crate::connection::state::{Connection, Core};

impl Connection {
    /// Takes the next record, or the bytes that are left of the last one.
    #[inline(never)]
    fn read_record<'a, B: Buffer>(
        &'a self,
        opener: &mut Opener,
        mut core: Guard<'a>,
        incoming: &mut Incoming<B>,
        limit: ReadLimit,
        out: &mut Vec<Received<B>>,
    ) -> (Guard<'a>, Result<Option<usize>, Closed>) {
        let Incoming { assembly, rest } = incoming;
        if let Some((buffer, at)) = rest.take() {
            let had = buffer.bytes() - at;
            let (mut core, pushed) = self.copying(core, had, || assembly.push_rest((buffer, at), limit, out));
            let taken = pushed.map(|left| {
                *rest = left;
                Some(had - left_bytes(rest))
            });
            note_rest(&mut core, rest);
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
            opener.fill(bytes);
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
        let open = || {
            assembly.push_record(header.plain_bytes, limit, out, |memory| {
                let sealed = arrived.copy_out(HEADER_BYTES, memory);
                let tag = arrived.read::<TAG_BYTES>(HEADER_BYTES + header.plain_bytes);
                opener.open(header, &tag, sealed).map_err(Closed::from)
            })
        };
        let (mut core, pushed) = self.copying(core, header.plain_bytes, open);
        let taken = pushed.map(|left| {
            self.free_ring(&mut core, header.record_bytes());
            *rest = left;
            note_rest(&mut core, rest);
            Some(header.plain_bytes - left_bytes(rest))
        });
        (core, taken)
    }
}

impl ReadRing for Opener {
    fn read<'a, B: Buffer>(
        &mut self,
        connection: &'a Connection,
        core: Guard<'a>,
        incoming: &mut Incoming<B>,
        limit: ReadLimit,
        out: &mut Vec<Received<B>>,
    ) -> (Guard<'a>, Result<Option<usize>, Ended>) {
        let (mut core, read) = connection.read_record(self, core, incoming, limit, out);
        let taken = read.map_err(|closed| connection.end(&mut core, closed));
        (core, taken)
    }
}

/// Notes whether a part of the record is left to be read.
fn note_rest<B: Buffer>(core: &mut Core, rest: &Rest<B>) {
    if let Some(state) = &mut core.records {
        state.holds_record = rest.is_some();
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

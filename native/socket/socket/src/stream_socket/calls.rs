//! Reads, writes and the end of a stream socket.

use inet_rdma_assembly::{Framing, Gather, ReadLimit, Received};

use super::notifier::StreamNotifier;
use super::shared::StreamSocket;
use inet_rdma_engine::connection::{Caller, Closed, For, ReadEnd, Taken, Woken, Written};

/// The reader.
impl<N: StreamNotifier> StreamSocket<N> {
    /// Reads up to `limit`, and adds complete packets to `out`.
    pub fn read(&self, limit: ReadLimit, out: &mut Vec<Received<N::Buffer>>) -> ReadEnd {
        let mut read_half = self.read_half.lock();
        let mut taken = Taken::default();
        let end = read_half.read_without_notify(limit, For::Caller, out, &mut taken);
        drop(read_half);
        self.notify_and_continue(taken.woken, Caller::User);
        end
    }

    /// As [`Self::read`]. Also returns the number of copied bytes. None: posted receives get all arriving bytes, or
    /// `limit` has an exact size though the framing gives the sizes of packets.
    pub fn read_unposted(&self, limit: ReadLimit, out: &mut Vec<Received<N::Buffer>>) -> Option<(ReadEnd, usize)> {
        let mut read_half = self.read_half.lock();
        if limit.exact > 0 && read_half.framing() != Framing::Raw || !self.demand.lock().posted.is_empty() {
            return None;
        }
        let had = out.len();
        let mut taken = Taken::default();
        let end = read_half.read_without_notify(limit, For::Caller, out, &mut taken);
        drop(read_half);
        self.notify_and_continue(taken.woken, Caller::User);
        Some((end, taken.copied(&out[had..])))
    }

    /// Arms the reader, which then waits for [`StreamNotifier::readable`]. Returns false if there may be something to
    /// read already.
    pub fn arm_reader(&self) -> bool {
        self.connection.arm_reader()
    }

    /// Changes the framing of the bytes to come, and the maximum size of a packet. A send that has begun keeps the
    /// earlier framing to its end. Returns false and changes nothing while receives are posted, in the middle of a
    /// packet, or of a raw read of a known size.
    #[must_use]
    pub fn reframe(&self, framing: Framing, packet_max_bytes: usize) -> bool {
        let mut read_half = self.read_half.lock();
        let (is_posted, is_active) = {
            let demand = self.demand.lock();
            (!demand.posted.is_empty(), demand.active.is_on())
        };
        let reframed = !is_posted && read_half.reframe(framing, packet_max_bytes);
        drop(read_half);
        if reframed {
            self.write_direction.lock().framing = framing;
        }
        if reframed && is_active {
            // The part of a line that was kept may be a message in the new framing.
            self.connection.call_back(Woken::READER);
        }
        reframed
    }
}

/// The writer of a stream that has only one.
impl<N: StreamNotifier> StreamSocket<N> {
    /// See [`inet_rdma_engine::connection::WriteHalf::write`].
    pub fn write(&self, gather: &Gather<'_>, at: usize, max: usize) -> Result<Written, Closed> {
        let (written, woken) = self.write_direction.lock().half.write_without_notify(gather, at, max);
        self.notify_and_continue(woken, Caller::User);
        written
    }

    /// Arms the writer, which then waits for [`StreamNotifier::writable`]. Returns false if there is room already.
    pub fn arm_writer(&self) -> bool {
        self.connection.arm_writer()
    }
}

/// The end.
impl<N: StreamNotifier> StreamSocket<N> {
    /// Ends the outgoing stream after the last transfer; the peer reads to its end. Posted sends are no longer sent.
    pub fn finish(&self) -> Result<(), Closed> {
        let (finished, woken) = self.write_direction.lock().half.finish_without_notify();
        self.notify_and_continue(woken, Caller::User);
        finished
    }

    /// Ends the stream. The peer reads the written bytes, then the end. Posted operations end with [`Closed::Here`],
    /// active mode without a notification.
    pub fn close(&self) {
        let read_half = self.read_half.lock();
        self.demand.lock().active.turn_off();
        drop(read_half);
        let _ended_already = self.finish();
        let mut woken = self.connection.close_without_notify(Closed::Here);
        let mut direction = self.write_direction.lock();
        direction.end(&self.notifier, &Closed::Here);
        woken.writer |= direction.take_wanted();
        drop(direction);
        let read_half = self.read_half.lock();
        self.end_receives(&Closed::Here);
        drop(read_half);
        self.notify_and_continue(woken, Caller::User);
    }
}

//! A connection that one thread uses: it sends and receives whole packets, and waits for them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use inet_rdma_assembly::{Framing, Gather, ReadLimit};
use inet_rdma_engine::connection::{Caller, Closed, Connection, Notifier, ReadEnd, ReadHalf, Woken, WriteHalf};
use inet_rdma_fabric::QueuePair;
use inet_rdma_socket::endpoint::{Attachment, Pollers};

use crate::failure::Failure;
use crate::frame::{Head, REASON_BYTES_MAX, length_of};
use crate::packet::Packet;
use crate::shape::Shape;

/// While nothing comes, the time between two looks whether the peer's host is still there.
pub const KEEPALIVE: Duration = Duration::from_secs(5);

/// Time for the reason of a failure to reach the peer, and for the peer to close.
const GOODBYE: Duration = Duration::from_secs(5);

/// Notified when the connection can be read or written. One channel for both: the user looks at both directions.
struct Notify(Sender<()>);

impl Notifier for Notify {
    fn wake(&self, _woken: Woken, _caller: Caller) {
        // Full: an earlier notification waits. Disconnected: the link is dropped.
        let _ = self.0.try_send(());
    }
}

pub struct Link {
    connection: Arc<Connection>,
    reader: ReadHalf<Vec<u8>>,
    writer: WriteHalf,
    notified: Receiver<()>,
    inbox: VecDeque<Packet>,
    why: String,
    _attachment: Attachment,
}

impl Link {
    /// A stream over a queue pair. `why`: the reason for its fabric, in words.
    pub fn new(pollers: &Arc<Pollers>, qp: Box<dyn QueuePair>, shape: Shape, why: String) -> Result<Self, Failure> {
        let (notify, notified) = bounded(1);
        let (parameters, settings) = (shape.parameters(), shape.settings());
        let notifier = Arc::new(Notify(notify));
        let (connection, reader, writer) =
            Connection::new(qp, &parameters, settings, Framing::Length4, None, notifier).map_err(Failure::Start)?;
        let attachment = pollers
            .attach(Arc::clone(&connection))
            .map_err(Failure::connect("starting the connection"))?;
        Ok(Self {
            connection,
            reader,
            writer,
            notified,
            inbox: VecDeque::new(),
            why,
            _attachment: attachment,
        })
    }

    /// Name of the fabric, and the reason for it.
    pub fn fabric(&self) -> (&'static str, &str) {
        (self.connection.queue_pair().fabric().name(), &self.why)
    }

    /// The share of all bytes, of both directions, that the writing side put into a landing buffer.
    pub fn percent_direct(&self) -> f64 {
        let counters = self.connection.statistics().stream;
        let direct = counters.direct_bytes_sent + counters.direct_bytes_received;
        let indirect = counters.indirect_bytes_sent + counters.indirect_bytes_received;
        100.0 * direct as f64 / (direct + indirect).max(1) as f64
    }

    /// Sends a packet without data.
    pub fn say(&mut self, head: Head, deadline: Option<Instant>) -> Result<(), Failure> {
        self.send(head, |_| {}, deadline)
    }

    /// Sends a packet whose data `add` puts into the gather. Err: the connection is lost, or the peer has given up.
    pub fn send<'a>(
        &mut self,
        head: Head,
        add: impl FnOnce(&mut Gather<'a>),
        deadline: Option<Instant>,
    ) -> Result<(), Failure> {
        let mut data = Gather::with_capacity(1, 1);
        add(&mut data);
        let (length, head) = (length_of(data.total()), head.emit());
        let mut gather = Gather::with_capacity(3, 1);
        gather.push(&length);
        gather.push(&head);
        data.slices().iter().for_each(|slice| gather.push(slice));
        gather.end_packet();
        let mut at = 0;
        while at < gather.total() {
            let written = match self.writer.write(&gather, at, usize::MAX) {
                Ok(written) => written,
                Err(closed) => return Err(self.last_words(closed)),
            };
            at = written.at;
            if written.blocked {
                self.listen()?;
                let armed = self.connection.arm_writer();
                // A peer that takes nothing may give up: receive its reason while this side waits for room.
                if armed && (!self.inbox.is_empty() || self.arm()) {
                    self.wait(deadline)?;
                }
            }
        }
        Ok(())
    }

    /// Receives packets that have arrived, about one buffer of them. Err: the peer has given up.
    pub fn listen(&mut self) -> Result<ReadEnd, Failure> {
        if !self.inbox.is_empty() {
            return Ok(ReadEnd::More);
        }
        let mut received = Vec::new();
        let limit = ReadLimit {
            packets: 1,
            ..ReadLimit::bytes(usize::MAX)
        };
        let end = self.reader.read(limit, &mut received);
        for received in received {
            for packet in Packet::parse(received)? {
                if packet.head == Head::Failed {
                    return Err(Failure::FarSide(packet.text()));
                }
                self.inbox.push_back(packet);
            }
        }
        Ok(end)
    }

    /// Fails if the peer has given up or is gone. Keeps other packets for [`Self::next`].
    pub fn listen_for_failure(&mut self) -> Result<(), Failure> {
        match self.listen()? {
            ReadEnd::Closed(closed) => Err(closed.into()),
            ReadEnd::More | ReadEnd::Empty => Ok(()),
        }
    }

    pub fn next(&mut self, deadline: Option<Instant>) -> Result<Packet, Failure> {
        loop {
            let end = self.listen()?;
            if let Some(packet) = self.inbox.pop_front() {
                return Ok(packet);
            }
            match end {
                ReadEnd::More => {}
                ReadEnd::Closed(closed) => return Err(closed.into()),
                ReadEnd::Empty => {
                    if self.arm() {
                        self.wait(deadline)?;
                    }
                }
            }
        }
    }

    /// Asks for a notification when there is something to read or room to write. False: there is already.
    pub fn arm(&self) -> bool {
        self.connection.arm_reader()
    }

    /// Gets the notifications that [`Self::arm`] asks for.
    pub fn notified(&self) -> &Receiver<()> {
        &self.notified
    }

    /// Makes the fabric look whether the peer's host is still there. If it is not, the connection ends some time later.
    pub fn keep_alive(&self) -> Result<(), Failure> {
        Ok(self.connection.tick()?)
    }

    fn wait(&self, deadline: Option<Instant>) -> Result<(), Failure> {
        let left = deadline.map_or(KEEPALIVE, |end| {
            end.saturating_duration_since(Instant::now()).min(KEEPALIVE)
        });
        if left.is_zero() {
            return Err(Failure::Peer("does not answer".into()));
        }
        match self.notified.recv_timeout(left) {
            Ok(()) => Ok(()),
            // If the connection has ended, the next read returns the reason.
            Err(_) => self.keep_alive().or(Ok(())),
        }
    }

    /// The reason for the end: the peer's own, if it sent one before the connection ended.
    fn last_words(&mut self, closed: Closed) -> Failure {
        loop {
            self.inbox.clear();
            match self.listen() {
                Err(reason @ Failure::FarSide(_)) => return reason,
                Ok(ReadEnd::More) => {}
                Ok(ReadEnd::Empty | ReadEnd::Closed(_)) | Err(_) => return closed.into(),
            }
        }
    }

    /// Gives up: sends the reason to the peer, if it still reads, and ends the connection.
    pub fn give_up(mut self, reason: &str) {
        let deadline = Instant::now() + GOODBYE;
        let mut bytes = reason.len().min(REASON_BYTES_MAX);
        while !reason.is_char_boundary(bytes) {
            bytes -= 1;
        }
        let text = &reason.as_bytes()[..bytes];
        // While the inbox has packets `listen` receives nothing: drop them, so that `send` does not wait for ever.
        self.inbox.clear();
        if self
            .send(Head::Failed, |gather| gather.push(text), Some(deadline))
            .is_ok()
        {
            self.part(deadline);
        }
    }

    /// Waits until the peer has ended the connection, and ends it on this side.
    pub fn take_leave(mut self) {
        self.part(Instant::now() + GOODBYE);
    }

    fn part(&mut self, deadline: Instant) {
        let _ended_already = self.writer.finish();
        // Drop data that is still on its way. `next` returns the end as an error.
        while self.next(Some(deadline)).is_ok() && Instant::now() < deadline {}
    }
}

/// Ends the connection in order.
impl Drop for Link {
    fn drop(&mut self) {
        self.writer.close();
    }
}

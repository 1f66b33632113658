//! A connection in the hands of one thread: whole packets out and in, and waiting for them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use inet_rdma_assembly::{Framing, Gather, ReadLimit};
use inet_rdma_engine::connection::{Caller, Closed, Connection, Notifier, ReadEnd, ReadHalf, Woken, WriteHalf};
use inet_rdma_engine::endpoint::{Attachment, Engine};
use inet_rdma_fabric::{FabricError, QueuePair};

use crate::failure::Failure;
use crate::frame::{Head, REASON_BYTES_MAX, length_of};
use crate::packet::Packet;
use crate::shape::Shape;

/// While nothing comes, so often it is found out whether the peer's host is still there.
pub const KEEPALIVE: Duration = Duration::from_secs(5);

/// How long the last words to a peer and its goodbye may take.
const GOODBYE: Duration = Duration::from_secs(5);

/// Notified when the connection can go on, in whichever direction: its user looks at both.
struct Notify(Sender<()>);

impl Notifier for Notify {
    fn wake(&self, _woken: Woken, _caller: Caller) {
        // Full: an earlier notification waits. Disconnected: the link is dropped.
        match self.0.try_send(()) {
            Ok(()) | Err(TrySendError::Full(()) | TrySendError::Disconnected(())) => {}
        }
    }
}

/// One end of a connection.
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
    /// A stream over a queue pair. `why` says why it is over this fabric.
    pub fn new(engine: &Arc<Engine>, qp: Box<dyn QueuePair>, shape: Shape, why: String) -> Result<Self, Failure> {
        let failed = |error: FabricError| Failure::Connect {
            doing: "starting the connection".into(),
            error,
        };
        let (notify, notified) = bounded(1);
        let (parameters, settings) = (shape.parameters(), shape.settings());
        let notifier = Arc::new(Notify(notify));
        let (connection, reader, writer) =
            Connection::new(qp, &parameters, settings, Framing::Length4, None, notifier).map_err(Failure::Start)?;
        let attachment = engine.attach(Arc::clone(&connection)).map_err(failed)?;
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

    /// Name of the fabric, and why it is that.
    pub fn fabric(&self) -> (&'static str, &str) {
        (self.connection.queue_pair().fabric().name(), &self.why)
    }

    /// Of all bytes that went in either direction, the share that was written right where it was read.
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

    /// Sends a packet whose data `add` puts into the gather. Ends early where the peer has given up.
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
                // A peer that gives up must be heard while it takes nothing.
                if armed && (!self.inbox.is_empty() || self.arm()) {
                    self.wait(deadline)?;
                }
            }
        }
        Ok(())
    }

    /// Takes in what has arrived, up to one buffer. Err: the peer has given up.
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

    /// Notices a peer that has given up or gone. What else has arrived is kept for [`Self::next`].
    pub fn listen_for_failure(&mut self) -> Result<(), Failure> {
        match self.listen()? {
            ReadEnd::Closed(closed) => Err(closed.into()),
            ReadEnd::More | ReadEnd::Empty => Ok(()),
        }
    }

    /// The next packet.
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

    /// Asks for a notification when there is something to read or to write. False: there is already.
    pub fn arm(&self) -> bool {
        self.connection.arm_reader()
    }

    /// See [`Self::arm`].
    pub fn notified(&self) -> &Receiver<()> {
        &self.notified
    }

    /// Finds out, some time, whether the peer's host is still there.
    pub fn keep_alive(&self) -> Result<(), Failure> {
        self.connection.tick()?;
        Ok(())
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
            // A connection that has ended says so at the next look.
            Err(_) => self.keep_alive().or(Ok(())),
        }
    }

    /// A peer that gave up may have said why before the connection ended.
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

    /// Gives up: tells the peer why, as far as it listens, and ends the connection.
    pub fn give_up(mut self, reason: &str) {
        let deadline = Instant::now() + GOODBYE;
        let mut bytes = reason.len().min(REASON_BYTES_MAX);
        while !reason.is_char_boundary(bytes) {
            bytes -= 1;
        }
        let text = &reason.as_bytes()[..bytes];
        // What is under way already must not keep the reason from being said.
        self.inbox.clear();
        if self
            .send(Head::Failed, |gather| gather.push(text), Some(deadline))
            .is_ok()
        {
            self.part(deadline);
        }
    }

    /// Ends the connection in order, once the peer has ended it.
    pub fn take_leave(mut self) {
        self.part(Instant::now() + GOODBYE);
    }

    /// Ends the connection in order; nothing more is expected of the peer.
    pub fn close(mut self) {
        self.writer.close();
    }

    fn part(&mut self, deadline: Instant) {
        let _ended_already = self.writer.finish();
        // Data may still be on its way, and is dropped. The end comes as an error.
        while self.next(Some(deadline)).is_ok() && Instant::now() < deadline {}
        self.writer.close();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.writer.close();
    }
}

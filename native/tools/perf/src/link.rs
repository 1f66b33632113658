//! A connection that one thread uses, and the ways in which that thread waits.

use std::sync::Arc;
use std::thread::Thread;
use std::time::{Duration, Instant};

use inet_rdma_assembly::{Framing, Gather, ReadLimit, Received};
use inet_rdma_engine::connection::{Caller, Connection, Notifier, ReadEnd, ReadHalf, Woken, WriteHalf};
use inet_rdma_fabric::QueuePair;
use inet_rdma_socket::endpoint::{Attachment, Pollers};

use crate::buffer::Recycled;
use crate::failure::Failure;
use crate::order::{Order, Polling, Role};

/// A side that waits this long reports the other side as stuck.
const LATE: Duration = Duration::from_secs(30);

/// Fruitless looks between two looks at the clock.
const LOOKS_PER_CLOCK: u32 = 1 << 16;

/// Looks without a lock between two reads of a side that never sleeps.
const LOOKS_PER_READ: u32 = 64;

/// A writer's looks between two offers of the processor to other threads.
const LOOKS_PER_YIELD: u32 = 8;

/// Approximate bound of one read in bytes: the default of the option `call_bytes`.
const READ_BYTES: usize = 131_072;

/// Unparks the thread that made it, also when a look of that thread finds room or packets for its other direction.
pub struct Unpark(Thread);

impl Notifier for Unpark {
    fn wake(&self, _woken: Woken, _caller: Caller) {
        self.0.unpark();
    }
}

#[derive(Clone, Copy)]
enum Waiting {
    Busy,
    /// Looks by itself for this time, then sleeps.
    Look(Duration),
    Sleep,
}

/// The direction for which a thread waits.
#[derive(Clone, Copy)]
enum For {
    Reading,
    Writing,
}

/// One end of a connection, which belongs to the thread that made it.
pub struct Link {
    connection: Arc<Connection>,
    reader: ReadHalf<Recycled>,
    writer: WriteHalf,
    waiting: Waiting,
    /// Looks without a result since the last one with a result.
    looks: u32,
    /// Time of the first look at the clock since the last result; None: the clock was not read since.
    quiet_since: Option<Instant>,
    _attachment: Attachment,
}

impl Link {
    /// A stream over a queue pair.
    pub fn new(pollers: &Arc<Pollers>, qp: Box<dyn QueuePair>, order: &Order, role: Role) -> Result<Self, Failure> {
        let failed = Failure::fabric("starting the connection");
        let (parameters, settings) = (order.parameters(), order.settings());
        let user = Arc::new(Unpark(std::thread::current()));
        let protection = order.protection(role);
        let (connection, reader, writer) =
            Connection::new(qp, &parameters, settings, Framing::Length4, protection.as_ref(), user)
                .map_err(Failure::Start)?;
        let waiting = match order.polling {
            Polling::Busy => Waiting::Busy,
            Polling::Reader => Waiting::Look(order.spin()),
            Polling::Adaptive | Polling::Event => Waiting::Sleep,
        };
        if !matches!(waiting, Waiting::Sleep) {
            connection.set_self_polling();
        }
        let attachment = pollers.attach(Arc::clone(&connection)).map_err(failed)?;
        Ok(Self {
            connection,
            reader,
            writer,
            waiting,
            looks: 0,
            quiet_since: None,
            _attachment: attachment,
        })
    }

    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Writes from byte `at` on, as far as the peer has room; waits for room for the first byte. Returns the next `at`.
    pub fn write_some(&mut self, gather: &Gather<'_>, at: usize) -> Result<usize, Failure> {
        loop {
            let written = self.writer.write(gather, at, usize::MAX)?;
            if written.at > at {
                self.moved();
                return Ok(written.at);
            }
            self.wait(For::Writing)?;
        }
    }

    pub fn write(&mut self, gather: &Gather<'_>) -> Result<(), Failure> {
        let mut at = 0;
        while at < gather.total() {
            at = self.write_some(gather, at)?;
        }
        Ok(())
    }

    /// Waits until something has arrived, and adds it to `out`.
    pub fn read(&mut self, out: &mut Vec<Received<Recycled>>) -> Result<(), Failure> {
        loop {
            let end = self.reader.read(ReadLimit::bytes(READ_BYTES), out);
            if !out.is_empty() {
                self.moved();
                return Ok(());
            }
            match end {
                ReadEnd::More => {}
                ReadEnd::Closed(closed) => return Err(closed.into()),
                ReadEnd::Empty => self.wait(For::Reading)?,
            }
        }
    }

    fn moved(&mut self) {
        self.looks = 0;
        self.quiet_since = None;
    }

    /// Waits until there may be something to read or room to write. May return early.
    fn wait(&mut self, what: For) -> Result<(), Failure> {
        match self.waiting {
            Waiting::Busy => {
                if let For::Reading = what {
                    (0..LOOKS_PER_READ).any(|_| !self.connection.is_quiet());
                }
                // The read or write that found nothing was a look.
                self.looks += 1;
                if self.looks % LOOKS_PER_CLOCK == 0 {
                    self.check_late()?;
                }
                return Ok(());
            }
            Waiting::Look(duration) => {
                if let For::Reading = what {
                    if self.connection.spin(duration) {
                        return Ok(());
                    }
                } else if self.writer_looks_on(duration) {
                    return Ok(());
                }
            }
            Waiting::Sleep => {}
        }
        let armed = match what {
            For::Reading => self.connection.arm_reader(),
            // A writer that reads nothing must not promise to poll: with that promise the connection is never armed.
            For::Writing => self.connection.arm_writer() && self.rest_from_reading(),
        };
        if armed {
            self.check_late()?;
            std::thread::park_timeout(LATE);
        }
        Ok(())
    }

    /// True if the writer should try again before it sleeps. Yields the processor now and then.
    fn writer_looks_on(&mut self, duration: Duration) -> bool {
        std::hint::spin_loop();
        self.looks += 1;
        if self.looks % LOOKS_PER_YIELD != 0 {
            return true;
        }
        std::thread::yield_now();
        self.quiet_since.get_or_insert_with(Instant::now).elapsed() < duration
    }

    /// Takes back the promise to look, so that the peer wakes this side. False: something has come already.
    fn rest_from_reading(&self) -> bool {
        if let Waiting::Sleep = self.waiting {
            return true;
        }
        self.connection.arm_reader()
    }

    fn check_late(&mut self) -> Result<(), Failure> {
        let since = *self.quiet_since.get_or_insert_with(Instant::now);
        if since.elapsed() > LATE {
            return Err(Failure::Late(LATE.as_secs()));
        }
        Ok(())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.writer.close();
    }
}

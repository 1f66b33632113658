//! Users of connections that polling threads look after: each waits on a condition until it is woken.

#![allow(dead_code, reason = "no test uses all of it")]

use std::sync::Arc;
use std::time::Instant;

use inet_rdma_engine::assembly::{ReadLimit, Received};
use inet_rdma_engine::connection::{Closed, ReadEnd, Wakes};
use inet_rdma_engine::endpoint::{Attachment, Engine, Waker};
use inet_rdma_engine::gather::Gather;
use parking_lot::{Condvar, Mutex};

use crate::pair::{BOUND, Conn};

/// Where wakes go.
#[derive(Clone, Default)]
pub struct Signal(Arc<Inbox>);

#[derive(Default)]
struct Inbox {
    wakes: Mutex<Wakes>,
    changed: Condvar,
}

impl Waker for Signal {
    fn wake(&self, wakes: Wakes) {
        let mut now = self.0.wakes.lock();
        now.reader |= wakes.reader;
        now.writer |= wakes.writer;
        self.0.changed.notify_all();
    }
}

impl Signal {
    fn wait(&self, who: impl Fn(&mut Wakes) -> &mut bool, what: &str) {
        let end = Instant::now() + BOUND;
        let mut wakes = self.0.wakes.lock();
        while !std::mem::take(who(&mut wakes)) {
            let late = self.0.changed.wait_until(&mut wakes, end).timed_out();
            assert!(!late, "nobody woke the {what}");
        }
    }
}

/// A connection in a polling thread's hands.
pub struct Attached {
    pub connection: Arc<Conn>,
    pub signal: Signal,
    pub attachment: Attachment,
}

impl Attached {
    pub fn new(engine: &Arc<Engine>, connection: Arc<Conn>) -> Self {
        let signal = Signal::default();
        let attachment = engine
            .attach(Arc::clone(&connection), Box::new(signal.clone()))
            .expect("an attachment");
        Self {
            connection,
            signal,
            attachment,
        }
    }

    /// Writes all of it.
    pub fn write(&self, gather: &Gather<'_>, max: usize) -> Result<(), Closed> {
        let mut at = 0;
        while at < gather.total() {
            let written = self.connection.write(gather, at, max)?;
            at = written.at;
            self.signal.wake(written.wakes);
            if written.blocked {
                let (armed, wakes) = self.connection.arm_writer();
                self.signal.wake(wakes);
                if armed {
                    self.signal.wait(|wakes| &mut wakes.writer, "writer");
                }
            }
        }
        Ok(())
    }

    /// The next packets; Err: the end.
    pub fn read(&self, limit: ReadLimit) -> Result<Vec<Received<Vec<u8>>>, Closed> {
        loop {
            let mut out = Vec::new();
            let (end, wakes) = self.connection.read(limit, &mut out);
            self.signal.wake(wakes);
            if !out.is_empty() {
                return Ok(out);
            }
            match end {
                ReadEnd::More => {}
                ReadEnd::Closed(closed) => return Err(closed),
                ReadEnd::Empty => {
                    let (armed, wakes) = self.connection.arm();
                    self.signal.wake(wakes);
                    if armed {
                        self.signal.wait(|wakes| &mut wakes.reader, "reader");
                    }
                }
            }
        }
    }

    /// Ends the outgoing direction.
    pub fn finish(&self) -> Result<(), Closed> {
        self.signal.wake(self.connection.finish()?);
        Ok(())
    }
}

//! The thread that ends connections: one for the process, started with the first connection that ends.
//!
//! Disconnecting throws out what was posted and is not sent yet, so it has to wait for that; and taking a queue pair apart
//! asks the kernel, which may take its time. A scheduler or a polling thread must do neither.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use inet_rdma_stream::RemoteAddress;

use super::parts::Parts;

/// How long to wait until all is sent, and again until the peer has disconnected, too.
const PATIENCE: Duration = Duration::from_secs(2);

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(1);

enum Order {
    /// Disconnect when all is sent.
    Disconnect(Arc<Parts>),
    /// Destroy it after the peer's disconnect.
    Bury(Arc<Parts>),
    /// Destroy parts that were never connected, now.
    Abandon(Box<Parts>),
}

static REAPER: LazyLock<Option<Sender<Order>>> = LazyLock::new(|| {
    let (sender, receiver) = channel();
    let _blocked = crate::signals::block_all();
    let thread = std::thread::Builder::new().name("inet_rdma/reaper".to_owned());
    thread.spawn(move || run(&receiver)).ok().map(|_| sender)
});

/// Disconnects as soon as all that was posted is sent. `target` is somewhere in the peer's memory.
pub(super) fn disconnect(parts: &Arc<Parts>, target: RemoteAddress) {
    parts.with_sending(|sending, outlet| sending.ask_for_the_end(outlet, target));
    match &*REAPER {
        Some(reaper) if reaper.send(Order::Disconnect(Arc::clone(parts))).is_ok() => {}
        _ => goodbye(parts),
    }
}

/// Takes a disconnected connection apart, later.
pub(super) fn bury(parts: Arc<Parts>) {
    if let Some(reaper) = &*REAPER {
        // Without the thread it is dropped here and now.
        let _ = reaper.send(Order::Bury(parts));
    }
}

/// Takes apart, at once, a connection that no peer has confirmed.
pub(super) fn abandon(parts: Parts) {
    if let Some(reaper) = &*REAPER {
        // Without the thread it is dropped here and now.
        let _ = reaper.send(Order::Abandon(Box::new(parts)));
    }
}

fn goodbye(parts: &Parts) {
    // Fails only when the peer was faster.
    let _ = parts.id().disconnect();
}

struct Waiting {
    parts: Arc<Parts>,
    until: Instant,
}

impl Waiting {
    fn new(parts: Arc<Parts>) -> Waiting {
        Waiting {
            parts,
            until: Instant::now() + PATIENCE,
        }
    }
}

fn run(orders: &Receiver<Order>) {
    let mut sending: Vec<Waiting> = Vec::new();
    let mut parting: Vec<Waiting> = Vec::new();
    loop {
        let next = if sending.is_empty() && parting.is_empty() {
            orders.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            orders.recv_timeout(PAUSE)
        };
        match next {
            Ok(Order::Disconnect(parts)) => sending.push(Waiting::new(parts)),
            Ok(Order::Bury(parts)) => parting.push(Waiting::new(parts)),
            Ok(Order::Abandon(parts)) => drop(parts),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let now = Instant::now();
        sending.retain(|waiting| {
            let parts = &waiting.parts;
            parts.life.listen(parts.id());
            let is_over = parts.life.fate().end().is_some()
                || now >= waiting.until
                || parts.with_sending(|sending, outlet| sending.is_over(outlet));
            if is_over {
                goodbye(parts);
            }
            !is_over
        });
        // A connection that still has something to send is held by `sending`, too.
        parting.retain(|waiting| {
            let parts = &waiting.parts;
            parts.life.listen(parts.id());
            let answered = parts.life.fate().end().is_some();
            let is_sending = Arc::strong_count(parts) > 1;
            is_sending || !(answered || now >= waiting.until)
        });
    }
}

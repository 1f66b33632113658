//! Work requests that wait for a place in the send queue.

use std::collections::VecDeque;
use std::sync::Arc;

use inet_rdma_fabric::FabricError;
use inet_rdma_stream::CONTROL_BYTES;

use crate::windows::Cell;

/// A work request that must be posted in the order of requests.
pub(crate) enum Request {
    Control([u8; CONTROL_BYTES]),
    /// Binds a window with this key.
    Bind(Arc<Cell>, u32),
    /// Invalidates the window with this key.
    Invalidate {
        cell: Arc<Cell>,
        key: u32,
        /// A caller waits for its completion.
        awaited: bool,
    },
}

/// First in, first out. The bound of controls is the peer's number of receive slots: each uses one of the peer's
/// credits until it has arrived, so a side that keeps to its credits never has more controls under way.
///
/// Requests of windows are bounded by arrivals. A buffer that is offered to the stream makes at most two requests, an
/// invalidation and a bind, whether an advertisement follows or not; a transfer that arrives in it makes one. A buffer
/// is offered again only after an arrival. While the list does not shrink no credit goes back to the peer, so at most
/// as many transfers arrive as this side has receive slots. So at most 2 * buffers * (slots + 1) + slots requests wait.
#[derive(Default)]
pub(crate) struct Backlog {
    waiting: VecDeque<Request>,
    controls: usize,
    max: usize,
}

impl Backlog {
    /// A list with a place for each of the peer's receive slots. The default has no place: that number is not known
    /// yet.
    pub(crate) fn new(peer_slots: u16) -> Backlog {
        Backlog {
            waiting: VecDeque::new(),
            controls: 0,
            max: peer_slots.into(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether a request of one of these windows waits.
    pub(crate) fn has_window(&self, is_one: impl Fn(&Arc<Cell>) -> bool) -> bool {
        self.waiting.iter().any(|request| match request {
            Request::Control(_) => false,
            Request::Bind(cell, _) | Request::Invalidate { cell, .. } => is_one(cell),
        })
    }

    /// Keeps a request; [`FabricError::QueueFull`] for a control without a credit.
    pub(crate) fn push(&mut self, request: Request) -> Result<(), FabricError> {
        if let Request::Control(_) = request {
            if self.controls >= self.max {
                return Err(FabricError::QueueFull);
            }
            self.controls += 1;
        }
        self.waiting.push_back(request);
        Ok(())
    }

    pub(crate) fn pop(&mut self) -> Option<Request> {
        let request = self.waiting.pop_front()?;
        if let Request::Control(_) = request {
            self.controls -= 1;
        }
        Some(request)
    }
}

#[cfg(test)]
mod tests {
    use inet_rdma_stream::{Limits, Mode, Receive, ReceiveId, RemoteAddress, Stream};

    use super::{Backlog, Request};

    #[test]
    fn all_controls_that_credits_allow_find_a_place() {
        let limits = |receive_slots| Limits {
            ring_bytes: 4_096,
            receive_slots,
            adverts: 100,
        };
        let (local, remote) = (limits(16), limits(64));
        let ring = RemoteAddress { key: 1, address: 0 };
        let mut stream = Stream::new(Mode::Dynamic, local, remote, ring).expect("good limits");
        for id in 0..100 {
            stream.post_receive(Receive {
                id: ReceiveId(id),
                target: RemoteAddress {
                    key: 1,
                    address: id << 12,
                },
                bytes: 4_096,
                fill: false,
            });
        }
        stream.tick();
        let mut backlog = Backlog::new(remote.receive_slots);
        // The worst case: a device that sends nothing.
        let mut controls = 0;
        while let Some(control) = stream.poll_control() {
            backlog
                .push(Request::Control(control.emit()))
                .expect("a place for each control that has a credit");
            controls += 1;
        }
        assert!(controls > usize::from(local.receive_slots), "a burst of {controls}");
        stream.finish();
        let finish = stream.poll_control().expect("the end has a credit of its own");
        assert!(backlog.push(Request::Control(finish.emit())).is_ok());
    }
}

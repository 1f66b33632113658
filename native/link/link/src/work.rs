//! What the caller has to do with its sockets and queue pairs.

use inet_rdma_paths::Path;

/// One piece of work for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Work {
    /// Reset the TCP connection and close it. To the peer an end in order would mean that this process has ended.
    ResetTcp,
    /// Reset the TCP connection that an attempt has given up: the attempt is over.
    DropSuperseded,
    /// Close the queue pair.
    CloseQueue,
    /// Keep the queue pair, unread and unwritten. The peer takes its close for the end of the link until it has
    /// resumed, too.
    RetireQueue,
    /// Close the queue pair of [`Work::RetireQueue`]: the peer has resumed without it.
    CloseRetired,
    /// Find how much of this window the node's memory allows, at least the window at first, then call
    /// [`Link::handle_window`](crate::Link::handle_window).
    ResizeWindow(usize),
    /// Send a sign of life over the queue pair.
    TickQueue,
    /// Ask the device of the queue pair's peer for an answer behind all writes.
    Ask,
    /// Find what the peer's host owes over this path, then call [`Link::handle_look`](crate::Link::handle_look).
    Look(Path),
    /// Write the session's bytes to this path, then call [`Link::handle_tcp_written`](crate::Link::handle_tcp_written)
    /// or [`Link::handle_queue_written`](crate::Link::handle_queue_written).
    Transmit(Path),
    /// The VM keeps its packets from now on, or no longer.
    SetBusy(bool),
}

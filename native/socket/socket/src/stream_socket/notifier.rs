//! Notifications of a stream socket to its user.

use inet_rdma_assembly::{Buffer, Gather, Received};

use inet_rdma_engine::connection::Closed;

/// The user of a stream socket. The socket calls it on the thread that has found the reason: one that has called the
/// socket, or a polling thread.
///
/// No method may block, and none may call the socket. [`Self::readable`] and [`Self::writable`] are called with no lock
/// held. The others are called with the lock of their direction held, which keeps their order: completions in the order
/// of posting, messages in the order of the stream, `passive` before any message of the next mode.
pub trait StreamNotifier: Send + Sync + 'static {
    /// The buffers into which packets are copied.
    type Buffer: Buffer + Send;
    /// Names a posted operation, or active mode, to the user.
    type Token: Parcel;
    /// Names a writer, as several take turns.
    type Writer: Copy + Eq + Send;

    /// There may be something to read, or the end: a reader that has called [`super::StreamSocket::arm_reader`] reads
    /// again.
    fn readable(&self);
    /// There may be room to write, or the end: a writer that has called [`super::StreamSocket::arm_writer_in_turn`]
    /// writes again.
    fn writable(&self);
    /// See [`inet_rdma_engine::connection::Notifier::over`].
    fn over(&self) {}
    /// A posted send has ended: all its bytes are sent, or the connection has ended first.
    fn sent(&self, token: Self::Token, result: Result<usize, Closed>);
    /// A posted receive has ended: it has these bytes, or the connection has ended first.
    fn received(&self, token: Self::Token, result: Result<Received<Self::Buffer>, Closed>);
    /// Active mode: this message has arrived.
    fn message(&self, token: &Self::Token, received: Received<Self::Buffer>);
    /// Active mode has used up its count.
    fn passive(&self, token: &Self::Token);
    /// Active mode has found the end.
    fn ended(&self, token: &Self::Token, closed: &Closed);
}

/// The bytes of a posted send, in pieces that do not move.
pub trait Parcel: Send {
    /// Number of bytes.
    fn bytes(&self) -> usize;
    /// Adds slices from byte `from` on until `gather` has `max` bytes, or all.
    fn gather<'a>(&'a self, from: usize, gather: &mut Gather<'a>, max: usize);
    /// Notes that bytes before `to` are no longer needed.
    fn advance(&mut self, to: usize);
}

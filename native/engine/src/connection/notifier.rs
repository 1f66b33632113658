//! What a connection tells its user.

use std::convert::Infallible;

use inet_rdma_assembly::{Buffer, Gather, Received};

use super::closed::Closed;

/// The user of a connection. The connection calls it from the thread on which something has come about: one that called the
/// connection, or a polling thread.
///
/// No method may block, and none may call the connection. [`Self::readable`] and [`Self::writable`] are called with no lock
/// held. The others are called with the lock of their direction held, and that is what keeps their order: completions in
/// the order of posting, messages in the order of the stream, `passive` before any message of the next mode.
pub trait Notifier: Send + Sync + 'static {
    /// What packets are copied into.
    type Buffer: Buffer + Send;
    /// Names a posted operation, or active mode, to the user.
    type Token: Parcel;
    /// Names a writer, where several take turns.
    type Writer: Copy + Eq + Send;

    /// There may be something to read, or the end: a reader that has called [`super::Connection::arm`] reads again.
    fn readable(&self);
    /// There may be room to write, or the end: a writer that has called [`super::Connection::arm_writer`] writes again.
    fn writable(&self);
    /// A sealed connection's key nears its limit: [`super::Connection::renew_send_key`] with the next one. Told once for each
    /// key, with locks held.
    fn key_due(&self) {}
    /// The connection is over, for this side or the peer. Told once, with locks held.
    fn over(&self) {}
    /// A posted send is over: all of its bytes are on their way, or the connection ended first.
    fn sent(&self, _token: Self::Token, _result: Result<usize, Closed>) {}
    /// A posted receive is over: it has these bytes, or the connection ended first.
    fn received(&self, _token: Self::Token, _result: Result<Received<Self::Buffer>, Closed>) {}
    /// Active mode: this message has arrived.
    fn message(&self, _token: &Self::Token, _received: Received<Self::Buffer>) {}
    /// Active mode has used up its count.
    fn passive(&self, _token: &Self::Token) {}
    /// Active mode has found the end.
    fn ended(&self, _token: &Self::Token, _closed: &Closed) {}
}

/// The bytes of a posted send, in pieces that stay where they are. The defaults are those of a token that sends nothing.
pub trait Parcel: Send {
    /// All its bytes.
    fn bytes(&self) -> usize {
        0
    }
    /// Adds slices from byte `from` on until `gather` has `max` bytes, or all.
    fn gather<'a>(&'a self, _from: usize, _gather: &mut Gather<'a>, _max: usize) {}
    /// Bytes before this one are not asked for any more.
    fn advance(&mut self, _to: usize) {}
}

/// Of a user that posts nothing.
impl Parcel for Infallible {}

/// A user that looks by itself, and is told nothing.
impl Notifier for () {
    type Buffer = Vec<u8>;
    type Token = Infallible;
    type Writer = ();

    fn readable(&self) {}
    fn writable(&self) {}
}

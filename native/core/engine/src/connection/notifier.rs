//! Notifications of a connection to its user.

/// The parties, reader and writer, that can go on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Woken {
    /// There is something to read, or the end.
    pub reader: bool,
    /// There is room to write, or the end.
    pub writer: bool,
}

impl Woken {
    /// The reader alone.
    pub const READER: Self = Self {
        reader: true,
        writer: false,
    };
    /// The writer alone.
    pub const WRITER: Self = Self {
        reader: false,
        writer: true,
    };

    /// True if no party can go on.
    #[inline]
    pub fn is_empty(self) -> bool {
        !self.reader && !self.writer
    }

    /// Adds the parties of another result.
    #[inline]
    pub fn merge(&mut self, other: Self) {
        self.reader |= other.reader;
        self.writer |= other.writer;
    }
}

/// The thread that has called the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    /// A thread of the user, or the thread that gets memory for connections.
    User,
    /// The connection's polling thread.
    PollingThread,
}

/// The user of a connection. The connection calls it on the thread that has found the reason: one that has called the
/// connection, or a polling thread. No method may block.
pub trait Notifier: Send + Sync + 'static {
    /// There may be something to read, room to write, or the end: a reader that has called
    /// [`super::Connection::arm_reader`] reads again, a writer that has called [`super::Connection::arm_writer`] writes
    /// again. Called with no lock held.
    fn wake(&self, woken: Woken, caller: Caller);
    /// The connection is over, for this side or the peer. Told once, with locks held: it must not call the connection.
    fn over(&self) {}
}

/// The thread that polls a connection, as the connection knows it.
pub trait PollingThread: Send + Sync + 'static {
    /// Makes the thread look at the connection soon: it calls [`super::Connection::attend`]. Must not block, nor call
    /// the connection, as it is called with locks held.
    fn kick(&self);
}

/// A user that looks by itself, and needs no notification.
impl Notifier for () {
    fn wake(&self, _woken: Woken, _caller: Caller) {}
}

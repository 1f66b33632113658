//! What the parties do, and the promises that can be broken.

use super::super::tcp::Portion;
use crate::Violation;

/// Something that one of the parties does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The user sends its next packet.
    Append { side: usize },
    /// The queue pair takes the next packet past the log, or all of it but one byte.
    Pass { side: usize, whole: bool },
    /// The connection takes bytes.
    Transmit { side: usize, portion: Portion },
    /// Bytes from this side arrive.
    Deliver { from: usize, portion: Portion },
    /// The queue pair takes bytes.
    Queue { side: usize, portion: Portion },
    /// A packet that came over the queue pair is read.
    ReadQueue { side: usize },
    /// This side hears what the peer has read from the queue pair.
    HearRead { side: usize },
    /// The guards agree on another queue pair.
    Settle,
    /// The queue pair is ready on this side.
    AddPath { side: usize },
    /// This side moves to the queue pair.
    Move { side: usize },
    /// This side goes back to the TCP connection.
    Return { side: usize },
    /// This side closes the queue pair that both have left.
    CloseQueue { side: usize },
    /// The queue pair fails on this side.
    LoseQueue { side: usize },
    /// This side sees that the peer has given the queue pair up.
    NoticeQueue { side: usize },
    /// The connection fails on this side.
    LoseTcp { side: usize },
    /// This side sees that the peer has given the connection up.
    NoticeTcp { side: usize },
    /// This side takes the number of an attempt and connects.
    Dial { side: usize },
    /// The secret is proved.
    Ask { side: usize },
    /// The dial fails.
    LoseDial { side: usize },
    /// This side sees that its dial will not be answered.
    NoticeDial { side: usize },
    /// The standing on this connection arrives.
    DeliverStanding { from: usize, connection: u64 },
    /// The standing on this connection is lost.
    LoseStanding { from: usize, connection: u64 },
    /// A sign of life.
    Tick { side: usize },
    /// The path takes this many bytes.
    SetWindow { side: usize, bytes: usize },
    /// A message to the peer's guard.
    Control { side: usize },
    /// The user ends the session.
    End { side: usize },
}

/// A promise that was not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Broken {
    /// A packet arrived twice, changed, or out of order.
    Order,
    /// One session accuses the other though both are honest.
    Accusation(Violation),
    /// A newer attempt was refused, or an older one was not.
    Attempt,
    /// The log has let go of bytes that the peer may still need.
    Released,
    /// Counts of bytes that contradict each other.
    Bytes,
    /// The peer's end came before all of its packets.
    EarlyEnd,
    /// A queue pair was closed that the peer still uses.
    EarlyClose,
    /// Events that nothing has caused.
    Event,
    /// Packets that never arrive though nothing is lost.
    Stuck,
    /// A side has more bytes under way than its peer has said that it takes.
    Window,
    /// Bytes in a log though all has been acknowledged.
    LogKept,
}

//! The state of a connection, behind the lock `core`, and the connection itself.

mod core;
mod reader;
mod records;
mod ring_memory;
mod shared;
mod staging;
mod tally;
mod writer;

pub(crate) use self::core::{COPIED_AT_ONCE_BYTES, Core, End, POLL_BATCH, PolledBy, saturating_u32};
pub use self::records::Sealed;
pub(crate) use self::records::{RecordSealer, Records};
pub(crate) use self::ring_memory::RingMemory;
pub use self::shared::Connection;
pub(crate) use self::tally::Tally;
pub(crate) use self::writer::Need;

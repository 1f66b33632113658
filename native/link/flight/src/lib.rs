//! The flight recorder: events of the links of a node, in a file that outlives the node.
//!
//! The events are in the memory of the process: two rings of slots of one size, one for events, and one for the counts
//! of each tick interval. In one ring the many counts would overwrite the events. Appending takes no lock and waits for
//! nothing: it takes a sequence number, writes the words of the slot, and last the stamp that makes them valid. It
//! makes a system call only to wake the thread that writes the file, if that sleeps.
//!
//! That thread alone touches the disk. A file system that stands still, is full or is gone delays the file, and neither
//! an event nor the node.
//!
//! [`slot`] and [`mod@file`] define the format. The carrier's `inet_rdma_flight` reads it, and `docs/FLIGHT.md`
//! describes it.
#![forbid(unsafe_code)]

// Loom's atomics are no plain words.
#[cfg(not(loom))]
pub mod file;
mod primitive;
#[cfg(not(loom))]
mod recorder;
pub mod ring;
#[cfg(not(loom))]
pub mod slot;
#[cfg(not(loom))]
mod writer;

#[cfg(not(loom))]
mod node;

#[cfg(not(loom))]
pub use self::{
    file::FileError,
    node::{Report, file, flush, record, recorder, report, start},
    recorder::Recorder,
    slot::{Event, SLOT_BYTES},
    writer::Writer,
};

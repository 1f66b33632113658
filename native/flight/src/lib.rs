//! The flight recorder: events of the links of a node, in a file that outlives the node.
//!
//! The file is mapped into memory. It has a header, and two rings of slots of one size: one for events, and one for the
//! counts of each tick interval. In one ring the many counts would overwrite the events. Appending takes no lock and
//! makes no system call: it takes a sequence number, writes the words of the slot, and last the stamp that makes them
//! valid. The kernel keeps the writes of a killed process. A machine that loses power may lose them.
//!
//! [`slot`] and [`mod@file`] define the format. The carrier's `inet_rdma_flight` reads it, and `docs/FLIGHT.md`
//! describes it. Unsafe code is in [`mod@file`] alone: the mapped words.

// Loom's atomics cannot be mapped.
#[cfg(not(loom))]
pub mod file;
mod primitive;
pub mod ring;
#[cfg(not(loom))]
pub mod slot;

#[cfg(not(loom))]
mod node;

#[cfg(not(loom))]
pub use self::{
    file::{OpenError, Recorder},
    node::{record, recorder, start},
    slot::{Event, SLOT_BYTES},
};

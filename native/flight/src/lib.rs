//! The flight recorder: what has happened to the links of a node, in a file that outlives the node.
//!
//! The file is mapped into memory. It has a header, and two rings of slots of one size: one for events, and one for
//! what each tick interval brought, of which there is so much that it would drive the events out. Appending takes no
//! lock and makes no system call: a sequence number, the words of the slot, and last the stamp that makes them valid.
//! The kernel keeps what a process that was killed has written; what a machine that loses its power has written may be
//! lost.
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

//! A distribution link as one state machine: it answers which path carries the link. No I/O, no clock, no threads.
//!
//! A [`Link`] composes the [session](inet_rdma_session), whose positions and log outlive its connections, with the
//! [watch over both paths](inet_rdma_paths), the attempts to resume over another TCP connection, the moves to a queue
//! pair and back, and the end of the link. The caller, the port, owns sockets, queue pairs and timers. It tells what
//! has come in, does what [`Link::poll_work`] says, and passes what [`Link::poll_notice`] says to the guard.
//!
//! # Order of calls
//!
//! | the caller has | it calls |
//! |---|---|
//! | a TCP connection on which the session begins | [`Link::handle_connected`] |
//! | a queue pair | [`Link::add_queue`] |
//! | the VM's word that the link is up | [`Link::start`] |
//! | a packet while [`Link::is_sent_by_queue`] | [`Link::queue_step`], and what that says |
//! | another packet | [`Link::append_for_tcp`], and [`Link::handle_appended_for_tcp`] if that is due |
//! | bytes of the TCP connection | [`Link::session_mut`] to receive them, then [`Link::handle_received`] |
//! | packets of the queue pair | [`Link::session_mut`] to count them, then [`Link::handle_queue_packets`] |
//! | the end of the queue pair | [`Link::handle_queue_end`] |
//! | an attempt to resume | [`Link::is_newer`], a last read, [`Link::suspend`], and [`Link::resume`] or [`Link::abandon`] |
//! | a time that has come, of [`Link::poll_timeout`] | [`Link::handle_timeout`] |
//!
//! After each of these it calls [`Link::poll_work`] until there is none, then [`Link::poll_notice`] until there is
//! none, then [`Link::is_over`] and [`Link::poll_timeout`].
#![forbid(unsafe_code)]

mod attempts;
mod backlog;
mod echo;
mod fullness;
mod growth;
mod input;
mod life;
mod link;
mod losses;
mod moves;
mod names;
mod notice;
mod questions;
mod queue_pair;
mod sending;
mod standing;
mod suspicion;
mod tcp;
#[cfg(test)]
mod tests;
mod transmission;
mod window;
mod work;

pub use attempts::Resume;
pub use input::Fault;
pub use link::{Changes, Link};
pub use losses::QueueEnd;
pub use notice::{Loss, Notice, Standing};
pub use questions::ROUND_TRIPS;
pub use queue_pair::QueueWritten;
pub use sending::{GATHERED_BYTES, QueueStep};
pub use tcp::{Connection, Reach, TcpWritten};
pub use work::Work;

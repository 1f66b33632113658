//! The linked-in driver of a distribution link: callbacks of the VM's driver interface (`erl_driver(3)`) around a
//! connection of the engine. It is part of the NIF's library; `erl_ddll` finds it there by [`entry::driver_init`].
//!
//! All unsafe code is in `sys`, `port` and [`block`] (calls of the VM's functions), in [`entry`] (callbacks of the VM),
//! in `fields` (a descriptor of the VM), in `socket_options`, `tcp_info` and
//! [`multipath`] (sockets, and facts of the kernel about them).

mod attribution;
pub mod block;
mod coalescer;
mod commands;
mod device_questions;
mod distance;
pub mod ended;
pub mod entry;
mod fields;
pub mod handover;
mod inet;
mod link;
pub mod multipath;
mod names;
mod notices;
pub mod notifications;
mod numbers;
mod pacer;
mod poll_policy;
mod port;
mod queue;
mod round_trips;
mod socket_options;
#[allow(missing_docs, reason = "the names are those of erl_driver.h")]
mod sys;
mod tally;
mod tcp;
mod tcp_info;
mod windows;

pub use commands::number_keys;
pub use inet_rdma_path_tcp::can_decompress;
pub use names::names;
pub use port::errno_name;

//! The linked-in driver of a distribution link: callbacks of the VM's driver interface (`erl_driver(3)`) around a
//! connection of the engine. It is part of the NIF's library; `erl_ddll` finds it there by [`entry::driver_init`].
//!
//! All unsafe code is in `sys`, `port` and [`block`] (calls of the VM's functions), in [`entry`] (callbacks of the VM),
//! in `fields` (a descriptor of the VM) and in `tcp_info` (facts of the kernel about a socket).

mod asked;
pub mod block;
mod commands;
pub mod entry;
mod fields;
pub mod handover;
mod inet;
mod link;
mod looking;
pub mod notifications;
mod numbers;
mod port;
mod queue;
mod round_trips;
mod sharing;
#[allow(missing_docs, reason = "the names are those of erl_driver.h")]
mod sys;
mod tally;
mod tcp;
mod tcp_info;

pub use commands::number_keys;
pub use inet_rdma_path_tcp::can_decompress;
pub use port::errno_name;

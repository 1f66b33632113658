//! The parts of a stream above its connection: posted sends and receives, active mode, and the order of writers.
//!
//! # Order of calls
//!
//! | caller | calls | until |
//! |---|---|---|
//! | the maker | [`StreamSocket::new`]; then [`crate::endpoint::Pollers::attach`] with its connection | |
//! | a reader | [`StreamSocket::read`] | it answers [`ReadEnd::Empty`](inet_rdma_engine::connection::ReadEnd::Empty) |
//! | | [`StreamSocket::arm_reader`], and if that is true waits | [`StreamNotifier::readable`] |
//! | one of several writers | [`StreamSocket::send_lock`], its `write`, and `release` after the last byte | it is
//! blocked |
//! | | [`StreamSocket::arm_writer_in_turn`], and if that is true waits | [`StreamNotifier::writable`] |
//! | a user that posts | [`StreamSocket::post_send`], [`StreamSocket::post_receive`], [`StreamSocket::cancel`] |
//! [`StreamNotifier::sent`], [`StreamNotifier::received`] |
//! | a user of active mode | [`StreamSocket::set_active`] | [`StreamNotifier::passive`], [`StreamNotifier::ended`] |
//! | either side | [`StreamSocket::finish`] after its last write; [`StreamSocket::close`] at last | |
//!
//! [`StreamSocket::connection`] has all other calls of a connection.
//!
//! # Locks
//!
//! `read_half` and `write_direction`, one for each direction, hold the halves of the connection, for one call.
//! `read_half` keeps packets and their completions in the order of the stream, `write_direction` keeps writers and
//! posted sends in the order of their calls. `demand`, the posted receives and active mode, changes only with
//! `read_half` held as well, and is held for a step or one message of active mode. The connection's locks come after
//! those of the direction, and none is taken with `demand` held. No thread holds both directions.
//!
//! # Files
//!
//! Each uses those above it: `active_mode`, `notifier`, `posted_sends`; `sending`; `shared` (the socket);
//! `posted_sending`, `receiving`; `continuing`; `send_lock`; `calls`, `posting`, `opening`.

mod active_mode;
mod calls;
mod continuing;
mod notifier;
mod opening;
mod posted_sending;
mod posted_sends;
mod posting;
mod receiving;
mod send_lock;
mod sending;
mod shared;

pub use self::active_mode::{ActiveOption, Left};
pub use self::notifier::{Parcel, StreamNotifier};
pub use self::posting::{PostedTotals, Refused};
pub use self::send_lock::SendLock;
pub use self::sending::Holder;
pub use self::shared::{Bounds, StreamSocket};

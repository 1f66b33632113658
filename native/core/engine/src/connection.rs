//! The transport of a link or a stream: a queue pair, the stream over it, and the state of its waiting users. The other
//! parts of streams (posted operations, active mode, writers that take turns, polling threads) are above it, in the
//! crate `inet_rdma_socket`.
//!
//! # Order of calls
//!
//! | caller | calls | until |
//! |---|---|---|
//! | the maker | [`Connection::new`]; then gives it to a polling thread ([`Connection::set_polling_thread`]), or
//! watches the two descriptors itself | |
//! | the reader | [`ReadHalf::read`] | it answers [`ReadEnd::Empty`] |
//! | | [`Connection::arm_reader`], and if that is true waits; [`ReadHalf::read_and_arm`] is both | [`Notifier::wake`] |
//! | the writer | [`WriteHalf::write`] | [`Written::blocked`] |
//! | | [`Connection::arm_writer`], and if that is true waits | [`Notifier::wake`] |
//! | | [`WriteHalf::finish`] after its last write; [`WriteHalf::close`] at last | |
//! | a polling thread, when the event fd is readable | [`Connection::drain_event`], [`Connection::attend`] | |
//! | | [`Connection::poll`] while `attend` said so | it answers None, or the thread calls [`Connection::sleep`] |
//! | a polling thread, when the liveness fd is readable | [`Connection::handle_liveness`] | it answers false |
//! | any party | [`Connection::tick`] at any time | |
//!
//! A call that finds something for another party tells the [`Notifier`] before it returns. A reader that has not armed
//! is not told: it reads until `Empty`. An `arm` that answers false has looked again and found something. The calls
//! `..._without_notify` are for a user with steps of its own between call and notification, as a stream socket.
//!
//! # Locks
//!
//! Each direction has a half, which one caller at a time uses: so packets stay in order. The state that both halves
//! share, the bookkeeping of the stream, is under the lock `core`. It is held for less than a call, and taken after
//! the connection's other locks; those of the memory thread, the fabric and the pool of buffers are taken after it.
//! More than 2 KiB are copied with `core` free, so that neither direction waits for the other's copies; bytes of a
//! landing buffer that the peer has filled in part are copied with `core` held. A sealed connection has a lock for each
//! direction's key, taken before `core` and held for one read or write.
//!
//! # Files
//!
//! Each uses those above it.
//!
//! | files | what they have |
//! |---|---|
//! | `closed`, `settings`, `notifier` | the reasons of an end, the options, the user |
//! | `landing/` | landing buffers: their memory, those that the peer may write, and the rule for advertisements |
//! | `state/` | `reader`, `writer`, `ring_memory`, `staging`, `records`: the parts of the state behind `core`, each
//! with its own rules; `core`: that state as a whole; `tally`, the counts; `shared`, the connection |
//! | `memory/` | `claims` of memory, `adverts`: advertisements of landing buffers, `upkeep`: memory that comes and goes
//! |
//! | `queue/` | `completions`: arrivals; `ending`, and whether the peer lives; `controls`: messages to the peer;
//! `progress`: a look at the receive queue; `arming`, the way to wait; `polling`: calls of polling threads |
//! | `read/` | `read_end`, `ring_reading`, `record_reading`, `reading`: a read |
//! | `write/` | `transfer`, `record_writing`, `writing`: a write |
//! | `calls`, `statistics`, `opening` | other calls of the user, counts, the making |

mod calls;
mod closed;
mod landing;
mod memory;
mod notifier;
mod opening;
mod queue;
mod read;
mod settings;
mod state;
mod statistics;
mod write;

pub use self::closed::{Closed, ContentsViolation};
pub use self::landing::LandingState;
pub use self::notifier::{Caller, Notifier, PollingThread, Woken};
pub use self::read::{For, ReadEnd, ReadHalf, Taken};
pub use self::settings::{LANDING_BUFFER_BYTES_MAX, Settings, ZeroCopy};
pub use self::state::{Connection, Sealed};
pub use self::statistics::Statistics;
pub use self::write::{WriteHalf, Written};

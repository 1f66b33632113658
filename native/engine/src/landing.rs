//! Landing buffers: their memory, those that the peer may write, and when to advertise them. Bookkeeping without a lock
//! of its own: a connection has it behind the lock `core`.

mod advert_policy;
mod expected_reads;
mod landings;
mod memory;

pub(crate) use self::advert_policy::{AdvertPolicy, Advice, Bounds, Situation};
pub(crate) use self::expected_reads::ExpectedReads;
pub(crate) use self::landings::{Landed, Landings, NextLanded};
pub use self::memory::LandingState;
pub(crate) use self::memory::{Due, GivenBack, LandingMemory, Source, is_vital};

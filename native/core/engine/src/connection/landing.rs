//! Landing buffers: their memory, those that the peer may write, and when to advertise them. Bookkeeping without a lock
//! of its own: a connection has it behind the lock `core`, as [`LandingBuffers`].

mod advert_policy;
mod buffers;
mod expected_reads;
mod landings;
mod memory;

pub(crate) use self::advert_policy::{AdvertBounds, AdvertPolicy, Advice};
pub(crate) use self::buffers::LandingBuffers;
pub(crate) use self::landings::{Landed, NextLanded};
pub use self::memory::LandingState;
pub(crate) use self::memory::{Due, GivenBack, LandingMemory, Source};

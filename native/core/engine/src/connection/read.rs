//! A read.

mod read_end;
mod reading;
mod record_reading;
mod ring_reading;

pub use self::read_end::ReadEnd;
pub use self::reading::{For, ReadHalf, Taken};

//! A write.

mod record_writing;
mod transfer;
mod writing;

pub use self::transfer::Written;
pub use self::writing::WriteHalf;

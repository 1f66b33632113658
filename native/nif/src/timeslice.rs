//! The cost of copying, as the VM's scheduler counts work.

use rustler::Env;

/// Charges the calling process for `bytes` copied: a millisecond's slice is about a megabyte.
pub fn charge(env: Env<'_>, bytes: usize) {
    let percent = (bytes / (10 * 1024)).clamp(1, 100);
    rustler::schedule::consume_timeslice(env, i32::try_from(percent).unwrap_or(100));
}

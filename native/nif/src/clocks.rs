//! The clocks that tell whether this node's machine ran.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, Timespec, clock_gettime};
use rustler::NifMap;

/// The file in which Linux shows the machine's hardware clock, in seconds. A hypervisor's goes on while the machine is
/// stopped and after it was restored, when all clocks of the kernel go on from where they were.
const HARDWARE_CLOCK: &str = "/sys/class/rtc/rtc0/since_epoch";

/// Milliseconds.
#[derive(NifMap)]
struct Clocks {
    /// Stands still while the machine is suspended.
    monotonic: i64,
    /// Goes on then.
    boottime: i64,
    /// Jumps when it is set.
    realtime: i64,
    /// 0: there is none, or it cannot be read.
    hardware: i64,
}

/// `clocks() -> #{monotonic := Ms, boottime := Ms, realtime := Ms, hardware := Ms}`.
///
/// The hardware clock may take a millisecond. Not for a normal scheduler.
#[rustler::nif(schedule = "DirtyIo")]
fn clocks() -> Clocks {
    let [monotonic, boottime, realtime] =
        [ClockId::Monotonic, ClockId::Boottime, ClockId::Realtime].map(|clock| milliseconds(clock_gettime(clock)));
    let seconds = std::fs::read_to_string(HARDWARE_CLOCK).ok();
    let seconds = seconds.and_then(|text| text.trim_end().parse::<i64>().ok());
    Clocks {
        monotonic,
        boottime,
        realtime,
        hardware: seconds.unwrap_or(0).saturating_mul(1000),
    }
}

fn milliseconds(time: Timespec) -> i64 {
    time.tv_sec * 1000 + time.tv_nsec / 1_000_000
}

/// Nanoseconds of the wall clock, of which the low bits differ from one call to the next.
pub fn nanoseconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_nanos() as u64
}

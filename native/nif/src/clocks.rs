//! The clocks that tell whether this node's machine ran.

use std::io::ErrorKind;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, Timespec, clock_gettime};
use rustler::NifMap;

/// The file in which Linux shows the machine's hardware clock, in seconds. A hypervisor's goes on while the machine is
/// stopped and after it was restored, when all clocks of the kernel go on from where they were.
const HARDWARE_CLOCK: &str = "/sys/class/rtc/rtc0/since_epoch";

/// Milliseconds.
#[derive(NifMap)]
struct Clocks {
    /// Stands still while the machine sleeps.
    monotonic: i64,
    /// Goes on then.
    boottime: i64,
    /// Jumps when it is set.
    realtime: i64,
}

/// Milliseconds.
#[derive(NifMap)]
struct MachineClocks {
    boottime: i64,
    /// Jumps when it is set.
    realtime: i64,
    /// 0: there is none. -1: it cannot be read.
    hardware: i64,
}

/// `clocks() -> #{monotonic := Ms, boottime := Ms, realtime := Ms}`: reads all at once, without a system call.
#[rustler::nif]
fn clocks() -> Clocks {
    Clocks {
        monotonic: milliseconds(clock_gettime(ClockId::Monotonic)),
        boottime: milliseconds(clock_gettime(ClockId::Boottime)),
        realtime: milliseconds(clock_gettime(ClockId::Realtime)),
    }
}

/// `machine_clocks() -> #{boottime := Ms, realtime := Ms, hardware := Ms}`: reads all at once.
///
/// The hardware clock may take a millisecond. Not for a normal scheduler.
#[rustler::nif(schedule = "DirtyIo")]
fn machine_clocks() -> MachineClocks {
    let hardware = match std::fs::read_to_string(HARDWARE_CLOCK) {
        Ok(text) => text.trim_end().parse::<i64>().map_or(-1, |s| s.saturating_mul(1000)),
        Err(error) if error.kind() == ErrorKind::NotFound => 0,
        Err(_) => -1,
    };
    MachineClocks {
        boottime: milliseconds(clock_gettime(ClockId::Boottime)),
        realtime: milliseconds(clock_gettime(ClockId::Realtime)),
        hardware,
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

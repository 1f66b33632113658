//! A device that goes: from a step of a connection on it has failed for good, as IBV_EVENT_DEVICE_FATAL says, and each
//! call for it fails with EIO. After a time it is back.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdma_sys::{ibv_context, ibv_event_type};

use crate::profile::Profile;
use crate::pump::Pump;

/// When the device goes: once per process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// At the first question for its limits, which comes before there is a queue pair.
    Limits,
    /// When the first queue pair is made.
    QueuePair,
    /// In the self-test: at the third request.
    SelfTest,
    /// At the 500th request.
    Load,
    /// At the first request of at least 16 KiB, after the 100th.
    Bulk,
}

impl Step {
    pub(crate) fn named(name: &str) -> Option<Step> {
        Some(match name {
            "limits" => Step::Limits,
            "queue_pair" => Step::QueuePair,
            "self_test" => Step::SelfTest,
            "load" => Step::Load,
            "bulk" => Step::Bulk,
            _ => return None,
        })
    }
}

enum State {
    Here,
    Gone(Instant),
    Back,
}

static STATE: Mutex<State> = Mutex::new(State::Here);

/// A step of a connection has come.
pub(crate) fn come(profile: &Profile, step: Step) {
    let Some((wanted, lasts)) = profile.fatal else { return };
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    if step == wanted && matches!(*state, State::Here) {
        eprintln!("the device goes: {step:?}");
        *state = State::Gone(Instant::now() + lasts);
    }
}

/// The process posts a request of this number of bytes.
pub(crate) fn come_to_request(profile: &Profile, bytes: u64) {
    static REQUESTS: AtomicU64 = AtomicU64::new(0);
    if profile.fatal.is_none() {
        return;
    }
    match REQUESTS.fetch_add(1, Ordering::Relaxed) + 1 {
        3 => come(profile, Step::SelfTest),
        500 => come(profile, Step::Load),
        number if number > 100 && bytes >= 16_384 => come(profile, Step::Bulk),
        _ => {}
    }
}

/// Whether calls for the device fail now.
pub(crate) fn is_gone(profile: Option<&Profile>) -> bool {
    if profile.is_none_or(|profile| profile.fatal.is_none()) {
        return false;
    }
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    if matches!(*state, State::Gone(until) if until <= Instant::now()) {
        eprintln!("the device is back");
        *state = State::Back;
    }
    matches!(*state, State::Gone(_))
}

/// EIO while the device is gone, in errno, too.
pub(crate) fn refusal(profile: Option<&Profile>) -> Option<c_int> {
    is_gone(profile).then(|| {
        // SAFETY: the place of this thread's errno.
        unsafe { *libc::__errno_location() = libc::EIO };
        libc::EIO
    })
}

/// The kernel's descriptors of events, by the contexts in which pipes have their place.
static KERNELS: Mutex<BTreeMap<usize, c_int>> = Mutex::new(BTreeMap::new());

/// Makes an object whose events go to the descriptor of the context, which the kernel must know.
///
/// # Safety
///
/// An open context.
pub(crate) unsafe fn with_kernel_events<T>(context: *mut ibv_context, make: impl FnOnce() -> T) -> T {
    let kernels = KERNELS.lock().unwrap_or_else(PoisonError::into_inner);
    match kernels.get(&(context as usize)) {
        // SAFETY: the caller's contract; the lock lets no other thread do the same.
        Some(kernel) => unsafe {
            let number = std::mem::replace(&mut (*context).async_fd, *kernel);
            let made = make();
            (*context).async_fd = number;
            made
        },
        None => make(),
    }
}

/// Has the process hear of the device's end.
///
/// # Safety
///
/// A context that was just opened.
pub(crate) unsafe fn watch(context: *mut ibv_context, profile: &'static Profile) {
    // SAFETY: the caller's contract.
    let pump = Pump::replace(unsafe { (*context).async_fd });
    let kernel = pump.kernel.as_raw_fd();
    KERNELS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .insert(context as usize, kernel);
    std::thread::spawn(move || {
        let mut is_told = false;
        while pump.wait(Duration::from_millis(20)) {
            let mut event = [0; 16];
            while let Ok(16) = (&pump.kernel).read(&mut event) {
                pump.write(&event);
            }
            let is_gone = is_gone(Some(profile));
            if is_gone && !is_told {
                // The element, the event, and 4 bytes of nothing.
                let mut event = [0; 16];
                event[8..12].copy_from_slice(&(ibv_event_type::IBV_EVENT_DEVICE_FATAL as u32).to_ne_bytes());
                pump.write(&event);
            }
            is_told = is_gone;
        }
    });
}

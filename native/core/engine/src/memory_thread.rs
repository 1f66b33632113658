//! The thread that gets memory for connections and gives it back: one for the process, which runs while a connection
//! needs it.
//!
//! Registering memory with a device, and taking it back, asks the kernel, which may take milliseconds: neither a
//! scheduler nor a polling thread may do it. Every [`SWEEP`] the thread also looks whether a connection still uses its
//! memory.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use inet_rdma_fabric::FabricError;
use parking_lot::{Condvar, Mutex};

/// Time between two sweeps. Much longer than a burst of traffic, so that sweeps cost next to nothing.
const SWEEP: Duration = Duration::from_secs(5);

/// Sweeps after which memory that was not used is given back, and refused memory is asked for again: 10 to 15 s. Bulk
/// with pauses of seconds keeps its memory; a registration costs a few milliseconds once in that time.
pub(crate) const IDLE_SWEEPS: u32 = 2;

/// A connection, as this thread sees it.
pub(crate) trait MemoryUser: Send + Sync {
    /// Gets the memory that the connection has claimed. May take long.
    fn fetch(&self);
    /// Gives back memory that was not used for a while. May take long. False: nothing is left to do until the next
    /// claim.
    fn sweep(&self) -> bool;
}

struct MemoryThread {
    is_running: bool,
    claims: Vec<Weak<dyn MemoryUser>>,
    users: Vec<Weak<dyn MemoryUser>>,
}

static THREAD: Mutex<MemoryThread> = Mutex::new(MemoryThread {
    is_running: false,
    claims: Vec::new(),
    users: Vec::new(),
});
static CLAIMED: Condvar = Condvar::new();

/// Has [`MemoryUser::fetch`] called soon, and [`MemoryUser::sweep`] from then on.
pub(crate) fn claim(user: Weak<dyn MemoryUser>) -> Result<(), FabricError> {
    let mut thread = THREAD.lock();
    if !thread.is_running {
        inet_rdma_fabric::threads::start("inet_rdma/memory", run)?;
        thread.is_running = true;
    }
    thread.claims.push(user);
    CLAIMED.notify_one();
    Ok(())
}

fn run() {
    let mut next_sweep = Instant::now() + SWEEP;
    while let Some(claims) = next_claims(next_sweep) {
        for claim in claims {
            let fetched = call(&claim, |user| {
                user.fetch();
                true
            });
            if fetched {
                add(claim);
            }
        }
        if Instant::now() >= next_sweep {
            sweep();
            next_sweep = Instant::now() + SWEEP;
        }
    }
}

/// Waits for claims, until the next sweep at the latest. Returns None if no connection needs the thread.
fn next_claims(until: Instant) -> Option<Vec<Weak<dyn MemoryUser>>> {
    let mut thread = THREAD.lock();
    loop {
        if thread.claims.is_empty() && thread.users.is_empty() {
            thread.is_running = false;
            return None;
        }
        if !thread.claims.is_empty() || Instant::now() >= until {
            return Some(std::mem::take(&mut thread.claims));
        }
        CLAIMED.wait_until(&mut thread, until);
    }
}

fn add(user: Weak<dyn MemoryUser>) {
    let users = &mut THREAD.lock().users;
    if !users.iter().any(|known| known.ptr_eq(&user)) {
        users.push(user);
    }
}

fn sweep() {
    let users = THREAD.lock().users.clone();
    let gone: Vec<_> = users
        .into_iter()
        .filter(|user| !call(user, |user| user.sweep()))
        .collect();
    let users = &mut THREAD.lock().users;
    users.retain(|user| !gone.iter().any(|gone| gone.ptr_eq(user)));
}

/// Serves a connection. Returns false, so that the thread forgets the connection, if it is gone or panics.
fn call(user: &Weak<dyn MemoryUser>, act: impl FnOnce(&Arc<dyn MemoryUser>) -> bool) -> bool {
    let Some(user) = user.upgrade() else { return false };
    catch_unwind(AssertUnwindSafe(|| act(&user))).unwrap_or(false)
}

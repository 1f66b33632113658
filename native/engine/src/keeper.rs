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

/// Time between two sweeps. Much longer than a burst of traffic, so that sweeps cost next to nothing; unused memory
/// stays for a few of them.
const SWEEP: Duration = Duration::from_secs(5);

/// Sweeps after which memory that was not used is given back: 10 to 15 s. Bulk that comes in files or batches with
/// pauses of seconds keeps its memory; a registration costs a few milliseconds once in that time.
pub(crate) const IDLE_SWEEPS: u32 = 2;

/// A connection, as this thread sees it.
pub(crate) trait Tenant: Send + Sync {
    /// Gets the memory that the connection has claimed. May take long.
    fn fetch(&self);
    /// Gives back memory that was not used for a while. May take long. Returns false if nothing is left to do until the
    /// next claim.
    fn sweep(&self) -> bool;
}

struct Keeper {
    is_running: bool,
    claims: Vec<Weak<dyn Tenant>>,
    tenants: Vec<Weak<dyn Tenant>>,
}

static KEEPER: Mutex<Keeper> = Mutex::new(Keeper {
    is_running: false,
    claims: Vec::new(),
    tenants: Vec::new(),
});
static CLAIMED: Condvar = Condvar::new();

/// Has [`Tenant::fetch`] called soon, and [`Tenant::sweep`] from then on.
pub(crate) fn claim(tenant: Weak<dyn Tenant>) -> Result<(), FabricError> {
    let mut keeper = KEEPER.lock();
    if !keeper.is_running {
        inet_rdma_fabric::threads::start("inet_rdma/memory", run)?;
        keeper.is_running = true;
    }
    keeper.claims.push(tenant);
    CLAIMED.notify_one();
    Ok(())
}

fn run() {
    let mut next_sweep = Instant::now() + SWEEP;
    while let Some(claims) = next_claims(next_sweep) {
        for claim in claims {
            let fetched = call(&claim, |tenant| {
                tenant.fetch();
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

/// Waits for claims, until the next sweep at the latest. Returns None if no connection needs the thread any more.
fn next_claims(until: Instant) -> Option<Vec<Weak<dyn Tenant>>> {
    let mut keeper = KEEPER.lock();
    loop {
        if keeper.claims.is_empty() && keeper.tenants.is_empty() {
            keeper.is_running = false;
            return None;
        }
        if !keeper.claims.is_empty() || Instant::now() >= until {
            return Some(std::mem::take(&mut keeper.claims));
        }
        CLAIMED.wait_until(&mut keeper, until);
    }
}

fn add(tenant: Weak<dyn Tenant>) {
    let tenants = &mut KEEPER.lock().tenants;
    if !tenants.iter().any(|known| known.ptr_eq(&tenant)) {
        tenants.push(tenant);
    }
}

fn sweep() {
    let tenants = KEEPER.lock().tenants.clone();
    let gone: Vec<_> = tenants
        .into_iter()
        .filter(|tenant| !call(tenant, |tenant| tenant.sweep()))
        .collect();
    let tenants = &mut KEEPER.lock().tenants;
    tenants.retain(|tenant| !gone.iter().any(|gone| gone.ptr_eq(tenant)));
}

/// Serves a connection. Returns false, so that the thread forgets the connection, if it is gone or panics.
fn call(tenant: &Weak<dyn Tenant>, act: impl FnOnce(&Arc<dyn Tenant>) -> bool) -> bool {
    let Some(tenant) = tenant.upgrade() else { return false };
    catch_unwind(AssertUnwindSafe(|| act(&tenant))).unwrap_or(false)
}

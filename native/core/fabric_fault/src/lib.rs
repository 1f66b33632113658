//! A fabric that misbehaves on purpose: it wraps another and delays, stalls and drops by a plan with a seed.
//!
//! It does only what a network may do to a reliable connected queue pair:
//!
//! * Completions of one direction keep their order. A delayed one holds up those behind it, which stay in the receive
//!   queue and keep their slots, so the sender's credits are as short as with a slow network.
//! * With a distance completions travel side by side, each for the same time. They leave the receive queue when they
//!   start; the stream returns credits when they have arrived, so at most as many are under way as there are slots.
//! * The two directions are independent. Delays of controls, notices, or both, on one side or both, can make every
//!   order of the controls of one direction and the notices of the *other* one. Within a direction no fabric reorders
//!   anything.
//! * The bytes of a write lie in the peer's memory at once and its notice may come late, never the other way round.
//! * A dropped connection is gone for both sides. Completions from before the drop can still be polled when they are
//!   due.
//!
//! [`FaultPlan::default`] injects nothing.
#![forbid(unsafe_code)]

mod distance;
mod exposing;
mod inbound;
mod queue_pair;
mod stall;
mod windows;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use inet_rdma_fabric::{Fabric, FabricError, FabricName, ListenOptions, Listener, Parameters, QueuePair};

use queue_pair::FaultQueuePair;

pub use exposing::{Exposing, Grants};
pub use inbound::{Delay, FaultPlan};
pub use stall::Stall;
pub use windows::Windows;

/// Wraps a fabric and applies the plan to each of its queue pairs.
#[derive(Debug)]
pub struct FaultFabric<F> {
    inner: F,
    injection: Injection,
}

/// The plan and the state that new queue pairs share.
#[derive(Debug, Clone)]
struct Injection {
    plan: FaultPlan,
    stall: Stall,
    /// Numbers of queue pairs made so far, by connecting and by accepting. Each queue pair derives a seed from its
    /// number, whichever end of a connection was faster.
    made: Arc<[AtomicU64; 2]>,
}

#[derive(Clone, Copy)]
enum MadeBy {
    Connecting = 0,
    Accepting = 1,
}

impl<F: Fabric> FaultFabric<F> {
    /// Wraps `inner`.
    pub fn new(inner: F, plan: FaultPlan) -> FaultFabric<F> {
        let injection = Injection {
            plan,
            stall: Stall::default(),
            made: Arc::default(),
        };
        FaultFabric { inner, injection }
    }

    /// The switch that stops and resumes all deliveries of this fabric's queue pairs.
    pub fn stall(&self) -> &Stall {
        &self.injection.stall
    }
}

impl<F: Fabric> Fabric for FaultFabric<F> {
    fn name(&self) -> FabricName {
        self.inner.name()
    }

    fn listen(&self, options: &ListenOptions) -> Result<Box<dyn Listener>, FabricError> {
        let options = ListenOptions {
            parameters: self.injection.plan.exposing.first(&options.parameters),
            ..options.clone()
        };
        let inner = self.inner.listen(&options)?;
        Ok(Box::new(FaultListener {
            inner,
            injection: self.injection.clone(),
        }))
    }

    fn connect_from(
        &self,
        from: Option<IpAddr>,
        to: SocketAddr,
        parameters: &Parameters,
        timeout: Duration,
    ) -> Result<Box<dyn QueuePair>, FabricError> {
        let parameters = self.injection.plan.exposing.first(parameters);
        let inner = self.inner.connect_from(from, to, &parameters, timeout)?;
        self.injection.wrap(inner, MadeBy::Connecting)
    }
}

struct FaultListener {
    inner: Box<dyn Listener>,
    injection: Injection,
}

impl Listener for FaultListener {
    fn event_fd(&self) -> BorrowedFd<'_> {
        self.inner.event_fd()
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.inner.next_deadline()
    }

    fn poll_accept(&mut self) -> Option<Result<Box<dyn QueuePair>, FabricError>> {
        let accepted = self.inner.poll_accept()?;
        Some(accepted.and_then(|inner| self.injection.wrap(inner, MadeBy::Accepting)))
    }

    fn is_over(&self) -> bool {
        self.inner.is_over()
    }

    fn port(&self) -> u16 {
        self.inner.port()
    }

    fn over(&self) -> String {
        self.inner.over()
    }
}

impl Injection {
    fn wrap(&self, inner: Box<dyn QueuePair>, by: MadeBy) -> Result<Box<dyn QueuePair>, FabricError> {
        let number = self.made[by as usize].fetch_add(1, Ordering::Relaxed) * 2 + by as u64;
        let seed = self.plan.seed.wrapping_add(number);
        Ok(Box::new(FaultQueuePair::new(inner, &self.plan, &self.stall, seed)?))
    }
}

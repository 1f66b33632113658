//! Which fabric for which peer: shared memory on this host, an RDMA device to others. A listener is found over both, under
//! one port.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use inet_rdma_fabric::{Fabric, FabricError, FabricName, ListenOptions, Listener, Parameters, QueuePair};
use inet_rdma_fabric_shm::ShmFabric;
use rustix::event::epoll;

use crate::VerbsFabric;

/// Uses the fabric of this name; with [`FabricName::Auto`] see the module's description.
#[derive(Debug, Clone, Copy)]
pub struct AutoFabric(pub FabricName);

/// Why a queue pair that two nodes settled on is over its fabric.
pub(crate) const SETTLED: &str = "both nodes settled on it";

/// Ports to try where any free one will do: one that is free over one fabric may be taken over the other.
const TRIES: usize = 20;

impl AutoFabric {
    /// Connects, and says why over the fabric that it was. `from`: see [`Fabric::connect_from`].
    pub fn connect_because(
        self,
        from: Option<IpAddr>,
        to: SocketAddr,
        parameters: &Parameters,
        timeout: Duration,
    ) -> Result<(Box<dyn QueuePair>, String), FabricError> {
        let deadline = Instant::now() + timeout.min(Duration::from_secs(1 << 30));
        let chosen = |qp: Box<dyn QueuePair>, why: &str| {
            let route = qp.route();
            (qp, format!("{why}: {route}"))
        };
        let settled = (parameters.token != 0).then_some(SETTLED);
        match self.0 {
            FabricName::Shm if !is_local(to.ip()) => {
                return Err(FabricError::NoRoute(format!(
                    "{} is another host, to which shared memory does not lead; the option fabric is shm",
                    to.ip()
                )));
            }
            FabricName::Shm => {
                let qp = ShmFabric.connect(to, parameters, timeout)?;
                return Ok(chosen(qp, settled.unwrap_or("the option fabric is shm")));
            }
            FabricName::Verbs => {
                let qp = VerbsFabric.connect_from(from, to, parameters, timeout)?;
                return Ok(chosen(qp, settled.unwrap_or("the option fabric is verbs")));
            }
            FabricName::Auto => {}
        }
        if !is_local(to.ip()) {
            return match VerbsFabric.connect_from(from, to, parameters, timeout) {
                Ok(qp) => Ok(chosen(qp, "another host")),
                Err(error @ (FabricError::Unavailable(_) | FabricError::NoRoute(_))) => {
                    Err(FabricError::NoRoute(format!(
                        "no fabric leads to {}: shared memory does not, it is another host; and {error}",
                        to.ip()
                    )))
                }
                Err(error) => Err(error),
            };
        }
        let refused = match ShmFabric.connect(to, parameters, timeout) {
            Ok(qp) => return Ok(chosen(qp, "the same host")),
            Err(error) => error,
        };
        // Only where no process answers over shm: a container of its own with this host's address, or a node without
        // shm.
        if !matches!(refused, FabricError::Refused(_)) {
            return Err(refused);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        match VerbsFabric.connect_from(from, to, parameters, left) {
            Ok(qp) => Ok(chosen(qp, "the same host, where nobody listens over shm")),
            Err(FabricError::Unavailable(_) | FabricError::NoRoute(_) | FabricError::Refused(_)) => Err(refused),
            Err(error) => Err(error),
        }
    }
}

/// Whether an address is this host's: loopback, unspecified, or that of an interface of this network namespace. False where
/// the system does not name its interfaces. What can be bound says nothing: with `net.ipv4.ip_nonlocal_bind=1` any address
/// can.
pub fn is_local(address: IpAddr) -> bool {
    let address = address.to_canonical();
    address.is_loopback() || address.is_unspecified() || interface_addresses().any(|own| own == address)
}

fn interface_addresses() -> impl Iterator<Item = IpAddr> {
    let interfaces = nix::ifaddrs::getifaddrs().into_iter().flatten();
    interfaces.filter_map(|interface| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
    })
}

impl Fabric for AutoFabric {
    fn name(&self) -> FabricName {
        self.0
    }

    fn listen(&self, options: &ListenOptions) -> Result<Box<dyn Listener>, FabricError> {
        match self.0 {
            FabricName::Shm => ShmFabric.listen(options),
            FabricName::Verbs => VerbsFabric.listen(options),
            FabricName::Auto => match VerbsFabric.check() {
                Ok(()) => listen_on_both(options),
                Err(error) => Ok(Box::new(AutoListener::alone(ShmFabric.listen(options)?, error))),
            },
        }
    }

    fn connect_from(
        &self,
        from: Option<IpAddr>,
        to: SocketAddr,
        parameters: &Parameters,
        timeout: Duration,
    ) -> Result<Box<dyn QueuePair>, FabricError> {
        let (queue_pair, _why) = self.connect_because(from, to, parameters, timeout)?;
        Ok(queue_pair)
    }
}

fn listen_on_both(options: &ListenOptions) -> Result<Box<dyn Listener>, FabricError> {
    let (first, last) = (*options.ports.start(), *options.ports.end());
    let ports: Vec<u16> = if last == 0 {
        vec![0; TRIES]
    } else {
        options.ports.clone().collect()
    };
    for port in ports {
        let on = |port| ListenOptions {
            ports: port..=port,
            ..options.clone()
        };
        let shm = match ShmFabric.listen(&on(port)) {
            Ok(shm) => shm,
            Err(FabricError::PortsTaken { .. }) => continue,
            Err(error) => return Err(error),
        };
        match VerbsFabric.listen(&on(shm.port())) {
            Ok(verbs) => return Ok(Box::new(AutoListener::both(shm, verbs)?)),
            Err(FabricError::PortsTaken { .. }) => {}
            // No address of an RDMA device, say: nodes of this host get in all the same.
            Err(error) => return Ok(Box::new(AutoListener::alone(shm, error))),
        }
    }
    Err(FabricError::PortsTaken { first, last })
}

/// The listeners of one port.
struct AutoListener {
    shm: Box<dyn Listener>,
    /// None: this machine has no use for it.
    verbs: Option<Box<dyn Listener>>,
    /// Readable when one of them is.
    events: Option<OwnedFd>,
    over: String,
    /// Verbs is asked first: in turn, so that neither keeps the other waiting.
    verbs_first: bool,
}

impl AutoListener {
    fn alone(shm: Box<dyn Listener>, why: FabricError) -> AutoListener {
        AutoListener {
            over: format!("{} only; {why}", shm.over()),
            shm,
            verbs: None,
            events: None,
            verbs_first: false,
        }
    }

    fn both(shm: Box<dyn Listener>, verbs: Box<dyn Listener>) -> Result<AutoListener, FabricError> {
        let system = |errno: rustix::io::Errno| FabricError::System {
            doing: "watching two listeners",
            error: errno.into(),
        };
        let events = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system)?;
        for fd in [shm.event_fd(), verbs.event_fd()] {
            epoll::add(&events, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN).map_err(system)?;
        }
        Ok(AutoListener {
            over: format!("{} and {}", shm.over(), verbs.over()),
            shm,
            verbs: Some(verbs),
            events: Some(events),
            verbs_first: false,
        })
    }
}

impl Listener for AutoListener {
    fn event_fd(&self) -> BorrowedFd<'_> {
        match &self.events {
            Some(events) => events.as_fd(),
            None => self.shm.event_fd(),
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let of_verbs = self.verbs.as_ref().and_then(|verbs| verbs.next_deadline());
        self.shm.next_deadline().into_iter().chain(of_verbs).min()
    }

    fn poll_accept(&mut self) -> Option<Result<Box<dyn QueuePair>, FabricError>> {
        let Some(verbs) = &mut self.verbs else {
            return self.shm.poll_accept();
        };
        self.verbs_first = !self.verbs_first;
        if self.verbs_first {
            verbs.poll_accept().or_else(|| self.shm.poll_accept())
        } else {
            self.shm.poll_accept().or_else(|| verbs.poll_accept())
        }
    }

    fn is_over(&self) -> bool {
        self.shm.is_over() || self.verbs.as_ref().is_some_and(|verbs| verbs.is_over())
    }

    fn port(&self) -> u16 {
        self.shm.port()
    }

    fn over(&self) -> String {
        self.over.clone()
    }
}

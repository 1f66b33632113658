//! The choice of a fabric for a peer: shared memory to this host, an RDMA device to others, TCP where no device leads.
//! A listener is reachable over all fabrics, under one port.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use inet_rdma_engine::VerbsFabric;
use inet_rdma_engine::attempt::SETTLED;
use inet_rdma_engine::local::is_local;
use inet_rdma_fabric::deadline::time_after;
use inet_rdma_fabric::{Fabric, FabricError, FabricName, ListenOptions, Listener, Parameters, QueuePair};
use inet_rdma_fabric_shm::ShmFabric;
use inet_rdma_fabric_tcp::TcpFabric;
use rustix::event::epoll;

/// Uses the fabric of this name; with [`FabricName::Auto`] see the module's description.
#[derive(Debug, Clone, Copy)]
pub struct AutoFabric(pub FabricName);

impl AutoFabric {
    /// Connects. Returns the reason for the fabric, too. `from`: see [`Fabric::connect_from`].
    pub fn connect_because(
        self,
        from: Option<IpAddr>,
        to: SocketAddr,
        parameters: &Parameters,
        timeout: Duration,
    ) -> Result<(Box<dyn QueuePair>, String), FabricError> {
        let deadline = time_after(timeout);
        let connect = |fabric: &dyn Fabric| {
            let left = deadline.saturating_duration_since(Instant::now());
            fabric.connect_from(from, to, parameters, left)
        };
        let chosen = |qp: Box<dyn QueuePair>, why: &str| {
            let route = qp.route();
            (qp, format!("{why}: {route}"))
        };
        let given = |why| if parameters.token == 0 { why } else { SETTLED };
        match self.0 {
            FabricName::Shm if !is_local(to.ip()) => Err(FabricError::NoRoute(format!(
                "{} is another host, to which shared memory does not lead; the option fabric is shm",
                to.ip()
            ))),
            FabricName::Shm => Ok(chosen(connect(&ShmFabric)?, given("the option fabric is shm"))),
            FabricName::Verbs => Ok(chosen(connect(&VerbsFabric)?, given("the option fabric is verbs"))),
            FabricName::Tcp => Ok(chosen(connect(&TcpFabric)?, given("the option fabric is tcp"))),
            FabricName::Auto => {
                // `unreached`: no process listens over shm if the peer is in another container with this host's
                // address, or has no shm. Any user can take the name of a port there, and leave callers without an
                // answer: shm has half of the time.
                let half = deadline.saturating_duration_since(Instant::now()) / 2;
                let over_shm = || ShmFabric.connect_from(from, to, parameters, half);
                let (why, unreached) = match is_local(to.ip()).then(over_shm) {
                    None => ("another host", None),
                    Some(Ok(qp)) => return Ok(chosen(qp, "the same host")),
                    Some(Err(error @ FabricError::Refused(_))) => {
                        ("the same host, where nobody listens over shm", Some(error))
                    }
                    Some(Err(error @ FabricError::WrongUser { .. })) => {
                        ("the same host, where another user has the port over shm", Some(error))
                    }
                    Some(Err(error @ FabricError::TimedOut)) => {
                        ("the same host, where nobody answers over shm", Some(error))
                    }
                    Some(Err(error)) => return Err(error),
                };
                let without_device = match connect(&VerbsFabric) {
                    Ok(qp) => return Ok(chosen(qp, why)),
                    Err(error) if leads_nowhere(&error) => error,
                    Err(error) => return Err(error),
                };
                match (connect(&TcpFabric), unreached) {
                    (Ok(qp), _) => Ok(chosen(qp, &format!("{why}, and {without_device}"))),
                    (Err(error), Some(over_shm)) if leads_nowhere(&error) => Err(over_shm),
                    (Err(FabricError::NoRoute(over_tcp)), None) => Err(FabricError::NoRoute(format!(
                        "no fabric leads to {}: shared memory does not, it is another host; {without_device}; and \
                         {over_tcp}",
                        to.ip()
                    ))),
                    (Err(error), _) => Err(error),
                }
            }
        }
    }
}

/// True if the fabric does not lead to the peer, or no process listens there: try the next fabric. Any other refusal is
/// final.
fn leads_nowhere(error: &FabricError) -> bool {
    matches!(
        error,
        FabricError::Unavailable(_) | FabricError::NoRoute(_) | FabricError::Refused(_)
    )
}

impl Fabric for AutoFabric {
    fn name(&self) -> FabricName {
        self.0
    }

    fn listen(&self, options: &ListenOptions) -> Result<Box<dyn Listener>, FabricError> {
        match self.0 {
            FabricName::Shm => ShmFabric.listen(options),
            FabricName::Verbs => VerbsFabric.listen(options),
            FabricName::Tcp => TcpFabric.listen(options),
            FabricName::Auto => {
                let listener = options.on_first_free(|port| listen_on_all(options, port))?;
                Ok(Box::new(listener))
            }
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

/// Listens on `port` over all fabrics. None: the port is taken over one of them. If verbs or TCP fails for another
/// reason, such as a missing device, peers connect over the other fabrics.
fn listen_on_all(options: &ListenOptions, port: u16) -> Result<Option<AutoListener>, FabricError> {
    let on = |port| ListenOptions {
        ports: port..=port,
        ..options.clone()
    };
    let shm = match ShmFabric.listen(&on(port)) {
        // Any user can take the names of ports over shm, one or all: peers come over the other fabrics.
        Err(error @ FabricError::PortHeld { .. }) => Err(error),
        Err(error @ FabricError::PortsTaken { .. }) if port == 0 => Err(error),
        Err(FabricError::PortsTaken { .. }) => return Ok(None),
        Err(error) => return Err(error),
        shm => shm,
    };
    let tcp = match TcpFabric.listen(&on(shm.as_ref().map_or(port, |shm| shm.port()))) {
        Err(FabricError::PortsTaken { .. }) => return Ok(None),
        tcp => tcp,
    };
    let options = match (&shm, &tcp) {
        (Ok(listener), _) | (Err(_), Ok(listener)) => on(listener.port()),
        (Err(_), Err(_)) => on(port),
    };
    let verbs = VerbsFabric.check().and_then(|()| VerbsFabric.listen(&options));
    let (verbs, tcp) = match (verbs, tcp) {
        (Err(FabricError::PortsTaken { .. }), Ok(tcp)) => {
            // A port over iWARP is a port of TCP, so the two exclude each other: verbs is worth more.
            drop(tcp);
            match VerbsFabric.listen(&options) {
                Err(FabricError::PortsTaken { .. }) => return Ok(None),
                verbs => (
                    verbs,
                    Err(FabricError::NoRoute("over iWARP the port is taken by verbs".into())),
                ),
            }
        }
        (Err(FabricError::PortsTaken { .. }), Err(_)) => return Ok(None),
        others => others,
    };
    let (mut open, mut left_out) = (Vec::new(), Vec::new());
    for listener in [shm, verbs, tcp] {
        match listener {
            Ok(listener) => open.push(listener),
            Err(error) => left_out.push(error),
        }
    }
    match left_out.into_iter() {
        // No fabric is open: the first reason is that of shm.
        mut reasons if open.is_empty() => reasons.next().map_or(Ok(None), Err),
        reasons => AutoListener::new(open, &reasons.map(|error| error.to_string()).collect::<Vec<_>>()).map(Some),
    }
}

/// The listeners of one port, at least one.
struct AutoListener {
    listeners: Vec<Box<dyn Listener>>,
    events: OwnedFd,
    /// The fabrics of the port, and the reasons for those left out, in words.
    over: String,
    /// Index of the listener that the next call asks first: each has its turn, so that none starves.
    first: usize,
}

impl AutoListener {
    fn new(listeners: Vec<Box<dyn Listener>>, left_out: &[String]) -> Result<AutoListener, FabricError> {
        let system = |errno: rustix::io::Errno| FabricError::system("watching several listeners", errno);
        let events = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system)?;
        for listener in &listeners {
            let data = epoll::EventData::new_u64(0);
            epoll::add(&events, listener.event_fd(), data, epoll::EventFlags::IN).map_err(system)?;
        }
        let mut over = listeners
            .iter()
            .map(|listener| listener.over())
            .collect::<Vec<_>>()
            .join(" and ");
        if !left_out.is_empty() {
            over = format!("{over} only; {}", left_out.join("; "));
        }
        Ok(AutoListener {
            listeners,
            events,
            over,
            first: 0,
        })
    }
}

impl Listener for AutoListener {
    fn event_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.listeners
            .iter()
            .filter_map(|listener| listener.next_deadline())
            .min()
    }

    fn poll_accept(&mut self) -> Option<Result<Box<dyn QueuePair>, FabricError>> {
        self.first = (self.first + 1) % self.listeners.len();
        let mut order = (self.first..self.listeners.len()).chain(0..self.first);
        let (index, taken) = order.find_map(|index| Some((index, self.listeners[index].poll_accept()?)))?;
        if taken.is_err() && self.listeners.len() > 1 && self.listeners[index].is_over() {
            // The others go on, and this error counts as a refusal.
            let _absent = epoll::delete(&self.events, self.listeners[index].event_fd());
            self.listeners.remove(index);
        }
        Some(taken)
    }

    fn is_over(&self) -> bool {
        self.listeners.iter().any(|listener| listener.is_over())
    }

    fn port(&self) -> u16 {
        self.listeners[0].port()
    }

    fn over(&self) -> String {
        self.over.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails once; then it is over.
    struct Failing {
        event: OwnedFd,
        is_over: bool,
        fails: bool,
    }

    impl Listener for Failing {
        fn event_fd(&self) -> BorrowedFd<'_> {
            self.event.as_fd()
        }

        fn next_deadline(&self) -> Option<Instant> {
            None
        }

        fn poll_accept(&mut self) -> Option<Result<Box<dyn QueuePair>, FabricError>> {
            self.is_over = self.fails;
            self.is_over.then_some(Err(FabricError::DeviceRemoved))
        }

        fn is_over(&self) -> bool {
            self.is_over
        }

        fn port(&self) -> u16 {
            1
        }

        fn over(&self) -> String {
            String::new()
        }
    }

    #[test]
    fn a_listener_that_is_over_leaves_the_port_to_the_others() {
        let listener = |fails| -> Box<dyn Listener> {
            Box::new(Failing {
                event: epoll::create(epoll::CreateFlags::CLOEXEC).expect("a descriptor"),
                is_over: false,
                fails,
            })
        };
        for open in [[true, false], [false, true]] {
            let mut port = AutoListener::new(open.map(listener).into(), &[]).expect("a descriptor");
            assert!(matches!(port.poll_accept(), Some(Err(FabricError::DeviceRemoved))));
            assert!(!port.is_over());
            assert!(port.poll_accept().is_none());
        }
        let mut port = AutoListener::new(vec![listener(true)], &[]).expect("a descriptor");
        assert!(port.poll_accept().is_some());
        assert!(port.is_over(), "none is left");
    }
}

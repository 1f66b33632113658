//! Finding the receiver and greeting it.

use std::net::ToSocketAddrs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use inet_rdma_fabric::FabricError;
use inet_rdma_socket::endpoint::Pollers;
use inet_rdma_socket::poller::Polling;

use crate::arguments::Common;
use crate::failure::Failure;
use crate::frame::Head;
use crate::link::Link;
use crate::shape::Shape;

/// Starts the polling thread. It sleeps until an event comes, as the processor is needed for copying.
pub fn pollers() -> Result<Arc<Pollers>, Failure> {
    let pollers = Pollers::start(1, Polling::Event).map(Arc::new);
    pollers.map_err(Failure::connect("starting a polling thread"))
}

/// Connects to the first address of `to`, which is `HOST:PORT`, that answers.
pub fn connect(
    pollers: &Arc<Pollers>,
    to: &str,
    common: &Common,
    shape: Shape,
    timeout: Duration,
) -> Result<Link, Failure> {
    let has_port = to
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    if !has_port {
        return Err(Failure::Usage(format!("{to}: not HOST:PORT")));
    }
    let addresses = to
        .to_socket_addrs()
        .map_err(|error| FabricError::NoRoute(error.to_string()))
        .map_err(Failure::connect(format!("looking up {to}")))?
        .collect::<Vec<_>>();
    let deadline = Instant::now() + timeout;
    let mut first = None;
    for address in addresses {
        let left = deadline.saturating_duration_since(Instant::now());
        match common
            .fabric()
            .connect_because(None, address, &shape.parameters(), left)
        {
            Ok((qp, why)) => return Link::new(pollers, qp, shape, why),
            Err(error) => first = first.or(Some(error)),
        }
    }
    let error = first.unwrap_or_else(|| FabricError::NoRoute("the name has no address".into()));
    Err(Failure::connect(format!("connecting to {to}"))(error))
}

/// Says hello to a receiver. Returns the bytes of data that the receiver takes in one packet.
pub fn greet(
    link: &mut Link,
    shape: Shape,
    total: Option<u64>,
    verify: bool,
    timeout: Duration,
) -> Result<usize, Failure> {
    let deadline = Some(Instant::now() + timeout);
    let data_bytes = shape.buffer_bytes() as u64;
    let answer = link
        .say(
            Head::Hello {
                data_bytes,
                total,
                verify,
            },
            deadline,
        )
        .and_then(|()| link.next(deadline));
    match answer {
        Ok(packet) => match packet.head {
            Head::Hello { data_bytes: 0, .. } => Err(Failure::Peer("takes no data".into())),
            Head::Hello { data_bytes, .. } => {
                Ok(usize::try_from(data_bytes).map_or(shape.buffer_bytes(), |bytes| bytes.min(shape.buffer_bytes())))
            }
            _ => Err(Failure::Peer("is no rdma-cat that receives".into())),
        },
        Err(Failure::Peer(what)) if what == "does not answer" => Err(Failure::Peer(format!(
            "did not answer within {} s: it is busy with another sender (see --connect-timeout), or no rdma-cat",
            timeout.as_secs()
        ))),
        Err(failure) => Err(failure),
    }
}

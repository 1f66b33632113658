//! The connecting side.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use inet_rdma_fabric::deadline::{left_until, time_after};
use inet_rdma_fabric::{FabricError, Parameters, waiting};
use inet_rdma_stream::Hello;
use inet_rdma_verbs::cm::{CmId, Event, EventChannel, Kind};

use crate::connection::Connection;
use crate::events::Events;
use crate::queue_pair::VerbsQueuePair;
use crate::refusal::{self, failed_call};
use crate::trial::{Role, Trial};
use crate::{network, teardown};

/// Connects; blocks until `timeout` has passed at most.
pub(crate) fn connect(
    from: Option<IpAddr>,
    to: SocketAddr,
    parameters: &Parameters,
    timeout: Duration,
) -> Result<VerbsQueuePair, FabricError> {
    refusal::check_address(to)?;
    let attempt = Attempt {
        events: Arc::new(EventChannel::create().map_err(refusal::no_connection_manager)?),
        to,
        deadline: time_after(timeout),
    };
    let id = CmId::create(&attempt.events).map_err(refusal::no_connection_manager)?;
    network::set(&id, &parameters.network)?;
    let address = |failed| refusal::address(to, failed);
    id.resolve_address(from, to, left_until(attempt.deadline)?)
        .map_err(address)?;
    attempt.wait_for(Kind::AddressResolved)?;
    Events::running()?.watch_for_removal(&id);
    id.resolve_route(left_until(attempt.deadline)?).map_err(address)?;
    attempt.wait_for(Kind::RouteResolved)?;
    teardown::start()?;
    let connection = Connection::make(id, parameters)?;
    let hello = connection.hello.emit();
    connection.id().connect(&hello).map_err(address)?;
    let event = attempt.wait_for(Kind::Established)?;
    let peer = refusal::parse_hello(&event.private_data)?;
    parameters.check_token(&peer)?;
    connection.established(peer.receive_slots)?;
    let tried = attempt.try_out(&connection, peer);
    // If the test has failed, the peer gets the last report: the queue pair that is dropped sends it first.
    let queue_pair = VerbsQueuePair::new(connection, peer);
    tried.map(|()| queue_pair)
}

struct Attempt {
    events: Arc<EventChannel>,
    to: SocketAddr,
    deadline: Instant,
}

impl Attempt {
    /// Carries out the self-test of a connection that is up.
    fn try_out(&self, connection: &Connection, peer: Hello) -> Result<(), FabricError> {
        let mut trial = Trial::begin(connection, peer, Role::Connecting);
        while !trial.step(connection)? {
            if left_until(self.deadline).is_err() {
                return Err(trial.explain_timeout(connection));
            }
            let fds = [connection.channel.as_fd()];
            waiting::until_readable(&fds, Some(self.deadline), "waiting for the self-test of a connection")?;
        }
        Ok(())
    }

    /// Waits for the next event, which must be of this kind.
    fn wait_for(&self, kind: Kind) -> Result<Event, FabricError> {
        loop {
            if let Some(event) = self.events.next_event().map_err(failed_call)? {
                return if event.kind == kind {
                    Ok(event)
                } else {
                    Err(refusal::of_event(self.to, &event))
                };
            }
            left_until(self.deadline)?;
            let fds = [self.events.as_fd()];
            waiting::until_readable(&fds, Some(self.deadline), "waiting for the connection manager")?;
        }
    }
}

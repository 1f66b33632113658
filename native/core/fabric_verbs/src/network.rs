//! The options for the network, and the values that a queue pair has taken.

use std::time::Duration;

use inet_rdma_fabric::{FabricError, Network};
use inet_rdma_verbs::cm::CmId;
use inet_rdma_verbs::qp::QueuePair;

use crate::refusal;

/// The unit of acknowledgement timeouts: a queue pair waits for 4.096 µs times 2 to the power of a code (InfiniBand
/// specification, "Local ACK Timeout").
const ACK_UNIT: Duration = Duration::from_nanos(4_096);

/// The largest code: it has five bits. About 2.4 hours.
const ACK_CODE_MAX: u8 = 31;

/// Sets the options of an id that is about to resolve its address, or to be accepted.
pub(crate) fn set(id: &CmId, network: &Network) -> Result<(), FabricError> {
    if let Some(type_of_service) = network.type_of_service {
        let set = id.set_type_of_service(type_of_service);
        set.map_err(|failed| refusal::option("type_of_service", failed))?;
    }
    if let Some(timeout) = network.ack_timeout {
        let set = id.set_ack_timeout(ack_code(timeout));
        set.map_err(|failed| refusal::option("ack_timeout_ms", failed))?;
    }
    Ok(())
}

/// The acknowledgement timeout of a connection that is up. None: the device does not say, or waits for ever.
pub(crate) fn ack_timeout(qp: &QueuePair) -> Option<Duration> {
    match qp.ack_timeout() {
        Ok(code @ 1..=ACK_CODE_MAX) => Some(ACK_UNIT * (1 << code)),
        _ => None,
    }
}

/// The smallest code for a time of at least `timeout`.
fn ack_code(timeout: Duration) -> u8 {
    (1..ACK_CODE_MAX)
        .find(|code| ACK_UNIT * (1 << code) >= timeout)
        .unwrap_or(ACK_CODE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_rounded_up_to_one_that_a_queue_pair_has() {
        let code = |milliseconds| ack_code(Duration::from_millis(milliseconds));
        // 1.05 ms, 16.8 ms, 2.1 s and 68.7 s.
        assert_eq!((code(1), code(10), code(2_000), code(60_000)), (8, 12, 19, 24));
        assert_eq!(ack_code(ACK_UNIT * (1 << 19)), 19);
        assert_eq!(ack_code(Duration::ZERO), 1);
        assert_eq!(ack_code(Duration::MAX), ACK_CODE_MAX);
    }
}

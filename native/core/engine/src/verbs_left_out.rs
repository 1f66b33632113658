//! The verbs fabric of a build without the cargo feature `verbs`: each call fails, and the error says so.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use inet_rdma_fabric::{Fabric, FabricError, FabricName, Lack, ListenOptions, Listener, Parameters, QueuePair};

/// Stands for queue pairs of RDMA devices, of which this build has none.
#[derive(Debug, Clone, Copy, Default)]
pub struct VerbsFabric;

impl VerbsFabric {
    /// Fails: no machine has what this build lacks.
    pub fn check(self) -> Result<(), FabricError> {
        Err(left_out())
    }

    /// None: no memory is pinned without a device.
    pub fn pinned_bytes(self) -> u64 {
        0
    }

    /// Fails as [`Self::check`] does.
    pub fn addresses_of_devices(self, _addresses: &[IpAddr]) -> Result<Vec<IpAddr>, FabricError> {
        Err(left_out())
    }
}

impl Fabric for VerbsFabric {
    fn name(&self) -> FabricName {
        FabricName::Verbs
    }

    fn listen(&self, _options: &ListenOptions) -> Result<Box<dyn Listener>, FabricError> {
        Err(left_out())
    }

    fn connect_from(
        &self,
        _from: Option<IpAddr>,
        _to: SocketAddr,
        _parameters: &Parameters,
        _timeout: Duration,
    ) -> Result<Box<dyn QueuePair>, FabricError> {
        Err(left_out())
    }
}

fn left_out() -> FabricError {
    FabricError::Unavailable(Lack::LeftOut)
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    #[test]
    fn a_call_fails_and_says_that_the_build_lacks_the_fabric() {
        let failed = VerbsFabric.addresses_of_devices(&[IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1))]);
        for error in [failed.map(drop), VerbsFabric.check()].map(Result::unwrap_err) {
            assert!(matches!(error, FabricError::Unavailable(Lack::LeftOut)), "{error:?}");
            assert!(error.to_string().contains("this build has none"), "{error}");
        }
    }
}

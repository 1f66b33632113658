//! The fabrics, by name.

use std::str::FromStr;

/// Makes [`FabricName`] of its rows, so that no list lacks a variant.
macro_rules! fabrics {
    ($($(#[$doc:meta])+ $variant:ident = $name:literal,)+) => {
        /// A fabric, or the choice among them.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum FabricName {
            $($(#[$doc])+ $variant,)+
        }

        impl FabricName {
            /// All of them.
            pub const ALL: [FabricName; [$($name),+].len()] = [$(FabricName::$variant),+];

            /// The name, as options, counters and logs have it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(FabricName::$variant => $name,)+
                }
            }
        }
    };
}

fabrics! {
    /// Whichever leads to the peer.
    Auto = "auto",
    /// Shared memory of one host.
    Shm = "shm",
    /// RDMA devices.
    Verbs = "verbs",
    /// TCP connections, for streams where nothing better leads to the peer. No link is ever over it: one that stays on
    /// TCP has no queue pair.
    Tcp = "tcp",
}

/// No fabric has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no fabric {0}: {names} are possible", names = FabricName::ALL.map(FabricName::name).join(", "))]
pub struct UnknownFabric(pub String);

impl FabricName {
    /// The fabric of this name; None: there is none.
    pub fn from_name(name: &str) -> Option<FabricName> {
        FabricName::ALL.into_iter().find(|fabric| fabric.name() == name)
    }
}

impl std::fmt::Display for FabricName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for FabricName {
    type Err = UnknownFabric;

    fn from_str(name: &str) -> Result<FabricName, UnknownFabric> {
        FabricName::from_name(name).ok_or_else(|| UnknownFabric(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fabric_is_found_by_its_name() {
        for fabric in FabricName::ALL {
            assert_eq!(fabric.name().parse(), Ok(fabric));
        }
        let unknown = "sctp".parse::<FabricName>().expect_err("no fabric");
        assert_eq!(
            unknown.to_string(),
            "there is no fabric sctp: auto, shm, verbs, tcp are possible"
        );
    }
}

//! Names of sockets that nobody can guess, and so nobody can take in advance.

use std::fmt;
use std::str::FromStr;

use inet_rdma_fabric::FabricError;
use rustix::net::SocketAddrUnix;

const PREFIX: &str = "inet_rdma-";
/// Number of hexadecimal digits after [`PREFIX`].
const DIGITS: usize = 32;

/// The name of a listener's socket: in the abstract namespace, or of its file in a shared directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketName(String);

/// Text that is no name of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoSocketName;

impl FromStr for SocketName {
    type Err = NoSocketName;

    fn from_str(text: &str) -> Result<SocketName, NoSocketName> {
        let digits = text.strip_prefix(PREFIX).ok_or(NoSocketName)?;
        let is_hexadecimal = digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
        if digits.len() == DIGITS && is_hexadecimal {
            Ok(SocketName(text.to_owned()))
        } else {
            Err(NoSocketName)
        }
    }
}

impl fmt::Display for SocketName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl SocketName {
    /// A name of 128 random bits.
    pub(crate) fn random() -> Result<SocketName, FabricError> {
        let mut bytes = [0; DIGITS / 2];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
            .map_err(|errno| FabricError::system("getting random bytes", errno))?;
        Ok(SocketName(format!("{PREFIX}{:032x}", u128::from_ne_bytes(bytes))))
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// The address in the abstract namespace.
    pub(crate) fn address(&self) -> Result<SocketAddrUnix, FabricError> {
        SocketAddrUnix::new_abstract_name(self.0.as_bytes())
            .map_err(|errno| FabricError::system("naming a socket", errno))
    }
}

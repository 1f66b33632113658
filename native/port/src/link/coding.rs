//! How the bytes of a link's TCP connections are coded: compressed, and sealed where the link began inside TLS.

use std::io;
use std::time::Duration;

use inet_rdma_path_tcp::Protection;
use inet_rdma_records::{Cipher, Key};
use inet_rdma_session::Role;
use inet_rdma_session::proof::Secret;

use super::Link;
use crate::numbers::{COMPRESSION, SEALING};

/// How one TCP connection is coded; both sides agree.
#[derive(Default)]
pub struct Coding<'a> {
    /// None: the connection is in clear.
    pub sealing: Option<Sealing<'a>>,
    /// This side compresses.
    pub sends_compressed: bool,
    /// The peer compresses.
    pub receives_compressed: bool,
}

/// The carrier's parameters of a TCP connection that both sides have taken out of TLS.
pub struct Sealing<'a> {
    /// The cipher of both sides.
    pub cipher: Cipher,
    /// Maximum number of bytes under one key.
    pub renew_bytes: u64,
    /// The age of a key. None: no limit.
    pub renew_after: Option<Duration>,
    /// The bytes that both sides have sent inside TLS, with a nonce of each.
    pub transcript: &'a [u8],
}

impl Sealing<'_> {
    /// Derives the keys from the session's secret. They never leave the port.
    pub(super) fn protection(&self, secret: &Secret, role: Role) -> io::Result<Protection> {
        let (own, peer) = match role {
            Role::Initiator => (Role::Initiator, Role::Acceptor),
            Role::Acceptor => (Role::Acceptor, Role::Initiator),
        };
        let key = |from| Key::new(&*secret.of_direction(from, self.transcript)).ok_or(io::ErrorKind::InvalidInput);
        Ok(Protection {
            cipher: self.cipher,
            send: key(own)?,
            receive: key(peer)?,
            renew_bytes: self.renew_bytes,
            renew_after: self.renew_after,
        })
    }
}

impl Link {
    /// The numbers of [`SEALING`], of this side's key and the peer's. None: TCP is not sealed.
    pub fn sealing(&self) -> Option<[u64; SEALING.len()]> {
        let sealing = self.tcp.as_ref()?.sealing()?;
        let cipher = match sealing.cipher {
            Cipher::Aes256Gcm => 1,
            Cipher::ChaCha20Poly1305 => 2,
        };
        let usage = sealing.usage;
        Some([
            cipher,
            usage.generation.into(),
            usage.records,
            usage.bytes,
            sealing.peer_generation.into(),
        ])
    }

    /// The numbers of [`COMPRESSION`], of the present TCP connection. None: neither side compresses.
    pub fn compression(&self) -> Option<[u64; COMPRESSION.len()]> {
        let [sent, received] = self.tcp.as_ref()?.compression()?;
        Some([
            sent.plain_bytes,
            sent.wire_bytes,
            sent.nanoseconds / 1000,
            received.plain_bytes,
            received.wire_bytes,
            received.nanoseconds / 1000,
        ])
    }
}

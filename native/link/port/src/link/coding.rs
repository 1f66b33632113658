//! How the bytes of a link's TCP connections are coded: compressed, and sealed where the link began inside TLS.

use std::time::Duration;

use inet_rdma_path_tcp::{Compression, Protection, SealState};
use inet_rdma_records::{Cipher, Key, Renewal};
use inet_rdma_session::Role;

use super::Link;
use crate::fields::Fields;
use crate::numbers::{ANSWER_NUMBERS, Number, values};
use crate::tcp::Tcp;

/// The cipher with this number in commands and answers, as in the carrier's inet_rdma_offer.
fn cipher(number: u8) -> Option<Cipher> {
    match number {
        1 => Some(Cipher::Aes256Gcm),
        2 => Some(Cipher::ChaCha20Poly1305),
        _ => None,
    }
}

/// The reverse of [`cipher`].
fn cipher_number(cipher: Cipher) -> u64 {
    match cipher {
        Cipher::Aes256Gcm => 1,
        Cipher::ChaCha20Poly1305 => 2,
    }
}

/// How the TCP connection is sealed: with this side's key and with the peer's.
pub(crate) const SEALING: &[Number<SealState>] = &[
    ("cipher", |seals| cipher_number(seals.cipher)),
    ("key_generation", |seals| seals.usage.generation.into()),
    ("key_records", |seals| seals.usage.records),
    ("key_bytes", |seals| seals.usage.bytes),
    ("peer_key_generation", |seals| seals.peer_generation.into()),
];

/// The counts of compression over all TCP connections of a link, of sent and of received bytes.
pub(crate) const COMPRESSION: &[Number<[Compression; 2]>] = &[
    ("plain_bytes_sent", |[sent, _]| sent.plain_bytes),
    ("wire_bytes_sent", |[sent, _]| sent.wire_bytes),
    ("compress_us", |[sent, _]| sent.nanoseconds / 1000),
    ("plain_bytes_received", |[_, received]| received.plain_bytes),
    ("wire_bytes_received", |[_, received]| received.wire_bytes),
    ("decompress_us", |[_, received]| received.nanoseconds / 1000),
];

const _: () = assert!(SEALING.len() <= ANSWER_NUMBERS && COMPRESSION.len() <= ANSWER_NUMBERS);

impl Link {
    /// How a TCP connection is sealed, by the rest of a command's argument. Some(None): it is not sealed. The keys are
    /// derived from the session's secret, and never leave the port.
    pub fn protection(&self, fields: &mut Fields<'_>) -> Option<Option<Protection>> {
        if fields.0.is_empty() {
            return Some(None);
        }
        let [number] = fields.array()?;
        let (rekey_bytes, rekey_seconds) = (fields.u64()?, fields.u32()?);
        let (own, peer) = match self.state.session().role() {
            Role::Initiator => (Role::Initiator, Role::Acceptor),
            Role::Acceptor => (Role::Acceptor, Role::Initiator),
        };
        let key = |from| Key::new(&*self.secret.of_direction(from, fields.0));
        Some(Some(Protection {
            cipher: cipher(number)?,
            send_key: key(own)?,
            receive_key: key(peer)?,
            renewal: Renewal {
                bytes: rekey_bytes,
                age: (rekey_seconds > 0).then(|| Duration::from_secs(rekey_seconds.into())),
            },
        }))
    }

    /// The numbers of [`SEALING`]; none if TCP is not sealed.
    pub fn sealing(&self) -> Vec<u64> {
        let seals = self.tcp.as_ref().and_then(|tcp| tcp.path.sealing());
        seals.map_or_else(Vec::new, |seals| values(SEALING, &seals))
    }

    /// The numbers of [`COMPRESSION`]; none if neither side compresses.
    pub fn compression(&self) -> Vec<u64> {
        let counts = self.compressed(self.tcp.as_ref());
        counts.map_or_else(Vec::new, |counts| values(COMPRESSION, &counts))
    }

    /// The counts of compression over the TCP connections that are gone, and over this one.
    pub(super) fn compressed(&self, tcp: Option<&Tcp>) -> Option<[Compression; 2]> {
        let Some([sent, received]) = tcp.and_then(|tcp| tcp.path.compression()) else {
            return self.past_compression;
        };
        let mut all = self.past_compression.unwrap_or_default();
        all[0] += sent;
        all[1] += received;
        Some(all)
    }
}

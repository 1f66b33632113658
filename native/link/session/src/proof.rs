//! The secret that only a session's two sides know, and proofs of it.

use aws_lc_rs::hmac::{self, HMAC_SHA256, Key};
use zeroize::Zeroizing;

use crate::Role;

/// Bytes of a proof.
pub const PROOF_BYTES: usize = 32;
/// Bytes of a session's name.
pub const NAME_BYTES: usize = 16;

/// The secret of one session: HMAC-SHA256 (RFC 2104) of both sides' nonces, under the cookie that both have proved. It
/// is fresh because the nonces are fresh, and as strong as the cookie.
pub struct Secret(Key);

impl Secret {
    /// The secret of the session that begins with these nonces.
    pub fn new(cookie: &[u8], initiator_nonce: &[u8], acceptor_nonce: &[u8]) -> Secret {
        let mut of_both = hmac::Context::with_key(&Key::new(HMAC_SHA256, cookie));
        of_both.update(b"inet_rdma session");
        of_both.update(initiator_nonce);
        of_both.update(acceptor_nonce);
        Secret::from(of_both)
    }

    /// What all nodes with this cookie know, apart from any session.
    pub fn of_cookie(cookie: &[u8]) -> Secret {
        let mut of_nodes = hmac::Context::with_key(&Key::new(HMAC_SHA256, cookie));
        of_nodes.update(b"inet_rdma node");
        Secret::from(of_nodes)
    }

    fn from(context: hmac::Context) -> Secret {
        let secret = Zeroizing::new(<[u8; PROOF_BYTES]>::try_from(context.sign().as_ref()).unwrap_or_default());
        Secret(Key::new(HMAC_SHA256, &*secret))
    }

    /// The proof, for these bytes alone, that this side knows the secret.
    pub fn prove(&self, bytes: &[u8]) -> [u8; PROOF_BYTES] {
        hmac::sign(&self.0, bytes).as_ref().try_into().unwrap_or_default()
    }

    /// Whether `proof` is that of `bytes`, in constant time.
    pub fn is_proof(&self, bytes: &[u8], proof: &[u8]) -> bool {
        hmac::verify(&self.0, bytes, proof).is_ok()
    }

    /// The secret under which `from` seals on one TCP connection. `transcript`: all messages of both sides before they
    /// took that connection, with a nonce of each, so that no two connections have the same secret.
    pub fn of_direction(&self, from: Role, transcript: &[u8]) -> Zeroizing<[u8; PROOF_BYTES]> {
        let label: &[u8] = match from {
            Role::Initiator => b"seals: initiator",
            Role::Acceptor => b"seals: acceptor",
        };
        let mut context = hmac::Context::with_key(&self.0);
        context.update(label);
        context.update(transcript);
        Zeroizing::new(context.sign().as_ref().try_into().unwrap_or_default())
    }

    /// The session's name: the same on both sides, and the secret cannot be computed from it.
    pub fn name(&self) -> [u8; NAME_BYTES] {
        let mut name = [0; NAME_BYTES];
        name.copy_from_slice(&self.prove(b"name")[..NAME_BYTES]);
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_have_one_secret_and_name_and_others_have_another() {
        let secret = Secret::new(b"cookie", b"nonce of the initiator", b"nonce of the acceptor");
        let same = Secret::new(b"cookie", b"nonce of the initiator", b"nonce of the acceptor");
        assert_eq!(secret.name(), same.name());
        assert!(same.is_proof(b"bytes", &secret.prove(b"bytes")));
        assert!(!same.is_proof(b"other bytes", &secret.prove(b"bytes")));
        for other in [
            Secret::new(b"another cookie", b"nonce of the initiator", b"nonce of the acceptor"),
            Secret::new(b"cookie", b"nonce of another", b"nonce of the acceptor"),
            Secret::new(b"cookie", b"nonce of the initiator", b"nonce of another"),
        ] {
            assert_ne!(other.name(), secret.name());
            assert!(!secret.is_proof(b"bytes", &other.prove(b"bytes")));
        }
    }

    #[test]
    fn nodes_with_one_cookie_prove_it_to_each_other() {
        let secret = Secret::of_cookie(b"cookie");
        assert!(Secret::of_cookie(b"cookie").is_proof(b"bytes", &secret.prove(b"bytes")));
        assert!(!secret.is_proof(b"other bytes", &secret.prove(b"bytes")));
        for other in [Secret::of_cookie(b"another cookie"), Secret::new(b"cookie", b"", b"")] {
            assert!(!secret.is_proof(b"bytes", &other.prove(b"bytes")));
        }
    }
}

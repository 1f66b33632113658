//! How a connection is sealed from its start.

use std::time::Duration;

use inet_rdma_records::{BYTES_MAX, Cipher, Key, Protection, Renewal};
use rustler::{Atom, Binary, Decoder, NifResult, Term};

use crate::atoms;

/// The value of `rekey_bytes` if the map lacks that key: half of the bytes that a key may seal.
const REKEY_BYTES: u64 = BYTES_MAX / 2;

/// `none | #{cipher := Cipher, send_key := <<_:256>>, receive_key := <<_:256>>, rekey_bytes => pos_integer(),
/// rekey_seconds => non_neg_integer()}`; 0 seconds, or none: no limit
pub struct ProtectionOption(pub Option<Protection>);

impl<'a> Decoder<'a> for ProtectionOption {
    fn decode(term: Term<'a>) -> NifResult<Self> {
        if atoms::none() == term {
            return Ok(ProtectionOption(None));
        }
        let field = |name: Atom| term.map_get(name);
        let protection = Protection {
            cipher: cipher(field(atoms::cipher())?)?,
            send_key: key(field(atoms::send_key())?)?,
            receive_key: key(field(atoms::receive_key())?)?,
            renewal: Renewal {
                bytes: match field(atoms::rekey_bytes()) {
                    Ok(bytes) => bytes.decode()?,
                    Err(_) => REKEY_BYTES,
                },
                age: match field(atoms::rekey_seconds()) {
                    Ok(seconds) => Some(seconds.decode()?)
                        .filter(|seconds| *seconds > 0)
                        .map(Duration::from_secs),
                    Err(_) => None,
                },
            },
        };
        // With equal keys a record of one direction could be replayed in the other.
        if protection.send_key.is_same(&protection.receive_key) {
            return Err(rustler::Error::BadArg);
        }
        Ok(ProtectionOption(Some(protection)))
    }
}

fn cipher(term: Term<'_>) -> NifResult<Cipher> {
    let named = Cipher::ALL.into_iter().find(|cipher| cipher_atom(*cipher) == term);
    named.ok_or(rustler::Error::BadArg)
}

pub fn cipher_atom(cipher: Cipher) -> Atom {
    match cipher {
        Cipher::Aes256Gcm => atoms::aes_256_gcm(),
        Cipher::ChaCha20Poly1305 => atoms::chacha20_poly1305(),
    }
}

pub fn key(term: Term<'_>) -> NifResult<Key> {
    Key::new(term.decode::<Binary<'_>>()?.as_slice()).ok_or(rustler::Error::BadArg)
}

/// `cipher() -> aes_256_gcm | chacha20_poly1305`: the faster cipher on this processor.
#[rustler::nif(name = "cipher")]
fn cipher_nif() -> Atom {
    cipher_atom(Cipher::of_this_processor())
}

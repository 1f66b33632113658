//! How a connection is sealed, and its keys.

use inet_rdma_records::{BYTES_MAX, Cipher, Key, KeyRefused, Protection};
use rustler::{Atom, Binary, Decoder, Encoder, Env, NifResult, ResourceArc, Term};

use crate::atoms;
use crate::guard::GuardResource;
use crate::link::LinkResource;
use crate::terms;
use crate::voice;

/// Without the key `renew_bytes`: a quarter of what a key may seal.
const RENEW_BYTES: u64 = BYTES_MAX / 4;

/// `none | #{cipher := Cipher, send_key := <<_:256>>, receive_key := <<_:256>>, renew_bytes => pos_integer()}`
pub struct ProtectionOption(Option<Protection>);

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
            renew_bytes: match field(atoms::renew_bytes()) {
                Ok(bytes) => bytes.decode()?,
                Err(_) => RENEW_BYTES,
            },
        };
        // A record of one direction would be one of the other.
        if protection.send_key.is_same(&protection.receive_key) {
            return Err(rustler::Error::BadArg);
        }
        Ok(ProtectionOption(Some(protection)))
    }
}

impl ProtectionOption {
    /// Plain.
    pub fn none() -> Self {
        ProtectionOption(None)
    }

    /// None: plain.
    pub fn protection(&self) -> Option<&Protection> {
        self.0.as_ref()
    }
}

fn cipher(term: Term<'_>) -> NifResult<Cipher> {
    let named = Cipher::ALL.into_iter().find(|cipher| cipher_atom(*cipher) == term);
    named.ok_or(rustler::Error::BadArg)
}

/// A cipher's name.
pub fn cipher_atom(cipher: Cipher) -> Atom {
    match cipher {
        Cipher::Aes256Gcm => atoms::aes_256_gcm(),
        Cipher::ChaCha20Poly1305 => atoms::chacha20_poly1305(),
    }
}

fn key(term: Term<'_>) -> NifResult<Key> {
    Key::new(term.decode::<Binary<'_>>()?.as_slice()).ok_or(rustler::Error::BadArg)
}

/// `cipher() -> aes_256_gcm | chacha20_poly1305`: what this processor does faster.
#[rustler::nif(name = "cipher")]
fn cipher_nif() -> Atom {
    cipher_atom(Cipher::of_this_processor())
}

/// `link_receive_key(Link, Generation, Key) -> ok | {error, Reason}`: the peer may use this key from here on. The first key
/// has generation 0, each further one the next number.
#[rustler::nif]
fn link_receive_key<'a>(
    env: Env<'a>,
    link: ResourceArc<LinkResource>,
    generation: u32,
    bytes: Term<'a>,
) -> NifResult<Term<'a>> {
    let key = key(bytes)?;
    Ok(taken(env, link.connection().install_receive_key(generation, &key)))
}

/// `link_send_key(Link, Generation, Key) -> ok | {error, Reason}`: all that the link sends from here on is sealed under this
/// key, which the peer must have installed. Send a tick behind it: the peer sees the change even if nothing else is sent.
#[rustler::nif]
fn link_send_key<'a>(
    env: Env<'a>,
    link: ResourceArc<LinkResource>,
    generation: u32,
    bytes: Term<'a>,
) -> NifResult<Term<'a>> {
    let key = key(bytes)?;
    Ok(taken(env, link.connection().renew_send_key(generation, &key)))
}

/// `receive_key(Guard, Generation, Key) -> ok | {error, Reason}`: as [`link_receive_key`], of a stream.
#[rustler::nif]
fn receive_key<'a>(
    env: Env<'a>,
    guard: ResourceArc<GuardResource>,
    generation: u32,
    bytes: Term<'a>,
) -> NifResult<Term<'a>> {
    let key = key(bytes)?;
    let connection = guard.connection();
    let result = voice::speaking(env, || connection.install_receive_key(generation, &key));
    Ok(taken(env, result))
}

/// `send_key(Guard, Generation, Key) -> ok | {error, Reason}`: as [`link_send_key`], of a stream; the tick goes by
/// itself.
#[rustler::nif]
fn send_key<'a>(
    env: Env<'a>,
    guard: ResourceArc<GuardResource>,
    generation: u32,
    bytes: Term<'a>,
) -> NifResult<Term<'a>> {
    let key = key(bytes)?;
    let connection = guard.connection();
    let result = voice::speaking(env, || {
        connection.renew_send_key(generation, &key)?;
        // An end shows elsewhere.
        let _ = connection.tick();
        Ok(())
    });
    Ok(taken(env, result))
}

fn taken(env: Env<'_>, result: Result<(), KeyRefused>) -> Term<'_> {
    match result {
        Ok(()) => atoms::ok().encode(env),
        Err(refused) => (atoms::error(), terms::key_refused(env, &refused)).encode(env),
    }
}

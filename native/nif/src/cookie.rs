//! Proofs between nodes that know one cookie.

use inet_rdma_session::proof::Secret;
use rustler::{Binary, Env, NewBinary, NifResult, Term};

/// `prove_cookie(Cookie, Bytes) -> Proof`: the proof, for these bytes alone, that this node knows the cookie.
///
/// The caller gives some hundred bytes.
#[rustler::nif]
fn prove_cookie<'a>(env: Env<'a>, cookie: Binary<'a>, bytes: Term<'a>) -> NifResult<Binary<'a>> {
    let proof = Secret::of_cookie(&cookie).prove(&Binary::from_iolist(bytes)?);
    let mut given = NewBinary::new(env, proof.len());
    given.as_mut_slice().copy_from_slice(&proof);
    Ok(given.into())
}

/// `is_cookie_proof(Cookie, Bytes, Proof) -> boolean()`: whether this is the proof of these bytes, in constant time.
#[rustler::nif]
fn is_cookie_proof(cookie: Binary<'_>, bytes: Term<'_>, proof: Binary<'_>) -> NifResult<bool> {
    Ok(Secret::of_cookie(&cookie).is_proof(&Binary::from_iolist(bytes)?, &proof))
}

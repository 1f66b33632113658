//! The answers of a library without the verbs fabric about RDMA devices.

use inet_rdma_engine::VerbsFabric;
use rustler::{Encoder, Env, Term};

use crate::terms;

/// `verbs_devices() -> {error, Reason}`: this library was built without the verbs fabric.
#[rustler::nif]
fn verbs_devices(env: Env<'_>) -> Term<'_> {
    let devices = VerbsFabric.check().map(|()| Vec::<String>::new());
    devices.map_err(|error| terms::fabric_error(env, &error)).encode(env)
}

//! What a library without the verbs fabric says of RDMA devices.

use inet_rdma_engine::VerbsFabric;
use rustler::{Encoder, Env, Term};

use crate::terms;

/// `verbs_devices() -> {error, Reason}`: this library knows of no device.
#[rustler::nif]
fn verbs_devices(env: Env<'_>) -> Term<'_> {
    let devices = VerbsFabric.check().map(|()| Vec::<String>::new());
    devices.map_err(|error| terms::fabric_error(env, &error)).encode(env)
}

//! What this library and the modules of the carrier must both know. `inet_rdma_interface` has the same, which the VM
//! gives to [`fits`] with the load: a library and modules of two versions do not load each other if it differs.
#![allow(unsafe_code, reason = "rustler has the names of functions as pointers")]

use std::ffi::CStr;

use inet_rdma_port::{names, number_keys};
use rustler::codegen_runtime::inventory;
use rustler::{Binary, Encoder, Env, Nif, Term};

use crate::config::Config;

/// Whether the modules have this interface: the VM loads the library only then. `theirs`: `{Text, Options}`, each
/// option with a value.
pub fn fits(env: Env<'_>, theirs: Term<'_>) -> bool {
    let Ok((theirs, options)) = theirs.decode::<(Binary<'_>, Term<'_>)>() else {
        return false;
    };
    let has_all = options
        .decode::<Config>()
        .is_ok_and(|config| config.encode(env).map_size().ok() == options.map_size().ok());
    has_all && theirs.as_slice() == text().as_bytes()
}

/// A line for each native function; for each command, notice and loss of a link's port; and for each number that the
/// port answers. Sorted.
fn text() -> String {
    let functions = inventory::iter::<Nif>().map(|nif| {
        // SAFETY: the attribute `rustler::nif` makes each name from a literal that ends with a zero byte.
        let name = unsafe { CStr::from_ptr(nif.name) };
        format!("function {}/{}", name.to_string_lossy(), nif.arity)
    });
    let names = names().map(|(kind, name)| format!("{kind} {name}"));
    let numbers = number_keys()
        .into_iter()
        .flat_map(|(command, keys)| keys.into_iter().map(move |key| format!("number {command} {key}")));
    let mut lines: Vec<String> = functions.chain(names).chain(numbers).collect();
    lines.sort_unstable();
    lines.join("\n")
}

//! Names that the carrier's modules know, too: each once here or in [`inet_rdma_link`], and once in
//! `inet_rdma_interface`. The library is loaded only by modules that know the same names (native/nif/src/interface.rs).

use inet_rdma_link::{Loss, Notice};

use crate::commands::Command;

/// The names of commands, notices and losses, each with the kind of name that it is.
pub fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    [
        ("command", Command::NAMES),
        ("notice", Notice::NAMES),
        ("loss", Loss::NAMES),
    ]
    .into_iter()
    .flat_map(|(kind, names)| names.iter().map(move |name| (kind, name.to_str().unwrap_or(kind))))
}

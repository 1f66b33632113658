//! From where a message is sent. The VM's functions for the two cases differ.

use rustler::{Env, LocalPid, OwnedEnv, Term};

/// The sender of a message.
#[derive(Clone, Copy)]
pub enum Voice<'a> {
    /// A native function, or a callback of the VM.
    Nif(Env<'a>),
    /// A thread of our own.
    Thread,
}

impl Voice<'_> {
    /// Sends a message. A message to a process that has died is dropped.
    pub fn tell(self, pid: &LocalPid, build: impl for<'b> FnOnce(Env<'b>) -> Term<'b>) {
        let _dead_or_told = match self {
            Voice::Nif(env) => env.send(pid, build(env)),
            Voice::Thread => OwnedEnv::new().send_and_clear(pid, build),
        };
    }
}

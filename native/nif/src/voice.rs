//! From where a message is sent: the VM wants to know.

use rustler::{Env, LocalPid, OwnedEnv, Term};

/// Who speaks.
#[derive(Clone, Copy)]
pub enum Voice<'a> {
    /// A native function, or a callback of the VM.
    Nif(Env<'a>),
    /// A thread of our own.
    Thread,
}

impl Voice<'_> {
    /// Sends a message. Nobody misses one to a process that has died.
    pub fn tell(self, pid: &LocalPid, build: impl for<'b> FnOnce(Env<'b>) -> Term<'b>) {
        let _dead_or_told = match self {
            Voice::Nif(env) => env.send(pid, build(env)),
            Voice::Thread => OwnedEnv::new().send_and_clear(pid, build),
        };
    }
}

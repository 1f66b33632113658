//! In whose name messages are sent: the VM wants to know.

use std::cell::Cell;

use rustler::sys::ErlNifEnv;
use rustler::{Env, LocalPid, OwnedEnv, Term};

thread_local! {
    /// The call that this thread of the VM is in; None: a thread of our own.
    static CALLER: Cell<Option<*mut ErlNifEnv>> = const { Cell::new(None) };
}

/// Messages that follow from `call` are sent in the name of the caller of a native function, or of a callback of the VM.
pub fn speaking<R>(env: Env<'_>, call: impl FnOnce() -> R) -> R {
    /// Also when `call` panics: the environment does not outlive it.
    struct Restore(Option<*mut ErlNifEnv>);
    impl Drop for Restore {
        fn drop(&mut self) {
            CALLER.set(self.0);
        }
    }
    let _restore = Restore(CALLER.replace(Some(env.as_c_arg())));
    call()
}

/// Sends a message. Nobody misses one to a process that has died.
pub fn tell(pid: &LocalPid, build: impl for<'b> FnOnce(Env<'b>) -> Term<'b>) {
    let _dead_or_told = match CALLER.get() {
        Some(env) => {
            let call = ();
            // SAFETY: `speaking` has set it on this thread and takes it away before its own call, whose environment it is,
            // ends; the lifetime of `call` keeps terms from leaving this function.
            let env = unsafe { Env::new(&call, env) };
            env.send(pid, build(env))
        }
        None => OwnedEnv::new().send_and_clear(pid, build),
    };
}

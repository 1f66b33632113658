//! Messages to processes. `enif_send` needs the environment of the native function that sends: it is kept here, per
//! thread.

use std::cell::Cell;

use rustler::sys::ErlNifEnv;
use rustler::{Env, LocalPid, OwnedEnv, Term};

thread_local! {
    /// The environment of the native function or callback that this thread runs; None: a thread of the library.
    static CALLER: Cell<Option<*mut ErlNifEnv>> = const { Cell::new(None) };
}

/// Runs `call`; messages that it sends use `env`, that of a native function or of a callback of the VM.
pub fn with_env<R>(env: Env<'_>, call: impl FnOnce() -> R) -> R {
    /// Takes the environment away again, also when `call` panics.
    struct Restore(Option<*mut ErlNifEnv>);
    impl Drop for Restore {
        fn drop(&mut self) {
            CALLER.set(self.0);
        }
    }
    let _restore = Restore(CALLER.replace(Some(env.as_c_arg())));
    call()
}

/// Sends a message. A message to a process that has died is dropped.
pub fn send(pid: &LocalPid, build: impl for<'b> FnOnce(Env<'b>) -> Term<'b>) {
    let _dead_or_sent = match CALLER.get() {
        Some(env) => {
            let call = ();
            // SAFETY: `with_env` has set the environment on this thread, and takes it away before the native function
            // that it belongs to ends; the lifetime of `call` keeps terms from leaving this function.
            let env = unsafe { Env::new(&call, env) };
            env.send(pid, build(env))
        }
        None => OwnedEnv::new().send_and_clear(pid, build),
    };
}

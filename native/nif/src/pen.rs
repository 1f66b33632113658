//! Whose bytes are going out: a send that takes several calls must not be mixed with another process's.

use parking_lot::{Mutex, MutexGuard};
use rustler::LocalPid;

/// Held by the process that has begun a send, until its last byte is written.
#[derive(Default)]
pub struct Pen {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    holder: Option<LocalPid>,
    /// Somebody else asked meanwhile.
    wanted: bool,
}

impl Pen {
    /// Takes the pen; or who has it.
    pub fn take(&self, pid: LocalPid) -> Result<HeldPen<'_>, LocalPid> {
        let mut state = self.state.lock();
        match state.holder {
            Some(holder) if holder != pid => {
                state.wanted = true;
                Err(holder)
            }
            _ => {
                state.holder = Some(pid);
                Ok(HeldPen {
                    state,
                    was_wanted: false,
                })
            }
        }
    }

    /// Whether this process may take it; if not, the holder's last call tells those who wait.
    pub fn is_free_for(&self, pid: LocalPid) -> bool {
        let mut state = self.state.lock();
        let free = state.holder.is_none_or(|holder| holder == pid);
        state.wanted |= !free;
        free
    }
}

/// The pen during one call. It stays with the process after the call unless it is put down.
pub struct HeldPen<'a> {
    state: MutexGuard<'a, State>,
    was_wanted: bool,
}

impl HeldPen<'_> {
    /// The last byte is written.
    pub fn put_down(&mut self) {
        self.state.holder = None;
        self.was_wanted = std::mem::take(&mut self.state.wanted);
    }

    /// Whether others asked for it meanwhile.
    pub fn was_wanted(&self) -> bool {
        self.was_wanted
    }
}

//! Whose bytes are going out: what one send has begun is not mixed with another's, be they sent or posted.

use inet_rdma_engine::connection::{Closed, Connection, Wakes};
use parking_lot::{Mutex, MutexGuard};
use rustler::{LocalPid, Term};

use crate::packets::Block;
use crate::posted_sends::{PostedSend, PostedSends};
use crate::voice::Voice;

/// Held by the process that has begun a send, until its last byte is written; by what is posted, until all of that is.
#[derive(Default)]
pub struct Pen {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The process that is in the middle of a send.
    holder: Option<LocalPid>,
    /// They go when no process holds the pen, and before any that does not hold it yet.
    posted: PostedSends,
    /// Somebody else asked meanwhile.
    wanted: bool,
}

impl State {
    fn is_free_for(&self, pid: LocalPid) -> bool {
        match self.holder {
            Some(holder) => holder == pid,
            None => self.posted.is_empty(),
        }
    }

    /// Those who waited for the pen may try again, when nobody has it any more.
    fn wakes(&mut self) -> Wakes {
        let free = self.holder.is_none() && self.posted.is_empty();
        Wakes {
            reader: false,
            writer: free && std::mem::take(&mut self.wanted),
        }
    }

    /// No process holds the pen any more. Whom to tell: others who asked meanwhile, or what is posted.
    fn put_down(&mut self) -> Wakes {
        self.holder = None;
        let posted = !self.posted.is_empty();
        let mut wakes = self.wakes();
        wakes.writer |= posted;
        wakes
    }
}

/// Who has the pen instead.
pub enum Holder {
    /// A process in the middle of a send.
    Process(LocalPid),
    /// What is posted.
    Posted,
}

impl Pen {
    /// Takes the pen; or who has it.
    pub fn take(&self, pid: LocalPid) -> Result<HeldPen<'_>, Holder> {
        let mut state = self.state.lock();
        if !state.is_free_for(pid) {
            state.wanted = true;
            return Err(state.holder.map_or(Holder::Posted, Holder::Process));
        }
        state.holder = Some(pid);
        Ok(HeldPen { state })
    }

    /// Whether this process may take it; if not, the holder's last call tells those who wait.
    pub fn is_free_for(&self, pid: LocalPid) -> bool {
        let mut state = self.state.lock();
        let free = state.is_free_for(pid);
        state.wanted |= !free;
        free
    }

    /// Whether this process is in the middle of a send.
    pub fn is_held_by(&self, pid: LocalPid) -> bool {
        self.state.lock().holder == Some(pid)
    }

    /// This process goes on no more with what it has begun: `rest` of it goes by itself, before all that is posted. Whom to
    /// tell; nothing changes if another holds the pen.
    pub fn leave(&self, pid: LocalPid, rest: Option<PostedSend>) -> Wakes {
        let mut state = self.state.lock();
        if state.holder != Some(pid) {
            return Wakes::default();
        }
        if let Some(rest) = rest {
            state.posted.push_front(rest);
        }
        state.put_down()
    }

    /// Posts a send, behind the others; who is in the middle of one of its own. False: so many are posted already.
    pub fn post(&self, send: PostedSend, max: usize) -> Result<Option<LocalPid>, Full> {
        let mut state = self.state.lock();
        if state.posted.len() >= max {
            return Err(Full);
        }
        state.posted.push(send);
        Ok(state.holder)
    }

    /// Sends what is posted, about `call_bytes` at most; `Wakes`, and whether it has to be called again soon. When the
    /// peer has no room the connection is asked for a wake.
    pub fn write_posted(&self, connection: &Connection<Block>, call_bytes: usize, voice: Voice<'_>) -> (Wakes, bool) {
        let mut state = self.state.lock();
        if state.holder.is_some() {
            if let Some(closed) = connection.closed() {
                state.posted.end(voice, &closed);
            }
            return (Wakes::default(), false);
        }
        let (mut wakes, again) = state.posted.write(connection, call_bytes, voice);
        wakes.merge(state.wakes());
        (wakes, again)
    }

    /// Takes back a posted send. None: it is not there; false: bytes of it have gone.
    pub fn cancel(&self, reference: Term<'_>) -> (Option<bool>, Wakes) {
        let mut state = self.state.lock();
        (state.posted.cancel(reference), state.wakes())
    }

    /// Nothing that is posted will go any more.
    pub fn end(&self, voice: Voice<'_>, closed: &Closed) -> Wakes {
        let mut state = self.state.lock();
        state.posted.end(voice, closed);
        state.wakes()
    }

    /// How many sends are posted, and bytes of them that have not gone.
    pub fn posted(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.posted.len(), state.posted.bytes())
    }
}

/// The bound on what is posted is reached.
pub struct Full;

/// The pen during one call. It stays with the process after the call unless it is put down.
pub struct HeldPen<'a> {
    state: MutexGuard<'a, State>,
}

impl HeldPen<'_> {
    /// The last byte is written. Whom to tell: others who asked meanwhile, or what is posted.
    pub fn put_down(mut self) -> Wakes {
        self.state.put_down()
    }
}

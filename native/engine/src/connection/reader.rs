//! The state of the reader, behind the lock `core`.

/// What the reader does, as far as the connection knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Its last read has ended, and it has not asked to be woken.
    Away,
    /// Its last read found the end.
    AtEnd,
    /// It reads, or has been woken and is about to.
    Reads,
    /// It is woken when there is something to read, or the end.
    Waits,
    /// It is woken at the next look, whatever there is.
    Called,
}

/// The reader of a connection.
pub(super) struct Reader {
    state: State,
    /// The user wants to read no more: each read finds the end.
    is_stopped: bool,
    /// True while a read copies with `core` unlocked: it advertises landing buffers at its end.
    pub(super) copies_unlocked: bool,
}

impl Reader {
    pub(super) fn new() -> Self {
        Self {
            state: State::Away,
            is_stopped: false,
            copies_unlocked: false,
        }
    }

    /// Makes each read from now on find the end.
    pub(super) fn stop(&mut self) {
        self.is_stopped = true;
    }

    #[inline]
    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// The next read comes only when the user calls it: the reader neither reads nor waits to be woken.
    #[inline]
    pub(super) fn is_away(&self) -> bool {
        matches!(self.state, State::Away | State::AtEnd)
    }

    /// True while a reader that polls by itself does so: from a wake, or a read that has not found the end, until it
    /// waits.
    #[inline]
    pub(super) fn may_poll(&self) -> bool {
        matches!(self.state, State::Away | State::Reads)
    }

    #[inline]
    pub(super) fn waits(&self) -> bool {
        matches!(self.state, State::Waits | State::Called)
    }

    #[inline]
    pub(super) fn is_called(&self) -> bool {
        self.state == State::Called
    }

    /// Has the next look wake the reader, even if there is nothing to read.
    pub(super) fn call(&mut self) {
        self.state = State::Called;
    }

    /// A reader that was called reads now. Returns false if it was not called.
    #[must_use]
    pub(super) fn answer_call(&mut self) -> bool {
        let called = self.is_called();
        if called {
            self.state = State::Reads;
        }
        called
    }

    /// The reader waits until there is something to read.
    #[inline]
    pub(super) fn wait(&mut self) {
        self.state = State::Waits;
    }

    /// The reader can go on. Returns true if it has waited: it is to be woken.
    #[inline]
    #[must_use]
    pub(super) fn wake(&mut self) -> bool {
        let waited = self.waits();
        if waited {
            self.state = State::Reads;
        }
        waited
    }

    /// A read begins. A reader that waits is another one than its caller, and goes on waiting.
    #[inline]
    pub(super) fn begin_read(&mut self) {
        self.state = match self.waits() {
            true => State::Waits,
            false => State::Reads,
        };
    }

    /// The read has ended. A reader that waits is another one than its caller, and goes on waiting.
    #[inline]
    pub(super) fn end_read(&mut self, found_end: bool) {
        if !self.waits() {
            self.state = match found_end {
                true => State::AtEnd,
                false => State::Away,
            };
        }
    }
}

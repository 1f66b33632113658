//! The state of the reader, behind the lock `core`.

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    /// The last read has ended, and the reader has not asked to be woken.
    #[default]
    Away,
    /// The last read found the end.
    AtEnd,
    /// The reader reads, or was woken and is about to read.
    Reads,
    /// The reader waits: it is woken when there is something to read, or at the end.
    Waits,
    /// The next look wakes the reader, whatever it finds.
    Called,
}

#[derive(Default)]
pub(crate) struct Reader {
    state: State,
    /// True: the user no longer reads, and each read finds the end.
    pub(crate) is_stopped: bool,
    /// True while a read copies with `core` unlocked. The read advertises landing buffers when it ends.
    pub(crate) copies_unlocked: bool,
}

impl Reader {
    /// True if the reader neither reads nor waits: the next read comes only when the user calls.
    #[inline]
    pub(crate) fn is_away(&self) -> bool {
        matches!(self.state, State::Away | State::AtEnd)
    }

    /// True while a self-polling reader polls: from a wake, or a read that has not found the end, until it waits.
    #[inline]
    pub(crate) fn may_poll(&self) -> bool {
        matches!(self.state, State::Away | State::Reads)
    }

    #[inline]
    pub(crate) fn waits(&self) -> bool {
        matches!(self.state, State::Waits | State::Called)
    }

    #[inline]
    pub(crate) fn is_called(&self) -> bool {
        self.state == State::Called
    }

    /// Has the next look wake the reader, even if there is nothing to read.
    pub(crate) fn call(&mut self) {
        self.state = State::Called;
    }

    /// Lets a reader that [`Self::call`] has called go on. Returns false if it was not called.
    #[must_use]
    pub(crate) fn answer_call(&mut self) -> bool {
        let called = self.is_called();
        if called {
            self.state = State::Reads;
        }
        called
    }

    #[inline]
    pub(crate) fn wait(&mut self) {
        self.state = State::Waits;
    }

    /// Notes that the reader can go on. Returns true if it has waited: the caller must wake it.
    #[inline]
    #[must_use]
    pub(crate) fn wake(&mut self) -> bool {
        let waited = self.waits();
        if waited {
            self.state = State::Reads;
        }
        waited
    }

    /// Notes the begin of a read. A reader that waits, as another party has called this read, goes on waiting, also
    /// after [`Self::end_read`].
    #[inline]
    pub(crate) fn begin_read(&mut self) {
        self.state = if self.waits() { State::Waits } else { State::Reads };
    }

    #[inline]
    pub(crate) fn end_read(&mut self, found_end: bool) {
        if !self.waits() {
            self.state = if found_end { State::AtEnd } else { State::Away };
        }
    }
}

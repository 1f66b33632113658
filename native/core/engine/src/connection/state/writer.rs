//! The state of the writer, behind the lock `core`.

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    /// The writer writes, or has not asked to be woken.
    #[default]
    Writes,
    /// This side's stream has ended: nothing more is written.
    Finished,
    /// The writer is woken when the peer has made room, or at the end.
    WaitsForPeer,
    /// As above, and the writer is also woken when the fabric has room.
    WaitsForFabric,
    /// The next look wakes the writer, whether there is room or not.
    Called,
}

/// The room at the peer that the writer's next transfer needs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Need {
    #[default]
    Room,
    /// Its bytes are bulk: an advertisement, if one can come; else any room.
    Advert,
    /// A part of the ring for a record: this many bytes.
    Record(u32),
}

#[derive(Default)]
pub(crate) struct Writer {
    state: State,
    pub(crate) need: Need,
    /// True while a chosen transfer is not posted yet, with `core` unlocked: no other transfer may be posted before it.
    pub(crate) posts_unlocked: bool,
}

impl Writer {
    #[inline]
    pub(crate) fn is_finished(&self) -> bool {
        self.state == State::Finished
    }

    pub(crate) fn finish(&mut self) {
        self.state = State::Finished;
    }

    #[inline]
    pub(crate) fn waits(&self) -> bool {
        matches!(self.state, State::WaitsForPeer | State::WaitsForFabric)
    }

    #[inline]
    pub(crate) fn waits_for_fabric(&self) -> bool {
        self.state == State::WaitsForFabric
    }

    #[inline]
    pub(crate) fn is_called(&self) -> bool {
        self.state == State::Called
    }

    /// Has the next look wake the writer, even if there is no room.
    pub(crate) fn call(&mut self) {
        if self.state != State::Finished {
            self.state = State::Called;
        }
    }

    /// Makes the writer wait until there is room. `fabric_has_room`: only room of the peer is missing.
    pub(crate) fn wait(&mut self, fabric_has_room: bool) {
        self.state = if fabric_has_room {
            State::WaitsForPeer
        } else {
            State::WaitsForFabric
        };
    }

    /// Notes that the writer can go on. Returns true if it has waited: the caller must wake it.
    #[inline]
    #[must_use]
    pub(crate) fn wake(&mut self) -> bool {
        let waited = self.waits() || self.is_called();
        if waited {
            self.state = State::Writes;
        }
        waited
    }
}

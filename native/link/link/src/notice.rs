//! What the guard of a link is told.

use inet_rdma_paths::LinkState;
use inet_rdma_session::Violation;

use crate::named;

named! {
    /// A notice to the guard, which gets `{'$inet_rdma', Port, Name, Standing}` or
    /// `{'$inet_rdma', Port, {Name, Detail}, Standing}`.
    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    pub enum Notice {
        /// The port is busy, and the peer takes nothing.
        Stalled = c"stalled",
        /// The peer takes bytes again.
        StallEnded = c"stall_ended",
        /// The port is busy, so the VM keeps packets; once a second at most.
        Busy = c"busy",
        /// The port was busy for most of the last second or more, although the peer takes bytes; once a minute at most.
        Full = c"full",
        /// Packets of the link contradict the distribution's protocol, as this text says, so senders and targets are
        /// no longer counted.
        Unread(String) = c"unread",
        /// The path that carries, or the TCP connection that stands by (state `carried`), is suspected. If both paths
        /// are suspected and one answers, this is sent again.
        Suspected = c"suspected",
        /// No path is suspected any longer, as all have answered. For a suspected path that is lost or given up, only
        /// that is sent.
        Trusted = c"trusted",
        /// The TCP connection is gone.
        Lost(Loss) = c"lost",
        /// Another TCP connection carries the session.
        Restored = c"restored",
        /// The standing is another one, which no other notice has told; the first notice of a guard.
        Changed = c"changed",
        /// The traffic of the session has earned a queue pair.
        Earned = c"earned",
        /// The peer's packets come over the queue pair.
        Moved = c"moved",
        /// Packets of both sides go over the TCP connection again.
        Returned = c"returned",
        /// A message of the peer's guard.
        Message(Vec<u8>) = c"message",
        /// The peer ends the link in order, and the port ends.
        PeerClosed = c"peer_closed",
        /// The peer broke a rule, as this text says, and the port ends.
        PeerMisbehaved(String) = c"peer_misbehaved",
        /// The positions of both sides contradict each other, as this text says, and the port ends.
        RolledBack(String) = c"rolled_back",
    }
}

named! {
    /// The reason of the loss of a TCP connection.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum Loss {
        /// The other side ended it.
        Closed = c"closed",
        /// The queue pair is lost, or the peer uses one that this side has given up: the TCP connection is given up,
        /// too.
        QueuePair = c"queue_pair",
        /// An attempt to resume gives it up.
        Superseded = c"superseded",
        /// The VM cannot watch another descriptor.
        SystemLimit = c"system_limit",
        /// It was sealed before this node did not run for a while.
        Woke = c"woke",
        /// Bytes of it were changed on their way, or somebody else has sent them.
        Damaged = c"damaged",
        /// The system's error, which the guard gets by its own name: `econnreset`.
        System(i32) = c"system",
    }
}

/// What carries the session, with a number. The guard gets it with each notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Standing {
    /// Counts the changes of the other fields. A command that changes the path names the number that it was decided on,
    /// and is refused if there is a greater one: the guard has a notice with it to come.
    pub number: u64,
    /// What the paths say.
    pub link: LinkState,
    /// The greatest number of an attempt to resume; 0: there was none.
    pub attempt: u64,
}

impl Loss {
    /// `EPIPE` of Linux (asm-generic/errno-base.h): a write behind the peer's end in order fails with this error.
    const BROKEN_PIPE: Loss = Loss::System(32);

    /// The reason of a loss by a write that has failed with `self`, where the read behind it finds `read`.
    pub(crate) fn with_read(self, read: Loss) -> Loss {
        match (self, read) {
            (Loss::BROKEN_PIPE, Loss::Closed) => Loss::Closed,
            _ => self,
        }
    }
}

impl From<Violation> for Notice {
    fn from(violation: Violation) -> Notice {
        match violation {
            Violation::RolledBack(_) => Notice::RolledBack(violation.to_string()),
            _ => Notice::PeerMisbehaved(violation.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use inet_rdma_session::Older;

    use super::*;

    #[test]
    fn each_notice_and_each_loss_has_a_name_of_its_own_in_the_list() {
        let notices = [
            Notice::Stalled,
            Notice::StallEnded,
            Notice::Busy,
            Notice::Full,
            Notice::Unread(String::new()),
            Notice::Suspected,
            Notice::Trusted,
            Notice::Lost(Loss::Closed),
            Notice::Restored,
            Notice::Changed,
            Notice::Earned,
            Notice::Moved,
            Notice::Returned,
            Notice::Message(vec![]),
            Notice::PeerClosed,
            Notice::PeerMisbehaved(String::new()),
            Notice::RolledBack(String::new()),
        ];
        let losses = [
            Loss::Closed,
            Loss::QueuePair,
            Loss::Superseded,
            Loss::SystemLimit,
            Loss::Woke,
            Loss::Damaged,
            Loss::System(0),
        ];
        assert_eq!(notices.map(|notice| notice.name()), Notice::NAMES);
        assert_eq!(losses.map(|loss| loss.name()), Loss::NAMES);
        for names in [Notice::NAMES, Loss::NAMES] {
            assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
        }
    }

    #[test]
    fn a_write_behind_an_end_in_order_tells_that_end() {
        let closed = |write: Loss, read: Loss| write.with_read(read);
        assert_eq!(closed(Loss::BROKEN_PIPE, Loss::Closed), Loss::Closed);
        assert_eq!(closed(Loss::BROKEN_PIPE, Loss::System(104)), Loss::BROKEN_PIPE);
        assert_eq!(closed(Loss::System(110), Loss::Closed), Loss::System(110));
    }

    #[test]
    fn positions_that_contradict_each_other_accuse_nobody() {
        let violation = Violation::RolledBack(Older::Own);
        assert_eq!(Notice::from(violation), Notice::RolledBack(violation.to_string()));
        let violation = Violation::Move;
        assert_eq!(Notice::from(violation), Notice::PeerMisbehaved(violation.to_string()));
    }
}

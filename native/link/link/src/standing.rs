//! Notices to the guard, each with what carries the link.

use inet_rdma_session::Memory;

use crate::link::Link;
use crate::notice::{Loss, Notice, Standing};

impl<H: AsRef<[u8]>, L: Memory> Link<H, L> {
    /// What carries the session now. Its number counts up if that differs from the last one.
    pub fn standing(&mut self) -> Standing {
        let now = self.present_standing();
        if now != self.standing {
            self.standing = Standing {
                number: now.number + 1,
                ..now
            };
        }
        self.standing
    }

    /// As [`Self::standing`], with the number of the last one.
    fn present_standing(&self) -> Standing {
        Standing {
            number: self.standing.number,
            link: self.state(),
            attempt: self.session.attempt(),
        }
    }

    /// Whether a decision on the standing with this number still holds.
    pub fn is_current(&mut self, number: u64) -> bool {
        self.standing().number == number
    }

    /// Whether the guard has not been told the present standing.
    pub(crate) fn is_change_due(&self) -> bool {
        self.is_watched && (self.told != self.standing.number || self.present_standing() != self.standing)
    }

    /// Tells the guard, if there is one.
    pub fn tell(&mut self, notice: Notice) {
        if self.is_watched {
            let standing = self.standing();
            self.told = standing.number;
            self.notices.push_back((notice, standing));
        }
    }

    /// Tells a loss. One that is told again is another standing, too: nothing holds that was decided before it.
    pub(crate) fn tell_loss(&mut self, loss: Loss) {
        self.standing.number += 1;
        self.tell(Notice::Lost(loss));
    }

    /// The next notice for the guard, with what carried the link at that time. A standing that no notice has told is
    /// told last.
    #[must_use]
    pub fn poll_notice(&mut self) -> Option<(Notice, Standing)> {
        if self.notices.is_empty() && self.is_change_due() {
            self.tell(Notice::Changed);
        }
        self.notices.pop_front()
    }
}

//! Gives up paths that do not answer.

use std::time::Instant;

use super::notices::Loss;
use super::{Fate, Link};
use crate::answers::Looks;
use crate::port::Port;
use crate::queue::Queue;

impl Link {
    /// Looks whether the paths that carry packets of either direction have answered since the last call, and asks them
    /// again. Gives up a path that has not answered for as many calls as `looks` says.
    pub fn ask(&mut self, port: Port, looks: Looks) -> Fate {
        // Before the start the paths belong to the settlement; a link that is about to end has its own deadline.
        if !self.is_started || self.deadline.is_some() {
            return Fate::Lives;
        }
        let fate = match self.ask_queue(port, looks) {
            Fate::Lives => self.ask_tcp(port, looks),
            Fate::Ends => Fate::Ends,
        };
        self.schedule(port);
        fate
    }

    fn ask_queue(&mut self, port: Port, looks: Looks) -> Fate {
        let is_sent_by_queue = self.session.is_sent_by_queue();
        let carries = |queue: &&mut Queue| is_sent_by_queue || self.session.reads_queue(queue.id());
        let Some(queue) = self.queue.as_mut().filter(carries) else {
            return Fate::Lives;
        };
        if !queue.ask(looks) {
            return Fate::Lives;
        }
        queue.give_up();
        if queue.has_ended_unread() {
            self.lose_unread_queue(port);
            return Fate::Lives;
        }
        // Read first what has arrived; this look then finds the end.
        self.look(port)
    }

    /// A connection that stands by is left to the kernel's keepalive.
    fn ask_tcp(&mut self, port: Port, looks: Looks) -> Fate {
        let is_read = self
            .queue
            .as_ref()
            .is_none_or(|queue| !self.session.reads_queue(queue.id()));
        let carries = is_read || !self.session.is_sent_by_queue();
        let Some(tcp) = &mut self.tcp else { return Fate::Lives };
        if !carries {
            tcp.forget_answers();
        } else if tcp.has_not_answered(Instant::now(), looks.until_given_up(None)) {
            // Receive first what has arrived: the peer need not send it again. It may also be the end, in order or not.
            let fate = self.receive(port);
            self.lose_tcp(port, Loss::UNANSWERED);
            return fate;
        } else {
            // The peer's kernel acknowledges this message, whether the peer's VM reads it or not.
            self.session.acknowledge();
            self.transmit(port);
        }
        Fate::Lives
    }
}

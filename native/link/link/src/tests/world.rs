//! Two nodes and what lies between them, on virtual time.

use std::time::{Duration, Instant};

use inet_rdma_paths::{Path, State};
use inet_rdma_session::{LENGTH_BYTES, Turn};

use super::network::{End, Hold, Pair, RESET, Tcp};
use super::side::{Dial, Ending, Receiver, Side, packet, start};
use crate::{Connection, Fault, Notice, QueueEnd, QueueStep, QueueWritten, Reach, Resume, Standing, TcpWritten, Work};

/// `suspect_after_ms` of both nodes.
pub const PATIENCE: Duration = Duration::from_secs(1);
/// Pieces of work in one turn: more means that the link and its caller turn in a circle.
const WORK_MAX: usize = 1000;

/// What the nodes and the network are.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Sizes of the packets of both sides, in turn.
    pub sizes: Vec<usize>,
    /// Bytes that a kernel takes for one connection.
    pub socket_bytes: usize,
    pub ring_bytes: usize,
    /// Queue pairs may be lost while the peer lives.
    pub can_be_lost: bool,
    pub is_sealed: bool,
    /// The TCP connections lead over a third node.
    pub is_detour: bool,
    /// Both sides begin on a queue pair.
    pub begins_on_queue: bool,
    /// Per side: the window that it tells. None: neither tells one.
    pub told: Option<[usize; 2]>,
}

/// A promise that was not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Broken {
    /// A packet arrived twice, changed, or out of order.
    Order,
    /// One link accuses the other though both are honest, or one ends without a reason.
    End(Ending),
    /// The link asks its caller for work without end.
    Circle,
    /// The port and its link disagree about the paths that are there.
    Paths,
    /// Bytes were written over a path that is held.
    Held,
    /// Sealed bytes were written under a nonce that has served before.
    Nonce,
    /// The guard does not know that no path carries the link, or that one is suspected.
    NotTold,
    /// The guard goes on dialling for a link that is well.
    ToldTooMuch,
    /// The log has grown beyond its bound.
    Memory,
    /// Packets never arrive though nothing more is lost.
    Stuck,
    /// Bytes wait, and neither a timer nor an event follows.
    NoTimer,
    /// A node lives on whose peer is dead.
    Death,
}

/// What may happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    Send {
        side: usize,
    },
    Control {
        side: usize,
    },
    Tick {
        side: usize,
    },
    /// The network brings bytes of this side's connection to the peer's kernel.
    Deliver {
        from: usize,
        bytes: usize,
    },
    /// The network tells the peer that this side has given up a connection.
    DeliverEnd {
        from: usize,
    },
    Read {
        side: usize,
    },
    ReadQueue {
        side: usize,
    },
    /// A timer of the side is over.
    Timer {
        side: usize,
    },
    /// Time goes to the next timer of any side, or this far.
    Pass,
    PassMs {
        ms: u64,
    },
    Reset {
        side: usize,
    },
    Cut,
    Heal,
    Settle,
    AddQueue {
        side: usize,
    },
    Move {
        side: usize,
    },
    Return {
        side: usize,
    },
    /// The side's settlement ends without a move.
    DropQueue {
        side: usize,
    },
    CutQueue,
    FailQueue,
    Dial {
        side: usize,
    },
    /// The next step of the side's attempt.
    Attempt {
        side: usize,
    },
    /// The process of the side's attempt is killed.
    KillAttempt {
        side: usize,
    },
    /// The node dies.
    Kill {
        side: usize,
    },
    /// The node's user ends the link.
    Close {
        side: usize,
    },
    Save {
        side: usize,
    },
    /// The machine is restored from its snapshot.
    Restore {
        side: usize,
    },
    /// The process stands still, and runs on.
    Stop {
        side: usize,
    },
    Continue {
        side: usize,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct World {
    pub now: Instant,
    pub sides: [Side; 2],
    pub connections: Vec<Tcp>,
    pub connections_made: u64,
    pub pairs: Vec<Pair>,
    pub pairs_made: u64,
    saved: Option<(usize, Box<Side>, Vec<Tcp>)>,
    /// A node was restored: the two may end as rolled back.
    pub was_restored: bool,
}

type Done = Result<bool, Broken>;

impl World {
    pub fn new(setup: &Setup) -> Result<World, Broken> {
        let now = start();
        let mut world = World {
            now,
            sides: [0, 1].map(|side| Side::new(side, PATIENCE)),
            connections: vec![Tcp::new(1, setup.is_detour, now)],
            connections_made: 1,
            pairs: Vec::new(),
            pairs_made: 0,
            saved: None,
            was_restored: false,
        };
        for side in 0..2 {
            world.sides[side].tcp = Some(1);
            let connection = world.facts(setup);
            if let Some(told) = setup.told {
                world.sides[side].link.tell_window(told[side]);
            }
            world.sides[side].link.handle_connected(now, connection);
            world.sides[side].link.let_questions_decide(setup.is_detour);
        }
        if setup.begins_on_queue {
            world.settle(setup);
            for side in 0..2 {
                world.add_queue(side);
                world.sides[side].link.begin_on_queue();
                world.sides[side].is_settling = false;
            }
        }
        for side in 0..2 {
            world.sides[side].link.watch();
            world.sides[side].link.start();
            world.work(setup, side)?;
        }
        Ok(world)
    }

    fn facts(&self, setup: &Setup) -> Connection {
        Connection {
            reach: Reach::Far,
            is_sealed: setup.is_sealed,
        }
    }

    pub fn connection(&mut self, id: u64) -> Option<&mut Tcp> {
        self.connections.iter_mut().find(|tcp| tcp.id == id)
    }

    fn pair(&mut self, id: Option<u64>) -> Option<&mut Pair> {
        self.pairs.iter_mut().find(|pair| Some(pair.id) == id)
    }

    /// Does it. Ok(false): it is not possible now.
    pub fn step(&mut self, setup: &Setup, action: Action) -> Done {
        let done = self.act(setup, action)?;
        for side in 0..2 {
            self.check(setup, side)?;
        }
        self.forget();
        Ok(done)
    }

    fn act(&mut self, setup: &Setup, action: Action) -> Done {
        match action {
            Action::Send { side } => self.send(setup, side),
            Action::Control { side } => self.control(setup, side),
            Action::Tick { side } => self.tick(setup, side),
            Action::Deliver { from, bytes } => self.deliver(setup, from, bytes),
            Action::DeliverEnd { from } => {
                let now_told = self.connections.iter_mut().map(|tcp| tcp.deliver_end(from));
                Ok(now_told.fold(false, |any, told| any | told))
            }
            Action::Read { side } => self.read(setup, side),
            Action::ReadQueue { side } => self.read_queue(setup, side),
            Action::Timer { side } => self.timer(setup, side),
            Action::Pass => Ok(self.pass()),
            Action::PassMs { ms } => {
                self.now += Duration::from_millis(ms);
                Ok(true)
            }
            Action::Reset { side } => self.reset(side),
            Action::Cut => Ok(self.cut(true)),
            Action::Heal => Ok(self.cut(false)),
            Action::Settle => Ok(self.settle(setup)),
            Action::AddQueue { side } => {
                let done = self.sides[side].runs() && self.add_queue(side);
                self.work(setup, side)?;
                Ok(done)
            }
            Action::Move { side } => {
                let ours = &mut self.sides[side];
                let done = ours.runs() && ours.is_settling && ours.queue.is_some() && ours.link.move_to_queue();
                ours.is_settling &= !done;
                self.work(setup, side)?;
                Ok(done)
            }
            Action::Return { side } => {
                let done = self.sides[side].runs() && self.sides[side].link.return_to_tcp();
                self.work(setup, side)?;
                Ok(done)
            }
            Action::DropQueue { side } => self.drop_queue(setup, side),
            Action::CutQueue => Ok(self.fail_queue(|pair| &mut pair.is_cut)),
            Action::FailQueue => Ok(self.fail_queue(|pair| &mut pair.has_failed)),
            Action::Dial { side } => Ok(self.dial(setup, side)),
            Action::Attempt { side } => self.attempt(setup, side),
            Action::KillAttempt { side } => Ok(self.kill_attempt(side)),
            Action::Kill { side } => Ok(self.kill(side)),
            Action::Close { side } => self.close(setup, side),
            Action::Save { side } => Ok(self.save(side)),
            Action::Restore { side } => self.restore(setup, side),
            Action::Stop { side } => Ok(self.sides[side].runs() && {
                self.sides[side].is_stopped = true;
                true
            }),
            Action::Continue { side } => self.go_on(setup, side),
        }
    }

    // The port's part.

    /// Does what the link says, as the port does at the end of each callback.
    fn work(&mut self, setup: &Setup, side: usize) -> Result<(), Broken> {
        let now = self.now;
        let mut count = 0;
        while let Some(work) = self.sides[side].link.poll_work(now) {
            count += 1;
            if count > WORK_MAX {
                return Err(Broken::Circle);
            }
            self.execute(setup, side, work)?;
        }
        if self.sides[side].queue.is_some() && self.sides[side].link.reads_queue() {
            self.sides[side].reads = true;
        }
        while let Some((notice, standing)) = self.sides[side].link.poll_notice() {
            self.notice(setup, side, &notice, standing)?;
        }
        let ours = &mut self.sides[side];
        if ours.link.is_over() && ours.guard.ending.is_none() {
            ours.guard.ending = Some(Ending::Queue);
        }
        if let Some(ending) = self.sides[side].guard.ending {
            self.end(side, ending)?;
        }
        Ok(())
    }

    fn notice(&mut self, setup: &Setup, side: usize, notice: &Notice, standing: Standing) -> Result<(), Broken> {
        let stops = self.sides[side].handle_notice(notice, standing);
        if stops {
            self.kill_attempt(side);
        }
        match notice {
            // Without a settlement under way this side has given that queue pair up.
            Notice::Moved if self.sides[side].queue.is_none() && !self.sides[side].is_settling => {
                self.sides[side].link.drop_unused_queue(self.now);
                self.work(setup, side)
            }
            // The settlement ends with its TCP connection.
            Notice::Lost(_) | Notice::Restored if self.sides[side].is_settling => {
                self.leave_awaited(side);
                self.sides[side].link.drop_unused_queue(self.now);
                self.work(setup, side)
            }
            _ => Ok(()),
        }
    }

    fn execute(&mut self, setup: &Setup, side: usize, work: Work) -> Result<(), Broken> {
        match work {
            Work::ResetTcp => {
                let id = self.sides[side].tcp.take();
                self.close_connection(side, id);
            }
            Work::DropSuperseded => {
                let id = self.sides[side].superseded.take();
                self.close_connection(side, id);
            }
            Work::CloseQueue => {
                let id = self.sides[side].queue.take();
                self.close_pair(side, id);
            }
            Work::RetireQueue => {
                let id = self.sides[side].queue.take();
                let before = std::mem::replace(&mut self.sides[side].retired, id);
                self.sides[side].reads = false;
                if before.is_some() {
                    self.close_pair(side, before);
                }
            }
            Work::CloseRetired => {
                let id = self.sides[side].retired.take();
                self.close_pair(side, id);
            }
            Work::ResizeWindow(bytes) => self.sides[side].link.handle_window(bytes, bytes),
            Work::TickQueue => {
                if self.sides[side].link.is_held(Path::QueuePair) {
                    return Err(Broken::Held);
                }
            }
            Work::Ask => {
                let (now, id) = (self.now, self.sides[side].queue);
                if let Some(pair) = self.pair(id) {
                    pair.ask(side, now);
                }
            }
            Work::Look(path) => {
                let (now, tcp, queue) = (self.now, self.sides[side].tcp, self.sides[side].queue);
                let look = match path {
                    Path::Tcp => self
                        .connection(tcp.ok_or(Broken::Paths)?)
                        .map(|tcp| tcp.look(side, now)),
                    Path::QueuePair => self.pair(queue).map(|pair| pair.look(side, now)),
                };
                let look = look.ok_or(Broken::Paths)?;
                self.sides[side].link.handle_look(path, now, look);
            }
            Work::Transmit(path) if self.sides[side].link.is_held(path) => return Err(Broken::Held),
            Work::Transmit(Path::Tcp) => self.transmit(setup, side)?,
            Work::Transmit(Path::QueuePair) => self.transmit_by_queue(setup, side)?,
            Work::SetBusy(is_busy) => self.sides[side].is_busy = is_busy,
        }
        Ok(())
    }

    fn transmit(&mut self, setup: &Setup, side: usize) -> Result<(), Broken> {
        let now = self.now;
        let id = self.sides[side].tcp.ok_or(Broken::Paths)?;
        let before = self.sides[side].link.session().tcp_bytes();
        let mut written = TcpWritten::All;
        while self.sides[side].link.session_mut().poll_transmit() {
            let end = self.connection(id).map_or(End::Closed, |tcp| tcp.ends[side]);
            if let End::Ended(loss) = end {
                written = TcpWritten::Failed(loss);
                break;
            }
            let mut bytes = Vec::new();
            self.sides[side].link.session().transmission(|slice| {
                bytes.extend_from_slice(slice);
                true
            });
            let tcp = self.connection(id).ok_or(Broken::Paths)?;
            let room = setup.socket_bytes.saturating_sub(tcp.directions[side].sending.len());
            bytes.truncate(room);
            self.write(setup, side, id, &bytes)?;
            self.sides[side].link.session_mut().handle_transmitted(bytes.len());
            if bytes.len() == room {
                written = TcpWritten::Blocked;
                break;
            }
        }
        self.sides[side].link.handle_tcp_written(now, before, 0, written);
        Ok(())
    }

    /// Sealed bytes have the place of their first byte as the nonce.
    fn write(&mut self, setup: &Setup, side: usize, id: u64, bytes: &[u8]) -> Result<(), Broken> {
        let now = self.now;
        let place = *self.sides[side].written_to(id);
        let tcp = self.connection(id).ok_or(Broken::Paths)?;
        if setup.is_sealed && place < tcp.directions[side].written {
            return Err(Broken::Nonce);
        }
        tcp.write(side, bytes, now);
        *self.sides[side].written_to(id) += bytes.len() as u64;
        Ok(())
    }

    fn transmit_by_queue(&mut self, setup: &Setup, side: usize) -> Result<(), Broken> {
        let (now, id) = (self.now, self.sides[side].queue);
        self.hear_read(side);
        let Some(pair) = self.pair(id) else {
            return Err(Broken::Paths);
        };
        let (room, is_gone) = (pair.room(side, setup.ring_bytes), pair.has_failed);
        let link = &mut self.sides[side].link;
        let before = link.session().unsent_bytes();
        let mut bytes = Vec::new();
        link.session().queue_slices(room, |slice| {
            bytes.extend_from_slice(slice);
            true
        });
        let mut written = QueueWritten::All;
        if !is_gone {
            link.session_mut().handle_queued(bytes.len());
            let mut left = false;
            link.session().queue_slices(1, |_| {
                left = true;
                false
            });
            if left {
                written = QueueWritten::Blocked;
            }
            self.put(side, &bytes, written == QueueWritten::Blocked);
        }
        self.sides[side].link.handle_queue_written(now, before, written);
        Ok(())
    }

    fn put(&mut self, side: usize, bytes: &[u8], is_full: bool) {
        let id = self.sides[side].queue;
        if let Some(pair) = self.pair(id) {
            let ring = &mut pair.rings[side];
            ring.unread.extend(bytes);
            ring.written += bytes.len() as u64;
            ring.is_full = is_full;
        }
    }

    fn hear_read(&mut self, side: usize) {
        let id = self.sides[side].queue;
        if let Some(read) = self.pair(id).map(|pair| pair.rings[side].acknowledged) {
            let link = &mut self.sides[side].link;
            if link.wants_queue_read() {
                link.handle_queue_read(read);
            }
        }
    }

    fn send(&mut self, setup: &Setup, side: usize) -> Done {
        let ours = &mut self.sides[side];
        if !ours.runs() || ours.is_busy {
            return Ok(false);
        }
        let packet = packet(side, ours.sent, &setup.sizes);
        ours.sent += 1;
        if !ours.link.is_sent_by_queue() {
            if ours.link.append_for_tcp(packet.len(), |log| log.copy(&packet)) {
                ours.link.handle_appended_for_tcp(self.now, packet.len());
            }
        } else if ours.link.has_writable_queue() {
            self.send_by_queue(setup, side, &packet);
        } else {
            ours.link.append(packet.len(), |log| log.copy(&packet));
        }
        self.work(setup, side)?;
        Ok(true)
    }

    fn send_by_queue(&mut self, setup: &Setup, side: usize, packet: &[u8]) {
        let (now, id) = (self.now, self.sides[side].queue);
        let room = self.pair(id).map_or(0, |pair| {
            if pair.has_failed {
                0
            } else {
                pair.room(side, setup.ring_bytes)
            }
        });
        let link = &mut self.sides[side].link;
        match link.queue_step(packet.len(), false) {
            QueueStep::Pass => {
                let length = (packet.len() as u32).to_be_bytes();
                let framed = [&length[..], packet].concat();
                let taken = framed.len().min(room);
                link.handle_passed(taken, framed.len(), |log| log.copy(&framed[taken..]));
                self.put(side, &framed[..taken], false);
            }
            QueueStep::Append { may_gather } => {
                link.append(packet.len(), |log| log.copy(packet));
                link.handle_appended_for_queue(may_gather);
            }
        }
        let link = &mut self.sides[side].link;
        if link.wants_data_written(Path::QueuePair) {
            link.handle_data_written(Path::QueuePair, now);
        }
    }

    fn control(&mut self, setup: &Setup, side: usize) -> Done {
        if !self.sides[side].runs() {
            return Ok(false);
        }
        let done = self.sides[side].link.control(self.now, &[7; 3]);
        self.work(setup, side)?;
        Ok(done)
    }

    fn tick(&mut self, setup: &Setup, side: usize) -> Done {
        if !self.sides[side].runs() {
            return Ok(false);
        }
        self.sides[side].link.look_before_tick();
        self.work(setup, side)?;
        self.sides[side].link.tick(self.now);
        self.work(setup, side)?;
        Ok(true)
    }

    fn deliver(&mut self, setup: &Setup, from: usize, bytes: usize) -> Done {
        let now = self.now;
        let mut done = false;
        for tcp in &mut self.connections {
            done |= tcp.deliver(from, bytes, now);
        }
        let ours = &mut self.sides[from];
        if done && ours.runs() && ours.link.waits_for_tcp_room() {
            ours.link.handle_writable();
            self.work(setup, from)?;
        }
        Ok(done)
    }

    fn read(&mut self, setup: &Setup, side: usize) -> Done {
        let Some(id) = self.sides[side].tcp.filter(|_| self.sides[side].runs()) else {
            return Ok(false);
        };
        let received = self.receive(setup, side, id)?;
        let Some(received) = received else {
            return Ok(false);
        };
        self.sides[side].link.handle_received(self.now, true, received);
        let _measured = self.sides[side].link.take_round_trip();
        self.work(setup, side)?;
        Ok(true)
    }

    /// Gives the session what the kernel has. None: nothing has come.
    fn receive(&mut self, setup: &Setup, side: usize, id: u64) -> Result<Option<Result<(), Fault<'static>>>, Broken> {
        let has_failed = self.sides[side].link.has_failed_tcp();
        let tcp = self.connection(id).ok_or(Broken::Paths)?;
        let bytes: Vec<u8> = tcp.directions[1 - side].arrived.drain(..).collect();
        let end = tcp.ends[side];
        let mut received = match (bytes.is_empty(), end) {
            (true, End::Ended(loss)) => Some(Err(Fault::Lost(loss))),
            (true, _) if has_failed => Some(Ok(())),
            (true, _) => None,
            (false, _) => Some(Ok(())),
        };
        let ours = &mut self.sides[side];
        let mut receiver = Receiver {
            from: 1 - side,
            sizes: &setup.sizes,
            arrived: &mut ours.arrived,
            is_wrong: false,
        };
        if let Err(violation) = ours
            .link
            .session_mut()
            .handle_input(&bytes, &mut Turn::unbounded(), &mut receiver)
        {
            received = Some(Err(Fault::Violation(violation)));
        }
        if receiver.is_wrong {
            Err(Broken::Order)
        } else {
            Ok(received)
        }
    }

    fn read_queue(&mut self, setup: &Setup, side: usize) -> Done {
        let id = self.sides[side].queue;
        if !self.sides[side].runs() || self.sides[side].link.is_held(Path::QueuePair) {
            return Ok(false);
        }
        let reads = self.sides[side].reads;
        let Some(pair) = self.pair(id) else { return Ok(false) };
        let has_ended = pair.has_failed || pair.holds[1 - side] == Hold::Gone;
        if !reads {
            if has_ended {
                self.sides[side].link.handle_unread_queue_end(self.now);
                self.work(setup, side)?;
            }
            return Ok(has_ended);
        }
        let (can_be_lost, has_failed, is_cut) = (pair.can_be_lost, pair.has_failed, pair.is_cut);
        let (taken, packets, bytes) = if pair.is_cut {
            (0, 0, 0)
        } else {
            self.take_packets(setup, side)?
        };
        let now = self.now;
        let wakes_peer = match self.pair(id) {
            Some(pair) => pair.handle_read(1 - side, taken, setup.ring_bytes),
            None => false,
        };
        self.sides[side].link.session_mut().handle_queue_packets(bytes);
        self.hear_read(side);
        self.sides[side].link.handle_queue_packets(now, packets, false);
        self.work(setup, side)?;
        if wakes_peer && self.sides[1 - side].queue == id && self.sides[1 - side].runs() {
            self.hear_read(1 - side);
            self.sides[1 - side].link.handle_queue_packets(now, 0, true);
            self.work(setup, 1 - side)?;
        }
        if has_ended && taken == 0 && self.sides[side].queue == id && self.sides[side].runs() {
            let end = if can_be_lost && (has_failed || is_cut) || self.sides[1 - side].is_dead {
                QueueEnd::Lost
            } else {
                QueueEnd::Closed
            };
            self.sides[side].link.handle_queue_end(now, end);
            self.work(setup, side)?;
            return Ok(true);
        }
        Ok(taken > 0)
    }

    /// Empties the peer's ring. Returns the bytes in it, and the number and bytes of the packets that are whole.
    fn take_packets(&mut self, setup: &Setup, side: usize) -> Result<(usize, usize, usize), Broken> {
        let id = self.sides[side].queue;
        let (mut packets, mut bytes) = (0, 0);
        let taken = self.pair(id).map_or(0, |pair| {
            let ring = &mut pair.rings[1 - side];
            let taken = ring.unread.len();
            ring.assembly.extend(ring.unread.drain(..));
            taken
        });
        loop {
            let number = self.sides[side].arrived;
            let expected = packet(1 - side, number, &setup.sizes);
            let Some(pair) = self.pair(id) else { break };
            let unread = &mut pair.rings[1 - side].assembly;
            let framed = LENGTH_BYTES + expected.len();
            if unread.len() < framed {
                break;
            }
            let taken: Vec<u8> = unread.drain(..framed).collect();
            if taken[..LENGTH_BYTES] != (expected.len() as u32).to_be_bytes() || taken[LENGTH_BYTES..] != expected {
                return Err(Broken::Order);
            }
            self.sides[side].arrived += 1;
            packets += 1;
            bytes += framed;
        }
        Ok((taken, packets, bytes))
    }

    fn timer(&mut self, setup: &Setup, side: usize) -> Done {
        let ours = &mut self.sides[side];
        let is_due = ours.link.is_gathering() || ours.link.poll_timeout().is_some_and(|at| at <= self.now);
        if !ours.runs() || !is_due {
            return Ok(false);
        }
        ours.link.handle_timeout(self.now);
        self.work(setup, side)?;
        Ok(true)
    }

    /// The time of the next timer, of sides that run.
    pub fn next_timer(&self) -> Option<Instant> {
        let running = self.sides.iter().filter(|side| side.runs());
        running.filter_map(|side| side.link.poll_timeout()).min()
    }

    fn pass(&mut self) -> bool {
        match self.next_timer().filter(|at| *at > self.now) {
            Some(at) => {
                self.now = at;
                true
            }
            None => false,
        }
    }

    // The network's part.

    fn close_connection(&mut self, side: usize, id: Option<u64>) {
        if let Some(tcp) = id.and_then(|id| self.connection(id)) {
            tcp.ends[side] = End::Closed;
        }
    }

    fn close_pair(&mut self, side: usize, id: Option<u64>) {
        self.sides[side].reads = false;
        if let Some(pair) = self.pair(id) {
            pair.holds[side] = Hold::Gone;
        }
    }

    fn reset(&mut self, side: usize) -> Done {
        let Some(id) = self.sides[side].tcp else {
            return Ok(false);
        };
        let tcp = self.connection(id).ok_or(Broken::Paths)?;
        let is_open = tcp.ends[side] == End::Open;
        if is_open {
            tcp.ends[side] = End::Ended(RESET);
        }
        Ok(is_open)
    }

    fn cut(&mut self, is_cut: bool) -> bool {
        let changes = self.connections.iter().any(|tcp| tcp.is_cut != is_cut);
        self.connections.iter_mut().for_each(|tcp| tcp.is_cut = is_cut);
        changes
    }

    fn fail_queue(&mut self, field: impl Fn(&mut Pair) -> &mut bool) -> bool {
        let mut done = false;
        for pair in self.pairs.iter_mut().filter(|pair| pair.can_be_lost) {
            done |= !std::mem::replace(field(pair), true);
            for ring in &mut pair.rings {
                ring.unread.clear();
            }
        }
        done
    }

    fn settle(&mut self, setup: &Setup) -> bool {
        let [first, second] = &self.sides;
        let is_free = |side: &Side| {
            side.tcp.is_some() && side.queue.is_none() && !side.link.is_sent_by_queue() && !side.guard.dials
        };
        if first.tcp != second.tcp || !is_free(first) || !is_free(second) || self.is_awaited(0) || self.is_awaited(1) {
            return false;
        }
        self.pairs_made += 1;
        self.pairs.push(Pair::new(self.pairs_made, setup.can_be_lost));
        self.sides.iter_mut().for_each(|side| side.is_settling = true);
        true
    }

    fn is_awaited(&self, side: usize) -> bool {
        self.pairs.iter().any(|pair| pair.holds[side] == Hold::Awaited)
    }

    fn leave_awaited(&mut self, side: usize) {
        self.sides[side].is_settling = false;
        for pair in &mut self.pairs {
            if pair.holds[side] == Hold::Awaited {
                pair.holds[side] = Hold::Gone;
            }
        }
    }

    fn has_queue(&self, side: usize) -> bool {
        self.sides[side].queue.is_some()
    }

    fn add_queue(&mut self, side: usize) -> bool {
        let awaited = self.pairs.iter_mut().find(|pair| pair.holds[side] == Hold::Awaited);
        let Some(pair) = awaited.filter(|_| self.sides[side].queue.is_none()) else {
            return false;
        };
        pair.holds[side] = Hold::Had;
        let (id, can_be_lost) = (pair.id, pair.can_be_lost);
        self.sides[side].queue = Some(id);
        self.sides[side].reads = false;
        self.sides[side].link.add_queue(id, can_be_lost);
        true
    }

    fn drop_queue(&mut self, setup: &Setup, side: usize) -> Done {
        if !self.sides[side].runs() || !self.sides[side].is_settling {
            return Ok(false);
        }
        self.leave_awaited(side);
        self.sides[side].link.drop_unused_queue(self.now);
        self.work(setup, side)?;
        Ok(true)
    }

    // Attempts.

    fn dial(&mut self, setup: &Setup, side: usize) -> bool {
        let ours = &self.sides[side];
        let is_cut = self.connections.iter().any(|tcp| tcp.is_cut);
        if !ours.runs() || !ours.guard.dials || ours.dial.is_some() || is_cut || self.sides[1 - side].is_stopped {
            return false;
        }
        if self.sides[1 - side].is_dead || self.sides[1 - side].is_over() {
            // The peer's host refuses, and the verdict is death.
            self.sides[side].guard.ending = Some(Ending::Dead);
            return true;
        }
        self.connections_made += 1;
        let connection = self.connections_made;
        self.connections.push(Tcp::new(connection, setup.is_detour, self.now));
        let number = self.sides[side].link.next_attempt();
        self.sides[side].dial = Some(Dial::Connected { number, connection });
        true
    }

    /// The connection of an attempt passes bytes.
    fn reaches(&mut self, side: usize, connection: u64) -> bool {
        let peer_runs = self.sides[1 - side].runs();
        self.connection(connection)
            .is_some_and(|tcp| tcp.passes() && peer_runs && tcp.ends[side] == End::Open)
    }

    fn suspend(
        &mut self,
        setup: &Setup,
        side: usize,
        number: u64,
    ) -> Result<Option<inet_rdma_session::Standing>, Broken> {
        if !self.sides[side].link.is_newer(number) {
            return Ok(None);
        }
        let mut received = Ok(());
        if let Some(id) = self.sides[side].tcp.take() {
            received = self.receive(setup, side, id)?.unwrap_or(Ok(()));
            let before = self.sides[side].superseded.replace(id);
            self.close_connection(side, before);
        }
        let now = self.now;
        let standing = self.sides[side].link.suspend(now, number, received);
        self.work(setup, side)?;
        Ok(standing)
    }

    fn attempt(&mut self, setup: &Setup, side: usize) -> Done {
        let Some(dial) = self.sides[side].dial.filter(|_| self.sides[side].runs()) else {
            return Ok(false);
        };
        if self.sides[1 - side].is_dead || self.sides[1 - side].is_over() {
            return Ok(self.kill_attempt(side));
        }
        if !self.reaches(side, dial.connection()) {
            return Ok(false);
        }
        match dial {
            Dial::Connected { number, connection } => {
                let accepts = self.sides[1 - side].link.accepts(number);
                let ours = if accepts {
                    self.suspend(setup, side, number)?
                } else {
                    None
                };
                match ours {
                    Some(ours) if self.sides[side].dial == Some(dial) => {
                        self.sides[side].dial = Some(Dial::Asked {
                            number,
                            connection,
                            ours,
                        });
                    }
                    _ => {
                        self.kill_attempt(side);
                    }
                }
            }
            Dial::Asked {
                number,
                connection,
                ours,
            } => {
                let peer = 1 - side;
                let Some(theirs) = self.suspend(setup, peer, number)? else {
                    self.kill_attempt(side);
                    return Ok(true);
                };
                if !self.sides[peer].runs() {
                    return Ok(true);
                }
                let is_resumed = self.resume(setup, peer, number, connection, ours)?;
                if !is_resumed && self.sides[peer].runs() {
                    self.sides[peer].link.abandon(number);
                    self.work(setup, peer)?;
                }
                if self.sides[side].dial == Some(dial) {
                    self.sides[side].dial = Some(Dial::Answered {
                        number,
                        connection,
                        theirs,
                    });
                }
            }
            Dial::Answered {
                number,
                connection,
                theirs,
            } => {
                self.sides[side].dial = None;
                self.resume(setup, side, number, connection, theirs)?;
            }
        }
        Ok(true)
    }

    fn resume(
        &mut self,
        setup: &Setup,
        side: usize,
        number: u64,
        connection: u64,
        theirs: inet_rdma_session::Standing,
    ) -> Done {
        let (now, facts) = (self.now, self.facts(setup));
        let resume = self.sides[side].link.resume(now, number, theirs);
        self.work(setup, side)?;
        match resume {
            Resume::Connects => {
                self.sides[side].tcp = Some(connection);
                let link = &mut self.sides[side].link;
                link.handle_resumed(now, facts);
                link.let_questions_decide(setup.is_detour);
            }
            Resume::Outdated | Resume::Reset | Resume::Refused => self.close_connection(side, Some(connection)),
        }
        self.work(setup, side)?;
        Ok(resume == Resume::Connects)
    }

    fn kill_attempt(&mut self, side: usize) -> bool {
        let Some(dial) = self.sides[side].dial.take() else {
            return false;
        };
        self.close_connection(side, Some(dial.connection()));
        true
    }

    // Ends.

    fn end(&mut self, side: usize, ending: Ending) -> Result<(), Broken> {
        let peer = &self.sides[1 - side];
        let may = match ending {
            Ending::Closed => true,
            Ending::PeerClosed => peer.is_over() || peer.is_dead,
            Ending::Misbehaved => false,
            Ending::RolledBack => self.was_restored,
            Ending::Dead | Ending::Queue => peer.is_dead || peer.is_over() || self.was_restored,
        };
        if !may {
            return Err(Broken::End(ending));
        }
        self.leave(side);
        Ok(())
    }

    fn leave(&mut self, side: usize) {
        self.kill_attempt(side);
        self.leave_awaited(side);
        let ours = &mut self.sides[side];
        let ids = [ours.tcp.take(), ours.superseded.take()];
        let pairs = [ours.queue.take(), ours.retired.take()];
        ids.into_iter().for_each(|id| self.close_connection(side, id));
        // The kernel ends the peer's attempts, too.
        for tcp in self.connections.iter_mut().filter(|tcp| tcp.ends[side] == End::Open) {
            tcp.ends[side] = End::Closed;
        }
        pairs.into_iter().for_each(|id| self.close_pair(side, id));
    }

    fn kill(&mut self, side: usize) -> bool {
        let dies = !self.sides[side].is_dead && !self.sides[side].is_over();
        if dies {
            self.leave(side);
            self.sides[side].is_dead = true;
        }
        dies
    }

    /// The port ends in order.
    fn close(&mut self, setup: &Setup, side: usize) -> Done {
        if !self.sides[side].runs() {
            return Ok(false);
        }
        if let Some(id) = self.sides[side].tcp {
            if !self.sides[side].link.is_held(Path::Tcp) {
                self.sides[side].link.session_mut().end();
                self.transmit(setup, side)?;
                // The kernel goes on to send what it has.
                if let Some(tcp) = self.connection(id).filter(|tcp| tcp.passes()) {
                    let sending = std::mem::take(&mut tcp.directions[side].sending);
                    tcp.directions[side].arrived.extend(sending);
                }
            }
        }
        self.sides[side].guard.ending = Some(Ending::Closed);
        self.leave(side);
        Ok(true)
    }

    // Clocks.

    fn save(&mut self, side: usize) -> bool {
        // An attempt is not in the snapshot: the model has its connection twice then.
        let may = self.saved.is_none() && self.sides[side].runs() && self.sides.iter().all(|side| side.dial.is_none());
        if may {
            let side_state = Box::new(self.sides[side].clone());
            self.saved = Some((side, side_state, self.connections.clone()));
        }
        may
    }

    fn restore(&mut self, setup: &Setup, side: usize) -> Done {
        // A queue pair over a device does not come back with a snapshot; one over shared memory is on the same host.
        let Some((saved, state, connections)) = self.saved.take_if(|(saved, ..)| *saved == side) else {
            return Ok(false);
        };
        if !self.sides[side].runs() || state.queue.is_some() || self.has_queue(side) || self.sides[1 - side].is_over() {
            return Ok(false);
        }
        self.kill_attempt(saved);
        self.kill_attempt(1 - saved);
        let given_up = [self.sides[side].tcp, self.sides[side].superseded];
        self.sides[side] = *state;
        self.was_restored = true;
        let kept = [self.sides[side].tcp, self.sides[side].superseded];
        for id in given_up.into_iter().filter(|id| !kept.contains(id)) {
            // The kernel of the restored machine does not know the connection.
            self.close_connection(side, id);
        }
        for then in connections.iter().filter(|then| kept.contains(&Some(then.id))) {
            if self.connection(then.id).is_none() {
                // The peer has forgotten it.
                let mut gone = then.clone();
                gone.ends[1 - side] = End::Closed;
                gone.is_out_of_step = true;
                self.connections.push(gone);
            }
        }
        for tcp in &mut self.connections {
            let then = connections.iter().find(|then| then.id == tcp.id);
            let is_same = then.is_some_and(|then| then.directions == tcp.directions && then.ends == tcp.ends);
            tcp.is_out_of_step |= !is_same && kept.contains(&Some(tcp.id));
            // The kernel was restored, too.
            if let Some(then) = then {
                tcp.directions[1 - side].arrived = then.directions[1 - side].arrived.clone();
                tcp.directions[side].sending = then.directions[side].sending.clone();
            }
        }
        self.sides[side].link.hold_writes(self.now);
        self.work(setup, side)?;
        Ok(true)
    }

    fn go_on(&mut self, setup: &Setup, side: usize) -> Done {
        if !std::mem::take(&mut self.sides[side].is_stopped) {
            return Ok(false);
        }
        if self.sides[side].runs() {
            self.sides[side].link.hold_writes(self.now);
            // The socket may have become writable meanwhile.
            let tcp = self.sides[side].tcp.and_then(|id| self.connection(id));
            let has_room = tcp.is_some_and(|tcp| tcp.directions[side].sending.len() < setup.socket_bytes);
            if has_room && self.sides[side].link.waits_for_tcp_room() {
                self.sides[side].link.handle_writable();
            }
            self.work(setup, side)?;
        }
        Ok(true)
    }

    /// Drops what nobody has any longer.
    fn forget(&mut self) {
        let is_used = |id: u64| {
            self.sides.iter().any(|side| {
                side.tcp == Some(id)
                    || side.superseded == Some(id)
                    || side.dial.is_some_and(|dial| dial.connection() == id)
            })
        };
        let used: Vec<u64> = self
            .connections
            .iter()
            .map(|tcp| tcp.id)
            .filter(|&id| is_used(id))
            .collect();
        self.connections.retain(|tcp| used.contains(&tcp.id));
        for side in &mut self.sides {
            side.written.retain(|(id, _)| used.contains(id));
        }
        self.pairs.retain(|pair| pair.holds != [Hold::Gone; 2]);
    }

    /// What must hold between two callbacks.
    fn check(&mut self, setup: &Setup, side: usize) -> Result<(), Broken> {
        let ours = &self.sides[side];
        if !ours.runs() {
            return Ok(());
        }
        if ours.tcp.is_some() != ours.link.has_tcp() || ours.queue != ours.link.session().path() {
            return Err(Broken::Paths);
        }
        let state = ours.link.state();
        let is_resuming = ours.link.tcp.attempt_until().is_some();
        let is_unknown = state.state == State::Suspended && !is_resuming && !ours.guard.dials;
        let is_suspected = [Path::Tcp, Path::QueuePair]
            .iter()
            .any(|&path| ours.link.paths().is_suspected(path));
        if is_unknown || is_suspected && !ours.guard.dials {
            return Err(Broken::NotTold);
        }
        if ours.guard.dials && ours.link.has_tcp() && !is_suspected && state.state == State::Carried {
            return Err(Broken::ToldTooMuch);
        }
        let largest = setup.sizes.iter().max().copied().unwrap_or(0) + LENGTH_BYTES;
        // The VM keeps packets while the port is busy.
        let bound = ours.link.window_bytes() + 2 * largest + (256 << 10);
        if ours.link.session().logged_bytes() > bound {
            return Err(Broken::Memory);
        }
        Ok(())
    }
}

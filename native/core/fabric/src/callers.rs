//! Peers that have connected to a listening socket and have not said hello yet. No call blocks: they wait in an epoll
//! set.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::SocketFlags;

use crate::FabricError;
use crate::closing::{self, Stray};
use crate::crash::EndsAtCrash;

/// Ports to try if any free one will do: the dynamic ports of the IANA.
const EPHEMERAL: RangeInclusive<u16> = 49152..=65535;

/// How long to leave callers in the kernel's backlog when the process has no file descriptor to take them with.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);

/// Events looked at in one go, and callers taken for one of them.
const EVENTS: usize = 32;

/// The listening socket in the epoll set; callers are numbered from 1.
const LISTENING: u64 = 0;

const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// A listening socket, which refuses connections from a crash of the VM on.
#[derive(Debug)]
pub struct Listening {
    _ends_at_crash: EndsAtCrash,
    socket: OwnedFd,
}

impl From<OwnedFd> for Listening {
    fn from(socket: OwnedFd) -> Listening {
        Listening {
            _ends_at_crash: EndsAtCrash::enter(socket.as_fd()),
            socket,
        }
    }
}

impl AsFd for Listening {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A listening socket and its callers. `Progress` is the part of a caller's hello that has arrived. `Socket`: a
/// caller's connection; [`Stray`] where it can bring files.
pub struct Callers<Progress, Socket = OwnedFd> {
    listening: Arc<Listening>,
    epoll: OwnedFd,
    waiting: HashMap<u64, Caller<Progress, Socket>>,
    next_number: u64,
    /// Set while the listening socket is out of the epoll set.
    paused_until: Option<Instant>,
}

/// A caller's connection.
pub trait CallerSocket: AsFd + From<OwnedFd> {
    /// False: callers stay in the kernel's backlog for a while.
    fn has_room() -> bool {
        true
    }
}

impl CallerSocket for OwnedFd {}

impl CallerSocket for Stray {
    fn has_room() -> bool {
        closing::has_room()
    }
}

/// A peer that has connected.
pub struct Caller<Progress, Socket = OwnedFd> {
    number: u64,
    deadline: Instant,
    /// Its connection.
    pub socket: Socket,
    /// The part of its hello that has arrived.
    pub progress: Progress,
}

/// What [`Callers::look`] finds.
pub enum Call<Socket = OwnedFd> {
    /// Another peer has connected: [`Callers::add`] lets it wait.
    Connected(Socket),
    /// The caller of this number says something, or hangs up: [`Callers::take`].
    Readable(u64),
    /// The deadline of the caller of this number is over: [`Callers::take`].
    Silent(u64),
    /// A caller could not be taken, or the epoll set not be read.
    Failed(FabricError),
}

impl<Progress, Socket: CallerSocket> Callers<Progress, Socket> {
    /// For a listening socket that is non-blocking.
    pub fn of(listening: Arc<Listening>) -> Result<Callers<Progress, Socket>, FabricError> {
        let epoll =
            epoll::create(CreateFlags::CLOEXEC).map_err(|errno| FabricError::system("creating an epoll set", errno))?;
        let callers = Callers {
            listening,
            epoll,
            waiting: HashMap::new(),
            next_number: LISTENING + 1,
            paused_until: None,
        };
        callers.watch(callers.listening.as_fd(), LISTENING)?;
        Ok(callers)
    }

    /// How many wait.
    pub fn count(&self) -> usize {
        self.waiting.len()
    }

    /// When [`Self::look`] has something to do without an event.
    pub fn next_deadline(&self) -> Option<Instant> {
        let deadlines = self.waiting.values().map(|caller| caller.deadline);
        deadlines.chain(self.paused_until).min()
    }

    /// The events since the last call.
    pub fn look(&mut self) -> Vec<Call<Socket>> {
        self.end_pause();
        let mut calls = Vec::new();
        let mut events = Vec::with_capacity(EVENTS);
        match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&NOW)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => calls.push(Call::Failed(FabricError::system("waiting for peers", errno))),
        }
        for event in events {
            match event.data.u64() {
                LISTENING => self.take_connected(&mut calls),
                number => calls.push(Call::Readable(number)),
            }
        }
        let now = Instant::now();
        let silent = self.waiting.iter().filter(|(_, caller)| caller.deadline <= now);
        calls.extend(silent.map(|(number, _)| Call::Silent(*number)));
        calls
    }

    /// Takes peers out of the kernel's backlog.
    fn take_connected(&mut self, calls: &mut Vec<Call<Socket>>) {
        for _ in 0..EVENTS {
            if !Socket::has_room() {
                return self.pause();
            }
            match rustix::net::accept_with(&self.listening, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => calls.push(Call::Connected(socket.into())),
                Err(Errno::AGAIN) => return,
                Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => {
                    calls.push(Call::Failed(FabricError::system("accepting a connection", errno)));
                    return self.pause();
                }
                // The VM has crashed, and writes its dump.
                Err(Errno::INVAL) => return self.pause(),
                // Other errors: the caller's connection has ended (accept(2)).
                Err(_) => {}
            }
        }
    }

    /// Nobody can be accepted now: the process has no descriptor left, or the system no memory, or too many files are
    /// being closed. The listening socket stays readable, so without a pause the thread that waits on the epoll set
    /// would spin.
    fn pause(&mut self) {
        if epoll::delete(&self.epoll, &self.listening).is_ok() {
            self.paused_until = Some(Instant::now() + EXHAUSTED_PAUSE);
        }
    }

    fn end_pause(&mut self) {
        if self.paused_until.is_some_and(|until| until <= Instant::now()) {
            let watched = self.watch(self.listening.as_fd(), LISTENING);
            self.paused_until = watched.is_err().then(|| Instant::now() + EXHAUSTED_PAUSE);
        }
    }

    fn watch(&self, socket: BorrowedFd<'_>, number: u64) -> Result<(), FabricError> {
        epoll::add(&self.epoll, socket, EventData::new_u64(number), EventFlags::IN)
            .map_err(|errno| FabricError::system("watching a socket", errno))
    }

    /// Waits for the hello of a peer that has connected, for `timeout` at most.
    pub fn add(&mut self, socket: Socket, progress: Progress, timeout: Duration) -> Result<(), FabricError> {
        let number = self.next_number;
        self.watch(socket.as_fd(), number)?;
        self.next_number += 1;
        self.wait_for(Caller {
            number,
            deadline: Instant::now() + timeout,
            socket,
            progress,
        });
        Ok(())
    }

    /// Removes the caller with this number. None: there is none.
    pub fn take(&mut self, number: u64) -> Option<Caller<Progress, Socket>> {
        self.waiting.remove(&number)
    }

    /// Waits for more of a caller that [`Self::take`] has given.
    pub fn wait_for(&mut self, caller: Caller<Progress, Socket>) {
        self.waiting.insert(caller.number, caller);
    }

    /// Takes a caller's connection, which lives on elsewhere, out of the epoll set.
    pub fn release(&self, socket: &Socket) {
        // Fails only for a connection that is not in the set.
        let _absent = epoll::delete(&self.epoll, socket);
    }
}

/// Readable when [`Callers::look`] finds something.
impl<Progress, Socket> AsFd for Callers<Progress, Socket> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// Binds the first free port of the range, 0..=0: any port. Returns the result of `bind` and the port. `bind` gives
/// None for a port that is taken.
pub fn bind_first_free<Bound>(
    ports: &RangeInclusive<u16>,
    mut bind: impl FnMut(u16) -> Result<Option<Bound>, FabricError>,
) -> Result<(Bound, u16), FabricError> {
    let is_any = *ports.start() == 0 && *ports.end() == 0;
    let (first, last) = if is_any { EPHEMERAL } else { ports.clone() }.into_inner();
    let count = u32::from(last.saturating_sub(first)) + 1;
    // Starting anywhere makes it unlikely that a port is used again soon, and that many nodes search long.
    let start = if is_any {
        (RandomState::new().hash_one(first) % u64::from(count)) as u32
    } else {
        0
    };
    for step in 0..count {
        let port = first + ((start + step) % count) as u16;
        if let Some(bound) = bind(port)? {
            return Ok((bound, port));
        }
    }
    Err(FabricError::PortsTaken { first, last })
}

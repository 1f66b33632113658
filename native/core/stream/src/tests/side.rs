//! One side of a small world: a stream, its caller and the memory that the peer writes into.

use std::collections::VecDeque;

use super::world::{Broken, Setup};
use crate::{Arrival, NewRing, Notice, Receive, ReceiveId, RemoteAddress, Stream};

/// A cell of memory: the number of the stream's byte that it holds.
type Cell = u16;

/// Nothing was written here since the caller got the memory.
const EMPTY: Cell = Cell::MAX;

fn cell(index: u64) -> Cell {
    (index % u64::from(Cell::MAX)) as Cell
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FilledReceive {
    buffer: usize,
    filled: usize,
    fill: bool,
}

/// The memory of a ring, from the moment that the peer learns of it to the last byte that is read out of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct RingMemory {
    key: u64,
    cells: Vec<Cell>,
}

/// The first ring of each side; those that replace it count on from there.
const FIRST_RING: u64 = 100;

/// Offset 0 is not address 0.
const RING_ADDRESS: u64 = 1000;

fn ring_place(key: u64) -> RemoteAddress {
    RemoteAddress {
        key,
        address: RING_ADDRESS,
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Side {
    pub stream: Stream,
    /// The ring that is read, the ring that is written, if it is another one, and a ring that is announced.
    rings: VecDeque<RingMemory>,
    /// Rings that have been announced, and recalls.
    pub replaced: usize,
    pub recalls: u8,
    /// The first of `rings` is no longer written.
    reads_old: bool,
    /// Bytes in the ring and under way to it.
    ring_load: u32,
    buffers: Vec<Vec<Cell>>,
    pub posted: VecDeque<FilledReceive>,
    /// Bytes sent, and bytes read.
    pub sent: u64,
    pub read: u64,
    pub finished: bool,
    /// The caller has closed the connection: from now on nothing is sent from here or arrives here.
    pub closed: bool,
    pub ticks: u8,
    /// Number of credit messages since the last other event of this side.
    pub credits_in_a_row: u16,
}

impl Side {
    pub fn new(setup: &Setup, side: usize) -> Side {
        let (local, remote) = (setup.limits[side], setup.limits[1 - side]);
        let remote = (remote, ring_place(FIRST_RING));
        let mut stream = Stream::starting_at(setup.mode, local, remote, setup.start).expect("the setup's limits");
        stream.parts().0.without_phase_jump = setup.without_phase_jump;
        stream.parts().1.without_late_answer = setup.without_late_answer;
        stream.break_reserve(setup.without_reserve);
        Side {
            stream,
            rings: VecDeque::from([RingMemory {
                key: FIRST_RING,
                cells: vec![EMPTY; local.ring_bytes as usize],
            }]),
            replaced: 0,
            recalls: 0,
            reads_old: false,
            ring_load: 0,
            buffers: setup.buffers[side]
                .iter()
                .map(|bytes| vec![EMPTY; *bytes as usize])
                .collect(),
            posted: VecDeque::new(),
            sent: 0,
            read: 0,
            finished: false,
            closed: false,
            ticks: 0,
            credits_in_a_row: 0,
        }
    }

    /// The run that can be copied in one go.
    pub fn copyable(&self) -> u32 {
        self.stream.ring_readable()[0].bytes
    }

    fn own_buffer(&self) -> Option<usize> {
        (0..self.buffers.len()).find(|buffer| self.posted.iter().all(|posted| posted.buffer != *buffer))
    }

    pub fn post(&mut self, fill: bool) -> bool {
        let Some(buffer) = self.own_buffer() else { return false };
        self.posted.push_back(FilledReceive {
            buffer,
            filled: 0,
            fill,
        });
        self.stream.post_receive(Receive {
            id: ReceiveId(buffer as u64),
            target: RemoteAddress {
                key: 7,
                address: (buffer as u64) << 32,
            },
            bytes: self.buffers[buffer].len() as u32,
            fill,
        });
        assert_eq!(self.stream.outstanding_receives(), self.posted.len());
        true
    }

    /// The peer's write reaches an advertised buffer.
    pub fn written_direct(&mut self, target: RemoteAddress, first: u64, bytes: u32) -> Result<(), Broken> {
        let (buffer, offset) = ((target.address >> 32) as usize, target.address as u32 as usize);
        if self.posted.iter().all(|posted| posted.buffer != buffer) {
            return Err(Broken::NotTheirs);
        }
        let cells = self.buffers[buffer]
            .get_mut(offset..offset + bytes as usize)
            .ok_or(Broken::NotTheirs)?;
        fill_cells(cells, first).map_err(|()| Broken::NotTheirs)
    }

    /// The peer's write reaches the ring.
    pub fn written_indirect(&mut self, target: RemoteAddress, first: u64, bytes: u32) -> Result<(), Broken> {
        self.ring_load += bytes;
        let ring = self.rings.iter_mut().find(|ring| ring.key == target.key);
        let cells = &mut ring.ok_or(Broken::NotTheirs)?.cells;
        let offset = (target.address - RING_ADDRESS) as usize;
        let range = offset..offset + bytes as usize;
        let cells = cells.get_mut(range).ok_or(Broken::RingOverflow)?;
        fill_cells(cells, first).map_err(|()| Broken::RingOverflow)
    }

    /// Announces the next ring.
    pub fn replace_ring(&mut self, bytes: u32) -> bool {
        let key = FIRST_RING + 1 + self.replaced as u64;
        let target = ring_place(key);
        if !self.stream.replace_ring(NewRing { target, bytes }) {
            return false;
        }
        self.replaced += 1;
        self.rings.push_back(RingMemory {
            key,
            cells: vec![EMPTY; bytes as usize],
        });
        true
    }

    pub fn recall(&mut self) -> bool {
        let asked = self.stream.recall();
        self.recalls += u8::from(asked);
        asked
    }

    /// Releases the replaced ring once its last byte is read.
    fn forget_old_ring(&mut self) {
        if self.reads_old && !self.stream.reads_old_ring() {
            self.rings.pop_front();
            self.reads_old = false;
        }
    }

    pub fn notice(&mut self, notice: Notice) -> Result<(), Broken> {
        let in_ring = self.stream.ring_bytes_readable();
        match self.stream.handle_notice(notice).map_err(Broken::Accusation)? {
            Arrival::Ring { bytes } => {
                assert_eq!(bytes, notice.bytes);
                Ok(())
            }
            Arrival::Mark { ring } => {
                assert!(!self.stream.is_asking());
                self.reads_old |= ring;
                self.forget_old_ring();
                while self.withdraw()? {}
                if self.posted.is_empty() {
                    Ok(())
                } else {
                    Err(Broken::NotGivenUp)
                }
            }
            Arrival::Direct {
                id,
                offset,
                bytes,
                done,
            } => {
                if in_ring > 0 {
                    return Err(Broken::Overtaken);
                }
                assert_eq!(bytes, notice.bytes);
                self.arrived_direct(id, offset as usize, bytes as usize, done)
            }
        }
    }

    fn arrived_direct(&mut self, id: ReceiveId, offset: usize, bytes: usize, done: bool) -> Result<(), Broken> {
        let head = self
            .posted
            .front_mut()
            .filter(|head| head.buffer as u64 == id.0)
            .ok_or(Broken::WrongReceive)?;
        let cells = &self.buffers[head.buffer];
        if head.filled != offset || done != (!head.fill || offset + bytes == cells.len()) {
            return Err(Broken::WrongReceive);
        }
        let cells = cells.get(offset..offset + bytes).ok_or(Broken::WrongReceive)?;
        check_cells(cells, self.read)?;
        self.read += bytes as u64;
        head.filled += bytes;
        if done { self.release(0) } else { Ok(()) }
    }

    pub fn copy(&mut self, bytes: u32) -> Result<bool, Broken> {
        if bytes == 0 || bytes > self.copyable() {
            return Ok(false);
        }
        let from = self.stream.ring_readable()[0].offset as usize;
        let cells = &mut self.rings[0].cells[from..from + bytes as usize];
        check_cells(cells, self.read)?;
        self.read += u64::from(bytes);
        self.ring_load -= bytes;
        cells.fill(EMPTY);
        self.stream.handle_copied(bytes);
        self.forget_old_ring();
        Ok(true)
    }

    pub fn withdraw(&mut self) -> Result<bool, Broken> {
        let Some(id) = self.stream.withdraw() else {
            return Ok(false);
        };
        let place = self
            .posted
            .iter()
            .position(|posted| posted.buffer as u64 == id.0)
            .ok_or(Broken::WrongReceive)?;
        self.release(place)?;
        Ok(true)
    }

    /// Returns a buffer to the caller. The peer must not have written more bytes than it has announced.
    fn release(&mut self, place: usize) -> Result<(), Broken> {
        let posted = self.posted.remove(place).ok_or(Broken::WrongReceive)?;
        let cells = &mut self.buffers[posted.buffer];
        if cells[posted.filled..].iter().any(|cell| *cell != EMPTY) {
            return Err(Broken::NotTheirs);
        }
        cells.fill(EMPTY);
        Ok(())
    }
}

fn fill_cells(cells: &mut [Cell], first: u64) -> Result<(), ()> {
    for (place, index) in cells.iter_mut().zip(first..) {
        if *place != EMPTY {
            return Err(());
        }
        *place = cell(index);
    }
    Ok(())
}

fn check_cells(cells: &[Cell], first: u64) -> Result<(), Broken> {
    if cells.iter().zip(first..).all(|(held, index)| *held == cell(index)) {
        Ok(())
    } else {
        Err(Broken::Order)
    }
}

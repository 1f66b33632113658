//! One side of a small world: a stream, its caller and the memory that the peer writes into.

use std::collections::VecDeque;

use super::world::{Broken, Setup};
use crate::{Arrival, Notice, Receive, ReceiveId, RemoteAddress, Stream};

/// A cell of memory: which byte of the stream it holds.
type Cell = u16;

/// Nothing was written here since the caller got the memory.
const EMPTY: Cell = Cell::MAX;

fn cell(index: u64) -> Cell {
    (index % u64::from(Cell::MAX)) as Cell
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Posted {
    buffer: usize,
    filled: usize,
    fill: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Side {
    pub stream: Stream,
    ring: Vec<Cell>,
    /// Bytes in the ring and on their way there.
    ring_load: u32,
    buffers: Vec<Vec<Cell>>,
    pub posted: VecDeque<Posted>,
    /// Bytes sent, and bytes read.
    pub sent: u64,
    pub read: u64,
    pub finished: bool,
    /// The caller has closed the connection: nothing is sent from here or arrives here any more.
    pub closed: bool,
    pub ticks: u8,
    /// Credit messages since anything else happened here.
    pub credits_in_a_row: u16,
}

impl Side {
    pub fn new(setup: &Setup, side: usize) -> Side {
        let (local, remote) = (setup.limits[side], setup.limits[1 - side]);
        let mut stream = Stream::starting_at(setup.mode, local, remote, setup.start).expect("the setup's limits");
        stream.parts().0.without_phase_jump = setup.without_phase_jump;
        stream.parts().1.without_late_answer = setup.without_late_answer;
        stream.break_reserve(setup.without_reserve);
        Side {
            stream,
            ring: vec![EMPTY; local.ring_bytes as usize],
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

    pub fn buffers_posted(&self) -> usize {
        self.posted.len()
    }

    /// The run that can be copied in one go.
    pub fn copyable(&self) -> u32 {
        let run = self.stream.ring_readable().bytes;
        match self.posted.front() {
            Some(head) => run.min((self.buffers[head.buffer].len() - head.filled) as u32),
            None => run,
        }
    }

    fn own_buffer(&self) -> Option<usize> {
        (0..self.buffers.len()).find(|buffer| self.posted.iter().all(|posted| posted.buffer != *buffer))
    }

    pub fn post(&mut self, fill: bool) -> bool {
        let Some(buffer) = self.own_buffer() else { return false };
        self.posted.push_back(Posted {
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
        assert_eq!(self.stream.receives_posted(), self.posted.len());
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
    pub fn written_indirect(&mut self, offset: u32, first: u64, bytes: u32) -> Result<(), Broken> {
        self.ring_load += bytes;
        let range = offset as usize..(offset + bytes) as usize;
        let cells = self.ring.get_mut(range).ok_or(Broken::RingOverflow)?;
        fill_cells(cells, first).map_err(|()| Broken::RingOverflow)
    }

    pub fn notice(&mut self, notice: Notice) -> Result<(), Broken> {
        let in_ring = self.stream.ring_bytes_readable();
        match self.stream.handle_notice(notice).map_err(Broken::Accusation)? {
            Arrival::Ring { bytes } => {
                assert_eq!(bytes, notice.bytes);
                Ok(())
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
        if done { self.release_head() } else { Ok(()) }
    }

    pub fn copy(&mut self, bytes: u32) -> Result<bool, Broken> {
        if bytes == 0 || bytes > self.copyable() {
            return Ok(false);
        }
        let from = self.stream.ring_readable().offset as usize;
        let cells = &mut self.ring[from..from + bytes as usize];
        check_cells(cells, self.read)?;
        self.read += u64::from(bytes);
        self.ring_load -= bytes;
        if let Some(head) = self.posted.front_mut() {
            let into = &mut self.buffers[head.buffer][head.filled..head.filled + bytes as usize];
            if into.iter().any(|cell| *cell != EMPTY) {
                return Err(Broken::NotTheirs);
            }
            into.copy_from_slice(cells);
            head.filled += bytes as usize;
        }
        cells.fill(EMPTY);
        self.copied(bytes)?;
        Ok(true)
    }

    fn copied(&mut self, bytes: u32) -> Result<(), Broken> {
        let completed = self.stream.handle_copied(bytes);
        let Some(head) = self.posted.front() else {
            return if completed.is_none() {
                Ok(())
            } else {
                Err(Broken::WrongReceive)
            };
        };
        let is_done = !head.fill || head.filled == self.buffers[head.buffer].len();
        match completed {
            None if !is_done => Ok(()),
            Some(done) if is_done && done.id.0 == head.buffer as u64 && done.bytes as usize == head.filled => {
                self.release_head()
            }
            _ => Err(Broken::WrongReceive),
        }
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

    fn release_head(&mut self) -> Result<(), Broken> {
        self.release(0)
    }

    /// The buffer is the caller's again: the peer must not have written more than it told of.
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

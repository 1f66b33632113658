//! Number and size of a side's buffers.

use inet_rdma_engine::connection::{Settings, ZeroCopy};
use inet_rdma_fabric::Parameters;
use inet_rdma_stream::{Limits, Mode};

use crate::arguments::Common;
use crate::failure::Failure;
use crate::frame::{HEAD_BYTES, LENGTH_BYTES, REASON_BYTES_MAX};

/// Landing buffers start on pages.
const PAGE_BYTES: u32 = 4096;

/// Messages that may be under way to this side.
const RECEIVE_SLOTS: u16 = 256;

/// The memory of all buffers together.
const BUFFERS_BYTES_MAX: u64 = 1 << 30;

/// A fabric gives room to write in quarters of its staging memory, as large as the ring: a packet fits into one.
const PACKETS_IN_RING: u32 = 4;

/// A packet below this is copied out of its landing buffer, which is free again at once.
const DIRECT_BYTES: usize = 4096;

#[derive(Debug, Clone, Copy)]
pub struct Shape {
    buffer_bytes: u32,
    buffers: u16,
}

impl Shape {
    /// The shape that the options ask for.
    pub fn new(common: &Common) -> Result<Self, Failure> {
        let shape = Self {
            buffer_bytes: common.buffer * 1024,
            buffers: common.buffers,
        };
        if u64::from(shape.landing_buffer_bytes()) * u64::from(shape.buffers) > BUFFERS_BYTES_MAX {
            return Err(Failure::Usage("all buffers together exceed 1 GiB".into()));
        }
        Ok(shape)
    }

    pub fn buffer_bytes(self) -> usize {
        self.buffer_bytes as usize
    }

    pub fn buffers(self) -> usize {
        self.buffers.into()
    }

    fn landing_buffer_bytes(self) -> u32 {
        self.buffer_bytes + PAGE_BYTES
    }

    pub fn parameters(self) -> Parameters {
        let limits = Limits {
            ring_bytes: self.landing_buffer_bytes() * PACKETS_IN_RING,
            receive_slots: RECEIVE_SLOTS,
            adverts: RECEIVE_SLOTS / 4,
        };
        Parameters {
            landing_area_bytes: self.landing_buffer_bytes() * u32::from(self.buffers),
            connection_id: std::process::id(),
            ..Parameters::of(limits)
        }
    }

    /// Settings of a connection: direct transfers alone. All data is bulk, and the receiver has always advertised its
    /// free buffers. A transfer through the ring would cost a copy at the receiver, which is the slower side already.
    pub fn settings(self) -> Settings {
        let packet_bytes = HEAD_BYTES + self.buffer_bytes().max(REASON_BYTES_MAX);
        debug_assert!(packet_bytes + LENGTH_BYTES <= self.landing_buffer_bytes() as usize);
        Settings {
            mode: Mode::DirectOnly,
            landing_buffer_bytes: self.landing_buffer_bytes(),
            direct_bytes: DIRECT_BYTES,
            packet_max_bytes: packet_bytes,
            // The data is written out once and never interpreted, so a peer that changes it harms nobody.
            zero_copy: ZeroCopy::Always,
            ..Settings::default()
        }
    }
}

//! The capabilities of queue pairs.

use std::time::Duration;

/// The capabilities of a queue pair, by which its connection chooses how to work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// The transport of the bytes.
    pub transport: Transport,
    /// True: a transfer carries its notice as its immediate. False: the notice is a message after the transfer.
    pub immediate: bool,
    /// Transfers of up to this many bytes take no staging memory.
    pub inline_max: usize,
    /// True if a post costs a system call, or a doorbell of the device: it pays to collect packets that follow each
    /// other closely for one transfer.
    pub post_is_costly: bool,
    /// True: exposing memory pins it, which takes long and keeps the memory from other uses. False: exposing costs
    /// nothing, and pages take memory when they are touched.
    pub pins: bool,
    /// What keeps the peer from changing landed bytes that the user has without a copy.
    pub safeguard: Safeguard,
    /// True if landing buffers can have windows ([`crate::Exposer::expose_windows`]), also if these are no safeguard.
    pub windows: bool,
    /// Bytes of landing buffers that should be advertised at a time. On a path without delay fewer are better: they are
    /// written and read again while they are in the processor's cache.
    pub landing_window_bytes: usize,
    /// How long the device waits for an acknowledgement before it sends again. None: it never sends again, or the
    /// transport measures that time itself.
    pub ack_timeout: Option<Duration>,
}

/// What keeps the peer from changing landed bytes that the user has without a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Safeguard {
    /// Trust: the peer could change this process's memory in other ways as well, or the user trusts it.
    Trust,
    /// The window of a landing buffer is closed before the buffer is handed over.
    Windows,
    /// There is no safeguard: all bytes are copied out.
    None,
}

/// The transport of a queue pair's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// The processor copies them within the host.
    SharedMemory,
    /// InfiniBand or RoCE.
    InfiniBand,
    /// iWARP.
    Iwarp,
    /// A TCP connection of this process.
    Tcp,
}

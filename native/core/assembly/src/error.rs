//! Why assembly stops.

/// Why assembly had to stop.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum AssemblyError {
    /// The peer has announced a packet, or sends a line, that is larger than allowed.
    #[error("the peer sends a packet or a line of {bytes} bytes or more; {max} are allowed")]
    TooLarge {
        /// The announced size, or the bytes of the line that have arrived.
        bytes: usize,
        /// The option `packet_max_bytes`, or a smaller `packet_size`.
        max: usize,
    },
    /// No memory for a packet.
    #[error("no memory for a packet of {0} bytes")]
    NoMemory(usize),
}

//! Why assembly stops.

/// Why assembly had to stop.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum AssemblyError {
    /// The peer announced a packet larger than allowed, or a line gets longer.
    #[error("the peer sends a packet or a line of {bytes} bytes or more; {max} are allowed")]
    TooLarge {
        /// What it announced, or what is here of the line.
        bytes: usize,
        /// The option `packet_max_bytes`, or a smaller `packet_size`.
        max: usize,
    },
    /// No memory for a packet.
    #[error("no memory for a packet of {0} bytes")]
    NoMemory(usize),
}

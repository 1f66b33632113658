//! What carries a link.

/// What carries the session; part of each notice to the carrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LinkState {
    /// Whether a path carries it.
    pub state: State,
    /// The path of this side's outgoing packets.
    pub carrier: Carrier,
    /// There is a TCP connection.
    pub has_tcp: bool,
}

/// Whether a path carries the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// A path that is not suspected.
    Carried,
    /// A path that is suspected.
    Suspected,
    /// None.
    Suspended,
}

/// The path of outgoing packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Carrier {
    /// The TCP connection.
    Tcp,
    /// The queue pair.
    QueuePair,
    /// There is none.
    None,
}

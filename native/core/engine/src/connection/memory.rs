//! The memory of a connection: claimed when it is needed, advertised to the peer, given back when it was not used.

mod adverts;
mod claims;
mod upkeep;

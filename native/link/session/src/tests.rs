//! Tests that look at two sessions and what lies between them.

mod exploration;
mod explore;
mod hostile;
mod log;
mod packets;
mod property;
mod queue_pair;
mod resume;
mod rollback;
mod side;
mod tcp;
mod turn;
mod world;

use crate::Sink;

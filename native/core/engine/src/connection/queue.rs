//! The receive queue: arrivals and what follows from them, the peer's life, and the ways to wait.

mod arming;
mod completions;
mod controls;
mod ending;
mod polling;
mod progress;

//! A session and a peer that says anything, raw bytes and well-formed lies, while its own caller acts; and two honest
//! sessions of which connections and queue pairs are lost.
//!
//! Run: `cargo fuzz run peer` (nightly), or on stable with `RUSTC_BOOTSTRAP=1`. Nothing may panic, no packet above the
//! limit may be allocated, and between honest sessions each packet arrives once, whole and in order.
#![no_main]

#[path = "peer/calls.rs"]
mod calls;
#[path = "peer/honest.rs"]
mod honest;
#[path = "peer/hostile.rs"]
mod hostile;

use arbitrary::Arbitrary;
use honest::{Act, honest};
use hostile::{Throw, hostile};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
enum Input {
    Hostile(Vec<Throw>),
    Honest { can_be_lost: bool, acts: Vec<Act> },
}

fuzz_target!(|input: Input| {
    match input {
        Input::Hostile(throws) => hostile(throws),
        Input::Honest { can_be_lost, acts } => honest(can_be_lost, acts),
    }
});

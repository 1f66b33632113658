//! The fabric tcp against hostile peers: each fault ends the peer's own connection and nothing else.

#[path = "hostile/answers.rs"]
mod answers;
#[path = "hostile/frames.rs"]
mod frames;
#[path = "hostile/greetings.rs"]
mod greetings;
#[path = "hostile/raw.rs"]
mod raw;
#[path = "../../../core/fabric/tests/support/mod.rs"]
#[allow(dead_code, reason = "shared with the contract suite, which uses all of it")]
mod support;

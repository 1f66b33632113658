//! The shm fabric against hostile peers: each fault ends the peer's own connection and nothing else.

#[path = "hostile/answers.rs"]
mod answers;
#[path = "hostile/greetings.rs"]
mod greetings;
#[path = "hostile/raw.rs"]
mod raw;
#[path = "hostile/strays.rs"]
mod strays;
#[path = "../../fabric/tests/support/mod.rs"]
#[allow(dead_code, reason = "shared with the contract suite, which uses all of it")]
mod support;
#[path = "hostile/words.rs"]
mod words;

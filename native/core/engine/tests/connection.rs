//! Connections over shm, in conversations.

#[path = "../../assembly/tests/support/contents.rs"]
mod contents;
#[path = "support/conversations.rs"]
mod conversations;
#[path = "support/message.rs"]
mod message;
#[path = "support/pair.rs"]
mod pair;
#[path = "support/world.rs"]
mod world;

//! Stream sockets over shm, in conversations.

#[path = "../../../core/assembly/tests/support/contents.rs"]
mod contents;
#[path = "../../../core/engine/tests/support/conversations.rs"]
mod conversations;
#[path = "../../../core/engine/tests/support/message.rs"]
mod message;
#[path = "support/pair.rs"]
mod pair;
#[path = "../../../core/engine/tests/support/world.rs"]
mod world;

//! Stream sockets of inet_rdma, over the connections of `inet_rdma_engine`: polling threads, listeners, and the choice
//! of a fabric. A link needs none of it.

pub mod acceptor;
pub mod auto;
pub mod endpoint;
pub mod log_limit;
pub mod poller;
mod scheduling;
pub mod stream_socket;

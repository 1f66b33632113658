//! libibverbs and librdmacm, safe to use, as far as inet_rdma needs them: reliable connected queue pairs made by the
//! connection manager.
//!
//! Both libraries are loaded together with this code. If they are not installed, every function that makes an object
//! returns an error of the kind [`std::io::ErrorKind::Unsupported`].
//!
//! One noun per module. A child keeps its parent alive: a queue pair its completion queues, its protection domain and
//! its connection id, each of those the id, the id its event channel. Memory that only this process touches
//! ([`memory::HostMemory`]) and memory that a device may touch at any time ([`memory::MemoryRegion`]) are different
//! types.
//!
//! Manual pages named in comments are those of rdma-core.

#[cfg(not(target_os = "linux"))]
compile_error!("inet_rdma's native library is for Linux: nodes of other systems run without it, over TCP");

pub mod async_event;
pub mod cm;
pub mod cq;
pub mod device;
pub mod error;
pub mod memory;
pub mod pd;
pub mod qp;
pub mod window;

pub use error::VerbsError;

/// The transport below a device decides which operations there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// InfiniBand and RoCE: writes can carry an immediate.
    InfiniBand,
    /// iWARP: no immediates.
    Iwarp,
}

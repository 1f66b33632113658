//! The name by which processes of the same network namespace find this process: an abstract Unix socket that listens
//! under it from the first use until the process ends, or its VM crashes.
//!
//! The name has 128 random bits: no process can take it in advance. A process that has been told the name proves by one
//! connect that both share a network namespace, and so a host, and later whether this process still lives.

use std::os::fd::AsFd;
use std::sync::Arc;

use inet_rdma_fabric::FabricError;
use inet_rdma_fabric::callers::Listening;
use inet_rdma_fabric::closing::Stray;
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, SocketFlags};

use crate::peer::{Process, process_of};
use crate::rendezvous;
use crate::socket_name::SocketName;

/// Connections that may wait to be accepted. A process that finds no place knows all the same that this one lives.
const BACKLOG: i32 = 1024;

/// The name and the listening socket of this process. They stay: peers would take another name for another process.
#[derive(Debug)]
pub(crate) struct OwnName {
    pub(crate) name: SocketName,
    pub(crate) listening: Arc<Listening>,
}

/// This process's name; the first call opens the socket. Never blocks.
pub(crate) fn own_name() -> Result<Arc<OwnName>, FabricError> {
    static OWN: Mutex<Option<Arc<OwnName>>> = Mutex::new(None);
    let mut own = OWN.lock();
    if let Some(own) = &*own {
        return Ok(Arc::clone(own));
    }
    let name = SocketName::random()?;
    let socket = rendezvous::socket(SocketFlags::NONBLOCK)?;
    rustix::net::bind(&socket, &name.address()?).map_err(|errno| FabricError::system("binding a name", errno))?;
    rustix::net::listen(&socket, BACKLOG).map_err(|errno| FabricError::system("listening", errno))?;
    let made = Arc::new(OwnName {
        name,
        listening: Arc::new(socket.into()),
    });
    *own = Some(Arc::clone(&made));
    Ok(made)
}

/// The process of this network namespace that listens under the name. None: there is none. Never blocks.
pub fn find(name: &SocketName) -> Result<Option<Process>, FabricError> {
    find_at(&name.address()?)
}

/// As [`find`], at any address of the abstract namespace.
pub(crate) fn find_at(address: &SocketAddrUnix) -> Result<Option<Process>, FabricError> {
    // A process that has taken the name of one that has ended may have sent something already.
    let socket = Stray::from(rendezvous::socket(SocketFlags::NONBLOCK)?);
    match rustix::net::connect(&socket, address) {
        Ok(()) => process_of(socket.as_fd()).map(Some),
        // The backlog is full: the kernel says nothing of the process.
        Err(Errno::AGAIN) => Ok(Some(Process::UNKNOWN)),
        Err(Errno::CONNREFUSED) => Ok(None),
        Err(errno) => Err(FabricError::system("looking for a name", errno)),
    }
}

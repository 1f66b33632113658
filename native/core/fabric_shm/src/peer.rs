//! The process at the other end of a Unix socket, as the kernel names it.

use std::os::fd::BorrowedFd;

use inet_rdma_fabric::FabricError;

/// A process as it was when it connected or began to listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// Its number. 0: it is in another process-id namespace, or not known.
    pub pid: i32,
    /// Its effective user, as the user namespace of this process has it. `u32::MAX`, the kernel's number for no user:
    /// not known.
    pub user: u32,
}

impl Process {
    /// A process of which the kernel says nothing.
    pub(crate) const UNKNOWN: Process = Process { pid: 0, user: u32::MAX };

    /// Its user; None: not known.
    pub(crate) fn known_user(self) -> Option<u32> {
        (self.user != u32::MAX).then_some(self.user)
    }

    /// Its number; None: it is in another process-id namespace, or not known.
    pub(crate) fn known_pid(self) -> Option<u32> {
        u32::try_from(self.pid).ok().filter(|pid| *pid > 0)
    }

    /// True if the process is in the process-id namespace of this one, as processes of one container are: it could
    /// trace this one if both run as one user. False also if that is not known.
    pub(crate) fn is_near(self) -> bool {
        let own = i64::from(std::process::id());
        let is_own = i64::from(self.pid) == own;
        is_own || self.pid > 0 && has_own_proc(own) && shares_pid_namespace(self.pid)
    }
}

/// True if `/proc` numbers processes as this process's namespace does.
fn has_own_proc(own: i64) -> bool {
    let link = std::fs::read_link("/proc/self").ok();
    link.and_then(|pid| pid.to_str()?.parse().ok()) == Some(own)
}

fn shares_pid_namespace(pid: i32) -> bool {
    let namespace = |of: &str| std::fs::read_link(format!("/proc/{of}/ns/pid"));
    match (namespace(&pid.to_string()), namespace("self")) {
        (Ok(theirs), Ok(own)) => theirs == own,
        _ => false,
    }
}

/// The process at the other end of a connection.
pub(crate) fn process_of(socket: BorrowedFd<'_>) -> Result<Process, FabricError> {
    // Not rustix's function: its process id cannot be 0, which the kernel gives for a process of another process-id
    // namespace.
    let peer = nix::sys::socket::getsockopt(&socket, nix::sys::socket::sockopt::PeerCredentials)
        .map_err(|errno| FabricError::system("asking who the peer is", std::io::Error::from(errno)))?;
    Ok(Process {
        pid: peer.pid(),
        user: peer.uid(),
    })
}

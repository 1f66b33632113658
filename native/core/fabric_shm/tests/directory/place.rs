//! A private directory of a test, and files to put into it.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use inet_rdma_fabric_shm::socket_name::SocketName;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};

/// A directory that is removed with all its files when the value is dropped.
pub struct Place(PathBuf);

impl Place {
    pub fn new() -> Place {
        let path = std::env::temp_dir().join(format!("inet_rdma_{:016x}", fastrand::u64(..)));
        std::fs::create_dir(&path).expect("a directory");
        Place(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn at(&self, name: &SocketName) -> PathBuf {
        self.0.join(name.to_string())
    }

    pub fn clear(&self) {
        for entry in std::fs::read_dir(&self.0).expect("entries").flatten() {
            std::fs::remove_file(entry.path()).expect("a file");
        }
    }

    /// Gives the file to a user. False: this process may not.
    pub fn give(&self, path: &Path, user: u32) -> bool {
        std::os::unix::fs::lchown(path, Some(user), None).is_ok()
    }

    pub fn date(&self, path: &Path, at: SystemTime) {
        let seconds = at.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs();
        let at = rustix::fs::Timespec {
            tv_sec: seconds.try_into().expect("a date"),
            tv_nsec: 0,
        };
        let times = rustix::fs::Timestamps {
            last_access: at,
            last_modification: at,
        };
        rustix::fs::utimensat(rustix::fs::CWD, path, &times, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).expect("its date");
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).expect("it was made here");
    }
}

/// The name with this number.
pub fn name(number: u128) -> SocketName {
    format!("inet_rdma-{number:032x}").parse().expect("a name")
}

/// A socket that listens at this path.
pub fn socket_at(path: &Path) -> OwnedFd {
    let socket = bound(path);
    rustix::net::listen(&socket, 8).expect("it is bound");
    socket
}

/// Leaves the file of a socket that is closed.
pub fn dead_socket(path: &Path) {
    drop(bound(path));
}

fn bound(path: &Path) -> OwnedFd {
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("a socket");
    rustix::net::bind(&socket, &SocketAddrUnix::new(path).expect("a short path")).expect("a free name");
    socket
}

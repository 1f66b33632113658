//! A shared directory: processes in several containers of one host connect by a socket file in a directory that all
//! of them mount.
//!
//! For each use the directory is opened with `O_PATH | O_NOFOLLOW` and checked by that descriptor. Later steps go
//! through `/proc/self/fd`, so that no path is resolved a second time after the check. A listener's file has a name of
//! 128 random bits, which `bind` creates or refuses: no other process can have put a file there before. A peer's file
//! is opened in the same way, its owner is checked, and the connect goes to the opened file.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use inet_rdma_fabric::deadline::Deadline;
use inet_rdma_fabric::{DirectoryFault, FabricError, ListenOptions, Parameters, QueuePair};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, SocketFlags};

use crate::connect;
use crate::listener::ShmListener;
use crate::rendezvous;
use crate::socket_name::SocketName;
use crate::users::{Standing, Users};

/// A file without a listener is removed when it is older than this: a younger one may be between `bind` and `listen`.
const STALE: Duration = Duration::from_secs(60);
/// Maximum number of directory entries that are searched for files without a listener.
const ENTRIES_MAX: usize = 4096;
/// The bit of chmod(1) by which all users may write to a directory or socket file.
const ALL_WRITE: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// A directory that containers of a host share, and the users whose processes may connect there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedDirectory {
    path: PathBuf,
    users: Users,
}

/// The socket file of a listener of this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketFile {
    /// The file's name in the directory.
    pub name: SocketName,
    device: u64,
    inode: u64,
}

impl SharedDirectory {
    /// Names a directory without checking it.
    pub fn new(path: &[u8], users: Vec<u32>) -> SharedDirectory {
        // Cut slashes at the end: with one the kernel would follow a symbolic link.
        let end = path.iter().rposition(|byte| *byte != b'/').map_or(1, |last| last + 1);
        SharedDirectory {
            path: PathBuf::from(OsStr::from_bytes(path.get(..end).unwrap_or(path))),
            users: Users::OwnAnd(users),
        }
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a listener and closes it again, to find out whether that works.
    pub fn check(&self, options: &ListenOptions) -> Result<(), FabricError> {
        let (_listener, file) = self.listen(options)?;
        self.remove(&file);
        Ok(())
    }

    /// Opens a listener with a socket file of its own. Removes files that listeners of ended processes of this user
    /// have left.
    pub fn listen(&self, options: &ListenOptions) -> Result<(ShmListener, SocketFile), FabricError> {
        let directory = self.open()?;
        self.sweep(directory.as_fd());
        let socket = rendezvous::socket(SocketFlags::NONBLOCK)?;
        // `bind` makes the file with the socket's mode, less the umask.
        rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)
            .map_err(|errno| FabricError::system("setting the mode of a socket", errno))?;
        let name = SocketName::random()?;
        let address = address(own_descriptor(directory.as_fd()).join(name.text()))?;
        rustix::net::bind(&socket, &address).map_err(|errno| self.refused_bind(errno))?;
        let file = match self.made(directory.as_fd(), name.clone()) {
            Ok(file) => file,
            Err(error) => {
                let _ = rustix::fs::unlinkat(&directory, name.text(), AtFlags::empty());
                return Err(error);
            }
        };
        let through = Some(self.path.as_path().into());
        match ShmListener::start(Arc::new(socket.into()), 0, options, self.users.clone(), through) {
            Ok(listener) => Ok((listener, file)),
            Err(error) => {
                self.remove(&file);
                Err(error)
            }
        }
    }

    /// Returns the file that `bind` has made. If other users may connect, gives them the right to write to it, which a
    /// connect needs.
    fn made(&self, directory: BorrowedFd<'_>, name: SocketName) -> Result<SocketFile, FabricError> {
        let made = self.open_file(directory, &name)?;
        let state = self.stat(made.as_fd())?;
        if FileType::from_raw_mode(state.st_mode) != FileType::Socket {
            return Err(self.fault(DirectoryFault::NoSocket));
        }
        if matches!(&self.users, Users::OwnAnd(others) if !others.is_empty()) {
            // The umask does not apply here. The path leads to the opened file, so no link is followed.
            rustix::fs::chmod(own_descriptor(made.as_fd()), Mode::from_raw_mode(0o666))
                .map_err(|errno| self.of_errno(errno))?;
        }
        Ok(SocketFile {
            name,
            device: state.st_dev,
            inode: state.st_ino,
        })
    }

    /// True if the listener's file is in its place. Err: the directory no longer passes the checks.
    pub fn holds(&self, file: &SocketFile) -> Result<bool, FabricError> {
        let directory = self.open()?;
        match rustix::fs::statat(&directory, file.name.text(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(state) => Ok((state.st_dev, state.st_ino) == (file.device, file.inode)),
            Err(_) => Ok(false),
        }
    }

    /// True if something of this name is in the directory, which passes the checks.
    pub fn has(&self, name: &SocketName) -> bool {
        let opened = self
            .open()
            .and_then(|directory| self.open_file(directory.as_fd(), name));
        opened.is_ok()
    }

    /// Removes a listener's file, unless something else is in its place. After a failure [`Self::listen`] of another
    /// process removes it.
    pub fn remove(&self, file: &SocketFile) {
        if matches!(self.holds(file), Ok(true)) {
            if let Ok(directory) = self.open() {
                let _ = rustix::fs::unlinkat(&directory, file.name.text(), AtFlags::empty());
            }
        }
    }

    /// Connects to the peer's listener; blocks until `timeout` has passed at most.
    pub fn connect(
        &self,
        name: &SocketName,
        parameters: &Parameters,
        timeout: Duration,
    ) -> Result<Box<dyn QueuePair>, FabricError> {
        let deadline = Deadline::after(timeout);
        let file = self.peer_file(name)?;
        let address = address(own_descriptor(file.as_fd()))?;
        let socket = connect::reach(&address, deadline, |errno| match errno {
            Errno::CONNREFUSED => Some(self.fault(DirectoryFault::Deserted)),
            Errno::ACCESS | Errno::PERM => Some(self.fault(DirectoryFault::Unconnectable)),
            Errno::NOENT => Some(self.fault(self.missing(DirectoryFault::NotShared))),
            _ => None,
        })?;
        self.users.check_peer(socket.as_fd())?;
        let queue_pair = connect::greet(socket, 0, parameters, deadline, Some(self.path.as_path().into()))?;
        Ok(Box::new(queue_pair))
    }

    fn peer_file(&self, name: &SocketName) -> Result<OwnedFd, FabricError> {
        let directory = self.open()?;
        let file = self.open_file(directory.as_fd(), name)?;
        let state = self.stat(file.as_fd())?;
        if FileType::from_raw_mode(state.st_mode) != FileType::Socket {
            return Err(self.fault(DirectoryFault::NoSocket));
        }
        match self.users.standing(state.st_uid) {
            Standing::Allowed => Ok(file),
            Standing::Other(user) => Err(self.fault(DirectoryFault::SocketOwner(user))),
            Standing::Unmapped => Err(self.fault(DirectoryFault::SocketOwnerUnmapped)),
        }
    }

    fn open(&self) -> Result<OwnedFd, FabricError> {
        // Without O_DIRECTORY, which would not tell a link from a file.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = rustix::fs::open(&self.path, flags, Mode::empty()).map_err(|errno| self.of_errno(errno))?;
        let state = self.stat(directory.as_fd())?;
        match FileType::from_raw_mode(state.st_mode) {
            FileType::Directory => {}
            FileType::Symlink => return Err(self.fault(DirectoryFault::SymbolicLink)),
            _ => return Err(self.fault(DirectoryFault::NoDirectory)),
        }
        match self.users.standing(state.st_uid) {
            Standing::Other(user) if user != 0 => return Err(self.fault(DirectoryFault::Owner(user))),
            Standing::Unmapped => return Err(self.fault(DirectoryFault::OwnerUnmapped)),
            Standing::Allowed | Standing::Other(_) => {}
        }
        if state.st_mode & ALL_WRITE != 0 && state.st_mode & STICKY == 0 {
            return Err(self.fault(DirectoryFault::WorldWritable));
        }
        Ok(directory)
    }

    /// Opens the file itself, also if it is a symbolic link.
    fn open_file(&self, directory: BorrowedFd<'_>, name: &SocketName) -> Result<OwnedFd, FabricError> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(directory, name.text(), flags, Mode::empty()).map_err(|errno| match errno {
            Errno::NOENT => self.fault(DirectoryFault::NotShared),
            other => self.of_errno(other),
        })
    }

    fn stat(&self, file: BorrowedFd<'_>) -> Result<Stat, FabricError> {
        rustix::fs::fstat(file).map_err(|errno| self.of_errno(errno))
    }

    /// Removes files whose listeners have ended: files of this user with such a name that are old enough and refuse
    /// connections.
    fn sweep(&self, directory: BorrowedFd<'_>) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // This process may not read the directory: it removes nothing.
        let Ok(readable) = rustix::fs::openat(directory, ".", flags, Mode::empty()) else {
            return;
        };
        let Ok(entries) = rustix::fs::Dir::new(readable) else {
            return;
        };
        for entry in entries.flatten().take(ENTRIES_MAX) {
            let name = entry.file_name().to_str().ok();
            let name = name.and_then(|name| name.parse::<SocketName>().ok());
            if let Some(name) = name.filter(|name| self.is_stale(directory, name)) {
                let _ = rustix::fs::unlinkat(directory, name.text(), AtFlags::empty());
            }
        }
    }

    fn is_stale(&self, directory: BorrowedFd<'_>, name: &SocketName) -> bool {
        let Ok(file) = self.open_file(directory, name) else {
            return false;
        };
        let Ok(state) = rustix::fs::fstat(&file) else {
            return false;
        };
        let is_own = FileType::from_raw_mode(state.st_mode) == FileType::Socket && state.st_uid == crate::user();
        is_own && is_old(&state) && refuses(file.as_fd())
    }

    fn refused_bind(&self, errno: Errno) -> FabricError {
        match errno {
            Errno::NOENT => self.fault(self.missing(DirectoryFault::Missing)),
            other => self.of_errno(other),
        }
    }

    /// The fault when the kernel finds nothing through `/proc/self/fd`.
    fn missing(&self, otherwise: DirectoryFault) -> DirectoryFault {
        if Path::new("/proc/self/fd").exists() {
            otherwise
        } else {
            DirectoryFault::NoProc
        }
    }

    fn of_errno(&self, errno: Errno) -> FabricError {
        self.fault(match errno {
            Errno::NOENT => DirectoryFault::Missing,
            Errno::NOTDIR => DirectoryFault::NoDirectory,
            Errno::ACCESS | Errno::PERM => DirectoryFault::Forbidden,
            Errno::ROFS => DirectoryFault::ReadOnly,
            Errno::NAMETOOLONG => DirectoryFault::TooLong,
            other => DirectoryFault::System(other.into()),
        })
    }

    fn fault(&self, fault: DirectoryFault) -> FabricError {
        let path = self.path.to_string_lossy().into_owned();
        FabricError::Directory { path, fault }
    }
}

fn address(path: PathBuf) -> Result<SocketAddrUnix, FabricError> {
    SocketAddrUnix::new(path).map_err(|errno| FabricError::system("naming a socket", errno))
}

/// A path that leads to the open file of a descriptor of this process, without resolving the file's own path again.
fn own_descriptor(file: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn is_old(state: &Stat) -> bool {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let made = Duration::from_secs(u64::try_from(state.st_mtime).unwrap_or(0));
    now.saturating_sub(made) > STALE
}

/// True if no process listens at a socket file. Never waits: a full backlog means a listener.
fn refuses(file: BorrowedFd<'_>) -> bool {
    let Ok(socket) = rendezvous::socket(SocketFlags::NONBLOCK) else {
        return false;
    };
    let Ok(address) = address(own_descriptor(file)) else {
        return false;
    };
    rustix::net::connect(&socket, &address) == Err(Errno::CONNREFUSED)
}

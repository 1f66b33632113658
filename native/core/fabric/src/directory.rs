//! What is wrong with a directory in which processes of several containers meet, or with a peer's socket file there.

use crate::errno::Errno;

/// Why the directory of the option `shm_directory`, or a socket file in it, is not used. Each text says what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DirectoryFault {
    /// It is not there.
    #[error("it does not exist: create it, or mount the volume that the nodes share")]
    Missing,
    /// It is something else than a directory.
    #[error("it is no directory: name the directory that the nodes share")]
    NoDirectory,
    /// Its last part is a symbolic link, whose owner could lead this node elsewhere.
    #[error("it is a symbolic link: name the directory that the link leads to")]
    SymbolicLink,
    /// A user who is not trusted owns it, and could replace what lies in it.
    #[error(
        "it belongs to user {0}, who could replace what lies in it: give it to the user of this node or to root \
         (chown), or list the user in shm_allowed_uids"
    )]
    Owner(u32),
    /// The owner has no number in the user namespace of this node.
    #[error(
        "its owner is unknown in the user namespace of this node: map the owner into the namespace, or give the \
         directory to a user that is mapped (chown)"
    )]
    OwnerUnmapped,
    /// All users may write there, and remove the files of others.
    #[error("all users may remove files of others in it: `chmod 1777` or `chmod o-w`")]
    WorldWritable,
    /// This process may not search it, or create files in it.
    #[error("this node may not create files in it: let its user write and search the directory")]
    Forbidden,
    /// The file system cannot be written.
    #[error("its file system is mounted read-only: mount the volume so that this node can write")]
    ReadOnly,
    /// The path, or a part of it, is longer than the system takes.
    #[error("the path is too long: 4095 bytes are the most, and 255 for each part")]
    TooLong,
    /// `/proc` is missing, by which a directory is checked and used as one.
    #[error("/proc/self/fd is missing: mount /proc in the container")]
    NoProc,
    /// The peer's socket file is not in the directory.
    #[error(
        "the socket file of the peer is not in it: the shm_directory of the peer is another directory; mount the same \
         volume in both containers"
    )]
    NotShared,
    /// A file with the name of the peer's socket is none.
    #[error(
        "the file in the place of the peer's socket is no socket: something else has put it there; look at its owner"
    )]
    NoSocket,
    /// A user who is not trusted owns the peer's socket file.
    #[error(
        "the socket file of the peer belongs to user {0}: list the user in shm_allowed_uids of this node if its \
         processes are to be trusted"
    )]
    SocketOwner(u32),
    /// The owner of the peer's socket file has no number in the user namespace of this node.
    #[error(
        "the user of the peer is unknown in the user namespace of this node: give both containers user namespaces \
         that map the users of both"
    )]
    SocketOwnerUnmapped,
    /// The peer's socket file does not let this process connect.
    #[error(
        "this node may not connect to the socket file of the peer: list the user of this node in shm_allowed_uids of \
         the peer; where both are the same user, look at SELinux or AppArmor"
    )]
    Unconnectable,
    /// No process listens at the peer's socket file.
    #[error("no process listens at the socket file of the peer: the peer has ended, or its kernel is another one")]
    Deserted,
    /// The system refuses something else.
    #[error("{0}")]
    System(Errno),
}

//! The file: a page for the header, the ring of events, the ring of ticks. Numbers are little-endian.
//!
//! | bytes | field |
//! |---|---|
//! | 0..8 | `inetrdma` |
//! | 8..12 | version of the format, 1 |
//! | 12..16 | bytes of a slot, 256 |
//! | 16..20 | slots of the ring of events, which begins at byte 4096 |
//! | 20..24 | slots of the ring of ticks, which follows |
//! | 24..32 | CLOCK_MONOTONIC of the start, in nanoseconds |
//! | 32..40 | CLOCK_REALTIME of the start, in nanoseconds since 1970 |
//! | 40..44 | process id |
//! | 44..48 | CRC-32 (IEEE) of bytes 0..44 and 48..4096 |
//! | 48..84 | the kernel's boot id, as text |
//! | 84..86 | bytes of the node's name |
//! | 86.. | the node's name, in UTF-8 |
//!
//! It ends after the last slot that was written, and slots before that which have no event yet are holes.
//!
//! A process holds a lock (flock) on its file for as long as it lives. No other process renames or removes a file that
//! is locked: a second node of the same name takes the next free name, and so does a node whose name is another user's.
//! Where the file system has no locks, the last node wins.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::process::getuid;
use rustix::time::ClockId;

use crate::slot::{self, SLOT_BYTES};

const MAGIC: &[u8; 8] = b"inetrdma";
const VERSION: u32 = 1;
pub(crate) const HEADER_BYTES: usize = 4096;
/// Quarters of the slots that are for events; the rest is for ticks.
const EVENT_QUARTERS: usize = 3;

/// The beginning of file names.
const PREFIX: &str = "inet_rdma-";
/// The ends of file names: of a node's last run, and of the run before it.
const SUFFIX: &str = ".flight";
const SUFFIX_BEFORE: &str = ".flight.1";
/// Stands before the number of a node whose name other running nodes have; names of nodes lack it in file names.
const NUMBER: char = '+';
/// Maximum number of nodes of one name with files in one directory.
const SAME_NAMES_MAX: u32 = 64;
/// Maximum number of files of this user in a directory: files of node names that never come back would fill it. The
/// oldest files of nodes that do not run are removed.
const FILES_MAX: usize = 64;

/// Why there is no file, or events are not in it.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system has refused a step.
    #[error("{step} {path} failed: {error}")]
    System {
        /// The step.
        step: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's answer.
        error: io::Error,
    },
    /// The path is not a directory.
    #[error("{0} is not a directory")]
    NoDirectory(PathBuf),
    /// Every user may replace files in the directory.
    #[error("{0} may be written by everybody and has no sticky bit: choose another directory, or chmod +t it")]
    OpenDirectory(PathBuf),
    /// All names are taken, this first one by something that is not a file of this user.
    #[error(
        "{0} is there, and is not a file of this user, and the names that could follow it are taken, too: remove it, \
         or choose another directory"
    )]
    Squatted(PathBuf),
    /// A defect: the thread that writes has panicked.
    #[error("its thread panicked: standard error of the node says where; please report it")]
    Panicked,
    /// Nodes that run have all names.
    #[error("{0} and the names that could follow it are files of nodes that run: choose another directory")]
    InUse(PathBuf),
}

/// The slots of the two rings.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slots {
    pub(crate) events: usize,
    pub(crate) ticks: usize,
}

impl Slots {
    /// The slots of a file of `bytes` bytes at most.
    pub(crate) fn of(bytes: u64) -> Slots {
        let all = (bytes as usize).saturating_sub(HEADER_BYTES) / SLOT_BYTES;
        let events = all * EVENT_QUARTERS / 4;
        Slots {
            events,
            ticks: all - events,
        }
    }

    pub(crate) fn all(self) -> usize {
        self.events + self.ticks
    }
}

/// Makes and locks this node's file in the first directory where that works: one that is there may be another user's.
/// The name of the run before gets the suffix `.1`.
///
/// Err: of the first directory that is there, else of the first one.
pub(crate) fn claim(directories: &[PathBuf], node: &str) -> Result<(File, PathBuf), FileError> {
    let mut refused: Option<(FileError, bool)> = None;
    for directory in directories {
        match claim_in(directory, node) {
            Ok(claimed) => return Ok(claimed),
            Err(error) => {
                let is_there = directory.is_dir();
                if refused.as_ref().is_none_or(|(_, was_there)| is_there && !was_there) {
                    refused = Some((error, is_there));
                }
            }
        }
    }
    Err(refused.map_or_else(|| FileError::NoDirectory(PathBuf::new()), |(error, _)| error))
}

fn claim_in(directory: &Path, node: &str) -> Result<(File, PathBuf), FileError> {
    check_directory(directory)?;
    with_free_name(directory, node, |path| {
        let file = create(path)?;
        Ok(file.map(|file| {
            remove_old(directory, path);
            (file, path.to_owned())
        }))
    })
}

/// Gives a file of this process, which it has locked, the name of this node in its directory.
pub(crate) fn rename(from: &Path, node: &str) -> Result<PathBuf, FileError> {
    let directory = from.parent().unwrap_or(Path::new("/"));
    let name = names(directory, node, 1).0;
    if name == from {
        return Ok(name);
    }
    with_free_name(directory, node, |path| {
        let renamed = rustix::fs::renameat_with(CWD, from, CWD, path, RenameFlags::NOREPLACE);
        match renamed {
            Ok(()) => Ok(Some(path.to_owned())),
            Err(rustix::io::Errno::EXIST) => Ok(None),
            // The file system cannot tell whether the name is taken. It was free a moment before.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
                std::fs::rename(from, path).map_err(system("renaming", from))?;
                Ok(Some(path.to_owned()))
            }
            Err(error) => Err(system("renaming", from)(error.into())),
        }
    })
}

/// Tries the names of a node's files in turn, but those of nodes that run, and those that something else has. None:
/// another node has been faster.
fn with_free_name<T>(
    directory: &Path,
    node: &str,
    mut take: impl FnMut(&Path) -> Result<Option<T>, FileError>,
) -> Result<T, FileError> {
    let mut squatted = None;
    for number in 1..=SAME_NAMES_MAX {
        let (path, before) = names(directory, node, number);
        match make_room(&path, &before) {
            Ok(true) => {
                if let Some(taken) = take(&path)? {
                    return Ok(taken);
                }
            }
            Ok(false) => {}
            Err(error @ FileError::Squatted(_)) => squatted = squatted.or(Some(error)),
            Err(error) => return Err(error),
        }
    }
    Err(squatted.unwrap_or_else(|| FileError::InUse(names(directory, node, 1).0)))
}

/// The names of a node's file, and of the file of the run before, by the number among nodes of one name.
fn names(directory: &Path, node: &str, number: u32) -> (PathBuf, PathBuf) {
    let mut stem: String = node.chars().map(in_file_name).take(NAME_CHARS_MAX).collect();
    if number > 1 {
        stem = format!("{stem}{NUMBER}{number}");
    }
    (
        directory.join(format!("{PREFIX}{stem}{SUFFIX}")),
        directory.join(format!("{PREFIX}{stem}{SUFFIX_BEFORE}")),
    )
}

/// Maximum number of a node name's characters in a file name, which has other parts, and 255 characters at most.
const NAME_CHARS_MAX: usize = 200;

fn in_file_name(char: char) -> char {
    match char {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '@' | '.' | '-' | '_' => char,
        _ => '_',
    }
}

pub(crate) fn system(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError {
    let path = path.to_owned();
    move |error| FileError::System { step, path, error }
}

fn check_directory(directory: &Path) -> Result<(), FileError> {
    let found = rustix::fs::stat(directory).map_err(|error| system("looking at", directory)(error.into()))?;
    if FileType::from_raw_mode(found.st_mode) != FileType::Directory {
        return Err(FileError::NoDirectory(directory.to_owned()));
    }
    let mode = Mode::from_raw_mode(found.st_mode);
    if mode.contains(Mode::WOTH) && !mode.contains(Mode::SVTX) {
        return Err(FileError::OpenDirectory(directory.to_owned()));
    }
    Ok(())
}

/// A file with a name of this node's.
enum Older {
    Absent,
    /// Its process lives, or another node is taking it.
    InUse,
    /// Its process has ended. Locked, so that no other node takes it meanwhile.
    Left(File),
}

fn older(path: &Path) -> Result<Older, FileError> {
    match is_own_file(path) {
        Ok(true) => {}
        Ok(false) => return Err(FileError::Squatted(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Older::Absent),
        Err(error) => return Err(system("looking at", path)(error)),
    }
    match open_older(path) {
        Ok(file) if lock(&file) && is_named(&file, path) => Ok(Older::Left(file)),
        Ok(_) => Ok(Older::InUse),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Older::Absent),
        Err(error) => Err(system("opening", path)(error)),
    }
}

/// For writing, because NFS gives an exclusive lock for nothing else.
fn open_older(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

/// False: another process has it. True also where the file system has no locks.
fn lock(file: &File) -> bool {
    rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) != Err(rustix::io::Errno::WOULDBLOCK)
}

/// True if the path still names this file: another node may have renamed it before it was locked.
fn is_named(file: &File, path: &Path) -> bool {
    match (file.metadata(), path.symlink_metadata()) {
        (Ok(file), Ok(named)) => (file.dev(), file.ino()) == (named.dev(), named.ino()),
        _ => false,
    }
}

/// True if the path itself, not the target of a symbolic link, is a regular file of this user.
fn is_own_file(path: &Path) -> io::Result<bool> {
    let found = rustix::fs::lstat(path)?;
    Ok(FileType::from_raw_mode(found.st_mode) == FileType::RegularFile && found.st_uid == getuid().as_raw())
}

/// Renames the file of the run before, so that a restart does not lose it. False: a node that runs has the name.
fn make_room(path: &Path, before: &Path) -> Result<bool, FileError> {
    let left = match older(path)? {
        Older::Absent => return Ok(true),
        Older::InUse => return Ok(false),
        Older::Left(left) => left,
    };
    // Without a header: its node had no room on the disk, or is about to lock it, and then takes another name.
    if left.metadata().is_ok_and(|found| found.len() == 0) {
        std::fs::remove_file(path).map_err(system("removing", path))?;
        return Ok(true);
    }
    match older(before)? {
        Older::InUse => Ok(false),
        _locked => {
            std::fs::rename(path, before).map_err(system("renaming", path))?;
            Ok(true)
        }
    }
}

/// None: another node has been faster.
fn create(path: &Path) -> Result<Option<File>, FileError> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => {
            let file = File::from(file);
            Ok((lock(&file) && is_named(&file, path)).then_some(file))
        }
        Err(rustix::io::Errno::EXIST) => Ok(None),
        Err(error) => Err(system("making", path)(error.into())),
    }
}

/// When a recorder has started, in nanoseconds.
pub(crate) struct Start {
    monotonic: u64,
    realtime: u64,
}

impl Start {
    pub(crate) fn now() -> Start {
        Start {
            monotonic: slot::now(ClockId::Monotonic),
            realtime: slot::now(ClockId::Realtime),
        }
    }
}

/// The header of a recorder's file.
pub(crate) fn header(node: &str, slots: Slots, start: &Start) -> [u8; HEADER_BYTES] {
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let mut header = [0; HEADER_BYTES];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, MAGIC);
    put(8, &VERSION.to_le_bytes());
    put(12, &(SLOT_BYTES as u32).to_le_bytes());
    put(16, &(slots.events as u32).to_le_bytes());
    put(20, &(slots.ticks as u32).to_le_bytes());
    put(24, &start.monotonic.to_le_bytes());
    put(32, &start.realtime.to_le_bytes());
    put(40, &std::process::id().to_le_bytes());
    let boot_id = boot_id.trim_end().as_bytes();
    put(48, &boot_id[..boot_id.len().min(36)]);
    let name = &node.as_bytes()[..node.len().min(HEADER_BYTES - 86)];
    put(84, &(name.len() as u16).to_le_bytes());
    put(86, name);
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&header[..44]);
    hasher.update(&header[48..]);
    header[44..48].copy_from_slice(&hasher.finalize().to_le_bytes());
    header
}

/// Removes files of this user, except for the newest [`FILES_MAX`], those of nodes that run, and what it cannot remove.
fn remove_old(directory: &Path, own: &Path) {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return;
    };
    let mut files: Vec<_> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path != own && is_recording(path) && is_own_file(path).unwrap_or(false))
        .filter_map(|path| Some((path.symlink_metadata().ok()?.modified().ok()?, path)))
        .collect();
    if files.len() < FILES_MAX {
        return;
    }
    files.sort();
    for (_, path) in &files[..files.len() + 1 - FILES_MAX] {
        if let Ok(Older::Left(_locked)) = older(path) {
            let _stays = std::fs::remove_file(path);
        }
    }
}

fn is_recording(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with(PREFIX) && (name.ends_with(SUFFIX) || name.ends_with(SUFFIX_BEFORE))
}

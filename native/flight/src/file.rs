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
//! The whole file is written before it is mapped: a full disk is an error here, and not a signal later. File systems
//! that may need room to overwrite bytes, and those of other hosts, are refused for that reason, too.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::process::{Resource, getrlimit, getuid};
use rustix::time::ClockId;

use crate::primitive::AtomicU64;
use crate::ring::Ring;
use crate::slot::{self, Event, SLOT_BYTES, SLOT_WORDS};

const MAGIC: &[u8; 8] = b"inetrdma";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 4096;
/// Quarters of the slots that are for events; the rest is for ticks.
const EVENT_QUARTERS: usize = 3;

/// The ends of file names: of a node's last run, and of the run before it.
const SUFFIX: &str = ".flight";
const SUFFIX_BEFORE: &str = ".flight.1";
/// The beginning of file names.
const PREFIX: &str = "inet_rdma-";
/// Maximum number of files of this user in a directory: files of node names that never come back would fill it. The
/// oldest files of nodes that do not run are removed.
const FILES_MAX: usize = 64;

/// File systems that may need new room to overwrite bytes, or that lie on another host: a write to the mapping could
/// raise SIGBUS. The numbers are those of statfs(2).
const UNSAFE_FILE_SYSTEMS: [(i64, &str); 10] = [
    (0x9123_683e, "btrfs"),
    (0x2fc1_2fc1, "zfs"),
    (0xca45_1a4e, "bcachefs"),
    (0x6969, "nfs"),
    (0xff53_4d42, "cifs"),
    (0xfe53_4d42, "smb2"),
    (0x6573_5546, "fuse"),
    (0x00c3_6400, "ceph"),
    (0x0102_1997, "9p"),
    (0x7461_636f, "ocfs2"),
];

/// Why there is no recorder.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
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
    /// The file system may need room to overwrite bytes, or is another host's.
    #[error(
        "{path} is on {name}, where a file that is mapped could end the node when the disk is full: choose a \
             directory on tmpfs, ext4 or xfs"
    )]
    FileSystem {
        /// The directory.
        path: PathBuf,
        /// Its file system.
        name: &'static str,
    },
    /// The recorder's file name is taken by something that is not a file of this user.
    #[error("{0} is there, and is not a file of this user: remove it, or choose another directory")]
    Squatted(PathBuf),
    /// The limit of the process for files.
    #[error("the process may write files of {limit} bytes at most (ulimit -f), and the recorder needs {bytes}")]
    FileLimit {
        /// The limit.
        limit: u64,
        /// The size of the recorder's file.
        bytes: u64,
    },
}

/// The open recorder of a node.
pub struct Recorder {
    map: MmapRaw,
    slots: Slots,
    next_event: AtomicU64,
    next_tick: AtomicU64,
    path: PathBuf,
    /// Locked as long as the process lives, so that other nodes do not remove the file as an old one.
    _locked: File,
}

#[derive(Debug, Clone, Copy)]
struct Slots {
    events: usize,
    ticks: usize,
}

impl Slots {
    fn of(bytes: u64) -> Slots {
        let all = (bytes as usize).saturating_sub(HEADER_BYTES) / SLOT_BYTES;
        let events = all * EVENT_QUARTERS / 4;
        Slots {
            events,
            ticks: all - events,
        }
    }

    fn file_bytes(self) -> u64 {
        (HEADER_BYTES + (self.events + self.ticks) * SLOT_BYTES) as u64
    }
}

impl Recorder {
    /// Makes the file of this node in a directory, of `bytes` bytes at most. Renames the file of the run before: its
    /// name gets `.1` at the end. Waits for the disk: do not call it on a scheduler's thread.
    pub fn open(directory: &Path, node: &str, bytes: u64) -> Result<Recorder, OpenError> {
        check_directory(directory)?;
        let slots = Slots::of(bytes);
        check_limit(slots.file_bytes())?;
        let stem: String = node.chars().map(in_file_name).take(NAME_CHARS_MAX).collect();
        let path = directory.join(format!("{PREFIX}{stem}{SUFFIX}"));
        keep_before(&path, &directory.join(format!("{PREFIX}{stem}{SUFFIX_BEFORE}")))?;
        let file = create(&path)?;
        let (map, file) = fill(file, node, slots).map_err(|error| {
            let _without_it = std::fs::remove_file(&path);
            system("writing", &path)(error)
        })?;
        remove_old(directory, &path);
        Ok(Recorder {
            map,
            slots,
            next_event: AtomicU64::new(1),
            next_tick: AtomicU64::new(1),
            path,
            _locked: file,
        })
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends an event in place of the oldest one of its ring.
    pub fn append(&self, event: &Event<'_>) {
        let words = event.encode();
        match event.is_tick {
            false => self.events().append(&words),
            true => self.ticks().append(&words),
        }
    }

    /// The newest `most` events of a node, newest first, as the bytes of their slots. Reads each slot once.
    pub fn recent(&self, node: &str, most: usize) -> Vec<[u8; SLOT_BYTES]> {
        let events = self.events();
        let of_node = events.newest_first().filter(|words| slot::is_of(words, node));
        of_node.take(most).map(|words| slot::bytes(&words)).collect()
    }

    fn events(&self) -> Ring<'_, SLOT_WORDS> {
        Ring::new(&self.words()[..self.slots.events * SLOT_WORDS], &self.next_event)
    }

    fn ticks(&self) -> Ring<'_, SLOT_WORDS> {
        Ring::new(&self.words()[self.slots.events * SLOT_WORDS..], &self.next_tick)
    }

    /// The words of both rings.
    fn words(&self) -> &[AtomicU64] {
        let count = (self.slots.events + self.slots.ticks) * SLOT_WORDS;
        debug_assert_eq!(self.map.len(), HEADER_BYTES + count * size_of::<u64>());
        let first = self.map.as_mut_ptr().wrapping_add(HEADER_BYTES).cast::<AtomicU64>();
        // SAFETY: the mapping is of that many words behind the header, begins at a page, so that each word is aligned,
        // and lives as long as `self`. It is shared memory, which this process and readers of the file touch by atomics
        // or system calls alone. The file was written to its end before it was mapped, and is a file of this user in a
        // directory in which nobody else can replace it, so that its pages are there; docs/FLIGHT.md says that it must
        // not be truncated.
        unsafe { std::slice::from_raw_parts(first, count) }
    }
}

/// Maximum number of a node name's characters in a file name. Both names may have 255 characters, and the file name has
/// a beginning and an end of its own.
const NAME_CHARS_MAX: usize = 200;

fn in_file_name(char: char) -> char {
    match char {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '@' | '.' | '-' | '_' => char,
        _ => '_',
    }
}

fn system(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> OpenError {
    let path = path.to_owned();
    move |error| OpenError::System { step, path, error }
}

fn check_directory(directory: &Path) -> Result<(), OpenError> {
    let found = rustix::fs::stat(directory).map_err(|error| system("looking at", directory)(error.into()))?;
    if FileType::from_raw_mode(found.st_mode) != FileType::Directory {
        return Err(OpenError::NoDirectory(directory.to_owned()));
    }
    let mode = Mode::from_raw_mode(found.st_mode);
    if mode.contains(Mode::WOTH) && !mode.contains(Mode::SVTX) {
        return Err(OpenError::OpenDirectory(directory.to_owned()));
    }
    let system_of = rustix::fs::statfs(directory).map_err(|error| system("looking at", directory)(error.into()))?;
    match UNSAFE_FILE_SYSTEMS
        .iter()
        .find(|(number, _)| *number == system_of.f_type)
    {
        Some(&(_, name)) => Err(OpenError::FileSystem {
            path: directory.to_owned(),
            name,
        }),
        None => Ok(()),
    }
}

/// Fails if the file would exceed the process's limit: the kernel would end the process by SIGXFSZ.
fn check_limit(bytes: u64) -> Result<(), OpenError> {
    match getrlimit(Resource::Fsize).current {
        Some(limit) if limit < bytes => Err(OpenError::FileLimit { limit, bytes }),
        _ => Ok(()),
    }
}

/// Renames the file of the run before, so that a restart does not lose it.
fn keep_before(path: &Path, before: &Path) -> Result<(), OpenError> {
    match is_own_file(path) {
        Ok(true) => std::fs::rename(path, before).map_err(system("renaming", path)),
        Ok(false) => Err(OpenError::Squatted(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(system("looking at", path)(error)),
    }
}

/// True if the path itself, not the target of a symbolic link, is a regular file of this user.
fn is_own_file(path: &Path) -> io::Result<bool> {
    let found: Stat = rustix::fs::lstat(path)?;
    Ok(FileType::from_raw_mode(found.st_mode) == FileType::RegularFile && found.st_uid == getuid().as_raw())
}

fn create(path: &Path) -> Result<File, OpenError> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => Ok(file.into()),
        // Another user has made a file of this name since `keep_before`.
        Err(rustix::io::Errno::EXIST) => Err(OpenError::Squatted(path.to_owned())),
        Err(error) => Err(system("making", path)(error.into())),
    }
}

fn fill(mut file: File, node: &str, slots: Slots) -> io::Result<(MmapRaw, File)> {
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)?;
    file.write_all(&header(node, slots))?;
    io::copy(
        &mut io::repeat(0).take(slots.file_bytes() - HEADER_BYTES as u64),
        &mut file,
    )?;
    let map = MmapOptions::new().len(slots.file_bytes() as usize).map_raw(&file)?;
    Ok((map, file))
}

fn header(node: &str, slots: Slots) -> [u8; HEADER_BYTES] {
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let mut header = [0; HEADER_BYTES];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, MAGIC);
    put(8, &VERSION.to_le_bytes());
    put(12, &(SLOT_BYTES as u32).to_le_bytes());
    put(16, &(slots.events as u32).to_le_bytes());
    put(20, &(slots.ticks as u32).to_le_bytes());
    put(24, &slot::now(ClockId::Monotonic).to_le_bytes());
    put(32, &slot::now(ClockId::Realtime).to_le_bytes());
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

/// Removes files of this user from the directory, except for the newest [`FILES_MAX`] and those of nodes that run.
/// Keeps files that cannot be removed.
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
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(file) = rustix::fs::open(path, flags, Mode::empty()) else {
            continue;
        };
        let lock = rustix::fs::flock(file.as_fd(), rustix::fs::FlockOperation::NonBlockingLockExclusive);
        if lock.is_ok() {
            let _stays = std::fs::remove_file(path);
        }
    }
}

fn is_recording(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with(PREFIX) && (name.ends_with(SUFFIX) || name.ends_with(SUFFIX_BEFORE))
}

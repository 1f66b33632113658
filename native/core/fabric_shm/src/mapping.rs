//! Sealed memory files and their mappings.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use inet_rdma_fabric::closing::Stray;
use inet_rdma_fabric::{FabricError, Misbehaviour};
use memmap2::{MmapOptions, MmapRaw, UncheckedAdvice};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;

#[cfg(test)]
mod tests;

/// The type that `fstatfs` gives for a memory file on ordinary pages. A file on huge pages has another type and is
/// refused: an access raises SIGBUS when the machine's pool of huge pages is empty.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// A memory file that can neither shrink nor grow.
///
/// # Invariants
///
/// * The file is a memfd on ordinary pages, of `bytes` bytes.
/// * It carries the seals SHRINK, GROW and SEAL, so its size stays `bytes` and the seals stay.
///
/// Together: an access to a mapping of it fails only where the kernel has no page for it. That is the OOM killer's
/// case, unless the kernel limits what it commits ([`is_commit_limited`]): then it is SIGBUS, so [`SealedFile::create`]
/// reserves all pages there.
#[derive(Debug)]
pub(crate) struct SealedFile {
    fd: OwnedFd,
    bytes: u64,
    /// True: all pages were reserved when the file was made.
    is_reserved: bool,
}

impl SealedFile {
    const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

    /// Makes a file of zeros. It takes no memory until pages are touched, unless the kernel limits what it commits.
    pub(crate) fn create(bytes: usize) -> Result<SealedFile, FabricError> {
        SealedFile::create_reserved(bytes, is_commit_limited())
    }

    fn create_reserved(bytes: usize, reserved: bool) -> Result<SealedFile, FabricError> {
        let bytes = bytes as u64;
        let refused = |errno| FabricError::system("creating the memory of a connection", errno);
        let fd = memory_file().map_err(refused)?;
        rustix::fs::ftruncate(&fd, bytes).map_err(refused)?;
        if reserved {
            reserve(fd.as_fd(), bytes)?;
        }
        rustix::fs::fcntl_add_seals(&fd, Self::SEALS).map_err(refused)?;
        Ok(SealedFile {
            fd,
            bytes,
            is_reserved: reserved,
        })
    }

    /// Takes a file that the peer has sent, after the kernel has confirmed the invariants.
    pub(crate) fn verify(fd: Stray) -> Result<SealedFile, FabricError> {
        // EINVAL: not a file that can have seals at all.
        let seals = match rustix::fs::fcntl_get_seals(&fd) {
            Err(Errno::INVAL) => SealFlags::empty(),
            Ok(seals) => seals,
            Err(errno) => {
                return Err(FabricError::system(
                    "reading the seals of the memory of the peer",
                    errno,
                ));
            }
        };
        if !seals.contains(Self::SEALS) {
            return Err(misbehaved(Misbehaviour::MemoryUnsealed));
        }
        let refused = |errno| FabricError::system("looking at the memory of the peer", errno);
        let system_of = rustix::fs::fstatfs(&fd).map_err(refused)?;
        if system_of.f_type as u64 != TMPFS_MAGIC {
            return Err(misbehaved(Misbehaviour::MemoryPages));
        }
        let stat = rustix::fs::fstat(&fd).map_err(refused)?;
        let bytes = u64::try_from(stat.st_size).map_err(|_| misbehaved(Misbehaviour::MemoryTooLarge))?;
        Ok(SealedFile {
            fd: fd.checked(),
            bytes,
            is_reserved: false,
        })
    }

    /// Size of the file, which never changes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl AsFd for SealedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Makes a memory file that can never be executed: `vm.memfd_noexec=2` refuses any other. Kernels before 6.3 do not
/// know the flag.
fn memory_file() -> rustix::io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match rustix::fs::memfd_create("inet_rdma", flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => rustix::fs::memfd_create("inet_rdma", flags),
        created => created,
    }
}

/// True if the kernel limits the pages that it commits (`vm.overcommit_memory=2`). It commits the pages of a memory
/// file one by one, at the first touch, and raises SIGBUS if it refuses one. In other modes it refuses no single page.
fn is_commit_limited() -> bool {
    std::fs::read("/proc/sys/vm/overcommit_memory").is_ok_and(|mode| mode.starts_with(b"2"))
}

/// Makes the kernel commit all pages of the file.
fn reserve(file: BorrowedFd<'_>, bytes: u64) -> Result<(), FabricError> {
    loop {
        return match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
            Ok(()) => Ok(()),
            Err(Errno::INTR) => continue,
            Err(Errno::NOSPC | Errno::NOMEM) => Err(FabricError::SharedMemory { bytes }),
            Err(errno) => Err(FabricError::system("reserving the memory of a connection", errno)),
        };
    }
}

/// A sealed file, mapped as a whole for reading and writing.
///
/// # Invariants
///
/// The file behind it was a [`SealedFile`] of [`Self::bytes`] bytes, at most `isize::MAX`, so every byte can be
/// accessed at any time.
#[derive(Debug)]
pub(crate) struct Mapping {
    pages: MmapRaw,
    /// True: the mapping gives no page back, as the kernel might refuse the page later.
    keeps_pages: bool,
}

impl Mapping {
    /// Maps the file, which may be closed afterwards.
    pub(crate) fn of(file: &SealedFile) -> Result<Mapping, FabricError> {
        let bytes = isize::try_from(file.bytes()).map_err(|_| misbehaved(Misbehaviour::MemoryTooLarge))?;
        let mapped = MmapOptions::new().len(bytes as usize).map_raw(&file.fd);
        let pages = mapped.map_err(|error| match error.raw_os_error() {
            // Opened for reading only, or sealed against writing.
            Some(libc::EACCES | libc::EPERM) => misbehaved(Misbehaviour::MemoryUnwritable),
            _ => FabricError::system("mapping the memory of a connection", error),
        })?;
        Ok(Mapping {
            pages,
            keeps_pages: file.is_reserved,
        })
    }

    /// First byte of the mapping, at the start of a page. Valid while the mapping lives.
    pub(crate) fn base(&self) -> *mut u8 {
        self.pages.as_mut_ptr()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.pages.len()
    }

    /// Gives the pages that lie in `range` as a whole back to the system, for all processes that map the file: they are
    /// zeros from then on. Does nothing for a file whose pages were reserved, and nothing outside of the mapping.
    pub(crate) fn discard(&self, range: Range<usize>) {
        let page = rustix::param::page_size();
        let start = range.start.next_multiple_of(page);
        let end = range.end.min(self.bytes()) / page * page;
        if self.keeps_pages || start >= end {
            return;
        }
        let bytes = end - start;
        // SAFETY: the range lies inside the mapping. Its bytes become zeros, as a write of the peer could make them:
        // this process reads them through raw pointers and atomics only. The file keeps its size, so every byte can
        // still be accessed. It fails only on a kernel that cannot give pages of such a file back; they stay then.
        let _stays = unsafe { self.pages.unchecked_advise_range(UncheckedAdvice::Remove, start, bytes) };
    }
}

fn misbehaved(what: Misbehaviour) -> FabricError {
    FabricError::PeerMisbehaved(what)
}

use rustix::fs::{Mode, OFlags};

use super::*;

const BYTES: usize = 1 << 20;

fn held_bytes(file: &SealedFile) -> u64 {
    // The unit of st_blocks is 512 bytes, whatever st_blksize says.
    512 * u64::try_from(rustix::fs::fstat(file).expect("its size").st_blocks).expect("a count")
}

#[test]
fn only_a_reserved_file_holds_memory_from_the_start() {
    let [lazy, reserved] = [false, true].map(|reserved| SealedFile::create_reserved(BYTES, reserved).expect("memory"));
    assert_eq!((held_bytes(&lazy), held_bytes(&reserved)), (0, BYTES as u64));
    assert_eq!((lazy.bytes(), reserved.bytes()), (BYTES as u64, BYTES as u64));
}

#[test]
fn where_the_kernel_limits_commitments_all_pages_are_reserved() {
    let file = SealedFile::create(BYTES).expect("memory");
    let expected = if is_commit_limited() { BYTES as u64 } else { 0 };
    assert_eq!(held_bytes(&file), expected);
}

/// A file system that is too small refuses as a kernel does that commits no further memory.
#[test]
fn a_refused_reservation_says_what_to_do() {
    let total = rustix::fs::statvfs("/dev/shm").map_or(0, |system| system.f_blocks * system.f_frsize);
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = match rustix::fs::open("/dev/shm", flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) if total > 0 => file,
        other => return println!("skipped: no tmpfs of a limited size at /dev/shm: {other:?}"),
    };
    let error = reserve(file.as_fd(), total + 4_096).expect_err("more than the file system has");
    assert!(
        matches!(error, FabricError::SharedMemory { bytes } if bytes == total + 4_096),
        "{error}"
    );
    assert!(error.to_string().contains("vm.overcommit_ratio"), "{error}");
}

#[test]
fn a_memory_file_can_never_be_executed() {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL;
    if matches!(rustix::fs::memfd_create("probe", flags), Err(Errno::INVAL)) {
        return println!("skipped: this kernel does not know MFD_NOEXEC_SEAL");
    }
    let file = SealedFile::create(BYTES).expect("memory");
    let mode = Mode::from_raw_mode(rustix::fs::fstat(&file).expect("its mode").st_mode);
    assert!(!mode.intersects(Mode::XUSR | Mode::XGRP | Mode::XOTH), "{mode:?}");
    assert!(rustix::fs::fchmod(&file, mode | Mode::XUSR).is_err(), "sealed");
}

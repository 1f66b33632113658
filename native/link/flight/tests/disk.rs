//! A recorder's file on disks that fail, and under hands that change it.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::ffi::CString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use inet_rdma_flight::{Event, Recorder, Writer};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

const BYTES: u64 = 65536;

fn node(directory: &Path) -> (Arc<Recorder>, Writer) {
    let recorder = Arc::new(Recorder::new("a@host", BYTES));
    let writer = Writer::new(Arc::clone(&recorder), vec![directory.to_owned()]);
    (recorder, writer)
}

fn path(directory: &Path) -> PathBuf {
    directory.join("inet_rdma-a@host.flight")
}

fn append(recorder: &Recorder, words: &str) {
    recorder.append(&Event {
        node: "b@host",
        kind: "lost",
        words,
        ..Event::default()
    });
}

/// Fails unless the file has a header and these events.
fn has(directory: &Path, events: &[&str]) {
    let bytes = fs::read(path(directory)).unwrap();
    assert_eq!(&bytes[..8], b"inetrdma");
    let text = String::from_utf8_lossy(&bytes);
    for event in events {
        assert!(text.contains(event), "{event} is not in the file");
    }
}

/// A tmpfs until it is dropped.
struct Mounted(tempfile::TempDir);

impl Mounted {
    /// None, with a line of the test's output: this user mounts nothing.
    fn new(size: &str) -> Option<Mounted> {
        let directory = tempfile::tempdir().unwrap();
        let options = CString::new(size).unwrap();
        match mount("tmpfs", directory.path(), "tmpfs", MountFlags::empty(), &*options) {
            Ok(()) => Some(Mounted(directory)),
            Err(error) => {
                eprintln!("skipped: this user mounts no tmpfs: {error}");
                None
            }
        }
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ignored = unmount(self.path(), UnmountFlags::DETACH);
    }
}

#[test]
fn events_of_a_full_disk_are_written_when_there_is_room() {
    let Some(disk) = Mounted::new("size=64k") else { return };
    let (recorder, mut writer) = node(disk.path());
    append(&recorder, "before");
    writer.write().unwrap();
    let ballast = disk.path().join("ballast");
    let full = fs::File::create(&ballast)
        .unwrap()
        .write_all(&[0; 1 << 20])
        .unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    let names: Vec<_> = (0..40).map(|number| format!("event {number};")).collect();
    names.iter().for_each(|name| append(&recorder, name));
    for _ in 0..2 {
        let error = writer.write().unwrap_err().to_string();
        assert!(error.contains("No space left"), "{error}");
    }
    assert_eq!(recorder.recent("b@host", 100).len(), 41, "in memory");
    fs::remove_file(&ballast).unwrap();
    append(&recorder, "after");
    writer.write().unwrap();
    has(disk.path(), &names.iter().map(String::as_str).collect::<Vec<_>>());
    has(disk.path(), &["before", "after"]);
}

/// Without room for the header, too.
#[test]
fn a_disk_that_is_full_from_the_start_has_the_file_when_there_is_room() {
    let Some(disk) = Mounted::new("size=64k") else { return };
    let ballast = disk.path().join("ballast");
    let _full = fs::File::create(&ballast)
        .unwrap()
        .write_all(&[0; 1 << 20])
        .unwrap_err();
    let (recorder, mut writer) = node(disk.path());
    append(&recorder, "the one");
    assert!(writer.write().is_err());
    assert!(writer.write().is_err());
    fs::remove_file(&ballast).unwrap();
    writer.write().unwrap();
    has(disk.path(), &["the one"]);
}

#[test]
fn a_disk_that_takes_no_writes_has_the_file_when_it_does() {
    let Some(disk) = Mounted::new("size=1m") else { return };
    let read_only = |flags| rustix::mount::mount_remount(disk.path(), flags, c"").unwrap();
    let (recorder, mut writer) = node(disk.path());
    append(&recorder, "the one");
    read_only(MountFlags::RDONLY);
    let error = writer.write().unwrap_err().to_string();
    assert!(error.contains("Read-only file system"), "{error}");
    read_only(MountFlags::empty());
    writer.write().unwrap();
    has(disk.path(), &["the one"]);
}

#[test]
fn a_file_that_is_removed_is_made_anew_and_whole() {
    let directory = tempfile::tempdir().unwrap();
    let (recorder, mut writer) = node(directory.path());
    append(&recorder, "first");
    writer.write().unwrap();
    fs::remove_file(path(directory.path())).unwrap();
    append(&recorder, "second");
    writer.write().unwrap();
    has(directory.path(), &["first", "second"]);
}

#[test]
fn a_file_that_is_truncated_is_written_again() {
    let directory = tempfile::tempdir().unwrap();
    let (recorder, mut writer) = node(directory.path());
    for size in [0, 100, 4096] {
        append(&recorder, "first");
        writer.write().unwrap();
        let file = fs::OpenOptions::new().write(true).open(path(directory.path())).unwrap();
        file.set_len(size).unwrap();
        append(&recorder, "second");
        writer.write().unwrap();
        has(directory.path(), &["first", "second"]);
    }
}

#[test]
fn a_directory_that_is_removed_has_the_file_when_it_is_back() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("directory");
    fs::create_dir(&directory).unwrap();
    let (recorder, mut writer) = node(&directory);
    append(&recorder, "first");
    writer.write().unwrap();
    fs::remove_dir_all(&directory).unwrap();
    append(&recorder, "second");
    let error = writer.write().unwrap_err().to_string();
    assert!(error.contains("No such file"), "{error}");
    fs::create_dir(&directory).unwrap();
    writer.write().unwrap();
    has(&directory, &["first", "second"]);
}

#[test]
fn no_file_is_mapped() {
    let directory = tempfile::tempdir().unwrap();
    let (recorder, mut writer) = node(directory.path());
    append(&recorder, "the one");
    writer.write().unwrap();
    assert!(!fs::read_to_string("/proc/self/maps").unwrap().contains(".flight"));
}

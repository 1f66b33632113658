//! A recorder in real directories.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use inet_rdma_flight::{Event, OpenError, Recorder, SLOT_BYTES};

const BYTES: u64 = 65536;

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn path(directory: &Path) -> PathBuf {
    directory.join("inet_rdma-a@host.flight")
}

fn event<'a>(node: &'a str, words: &'a str) -> Event<'a> {
    Event {
        node,
        kind: "lost",
        words,
        ..Event::default()
    }
}

fn words(slot: &[u8; SLOT_BYTES]) -> String {
    let texts: usize = slot[12..16].iter().map(|&bytes| usize::from(bytes)).sum();
    let at = 57 + texts;
    String::from_utf8(slot[at..at + usize::from(slot[56])].to_vec()).unwrap()
}

#[test]
fn events_are_in_the_file_at_once_and_found_by_their_node() {
    let directory = directory();
    let recorder = Recorder::open(directory.path(), "a@host", BYTES).unwrap();
    for number in 0..100 {
        recorder.append(&event("b@host", &format!("event {number}")));
        recorder.append(&event("c@host", "another link"));
    }
    let found: Vec<_> = recorder.recent("b@host", 3).iter().map(words).collect();
    assert_eq!(found, ["event 99", "event 98", "event 97"]);
    let bytes = fs::read(path(directory.path())).unwrap();
    assert_eq!(bytes.len() as u64, BYTES);
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.contains("event 99") && text.contains("a@host"));
    let metadata = fs::metadata(path(directory.path())).unwrap();
    assert_eq!(metadata.mode() & 0o777, 0o600);
    // No holes: the disk has room for each byte.
    assert!(metadata.blocks() * 512 >= BYTES);
}

#[test]
fn ticks_drive_no_events_out() {
    let directory = directory();
    let recorder = Recorder::open(directory.path(), "a@host", BYTES).unwrap();
    recorder.append(&event("b@host", "the one"));
    for _ in 0..1000 {
        recorder.append(&Event {
            is_tick: true,
            ..event("b@host", "tick")
        });
    }
    assert_eq!(recorder.recent("b@host", 50).len(), 1);
}

#[test]
fn the_file_of_the_run_before_is_kept() {
    let directory = directory();
    for run in 0..3 {
        let recorder = Recorder::open(directory.path(), "a@host", BYTES).unwrap();
        recorder.append(&event("b@host", &format!("run {run}")));
    }
    let text = |path: PathBuf| String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned();
    assert!(text(path(directory.path())).contains("run 2"));
    assert!(text(directory.path().join("inet_rdma-a@host.flight.1")).contains("run 1"));
}

#[test]
fn names_of_others_are_refused() {
    for squat in [
        |path: &Path| symlink("/etc/passwd", path).unwrap(),
        |path: &Path| symlink("nowhere", path).unwrap(),
        |path: &Path| fs::create_dir(path).unwrap(),
        |path: &Path| {
            rustix::fs::mknodat(
                rustix::fs::CWD,
                path,
                rustix::fs::FileType::Fifo,
                rustix::fs::Mode::RUSR,
                0,
            )
            .unwrap();
        },
    ] {
        let directory = directory();
        squat(&path(directory.path()));
        let refused = Recorder::open(directory.path(), "a@host", BYTES).err().unwrap();
        assert!(matches!(refused, OpenError::Squatted(_)), "{refused}");
    }
}

#[test]
fn a_file_of_another_user_is_refused() {
    if !rustix::process::getuid().is_root() {
        eprintln!("skipped: only root gives files away");
        return;
    }
    let directory = directory();
    fs::write(path(directory.path()), b"").unwrap();
    std::os::unix::fs::chown(path(directory.path()), Some(65534), None).unwrap();
    let refused = Recorder::open(directory.path(), "a@host", BYTES).err().unwrap();
    assert!(matches!(refused, OpenError::Squatted(_)), "{refused}");
}

#[test]
fn directories_that_do_not_fit_are_refused() {
    let directory = directory();
    let missing = Recorder::open(&directory.path().join("none"), "a@host", BYTES)
        .err()
        .unwrap();
    assert!(missing.to_string().contains("No such file"), "{missing}");
    let file = directory.path().join("file");
    fs::write(&file, b"").unwrap();
    assert!(matches!(
        Recorder::open(&file, "a@host", BYTES),
        Err(OpenError::NoDirectory(_))
    ));
    let open = directory.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(
        Recorder::open(&open, "a@host", BYTES),
        Err(OpenError::OpenDirectory(_))
    ));
    fs::set_permissions(&open, fs::Permissions::from_mode(0o1777)).unwrap();
    assert!(Recorder::open(&open, "a@host", BYTES).is_ok());
    assert!(Recorder::open(Path::new("/proc"), "a@host", BYTES).is_err());
}

#[test]
fn names_of_nodes_that_are_no_names_of_files_are_changed() {
    let directory = directory();
    let recorder = Recorder::open(directory.path(), "../ü\0x@host", BYTES).unwrap();
    assert_eq!(recorder.path(), directory.path().join("inet_rdma-..___x@host.flight"));
    assert!(Recorder::open(directory.path(), &"n".repeat(1000), BYTES).is_ok());
}

#[test]
fn old_files_of_nodes_that_do_not_run_go() {
    let directory = directory();
    let running = Recorder::open(directory.path(), "running@host", BYTES).unwrap();
    let other = directory.path().join("inet_rdma-notes.txt");
    fs::write(&other, b"").unwrap();
    for number in 0..100 {
        Recorder::open(directory.path(), &format!("n{number}@host"), BYTES).unwrap();
    }
    let count = fs::read_dir(directory.path()).unwrap().count();
    assert!((64..=66).contains(&count), "{count}");
    assert!(running.path().exists() && other.exists());
    assert!(directory.path().join("inet_rdma-n99@host.flight").exists());
    assert!(!directory.path().join("inet_rdma-n1@host.flight").exists());
}

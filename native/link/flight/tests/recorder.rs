//! A recorder's file in real directories.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier};

use inet_rdma_flight::{Event, FileError, Recorder, SLOT_BYTES, Writer};

const BYTES: u64 = 65536;

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn path(directory: &Path) -> PathBuf {
    directory.join("inet_rdma-a@host.flight")
}

/// The recorder of a node, and the writer of its file.
fn node(directory: &Path, name: &str) -> (Arc<Recorder>, Writer) {
    let recorder = Arc::new(Recorder::new(name, BYTES));
    let writer = Writer::new(Arc::clone(&recorder), vec![directory.to_owned()]);
    (recorder, writer)
}

/// A node with one event of a link.
fn linked(directory: &Path, name: &str) -> (Arc<Recorder>, Writer) {
    let (recorder, writer) = node(directory, name);
    assert!(recorder.append(&event("b@host", "linked")));
    (recorder, writer)
}

/// What its file's making fails with.
fn refused(directory: &Path) -> FileError {
    let (recorder, mut writer) = linked(directory, "a@host");
    let error = writer.write().unwrap_err();
    assert_eq!(recorder.recent("b@host", 2).len(), 1, "it stays in memory");
    error
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

fn text(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned()
}

#[test]
fn events_are_in_the_file_once_it_is_written_and_found_by_their_node() {
    let directory = directory();
    let (recorder, mut writer) = node(directory.path(), "a@host");
    for number in 0..100 {
        recorder.append(&event("b@host", &format!("event {number}")));
        recorder.append(&event("c@host", "another link"));
        writer.write().unwrap();
    }
    let found: Vec<_> = recorder.recent("b@host", 3).iter().map(words).collect();
    assert_eq!(found, ["event 99", "event 98", "event 97"]);
    let text = text(&path(directory.path()));
    assert!(text.contains("event 99") && text.contains("a@host"));
    let metadata = fs::metadata(path(directory.path())).unwrap();
    assert_eq!(metadata.mode() & 0o777, 0o600);
}

#[test]
fn a_node_without_a_link_leaves_no_file() {
    let directory = directory();
    let (recorder, mut writer) = node(directory.path(), "a@host");
    assert!(!recorder.append(&event("a@host", "start")));
    writer.write().unwrap();
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    assert!(recorder.append(&event("b@host", "a link")));
    assert!(recorder.append(&event("a@host", "stop")));
    writer.write().unwrap();
    let text = text(&path(directory.path()));
    assert!(text.contains("start") && text.contains("a link") && text.contains("stop"));
}

#[test]
fn the_file_grows_with_the_events_to_its_maximum() {
    let directory = directory();
    let (recorder, mut writer) = linked(directory.path(), "a@host");
    let mut sizes = vec![];
    for _ in 0..3 {
        writer.write().unwrap();
        sizes.push(fs::metadata(path(directory.path())).unwrap().len());
        recorder.append(&event("b@host", "one more"));
    }
    assert_eq!(sizes[0], 4096 + 2 * 256, "slot 0 is that of a later event");
    assert_eq!(sizes[2], sizes[0] + 2 * 256);
    for number in 0..2000 {
        recorder.append(&Event {
            is_tick: number % 2 == 0,
            ..event("b@host", "many")
        });
    }
    writer.write().unwrap();
    assert_eq!(fs::metadata(path(directory.path())).unwrap().len(), BYTES);
}

#[test]
fn ticks_drive_no_events_out() {
    let directory = directory();
    let (recorder, mut writer) = linked(directory.path(), "a@host");
    for _ in 0..1000 {
        recorder.append(&Event {
            is_tick: true,
            ..event("b@host", "tick")
        });
    }
    assert_eq!(recorder.recent("b@host", 50).len(), 1);
    writer.write().unwrap();
    assert!(text(&path(directory.path())).contains("linked"));
}

#[test]
fn the_file_of_the_run_before_is_kept() {
    let directory = directory();
    for run in 0..3 {
        let (recorder, mut writer) = linked(directory.path(), "a@host");
        recorder.append(&event("b@host", &format!("run {run}")));
        writer.write().unwrap();
    }
    assert!(text(&path(directory.path())).contains("run 2"));
    assert!(text(&directory.path().join("inet_rdma-a@host.flight.1")).contains("run 1"));
}

#[test]
fn nodes_of_one_name_have_files_of_their_own() {
    let directory = directory();
    let second = directory.path().join("inet_rdma-a@host+2.flight");
    let (first, mut writer_of_first) = linked(directory.path(), "a@host");
    writer_of_first.write().unwrap();
    for run in 0..3 {
        let (recorder, mut writer) = linked(directory.path(), "a@host");
        recorder.append(&event("b@host", &format!("second {run}")));
        writer.write().unwrap();
        assert_eq!(writer.path(), Some(second.as_path()));
    }
    first.append(&event("b@host", "first"));
    writer_of_first.write().unwrap();
    assert_eq!(writer_of_first.path(), Some(path(directory.path()).as_path()));
    assert!(text(&path(directory.path())).contains("first"));
    assert!(text(&second).contains("second 2"));
    assert!(text(&directory.path().join("inet_rdma-a@host+2.flight.1")).contains("second 1"));
}

/// A node of a version that renames files of nodes that run.
#[test]
fn a_locked_file_that_somebody_has_renamed_is_not_replaced() {
    let directory = directory();
    let (_first, mut renamed) = linked(directory.path(), "a@host");
    renamed.write().unwrap();
    let before = directory.path().join("inet_rdma-a@host.flight.1");
    fs::rename(path(directory.path()), &before).unwrap();
    let inode = fs::metadata(&before).unwrap().ino();
    for _ in 0..3 {
        linked(directory.path(), "a@host").1.write().unwrap();
    }
    assert_eq!(fs::metadata(&before).unwrap().ino(), inode);
}

#[test]
fn nodes_of_one_name_that_start_at_once_have_files_of_their_own() {
    const NODES: usize = 8;
    for _ in 0..20 {
        let directory = directory();
        linked(directory.path(), "a@host").1.write().unwrap();
        let (start, written) = (Barrier::new(NODES), Barrier::new(NODES));
        std::thread::scope(|scope| {
            for number in 0..NODES {
                let (directory, start, written) = (directory.path(), &start, &written);
                scope.spawn(move || {
                    let (recorder, mut writer) = linked(directory, "a@host");
                    let own = format!("node {number}");
                    recorder.append(&event("b@host", &own));
                    start.wait();
                    writer.write().unwrap();
                    written.wait();
                    assert!(text(writer.path().unwrap()).contains(&own));
                });
            }
        });
        let before = text(&directory.path().join("inet_rdma-a@host.flight.1"));
        assert!(before.contains("linked") && !before.contains("node"), "the run before");
    }
}

/// The name of the file beside that of another node of this name.
fn next_path(directory: &Path) -> PathBuf {
    directory.join("inet_rdma-a@host+2.flight")
}

#[test]
fn names_of_others_are_passed_over() {
    for squat in [
        |path: &Path| symlink("/etc/passwd", path).unwrap(),
        |path: &Path| symlink("nowhere", path).unwrap(),
        |path: &Path| fs::create_dir(path).unwrap(),
        |path: &Path| {
            let (file, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
            rustix::fs::mknodat(rustix::fs::CWD, path, file, mode, 0).unwrap();
        },
    ] {
        let directory = directory();
        let path = path(directory.path());
        squat(&path);
        let before = fs::symlink_metadata(&path).unwrap();
        let (_recorder, mut writer) = linked(directory.path(), "a@host");
        writer.write().unwrap();
        assert_eq!(writer.path(), Some(&*next_path(directory.path())));
        assert!(text(&next_path(directory.path())).contains("linked"));
        assert_eq!(fs::symlink_metadata(&path).unwrap().ino(), before.ino());
    }
}

#[test]
fn a_file_of_another_user_is_passed_over() {
    if !rustix::process::getuid().is_root() {
        eprintln!("skipped: only root gives files away");
        return;
    }
    let directory = directory();
    for name in ["inet_rdma-a@host.flight", "inet_rdma-a@host+2.flight.1"] {
        fs::write(directory.path().join(name), b"").unwrap();
        std::os::unix::fs::chown(directory.path().join(name), Some(65534), None).unwrap();
    }
    let (_recorder, mut writer) = linked(directory.path(), "a@host");
    writer.write().unwrap();
    assert_eq!(writer.path(), Some(&*next_path(directory.path())));
}

#[test]
fn a_node_whose_names_are_all_taken_has_a_file_when_one_is_free() {
    let directory = directory();
    fs::create_dir(path(directory.path())).unwrap();
    for number in 2..=64 {
        fs::create_dir(directory.path().join(format!("inet_rdma-a@host+{number}.flight"))).unwrap();
    }
    let (_recorder, mut writer) = linked(directory.path(), "a@host");
    for _ in 0..2 {
        let refused = writer.write().unwrap_err();
        assert!(matches!(refused, FileError::Squatted(_)), "{refused}");
    }
    fs::remove_dir(directory.path().join("inet_rdma-a@host+64.flight")).unwrap();
    writer.write().unwrap();
}

#[test]
fn the_file_follows_the_name_of_the_node() {
    let directory = directory();
    let (recorder, mut writer) = node(directory.path(), "prelaunch@localhost");
    recorder.rename("early@host");
    recorder.append(&event("early@host", "own"));
    writer.write().unwrap();
    assert_eq!(writer.path(), None, "no event of a link");
    recorder.append(&event("b@host", "linked"));
    writer.write().unwrap();
    assert_eq!(
        writer.path(),
        Some(&*directory.path().join("inet_rdma-early@host.flight"))
    );
    // The run before of that name.
    linked(directory.path(), "a@host").1.write().unwrap();
    recorder.rename("a@host");
    recorder.append(&event("b@host", "renamed"));
    writer.write().unwrap();
    assert_eq!(writer.path(), Some(&*path(directory.path())));
    let file = text(&path(directory.path()));
    assert!(file.contains("linked") && file.contains("renamed"));
    assert!(
        file[..4096.min(file.len())].contains("a@host"),
        "the header has the name"
    );
    assert!(directory.path().join("inet_rdma-a@host.flight.1").exists());
    assert!(!directory.path().join("inet_rdma-early@host.flight").exists());
}

#[test]
fn directories_that_do_not_fit_are_refused() {
    let directory = directory();
    let missing = refused(&directory.path().join("none"));
    assert!(missing.to_string().contains("No such file"), "{missing}");
    let file = directory.path().join("file");
    fs::write(&file, b"").unwrap();
    assert!(matches!(refused(&file), FileError::NoDirectory(_)));
    let open = directory.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(refused(&open), FileError::OpenDirectory(_)));
    fs::set_permissions(&open, fs::Permissions::from_mode(0o1777)).unwrap();
    linked(&open, "a@host").1.write().unwrap();
    refused(Path::new("/proc"));
}

#[test]
fn the_first_directory_has_the_file() {
    let (first, last) = (directory(), directory());
    let recorder = Arc::new(Recorder::new("a@host", BYTES));
    recorder.append(&event("b@host", "linked"));
    let candidates = [
        first.path().join("none"),
        first.path().to_owned(),
        last.path().to_owned(),
    ];
    Writer::new(recorder, candidates.to_vec()).write().unwrap();
    assert!(path(first.path()).exists() && !path(last.path()).exists());
}

#[test]
fn a_directory_where_no_file_can_be_made_is_passed_over() {
    let last = directory();
    // No user may make files in /proc.
    let candidates = [PathBuf::from("/proc"), last.path().to_owned()];
    let recorder = Arc::new(Recorder::new("a@host", BYTES));
    recorder.append(&event("b@host", "linked"));
    Writer::new(recorder, candidates.to_vec()).write().unwrap();
    assert!(path(last.path()).exists());
}

#[test]
fn names_of_nodes_that_are_no_names_of_files_are_changed() {
    let directory = directory();
    let (_recorder, mut writer) = linked(directory.path(), "../ü\0x@ho+st");
    writer.write().unwrap();
    let name = directory.path().join("inet_rdma-..___x@ho_st.flight");
    assert_eq!(writer.path(), Some(name.as_path()));
    linked(directory.path(), &"n".repeat(1000)).1.write().unwrap();
}

#[test]
fn old_files_of_nodes_that_do_not_run_go() {
    let directory = directory();
    let (_running, mut running) = linked(directory.path(), "running@host");
    running.write().unwrap();
    let other = directory.path().join("inet_rdma-notes.txt");
    fs::write(&other, b"").unwrap();
    for number in 0..100 {
        let (_recorder, mut writer) = linked(directory.path(), &format!("n{number}@host"));
        writer.write().unwrap();
    }
    let count = fs::read_dir(directory.path()).unwrap().count();
    assert!((64..=66).contains(&count), "{count}");
    assert!(running.path().unwrap().exists() && other.exists());
    assert!(directory.path().join("inet_rdma-n99@host.flight").exists());
    assert!(!directory.path().join("inet_rdma-n1@host.flight").exists());
}

//! The limit of the process for files. It is the whole process's, so no other test runs here.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use inet_rdma_flight::{Event, Recorder, Writer};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn a_write_beyond_the_limit_is_an_error_and_no_signal() {
    let directory = tempfile::tempdir().unwrap();
    // For good: the signal of the first attempt stays pending for this thread.
    std::mem::forget(inet_rdma_fabric::signals::block_all());
    let unlimited = getrlimit(Resource::Fsize);
    let limit = |current| setrlimit(Resource::Fsize, Rlimit { current, ..unlimited }).unwrap();
    let recorder = Arc::new(Recorder::new("a@host", 65536));
    let mut writer = Writer::new(Arc::clone(&recorder), vec![directory.path().to_owned()]);
    for number in 0..40 {
        let words = format!("event {number};");
        recorder.append(&Event {
            node: "b@host",
            words: &words,
            ..Event::default()
        });
    }
    limit(Some(8192));
    let error = writer.write().unwrap_err().to_string();
    limit(unlimited.current);
    assert!(error.contains("File too large"), "{error}");
    writer.write().unwrap();
    let bytes = std::fs::read(writer.path().unwrap()).unwrap();
    assert!(String::from_utf8_lossy(&bytes).contains("event 39;"));
}

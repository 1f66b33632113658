//! The recorder of this process.

use std::path::Path;
use std::sync::OnceLock;

use parking_lot::Mutex;

use crate::{Event, OpenError, Recorder};

static RECORDER: OnceLock<Recorder> = OnceLock::new();

/// Opens the recorder of this process, unless it is open: the first call decides about its file.
pub fn start(directory: &Path, node: &str, bytes: u64) -> Result<&'static Recorder, OpenError> {
    static STARTING: Mutex<()> = Mutex::new(());
    let _one_starts = STARTING.lock();
    if let Some(recorder) = RECORDER.get() {
        return Ok(recorder);
    }
    let recorder = Recorder::open(directory, node, bytes)?;
    Ok(RECORDER.get_or_init(|| recorder))
}

/// The recorder of this process. None: it is off, or its file could not be made.
pub fn recorder() -> Option<&'static Recorder> {
    RECORDER.get()
}

/// Appends an event to the recorder of this process, if there is one.
pub fn record(event: &Event<'_>) {
    if let Some(recorder) = recorder() {
        recorder.append(event);
    }
}

//! The recorder of this process, and the thread that writes its file.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::{Event, Recorder, Writer};

/// The thread rests this long after a write: it wakes 50 times in a second, and a killed process loses these events.
const REST: Duration = Duration::from_millis(20);
/// Time to the next attempt when events could not be written.
const RETRY: Duration = Duration::from_secs(10);

struct Running {
    recorder: Arc<Recorder>,
    /// The thread that writes.
    thread: Thread,
}

static RUNNING: OnceLock<Running> = OnceLock::new();

/// Numbers of flushes.
struct Flushes {
    asked: u64,
    done: u64,
}

static FLUSHES: Mutex<Flushes> = Mutex::new(Flushes { asked: 0, done: 0 });
static ASKED: Condvar = Condvar::new();
static DONE: Condvar = Condvar::new();

/// News of the file for the log.
#[derive(Debug, PartialEq, Eq)]
pub enum Report {
    /// Events could not be written, for this reason.
    Failed(String),
    /// All events are written, after this many attempts that failed.
    Written {
        /// The number of attempts.
        failures: u64,
    },
}

static REPORT: Mutex<Option<Report>> = Mutex::new(None);
static HAS_REPORT: AtomicBool = AtomicBool::new(false);

/// Starts the recorder of this process. One that runs gets the node's name; its first call decides about the rest. Its
/// file will be in the first of the directories where it can be made.
///
/// `start_thread` starts a thread in which SIGXFSZ is blocked.
pub fn start<E>(
    directories: Vec<PathBuf>,
    node: &str,
    bytes: u64,
    start_thread: impl FnOnce(Box<dyn FnOnce() + Send>) -> Result<Thread, E>,
) -> Result<(), E> {
    static STARTING: Mutex<()> = Mutex::new(());
    let _one_starts = STARTING.lock();
    if let Some(running) = RUNNING.get() {
        running.recorder.rename(node);
        running.thread.unpark();
        return Ok(());
    }
    let recorder = Arc::new(Recorder::new(node, bytes));
    let writer = Writer::new(Arc::clone(&recorder), directories);
    let thread = start_thread(Box::new(|| run(writer)))?;
    let _first = RUNNING.set(Running { recorder, thread });
    Ok(())
}

static FILE: Mutex<Option<PathBuf>> = Mutex::new(None);

/// The file of this process, under the name that it had at the last write. None: nothing is written.
pub fn file() -> Option<PathBuf> {
    FILE.lock().clone()
}

/// The recorder of this process. None: it is off.
pub fn recorder() -> Option<&'static Recorder> {
    RUNNING.get().map(|running| &*running.recorder)
}

/// Appends an event to the recorder of this process, if there is one. Its one system call wakes a writer that sleeps.
pub fn record(event: &Event<'_>) {
    if let Some(running) = RUNNING.get().filter(|running| running.recorder.append(event)) {
        running.thread.unpark();
    }
}

/// Waits until the events before this call are in the file, or could not be written, or the time is over.
pub fn flush(most: Duration) {
    let Some(running) = RUNNING.get().filter(|running| running.recorder.has_link()) else {
        return;
    };
    let deadline = Instant::now() + most;
    let mut flushes = FLUSHES.lock();
    flushes.asked += 1;
    let number = flushes.asked;
    ASKED.notify_all();
    running.thread.unpark();
    while flushes.done < number && !DONE.wait_until(&mut flushes, deadline).timed_out() {}
}

/// The latest news of the file, once.
pub fn report() -> Option<Report> {
    // Relaxed: the lock orders the report itself.
    if !HAS_REPORT.load(Ordering::Relaxed) {
        return None;
    }
    HAS_REPORT.store(false, Ordering::Relaxed);
    REPORT.lock().take()
}

fn tell(report: Report) {
    *REPORT.lock() = Some(report);
    HAS_REPORT.store(true, Ordering::Relaxed);
}

fn run(mut writer: Writer) {
    let mut failures = 0;
    loop {
        if failures == 0 {
            std::thread::park();
        }
        let asked = FLUSHES.lock().asked;
        let written = writer.write();
        *FILE.lock() = writer.path().map(Path::to_owned);
        match written {
            Ok(()) if failures > 0 => {
                tell(Report::Written { failures });
                failures = 0;
            }
            Ok(()) => {}
            Err(error) => {
                if failures == 0 {
                    tell(Report::Failed(error.to_string()));
                }
                failures += 1;
            }
        }
        let rest = if failures == 0 { REST } else { RETRY };
        let mut flushes = FLUSHES.lock();
        flushes.done = asked;
        DONE.notify_all();
        if flushes.asked == asked {
            ASKED.wait_for(&mut flushes, rest);
        }
    }
}

//! Work on files, which no deadline ends: a file system might not answer.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use inet_rdma_fabric::{FabricError, threads};

/// Maximum number of threads that work on files. Once as many wait for a file system that does not answer, further work
/// ends at once with [`FabricError::TimedOut`].
const THREADS_MAX: usize = 32;

static THREADS: AtomicUsize = AtomicUsize::new(0);

/// A place among these threads.
struct Place;

impl Place {
    fn take() -> Option<Place> {
        let place = Place;
        // Relaxed: the number alone counts. The drop of a place that is one too many gives it back.
        (THREADS.fetch_add(1, Ordering::Relaxed) < THREADS_MAX).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        THREADS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Does the work on a thread of its own, and waits for it until `timeout` has passed. A result that comes later is
/// dropped.
pub(super) fn within<T: Send + 'static>(
    timeout: Duration,
    work: impl FnOnce() -> Result<T, FabricError> + Send + 'static,
) -> Result<T, FabricError> {
    let place = Place::take().ok_or(FabricError::TimedOut)?;
    let (done, result) = mpsc::sync_channel(1);
    threads::start("inet_rdma/file", move || {
        let _place = place;
        let _late = done.send(work());
    })?;
    result.recv_timeout(timeout).unwrap_or_else(|error| {
        Err(match error {
            RecvTimeoutError::Timeout => FabricError::TimedOut,
            RecvTimeoutError::Disconnected => FabricError::Panicked("the thread that made this connection"),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_hangs_holds_its_own_thread_and_a_bounded_number_of_them() {
        let (ends, hung) = shared_channel();
        for _ in 0..THREADS_MAX {
            let hung = hung.clone();
            let result = within(Duration::from_millis(1), move || {
                let _end = hung.lock().map(|end| end.recv());
                Ok(())
            });
            assert_eq!(result, Err(FabricError::TimedOut));
        }
        assert_eq!(within(Duration::from_secs(60), || Ok(())), Err(FabricError::TimedOut));
        drop(ends);
        while THREADS.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
        assert_eq!(within(Duration::from_secs(60), || Ok(7)), Ok(7));
    }

    type Shared = std::sync::Arc<std::sync::Mutex<mpsc::Receiver<()>>>;

    /// A receiver for several threads, which all wait until the sender is dropped.
    fn shared_channel() -> (mpsc::Sender<()>, Shared) {
        let (sender, receiver) = mpsc::channel();
        (sender, std::sync::Arc::new(std::sync::Mutex::new(receiver)))
    }
}

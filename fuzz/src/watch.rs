//! Reports the input of a target that fails or does not end.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::target::Target;

/// Time limit for one input.
const LIMIT: Duration = Duration::from_secs(60);
/// Interval of the checks of the time limit.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// The input that runs: its file if it fails, its bytes, and when it began.
type Current = Option<(PathBuf, Vec<u8>, Instant)>;

/// Runs inputs of a target. An input that panics, or does not end in a minute, is written to a
/// file, and a line names that file.
pub struct Watch {
    target: &'static Target,
    directory: PathBuf,
    current: Arc<Mutex<Current>>,
}

impl Watch {
    /// Watches a target; inputs that fail are written to a directory.
    pub fn new(target: &'static Target, directory: PathBuf) -> Self {
        let current: Arc<Mutex<Current>> = Arc::default();
        let watched = Arc::downgrade(&current);
        std::thread::spawn(move || {
            while let Some(current) = watched.upgrade() {
                let current = current.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some((file, input, begin)) = &*current
                    && begin.elapsed() > LIMIT
                {
                    report(file, input, "does not end in a minute");
                    std::process::abort();
                }
                drop(current);
                std::thread::sleep(CHECK_INTERVAL);
            }
        });
        Self { target, directory, current }
    }

    fn set(&self, current: Current) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = current;
    }

    /// Runs the target on an input.
    ///
    /// # Panics
    /// As the target does. A target that does not end aborts the process.
    pub fn run(&self, name: &str, input: &[u8]) {
        let file = self.directory.join(format!("fuzz-{}-{name}", self.target.name));
        self.set(Some((file, input.to_vec(), Instant::now())));
        (self.target.run)(input);
        self.set(None);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((file, input, _)) = current.filter(|_| std::thread::panicking()) {
            report(&file, &input, "fails");
        }
    }
}

fn report(file: &PathBuf, input: &[u8], what: &str) {
    let line = match std::fs::write(file, input) {
        Ok(()) => file.display().to_string(),
        Err(error) => format!("{input:02x?} ({}: {error})", file.display()),
    };
    eprintln!("an input {what}: {line}");
}

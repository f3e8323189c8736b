//! The launcher of a job. By it tasks find each other: each contributes some bytes and gets those
//! of all tasks. One task can end the whole job.

use std::sync::Mutex;
use std::time::Duration;

use net::wireup::{Wireup, WireupError};

use crate::error::DsmError;

/// Time limit for the launcher to end the job, after which this process ends itself.
const END_MAX: Duration = Duration::from_secs(2);

/// Time between the ranks' reports of missing tasks: usually the first rank reports.
const NEXT_SAYS: Duration = Duration::from_millis(500);
/// Maximum of that time over all ranks.
const NEXT_SAYS_MAX: Duration = Duration::from_secs(10);

/// A task's connection to its launcher, and its rank.
pub struct Launch {
    /// None without a launcher: a job of one task.
    wireup: Option<Box<Mutex<Wireup>>>,
    rank: u32,
    size: u32,
}

impl Launch {
    /// Finds the launcher by the environment.
    pub fn new() -> Result<Self, DsmError> {
        let wireup = Wireup::with_run()?;
        let (rank, size) = wireup.as_ref().map_or((0, 1), |it| (it.rank(), it.size()));
        Ok(Self { wireup: wireup.map(|it| Box::new(Mutex::new(it))), rank, size })
    }

    /// Returns the rank of this task.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Returns the number of tasks.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Contributes these bytes, and returns those of all tasks, by rank. All tasks must call it. A
    /// task that waits for a missing one gives up after `limit`.
    pub fn exchange(
        &self,
        bytes: &[u8],
        limit: Option<Duration>,
    ) -> Result<Vec<Vec<u8>>, DsmError> {
        // One task reports, and the job ends. If it is missing itself, the next one reports.
        let limit = limit.map(|limit| limit + (self.rank * NEXT_SAYS).min(NEXT_SAYS_MAX));
        let Some(wireup) = &self.wireup else { return Ok(vec![bytes.to_vec()]) };
        let all = wireup.lock().expect("nobody panics").exchange(bytes, limit);
        all.map_err(|error| match error {
            WireupError::Late(late) => DsmError::missing(&late, limit.unwrap_or_default()),
            WireupError::NeverCame(task) => {
                DsmError::System(format!("task {task} has ended before it called jia_init"))
            }
            error => error.into(),
        })
    }

    /// Leaves the launcher: the other tasks may continue.
    pub fn leave(&self) {
        if let Some(wireup) = &self.wireup {
            wireup.lock().expect("nobody panics").leave();
        }
    }

    /// Ends all tasks, this one last. Exit handlers of this process do not run, since they may wait
    /// for pages.
    pub fn abort(&self, status: u8, line: &str) -> ! {
        let status_of_process = i32::from(status);
        if let Some(wireup) = &self.wireup {
            // The launcher may not answer, so a separate thread calls it.
            let watchdog = std::thread::Builder::new().spawn(move || {
                std::thread::sleep(END_MAX);
                // SAFETY: _exit takes no pointer and never returns.
                unsafe { libc::_exit(status_of_process) }
            });
            // If memory lacks for a thread, the launcher has to notice the end of this process.
            if watchdog.is_ok()
                && let Ok(wireup) = wireup.try_lock()
            {
                wireup.end_all(status, line);
            }
        }
        // SAFETY: _exit takes no pointer and never returns.
        unsafe { libc::_exit(status_of_process) }
    }
}

//! Whom a job's tasks were started by, and how they find each other by it: each gives some
//! bytes and gets everybody's, and one can end all.

use std::sync::Mutex;
use std::time::Duration;

use net::wireup::{Wireup, WireupError};

use crate::error::DsmError;
use crate::rendezvous::Guest;

/// What the end of all may take until this process ends itself.
const END_MAX: Duration = Duration::from_secs(2);

/// After a task could say that others do not come, until the next says it.
const NEXT_SAYS: Duration = Duration::from_millis(500);
/// Where there are many tasks, until all say it.
const NEXT_SAYS_MAX: Duration = Duration::from_secs(10);

/// This task's place in its job.
pub struct Launch {
    way: Way,
    rank: u32,
    size: u32,
}

enum Way {
    /// Nobody: a job of one task.
    Alone,
    /// A launcher with PMIx or PMI-1: mpirun, mpiexec, prterun, srun.
    Launcher(Box<Mutex<Wireup>>),
    /// `nagaya run`.
    Run(Mutex<Guest>),
}

impl Launch {
    /// As the environment says.
    pub fn new() -> Result<Self, DsmError> {
        // It may have been started by another launcher itself.
        if let Some(guest) = Guest::new()? {
            let (rank, size) = (guest.rank(), guest.size());
            return Ok(Self { way: Way::Run(Mutex::new(guest)), rank, size });
        }
        Ok(match Wireup::new()? {
            Some(wireup) => {
                let (rank, size) = (wireup.rank(), wireup.size());
                Self { way: Way::Launcher(Box::new(Mutex::new(wireup))), rank, size }
            }
            None => Self { way: Way::Alone, rank: 0, size: 1 },
        })
    }

    /// Which task this is.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// How many there are.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Gives these bytes, and gets everybody's, by rank. All tasks must call it; who waits for
    /// one that does not gives up after so long.
    pub fn exchange(
        &self,
        bytes: &[u8],
        limit: Option<Duration>,
    ) -> Result<Vec<Vec<u8>>, DsmError> {
        // One task says it, and the job ends; the next would, were that one missing.
        let limit = limit.map(|limit| limit + (self.rank * NEXT_SAYS).min(NEXT_SAYS_MAX));
        match &self.way {
            Way::Alone => Ok(vec![bytes.to_vec()]),
            Way::Launcher(wireup) => wireup
                .lock()
                .expect("nobody panics")
                .exchange(bytes, limit)
                .map_err(|error| match error {
                    WireupError::Late(late) => DsmError::missing(&late, limit.unwrap_or_default()),
                    error => error.into(),
                }),
            Way::Run(guest) => guest.lock().expect("nobody panics").exchange(bytes, limit),
        }
    }

    /// This task leaves: the others may go on without it.
    pub fn leave(&self) {
        if let Way::Run(guest) = &self.way {
            guest.lock().expect("nobody panics").bye();
        }
    }

    /// Ends all tasks, this one at last. Nothing of this process runs any more: not what was
    /// registered for its exit, which may wait for pages.
    pub fn abort(&self, status: u8, line: &str) -> ! {
        let status_of_process = i32::from(status);
        if let Way::Launcher(wireup) = &self.way {
            // A launcher that does not answer must not keep us.
            let watchdog = std::thread::Builder::new().spawn(move || {
                std::thread::sleep(END_MAX);
                // SAFETY: ends the process.
                unsafe { libc::_exit(status_of_process) }
            });
            // Without one, since memory lacks, the launcher has to see by itself that we end.
            if watchdog.is_ok()
                && let Ok(wireup) = wireup.try_lock()
            {
                wireup.end_all(status, line);
            }
        }
        // SAFETY: ends the process.
        unsafe { libc::_exit(status_of_process) }
    }
}

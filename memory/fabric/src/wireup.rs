//! How the processes of a parallel job find each other: each gives some bytes, such as its
//! fabric's address, and gets everybody's.
//!
//! For processes that a launcher with PMIx has started: mpirun and prterun of Open MPI and
//! PRRTE, `srun --mpi=pmix`. Launchers that speak PMI only (MPICH's Hydra, srun without
//! PMIx) start processes that find nothing here.
//!
//! ```no_run
//! use fabric::{fabric::Fabric, secret::Secret, wireup::Wireup};
//!
//! if let Some(mut wireup) = Wireup::new()? {
//!     // The first process's secret is everybody's. PMIx hands it to this job only.
//!     let secrets = wireup.exchange(Secret::random().bytes(), None)?;
//!     let secret = Secret::new(secrets[0][..].try_into()?);
//!     let fabric = Fabric::new(wireup.rank().into(), &secret)?;
//!     let addresses = wireup.exchange(fabric.address(), None)?;
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::ffi::{CStr, CString, c_int, c_void};
use std::fmt;
use std::ptr::{null, null_mut};
use std::sync::mpsc;
use std::time::Duration;

use crate::pmix::*;
use crate::signals;

/// What a launcher with PMIx sets.
const STARTED: &str = "PMIX_NAMESPACE";

/// What PMIx may take to say whether another process has put something.
const LATE_MAX: Duration = Duration::from_secs(2);

/// This process among those of its job. One a process; dropped, it leaves.
pub struct Wireup {
    pmix: &'static Pmix,
    process: pmix_proc_t,
    size: u32,
    local_rank: u32,
    /// How many exchanges there were: each has its key.
    exchanges: u32,
}

/// Why it fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WireupError {
    /// No PMIx here.
    Missing(&'static str),
    /// PMIx refuses.
    Pmix {
        /// What was tried.
        doing: &'static str,
        /// PMIx's word for why.
        why: &'static str,
    },
    /// PMIx says something of another type than agreed.
    Odd(&'static str),
    /// These processes have not given anything within the limit; or others on other hosts.
    Late(Vec<u32>),
    /// A process has ended, and the others need not wait for it.
    Ended,
}

impl fmt::Display for WireupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(why) => f.write_str(why),
            Self::Pmix { doing, why } => write!(
                f,
                "PMIx cannot {doing}: {why}; is this process one of those that the launcher has \
                 started, and its launcher still there?"
            ),
            Self::Late(ranks) => {
                write!(f, "processes {ranks:?} (none: of other hosts) have not come in time")
            }
            Self::Ended => f.write_str("a process of this job has ended before all had come"),
            Self::Odd(what) => {
                write!(f, "PMIx tells no {what}; the launcher's PMIx and {STARTED} do not agree")
            }
        }
    }
}

impl std::error::Error for WireupError {}

impl Wireup {
    /// This process's place in its job; none if it was not started by a launcher with PMIx.
    pub fn new() -> Result<Option<Self>, WireupError> {
        if std::env::var_os(STARTED).is_none() {
            return Ok(None);
        }
        let pmix = Pmix::get().map_err(WireupError::Missing)?;
        let mut process = pmix_proc_t::empty();
        // SAFETY: a structure of ours, and no settings.
        let status = signals::undisturbed(|| unsafe { (pmix.PMIx_Init)(&mut process, null(), 0) });
        let mut this = Self { pmix, process, size: 0, local_rank: 0, exchanges: 0 };
        if let Err(error) = this.check("reach its server", status) {
            std::mem::forget(this);
            return Err(error);
        }
        let size = this.get(PMIX_RANK_WILDCARD, JOB_SIZE, "tell how many processes there are")?;
        this.size = size.number().ok_or(WireupError::Odd("number of processes"))?;
        // Not all launchers say it.
        let local_rank = this.get(this.rank(), LOCAL_RANK, "tell the local rank");
        this.local_rank = local_rank.ok().and_then(|value| value.number()).unwrap_or(0);
        Ok(Some(this))
    }

    /// Which of the job's processes this is, from 0.
    pub fn rank(&self) -> u32 {
        self.process.rank
    }

    /// How many processes the job has.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Which of the job's processes on its node this is, from 0.
    pub fn local_rank(&self) -> u32 {
        self.local_rank
    }

    /// The host of a process, if the launcher tells.
    pub fn host(&self, rank: u32) -> Option<String> {
        let host = self.get(rank, HOSTNAME, "tell a host").ok()?;
        String::from_utf8(host.bytes()?).ok()
    }

    /// Gives these bytes, and gets everybody's, by rank. All processes of the job must call it,
    /// and wait for each other: for ever, or so long. Who then was late cannot be waited for
    /// again.
    pub fn exchange(
        &mut self,
        bytes: &[u8],
        limit: Option<Duration>,
    ) -> Result<Vec<Vec<u8>>, WireupError> {
        let key = CString::new(format!("nagaya.fabric.{}", self.exchanges)).expect("no zero byte");
        self.exchanges += 1;
        let bo = pmix_byte_object_t { bytes: bytes.as_ptr().cast_mut().cast(), size: bytes.len() };
        let mut value = pmix_value_t { r#type: PMIX_BYTE_OBJECT, data: Data { bo } };
        // SAFETY: a value of ours, which PMIx copies.
        let status = unsafe { (self.pmix.PMIx_Put)(PMIX_GLOBAL, key.as_ptr(), &mut value) };
        self.check("put bytes", status)?;
        // SAFETY: a plain call.
        self.check("hand bytes over", unsafe { (self.pmix.PMIx_Commit)() })?;
        if !self.fence(true, limit)? {
            return Err(WireupError::Late(self.late(&key)));
        }
        let get = |rank| {
            let value = self.get(rank, &key, "bring another process's bytes")?;
            value.bytes().ok_or(WireupError::Odd("bytes"))
        };
        (0..self.size).map(get).collect()
    }

    /// Waits for all processes of the job.
    pub fn barrier(&mut self) -> Result<(), WireupError> {
        self.fence(false, None).map(drop)
    }

    /// Ends all processes of the job with this exit status; the launcher prints the line.
    pub fn abort(&self, status: u8, line: &str) -> ! {
        self.end_all(status, line);
        std::process::exit(status.into())
    }

    /// As [`abort`](Self::abort), for who wants to end this process otherwise.
    pub fn end_all(&self, status: u8, line: &str) {
        let line = CString::new(line.replace('\0', " ")).expect("no zero byte");
        // SAFETY: a string, and nobody in particular: everybody.
        unsafe { (self.pmix.PMIx_Abort)(status.into(), line.as_ptr(), null(), 0) };
    }

    /// Whether all have come, so far as the limit is not over.
    fn fence(&self, collects: bool, limit: Option<Duration>) -> Result<bool, WireupError> {
        let info = pmix_info_t::of(COLLECT_DATA, PMIX_BOOL, Data { flag: collects });
        let (says, hears) = mpsc::channel::<pmix_status_t>();
        let sender = Box::into_raw(Box::new(says));
        // SAFETY: structures of ours, which PMIx copies; all processes of the namespace; the
        // sender is the callback's, unless there is an error.
        let status =
            unsafe { (self.pmix.PMIx_Fence_nb)(null(), 0, &info, 1, fence_is_over, sender.cast()) };
        if status != PMIX_SUCCESS {
            // SAFETY: ours again.
            drop(unsafe { Box::from_raw(sender) });
            self.check("bring all processes together", status)?;
        }
        let status = match limit {
            Some(limit) => match hears.recv_timeout(limit) {
                Err(mpsc::RecvTimeoutError::Timeout) => return Ok(false),
                status => status.ok(),
            },
            None => hears.recv().ok(),
        };
        match status.expect("PMIx calls back") {
            PMIX_ERR_PARTIAL_SUCCESS => Err(WireupError::Ended),
            status => self.check("bring all processes together", status).map(|()| true),
        }
    }

    /// Which processes of this host have not put anything under this key.
    fn late(&self, key: &CStr) -> Vec<u32> {
        let info = [
            pmix_info_t::of(IMMEDIATE, PMIX_BOOL, Data { flag: true }),
            pmix_info_t::of(TIMEOUT, PMIX_INT, Data { int: LATE_MAX.as_secs() as c_int }),
        ];
        let host = self.host(self.rank());
        let is_late = |&rank: &u32| {
            self.host(rank) == host && self.get_with(rank, key, "ask for bytes", &info).is_err()
        };
        (0..self.size).filter(is_late).collect()
    }

    fn get(&self, rank: u32, key: &CStr, doing: &'static str) -> Result<Value, WireupError> {
        self.get_with(rank, key, doing, &[])
    }

    fn get_with(
        &self,
        rank: u32,
        key: &CStr,
        doing: &'static str,
        info: &[pmix_info_t],
    ) -> Result<Value, WireupError> {
        let process = pmix_proc_t { rank, ..self.process };
        let at = if info.is_empty() { null() } else { info.as_ptr() };
        let mut value = null_mut();
        // SAFETY: structures of ours.
        let status =
            unsafe { (self.pmix.PMIx_Get)(&process, key.as_ptr(), at, info.len(), &mut value) };
        self.check(doing, status)?;
        assert!(!value.is_null(), "success, and no value");
        // SAFETY: from PMIx_Get.
        Ok(unsafe { Value::new(value) })
    }

    fn check(&self, doing: &'static str, status: pmix_status_t) -> Result<(), WireupError> {
        match status {
            PMIX_SUCCESS => Ok(()),
            status => Err(WireupError::Pmix { doing, why: self.pmix.reason(status) }),
        }
    }
}

/// To PMIx: calls back once.
unsafe extern "C" fn fence_is_over(status: pmix_status_t, sender: *mut c_void) {
    // SAFETY: of `fence`, which has given it away.
    let sender = unsafe { Box::from_raw(sender.cast::<mpsc::Sender<pmix_status_t>>()) };
    // Nobody hears it who does not wait any more.
    let _ = sender.send(status);
}

impl Drop for Wireup {
    fn drop(&mut self) {
        // SAFETY: initialized once, finalized once.
        unsafe { (self.pmix.PMIx_Finalize)(null(), 0) };
    }
}

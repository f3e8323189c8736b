//! This process among those of its job, by PMIx: see [`wireup`](crate::wireup).

use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::mpsc;
use std::time::Duration;

use crate::pmix::*;
use crate::signals;
use crate::wireup::error::{Late, WireupError};

/// Time limit for PMIx to report whether another process has put a value.
const LATE_MAX: Duration = Duration::from_secs(2);

/// This process among those of its job. One a process; dropped, it leaves.
pub struct PmixClient {
    pmix: &'static Pmix,
    process: pmix_proc_t,
    size: u32,
    local_rank: u32,
    /// Number of exchanges so far. Each has its own key.
    exchanges: u32,
}

impl PmixClient {
    /// This process's place in its job.
    pub fn new() -> Result<Self, WireupError> {
        let pmix = Pmix::get().map_err(WireupError::Missing)?;
        let mut process = pmix_proc_t::empty();
        // SAFETY: `process` is a local structure, and there are no settings.
        let status = signals::undisturbed(|| unsafe { (pmix.PMIx_Init)(&mut process, null(), 0) });
        let mut this = Self { pmix, process, size: 0, local_rank: 0, exchanges: 0 };
        if let Err(error) = this.check("reach its server", status) {
            std::mem::forget(this);
            return Err(error);
        }
        let size = this.get(PMIX_RANK_WILDCARD, JOB_SIZE, "tell how many processes there are")?;
        this.size = size.number().ok_or(WireupError::Odd("number of processes"))?;
        // Not all launchers provide it.
        let local_rank = this.get(this.rank(), LOCAL_RANK, "tell the local rank");
        this.local_rank = local_rank.ok().and_then(|value| value.number()).unwrap_or(0);
        Ok(this)
    }

    /// Returns the rank of this process in the job, from 0.
    pub fn rank(&self) -> u32 {
        self.process.rank
    }

    /// Returns the number of processes of the job.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Returns the rank of this process on its node, from 0.
    pub fn local_rank(&self) -> u32 {
        self.local_rank
    }

    /// Returns the host of a process, if the launcher provides it.
    pub fn host(&self, rank: u32) -> Option<String> {
        let host = self.get(rank, HOSTNAME, "tell a host").ok()?;
        String::from_utf8(host.bytes()?).ok()
    }

    /// Contributes `bytes` and returns the contributions of all processes, by rank. All processes
    /// of the job must call this, and wait for each other, until the limit if there is one. A
    /// later exchange cannot wait for a process that was late.
    pub fn exchange(
        &mut self,
        bytes: &[u8],
        limit: Option<Duration>,
    ) -> Result<Vec<Vec<u8>>, WireupError> {
        let key = CString::new(format!("nagaya.fabric.{}", self.exchanges)).expect("no zero byte");
        self.exchanges += 1;
        let bo = pmix_byte_object_t { bytes: bytes.as_ptr().cast_mut().cast(), size: bytes.len() };
        let mut value = pmix_value_t { r#type: PMIX_BYTE_OBJECT, data: Data { bo } };
        // SAFETY: `value` is local, and PMIx copies it.
        let status = unsafe { (self.pmix.PMIx_Put)(PMIX_GLOBAL, key.as_ptr(), &mut value) };
        self.check("put bytes", status)?;
        // SAFETY: a plain call.
        self.check("hand bytes over", unsafe { (self.pmix.PMIx_Commit)() })?;
        if !self.fence(true, limit)? {
            return Err(WireupError::Late(Late::Ranks(self.late(&key))));
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
    pub fn end_all(&self, status: u8, line: &str) {
        let line = CString::new(line.replace('\0', " ")).expect("no zero byte");
        // SAFETY: `line` is a C string, and a null list of processes means all.
        unsafe { (self.pmix.PMIx_Abort)(status.into(), line.as_ptr(), null(), 0) };
    }

    /// Returns true if all have arrived within the limit.
    fn fence(&self, collects: bool, limit: Option<Duration>) -> Result<bool, WireupError> {
        let info = pmix_info_t::of(COLLECT_DATA, PMIX_BOOL, Data { flag: collects });
        let (done, completed) = mpsc::channel::<pmix_status_t>();
        let sender = Box::into_raw(Box::new(done));
        // SAFETY: PMIx copies the local structures, and null means all processes of the namespace.
        // The callback owns the sender, unless there is an error.
        let status =
            unsafe { (self.pmix.PMIx_Fence_nb)(null(), 0, &info, 1, fence_is_over, sender.cast()) };
        if status != PMIX_SUCCESS {
            // SAFETY: after an error PMIx does not call the callback, so the sender is still owned
            // here.
            drop(unsafe { Box::from_raw(sender) });
            self.check("bring all processes together", status)?;
        }
        let status = match limit {
            Some(limit) => match completed.recv_timeout(limit) {
                Err(mpsc::RecvTimeoutError::Timeout) => return Ok(false),
                status => status.ok(),
            },
            None => completed.recv().ok(),
        };
        match status.expect("PMIx calls back") {
            PMIX_ERR_PARTIAL_SUCCESS => Err(WireupError::Ended),
            status => self.check("bring all processes together", status).map(|()| true),
        }
    }

    /// Returns the processes of this host that have not put a value under this key.
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
        // SAFETY: PMIx gets local structures for the duration of the call.
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
    // The receiver may have stopped waiting.
    let _ = sender.send(status);
}

impl Drop for PmixClient {
    fn drop(&mut self) {
        // SAFETY: initialized once, finalized once.
        unsafe { (self.pmix.PMIx_Finalize)(null(), 0) };
    }
}

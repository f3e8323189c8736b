//! Spaces: a process creates them in its address space, starts tasks in them, and removes them.

use std::ffi::CString;
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Once, RwLock};

use control::{Control, Protection};
use nagaya_gate::Gate;
use nagaya_layout::{
    CONTROL_SIZE, LayoutError, PAGE_SIZE, REGION_END, REGION_START, SEGMENT_SIZE_DEFAULT,
    SHARED_SIZE_MAX, SpaceLayout,
};
use nagaya_loader::Program;

use crate::agent;
use crate::child::{self, Attributes};
use crate::copy_plan;
use crate::domain::{DomainInfo, Domains};
use crate::error::Error;
use crate::keeper_program;
use crate::kernel_copies;
use crate::memory::Memory;
use crate::owner;
use crate::program::{abandon, comm, load_into};
use crate::watcher::{self, Watcher};
use crate::window::{self, Wanted};

/// Returns true if the program at `path` is linked to fixed addresses. In a space of shared memory,
/// the task of such a program needs a separate domain.
///
/// # Errors
/// The program cannot be a task at all.
pub fn is_fixed(path: &Path) -> Result<bool, Error> {
    Ok(Program::open_fixed(path, Vec::new())?.executable.headers.is_fixed)
}

/// Layout and kind of a new space.
#[derive(Debug, Clone, Copy, Default)]
pub struct SpaceOptions {
    /// Size of a segment in bytes. `None` means PVAS_SEGMENT_SIZE of the environment, or 32 GiB.
    pub segment_size: Option<u64>,
    /// Number of IDs. `None` means as many as half of the free address space holds.
    pub tasks_max: Option<u32>,
    /// Minimum number of IDs where `tasks_max` is `None`.
    pub tasks_min: u32,
    /// The memory of tasks is shared memory, which other address spaces can map too. PVAS_SHARED=1
    /// in the environment has the same effect.
    pub shared: bool,
    /// The addresses of the window, and of the parts of tasks in their segments, are the same in
    /// every run. [`window::wants_fixed_addresses`] has the same effect.
    pub fixed_addresses: bool,
    /// The memory of tasks is protected from the others. Each task is then a domain of its own, and
    /// the memory of tasks is shared memory.
    pub protection: Option<Protection>,
    /// Start of the window, if another process has chosen it ([`window::common_window`]).
    pub window: Option<u64>,
}

impl SpaceOptions {
    /// Returns true if `shared` is set here or by PVAS_SHARED, or if the protection needs it.
    fn is_shared(&self) -> Result<bool, Error> {
        if self.protection.is_some() {
            return Ok(true);
        }
        match std::env::var_os("PVAS_SHARED") {
            None => Ok(self.shared),
            Some(value) if value == "0" || value.is_empty() => Ok(self.shared),
            Some(value) if value == "1" => Ok(true),
            Some(_) => Err(Error::Invalid("PVAS_SHARED (0 or 1)")),
        }
    }

    /// Returns the largest number of IDs that a space with segments of this size can have.
    pub fn tasks_most(&self, segment_size: u64) -> Result<u32, Error> {
        let room = REGION_END - REGION_START;
        let shared = SHARED_SIZE_MAX + CONTROL_SIZE;
        let room = if self.is_shared()? { shared.min(room) } else { room };
        Ok(SpaceLayout::tasks_within(segment_size, room))
    }

    /// Returns the number of IDs for a gap of `bytes`, if they fit. `most` is the result of
    /// [`Self::tasks_most`].
    fn tasks_in(&self, bytes: u64, segment_size: u64, most: u32) -> Option<u32> {
        let all = SpaceLayout::tasks_within(segment_size, bytes);
        match self.tasks_max {
            Some(tasks) => Some(tasks).filter(|&tasks| tasks <= all),
            None => {
                let least = self.tasks_min.max(1);
                let half = SpaceLayout::tasks_within(segment_size, bytes / 2).min(most);
                Some(half.max(least)).filter(|&tasks| tasks <= all)
            }
        }
    }
}

/// Returns true if the environment permits tasks to give up rights.
fn keeps_access() -> Result<bool, Error> {
    match std::env::var_os("NAGAYA_KEEP_ACCESS") {
        None => Ok(false),
        Some(value) if value == "0" || value.is_empty() => Ok(false),
        Some(value) if value == "1" => Ok(true),
        Some(_) => Err(Error::Invalid("NAGAYA_KEEP_ACCESS (0 or 1)")),
    }
}

/// A space that this process created.
#[derive(Debug)]
pub struct Space {
    control: Control,
    layout: SpaceLayout,
    /// Identifies the space in requests to the watcher.
    key: u64,
    destroyed: AtomicBool,
    /// The memory and the other domains of a space of shared memory; `None` for other spaces.
    domains: RwLock<Option<Domains>>,
}

static KEYS: AtomicU64 = AtomicU64::new(1);

/// Parses a size: a number of bytes with an optional suffix K, M, G or T.
pub fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let text = text.strip_suffix("iB").or(text.strip_suffix('B')).unwrap_or(text);
    let (digits, shift) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 10),
        b'm' | b'M' => (&text[..text.len() - 1], 20),
        b'g' | b'G' => (&text[..text.len() - 1], 30),
        b't' | b'T' => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    digits
        .parse::<u64>()
        .ok()?
        .checked_shl(shift)
        .filter(|n| n >> shift == digits.parse().unwrap_or(0))
}

fn default_segment_size() -> Result<u64, Error> {
    match std::env::var("PVAS_SEGMENT_SIZE") {
        Ok(text) => {
            parse_size(&text).filter(|&size| SpaceLayout::window_size(size, 1).is_ok()).ok_or(
                Error::Invalid("PVAS_SEGMENT_SIZE (a power of two from 64M to 16T, such as 32G)"),
            )
        }
        Err(_) => Ok(SEGMENT_SIZE_DEFAULT),
    }
}

/// Maps an inaccessible page directly behind the program break, so that the break cannot move. All
/// tasks share one break, and the patcher does not reach every system-call site that calls brk.
/// malloc falls back to mmap.
fn guard_the_break() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: brk(0) changes nothing. MAP_FIXED_NOREPLACE replaces no existing mapping.
        unsafe {
            let end = libc::syscall(libc::SYS_brk, 0) as u64;
            let page = end.next_multiple_of(PAGE_SIZE);
            libc::mmap(
                page as *mut _,
                PAGE_SIZE as usize,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
                -1,
                0,
            );
        }
    });
}

impl Space {
    /// Creates a space.
    pub fn create(options: SpaceOptions) -> Result<Self, Error> {
        if control::this_task().is_some() {
            return Err(Error::IsATask);
        }
        let segment_size = match options.segment_size {
            Some(size) => size,
            None => default_segment_size()?,
        };
        let bad = |error| match error {
            LayoutError::SegmentSize => {
                Error::Invalid("segment size (must be a power of two from 64 MiB to 16 TiB)")
            }
            LayoutError::Tasks => Error::Invalid("number of tasks (must be 1 to 65536)"),
            LayoutError::NoRoom => Error::NoAddressSpace,
        };
        SpaceLayout::window_size(segment_size, options.tasks_max.unwrap_or(1)).map_err(bad)?;
        let shared = options.is_shared()?;
        let most = options.tasks_most(segment_size)?.max(1);
        if shared && options.tasks_max.unwrap_or(options.tasks_min) > most {
            return Err(Error::NoAddressSpace);
        }
        if options.protection.is_some() {
            kernel_copies::check().map_err(Error::NoKernelCopies)?;
        }
        let (copies, _) = copy_plan::current()?;
        let keeps_access = keeps_access()?;
        let watcher = Watcher::get()?;
        guard_the_break();
        let control_file = if shared { keeper_program::control_file()? } else { None };
        let wanted = Wanted {
            segment_size,
            is_shared: shared,
            file: control_file.as_ref().map(AsFd::as_fd),
            is_fixed: options.fixed_addresses || window::wants_fixed_addresses()?,
            start: options.window,
        };
        let (control, layout) =
            window::take(&wanted, |bytes| options.tasks_in(bytes, segment_size, most))?;
        let memory = shared.then(|| Memory::create(&layout)).transpose();
        let memory = memory.inspect_err(|_| {
            window::release(layout.window());
            // SAFETY: `window::take` created the control area in this call, and no other thread has
            // a handle to it.
            unsafe { owner::destroy(control) };
        })?;
        if let Some(memory) = &memory {
            // SAFETY: `control` is private to this call until `Self` is returned.
            unsafe { owner::set_memory(control, memory) };
        }
        owner::set_watcher(control, watcher.tid());
        owner::set_copy_plan(control, &copies);
        if let Some(protection) = options.protection {
            owner::set_protection(control, protection);
        }
        if keeps_access {
            owner::permit_losses(control);
        }
        let key = KEYS.fetch_add(1, Ordering::Relaxed);
        let domains = RwLock::new(memory.map(|memory| Domains::new(memory, control_file)));
        Ok(Self { control, layout, key, destroyed: AtomicBool::new(false), domains })
    }

    /// Creates a domain of unused IDs and returns its number, which is at least 1. `processors` is
    /// a CPU mask as for sched_setaffinity; an empty mask means the owner's processors.
    pub fn add_domain(&self, ids: Range<u32>, processors: Vec<u8>) -> Result<u32, Error> {
        self.check_owner()?;
        if ids.is_empty() || ids.end > self.layout.tasks_max() {
            return Err(Error::IdRange(i64::from(ids.end), self.layout.tasks_max()));
        }
        if agent::agent(&self.control).is_some() {
            return Err(Error::OverMachines);
        }
        self.with_domains(|domains| domains.add(self.control, ids, processors))
    }

    pub(crate) fn with_domains<T>(
        &self,
        does: impl FnOnce(&mut Domains) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut domains = self.domains.write().expect("no panic while held");
        does(domains.as_mut().ok_or(Error::NotShared)?)
    }

    /// Returns all domains; the domain of this process comes first.
    pub fn domains(&self) -> Vec<DomainInfo> {
        let own = DomainInfo {
            pid: std::process::id(),
            ids: 0..self.layout.tasks_max(),
            processors: Vec::new(),
        };
        let domains = self.domains.read().expect("no panic while held");
        let others = domains.iter().flat_map(Domains::infos);
        std::iter::once(own).chain(others).collect()
    }

    /// Returns the number of the domain that an ID belongs to; 0 is the domain of this process.
    pub fn domain_of(&self, id: u32) -> u32 {
        self.control.domain_of(id)
    }

    /// Returns the protection of the tasks from each other.
    pub fn protection(&self) -> Option<Protection> {
        self.control.protection()
    }

    /// Returns the space's shared state.
    pub fn control(&self) -> Control {
        self.control
    }

    /// Returns the gate of the space.
    pub fn gate(&self) -> Gate {
        owner::gate(self.control)
    }

    /// Returns the address layout of the space.
    pub fn layout(&self) -> SpaceLayout {
        self.layout
    }

    pub(crate) fn key(&self) -> u64 {
        self.key
    }

    pub(crate) fn check_owner(&self) -> Result<(), Error> {
        if self.control.owner_pid() == std::process::id() { Ok(()) } else { Err(Error::NotOwner) }
    }

    /// Waits until the watcher has reclaimed all tasks that have ended.
    pub fn settle(&self) -> Result<(), Error> {
        Watcher::get()?.settle(self.key);
        Ok(())
    }

    /// Takes an ID. If its last task has just ended, waits for the reclamation first.
    pub(crate) fn take_slot(&self, id: Option<u32>) -> Result<u32, Error> {
        match owner::take_slot(self.control, id, 0) {
            Err(Error::IdTaken(id)) => {
                self.settle()?;
                owner::take_slot(self.control, Some(id), 0)
            }
            result => result,
        }
    }

    /// Starts the program at `path` as task `id`, and returns ID and PID once the program runs.
    /// `None` takes the lowest free ID of the first domain. A relative path is resolved in the
    /// caller's directory.
    pub fn spawn(
        &self,
        id: Option<u32>,
        path: &Path,
        arguments: Vec<CString>,
        environment: &[CString],
        attributes: &Attributes,
    ) -> Result<(u32, u32), Error> {
        self.check_owner()?;
        let program = match self.control.is_shared() {
            true => Program::open_fixed(path, arguments.clone())?,
            false => Program::open(path, arguments.clone())?,
        };
        let is_alone = program.executable.headers.is_fixed || self.protection().is_some();
        let id = if is_alone { Some(self.id_alone(id)?) } else { id };
        let limit = match (attributes.segment_size, self.layout.segment(0)) {
            (Some(size), Some(whole)) => {
                whole.limited(size).map_err(|_| Error::Invalid(
                    "segment size of a task (must be a power of two from 64 MiB to the space's)",
                ))?;
                size
            }
            _ => self.layout.segment_size(),
        };
        let id = self.take_slot(id)?;
        let started = match self.domain_of(id) {
            0 => self.start_here(id, path, program, environment, limit, attributes),
            // The domain's keeper opens the program again. `open_fixed` has already reported any
            // error in it.
            number => self.start_there(number, id, path, arguments, environment, attributes),
        };
        let (pid, domain) = match started {
            Ok(started) => started,
            Err(error) => {
                // SAFETY: the start failed, so no process runs in the segment.
                unsafe { abandon(&self.control, id) };
                return Err(error);
            }
        };
        Watcher::get()?
            .add(watcher::Task { space: self.key, control: self.control, id, pid, domain })
            .map_err(|errno| Error::System("pidfd_open", errno))?;
        Ok((id, pid))
    }

    /// Returns an ID outside domain 0, for a task that is protected from others, or whose program
    /// is linked to fixed addresses, which may be taken in the owner's mm. An ID of domain 0, given
    /// or chosen here, first gets a separate domain.
    fn id_alone(&self, id: Option<u32>) -> Result<u32, Error> {
        let id = match id {
            Some(id) if id >= self.layout.tasks_max() => {
                return Err(Error::IdRange(i64::from(id), self.layout.tasks_max()));
            }
            Some(id) => id,
            None => self.free_id_alone().ok_or(Error::Full(self.layout.tasks_max()))?,
        };
        if self.domain_of(id) != 0 {
            return Ok(id);
        }
        self.add_domain(id..id + 1, Vec::new())?;
        Ok(id)
    }

    fn free_id_alone(&self) -> Option<u32> {
        match self.protection() {
            // Other domains may have tasks at the program's addresses.
            None => owner::unused_id(self.control),
            Some(_) => owner::free_id_apart(self.control),
        }
    }

    /// Starts a task in the owner's mm. Returns its PID and the owner's PID, which identifies that
    /// mm.
    fn start_here(
        &self,
        id: u32,
        path: &Path,
        program: Program,
        environment: &[CString],
        segment_size: u64,
        attributes: &Attributes,
    ) -> Result<(u32, u32), Error> {
        let stack = attributes.limits.iter().find(|l| l.0 == libc::RLIMIT_STACK);
        let stack = stack.map(|l| l.1);
        // SAFETY: `spawn` took the slot with `take_slot`, and the segment of a free slot is empty.
        let task =
            unsafe { load_into(&self.control, id, &program, environment, segment_size, stack, 0) }?;
        if let Some(agent) = agent::agent(&self.control) {
            agent.loaded(id);
        }
        // SAFETY: `load_into` filled in `task` for slot `id`, and only this call starts it.
        let pid = unsafe { child::start(self.control, id, task, &comm(path), attributes) }?;
        Ok((pid, std::process::id()))
    }

    /// Starts a task in another domain's mm. Returns its PID and the PID of the domain's keeper.
    fn start_there(
        &self,
        number: u32,
        id: u32,
        path: &Path,
        arguments: Vec<CString>,
        environment: &[CString],
        attributes: &Attributes,
    ) -> Result<(u32, u32), Error> {
        let domains = self.domains.read().expect("no panic while held");
        let domains = domains.as_ref().ok_or(Error::NotShared)?;
        let domain = domains.get(number).ok_or(Error::NotShared)?;
        let had_a_task = self.control.slot(id).generation.load(Ordering::Acquire) > 0;
        if had_a_task && self.protection().is_some() {
            domains.close_views(id)?;
        }
        let pid = domain.start(id, path, arguments, environment, attributes)?;
        Ok((pid, domain.pid()))
    }

    /// Kills all remaining tasks and frees all memory. The tasks remain children of this process,
    /// which must still wait for them.
    pub fn destroy(&self) -> Result<(), Error> {
        self.check_owner()?;
        if self.destroyed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        Watcher::get()?.destroy(self.key);
        let control = self.control;
        let mut domains = self.domains.write().expect("no panic while held");
        domains.as_mut().into_iter().for_each(Domains::end);
        // SAFETY: `Watcher::destroy` returned after the watcher had reclaimed every task.
        // `destroyed` lets only one call come here, and pvas.h forbids any other use of the space
        // meanwhile.
        unsafe {
            for id in 0..control.tasks_high() {
                owner::drop_segment(control, id);
            }
            owner::destroy(control);
            if let Some(domains) = domains.take() {
                domains.destroy();
            }
        }
        window::release(self.layout.window());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_suffixes() {
        assert_eq!(parse_size("4G"), Some(4 << 30));
        assert_eq!(parse_size("64M"), Some(64 << 20));
        assert_eq!(parse_size("1TiB"), Some(1 << 40));
        assert_eq!(parse_size("4096"), Some(4096));
        assert_eq!(parse_size("four"), None);
        assert_eq!(parse_size(""), None);
        assert_eq!(parse_size("99999999999T"), None);
    }
}

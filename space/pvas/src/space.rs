//! Spaces: creating them in the address space of this process, starting tasks in them,
//! and removing them.

use std::ffi::{CString, OsStr};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, Once, RwLock};

use control::Control;
use nagaya_gate::Gate;
use nagaya_gate::abi::Task;
use nagaya_layout::{
    CONTROL_SIZE, LayoutError, PAGE_SIZE, REGION_END, REGION_START, SEGMENT_SIZE_DEFAULT,
    SpaceLayout,
};
use nagaya_loader::{LoadError, Program, TaskInfo};
use rustix::io::Errno;

use crate::child::{self, Attributes};
use crate::copy_plan;
use crate::domain::{DomainInfo, Domains};
use crate::error::Error;
use crate::machines;
use crate::memory::{self, Memory};
use crate::owner;
use crate::watcher::{self, Watcher};

/// Whether a program is linked to fixed addresses, so that its task needs a domain of its own in a
/// space whose tasks' memory is shared. Error: it cannot be a task at all.
pub fn is_fixed(path: &Path) -> Result<bool, Error> {
    Ok(Program::open_fixed(path, Vec::new())?.executable.headers.is_fixed)
}

/// How a space is to be laid out.
#[derive(Debug, Clone, Copy, Default)]
pub struct SpaceOptions {
    /// Bytes of a segment; `None` for PVAS_SEGMENT_SIZE of the environment, or 32 GiB.
    pub segment_size: Option<u64>,
    /// Number of IDs; `None` for half of what is left.
    pub tasks_max: Option<u32>,
    /// Whether the memory of tasks is shared memory, which other address spaces can map too.
    /// PVAS_SHARED=1 in the environment says so as well.
    pub shared: bool,
}

impl SpaceOptions {
    /// Whether the environment, too, leaves the tasks' memory private.
    fn is_shared(&self) -> Result<bool, Error> {
        match std::env::var_os("PVAS_SHARED") {
            None => Ok(self.shared),
            Some(value) if value == "0" || value.is_empty() => Ok(self.shared),
            Some(value) if value == "1" => Ok(true),
            Some(_) => Err(Error::Invalid("PVAS_SHARED (0 or 1)")),
        }
    }

    /// Most IDs that a space with segments of this size can have.
    pub fn tasks_most(&self, segment_size: u64) -> Result<u32, Error> {
        let room = REGION_END - REGION_START;
        let shared = memory::SIZE_MAX + CONTROL_SIZE;
        let room = if self.is_shared()? { shared.min(room) } else { room };
        Ok(SpaceLayout::tasks_within(segment_size, room))
    }
}

/// A space that this process created.
#[derive(Debug)]
pub struct Space {
    control: Control,
    layout: SpaceLayout,
    /// Names the space to the watcher.
    key: u64,
    destroyed: AtomicBool,
    /// Where the segments' memory is shared: that, and domains with page tables of their own.
    domains: RwLock<Option<Domains>>,
}

/// Windows that spaces of this process have taken, in ascending order.
static WINDOWS: Mutex<Vec<(u64, u64)>> = Mutex::new(Vec::new());
static KEYS: AtomicU64 = AtomicU64::new(1);

/// Reads a size: a number of bytes with an optional suffix K, M, G or T.
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

/// Keeps system-call sites that the patcher cannot reach from moving the break, which
/// is one for all: a page right behind it. libc's malloc goes on with mmap.
fn guard_the_break() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: brk(0) changes nothing; the page is mapped only where nothing is.
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
        if shared && options.tasks_max.is_some_and(|n| n > most) {
            return Err(Error::NoAddressSpace);
        }
        let (copies, _) = copy_plan::current()?;
        let watcher = Watcher::get()?;
        guard_the_break();
        let mut windows = WINDOWS.lock().expect("no panic while held");
        let (control, layout) = match options.tasks_max {
            Some(tasks_max) => {
                let size = SpaceLayout::window_size(segment_size, tasks_max).map_err(bad)?;
                let tasks = |gap| (gap >= size).then_some(tasks_max);
                take_window(&mut windows, segment_size, shared, tasks)
            }
            None => take_window(&mut windows, segment_size, shared, |gap| {
                let half = SpaceLayout::tasks_within(segment_size, gap / 2).min(most);
                let one = SpaceLayout::tasks_within(segment_size, gap).min(1);
                Some(half.max(one)).filter(|&n| n > 0)
            }),
        }?;
        let memory = shared.then(|| Memory::create(&layout)).transpose();
        let memory = memory.inspect_err(|_| {
            windows.retain(|w| w.0 != layout.window());
            // SAFETY: nobody else knows of the space yet.
            unsafe { owner::destroy(control) };
        })?;
        if let Some(memory) = &memory {
            // SAFETY: as above.
            unsafe { owner::set_memory(control, memory) };
        }
        owner::set_watcher(control, watcher.tid());
        owner::set_copy_plan(control, &copies);
        let key = KEYS.fetch_add(1, Ordering::Relaxed);
        let domains = RwLock::new(memory.map(Domains::new));
        Ok(Self { control, layout, key, destroyed: AtomicBool::new(false), domains })
    }

    /// Makes a domain of the IDs, which nobody has had yet, on the processors of a CPU mask as
    /// sched_setaffinity takes it (empty: on the owner's). Returns its number, from 1 on.
    pub fn add_domain(&self, ids: Range<u32>, processors: Vec<u8>) -> Result<u32, Error> {
        self.check_owner()?;
        if ids.is_empty() || ids.end > self.layout.tasks_max() {
            return Err(Error::IdRange(i64::from(ids.end), self.layout.tasks_max()));
        }
        if machines::agent(&self.control).is_some() {
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

    /// All domains, this process's first.
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

    /// Whose mm the segment of an ID is part of: 0 for this process's.
    pub fn domain_of(&self, id: u32) -> u32 {
        self.control.domain_of(id)
    }

    /// The space's shared state.
    pub fn control(&self) -> Control {
        self.control
    }

    /// The gate of the space.
    pub fn gate(&self) -> Gate {
        owner::gate(self.control)
    }

    /// Addresses.
    pub fn layout(&self) -> SpaceLayout {
        self.layout
    }

    pub(crate) fn key(&self) -> u64 {
        self.key
    }

    pub(crate) fn check_owner(&self) -> Result<(), Error> {
        if self.control.owner_pid() == std::process::id() { Ok(()) } else { Err(Error::NotOwner) }
    }

    /// Returns once the tasks that have ended are reclaimed.
    pub fn settle(&self) -> Result<(), Error> {
        Watcher::get()?.settle(self.key);
        Ok(())
    }

    /// Takes an ID, also one whose task has just ended.
    pub(crate) fn take_slot(&self, id: Option<u32>) -> Result<u32, Error> {
        match owner::take_slot(self.control, id, 0) {
            Err(Error::IdTaken(id)) => {
                self.settle()?;
                owner::take_slot(self.control, Some(id), 0)
            }
            result => result,
        }
    }

    /// Starts `path` as task `id` (`None`: the lowest free ID of the first domain); returns ID and
    /// PID once the program runs. A relative path is resolved in the caller's directory.
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
        let id = match program.executable.headers.is_fixed {
            true => Some(self.id_alone(id)?),
            false => id,
        };
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
            // Its keeper opens the program again. What is wrong with it, we have seen.
            number => self.start_there(number, id, path, arguments, environment, attributes),
        };
        let (pid, domain) = match started {
            Ok(started) => started,
            Err(error) => {
                // SAFETY: no process runs in the segment.
                unsafe { abandon(&self.control, id) };
                return Err(error);
            }
        };
        Watcher::get()?
            .add(watcher::Task { space: self.key, control: self.control, id, pid, domain })
            .map_err(|errno| Error::System("pidfd_open", errno))?;
        Ok((id, pid))
    }

    /// An ID, this one if any, that is not of our domain, whose mm is no place for a program that
    /// is linked to its addresses: if it is, it gets a domain of its own.
    fn id_alone(&self, id: Option<u32>) -> Result<u32, Error> {
        let id = match id {
            Some(id) if id >= self.layout.tasks_max() => {
                return Err(Error::IdRange(i64::from(id), self.layout.tasks_max()));
            }
            Some(id) if self.domain_of(id) != 0 => return Ok(id),
            Some(id) => id,
            None => owner::unused_id(self.control).ok_or(Error::Full(self.layout.tasks_max()))?,
        };
        self.add_domain(id..id + 1, Vec::new())?;
        Ok(id)
    }

    /// Starts a task in our mm; returns its PID, and ours, as one that has the mm.
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
        // SAFETY: we hold the slot.
        let task =
            unsafe { load_into(&self.control, id, &program, environment, segment_size, stack, 0) }?;
        if let Some(agent) = machines::agent(&self.control) {
            agent.loaded(id);
        }
        // SAFETY: just loaded for this slot.
        let pid = unsafe { child::start(self.control, id, task, &comm(path), attributes) }?;
        Ok((pid, std::process::id()))
    }

    /// Starts a task in another domain's mm; returns its PID and that of the domain's keeper.
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
        let domain = domains.as_ref().and_then(|all| all.get(number)).ok_or(Error::NotShared)?;
        let pid = domain.start(id, path, arguments, environment, attributes)?;
        Ok((pid, domain.pid()))
    }

    /// Kills what still runs and returns all memory. The tasks remain children of this
    /// process, to be waited for.
    pub fn destroy(&self) -> Result<(), Error> {
        self.check_owner()?;
        if self.destroyed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        Watcher::get()?.destroy(self.key);
        let control = self.control;
        let mut domains = self.domains.write().expect("no panic while held");
        domains.as_mut().into_iter().for_each(Domains::end);
        // SAFETY: the watcher has reclaimed every task, and the space's handle is taken
        // from its holders before it is destroyed.
        unsafe {
            for id in 0..control.tasks_high() {
                owner::drop_segment(control, id);
            }
            owner::destroy(control);
            if let Some(domains) = domains.take() {
                domains.destroy();
            }
        }
        WINDOWS.lock().expect("no panic while held").retain(|w| w.0 != self.layout.window());
        Ok(())
    }
}

/// Loads a program into the segment of a slot that the caller has taken.
///
/// # Safety
/// The slot is taken and its segment empty.
pub(crate) unsafe fn load_into(
    control: &Control,
    id: u32,
    program: &Program,
    environment: &[CString],
    segment_size: u64,
    stack_limit: Option<u64>,
    sigmask: u64,
) -> Result<*mut Task, LoadError> {
    let segment = control.layout().segment(id).expect("the slot exists");
    let segment = segment.limited(segment_size).expect("the caller has checked the size");
    let stack_limit = stack_limit.unwrap_or_else(|| {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Stack);
        limit.current.unwrap_or(u64::MAX)
    });
    let info = TaskInfo {
        id,
        pid: 0,
        environment,
        stack_limit,
        sigmask,
        export_mapped: control.slot(id).export_mapped.load(Ordering::Acquire) == 1,
    };
    // SAFETY: as our caller vouches.
    unsafe { nagaya_loader::load(owner::gate(*control), segment, program, &info) }
}

/// Gives back a slot whose program did not start.
///
/// # Safety
/// No process runs in the segment.
pub(crate) unsafe fn abandon(control: &Control, id: u32) {
    // SAFETY: as the caller vouches.
    unsafe { owner::clear_unstarted(*control, id) };
    owner::release_slot(*control, id);
}

/// The name that the kernel shows for a program: the last part of its path.
pub(crate) fn comm(path: &Path) -> CString {
    let name = path.file_name().unwrap_or(OsStr::new("task"));
    CString::new(name.as_bytes()).unwrap_or_default()
}

/// Maps a control area in the first gap between the windows in which `tasks` finds room.
fn take_window(
    windows: &mut Vec<(u64, u64)>,
    segment_size: u64,
    is_shared: bool,
    tasks: impl Fn(u64) -> Option<u32>,
) -> Result<(Control, SpaceLayout), Error> {
    let mut start = REGION_START;
    let mut blocked = None;
    for index in 0..=windows.len() {
        let end = windows.get(index).map_or(REGION_END, |w| w.0);
        // Something that is not ours may lie in the region; then try behind it.
        while let Some(tasks_max) = tasks(end.saturating_sub(start)) {
            let layout = SpaceLayout::new(start, segment_size, tasks_max)
                .map_err(|_| Error::NoAddressSpace)?;
            match owner::create(&layout, is_shared) {
                Ok(control) => {
                    windows.insert(index, (start, layout.end().next_multiple_of(CONTROL_SIZE)));
                    return Ok((control, layout));
                }
                Err(Error::System(_, Errno::EXIST)) => start += 1 << 40,
                Err(error) => {
                    blocked = Some(error);
                    break;
                }
            }
        }
        if let Some(window) = windows.get(index) {
            start = window.1;
        }
    }
    Err(blocked.unwrap_or(Error::NoAddressSpace))
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

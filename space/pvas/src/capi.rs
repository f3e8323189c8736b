//! The C ABI of `include/pvas.h`. Each function converts its arguments, calls the crate, and turns
//! errors into errno and a line for `pvas_error`.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use control::{Control, FAR_PID, export, this_task};

use crate::child::Attributes;
use crate::error::Error;
use crate::fork;
use crate::handles::{self, path, set_error, space, strings};
use crate::space::{Space, SpaceOptions};

fn answer(result: Result<c_int, Error>) -> c_int {
    result.unwrap_or_else(|error| {
        set_error(&error);
        -1
    })
}

/// Returns the control area of a descriptor or of PVAS_SELF. The space keeps it mapped, so the
/// caller must not destroy the space meanwhile.
fn control(pvd: c_int) -> Result<Control, Error> {
    match pvd {
        -1 => this_task().map(|task| task.control).ok_or(Error::NotATask),
        _ => {
            let control = space(pvd)?.control();
            // In a forked child of the owner, the copy of the space has no tasks' memory.
            let shares = control.owner_pid() == std::process::id() || fork::is_child();
            if shares { Ok(control) } else { Err(Error::NoSpace(pvd)) }
        }
    }
}

/// Like [`control()`], for calls that report living tasks. In the owner it first waits until the
/// watcher has reclaimed all ended tasks. So a task for which the owner has waited is not counted.
fn settled(pvd: c_int) -> Result<Control, Error> {
    let control = control(pvd)?;
    if pvd >= 0 && control.owner_pid() == std::process::id() {
        space(pvd)?.settle()?;
    }
    Ok(control)
}

fn check_id(control: Control, pvid: c_int) -> Result<u32, Error> {
    u32::try_from(pvid)
        .ok()
        .filter(|&id| id < control.tasks_max())
        .ok_or(Error::IdRange(i64::from(pvid), control.tasks_max()))
}

fn create(options: SpaceOptions) -> Result<c_int, Error> {
    Ok(handles::add(Space::create(options)?))
}

/// `struct pvas_space_attr`.
#[repr(C)]
#[derive(Debug)]
pub struct SpaceAttr {
    fields: u64,
    segment_size: usize,
    max_tasks: c_int,
    shared: c_int,
}

/// See `include/pvas.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvas_create() -> c_int {
    answer(create(SpaceOptions::default()))
}

/// See `include/pvas.h`.
///
/// # Safety
/// `attr` is null or points to a `struct pvas_space_attr`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvas_create_attr(attr: *const SpaceAttr) -> c_int {
    // SAFETY: by this function's contract `attr` is null or points to a `struct pvas_space_attr`.
    let attr = unsafe { attr.as_ref() };
    answer(attr.ok_or(Error::Null("attr")).and_then(|attr| {
        if attr.fields & !7 != 0 {
            return Err(Error::Invalid("fields (unknown flag)"));
        }
        let tasks_max = match attr.fields & 2 {
            0 => None,
            _ => Some(u32::try_from(attr.max_tasks).map_err(|_| Error::Invalid("max_tasks"))?),
        };
        let segment_size = (attr.fields & 1 != 0).then_some(attr.segment_size as u64);
        let shared = attr.fields & 4 != 0 && attr.shared != 0;
        create(SpaceOptions { segment_size, tasks_max, shared, ..Default::default() })
    }))
}

/// See `include/pvas.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvas_destroy(pvd: c_int) -> c_int {
    answer(space(pvd).and_then(|space| {
        space.check_owner()?;
        handles::remove(pvd);
        space.destroy()?;
        Ok(0)
    }))
}

/// See `include/pvas.h`.
///
/// # Safety
/// `path` is null or a C string; `argv` and `envp` are null or NULL-terminated arrays of
/// C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvas_execve(
    path: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    // SAFETY: by this function's contract the pointers are null, or valid C strings and
    // NULL-terminated lists.
    if let Some(error) = unsafe { fork::execve(fork::Request { path, argv, envp, sigmask: 0 }) } {
        set_error(&error);
    }
    -1
}

/// `struct pvas_spawn_attr`.
#[repr(C)]
#[derive(Debug)]
pub struct SpawnAttr {
    fields: u64,
    fd_map: *const [c_int; 2],
    n_fds: usize,
    cwd: *const c_char,
    cpus: *const u8,
    cpus_size: usize,
    pdeathsig: c_int,
    pgid: libc::pid_t,
    segment_size: usize,
    id: *mut c_int,
}

/// Flag for `id`.
const SPAWN_ID: u64 = 1 << 6;

impl SpawnAttr {
    /// # Safety
    /// The pointers that `fields` selects are valid for the sizes beside them.
    unsafe fn read(&self) -> Result<Attributes, Error> {
        let mut attributes = Attributes::default();
        if self.fields & !127 != 0 {
            return Err(Error::Invalid("fields (unknown flag)"));
        }
        if self.fields & SPAWN_ID != 0 && self.id.is_null() {
            return Err(Error::Null("id"));
        }
        if self.fields & 1 != 0 {
            if self.fd_map.is_null() && self.n_fds > 0 {
                return Err(Error::Null("fd_map"));
            }
            // SAFETY: by this function's contract `fd_map` has `n_fds` entries. It is not null
            // unless `n_fds` is 0.
            let pairs = (0..self.n_fds).map(|n| unsafe { *self.fd_map.add(n) });
            let pairs: Vec<_> = pairs.map(|[from, to]| (from, to)).collect();
            if pairs.iter().any(|&(from, to)| from < 0 || to < 0) {
                return Err(Error::Invalid("fd_map (negative descriptor)"));
            }
            attributes.fds = Some(pairs);
        }
        if self.fields & 2 != 0 {
            if self.cwd.is_null() {
                return Err(Error::Null("cwd"));
            }
            // SAFETY: `cwd` is not null, so by this function's contract it is a C string.
            attributes.cwd = Some(unsafe { CStr::from_ptr(self.cwd) }.to_owned());
        }
        if self.fields & 4 != 0 {
            if self.cpus.is_null() {
                return Err(Error::Null("cpus"));
            }
            // SAFETY: `cpus` is not null, so by this function's contract it points to `cpus_size`
            // bytes.
            attributes.affinity =
                unsafe { std::slice::from_raw_parts(self.cpus, self.cpus_size) }.to_vec();
        }
        attributes.parent_death_signal = (self.fields & 8 != 0).then_some(self.pdeathsig);
        attributes.process_group = (self.fields & 16 != 0).then_some(self.pgid);
        attributes.segment_size = (self.fields & 32 != 0).then_some(self.segment_size as u64);
        Ok(attributes)
    }
}

/// See `include/pvas.h`.
///
/// # Safety
/// As for [`pvas_execve`]. `attr` is null or points to a `struct pvas_spawn_attr` with valid
/// pointers in all members that `fields` selects.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvas_spawn(
    pvd: c_int,
    pvid: c_int,
    path: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
    attr: *const SpawnAttr,
) -> libc::pid_t {
    let spawn = || {
        let space = space(pvd)?;
        let id = match pvid {
            -1 => None,
            _ => Some(check_id(space.control(), pvid)?),
        };
        // SAFETY: by this function's contract the pointers are null, or valid C strings, lists and
        // attributes.
        let (program, arguments, environment, attributes) = unsafe {
            let attributes = attr.as_ref().map_or(Ok(Attributes::default()), |a| a.read())?;
            (self::path(path)?, strings(argv), strings(envp), attributes)
        };
        let (id, pid) = space.spawn(id, program, arguments, &environment, &attributes)?;
        // SAFETY: by this function's contract `attr` is null or points to a `struct
        // pvas_spawn_attr`.
        if let Some(attr) = unsafe { attr.as_ref() }.filter(|it| it.fields & SPAWN_ID != 0) {
            // SAFETY: `read` checked that `id` is not null. By this function's contract it points
            // to an int.
            unsafe { attr.id.write(id as c_int) };
        }
        Ok(pid as libc::pid_t)
    };
    answer(spawn())
}

/// See `include/pvas.h`.
///
/// # Safety
/// `cpus` is null or points to `cpus_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvas_add_domain(
    pvd: c_int,
    first: c_int,
    count: c_int,
    cpus: *const u8,
    cpus_size: usize,
) -> c_int {
    let add = || {
        let space = space(pvd)?;
        let first = check_id(space.control(), first)?;
        let count = u32::try_from(count).map_err(|_| Error::Invalid("number of IDs"))?;
        let processors = match cpus.is_null() {
            true => Vec::new(),
            // SAFETY: `cpus` is not null, so by this function's contract it points to `cpus_size`
            // bytes.
            false => unsafe { std::slice::from_raw_parts(cpus, cpus_size) }.to_vec(),
        };
        Ok(space.add_domain(first..first.saturating_add(count), processors)? as c_int)
    };
    answer(add())
}

/// See `include/pvas.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvas_domain_of(pvd: c_int, pvid: c_int) -> c_int {
    answer(control(pvd).and_then(|control| {
        let id = check_id(control, pvid)?;
        Ok(control.common_domain_of(id) as c_int)
    }))
}

/// `struct pvas_space_info`.
#[repr(C)]
#[derive(Debug)]
pub struct SpaceInfo {
    fields: u64,
    base: usize,
    segment_size: usize,
    max_tasks: c_int,
    tasks: c_int,
    owner: libc::pid_t,
}

/// See `include/pvas.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvas_getid() -> c_int {
    answer(this_task().map(|task| task.id as c_int).ok_or(Error::NotATask))
}

/// See `include/pvas.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvas_ntasks(pvd: c_int) -> c_int {
    answer(settled(pvd).map(|control| control.tasks_alive() as c_int))
}

/// See `include/pvas.h`.
///
/// # Safety
/// `info` is null or points to a `struct pvas_space_info`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvas_getspace(pvd: c_int, info: *mut SpaceInfo) -> c_int {
    answer(settled(pvd).and_then(|control| {
        if info.is_null() {
            return Err(Error::Null("info"));
        }
        let layout = control.layout();
        let value = SpaceInfo {
            fields: 0x1f,
            base: layout.base() as usize,
            segment_size: layout.segment_size() as usize,
            max_tasks: layout.tasks_max() as c_int,
            tasks: control.tasks_alive() as c_int,
            owner: control.owner_pid() as libc::pid_t,
        };
        // SAFETY: `info` is not null, so by this function's contract it points to a `struct
        // pvas_space_info`.
        unsafe { info.write(value) };
        Ok(0)
    }))
}

/// See `include/pvas.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvas_getpid(pvd: c_int, pvid: c_int) -> libc::pid_t {
    answer(settled(pvd).and_then(|control| {
        let id = check_id(control, pvid)?;
        let slot = control.slot(id);
        let pid = slot.pid.load(Ordering::Acquire);
        if pid == 0 || !slot.is_announced() {
            return Err(Error::NoTask(id));
        }
        if pid == FAR_PID {
            return Err(Error::Elsewhere(id));
        }
        Ok(pid as libc::pid_t)
    }))
}

/// See `include/pvas.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvas_id_of_pid(pvd: c_int, pid: libc::pid_t) -> c_int {
    answer(settled(pvd).and_then(|control| {
        let raw = u32::try_from(pid).map_err(|_| Error::Invalid("PID"))?;
        if u64::from(raw) >= nagaya_layout::PIDS_MAX {
            return Err(Error::Invalid("PID"));
        }
        match control.pid_entry(raw).load(Ordering::Acquire) {
            0 => Err(Error::NoPid(raw)),
            entry => Ok(entry as c_int - 1),
        }
    }))
}

fn address(result: Result<u64, Error>) -> *mut c_void {
    match result {
        Ok(address) => address as *mut c_void,
        Err(error) => {
            set_error(&error);
            ptr::null_mut()
        }
    }
}

fn segment(control: Control, pvid: c_int) -> Result<u64, Error> {
    let id = check_id(control, pvid)?;
    Ok(control.layout().segment(id).expect("checked").start())
}

/// See `include/pvas.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvas_segment(pvd: c_int, pvid: c_int) -> *mut c_void {
    address(control(pvd).and_then(|control| segment(control, pvid)))
}

/// See `include/pvas.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvas_export_area(pvd: c_int, pvid: c_int) -> *mut c_void {
    address(control(pvd).and_then(|control| {
        let start = segment(control, pvid)?;
        let id = pvid as u32;
        match control.slot(id).export_mapped.load(Ordering::Acquire) {
            0 => Err(Error::NoTask(id)),
            _ => {
                if let Some(task) = this_task().filter(|_| control.protection().is_some()) {
                    task.open_export_area(id);
                }
                Ok(start)
            }
        }
    }))
}

/// See `include/pvas.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvas_id_of(pvd: c_int, addr: *const c_void) -> c_int {
    answer(control(pvd).and_then(|control| {
        let id = control.layout().id_of(addr as u64).ok_or(Error::NoSegment)?;
        Ok(id as c_int)
    }))
}

/// # Safety
/// `name` is null or a C string.
unsafe fn name<'a>(name: *const c_char) -> Result<&'a [u8], Error> {
    if name.is_null() {
        return Err(Error::Null("name"));
    }
    // SAFETY: `name` is not null, so by this function's contract it is a C string.
    Ok(unsafe { CStr::from_ptr(name) }.to_bytes())
}

/// See `include/pvas.h`.
///
/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvas_export(
    name: *const c_char,
    addr: *const c_void,
    size: usize,
) -> c_int {
    // SAFETY: by this function's contract `name` is null or a C string.
    let name = unsafe { self::name(name) };
    answer(name.and_then(|name| {
        let task = this_task().ok_or(Error::NotATask)?;
        let address = task.for_others(addr as u64);
        export::export(&task.control, task.id, name, address, size as u64)?;
        Ok(0)
    }))
}

/// See `include/pvas.h`.
///
/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvas_unexport(name: *const c_char) -> c_int {
    // SAFETY: by this function's contract `name` is null or a C string.
    let name = unsafe { self::name(name) };
    answer(name.and_then(|name| {
        let task = this_task().ok_or(Error::NotATask)?;
        export::unexport(&task.control, task.id, name)?;
        Ok(0)
    }))
}

/// See `include/pvas.h`.
///
/// # Safety
/// `name` is null or a C string; `addr` and `size` are each null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvas_import(
    pvd: c_int,
    pvid: c_int,
    name: *const c_char,
    addr: *mut *mut c_void,
    size: *mut usize,
    timeout_ms: c_int,
) -> c_int {
    // SAFETY: by this function's contract `name` is null or a C string.
    let name = unsafe { self::name(name) };
    answer(control(pvd).and_then(|control| {
        let id = check_id(control, pvid)?;
        let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
        let (found, bytes) = export::import(&control, id, name?, timeout)?;
        if let Some(task) = this_task().filter(|_| control.protection().is_some()) {
            task.open_exported(id, found, bytes);
        }
        // SAFETY: `addr` and `size` are each null or writable by this function's contract.
        unsafe {
            if !addr.is_null() {
                addr.write(found as *mut c_void);
            }
            if !size.is_null() {
                size.write(bytes as usize);
            }
        }
        Ok(0)
    }))
}

/// See `include/pvas.h`.
#[unsafe(no_mangle)]
pub extern "C" fn pvas_error() -> *const c_char {
    handles::last_error()
}

//! pvm_gather, pvm_scatter and pvm_reduce. Members send messages to each other, in a dedicated
//! context. A member waits only for data that it needs.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use pvm::constants::PvmDataDefault;
use pvm::error::Error;
use pvm::event::{Event, Id};
use pvm::protocol::SYSCTX_DG;
use pvm::tid::Tid;

use crate::known;
use crate::pvm3::{
    Pack, Result, Unpack, checked, datatype, lpvmerr, pvm_freebuf, pvm_initsend, pvm_recv,
    pvm_send, pvm_setcontext, pvm_setrbuf, pvm_setsbuf,
};
use crate::traced::traced;

/// An operation of pvm_reduce: `f(datatype, x, y, count, info)` computes `x = x op y`.
pub type Operation =
    unsafe extern "C" fn(*mut c_int, *mut c_void, *mut c_void, *mut c_int, *mut c_int);

/// The program's context and active buffers. Dropping this restores them.
struct Saved {
    context: c_int,
    sending: c_int,
    receiving: c_int,
}

impl Saved {
    fn save() -> Saved {
        // SAFETY: these calls take and return numbers only.
        unsafe {
            Saved {
                context: pvm_setcontext(SYSCTX_DG),
                sending: pvm_setsbuf(0),
                receiving: pvm_setrbuf(0),
            }
        }
    }
}

impl Drop for Saved {
    fn drop(&mut self) {
        // SAFETY: these calls take and return numbers only.
        unsafe {
            pvm_freebuf(pvm_setrbuf(self.receiving));
            pvm_freebuf(pvm_setsbuf(self.sending));
            pvm_setcontext(self.context);
        }
    }
}

/// The type and number of a program's items.
#[derive(Clone, Copy)]
struct Items {
    count: c_int,
    size: usize,
    pack: Pack,
    unpack: Unpack,
}

impl Items {
    /// Errors: BadParam.
    fn new(count: c_int, kind: c_int) -> Result<Items> {
        let (size, pack, unpack) = datatype(kind)?;
        Ok(Items { count, size, pack, unpack })
    }

    /// Returns the bytes of all items.
    fn bytes(&self) -> usize {
        self.count as usize * self.size
    }

    /// Sends the items to a task.
    ///
    /// # Safety
    /// `items` points to `self.count` items.
    unsafe fn send(&self, items: *mut c_void, to: c_int, tag: c_int) -> Result<()> {
        // SAFETY: `items` points to `self.count` items, required of the caller; `pack` is the
        // function for their type.
        unsafe {
            checked(pvm_initsend(PvmDataDefault))?;
            checked((self.pack)(items, self.count, 1))?;
            checked(pvm_send(to, tag))?;
        }
        Ok(())
    }

    /// Receives the items from a task.
    ///
    /// # Safety
    /// `items` has room for `self.count` items.
    unsafe fn receive(&self, items: *mut c_void, from: c_int, tag: c_int) -> Result<()> {
        // SAFETY: `items` has room for `self.count` items, required of the caller; `unpack` is the
        // function for their type.
        unsafe {
            checked(pvm_recv(from, tag))?;
            checked((self.unpack)(items, self.count, 1))?;
        }
        Ok(())
    }
}

/// Reports an error as libpvm does: prints it, unless the program has turned that off.
fn report(function: &CStr, result: Result<()>) -> c_int {
    match result {
        Ok(()) => 0,
        // SAFETY: `function` is a null-terminated string.
        Err(code) => unsafe { lpvmerr(function.as_ptr(), code) },
    }
}

/// Returns BadParam unless `condition` holds.
fn require(condition: bool) -> Result<()> {
    if condition { Ok(()) } else { Err(Error::BadParam.code()) }
}

/// Gathers `count` items of each member in `result` on the root, by instance.
///
/// Errors: BadParam, NullGroup, NoGroup, NoInst if there is no such root or an instance is
/// missing, NotInGroup; those of pvm_send and pvm_recv.
///
/// # Safety
/// `data` has `count` items. On the root, `result` has room for the items of all members.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_gather(
    result: *mut c_void,
    data: *mut c_void,
    count: c_int,
    kind: c_int,
    tag: c_int,
    group: *const c_char,
    root: c_int,
) -> c_int {
    let gather = || -> Result<()> {
        require(!data.is_null() && count > 0)?;
        let items = Items::new(count, kind)?;
        let group = known::group(group)?;
        let to = group.tid(root)?;
        let instance = group.instance()?;
        let _saved = Saved::save();
        if to != group.task() {
            // SAFETY: `data` has `count` items, required of the caller.
            return unsafe { items.send(data, to, tag) };
        }
        require(!result.is_null())?;
        group.alive()?;
        for (place, from) in group.contiguous_members()?.into_iter().enumerate() {
            // SAFETY: on the root, `result` has room for the items of all members, required of
            // the caller; `place` is less than their number.
            unsafe {
                let result = result.byte_add(place * items.bytes());
                if place == instance {
                    ptr::copy(data.cast::<u8>(), result.cast(), items.bytes());
                } else {
                    items.receive(result, from, tag)?;
                }
            }
        }
        Ok(())
    };
    // SAFETY: `group` is a string or null, required of the caller.
    let called = unsafe { traced(Event::GATHER, group) }.with(Id::MC, tag);
    called.run(|| report(c"pvm_gather", gather()))
}

/// Sends each member `count` items of the root's `data`, by instance, into its `result`.
///
/// Errors: those of [`pvm_gather`].
///
/// # Safety
/// `result` has room for `count` items. On the root, `data` has the items of all members.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_scatter(
    result: *mut c_void,
    data: *mut c_void,
    count: c_int,
    kind: c_int,
    tag: c_int,
    group: *const c_char,
    root: c_int,
) -> c_int {
    let scatter = || -> Result<()> {
        require(!result.is_null() && count > 0)?;
        let items = Items::new(count, kind)?;
        let group = known::group(group)?;
        let from = group.tid(root)?;
        let instance = group.instance()?;
        let _saved = Saved::save();
        if from != group.task() {
            // SAFETY: `result` has room for `count` items, required of the caller.
            return unsafe { items.receive(result, from, tag) };
        }
        require(!data.is_null())?;
        group.alive()?;
        for (place, to) in group.contiguous_members()?.into_iter().enumerate() {
            // SAFETY: on the root, `data` has the items of all members, required of the caller;
            // `place` is less than their number.
            unsafe {
                let data = data.byte_add(place * items.bytes());
                if place == instance {
                    ptr::copy(data.cast::<u8>(), result.cast(), items.bytes());
                } else {
                    items.send(data, to, tag)?;
                }
            }
        }
        Ok(())
    };
    // SAFETY: `group` is a string or null, required of the caller.
    let called = unsafe { traced(Event::SCATTER, group) }.with(Id::MC, tag);
    called.run(|| report(c"pvm_scatter", scatter()))
}

/// Combines the items of all members by `operation`, and stores the result in `data` on the root.
/// The data of other members may change: on each host, the member with the lowest tid first
/// combines the items of that host.
///
/// Errors: BadParam, NullGroup, NoGroup, NotInGroup, NoInst; those of pvm_send and pvm_recv, and
/// those that the operation returns.
///
/// # Safety
/// `data` has `count` items, and `operation` accepts items of this type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvm_reduce(
    operation: Option<Operation>,
    data: *mut c_void,
    mut count: c_int,
    mut kind: c_int,
    tag: c_int,
    group: *const c_char,
    root: c_int,
) -> c_int {
    let mut reduce = || -> Result<()> {
        require(!data.is_null() && count > 0)?;
        let group = known::group(group)?;
        group.instance()?;
        let root = group.tid(root)?;
        let items = Items::new(count, kind)?;
        let _saved = Saved::save();
        // Allocated in units of 16 bytes, so that any item is aligned.
        let pieces = items.bytes().div_ceil(size_of::<u128>());
        let mut work = Vec::<u128>::new();
        work.try_reserve_exact(pieces).map_err(|_| Error::NoMem.code())?;
        let work = work.as_mut_ptr().cast::<c_void>();
        let mut combine = |from: c_int| -> Result<()> {
            let operation = operation.ok_or(Error::BadParam.code())?;
            let mut info = 0;
            // SAFETY: `work` has room for `count` items, allocated here. `data` has `count` items
            // that `operation` accepts, required of the caller.
            unsafe {
                items.receive(work, from, tag)?;
                operation(&mut kind, data, work, &mut count, &mut info);
            }
            checked(info).map(|_| ())
        };
        let me = group.task();
        let first = |host| group.members_on(host).into_iter().min().unwrap_or(me);
        let here = Tid::from(me).host();
        let coordinator = first(here);
        if me == coordinator {
            for member in group.members_on(here).into_iter().filter(|&member| member != me) {
                combine(member)?;
            }
            if me != root {
                // SAFETY: `data` has `count` items, required of the caller.
                unsafe { items.send(data, root, tag)? };
            }
        } else {
            // SAFETY: `data` has `count` items, required of the caller.
            unsafe { items.send(data, coordinator, tag)? };
        }
        if me == root {
            if me != coordinator {
                // SAFETY: `data` has room for `count` items, required of the caller.
                unsafe { items.receive(data, coordinator, tag)? };
            }
            for host in group.hosts().into_iter().filter(|&host| host != here) {
                combine(first(host))?;
            }
        }
        Ok(())
    };
    // SAFETY: `group` is a string or null, required of the caller.
    let called = unsafe { traced(Event::REDUCE, group) }.with(Id::MC, tag);
    called.run(|| report(c"pvm_reduce", reduce()))
}

//! pvm_gather, pvm_scatter and pvm_reduce: members send to each other, in a context of their
//! own. They do not wait for each other more than the data need.

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

/// An operation of pvm_reduce: `f(datatype, x, y, count, info)` does `x = x op y`.
pub type Operation =
    unsafe extern "C" fn(*mut c_int, *mut c_void, *mut c_void, *mut c_int, *mut c_int);

/// The program's context and active buffers, put aside; they come back when this goes.
struct Aside {
    context: c_int,
    sending: c_int,
    receiving: c_int,
}

impl Aside {
    fn put() -> Aside {
        // SAFETY: numbers only.
        unsafe {
            Aside {
                context: pvm_setcontext(SYSCTX_DG),
                sending: pvm_setsbuf(0),
                receiving: pvm_setrbuf(0),
            }
        }
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        // SAFETY: numbers only.
        unsafe {
            pvm_freebuf(pvm_setrbuf(self.receiving));
            pvm_freebuf(pvm_setsbuf(self.sending));
            pvm_setcontext(self.context);
        }
    }
}

/// Items of the program.
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

    /// Bytes of all.
    fn bytes(&self) -> usize {
        self.count as usize * self.size
    }

    /// # Safety
    /// So many items are there.
    unsafe fn send(&self, items: *mut c_void, to: c_int, tag: c_int) -> Result<()> {
        // SAFETY: as the caller says.
        unsafe {
            checked(pvm_initsend(PvmDataDefault))?;
            checked((self.pack)(items, self.count, 1))?;
            checked(pvm_send(to, tag))?;
        }
        Ok(())
    }

    /// # Safety
    /// There is room for so many items.
    unsafe fn receive(&self, items: *mut c_void, from: c_int, tag: c_int) -> Result<()> {
        // SAFETY: as the caller says.
        unsafe {
            checked(pvm_recv(from, tag))?;
            checked((self.unpack)(items, self.count, 1))?;
        }
        Ok(())
    }
}

/// Tells an error as libpvm does: prints it, unless the program does not want that.
fn told(function: &CStr, result: Result<()>) -> c_int {
    match result {
        Ok(()) => 0,
        // SAFETY: a string.
        Err(code) => unsafe { lpvmerr(function.as_ptr(), code) },
    }
}

fn good(condition: bool) -> Result<()> {
    if condition { Ok(()) } else { Err(Error::BadParam.code()) }
}

/// Gathers `count` items of each member in the `result` of the root, by instance.
///
/// Errors: BadParam, NullGroup, NoGroup, NoInst if there is no such root or an instance is
/// missing, NotInGroup; those of messages.
///
/// # Safety
/// `data` has so many items; on the root, `result` has room for those of all members.
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
        good(!data.is_null() && count > 0)?;
        let items = Items::new(count, kind)?;
        let group = known::group(group)?;
        let to = group.tid(root)?;
        let instance = group.instance()?;
        let _aside = Aside::put();
        if to != group.task() {
            // SAFETY: the caller's items.
            return unsafe { items.send(data, to, tag) };
        }
        good(!result.is_null())?;
        group.alive()?;
        for (place, from) in group.members_in_a_row()?.into_iter().enumerate() {
            // SAFETY: the caller's room, which is large enough for all members.
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
    // SAFETY: as our caller says.
    let called = unsafe { traced(Event::GATHER, group) }.with(Id::MC, tag);
    called.run(|| told(c"pvm_gather", gather()))
}

/// Gives each member `count` items of the root's `data`, by instance, in its `result`.
///
/// Errors: as [`pvm_gather`].
///
/// # Safety
/// `result` has room for so many items; on the root, `data` has those of all members.
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
        good(!result.is_null() && count > 0)?;
        let items = Items::new(count, kind)?;
        let group = known::group(group)?;
        let from = group.tid(root)?;
        let instance = group.instance()?;
        let _aside = Aside::put();
        if from != group.task() {
            // SAFETY: the caller's room.
            return unsafe { items.receive(result, from, tag) };
        }
        good(!data.is_null())?;
        group.alive()?;
        for (place, to) in group.members_in_a_row()?.into_iter().enumerate() {
            // SAFETY: the caller's items, of which there are enough for all members.
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
    // SAFETY: as our caller says.
    let called = unsafe { traced(Event::SCATTER, group) }.with(Id::MC, tag);
    called.run(|| told(c"pvm_scatter", scatter()))
}

/// Combines the items of all members by `operation`; the root has what comes of it in its
/// `data`. Others' data may have changed: on each host one member, that with the lowest tid,
/// first combines what there is there.
///
/// Errors: BadParam, NullGroup, NoGroup, NotInGroup, NoInst; those of messages, and what the
/// operation says.
///
/// # Safety
/// `data` has so many items, of which the operation is one.
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
        good(!data.is_null() && count > 0)?;
        let group = known::group(group)?;
        group.instance()?;
        let root = group.tid(root)?;
        let items = Items::new(count, kind)?;
        let _aside = Aside::put();
        // In 16-byte pieces, so that any item is aligned.
        let pieces = items.bytes().div_ceil(size_of::<u128>());
        let mut work = Vec::<u128>::new();
        work.try_reserve_exact(pieces).map_err(|_| Error::NoMem.code())?;
        let work = work.as_mut_ptr().cast::<c_void>();
        let mut combine = |from: c_int| -> Result<()> {
            let operation = operation.ok_or(Error::BadParam.code())?;
            let mut info = 0;
            // SAFETY: the caller's items and operation, and room for as many.
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
                // SAFETY: the caller's items.
                unsafe { items.send(data, root, tag)? };
            }
        } else {
            // SAFETY: as above.
            unsafe { items.send(data, coordinator, tag)? };
        }
        if me == root {
            if me != coordinator {
                // SAFETY: the caller's room.
                unsafe { items.receive(data, coordinator, tag)? };
            }
            for host in group.hosts().into_iter().filter(|&host| host != here) {
                combine(first(host))?;
            }
        }
        Ok(())
    };
    // SAFETY: as our caller says.
    let called = unsafe { traced(Event::REDUCE, group) }.with(Id::MC, tag);
    called.run(|| told(c"pvm_reduce", reduce()))
}

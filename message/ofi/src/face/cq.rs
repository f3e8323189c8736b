//! Completion queues: programs read completions here, and each read makes progress.

use std::ffi::{c_char, c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::{Duration, Instant};

use libc::{size_t, ssize_t};

use crate::abi;
use crate::abi::peer::PEER;
use crate::engine::completion::Completion;
use crate::engine::owner::CompletionOwner;
use crate::engine::port::News;
use crate::engine::state::{Core, Queue, State};
use crate::face::cq_entry::entry;
use crate::face::domain_object::Domain;
use crate::face::members::{Pollable, Reader};
use crate::face::peer;
use crate::face::wait::WaitObject;

/// libfabric's object, with our part behind it.
#[repr(C)]
pub struct CompletionQueue {
    fid: abi::FidCq,
    pub core: Arc<Core>,
    /// The number in the domain.
    pub number: usize,
    news: Arc<News>,
    /// Number of bytes of an entry. Each format is the beginning of the longest one.
    entry: usize,
    wait: WaitObject,
    /// The program's error entries have the field `err_data_size`, which version 1.5 appended.
    has_err_data: bool,
    /// Number of successive polls without a completion.
    idle: AtomicU32,
    signalled: AtomicBool,
}

/// Number of polls without a completion before a yield, with more tasks than processors.
const YIELD_POLLS: u32 = 256;
/// The same with enough processors. Two tasks may still share one. It is large, because a yield may
/// cost a millisecond.
const YIELD_ALONE_POLLS: u32 = 1 << 20;
/// Number of polls without a completion before a check for dead peers.
const CHECK_POLLS: u32 = 1 << 16;

static FID: abi::OpsFid = abi::OpsFid::of(close, None, Some(control));

static OPS: abi::OpsCq = abi::OpsCq {
    size: size_of::<abi::OpsCq>(),
    read: Some(read),
    readfrom: Some(readfrom),
    readerr: Some(readerr),
    sread: Some(sread),
    sreadfrom: Some(sreadfrom),
    signal: Some(signal),
    strerror: Some(strerror),
};

/// fi_cq_open(3).
pub unsafe extern "C" fn open(
    domain: *mut abi::FidDomain,
    attr: *mut abi::CqAttr,
    queue: *mut *mut abi::FidCq,
    context: *mut c_void,
) -> c_int {
    // SAFETY: fi_cq_open(3): an open domain of this provider, and attributes of the caller or NULL.
    let (domain, attr) = unsafe { (&*domain.cast::<Domain>(), attr.as_ref()) };
    let Some(attr) = attr else { return -abi::EINVAL };
    let entry = match attr.format {
        abi::CQ_FORMAT_UNSPEC | abi::CQ_FORMAT_CONTEXT => {
            mem::offset_of!(abi::CqTaggedEntry, flags)
        }
        abi::CQ_FORMAT_MSG => mem::offset_of!(abi::CqTaggedEntry, buf),
        abi::CQ_FORMAT_DATA => mem::offset_of!(abi::CqTaggedEntry, tag),
        abi::CQ_FORMAT_TAGGED => size_of::<abi::CqTaggedEntry>(),
        _ => return -abi::EINVAL,
    };
    let owner = match attr.flags & PEER {
        0 => None,
        // SAFETY: with FI_PEER, the context is the owner's (fi_peer(3)).
        _ => match unsafe { peer::Queue::import(context) } {
            Ok(owner) => Some(Box::new(owner) as Box<dyn CompletionOwner>),
            Err(error) => return error,
        },
    };
    let made = Queue { owner, ..Queue::default() };
    let news = made.news.clone();
    let core = domain.core.clone();
    let has_news = watched(&news);
    // SAFETY: fi_cq_open(3): an open wait set of this provider, if the attributes say FI_WAIT_SET.
    let wait =
        match unsafe { WaitObject::new(attr.wait_obj, attr.wait_set.cast(), &core, has_news) } {
            Ok(wait) => wait,
            Err(error) => return -error,
        };
    let number = core.lock().queues.add(made);
    let fid = abi::Fid { fclass: abi::CLASS_CQ as size_t, context, ops: &FID };
    let made = CompletionQueue {
        fid: abi::FidCq { fid, ops: &OPS },
        core,
        number,
        news,
        entry,
        wait,
        has_err_data: domain.api_version == 0 || domain.api_version >= abi::version(1, 5),
        idle: AtomicU32::new(0),
        signalled: AtomicBool::new(false),
    };
    let made = Box::into_raw(Box::new(made)).cast::<abi::FidCq>();
    // SAFETY: the queue was just made, and its fid is its first field. `close` calls `leave`.
    unsafe { of(made).wait.enter(made.cast(), of(made)) };
    // SAFETY: fi_cq_open(3) lets us write the queue there.
    unsafe { queue.write(made) };
    0
}

/// Returns our object.
///
/// # Safety
/// `queue` is an open completion queue of this provider.
pub unsafe fn of<'a>(queue: *mut abi::FidCq) -> &'a CompletionQueue {
    // SAFETY: `open` has made a `CompletionQueue`, whose fid is its first field.
    unsafe { &*queue.cast::<CompletionQueue>() }
}

unsafe extern "C" fn close(fid: *mut abi::Fid) -> c_int {
    // SAFETY: fi_close(3): an open completion queue of this provider.
    let queue = unsafe { of(fid.cast()) };
    let mut state = queue.core.lock();
    if state.queues.get(queue.number).is_some_and(|queue| !queue.endpoints.is_empty()) {
        return -abi::EBUSY;
    }
    state.queues.remove(queue.number);
    drop(state);
    queue.wait.leave(fid);
    // SAFETY: `open` has made the queue with `Box::into_raw`, and fi_close(3) is called once.
    drop(unsafe { Box::from_raw(fid.cast::<CompletionQueue>()) });
    0
}

/// Writes as much of an entry as the queue's format has.
///
/// # Safety
/// `to` has room for `bytes` bytes, and is aligned for words.
#[inline]
unsafe fn write(done: &Completion, to: *mut abi::CqTaggedEntry, bytes: usize) {
    // The compiler would merge writes that the program reads word by word, which stalls the reads.
    // SAFETY: this function's contract. Each field lies within `bytes` bytes.
    unsafe {
        (&raw mut (*to).op_context).write(done.context as *mut c_void);
        if bytes > mem::offset_of!(abi::CqTaggedEntry, flags) {
            (&raw mut (*to).flags).write(done.flags);
            (&raw mut (*to).len).write(done.length as usize);
        }
        if bytes > mem::offset_of!(abi::CqTaggedEntry, buf) {
            (&raw mut (*to).buf).write(done.buffer as *mut c_void);
            (&raw mut (*to).data).write(done.data);
        }
        if bytes > mem::offset_of!(abi::CqTaggedEntry, tag) {
            (&raw mut (*to).tag).write(done.tag);
        }
    }
}

/// Returns the sender's address in its vector.
fn sender(state: &State, done: &Completion) -> u64 {
    let find = |(source, vector)| state.vectors.get(vector)?.fi_addr(source);
    done.source.and_then(find).unwrap_or(abi::ADDR_UNSPEC)
}

impl CompletionQueue {
    /// Makes progress, and reads up to `count` entries.
    ///
    /// # Safety
    /// `to` has room for `count` entries. `sources` is NULL or has room for `count` addresses.
    #[inline]
    unsafe fn read(&self, to: *mut c_void, count: usize, sources: *mut u64) -> ssize_t {
        if !self.news.any() {
            return self.nothing();
        }
        self.idle.store(0, Relaxed);
        let core = &*self.core;
        loop {
            let mut state = core.lock();
            let endpoints = state.queues.get(self.number).map_or(0, |queue| queue.endpoints.len());
            for n in 0..endpoints {
                let number = state.queues.get(self.number).map_or(0, |queue| queue.endpoints[n]);
                state.progress(core.here, number);
            }
            // SAFETY: this function's contract.
            let read = unsafe { self.take(&mut state, to, count, sources) };
            let work = (0..endpoints).find_map(|n| {
                let number = state.queues.get(self.number)?.endpoints[n];
                state.work(number)
            });
            let is_broken = read == 0 && core.is_broken();
            drop(state);
            if read != 0 {
                // The receiver waits for this copy, and the program may not poll again soon.
                if let Some(work) = work {
                    work.run(core);
                }
                // The completion may be for another thread.
                core.wake();
                return read;
            }
            if is_broken {
                return -(abi::EIO as ssize_t);
            }
            let Some(work) = work else { return -(abi::EAGAIN as ssize_t) };
            work.run(core);
        }
    }

    /// Takes entries that are in the queue.
    ///
    /// # Safety
    /// As for `read`.
    unsafe fn take(
        &self,
        state: &mut State,
        to: *mut c_void,
        count: usize,
        sources: *mut u64,
    ) -> ssize_t {
        let mut read = 0;
        while read < count {
            let Some(queue) = state.queues.get_mut(self.number) else { break };
            let Some(done) = queue.entries.front() else { break };
            if done.error != 0 {
                if read == 0 {
                    return -(abi::EAVAIL as ssize_t);
                }
                break;
            }
            let Some(done) = queue.entries.pop_front() else { break };
            queue.news.entries.store(queue.entries.len(), Relaxed);
            // SAFETY: this function's contract, and `read` is less than `count`.
            unsafe {
                write(&done, to.cast::<u8>().add(read * self.entry).cast(), self.entry);
                if !sources.is_null() {
                    sources.add(read).write(sender(state, &done));
                }
            }
            read += 1;
        }
        read as ssize_t
    }

    /// Ends a poll without a completion. After many in a row it yields the processor.
    #[inline]
    fn nothing(&self) -> ssize_t {
        let idle = self.idle.load(Relaxed).wrapping_add(1);
        self.idle.store(idle, Relaxed);
        if idle.is_multiple_of(YIELD_POLLS) {
            self.relax(idle);
        }
        -(abi::EAGAIN as ssize_t)
    }

    /// The caller waits, and may have other work, so this yields, but does not sleep.
    #[cold]
    fn relax(&self, idle: u32) {
        if idle.is_multiple_of(CHECK_POLLS) {
            self.core.check_peers();
        }
        if idle.is_multiple_of(YIELD_ALONE_POLLS) || self.core.here.is_crowded() {
            rustix::thread::sched_yield();
        }
    }

    /// Waits for the first entry, and reads up to `count` entries.
    ///
    /// # Safety
    /// As for `read`.
    unsafe fn wait(
        &self,
        to: *mut c_void,
        count: usize,
        sources: *mut u64,
        timeout: c_int,
    ) -> ssize_t {
        let until =
            u64::try_from(timeout).ok().map(|ms| Instant::now() + Duration::from_millis(ms));
        let read = self.core.wait(until, || {
            if self.signalled.swap(false, Acquire) {
                return Some(-(abi::EAGAIN as ssize_t));
            }
            // SAFETY: this function's contract.
            let read = unsafe { self.read(to, count, sources) };
            (read != -(abi::EAGAIN as ssize_t)).then_some(read)
        });
        read.unwrap_or(-(abi::EAGAIN as ssize_t))
    }
}

impl Pollable for CompletionQueue {
    fn poll(&self, _: Reader) -> bool {
        // SAFETY: with a count of 0, no entry is written.
        let broken = unsafe { self.read(ptr::null_mut(), 0, ptr::null_mut()) };
        self.news.entries.load(Relaxed) != 0 || broken == -(abi::EIO as ssize_t)
    }

    fn try_wait(&self) -> bool {
        self.wait.arm();
        self.core.doorbell.ring();
        self.core.check_peers();
        !self.news.any()
    }

    fn core(&self) -> &Arc<Core> {
        &self.core
    }
}

/// Returns a function that returns true, without the lock, if a queue may have news.
fn watched(news: &Arc<News>) -> impl Fn() -> bool + Send + 'static {
    let news = news.clone();
    move || news.any()
}

unsafe extern "C" fn control(fid: *mut abi::Fid, command: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: fi_control(3): an open completion queue of this provider, and a place for the result.
    unsafe {
        let queue = of(fid.cast());
        queue.wait.control(command, argument, &queue.core, watched(&queue.news))
    }
}

unsafe extern "C" fn read(queue: *mut abi::FidCq, to: *mut c_void, count: size_t) -> ssize_t {
    // SAFETY: fi_cq_read(3): an open queue, and room for `count` entries of its format.
    unsafe { of(queue).read(to, count, ptr::null_mut()) }
}

unsafe extern "C" fn readfrom(
    queue: *mut abi::FidCq,
    to: *mut c_void,
    count: size_t,
    sources: *mut u64,
) -> ssize_t {
    // SAFETY: fi_cq_readfrom(3): an open queue, and room for `count` entries and addresses.
    unsafe { of(queue).read(to, count, sources) }
}

unsafe extern "C" fn sread(
    queue: *mut abi::FidCq,
    to: *mut c_void,
    count: size_t,
    _: *const c_void,
    timeout: c_int,
) -> ssize_t {
    // SAFETY: fi_cq_sread(3): an open queue, and room for `count` entries of its format.
    unsafe { of(queue).wait(to, count, ptr::null_mut(), timeout) }
}

unsafe extern "C" fn sreadfrom(
    queue: *mut abi::FidCq,
    to: *mut c_void,
    count: size_t,
    sources: *mut u64,
    _: *const c_void,
    timeout: c_int,
) -> ssize_t {
    // SAFETY: fi_cq_sreadfrom(3): an open queue, and room for `count` entries and addresses.
    unsafe { of(queue).wait(to, count, sources, timeout) }
}

unsafe extern "C" fn readerr(
    queue: *mut abi::FidCq,
    to: *mut abi::CqErrEntry,
    _flags: u64,
) -> ssize_t {
    // SAFETY: fi_cq_readerr(3): an open completion queue of this provider.
    let object = unsafe { of(queue) };
    let mut state = object.core.lock();
    let Some(queue) = state.queues.get_mut(object.number) else { return -(abi::EAGAIN as ssize_t) };
    let Some(done) = queue.entries.front().copied().filter(|done| done.error != 0) else {
        return -(abi::EAGAIN as ssize_t);
    };
    queue.entries.pop_front();
    queue.news.entries.store(queue.entries.len(), Relaxed);
    let all = entry(&done);
    // SAFETY: fi_cq_readerr(3): room for an entry. Before version 1.5 it ends before
    // `err_data_size`, so there is no reference to a whole entry.
    unsafe {
        ((*to).op_context, (*to).flags, (*to).len) = (all.op_context, all.flags, all.len);
        ((*to).buf, (*to).data, (*to).tag) = (all.buf, all.data, all.tag);
        ((*to).olen, (*to).err) = (done.overflow as usize, done.error);
        (*to).prov_errno = done.error;
        if object.has_err_data {
            (*to).err_data_size = 0;
        }
    }
    1
}

unsafe extern "C" fn signal(queue: *mut abi::FidCq) -> c_int {
    // SAFETY: fi_cq_signal(3): an open completion queue of this provider.
    let queue = unsafe { of(queue) };
    queue.signalled.store(true, Release);
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    queue.core.doorbell.ring();
    0
}

unsafe extern "C" fn strerror(
    _: *mut abi::FidCq,
    error: c_int,
    _: *const c_void,
    _: *mut c_char,
    _: size_t,
) -> *const c_char {
    match error {
        abi::ETRUNC => c"the message is longer than the buffer".as_ptr(),
        // SAFETY: strerror(3) accepts all numbers.
        _ => unsafe { libc::strerror(error) },
    }
}

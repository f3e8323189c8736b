//! Observations of an agent about its node's threads and pages, for runs with a report. Other runs
//! store nothing.
//!
//! The kernel provides the place of a fault: /proc has the instruction of a waiting thread. Each
//! takes a short read, so of the many faults of a page only some are sampled.

use std::collections::{HashMap, HashSet};
use std::fs;

use coherence::message::Page;
use node::driver::Traffic;

use crate::raw;
use crate::report::{self, Access, Counts, Thread};
use crate::request::Request;
use crate::request_table::RequestTable;

/// Number of faults of a page that are all sampled; then one of this many; and maximum places
/// stored.
const ALL: u64 = 6;
const ONE_IN: u64 = 8;
const ACCESSES_MAX: usize = 16;
/// Maximum number of pages that a node reports, and of ended threads.
const PAGES_MAX: usize = 200;
const ENDED_MAX: usize = 4000;

/// The observations of one agent.
#[derive(Default)]
pub struct Seen {
    threads: HashMap<u32, Thread>,
    ended: Vec<Thread>,
    pages: HashMap<Page, report::Page>,
    /// Threads that wait at a page, and since when.
    stopped: HashMap<Page, Vec<(u32, u64)>>,
    /// Seats of the kernel's threads.
    slots: HashMap<u32, u32>,
    /// Counters of the kernel's threads when they left; they may return.
    counted: HashMap<i32, u64>,
    pages_in: u64,
    /// Counters that were sent before.
    before: Traffic,
}

/// Returns the instruction of a waiting thread of this process.
struct At {
    call: Option<u64>,
    stack_pointer: u64,
    code: u64,
}

impl Seen {
    /// Counts from now on, when so much was sent.
    pub fn since(before: Traffic) -> Self {
        Self { before, ..Self::default() }
    }

    /// A thread is stopped at a page; `address` is its access.
    pub fn fault(
        &mut self,
        table: &RequestTable,
        fault: &pager::Fault,
        start: u64,
        page_bytes: u64,
        now: u64,
    ) {
        let slot = self.slot_of_tid(table, fault.thread);
        let writes = fault.wants == pager::Access::Write;
        let page = self.pages.entry(fault.page).or_default();
        *(if writes { &mut page.writes } else { &mut page.reads }) += 1;
        let times = page.reads + page.writes;
        let address = start + fault.page * page_bytes;
        page.address = address;
        let Some(slot) = slot else { return };
        self.stopped.entry(fault.page).or_default().push((slot, now));
        let thread = self.threads.entry(slot).or_default();
        *(if writes { &mut thread.writes } else { &mut thread.reads }) += 1;
        if times > ALL && !times.is_multiple_of(ONE_IN) {
            return;
        }
        let Some(at) = place(fault.thread) else { return };
        thread.stack_pointer = at.stack_pointer;
        let (mut call, mut code) = (at.call, at.code);
        if raw::is_ours(code) {
            // In a system call that Nagaya makes for the program.
            let (number, behind) = table.slot(slot).last_call();
            (call, code) = (Some(number), behind);
        }
        let address = address + fault.at as u64;
        let is = |it: &Access| {
            (it.address, it.code, it.writes, it.slot) == (address, code, writes, slot)
        };
        match page.accesses.iter().position(is) {
            Some(at) => page.accesses[at].times += 1,
            None if page.accesses.len() < ACCESSES_MAX => {
                page.accesses.push(Access { address, code, call, writes, slot, times: 1 });
            }
            None => {}
        }
    }

    /// A page has come from another node.
    pub fn came(&mut self, page: Page) {
        self.pages_in += 1;
        if let Some(page) = self.pages.get_mut(&page) {
            page.came += 1;
        }
    }

    /// Threads that were stopped at a page go on.
    pub fn goes_on(&mut self, page: Page, now: u64) {
        for (slot, since) in self.stopped.remove(&page).unwrap_or_default() {
            self.threads.entry(slot).or_default().stopped_ns += now.saturating_sub(since);
        }
    }

    /// So do those at these.
    pub fn all_go_on(&mut self, pages: &std::ops::Range<Page>, now: u64) {
        let stopped: Vec<Page> =
            self.stopped.keys().copied().filter(|page| pages.contains(page)).collect();
        stopped.into_iter().for_each(|page| self.goes_on(page, now));
    }

    /// A thread of this node asks.
    pub fn requested(&mut self, slot: u32, request: &Request) {
        let thread = self.threads.entry(slot).or_default();
        match request {
            // Numbers beyond these are Nagaya's.
            Request::Call(call) if call.number <= u32::MAX.into() => {
                match thread.calls.iter_mut().find(|it| it.0 == call.number) {
                    Some((_, times)) => *times += 1,
                    None => thread.calls.push((call.number, 1)),
                }
            }
            Request::Enqueue { .. } => thread.futex_waits += 1,
            _ => {}
        }
    }

    /// A thread of this node ends, or leaves; it is still there.
    pub fn ends(&mut self, table: &RequestTable, slot: u32) {
        let thread = self.whole(table, slot);
        match self.ended.len() < ENDED_MAX {
            true => self.ended.push(thread),
            false => {
                let last = self.ended.last_mut().expect("there are some");
                last.running_ns += thread.running_ns;
                last.stopped_ns += thread.stopped_ns;
                last.futex_waits += thread.futex_waits;
                last.driven += thread.driven;
            }
        }
    }

    /// A thread begins here.
    pub fn begins(&mut self, slot: u32) {
        self.threads.insert(slot, Thread::default());
    }

    /// Threads that have begun, or have asked for something.
    pub fn there(&self) -> HashSet<u32> {
        self.threads.keys().copied().collect()
    }

    fn whole(&mut self, table: &RequestTable, slot: u32) -> Thread {
        use std::sync::atomic::Ordering::Relaxed;
        let of = table.slot(slot);
        let mut thread = self.threads.remove(&slot).unwrap_or_default();
        thread.slot = slot;
        thread.tid = of.tid.load(Relaxed);
        let kernel_tid = of.kernel_tid.load(Relaxed);
        let running = running(kernel_tid);
        let before = self.counted.insert(kernel_tid, running).unwrap_or(0);
        let driven_ns = of.driven_ns.load(Relaxed);
        thread.running_ns = running.saturating_sub(before + driven_ns);
        thread.driven = of.drives.load(Relaxed);
        thread
    }

    /// All of it, when `sent` was sent; `lives` are the threads that are here.
    pub fn counts(
        &mut self,
        table: &RequestTable,
        sent: Traffic,
        lives: impl Fn(u32) -> bool,
    ) -> Counts {
        let mut threads = std::mem::take(&mut self.ended);
        let there: Vec<u32> =
            table.slots().map(|slot| slot.index).filter(|&slot| lives(slot)).collect();
        threads.extend(there.into_iter().map(|slot| self.whole(table, slot)));
        let mut pages: Vec<report::Page> = self.pages.drain().map(|(_, page)| page).collect();
        pages.sort_by_key(|page| std::cmp::Reverse((page.reads + page.writes, page.came)));
        pages.truncate(PAGES_MAX);
        let messages = sent.messages - self.before.messages;
        let bytes = sent.body_bytes - self.before.body_bytes;
        let pages_in = self.pages_in;
        Counts { threads, pages, pages_in, messages, bytes, ..Counts::default() }
    }

    fn slot_of_tid(&mut self, table: &RequestTable, thread: u32) -> Option<u32> {
        use std::sync::atomic::Ordering::Relaxed;
        let is = |slot: u32| table.slot(slot).kernel_tid.load(Relaxed) == thread as i32;
        if let Some(&slot) = self.slots.get(&thread)
            && is(slot)
        {
            return Some(slot);
        }
        let slot = table.slots().map(|slot| slot.index).find(|&slot| is(slot))?;
        self.slots.insert(thread, slot);
        Some(slot)
    }
}

/// proc(5): `running`, or the system call, its arguments, the stack pointer and the instruction.
fn place(thread: u32) -> Option<At> {
    let text = fs::read_to_string(format!("/proc/self/task/{thread}/syscall")).ok()?;
    let mut words = text.split_whitespace();
    let call = words.next()?.parse::<i64>().ok()?;
    let mut last = words
        .rev()
        .map(|word| word.strip_prefix("0x").and_then(|word| u64::from_str_radix(word, 16).ok()));
    let (code, stack_pointer) = (last.next()??, last.next()??);
    Some(At { call: u64::try_from(call).ok(), stack_pointer, code })
}

/// Returns the processor time of a thread of this process.
fn running(thread: i32) -> u64 {
    /// The kernel's: of one thread, by the scheduler.
    const OF_THREAD: i32 = 4 | 2;
    if thread == 0 {
        return 0;
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a local variable.
    match unsafe { libc::clock_gettime((!thread) << 3 | OF_THREAD, &raw mut time) } {
        0 => time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64,
        _ => 0,
    }
}

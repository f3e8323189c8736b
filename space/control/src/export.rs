//! Names in the export area, by which two tasks find each other's buffers without other means.
//!
//! The second half of a task's export area is a directory of fixed entries. Only the task itself
//! writes it, under a lock. Others read entries under a sequence count, and wait for new ones on
//! the space's event word.

use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use nagaya_gate::abi::{exports, slot_state};
use nagaya_layout::EXPORT_USER_SIZE;
use rustix::io::Errno;
use rustix::thread::futex;
use sync::wait::Backoff;

use crate::area::Control;
use crate::error::Error;
pub use crate::error::{NAME_MAX, NAMES_MAX};
use crate::protection::Protection;
use crate::this::task as this_task;

const NAME_WORDS: usize = (NAME_MAX + 1) / 8;

/// Number of hold words in the directory's head. The further ones lie in the entries.
const NEAR: usize = 15;
/// Number of all hold words.
pub(crate) const HOLDS: usize = NEAR + NAMES_MAX;

#[repr(C)]
struct Entry {
    /// Odd while the entry is written; 0 if it was never used.
    sequence: AtomicU32,
    used: AtomicU32,
    address: AtomicU64,
    size: AtomicU64,
    name: [AtomicU64; NAME_WORDS],
    /// One of the task's hold words. It has nothing to do with the name.
    hold: AtomicU64,
}

#[repr(C)]
struct Directory {
    lock: AtomicU32,
    /// Number of words below, from the first, that the task has ever used.
    holds_used: AtomicU32,
    /// The tasks in whose memory this task's threads work (`hold`). More words lie in the entries.
    holds: [AtomicU64; NEAR],
    entries: [Entry; NAMES_MAX],
}

const _: () = assert!(size_of::<Directory>() == EXPORT_USER_SIZE as usize);
// The gate reads used entries (`gate/c/protect.c`).
const _: () = assert!(offset_of!(Directory, entries) == exports::ENTRIES_AT);
const _: () = assert!(NAMES_MAX == exports::ENTRIES && size_of::<Entry>() == exports::ENTRY_SIZE);
const _: () = assert!(offset_of!(Entry, address) == exports::ADDRESS_AT);
const _: () = assert!(offset_of!(Entry, hold) == exports::HOLD_AT);

type Name = [u64; NAME_WORDS];

fn encode(name: &[u8]) -> Result<Name, Error> {
    if name.is_empty() || name.contains(&0) {
        return Err(Error::Invalid("name"));
    }
    if name.len() > NAME_MAX {
        return Err(Error::NameTooLong);
    }
    let mut bytes = [0; NAME_WORDS * 8];
    bytes[..name.len()].copy_from_slice(name);
    let mut words = [0; NAME_WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().expect("chunks of eight"));
    }
    Ok(words)
}

impl Entry {
    fn name_is(&self, name: &Name) -> bool {
        self.name.iter().zip(name).all(|(a, b)| a.load(Ordering::Relaxed) == *b)
    }

    fn write(&self, name: &Name, address: u64, size: u64, used: bool) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        for (to, from) in self.name.iter().zip(name) {
            to.store(*from, Ordering::Relaxed);
        }
        self.address.store(address, Ordering::Relaxed);
        self.size.store(size, Ordering::Relaxed);
        self.used.store(u32::from(used), Ordering::Relaxed);
        self.sequence.store(sequence + 2, Ordering::Release);
    }

    /// Returns address and size if this entry has the name.
    fn read(&self, name: &Name) -> Read {
        let before = self.sequence.load(Ordering::Acquire);
        if before % 2 == 1 {
            return Read::Changing;
        }
        let found = self.used.load(Ordering::Relaxed) == 1 && self.name_is(name);
        let answer = (self.address.load(Ordering::Relaxed), self.size.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        match self.sequence.load(Ordering::Relaxed) == before {
            true if found => Read::Found(answer),
            true => Read::Other,
            false => Read::Changing,
        }
    }
}

/// The result of a look at an entry.
enum Read {
    /// Address and size under the name.
    Found((u64, u64)),
    /// It has another name or none.
    Other,
    /// Its task writes it: it may have the name.
    Changing,
}

/// Looks for a name in all entries.
fn find(entries: &[Entry], name: &Name) -> Read {
    let mut result = Read::Other;
    for entry in entries {
        match entry.read(name) {
            found @ Read::Found(_) => return found,
            Read::Changing => result = Read::Changing,
            Read::Other => {}
        }
    }
    result
}

/// Holds the directory's lock; only threads of one task compete for it.
struct Locked<'a>(&'a Directory);

impl<'a> Locked<'a> {
    fn new(directory: &'a Directory) -> Self {
        let mut backoff = Backoff::default();
        while directory.lock.swap(1, Ordering::Acquire) != 0 {
            backoff.pause();
        }
        Self(directory)
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.0.lock.store(0, Ordering::Release);
    }
}

/// The directory of a task whose export area is mapped.
fn directory(control: &Control, id: u32) -> &Directory {
    let segment = control.layout().segment(id).expect("the slot exists");
    // SAFETY: once mapped, an export area stays until the space goes; all fields are
    // atomics, and zero is a valid, empty directory.
    unsafe { &*((segment.start() + EXPORT_USER_SIZE) as *const Directory) }
}

/// The words in which a task records the tasks that it holds.
#[derive(Clone, Copy)]
pub(crate) struct Holds(&'static Directory);

/// Returns the hold words of a task whose export area is mapped.
pub(crate) fn holds(control: &Control, id: u32) -> Holds {
    // SAFETY: the directory is mapped as long as the space, and a task that takes a hold is in the
    // space.
    Holds(unsafe { &*std::ptr::from_ref(directory(control, id)) })
}

impl Holds {
    /// The word with this number, below [`HOLDS`].
    #[inline]
    pub fn word(self, number: usize) -> &'static AtomicU64 {
        match number.checked_sub(NEAR) {
            None => &self.0.holds[number],
            Some(entry) => &self.0.entries[entry].hold,
        }
    }

    /// Returns the number of words, from the first, that may be in use. A task raises it before it
    /// writes a further word.
    #[inline]
    pub fn used(self) -> &'static AtomicU32 {
        &self.0.holds_used
    }
}

/// Publishes `size` bytes at `address` as `name` of task `id`, which must be the calling task.
pub fn export(
    control: &Control,
    id: u32,
    name: &[u8],
    address: u64,
    size: u64,
) -> Result<(), Error> {
    let name = encode(name)?;
    let directory = directory(control, id);
    let locked = Locked::new(directory);
    let used = |e: &&Entry| e.used.load(Ordering::Relaxed) == 1;
    let entry = directory
        .entries
        .iter()
        .find(|e| used(e) && e.name_is(&name))
        .or_else(|| directory.entries.iter().find(|e| !used(e)))
        .ok_or(Error::NamesFull)?;
    entry.write(&name, address, size, true);
    drop(locked);
    control.announce();
    Ok(())
}

/// Takes a name of the calling task `id` back.
pub fn unexport(control: &Control, id: u32, name: &[u8]) -> Result<(), Error> {
    let name = encode(name)?;
    let directory = directory(control, id);
    let _locked = Locked::new(directory);
    let entry = directory
        .entries
        .iter()
        .find(|e| e.used.load(Ordering::Relaxed) == 1 && e.name_is(&name))
        .ok_or(Error::NoName)?;
    entry.write(&[0; NAME_WORDS], 0, 0, false);
    Ok(())
}

/// Returns address and size of the memory that task `id` exported as `name`. Waits up to `timeout`
/// for the name, without limit if `None`, also for a task that has not started yet.
///
/// # Errors
/// - [`Error::TaskEnded`]: the last task with this ID has ended, and no other has started since.
/// - [`Error::NoName`]: the name is not exported, and `timeout` is zero.
/// - [`Error::TimedOut`], [`Error::Interrupted`].
/// - [`Error::Invalid`], [`Error::NameTooLong`]: `name` is invalid.
pub fn import(
    control: &Control,
    id: u32,
    name: &[u8],
    timeout: Option<Duration>,
) -> Result<(u64, u64), Error> {
    let name = encode(name)?;
    let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
    let slot = control.slot(id);
    let is_vacant =
        || matches!(slot.state.load(Ordering::Acquire), slot_state::FREE | slot_state::REGION);
    let is_protected = control.protection() == Some(Protection::All);
    let mut seen_alive = None;
    let mut backoff = Backoff::default();
    loop {
        let event = control.event().load(Ordering::Acquire);
        let alive = slot.is_announced();
        let generation = slot.generation.load(Ordering::Acquire);
        if alive && slot.export_mapped.load(Ordering::Acquire) == 1 {
            if let Some(task) = is_protected.then(this_task).flatten() {
                task.open_directory(id);
            }
            match find(&directory(control, id).entries, &name) {
                Read::Found(answer) => return Ok(answer),
                // "No name" could be wrong: the name may be exported again, with another address.
                Read::Changing => {
                    backoff.pause();
                    continue;
                }
                Read::Other => {}
            }
        }
        match seen_alive {
            Some(seen) if !alive || seen != generation => return Err(Error::TaskEnded(id)),
            None if alive => seen_alive = Some(generation),
            // A task had this ID, and no other is starting. The state is read after the generation:
            // a slot is taken before its generation is counted, so a new task is not FREE here.
            None if generation > 0 && is_vacant() => return Err(Error::TaskEnded(id)),
            _ => {}
        }
        if timeout == Some(Duration::ZERO) {
            return Err(Error::NoName);
        }
        let left = match deadline {
            None => None,
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(Error::TimedOut);
                }
                Some(futex::Timespec {
                    tv_sec: left.as_secs() as i64,
                    tv_nsec: i64::from(left.subsec_nanos()),
                })
            }
        };
        match futex::wait(control.event(), futex::Flags::empty(), event, left.as_ref()) {
            Ok(()) | Err(Errno::AGAIN | Errno::TIMEDOUT) => {}
            Err(Errno::INTR) => return Err(Error::Interrupted),
            Err(errno) => return Err(Error::System("futex", errno)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        assert!(matches!(encode(b""), Err(Error::Invalid(_))));
        assert!(matches!(encode(b"a\0b"), Err(Error::Invalid(_))));
        assert!(matches!(encode(&[b'a'; NAME_MAX + 1]), Err(Error::NameTooLong)));
        assert_eq!(encode(&[b'a'; NAME_MAX]).unwrap()[0], 0x6161_6161_6161_6161);
    }

    /// Its entry is written each time, and a reader must not take that for "no such name".
    #[test]
    fn a_name_that_is_exported_again_is_never_missing() {
        let zero = [const { AtomicU64::new(0) }; NAME_WORDS];
        let entry = Entry {
            sequence: AtomicU32::new(0),
            used: AtomicU32::new(0),
            address: AtomicU64::new(0),
            size: AtomicU64::new(0),
            name: zero,
            hold: AtomicU64::new(0),
        };
        let (entries, name) = (std::slice::from_ref(&entry), encode(b"a name").unwrap());
        assert!(matches!(find(entries, &name), Read::Other));
        entry.write(&name, 2, 2, true);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for value in 0..2_000_000 {
                    entry.write(&name, value, value, true);
                }
            });
            while !writer.is_finished() {
                match find(entries, &name) {
                    Read::Found((address, size)) => assert_eq!(address, size),
                    Read::Changing => {}
                    Read::Other => panic!("the name is missing"),
                }
            }
        });
        entry.write(&[0; NAME_WORDS], 0, 0, false);
        assert!(matches!(find(entries, &name), Read::Other));
    }
}

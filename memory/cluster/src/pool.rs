//! A pool: memory that all machines map. It is a file of one kernel, or a DAX device: persistent or
//! CXL memory, or memory of several virtual machines. This file checks that all machines have the
//! same memory, and divides it. From its own part, a machine gives a *chunk* to each of its blocks
//! that other machines access.
//!
//! The machines' views may start at different offsets, since a kernel keeps tables at the front of
//! a device. So each machine writes a mark of the job at the start of its view, and searches for
//! the marks of the others. The last of these starts is in all views, and all machines agree on it.

use std::collections::HashMap;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{null_mut, with_exposed_provenance, with_exposed_provenance_mut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nagaya_gate::abi::PUBLISHED_BLOCK;
use pager::shared::PAGE;
use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock, fstat};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

/// Size of a chunk: that of a block. Chunks lie at multiples of it from the start of the pool.
const CHUNK: u64 = PUBLISHED_BLOCK;
/// Maximum distance of the starts of two machines' views, in chunks.
const STEPS: u64 = 1024;
/// Time limit for the marks of the other machines.
const MEET: Duration = Duration::from_secs(10);
const NAP: Duration = Duration::from_millis(1);

/// Memory to be a pool.
#[derive(Debug)]
pub struct Memory {
    /// A file or device that can be read, written, and mapped page by page.
    pub file: OwnedFd,
    /// Its size in bytes.
    pub size: u64,
    /// Its name, for messages.
    pub place: String,
    /// The mark of the job: unique and not 0.
    pub mark: u64,
}

/// The line of a machine, which the others read: a cache line.
#[repr(C, align(64))]
struct Line {
    /// The job's mark, after the machine has started here.
    mark: AtomicU64,
    /// The job's mark, after the machine has accepted this as the common start.
    agrees: AtomicU64,
    /// The size of its view from here on, in bytes.
    size: AtomicU64,
}

/// The first chunk of a machine's view.
#[repr(C, align(64))]
struct Header {
    /// The mark of the job that uses it.
    job: AtomicU64,
    lines: [Line; MACHINES_MAX],
}

/// Machines that fit in there.
const MACHINES_MAX: usize = CHUNK as usize / size_of::<Line>() - 1;
const _: () = assert!(size_of::<Header>() as u64 == CHUNK);

/// A pool that all machines have agreed on.
#[derive(Debug)]
pub struct Pool {
    file: OwnedFd,
    place: String,
    /// All that this machine sees of it, mapped.
    at: Range<usize>,
    /// Where in that the pool begins.
    begin: u64,
    /// By which its mappings are known.
    pub identity: (u64, u64),
    /// Chunks of ours that no block has.
    free: Vec<u64>,
    /// Those that have one.
    of: HashMap<u64, u64>,
}

impl Pool {
    /// Meets the other machines in it. Error: a line for the user.
    pub fn meet(memory: Memory, me: usize, names: &[String]) -> Result<Self, String> {
        let Memory { file, size, place, mark } = memory;
        let count = names.len();
        if count > MACHINES_MAX {
            return Err(format!("{place}: {count} machines are too many for a pool"));
        }
        if size < 2 * CHUNK {
            return Err(format!("{place} is too small for a pool: it needs 4 MiB at least"));
        }
        let system = |doing: &str, why: Errno| format!("cannot {doing} {place}: {why}");
        is_paged(&file, size).map_err(|why| match why {
            Errno::INVAL => format!(
                "{place} cannot be mapped in pages of 4 KiB (of a DAX device that is its \
                 alignment: ndctl create-namespace --mode devdax --align 4k)"
            ),
            why => system("map", why),
        })?;
        // SAFETY: a new mapping.
        let at = unsafe {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            mmap(null_mut(), size as usize, protection, MapFlags::SHARED, &file, 0)
        };
        let at = at.map_err(|why| system("map", why))? as usize;
        // SAFETY: as above. Neither a fork's child nor a core file has it.
        unsafe {
            let start = with_exposed_provenance_mut(at);
            let _ = madvise(start, size as usize, Advice::LinuxDontFork);
            let _ = madvise(start, size as usize, Advice::LinuxDontDump);
        }
        let stat = fstat(&file).map_err(|why| system("look at", why))?;
        let identity = (stat.st_dev, stat.st_ino);
        let at = at..at + size as usize;
        let mut pool =
            Self { file, place, at, begin: 0, identity, free: Vec::new(), of: HashMap::new() };
        pool.reserve(mark)?;
        let chunks = pool.agree(mark, me, names)?;
        // The first has the marks.
        let part = (chunks - 1) / count as u64;
        if part == 0 {
            return Err(format!("{} is too small for {count} machines", pool.place));
        }
        let first = 1 + me as u64 * part;
        pool.free = (first..first + part).rev().collect();
        Ok(pool)
    }

    /// Keeps other jobs of this kernel's away.
    fn reserve(&self, mark: u64) -> Result<(), String> {
        let failed = |why: Errno| format!("cannot lock {}: {why}", self.place);
        let job = &self.header(0).job;
        // Whoever is the only one begins anew.
        if flock(&self.file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            job.store(mark, Ordering::SeqCst);
        }
        let begin = Instant::now();
        loop {
            match flock(&self.file, FlockOperation::NonBlockingLockShared) {
                Ok(()) => break,
                Err(Errno::WOULDBLOCK) if begin.elapsed() < MEET => std::thread::sleep(NAP),
                Err(why) => return Err(failed(why)),
            }
        }
        match job.load(Ordering::SeqCst) == mark {
            true => Ok(()),
            false => Err(format!("{} is in use by another job", self.place)),
        }
    }

    /// Returns the header at an offset.
    fn header(&self, offset: u64) -> &Header {
        assert!(offset + CHUNK <= self.at.len() as u64);
        // SAFETY: mapped, and all atomics.
        unsafe { &*with_exposed_provenance(self.at.start + offset as usize) }
    }

    /// Finds where the pool begins; the chunks that all see.
    fn agree(&mut self, mark: u64, me: usize, names: &[String]) -> Result<u64, String> {
        let (count, size) = (names.len(), self.at.len() as u64);
        let fits = |offset: &u64| offset + CHUNK <= size;
        self.header(0).lines[me].mark.store(mark, Ordering::SeqCst);
        let mut begins = vec![None; count];
        begins[me] = Some(0);
        let begin = Instant::now();
        loop {
            for (other, found) in begins.iter_mut().enumerate().filter(|(_, it)| it.is_none()) {
                let mut offsets = (0..STEPS).map(|step| step * CHUNK).take_while(fits);
                let mark_at = |at| self.header(at).lines[other].mark.load(Ordering::SeqCst);
                *found = offsets.find(|&at| mark_at(at) == mark);
            }
            self.begin = begins.iter().flatten().copied().max().unwrap_or(0);
            let lines = &self.header(self.begin).lines;
            lines[me].size.store(size - self.begin, Ordering::SeqCst);
            lines[me].agrees.store(mark, Ordering::SeqCst);
            let agrees = |line: &Line| line.agrees.load(Ordering::SeqCst) == mark;
            let missing: Vec<&str> =
                (0..count).filter(|&it| !agrees(&lines[it])).map(|it| &names[it][..]).collect();
            if missing.is_empty() {
                let sizes = lines[..count].iter().map(|line| line.size.load(Ordering::SeqCst));
                // The values of other machines are not trusted.
                let size = sizes.min().unwrap_or(0).min(size - self.begin);
                return Ok(size / CHUNK);
            }
            if begin.elapsed() > MEET {
                let who = missing.join(", ");
                return Err(format!("{} is not the memory that {who} has", self.place));
            }
            std::thread::sleep(NAP);
        }
    }

    /// Returns the chunk of a block. A new chunk is filled with zeros. `None`: no chunk is free.
    pub fn take(&mut self, block: u64) -> Option<u64> {
        if let Some(&chunk) = self.of.get(&block) {
            return Some(chunk);
        }
        let chunk = self.free.pop()?;
        self.of.insert(block, chunk);
        self.zero(chunk, 0..CHUNK / PAGE);
        Some(chunk)
    }

    /// Returns the chunk of a block of this machine, if it has one.
    pub fn chunk(&self, block: u64) -> Option<u64> {
        self.of.get(&block).copied()
    }

    /// Frees the chunk of a block that no machine maps any more.
    pub fn give(&mut self, block: u64) {
        self.free.extend(self.of.remove(&block));
    }

    /// Returns the offset of a chunk in the file, or `None` if there is no such chunk.
    pub fn offset(&self, chunk: u64) -> Option<u64> {
        let offset = chunk.checked_mul(CHUNK)?.checked_add(self.begin)?;
        (chunk > 0 && offset <= self.at.len() as u64 - CHUNK).then_some(offset)
    }

    /// Writes pages of a chunk of this machine that no other machine knows yet.
    pub fn write<T>(
        &mut self,
        chunk: u64,
        pages: Range<u64>,
        write: impl FnOnce(&mut [u8]) -> T,
    ) -> T {
        let offset = self.offset(chunk).expect("a chunk of ours");
        assert!(pages.start <= pages.end && pages.end <= CHUNK / PAGE);
        let at = self.at.start + (offset + pages.start * PAGE) as usize;
        let bytes = ((pages.end - pages.start) * PAGE) as usize;
        let at = with_exposed_provenance_mut::<u8>(at);
        // SAFETY: the range is mapped, and the caller guarantees that no other thread uses these
        // pages. MADV_POPULATE_WRITE only saves page faults.
        unsafe {
            libc::madvise(at.cast(), bytes, libc::MADV_POPULATE_WRITE);
            write(std::slice::from_raw_parts_mut(at, bytes))
        }
    }

    /// Fills pages of a chunk of this machine with zeros.
    pub fn zero(&mut self, chunk: u64, pages: Range<u64>) {
        let offset = self.offset(chunk).expect("a chunk of ours") + pages.start * PAGE;
        let bytes = (pages.end - pages.start) * PAGE;
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // A device has no holes.
        if fallocate(&self.file, punch, offset, bytes).is_err() {
            self.write(chunk, pages, |bytes| bytes.fill(0));
        }
    }

    /// Returns its name, for messages.
    pub fn place(&self) -> &str {
        &self.place
    }
}

/// Checks that single pages of it can be mapped.
fn is_paged(file: &OwnedFd, size: u64) -> Result<(), Errno> {
    // SAFETY: creates a new mapping and removes it.
    unsafe {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let offset = size.min(CHUNK) - PAGE;
        let at = mmap(null_mut(), PAGE as usize, protection, MapFlags::SHARED, file, offset)?;
        munmap(at, PAGE as usize)
    }
}

impl AsFd for Pool {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: this pool owns the mapping, and no reference into it outlives the pool.
        let _ = unsafe { munmap(with_exposed_provenance_mut(self.at.start), self.at.len()) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    const MARK: u64 = 7;

    fn file(chunks: u64) -> OwnedFd {
        let file = rustix::fs::memfd_create("pool", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, chunks * CHUNK).unwrap();
        file
    }

    /// As another would open it.
    fn again(file: &OwnedFd) -> OwnedFd {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        std::fs::File::options().read(true).write(true).open(path).unwrap().into()
    }

    fn meet(file: OwnedFd, size: u64, mark: u64, me: usize, count: usize) -> Result<Pool, String> {
        let names: Vec<String> = (0..count).map(|at| format!("node {at}")).collect();
        Pool::meet(Memory { file, size, place: "it".into(), mark }, me, &names)
    }

    #[test]
    fn machines_share_what_they_all_see() {
        let file = file(9);
        let pools: Vec<Pool> = std::thread::scope(|scope| {
            let threads: Vec<_> = [9, 9, 8]
                .into_iter()
                .enumerate()
                .map(|(me, chunks)| {
                    let file = again(&file);
                    scope.spawn(move || meet(file, chunks * CHUNK, MARK, me, 3).unwrap())
                })
                .collect();
            threads.into_iter().map(|it| it.join().unwrap()).collect()
        });
        let mut pools = pools;
        let mut all = Vec::new();
        for pool in &mut pools {
            for block in 0..2 {
                let chunk = pool.take(block).unwrap();
                assert_eq!(pool.take(block), Some(chunk));
                all.push(chunk);
            }
            assert_eq!(pool.take(5), None, "each has two of the seven that are left");
            pool.give(1);
            assert!(pool.take(5).is_some());
        }
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 6, "no two have the same");
        pools[0].write(1, 3..4, |bytes| bytes[7] = 1);
        let (at, offset) = (pools[1].at.start, pools[1].offset(1).unwrap() as usize);
        let byte = with_exposed_provenance::<u8>(at + offset + 3 * PAGE as usize + 7);
        // SAFETY: mapped.
        assert_eq!(unsafe { byte.read_volatile() }, 1);
        pools[0].zero(1, 3..4);
        // SAFETY: mapped.
        assert_eq!(unsafe { byte.read_volatile() }, 0);
        assert_eq!(pools[2].offset(8), None, "it does not see that");
    }

    #[test]
    fn another_job_is_kept_away() {
        let file = file(4);
        let one = meet(again(&file), 4 * CHUNK, MARK, 0, 1).unwrap();
        let two = meet(again(&file), 4 * CHUNK, MARK + 1, 0, 1).unwrap_err();
        assert_eq!(two, "it is in use by another job");
        drop(one);
        meet(again(&file), 4 * CHUNK, MARK + 1, 0, 1).unwrap();
    }

    #[test]
    fn small_values_are_refused() {
        let why = meet(file(1), CHUNK, MARK, 0, 1).unwrap_err();
        assert_eq!(why, "it is too small for a pool: it needs 4 MiB at least");
    }
}

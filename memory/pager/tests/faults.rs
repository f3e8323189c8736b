//! Threads that fault for real, and a server that answers them.

use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::ptr::with_exposed_provenance_mut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pager::{Access, Fault, PagerError, Place, Region, Stops};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mm::MprotectFlags;

/// Time limit of each step.
const TIME_LIMIT: Duration = Duration::from_secs(20);

/// A place that no other test has.
fn place(page_bytes: usize) -> Place {
    static PLACES: AtomicUsize = AtomicUsize::new(0);
    let start = 0x5800_0000_0000 + (PLACES.fetch_add(1, Ordering::Relaxed) << 37);
    Place { start, page_bytes }
}

fn region(page_bytes: usize, pages: u64) -> Region {
    let mut region = Region::new(place(page_bytes), Stops::All).expect("run the tests as root");
    region.grow(pages).expect("addresses");
    region
}

/// Another thread accesses a byte.
fn load(at: usize) -> JoinHandle<u8> {
    // SAFETY: in a region that outlives the thread.
    std::thread::spawn(move || unsafe { with_exposed_provenance_mut::<u8>(at).read_volatile() })
}

fn store(at: usize, value: u8) -> JoinHandle<()> {
    // SAFETY: `at` is an address of the region, which outlives the thread.
    std::thread::spawn(move || unsafe {
        with_exposed_provenance_mut::<u8>(at).write_volatile(value);
    })
}

/// Waits for the next fault. Returns its page and the wanted access.
fn next(region: &mut Region) -> (u64, Access) {
    let Fault { page, wants, .. } = next_fault(region);
    (page, wants)
}

fn next_fault(region: &mut Region) -> Fault {
    let begin = Instant::now();
    let mut faults = Vec::new();
    while faults.is_empty() {
        assert!(begin.elapsed() < TIME_LIMIT, "nobody is stopped");
        let mut fds = [PollFd::from_borrowed_fd(region.descriptor(), PollFlags::IN)];
        let second = Timespec { tv_sec: 1, tv_nsec: 0 };
        poll(&mut fds, Some(&second)).expect("poll");
        region.faults(&mut faults).expect("faults");
    }
    assert_eq!(faults.len(), 1);
    faults[0]
}

/// So many, in the order of their pages.
fn all_stopped(region: &mut Region, count: usize) -> Vec<(u64, Access)> {
    let begin = Instant::now();
    let mut faults = Vec::new();
    while faults.len() < count {
        assert!(begin.elapsed() < TIME_LIMIT, "they are not stopped");
        region.faults(&mut faults).expect("faults");
    }
    let mut all: Vec<_> = faults.iter().map(|fault| (fault.page, fault.wants)).collect();
    all.sort_unstable();
    all
}

/// Whoever runs is not stopped.
fn nobody(region: &mut Region) {
    let mut faults = Vec::new();
    region.faults(&mut faults).expect("faults");
    assert_eq!(faults, []);
}

fn join<T>(thread: JoinHandle<T>) -> T {
    let begin = Instant::now();
    while !thread.is_finished() {
        assert!(begin.elapsed() < TIME_LIMIT, "a thread that may go on does not");
        std::thread::sleep(Duration::from_millis(1));
    }
    thread.join().expect("it did not panic")
}

#[test]
fn a_page_is_brought_when_it_is_read_and_written() {
    for page_bytes in [4096, 8192, 65536] {
        let mut region = region(page_bytes, 3);
        let at = region.place().start + page_bytes + page_bytes - 1;
        let reader = load(at);
        assert_eq!(next(&mut region), (1, Access::Read));
        region.write(1, page_bytes - 1, &[7]).unwrap();
        region.allow(1, Access::Read).unwrap();
        assert_eq!(join(reader), 7);
        // All of the page can be read, and none of it written.
        assert_eq!(join(load(at - page_bytes + 1)), 0);
        let writer = store(at - page_bytes + 1, 8);
        assert_eq!(next(&mut region), (1, Access::Write));
        region.allow(1, Access::Write).unwrap();
        join(writer);
        join(store(at, 9));
        nobody(&mut region);
        let mut bytes = vec![0; page_bytes];
        region.read(1, &mut bytes);
        assert_eq!((bytes[0], bytes[page_bytes - 1]), (8, 9));
    }
}

/// For any earlier content, in one mapping or in several.
#[test]
fn neighbours_are_brought_at_once() {
    for page_bytes in [4096, 8192] {
        for access in [Access::Read, Access::Write] {
            let mut region = region(page_bytes, 9);
            let start = region.place().start;
            let at = |page: u64| start + page as usize * page_bytes;
            // Neighbours that the memory has are refilled together.
            for page in [2, 3, 4, 7, 8] {
                region.write(page, 1, &[9; 2]).unwrap();
            }
            region.restrict(4..5, MprotectFlags::READ).unwrap();
            let stopped = [load(at(1)), load(at(2) + 1), load(at(5))];
            let told = all_stopped(&mut region, 3);
            assert_eq!(told, [1, 2, 5].map(|page| (page, Access::Read)));
            let bytes: Vec<u8> = (1..6).flat_map(|page| vec![page; page_bytes]).collect();
            region.bring(1..6, Some(&bytes), access).unwrap();
            assert_eq!(stopped.map(join), [1, 2, 5]);
            region.bring(6..9, None, access).unwrap();
            let mut all = Vec::new();
            region.read_all(0..9, &mut all).unwrap();
            assert_eq!(all[page_bytes..6 * page_bytes], bytes);
            assert!(all[..page_bytes].iter().chain(&all[6 * page_bytes..]).all(|byte| *byte == 0));
            for page in 1..9 {
                assert_eq!(region.access(page), access);
                assert_eq!(join(load(at(page + 1) - 1)), page as u8 * u8::from(page < 6));
            }
            nobody(&mut region);
            // Writable pages can be written; at all others the writer stops.
            let writers = [3, 8].map(|page| store(at(page), 100));
            if access == Access::Read {
                let told = all_stopped(&mut region, 2);
                assert_eq!(told, [(3, Access::Write), (8, Access::Write)]);
                region.allow_all(1..9, Access::Write).unwrap();
            }
            writers.into_iter().for_each(join);
            nobody(&mut region);
            region.protect_all(0..9).unwrap();
            let writer = store(at(8), 101);
            assert_eq!(next(&mut region), (8, Access::Write));
            region.allow_all(0..9, Access::Write).unwrap();
            join(writer);
            assert_eq!(join(load(at(0))), 0);
            nobody(&mut region);
        }
    }
}

/// A thread that stopped at one of many pages resumes, whatever was allowed before.
#[test]
fn a_thread_stopped_among_neighbours_continues() {
    let mut region = region(4096, 5);
    let start = region.place().start;
    region.bring(1..2, None, Access::Read).unwrap();
    region.bring(3..4, None, Access::Write).unwrap();
    let writers: Vec<_> = (0..5).map(|page| store(start + page * 4096, 1)).collect();
    let told = all_stopped(&mut region, 4);
    assert_eq!(told, [0, 1, 2, 4].map(|page| (page, Access::Write)));
    region.allow_all(0..5, Access::Write).unwrap();
    writers.into_iter().for_each(join);
}

/// A page that is only read in order to be sent takes no memory.
#[test]
fn pages_that_were_never_used_are_read_as_zeros() {
    let mut region = region(4096, 100);
    region.write(50, 0, &[7; 4096]).unwrap();
    let mut all = vec![1];
    region.read_all(0..100, &mut all).unwrap();
    let sum: u64 = all.iter().map(|byte| u64::from(*byte)).sum();
    assert_eq!((all.len(), sum), (1 + 100 * 4096, 1 + 7 * 4096));
    assert_eq!(region.memory(), 4096);
}

#[test]
fn a_first_write_is_reported_as_a_write() {
    let mut region = region(8192, 1);
    let writer = store(region.place().start + 5000, 1);
    assert_eq!(next(&mut region), (0, Access::Write));
    region.allow(0, Access::Write).unwrap();
    join(writer);
    nobody(&mut region);
}

#[test]
fn a_writer_is_stopped_again_after_the_page_is_protected() {
    let mut region = region(8192, 1);
    let start = region.place().start;
    region.allow(0, Access::Write).unwrap();
    for value in 1..4 {
        join(store(start + 4096, value));
        region.protect(0).unwrap();
        assert_eq!(join(load(start + 4096)), value);
        let writer = store(start + 4096, value + 1);
        assert_eq!(next(&mut region), (0, Access::Write));
        let mut byte = [0; 4097];
        region.read(0, &mut byte);
        assert_eq!(byte[4096], value, "nothing was written yet");
        region.allow(0, Access::Write).unwrap();
        join(writer);
    }
}

#[test]
fn forbidden_pages_stop_readers_and_stay() {
    for protects in [false, true] {
        let mut region = region(8192, 1);
        let start = region.place().start;
        region.allow(0, Access::Write).unwrap();
        join(store(start, 3));
        if protects {
            region.protect(0).unwrap();
        }
        region.forbid(0).unwrap();
        let reader = load(start);
        assert_eq!(next(&mut region), (0, Access::Read));
        region.allow(0, Access::Read).unwrap();
        assert_eq!(join(reader), 3);
        // And it is only readable, then writable.
        let writer = store(start, 4);
        assert_eq!(next(&mut region), (0, Access::Write));
        region.allow(0, Access::Write).unwrap();
        join(writer);
        region.forbid(0).unwrap();
        region.allow(0, Access::Write).unwrap();
        join(store(start + 4096, 5));
        nobody(&mut region);
    }
}

#[test]
fn discarded_memory_holds_zeros() {
    let mut region = region(8192, 2);
    let start = region.place().start;
    for page in [0, 1] {
        region.allow(page, Access::Write).unwrap();
        join(store(start + page as usize * 8192, 3));
    }
    region.discard(0).unwrap();
    let mut byte = [1];
    region.read(0, &mut byte);
    assert_eq!(byte, [0]);
    let reader = load(start);
    assert_eq!(next(&mut region), (0, Access::Read));
    region.allow(0, Access::Read).unwrap();
    assert_eq!(join(reader), 0);
    assert_eq!(join(load(start + 8192)), 3, "its neighbour is as it was");
}

#[test]
fn pages_that_the_kernel_dropped_are_mapped_again() {
    let mut region = region(8192, 1);
    let start = region.place().start;
    region.allow(0, Access::Write).unwrap();
    join(store(start, 6));
    // The effect of reclaim on the mapping. SAFETY: for shared memory this only unmaps the page.
    let done =
        unsafe { libc::madvise(with_exposed_provenance_mut(start), 8192, libc::MADV_DONTNEED) };
    assert_eq!(done, 0);
    let writer = store(start + 1, 7);
    assert_eq!(next(&mut region).0, 0);
    region.wake(0).unwrap();
    join(writer);
    assert_eq!(join(load(start)), 6);
}

#[test]
fn two_threads_that_want_one_page_both_go_on() {
    let mut region = region(8192, 1);
    let start = region.place().start;
    let threads = [load(start), load(start + 4096)];
    let mut faults = Vec::new();
    let begin = Instant::now();
    while faults.len() < 2 {
        assert!(begin.elapsed() < TIME_LIMIT);
        region.faults(&mut faults).unwrap();
    }
    region.allow(0, Access::Read).unwrap();
    region.wake(0).unwrap();
    for thread in threads {
        assert_eq!(join(thread), 0);
    }
}

#[test]
fn system_calls_that_touch_the_memory_wait_like_threads() {
    let mut region = region(4096, 2);
    let start = region.place().start;
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(&[5; 6000]).unwrap();
    let thread = std::thread::spawn(move || {
        // SAFETY: in a region that outlives the thread.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut(with_exposed_provenance_mut::<u8>(start), 6000)
        };
        reader.read(bytes)
    });
    for page in [0, 1] {
        assert_eq!(next(&mut region), (page, Access::Write));
        region.allow(page, Access::Write).unwrap();
    }
    assert_eq!(join(thread).unwrap(), 6000);
    let mut byte = [0; 1];
    region.read(1, &mut byte);
    assert_eq!(byte, [5]);
}

#[test]
fn where_only_programs_are_stopped_system_calls_fail_at_pages_they_may_not_use() {
    let mut region = Region::new(place(4096), Stops::Programs).expect("everybody may");
    region.grow(3).unwrap();
    let start = region.place().start;
    // SAFETY: in a region that outlives the slice.
    let bytes =
        unsafe { std::slice::from_raw_parts_mut(with_exposed_provenance_mut::<u8>(start), 12288) };
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(&[5; 20000]).unwrap();
    let is_efault = |result: std::io::Result<usize>| {
        result.expect_err("the page is not there").raw_os_error() == Some(libc::EFAULT)
    };
    assert!(is_efault(reader.read(bytes)));
    assert!(is_efault(writer.write(bytes)));
    nobody(&mut region);
    region.allow(0, Access::Write).unwrap();
    assert_eq!(reader.read(&mut bytes[..4096]).unwrap(), 4096);
    // A read-only page may not be written.
    region.protect(0).unwrap();
    assert_eq!(writer.write(&bytes[..4096]).unwrap(), 4096);
    assert!(is_efault(reader.read(&mut bytes[..4096])));
    let thread = store(start + 4096, 7);
    assert_eq!(next(&mut region), (1, Access::Write));
    region.allow(1, Access::Write).unwrap();
    join(thread);
}

#[test]
fn memory_grows_where_it_ends_and_is_two_mappings() {
    let mut region = region(4096, 0);
    for pages in 1..60 {
        assert_eq!(region.grow(pages).unwrap(), pages * (pages - 1) / 2);
    }
    let start = region.place().start;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    for view in [start, start + pager::region::ALIAS] {
        let range = format!("{view:x}-{:x} rw-s", view + 59 * 60 / 2 * 4096);
        assert!(maps.contains(&range), "{range}\n{maps}");
    }
    region.allow(1769, Access::Write).unwrap();
    join(store(start + 1769 * 4096, 1));
    assert_eq!(region.page_at(start + 1769 * 4096), Some(1769));
    assert_eq!(region.page_at(start + 1770 * 4096), None);
    assert_eq!(region.page_at(start - 1), None);
}

#[test]
fn a_forked_child_has_neither_view() {
    let mut region = region(4096, 1);
    region.allow(0, Access::Write).unwrap();
    let start = region.place().start;
    // SAFETY: the child makes system calls only.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            for view in [start, start + pager::region::ALIAS] {
                let mut there = 0u8;
                let view = with_exposed_provenance_mut(view);
                if libc::mincore(view, 4096, &mut there) == 0 {
                    libc::_exit(1);
                }
            }
            libc::_exit(0);
        }
        let mut status = 1;
        libc::waitpid(child, &mut status, 0);
        assert_eq!(status, 0);
    }
}

#[test]
fn errors_say_what_to_do() {
    let start = place(4096).start;
    let refused = |place| Region::new(place, Stops::All).err().expect("it makes no sense");
    for page_bytes in [0, 1000, 6144] {
        let error = refused(Place { start, page_bytes });
        assert_eq!(error, PagerError::Alignment { page_bytes });
        assert!(error.to_string().contains("multiples of 4096"), "{error}");
    }
    assert_eq!(
        refused(Place { start: start + 512, page_bytes: 8192 }),
        PagerError::Alignment { page_bytes: 8192 }
    );
    // Two regions at one place.
    let mut first = region(4096, 1);
    let mut second = Region::new(first.place(), Stops::All).unwrap();
    let error = second.grow(1).expect_err("it is taken");
    assert!(matches!(error, PagerError::Taken { start, .. } if start == first.place().start));
    assert!(error.to_string().contains("in use"), "{error}");
    assert_eq!(first.grow(u64::MAX / 4096), Err(PagerError::Full));
    assert_eq!(first.grow(1), Ok(1), "which changes nothing");
}

/// Runs the role in a separate process, as another user.
fn role(name: &str, change: impl Fn(&mut std::process::Command)) -> String {
    let directory = std::env::temp_dir().join(format!("pager-{name}-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let program = directory.join("role");
    // In another process: children of other threads would inherit a file that is open for writing.
    let own = std::env::current_exe().unwrap();
    assert!(std::process::Command::new("cp").args([&own, &program]).status().unwrap().success());
    let mut command = std::process::Command::new(&program);
    command.args(["--exact", "role_of_another", "--nocapture"]).current_dir("/");
    command.env("PAGER_ROLE", name);
    change(&mut command);
    let output = command.output().unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn role_of_another() {
    let Ok(role) = std::env::var("PAGER_ROLE") else { return };
    let stops = if role == "programs" { Stops::Programs } else { Stops::All };
    let said = match Region::new(place(4096), stops) {
        Err(error) => error.to_string(),
        Ok(mut region) if role == "limited" => {
            let limit = libc::rlimit { rlim_cur: 1 << 30, rlim_max: 1 << 30 };
            // SAFETY: sets a limit of this process.
            unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) };
            region.grow(1 << 20).err().map_or("grown".into(), |error| error.to_string())
        }
        Ok(_) => "allowed".into(),
    };
    println!("\nrole: {said}");
}

#[test]
fn a_user_without_permission_is_told_the_missing_right() {
    use std::os::unix::process::CommandExt as _;
    // SAFETY: a plain call.
    if unsafe { libc::geteuid() } != 0 {
        return skip::because("only root can become another user");
    }
    let sysctl = std::fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd").unwrap();
    let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/userfaultfd");
    let nobody = |command: &mut std::process::Command| {
        command.uid(65534).gid(65534);
    };
    let said = role("nobody", nobody);
    if sysctl.trim() == "0" {
        for remedy in ["vm.unprivileged_userfaultfd", "/dev/userfaultfd", "CAP_SYS_PTRACE"] {
            assert!(said.contains(remedy), "{said}");
        }
    }
    let said = role("programs", nobody);
    assert!(said.contains("role: allowed"), "{said}");
    // With the device, which root has here without its other rights.
    if device.is_ok_and(|device| device.as_fd().try_clone_to_owned().is_ok()) {
        let said = role("device", |command| {
            // SAFETY: between fork and exec, plain calls.
            unsafe {
                command.pre_exec(|| {
                    const CAP_SYS_PTRACE: i32 = 19;
                    libc::prctl(libc::PR_CAPBSET_DROP, CAP_SYS_PTRACE);
                    Ok(())
                })
            };
        });
        assert!(said.contains("role: allowed"), "{said}");
    }
}

#[test]
fn a_limit_of_addresses_is_named() {
    let said = role("limited", |_| {});
    assert!(said.contains("vm.max_map_count") && said.contains("ulimit -v"), "{said}");
}

#[test]
fn stopped_threads_are_known() {
    let mut region = region(4096, 1);
    let start = region.place().start;
    let thread = std::thread::spawn(move || {
        // SAFETY: in a region that outlives the thread.
        let _ = unsafe { with_exposed_provenance_mut::<u8>(start).read_volatile() };
        rustix::thread::gettid().as_raw_nonzero().get() as u32
    });
    let fault = next_fault(&mut region);
    region.allow(0, Access::Write).unwrap();
    assert_eq!(fault.thread, join(thread));
}

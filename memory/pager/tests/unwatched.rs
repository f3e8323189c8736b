//! A region whose pages threads use as other memory, until it is watched.

use std::ptr::with_exposed_provenance_mut;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pager::{Access, Fault, Region, Stops};

const PAGE: u64 = 4096;
/// Pages that no other mapping of this process uses.
const FIRST: u64 = 0x1234_0000_0000 / PAGE;

fn region(pages: u64) -> Region {
    let mut region = Region::unwatched(Stops::All).expect("run the tests as root");
    region.open(FIRST..FIRST + pages).expect("addresses");
    let all = rustix::mm::MprotectFlags::READ | rustix::mm::MprotectFlags::WRITE;
    region.restrict_open(FIRST..FIRST + pages, all).expect("protection");
    region
}

fn word(page: u64) -> &'static AtomicU64 {
    let at = ((FIRST + page) * PAGE) as usize;
    // SAFETY: a page of the region, which outlives all threads that use it.
    unsafe { AtomicU64::from_ptr(with_exposed_provenance_mut(at)) }
}

/// Waits for the next fault.
fn fault(region: &mut Region) -> Fault {
    let (begin, mut faults) = (Instant::now(), Vec::new());
    while faults.is_empty() {
        assert!(begin.elapsed() < Duration::from_secs(20), "nobody is stopped");
        region.faults(&mut faults).expect("faults");
        std::thread::yield_now();
    }
    faults[0]
}

#[test]
fn threads_stop_at_no_page_until_the_region_is_watched_and_lose_nothing() {
    let mut region = region(64);
    region.write(FIRST + 9, 0, &7u64.to_ne_bytes()).expect("memory");
    // No server answers faults: these would hang.
    word(3).store(33, Ordering::SeqCst);
    assert_eq!((word(9).load(Ordering::SeqCst), word(5).load(Ordering::SeqCst)), (7, 0));
    let held: Vec<u64> = region.held().unwrap().into_iter().flatten().collect();
    assert_eq!(held, [FIRST + 3, FIRST + 5, FIRST + 9]);
    assert!(region.has(FIRST + 3) && !region.is_watched());

    let watched: Vec<u64> = region.watch(&[]).unwrap().into_iter().flatten().collect();
    assert_eq!(watched, held);
    assert!(watched.iter().all(|&page| region.access(page) == Access::Write));
    assert!(region.watch(&[]).unwrap().is_empty());
    word(3).fetch_add(1, Ordering::SeqCst);
    let new = std::thread::spawn(|| word(20).fetch_add(1, Ordering::SeqCst));
    let stopped = fault(&mut region);
    assert_eq!((stopped.page, stopped.wants), (FIRST + 20, Access::Write));

    // Pages can be protected and taken as those that the region has given.
    region.protect(FIRST + 3).unwrap();
    let writer = std::thread::spawn(|| word(3).fetch_add(1, Ordering::SeqCst));
    assert_eq!(fault(&mut region).page, FIRST + 3);

    // The end of the watch resumes both.
    region.unwatch(&[]).unwrap();
    assert_eq!((new.join().unwrap(), writer.join().unwrap()), (0, 34));
    word(40).store(1, Ordering::SeqCst);
    let held: Vec<u64> = region.watch(&[]).unwrap().into_iter().flatten().collect();
    assert_eq!(held, [3, 5, 9, 20, 40].map(|page| FIRST + page));
    assert_eq!(word(3).load(Ordering::SeqCst), 35);
    drop(region);
}

/// Pages that threads use for the first time meanwhile are either returned, or stop their thread.
#[test]
fn no_page_is_missed_while_the_watch_begins() {
    static OVER: AtomicBool = AtomicBool::new(false);
    static AT: AtomicU64 = AtomicU64::new(0);
    const BASE: u64 = 0x20_0000;
    const PAGES: u64 = 0x10_0000;
    let mut region = Region::unwatched(Stops::All).expect("run the tests as root");
    let pages = FIRST + BASE..FIRST + BASE + PAGES;
    region.open(pages.clone()).expect("addresses");
    let all = rustix::mm::MprotectFlags::READ | rustix::mm::MprotectFlags::WRITE;
    region.restrict_open(pages.clone(), all).expect("protection");
    let user = std::thread::spawn(|| {
        for page in 0..PAGES {
            if OVER.load(Ordering::SeqCst) {
                break;
            }
            word(BASE + page).store(page + 1, Ordering::SeqCst);
            AT.store(page + 1, Ordering::SeqCst);
        }
    });
    while AT.load(Ordering::SeqCst) < 1000 {
        std::thread::yield_now();
    }
    let held = region.watch(&[]).unwrap();
    let stopped = fault(&mut region);
    OVER.store(true, Ordering::SeqCst);
    let first = pages.start;
    assert_eq!(held.len(), 1);
    assert_eq!(held[0], first..stopped.page, "all before the first fault, and nothing else");
    region.allow(stopped.page, Access::Write).unwrap();
    user.join().unwrap();
    for page in 0..AT.load(Ordering::SeqCst) {
        assert_eq!(word(BASE + page).load(Ordering::SeqCst), page + 1);
    }
}

//! The processors that the program sees: those of all nodes, in the order of the nodes, so that it
//! starts enough threads for them. All sources agree: sched_getaffinity(2), getcpu(2), and the
//! files from which libc reads their number.
//!
//! A mask that the program sets is stored, returned, and inherited by new threads. A thread on a
//! node without any of its processors moves to a node that has some (`agent/moves.rs`).

use std::ops::Range;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use rustix::thread::CpuSet;

use crate::talk::Ready;

/// Maximum number of processors that programs see, the size of libc's masks.
pub const PROCESSORS_MAX: u32 = 1024;
/// Numbers that processors may have here: Linux's limit on x86-64.
pub const NUMBERS: usize = 8192;

/// A thread's mask, as the program sees it.
pub type Mask = [AtomicU64; PROCESSORS_MAX as usize / 64];

/// The numbers of this node's processors. At first they are the kernel's.
pub static NAMES: [AtomicU16; NUMBERS] = {
    let mut names = [const { AtomicU16::new(0) }; NUMBERS];
    let mut number = 0;
    while number < NUMBERS {
        names[number] = AtomicU16::new(number as u16);
        number += 1;
    }
    names
};

/// Those of some nodes.
pub fn of(nodes: &[Ready]) -> u32 {
    let all = nodes.iter().map(|node| node.processors).sum::<u32>();
    all.min(PROCESSORS_MAX)
}

/// Of each node the names of its processors, one at least.
pub fn names(nodes: &[Ready]) -> Vec<Range<u32>> {
    let of_node = |node: usize| {
        let first = of(&nodes[..node]).min(PROCESSORS_MAX - 1);
        first..of(&nodes[..=node]).max(first + 1)
    };
    (0..nodes.len()).map(of_node).collect()
}

/// Returns true if a mask contains any of these.
pub fn has_any(mask: &Mask, names: &Range<u32>) -> bool {
    let has = |name: u32| mask[name as usize / 64].load(Ordering::Relaxed) & 1 << (name % 64) != 0;
    names.clone().any(has)
}

/// Sets the numbers of this node's processors. `own` are the processors that it may use, of which
/// the program sees this many, from `first` on.
pub fn name(own: &CpuSet, first: u32, count: u32) {
    let mut rank = 0;
    for (number, name) in NAMES.iter().enumerate() {
        let is_own = number < CpuSet::MAX_CPU && own.is_set(number);
        // The kernel may allow other processors later.
        let at = if is_own { rank } else { number as u32 };
        rank += u32::from(is_own);
        let named = (first + at % count.max(1)).min(PROCESSORS_MAX - 1);
        name.store(named as u16, Ordering::Relaxed);
    }
}

/// For a thread without its own mask.
pub fn all() -> Mask {
    std::array::from_fn(|_| AtomicU64::new(u64::MAX))
}

/// Returns a word of the mask of all existing processors.
pub fn there_are(all: u32, word: usize) -> u64 {
    match all.saturating_sub(word as u32 * 64) {
        0 => 0,
        left @ 1..64 => (1 << left) - 1,
        _ => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_has_names() {
        let node = |processors| Ready {
            address: Vec::new(),
            processors,
            features: Vec::new(),
            name: String::new(),
            ours: Vec::new(),
            clocks: String::new(),
        };
        assert_eq!(names(&[3, 1, 64].map(node)), [0..3, 3..4, 4..68]);
        assert_eq!(names(&[1000, 100, 8].map(node)), [0..1000, 1000..1024, 1023..1024]);
        let mask = all();
        assert!(has_any(&mask, &(1023..1024)));
        mask.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        mask[1].store(1 << 3, Ordering::Relaxed);
        assert!(has_any(&mask, &(4..68)) && !has_any(&mask, &(68..70)) && !has_any(&mask, &(0..4)));
    }

    #[test]
    fn masks_have_those_that_there_are() {
        assert_eq!([0, 1].map(|word| there_are(3, word)), [7, 0]);
        assert_eq!([0, 1, 2].map(|word| there_are(128, word)), [u64::MAX, u64::MAX, 0]);
        assert_eq!([0, 1].map(|word| there_are(65, word)), [u64::MAX, 1]);
    }

    #[test]
    fn processors_are_named_in_the_order_of_nodes() {
        let mut own = CpuSet::new();
        [1, 3, 70].into_iter().for_each(|number| own.set(number));
        name(&own, 10, 3);
        let named = |number: usize| NAMES[number].load(Ordering::Relaxed);
        assert_eq!([1, 3, 70].map(named), [10, 11, 12]);
        name(&own, 10, 2);
        assert!((0..NUMBERS).all(|number| (10..12).contains(&named(number))));
    }
}

//! The content of a forked child's memory for which madvise(2) selected something other than a
//! copy: zeros (MADV_WIPEONFORK), or nothing (MADV_DONTFORK).

use std::ops::Range;

use crate::ranges::Ranges;

/// The advices of madvise that select this.
pub const ADVICES: [i32; 4] =
    [libc::MADV_WIPEONFORK, libc::MADV_KEEPONFORK, libc::MADV_DONTFORK, libc::MADV_DOFORK];

/// Addresses that children do not have as they are.
#[derive(Debug, Default)]
pub struct Inheritance {
    wiped: Ranges,
    missing: Ranges,
}

impl Inheritance {
    /// One of [`ADVICES`] holds for these addresses from now on.
    pub fn advise(&mut self, range: Range<u64>, advice: i32) {
        match advice {
            libc::MADV_WIPEONFORK => self.wiped.insert(range),
            libc::MADV_KEEPONFORK => self.wiped.remove(range),
            libc::MADV_DONTFORK => self.missing.insert(range),
            _ => self.missing.remove(range),
        }
    }

    /// Something else is mapped there, or nothing: children have it as it is.
    pub fn forget(&mut self, range: &Range<u64>) {
        self.wiped.remove(range.clone());
        self.missing.remove(range.clone());
    }

    /// Returns true if a child has zeros at this address.
    pub fn is_wiped(&self, address: u64) -> bool {
        self.wiped.covers(&(address..address + 1))
    }

    /// Addresses at which a child has zeros.
    pub fn wiped(&self) -> impl Iterator<Item = Range<u64>> {
        self.wiped.iter()
    }

    /// Addresses at which a child has nothing.
    pub fn missing(&self) -> impl Iterator<Item = Range<u64>> {
        self.missing.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_setting_holds() {
        let mut it = Inheritance::default();
        it.advise(10..50, libc::MADV_WIPEONFORK);
        it.advise(20..60, libc::MADV_DONTFORK);
        it.advise(10..12, libc::MADV_KEEPONFORK);
        it.advise(20..30, libc::MADV_DOFORK);
        it.forget(&(45..55));
        assert!(!it.is_wiped(11) && it.is_wiped(12) && it.is_wiped(44) && !it.is_wiped(45));
        assert_eq!(it.wiped().collect::<Vec<_>>(), vec![12..45]);
        assert_eq!(it.missing().collect::<Vec<_>>(), [30..45, 55..60]);
    }
}

//! Whether to look for a while before one sleeps: to be woken takes some microseconds, on idle
//! processors some tens, and so who is answered soon had better look. Who looks in vain would
//! take the processor from others: for a while they sleep at once.

use std::time::Duration;

/// How long a wait may look before it sleeps: longer than the other side takes to be woken, which
/// on idle processors of a virtual machine is 50 to 75 µs. Else two who have both slept once
/// would never look again in time.
pub const SPIN_MAX: Duration = Duration::from_micros(100);
/// How many waits sleep at once after one that has looked in vain.
const SLEEPS: u32 = 16;

/// What waits have taught so far.
#[derive(Debug, Default)]
pub struct Patience {
    /// How many waits to come sleep at once.
    sleeps: u32,
}

impl Patience {
    /// Whether a wait that has lasted so long looks once more.
    pub fn looks(&self, waited: Duration) -> bool {
        self.sleeps == 0 && waited < SPIN_MAX
    }

    /// A wait is over after so long, with or without success.
    pub fn learn(&mut self, succeeded: bool, waited: Duration) {
        self.sleeps = match self.sleeps.checked_sub(1) {
            Some(left) => left,
            None if succeeded && waited < SPIN_MAX => 0,
            None => SLEEPS,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_looks_in_vain_sleeps_for_a_while() {
        let mut patience = Patience::default();
        let soon = SPIN_MAX / 2;
        patience.learn(true, soon);
        assert!(patience.looks(soon) && !patience.looks(SPIN_MAX));
        patience.learn(false, SPIN_MAX * 2);
        for _ in 0..SLEEPS {
            assert!(!patience.looks(Duration::ZERO));
            patience.learn(true, soon);
        }
        assert!(patience.looks(Duration::ZERO));
    }
}

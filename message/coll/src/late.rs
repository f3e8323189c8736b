//! The lateness of sends to a peer, and the decision to buffer the next one.
//!
//! Two late sends begin a time of buffered ones. Now and then a send is not buffered: it is a
//! trial. While trials are late, they become rare; a trial that is not late ends the time.

/// Late sends until sends are buffered.
const LATE_MIN: u32 = 2;
/// Buffered sends from one trial to the next, at first and at last.
const INTERVAL_MIN: u32 = 4;
const INTERVAL_MAX: u32 = 256;

/// The lateness of sends to one peer.
#[derive(Debug, Default, Clone)]
pub struct Lateness {
    /// Late sends.
    late: u32,
    /// Buffered sends until the next trial, and the length of the interval; 0 if none is buffered.
    left: u32,
    interval: u32,
}

impl Lateness {
    /// Returns true while sends are buffered.
    pub fn is_on(&self) -> bool {
        self.interval != 0
    }

    /// Returns true if the next send is to be buffered. Else it is recorded when it has ended.
    pub fn is_buffered(&mut self) -> bool {
        let is_buffered = self.left > 0;
        self.left -= u32::from(is_buffered);
        is_buffered
    }

    /// Records a send that was not buffered.
    pub fn record(&mut self, is_late: bool) {
        if !is_late {
            *self = Self::default();
            return;
        }
        self.late += 1;
        if self.late >= LATE_MIN {
            self.interval = (2 * self.interval).clamp(INTERVAL_MIN, INTERVAL_MAX);
            self.left = self.interval;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends to a peer that is late or not. Returns the number of those that were not buffered.
    fn sends(lateness: &mut Lateness, count: u32, is_late: bool) -> u32 {
        let mut waited = 0;
        for _ in 0..count {
            if !lateness.is_buffered() {
                waited += 1;
                lateness.record(is_late);
            }
        }
        waited
    }

    #[test]
    fn few_sends_wait_for_a_late_peer() {
        let mut lateness = Lateness::default();
        assert_eq!(sends(&mut lateness, 2, true), 2);
        let rest = sends(&mut lateness, 10_000, true);
        assert!((5..60).contains(&rest), "{rest}");
    }

    #[test]
    fn no_send_to_a_prompt_peer_is_buffered() {
        let mut lateness = Lateness::default();
        assert_eq!(sends(&mut lateness, 1000, false), 1000);
        // One interruption.
        assert_eq!(sends(&mut lateness, 1, true), 1);
        assert_eq!(sends(&mut lateness, 1000, false), 1000);
    }

    #[test]
    fn a_peer_that_is_prompt_again_is_noticed() {
        let mut lateness = Lateness::default();
        sends(&mut lateness, 10_000, true);
        sends(&mut lateness, INTERVAL_MAX + 1, false);
        assert!(!lateness.is_on());
        assert_eq!(sends(&mut lateness, 100, false), 100);
    }
}

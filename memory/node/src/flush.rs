//! Flush policy: how long an engine that stops keeps sending. The last messages of a job are queued
//! when it ends. The process must not exit before the transport has sent them.

use std::time::Duration;

use net::mesh::Mesh;
use sync::clock;

/// Minimum and maximum time of the final flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushPolicy {
    /// Minimum time. The transport may still buffer messages that it reports as sent.
    pub min: Duration,
    /// Maximum time. A peer may be gone, or may never have connected.
    pub max: Duration,
}

/// Longest sleep between two looks at the queued messages.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// The flush policy of all engines.
pub const FLUSH: FlushPolicy =
    FlushPolicy { min: Duration::from_millis(5), max: Duration::from_millis(100) };

impl FlushPolicy {
    /// Returns true if the flush must continue after `elapsed`. `unsent` is true while messages are
    /// queued, `keeps` if the transport keeps sent messages when this process exits.
    pub fn goes_on(self, elapsed: Duration, unsent: bool, keeps: bool) -> bool {
        !keeps && elapsed < self.min || unsent && elapsed < self.max
    }

    /// Sends the queued messages. Discards messages that arrive meanwhile.
    pub fn run(self, mesh: &mut Mesh) {
        let (start, keeps) = (clock::now(), mesh.keeps_messages());
        while self.goes_on(clock::elapsed(start), mesh.has_unsent(), keeps) {
            let _ = mesh.wait(clock::now() + LOOK_INTERVAL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_waits_for_unsent_messages_but_not_for_ever() {
        let ms = Duration::from_millis;
        assert!(FLUSH.goes_on(ms(1), false, false));
        assert!(!FLUSH.goes_on(ms(5), false, false));
        for keeps in [false, true] {
            assert!(FLUSH.goes_on(ms(99), true, keeps));
            assert!(!FLUSH.goes_on(ms(100), true, keeps));
        }
    }

    #[test]
    fn messages_in_memory_of_this_machine_need_no_wait() {
        assert!(!FLUSH.goes_on(Duration::ZERO, false, true));
    }
}

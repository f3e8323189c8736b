//! How long an engine that ends keeps sending. Messages about the end are queued when the job
//! ends; the process must not exit before they are on their way.

use std::time::{Duration, Instant};

use net::mesh::Mesh;

/// How long to keep sending before the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushPolicy {
    /// At least this: the transport may buffer what it reports as sent.
    pub min: Duration,
    /// At most this: a peer may be gone, or never have connected.
    pub max: Duration,
}

/// The policy of all engines.
pub const FLUSH: FlushPolicy =
    FlushPolicy { min: Duration::from_millis(5), max: Duration::from_millis(100) };

impl FlushPolicy {
    /// Returns whether to go on after `elapsed`, while messages are `unsent` or not.
    pub fn goes_on(self, elapsed: Duration, unsent: bool) -> bool {
        elapsed < self.min || unsent && elapsed < self.max
    }

    /// Sends what is queued. Drops what arrives meanwhile.
    pub fn run(self, mesh: &mut Mesh) {
        let start = Instant::now();
        while self.goes_on(start.elapsed(), mesh.has_unsent()) {
            if mesh.hear().is_none() {
                std::thread::yield_now();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_waits_for_unsent_messages_but_not_for_ever() {
        let ms = Duration::from_millis;
        assert!(FLUSH.goes_on(ms(1), false));
        assert!(!FLUSH.goes_on(ms(5), false));
        assert!(FLUSH.goes_on(ms(99), true));
        assert!(!FLUSH.goes_on(ms(100), true));
    }
}

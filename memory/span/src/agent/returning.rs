//! The state of the return of memory to the origin ([`local`](super::local)).

use coherence::message::Page;

/// The next look for pages that are elsewhere.
#[derive(Clone, Copy, Debug)]
pub(super) struct Return {
    /// The page from which on it goes.
    pub from: Page,
    /// When it is due.
    pub at: u64,
}

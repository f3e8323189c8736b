//! The outboxes of a rank that no team uses. An outbox is never freed, since other ranks may still
//! read it: it is reused when all of them have left it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use outbox::outbox::Outbox;

/// Outboxes of ended teams, and the number of ranks that must leave them.
static FREE: Mutex<Vec<(&'static Outbox, u32)>> = Mutex::new(Vec::new());

fn free_list() -> MutexGuard<'static, Vec<(&'static Outbox, u32)>> {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns an outbox for a new team.
pub fn take() -> &'static Outbox {
    let mut free_list = free_list();
    let free = free_list.iter().position(|(outbox, others)| outbox.has_been_left(*others));
    if let Some(free) = free {
        let (outbox, _) = free_list.swap_remove(free);
        outbox.reset();
        return outbox;
    }
    // The outbox is allocated on the heap directly, since it is too large for a stack.
    let layout = std::alloc::Layout::new::<Outbox>();
    // SAFETY: the layout has a size; an outbox may be all zero.
    unsafe {
        let outbox = std::alloc::alloc_zeroed(layout).cast::<Outbox>();
        if outbox.is_null() {
            std::alloc::handle_alloc_error(layout);
        }
        &*outbox
    }
}

/// Frees an outbox that `others` ranks know, for reuse.
pub fn give(outbox: &'static Outbox, others: u32) {
    free_list().push((outbox, others));
}

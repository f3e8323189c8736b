//! The bell, by which another thread of the process ends a wait for messages.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::listed::Area;
use crate::locked::{ASLEEP, Queue};
use crate::window::Window;
use sync::futex;
use sync::mapped::Mapped;
use sync::ring::{Buffer, rouse};

/// Ends a wait of the receiver from another thread of its process:
/// [`Port::receive`](crate::port::Port::receive) returns without a message, now, or the next
/// time that it would wait. Costs the receiver nothing while messages come.
#[derive(Debug, Clone)]
pub struct Bell {
    buffer: Buffers,
    rung: Arc<AtomicBool>,
    /// Keeps the buffer mapped.
    _window: Arc<Window>,
}

/// Where the receiver sleeps.
#[derive(Debug, Clone, Copy)]
enum Buffers {
    Ring(Mapped),
    Queue(Area),
}

impl Bell {
    pub(crate) fn of_ring(ring: Mapped, rung: Arc<AtomicBool>, window: Arc<Window>) -> Self {
        Self { buffer: Buffers::Ring(ring), rung, _window: window }
    }

    pub(crate) fn of_queue(queue: Area, rung: Arc<AtomicBool>, window: Arc<Window>) -> Self {
        Self { buffer: Buffers::Queue(queue), rung, _window: window }
    }

    /// Rings.
    pub fn ring(&self) {
        self.rung.store(true, SeqCst);
        // The receiver says that it sleeps, then looks whether it rang; all sequentially
        // consistent. If by now the buffer is another's, it wakes for nothing.
        match &self.buffer {
            Buffers::Ring(ring) => {
                if ring.head().load(SeqCst) & 1 != 0 {
                    rouse(ring);
                    futex::wake(ring.head());
                }
            }
            // Without the lock, whose holder may have been stopped: this changes the word
            // only while the receiver sleeps and there is nothing, and then as a sender may.
            Buffers::Queue(queue) => {
                let messages = Queue::messages(queue);
                if messages.compare_exchange(ASLEEP, 0, SeqCst, Relaxed).is_ok() {
                    futex::wake(messages);
                }
            }
        }
    }
}

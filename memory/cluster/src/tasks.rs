//! The agent's state of tasks: those of this machine that others know, those that have ended, and
//! requests that are answered later.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io::Write as _;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use coherence::message::{NodeId, Page};

/// The state of tasks.
#[derive(Debug, Default)]
pub struct Tasks {
    /// Tasks of this machine that other machines know, and their generations.
    pub announced: HashMap<u32, u64>,
    /// Tasks of this machine that have ended, until the next one with the same ID is loaded.
    pub gone: HashSet<u32>,
    /// Tasks of this machine that have ended: the machines that have not acknowledged it yet, and
    /// the thread that waits for them.
    pub ending: HashMap<u32, (Vec<NodeId>, Sender<()>)>,
    /// Tasks that have requested a change of memory.
    pub changing: HashSet<u32>,
    /// Tasks that have requested pages of theirs, and the pages that are on other machines.
    pub fetches: Vec<(u32, VecDeque<Page>)>,
    /// The space's event count, up to which other machines have been told.
    pub events: u32,
    /// Addresses of futexes, for the thread that wakes their waiters.
    waker: Option<Sender<u64>>,
    /// Output of tasks, for the thread that prints it.
    printer: Option<Printer>,
}

/// The thread that prints output, and its queue: text for standard output (1) or error (2).
#[derive(Debug)]
struct Printer {
    texts: Sender<(u8, Vec<u8>)>,
    /// Closed when the thread has printed all.
    done: Receiver<()>,
}

impl Tasks {
    /// Wakes the waiters of a futex. The kernel reads its page, which may be on another machine, so
    /// a separate thread makes the call.
    pub fn wake(&mut self, address: u64) {
        let waker = self.waker.get_or_insert_with(|| {
            let (waker, addresses) = channel::<u64>();
            let wake = move || {
                for address in addresses {
                    let all = i32::MAX;
                    // SAFETY: FUTEX_WAKE writes no memory, and the kernel checks the address.
                    unsafe { libc::syscall(libc::SYS_futex, address, libc::FUTEX_WAKE, all) };
                }
            };
            let _ = std::thread::Builder::new().name("nagaya-waker".into()).spawn(wake);
            waker
        });
        let _ = waker.send(address);
    }

    /// Prints the output of a task, on the first machine. The reader may be slow, so a separate
    /// thread writes.
    pub fn print(&mut self, stream: u8, bytes: Vec<u8>) {
        if self.printer.is_none() {
            let ((texts, received), (end, done)) = (channel(), channel());
            let print = move || {
                print_all(received);
                drop(end);
            };
            let _ = std::thread::Builder::new().name("nagaya-print".into()).spawn(print);
            self.printer = Some(Printer { texts, done });
        }
        let _ = self.printer.as_ref().map(|printer| printer.texts.send((stream, bytes)));
    }

    /// Waits until all output is printed, at most for this time.
    pub fn finish_printing(&mut self, time_max: Duration) {
        let Some(Printer { texts, done }) = self.printer.take() else { return };
        drop(texts);
        let _ = done.recv_timeout(time_max);
    }
}

/// Prints texts, each for standard output (1) or error (2).
fn print_all(texts: Receiver<(u8, Vec<u8>)>) {
    for (stream, bytes) in texts {
        // The reader may have closed the pipe.
        let _ = match stream {
            1 => std::io::stdout().lock().write_all(&bytes),
            _ => std::io::stderr().lock().write_all(&bytes),
        };
        let _ = std::io::stdout().flush();
    }
}

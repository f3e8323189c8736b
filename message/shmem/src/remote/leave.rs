//! The end of a job over several nodes.
//!
//! **In order.** All PEs have met in `shmem_finalize`, so no PE has requests left. Each closes its
//! connections, which delivers all messages before. The first PE of a node then waits until the
//! PEs of other nodes have closed theirs to its agent, and the agents have closed those to each
//! other. After that the process may end.
//!
//! **At once**, by `shmem_global_exit` or a fatal error. The PE tells the agents of all other nodes
//! over a fabric of its own: the usual one may be in use by this thread.

use std::ffi::c_int;
use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use std::time::{Duration, Instant};

use net::event::Event;
use net::fabric::Fabric;
use net::payload::Payload;
use shmem_wire::message::{Action, Request};
use sync::futex;

use crate::ending;
use crate::fatal::fatal;
use crate::job::Job;
use crate::remote::far::{ENDERS, Far, LEAVES, LEFT};

/// Time limit for the agent's end.
const LEAVE_MAX: Duration = Duration::from_secs(30);
/// Time limit for other nodes to take the request to end.
const END_MAX: Duration = Duration::from_secs(2);
/// Interval at which a PE checks whether the first PE of its node lives, and the time for others
/// to report its end.
const WATCH: Duration = Duration::from_millis(250);
const REPORT_AFTER: Duration = Duration::from_secs(3);

/// Closes this PE's connections; in the first PE of a node, those of the agent, too. All PEs have
/// met.
pub fn leave(job: &Job) {
    let Some(far) = job.far.as_deref() else { return };
    far.link.close();
    if !far.is_first(job.me) {
        return;
    }
    let until = Instant::now() + LEAVE_MAX;
    far.ending.store(LEAVES, Release);
    let _ = rustix::io::write(&far.wakes_agent, &1_u64.to_ne_bytes());
    while far.ending.load(Acquire) != LEFT && Instant::now() < until {
        futex::sleep(&far.ending, LEAVES, Some(until));
    }
}

/// Ends all other PEs with an exit status.
pub fn end_others(job: &Job, status: c_int) {
    for peer in job.peers.iter().filter(|it| !it.is_far()) {
        peer.block.is_ending.store(1, SeqCst);
    }
    end_nodes(job, status);
    ending::end_neighbours(job, status);
}

/// Ends the PEs of all other nodes with an exit status.
fn end_nodes(job: &Job, status: c_int) {
    let Some(far) = job.far.as_deref() else { return };
    let Ok(mut fabric) = Fabric::new(ENDERS + job.me as u64, &far.secret) else { return };
    let action = Action::End { status: status as u8 };
    let request = Request { pe: 0, sequence: 0, action };
    let mut told = Vec::new();
    for address in (0..far.nodes.n()).filter(|&node| node != far.node).map(|n| &far.addresses[n]) {
        let Ok(peer) = fabric.connect(address) else { continue };
        if fabric.send(peer, &request.header(), Payload::EMPTY).is_ok() {
            fabric.close(peer);
            told.push(peer);
        }
    }
    let until = Instant::now() + END_MAX;
    while !told.is_empty() && Instant::now() < until {
        match fabric.wait(until.saturating_duration_since(Instant::now())) {
            // A peer to which nothing could be sent may be lost, too.
            Ok(Some(Event::Closed(over) | Event::Lost { peer: over, .. })) => {
                told.retain(|peer| *peer != over);
            }
            Ok(_) => {}
            Err(_) => return,
        }
    }
}

/// In the thread that waits for the request to end: returns how long it may sleep until it calls
/// this again. Ends this PE if the first one of its node has died, and with it the agent.
pub fn watch_first(job: &Job, died: &mut Option<Instant>) -> Option<Duration> {
    let far: &Far = job.far.as_deref()?;
    let first = &job.peers[far.nodes.first(far.node)];
    let (this, task) = (job.task?, first.task?);
    let is_over = first.block.finalized.0.load(Acquire) != 0 || this.control.is_living(task);
    if is_over || ending::is_ending() {
        return Some(WATCH);
    }
    // The agents of other nodes report it, and the launcher ends the job.
    if died.get_or_insert_with(Instant::now).elapsed() > REPORT_AFTER {
        fatal!("wait", "PE {} has ended without shmem_finalize", first.pe);
    }
    Some(WATCH)
}

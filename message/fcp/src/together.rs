//! Sender and receiver copy pieces of one long message at the same time (`sync::pieces`): one
//! processor alone reads fresh data of another at a part of the speed.
//!
//! Only between tasks of one space, where each can write the other's memory. The receiver exposes
//! its buffer in its own entry, tells the sender the tag, and copies pieces out of the sender's
//! memory. A sender that waits meanwhile copies other pieces into the buffer. It need not: then the
//! receiver copies all of them.
//!
//! The receiver returns when all pieces are copied, so nobody writes into its buffer afterwards. If
//! the sender dies, it copies no more, and the receiver has no message. The sender holds the
//! receiver's task (`control::hold`), so that the buffer stays mapped if the receiver dies.

use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Instant;

use control::{Identity, ThisTask};
use rustix::io::Errno;
use sync::futex;
use sync::pieces::{BYTES_MAX, BYTES_MIN};
use sync::wait::{DOUBT, WaitPolicy};

use crate::hold::Peer;
use crate::member::{Entry, Life, Members, Membership};
use crate::remote;

/// Returns true if a message of this length is worth two copiers.
pub(crate) fn is_worth(bytes: usize) -> bool {
    (BYTES_MIN..=BYTES_MAX).contains(&(bytes as u64))
}

/// Returns the task of this space that has this PID, if both may write each other's memory.
fn neighbour(pid: u32) -> Option<(ThisTask, Identity)> {
    let this = control::this_task()?;
    let control = this.control;
    let other = control.identity(this.task_of(pid)?)?;
    let is_near = control.domain_of(other.id) == control.domain_of(this.id);
    (is_near && control.protection().is_none()).then_some((this, other))
}

/// Copies bytes of the sender's data from offset `from` on into `to`, together with the sender if
/// that waits. `tell` gives the sender the tag, and `read` copies out of the sender's memory, from
/// an offset in `to` on.
///
/// `None`: they are not tasks of one space, or another thread receives this way, or `tell` has
/// returned false. `Errno::SRCH`: the sender has died.
pub(crate) fn pull(
    membership: &Membership,
    sender: Entry,
    from: usize,
    to: &mut [u8],
    tell: impl FnOnce(u32) -> bool,
    read: impl Fn(usize, &mut [u8]) -> Result<(), Errno>,
) -> Option<Result<(), Errno>> {
    let members = membership.members();
    if !is_worth(to.len()) || !members.shares_pids_with(sender.peer.index) {
        return None;
    }
    let (this, _) = neighbour(sender.pid)?;
    let exposed = membership.expose()?;
    let (start, length) = (to.as_mut_ptr(), to.len());
    let address = this.for_others(start.expose_provenance() as u64);
    let (tag, shares) = exposed.expose(address, length as u64, from as u64);
    if !tell(tag) {
        return None;
    }
    shares.copy(None, |at, length| {
        // SAFETY: `shares` gives each piece of `to` to one copier only, and `to` is not used while
        // this closure exists.
        let piece =
            unsafe { std::slice::from_raw_parts_mut(start.add(at as usize), length as usize) };
        read(at as usize, piece).map_err(Errno::raw_os_error)
    });
    let mut policy = WaitPolicy::default();
    loop {
        let word = exposed.futex();
        let seen = word.load(Acquire);
        match policy.poll(|| shares.finished()) {
            Some(0) => return Some(Ok(())),
            Some(errno) => return Some(Err(Errno::from_raw_os_error(errno))),
            None => futex::sleep(word, seen, Some(Instant::now() + DOUBT)),
        }
        if members.life(sender.peer) == Life::Gone && shares.finished().is_none() {
            return Some(Err(Errno::SRCH));
        }
    }
}

/// Copies pieces of this member's `pieces`, the data of a message, into the buffer that `receiver`
/// has exposed with this tag. Returns when no piece is left, or at once if it cannot help.
pub(crate) fn help(members: &Members, receiver: Peer, tag: u32, data: &[&[u8]]) {
    // If the tag is over, so is the message.
    let Some(entry) = members.entry(receiver.index) else { return };
    let Some((this, task)) = neighbour(entry.pid).filter(|_| entry.peer == receiver) else {
        return;
    };
    let Ok(_hold) = this.hold(task, control::hold::WORK) else { return };
    let exposed = members.exposed(receiver.index);
    let Some(helped) = exposed.helped(tag) else { return };
    // Another process may have written anything into the window.
    let length: usize = data.iter().map(|bytes| bytes.len()).sum();
    let layout = this.control.layout();
    let is_inside = |at: u64| layout.id_of(at) == Some(task.id);
    let end = helped.from.checked_add(helped.bytes);
    let last = helped.to.checked_add(helped.bytes.saturating_sub(1));
    if end.is_none_or(|end| end > length as u64)
        || !is_inside(helped.to)
        || !last.is_some_and(is_inside)
        || this.control.slot(task.id).pid.load(Relaxed) != entry.pid
    {
        return;
    }
    let was_last = helped.shares.copy(None, |at, length| {
        let from = (helped.from + at) as usize;
        push(helped.to + at, data, from, length as usize).map_err(Errno::raw_os_error)
    });
    if was_last {
        futex::wake(exposed.futex());
    }
}

/// Copies `length` bytes of `data`, from offset `from` on, to an address of this space.
fn push(mut to: u64, data: &[&[u8]], from: usize, length: usize) -> Result<(), Errno> {
    let (mut skip, mut left) = (from, length);
    for bytes in data {
        let skipped = skip.min(bytes.len());
        skip -= skipped;
        let now = &bytes[skipped..];
        let now = &now[..left.min(now.len())];
        if now.is_empty() {
            continue;
        }
        remote::write(std::process::id(), to as usize, now)?;
        to += now.len() as u64;
        left -= now.len();
    }
    debug_assert_eq!(left, 0, "the data has these bytes");
    Ok(())
}

//! Removes the remains of an ended task outside its segment (`gate/c/outside.c`): mappings whose
//! address the kernel chose, such as the rings of io_uring, and contexts of asynchronous I/O. Both
//! would last until the job ends, and the contexts would use up
//! fs.aio-max-nr, a limit of the whole machine.

use std::sync::atomic::Ordering::AcqRel;
use std::sync::mpsc::channel;
use std::time::Duration;

use control::Control;
use proc::maps;

/// Addresses up to this are marks of a table entry without a mapping.
const BUSY: u64 = 1;
/// The file that the kernel maps as the ring of a context.
const RING: &str = "/[aio]";
/// Time that the kernel may take to end the I/O of contexts. Later it ends beside the caller.
const IO_END_MAX: Duration = Duration::from_secs(1);

/// Removes the remains of the last task of this ID.
///
/// # Safety
/// The calling thread is in the task's mm. No thread of the task is left in that mm, and its
/// segment is still mapped.
pub unsafe fn remove(control: Control, id: u32) {
    let outside = control.outside(id);
    for mapping in &outside.mappings {
        let (address, size) = (mapping.address.swap(0, AcqRel), mapping.size.swap(0, AcqRel));
        if address > BUSY {
            // SAFETY: the gate recorded this mapping for the task, and removes an entry before it
            // unmaps the memory. By this function's contract nobody uses the mapping any more.
            unsafe { libc::munmap(address as *mut _, size as usize) };
        }
    }
    if outside.uses_aio.swap(0, AcqRel) != 0 {
        destroy_contexts(contexts(control, id));
    }
}

/// Returns the contexts whose rings lie in the segment; a ring's address is its context's name.
fn contexts(control: Control, id: u32) -> Vec<u64> {
    let segment = control.layout().segment(id).expect("IDs of slots are in range");
    let own = segment.start()..segment.end();
    // Without /proc the contexts last until the job ends.
    let mappings = maps::own().unwrap_or_default();
    let rings = mappings.iter().filter(|it| it.path.starts_with(RING));
    rings.map(|it| it.addresses.start).filter(|start| own.contains(start)).collect()
}

/// Destroys contexts. The kernel first unmaps the ring, then waits for the context's I/O. The
/// caller does not wait longer than [`IO_END_MAX`] for that.
fn destroy_contexts(contexts: Vec<u64>) {
    if contexts.is_empty() {
        return;
    }
    let destroy = |contexts: &[u64]| {
        for &context in contexts {
            // SAFETY: io_destroy only unmaps the ring, which lies in the segment of an ended task.
            unsafe { libc::syscall(libc::SYS_io_destroy, context) };
        }
    };
    let (done, is_done) = channel::<()>();
    let beside = contexts.clone();
    let work = move || {
        destroy(&beside);
        drop(done);
    };
    match std::thread::Builder::new().name("pvas-aio".into()).spawn(work) {
        Ok(_) => drop(is_done.recv_timeout(IO_END_MAX)),
        Err(_) => destroy(&contexts),
    }
}

//! The record of this rank, which MPI_Finalize writes.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use loaded::Library;
use traffic::{Call, DIRECTORY, Message, Record, Tally, file_name};

use crate::counts::{counts, elapsed_ns};
use crate::mpi::mpi;

/// Writes the record, if the user wants one.
pub fn write() {
    let Some(directory) = std::env::var_os(DIRECTORY).filter(|name| !name.is_empty()) else {
        return;
    };
    let Some(record) = record() else { return };
    let directory = PathBuf::from(directory);
    let path = directory.join(file_name(record.rank));
    // A stub whose rank has ended without MPI_Finalize may have removed an empty directory.
    let _ = fs::create_dir(&directory);
    // A reader sees the whole file or none.
    let part = path.with_extension("part");
    let written = fs::write(&part, record.to_text()).and_then(|()| fs::rename(&part, &path));
    if let Err(why) = written {
        proc::error_line!("nagaya-traffic: {}: {why}", path.display());
    }
}

fn record() -> Option<Record> {
    let time_ns = elapsed_ns();
    let (rank, ranks) = mpi()?.world();
    let counts = counts();
    let task = control::this_task();
    let copies = task.as_ref().map_or(Tally::default(), |task| Tally {
        count: task.copies(),
        bytes: task.copied_bytes(),
        time_ns: 0,
    });
    let mut calls: Vec<Call> = (counts.calls.iter())
        .map(|(&(function, class), &tally)| Call { function: function.into(), class, tally })
        .collect();
    calls.sort_by(|a, b| (&a.function, a.class).cmp(&(&b.function, b.class)));
    let mut messages: Vec<Message> = (counts.messages.iter())
        .map(|(&(to, class), &tally)| Message { to: u32::try_from(to).ok(), class, tally })
        .collect();
    messages.sort_by_key(|message| (message.to, message.class));
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let task = task.map(|task| task.id);
    Some(Record { rank, ranks, host, task, time_ns, copies, in_place: in_place(), calls, messages })
}

/// Returns the number of operations that libnagaya-coll.so did in place.
fn in_place() -> u64 {
    let counter = Library::NEXT.object("nagaya_coll_in_place");
    // SAFETY: that library has such a variable with this name.
    counter.map_or(0, |address| unsafe { (*(address as *const AtomicU64)).load(Relaxed) })
}

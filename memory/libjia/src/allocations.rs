//! The program's allocations, and the memory that it has freed. All tasks make the same calls in
//! the same order, so each task keeps the same account itself.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use dsm::error::DsmError;
use dsm::task::Task;

/// A piece of an allocation: bytes, bytes of a block, and the host of the first block.
pub type Piece = (usize, usize, u32);

/// The memory of a program.
struct Account {
    /// The pieces of each allocation by its address, until it is freed.
    live: Option<HashMap<usize, Vec<Piece>>>,
    /// The addresses of freed memory by its pieces.
    free: Option<HashMap<Vec<Piece>, Vec<usize>>>,
}

static ACCOUNT: Mutex<Account> = Mutex::new(Account { live: None, free: None });

/// Allocates zeroed memory of these consecutive pieces. Freed memory of the same pieces is used
/// first.
pub fn allocate(task: &mut Task, pieces: &[Piece]) -> Result<usize, DsmError> {
    let mut account = ACCOUNT.lock().unwrap_or_else(PoisonError::into_inner);
    let free = account.free.get_or_insert_default().get_mut(pieces).and_then(Vec::pop);
    let address = match free {
        Some(address) => address,
        None => {
            let mut begin = None;
            for &(bytes, block, first) in pieces {
                let address = task.allocate(bytes as u64, block as u64, first)?;
                begin.get_or_insert(address);
            }
            begin.ok_or_else(|| DsmError::Argument("no bytes; ask for more".into()))?
        }
    };
    account.live.get_or_insert_default().insert(address, pieces.to_vec());
    Ok(address)
}

/// Gives memory back, as all tasks do. It is zeroed, each task's part by that task, between two
/// barriers.
pub fn free(
    address: usize,
    mut with: impl FnMut(&mut dyn FnMut(&mut Task) -> Result<(), DsmError>),
) {
    let mut account = ACCOUNT.lock().unwrap_or_else(PoisonError::into_inner);
    let pieces = account.live.get_or_insert_default().remove(&address);
    let Some(pieces) = pieces else {
        return with(&mut |_| {
            let line = format!("{address:#x} is not what jia_alloc* has returned, or is free");
            Err(DsmError::Argument(line))
        });
    };
    let (mut part, mut page_bytes) = ((0, 1), 1);
    with(&mut |task| {
        (part, page_bytes) = ((task.rank() as usize, task.size() as usize), task.page_bytes());
        task.barrier()
    });
    let bytes = |&(bytes, ..): &Piece| bytes.next_multiple_of(page_bytes);
    let pages = pieces.iter().map(bytes).sum::<usize>() / page_bytes;
    let (begin, end) = (pages * part.0 / part.1, pages * (part.0 + 1) / part.1);
    let at = std::ptr::with_exposed_provenance_mut::<u8>(address + begin * page_bytes);
    // The task is not locked here, since pages may have to come.
    // SAFETY: whole pages of an allocation, which no other task uses between the barriers.
    unsafe { at.write_bytes(0, (end - begin) * page_bytes) };
    with(&mut Task::barrier);
    account.free.get_or_insert_default().entry(pieces).or_default().push(address);
}

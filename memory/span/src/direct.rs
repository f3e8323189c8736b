//! Calls at the origin by which the kernel writes to pages of the program without their mapping.
//! It holds the page itself (O_DIRECT, file systems in user space) until a device or another
//! process has written it. If another node takes the page during that time, the data would be
//! lost.
//!
//! So such a read first goes to a buffer of Nagaya. From there the kernel copies it to the program
//! as for other calls: by the mapping, which waits for the page. Pages that the kernel only reads
//! (O_DIRECT writes, vmsplice, MSG_ZEROCOPY) need nothing. The held page keeps the bytes that the
//! program must not change in the meantime, even if other nodes change the rest of the page.

use crate::addresses::PAGE;
use crate::call::Call;
use crate::here::Here;
use crate::{descriptors, edges, raw};

/// Bytes that are read at once at most.
const PART_BYTES: u64 = 16 << 20;
/// Pieces that a vector may have.
const PIECES_MAX: u64 = 1024;
/// `SOL_TLS`, `TLS_RX`: the kernel may decrypt into held pages.
const TLS_RX: [u64; 2] = [282, 2];
/// `SOL_XDP`, `XDP_UMEM_REG`: holds pages for good.
const XDP_UMEM: [u64; 2] = [283, 4];

/// A piece of a vector, as readv(2) has it.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Piece {
    start: u64,
    bytes: u64,
}

/// Makes a call that is made at the origin.
///
/// # Safety
/// As for [`edges::call`]; arguments are as the program gave them.
pub unsafe fn call(here: &Here, call: Call) -> i64 {
    let a = call.arguments;
    // SAFETY: this function requires the program's arguments; the kernel checks addresses.
    unsafe {
        // Of one node's pages none goes away.
        if here.nodes == 1 {
            return edges::call(call.number, a);
        }
        match call.number as i64 {
            libc::SYS_read
            | libc::SYS_pread64
            | libc::SYS_readv
            | libc::SYS_preadv
            | libc::SYS_preadv2
                if descriptors::holds_pages(a[0]) =>
            {
                read(call)
            }
            // The other way around the kernel holds what it reads.
            libc::SYS_process_vm_writev if is_own(here, a[0]) && a[5] == 0 => {
                let arguments = [a[0], a[3], a[4], a[1], a[2], 0];
                edges::call(libc::SYS_process_vm_readv as u64, arguments)
            }
            libc::SYS_unshare => {
                if a[0] & libc::CLONE_FILES as u64 != 0 {
                    descriptors::are_of_threads();
                }
                edges::call(call.number, a)
            }
            libc::SYS_setsockopt if [a[1], a[2]] == TLS_RX => -i64::from(libc::ENOPROTOOPT),
            libc::SYS_setsockopt if [a[1], a[2]] == XDP_UMEM => -i64::from(libc::EOPNOTSUPP),
            libc::SYS_socket if a[0] == libc::AF_ALG as u64 => -i64::from(libc::EAFNOSUPPORT),
            _ => edges::call(call.number, a),
        }
    }
}

/// Returns true if [`call`] may do anything else with a call than to make it, on several nodes.
pub fn may_differ(number: u64) -> bool {
    matches!(
        number as i64,
        libc::SYS_read
            | libc::SYS_pread64
            | libc::SYS_readv
            | libc::SYS_preadv
            | libc::SYS_preadv2
            | libc::SYS_process_vm_writev
            | libc::SYS_unshare
            | libc::SYS_setsockopt
            | libc::SYS_socket
    )
}

fn own_id() -> u64 {
    // SAFETY: asks.
    unsafe { raw::call(libc::SYS_getpid as u64, [0; 6]) as u64 }
}

fn is_own(here: &Here, id: u64) -> bool {
    id as i32 as u64 == own_id() || here.table.slot_of_tid(id as i32).is_some()
}

/// Reads into a buffer of Nagaya, and copies from there.
///
/// # Safety
/// As for [`call`]; one of the reads.
unsafe fn read(call: Call) -> i64 {
    let a = call.arguments;
    let (is_vector, has_place, flags) = match call.number as i64 {
        libc::SYS_read => (false, false, 0),
        libc::SYS_pread64 => (false, true, 0),
        libc::SYS_readv => (true, false, 0),
        libc::SYS_preadv => (true, true, 0),
        _ => (true, a[3] as i64 != -1, a[5]),
    };
    if has_place && (a[3] as i64) < 0 || is_vector && a[2] > PIECES_MAX {
        return -i64::from(libc::EINVAL);
    }
    let place = has_place.then_some(a[3]);
    if !is_vector {
        let mut pieces = [Piece { start: a[1], bytes: a[2] }, Piece::default()];
        // SAFETY: this function requires the program's arguments.
        return unsafe { read_pieces(a[0], &mut pieces, place, flags) };
    }
    let bytes = 2 * a[2] * size_of::<Piece>() as u64;
    if bytes == 0 {
        return 0;
    }
    // SAFETY: new private memory: the pieces, and room for as many.
    unsafe {
        let at = map(bytes);
        if at < 0 {
            return at;
        }
        let pieces = std::slice::from_raw_parts_mut(at as *mut Piece, 2 * a[2] as usize);
        let (from, to) = (Piece { start: a[1], bytes: bytes / 2 }, at as u64);
        let result = match copy(&[from], &[Piece { start: to, bytes: bytes / 2 }]) {
            count if count == bytes as i64 / 2 => read_pieces(a[0], pieces, place, flags),
            _ => -i64::from(libc::EFAULT),
        };
        unmap(at as u64, bytes);
        result
    }
}

/// The first half of `pieces` is the program's; the second is room for Nagaya's.
///
/// # Safety
/// As for [`call`].
unsafe fn read_pieces(
    descriptor: u64,
    pieces: &mut [Piece],
    mut place: Option<u64>,
    flags: u64,
) -> i64 {
    let (mut to, ours) = pieces.split_at_mut(pieces.len() / 2);
    let mut done = 0;
    loop {
        // SAFETY: this function requires the program's arguments.
        let (wanted, got) = unsafe { read_part(descriptor, to, ours, place, flags) };
        if got <= 0 {
            return if done > 0 { done } else { got };
        }
        done += got;
        place = place.map(|place| place + got as u64);
        to = advance(to, got as u64);
        if got < wanted || to.is_empty() {
            return done;
        }
    }
}

/// Returns the rest after this many bytes.
fn advance(mut pieces: &mut [Piece], mut bytes: u64) -> &mut [Piece] {
    while let Some(first) = pieces.first_mut() {
        if bytes < first.bytes {
            first.start += bytes;
            first.bytes -= bytes;
            break;
        }
        bytes -= first.bytes;
        pieces = &mut pieces[1..];
    }
    pieces
}

/// Reads at most [`PART_BYTES`]. Returns the number of wanted bytes, and of received bytes or an
/// error.
///
/// # Safety
/// As for [`call`].
unsafe fn read_part(
    descriptor: u64,
    to: &[Piece],
    ours: &mut [Piece],
    place: Option<u64>,
    flags: u64,
) -> (i64, i64) {
    let (wanted, room) = lay_out(to, ours);
    let ours = &mut ours[..to.len()];
    // SAFETY: a private buffer that contains the pieces.
    unsafe {
        let buffer = map(room.max(PAGE));
        if buffer < 0 {
            return (0, buffer);
        }
        ours.iter_mut().for_each(|piece| piece.start += buffer as u64);
        // -1: where the file stands.
        let (at, count) = (ours.as_ptr() as u64, ours.len() as u64);
        let arguments = [descriptor, at, count, place.unwrap_or(u64::MAX), 0, flags];
        let mut got = edges::call(libc::SYS_preadv2 as u64, arguments);
        if got > 0 {
            let mut left = got as u64;
            for piece in ours.iter_mut() {
                piece.bytes = piece.bytes.min(left);
                left -= piece.bytes;
            }
            got = copy(ours, to);
        }
        unmap(buffer as u64, room.max(PAGE));
        (wanted as i64, got)
    }
}

/// Returns pieces of Nagaya's buffer, from 0 on, as long as the program's together up to
/// [`PART_BYTES`], each with the same offset in its page, which devices require. Also returns the
/// number of their bytes.
fn lay_out(to: &[Piece], ours: &mut [Piece]) -> (u64, u64) {
    let (mut wanted, mut at) = (0, 0u64);
    for (piece, own) in to.iter().zip(ours) {
        let start = at.next_multiple_of(PAGE) + piece.start % PAGE;
        let bytes = piece.bytes.min(PART_BYTES - wanted);
        *own = Piece { start, bytes };
        wanted += bytes;
        at = start + bytes;
    }
    (wanted, at.next_multiple_of(PAGE))
}

/// Copies by the kernel, which waits for pages. Returns the number of bytes, or an error.
///
/// # Safety
/// The owner of `to` must permit the write.
unsafe fn copy(from: &[Piece], to: &[Piece]) -> i64 {
    let (from, from_count) = (from.as_ptr() as u64, from.len() as u64);
    let (to, to_count) = (to.as_ptr() as u64, to.len() as u64);
    let arguments = [own_id(), to, to_count, from, from_count, 0];
    // SAFETY: this function requires that `to` may be written; the kernel checks addresses.
    unsafe { raw::call(libc::SYS_process_vm_readv as u64, arguments) }
}

/// Maps private memory. Returns its address, or an error.
fn map(bytes: u64) -> i64 {
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE) as u64;
    let arguments = [0, bytes, protection, flags, u64::MAX, 0];
    // SAFETY: new memory.
    unsafe { raw::call(libc::SYS_mmap as u64, arguments) }
}

/// # Safety
/// `at` must be unused memory of [`map`].
unsafe fn unmap(at: u64, bytes: u64) {
    // SAFETY: this function requires unused memory of `map`.
    unsafe { raw::call(libc::SYS_munmap as u64, [at, bytes, 0, 0, 0, 0]) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_lie_as_the_program_s_do() {
        let pieces = [(4096 + 512, 512), (8192, 4096), (100, PART_BYTES)];
        let to: Vec<Piece> = pieces.map(|(start, bytes)| Piece { start, bytes }).into();
        let mut ours = [Piece::default(); 3];
        let (wanted, room) = lay_out(&to, &mut ours);
        assert_eq!(wanted, PART_BYTES);
        assert!(ours.iter().zip(&to).all(|(own, to)| own.start % PAGE == to.start % PAGE));
        assert!(ours.windows(2).all(|two| two[0].start + two[0].bytes <= two[1].start));
        assert!(ours[2].start + ours[2].bytes <= room);
        assert_eq!(ours[2].bytes, PART_BYTES - 512 - 4096);
    }

    #[test]
    fn the_rest_begins_after_the_part_done() {
        let mut pieces = [Piece { start: 10, bytes: 5 }, Piece { start: 100, bytes: 8 }];
        let left = advance(&mut pieces, 7);
        assert_eq!((left[0].start, left[0].bytes, left.len()), (102, 6, 1));
        assert!(advance(left, 6).is_empty());
    }
}

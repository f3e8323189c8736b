//! Patched system-call sites of the program: code from files jumps to a stub instead of executing
//! SYSCALL, and the stub to [`jump`](crate::jump).
//!
//! Code is patched when it is loaded or mapped, at the origin and before it runs. Stubs are memory
//! of the program, so a thread can move to another node while it is in one. They use nothing of the
//! stack. A stub contains a SYSCALL, for calls that need a signal frame; it raises SIGSYS as at any
//! other place, and so do sites that cannot be patched.

use nagaya_gate::sites::{ALL, Calls, MOVED_BYTES_MAX, REACH, Site, find};

use crate::addresses::PAGE;
use crate::call_table::NEED_FRAME;
use crate::slot::CALL_ENTRY_OFFSET;

/// Bytes of a stub.
const STUB_BYTES: usize = 96;
/// Bytes between a SYSCALL and others that its redirection changes, at most.
pub const CHANGED_REACH: usize = REACH + MOVED_BYTES_MAX + SYSCALL.len();
/// Farthest from its site that a stub may be.
const DISTANCE_MAX: u64 = 1 << 31;

const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// `jmp rel32`.
const JUMP: u8 = 0xe9;
/// `lea rcx, [rip + 8]; jmp qword ptr gs:[disp32]`: the stub continues behind that.
const ENTER: [u8; 11] = [0x48, 0x8d, 0x0d, 8, 0, 0, 0, 0x65, 0xff, 0x24, 0x25];
/// `jrcxz` over SYSCALL.
const SKIP: [u8; 2] = [0xe3, 0x02];

/// The calls whose sites are patched. The others are trapped in any case, and stack unwinders
/// recognise rt_sigreturn(2) by its code.
const WANTED: Calls = {
    let mut wanted = ALL;
    let mut at = 0;
    while at < NEED_FRAME.len() {
        wanted[NEED_FRAME[at] as usize / 64] &= !(1 << (NEED_FRAME[at] % 64));
        at += 1;
    }
    wanted
};

/// Finds the sites in code that can be patched. Stores as many as there is room for. Returns the
/// number of all.
pub fn sites(text: &[u8], to: &mut [Site]) -> usize {
    find(text, &WANTED, to)
}

/// Returns the bytes of pages for this many stubs.
pub fn room(sites: usize) -> u64 {
    (sites * STUB_BYTES).next_multiple_of(PAGE as usize) as u64
}

/// Returns true if the stubs can be reached from all of the code.
pub fn is_near(text: u64, text_bytes: usize, stubs: u64, stubs_bytes: u64) -> bool {
    let (start, end) = (text.min(stubs), (text + text_bytes as u64).max(stubs + stubs_bytes));
    end - start < DISTANCE_MAX
}

/// Writes a stub for each site of `text`, and redirects the sites there. The addresses are those at
/// which code and stubs will run; they must be [near](is_near).
pub fn patch(text: &mut [u8], text_at: u64, sites: &[Site], stubs: &mut [u8], stubs_at: u64) {
    for (index, site) in sites.iter().enumerate() {
        let offset = index * STUB_BYTES;
        let (stub, stub_at) = (&mut stubs[offset..offset + STUB_BYTES], stubs_at + offset as u64);
        let mut end = site.move_to(stub, stub_at, text, text_at);
        let mut put = |bytes: &[u8]| {
            stub[end..end + bytes.len()].copy_from_slice(bytes);
            end += bytes.len();
            end
        };
        put(&ENTER);
        put(&(CALL_ENTRY_OFFSET as u32).to_le_bytes());
        put(&SKIP);
        put(&SYSCALL);
        let behind = put(&[JUMP]) as u64 + 4 + stub_at;
        put(&(text_at.wrapping_add(site.end() as u64).wrapping_sub(behind) as u32).to_le_bytes());
        site.redirect(text, text_at, stub_at);
    }
}

/// Returns true if a page of code may have been patched at the origin, by its bytes and those up
/// to [`CHANGED_REACH`] before and behind it.
pub fn may_be_patched(page: &[u8]) -> bool {
    page.windows(SYSCALL.len()).any(|bytes| bytes == SYSCALL)
}

/// Returns the address behind the SYSCALL of a site, from that behind its stub's SYSCALL. Other
/// addresses are returned unchanged.
///
/// # Safety
/// `code` is an address behind a SYSCALL that the calling thread has executed.
pub unsafe fn site_end(code: u64) -> u64 {
    // SAFETY: code behind a SYSCALL can be read, except at the end of a mapping. A stub has five
    // more bytes, and other code that ends there is not followed by a page boundary.
    unsafe {
        if code % PAGE > PAGE - 5 || (code as *const u8).read() != JUMP {
            return code;
        }
        let distance = ((code + 1) as *const i32).read_unaligned();
        code.wrapping_add(5).wrapping_add_signed(distance.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// mov $39,%eax; syscall; mov $15,%rax; syscall; ret
    const CODE: &[u8] = b"\xb8\x27\0\0\0\x0f\x05\x48\xc7\xc0\x0f\0\0\0\x0f\x05\xc3";

    #[test]
    fn a_stub_repeats_its_site_and_returns_behind_it() {
        let mut text = CODE.to_vec();
        let mut found = [Site::default(); 2];
        assert_eq!(sites(&text, &mut found), 1, "rt_sigreturn stays");
        let mut stubs = vec![0; room(1) as usize];
        let (text_at, stubs_at) = (0x5000, 0x9000);
        patch(&mut text, text_at, &found[..1], &mut stubs, stubs_at);
        // jmp 0x9000
        assert_eq!(text[..5], *b"\xe9\xfb\x3f\0\0");
        assert_eq!(text[5..], CODE[5..]);
        assert_eq!(stubs[..5], CODE[..5]);
        let syscall = stubs.windows(2).position(|it| it == SYSCALL).expect("it makes the call");
        let end = stubs.as_ptr() as u64 + syscall as u64 + 2;
        // SAFETY: the stub is readable memory.
        let target = unsafe { site_end(end) }.wrapping_sub(end);
        assert_eq!(target, (text_at + 7).wrapping_sub(stubs_at + syscall as u64 + 2));
        // SAFETY: as above.
        assert_eq!(unsafe { site_end(text.as_ptr() as u64 + 7) }, text.as_ptr() as u64 + 7);
    }

    #[test]
    fn stubs_are_near_below_2_gib() {
        assert!(is_near(1 << 40, 4096, (1 << 40) + (1 << 31) - 8192, 4096));
        assert!(!is_near(1 << 40, 4096, (1 << 40) + (1 << 31), 4096));
        assert!(!is_near((1 << 40) + (1 << 31), 4096, 1 << 40, 4096));
    }
}

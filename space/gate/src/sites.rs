//! System-call sites in code, for processes without a gate: `c/sites.c`, which the gate uses in
//! tasks.
//!
//! A site is an instruction SYSCALL behind the instruction that loads its number. The first of
//! these instructions is replaced by a jump to a *stub*, which repeats them.

pub use crate::abi::Site;

/// A set of system calls: bit N for call N.
pub type Calls = [u64; 8];

/// All system calls.
pub const ALL: Calls = [u64::MAX; 8];
/// Bytes of the longest copy that [`Site::move_to`] makes.
pub const MOVED_BYTES_MAX: usize = 52;
/// `SITE_REACH` of `c/sites.h`: bytes around a site that [`Site::redirect`] may change, at most.
pub const REACH: usize = 160;

unsafe extern "C" {
    fn gate_find_sites(
        text: *const u8,
        length: u64,
        wanted: *const u64,
        sites: *mut Site,
        room: u32,
        unreached: *mut u32,
    ) -> u32;
    fn gate_move_site(
        to: *mut u8,
        to_address: u64,
        site: *const Site,
        at: *const u8,
        at_address: u64,
    ) -> *mut u8;
    fn gate_redirect_site(
        text: *mut u8,
        length: u64,
        site: *const Site,
        text_address: u64,
        stub_address: u64,
    ) -> i32;
}

/// Finds the sites in code whose call is in `wanted`, or may be any. Stores as many as there is
/// room for. Returns the number of all.
pub fn find(text: &[u8], wanted: &Calls, sites: &mut [Site]) -> usize {
    let mut unreached = 0;
    // SAFETY: the function reads `text` and writes at most `sites.len()` sites.
    unsafe {
        gate_find_sites(
            text.as_ptr(),
            text.len() as u64,
            wanted.as_ptr(),
            sites.as_mut_ptr(),
            sites.len() as u32,
            &raw mut unreached,
        ) as usize
    }
}

impl Site {
    /// The offset of its first instruction in the code.
    pub fn start(&self) -> usize {
        self.offset as usize
    }

    /// The offset behind its SYSCALL.
    pub fn end(&self) -> usize {
        self.start() + usize::from(self.first) + usize::from(self.moved) + 2
    }

    /// Copies its instructions, without SYSCALL, to the start of `to`, for a stub at that address.
    /// Returns their length. `text` is the code in which the site was found, and will run at
    /// `text_address`, less than 2 GiB from the stub.
    ///
    /// # Panics
    /// The site is not in `text`, or `to` has fewer than [`MOVED_BYTES_MAX`] bytes.
    pub fn move_to(&self, to: &mut [u8], stub: u64, text: &[u8], text_address: u64) -> usize {
        assert!(to.len() >= MOVED_BYTES_MAX, "no room for {self:?}");
        let at = &text[self.start()..self.end()];
        let address = text_address + self.start() as u64;
        // SAFETY: the site's bytes are in `text`, and at most `MOVED_BYTES_MAX` are written.
        let end = unsafe { gate_move_site(to.as_mut_ptr(), stub, self, at.as_ptr(), address) };
        end as usize - to.as_ptr() as usize
    }

    /// Replaces its first instruction in `text` by a jump to the stub; addresses as for
    /// [`move_to`](Self::move_to). Changes bytes up to [`REACH`] before and behind the site's
    /// start. Returns false, and changes nothing, if there is no room for the jump.
    ///
    /// # Panics
    /// The site is not in `text`.
    pub fn redirect(&self, text: &mut [u8], text_address: u64, stub: u64) -> bool {
        assert!(self.end() <= text.len(), "{self:?} is not in this code");
        let length = text.len() as u64;
        // SAFETY: the site lies in `text`, and the function changes nothing outside.
        unsafe { gate_redirect_site(text.as_mut_ptr(), length, self, text_address, stub) != 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_is_moved_and_leads_to_its_stub() {
        // nop; mov $39,%eax; mov 8(%rip),%rdx; syscall; ret
        let mut text = *b"\x90\xb8\x27\0\0\0\x48\x8b\x15\x08\0\0\0\x0f\x05\xc3";
        let mut sites = [Site::default(); 2];
        assert_eq!(find(&text, &ALL, &mut sites), 1);
        assert_eq!(find(&text, &[0; 8], &mut sites[..0]), 0, "it is not wanted");
        let site = sites[0];
        assert_eq!((site.start(), site.end()), (1, 15));
        let mut stub = [0; MOVED_BYTES_MAX];
        let length = site.move_to(&mut stub, 0x3000, &text, 0x1000);
        // The load is relative to the instruction behind it: 0x100d before, 0x300c now.
        let displacement = (0x100d + 8 - 0x300ci32).to_le_bytes();
        assert_eq!(stub[..8], *b"\xb8\x27\0\0\0\x48\x8b\x15");
        assert_eq!((&stub[8..12], length), (&displacement[..], 12));
        assert!(site.redirect(&mut text, 0x1000, 0x3000));
        assert_eq!(text[..6], *b"\x90\xe9\xfa\x1f\0\0");
        assert_eq!(find(&text, &ALL, &mut sites), 0, "the number is no longer loaded");
    }

    #[test]
    fn a_number_in_a_register_is_found_where_futex_is_wanted() {
        // ret; a long nop; mov %r8d,%eax; mov %rbx,%rdi; syscall; ret
        let code = b"\xc3\x66\x2e\x0f\x1f\x84\0\0\0\0\0\x44\x89\xc0\x48\x89\xdf\x0f\x05\xc3";
        let mut sites = [Site::default()];
        assert_eq!(find(code, &ALL, &mut sites), 1);
        let site = sites[0];
        assert_eq!((site.start(), site.end()), (11, 19));
        let mut stub = [0; MOVED_BYTES_MAX];
        assert_eq!(site.move_to(&mut stub, 0x3000, code, 0x1000), 6);
        assert_eq!(stub[..6], code[11..17]);
        let mut text = *code;
        assert!(site.redirect(&mut text, 0x1000, 0x3000));
        // A jump to that in the padding; the moves stay for those who jump there.
        assert_eq!(text[11..], *b"\xeb\xf6\x90\x48\x89\xdf\x0f\x05\xc3");
        assert_eq!(text[3..8], *b"\xe9\xf8\x1f\0\0");
        let mut wanted = ALL;
        wanted[202 / 64] &= !(1 << (202 % 64));
        assert_eq!(find(code, &wanted, &mut sites), 0);
        // mov %edi,%edi; mov %eax,%eax; and with a prefix another register
        for other in [b"\x90\x89\xff", b"\x90\x89\xc0", b"\x41\x89\xc0"] {
            let code = [&other[..], b"\x0f\x05\xc3"].concat();
            assert_eq!(find(&code, &ALL, &mut sites), 0, "{other:x?}");
        }
    }

    #[test]
    fn sites_are_found_wherever_they_are() {
        // mov $39,%eax; syscall
        let code = b"\xb8\x27\0\0\0\x0f\x05";
        for room in code.len()..220 {
            for at in 0..=room - code.len() {
                let mut text = vec![0x0f; room];
                text[at..at + code.len()].copy_from_slice(code);
                let mut sites = [Site::default()];
                assert_eq!(find(&text, &ALL, &mut sites), 1, "at {at} of {room}");
                assert_eq!(sites[0].start(), at);
            }
        }
    }

    #[test]
    fn a_short_site_leads_to_its_stub_by_padding() {
        // ret; a long nop; xor %eax,%eax; syscall; ret
        let code = b"\xc3\x66\x2e\x0f\x1f\x84\0\0\0\0\0\x31\xc0\x0f\x05\xc3";
        let mut sites = [Site::default()];
        assert_eq!(find(code, &ALL, &mut sites), 1);
        let mut text = *code;
        assert!(sites[0].redirect(&mut text, 0x1000, 0x3000));
        // The padding skips the jump to 0x3000, to which the short jump leads.
        assert_eq!(text[1..11], *b"\xeb\x05\xe9\xf8\x1f\0\0\x90\x90\x90");
        assert_eq!(text[11..], *b"\xeb\xf6\x0f\x05\xc3");
        // Shorter nops have room, too.
        for nop in
            [&b"\x66\x0f\x1f\x84\0\0\0\0\0"[..], b"\x0f\x1f\x84\0\0\0\0\0", b"\x0f\x1f\x80\0\0\0\0"]
        {
            let mut text = [b"\xc3", nop, &code[11..]].concat();
            assert_eq!(find(&text, &ALL, &mut sites), 1);
            assert!(sites[0].redirect(&mut text, 0x1000, 0x3000), "{nop:x?}");
            assert_eq!(text[1..8], *b"\xeb\x05\xe9\xf8\x1f\0\0");
            assert_eq!(text[8..=nop.len()], [0x90].repeat(nop.len() - 7));
            assert_eq!(text[nop.len() + 1..][..2], [0xeb, 0u8.wrapping_sub(nop.len() as u8)]);
        }
        let mut other = *code;
        other[0] = 0x66;
        let before = other;
        assert!(!sites[0].redirect(&mut other, 0x1000, 0x3000), "the nop begins before");
        assert_eq!(other, before);
        let mut far = [&code[..11], &[0x90; 125], &code[11..]].concat();
        assert_eq!(find(&far, &ALL, &mut sites), 1);
        assert!(!sites[0].redirect(&mut far, 0x1000, 0x3000), "a short jump does not get there");
    }

    #[test]
    fn an_operand_is_not_taken_for_the_number() {
        let mut sites = [Site::default()];
        // mov 160(%r8),%edi; syscall
        let operand = b"\x41\x8b\xb8\xa0\0\0\0\x0f\x05";
        assert_eq!(find(operand, &ALL, &mut sites), 0);
        // movups 240(%r8),%xmm15; syscall
        let vector = b"\x45\x0f\x10\xb8\xf0\0\0\0\x0f\x05";
        assert_eq!(find(vector, &ALL, &mut sites), 0);
        // mov %edi,%ebx; mov $160,%eax; syscall
        let number = b"\x89\xfb\xb8\xa0\0\0\0\x0f\x05";
        assert_eq!((find(number, &ALL, &mut sites), sites[0].start()), (1, 2));
        // cmp $1,%edi; mov $39,%eax; syscall
        let small = b"\x83\xff\x01\xb8\x27\0\0\0\x0f\x05";
        assert_eq!((find(small, &ALL, &mut sites), sites[0].start()), (1, 3));
    }

    #[test]
    fn a_constant_is_not_taken_for_code() {
        let mut sites = [Site::default()];
        // movabs $0xc3050f00000027b8,%rax; mov %rax,(%rbx)
        let wide = b"\x48\xb8\xb8\x27\0\0\0\x0f\x05\xc3\x48\x89\x03";
        assert_eq!(find(wide, &ALL, &mut sites), 0);
        // movl $0x050fc031,8(%rsp)
        let narrow = b"\xc7\x44\x24\x08\x31\xc0\x0f\x05\xc3";
        assert_eq!(find(narrow, &ALL, &mut sites), 0);
        // mov $0x050fc031,%ecx
        let moved = b"\xb9\x31\xc0\x0f\x05\xc3";
        assert_eq!(find(moved, &ALL, &mut sites), 0);
    }
}
